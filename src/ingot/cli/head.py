"""``ingot head`` and ``ingot tail``: rows of a table, items of an array, by keys and conditions."""

import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

import numpy as np

import ingot
from ingot.cli.arguments import (
    AllowPickle,
    Dataset,
    Json,
    Key,
    parse_key,
    parse_names,
    reading_options,
)
from ingot.cli.messages import usage
from ingot.cli.output import print_json, print_table, print_text, terminal_width
from ingot.cli.parameters import Option
from ingot.errors import UnsupportedError
from ingot.options import Options

__all__ = ["head", "tail"]

_LONGEST_CELL: Final = 60
_WIDTH: Final = 100
"""How wide an array is printed in a pipe."""

Count: TypeAlias = Annotated[
    int, Option("-n", "--rows", min=0, help="How many rows, or items of the first axis.")
]
KeyText: TypeAlias = Annotated[
    str | None,
    Option("-k", "--key", help='What to show instead, as NumPy spells it, such as "0:10, ::5".'),
]
Columns: TypeAlias = Annotated[
    str | None, Option("-c", "--columns", help="Columns of a table, such as a,b.")
]
Where: TypeAlias = Annotated[
    str | None,
    Option("-w", "--where", help='Rows of a table, such as "(day > 3) & (price < 9)".'),
]


def head(
    path: Dataset,
    rows: Count = 10,
    key: KeyText = None,
    columns: Columns = None,
    where: Where = None,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Show the first rows or items of a dataset."""
    _show(path, slice(0, rows), key, columns, where, json, reading_options(allow_pickle))


def tail(
    path: Dataset,
    rows: Count = 10,
    key: KeyText = None,
    columns: Columns = None,
    where: Where = None,
    allow_pickle: AllowPickle = False,
    json: Json = False,
) -> None:
    """Show the last rows or items of a dataset."""
    _show(
        path,
        slice(-rows, None) if rows else slice(0, 0),
        key,
        columns,
        where,
        json,
        reading_options(allow_pickle),
    )


def _show(
    path: Any,
    rows: slice,
    key: str | None,
    columns: str | None,
    where: str | None,
    json: bool,
    options: Options | None,
) -> None:
    with usage():
        chosen = None if key is None else parse_key(key)
    with ingot.open(path, options=options) as dataset:
        if isinstance(dataset, ingot.Table):
            _show_table(dataset, rows, chosen, parse_names(columns), where, json)
            return
        if columns is not None or where is not None:
            raise UnsupportedError(f"{path}: --columns and --where are for tables")
        if isinstance(dataset, ingot.Array):
            _show_array(dataset, rows, chosen, json)
        elif isinstance(dataset, ingot.Ragged):
            _show_items(dataset, rows, chosen, json)
        else:
            raise UnsupportedError(f"{path}: a group has no items; ingot ls lists its members")


def _show_table(
    table: "ingot.Table",
    rows: slice,
    key: Key | None,
    columns: Sequence[str] | None,
    where: str | None,
    json: bool,
) -> None:
    numbers: Any = range(len(table)) if where is None else table.where(where, params={}).rows()
    if key is not None:
        if len(key) != 1:
            raise UnsupportedError("a key of a table has one part, for its rows")
        first = key[0]
        numbers = np.asarray(numbers)[[first] if isinstance(first, int) else first]
    else:
        numbers = numbers[rows]
    if isinstance(numbers, range):
        numbers = slice(numbers.start, numbers.stop)
    # Columns of nested tables are named as "a.b".
    found = _leaves(table.read(columns, rows=numbers))
    lines = [
        {name: values[number] for name, values in found.items()}
        for number in range(min((len(values) for values in found.values()), default=0))
    ]
    if json:
        print_json({"kind": "table", "columns": list(found), "rows": lines})
        return
    texts = {name for name, values in found.items() if _is_text(values)}
    cells = [[_cell(value) for value in line.values()] for line in lines]
    print_table(list(found), cells, left=texts)


def _leaves(found: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return the columns by their full names; those of nested tables come as structures."""
    leaves: dict[str, Any] = {}
    for name, values in found.items():
        if isinstance(values, Mapping):
            leaves |= _leaves(values, f"{above}{name}.")
        else:
            leaves[above + name] = values
    return leaves


def _show_array(array: "ingot.Array", rows: slice, key: Key | None, json: bool) -> None:
    chosen: Any = key
    if chosen is None:
        chosen = (rows,) if array.ndim else ()
    values = np.asarray(array[chosen])
    if json:
        print_json(
            {
                "kind": "array",
                "shape": list(values.shape),
                "dtype": str(values.dtype),
                "data": values,
            }
        )
        return
    print_text(f"{values.shape} {values.dtype} of {array.shape}", style="dim")
    width = terminal_width() or _WIDTH
    print(np.array2string(values, max_line_width=width, threshold=_threshold(key)))


def _threshold(key: Key | None) -> int:
    """Return how many items are shown in full: all of them, where the caller chose them."""
    return 1000 if key is None else sys.maxsize


def _show_items(items: "ingot.Ragged", rows: slice, key: Key | None, json: bool) -> None:
    chosen: Any = rows if key is None else key[0]
    if key is not None and len(key) != 1:
        raise UnsupportedError("a key of items has one part")
    numbers = np.arange(len(items))[chosen]
    found = [items[int(number)] for number in np.atleast_1d(numbers)]
    if json:
        print_json({"kind": "ragged", "items": found})
        return
    cells = [(int(number), _cell(item)) for number, item in zip(numbers, found, strict=True)]
    print_table(("number", "item"), cells, left=["item"])


def _is_text(values: Any) -> bool:
    """Return whether a column is aligned to the left."""
    dtype = getattr(values, "dtype", None)
    return dtype is None or dtype.kind in "OUSTV"


def _cell(value: Any) -> str:
    """Return an item as one line that is not too long."""
    if value is None or value is np.ma.masked:
        return "null"
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"

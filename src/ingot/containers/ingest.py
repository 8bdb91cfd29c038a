"""Conversion of rows that a user gives into columns, and of columns into rows.

Rows are mappings of columns, structured arrays, lists of rows, data frames or Arrow streams. A
column takes the values that it can hold exactly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.dtypes import DType
from ingot.errors import SelectionError
from ingot.interop import arrow, pandas

__all__ = [
    "arrays_of",
    "check_lengths",
    "columns_of",
    "fitted",
    "fitted_all",
    "flattened",
    "row_dtype",
    "rows_of",
    "spread",
    "taken",
]

Shape = tuple[int, ...]
Layout = Mapping[str, tuple[DType, Shape]]
"""The type of every column, and the shape of its items; nested ones by "a.b"."""


def columns_of(data: object, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the columns of rows in any form; nested tables are mappings of their own.

    `names` are those of a list of rows, in their order.

    >>> columns_of({"a": [1, 2], "b": ["x", "y"]})
    {'a': [1, 2], 'b': ['x', 'y']}
    >>> columns_of([(1, "x"), (2, "y")], ["a", "b"])
    {'a': (1, 2), 'b': ('x', 'y')}
    """
    if isinstance(data, Mapping):
        return {_name(name): _inner(values) for name, values in data.items()}
    if isinstance(data, np.ndarray | np.void) and data.dtype.names is not None:
        return _of_structure(np.atleast_1d(data))
    if pandas.is_frame(data):
        return pandas.columns(data)
    if hasattr(data, "__arrow_c_stream__"):
        return arrow.columns(data)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes) and names is not None:
        return _of_rows(data, names)
    raise TypeError(
        f"{type(data).__name__} is not a mapping of columns, and not rows of a known kind"
    )


def flattened(columns: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the columns; those of nested mappings get names with dots.

    >>> flattened({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for name, values in columns.items():
        if isinstance(values, Mapping):
            found |= flattened(values, f"{prefix}{name}.")
        else:
            found[prefix + name] = values
    return found


def arrays_of(data: object) -> dict[str, NDArray[Any]]:
    """Return the columns of rows in any form as arrays; nested ones get names with dots.

    >>> arrays_of({"a": [[1], [2, 3]]})
    Traceback (most recent call last):
    ValueError: column 'a': its items have different shapes
    """
    given = flattened(columns_of(data))
    return {name: _made(values, name) for name, values in given.items()}


def taken(data: object, layout: Layout) -> dict[str, NDArray[Any]]:
    """Return rows as arrays for all columns of a table with that layout.

    >>> taken([(1, 2.5)], {"a": (np.dtype("i4"), ()), "b": (np.dtype("f8"), ())})
    {'a': array([1], dtype=int32), 'b': array([2.5])}
    """
    given = flattened(columns_of(data, tuple(layout)))
    if missing := [name for name in layout if name not in given]:
        raise ValueError(f"column {missing[0]!r} is missing among {', '.join(given) or 'none'}")
    if unknown := [name for name in given if name not in layout]:
        raise ValueError(f"column {unknown[0]!r} is none of {', '.join(layout) or 'none'}")
    found = {name: fitted(given[name], *layout[name], name) for name in layout}
    check_lengths(found)
    return found


def check_lengths(columns: Mapping[str, NDArray[Any]], rows: int | None = None) -> None:
    """Raise `ValueError` for columns of different lengths, or not of the length `rows`.

    >>> check_lengths({"a": np.zeros(2), "b": np.zeros((1, 2))})
    Traceback (most recent call last):
    ValueError: columns of different lengths: a 2, b 1
    """
    if scalar := [name for name, values in columns.items() if not values.ndim]:
        raise ValueError(f"column {scalar[0]!r} is one value, not an array of them")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"columns of different lengths: {text}")
    for name, length in lengths.items():
        if rows is not None and length != rows:
            raise ValueError(f"column {name!r} has {length} rows, the table {rows} rows")


def fitted(values: object, dtype: DType, shape: Shape, name: str) -> NDArray[Any]:
    """Return values as items of a column; a value that it cannot hold exactly is refused.

    Floats may lose digits to a narrower type, nothing else may be lost.

    >>> fitted([1, 300], np.dtype("u1"), (), "a")
    Traceback (most recent call last):
    ValueError: column 'a' of uint8 cannot hold 300
    """
    if dtype == np.dtype(object):
        return _objects(values, shape)
    array = values if isinstance(values, np.ndarray) else _array(values, dtype, name)
    if not array.ndim:
        raise ValueError(f"column {name!r} is one value, not an array of them")
    if array.shape[1:] != shape:
        raise ValueError(
            f"column {name!r}: values of shape {array.shape} are not rows of items of shape {shape}"
        )
    if array.dtype == dtype:
        return array
    cast = _cast(array, dtype, name)
    lossless = array.dtype.kind in "fc" and dtype.kind in "fc" and dtype.kind >= array.dtype.kind
    if not lossless and not np.can_cast(array.dtype, dtype, "safe"):
        _check_kept(array, cast, name)
    return cast


def fitted_all(given: Mapping[str, Any], layout: Layout) -> dict[str, NDArray[Any]]:
    """Return values for some rows as items of their columns: one for all rows, or one for each.

    >>> fitted_all({"a": 7, "b": [1, 2]}, dict.fromkeys("ab", (np.dtype("i4"), ())))
    {'a': array(7, dtype=int32), 'b': array([1, 2], dtype=int32)}
    """
    found: dict[str, NDArray[Any]] = {}
    for name, values in given.items():
        dtype, shape = layout[name]
        array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.shape == shape:
            one = [values] if dtype == np.dtype(object) else array[None]
            found[name] = fitted(one, dtype, shape, name).reshape(shape)
        else:
            found[name] = fitted(values, dtype, shape, name)
    return found


def spread(items: NDArray[Any], count: int, shape: Shape, name: str) -> NDArray[Any]:
    """Return an item for each of `count` rows: the one item repeated, or as many as are given.

    >>> spread(np.array(7), 2, (), "a").tolist()
    [7, 7]
    """
    if items.shape == shape:
        return np.broadcast_to(items, (count, *shape))
    if len(items) != count:
        raise ValueError(f"column {name!r}: {len(items)} values for {count} rows")
    return items


def row_dtype(layout: Layout) -> np.dtype[np.void]:
    """Return the type of a row: a field for every column, a structure for every nested table.

    >>> row_dtype({"a": (np.dtype("i4"), ()), "b.c": (np.dtype("f8"), (2,))})
    dtype([('a', '<i4'), ('b', [('c', '<f8', (2,))])])
    """
    fields: dict[str, Any] = {}
    for name, (dtype, shape) in layout.items():
        first, dot, rest = name.partition(".")
        if dot:
            fields.setdefault(first, {})[rest] = (dtype, shape)
        else:
            # In a row, text of any length is an object.
            item = np.dtype(object) if dtypes.is_variable(dtype) else dtype
            fields[name] = (item, shape)
    made = [
        (name, row_dtype(field)) if isinstance(field, dict) else (name, *field)
        for name, field in fields.items()
    ]
    return np.dtype(made)


def rows_of(columns: Mapping[str, NDArray[Any]], layout: Layout, count: int) -> NDArray[np.void]:
    """Return the values of columns as rows: an array of structures.

    >>> rows_of({"a": np.array([1, 2])}, {"a": (np.dtype("i8"), ())}, 2)
    array([(1,), (2,)], dtype=[('a', '<i8')])
    """
    rows = np.zeros(count, row_dtype(layout))
    for name, values in columns.items():
        field: Any = rows
        for part in name.split("."):
            field = field[part]
        field[...] = values
    return rows


def _inner(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {_name(name): _inner(each) for name, each in values.items()}
    if isinstance(values, np.ndarray) and values.dtype.names is not None:
        return _of_structure(values)
    return values


def _of_structure(array: NDArray[Any] | np.void) -> dict[str, Any]:
    names = array.dtype.names or ()
    return {name: _inner(np.asarray(array[name])) for name in names}


def _of_rows(rows: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    if not rows:
        return {name: [] for name in names}
    if any(isinstance(row, Mapping) for row in rows):
        listed = [
            row if isinstance(row, Mapping) else dict(zip(names, row, strict=True)) for row in rows
        ]
        return {name: [_dug(row, name) for row in listed] for name in names}
    for index, row in enumerate(rows):
        if isinstance(row, str | bytes) or len(row) != len(names):
            raise ValueError(f"row {index} does not have one value for each of {', '.join(names)}")
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _dug(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    if not dot or not isinstance(row.get(first), Mapping):
        raise ValueError(f"column {name!r} is missing in a row")
    return _dug(row[first], rest)


def _made(values: object, name: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError(f"column {name!r}: its items have different shapes") from None
        raise ValueError(f"column {name!r}: {error}") from None


def _array(values: object, dtype: DType, name: str) -> NDArray[Any]:
    try:
        if dtype.kind in "MmV" and not hasattr(values, "__array__"):
            return np.asarray(values, dtype)
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r} of {dtype}: {error}") from None


def _cast(array: NDArray[Any], dtype: DType, name: str) -> NDArray[Any]:
    numeric = "biufc"
    if (array.dtype.kind in numeric) != (dtype.kind in numeric) and array.size:
        raise ValueError(f"column {name!r} of {dtype} cannot hold {array.dtype}")
    try:
        with np.errstate(all="ignore"):
            return array.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r} of {dtype}: {error}") from None


def _check_kept(array: NDArray[Any], cast: NDArray[Any], name: str) -> None:
    with np.errstate(all="ignore"):
        same = (cast == array) | ((cast != cast) & (array != array))
    if not same.all():
        wrong = array[tuple(index[0] for index in np.nonzero(~same))]
        shown = repr(wrong.item()) if array.dtype.kind in "SU" else str(wrong)
        raise ValueError(f"column {name!r} of {cast.dtype} cannot hold {shown}")


def _objects(values: object, shape: Shape) -> NDArray[Any]:
    if isinstance(values, np.ndarray) and values.dtype == object:
        return values
    listed = list(values) if isinstance(values, Sequence | np.ndarray) else [values]
    made = np.empty((len(listed), *shape), object)
    for index, value in enumerate(listed):
        made[index] = value
    return made


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise SelectionError(f"the column name {name!r} is not text")
    return name

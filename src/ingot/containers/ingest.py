"""Conversion of rows that a user gives into columns, and of columns into rows.

Rows are mappings of columns, structured arrays, lists of rows, data frames or Arrow streams. A
column takes the values that it can hold exactly. Where a format holds variable-length items, lists
of text, bytes, JSON objects and rows of several lengths become columns of these. None, masked
items, and what other libraries call null are nulls in every column.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Sized
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.dtypes import DType
from ingot.errors import ArgumentError, ArgumentTypeError, SelectionError, UnsupportedError
from ingot.interop import arrow, pandas
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DecimalType,
    LogicalArray,
    LogicalKind,
    TimeType,
    ZonedType,
    decoded,
    decoded_dtype,
    words_of,
)
from ingot.nullable_array import MaskedRows, NullableArray, of_masked, of_objects
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind, RaggedArray, to_fixed

__all__ = [
    "ColumnType",
    "Layout",
    "RepeatedItem",
    "arrays_of",
    "check_lengths",
    "columns_of",
    "fitted",
    "fitted_items",
    "fitted_logical",
    "fitted_rows",
    "fitted_values",
    "flattened",
    "is_null",
    "item_blocks",
    "items_of",
    "of_listed",
    "retyped_values",
    "row_blocks",
    "row_dtype",
    "rows_of",
    "spread",
    "stream_of",
]

Shape = tuple[int, ...]
_OBJECT: Final = np.dtype(object)
# The items of a stream that are taken at once.
_BLOCK_ITEMS: Final = 16_384
_BLOCK_BYTES: Final = 8 << 20
_TAKEN: Final = 64
# The bytes of a stream of Arrow that are taken at once.
_STREAM_BYTES: Final = 8 << 20
# The rows of a block of an iterator that yields one after the other.
_STREAM_ROWS: Final = 1 << 16

ColumnType: TypeAlias = tuple[DType, Shape] | ItemKind | LogicalKind
"""The type of a column and the shape of its items, perhaps with what they mean, or the kind of its
variable-length items."""

Layout = Mapping[str, ColumnType]
"""The types of all columns; nested ones by "a.b"."""

Values: TypeAlias = NDArray[Any] | NullableArray | RaggedArray | LogicalArray


@runtime_checkable
class ItemColumn(Protocol):
    """A column of variable-length items that hands them over in buffers."""

    @property
    def kind(self) -> str | DType:
        """What an item is."""
        ...

    def items(self, key: Any = ...) -> RaggedArray:
        """Return items in buffers."""
        ...


class RepeatedItem(NamedTuple):
    """One variable-length item that stands for an item in each of many rows."""

    item: RaggedArray


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
    raise ArgumentTypeError(
        f"{type(data).__name__} is not a mapping of columns, and not rows of a known kind: an "
        "array with fields, a data frame, a stream of Arrow"
    )


def stream_of(data: object) -> Iterator[dict[str, Any]] | None:
    """Return the columns of an Arrow stream in blocks of rows; None for rows in another form.

    >>> stream_of({"a": [1]}) is None
    True
    """
    if isinstance(data, Mapping | np.ndarray | np.void | list | tuple) or pandas.is_frame(data):
        return None
    return arrow.blocks(data, _STREAM_BYTES) if hasattr(data, "__arrow_c_stream__") else None


def row_blocks(items: Iterator[Any]) -> Iterator[Any]:
    """Yield what an iterator has in known forms: lists of its rows, and blocks as they are.

    An item is a row, as a sequence or a mapping, or a block of rows: a data frame, an Arrow batch
    or an array of structures.

    >>> list(row_blocks(iter([(1, "x"), (2, "y")])))
    [[(1, 'x'), (2, 'y')]]
    """
    waiting: list[Any] = []
    for item in items:
        if not _is_block(item):
            waiting.append(item)
            if len(waiting) < _STREAM_ROWS:
                continue
        if waiting:
            yield waiting
            waiting = []
        if _is_block(item):
            yield item
    if waiting:
        yield waiting


def _is_block(item: object) -> bool:
    if isinstance(item, np.ndarray):
        return item.dtype.names is not None
    known = hasattr(item, "__arrow_c_stream__") or hasattr(item, "__arrow_c_array__")
    return known or pandas.is_frame(item)


def flattened(
    columns: Mapping[str, Any], prefix: str = "", leaves: Collection[str] = ()
) -> dict[str, Any]:
    """Return the columns; those of nested mappings get names with dots.

    A mapping for one of the `leaves` is a value, for a column of JSON.

    >>> flattened({"a": 1, "b": {"c": 2}})
    {'a': 1, 'b.c': 2}
    """
    found: dict[str, Any] = {}
    for name, values in columns.items():
        if isinstance(values, Mapping) and prefix + name not in leaves:
            found |= flattened(values, f"{prefix}{name}.", leaves)
        else:
            found[prefix + name] = values
    return found


def arrays_of(
    data: object, *, ragged: bool = False, nan_as_null: bool = False
) -> dict[str, Values]:
    """Return the columns of rows in any form as arrays; nested ones get names with dots.

    With `ragged`, text, bytes, JSON and rows of several lengths become variable-length items;
    arrays of NumPy keep the width that they have. With `nan_as_null`, NaN and NaT are nulls.

    >>> arrays_of({"a": [[1], [2, 3]]})
    Traceback (most recent call last):
    ingot.errors.ArgumentError: column 'a': its items have different shapes
    """
    given = flattened(columns_of(data))
    found = {name: _made(values, name, ragged) for name, values in given.items()}
    return _without_nan(found) if nan_as_null else found


def fitted_rows(
    given: Mapping[str, Any], layout: Layout, *, nan_as_null: bool = False
) -> dict[str, Values]:
    """Return the columns of rows as items of all columns of a table with that layout.

    >>> fitted_rows({"a": [1], "b": [2.5]}, {"a": (np.dtype("i4"), ()), "b": (np.dtype("f8"), ())})
    {'a': array([1], dtype=int32), 'b': array([2.5])}
    """
    if missing := [name for name in layout if name not in given]:
        raise ArgumentError(f"column {missing[0]!r} is missing among {', '.join(given) or 'none'}")
    if unknown := [name for name in given if name not in layout]:
        raise ArgumentError(f"column {unknown[0]!r} is none of {', '.join(layout) or 'none'}")
    found: dict[str, Values] = {}
    for name, column in layout.items():
        if isinstance(column, ItemKind):
            found[name] = fitted_items(given[name], column, name)
        elif isinstance(column, LogicalKind):
            found[name] = fitted_logical(given[name], column, name)
        else:
            found[name] = fitted(given[name], *column, name)
    check_lengths(found)
    return _without_nan(found) if nan_as_null else found


def check_lengths(columns: Mapping[str, Values], rows: int | None = None) -> None:
    """Raise `ValueError` for columns of different lengths, or not of the length `rows`.

    >>> check_lengths({"a": np.zeros(2), "b": np.zeros((1, 2))})
    Traceback (most recent call last):
    ingot.errors.ArgumentError: columns of different lengths: a 2, b 1
    """
    if scalar := [name for name, values in columns.items() if not values.shape]:
        raise ArgumentError(f"column {scalar[0]!r} is one value, not an array of them")
    lengths = {name: values.shape[0] for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        text = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ArgumentError(f"columns of different lengths: {text}")
    for name, length in lengths.items():
        if rows is not None and length != rows:
            raise ArgumentError(f"column {name!r} has {length} rows, the table {rows} rows")


def fitted(values: object, dtype: DType, shape: Shape, name: str) -> NDArray[Any] | NullableArray:
    """Return values as items of a column; a value that it cannot hold exactly is refused.

    Floats may lose digits to a narrower type, nothing else may be lost. None is a null.

    >>> fitted([1, 300], np.dtype("u1"), (), "a")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: column 'a' of uint8 cannot hold 300
    """
    if type(values) is np.ndarray and values.shape[1:] == shape and values.ndim:
        array = values
        if array.dtype == dtype != _OBJECT:
            return array
    if dtype == _OBJECT:
        values = pandas.values(name, values) if pandas.is_series(values) else values
        values = _meant(values, name)
        return _objects(_fixed(values, name) if isinstance(values, RaggedArray) else values, shape)
    values = _known(values, name, dtype)
    if isinstance(values, NullableArray):
        return NullableArray(_fitted(values.values, dtype, shape, name), values.valid)
    return _fitted(values, dtype, shape, name)


def _fitted(values: object, dtype: DType, shape: Shape, name: str) -> NDArray[Any]:
    """Return values without nulls as items of a column."""
    array = values if isinstance(values, np.ndarray) else _array(values, dtype, name)
    if not array.ndim:
        raise ArgumentError(f"column {name!r} is one value, not an array of them")
    if array.shape[1:] != shape:
        raise ArgumentError(
            f"column {name!r}: values of shape {array.shape} are not rows of items of shape {shape}"
        )
    if array.dtype == dtype:
        return array
    cast = _cast(array, dtype, name)
    lossless = array.dtype.kind in "fc" and dtype.kind in "fc" and dtype.kind >= array.dtype.kind
    if not lossless and not np.can_cast(array.dtype, dtype, "safe"):
        _check_kept(array, cast, name)
    return cast


def fitted_logical(values: object, column: LogicalKind, name: str) -> LogicalArray:
    """Return values as items of a column with a logical type; its words may have become more.

    >>> from ingot.logical_types import words_of
    >>> kind = LogicalKind(np.dtype("i4"), (), CategoryType(words_of(["red"])))
    >>> fitted_logical(["blue", None, "red"], kind, "a").values
    array([ 1, -1,  0], dtype=int32)
    """
    values = _taken_over(values, name)
    single = isinstance(values, str | bytes) or not hasattr(values, "__len__")
    if single or (isinstance(values, np.ndarray) and not values.ndim):
        raise ArgumentError(f"column {name!r} is one value, not an array of them")
    kind = column.type
    if isinstance(kind, CategoryType):
        return _categories(values, kind, column.dtype, name)
    if isinstance(kind, DecimalType):
        return LogicalArray(_decimals(values, kind, name), Annotation(kind))
    if isinstance(values, LogicalArray):
        same = type(values.type) is type(kind)
        values = values.values if same else _meant(values, name)
    elif isinstance(kind, TimeType):
        values = _times(values, column.dtype, name)
    return LogicalArray(fitted(values, column.dtype, column.shape, name), Annotation(kind))


def _categories(values: Any, kind: CategoryType, dtype: DType, name: str) -> LogicalArray:
    """Return words, or categories with other words, as codes of a column."""
    where = f"column {name!r}"
    if isinstance(values, LogicalArray) and isinstance(values.type, CategoryType):
        codes = values.values
        assert isinstance(codes, np.ndarray)
        values.type.check(codes, where)
        used = np.unique(codes[codes >= 0])
        some = CategoryType(values.type.words[used])
        kind, numbers = kind.recoded(some, where)
    else:
        words, codes = _factorized(values, kind, name)
        used = np.arange(len(words))
        kind, numbers = kind.coded(words, where)
    if len(kind.words) - 1 > np.iinfo(dtype).max:
        raise ArgumentError(f"{where} of {dtype} has no code for {len(kind.words)} words")
    # The last item is that of the code -1.
    table = np.full((int(used[-1]) if len(used) else -1) + 2, -1, dtype)
    table[used] = numbers
    return LogicalArray(table[codes], Annotation(kind))


def _factorized(values: Any, kind: CategoryType, name: str) -> tuple[list[Any], NDArray[Any]]:
    """Return the different words among values, and the number of each value's word."""
    if kind.is_text:
        listed: list[Any] = fitted_items(values, UTF8, name).to_list()
    else:
        column = fitted(values, kind.words.dtype, (), name)
        array = column.values if isinstance(column, NullableArray) else column
        listed = (array.view(np.int64) if array.dtype.kind in "mM" else array).tolist()
        if isinstance(column, NullableArray):
            valid = column.valid.tolist()
            listed = [each if there else None for each, there in zip(listed, valid, strict=True)]
    numbers: dict[Any, int] = {None: -1}
    codes = [numbers.setdefault(word, len(numbers) - 1) for word in listed]
    del numbers[None]
    return list(numbers), np.array(codes, np.int64)


def _decimals(values: Any, kind: DecimalType, name: str) -> NDArray[Any] | NullableArray:
    """Return numbers as scaled integers; None is a null."""
    if isinstance(values, LogicalArray) and values.type == kind:
        assert not isinstance(values.values, RaggedArray)
        return values.values
    if isinstance(values, LogicalArray):
        values = decoded(values)
    if isinstance(values, NullableArray):
        valid = values.valid
        values = values.values
    else:
        valid = np.array([not is_null(each) for each in values], np.bool_)
    where = f"column {name!r}"
    counts = [
        kind.count_of(each, where) if there else 0
        for each, there in zip(values, valid.tolist(), strict=True)
    ]
    stored = kind.stored(counts)
    return stored if valid.all() else NullableArray(stored, valid)


def _times(values: Any, dtype: DType, name: str) -> Any:
    """Return times of day as durations; other values stay as they are."""
    if not isinstance(values, list | tuple) or not any(hasattr(each, "hour") for each in values):
        return values
    made = arrow.values(name, arrow.times(values, np.datetime_data(dtype)[0]))
    return made.values if isinstance(made, LogicalArray) else made


def _meant(values: object, name: str) -> object:
    """Return values for a column without a logical type: words, and what loses no meaning."""
    if not isinstance(values, LogicalArray):
        return values
    if isinstance(values.type, ZonedType):
        raise ArgumentError(
            f"column {name!r} has no time zone, the values are of {values.type.zone}"
        )
    if isinstance(values.type, DecimalType):
        raise ArgumentError(f"column {name!r} is none of decimals, the values are")
    return decoded(values)


def fitted_items(values: object, kind: ItemKind, name: str) -> RaggedArray:
    """Return values as items of a column of variable-length items; None is a null.

    >>> fitted_items(["a", None], UTF8, "a").to_list()
    ['a', None]
    >>> fitted_items(["a", 1], UTF8, "a")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: column 'a': item 1 is 1, not text
    """
    values = _meant(_taken_over(values, name, kind), name)
    if isinstance(values, NullableArray):
        raise ArgumentError(f"column {name!r} of {kind} cannot hold {values.dtype}")
    single = isinstance(values, str | bytes | bytearray | memoryview | Mapping) or (
        isinstance(values, np.ndarray) and not values.ndim
    )
    if single or not isinstance(values, Iterable):
        raise ArgumentError(f"column {name!r} is one value, not an array of them")
    return of_listed(values, kind, f"column {name!r}")


def of_listed(
    values: Iterable[object], kind: ItemKind | None = None, where: str = "items"
) -> RaggedArray:
    """Return values as variable-length items; `is_null` says which of them are null.

    >>> of_listed(["a", np.ma.masked]).to_list()
    ['a', None]
    """
    given = values if isinstance(values, Sequence | np.ndarray | RaggedArray) else list(values)
    try:
        return RaggedArray.of(given, kind, where)
    except ArgumentError:
        # Other nulls than None are rare, and a look at every item takes long.
        if not any(each is not None and is_null(each) for each in given):
            raise
    return RaggedArray.of([None if is_null(each) else each for each in given], kind, where)


def items_of(values: object, kind: ItemKind | None = None) -> RaggedArray:
    """Return many values in any form as variable-length items.

    >>> items_of(letter * 2 for letter in "ab").to_list()
    ['aa', 'bb']
    >>> items_of("text")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: items: one item is given, not a list of them
    """
    if not isinstance(values, RaggedArray) and isinstance(values, ItemColumn):
        values = values.items()
    values = _meant(_taken_over(values, "items", kind), "items")
    single = isinstance(values, str | bytes | bytearray | memoryview | Mapping) or (
        isinstance(values, np.ndarray) and not values.ndim
    )
    if single or not isinstance(values, Iterable):
        raise ArgumentError("items: one item is given, not a list of them")
    return of_listed(values, kind)


def item_blocks(values: Iterator[object], kind: ItemKind | None = None) -> Iterator[RaggedArray]:
    """Yield values that come one by one as variable-length items, in blocks.

    Without a kind, the items of the first block decide; it has one that is not None.

    >>> [block.to_list() for block in item_blocks(iter(["a", None]))]
    [['a', None]]
    """
    first = 0
    while True:
        block = _block(values)
        while kind is None and all(map(is_null, block)):
            more = _block(values)
            block += more
            if not more:
                break
        if not block and (first or kind is not None):
            return
        where = "items" if not first else f"items from {first} on"
        items = of_listed(block, kind, where)
        kind = items.kind
        first += len(block)
        yield items


def _block(values: Iterator[object]) -> list[object]:
    """Return the next values: so many that they are converted at once, but not too much memory."""
    block: list[object] = []
    size = 0
    while len(block) < _BLOCK_ITEMS and size < _BLOCK_BYTES:
        more = list(islice(values, min(_TAKEN, _BLOCK_ITEMS - len(block))))
        if not more:
            break
        block += more
        size += sum(len(each) for each in more if isinstance(each, Sized))
    return block


def fitted_values(
    given: Mapping[str, Any], layout: Layout, *, nan_as_null: bool = False
) -> dict[str, Values | RepeatedItem]:
    """Return values for some rows as items of their columns: one for all rows, or one for each.

    >>> fitted_values({"a": 7, "b": [1, 2]}, dict.fromkeys("ab", (np.dtype("i4"), ())))
    {'a': array(7, dtype=int32), 'b': array([1, 2], dtype=int32)}
    """
    found: dict[str, Values | RepeatedItem] = {}
    for name, values in given.items():
        column = layout[name]
        if isinstance(column, ItemKind):
            values = _taken_over(values, name, column)
            if _is_one(values, column):
                found[name] = RepeatedItem(of_listed([values], column, f"column {name!r}"))
            else:
                found[name] = fitted_items(values, column, name)
            continue
        if isinstance(column, LogicalKind):
            found[name] = _fitted_value(values, column, name)
            continue
        dtype, shape = column
        if dtype != _OBJECT and is_null(values):
            found[name] = NullableArray(np.zeros(shape, dtype), np.zeros((), np.bool_))
            continue
        if dtype != _OBJECT:
            values = _known(values, name, dtype)
        if isinstance(values, NullableArray):
            array = values.values
        else:
            array = values if isinstance(values, np.ndarray) else np.asarray(values)
        if array.shape == shape and not isinstance(values, NullableArray):
            one = [values] if dtype == _OBJECT else array[None]
            found[name] = _one(fitted(one, dtype, shape, name), shape)
        else:
            found[name] = fitted(values, dtype, shape, name)
        if nan_as_null:
            found[name] = _nan_as_null(found[name])
    return found


def _fitted_value(values: object, column: LogicalKind, name: str) -> LogicalArray:
    """Return one value for all rows, or one for each, as items of a column."""
    listed = isinstance(values, Sequence | np.ndarray | LogicalArray) or hasattr(values, "__len__")
    if isinstance(values, str | bytes) or not listed or np.ndim(cast(Any, values)) == 0:
        made = fitted_logical([values], column, name)
        assert not isinstance(made.values, RaggedArray)
        return LogicalArray(_one(made.values, column.shape), made.note)
    return fitted_logical(values, column, name)


def _one(items: NDArray[Any] | NullableArray, shape: Shape) -> NDArray[Any] | NullableArray:
    if isinstance(items, NullableArray):
        return NullableArray(items.values.reshape(shape), items.valid.reshape(()))
    return items.reshape(shape)


def spread(items: Values | RepeatedItem, count: int, column: ColumnType, name: str) -> Values:
    """Return an item for each of `count` rows: the one item repeated, or as many as are given.

    >>> spread(np.array(7), 2, (np.dtype("i8"), ()), "a").tolist()
    [7, 7]
    """
    if isinstance(items, RepeatedItem):
        return items.item.take(np.zeros(count, np.int64))
    if isinstance(items, LogicalArray):
        assert isinstance(column, LogicalKind)
        stored = spread(items.values, count, (column.dtype, column.shape), name)
        assert not isinstance(stored, LogicalArray)
        return LogicalArray(stored, items.note)
    if isinstance(items, np.ndarray | NullableArray):
        shape = column[1] if isinstance(column, tuple) else ()
        if isinstance(items, NullableArray) and not items.valid.ndim:
            values = np.broadcast_to(items.values, (count, *shape))
            return NullableArray(values, np.broadcast_to(items.valid, count))
        if isinstance(items, np.ndarray) and items.shape == shape:
            return np.broadcast_to(items, (count, *shape))
    if len(items) != count:
        raise ArgumentError(f"column {name!r}: {len(items)} values for {count} rows")
    return items


def row_dtype(layout: Layout) -> np.dtype[np.void]:
    """Return the type of a row: a field for every column, a structure for every nested table.

    >>> row_dtype({"a": (np.dtype("i4"), ()), "b.c": (np.dtype("f8"), (2,))})
    dtype([('a', '<i4'), ('b', [('c', '<f8', (2,))])])
    """
    fields: dict[str, Any] = {}
    for name, column in layout.items():
        first, dot, rest = name.partition(".")
        if dot:
            fields.setdefault(first, {})[rest] = column
            continue
        dtype, shape = _shown_type(column)
        # In a row, an item of variable length is an object.
        fields[name] = np.dtype(object) if dtypes.is_variable(dtype) else dtype, shape
    made = [
        (name, row_dtype(field)) if isinstance(field, dict) else (name, *field)
        for name, field in fields.items()
    ]
    return np.dtype(made)


def _shown_type(column: ColumnType) -> tuple[DType, Shape]:
    """Return the type of the values that a reader sees, and the shape of an item."""
    if isinstance(column, ItemKind):
        return column.dtype, ()
    return decoded_dtype(column) if isinstance(column, LogicalKind) else column


def rows_of(columns: Mapping[str, NDArray[Any]], layout: Layout, count: int) -> NDArray[np.void]:
    """Return the values of columns as rows: an array of structures, masked if a column is.

    >>> rows_of({"a": np.array([1, 2])}, {"a": (np.dtype("i8"), ())}, 2)
    array([(1,), (2,)], dtype=[('a', '<i8')])
    """
    rows: Any = np.zeros(count, row_dtype(layout))
    if any(isinstance(values, np.ma.MaskedArray) for values in columns.values()):
        rows = MaskedRows(rows, False)
    for name, values in columns.items():
        field: Any = np.ma.getdata(rows)
        mask: Any = rows.mask if isinstance(values, np.ma.MaskedArray) else None
        for part in name.split("."):
            field = field[part]
            mask = None if mask is None else mask[part]
        field[...] = np.ma.getdata(values)
        if mask is not None:
            mask[...] = np.ma.getmaskarray(values)
    return cast(NDArray[np.void], rows)


def is_null(value: object) -> bool:
    """Return whether a value is a null: None, a masked item, or the nulls of pandas.

    >>> is_null(None), is_null(0)
    (True, False)
    """
    return value is None or value is np.ma.masked or pandas.is_null(value)


def _known(values: object, name: str, dtype: DType | None = None) -> object:
    """Return values of other libraries, masked arrays and lists with nulls as arrays.

    Other values stay as they are. `dtype` is the type of the column, where it is known.
    """
    if type(values) is np.ndarray and values.dtype != _OBJECT:
        return values
    values = _meant(_taken_over(values, name), name)
    if isinstance(values, RaggedArray):
        return _fixed(values, name, dtype)
    if isinstance(values, np.ma.MaskedArray):
        return of_masked(values, name) if values.ndim else values
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim == 1):
        found = _listed(values, name, dtype)
        return values if found is None else found
    return values


def _listed(values: Any, name: str, dtype: DType | None) -> NDArray[Any] | NullableArray | None:
    """Return a list with nulls as an array; None for a list without nulls."""
    # Of a list, NumPy makes dates and structures only if it knows their type.
    dated = dtype is not None and dtype.kind in "mMV"
    if not isinstance(values, np.ndarray):
        if not dated:
            try:
                # NumPy is faster than a look at every item, and has no type for nulls but objects.
                found = np.asarray(values)
            except ValueError:
                found = np.empty(0, object)
            if found.dtype != _OBJECT:
                return found
    elif values.dtype != _OBJECT:
        return values
    nulls = np.fromiter(map(is_null, values), np.bool_, len(values))
    if not nulls.any():
        return None
    if nulls.all():
        return NullableArray(np.zeros(len(values), dtype or np.float64), ~nulls)
    return of_objects(values, nulls, dtype if dated else None, name)


def _without_nan(columns: Mapping[str, Values]) -> dict[str, Values]:
    found = {name: _nan_as_null(values) for name, values in columns.items()}
    return {name: values for name, values in found.items() if not isinstance(values, RepeatedItem)}


def _nan_as_null(values: Values | RepeatedItem) -> Values | RepeatedItem:
    """Return values with nulls in the place of NaN and NaT; all of an item must be NaN."""
    if isinstance(values, LogicalArray):
        inner = _nan_as_null(values.values)
        assert isinstance(inner, np.ndarray | NullableArray | RaggedArray)
        return LogicalArray(inner, values.note)
    if isinstance(values, RaggedArray | RepeatedItem) or values.dtype.kind not in "fcmM":
        return values
    array = values.values if isinstance(values, NullableArray) else values
    missing = np.isnat(array) if array.dtype.kind in "mM" else np.isnan(array)
    if array.ndim > 1:
        missing = missing.reshape(len(array), -1).all(1)
    if not missing.any():
        return values
    valid = ~missing if isinstance(values, np.ndarray) else values.valid & ~missing
    return NullableArray(array, valid)


def _inner(values: Any) -> Any:
    # An array is told first: the protocol of columns takes long to check.
    if isinstance(values, np.ndarray):
        return values if values.dtype.names is None else _of_structure(values)
    if isinstance(values, Mapping):
        return {_name(name): _inner(each) for name, each in values.items()}
    return values.items() if isinstance(values, ItemColumn) else values


def _of_structure(array: NDArray[Any] | np.void) -> dict[str, Any]:
    names = array.dtype.names or ()
    return {name: _inner(np.asarray(array[name])) for name in names}


def _of_rows(rows: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    if not rows:
        return {name: [] for name in names}
    if any(isinstance(row, Mapping) for row in rows):
        listed = [
            row
            if isinstance(row, Mapping)
            else dict(zip(names, _row(row, index, names), strict=True))
            for index, row in enumerate(rows)
        ]
        return {name: [_dug(row, name) for row in listed] for name in names}
    for index, row in enumerate(rows):
        _row(row, index, names)
    return dict(zip(names, zip(*rows, strict=True), strict=True))


def _row(row: Any, index: int, names: Sequence[str]) -> Any:
    """Return a row that has a value for each name."""
    if isinstance(row, str | bytes) or not hasattr(row, "__len__") or not hasattr(row, "__iter__"):
        raise ArgumentError(
            f"row {index} is {row!r:.40}, and not a row of {', '.join(names)}; "
            "rows are given as a list, also a single one"
        )
    if len(row) != len(names):
        raise ArgumentError(f"row {index} does not have one value for each of {', '.join(names)}")
    return row


def _dug(row: Mapping[str, Any], name: str) -> Any:
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    if not dot or not isinstance(row.get(first), Mapping):
        raise ArgumentError(f"column {name!r} is missing in a row")
    return _dug(row[first], rest)


def _made(values: object, name: str, ragged: bool) -> Values:
    values = _taken_over(values, name)
    if isinstance(values, LogicalArray):
        return values
    if isinstance(values, list | tuple) and arrow.is_dated(_first(values)):
        plain = [None if is_null(each) else each for each in values]
        return cast(Values, arrow.of_objects(name, plain))
    if ragged:
        found = values if isinstance(values, RaggedArray) else _variable(values, name)
        if found is not None:
            return found
    known = _known(values, name)
    if isinstance(known, NullableArray):
        return known
    try:
        array = np.asarray(known)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ArgumentError(f"column {name!r}: its items have different shapes") from None
        raise ArgumentError(f"column {name!r}: {error}") from None
    if ragged and isinstance(values, list | tuple) and array.dtype.kind in "US":
        _check_text(values, name)
    return array


def _check_text(values: Sequence[Any], name: str) -> None:
    """Refuse text beside other values, which NumPy would spell as text."""
    first = type(values[0]).__name__
    for number, item in enumerate(values):
        if isinstance(item, str | bytes) and not isinstance(values[0], str | bytes):
            raise ArgumentError(
                f"column {name!r}: item {number} is {type(item).__name__}, item 0 is {first}"
            )


def _taken_over(values: object, name: str, kind: ItemKind | None = None) -> object:
    """Return a column of another library as an array or as items, without an object for each.

    Objects for a column of JSON may be of several kinds.
    """
    if pandas.is_series(values):
        objects = kind == JSON and getattr(values, "dtype", None) == np.dtype(object)
        return pandas.objects(values) if objects else pandas.values(name, values)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        return arrow.values(name, values)
    return values


def _first(values: Sequence[Any]) -> Any:
    """Return the first value that is not null; None if there is none."""
    return next((each for each in values if not is_null(each)), None)


def _variable(values: object, name: str) -> RaggedArray | None:
    """Return values as variable-length items; None if a plain array holds them."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1 or values.dtype.kind not in "TO":
            return None
        listed: Sequence[Any] = values.tolist() if values.dtype.kind == "O" else [""]
    elif isinstance(values, list | tuple):
        listed = values
    else:
        return None
    first = _first(listed)
    if isinstance(first, str | bytes | bytearray | memoryview | Mapping):
        return of_listed(values, None, f"column {name!r}")
    if not isinstance(first, list | tuple | np.ndarray):
        return None
    try:
        rows = np.asarray(listed)
        if rows.size and rows.dtype != np.dtype(object) and not _is_mixed(rows, listed):
            return None
    except ValueError:
        pass  # Rows of several lengths.
    return of_listed(listed, None, f"column {name!r}")


def _is_mixed(rows: NDArray[Any], listed: Sequence[Any]) -> bool:
    """Return whether rows have text beside other values, which NumPy spelled as text."""
    wanted = {"U": str, "S": bytes}.get(rows.dtype.kind)
    if wanted is None:
        return False
    return not all(isinstance(each, wanted) for each in np.asarray(listed, object).flat)


def _fixed(
    items: RaggedArray, name: str, dtype: DType | None = None
) -> NDArray[Any] | NullableArray:
    """Return text and bytes in the width of the longest item, as NumPy does."""
    if items.kind not in (UTF8, BYTES):
        raise UnsupportedError(f"column {name!r}: {items.kind} has no type in NumPy")
    nulls = items.is_null
    if not nulls.any():
        return to_fixed(items)
    if nulls.all() and dtype is not None:
        # Nulls alone say nothing about their type.
        return NullableArray(np.zeros(len(items), dtype), ~nulls)
    made = to_fixed(items.masked(~nulls))
    values = np.zeros(len(items), made.dtype)
    values[~nulls] = made
    return NullableArray(values, ~nulls)


def retyped_values(values: Values, dtype: object, name: str) -> Values | None:
    """Return the values of a column in another type that holds all of them; None for the same.

    `ValueError` for a change that could lose a part of a value.

    >>> retyped_values(np.array(["a", "bb"]), "utf8", "name")
    <RaggedArray of 2 utf8, 3 bytes>
    >>> retyped_values(np.array([1.5]), "i8", "n")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: column 'n' of float64 cannot become int64 safely
    """
    if dtype == "category":
        return _as_categories(values, name)
    if isinstance(values, LogicalArray):
        values = cast(Values, _meant(values, name))
        assert not isinstance(values, LogicalArray)
        if isinstance(values, RaggedArray) and dtype in ("utf8", str):
            return values
    words = "utf8", "bytes", "json"
    variable = isinstance(dtype, str) and (dtype in words or dtype.startswith("list<"))
    kind = ItemKind.parse(dtype, "dtype") if variable else None
    if dtype is str or (kind is None and np.dtype(cast(Any, dtype)).kind == "T"):
        kind = UTF8
    if isinstance(values, RaggedArray):
        if kind is None:
            raise ArgumentError(f"column {name!r} of {values.kind} has items of any length")
        return None if kind == values.kind else values.cast(kind, f"column {name!r}")
    array = values.values if isinstance(values, NullableArray) else values
    if kind is not None:
        if array.ndim != 1 or {"U": UTF8, "S": BYTES}.get(array.dtype.kind) != kind:
            raise ArgumentError(f"column {name!r} of {array.dtype} cannot become {kind} safely")
        if isinstance(values, NullableArray):
            listed = [each if there else None for each, there in _pairs(values)]
            return RaggedArray.of(listed, kind, f"column {name!r}")
        return RaggedArray.of(array if kind == UTF8 else array.tolist(), kind, f"column {name!r}")
    wanted = np.dtype(cast(Any, dtype))
    if wanted == array.dtype:
        return None
    numeric = "biufc"
    alike = (array.dtype.kind in numeric) == (wanted.kind in numeric)
    if not alike or not np.can_cast(array.dtype, wanted, "safe") or wanted.hasobject:
        raise ArgumentError(f"column {name!r} of {array.dtype} cannot become {wanted} safely")
    made = _cast(array, wanted, name)
    # Dates have a smaller range in finer units, and floats fewer digits than long integers.
    chosen = values.valid if isinstance(values, NullableArray) else slice(None)
    _check_kept(array[chosen], made[chosen].astype(array.dtype), name)
    return NullableArray(made, values.valid) if isinstance(values, NullableArray) else made


def _as_categories(values: Values, name: str) -> LogicalArray | None:
    """Return text, numbers or times as categories; None for what is categories already."""
    if isinstance(values, LogicalArray):
        if isinstance(values.type, CategoryType):
            return None
        raise ArgumentError(f"column {name!r}: its values cannot become categories")
    if isinstance(values, RaggedArray) or values.dtype.kind in "UT":
        none = CategoryType(words_of([]))
    else:
        none = CategoryType(words_of(np.zeros(0, values.dtype)))
    return _categories(values, none, none.code_dtype, name)


def _pairs(values: NullableArray) -> Iterator[tuple[Any, bool]]:
    return zip(values.values.tolist(), values.valid.tolist(), strict=True)


def _is_one(values: object, kind: ItemKind) -> bool:
    """Return whether a value is one item, and not one for each row."""
    if is_null(values):
        return True
    if kind.item is not None:
        # A row of numbers, and not a sequence of rows.
        if not isinstance(values, list | tuple | np.ndarray):
            return False
        inner = (list, tuple, np.ndarray, type(None))
        return not any(isinstance(each, inner) for each in values)
    if kind == JSON:
        return isinstance(values, str | Mapping) or not isinstance(values, Iterable)
    return isinstance(values, str | bytes | bytearray | memoryview)


def _array(values: object, dtype: DType, name: str) -> NDArray[Any]:
    try:
        if dtype.kind in "MmV" and not hasattr(values, "__array__"):
            return np.asarray(values, dtype)
        return np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"column {name!r} of {dtype}: {error}") from None


def _cast(array: NDArray[Any], dtype: DType, name: str) -> NDArray[Any]:
    numeric = "biufc"
    if (array.dtype.kind in numeric) != (dtype.kind in numeric) and array.size:
        raise ArgumentError(f"column {name!r} of {dtype} cannot hold {array.dtype}")
    try:
        with np.errstate(all="ignore"):
            return array.astype(dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise ArgumentError(f"column {name!r} of {dtype}: {error}") from None


def _check_kept(array: NDArray[Any], cast: NDArray[Any], name: str) -> None:
    with np.errstate(all="ignore"):
        same = (cast == array) | ((cast != cast) & (array != array))
    if not same.all():
        wrong = array[tuple(index[0] for index in np.nonzero(~same))]
        shown = repr(wrong.item()) if array.dtype.kind in "SU" else str(wrong)
        raise ArgumentError(f"column {name!r} of {cast.dtype} cannot hold {shown}")


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

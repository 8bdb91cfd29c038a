"""Arrow: the columns of an Arrow stream as NumPy arrays or variable-length items, and back.

Numbers, text, bytes and lists share their buffers with Arrow, dates without missing values as well.
No Python object is made for an item. pyarrow is optional, and imported on first use.
"""

import datetime
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.errors import ArgumentError, CorruptionError, UnsupportedError
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DateType,
    DecimalType,
    FixedBytesType,
    LogicalArray,
    LogicalKind,
    LogicalType,
    TimeType,
    ZonedType,
    words_of,
)
from ingot.nullable_array import NullableArray
from ingot.ragged_array import (
    BYTES,
    JSON,
    UTF8,
    ItemKind,
    RaggedArray,
    as_json,
    check_offsets,
    from_text,
    offsets_of,
)

__all__ = [
    "BATCH_ROWS",
    "array",
    "batch",
    "blocks",
    "columns",
    "dataset_modules",
    "file_modules",
    "from_lists",
    "is_dated",
    "is_installed",
    "named_column",
    "objects",
    "of_objects",
    "read_csv",
    "read_file",
    "read_parquet",
    "reader",
    "requested",
    "schema",
    "schema_capsule",
    "stream_capsule",
    "table",
    "times",
    "values",
    "write_file",
    "write_parquet",
    "zone_name",
]

ColumnType: TypeAlias = tuple[DType, tuple[int, ...]] | ItemKind | LogicalKind
Values: TypeAlias = NDArray[Any] | NullableArray | RaggedArray | LogicalArray
Columns: TypeAlias = Mapping[str, Values]

BATCH_ROWS: Final = 131_072
"""The rows of a batch, unless a caller wants others."""

# Text with offsets of 32 bits; longer columns become several chunks.
_MOST_TEXT: Final = 2**31 - 1
# Units of dates that Arrow lacks, and the unit that holds them exactly.
_COARSE: Final = {"Y": "s", "M": "s", "W": "s", "h": "s", "m": "s"}
_NAT: Final = np.iinfo(np.int64).min
# The metadata by which polars tells that a column is an Enum, whose words are fixed.
_ENUM: Final = b"_PL_ENUM_VALUES2"
_DAY: Final = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def is_installed() -> bool:
    """Return whether pyarrow can be used."""
    return importlib.util.find_spec("pyarrow") is not None


# From Arrow


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of an object that streams Arrow batches.

    >>> import pyarrow
    >>> columns(pyarrow.table({"a": [1, 2], "b": ["x", "yy"]}))
    {'a': array([1, 2]), 'b': <RaggedArray of 2 utf8, 3 bytes>}
    """
    pyarrow = _pyarrow()
    read = pyarrow.table(data)
    if len(set(read.column_names)) != len(read.column_names):
        raise ArgumentError("the Arrow stream has several columns of one name")
    for name in read.column_names:
        _check_valid(pyarrow, name, read[name])
    found = {name: _values(name, read[name]) for name in read.column_names}
    return {field.name: _as_enum(found[field.name], field) for field in read.schema}


def blocks(data: Any, nbytes: int) -> Iterator[dict[str, Any]] | None:
    """Yield the columns of a stream in blocks of rows, of about `nbytes`; at least one block.

    The result is None for data of pyarrow, which are in memory as a whole. Types that cannot be
    kept are refused before the first block is read.

    >>> import pyarrow
    >>> stream = pyarrow.table({"a": [1, 2, 3]}).to_reader(max_chunksize=2)
    >>> [block["a"].tolist() for block in blocks(stream, 8)]
    [[1], [2], [3]]
    """
    pyarrow = _pyarrow()
    if isinstance(data, pyarrow.Table | pyarrow.RecordBatch):
        return None
    reader = data
    if not isinstance(data, pyarrow.RecordBatchReader):
        reader = pyarrow.RecordBatchReader.from_stream(data)
    return _blocks(pyarrow, reader, _empty(pyarrow, reader.schema), nbytes)


def _empty(pyarrow: Any, schema: Any) -> dict[str, Any]:
    """Return columns of no rows; raise for a type that cannot be kept."""
    for field in schema:
        try:
            pyarrow.schema([field]).empty_table()
        except pyarrow.ArrowException:
            raise _unsupported(field.name, field.type) from None
    return columns(schema.empty_table())


def _blocks(
    pyarrow: Any, reader: Any, empty: dict[str, Any], nbytes: int
) -> Iterator[dict[str, Any]]:
    waiting: list[Any] = []
    held, given = 0, False
    for batch in reader:
        step = max(1, batch.num_rows * nbytes // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            part = batch.slice(start, step)
            waiting.append(part)
            held += part.nbytes
            if held >= nbytes:
                yield columns(pyarrow.Table.from_batches(waiting))
                waiting, held, given = [], 0, True
    if waiting:
        yield columns(pyarrow.Table.from_batches(waiting))
    elif not given:
        yield empty


def values(name: str, column: Any) -> Any:
    """Return the values of one column, which an object exports; `name` is for errors.

    >>> import pyarrow
    >>> values("a", pyarrow.array([[1], None, [2, 3]])).to_list()
    [array([1]), None, array([2, 3])]
    """
    pyarrow = _pyarrow()
    if hasattr(column, "__arrow_c_array__"):
        found = pyarrow.chunked_array([pyarrow.array(column)])
    else:
        found = pyarrow.chunked_array(column)
    _check_valid(pyarrow, name, found)
    made = _values(name, found)
    # A column of polars says only by its own type that it is an Enum.
    return _fixed_words(made) if type(getattr(column, "dtype", None)).__name__ == "Enum" else made


def times(values: Sequence[Any], unit: str) -> Any:
    """Return objects of `datetime.time` as an array of Arrow.

    >>> import datetime
    >>> times([datetime.time(1), None], "s").type
    Time32Type(time32[s])
    """
    pyarrow = _pyarrow()
    kind = pyarrow.time32(unit) if unit in ("s", "ms") else pyarrow.time64(unit)
    return pyarrow.array(values, kind)


def is_dated(value: object) -> bool:
    """Return whether a value is a date, a time, a duration or a decimal, which Arrow knows."""
    return isinstance(value, datetime.date | datetime.time | datetime.timedelta | Decimal)


def of_objects(name: str, values: Sequence[Any]) -> Any:
    """Return dates, times, durations or decimals as the values of a column; None is a null.

    >>> of_objects("a", [Decimal("1.50"), None]).type
    DecimalType(precision=3, scale=2)
    """
    pyarrow = _pyarrow()
    try:
        found = pyarrow.array(values)
        if any(map(_has_nanoseconds, values)):
            # Those of pandas: Arrow takes objects for times of microseconds.
            zone = {"tz": found.type.tz} if pyarrow.types.is_timestamp(found.type) else {}
            kind = pyarrow.timestamp if zone else pyarrow.duration
            found = pyarrow.array(values, kind("ns", **zone))
    except pyarrow.ArrowException as error:
        raise ArgumentError(f"column {name!r}: {error}") from None
    return _values(name, found)


def _has_nanoseconds(value: object) -> bool:
    return bool(getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0))


def objects(name: str, column: LogicalArray) -> Any:
    """Return values as an array of objects of Python; None is a null."""
    return _array(_pyarrow(), name, column).to_numpy(zero_copy_only=False)


def zone_name(zone: Any) -> str:
    """Return the name of an object of `datetime.tzinfo`.

    >>> zone_name(datetime.timezone.utc)
    'UTC'
    """
    return str(_pyarrow().lib.tzinfo_to_string(zone))


def _as_enum(values: Any, field: Any) -> Any:
    text = (field.metadata or {}).get(_ENUM)
    return values if text is None else _fixed_words(values, _enum_words(text))


def _enum_words(text: bytes) -> list[str]:
    """Return the words of an Enum of polars: each behind its length in bytes and a semicolon.

    >>> _enum_words(b"1;a2;b;")
    ['a', 'b;']
    """
    words = []
    while text:
        length, _, text = text.partition(b";")
        count = int(length) if length.isdigit() else len(text) + 1
        if count > len(text):
            return []
        words.append(text[:count].decode(errors="replace"))
        text = text[count:]
    return words


def _fixed_words(values: Any, words: Sequence[str] = ()) -> Any:
    """Return categories with fixed words; those of no rows may come without their words."""
    if not isinstance(values, LogicalArray) or not isinstance(values.type, CategoryType):
        return values
    known = values.type.words
    if not len(known) and len(set(words)) == len(words):
        known = words_of(words)
    kind = CategoryType(known, values.type.ordered, fixed=True)
    assert isinstance(values.values, np.ndarray), "codes are an array"
    return LogicalArray(values.values.astype(kind.code_dtype), Annotation(kind))


# To Arrow


def table(data: Columns) -> Any:
    """Return an Arrow table of columns; nested names stay joined by dots.

    >>> table({"a": np.array([1, 2], "i2")}).schema.field("a").type
    DataType(int16)
    """
    pyarrow = _pyarrow()
    made = {name: _column(pyarrow, name, each) for name, each in data.items()}
    fields = [_field(pyarrow, name, made[name].type, each) for name, each in data.items()]
    return pyarrow.table(list(made.values()), schema=pyarrow.schema(fields))


def array(items: RaggedArray) -> Any:
    """Return variable-length items as an array of Arrow, which shares their buffers.

    >>> array(RaggedArray.of(["x", None])).type
    DataType(large_string)
    """
    return _array(_pyarrow(), "items", items)


def schema(layout: Mapping[str, ColumnType]) -> Any:
    """Return the schema of Arrow that columns of these types have.

    >>> schema({"day": (np.dtype("M8[D]"), ()), "text": UTF8})
    day: date32[day]
    text: large_string
    """
    pyarrow = _pyarrow()
    empty: dict[str, Values] = {}
    for name, kind in layout.items():
        if isinstance(kind, ItemKind):
            empty[name] = RaggedArray.nulls(kind, 0)
        elif isinstance(kind, LogicalKind):
            none = np.empty((0, *kind.shape), kind.dtype)
            empty[name] = LogicalArray(none, Annotation(kind.type))
        else:
            empty[name] = np.empty((0, *kind[1]), kind[0])
    return pyarrow.schema(
        [
            _field(pyarrow, name, _array(pyarrow, name, each).type, each)
            for name, each in empty.items()
        ]
    )


def _field(pyarrow: Any, name: str, kind: Any, values: Values) -> Any:
    """Return a field of a schema; that of an Enum has the metadata by which polars knows it."""
    own = values.type if isinstance(values, LogicalArray) else None
    if not isinstance(own, CategoryType) or not own.fixed or not own.is_text:
        return pyarrow.field(name, kind)
    words = [word.encode() for word in own.words.tolist()]
    text = b"".join(b"%d;%b" % (len(word), word) for word in words)
    return pyarrow.field(name, kind, metadata={_ENUM: text})


def batch(data: Columns, schema: Any) -> Any:
    """Return columns as a record batch with a schema; columns of other types are cast.

    >>> batch({"a": np.array([1, 2])}, schema({"a": (np.dtype("i8"), ())})).num_rows
    2
    """
    pyarrow = _pyarrow()
    arrays = []
    for field in schema:
        made = _array(pyarrow, field.name, data[field.name])
        arrays.append(made if made.type == field.type else _cast(pyarrow, made, field))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def reader(schema: Any, batches: Iterable[Any]) -> Any:
    """Return a `RecordBatchReader` of pyarrow, which takes each batch when it is asked for."""
    return _pyarrow().RecordBatchReader.from_batches(schema, batches)


def requested(own: Any, capsule: object) -> Any:
    """Return the schema that a consumer requests: its types for our columns.

    >>> import pyarrow
    >>> wish = pyarrow.schema({"a": pyarrow.int64()}).__arrow_c_schema__()
    >>> requested(schema({"a": (np.dtype("i2"), ())}), wish)
    a: int64
    """
    if capsule is None:
        return own
    wished = _pyarrow().Schema._import_from_c_capsule(capsule)
    if wished.names != own.names:
        raise ArgumentError(
            f"the requested schema has the columns {', '.join(wished.names)}, "
            f"the stream has {', '.join(own.names)}"
        )
    return wished.remove_metadata()


def schema_capsule(schema: Any) -> object:
    """Return a schema as a capsule of Arrow's C interface."""
    return schema.__arrow_c_schema__()


def stream_capsule(reader: Any) -> object:
    """Return a reader as a capsule of Arrow's C interface."""
    return reader.__arrow_c_stream__()


def _check_valid(pyarrow: Any, name: str, column: Any) -> None:
    """Refuse a column whose lengths, indices or buffers contradict each other.

    Offsets and text are checked when they become items.
    """
    types, kind = pyarrow.types, column.type
    items = (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_list(kind)
        or types.is_large_list(kind)
    )
    pieces = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
    try:
        for piece in pieces:
            # Nothing is read of a piece without rows but its words. pyarrow itself makes slices of
            # views that have none, and finds them wrong.
            if len(piece) or types.is_dictionary(kind):
                piece.validate(full=not items)
    except pyarrow.ArrowException as error:
        raise CorruptionError(f"column {name!r} of Arrow is wrong: {error}") from None


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError("pyarrow is not installed: pip install pyarrow") from None
    return pyarrow


def named_column(name: str, column: Any) -> Any:
    """Return a column of pyarrow as a table with this column alone."""
    return _pyarrow().table({name: column})


def from_lists(lists: Mapping[str, list[Any]]) -> Any:
    """Return lists as a table of pyarrow, which finds their types; None is a missing item."""
    return _pyarrow().table(dict(lists))


def write_file(data: Any, file: Any) -> None:
    """Write an object that streams Arrow batches to an open file, in Arrow's format of files."""
    pyarrow = _pyarrow()
    reader = pyarrow.RecordBatchReader.from_stream(data)
    with pyarrow.ipc.new_file(file, reader.schema) as writer:
        for each in reader:
            writer.write_batch(each)


def read_file(path: Any) -> Any:
    """Return the table of a file of Arrow, or of a stream in a file."""
    pyarrow = _pyarrow()
    with pyarrow.OSFile(str(path), "rb") as file:
        try:
            return pyarrow.ipc.open_file(file).read_all()
        except pyarrow.ArrowInvalid:
            file.seek(0)
            return pyarrow.ipc.open_stream(file).read_all()


def write_parquet(data: Any, file: Any) -> None:
    """Write an object that streams Arrow batches to an open file, as Parquet."""
    pyarrow, parquet, _ = file_modules()
    reader = pyarrow.RecordBatchReader.from_stream(data)
    with parquet.ParquetWriter(file, reader.schema) as writer:
        for each in reader:
            writer.write_batch(each)


def read_parquet(path: Any) -> Any:
    """Return the table of a Parquet file."""
    return file_modules()[1].read_table(str(path))


def read_csv(path: Any) -> Any:
    """Return the table of a CSV file with a line of names; empty fields of numbers are nulls."""
    return file_modules()[2].read_csv(str(path))


def file_modules() -> tuple[Any, Any, Any]:
    """Return pyarrow, its module of Parquet, and that of CSV."""
    _pyarrow()
    import pyarrow
    import pyarrow.csv
    import pyarrow.parquet

    return pyarrow, pyarrow.parquet, pyarrow.csv


def dataset_modules() -> tuple[Any, Any, Any]:
    """Return pyarrow, its module of datasets, and that of file systems."""
    _pyarrow()
    import pyarrow
    import pyarrow.dataset
    import pyarrow.fs

    return pyarrow, pyarrow.dataset, pyarrow.fs


def _values(name: str, column: Any) -> Any:
    pyarrow = _pyarrow()
    types = pyarrow.types
    if types.is_dictionary(column.type):
        return _categories(pyarrow, name, column)
    # The fields of a struct and the items of a list are in one piece already.
    joined = _joined(pyarrow, column) if isinstance(column, pyarrow.ChunkedArray) else column
    kind = joined.type
    logical = _logical_type(types, kind)
    if logical is not None:
        return LogicalArray(_stored(pyarrow, name, joined, logical), Annotation(logical))
    if types.is_run_end_encoded(kind):
        return _values(name, _run_end_decoded(joined))
    if types.is_struct(kind) and kind.num_fields:
        if joined.null_count:
            raise UnsupportedError(
                f"column {name!r}: {joined.null_count} structs are null; nested columns tell that "
                "of their fields only, as StructArray.flatten() of pyarrow makes them"
            )
        fields = joined.flatten()
        names = [kind.field(i).name for i in range(kind.num_fields)]
        if len(set(names)) != len(names):
            raise ArgumentError(f"column {name!r} has several fields of one name")
        return {
            own: _values(f"{name}.{own}", each) for own, each in zip(names, fields, strict=True)
        }
    if str(kind) in ("string_view", "binary_view"):
        larger = pyarrow.large_string() if str(kind) == "string_view" else pyarrow.large_binary()
        joined = joined.cast(larger)
        kind = joined.type
    if str(kind).startswith(("list_view", "large_list_view")):
        joined = _of_list_view(joined)
        kind = joined.type
    items = _items(pyarrow, name, joined)
    if items is not None:
        return items
    if joined.null_count:
        return _nullable(pyarrow, name, joined)
    if types.is_fixed_size_list(kind):
        inner = _values(name, joined.flatten())
        if not isinstance(inner, np.ndarray):
            raise _unsupported(name, kind)
        return inner.reshape(len(joined), kind.list_size, *inner.shape[1:])
    if isinstance(kind, pyarrow.BaseExtensionType):
        raise _unsupported(name, kind)
    try:
        found = joined.to_numpy(zero_copy_only=False)
    except pyarrow.ArrowException:
        raise _unsupported(name, kind) from None
    if found.dtype == np.dtype(object):
        raise _unsupported(name, kind)
    return found


def _unsupported(name: str, kind: Any) -> UnsupportedError:
    return UnsupportedError(f"column {name!r}: Arrow's {kind} has no type in NumPy")


def _run_end_decoded(column: Any) -> Any:
    _pyarrow()
    import pyarrow.compute

    return pyarrow.compute.run_end_decode(column)


def _joined(pyarrow: Any, column: Any) -> Any:
    """Return a column as one array; pyarrow fails to join some slices of no length."""
    pieces = [each for each in column.chunks if len(each)]
    if len(pieces) > 1:
        return pyarrow.concat_arrays(pieces)
    return pieces[0] if pieces else pyarrow.nulls(0, column.type)


def _of_list_view(column: Any) -> Any:
    """Return views of lists as lists; pyarrow's cast gets the last offset of some slices wrong."""
    _pyarrow()
    import pyarrow
    import pyarrow.compute

    lengths = pyarrow.compute.list_value_length(column).fill_null(0)
    offsets = offsets_of(np.asarray(lengths, np.int64))
    return pyarrow.LargeListArray.from_arrays(
        pyarrow.array(offsets), column.flatten(), mask=column.is_null()
    )


def _logical_type(types: Any, kind: Any) -> LogicalType | None:
    """Return what values of a type mean, where their type of NumPy does not say it."""
    if types.is_timestamp(kind) and kind.tz is not None:
        return ZonedType(kind.tz)
    if types.is_time(kind):
        return TimeType()
    if types.is_date64(kind):
        return DateType()
    if types.is_decimal(kind) and not types.is_decimal256(kind):
        return DecimalType(kind.precision, kind.scale)
    return FixedBytesType() if types.is_fixed_size_binary(kind) and kind.byte_width else None


def _stored(
    pyarrow: Any, name: str, column: Any, logical: LogicalType
) -> NDArray[Any] | NullableArray:
    """Return the values of a column as a table stores them."""
    kind = column.type
    if isinstance(logical, DecimalType):
        return _with_nulls(column, _scaled(pyarrow, name, column, logical))
    if isinstance(logical, FixedBytesType):
        letters = _buffered(column, "u1", kind.byte_width)
        return _with_nulls(column, letters.view(f"S{kind.byte_width}"))
    if isinstance(logical, ZonedType):
        return _with_nulls(column, _buffered(column, f"M8[{kind.unit}]"))
    if isinstance(logical, DateType):
        return _with_nulls(column, _buffered(column, "M8[ms]"))
    counts = _buffered(column, f"i{kind.bit_width // 8}").astype(np.int64)
    found = _with_nulls(column, counts.view(f"m8[{kind.unit}]"))
    _check_times(name, found.values if isinstance(found, NullableArray) else found)
    return found


def _check_times(name: str, values: NDArray[Any]) -> None:
    """Refuse durations that are no time of day."""
    counts, day = values.view(np.int64), _DAY[np.datetime_data(values.dtype)[0]]
    if counts.size and (counts.min() < 0 or counts.max() >= day):
        raise CorruptionError(f"column {name!r}: a duration that is no time of day")


def _buffered(column: Any, dtype: str, each: int = 1) -> NDArray[Any]:
    """Return the values in the buffer of a column, `each` of them for an item."""
    own = np.dtype(dtype)
    if not len(column):
        return np.zeros(0, own)
    start = column.offset * each * own.itemsize
    return np.frombuffer(column.buffers()[1], own, len(column) * each, start)


def _with_nulls(column: Any, values: NDArray[Any]) -> NDArray[Any] | NullableArray:
    """Return values of which some are null; what the buffer holds there is of no meaning."""
    valid = _validity(column)
    if valid is None:
        return values
    return NullableArray(values, valid).filled(np.zeros((), values.dtype))


def _scaled(pyarrow: Any, name: str, column: Any, logical: DecimalType) -> NDArray[Any]:
    """Return decimals as scaled integers: of 64 bits, or the lower and the upper half of 128."""
    wide = column.cast(pyarrow.decimal128(logical.precision, logical.scale))
    pairs = _buffered(wide, "<i8", 2).reshape(-1, 2)
    if not logical.is_short:
        return pairs
    valid = _validity(wide)
    signs = pairs[:, 0] >> 63 == pairs[:, 1]
    if not (signs if valid is None else signs | ~valid).all():
        raise CorruptionError(f"column {name!r}: a decimal of more digits than {column.type} has")
    return np.ascontiguousarray(pairs[:, 0])


def _categories(pyarrow: Any, name: str, column: Any) -> LogicalArray:
    """Return a dictionary-encoded column as codes; pieces may have different words."""
    pieces = column.chunks if isinstance(column, pyarrow.ChunkedArray) else [column]
    pieces = pieces or [pyarrow.nulls(0, column.type)]
    kind: CategoryType | None = None
    parts = []
    for piece in pieces:
        words, places = _words(name, piece)
        if kind is None:
            kind, numbers = CategoryType(words), np.arange(len(words))
        else:
            kind, numbers = kind.recoded(CategoryType(words), f"column {name!r}")
        # The last item is that of nulls.
        renumbered = np.append(np.where(places < 0, -1, np.append(numbers, -1)[places]), -1)
        indices = _values(name, piece.indices)
        if isinstance(indices, NullableArray):
            indices = np.where(indices.valid, indices.values.astype(np.int64), len(places))
        parts.append(renumbered[indices.astype(np.int64)])
    assert kind is not None, "there is a piece"
    kind = CategoryType(kind.words, bool(column.type.ordered))
    return LogicalArray(np.concatenate(parts).astype(kind.code_dtype), Annotation(kind))


def _words(name: str, piece: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the different words of a dictionary, and the place of each among them; -1 for null."""
    found = _values(name, piece.dictionary)
    if isinstance(found, RaggedArray) and found.kind in (UTF8, BYTES):
        listed = found.to_list()
        if any(isinstance(each, bytes) and each.endswith(b"\0") for each in listed):
            raise UnsupportedError(f"column {name!r}: a category that ends with NUL")
    elif isinstance(found, np.ndarray | NullableArray):
        keys = found.values if isinstance(found, NullableArray) else found
        valid = found.valid if isinstance(found, NullableArray) else np.ones(len(keys), np.bool_)
        listed = [each if there else None for each, there in zip(keys, valid, strict=True)]
    else:
        raise UnsupportedError(f"column {name!r}: categories of {piece.dictionary.type}")
    numbers: dict[Any, int] = {}
    places = [-1 if each is None else numbers.setdefault(each, len(numbers)) for each in listed]
    words: Any = list(numbers)
    if not isinstance(found, RaggedArray):
        words = np.array(words, found.dtype)
    elif found.kind == BYTES:
        words = np.array(words, np.bytes_)
    try:
        return words_of(words), np.array(places, np.int64)
    except ValueError as error:
        raise UnsupportedError(f"column {name!r}: {error}") from None


def _nullable(pyarrow: Any, name: str, column: Any) -> NullableArray:
    """Return a column with nulls; the values of nulls are zeros."""
    valid = _validity(column)
    assert valid is not None, "there are nulls"
    inner = np.asarray(_values(name, column.drop_null()))
    made = np.zeros((len(column), *inner.shape[1:]), inner.dtype)
    made[valid] = inner
    return NullableArray(made, valid)


def _items(pyarrow: Any, name: str, column: Any) -> RaggedArray | None:
    """Return text, bytes, JSON and lists of numbers as items; None for other types."""
    types, kind = pyarrow.types, column.type
    if types.is_null(kind):
        return RaggedArray.nulls(UTF8, len(column))
    if getattr(kind, "extension_name", "") == "arrow.json":
        texts = _values(name, column.storage)
        return as_json(texts, f"column {name!r}") if isinstance(texts, RaggedArray) else None
    if types.is_string(kind) or types.is_large_string(kind):
        return _taken_buffers(name, column, UTF8, column.buffers()[1:])
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _taken_buffers(name, column, BYTES, column.buffers()[1:])
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return None
    inner = column.values
    if types.is_nested(inner.type):
        raise _unsupported(name, kind)
    if inner.null_count:
        raise UnsupportedError(f"column {name!r}: lists of {inner.type} with missing values")
    numbers = _values(name, inner)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.hasobject:
        raise _unsupported(name, kind)
    data = np.ascontiguousarray(numbers)
    offsets = np.asarray(column.offsets).astype(np.int64)
    # Before they count bytes: a number of items times their size could overflow.
    check_offsets(offsets, len(data), f"column {name!r}")
    offsets *= data.dtype.itemsize
    return RaggedArray.checked(
        ItemKind("list", data.dtype), offsets, data.view(np.uint8), _validity(column), name
    )


def _taken_buffers(name: str, column: Any, kind: ItemKind, buffers: Any) -> RaggedArray:
    large = str(column.type).startswith("large")
    width = np.int64 if large else np.int32
    start, count = column.offset, len(column)
    if buffers[0] is None or not count:
        offsets = np.zeros(count + 1, np.int64)
    else:
        own = np.frombuffer(buffers[0], width, count + 1, start * np.dtype(width).itemsize)
        offsets = own.astype(np.int64, copy=False)
    empty = buffers[1] is None or not buffers[1].size
    data = np.zeros(0, np.uint8) if empty else np.frombuffer(buffers[1], np.uint8)
    return RaggedArray.checked(kind, offsets, data, _validity(column), name)


def _validity(column: Any) -> NDArray[np.bool_] | None:
    if not column.null_count:
        return None
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _column(pyarrow: Any, name: str, values: Values) -> Any:
    """Return a whole column; text too long for offsets of 32 bits becomes several chunks."""
    if isinstance(values, RaggedArray | LogicalArray):
        return _array(pyarrow, name, values)
    if values.dtype.kind in "SU" and values.ndim == 1:
        step = max(1, _MOST_TEXT // values.dtype.itemsize)
        if len(values) > step:
            pieces = (values[at : at + step] for at in range(0, len(values), step))
            return pyarrow.chunked_array([_array(pyarrow, name, each) for each in pieces])
    return _array(pyarrow, name, values)


def _array(pyarrow: Any, name: str, values: Values) -> Any:
    if isinstance(values, LogicalArray):
        return _of_logical(pyarrow, name, values)
    if isinstance(values, RaggedArray):
        return _of_items(pyarrow, name, values)
    values, valid = _split(values)
    if values.dtype.kind == "T":
        return _of_items(pyarrow, name, from_text(values))
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if native.ndim > 1:
        inner = _array(pyarrow, name, native.reshape(-1, *native.shape[2:]))
        mask = None if valid is None else pyarrow.array(~valid)
        return pyarrow.FixedSizeListArray.from_arrays(inner, native.shape[1], mask=mask)
    kind = native.dtype.kind
    if kind in "SU":
        return _of_text(pyarrow, name, native, valid)
    if kind in "mM":
        return _of_dates(pyarrow, name, native, valid)
    if kind == "b":
        data = pyarrow.py_buffer(np.packbits(native, bitorder="little"))
        return _of_buffers(pyarrow, pyarrow.bool_(), len(native), valid, data)
    if kind in "iu" or native.dtype.str[1:] in ("f2", "f4", "f8"):
        own = pyarrow.from_numpy_dtype(native.dtype)
        return _of_buffers(pyarrow, own, len(native), valid, pyarrow.py_buffer(native))
    raise UnsupportedError(f"column {name!r}: {values.dtype} has no type in Arrow")


def _split(
    values: NDArray[Any] | NullableArray,
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return values, and which of them are valid where there are nulls."""
    if isinstance(values, NullableArray):
        return values.values, values.valid if values.has_nulls else None
    return values, None


def _of_logical(pyarrow: Any, name: str, column: LogicalArray) -> Any:
    """Return values in the type of Arrow that means the same."""
    kind, stored = column.type, column.values
    if kind is None or isinstance(stored, RaggedArray):
        return _array(pyarrow, name, stored)
    values, valid = _split(stored)
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if isinstance(kind, CategoryType):
        return _of_categories(pyarrow, name, native, kind)
    if isinstance(kind, DecimalType):
        return _of_decimals(pyarrow, native, valid, kind)
    if isinstance(kind, FixedBytesType):
        own = pyarrow.binary(native.dtype.itemsize)
        return _of_buffers(pyarrow, own, len(native), valid, pyarrow.py_buffer(native.view("u1")))
    counts = native.view(np.int64)
    null = counts == _NAT
    if null.any():
        valid = ~null if valid is None else valid & ~null
    unit = np.datetime_data(native.dtype)[0]
    if isinstance(kind, ZonedType):
        own = pyarrow.timestamp(unit, kind.zone)
    elif isinstance(kind, DateType):
        own = pyarrow.date64()
    else:
        own = pyarrow.time32(unit) if unit in ("s", "ms") else pyarrow.time64(unit)
        _check_times(name, native if valid is None else native[valid])
        counts = counts.astype(f"i{own.bit_width // 8}")
    return _of_buffers(pyarrow, own, len(counts), valid, pyarrow.py_buffer(counts))


def _of_categories(pyarrow: Any, name: str, codes: NDArray[Any], kind: CategoryType) -> Any:
    known = codes >= 0 if kind.check(codes, f"column {name!r}") else None
    own = pyarrow.from_numpy_dtype(codes.dtype)
    indices = _of_buffers(pyarrow, own, len(codes), known, pyarrow.py_buffer(codes))
    return pyarrow.DictionaryArray.from_arrays(
        indices, _dictionary(kind), ordered=kind.ordered, safe=False
    )


@lru_cache(maxsize=64)
def _dictionary(kind: CategoryType) -> Any:
    """Return the words of categories, which all batches of a stream share."""
    return _array(_pyarrow(), "words", kind.words)


def _of_decimals(
    pyarrow: Any, stored: NDArray[Any], valid: NDArray[np.bool_] | None, kind: DecimalType
) -> Any:
    pairs = np.stack([stored, stored >> 63], axis=1) if kind.is_short else stored
    own = pyarrow.decimal128(kind.precision, kind.scale)
    made = _of_buffers(pyarrow, own, len(stored), valid, pyarrow.py_buffer(pairs))
    try:
        made.validate(full=True)
    except pyarrow.ArrowInvalid as error:
        raise CorruptionError(f"decimals: {error}") from None
    return made


def _of_buffers(
    pyarrow: Any, kind: Any, count: int, valid: NDArray[np.bool_] | None, *buffers: Any
) -> Any:
    return pyarrow.Array.from_buffers(kind, count, [_bitmap(pyarrow, valid), *buffers])


def _bitmap(pyarrow: Any, valid: NDArray[np.bool_] | None) -> Any:
    return None if valid is None else pyarrow.py_buffer(np.packbits(valid, bitorder="little"))


def _of_dates(
    pyarrow: Any, name: str, values: NDArray[Any], valid: NDArray[np.bool_] | None
) -> Any:
    """Return dates or durations; NaT is a null. Days become 32-bit dates."""
    unit, step = np.datetime_data(values.dtype)
    date = values.dtype.kind == "M"
    wanted = _COARSE.get(unit, unit) if date else {"W": "s", "D": "s"}.get(unit, _COARSE.get(unit))
    wanted = unit if wanted is None else wanted
    if (not date and unit in "YM") or wanted not in ("D", "s", "ms", "us", "ns"):
        raise UnsupportedError(f"column {name!r}: {values.dtype} has no type in Arrow")
    if (wanted, 1) != (unit, step):
        cast = values.astype(f"{values.dtype.kind}8[{wanted}]")
        # Compared as counts: NumPy would convert both to the finer unit, with the same overflow.
        if not (cast.astype(values.dtype).view(np.int64) == values.view(np.int64)).all():
            raise UnsupportedError(f"column {name!r}: a date of {values.dtype} is beyond Arrow's")
        values = cast
    counts = values.view(np.int64)
    null = counts == _NAT
    if null.any():
        valid = ~null if valid is None else valid & ~null
    if wanted != "D":
        own = pyarrow.timestamp(wanted) if date else pyarrow.duration(wanted)
        return _of_buffers(pyarrow, own, len(counts), valid, pyarrow.py_buffer(counts))
    days = counts.astype(np.int32)
    if not ((days == counts) | null).all():
        raise UnsupportedError(f"column {name!r}: a day is beyond the 32-bit dates of Arrow")
    return _of_buffers(pyarrow, pyarrow.date32(), len(days), valid, pyarrow.py_buffer(days))


def _of_text(pyarrow: Any, name: str, values: NDArray[Any], valid: NDArray[np.bool_] | None) -> Any:
    """Return text or bytes of one width; the NULs that fill it up are no part of an item."""
    text, count = values.dtype.kind == "U", len(values)
    kind = pyarrow.string() if text else pyarrow.binary()
    lengths = np.strings.str_len(values)
    if text:
        points = values.view(np.uint32)
        if points.size and points.max() >= 0x80:
            items = from_text(values, f"column {name!r}")
            if items.nbytes > _MOST_TEXT:
                raise UnsupportedError(f"column {name!r}: {items.nbytes} bytes of text at once")
            data, offsets = items.payload, items.offsets - items.offsets[0]
            return _of_buffers(pyarrow, kind, count, valid, *_text_buffers(pyarrow, offsets, data))
        letters = points.astype(np.uint8)
    else:
        letters = values.view(np.uint8)
    offsets = offsets_of(lengths)
    if len(letters) != offsets[-1]:
        width = len(letters) // count
        letters = letters[(np.arange(width) < lengths[:, None]).reshape(-1)]
    return _of_buffers(pyarrow, kind, count, valid, *_text_buffers(pyarrow, offsets, letters))


def _text_buffers(
    pyarrow: Any, offsets: NDArray[np.int64], data: NDArray[np.uint8]
) -> tuple[Any, Any]:
    return pyarrow.py_buffer(offsets.astype(np.int32)), pyarrow.py_buffer(data)


def _of_items(pyarrow: Any, name: str, items: RaggedArray) -> Any:
    """Return items as large strings, large binaries, large lists, or JSON in large strings."""
    count = len(items)
    bitmap = _bitmap(pyarrow, items.validity)
    if items.kind.item is not None:
        numbers = np.require(items.payload.view(items.kind.item), requirements="A")
        inner = _array(pyarrow, name, numbers)
        offsets = offsets_of(items.lengths // items.kind.item.itemsize)
        return pyarrow.LargeListArray.from_buffers(
            pyarrow.large_list(inner.type),
            count,
            [bitmap, pyarrow.py_buffer(offsets)],
            children=[inner],
        )
    kind = pyarrow.large_binary() if items.kind == BYTES else pyarrow.large_string()
    buffers = [
        bitmap,
        pyarrow.py_buffer(np.ascontiguousarray(items.offsets)),
        pyarrow.py_buffer(np.ascontiguousarray(items.data)),
    ]
    made = pyarrow.Array.from_buffers(kind, count, buffers)
    if items.kind == JSON and hasattr(pyarrow, "json_"):
        return pyarrow.ExtensionArray.from_storage(pyarrow.json_(kind), made)
    return made


def _cast(pyarrow: Any, made: Any, field: Any) -> Any:
    try:
        return made.cast(field.type)
    except (pyarrow.ArrowException, TypeError) as error:
        raise UnsupportedError(
            f"column {field.name!r} of {made.type} is no {field.type}: {error}"
        ) from None

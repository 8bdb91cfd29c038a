"""pandas: the columns of a data frame as NumPy arrays or variable-length items, and back.

Categories, time zones and the index come in and go out as annotations of columns. An index without
a name that only numbers the rows is not kept. pandas is optional, and imported on first use.
"""

import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ingot.errors import ArgumentError, ArgumentTypeError, UnsupportedError
from ingot.interop import arrow
from ingot.logical_types import (
    Annotation,
    CategoryType,
    DateType,
    IndexLevel,
    LogicalArray,
    ZonedType,
    decoded,
    words_of,
)
from ingot.nullable_array import NullableArray, of_objects
from ingot.ragged_array import UTF8, RaggedArray

__all__ = [
    "columns",
    "frame",
    "from_dict",
    "indexed",
    "is_frame",
    "is_null",
    "is_series",
    "objects",
    "of_arrow",
    "refuse_constructor",
    "values",
]


Values: TypeAlias = NDArray[Any] | NullableArray | RaggedArray | LogicalArray

# Types of Arrow, and types of pandas that have nulls.
_NULLABLE: Final[Mapping[str, str]] = {
    **{f"int{bits}": f"Int{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"UInt{bits}" for bits in (8, 16, 32, 64)},
    "float": "Float32",
    "double": "Float64",
    "bool": "boolean",
    "string": "string",
    "large_string": "string",
}


def is_frame(data: object) -> bool:
    """Return whether something is a data frame, without importing pandas.

    >>> is_frame({"a": [1]})
    False
    """
    module: Any = sys.modules.get("pandas")
    return module is not None and isinstance(data, module.DataFrame)


def refuse_constructor(caller: FrameType, instead: str) -> None:
    """Raise `ArgumentTypeError` when rows are read for the constructor of a data frame.

    `pandas.DataFrame` takes columns from dictionaries and from its own types. Everything else is a
    list of rows, and structures would end as tuples in one column without a name. `instead` says
    what makes the data frame.
    """
    where = caller.f_globals.get("__name__"), caller.f_code.co_name
    if where == ("pandas.core.frame", "__init__"):
        raise ArgumentTypeError(
            "pandas.DataFrame would make one column of tuples of these rows; "
            f"{instead} returns the data frame"
        )


def is_series(data: object) -> bool:
    """Return whether something is a column or an array of pandas, without importing pandas."""
    module: Any = sys.modules.get("pandas")
    if module is None or isinstance(data, np.ndarray):
        return False
    kinds = module.Series, module.Index, module.api.extensions.ExtensionArray
    return isinstance(data, kinds)


def is_null(value: object) -> bool:
    """Return whether a value is one of the nulls of pandas, without importing pandas."""
    module: Any = sys.modules.get("pandas")
    return module is not None and (value is module.NA or value is module.NaT)


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of a data frame, those of its index first.

    Columns of objects stay as they are: what they hold is decided where they go.

    >>> import pandas
    >>> columns(pandas.DataFrame({"a": [1, 2]}))
    {'a': array([1, 2])}
    """
    found = dict(_index_levels(data.index))
    names = [*found, *map(str, data.columns)]
    if len(set(names)) != len(names):
        raise ArgumentError("the data frame has several columns of one name")
    for name in data.columns:
        series = data[name]
        objects = series.dtype == np.dtype(object)
        found[str(name)] = series if objects else values(str(name), series)
    return found


def _index_levels(index: Any) -> Iterator[tuple[str, Any]]:
    """Yield the levels of an index as columns; none for one that only numbers the rows."""
    names = list(index.names)
    if names == [None] and index.dtype.kind in "iu":
        return
    for number, name in enumerate(names):
        own = f"__index_level_{number}__" if name is None else str(name)
        found = values(own, index.get_level_values(number).to_series())
        note = Annotation(
            found.type if isinstance(found, LogicalArray) else None,
            IndexLevel(number, None if name is None else own),
        )
        yield own, LogicalArray(found.values if isinstance(found, LogicalArray) else found, note)


def frame(
    data: Mapping[str, Values], count: int, numbers: Any = None, *, with_index: bool = True
) -> Any:
    """Return a data frame of columns; items that are arrays become objects.

    Columns with nulls get the types of pandas that have nulls. Columns of an index become the index
    again. `numbers` is the index of a frame without such columns, and of one that shall have none.

    >>> frame({"a": np.array([1, 2])}, 2)
       a
    0  1
    1  2
    """
    pandas = _pandas()
    made = {name: _series(pandas, name, values) for name, values in data.items()}
    own = pandas.RangeIndex(count) if numbers is None else np.asarray(numbers, np.int64)
    found = pandas.DataFrame(made, index=own)
    return indexed(found, data) if with_index else found


def indexed(frame: Any, data: Mapping[str, Values]) -> Any:
    """Return a data frame whose index is made of the columns that were those of one."""
    notes = {name: each.note for name, each in data.items() if isinstance(each, LogicalArray)}
    levels = {name: note.level for name, note in notes.items() if note.level is not None}
    if not levels:
        return frame
    names = sorted(levels, key=lambda name: levels[name].number)
    made = frame.set_index(names)
    made.index.names = [levels[name].name for name in names]
    return made


def from_dict(
    data: Mapping[str, NDArray[Any]], columns: Any = None, orient: str = "columns"
) -> Any:
    """Return what ``pandas.DataFrame.from_dict`` makes of arrays.

    >>> from_dict({"a": np.array([1, 2])})
       a
    0  1
    1  2
    """
    return _pandas().DataFrame.from_dict(dict(data), columns=columns, orient=orient)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise UnsupportedError("pandas is not installed: pip install pandas") from None
    return pandas


def of_arrow(table: Any, dtype_backend: str) -> Any:
    """Return a table of pyarrow as a data frame of types that all have nulls.

    `dtype_backend` is "numpy_nullable" or "pyarrow", as for the readers of pandas.

    >>> import pyarrow
    >>> made = of_arrow(pyarrow.table({"a": [1, None]}), "numpy_nullable")
    >>> str(made["a"].dtype)
    'Int64'
    """
    pandas = _pandas()
    if dtype_backend == "pyarrow":
        return table.to_pandas(types_mapper=pandas.ArrowDtype)
    if dtype_backend != "numpy_nullable":
        raise ArgumentError(
            f"dtype_backend is {dtype_backend!r}, not 'numpy_nullable' or 'pyarrow'"
        )

    def mapped(kind: Any) -> Any:
        name = _NULLABLE.get(str(kind))
        return None if name is None else pandas.api.types.pandas_dtype(name)

    return table.to_pandas(types_mapper=mapped)


def objects(series: Any) -> list[Any]:
    """Return the objects of a column; a missing one is None."""
    missing = np.asarray(series.isna())
    return [None if null else each for each, null in zip(series, missing, strict=True)]


def values(name: str, series: Any) -> Values:
    """Return the values of a column; `name` is for errors. What pandas calls missing is null.

    NaN in a column of floats is a number.
    """
    module: Any = sys.modules["pandas"]
    series = series if isinstance(series, module.Series) else module.Series(series)
    kind = series.dtype
    if isinstance(kind, np.dtype):
        if kind == np.dtype(object):
            return _objects(name, series)
        found: NDArray[Any] = series.to_numpy()
        return _times(found) if kind.kind in "mM" else found
    if getattr(kind, "tz", None) is not None:
        in_utc = series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy()
        return LogicalArray(_times(np.asarray(in_utc)), Annotation(ZonedType(_zone(kind.tz))))
    if kind.name in ("string", "str"):
        if arrow.is_installed() and hasattr(series.array, "__arrow_array__"):
            found_items = arrow.values(name, series.array.__arrow_array__())
            assert isinstance(found_items, RaggedArray)
            return found_items
        return _objects(name, series.astype(object))
    if hasattr(kind, "pyarrow_dtype"):
        found_values = arrow.values(name, series.array.__arrow_array__())
        return cast(Values, found_values)
    if kind.name == "category":
        return _categories(name, series)
    if kind.name.startswith(("period", "interval")):
        raise UnsupportedError(f"column {name!r}: {kind} of pandas has no type in NumPy")
    own = getattr(kind, "numpy_dtype", None)
    missing = np.asarray(series.isna())
    if not missing.any():
        return np.asarray(series.to_numpy(dtype=own))
    if own is None:
        raise ArgumentError(f"column {name!r} of {kind} has missing values, which it cannot keep")
    return NullableArray(np.asarray(series.to_numpy(dtype=own, na_value=own.type())), ~missing)


def _categories(name: str, series: Any) -> LogicalArray:
    """Return categories as codes; the words are text, or of a type of NumPy."""
    words = values(name, series.cat.categories)
    try:
        if isinstance(words, RaggedArray) and words.kind == UTF8:
            listed = words_of(words.to_list())
        elif isinstance(words, np.ndarray):
            listed = words_of(words)
        else:
            raise ArgumentError(f"categories of {series.cat.categories.dtype} are not kept")
    except ValueError as error:
        raise UnsupportedError(f"column {name!r}: {error}") from None
    kind = CategoryType(listed, bool(series.cat.ordered))
    return LogicalArray(series.cat.codes.to_numpy().astype(kind.code_dtype), Annotation(kind))


def _zone(zone: Any) -> str:
    """Return the name of a time zone, as Arrow spells it where pyarrow is installed."""
    return arrow.zone_name(zone) if arrow.is_installed() else str(zone)


def _times(found: NDArray[Any]) -> NDArray[Any] | NullableArray:
    """Return times; NaT is what pandas calls missing."""
    missing = np.isnat(found)
    return NullableArray(found, ~missing) if missing.any() else found


def _objects(name: str, series: Any) -> Values:
    """Return objects as items of the one kind that all have, or in a type of NumPy.

    Where all are missing, they are nulls, which a column of every kind of items takes.
    """
    listed = objects(series)
    first = next((each for each in listed if each is not None), None)
    if isinstance(first, str | bytes | bytearray | dict):
        return RaggedArray.of(listed, None, f"column {name!r}")
    if arrow.is_dated(first):
        return cast(Values, arrow.of_objects(name, listed))
    try:
        found = np.asarray(list(series))
    except ValueError:
        found = np.empty(0, object)  # Rows of several lengths.
    if isinstance(first, list | tuple | np.ndarray) and found.dtype.kind in "OUS":
        return RaggedArray.of(listed, None, f"column {name!r}")
    if first is None and (not len(listed) or found.dtype == np.dtype(object)):
        return RaggedArray.nulls(UTF8, len(listed))
    missing = np.fromiter((each is None for each in listed), np.bool_, len(listed))
    if found.dtype == np.dtype(object) and missing.any():
        nullable = of_objects(listed, missing, None, name)
        if nullable.dtype.kind not in "OUS":
            return nullable
    if found.dtype == np.dtype(object) or found.dtype.kind in "US":
        raise ArgumentError(f"column {name!r} has objects of several kinds, or missing values")
    return found


def _text(pandas: Any, items: RaggedArray) -> Any:
    """Return text as an array of pandas; with pyarrow, without an object for each item."""
    if not arrow.is_installed():
        return pandas.array(items.to_list(), dtype="string[python]")
    return pandas.StringDtype("pyarrow").__from_arrow__(arrow.array(items))


def _nullable(pandas: Any, column: NullableArray) -> Any:
    """Return a column with nulls as an array of pandas; as objects where pandas has no type."""
    native = column.dtype.newbyteorder("=")
    if column.ndim == 1 and native.kind in "mM":
        if np.datetime_data(native)[0] not in ("s", "ms", "us", "ns"):
            native = np.dtype(f"{native.kind}8[s]")
        return column.astype(native).filled(np.array("NaT", native)).values
    kinds = {"b": "BooleanArray", "i": "IntegerArray", "u": "IntegerArray", "f": "FloatingArray"}
    if column.ndim == 1 and native.kind in kinds and native.itemsize <= 8:
        wide = np.dtype(np.float32) if native == np.dtype(np.float16) else native
        made = getattr(pandas.arrays, kinds[native.kind])
        return made(column.astype(wide).values.copy(), ~column.valid)
    found = np.empty(len(column), object)
    for number in np.flatnonzero(column.valid).tolist():
        item = column.values[number]
        found[number] = item.item() if native.kind in "SUO" and column.ndim == 1 else item
    return found


def _logical(pandas: Any, name: str, column: LogicalArray) -> Any:
    """Return values with a logical type as pandas has them; as objects where it has no type."""
    kind, stored = column.type, column.values
    if isinstance(kind, CategoryType):
        assert isinstance(stored, np.ndarray)
        kind.check(stored, f"column {name!r}")
        words = pandas.Index(kind.words.tolist() if kind.is_text else kind.words)
        return pandas.Categorical.from_codes(stored, words, ordered=kind.ordered)
    if isinstance(kind, ZonedType):
        times = pandas.DatetimeIndex(_series(pandas, name, stored))
        return times.tz_localize("UTC").tz_convert(kind.zone)
    if kind is None or isinstance(kind, DateType) or not arrow.is_installed():
        return _series(pandas, name, decoded(column))
    return arrow.objects(name, column)


def _series(pandas: Any, name: str, values: Values) -> Any:
    if isinstance(values, LogicalArray):
        return _logical(pandas, name, values)
    if isinstance(values, RaggedArray):
        return _text(pandas, values) if values.kind == UTF8 else values.to_numpy()
    if isinstance(values, NullableArray):
        return _nullable(pandas, values)
    if values.ndim > 1:
        return list(values)
    native = values.dtype.newbyteorder("=")
    return values.astype(native, copy=False)

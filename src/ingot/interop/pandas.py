"""pandas: the columns of a data frame as NumPy arrays or variable-length items, and back.

pandas is optional, and imported on first use.
"""

import sys
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ingot.errors import UnsupportedError
from ingot.interop import arrow
from ingot.ragged_array import UTF8, RaggedArray

__all__ = ["columns", "frame", "is_frame", "is_series", "objects", "values"]


def is_frame(data: object) -> bool:
    """Return whether something is a data frame, without importing pandas.

    >>> is_frame({"a": [1]})
    False
    """
    module: Any = sys.modules.get("pandas")
    return module is not None and isinstance(data, module.DataFrame)


def is_series(data: object) -> bool:
    """Return whether something is a column of a data frame, without importing pandas."""
    module: Any = sys.modules.get("pandas")
    return module is not None and isinstance(data, module.Series)


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of a data frame; its index is not among them.

    Columns of objects stay as they are: what they hold is decided where they go.

    >>> import pandas
    >>> columns(pandas.DataFrame({"a": [1, 2]}))
    {'a': array([1, 2])}
    """
    if len(set(data.columns)) != len(data.columns):
        raise ValueError("the data frame has several columns of one name")
    return {
        str(name): data[name]
        if data[name].dtype == np.dtype(object)
        else values(str(name), data[name])
        for name in data.columns
    }


def frame(data: Mapping[str, NDArray[Any] | RaggedArray], count: int) -> Any:
    """Return a data frame of columns; items that are arrays become objects.

    >>> frame({"a": np.array([1, 2])}, 2)
       a
    0  1
    1  2
    """
    try:
        import pandas
    except ImportError:
        raise UnsupportedError("pandas is not installed: pip install pandas") from None
    made = {name: _series(pandas, values) for name, values in data.items()}
    return pandas.DataFrame(made, index=pandas.RangeIndex(count))


def objects(series: Any) -> list[Any]:
    """Return the objects of a column; a missing one is None."""
    missing = np.asarray(series.isna())
    return [None if null else each for each, null in zip(series, missing, strict=True)]


def values(name: str, series: Any) -> NDArray[Any] | RaggedArray:
    """Return the values of a column; `name` is for errors. Missing text and objects are nulls."""
    kind = series.dtype
    if isinstance(kind, np.dtype):
        found: NDArray[Any] = series.to_numpy()
        return _objects(name, series) if kind == np.dtype(object) else found
    if getattr(kind, "tz", None) is not None:
        # NumPy has no type for local times, so these become UTC.
        return np.asarray(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if kind.name in ("string", "str"):
        if arrow.is_installed() and hasattr(series.array, "__arrow_array__"):
            found_items = arrow.values(name, series.array.__arrow_array__())
            assert isinstance(found_items, RaggedArray)
            return found_items
        return _objects(name, series.astype(object))
    if hasattr(kind, "pyarrow_dtype"):
        return cast(NDArray[Any] | RaggedArray, arrow.values(name, series.array.__arrow_array__()))
    words = None
    if kind.name == "category":
        words = _objects(name, series.astype(object))
        if isinstance(words, RaggedArray):
            return words
    if series.isna().any() and not _has_null(kind):
        raise ValueError(f"column {name!r} of {kind} has missing values, which it cannot keep")
    if words is not None:
        return words
    return np.asarray(series.to_numpy(dtype=getattr(kind, "numpy_dtype", None)))


def _has_null(kind: Any) -> bool:
    own = getattr(kind, "numpy_dtype", None)
    return own is not None and own.kind in "fmM"


def _objects(name: str, series: Any) -> NDArray[Any] | RaggedArray:
    """Return objects as items of the one kind that all have, or in a type of NumPy.

    Where all are missing, they are nulls, which a column of every kind of items takes.
    """
    listed = objects(series)
    first = next((each for each in listed if each is not None), None)
    if isinstance(first, str | bytes | bytearray | dict):
        return RaggedArray.of(listed, None, f"column {name!r}")
    try:
        found = np.asarray(list(series))
    except ValueError:
        found = np.empty(0, object)  # Rows of several lengths.
    if isinstance(first, list | tuple | np.ndarray) and found.dtype.kind in "OUS":
        return RaggedArray.of(listed, None, f"column {name!r}")
    if first is None and (not len(listed) or found.dtype == np.dtype(object)):
        return RaggedArray.nulls(UTF8, len(listed))
    if found.dtype == np.dtype(object) or found.dtype.kind in "US":
        raise ValueError(f"column {name!r} has objects of several kinds, or missing values")
    return found


def _text(pandas: Any, items: RaggedArray) -> Any:
    """Return text as an array of pandas; with pyarrow, without an object for each item."""
    if not arrow.is_installed():
        return pandas.array(items.to_list(), dtype="string[python]")
    return pandas.StringDtype("pyarrow").__from_arrow__(arrow.array(items))


def _series(pandas: Any, values: NDArray[Any] | RaggedArray) -> Any:
    if isinstance(values, RaggedArray):
        return _text(pandas, values) if values.kind == UTF8 else values.to_numpy()
    if values.ndim > 1:
        return list(values)
    native = values.dtype.newbyteorder("=")
    return values.astype(native, copy=False)

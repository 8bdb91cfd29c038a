"""pandas: the columns of a data frame as NumPy arrays, and back.

pandas is optional, and imported on first use.
"""

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import UnsupportedError

__all__ = ["columns", "frame", "is_frame"]


def is_frame(data: object) -> bool:
    """Return whether something is a data frame, without importing pandas.

    >>> is_frame({"a": [1]})
    False
    """
    module: Any = sys.modules.get("pandas")
    return module is not None and isinstance(data, module.DataFrame)


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of a data frame; its index is not among them.

    >>> import pandas
    >>> columns(pandas.DataFrame({"a": [1, 2]}))
    {'a': array([1, 2])}
    """
    if len(set(data.columns)) != len(data.columns):
        raise ValueError("the data frame has several columns of one name")
    return {str(name): _values(str(name), data[name]) for name in data.columns}


def frame(data: Mapping[str, NDArray[Any]], count: int) -> Any:
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
    made = {name: _series(values) for name, values in data.items()}
    return pandas.DataFrame(made, index=pandas.RangeIndex(count))


def _values(name: str, series: Any) -> NDArray[Any]:
    kind = series.dtype
    if isinstance(kind, np.dtype):
        values: NDArray[Any] = series.to_numpy()
        return _text(name, values) if kind == np.dtype(object) else values
    if getattr(kind, "tz", None) is not None:
        # NumPy has no type for local times, so these become UTC.
        return np.asarray(series.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy())
    if series.isna().any() and not _has_null(kind):
        raise ValueError(f"column {name!r} of {kind} has missing values, which it cannot keep")
    if kind.name in ("category", "string", "str"):
        return _text(name, series.astype(object).to_numpy())
    return np.asarray(series.to_numpy(dtype=getattr(kind, "numpy_dtype", None)))


def _has_null(kind: Any) -> bool:
    own = getattr(kind, "numpy_dtype", None)
    return own is not None and own.kind in "fmM"


def _text(name: str, values: NDArray[Any]) -> NDArray[Any]:
    """Return objects in the one type that all have: text, bytes, or a type of NumPy."""
    if all(isinstance(value, str) for value in values):
        return np.asarray(list(values), "U")
    if all(isinstance(value, bytes) for value in values):
        return np.asarray(list(values), "S")
    found = np.asarray(list(values)) if len(values) else values
    if found.dtype == np.dtype(object) or found.dtype.kind in "US":
        raise ValueError(f"column {name!r} has objects of several kinds, or missing values")
    return found


def _series(values: NDArray[Any]) -> Any:
    if values.ndim > 1:
        return list(values)
    native = values.dtype.newbyteorder("=")
    return values.astype(native, copy=False)

"""Arrow: the columns of an Arrow stream as NumPy arrays, and back.

pyarrow is optional, and imported on first use.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import UnsupportedError

__all__ = ["columns", "table"]


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of an object that streams Arrow batches.

    >>> import pyarrow
    >>> columns(pyarrow.table({"a": [1, 2], "b": ["x", "yy"]}))
    {'a': array([1, 2]), 'b': array(['x', 'yy'], dtype='<U2')}
    """
    read = _pyarrow().table(data)
    if len(set(read.column_names)) != len(read.column_names):
        raise ValueError("the Arrow stream has several columns of one name")
    return {name: _values(name, read[name]) for name in read.column_names}


def table(data: Mapping[str, NDArray[Any]]) -> Any:
    """Return an Arrow table of columns; nested names stay joined by dots.

    >>> table({"a": np.array([1, 2], "i2")}).schema.field("a").type
    DataType(int16)
    """
    pyarrow = _pyarrow()
    return pyarrow.table({name: _array(pyarrow, values) for name, values in data.items()})


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError("pyarrow is not installed: pip install pyarrow") from None
    return pyarrow


def _values(name: str, column: Any) -> Any:
    pyarrow = _pyarrow()
    types = pyarrow.types
    joined = column.combine_chunks()
    if isinstance(joined, pyarrow.ChunkedArray):
        joined = pyarrow.concat_arrays(joined.chunks) if joined.num_chunks else joined.chunk(0)
    kind = joined.type
    if types.is_dictionary(kind):
        joined = joined.dictionary_decode()
        kind = joined.type
    if types.is_struct(kind):
        return {
            kind.field(i).name: _values(f"{name}.{i}", joined.field(i))
            for i in range(kind.num_fields)
        }
    if joined.null_count and not (types.is_floating(kind) or types.is_temporal(kind)):
        raise ValueError(f"column {name!r} of {kind} has missing values, which it cannot keep")
    if types.is_fixed_size_list(kind):
        inner = np.asarray(_values(name, joined.flatten()))
        return inner.reshape(len(joined), kind.list_size, *inner.shape[1:])
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        return np.asarray(joined.to_pylist(), "U")
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return np.asarray(joined.to_pylist(), "S")
    found = joined.to_numpy(zero_copy_only=False)
    if found.dtype == np.dtype(object):
        raise UnsupportedError(f"column {name!r}: Arrow's {kind} has no type in NumPy")
    return found


def _array(pyarrow: Any, values: NDArray[Any]) -> Any:
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if native.ndim > 1:
        inner = _array(pyarrow, native.reshape(-1, *native.shape[2:]))
        return pyarrow.FixedSizeListArray.from_arrays(inner, native.shape[1])
    if native.dtype.kind in "UT":
        return pyarrow.array(native.tolist(), pyarrow.string())
    if native.dtype.kind == "S":
        return pyarrow.array(native.tolist(), pyarrow.binary())
    if native.dtype.kind == "M" and np.datetime_data(native.dtype)[0] in "YMWhm":
        native = native.astype("M8[s]")
    try:
        return pyarrow.array(native)
    except (pyarrow.ArrowException, TypeError) as error:
        raise UnsupportedError(f"{values.dtype} has no type in Arrow: {error}") from None

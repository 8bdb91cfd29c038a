"""Arrow: the columns of an Arrow stream as NumPy arrays or variable-length items, and back.

Text, bytes and lists share the layout of `RaggedArray`: buffers are taken over, and no Python
object is made for an item. pyarrow is optional, and imported on first use.
"""

import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import UnsupportedError
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

__all__ = ["array", "columns", "is_installed", "table", "values"]


def is_installed() -> bool:
    """Return whether pyarrow can be used."""
    return importlib.util.find_spec("pyarrow") is not None


def columns(data: Any) -> dict[str, Any]:
    """Return the columns of an object that streams Arrow batches.

    >>> import pyarrow
    >>> columns(pyarrow.table({"a": [1, 2], "b": ["x", "yy"]}))
    {'a': array([1, 2]), 'b': <RaggedArray of 2 utf8, 3 bytes>}
    """
    read = _pyarrow().table(data)
    if len(set(read.column_names)) != len(read.column_names):
        raise ValueError("the Arrow stream has several columns of one name")
    return {name: _values(name, read[name]) for name in read.column_names}


def values(name: str, column: Any) -> Any:
    """Return the values of one column, which an object exports; `name` is for errors.

    >>> import pyarrow
    >>> values("a", pyarrow.array([[1], None, [2, 3]])).to_list()
    [array([1]), None, array([2, 3])]
    """
    pyarrow = _pyarrow()
    if hasattr(column, "__arrow_c_array__"):
        return _values(name, pyarrow.chunked_array([pyarrow.array(column)]))
    return _values(name, pyarrow.chunked_array(column))


def table(data: Mapping[str, NDArray[Any] | RaggedArray]) -> Any:
    """Return an Arrow table of columns; nested names stay joined by dots.

    >>> table({"a": np.array([1, 2], "i2")}).schema.field("a").type
    DataType(int16)
    """
    pyarrow = _pyarrow()
    return pyarrow.table({name: _array(pyarrow, values) for name, values in data.items()})


def array(items: RaggedArray) -> Any:
    """Return variable-length items as an array of Arrow, which shares their buffers.

    >>> array(RaggedArray.of(["x", None])).type
    DataType(large_string)
    """
    return _array(_pyarrow(), items)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UnsupportedError("pyarrow is not installed: pip install pyarrow") from None
    return pyarrow


def _values(name: str, column: Any) -> Any:
    pyarrow = _pyarrow()
    types = pyarrow.types
    # The fields of a struct and the items of a list are in one piece already.
    joined = column.combine_chunks() if isinstance(column, pyarrow.ChunkedArray) else column
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
    if str(kind) in ("string_view", "binary_view"):
        larger = pyarrow.large_string() if str(kind) == "string_view" else pyarrow.large_binary()
        joined = joined.cast(larger)
        kind = joined.type
    items = _items(pyarrow, name, joined)
    if items is not None:
        return items
    if joined.null_count and not (types.is_floating(kind) or types.is_temporal(kind)):
        raise ValueError(f"column {name!r} of {kind} has missing values, which it cannot keep")
    if types.is_fixed_size_list(kind):
        inner = np.asarray(_values(name, joined.flatten()))
        return inner.reshape(len(joined), kind.list_size, *inner.shape[1:])
    if types.is_fixed_size_binary(kind):
        return np.asarray(joined.to_pylist(), "S")
    found = joined.to_numpy(zero_copy_only=False)
    if found.dtype == np.dtype(object):
        raise UnsupportedError(f"column {name!r}: Arrow's {kind} has no type in NumPy")
    return found


def _items(pyarrow: Any, name: str, column: Any) -> RaggedArray | None:
    """Return text, bytes, JSON and lists of numbers as items; None for other types."""
    types, kind = pyarrow.types, column.type
    if types.is_null(kind):
        return RaggedArray.nulls(UTF8, len(column))
    if getattr(kind, "extension_name", "") == "arrow.json":
        texts = _values(name, column.storage)
        return as_json(texts, f"column {name!r}") if isinstance(texts, RaggedArray) else None
    if types.is_string(kind) or types.is_large_string(kind):
        return _of_buffers(name, column, UTF8, column.buffers()[1:])
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _of_buffers(name, column, BYTES, column.buffers()[1:])
    if not (types.is_list(kind) or types.is_large_list(kind)):
        return None
    inner = column.values
    if types.is_nested(inner.type):
        raise UnsupportedError(f"column {name!r}: Arrow's {kind} has no type in NumPy")
    if inner.null_count:
        raise UnsupportedError(f"column {name!r}: lists of {inner.type} with missing values")
    numbers = _values(name, inner)
    if not isinstance(numbers, np.ndarray) or numbers.dtype.hasobject:
        raise UnsupportedError(f"column {name!r}: Arrow's {kind} has no type in NumPy")
    data = np.ascontiguousarray(numbers)
    offsets = np.asarray(column.offsets).astype(np.int64)
    # Before they count bytes: a number of items times their size could overflow.
    check_offsets(offsets, len(data), f"column {name!r}")
    offsets *= data.dtype.itemsize
    return RaggedArray.checked(
        ItemKind("list", data.dtype), offsets, data.view(np.uint8), _validity(column), name
    )


def _of_buffers(name: str, column: Any, kind: ItemKind, buffers: Any) -> RaggedArray:
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


def _of_items(pyarrow: Any, items: RaggedArray) -> Any:
    """Return items as large strings, large binaries, large lists, or JSON in large strings."""
    count = len(items)
    bitmap = None
    if items.validity is not None:
        bitmap = pyarrow.py_buffer(np.packbits(items.validity, bitorder="little").tobytes())
    if items.kind.item is not None:
        numbers = np.frombuffer(items.payload.tobytes(), items.kind.item)
        inner = _array(pyarrow, numbers)
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


def _array(pyarrow: Any, values: NDArray[Any] | RaggedArray) -> Any:
    if isinstance(values, RaggedArray):
        return _of_items(pyarrow, values)
    native = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("="), copy=False))
    if native.ndim > 1:
        inner = _array(pyarrow, native.reshape(-1, *native.shape[2:]))
        return pyarrow.FixedSizeListArray.from_arrays(inner, native.shape[1])
    if native.dtype.kind == "T":
        return _of_items(pyarrow, from_text(native))
    if native.dtype.kind == "U":
        return pyarrow.array(native.tolist(), pyarrow.string())
    if native.dtype.kind == "S":
        return pyarrow.array(native.tolist(), pyarrow.binary())
    if native.dtype.kind == "M" and np.datetime_data(native.dtype)[0] in "YMWhm":
        native = native.astype("M8[s]")
    try:
        return pyarrow.array(native)
    except (pyarrow.ArrowException, TypeError) as error:
        raise UnsupportedError(f"{values.dtype} has no type in Arrow: {error}") from None

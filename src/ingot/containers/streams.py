"""Values of unknown number: iterators of items or of blocks, and files to be read.

An array is stored when its shape is known, so a stream is read to its end first. The items of a
long one wait in a temporary file, so that memory does not have to hold them.
"""

import io
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType, is_variable
from ingot.errors import ArgumentError, ArgumentTypeError

__all__ = ["read_stream"]

_PIECE: Final = 1 << 20
_ITEMS: Final = 1 << 16
_MOST_IN_MEMORY: Final = 64 << 20
_NOTHING: Final = object()


def read_stream(
    data: Iterator[object] | io.IOBase, dtype: DType | None, most: int = _MOST_IN_MEMORY
) -> NDArray[Any]:
    """Return all items of a stream as an array, which lies in a temporary file beyond `most` bytes.

    An iterator yields items, or blocks of rows that agree in all other axes; the first block has
    the type, unless `dtype` is given. A file has bytes, or items of `dtype`.

    >>> read_stream(iter([[[1, 2]], [[3, 4], [5, 6]]]), None)
    array([[1, 2], [3, 4], [5, 6]])
    >>> read_stream((n * n for n in range(4)), np.dtype("u1"))
    array([0, 1, 4, 9], dtype=uint8)
    """
    # A file is an iterator as well, of lines.
    if not isinstance(data, io.IOBase):
        return _joined(_blocks(data, dtype), most)
    items = np.dtype(np.uint8) if dtype is None else dtype
    if items.hasobject or is_variable(items):
        raise ArgumentError(f"dtype {items}: the items of a file have a fixed size")
    found = _joined(map(_bytes, _pieces(data)), most)
    if len(found) % items.itemsize:
        raise ArgumentError(
            f"the stream ends after {len(found)} bytes, items of {items} have {items.itemsize}"
        )
    return found.view(items)


def _pieces(file: io.IOBase) -> Iterator[bytes]:
    yield b""
    while piece := cast(IO[bytes], file).read(_PIECE):
        if not isinstance(piece, bytes | bytearray | memoryview):
            raise ArgumentTypeError(
                f"a stream of {type(piece).__name__}: open the file in binary mode"
            )
        yield bytes(piece)


def _bytes(data: bytes | bytearray | memoryview) -> NDArray[np.uint8]:
    # NumPy refuses a buffer without bytes.
    return np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)


def _blocks(values: Iterator[object], dtype: DType | None) -> Iterator[NDArray[Any]]:
    """Yield blocks of rows of one type; single items are gathered."""
    first = next(values, _NOTHING)
    if first is _NOTHING:
        yield np.zeros(0, dtype)
        return
    if isinstance(first, bytes | bytearray | memoryview) and dtype is None:
        for each in itertools.chain([first], values):
            if not isinstance(each, bytes | bytearray | memoryview):
                raise ArgumentTypeError(
                    f"a stream of bytes has an item of type {type(each).__name__}"
                )
            yield _bytes(each)
        return
    given: Iterator[object] = itertools.chain([first], values)
    if np.ndim(np.asarray(first, dtype)) == 0:
        items = given
        given = iter(lambda: list(itertools.islice(items, _ITEMS)), [])
    kind = dtype
    for block in given:
        found = np.asarray(block, dtype)
        kind = found.dtype if kind is None else kind
        if not np.can_cast(found.dtype, kind, "safe"):
            raise ArgumentError(f"items of type {found.dtype} follow items of type {kind}")
        yield found.astype(kind, copy=False)


def _joined(blocks: Iterable[NDArray[Any]], most: int) -> NDArray[Any]:
    """Return blocks one behind the other."""
    held: list[NDArray[Any]] = []
    size = rows = 0
    file: IO[bytes] | None = None
    for block in blocks:
        if held and block.shape[1:] != held[0].shape[1:]:
            raise ArgumentError(
                f"a block of shape {block.shape} follows one of shape {held[0].shape}"
            )
        rows += len(block)
        size += block.nbytes
        if file is None and size > most and not (block.dtype.hasobject or is_variable(block.dtype)):
            file = tempfile.TemporaryFile()  # noqa: SIM115, since the result lies in it
            for each in held:
                file.write(np.ascontiguousarray(each).data)
            held = held[:1]
        if file is None:
            held.append(block)
        else:
            file.write(np.ascontiguousarray(block).data)
            held = held or [block]
    if file is None:
        return np.concatenate(held)
    file.flush()
    shape = rows, *held[0].shape[1:]
    # The mapping keeps the file, which has no name any more.
    return np.asarray(np.memmap(file, held[0].dtype, "r", shape=shape))

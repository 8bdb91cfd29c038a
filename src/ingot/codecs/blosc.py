"""Blosc chunks: the public functions on one chunk at a time, known as ``ingot.blosc``.

Knows the arguments that make sense and says so when they do not; hands the work to the kernel in
use. Refuses to know how the work is done.

>>> from ingot import blosc
>>> chunk = blosc.compress(b"to be or not to be, " * 50, codec="zstd")
>>> blosc.decompress(chunk)[:5], blosc.decompress_slice(chunk, 3, 5)
(b'to be', b'be')
"""

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from ingot import native
from ingot.codecs import header
from ingot.codecs.blocks import Block, Stream
from ingot.codecs.header import HEADER_BYTES, LARGEST_BLOCK, LARGEST_CHUNK, ChunkHeader, Extension
from ingot.codecs.inspection import Inspection, inspect
from ingot.errors import LimitError, UnsupportedError

if TYPE_CHECKING:
    from ingot.codecs.header import BytesLike

__all__ = [
    "CODECS",
    "FILTERS",
    "LARGEST",
    "Block",
    "ChunkHeader",
    "Extension",
    "Inspection",
    "Stream",
    "compress",
    "decompress",
    "decompress_slice",
    "inspect",
]

CODECS = tuple(header.CODECS)
"""The codecs that ``compress`` knows; every one of them is decoded as well."""

FILTERS = ("shuffle", "bitshuffle")
"""The filters that a Blosc-1 chunk can have, one at a time."""

LARGEST = LARGEST_CHUNK - HEADER_BYTES
"""The most bytes that one chunk can hold."""

# The kernel, once it is known: the wrappers below run millions of times, and
# asking for the kernel each time would cost more than decoding a small chunk.
_kernel: native.Kernel | None = None


@overload
def decompress(
    chunk: "BytesLike", out: None = None, *, threads: int = 1, limit: int = LARGEST_CHUNK
) -> bytes: ...
@overload
def decompress(
    chunk: "BytesLike", out: "BytesLike", *, threads: int = 1, limit: int = LARGEST_CHUNK
) -> int: ...
def decompress(
    chunk: Any,
    out: Any = None,
    *,
    threads: int = 1,
    limit: int = LARGEST_CHUNK,
) -> bytes | int:
    """Decode a whole chunk.

    Without ``out`` the data come back as bytes; with it they are written to the start of that
    buffer (writable, C-contiguous, at least as large; ``ValueError`` before anything is written
    otherwise), and their number comes back. A chunk that holds more than ``limit`` bytes raises
    ``LimitError``. ``threads`` is how many threads may share the work.

    >>> chunk = compress(b"spam" * 1000)
    >>> decompress(chunk) == b"spam" * 1000
    True
    >>> buffer = bytearray(5000)
    >>> decompress(chunk, buffer), bytes(buffer[:8])
    (4000, b'spamspam')
    """
    return (_kernel or _load_kernel()).decompress(chunk, out, threads, limit)


@overload
def decompress_slice(
    chunk: "BytesLike", start: int, stop: int, out: None = None, *, limit: int = LARGEST_CHUNK
) -> bytes: ...
@overload
def decompress_slice(
    chunk: "BytesLike", start: int, stop: int, out: "BytesLike", *, limit: int = LARGEST_CHUNK
) -> int: ...
def decompress_slice(
    chunk: Any,
    start: int,
    stop: int,
    out: Any = None,
    *,
    limit: int = LARGEST_CHUNK,
) -> bytes | int:
    """Decode items ``start`` to ``stop``, reading only the blocks that hold them.

    An item has the chunk's typesize. ``out`` and ``limit`` are those of ``decompress``; the limit
    is held against the whole chunk. A range that does not lie in the chunk is a
    ``SelectionError``: nothing counts from the end or is cut off.

    >>> chunk = compress(np.arange(1000), typesize=8)
    >>> np.frombuffer(decompress_slice(chunk, 500, 503), np.int64)
    array([500, 501, 502])
    """
    return (_kernel or _load_kernel()).decompress_slice(chunk, start, stop, out, limit)


def compress(
    data: "BytesLike",
    *,
    typesize: int | None = 1,
    codec: str = "lz4",
    level: int = 5,
    filters: Sequence[str] = ("shuffle",),
    version: Literal[1, 2] = 1,
    blocksize: int | None = None,
    dictionary: "BytesLike | None" = None,
    threads: int = 1,
) -> bytes:
    """Encode ``data``, any C-contiguous buffer, into one chunk.

    ``typesize`` is the size of an item, which the filters and slices count in; ``None`` takes that
    of the buffer. ``level`` runs from 0, stored, to 9, densest. ``filters`` is empty or names one
    of ``FILTERS``. ``blocksize`` is the size of the blocks that compress and decode on their own;
    ``None`` takes 128 KiB, rounded down to whole items, which suits small reads. Data that do not
    get smaller are stored as they are, 16 bytes longer.

    ``version`` is that of the Blosc format; only 1 can be written yet, without ``dictionary``.

    >>> chunk = compress(np.arange(100_000), typesize=None, codec="zstd", filters=["bitshuffle"])
    >>> header = ChunkHeader.parse(chunk)
    >>> header.typesize, header.codec, header.filter, header.nbytes
    (8, 'zstd', 'bitshuffle', 800000)
    >>> compress(b"spam", codec="lzma")
    Traceback (most recent call last):
    ValueError: codec is 'lzma', known are blosclz, lz4, lz4hc, snappy, zlib, zstd
    """
    _check_version(version, dictionary)
    if codec not in CODECS:
        raise ValueError(f"codec is {codec!r}, known are {', '.join(CODECS)}")
    raw = _flatten(data)
    return (_kernel or _load_kernel()).compress(
        raw,
        _item_size(data) if typesize is None else _integer("typesize", typesize, 1, LARGEST_CHUNK),
        codec,
        _integer("level", level, 0, 9),
        _only_filter(filters),
        0 if blocksize is None else _integer("blocksize", blocksize, 1, LARGEST_BLOCK),
        threads,
    )


def _load_kernel() -> native.Kernel:
    global _kernel
    _kernel = native.kernel()
    return _kernel


def _check_version(version: int, dictionary: "BytesLike | None") -> None:
    if version == 2:
        raise UnsupportedError("Blosc 2 chunks (version=2) cannot be written yet")
    if version != 1:
        raise ValueError(f"version is {version!r}, known are 1 and 2")
    if dictionary is not None:
        raise UnsupportedError("Blosc 1 chunks have no dictionary")


def _only_filter(filters: Sequence[str]) -> str:
    """Return the one filter of a Blosc-1 chunk by the kernel's name for it."""
    if isinstance(filters, str):
        raise TypeError(f"filters is the string {filters!r}, it must be a sequence of names")
    if not filters:
        return "none"
    for name in filters:
        if name not in FILTERS:
            raise ValueError(
                f"filter {name!r} is unknown to Blosc 1, known are {', '.join(FILTERS)}"
            )
    if len(filters) > 1:
        raise ValueError(f"Blosc 1 chunks have one filter at most, {len(filters)} are given")
    return filters[0]


def _integer(name: str, value: int, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, it must be an integer") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, it lies in {least}..{most}")
    return number


def _flatten(data: Any) -> Any:
    """Return the bytes of ``data`` as one flat buffer, without copying them."""
    if isinstance(data, np.ndarray) and data.dtype.hasobject:
        raise TypeError("an array of Python objects holds addresses, not data")
    try:
        raw = np.frombuffer(data, np.uint8)
    except TypeError:
        raise TypeError(f"data is {type(data).__name__}, it must be a buffer") from None
    except (ValueError, BufferError):
        raise ValueError(
            "data must be C-contiguous; copy it with numpy.ascontiguousarray"
        ) from None
    if raw.size > LARGEST:
        raise LimitError(f"data has {raw.size} bytes, a chunk holds at most {LARGEST}")
    return raw


def _item_size(data: "BytesLike") -> int:
    """Return the size of one item; NumPy's dates have one, though no buffer format."""
    return max(data.itemsize if isinstance(data, np.ndarray) else memoryview(data).itemsize, 1)

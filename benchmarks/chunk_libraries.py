"""The libraries that encode and decode single Blosc chunks, each by its fastest functions.

Holds their functions, block sizes and global settings. All work on one thread, with shuffle, items
of eight bytes and level 5.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

from benchmarks.packages import installed, load
from benchmarks.race import Call
from ingot import blosc

__all__ = [
    "LEVEL",
    "TYPESIZE",
    "ChunkLibrary",
    "chunk_libraries",
    "encode_by_c_blosc",
    "one_thread",
    "read_blocksize",
]

LEVEL = 5
TYPESIZE = 8
SHUFFLE = 1

_SPLIT_BY_C_BLOSC = ("blosclz", "lz4", "lz4hc", "zlib")


class ChunkLibrary(Protocol):
    """A library under its column's name, and the package it comes in."""

    name: str
    package: str

    def decoding(self, chunk: bytes) -> Call:
        """Return a call that decodes the chunk into new bytes."""

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Return a call that encodes the data in blocks of ``blocksize``; 0 is automatic.

        Block sizes are global in most libraries: one such call at a time.
        """


class Ingot:
    """Ingot."""

    name = "ingot"
    package = "ingot"

    def decoding(self, chunk: bytes) -> Call:
        """Decode by ``ingot.blosc.decompress``."""
        return partial(blosc.decompress, chunk)

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Encode by ``ingot.blosc.compress``."""
        return partial(
            blosc.compress,
            data,
            typesize=TYPESIZE,
            codec=codec,
            level=LEVEL,
            blocksize=blocksize or None,
        )


class Blosc2:
    """python-blosc2 by the functions that its documentation recommends; they take parameters."""

    name = "blosc2"
    package = "blosc2"

    def __init__(self) -> None:
        self.module = load("blosc2")

    def decoding(self, chunk: bytes) -> Call:
        """Decode by ``decompress2``; the number of threads is the global one."""
        return partial(self.module.decompress2, chunk)

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Encode by ``compress2`` with keywords, which is faster than with an object."""
        return partial(
            self.module.compress2,
            data,
            codec=self.module.Codec[codec.upper()],
            clevel=LEVEL,
            filters=[self.module.Filter.SHUFFLE],
            filters_meta=[0],
            typesize=TYPESIZE,
            blocksize=blocksize,
            nthreads=1,
        )


class Blosc2Plain:
    """python-blosc2 by its older functions, which unpack fewer arguments."""

    name = "blosc2 plain"
    package = "blosc2"

    def __init__(self) -> None:
        self.module = load("blosc2")

    def decoding(self, chunk: bytes) -> Call:
        """Decode by ``decompress``."""
        return partial(self.module.decompress, chunk)

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Encode by ``compress``, the block size set beforehand for all."""
        self.module.set_blocksize(blocksize)
        method = self.module.Codec[codec.upper()]
        shuffle = self.module.Filter.SHUFFLE
        return partial(self.module.compress, data, TYPESIZE, LEVEL, shuffle, method)


class Numcodecs:
    """C-Blosc as numcodecs wraps it."""

    name = "numcodecs"
    package = "numcodecs"

    def __init__(self) -> None:
        self.module = load("numcodecs.blosc")

    def decoding(self, chunk: bytes) -> Call:
        """Decode by ``numcodecs.blosc.decompress``."""
        return partial(self.module.decompress, chunk)

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Encode by ``numcodecs.blosc.compress``."""
        size = _requested_from_c_blosc(codec, blocksize)
        name = codec.encode()
        return partial(self.module.compress, data, name, LEVEL, SHUFFLE, size, TYPESIZE)


class PythonBlosc:
    """C-Blosc as python-blosc wraps it."""

    name = "python-blosc"
    package = "blosc"

    def __init__(self) -> None:
        self.module = load("blosc")

    def decoding(self, chunk: bytes) -> Call:
        """Decode by ``blosc.decompress``."""
        return partial(self.module.decompress, chunk)

    def encoding(self, data: bytes, codec: str, blocksize: int) -> Callable[[], bytes]:
        """Encode by ``blosc.compress``, the block size set beforehand for all."""
        self.module.set_blocksize(_requested_from_c_blosc(codec, blocksize))
        return partial(self.module.compress, data, TYPESIZE, LEVEL, SHUFFLE, codec)


_CLASSES: tuple[type[Any], ...] = (Ingot, Blosc2, Blosc2Plain, Numcodecs, PythonBlosc)


def chunk_libraries() -> dict[str, ChunkLibrary | None]:
    """Return every library by its column's name, None for those that are not installed.

    >>> list(chunk_libraries())
    ['ingot', 'blosc2', 'blosc2 plain', 'numcodecs', 'python-blosc']
    """
    return {kind.name: kind() if installed(kind.package) else None for kind in _CLASSES}


@contextmanager
def one_thread() -> Iterator[None]:
    """Set every library to one thread and its own block sizes, and restore the settings afterwards.

    >>> with one_thread():
    ...     read_blocksize(encode_by_c_blosc(bytes(8000), "lz4"))
    8000
    """
    undo: list[Call] = []
    if installed("blosc2"):
        blosc2 = load("blosc2")
        undo.append(partial(blosc2.set_nthreads, blosc2.set_nthreads(1)))
        undo.append(partial(blosc2.set_blocksize, 0))
    if installed("blosc"):
        blosc1 = load("blosc")
        undo.append(partial(blosc1.set_nthreads, blosc1.set_nthreads(1)))
        undo.append(partial(blosc1.set_blocksize, 0))
    if installed("numcodecs"):
        numcodecs = load("numcodecs.blosc")
        undo.append(partial(setattr, numcodecs, "use_threads", numcodecs.use_threads))
        vars(numcodecs)["use_threads"] = False
    try:
        yield
    finally:
        for step in undo:
            step()


def encode_by_c_blosc(data: bytes, codec: str) -> bytes:
    """Encode with C-Blosc's own choice of block size; both wrappers give the same chunk.

    >>> blosc.decompress(encode_by_c_blosc(b"spam" * 200, "zstd"))[:8]
    b'spamspam'
    """
    kind = PythonBlosc if installed("blosc") else Numcodecs
    return bytes(kind().encoding(data, codec, 0)())


def read_blocksize(chunk: bytes) -> int:
    """Return the block size that a chunk's header states.

    >>> read_blocksize(blosc.compress(bytes(4000), blocksize=1000))
    1000
    """
    blocksize: int = struct.unpack_from("<i", chunk, 8)[0]
    return blocksize


def _requested_from_c_blosc(codec: str, blocksize: int) -> int:
    """Return the block size to request: C-Blosc multiplies it by the item size for split codecs."""
    return blocksize // TYPESIZE if codec in _SPLIT_BY_C_BLOSC else blocksize

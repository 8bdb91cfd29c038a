"""Special chunks of Blosc 2: a header that states the value of all data, and no blocks.

The special values are zeros, NaN, one repeated value, and uninitialised.
"""

import numpy as np
import numpy.typing as npt

from ingot.blosc.header import (
    BITSHUFFLE,
    EXTENDED_HEADER_BYTES,
    EXTENSION_SLOTS,
    LARGEST_BLOCK,
    SHUFFLE,
    SPECIALS,
    ChunkHeader,
    Extension,
)

__all__ = ["find", "pack", "unpack"]

# The quiet NaN, positive and without payload: the only one that has a special value.
_NAN = {4: bytes.fromhex("0000c07f"), 8: bytes.fromhex("000000000000f87f")}
_NO_FILTERS = (0,) * EXTENSION_SLOTS


def find(source: npt.NDArray[np.uint8], typesize: int) -> str | None:
    """Return the special value of data: ``"zeros"``, ``"nan"``, ``"value"``, or ``None``.

    >>> find(np.full(8, 7, np.uint8), 1), find(np.arange(8, dtype=np.uint8), 1)
    ('value', None)
    """
    if not source.size:
        return None
    # The first item decides in most cases, and is cheap to check.
    if not source[:typesize].any() and not source.any():
        return "zeros"
    if source.size % typesize or not np.array_equal(source[typesize:], source[:-typesize]):
        return None
    return "nan" if source[:typesize].tobytes() == _NAN.get(typesize) else "value"


def pack(kind: str, nbytes: int, typesize: int, value: bytes) -> bytes:
    """Return a special chunk of a ``kind``; only ``"value"`` stores ``value``.

    >>> pack("zeros", 1000, 4, b"").hex(" ", 16)
    '05010504e8030000e803000020000000 00000000000000000000000000000010'
    """
    body = value if kind == "value" else b""
    header = ChunkHeader(
        version=5,
        flags=SHUFFLE | BITSHUFFLE,
        typesize=typesize,
        nbytes=nbytes,
        blocksize=min(max(nbytes, 1), LARGEST_BLOCK // typesize * typesize),
        cbytes=EXTENDED_HEADER_BYTES + len(body),
        extension=Extension(_NO_FILTERS, 0, 0, _NO_FILTERS, 0, SPECIALS.index(kind) << 4),
    )
    return header.pack() + body


def unpack(header: ChunkHeader, chunk: npt.NDArray[np.uint8]) -> bytes:
    """Return the bytes that a special chunk repeats; uninitialised data read as zeros.

    >>> chunk = np.frombuffer(pack("value", 1000, 4, b"spam"), np.uint8)
    >>> unpack(ChunkHeader.parse(chunk), chunk)
    b'spam'
    """
    if header.special == "value":
        return chunk[EXTENDED_HEADER_BYTES:].tobytes()
    return _NAN[header.typesize] if header.special == "nan" else b"\0"

"""Shuffle and bitshuffle, on one block at a time, in NumPy.

Knows how bytes or bits of the same significance are brought together and put back, and which
blocks are left alone. Refuses to know about streams and codecs. Nothing is done in place.
"""

import numpy as np
import numpy.typing as npt

__all__ = ["bitshuffle", "shuffle", "unbitshuffle", "unshuffle"]


def shuffle(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """Bring the first bytes of all items together, then the second ones, and so on.

    Bytes behind the last whole item stay where they are.

    >>> shuffle(np.frombuffer(b"aAbBcC.", np.uint8), 2).tobytes()
    b'abcABC.'
    """
    items = block.size // typesize
    output = block.copy()
    whole = block[: items * typesize].reshape(items, typesize)
    output[: items * typesize].reshape(typesize, items)[:] = whole.T
    return output


def unshuffle(block: npt.NDArray[np.uint8], typesize: int) -> npt.NDArray[np.uint8]:
    """Undo ``shuffle``.

    >>> unshuffle(np.frombuffer(b"abcABC.", np.uint8), 2).tobytes()
    b'aAbBcC.'
    """
    items = block.size // typesize
    output = block.copy()
    planes = block[: items * typesize].reshape(typesize, items)
    output[: items * typesize].reshape(items, typesize)[:] = planes.T
    return output


def bitshuffle(
    block: npt.NDArray[np.uint8], typesize: int, partial: bool = False
) -> npt.NDArray[np.uint8]:
    """Bring the lowest bits of all items together, then the next ones, and so on.

    Bit e of a row, counted from the lowest bit of its first byte, comes from item e. Only whole
    groups of eight items can be filtered. Where some are left over, Blosc 1 leaves the block
    alone; Blosc 2 (``partial``) leaves those items alone.

    >>> bitshuffle(np.array([1, 0, 1, 0, 0, 0, 0, 128], np.uint8), 1).tolist()
    [5, 0, 0, 0, 0, 0, 0, 128]
    """
    items = _filtered_items(block.size // typesize, partial)
    output = block.copy()
    if items:
        whole = block[: items * typesize].reshape(items, typesize)
        rows = np.unpackbits(whole, axis=1, bitorder="little").T
        output[: items * typesize] = np.packbits(rows, axis=1, bitorder="little").reshape(-1)
    return output


def unbitshuffle(
    block: npt.NDArray[np.uint8], typesize: int, partial: bool = False
) -> npt.NDArray[np.uint8]:
    """Undo ``bitshuffle``.

    >>> unbitshuffle(np.array([5, 0, 0, 0, 0, 0, 0, 128], np.uint8), 1).tolist()
    [1, 0, 1, 0, 0, 0, 0, 128]
    """
    items = _filtered_items(block.size // typesize, partial)
    output = block.copy()
    if items:
        rows = block[: items * typesize].reshape(8 * typesize, items // 8)
        whole = np.unpackbits(rows, axis=1, bitorder="little").T
        output[: items * typesize] = np.packbits(whole, axis=1, bitorder="little").reshape(-1)
    return output


def _filtered_items(items: int, partial: bool) -> int:
    return items - items % 8 if partial or items % 8 == 0 else 0

"""The filters of Blosc chunks in NumPy, one block at a time, and the pipeline of Blosc 2.

Filters return new arrays and never change their input. Bytes after the last whole item stay as they
are in every filter.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingot.errors import ArgumentError

__all__ = [
    "BITSHUFFLE",
    "BYTEDELTA",
    "DELTA",
    "INT_TRUNC",
    "SHUFFLE",
    "TRUNCATE",
    "Pipeline",
    "bitshuffle",
    "shuffle",
    "unbitshuffle",
    "unshuffle",
]

SHUFFLE = 1
BITSHUFFLE = 2
DELTA = 3
TRUNCATE = 4
BYTEDELTA = 35
INT_TRUNC = 36

Bytes = npt.NDArray[np.uint8]

# The stored bits of the mantissa of a floating-point number, by its size in bytes.
_MANTISSA_BITS = {4: 23, 8: 52}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Filters with their metadata, in the order in which a writer applies them.

    ``partial_bitshuffle`` selects the rule for bitshuffle: Blosc 2 filters the first multiple of
    eight items, Blosc 1 a whole block or nothing. ``reference`` is the decoded first block of the
    chunk, with which delta compares the others; ``None`` means that the block is the first one.

    >>> pipeline = Pipeline(((DELTA, 0), (SHUFFLE, 0)), typesize=2)
    >>> filtered = pipeline.apply(np.array([1, 0, 2, 0, 3, 0], np.uint8), None)
    >>> filtered.tolist(), pipeline.undo(filtered, None).tolist()
    ([1, 3, 1, 0, 0, 0], [1, 0, 2, 0, 3, 0])
    """

    steps: Sequence[tuple[int, int]]
    typesize: int
    partial_bitshuffle: bool = True

    @property
    def has_delta(self) -> bool:
        """Whether decoding a block needs the first block of the chunk."""
        return any(number == DELTA for number, _ in self.steps)

    @property
    def truncates(self) -> bool:
        """Whether decoded data differ from the original."""
        return any(number in (TRUNCATE, INT_TRUNC) for number, _ in self.steps)

    def apply(self, block: Bytes, reference: Bytes | None) -> Bytes:
        """Return a filtered block."""
        for number, meta in self.steps:
            if number == SHUFFLE:
                block = shuffle(block, meta or self.typesize)
            elif number == BITSHUFFLE:
                block = bitshuffle(block, self.typesize, self.partial_bitshuffle)
            elif number == DELTA:
                block = _apply_delta(block, self.typesize, reference)
            elif number == TRUNCATE:
                block = _truncate(block, self.typesize, meta)
            elif number == BYTEDELTA:
                block = _apply_bytedelta(block, meta or self.typesize)
            else:
                raise ArgumentError(f"filter {number} cannot be applied")
        return block

    def undo(self, block: Bytes, reference: Bytes | None) -> Bytes:
        """Return a block with its filters undone, the last one first; truncated bits stay lost."""
        for number, meta in reversed(self.steps):
            if number == SHUFFLE:
                block = unshuffle(block, meta or self.typesize)
            elif number == BITSHUFFLE:
                block = unbitshuffle(block, self.typesize, self.partial_bitshuffle)
            elif number == DELTA:
                block = _undo_delta(block, self.typesize, reference)
            elif number == BYTEDELTA:
                block = _undo_bytedelta(block, meta or self.typesize)
            elif number not in (TRUNCATE, INT_TRUNC):
                raise ArgumentError(f"filter {number} cannot be undone")
        return block

    def check_applicable(self) -> None:
        """Raise ``ValueError`` unless every step can be applied to items of this size."""
        for number, meta in self.steps:
            if number not in (SHUFFLE, BITSHUFFLE, DELTA, TRUNCATE, BYTEDELTA):
                raise ArgumentError(f"filter {number} cannot be applied")
            if not 0 <= meta <= 255:
                raise ArgumentError(f"filter {number} has metadata {meta}, they lie in 0..255")
            if number == TRUNCATE:
                _check_truncation(self.typesize, meta)


def shuffle(block: Bytes, typesize: int) -> Bytes:
    """Return the first bytes of all items, then the second ones, and so on.

    Bytes after the last whole item stay where they are.

    >>> shuffle(np.frombuffer(b"aAbBcC.", np.uint8), 2).tobytes()
    b'abcABC.'
    """
    items = block.size // typesize
    output = block.copy()
    whole = block[: items * typesize].reshape(items, typesize)
    output[: items * typesize].reshape(typesize, items)[:] = whole.T
    return output


def unshuffle(block: Bytes, typesize: int) -> Bytes:
    """Undo ``shuffle``.

    >>> unshuffle(np.frombuffer(b"abcABC.", np.uint8), 2).tobytes()
    b'aAbBcC.'
    """
    items = block.size // typesize
    output = block.copy()
    planes = block[: items * typesize].reshape(typesize, items)
    output[: items * typesize].reshape(items, typesize)[:] = planes.T
    return output


def bitshuffle(block: Bytes, typesize: int, partial: bool = False) -> Bytes:
    """Return the lowest bits of all items, then the next ones, and so on.

    Bit e of a row, counted from the lowest bit of its first byte, comes from item e. Only whole
    groups of eight items can be filtered. If items are left over, Blosc 1 leaves the whole block
    unchanged, Blosc 2 (``partial``) only those items.

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


def unbitshuffle(block: Bytes, typesize: int, partial: bool = False) -> Bytes:
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


def _check_truncation(typesize: int, bits: int) -> None:
    if typesize not in _MANTISSA_BITS:
        raise ArgumentError(f"truncate needs items of 4 or 8 bytes, they have {typesize}")
    most = _MANTISSA_BITS[typesize]
    if not 0 <= bits <= most:
        raise ArgumentError(f"truncate keeps {bits} bits, items of {typesize} bytes have 0..{most}")


def _filtered_items(items: int, partial: bool) -> int:
    return items - items % 8 if partial or items % 8 == 0 else 0


def _apply_delta(block: Bytes, typesize: int, reference: Bytes | None) -> Bytes:
    word = _word_of(typesize)
    output = block.copy()
    words = _words(output, word)
    if reference is None:
        words[1:] ^= _words(block, word)[:-1]
    else:
        words ^= _words(reference, word)[: words.size]
    return output


def _undo_delta(block: Bytes, typesize: int, reference: Bytes | None) -> Bytes:
    word = _word_of(typesize)
    output = block.copy()
    words = _words(output, word)
    if reference is None:
        words[:] = np.bitwise_xor.accumulate(words)
    else:
        words ^= _words(reference, word)[: words.size]
    return output


def _words(block: Bytes, word: int) -> npt.NDArray[np.unsignedinteger]:
    """Return the whole words of a block, as a view."""
    return block[: block.size // word * word].view(f"<u{word}")


def _word_of(typesize: int) -> int:
    """Return the bytes of the words that delta works on."""
    if typesize in (1, 2, 4, 8):
        return typesize
    return 1 if typesize % 8 else 8


def _truncate(block: Bytes, typesize: int, bits: int) -> Bytes:
    """Clear all but the ``bits`` highest bits of every mantissa."""
    output = block.copy()
    words = _words(output, typesize)
    cleared = _MANTISSA_BITS[typesize] - bits
    words &= words.dtype.type(2 ** (8 * typesize) - 2**cleared)
    return output


def _apply_bytedelta(block: Bytes, planes: int) -> Bytes:
    rows = _rows(block, planes)
    output = block.copy()
    _rows(output, planes)[:, 1:] -= rows[:, :-1]
    return output


def _undo_bytedelta(block: Bytes, planes: int) -> Bytes:
    output = block.copy()
    rows = _rows(output, planes)
    rows[:] = np.add.accumulate(rows, axis=1, dtype=np.uint8)
    return output


def _rows(block: Bytes, planes: int) -> Bytes:
    """Return a block as its byte planes, without the bytes after them."""
    length = block.size // planes
    return block[: planes * length].reshape(planes, length)

"""The blocks in which an array too large for memory is walked.

Knows how to join neighbouring chunks to blocks of a size that is worth a read, and in which order
to visit them. Refuses to read.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from ingot.grid import ChunkGrid

__all__ = ["BLOCK_BYTES", "block_rows", "block_shape", "blocks"]

BLOCK_BYTES: Final = 2**24
"""The size of a block, unless a single chunk is larger: enough to keep several threads busy."""

_MOST_BLOCKS: Final = 8


def block_shape(
    grid: ChunkGrid, itemsize: int, *, most: int = BLOCK_BYTES, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return how long a block is along each axis: whole chunks, `most` bytes if it can be.

    Chunks are joined along the axes in `order`, as far as the budget goes; unless told otherwise
    from the last axis to the first, so that blocks are runs of the array's own order.

    >>> block_shape(ChunkGrid((100, 100), (10, 10), padded=True), 1, most=5000)
    (50, 100)
    >>> block_shape(ChunkGrid((100, 100), (10, 10), padded=True), 1, most=500, order=[0, 1])
    (50, 10)
    """
    lengths = [min(size, chunk) for size, chunk in zip(grid.shape, grid.chunk, strict=True)]
    room = most // max(1, itemsize)
    for length in lengths:
        room //= max(1, length)
    for axis in reversed(range(len(lengths))) if order is None else order:
        joined = max(1, min(room, grid.counts[axis]))
        lengths[axis] = min(grid.shape[axis], grid.chunk[axis] * joined)
        room //= joined
    return tuple(lengths)


def blocks(shape: Sequence[int], block: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Yield the keys of all blocks, the last axis fastest.

    >>> list(blocks((3, 2), (2, 2)))
    [(slice(0, 2, None), slice(0, 2, None)), (slice(2, 3, None), slice(0, 2, None))]
    """
    if not shape:
        yield ()
        return
    # Not `itertools.product`: it would hold all blocks of an axis, and a file may claim 2**62.
    for start in range(0, shape[0], max(1, block[0])):
        first = slice(start, min(start + block[0], shape[0]))
        for others in blocks(shape[1:], block[1:]):
            yield (first, *others)


def block_rows(grid: ChunkGrid, itemsize: int) -> int:
    """Return how many items of the first axis to read at once when they are wanted one by one.

    Whole chunks, so that none is decoded twice, unless that would take far more than a block.

    >>> block_rows(ChunkGrid((10**9,), (1000,), padded=True), 8)
    2097000
    >>> block_rows(ChunkGrid((10**6, 10**6), (1000, 1000), padded=True), 8)
    16
    """
    row = max(1, itemsize)
    for size in grid.shape[1:]:
        row *= max(1, size)
    chunk = grid.chunk[0]
    joined = max(1, BLOCK_BYTES // (row * chunk))
    return max(1, min(chunk * joined, _MOST_BLOCKS * BLOCK_BYTES // row))

"""How an array is walked in blocks: whole chunks, within a budget, without holding them all."""

import itertools

import numpy as np
import pytest

from ingot.grid import BLOCK_BYTES, ChunkGrid, block_rows, block_shape, blocks

GRIDS = [
    ((100, 100), (10, 10)),
    ((7, 5, 3), (2, 2, 2)),
    ((1000,), (7,)),
    ((3, 1000), (5, 1)),
    ((10, 0), (3, 3)),
    ((), ()),
]


@pytest.mark.parametrize(("shape", "chunk"), GRIDS)
@pytest.mark.parametrize("most", [1, 50, 999, 5000, 10**9])
def test_blocks_are_whole_chunks_within_the_budget(
    shape: tuple[int, ...], chunk: tuple[int, ...], most: int
) -> None:
    grid = ChunkGrid(shape, chunk, padded=True)
    step = block_shape(grid, 2, most=most)
    for length, size, single in zip(step, shape, chunk, strict=True):
        assert length % single == 0 or length == size
    single_bytes = 2 * np.prod([min(a, b) for a, b in zip(shape, chunk, strict=True)])
    assert 2 * np.prod(step) <= max(most, single_bytes)
    seen = np.zeros(shape, int)
    for key in blocks(shape, step):
        seen[key] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_chunks_are_joined_along_the_axes_in_order(order: tuple[int, ...]) -> None:
    grid = ChunkGrid((20, 20, 20), (2, 2, 2), padded=True)
    step = block_shape(grid, 1, most=8 * 10 * 3, order=order)
    assert [step[axis] for axis in order] == [20, 6, 2]


def test_a_vast_array_is_walked_without_listing_its_blocks() -> None:
    shape, chunk = (2**31, 2**31), (1000, 1000)
    step = block_shape(ChunkGrid(shape, chunk, padded=True), 8)
    keys = list(itertools.islice(blocks(shape, step), 3))
    assert [key[1].start for key in keys] == [0, step[1], 2 * step[1]]


@pytest.mark.parametrize(
    ("shape", "chunk", "expected"),
    [
        ((10**9,), (1000,), BLOCK_BYTES // 8 // 1000 * 1000),
        ((10**9,), (10**7,), 10**7),
        ((10, 4), (3, 2), BLOCK_BYTES // (3 * 4 * 8) * 3),
        ((10**6, 10**9), (10, 10), 1),
        ((5, 0), (2, 2), BLOCK_BYTES // 16 * 2),
    ],
)
def test_rows_that_are_read_at_once(
    shape: tuple[int, ...], chunk: tuple[int, ...], expected: int
) -> None:
    assert block_rows(ChunkGrid(shape, chunk, padded=True), 8) == expected

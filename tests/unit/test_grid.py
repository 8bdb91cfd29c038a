"""How a shape is cut: the grid, the parts of ranges, the groups of points, automatic chunks."""

import math
import random
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    AxisError,
    IngotError,
    SelectionError,
)
from ingot.grid import (
    ChunkGrid,
    auto_chunks,
    axis_numbers,
    count_parts,
    cut_range,
    group_points,
)

KIB = 1 << 10
MIB = 1 << 20


@pytest.mark.parametrize(
    ("shape", "chunk", "counts", "chunk_count"),
    [
        ((), (), (), 1),
        ((10,), (4,), (3,), 3),
        ((8,), (4,), (2,), 2),
        ((3,), (100,), (1,), 1),
        ((0,), (4,), (0,), 0),
        ((5, 0, 2), (2, 7, 1), (3, 0, 2), 0),
        ((2**62, 2**62), (1, 1), (2**62, 2**62), 2**124),
        ((2**63 - 1,), (2**63 - 1,), (1,), 1),
    ],
)
def test_counts(shape, chunk, counts, chunk_count):
    grid = ChunkGrid(shape, chunk, padded=True)
    assert grid.counts == counts
    assert grid.chunk_count == chunk_count


@pytest.mark.parametrize("padded", [True, False])
def test_a_chunk_in_the_middle_is_full(padded):
    grid = ChunkGrid((10, 7), (4, 3), padded=padded)
    assert grid.stored_shape((1, 1)) == grid.valid_shape((1, 1)) == (4, 3)


def test_padded_edges_are_stored_full():
    grid = ChunkGrid((10, 7), (4, 3), padded=True)
    assert grid.stored_shape((2, 2)) == (4, 3)
    assert grid.valid_shape((2, 2)) == (2, 1)


def test_short_edges_are_stored_short():
    grid = ChunkGrid((10, 7), (4, 3), padded=False)
    assert grid.stored_shape((2, 2)) == grid.valid_shape((2, 2)) == (2, 1)
    assert grid.stored_shape((2, 0)) == (2, 3)


def test_chunk_larger_than_the_array():
    assert ChunkGrid((3,), (100,), padded=True).stored_shape((0,)) == (100,)
    assert ChunkGrid((3,), (100,), padded=False).stored_shape((0,)) == (3,)


def test_array_without_axes_is_one_chunk():
    grid = ChunkGrid((), (), padded=False)
    assert grid.coords(0) == grid.stored_shape(()) == grid.valid_shape(()) == ()
    assert grid.linear(()) == 0


def test_numbers_follow_the_last_axis_first():
    grid = ChunkGrid((4, 6), (2, 2), padded=True)
    assert [grid.coords(number) for number in range(6)] == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
    ]
    assert [grid.linear(grid.coords(number)) for number in range(6)] == list(range(6))


@pytest.mark.parametrize("coords", [(0,), (0, 0, 0), (2, 0), (0, -1), (0, 3)])
@pytest.mark.parametrize("method", ["linear", "stored_shape", "valid_shape"])
@pytest.mark.parametrize("padded", [True, False])
def test_coordinates_outside_the_grid(coords, method, padded):
    grid = ChunkGrid((4, 6), (2, 2), padded=padded)
    with pytest.raises(SelectionError, match=r"of a grid of \(2, 3\) chunks"):
        getattr(grid, method)(coords)


@pytest.mark.parametrize("number", [-1, 6])
def test_number_outside_the_grid(number):
    with pytest.raises(SelectionError, match=f"chunk {number} of a grid that has 6"):
        ChunkGrid((4, 6), (2, 2), padded=True).coords(number)


def test_a_grid_without_chunks_has_no_coordinates():
    grid = ChunkGrid((0, 5), (2, 2), padded=True)
    with pytest.raises(SelectionError):
        grid.coords(0)
    with pytest.raises(SelectionError):
        grid.valid_shape((0, 0))


@pytest.mark.parametrize(
    ("shape", "chunk", "text"),
    [
        ((-1,), (1,), "shape: axis 0 is -1"),
        ((4, 4), (2, 0), "chunk shape: axis 1 is 0"),
        ((4, 4), (2,), "shape has 2 axes, the chunk shape 1"),
        ((4.0,), (2,), "shape: axis 0 is 4.0, which is not a length"),
        (("4",), (2,), "shape: axis 0 is '4', which is not a length"),
        ((True,), (2,), "shape: axis 0 is True, which is not a length"),
        ((4,), (np.True_,), "chunk shape: axis 0 is True, which is not a length"),
        ((2**63,), (2,), "shape: axis 0 is 9223372036854775808"),
        ((1,) * 65, (1,) * 65, "shape has 65 axes, the most is 64"),
    ],
)
def test_claims_that_make_no_grid(shape, chunk, text):
    with pytest.raises(ValueError, match=text):
        ChunkGrid(shape, chunk, padded=True)


def test_grid_is_a_value():
    grid = ChunkGrid([np.int64(4), 6], (2, np.uint8(2)), padded=True)
    assert grid == ChunkGrid((4, 6), (2, 2), padded=True)
    assert hash(grid) == hash(ChunkGrid((4, 6), (2, 2), padded=True))
    assert grid != ChunkGrid((4, 6), (2, 2), padded=False)
    assert [type(length) for length in grid.shape + grid.chunk] == [int] * 4
    with pytest.raises(FrozenInstanceError):
        grid.shape = (1, 1)


@pytest.mark.parametrize(
    ("start", "count", "step", "chunk", "parts"),
    [
        (0, 0, 1, 5, []),
        (3, 1, 1, 5, [(0, 3, 1, 0)]),
        (3, 7, 1, 5, [(0, 3, 2, 0), (1, 0, 5, 2)]),
        (4, 3, 2, 5, [(0, 4, 1, 0), (1, 1, 2, 1)]),
        (9, 10, -1, 5, [(1, 4, 5, 0), (0, 4, 5, 5)]),
        (12, 3, -5, 5, [(2, 2, 1, 0), (1, 2, 1, 1), (0, 2, 1, 2)]),
        (0, 3, 11, 5, [(0, 0, 1, 0), (2, 1, 1, 1), (4, 2, 1, 2)]),
        (7, 3, 1, 1, [(7, 0, 1, 0), (8, 0, 1, 1), (9, 0, 1, 2)]),
    ],
)
def test_parts_of_a_range(start, count, step, chunk, parts):
    assert cut_range(start, count, step, chunk) == parts
    assert count_parts(start, count, step, chunk) == len(parts)


@pytest.mark.parametrize(
    ("start", "count", "step", "chunk"),
    [
        (0, 5, 2**60, 2**61),
        (2**62 + 2**61, 7, -(2**60), 2**61 + 3),
        (2**63 - 2, 3, -(2**62 - 1), 2**62),
        (2**63 - 4, 3, 1, 2**63 - 3),
        (2**63 - 2, 2, -(2**63 - 2), 2**63 - 1),
    ],
)
def test_parts_at_the_end_of_64_bits(start, count, step, chunk):
    rows = cut_range(start, count, step, chunk)
    indices = [start + position * step for position in range(count)]
    assert [number * chunk + offset for number, offset, _, _ in rows] == [
        indices[position] for *_, position in rows
    ]
    assert sum(items for _, _, items, _ in rows) == count
    assert count_parts(start, count, step, chunk) == len(rows)


def test_parts_are_counted_without_cutting():
    assert count_parts(0, 2**62, 1, 1) == 2**62
    assert count_parts(2**62 - 1, 2**62, -1, 2) == 2**61


def test_groups_keep_the_order_of_duplicates():
    groups = group_points([np.array([9, 1, 9, 0, 9])], [5])
    assert groups.chunks.tolist() == [[0], [1]]
    assert groups.order.tolist() == [1, 3, 0, 2, 4]
    assert groups.bounds.tolist() == [0, 2, 5]
    assert groups.offsets[0].tolist() == [1, 0, 4, 4, 4]
    assert not groups.ordered


def test_groups_of_points_in_order_gather_nothing():
    groups = group_points([np.array([1, 0, 9, 7])], [5])
    assert groups.ordered
    assert groups.order.tolist() == [0, 1, 2, 3]
    assert groups.bounds.tolist() == [0, 2, 4]


def test_groups_over_two_axes_follow_the_last_axis_first():
    rows, columns = np.array([5, 0, 5, 0]), np.array([0, 9, 9, 0])
    groups = group_points([rows, columns], [5, 5])
    assert groups.chunks.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert groups.order.tolist() == [3, 1, 0, 2]
    assert [offset.tolist() for offset in groups.offsets] == [[0, 0, 0, 0], [0, 4, 0, 4]]


def test_groups_of_no_points():
    groups = group_points([np.zeros(0, dtype=np.int64)] * 2, [5, 5])
    assert groups.chunks.shape == (0, 2)
    assert groups.bounds.tolist() == [0]
    assert groups.order.tolist() == []


@pytest.mark.parametrize("span", [2**16 - 1, 2**16, 2**16 + 1])
def test_groups_where_keys_outgrow_16_bits(span):
    points = np.array([span - 1, 3, 0, 3, span - 1]) + 7
    groups = group_points([points], [1])
    assert groups.chunks.tolist() == [[7], [10], [span + 6]]
    assert groups.order.tolist() == [2, 1, 3, 0, 4]


def test_groups_where_keys_outgrow_64_bits():
    rows = np.array([2**62, 0, 2**62, 5])
    columns = np.array([2**62, 0, 2**62, 2**61])
    groups = group_points([rows, columns], [1, 2])
    assert groups.chunks.tolist() == [[0, 0], [5, 2**60], [2**62, 2**61]]
    assert groups.order.tolist() == [1, 3, 0, 2]
    assert groups.bounds.tolist() == [0, 1, 2, 4]


def test_a_small_array_is_one_chunk():
    assert auto_chunks((512, 256), 8) == (512, 256)
    assert auto_chunks((7,), 1) == (7,)
    assert auto_chunks((), 8) == ()


def test_parts_are_equal_so_that_no_sliver_is_left():
    assert auto_chunks((131073,), 8) == (131073,)
    assert auto_chunks((262144 + 2,), 8) == (131073,)
    assert auto_chunks((600, 600), 8) == (300, 600)


def test_long_and_thin():
    assert auto_chunks((10**9,), 8) == (131072,)
    assert auto_chunks((10**9, 4), 8) == (32768, 4)
    assert auto_chunks((4, 10**9), 8) == (4, 32768)
    assert auto_chunks((1, 10**9, 1), 1) == (1, MIB, 1)


def test_cube():
    assert auto_chunks((10**5, 10**5, 10**5), 4) == (64, 64, 64)
    assert auto_chunks((10**6, 10**6), 1) == (1024, 1024)


def test_empty_axes():
    assert auto_chunks((0,), 8) == (1,)
    assert auto_chunks((0, 100), 8) == (1, 100)
    assert auto_chunks((0,), 8, growing=True) == (131072,)
    assert auto_chunks((0, 100), 8, growing=True) == (1310, 100)


def test_items_larger_than_any_chunk():
    assert auto_chunks((100, 100), 5 * MIB) == (1, 1)


def test_items_without_size_are_counted_as_bytes():
    assert auto_chunks((10**9,), 0) == (MIB,)


def test_limits_can_be_chosen():
    assert auto_chunks((10**9,), 1, target=64 * KIB, least=64 * KIB, most=64 * KIB) == (64 * KIB,)
    chunk = auto_chunks((1500, 1500), 1, target=MIB, least=MIB, most=MIB)
    assert math.prod(chunk) <= MIB


@pytest.mark.parametrize(
    ("shape", "itemsize", "limits"),
    [
        ((10,), 8, {"least": 2 * MIB}),
        ((10,), 8, {"most": 1}),
        ((10,), 8, {"least": 0}),
        ((10,), -1, {}),
        ((-1,), 8, {}),
        ((1.5,), 8, {}),
    ],
)
def test_arguments_that_make_no_chunks(shape, itemsize, limits):
    with pytest.raises(ValueError):
        auto_chunks(shape, itemsize, **limits)


def test_automatic_chunks_keep_their_promises():
    """Whatever the shape: inside the array, within the limits, near to a cube."""
    random.seed(2)
    for _ in range(3000):
        ndim = random.randint(1, 7)
        shape = tuple(int(2 ** random.uniform(0, 40 / ndim)) for _ in range(ndim))
        itemsize = random.choice([1, 2, 3, 4, 8, 16, 100, 4096])
        chunk = auto_chunks(shape, itemsize)
        assert all(1 <= part <= size for part, size in zip(chunk, shape, strict=True))
        if math.prod(shape) * itemsize <= MIB:
            assert chunk == shape
        else:
            assert 256 * KIB <= math.prod(chunk) * itemsize <= 4 * MIB, (shape, itemsize, chunk)
        cut = [part for part, size in zip(chunk, shape, strict=True) if part < size]
        # A cut axis is about as long as any other; small lengths are coarse.
        assert max(chunk) <= 3 * min(cut, default=max(chunk)) + 3, (shape, itemsize, chunk)


@pytest.mark.parametrize("shape", [(0, 4), (7, 4), (8, 5), (9, 0)])
@pytest.mark.parametrize("padded", [False, True])
def test_a_resized_grid_is_one_of_that_shape(shape: tuple[int, int], padded: bool) -> None:
    assert ChunkGrid((5, 5), (4, 2), padded).resized(shape) == ChunkGrid(shape, (4, 2), padded)


@pytest.mark.parametrize("shape", [(1,), (1, -1), (1, 2**63), (1, True), (1, 1.5)])
def test_a_grid_is_not_resized_to_what_is_no_shape(shape: Any) -> None:
    with pytest.raises(ValueError, match="shape"):
        ChunkGrid((5, 5), (4, 2), padded=True).resized(shape)


def test_axes_that_do_not_exist_are_errors_of_ours() -> None:
    for axis, kind in ((2, AxisError), (-3, AxisError), ("x", ArgumentTypeError)):
        with pytest.raises(kind) as caught:
            axis_numbers(axis, 2)
        assert isinstance(caught.value, IngotError)
    assert issubclass(AxisError, ValueError)
    with pytest.raises(ArgumentError, match="repeated"):
        axis_numbers((0, 0), 2)

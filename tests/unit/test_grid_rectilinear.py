"""Axes of chunks of several lengths fall apart as plain counting says."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.grid import (
    MOST_RECTILINEAR_CHUNKS,
    ChunkGrid,
    RectilinearAxis,
    begins_chunk,
    count_parts,
    cut_range,
    group_points,
)

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=8)


def owners(lengths: list[int]) -> list[tuple[int, int]]:
    """Return chunk and offset of every item, counted one by one."""
    return [(number, offset) for number, length in enumerate(lengths) for offset in range(length)]


@given(LENGTHS, st.data())
def test_a_range_is_cut_as_its_items_are(lengths: list[int], data: st.DataObject) -> None:
    items = owners(lengths)
    start = data.draw(st.integers(0, len(items) - 1))
    step = data.draw(st.integers(-5, 5).filter(bool))
    room = (len(items) - 1 - start) // step if step > 0 else start // -step
    count = data.draw(st.integers(0, room + 1))
    expected = [items[start + index * step] for index in range(count)]
    axis = RectilinearAxis(lengths)
    found = []
    for number, offset, several, position in cut_range(start, count, step, axis):
        assert position == len(found)
        found += [(number, offset + index * step) for index in range(several)]
    assert found == expected
    parts = cut_range(start, count, step, axis)
    assert len({part[0] for part in parts}) == len(parts) == count_parts(start, count, step, axis)


@given(LENGTHS, st.data())
def test_points_are_brought_together_by_their_chunks(
    lengths: list[int], data: st.DataObject
) -> None:
    items = owners(lengths)
    points = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=20))
    groups = group_points([np.array(points)], [RectilinearAxis(lengths)])
    for group, (number,) in enumerate(groups.chunks.tolist()):
        span = slice(int(groups.bounds[group]), int(groups.bounds[group + 1]))
        found = zip(groups.order[span].tolist(), groups.offsets[0][span].tolist(), strict=True)
        for point, offset in found:
            assert items[points[point]] == (number, offset)
    assert sorted(groups.order.tolist()) == list(range(len(points)))


@given(LENGTHS, st.data())
def test_a_grid_knows_the_shapes_of_its_chunks(lengths: list[int], data: st.DataObject) -> None:
    size = data.draw(st.integers(1, sum(lengths)))
    grid = ChunkGrid((size, 5), (1, 2), padded=True, rectilinear=(RectilinearAxis(lengths), None))
    items = owners(lengths)[:size]
    count = items[-1][0] + 1
    assert grid.counts == (count, 3)
    assert grid.chunk == (max(lengths), 2)
    assert grid.reach == (sum(lengths[:count]), 6)
    for number in range(count):
        valid = sum(1 for owner, _ in items if owner == number)
        assert grid.stored_shape((number, 2)) == (lengths[number], 2)
        assert grid.valid_shape((number, 2)) == (valid, 1)


@given(LENGTHS)
def test_chunks_begin_where_offsets_are_none(lengths: list[int]) -> None:
    axis = RectilinearAxis(lengths)
    found = [begins_chunk(position, axis) for position in range(sum(lengths))]
    assert found == [offset == 0 for _, offset in owners(lengths)]
    assert begins_chunk(sum(lengths), axis)


def test_chunks_go_on_as_the_last_one() -> None:
    axis = RectilinearAxis([3, 2])
    assert axis.covering(5) is axis
    assert axis.covering(6).lengths.tolist() == [3, 2, 2]
    assert axis.covering(9).lengths.tolist() == [3, 2, 2, 2]


@pytest.mark.parametrize("lengths", [[], [0], [3, -1], [2**62, 2**62]])
def test_impossible_lengths_are_refused(lengths: list[int]) -> None:
    with pytest.raises(ValueError, match="positive"):
        RectilinearAxis(lengths)


def test_an_axis_longer_than_its_chunks_is_refused() -> None:
    with pytest.raises(ValueError, match="chunks end at 5, the axis has 6"):
        ChunkGrid((6,), (1,), padded=True, rectilinear=(RectilinearAxis([2, 3]),))
    with pytest.raises(ValueError, match="the most"):
        RectilinearAxis(np.ones(MOST_RECTILINEAR_CHUNKS + 1, np.int64))
    with pytest.raises(ValueError, match="more than"):
        RectilinearAxis([1]).covering(2**40)


@pytest.mark.parametrize("step", [1, 2, 3, 5, 11, -1, -4])
def test_chunks_are_touched_as_by_single_positions(step: int) -> None:
    axis = RectilinearAxis([3, 1, 5, 1, 10])
    for first in range(20):
        for last in range(first, 20):
            positions = range(first, last + 1, step) if step > 0 else range(last, first - 1, step)
            wanted = sorted({int(number) for number in axis.numbers(np.array(positions))})
            assert axis.touched(positions).tolist() == wanted
            start, count = positions[0], len(positions)
            assert count_parts(start, count, step, axis) == len(axis.cut(start, count, step))
    assert count_parts(3, 0, step, axis) == 0

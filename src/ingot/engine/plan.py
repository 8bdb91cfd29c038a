"""Plans: which part of which chunk a selection needs, and where it goes; a row per chunk.

A plan is made from a selection and a chunk grid. It moves no data, and does not know what a chunk
holds, where it lies and how it is coded. Plans serve keys with index arrays, arrays that the native
kernel cannot read, and `explain`. The native kernel cuts boxes itself; a parity test keeps both
ways equal.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from operator import floordiv, itemgetter
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.grid import ChunkGrid, RectilinearAxis, cut_range, group_points
from ingot.selection import BasicSelection, CoordinateSelection, OrthogonalSelection, Selection

__all__ = ["BoxRow", "PointRow", "Row", "coordinates", "count_rows", "rows"]

Index: TypeAlias = slice | NDArray[np.int64]
"""Positions along one axis."""


class AxisPart(NamedTuple):
    """The part of one chunk that a selection needs, along one axis."""

    chunk: int
    source: Index
    target: Index
    items: int


class BoxRow(NamedTuple):
    """The part of a chunk that is an outer product, and its position in engine order.

    A named tuple, not a dataclass: a plan may have millions of rows.
    """

    coords: tuple[int, ...]
    source: tuple[Index, ...]
    target: tuple[Index, ...]
    items: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.items)

    def take(self, chunk: NDArray[Any]) -> NDArray[Any]:
        """Return the part of a chunk."""
        part: NDArray[Any] = chunk[_outer(self.source, chunk.shape)]
        return part

    def scatter(self, target: NDArray[Any], part: NDArray[Any] | object) -> None:
        """Write the part to its position in engine order."""
        target[_outer(self.target, target.shape)] = part

    def gather(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values that go into the chunk; the reverse of `scatter`."""
        part: NDArray[Any] = values[_outer(self.target, values.shape)]
        return part

    def put(self, chunk: NDArray[Any], part: NDArray[Any]) -> None:
        """Write the values into the chunk; of two for the same item the later one wins."""
        chunk[_outer(self.source, chunk.shape)] = part

    def covers(self, valid: Sequence[int]) -> bool:
        """Return whether the row replaces all items of a chunk; `valid` is how many are inside."""
        return all(
            isinstance(index, slice) and index.step in (1, -1) and items == length
            for index, items, length in zip(self.source, self.items, valid, strict=True)
        )


@dataclass(frozen=True, slots=True)
class PointRow:
    """Points of a chunk, each with all positions along the axes that are ranges.

    Engine order has the axis of points first, then the ranges.
    """

    coords: tuple[int, ...]
    axes: tuple[int, ...]
    """The axes that have an index array."""
    offsets: tuple[NDArray[np.int64], ...]
    """The positions of the points in the chunk, for each of `axes`."""
    points: Index
    """The positions of the points in engine order."""
    ranges: tuple[AxisPart, ...]
    """The parts of the other axes."""

    @property
    def size(self) -> int:
        """The number of items."""
        return len(self.offsets[0]) * math.prod(part.items for part in self.ranges)

    def take(self, chunk: NDArray[Any]) -> NDArray[Any]:
        """Return the part of a chunk."""
        return self._points_first(chunk)[self._source()]

    def scatter(self, target: NDArray[Any], part: NDArray[Any] | object) -> None:
        """Write the part to its position in engine order."""
        target[self._target()] = part

    def gather(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return the values that go into the chunk; the reverse of `scatter`."""
        return values[self._target()]

    def put(self, chunk: NDArray[Any], part: NDArray[Any]) -> None:
        """Write the values into the chunk; of two for the same item the later one wins."""
        self._points_first(chunk)[self._source()] = part

    def covers(self, valid: Sequence[int]) -> bool:
        """Return False: points are not checked for being all items of a chunk."""
        return False

    def _points_first(self, chunk: NDArray[Any]) -> NDArray[Any]:
        return np.moveaxis(chunk, self.axes, range(len(self.axes)))

    def _source(self) -> tuple[Index, ...]:
        return (*self.offsets, *(part.source for part in self.ranges))

    def _target(self) -> tuple[Index, ...]:
        return (self.points, *(part.target for part in self.ranges))


Row: TypeAlias = BoxRow | PointRow


def rows(
    selection: Selection, grid: ChunkGrid, unit: tuple[int, ...] | None = None
) -> Iterator[Row]:
    """Yield the part of a selection in each chunk; chunks ascend along axes of positive steps.

    With `unit`, the rows of each block of so many chunks along each axis follow each other.

    >>> from ingot.selection import parse
    >>> grid = ChunkGrid((10,), (4,), padded=True)
    >>> [(row.coords, row.source) for row in rows(parse(slice(2, 6), (10,)), grid)]
    [((0,), (slice(2, 4, 1),)), ((1,), (slice(0, 2, 1),))]
    >>> grid = ChunkGrid((2, 4), (1, 1), padded=True)
    >>> [row.coords for row in rows(parse(..., (2, 4)), grid, (2, 2))][:5]
    [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]
    """
    if 0 in selection.engine_shape:
        return iter(())
    if isinstance(selection, BasicSelection):
        return _box_rows(
            [
                _range_parts(range(start, start + count * step, step), chunk)
                for start, count, step, chunk in zip(
                    selection.starts, selection.counts, selection.steps, grid.axes, strict=True
                )
            ],
            unit,
        )
    if isinstance(selection, OrthogonalSelection):
        axes = zip(selection.axes, grid.axes, strict=True)
        return _box_rows([_parts(axis, chunk) for axis, chunk in axes], unit)
    points = _point_rows(selection, grid)
    if unit is None:
        return points
    return iter(sorted(points, key=lambda row: tuple(map(floordiv, row.coords, unit))))


def coordinates(rows: Sequence[Row], ndim: int) -> NDArray[np.int64]:
    """Return the coordinates of the rows' chunks as a table.

    >>> coordinates([BoxRow((1, 2), (), (), ()), BoxRow((3, 4), (), (), ())], 2).tolist()
    [[1, 2], [3, 4]]
    """
    return np.array([row.coords for row in rows], np.int64).reshape(len(rows), ndim)


def count_rows(selection: Selection, grid: ChunkGrid) -> int:
    """Return the number of rows without holding all of them.

    >>> from ingot.selection import parse
    >>> count_rows(parse(slice(2, 6), (10,)), ChunkGrid((10,), (4,), padded=True))
    2
    """
    return sum(1 for _ in rows(selection, grid))


def _box_rows(axes: list[list[AxisPart]], unit: tuple[int, ...] | None) -> Iterator[BoxRow]:
    if not axes:
        yield BoxRow((), (), (), ())
        return
    for block in _blocks(axes, unit):
        for parts in product(*block):
            # The fields of a part, collected over the axes, are the fields of a row.
            yield BoxRow(*zip(*parts, strict=True))


def _blocks(
    axes: list[list[AxisPart]], unit: tuple[int, ...] | None
) -> Iterator[tuple[list[AxisPart], ...]]:
    """Yield the parts of the axes, one block of chunks after the other."""
    if unit is None:
        yield tuple(axes)
        return
    grouped = []
    for parts, each in zip(axes, unit, strict=True):
        numbers = [part.chunk // each for part in parts]
        groups = groupby(zip(numbers, parts, strict=True), itemgetter(0))
        grouped.append([[part for _, part in group] for _, group in groups])
    yield from product(*grouped)


def _point_rows(selection: CoordinateSelection, grid: ChunkGrid) -> Iterator[PointRow]:
    indexed = [axis for axis, index in enumerate(selection.axes) if not isinstance(index, range)]
    arrays = [index for index in selection.axes if not isinstance(index, range)]
    others = [axis for axis in range(len(grid.chunk)) if axis not in indexed]
    groups = group_points(arrays, [grid.axes[axis] for axis in indexed])
    ranges = [_parts(selection.axes[axis], grid.axes[axis]) for axis in others]
    for group, chunks in enumerate(groups.chunks.tolist()):
        begin, end = int(groups.bounds[group]), int(groups.bounds[group + 1])
        points = slice(begin, end) if groups.ordered else groups.order[begin:end]
        offsets = tuple(offsets[begin:end] for offsets in groups.offsets)
        for parts in product(*ranges):
            coords = [0] * len(grid.chunk)
            for axis, chunk in zip(indexed, chunks, strict=True):
                coords[axis] = chunk
            for axis, part in zip(others, parts, strict=True):
                coords[axis] = part.chunk
            yield PointRow(tuple(coords), tuple(indexed), offsets, points, parts)


def _parts(axis: range | NDArray[np.int64], chunk: int | RectilinearAxis) -> list[AxisPart]:
    return _range_parts(axis, chunk) if isinstance(axis, range) else _index_parts(axis, chunk)


def _range_parts(axis: range, chunk: int | RectilinearAxis) -> list[AxisPart]:
    step = axis.step
    return [
        AxisPart(number, _run(offset, items, step), slice(position, position + items), items)
        for number, offset, items, position in cut_range(axis.start, len(axis), step, chunk)
    ]


def _index_parts(axis: NDArray[np.int64], chunk: int | RectilinearAxis) -> list[AxisPart]:
    groups = group_points([axis], [chunk])
    parts = []
    for group, (number,) in enumerate(groups.chunks.tolist()):
        begin, end = int(groups.bounds[group]), int(groups.bounds[group + 1])
        target = slice(begin, end) if groups.ordered else groups.order[begin:end]
        parts.append(AxisPart(number, groups.offsets[0][begin:end], target, end - begin))
    return parts


def _run(offset: int, items: int, step: int) -> slice:
    stop = offset + items * step
    # A negative stop, from a step below the first item, would count from the end.
    return slice(offset, stop if stop >= 0 else None, step)


def _outer(index: tuple[Index, ...], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a key for the outer product; NumPy would pair several index arrays instead."""
    if sum(not isinstance(each, slice) for each in index) < 2:
        return index
    axes = [
        np.arange(*each.indices(length)) if isinstance(each, slice) else each
        for each, length in zip(index, shape, strict=True)
    ]
    return np.ix_(*axes)

"""Plans: which part of which chunk a selection needs, and where it goes; a row per chunk.

A plan is made from a selection and a chunk grid. It moves no data, and does not know what a chunk
holds, where it lies and how it is coded. Plans serve keys with index arrays, arrays that the native
kernel cannot read, and `explain`. The native kernel cuts boxes itself; a parity test keeps both
ways equal.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from operator import floordiv, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.grid import ChunkGrid, RectilinearAxis, count_parts, each_part, group_points
from ingot.selection import BasicSelection, CoordinateSelection, OrthogonalSelection, Selection

__all__ = [
    "BoxRow",
    "PointRow",
    "Row",
    "axis_chunks",
    "coordinates",
    "count_axis",
    "count_rows",
    "lazy_product",
    "rows",
    "rows_of",
    "touched_chunks",
]

Item = TypeVar("Item")

# Up to this many parts of an axis are held in memory.
_MOST_HELD: Final = 4096

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
    if 0 in selection.engine_shape:
        return 0
    if isinstance(selection, BasicSelection):
        if max(selection.counts, default=1) == 1:
            return 1
        box = zip(selection.starts, selection.counts, selection.steps, grid.axes, strict=True)
        return math.prod(count_parts(*each) for each in box)
    axes = zip(selection.axes, grid.axes, strict=True)
    if isinstance(selection, OrthogonalSelection):
        return math.prod(count_axis(axis, chunk) for axis, chunk in axes)
    ranges = math.prod(count_axis(axis, chunk) for axis, chunk in axes if isinstance(axis, range))
    return len(_Points(selection, grid).groups.chunks) * ranges


def count_axis(axis: range | NDArray[np.int64], chunk: int | RectilinearAxis) -> int:
    """Return the number of chunks that positions along an axis touch.

    >>> count_axis(range(2, 10**18), 4), count_axis(np.array([9, 1, 8]), 4)
    (250000000000000000, 2)
    """
    if isinstance(axis, range):
        return count_parts(axis.start, len(axis), axis.step, chunk)
    return len(axis_chunks(axis, chunk))


def only_chunk(selection: BasicSelection, grid: ChunkGrid) -> int | None:
    """Return the number of the chunk in which a box lies; None where there are several, or none.

    >>> from ingot.selection import parse
    >>> grid = ChunkGrid((9, 4), (3, 2), padded=True)
    >>> only_chunk(parse((4, slice(2, 4)), (9, 4)), grid), only_chunk(parse(4, (9, 4)), grid)
    (3, None)
    """
    number = 0
    box = zip(selection.starts, selection.counts, selection.steps, strict=True)
    for (start, count, step), chunk, total in zip(box, grid.axes, grid.counts, strict=True):
        if isinstance(chunk, RectilinearAxis) or not count:
            return None
        at = start // chunk
        if (start + (count - 1) * step) // chunk != at:
            return None
        number = number * total + at
    return number


def axis_chunks(axis: range | NDArray[np.int64], chunk: int | RectilinearAxis) -> list[int]:
    """Return the ascending numbers of the chunks that positions along an axis touch.

    >>> axis_chunks(np.array([9, 1, 8]), 4)
    [0, 2]
    """
    if isinstance(axis, range) and isinstance(chunk, RectilinearAxis):
        found: list[int] = chunk.touched(axis).tolist() if axis else []
        return found
    if isinstance(axis, range):
        return sorted(part.chunk for part in _range_parts(axis, chunk))
    return [number for (number,) in group_points([axis], [chunk]).chunks.tolist()]


def touched_chunks(
    axis: range | NDArray[np.int64], chunk: int | RectilinearAxis, numbers: range
) -> Sequence[int]:
    """Return those of the chunks `numbers` that positions along an axis touch.

    >>> touched_chunks(range(3, 100), 4, range(5)), touched_chunks(range(3, 100, 9), 4, range(5))
    (range(0, 5), [0, 3])
    """
    if not isinstance(axis, range):
        return [number for number in axis_chunks(axis, chunk) if number in numbers]
    if isinstance(chunk, int) and abs(axis.step) <= chunk:
        ends = sorted((axis[0] // chunk, axis[-1] // chunk))
        return range(max(numbers.start, ends[0]), min(numbers.stop, ends[1] + 1))
    return [number for number in numbers if _part_of(axis, chunk, number) is not None]


def lazy_product(axes: Sequence[Iterable[Item]]) -> Iterator[tuple[Item, ...]]:
    """Yield what `itertools.product` does, without holding the items of an axis in memory.

    >>> next(lazy_product([range(2**62), range(2**62)]))
    (0, 0)
    """
    if not axes:
        yield ()
        return
    for first in axes[0]:
        for others in lazy_product(axes[1:]):
            yield (first, *others)


def rows_of(
    selection: Selection, grid: ChunkGrid, chunks: Iterable[tuple[int, ...]]
) -> Iterator[Row]:
    """Yield the rows of some chunks, in their order; a chunk without selected items has none.

    >>> from ingot.selection import parse
    >>> grid = ChunkGrid((2**60,), (4,), padded=True)
    >>> [row.source for row in rows_of(parse(slice(2, None), (2**60,)), grid, [(0,), (7,)])]
    [(slice(2, 4, 1),), (slice(0, 4, 1),)]
    """
    if isinstance(selection, BasicSelection):
        box = zip(selection.starts, selection.counts, selection.steps, strict=True)
        axes: tuple[Any, ...] = tuple(range(a, a + count * step, step) for a, count, step in box)
    else:
        axes = selection.axes
    if isinstance(selection, CoordinateSelection):
        yield from _point_rows_of(selection, grid, chunks)
        return
    finders = [_PartFinder(axis, chunk) for axis, chunk in zip(axes, grid.axes, strict=True)]
    for coords in chunks:
        parts = [find(number) for find, number in zip(finders, coords, strict=True)]
        if None not in parts:
            yield BoxRow(*zip(*parts, strict=True))


class _PartFinder:
    """Finds the part of an axis that lies in a chunk, and remembers the parts that it found."""

    __slots__ = ("_axis", "_chunk", "_found")

    def __init__(self, axis: range | NDArray[np.int64], chunk: int | RectilinearAxis) -> None:
        self._axis = axis
        self._chunk = chunk
        self._found: dict[int, AxisPart | None] = {}
        if not isinstance(axis, range):
            self._found = {part.chunk: part for part in _index_parts(axis, chunk)}

    def __call__(self, number: int) -> "AxisPart | None":
        if isinstance(self._axis, range) and number not in self._found:
            self._found[number] = _part_of(self._axis, self._chunk, number)
        return self._found.get(number)


def _part_of(axis: range, chunk: int | RectilinearAxis, number: int) -> AxisPart | None:
    """Return the part of a range that lies in a chunk."""
    if isinstance(chunk, int):
        begin, end = number * chunk, (number + 1) * chunk
    else:
        begin, end = int(chunk.bounds[number]), int(chunk.bounds[number + 1])
    start, step = axis.start, axis.step
    if step > 0:
        first, last = -((start - begin) // step), -((start - end) // step)
    else:
        first, last = (start - end) // -step + 1, (start - begin) // -step + 1
    first, last = max(first, 0), min(last, len(axis))
    if first >= last:
        return None
    source = _run(start + first * step - begin, last - first, step)
    return AxisPart(number, source, slice(first, last), last - first)


def _box_rows(axes: Sequence["_Parts"], unit: tuple[int, ...] | None) -> Iterator[BoxRow]:
    if not axes:
        yield BoxRow((), (), (), ())
        return
    for block in _blocks(axes, unit):
        for parts in _product(block):
            # The fields of a part, collected over the axes, are the fields of a row.
            yield BoxRow(*zip(*parts, strict=True))


def _blocks(axes: Sequence["_Parts"], unit: tuple[int, ...] | None) -> Iterator[Sequence["_Parts"]]:
    """Yield the parts of the axes, one block of chunks after the other."""
    if unit is None:
        yield axes
        return
    grouped: list[Iterable[_Parts]] = [
        _grouped(parts, each) if isinstance(parts, list) else _Groups(parts, each)
        for parts, each in zip(axes, unit, strict=True)
    ]
    yield from _product(grouped)


def _product(axes: Sequence[Iterable[Item]]) -> Iterator[tuple[Item, ...]]:
    return product(*axes) if all(isinstance(axis, list) for axis in axes) else lazy_product(axes)


def _grouped(parts: list[AxisPart], each: int) -> list["_Parts"]:
    numbers = [part.chunk // each for part in parts]
    groups = groupby(zip(numbers, parts, strict=True), itemgetter(0))
    return [[part for _, part in group] for _, group in groups]


class _LongParts:
    """The parts of a range that touches very many chunks, made one by one at each iteration."""

    __slots__ = ("_axis", "_chunk", "_offset")

    def __init__(self, axis: range, chunk: int, offset: int = 0) -> None:
        self._axis = axis
        self._chunk = chunk
        self._offset = offset

    def __iter__(self) -> Iterator[AxisPart]:
        step, before = self._axis.step, self._offset
        for number, offset, items, position in each_part(
            self._axis.start, len(self._axis), step, self._chunk
        ):
            target = slice(before + position, before + position + items)
            yield AxisPart(number, _run(offset, items, step), target, items)

    def groups(self, each: int) -> Iterator["_LongParts"]:
        """Yield the parts in each block of `each` chunks."""
        axis = self._axis
        for _, _, items, position in each_part(
            axis.start, len(axis), axis.step, self._chunk * each
        ):
            yield _LongParts(
                axis[position : position + items], self._chunk, self._offset + position
            )


class _Groups:
    """The parts of a long range in blocks of chunks, made one by one at each iteration."""

    __slots__ = ("_each", "_parts")

    def __init__(self, parts: _LongParts, each: int) -> None:
        self._parts = parts
        self._each = each

    def __iter__(self) -> Iterator[_LongParts]:
        return self._parts.groups(self._each)


_Parts: TypeAlias = list[AxisPart] | _LongParts


def _point_rows(selection: CoordinateSelection, grid: ChunkGrid) -> Iterator[PointRow]:
    points = _Points(selection, grid)
    ranges = [_parts(selection.axes[axis], grid.axes[axis]) for axis in points.others]
    for group, chunks in enumerate(points.groups.chunks.tolist()):
        for parts in _product(ranges):
            yield points.row(group, chunks, parts)


def _point_rows_of(
    selection: CoordinateSelection, grid: ChunkGrid, chunks: Iterable[tuple[int, ...]]
) -> Iterator[PointRow]:
    points = _Points(selection, grid)
    groups = {tuple(each): group for group, each in enumerate(points.groups.chunks.tolist())}
    finders = [_PartFinder(selection.axes[axis], grid.axes[axis]) for axis in points.others]
    for coords in chunks:
        indexed = tuple(coords[axis] for axis in points.indexed)
        found = [find(coords[axis]) for find, axis in zip(finders, points.others, strict=True)]
        parts = tuple(part for part in found if part is not None)
        if indexed in groups and len(parts) == len(found):
            yield points.row(groups[indexed], list(indexed), parts)


class _Points:
    """The points of a selection, grouped by the chunks of the axes that have an index array."""

    __slots__ = ("groups", "indexed", "others")

    def __init__(self, selection: CoordinateSelection, grid: ChunkGrid) -> None:
        arrays = {n: each for n, each in enumerate(selection.axes) if not isinstance(each, range)}
        self.indexed = tuple(arrays)
        self.others = tuple(axis for axis in range(len(grid.chunk)) if axis not in arrays)
        self.groups = group_points(
            list(arrays.values()), [grid.axes[axis] for axis in self.indexed]
        )

    def row(self, group: int, chunks: list[int], parts: tuple[AxisPart, ...]) -> PointRow:
        """Return the row of a group of points, with parts of the other axes."""
        groups = self.groups
        begin, end = int(groups.bounds[group]), int(groups.bounds[group + 1])
        points = slice(begin, end) if groups.ordered else groups.order[begin:end]
        offsets = tuple(offsets[begin:end] for offsets in groups.offsets)
        coords = [0] * (len(self.indexed) + len(self.others))
        for axis, chunk in zip(self.indexed, chunks, strict=True):
            coords[axis] = chunk
        for axis, part in zip(self.others, parts, strict=True):
            coords[axis] = part.chunk
        return PointRow(tuple(coords), self.indexed, offsets, points, parts)


def _parts(axis: range | NDArray[np.int64], chunk: int | RectilinearAxis) -> _Parts:
    return _range_parts(axis, chunk) if isinstance(axis, range) else _index_parts(axis, chunk)


def _range_parts(axis: range, chunk: int | RectilinearAxis) -> _Parts:
    step = axis.step
    if isinstance(chunk, int) and count_parts(axis.start, len(axis), step, chunk) > _MOST_HELD:
        return _LongParts(axis, chunk)
    return [
        AxisPart(number, _run(offset, items, step), slice(position, position + items), items)
        for number, offset, items, position in each_part(axis.start, len(axis), step, chunk)
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

"""Chunk grids: how the shape of an array is cut into chunks.

A `ChunkGrid` says which chunks an array has and how large each one is. Axes are cut regularly, or
into chunks of given lengths (`RectilinearAxis`). The functions find the chunks that a range or a
set of points touches, choose a chunk shape for a new array, and join chunks to blocks for reading
an array piece by piece.

A range is three plain integers, ``start, count, step``: the positions ``start + k * step`` for
``k`` below ``count``. Ranges may run downwards (``step`` below zero). A long range can be cut in
windows, each a range of its own, where a table of all its parts would take too much memory.
"""

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import NDArray

from ingot.errors import ArgumentError, ArgumentTypeError, AxisError, SelectionError

__all__ = [
    "BLOCK_BYTES",
    "MOST_NUMPY_AXES",
    "MOST_RECTILINEAR_CHUNKS",
    "ChunkGrid",
    "PointGroups",
    "RectilinearAxis",
    "auto_chunks",
    "axis_numbers",
    "begins_chunk",
    "block_rows",
    "block_shape",
    "blocks",
    "count_parts",
    "cut_range",
    "each_part",
    "group_points",
]

IntArray = NDArray[np.int64]

MOST_NUMPY_AXES: Final = 64
"""The most axes that a NumPy array can have."""

MOST_RECTILINEAR_CHUNKS: Final = 2**22
"""The most chunks along a rectilinear axis: their lengths are held in memory."""

BLOCK_BYTES: Final = 2**24
"""The size of a block, unless a single chunk is larger: enough to keep several threads busy."""

_LARGEST: Final = 2**63 - 1
_MOST_BLOCKS: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class RectilinearAxis:
    """An axis cut into chunks of given lengths, which may reach beyond the end of the axis.

    >>> axis = RectilinearAxis([2, 5, 2])
    >>> axis.count(7), axis.count(8), axis.reach(3)
    (2, 3, 9)
    """

    lengths: IntArray
    bounds: IntArray = field(init=False, repr=False)
    """The start of each chunk, and the end of the last one."""

    def __init__(self, lengths: Sequence[int] | IntArray) -> None:
        values = np.asarray(lengths, np.int64).reshape(-1)
        if len(values) > MOST_RECTILINEAR_CHUNKS:
            raise ArgumentError(
                f"{len(values)} chunks along an axis, the most is {MOST_RECTILINEAR_CHUNKS}"
            )
        if len(values) == 0 or values.min() < 1 or values.sum(dtype=np.float64) >= 2**63:
            raise ArgumentError("the lengths of chunks are positive and end within 64 bits")
        object.__setattr__(self, "lengths", values)
        object.__setattr__(self, "bounds", np.concatenate([[0], np.cumsum(values)]))

    @property
    def longest(self) -> int:
        """The length of the longest chunk."""
        return int(self.lengths.max())

    def count(self, length: int) -> int:
        """Return how many chunks the first `length` items need."""
        if length > self.bounds[-1]:
            raise ArgumentError(f"chunks end at {self.bounds[-1]}, the axis has {length} items")
        return int(np.searchsorted(self.bounds, length))

    def reach(self, count: int) -> int:
        """Return where the first `count` chunks end."""
        return int(self.bounds[count])

    def begins(self, position: int) -> bool:
        """Return whether a chunk begins, or the last one ends, at a position."""
        return int(self.bounds[np.searchsorted(self.bounds, position)]) == position

    def covering(self, length: int) -> "RectilinearAxis":
        """Return the axis with copies of the last chunk added until it covers `length` items.

        >>> RectilinearAxis([2, 5]).covering(13).lengths.tolist()
        [2, 5, 5, 5]
        """
        missing = length - self.reach(-1)
        if missing <= 0:
            return self
        last = int(self.lengths[-1])
        more = -(-missing // last)
        if len(self.lengths) + more > MOST_RECTILINEAR_CHUNKS:
            raise ArgumentError(f"more than {MOST_RECTILINEAR_CHUNKS} chunks along an axis")
        return RectilinearAxis(np.concatenate([self.lengths, np.full(more, last, np.int64)]))

    def numbers(self, points: IntArray) -> IntArray:
        """Return the number of the chunk in which each point lies.

        >>> RectilinearAxis([2, 5]).numbers(np.array([0, 2, 6])).tolist()
        [0, 1, 1]
        """
        return np.searchsorted(self.bounds, points, side="right").astype(np.int64) - 1

    def touched(self, positions: range) -> IntArray:
        """Return the ascending numbers of the chunks that positions lie in; there is one at least.

        >>> RectilinearAxis([2, 1, 3, 1, 9]).touched(range(8, 0, -3)).tolist()
        [1, 2, 4]
        """
        ascending = positions if positions.step > 0 else positions[::-1]
        low, high, step = ascending[0], ascending[-1], ascending.step
        first, last = self.numbers(np.array([low, high], np.int64)).tolist()
        numbers = np.arange(first, last + 1)
        # The first position from the start of each chunk on.
        offsets = np.maximum(self.bounds[numbers], low) - low
        found = low - (-offsets // step) * step
        chosen: IntArray = numbers[found < self.bounds[numbers + 1]]
        return chosen

    def cut(self, start: int, count: int, step: int) -> list[tuple[int, int, int, int]]:
        """Cut a range by chunks, as `cut_range` does.

        >>> RectilinearAxis([2, 5]).cut(1, 3, 2)
        [(0, 1, 1, 0), (1, 1, 2, 1)]
        """
        parts = []
        position = 0
        while position < count:
            index = start + position * step
            number = int(np.searchsorted(self.bounds, index, side="right")) - 1
            offset = index - int(self.bounds[number])
            room = int(self.lengths[number]) - 1 - offset if step > 0 else offset
            items = min(room // abs(step) + 1, count - position)
            parts.append((number, offset, items, position))
            position += items
        return parts


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """A shape, and the shape of the chunks it is cut into.

    In a ``padded`` grid every chunk is stored at full size, and what lies beyond the edge of the
    array is padding. In others the last chunk of an axis is stored only as long as it is.

    An axis of length 0 has no chunks. An array without axes has one, whose coordinates are ``()``.
    A chunk may be larger than the array, but never empty.

    ``rectilinear`` has the axes that are cut into chunks of given lengths, and None for the others;
    along those axes ``chunk`` is the length of the longest chunk.

    >>> grid = ChunkGrid((10, 4), (4, 4), padded=True)
    >>> grid.counts, grid.chunk_count
    ((3, 1), 3)
    >>> grid.stored_shape((2, 0)), grid.valid_shape((2, 0))
    ((4, 4), (2, 4))
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    padded: bool
    rectilinear: tuple[RectilinearAxis | None, ...] = ()
    counts: tuple[int, ...] = field(init=False)
    """The number of chunks along each axis."""
    axes: tuple[int | RectilinearAxis, ...] = field(init=False, repr=False)
    """How each axis is cut: the length of its chunks, or a `RectilinearAxis`."""

    def __post_init__(self) -> None:
        shape = _lengths("shape", self.shape, least=0)
        chunk = _lengths("chunk shape", self.chunk, least=1)
        if len(shape) != len(chunk):
            raise ArgumentError(f"shape has {len(shape)} axes, the chunk shape {len(chunk)}")
        if len(shape) > MOST_NUMPY_AXES:
            raise ArgumentError(f"shape has {len(shape)} axes, the most is {MOST_NUMPY_AXES}")
        axes: tuple[int | RectilinearAxis, ...] = chunk
        if any(self.rectilinear):
            cuts = zip(self.rectilinear, chunk, strict=True)
            axes = tuple(length if axis is None else axis for axis, length in cuts)
            chunk = tuple(axis if isinstance(axis, int) else axis.longest for axis in axes)
        counts = tuple(map(_count, shape, axes))
        for name, value in (("shape", shape), ("chunk", chunk), ("counts", counts)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "axes", axes)

    def resized(self, shape: tuple[int, ...]) -> "ChunkGrid":
        """Return the grid of another shape with the same chunks; not for rectilinear axes.

        >>> ChunkGrid((10, 4), (4, 4), padded=True).resized((13, 4)).counts
        (4, 1)
        """
        assert not self.rectilinear, "rectilinear axes have chunks of their own for each length"
        lengths = _lengths("shape", shape, least=0)
        if len(lengths) != len(self.chunk):
            raise ArgumentError(f"shape has {len(lengths)} axes, the chunk shape {len(self.chunk)}")
        # The chunks were checked before, and need not be again for every append.
        grid = object.__new__(ChunkGrid)
        put = object.__setattr__
        put(grid, "shape", lengths)
        put(grid, "chunk", self.chunk)
        put(grid, "padded", self.padded)
        put(grid, "rectilinear", ())
        put(grid, "counts", tuple(map(_count, lengths, self.axes)))
        put(grid, "axes", self.axes)
        return grid

    @property
    def chunk_count(self) -> int:
        """The number of chunks in the whole grid.

        >>> ChunkGrid((0, 5), (2, 2), padded=False).chunk_count
        0
        """
        return math.prod(self.counts)

    def valid_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the part of a chunk that lies inside the array.

        >>> ChunkGrid((10,), (4,), padded=True).valid_shape((2,))
        (2,)
        """
        self._check(coords)
        if any(self.rectilinear):
            places = map(_place, coords, self.axes)
            lengths = zip(places, self.shape, strict=True)
            return tuple(min(length, size - start) for (start, length), size in lengths)
        return tuple(
            min(step, size - position * step)
            for position, size, step in zip(coords, self.shape, self.chunk, strict=True)
        )

    def box(self, coords: Sequence[int]) -> tuple[slice, ...]:
        """Return the key of the items of a chunk that lie inside the array.

        >>> ChunkGrid((10, 10), (4, 4), padded=True).box((1, 2))
        (slice(4, 8, None), slice(8, 10, None))
        """
        starts = [_place(each, axis)[0] for each, axis in zip(coords, self.axes, strict=True)]
        lengths = self.valid_shape(coords)
        return tuple(slice(a, a + length) for a, length in zip(starts, lengths, strict=True))

    def stored_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """Return the shape in which a chunk is stored.

        >>> ChunkGrid((10,), (4,), padded=True).stored_shape((2,))
        (4,)
        >>> ChunkGrid((10,), (4,), padded=False).stored_shape((2,))
        (2,)
        """
        if not self.padded:
            return self.valid_shape(coords)
        self._check(coords)
        if any(self.rectilinear):
            return tuple(length for _, length in map(_place, coords, self.axes))
        return self.chunk

    @property
    def reach(self) -> tuple[int, ...]:
        """The end of the last chunk of each axis, padding included.

        >>> ChunkGrid((10,), (4,), padded=True).reach
        (12,)
        """
        return tuple(
            count * axis if isinstance(axis, int) else axis.reach(count)
            for count, axis in zip(self.counts, self.axes, strict=True)
        )

    def linear(self, coords: Sequence[int]) -> int:
        """Return the number of a chunk, counted with the last axis fastest.

        >>> ChunkGrid((10, 10), (4, 4), padded=True).linear((1, 2))
        5
        """
        self._check(coords)
        number = 0
        for position, count in zip(coords, self.counts, strict=True):
            number = number * count + position
        return number

    def coords(self, linear: int) -> tuple[int, ...]:
        """Return the coordinates of the chunk with a number; the reverse of `linear`.

        >>> ChunkGrid((10, 10), (4, 4), padded=True).coords(5)
        (1, 2)
        """
        if not 0 <= linear < self.chunk_count:
            raise SelectionError(f"chunk {linear} of a grid that has {self.chunk_count}")
        found = []
        for count in reversed(self.counts):
            linear, position = divmod(linear, count)
            found.append(position)
        return tuple(reversed(found))

    def _check(self, coords: Sequence[int]) -> None:
        counts = self.counts
        if len(coords) != len(counts) or not all(
            0 <= position < count for position, count in zip(coords, counts, strict=True)
        ):
            raise SelectionError(f"chunk {tuple(coords)} of a grid of {counts} chunks")


def auto_chunks(
    shape: Sequence[int],
    itemsize: int,
    *,
    target: int = 1 << 20,
    least: int = 1 << 18,
    most: int = 1 << 22,
    growing: bool = False,
) -> tuple[int, ...]:
    """Return a chunk shape for general use: near to a cube of 1 MiB, uncompressed.

    The rules, in this order:

    1. An array of at most ``target`` bytes is one chunk.
    2. Axes are taken from the shortest to the longest. Each aims at the edge of the cube that the
       budget still allows for it and those after it, so an axis shorter than the edge is kept
       whole and leaves its share to the others.
    3. An axis is cut into equal parts, so that the last chunk is about as full as the others. One
       that makes 32 parts or more takes the edge itself: the waste is small, and a long series of
       8-byte items gets chunks of exactly 1 MiB.
    4. A chunk is never below ``least`` bytes, unless the whole array is, and never over ``most``,
       unless a single item is. Where both cannot hold, the second does.

    An axis of length 0 counts as 1, or as endless with ``growing``, which is right for arrays that
    start empty and are appended to.

    >>> auto_chunks((400, 500, 500), 4)
    (67, 63, 63)
    >>> auto_chunks((10_000_000,), 8)
    (131072,)
    >>> auto_chunks((100, 100), 8), auto_chunks((), 8)
    ((100, 100), ())
    >>> auto_chunks((0, 100), 8), auto_chunks((0, 100), 8, growing=True)
    ((1, 100), (1310, 100))
    """
    if not 0 < least <= target <= most:
        raise ArgumentError(f"chunk sizes must ascend: least {least}, target {target}, most {most}")
    if itemsize < 0:
        raise ArgumentError(f"itemsize is {itemsize}, the least is 0")
    empty = _LARGEST if growing else 1
    sizes = [size or empty for size in _lengths("shape", shape, least=0)]
    item = max(itemsize, 1)
    if math.prod(sizes) * item <= target:
        return tuple(sizes)
    return _fitted(_near_cube(sizes, target / item), sizes, least / item, most / item)


def cut_range(
    start: int, count: int, step: int, chunk: int | RectilinearAxis
) -> list[tuple[int, int, int, int]]:
    """Cut a range by chunks: one ``(chunk, offset, items, position)`` for each chunk touched.

    ``chunk`` is the number of the chunk, ``offset`` the place of its first selected item inside the
    chunk, ``items`` the number of selected items, at distance ``step``, and ``position`` the place
    of the first one in the range. Parts come in the order of the range.

    >>> cut_range(1, 4, 3, chunk=5)
    [(0, 1, 2, 0), (1, 2, 1, 2), (2, 0, 1, 3)]
    >>> cut_range(7, 4, -2, chunk=5)
    [(1, 2, 2, 0), (0, 3, 2, 2)]
    """
    return list(each_part(start, count, step, chunk))


def each_part(
    start: int, count: int, step: int, chunk: int | RectilinearAxis
) -> Iterator[tuple[int, int, int, int]]:
    """Yield what `cut_range` returns, without holding all of it: a file may claim 2**62 chunks.

    >>> next(each_part(2**62, 2**60, -1, chunk=3))
    (1537228672809129301, 1, 2, 0)
    """
    if not isinstance(chunk, int):
        yield from chunk.cut(start, count, step)
        return
    position = 0
    while position < count:
        number, offset = divmod(start + position * step, chunk)
        room = (chunk - 1 - offset) // step if step > 0 else offset // -step
        items = min(room + 1, count - position)
        yield number, offset, items, position
        position += items


def count_parts(start: int, count: int, step: int, chunk: int | RectilinearAxis) -> int:
    """Return the number of parts that cutting a range gives, without cutting it.

    >>> count_parts(1, 4, 3, chunk=5)
    3
    """
    if not isinstance(chunk, int):
        return len(chunk.touched(range(start, start + count * step, step))) if count else 0
    if abs(step) >= chunk or count == 0:
        return count
    return abs((start + (count - 1) * step) // chunk - start // chunk) + 1


def begins_chunk(position: int, chunk: int | RectilinearAxis) -> bool:
    """Return whether a chunk begins at a position of an axis.

    >>> begins_chunk(8, 4), begins_chunk(8, RectilinearAxis([3, 6]))
    (True, False)
    """
    return position % chunk == 0 if isinstance(chunk, int) else chunk.begins(position)


class PointGroups(NamedTuple):
    """Points grouped by the chunk in which they lie.

    Group ``g`` is the points ``order[bounds[g] : bounds[g + 1]]``, all inside the chunk with the
    coordinates ``chunks[g]``, at the offsets ``offsets[axis][bounds[g] : bounds[g + 1]]`` in it.
    """

    chunks: IntArray
    """The coordinates of each chunk touched, one row per group, ascending with the last axis
    fastest."""
    order: IntArray
    """Positions of the points in the input. Inside a group they ascend: of two points that are the
    same item, the one given later comes later. Assigning in this order lets the last one win, in
    whatever order chunks are visited."""
    bounds: IntArray
    """The start of each group in ``order``, then the length of ``order``."""
    offsets: tuple[IntArray, ...]
    """For each axis, the offset of every point inside its chunk, sorted by ``order``."""
    ordered: bool
    """Whether the points were given group by group: ``order`` is then 0, 1, 2, …"""


def group_points(
    coordinates: Sequence[IntArray], chunk: Sequence[int | RectilinearAxis]
) -> PointGroups:
    """Group points by the chunk in which they lie.

    ``coordinates`` has one array for each axis that takes part, all of equal length; ``chunk`` has
    the chunk length along each of these axes. There is at least one axis; an index array has
    exactly one.

    >>> groups = group_points([np.array([7, 0, 6, 0])], [4])
    >>> groups.chunks.tolist(), groups.order.tolist(), groups.bounds.tolist()
    ([[0], [1]], [1, 3, 0, 2], [0, 2, 4])
    >>> groups.offsets[0].tolist()
    [0, 0, 3, 2]
    """
    numbers = [
        points // size if isinstance(size, int) else size.numbers(points)
        for points, size in zip(coordinates, chunk, strict=True)
    ]
    keys = _sortable(numbers)
    ordered = bool((keys[:-1] <= keys[1:]).all())
    if ordered:
        order = np.arange(len(keys), dtype=np.int64)
    else:
        order = np.argsort(keys, kind="stable").astype(np.int64, copy=False)
        keys = keys[order]
        numbers = [number[order] for number in numbers]
        coordinates = [points[order] for points in coordinates]
    begins = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    bounds = np.concatenate([[0], begins, [len(keys)]])[0 if len(keys) else 1 :].astype(np.int64)
    return PointGroups(
        chunks=np.stack([number[bounds[:-1]] for number in numbers], axis=1),
        order=order,
        bounds=bounds,
        offsets=tuple(
            points - (number * size if isinstance(size, int) else size.bounds[number])
            for points, number, size in zip(coordinates, numbers, chunk, strict=True)
        ),
        ordered=ordered,
    )


def axis_numbers(axis: int | Sequence[int], ndim: int) -> tuple[int, ...]:
    """Return the axes that a caller means, counted from the front.

    >>> axis_numbers(-1, 3), axis_numbers((0, 2), 3)
    ((2,), (0, 2))
    >>> axis_numbers(4, 2)
    Traceback (most recent call last):
    ingot.errors.AxisError: axis 4 is out of bounds for array of dimension 2
    """
    try:
        found: tuple[int, ...] = normalize_axis_tuple(axis, ndim)
    except np.exceptions.AxisError as error:
        raise AxisError(str(error)) from None
    except TypeError:
        raise ArgumentTypeError(f"axis is {axis!r}, not a whole number") from None
    except ValueError as error:
        raise ArgumentError(f"axis is {axis!r}: {error}") from None
    return found


def block_shape(
    grid: ChunkGrid, itemsize: int, *, most: int = BLOCK_BYTES, order: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return the shape of a block: whole chunks, of at most `most` bytes if one chunk allows it.

    Chunks are joined along the axes in `order`, as far as the budget goes. The default order is
    from the last axis to the first, so that a block is contiguous in the array.

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
    # Not `itertools.product`: it holds all blocks of an axis in memory, and a file may claim 2**62.
    for start in range(0, shape[0], max(1, block[0])):
        first = slice(start, min(start + block[0], shape[0]))
        for others in blocks(shape[1:], block[1:]):
            yield (first, *others)


def block_rows(grid: ChunkGrid, itemsize: int) -> int:
    """Return how many items of the first axis to read at once when iterating over them.

    These are whole chunks, so that none is decoded twice, unless that takes far more than a block.

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


def _lengths(name: str, lengths: Iterable[int], least: int) -> tuple[int, ...]:
    """Return lengths as plain integers, each one valid for an axis."""
    found = []
    for axis, length in enumerate(lengths):
        if type(length) is int and least <= length <= _LARGEST:
            found.append(length)
            continue
        if isinstance(length, bool | np.bool_):
            raise ArgumentError(f"{name}: axis {axis} is {length}, which is not a length")
        try:
            number = operator.index(length)
        except TypeError:
            raise ArgumentError(
                f"{name}: axis {axis} is {length!r}, which is not a length"
            ) from None
        if not least <= number <= _LARGEST:
            raise ArgumentError(
                f"{name}: axis {axis} is {number}, allowed are {least} to 2**63 - 1"
            )
        found.append(number)
    return tuple(found)


def _count(size: int, axis: int | RectilinearAxis) -> int:
    return -(-size // axis) if isinstance(axis, int) else axis.count(size)


def _place(position: int, axis: int | RectilinearAxis) -> tuple[int, int]:
    """Return the start of a chunk along an axis, and its length."""
    if isinstance(axis, int):
        return position * axis, axis
    return int(axis.bounds[position]), int(axis.lengths[position])


def _near_cube(sizes: list[int], budget: float) -> list[int]:
    chunk = list(sizes)
    axes = sorted(range(len(sizes)), key=sizes.__getitem__)
    for rank, axis in enumerate(axes):
        edge = max(budget, 1.0) ** (1 / (len(axes) - rank))
        parts = max(1, round(sizes[axis] / edge))
        # The small term undoes a root that fell short, such as 64 coming out as 63.999….
        chunk[axis] = int(edge + 1e-6) if parts >= 32 else -(-sizes[axis] // parts)
        budget /= chunk[axis]
    return chunk


def _fitted(chunk: list[int], sizes: list[int], least: float, most: float) -> tuple[int, ...]:
    """Return a chunk with `least` to `most` items, where equal parts are too coarse for that."""
    while math.prod(chunk) < least and chunk != sizes:
        axis = min(
            (axis for axis in range(len(chunk)) if chunk[axis] < sizes[axis]),
            key=chunk.__getitem__,
        )
        others = math.prod(chunk) // chunk[axis]
        chunk[axis] = min(sizes[axis], max(chunk[axis] + 1, math.ceil(least / others)))
    while math.prod(chunk) > most and (longest := max(chunk)) > 1:
        others = math.prod(chunk) // longest
        chunk[chunk.index(longest)] = max(1, min(longest - 1, int(most // others)))
    return tuple(chunk)


def _sortable(numbers: list[IntArray]) -> NDArray[np.integer]:
    """Return one key per point; keys sort like the coordinates of the chunks."""
    if len(numbers[0]) == 0:
        return np.zeros(0, dtype=np.int64)
    lows = [int(number.min()) for number in numbers]
    spans = [int(number.max()) - low + 1 for number, low in zip(numbers, lows, strict=True)]
    if math.prod(spans) > _LARGEST:
        return np.unique(np.stack(numbers, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    keys = np.zeros(len(numbers[0]), dtype=np.int64)
    for number, low, span in zip(numbers, lows, spans, strict=True):
        keys = keys * span + (number - low)
    # Stable sorting of 16-bit keys is by radix, several times faster than by comparison.
    return keys.astype(np.uint16) if math.prod(spans) <= 1 << 16 else keys

"""How a shape is cut into chunks.

Knows the regular grid (which chunks there are, how large each one is) and where a range or a set
of points falls among the chunks of it. Refuses to know what a chunk holds, where it is stored, and
what a key looks like.

Ranges are three plain integers, ``start, count, step``: the positions ``start + k * step`` for
``k`` below ``count``. They may run downwards (``step`` below zero). Cutting is a local matter: a
range may be cut in windows, each one a range of its own, when a table of all parts at once would
be too much.
"""

import math
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.errors import SelectionError

__all__ = [
    "BLOCK_BYTES",
    "MOST_AXES",
    "MOST_EDGES",
    "ChunkGrid",
    "PointGroups",
    "RangeParts",
    "RectilinearAxis",
    "auto_chunks",
    "begins_chunk",
    "block_rows",
    "block_shape",
    "blocks",
    "count_parts",
    "cut_range",
    "cut_range_columns",
    "group_points",
]

IntArray = NDArray[np.int64]

MOST_EDGES: Final = 2**22
"""The most chunks along an axis of this kind: their lengths are held in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class RectilinearAxis:
    """The lengths of the chunks along an axis; together they may reach beyond its end.

    >>> edges = RectilinearAxis([2, 5, 2])
    >>> edges.count(7), edges.count(8), edges.reach(3)
    (2, 3, 9)
    """

    lengths: IntArray
    bounds: IntArray = field(init=False, repr=False)
    """Where the chunks begin, and where the last one ends."""

    def __init__(self, lengths: Sequence[int] | IntArray) -> None:
        values = np.asarray(lengths, np.int64).reshape(-1)
        if len(values) > MOST_EDGES:
            raise ValueError(f"{len(values)} chunks along an axis, the most is {MOST_EDGES}")
        if len(values) == 0 or values.min() < 1 or values.sum(dtype=np.float64) >= 2**63:
            raise ValueError("the lengths of chunks are positive and end within 64 bits")
        object.__setattr__(self, "lengths", values)
        object.__setattr__(self, "bounds", np.concatenate([[0], np.cumsum(values)]))

    @property
    def longest(self) -> int:
        """The length of the longest chunk."""
        return int(self.lengths.max())

    def count(self, length: int) -> int:
        """Return how many chunks the first `length` items need."""
        if length > self.bounds[-1]:
            raise ValueError(f"chunks end at {self.bounds[-1]}, the axis has {length} items")
        return int(np.searchsorted(self.bounds, length))

    def reach(self, count: int) -> int:
        """Return where the first `count` chunks end."""
        return int(self.bounds[count])

    def begins(self, position: int) -> bool:
        """Tell whether a chunk begins, or the last one ends, at a position."""
        return int(self.bounds[np.searchsorted(self.bounds, position)]) == position

    def covering(self, length: int) -> "RectilinearAxis":
        """Return the same chunks, and as many more, as long as the last one, as `length` needs.

        >>> RectilinearAxis([2, 5]).covering(13).lengths.tolist()
        [2, 5, 5, 5]
        """
        missing = length - self.reach(-1)
        if missing <= 0:
            return self
        last = int(self.lengths[-1])
        more = -(-missing // last)
        if len(self.lengths) + more > MOST_EDGES:
            raise ValueError(f"more than {MOST_EDGES} chunks along an axis")
        return RectilinearAxis(np.concatenate([self.lengths, np.full(more, last, np.int64)]))

    def numbers(self, points: IntArray) -> IntArray:
        """Return the chunk of each point.

        >>> RectilinearAxis([2, 5]).numbers(np.array([0, 2, 6])).tolist()
        [0, 1, 1]
        """
        return np.searchsorted(self.bounds, points, side="right").astype(np.int64) - 1

    def cut(self, start: int, count: int, step: int) -> list[tuple[int, int, int, int]]:
        """Cut a range by chunks, as `ingot.grid.cut_range` does.

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


MOST_AXES = 64
"""As many axes as a NumPy array can have."""

_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ChunkGrid:
    """A shape, and the shape of the chunks it is cut into.

    ``padded`` says what lies beyond the edge: True, every chunk is stored at full size and the
    overhang is padding; False, the last chunk of an axis is stored as short as it is.

    An axis of length 0 has no chunks. An array without axes has one, whose coordinates are ``()``.
    A chunk may be larger than the array, but never empty.

    An axis with ``edges`` is cut into chunks of these lengths instead; ``chunk`` has the longest.

    >>> grid = ChunkGrid((10, 4), (4, 4), padded=True)
    >>> grid.counts, grid.chunk_count
    ((3, 1), 3)
    >>> grid.stored_shape((2, 0)), grid.valid_shape((2, 0))
    ((4, 4), (2, 4))
    """

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    padded: bool
    edges: tuple[RectilinearAxis | None, ...] = ()
    counts: tuple[int, ...] = field(init=False)
    """The number of chunks along each axis."""
    axes: tuple[int | RectilinearAxis, ...] = field(init=False, repr=False)
    """How each axis is cut: the one length of its chunks, or the several."""

    def __post_init__(self) -> None:
        shape = _lengths("shape", self.shape, least=0)
        chunk = _lengths("chunk shape", self.chunk, least=1)
        if len(shape) != len(chunk):
            raise ValueError(f"shape has {len(shape)} axes, the chunk shape {len(chunk)}")
        if len(shape) > MOST_AXES:
            raise ValueError(f"shape has {len(shape)} axes, the most is {MOST_AXES}")
        axes: tuple[int | RectilinearAxis, ...] = chunk
        if any(self.edges):
            cuts = zip(self.edges, chunk, strict=True)
            axes = tuple(length if edges is None else edges for edges, length in cuts)
            chunk = tuple(axis if isinstance(axis, int) else axis.longest for axis in axes)
        counts = tuple(map(_count, shape, axes))
        for name, value in (("shape", shape), ("chunk", chunk), ("counts", counts)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "axes", axes)

    @property
    def chunk_count(self) -> int:
        """The number of chunks in the whole grid.

        >>> ChunkGrid((0, 5), (2, 2), padded=False).chunk_count
        0
        """
        return math.prod(self.counts)

    def valid_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """The shape of the part of a chunk that lies inside the array.

        >>> ChunkGrid((10,), (4,), padded=True).valid_shape((2,))
        (2,)
        """
        self._check(coords)
        if any(self.edges):
            places = map(_place, coords, self.axes)
            lengths = zip(places, self.shape, strict=True)
            return tuple(min(length, size - start) for (start, length), size in lengths)
        return tuple(
            min(step, size - position * step)
            for position, size, step in zip(coords, self.shape, self.chunk, strict=True)
        )

    def stored_shape(self, coords: Sequence[int]) -> tuple[int, ...]:
        """The shape in which a chunk is stored.

        >>> ChunkGrid((10,), (4,), padded=True).stored_shape((2,))
        (4,)
        >>> ChunkGrid((10,), (4,), padded=False).stored_shape((2,))
        (2,)
        """
        if not self.padded:
            return self.valid_shape(coords)
        self._check(coords)
        if any(self.edges):
            return tuple(length for _, length in map(_place, coords, self.axes))
        return self.chunk

    @property
    def reach(self) -> tuple[int, ...]:
        """Where the last chunk of each axis ends, padding included.

        >>> ChunkGrid((10,), (4,), padded=True).reach
        (12,)
        """
        return tuple(
            count * axis if isinstance(axis, int) else axis.reach(count)
            for count, axis in zip(self.counts, self.axes, strict=True)
        )

    def linear(self, coords: Sequence[int]) -> int:
        """The number of a chunk when they are counted with the last axis fastest.

        >>> ChunkGrid((10, 10), (4, 4), padded=True).linear((1, 2))
        5
        """
        self._check(coords)
        number = 0
        for position, count in zip(coords, self.counts, strict=True):
            number = number * count + position
        return number

    def coords(self, linear: int) -> tuple[int, ...]:
        """The coordinates of the chunk with that number; the reverse of `linear`.

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


def cut_range(
    start: int, count: int, step: int, chunk: int | RectilinearAxis
) -> list[tuple[int, int, int, int]]:
    """Cut a range by chunks: one ``(chunk, offset, items, position)`` for each chunk touched.

    ``chunk`` is the number of the chunk, ``offset`` where its first item lies inside it, ``items``
    how many follow at distance ``step``, ``position`` the place of the first among the range's own
    items. Parts come in the order of the range. Made for the few parts of a small key; see
    `cut_range_columns` for many.

    >>> cut_range(1, 4, 3, chunk=5)
    [(0, 1, 2, 0), (1, 2, 1, 2), (2, 0, 1, 3)]
    >>> cut_range(7, 4, -2, chunk=5)
    [(1, 2, 2, 0), (0, 3, 2, 2)]
    """
    if not isinstance(chunk, int):
        return chunk.cut(start, count, step)
    parts = []
    position = 0
    while position < count:
        number, offset = divmod(start + position * step, chunk)
        room = (chunk - 1 - offset) // step if step > 0 else offset // -step
        items = min(room + 1, count - position)
        parts.append((number, offset, items, position))
        position += items
    return parts


class RangeParts(NamedTuple):
    """The parts of one range as columns; the names are those of `cut_range`."""

    chunks: IntArray
    offsets: IntArray
    items: IntArray
    positions: IntArray


def cut_range_columns(start: int, count: int, step: int, chunk: int) -> RangeParts:
    """Cut a range by chunks, as `cut_range` does, in a fixed number of NumPy operations.

    >>> parts = cut_range_columns(1, 4, 3, chunk=5)
    >>> parts.chunks, parts.items
    (array([0, 1, 2]), array([2, 1, 1]))
    """
    if abs(step) >= chunk or count == 0:
        positions = np.arange(count, dtype=np.int64)
    else:
        direction = 1 if step > 0 else -1
        first = start // chunk
        last = (start + (count - 1) * step) // chunk
        entered = np.arange(first + direction, last + direction, direction, dtype=np.int64)
        # The item of a chunk met first: its lowest going up, its highest going down.
        nearest = entered * chunk if step > 0 else (entered + 1) * chunk - 1
        # Written so that the quotient rounds up and no intermediate passes 64 bits.
        later = -((start - nearest) * direction // abs(step))
        positions = np.concatenate([np.zeros(1, dtype=np.int64), later])
    indices = start + positions * step
    numbers = indices // chunk
    return RangeParts(
        chunks=numbers,
        offsets=indices - numbers * chunk,
        items=np.diff(positions, append=np.int64(count)),
        positions=positions,
    )


def begins_chunk(position: int, chunk: int | RectilinearAxis) -> bool:
    """Tell whether a chunk begins at a position of an axis.

    >>> begins_chunk(8, 4), begins_chunk(8, RectilinearAxis([3, 6]))
    (True, False)
    """
    return position % chunk == 0 if isinstance(chunk, int) else chunk.begins(position)


def count_parts(start: int, count: int, step: int, chunk: int | RectilinearAxis) -> int:
    """The number of parts that cutting the range would give, without cutting it.

    >>> count_parts(1, 4, 3, chunk=5)
    3
    """
    if not isinstance(chunk, int):
        return len(chunk.cut(start, count, step))
    if abs(step) >= chunk or count == 0:
        return count
    return abs((start + (count - 1) * step) // chunk - start // chunk) + 1


class PointGroups(NamedTuple):
    """Points brought together by chunk.

    Group ``g`` is the points ``order[bounds[g] : bounds[g + 1]]``, all inside the chunk with the
    coordinates ``chunks[g]``, at the places ``offsets[axis][bounds[g] : bounds[g + 1]]`` of it.
    """

    chunks: IntArray
    """The coordinates of each chunk touched, one row per group, ascending with the last axis
    fastest."""
    order: IntArray
    """Positions of the points as they were given. Inside a group they ascend: of two points that
    are the same item, the one given later comes later, so assigning in this order lets the last
    one win, whatever the order in which chunks are visited."""
    bounds: IntArray
    """Where the groups begin in ``order``, and its length at the end."""
    offsets: tuple[IntArray, ...]
    """For each axis, the place of every point inside its chunk, already in the order of
    ``order``."""
    ordered: bool
    """True when the points came group by group: ``order`` counts from 0 and gathers nothing."""


def group_points(
    coordinates: Sequence[IntArray], chunk: Sequence[int | RectilinearAxis]
) -> PointGroups:
    """Bring points together by the chunk they lie in.

    ``coordinates`` has an array of equal length for each axis that takes part, ``chunk`` the
    length of a chunk along each of these; at least one axis. One alone is the case of an index
    array.

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


def auto_chunks(
    shape: Sequence[int],
    itemsize: int,
    *,
    target: int = 1 << 20,
    least: int = 1 << 18,
    most: int = 1 << 22,
    growing: bool = False,
) -> tuple[int, ...]:
    """A chunk shape that serves most uses of an array: near to a cube of 1 MiB, uncompressed.

    The rules, in this order; the same arguments always give the same answer:

    1. An array of at most ``target`` bytes is one chunk.
    2. Axes are taken from the shortest to the longest. Each aims at the edge of the cube that the
       budget still allows for it and those after it, so an axis shorter than the edge is kept
       whole and leaves its share to the others.
    3. An axis is cut into equal parts, so that the last chunk is about as full as the others. One
       that makes 32 parts or more takes the edge itself: the waste is small, and a long series of
       8-byte items gets chunks of exactly 1 MiB.
    4. A chunk is never below ``least`` bytes, unless the whole array is, and never over ``most``,
       unless a single item is. Where both cannot hold, the second does.

    An axis of length 0 counts as 1. With ``growing`` it counts as endless instead: right for
    arrays that start empty and are appended to.

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
        raise ValueError(f"chunk sizes must ascend: least {least}, target {target}, most {most}")
    if itemsize < 0:
        raise ValueError(f"itemsize is {itemsize}, the least is 0")
    empty = _LARGEST if growing else 1
    sizes = [size or empty for size in _lengths("shape", shape, least=0)]
    item = max(itemsize, 1)
    if math.prod(sizes) * item <= target:
        return tuple(sizes)
    return _fitted(_near_cube(sizes, target / item), sizes, least / item, most / item)


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
    """Keep the number of items within bounds where equal parts were too coarse for them."""
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


def _count(size: int, axis: int | RectilinearAxis) -> int:
    return -(-size // axis) if isinstance(axis, int) else axis.count(size)


def _place(position: int, axis: int | RectilinearAxis) -> tuple[int, int]:
    """Return where a chunk begins along an axis, and its length."""
    if isinstance(axis, int):
        return position * axis, axis
    return int(axis.bounds[position]), int(axis.lengths[position])


def _lengths(name: str, lengths: Iterable[int], least: int) -> tuple[int, ...]:
    """Plain integers of any integer-like lengths, each within what an axis can have."""
    found = []
    for axis, length in enumerate(lengths):
        if isinstance(length, bool | np.bool_):
            raise ValueError(f"{name}: axis {axis} is {length}, which is not a length")
        try:
            number = operator.index(length)
        except TypeError:
            raise ValueError(f"{name}: axis {axis} is {length!r}, which is not a length") from None
        if not least <= number <= _LARGEST:
            raise ValueError(f"{name}: axis {axis} is {number}, allowed are {least} to 2**63 - 1")
        found.append(number)
    return tuple(found)


def _sortable(numbers: list[IntArray]) -> NDArray[np.integer]:
    """One key per point that orders points as their chunks' coordinates do."""
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

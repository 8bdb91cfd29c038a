"""Flat arrays: selections as runs of the units of the payload.

The payload of a flat array is its bytes, the items one behind the other in stored order, as an
array of units (`ArraySchema.payload`). A selection wants *runs* of it, all of one length: an outer
product of offsets along the axes that are not selected as a whole. This module cuts selections into
runs, and runs into parts of chunks. It moves no data.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.errors import UnsupportedError
from ingot.formats.format import ChunkMap, Coords, Documents, KeyTemplate, Locations
from ingot.schema import ArraySchema
from ingot.selection import BasicSelection, CoordinateSelection, Selection
from ingot.stores.store import Commit, Store

__all__ = [
    "Index",
    "PayloadMap",
    "RunAxis",
    "Runs",
    "check_shape",
    "cut",
    "is_transposed",
    "last_of",
    "repeated",
    "without_repeats",
]

Ints: TypeAlias = NDArray[np.int64]
Index: TypeAlias = slice | Ints
"""Positions along one axis."""

# Runs of at least so many units are moved one by one, shorter ones many at a time.
_LONG_RUN: Final = 256
# How many units of short runs are moved at a time.
_WINDOW: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PayloadMap:
    """The chunk map of the payload of a flat array: an array of one axis."""

    chunks: ChunkMap
    schema: ArraySchema

    @classmethod
    def of(cls, chunks: ChunkMap) -> "PayloadMap":
        """Return the map of the payload of a flat array."""
        return cls(chunks, chunks.schema.payload)

    @property
    def store(self) -> Store:
        """Where its bytes are."""
        return self.chunks.store

    @property
    def path(self) -> str:
        """Where in its store the array lies."""
        return self.chunks.path

    @property
    def template(self) -> KeyTemplate | None:
        """How keys follow from the numbers of chunks."""
        return self.chunks.template

    @property
    def documents(self) -> Documents:
        """The documents of the array."""
        return self.chunks.documents

    def locate(self, coords: Ints) -> Locations:
        """Return where chunks lie."""
        return self.chunks.locate(coords)

    def reopened(self, store: Store) -> "PayloadMap":
        """Return the map of the same array as `store` has it now."""
        return PayloadMap.of(self.chunks.reopened(store))

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        return self.chunks.stage(encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[PayloadMap, Commit]":
        """Raise: the array itself is resized."""
        raise UnsupportedError("the payload of an array has no shape of its own")

    def described(self, attrs: Mapping[str, Any]) -> "tuple[PayloadMap, Commit]":
        """Raise: the array itself is described."""
        raise UnsupportedError("the payload of an array has no attributes")

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        return self.chunks.removed()


@dataclass(frozen=True, slots=True, eq=False)
class RunAxis:
    """One axis of an outer product of runs.

    `sources` are offsets in the payload, which ascend, and `targets` those in the memory of
    the result.
    """

    sources: range | Ints
    targets: range | Ints

    def __len__(self) -> int:
        return len(self.sources)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Runs of the payload, in units: an outer product of axes, each run `length` units long.

    Runs are numbered with the last axis fastest. Their sources ascend.

    >>> runs = Runs((RunAxis(range(0, 30, 10), range(0, 6, 2)),), start=3, length=2)
    >>> runs.count, runs.source(2), runs.target(2), list(runs.touched(8))
    (3, 23, 4, [0, 1, 2, 3])
    """

    axes: tuple[RunAxis, ...]
    start: int
    length: int

    @property
    def count(self) -> int:
        """The number of runs."""
        return math.prod(map(len, self.axes))

    @property
    def single(self) -> range | None:
        """The units of the only run; None where there are more."""
        return None if self.axes else range(self.start, self.start + self.length)

    def native_axes(self) -> "list[tuple[native.Offsets, native.Offsets]]":
        """Return the axes as the native kernel takes them."""
        return [(_offsets(axis.sources), _offsets(axis.targets)) for axis in self.axes]

    def source(self, number: int) -> int:
        """Return where a run begins in the payload."""
        place = self.start
        for axis in reversed(self.axes):
            number, position = divmod(number, len(axis))
            place += int(axis.sources[position])
        return place

    def target(self, number: int) -> int:
        """Return where a run begins in the memory of the result."""
        place = 0
        for axis in reversed(self.axes):
            number, position = divmod(number, len(axis))
            place += int(axis.targets[position])
        return place

    def touched(self, chunk: int) -> Iterator[int]:
        """Yield the ascending numbers of the chunks of so many units that the runs touch."""
        count, number = self.count, 0
        following = self.source(0) // chunk if count else 0
        while number < count:
            place = max(following, self.source(number) // chunk)
            # All chunks up to the end of the run.
            last = (self.source(number) + self.length - 1) // chunk
            yield from range(place, last + 1)
            following = max(following, last + 1)
            number = self._first_behind(following * chunk, number)

    def parts(self, begin: int, end: int) -> Iterator[tuple[Index, Index]]:
        """Yield the units of runs that lie between two places of the payload.

        They are counted from `begin`, and beside them are their places in the memory of the result.
        """
        first = self._first_behind(begin)
        last = bisect_left(range(self.count), end, lo=first, key=self.source)
        if self.length >= _LONG_RUN or last - first == 1:
            for number in range(first, last):
                source, target = self.source(number), self.target(number)
                low, high = max(source, begin), min(source + self.length, end)
                yield (
                    slice(low - begin, high - begin),
                    slice(target + low - source, target + high - source),
                )
            return
        window = max(1, _WINDOW // self.length)
        inside = np.arange(self.length)
        for at in range(first, last, window):
            numbers = np.arange(at, min(at + window, last))
            sources, targets = self._offsets(numbers)
            units = (sources[:, None] + inside).reshape(-1)
            places = (targets[:, None] + inside).reshape(-1)
            kept = (units >= begin) & (units < end)
            yield units[kept] - begin, places[kept]

    def _first_behind(self, place: int, low: int = 0) -> int:
        """Return the number of the first run that ends behind a place."""
        return bisect_right(range(self.count), place - self.length, lo=low, key=self.source)

    def _offsets(self, numbers: Ints) -> tuple[Ints, Ints]:
        sources = np.full(len(numbers), self.start)
        targets = np.zeros(len(numbers), np.int64)
        for axis in reversed(self.axes):
            numbers, positions = np.divmod(numbers, len(axis))
            sources += _at(axis.sources, positions)
            targets += _at(axis.targets, positions)
        return sources, targets


def is_transposed(selection: Selection, schema: ArraySchema) -> bool:
    """Return whether the memory of a selection has the axes of engine order in reverse.

    They are in stored order; those of points are in engine order.
    """
    return schema.order == "F" and not isinstance(selection, CoordinateSelection)


def cut(selection: Selection, schema: ArraySchema) -> Runs:
    """Return the runs of the payload that a selection of at least one item wants.

    Targets are units of the memory of the selection, which is in C order; see `is_transposed`.

    >>> from ingot.codecs.codec import CodecChain
    >>> from ingot.schema import Flat
    >>> from ingot.selection import parse
    >>> schema = ArraySchema((5, 4), np.dtype("<i2"), (), CodecChain(), 0, flat=Flat(6))
    >>> cut(parse(slice(1, 3), (5, 4)), schema).single
    range(4, 12)
    """
    assert schema.flat is not None
    size = schema.dtype.itemsize // math.gcd(schema.flat.chunk_bytes, schema.dtype.itemsize)
    if isinstance(selection, CoordinateSelection):
        return _cut_points(selection, schema, size)
    strides, axes = _strides(schema.shape, schema.stored_axes, size), _axes(selection)
    memory = [len(axes[axis]) for axis in schema.stored_axes]
    targets = _strides(memory, range(len(memory)), size)
    product = [
        _Wanted(axes[axis], strides[axis], target, schema.shape[axis])
        for axis, target in zip(schema.stored_axes, targets, strict=True)
    ]
    return _joined((), product, size)


def without_repeats(
    selection: Selection, shape: tuple[int, ...]
) -> tuple[Selection, list[tuple[int, Ints]]]:
    """Return a selection from an array of a shape without positions that are repeated.

    The list has axes of engine order that had repeats: the axis, and for each of its former
    positions the one that it has become.

    >>> from ingot.selection import parse
    >>> selection, repeats = without_repeats(parse([3, 1, 3], (5,)), (5,))
    >>> selection.axes, repeats
    ((array([1, 3]),), [(0, array([1, 0, 1]))])
    """
    if isinstance(selection, BasicSelection):
        return selection, []
    repeats: list[tuple[int, Ints]] = []
    axes, counts = list(selection.axes), list(selection.engine_shape)
    arrays = [n for n, each in enumerate(axes) if not isinstance(each, range)]
    if isinstance(selection, CoordinateSelection):
        points = np.zeros(counts[0], np.int64)
        for axis in arrays:
            points = points * shape[axis] + np.asarray(axes[axis])
        if _repeats(points):
            _, first, place = np.unique(points, return_index=True, return_inverse=True)
            repeats.append((0, place))
            counts[0] = len(first)
            for axis in arrays:
                axes[axis] = np.asarray(axes[axis])[first]
    else:
        for axis in arrays:
            if _repeats(np.asarray(axes[axis])):
                found, place = np.unique(axes[axis], return_inverse=True)
                repeats.append((axis, place))
                axes[axis], counts[axis] = found, len(found)
    if not repeats:
        return selection, []
    return replace(selection, axes=tuple(axes), engine_shape=tuple(counts)), repeats


def _repeats(positions: Ints) -> bool:
    if bool((positions[:-1] < positions[1:]).all()):
        return False
    ordered = np.sort(positions)
    return bool((ordered[:-1] == ordered[1:]).any())


def last_of(repeats: Ints) -> Ints:
    """Return the last of the former positions that became each position.

    >>> last_of(np.array([1, 0, 1]))
    array([1, 2])
    """
    last = np.zeros(int(repeats.max()) + 1, np.int64)
    np.maximum.at(last, repeats, np.arange(len(repeats)))
    return last


def check_shape(schema: ArraySchema, shape: Sequence[int]) -> None:
    """Raise `UnsupportedError` unless a flat array keeps the places of its items in a shape."""
    old = schema.shape
    if 0 in old or 0 in shape:
        return
    for axis in schema.stored_axes[1:]:
        if old[axis] != shape[axis]:
            slowest = schema.stored_axes[0]
            raise UnsupportedError(
                f"shape {tuple(shape)} instead of {old}: the items of this array lie one behind "
                f"the other, so that only axis {slowest} can change its length"
            )


def repeated(item: NDArray[Any], begin: int, end: int, unit: np.dtype[Any]) -> NDArray[Any]:
    """Return the units of a payload from one place to another, where all items are the same.

    `item` is an array without axes.

    >>> repeated(np.array(258, "<i2"), 1, 4, np.dtype("u1")).tolist()
    [1, 2, 1]
    """
    units = item.reshape(1).view(np.uint8).view(unit)
    return np.resize(np.roll(units, -(begin % len(units))), end - begin)


@dataclass(frozen=True, slots=True, eq=False)
class _Wanted:
    """The positions that are wanted along an axis, with the strides on both sides."""

    positions: range | Ints
    source: int
    target: int
    length: int


def _joined(points: tuple[RunAxis, ...], product: list[_Wanted], size: int) -> Runs:
    """Return the runs of an outer product of axes, slowest first, behind an axis of points."""
    start, length = 0, size
    while product:
        axis = product[-1]
        positions = axis.positions
        if not isinstance(positions, range) or (len(positions) > 1 and positions.step != 1):
            break
        if len(positions) > 1 and axis.target != length:
            break
        if axis.source != length:
            break
        product.pop()
        start += positions[0] * axis.source
        length *= len(positions)
        if len(positions) < axis.length:
            break
    outer: list[RunAxis] = []
    for axis in product:
        positions = axis.positions
        if len(positions) == 1:
            start += int(positions[0]) * axis.source
        else:
            outer.append(_run_axis(positions, axis.source, axis.target))
    return Runs((*points, *outer), start, length)


def _run_axis(positions: range | Ints, source: int, target: int) -> RunAxis:
    count = len(positions)
    targets = range(0, count * target, target)
    if isinstance(positions, range):
        if positions.step < 0:
            positions, targets = positions[::-1], targets[::-1]
        first, step = positions[0] * source, positions.step * source
        return RunAxis(range(first, first + count * step, step), targets)
    return _sorted(positions * source, np.arange(count) * target)


def _sorted(sources: Ints, targets: Ints) -> RunAxis:
    """Return an axis whose sources ascend; of equal ones the later stays behind the earlier."""
    if bool((sources[:-1] <= sources[1:]).all()):
        return RunAxis(sources, targets)
    order = np.argsort(sources, kind="stable")
    return RunAxis(sources[order], targets[order])


def _cut_points(selection: CoordinateSelection, schema: ArraySchema, size: int) -> Runs:
    """Return the runs of points, each with all positions along the other axes.

    Axes that are faster than those of all points stay axes of the product. For the others every
    position becomes a point.
    """
    strides = _strides(schema.shape, schema.stored_axes, size)
    shape = selection.engine_shape
    targets = iter(_strides(shape, range(len(shape)), size))
    points = np.zeros(shape[0], np.int64)
    places = np.arange(shape[0]) * next(targets)
    arrays = [n for n, each in enumerate(selection.axes) if not isinstance(each, range)]
    for axis in arrays:
        points = points + np.asarray(selection.axes[axis]) * strides[axis]
    fastest = min((strides[axis] for axis in arrays), default=0)
    product: list[_Wanted] = []
    for axis, positions in enumerate(selection.axes):
        if axis in arrays:
            continue
        wanted = _Wanted(positions, strides[axis], next(targets), schema.shape[axis])
        if wanted.source < fastest:
            product.append(wanted)
            continue
        listed = np.asarray(positions, np.int64)
        points = (points[:, None] + listed * wanted.source).reshape(-1)
        places = (places[:, None] + np.arange(len(listed)) * wanted.target).reshape(-1)
    product.sort(key=lambda wanted: -wanted.source)
    return _joined((_sorted(points, places),), product, size)


def _axes(selection: Selection) -> Sequence[range | Ints]:
    if not isinstance(selection, BasicSelection):
        return selection.axes
    box = zip(selection.starts, selection.counts, selection.steps, strict=True)
    return [range(start, start + count * step, step) for start, count, step in box]


def _strides(shape: Sequence[int], order: Sequence[int], size: int) -> list[int]:
    """Return how many units apart neighbours along each axis are; `order` has the slowest first."""
    strides = [size] * len(shape)
    for axis in reversed(order):
        strides[axis] = size
        size *= shape[axis]
    return strides


def _offsets(offsets: range | Ints) -> "native.Offsets":
    return (offsets.start, offsets.step, len(offsets)) if isinstance(offsets, range) else offsets


def _at(offsets: range | Ints, positions: Ints) -> Ints:
    if isinstance(offsets, range):
        return offsets.start + positions * offsets.step
    return offsets[positions]

"""The plan of a window: which blocks of which chunks a device gets, and where their items go.

A chunk is wanted in regions, each an outer product of axes on both sides: items of the chunk, and
places of the result. `WindowPlan` turns them into the tables of a window; the native kernel has
the same class, which works on all chunks of a window at once. `make_plan` returns the one that
runs.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.device.window import (
    AXIS,
    BLOCK,
    BOX,
    NANS,
    BoxAxis,
    Buffer,
    ChunkPieces,
    Spans,
    Window,
    WindowBuilder,
    block_numbers,
    needed_ranges,
)

__all__ = ["Needed", "Part", "Region", "Steps", "WantedChunks", "WindowPlan", "make_plan"]

Ints: TypeAlias = NDArray[np.int64]

Index: TypeAlias = slice | Ints
"""Positions along one axis."""

Needed: TypeAlias = tuple[int, list[tuple[int, int]]] | None
"""The size of a chunk, and the ranges of its bytes that are needed; None for all."""

Stored: TypeAlias = Buffer | ChunkPieces | None
"""A chunk as it is stored, or pieces of it; None for one that is decoded elsewhere."""

# Items that lie no further apart are in neighbouring blocks, but for very small ones.
_SHORT_STEP: Final = 4096
_NO_SPANS: Final = Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))
# The tables of the native kernel: blocks, owners of streams and of blocks, boxes, owners of units,
# axes, offsets.
_NUMBERS: Final = np.dtype("<u4")
_TABLES: Final[tuple[np.dtype[Any], ...]] = (
    BLOCK,
    _NUMBERS,
    _NUMBERS,
    BOX,
    _NUMBERS,
    AXIS,
    np.dtype("<i8"),
)


class Steps(NamedTuple):
    """Positions along one axis, as offsets in bytes: equal steps from 0, or a table."""

    length: int
    step: int
    table: Ints | None = None

    @classmethod
    def of(cls, index: Index, length: int, stride: int) -> "tuple[int, Steps]":
        """Return where positions along an axis begin, and their steps from there on."""
        if isinstance(index, slice):
            return int(index.start or 0) * stride, cls(length, (index.step or 1) * stride)
        return 0, cls(length, 0, np.asarray(index, np.int64) * stride)

    @property
    def offsets(self) -> Ints:
        """All offsets."""
        return np.arange(self.length) * self.step if self.table is None else self.table

    def steps_within(self, most: int) -> bool:
        """Return whether the positions have equal steps of at most so many bytes."""
        return self.table is None and abs(self.step) <= most

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest offset."""
        if self.table is not None:
            return int(self.table.min()), int(self.table.max())
        last = (self.length - 1) * self.step
        return min(last, 0), max(last, 0)


class Part(NamedTuple):
    """Items of a chunk, or places of a result, as an outer product of axes, slowest first."""

    start: int
    axes: Sequence[Steps]

    @classmethod
    def of(cls, indices: Sequence[Index], lengths: Sequence[int], strides: Sequence[int]) -> "Part":
        """Return the part that indices along each axis select.

        >>> Part.of([slice(2, 8, 2)], [3], [10])
        Part(start=20, axes=[Steps(length=3, step=20, table=None)])
        """
        found = [Steps.of(*each) for each in zip(indices, lengths, strides, strict=True)]
        return cls(sum(start for start, _ in found), [steps for _, steps in found])

    def spans(self, itemsize: int) -> Spans:
        """Return the ranges of bytes that the items lie in, one for each of the longest steps.

        Steps that are no longer than most blocks make one range.
        """
        ends = [axis.ends for axis in self.axes]
        low, high = (self.start + sum(each) for each in zip((0, 0), *ends, strict=True))
        widths = [most - least for least, most in ends]
        slow = widths.index(max(widths)) if widths else 0
        if not widths or self.axes[slow].steps_within(_SHORT_STEP):
            return Spans(np.array([low]), np.array([high + itemsize]))
        offsets, (least, most) = self.axes[slow].offsets, ends[slow]
        return Spans(offsets + (low - least), offsets + (high - most + itemsize))


class Region(NamedTuple):
    """Items of a chunk and the places that they go to: indices along axes, slowest first.

    Strides are in bytes. An index is a slice of positions that all exist, or their numbers.
    """

    source: tuple[Index, ...]
    source_strides: Sequence[int]
    target: tuple[Index, ...]
    target_strides: Sequence[int]
    lengths: Sequence[int]

    @property
    def items(self) -> Part:
        """The items of the chunk."""
        return Part.of(self.source, self.lengths, self.source_strides)

    @property
    def places(self) -> Part:
        """The places of the result."""
        return Part.of(self.target, self.lengths, self.target_strides)


class WantedChunks(Protocol):
    """What is wanted of the chunks of a window."""

    def sizes(self) -> tuple[int, int]:
        """Return in how many bytes the items lie, at most, and how many the chunks have."""

    def needed(self, numbers: Sequence[int], heads: Sequence[bytes]) -> Sequence[Needed]:
        """Return which bytes of some chunks are needed, by their first bytes."""

    def blocks(self, number: int, head: Buffer) -> list[int]:
        """Return which blocks of a chunk are needed, in ascending order, by its header."""

    def build(
        self, memory: NDArray[np.uint8] | None, stored: Sequence[Stored], threads: int
    ) -> tuple[Window, list[int]]:
        """Return the window of the chunks, and which of them are not taken."""


def make_plan(
    itemsize: int, sizes: Sequence[int | None], regions: Sequence[Sequence[Region]]
) -> WantedChunks:
    """Return the plan for chunks of so many decoded bytes; None for one that is none of Blosc.

    >>> region = Region((slice(2, 5),), [4], (slice(0, 3),), [4], [3])
    >>> make_plan(4, [4000], [[region]]).sizes()
    (12, 4000)
    """
    made = native.make_window_plan(itemsize, sizes, regions)
    if made is None:
        return WindowPlan(itemsize, sizes, regions)
    return _NativePlan(made, itemsize, regions)


class WindowPlan:
    """What is wanted of the chunks of a window: the twin of the native one."""

    def __init__(
        self, itemsize: int, sizes: Sequence[int | None], regions: Sequence[Sequence[Region]]
    ) -> None:
        self._itemsize = itemsize
        self._sizes = sizes
        self._parts = [[(each.items, each.places) for each in chunk] for chunk in regions]
        self._spans = [_joined([items for items, _ in parts], itemsize) for parts in self._parts]

    def sizes(self) -> tuple[int, int]:
        """Return in how many bytes the items lie, at most, and how many the chunks have."""
        wanted = [
            min(int((spans.ends - spans.begins).sum()), size or 0)
            for spans, size in zip(self._spans, self._sizes, strict=True)
        ]
        return sum(wanted), sum(size or 0 for size in self._sizes)

    def needed(self, numbers: Sequence[int], heads: Sequence[bytes]) -> list[Needed]:
        """Return which bytes of some chunks are needed, by their first bytes."""
        found: list[Needed] = []
        for number, head in zip(numbers, heads, strict=True):
            size = self._sizes[number]
            need = None if size is None else needed_ranges(head, size, self._spans[number])
            # The rule of `ingot.engine.parts.whole_from`.
            if need is not None and sum(b - a for a, b in need[1]) >= need[0] // 4 * 3:
                need = None
            found.append(need)
        return found

    def blocks(self, number: int, head: Buffer) -> list[int]:
        """Return which blocks of a chunk are needed, in ascending order, by its header."""
        return block_numbers(head, self._spans[number])

    def build(
        self, memory: NDArray[np.uint8] | None, stored: Sequence[Stored], threads: int
    ) -> tuple[Window, list[int]]:
        """Return the window of the chunks, and which of them are not taken."""
        builder, refused = WindowBuilder(memory), []
        for number, (chunk, size) in enumerate(zip(stored, self._sizes, strict=True)):
            staged = None
            if chunk is not None and size is not None:
                staged = builder.add_chunk(number, chunk, size, self._spans[number])
            if staged is None:
                refused.append(number)
                continue
            for items, places in self._parts[number]:
                axes = [
                    BoxAxis(one.length, one.step, other.step, one.table, other.table)
                    for one, other in zip(items.axes, places.axes, strict=True)
                ]
                builder.add_box(staged, items.start, places.start, self._itemsize, axes)
        return builder.build(), refused


class _NativePlan:
    """The plan of the native kernel, whose tables become those of a window."""

    def __init__(
        self, made: native.NativeWindowPlan, itemsize: int, regions: Sequence[Sequence[Region]]
    ) -> None:
        self._made = made
        self._itemsize = itemsize
        self._regions = regions
        self.sizes = made.sizes
        self.needed = made.needed

    def blocks(self, number: int, head: Buffer) -> list[int]:
        """Return which blocks of a chunk are needed, in ascending order, by its header."""
        parts = [region.items for region in self._regions[number]]
        return block_numbers(head, _joined(parts, self._itemsize))

    def build(
        self, memory: NDArray[np.uint8] | None, stored: Sequence[Stored], threads: int
    ) -> tuple[Window, list[int]]:
        """Return the window of the chunks, and which of them are not taken."""
        tables, input_size, room, pieces, refused = self._made.build(memory, stored, threads)
        blocks, owners, chunk_owners, boxes, box_owners, axes, offsets = (
            np.frombuffer(raw, dtype) for raw, dtype in zip(tables, _TABLES, strict=True)
        )
        window = Window(
            memory=memory,
            pieces=tuple(_piece(stored, *each) for each in pieces),
            input_size=input_size,
            blocks=blocks,
            block_owners=owners,
            chunk_owners=chunk_owners,
            boxes=boxes,
            box_owners=box_owners,
            axes=axes,
            offsets=offsets,
            room=room,
        )
        return window, refused


def _joined(parts: Sequence[Part], itemsize: int) -> Spans:
    """Return the ranges of bytes that the items of several parts lie in."""
    found = [items.spans(itemsize) for items in parts] or [_NO_SPANS]
    return Spans(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _piece(stored: Sequence[Stored], number: int, piece: int, start: int, stop: int) -> Buffer:
    """Return bytes of a chunk; for a number below zero, a value of so many bytes."""
    if number < 0:
        return NANS.get(-number, b"\0")
    chunk = cast(Buffer | ChunkPieces, stored[number])
    data = chunk.pieces[piece][1] if isinstance(chunk, ChunkPieces) else chunk
    return memoryview(data)[start:stop]

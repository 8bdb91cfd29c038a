"""Windows: the tables by which the kernels of a device decode chunks and move their items.

A window has the stored bytes of the blocks that are needed of some chunks, one behind the other,
and two tables. *Blocks* say how these bytes are decoded into two buffers of the device; *boxes* say
which of the decoded items go where in the result. The records of both are those of ``kernels.cu``.

Headers and block starts are checked here. A chunk that is not plainly sound, or that no kernel
decodes, is not taken: the caller decodes it by itself, or finds out what is wrong with it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.blosc import filters
from ingot.blosc.header import EXTENDED_HEADER_BYTES, EXTENSION_SLOTS, ChunkHeader
from ingot.errors import IngotError

__all__ = [
    "AXIS",
    "BLOCK",
    "BOX",
    "NANS",
    "UNIT_ITEMS",
    "BoxAxis",
    "Buffer",
    "ChunkPieces",
    "Spans",
    "Staged",
    "Window",
    "WindowBuilder",
    "block_numbers",
    "kernel_source",
    "needed_ranges",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
Ints: TypeAlias = NDArray[np.int64]

UNIT_ITEMS: Final = 4096
"""How many items of a box one warp moves."""

BLOCK: Final = np.dtype(
    [
        *((name, "<u8") for name in ("source", "source_end", "target", "reference")),
        ("direct", "<i8"),
        *((name, "<u4") for name in ("nbytes", "typesize", "streams", "first_stream")),
        *((name, "u1") for name in ("kind", "runs", "partial", "referring")),
        ("filters", "u1", EXTENSION_SLOTS),
        ("metas", "u1", EXTENSION_SLOTS),
    ]
)
"""The record of a block."""

BOX: Final = np.dtype(
    [
        *((name, "<i8") for name in ("source", "target")),
        ("items", "<u8"),
        *((name, "<u4") for name in ("first_axis", "axes", "itemsize", "side")),
        ("first_unit", "<u8"),
    ]
)
"""The record of a box."""

AXIS: Final = np.dtype(
    [
        ("count", "<u8"),
        *((name, "<i8") for name in ("source_step", "target_step", "source_table", "target_table")),
    ]
)
"""The record of an axis of a box."""

_PATTERN: Final = 1
_KINDS: Final = {"blosclz": 2, "lz4": 3}
_TURNING: Final = (filters.SHUFFLE, filters.BITSHUFFLE)
_UNDONE: Final = (filters.SHUFFLE, filters.BITSHUFFLE, filters.DELTA, filters.BYTEDELTA)
# By the numbers of filters: 1 for those that turn bytes around, many for others but none at all.
_UNDONE_WEIGHTS: Final = np.full(256, EXTENSION_SLOTS + 1, np.int64)
_UNDONE_WEIGHTS[[0, *_TURNING]] = 0, *(1 for _ in _TURNING)
# Decoded chunks begin at multiples of this, so that the kernels can store 16 bytes at once.
_ALIGNMENT: Final = 16
# Bytes that need no decoding are cut into parts of this size, each for one warp.
_PART: Final = 1 << 16
_NO_TABLE: Final = -1
# Reading up to this many unneeded bytes costs less than another read.
_SMALLEST_GAP: Final = 4096
NANS: Final = {size: np.array(np.nan, f"<f{size}").tobytes() for size in (4, 8)}
"""NaN, by its size."""


def kernel_source() -> str:
    """Return the kernels as CUDA C++.

    >>> "decode_streams" in kernel_source()
    True
    """
    return Path(__file__).with_name("kernels.cu").read_text("utf-8")


class Spans(NamedTuple):
    """Ranges of the decoded bytes of a chunk, as their first bytes and their ends; at least one."""

    begins: Ints
    ends: Ints

    def blocks(self, size: int) -> Ints:
        """Return the ascending numbers of the blocks of so many bytes that the ranges touch.

        >>> Spans(np.array([5, 42]), np.array([12, 43])).blocks(10)
        array([0, 1, 4])
        """
        if len(self.begins) == 1:
            return np.arange(int(self.begins[0]) // size, -(-int(self.ends[0]) // size))
        first, behind = self.begins // size, -(-self.ends // size)
        base = int(first.min())
        marks = np.zeros(int(behind.max()) - base + 1, np.int64)
        np.add.at(marks, first - base, 1)
        np.subtract.at(marks, behind - base, 1)
        return np.flatnonzero(np.cumsum(marks)) + base


class ChunkPieces(NamedTuple):
    """Some bytes of a stored chunk: its size, and pieces with the place of the first byte of each.

    The first piece begins with the chunk.

    >>> ChunkPieces(9, [(0, b"ab"), (4, b"efg")]).cut(5, 7)
    <memory at ...>
    """

    size: int
    pieces: Sequence[tuple[int, Buffer]]

    def cut(self, start: int, stop: int) -> memoryview | None:
        """Return the bytes from one place to another; None unless they lie in one piece."""
        for first, piece in self.pieces:
            if first <= start and stop <= first + len(piece):
                return memoryview(piece)[start - first : stop - first]
        return None


class Staged(NamedTuple):
    """A decoded chunk in the buffers of the device.

    `number` is that of the chunk in its window. `start` is where its first byte is, or would be:
    it is below zero where only later blocks are decoded. `side` is the buffer that has them at the
    end.
    """

    number: int
    start: int
    side: int


class BoxAxis(NamedTuple):
    """One axis of a box: steps in bytes, or the offsets of all items in bytes in place of them."""

    length: int
    source_step: int
    target_step: int
    source_offsets: Ints | None = None
    target_offsets: Ints | None = None

    def joins(self, inner: "BoxAxis") -> bool:
        """Return whether this axis and the next one step as one axis would.

        >>> BoxAxis(3, 20, 80).joins(BoxAxis(5, 4, 16))
        True
        """
        if any(each is not None for each in (*self[3:], *inner[3:])):
            return False
        same_source = self.source_step == inner.length * inner.source_step
        return same_source and self.target_step == inner.length * inner.target_step


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The tables and bytes of one run of the kernels."""

    memory: NDArray[np.uint8] | None
    """Memory with stored bytes, which come first on the device; its owner keeps it until then."""
    pieces: tuple[Buffer, ...]
    """The other stored bytes, which lie one behind the other on the device."""
    input_size: int
    """How many these are."""
    blocks: NDArray[Any]
    block_owners: NDArray[np.uint32]
    """The block of each stream."""
    chunk_owners: NDArray[np.uint32]
    """The chunk of each block, by the number that the caller gave it."""
    boxes: NDArray[Any]
    box_owners: NDArray[np.uint32]
    """The box of each unit of work."""
    axes: NDArray[Any]
    offsets: Ints
    room: int
    """The size of each of the two buffers for decoded bytes."""

    def write_input(self, out: NDArray[np.uint8]) -> None:
        """Write the stored bytes into memory that has room for them."""
        if self.memory is not None:
            out[: len(self.memory)] = self.memory
            out = out[len(self.memory) :]
        self.write_pieces(out)

    def write_pieces(self, out: NDArray[np.uint8]) -> None:
        """Write the stored bytes that are not in `memory` into other memory."""
        at = 0
        for piece in self.pieces:
            out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
            at += len(piece)

    @property
    def refers(self) -> bool:
        """Whether there are blocks that need others to be decoded first."""
        return bool(self.blocks["referring"].any())

    @property
    def filters(self) -> bool:
        """Whether there are filters to undo."""
        return bool(self.blocks["filters"].any())

    def failed(self, statuses: NDArray[np.uint32]) -> list[int]:
        """Return the chunks that have a stream whose status is not sound, in ascending order."""
        streams = np.flatnonzero(statuses)
        found: list[int] = np.unique(self.chunk_owners[self.block_owners[streams]]).tolist()
        return found


class WindowBuilder:
    """Collects chunks and boxes, and makes a window of them.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(range(250)) * 40, typesize=1, blocksize=1000)
    >>> builder = WindowBuilder()
    >>> spans = Spans(np.array([2500]), np.array([2600]))
    >>> staged = builder.add_chunk(0, chunk, 10_000, spans)
    >>> staged.start
    -2000
    >>> builder.add_box(staged, 2500, 0, 1, [BoxAxis(100, 1, 1)])
    >>> window = builder.build()
    >>> len(window.blocks), window.room, window.boxes["items"].tolist()
    (1, 1000, [100])
    """

    def __init__(self, memory: NDArray[np.uint8] | None = None) -> None:
        self._memory = memory
        self._input: list[Buffer] = []
        self._input_size = 0 if memory is None else len(memory)
        self._blocks: list[NDArray[Any]] = []
        self._chunk_owners: list[tuple[int, int]] = []
        self._boxes: list[tuple[int, ...]] = []
        self._box_chunks: list[int] = []
        self._axes: list[tuple[int, ...]] = []
        self._offsets: list[Ints] = []
        self._offset_count = 0
        self._common: tuple[object, ...] = ()
        self._record = np.zeros(1, BLOCK)
        self.room = 0

    def add_chunk(
        self, owner: int, chunk: Buffer | ChunkPieces, nbytes: int, spans: Spans
    ) -> Staged | None:
        """Add the blocks of a Blosc chunk that hold some of its `nbytes` decoded bytes.

        None where no kernel decodes the chunk, where its header and block starts are not sound,
        and where a block that is needed lies in no piece of it.
        """
        stored = chunk if isinstance(chunk, ChunkPieces) else ChunkPieces(len(chunk), [(0, chunk)])
        header = _sound_header(stored, nbytes)
        if header is None:
            return None
        if header.special != "none":
            return self._add_special(owner, header, stored, spans)
        if header.memcpyed:
            begin, end = int(spans.begins.min()), int(spans.ends.max())
            data = stored.cut(header.header_bytes + begin, header.header_bytes + end)
            return None if data is None else self.add_plain(owner, data, begin)
        return self._add_blocks(owner, header, stored, spans)

    def add_plain(self, owner: int, data: Buffer, begin: int = 0) -> Staged:
        """Add decoded bytes of a chunk, from byte `begin` of it on."""
        start = self._take_room(len(data))
        table = _parts(len(data), _PART)
        table["source"] = self._place_input(data) + table["target"]
        table["source_end"] = table["source"] + table["nbytes"]
        table["target"] += start
        self._append(owner, table)
        return Staged(len(self._blocks) - 1, start - begin, 0)

    def add_box(
        self, staged: Staged, source: int, target: int, itemsize: int, axes: Sequence[BoxAxis]
    ) -> None:
        """Add items, from byte `source` of a decoded chunk to byte `target` of the result.

        The axes have at least one item each, and the slowest comes first.
        """
        source += staged.start
        kept: list[BoxAxis] = []
        items = 1
        for axis in axes:
            items *= axis.length
            if axis.length == 1:
                source += 0 if axis.source_offsets is None else int(axis.source_offsets[0])
                target += 0 if axis.target_offsets is None else int(axis.target_offsets[0])
            elif kept and kept[-1].joins(axis):
                kept[-1] = axis._replace(length=kept[-1].length * axis.length)
            else:
                kept.append(axis)
        if not kept:
            kept.append(BoxAxis(1, itemsize, itemsize))
        first_axis = len(self._axes)
        for axis in kept:
            tables = self._add_offsets(axis.source_offsets), self._add_offsets(axis.target_offsets)
            self._axes.append((*axis[:3], *tables))
        side = staged.side
        self._boxes.append((source, target, items, first_axis, len(kept), itemsize, side, 0))
        self._box_chunks.append(staged.number)

    def build(self) -> Window:
        """Return the window of all that was added."""
        blocks = _joined(self._blocks, BLOCK)
        streams = blocks["streams"].astype(np.int64)
        blocks["first_stream"] = np.cumsum(streams) - streams
        boxes, axes = self._directed(blocks, np.array(self._boxes, BOX), np.array(self._axes, AXIS))
        units = -(-boxes["items"].astype(np.int64) // UNIT_ITEMS)
        boxes["first_unit"] = np.cumsum(units) - units
        owners = [np.full(count, owner, np.uint32) for owner, count in self._chunk_owners]
        return Window(
            memory=self._memory,
            pieces=tuple(self._input),
            input_size=self._input_size,
            blocks=blocks,
            block_owners=np.repeat(np.arange(len(blocks), dtype=np.uint32), streams),
            chunk_owners=_joined(owners, np.dtype(np.uint32)),
            boxes=boxes,
            box_owners=np.repeat(np.arange(len(boxes), dtype=np.uint32), units),
            axes=axes,
            offsets=_joined(self._offsets, np.dtype(np.int64)),
            room=self.room,
        )

    def _directed(
        self, blocks: NDArray[Any], boxes: NDArray[Any], axes: NDArray[Any]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Let blocks go to the result at once where one box wants all of their bytes as they lie.

        Return the boxes and axes that are left.
        """
        if not len(boxes):
            return boxes, axes
        chunks = np.array(self._box_chunks)
        first = axes[boxes["first_axis"]]
        sizes = boxes["itemsize"].astype(np.int64)
        runs = (boxes["axes"] == 1) & (np.bincount(chunks)[chunks] == 1)
        for side in ("source", "target"):
            runs &= (first[f"{side}_step"] == sizes) & (first[f"{side}_table"] == _NO_TABLE)
        if not runs.any():
            return boxes, axes
        box_of = np.full(len(self._blocks), -1)
        box_of[chunks[runs]] = np.flatnonzero(runs)
        owners = np.repeat(box_of, [len(table) for table in self._blocks])
        # The last box stands for none, and is left out again.
        lengths, own = boxes["items"].astype(np.int64) * sizes, boxes[owners]
        offsets = blocks["target"].astype(np.int64) - own["source"]
        ends = offsets + blocks["nbytes"]
        inside = (owners >= 0) & (offsets >= 0) & (ends <= lengths[owners])
        weights = _UNDONE_WEIGHTS[blocks["filters"]].sum(axis=1)
        inside &= weights == own["side"]
        targets = own["target"] + offsets
        # One part of a box goes to the result at once, or none: what is left are its ends.
        refused = np.zeros(len(boxes), np.bool_)
        refused[owners[inside & (targets % _ALIGNMENT != 0)]] = True
        inside &= ~refused[owners]
        blocks["direct"] = np.where(inside, targets, -1)
        begins, behind = lengths.copy(), np.zeros(len(boxes), np.int64)
        np.minimum.at(begins, owners[inside], offsets[inside])
        np.maximum.at(behind, owners[inside], ends[inside])
        reached = behind > 0
        heads, tails = boxes[reached & (begins > 0)], boxes[reached & (behind < lengths)]
        heads["items"] = begins[reached & (begins > 0)]
        shifts = behind[reached & (behind < lengths)]
        tails["items"] = lengths[reached & (behind < lengths)] - shifts
        tails["source"] += shifts
        tails["target"] += shifts
        rest = np.concatenate([heads, tails])
        # Blocks may end inside of items.
        rest["itemsize"] = 1
        rest["first_axis"] = len(axes) + np.arange(len(rest))
        added = np.zeros(len(rest), AXIS)
        added["count"] = rest["items"]
        added["source_step"] = added["target_step"] = 1
        added["source_table"] = added["target_table"] = _NO_TABLE
        return np.concatenate([boxes[~reached], rest]), np.concatenate([axes, added])

    def _add_blocks(
        self, owner: int, header: ChunkHeader, chunk: ChunkPieces, spans: Spans
    ) -> Staged | None:
        found = _extents(header, chunk)
        if found is None:
            return None
        starts, ends = found
        size, steps, numbers = header.block_bytes, _steps(header), _numbers(header, spans)
        data = _cut_joined(chunk, starts[numbers], ends[numbers])
        if data is None:
            return None
        # Delta refers to the first block, which lies by itself where later ones are wanted.
        apart = numbers[0] == 0 and len(numbers) > 1 and int(spans.begins.min()) >= size
        first, last = int(numbers[int(apart)]), int(numbers[-1])
        reference = self._take_room(size) if apart else 0
        start = self._take_room(min(header.nbytes, (last + 1) * size) - first * size) - first * size
        table = self._records(header, steps, len(numbers))
        table["target"] = start + numbers * size
        if apart:
            table["target"][0] = reference
        table["nbytes"] = np.minimum(size, header.nbytes - numbers * size)
        if header.nbytes < (last + 1) * size:
            table["streams"][-1] = 1
        if _has_delta(header):
            table["reference"] = table["target"][0]
            table["referring"] = numbers > 0
        begins, sizes = starts[numbers], ends[numbers] - starts[numbers]
        for first, last, piece in data:
            place = self._place_input(piece) - int(begins[first])
            table["source"][first:last] = begins[first:last] + place
        table["source_end"] = table["source"] + sizes.astype(np.uint64)
        self._append(owner, table)
        side = sum(number in _TURNING for number, _ in steps) % 2
        return Staged(len(self._blocks) - 1, start, side)

    def _records(
        self, header: ChunkHeader, steps: Sequence[tuple[int, int]], count: int
    ) -> NDArray[Any]:
        """Return records for blocks, with what all whole blocks of such chunks have in common."""
        streams = header.streams_of(0)
        kind, partial = _KINDS[header.codec], header.partial_bitshuffle
        common = (header.typesize, streams, kind, header.extended, partial, *steps)
        if common != self._common:
            record = np.zeros(1, BLOCK)
            record["typesize"], record["streams"], record["kind"] = header.typesize, streams, kind
            record["runs"], record["partial"], record["direct"] = header.extended, partial, -1
            for place, (number, meta) in enumerate(steps):
                record["filters"][:, place], record["metas"][:, place] = number, meta
            self._common, self._record = common, record
        return np.repeat(self._record, count)

    def _add_special(
        self, owner: int, header: ChunkHeader, chunk: ChunkPieces, spans: Spans
    ) -> Staged | None:
        """Add a chunk that repeats a value."""
        value: Buffer | None = b"\0"
        if header.special == "nan":
            value = NANS[header.typesize]
        elif header.special == "value":
            value = chunk.cut(EXTENDED_HEADER_BYTES, header.cbytes)
        if value is None:
            return None
        width, begin, end = len(value), int(spans.begins.min()), int(spans.ends.max())
        # Parts begin with the value, so that all of them repeat the same bytes.
        begin -= begin % width
        start = self._take_room(end - begin)
        table = _parts(end - begin, max(_PART // width, 1) * width)
        table["kind"] = _PATTERN
        table["source"] = self._place_input(value)
        table["source_end"] = table["source"] + width
        table["target"] += start
        self._append(owner, table)
        return Staged(len(self._blocks) - 1, start - begin, 0)

    def _take_room(self, size: int) -> int:
        """Return where so many decoded bytes begin."""
        start = -(-self.room // _ALIGNMENT) * _ALIGNMENT
        self.room = start + size
        return start

    def _append(self, owner: int, table: NDArray[Any]) -> None:
        self._blocks.append(table)
        self._chunk_owners.append((owner, len(table)))

    def _place_input(self, data: Buffer) -> int:
        """Return where some stored bytes begin: in the memory of the window, or behind it."""
        if self._memory is not None and len(data):
            start = _address(np.frombuffer(data, np.uint8)) - _address(self._memory)
            if start >= 0 and start + len(data) <= len(self._memory):
                return start
        self._input.append(data)
        self._input_size += len(data)
        return self._input_size - len(data)

    def _add_offsets(self, offsets: Ints | None) -> int:
        """Add a table of offsets, and return where it begins."""
        if offsets is None:
            return _NO_TABLE
        self._offsets.append(offsets)
        self._offset_count += len(offsets)
        return self._offset_count - len(offsets)


def needed_ranges(
    head: bytes, nbytes: int, spans: Spans
) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the size of a Blosc chunk, and the ranges of its bytes that hold decoded ones.

    `head` is its first bytes, and `nbytes` its decoded size. Neighbouring ranges are joined, small
    gaps included. None where that does not follow from the first bytes, or no kernel decodes it.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(range(250)) * 400, typesize=1, filters=[], blocksize=10_000)
    >>> size, ranges = needed_ranges(chunk[:100], 100_000, Spans(np.array([99]), np.array([100])))
    >>> size == len(chunk), ranges[0][0]
    (True, 56)
    """
    chunk = ChunkPieces(int.from_bytes(head[12:16], "little", signed=True), [(0, head)])
    header = _sound_header(chunk, nbytes)
    if header is None or header.special != "none":
        return None
    if header.memcpyed:
        begin, end = int(spans.begins.min()), int(spans.ends.max())
        return header.cbytes, [(header.header_bytes + begin, header.header_bytes + end)]
    found = _extents(header, chunk)
    if found is None:
        return None
    numbers = _numbers(header, spans)
    order = numbers[np.argsort(found[0][numbers])]
    starts, ends = found[0][order], found[1][order]
    cuts = np.flatnonzero(starts[1:] - ends[:-1] > _SMALLEST_GAP)
    firsts, lasts = np.append(0, cuts + 1), np.append(cuts, len(order) - 1)
    return header.cbytes, list(zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True))


def block_numbers(head: Buffer, spans: Spans) -> list[int]:
    """Return the blocks that decoding some bytes of a chunk takes, in ascending order.

    `head` is its sound header, or more.

    Of a chunk that is stored as it is, these are all from the first to the last one.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(range(250)) * 40, blocksize=1000)
    >>> block_numbers(chunk, Spans(np.array([2500, 9000]), np.array([4100, 9001])))
    [2, 3, 4, 9]
    """
    claim = int.from_bytes(memoryview(head)[12:16], "little")
    header = ChunkHeader.parse(head, stored=claim)
    if header.special != "none":
        return []
    if header.memcpyed:
        step = header.blocksize
        return list(range(int(spans.begins.min()) // step, -(-int(spans.ends.max()) // step)))
    found: list[int] = _numbers(header, spans).tolist()
    return found


def _sound_header(chunk: ChunkPieces, nbytes: int) -> ChunkHeader | None:
    """Return the header of a chunk of `nbytes` decoded bytes; None where no kernel decodes it."""
    try:
        header = ChunkHeader.parse(chunk.pieces[0][1], stored=chunk.size)
        header.check_decodable(nbytes)
    except IngotError:
        return None
    if header.nbytes != nbytes or not nbytes:
        return None
    if not header.block_count:
        return header
    plain = not header.variable and not header.has_dictionary
    return header if plain and header.codec in _KINDS else None


def _steps(header: ChunkHeader) -> list[tuple[int, int]]:
    """Return the filters of a chunk that a reader undoes, in the order of encoding."""
    return [step for step in header.pipeline if step[0] in _UNDONE]


def _has_delta(header: ChunkHeader) -> bool:
    return any(number == filters.DELTA for number, _ in header.pipeline)


def _numbers(header: ChunkHeader, spans: Spans) -> Ints:
    """Return the blocks that decoding some bytes takes, ascending; with delta also the first."""
    numbers = spans.blocks(header.block_bytes)
    return np.append(0, numbers) if numbers[0] and _has_delta(header) else numbers


def _extents(header: ChunkHeader, chunk: ChunkPieces) -> tuple[Ints, Ints] | None:
    """Return where the blocks of a chunk begin and end: at the next start, or with the chunk.

    None unless all starts are at hand, differ, and lie behind the starts themselves.
    """
    stored = chunk.cut(header.header_bytes, header.data_start)
    if stored is None:
        return None
    starts = np.frombuffer(stored, "<i4").astype(np.int64)
    ends = np.empty_like(starts)
    ends[:-1], ends[-1] = starts[1:], header.cbytes
    if starts[0] >= header.data_start and bool((starts < ends).all()):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    following = np.append(starts[order[1:]], header.cbytes)
    if starts[order[0]] < header.data_start or bool((following <= starts[order]).any()):
        return None
    ends[order] = following
    return starts, ends


def _cut_joined(
    chunk: ChunkPieces, starts: Ints, ends: Ints
) -> list[tuple[int, int, Buffer]] | None:
    """Return ranges of a chunk, those that follow each other as one; None unless all are there.

    In front of each piece are the numbers of its first range and of the one behind its last.
    """
    cuts = (np.flatnonzero(starts[1:] != ends[:-1]) + 1).tolist()
    found: list[tuple[int, int, Buffer]] = []
    for first, last in zip([0, *cuts], [*cuts, len(starts)], strict=True):
        piece = chunk.cut(int(starts[first]), int(ends[last - 1]))
        if piece is None:
            return None
        found.append((first, last, piece))
    return found


def _address(array: NDArray[np.uint8]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def _parts(size: int, step: int) -> NDArray[Any]:
    """Return blocks of up to `step` plain bytes; their targets count from 0."""
    begins = np.arange(0, size, step)
    table = np.zeros(len(begins), BLOCK)
    table["target"] = begins
    table["nbytes"] = np.minimum(step, size - begins)
    table["typesize"] = table["streams"] = 1
    table["direct"] = -1
    return table


def _joined(tables: Sequence[NDArray[Any]], dtype: np.dtype[Any]) -> NDArray[Any]:
    # As bytes: joining arrays of records compares their fields each time.
    joined = [table.view(np.uint8) for table in tables]
    return np.concatenate(joined).view(dtype) if tables else np.zeros(0, dtype)

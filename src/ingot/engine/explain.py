"""The cost of a selection, computed before anything is decoded.

Finds the chunks that a selection touches, what is stored for each, and which of its blocks and
bytes a read needs. Reads only the beginnings of chunks and moves no array data.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.checksums import DIGEST_BYTES
from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.engine import flat, plan
from ingot.engine.parts import SMALL_BYTES
from ingot.engine.plan import BoxRow, Row
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap
from ingot.schema import ArraySchema
from ingot.selection import Selection
from ingot.stores.store import Constant, Extent, Inline, Location, Store, first_bytes

__all__ = ["ChunkCost", "Explanation", "Reading", "explain"]

_MOST_CHUNKS: Final = 10_000
_MOST_LINES: Final = 12
# A gap between wanted blocks up to this size is read along.
_MOST_BEHIND: Final = 4096
"""The most bytes that are read behind a chunk in a slot, beside the checksums of its blocks."""
_GAP_BYTES: Final = 32 << 10
# Up to so many items of a chunk are looked up one by one, and so many blocks are counted.
_MOST_ITEMS: Final = 1 << 20
_MOST_BLOCKS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ChunkCost:
    """What a selection needs of one chunk.

    >>> ChunkCost((0, 1), "0.1", 900, 4, 900, None).constant
    False
    """

    coords: tuple[int, ...]
    key: str
    stored: int
    """The bytes that are stored for the chunk."""
    items: int
    """How many items of the chunk are selected."""
    read: int
    """How many bytes have to be read: the first 4096, which hold the block starts, and the blocks.

    All of a chunk where that is small, wanted for the most part, or not verified yet. The blocks
    alone of a chunk with a trailer that was read before."""
    blocks: tuple[int, int] | None
    """The number of blocks to decode and of all blocks; None where the codec has no blocks."""

    @property
    def constant(self) -> bool:
        """Whether nothing is stored: every item is the fill value."""
        return self.stored == 0


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """The cost of a selection, chunk by chunk; printed as a table."""

    shape: tuple[int, ...]
    """The shape of the result."""
    nbytes: int
    """The bytes of the result."""
    kernel: str
    """The kernel that decodes: "native" or "python"."""
    reason: str
    """Why this kernel decodes, or how it does."""
    chunks: int
    """How many chunks the selection touches."""
    costs: tuple[ChunkCost, ...]
    """The chunks that were inspected: all, or the first 10 000."""

    @property
    def read(self) -> int:
        """The bytes to read from the inspected chunks."""
        return sum(cost.read for cost in self.costs)

    @property
    def files(self) -> int:
        """How many keys hold the inspected chunks."""
        return len({cost.key for cost in self.costs if not cost.constant})

    @property
    def constants(self) -> int:
        """How many of the inspected chunks hold only the fill value."""
        return sum(cost.constant for cost in self.costs)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a dictionary that JSON can hold."""
        return {
            "shape": list(self.shape),
            "nbytes": self.nbytes,
            "kernel": self.kernel,
            "reason": self.reason,
            "chunks": self.chunks,
            "constant": self.constants,
            "files": self.files,
            "read": self.read,
            "costs": [
                {
                    "coords": list(cost.coords),
                    "key": cost.key,
                    "stored": cost.stored,
                    "items": cost.items,
                    "read": cost.read,
                    "blocks": None if cost.blocks is None else list(cost.blocks),
                }
                for cost in self.costs
            ],
        }

    @property
    def blocks(self) -> tuple[int, int]:
        """The number of blocks to decode and of all blocks, in the inspected chunks."""
        found = [cost.blocks for cost in self.costs if cost.blocks is not None]
        return sum(wanted for wanted, _ in found), sum(total for _, total in found)

    @property
    def shown(self) -> int:
        """How many chunks `table` has."""
        return min(len(self.costs), _MOST_LINES)

    def totals(self) -> dict[str, str]:
        """Return the cost of all inspected chunks, by names, as texts."""
        decoded, total = self.blocks
        stored = sum(cost.stored for cost in self.costs)
        texts = {
            "result": f"{list(self.shape)}, {self.nbytes:,} bytes",
            "kernel": f"{self.kernel}, {self.reason}",
            "chunks": f"{self.chunks:,}, {self.constants:,} of them constant",
            "blocks": f"{decoded:,} of {total:,} to decode",
            "read": f"{self.read:,} of {stored:,} stored bytes, in {_counted(self.files, 'file')}",
        }
        if self.chunks > len(self.costs):
            texts["inspected"] = f"the first {len(self.costs):,} chunks"
        return texts

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return the headings and the rows of a table of the first chunks."""
        rows = []
        for cost in self.costs[:_MOST_LINES]:
            coords, key, *rest = _line(cost)
            numbers = (f"{int(text):,}" if text.isdigit() else text for text in rest)
            rows.append((coords, key, *numbers))
        return ("chunk", "file", "items", "blocks", "read", "stored"), rows

    def _repr_html_(self) -> str:
        return _explanation_html(self.totals(), self.table(), self.chunks - self.shown)

    def __repr__(self) -> str:
        decoded, total = self.blocks
        lines = [
            f"{self.nbytes} bytes {list(self.shape)} by the {self.kernel} kernel, {self.reason}",
            f"{_counted(self.chunks, 'chunk')}, {self.constants} constant; {decoded} of "
            f"{total} blocks; {self.read} bytes to read of "
            f"{sum(cost.stored for cost in self.costs)} in {_counted(self.files, 'file')}",
        ]
        if self.chunks > len(self.costs):
            lines.append(f"(looked at the first {len(self.costs)} chunks)")
        rows = [_line(cost) for cost in self.costs[:_MOST_LINES]]
        header = ("chunk", "key", "items", "blocks", "read", "stored")
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        for row in (header, *rows):
            lines.append("  ".join(map(str.ljust, row, widths)).rstrip())
        if len(self.costs) > _MOST_LINES:
            lines.append(f"... and {len(self.costs) - _MOST_LINES} more")
        return "\n".join(lines)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How chunks are read: which parts of them are read, and which are decoded.

    >>> Reading().reads_parts
    False
    """

    reads_parts: bool = False
    """Whether blocks are read without the rest of a chunk."""
    decodes_parts: bool = False
    """Whether blocks are decoded without the others."""
    frames: bool = False
    """Whether blocks of chunks with a trailer are read without the rest."""
    is_verified: Callable[[Extent], bool] = lambda extent: True
    """Whether a chunk is read in part though it has a checksum."""
    is_known: Callable[[Extent], bool] = lambda extent: False
    """Whether what lies around the blocks of a chunk with a trailer is not read again."""
    whole_from: Callable[[int], int] | None = None
    """From how many bytes on of so many the whole of a chunk is read."""


def explain(
    chunks: ChunkMap,
    selection: Selection,
    kernel: str,
    reason: str,
    count: int,
    reading: Reading,
) -> Explanation:
    """Return the cost of reading `selection`, which touches `count` chunks."""
    schema, every = chunks.schema, plan.rows(selection, chunks.schema.grid)
    nbytes = math.prod(selection.shape) * schema.dtype.itemsize
    parts = 1
    if schema.flat is not None:
        every = _run_rows(selection, schema)
        schema, itemsize = schema.payload, schema.dtype.itemsize
        parts = itemsize // schema.dtype.itemsize
    coding = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype))
    rows = list(islice(every, _MOST_CHUNKS))
    locations = chunks.locate(plan.coordinates(rows, len(schema.shape)))
    located = zip(rows, locations, strict=True)
    source = _Source(chunks.store, schema, coding, reading)
    costs = (_cost(source, row, location) for row, location in located)
    # An item that lies in two chunks counts for both.
    whole = tuple(replace(cost, items=-(-cost.items // parts)) for cost in costs)
    return Explanation(selection.shape, nbytes, kernel, reason, count, whole)


class _Source(NamedTuple):
    """Chunks, and how they are stored and read."""

    store: Store
    schema: ArraySchema
    coding: NativeCoding | None
    reading: Reading


def _run_rows(selection: Selection, schema: ArraySchema) -> Iterator[Row]:
    """Yield what a selection of a flat array wants of each chunk of its payload."""
    if 0 in selection.engine_shape:
        return
    (size,), (step,) = schema.payload.shape, schema.payload.chunks
    runs = flat.cut(flat.without_repeats(selection, schema.shape)[0], schema)
    for number in runs.touched(step):
        begin = number * step
        parts = [source for source, _ in runs.parts(begin, min(begin + step, size))]
        index = parts[0]
        if len(parts) > 1:
            listed = [
                np.arange(part.start, part.stop) if isinstance(part, slice) else part
                for part in parts
            ]
            index = np.concatenate(listed)
        count = index.stop - index.start if isinstance(index, slice) else len(index)
        yield BoxRow((number,), (index,), (slice(0, count),), (count,))


def _cost(source: _Source, row: Row, location: Location) -> ChunkCost:
    if isinstance(location, Constant):
        return ChunkCost(row.coords, "", 0, row.size, 0, None)
    if isinstance(location, Inline):
        return ChunkCost(row.coords, "", len(location.data), row.size, 0, None)
    stored = _stored_bytes(source.store, location)
    read, blocks = stored, None
    coding = source.coding
    if (
        coding is not None
        and coding.kind in ("blosc", "blosc2")
        and isinstance(row, BoxRow)
        and stored
    ):
        read, blocks = _blosc_cost(source, coding, location, stored, row)
    return ChunkCost(row.coords, location.key, stored, row.size, read, blocks)


def _stored_bytes(store: Store, extent: Extent) -> int:
    size = store.size(extent.key)
    if size is None:
        return 0
    return max(size - extent.start, 0) if extent.length is None else extent.length


def _blosc_cost(
    source: _Source, coding: NativeCoding, extent: Extent, stored: int, row: BoxRow
) -> tuple[int, tuple[int, int] | None]:
    schema, reading = source.schema, source.reading
    skipped, digest = schema.chain.head_bytes, DIGEST_BYTES[coding.digest]
    first = first_bytes(source.store)
    beginning = Extent(extent.key, extent.start + skipped, min(stored, first))
    head = source.store.read([beginning])[0] or b""
    # Behind a chunk in a chunk file or a slot lies a trailer, behind others perhaps a checksum.
    framed = skipped > 0 or coding.slotted
    size = int.from_bytes(head[12:HEADER_BYTES], "little") if framed else stored - digest
    try:
        header = ChunkHeader.parse(head, size)
    except IngotError:
        return stored, None
    total = header.block_count
    if total > _MOST_BLOCKS:
        return stored, None
    shape = schema.grid.stored_shape(row.coords)
    wanted = touched_blocks(row, shape, coding.axes, schema.dtype.itemsize, header)
    blocks = None
    if total:
        decoded = len(wanted) if reading.decodes_parts else total
        blocks = min(decoded, total), total
    parts = reading.frames if framed else reading.reads_parts
    if not parts or not reading.is_verified(extent):
        return stored, blocks
    # From here on a checksum behind the chunk is not read; a trailer is, until it is known.
    known = framed and reading.is_known(extent)
    most = size if known else stored - digest
    wanted_bytes = _box_items(row) * schema.dtype.itemsize
    small = most <= max(SMALL_BYTES, first) or wanted_bytes * 3 >= header.nbytes
    if small or header.special != "none" or header.has_dictionary or header.variable:
        return most, blocks
    spans = _spans(row, shape, coding.axes, schema.dtype.itemsize, header, head, size, framed)
    if spans is None or header.data_start > first - skipped:
        return most, blocks
    needed = sum(stop - start for start, stop in spans)
    if reading.whole_from is not None and needed >= reading.whole_from(size):
        return stored, blocks
    if known:
        return needed, blocks
    behind = stored - digest - skipped - size
    if coding.slotted:
        behind = min(behind, 4 * total + _MOST_BEHIND)
    return first + behind + needed, blocks


def _spans(
    row: BoxRow,
    shape: tuple[int, ...],
    axes: Iterable[int],
    itemsize: int,
    header: ChunkHeader,
    head: bytes,
    size: int,
    framed: bool,
) -> list[tuple[int, int]] | None:
    """Return the ranges of a chunk that are read for all from the first to the last wanted item.

    None where the block starts do not say: a read raises the error.
    """
    first, last = _ends(row, shape, axes) * itemsize + (0, itemsize)
    total, unit = header.block_count, header.block_bytes
    if header.memcpyed:
        if framed:  # Each block has a checksum in the trailer.
            first, last = first // unit * unit, min(-(-last // unit) * unit, header.nbytes)
        return [(header.data_start + int(first), header.data_start + int(last))]
    table = head[header.data_start - 4 * total : header.data_start]
    if not total or len(table) < 4 * total or int(last) > header.nbytes:
        return None
    starts = np.frombuffer(table, "<i4")
    if starts.min() < header.data_start or starts.max() >= size:
        return None
    ends = np.append(np.sort(starts), size)
    stops = ends[np.searchsorted(ends, starts, side="right")]
    chosen = slice(int(first) // unit, (int(last) - 1) // unit + 1)
    spans: list[tuple[int, int]] = []
    for start, stop in zip(starts[chosen].tolist(), stops[chosen].tolist(), strict=True):
        if spans and 0 <= start - spans[-1][1] <= _GAP_BYTES:
            spans[-1] = spans[-1][0], stop
        else:
            spans.append((start, stop))
    return spans


def _inside(row: BoxRow, shape: tuple[int, ...], axis: int) -> range | list[int]:
    """Return the positions along an axis of a chunk."""
    index = row.source[axis]
    return range(shape[axis])[index] if isinstance(index, slice) else index.tolist()


def _ends(row: BoxRow, shape: tuple[int, ...], axes: Iterable[int]) -> NDArray[np.int64]:
    """Return the positions of the first and the last item of a row in a chunk."""
    ends = np.zeros(2, np.int64)
    for axis in axes:
        inside = _inside(row, shape, axis)
        ends = ends * shape[axis] + (min(inside), max(inside))
    return ends


def _box_items(row: BoxRow) -> int:
    """Return how many items the kernel decodes of a chunk: those of the box around index arrays."""
    counts = (
        count if isinstance(index, slice) else int(index.max() - index.min()) + 1
        for index, count in zip(row.source, row.items, strict=True)
    )
    return math.prod(counts)


def touched_blocks(
    row: BoxRow,
    chunk: tuple[int, ...],
    axes: Iterable[int],
    itemsize: int,
    header: ChunkHeader,
) -> NDArray[np.int64]:
    """Return the ascending numbers of the blocks that hold the items of a row."""
    if not header.block_count:
        return np.empty(0, np.int64)
    if row.size > _MOST_ITEMS:
        # All blocks from the first item to the last.
        ends = _ends(row, chunk, axes)
        first, last = (ends * itemsize + (0, itemsize - 1)) // header.block_bytes
        return np.arange(first, last + 1)
    positions = np.zeros(1, np.int64)
    for axis in axes:
        index = row.source[axis]
        inside = np.array(range(chunk[axis])[index] if isinstance(index, slice) else index)
        positions = (positions[:, None] * chunk[axis] + inside).reshape(-1)
    first = positions * itemsize // header.block_bytes
    last = (positions * itemsize + itemsize - 1) // header.block_bytes
    return np.unique(np.concatenate([first, last]))


def _explanation_html(
    totals: dict[str, str], table: tuple[tuple[str, ...], list[tuple[str, ...]]], more: int
) -> str:
    """Return an explanation as HTML: totals, and a table whose numbers are at the right."""
    left, right = (f'style="text-align:{side};padding-right:1em"' for side in ("left", "right"))
    pairs = "".join(
        f"<tr><th {left}>{_escaped(name)}</th><td {left}>{_escaped(text)}</td></tr>"
        for name, text in totals.items()
    )
    headings, rows = table
    sides = [left if number < 2 else right for number in range(len(headings))]
    lines = [("th", headings), *(("td", row) for row in rows)]
    body = "".join(
        "<tr>"
        + "".join(
            f"<{tag} {side}>{_escaped(cell)}</{tag}>"
            for side, cell in zip(sides, cells, strict=True)
        )
        + "</tr>"
        for tag, cells in lines
    )
    rest = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return f"<table>{pairs}</table><table>{body}</table>{rest}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _line(cost: ChunkCost) -> tuple[str, ...]:
    blocks = "" if cost.blocks is None else f"{cost.blocks[0]}/{cost.blocks[1]}"
    stored = "constant" if cost.constant else str(cost.stored)
    return str(cost.coords), cost.key, str(cost.items), blocks, str(cost.read), stored

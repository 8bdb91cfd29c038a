"""What a selection will cost, told before anything is decoded.

Knows which chunks a selection touches, what is stored for each, and which of its blocks and bytes
a read needs; reads nothing but the heads of chunks. Refuses to know how data is moved.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import ChunkHeader
from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.engine import plan
from ingot.engine.plan import BoxRow, Row
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap
from ingot.schema import ArraySchema
from ingot.selection import Selection
from ingot.stores.store import Constant, Extent, Inline, Location, Store

__all__ = ["ChunkCost", "Explanation", "explain"]

_MOST_CHUNKS: Final = 10_000
_MOST_LINES: Final = 12
_HEAD_BYTES: Final = 4096
_HEADER_BYTES: Final = 16
_FRAME_BYTES: Final = 16


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
    """How many items the selection wants of it."""
    read: int
    """How many bytes have to be read for them."""
    blocks: tuple[int, int] | None
    """How many blocks have to be decoded, of how many; None where the codec has no blocks."""

    @property
    def constant(self) -> bool:
        """Whether nothing is stored: every item is the fill value."""
        return self.stored == 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The cost of a selection, chunk by chunk; `str` makes a table of it."""

    shape: tuple[int, ...]
    """The shape of the result."""
    nbytes: int
    """The bytes of the result."""
    kernel: str
    """Who carries it out: "native" in one call, or "python" row by row."""
    chunks: int
    """How many chunks the selection touches."""
    costs: tuple[ChunkCost, ...]
    """The chunks that were looked at: all, or the first 10 000."""

    @property
    def read(self) -> int:
        """The bytes to read from the chunks that were looked at."""
        return sum(cost.read for cost in self.costs)

    @property
    def files(self) -> int:
        """How many keys hold them."""
        return len({cost.key for cost in self.costs if not cost.constant})

    @property
    def constants(self) -> int:
        """How many of them are nothing but the fill value."""
        return sum(cost.constant for cost in self.costs)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {
            "shape": list(self.shape),
            "nbytes": self.nbytes,
            "kernel": self.kernel,
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

    def __str__(self) -> str:
        blocks = [cost.blocks for cost in self.costs if cost.blocks is not None]
        decoded = sum(wanted for wanted, _ in blocks)
        lines = [
            f"{self.nbytes} bytes {list(self.shape)} by the {self.kernel} kernel",
            f"{self.chunks} chunks, {self.constants} constant; {decoded} of "
            f"{sum(total for _, total in blocks)} blocks; {self.read} bytes to read of "
            f"{sum(cost.stored for cost in self.costs)} in {self.files} files",
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


def explain(chunks: ChunkMap, selection: Selection, kernel: str, count: int) -> Explanation:
    """Return what reading `selection`, which touches `count` chunks, will cost."""
    schema = chunks.schema
    recipe = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype))
    rows = list(islice(plan.rows(selection, schema.grid), _MOST_CHUNKS))
    places = chunks.locate(plan.coordinates(rows, len(schema.shape)))
    located = zip(rows, places, strict=True)
    costs = tuple(_cost(chunks.store, schema, recipe, row, place) for row, place in located)
    nbytes = math.prod(selection.shape) * schema.dtype.itemsize
    return Explanation(selection.shape, nbytes, kernel, count, costs)


def _cost(
    store: Store, schema: ArraySchema, recipe: NativeCoding | None, row: Row, place: Location
) -> ChunkCost:
    if isinstance(place, Constant):
        return ChunkCost(row.coords, "", 0, row.size, 0, None)
    if isinstance(place, Inline):
        return ChunkCost(row.coords, "", len(place.data), row.size, 0, None)
    stored = _stored_bytes(store, place)
    read, blocks = stored, None
    if recipe is not None and recipe.kind == "blosc" and isinstance(row, BoxRow) and stored:
        read, blocks = _blosc_cost(store, place, stored, schema, recipe, row)
    return ChunkCost(row.coords, place.key, stored, row.size, read, blocks)


def _stored_bytes(store: Store, place: Extent) -> int:
    size = store.size(place.key)
    if size is None:
        return 0
    return max(size - place.start, 0) if place.length is None else place.length


def _blosc_cost(
    store: Store, place: Extent, stored: int, schema: ArraySchema, recipe: NativeCoding, row: BoxRow
) -> tuple[int, tuple[int, int] | None]:
    frame = _FRAME_BYTES if recipe.framed else 0
    (head,) = store.read([Extent(place.key, place.start + frame, min(stored, _HEAD_BYTES))])
    # Beside a chunk in a frame lies what is always read.
    size = int.from_bytes((head or b"")[12:_HEADER_BYTES], "little") if frame else stored
    try:
        header = ChunkHeader.parse(head or b"", size)
    except IngotError:
        return stored, None
    total = header.block_count
    shape = schema.grid.stored_shape(row.coords)
    wanted = touched_blocks(row, shape, recipe.axes, schema.dtype.itemsize, header)
    if header.memcpyed or not total:
        return stored, None
    table = (head or b"")[header.data_start - 4 * total : header.data_start]
    if wanted[-1] >= total or len(wanted) == total or len(table) < 4 * total:
        return stored, (min(len(wanted), total), total)
    starts = np.frombuffer(table, "<i4")
    if starts.min() < header.data_start or starts.max() >= size:
        return stored, None  # Reading will say what is wrong with them.
    ends = np.append(np.sort(starts), size)
    sizes = ends[np.searchsorted(ends, starts, side="right")] - starts
    return stored - size + header.data_start + int(sizes[wanted].sum()), (len(wanted), total)


def touched_blocks(
    row: BoxRow,
    chunk: tuple[int, ...],
    axes: Iterable[int],
    itemsize: int,
    header: ChunkHeader,
) -> NDArray[np.int64]:
    """Return the numbers of the blocks that hold the items of a row, ascending."""
    if not header.block_count:
        return np.empty(0, np.int64)
    positions = np.zeros(1, np.int64)
    for axis in axes:
        index = row.source[axis]
        inside = np.arange(chunk[axis])[index]
        positions = (positions[:, None] * chunk[axis] + inside).reshape(-1)
    first = positions * itemsize // header.block_bytes
    last = (positions * itemsize + itemsize - 1) // header.block_bytes
    return np.unique(np.concatenate([first, last]))


def _line(cost: ChunkCost) -> tuple[str, ...]:
    blocks = "" if cost.blocks is None else f"{cost.blocks[0]}/{cost.blocks[1]}"
    stored = "constant" if cost.constant else str(cost.stored)
    return str(cost.coords), cost.key, str(cost.items), blocks, str(cost.read), stored

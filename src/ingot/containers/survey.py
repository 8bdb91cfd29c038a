"""The survey of an array: what is stored for each chunk, and what state it is in.

Only locations, sizes and the first bytes of chunks are read, unless their items are asked for.
"""

import math
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import ChunkSpec
from ingot.engine.flat import PayloadMap
from ingot.engine.run import Engine
from ingot.engine.stored_size import location_bytes
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.store import Constant, Extent, Store

__all__ = ["CONSTANT", "DAMAGED", "LOST", "STATES", "STORED", "UNSTORED", "ArraySurvey", "survey"]

STORED: Final = 0
CONSTANT: Final = 1
UNSTORED: Final = 2
LOST: Final = 3
DAMAGED: Final = 4

STATES: Final = ("stored", "constant", "not stored: the fill value", "lost", "damaged")
"""What the numbers of states mean."""

_MOST_HEADERS: Final = 20_000
"""The beginnings of more chunks are not read."""
_MOST_SHOWN: Final = 2000
"""The items of more chunks are not shown."""
_SHOWN_ITEMS: Final = 24
_WINDOW: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class ArraySurvey:
    """What is known of the chunks of an array, one entry for each, in the order of their numbers.

    >>> import ingot
    >>> array = ingot.create(shape=100, dtype="u1", chunks=40, codec="none", checksum=False)
    >>> array[:30] = 7
    >>> found = array.survey()
    >>> found.counts, found.state.tolist(), found.stored.tolist(), found.plain.tolist()
    ((3,), [0, 2, 2], [40, 0, 0], [40, 40, 20])
    """

    counts: tuple[int, ...]
    """The number of chunks along each axis; one axis where chunks are runs of bytes."""
    state: NDArray[np.uint8]
    """What state a chunk is in; `STATES` has the words."""
    stored: NDArray[np.int64]
    """The bytes that are stored for a chunk."""
    plain: NDArray[np.int64]
    """The bytes of its items inside the array."""
    start: NDArray[np.int64]
    """Where in its file it starts."""
    file: NDArray[np.int32]
    """Which of the files it lies in; -1 where nothing is stored."""
    files: tuple[str, ...]
    sizes: tuple[int, ...]
    """The bytes of each file, where files hold several chunks; what no chunk has is the index of
    the file, spare, or dead."""
    codec: NDArray[np.int16]
    """Which of the codecs it was encoded by; -1 where that is not known."""
    codecs: tuple[str, ...]
    smallest: tuple[str, ...] | None
    """The smallest item of each chunk as text; None where the items were not read."""
    largest: tuple[str, ...] | None
    shown: tuple[str, ...]
    """The first items of each chunk as text, or what is wrong with it; empty where not read."""

    @property
    def ratio(self) -> NDArray[np.float64]:
        """How many times smaller each chunk is than its items; 0 where nothing is stored."""
        return np.divide(
            self.plain, self.stored, out=np.zeros(len(self.stored)), where=self.stored > 0
        )


def survey(engine: Engine, *, read: bool = False) -> ArraySurvey:
    """Return what is stored for each chunk; `read` decodes them, which finds damage."""
    chunks: ChunkMap = engine.chunks
    flat = chunks.schema.flat is not None
    if flat:
        chunks = PayloadMap.of(chunks)
    schema = chunks.schema
    grid, total = schema.grid, schema.grid.chunk_count
    found = _Places(total)
    for first in range(0, total, _WINDOW):
        numbers = range(first, min(first + _WINDOW, total))
        coords = np.stack(np.unravel_index(np.array(numbers), grid.counts or (1,)), -1)
        coords = coords[:, : len(grid.counts)].astype(np.int64)
        for number, location in zip(numbers, chunks.locate(coords), strict=True):
            found.add(number, location, chunks, sparse=schema.sparse)
    _note_lost(found, engine)
    _look_at_headers(found, chunks, schema)
    texts = _Items(total)
    if read:
        for number in range(total):
            _look_at_items(number, engine, schema, found, texts, flat=flat)
    return ArraySurvey(
        grid.counts or (1,),
        found.state,
        found.stored,
        _plain_bytes(schema),
        found.start,
        found.file,
        tuple(found.files),
        found.sizes(chunks.store),
        found.codec,
        tuple(found.codecs),
        tuple(texts.smallest) if read else None,
        tuple(texts.largest) if read else None,
        tuple(texts.shown) if read else (),
    )


class _Places:
    """Where chunks lie, while they are looked at."""

    def __init__(self, total: int) -> None:
        self.state = np.zeros(total, np.uint8)
        self.stored = np.zeros(total, np.int64)
        self.start = np.zeros(total, np.int64)
        self.file = np.full(total, -1, np.int32)
        self.codec = np.full(total, -1, np.int16)
        self.files: dict[str, int] = {}
        self.codecs: dict[str, int] = {}

    def add(self, number: int, location: Any, chunks: ChunkMap, *, sparse: bool) -> None:
        """Note where a chunk lies, and how many bytes it has."""
        if isinstance(location, Constant):
            self.state[number] = UNSTORED if sparse else CONSTANT
            return
        size = location_bytes(chunks.store, location)
        self.stored[number] = size
        if not size:
            self.state[number] = UNSTORED if sparse else LOST
        elif isinstance(location, Extent):
            self.start[number] = location.start
            self.file[number] = self.files.setdefault(location.key, len(self.files))

    def sizes(self, store: Store) -> tuple[int, ...]:
        """Return the bytes of each file; none where every chunk has its own."""
        if len(self.files) >= np.count_nonzero(self.file >= 0):
            return ()
        return tuple(store.size(key) or 0 for key in self.files)


class _Items:
    """Texts of items, while chunks are read."""

    def __init__(self, total: int) -> None:
        self.smallest = [""] * total
        self.largest = [""] * total
        self.shown = [""] * total


def _note_lost(found: _Places, engine: Engine) -> None:
    """Note the chunks that a manifest names and that are not stored."""
    lost, grid = engine.lost_chunks(), engine.chunks.schema.grid
    for failure in lost:
        unit = engine.unit() or (1,) * len(failure.coords)
        box = zip(failure.coords, unit, grid.counts, strict=True)
        ranges = [range(first, min(first + length, count)) for first, length, count in box]
        for coords in product(*ranges):
            found.state[grid.linear(coords)] = LOST


def _plain_bytes(schema: ArraySchema) -> NDArray[np.int64]:
    """Return the bytes of the items of each chunk that lie inside the array."""
    sizes = np.array([schema.dtype.itemsize], np.int64)
    for axis, (length, count) in enumerate(zip(schema.shape, schema.grid.counts, strict=True)):
        starts = [
            schema.grid.box(tuple(each if at == axis else 0 for at in range(len(schema.shape))))
            for each in (range(count) if schema.rectilinear else ())
        ]
        if starts:
            lengths = np.array([box[axis].stop - box[axis].start for box in starts])
        else:
            chunk = schema.chunks[axis]
            lengths = np.full(count, chunk)
            if count:
                lengths[-1] = length - (count - 1) * chunk
        sizes = (sizes[:, None] * lengths).reshape(-1)
    return sizes


def _look_at_headers(found: _Places, chunks: ChunkMap, schema: ArraySchema) -> None:
    """Read the headers of Blosc chunks: their codec, and whether they are constant."""
    coding = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype))
    numbers = np.flatnonzero(found.file >= 0)
    if coding is None or coding.kind not in ("blosc", "blosc2") or len(numbers) > _MOST_HEADERS:
        return
    names = tuple(found.files)
    skipped = schema.chain.head_bytes
    for first in range(0, len(numbers), _WINDOW):
        window = numbers[first : first + _WINDOW].tolist()
        extents = [
            Extent(names[found.file[n]], int(found.start[n]) + skipped, EXTENDED_HEADER_BYTES)
            for n in window
        ]
        for number, head in zip(window, chunks.store.read(extents), strict=True):
            _note_header(found, number, head or b"")


def _note_header(found: _Places, number: int, head: bytes) -> None:
    try:
        stored = int.from_bytes(head[12:16], "little")
        header = ChunkHeader.parse(head, stored)
    except IngotError:
        found.state[number] = DAMAGED
        return
    name = "stored as it is" if header.memcpyed else header.codec
    if header.special != "none":
        name = f"special: {header.special}"
        found.state[number] = CONSTANT
    elif header.filter != "none" and not header.memcpyed:
        name = f"{name}, {header.filter}"
    found.codec[number] = found.codecs.setdefault(name, len(found.codecs))


def _look_at_items(
    number: int,
    engine: Engine,
    schema: ArraySchema,
    found: _Places,
    texts: _Items,
    *,
    flat: bool,
) -> None:
    """Decode a chunk; note its smallest and largest item, or what is wrong with it."""
    if found.state[number] == LOST:
        return
    try:
        items = np.asarray(
            engine.read(parse((*_key(number, engine, schema, flat), ...), engine.shape))
        )
    except IngotError as error:
        found.state[number] = DAMAGED
        texts.shown[number] = str(error)
        return
    if items.dtype.kind in "biufmM" and items.size:
        real = items[~np.isnan(items)] if items.dtype.kind in "fmM" else items
        if real.size:
            texts.smallest[number], texts.largest[number] = str(real.min()), str(real.max())
            if real.size == items.size and real.min() == real.max() and not found.state[number]:
                found.state[number] = CONSTANT
    if len(texts.shown) <= _MOST_SHOWN:
        texts.shown[number] = _first_items(items)


def _key(number: int, engine: Engine, schema: ArraySchema, flat: bool) -> tuple[slice, ...]:
    """Return the key of the items of a chunk; of a run of bytes, of the rows that it touches."""
    if not flat:
        return schema.grid.box(schema.grid.coords(number))
    own = engine.chunks.schema
    assert own.flat is not None
    if not own.shape or own.order == "F":
        return ()
    row = max(1, own.dtype.itemsize * math.prod(own.shape[1:]))
    first = number * own.flat.chunk_bytes
    return (slice(first // row, -(-(first + own.flat.chunk_bytes) // row)),)


def _first_items(items: NDArray[Any]) -> str:
    """Return the first items as text: a corner of a table of rows, or a run."""
    if items.ndim >= 2:
        corner = items[(0,) * (items.ndim - 2)][:6, :6]
        return np.array2string(corner, max_line_width=100)
    return np.array2string(items.reshape(-1)[:_SHOWN_ITEMS], max_line_width=60)

"""Parts of chunks in stores without files: header and block starts first, then the blocks needed.

A selection that wants little of its chunks takes two batches of reads, whatever the number of
chunks: the first bytes of all chunks, then the blocks that hold what is wanted. The kernel says
which bytes these are, and decodes from the pieces. A chunk whose checksum was not compared yet is
read as a whole, once for each identity of its key. So is one that comes sooner than a second batch.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.checksums import DIGEST_BYTES
from ingot.codecs.codec import NativeCoding
from ingot.errors import CorruptionError
from ingot.formats.format import ChunkMap
from ingot.schema import ArraySchema
from ingot.stores.store import (
    Constant,
    Extent,
    Feature,
    Inline,
    SteadyReader,
    bytes_at_once,
    first_bytes,
    steady_reader,
)
from ingot.stores.versions import versioned

__all__ = [
    "SMALL_BYTES",
    "Ask",
    "Checked",
    "Needed",
    "PartReader",
    "constant",
    "locate",
    "settle",
    "whole_from",
]

SMALL_BYTES: Final = 16 << 10
"""Chunks up to this size are read as a whole."""

# The most chunks that are remembered; when there are more, all are forgotten.
_MOST_VERIFIED: Final = 1 << 16

Ints: TypeAlias = NDArray[np.int64]

Checked: TypeAlias = tuple[Hashable, str, int]
"""A chunk whose checksum is compared: the identity of its key, the key, and its first byte."""

Needed: TypeAlias = tuple[int, list[tuple[int, int]]] | None
"""The size of a chunk in front of its checksum or trailer, and the ranges that are needed; None for
all."""

Ask: TypeAlias = Callable[[Sequence[int], Sequence[bytes]], Sequence[Needed]]
"""Returns which bytes chunks need, by their places in a batch and their first bytes."""


class PartReader:
    """Reads what a selection needs of chunks, and remembers which of them are verified."""

    __slots__ = (
        *("_chunks", "_digest", "_first", "_framed", "_nbytes", "_slowest", "_verified"),
        "_verify",
    )

    def __init__(self, chunks: ChunkMap, coding: NativeCoding, verify: str) -> None:
        self._chunks = chunks
        self._first = first_bytes(chunks.store)
        self._nbytes = math.prod(chunks.schema.chunks) * chunks.schema.dtype.itemsize
        self._digest = DIGEST_BYTES[coding.digest]
        self._framed = coding.framed
        self._slowest = coding.axes[0]
        self._verify = verify
        self._verified: set[Checked] = set()

    @staticmethod
    def serves(chunks: ChunkMap, coding: NativeCoding) -> bool:
        """Return whether parts of the chunks of an array can be read."""
        schema = chunks.schema
        size = math.prod(schema.chunks) * schema.dtype.itemsize
        ranged = Feature.RANGES in chunks.store.features
        if coding.framed and hasattr(chunks.store, "locate_bytes"):
            return False  # The kernel itself reads parts of the file.
        plain = coding.kind == "blosc" and not coding.slotted
        return ranged and plain and size > SMALL_BYTES

    def fetch(self, coords: Ints, ask: Ask) -> tuple[list["native.HeldChunk"], list[Checked]]:
        """Return what the kernel needs of chunks, and those whose checksum it will compare.

        Two batches of reads; a third one only where the bytes of a chunk are not what its header
        says, which the kernel then reports.
        """
        chunks = self._chunks
        held, wanted = locate(chunks, coords)
        if Feature.HELD in chunks.store.features:
            return held, self._hold(coords, wanted, held)
        whole: dict[int, Extent] = {}
        identities = self._identities(wanted)
        first: list[Extent] = []
        checked: list[Checked] = []
        soon = bytes_at_once(chunks.store) // max(len(wanted), 1)
        for place, extent in wanted:
            if (
                identities.get(extent.key, ...) is None
                or self._most(extent) <= soon
                or self._reads_whole(extent, checked)
            ):
                whole[place] = extent
                first.append(extent)
            else:
                first.append(Extent(extent.key, extent.start, self._first))
        heads: dict[int, tuple[Extent, bytes]] = {}
        source = steady_reader(chunks.store)
        found = source.read(first)
        for (place, extent), data in zip(wanted, found, strict=True):
            if data is None or place in whole or len(data) < self._first:
                held[place] = settle(chunks, coords[place], extent, data)
            else:
                heads[place] = extent, data
        if heads:
            self._fetch_blocks(source, coords, heads, ask, identities, held)
        return held, checked

    def _most(self, extent: Extent) -> int:
        """Return how long a chunk can be; what is longer than its items is rare."""
        return self._nbytes if extent.length is None else extent.length

    def _identities(self, wanted: Sequence[tuple[int, Extent]]) -> dict[str, Hashable]:
        """Return the identities of keys, where only they show that a key changed between two reads.

        The versions of a store show that to the reader; such a store needs no identities.
        """
        store = self._chunks.store
        if versioned(store) is not None:
            return {}
        return {key: store.identity(key) for key in {extent.key for _, extent in wanted}}

    def _hold(
        self,
        coords: Ints,
        wanted: Sequence[tuple[int, Extent]],
        held: list["native.HeldChunk"],
    ) -> list[Checked]:
        """Read whole chunks, which is not more than parts of them where values are in memory."""
        checked: list[Checked] = []
        compared = [self._reads_whole(extent, checked) for _, extent in wanted]
        found = self._chunks.store.read([extent for _, extent in wanted])
        for (place, extent), data, anew in zip(wanted, found, compared, strict=True):
            if data is None or anew or not self._digest or len(data) < self._digest:
                held[place] = settle(self._chunks, coords[place], extent, data)
            else:
                held[place] = len(data) - self._digest, [(0, data)]
        return checked

    def _fetch_blocks(
        self,
        source: SteadyReader,
        coords: Ints,
        heads: dict[int, tuple[Extent, bytes]],
        ask: Ask,
        identities: dict[str, Hashable],
        held: list["native.HeldChunk"],
    ) -> None:
        """Read the blocks that are needed of chunks whose first bytes are known."""
        store, extents = self._chunks.store, []
        needs: dict[int, Needed] = {}
        answers = ask(list(heads), [head for _, head in heads.values()])
        for (place, (extent, _)), need in zip(heads.items(), answers, strict=True):
            exact = extent.length
            if need is not None and exact is not None and need[0] + self._digest != exact:
                need = None  # A claim that is not true.
            needs[place] = need
            if need is None:
                rest = None if exact is None else exact - self._first
                extents.append(Extent(extent.key, extent.start + self._first, rest))
            else:
                spans = need[1]
                extents += [Extent(extent.key, extent.start + a, b - a) for a, b in spans]
                if self._framed:
                    # The trailer is compared whatever is read. The byte in front of it shows that
                    # the chunk is whole where there is none.
                    extents.append(Extent(extent.key, extent.start + need[0] - 1, None))
                elif exact is None:
                    # One byte, and no more: the chunk ends where its header says.
                    last = extent.start + need[0] + self._digest - 1
                    extents.append(Extent(extent.key, last, 2))
        found = iter(source.read(extents))
        short: list[int] = []
        for place, need in needs.items():
            extent, head = heads[place]
            if need is None:
                behind = next(found)
                if behind is None:
                    short.append(place)
                else:
                    held[place] = head + behind
                continue
            pieces = [(0, head)]
            for start, stop in need[1]:
                data = next(found)
                if data is None or len(data) != stop - start:
                    short.append(place)
                else:
                    pieces.append((start, data))
            size = need[0]
            if self._framed:
                behind = next(found)
                if not behind:
                    short.append(place)
                    behind = b"\0"
                pieces.append((size - 1, behind))
                size += len(behind) - 1
            elif extent.length is None and len(next(found) or b"") != 1:
                short.append(place)
            held[place] = size, pieces
        changed = {key for key, known in identities.items() if store.identity(key) != known}
        short += [place for place, (extent, _) in heads.items() if extent.key in changed]
        short = list(dict.fromkeys(short))
        again = store.read([heads[place][0] for place in short])
        for place, data in zip(short, again, strict=True):
            held[place] = settle(self._chunks, coords[place], heads[place][0], data)

    def wants_few(self, axes: Sequence[range | Ints], items: int, chunks: int) -> bool:
        """Return whether so many items along `axes` are a small part of so many chunks.

        Chunks that are wanted for a good part are read as a whole, and so are chunks of which the
        first and the last items are wanted: all blocks between them hold others.
        """
        schema, axis = self._chunks.schema, axes[self._slowest]
        if items * 3 >= chunks * math.prod(schema.chunks):
            return False
        ends = (axis[0], axis[-1]) if isinstance(axis, range) else (axis.min(), axis.max())
        low, high = min(ends), max(ends)
        length = schema.chunks[self._slowest]
        touched = int(high) // length - int(low) // length + 1
        return int(high) - int(low) + 1 < touched * length // 4 * 3

    def remember(self, checked: Sequence[Checked]) -> None:
        """Remember chunks that agreed with their checksums."""
        if len(self._verified) + len(checked) > _MOST_VERIFIED:
            self._verified.clear()
        self._verified.update(checked)

    def is_verified(self, extent: Extent) -> bool:
        """Return whether parts of a chunk are read without comparing its checksum."""
        if not self._compares_whole():
            return True
        if self._verify == "always":
            return False
        identity = self._chunks.store.identity(extent.key)
        return identity is not None and (identity, extent.key, extent.start) in self._verified

    def _compares_whole(self) -> bool:
        """Return whether chunks have a checksum that is compared before parts of them are used.

        A store that waits for a network sends the parts alone, unless it is told otherwise.
        """
        if not self._digest or self._verify == "never":
            return False
        return self._verify == "always" or Feature.REMOTE not in self._chunks.store.features

    def _reads_whole(self, extent: Extent, checked: list[Checked]) -> bool:
        """Return whether a chunk is read as a whole; note it if it can be remembered then."""
        if extent.length is not None and extent.length <= max(SMALL_BYTES, self._first):
            return True
        if not self._compares_whole():
            return False
        if self._verify == "always":
            return True
        # Asked for before the bytes are read: bytes that replace them have another identity.
        identity = self._chunks.store.identity(extent.key)
        chunk = identity, extent.key, extent.start
        if identity is not None and chunk in self._verified:
            return False
        if identity is not None:
            checked.append(chunk)
        return True


def whole_from(size: int) -> int:
    """Return from how many needed bytes on the whole of a chunk is read; the kernel's rule.

    >>> whole_from(1000)
    750
    """
    return size // 4 * 3


def locate(
    chunks: ChunkMap, coords: Ints
) -> tuple[list["native.HeldChunk"], list[tuple[int, Extent]]]:
    """Return what is known of chunks without a read, and the extents of the others by their places.

    Chunks beyond the grid are absent, even where a larger array left bytes for them.
    """
    schema = chunks.schema
    inside = (coords < np.array(schema.grid.counts, np.int64)).all(axis=1)
    held: list[native.HeldChunk] = [None] * len(coords)
    if bool(inside.all()):
        locations = chunks.locate(coords)
        if locations.are_whole_keys:
            return held, list(enumerate(map(Extent, locations.keys)))
    numbers = np.flatnonzero(inside).tolist()
    locations = chunks.locate(coords[inside])
    if locations.are_whole_keys:
        return held, list(zip(numbers, map(Extent, locations.keys), strict=True))
    wanted: list[tuple[int, Extent]] = []
    for number, location in zip(numbers, locations, strict=True):
        if isinstance(location, Extent):
            wanted.append((number, location))
        elif isinstance(location, Inline):
            held[number] = location.data
        else:
            held[number] = constant(location, schema)
    return held, wanted


def settle(
    chunks: ChunkMap, coords: Ints, extent: Extent, data: "native.HeldChunk"
) -> "native.HeldChunk":
    """Return what is stored of a chunk, or None for an absent one where chunks may be absent."""
    if data is None and not chunks.schema.sparse:
        error = CorruptionError("the chunk is missing")
        where = tuple(coords.tolist())
        error.add_note(f"in chunk {where}, key {extent.key!r}, of {chunks.store.location}")
        raise error
    return data


def constant(location: Constant, schema: ArraySchema) -> tuple[bytes] | None:
    """Return a chunk in which all items are equal, as the kernel takes it; None for the fill."""
    if location.value is schema.fill:
        return None
    item = np.empty((), schema.dtype)
    item[()] = location.value
    return (item.tobytes(),)

"""The shard: many encoded chunks in one value, and the index that locates each of them.

This module parses and packs indexes, and builds a shard from new chunks and the contents of an old
shard. It knows neither stores nor the contents of chunks.

An index has two unsigned 64-bit numbers for each inner chunk, in C order: its offset in the shard,
and its length in bytes; both are 2**64 - 1 for an absent chunk. Chunks may lie in any order, with
gaps between them, and share bytes. Chunks that are shards themselves share all bytes or none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Buffer, ChunkSpec, CodecChain
from ingot.errors import CorruptionError, FormatError, LimitError

__all__ = ["IndexForm", "ShardIndex", "build_shard"]

_ABSENT: Final = 2**64 - 1
_ENTRY: Final = 16
_ENDS: Final = ("start", "end")
# An index is held in memory as a whole; this allows sixteen million chunks in a shard.
_LARGEST_INDEX: Final = 1 << 28


@dataclass(frozen=True, slots=True, eq=False)
class ShardIndex:
    """The index of a shard of `size` bytes; `entries` has a row (offset, length) per inner chunk.

    >>> index = ShardIndex(np.array([[0, 4], [2**64 - 1, 2**64 - 1]], np.uint64), 24)
    >>> starts, lengths = index.ranges(np.array([1, 0]))
    >>> starts.tolist(), lengths.tolist()
    ([0, 0], [-1, 4])
    """

    entries: NDArray[np.uint64]
    size: int

    @property
    def present(self) -> NDArray[np.bool_]:
        """Whether each chunk is in the shard."""
        found: NDArray[np.bool_] = (self.entries != _ABSENT).any(axis=1)
        return found

    def check_shards(self) -> None:
        """Raise `CorruptionError` where inner chunks that are shards overlap.

        Else the indexes of a small key would take any amount of memory and work. Shards that are
        the same bytes count once.
        """
        entries = self.entries
        starts, lengths = entries[:, 0], np.minimum(entries[:, 1], self.size)
        inside = (entries[:, 1] <= self.size) & (starts <= self.size - lengths)
        shards = np.unique(entries[inside], axis=0)
        claimed = sum(shards[:, 1].tolist())
        if claimed > self.size:
            raise CorruptionError(
                f"shard index: {len(shards)} inner shards claim {claimed} bytes, "
                f"the shard has {self.size}"
            )

    def ranges(self, numbers: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the offsets and lengths of chunks, by number; an absent chunk has length -1.

        A chunk that does not lie inside the shard raises `CorruptionError`.
        """
        entries = self.entries[numbers]
        present = (entries != _ABSENT).any(axis=1)
        starts, lengths = entries[:, 0], entries[:, 1]
        # Compared in this order, nothing overflows.
        inside = (lengths <= self.size) & (starts <= self.size - np.minimum(lengths, self.size))
        bad = np.flatnonzero(present & ~inside)
        if len(bad):
            start, length = entries[bad[0]].tolist()
            raise CorruptionError(
                f"shard index: inner chunk {numbers[bad[0]]} claims {length} bytes from {start} "
                f"on, the shard has {self.size}"
            )
        return (
            np.where(present, starts, 0).astype(np.int64),
            np.where(present, lengths, _ABSENT).astype(np.int64),
        )


@dataclass(frozen=True, slots=True)
class IndexForm:
    """How the index of a shard with `counts` inner chunks along each axis is stored.

    `chain` encodes it, always into the same number of bytes. With `holds_shards` the inner chunks
    are shards themselves.

    >>> form = IndexForm((2, 2), CodecChain())
    >>> form.nbytes, form.place(100)
    (64, (36, 64))
    """

    counts: tuple[int, ...]
    chain: CodecChain
    location: str = "end"
    holds_shards: bool = False
    nbytes: int = field(init=False)
    """The bytes of a stored index."""

    def __post_init__(self) -> None:
        if self.location not in _ENDS:
            raise FormatError(f"shard index: its location is {self.location!r}, not start or end")
        if self.total * _ENTRY > _LARGEST_INDEX:
            raise LimitError(f"a shard of {self.counts} inner chunks: its index is too large")
        nbytes = _fixed_size(self.chain, self._spec())
        if nbytes is None:
            raise FormatError("shard index: its codecs make a number of bytes that varies")
        object.__setattr__(self, "nbytes", nbytes)

    @property
    def total(self) -> int:
        """The number of inner chunks in a shard."""
        return math.prod(self.counts)

    @property
    def native_form(self) -> tuple[tuple[int, ...], bool, bool, bool] | None:
        """The form as the native kernel takes it; None when only Python can read the index.

        It is the counts, then whether the index is at the start, is big-endian, has a CRC-32C.

        >>> IndexForm((2,), CodecChain(), "start").native_form
        ((2,), True, False, False)
        """
        chain = self.chain
        swapped = not chain.serializer.plain(np.dtype("<u8"))
        sealed = len(chain.compressors) == 1 and chain.compressors[0].appended == "crc32c"
        known = not swapped or chain.serializer.plain(np.dtype(">u8"))
        if chain.filters or not known or len(chain.compressors) > sealed:
            return None
        return self.counts, self.location == "start", swapped, sealed

    def place(self, size: int) -> tuple[int, int]:
        """Return the offset and the length of the index in a shard of `size` bytes."""
        if self.nbytes > size:
            raise CorruptionError(
                f"shard: {size} bytes are stored, its index alone takes {self.nbytes}"
            )
        return (size - self.nbytes if self.location == "end" else 0), self.nbytes

    def parse(self, data: Buffer, size: int) -> ShardIndex:
        """Return the index of a shard of `size` bytes, from the encoded index."""
        if len(data) != self.nbytes:
            raise CorruptionError(
                f"shard index: {self.nbytes} bytes are due, {len(data)} are stored"
            )
        try:
            table = self.chain.decode(data, self._spec())
        except CorruptionError as error:
            raise CorruptionError(f"shard index: {error}") from None
        index = ShardIndex(table.reshape(-1, 2).astype(np.uint64, copy=False), size)
        if self.holds_shards:
            index.check_shards()
        return index

    def pack(self, entries: NDArray[np.uint64]) -> bytes:
        """Return the bytes that `parse` reads back."""
        return self.chain.encode(entries.reshape(self._spec().shape))

    def find(self, shard: Buffer) -> ShardIndex:
        """Return the index of a shard, from all bytes of the shard."""
        start, length = self.place(len(shard))
        return self.parse(shard[start : start + length], len(shard))

    def _spec(self) -> ChunkSpec:
        return ChunkSpec((*self.counts, 2), np.dtype(np.uint64))


@dataclass(slots=True)
class _Building:
    """A shard under construction: pieces in their order, and the index so far."""

    end: int
    """The offset of the next piece."""
    entries: NDArray[np.uint64]
    pieces: list[Buffer] = field(default_factory=list)

    @classmethod
    def begin(cls, form: IndexForm) -> Self:
        start = form.nbytes if form.location == "start" else 0
        return cls(start, np.full((form.total, 2), _ABSENT, np.uint64))

    def add(self, piece: Buffer) -> int:
        start = self.end
        self.pieces.append(piece)
        self.end += len(piece)
        return start


def build_shard(
    form: IndexForm,
    chunks: Mapping[int, Buffer | None],
    old: Buffer | None = None,
) -> bytes | None:
    """Return a shard with `chunks`, by number, and all other chunks of `old`.

    Old chunks are copied byte for byte. All chunks lie in C order; bytes that old chunks share stay
    shared, so that a rewrite never makes a shard larger. None stands for an absent chunk; the
    result is None when all chunks are absent.

    >>> form = IndexForm((2,), CodecChain(), "start")
    >>> shard = build_shard(form, {1: b"new"}, build_shard(form, {0: b"old", 1: b"other"}))
    >>> shard[form.nbytes:]
    b'oldnew'
    """
    building = _Building.begin(form)
    kept = _kept_segments(form, chunks, old)
    placed: dict[int, int] = {}
    for number in sorted({*kept, *chunks}):
        if number in chunks:
            data = chunks[number]
            if data is not None:
                building.entries[number] = building.add(data), len(data)
            continue
        start, length, segment, stop = kept[number]
        if segment not in placed:
            placed[segment] = building.add(memoryview(old or b"")[segment:stop])
        building.entries[number] = placed[segment] + start - segment, length
    if (building.entries == _ABSENT).all():
        return None
    index = form.pack(building.entries)
    pieces = building.pieces
    return b"".join([index, *pieces] if form.location == "start" else [*pieces, index])


def _fixed_size(chain: CodecChain, spec: ChunkSpec) -> int | None:
    for stage in chain.filters:
        spec = stage.encoded(spec)
    size = chain.serializer.serialized_size(spec)
    for compressor in chain.compressors:
        size = compressor.encoded_size(size) if size is not None else None
    return size


def _kept_segments(
    form: IndexForm, chunks: Mapping[int, Buffer | None], old: Buffer | None
) -> dict[int, tuple[int, int, int, int]]:
    """Return, for each old chunk that stays: offset, length, and the segment to copy for it.

    A segment is given by its start and its end. Chunks that overlap share a segment.
    """
    if old is None:
        return {}
    index = form.find(old)
    wanted = index.present
    wanted[np.fromiter(chunks, np.int64, len(chunks))] = False
    numbers = np.flatnonzero(wanted)
    starts, lengths = index.ranges(numbers)
    placed: list[tuple[int, int, int, int]] = []
    stops: dict[int, int] = {}
    segment = stop = 0
    for row in np.argsort(starts, kind="stable").tolist():
        start, length = int(starts[row]), int(lengths[row])
        if start >= stop:
            segment = stop = start
        stops[segment] = stop = max(stop, start + length)
        placed.append((int(numbers[row]), start, length, segment))
    return {number: (*place, segment, stops[segment]) for number, *place, segment in placed}  # type: ignore[misc]

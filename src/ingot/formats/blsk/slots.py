"""The slots of super-chunk files: a Blosc chunk, its trailer, and spare bytes.

This module encodes and decodes what a slot holds, and finds how long it is. A chunk always has full
size; the trailer says how many of its rows counted when it was written. The slot of a pack of
variable-length items has two chunks, each with a trailer (`ingot.formats.packs`). Where slots lie
is the concern of `chunk_file`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import (
    CHUNK_LIMIT,
    Array,
    Buffer,
    CheckedPart,
    ChunkSpec,
    CodecChain,
    EncodedChunk,
    NativeCoding,
    StoredBytes,
)
from ingot.codecs.compressors import Blosc2
from ingot.codecs.zone_maps import zone_map_of
from ingot.errors import CorruptionError
from ingot.formats import trailer

__all__ = ["SlotChain", "Stated", "chunk_bytes", "renumbered", "split"]

_LENGTH: Final = slice(12, 16)

Stated: TypeAlias = tuple[int, int | None]
"""What a trailer states: the number of its chunk, and the identity of the array."""


@dataclass(frozen=True, slots=True)
class SlotChain(CodecChain):
    """The codec chain of an array in super-chunk files.

    Chunk i holds the rows from `i // across * rows` on, of `length` rows in all. `identity` is that
    of the array, which the trailers repeat; None where the array has none.
    """

    length: int = 1
    rows: int = 1
    across: int = 1
    identity: int | None = None

    def encode(self, array: Array, number: int = 0) -> bytes:
        """Return a chunk and its trailer."""
        for stage in self.filters:
            array = stage.encode(array)
        chunk = CodecChain.encode(replace(self, filters=()), array)
        counted = self.counted(number)
        own, identity = self.stated(number)
        # A filter may have changed the order of the axes; then rows do not lie along the first one.
        zone = None if self.filters or array.ndim != 1 else zone_map_of(array[:counted])
        packed = b"" if zone is None else zone.pack(array.dtype)
        return chunk + trailer.pack(chunk, own, counted, packed, identity)

    def decode(
        self, data: Buffer, spec: ChunkSpec, out: Array | None = None, *, limit: int = CHUNK_LIMIT
    ) -> Array:
        """Return the items of a slot, after checking the trailer."""
        chunk, behind = split(data)
        if behind:
            found = trailer.parse(behind)
            found.check(chunk, ChunkHeader.parse(chunk), *self.stated(spec.number))
            if found.rows > self.rows:
                raise CorruptionError(
                    f"chunk trailer: {found.rows} rows are claimed, a chunk has {self.rows}"
                )
        return CodecChain.decode(self, chunk, spec, out, limit=limit)

    @property
    def is_framed(self) -> bool:
        """Whether anything but a chunk of the codec is stored: a trailer."""
        return True

    @property
    def is_trailed(self) -> bool:
        """Whether a trailer has a checksum of each block."""
        return True

    def part_ranges(
        self, head: Buffer, size: int, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Return what is read of a slot to decode and compare ranges of its chunk."""
        return trailer.part_ranges(head, 0, size, ranges)

    def checked_part(self, stored: StoredBytes, spec: ChunkSpec) -> CheckedPart | None:
        """Return where the parts of a chunk are, after checking front and wanted blocks."""
        stated, rows = self.stated(spec.number), range(self.rows + 1)
        return trailer.checked_part(stored, 0, spec.nbytes, stated, rows, exact=False)

    def unframed(self, data: Buffer, spec: ChunkSpec) -> EncodedChunk | None:
        """Return the chunk of a slot, after checking its trailer."""
        chunk, behind = split(data)
        header = ChunkHeader.parse(chunk)
        if header.nbytes != spec.nbytes:
            return None
        zone = b""
        if behind:
            found = trailer.parse(behind)
            found.check(chunk, header, *self.stated(spec.number))
            zone = found.zone if found.rows == self.counted(spec.number) else b""
        return EncodedChunk(chunk, verified=bool(behind), zone=zone)

    def framed(
        self, chunk: EncodedChunk, spec: ChunkSpec, array: Array | None = None
    ) -> Buffer | None:
        """Return an encoded chunk and its trailer; None for Blosc 2 in an array of Blosc 1."""
        second = any(isinstance(stage, Blosc2) for stage in self.compressors)
        if ChunkHeader.parse(chunk.data).extended and not second:
            return None
        own, identity = self.stated(spec.number)
        counted, zone = self.counted(spec.number), chunk.zone
        if not zone and array is not None and array.ndim == 1 and not self.filters:
            made = zone_map_of(array[:counted])
            zone = b"" if made is None else made.pack(array.dtype)
        return b"".join((chunk.data, trailer.pack(chunk.data, own, counted, zone, identity)))

    def zone_in(self, data: Buffer, number: int) -> bytes:
        """Return the zone map of a slot, after checking its trailer; b"" where it does not hold.

        It speaks of the rows that counted when it was made, perhaps fewer than count now.
        """
        chunk, behind = split(data)
        if not behind:
            return b""
        found = trailer.parse(behind)
        found.check(chunk, ChunkHeader.parse(chunk), *self.stated(number))
        return found.zone if found.rows >= self.counted(number) else b""

    def stated(self, number: int) -> "Stated":
        """Return the number and the identity that the trailer of a chunk states."""
        return number, self.identity

    def counted(self, number: int) -> int:
        """Return how many rows of a chunk count."""
        return max(0, min(self.rows, self.length - number // self.across * self.rows))

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it; None when only Python can run it."""
        coding = CodecChain.native_coding(self, spec)
        if coding is None:
            return None
        return replace(coding, slotted=True, parts=((0, self.identity),))


def chunk_bytes(header: Buffer) -> int:
    """Return how long the chunk is that begins with a header."""
    return int.from_bytes(memoryview(header)[_LENGTH], "little")


def split(data: Buffer) -> tuple[memoryview, memoryview]:
    """Return the chunk and the trailer at the start of the bytes of a slot, without spare bytes.

    A chunk with nothing behind it has no trailer. With anything behind it, it must have one.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(100))
    >>> chunk, behind = split(chunk + trailer.pack(chunk, 0, 1) + bytes(9))
    >>> len(behind), len(split(chunk)[1])
    (40, 0)
    """
    view = memoryview(data)
    if len(view) < HEADER_BYTES:
        raise CorruptionError(f"slot: {len(view)} bytes hold no chunk")
    claim = chunk_bytes(view)
    # The header refuses a claim that is impossible, after what it says before that.
    end = claim if HEADER_BYTES <= claim <= len(view) else len(view)
    chunk, rest = view[:end], view[end:]
    ChunkHeader.parse(chunk).check_decodable()
    return chunk, rest[: trailer.size_of(rest)] if rest else rest


def renumbered(image: Buffer, old: Stated, new: Stated, chunks: int = 1) -> bytes:
    """Return the image of a slot as that of another number or array, after checking it.

    It has so many chunks with their trailers. Both `old` and `new` are the number and the identity
    of the array. The trailer of a chunk that has none says of no row that it counts.
    """
    pieces: list[Buffer] = []
    rest = memoryview(image)
    for _ in range(chunks):
        chunk, behind = split(rest)
        rest = rest[len(chunk) + len(behind) :]
        pieces += [chunk, _renumbered(chunk, behind, old, new)]
    return b"".join(pieces)


def _renumbered(chunk: memoryview, behind: memoryview, old: Stated, new: Stated) -> bytes:
    """Return the trailer of a chunk for another number or array, after checking it."""
    number, identity = new
    if not behind:
        return trailer.pack(chunk, number, 0, identity=identity)
    found = trailer.parse(behind)
    found.check(chunk, ChunkHeader.parse(chunk), *old)
    return found.moved(chunk, number, identity)

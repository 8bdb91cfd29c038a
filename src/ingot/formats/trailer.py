"""The trailer that Ingot appends to a Blosc chunk: checksums for partial reads, and a zone map.

This module packs, parses and checks the trailer. It does not know where chunks are stored, and does
not interpret the zone map. A chunk without a trailer was written by another program; a trailer that
is present must match its chunk.

All integers are little-endian::

    0   magic "igt1"            24  identity of the array, u64
    4   version, u8: 1 or 2     32  CRC-32C of the chunk's header and block starts, and of the
    5   flags, u8: 0                32 bytes before this field, u32
    6   zone map's length, u16  36  CRC-32C of each block, u32
    8   number of blocks, u32   ..  zone map
    12  chunk number, u64       -8  length of the trailer, u32
    20  rows of the chunk, u32  -4  CRC-32C of all before, u32

Version 1 has no identity: what follows lies 8 bytes earlier, the first checksum covers 24 bytes.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import EXTENDED_HEADER_BYTES, HEADER_BYTES, ChunkHeader
from ingot.codecs.checksums import crc32c, digests
from ingot.codecs.codec import Buffer, CheckedPart, StoredBytes
from ingot.errors import CorruptionError, IngotError, UnsupportedError

__all__ = [
    "LEAST_BYTES",
    "MAGIC",
    "Trailer",
    "block_spans",
    "checked_part",
    "claimed_size",
    "pack",
    "parse",
    "part_ranges",
    "size_of",
]

MAGIC: Final = b"igt1"

_HEAD: Final = struct.Struct("<4sBBHIQI")
_IDENTITY: Final = struct.Struct("<Q")
_WORD: Final = struct.Struct("<I")
_FOOT: Final = struct.Struct("<II")

LEAST_BYTES: Final = _HEAD.size + _WORD.size + _FOOT.size
"""The bytes of a trailer of version 1 without blocks and zone map."""

# The most bytes of a trailer beside the checksums of blocks; the rule of the native kernel.
_MOST_OTHERS: Final = 4096


@dataclass(frozen=True, slots=True)
class Trailer:
    """The contents of a trailer, without its own length and checksum."""

    number: int
    rows: int
    head: int
    """The checksum of the chunk's header and block starts, and of the head of this trailer."""
    blocks: NDArray[np.uint32]
    """The checksum of each block."""
    zone: bytes
    identity: int | None = None
    """The array that the chunk belongs to; None in version 1."""

    def check(
        self, chunk: Buffer, header: ChunkHeader, number: int, identity: int | None = None
    ) -> None:
        """Raise `CorruptionError` unless the trailer matches its chunk, `number` and all bytes.

        `identity` is that of the array. A trailer of version 1 has none, and belongs to any array.
        """
        view = memoryview(chunk)
        spans = self.check_front(view, header, number, identity)
        self.check_blocks(range(len(spans)), [view[start:stop] for start, stop in spans])

    def check_front(
        self, front: Buffer, header: ChunkHeader, number: int, identity: int | None = None
    ) -> list[tuple[int, int]]:
        """Do the same without the blocks; return where each of them starts and ends.

        `front` is the header of the chunk and its block starts, or more.
        """
        if self.identity is not None and self.identity != identity:
            due = "the array has no x_id"
            if identity is not None:
                due = f"the x_id of the array is {identity:016x}"
            raise CorruptionError(f"chunk trailer: its identity is {self.identity:016x}, {due}")
        if self.number != number:
            raise CorruptionError(f"chunk trailer: this is chunk {self.number}, not {number}")
        view = memoryview(front)
        spans = block_spans(header, view)
        if len(spans) != len(self.blocks):
            raise CorruptionError(
                f"chunk trailer: checksums of {len(self.blocks)} blocks, the chunk has {len(spans)}"
            )
        begin = _begin(header, len(spans))
        _compare("header", crc32c(bytes(view[:begin]) + self._packed_head()), self.head)
        return spans

    def check_blocks(self, numbers: Sequence[int], blocks: Sequence[memoryview]) -> None:
        """Raise `CorruptionError` unless some blocks, of which these are the bytes, agree."""
        facts = np.frombuffer(b"".join(digests("crc32c", blocks)), "<u4")
        claims = self.blocks[np.asarray(numbers, np.int64)]
        for place in np.flatnonzero(facts != claims)[:1].tolist():
            _compare(f"block {numbers[place]}", int(facts[place]), int(claims[place]))

    def moved(self, chunk: Buffer, number: int, identity: int | None) -> bytes:
        """Return the trailer of the same chunk under another number, or in another array.

        The checksums of its blocks stay, so that damage since they were made stays visible.

        >>> from ingot import blosc
        >>> chunk = blosc.compress(bytes(4000))
        >>> parse(pack(chunk, 7, 1000)).moved(chunk, 8, None) == pack(chunk, 8, 1000)
        True
        """
        sums = self.blocks.tobytes()
        return _packed(memoryview(chunk), sums, number, self.rows, self.zone, identity)

    def _packed_head(self) -> bytes:
        sizes = len(self.zone), len(self.blocks)
        return _pack_head(*sizes, self.number, self.rows, self.identity)


def pack(
    chunk: Buffer, number: int, rows: int, zone: bytes = b"", identity: int | None = None
) -> bytes:
    """Return the trailer of a chunk: of version 2, or of version 1 without an identity.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(4000))
    >>> trailer = parse(pack(chunk, number=7, rows=1000))
    >>> trailer.number, trailer.rows, len(trailer.blocks)
    (7, 1000, 1)
    """
    view = memoryview(chunk)
    sums = _block_sums(view, block_spans(ChunkHeader.parse(view), view))
    return _packed(view, sums, number, rows, zone, identity)


def parse(data: Buffer) -> Trailer:
    """Return the trailer in the bytes after a chunk; anything but one whole trailer is corrupt.

    >>> parse(b"igt1" + bytes(40))
    Traceback (most recent call last):
    ingot.errors.CorruptionError: chunk trailer: its length claims 0 bytes, 44 are stored
    """
    view = memoryview(data)
    if len(view) < LEAST_BYTES or bytes(view[:4]) != MAGIC:
        raise CorruptionError(f"chunk trailer: {len(view)} bytes behind the chunk are no trailer")
    length, checksum = _FOOT.unpack_from(view, len(view) - _FOOT.size)
    if length != len(view):
        raise CorruptionError(
            f"chunk trailer: its length claims {length} bytes, {len(view)} are stored"
        )
    _compare("trailer", crc32c(view[: -_WORD.size]), checksum)
    _, version, flags, zone, count, number, rows = _HEAD.unpack_from(view)
    if version not in (1, 2) or flags:
        raise UnsupportedError(f"chunk trailer: version {version} with flags {flags} is unknown")
    more = 0 if version == 1 else _IDENTITY.size
    if len(view) != LEAST_BYTES + more + _WORD.size * count + zone:
        raise CorruptionError(
            f"chunk trailer: {count} blocks and a zone map of {zone} bytes do not fill "
            f"{len(view)} bytes"
        )
    identity = _IDENTITY.unpack_from(view, _HEAD.size)[0] if more else None
    end = _HEAD.size + more
    head = _WORD.unpack_from(view, end)[0]
    start = end + _WORD.size
    blocks = np.frombuffer(view, "<u4", count, start)
    behind = start + _WORD.size * count
    return Trailer(number, rows, head, blocks, bytes(view[behind : behind + zone]), identity)


def size_of(data: Buffer) -> int:
    """Return the size of the trailer at the start of some bytes, which may be followed by others.

    >>> from ingot import blosc
    >>> packed = pack(blosc.compress(bytes(4000)), number=7, rows=1000)
    >>> size_of(packed + bytes(100)) == len(packed)
    True
    """
    size = claimed_size(data)
    if size > len(data):
        raise CorruptionError(f"chunk trailer: it claims {size} bytes, {len(data)} are stored")
    return size


def claimed_size(head: Buffer) -> int:
    """Return the size that the first `LEAST_BYTES` bytes of a trailer claim."""
    view = memoryview(head)
    if len(view) < LEAST_BYTES or bytes(view[:4]) != MAGIC:
        raise CorruptionError(f"chunk trailer: {len(view)} bytes behind the chunk are no trailer")
    _, version, _, zone, count, _, _ = _HEAD.unpack_from(view)
    more = _IDENTITY.size if version == 2 else 0
    return LEAST_BYTES + more + _WORD.size * int(count) + int(zone)


def block_spans(header: ChunkHeader, chunk: memoryview) -> list[tuple[int, int]]:
    """Return the start and the end of each block of a chunk; blocks may lie in any order.

    >>> from ingot import blosc
    >>> chunk = blosc.compress(bytes(10_000), blocksize=4096, level=0)
    >>> block_spans(ChunkHeader.parse(chunk), memoryview(chunk))
    [(16, 4112), (4112, 8208), (8208, 10016)]
    """
    if header.variable or header.has_dictionary:
        raise CorruptionError(
            "chunk trailer: it stands behind a chunk with a dictionary or blocks of several sizes"
        )
    size, head = header.blocksize, header.header_bytes
    if header.special != "none":
        return []
    count = -(-header.nbytes // size) if header.nbytes else 0
    if header.memcpyed or header.nbytes == 0:
        starts = [head + index * size for index in range(count)]
        return [(start, min(start + size, header.cbytes)) for start in starts]
    begin = head + 4 * count
    if begin > header.cbytes:
        raise CorruptionError(f"Blosc chunk: {count} block starts, cbytes is {header.cbytes}")
    offsets = np.frombuffer(chunk[head:begin], "<i4")
    if ((offsets < begin) | (offsets > header.cbytes)).any():
        raise CorruptionError("Blosc chunk: a block starts outside of the chunk")
    edges = np.append(np.unique(offsets), header.cbytes)
    ends = edges[np.searchsorted(edges, offsets, side="right").clip(max=len(edges) - 1)]
    return list(zip(offsets.tolist(), ends.tolist(), strict=True))


def part_ranges(
    head: Buffer, begin: int, size: int, ranges: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Return what is read of `size` stored bytes to decode and compare ranges of a chunk.

    The chunk begins at byte `begin`, and `head` is its first bytes. The ranges begin and end with
    blocks, but for those of a chunk that is stored as it is. The trailer comes last, with what lies
    behind it as far as it could reach.
    """
    claim = int.from_bytes(memoryview(head)[12:HEADER_BYTES], "little")
    header = ChunkHeader.parse(head, stored=claim)
    first, step, end = header.header_bytes, header.blocksize, begin + header.cbytes
    if header.memcpyed:
        ranges = [
            (start - (start - first) % step, min(stop + (first - stop) % step, header.cbytes))
            for start, stop in ranges
        ]
    found = [(begin + start, begin + stop) for start, stop in ranges]
    behind = min(size, end + _most_bytes(header))
    return [*found, (end, behind)] if behind > end else found


def checked_part(
    stored: StoredBytes,
    begin: int,
    nbytes: int,
    stated: tuple[int, int | None],
    rows: range,
    *,
    exact: bool,
) -> CheckedPart | None:
    """Return where the parts of a chunk are, its front and its wanted blocks compared.

    The chunk begins at byte `begin`, and has `nbytes` decoded bytes. Its trailer states `stated`,
    and one of `rows`. If `exact`, nothing lies behind the trailer. A block that does not agree is
    `CorruptionError`. None where anything else is not as it is due, or not at hand: whatever
    decodes the chunk as a whole says what it is.
    """
    head = stored.cut(begin, min(begin + EXTENDED_HEADER_BYTES, stored.size))
    if head is None or len(head) < HEADER_BYTES:
        return None
    end = begin + int.from_bytes(head[12:HEADER_BYTES], "little")
    try:
        header = ChunkHeader.parse(head, stored=min(end, stored.size) - begin)
        header.check_decodable()
        front = header.cbytes if header.special != "none" else header.data_start
        found = CheckedPart(begin, begin + front, end)
        if header.nbytes != nbytes:
            return None
        if stored.size == end:
            return found
        behind = stored.cut(end, min(stored.size, end + _most_bytes(header)))
        starts = stored.cut(begin, begin + front)
        if behind is None or starts is None or (exact and end + len(behind) < stored.size):
            return None
        trailer = parse(behind if exact else behind[: size_of(behind)])
        spans = trailer.check_front(starts, header, *stated)
    except IngotError:
        return None
    if trailer.rows not in rows:
        return None
    numbers = stored.wanted(head)
    whole = stored.cut(begin, end)
    blocks: list[memoryview] = []
    for start, stop in (spans[number] for number in numbers):
        block = stored.cut(begin + start, begin + stop) if whole is None else whole[start:stop]
        if block is None:
            return None
        blocks.append(block)
    trailer.check_blocks(numbers, blocks)
    return found


def _most_bytes(header: ChunkHeader) -> int:
    return _WORD.size * -(-header.nbytes // max(header.blocksize, 1)) + _MOST_OTHERS


def _block_sums(chunk: memoryview, spans: list[tuple[int, int]]) -> bytes:
    """Return the checksums of blocks, one behind the other."""
    return b"".join(digests("crc32c", [chunk[start:stop] for start, stop in spans]))


def _packed(
    chunk: memoryview, sums: bytes, number: int, rows: int, zone: bytes, identity: int | None
) -> bytes:
    count = len(sums) // _WORD.size
    head = _pack_head(len(zone), count, number, rows, identity)
    begin = bytes(chunk[: _begin(ChunkHeader.parse(chunk), count)])
    content = b"".join((head, _WORD.pack(crc32c(begin + head)), sums, zone))
    content += _WORD.pack(len(content) + _FOOT.size)
    return content + _WORD.pack(crc32c(content))


def _pack_head(zone: int, blocks: int, number: int, rows: int, identity: int | None) -> bytes:
    version = 1 if identity is None else 2
    head = _HEAD.pack(MAGIC, version, 0, zone, blocks, number, rows)
    return head if identity is None else head + _IDENTITY.pack(identity)


def _begin(header: ChunkHeader, blocks: int) -> int:
    if header.special != "none":
        return header.cbytes
    return header.header_bytes + (0 if header.memcpyed else 4 * blocks)


def _compare(what: str, fact: int, claim: int) -> None:
    if fact != claim:
        raise CorruptionError(
            f"chunk trailer: the CRC-32C of the {what} is {fact:#010x}, {claim:#010x} is stored"
        )

"""Lazy chunks: Blosc chunks whose blocks stay in a file or in a remote store.

A lazy chunk finds the bytes of a stored chunk that a slice needs and fetches only those, by a
function ``read(start, length)``. C-Blosc2 has a layout in memory for the same purpose (header,
block starts, trailer), which is parsed and packed here too.
"""

import operator
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from ingot import native
from ingot.blosc.blocks import LARGEST_DICTIONARY, locate_dictionary, parse_starts
from ingot.blosc.header import (
    EXTENDED_HEADER_BYTES,
    HEADER_BYTES,
    LARGEST_CHUNK,
    LAZY,
    UNSPLIT,
    ChunkHeader,
)
from ingot.errors import CorruptionError, FormatError, SelectionError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Extent", "LazyChunk", "Read"]

Read: TypeAlias = Callable[[int, int], "Buffer"]
"""Returns ``length`` bytes from ``start`` on, counted from the chunk's first byte."""

Extent: TypeAlias = tuple[int, int]
"""The start and the length of a range of bytes."""

# Fetching up to this many unneeded bytes costs less than another request.
_SMALLEST_GAP = 4096

_CBYTES = struct.Struct("<12xi")
_TRAILER = struct.Struct("<iq")


@dataclass(frozen=True, slots=True)
class LazyChunk:
    """A chunk without its blocks, which fetches and decodes those that are needed.

    ``prefix`` is the stored chunk up to its first block, including a dictionary or a special value.
    ``number`` and ``offset`` are the place of the chunk in a frame. A chunk that was parsed from
    the lazy layout has no dictionary yet; it is fetched with the blocks.

    >>> from ingot import blosc
    >>> stored = blosc.compress(bytes(range(250)) * 400, filters=[], blocksize=10_000)
    >>> chunk = LazyChunk.build(lambda start, length: stored[start : start + length])
    >>> chunk.read(lambda start, length: stored[start : start + length], 12_345, 12_348)
    b'_`a'
    >>> len(chunk.explain(12_345, 12_348)) == 1 and chunk.header.nbytes
    100000
    """

    header: ChunkHeader
    prefix: bytes
    starts: tuple[int, ...]
    sizes: tuple[int, ...]
    number: int = 0
    offset: int = 0

    @classmethod
    def build(cls, read: Read, number: int = 0, offset: int = 0) -> "LazyChunk":
        """Fetch the part before the blocks, in two or three requests."""
        head = bytes(read(0, EXTENDED_HEADER_BYTES))
        stored = _claimed_bytes(head)
        header = ChunkHeader.parse(head[:stored], stored)
        header.check_decodable()
        prefix = head[: header.header_bytes]
        if header.special == "value":
            prefix += _fetch(read, header.header_bytes, header.cbytes - header.header_bytes)
        if not header.block_count:
            return cls(header, prefix, (), (), number, offset)
        prefix += _fetch(read, header.header_bytes, 4 * header.block_count)
        prefix += _fetch_dictionary(read, header, prefix)
        starts = parse_starts(header, prefix, len(prefix))
        return cls(header, prefix, starts, _sizes(starts, header.cbytes), number, offset)

    @classmethod
    def parse(cls, lazy: "Buffer") -> "LazyChunk":
        """Parse the lazy layout of C-Blosc2, which never contains a dictionary.

        Only an extended header, of 32 bytes, can mark a chunk as lazy.
        """
        raw = bytes(lazy)
        marked = ChunkHeader.parse(raw, _claimed_bytes(raw))
        if marked.extension is None or not marked.lazy:
            raise FormatError("lazy Blosc chunk: blosc2_flags do not say that the chunk is lazy")
        flags = marked.extension.blosc2_flags & ~LAZY
        header = replace(marked, extension=replace(marked.extension, blosc2_flags=flags))
        header.check_decodable()
        count = _lazy_blocks(header)
        trailer = header.header_bytes + 4 * count
        if len(raw) != trailer + _TRAILER.size + 4 * count:
            raise CorruptionError(
                f"lazy Blosc chunk: {count} blocks make {trailer + _TRAILER.size + 4 * count} "
                f"bytes, {len(raw)} are stored"
            )
        number, offset = _TRAILER.unpack_from(raw, trailer)
        sizes = struct.unpack_from(f"<{count}i", raw, trailer + _TRAILER.size)
        prefix = header.pack() + raw[header.header_bytes : header.data_start]
        starts = parse_starts(header, prefix, header.data_start)
        if sizes != (_sizes(starts, header.cbytes) if starts else _plain_sizes(header)):
            raise CorruptionError(f"lazy Blosc chunk: the sizes {sizes[:8]}… are not the blocks'")
        return cls(header, prefix, starts, sizes if starts else (), number, offset)

    def pack(self) -> bytes:
        """Return the lazy layout: header, block starts, number, offset, sizes of the blocks."""
        extension = self.header.extension
        if extension is None or self.header.special != "none":
            raise UnsupportedError("only Blosc 2 chunks with data of their own have a lazy layout")
        marked = replace(extension, blosc2_flags=extension.blosc2_flags | LAZY)
        header = replace(self.header, extension=marked)
        # The layout has room for block starts even if the data have no blocks.
        starts = self.starts or (0,) * _lazy_blocks(self.header)
        sizes = self.sizes or _plain_sizes(self.header)
        return (
            header.pack()
            + struct.pack(f"<{len(starts)}i", *starts)
            + _TRAILER.pack(self.number, self.offset)
            + struct.pack(f"<{len(sizes)}i", *sizes)
        )

    def explain(self, start: int, stop: int) -> tuple[Extent, ...]:
        """Return the ranges of bytes that reading items ``start`` to ``stop`` fetches.

        Neighbours are joined, gaps of up to 4 KiB included.
        """
        begin, end = self._bytes_between(start, stop)
        header = self.header
        if begin == end or header.special != "none":
            return ()
        if header.memcpyed:
            return ((header.header_bytes + begin, end - begin),)
        blocks = [(self.starts[i], self.sizes[i]) for i in self._needed(begin, end)]
        return tuple(_join([*self._missing(), *blocks]))

    def read(self, read: Read, start: int, stop: int, *, limit: int = LARGEST_CHUNK) -> bytes:
        """Fetch and decode items ``start`` to ``stop``; ``limit`` holds for the whole chunk."""
        self.header.check_decodable(limit)
        begin, end = self._bytes_between(start, stop)
        fetched = {at: _fetch(read, at, length) for at, length in self.explain(start, stop)}
        if begin == end:
            return b""
        if self.header.memcpyed:
            return fetched[self.header.header_bytes + begin]
        kernel = native.kernel()
        if self.header.special != "none":
            size = self.header.typesize
            return bytes(kernel.decompress_slice(self.prefix, begin // size, end // size))
        needed = self._needed(begin, end)
        whole = self._completed(fetched)
        part = bytes(kernel.decompress(whole._extract(needed, fetched), None, 1, limit))
        before = 0 if self.header.variable else self.header.block_bytes * self._skipped(needed)
        return part[begin - before : end - before]

    def _missing(self) -> list[Extent]:
        """Return the extent of the dictionary, which precedes all blocks, unless it is fetched."""
        start = self.header.data_start
        if not self.header.has_dictionary or len(self.prefix) > start:
            return []
        return [(start, min(min(self.starts) - start, 4 + LARGEST_DICTIONARY))]

    def _completed(self, fetched: dict[int, bytes]) -> "LazyChunk":
        """Return the chunk with its dictionary."""
        for start, length in self._missing():
            prefix = self.prefix + _cut(fetched, start, length).ljust(4, b"\0")
            place = locate_dictionary(self.header, prefix)
            if place is None or place.offset + place.nbytes > start + length:
                raise CorruptionError(
                    f"Blosc chunk: the dictionary reaches into the block at {start + length}"
                )
            return replace(self, prefix=prefix[: place.offset + place.nbytes])
        return self

    def _bytes_between(self, start: int, stop: int) -> tuple[int, int]:
        first, last = operator.index(start), operator.index(stop)
        if not 0 <= first <= last <= self.header.item_count:
            raise SelectionError(
                f"Blosc chunk: items {first} to {last} of a chunk that holds "
                f"{self.header.item_count}"
            )
        return first * self.header.typesize, last * self.header.typesize

    def _needed(self, begin: int, end: int) -> list[int]:
        """Return the numbers of the blocks that hold these bytes; with delta also the first one.

        Blocks of variable length have their sizes in the blocks themselves, so all are needed.
        """
        header = self.header
        if header.variable:
            return list(range(header.block_count))
        size = header.block_bytes
        blocks = list(range(begin // size, -(-end // size)))
        delta = any(number == 3 for number, _ in header.pipeline)
        return [0, *blocks] if delta and blocks[0] else blocks

    def _skipped(self, needed: list[int]) -> int:
        """Return how many blocks of the chunk before the last needed one are not needed."""
        return needed[-1] - len(needed) + 1

    def _extract(self, needed: list[int], fetched: dict[int, bytes]) -> bytes:
        """Return a chunk of only the needed blocks, which any kernel decodes."""
        header = self.header
        bodies = [_cut(fetched, self.starts[index], self.sizes[index]) for index in needed]
        before = self.prefix[header.data_start :]
        at = header.header_bytes + 4 * len(needed) + len(before)
        starts = []
        for body in bodies:
            starts.append(at)
            at += len(body)
        part = replace(self._part_header(needed), cbytes=at)
        packed = struct.pack(f"<{len(starts)}i", *starts)
        return part.pack() + packed + before + b"".join(bodies)

    def _part_header(self, needed: list[int]) -> ChunkHeader:
        header = self.header
        if header.variable:
            return header
        nbytes = sum(map(header.bytes_of, needed))
        # A short last block is never split; alone in a chunk it would count as a full one.
        flags = header.flags | (UNSPLIT if nbytes < header.block_bytes else 0)
        return replace(header, flags=flags, nbytes=nbytes, blocksize=header.block_bytes)


def _fetch(read: Read, start: int, length: int) -> bytes:
    data = bytes(read(start, length)) if length else b""
    if len(data) != length:
        raise CorruptionError(
            f"Blosc chunk: {length} bytes from {start} were asked for, {len(data)} came"
        )
    return data


def _claimed_bytes(head: bytes) -> int:
    """Return the length that the header claims: while blocks are elsewhere, the only source."""
    if len(head) < HEADER_BYTES:
        return len(head)
    return max(int(_CBYTES.unpack_from(head)[0]), HEADER_BYTES)


def _fetch_dictionary(read: Read, header: ChunkHeader, prefix: bytes) -> bytes:
    """Return the dictionary with its length; empty bytes if there is none."""
    if not header.has_dictionary:
        return b""
    length = _fetch(read, header.data_start, min(4, header.cbytes - header.data_start))
    place = locate_dictionary(header, prefix + length.ljust(4, b"\0"))
    return length if place is None else length + _fetch(read, place.offset, place.nbytes)


def _lazy_blocks(header: ChunkHeader) -> int:
    """Return how many blocks the lazy layout has room for, uncompressed data included."""
    return header.block_count or -(-header.nbytes // max(header.blocksize, 1))


def _plain_sizes(header: ChunkHeader) -> tuple[int, ...]:
    return tuple(map(header.bytes_of, range(_lazy_blocks(header))))


def _sizes(starts: tuple[int, ...], cbytes: int) -> tuple[int, ...]:
    """Return the room of each block: from its start to the next start in the chunk."""
    ordered = sorted({*starts, cbytes})
    following = dict(pairwise(ordered))
    return tuple(following[start] - start for start in starts)


def _join(extents: Iterable[Extent]) -> Iterator[Extent]:
    """Yield the extents in order, joined where the gap is small."""
    start = end = -1
    for at, length in sorted(extents):
        if start >= 0 and at <= end + _SMALLEST_GAP:
            end = max(end, at + length)
            continue
        if start >= 0:
            yield start, end - start
        start, end = at, at + length
    if start >= 0:
        yield start, end - start


def _cut(fetched: dict[int, bytes], start: int, length: int) -> bytes:
    at = max(at for at in fetched if at <= start)
    return fetched[at][start - at : start - at + length]

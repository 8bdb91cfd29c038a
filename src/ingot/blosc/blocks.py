"""The blocks and streams of a Blosc chunk: where they lie and how long they are.

The header is followed by the block starts, then by the dictionary if there is one; every stream
has its length in front. All of them are checked against the bytes that exist before they are used.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from ingot.blosc.header import LARGEST_EXPANSION, ChunkHeader
from ingot.errors import CorruptionError, UnsupportedError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "LARGEST_DICTIONARY",
    "Block",
    "Dictionary",
    "Stream",
    "locate",
    "locate_dictionary",
    "parse_starts",
]

LARGEST_DICTIONARY = 32768
"""The most bytes that the dictionary of a chunk can have."""

_LENGTH = struct.Struct("<i")
_REPEATED_BYTE = 0x01


@dataclass(frozen=True, slots=True)
class Stream:
    """Stored bytes that are decoded on their own.

    ``offset`` is where its data begin in the chunk, after the four bytes of their length. A run has
    a ``value``, the byte that it repeats; its data are empty, or a token if the value is not zero.

    >>> Stream(offset=28, nbytes=1000, cbytes=250).ratio
    4.0
    >>> Stream(offset=28, nbytes=1000, cbytes=0, value=0).kind
    'run'
    """

    offset: int
    nbytes: int
    cbytes: int
    value: int | None = None

    @property
    def kind(self) -> Literal["raw", "run", "codec"]:
        """How the data are stored: as they are, as one repeated byte, or compressed."""
        if self.value is not None:
            return "run"
        return "raw" if self.cbytes == self.nbytes else "codec"

    @property
    def ratio(self) -> float:
        """How many decoded bytes each stored byte stands for."""
        return self.nbytes / max(self.cbytes, 1)


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the data that was filtered and compressed on its own.

    ``offset`` is where the length of its first stream lies in the chunk.

    >>> Block(0, 24, 2000, (Stream(28, 1000, 250), Stream(282, 1000, 1000))).cbytes
    1258
    """

    index: int
    offset: int
    nbytes: int
    streams: tuple[Stream, ...]

    @property
    def cbytes(self) -> int:
        """The stored size: all streams with their lengths."""
        return sum(_LENGTH.size + stream.cbytes for stream in self.streams)


@dataclass(frozen=True, slots=True)
class Dictionary:
    """The place of the dictionary: bytes that the codec has before the first block.

    >>> Dictionary(offset=40, nbytes=1000).stop
    1040
    """

    offset: int
    nbytes: int

    @property
    def stop(self) -> int:
        """The end of the dictionary, where the first block can begin."""
        return self.offset + self.nbytes


def locate(
    header: ChunkHeader,
    chunk: "Buffer",
    first: int = 0,
    last: int | None = None,
    examine: "Callable[[Sequence[Stream]], object] | None" = None,
) -> Iterator[Block]:
    """Yield blocks ``first`` to ``last`` (all by default) of a chunk whose header is checked.

    Blocks need not be stored in order, but no two may share bytes: together they may not claim more
    than is stored, because otherwise a small chunk could cause any amount of work. Where a stream
    of a block is damaged, ``examine`` is called with those before it: a fault of theirs comes
    first. A stream of an unknown kind comes before all of them.

    >>> header = ChunkHeader(flags=0x30, nbytes=40, blocksize=40, cbytes=16 + 4 + 4 + 10)
    >>> chunk = header.pack() + struct.pack("<ii", 20, 10) + bytes(10)
    >>> [(block.offset, block.streams[0].kind) for block in locate(header, chunk)]
    [(20, 'codec')]
    """
    stop = header.block_count if last is None else last
    if not header.block_count:
        return
    if header.variable:
        yield from _locate_variable(header, chunk)[first:stop]
        return
    floor = _first_byte(header, chunk)
    room = header.cbytes - floor
    for index in range(first, stop):
        block = _locate_block(header, chunk, index, floor, examine)
        room -= block.cbytes
        if room < 0:
            raise CorruptionError(
                f"Blosc chunk: blocks overlap: block {index} claims {-room} bytes more "
                f"than the {header.cbytes} of the chunk leave"
            )
        yield block


def locate_dictionary(header: ChunkHeader, chunk: "Buffer") -> Dictionary | None:
    """Return the place of the dictionary of a chunk whose header is checked, if it has one.

    >>> locate_dictionary(ChunkHeader(flags=0x30, nbytes=40, blocksize=40, cbytes=34), b"")
    """
    if not header.has_dictionary:
        return None
    offset = header.data_start + _LENGTH.size
    if offset > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: the dictionary's length ends at {offset}, cbytes is {header.cbytes}"
        )
    (size,) = _LENGTH.unpack_from(chunk, header.data_start)
    if not 1 <= size <= LARGEST_DICTIONARY:
        raise CorruptionError(
            f"Blosc chunk: the dictionary claims {size} bytes, it has 1..{LARGEST_DICTIONARY}"
        )
    if offset + size > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: the dictionary claims {size} bytes from {offset}, "
            f"cbytes is {header.cbytes}"
        )
    return Dictionary(offset, size)


def parse_starts(header: ChunkHeader, chunk: "Buffer", floor: int) -> tuple[int, ...]:
    """Return the starts of all blocks, checked to lie between ``floor`` and the end.

    >>> header = ChunkHeader(flags=0x30, nbytes=40, blocksize=40, cbytes=34)
    >>> parse_starts(header, header.pack() + struct.pack("<i", 20), 20)
    (20,)
    """
    return tuple(_parse_start(header, chunk, index, floor) for index in range(header.block_count))


def _first_byte(header: ChunkHeader, chunk: "Buffer") -> int:
    """Return where blocks can begin: after the block starts and the dictionary."""
    dictionary = locate_dictionary(header, chunk)
    return header.data_start if dictionary is None else dictionary.stop


def _parse_start(header: ChunkHeader, chunk: "Buffer", index: int, floor: int) -> int:
    (start,) = _LENGTH.unpack_from(chunk, header.header_bytes + _LENGTH.size * index)
    if not floor <= start < header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: block {index} starts at {start}, "
            f"blocks lie from {floor} to {header.cbytes}"
        )
    return int(start)


def _locate_block(
    header: ChunkHeader,
    chunk: "Buffer",
    index: int,
    floor: int,
    examine: "Callable[[Sequence[Stream]], object] | None",
) -> Block:
    start = _parse_start(header, chunk, index, floor)
    nbytes, count = header.bytes_of(index), header.streams_of(index)
    streams: list[Stream] = []
    offset = start
    for number in range(count):
        try:
            stream = _locate_stream(header, chunk, offset, nbytes // count, f"{index}.{number}")
        except CorruptionError:
            if examine is not None:
                examine(streams)
            raise
        streams.append(stream)
        offset = stream.offset + stream.cbytes
    return Block(index, start, nbytes, tuple(streams))


def _locate_stream(
    header: ChunkHeader, chunk: "Buffer", offset: int, nbytes: int, name: str
) -> Stream:
    cbytes = _parse_length(header, chunk, offset, name)
    data_offset = offset + _LENGTH.size
    if cbytes <= 0 and header.extended:
        return _locate_run(header, chunk, data_offset, nbytes, cbytes, name)
    if not 1 <= cbytes <= _largest_stream(header.codec, nbytes):
        raise CorruptionError(
            f"Blosc chunk: stream {name} claims {cbytes} stored bytes for {nbytes} decoded ones"
        )
    if data_offset + cbytes > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: stream {name} claims {cbytes} bytes from {data_offset}, "
            f"cbytes is {header.cbytes}"
        )
    return _check_expansion(header, Stream(data_offset, nbytes, cbytes), name)


def _locate_run(
    header: ChunkHeader, chunk: "Buffer", offset: int, nbytes: int, length: int, name: str
) -> Stream:
    """Return the run that a length of 0 or below stands for: zeros, or a byte with a token."""
    if not length:
        return Stream(offset, nbytes, 0, value=0)
    if offset >= header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: the token of stream {name} lies at {offset}, cbytes is {header.cbytes}"
        )
    token = memoryview(chunk)[offset]
    if token & ~_REPEATED_BYTE:
        raise UnsupportedError(
            f"Blosc chunk: the token of stream {name} is {token:#04x}, only bit 0 is known"
        )
    if not token or length < -255:
        raise CorruptionError(
            f"Blosc chunk: stream {name} has length {length} and token {token:#04x}, "
            "a run has -255..-1 and 0x01"
        )
    return Stream(offset, nbytes, 1, value=-length)


def _locate_variable(header: ChunkHeader, chunk: "Buffer") -> list[Block]:
    """Return all blocks of variable length: each states its size and ends at the next start."""
    floor = _first_byte(header, chunk)
    starts = parse_starts(header, chunk, floor)
    blocks = []
    total = 0
    for index, (start, stop) in enumerate(pairwise((*starts, header.cbytes))):
        if stop <= start:
            raise CorruptionError(
                f"Blosc chunk: block {index} starts at {start}, the next one at {stop}"
            )
        nbytes = _parse_length(header, chunk, start, f"{index}")
        stored = stop - start - _LENGTH.size
        if nbytes < 0 or not min(nbytes, 1) <= stored <= _largest_stream(header.codec, nbytes):
            raise CorruptionError(
                f"Blosc chunk: block {index} has {stored} stored bytes for {nbytes} decoded ones"
            )
        stream = Stream(start + _LENGTH.size, nbytes, stored)
        blocks.append(Block(index, start, nbytes, (_check_expansion(header, stream, f"{index}"),)))
        total += nbytes
    if total != header.nbytes:
        raise CorruptionError(
            f"Blosc chunk: nbytes claims {header.nbytes} bytes, the blocks claim {total}"
        )
    return blocks


def _parse_length(header: ChunkHeader, chunk: "Buffer", offset: int, name: str) -> int:
    if offset + _LENGTH.size > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: the length of stream {name} ends at {offset + _LENGTH.size}, "
            f"cbytes is {header.cbytes}"
        )
    return int(_LENGTH.unpack_from(chunk, offset)[0])


def _check_expansion(header: ChunkHeader, stream: Stream, name: str) -> Stream:
    """Return a stream that can hold what it claims; with runs, the header cannot check that."""
    if stream.nbytes > stream.cbytes * LARGEST_EXPANSION[header.codec]:
        raise CorruptionError(
            f"Blosc chunk: stream {name} claims {stream.nbytes} bytes, "
            f"{stream.cbytes} bytes of {header.codec} cannot hold them"
        )
    return stream


def _largest_stream(codec: str, nbytes: int) -> int:
    """Return the most bytes of a stream: data that do not shrink are stored as they are.

    Snappy is the exception: C-Blosc 1 stored its streams even if they were longer than the data.
    """
    return 32 + nbytes + nbytes // 6 if codec == "snappy" else nbytes

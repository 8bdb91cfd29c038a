"""Where the blocks and streams of a Blosc chunk lie.

Knows the block starts behind the header and the length in front of every stream, and checks each
against the bytes that exist before anybody uses them. Refuses to know what is inside a stream.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ingot.codecs.header import ChunkHeader
from ingot.errors import CorruptionError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Block", "Stream", "locate"]

_LENGTH = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class Stream:
    """A stretch of stored bytes that decodes on its own.

    ``offset`` is where its data begin in the chunk, behind the four bytes of their length.

    >>> Stream(offset=28, nbytes=1000, cbytes=250).ratio
    4.0
    """

    offset: int
    nbytes: int
    cbytes: int

    @property
    def kind(self) -> Literal["raw", "run", "codec"]:
        """How the data are stored: as they are, as one repeated byte, or compressed.

        Blosc 1 has no runs; the word is kept for Blosc 2, whose lengths of 0 and below mean them.
        """
        if self.cbytes == self.nbytes:
            return "raw"
        return "run" if self.cbytes <= 0 else "codec"

    @property
    def ratio(self) -> float:
        """How many decoded bytes each stored byte stands for."""
        return self.nbytes / max(self.cbytes, 1)


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of the data that was filtered and compressed on its own.

    ``offset`` is where its first stream's length lies in the chunk.

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


def locate(
    header: ChunkHeader, chunk: "Buffer", first: int = 0, last: int | None = None
) -> Iterator[Block]:
    """Yield blocks ``first`` to ``last`` (all by default) of a chunk whose header is checked.

    Blocks need not be stored in order, but no two may share bytes: what they claim together may
    not exceed what is stored, or a small chunk could ask for any amount of work.

    >>> header = ChunkHeader(flags=0x30, nbytes=40, blocksize=40, cbytes=16 + 4 + 4 + 10)
    >>> chunk = header.pack() + struct.pack("<ii", 20, 10) + bytes(10)
    >>> list(locate(header, chunk))
    [Block(index=0, offset=20, nbytes=40, streams=(Stream(offset=24, nbytes=40, cbytes=10),))]
    """
    room = header.cbytes - header.data_start
    for index in range(first, header.block_count if last is None else last):
        block = _locate_block(header, chunk, index)
        room -= block.cbytes
        if room < 0:
            raise CorruptionError(
                f"Blosc chunk: blocks overlap: block {index} claims {-room} bytes more "
                f"than the {header.cbytes} of the chunk leave"
            )
        yield block


def _locate_block(header: ChunkHeader, chunk: "Buffer", index: int) -> Block:
    (start,) = _LENGTH.unpack_from(chunk, header.header_bytes + _LENGTH.size * index)
    if not header.data_start <= start < header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: block {index} starts at {start}, "
            f"blocks lie from {header.data_start} to {header.cbytes}"
        )
    nbytes, count = header.bytes_of(index), header.streams_of(index)
    streams = []
    offset = start
    for number in range(count):
        stream = _locate_stream(header, chunk, offset, nbytes // count, f"{index}.{number}")
        streams.append(stream)
        offset = stream.offset + stream.cbytes
    return Block(index, start, nbytes, tuple(streams))


def _locate_stream(
    header: ChunkHeader, chunk: "Buffer", offset: int, nbytes: int, name: str
) -> Stream:
    data_offset = offset + _LENGTH.size
    if data_offset > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: the length of stream {name} ends at {data_offset}, "
            f"cbytes is {header.cbytes}"
        )
    (cbytes,) = _LENGTH.unpack_from(chunk, offset)
    if not 1 <= cbytes <= _largest_stream(header.codec, nbytes):
        raise CorruptionError(
            f"Blosc chunk: stream {name} claims {cbytes} stored bytes for {nbytes} decoded ones"
        )
    if data_offset + cbytes > header.cbytes:
        raise CorruptionError(
            f"Blosc chunk: stream {name} claims {cbytes} bytes from {data_offset}, "
            f"cbytes is {header.cbytes}"
        )
    return Stream(data_offset, nbytes, cbytes)


def _largest_stream(codec: str, nbytes: int) -> int:
    """Return how long a stream may be: what does not shrink is stored as it is.

    But C-Blosc 1 gave Snappy all the room it might ask for.
    """
    return 32 + nbytes + nbytes // 6 if codec == "snappy" else nbytes

"""Block starts and stream lengths are believed only as far as bytes exist."""

import struct

import pytest

from ingot.blosc.blocks import Block, Stream, locate
from ingot.blosc.header import ChunkHeader
from ingot.errors import CorruptionError


def chunk_of(starts: list[int], body: bytes, **fields: int) -> tuple[ChunkHeader, bytes]:
    """Lay out an unsplit LZ4 chunk of blocks of 100 bytes."""
    packed_starts = struct.pack(f"<{len(starts)}i", *starts)
    defaults = {"flags": 0x30, "nbytes": 100 * len(starts), "blocksize": 100}
    cbytes = 16 + len(packed_starts) + len(body)
    header = ChunkHeader(**(defaults | fields), cbytes=cbytes)
    return header, header.pack() + packed_starts + body


def stream(length: int, stored: int | None = None) -> bytes:
    return struct.pack("<i", length) + bytes(length if stored is None else stored)


def test_blocks_may_lie_in_any_order() -> None:
    header, chunk = chunk_of([24 + 14, 24], stream(10) + stream(20))
    assert list(locate(header, chunk)) == [
        Block(0, 38, 100, (Stream(42, 100, 20),)),
        Block(1, 24, 100, (Stream(28, 100, 10),)),
    ]


def test_blocks_may_leave_gaps() -> None:
    header, chunk = chunk_of([24, 50], stream(10).ljust(26, b"?") + stream(20))
    assert [block.cbytes for block in locate(header, chunk)] == [14, 24]


def test_a_split_block_has_a_stream_per_byte_of_the_item() -> None:
    header, chunk = chunk_of(
        [20], stream(5) + stream(6), flags=0x21, typesize=2, nbytes=256, blocksize=256
    )
    (block,) = locate(header, chunk)
    assert block.streams == (Stream(24, 128, 5), Stream(33, 128, 6))


def test_only_the_blocks_asked_for_are_parsed() -> None:
    header, chunk = chunk_of([-1, 28, 9999], stream(10))
    assert [block.index for block in locate(header, chunk, 1, 2)] == [1]


@pytest.mark.parametrize("start", [-1, -(2**31), 0, 15, 16, 19, 34, 2**31 - 1])
def test_a_start_outside_the_blocks_is_refused(start: int) -> None:
    header, chunk = chunk_of([start], stream(10))
    with pytest.raises(CorruptionError, match=f"block 0 starts at {start}, blocks lie from 20 to"):
        list(locate(header, chunk))


@pytest.mark.parametrize("start", [31, 32, 33])
def test_a_length_that_lies_partly_outside_is_refused(start: int) -> None:
    header, chunk = chunk_of([start], stream(10))
    with pytest.raises(CorruptionError, match=f"the length of stream 0.0 ends at {start + 4}"):
        list(locate(header, chunk))


@pytest.mark.parametrize("length", [0, -1, -65, 101, 2**31 - 1, -(2**31)])
def test_an_impossible_length_is_refused(length: int) -> None:
    """Blosc 1 has no zero and run streams, and nothing stored is longer than its data."""
    header, chunk = chunk_of([20], stream(length, stored=50))
    with pytest.raises(CorruptionError, match=f"stream 0.0 claims {length} stored bytes for 100"):
        list(locate(header, chunk))


def test_a_stream_that_ends_outside_is_refused() -> None:
    header, chunk = chunk_of([20], stream(51, stored=50))
    with pytest.raises(CorruptionError, match="claims 51 bytes from 24, cbytes is 74"):
        list(locate(header, chunk))


def test_blocks_may_not_share_bytes() -> None:
    header, chunk = chunk_of([24, 24], stream(10))
    with pytest.raises(CorruptionError, match="overlap: block 1 claims 14 bytes more"):
        list(locate(header, chunk))


@pytest.mark.parametrize(
    ("described", "kind", "ratio"),
    [(Stream(24, 100, 100), "raw", 1.0), (Stream(24, 100, 25), "codec", 4.0)],
)
def test_a_stream_says_how_it_is_stored(described: Stream, kind: str, ratio: float) -> None:
    assert (described.kind, described.ratio) == (kind, ratio)

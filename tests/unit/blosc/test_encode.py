"""The twin by itself: the chunk it writes, byte by byte."""

import struct

import numpy as np
import pytest

from ingot.blosc import decode, encode
from ingot.blosc.filters import Pipeline
from ingot.blosc.inspection import inspect
from ingot.errors import LimitError


def test_a_chunk_is_header_starts_and_blocks() -> None:
    """Raw streams only, so that every byte is known: noise, but for a first block of zeros."""
    noise = np.random.default_rng(2).bytes(200)
    chunk = decode.compress(bytes(200) + noise, 1, "zlib", 6, "none", 100)
    assert chunk[:4] == bytes([2, 1, 0x70, 1])
    assert struct.unpack_from("<iii", chunk, 4) == (400, 100, len(chunk))
    starts = struct.unpack_from("<iiii", chunk, 16)
    assert starts[0] == 32
    (first,) = struct.unpack_from("<i", chunk, 32)
    assert starts[1] == 36 + first
    for index in (2, 3):
        assert struct.unpack_from("<i", chunk, starts[index]) == (100,)
        stored = chunk[starts[index] + 4 : starts[index] + 104]
        assert stored == noise[(index - 2) * 100 : (index - 1) * 100]


def test_a_split_block_holds_the_planes_in_order() -> None:
    items = np.arange(256, dtype="<u2") + 0x4100
    chunk = decode.compress(items, 2, "lz4", 5, "shuffle", 0)
    (block,) = inspect(chunk).blocks
    low, high = block.streams
    assert (low.kind, high.kind) == ("raw", "codec")
    assert chunk[low.offset : low.offset + 256] == bytes(range(256))


def test_the_short_last_block_is_not_split() -> None:
    chunk = decode.compress(bytes(1000), 2, "lz4", 5, "shuffle", 512)
    assert [len(block.streams) for block in inspect(chunk).blocks] == [2, 1]


def test_a_stream_that_does_not_shrink_is_stored_raw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stored length equal to the data's means raw, so nothing else may have it."""
    monkeypatch.setattr(encode.streams, "encode", lambda codec, data, level: b"?" * len(data))
    parts = [bytes(range(100))] * 2
    writer = encode._BlockWriter(Pipeline((), 1), "lz4", 5, block_bytes=100, split=False)
    blocks = writer.pack(np.frombuffer(b"".join(parts), np.uint8), 16)
    assert (
        blocks == struct.pack("<iii", 24, 128, 100) + parts[0] + struct.pack("<i", 100) + parts[1]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        (1, "lzma", 5, "none", 0),
        (1, "lz4", 10, "none", 0),
        (1, "lz4", -1, "none", 0),
        (1, "lz4", 5, "delta", 0),
        (0, "lz4", 5, "none", 0),
        (1, "lz4", 5, "none", -1),
        (1, "lz4", 5, "none", 536_866_817),
    ],
)
def test_bad_arguments_are_value_errors(arguments: tuple[int, str, int, str, int]) -> None:
    with pytest.raises(ValueError):
        decode.compress(b"spam", *arguments)


def test_memory_that_is_not_there_is_a_limit_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError

    chunk = decode.compress(bytes(1000), 1, "lz4", 5, "none", 0)
    monkeypatch.setattr(np, "empty", exhausted)
    with pytest.raises(LimitError, match="no memory for 1000 decoded bytes"):
        decode.decompress(chunk)

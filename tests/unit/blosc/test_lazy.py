"""Chunks whose blocks are elsewhere: what is fetched, what comes back, the lazy layout."""

import struct
from typing import Any

import numpy as np
import pytest

from ingot import native
from ingot.blosc import decode
from ingot.blosc.header import ChunkHeader
from ingot.blosc.lazy import LazyChunk
from ingot.errors import CorruptionError, FormatError, LimitError, SelectionError, UnsupportedError
from tests.kernels import load

RANDOM = np.random.default_rng(11)
DATA = np.cumsum(RANDOM.integers(0, 900, 20_000)).astype("<u4").tobytes()


@pytest.fixture(autouse=True)
def _use_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "kernel", lambda: load("python"))


class Source:
    """A stored chunk that remembers what was read of it."""

    def __init__(self, stored: bytes) -> None:
        self.stored = stored
        self.requests: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        self.requests.append((start, length))
        return self.stored[start : start + length]


def write(**changes: Any) -> bytes:
    options: dict[str, Any] = {
        "data": DATA,
        "typesize": 4,
        "codec": "zstd",
        "level": 3,
        "filters": [(1, 0)],
        "blocksize": 8000,
    }
    return decode.compress2(**(options | changes))


CHUNKS = {
    "shuffled": (write(), DATA),
    "delta": (write(filters=[(3, 0), (1, 0)]), DATA),
    "split, the last block short": (write(codec="lz4", data=DATA[:78_000]), DATA[:78_000]),
    "split": (write(codec="lz4", split="always"), DATA),
    "a dictionary": (write(dictionary=DATA[:999]), DATA),
    "blocks of broken items": (
        decode.compress(DATA, 1, "lz4", 5, "none", 777),
        DATA,
    ),
    "Blosc 1": (decode.compress(DATA, 4, "zlib", 5, "bitshuffle", 5000), DATA),
    "memcpyed": (write(level=0), DATA),
    "memcpyed, Blosc 1": (decode.compress(DATA, 4, "lz4", 0, "none", 0), DATA),
    "zeros": (write(data=bytes(80_000)), bytes(80_000)),
    "a value": (write(data=b"spam" * 20_000), b"spam" * 20_000),
    "empty": (write(data=b""), b""),
    "one short block": (write(data=DATA[:101]), DATA[:101]),
}


@pytest.mark.parametrize("name", CHUNKS)
def test_slices_are_those_of_the_chunk(name: str) -> None:
    stored, data = CHUNKS[name]
    chunk = LazyChunk.build(Source(stored).read)
    size, count = stored[3], chunk.header.item_count
    pairs = RANDOM.integers(0, count + 1, (30, 2)).tolist()
    for start, stop in [(0, count), (0, 0), (count, count), *map(sorted, pairs)]:
        source = Source(stored)
        assert chunk.read(source.read, start, stop) == data[start * size : stop * size]
        assert source.requests == list(chunk.explain(start, stop))


def test_only_header_starts_and_needed_blocks_are_fetched() -> None:
    stored, _ = CHUNKS["shuffled"]
    source = Source(stored)
    chunk = LazyChunk.build(source.read)
    assert source.requests == [(0, 32), (32, 40)]
    starts = struct.unpack_from("<10i", stored, 32)
    assert chunk.explain(4500, 4600) == ((starts[2], starts[3] - starts[2]),)
    assert chunk.explain(1000, 5000) == ((starts[0], starts[3] - starts[0]),)
    assert chunk.explain(19_999, 20_000) == ((starts[9], len(stored) - starts[9]),)


def test_delta_needs_the_first_block_as_well() -> None:
    stored, _ = CHUNKS["delta"]
    chunk = LazyChunk.build(Source(stored).read)
    starts = struct.unpack_from("<10i", stored, 32)
    first, ninth = (starts[0], starts[1] - starts[0]), (starts[8], starts[9] - starts[8])
    assert chunk.explain(16_000, 16_001) == (first, ninth)
    assert chunk.explain(10, 20) == (first,)


def test_close_neighbours_are_fetched_at_once() -> None:
    """Blocks in any order: the third is stored first, small ones lie between the others."""
    noise = [RANDOM.bytes(5000) for _ in range(3)]
    bodies = [struct.pack("<i", 5000) + part for part in noise]
    order = (2, 0, 1)
    starts, at = [0, 0, 0], 44
    for index in order:
        starts[index], at = at, at + 5004
    header = ChunkHeader(
        version=5,
        flags=0x35,
        nbytes=15_000,
        blocksize=5000,
        cbytes=at,
        extension=ChunkHeader.parse(write()).extension,
    )
    stored = header.pack() + struct.pack("<3i", *starts) + b"".join(bodies[i] for i in order)
    chunk = LazyChunk.build(Source(stored).read)
    assert chunk.explain(0, 10_000) == ((starts[0], 10_008),)
    assert chunk.explain(0, 15_000) == ((44, 15_012),)
    assert chunk.explain(5000, 15_000) == ((44, 5004), (starts[1], 5004))
    assert chunk.read(Source(stored).read, 5000, 15_000) == noise[1] + noise[2]


def test_special_values_need_no_second_read() -> None:
    stored, _ = CHUNKS["a value"]
    chunk = LazyChunk.build(Source(stored).read)
    assert chunk.explain(0, 20_000) == ()


def test_the_lazy_layout_is_that_of_the_document() -> None:
    stored, _ = CHUNKS["shuffled"]
    packed = LazyChunk.build(Source(stored).read, number=7, offset=2**40).pack()
    starts = struct.unpack_from("<10i", stored, 32)
    sizes = [end - start for start, end in zip(starts, [*starts[1:], len(stored)], strict=True)]
    marked = bytearray(stored[:32])
    marked[31] |= 0x08
    assert packed == bytes(marked) + stored[32:72] + struct.pack("<iq10i", 7, 2**40, *sizes)


def test_the_lazy_layout_of_data_without_blocks_keeps_their_room() -> None:
    stored, _ = CHUNKS["memcpyed"]
    packed = LazyChunk.build(Source(stored).read).pack()
    assert packed[32:] == bytes(40) + struct.pack("<iq", 0, 0) + struct.pack("<i", 8000) * 10


@pytest.mark.parametrize("name", ["shuffled", "delta", "split", "memcpyed", "one short block"])
def test_a_parsed_layout_reads_like_the_built_one(name: str) -> None:
    stored, data = CHUNKS[name]
    built = LazyChunk.build(Source(stored).read, 3, 99)
    parsed = LazyChunk.parse(built.pack())
    assert parsed == built
    size = stored[3]
    assert parsed.read(Source(stored).read, 10, 20) == data[10 * size : 20 * size]


def test_what_has_no_lazy_layout_is_not_packed() -> None:
    for name in ("Blosc 1", "zeros"):
        with pytest.raises(UnsupportedError):
            LazyChunk.build(Source(CHUNKS[name][0]).read).pack()


def test_a_dictionary_is_fetched_with_the_blocks() -> None:
    """It has no place in the layout, but its own in front of the blocks."""
    stored, data = CHUNKS["a dictionary"]
    built = LazyChunk.build(Source(stored).read)
    parsed = LazyChunk.parse(built.pack())
    assert parsed.pack() == built.pack()
    starts = struct.unpack_from("<10i", stored, 32)
    dictionary = (72, min(starts) - 72)
    assert dictionary[1] == 4 + 999
    for start, stop in ((0, 20_000), (4500, 4600), (19_999, 20_000)):
        source = Source(stored)
        assert parsed.read(source.read, start, stop) == data[start * 4 : stop * 4]
        assert source.requests == list(parsed.explain(start, stop))
        assert source.requests[0][0] == dictionary[0]
    assert parsed.explain(5, 5) == ()


@pytest.mark.parametrize("size", [-1, 0, 1000, 32_769, 2**31 - 1])
def test_a_dictionary_that_lies(size: int) -> None:
    stored, _ = CHUNKS["a dictionary"]
    parsed = LazyChunk.parse(LazyChunk.build(Source(stored).read).pack())
    lying = stored[:72] + struct.pack("<i", size) + stored[76:]
    with pytest.raises(CorruptionError, match="the dictionary"):
        parsed.read(Source(lying).read, 4500, 4600)


def test_no_more_than_a_dictionary_is_fetched() -> None:
    stored, data = CHUNKS["a dictionary"]
    gap = 10**6
    starts = struct.unpack_from("<10i", stored, 32)
    first = min(starts)
    moved = bytearray(stored[:first] + bytes(gap) + stored[first:])
    struct.pack_into("<10i", moved, 32, *(start + gap for start in starts))
    struct.pack_into("<i", moved, 12, len(moved))
    parsed = LazyChunk.parse(LazyChunk.build(Source(bytes(moved)).read).pack())
    source = Source(bytes(moved))
    assert parsed.read(source.read, 4500, 4600) == data[18_000:18_400]
    assert source.requests[0] == (72, 4 + 32_768)


def test_no_room_for_a_dictionary() -> None:
    stored, _ = CHUNKS["shuffled"]
    packed = bytearray(LazyChunk.build(Source(stored).read).pack())
    packed[31] |= 0x01
    with pytest.raises(CorruptionError, match="the dictionary"):
        LazyChunk.parse(packed).read(Source(stored).read, 0, 10)


def test_damaged_layouts_are_refused() -> None:
    packed = LazyChunk.build(Source(CHUNKS["shuffled"][0]).read).pack()
    for length in range(len(packed)):
        with pytest.raises((CorruptionError, FormatError)):
            LazyChunk.parse(packed[:length])
    with pytest.raises(CorruptionError, match="10 blocks make"):
        LazyChunk.parse(packed + b"\0")
    with pytest.raises(CorruptionError, match="are not the blocks'"):
        LazyChunk.parse(packed[:-4] + struct.pack("<i", 5))
    with pytest.raises(CorruptionError, match="block 0 starts at 5"):
        LazyChunk.parse(packed[:32] + struct.pack("<i", 5) + packed[36:])
    with pytest.raises(FormatError, match="do not say that the chunk is lazy"):
        LazyChunk.parse(CHUNKS["shuffled"][0])


@pytest.mark.parametrize("name", ["shuffled", "a dictionary", "a value", "Blosc 1"])
def test_a_source_that_ends_early_is_corruption(name: str) -> None:
    stored, _ = CHUNKS[name]
    for length in [*range(40), 60]:
        if length < len(stored):
            with pytest.raises(CorruptionError):
                LazyChunk.build(Source(stored[:length]).read)
    chunk = LazyChunk.build(Source(stored).read)
    if chunk.header.block_count:
        with pytest.raises(CorruptionError, match="were asked for"):
            chunk.read(Source(stored[:-1]).read, 0, chunk.header.item_count)


def test_no_more_than_the_chunk_is_believed() -> None:
    """More bytes follow in a frame; they are not part of the chunk, whatever it claims."""
    stored, _ = CHUNKS["a dictionary"]
    (first,) = struct.unpack_from("<i", stored, 32)
    cut = stored[:12] + struct.pack("<i", 73) + stored[16:]
    with pytest.raises(CorruptionError, match="the dictionary's length ends at 76, cbytes is 73"):
        LazyChunk.build(Source(cut).read)
    cut = stored[:12] + struct.pack("<i", first) + stored[16:]
    with pytest.raises(CorruptionError, match=f"block 0 starts at {first}"):
        LazyChunk.build(Source(cut).read)
    cut = stored[:12] + struct.pack("<i", -7) + stored[16:]
    with pytest.raises(CorruptionError, match="announce a header of 32 bytes, 16 are stored"):
        LazyChunk.build(Source(cut).read)


def test_ranges_and_limits_are_those_of_chunks() -> None:
    chunk = LazyChunk.build(Source(CHUNKS["shuffled"][0]).read)
    for start, stop in ((-1, 5), (6, 5), (0, 20_001)):
        with pytest.raises(SelectionError):
            chunk.explain(start, stop)
    with pytest.raises(LimitError):
        chunk.read(Source(CHUNKS["shuffled"][0]).read, 0, 1, limit=79_999)

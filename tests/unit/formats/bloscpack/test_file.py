"""What is found in Bloscpack files before a chunk is decoded, and which claims are refused."""

import struct
from dataclasses import replace
from typing import Any

import pytest

from ingot.blosc.header import ChunkHeader
from ingot.codecs.checksums import digest
from ingot.errors import CorruptionError, FormatError, IngotError, NotFoundError
from ingot.formats import trailer
from ingot.formats.bloscpack import metadata, offsets
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import UNKNOWN, Header
from ingot.stores import MemoryStore
from ingot.testing.counting import CountingStore


def memcpyed(content: bytes) -> bytes:
    """Return a Blosc chunk that holds its content as it is."""
    size = len(content)
    return struct.pack("<BBBBiii", 2, 1, 0x13, 1, size, max(size, 1), 16 + size) + content


def packed(
    lengths: list[int],
    value: Any = None,
    *,
    starts: list[int] | None = None,
    **changes: Any,
) -> bytes:
    """Return a file of chunks of given lengths; `changes` are those of the header."""
    settings = {
        "has_metadata": value is not None,
        "chunk_size": lengths[0],
        "last_chunk": lengths[-1],
        "nchunks": len(lengths),
        "max_app_chunks": 5,
        **changes,
    }
    header = Header(**settings)
    front = header.pack() + (b"" if value is None else metadata.pack(value))
    chunks = [memcpyed(bytes([number % 256]) * length) for number, length in enumerate(lengths)]
    stored = [chunk + digest(header.checksum, chunk) for chunk in chunks]
    at = len(front) + header.table_bytes
    table = b""
    if header.has_offsets:
        found = [at + sum(map(len, stored[:number])) for number in range(len(stored))]
        table = offsets.pack(found if starts is None else starts, header.max_app_chunks)
    return front + table + b"".join(stored)


def read(data: bytes) -> BloscpackFile:
    return BloscpackFile.read(MemoryStore({"a.blp": data}), "a.blp")


def test_a_file_with_all_parts() -> None:
    data = packed([100, 100, 30], {"a": 1})
    file = read(data)
    assert file.value == {"a": 1}
    assert file.row.nbytes.tolist() == [100, 100, 30]
    assert file.begin == file.row.start[0] == 32 + 106 + 64
    assert file.end == file.size == len(data)


def test_bytes_behind_the_end_do_not_count() -> None:
    data = packed([100, 30])
    file = read(data + b"stale")
    assert (file.end, file.size) == (len(data), len(data) + 5)


@pytest.mark.parametrize(("length", "batches"), [(30, 1), (1 << 16, 3)])
def test_few_reads_find_everything(length: int, batches: int) -> None:
    store = CountingStore({"a.blp": packed([length, length, 1], {"a": 1})})
    assert BloscpackFile.read(store, "a.blp").value == {"a": 1}
    assert store.batches == batches


def test_the_walk_stands_in_for_offsets_that_say_nothing() -> None:
    data = packed([100, 100, 30], starts=[-1, -1, -1])
    assert read(data).row.start.tolist() == read(packed([100, 100, 30])).row.start.tolist()


def test_unknown_sizes_are_those_of_the_chunks() -> None:
    data = packed([100, 100, 30], chunk_size=UNKNOWN, last_chunk=UNKNOWN)
    assert read(data).row.uniform() == (100, 30)
    moved = packed([100, 100, 30], starts=[96, 220, 336], chunk_size=UNKNOWN, last_chunk=UNKNOWN)
    with pytest.raises(CorruptionError, match="entry 1 is 220, the chunk starts at 216"):
        read(moved)


def test_offsets_of_other_chunks() -> None:
    data = packed([100, 100, 100, 100, 30])
    places = read(data).row.start.tolist()
    for kept in ([0, 1, 2, 4], [0, 2, 3, 4], [0, 1, 3, 4]):
        header = replace(Header.parse(data), nchunks=4, max_app_chunks=6)
        table = offsets.pack([places[number] for number in kept], 6)
        with pytest.raises(CorruptionError, match="is due"):
            read(header.pack() + table + data[32 + len(table) :])


def test_the_sizes_of_chunks_in_the_front() -> None:
    data = bytearray(packed([100, 100, 30]))
    struct.pack_into("<i", data, int(read(bytes(data)).row.start[1]) + 4, 99)
    with pytest.raises(CorruptionError, match="has nbytes 99, 100 is due"):
        read(bytes(data))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"last_chunk": 31}, "last_chunk claims 31 bytes"),
        ({"nchunks": 2}, "entry 0 is"),
        ({"nchunks": 4}, "Blosc chunk"),
        ({"chunk_size": 10**8}, "cannot hold them"),
        ({"has_offsets": False, "max_app_chunks": 0, "nchunks": 4}, "Blosc chunk"),
    ],
)
def test_headers_that_lie(changes: dict[str, Any], text: str) -> None:
    data = bytearray(packed([100, 100, 30]))
    header = replace(Header.parse(data), **changes)
    data[:32] = header.pack()
    with pytest.raises(IngotError, match=text):
        read(bytes(data))


def test_every_truncation_is_noticed() -> None:
    data = packed([100, 100, 30], {"a": 1})
    for length in range(len(data)):
        with pytest.raises((CorruptionError, FormatError)) as caught:
            read(data[:length])
        assert "in 'a.blp' of memory" in caught.value.__notes__


def test_every_truncation_of_a_file_without_offsets_is_noticed() -> None:
    data = packed([100, 100, 30], has_offsets=False)
    for length in range(len(data)):
        with pytest.raises((CorruptionError, FormatError)):
            read(data[:length])


def test_a_file_is_current_as_long_as_it_says_the_same() -> None:
    data = packed([100, 100, 30], {"a": 1})
    store = MemoryStore({"a.blp": data})
    file = BloscpackFile.read(store, "a.blp")
    assert file.is_current(store, "a.blp")
    # Header, metadata, offsets, and the header of the last chunk.
    last = int(file.row.start[-1])
    told = [*range(file.begin - 8 * 5), *range(last, last + 16)]
    for at in told:
        changed = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        assert not file.is_current(MemoryStore({"a.blp": changed}), "a.blp"), at
    assert not file.is_current(MemoryStore({"a.blp": data + b"x"}), "a.blp")
    assert not file.is_current(MemoryStore(), "a.blp")
    # What chunks hold is read when it is needed.
    at = int(file.row.start[0]) + 20
    other = MemoryStore({"a.blp": data[:at] + b"?" + data[at + 1 :]})
    assert file.is_current(other, "a.blp")


def test_a_file_whose_chunks_were_walked_over_is_not_known_to_be_current() -> None:
    store = MemoryStore({"a.blp": packed([100, 30], has_offsets=False, max_app_chunks=0)})
    assert not BloscpackFile.read(store, "a.blp").is_current(store, "a.blp")


def test_an_absent_file() -> None:
    for key in ("", "b.blp"):
        with pytest.raises(NotFoundError):
            BloscpackFile.read(MemoryStore({"a.blp": b""}), key)


def chunk_file(content: bytes) -> bytes:
    """Return a chunk file of bcolz as Ingot writes it."""
    chunk = memcpyed(content)
    return b"blpk\x01\0\0\0" + struct.pack("<q", 1) + chunk + trailer.pack(chunk, 7, len(content))


def test_the_trailer_of_a_chunk_file_is_no_data() -> None:
    file = read(chunk_file(b"abc" * 100))
    assert (file.row.payload, file.end) == (300, 16 + 316)
    assert file.last == ChunkHeader.parse(memcpyed(b"abc" * 100))


def test_the_trailer_of_a_chunk_file_is_verified() -> None:
    data = chunk_file(b"abc" * 100)
    for place in range(32, len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x10
        if bytes(broken[332:336]) != trailer.MAGIC:
            continue  # Bytes that are no trailer lie behind the end.
        with pytest.raises(IngotError):
            read(bytes(broken))

"""The trailer behind a chunk: its bytes, what it covers, and the zone map in it."""

import os
import struct
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import blosc
from ingot.blosc.header import ChunkHeader
from ingot.codecs.checksums import crc32c
from ingot.codecs.codec import CheckedPart, StoredBytes
from ingot.codecs.zone_maps import ZoneMap, ZoneMaps, has_zone_map, zone_map_of
from ingot.errors import CorruptionError
from ingot.formats import trailer
from ingot.formats.bcolz.array import BcolzMap, open_array
from ingot.stores import LocalStore, MemoryStore
from tests.storage import Place, content, store_at


@pytest.mark.parametrize("identity", [None, 0, 2**64 - 2])
def test_the_bytes_are_as_the_format_page_draws_them(identity: int | None) -> None:
    chunk = blosc.compress(bytes(range(200)) * 50, blocksize=4000)
    packed = trailer.pack(chunk, number=5, rows=10_000, zone=b"z" * 32, identity=identity)
    count = -(-10_000 // 4000)
    starts = np.frombuffer(chunk, "<i4", count, 16).tolist()
    ends = [*starts[1:], len(chunk)]
    version = 1 if identity is None else 2
    head = struct.pack("<4sBBHIQI", b"igt1", version, 0, 32, count, 5, 10_000)
    if identity is not None:
        head += struct.pack("<Q", identity)
    expected = head + struct.pack("<I", crc32c(chunk[: 16 + 4 * count] + head))
    for start, end in zip(starts, ends, strict=True):
        expected += struct.pack("<I", crc32c(chunk[start:end]))
    expected += b"z" * 32
    expected += struct.pack("<I", len(expected) + 8)
    expected += struct.pack("<I", crc32c(expected))
    assert packed == expected
    assert trailer.parse(packed).identity == identity


def test_a_trailer_holds_for_its_chunk_only() -> None:
    chunk = blosc.compress(bytes(5000))
    found = trailer.parse(trailer.pack(chunk, 3, 5000))
    header = ChunkHeader.parse(chunk)
    found.check(chunk, header, 3)
    with pytest.raises(CorruptionError, match="chunk 3, not 4"):
        found.check(chunk, header, 4)
    other = blosc.compress(bytes([1]) * 5000)
    with pytest.raises(CorruptionError):
        found.check(other, ChunkHeader.parse(other), 3)


def test_a_trailer_holds_for_its_array_only() -> None:
    chunk = blosc.compress(bytes(5000))
    header = ChunkHeader.parse(chunk)
    old, new = trailer.pack(chunk, 3, 5000), trailer.pack(chunk, 3, 5000, identity=10)
    for identity in (None, 0, 10, 11):
        trailer.parse(old).check(chunk, header, 3, identity)
    trailer.parse(new).check(chunk, header, 3, 10)
    text = "its identity is 000000000000000a, the x_id of the array is 000000000000000b"
    with pytest.raises(CorruptionError, match=text):
        trailer.parse(new).check(chunk, header, 3, 11)
    with pytest.raises(CorruptionError, match="000000000000000a, the array has no x_id"):
        trailer.parse(new).check(chunk, header, 3)


def part_of(data: bytes, *blocks: int, missing: range = range(0)) -> StoredBytes:
    """Return stored bytes of which blocks are wanted, and some bytes are not at hand."""

    def cut(start: int, stop: int) -> memoryview | None:
        absent = start < missing.stop and missing.start < stop
        return None if absent else memoryview(data)[start:stop]

    return StoredBytes(len(data), cut, lambda head: blocks)


def blocked_chunk(level: int = 5) -> bytes:
    """Return a chunk of 10 blocks of 1000 bytes."""
    items = np.arange(2500, dtype="<i4") // 7
    return blosc.compress(items, blocksize=1000, level=level)


@pytest.mark.parametrize("level", [0, 5])
@pytest.mark.parametrize("begin", [0, 16])
def test_wanted_blocks_are_compared_and_no_others(level: int, begin: int) -> None:
    chunk = blocked_chunk(level)
    data = bytes(begin) + chunk + trailer.pack(chunk, 3, 2500, identity=10)
    spans = trailer.block_spans(ChunkHeader.parse(chunk), memoryview(chunk))
    front = begin + spans[0][0]

    def checked(data: bytes, *blocks: int, **missing: range) -> CheckedPart | None:
        stored, rows = part_of(data, *blocks, **missing), range(2500, 2501)
        return trailer.checked_part(stored, begin, 10_000, (3, 10), rows, exact=True)

    expected = CheckedPart(begin, front, begin + len(chunk))
    assert checked(data, 2, 5) == expected
    for number, (start, stop) in enumerate(spans):
        for place in (start, stop - 1):
            damaged = bytearray(data)
            damaged[begin + place] ^= 1
            if number in (2, 5):
                with pytest.raises(CorruptionError, match=f"CRC-32C of the block {number} is"):
                    checked(bytes(damaged), 2, 5)
            else:
                assert checked(bytes(damaged), 2, 5) == expected
    for place in [*range(begin, front), *range(begin + len(chunk), len(data))]:
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert checked(bytes(damaged), 2, 5) is None
    at = begin + spans[5][0]
    assert checked(data, 2, 5, missing=range(at, at + 1)) is None
    assert checked(data, 2, missing=range(at, at + 1)) == expected
    assert checked(data, 2, missing=range(len(data) - 1, len(data))) is None
    assert checked(data[:-1], 2) is None
    assert checked(data + b"\0", 2) is None


def test_a_part_of_another_chunk_is_not_taken() -> None:
    chunk = blocked_chunk()
    data = chunk + trailer.pack(chunk, 3, 2500, identity=10)

    def taken(
        number: int = 3, identity: int | None = 10, rows: range = range(2501), nbytes: int = 10_000
    ) -> bool:
        stored, stated = part_of(data + bytes(50), 2), (number, identity)
        found = trailer.checked_part(stored, 0, nbytes, stated, rows, exact=False)
        return found is not None

    assert taken()
    assert not taken(number=4)
    assert not taken(identity=11)
    assert not taken(identity=None)
    assert not taken(rows=range(2500))
    assert not taken(nbytes=9996)


def test_what_is_read_of_a_chunk_with_a_trailer() -> None:
    """A chunk that is stored as it is has whole blocks; a trailer is at most 4 KiB and sums."""
    chunk, plain = blocked_chunk(), blocked_chunk(0)
    size = 16 + len(chunk) + 100
    found = trailer.part_ranges(chunk[:200], 16, size, [(300, 350), (400, 500)])
    assert found == [(316, 366), (416, 516), (16 + len(chunk), size)]
    found = trailer.part_ranges(plain[:16], 0, 100_000, [(16 + 1500, 16 + 2001)])
    assert found == [(1016, 3016), (10_016, 10_016 + 40 + 4096)]
    found = trailer.part_ranges(plain[:16], 0, len(plain), [(16 + 9000, 16 + 9001)])
    assert found == [(9016, 10_016)]


@pytest.mark.parametrize("wrong", [b"", b"igt1", b"x" * 36, b"igt1" + bytes(4096)])
def test_what_is_no_trailer(wrong: bytes) -> None:
    with pytest.raises(CorruptionError):
        trailer.parse(wrong)


@pytest.mark.parametrize("identity", [None, 5])
def test_no_flipped_bit_of_a_trailer_passes(identity: int | None) -> None:
    chunk = blosc.compress(bytes(range(200)) * 50, blocksize=4000)
    packed = trailer.pack(chunk, 3, 10_000, b"zz", identity)
    for bit in range(8 * len(packed)):
        damaged = bytearray(packed)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            trailer.parse(bytes(damaged))


SAMPLES: dict[str, Any] = {
    "<i4": [5, -3, 9],
    ">u2": [5, 3, 9],
    "|i1": [1, 1, 2],
    "|b1": [True, False, True],
    "<f8": [1.5, np.nan, -2.5],
    "<f4": [np.nan, np.nan, np.nan],
    "<f2": [1.5, -np.inf, 0.0],
    "<M8[ns]": [3, np.iinfo("i8").min, 1],
    ">m8[s]": [3, 4, 5],
    "|S3": [b"b", b"abc", b"zz"],
    "<U2": ["é", "a", "zz"],
    ">U2": ["é", "a", "zz"],
    "<u8": [2**64 - 1, 0, 1],
}


def items(dtype: str) -> np.ndarray[Any, Any]:
    wanted = SAMPLES[dtype]
    if dtype[1] in "mM":
        return np.array(wanted, f"{dtype[0]}i8").view(dtype)
    return np.array(wanted, dtype)


@pytest.mark.parametrize("dtype", SAMPLES)
def test_zone_maps_come_back(dtype: str) -> None:
    array = items(dtype)
    zone = zone_map_of(array)
    assert zone is not None
    packed = zone.pack(array.dtype)
    assert len(packed) % 8 == 0
    found = ZoneMap.parse(packed, array.dtype)
    assert found == zone
    listed = [each for each in array.tolist() if each is not None and each == each]
    assert zone.nulls == len(array) - len(listed)
    if listed:
        assert (found.low.tolist(), found.high.tolist()) == (min(listed), max(listed))


@pytest.mark.parametrize("dtype", SAMPLES)
def test_stored_zone_maps_are_those_of_the_chunks(place: Place, dtype: str) -> None:
    array = np.tile(items(dtype), 7)
    ingot.array(array, place, format="bcolz", chunks=6)
    chunks = open_array(store_at(place))
    found = chunks.zones(range(4))
    for number, packed in enumerate(found):
        zone = zone_map_of(array[6 * number : 6 * number + 6])
        assert zone is not None
        assert packed == zone.pack(array.dtype)


def test_zone_maps_have_columns() -> None:
    dtype = np.dtype("<f8")
    zones = [zone_map_of(np.array(each)) for each in ([1.0, 2.0], [np.nan, 5.0])]
    found = ZoneMaps.parse([zone.pack(dtype) for zone in zones if zone is not None] + [b""], dtype)
    assert found.low.tolist() == [1.0, 5.0, 0.0]
    assert found.nulls.tolist() == [0, 1, 0]
    assert found.ascending.tolist() == [True, False, False]
    assert found.known.tolist() == [True, True, False]
    with pytest.raises(CorruptionError):
        ZoneMaps.parse([b"short"], dtype)


@pytest.mark.parametrize("dtype", ["c8", "V4", "O", "g", "S257", "i4,f8"])
def test_types_without_order_have_no_zone_map(dtype: str) -> None:
    assert not has_zone_map(np.dtype(dtype))
    assert zone_map_of(np.zeros(3, dtype)) is None


def test_both_kernels_write_the_same_trailer(
    tmp_path_factory: pytest.TempPathFactory, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Data that do not get smaller are stored as they are, the same by both."""
    monkeypatch.setattr(os, "urandom", lambda size: bytes(range(1, size + 1)))
    noise = np.frombuffer(np.random.default_rng(1).bytes(40_000), "<i8")
    store = MemoryStore()
    ingot.array(noise, store, format="bcolz", chunks=1000, codec="none")
    folder = tmp_path_factory.mktemp("array")
    ingot.array(noise, folder, format="bcolz", chunks=1000, codec="none")
    chunks = {key: data for key, data in content(store).items() if key.endswith(".blp")}
    assert len(chunks) == 5
    assert chunks == {k: v for k, v in content(folder).items() if k.endswith(".blp")}


def test_the_map_of_a_folder_offers_zone_maps(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("array")
    array = ingot.array(np.arange(10), folder, format="bcolz", chunks=4)
    chunks = open_array(LocalStore(folder))
    assert isinstance(chunks, BcolzMap)
    assert len(array) == 10
    assert [len(each) for each in chunks.zones([0, 2])] == [32, 32]


@pytest.mark.parametrize("level", [0, 5])
def test_no_flipped_bit_of_a_header_or_of_block_starts_passes(level: int) -> None:
    chunk = blosc.compress(bytes(range(200)) * 50, blocksize=4000, level=level)
    header = ChunkHeader.parse(chunk)
    found = trailer.parse(trailer.pack(chunk, 3, 10_000))
    for bit in range(8 * (28 if level else 16)):
        damaged = bytearray(chunk)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            # The header was parsed before: only the checksum notices the bit.
            found.check(damaged, header, 3)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 2**32 - 1])
def test_a_sealed_trailer_of_another_length_is_refused(count: int) -> None:
    packed = bytearray(
        trailer.pack(blosc.compress(bytes(range(200)) * 50, blocksize=4000), 3, 10_000, b"zz")
    )
    packed[8:12] = struct.pack("<I", count)
    packed[-4:] = struct.pack("<I", crc32c(packed[:-4]))
    with pytest.raises(CorruptionError, match=f"{count} blocks and a zone map of 2 bytes do not"):
        trailer.parse(packed)


@pytest.mark.parametrize("magic", [b"igt0", b"igt2", b"hgt1", b"\0\0\0\0"])
def test_a_sealed_trailer_of_another_kind_is_refused(magic: bytes) -> None:
    packed = bytearray(trailer.pack(blosc.compress(bytes(4000)), 7, 1000))
    packed[:4] = magic
    packed[-4:] = struct.pack("<I", crc32c(packed[:-4]))
    with pytest.raises(CorruptionError, match="are no trailer"):
        trailer.parse(packed)


def test_an_empty_chunk_has_no_blocks() -> None:
    chunk = blosc.compress(b"")
    assert trailer.block_spans(ChunkHeader.parse(chunk), memoryview(chunk)) == []
    assert len(trailer.parse(trailer.pack(chunk, 0, 0)).blocks) == 0

"""Arrays whose chunks are of Blosc 2, because they are stored as differences of items or bytes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.blosc.header import ChunkHeader
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.formats.blsk.slots import split
from ingot.stores import MemoryStore

CODECS = {
    "blosc2:lz4:5:shuffle:0:items": ((3, 0), (1, 0)),
    "blosc2:zstd:1:bitshuffle:0:items": ((3, 0), (2, 0)),
    "blosc2:zlib:5:noshuffle:0:items": ((3, 0),),
    "blosc2:zstd:1:shuffle:0:bytes": ((1, 0), (35, 8)),
}
"""How callers spell them, and the filters of their chunks as C-Blosc2 numbers them."""
DELTA, BYTES = "blosc2:lz4:5:shuffle:0:items", "blosc2:zstd:1:shuffle:0:bytes"
FILE = "data/__1__.bin"
ROWS = 20_000
BLOCK = 16 << 10


def ramp(rows: int = ROWS) -> Any:
    return np.arange(rows) * 1000 + np.arange(rows) % 7


def made(place: Any, values: Any, codec: str = DELTA, **settings: Any) -> ingot.Array:
    chunks = settings.pop("chunks", 8192)
    return ingot.array(values, place, format="blsk", codec=codec, chunks=chunks, **settings)


def first_slot(data: bytes) -> int:
    return int.from_bytes(data[16:24], "little")


@pytest.mark.parametrize("codec", CODECS)
def test_chunks_have_the_filters_that_the_storage_names(tmp_path: Path, codec: str) -> None:
    made(tmp_path / "a", ramp(), codec)
    data = (tmp_path / "a" / FILE).read_bytes()
    chunk, behind = split(data[first_slot(data) :])
    header = ChunkHeader.parse(chunk)
    assert (header.version, header.pipeline, header.blocksize) == (5, CODECS[codec], BLOCK)
    assert len(behind)
    found = ingot.open(tmp_path / "a").codec[0]
    parts = codec.split(":")
    assert (found.name, found.parameters.cname, found.delta) == ("blosc2", parts[1], parts[5])


@pytest.mark.parametrize("codec", CODECS)
def test_c_blosc2_reads_the_chunks(tmp_path: Path, codec: str) -> None:
    blosc2 = pytest.importorskip("blosc2", reason="C-Blosc2 is not there to be compared with")
    made(tmp_path / "a", ramp(), codec)
    data = (tmp_path / "a" / FILE).read_bytes()
    chunk, _ = split(data[first_slot(data) :])
    assert blosc2.decompress2(bytes(chunk)) == ramp()[:8192].tobytes()


@pytest.mark.parametrize("codec", CODECS)
def test_values_come_back_whole_and_in_parts_after_changes(tmp_path: Path, codec: str) -> None:
    expected = ramp()
    array = made(tmp_path / "a", expected, codec)
    for _ in range(2):
        reader = ingot.open(tmp_path / "a")
        assert reader[...].tolist() == expected.tolist()
        for item in (0, 2047, 2048, 5000, 8191, 8192, 12_345, ROWS - 1):
            assert reader[item] == expected[item]
        for part in (
            slice(3000, 3100),
            slice(2040, 2060),
            slice(8000, 9000),
            slice(1, 19_999, 997),
        ):
            assert reader[part].tolist() == expected[part].tolist()
        places = [1, 2049, 7000, 7001, 8192, 19_000]
        assert reader[places].tolist() == expected[places].tolist()
        assert (reader.min(), reader.max()) == (expected.min(), expected.max())
        # The first block, upon which others depend, another one, and rows behind the end.
        array[5:9], array[4000], expected[5:9], expected[4000] = -7, 10**12, -7, 10**12
        array.append(expected[:300])
        expected = np.append(expected, expected[:300])
    assert not [each for each in ingot.check(tmp_path / "a").findings if each.severity == "error"]


@pytest.mark.parametrize("codec", [DELTA, BYTES])
def test_a_chunk_of_one_value_is_read_in_part(tmp_path: Path, codec: str) -> None:
    array = made(tmp_path / "a", np.full(ROWS, 7), codec)
    data = (tmp_path / "a" / FILE).read_bytes()
    chunk, behind = split(data[first_slot(data) :])
    assert (ChunkHeader.parse(chunk).special, len(chunk), len(behind) > 0) == ("value", 40, True)
    for _ in range(2):
        assert ingot.open(tmp_path / "a")[9000] == 7
    array[4] = 8
    assert ingot.open(tmp_path / "a")[:6].tolist() == [7, 7, 7, 7, 8, 7]


@pytest.mark.parametrize("codec", [DELTA, BYTES])
def test_several_axes(codec: str) -> None:
    values = ramp(60 * 70).reshape(60, 70)
    array = made(MemoryStore(), values, codec, chunks=(32, 32))
    assert array[...].tolist() == values.tolist()
    assert array[31:35, 60].tolist() == values[31:35, 60].tolist()
    array.resize((60, 90))
    assert array[:, 70:].tolist() == np.zeros((60, 20)).tolist()


@pytest.mark.parametrize("codec", [DELTA, BYTES])
def test_damage_of_any_byte_is_noticed_by_reads_that_need_it(tmp_path: Path, codec: str) -> None:
    rows = np.random.default_rng(1).integers(0, 9, 500).cumsum()
    made(tmp_path / "a", rows, codec, chunks=500, superchunksize=1)
    path = tmp_path / "a" / FILE
    data = path.read_bytes()
    start = first_slot(data)
    chunk, behind = split(data[start:])
    for at in range(start, start + len(chunk) + len(behind), 5):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(IngotError):
            ingot.open(tmp_path / "a")[...]
    path.write_bytes(data)
    assert ingot.open(tmp_path / "a")[...].tolist() == rows.tolist()


def test_damage_of_the_first_block_is_noticed_by_reads_of_others(tmp_path: Path) -> None:
    made(tmp_path / "a", ramp(8192), DELTA)
    path = tmp_path / "a" / FILE
    data = bytearray(path.read_bytes())
    start = first_slot(data)
    blocks = 8192 * 8 // BLOCK
    place = int.from_bytes(data[start + 32 : start + 36], "little")
    assert place == 32 + 4 * blocks
    data[start + place + 40] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="block 0"):
        ingot.open(tmp_path / "a")[8000]


def test_auto_stores_differences_where_they_pay(tmp_path: Path) -> None:
    ids = np.arange(100_000, dtype="i4") * 3 + 7
    steps = np.random.default_rng(2).integers(-3, 4, 100_000).cumsum().astype("i4")
    noise = np.random.default_rng(2).integers(0, 2**31, 100_000)
    given = {"ids": ids, "steps": steps, "noise": noise}
    table = ingot.table(given, tmp_path / "t", format="blsk", codec="auto")
    assert [table[name].codec[0].name for name in given] == ["blosc2", "blosc2", "blosc"]
    assert (table["ids"].codec[0].delta, table["steps"].codec[0].delta) == ("items", "bytes")
    found = ingot.open(tmp_path / "t")
    assert all((found[name][...] == values).all() for name, values in given.items())
    # Beside the best without them.
    plain = ingot.array(steps, tmp_path / "p", format="blsk", codec="blosc:zstd:3:bitshuffle")
    assert found["steps"].stored_bytes < 0.8 * plain.stored_bytes
    for format in ("zarr3", "zarr2", "bcolz"):
        other = ingot.array(steps, format=format, codec="auto")
        assert other.codec[0].name == "blosc"


def test_shards_and_copies_keep_the_chunks(tmp_path: Path) -> None:
    array = made(tmp_path / "a", ramp(), DELTA)
    array.shard(2, tmp_path / "s")
    assert ingot.open(tmp_path / "s")[...].tolist() == ramp().tolist()
    ingot.convert(tmp_path / "a", tmp_path / "b", format="blsk")
    assert ingot.open(tmp_path / "b").codec == array.codec
    assert ingot.open(tmp_path / "b")[...].tolist() == ramp().tolist()


@pytest.mark.parametrize("format", ["zarr3", "zarr2", "bcolz"])
def test_other_formats_get_the_same_codec_without_differences(tmp_path: Path, format: str) -> None:
    made(tmp_path / "a", ramp(), BYTES)
    ingot.convert(tmp_path / "a", tmp_path / "b", format=format)
    found = ingot.open(tmp_path / "b")
    assert (found.codec[0].name, found.codec[0].cname, found.codec[0].clevel) == (
        "blosc",
        "zstd",
        1,
    )
    assert found[...].tolist() == ramp().tolist()
    with pytest.raises(UnsupportedError):
        ingot.array(ramp(), format=format, codec=BYTES)


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("blosc2:lz4:5:shuffle", "use blosc instead"),
        ("blosc2:snappy:5:shuffle:0:items", "no Snappy"),
        ("blosc2:lz4:5:bitshuffle:0:bytes", "needs a shuffle of bytes"),
        ("blosc2:lz4:5:shuffle:0:bits", "delta"),
    ],
)
def test_what_is_refused(codec: str, message: str) -> None:
    with pytest.raises(IngotError, match=message):
        made(MemoryStore(), ramp(), codec)


def test_items_of_variable_length_are_no_differences() -> None:
    with pytest.raises(UnsupportedError):
        ingot.ragged(["a", "b"], format="blsk", codec=DELTA)


def test_a_file_without_documents_opens(tmp_path: Path) -> None:
    made(tmp_path / "a", ramp(8192), BYTES)
    found = ingot.open(tmp_path / "a" / FILE, dtype="<i8")
    assert found[100:103].tolist() == ramp()[100:103].tolist()

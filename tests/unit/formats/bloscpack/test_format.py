"""Bloscpack files through the public API, on both kernels."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.codecs.checksums import Digest
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS
from ingot.stores import Extent, FileStore, MemoryStore
from tests.kernels import needs_native
from tests.storage import use_kernel
from tests.unit.formats.bloscpack.test_file import chunk_file, packed

OPTIONS = ingot.Options(durability="process")


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


def opened(path: Any, mode: Any = "r") -> ingot.Array:
    found = ingot.open(path, mode, options=OPTIONS)
    assert isinstance(found, ingot.Array)
    return found


def state(path: Path) -> BloscpackFile:
    return BloscpackFile.read(FileStore(path), path.name)


VALUES = np.arange(3000, dtype="<i4").reshape(500, 6)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("checksum", CHECKSUMS)
def test_arrays_come_back(tmp_path: Path, checksum: str, order: str) -> None:
    path = tmp_path / "a.blp"
    ingot.array(VALUES, path, checksum=checksum, order=order, chunk_bytes=1000, options=OPTIONS)
    assert list(tmp_path.iterdir()) == [path]
    found = opened(path)
    assert (found.format, found.shape, found.dtype) == ("bloscpack", (500, 6), np.dtype("<i4"))
    for key in (..., 7, (slice(3, 400, 7), 2), ([5, 499, 0], slice(None, None, -1)), (9, 3)):
        assert np.array_equal(found[key], VALUES[key])
    assert (state(path).header.checksum, state(path).value["order"]) == (checksum, order)


@pytest.mark.parametrize(
    "values",
    [
        np.float64(5.5),
        np.zeros((0, 3)),
        np.array(["a", "bcd"]),
        np.array([b"x" * 300, b"y"]),
        np.array([(1, 2.5), (3, 4.5)], [("a", "i2"), ("b", "f8")]),
        np.array([(1, 2.5)], np.dtype([("a", "i1"), ("b", "f8")], align=True)),
        np.array(["2020-01-01", "NaT"], "M8[D]"),
        np.array([1 + 2j, np.nan], "c8"),
        np.arange(5, dtype=">i2"),
    ],
    ids=lambda values: str(values.dtype),
)
def test_types_come_back(tmp_path: Path, values: NDArray[Any]) -> None:
    path = tmp_path / "a.blp"
    ingot.array(values, path, options=OPTIONS)
    found = np.asarray(opened(path)[...])
    assert (found.dtype, found.shape) == (values.dtype, values.shape)
    assert repr(found.tolist()) == repr(values.tolist())


@pytest.mark.parametrize("size", [7, 20, 1000])
def test_items_that_lie_in_two_chunks(size: int) -> None:
    payload = np.arange(300, dtype="<f8").tobytes()
    value = {"dtype": "'<f8'", "shape": [30, 10], "order": "C", "container": "numpy"}
    lengths = [size] * (len(payload) // size) + [len(payload) % size] * bool(len(payload) % size)
    data = bytearray(packed(lengths, value, checksum="none"))
    at = len(data)
    for number in reversed(range(len(lengths))):
        at -= lengths[number]
        data[at : at + lengths[number]] = payload[number * size :][: lengths[number]]
        at -= 16
    array = opened(MemoryStore({"a.blp": bytes(data)}), "r+")
    expected = np.arange(300.0).reshape(30, 10)
    assert np.array_equal(array[...], expected)
    assert np.array_equal(array[3:20:5, 7], expected[3:20:5, 7])
    assert np.array_equal(array[[29, 1]], expected[[29, 1]])
    array[4, 3:8] = expected[4, 3:8] = -1
    array.append(expected[:2])
    expected = np.concatenate([expected, expected[:2]])
    assert np.array_equal(array[...], expected)


def test_plain_files(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    path.write_bytes(packed([100, 100, 30], {"who": "bloscpack"}))
    array = opened(path)
    content = b"\0" * 100 + b"\1" * 100 + b"\2" * 30
    assert (array.shape, array.dtype, dict(array.attrs)) == ((230,), "u1", {"who": "bloscpack"})
    assert array[...].tobytes() == content
    assert array[95:205].tobytes() == content[95:205]
    with opened(path, "r+") as writable:
        writable[50:150] = 7
        writable.attrs["new"] = [1]
        writable.append(np.array([9], "u1"))
    changed = content[:50] + b"\7" * 100 + content[150:] + b"\11"
    assert opened(path)[...].tobytes() == changed
    assert dict(opened(path).attrs) == {"who": "bloscpack", "new": [1]}


def test_chunks_of_several_lengths_are_read() -> None:
    data = packed([100, 40, 120], chunk_size=-1, last_chunk=-1)
    array = opened(MemoryStore({"a.blp": data}), "r+")
    assert array[...].tolist() == [0] * 100 + [1] * 40 + [2] * 120
    assert array[98:142].tolist() == [0, 0] + [1] * 40 + [2, 2]
    for change in (lambda: array.append(np.zeros(1, "u1")), lambda: array.resize(3)):
        with pytest.raises(UnsupportedError, match="several lengths"):
            change()
    with pytest.raises(UnsupportedError, match="several lengths"):
        array[0] = 1


def test_a_chunk_file_of_bcolz_is_an_array_of_bytes(tmp_path: Path) -> None:
    ingot.array(np.arange(100), tmp_path / "a.bcolz", chunks=100, options=OPTIONS)
    array = opened(tmp_path / "a.bcolz" / "data" / "__0.blp")
    assert array[...].tobytes() == np.arange(100).tobytes()
    assert opened(MemoryStore({"a": chunk_file(b"abc")}))[...].tobytes() == b"abc"


def test_a_digest_is_verified_before_its_bytes_are_used(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    ingot.array(VALUES, path, chunks=100, options=OPTIONS)
    data = bytearray(path.read_bytes())
    last = state(path).row
    data[int(last.start[2]) + 20] ^= 1
    path.write_bytes(data)
    array = opened(path)
    assert np.array_equal(array[:200], VALUES[:200])
    assert np.array_equal(array[300:], VALUES[300:])
    with pytest.raises(CorruptionError, match="adler32"):
        array[:]
    with pytest.raises(CorruptionError, match="adler32"):
        array[250, 0]


def test_an_offset_that_lands_elsewhere_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    ingot.array(VALUES, path, chunks=100, options=OPTIONS)
    sound = path.read_bytes()
    file = state(path)
    table = file.begin - file.header.table_bytes
    for number in range(5):
        for shift in (-24, -16, -1, 1, 16):
            data = bytearray(sound)
            struct.pack_into("<q", data, table + 8 * number, int(file.row.start[number]) + shift)
            path.write_bytes(data)
            with pytest.raises(CorruptionError):
                opened(path)[100 * number : 100 * number + 100]


def test_an_array_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    array = ingot.array(VALUES, path, chunks=100, attrs={"unit": "m"}, options=OPTIONS)
    expected = VALUES.copy()
    array[250:320, 1] = expected[250:320, 1] = -5
    assert np.array_equal(array[...], expected)
    array.append(expected[:30])
    expected = np.concatenate([expected, expected[:30]])
    assert np.array_equal(array[...], expected)
    array.resize((130, 6))
    expected = expected[:130]
    assert np.array_equal(array[...], expected)
    array.attrs["unit"] = "km"
    array.resize((150, 6))
    expected = np.concatenate([expected, np.zeros((20, 6), "<i4")])
    with array.transaction():
        array[0] = expected[0] = 77
        array.append(expected[:9])
        array.attrs["more"] = "x" * 1000
    expected = np.concatenate([expected, expected[:9]])
    for each in (array, opened(path)):
        assert np.array_equal(each[...], expected)
        assert dict(each.attrs) == {"unit": "km", "more": "x" * 1000}
    with pytest.raises(UnsupportedError):
        array.resize((150, 7))
    assert np.array_equal(opened(path)[...], expected)


def test_rows_in_fortran_order_are_appended_at_the_last_axis(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    array = ingot.array(VALUES, path, order="F", chunk_bytes=2000, options=OPTIONS)
    array.append(VALUES[:, :2], axis=1)
    assert np.array_equal(opened(path)[...], np.concatenate([VALUES, VALUES[:, :2]], axis=1))
    with pytest.raises(UnsupportedError):
        array.append(np.zeros((1, 8), "<i4"))


def test_a_long_file_grows_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.blp"
    values = np.random.default_rng(1).integers(0, 256, 2_500_000).astype("u1")
    array = ingot.array(values[:1_500_000], path, chunks=400_000, options=OPTIONS)
    number = path.stat().st_ino
    for end in (1_500_001, 1_600_000, 1_600_000, 2_000_000, 2_500_000):
        array.append(values[len(array) : end])
        assert np.array_equal(array[...], values[:end])
        assert np.array_equal(opened(path)[end - 9 :], values[end - 9 : end])
    assert path.stat().st_ino == number
    file = state(path)
    assert (file.header.nchunks, file.header.max_app_chunks) == (7, 37)
    assert file.end == path.stat().st_size


@pytest.mark.parametrize("added", [1, 40_000, 500_000])
def test_the_last_chunk_is_verified_before_it_is_topped_up(tmp_path: Path, added: int) -> None:
    values = np.random.default_rng(6).integers(0, 99, 900_000).astype("<i4")
    path, count = tmp_path / "a.blp", 400_000 + added
    ingot.array(values[:400_000], path, chunks="1M", codec="blosc:lz4:5", options=OPTIONS)
    with opened(path, "r+") as array:
        array.append(values[400_000:count])
    assert np.array_equal(opened(path)[...], values[:count])
    data, last = bytearray(path.read_bytes()), len(state(path).row) - 1
    data[int(state(path).row.start[last]) + 5000] ^= 1
    path.write_bytes(data)
    with opened(path, "r+") as array, pytest.raises(CorruptionError, match="adler32") as caught:
        array.append(values[:10])
    assert any(f"chunk ({last},)" in note for note in caught.value.__notes__)
    assert path.read_bytes() == data


@pytest.mark.parametrize("held", [150_000, 1 << 17, 5000])
@pytest.mark.parametrize("codec", ["blosclz:7", "zlib:1", "lz4:0", "zstd:1:noshuffle"])
def test_rows_are_appended_to_any_part_of_a_chunk(tmp_path: Path, codec: str, held: int) -> None:
    values = np.arange(400_000, dtype="<i4") * 7919 % 4001
    path, options = tmp_path / "a.blp", ingot.Options(durability="process", threads=3)
    first = (1 << 17) + held
    ingot.array(values[:first], path, chunks="512K", codec=f"blosc:{codec}", options=options)
    with ingot.open(path, "r+", options=options) as array:
        assert isinstance(array, ingot.Array)
        array.append(values[first:])
    assert np.array_equal(opened(path)[...], values)
    assert state(path).row.nbytes.tolist() == [1 << 19] * 3 + [4 * 400_000 - 3 * (1 << 19)]


def test_an_append_goes_behind_what_another_program_wrote(tmp_path: Path) -> None:
    path, other = tmp_path / "a.blp", tmp_path / "b.blp"
    settings: dict[str, Any] = {"chunks": "1M", "codec": "blosc:lz4:0", "options": OPTIONS}
    values = np.arange(400_000, dtype="<i4")
    ingot.array(values, path, **settings)
    for changed in (values[::-1], values[:300_000], np.concatenate([values, values])):
        ingot.array(changed, other, overwrite=True, **settings)
        with opened(path, "r+") as array:
            assert len(array)
            # Another program has no lock, and may write into the same file.
            path.write_bytes(other.read_bytes())
            array.append(values[:1000])
        assert np.array_equal(opened(path)[...], np.concatenate([changed, values[:1000]]))


def test_an_append_reads_an_unchanged_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, values = tmp_path / "a.blp", np.arange(600_000, dtype="<i4")
    ingot.array(values, path, chunks="1M", codec="blosc:lz4:0", options=OPTIONS)
    opened(path, "r+").append(values[:5])
    parsed = 0
    parse = BloscpackFile.parse

    def counted(*arguments: Any) -> BloscpackFile:
        nonlocal parsed
        parsed += 1
        return parse(*arguments)

    monkeypatch.setattr(BloscpackFile, "parse", counted)
    opened(path, "r+").append(values[:5])
    assert parsed == 1


def test_an_array_without_rows_grows(tmp_path: Path) -> None:
    data = packed([0], {"dtype": "'<f8'", "shape": [0, 3], "order": "C", "container": "numpy"})
    path = tmp_path / "a.blp"
    path.write_bytes(data)
    array = opened(path, "r+")
    array.append(np.ones((5, 3)))
    assert opened(path)[...].tolist() == [[1.0] * 3] * 5
    array.resize((0, 3))
    assert opened(path).shape == (0, 3)


@pytest.mark.parametrize("checksum", ["none", "adler32", "sha256"])
@pytest.mark.parametrize("size", [1000, 1001, 100_000])
def test_chunks_written_from_memory_are_those_of_other_stores(
    tmp_path: Path, checksum: str, size: int
) -> None:
    values = np.random.default_rng(5).integers(0, 99, (4000, 3), "<i8")
    path, store = tmp_path / "a.blp", MemoryStore()
    settings: dict[str, Any] = {"checksum": checksum, "chunk_bytes": size, "options": OPTIONS}
    ingot.array(values, path, **settings)
    ingot.array(values, store, format="bloscpack", **settings)
    (key,) = store.names()
    assert [path.read_bytes()] == store.read([Extent(key)])
    with opened(path, "r+") as array:
        array[...] = values[::-1]
        array[1:] = values[1:]
    values[0] = values[-1]
    assert np.array_equal(opened(path)[...], values)


def test_the_codec_of_an_array_is_one_for_another() -> None:
    first = ingot.array(VALUES, format="bloscpack", codec="blosc:zlib:9:bitshuffle", checksum="md5")
    again = ingot.array(VALUES, format="bloscpack", codec=first.codec)
    assert again.codec == first.codec
    other = ingot.array(VALUES, format="bloscpack", codec=first.codec, checksum="sha1")
    assert other.codec[1:] == (Digest("sha1"),)
    with pytest.raises(UnsupportedError, match="by Blosc, and by nothing else"):
        ingot.array(VALUES, format="bloscpack", codec="zlib:1")


@pytest.mark.parametrize(
    ("chunks", "size"),
    [("100B", 100), ("1K", 1024), ("1 KiB", 1024), ("2M", 2**21), ("1MB", 2**20), (25, 600)],
)
def test_the_length_of_chunks_in_rows_or_bytes(chunks: Any, size: int) -> None:
    store = MemoryStore()
    ingot.array(VALUES, store, format="bloscpack", chunks=chunks)
    assert BloscpackFile.read(store, "data.blp").header.chunk_size == size


@pytest.mark.parametrize("chunks", ["", "1", "0K", "K", "1T", "-1M", "1.5M", "1BB", "1KiBi"])
def test_what_is_no_length_of_chunks(chunks: str) -> None:
    for format in ("bloscpack", "zarr3"):
        with pytest.raises(ValueError, match="a size like '1M'"):
            ingot.array(VALUES, format=format, chunks=chunks)


def test_other_formats_have_chunks_of_a_shape() -> None:
    with pytest.raises(UnsupportedError, match="zarr3 has chunks of a shape, not of bytes"):
        ingot.array(VALUES, format="zarr3", chunks="1M")


def test_the_settings_are_named() -> None:
    with pytest.raises(TypeError, match="checksum, order, chunk_bytes"):
        ingot.array([1], format="bloscpack", shards=5)

"""Arrays in super-chunk files: what lies on disk, and what becomes of files by other programs."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.blsk.array import BlskMap, DatasetDocuments
from ingot.formats.blsk.chunk_file import SuperChunk
from ingot.formats.blsk.slots import split
from ingot.stores import Extent, LocalStore, MemoryStore, Move
from tests.blsk_reader import read
from tests.storage import Place, content, put

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

FILE = "data/__1__.bin"
META = ["meta/attributes", "meta/nrows", "meta/storage"]


def made(place: Place, values: Any, **settings: Any) -> ingot.Array:
    return ingot.array(values, place, format="blsk", **settings)


def opened(place: Place, mode: str = "r") -> ingot.Array:
    found = ingot.open(place, mode)
    assert isinstance(found, ingot.Array)
    return found


def file_of(array: ingot.Array, number: int = 0) -> SuperChunk:
    chunks = array._handle.value.chunks
    assert isinstance(chunks, BlskMap)
    chunks._load([number])
    file = chunks.kept.files[number]
    assert file is not None
    return file


@pytest.mark.parametrize("value", [b"\0\0\0", b"abc"])
def test_a_block_that_gets_the_fill_value(place: Place, value: bytes) -> None:
    # Three blocks, of which the first gets new items.
    expected = np.zeros(87_381, "V3")
    expected[:3] = np.frombuffer(b"123456789", "V3")
    array = made(place, expected, chunks=87_381)
    expected[:3] = np.void(value)
    array[:3] = expected[:3]
    assert opened(place)[...].tobytes() == expected.tobytes()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<i4", ">f8", "|b1", "<U3", "|S5", "<M8[ns]", "|V6", "<c8"])
@pytest.mark.parametrize(
    ("shape", "chunks"),
    [((), ()), ((0,), (4,)), ((10,), (4,)), ((7, 5), (3, 2)), ((3, 0, 2), (2, 1, 2))],
)
def test_an_independent_reader_agrees(
    tmp_path: Path, shape: Any, chunks: Any, dtype: str, order: str
) -> None:
    count = int(np.prod(shape))
    values = np.arange(8 * count, dtype="u1").reshape(*shape, 8)
    items = (
        values[..., 0].astype("V1").astype(dtype)
        if dtype == "|V6"
        else values[..., 0].astype(dtype)
    )
    settings = {} if dtype == "|V6" else {"fill": np.ones((), dtype)[()]}
    array = made(tmp_path / "a", items, chunks=chunks, order=order, superchunksize=4, **settings)
    found = read(tmp_path / "a")
    assert found.dtype == items.dtype
    assert found.tobytes() == items.tobytes() == array[...].tobytes()
    if shape and all(shape):
        array[1:3] = items[:2]
        array.append(items)
        array.resize((array.shape[0] - 1, *shape[1:]))
        assert read(tmp_path / "a").tobytes() == array[...].tobytes()
        assert array[1:3].tobytes() == items[:2].tobytes()
        assert opened(tmp_path / "a")[...].tobytes() == array[...].tobytes()


def test_growth_along_other_axes_renumbers_chunks(tmp_path: Path) -> None:
    values = np.arange(1, 36, dtype="<i4").reshape(7, 5)
    array = made(tmp_path / "a", values, chunks=(3, 2), superchunksize=4)
    expected = np.zeros((6, 9), "i4")
    expected[:6, :5] = values[:6]
    array.resize((6, 9))
    assert np.array_equal(read(tmp_path / "a"), expected)
    array[2, 8] = expected[2, 8] = 7
    assert np.array_equal(read(tmp_path / "a"), expected)
    array.resize((6, 2))
    assert np.array_equal(read(tmp_path / "a"), expected[:, :2])
    array.resize((6, 9))
    expected[:, 2:] = 0
    assert np.array_equal(opened(tmp_path / "a")[...], expected)
    # The chunks that hold values are number 0 and 5 of 10.
    names = sorted(path.name for path in (tmp_path / "a" / "data").iterdir())
    assert names == ["__1__.bin", "__2__.bin"]


def test_an_append_along_another_axis_reads_chunks_by_their_old_numbers(tmp_path: Path) -> None:
    values = np.arange(1, 13, dtype="<i4").reshape(4, 3)
    array = made(tmp_path / "a", values, chunks=(1, 2), superchunksize=2)
    assert np.array_equal(array[...], values)
    array.append(values[:, :2], axis=1)
    assert np.array_equal(read(tmp_path / "a"), np.concatenate([values, values[:, :2]], 1))
    assert np.array_equal(array[...], read(tmp_path / "a"))


def test_chunks_of_nothing_but_fill_are_not_stored(tmp_path: Path) -> None:
    values = np.zeros(40, "i4")
    values[13] = 1
    array = made(tmp_path / "a", values, chunks=4, superchunksize=5)
    assert file_of(array).offsets.tolist() == [-1, -1, -1, 16 + 5 * 8, -1]
    assert [path.name for path in (tmp_path / "a" / "data").iterdir()] == ["__1__.bin"]
    array[13] = 0
    assert not list((tmp_path / "a" / "data").iterdir())
    assert not array[...].any()
    assert not read(tmp_path / "a").any()


def test_a_new_image_goes_where_nothing_reaches(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    values = random.integers(0, 1000, 400).astype("<i4")
    array = made(tmp_path / "a", values, chunks=100, superchunksize=8, spare=0)
    first = file_of(array).offsets[:4].tolist()
    array[0] = values[0] = -1
    second = file_of(array).offsets[:4].tolist()
    assert second[1:] == first[1:]
    assert second[0] > first[3]
    # The place of the first image is free now; one of the same length goes there.
    array[100] = values[100] = -1
    third = file_of(array).offsets[:4].tolist()
    assert third[0] == second[0]
    assert third[1] == first[0] or third[1] > second[0]
    assert np.array_equal(read(tmp_path / "a"), values)


def test_files_are_written_anew_when_most_of_them_is_dead(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    path = tmp_path / "a"
    array = ingot.create(
        path, shape=1 << 20, dtype="u1", format="blsk", chunks=1 << 18, superchunksize=4, spare=0
    )
    sizes = []
    for turn in range(8):
        array[...] = random.integers(0, 255, 1 << 20).astype("u1") // (1 + turn % 2)
        sizes.append((path / FILE).stat().st_size)
    assert max(sizes) < 5 << 20
    assert np.array_equal(read(path), array[...])


@pytest.mark.parametrize("whole", [True, False])
def test_room_that_most_images_fill_anew_is_not_dead(tmp_path: Path, whole: bool) -> None:
    """A file that is changed as a whole again and again has two halves, and is not made anew."""
    random = np.random.default_rng(2)
    path = tmp_path / "a"
    values = random.integers(0, 2**62, 1 << 19)
    array = made(path, values, chunks=1 << 16, superchunksize=8)
    found = []
    for _ in range(6):
        if whole:
            array[...] = values = random.integers(0, 2**62, len(values))
        else:
            places = np.arange(0, len(values), 999)
            array[places] = values[places] = random.integers(0, 2**62, len(places))
        stat = (path / FILE).stat()
        found.append((stat.st_ino, stat.st_size))
    assert len(set(found[1:])) == 1
    assert found[0][1] < 2.5 * values.nbytes
    check_readable(path, values)
    # A change of two chunks fills little of it: the file is made anew.
    array[70_000:140_000] = values[70_000:140_000] = np.arange(70_000)
    assert (path / FILE).stat().st_size < 1.4 * values.nbytes
    check_readable(path, values)


def test_dead_and_spare_bytes_are_counted_and_removed(tmp_path: Path) -> None:
    values = np.random.default_rng(3).integers(0, 1 << 20, 4000)
    array = made(tmp_path / "a", values, chunks=500, superchunksize=4, spare=0.25)

    def free() -> tuple[int, int]:
        chunks = array._handle.value.chunks
        assert isinstance(chunks, BlskMap)
        return tuple(chunks.free_bytes())  # type: ignore[return-value]

    def stored() -> int:
        return sum(path.stat().st_size for path in (tmp_path / "a" / "data").iterdir())

    dead, spare = free()
    images = stored() - 2 * (16 + 4 * 8) - spare
    assert dead == 0
    assert images // 4 - 8 <= spare <= images // 4
    array[:2000] = values[:2000] = 1 << 19
    assert free()[0] >= images // 2
    assert "bytes) dead" in repr(array.info)
    before = stored()
    array.compact()
    assert free()[0] == 0
    assert stored() < before
    assert np.array_equal(read(tmp_path / "a"), values)
    names = {path: path.stat().st_ino for path in (tmp_path / "a" / "data").iterdir()}
    array.compact()
    assert names == {path: path.stat().st_ino for path in (tmp_path / "a" / "data").iterdir()}
    with array.transaction():
        array[0] = values[0] = 7
        array.compact()
    assert np.array_equal(opened(tmp_path / "a")[...], values)


def test_only_super_chunks_are_compacted() -> None:
    for format in ("zarr3", "bcolz"):
        with pytest.raises(UnsupportedError, match="no dead bytes"):
            ingot.array([1, 2], format=format).compact()


def test_rows_that_count_are_in_the_trailer(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(10), chunks=4, superchunksize=8)

    def trailers() -> list[tuple[int, int, bool]]:
        data = (tmp_path / "a" / FILE).read_bytes()
        found = []
        for start in file_of(array).offsets.tolist():
            if start != -1:
                each = trailer.parse(split(data[start:])[1])
                found.append((each.number, each.rows, bool(each.zone)))
        return found

    assert trailers() == [(0, 4, True), (1, 4, True), (2, 2, True)]
    array.append([10])
    assert trailers()[2] == (2, 3, True)


def bared(data: bytes) -> bytes:
    """Return a file without trailers: zeros take their places, as spare bytes behind each chunk."""
    bare = bytearray(data)
    bare[5] = 0
    for start in struct.unpack_from("<5q", data, 16):
        chunk, behind = split(data[start:])
        end = start + len(chunk)
        bare[end : end + len(behind)] = bytes(len(behind))
    return bytes(bare)


def test_files_without_trailers_are_read_and_changed(tmp_path: Path) -> None:
    places: list[Place] = [MemoryStore(), tmp_path / "a"]
    for place in places:
        values = np.arange(1, 41, dtype="<i4")
        array = made(place, values, chunks=4, superchunksize=5)
        files = content(place)
        put(place, {key: bared(files[key]) for key in ("data/__1__.bin", "data/__2__.bin")})
        array = opened(place, "r+")
        assert np.array_equal(array[...], values)
        assert array[[3, 17]].tolist() == [4, 18]
        array[5] = values[5] = -5
        array[30:] = values[30:] = -np.arange(10)
        array.append([1, 2, 3])
        expected = np.concatenate([values, [1, 2, 3]])
        assert np.array_equal(opened(place)[...], expected)
        array.resize((41,))
        assert np.array_equal(opened(place)[...], expected[:41])


def test_slots_without_trailers_do_not_overlap(tmp_path: Path) -> None:
    values = np.arange(1, 21, dtype="<i4")
    made(tmp_path / "a", values, chunks=4, superchunksize=5, spare=0)
    file = tmp_path / "a" / FILE
    bare = bytearray(bared(file.read_bytes()))
    (first,) = struct.unpack_from("<q", bare, 16)
    # Nothing but the order of the slots tells which chunk is whose.
    struct.pack_into("<q", bare, 24, first)
    file.write_bytes(bare)
    with pytest.raises(CorruptionError, match=f"two chunks start at {first} and {first}"):
        opened(tmp_path / "a")[4]
    struct.pack_into("<q", bare, 24, first + 17)
    file.write_bytes(bare)
    with pytest.raises(CorruptionError, match=r"larger than its slot|cbytes claims"):
        opened(tmp_path / "a")[0]


@pytest.mark.parametrize("name", ["meta/dtype", "meta/domain"])
def test_the_storage_may_have_other_names(name: str) -> None:
    store = MemoryStore()
    made(store, np.arange(12).reshape(3, 4), chunks=2)
    files = content(store)
    other = MemoryStore()
    put(other, {name if key == "meta/storage" else key: data for key, data in files.items()})
    array = opened(other, "r+")
    array[0, 0] = 9
    array.resize((3, 5))
    assert array[...].tolist() == [[9, 1, 2, 3, 0], [4, 5, 6, 7, 0], [8, 9, 10, 11, 0]]
    assert opened(other)[...].tolist() == array[...].tolist()
    assert b"shape: [3, 5]" in content(other)[name]
    assert "meta/storage" not in content(other)


def test_an_edited_document_keeps_its_comments() -> None:
    store = MemoryStore()
    made(store, np.zeros((3, 4), "<f4"), chunks=2)
    text = b"""\
# by hand
dtype: float32  # a type
shape: (3,4)
chunkshape: (2, 4)
superchunksize: 7 # few
"""
    put(store, {"meta/storage": text, "meta/attributes": b"# none yet\n"})
    array = opened(store, "r+")
    array[...] = 5
    array.append(np.ones((2, 4)))
    assert content(store)["meta/storage"] == text
    array.resize((5, 6))
    assert content(store)["meta/storage"] == text.replace(b"(3,4)", b"[5, 6]")
    assert opened(store)[4].tolist() == [1, 1, 1, 1, 0, 0]


def test_truncated_floats(tmp_path: Path) -> None:
    values = np.linspace(0.1, 1, 10, dtype="<f4")
    codec = ["truncate:4", "blosc:zstd:5:shuffle"]
    array = made(tmp_path / "a", values, chunks=4, codec=codec, fill=0.1)
    found = array[...]
    assert np.allclose(found, values, rtol=2**-4)
    assert not (found.view("<i4") & ((1 << 19) - 1)).any()
    assert np.array_equal(read(tmp_path / "a"), found)
    array.resize((12,))
    before = array[11]
    array[10] = 3
    assert array[11] == before == array.fill
    again = opened(tmp_path / "a")
    assert (again.fill, again[11]) == (before, before)
    assert [stage.name for stage in again.codec] == ["truncate", "blosc"]
    for dtype, settings in [("<i4", {}), ("<f2", {}), ("<f4", {"codec": ["truncate:24"]})]:
        with pytest.raises(UnsupportedError, match="truncate"):
            ingot.create(
                tmp_path / "b", shape=3, dtype=dtype, format="blsk", **{"codec": codec, **settings}
            )
    assert not (tmp_path / "b").exists()


def test_truncate_without_bits_is_kept_and_changes_nothing() -> None:
    store = MemoryStore()
    values = np.linspace(0.1, 1, 10, dtype="<f4")
    made(store, values, chunks=4)
    text = content(store)["meta/storage"].replace(b"[shuffle]", b"[shuffle, truncate]")
    put(store, {"meta/storage": text})
    array = opened(store, "r+")
    with pytest.warns(UserWarning, match="truncate does not say how many bits"):
        array[3:5] = values[:2]
    assert array[3:5].tolist() == values[:2].tolist()
    assert content(store)["meta/storage"] == text


def test_foreign_files_in_meta_are_left_alone(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(10), chunks=4)
    other = tmp_path / "a" / "meta" / "units"
    other.write_text("m\n")
    array[...] = 1
    array.attrs["a"] = np.float32(2.5)
    array.resize((3,))
    assert other.read_text() == "m\n"
    assert "files   meta/units" in repr(array.info)
    found = opened(tmp_path / "a").attrs["a"]
    assert type(found) is np.float32
    assert found == 2.5


def damaged(store: MemoryStore, change: Any, key: str = FILE) -> ingot.Array:
    data = bytearray(content(store)[key])
    change(data)
    other = MemoryStore()
    put(other, content(store) | {key: bytes(data)})
    return opened(other, "r+")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: struct.pack_into("<i", data, 8, 4), "typesize is 4, items of int64 have 8"),
        (
            lambda data: struct.pack_into("<i", data, 12, 6),
            "nchunks claims 6 chunks, the index has 5",
        ),
        (lambda data: struct.pack_into("<q", data, 16, 8), "chunk 0 starts at 8"),
        (lambda data: struct.pack_into("<q", data, 16, 1 << 40), "chunk 0 starts at 1099511627776"),
        (lambda data: data.__delitem__(slice(40, None)), "ends at byte 56, 40 are stored"),
        (lambda data: data.__setitem__(slice(16, 24), data[24:32]), "two chunks start at"),
        (lambda data: swap(data), "this is chunk 1, not 0"),
    ],
)
def test_damaged_files_are_refused(change: Any, said: str) -> None:
    store = MemoryStore()
    made(store, np.arange(1, 21), chunks=4, superchunksize=5)
    array = damaged(store, change)
    with pytest.raises(IngotError, match=said):
        array[...]
    with pytest.raises(IngotError, match=said):
        array[1] = 7


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: struct.pack_into("4s", data, 0, b"blpk"), "begins with b'blpk', not with"),
        (lambda data: struct.pack_into("B", data, 4, 2), "version 2 is unknown"),
        (lambda data: struct.pack_into("B", data, 5, 3), "flags 0x03"),
        (lambda data: struct.pack_into("B", data, 7, 1), "reserved bytes 0x0100"),
        (lambda data: struct.pack_into("<i", data, 8, 0), "typesize is 0"),
        (lambda data: struct.pack_into("<i", data, 8, 4), "typesize is 4, items"),
        (lambda data: struct.pack_into("<i", data, 12, -1), "nchunks is -1"),
        (lambda data: struct.pack_into("<i", data, 12, 6), "nchunks claims 6 chunks, the index"),
        (lambda data: struct.pack_into("<i", data, 12, 4), "nchunks is 4, by meta/nrows and"),
        (lambda data: struct.pack_into("<q", data, 16, 8), "chunk 0 starts at 8, slots lie from"),
        (lambda data: struct.pack_into("<q", data, 16, -2), "chunk 0 starts at -2"),
        (lambda data: struct.pack_into("<q", data, 16, 1 << 40), "chunk 0 starts at 1099511627776"),
        (lambda data: data.__delitem__(slice(10, None)), "needs 16 bytes, 10 are stored"),
        (lambda data: data.__delitem__(slice(40, None)), "ends at byte 56, 40 are stored"),
        (lambda data: swap(data), "this is chunk 1, not 0"),
    ],
)
def test_damaged_files_of_a_folder_are_refused(tmp_path: Path, change: Any, said: str) -> None:
    made(tmp_path / "a", np.arange(1, 21), chunks=4, superchunksize=5)
    file = tmp_path / "a" / FILE
    data = bytearray(file.read_bytes())
    change(data)
    file.write_bytes(data)
    for key in (..., 0, [0, 2]):
        array = opened(tmp_path / "a")
        with pytest.raises(IngotError, match=said):
            array[key]


def test_a_reader_beside_a_writer_reads_no_document_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = made(tmp_path / "a", np.arange(100), chunks=10, superchunksize=4)
    reader = opened(tmp_path / "a")
    assert reader[57] == 57
    with monkeypatch.context() as patch:
        patch.setattr(DatasetDocuments, "read", None)
        for number in range(5):
            array[57], array[3] = 1000 + number, number
            assert (reader[57], reader[3]) == (1000 + number, number)
            assert reader[50:60].sum() == sum(range(50, 60)) - 57 + 1000 + number
    array.append([7])
    assert reader[100] == 7


def swap(data: bytearray) -> None:
    data[16:24], data[24:32] = data[24:32], data[16:24]


def test_a_chunk_larger_than_its_slot_is_refused() -> None:
    store = MemoryStore()
    made(store, np.arange(1, 21), chunks=4, superchunksize=5, spare=0)
    begin = struct.unpack_from("<q", content(store)[FILE], 24)[0]
    array = damaged(store, lambda data: struct.pack_into("<I", data, begin + 12, 4000))
    with pytest.raises(CorruptionError, match="cbytes claims 4000 bytes, 122 are stored"):
        array[...]
    with pytest.raises(CorruptionError, match="chunk 1 is larger than its slot"):
        array[0] = 3


def test_another_arrays_file_is_noticed_where_its_chunks_are_others() -> None:
    store = MemoryStore()
    made(store, np.arange(1, 41), chunks=4, superchunksize=5)
    files = content(store)
    put(store, {FILE: files["data/__2__.bin"]})
    with pytest.raises(CorruptionError, match="this is chunk 5, not 0"):
        opened(store)[0]


@pytest.mark.parametrize("shape", [(20,), (4, 5)])
@pytest.mark.parametrize("local", [True, False])
def test_another_arrays_file_is_noticed(tmp_path: Path, shape: Any, local: bool) -> None:
    places: list[Place] = [MemoryStore(), MemoryStore()]
    if local:
        places = [tmp_path / "a", tmp_path / "b"]
    for place in places:
        made(place, np.arange(1, 21).reshape(shape), chunks=(2,) * len(shape))
    put(places[0], {FILE: content(places[1])[FILE]})
    array = opened(places[0], "r+")
    for change in (
        lambda: array[...],
        lambda: array[1],
        lambda: array[[0, 3]],
        lambda: array.__setitem__(1, 7),
    ):
        with pytest.raises(CorruptionError, match="its identity is"):
            change()
    if len(shape) == 2:
        with pytest.raises(CorruptionError, match="its identity is"):
            array.resize((4, 9))
    assert opened(places[1])[...].tolist() == np.arange(1, 21).reshape(shape).tolist()


def test_an_array_without_an_identity_takes_and_makes_trailers_of_version_1(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(1, 11), chunks=4)
    storage = tmp_path / "a" / "meta" / "storage"
    text = storage.read_bytes()
    storage.write_bytes(b"".join(line for line in text.splitlines(True) if b"x_id" not in line))
    with pytest.raises(CorruptionError, match="the array has no x_id"):
        opened(tmp_path / "a")[0]
    array = opened(tmp_path / "a", "r+")
    array[...] = np.arange(2, 12)
    start = int(file_of(array).offsets[0])
    behind = split((tmp_path / "a" / FILE).read_bytes()[start:])[1]
    assert trailer.parse(behind).identity is None
    storage.write_bytes(text)
    assert opened(tmp_path / "a")[...].tolist() == list(range(2, 12))


def test_chunks_behind_the_last_row_do_not_show() -> None:
    store = MemoryStore()
    made(store, np.arange(1, 41), chunks=4, superchunksize=3)
    # Another program has cut the array, and left all chunks where they were.
    put(store, {"meta/nrows": b"6\n"})
    array = opened(store, "r+")
    array.append([70, 80])
    assert opened(store)[...].tolist() == [1, 2, 3, 4, 5, 6, 70, 80]
    array.resize((40,))
    assert opened(store)[...].tolist() == [1, 2, 3, 4, 5, 6, 70, 80, *[0] * 32]
    assert sorted(content(store)) == ["data/__1__.bin", *META]


@pytest.mark.parametrize("rows", [13, 20, 21, 1000])
def test_more_rows_than_are_stored_are_an_error(tmp_path: Path, rows: int) -> None:
    places: list[Place] = [MemoryStore(), tmp_path / "a"]
    for place in places:
        made(place, np.arange(1, 11), chunks=4, superchunksize=5)
        put(place, {"meta/nrows": b"%d\n" % rows})
        array = opened(place, "r+")
        for change in (
            lambda array=array: array[...],
            lambda array=array: array[0],
            lambda array=array: array.__setitem__(0, 5),
            lambda array=array: array.append([5]),
        ):
            with pytest.raises(CorruptionError, match="nchunks is 3, by meta/nrows"):
                change()


def test_the_head_counts_chunks_that_are_not_stored(tmp_path: Path) -> None:
    def heads() -> dict[str, int]:
        return {
            path.name: struct.unpack_from("<i", path.read_bytes(), 12)[0]
            for path in (tmp_path / "a" / "data").iterdir()
        }

    array = made(tmp_path / "a", np.arange(1, 11), chunks=4, superchunksize=5)
    assert heads() == {"__1__.bin": 3}
    array.resize((60,))
    assert heads() == {"__1__.bin": 5}
    assert opened(tmp_path / "a")[...].tolist() == [*range(1, 11), *[0] * 50]
    array.resize((14,))
    assert heads() == {"__1__.bin": 4}
    array.append(np.arange(40))
    assert heads() == {"__1__.bin": 5, "__2__.bin": 5, "__3__.bin": 4}
    array.resize((33,))
    assert heads() == {"__1__.bin": 5, "__2__.bin": 4}
    assert opened(tmp_path / "a")[...].tolist() == [*range(1, 11), *[0] * 4, *range(19)]


@pytest.mark.parametrize("name", ["nrows", "storage"])
def test_a_lost_document_is_an_error(tmp_path: Path, name: str) -> None:
    made(tmp_path / "a", np.arange(10), chunks=4)
    (tmp_path / "a" / "meta" / name).unlink()
    with pytest.raises(IngotError):
        ingot.open(tmp_path / "a")


@pytest.mark.parametrize(
    ("shape", "chunks", "capacity"),
    [(10, 4, 4096), (10**6, 4, 250_000), (10, 1 << 15, 128), (10, 1 << 25, 1)],
)
def test_indexes_are_no_longer_than_what_they_index(shape: int, chunks: int, capacity: int) -> None:
    store = MemoryStore()
    ingot.create(store, shape=shape, dtype="<i4", format="blsk", chunks=chunks)
    assert b"superchunksize: %d\n" % capacity in content(store)["meta/storage"]


def test_settings_are_checked(tmp_path: Path) -> None:
    for settings in (
        {"superchunksize": 0},
        {"superchunksize": 2**21},
        {"order": "A"},
        {"spare": -1},
        {"spare": 20},
    ):
        with pytest.raises(ValueError, match=next(iter(settings))):
            ingot.create(tmp_path / "a", shape=3, dtype="i4", format="blsk", **settings)
    for dtype in ("O", [("a", "i4")]):
        with pytest.raises(UnsupportedError):
            ingot.create(tmp_path / "a", shape=3, dtype=dtype, format="blsk")
    with pytest.raises(UnsupportedError, match="compressed by Blosc"):
        ingot.create(tmp_path / "a", shape=3, dtype="i4", format="blsk", codec="zstd")
    assert not (tmp_path / "a").exists()


def test_chunks_may_be_walked_backwards(tmp_path: Path) -> None:
    values = np.zeros((11, 3), "<i4")
    array = made(tmp_path / "a", values + 1, chunks=(1, 1), superchunksize=4)
    values += 1
    mask = np.arange(11) % 3 != 1
    values[mask, 2:0:-1] = array[mask, 2:0:-1] = 7
    assert np.array_equal(read(tmp_path / "a"), values)
    values[::-2] = array[::-2] = np.arange(18).reshape(6, 3)
    assert np.array_equal(read(tmp_path / "a"), values)


def test_an_array_that_was_read_gets_attributes(tmp_path: Path) -> None:
    array = made(tmp_path / "a", np.arange(10), chunks=4)
    assert array[3] == 3
    array.attrs["a"] = 1
    assert array[3] == opened(tmp_path / "a")[3] == 3


def written(path: Path, values: Any, **settings: Any) -> ingot.Array:
    """Make an array of several files, and see that an independent reader agrees with it."""
    array = made(path, values, superchunksize=4, **settings)
    check_readable(path, values)
    return array


def check_readable(path: Path, values: Any) -> None:
    assert np.array_equal(opened(path)[...], values)
    assert np.array_equal(read(path), values)


@pytest.mark.parametrize("shape", [(1000,), (50, 20), (9, 10, 12)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_many_chunks_of_one_call_are_written_into_their_files(
    tmp_path: Path, shape: tuple[int, ...], order: str
) -> None:
    values = np.arange(1, np.prod(shape) + 1).reshape(shape)
    chunks = {1: 70, 2: (7, 9), 3: (4, 4, 5)}[len(shape)]
    path = tmp_path / "a"
    array = written(path, values, chunks=chunks, order=order)
    rng = np.random.default_rng(5)
    for turn in range(6):
        key = tuple(slice(turn, length - turn, 1 + turn % 3) for length in shape)
        array[key] = values[key] = rng.integers(0, 1000, values[key].shape)
        check_readable(path, values)
    array[...] = values[...] = 0
    check_readable(path, values)
    assert not list(path.glob("data/*"))


def test_rows_of_one_call_are_written_into_their_files(tmp_path: Path) -> None:
    values = np.arange(1, 1001)
    path = tmp_path / "a"
    array = written(path, values, chunks=70)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        places = rng.integers(0, 1000, 200)
        given = rng.integers(0, 10**9, 200)
        array[places] = given
        values[places] = given
        check_readable(path, values)
    array[[999, 0, 0, 500]] = values[[999, 0, 0, 500]] = -1
    check_readable(path, values)
    array[np.arange(0, 1000)] = values[...] = 0
    check_readable(path, values)


def test_free_room_is_used_by_calls_of_many_chunks(tmp_path: Path) -> None:
    values = np.random.default_rng(1).integers(0, 2**60, 4000)
    path = tmp_path / "a"
    array = made(path, values, chunks=500, superchunksize=8)
    file = path / FILE
    sizes = []
    for turn in range(6):
        places = np.arange(turn, 4000, 7)
        array[places] = values[places] = values[places][::-1].copy()
        check_readable(path, values)
        sizes.append(file.stat().st_size)
    assert sizes[1:] == sizes[1:2] * 5, "after the first call, images go where older ones were"
    array.compact()
    assert file.stat().st_size < sizes[0]
    check_readable(path, values)


def test_a_call_of_many_chunks_that_fails_leaves_the_array_as_it_was(tmp_path: Path) -> None:
    values = np.arange(1, 41)
    path = tmp_path / "a"
    array = made(path, values, chunks=4, superchunksize=5)
    data = bytearray((path / "data/__2__.bin").read_bytes())
    begin = struct.unpack_from("<q", data, 16)[0]
    data[begin + 20] ^= 1
    (path / "data/__2__.bin").write_bytes(data)
    before = (path / FILE).read_bytes()
    with pytest.raises(CorruptionError, match=r"in chunk \(5,\), key 'data/__2__.bin'"):
        array[::2] = 7
    assert (path / FILE).read_bytes() == before
    assert array[:20].tolist() == values[:20].tolist()


def test_a_file_with_much_dead_room_is_written_anew_by_a_call_of_many_chunks(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 2**60, 400_000)
    path = tmp_path / "a"
    array = made(path, values, chunks=50_000, superchunksize=8, spare=0)
    full = (path / FILE).stat().st_size
    array[100_000:] = values[100_000:] = 0
    array[0] = values[0] = 5
    places = np.arange(0, 400_000, 1000)
    array[places] = values[places] = 9
    check_readable(path, values)
    assert (path / FILE).stat().st_size < full


def test_a_writer_reads_what_it_has_written(tmp_path: Path) -> None:
    values = np.arange(1, 41)
    array = made(tmp_path / "a", values, chunks=4, superchunksize=3)
    assert array[5] == 6
    for turn in range(3):
        array[turn] = values[turn] = 100 + turn
        assert np.array_equal(array[...], values)
        array.append(np.arange(9) + turn)
        values = np.concatenate([values, np.arange(9) + turn])
        assert np.array_equal(array[...], values)
        array[::2] = values[::2] = turn
        assert np.array_equal(array[...], values)
    array.resize((11,))
    assert np.array_equal(array[...], values[:11])


def test_new_files_are_staged_with_their_checksums(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, found = LocalStore.stage_pieces, []

    def staged(store: LocalStore, key: str, pieces: Any, **settings: Any) -> Move:
        move = stage(store, key, pieces, **settings)
        (data,) = store.read([Extent(move.source)])
        found.append((move.size == len(data or b""), move.checksum, zlib.crc32(data or b"")))
        return move

    monkeypatch.setattr(LocalStore, "stage_pieces", staged)
    values = np.random.default_rng(3).integers(0, 2**50, 40_000)
    for spare in (0, 0.1, 1):
        written(tmp_path / f"{spare}", values, chunks=3000, spare=spare)
    assert len(found) == 12
    # Only the kernel knows them without reading the files again.
    kernel = native.choice().name == "native"
    assert all(same and stated == (fact if kernel else None) for same, stated, fact in found)


@pytest.mark.skipif(resource is None, reason="the system limits no open files")
def test_more_files_are_read_than_can_be_open(tmp_path: Path) -> None:
    values = np.arange(1, 1201)
    made(tmp_path / "a", values, chunks=3, superchunksize=1)
    assert resource is not None
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, before[1]))
    try:
        array = opened(tmp_path / "a")
        assert np.array_equal(array[...], values)
        assert np.array_equal(array[np.arange(0, 1200, 2)], values[::2])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

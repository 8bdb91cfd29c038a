"""The array, in memory and on disk, on both kernels."""

import copy
import json
import os
import pickle
import threading
import tracemalloc
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.codecs.codec import parse_stage
from ingot.containers.handle import Handle
from ingot.errors import (
    AxisError,
    CorruptionError,
    IngotError,
    LimitError,
    ReadOnlyError,
    SelectionError,
    UnsafeError,
)
from ingot.stores import Commit, Durability, Extent, Feature, MemoryStore, Put, Store
from ingot.stores.local import lock
from ingot.stores.local.commit import CommitRun
from tests.storage import Place, Unlocked, content, delete, die_decided, put

NewPlace = Callable[[], Place]


def numbered(*shape: int, dtype: Any = "<i4") -> NDArray[Any]:
    return np.arange(1, np.prod(shape, dtype=int) + 1).reshape(shape).astype(dtype)


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    np.testing.assert_array_equal(found, expected, strict=True)


class Watched:
    """A store that notes down what it is asked for, and may refuse to go on."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.edits: list[Any] = []
        self.reads: list[str] = []
        self.refused: Callable[[str], bool] = lambda key: False

    @property
    def features(self) -> Feature:
        return self.store.features & ~Feature.NATIVE

    @property
    def location(self) -> str:
        return self.store.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        self.reads += [extent.key for extent in extents]
        return self.store.read(extents)

    def size(self, key: str) -> int | None:
        return self.store.size(key)

    def identity(self, key: str) -> Hashable | None:
        return self.store.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        return self.store.names(prefix, hidden=hidden)

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        for edit in commit.edits:
            if self.refused(edit.key):
                raise OSError(28, "no space left")
        self.edits += commit.edits
        self.store.apply(commit, durability=durability)


# What it is ---------------------------------------------------------------------------------------


def test_an_array_says_what_it_is(place: Place) -> None:
    array = ingot.create(
        place, shape=(10, 4), dtype="<f4", chunks=(3, 4), codec="zlib:7", fill=1.5, order="F"
    )
    for each in (array, ingot.open(place)):
        assert each.shape == (10, 4)
        assert each.dtype == np.dtype("<f4")
        assert (each.ndim, each.size, each.nbytes) == (2, 40, 160)
        assert each.chunks == (3, 4)
        assert [stage.name for stage in each.codec] == ["zlib", "crc32c"]
        assert_equal(each.fill, np.float32(1.5))
        assert each.format == "zarr3"
        assert each.path == (str(place) if isinstance(place, Path) else None)
    assert (array.mode, ingot.open(place).mode, ingot.open(place, "r+").mode) == ("r+", "r", "r+")


def test_stored_bytes_are_those_of_the_chunks_that_are_there(place: Place) -> None:
    array = ingot.create(
        place, shape=(100, 50), dtype="u2", chunks=(10, 50), codec="none", format="zarr2"
    )
    assert array.stored_bytes == 0
    array[15:31] = 7
    assert array.stored_bytes == 3 * 10 * 50 * 2
    put(place, {"55.0": b"a stray chunk, outside of the grid"})
    assert ingot.open(place).stored_bytes == 3 * 10 * 50 * 2


# Reading and assigning; the rest of it is in tests/property ---------------------------------------

KEYS: list[Any] = [
    ...,
    3,
    (slice(1, 6, 2), -1),
    (slice(None, None, -3), slice(4, 1, -1)),
    (None, 2, ..., None),
    ([5, -1, 5], slice(0, 2)),
    ([[0], [2]], [1, 3]),
    np.arange(7) % 2 == 0,
    (slice(3, 3), 0),
]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("key", KEYS, ids=str)
def test_keys_mean_what_they_mean_to_numpy(place: Place, key: Any, order: str) -> None:
    data = numbered(7, 5)
    array = ingot.array(data, place, chunks=(3, 2), order=order)
    assert_equal(array[key], data[key])
    value = -numbered(*np.shape(data[key]))
    data[key] = value
    array[key] = value
    assert_equal(ingot.open(place)[...], data)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (4,), (2, 3, 2, 2)])
def test_every_shape_can_be_written_and_read(place: Place, shape: tuple[int, ...]) -> None:
    data = numbered(*shape)
    array = ingot.array(data, place, chunks=tuple(length + 2 for length in shape))
    assert_equal(array[...], data)
    assert_equal(ingot.open(place)[...], data)
    assert_equal(array[()], data[()])


DTYPES = [
    *["?", "i1", "<u2", ">i4", "<i8", "<u8", "<f2", ">f4", "<f8", "<c8", ">c16", "<M8[ns]"],
    *[">m8[D]", "S3", "<U3", ">U2", "V5", "f8,(2,2)>i2", [("a", "<i4"), ("b", [("c", "S2")])]],
]


def varied(dtype: Any, count: int = 12) -> NDArray[Any]:
    """Items that differ, of a type that need not be able to count."""
    kind = np.dtype(dtype)
    numbers = np.arange(1, count + 1)
    if kind.names is None and kind.kind != "V":
        return numbers.astype("M8[D]").astype(kind) if kind.kind == "M" else numbers.astype(kind)
    data = (np.arange(count * kind.itemsize, dtype=np.uint32) % 251).astype(np.uint8)
    return data.view(kind)


# Only version 2 has arrays as fields of structures.
TYPED = [("zarr2", dtype) for dtype in DTYPES]
TYPED += [("zarr3", dtype) for dtype in DTYPES if "(2,2)" not in dtype]


@pytest.mark.parametrize(("format", "dtype"), TYPED, ids=str)
def test_every_type_of_fixed_size_survives(place: Place, format: str, dtype: Any) -> None:
    data = varied(dtype).reshape(3, 4)
    array = ingot.array(data, place, chunks=(2, 3), format=format)
    for each in (array, ingot.open(place)):
        assert each.dtype == data.dtype
        assert each[...].dtype == data.dtype
        assert each[...].tobytes() == data.tobytes()
        assert each[::-2, [2, 0]].tobytes() == data[::-2, [2, 0]].tobytes()
    array[1, 1:] = data[0, :3]
    data[1, 1:] = data[0, :3]
    assert ingot.open(place)[...].tobytes() == data.tobytes()


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_text_keeps_zeros_at_its_end(place: Place, format: str) -> None:
    array = ingot.create(place, shape=4, dtype=str, chunks=2, format=format, fill="a\0")
    array[:2] = "a"
    array[2] = "b\0"
    assert array[...].tolist() == ["a", "a", "b\0", "a\0"]
    array[...] = "\0"
    assert ingot.open(place)[...].tolist() == ["\0"] * 4
    assert ingot.array("c\0", dtype=str, format=format)[()] == "c\0"


def test_text_of_any_length(place: Place) -> None:
    array = ingot.create(place, shape=5, dtype=str, chunks=2)
    array[1:4] = ["", "déjà vu", "x" * 1000]
    array.append(["end"])
    array[0] = "first"
    expected = ["first", "", "déjà vu", "x" * 1000, "", "end"]
    assert ingot.open(place)[...].tolist() == expected
    assert ingot.open(place)[5] == "end"
    assert array[[2, 0]].tolist() == ["déjà vu", "first"]


def test_objects_of_any_kind(place: Place) -> None:
    array = ingot.create(
        place, shape=3, dtype=object, chunks=2, codec=["json2", "zlib"], format="zarr2"
    )
    array[0] = {"a": [1, None]}
    array[1:] = ["text", 2.5]
    array.append([[1, 2], [3, 4]])
    expected = [{"a": [1, None]}, "text", 2.5, [1, 2], [3, 4]]
    assert ingot.open(place)[...].tolist() == expected


@pytest.mark.parametrize("fill", [0, None, "x", 1.5, [1, 2], [[]], {"a": [1]}])
def test_a_fill_value_may_be_any_object(place: Place, fill: Any) -> None:
    array = ingot.create(
        place, shape=3, dtype=object, chunks=2, codec="json2", fill=fill, format="zarr2"
    )
    assert array[...].tolist() == [fill] * 3
    array[1] = "text"
    array.resize(2)
    array.resize(5)
    array.append(["end"])
    assert ingot.open(place)[...].tolist() == [fill, "text", fill, fill, fill, "end"]
    assert ingot.open(place)[0] == fill
    assert ingot.open(place)[[0, 5]].tolist() == [fill, "end"]


def test_rows_of_any_length(place: Place) -> None:
    codec = parse_stage({"id": "vlen-array", "dtype": "<i4"})
    array = ingot.create(
        place, shape=3, dtype=object, chunks=2, codec=[codec, "zlib"], format="zarr2"
    )
    array[1] = np.array([1, 2], "<i4")
    array.append([np.arange(3), np.arange(3)])
    rows = ingot.open(place)[...]
    assert [row.tolist() for row in rows] == [[], [1, 2], [], [0, 1, 2], [0, 1, 2]]
    assert {row.dtype for row in rows} == {np.dtype("<i4")}


def test_assigning_broadcasts_and_casts_as_numpy_does(place: Place) -> None:
    data = np.zeros((4, 6), "i2")
    array = ingot.create(place, shape=(4, 6), dtype="i2", chunks=(3, 4))
    row, column = np.array([[1, 2, 3, 4, 5, 6]]), np.ones((2, 1))
    for key, value in [(..., 2.9), (1, row), (slice(2, 4), column)]:
        data[key] = value
        array[key] = value
    assert_equal(array[...], data)
    with pytest.raises(ValueError, match="could not broadcast"):
        array[0] = [1, 2]
    assert_equal(array[...], data)


def test_a_key_that_does_not_fit_is_an_index_error(place: Place) -> None:
    array = ingot.array(numbered(3), place)
    for key in (3, (0, 0), [5], "a", 1.5):
        with pytest.raises(SelectionError):
            array[key]
        with pytest.raises(SelectionError):
            array[key] = 0


def test_each_axis_on_its_own(place: Place) -> None:
    data = numbered(6, 5, 4)
    array = ingot.array(data, place, chunks=(4, 2, 3))
    rows, columns = [5, 0, 0], np.array([True, False, True, False, True])
    chosen = np.ix_(rows, columns.nonzero()[0], [1, 2])
    assert_equal(array.oindex[rows, columns, 1:3], data[chosen])
    array.oindex[[0, 3], columns, -1] = 0
    data[np.ix_([0, 3], columns.nonzero()[0], [3])] = 0
    assert_equal(array[...], data)


def test_reading_into_an_array_that_is_there(place: Place) -> None:
    data = numbered(6, 5)
    array = ingot.array(data, place, chunks=(4, 2))
    for key in (..., (slice(1, 5), slice(None, None, -2)), [4, 4, 0]):
        out = np.zeros_like(data[key])
        assert array.read(key, out=out) is out
        assert_equal(out, data[key])
    columns = np.zeros((5, 6), data.dtype).T
    array.read(out=columns)
    assert_equal(columns, data)
    assert_equal(array.read(2), data[2])
    for wrong in (np.empty((6, 4), "<i4"), np.empty((6, 5), "<i8")):
        with pytest.raises(ValueError, match="out is"):
            array.read(out=wrong)


def test_cells_that_were_never_written_hold_the_fill_value(place: Place) -> None:
    array = ingot.create(place, shape=(4, 4), dtype="f8", chunks=(2, 2), fill=np.nan)
    array[0, 0] = 1
    assert np.isnan(array[...]).sum() == 15
    array[0, 0] = np.nan
    assert array.stored_bytes == 0


# Growing and shrinking ----------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("steps", [[1], [5], [0, 2, 7, 1]])
def test_append_adds_at_the_end(place: Place, axis: int, steps: list[int]) -> None:
    data = numbered(3, 2, 4)
    array = ingot.array(data, place, chunks=(2, 2, 3))
    for step in steps:
        shape = list(data.shape)
        shape[axis] = step
        more = -numbered(*shape)
        array.append(more, axis=axis)
        data = np.concatenate([data, more], axis)
        assert array.shape == data.shape
    assert_equal(array[...], data)
    assert_equal(ingot.open(place)[...], data)


def test_append_to_nothing(place: Place) -> None:
    array = ingot.create(place, shape=(0, 3), dtype="f4", chunks=(4, 3))
    array.append([[1, 2, 3]])
    assert_equal(array[...], np.array([[1, 2, 3]], "f4"))
    wide = ingot.create(shape=(2, 0), dtype="f4", chunks=(4, 4))
    wide.append(np.empty((3, 0)))
    assert wide.shape == (5, 0)


@pytest.mark.parametrize("values", [[1, 2], [[1, 2, 3]], 5, [[[1, 2]]], np.zeros((2, 3))])
def test_what_does_not_fit_is_not_appended(place: Place, values: Any) -> None:
    array = ingot.array(numbered(3, 2), place)
    with pytest.raises(ValueError, match="cannot be appended"):
        array.append(values)
    with pytest.raises(AxisError):
        array.append([[1, 2]], axis=2)
    assert ingot.open(place).shape == (3, 2)


def test_the_length_is_stored_when_the_data_is(kernel: str) -> None:
    watched = Watched(MemoryStore())
    array = ingot.array(numbered(5, 3), watched, chunks=(2, 2), format="zarr2")
    watched.edits.clear()
    array.append(numbered(4, 3))
    keys = [edit.key for edit in watched.edits if isinstance(edit, Put)]
    assert keys[-1] == ".zarray"
    assert sorted(keys[:-1]) == ["2.0", "2.1", "3.0", "3.1", "4.0", "4.1"]


def test_an_append_that_fails_changes_nothing_that_is_read(kernel: str) -> None:
    data = numbered(5)
    watched = Watched(MemoryStore())
    array = ingot.array(data, watched, chunks=2, format="zarr2")
    for refused in ("2", "3", ".zarray"):
        watched.refused = lambda key, refused=refused: key == refused
        with pytest.raises(OSError, match="no space"):
            array.append([6, 7, 8])
        assert_equal(array[...], data)
        assert_equal(ingot.open(watched)[...], data)
    watched.refused = lambda key: False
    array.append([9])
    assert_equal(ingot.open(watched)[...], np.append(data, np.int32(9)))


SIZES = [(4, 7), (9, 9), (6, 2), (5, 6), (2, 12), (0, 3), (5, 5), (11, 1), (12, 12)]


@pytest.mark.parametrize("fill", [0, 9])
@pytest.mark.parametrize("first", [(5, 5), (6, 6), (1, 4)])
def test_resize_keeps_what_stays_and_fills_what_comes(
    place: Place, first: tuple[int, int], fill: int
) -> None:
    data = numbered(*first)
    array = ingot.array(data, place, chunks=(3, 4), fill=fill)
    for shape in SIZES:
        grown = np.full(shape, fill, data.dtype)
        kept = tuple(slice(min(a, b)) for a, b in zip(shape, data.shape, strict=True))
        grown[kept] = data[kept]
        data = grown
        array.resize(shape)
        assert_equal(array[...], data)
        data[...] = numbered(*shape)
        array[...] = data
    assert_equal(ingot.open(place)[...], data)


def test_shrinking_removes_chunks(place: Place) -> None:
    array = ingot.array(numbered(9, 4), place, chunks=(2, 2), format="zarr2")
    array.resize((3, 2))
    assert sorted(content(place)) == [".zarray", "0.0", "1.0"]


def test_stray_chunks_do_not_appear_when_an_array_grows(place: Place) -> None:
    """Other programs shrink an array without clearing edge chunks, or leave chunks behind."""
    data = numbered(7)
    ingot.array(data, place, chunks=3, format="zarr2")
    document = json.loads(content(place)[".zarray"])
    put(place, {".zarray": json.dumps({**document, "shape": [2]}).encode()})
    for grow in (lambda a: a.resize(8), lambda a: (a.append([0]), a.resize(8))):
        array = ingot.open(place, "r+")
        grow(array)
        assert_equal(array[...], np.array([1, 2, 0, 0, 0, 0, 0, 0], "<i4"))
        array.resize(2)


@pytest.mark.parametrize("shape", [5, (3, 3, 3), (-1, 3), (2.5, 3), "ab"])
def test_a_shape_that_is_none_is_refused(place: Place, shape: Any) -> None:
    array = ingot.array(numbered(3, 3), place)
    with pytest.raises(ValueError):
        array.resize(shape)
    assert ingot.open(place).shape == (3, 3)


def test_an_array_without_axes_cannot_grow(place: Place) -> None:
    array = ingot.array(np.float64(3), place)
    array.resize(())
    with pytest.raises(AxisError):
        array.append([1])
    assert array[()] == 3


def test_threads_that_append_lose_nothing(place: Place) -> None:
    array = ingot.create(place, shape=0, dtype="i8", chunks=5)

    def work(number: int) -> None:
        for _ in range(10):
            array.append([number] * 3)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.bincount(ingot.open(place)[...]).tolist() == [30, 30, 30, 30]
    assert (ingot.open(place)[::3] == ingot.open(place)[...].reshape(40, 3).T).all()


def test_threads_that_assign_to_one_chunk_lose_nothing(place: Place) -> None:
    array = ingot.create(place, shape=400, dtype="i8", chunks=400)

    def work(first: int) -> None:
        for position in range(first, 400, 4):
            array[position] = position

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert_equal(array[...], np.arange(400))


@pytest.mark.parametrize(
    ("mine", "others"),
    [(np.s_[2:4], np.s_[:2]), (np.s_[:2], np.s_[2:4]), (np.s_[3:8], np.s_[:3]), (np.s_[::2], 1)],
)
@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_a_writer_of_a_part_of_a_chunk_keeps_what_another_wrote_before(
    place: Place, monkeypatch: pytest.MonkeyPatch, format: str, mine: Any, others: Any
) -> None:
    """The other one writes between the call of the first and its lock."""
    array = ingot.array(np.zeros(8, "i4"), place, chunks=4, format=format)
    waiting = [others]

    def overtaken(method: Any) -> Any:
        def late(*given: Any) -> Any:
            while waiting:
                array[waiting.pop()] = 5
            return method(*given)

        return late

    # A turn is taken, unless the kernel makes the commit by itself.
    for name in ("writing", "switch"):
        monkeypatch.setattr(Handle, name, overtaken(getattr(Handle, name)))
    array[mine] = 7
    expected = np.zeros(8, "i4")
    expected[others] = 5
    expected[mine] = 7
    assert_equal(array[...], expected)
    assert_equal(ingot.open(place)[...], expected)


# Attributes; what may be set is in test_attributes.py ---------------------------------------------


def test_attributes_are_stored_when_they_are_set(place: Place) -> None:
    array = ingot.array(numbered(3), place, attrs={"units": "m"})
    array.attrs["scale"] = np.float32(0.5)
    assert dict(ingot.open(place).attrs) == {"units": "m", "scale": 0.5}
    del array.attrs["units"]
    array.attrs.update(a=1, b=[2])
    assert dict(ingot.open(place).attrs) == {"scale": 0.5, "a": 1, "b": [2]}
    with pytest.raises(KeyError):
        del array.attrs["units"]
    array.attrs.clear()
    assert dict(ingot.open(place).attrs) == {}
    assert_equal(array[...], numbered(3))


def test_attributes_that_cannot_be_stored_change_nothing(place: Place) -> None:
    array = ingot.create(place, shape=3, dtype="i4", attrs={"units": "m"})
    before = content(place)
    with pytest.raises(ingot.errors.FormatError, match="'bad'"):
        array.attrs.update(units="km", bad=object())
    assert content(place) == before
    assert dict(array.attrs) == {"units": "m"}


# Read-only ----------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[ingot.Array], object]] = {
    "assign": lambda a: a.__setitem__(0, 1),
    "oindex": lambda a: a.oindex.__setitem__(([0],), 1),
    "append": lambda a: a.append([1]),
    "resize": lambda a: a.resize(1),
    "attrs": lambda a: a.attrs.update(x=1),
    "delete": lambda a: a.attrs.pop("units"),
    "clear": lambda a: a.attrs.clear(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_an_array_opened_for_reading_cannot_be_changed(
    place: Place, change: Callable[[ingot.Array], object]
) -> None:
    ingot.array(numbered(3), place, attrs={"units": "m"})
    before = content(place)
    with pytest.raises(ReadOnlyError, match="mode 'r'"):
        change(ingot.open(place))
    assert content(place) == before


def test_reading_touches_no_file(tmp_path: Path, kernel: str) -> None:
    ingot.array(numbered(30), tmp_path / "a", chunks=4, attrs={"units": "m"})
    files = [tmp_path, *sorted(tmp_path.rglob("*"))]
    before = [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files]
    array = ingot.open(tmp_path / "a")
    assert array.sum() == 465
    assert (array[::-1][0], array[[3, 4]].tolist(), dict(array.attrs)) == (
        30,
        [4, 5],
        {"units": "m"},
    )
    assert "units" in repr(array.info)
    array.close()
    files = [tmp_path, *sorted(tmp_path.rglob("*"))]
    assert [(path, path.stat().st_mtime_ns, path.stat().st_ino) for path in files] == before


# Walking ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [1, 100, 1000, 2**24])
def test_blocks_cover_the_array_once(place: Place, nbytes: int) -> None:
    data = numbered(11, 7, 5)
    array = ingot.array(data, place, chunks=(4, 3, 2))
    seen = np.zeros(data.shape, int)
    for key, block in array.blocks(nbytes):
        assert_equal(block, data[key])
        assert block.nbytes <= max(nbytes, 4 * 3 * 2 * 4)
        seen[key] += 1
    assert (seen == 1).all()


def test_blocks_of_an_array_without_axes(place: Place) -> None:
    [(key, block)] = ingot.array(np.float32(2), place).blocks()
    assert key == ()
    assert_equal(block, np.array(2, "f4"))


def test_iteration_gives_rows_and_reads_each_chunk_once() -> None:
    data = numbered(10, 4)
    watched = Watched(MemoryStore())
    array = ingot.array(data, watched, chunks=(3, 2), format="zarr2")
    watched.reads.clear()
    rows = list(array)
    assert len(rows) == len(array) == 10
    for found, expected in zip(rows, data, strict=True):
        assert_equal(found, expected)
    assert sorted(watched.reads) == sorted(f"{i}.{j}" for i in range(4) for j in range(2))
    assert [type(item) for item in ingot.array([1, 2], format="zarr2")] == [np.int64] * 2


def test_an_array_without_axes_has_no_length(place: Place) -> None:
    array = ingot.array(np.int8(1), place)
    with pytest.raises(TypeError):
        len(array)
    with pytest.raises(TypeError):
        iter(array)


# Living with it -----------------------------------------------------------------------------------


def test_numpy_takes_an_array(place: Place) -> None:
    data = numbered(4, 3)
    array = ingot.array(data, place)
    assert_equal(np.asarray(array), data)
    assert_equal(np.asarray(array, "f8"), data.astype("f8"))
    assert_equal(np.add(array, 1), data + 1)
    assert_equal(array.to_numpy(), data)
    with pytest.raises(ValueError, match="copy"):
        np.asarray(array, copy=False)


def test_pickles_lead_back_to_the_same_place(tmp_path: Path, kernel: str) -> None:
    options = ingot.Options(threads=1)
    array = ingot.array(numbered(4), tmp_path / "a", options=options)
    pickled = pickle.dumps(array)
    assert len(pickled) < 1000
    array[0] = 50
    twin = pickle.loads(pickled)
    assert (twin.path, twin.mode, twin[0]) == (array.path, "r+", 50)
    twin[1] = 60
    assert array[1] == 60
    with pytest.raises(ReadOnlyError):
        pickle.loads(pickle.dumps(ingot.open(tmp_path / "a")))[0] = 1


def test_pickles_of_arrays_in_memory_hold_the_data(kernel: str) -> None:
    array = ingot.array(numbered(4), attrs={"units": "m"})
    for twin in (pickle.loads(pickle.dumps(array)), copy.deepcopy(array)):
        assert dict(twin.attrs) == {"units": "m"}
        twin[0] = 50
        assert_equal(array[...], numbered(4))


def test_a_closed_array_says_so(place: Place) -> None:
    with ingot.array(numbered(4), place) as array:
        array.flush()
        assert array[0] == 1
    array.close()
    for use in (lambda: array[0], lambda: array.shape, array.flush, array.sum, lambda: array.info):
        with pytest.raises(ValueError, match="is closed"):
            use()
    with pytest.raises(ValueError, match="is closed"):
        array[0] = 1
    assert "closed" in repr(array)
    assert ingot.open(place)[0] == 1


def test_axes_have_names(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path, names = str(tmp_path / "ours"), ("time", None)
    array = ingot.create(path, shape=(3, 4), dtype="i2", dimension_names=names, format="zarr3")
    array.append(np.ones((2, 4), "i2"))
    assert zarr.open_array(path, mode="r").metadata.dimension_names == names
    assert ingot.open(path).dimension_names == array.dimension_names == names
    assert "axes    'time', unnamed" in repr(array.info)
    theirs = str(tmp_path / "theirs")
    zarr.create_array(theirs, shape=(2,), dtype="u1", dimension_names=["x"], zarr_format=3)
    assert ingot.open(theirs).dimension_names == ("x",)
    nameless = ingot.create(shape=2, dtype="u1")
    assert nameless.dimension_names is None
    assert "axes" not in repr(nameless.info)
    with pytest.raises(TypeError, match="zarr2 has no setting 'dimension_names'"):
        ingot.create(shape=2, dtype="u1", dimension_names=["x"], format="zarr2")


def test_info_names_everything(place: Place) -> None:
    array = ingot.array(numbered(4, 4), place, chunks=(2, 2), attrs={"<units>": "m"})
    text = repr(array.info)
    for part in ("(4, 4)", "int32", "(2, 2), 4", "blosc", "zarr3", "64 bytes", "<units>", "r+"):
        assert part in text
    page = array._repr_html_()
    assert "<td" in page
    assert "&lt;units&gt;" in page
    assert "<units>" not in page


# Bad bytes ----------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut by one": lambda data: data[:-1],
    "cut in half": lambda data: data[: len(data) // 2],
    "one more": lambda data: data + b"\0",
    "twice": lambda data: data * 2,
}


@pytest.mark.parametrize("codec", ["blosc:lz4", "blosc:zstd", "zlib", "zstd", "lz4", "none", "bz2"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_chunk_of_the_wrong_length_is_corrupt(
    place: Place, codec: str, damage: Callable[[bytes], bytes]
) -> None:
    array = ingot.array(numbered(300, 50), place, chunks=(100, 50), codec=codec, format="zarr2")
    put(place, {"1.0": damage(content(place)["1.0"])})
    for key in (..., (150, 3), (slice(None), [1]), (slice(199, 90, -40), slice(3))):
        with pytest.raises(CorruptionError) as caught:
            array[key]
        assert_names_the_chunk(caught.value, array)
    with pytest.raises(CorruptionError) as caught:
        array[100:150] = 0
    assert_names_the_chunk(caught.value, array)
    assert array[0, 0] == 1
    array[100:200] = 0
    assert array[100:].sum() == numbered(300, 50)[200:].sum()


def assert_names_the_chunk(error: BaseException, array: ingot.Array) -> None:
    notes = "".join(error.__notes__)
    assert "(1, 0)" in notes
    assert "'1.0'" in notes
    assert (array.path or "memory") in notes


@pytest.mark.parametrize("codec", ["blosc:lz4", "zlib", "none"])
def test_a_chunk_of_another_size_is_corrupt(new_place: NewPlace, codec: str) -> None:
    for length in (99, 101, 1, 200):
        other = new_place()
        ingot.array(numbered(length), other, chunks=length, codec=codec, format="zarr2")
        place = new_place()
        array = ingot.array(numbered(200), place, chunks=100, codec=codec, format="zarr2")
        put(place, {"1": content(other)["0"]})
        for key in (..., 150, [150]):
            with pytest.raises(CorruptionError, match=r"\d"):
                array[key]


def test_a_chunk_that_is_gone_reads_as_fill(place: Place) -> None:
    array = ingot.array(numbered(6), place, chunks=2, fill=7, format="zarr2")
    delete(place, "1")
    assert array[...].tolist() == [1, 2, 7, 7, 5, 6]


def test_a_chunk_that_cannot_be_opened_is_no_fill(tmp_path: Path, kernel: str) -> None:
    array = ingot.array(numbered(6), tmp_path / "a", chunks=2, format="zarr2")
    (tmp_path / "a" / "1").unlink()
    (tmp_path / "a" / "1").mkdir()
    for key in (..., 2, [3]):
        with pytest.raises(UnsafeError, match="1"):
            array[key]


def huge(place: Place, shape: list[int], chunks: list[int]) -> ingot.Array:
    ingot.array(numbered(4, 4), place, chunks=(2, 2), format="zarr2")
    document = json.loads(content(place)[".zarray"])
    put(place, {".zarray": json.dumps({**document, "shape": shape, "chunks": chunks}).encode()})
    return ingot.open(place)


@pytest.mark.parametrize("shape", [[2**31, 2**31], [2**62, 1], [1, 2**62], [2**62 // 3, 3]])
def test_a_vast_claim_costs_no_more_than_what_is_read(place: Place, shape: list[int]) -> None:
    array = huge(place, shape, [2, 2])
    last = tuple(length - 1 for length in shape)
    ends = tuple(slice(max(0, length - 2), length) for length in shape)
    tracemalloc.start()
    try:
        assert array[0, 0] == 1
        assert array[last] == 0
        assert not array[ends].any()
        assert not array[[0, -1], [-1, -1]].any() or shape[1] < 4
        assert array.size == shape[0] * shape[1]
        assert array.stored_bytes > 0
        assert next(iter(array.blocks(2**12)))[1].nbytes <= 2**12
        assert str(shape[0]) in repr(array.info)
        assert array._repr_html_()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 2**20


def test_a_vast_chunk_is_refused_before_memory_is_taken(place: Place) -> None:
    array = huge(place, [2**32, 2**30], [2**30, 2**30])
    tracemalloc.start()
    try:
        with pytest.raises(LimitError):
            array[0, 0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 * 2**20
    assert array[-1, -1] == 0


def test_values_are_evaluated_before_the_lock_is_taken(tmp_path: Path) -> None:
    array = ingot.create(tmp_path / "a", shape=10, dtype="i4", chunks=4)
    for key, values in ((slice(1, 3), [1, 2]), (slice(4, 8), [4, 5, 6, 7]), ([0, 9], [8, 9])):
        given = Unlocked(tmp_path / "a", values)
        array[key] = given
        assert given.evaluated == 1
    given = Unlocked(tmp_path / "a", [10, 11])
    array.append(given)
    assert given.evaluated == 1
    assert array[...].tolist() == [8, 1, 2, 0, 4, 5, 6, 7, 0, 9, 10, 11]


@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_a_write_that_is_planned_anew_sweeps_what_a_dead_writer_left(
    tmp_path: Path, format: str
) -> None:
    """Its own first attempt is discarded before the sweep, not after it."""
    array = ingot.array(np.zeros((12, 6), "i8"), tmp_path / "a", format=format, chunks=5)
    assert array[0, 0] == 0
    folder = os.open(tmp_path / "a", os.O_RDONLY)
    lock.acquire(folder, ".lock", 1, "here").release()  # Without a mark, as if it had died.
    os.close(folder)
    (tmp_path / "a" / ".g-0123456789abcdef-0.0").write_bytes(b"staged")
    array[...] = 9
    assert (array[...] == 9).all()
    assert [each.name for each in tmp_path.rglob(".g-*")] == []


@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_whole_chunks_are_assigned_over_the_journal_of_a_dead_writer(
    tmp_path: Path, kernel: str, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = ingot.array(np.arange(12), tmp_path / "a", chunks=4, format=format)
    other = ingot.open(tmp_path / "a", "r+")
    with monkeypatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            other[...] = 5
    assert (tmp_path / "a/.commit").exists()
    assert array[...].tolist() == [5] * 12
    array[4:8] = 7
    assert not (tmp_path / "a/.commit").exists()
    assert array[...].tolist() == [5] * 4 + [7] * 4 + [5] * 4


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_integers_refuse_nan_and_infinities(wrong: float) -> None:
    array = ingot.array(np.arange(3, dtype="i4"))
    for change in (
        lambda: array.append(np.array([1.0, wrong])),
        lambda: array.__setitem__(slice(2), np.array([1.0, wrong])),
        lambda: array.__setitem__(0, np.float64(wrong)),
    ):
        with pytest.raises(ValueError, match="an array of int32 cannot hold"):
            change()
    assert array[:].tolist() == [0, 1, 2]
    array[0] = np.array(2.0)
    assert array[0] == 2


def test_names_that_users_of_other_libraries_reach_for() -> None:
    array = ingot.create(shape=(5, 4), dtype="i2", chunks=(2, 4), fill=7, order="F")
    assert (array.nchunks, array.itemsize, array.order, array.fill_value) == (3, 2, "F", 7)
    assert array.cratio == float("inf")
    array[...] = 1
    assert array.cratio == array.nbytes / array.stored_bytes
    assert array.astype("f8").dtype == np.dtype("f8")


@pytest.mark.parametrize("dtype", ["i2", "u1", "f4", "f8", "?", "c16"])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1), -1])
def test_products_and_deviations_are_those_of_numpy(dtype: str, axis: Any) -> None:
    data = (np.arange(35).reshape(7, 5) % 4 + 1).astype(dtype)
    array = ingot.create(shape=(7, 5), dtype=dtype, chunks=(2, 3), fill=1)
    array[1:6] = data[1:6]
    data[[0, 6]] = 1
    for name in ("prod", "var", "std"):
        for settings in ({}, {"keepdims": True}, {} if name == "prod" else {"ddof": 1}):
            found = getattr(array, name)(axis=axis, **settings)
            expected = getattr(data, name)(axis=axis, **settings)
            assert np.asarray(found).dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    out = np.empty(np.shape(data.std(axis=axis)))
    assert array.std(axis=axis, out=out) is out
    np.testing.assert_allclose(out, data.std(axis=axis), rtol=1e-5)
    assert np.std(array) == pytest.approx(data.std())


def test_deviations_keep_digits_far_from_zero() -> None:
    data = np.array([1e9, 1e9 + 1, 1e9 + 2])
    assert ingot.array(data, chunks=2).var() == data.var()
    times = ingot.array(np.arange(3).astype("M8[s]"))
    for name in ("var", "prod"):
        with pytest.raises(TypeError, match="datetime64"):
            getattr(times, name)()
    with pytest.warns(RuntimeWarning):
        assert np.isnan(ingot.create(shape=0, dtype="f8").var())


# Names of h5py, zarr and NumPy --------------------------------------------------------------------


def test_a_comparison_with_values_is_refused() -> None:
    array, other = ingot.array([5, 5]), ingot.array([5, 5])
    values = (5, 5.0, np.int64(5), "5", b"5", [5, 5], (5, 5))
    for value in values:
        with pytest.raises(TypeError, match=r"use array\[...\] == value"):
            _ = array == value
        with pytest.raises(TypeError, match=r"use array\[...\] == value"):
            _ = array != value
    assert array == array
    assert array != other
    assert array != None  # noqa: E711
    assert array in [None, other, array]
    assert array not in [None, other]
    assert {array: 1, other: 2}[array] == 1
    array.close()
    assert array == array


STRUCTURED = np.dtype([("x", "<i4"), ("y", "<f8"), ("z", "<u1", (3,))])


@pytest.mark.parametrize("shape", [(7,), (5, 6), (), (0, 4)])
def test_fields_of_structured_items(shape: tuple[int, ...]) -> None:
    items = np.zeros(shape, STRUCTURED)
    items["x"] = np.arange(items.size).reshape(shape)
    items["y"], items["z"] = items["x"] / 2, 7
    chunks = tuple(2 for _ in shape)
    array = ingot.array(items, chunks=chunks, format="zarr2")
    assert array.fields == ("x", "y", "z")
    for name in array.fields:
        np.testing.assert_array_equal(array[name], items[name])
        assert array[name].dtype == items[name].dtype
        np.testing.assert_array_equal(array[name, ...], items[name])
        if shape and shape[0]:
            np.testing.assert_array_equal(array[name, 1:4], items[1:4][name])
            np.testing.assert_array_equal(array[name, 2], items[2][name])
    for key in ("w", ("w", 0)):
        with pytest.raises(SelectionError, match="there is no field 'w'; there is x, y, z"):
            _ = array[key]


def test_plain_items_have_no_fields() -> None:
    array = ingot.array([1, 2])
    assert array.fields == ()
    for key in ("x", ("x", 0)):
        with pytest.raises(SelectionError, match="valid indices"):
            _ = array[key]


def test_shards() -> None:
    assert ingot.create(shape=(40, 60), dtype="i4", chunks=(5, 6), shards=(10, 12)).shards == (
        10,
        12,
    )
    assert ingot.create(shape=(40, 60), dtype="i4", chunks=(5, 6)).shards is None
    assert ingot.create(shape=40, dtype="i4", format="bcolz").shards is None


def test_arguments_that_mean_nothing_are_errors_of_ours() -> None:
    array = ingot.array([[1, 2], [3, 4]])
    calls: list[Callable[[], object]] = [
        lambda: array.sum(axis=4),
        lambda: array.mean(axis="x"),
        lambda: array.argmax(axis=2),
        lambda: array.append([[1, 2]], axis=2),
        lambda: array.astype("foo"),
        lambda: array.blocks("x"),
        lambda: ingot.array(["a", "b"], dtype="U1").astype("f4"),
    ]
    for call in calls:
        with pytest.raises(IngotError):
            call()

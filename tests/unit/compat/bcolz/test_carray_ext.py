"""The carray of the bcolz module: against NumPy, and against bcolz where it is installed."""

import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.compat import bcolz
from ingot.compat.bcolz.carray_ext import carray, chunk
from ingot.errors import UnsafeError

TYPES = ["i8", "u1", "f4", "?", "S5", "U3", "M8[ns]", "<i4,<f8", ">i4", "c16"]


def values(dtype: str, count: int) -> Any:
    numbers = np.arange(count)
    if dtype == "<i4,<f8":
        return np.array([(n, n / 2) for n in numbers], dtype)
    if dtype in ("S5", "U3"):
        return np.array([f"x{n % 50}" for n in numbers], dtype)
    return numbers.astype("i8").astype(dtype)


@pytest.fixture(params=["memory", "disk"])
def rootdir(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    return str(tmp_path / "array") if request.param == "disk" else None


@pytest.mark.parametrize("dtype", TYPES)
def test_rows_are_those_of_the_array(dtype: str, rootdir: str | None) -> None:
    data = values(dtype, 1003)
    array = carray(data, chunklen=100, rootdir=rootdir)
    np.testing.assert_array_equal(array[:], data)
    assert array[:].dtype == data.dtype
    for key in (
        slice(5, 950, 7),
        slice(998, None),
        slice(0, 0),
        [3, 1002, 3],
        data["f0"] > 900 if data.dtype.names else np.arange(1003) % 3 == 0,
    ):
        np.testing.assert_array_equal(array[key], data[key])
    for number in (0, 99, 100, 1002, -1, -1003):
        assert array[number] == data[number].item()
        assert type(array[number]) is type(data[number].item())
    assert list(array) == data.tolist()
    assert list(array.iter(3, 900, 11, limit=20, skip=2)) == data[3:900:11].tolist()[2:22]


def test_random_changes_are_those_of_numpy(rootdir: str | None) -> None:
    choose = random.Random(7)
    rows = np.arange(50.0)
    array = carray(rows, chunklen=8, rootdir=rootdir)
    for step in range(300):
        kind = choose.choice(["append", "one", "set", "slice", "mask", "trim", "grow", "flush"])
        if kind == "append":
            more = np.arange(choose.randrange(40)) + step
            array.append(more)
            rows = np.concatenate([rows, more])
        elif kind == "one":
            array.append(step)
            rows = np.append(rows, step)
        elif kind == "set" and len(rows):
            at = choose.randrange(-len(rows), len(rows))
            array[at] = rows[at] = -step
        elif kind == "slice":
            start, width = choose.randrange(len(rows) + 1), choose.randrange(1, 4)
            array[start : start + 30 : width] = step
            rows[start : start + 30 : width] = step
        elif kind == "mask":
            array[rows > 40] = step
            rows[rows > 40] = step
        elif kind == "trim":
            fewer = choose.randrange(min(30, len(rows) + 1))
            array.trim(fewer)
            rows = rows[: len(rows) - fewer]
        elif kind == "grow":
            array.resize(len(rows) + 5)
            rows = np.concatenate([rows, np.zeros(5)])
        else:
            array.flush()
        assert array.shape == rows.shape
        np.testing.assert_array_equal(array[:], rows)
        assert array.sum() == pytest.approx(rows.sum())
        assert array.leftover_elements == len(rows) % 8
        leftover = array.leftover_array[: len(rows) % 8]
        np.testing.assert_array_equal(leftover, rows[len(rows) // 8 * 8 :])
    if rootdir is not None:
        array.flush()
        np.testing.assert_array_equal(ingot.open(rootdir)[...], rows)
        np.testing.assert_array_equal(carray(rootdir=rootdir, mode="r")[:], rows)


def test_groups_of_chunks_are_stored_in_order() -> None:
    array = carray(np.empty(0, "i8"), chunklen=1000)
    for start in range(0, 3_000_000, 70_001):
        array.append(np.arange(start, min(start + 70_001, 3_000_000)))
        array.append(np.empty(0, "i8"))
    np.testing.assert_array_equal(array[:], np.arange(3_000_000))
    assert array.cbytes < array.nbytes / 4


def test_rows_of_several_axes(rootdir: str | None) -> None:
    data = np.arange(600).reshape(100, 2, 3)
    array = carray(data, chunklen=7, rootdir=rootdir)
    array.append(data[0])
    assert array.shape == (101, 2, 3)
    np.testing.assert_array_equal(array[100], data[0])
    np.testing.assert_array_equal(array[3:50:2, 1], data[3:50:2, 1])
    array[4, 1] = 0
    assert array[4, 1].tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match="trailing dimensions"):
        array.append(np.zeros((2, 2)))


def test_reshape_replaces_an_array_on_disk(rootdir: str | None) -> None:
    array = carray(np.arange(24), chunklen=5, rootdir=rootdir)
    made = array.reshape((4, -1))
    assert made.shape == (4, 6)
    np.testing.assert_array_equal(made[:], np.arange(24).reshape(4, 6))
    if rootdir is not None:
        np.testing.assert_array_equal(carray(rootdir=rootdir)[:], made[:])


def test_mode_r_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "array"
    carray(np.arange(100), chunklen=10, rootdir=str(folder))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    array = carray(rootdir=folder, mode="r")
    for change in (
        lambda: array.append(1),
        lambda: array.resize(5),
        lambda: array.trim(30),
        lambda: array.__setitem__(0, 1),
        lambda: array.reshape((10, 10)),
    ):
        with pytest.raises(OSError, match="mode is 'r'"):
            change()
    with pytest.raises(OSError, match="ead-only"):
        array.attrs["a"] = 1
    array.flush()
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_mode_w_does_not_remove_what_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "diary.txt").write_text("dear diary")
    with pytest.raises(FileExistsError):
        carray([1, 2], rootdir=tmp_path / "letters", mode="w")
    assert (tmp_path / "letters" / "diary.txt").read_text() == "dear diary"


def test_rows_that_were_not_flushed_are_not_seen_by_others(tmp_path: Path) -> None:
    array = carray([1, 2], rootdir=tmp_path / "a")
    array.append(3)
    assert len(array) == 3
    assert carray(rootdir=tmp_path / "a", mode="r")[:].tolist() == [1, 2]
    array.flush()
    assert carray(rootdir=tmp_path / "a", mode="r")[:].tolist() == [1, 2, 3]


def test_a_view_has_rows_of_its_own() -> None:
    array = carray(np.arange(10_000), chunklen=100)
    view = array.view()
    view.append(np.zeros(2_000_000, "i8"))
    view[0] = 77
    array.append(5)
    assert array[-1] == 5
    assert array[0] == 0
    assert len(array) == 10_001
    assert view[0] == 77
    assert view[10_000] == 0


def test_objects_are_pickled_and_opened_only_when_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [{"a": 1}, "text", (1, 2)]
    assert list(carray(data, dtype="O")[:]) == data
    made = carray(data, dtype="O", rootdir=tmp_path / "objects")
    assert made[0] == {"a": 1}
    with pytest.raises(UnsafeError, match="pickle"):
        carray(rootdir=tmp_path / "objects", mode="r")
    monkeypatch.setattr(bcolz.defaults, "allow_pickle", True)
    assert list(carray(rootdir=tmp_path / "objects", mode="r")[:]) == data


def test_pickles_hold_the_rows_or_the_folder(rootdir: str | None) -> None:
    array = carray(np.arange(9), rootdir=rootdir)
    again = pickle.loads(pickle.dumps(array))
    assert again[:].tolist() == list(range(9))
    assert again.rootdir == rootdir


def test_quantize_rounds_stored_rows() -> None:
    data = np.random.default_rng(1).normal(size=100_000)
    array = carray(data, cparams=bcolz.cparams(quantize=1), chunklen=1000)
    assert array.cbytes < carray(data, chunklen=1000).cbytes
    np.testing.assert_allclose(array[:], data, atol=0.05)
    with pytest.raises(TypeError, match="floating point"):
        carray([1, 2], cparams=bcolz.cparams(quantize=1))


def test_expressions_take_the_names_of_the_caller() -> None:
    array = carray(np.arange(10))
    limit = 7
    assert array["array > limit"].tolist() == [8, 9]
    array["array > limit"] = 0
    assert array.sum() == 28
    assert limit == 7


def test_chunk_keeps_rows() -> None:
    data = np.arange(1000, dtype="i4")
    made = chunk(data, data.dtype, bcolz.cparams())
    assert made.nbytes == 4000
    assert made.cbytes < 4000
    assert made[10] == 10
    np.testing.assert_array_equal(made[5:900:3], data[5:900:3])


@pytest.mark.parametrize("dtype", [each for each in TYPES if each not in ("c16", "<i4,<f8")])
def test_bcolz_reads_our_folders_and_we_read_its(dtype: str, tmp_path: Path) -> None:
    peer = pytest.importorskip("bcolz")
    data = values(dtype, 1003)
    ours = carray(data, chunklen=100, rootdir=tmp_path / "ours")
    ours.append(data[:50])
    ours.flush()
    wanted = np.concatenate([data, data[:50]])
    np.testing.assert_array_equal(peer.open(str(tmp_path / "ours"), mode="r")[:], wanted)
    theirs = peer.carray(data, chunklen=100, rootdir=str(tmp_path / "theirs"))
    theirs.append(data[:50])
    theirs.flush()
    read = carray(rootdir=tmp_path / "theirs")
    np.testing.assert_array_equal(read[:], wanted)
    assert repr(read.cparams) == repr(theirs.cparams)
    read.append(data[:3])
    read.flush()
    np.testing.assert_array_equal(
        peer.open(str(tmp_path / "theirs"), mode="r")[:], np.concatenate([wanted, data[:3]])
    )


@pytest.mark.parametrize("size", [0, 1, 7, 100, 5000, 10**6])
@pytest.mark.parametrize("dtype", ["i1", "f8", "S20", "(100,)f8"])
def test_chunklen_is_that_of_bcolz(dtype: str, size: int) -> None:
    peer = pytest.importorskip("bcolz")
    empty = np.empty(0, np.dtype(dtype))
    made = carray(empty, expectedlen=size)
    assert made.chunklen == peer.carray(empty, expectedlen=size).chunklen

"""Transactions of arrays: single items are kept, and stored together before anything else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers import array as array_module
from ingot.errors import ArgumentError, CorruptionError, LockedError, SelectionError
from ingot.stores import MemoryStore
from ingot.stores.transaction import TransactionStore

LAYOUTS: dict[str, dict[str, Any]] = {
    "zarr3": {"format": "zarr3"},
    "shards": {"format": "zarr3", "shards": 16},
    "zarr2": {"format": "zarr2"},
    "bcolz": {"format": "bcolz"},
    "blsk": {"format": "blsk", "superchunksize": 3},
}


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The turns to write to the buffered store of a transaction."""
    taken: list[object] = []
    writing = TransactionStore.writing

    def note(store: TransactionStore, **given: Any) -> Any:
        taken.append(store)
        return writing(store, **given)

    monkeypatch.setattr(TransactionStore, "writing", note)
    return taken


@pytest.mark.parametrize("layout", LAYOUTS)
def test_single_items_are_stored_together(tmp_path: Path, layout: str, turns: list[object]) -> None:
    expected = np.arange(100)
    array = ingot.array(expected, tmp_path / "a", chunks=8, **LAYOUTS[layout])
    with array.transaction():
        for number in range(50):
            place = number * 37 % 64 - 20
            array[place] = expected[place] = 1000 + number
        assert turns == []
        assert array[...].tolist() == expected.tolist(), "a read has them"
        assert len(turns) == 1
        array[5] = expected[5] = 1
        array[5:7] = expected[5:7] = [2, 3]
        array[6] = expected[6] = 4
        assert ingot.open(tmp_path / "a")[...].tolist() == list(range(100))
    assert len(turns) == 4
    assert array[...].tolist() == ingot.open(tmp_path / "a")[...].tolist() == expected.tolist()


@pytest.mark.parametrize("layout", ["zarr3", "zarr2", "blsk"])
def test_items_of_several_axes(tmp_path: Path, layout: str, turns: list[object]) -> None:
    expected = np.arange(60.0).reshape(3, 4, 5)
    array = ingot.array(expected, tmp_path / "a", chunks=2, **LAYOUTS[layout])
    with array.transaction():
        for number in range(30):
            key = number % 3, -1 - number % 4, number * 7 % 5
            array[key] = expected[key] = number + 0.5
        array[0, 1:2, 2] = expected[0, 1:2, 2] = [9]
        array[0, 0, 0] = expected[0, 0, 0] = 8
        array[0, 0, 0] = expected[0, 0, 0] = 7
    assert turns == [], "they are all of the transaction, so nothing is buffered"
    assert np.array_equal(ingot.open(tmp_path / "a")[...], expected)


@pytest.mark.parametrize("dtype", [">i2", "M8[ns]", "S3", "V4", "c16", [("a", "i4"), ("b", "f8")]])
def test_items_of_all_types(dtype: Any) -> None:
    store = MemoryStore()
    made = np.frombuffer(bytes(range(1, 241)) * 16, np.dtype(dtype), 20)
    array = ingot.array(np.zeros(20, dtype), store, chunks=6)
    with array.transaction():
        for number in range(20):
            array[number] = made[number]
    assert ingot.open(store)[...].tobytes() == made.tobytes()


def test_the_value_is_that_of_the_assignment() -> None:
    array = ingot.array(np.zeros(4))
    value = np.array([5.0])
    with array.transaction():
        array[1:2] = value
        value[0] = 6
        array[2:3] = value
    assert array[...].tolist() == [0, 5, 6, 0]


def test_items_are_stored_before_other_changes(tmp_path: Path) -> None:
    array = ingot.array(np.arange(6), tmp_path / "a", chunks=4)
    with array.transaction():
        array[5] = 9
        array.resize(4)
        array.resize(6)
        array[4] = 8
        array.append([7])
        array[6] = 5
        array.attrs["a"] = 1
    assert ingot.open(tmp_path / "a")[...].tolist() == [0, 1, 2, 3, 8, 0, 5]


def test_an_exception_discards_items(tmp_path: Path) -> None:
    array = ingot.array(np.arange(6), tmp_path / "a")

    def fail() -> None:
        with array.transaction():
            array[1] = 7
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert array[...].tolist() == [0, 1, 2, 3, 4, 5]
    with array.transaction():
        array[2] = 8
        with array.transaction():
            array[3] = 9
    array[0] = 4
    assert ingot.open(tmp_path / "a")[...].tolist() == [4, 1, 8, 9, 4, 5]


def test_what_does_not_fit_is_refused_at_once(tmp_path: Path) -> None:
    array = ingot.array(np.arange(6), tmp_path / "a")
    with array.transaction():
        array[1] = 7
        with pytest.raises(SelectionError):
            array[6] = 1
        with pytest.raises(ArgumentError):
            array[2] = [1, 2]
        with pytest.raises(ArgumentError):
            array[2] = float("nan") * np.ones(1)
        array[3] = 8
    assert ingot.open(tmp_path / "a")[...].tolist() == [0, 7, 2, 8, 4, 5]


def _set_items(array: ingot.Array) -> None:
    # A transaction looks again after so many single items.
    for place in range(3, 3 + 64):
        array[place] = 9


@pytest.mark.parametrize(
    "go_on",
    [
        _set_items,
        lambda array: array.__setitem__(3, [9]),
        lambda array: array[3],
        lambda array: array.__setitem__(slice(3, 5), 9),
    ],
    ids=["items", "an item in a list", "a read", "a slice"],
)
def test_another_writer_is_noticed_before_the_end(tmp_path: Path, go_on: Any) -> None:
    array = ingot.array(np.arange(100), tmp_path / "a")

    def overtake() -> None:
        with array.transaction():
            array[1] = 7
            ingot.open(tmp_path / "a", "r+")[2] = 8
            with pytest.raises(LockedError):
                go_on(array)

    with pytest.raises(LockedError):
        overtake()
    assert ingot.open(tmp_path / "a")[...].tolist() == [0, 1, 8, *range(3, 100)]


def test_damage_is_found_before_the_transaction_ends(tmp_path: Path) -> None:
    array = ingot.array(np.arange(16), tmp_path / "a", chunks=4)
    chunk = tmp_path / "a" / "c" / "1"
    data = bytearray(chunk.read_bytes())
    data[-1] ^= 1
    chunk.write_bytes(data)

    def change() -> None:
        with array.transaction():
            array[0] = 7
            array[5] = 8

    with pytest.raises(CorruptionError):
        change()
    assert array[:4].tolist() == [0, 1, 2, 3]


def test_arrays_of_a_group_keep_the_order_of_changes(tmp_path: Path) -> None:
    group = ingot.group(tmp_path / "g")
    one = group.create_array("a", shape=4, dtype="i8")
    same, other = group["a"], group.create_array("b", shape=4, dtype="i8")
    with group.transaction():
        one[1], same[1], one[1] = 1, 2, 3
        other[0], same[2] = 5, 6
        assert (same[1], one[2], other[0]) == (3, 6, 5)
        one[3] = 7
    found = ingot.open(tmp_path / "g")
    assert (found["a"][...].tolist(), found["b"][0]) == ([0, 3, 6, 7], 5)


def test_not_all_items_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: list[object]
) -> None:
    monkeypatch.setattr(array_module, "_MOST_PENDING", 10)
    limits = ingot.Limits(commit_chunks=7)
    array = ingot.create(
        tmp_path / "a", shape=80, dtype="i8", chunks=2, options=ingot.Options(limits=limits)
    )
    with array.transaction():
        for number in range(30):
            array[2 * number] = number + 1
    assert len(turns) == 5, "one commit has at most seven chunks"
    assert array[::2].tolist() == [*range(1, 31), *[0] * 10]
    assert not array[1::2].any()


def test_other_arrays_change_as_before() -> None:
    scalar, words = ingot.array(np.int64(3)), ingot.array(np.array(["a", "b"], "T"))
    with scalar.transaction():
        scalar[...] = 4
    with words.transaction():
        words[1] = "longer"
    assert (int(scalar[()]), words[...].tolist()) == (4, ["a", "longer"])


def test_places_of_large_arrays(tmp_path: Path) -> None:
    array = ingot.create(tmp_path / "a", shape=(2**30, 2**30), dtype="i8", chunks=(2, 2))
    with array.transaction():
        array[2**29, 2**29 + 1], array[-1, -1] = 5, 6
    assert (array[2**29, 2**29 + 1], array[-1, -1], array[0, 0]) == (5, 6, 0)


@pytest.mark.parametrize("grouped", [False, True])
def test_a_writer_that_was_faster_is_noticed_at_the_end(tmp_path: Path, grouped: bool) -> None:
    path, name = tmp_path / "g", "a" if grouped else ""
    if grouped:
        array = ingot.group(path).array(name, np.arange(6))
    else:
        array = ingot.array(np.arange(6), path)

    def overtake() -> None:
        with array.transaction():
            array[1] = 7
            array[2] = 8
            ingot.open(path / name, "r+")[5] = 9

    with pytest.raises(LockedError):
        overtake()
    assert array[...].tolist() == [0, 1, 2, 3, 4, 9]
    with array.transaction():
        array[1] = 7
    assert ingot.open(path / name)[...].tolist() == [0, 7, 2, 3, 4, 9]

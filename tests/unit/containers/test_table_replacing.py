"""Tables that take the place of what was there, and what takes theirs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import (
    NotFoundError,
    UnsupportedError,
)
from ingot.stores import LocalStore
from ingot.testing.disk import Disk
from tests.storage import Place, content, put
from tests.tables import assert_holds, data, make, nested


def test_what_is_there_is_not_overwritten(place: Place) -> None:
    make(place)
    with pytest.raises(FileExistsError):
        make(place)
    assert_holds(ingot.open(place), data())


OLD: dict[str, Callable[[Place], object]] = {
    "a table": lambda place: make(place, attrs={"old": 1}),
    "nested tables": lambda place: make(place, nested()),
    "an array": lambda place: ingot.array(np.arange(99), place, chunks=5, format="bcolz"),
    "an array of another format": lambda place: ingot.array(np.arange(9), place, format="zarr2"),
}


@pytest.mark.parametrize("old", OLD.values(), ids=list(OLD))
def test_a_table_takes_the_place_of_what_was_there(
    place: Place, old: Callable[[Place], object]
) -> None:
    old(place)
    put(place, {"notes.txt": b"mine", "p/notes.txt": b"mine", "i/notes.txt": b"mine"})
    with pytest.raises(FileExistsError):
        ingot.table({"i": np.arange(7), "z": np.ones(7)}, place)
    made = ingot.table({"i": np.arange(7), "z": np.ones(7)}, place, overwrite=True)
    for table in (made, ingot.open(place)):
        assert isinstance(table, ingot.Table)
        assert_holds(table, {"i": np.arange(7), "z": np.ones(7)})
        assert dict(table.attrs) == {}
    left = content(place)
    for key in ("notes.txt", "p/notes.txt", "i/notes.txt"):
        assert left.pop(key) == b"mine"
    assert {key.partition("/")[0] for key in left} <= {
        "__rootdirs__",
        "__attrs__",
        ".lock",
        "i",
        "z",
    }
    made.append({"i": [7], "z": [2.0]})
    assert len(ingot.open(place)) == 8


def test_a_column_may_have_the_name_of_an_old_chunk(place: Place) -> None:
    ingot.array(np.arange(9), place, chunks=3, format="zarr2")
    assert "0" in content(place)
    ingot.table({"0": np.arange(7)}, place, overwrite=True)
    assert ingot.open(place)["0"][...].tolist() == list(range(7))


def test_an_array_takes_the_place_of_a_table(place: Place) -> None:
    make(place, nested())
    with pytest.raises(FileExistsError):
        ingot.array(np.arange(7), place, format="bcolz")
    array = ingot.array(np.arange(7), place, format="bcolz", overwrite=True)
    assert array[...].tolist() == ingot.open(place)[...].tolist() == list(range(7))
    assert {key.partition("/")[0] for key in content(place)} <= {
        "__attrs__",
        ".lock",
        "meta",
        "data",
    }


def test_shards_are_not_replaced(tmp_path: Path) -> None:
    make(tmp_path / "t")
    ingot.open(tmp_path / "t").shard(3, tmp_path / "cut")
    before = content(tmp_path / "cut")
    with pytest.raises(UnsupportedError, match="by itself"):
        ingot.table({"a": [1]}, tmp_path / "cut", overwrite=True)
    assert content(tmp_path / "cut") == before


def test_a_creation_that_fails_does_not_block_the_next_attempt() -> None:
    """Each step fails in turn: then there is no table, or all of it."""
    columns = {"a": np.arange(30), "b": np.arange(30)}

    def attempt(failing: int | None) -> int:
        disk = Disk({})

        def fail(what: str) -> None:
            if len(disk.steps) - 1 == failing:
                raise OSError(5, "Input/output error")

        disk.watch = fail
        try:
            ingot.table(columns, LocalStore(disk, writable=True), chunks=12)
        except OSError:
            disk.watch = None
            try:
                table = ingot.open(LocalStore(disk))
            except NotFoundError:
                table = ingot.table(columns, LocalStore(disk, writable=True), chunks=12)
            assert table["b"][:].tolist() == list(range(30)), f"step {failing}"
        else:
            assert failing is None or failing >= len(disk.steps)
        return len(disk.steps)

    steps = attempt(None)
    assert steps > 20
    for failing in range(steps):
        attempt(failing)

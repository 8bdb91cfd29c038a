"""Files that change places, and what is left when it stops in the middle."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.stores import Commit, Extent, LocalStore, Put
from ingot.stores.local import files
from ingot.stores.local.files import exchanged

PROCESS = ingot.Options(durability="process")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has this call")


def swap(one: str, other: str, folder: Path) -> bool:
    place = os.open(folder, os.O_RDONLY)
    try:
        return exchanged(one, other, place)
    finally:
        os.close(place)


def test_two_files_change_places(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    (tmp_path / "old").write_bytes(b"old")
    assert swap("new", "old", tmp_path)
    assert [(tmp_path / name).read_bytes() for name in ("new", "old")] == [b"old", b"new"]


@pytest.mark.parametrize("kind", ["nothing", "folder", "link"])
def test_only_a_plain_file_gives_up_its_place(kind: str, tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"new")
    if kind == "folder":
        (tmp_path / "old").mkdir()
    elif kind == "link":
        (tmp_path / "old").symlink_to("new")
    before = sorted((path.name, path.lstat().st_ino) for path in tmp_path.iterdir())
    assert not swap("new", "old", tmp_path)
    assert sorted((path.name, path.lstat().st_ino) for path in tmp_path.iterdir()) == before


@pytest.mark.usefixtures("_steps_in_python")
@pytest.mark.parametrize("count", [1, 2])
def test_who_dies_between_exchange_and_removal_loses_nothing(count: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    columns = {"a": np.arange(9000), "b": np.arange(9000) * 0.5}
    ingot.table(columns, path, options=PROCESS)
    child = os.fork()
    if child == 0:
        _append_and_die(path, count)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    staged = [found for found in path.rglob(".g-*") if found.parent.name == "data"]
    assert len(staged) == 3 - count
    assert ingot.open(path)["a"][:].tolist() == list(range(9000))
    table = ingot.open(path, "r+", options=PROCESS)
    table.append({"a": [-1], "b": [-1.0]})
    assert table["b"][8998:].tolist() == [4499.0, 4499.5, -1.0]
    assert len(table) == 9001
    assert not list(path.rglob(".g-*"))


@pytest.mark.usefixtures("_steps_in_python")
@pytest.mark.parametrize("step", range(5))
def test_who_dies_while_a_journal_is_applied_has_decided(step: int, tmp_path: Path) -> None:
    path = tmp_path / "t"
    ingot.table({"a": np.arange(9000), "b": np.arange(9000) * 0.5}, path, options=PROCESS)
    child = os.fork()
    if child == 0:
        _append_and_die_applying(path, step)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert (path / ".commit").exists()
    for mode in ("r", "r+"):
        table = ingot.open(path, mode, options=PROCESS)
        assert len(table) == 9050
        assert table["a"][8999:].tolist() == [8999, *[7] * 50]
        assert table["b"][8999:].tolist() == [4499.5, *[7.0] * 50]
    table.append({"a": [1], "b": [1.0]})
    assert len(ingot.open(path)) == 9051
    assert not list(path.rglob(".g-*"))


@pytest.mark.usefixtures("_steps_in_python")
@pytest.mark.parametrize("step", range(8))
def test_who_dies_while_large_values_are_placed_has_decided(step: int, tmp_path: Path) -> None:
    # The journal names these values. It carries the documents of columns.
    store = LocalStore(tmp_path, writable=True)
    old, new = (tuple(Put(key, value * 5000) for key in "ab") for value in (b"o", b"n"))
    store.apply(Commit(publish=old))
    child = os.fork()
    if child == 0:
        _die_applying(
            tmp_path, step, lambda: store.apply(Commit(publish=new), durability="process")
        )
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 42
    assert (tmp_path / ".commit").exists()
    for each in (LocalStore(tmp_path).view(), store):
        if each is store:
            store.recover()
        assert each.read([Extent("a"), Extent("b")]) == [b"n" * 5000] * 2
    assert not list(tmp_path.rglob(".g-*"))


def _append_and_die_applying(path: Path, step: int) -> None:
    def append() -> None:
        ingot.open(path, "r+", options=PROCESS).append({"a": [7] * 50, "b": [7.0] * 50})

    _die_applying(path, step, append)


def _die_applying(path: Path, step: int, change: Callable[[], object]) -> None:
    """Change something in a process that ends before a system call that applies the journal."""
    left = [step]

    def dying(call: Any) -> Any:
        def act(*arguments: Any, **keywords: Any) -> Any:
            if (path / ".commit").exists():
                if not left[0]:
                    os._exit(42)
                left[0] -= 1
            return call(*arguments, **keywords)

        return act

    try:
        exchange = sys.modules[exchanged.__module__]
        os.link, os.unlink = dying(os.link), dying(os.unlink)
        call = dying(exchange._call())
        exchange._call = lambda: call  # type: ignore[attr-defined]
        change()
    finally:
        os._exit(1)


def _append_and_die(path: Path, count: int) -> None:
    """Add rows in a process that ends with the exchange of the file of a column."""
    seen = []

    def last(one: str, other: str, folder: int) -> bool:
        done = exchanged(one, other, folder)
        seen.append(other)
        if len(seen) == count:
            os._exit(42)
        return done

    try:
        files.exchanged = last
        ingot.open(path, "r+", options=PROCESS).append({"a": [7] * 50, "b": [7.0] * 50})
    finally:
        os._exit(1)

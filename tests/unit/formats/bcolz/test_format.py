"""bcolz directories: columns on their own, locks and journals, and reading that changes nothing."""

import hashlib
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.engine.payload import engine_of
from ingot.errors import (
    UnsupportedError,
)
from ingot.formats.bcolz.array import create_array, design, open_array
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.table import open_table
from ingot.formats.format import (
    ChunkMap,
    Format,
    TableFormat,
    TableMap,
    ZoneMapped,
)
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import LocalStore, MemoryStore
from ingot.stores.local.commit import CommitRun
from tests.bcolz_tables import filled, moved, requested
from tests.storage import content, die_decided, put


def test_the_contracts_are_kept() -> None:
    store = MemoryStore()
    node, _ = create_array(store, design(requested(3)))
    assert isinstance(BcolzFormat(), Format)
    assert isinstance(BcolzFormat(), TableFormat)
    assert isinstance(node.chunks, ChunkMap)
    assert isinstance(node.chunks, ZoneMapped)
    table, _ = BcolzFormat().create_table(store, {"a": design(requested(3))}, {})
    assert isinstance(table.table, TableMap)


def test_a_column_by_itself_has_the_journal_and_the_lock_of_its_table(
    tmp_path: Path, kernel: str
) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "n": {"x": design(requested(9))}}, rows=9)
    (folder / ".lock").unlink(missing_ok=True)
    column = ingot.open(folder / "n" / "x", "r+")
    column[2:7] = 50
    column.attrs["unit"] = "m"
    assert (folder / ".lock").exists()
    assert not list(folder.glob("*/**/.lock"))
    assert ingot.open(folder / "n" / "x")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
    assert dict(ingot.open(folder / "n" / "x").attrs) == {"unit": "m"}
    for change in (lambda: column.append([1]), lambda: column.resize(3)):
        with pytest.raises(UnsupportedError, match="is a column"):
            change()
    assert open_table(LocalStore(folder)).rows == 9
    assert pickle.loads(pickle.dumps(column))[2] == 50


def laid_out(layout: str, folder: Path) -> dict[str, Path]:
    """Make a table of nine rows as an older layout has it; return the folders of its columns."""
    source = MemoryStore()
    filled(source, {"a": design(requested(9)), "n": {"x": design(requested(9))}}, rows=9)
    files = content(source)
    if layout == "dirs":
        rootdirs = {"names": ["a", "n"], "dirs": {"a": "/home/user/table/col_a"}}
        put(folder, moved(files, a="col_a") | {"__rootdirs__": json.dumps(rootdirs).encode()})
        return {"a": folder / "col_a", "n.x": folder / "n" / "x"}
    files = moved(files, a="data/a", n="data/n")
    if layout == "unnamed":
        files = {key: data for key, data in files.items() if "__rootdirs__" not in key}
    put(folder, files)
    return {"a": folder / "data" / "a", "n.x": folder / "data" / "n" / "x"}


@pytest.mark.parametrize("layout", ["data", "unnamed", "dirs"])
def test_columns_of_older_layouts_have_the_lock_of_their_table(
    tmp_path: Path, kernel: str, layout: str
) -> None:
    folder = tmp_path / "table"
    columns = laid_out(layout, folder)
    (folder / ".lock").unlink(missing_ok=True)
    table = ingot.open(folder, "r+")
    table.attrs["season"] = 1
    for name, place in columns.items():
        column = ingot.open(place, "r+")
        column[2:7] = 50
        assert table[name][:].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
        with pytest.raises(UnsupportedError, match="is a column"):
            column.append([1])
    assert [path.parent for path in folder.rglob(".lock")] == [folder]
    nested = ingot.open(columns["n.x"].parent, "r+")
    with pytest.raises(UnsupportedError, match="is a column"):
        nested.resize(3)


@pytest.mark.parametrize("layout", ["data", "unnamed", "dirs"])
def test_columns_of_older_layouts_have_the_journal_of_their_table(
    tmp_path: Path, kernel: str, layout: str
) -> None:
    folder = tmp_path / "table"
    columns = laid_out(layout, folder)
    table = ingot.open(folder, "r+")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            table.update(slice(1), dict.fromkeys(columns, 70))
    assert (folder / ".commit").exists()
    for place in columns.values():
        assert ingot.open(place)[0] == 70
    assert (folder / ".commit").exists()


def test_arrays_in_a_folder_called_data_are_on_their_own(tmp_path: Path, kernel: str) -> None:
    """They look like the columns of a table, and are none unless a table names them."""
    for name in "ab":
        ingot.array(np.arange(9), tmp_path / "data" / name, format="bcolz")
    array = ingot.open(tmp_path / "data" / "a", "r+")
    array.append([9])
    assert len(array) == 10
    assert not (tmp_path / ".lock").exists()


def test_a_table_below_another_that_does_not_name_it_is_on_its_own(
    tmp_path: Path, kernel: str
) -> None:
    outer, inner = tmp_path / "outer", tmp_path / "outer" / "left"
    filled(outer, {"a": design(requested(9))}, rows=9)
    filled(inner, {"b": design(requested(3))}, rows=3)
    (inner / ".lock").unlink()
    ingot.open(inner / "b", "r+")[0] = 5
    assert (inner / ".lock").exists()


def test_a_journal_of_the_table_is_seen_through_a_column(tmp_path: Path, kernel: str) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "b": design(requested(9))}, rows=9)
    store = LocalStore(folder, writable=True)
    engine = engine_of(open_array(store, "a"), Options())
    commit = engine.assign(parse(slice(2, 7), (9,)), 50)
    died = RuntimeError("died")

    def die(self: CommitRun, journal: object, *, sync: bool) -> None:
        self._run()
        raise died

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die)
        with pytest.raises(RuntimeError):
            store.apply(commit)
    assert (folder / ".commit").exists()
    assert ingot.open(folder / "a")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]
    assert (folder / ".commit").exists()
    ingot.open(folder / "b", "r+")[0] = 7
    assert not (folder / ".commit").exists()
    assert ingot.open(folder / "a")[...].tolist() == [1, 2, 50, 50, 50, 50, 50, 8, 9]


def tree(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Return all files and folders, with their times and content."""
    found = {}
    for path in sorted([folder, *folder.rglob("*")]):
        facts = path.stat()
        data = path.read_bytes() if path.is_file() else b""
        digest = hashlib.sha256(data).hexdigest()
        found[str(path)] = facts.st_mtime_ns, facts.st_ctime_ns, digest
    return found


@pytest.mark.parametrize("journal", [False, True])
def test_mode_r_changes_nothing(tmp_path: Path, kernel: str, journal: bool) -> None:
    folder = tmp_path / "table"
    filled(folder, {"a": design(requested(9)), "b": design(requested(9, "S3"))}, rows=9)
    if journal:
        os.link(folder / "a/data/__0.blp", folder / "a/data/.g-1-__0.blp")
    before = tree(folder)
    for name in ("a", "b"):
        array = ingot.open(folder / name)
        assert array.shape == (9,)
        array[...], array[3:5], array[[1, 2]], array.sum() if name == "a" else None
        dict(array.attrs)
        for change in (
            lambda array=array: array.resize(4),
            lambda array=array: array.append(array[:1]),
            lambda array=array: array.__setitem__(0, array[1]),
            lambda array=array: array.attrs.update(x=1),
        ):
            with pytest.raises(ingot.errors.ReadOnlyError):
                change()
    open_table(LocalStore(folder))
    assert tree(folder) == before


def died_in_the_middle(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            ingot.open(folder, "r+").update(slice(2), {"a": 70, "b": b"new"})


LEFT: dict[str, Callable[[Path], None]] = {
    "nothing": lambda folder: None,
    "no lock": lambda folder: (folder / ".lock").unlink(),
    "a journal": died_in_the_middle,
    "a staged value": lambda folder: (folder / "a/data/.g-1-__0.blp").write_bytes(b"x"),
}


@pytest.mark.parametrize("left", LEFT)
def test_mode_r_changes_nothing_of_a_table(tmp_path: Path, kernel: str, left: str) -> None:
    folder = tmp_path / "table"
    schema = {
        "a": design(requested(9)),
        "b": design(requested(9, "S3")),
        "n": {"x": design(requested(9))},
    }
    filled(folder, schema, rows=9)
    LEFT[left](folder)
    before = tree(folder)
    table = ingot.open(folder)
    assert len(table) == 9
    assert table["a"][0] == (70 if left == "a journal" else 1)
    table.read(), table.read("a", where="a > 3"), list(table), table[2:4], table.to_numpy()
    table.where("n.x > 3").count(), str(table.info), table._repr_html_(), dict(table.attrs)
    table.shard(2, tmp_path / "shards")
    with table.snapshot():
        table.read()
    table.refresh()
    for change in (
        lambda: table.append(table[:1]),
        lambda: table.update("a > 1", {"a": 5}),
        lambda: table.delete([1]),
        lambda: table.resize(4),
        lambda: table.add_column("c", np.zeros(9)),
        lambda: table.drop_column("a"),
        lambda: table.rename_column("a", "c"),
        lambda: table.attrs.update(x=1),
        lambda: table["a"].__setitem__(0, 1),
        lambda: table["n"].drop_column("x"),
        lambda: table.transaction().__enter__(),
        lambda: table.appender(),
    ):
        with pytest.raises(ingot.errors.ReadOnlyError):
            change()
    table.close()
    assert tree(folder) == before

"""bcolz tables: their columns, and the layouts of twelve years."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError, NotFoundError, UnsafeError
from ingot.formats.bcolz.array import design, open_array
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.table import open_table
from ingot.formats.format import (
    ArrayNode,
    TableNode,
)
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, Extent, MemoryStore, Store
from ingot.stores.versions import copied
from ingot.testing.counting import CountingStore
from tests.bcolz_tables import counted, filled, moved, requested
from tests.storage import Place, content, put, store_at


def names_in(store: Store) -> dict[str, Any]:
    (data,) = store.read([Extent("__rootdirs__")])
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


def test_tables_have_columns_in_their_order(place: Place) -> None:
    table = filled(place, {"b": design(requested(3)), "a": design(requested(3, "<f8"))})
    assert table.names == ("b", "a")
    assert dict(table.attrs) == {"of": "columns"}
    assert names_in(store_at(place)) == {"names": ["b", "a"]}
    found = content(place)
    assert {"b/meta/sizes", "b/meta/storage", "b/__attrs__", "a/data/__0.blp"} <= found.keys()
    assert not any(key.startswith(("data/", "meta/")) for key in found)


def test_nested_columns(place: Place) -> None:
    inner = {"x": design(requested(3)), "deep": {"y": design(requested(3, "S3"))}}
    table = filled(place, {"a": design(requested(3)), "n": inner})
    assert names_in(store_at(place)) == {"names": ["a"], "x_names": ["a", "n"]}
    nested = table.columns["n"]
    assert isinstance(nested, TableNode)
    deep = nested.columns["deep"]
    assert isinstance(deep, TableNode)
    assert list(deep.columns) == ["y"]
    assert "n/deep/y/meta/sizes" in content(place)


def test_columns_are_added_dropped_and_renamed(place: Place) -> None:
    table = filled(place, {"a": design(requested(3)), "b": design(requested(3))})
    store = store_at(place)
    added, column, commit = table.added("c", design(requested(3)), 1)
    assert added.names == ("a", "c", "b")
    assert isinstance(column, ArrayNode)
    edits = counted(column.chunks, 3)  # type: ignore[arg-type]
    store.apply(Commit((*commit.prepare, *edits), commit.publish))
    renamed, copies, commit = open_table(store).renamed("a", "first")
    edits = tuple(copied(store, source, key) for key, source in copies.items())
    store.apply(Commit((*commit.prepare, *edits), commit.publish, commit.cleanup))
    assert renamed.names == open_table(store).names == ("first", "c", "b")
    assert renamed.columns["first"].chunks.path == "first"  # type: ignore[union-attr]
    dropped, commit = open_table(store).dropped("b")
    store.apply(commit)
    assert dropped.names == open_table(store).names == ("first", "c")
    assert not any(key.startswith(("a/", "b/")) for key in content(place))
    for name in ("first", "c"):
        engine = engine_of(open_array(store, name), Options())
        assert engine.read(parse(..., (3,))).tolist() == [1, 2, 3]


def test_a_column_under_the_name_of_what_was_left_there(place: Place) -> None:
    table = filled(place, {"a": design(requested(3))})
    put(place, {"old/data/__9.blp": b"stray", "old/meta/sizes": b"{}"})
    store = store_at(place)
    _, column, commit = table.added("old", design(requested(3)))
    edits = counted(column.chunks, 3)  # type: ignore[union-attr, arg-type]
    store.apply(Commit((*commit.prepare, *edits), commit.publish))
    assert "old/data/__9.blp" not in content(place)
    assert open_table(store).names == ("a", "old")


def test_names_that_cannot_be_given() -> None:
    table = filled(MemoryStore(), {"a": design(requested(3))})
    schema = design(requested(3))
    for name in ("a", "__attrs__", ".lock", ".g-1-x", "a.b"):
        with pytest.raises(ValueError, match=r"already|cannot be"):
            table.added(name, schema)
    for name in ("../x", "x/../y", ""):
        with pytest.raises(UnsafeError):
            table.added(name, schema)
    with pytest.raises(ValueError, match="has 4 rows"):
        table.added("b", design(requested(4)))
    with pytest.raises(NotFoundError):
        table.dropped("b")
    with pytest.raises(NotFoundError):
        table.renamed("b", "c")


def test_a_commit_of_many_columns_ends_with_the_length_of_the_first() -> None:
    table = filled(MemoryStore(), {name: design(requested(3)) for name in ("a", "b", "c")})
    commits = {name: table.columns[name].chunks.resized((5,))[1] for name in ("b", "a", "c")}  # type: ignore[union-attr]
    joined = table.joined(commits)
    assert [edit.key for edit in joined.publish] == [f"{n}/meta/sizes" for n in ("c", "b", "a")]
    shorter = table.joined(commits, shrinking=True)
    assert [edit.key for edit in shorter.publish] == [f"{n}/meta/sizes" for n in ("a", "b", "c")]


def test_columns_below_data(place: Place) -> None:
    """As the description of bcolz 1.x draws tables, with and without a list of names."""
    source = MemoryStore()
    filled(source, {"z": design(requested(3)), "y": design(requested(3))})
    files = moved(content(source), z="data/z", y="data/y")
    put(place, files)
    assert open_table(store_at(place)).names == ("z", "y")


def test_columns_below_data_without_names(place: Place) -> None:
    source = MemoryStore()
    filled(
        source,
        {"z": design(requested(3)), "y": design(requested(3)), "n": {"s": design(requested(3))}},
    )
    files = moved(content(source), z="data/z", y="data/y", n="data/n")
    put(place, {key: data for key, data in files.items() if "__rootdirs__" not in key})
    node = BcolzFormat().open(store_at(place))
    assert isinstance(node, TableNode)
    assert list(node.columns) == ["n", "y", "z"]
    inner = node.columns["n"]
    assert isinstance(inner, TableNode)
    assert list(inner.columns) == ["s"]
    engine = engine_of(inner.columns["s"].chunks, Options())  # type: ignore[union-attr]
    assert engine.read(parse(..., (3,))).tolist() == [1, 2, 3]


def test_columns_where_old_versions_say_that_they_are(place: Place) -> None:
    source = MemoryStore()
    filled(source, {"a": design(requested(3))})
    files = moved(content(source), a="col_a")
    rootdirs = {"names": ["a"], "dirs": {"a": "/home/user/table/col_a"}}
    put(place, files | {"__rootdirs__": json.dumps(rootdirs).encode()})
    table = open_table(store_at(place))
    assert table.columns["a"].chunks.path == "col_a"  # type: ignore[union-attr]
    dropped, commit = table.dropped("a")
    store_at(place).apply(commit)
    assert dropped.names == ()
    assert not any(key.startswith("col_a/") for key in content(place))


def test_strange_files_are_ignored(place: Place) -> None:
    filled(place, {"a": design(requested(3))})
    put(place, {"._a": b"x", "a/._meta": b"x", "a/data/.___0.blp": b"x", "a.factor/x": b"y"})
    assert open_table(store_at(place)).names == ("a",)


def test_all_shards_and_all_old_columns_are_read_together() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(40), "b": np.arange(40.0)}, MemoryStore(), chunks=4).shard(5, store)
    store.reset()
    assert ingot.open(store)["a"][39] == 39  # type: ignore[index]
    # The document of all, those of the shards, those of their columns; a chunk.
    assert (store.batches, store.listings) == (4, 0)
    whole = MemoryStore()
    ingot.table({name: [1, 2] for name in "abcdef"}, whole, format="bcolz")
    inside = {f"data/{key}" if "/" in key else key: data for key, data in content(whole).items()}
    old = CountingStore(inside)
    assert open_table(old).names == tuple("abcdef")
    assert (old.batches, old.listings) == (3, 0)


def test_the_attributes_of_columns_are_read_when_they_are_asked_for() -> None:
    store = CountingStore()
    filled(store, {"a": design(requested(3)), "b": design(requested(3))})
    put(store, {"a/__attrs__": b'{"unit": "m"}'})
    store.reset()
    table = open_table(store)
    # The documents of the table, and those of both columns.
    assert store.batches == 2
    attrs = table.columns["a"].schema.attrs  # type: ignore[union-attr]
    assert store.batches == 2
    assert (dict(attrs), store.batches) == ({"unit": "m"}, 3)
    assert table.columns["a"] is table.columns["a"]
    assert "c" not in table.columns
    with pytest.raises(KeyError):
        table.columns["c"]


def test_attributes_of_a_column_are_those_that_are_stored_now(place: Place) -> None:
    filled(place, {"a": design(requested(3))})
    table: Any = ingot.open(place, "r+")
    assert dict(table["a"].attrs) == {}
    put(place, {"a/__attrs__": b'{"by": "another program"}'})
    table["a"].attrs["unit"] = "m"
    assert dict(table["a"].attrs) == {"by": "another program", "unit": "m"}
    table.rename_column("a", "b")
    assert dict(table["b"].attrs) == {"by": "another program", "unit": "m"}
    put(place, {"b/__attrs__": b""})
    assert table["b"][...].tolist() == [1, 2, 3]
    with pytest.raises(CorruptionError, match="b/__attrs__"):
        dict(ingot.open(place)["b"].attrs)  # type: ignore[index]


def test_a_column_without_rows_keeps_its_folder_under_another_name(tmp_path: Path) -> None:
    """bcolz opens no array without a folder for its chunks."""
    columns = {"a": np.arange(3), "b": np.ones(3, "?")}
    table = ingot.table(columns, tmp_path / "t", format="bcolz", chunks=1)
    table.resize(0)
    table.rename_column("a", "c")
    found = sorted(path.name for path in (tmp_path / "t").rglob("data/*"))
    assert found == [".keep", ".keep"]
    bcolz = pytest.importorskip("bcolz")
    opened = bcolz.ctable(rootdir=str(tmp_path / "t"), mode="r")
    assert (opened.names, len(opened)) == (["c", "b"], 0)
    table.append({"c": [5], "b": [True]})
    assert bcolz.ctable(rootdir=str(tmp_path / "t"), mode="r")["c"][:].tolist() == [5]

"""Datasets cut into shards, read as one again."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot import native
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats.bcolz.array import design, open_array
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.bcolz.split import fitting_chunk, shard_rows
from ingot.formats.format import ArrayNode, ChunkMap, Column, Request, TableMap, TableNode
from ingot.formats.row_shards import RowShards
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, MemoryStore, Store
from ingot.stores.local.commit import CommitRun
from tests.row_shards import array, shard
from tests.storage import content, die_decided, put


@given(rows=st.integers(0, 200), chunk=st.integers(1, 60), count=st.integers(1, 12))
def test_shards_have_all_rows_and_whole_chunks(rows: int, chunk: int, count: int) -> None:
    parts = shard_rows(rows, chunk, count)
    assert len(parts) == count
    assert sum(parts) == rows
    unit = fitting_chunk(chunk, parts)
    assert 1 <= unit <= chunk
    assert all(part % unit == 0 for part in parts[:-1])
    if rows >= chunk * count:
        assert unit == chunk


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 60), chunk=st.integers(1, 20), count=st.integers(1, 9))
def test_arrays_are_read_as_one(rows: int, chunk: int, count: int) -> None:
    source, target = array(rows, chunk), MemoryStore()
    shard(source, count, target)
    found = ingot.open(target)
    np.testing.assert_array_equal(found[...], np.arange(rows))
    np.testing.assert_array_equal(found[rows // 3 : rows : 2], np.arange(rows)[rows // 3 :: 2])
    assert dict(found.attrs) == {"a": 1}


def test_chunks_move_as_they_are() -> None:
    source, target = array(95, 10), MemoryStore()
    shard(source, 4, target)
    assert json.loads(content(target)["shards.json"]) == {
        "version": 1,
        "format": "bcolz",
        "rows": [30, 30, 20, 15],
    }
    before, after = content(source), content(target)
    for number, key in enumerate(
        f"shard-{shard_:05d}/data/__{n}.blp" for shard_, n in ((0, 0), (0, 1), (0, 2), (1, 0))
    ):
        old = before[f"data/__{number}.blp"]
        end = 16 + int.from_bytes(old[28:32], "little")
        assert after[key][:end] == old[:end]
    # And each shard is an array by itself.
    engine = engine_of(open_array(target, "shard-00001"), Options())
    assert engine.read(parse(..., (30,))).tolist() == list(range(30, 60))


def test_a_damaged_chunk_does_not_move() -> None:
    source = array(20, 10)
    chunk = bytearray(content(source)["data/__1.blp"])
    chunk[40] ^= 1
    put(source, {"data/__1.blp": bytes(chunk)})
    target = MemoryStore()
    with pytest.raises(CorruptionError):
        shard(source, 2, target)
    assert "shards.json" not in content(target)


def table(rows: int) -> MemoryStore:
    store = MemoryStore()

    def schema(dtype: str, chunk: int) -> Any:
        return design(Request((rows,), np.dtype(dtype), np.zeros((), dtype)[()], (chunk,)))

    columns = {"a": schema("<i4", 8), "n": {"x": schema("|S5", 3), "y": schema("<f8", 4)}}
    node, commit = BcolzFormat().create_table(store, columns, {"k": 2})
    edits = [edit for chunks in _arrays(node) for edit in _counted(chunks)]
    store.apply(Commit((*commit.prepare, *edits), commit.publish))
    return store


def _arrays(node: Column) -> list[ChunkMap]:
    if isinstance(node, TableNode):
        return [each for column in node.columns.values() for each in _arrays(column)]
    assert isinstance(node, ArrayNode)
    return [node.chunks]


def _counted(chunks: ChunkMap) -> tuple[Any, ...]:
    shape = chunks.schema.shape
    values = np.arange(shape[0]).astype(chunks.schema.dtype)
    return engine_of(chunks, Options()).assign(parse(..., shape), values).edits


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [0, 5, 40])
def test_tables_are_read_as_one(rows: int, count: int) -> None:
    target = MemoryStore()
    shard(table(rows), count, target)
    node = BcolzFormat().open(target)
    assert isinstance(node, TableNode)
    assert isinstance(node.table, TableMap)
    assert list(node.columns) == ["a", "n"]
    assert dict(node.attrs) == {"k": 2}
    for chunks in _arrays(node):
        found = engine_of(chunks, Options()).read(parse(..., chunks.schema.shape))
        np.testing.assert_array_equal(found, np.arange(rows).astype(found.dtype))
        reopened = chunks.reopened(target)
        assert reopened.schema.shape == (rows,)
        zones = engine_of(chunks, Options()).zones()
        assert zones is None or zones.known.all()


@pytest.mark.parametrize("count", [1, 3])
def test_attributes_of_a_table_in_shards(tmp_path: Path, count: int) -> None:
    columns = {"a": np.arange(20), "n": {"x": np.arange(20.0)}}
    made = ingot.table(columns, tmp_path / "t", chunks=4, attrs={"title": "all", "n": [1, None]})
    made["a"].attrs["unit"] = "m"
    made["n"].attrs["inner"] = True
    shard(tmp_path / "t", count, tmp_path / "shards")
    found = ingot.open(tmp_path / "shards")
    assert dict(found.attrs) == {"title": "all", "n": [1, None]}
    assert dict(found["a"].attrs) == {"unit": "m"}
    assert dict(found["n"].attrs) == {"inner": True}
    assert dict(found["n"]["x"].attrs) == {}
    # Each shard is a table by itself, and has them too.
    for number in range(count):
        part = ingot.open(tmp_path / "shards" / f"shard-{number:05}")
        assert dict(part.attrs) == {"title": "all", "n": [1, None]}
        assert dict(part["a"].attrs) == {"unit": "m"}
        assert dict(part["n"].attrs) == {"inner": True}


def test_bcolz_opens_a_shard(tmp_path: Path) -> None:
    bcolz = pytest.importorskip("bcolz")
    source: Store = array(25, 5)
    shard(source, 2, tmp_path / "cut")
    found = bcolz.open(str(tmp_path / "cut" / RowShards.folder(1)), mode="r")
    assert found[:].tolist() == list(range(15, 25))


def test_containers_are_cut_as_they_are_now(tmp_path: Path) -> None:
    table = ingot.table({"a": np.arange(20), "p": {"x": np.ones(20)}}, tmp_path / "t", chunks=4)
    table.append({"a": [20], "p": {"x": [2.0]}})
    table["p"].attrs["unit"] = "m"
    table["p.x"][0] = 7.0
    table.shard(3, tmp_path / "tables")
    found = ingot.open(tmp_path / "tables")
    assert isinstance(found, ingot.Table)
    for name, values in table.read().items():
        np.testing.assert_array_equal(found.read()[name], values, strict=True)
    assert dict(found["p"].attrs) == {"unit": "m"}
    table["a"].shard(2, tmp_path / "column")
    assert ingot.open(tmp_path / "column")[...].tolist() == list(range(21))
    ingot.open(tmp_path / "t").shard(2, tmp_path / "again")
    assert len(ingot.open(tmp_path / "again")) == 21


def test_only_bcolz_is_cut(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="bcolz"):
        ingot.array([1, 2, 3]).shard(2, tmp_path / "zarr")
    ingot.table({"a": [1, 2, 3]}).shard(2, tmp_path / "cut")
    with pytest.raises(UnsupportedError, match="already"):
        ingot.open(tmp_path / "cut").shard(2, tmp_path / "again")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut"]


@pytest.mark.parametrize("kind", ["array", "table"])
def test_a_shard_has_the_lock_and_the_journal_of_all(tmp_path: Path, kind: str) -> None:
    """A reader of all shards must not see half of a change of one of them."""
    values = np.arange(40)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    if kind == "table":
        ingot.table({"a": values, "b": values}, whole, chunks=4).shard(2, cut)
    else:
        ingot.array(values, whole, format="bcolz", chunks=4)
        shard(whole, 2, cut)
    part = ingot.open(cut / "shard-00001", "r+")
    column = part["b"] if kind == "table" else part
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CommitRun, "_apply_journal", die_decided)
        with pytest.raises(ZeroDivisionError):
            column[0:12] = 7
    assert (cut / ".commit").exists()
    everything = ingot.open(cut)
    found = everything["b"] if kind == "table" else everything
    assert found[:].tolist() == [*range(20), *[7] * 12, *range(32, 40)]
    assert found[[35, 20, 3]].tolist() == [35, 7, 3]
    if native.choice().name == "native":
        assert found.explain().reason == "in one call: the kernel reads the files"
    assert [path.parent for path in cut.rglob(".lock")] == [cut]
    if kind == "table":
        alone = ingot.open(cut / "shard-00001" / "b", "r+")
        assert alone[:12].tolist() == [7] * 12
        with pytest.raises(UnsupportedError, match="is a column"):
            alone.resize(3)
        alone[0] = 8
        assert [path.parent for path in cut.rglob(".lock")] == [cut]
        assert everything["b"][20] == 8


def test_a_shard_elsewhere_is_a_dataset_of_its_own(tmp_path: Path) -> None:
    ingot.table({"a": np.arange(40)}, tmp_path / "whole", chunks=4).shard(2, tmp_path / "cut")
    moved = (tmp_path / "cut" / "shard-00001").rename(tmp_path / "moved")
    table = ingot.open(moved, "r+")
    table.append({"a": [1, 2]})
    assert len(ingot.open(moved)) == 22
    assert (moved / ".lock").exists()

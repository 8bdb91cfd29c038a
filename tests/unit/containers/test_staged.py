"""Arrays that several processes write together: targets, edits, one commit."""

import concurrent.futures
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers import staged
from ingot.containers.create import ArraySpec, StagedChunks
from ingot.containers.resolve import resolve_new
from ingot.containers.staged import ExistingTarget, NewTarget
from ingot.engine.run import Engine
from ingot.errors import LockedError, NotFoundError
from ingot.formats.format import Kind
from ingot.options import Options
from ingot.stores.store import Delete, Move


def new_target(path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> NewTarget:
    place, format, inner = resolve_new(path, None, Kind.ARRAY, "zarr3")
    schema = ArraySpec(shape, "i4", chunks).schema(format)
    return NewTarget(format, place.store, inner, schema, {}, Options())


def existing(path: Path, shape: tuple[int, ...]) -> ExistingTarget:
    array = ingot.open(path, "r+")
    assert isinstance(array, ingot.Array)
    return ExistingTarget(array, array.shape, shape)


def test_a_new_array_is_published_by_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    target = new_target(path, (10,), (4,))
    assert staged.is_possible(target)
    sent = pickle.loads(pickle.dumps(target))
    assert sent.token == target.token
    with staged.announced(target):
        edits = [
            edit
            for start in (0, 4, 8)
            for edit in staged.stage(sent, (slice(start, start + 4),), np.arange(start, 10)[:4])
        ]
        assert all(isinstance(edit, Move) for edit in edits)
        with pytest.raises(NotFoundError):
            ingot.open(path)
        chunks = StagedChunks((10,), np.dtype("i4"), tuple(edits))
        made = ingot.array(chunks, path, chunks=(4,))
    assert made[...].tolist() == list(range(10))


def test_the_end_of_a_write_waits_for_threads_that_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.zarr"
    target = new_target(path, (8,), (4,))
    entered, left = threading.Event(), threading.Event()
    assign = Engine.assign

    def slow(engine: Engine, *arguments: Any) -> Any:
        entered.set()
        time.sleep(0.3)
        left.set()
        return assign(engine, *arguments)

    monkeypatch.setattr(Engine, "assign", slow)
    with concurrent.futures.ThreadPoolExecutor() as threads:
        with staged.announced(target):
            staging = threads.submit(staged.stage, target, (slice(0, 4),), np.arange(4))
            assert entered.wait(10)
        assert left.is_set()
        assert staging.done() or staging.result()
        target.store.recover()
        # One that begins later stages nothing.
        entered.clear()
        with pytest.raises(LockedError, match="has ended"):
            staged.stage(target, (slice(4, 8),), np.arange(4))
        assert not entered.is_set()
    assert [each for each in path.rglob("*") if each.is_file() and each.name != ".lock"] == []


def test_what_is_fill_has_no_file(tmp_path: Path) -> None:
    ingot.array(np.arange(8), tmp_path / "a.zarr", chunks=4)
    target = existing(tmp_path / "a.zarr", (8,))
    with staged.announced(target):
        edits = staged.stage(target, (slice(0, 4),), np.zeros(4))
        assert edits == (Delete("c/0"),)
        staged.publish(target, edits)
    assert ingot.open(tmp_path / "a.zarr")[...].tolist() == [0, 0, 0, 0, 4, 5, 6, 7]


def test_an_array_grows_and_keeps_the_chunk_that_is_cut(tmp_path: Path) -> None:
    ingot.array(np.arange(6), tmp_path / "a.zarr", chunks=4)
    target = existing(tmp_path / "a.zarr", (11,))
    assert not staged.replaces(target, (slice(6, 8),))
    assert staged.replaces(target, (slice(8, 11),))
    with staged.announced(target):
        edits = staged.stage(target, (slice(8, 11),), np.arange(8, 11))
        edits += staged.stage(target, (slice(6, 8),), np.arange(6, 8))
        assert ingot.open(tmp_path / "a.zarr").shape == (6,)
        staged.publish(target, edits)
    assert ingot.open(tmp_path / "a.zarr")[...].tolist() == list(range(11))


def test_another_version_or_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"
    ingot.array(np.arange(8), path, chunks=4)
    target = existing(path, (8,))
    version = staged.settled_number(target.store)
    edits = staged.stage(target, (slice(0, 4),), np.full(4, 9))
    ingot.open(path, "r+")[7] = 70
    with pytest.raises(LockedError, match="nothing was changed"):
        staged.publish(target, edits, version)
    ingot.open(path, "r+").append([8])
    edits = staged.stage(target, (slice(0, 4),), np.full(4, 9))
    with pytest.raises(LockedError, match="nothing was changed"):
        staged.publish(target, edits)
    assert ingot.open(path)[...].tolist() == [0, 1, 2, 3, 4, 5, 6, 70, 8]


def test_blocks_end_where_chunks_end(tmp_path: Path) -> None:
    target = new_target(tmp_path / "a.zarr", (20, 9), (4, 3))
    assert staged.aligned(target, (0, 0), ((4, 8, 8), (9,))) == ((4, 8, 8), (9,))
    assert staged.aligned(target, (2, 0), ((5, 5, 5), (1, 1, 7))) == ((6, 4, 5), (3, 6))
    for axis in staged.aligned(target, (0, 0), ((1,) * 20, (9,))):
        assert sum(axis) in (20, 9)


def test_formats_whose_chunks_are_no_files_are_not_staged(tmp_path: Path) -> None:
    assert not staged.is_possible(new_target(tmp_path / "a.blp", (10,), (4,)))
    assert not staged.is_possible(new_target(tmp_path / "a.bcolz", (10,), (4,)))

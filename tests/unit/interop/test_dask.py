"""Collections of Dask: blocks and partitions of whole chunks, and datasets by one commit."""

import os
import pickle
import secrets
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal

import ingot
from ingot.containers import staged
from ingot.errors import (
    ColumnError,
    ExistsError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)
from ingot.stores import Commit, MemoryStore, Move, ObjectStore, Put
from ingot.stores.objects.turn import ObjectTurn
from ingot.testing.counting import CountingStore
from tests.seaweed import KEY, SECRET, S3Server

dd = pytest.importorskip("dask.dataframe")
pytest.importorskip("pyarrow")

import dask  # noqa: E402
import dask.array as da  # noqa: E402

from ingot.interop.dask import array, dataframe, store, to_ingot  # noqa: E402

ROWS = 1000


def columns() -> dict[str, Any]:
    chance = np.random.default_rng(6)
    return {
        "a": np.arange(ROWS),
        "g": chance.integers(0, 5, ROWS),
        "v": chance.normal(size=ROWS),
        "t": chance.integers(0, 30, ROWS).astype("U2"),
        "d": np.arange(ROWS).astype("M8[s]"),
    }


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ingot.table(columns(), tmp_path / "t.bcolz", chunks=100)
    return tmp_path / "t.bcolz"


def test_partitions_are_ranges_of_chunks(path: Path) -> None:
    frame = dataframe(path, partition_bytes=100 * 48)
    assert frame.npartitions == 10
    assert frame.divisions == (*range(0, 1000, 100), 999)
    whole = ingot.open(path).to_pandas()
    assert_frame_equal(frame.compute(), whole, check_index_type=False, check_dtype=False)
    assert frame.loc[250:260].compute()["a"].tolist() == list(range(250, 261))
    assert len(pickle.dumps(frame)) < 20_000


def test_computations_are_those_of_pandas(path: Path) -> None:
    frame, whole = dataframe(path, partition_bytes=9999), ingot.open(path).to_pandas()
    found = frame.groupby("g")["v"].sum().compute(scheduler="sync").sort_index()
    np.testing.assert_allclose(found, whole.groupby("g")["v"].sum())
    assert frame[frame.a > 990]["t"].compute().tolist() == whole[whole.a > 990]["t"].tolist()


def test_columns_and_filters_are_pushed_down() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(10_000), "b": np.arange(10_000) % 7}, store, chunks=100)
    near = dataframe(store, where="(a >= 5000) & (a < 5250)", partition_bytes=16 * 100)
    assert near.npartitions == 3
    assert near["b"].sum().compute(scheduler="sync") == (np.arange(5000, 5250) % 7).sum()
    store.reset()
    assert len(dataframe(store, columns=["b"]).compute(scheduler="sync")) == 10_000
    assert store.extents < 200
    nothing = dataframe(store, where="a < 0")
    assert len(nothing.compute()) == 0
    assert list(nothing.columns) == ["a", "b"]


def test_what_is_wrong_raises(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ColumnError):
        dataframe(path, columns=["absent"])
    with pytest.raises(ColumnError):
        dataframe(path, where="absent > 1")
    ingot.array([1], tmp_path / "a.zarr")
    with pytest.raises(UnsupportedError, match="no table"):
        dataframe(tmp_path / "a.zarr")
    frame = dataframe(path)
    ingot.open(path, "r+").resize(500)
    with pytest.raises(LockedError, match="fewer than 1000 rows"):
        frame.compute(scheduler="sync")


def test_frames_become_tables(tmp_path: Path) -> None:
    given = pandas.DataFrame(columns())
    given.loc[5, "v"] = np.nan
    table = to_ingot(dd.from_pandas(given, npartitions=7), tmp_path / "t.bcolz", chunks=64)
    assert table["a"].chunks == (64,)
    for name in given:
        np.testing.assert_array_equal(table[name][:], given[name].to_numpy(table[name].dtype))
    assert [path.name for path in tmp_path.iterdir()] == ["t.bcolz"]
    with pytest.raises(ExistsError):
        to_ingot(dd.from_pandas(given, npartitions=2), tmp_path / "t.bcolz")
    again = to_ingot(dataframe(tmp_path / "t.bcolz")[["a"]], tmp_path / "u.bcolz")
    assert again["a"][:].tolist() == list(range(ROWS))


def test_a_part_that_fails_makes_no_table(tmp_path: Path) -> None:
    def broken(part: pandas.DataFrame) -> pandas.DataFrame:
        if len(part) and part["a"].iloc[0] > 500:
            raise RuntimeError("the worker is gone")
        return part

    frame = dd.from_pandas(pandas.DataFrame(columns()), npartitions=4).map_partitions(broken)
    with pytest.raises(RuntimeError, match="worker is gone"):
        to_ingot(frame, tmp_path / "t.bcolz")
    assert list(tmp_path.iterdir()) == []


# Arrays


def values(shape: tuple[int, ...] = (60, 70)) -> Any:
    return np.random.default_rng(3).integers(0, 1000, shape)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    ingot.array(values(), tmp_path / "a.zarr", chunks=(8, 10))
    return tmp_path / "a.zarr"


def staged_files(folder: Path) -> list[str]:
    return [name for _, _, names in os.walk(folder) for name in names if name.startswith(".g-")]


def test_blocks_are_boxes_of_whole_chunks(place: Path, tmp_path: Path) -> None:
    with dask.config.set({"array.chunk-size": "2 kiB"}):
        found = array(place)
    assert found.numblocks != (1, 1)
    assert all(length % 8 == 0 for length in found.chunks[0][:-1])
    assert all(length % 10 == 0 for length in found.chunks[1][:-1])
    np.testing.assert_array_equal(found.compute(scheduler="sync"), values())
    np.testing.assert_array_equal(found[::7, [5, 3, 60]].compute(), values()[::7, [5, 3, 60]])
    ingot.array(values(), tmp_path / "s.zarr", chunks=(4, 5), shards=(16, 20))
    with dask.config.set({"array.chunk-size": "4 kiB"}):
        sharded = array(tmp_path / "s.zarr")
    assert all(length % 16 == 0 for length in sharded.chunks[0][:-1])
    assert array(place, chunks=(60, 35)).chunks == ((60,), (35, 35))
    single = ingot.array(np.float32(7), tmp_path / "0.zarr")
    assert array(tmp_path / "0.zarr").compute() == single[()]


def test_names_follow_path_and_version(place: Path, tmp_path: Path) -> None:
    first, again = array(place), array(place)
    assert first.name == again.name
    assert len(pickle.dumps(first)) < 5000
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).compute(), values())
    given = [da.from_array(ingot.open(place)) for _ in range(2)]
    assert given[0].name == given[1].name
    assert given[0].chunks == first.chunks
    ingot.array(values(), tmp_path / "b.zarr", chunks=(8, 10))
    assert array(tmp_path / "b.zarr").name != first.name
    ingot.open(place, "r+")[0, 0] = -1
    assert array(place).name != first.name
    assert da.from_array(ingot.open(place)).name != given[0].name
    assert da.from_array(ingot.open(place))[0, 0].compute() == -1
    with pytest.raises(LockedError, match="make it again"):
        first.compute(scheduler="sync")
    kept = ingot.array([1, 2])
    assert da.from_array(kept).sum().compute() == 3


def test_what_has_no_version_has_no_name_twice(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    path = str(tmp_path / "z.zarr")
    foreign = zarr.create_array(path, shape=10, chunks=5, dtype="i4", fill_value=1)
    assert array(path).name != array(path).name
    opened = array(path)
    foreign[:] = 7  # No version says so.
    assert opened.sum().compute(scheduler="sync") == 70


@pytest.mark.parametrize("chunks", [None, (8, 10), (7, 70), 60, (60, 3)])
@pytest.mark.parametrize("blocks", [(20, 35), (13, 9), ((1, 30, 29), (70,)), 70])
def test_arrays_are_stored_whatever_their_blocks(tmp_path: Path, chunks: Any, blocks: Any) -> None:
    given = da.from_array(values(), chunks=blocks)
    stored = to_ingot(given, tmp_path / "a.zarr", chunks=chunks)
    np.testing.assert_array_equal(stored[...], values())
    assert staged_files(tmp_path) == []
    if chunks == (8, 10):
        assert stored.chunks == (8, 10)


@pytest.mark.parametrize("name", ["a.blp", "a.blsk", "a.bcolz", "a.zarr2", "group.zarr/a"])
def test_arrays_are_stored_in_every_format(tmp_path: Path, name: str) -> None:
    if "group" in name:
        ingot.group(tmp_path / "group.zarr")
    given = da.from_array(np.arange(500), chunks=70)
    settings = {"format": "zarr2"} if name == "a.zarr2" else {}
    stored = to_ingot(given, tmp_path / name, **settings)
    np.testing.assert_array_equal(ingot.open(tmp_path / name)[...], np.arange(500))
    assert stored.codec == ingot.open(tmp_path / name).codec
    store(given[:100] * 2, stored, slice(33, 133))
    expected = np.arange(500)
    expected[33:133] = 2 * np.arange(100)
    np.testing.assert_array_equal(ingot.open(tmp_path / name)[...], expected)
    assert not list(tmp_path.glob(".parts*"))
    assert staged_files(tmp_path) == []


def test_settings_of_the_array_are_those_of_create(tmp_path: Path) -> None:
    given = da.from_array(values(), chunks=20)
    settings: dict[str, Any] = {"chunks": (5, 5), "shards": (20, 20), "codec": "zstd:1"}
    stored = to_ingot(given, tmp_path / "a.zarr", attrs={"n": 1}, fill=3, **settings)
    assert (stored.chunks, stored.shards, stored.fill) == ((5, 5), (20, 20), 3)
    assert dict(stored.attrs) == {"n": 1}
    np.testing.assert_array_equal(stored[...], values())
    empty = to_ingot(da.zeros((0, 3)), tmp_path / "e.zarr")
    assert empty.shape == (0, 3)
    assert to_ingot(da.from_array(np.float64(2.5)), tmp_path / "s.zarr")[()] == 2.5


def test_an_array_is_replaced_only_if_that_is_wanted(place: Path) -> None:
    def fails(block: Any) -> Any:
        raise AssertionError("nothing is computed")

    given = da.from_array(values() + 1, chunks=16)
    with pytest.raises(ExistsError):
        to_ingot(given.map_blocks(fails, dtype="i8"), place)
    to_ingot(given, place, overwrite=True)
    np.testing.assert_array_equal(ingot.open(place)[...], values() + 1)


def test_a_block_that_fails_changes_nothing(place: Path, tmp_path: Path) -> None:
    def broken(block: Any) -> Any:
        if block[0, 0] == values()[48, 0]:
            raise RuntimeError("the worker is gone")
        return block

    given = da.from_array(values(), chunks=(16, 70)).map_blocks(broken, dtype="i8")
    for overwrite in (False, True):
        with pytest.raises(RuntimeError, match="worker is gone"):
            to_ingot(given, tmp_path / "new.zarr", overwrite=overwrite)
        with pytest.raises(NotFoundError):
            ingot.open(tmp_path / "new.zarr")
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]
    with pytest.raises(RuntimeError, match="worker is gone"):
        to_ingot(given, place, overwrite=True)
    with pytest.raises(RuntimeError, match="worker is gone"):
        store(given, place)
    np.testing.assert_array_equal(ingot.open(place)[...], values())
    ingot.open(place, "r+")[0, 0] = 5
    assert staged_files(place) == []


def test_regions_are_stored_whatever_they_cut(place: Path) -> None:
    expected = values()
    regions = [((0, 60), (0, 70)), ((8, 16), (10, 70)), ((3, 50), (11, 12)), ((59, 60), (0, 1))]
    for number, (rows, columns) in enumerate([*regions, ((5, 5), (0, 70))]):
        region = slice(*rows), slice(*columns)
        part = values()[region] + number
        store(da.from_array(part, chunks=(9, 11)), place, region)
        expected[region] = part
        np.testing.assert_array_equal(ingot.open(place)[...], expected)
    wrong: list[Any] = [slice(0, 6), (slice(0, 10, 2), slice(0, 70)), 3, (slice(None),) * 3]
    for region in wrong:
        with pytest.raises(ValueError, match="region"):
            store(da.zeros((5, 70)), place, region)
    with pytest.raises(ReadOnlyError):
        store(da.zeros((60, 70)), ingot.open(place))
    with pytest.raises(UnsupportedError, match="no array"):
        store(da.zeros(3), ingot.group(place.parent / "g.zarr").path)


def test_cut_chunks_are_never_merged_with_an_older_state(place: Path) -> None:
    def meanwhile(block: Any) -> Any:
        if block.size:
            ingot.open(place, "r+")[59, 69] = -5
        return block

    given = da.from_array(np.full((5, 5), 7), chunks=5).map_blocks(meanwhile, dtype="i8")
    with pytest.raises(LockedError, match="nothing was changed"):
        store(given, place, (slice(0, 5), slice(0, 5)))
    expected = values()
    expected[59, 69] = -5
    np.testing.assert_array_equal(ingot.open(place)[...], expected)
    # Whole chunks depend on no state: the change of the other writer stays.
    whole = da.from_array(np.full((8, 10), 7), chunks=10).map_blocks(meanwhile, dtype="i8")
    store(whole, place, (slice(0, 8), slice(0, 10)))
    expected[:8, :10] = 7
    np.testing.assert_array_equal(ingot.open(place)[...], expected)
    assert staged_files(place) == []


def test_an_array_that_becomes_another_one_is_not_written_to(place: Path) -> None:
    def meanwhile(block: Any) -> Any:
        if block.size and len(ingot.open(place)) == 60:
            ingot.open(place, "r+").resize((61, 70))
        return block

    given = da.from_array(values() + 1, chunks=(16, 70)).map_blocks(meanwhile, dtype="i8")
    with pytest.raises(LockedError, match="nothing was changed"):
        store(given, place)
    np.testing.assert_array_equal(ingot.open(place)[:60], values())


def test_tasks_that_run_twice_double_nothing(place: Path) -> None:
    opened = ingot.open(place, "r+")
    assert isinstance(opened, ingot.Array)
    target = staged.ExistingTarget(opened, opened.shape, opened.shape)
    key = slice(0, 8), slice(0, 70)
    with staged.announced(target):
        staged.stage(target, key, values()[key] + 1)
        edits = staged.stage(target, key, values()[key] + 1)
        # Another writer does not remove what is staged.
        ingot.open(place, "r+")[59, 0] = 4
        staged.publish(target, edits)
    expected = values()
    expected[key] += 1
    expected[59, 0] = 4
    np.testing.assert_array_equal(ingot.open(place)[...], expected)
    ingot.open(place, "r+")[59, 1] = 4
    assert staged_files(place) == []


def test_stores_of_dask_are_serialised(place: Path) -> None:
    target = ingot.open(place, "r+")
    given = da.from_array(values() * 3, chunks=(9, 7))
    da.store(given, target, lock=False)
    np.testing.assert_array_equal(ingot.open(place)[...], values() * 3)


def test_arrays_in_memory_are_stored_to(tmp_path: Path) -> None:
    target = ingot.create(shape=50, dtype="i8", chunks=8)
    store(da.arange(20, chunks=6), target, slice(10, 30))
    assert target[8:32].tolist() == [0, 0, *range(20), 0, 0]
    to_ingot(da.arange(20, chunks=6), MemoryStore())
    unknown = da.arange(20, chunks=5)
    with pytest.raises(UnsupportedError, match="compute_chunk_sizes"):
        to_ingot(unknown[unknown > 3], tmp_path / "u.zarr")
    with pytest.raises(UnsupportedError, match="no array"):
        array(ingot.group(tmp_path / "g.zarr").path)


def test_arrays_in_object_stores_are_stored_to() -> None:
    obstore = pytest.importorskip("obstore.store")
    place = ObjectStore(obstore.MemoryStore(), writable=True)
    stored = to_ingot(da.arange(100, chunks=30), place, chunks=10, format="zarr3")
    store(da.ones(20, chunks=7, dtype="i8"), stored, slice(5, 25))
    expected = np.arange(100)
    expected[5:25] = 1
    np.testing.assert_array_equal(array(place).compute(scheduler="sync"), expected)


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return an address in a bucket, which the environment gives this and other processes."""
    settings = {
        "AWS_ENDPOINT_URL": s3_server.endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return f"s3://crashes/{secrets.token_hex(6)}"


def staged_objects(address: str) -> list[str]:
    keys = ObjectStore.from_url(address).client.walk()
    return [key for key in keys if "/.g-" in f"/{key}"]


def test_workers_stage_chunks_in_a_bucket(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, sent = f"{bucket}/a.zarr", []
    commit = ObjectTurn.commit

    def watched(turn: ObjectTurn, given: Commit) -> int:
        sent.append([type(edit) for edit in given.edits])
        return commit(turn, given)

    monkeypatch.setattr(ObjectTurn, "commit", watched)
    given = da.from_array(values(), chunks=(8, 70))
    stored = to_ingot(given, place, chunks=(8, 10))
    # The process that commits gets names of chunks, and the bytes of the metadata alone.
    assert [set(kinds) for kinds in sent] == [{Move, Put}]
    assert sent[0].count(Put) == 1
    assert staged_objects(bucket) == []
    store(given[:5, :5], stored, (slice(3, 8), slice(3, 8)))
    expected = values()
    expected[3:8, 3:8] = values()[:5, :5]
    np.testing.assert_array_equal(ingot.open(place)[...], expected)
    assert staged_objects(bucket) == []


def test_settings_of_a_bucket_are_options(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    options = ingot.Options(storage=s3_server.storage())
    place = f"s3://crashes/{secrets.token_hex(6)}/a.zarr"
    data = da.arange(12, chunks=4)
    with dask.config.set(scheduler="threads"):
        to_ingot(data, place, options=options)
        assert array(place, options=options).sum().compute() == 66


def test_a_task_that_fails_leaves_a_bucket_as_it_was(bucket: str) -> None:
    def fails(block: Any) -> Any:
        if block[0, 0] == values()[16, 0]:
            raise ValueError("a task fails")
        return block

    failing = da.from_array(values(), chunks=(8, 70)).map_blocks(fails, dtype="i8")
    stored = ingot.array(values(), f"{bucket}/b.zarr", chunks=(8, 10))
    # One task after the other: those that run longer than the call may leave staged objects.
    with dask.config.set(scheduler="sync"):
        with pytest.raises(ValueError, match="a task fails"):
            to_ingot(failing, f"{bucket}/a.zarr", chunks=(8, 10))
        with pytest.raises(ValueError, match="a task fails"):
            store(failing + 0, stored)
    with pytest.raises(NotFoundError):
        ingot.open(f"{bucket}/a.zarr")
    np.testing.assert_array_equal(ingot.open(f"{bucket}/b.zarr")[...], values())
    assert staged_objects(bucket) == []


def test_a_task_that_runs_twice_doubles_nothing_in_a_bucket(bucket: str) -> None:
    stored = ingot.array(np.zeros(8, "i8"), f"{bucket}/a.zarr", chunks=4)
    plan = staged.ExistingTarget(stored, (8,), (8,))
    with staged.announced(plan):
        staged.stage(plan, (slice(0, 4),), np.full(4, 1))
        edits = staged.stage(plan, (slice(0, 4),), np.full(4, 2))
        staged.stage(plan, (slice(0, 4),), np.full(4, 3))
        assert len(staged_objects(bucket)) == 3
        staged.publish(plan, edits)
    assert ingot.open(f"{bucket}/a.zarr")[:].tolist() == [2] * 4 + [0] * 4
    assert staged_objects(bucket) == []


def test_a_staged_object_that_is_lost_is_no_commit(bucket: str) -> None:
    stored = ingot.array(np.ones(8, "i8"), f"{bucket}/a.zarr", chunks=4)
    plan = staged.ExistingTarget(stored, (8,), (8,))
    edits = staged.stage(plan, (slice(0, 8),), np.full(8, 2))
    moves = [edit for edit in edits if isinstance(edit, Move)]
    ObjectStore.from_url(f"{bucket}/a.zarr", writable=True).client.delete([moves[1].source])
    with pytest.raises(NotFoundError, match=r"should become 'c/1'.*absent"):
        staged.publish(plan, edits)
    assert ingot.open(f"{bucket}/a.zarr")[:].tolist() == [1] * 8


def test_progress_bars_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    diagnostics = pytest.importorskip("dask.diagnostics")
    with diagnostics.ProgressBar(minimum=0):
        to_ingot(da.from_array(values(), chunks=10), tmp_path / "a.zarr")
    assert "100%" in capsys.readouterr().out


def _dies_once(block: Any, mark: str) -> Any:
    """End the process of a worker, the first time that any worker gets here."""
    if block[0, 0] == values()[16, 0]:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return block
        os._exit(1)
    return block


@pytest.mark.slow
def test_workers_of_a_cluster_may_die(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        given = da.from_array(values(), chunks=(8, 70))
        dying = given.map_blocks(_dies_once, str(tmp_path / "mark"), dtype="i8")
        stored = to_ingot(dying, tmp_path / "a.zarr", chunks=(8, 10))
        np.testing.assert_array_equal(stored[...], values())
        assert (tmp_path / "mark").exists()
        store(array(tmp_path / "a.zarr") + 1, stored, (slice(None), slice(None)))
        store(given[:5, :5], stored, (slice(3, 8), slice(3, 8)))
    expected = values() + 1
    expected[3:8, 3:8] = values()[:5, :5]
    np.testing.assert_array_equal(ingot.open(tmp_path / "a.zarr")[...], expected)
    ingot.open(tmp_path / "a.zarr", "r+")[0, 0] = 1
    assert staged_files(tmp_path) == []


@pytest.mark.slow
def test_workers_of_a_cluster_may_die_beside_a_bucket(tmp_path: Path, bucket: str) -> None:
    distributed = pytest.importorskip("distributed")
    place = f"{bucket}/a.zarr"
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        given = da.from_array(values(), chunks=(8, 70))
        dying = given.map_blocks(_dies_once, str(tmp_path / "mark"), dtype="i8")
        stored = to_ingot(dying, place, chunks=(8, 10))
        np.testing.assert_array_equal(stored[...], values())
        assert (tmp_path / "mark").exists()
        store(array(place) + 1, stored, (slice(None), slice(None)))
        store(given[:5, :5], stored, (slice(3, 8), slice(3, 8)))
    expected = values() + 1
    expected[3:8, 3:8] = values()[:5, :5]
    np.testing.assert_array_equal(ingot.open(place)[...], expected)
    assert staged_objects(bucket) == []


def test_arrays_of_cubed_are_stored(tmp_path: Path) -> None:
    cubed = pytest.importorskip("cubed")
    spec = cubed.Spec(work_dir=str(tmp_path / "work"), allowed_mem="100MB")
    given = cubed.from_array(values(), chunks=(20, 35), spec=spec)
    stored = to_ingot(given, tmp_path / "a.zarr")
    np.testing.assert_array_equal(stored[...], values())
    again = to_ingot(given, tmp_path / "b.zarr", chunks=(9, 11))
    np.testing.assert_array_equal(again[...], values())
    part = cubed.from_array(values()[:18], chunks=(9, 70), spec=spec)
    store(part, again, slice(9, 27))
    np.testing.assert_array_equal(again[9:27], values()[:18])
    with pytest.raises(UnsupportedError, match="two tasks would write one chunk"):
        store(part, again, slice(1, 19))
    assert staged_files(tmp_path) == []

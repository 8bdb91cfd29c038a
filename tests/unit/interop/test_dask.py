"""Data frames of Dask: partitions by ranges of chunks, and tables by one commit."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal

import ingot
from ingot.errors import ColumnError, ExistsError, LockedError, UnsupportedError
from ingot.testing.counting import CountingStore

dd = pytest.importorskip("dask.dataframe")
pytest.importorskip("pyarrow")

from ingot.interop.dask import dataframe, to_ingot  # noqa: E402

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

"""bcolz, zarr and tensorstore change a dataset while a handle of Ingot is open.

They know neither the lock nor the version, so the handle is stale. Its next change is planned on
what they left, or refused; nothing of theirs is lost.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import ingot
from ingot.errors import CorruptionError, IngotError, LockedError
from tests.kernels import KERNELS
from tests.storage import use_kernel


@pytest.fixture(params=KERNELS, autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


class Peer:
    """Another program, which opens the array at a path for each of its changes."""

    def append(self, path: Path, values: list[int]) -> None:
        raise NotImplementedError

    def resize(self, path: Path, rows: int) -> None:
        raise NotImplementedError

    def describe(self, path: Path, name: str, value: object) -> None:
        raise NotImplementedError


class Bcolz(Peer):
    def _open(self, path: Path) -> Any:
        module = pytest.importorskip("bcolz", reason="bcolz-zipline has no wheel for this Python")
        return module.carray(rootdir=str(path), mode="a")

    def append(self, path: Path, values: list[int]) -> None:
        array = self._open(path)
        array.append(np.array(values))
        array.flush()

    def resize(self, path: Path, rows: int) -> None:
        array = self._open(path)
        array.resize(rows)
        array.flush()

    def describe(self, path: Path, name: str, value: object) -> None:
        self._open(path).attrs[name] = value


class Zarr(Peer):
    def _open(self, path: Path) -> Any:
        module = pytest.importorskip("zarr", minversion="3", reason="zarr is not installed")
        return module.open_array(str(path), mode="r+")

    def append(self, path: Path, values: list[int]) -> None:
        self._open(path).append(np.array(values))

    def resize(self, path: Path, rows: int) -> None:
        self._open(path).resize((rows,))

    def describe(self, path: Path, name: str, value: object) -> None:
        self._open(path).attrs[name] = value


class TensorStore(Peer):
    def _open(self, path: Path) -> Any:
        module = pytest.importorskip("tensorstore", reason="tensorstore is not installed")
        driver = "zarr3" if (path / "zarr.json").exists() else "zarr"
        spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
        return module.open(spec, open=True).result()

    def append(self, path: Path, values: list[int]) -> None:
        array = self._open(path)
        rows = array.shape[0]
        self.resize(path, rows + len(values))
        self._open(path)[rows:].write(np.array(values)).result()

    def resize(self, path: Path, rows: int) -> None:
        self._open(path).resize(exclusive_max=[rows]).result()

    def describe(self, path: Path, name: str, value: object) -> None:
        pytest.skip("tensorstore does not change attributes")


PEERS: list[Any] = [
    pytest.param(Bcolz(), "bcolz", {}, id="bcolz"),
    pytest.param(Zarr(), "zarr2", {}, id="zarr-zarr2"),
    pytest.param(Zarr(), "zarr3", {}, id="zarr-zarr3"),
    pytest.param(Zarr(), "zarr3", {"shards": 8}, id="zarr-shards"),
    pytest.param(TensorStore(), "zarr2", {}, id="tensorstore-zarr2"),
    pytest.param(TensorStore(), "zarr3", {}, id="tensorstore-zarr3"),
    pytest.param(TensorStore(), "zarr3", {"shards": 8}, id="tensorstore-shards"),
]
with_each_peer = pytest.mark.parametrize(("peer", "format", "layout"), PEERS)


@pytest.fixture
def stale(tmp_path: Path, format: str, layout: dict[str, Any]) -> ingot.Array:
    """Return a handle that has been used, of ten items in chunks of four."""
    ingot.array(np.arange(10), tmp_path / "a", format=format, chunks=4, **layout)
    array = ingot.open(tmp_path / "a", "r+")
    assert isinstance(array, ingot.Array)
    array[0] = 0
    assert len(array) == 10
    return array


def content(array: ingot.Array) -> list[int]:
    assert array.path is not None
    found = ingot.open(array.path)
    assert isinstance(found, ingot.Array)
    return list(found[...])


@with_each_peer
def test_appended_items_stay(peer: Peer, stale: ingot.Array, tmp_path: Path) -> None:
    peer.append(tmp_path / "a", [50, 51, 52])
    stale.append([70, 71])
    assert content(stale) == [*range(10), 50, 51, 52, 70, 71]
    peer.append(tmp_path / "a", [53])
    stale.append([72])
    assert list(stale[...]) == content(stale) == [*range(10), 50, 51, 52, 70, 71, 53, 72]


@with_each_peer
@pytest.mark.parametrize("rows", [3, 8, 10, 17])
def test_another_length_stays(peer: Peer, stale: ingot.Array, tmp_path: Path, rows: int) -> None:
    peer.resize(tmp_path / "a", rows)
    expected = content(stale)
    stale.append([70, 71])
    assert content(stale) == [*expected, 70, 71]


@with_each_peer
@pytest.mark.parametrize("key", [-1, slice(-2, None), slice(None), slice(4, 8)])
def test_keys_mean_what_they_mean_now(
    peer: Peer, stale: ingot.Array, tmp_path: Path, key: Any
) -> None:
    peer.append(tmp_path / "a", [50, 51, 52])
    expected = np.array([*range(10), 50, 51, 52])
    expected[key] = -7
    stale[key] = -7
    assert_array_equal(content(stale), expected)


@with_each_peer
def test_new_items_are_assigned(peer: Peer, stale: ingot.Array, tmp_path: Path) -> None:
    peer.append(tmp_path / "a", [50, 51, 52])
    stale[12] = -7
    assert content(stale) == [*range(10), 50, 51, -7]


@with_each_peer
def test_what_does_not_fit_any_more_is_refused(
    peer: Peer, stale: ingot.Array, tmp_path: Path
) -> None:
    peer.resize(tmp_path / "a", 6)
    expected = content(stale)
    with pytest.raises(IndexError):
        stale[8] = 1
    with pytest.raises(ValueError, match="shape"):
        stale[...] = np.arange(10)
    assert content(stale) == expected


@with_each_peer
def test_items_that_were_cut_off_do_not_read_as_fill(
    peer: Peer, stale: ingot.Array, tmp_path: Path
) -> None:
    """Where chunks are missing, the array is read as it is now."""
    peer.resize(tmp_path / "a", 3)
    assert list(stale[...]) in ([0, 1, 2], list(range(10)))
    assert list(stale.oindex[np.arange(3)]) == [0, 1, 2]


@with_each_peer
def test_attributes_stay(peer: Peer, stale: ingot.Array, tmp_path: Path) -> None:
    peer.describe(tmp_path / "a", "theirs", 1)
    stale.attrs["ours"] = 2
    assert dict(stale.attrs) == {"theirs": 1, "ours": 2}
    peer.describe(tmp_path / "a", "theirs", 3)
    stale.append([70])
    found = ingot.open(tmp_path / "a")
    assert dict(found.attrs) == {"theirs": 3, "ours": 2}


@with_each_peer
def test_a_snapshot_does_not_read_missing_items_as_fill(
    peer: Peer, stale: ingot.Array, tmp_path: Path
) -> None:
    with stale.snapshot():
        peer.resize(tmp_path / "a", 3)
        with contextlib.suppress(CorruptionError):
            assert list(stale[...]) == list(range(10))


class TestTables:
    """bcolz tables have many documents: names, attributes, and three for each column."""

    @pytest.fixture
    def bcolz(self) -> Any:
        return pytest.importorskip("bcolz", reason="bcolz-zipline has no wheel for this Python")

    @pytest.fixture
    def table(self, tmp_path: Path) -> ingot.Table:
        ingot.table({"a": np.arange(10), "b": np.arange(10) * 0.5}, tmp_path / "t", chunks=4)
        table = ingot.open(tmp_path / "t", "r+")
        assert isinstance(table, ingot.Table)
        assert len(table.where("a >= 5").read()["a"]) == 5
        table["a"][0] = 0
        return table

    def change(self, bcolz: Any, tmp_path: Path, change: Callable[[Any], None]) -> None:
        other = bcolz.ctable(rootdir=str(tmp_path / "t"), mode="a")
        change(other)
        other.flush()

    def rows(self, tmp_path: Path) -> list[tuple[int, float]]:
        found = ingot.open(tmp_path / "t")
        assert isinstance(found, ingot.Table)
        return [tuple(row.tolist()) for row in found.to_numpy()]

    def test_appended_rows_stay(self, bcolz: Any, table: ingot.Table, tmp_path: Path) -> None:
        self.change(bcolz, tmp_path, lambda other: other.append((np.arange(3) + 50, np.ones(3))))
        table.append({"a": [70], "b": [7.0]})
        expected = [(n, n * 0.5) for n in range(10)] + [(n, 1.0) for n in (50, 51, 52)]
        assert self.rows(tmp_path) == [*expected, (70, 7.0)]

    def test_rows_of_an_appender_follow_theirs(
        self, bcolz: Any, table: ingot.Table, tmp_path: Path
    ) -> None:
        with table.appender(rows=2) as add:
            add((70, 7.0))
            self.change(bcolz, tmp_path, lambda other: other.append(([50], [1.0])))
            add((71, 7.5))
            self.change(bcolz, tmp_path, lambda other: other.append(([51], [2.0])))
            add((72, 8.0))
        last = [(50, 1.0), (70, 7.0), (71, 7.5), (51, 2.0), (72, 8.0)]
        assert self.rows(tmp_path)[10:] == last

    def test_rows_are_found_where_they_are_now(
        self, bcolz: Any, table: ingot.Table, tmp_path: Path
    ) -> None:
        self.change(bcolz, tmp_path, lambda other: other.append(([50], [1.0])))
        assert table.update("a == 50", {"b": -1.0}) == 1
        assert self.rows(tmp_path)[-1] == (50, -1.0)
        assert table.delete("a == 50") == 1
        assert len(self.rows(tmp_path)) == 10

    def test_zone_maps_of_changed_chunks_are_read_again(
        self, bcolz: Any, table: ingot.Table, tmp_path: Path
    ) -> None:
        for value in (500, 501):
            self.change(bcolz, tmp_path, lambda other: other["a"].__setitem__(1, value))  # noqa: B023
            assert table.update(f"a == {value}", {"b": float(value)}) == 1
        assert self.rows(tmp_path)[1] == (501, 501.0)

    def test_columns_stay(self, bcolz: Any, table: ingot.Table, tmp_path: Path) -> None:
        self.change(bcolz, tmp_path, lambda other: other.addcol(np.ones(10), name="c"))
        with pytest.raises((ValueError, IngotError), match="'c'"):
            table.append({"a": [70], "b": [7.0]})
        table.append({"a": [70], "b": [7.0], "c": [2.0]})
        assert self.rows(tmp_path)[-1] == (70, 7.0, 2.0)

    def test_attributes_stay(self, bcolz: Any, table: ingot.Table, tmp_path: Path) -> None:
        def describe(other: Any) -> None:
            other.attrs["theirs"] = 1
            other["b"].attrs["unit"] = "m"

        self.change(bcolz, tmp_path, describe)
        table.attrs["ours"] = 2
        table["b"].attrs["scale"] = 3
        found = ingot.open(tmp_path / "t")
        assert isinstance(found, ingot.Table)
        assert dict(found.attrs) == {"theirs": 1, "ours": 2}
        assert dict(found["b"].attrs) == {"unit": "m", "scale": 3}

    def test_a_transaction_begins_with_what_is_there(
        self, bcolz: Any, table: ingot.Table, tmp_path: Path
    ) -> None:
        self.change(bcolz, tmp_path, lambda other: other.append(([50], [1.0])))
        with table.transaction():
            table.append({"a": [70], "b": [7.0]})
            table["a"][-2] = 51
        assert self.rows(tmp_path)[-2:] == [(51, 1.0), (70, 7.0)]

    def test_a_transaction_does_not_remove_what_came_meanwhile(
        self, bcolz: Any, table: ingot.Table, tmp_path: Path
    ) -> None:
        transaction = table.transaction()
        transaction.__enter__()
        table.append({"a": [70], "b": [7.0]})
        self.change(bcolz, tmp_path, lambda other: other.append(([50], [1.0])))
        with pytest.raises(LockedError, match="since the transaction began"):
            transaction.__exit__(None, None, None)
        assert self.rows(tmp_path)[10:] == [(50, 1.0)]
        table.append({"a": [70], "b": [7.0]})
        assert self.rows(tmp_path)[10:] == [(50, 1.0), (70, 7.0)]


@pytest.mark.parametrize("format", [2, 3])
@pytest.mark.parametrize("consolidated", [False, True])
def test_attributes_of_groups_stay(tmp_path: Path, format: int, consolidated: bool) -> None:
    zarr = pytest.importorskip("zarr", minversion="3", reason="zarr is not installed")
    group = ingot.group(tmp_path / "g", format=f"zarr{format}")
    group.array("a", np.arange(10), chunks=4)
    if consolidated:
        group.consolidate()
    member = group["a"]
    assert isinstance(member, ingot.Array)
    group.attrs["first"] = 0
    member.append([10])
    other = zarr.open_group(str(tmp_path / "g"), mode="r+", zarr_format=format)
    other.attrs["theirs"] = 1
    zarr.open_array(str(tmp_path / "g" / "a"), mode="r+").append(np.arange(2) + 50)
    group.attrs["ours"] = 2
    member.attrs["ours"] = 3
    member.append([70])
    assert dict(group.attrs) == {"first": 0, "theirs": 1, "ours": 2}
    found = ingot.open(tmp_path / "g")
    assert isinstance(found, ingot.Group)
    assert list(found["a"][...]) == [*range(11), 50, 51, 70]  # type: ignore[index]
    assert dict(found.attrs) == {"first": 0, "theirs": 1, "ours": 2}
    assert found.consolidated in (None, True)

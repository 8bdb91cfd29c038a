"""Shards of blsk are read as one dataset, and changed each by itself."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.stores import MemoryStore
from tests.kernels import on_each_kernel
from tests.storage import content, put, use_kernel

VALUES = np.arange(1, 101, dtype="<i4").reshape(20, 5)


def opened(place: Any, mode: Any = "r") -> ingot.Array:
    found = ingot.open(place, mode)
    assert isinstance(found, ingot.Array)
    return found


def sharded(place: Any, count: int = 3) -> None:
    ingot.array(VALUES, format="blsk", chunks=(2, 3), superchunksize=3).shard(count, place)


@on_each_kernel
def test_every_kind_of_key(
    tmp_path: Path, kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    sharded(tmp_path / "s")
    found = opened(tmp_path / "s")
    for key in (..., 7, (slice(3, 17, 3), 2), ([1, 8, 19],), VALUES[:, 0] > 50, (-1, -1)):
        assert np.array_equal(found[key], VALUES[key]), key
    assert found.explain().kernel == kernel_name
    assert found.sum() == VALUES.sum()


@pytest.mark.parametrize("local", [True, False])
def test_a_shard_is_changed_by_itself(tmp_path: Path, local: bool) -> None:
    place = tmp_path / "s" if local else MemoryStore()
    sharded(place)
    whole = opened(place, "r+")
    for change in (
        lambda: whole.__setitem__(0, 1),
        lambda: whole.append(VALUES),
        lambda: whole.resize((3, 5)),
        lambda: whole.attrs.update(a=1),
    ):
        with pytest.raises(UnsupportedError, match="each of them is changed by itself"):
            change()
    if isinstance(place, Path):
        shard = opened(place / "shard-00001", "r+")
        shard[0, 0] = -1
        # The shards have one lock, so the handle of the whole sees the change.
        assert whole[8, 0] == -1
        assert (place / ".lock").exists()
        assert not (place / "shard-00001" / ".lock").exists()


def test_conditions_on_shards(tmp_path: Path) -> None:
    given = {"a": np.arange(100), "b": np.arange(100) % 7}
    ingot.table(given, format="blsk", chunks=10).shard(3, tmp_path / "t")
    table = ingot.open(tmp_path / "t")
    assert isinstance(table, ingot.Table)
    rows = table.where("(a >= 35) & (b == 3)").rows()
    assert rows.tolist() == [n for n in range(35, 100) if n % 7 == 3]
    with pytest.raises(UnsupportedError):
        ingot.open(tmp_path / "t", "r+").append({"a": [1], "b": [2]})  # type: ignore[union-attr]


def changed(document: Any) -> MemoryStore:
    store = MemoryStore()
    sharded(store)
    found = json.loads(content(store)["shards.json"])
    put(store, {"shards.json": json.dumps(found | document).encode()})
    return store


@pytest.mark.parametrize(
    "document",
    [
        {"rows": []},
        {"rows": [8, 6, 7]},
        {"rows": [8, 6]},
        {"rows": [8, 6, 6, 1]},
        {"rows": "x"},
        {"version": 2},
        {"format": "bcolz"},
        {"format": "toy"},
    ],
)
def test_documents_that_lie(document: Any) -> None:
    store = changed(document)
    if document == {"rows": [8, 6]}:
        assert opened(store).shape == (14, 5)
        return
    with pytest.raises(IngotError):
        ingot.open(store)


def test_shards_that_do_not_match() -> None:
    store, other = MemoryStore(), MemoryStore()
    sharded(store)
    ingot.array(VALUES.astype("<i8"), format="blsk", chunks=(2, 3)).shard(3, other)
    files = content(other)
    put(store, {key: data for key, data in files.items() if key.startswith("shard-00001/")})
    with pytest.raises(CorruptionError, match="another type"):
        ingot.open(store)


def test_a_file_of_another_shard_is_noticed(tmp_path: Path) -> None:
    sharded(tmp_path / "s", 2)
    one, other = (tmp_path / "s" / f"shard-0000{n}" / "data" / "__1__.bin" for n in range(2))
    one.write_bytes(other.read_bytes())
    with pytest.raises(CorruptionError, match="its identity is"):
        opened(tmp_path / "s")[0]
    assert opened(tmp_path / "s")[19].tolist() == VALUES[19].tolist()

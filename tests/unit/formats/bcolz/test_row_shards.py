"""Shards of bcolz: read as one, changed each by itself, refused where they do not fit."""

import json
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, ExistsError, FormatError, UnsupportedError
from ingot.formats.row_shards import RowShards
from ingot.stores import MemoryStore
from tests.row_shards import array, shard
from tests.storage import content, identity_of, put


def test_shards_are_read_only() -> None:
    target = MemoryStore()
    shard(array(20, 5), 2, target)
    found = ingot.open(target, "r+")
    for change in (
        lambda: found.__setitem__(0, 1),
        lambda: found.append([1]),
        lambda: found.resize(3),
        lambda: found.attrs.update(b=2),
    ):
        with pytest.raises(UnsupportedError):
            change()
    with pytest.raises(ExistsError):
        shard(array(20, 5), 2, target)
    with pytest.raises(ValueError, match="at least 1"):
        shard(array(20, 5), 0, MemoryStore())


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        (b"", CorruptionError),
        (b'{"version": 2, "format": "bcolz", "rows": [5]}', UnsupportedError),
        (b'{"version": 1, "format": "toy", "rows": [5]}', UnsupportedError),
        (b'{"version": 1, "format": "bcolz", "rows": []}', CorruptionError),
        (b'{"version": 1, "format": "bcolz", "rows": [-5]}', FormatError),
        (b'{"version": 1, "format": "bcolz", "rows": [9, 11]}', CorruptionError),
        (b'{"version": 1, "format": "bcolz", "rows": [10, 10, 10]}', FileNotFoundError),
    ],
    ids=str,
)
def test_documents_that_lie(document: bytes, kind: type[Exception]) -> None:
    target = MemoryStore()
    shard(array(20, 5), 2, target)
    put(target, {"shards.json": document})
    with pytest.raises(kind):
        ingot.open(target)


def test_shards_that_do_not_fit_together() -> None:
    target = MemoryStore()
    shard(array(20, 5), 2, target)
    other = MemoryStore()
    ingot.array(np.arange(10.0), other, format="bcolz", chunks=5)
    put(target, {f"shard-00001/{key}": data for key, data in content(other).items()})
    with pytest.raises(CorruptionError):
        ingot.open(target)


def test_a_swapped_shard_chunk_is_noticed() -> None:
    target = MemoryStore()
    shard(array(20, 5), 2, target)
    found = content(target)
    put(target, {"shard-00001/data/__0.blp": found["shard-00001/data/__1.blp"]})
    with pytest.raises(CorruptionError):
        ingot.open(target)[...]


def test_a_chunk_of_another_shard_is_noticed(kernel: str, tmp_path: Path) -> None:
    """It has the same type, length and number in its shard."""
    ingot.array(np.arange(40), tmp_path / "a", format="bcolz", chunks=5)
    shard(tmp_path / "a", 4, tmp_path / "shards")
    arrays = [tmp_path / "a", *(tmp_path / "shards" / RowShards.folder(n) for n in range(4))]
    assert len({identity_of(each) for each in arrays}) == 5
    left, right = (each / "data/__1.blp" for each in arrays[2:4])
    left.write_bytes(right.read_bytes())
    whole = ingot.open(tmp_path / "shards")
    with pytest.raises(CorruptionError, match="chunk trailer: its identity is"):
        whole[17]
    with pytest.raises(CorruptionError, match="chunk trailer: its identity is"):
        ingot.open(arrays[2])[7]
    assert whole[[2, 12, 27, 39]].tolist() == [2, 12, 27, 39]


def test_shards_without_an_identity_are_read_beside_others(kernel: str, tmp_path: Path) -> None:
    ingot.array(np.arange(40), tmp_path / "a", format="bcolz", chunks=5)
    shard(tmp_path / "a", 4, tmp_path / "shards")
    part = tmp_path / "shards" / RowShards.folder(1)
    storage = json.loads((part / "meta/storage").read_bytes())
    del storage["x_id"]
    (part / "meta/storage").write_text(json.dumps(storage))
    whole = ingot.open(tmp_path / "shards")
    with pytest.raises(CorruptionError, match="the array has no x_id"):
        whole[...]
    for path in part.glob("data/*.blp"):
        data = path.read_bytes()
        path.write_bytes(data[: 16 + int.from_bytes(data[28:32], "little")])
    assert whole[...].tolist() == list(range(40))
    assert whole[[2, 12, 27, 39]].tolist() == [2, 12, 27, 39]

"""Arrays of bcolz, and datasets cut into row shards."""

from pathlib import Path

import numpy as np

import ingot
from ingot.stores import MemoryStore, Store


def shard(source: Path | Store, count: int, path: Path | Store) -> None:
    dataset = ingot.open(source)
    assert isinstance(dataset, ingot.Array | ingot.Table)
    dataset.shard(count, path)


def array(rows: int, chunk: int) -> MemoryStore:
    store = MemoryStore()
    ingot.array(np.arange(rows), store, format="bcolz", chunks=chunk, attrs={"a": 1})
    return store

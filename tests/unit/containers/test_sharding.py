"""Storing a dataset as shards: how many commits it takes, and what is read afterwards."""

import numpy as np
import pytest

import ingot
from ingot.stores import Commit, MemoryStore
from ingot.stores.store import Durability


class CountingStore(MemoryStore):
    """A store that counts its commits."""

    commits = 0

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        self.commits += 1
        super().apply(commit, durability=durability)


@pytest.mark.parametrize(("window", "commits"), [(64 << 20, 1), (150_000, 5)])
def test_commits_hold_as_much_as_a_window(window: int, commits: int) -> None:
    values = np.random.default_rng(1).integers(0, 2**62, (2, 40_000))
    columns = {"a": values[0], "b": values[1]}
    options = ingot.Options(limits=ingot.Limits(window_bytes=window))
    table = ingot.table(columns, chunks=1000, options=options)
    store = CountingStore()
    table.shard(4, store)
    # Two columns of 80 KB for each of four shards, and what makes them one dataset.
    assert store.commits == commits
    found = ingot.open(store)
    for name, column in columns.items():
        assert np.array_equal(found[name][...], column)

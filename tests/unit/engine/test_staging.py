"""Staged values: the edits that publish them, and what a failure leaves behind."""

import pytest

from ingot.engine.staging import edits_of, stage_values, staged_edits
from ingot.stores import LocalStore, MemoryStore
from ingot.stores.store import Commit, Delete, Move, Put


def test_a_chunk_without_a_staged_value_is_deleted():
    staged = [((0,), "c/0", "c/.g-2f81-0", 10, 7), ((1,), "c/1", None, 0, 0)]
    assert edits_of(staged) == [Move("c/.g-2f81-0", "c/0", 10, 7), Delete("c/1")]


def test_a_failure_removes_what_was_staged(tmp_path):
    store = LocalStore(tmp_path / "a", writable=True)

    def stage(transaction, edits):
        edits += stage_values(store, Commit(publish=(Put("c/0", b"data"),)))
        assert list(tmp_path.rglob(".g-*"))
        raise KeyError

    with pytest.raises(KeyError):
        staged_edits(store, stage)
    assert not list(tmp_path.rglob(".g-*"))
    assert not store._staging._names


def test_staged_values_become_moves_where_the_store_has_versions(tmp_path):
    commit = Commit(publish=(Put("c/0", b"data"), Delete("c/1")))
    moved, deleted = stage_values(LocalStore(tmp_path / "a", writable=True), commit)
    assert isinstance(moved, Move)
    assert (moved.key, moved.size) == ("c/0", 4)
    assert deleted == Delete("c/1")
    assert tuple(stage_values(MemoryStore(), commit)) == commit.publish

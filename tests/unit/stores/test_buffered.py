"""Changes that are collected before they are committed."""

import pytest

from ingot.errors import UnsafeError
from ingot.stores import Commit, Extent, MemoryStore, Put
from ingot.stores.buffered import BufferedStore


def test_nothing_derived_from_buffered_values_may_be_kept() -> None:
    below = MemoryStore({"a": b"old"})
    buffered = BufferedStore(below)
    assert buffered.identity("a") is None
    buffered.apply(Commit(publish=(Put("a", b"new"), Put("b", b"new"))))
    assert [buffered.identity(key) for key in "abc"] == [None] * 3
    buffered.discard()
    assert buffered.read([Extent("a")]) == below.read([Extent("a")]) == [b"old"]
    assert buffered.identity("a") is None
    with pytest.raises(UnsafeError):
        buffered.identity("../a")

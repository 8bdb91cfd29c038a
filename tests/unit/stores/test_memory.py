"""What only the store in memory promises."""

import pickle
from typing import Any

import pytest

from ingot.errors import NotFoundError, ReadOnlyError, UnsafeError
from ingot.stores import Commit, Delete, Extent, Feature, MemoryStore, Patch, Put


def test_content_is_checked_and_copied() -> None:
    mutable = bytearray(b"abc")
    store = MemoryStore({"a": mutable})  # type: ignore[dict-item]
    mutable[0] = 0
    assert store.read([Extent("a")]) == [b"abc"]
    with pytest.raises(UnsafeError):
        MemoryStore({"../a": b""})


def test_a_whole_value_is_read_without_a_copy() -> None:
    value = bytes(1000)
    store = MemoryStore({"a": value})
    assert store.read([Extent("a")])[0] is value


def test_what_was_read_does_not_change() -> None:
    store = MemoryStore({"a": b"0123"})
    (before,) = store.read([Extent("a")])
    store.apply(Commit(publish=(Patch("a", 0, b"x"),)))
    assert before == b"0123"
    assert store.read([Extent("a")]) == [b"x123"]


def test_pickling_copies_the_content() -> None:
    store = MemoryStore({"a": b"old"})
    copy = pickle.loads(pickle.dumps(store))
    store.apply(Commit(publish=(Put("a", b"new"),)))
    assert copy.read([Extent("a")]) == [b"old"]
    copy.apply(Commit(publish=(Put("b", b"own"),)))
    assert store.size("b") is None


def test_a_store_for_reading_does_not_write() -> None:
    store = MemoryStore({"a": b"old"}, writable=False)
    assert not store.features & (Feature.WRITE | Feature.PATCH | Feature.ATOMIC_PUT)
    with pytest.raises(ReadOnlyError, match="memory"):
        store.apply(Commit(publish=(Put("a", b"new"),)))
    assert store.read([Extent("a")]) == [b"old"]
    assert repr(store) == "MemoryStore(1 keys)"


def test_a_phase_that_fails_has_no_effect() -> None:
    store = MemoryStore({"a": b"old", "c": b"old"})
    edits = Put("a", b"new"), Put("b", b"new"), Delete("c"), Patch("d", 0, b"new")
    with pytest.raises(NotFoundError):
        store.apply(Commit(prepare=(Put("e", b"new"),), publish=edits))
    keys = [Extent(key) for key in "abcde"]
    assert store.read(keys) == [b"old", None, b"old", None, b"new"]


def test_a_phase_that_fails_changes_no_value_and_no_identity() -> None:
    store = MemoryStore({"a": b"old", "b": b"old"})
    before = store.identity("a"), store.identity("b")
    with pytest.raises(NotFoundError):
        store.apply(Commit(publish=(Put("a", b"new"), Patch("d", 0, b"new"))))
    assert store.read([Extent("a"), Extent("b")]) == [b"old", b"old"]
    assert (store.identity("a"), store.identity("b")) == before
    assert store.identity("d") is None


def test_a_value_has_no_identity_while_it_is_changed() -> None:
    class Watching(dict[str, bytes | None]):
        def update(self, *given: Any, **named: Any) -> None:
            seen.append(store.identity("a"))
            super().update(*given, **named)
            seen.append(store.identity("a"))

    store = MemoryStore({"a": b"old"})
    store._values = Watching(store._values)
    seen: list[object] = []
    store.apply(Commit(publish=(Put("a", b"new"),)))
    assert seen == [None, None]
    assert store.identity("a") is not None

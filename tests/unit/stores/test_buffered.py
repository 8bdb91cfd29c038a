"""Changes that are collected before they are committed."""

import random
import tracemalloc
from pathlib import Path

import pytest

from ingot.errors import CorruptionError, UnsafeError
from ingot.stores import (
    Commit,
    Delete,
    Edit,
    Extent,
    LocalStore,
    MemoryStore,
    Move,
    Patch,
    Put,
    Store,
    Truncate,
    staged_key,
)
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


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("most", [0, 100, 1 << 20])
def test_the_commit_leads_to_what_the_buffer_shows(tmp_path: Path, seed: int, most: int) -> None:
    below = LocalStore(tmp_path, writable=True) if seed % 2 else MemoryStore()
    chance = random.Random(seed)
    keys = [f"{folder}{number}" for folder in ("", "f/") for number in range(3)]
    below.apply(Commit(publish=tuple(Put(key, chance.randbytes(40)) for key in keys[::2])))
    for number in range(6):
        buffered = BufferedStore(below, most=most)
        for _ in range(chance.randrange(1, 8)):
            edits = _edits(chance, buffered, keys, number)
            buffered.apply(Commit(publish=tuple(edits)))
        shown = buffered.read([Extent(key) for key in keys])
        assert [buffered.size(key) for key in keys] == [
            None if v is None else len(v) for v in shown
        ]
        names = list(buffered.names("f", hidden=True))
        below.apply(buffered.commit())
        assert below.read([Extent(key) for key in keys]) == shown
        assert list(below.names("f", hidden=True)) == names


def _edits(chance: random.Random, store: Store, keys: list[str], number: int) -> list[Edit]:
    key = chance.choice(keys)
    size = store.size(key)
    what = chance.random()
    if what < 0.15:
        return [Delete(key)]
    if what < 0.3:
        staged = staged_key(key, f"{number}.{chance.randrange(10**9)}")
        return [Put(staged, chance.randbytes(9)), Patch(staged, 3, b"abc"), Move(staged, key)]
    if size is None or what < 0.5:
        return [Put(key, chance.randbytes(chance.choice((0, 5, 200))))]
    return [Patch(key, chance.randrange(size + 1), chance.randbytes(chance.randrange(30)))]


def test_a_patch_of_a_large_value_takes_memory_for_the_patch(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    size = 64 << 20
    store.apply(Commit(publish=(Put("a", bytes(size)),)), durability="process")
    tracemalloc.start()
    try:
        buffered = BufferedStore(store)
        for start in (0, 8, size // 2, size - 4, 3):
            buffered.apply(Commit(publish=(Patch("a", start, b"12345678"),)))
        assert buffered.size("a") == size + 4
        assert buffered.read([Extent("a", size - 6, 20)]) == [b"\0\x0012345678"]
        store.apply(buffered.commit(), durability="process")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert store.read([Extent("a", 0, 16), Extent("a", size - 6)]) == [
        b"1231234567845678",
        b"\0\x0012345678",
    ]


def test_a_staged_value_is_patched_where_it_is_staged(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    buffered = BufferedStore(store, most=10)
    buffered.apply(Commit(publish=(Put("a", bytes(1000)), Patch("a", 7, b"xyz"))))
    edits = buffered.commit().publish
    assert [type(edit) for edit in edits] == [Move, Patch]
    store.apply(Commit(publish=edits))
    assert store.read([Extent("a", 6, 5)]) == [b"\0xyz\0"]
    assert list(store.names(hidden=True)) == ["a"]


def test_what_is_discarded_leaves_nothing_staged(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    buffered = BufferedStore(store, most=10)
    for value in (bytes(100), bytes(50)):
        buffered.apply(Commit(publish=(Put("a", value), Patch("a", 7, b"xyz"))))
    assert len(list(store.names(hidden=True))) == 1
    buffered.apply(Commit(publish=(Delete("a"),)))
    assert list(store.names(hidden=True)) == []
    buffered.apply(Commit(publish=(Put("b", bytes(100)),)))
    buffered.discard()
    assert list(store.names(hidden=True)) == []


def test_growth_of_a_key_is_buffered() -> None:
    below = MemoryStore({"a": b"0123"})
    buffered = BufferedStore(below)
    grown = buffered.extend("a", [b"45", b"6"])
    assert buffered.read([Extent("a")]) == [b"0123"]
    buffered.apply(Commit(prepare=(grown,)))
    assert buffered.read([Extent("a"), Extent("a", 3, 2)]) == [b"0123456", b"34"]
    below.apply(buffered.commit())
    assert below.read([Extent("a")]) == [b"0123456"]


def test_a_folder_is_listed_while_it_holds_a_key() -> None:
    buffered = BufferedStore(MemoryStore({"f/a": b"x", "f/b": b"y", "g/a": b"z"}))
    buffered.apply(Commit(publish=(Delete("f/a"), Delete("g/a"))))
    assert list(buffered.names()) == ["f/"]
    buffered.apply(Commit(publish=(Delete("f/b"), Put("g/b", b""))))
    assert list(buffered.names()) == ["g/"]


def test_staged_names_are_listed_on_demand_only() -> None:
    buffered = BufferedStore(MemoryStore({"a": b"x"}))
    staged = staged_key("b", "1")
    buffered.apply(Commit(prepare=(Put(staged, b"y"),)))
    assert list(buffered.names()) == ["a"]
    assert list(buffered.names(hidden=True)) == [staged, "a"]


@pytest.mark.parametrize("edit", [Patch("a", 3, b"xy"), Truncate("a", 3)])
def test_the_committed_state_is_not_touched_before_it_is_published(edit: Patch | Truncate) -> None:
    buffered = BufferedStore(MemoryStore({"a": b"0123"}))
    with pytest.raises(CorruptionError, match=r"prepare: .* touches the 4 bytes of 'a'"):
        buffered.apply(Commit(prepare=(edit,)))
    assert buffered.read([Extent("a")]) == [b"0123"]
    buffered.apply(Commit(prepare=(Patch("a", 4, b"45"),)))
    assert buffered.read([Extent("a")]) == [b"012345"]


def test_a_value_that_is_moved_takes_memory_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    buffered = BufferedStore(store, most=100)
    staged = staged_key("a", "1")
    buffered.apply(Commit(prepare=(Put(staged, bytes(60)),), publish=(Move(staged, "a"),)))
    buffered.apply(Commit(publish=(Put("b", bytes(40)),)))
    assert list(store.names(hidden=True)) == []
    buffered.apply(Commit(publish=(Put("c", b"x"),)))
    assert len(list(store.names(hidden=True))) == 1


def test_64_mib_stay_in_memory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    buffered = BufferedStore(store)
    buffered.apply(Commit(publish=(Put("a", bytes(64 << 20)),)))
    assert list(store.names(hidden=True)) == []
    buffered.apply(Commit(publish=(Put("b", b"x"),)))
    assert len(list(store.names(hidden=True))) == 1
    buffered.discard()

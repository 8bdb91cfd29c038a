"""The cache forgets what it must, and what it can do without."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.engine import kernel
from ingot.engine.cache import ChunkCache
from ingot.stores import MemoryStore


def test_another_identity_is_another_chunk() -> None:
    cache = ChunkCache(1000)
    cache.keep("a", 1, np.zeros(10, np.uint8))
    assert cache.find("a", 2) is None
    assert cache.find("a", 1) is None, "what may have changed is dropped for good"
    assert cache.used == 0


def test_the_least_recently_used_goes_first() -> None:
    cache = ChunkCache(30)
    for key in "abc":
        cache.keep(key, 0, np.zeros(10, np.uint8))
    assert cache.find("a", 0) is not None
    cache.keep("d", 0, np.zeros(10, np.uint8))
    assert [key for key in "abcd" if cache.find(key, 0) is not None] == ["a", "c", "d"]
    assert cache.used == 30


def test_what_exceeds_the_budget_is_not_kept() -> None:
    cache = ChunkCache(30)
    cache.keep("a", 0, np.zeros(10, np.uint8))
    cache.keep("a", 0, np.zeros(31, np.uint8))
    assert cache.find("a", 0) is None
    assert cache.used == 0


def test_forgetting() -> None:
    cache = ChunkCache(30)
    cache.keep("a", 0, np.zeros(10, np.uint8))
    cache.keep("b", 0, np.zeros(10, np.uint8))
    cache.forget("a")
    cache.forget("never kept")
    assert cache.find("a", 0) is None
    assert cache.used == 10
    cache.clear()
    assert cache.find("b", 0) is None
    assert cache.used == 0


@pytest.mark.parametrize(("age", "seen"), [(0, 9), (10, 1)])
def test_files_that_were_changed_just_now_are_read_again(
    age: int, seen: int, tmp_path: Path
) -> None:
    """Such a file may change again while its time stays the same; an older one may not."""
    path = tmp_path / "a"
    ingot.array(np.full(5, 1, "u1"), path, format="zarr2", codec="none")
    chunk = path / "0"
    written = time.time_ns() - age * 10**9
    os.utime(chunk, ns=(written, written))
    array = ingot.open(path, options=ingot.Options(cache_bytes=1000))
    assert array[0] == 1
    with chunk.open("r+b") as file:
        file.write(bytes([9] * 5))
    os.utime(chunk, ns=(written, written))
    assert array[0] == seen


def test_what_took_the_place_of_bytes_while_they_were_read_is_not_taken_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    ingot.array(np.full(5, 1, "u1"), path, format="zarr2", codec="none")
    chunk = path / "0"
    os.utime(chunk, ns=(10**18, 10**18))
    array = ingot.open(path, options=ingot.Options(cache_bytes=1000))
    decode = kernel.decode

    def overtaken(*arguments: Any) -> Any:
        chunk.write_bytes(bytes([9] * 5))
        os.utime(chunk, ns=(10**18 + 1, 10**18 + 1))
        return decode(*arguments)

    monkeypatch.setattr(kernel, "decode", overtaken)
    assert array[0] == 1
    monkeypatch.undo()
    assert array[0] == 9


def test_chunks_of_a_store_in_memory_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    ingot.array(np.full(5, 1, "u1"), store, format="zarr2", codec="none")
    array = ingot.open(store, options=ingot.Options(cache_bytes=1000))
    assert array[0] == 1
    decode = kernel.decode
    decoded: list[object] = []
    monkeypatch.setattr(kernel, "decode", lambda *a: decoded.append(a) or decode(*a))
    assert array[0] == 1
    assert decoded == []
    ingot.open(store, "r+")[:] = np.full(5, 9, "u1")
    assert array[0] == 9
    assert decoded

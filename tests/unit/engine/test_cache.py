"""The cache forgets what it must, and what it can do without."""

import numpy as np

from ingot.engine.cache import ChunkCache


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

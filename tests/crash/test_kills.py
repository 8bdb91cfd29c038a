"""A writer on real files is killed again and again; what it acknowledged is always there."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from ingot.stores import Commit, Extent, LocalStore, Put, read_state

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KEYS = [f"f{number % 3}/{number}" for number in range(5)]
KILLS = 200


def _write_for_ever(folder: Path, acknowledged: int, first: int) -> None:
    store = LocalStore(folder, writable=True)
    for number in range(first, first + 1_000_000):
        value = b"%d" % number
        keys = KEYS if number % 3 else KEYS[:1]
        edits = tuple(Put(key, value) for key in keys)
        store.apply(Commit(publish=edits), durability="full" if number % 7 == 0 else "process")
        os.write(acknowledged, value.ljust(12))


def _state(folder: Path) -> list[int]:
    found = read_state(LocalStore(folder), lambda view: view.read([Extent(key) for key in KEYS]))
    return [int(value or b"0") for value in found]


def test_two_hundred_kills(tmp_path: Path) -> None:
    chance = random.Random(1)
    last = 0
    for _ in range(KILLS):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                _write_for_ever(tmp_path, writing, last + 1)
            finally:
                os._exit(1)
        os.close(writing)
        time.sleep(chance.uniform(0, 0.012))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read().split()
        last = max(last, *map(int, said)) if said else last
        first, *others = _state(tmp_path)
        # Commits change all keys or the first alone, so at most one may be ahead of the others.
        assert len(set(others)) == 1
        assert first in (last, last + 1)
        expected = first if first % 3 else max((n for n in range(first) if n % 3), default=0)
        assert others[0] in (expected, 0) if not first else others[0] == expected
        last = first
    LocalStore(tmp_path, writable=True).recover()
    left = [path.name for path in tmp_path.rglob("*") if path.name.startswith((".g-", ".commit"))]
    assert left == []

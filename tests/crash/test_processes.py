"""Several processes at one dataset: nothing is lost, every read is one committed state."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.stores import Commit, Extent, LocalStore, Put, Store, read_state
from ingot.testing import Disk

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KEYS = ["sum", "f/sum", "g/sum"]
SECONDS = 2.0


def _run(*tasks: Callable[[], None]) -> list[int]:
    """Run each task in a process of its own; return how they ended."""
    children = []
    for task in tasks:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                task()
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _values(store: Store) -> list[int]:
    return [int(value or b"0") for value in store.read([Extent(key) for key in KEYS])]


def test_writers_lose_nothing_and_readers_see_one_state(tmp_path: Path) -> None:
    until = time.monotonic() + SECONDS

    def write(name: str) -> None:
        store, count = LocalStore(tmp_path, writable=True), 0

        def build(current: Store) -> Commit:
            values = _values(current)
            assert len(set(values)) == 1
            new = b"%d" % (values[0] + 1)
            edits = [Put(key, new) for key in KEYS]
            return Commit(publish=(*edits, Put(f"count/{name}", b"%d" % (count + 1))))

        while time.monotonic() < until:
            store.change(build, durability="process")
            count += 1

    def read() -> None:
        store, last = LocalStore(tmp_path), 0
        while time.monotonic() < until:
            values = read_state(store, _values)
            assert len(set(values)) == 1
            assert values[0] >= last
            last = values[0]

    writers = [lambda name=name: write(name) for name in "abcd"]
    assert _run(*writers, read, read, read, read) == [0] * 8
    store = LocalStore(tmp_path)
    counts = store.read([Extent(f"count/{name}") for name in "abcd"])
    total = sum(int(count or b"0") for count in counts)
    assert total > 20
    assert _values(store) == [total] * 3


def test_a_full_commit_makes_those_before_it_last() -> None:
    disk = Disk({"a": b"old"})
    store = LocalStore(disk, writable=True)
    store.apply(Commit(publish=(Put("a", b"new"), Put("f/b", b"new"))), durability="process")
    assert len(set(disk.images())) > 1
    store.apply(Commit(publish=(Put("c", b"new"),)))
    assert [dict(image.files) for image in set(disk.images())] == [
        {"a": b"new", "c": b"new", "f/b": b"new"}
    ]

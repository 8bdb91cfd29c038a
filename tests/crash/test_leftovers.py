"""The next writer sweeps what killed processes have staged, and nothing of running ones."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.selection import parse
from ingot.stores import Commit, Extent, LocalStore, Put
from ingot.stores.local.files import _LocalDirectory
from ingot.stores.store import Durability
from ingot.stores.versions import announce_staging, withdraw_staging
from tests.kernels import staged_count

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


class Child:
    """A process that acts once, reports it, and acts again on request."""

    def __init__(self, act: Callable[[], Callable[[], None]]) -> None:
        said, self._done = os.pipe()
        request, self._tell = os.pipe()
        self.process = os.fork()
        if self.process == 0:
            status = 1
            try:
                os.close(self._tell)
                following = act()
                os.write(self._done, b"1")
                if os.read(request, 1):
                    following()
                    status = 0
            finally:
                os._exit(status)
        os.close(self._done)
        os.close(request)
        assert os.read(said, 1) == b"1"
        os.close(said)

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        assert self._end() == -signal.SIGKILL

    def go_on(self) -> None:
        os.write(self._tell, b"1")
        assert self._end() == 0

    def _end(self) -> int:
        os.close(self._tell)
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])


def _stager(folder: Path, key: str) -> Child:
    """Return a process that has staged a value, and commits it on request."""

    def act() -> Callable[[], None]:
        store = LocalStore(folder, writable=True)
        move = store.stage(key, key.encode())
        return lambda: store.apply(Commit(publish=(move,)))

    return Child(act)


def _staged(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob(".g-*"))


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"0"),)))
    return store


@pytest.mark.parametrize("durability", ["full", "process"])
def test_the_next_writer_sweeps_what_a_killed_one_has_staged(
    store: LocalStore, tmp_path: Path, durability: Durability
) -> None:
    _stager(tmp_path, "x/y/b").kill()
    assert len(_staged(tmp_path)) == 1
    store.apply(Commit(publish=(Put("a", b"1"),)), durability=durability)
    assert _staged(tmp_path) == []


def test_also_where_there_was_no_writer_before(tmp_path: Path) -> None:
    _stager(tmp_path, "x/b").kill()
    assert len(_staged(tmp_path)) == 1
    LocalStore(tmp_path, writable=True).apply(Commit(publish=(Put("a", b"1"),)))
    assert _staged(tmp_path) == []


def test_a_writer_with_staged_values_sweeps_all_others(store: LocalStore, tmp_path: Path) -> None:
    _stager(tmp_path, "x/b").kill()
    move = store.stage("x/c", b"1")
    assert len(_staged(tmp_path)) == 2
    store.apply(Commit(publish=(move, Put("a", b"1"))))
    assert _staged(tmp_path) == []
    assert store.read([Extent("x/c"), Extent("a")]) == [b"1", b"1"]


def test_chunks_that_a_killed_process_encoded_are_swept(tmp_path: Path) -> None:
    values = np.arange(40, dtype="i4")
    array = ingot.array(values, tmp_path / "a.zarr", chunks=4)

    def act() -> Callable[[], None]:
        ingot.open(tmp_path / "a.zarr", "r+")._handle.value.assign(parse(..., (40,)), values + 1)
        return lambda: None

    Child(act).kill()
    assert len(_staged(tmp_path)) == staged_count(10)
    array.append([1, 2, 3])
    assert _staged(tmp_path) == []
    np.testing.assert_array_equal(array[:40], values)


def test_staged_files_of_a_running_process_stay(store: LocalStore, tmp_path: Path) -> None:
    living = _stager(tmp_path, "x/b")
    _stager(tmp_path, "x/c").kill()
    store.apply(Commit(publish=(Put("a", b"1"),)))
    assert len(_staged(tmp_path)) == 2
    living.go_on()
    assert store.read([Extent("x/b"), Extent("x/c")]) == [b"x/b", None]
    assert _staged(tmp_path) == []


def test_a_writer_that_dies_with_the_lock_costs_running_processes_nothing(
    store: LocalStore, tmp_path: Path
) -> None:
    def act() -> Callable[[], None]:
        def die(*_: object) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        os.rename = die
        # The kernel would not call it.
        native.begin_turn = native.run_steps = lambda *_: None
        return lambda: LocalStore(tmp_path, writable=True).apply(
            Commit(publish=(Put("a", b"2"), Put("x/d", b"2")))
        )

    living, dead = _stager(tmp_path, "x/b"), Child(act)
    with pytest.raises(AssertionError):
        dead.go_on()
    store.apply(Commit(publish=(Put("a", b"3"),)))
    assert any(name.endswith("-b") for name in _staged(tmp_path))
    living.go_on()
    assert store.read([Extent("x/b"), Extent("a"), Extent("x/d")]) == [b"x/b", b"3", None]
    assert _staged(tmp_path) == []


def test_what_is_discarded_is_announced_no_more(store: LocalStore, tmp_path: Path) -> None:
    kept, thrown = store.stage("b", b"1"), store.stage("c", b"1")
    store.discard([thrown])
    _stager(tmp_path, "d").kill()
    store.apply(Commit(publish=(Put("a", b"1"),)))
    assert len(_staged(tmp_path)) == 2
    store.discard([kept])
    store.apply(Commit(publish=(Put("a", b"2"),)))
    assert _staged(tmp_path) == []


def test_leftovers_are_searched_only_after_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = ingot.array(np.arange(40, dtype="i4"), tmp_path / "a.zarr", chunks=4)
    with _no_listing(monkeypatch):
        for number in range(3):
            array[...] = number
            array[1:3] = number
            array.append([number])
    assert _staged(tmp_path) == []


@contextmanager
def _no_listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def names(*_: object, **__: object) -> list[str]:
        raise AssertionError("a folder was listed")

    with monkeypatch.context() as patch:
        patch.setattr(_LocalDirectory, "names", names)
        yield


def test_threads_of_one_store_keep_what_each_has_staged(store: LocalStore, tmp_path: Path) -> None:
    first, second = store.stage("b", b"1"), store.stage("c", b"2")
    _stager(tmp_path, "d").kill()
    store.apply(Commit(publish=(first,)))
    store.apply(Commit(publish=(second,)))
    assert store.read([Extent("b"), Extent("c")]) == [b"1", b"2"]
    assert _staged(tmp_path) == []


@pytest.mark.parametrize("first", ["withdraws", "stays"])
@pytest.mark.parametrize("staged", [True, False])
def test_a_process_that_withdraws_does_not_cost_another_its_staged_files(
    store: LocalStore, tmp_path: Path, first: str, staged: bool
) -> None:
    def act() -> Callable[[], None]:
        mine = LocalStore(tmp_path, writable=True)
        if staged:
            move = mine.stage("x/c", b"c")
            return lambda: mine.discard([move])
        announce_staging(mine, "0123456789abcdef")

        def withdraw() -> None:
            withdraw_staging(mine, "0123456789abcdef", staged=False)
            mine.apply(Commit(publish=(Put("d", b"1"),)))

        return withdraw

    makers = [lambda: Child(act), lambda: _stager(tmp_path, "x/b")]
    if first == "stays":
        staying, leaving = makers[1](), makers[0]()
    else:
        leaving, staying = makers[0](), makers[1]()
    leaving.go_on()
    for number in range(3):
        store.apply(Commit(publish=(Put("a", b"%d" % number),)))
    assert [name.rpartition("-")[2] for name in _staged(tmp_path)] == ["b"]
    staying.go_on()
    assert store.read([Extent("x/b"), Extent("x/c"), Extent("a")]) == [b"x/b", None, b"2"]
    assert _staged(tmp_path) == []

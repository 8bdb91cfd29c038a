"""Turns of writers: what entering, committing and leaving one does, in every store."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ingot.errors import LockedError, UnsafeError
from ingot.stores import Commit, Extent, FileStore, LocalStore, MemoryStore, Put, Store, ZipStore
from ingot.stores.buffered import BufferedStore
from ingot.stores.local import commit as local_commit
from ingot.stores.versions import NO_VERSION, Versioned, version_number, writing

STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda path: MemoryStore(),
    "folder": lambda path: LocalStore(path, writable=True, wait=0),
    "unlocked": lambda path: LocalStore(path, writable=True, locking=False),
    "file": lambda path: FileStore(path / "a", writable=True, wait=0),
    "zip": lambda path: ZipStore(path / "b.zip", writable=True, wait=0),
    "buffered": lambda path: BufferedStore(MemoryStore()),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    store = STORES[request.param](tmp_path)
    store.apply(Commit(publish=(Put("a", b"0"),)))
    return store


def put(value: bytes) -> Commit:
    return Commit(publish=(Put("a", value),))


def value(store: Store) -> bytes | None:
    return store.read([Extent("a")])[0]


def count(store: Store) -> None:
    with writing(store) as turn:
        turn.commit(put(b"%d" % (int(value(turn.store) or b"") + 1)))


def test_a_turn_reads_and_commits(store: Store) -> None:
    for _ in range(3):
        count(store)
    assert value(store) == b"3"


def test_a_commit_gives_the_number_of_the_new_version(store: Store) -> None:
    with writing(store) as turn:
        number = turn.commit(put(b"1"))
    if isinstance(store, Versioned):
        assert number in (version_number(store.version()), NO_VERSION)
    else:
        assert number is None


def test_a_turn_shows_the_store_that_gave_it(store: Store) -> None:
    with writing(store) as turn:
        assert turn.store is store


def test_a_turn_without_a_commit_changes_nothing(store: Store) -> None:
    with writing(store):
        pass
    assert value(store) == b"0"
    count(store)
    assert value(store) == b"1"


def test_an_exception_ends_a_turn(store: Store) -> None:
    def fail(error: BaseException) -> None:
        with writing(store) as turn:
            assert value(turn.store) is not None
            raise error

    for error in (KeyError("a"), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            fail(error)
    assert value(store) == b"0"
    count(store)
    assert value(store) == b"1"


def test_an_exception_after_the_commit_does_not_undo_it(store: Store) -> None:
    def fail() -> None:
        with writing(store) as turn:
            turn.commit(put(b"1"))
            raise KeyError("a")

    with pytest.raises(KeyError):
        fail()
    assert value(store) == b"1"
    count(store)
    assert value(store) == b"2"


def test_a_refused_commit_leaves_the_turn_to_another_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True, wait=0)
    with store.writing() as turn:
        with pytest.raises(UnsafeError):
            turn.commit(Commit(publish=(store.stage("a", b"1"), Put(".lock", b""))))
        turn.commit(put(b"2"))
    assert list(store.names(hidden=True)) == ["a"]
    assert value(store) == b"2"


def test_a_turn_of_a_folder_commits_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True, wait=0)
    with store.writing() as turn:
        turn.commit(put(b"1"))
        with pytest.raises(ValueError, match="commits once"):
            turn.commit(put(b"2"))
    with pytest.raises(ValueError, match="commits once"):
        turn.commit(put(b"3"))
    assert value(store) == b"1"


def test_one_turn_at_a_time(tmp_path: Path) -> None:
    store, other = (LocalStore(tmp_path, writable=True, wait=0) for _ in range(2))
    with store.writing() as turn:
        with pytest.raises(LockedError), other.writing():
            pass
        with pytest.raises(LockedError), store.writing():
            pass
        turn.commit(put(b"1"))
    count(other)
    assert value(store) == b"2"


@pytest.mark.parametrize("step", ["recover", "sweep", "apply"])
def test_an_interrupt_at_any_step_releases_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupt(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    store, other = (LocalStore(tmp_path, writable=True, wait=0) for _ in range(2))
    store.apply(put(b"0"))
    with monkeypatch.context() as patch:
        patch.setattr(local_commit.CommitRun, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            count(store)
    count(other)
    count(store)
    assert value(store) == b"2"
    assert list(store.names(hidden=True)) == ["a"]

"""A handle is on the committed state, and stays on one state inside a snapshot."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.containers import handle as handles
from ingot.containers.handle import Handle, TransactionalHandle
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    UnsafeError,
)
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
    memory,
)
from ingot.stores.local.lock import LockState
from ingot.stores.transaction import TransactionStore
from ingot.stores.versions import is_switching

quick = pytest.mark.skipif(native.choice().name != "native", reason="the twin has no quick look")


@pytest.fixture(params=["memory", "local"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryStore | LocalStore:
    if request.param == "memory":
        return MemoryStore()
    return LocalStore(tmp_path / "a", writable=True, wait=0.05)


def put(store: Store, **values: bytes) -> None:
    store.apply(Commit(publish=tuple(Put(key, value) for key, value in values.items())))


class Counted:
    """Loads the value of a key, and counts how often."""

    def __init__(self) -> None:
        self.loads = 0

    def __call__(self, view: Store) -> bytes | None:
        self.loads += 1
        return view.read([Extent("a")])[0]


def test_a_value_is_loaded_once_for_each_state(store: MemoryStore | LocalStore) -> None:
    load = Counted()
    handle = Handle(store, load)
    put(store, a=b"1")
    assert [handle.value for _ in range(3)] == [b"1"] * 3
    assert load.loads == 1
    put(store, a=b"2")
    assert [handle.value for _ in range(3)] == [b"2"] * 3
    assert load.loads == 2
    handle.refresh()
    assert load.loads == 3


def test_what_is_read_while_a_writer_commits_is_read_again(
    store: MemoryStore | LocalStore,
) -> None:
    put(store, a=b"1", b=b"1")
    handle = Handle(store, Counted())
    calls = []

    def use(value: bytes | None) -> tuple[bytes | None, bytes | None]:
        calls.append(value)
        if len(calls) == 1:
            put(store, a=b"2", b=b"2")
        return value, store.read([Extent("b")])[0]

    assert handle.read(use) == (b"2", b"2")
    assert calls == [b"1", b"2"]


def test_so_is_what_was_loaded_before(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1", b=b"1")
    handle = Handle(store, Counted())
    assert handle.value == b"1"
    calls = []

    def use(value: bytes | None) -> tuple[bytes | None, bytes | None]:
        calls.append(value)
        if len(calls) == 1:
            put(store, a=b"2", b=b"2")
        return value, store.read([Extent("b")])[0]

    assert handle.read(use) == (b"2", b"2")
    assert calls == [b"1", b"2"]


def test_what_others_changed_before_is_not_used_first(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a", writable=True)
    put(store, a=b"1")
    handle = Handle(LocalStore(tmp_path / "a"), Counted())
    assert handle.value == b"1"
    put(store, a=b"2")
    calls: list[bytes | None] = []
    handle.read(calls.append)
    # Without the native kernel a file that is not kept open says nothing before the look.
    assert calls[-1:] == [b"2"]
    assert len(calls) == (1 if native.choice().name == "native" else 2)


def test_after_the_system_was_started_again_all_is_read_once(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a", writable=True)
    put(store, a=b"1")
    with (tmp_path / "a" / ".lock").open("r+b") as file:
        file.seek(16)
        file.write(bytes(8))
    load = Counted()
    handle = Handle(LocalStore(tmp_path / "a"), load)
    calls: list[bytes | None] = []
    for _ in range(3):
        handle.read(calls.append)
    assert calls == [b"1"] * 3
    assert load.loads == 1


def test_another_dataset_in_its_place_is_noticed(tmp_path: Path) -> None:
    put(LocalStore(tmp_path / "a", writable=True), a=b"1")
    put(LocalStore(tmp_path / "b", writable=True), a=b"2")
    handle = Handle(LocalStore(tmp_path / "a"), Counted())
    assert handle.value == b"1"
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    assert handle.value == b"2"
    (tmp_path / "a").rename(tmp_path / "b")
    assert handle.value is None


def test_so_is_what_fails_meanwhile(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1", b=b"1")
    handle = Handle(store, Counted())

    def use(value: bytes | None) -> bytes | None:
        if value == b"1":
            put(store, a=b"2")
            raise KeyError(value)
        return value

    assert handle.read(use) == b"2"

    def fail(value: bytes | None) -> None:
        raise KeyError(value)

    with pytest.raises(KeyError):
        handle.read(fail)


def test_a_reader_that_never_comes_to_an_end_holds_the_state(
    store: MemoryStore | LocalStore,
) -> None:
    put(store, a=b"0")
    handle = Handle(store, Counted())
    refused = []

    def use(value: bytes | None) -> int:
        number = int(value or b"0")

        def write() -> None:
            try:
                put(store, a=b"%d" % (number + 1))
            except LockedError as error:
                refused.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        writer.join(0.2)
        return number

    assert handle.read(use) == 5
    if isinstance(store, LocalStore):
        assert refused


def test_a_change_is_built_on_the_state_of_others(store: MemoryStore | LocalStore) -> None:
    one, other = Handle(store, Counted()), Handle(store, Counted())

    for handle in [one, other] * 10:
        with handle.writing() as turn:
            new = b"%d" % (int(turn.value or b"0") + 1)
            turn.commit(new, Commit(publish=(Put("a", new),)))
    assert one.value == other.value == b"20"


def test_a_change_that_fails_changes_nothing(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1")
    handle = Handle(store, Counted())
    with pytest.raises(KeyError), handle.writing() as turn:
        raise KeyError(turn.value)
    assert handle.value == b"1"


def test_a_snapshot_stays(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1")
    handle, load = Handle(store, Counted()), Counted()
    with handle.snapshot(), handle.snapshot():
        assert handle.value == b"1"
        with pytest.raises(ReadOnlyError, match="snapshot"), handle.writing():
            pass
    put(store, a=b"3")
    assert handle.value == b"3"
    assert load.loads == 0


def held_elsewhere(handle: Handle[bytes | None]) -> tuple[threading.Thread, threading.Event]:
    """Return a thread that is inside of a snapshot, and what lets it leave."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with handle.snapshot():
            entered.set()
            leave.wait(10)

    other = threading.Thread(target=hold)
    other.start()
    assert entered.wait(10)
    return other, leave


def test_snapshots_of_several_threads_end_with_the_last(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1")
    handle = Handle(store, Counted())
    other, leave = held_elsewhere(handle)
    with handle.snapshot():
        leave.set()
        other.join(10)
        # The first one has ended; no writer may write before this one does.
        writer = threading.Thread(target=lambda: suppressed(lambda: put(store, a=b"2")))
        writer.start()
        writer.join(0.2)
        assert handle.read(lambda _: store.read([Extent("a")])) == [b"1"]
        with pytest.raises(ReadOnlyError), handle.writing():
            pass
    writer.join(10)
    set_value(handle, b"3")
    assert handle.value == b"3"


def test_what_is_read_while_a_snapshot_of_another_thread_ends_is_of_one_state(
    store: MemoryStore | LocalStore,
) -> None:
    put(store, a=b"1", b=b"1")
    handle = Handle(store, Counted())
    other, leave = held_elsewhere(handle)
    calls = []

    def use(value: bytes | None) -> tuple[bytes | None, bytes | None]:
        calls.append(value)
        if len(calls) == 1:
            leave.set()
            other.join(10)
            put(store, a=b"2", b=b"2")
        return value, store.read([Extent("b")])[0]

    assert handle.read(use) == (b"2", b"2")
    assert calls == [b"1", b"2"]


@pytest.mark.usefixtures("_steps_in_python")
def test_what_is_read_before_and_after_a_rename_is_not_of_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    put(store, a=b"1")
    handle = Handle(store, Counted())
    renamed, go_on, real = threading.Event(), threading.Event(), os.rename

    def rename(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if target == "a":
            renamed.set()
            assert go_on.wait(10)

    monkeypatch.setattr(os, "rename", rename)
    writer = threading.Thread(target=lambda: put(store, a=b"2"))
    calls = []

    def use(value: bytes | None) -> tuple[bytes | None, bytes | None]:
        calls.append(value)
        if len(calls) == 1:
            writer.start()
            assert renamed.wait(10)
            # The writer goes on when this reader has looked again, and waits for it.
            threading.Timer(0.2, go_on.set).start()
        return value, store.read([Extent("a")])[0]

    assert handle.read(use) == (b"2", b"2")
    assert calls == [b"1", b"2"]
    writer.join(10)
    assert handle.value == b"2"


def test_what_fails_while_a_writer_prepares_is_tried_again(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    put(store, a=b"1")
    handle, tries = Handle(store, Counted()), []

    def use(value: bytes | None) -> int:
        tries.append(value)
        if len(tries) == 1:
            raise CorruptionError("an index and a chunk of two shards")
        return len(tries)

    with store.writing() as turn:
        assert handle.read(use) == 2
        turn.commit(Commit())
    tries.clear()
    with pytest.raises(CorruptionError):
        handle.read(use)


@pytest.mark.usefixtures("_steps_in_python")
def test_a_rename_that_fails_keeps_no_reader_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(source: str, target: str, **named: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    store = LocalStore(tmp_path, writable=True)
    put(store, a=b"1")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="Input/output error"):
            put(store, a=b"2")
    assert not is_switching(store.version())
    load = Counted()
    handle = Handle(store, load)
    assert [handle.value for _ in range(3)] == [b"1"] * 3
    assert load.loads == 1


def set_value(handle: Handle[bytes | None], value: bytes) -> None:
    with handle.writing() as turn:
        turn.commit(value, Commit(publish=(Put("a", value),)))


def suppressed(call: Callable[[], None]) -> None:
    with suppress(LockedError):
        call()


def test_a_snapshot_stays_for_other_handles_of_its_thread(
    store: MemoryStore | LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_WAIT", 0.05)
    put(store, a=b"1")
    one, other = Handle(store, Counted()), Handle(store, Counted())
    with one.snapshot():
        with pytest.raises(LockedError, match=r"held|locked"):
            set_value(other, b"2")
        assert store.read([Extent("a")]) == [b"1"]
    set_value(other, b"2")
    assert one.value == b"2"


def test_a_closed_handle_says_so(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1")
    handle = Handle(store, Counted())
    handle.close("the thing")
    for use in (
        lambda: handle.value,
        lambda: set_value(handle, b"2"),
        lambda: handle.snapshot().__enter__(),
    ):
        with pytest.raises(ValueError, match="the thing is closed"):
            use()


def test_a_read_that_fails_inside_a_snapshot_is_not_repeated(
    store: MemoryStore | LocalStore,
) -> None:
    put(store, a=b"1")
    handle, calls = Handle(store, Counted()), []

    def fail(value: bytes | None) -> None:
        calls.append(value)
        raise CorruptionError("the chunk is damaged")

    with handle.snapshot():
        for count in (1, 2):
            with pytest.raises(CorruptionError, match="the chunk is damaged"):
                handle.read(fail)
            assert calls == [b"1"] * count
        assert handle.value == b"1"


@pytest.mark.parametrize("damaged", [False, True])
def test_a_read_that_fails_as_another_thread_ends_the_snapshot_is_repeated(
    store: MemoryStore | LocalStore, damaged: bool
) -> None:
    put(store, a=b"1", b=b"1")
    handle, calls = Handle(store, Counted()), []
    other, leave = held_elsewhere(handle)

    def use(value: bytes | None) -> tuple[bytes | None, bytes | None]:
        calls.append(value)
        if len(calls) == 1:
            leave.set()
            other.join(10)
            put(store, a=b"2", b=b"2")
        if len(calls) == 1 or damaged:
            raise CorruptionError("the chunk is damaged")
        return value, store.read([Extent("b")])[0]

    if damaged:
        with pytest.raises(CorruptionError):
            handle.read(use)
    else:
        assert handle.read(use) == (b"2", b"2")
    assert calls == [b"1", b"2"]


# Transactions ------------------------------------------------------------------------------------


def transactional(store: Store) -> tuple[TransactionalHandle[bytes | None], list[Store]]:
    """Return a handle with transactions, and the list of the stores that it loads from."""
    views: list[Store] = []

    def load(view: Store) -> bytes | None:
        views.append(view)
        return view.read([Extent("a")])[0]

    return TransactionalHandle(Handle(store, load), load), views


def elsewhere(call: Callable[[], object]) -> None:
    """Make a call in another thread, and wait for it."""
    thread = threading.Thread(target=call)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


def test_another_threads_refresh_loads_the_committed_state(
    store: MemoryStore | LocalStore,
) -> None:
    put(store, a=b"1")
    handle, views = transactional(store)
    with handle.transaction():
        with handle.writing() as turn:
            turn.commit(b"2", Commit(publish=(Put("a", b"2"),)))
        views.clear()
        elsewhere(handle.refresh)
        assert views == [store]
        assert handle.value == b"2"
        handle.refresh()
        assert isinstance(views[-1], TransactionStore)
        assert handle.value == b"2"
    assert handle.value == b"2"
    assert store.read([Extent("a")]) == [b"2"]


def test_another_threads_snapshot_is_of_the_committed_state_and_keeps_it(
    store: MemoryStore | LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_WAIT", 0.05)
    put(store, a=b"1")
    handle, _ = transactional(store)
    seen: list[object] = []

    def look() -> None:
        with handle.snapshot():
            seen.append(handle.value)
            try:
                set_value(Handle(store, Counted()), b"3")
            except LockedError:
                seen.append("locked")

    with handle.transaction():
        with handle.writing() as turn:
            turn.commit(b"2", Commit(publish=(Put("a", b"2"),)))
        with handle.snapshot():
            elsewhere(look)
            assert handle.value == b"2"
    assert seen == [b"1", "locked"]
    assert handle.value == b"2"


BAD: list[tuple[Edit, type[IngotError]]] = [
    (Put("../a", b"x"), UnsafeError),
    (Delete("a/../../b"), UnsafeError),
    (Patch("absent", 0, b"x"), NotFoundError),
    (Patch("a", 3, b"x"), CorruptionError),
]


@pytest.mark.parametrize(("edit", "error"), BAD)
def test_a_bad_commit_is_refused_inside_a_transaction(
    store: MemoryStore | LocalStore, edit: Edit, error: type[IngotError]
) -> None:
    put(store, a=b"1", b=b"1")
    handle, _ = transactional(store)
    with handle.transaction():
        with handle.writing() as turn:
            turn.commit(b"2", Commit(publish=(Put("a", b"2"),)))
        with pytest.raises(error), handle.writing() as turn:
            turn.commit(b"3", Commit(publish=(edit, Put("b", b"3"))))
        assert handle.value == b"2"
        assert handle.store.read([Extent("b")]) == [b"1"]
        assert handle.store.location == store.location
    assert handle.value == b"2"
    assert store.read([Extent("a"), Extent("b")]) == [b"2", b"1"]


def test_a_transaction_takes_no_value_that_is_not_staged(store: MemoryStore | LocalStore) -> None:
    put(store, a=b"1")
    handle, _ = transactional(store)

    def take() -> None:
        with handle.transaction(), handle.writing() as turn:
            turn.commit(b"3", Commit(publish=(Move(".g-1f-a", "a"),)))

    with pytest.raises(NotFoundError, match="g-1f-a"):
        take()
    assert store.read([Extent("a")]) == [b"1"]


# Arrays ------------------------------------------------------------------------------------------


def test_two_handles_of_one_array(store: MemoryStore | LocalStore) -> None:
    one = ingot.array(np.arange(5), store, chunks=4)
    other = ingot.open(store, "r+")
    reader = ingot.open(store)
    one.append([5, 6, 7, 8])
    assert len(reader) == len(other) == 9
    assert reader[-1] == 8
    other.append([9])
    one.append([10])
    assert reader[...].tolist() == list(range(11))
    other.resize(3)
    assert one[...].tolist() == reader[...].tolist() == [0, 1, 2]
    with pytest.raises(IndexError):
        one[3]
    one.attrs["a"] = 1
    other.attrs["b"] = 2
    assert dict(reader.attrs) == {"a": 1, "b": 2}


def test_an_array_that_goes_away(store: MemoryStore | LocalStore) -> None:
    array = ingot.array(np.arange(5), store, format="zarr2")
    store.apply(Commit(publish=(Delete(".zarray"),)))
    with pytest.raises(NotFoundError):
        array[0]


def test_an_array_that_is_replaced_by_another(store: MemoryStore | LocalStore) -> None:
    array = ingot.array(np.arange(5), store, attrs={"old": 1}, format="zarr2")
    ingot.array(np.ones((2, 2)), store, overwrite=True, format="zarr2")
    assert array.shape == (2, 2)
    assert array[...].tolist() == [[1, 1], [1, 1]]
    assert dict(array.attrs) == {}


def test_a_snapshot_of_an_array(tmp_path: Path) -> None:
    array = ingot.array(np.arange(5), tmp_path / "a", chunks=2)
    writer = LocalStore(tmp_path / "a", writable=True, wait=0.05)
    with array.snapshot():
        with pytest.raises(LockedError):
            ingot.open(writer, "r+").append([5])
        with pytest.raises(ReadOnlyError):
            array.append([5])
        assert sum(len(block) for _, block in array.blocks(nbytes=16)) == 5
    ingot.open(writer, "r+").append([5])
    assert len(array) == 6


@pytest.mark.parametrize("format", ["zarr2", "zarr3", "bcolz"])
def test_what_a_snapshot_refuses_leaves_nothing_behind(tmp_path: Path, format: str) -> None:
    array = ingot.array(np.arange(6), tmp_path / "a", chunks=2, format=format)
    before = sorted(tmp_path.rglob("*"))
    with array.snapshot(), pytest.raises(ReadOnlyError):
        array[...] = 7
    assert sorted(tmp_path.rglob("*")) == before
    assert array[...].tolist() == list(range(6))


def documents(value: bytes | None) -> dict[str, bytes | None]:
    return {"a": value}


@pytest.fixture
def watched(tmp_path: Path) -> tuple[Handle[bytes | None], Counted, Path]:
    """Return a handle that knows its document, how often it was loaded, and the document."""
    store, load = LocalStore(tmp_path / "a", writable=True), Counted()
    put(store, a=b"1")
    handle = Handle(store, load, documents=documents)
    assert handle.value == b"1"
    return handle, load, tmp_path / "a" / "a"


def settle(path: Path, seconds: int) -> None:
    then = time.time_ns() - seconds * 1_000_000_000
    os.utime(path, ns=(then, then))


def test_a_writer_has_what_another_program_wrote(
    watched: tuple[Handle[bytes | None], Counted, Path],
) -> None:
    handle, load, path = watched
    path.write_bytes(b"7")
    assert handle.value == b"1"  # Readers do not look.
    with handle.writing() as turn:
        assert turn.value == b"7"
        turn.commit(b"8", Commit(publish=(Put("a", b"8"),)))
    assert handle.value == path.read_bytes() == b"8"
    assert load.loads == 2
    with handle.writing() as turn:
        assert turn.value == b"8"
    assert load.loads == 2


def test_a_writer_that_fails_leaves_the_handle_on_what_it_found(
    watched: tuple[Handle[bytes | None], Counted, Path],
) -> None:
    handle, _, path = watched
    path.write_bytes(b"7")
    with pytest.raises(ZeroDivisionError), handle.writing():
        raise ZeroDivisionError
    assert handle.value == b"7"


def test_a_document_that_was_written_again_is_loaded_again(
    watched: tuple[Handle[bytes | None], Counted, Path],
) -> None:
    handle, load, path = watched
    settle(path, 20)
    for _ in range(2):
        with handle.writing():
            pass
    assert load.loads == 1
    path.write_bytes(b"1")
    settle(path, 10)
    with handle.writing() as turn:
        assert turn.value == b"1"
    assert load.loads == 2


def test_a_read_that_fails_is_repeated_after_a_foreign_change(
    watched: tuple[Handle[bytes | None], Counted, Path],
) -> None:
    handle, _, path = watched

    def use(value: bytes | None) -> bytes | None:
        if value == b"1":
            raise CorruptionError("a chunk is missing")
        return value

    with pytest.raises(CorruptionError):
        handle.read(use)
    path.write_bytes(b"7")
    assert handle.read(use) == b"7"


def test_a_document_that_cannot_be_read_any_more_is_refused(tmp_path: Path) -> None:
    array = ingot.array(np.arange(10), tmp_path / "a", chunks=4)
    array[0] = 0
    (tmp_path / "a" / "zarr.json").write_bytes(b"{")
    with pytest.raises(FormatError) as caught:
        array.append([1])
    assert any("another program" in note for note in caught.value.__notes__)
    assert (tmp_path / "a" / "zarr.json").read_bytes() == b"{"
    (tmp_path / "a" / "zarr.json").unlink()
    with pytest.raises(NotFoundError):
        array.append([1])
    assert not (tmp_path / "a" / "zarr.json").exists()


@pytest.mark.parametrize("format", ["zarr0", "zarr1", "zarr2", "zarr3", "bcolz"])
def test_another_array_at_the_same_path_is_not_overwritten(tmp_path: Path, format: str) -> None:
    ingot.array(np.arange(10), tmp_path / "a", format=format, chunks=4)
    ingot.array(np.arange(6) * 0.5, tmp_path / "b", format=format, chunks=3)
    stale = ingot.open(tmp_path / "a", "r+")
    assert isinstance(stale, ingot.Array)
    assert stale[9] == 9
    for file in [file for file in (tmp_path / "a").rglob("*") if file.is_file()]:
        if file.name != ".lock":
            file.unlink()
    for file in [file for file in (tmp_path / "b").rglob("*") if file.is_file()]:
        if file.name != ".lock":
            shutil.copy(file, tmp_path / "a" / file.relative_to(tmp_path / "b"))
    stale.append([7])
    stale[0] = 1.5
    found = ingot.open(tmp_path / "a")
    assert isinstance(found, ingot.Array)
    assert list(found[...]) == [1.5, 0.5, 1.0, 1.5, 2.0, 2.5, 7.0]


@pytest.mark.usefixtures("kernel")
def test_a_key_is_of_the_committed_state_though_a_value_is_at_hand(tmp_path: Path) -> None:
    array = ingot.array(np.arange(6), tmp_path / "a", chunks=4)
    other = ingot.open(tmp_path / "a", "r+")
    other.append([6, 7])
    array[-1] = 70
    array[6] = 60
    assert other[...].tolist() == [0, 1, 2, 3, 4, 5, 60, 70]
    other.resize(3)
    with pytest.raises(IndexError):
        array[5] = 50
    array[-1] = 20
    assert other[...].tolist() == [0, 1, 20]
    array.append([3.0])
    assert other[...].tolist() == [0, 1, 20, 3]


def test_the_value_at_hand_is_given_without_a_look_at_the_store(
    store: MemoryStore | LocalStore,
) -> None:
    store.apply(Commit(publish=(Put("n", b"1"),)))
    handle = Handle(store, lambda view: view.read([Extent("n")])[0])
    assert handle.recent() == b"1"
    store.apply(Commit(publish=(Put("n", b"2"),)))
    assert handle.recent() == b"1"
    assert handle.value == b"2"
    assert handle.recent() == b"2"
    handle.close("it")
    with pytest.raises(ValueError, match="it is closed"):
        handle.recent()


def test_a_value_with_the_same_documents_is_renewed(store: MemoryStore | LocalStore) -> None:
    load = Counted()
    renewed: list[bytes | None] = []

    def renew(value: bytes | None, of: Store) -> bytes | None:
        assert of is store
        renewed.append(value)
        return value

    handle = Handle(store, load, documents=lambda value: {"a": value}, renew=renew)
    put(store, a=b"1")
    assert handle.value == b"1"
    put(store, b=b"2")
    assert handle.value == b"1"
    assert (load.loads, renewed) == (1, [b"1"])
    put(store, a=b"3")
    assert handle.value == b"3"
    assert (load.loads, renewed) == (2, [b"1"])


@quick
@pytest.mark.parametrize("at_work", [False, True])
def test_a_state_with_the_same_documents_takes_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_work: bool
) -> None:
    """A reader beside a writer does not read the version, the journal and the documents apart."""
    expected = np.arange(100)
    writer = ingot.array(expected, tmp_path / "a", format="blsk", chunks=10)
    _age(tmp_path / "a")
    reader = ingot.open(tmp_path / "a")
    assert isinstance(reader, ingot.Array)
    writer[3] = expected[3] = 7
    assert reader[3] == 7
    looks: list[str] = []
    view = LocalStore.view

    def noted(store: LocalStore) -> Store:
        looks.append("view")
        return view(store)

    monkeypatch.setattr(LocalStore, "view", noted)
    for number in range(4, 20):
        writer[number] = expected[number] = 7
        if at_work:
            # As it is from the lock on, until the commit is made.
            _write_into(tmp_path / "a/.lock", 24, bytes([LockState.BUSY]))
        looks.clear()
        assert reader[number] == 7
        assert looks == []
    assert np.array_equal(reader[...], expected)


@quick
@pytest.mark.parametrize("change", ["journal", "log", "switching", "document", "lock", "other"])
def test_whatever_is_unusual_takes_more_than_one_look(tmp_path: Path, change: str) -> None:
    writer = ingot.array(np.arange(100), tmp_path / "a", format="blsk", chunks=10)
    writer[3] = 7
    _age(tmp_path / "a")
    store = LocalStore(tmp_path / "a")
    keys = ("meta/storage", "meta/nrows", "meta/attributes")
    contents = dict(zip(keys, store.read([Extent(key) for key in keys]), strict=True))
    kept = store.keep_documents(contents)
    assert kept is not None
    assert kept.check(False)
    version = store.version()
    assert version is not None
    assert store.committed_as(kept) == version.sequence
    lock = tmp_path / "a/.lock"
    if change == "document":
        (tmp_path / "a/meta/nrows").write_bytes(b"100\n")
    elif change == "lock":
        lock.unlink()
    elif change == "other":
        shutil.move(tmp_path / "a", tmp_path / "b")
    elif change == "switching":
        _write_into(lock, 15, b"\x80")
        _write_into(lock, 24, bytes([LockState.BUSY]))
    else:
        _write_into(lock, 24, bytes([LockState.BUSY]))
        assert store.committed_as(kept) == version.sequence
        (tmp_path / "a" / {"journal": ".commit", "log": ".log"}[change]).write_bytes(b"")
    assert store.committed_as(kept) is None
    assert LocalStore(tmp_path / "c").committed_as(kept) is None


def _age(folder: Path) -> None:
    """Let all files of a folder be old enough to be known by their times."""
    for file in folder.rglob("*"):
        os.utime(file, (1e9, 1e9))


def _write_into(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def test_large_reads_that_were_overtaken_pin_the_state(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "a", writable=True, wait=0.05)
    put(store, a=b"0")
    handle = Handle(LocalStore(tmp_path / "a"), lambda view: view.read([Extent("a")])[0])
    overtaking = [b"1", b"2", b"3"]
    calls: list[bytes | None] = []

    def use(value: bytes | None) -> bytes | None:
        calls.append(value)
        if overtaking:
            with suppress(LockedError):
                put(store, a=overtaking.pop(0))
        return value

    # The first attempt is overtaken. The second one holds the lock, and the writer gives up.
    assert handle.read(use, lambda value: 1 << 20) == b"1"
    assert calls == [b"0", b"1"]
    # So does the first attempt from now on, as long as reads are as large.
    assert handle.read(use, lambda value: 2 << 20) == b"1"
    assert calls == [b"0", b"1", b"1"]
    # A small read is tried again.
    overtaking.append(b"4")
    assert handle.read(use, lambda value: 8) == b"4"
    assert calls == [b"0", b"1", b"1", b"1", b"4"]


def test_readers_that_pin_do_not_keep_a_writer_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "_LONGEST_PIN", 0.05)
    store = LocalStore(tmp_path / "a", writable=True, wait=20)
    put(store, a=b"0")
    stop = threading.Event()

    def use(value: bytes | None) -> bytes | None:
        time.sleep(0.02)
        return value

    def read_on() -> None:
        handle = Handle(LocalStore(tmp_path / "a"), lambda view: view.read([Extent("a")])[0])
        while not stop.is_set():
            handle.read(use, lambda value: 1 << 20)

    readers = [threading.Thread(target=read_on) for _ in range(4)]
    for reader in readers:
        reader.start()
    try:
        begun = time.monotonic()
        for number in range(5):
            put(store, a=b"%d" % number)
        assert time.monotonic() - begun < 15
    finally:
        stop.set()
        for reader in readers:
            reader.join()

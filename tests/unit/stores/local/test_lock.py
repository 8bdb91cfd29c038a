"""One writer at a time, readers notice each commit, and killed processes hold no lock."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ingot.containers.handle import Handle
from ingot.errors import FormatError, LockedError, UnsafeError, UnsupportedError
from ingot.stores import Commit, Delete, Extent, LocalStore, Put, read_state
from ingot.stores.local import lock
from ingot.stores.local.lock import LockState
from tests.storage import open_files

pytestmark = pytest.mark.usefixtures("_soon", "_no_leaks")


@pytest.fixture
def folder(tmp_path: Path) -> int:
    descriptor = os.open(tmp_path, os.O_RDONLY)
    yield descriptor
    os.close(descriptor)


def _acquire(folder: int, wait: float = 0.05) -> lock.WriterLock:
    return lock.acquire(folder, ".lock", wait, "here")


def test_there_is_one_writer(folder: int) -> None:
    first = _acquire(folder)
    with pytest.raises(LockedError, match=rf"here: locked by process {os.getpid()} on .* since"):
        _acquire(folder)
    first.release()
    first.release()
    _acquire(folder).release()


def test_what_is_left_behind_is_found(folder: int) -> None:
    for left, found in (
        (None, LockState.NEW),
        (LockState.CLEAN, LockState.BUSY),
        (LockState.LOOSE, LockState.CLEAN),
        (None, LockState.LOOSE),
        (None, LockState.BUSY),
    ):
        turn = _acquire(folder)
        assert turn.found is found
        if left is not None:
            turn.mark(left)
        turn.release()


def test_another_run_of_the_system_leaves_nothing_certain(
    folder: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = _acquire(folder)
    turn.mark(LockState.CLEAN)
    turn.release()
    seen = lock.version(f"{tmp_path}/.lock")
    assert seen is not None
    assert seen.settled
    monkeypatch.setattr(lock, "_system", lambda: b"another!")
    again = lock.version(f"{tmp_path}/.lock")
    assert again == (seen.sequence, False)
    turn = _acquire(folder)
    assert turn.found is LockState.UNKNOWN
    turn.release()


def test_a_foreign_lock_file_is_refused(folder: int, tmp_path: Path) -> None:
    (tmp_path / ".lock").write_bytes(b"12345 foreign")
    with pytest.raises(FormatError, match="not made by Ingot"):
        _acquire(folder)
    assert (tmp_path / ".lock").read_bytes() == b"12345 foreign"
    assert lock.version(f"{tmp_path}/.lock") is None
    (tmp_path / ".lock").unlink()
    (tmp_path / "target").write_bytes(b"")
    (tmp_path / ".lock").symlink_to("target")
    with pytest.raises(UnsafeError, match="plain file"):
        _acquire(folder)
    (tmp_path / ".lock").unlink()
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(UnsafeError, match="plain file"):
        _acquire(folder)


def test_a_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    monkeypatch.setattr(lock, "_probed", set())
    monkeypatch.setattr(lock, "take", lambda *arguments: True)
    with pytest.raises(UnsupportedError, match="one lock twice"):
        store.apply(Commit(publish=(Put("a", b"x"),)))

    def none(*arguments: object) -> bool:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(lock, "take", none)
    with pytest.raises(UnsupportedError, match="No locks available"):
        store.apply(Commit(publish=(Put("a", b"x"),)))
    assert store.read([Extent("a")]) == [None]
    alone = LocalStore(tmp_path, writable=True, locking=False)
    alone.apply(Commit(publish=(Put("a", b"x"), Put("b", b"y"))))
    assert read_state(alone, lambda view: view.read([Extent("a"), Extent("b")])) == [b"x", b"y"]


def test_the_number_changes_with_the_state(tmp_path: Path) -> None:
    store, reader = LocalStore(tmp_path, writable=True), LocalStore(tmp_path)
    seen = [reader.version()]
    for commit in (
        Commit(publish=(Put("a", b"x"),)),
        Commit(publish=(Put("a", b"y"), Put("b", b"y"))),
        Commit(publish=(Delete("a"),)),
    ):
        store.apply(commit)
        seen.append(reader.version())
    assert seen[0] is None
    assert len(set(seen)) == 4
    assert reader.version() == seen[-1]


def test_a_reader_that_holds_the_state_keeps_it(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True, wait=0.05)
    store.apply(Commit(publish=(Put("a", b"old"),)))
    with LocalStore(tmp_path).pin() as view, LocalStore(tmp_path).pin():
        with pytest.raises(LockedError, match="reader"):
            store.apply(Commit(publish=(Put("a", b"new"),)))
        assert view.read([Extent("a")]) == [b"old"]
    assert [name for name in os.listdir(tmp_path) if name.startswith(".g-")] == []
    store.apply(Commit(publish=(Put("a", b"new"),)))
    assert store.read([Extent("a")]) == [b"new"]


def test_a_writer_waits_for_another(tmp_path: Path, folder: int) -> None:
    turn = _acquire(folder)
    store = LocalStore(tmp_path, writable=True, wait=60)
    writer = threading.Thread(target=store.apply, args=(Commit(publish=(Put("a", b"x"),)),))
    writer.start()
    writer.join(0.1)
    assert writer.is_alive()
    assert store.read([Extent("a")]) == [None]
    turn.release()
    writer.join(60)
    assert store.read([Extent("a")]) == [b"x"]


def test_a_killed_process_holds_no_lock(tmp_path: Path, folder: int) -> None:
    program = (
        "import os, sys\n"
        "from ingot.stores.local import lock\n"
        "turn = lock.acquire(os.open(sys.argv[1], os.O_RDONLY), '.lock', 1, 'there')\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(LockedError, match=f"process {process.pid} on"):
            _acquire(folder)
        process.kill()
    turn = _acquire(folder)
    assert turn.found is LockState.BUSY
    turn.release()


def test_a_forked_child_keeps_no_lock(folder: int) -> None:
    turn = _acquire(folder)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writing)
        os.read(reading, 1)  # Until the parent is done: the child outlives the lock.
        os._exit(0)
    os.close(reading)
    # Closing without a word is what the end of a process does; a child must not keep the lock.
    turn.forget()  # type: ignore[attr-defined]
    _acquire(folder).release()
    os.close(writing)
    os.waitpid(child, 0)


@pytest.mark.usefixtures("_steps_in_python")
def test_a_failed_sync_is_the_last_word_of_a_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"old"),)))
    real = os.fdatasync

    def broken(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(OSError, match="Input/output error"):
        store.apply(Commit(publish=(Put("a", b"new"),)))
    monkeypatch.setattr(os, "fdatasync", real)
    with pytest.raises(PermissionError, match="failed sync"):
        store.apply(Commit(publish=(Put("a", b"new"),)))
    again = LocalStore(tmp_path, writable=True)
    assert again.read([Extent("a")]) == [b"old"]
    again.apply(Commit(publish=(Put("a", b"new"),)))
    assert again.read([Extent("a")]) == [b"new"]


def test_a_commit_that_cannot_be_built_leaves_the_store_clean(
    tmp_path: Path, folder: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"1"),)))

    def refuse() -> None:
        with store.writing():
            with pytest.raises(LockedError):
                LocalStore(tmp_path, writable=True, wait=0).apply(Commit(publish=(Put("a", b"2"),)))
            raise KeyError("no")

    with pytest.raises(KeyError):
        refuse()
    turn = _acquire(folder)
    assert turn.found is LockState.CLEAN
    turn.release()
    assert store.read([Extent("a")]) == [b"1"]


def test_staged_files_stay_as_long_as_their_owner_runs(tmp_path: Path) -> None:
    store, owner = LocalStore(tmp_path, writable=True), LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("f/a", b"a"),)))
    owner.stage("f/a", b"b")
    store.apply(Commit(publish=(Put("f/a", b"c"),)))
    store.recover()
    assert len(list(store.names("f", hidden=True))) == 2
    del owner
    store.apply(Commit(publish=(Put("f/a", b"c"),)))
    assert list(store.names("f", hidden=True)) == ["a"]


@pytest.mark.skipif(not lock.OFD, reason="the system has no locks of open files")
def test_a_sweep_that_was_asked_for_comes_when_the_last_stager_has_ended(folder: int) -> None:
    _acquire(folder).release()
    stager = lock.announce_staging(folder, ".lock", 0.05, "here")
    assert stager is not None
    turn = _acquire(folder)
    assert not turn.request_sweep()
    turn.release()
    stager.release()
    turn = _acquire(folder)
    # Without the request, a process that only finds its own number has nothing to sweep.
    assert turn.begin_sweep(stager.stager)
    turn.end_sweep()
    turn.release()


@pytest.mark.skipif(not lock.OFD, reason="the system has no locks of open files")
def test_staged_files_stay_until_the_last_of_several_stagers_ends(folder: int) -> None:
    _acquire(folder).release()
    first, second = (lock.announce_staging(folder, ".lock", 0.05, "here") for _ in range(2))
    assert first is not None
    assert second is not None
    first.release()
    turn = _acquire(folder)
    assert not turn.begin_sweep(first.stager)
    assert not turn.request_sweep()
    turn.release()
    second.release()
    turn = _acquire(folder)
    assert turn.begin_sweep(0)
    turn.end_sweep()
    turn.release()
    turn = _acquire(folder)
    assert not turn.begin_sweep(0)
    turn.release()


def test_locks_that_are_released_keep_no_file_open(folder: int, tmp_path: Path) -> None:
    _acquire(folder).release()
    before = open_files(tmp_path)
    locks = [
        lock.pin(folder, ".lock", 1, "here"),
        lock.announce_staging(folder, ".lock", 1, "here"),
        _acquire(folder),
    ]
    assert len(open_files(tmp_path)) > len(before)
    for each in locks:
        if each is not None:
            each.release()
    assert open_files(tmp_path) == before


@pytest.mark.skipif(not lock.OFD, reason="staging early needs locks of open files")
def test_the_lock_file_tells_of_stagers_as_the_format_page_draws_it(
    folder: int, tmp_path: Path
) -> None:
    def stager() -> bytes:
        return (tmp_path / ".lock").read_bytes()[248:256]

    _acquire(folder).release()
    assert stager() == bytes(8)
    first = lock.announce_staging(folder, ".lock", 1, "here")
    assert stager() not in (bytes(8), b"\xff" * 8)
    second = lock.announce_staging(folder, ".lock", 1, "here")
    assert stager() == b"\xff" * 8
    assert first is not None
    assert second is not None
    first.release()
    second.release()


def test_a_lock_that_was_released_is_not_held(folder: int) -> None:
    turn = _acquire(folder)
    assert (turn.held is not None) == lock.OFD
    turn.release()
    assert turn.held is None


def test_a_lock_that_another_holds_leaves_no_file_open(folder: int, tmp_path: Path) -> None:
    held = _acquire(folder)
    before = open_files(tmp_path)
    with pytest.raises(LockedError):
        _acquire(folder, wait=0)
    assert open_files(tmp_path) == before
    held.release()


@pytest.mark.usefixtures("_steps_in_python")
def test_what_a_dead_writer_switched_is_seen_after_recovery(tmp_path: Path) -> None:
    """The rename was done, the number had not changed yet."""
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"old"),)))
    reader = Handle(LocalStore(tmp_path), lambda view: view.read([Extent("a")])[0])
    assert reader.value == b"old"
    child = os.fork()
    if child == 0:
        rename = os.rename

        def die(*names: str, **folders: int) -> None:
            rename(*names, **folders)
            os._exit(9)

        os.rename = die
        LocalStore(tmp_path, writable=True).apply(Commit(publish=(Put("a", b"new"),)))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert reader.value == b"new"
    store.recover()
    assert reader.value == b"new"
    again = Handle(LocalStore(tmp_path), lambda view: view.read([Extent("a")])[0])
    assert again.value == b"new"


def test_recovery_changes_the_number_that_readers_compare(tmp_path: Path, folder: int) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"old"),)))
    turn = _acquire(folder)
    before = store.version()
    turn.release()  # Without a mark: like a writer that died.
    store.recover()
    after = store.version()
    assert before is not None
    assert after is not None
    assert after.sequence != before.sequence
    assert after.settled


def test_a_staged_name_without_an_owner_is_removed_when_asked(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("f/a", b"c"),)))
    (tmp_path / "f/.g-0123456789abcdef-a").write_bytes(b"b")
    store.apply(Commit(publish=(Put("f/a", b"c"),)))
    assert len(list(store.names("f", hidden=True))) == 2
    store.recover()
    assert list(store.names("f", hidden=True)) == ["a"]
    assert store.read([Extent("f/a")]) == [b"c"]


def test_systems_without_locks_of_open_files_lock_whole_ones(tmp_path: Path) -> None:
    program = (
        "import fcntl, os, sys\n"
        "if hasattr(fcntl, 'F_OFD_SETLK'):\n"
        "    del fcntl.F_OFD_SETLK\n"
        "from ingot.errors import LockedError\n"
        "from ingot.stores import Commit, Extent, LocalStore, Put\n"
        "store = LocalStore(sys.argv[1], writable=True, wait=0.05)\n"
        "commit = Commit(publish=(Put('a', b'1'), Put('b', b'1')))\n"
        "store.apply(commit)\n"
        "with store.pin():\n"
        "    try:\n"
        "        store.apply(commit)\n"
        "    except LockedError:\n"
        "        print('waits for readers')\n"
        "with store.writing() as turn:\n"
        "    try:\n"
        "        LocalStore(sys.argv[1], writable=True, wait=0.05).apply(commit)\n"
        "    except LockedError:\n"
        "        print('waits for writers')\n"
        "    turn.commit(Commit(publish=(Put('a', b'2'),)))\n"
        "print(store.read([Extent('a'), Extent('b')]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == [
        "waits for readers",
        "waits for writers",
        "[b'2', b'1']",
    ]


def test_a_lock_file_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only an absent one has no version."""
    store = LocalStore(tmp_path, writable=True)
    assert store.version() is None
    store.apply(Commit(publish=(Put("a", b"x"),)))
    path = f"{tmp_path}/{'x' * 300}"
    with pytest.raises(OSError, match="too long"):
        lock.version_probe(path)[0]()
    with pytest.raises(OSError, match="too long"):
        lock.version(path)

    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", fail)
        with pytest.raises(OSError, match="Input/output error"):
            lock.version(f"{tmp_path}/.lock")
    for absent in (f"{tmp_path}/a/.lock", f"{tmp_path}/b/.lock"):
        assert lock.version(absent) is None
        assert lock.version_probe(absent)[0]() is None


@pytest.mark.parametrize("phase", ["block", "release"])
def test_an_error_after_a_commit_has_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phase: str
) -> None:
    store = LocalStore(tmp_path, writable=True)

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    release = lock._FileWriterLock.release

    def write() -> None:
        with store.writing() as turn:
            turn.commit(Commit(publish=(Put("a", b"x"),)))
            if phase == "block":
                fail()
            monkeypatch.setattr(
                lock._FileWriterLock, "release", lambda each: (release(each), fail())
            )

    with pytest.raises(OSError, match="Input/output error") as raised:
        write()
    assert raised.value.__notes__ == ["the commit is done: readers see it"]
    assert store.read([Extent("a")]) == [b"x"]


def test_a_lock_that_no_variable_holds_is_released(folder: int, tmp_path: Path) -> None:
    before = open_files(tmp_path)
    _acquire(folder)
    assert open_files(tmp_path) == before
    _acquire(folder).release()

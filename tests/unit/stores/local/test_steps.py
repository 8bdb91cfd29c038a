"""The steps of a commit: the kernel and Python leave the same files, and fail alike."""

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import IngotError, NotFoundError, UnsafeError
from ingot.stores.local import lock
from ingot.stores.local.files import LocalFileSystem, run_each
from ingot.stores.local.steps import SYNCS, Op, Progress, Step
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Commit, Delete, Durability, Move, Patch, Put
from ingot.testing.disk import Disk
from tests.kernels import needs_native

RUNNERS = [pytest.param("kernel", marks=needs_native), "python"]


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> str:
    """Run the steps of commits in the kernel, or in Python."""
    if request.param == "python":
        request.getfixturevalue("_steps_in_python")
    return str(request.param)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


COMMITS: dict[str, tuple[Commit, ...]] = {
    "one key": (Commit(publish=(Put("a", b"1"),)), Commit(publish=(Put("a", b"22"),))),
    "two keys, then one removed": (
        Commit(publish=(Put("c/0", b"1"), Put("c/1", b"2"))),
        Commit(publish=(Delete("c/0"),), cleanup=(Delete("absent"),)),
    ),
    "new folders": (Commit(publish=(Put("a/b/c/0", b"x"), Put("a/d", b"y"))),),
    "a folder without files makes room": (
        Commit(publish=(Put("a/b/c", b"x"),)),
        Commit(publish=(Delete("a/b/c"),)),
        Commit(publish=(Put("a/b", b"y"), Put("z", b"z"))),
    ),
    "patches": (
        Commit(publish=(Put("a", b"012345"), Put("b", b"x"))),
        Commit(publish=(Patch("a", 2, b"xy"), Patch("a", 6, b"tail"), Patch("b", 0, b"z"))),
    ),
    "all phases": (
        Commit(publish=(Put("a", b"1"), Put("old", b"2"))),
        Commit((Put("data/1", b"33"),), (Put("a", b"4"), Put("b", b"5")), (Delete("old"),)),
    ),
    "many keys": (Commit(publish=tuple(Put(f"c/{n}", b"%d" % n) for n in range(300))),),
    "empty values": (Commit(publish=(Put("a", b""), Put("b", bytearray()))),),
}


@pytest.mark.parametrize("durability", ["process", "full"])
@pytest.mark.parametrize("name", COMMITS)
@needs_native
def test_the_kernel_leaves_what_python_leaves(
    name: str, durability: Durability, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    by_kernel, by_python = tmp_path / "kernel", tmp_path / "python"
    store = LocalStore(by_kernel, writable=True)
    for commit in COMMITS[name]:
        store.apply(commit, durability=durability)
    request.getfixturevalue("_steps_in_python")
    store = LocalStore(by_python, writable=True)
    for commit in COMMITS[name]:
        store.apply(commit, durability=durability)
    assert _files(by_kernel) == _files(by_python) != {}
    states = [(folder / ".lock").read_bytes()[24] for folder in (by_kernel, by_python)]
    assert states[0] == states[1]
    # Each commit raises the number of the version by as much.
    first, second = (LocalStore(folder, writable=True) for folder in (by_kernel, by_python))
    before = [_sequence(first), _sequence(second)]
    for each in (first, second):
        each.apply(Commit(publish=(Put("x", b"1"), Put("y", b"2"))), durability=durability)
    assert _sequence(first) - before[0] == _sequence(second) - before[1] == 2


def _sequence(store: LocalStore) -> int:
    version = store.version()
    assert version is not None
    return version.sequence


def _with_folder(folder: Path) -> Commit:
    (folder / "a").mkdir()
    (folder / "a/foreign").write_bytes(b"x")
    return Commit(publish=(Put("a", b"1"), Put("b", b"2")))


def _with_missing_source(folder: Path) -> Commit:
    return Commit(publish=(Move(".g-12-a", "a"),))


def _with_link_out(folder: Path) -> Commit:
    (folder / "c").symlink_to("/tmp")
    return Commit(publish=(Put("c/0", b"1"),))


def _with_file_for_folder(folder: Path) -> Commit:
    (folder / "c").write_bytes(b"")
    return Commit(publish=(Put("c/0", b"1"),))


def _with_pipe(folder: Path) -> Commit:
    os.mkfifo(folder / "pipe")
    return Commit(publish=(Patch("pipe", 0, b"1"),))


@pytest.mark.usefixtures("_soon", "_no_leaks")
@pytest.mark.parametrize(
    ("prepare", "error"),
    [
        (_with_folder, UnsafeError),
        (_with_missing_source, NotFoundError),
        (_with_link_out, UnsafeError),
        (_with_file_for_folder, NotADirectoryError),
        (_with_pipe, UnsafeError),
    ],
)
def test_what_cannot_be_committed_changes_nothing(
    prepare: Callable[[Path], Commit], error: type[Exception], runner: str, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    LocalStore(folder, writable=True).apply(Commit(publish=(Put("kept", b"0"),)))
    commit = prepare(folder)
    before = sorted(str(path) for path in folder.rglob("*"))
    with pytest.raises((error, IngotError)) as caught:
        LocalStore(folder, writable=True).apply(commit)
    assert isinstance(caught.value, error)
    assert sorted(str(path) for path in folder.rglob("*")) == before
    LocalStore(folder, writable=True).apply(Commit(publish=(Put("kept", b"1"),)))
    assert (folder / "kept").read_bytes() == b"1"


@pytest.mark.usefixtures("_no_leaks")
def test_a_folder_that_may_not_be_written_names_the_key(runner: str, tmp_path: Path) -> None:
    if os.getuid() == 0:
        pytest.skip("the superuser may write everywhere")
    folder = tmp_path / "data"
    store = LocalStore(folder, writable=True)
    store.apply(Commit(publish=(Put("c/0", b"0"),)))
    (folder / "c").chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(PermissionError, match="c/"):
        store.apply(Commit(publish=(Put("c/0", b"1"),)))
    assert (folder / "c/0").read_bytes() == b"0"


@pytest.mark.usefixtures("_no_leaks")
def test_a_foreign_staged_file_stays_and_is_named(
    runner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"0"),)))
    monkeypatch.setattr(LocalFileSystem, "transaction", lambda self: "0" * 16)
    (tmp_path / f".g-{'0' * 16}.1-b").write_bytes(b"foreign")
    with pytest.raises(FileExistsError, match=r"\.g-0*\.1-b"):
        store.apply(Commit(publish=(Put("a", b"1"), Put("b", b"1"))))
    assert _files(tmp_path) == {"a": b"0", f".g-{'0' * 16}.1-b": b"foreign"}


@needs_native
def test_the_kernel_waits_for_readers_in_python(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True, wait=0.05)
    store.apply(Commit(publish=(Put("a", b"0"),)))
    with store.pin(), pytest.raises(BlockingIOError, match="locked by a reader"):
        store.apply(Commit(publish=(Put("a", b"1"),)))
    assert (tmp_path / "a").read_bytes() == b"0"
    store.apply(Commit(publish=(Put("a", b"2"),)))
    assert (tmp_path / "a").read_bytes() == b"2"


@needs_native
def test_a_commit_is_two_native_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("c/0", b"0"), Put("c/1", b"0"))))
    calls: list[str] = []
    for name in ("begin_turn", "run_steps"):
        real = getattr(native, name)

        def counted(*arguments: object, name: str = name, real: Callable[..., object] = real):  # type: ignore[no-untyped-def]
            calls.append(name)
            return real(*arguments)

        monkeypatch.setattr(native, name, counted)

    def unexpected(*arguments: object, **named: object) -> None:
        raise AssertionError("a step was run in Python")

    monkeypatch.setattr("ingot.stores.local.files.run_each", unexpected)
    store.apply(Commit(publish=(Put("c/0", b"1"), Put("c/1", b"1"))))
    assert calls == ["begin_turn", "run_steps"]


@pytest.fixture
def held(tmp_path: Path) -> Iterator[tuple[int, lock.WriterLock]]:
    """Give an open folder, and its lock."""
    folder = os.open(tmp_path, os.O_RDONLY)
    writer = lock.acquire(folder, ".lock", 1, "here")
    yield folder, writer
    writer.release()
    os.close(folder)


@needs_native
def test_descriptors_and_operations_are_checked(held: tuple[int, lock.WriterLock]) -> None:
    folder, writer = held
    assert writer.held is not None
    with pytest.raises(ValueError, match="20 is no operation"):
        native.run_steps(folder, writer.held, [(20, "", "", 0, b"")], 0, [])
    with pytest.raises(ValueError, match="negative"):
        native.run_steps(-1, writer.held, [], 0, [])


def test_every_step_is_run_on_a_disk_in_memory() -> None:
    disk = Disk({"a": b"old", "b": b"old"})
    steps: list[Step] = [
        (Op.CREATE, "c/.g-1-0", "", 0, b"new"),
        (Op.SYNC_FILES, "", "", 0, b""),
        (Op.CLOSE_FILES, "", "", 0, b""),
        (Op.REQUIRE, "c/0", "c/.g-1-0", 0, b""),
        (Op.RENAME, "c/0", "c/.g-1-0", 0, b""),
        (Op.UNLINK, "b", "", 0, b""),
        (Op.SYNC_FOLDERS, "", "", 0, b""),
        (Op.OPEN, "a", "", 0, b""),
        (Op.WRITE, "", "", 1, b"x"),
        (Op.CLOSE_FILES, "", "", 0, b""),
        (Op.REQUIRE, "d", ".g-1-d", 0, b""),
    ]
    progress = Progress("disk")
    with pytest.raises(NotFoundError, match=r"no key '\.g-1-d' to become 'd'"):
        run_each(disk, steps, disk.lock(".lock", 1, sync=True), progress)
    assert progress.done == len(steps) - 1
    assert disk.read("a", []) is not None
    assert sorted(disk.names("")) == ["a", "c/"]
    assert disk.names("c") == ["0"]
    assert {Op.SYNC_FILES, Op.SYNC_FOLDERS, Op.SYNC_ALL} == SYNCS


@needs_native
def test_only_what_was_staged_before_the_turn_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With syncs, what was staged before is opened, which asks for it as well.
    options = ingot.Options(durability="process")
    array = ingot.array(np.arange(8), tmp_path / "a", chunks=4, options=options)
    ran: list[Any] = []
    real = native.run_steps

    def run_steps(*given: Any) -> Any:
        ran.extend(step[0] for step in given[2])
        return real(*given)

    monkeypatch.setattr(native, "run_steps", run_steps)
    array[2:6] = 10  # Parts of two chunks: a turn.
    assert ran
    assert Op.REQUIRE not in ran
    ran.clear()
    array[...] = 5  # Whole chunks are staged before the lock is taken.
    assert Op.REQUIRE in ran
    assert array[...].tolist() == [5] * 8


def test_a_writer_knows_the_version_of_its_turn(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"0"),)))
    before = store.version()
    assert before is not None
    with store.writing() as turn:
        assert store.version() == LocalStore(tmp_path).version() == (before.sequence, False)
        number = turn.commit(Commit(publish=(Put("a", b"1"),)))
        assert number != before.sequence
    after = store.version()
    assert after == (number, True)

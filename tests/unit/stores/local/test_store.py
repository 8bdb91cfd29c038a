"""What only the stores on the local file system promise."""

import errno
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingot import native
from ingot.errors import IngotError, ReadOnlyError, UnsafeError
from ingot.stores import (
    Commit,
    Delete,
    Extent,
    Feature,
    FileStore,
    LocalStore,
    Patch,
    Put,
    staged_key,
)
from ingot.stores.local import beneath, files, lock
from ingot.stores.local.commit import CommitRun
from ingot.stores.local.files import FolderProbe
from ingot.stores.store import Batch
from tests.storage import open_files

pytestmark = pytest.mark.usefixtures("_soon", "_no_leaks")

WRITING = Feature.WRITE | Feature.ATOMIC_PUT | Feature.PATCH


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    (tmp_path / "a").write_bytes(b"0123456789")
    return LocalStore(tmp_path, writable=True)


@pytest.fixture
def _long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has extents read as where the native kernel is not there, or does not take them."""
    monkeypatch.setattr(native, "read_pieces", lambda root, pieces: None)


def _put(**values: bytes) -> Commit:
    return Commit(publish=tuple(Put(key, value) for key, value in values.items()))


def _everything(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# Reading only


def test_a_store_for_reading_touches_nothing(tmp_path: Path) -> None:
    root = tmp_path / "absent"
    store = LocalStore(root)
    assert not store.features & WRITING
    assert store.read([Extent("a")]) == [None]
    assert store.size("a") is None
    assert list(store.names()) == []
    for commit in (_put(a=b"x"), Commit(cleanup=(Delete("a"),)), Commit()):
        with pytest.raises(ReadOnlyError, match=str(root)):
            store.apply(commit)
    assert not root.exists()


def test_a_writable_store_creates_its_folder_with_the_first_commit(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "down"
    store = LocalStore(root, writable=True)
    assert store.features & WRITING == WRITING
    store.apply(Commit())
    assert store.read([Extent("a")]) == [None]
    assert not root.exists()
    store.apply(_put(a=b"x"))
    assert (root / "a").read_bytes() == b"x"


def test_a_root_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalStore(tmp_path / "file", writable=True)
    for use in (lambda: store.read([Extent("a")]), lambda: store.apply(_put(a=b"x"))):
        with pytest.raises(NotADirectoryError, match="file"):
            use()


# Reading


def test_each_key_is_opened_once(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.apply(_put(b=b"abc"))
    opened = []
    real = beneath._open_beneath

    def count(inside: int, key: str, flags: int) -> int:
        opened.append(key)
        return real(inside, key, flags)

    monkeypatch.setattr(beneath, "_open_beneath", count)
    extents = [Extent("a", 2, 1), Extent("b"), Extent("a", 0, 2), Extent("c"), Extent("a", 9)]
    assert store.read(extents) == [b"2", b"abc", b"01", None, b"9"]
    assert sorted(opened) == ["a", "b", "c"]


@pytest.mark.usefixtures("_long_way")
def test_reads_go_on_where_the_system_stops(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, length, at: real(file, min(length, 3), at))
    assert store.read([Extent("a"), Extent("a", 1, 7)]) == [b"0123456789", b"1234567"]


@pytest.mark.usefixtures("_long_way")
def test_a_file_cut_while_it_is_read_is_short(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pread

    def cut(file: int, length: int, at: int) -> bytes:
        data = real(file, min(length, 4), at)
        os.truncate(tmp_path / "a", 6)
        return data

    monkeypatch.setattr(os, "pread", cut)
    assert store.read([Extent("a", 1, 9)]) == [b"12345"]


@pytest.mark.usefixtures("_long_way")
def test_no_more_is_asked_for_than_is_stored(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    real = os.pread

    def watch(file: int, length: int, at: int) -> bytes:
        asked.append(length)
        return real(file, length, at)

    monkeypatch.setattr(os, "pread", watch)
    assert store.read([Extent("a", 8, 2**62), Extent("a", 2**62, 2**62)]) == [b"89", b""]
    assert asked == [2]


@pytest.mark.usefixtures("_long_way")
def test_an_error_while_reading_names_the_key(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: int, length: int, at: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(OSError, match=f"{store.root}/a") as caught:
        store.read([Extent("b"), Extent("a")])
    assert caught.value.errno == errno.EIO


SHORT = [Extent("a"), Extent("b", 0, 4), Extent("c/d", 2, 1), Extent("a/b"), Extent("e", 7)]


@pytest.mark.skipif(native.choice().name != "native", reason="the twin reads one by one")
@pytest.mark.parametrize("extents", [SHORT, SHORT[:1], [], [Extent("a", 2**62, 2**63)]])
def test_short_extents_are_the_same_at_once_and_one_by_one(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, extents: list[Extent]
) -> None:
    store.apply(Commit(publish=(Put("c/d", b"xyz"), Put("e", b"12"))))
    asked = []
    real = native.read_pieces

    def watch(root: str, pieces: list[tuple[str, int, int | None]]) -> list[bytes | None] | None:
        asked.append(real(root, pieces))
        return asked[-1]

    monkeypatch.setattr(native, "read_pieces", watch)
    found = store.read(extents)
    assert asked == [found]
    monkeypatch.setattr(native, "read_pieces", lambda root, pieces: None)
    assert store.read(extents) == found


def test_what_is_unusual_takes_the_long_way(store: LocalStore, tmp_path: Path) -> None:
    large = bytes(range(256)) * 1024
    store.apply(_put(large=large))
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "out").symlink_to("../elsewhere")
    (tmp_path / "link").symlink_to("a")
    assert store.read([Extent("large"), Extent("link")]) == [large, b"0123456789"]
    assert store.read([Extent("large", 9, 2**70)]) == [large[9:]]
    for key, text in (("pipe", "a pipe"), ("folder", "a folder"), ("out", "leads out")):
        assert store.read_settled(FolderProbe([[Extent(key)]])) is None
        assert store.read_settled(FolderProbe([[Extent(key, 2**64)]])) is None
        with pytest.raises(UnsafeError, match=f"{store.root}: key '{key}': .*{text}"):
            store.read([Extent("a"), Extent(key)])


def test_a_copy_has_nothing_of_the_turn_of_a_writer(store: LocalStore) -> None:
    with store.writing() as turn:
        copy = pickle.loads(pickle.dumps(store))
        # What the copy had open would be closed with it: the files of the turn, or any others.
        with pytest.raises(ValueError, match="inside a turn"):
            copy.extend("a", [b"x"])
        del copy
        turn.commit(_put(a=b"x"))
    again = pickle.loads(pickle.dumps(store))
    again.apply(_put(a=b"y"))
    assert store.read([Extent("a")]) == [b"y"]


# One settled state by one call


@pytest.mark.skipif(native.choice().name != "native", reason="the twin has no probe")
def test_a_probe_reads_the_first_group_of_which_a_file_is_there(
    store: LocalStore, tmp_path: Path
) -> None:
    wanted = FolderProbe([[Extent("absent"), Extent("a")], [Extent("a"), Extent("b")]])
    assert store.read_settled(wanted) == (None, (1, [b"0123456789", None], None))
    store.apply(_put(a=b"x", b=b"yz"))
    look = store.version()
    assert look is not None
    assert store.read_settled(wanted) == (look.sequence, (1, [b"x", b"yz"], None))
    beside = FolderProbe([[Extent("b", 1)], [Extent("a")]], above=("absent",))
    assert LocalStore(tmp_path).read_settled(beside) == (look.sequence, (0, [b"z"], None))
    assert store.read_settled(FolderProbe([[Extent("large")], []])) == (look.sequence, None)
    (tmp_path / "link").symlink_to(tmp_path)
    resolved = FolderProbe([[Extent("absent")], [Extent("b")]], resolved=[1])
    found = LocalStore(tmp_path / "link").read_settled(resolved)
    assert found == (look.sequence, (1, [b"yz"], os.path.realpath(tmp_path)))


@pytest.mark.skipif(native.choice().name != "native", reason="the twin has no probe")
def test_a_probe_reads_the_further_files_that_a_first_file_names(
    store: LocalStore, tmp_path: Path
) -> None:
    store.apply(_put(a=b"x", b=b"yz"))
    number = store.version().sequence  # type: ignore[union-attr]
    probe = FolderProbe([[Extent("absent")], [Extent("a"), Extent("c")]])
    probe.name_further(1, b"x", Batch([Extent("b"), Extent("d/e")]))
    assert store.read_settled(probe) == (number, (1, [b"x", None], None)), "it came too early"
    probe.name_further(1, b"x", Batch([Extent("b"), Extent("d/e")]))
    probe.name_further(0, b"x", Batch([Extent("a")]))
    assert store.read_settled(probe) == (number, (1, [b"x", None, b"yz", None], None))
    # A file that is no small plain one is left to the caller, and so is another first file.
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "d" / "e")
    assert store.read_settled(probe) == (number, (1, [b"x", None], None))
    (tmp_path / "a").write_bytes(b"y")
    assert store.read_settled(probe) == (number, (1, [b"y", None], None))


def test_a_probe_leaves_to_others_what_takes_longer(store: LocalStore, tmp_path: Path) -> None:
    inner = LocalStore(tmp_path / "inner", writable=True)
    wanted = FolderProbe([[Extent("b")]])
    assert inner.read_settled(wanted) is None
    inner.apply(_put(b=b"yz"))
    groups = [[Extent("b"), Extent("c", 0, 1)]]
    assert inner.read_settled(FolderProbe(groups, above=("zarr.json", "a"))) is None
    fine = inner.read_settled(FolderProbe(groups, above=("zarr.json",)))
    assert (fine is not None) == (native.choice().name == "native")
    with pytest.raises(UnsafeError, match="leaves its folder"):
        FolderProbe([[Extent("../a")]])
    (tmp_path / "inner" / ".commit").write_bytes(b"not a journal")
    assert inner.read_settled(wanted) is None
    (tmp_path / "inner" / ".commit").unlink()
    for state in (lock.LockState.BUSY, lock.LockState.UNKNOWN):
        with (tmp_path / "inner" / ".lock").open("r+b") as file:
            file.seek(24)
            file.write(bytes([state]))
        assert inner.read_settled(wanted) is None
    # Media that cannot be written have no lock file, and may have a journal all the same.
    (tmp_path / "inner" / ".lock").unlink()
    if native.choice().name == "native":
        assert inner.read_settled(wanted) == (None, (0, [b"yz"], None))
    (tmp_path / "inner" / ".commit").symlink_to("nowhere")
    assert inner.read_settled(wanted) is None


def test_a_batch_is_read_as_its_extents_are(store: LocalStore, tmp_path: Path) -> None:
    store.apply(_put(b=b"yz", large=bytes(100_000)))
    os.mkfifo(tmp_path / "pipe")
    for extents in (
        [Extent("a"), Extent("b", 1), Extent("absent")],
        [Extent("a", 0, 3), Extent("large")],
        [Extent("a", 2**64), Extent("b")],
    ):
        batch = Batch(extents)
        for _ in range(2):
            assert store.read(batch) == store.read(extents)
    with pytest.raises(UnsafeError, match="a pipe"):
        store.read(Batch([Extent("a"), Extent("pipe")]))
    with pytest.raises(UnsafeError, match="leaves its folder"):
        Batch([Extent("../a")])


def test_names_that_cannot_be_keys_are_not_listed(store: LocalStore, tmp_path: Path) -> None:
    for name in ("aux.txt", "back\\slash", "C:x", "trailing ", "new\nline", b"\xff\xfe"):
        path = os.path.join(os.fsencode(tmp_path), os.fsencode(name))
        with open(path, "wb"):
            pass
    assert list(store.names()) == ["a"]
    assert list(store.names(hidden=True)) == ["a"]


# Writing


def test_writes_go_on_where_the_system_stops(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:3], at))
    store.apply(_put(a=b"abcdefgh"))
    store.apply(Commit(publish=(Patch("a", 2, b"0123456789"),)))
    assert store.read([Extent("a")]) == [b"ab0123456789"]


def test_a_write_that_makes_no_progress_is_an_error(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: 0)
    with pytest.raises(OSError, match="nothing was written"):
        store.apply(_put(a=b"x"))
    assert store.read([Extent("a")]) == [b"0123456789"]


def _full_disk(*arguments: object, **named: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def _fails_third(
    real: Callable[..., object], counts: Callable[..., bool] = lambda *arguments: True
) -> Callable[..., object]:
    calls = []

    def fail(*arguments: object, **named: object) -> object:
        if counts(*arguments):
            calls.append(arguments)
            if len(calls) == 3:
                return _full_disk()
        return real(*arguments, **named)

    return fail


def _writes_new(file: int, data: bytes, at: int) -> bool:
    return bytes(data) == b"new"


@pytest.mark.usefixtures("_steps_in_python")
def test_a_full_disk_leaves_the_old_values_and_nothing_staged(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply(_put(b=b"old", c=b"old"))
    before = _everything(tmp_path)
    monkeypatch.setattr(os, "pwrite", _fails_third(os.pwrite, _writes_new))
    with pytest.raises(OSError, match=r"No space left.*-c'") as caught:
        store.apply(_put(a=b"new", b=b"new", c=b"new", d=b"new"))
    assert caught.value.errno == errno.ENOSPC
    assert store.read([Extent(key) for key in "abcd"]) == [b"0123456789", b"old", b"old", None]
    assert _everything(tmp_path) == before


@pytest.mark.usefixtures("_steps_in_python")
def test_an_error_at_close_is_an_error_of_the_write(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writing = os.close, []
    real_write = os.pwrite

    def write(file: int, data: bytes, at: int) -> int:
        if _writes_new(file, data, at):
            writing.append(file)
        return real_write(file, data, at)

    def close(file: int) -> None:
        real(file)
        if file in writing:
            writing.remove(file)
            _full_disk()

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "close", close)
    with pytest.raises(OSError, match="No space left"):
        store.apply(_put(a=b"new"))
    assert _everything(tmp_path) == [".lock", "a"]
    assert (tmp_path / "a").read_bytes() == b"0123456789"


@pytest.mark.usefixtures("_steps_in_python")
def test_a_rename_that_fails_after_the_journal_has_its_name_is_done_by_the_next_writer(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.rename
    monkeypatch.setattr(os, "rename", _fails_third(os.rename))
    commit = Commit(
        prepare=(Put("x/0", b"new"),),
        publish=(Put("a", b"new"), Put("x/1", b"new"), Put("x/2", b"new")),
        cleanup=(Delete("x/0"),),
    )
    with pytest.raises(OSError, match=f"{store.root}/a") as caught:
        store.apply(commit)
    assert any("decided" in note for note in caught.value.__notes__)
    monkeypatch.setattr(os, "rename", real)
    keys = [Extent("a"), Extent("x/1"), Extent("x/2")]
    assert store.read(keys) == [b"0123456789", None, None]
    assert store.view().read(keys) == [b"new"] * 3
    store.apply(_put(b=b"next"))
    assert store.read(keys) == [b"new"] * 3
    assert _everything(tmp_path) == [".lock", "a", "b", "x", "x/0", "x/1", "x/2"]


@pytest.mark.usefixtures("_steps_in_python")
def test_a_failing_rename_before_that_leaves_the_old_state(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rename", _full_disk)
    for commit in (_put(a=b"new"), _put(a=b"new", b=b"new")):
        with pytest.raises(OSError, match="No space left"):
            store.apply(commit)
        assert _everything(tmp_path) == [".lock", "a"]
        assert store.view().read([Extent("a")]) == [b"0123456789"]


@pytest.mark.usefixtures("_steps_in_python")
def test_new_values_are_written_before_the_first_takes_its_place(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = []
    real_write, real_rename, real_sync = os.pwrite, os.rename, os.fdatasync

    def write(file: int, data: bytes, at: int) -> int:
        if bytes(data) in (b"1", b"2"):
            steps.append("write")
        return real_write(file, data, at)

    def rename(source: str, target: str, **named: int) -> None:
        steps.append(f"rename {target}")
        real_rename(source, target, **named)

    def sync(file: int) -> None:
        steps.append("sync")
        real_sync(file)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "fdatasync", sync)
    puts = Put("a", b"1"), Put("b", b"1")
    store.apply(Commit(prepare=puts, publish=(*puts, Put("c", b"2"))))
    assert steps == [
        *["write"] * 5,
        *["sync"] * 6,  # The journal is known before anything has happened, and goes along.
        *["rename a", "rename b", "rename .commit"],
        *["rename a", "rename b", "rename c"],
    ]


@pytest.mark.usefixtures("_steps_in_python")
def test_a_staged_file_lies_beside_its_target(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    real = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        seen.extend(_everything(tmp_path))
        real(source, target, **named)

    monkeypatch.setattr(os, "rename", rename)
    store.apply(Commit(publish=(Put("x/y/chunk", b"1"),)))
    (staged,) = [name for name in seen if ".g-" in name]
    assert staged.startswith("x/y/.g-")
    assert staged.endswith("-chunk")
    assert _everything(tmp_path) == [".lock", "a", "x", "x/y", "x/y/chunk"]


def test_a_foreign_file_under_a_staged_name_is_left_alone(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / f".g-{'0' * 16}.0-b").symlink_to("a")
    (tmp_path / f".g-{'0' * 16}.0-c").write_bytes(b"foreign")
    before = _everything(tmp_path)
    for key in "bc":
        with pytest.raises(FileExistsError, match=f"-{key}'"):
            store.apply(Commit(publish=(Put(key, b"new"),)))
    assert _everything(tmp_path) == sorted([*before, ".lock"])
    assert store.read([Extent("a"), Extent("b")]) == [b"0123456789", None]


def test_a_reader_keeps_the_file_it_opened(store: LocalStore, tmp_path: Path) -> None:
    with open(tmp_path / "a", "rb") as old:
        store.apply(_put(a=b"new"))
        assert old.read() == b"0123456789"


def test_a_file_in_the_way_of_a_folder_is_an_error(store: LocalStore) -> None:
    with pytest.raises(NotADirectoryError, match=f"{store.root}/a"):
        store.apply(Commit(publish=(Put("a/b/c", b"x"),)))
    assert store.read([Extent("a"), Extent("a/b/c")]) == [b"0123456789", None]


def test_new_files_follow_the_umask(store: LocalStore, tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        store.apply(_put(b=b"x"))
    finally:
        os.umask(before)
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o640


# The store as a value


def test_a_store_is_pickled_by_path(store: LocalStore) -> None:
    copy = pickle.loads(pickle.dumps(store))
    store.apply(_put(a=b"new"))
    assert copy.read([Extent("a")]) == [b"new"]
    assert copy.features == store.features
    assert repr(copy) == f"LocalStore({store.root!r}, writable=True)"


def test_a_relative_root_stays_where_it_was(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path.parent)
    relative = LocalStore(tmp_path.name)
    monkeypatch.chdir("/")
    assert relative.read([Extent("a")]) == [b"0123456789"]


def test_a_replaced_folder_is_seen(store: LocalStore, tmp_path: Path) -> None:
    tmp_path.rename(tmp_path.with_name("before"))
    assert store.read([Extent("a")]) == [None]
    tmp_path.mkdir()
    (tmp_path / "a").write_bytes(b"new")
    assert store.read([Extent("a")]) == [b"new"]


# One file


@pytest.fixture
def file_store(tmp_path: Path) -> FileStore:
    for name in ("neighbour", "other-x.blp", ".g-1-other-x.blp"):
        (tmp_path / name).write_bytes(b"not yours")
    return FileStore(tmp_path / "x.blp", writable=True)


def test_one_file_is_read_and_replaced(file_store: FileStore, tmp_path: Path) -> None:
    assert file_store.key == "x.blp"
    assert file_store.location == str(tmp_path / "x.blp")
    assert file_store.root == str(tmp_path)
    assert Feature.NATIVE in file_store.features
    assert file_store.read([Extent("x.blp")]) == [None]
    assert list(file_store.names()) == []
    file_store.apply(Commit(publish=(Put("x.blp", b"0123"), Patch("x.blp", 4, b"45"))))
    assert file_store.read([Extent("x.blp", 2), Extent("x.blp", 0, 1)]) == [b"2345", b"0"]
    assert file_store.size("x.blp") == 6
    assert list(file_store.names()) == ["x.blp"]
    assert repr(file_store) == f"FileStore({str(tmp_path / 'x.blp')!r}, writable=True)"
    file_store.apply(Commit(cleanup=(Delete("x.blp"),)))
    assert not (tmp_path / "x.blp").exists()


def test_neighbours_of_one_file_are_not_reached(file_store: FileStore, tmp_path: Path) -> None:
    before = _everything(tmp_path)
    keys = "neighbour", "other-x.blp", ".g-1-other-x.blp", "x.blp/y"
    assert file_store.read([Extent(key) for key in keys]) == [None] * 4
    assert [file_store.size(key) for key in keys] == [None] * 4
    assert list(file_store.names(hidden=True)) == []
    assert list(file_store.names("neighbour")) == []
    for key in keys:
        for edit in (Put(key, b"mine"), Patch(key, 0, b"mine"), Delete(key)):
            with pytest.raises(UnsafeError, match=r"x\.blp"):
                file_store.apply(Commit(prepare=(Put("x.blp", b""),), publish=(edit,)))
    assert _everything(tmp_path) == before
    assert (tmp_path / "neighbour").read_bytes() == b"not yours"
    with pytest.raises(UnsafeError):
        file_store.read([Extent("../x.blp")])
    with pytest.raises(UnsafeError):
        file_store.size("../x.blp")


def test_staged_values_of_one_file_are_its_own(file_store: FileStore) -> None:
    staged = staged_key(file_store.key, "7f")
    file_store.apply(Commit(prepare=(Put(staged, b"next"),)))
    assert file_store.read([Extent(staged)]) == [b"next"]
    assert list(file_store.names()) == []
    assert list(file_store.names(hidden=True)) == [staged]


def test_one_file_may_be_given_by_a_link(file_store: FileStore, tmp_path: Path) -> None:
    file_store.apply(Commit(publish=(Put("x.blp", b"old"),)))
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link"
    link.symlink_to("../x.blp")
    store = FileStore(link, writable=True)
    assert store.key == "x.blp"
    assert store.read([Extent(store.key)]) == [b"old"]
    store.apply(Commit(publish=(Put(store.key, b"new"),)))
    assert link.is_symlink()
    assert (tmp_path / "x.blp").read_bytes() == b"new"


def test_one_file_for_reading_does_not_write(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "x.blp")
    with pytest.raises(ReadOnlyError, match=r"x\.blp"):
        store.apply(Commit(publish=(Put("x.blp", b""),)))
    assert _everything(tmp_path) == []


def test_one_file_must_be_plain(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(UnsafeError, match=name):
            FileStore(tmp_path / name).read([Extent(name)])


def test_folders_that_keys_left_are_in_no_ones_way(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a/b/c", b"deep"), Put("x", b"other"))))
    store.apply(Commit(publish=(Delete("a/b/c"),)))
    store.apply(Commit(publish=(Put("a", b"flat"), Put("x", b"too"))))
    assert store.read([Extent("a"), Extent("x")]) == [b"flat", b"too"]


def test_folders_with_files_are_not_removed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a/b/c", b"deep"),)))
    for edit in (Put("a", b"flat"), Delete("a")):
        with pytest.raises((OSError, UnsafeError)):
            store.apply(Commit(publish=(edit,)))
    assert store.read([Extent("a/b/c")]) == [b"deep"]


def test_a_folder_in_the_way_is_found_before_anything_is_decided(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(_put(**{"f/0": b"kept", "a": b"old"}))
    for build in (
        lambda: (Put("a", b"new"), Put("f", b"in the way")),
        lambda: (Put("f", b"in the way"),),
        lambda: (Put("a", b"new"), store.stage("f", b"in the way")),
    ):
        store.recover()
        with pytest.raises(UnsafeError, match=r"'f'.* folder"):
            store.apply(Commit(publish=build()))
        assert store.view() is store
        assert store.read([Extent("a"), Extent("f/0")]) == [b"old", b"kept"]
    store.apply(Commit(publish=(Delete("f/0"), Put("a", b"new"))))
    store.apply(Commit(publish=(Put("a", b"newer"), Put("f", b"a file"))))
    assert store.read([Extent("a"), Extent("f")]) == [b"newer", b"a file"]


@pytest.mark.usefixtures("_steps_in_python")
def test_a_folder_that_was_removed_and_made_again_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = files._LocalDirectory.sync_folder

    def sync_folder(self: files._LocalDirectory, folder: str) -> None:
        synced.append(folder)
        real(self, folder)

    monkeypatch.setattr(files._LocalDirectory, "sync_folder", sync_folder)
    store, other = (LocalStore(tmp_path, writable=True) for _ in range(2))

    def put(key: str) -> list[str]:
        edit = store.stage(key, b"value")
        synced.clear()
        store.apply(Commit(publish=(edit,)))
        return sorted(set(synced))

    def clear(writer: LocalStore) -> None:
        writer.apply(Commit(publish=(Delete("a/b/0"), Delete("a/b/1"))))
        writer.apply(Commit(publish=(Put("a/b", b"a file"),)))
        writer.apply(Commit(publish=(Delete("a/b"),)))

    assert put("a/b/0") == ["", "a", "a/b"]
    assert put("a/b/1") == ["a/b"]
    clear(store)
    assert put("a/b/0") == ["", "a", "a/b"]
    assert put("a/b/1") == ["a/b"]
    clear(other)
    assert put("a/b/0") == ["", "a", "a/b"]


def test_a_folder_in_the_way_is_noticed_before_anything_is_decided(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("x", b"old"),)))
    (tmp_path / "full" / "deeper").mkdir(parents=True)
    (tmp_path / "full" / "deeper" / "file").write_bytes(b"of others")
    (tmp_path / "link").symlink_to("full")
    with pytest.raises(UnsafeError, match=r"'full'.* folder"):
        store.apply(Commit(publish=(Put("x", b"new"), Put("full", b"new"))))
    assert store.read([Extent("x")]) == [b"old"]
    store.apply(Commit(publish=(Put("x", b"new"), Put("link", b"new"))))
    assert store.read([Extent("x"), Extent("link")]) == [b"new", b"new"]
    assert (tmp_path / "full" / "deeper" / "file").read_bytes() == b"of others"
    assert list(store.names(hidden=True)) == ["full/", "link", "x"]


# Staged files


def _asides(store: LocalStore, folder: Path) -> tuple[Commit, list[str]]:
    store.apply(_put(x=b"there is a lock file now"))
    before = _everything(folder)
    moves = store.stage("a", b"new"), store.stage("b", b"new")
    assert len(_everything(folder)) == len(before) + 2
    return Commit(publish=moves), before


@pytest.mark.usefixtures("_steps_in_python")
def test_a_commit_that_fails_removes_what_is_staged_for_it(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, before = _asides(store, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            store.apply(commit)
    assert _everything(tmp_path) == before
    commit, _ = _asides(store, tmp_path)
    refused = Commit(publish=(*commit.publish, Put(".lock", b"")))
    with pytest.raises(UnsafeError), store.writing() as turn:
        turn.commit(refused)
    assert _everything(tmp_path) == before


@pytest.mark.usefixtures("_steps_in_python")
def test_a_signal_after_the_journal_has_its_name_costs_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, before = _asides(store, tmp_path)
    real = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if target == ".commit":
            raise KeyboardInterrupt

    more = Commit(publish=(*commit.publish, Put("c", b"new")))
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            store.apply(more)
    keys = [Extent(key) for key in "abc"]
    assert store.view().read(keys) == [b"new"] * 3
    store.apply(_put(d=b"next"))
    assert store.read(keys) == [b"new"] * 3
    assert _everything(tmp_path) == sorted([*before, "b", "c", "d"])


# Identities


@pytest.fixture
def clock(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Sets the time of the process so many milliseconds behind the last change of a file."""

    def set_clock(milliseconds: float, name: str = "a") -> int:
        changed = (tmp_path / name).stat().st_mtime_ns
        monkeypatch.setattr(files.time, "time_ns", lambda: changed + int(milliseconds * 1e6))
        return changed

    return set_clock


def test_a_file_changed_twice_within_the_resolution_of_its_time(
    store: LocalStore, tmp_path: Path, clock: Callable[..., int]
) -> None:
    changed = clock(99.9)
    assert store.identity("a") is None
    before = (tmp_path / "a").stat()
    (tmp_path / "a").write_bytes(b"9876543210")
    os.utime(tmp_path / "a", ns=(changed, changed))
    after = (tmp_path / "a").stat()
    facts = [(each.st_ino, each.st_size, each.st_mtime_ns) for each in (before, after)]
    assert facts[0] == facts[1]  # Nothing tells the two values apart, so neither may be kept.
    assert store.identity("a") is None
    clock(100)
    assert store.identity("a") is not None


def test_a_file_of_the_future_is_not_relied_on(
    store: LocalStore, clock: Callable[..., int]
) -> None:
    clock(-1e9)
    assert store.identity("a") is None


def test_only_plain_files_have_an_identity(
    store: LocalStore, tmp_path: Path, clock: Callable[..., int]
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        clock(1000, name)
        assert store.identity(name) is None


def test_a_file_store_identifies_its_own_file(
    store: LocalStore, tmp_path: Path, clock: Callable[..., int]
) -> None:
    (tmp_path / "b").write_bytes(b"b")
    clock(1000, "b")
    single = FileStore(tmp_path / "a")
    assert single.identity("a") == store.identity("a") is not None
    assert store.identity("b") is not None
    assert single.identity("b") is None


@pytest.mark.usefixtures("_steps_in_python")
def test_a_view_through_a_journal_identifies_only_what_it_does_not_change(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.apply(_put(b=b"old", c=b"old", d=b"old"))
    real = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if target == ".commit":
            raise KeyboardInterrupt

    edits = Patch("a", 0, b"new"), Put("b", b"new"), Delete("c"), Put("e", b"new")
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            store.apply(Commit(publish=edits))
    for path in tmp_path.iterdir():
        os.utime(path, ns=(0, 0))
    view = store.view()
    assert view is not store
    assert all(store.identity(key) is not None for key in "abcd")
    assert [view.identity(key) for key in "abce"] == [None] * 4
    assert view.identity("d") == store.identity("d")
    with pytest.raises(UnsafeError):
        view.identity("../a")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system lists no descriptors")
def test_patches_leave_no_descriptor_open(store: LocalStore, tmp_path: Path) -> None:
    staged = staged_key("b", "1f")
    commits = [
        Commit(publish=(Patch("a", 2, b"xy"),)),
        Commit(prepare=(Patch("a", 10, b"?"),), publish=(Patch("a", 1, b"1"), Put("c", b"c"))),
        Commit(prepare=(Put(staged, b"01"), Patch(staged, 2, b"2")), publish=(Put("c", b"d"),)),
        Commit(cleanup=(Patch("a", 11, b"!"),)),
    ]
    store.apply(commits[0])
    before = open_files(tmp_path)
    for commit in commits:
        store.apply(commit)
    for wrong in (Patch("a", 99, b"x"), Patch("absent", 0, b"x")):
        with pytest.raises(IngotError):
            store.apply(Commit(publish=(Put("c", b"e"), wrong)))
    assert store.read([Extent("a"), Extent("c")]) == [b"01xy456789?!", b"d"]
    assert open_files(tmp_path) == before


@pytest.mark.usefixtures("_steps_in_python")
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the system lists no descriptors")
def test_a_commit_of_many_patches_has_few_files_open(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [f"f/{number}" for number in range(100)]
    store.apply(_put(**dict.fromkeys(keys, b"0123")))
    before, most = len(open_files(tmp_path)), 0
    write_at = files.write_at

    def counted(file: int, start: int, data: Any) -> None:
        nonlocal most
        most = max(most, len(open_files(tmp_path)))
        write_at(file, start, data)

    monkeypatch.setattr(files, "write_at", counted)
    patches = tuple(Patch(key, 1, b"x") for key in keys)
    store.apply(Commit(publish=patches))
    store.apply(Commit(prepare=tuple(Patch(key, 4, b"y") for key in keys)))
    assert 0 < most < before + 20
    assert store.read([Extent(key) for key in keys]) == [b"0x23y"] * 100


def test_a_key_is_extended_in_constant_memory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"head"),)))
    piece = bytes(1 << 20)
    tracemalloc.start()
    try:
        with store.writing(durability="process") as turn:
            grown = store.extend("a", (piece for _ in range(64)))
            turn.commit(Commit(prepare=(grown,), publish=(Patch("a", 0, b"HEAD"),)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert store.size("a") == 4 + (64 << 20)
    assert store.read([Extent("a", 0, 5)]) == [b"HEAD\0"]


def test_a_key_is_extended_inside_a_turn_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"head"),)))
    with pytest.raises(ValueError, match="inside a turn"):
        store.extend("a", [b"x"])
    with store.writing() as turn:
        turn.commit(Commit())
        with pytest.raises(ValueError, match="inside a turn"):
            store.extend("a", [b"x"])
    assert store.read([Extent("a")]) == [b"head"]


def test_what_a_dead_writer_wrote_behind_the_end_is_overwritten(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"head"),)))
    with open(tmp_path / "a", "ab") as file:
        file.write(b"left over by a writer that died")
    with store.writing() as turn:
        turn.commit(Commit(prepare=(store.extend("a", [b"0123"], end=4),)))
    assert store.read([Extent("a")]) == [b"head0123"]
    assert list(store.names(hidden=True)) == ["a"]


@pytest.mark.usefixtures("_steps_in_python")
def test_a_sweep_that_fails_removes_what_is_staged_for_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, writable=True)
    store.apply(Commit(publish=(Put("a", b"old"),)))
    (tmp_path / ".g-1234-a").write_bytes(b"left by a dead process")
    record = bytearray((tmp_path / ".lock").read_bytes())
    record[24] = lock.LockState.BUSY
    (tmp_path / ".lock").write_bytes(record)

    def fail(self: CommitRun, folder: str, kept: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with store.writing() as turn:
        move = store.stage("a", b"new")
        with monkeypatch.context() as patch:
            patch.setattr(CommitRun, "_sweep", fail)
            with pytest.raises(OSError, match="Input/output error"):
                turn.commit(Commit(publish=(move,)))
    assert not (tmp_path / move.source).exists()
    assert (tmp_path / "a").read_bytes() == b"old"

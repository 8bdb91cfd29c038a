"""Single files: how they appear, when they get a lock file, and when it goes."""

import errno
import os
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.errors import ExistsError, LockedError, NotFoundError
from ingot.stores import (
    Commit,
    Delete,
    Edit,
    Extent,
    FileStore,
    MemoryStore,
    Move,
    Patch,
    Put,
    ZipStore,
)
from ingot.stores.local import files
from ingot.stores.local.file import FileTurn
from ingot.stores.store import put_pieces


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(data: bytes) -> Commit:
    return Commit(publish=(Put("a.bin", data),))


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "a.bin", writable=True)


@pytest.mark.parametrize("durability", ["full", "process"])
@pytest.mark.parametrize("call", [True, False])
def test_a_new_file_leaves_nothing_beside_it(
    store: FileStore, tmp_path: Path, durability: Any, call: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not call:
        monkeypatch.setattr(files, "_call", lambda: None)
    store.apply(
        Commit(publish=(Put("a.bin", b"abc"), Patch("a.bin", 3, b"d"))), durability=durability
    )
    assert names(tmp_path) == ["a.bin"]
    assert store.read([Extent("a.bin")]) == [b"abcd"]


def test_a_staged_value_becomes_a_new_file(store: FileStore, tmp_path: Path) -> None:
    with store.writing() as turn:
        assert type(turn) is FileTurn
        turn.commit(Commit(publish=(store.stage("a.bin", b"abc"),)))
    assert names(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("others", [(), (Patch("a.bin", 4, b"A"),)])
def test_the_head_of_a_staged_value_is_written_last(
    store: FileStore, tmp_path: Path, others: tuple[Edit, ...]
) -> None:
    lengths: list[int] = []

    def pieces() -> Iterator[bytes]:
        yield bytes(4)
        for piece in (b"alpha", b"beta"):
            lengths.append(len(piece))
            yield piece

    for _ in range(2):  # The second file replaces the first one.
        lengths.clear()
        edit = put_pieces(store, "a.bin", pieces(), head=lambda: bytes([*lengths, 0, 0]))
        assert isinstance(edit, Move)
        store.apply(Commit(publish=(edit, *others)))
        expected = b"\5\4\0\0alphabeta"
        assert store.read([Extent("a.bin")]) == [expected.replace(b"a", b"A", len(others))]
    assert [name for name in names(tmp_path) if name.startswith(".g-")] == []


class Written:
    """A piece that can write itself; `ways` notes how it was written."""

    checksum: int | None = None

    def __init__(self, *parts: bytes) -> None:
        self.parts = parts
        self.ways: list[str] = []

    def write_to(self, descriptor: int, start: int) -> int:
        self.ways.append("file")
        return os.pwrite(descriptor, b"".join(self.parts), start)

    def __iter__(self) -> Iterator[bytes]:
        self.ways.append("parts")
        return iter(self.parts)


def test_a_piece_writes_itself_and_no_checksum_is_known_then(store: FileStore) -> None:
    piece = Written(b"alpha", b"beta")
    for head in (lambda: b"head", None):
        edit = put_pieces(store, "a.bin", [b"....", piece, b"end"], head=head)
        assert isinstance(edit, Move)
        assert (edit.size, edit.checksum) == (16, None)
        store.apply(Commit(publish=(edit,)))
        assert store.read([Extent("a.bin")]) == [(b"head" if head else b"....") + b"alphabetaend"]
        assert piece.ways.pop() == "file"
    edit = put_pieces(store, "a.bin", [b"....", b"end"])
    assert edit == Move(edit.source, "a.bin", 7, zlib.crc32(b"....end"))
    store.discard([edit])
    assert put_pieces(MemoryStore(), "a", [b"..", piece], head=lambda: b"A") == Put(
        "a", b"A.alphabeta"
    )
    assert piece.ways == ["parts"]


def test_a_piece_that_knows_its_checksum_is_not_read_again(store: FileStore) -> None:
    piece = Written(b"alpha", b"beta")
    piece.checksum = zlib.crc32(b"alphabeta")
    kernel = native.choice().name == "native"
    for head, given, expected in (
        (lambda: b"head", [b"....", piece], b"headalphabeta"),
        (None, [b"....", piece, b"end"], b"....alphabetaend"),
    ):
        edit = put_pieces(store, "a.bin", given, head=head)
        assert isinstance(edit, Move)
        assert edit.checksum == (zlib.crc32(expected) if kernel else None)
        store.apply(Commit(publish=(edit,)))
        assert store.read([Extent("a.bin")]) == [expected]
    # The head replaces a part of the first piece, or the pieces behind it are bytes.
    for head, given in ((lambda: b"he", [b"....", piece]), (lambda: b"head", [b"....", b"end"])):
        edit = put_pieces(store, "a.bin", given, head=head)
        assert isinstance(edit, Move)
        assert edit.checksum is None
        store.discard([edit])


def test_a_piece_that_cannot_write_itself_leaves_nothing(store: FileStore, tmp_path: Path) -> None:
    class Full(Written):
        def write_to(self, descriptor: int, start: int) -> int:
            raise OSError(errno.ENOSPC, "writing")

    with pytest.raises(OSError, match=r"writing.*a\.bin") as caught:
        put_pieces(store, "a.bin", [b"....", Full()], head=lambda: b"head")
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.glob("*.bin"))


def test_a_head_that_fails_leaves_nothing(store: FileStore, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        put_pieces(store, "a.bin", [b"...."], head=lambda: bytes(1 // 0))
    assert not list(tmp_path.glob("*.bin"))


@pytest.mark.parametrize("edits", [(), (Delete("a.bin"),)])
def test_nothing_is_made_of_nothing(store: FileStore, tmp_path: Path, edits: Any) -> None:
    store.apply(Commit(publish=edits))
    assert names(tmp_path) == []


def test_a_change_that_needs_the_file_raises_without_it(store: FileStore, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        store.apply(Commit(publish=(Patch("a.bin", 0, b"x"),)))
    with pytest.raises(NotFoundError):
        store.apply(Commit(publish=(Move(".g-1-a.bin", "a.bin"),)))
    assert "a.bin" not in names(tmp_path)


def test_what_came_first_stays(store: FileStore, tmp_path: Path) -> None:
    def both() -> None:
        with store.writing() as turn:
            (tmp_path / "a.bin").write_bytes(b"first")  # By a program that knows no lock.
            turn.commit(put(b"second"))

    with pytest.raises(ExistsError, match="meanwhile"):
        both()
    assert store.read([Extent("a.bin")]) == [b"first"]
    assert names(tmp_path) == ["a.bin"]


def test_a_second_writer_of_a_new_file_waits_for_the_first(
    store: FileStore, tmp_path: Path
) -> None:
    other = FileStore(tmp_path / "a.bin", writable=True, wait=0)
    with store.writing() as turn:
        with pytest.raises(LockedError):
            other.apply(put(b"second"))
        turn.commit(put(b"first"))
    assert names(tmp_path) == ["a.bin"]
    with other.writing() as turn:
        assert turn.store.read([Extent("a.bin")]) == [b"first"]
        turn.commit(put(b"second"))
    assert store.read([Extent("a.bin")]) == [b"second"]


def test_the_creator_leaves_the_lock_of_the_next_writer_alone(
    store: FileStore, tmp_path: Path
) -> None:
    next_turn = FileStore(tmp_path / "a.bin", writable=True).writing()
    removals: list[str] = []
    unlink = files._LocalDirectory.unlink

    def unlink_and_go_on(directory: Any, key: str) -> None:
        unlink(directory, key)
        if not removals:
            # The next writer is as fast as it can be: it begins as soon as the lock file is gone.
            next_turn.__enter__()
        removals.append(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files._LocalDirectory, "unlink", unlink_and_go_on)
        with store.writing() as turn:
            turn.commit(put(b"first"))
    try:
        assert removals == [".a.bin.lock"]
        third = FileStore(tmp_path / "a.bin", writable=True, wait=0)
        with pytest.raises(LockedError):
            third.apply(put(b"third"))
        next_turn.commit(put(b"second"))
    finally:
        next_turn.__exit__(None, None, None)
    assert store.read([Extent("a.bin")]) == [b"second"]


def test_a_turn_that_creates_nothing_leaves_nothing(store: FileStore, tmp_path: Path) -> None:
    with store.writing():
        pass
    assert names(tmp_path) == []


def test_the_first_change_makes_a_lock_file_and_removal_removes_it(
    store: FileStore, tmp_path: Path
) -> None:
    store.apply(put(b"abc"))
    store.apply(put(b"abd"))
    assert names(tmp_path) == [".a.bin.lock", "a.bin"]
    store.apply(Commit(publish=(Delete("a.bin"), Put("a.bin", b"new"))))
    assert names(tmp_path) == ["a.bin"]
    store.apply(put(b"abe"))
    assert names(tmp_path) == [".a.bin.lock", "a.bin"]
    store.apply(Commit(publish=(Delete("a.bin"),)))
    assert names(tmp_path) == []


def test_every_step_is_another_version(store: FileStore) -> None:
    seen = [store.version()]
    for commit in (
        put(b"abc"),
        put(b"abd"),
        Commit(publish=(Delete("a.bin"), Put("a.bin", b"abe"))),
        Commit(publish=(Delete("a.bin"), Put("a.bin", b"abf"))),
        put(b"abg"),
    ):
        with store.writing() as turn:
            number = turn.commit(commit)
        version = store.version()
        assert version is not None
        assert version == (number, True)
        seen.append(version)
    assert len(set(seen)) == len(seen)


def test_the_first_change_removes_what_a_dead_creator_left(
    store: FileStore, tmp_path: Path
) -> None:
    (tmp_path / ".g-0123-a.bin").write_bytes(b"left")
    store.apply(put(b"abc"))
    assert ".g-0123-a.bin" in names(tmp_path)  # Its creator may be alive.
    store.apply(put(b"abd"))
    assert names(tmp_path) == [".a.bin.lock", "a.bin"]


def test_a_writer_that_waited_for_a_removed_lock_takes_the_new_one(
    store: FileStore, tmp_path: Path
) -> None:
    store.apply(put(b"0"))
    store.apply(put(b"1"))
    others = [FileStore(tmp_path / "a.bin", writable=True) for _ in range(4)]

    def count(own: FileStore) -> None:
        for _ in range(10):
            with own.writing(durability="process") as turn:
                (value,) = own.read([Extent("a.bin")])
                assert value is not None
                new = Put("a.bin", str(int(value) + 1).encode())
                turn.commit(Commit(publish=(Delete("a.bin"), new)))

    threads = [threading.Thread(target=count, args=(own,)) for own in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.read([Extent("a.bin")]) == [b"41"]
    assert names(tmp_path) == ["a.bin"]


def test_an_archive_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    array = ingot.array(np.arange(5), path)
    assert names(tmp_path) == ["x.zip"]
    reader: Any = ingot.open(path)
    array[0] = 7
    assert reader[0] == 7
    assert names(tmp_path) == [".x.zip.lock", "x.zip"]
    ingot.array(np.arange(3), path, overwrite=True)
    assert names(tmp_path) == ["x.zip"]
    assert reader[...].tolist() == [0, 1, 2]


def test_two_writers_of_a_new_archive_lose_nothing(tmp_path: Path) -> None:
    stores = [ZipStore(tmp_path / "x.zip", writable=True) for _ in range(4)]
    start = threading.Barrier(len(stores))

    def add(number: int) -> None:
        start.wait()
        stores[number].apply(Commit(publish=(Put(f"k{number}", b"x"),)), durability="process")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(stores[0].names()) == ["k0", "k1", "k2", "k3"]


@pytest.mark.parametrize("changed", [False, True])
def test_a_snapshot_keeps_writers_out_with_and_without_a_lock_file(
    tmp_path: Path, changed: bool
) -> None:
    path = tmp_path / "x.zip"
    ingot.array(np.arange(5), path)
    if changed:
        ingot.open(path, "r+").attrs["n"] = 1
    reader: Any = ingot.open(path)
    writer: Any = ingot.open(path, "r+")
    done = threading.Event()

    def write() -> None:
        writer[0] = 7
        done.set()

    thread = threading.Thread(target=write)
    with reader.snapshot():
        thread.start()
        assert not done.wait(0.3)
        assert reader[0] == 0
    thread.join()
    assert reader[0] == 7

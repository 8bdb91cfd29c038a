"""Several processes at one dataset: nothing is lost, every read is one committed state."""

import os
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import LockedError
from ingot.formats.bloscpack import array as bloscpack_array
from ingot.stores import Commit, Extent, LocalStore, Put, Store, read_state
from ingot.stores.local import lock
from ingot.testing import Disk
from tests.kernels import staged_count

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

KEYS = ["sum", "f/sum", "g/sum"]
SECONDS = 2.0
PROCESS = ingot.Options(durability="process")


def _start(task: Callable[[], None]) -> int:
    """Run a task in a process of its own."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def _end(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run(*tasks: Callable[[], None]) -> list[int]:
    """Run each task in a process of its own; return how they ended."""
    return list(map(_end, list(map(_start, tasks))))


def _values(store: Store) -> list[int]:
    return [int(value or b"0") for value in store.read([Extent(key) for key in KEYS])]


def test_writers_lose_nothing_and_readers_see_one_state(tmp_path: Path) -> None:
    until = time.monotonic() + SECONDS

    def write(name: str) -> None:
        store, count = LocalStore(tmp_path, writable=True), 0

        while time.monotonic() < until:
            with store.writing(durability="process") as turn:
                values = _values(turn.store)
                assert len(set(values)) == 1
                new = b"%d" % (values[0] + 1)
                edits = [Put(key, new) for key in KEYS]
                count += 1
                turn.commit(Commit(publish=(*edits, Put(f"count/{name}", b"%d" % count))))

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


# Arrays -------------------------------------------------------------------------------------------

WRITERS = 4
CHUNK = 4
SHAPE = CHUNK * 10
STAMPED = slice(CHUNK, SHAPE)
"""Nine whole chunks, after one in which each writer has a cell."""


def _patient(path: Path, *, writable: bool = False) -> LocalStore:
    # Eight processes share what may be one busy core: a turn may be long in coming.
    return LocalStore(path, writable=writable, wait=60)


def _number(writer: int, count: int) -> int:
    return count * WRITERS + writer


def _count_up(folder: Path, writer: int, until: float) -> None:
    """Count in a chunk that all share, then stamp chunks that all replace, then write it down."""
    array = ingot.open(_patient(folder / "array", writable=True), "r+", options=PROCESS)
    log = ingot.open(_patient(folder / "log", writable=True), "r+", options=PROCESS)
    count = 0
    while time.monotonic() < until:
        count += 1
        array[writer] = count
        array[STAMPED] = _number(writer, count)
        log.append([_number(writer, count)])
    (folder / f"count{writer}").write_text(str(count))


def _watch(folder: Path, until: float) -> None:
    array, log = ingot.open(_patient(folder / "array")), ingot.open(_patient(folder / "log"))
    counts, entries, reads = np.zeros(WRITERS, "u8"), log[...], 0
    while time.monotonic() < until:
        items = array[...]
        stamps = set(items[STAMPED].tolist())
        assert len(stamps) == 1
        count, writer = divmod(stamps.pop(), WRITERS)
        # A writer counts before it stamps; no count goes down.
        assert items[writer] in (count, count + 1)
        assert (items[:WRITERS] >= counts).all()
        counts = items[:WRITERS]
        with log.snapshot():
            now = log[...]
            assert len(log) == len(now)
        assert (now[: len(entries)] == entries).all()
        entries = now
        reads += 1
    assert reads > 10


@pytest.mark.slow
@pytest.mark.parametrize(("format", "seconds"), [("zarr2", 20.0), ("zarr3", 5.0), ("blsk", 5.0)])
def test_four_writers_and_four_readers_of_one_array(
    tmp_path: Path, format: str, seconds: float
) -> None:
    ingot.create(tmp_path / "array", shape=SHAPE, dtype="u8", chunks=CHUNK, format=format)
    ingot.create(tmp_path / "log", shape=0, dtype="u8", chunks=CHUNK, format=format)
    until = time.monotonic() + seconds
    writers = [lambda writer=n: _count_up(tmp_path, writer, until) for n in range(WRITERS)]
    assert _run(*writers, *[lambda: _watch(tmp_path, until)] * 4) == [0] * 8

    counts = [int((tmp_path / f"count{writer}").read_text()) for writer in range(WRITERS)]
    assert min(counts) > 0
    items, entries = ingot.open(tmp_path / "array")[...], ingot.open(tmp_path / "log")[...]
    assert items[:WRITERS].tolist() == counts
    count, writer = divmod(int(items[CHUNK]), WRITERS)
    assert count == counts[writer]
    for writer in range(WRITERS):
        written = entries[entries % WRITERS == writer] // WRITERS
        assert written.tolist() == list(range(1, counts[writer] + 1))
    assert len(entries) == sum(counts)


def _rows(first: int, count: int) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + count)
    return {"n": numbers, "half": numbers / 2, "text": numbers.astype("S6")}


@pytest.mark.parametrize("seconds", [SECONDS, pytest.param(30.0, marks=pytest.mark.slow)])
def test_readers_beside_writers_that_patch(
    tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots of a file, a single file, and the rows of a table change all the time."""
    # Short files grow in place, as long ones do.
    monkeypatch.setattr(bloscpack_array, "_SMALLEST_IN_PLACE", 0)
    paths = {name: tmp_path / name for name in ("slots.blsk", "file.blp", "table.bcolz")}
    arrays, table = list(paths.values())[:2], paths["table.bcolz"]
    for path in arrays:
        ingot.array(np.zeros(24, "u8"), path, chunks=4, codec="none")
    ingot.table(_rows(0, 3), table, chunks=64)
    until = time.monotonic() + seconds

    def patch(path: Path) -> None:
        array, number = ingot.open(path, "r+", options=PROCESS), 0
        while time.monotonic() < until:
            number += 1
            array[1:23] = number

    def add() -> None:
        rows = ingot.open(table, "r+", options=PROCESS)
        while time.monotonic() < until:
            rows.append(_rows(len(rows), 1 + len(rows) % 3))
            if len(rows) > 5000:
                rows.resize(3)

    def read(path: Path) -> None:
        array, last, seen = ingot.open(path), 0, set()
        while time.monotonic() < until:
            first, *items, behind = array[...].tolist()
            assert (first, behind, len(set(items))) == (0, 0, 1)
            assert items[0] >= last
            last = items[0]
            seen.add(last)
        assert seen

    def read_rows() -> None:
        rows, seen = ingot.open(table), set()
        while time.monotonic() < until:
            found = rows.read()
            expected = _rows(0, len(found["n"]))
            for name, values in expected.items():
                assert found[name].tolist() == values.tolist()
            seen.add(len(found["n"]))
        assert seen

    writers = [*(lambda path=path: patch(path) for path in arrays), add]
    readers = [*(lambda path=path: read(path) for path in arrays), read_rows]
    assert _run(*writers, *readers) == [0] * 6


def test_whole_chunks_are_encoded_while_another_writes(tmp_path: Path) -> None:
    ingot.create(tmp_path, shape=SHAPE, dtype="u8", chunks=CHUNK)
    folder = os.open(tmp_path, os.O_RDONLY)
    turn = lock.acquire(folder, ".lock", 1, str(tmp_path))

    def assign() -> None:
        ingot.open(_patient(tmp_path, writable=True), "r+")[STAMPED] = 7

    child = _start(assign)
    try:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.rglob(".g-*"))) < staged_count(9) and time.monotonic() < deadline:
            time.sleep(0.001)
        staged = len(list(tmp_path.rglob(".g-*")))
        unchanged = not ingot.open(tmp_path)[...].any()
        turn.mark(lock.LockState.CLEAN)
    finally:
        turn.release()
        os.close(folder)
    assert _end(child) == 0
    assert (staged, unchanged) == (staged_count(9), True)
    assert (ingot.open(tmp_path)[STAMPED] == 7).all()


def test_handles_outlive_a_fork(tmp_path: Path) -> None:
    array = ingot.create(tmp_path, shape=8, dtype="u8", chunks=4, options=PROCESS)
    array[0] = 1
    reading, writing = os.pipe()

    def go_on() -> None:
        array[1] = 2
        array.append([3] * 6)
        os.write(writing, b"x")
        while array[2] != 4:
            time.sleep(0.001)
        assert array[:3].tolist() == [1, 2, 4]
        array[8:] = 5

    child = _start(go_on)
    os.read(reading, 1)
    assert len(array) == 14
    array[2] = 4
    assert _end(child) == 0
    assert array[...].tolist() == [1, 2, 4, 0, 0, 0, 0, 0] + [5] * 6


def test_a_child_ends_no_snapshot_of_its_parent(tmp_path: Path) -> None:
    array = ingot.create(tmp_path, shape=8, dtype="u8", chunks=4, options=PROCESS)
    impatient = ingot.open(LocalStore(tmp_path, writable=True, wait=0.02), "r+", options=PROCESS)
    with array.snapshot():
        assert _end(_start(array.close)) == 0
        with pytest.raises(LockedError):
            impatient[:] = 1
        assert not array[...].any()
    impatient[:] = 1
    assert array[...].all()

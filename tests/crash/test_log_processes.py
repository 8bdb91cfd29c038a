"""Processes at one array while its log is open: writers take it over, and are killed."""

import os
import random
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.stores import LocalStore
from ingot.stores.local import log, store
from tests.blsk_reader import read as read_alone
from tests.crash.kills import kill_one
from tests.crash.test_processes import _run

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

CHUNK, WRITERS, SECONDS = 4, 4, 3.0
STAMPED = np.arange(CHUNK, 10 * CHUNK)
"""Nine whole chunks in three files, behind one in which each writer has a cell."""


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a log begun by the first commit that can go into one, and filled soon."""
    monkeypatch.setattr(store, "COMMITS_BEFORE_LOG", 0)
    monkeypatch.setattr(log, "LOG_SECTORS", 16)


def _create(path: Path) -> None:
    values = np.ones(10 * CHUNK, "i8")
    ingot.array(values, path, format="blsk", chunks=CHUNK, superchunksize=4).close()


def _open(path: Path, mode: str = "r") -> ingot.Array:
    # Eight processes share what may be one busy core: a turn may be long in coming.
    found = ingot.open(LocalStore(path, writable=mode == "r+", wait=60), mode)  # type: ignore[call-overload]
    assert isinstance(found, ingot.Array)
    return found


def _stamp(array: ingot.Array, writer: int, count: int) -> None:
    """Change all chunks by one commit: the cell of a writer, and all behind the cells."""
    cells = np.concatenate([[writer], STAMPED])
    array[cells] = [count + 1] + [count * WRITERS + writer] * len(STAMPED)


def _judge(items: np.ndarray, last: list[int]) -> list[int]:
    """Check that items are those of one commit, none before `last`; return what each has done."""
    (number,) = set(items[CHUNK:].tolist())
    done = [int(count) - 1 for count in items[:WRITERS]]
    if number > 1 or max(done) > 0:
        assert done[number % WRITERS] == number // WRITERS, items
    assert all(now >= before for now, before in zip(done, last, strict=True)), (items, last)
    return done


def test_four_writers_and_four_readers_at_an_open_log(tmp_path: Path) -> None:
    path = tmp_path / "a.blsk"
    _create(path)
    until = time.monotonic() + SECONDS

    def write(writer: int) -> None:
        array, count = _open(path, "r+"), 0
        while time.monotonic() < until or count < 5:
            count += 1
            _stamp(array, writer, count)
            (tmp_path / f"{writer}").write_text(f"{count}")

    seen_open = tmp_path / "open"

    def read() -> None:
        array, last = _open(path), [0] * WRITERS
        while time.monotonic() < until:
            last = _judge(array[...], last)
            if (path / ".log").exists():
                seen_open.touch()

    writers = [lambda writer=writer: write(writer) for writer in range(WRITERS)]
    assert _run(*writers, *[read] * 4) == [0] * 8
    assert seen_open.exists()
    counts = [int((tmp_path / f"{writer}").read_text()) for writer in range(WRITERS)]
    assert _judge(_open(path)[...], counts) == counts
    # The processes ended without closing anything: the next writer does.
    array = _open(path, "r+")
    array[0] = 0
    array.close()
    assert sorted(os.listdir(path)) == [".lock", "data", "meta"]
    assert read_alone(path)[1:WRITERS].tolist() == [count + 1 for count in counts[1:]]


def _write_for_ever(path: Path, acknowledged: int, first: int) -> None:
    array = _open(path, "r+")
    for number in range(first, first + 1_000_000):
        _stamp(array, number % WRITERS, number // WRITERS)
        if number % 23 == 0:
            array.attrs["number"] = number  # It closes the log.
        os.write(acknowledged, b"%12d" % number)


def _number(items: np.ndarray) -> int:
    (number,) = set(items[CHUNK:].tolist())
    return int(number)


def test_fifty_kills_of_a_writer_at_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.blsk"
    _create(path)
    chance = random.Random(5)
    last, left = 1, 0
    for _ in range(50):
        said = kill_one(lambda pipe, first=last + 1: _write_for_ever(path, pipe, first), chance)
        last = max(last, said)
        left += (path / ".log").exists()
        items = _open(path)[...]
        assert _number(items) in (last, last + 1)
        # A copy of the folder is the same dataset, on this machine and after a restart.
        copy = tmp_path / "copy"
        shutil.copytree(path, copy)
        data = bytearray((copy / ".lock").read_bytes())
        data[16:24] = b"another."
        (copy / ".lock").write_bytes(data)
        assert _number(_open(copy)[...]) in (last, last + 1)
        LocalStore(copy, writable=True).recover()
        assert sorted(os.listdir(copy)) == [".lock", "data", "meta"]
        assert _number(read_alone(copy)) in (last, last + 1)
        shutil.rmtree(copy)
        last = _number(items)
    assert left > 25
    LocalStore(path, writable=True).recover()
    assert sorted(os.listdir(path)) == [".lock", "data", "meta"]
    assert _number(read_alone(path)) == last


def test_readers_after_a_power_cut_see_what_the_log_says(tmp_path: Path) -> None:
    """The index was not written before the power was cut: the log has what it holds."""
    path = tmp_path / "a.blsk"
    _create(path)
    array = _open(path, "r+")
    _stamp(array, 0, 1)
    files = sorted((path / "data").iterdir())
    before = [file.read_bytes()[:64] for file in files]
    _stamp(array, 1, 2)
    expected = array[...]
    for file, head in zip(files, before, strict=True):
        with file.open("r+b") as opened:
            opened.write(head)
    data = bytearray((path / ".lock").read_bytes())
    data[16:24] = b"another."
    (path / ".lock").write_bytes(data)
    content = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    assert np.array_equal(_open(path)[...], expected)
    assert _open(path)[1] == 3
    # What knows no log sees the state before, chunk by chunk.
    assert _number(read_alone(path)) == 4
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == content
    LocalStore(path, writable=True).recover()
    assert np.array_equal(read_alone(path), expected)
    assert np.array_equal(_open(path)[...], expected)

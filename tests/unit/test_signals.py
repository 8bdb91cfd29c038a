"""Ctrl-C and forks: locks are released, snapshots end, and a child begins anew."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import signals
from ingot.stores import MemoryStore
from ingot.stores.local.files import LocalFileSystem
from ingot.stores.store import SPARES
from tests.storage import open_files

QUICK = ingot.Options(durability="process")


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_raised_when_the_outermost_block_ends() -> None:
    done = []

    def work() -> None:
        with signals.Deferred():
            with signals.Deferred():
                interrupt()
            done.append("inner block")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["inner block"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_note_of_an_inner_block_is_kept() -> None:
    def work() -> None:
        with signals.Deferred():
            with signals.Deferred() as inner:
                inner.note = "stored"
            interrupt()

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert caught.value.__notes__ == ["stored"]


def test_a_check_raises_what_was_held_back() -> None:
    done = []

    def work() -> None:
        with signals.Deferred():
            interrupt()
            signals.check()
            done.append("after the check")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == []


def test_the_handler_of_the_program_is_called_and_comes_back() -> None:
    seen: list[int] = []
    previous = signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with signals.Deferred():
            interrupt()
            assert seen == []
        assert seen == [signal.SIGINT]
        interrupt()
        assert seen == [signal.SIGINT] * 2
    finally:
        signal.signal(signal.SIGINT, previous)


def test_other_threads_hold_nothing_back() -> None:
    entered: list[bool] = []

    def work() -> None:
        with signals.Deferred():
            entered.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert entered == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts descriptors by /proc")
@pytest.mark.parametrize("operation", ["assign", "whole", "append", "attrs", "snapshot", "table"])
def test_ctrl_c_at_random_times_leaves_no_lock_behind(tmp_path: Path, operation: str) -> None:
    values = np.arange(20_000.0).reshape(200, 100)
    array = ingot.array(values, tmp_path / "a", chunks=(10, 10), options=QUICK)
    table = ingot.table({"a": np.arange(500), "b": np.arange(500)}, tmp_path / "t", options=QUICK)
    other = ingot.open(tmp_path / "a", "r+", options=QUICK)
    assert isinstance(other, ingot.Array)
    other[0, 0] = 0

    def snapshot() -> None:
        with array.snapshot():
            array[5]

    def transaction() -> None:
        with table.transaction():
            table.append({"a": [1], "b": [2]})
            table.update("a == 7", {"b": 1})

    operations: dict[str, Callable[[], object]] = {
        "assign": lambda: array.__setitem__(slice(5, 77), values[5:77]),
        "whole": lambda: array.__setitem__(..., values),
        "append": lambda: array.append(values[:3]),
        "attrs": lambda: array.attrs.update(step=1),
        "snapshot": snapshot,
        "table": transaction,
    }
    # The first use of a handle opens its lock file for good.
    operations[operation]()
    table.append({"a": [1], "b": [2]})
    before = len(open_files(tmp_path))
    caught = 0
    for number in range(60):
        timer = threading.Timer(0.0001 * number, os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while timer.is_alive():
                operations[operation]()
            timer.join()
            time.sleep(0.001)
        except KeyboardInterrupt:
            caught += 1
        timer.join()
        began = time.monotonic()
        other[0, 0] = number
        assert time.monotonic() - began < 5
    assert caught
    assert len(open_files(tmp_path)) == before
    table.append({"a": [1], "b": [2]})
    array[0, 0] = 1
    left = {path.name for path in tmp_path.rglob("*") if path.name.startswith((".g-", ".commit"))}
    assert left <= SPARES


def test_a_commit_that_was_interrupted_says_that_it_happened(tmp_path: Path) -> None:
    array = ingot.array([1, 2, 3], tmp_path / "a", options=QUICK)

    def work() -> None:
        with signals.Deferred():
            array[0] = 7
            interrupt()

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert "commit is done" in " ".join(caught.value.__notes__)
    assert array[0] == 7


FORKING = textwrap.dedent(
    """
    import os, sys, threading, time
    import numpy as np
    import ingot

    options = ingot.Options(durability="process")
    path = sys.argv[1] or None
    array = ingot.array(np.zeros(100), path, chunks=10, options=options)
    done = threading.Event()

    def write():
        while not done.is_set():
            array[:50] = 1.0

    thread = threading.Thread(target=write)
    thread.start()
    failed = 0
    for _ in range(10):
        time.sleep(0.005)
        child = os.fork()
        if not child:
            array[3]
            array[2:4] = 2.0
            with array.snapshot():
                array[1]
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    done.set()
    thread.join()
    with array.snapshot():
        child = os.fork()
        if not child:
            array[0]
            with array.snapshot():
                array[1]
            os._exit(0)
        failed += os.waitpid(child, 0)[1] != 0
    sys.exit(failed)
    """
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", ["a", "a.zip", None])
def test_a_forked_child_uses_the_handle(tmp_path: Path, name: str | None) -> None:
    path = "" if name is None else str(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, path],
        timeout=120,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr


def test_a_fork_inside_a_transaction_leaves_it_to_the_parent() -> None:
    table = ingot.table({"a": [1, 2]}, MemoryStore(), options=QUICK)
    with table.transaction():
        table.append({"a": [3]})
        child = os.fork()
        if not child:
            os._exit(0 if len(table) == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert len(table) == 3


def interrupted_at(line: int, function: Callable[[], object]) -> tuple[list[str] | None, bool]:
    """Call a function with SIGINT at the n-th line of Ingot or contextlib.

    Return the notes of the exception, None without one, and whether the line was reached.
    """
    folders = (os.path.dirname(ingot.__file__) + os.sep, contextlib.__file__)
    left = line

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal left
        # Python ignores what a finalizer raises.
        if not frame.f_code.co_filename.startswith(folders) or frame.f_code.co_name == "__del__":
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    except KeyboardInterrupt as error:
        return list(getattr(error, "__notes__", ())), True
    finally:
        sys.settrace(before)
    return None, left <= 0


def test_ctrl_c_leaves_no_directory_open(tmp_path: Path) -> None:
    """At every line of closing one."""
    reached, line = True, 0
    while reached:
        line += 1
        directory = LocalFileSystem(tmp_path).open()
        assert directory is not None
        directory.close_file(directory.open_new(str(line)))
        _, reached = interrupted_at(line, directory.close)
        del directory
        assert open_files(tmp_path) == [], line
    assert line > 5


LATE = {
    "create": (
        lambda place: None,
        lambda place, made: ingot.create(place, shape=3, dtype="i4", options=QUICK),
        lambda place: ingot.open(place).shape,
    ),
    "group": (
        lambda place: None,
        lambda place, made: ingot.group(place, options=QUICK),
        lambda place: list(ingot.open(place)),
    ),
    "table": (
        lambda place: None,
        lambda place, made: ingot.table({"a": [1]}, place, options=QUICK),
        lambda place: ingot.open(place)["a"][:].tolist(),
    ),
    "update": (
        lambda place: ingot.table({"a": [1, 2]}, place, options=QUICK),
        lambda place, made: made.update([0], {"a": 7}),
        lambda place: ingot.open(place)["a"][:].tolist(),
    ),
    "transaction": (
        lambda place: ingot.table({"a": [1, 2]}, place, options=QUICK),
        lambda place, made: transact(made),
        lambda place: ingot.open(place)["a"][:].tolist(),
    ),
    "attributes": (
        lambda place: ingot.table({"a": [1, 2]}, place, options=QUICK),
        lambda place, made: made.attrs.update(x=1),
        lambda place: dict(ingot.open(place).attrs),
    ),
    "appender": (
        lambda place: ingot.table({"a": [1, 2]}, place, options=QUICK),
        lambda place, made: made.appender(rows=1)((3,)),
        lambda place: len(ingot.open(place)),
    ),
}
"""What makes a dataset, an operation of one commit, and what is read to see whether it happened."""


def transact(table: Any) -> None:
    with table.transaction():
        table["a"][0] = 7


@pytest.mark.parametrize("name", ["data", "data.zip"])
@pytest.mark.parametrize("operation", LATE)
def test_ctrl_c_after_a_commit_has_a_note_wherever_it_comes(
    tmp_path: Path, operation: str, name: str
) -> None:
    """The last lines of each operation, one after the other from the end."""
    make, act, look = LATE[operation]

    def attempt(line: int) -> tuple[list[str] | None, bool, object, object]:
        folder = tmp_path / str(line)
        folder.mkdir()
        place = folder / name
        made = make(place)
        before = None if made is None else look(place)
        notes, reached = interrupted_at(line, lambda: act(place, made))
        try:
            after = look(place)
        except ingot.errors.NotFoundError:
            after = None
        return notes, reached, before, after

    attempt(10**9)  # Once to the end, so that all modules are loaded.
    low, high = 1, 2
    while attempt(high)[1]:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if attempt_again(attempt, middle, tmp_path) else (low, middle)
    committed = 0
    for line in range(low, max(0, low - 150), -1):
        shutil.rmtree(tmp_path / str(line), ignore_errors=True)
        notes, _, before, after = attempt(line)
        if notes is None or before == after:
            continue
        committed += 1
        assert notes, f"line {line} of {low}"
    assert committed > 20


def attempt_again(attempt: Callable[[int], Any], line: int, folder: Path) -> bool:
    shutil.rmtree(folder / str(line), ignore_errors=True)
    return bool(attempt(line)[1])

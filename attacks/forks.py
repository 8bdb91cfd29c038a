"""The attack `forks`: children forked at bad times use the handle of their parent.

A child is forked while threads read and write, inside a snapshot, or inside a transaction. It
reads and writes by the handle that it inherits, or that it gets by pickling, within ten seconds.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import signal
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import STORES, samples
from attacks.programs import IMPORTS, content

__all__ = ["forks", "use"]

CHILD_SECONDS = 10
CIRCUMSTANCES = {
    "nothing else": "contextlib.nullcontext()",
    "a thread writes": "working(lambda: write(h))",
    "a thread reads": "working(lambda: content(h))",
    "threads read and write": "working(lambda: write(h), lambda: content(h))",
    "another handle writes": 'working(lambda: write(ingot.open(place, "r+")))',
    "inside a snapshot": "h.snapshot()",
    "another thread is inside a snapshot": "elsewhere(h.snapshot)",
    "inside a transaction": "h.transaction()",
    "another thread is inside a transaction": "elsewhere(h.transaction)",
}
"""What goes on while a child is forked, as source text."""
WRITES = frozenset(name for name, text in CIRCUMSTANCES.items() if "write(" in text)
"""The circumstances in which another thread of the parent writes."""


def write(h):
    """Write by a handle, as every container can."""
    h.attrs["x"] = os.getpid()


def use(h, alone=False):
    """Read and write by a handle; `alone` if no other process or thread writes meanwhile."""
    content(h)
    with h.snapshot():
        content(h)
    write(h)
    if isinstance(h, ingot.Table):
        transact(h, alone)
    content(h)


def transact(h, alone):
    """Write in a transaction; unless no other process writes, it may lose and is tried again."""
    while True:
        try:
            with h.transaction():
                write(h)
            return
        except ingot.errors.LockedError as error:
            if alone or "since the transaction began" not in str(error):
                raise


@contextlib.contextmanager
def working(*actions):
    """Let a thread repeat each action until the block ends."""
    stop = threading.Event()

    def repeat(action):
        while not stop.is_set():
            # A writer may wait for another one, and lose.
            with contextlib.suppress(ingot.errors.LockedError):
                action()

    threads = [threading.Thread(target=repeat, args=(each,), daemon=True) for each in actions]
    [thread.start() for thread in threads]
    time.sleep(0.01)
    try:
        yield
    finally:
        stop.set()
        [thread.join() for thread in threads]


@contextlib.contextmanager
def elsewhere(block):
    """Let another thread be inside a block until this one ends."""
    entered, leave = threading.Event(), threading.Event()

    def hold():
        with block():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    entered.wait(5)
    try:
        yield
    finally:
        leave.set()
        thread.join()


def forked(action, log, seconds):
    """Fork a child that does an action; return its number."""
    number = os.fork()
    if number:
        return number
    status = 1
    try:
        stderr = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(stderr, 2)
        faulthandler.dump_traceback_later(seconds, exit=True)
        action()
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def waited(number, seconds):
    """Wait for a child; return its status, or None when it had to be killed."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(number, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    return None


@attack("forks", case_seconds=60)
def forks(case: Case) -> None:
    """Children forked while threads read and write, in snapshots and in transactions."""
    rng = case.random
    sample = rng.choice([each for each in samples() if each.name not in ("scalar", "empty")])
    store = rng.choice([name for name in STORES if name != "memory"] + ["folder"])
    choices = [
        name for name, text in CIRCUMSTANCES.items()
        if "transaction" not in text or sample.holds == "table"
    ]  # fmt: skip
    circumstance = choices[case.number % len(choices)]
    method = "os.fork"
    if case.number % 7 == 6:
        method = rng.choice(("fork", "fork", "forkserver", "spawn"))
    title = f"{sample.title} in {store}, {circumstance}, by {method}"
    program = source(sample.source, store, circumstance)
    case.announce(program, title)
    space: dict[str, Any] = {"np": np, "os": os, "ingot": ingot, "folder": str(case.folder)}
    exec(f"place = {STORES[store]}\n{sample.source}\nh = ingot.open(place, 'r+')", space)
    space |= {"contextlib": contextlib, "working": working, "elsewhere": elsewhere}
    space |= {"write": write, "content": content}
    begin: Callable[[], Any] = lambda: eval(CIRCUMSTANCES[circumstance], space)  # noqa: E731
    handle = space["h"]
    started = time.monotonic()
    with silenced():
        if method == "os.fork":
            outcomes = list(by_fork(case, handle, begin, circumstance not in WRITES))
        else:
            outcomes = [by_process(method, handle, begin, circumstance not in WRITES)]
    for status, log in outcomes:
        case.count("children")
        if status == 0:
            continue
        kind = "hang" if status is None or "Timeout (" in log else "error"
        last = (log.strip().splitlines() or ["no output"])[-1]
        if kind == "hang":
            last = "no answer"
        case.find(
            kind,
            f"{sample.holds}, {circumstance}, by {method}: {last.partition(':')[0]}",
            expected=f"the child reads and writes within {CHILD_SECONDS} s",
            happened=f"status {status} after {time.monotonic() - started:.1f} s, {title}\n{log}",
            program=program,
        )
    try:
        use(handle)
    except Exception as error:
        case.find(
            "parent",
            f"{sample.holds}, {circumstance}, by {method}: {type(error).__name__}",
            expected="the parent reads and writes afterwards",
            happened=f"{error}, {title}",
            program=program,
        )


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Allow a transaction to lose against a commit of the child."""
    with contextlib.suppress(ingot.errors.LockedError):
        yield


def by_fork(
    case: Case, handle: Any, begin: Callable[[], Any], quiet: bool
) -> Iterator[tuple[int | None, str]]:
    """Fork children while something goes on; yield the status and the output of each."""
    logs: dict[int, Path] = {}
    children = case.random.choice((1, 1, 2))
    alone = quiet and children == 1
    # The parent leaves its snapshot first: a writer waits for the end of snapshots.
    with silenced(), begin():
        for number in range(children):
            time.sleep(case.random.random() * 0.004)
            log = case.folder / f"log-{number}"
            # A child that arms a watchdog of its own would wait for the thread of this one.
            faulthandler.cancel_dump_traceback_later()
            logs[forked(lambda: use(handle, alone), log, CHILD_SECONDS)] = log
            case.rearm()
    for child, log in logs.items():
        status = waited(child, CHILD_SECONDS + 5)
        yield status, log.read_text() if log.exists() else ""


def by_process(
    method: str, handle: Any, begin: Callable[[], Any], alone: bool
) -> tuple[int | None, str]:
    """Let multiprocessing start a child; return its status and its output."""
    with tempfile.TemporaryFile() as log:
        keep = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:
            with silenced(), begin():
                context = multiprocessing.get_context(method)
                process = context.Process(target=use, args=(handle, alone))
                process.start()
            # A spawned interpreter imports everything first.
            process.join(CHILD_SECONDS if method == "fork" else 3 * CHILD_SECONDS)
            status = process.exitcode
            if status is None:
                process.kill()
                process.join()
        finally:
            os.dup2(keep, 2)
            os.close(keep)
        log.seek(0)
        return status, log.read().decode("utf-8", "replace")


def source(make: str, store: str, circumstance: str) -> str:
    """Return a program that forks ten children and waits for each."""
    import inspect

    functions = (content, write, use, transact, working, elsewhere, forked, waited)
    text = "\n\n".join(inspect.getsource(each) for each in functions)
    modules = ("contextlib", "faulthandler", "signal", "threading", "time", "traceback")
    head = "\n".join(f"import {name}" for name in modules)
    return f"""{head}
{IMPORTS}

{text}

folder = tempfile.mkdtemp()
place = {STORES[store]}
{make}
h = ingot.open(place, "r+")
for number in range(10):
    log = os.path.join(folder, "log")
    try:
        with {CIRCUMSTANCES[circumstance]}:
            child = forked(lambda: use(h), log, 8)
    except ingot.errors.LockedError:
        print("the block of the parent lost")
    print("child", number, "status", waited(child, 10))
    print(open(log).read())
"""

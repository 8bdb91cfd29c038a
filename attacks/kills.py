"""The attack `kills`: four writers and four readers of one dataset, killed at random.

Every commit that a writer acknowledged is there, every read is of a committed state, and the next
write leaves no litter. Rows carry the number of their commit, so a read proves itself.
"""

import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.campaign import Case, attack
from attacks.datasets import is_litter

__all__ = ["kills"]

WRITERS, READERS = 4, 4
ROUND_SECONDS = 0.8
ROWS = 7
"""How many rows one commit appends. It does not divide the chunks, so chunks are shared."""
WORD = struct.Struct("<cq")
"""A message to the parent: its kind, and a number."""


@dataclass(frozen=True)
class Duel:
    """What writers and readers do with a kind of dataset."""

    make: Callable[[str, str], Any]
    write: Callable[[Any, int], None]
    wrong: Callable[[Any], str]
    """Return what is wrong with one read, or nothing."""
    commits: Callable[[Any], set[int]]
    """Return the commits that a dataset holds; those that replace others show only the last."""
    keeps_all: bool


def rows_of(number: int) -> np.ndarray:
    """Return the rows of one commit."""
    return np.full(ROWS, number, "i8")


def torn(values: np.ndarray) -> str:
    """Return what is wrong with appended rows: each commit is there whole and in one piece."""
    if len(values) % ROWS:
        return f"{len(values)} rows, no multiple of {ROWS}"
    pieces = values.reshape(-1, ROWS)
    if not (pieces == pieces[:, :1]).all():
        return f"a piece of a commit: {pieces[(pieces != pieces[:, :1]).any(axis=1)][:2].tolist()}"
    return ""


def torn_table(table: Any) -> str:
    """Return what is wrong with a read of a table."""
    columns = table.read()
    if not (columns["b"] == columns["a"] * 3).all():
        return "columns of different commits"
    return torn(columns["a"])


def whole(array: Any) -> str:
    """Return what is wrong with a read of an array that is assigned as a whole."""
    values = np.asarray(array[...])
    return "" if (values == values.flat[0]).all() else f"mixed: {np.unique(values)[:5].tolist()}"


def append_rows(table: Any, number: int) -> None:
    """Append the rows of one commit to a table."""
    table.append({"a": rows_of(number), "b": rows_of(number) * 3})


LITTER = """import os, random, signal, tempfile, time

import numpy as np

import ingot


def writer():
    child = os.fork()
    if child:
        return child
    h = ingot.open(place, "r+")
    while True:
        h[...] = os.getpid()


def staged():
    return [name for name in os.listdir(place) if name.startswith(".g-")]


for number in range(30):
    place = os.path.join(tempfile.mkdtemp(), "data")
    ingot.array(np.zeros((12, 6), "i8"), place, format="zarr2", chunks=5).close()
    children = [writer() for _ in range(4)]
    time.sleep(0.3)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        time.sleep(random.random() * 0.05)
    before = len(staged())
    h = ingot.open(place, "r+")
    h[...] = 0
    zeros = len(staged())
    h[...] = 9
    print("staged files", before, "after assigning 0", zeros, "after assigning 9", len(staged()))
"""
"""What shows the litter of killed writers, where the next write stages nothing itself."""

DUELS = {
    "append to an array": Duel(
        lambda place, format: ingot.array(np.zeros(0, "i8"), place, format=format, chunks=16),
        lambda array, number: array.append(rows_of(number)),
        lambda array: torn(np.asarray(array[...])),
        lambda array: set(np.asarray(array[...]).tolist()),
        True,
    ),
    "append to a table": Duel(
        lambda place, format: ingot.table(
            {"a": np.zeros(0, "i8"), "b": np.zeros(0, "i8")}, place, format=format, chunks=16
        ),
        append_rows,
        torn_table,
        lambda table: set(table.read()["a"].tolist()),
        True,
    ),
    "assign an array": Duel(
        lambda place, format: ingot.array(np.zeros((12, 6), "i8"), place, format=format, chunks=5),
        lambda array, number: array.__setitem__(..., number),
        whole,
        lambda array: set(np.asarray(array[...]).ravel().tolist()),
        False,
    ),
}


@attack("kills", case_seconds=40)
def kills(case: Case) -> None:
    """Four writers and four readers, killed at random; what was acknowledged is there."""
    rng = case.random
    name = list(DUELS)[case.number % len(DUELS)]
    duel = DUELS[name]
    kind = "table" if "table" in name else "array"
    format = rng.choice([each for each, kinds in sorted(ingot.formats().items()) if kind in kinds])
    store = rng.choice(("folder", "folder", "zip"))
    place = str(case.folder / ("data.zip" if store == "zip" else "data"))
    title = f"{name}, {format} in {store}"
    case.announce("", title)
    duel.make(place, format).close()
    acknowledged: set[int] = set()
    problems: list[str] = []
    numbers = iter(range(1, 10**9, 10**5))
    # Each child has a pipe, for a child may be killed in the middle of a message.
    children: dict[int, int] = {}

    def start(role: str) -> None:
        receive, send = os.pipe()
        first = next(numbers)
        child = os.fork()
        if not child:
            os.close(receive)
            serve(role, duel, place, first, send)
        os.close(send)
        os.set_blocking(receive, False)
        children[child] = receive

    for role in ["writer"] * WRITERS + ["reader"] * READERS:
        start(role)
    roles = dict(zip(children, ["writer"] * WRITERS + ["reader"] * READERS, strict=True))
    end = time.monotonic() + ROUND_SECONDS
    killed = 0
    while time.monotonic() < end:
        time.sleep(rng.random() * 0.06)
        victim = rng.choice(list(children))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        killed += 1
        drain(case, children.pop(victim), acknowledged, problems)
        start(roles.pop(victim))
        roles[next(reversed(children))] = "writer" if len(roles) % 2 else "reader"
    for child, pipe in children.items():
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        drain(case, pipe, acknowledged, problems)
    case.count("kills", killed + len(children))
    judge(case, duel, place, title, acknowledged, problems)


def serve(role: str, duel: Duel, place: str, first: int, send: int) -> None:
    """Write or read until killed. This is the child; it never returns."""
    try:
        handle = ingot.open(place, "r+" if role == "writer" else "r")
        for number in range(first, first + 10**5):
            if role == "writer":
                duel.write(handle, number)
                os.write(send, WORD.pack(b"w", number))
            else:
                problem = duel.wrong(handle)
                if problem:
                    os.write(send, WORD.pack(b"!", len(problem)) + problem.encode()[:400])
                    break
                os.write(send, WORD.pack(b"r", number))
    except BaseException as error:
        text = f"{role}: {type(error).__name__}: {error}".encode()[:400]
        os.write(send, WORD.pack(b"!", len(text)) + text)
    finally:
        os._exit(0)


def drain(case: Case, pipe: int, acknowledged: set[int], problems: list[str]) -> None:
    """Read all that a child said."""
    data = b""
    try:
        while received := os.read(pipe, 1 << 20):
            data += received
    except BlockingIOError:
        pass
    finally:
        os.close(pipe)
    reads = writes = position = 0
    while position + WORD.size <= len(data):
        kind, number = WORD.unpack_from(data, position)
        position += WORD.size
        if kind == b"!":
            problems.append(data[position : position + number].decode("utf-8", "replace"))
            position += number
        elif kind == b"w":
            acknowledged.add(number)
            writes += 1
        else:
            reads += 1
    case.count("commits", writes)
    case.count("reads", reads)


def judge(
    case: Case, duel: Duel, place: str, title: str, acknowledged: set[int], problems: list[str]
) -> None:
    """Check what the killed writers left."""
    for problem in problems[:3]:
        case.find(
            "read" if ":" not in problem[:8] else "error",
            f"{title}: {problem.partition(':')[2][:30]}",
            expected="every call of a reader or writer answers with a committed state",
            happened=problem,
        )
    try:
        handle = ingot.open(place, "r+")
        problem = duel.wrong(handle)
        there = duel.commits(handle)
        duel.write(handle, 0)
    except Exception as error:
        happened = f"{type(error).__name__}: {error}"
        case.find("error", title, expected="a dataset that works", happened=happened)
        return
    if problem:
        case.find("state", title, expected="a committed state", happened=problem)
    lost = acknowledged - there if duel.keeps_all else set()
    if lost:
        happened = f"{len(lost)} of {len(acknowledged)} commits are lost: {sorted(lost)[:5]}"
        case.find("lost", title, expected="every acknowledged commit", happened=happened)
    litter = [each.name for each in Path(place).parent.rglob("*") if is_litter(each)]
    if litter:
        duel.write(handle, 0)
        still = [each.name for each in Path(place).parent.rglob("*") if is_litter(each)]
        happened = f"{len(litter)} files, {len(still)} after one more write: " + ", ".join(
            litter[:5]
        )
        case.find(
            "litter",
            title,
            expected="no litter after the next write",
            happened=happened,
            program=LITTER,
        )

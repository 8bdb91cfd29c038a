"""What a process really asked the system to do, as steps of a `Disk`.

Knows the log of strace, and which system calls change files. Whatever else could change one is an
error: a call that is not understood must not be a hole in a proof. Of the lock file only the name
of a log counts: nothing else of it needs to last.

As a program it is what is watched: it takes the steps of a scenario on real files, and says after
each of them that it is done.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ingot.formats.bloscpack import array as bloscpack_array
from ingot.formats.varlen import ragged as varlen_ragged
from ingot.stores import LocalStore, Store
from ingot.stores.local import log, store
from ingot.testing import Disk, Scenario
from tests.crash import bloscpack_scenarios, item_scenarios, table_scenarios
from tests.crash.arrays import append, assign, describe, numbered, resize, scenario

Step = Callable[[Disk], object]

SYNCS = {"fsync", "fdatasync", "syncfs"}
OPENINGS = {"open", "openat", "openat2", "creat"}
NAMES = {"mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat"}
WRITES = {"write", "writev", "pwrite64", "ftruncate"}
REFUSED = {
    "copy_file_range", "fallocate", "link", "linkat", "mmap", "pwritev", "pwritev2",
    "rmdir", "sendfile", "symlink", "symlinkat", "sync", "truncate", "vmsplice",
}  # fmt: skip
TRACED = sorted(SYNCS | OPENINGS | NAMES | WRITES | REFUSED)

ARRAYS: dict[str, dict[str, Any]] = {
    "zarr2": {"format": "zarr2", "chunks": 4, "codec": "none"},
    "zarr2 in folders": {"format": "zarr2", "chunks": (4, 1), "dimension_separator": "/"},
    "zarr3": {"format": "zarr3", "chunks": 4},
    "shards": {"format": "zarr3", "chunks": 2, "shards": 4},
    "blsk": {"format": "blsk", "chunks": 4, "superchunksize": 3},
}


@cache  # Its first state has an identity that is drawn.
def _changed_array(layout: str) -> Scenario:
    keywords = ARRAYS[layout]
    inner = (1,) if isinstance(keywords["chunks"], tuple) else ()
    return scenario(
        numbered(10, *inner),
        append(numbered(8, *inner, first=100)),
        assign(slice(1, 11), 77),
        assign(slice(4, 16), 78),
        assign(slice(5, 7), 79),
        assign(slice(6, 7), 80),
        append(numbered(1, *inner, first=200)),
        resize(30, *inner),
        assign(slice(4, 8), 0),
        resize(5, *inner),
        describe(a=1),
        **keywords,
    )


def _changed_bloscpack() -> Scenario:
    return bloscpack_scenarios.changed(
        bloscpack_scenarios.append(5),
        bloscpack_scenarios.append(45),
        bloscpack_scenarios.describe(n=1),
        bloscpack_scenarios.assign(25),
        bloscpack_scenarios.append(30),
    )


@cache  # In bcolz and blsk, items have an identity that is drawn.
def _changed_items(format: str) -> Scenario:
    noise = item_scenarios.NOISE
    compactions: dict[str, item_scenarios.Change] = {
        "varlen": lambda found: found.compact(),
        "blsk": item_scenarios.assign_and_compact,
    }
    return item_scenarios.changed(
        item_scenarios.append(7),
        item_scenarios.assign(0, noise[100:109]),
        item_scenarios.assign(2, noise[100:140]),
        lambda found: found.delete([0, 3]),
        *(change for name, change in compactions.items() if name == format),
        lambda found: found.attrs.update(n=1),
        format=format,
    )


@cache  # Its columns have identities that are drawn.
def _changed_texts() -> Scenario:
    return table_scenarios.table(
        6,
        table_scenarios.append_texts(3),
        lambda found: found.update("a >= 100", {"b": "longer than what was there"}),
        lambda found: found.delete([0, 4]),
        lambda found: found.resize(2),
        start=table_scenarios.texts,
        format="blsk",
    )


@cache
def _logged_array() -> Scenario:
    """Several chunks again and again, so that all is in a log, and one chunk between them."""
    return scenario(
        numbered(12),
        assign(slice(1, 11), 77),
        assign(slice(2, 10), 78),
        assign(slice(0, 9), 79),
        assign(slice(3, 12), 81),
        assign(slice(6, 7), 80),
        assign(slice(1, 9), 82),
        describe(a=1),
        format="blsk",
        chunks=4,
        superchunksize=2,
    )


LAYOUTS: dict[str, Callable[[], Scenario]] = {
    **{layout: partial(_changed_array, layout) for layout in ARRAYS},
    "bloscpack": _changed_bloscpack,
    "varlen": partial(_changed_items, "varlen"),
    "items in bcolz": partial(_changed_items, "bcolz"),
    "items in blsk": partial(_changed_items, "blsk"),
    "texts in blsk": _changed_texts,
    "a log": _logged_array,
}
"""One of every kind of change, one after the other, by what is changed."""


def record(layout: str, kernel: str, folder: Path) -> list[list[Step]]:
    """Make the changes in another process, and return what each of them did to the files."""
    log = folder.with_suffix(".log")
    for key, data in LAYOUTS[layout]().files.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)
    watch = ["strace", "-f", "-y", "-xx", "-s", "1000000", "-o", str(log)]
    watch += ["-e", "trace=" + ",".join(f"?{name}" for name in TRACED)]
    program = [sys.executable, "-m", __name__, layout, str(folder)]
    environment = {**os.environ, "INGOT_KERNEL": kernel}
    subprocess.run([*watch, *program], check=True, stdout=subprocess.PIPE, env=environment)
    return _split(_calls(log.read_text().splitlines()), str(folder))


def replayed(layout: str, steps: Iterable[Iterable[Step]]) -> Scenario:
    """Return the scenario in which a log takes the place of the changes."""

    def repeat(series: Iterable[Step]) -> Callable[[Store], None]:
        def perform(store: Store) -> None:
            disk = store._files  # type: ignore[attr-defined]
            for step in series:
                step(disk)

        return perform

    return replace(LAYOUTS[layout](), steps=tuple(map(repeat, steps)))


# The log ------------------------------------------------------------------------------------------


class Call(NamedTuple):
    name: str
    arguments: list[str]
    result: str
    place: str


# Where the lock file says whether the files hold what a log says, and names the log.
_LOG_AT = 25

_LINE = re.compile(r"(\d+)\s+(\w+)\((.*)\)\s+= (-?\d+|\?)(?:<([^>]*)>)?.*")
_CUT = re.compile(r"(\d+)\s+(\w+\(.*?),? ?<unfinished \.\.\.>")
_REST = re.compile(r"(\d+)\s+<\.\.\. \w+ resumed>,? ?(.*)")
_BYTE = re.compile(r"\\x([0-9a-f]{2})")


def _calls(lines: Iterable[str]) -> Iterator[Call]:
    """Yield the calls in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in lines:
        if cut := _CUT.fullmatch(line):
            begun[cut[1]] = cut[2]
            continue
        if rest := _REST.fullmatch(line):
            separator = "" if rest[2].startswith(")") or begun[rest[1]].endswith("(") else ", "
            line = f"{rest[1]} {begun.pop(rest[1])}{separator}{rest[2]}"
        if found := _LINE.fullmatch(line):
            yield Call(found[2], found[3].split(", "), found[4], found[5] or "")
        else:
            assert re.fullmatch(r"\d+\s+(\+\+\+|---) .*", line), line
    assert not begun


def _split(calls: Iterable[Call], root: str) -> list[list[Step]]:
    """Return the steps below a directory, divided where the process said that it was done."""
    parts: list[list[Step]] = [[]]
    positions: dict[str, int] = {}
    for call in calls:
        if call.name == "write" and call.arguments[0].startswith("1<"):
            parts.append([])
        elif call.result != "?" and int(call.result) >= 0:
            step = _step(call, root, positions)
            if step is not None:
                parts[-1].append(step)
    assert parts.pop() == []
    return parts


def _step(call: Call, root: str, positions: dict[str, int]) -> Step | None:
    name, arguments = call.name, call.arguments
    if name in OPENINGS:
        positions[call.result] = 0
        key = _below(root, _text(call.place))
        assert key is None or "O_TRUNC" not in str(arguments), call
        return _creation(key) if key is not None and "O_CREAT" in str(arguments) else None
    if name in WRITES or name in SYNCS:
        key = _below(root, _path(arguments[0]))
        if key is None:
            return _naming(call, root)
        if name in SYNCS:
            return _synced(key, whole=name == "syncfs")
        if name == "ftruncate":
            size = int(arguments[1])
            return lambda disk: disk.truncate(disk.open_old(key)[0], size)  # type: ignore[index]
        shown = arguments[1:-1] if name == "writev" else arguments[1:2]
        data = b"".join(map(_data, shown))[: int(call.result)]
        number = arguments[0].partition("<")[0]
        start = int(arguments[3]) if name == "pwrite64" else positions[number]
        positions[number] = start + len(data)
        return lambda disk: disk.write(disk.open_old(key)[0], start, data)  # type: ignore[index]
    if name in NAMES:
        return _renaming(call, root)
    assert name == "mmap" or not any(root in _text(part) for part in arguments), call
    if name == "mmap" and "PROT_WRITE" in arguments[2] and "MAP_SHARED" in arguments[3]:
        assert root not in _text(arguments[4]), call
    return None


def _naming(call: Call, root: str) -> Step | None:
    """Return the step that names a log in the lock file, or forgets one; None for another."""
    if _path(call.arguments[0]) != f"{root}/.lock" or call.name != "pwrite64":
        return None
    if int(call.arguments[3]) != _LOG_AT:
        return None
    name = _data(call.arguments[1])[1:].hex()

    def step(disk: Disk) -> None:
        lock = disk.lock(".lock", 0, sync=True)
        if name.strip("0"):
            lock.name_log(name)
        else:
            lock.forget_log()
        lock.release()

    return step


def _creation(key: str) -> Step:
    def step(disk: Disk) -> None:
        if disk.size(key) is None:
            disk.open_new(key)

    return step


def _synced(key: str, *, whole: bool) -> Step:
    if whole:
        return lambda disk: disk.sync_all()

    def step(disk: Disk) -> None:
        opened = disk.open_old(key)
        if opened is None:
            disk.sync_folder(key)
        else:
            disk.sync(opened[0])

    return step


def _renaming(call: Call, root: str) -> Step | None:
    names = [_path_below(call, at) for at in ((0, 2) if "rename" in call.name else (0,))]
    keys = [_below(root, name) for name in names]
    if None in keys:
        assert keys == [None] * len(keys), call
        return None
    key, other = keys[0] or "", keys[-1] or ""
    if call.name.startswith("mkdir"):
        return lambda disk: disk.make_folder(key)
    if call.name.startswith("unlink"):
        assert "AT_REMOVEDIR" not in call.arguments, call
        return lambda disk: disk.unlink(key)
    assert key.rpartition("/")[0] == other.rpartition("/")[0], call
    return lambda disk: disk.rename(key, other)


def _path_below(call: Call, at: int) -> str:
    """Return the path that a folder and a name make, or the name alone where there is no folder."""
    if not call.name.endswith(("at", "at2")):
        return _text(call.arguments[at // 2])
    return str(Path(_path(call.arguments[at])) / _text(call.arguments[at + 1]))


def _below(root: str, path: str) -> str | None:
    if path != root and not path.startswith(f"{root}/"):
        return None
    key = path[len(root) + 1 :]
    return None if key == ".lock" else key


def _path(argument: str) -> str:
    return _text(argument.partition("<")[2].removesuffix(">"))


def _text(argument: str) -> str:
    return _data(argument).decode(errors="surrogateescape")


def _data(argument: str) -> bytes:
    assert not argument.endswith("..."), argument
    return bytes(int(digits, 16) for digits in _BYTE.findall(argument))


if __name__ == "__main__":
    # Short files grow in place, as long ones do.
    bloscpack_array._SMALLEST_IN_PLACE = 0  # type: ignore[misc]
    varlen_ragged._SMALLEST_IN_PLACE = 0  # type: ignore[misc]
    if sys.argv[1] == "a log":
        store.COMMITS_BEFORE_LOG = 0
        log.LOG_SECTORS = 4  # type: ignore[misc]
    # While a store lives, its log stays open.
    kept = []
    for number, take in enumerate(LAYOUTS[sys.argv[1]]().steps):
        kept.append(LocalStore(sys.argv[2], writable=True))
        take(kept[-1])
        os.write(1, b"%d done\n" % number)

"""The cost of a commit, beside the bare system calls that it needs.

The bare calls are made from Python, on open descriptors of folders, with prepared names and bytes:
no lock, no checks, no lookups. Bars: an append of one chunk of 64 KiB within 1.3 of them when it
survives a power cut, within 1.1 of a temporary file and a rename when it need not; 1000 rows of
five columns of bcolz in 0.8 ms; 64 chunks in half the time of syncing each of them; the version
checks of a reader, while no process writes, within 5 us. Updates of one item and of one row of a
chunk of 1 MiB stand beside an assignment of the whole chunk, without a bar.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from benchmarks.race import race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from ingot.containers.array import Array, array_handle
from ingot.engine.payload import engine_of
from ingot.formats.format import ArrayNode
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.selection import parse
from ingot.stores import LocalStore
from ingot.stores.local.files import exchanged
from ingot.stores.store import Durability

__all__ = ["BareAppend", "run"]

CHUNK = 64 << 10
MANY = 64
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def run(settings: Settings) -> list[Table]:
    """Time commits of one chunk and of many, and the version checks of readers."""
    folder = settings.folder / "commits"
    folder.mkdir()
    rows = [
        _append(settings, folder, "full", 1.3),
        _append(settings, folder, "process", 1.1),
        _rows(settings, folder),
        _many(settings, folder),
    ]
    columns = (
        Column("commit"),
        Column("ingot us", ".0f"),
        Column("bare us", ".0f"),
        Column("ratio", ".2f"),
        Column("bar"),
    )
    writing = Table("commits", "Commits beside bare system calls", columns, tuple(rows))
    return [writing, _updates(settings, folder), _reading(settings, folder)]


class BareAppend:
    """The system calls of an append: a chunk, then the metadata with the new length.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, BareAppend(Path(folder), sync=True) as bare:
    ...     bare(), bare()
    ...     sorted(os.listdir(folder)), sorted(os.listdir(os.path.join(folder, "c")))
    (None, None)
    (['c', 'zarr.json'], ['0', '1'])
    """

    def __init__(self, folder: Path, *, sync: bool, document: bytes = b" " * 900) -> None:
        (folder / "c").mkdir(parents=True, exist_ok=True)
        self._root = os.open(folder, os.O_RDONLY)
        self._chunks = os.open(folder / "c", os.O_RDONLY)
        self._sync = sync
        self._document = document
        self._data = bytes(CHUNK)
        self._numbers = count()

    def __enter__(self) -> "BareAppend":
        return self

    def __exit__(self, *details: object) -> None:
        os.close(self._chunks)
        os.close(self._root)

    def __call__(self) -> None:
        chunk = self._staged(self._chunks, ".g-0", self._data)
        document = self._staged(self._root, ".g-0", self._document)
        for file in (chunk, document):
            if self._sync:
                os.fdatasync(file)
            os.close(file)
        self._renamed(self._chunks, str(next(self._numbers)))
        self._renamed(self._root, "zarr.json")

    def _staged(self, folder: int, name: str, data: bytes) -> int:
        file = os.open(name, _NEW, 0o666, dir_fd=folder)
        os.pwrite(file, data, 0)
        return file

    def _renamed(self, folder: int, name: str) -> None:
        os.rename(".g-0", name, src_dir_fd=folder, dst_dir_fd=folder)
        if self._sync:
            os.fsync(folder)


def _append(
    settings: Settings, folder: Path, durability: Durability, bar: float
) -> tuple[Value, ...]:
    settings.say(f"commits append {durability}")
    options = ingot.Options(durability=durability)
    array = ingot.create(
        folder / durability, shape=0, dtype="u1", chunks=CHUNK, codec="none", options=options
    )
    values = np.arange(CHUNK, dtype="u4").astype("u1")
    with BareAppend(folder / f"bare-{durability}", sync=durability == "full") as bare:
        samplers = {"ingot": stopwatch(lambda: array.append(values)), "bare": stopwatch(bare)}
        times = race(samplers, settings.effort)
    return _row(settings, f"append of 64 KiB, {durability}", times, bar)


class BareRows:
    """The system calls of an append to columns that need not survive a power cut.

    The chunk and the length of each column are written anew and exchanged with the old ones; the
    journal comes before the lengths and goes after them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, BareRows(Path(folder)) as bare:
    ...     bare(), bare()
    ...     sorted(os.listdir(folder)), sorted(os.listdir(os.path.join(folder, "c4")))
    (None, None)
    (['c0', 'c1', 'c2', 'c3', 'c4'], ['data', 'meta'])
    """

    def __init__(self, folder: Path, columns: int = 5, chunk: int = 4000) -> None:
        self._root = os.open(_made(folder), os.O_RDONLY)
        self._folders = []
        for name in ("data", "meta"):
            paths = [_made(folder / f"c{number}" / name) for number in range(columns)]
            self._folders.append([os.open(path, os.O_RDONLY) for path in paths])
        self._chunk = bytes(chunk)

    def __enter__(self) -> "BareRows":
        return self

    def __exit__(self, *details: object) -> None:
        for place in (self._root, *self._folders[0], *self._folders[1]):
            os.close(place)

    def __call__(self) -> None:
        data, meta = self._folders
        for place in data:
            self._written(place, self._chunk)
        for place in meta:
            self._written(place, b" " * 52)
        self._written(self._root, b" " * 700)
        for place in data:
            self._switched(place)
        os.rename(".g-0", ".commit", src_dir_fd=self._root, dst_dir_fd=self._root)
        for place in meta:
            self._switched(place)
        os.unlink(".commit", dir_fd=self._root)

    def _written(self, place: int, data: bytes) -> None:
        file = os.open(".g-0", _NEW, 0o666, dir_fd=place)
        os.pwrite(file, data, 0)
        os.close(file)

    def _switched(self, place: int) -> None:
        if exchanged(".g-0", "0", place):
            os.unlink(".g-0", dir_fd=place)
        else:
            os.rename(".g-0", "0", src_dir_fd=place, dst_dir_fd=place)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _rows(settings: Settings, folder: Path) -> tuple[Value, ...]:
    settings.say("commits rows")
    columns = {f"c{number}": np.arange(1000) + number / 2 for number in range(5)}
    options = ingot.Options(durability="process")
    table = ingot.table(columns, folder / "rows", format="bcolz", options=options)
    with BareRows(folder / "bare-rows") as bare:
        samplers = {"ingot": stopwatch(lambda: table.append(columns)), "bare": stopwatch(bare)}
        times = race(samplers, settings.effort)
    held = settings.verdict(times["ingot"] <= 0.8e-3)
    ratio = times["ingot"] / times["bare"]
    name = "1000 rows of five columns, process"
    return name, times["ingot"] * 1e6, times["bare"] * 1e6, ratio, held


def _many(settings: Settings, folder: Path) -> tuple[Value, ...]:
    settings.say("commits many")
    length = MANY * CHUNK
    array = ingot.create(folder / "many", shape=length, dtype="u1", chunks=CHUNK, codec="none")
    values = np.arange(length, dtype="u4").astype("u1")

    def assign() -> None:
        array[...] = values

    with _each_synced(folder / "bare-many") as each:
        times = race({"ingot": stopwatch(assign), "bare": stopwatch(each)}, settings.effort)
    return _row(settings, "64 chunks of 64 KiB, full; bare: each synced", times, 0.5)


@contextmanager
def _each_synced(folder: Path) -> Iterator[Callable[[], None]]:
    """Return a call that replaces 64 files, each synced with its folder before the next one."""
    folder.mkdir()
    place = os.open(folder, os.O_RDONLY)
    data = bytes(CHUNK)

    def replace() -> None:
        for number in range(MANY):
            file = os.open(".g-0", _NEW, 0o666, dir_fd=place)
            os.pwrite(file, data, 0)
            os.fdatasync(file)
            os.close(file)
            os.rename(".g-0", str(number), src_dir_fd=place, dst_dir_fd=place)
            os.fsync(place)

    try:
        yield replace
    finally:
        os.close(place)


def _row(settings: Settings, name: str, times: dict[str, float], bar: float) -> tuple[Value, ...]:
    ratio = times["ingot"] / times["bare"]
    held = settings.verdict(ratio <= bar)
    return name, times["ingot"] * 1e6, times["bare"] * 1e6, ratio, held


def _updates(settings: Settings, folder: Path) -> Table:
    values = np.add.outer(np.arange(512.0), np.sin(np.arange(256) / 9)).round(2)
    options = ingot.Options(durability="process")
    rows = []
    for format, codec in product(("zarr3", "bcolz"), ("lz4", "zstd")):
        name = f"{format}, {codec}"
        settings.say(f"commits update {name}")
        spelling = f"blosc:{codec}:5:shuffle"
        path = folder / f"{format}-{codec}"
        array = ingot.array(
            values, path, chunks=512, format=format, codec=spelling, options=options
        )
        numbers = count(1)
        places = {"item": (300, 77), "row": (300,), "whole": ()}
        times = race(
            {
                place: stopwatch(partial(_add_next, array, key, values[key], numbers))
                for place, key in places.items()
            },
            settings.effort,
        )
        item, row, whole = (times[place] * 1e6 for place in places)
        rows.append((name, item, row, whole, whole / item))
    columns = (
        Column("chunk"),
        Column("item us", ".0f"),
        Column("row us", ".0f"),
        Column("whole us", ".0f"),
        Column("whole / item", ".1f"),
    )
    return Table("commits", "Updates of a chunk of 1 MiB, process", columns, tuple(rows))


def _add_next(
    array: Array, key: tuple[int, ...], values: "np.ndarray[Any, Any]", numbers: Iterator[int]
) -> None:
    """Assign values that are not there yet."""
    array[key] = values + next(numbers)


def _reading(settings: Settings, folder: Path) -> Table:
    settings.say("commits reading")
    path = folder / "read"
    values = np.arange(CHUNK, dtype="u4").astype("u1")
    array = ingot.array(values, path, chunks=CHUNK, codec="none")
    engine = array._handle.value
    key = slice(10, 20)
    times = race(
        {
            "open": stopwatch(lambda: ingot.open(path, format="zarr3")),
            "open unprotected": stopwatch(lambda: _open_unprotected(path)),
            "read": stopwatch(lambda: array[key]),
            "read unprotected": stopwatch(lambda: engine.read(parse(key, engine.shape))),
        },
        settings.effort,
    )
    rows = []
    for name in ("open", "read"):
        protected, bare = times[name], times[f"{name} unprotected"]
        held = settings.verdict(protected - bare <= 5e-6)
        rows.append((name, protected * 1e6, bare * 1e6, (protected - bare) * 1e6, held))
    columns = (
        Column("call"),
        Column("ingot us", ".1f"),
        Column("unprotected us", ".1f"),
        Column("more us", ".1f"),
        Column("bar"),
    )
    return Table("commits", "What readers pay for seeing one state", columns, tuple(rows))


def _open_unprotected(path: Path) -> Array:
    """Open an array as `ingot.open` does with a format, but without the two version checks."""
    assert path.is_dir()
    store, format, options = LocalStore(path), Zarr3Format(), ingot.Options()
    node = format.open(store)
    assert isinstance(node, ArrayNode)
    handle = array_handle(format, store, "", options, first=(engine_of(node.chunks, options), None))
    return Array(format, handle, path=str(path), mode="r")

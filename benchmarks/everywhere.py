"""The same jobs in memory, in a zip archive and on disk.

A table of two columns and five million rows is created, read, searched, updated, shortened and cut
into shards, and single items of an array are assigned. Bars: memory at least as fast as disk, a zip
archive within 1.5 of disk. On disk: an update and a deletion of one row in a hundred within the
time of creating the table; shards within twice the time of copying the files; index assignment in
bcolz within 2 of zarr2. These pairs alternate once more: what a file system takes to create a file
depends on how many were removed before.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from benchmarks.race import Call, Sampler, race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import WrongResultError
from ingot.stores import MemoryStore, ZipStore

__all__ = ["run"]

ROWS = 5_000_000
PLACES = ("memory", "zip", "disk")

# Each with the other job, and how much longer it may take.
BETWEEN = (
    ("update", "create", 1.0),
    ("delete", "create", 1.0),
    ("shard", "copying the files", 2.0),
    ("index, bcolz", "index, zarr2", 2.0),
)
BETWEEN_COLUMNS = (
    Column("job"),
    Column("ms", ".1f"),
    Column("beside"),
    Column("its ms", ".1f"),
    Column("ratio", ".2f"),
    Column("at most", ".1f"),
    Column("bar"),
)

Target = Any
Job = tuple[str, Callable[[], object], Callable[[], object] | None]


def run(settings: Settings) -> list[Table]:
    """Time each job in each place."""
    folder = settings.folder / "everywhere"
    folder.mkdir()
    rows = max(10_000, int(ROWS * min(settings.scale, 1.0)))
    times: dict[str, dict[str, float]] = {}
    on_disk: dict[str, Sampler] = {}
    for jobs in zip(*(_jobs(folder, place, rows) for place in PLACES), strict=True):
        name = jobs[0][0]
        settings.say(f"everywhere {name}")
        samplers = {
            place: stopwatch(call, prepare)
            for place, (_, call, prepare) in zip(PLACES, jobs, strict=True)
        }
        times[name] = race(samplers, settings.effort)
        on_disk[name] = samplers["disk"]
    columns = (
        Column("job"),
        *(Column(f"{place} ms", ".1f") for place in PLACES),
        Column("memory/disk", ".2f"),
        Column("zip/disk", ".2f"),
        Column("bar"),
    )
    on_disk["create"] = stopwatch(_creation(_columns(rows), folder / "beside"))
    on_disk["copying the files"] = stopwatch(
        lambda: shutil.copytree(folder / "table", folder / "copy"),
        lambda: shutil.rmtree(folder / "copy", ignore_errors=True),
    )
    table = tuple(_row(settings, name, times) for name in times)
    between = tuple(_between(settings, on_disk, *each) for each in BETWEEN)
    return [
        Table("everywhere", "The same jobs in memory, in a zip and on disk", columns, table),
        Table("everywhere", "Jobs on disk beside others", BETWEEN_COLUMNS, between),
    ]


def _row(settings: Settings, name: str, times: dict[str, dict[str, float]]) -> tuple[Value, ...]:
    found = times[name]
    memory, archive = found["memory"] / found["disk"], found["zip"] / found["disk"]
    shown = [found[place] * 1e3 for place in PLACES]
    return name, *shown, memory, archive, settings.verdict(memory <= 1 and archive <= 1.5)


def _between(
    settings: Settings, samplers: dict[str, Sampler], job: str, other: str, most: float
) -> tuple[Value, ...]:
    settings.say(f"everywhere {job} beside {other}")
    found = race({name: samplers[name] for name in (job, other)}, settings.effort)
    ratio = found[job] / found[other]
    verdict = settings.verdict(ratio <= most)
    return job, found[job] * 1e3, other, found[other] * 1e3, ratio, most, verdict


def _columns(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "time": np.arange(rows, dtype="i8") * 3,
        "price": np.round(np.cumsum(rng.normal(size=rows)), 2),
    }


def _creation(columns: dict[str, Any], target: Target) -> Call:
    options = ingot.Options(durability="process")
    return lambda: ingot.table(columns, target, options=options, overwrite=True)


def _jobs(folder: Path, place: str, rows: int) -> Iterator[Job]:
    rng, columns = np.random.default_rng(5), _columns(rows)
    options = ingot.Options(durability="process")
    one = {"options": options, "overwrite": True}
    path = _target(folder, place, "table")
    yield "create", _creation(columns, path), None
    table = ingot.open(path, "r+", options=options)
    for name, values in columns.items():
        if not np.array_equal(table[name][...], values):
            raise WrongResultError(f"column {name} in {place}")
    yield "read", lambda: table.read(), None
    yield "search", lambda: table.read(where="(price > 1) & (price < 1.5)"), None
    picked = np.sort(rng.choice(rows, rows // 100, replace=False))
    yield "items", lambda: table["price"][picked], None
    some = np.flatnonzero(columns["time"] % 300 == 0)
    yield "update", lambda: table.update(some, {"price": np.zeros(len(some))}), None

    changed = _target(folder, place, "deleted")
    held: list[Any] = [None]

    create = _creation(columns, changed)

    def prepare() -> None:
        held[0] = create()

    yield "delete", lambda: held[0].delete(some), prepare

    shards = [_target(folder, place, "shards")]

    def emptied() -> None:
        if place == "disk":
            shutil.rmtree(folder / "shards", ignore_errors=True)
        (folder / "shards.zip").unlink(missing_ok=True)
        shards[0] = _target(folder, place, "shards")

    yield "shard", lambda: table.shard(4, shards[0]), emptied
    for format in ("bcolz", "zarr2"):
        target = _target(folder, place, format)
        array = ingot.array(columns["price"], target, format=format, **one)
        yield f"index, {format}", lambda array=array: array.__setitem__(some, 0), None


def _target(folder: Path, place: str, name: str) -> Target:
    if place == "memory":
        return MemoryStore()
    if place == "zip":
        return ZipStore(folder / f"{name}.zip", writable=True)
    return folder / name

"""Checks of whole datasets: all chunks read with their checksums, and metadata and indexes only.

Bars: a check runs at 0.8 of a full read with ``verify="always"``; a quick check of 100 000 chunks
takes under 5 s where each is a file, and under 0.2 s in packed files.
"""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.verify import require

__all__ = ["run"]

NBYTES = 256 << 20
COUNT = 100_000
_SHARE = 0.8
_FILES_SECONDS = 5.0
_PACKED_SECONDS = 0.2
_TURNS = 5
_FORMATS: dict[str, dict[str, Any]] = {
    "zarr3": {"chunks": (1 << 18,)},
    "bcolz": {"chunks": (1 << 18,)},
    "blsk": {"chunks": (1 << 15,)},
    "bloscpack": {"chunks": "1M"},
}
_PACKED: dict[str, dict[str, Any]] = {
    "files": {"format": "zarr3"},
    "shards": {"format": "zarr3", "shards": 100 * 10_000},
    "blsk": {"format": "blsk"},
}


def run(settings: Settings) -> list[Table]:
    """Measure full checks beside full reads, and quick checks of very many chunks."""
    folder = settings.folder / "check"
    folder.mkdir()
    return [_full(settings, folder), _quick(settings, folder)]


def _full(settings: Settings, folder: Path) -> Table:
    items = settings.shrunk(NBYTES) // 8
    values = np.round(np.cumsum(np.random.default_rng(1).normal(size=items)), 2)
    rows: list[tuple[Value, ...]] = []
    for name, layout in _FORMATS.items():
        settings.say(f"check {name}")
        path = folder / name
        ingot.array(values, path, format=name, **layout)
        require(not ingot.check(path).findings, f"{name}: a sound array has findings")
        read, check = _raced(
            lambda path=path: ingot.open(path, options=ingot.Options(verify="always"))[...],
            lambda path=path: ingot.check(path),
        )
        share = read / check
        mb = values.nbytes / 1e6
        rows.append((name, mb / read, mb / check, share, settings.verdict(share >= _SHARE)))
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    columns = (
        Column("format"),
        Column("read MB/s", ",.0f"),
        Column("check MB/s", ",.0f"),
        Column("check / read", ".2f"),
        Column("bar"),
    )
    return Table("check", f"{values.nbytes >> 20} MB checked and read whole", columns, tuple(rows))


def _quick(settings: Settings, folder: Path) -> Table:
    count = max(100, round(COUNT * min(1.0, settings.scale)))
    rows: list[tuple[Value, ...]] = []
    for name, layout in _PACKED.items():
        settings.say(f"check quick {name}")
        path = folder / name
        options = ingot.Options(durability="process")
        array = ingot.create(
            path, shape=count * 100, dtype="i8", chunks=100, options=options, **layout
        )
        array[...] = np.arange(1, count * 100 + 1)
        best = min(_seconds(lambda path=path: ingot.check(path, quick=True)) for _ in range(3))
        most = _FILES_SECONDS if name == "files" else _PACKED_SECONDS
        rows.append((name, best * 1e3, settings.verdict(best < most)))
        shutil.rmtree(path)
    columns = (Column("chunks in"), Column("quick ms", ",.0f"), Column("bar"))
    return Table("check", f"Metadata and indexes of {count:,} chunks", columns, tuple(rows))


def _raced(*calls: Callable[[], object]) -> list[float]:
    """Return the best time of each of several calls, which alternate."""
    best = [float("inf")] * len(calls)
    for _ in range(_TURNS):
        for number, call in enumerate(calls):
            best[number] = min(best[number], _seconds(call))
    return best


def _seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun

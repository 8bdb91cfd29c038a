"""A float32 array of 400 MB in chunks of 3 MB: written, opened, and read in five ways.

Bars: ahead of the best peer in every column, on Zarr v2 files that a peer wrote and on our own; 1.2
times as fast on a full read; a box in 180 us and an element in 65 us on the peer's file, an element
in 25 us on ours. Caches are off, files are in the page cache, every library has all cores.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.array_libraries import LIBRARIES, remove
from benchmarks.cases import Case
from benchmarks.contest import (
    OURS,
    OURS_ON_PEERS,
    Entrant,
    Reader,
    Results,
    compare,
    find_best_peer,
    find_readers,
    gather,
    time_cases,
    time_reads,
)
from benchmarks.measures import Measure, boxes, elements, planes, whole
from benchmarks.race import race, stopwatch
from benchmarks.samples import Recipe, fill
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value

__all__ = ["MEASURES", "RECIPE", "judge", "measure_size", "run"]

RECIPE = Recipe((400, 500, 500), "<f4", (50, 125, 125))

WRITE = Measure("write", "MB/s")
OPEN = Measure("open", "us")
READS = (
    Measure("full read", "MB/s", whole, bar=1.2),
    Measure("10^3 box", "us", boxes),
    Measure("one element", "us", elements),
    Measure("plane [k]", "ms", planes(0)),
    Measure("plane [:,:,k]", "ms", planes(-1)),
)
MEASURES = (WRITE, OPEN, *READS)

LIMITS = (
    (OURS_ON_PEERS, "10^3 box", 180.0),
    (OURS_ON_PEERS, "one element", 65.0),
    (OURS, "one element", 25.0),
)
"""Rows and columns with their own bars, in microseconds."""

MEMCPY = "memcpy into fresh memory"
STORED = "stored MB"

_READ_ONLY = ("blosc2 mapped",)
_SYNCED = ("ingot full", "tensorstore synced")
"""Libraries whose writes survive a power cut; shown beside the others and not compared."""


def run(settings: Settings) -> list[Table]:
    """Write, open and read with every library."""
    recipe = RECIPE.scaled(settings.scale)
    folder = settings.folder / "arrays"
    folder.mkdir()
    synced: Results = {}
    with gather(settings, LIBRARIES) as entrants:
        results = _prepare_rows(entrants)
        paths = _time_writes(settings, recipe, entrants, folder, results, synced)
        readers = find_readers(entrants, paths)
        _time_opens(settings, recipe, readers, results)
        time_reads(settings, recipe, readers, READS, results)
    bars = _bars_table(settings, results)
    results |= synced
    results[MEMCPY] = {"full read": _time_memcpy(settings, recipe)}
    remove(str(folder))
    return [_results_table(recipe, results), bars, _limits_table(settings, results)]


def judge(
    measure: Measure, results: Mapping[str, Mapping[str, Value]], ours: str
) -> tuple[float | None, bool | None]:
    """Return Ingot's speed relative to the best peer in a column, and whether it meets the bar.

    >>> judge(OPEN, {OURS: {"open": 1.0}, "a": {"open": 2.0}}, OURS)
    (2.0, True)
    >>> judge(OPEN, {OURS: {"open": "failed"}, "a": {"open": 2.0}}, OURS)
    (None, False)
    """
    value = results.get(ours, {}).get(measure.title)
    if value is None or find_best_peer(measure, results) is None:
        return None, None
    ratio = compare(measure, results, ours)
    return ratio, ratio is not None and ratio >= measure.bar


def measure_size(path: str) -> int:
    """Count the bytes of a file, or of all files in a folder."""
    top = Path(path)
    files = top.rglob("*") if top.is_dir() else [top]
    return sum(file.stat().st_size for file in files if file.is_file())


def _prepare_rows(entrants: Sequence[Entrant]) -> Results:
    """Return a row for each library in order; the row of a missing library says so."""
    results: Results = {}
    for entrant in entrants:
        if entrant.library in _SYNCED:
            continue
        labels = (OURS, OURS_ON_PEERS) if entrant.library == "ingot" else (entrant.label,)
        for label in labels:
            results[label] = {measure.title: entrant.missing for measure in MEASURES}
    return results


def _time_writes(
    settings: Settings,
    recipe: Recipe,
    entrants: Sequence[Entrant],
    folder: Path,
    results: Results,
    synced: Results,
) -> dict[str, str]:
    """Write with every library; return the paths of the files by library."""
    writers = [e for e in entrants if not e.missing and e.library not in _READ_ONLY]
    settings.say(f"write, {recipe.nbytes / 1e6:.0f} MB, {len(writers)} writers")
    paths = {
        writer.library: str(folder / (writer.library + LIBRARIES[writer.library].suffix))
        for writer in writers
    }
    cases = {
        writer.label: (writer.place, Case(writer.library, "write", paths[writer.library], recipe))
        for writer in writers
    }
    times = time_cases(settings, cases)
    for writer in writers:
        label = OURS if writer.library == "ingot" else writer.label
        rows = synced if writer.library in _SYNCED else results
        row = rows.setdefault(label, {})
        row[WRITE.title] = WRITE.convert(times[writer.label], recipe)
        if isinstance(times[writer.label], float):
            row[STORED] = measure_size(paths[writer.library]) / 1e6
    for name in _SYNCED:
        if name in paths:
            remove(paths.pop(name))
    # Dirty pages would otherwise be written back while others read.
    os.sync()
    return paths


def _time_opens(
    settings: Settings, recipe: Recipe, readers: Sequence[Reader], results: Results
) -> None:
    settings.say(f"open, {len(readers)} readers")
    cases = {
        reader.label: (reader.place, Case(reader.library, "open", reader.path, recipe))
        for reader in readers
    }
    for label, time in time_cases(settings, cases).items():
        results.setdefault(label, {})[OPEN.title] = OPEN.convert(time, recipe)


def _time_memcpy(settings: Settings, recipe: Recipe) -> Value:
    copy = stopwatch(fill(recipe).copy)
    return READS[0].convert(race({MEMCPY: copy}, settings.effort)[MEMCPY], recipe)


def _results_table(recipe: Recipe, results: Results) -> Table:
    columns = (
        Column("library"),
        *(measure.column for measure in MEASURES),
        Column(STORED, ".0f"),
    )
    titles = [*(measure.title for measure in MEASURES), STORED]
    rows = [(label, *map(row.get, titles)) for label, row in results.items()]
    shape = " x ".join(map(str, recipe.shape))
    chunks = " x ".join(map(str, recipe.chunks))
    title = f"{recipe.nbytes / 1e6:.0f} MB of float32, {shape} in chunks of {chunks}, Blosc LZ4 5"
    return Table("arrays", title, columns, tuple(rows))


def _bars_table(settings: Settings, results: Results) -> Table:
    rows = []
    for measure in MEASURES:
        peer = find_best_peer(measure, results)
        theirs = None if peer is None else results[peer][measure.title]
        cells: list[Value] = [measure.column.title, peer, theirs, measure.bar]
        for ours in (OURS, OURS_ON_PEERS):
            ratio, held = judge(measure, results, ours)
            cells += [ratio, None if held is None else settings.verdict(held)]
        rows.append(tuple(cells))
    columns = (
        Column("column"),
        Column("best peer"),
        Column("its value", ".1f"),
        Column("bar", ".1f"),
        Column("our file: ingot / it", ".2f"),
        Column("held"),
        Column("peer's file: ingot / it", ".2f"),
        Column("held there"),
    )
    return Table(
        "arrays", "Ingot against the best peer, as a ratio of speeds", columns, tuple(rows)
    )


def _limits_table(settings: Settings, results: Results) -> Table:
    rows = []
    for label, title, limit in LIMITS:
        value = results.get(label, {}).get(title)
        held = settings.verdict(value < limit) if isinstance(value, float) else None
        rows.append((f"{title}, {label}", value, limit, held))
    columns = (Column("what"), Column("us", ".1f"), Column("under us", ".0f"), Column("held"))
    return Table("arrays", "Times with a bar of their own", columns, tuple(rows))

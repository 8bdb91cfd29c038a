"""A gigabyte in 100 000 chunks of 10 KB: the costs per chunk, when decoding costs little.

Bar: planning takes under a microsecond per chunk. A plan is the table of rows that serves keys with
index arrays and ``explain``; boxes are cut inside the native kernel, and that cost is part of the
reading.
"""

from collections import deque

from benchmarks.array_libraries import LIBRARIES, remove
from benchmarks.contest import (
    OURS_ON_PEERS,
    Results,
    find_readers,
    gather,
    time_reads,
    write_files,
)
from benchmarks.measures import Measure, whole
from benchmarks.race import race, stopwatch
from benchmarks.samples import Recipe
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from ingot.engine.plan import rows as plan_rows
from ingot.grid import ChunkGrid
from ingot.selection import parse

__all__ = ["RECIPE", "run", "time_planning"]

RECIPE = Recipe((10_000, 25_000), "<f4", (50, 50))
BAR = 1e-6
READ = Measure("full read", "MB/s", whole)

_LEFT_OUT = ("ingot full", "tensorstore synced", "blosc2 mapped")


def run(settings: Settings) -> list[Table]:
    """Plan a full read, and do it with every library."""
    recipe = RECIPE.scaled(settings.scale)
    folder = settings.folder / "many"
    folder.mkdir()
    results: Results = {}
    with gather(settings, [name for name in LIBRARIES if name not in _LEFT_OUT]) as entrants:
        paths = write_files(settings, entrants, recipe, folder)
        time_reads(settings, recipe, find_readers(entrants, paths), [READ], results)
    for entrant in entrants:
        if entrant.missing:
            results[entrant.label] = {READ.title: entrant.missing}
    remove(str(folder))
    return [_reading_table(recipe, results), _planning_table(settings, recipe)]


def time_planning(settings: Settings, recipe: Recipe) -> float:
    """Return the seconds that planning a full read takes per chunk."""
    grid = ChunkGrid(recipe.shape, recipe.chunks, padded=True)

    def plan() -> None:
        deque(plan_rows(parse(..., recipe.shape), grid), maxlen=0)

    return race({"plan": stopwatch(plan)}, settings.effort)["plan"] / recipe.nchunks


def _reading_table(recipe: Recipe, results: Results) -> Table:
    ours = results.get(OURS_ON_PEERS, {}).get(READ.title)
    rows: list[tuple[Value, ...]] = []
    for label, row in results.items():
        speed = row[READ.title]
        per_chunk, ratio = None, None
        if isinstance(speed, float):
            per_chunk = recipe.nbytes / speed / recipe.nchunks
            ratio = ours / speed if isinstance(ours, float) else None
        rows.append((label, speed, per_chunk, ratio))
    columns = (
        Column("library"),
        READ.column,
        Column("us per chunk", ".2f"),
        Column("ingot on a peer's file / it", ".2f"),
    )
    title = f"Reading {recipe.nbytes / 1e6:.0f} MB of float32 in {recipe.nchunks} chunks"
    return Table("many", title, columns, tuple(rows))


def _planning_table(settings: Settings, recipe: Recipe) -> Table:
    seconds = time_planning(settings, recipe)
    columns = (
        Column("what"),
        Column("us per chunk", ".3f"),
        Column("under us", ".0f"),
        Column("bar"),
    )
    row = ("planning a full read", seconds * 1e6, BAR * 1e6, settings.verdict(seconds < BAR))
    return Table("many", f"Planning {recipe.nchunks} chunks", columns, (row,))

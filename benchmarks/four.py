"""A float64 array of four dimensions, 3 GB, read plane by plane across each axis.

The shapes are those of ``compare_getslice`` in python-blosc2's own benchmarks. No bar: it shows how
the cost of reading grows with the number of axes, and differs between them.
"""

from benchmarks.array_libraries import LIBRARIES, remove
from benchmarks.contest import (
    OURS,
    OURS_ON_PEERS,
    Results,
    compare,
    find_readers,
    gather,
    time_reads,
    write_files,
)
from benchmarks.measures import Measure, planes
from benchmarks.samples import Recipe
from benchmarks.settings import Settings
from benchmarks.table import Column, Table

__all__ = ["RECIPE", "run"]

RECIPE = Recipe(
    (50, 100, 300, 250),
    "<f8",
    (10, 25, 50, 50),
    codec="zstd",
    level=1,
    content="line",
    blocks=(3, 5, 10, 20),
)
MEASURES = tuple(Measure(f"axis {axis}", "ms", planes(axis)) for axis in range(4))

_TAKE_PART = [name for name in LIBRARIES if name not in ("ingot full", "tensorstore synced")]


def run(settings: Settings) -> list[Table]:
    """Read planes across each axis with every library."""
    recipe = RECIPE.scaled(settings.scale)
    folder = settings.folder / "four"
    folder.mkdir()
    results: Results = {}
    with gather(settings, _TAKE_PART) as entrants:
        paths = write_files(settings, entrants, recipe, folder)
        readers = find_readers(entrants, paths)
        time_reads(settings, recipe, readers, MEASURES, results)
    for entrant in entrants:
        if entrant.missing:
            results[entrant.label] = {measure.title: entrant.missing for measure in MEASURES}
    remove(str(folder))
    rows = [(label, *(row.get(m.title) for m in MEASURES)) for label, row in results.items()]
    for ours in (OURS, OURS_ON_PEERS):
        ratios = [compare(measure, results, ours) for measure in MEASURES]
        rows.append((f"time of the best peer / {ours}", *ratios))
    columns = (Column("library"), *(measure.column for measure in MEASURES))
    shape = " x ".join(map(str, recipe.shape))
    title = f"One plane of {recipe.nbytes / 1e6:.0f} MB of float64, {shape}, Blosc Zstandard 1"
    return [Table("four", title, columns, tuple(rows))]

"""The memory of a full read, each library in its own process.

Bar: the whole process, interpreter and NumPy included, stays under the output plus 64 MiB.
"""

import sys

from benchmarks.array_libraries import LIBRARIES, remove
from benchmarks.arrays import RECIPE
from benchmarks.cases import Case
from benchmarks.contest import FAILED, Reader, find_readers, gather, write_files
from benchmarks.measures import whole
from benchmarks.places import Worker, WorkerError
from benchmarks.samples import Recipe
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value

__all__ = ["ALLOWANCE", "is_within", "run"]

ALLOWANCE = 64 << 20
MIB = 1 << 20

_LEFT_OUT = ("ingot full", "tensorstore synced")


def run(settings: Settings) -> list[Table]:
    """Read the array of the ``arrays`` workload whole, once per library."""
    recipe = RECIPE.scaled(settings.scale)
    folder = settings.folder / "memory"
    folder.mkdir()
    with gather(settings, [name for name in LIBRARIES if name not in _LEFT_OUT]) as entrants:
        paths = write_files(settings, entrants, recipe, folder)
        rows = [_measure(settings, recipe, reader) for reader in find_readers(entrants, paths)]
    rows += [(e.label, e.missing, None, None, None) for e in entrants if e.missing]
    remove(str(folder))
    columns = (
        Column("library"),
        Column("before reading MiB", ".0f"),
        Column("peak MiB", ".0f"),
        Column("peak above output MiB", ".1f"),
        Column("bar"),
    )
    title = f"Resident memory of a full read of {recipe.nbytes / MIB:.0f} MiB"
    return [Table("memory", title, columns, tuple(rows))]


def is_within(peak: int, output: int) -> bool:
    """Return whether a peak stays within the output and the allowance.

    >>> is_within(164 << 20, 100 << 20), is_within(165 << 20, 100 << 20)
    (True, False)
    """
    return peak <= output + ALLOWANCE


def _measure(settings: Settings, recipe: Recipe, reader: Reader) -> tuple[Value, ...]:
    settings.say(f"memory {reader.label}")
    python = settings.python if reader.library.startswith("zarr") else None
    case = Case(reader.library, "read", reader.path, recipe, whole(recipe))
    try:
        with Worker(python or sys.executable) as worker:
            before, peak = worker.measure_memory(case)
    except WorkerError as error:
        settings.say(f"{reader.label} fails: {error}")
        return (reader.label, FAILED, None, None, None)
    above = peak - recipe.nbytes
    # Only our own memory has a bar.
    ours = reader.label.startswith("ingot")
    bar = settings.verdict(is_within(peak, recipe.nbytes)) if ours else None
    return (reader.label, before / MIB, peak / MIB, above / MIB, bar)

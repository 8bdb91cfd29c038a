"""A table of 10 million rows of five columns, 320 MB: written, opened, read in five ways, changed.

Bars: ahead of the best peer in every column, and with ``codec="auto"`` at most 1.15 times the size
of DuckDB's own file. Everything is in the page cache; only some of the libraries survive a power
cut.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.arrays import STORED, measure_size
from benchmarks.race import Sampler, race, stopwatch
from benchmarks.settings import Settings
from benchmarks.table import Column, Table, Value
from benchmarks.table_libraries import (
    LIBRARIES,
    OUTPUT,
    Columns,
    Library,
    Opened,
    find_missing,
    remove,
)
from benchmarks.verify import require

__all__ = ["MEASURES", "judge", "make_columns", "run"]

ROWS = 10_000_000
SCATTERED = 1000
APPENDED = 1000
IN_RANGE = 100_000

OURS = "ingot"
CANNOT = "cannot"
WRONG = "wrong rows"
AUTO = "ingot, codec auto"
SIZE_PEER = "DuckDB, its own file"
MEASURES = {
    "write": "MB/s",
    "open": "ms",
    "column": "MB/s",
    "range query": "ms",
    "selective query": "ms",
    "scattered items": "ms",
    "scattered rows": "ms",
    "append": "ms",
    "append one row": "ms",
    "update": "ms",
}
"""The columns, with their units."""

LARGEST = 1.15
"""How many times as large as the file of DuckDB a table may be with ``codec="auto"``."""


@dataclass(frozen=True, slots=True)
class Task:
    """The queries for all libraries, and the right answers."""

    columns: Columns
    low: int
    high: int
    numbers: NDArray[np.int64]
    symbol: int = 7
    size: int = 990
    below: int = 5
    """The symbols below it are one in a hundred."""
    new_size: int = 7

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def between(self) -> NDArray[np.bool_]:
        time = self.columns["time"]
        return (time >= self.low) & (time < self.high)

    def selective(self) -> NDArray[np.bool_]:
        return (self.columns["symbol"] == self.symbol) & (self.columns["size"] > self.size)


def run(settings: Settings) -> list[Table]:
    """Write, read and append with every library."""
    task = make_task(max(10 * SCATTERED, int(ROWS * settings.scale)))
    folder = settings.folder / "tables"
    folder.mkdir()
    results: dict[str, dict[str, Value]] = {}
    present: dict[str, Library] = {}
    for name, library in LIBRARIES.items():
        missing = find_missing(library)
        results[name] = dict.fromkeys(MEASURES, missing)
        if missing is None:
            present[name] = library
    paths = {name: folder / f"table-{number}" for number, name in enumerate(present)}
    settings.say(f"write, {task.nbytes / 1e6:.0f} MB, {len(present)} writers")
    writers = {
        name: stopwatch(
            partial(library.write, task.columns, paths[name]), partial(remove, paths[name])
        )
        for name, library in present.items()
    }
    _note(settings, results, "write", writers, task.nbytes)
    for name, path in paths.items():
        results[name][STORED] = measure_size(str(path)) / 1e6
    # Dirty pages would otherwise be written back while others read.
    os.sync()
    # Before any table is open: DuckDB opens a file once for all connections of a process.
    settings.say(f"open, {len(present)} libraries")
    rows = len(task.columns["time"])
    openers = {
        name: partial(_opened, library, paths[name], rows) for name, library in present.items()
    }
    _note(settings, results, "open", {name: stopwatch(each) for name, each in openers.items()}, 0)
    opened = {name: library.open(paths[name]) for name, library in present.items()}
    for title, ask, nbytes in _questions(task):
        settings.say(f"{title}, {len(opened)} libraries")
        samplers = {}
        for name, table in opened.items():
            answer = _answers(title, ask, task, table)
            require(answer != WRONG or not name.startswith(OURS), f"{name}: {title}: wrong rows")
            if answer is None:
                samplers[name] = stopwatch(partial(ask, table))
            else:
                results[name][title] = answer
        _note(settings, results, title, samplers, nbytes)
    return [_results_table(task, results), _bars_table(settings, results)]


def make_columns(rows: int) -> dict[str, NDArray[Any]]:
    """Return trades: an ascending time, a price that is a random walk, and three more columns.

    >>> {name: column.dtype.str for name, column in make_columns(10).items()}
    {'time': '<i8', 'price': '<f8', 'amount': '<f8', 'size': '<i4', 'symbol': '<i4'}
    """
    chance = np.random.default_rng(1)
    time = 1_704_067_200_000_000_000 + np.cumsum(chance.integers(1, 2_000_000, rows))
    price = np.round(100 + np.cumsum(chance.normal(0, 0.01, rows)), 2)
    size = chance.integers(1, 1000, rows).astype("i4")
    symbol = chance.integers(0, 500, rows).astype("i4")
    amount = np.round(price * size, 2)
    return {"time": time, "price": price, "amount": amount, "size": size, "symbol": symbol}


def make_task(rows: int) -> Task:
    """Return the queries for a table of so many rows."""
    columns = make_columns(rows)
    first = rows // 2
    time = columns["time"]
    last = min(first + IN_RANGE, rows - 1)
    numbers = np.sort(np.random.default_rng(2).choice(rows, SCATTERED, replace=False))
    return Task(columns, int(time[first]), int(time[last]), numbers)


def judge(measure: str, ours: Value, theirs: Mapping[str, Value]) -> tuple[str, float] | None:
    """Return the best peer, and how many times as fast Ingot is.

    >>> judge("append", 2.0, {"a": 9.0, "b": 10.0, "c": "cannot"})
    ('a', 4.5)
    >>> judge("write", 100.0, {"a": 50.0, "b": 200.0})
    ('b', 0.5)
    """
    measured = {name: value for name, value in theirs.items() if isinstance(value, float)}
    if not isinstance(ours, float) or not measured:
        return None
    fast = MEASURES[measure] == "MB/s"
    best = (max if fast else min)(measured, key=lambda name: measured[name])
    return best, ours / measured[best] if fast else measured[best] / ours


Question = Callable[[Opened], Any]


def _questions(task: Task) -> list[tuple[str, Question, int]]:
    more = {name: column[:APPENDED] for name, column in task.columns.items()}
    one = {name: column[:1] for name, column in task.columns.items()}
    return [
        ("column", lambda table: table.column("price"), task.columns["price"].nbytes),
        ("range query", lambda table: table.between(task.low, task.high), 0),
        ("selective query", lambda table: table.selective(task.symbol, task.size), 0),
        ("scattered items", lambda table: table.items("price", task.numbers), 0),
        ("scattered rows", lambda table: table.rows(task.numbers), 0),
        ("append", lambda table: table.append(more), 0),
        ("append one row", lambda table: table.append(one), 0),
        ("update", lambda table: table.update(task.below, task.new_size), 0),
    ]


def _answers(title: str, ask: Question, task: Task, table: Opened) -> str | None:
    """Return what is wrong with the answers of a library; None when nothing is."""
    found = ask(table)
    if found is None or found is False:
        return CANNOT
    if title.startswith("append"):
        return None
    if title == "update":
        given = table.column("symbol") < task.below
        # Lance puts rows that changed at the end.
        same = np.count_nonzero(table.column("size") == task.new_size) >= np.count_nonzero(given)
        return None if same else WRONG
    expected: Columns
    if title == "column":
        found, expected = {"price": found}, {"price": task.columns["price"]}
    elif title == "scattered items":
        found, expected = {"price": found}, {"price": task.columns["price"][task.numbers]}
    elif title == "scattered rows":
        expected = {key: column[task.numbers] for key, column in task.columns.items()}
    else:
        mask = task.between() if title == "range query" else task.selective()
        expected = {key: task.columns[key][mask] for key in OUTPUT}
    right = all(np.array_equal(found[key], values) for key, values in expected.items())
    return None if right else WRONG


def _note(
    settings: Settings,
    results: dict[str, dict[str, Value]],
    title: str,
    samplers: Mapping[str, Sampler],
    nbytes: int,
) -> None:
    for name, seconds in race(samplers, settings.effort).items():
        results[name][title] = nbytes / seconds / 1e6 if nbytes else seconds * 1e3


def _results_table(task: Task, results: Mapping[str, Mapping[str, Value]]) -> Table:
    specs = {"MB/s": ".0f", "ms": ".2f"}
    columns = [Column(f"{title} {unit}", specs[unit]) for title, unit in MEASURES.items()]
    columns.append(Column(STORED, ".0f"))
    rows = [(name, *map(row.get, [*MEASURES, STORED])) for name, row in results.items()]
    count = len(task.columns["time"])
    selected = int(task.selective().sum())
    title = (
        f"{count:,} rows of five columns, {task.nbytes / 1e6:.0f} MB; {IN_RANGE:,} rows in range, "
        f"{selected:,} selected, {SCATTERED} scattered, {APPENDED} appended, 1 % updated"
    )
    return Table("tables", title, (Column("library"), *columns), tuple(rows))


def _opened(library: Library, path: Path, rows: int) -> None:
    """Open a table, ask for the number of its rows, and close it."""
    table = library.open(path)
    require(table.count() == rows, f"{path}: {table.count()} rows, not {rows}")
    table.close()


def _bars_table(settings: Settings, results: Mapping[str, Mapping[str, Value]]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for measure in MEASURES:
        theirs = {name: row[measure] for name, row in results.items() if not name.startswith(OURS)}
        found = judge(measure, results[OURS][measure], theirs)
        if found is not None:
            rows.append((measure, found[0], 1.0, found[1], settings.verdict(found[1] >= 1)))
    sizes = results[AUTO][STORED], results[SIZE_PEER].get(STORED)
    if isinstance(sizes[0], float) and isinstance(sizes[1], float):
        held = settings.verdict(sizes[0] <= LARGEST * sizes[1])
        rows.append((f"{STORED}, codec auto", SIZE_PEER, 1 / LARGEST, sizes[1] / sizes[0], held))
    columns = (
        Column("column"),
        Column("best peer"),
        Column("bar", ".2f"),
        Column("ingot / it", ".2f"),
        Column("held"),
    )
    return Table("tables", "Ingot against the best peer, as a ratio", columns, tuple(rows))

"""Earlier results of the same machine, and what has become slower since.

Keeps the last results of each workload in one file per machine, and compares a run with them. Only
figures of Ingot with a known direction are compared: speeds, times, and ratios to a peer.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import PEERS
from benchmarks.table import Table

__all__ = ["TOLERANCE", "Regression", "compare", "load", "results_file", "store"]

TOLERANCE: Final = 0.15
"""A figure may be worse by this part before it counts as a regression."""

_OTHERS: Final = (*PEERS, "bare", "ctable", "lance", "parquet", "unprotected", "vortex")
_PEER: Final = re.compile(rf"(?:python-)?(?:{'|'.join(_OTHERS)})(?![\w,])", re.IGNORECASE)
_SPEED: Final = re.compile(r"\b[KMG]i?B/s\b|\bper second\b")
_TIME: Final = re.compile(r"\b(?:ns|us|ms|s)\b")
_RATIO: Final = re.compile(r"^ingot / ")


@dataclass(frozen=True, slots=True)
class Regression:
    """One figure that is worse than before by more than the tolerance.

    >>> print(Regression("arrays", "box", "ingot us", 10.0, 12.0))
    arrays: box, ingot us: 10 -> 12 (1.20 times)
    """

    workload: str
    row: str
    column: str
    before: float
    now: float

    def __str__(self) -> str:
        times = max(self.now / self.before, self.before / self.now)
        figures = f"{self.before:.4g} -> {self.now:.4g} ({times:.2f} times)"
        return f"{self.workload}: {self.row}, {self.column}: {figures}"


def results_file(folder: Path, facts: Mapping[str, str], scale: float) -> Path:
    """Return the file for results that can be compared: of one machine, kernel and scale."""
    kernel = facts["ingot"].partition(", ")[2]
    text = "\n".join([facts["processor"], facts["python"], kernel, str(scale)])
    return folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"


def load(path: Path) -> dict[str, Any]:
    """Return the stored results by workload, each with ``facts`` and ``tables``; none if absent."""
    try:
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return stored


def store(path: Path, results: Mapping[str, Iterable[Table]], facts: Mapping[str, str]) -> None:
    """Keep the results of some workloads; those of the others stay as they are."""
    stored = load(path)
    for name, tables in results.items():
        stored[name] = {"facts": dict(facts), "tables": [table.as_dict() for table in tables]}
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(draft, path)


def compare(stored: Mapping[str, Any], results: Mapping[str, Sequence[Table]]) -> list[Regression]:
    """Return the figures that are worse than the stored ones; rows that are new have none."""
    return [
        found
        for name in results.keys() & stored.keys()
        for found in _compare_workload(name, stored[name]["tables"], results[name])
    ]


def _compare_workload(
    name: str, before: Sequence[Mapping[str, Any]], now: Sequence[Table]
) -> Iterator[Regression]:
    known = dict(figure for table in before for figure in _figures(table))
    for table in now:
        for (title, row, column), figure in _figures(table.as_dict()):
            old = known.get((title, row, column))
            if old is not None and _is_worse(column, old, figure):
                yield Regression(name, row, column, old, figure)


def _figures(table: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, str], float]]:
    """Yield the figures of Ingot in a table, each with its title, row and column."""
    for row in table["rows"]:
        label = " ".join(value for value in row.values() if isinstance(value, str))
        if _is_of_a_peer(label):
            continue
        for column, value in row.items():
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and value > 0 and _direction(column) and not _is_of_a_peer(column):
                yield (table["title"], label, column), float(value)


def _is_of_a_peer(text: str) -> bool:
    return _PEER.match(text) is not None


def _direction(column: str) -> int:
    """Return 1 where more is better, -1 where less is, and 0 where neither is known."""
    if _RATIO.search(column) or _SPEED.search(column):
        return 1
    return -1 if _TIME.search(column) else 0


def _is_worse(column: str, before: float, now: float) -> bool:
    worse, better = (before, now) if _direction(column) > 0 else (now, before)
    return worse > better * (1 + TOLERANCE)

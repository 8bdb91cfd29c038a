"""Operations on small datasets, as source text: what `interrupts`, `forks` and `faults` attack.

A scenario makes a dataset, opens it as `h`, and changes or reads it. Every registered format takes
part with what it holds, in every store on disk.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import ingot
from attacks.datasets import IMPATIENT, samples
from attacks.programs import state
from ingot.formats.registry import FORMATS

__all__ = ["Scenario", "scenarios"]

OPERATIONS = {
    "array": {
        "assign": "h[2:9] = 7",
        "assign all": "h[...] = 3",
        "append": "h.append(h[:7])",
        "grow": "h.resize((h.shape[0] + 20, *h.shape[1:]))",
        "shrink": "h.resize((3, *h.shape[1:]))",
        "attributes": 'h.attrs["x"] = 1',
        "read": "h[1:8]; h[...]; h.sum()",
        "snapshot": "with h.snapshot(): h[1:8]; h[...]",
        "replace": "ingot.array(np.ones((4, 5)), place, format=h.format, overwrite=True)",
        "refresh": "h.refresh(); h[...]",
    },
    "table": {
        "append": 'h.append({"a": [1, 2], "b": [0.5, 0.25], "c": [b"p", b"q"]})',
        "update": 'h.update("a > 10", {"b": 9.0})',
        "delete": 'h.delete("a < 7")',
        "resize": "h.resize(14)",
        "add column": 'h.add_column("d", np.arange(len(h)))',
        "drop column": 'h.drop_column("b")',
        "rename column": 'h.rename_column("b", "e")',
        "column": 'h["b"][3:20] = 1.5',
        "attributes": 'h.attrs["x"] = 1',
        "transaction": (
            'with h.transaction(): h.update("a > 3", {"b": 2.0}); h.resize(20); h.attrs["x"] = 1'
        ),
        "read": 'h.read(where="a > 3"); h[2:9]; h.where("b > 1").count()',
        "snapshot": "with h.snapshot(): h.read(); len(h)",
        # One row each: of two rows, an interrupt between them leaves the first.
        "appender": "with h.appender(rows=2) as add: add((1, 0.5, b'p'))",
        # The row is stored by the call; an interrupt at the end of the block comes after it.
        "full appender": "with h.appender(rows=1) as add:\n  add((1, 0.5, b'p'))\n  ended = True",
    },
    "group": {
        "array": 'h.array("new", np.arange(7), chunks=3)',
        "group": 'h.group("sub/below")',
        "delete": 'del h["deep"]',
        "member": 'h["x"][1:6] = 5',
        "member append": 'h["x"].append(np.arange(6))',
        "attributes": 'h.attrs["x"] = 1',
        "consolidate": "h.consolidate()",
        "read": 'list(h.items()); h["x"][...]',
        "snapshot": 'with h.snapshot(): h["x"][...]',
    },
}
"""Operations on `h` by the kind of container."""

READING = {"read", "snapshot", "refresh"}
AGAIN = 'h.attrs["again"] = 1'
"""The next write. Every format holds attributes."""


@dataclass(frozen=True)
class Scenario:
    """A dataset, the store that holds it, and an operation."""

    format: str
    holds: str
    store: str
    operation: str
    make: str
    source: str

    @property
    def title(self) -> str:
        """Return what is done to what."""
        return f"{self.format} {self.holds} in {self.store}, {self.operation}"

    @property
    def creates(self) -> bool:
        """Return whether the operation makes the dataset."""
        return self.operation == "create"

    def setup(self) -> str:
        """Return the statements before the operation."""
        lines = [f"place = {IMPATIENT[self.store]}"]
        if not self.creates:
            lines += [self.make, f"place = {IMPATIENT[self.store]}", 'h = ingot.open(place, "r+")']
        return "\n".join(lines)

    def space(self, folder: Path) -> dict[str, Any]:
        """Make the dataset; return the names that the operation sees."""
        folder.mkdir(exist_ok=True)
        space = {"np": np, "os": os, "ingot": ingot, "json": json, "folder": str(folder)}
        exec(self.setup(), space)
        return space

    def path(self, folder: Path) -> Path:
        """Return where the dataset lies."""
        return folder / ("data.zip" if self.store == "zip" else "data")

    def states(self, folder: Path) -> tuple[Any, Any]:
        """Return the states before and after the operation."""
        space = self.space(folder)
        old = state(str(self.path(folder)))
        exec(self.source, space)
        return old, state(str(self.path(folder)))


def scenarios() -> Iterator[Scenario]:
    """Yield every scenario."""
    for sample in samples():
        if sample.name in ("scalar", "empty") or sample.holds not in OPERATIONS:
            continue
        if sample.holds == "array" and sample.name == "flat":
            continue
        single = FORMATS.entries[sample.format].is_file
        for store in ("file" if single else "folder", "zip"):
            # Only the first statement is one commit.
            first = sample.source.partition("; ")[0]
            yield Scenario(sample.format, sample.holds, store, "create", first, first)
            for name, source in OPERATIONS[sample.holds].items():
                yield Scenario(sample.format, sample.holds, store, name, sample.source, source)

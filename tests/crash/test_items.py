"""No crash leaves variable-length items and other columns of a table in different states."""

from collections.abc import Iterator
from typing import Any

import pytest

import ingot
from ingot.formats.registry import register, unregister
from ingot.testing import prove
from tests.contracts.toy.table import ENTRY
from tests.crash.table_scenarios import Change, table


def items(rows: int) -> dict[str, Any]:
    """Return a column of numbers and one of text, with nulls."""
    return {"n": list(range(rows)), "t": [None if n % 3 == 2 else f"{n}" for n in range(rows)]}


def transact(found: ingot.Table) -> None:
    with found.transaction():
        found.append(items(1))
        found.delete(1)
        found["t"][0] = "changed"


CHANGES: dict[str, tuple[int, Change]] = {
    "append": (1, lambda found: found.append(items(1))),
    "append a pack": (2, lambda found: found.append(items(1))),
    "trim": (3, lambda found: found.resize(1)),
    "grow": (1, lambda found: found.resize(2)),
    "update": (3, lambda found: found.update("isnull(t)", {"t": "x", "n": 9})),
    "delete": (3, lambda found: found.delete(0)),
    "add a column": (3, lambda found: found.add_column("j", [{}, None, {"a": 1}])),
    "drop a column": (3, lambda found: found.drop_column("t")),
    "rename": (2, lambda found: found.rename_column("t", "z")),
    "transaction": (2, transact),
}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the format for one test."""
    register(ENTRY)
    yield
    unregister("toytable")


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("format", ["toytable", "bcolz", "blsk"])
def test_every_crash_leaves_a_committed_state(format: str, name: str) -> None:
    rows, change = CHANGES[name]
    scenario = table(rows, change, chunks=2, start=items, format=format)
    proof = prove(scenario, contents=4)
    assert proof.faults == []
    assert set(proof.states.values()) == {0, 1}

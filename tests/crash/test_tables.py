"""No crash leaves a table in anything but a committed state, whatever was done to it."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ingot
from ingot.testing import prove
from tests.crash.kills import kill_one
from tests.crash.table_scenarios import FIRST_NULLS, TABLES


@pytest.mark.parametrize("name", TABLES)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    scenario = TABLES[name]
    proof = prove(scenario, contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", FIRST_NULLS)
def test_every_crash_leaves_values_and_nulls_of_one_state(name: str) -> None:
    scenario = FIRST_NULLS[name]
    proof = prove(scenario, contents=4)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


KILLS = 60


def _numbers(number: int) -> dict[str, Any]:
    return {"a": [number] * 7, "b": [2 * number] * 7}


def _texts(number: int) -> dict[str, Any]:
    """Return text of many lengths, and nulls; each row says which commit it is of."""
    return {"a": [number] * 7, "b": [None if n % 3 == 2 else f"{number} " * n for n in range(7)]}


def _double(table: ingot.Table) -> None:
    table["b"][:] = table["a"][:] * 2


def _lengthen(table: ingot.Table) -> None:
    table["b"][:] = [f"{number} " * 9 for number in table["a"][:]]


def _check_numbers(a: int, b: Any) -> None:
    assert b == 2 * a


def _check_text(a: int, b: Any) -> None:
    assert b is None or set(b.split()) <= {str(a)}


class Columns(NamedTuple):
    """A table to be changed by writers that are killed."""

    format: str
    rows: Callable[[int], dict[str, Any]]
    """The rows that a commit appends, given its number."""
    assign: Callable[[ingot.Table], None]
    check: Callable[[int, Any], None]
    """Compares the columns of a row, which are of one commit."""


WRITERS = {
    "numbers in bcolz": Columns("bcolz", _numbers, _double, _check_numbers),
    "text in bcolz": Columns("bcolz", _texts, _lengthen, _check_text),
    "text in blsk": Columns("blsk", _texts, _lengthen, _check_text),
}


def change_for_ever(folder: Path, acknowledged: int, first: int, columns: Columns) -> None:
    table = ingot.open(folder, "r+", options=ingot.Options(durability="process"))
    chance = random.Random(first)
    for number in range(first, first + 1_000_000):
        kind = chance.randrange(5)
        with table.transaction():
            if kind == 0:
                table.delete(slice(0, len(table) // 2))
            elif kind == 1:
                columns.assign(table)
            table.append(columns.rows(number))
            table.attrs["number"] = number
        os.write(acknowledged, b"%12d " % number)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("name", WRITERS)
def test_a_writer_is_killed_again_and_again(tmp_path: Path, name: str) -> None:
    folder, columns = tmp_path / "table", WRITERS[name]
    ingot.table(columns.rows(0), folder, chunks=16, attrs={"number": 0}, format=columns.format)
    chance = random.Random(1)
    last = 0
    for _ in range(KILLS if columns.rows is _numbers else KILLS // 2):
        said = kill_one(
            lambda pipe, first=last + 1: change_for_ever(folder, pipe, first, columns), chance, 0.06
        )
        last = max(last, said)
        table = ingot.open(folder)
        found = table.attrs["number"]
        assert found in (last, last + 1)
        rows = list(zip(table["a"][:].tolist(), table["b"][:].tolist(), strict=True))
        for row in rows:
            columns.check(*row)
        assert rows[-7:] == list(zip(*columns.rows(found).values(), strict=True))
        last = found
    assert last > 0

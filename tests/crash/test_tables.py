"""No crash leaves a table in anything but a committed state, whatever was done to it."""

import os
import random
import select
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.testing import prove
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


def change_for_ever(folder: Path, acknowledged: int, first: int) -> None:
    table = ingot.open(folder, "r+", options=ingot.Options(durability="process"))
    chance = random.Random(first)
    for number in range(first, first + 1_000_000):
        kind = chance.randrange(5)
        with table.transaction():
            if kind == 0:
                table.delete(slice(0, len(table) // 2))
            elif kind == 1:
                table["b"][:] = table["a"][:] * 2
            table.append({"a": [number] * 7, "b": [2 * number] * 7})
            table.attrs["number"] = number
        os.write(acknowledged, b"%12d" % number)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_writer_is_killed_again_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    start = {"a": np.zeros(1, "i8"), "b": np.zeros(1, "i8")}
    ingot.table(start, folder, chunks=16, attrs={"number": 0})
    chance = random.Random(1)
    last = 0
    for number in range(KILLS):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                change_for_ever(folder, writing, last + 1)
            finally:
                os._exit(1)
        os.close(writing)
        if number % 2:
            # However slow the machine is, half of the writers get as far as a commit.
            select.select([reading], [], [], 60)
        time.sleep(chance.uniform(0.005, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        last = max(last, int(said[-12:])) if said else last
        table = ingot.open(folder)
        found = table.attrs["number"]
        assert found in (last, last + 1)
        columns = table.read()
        np.testing.assert_array_equal(columns["a"] * 2, columns["b"])
        assert columns["a"][-1] == found
        last = found
    assert last > 0

"""No crash leaves a bcolz array or table between two states, for us or for readers of old."""

import pytest

from ingot.stores import LocalStore
from ingot.testing import Disk, Scenario, prove
from tests.crash.bcolz_scenarios import ARRAYS, TABLES, created, old_rows, old_table

SCENARIOS: dict[str, Scenario] = {
    **{f"array: {name}": each for name, each in ARRAYS.items()},
    **{f"table: {name}": each for name, each in TABLES.items()},
    "array: create": created(),
}

# What is published by one number alone: assignments are not.
SEEN_BY_OLD = [name for name in ARRAYS if not name.startswith(("assign", "describe"))]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(SCENARIOS[name], contents=64)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(SCENARIOS[name].steps) + 1))


@pytest.mark.parametrize("name", SEEN_BY_OLD)
def test_old_readers_see_the_old_or_the_new_rows(name: str) -> None:
    scenario = ARRAYS[name]
    proof = prove(scenario, contents=64)
    states = _states(scenario)
    for image in proof.states:
        assert old_rows(LocalStore(Disk.of(image))) in states


def _states(scenario: Scenario) -> list[object]:
    disk = Disk(scenario.files)
    states: list[object] = [old_rows(LocalStore(disk))]
    for step in scenario.steps:
        step(LocalStore(disk, writable=True))
        states.append(old_rows(LocalStore(disk)))
    return states


@pytest.mark.parametrize("name", ["append", "trim", "append, trim"])
def test_old_readers_never_see_a_row_of_a_table_that_is_not_there(name: str) -> None:
    scenario = TABLES[name]
    disk = Disk(scenario.files)
    states = [old_table(LocalStore(disk))]
    for step in scenario.steps:
        step(LocalStore(disk, writable=True))
        states.append(old_table(LocalStore(disk)))
    for image in prove(scenario, contents=64).states:
        assert old_table(LocalStore(Disk.of(image))) in states

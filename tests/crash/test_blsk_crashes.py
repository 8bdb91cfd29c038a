"""No crash leaves an array or a table of blsk between two states."""

from functools import partial

import numpy as np
import pytest

from ingot.testing import Scenario, prove
from tests.crash.arrays import scenarios
from tests.crash.table_scenarios import append, nested, table, transact

ARRAYS = scenarios(format="blsk", superchunksize=2)
_table = partial(table, format="blsk")

TABLES: dict[str, Scenario] = {
    "append": _table(6, append(1)),
    "append to nothing": _table(0, append(3)),
    "append, append": _table(3, append(1), append(1, 200)),
    "trim chunks": _table(9, lambda found: found.resize(2)),
    "trim, then append": _table(3, lambda found: found.resize(2), append(1)),
    "update": _table(6, lambda found: found.update("a >= 4", {"a": -1, "b": 9})),
    "delete": _table(5, lambda found: found.delete([1, 3])),
    "add a column": _table(3, lambda found: found.add_column("c", np.arange(3, dtype="u1"))),
    "drop the first": _table(5, lambda found: found.drop_column("a")),
    "rename": _table(3, lambda found: found.rename_column("a", "z")),
    "attributes": _table(3, lambda found: found.attrs.update(step=1)),
    "transaction": _table(3, transact),
    "rename a nested column": _table(
        1, lambda found: found.rename_column("p.b", "p.z"), start=nested
    ),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_every_crash_leaves_a_committed_array(name: str) -> None:
    scenario = ARRAYS[name]
    proof = prove(scenario, contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.parametrize("name", TABLES)
def test_every_crash_leaves_a_committed_table(name: str) -> None:
    scenario = TABLES[name]
    proof = prove(scenario, contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.parametrize("name", ["update"])
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(TABLES[name], contents=8, deep=True).faults == []

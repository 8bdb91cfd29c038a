"""No crash leaves an array or a table of blsk between two states."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.formats.blsk import array as blsk_array
from ingot.stores import MemoryStore, Store
from ingot.testing import Scenario, prove
from tests.crash.arrays import Operation, assign, numbered, scenario, scenarios
from tests.crash.table_scenarios import append, nested, retype, table, texts, transact

ARRAYS = scenarios(format="blsk", superchunksize=2)
_table = partial(table, format="blsk")

TABLES: dict[str, Scenario] = {
    "append text, which refits packs": _table(
        3, lambda found: found.append({"a": [7], "b": ["x" * 20_000]}), start=texts, chunks="auto"
    ),
    "retype": _table(2, retype, start=lambda rows: {"a": np.array(["ab", "c"])}),
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


def _shrunk_and_compacted(found: ingot.Table) -> None:
    with found.transaction():
        found.update("a == 0", {"a": 70})
        found.compact()


def _compact() -> Operation:
    def perform(store: Store, layout: object) -> None:
        array = ingot.open(store, "r+")
        assert isinstance(array, ingot.Array)
        with array.transaction():
            array[0] = 99
            array.compact()

    def expect(items: np.ndarray, attrs: dict[str, object]) -> Any:
        items[0] = 99
        return items, attrs

    return Operation(perform, expect)


COMPACTED: dict[str, Scenario] = {
    "array": scenario(
        numbered(20), assign(slice(2, 9), 7), _compact(), format="blsk", superchunksize=4, chunks=4
    ),
    "table": _table(6, lambda found: found.update("a >= 2", {"b": 9}), _shrunk_and_compacted),
}


@pytest.mark.parametrize("name", COMPACTED)
def test_every_crash_of_a_compaction_leaves_all_data(name: str) -> None:
    scenario = COMPACTED[name]
    proof = prove(scenario, contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


def test_no_crash_of_a_compaction_by_itself_changes_anything() -> None:
    store = MemoryStore()
    array = ingot.array(numbered(40), store, format="blsk", chunks=4, superchunksize=4, spare=0)
    array[...] = numbered(40)[::-1]
    values = array[...].tobytes()

    def judge(found: Store) -> int:
        again = ingot.open(found)
        assert isinstance(again, ingot.Array)
        assert again[...].tobytes() == values
        return int(again._handle.value.chunks.free_bytes().dead == 0)

    def compact(found: Store) -> None:
        again = ingot.open(found, "r+")
        assert isinstance(again, ingot.Array)
        again.compact()

    proof = prove(Scenario(dict(store._values), (compact,), judge), contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == {0, 1}


@pytest.mark.parametrize("name", ["assign whole chunks", "append twice", "erase chunks"])
def test_no_crash_of_a_change_that_compacts_does_either(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blsk_array, "_LEAST_DEAD", 0)
    proof = prove(ARRAYS[name], contents=16)
    assert proof.faults == []


@pytest.mark.parametrize("name", ["update"])
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(TABLES[name], contents=8, deep=True).faults == []

"""Tables in batches: every row once, of one state, and no chunk that cannot match."""

from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.batches import BATCH_ROWS
from ingot.errors import LockedError, SelectionError
from ingot.testing.counting import CountingStore
from tests.storage import Place

pyarrow = pytest.importorskip("pyarrow")


def columns(rows: int) -> dict[str, Any]:
    chance = np.random.default_rng(7)
    return {
        "i": np.arange(rows),
        "f": chance.normal(size=rows).astype("f4"),
        "t": chance.integers(0, 99, rows).astype("U3"),
        "d": np.arange(rows).astype("M8[s]"),
    }


@pytest.mark.parametrize("batch_rows", [1, 7, 100, 1000, BATCH_ROWS])
def test_batches_hold_every_row_once(place: Place, batch_rows: int) -> None:
    given = columns(300)
    table = ingot.table(given, place, chunks={"i": 32, "f": 100, "t": 17})
    batches = list(table.to_batches(batch_rows=batch_rows))
    assert max(batch.num_rows for batch in batches) == min(batch_rows, 300)
    assert pyarrow.Table.from_batches(batches).equals(pyarrow.table(given))
    with pytest.raises(ValueError, match="batch_rows is 0"):
        next(table.to_batches(batch_rows=0))


@pytest.mark.parametrize("where", ["i >= 0", "i < 0", "(i > 40) & (i < 90)", "f > 0", "t == '7'"])
def test_batches_of_a_view(place: Place, where: str) -> None:
    given = columns(300)
    table = ingot.table(given, place, chunks=32)
    mask = eval(where, {}, given)
    view = table.where(where)[["t", "i"]]
    expected = pyarrow.table({name: given[name][mask] for name in ("t", "i")})
    assert pyarrow.table(view).equals(expected)
    assert sum(batch.num_rows for batch in view.to_batches(batch_rows=9)) == mask.sum()


def test_tables_without_rows_have_a_schema() -> None:
    table = ingot.table({"a": np.zeros(0, "i2")})
    assert list(table.to_batches()) == []
    assert pyarrow.table(table).schema == pyarrow.schema({"a": pyarrow.int16()})
    assert pyarrow.schema(table) == pyarrow.schema({"a": pyarrow.int16()})


def test_a_stream_is_of_one_state(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.containers.batches._WINDOW_BYTES", 800)
    table = ingot.table({"a": np.arange(1000)}, place, chunks=100)
    other = ingot.open(place, "r+")
    for change in (table.append, other.append):
        batches = table.to_batches()
        assert next(batches)["a"][0].as_py() == 0
        change({"a": [1]})
        with pytest.raises(LockedError, match="changed while it was streamed"):
            next(batches)
    batches = table.to_batches()
    with table.snapshot():
        assert sum(batch.num_rows for batch in batches) == 1002


def test_a_stream_of_a_nested_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.containers.batches._WINDOW_BYTES", 800)
    table = ingot.table({"n": {"a": np.arange(500), "b": np.ones(500)}}, chunks=50)
    assert pyarrow.table(table["n"])["a"].to_pylist() == list(range(500))


def test_requested_types(place: Place) -> None:
    table = ingot.table({"a": [1, 2], "b": [1.5, 2.5]}, place)
    wish = pyarrow.schema({"a": pyarrow.int8(), "b": pyarrow.float32()})
    assert pyarrow.table(table, schema=wish).schema == wish


def test_wrong_expressions_raise_before_a_batch() -> None:
    table = ingot.table({"a": [1, 2]})
    with pytest.raises(SelectionError):
        table.where("a + 1")


def test_chunks_that_cannot_match_are_not_read() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(10_000), "b": np.arange(10_000) % 7}, store, chunks=100)
    table = ingot.open(store)
    first = table.where("(a >= 5000) & (a < 5050)")
    assert pyarrow.table(first).num_rows == 50
    store.reset()
    assert pyarrow.table(first).num_rows == 50
    few = store.extents
    store.reset()
    assert pyarrow.table(table).num_rows == 10_000
    assert few <= 8
    assert store.extents >= 200

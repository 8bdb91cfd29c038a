"""Any changes of a table, step by step beside a mapping of NumPy arrays."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from numpy.typing import NDArray

import ingot
from ingot.stores import MemoryStore
from tests.kernels import needs_native
from tests.storage import Place, use_kernel

try:
    import bcolz
except ImportError:
    bcolz = None

# What bcolz can store, and so can be asked to change in between.
OLD = ["i1", "u2", "i4", "i8", "f4", "f8", "?", "S3", "U2", "M8[ns]"]
NEW = ["c8", "M8[D]", "m8[s]", ">i4"]
NAMES = ["a", "b", "c", "d"]
lengths = st.integers(0, 20)


class Stop(Exception):
    """Ends a transaction."""


def values(dtype: Any, rows: int, start: int) -> NDArray[Any]:
    """Return items that go up and down."""
    numbers = (np.arange(rows) * 7 + start) % 23
    if np.dtype(dtype).kind in "SU":
        return numbers.astype("U2").astype(dtype)
    return numbers.astype(dtype)


def joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return both, in the byte order of the first."""
    return np.concatenate([first, second]).astype(first.dtype)


class Life(RuleBasedStateMachine):
    """The rules; the machines below say where it is lived, and on which kernel."""

    place_name: str
    kernel_name: str

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        use_kernel(self.kernel_name, self.patch)
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name == "local":
            self.place = Path(self.folder) / "table"
        self.within = contextlib.ExitStack()
        self.before: dict[str, NDArray[Any]] | None = None

    def teardown(self) -> None:
        self.within.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    @initialize(
        types=st.lists(st.sampled_from(OLD + NEW), min_size=1, max_size=3),
        rows=lengths,
        chunks=st.integers(1, 6),
    )
    def create(self, types: list[str], rows: int, chunks: int) -> None:
        named = zip(NAMES, types, strict=False)
        self.data = {name: values(dtype, rows, 3) for name, dtype in named}
        self.table = ingot.table(self.data, self.place, chunks=chunks)
        self.chunks = chunks

    @property
    def rows(self) -> int:
        return len(next(iter(self.data.values())))

    def each(self, change: Any) -> None:
        self.data = {name: change(column) for name, column in self.data.items()}

    @rule(rows=lengths, start=st.integers(0, 30))
    def append(self, rows: int, start: int) -> None:
        more = {name: values(each.dtype, rows, start) for name, each in self.data.items()}
        self.table.append(more)
        self.data = {name: joined(self.data[name], more[name]) for name in self.data}

    @rule(rows=lengths)
    def resize(self, rows: int) -> None:
        def change(column: NDArray[Any]) -> NDArray[Any]:
            fresh = np.zeros(rows, column.dtype)
            fresh[: len(column)] = column[:rows]
            return fresh

        self.table.resize(rows)
        self.each(change)

    @rule(draws=st.data())
    def delete(self, draws: st.DataObject) -> None:
        chosen = draws.draw(st.lists(st.integers(0, max(0, self.rows - 1)), max_size=5))
        rows = [row for row in chosen if row < self.rows]
        assert self.table.delete(np.array(rows, int)) == len(set(rows))
        self.each(lambda column: np.delete(column, rows))

    @rule(draws=st.data(), start=st.integers(0, 30))
    def assign(self, draws: st.DataObject, start: int) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        first = draws.draw(st.integers(0, self.rows))
        column = self.data[name].copy()
        column[first:] = values(column.dtype, self.rows - first, start)
        if draws.draw(st.booleans()):
            self.table[name][first:] = column[first:]
        else:
            self.table.update(slice(first, None), {name: column[first:]})
        self.data[name] = column

    @rule(draws=st.data(), value=st.integers(0, 22))
    def update_by_expression(self, draws: st.DataObject, value: int) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        column = self.data[name]
        if column.dtype.kind not in "iuf":
            return
        mask = column >= value
        assert self.table.update(f"{name} >= {value}", {name: 0}) == mask.sum()
        self.data[name] = np.where(mask, np.zeros((), column.dtype), column).astype(column.dtype)

    @precondition(lambda self: len(self.data) < len(NAMES))
    @rule(draws=st.data(), dtype=st.sampled_from(OLD + NEW))
    def add_column(self, draws: st.DataObject, dtype: str) -> None:
        name = next(name for name in NAMES if name not in self.data)
        place = draws.draw(st.integers(0, len(self.data)))
        column = values(dtype, self.rows, 1)
        self.table.add_column(name, column, position=place, chunks=self.chunks)
        items = list(self.data.items())
        items.insert(place, (name, column))
        self.data = dict(items)

    @precondition(lambda self: len(self.data) > 1)
    @rule(draws=st.data())
    def drop_column(self, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        self.table.drop_column(name)
        del self.data[name]

    @precondition(lambda self: len(self.data) < len(NAMES))
    @rule(draws=st.data())
    def rename_column(self, draws: st.DataObject) -> None:
        old = draws.draw(st.sampled_from(sorted(self.data)))
        new = next(name for name in NAMES if name not in self.data)
        self.table.rename_column(old, new)
        self.data = {new if name == old else name: each for name, each in self.data.items()}

    @precondition(lambda self: self.before is None)
    @rule()
    def begin(self) -> None:
        self.before = dict(self.data)
        self.within.enter_context(self.table.transaction())

    @precondition(lambda self: self.before is not None)
    @rule(keep=st.booleans())
    def end(self, keep: bool) -> None:
        assert self.before is not None
        if keep:
            self.within.close()
        else:
            self.within.__exit__(Stop, Stop(), None)
            self.data = self.before
        self.before = None

    @precondition(lambda self: self.before is None)
    @rule()
    def reopen(self) -> None:
        self.table.close()
        self.table = ingot.open(self.place, "r+")

    @precondition(lambda self: self.before is None and self.place_name == "local" and bcolz)
    @rule(rows=lengths, trim=st.integers(0, 5))
    def let_bcolz(self, rows: int, trim: int) -> None:
        """Let the old library open, check, trim and append what is here."""
        known = {name: each for name, each in self.data.items() if each.dtype.kind not in "cm"}
        if len(known) < len(self.data) or any(each.dtype == "M8[D]" for each in known.values()):
            return
        old = bcolz.open(str(self.place), mode="a")
        for name, column in self.data.items():
            np.testing.assert_array_equal(old[name][:], column)
        old.trim(min(trim, self.rows))
        self.each(lambda column: column[: max(0, len(column) - trim)])
        if rows:
            more = [values(each.dtype, rows, 5) for each in self.data.values()]
            old.append(more)
            named = zip(self.data.items(), more, strict=True)
            self.data = {name: joined(each, new) for (name, each), new in named}
        old.flush()
        # Ingot alone reports that something has changed.
        self.table = ingot.open(self.place, "r+")

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        for table, expected in self.seen():
            assert table.names == tuple(expected)
            found = table.read()
            for name, column in expected.items():
                np.testing.assert_array_equal(found[name], column, strict=True)
                assert table[name].shape == column.shape

    @invariant()
    def finds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        for name, column in self.data.items():
            if column.dtype.kind in "iuf":
                rows = self.table.where(f"(5 < {name}) & ({name} <= 12)").rows()
                expected = np.flatnonzero((column > 5) & (column <= 12))
                np.testing.assert_array_equal(rows, expected)

    def seen(self) -> Iterator[tuple[ingot.Table, dict[str, NDArray[Any]]]]:
        yield self.table, self.data
        yield ingot.open(self.place), self.data if self.before is None else self.before


PLACES = [
    pytest.param("local", "native", marks=needs_native),
    ("local", "python"),
    pytest.param("memory", "native", marks=needs_native),
    ("memory", "python"),
]


@pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)
def test_a_table_changes_as_a_mapping_of_arrays_does(place_name: str, kernel_name: str) -> None:
    machine = type("Life", (Life,), {"place_name": place_name, "kernel_name": kernel_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=25, stateful_step_count=20, deadline=None)
    )

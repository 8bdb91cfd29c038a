"""Any changes of a table with nulls, step by step beside lists in which None is a null."""

import contextlib
import shutil
import tempfile
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

import ingot
from ingot.stores import MemoryStore
from tests.kernels import needs_native
from tests.storage import Place, use_kernel

NAMES = ["a", "b", "q.c"]
FRESH = ["x", "y", "z"]
items = st.none() | st.integers(0, 9)
columns = st.lists(items, max_size=12)


def typed(values: list[Any], dtype: str) -> Any:
    """Return a list, with nulls, in the type of a column."""
    mask = [each is None for each in values]
    return np.ma.MaskedArray([0 if each is None else each for each in values], mask, dtype=dtype)


class Life(RuleBasedStateMachine):
    """The rules; the machines below say where it is lived, and on which kernel."""

    place_name: str
    kernel_name: str
    format_name: str

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        use_kernel(self.kernel_name, self.patch)
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name == "local":
            self.place = Path(self.folder) / "table"
        self.within = contextlib.ExitStack()

    def teardown(self) -> None:
        self.within.close()
        self.patch.undo()
        shutil.rmtree(self.folder)

    @initialize(rows=st.integers(0, 9), chunks=st.integers(1, 5), draws=st.data())
    def create(self, rows: int, chunks: int, draws: st.DataObject) -> None:
        exact = st.lists(items, min_size=rows, max_size=rows)
        self.data: dict[str, list[Any]] = {name: draws.draw(exact) for name in NAMES}
        given = {
            "a": typed(self.data["a"], "i2"),
            "b": typed(self.data["b"], "f8"),
            "q": {"c": typed(self.data["q.c"], "u1")},
        }
        self.table = ingot.table(given, self.place, chunks=chunks, format=self.format_name)
        self.inside = False

    @property
    def rows(self) -> int:
        return len(next(iter(self.data.values())))

    @rule(rows=st.integers(0, 6), draws=st.data())
    def append(self, rows: int, draws: st.DataObject) -> None:
        exact = st.lists(items, min_size=rows, max_size=rows)
        more = {name: draws.draw(exact) for name in self.data}
        self.table.append(more)
        for name, values in more.items():
            self.data[name] += values

    @rule(value=items, limit=st.integers(0, 9), draws=st.data())
    def update(self, value: int | None, limit: int, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(list(self.data)))
        other = draws.draw(st.sampled_from(list(self.data)))
        matching = [each is not None and each <= limit for each in self.data[other]]
        assert self.table.update(f"{other} <= {limit}", {name: value}) == sum(matching)
        pairs = zip(matching, self.data[name], strict=True)
        self.data[name] = [value if match else each for match, each in pairs]

    @precondition(lambda self: self.rows)
    @rule(draws=st.data(), values=st.lists(items, min_size=1, max_size=4))
    def assign(self, draws: st.DataObject, values: list[Any]) -> None:
        name = draws.draw(st.sampled_from(list(self.data)))
        start = draws.draw(st.integers(0, self.rows - 1))
        given = values[: self.rows - start]
        self.table[name][start : start + len(given)] = given
        self.data[name][start : start + len(given)] = given

    @rule(draws=st.data())
    def delete(self, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(list(self.data)))
        kept = [each is not None for each in self.data[name]]
        assert self.table.delete(f"isnull({name})") == kept.count(False)
        for each, values in self.data.items():
            pairs = zip(values, kept, strict=True)
            self.data[each] = [value for value, keep in pairs if keep]

    @rule(rows=st.integers(0, 12))
    def resize(self, rows: int) -> None:
        self.table.resize(rows)
        for name, values in self.data.items():
            self.data[name] = (values + [0] * rows)[:rows]

    @rule(new=st.sampled_from(FRESH))
    def rename(self, new: str) -> None:
        if new not in self.data:
            old = next(iter(self.data))
            whole = "q." if old.startswith("q.") else ""
            self.table.rename_column(old, whole + new)
            self.data = {whole + new if n == old else n: each for n, each in self.data.items()}

    @rule(draws=st.data(), new=st.sampled_from(FRESH))
    def exchange(self, draws: st.DataObject, new: str) -> None:
        """Add a column; drop one if there are many."""
        if new in self.data:
            return
        exact = st.lists(items, min_size=self.rows, max_size=self.rows)
        values = draws.draw(exact)
        self.table.add_column(new, typed(values, "i4"))
        self.data[new] = values
        if len(self.data) > 4:
            gone = next(name for name in self.data if not name.startswith("q."))
            self.table.drop_column(gone)
            del self.data[gone]

    @precondition(lambda self: not self.inside)
    @rule()
    def begin(self) -> None:
        self.within.enter_context(self.table.transaction())
        self.inside = True

    @precondition(lambda self: self.inside)
    @rule()
    def end(self) -> None:
        self.within.close()
        self.inside = False

    @rule()
    def reopen(self) -> None:
        if not self.inside:
            self.table = ingot.open(self.place, "r+")

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        found = self.table.read()
        assert {name: each.tolist() for name, each in found.items()} == self.data
        for name, values in self.data.items():
            exist = [each for each in values if each is not None]
            assert self.table[name].sum() == sum(exist)
            assert self.table[name].has_nulls == (None in values)
            rows = self.table.where(f"{name} != 4").rows().tolist()
            assert rows == [n for n, each in enumerate(values) if each not in (None, 4)]
            assert self.table.where(f"isnull({name})").count() == values.count(None)


PLACES = [
    pytest.param("local", "native", "bcolz", marks=needs_native),
    pytest.param("local", "native", "blsk", marks=needs_native),
    pytest.param("memory", "native", "bcolz", marks=needs_native),
    ("local", "python", "bcolz"),
    ("memory", "python", "blsk"),
]


@pytest.mark.parametrize(("place_name", "kernel_name", "format_name"), PLACES)
def test_a_table_with_nulls_changes_as_lists_do(
    place_name: str, kernel_name: str, format_name: str
) -> None:
    names = {"place_name": place_name, "kernel_name": kernel_name, "format_name": format_name}
    run_state_machine_as_test(
        type("Life", (Life,), names),
        settings=settings(max_examples=5, stateful_step_count=12, deadline=None),
    )

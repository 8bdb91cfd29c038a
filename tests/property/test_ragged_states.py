"""Any changes of a table with columns of variable-length items, beside Python lists."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
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
from ingot.formats.registry import register, unregister
from ingot.ragged_array import RaggedArray
from ingot.stores import MemoryStore
from tests.contracts.toy.table import ENTRY
from tests.storage import Place

NAMES = ["a", "b", "c", "d"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["x" * 40, "日本" * 30, "a\0", "\0"]
)
values = st.recursive(
    st.booleans() | st.integers(-(2**60), 2**60) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
KINDS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": ("utf8", texts),
    "bytes": ("bytes", st.binary(max_size=6)),
    "json": ("json", values),
    "ints": (np.dtype("<i4"), st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)),
    "floats": (np.dtype(">f8"), st.lists(st.floats(allow_nan=False), max_size=3)),
    "numbers": (None, st.integers(-100, 100)),
}


class Stop(Exception):
    """Ends a transaction."""


def plain(items: Any) -> list[Any]:
    """Return items as Python objects; a row of numbers as a list."""
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


class Life(RuleBasedStateMachine):
    """The rules; the machines below say where it is lived."""

    format: str
    place_name: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name == "local":
            self.place = Path(self.folder) / "table"
        self.within = contextlib.ExitStack()
        self.before: dict[str, list[Any]] | None = None

    def teardown(self) -> None:
        self.within.close()
        shutil.rmtree(self.folder)

    def drawn(self, draws: st.DataObject, kind: str, rows: int) -> list[Any]:
        """Return items of a kind; some are null, where they may be."""
        own, items = KINDS[kind]
        each = items if own is None else st.none() | items
        found: list[Any] = draws.draw(st.lists(each, min_size=rows, max_size=rows))
        return found

    def given(self, kind: str, items: list[Any]) -> Any:
        own, _ = KINDS[kind]
        return np.array(items, np.int64) if own is None else RaggedArray.of(items, own)

    @initialize(
        draws=st.data(),
        kinds=st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3),
        rows=st.integers(0, 9),
        chunks=st.integers(1, 4),
    )
    def create(self, draws: st.DataObject, kinds: list[str], rows: int, chunks: int) -> None:
        self.kinds = dict(zip(NAMES, kinds, strict=False))
        self.data = {name: self.drawn(draws, kind, rows) for name, kind in self.kinds.items()}
        columns = {name: self.given(self.kinds[name], each) for name, each in self.data.items()}
        options = ingot.Options(durability="process")
        self.table = ingot.table(
            columns, self.place, chunks=chunks, format=self.format, options=options
        )
        self.reader: Any = ingot.open(self.place)

    @property
    def rows(self) -> int:
        return len(next(iter(self.data.values())))

    def each(self, change: Callable[[list[Any]], list[Any]]) -> None:
        self.data = {name: change(column) for name, column in self.data.items()}

    @rule(draws=st.data(), rows=st.integers(0, 7), as_rows=st.booleans())
    def append(self, draws: st.DataObject, rows: int, as_rows: bool) -> None:
        more = {name: self.drawn(draws, kind, rows) for name, kind in self.kinds.items()}
        if as_rows:
            self.table.append(
                [dict(zip(more, row, strict=True)) for row in zip(*more.values(), strict=True)]
            )
        else:
            self.table.append({name: self.given(self.kinds[name], more[name]) for name in more})
        self.data = {name: [*self.data[name], *more[name]] for name in self.data}

    @rule(rows=st.integers(0, 12))
    def resize(self, rows: int) -> None:
        self.table.resize(rows)
        added = max(0, rows - self.rows)
        self.data = {
            name: [*column[:rows], *[0 if self.kinds[name] == "numbers" else None] * added]
            for name, column in self.data.items()
        }

    @rule(draws=st.data())
    def delete(self, draws: st.DataObject) -> None:
        chosen = draws.draw(st.lists(st.integers(0, max(0, self.rows - 1)), max_size=4))
        gone = {row for row in chosen if row < self.rows}
        assert self.table.delete(np.array([*gone], int)) == len(gone)
        self.each(lambda column: [each for row, each in enumerate(column) if row not in gone])

    @precondition(lambda self: self.rows)
    @rule(draws=st.data())
    def update(self, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        rows = draws.draw(st.lists(st.integers(0, self.rows - 1), max_size=5))
        new = self.drawn(draws, self.kinds[name], len(rows))
        self.table.update(np.array(rows, int), {name: self.given(self.kinds[name], new)})
        for row, item in zip(rows, new, strict=True):
            self.data[name][row] = item

    @precondition(lambda self: self.rows)
    @rule(draws=st.data())
    def assign_one(self, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        row = draws.draw(st.integers(0, self.rows - 1))
        (item,) = self.drawn(draws, self.kinds[name], 1)
        self.table[name][row] = item
        self.data[name][row] = item

    @precondition(lambda self: "text" in self.kinds.values())
    @rule(draws=st.data(), comparison=st.sampled_from(["==", "!=", "<", ">="]))
    def query(self, draws: st.DataObject, comparison: str) -> None:
        name = next(name for name, kind in self.kinds.items() if kind == "text")
        held = [text for text in self.data[name] if text is not None]
        value = draws.draw(st.sampled_from(held) if held else texts)
        compare: Any = {
            "==": str.__eq__,
            "!=": str.__ne__,
            "<": str.__lt__,
            ">=": str.__ge__,
        }[comparison]
        rows = [
            row
            for row, text in enumerate(self.data[name])
            if text is not None and compare(text, value)
        ]
        assert self.table.where(f"{name} {comparison} {value!r}").rows().tolist() == rows
        nulls = [row for row, text in enumerate(self.data[name]) if text is None]
        assert self.table.where(f"isnull({name})").rows().tolist() == nulls

    @precondition(lambda self: len(self.data) < len(NAMES))
    @rule(draws=st.data(), kind=st.sampled_from(sorted(KINDS)))
    def add_column(self, draws: st.DataObject, kind: str) -> None:
        name = next(name for name in NAMES if name not in self.data)
        column = self.drawn(draws, kind, self.rows)
        self.table.add_column(name, self.given(kind, column), chunks=3)
        self.data[name], self.kinds[name] = column, kind

    @precondition(lambda self: len(self.data) > 1)
    @rule(draws=st.data())
    def drop_column(self, draws: st.DataObject) -> None:
        name = draws.draw(st.sampled_from(sorted(self.data)))
        self.table.drop_column(name)
        del self.data[name]
        del self.kinds[name]

    @precondition(lambda self: self.before is None)
    @rule()
    def begin(self) -> None:
        self.before = {name: [*column] for name, column in self.data.items()}
        self.kinds_before = dict(self.kinds)
        self.within.enter_context(self.table.transaction())

    @precondition(lambda self: self.before is not None)
    @rule(keep=st.booleans())
    def end(self, keep: bool) -> None:
        assert self.before is not None
        within = self.within.pop_all()
        if keep:
            within.close()
        else:
            stop = Stop()
            with contextlib.suppress(Stop):
                if not within.__exit__(Stop, stop, None):
                    raise stop
            self.data, self.kinds = self.before, self.kinds_before
        self.before = None

    @rule()
    def reopen(self) -> None:
        if self.before is None:
            self.table = ingot.open(  # type: ignore[assignment]
                self.place, "r+", options=ingot.Options(durability="process")
            )

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        found = self.table.read()
        assert list(found) == list(self.data)
        for name, column in self.data.items():
            assert plain(found[name]) == column
            assert plain(self.table[name][::-1]) == column[::-1]
        committed = self.data if self.before is None else self.before
        assert {name: plain(each) for name, each in self.reader.read().items()} == committed


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the format for one test."""
    register(ENTRY)
    yield
    unregister("toytable")


@pytest.mark.parametrize("place_name", ["memory", "local"])
@pytest.mark.parametrize("format", ["toytable", "bcolz", "blsk"])
def test_items_change_as_lists_do(format: str, place_name: str) -> None:
    machine = type("Life", (Life,), {"format": format, "place_name": place_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=10, stateful_step_count=15, deadline=None)
    )

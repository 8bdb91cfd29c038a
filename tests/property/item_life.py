"""Any changes of variable-length items, beside a Python list: the rules for all formats."""

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

import ingot
from ingot.ragged_array import RaggedArray
from ingot.stores import MemoryStore
from tests.property.test_ragged_states import KINDS, Stop, plain
from tests.storage import Place

_OPTIONS = ingot.Options(durability="process")
_OWN = {name: own for name, own in KINDS.items() if own[0] is not None}


class ItemLife(RuleBasedStateMachine):
    """The rules; a subclass says of which format, and tests say where it is lived."""

    format: str
    suffix: str
    place_name: str
    compacts: bool
    """Whether changes of the format leave bytes behind."""
    layouts: st.SearchStrategy[dict[str, Any]]
    """The settings of new items."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name != "memory":
            zipped = ".zip" * (self.place_name == "zip")
            self.place = Path(self.folder) / f"items{self.suffix}{zipped}"
        self.within = contextlib.ExitStack()
        self.before: list[Any] | None = None

    def teardown(self) -> None:
        self.within.close()
        shutil.rmtree(self.folder)

    def drawn(self, draws: st.DataObject, least: int, most: int) -> list[Any]:
        each = st.none() | _OWN[self.kind][1]
        found: list[Any] = draws.draw(st.lists(each, min_size=least, max_size=most))
        return found

    @initialize(draws=st.data(), kind=st.sampled_from(sorted(_OWN)), lazy=st.booleans())
    def create(self, draws: st.DataObject, kind: str, lazy: bool) -> None:
        self.kind = kind
        self.layout = draws.draw(self.layouts)
        self.data = self.drawn(draws, 0, 12)
        self.items: Any = ingot.ragged(
            iter(self.data) if lazy else self.data,
            self.place,
            kind=_OWN[kind][0],
            format=self.format,
            options=_OPTIONS,
            **self.layout,
        )
        self.reader: Any = ingot.open(self.place)

    @rule(draws=st.data(), lazy=st.booleans())
    def append(self, draws: st.DataObject, lazy: bool) -> None:
        more = self.drawn(draws, 0, 6)
        self.items.append(iter(more) if lazy else more)
        self.data += more

    @precondition(lambda self: self.data)
    @rule(draws=st.data())
    def assign_one(self, draws: st.DataObject) -> None:
        row = draws.draw(st.integers(-len(self.data), len(self.data) - 1))
        (item,) = self.drawn(draws, 1, 1)
        self.items[row] = item
        self.data[row] = item

    @rule(draws=st.data(), start=st.integers(0, 15), stop=st.integers(0, 15))
    def assign_slice(self, draws: st.DataObject, start: int, stop: int) -> None:
        count = len(self.data[start:stop])
        new = self.drawn(draws, count, count)
        self.items[start:stop] = RaggedArray.of(new, _OWN[self.kind][0])
        self.data[start:stop] = new

    @precondition(lambda self: self.data)
    @rule(draws=st.data())
    def assign_some(self, draws: st.DataObject) -> None:
        rows = draws.draw(st.lists(st.integers(0, len(self.data) - 1), max_size=4))
        new = self.drawn(draws, len(rows), len(rows))
        self.items[np.array(rows, int)] = RaggedArray.of(new, _OWN[self.kind][0])
        for row, item in zip(rows, new, strict=True):
            self.data[row] = item

    @rule(draws=st.data())
    def delete(self, draws: st.DataObject) -> None:
        chosen = draws.draw(st.lists(st.integers(0, max(0, len(self.data) - 1)), max_size=5))
        gone = {row for row in chosen if row < len(self.data)}
        assert self.items.delete(np.array([*gone], int)) == len(gone)
        self.data = [each for row, each in enumerate(self.data) if row not in gone]

    @rule(length=st.integers(0, 18))
    def resize(self, length: int) -> None:
        self.items.resize(length)
        self.data = [*self.data[:length], *[None] * (length - len(self.data))]

    @precondition(lambda self: self.compacts)
    @rule()
    def compact(self) -> None:
        self.items.compact()
        assert self.items.dead_bytes == 0

    @rule(text=st.text(max_size=30), long=st.booleans())
    def describe(self, text: str, long: bool) -> None:
        self.items.attrs["note"] = text * (100 if long else 1)
        assert self.items.attrs["note"] == text * (100 if long else 1)

    @precondition(lambda self: self.before is None)
    @rule()
    def begin(self) -> None:
        self.before = [*self.data]
        self.within.enter_context(self.items.transaction())

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
            self.data = self.before
        self.before = None

    @rule()
    def reopen(self) -> None:
        if self.before is None:
            self.items = ingot.open(self.place, "r+", options=_OPTIONS)

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        assert len(self.items) == len(self.data)
        assert plain(self.items) == self.data
        assert plain(self.items[::-1]) == self.data[::-1]
        committed = self.data if self.before is None else self.before
        assert plain(self.reader) == committed
        if self.before is None:
            self.check_stored()

    def check_stored(self) -> None:
        """Compare what is stored with the items, by a reader that shares no code with Ingot."""

"""Any changes of a file of variable-length items, beside a Python list."""

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
from ingot.formats.varlen import ragged
from ingot.ragged_array import RaggedArray
from ingot.stores import Extent, MemoryStore
from tests import varlen_files as by_hand
from tests.property.test_ragged_states import KINDS, Stop, plain
from tests.storage import Place

_OPTIONS = ingot.Options(durability="process")
_OWN = {name: own for name, own in KINDS.items() if own[0] is not None}


class VarlenLife(RuleBasedStateMachine):
    """The rules; the tests below say where it is lived."""

    place_name: str

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name != "memory":
            self.place = Path(self.folder) / f"items.blv{'.zip' * (self.place_name == 'zip')}"
        self.within = contextlib.ExitStack()
        self.before: list[Any] | None = None

    def teardown(self) -> None:
        self.within.close()
        shutil.rmtree(self.folder)

    def drawn(self, draws: st.DataObject, least: int, most: int) -> list[Any]:
        each = st.none() | _OWN[self.kind][1]
        found: list[Any] = draws.draw(st.lists(each, min_size=least, max_size=most))
        return found

    @initialize(
        draws=st.data(),
        kind=st.sampled_from(sorted(_OWN)),
        packed=st.booleans(),
        pack_bytes=st.integers(1, 200),
        slots=st.integers(0, 6),
        reserve=st.sampled_from([0, 7, 0.5]),
        checksum=st.sampled_from(["crc32", "crc32", "none", "md5"]),
    )
    def create(self, draws: st.DataObject, kind: str, **layout: Any) -> None:
        self.kind = kind
        self.checksum = layout["checksum"]
        self.data = self.drawn(draws, 0, 12)
        self.items: Any = ingot.ragged(
            self.data,
            self.place,
            kind=_OWN[kind][0],
            format="varlen",
            options=_OPTIONS,
            **layout,
        )

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
        if self.place_name == "zip":
            return
        if self.before is not None:
            assert plain(ingot.open(self.place)) == self.before
        elif self.checksum == "crc32":
            found, _ = by_hand.read_file(self.stored())
            assert [each is None for each in found] == [each is None for each in self.data]

    def stored(self) -> bytes:
        if isinstance(self.place, Path):
            return self.place.read_bytes()
        assert isinstance(self.place, MemoryStore)
        (data,) = self.place.read([Extent("data.blv")])
        assert data is not None
        return data


@pytest.mark.parametrize("place_name", ["memory", "local", "zip"])
@pytest.mark.parametrize("smallest", [0, 1 << 20])
def test_items_change_as_a_list_does(
    place_name: str, smallest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if place_name == "zip" and smallest:
        pytest.skip("an archive is written anew in any case")
    monkeypatch.setattr(ragged, "_SMALLEST_IN_PLACE", smallest)
    machine = type("VarlenLife", (VarlenLife,), {"place_name": place_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None)
    )

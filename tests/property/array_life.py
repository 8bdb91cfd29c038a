"""A life of an array: changes step by step beside a NumPy array, whatever its format is."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import ingot
from ingot.stores import MemoryStore
from tests.property.array_strategies import items, same
from tests.property.test_selection import keys
from tests.storage import Place, use_kernel

__all__ = ["ArrayLife", "shapes", "short"]

short = st.integers(0, 9)
shapes = st.lists(short, min_size=1, max_size=3).map(tuple)


class ArrayLife(RuleBasedStateMachine):
    """The rules of all formats. A subclass creates the array, and adds its own rules."""

    file_name: ClassVar[str] = "array"
    options: ClassVar[ingot.Options | None] = None
    place_name: str
    kernel_name: str
    array: ingot.Array
    data: np.ndarray[Any, Any]
    attrs: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        use_kernel(self.kernel_name, self.patch)
        self.folder = tempfile.mkdtemp()
        self.place: Place = MemoryStore()
        if self.place_name == "local":
            self.place = Path(self.folder) / self.file_name

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.folder)

    @rule(draws=st.data(), start=st.integers(1, 60))
    def assign(self, draws: st.DataObject, start: int) -> None:
        key = draws.draw(keys(self.data.shape, "iisssam"))
        try:
            value = items(self.data.dtype, np.shape(self.data[key]), start)
        except (IndexError, OverflowError):
            return
        self.data = self.data.copy()
        self.data[key] = value
        self.array[key] = value

    @rule(name=st.sampled_from("abc"), value=st.integers() | st.text() | st.none())
    def describe(self, name: str, value: Any) -> None:
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return
        self.array.attrs[name] = value
        self.attrs[name] = value

    @precondition(lambda self: self.attrs)
    @rule()
    def undescribe(self) -> None:
        name, _ = self.attrs.popitem()
        del self.array.attrs[name]

    @rule(close=st.booleans())
    def reopen(self, close: bool) -> None:
        if close:
            self.array.close()
        found = ingot.open(self.place, "r+", options=self.options)
        assert isinstance(found, ingot.Array)
        self.array = found

    @invariant()
    def holds_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        assert self.array.shape == self.data.shape
        assert same(self.array[...], self.data)
        assert dict(self.array.attrs) == self.attrs

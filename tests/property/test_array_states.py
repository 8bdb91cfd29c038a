"""Any changes of an array, step by step beside a NumPy array."""

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

import ingot
from tests.kernels import needs_native
from tests.property.array_life import ArrayLife, shapes, short
from tests.property.array_strategies import FIXED, Shape, items, layouts
from tests.storage import content


class Life(ArrayLife):
    """The rules of arrays in chunks that are boxes."""

    @initialize(shape=shapes, dtype=st.sampled_from(FIXED), draws=st.data())
    def create(self, shape: Shape, dtype: Any, draws: st.DataObject) -> None:
        self.fill = items(dtype, (1,), 5)[0] if draws.draw(st.booleans()) else 0
        self.layout = draws.draw(layouts(shape))
        self.array = ingot.create(
            self.place, shape=shape, dtype=dtype, fill=self.fill, **self.layout
        )
        self.data = self.filled(shape, self.array.dtype)
        self.attrs: dict[str, Any] = {}

    def filled(self, shape: Shape, dtype: Any) -> np.ndarray[Any, Any]:
        data = np.zeros(shape, dtype)
        if not (isinstance(self.fill, int) and self.fill == 0):
            data[...] = self.fill
        return data

    @rule(draws=st.data(), length=st.integers(0, 5), start=st.integers(1, 60))
    def append(self, draws: st.DataObject, length: int, start: int) -> None:
        axis = draws.draw(st.integers(0, self.data.ndim - 1))
        shape = list(self.data.shape)
        shape[axis] = length
        more = items(self.data.dtype, tuple(shape), start)
        self.array.append(more, axis)
        self.data = np.concatenate([self.data, more], axis).astype(self.data.dtype)

    @rule(draws=st.data())
    def resize(self, draws: st.DataObject) -> None:
        shape = tuple(draws.draw(short) for _ in self.data.shape)
        resized = self.filled(shape, self.data.dtype)
        kept = tuple(slice(min(a, b)) for a, b in zip(shape, self.data.shape, strict=True))
        resized[kept] = self.data[kept]
        self.data = resized
        self.array.resize(shape)

    @rule()
    def overwrite(self) -> None:
        shape = self.data.shape
        self.array = ingot.create(
            self.place,
            shape=shape,
            dtype=self.data.dtype,
            fill=self.fill,
            overwrite=True,
            **self.layout,
        )
        self.data = self.filled(shape, self.data.dtype)
        self.attrs = {}

    @invariant()
    def stores_nothing_outside_of_the_grid(self) -> None:
        if not hasattr(self, "data"):
            return
        documents = (".zarray", ".zattrs", ".lock", "zarr.json")
        chunks = {key for key in content(self.place) if key not in documents}
        separator = self.layout["dimension_separator"]
        counts = [-(-n // c) for n, c in zip(self.data.shape, self.layout["chunks"], strict=True)]
        for key in chunks:
            parts = key.split(separator)
            if self.layout["format"] == "zarr3":
                assert parts.pop(0) == "c"
            coords = list(map(int, parts))
            assert all(a < b for a, b in zip(coords, counts, strict=True)), key


PLACES = [
    pytest.param("local", "native", marks=needs_native),
    ("local", "python"),
    ("memory", "python"),
]


@pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)
def test_an_array_changes_as_numpys_does(place_name: str, kernel_name: str) -> None:
    machine = type("Life", (Life,), {"place_name": place_name, "kernel_name": kernel_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=40, stateful_step_count=25, deadline=None)
    )

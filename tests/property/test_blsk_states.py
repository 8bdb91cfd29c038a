"""Random changes of arrays and tables of blsk agree with NumPy, and with an independent reader."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, run_state_machine_as_test

import ingot
from ingot.stores.local import commit, log, store
from tests.blsk_reader import read
from tests.kernels import needs_native
from tests.property.array_life import ArrayLife, shapes, short
from tests.property.array_strategies import items
from tests.property.test_table_states import NAMES, NEW, OLD, Life, values
from tests.storage import content


class BlskLife(ArrayLife):
    """An array in super-chunk files, beside a second handle that reads."""

    layout: dict[str, Any]
    fill: int

    @initialize(
        shape=shapes,
        dtype=st.sampled_from(["<i4", ">i2", "u1", "<f4"]),
        fill=st.sampled_from([0, 7]),
        order=st.sampled_from("CF"),
        capacity=st.integers(1, 5),
        spare=st.sampled_from([0, 0.1, 1]),
        draws=st.data(),
    )
    def create(
        self,
        shape: tuple[int, ...],
        dtype: str,
        fill: int,
        order: str,
        capacity: int,
        spare: float,
        draws: st.DataObject,
    ) -> None:
        chunks = tuple(draws.draw(st.integers(1, 4)) for _ in shape)
        self.fill, self.attrs = fill, {}
        self.layout = {
            "chunks": chunks,
            "order": order,
            "superchunksize": capacity,
            "spare": spare,
        }
        self.data = np.full(shape, fill, dtype)
        self.array = ingot.create(
            self.place, shape=shape, dtype=dtype, fill=fill, format="blsk", **self.layout
        )
        found = ingot.open(self.place)
        assert isinstance(found, ingot.Array)
        self.reader = found

    @rule(length=short, draws=st.data(), start=st.integers(1, 60))
    def append(self, length: int, draws: st.DataObject, start: int) -> None:
        axis = draws.draw(st.integers(0, self.data.ndim - 1))
        shape = list(self.data.shape)
        shape[axis] = length
        more = items(self.data.dtype, tuple(shape), start)
        self.array.append(more, axis)
        self.data = np.concatenate([self.data, more], axis).astype(self.data.dtype)

    @rule(draws=st.data())
    def resize(self, draws: st.DataObject) -> None:
        shape = tuple(draws.draw(short) for _ in self.data.shape)
        resized = np.full(shape, self.fill, self.data.dtype)
        kept = tuple(slice(min(a, b)) for a, b in zip(shape, self.data.shape, strict=True))
        resized[kept] = self.data[kept]
        self.data = resized
        self.array.resize(shape)

    @rule(start=st.integers(1, 60))
    def transact(self, start: int) -> None:
        with self.array.transaction():
            self.array[...] = items(self.data.dtype, self.data.shape, start)
            self.array[:1] = self.fill
        self.data = items(self.data.dtype, self.data.shape, start).copy()
        self.data[:1] = self.fill

    @rule()
    def compact(self) -> None:
        self.array.compact()

    @invariant()
    def others_see_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        assert np.array_equal(self.reader[...], self.data)
        if isinstance(self.place, Path):
            assert np.array_equal(read(self.place), self.data)
        capacity = self.layout["superchunksize"]
        counts = [-(-n // c) for n, c in zip(self.data.shape, self.layout["chunks"], strict=True)]
        names = {
            f"data/__{1 + number}__.bin" for number in range(-(-int(np.prod(counts)) // capacity))
        }
        assert {key for key in content(self.place) if key.startswith("data/")} <= names


class BlskTableLife(Life):
    """A table in super-chunk files, beside a second handle that reads."""

    let_bcolz = None

    @initialize(
        types=st.lists(st.sampled_from(OLD + NEW), min_size=1, max_size=3),
        rows=st.integers(0, 20),
        chunks=st.integers(1, 6),
        capacity=st.integers(1, 4),
        spare=st.sampled_from([0, 0.1, 1]),
    )
    def create(self, types: list[str], rows: int, chunks: int, capacity: int, spare: float) -> None:
        named = zip(NAMES, types, strict=False)
        self.data = {name: values(dtype, rows, 3) for name, dtype in named}
        self.chunks = chunks
        self.table = ingot.table(
            self.data,
            self.place,
            format="blsk",
            chunks=chunks,
            superchunksize=capacity,
            spare=spare,
        )
        found = ingot.open(self.place)
        assert isinstance(found, ingot.Table)
        self.reader = found

    @rule()
    def compact(self) -> None:
        self.table.compact()

    @invariant()
    def others_see_the_same(self) -> None:
        if not hasattr(self, "data"):
            return
        expected = self.data if self.before is None else self.before
        assert self.reader.names == tuple(expected)
        seen = self.reader.read()
        stored = read(self.place) if isinstance(self.place, Path) else seen
        for name, column in expected.items():
            np.testing.assert_array_equal(seen[name], column, strict=True)
            np.testing.assert_array_equal(stored[name], column, strict=True)


PLACES = [
    pytest.param("local", "native", marks=needs_native),
    ("local", "python"),
    ("memory", "python"),
]


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have a short log begun by the first commit that can go into one, and return their names."""
    begun: list[str] = []

    def begin(name: str, sectors: int) -> bytes:
        begun.append(name)
        return log.begin(name, sectors)

    monkeypatch.setattr(store, "COMMITS_BEFORE_LOG", 0)
    monkeypatch.setattr(log, "LOG_SECTORS", 8)
    monkeypatch.setattr(commit, "begin_log", begin)
    return begun


@pytest.mark.parametrize(("place_name", "kernel_name"), PLACES[:2])
@pytest.mark.parametrize("life", [BlskLife, BlskTableLife])
def test_nothing_changes_while_a_log_is_open(
    life: type[BlskLife | BlskTableLife], place_name: str, kernel_name: str, logs: list[str]
) -> None:
    machine = type("Life", (life,), {"place_name": place_name, "kernel_name": kernel_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=12, deadline=None)
    )
    assert logs


@pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)
def test_an_array_changes_as_numpys_does(place_name: str, kernel_name: str) -> None:
    machine = type("Life", (BlskLife,), {"place_name": place_name, "kernel_name": kernel_name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=12, deadline=None)
    )


@pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)
def test_a_table_changes_as_a_mapping_of_arrays_does(place_name: str, kernel_name: str) -> None:
    names = {"place_name": place_name, "kernel_name": kernel_name}
    machine = type("TableLife", (BlskTableLife,), names)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=12, stateful_step_count=12, deadline=None)
    )

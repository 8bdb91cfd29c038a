"""Flat arrays against NumPy: any key, shape, type, order and cut, on both kernels."""

import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.codecs.checksums import DIGEST_BYTES
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import SelectionError, UnsupportedError
from ingot.formats.registry import register, unregister
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import MemoryStore
from tests.contracts.toy.flat import ENTRY
from tests.kernels import needs_native
from tests.property.array_strategies import FIXED, Shape, items, same
from tests.property.test_array import assert_assigns, assert_orthogonal, somewhere
from tests.property.test_selection import (
    cases,
    numbered,
    orthogonal,
    orthogonal_cases,
    values,
)

many = settings(max_examples=100, deadline=None)
few = settings(max_examples=40, deadline=None)

PLACES = [
    pytest.param("local", "native", marks=needs_native),
    pytest.param("memory", "native", marks=needs_native),
    ("memory", "python"),
]
everywhere = pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    """Register the format of flat arrays for the tests of this module."""
    register(ENTRY)
    yield
    unregister("toyflat")


@st.composite
def layouts(draw: st.DrawFn, itemsize: int) -> dict[str, Any]:
    """Settings that change how a flat array is cut and coded."""
    return {
        "format": "toyflat",
        "order": draw(st.sampled_from("CF")),
        # Many that cut items, and some that do not.
        "chunk_bytes": draw(st.integers(3, 60) | st.integers(1, 9).map(lambda n: n * itemsize)),
        "checksum": draw(st.sampled_from(list(DIGEST_BYTES))),
    }


def joined(parts: list[Any], axis: int) -> Any:
    """Return arrays behind each other; NumPy alone would change the byte order."""
    return np.concatenate(parts, axis, dtype=parts[0].dtype)


@everywhere
@many
@given(case=cases(), dtype=st.sampled_from(FIXED), draws=st.data())
def test_any_key_reads_as_numpy(
    place_name: str, kernel_name: str, case: tuple[Shape, Any], dtype: Any, draws: st.DataObject
) -> None:
    shape, key = case
    data = items(dtype, shape)
    with somewhere(place_name, kernel_name) as place:
        ingot.array(data, place, **draws.draw(layouts(data.itemsize)))
        array = ingot.open(place)
        assert same(array[...], data)
        try:
            expected = data[key]
        except (IndexError, OverflowError):
            with pytest.raises(SelectionError):
                array[key]
            return
        assert same(array[key], expected)
        told = array.explain(key)
        count = int(np.size(expected)) if expected.shape else 1
        assert (told.shape, told.nbytes) == (np.shape(expected), count * data.itemsize)
        assert sum(cost.items for cost in told.costs) >= min(1, count)
        assert told.kernel == kernel_name
        if isinstance(expected, np.ndarray):
            for out in (np.zeros_like(expected), np.zeros_like(expected, order="F")):
                array.read(key, out=out)
                assert same(out, expected)


@everywhere
@many
@given(case=cases() | cases(kinds="aaaiism"), draws=st.data())
def test_any_key_assigns_as_numpy(
    place_name: str, kernel_name: str, case: tuple[Shape, Any], draws: st.DataObject
) -> None:
    shape, key = case
    expected = items("<i8", shape)
    try:
        value = draws.draw(values(np.shape(expected[key])))
    except (IndexError, OverflowError):
        return
    with somewhere(place_name, kernel_name) as place:
        assert_assigns(place, expected, key, value, draws.draw(layouts(8)))


@everywhere
@few
@given(case=orthogonal_cases(), dtype=st.sampled_from(FIXED), draws=st.data())
def test_orthogonal_keys(
    place_name: str, kernel_name: str, case: tuple[Shape, Any], dtype: Any, draws: st.DataObject
) -> None:
    shape, key = case
    data = items(dtype, shape)
    try:
        places = orthogonal(numbered(shape), key)
    except IndexError:
        return
    with somewhere(place_name, kernel_name) as place:
        assert_orthogonal(place, data, key, places, draws.draw(layouts(data.itemsize)))


@everywhere
@few
@given(
    shape=st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(FIXED),
    draws=st.data(),
)
def test_lengths_change_along_the_slowest_axis(
    place_name: str, kernel_name: str, shape: Shape, dtype: Any, draws: st.DataObject
) -> None:
    expected = items(dtype, shape)
    with somewhere(place_name, kernel_name) as place:
        layout = draws.draw(layouts(expected.itemsize))
        array = ingot.array(expected, place, **layout)
        axis = len(shape) - 1 if layout["order"] == "F" else 0
        for step in draws.draw(st.lists(st.integers(-4, 7), min_size=1, max_size=5)):
            length = max(0, array.shape[axis] + step)
            longer = (*shape[:axis], max(step, 0), *shape[axis + 1 :])
            if draws.draw(st.booleans()):
                more = items(dtype, longer, start=90)
                array.append(more, axis=axis)
                expected = joined([expected, more], axis)
            else:
                array.resize((*shape[:axis], length, *shape[axis + 1 :]))
                added = np.zeros(longer, expected.dtype)
                cut = (slice(None),) * axis + (slice(length),)
                expected = joined([expected, added], axis)[cut]
            assert same(array[...], expected)
        assert same(ingot.open(place)[...], expected)
        assert array.sum().tobytes() == expected.sum().tobytes() if dtype == "<i4" else True
        copy = np.zeros(expected.shape, expected.dtype)
        for key, block in array.blocks(nbytes=draws.draw(st.integers(1, 100))):
            copy[key] = block
        assert same(copy, expected)


def test_other_axes_keep_their_length() -> None:
    for order, axis in (("C", 1), ("F", 0)):
        array = ingot.array(np.zeros((3, 4)), format="toyflat", order=order)
        with pytest.raises(UnsupportedError, match=f"only axis {1 - axis} can change"):
            array.append(np.zeros((3, 4)), axis=axis)
        with pytest.raises(UnsupportedError, match=f"only axis {1 - axis} can change"):
            array.resize((5, 5))
        array.resize((0, 4))
        array.resize((5, 5))
        assert array[...].tolist() == np.zeros((5, 5)).tolist()


def test_a_few_items_change_a_few_chunks() -> None:
    """Images reach the format by the numbers of chunks, and only those that change."""
    store = MemoryStore()
    data = np.arange(100, dtype="<i4")
    made = ingot.array(data, store, format="toyflat", chunk_bytes=30)
    engine = made._handle.value
    assert isinstance(engine, Engine)
    staged: list[list[int]] = []

    class Recording(type(engine.chunks)):  # type: ignore[misc]
        def stage(self, encoded: Any) -> Any:
            staged.append([number for (number,) in encoded])
            return super().stage(encoded)

    chunks = Recording(store, engine.chunks.schema, engine.chunks.path, None)
    # Items 7 and 22 are cut by the ends of chunks 0 and 2: 28 to 32 and 88 to 92 bytes.
    for key in (7, slice(8, 14), [22, 50], slice(0, 0)):
        engine_of(chunks, Options()).assign(parse(key, data.shape), 5)
    assert staged == [[0, 1], [1], [2, 3, 6]]


def test_a_full_read_of_order_f_needs_no_second_copy() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = np.arange(24.0).reshape(4, 6)
        ingot.array(data, f"{folder}/a", format="toyflat", order="F").close()
        found = ingot.open(f"{folder}/a")[...]
        assert found.flags.f_contiguous
        assert same(found, data)

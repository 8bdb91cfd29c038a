"""Arrays against NumPy: any key, any shape, any type, any way to store it, on both kernels."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.errors import SelectionError
from ingot.stores import MemoryStore
from tests.kernels import needs_native
from tests.property.array_strategies import FIXED, Shape, items, layouts, same
from tests.property.test_selection import (
    cases,
    error_of_numpy,
    numbered,
    orthogonal,
    orthogonal_cases,
    values,
)
from tests.storage import Place, use_kernel

many = settings(max_examples=150, deadline=None)

# Every other place is reached by fewer examples: it differs in the store alone.
PLACES = [
    pytest.param("local", "native", marks=needs_native),
    ("local", "python"),
    ("memory", "python"),
]
everywhere = pytest.mark.parametrize(("place_name", "kernel_name"), PLACES)


@contextmanager
def somewhere(place_name: str, kernel_name: str) -> Iterator[Place]:
    """A new place, with one kernel at work as long as it is used."""
    with ExitStack() as stack:
        use_kernel(kernel_name, stack.enter_context(pytest.MonkeyPatch.context()))
        if place_name == "memory":
            yield MemoryStore()
        else:
            yield f"{stack.enter_context(tempfile.TemporaryDirectory())}/array"


@everywhere
@many
@given(case=cases(), dtype=st.sampled_from(FIXED), draws=st.data())
def test_any_key_reads_as_numpy(
    place_name: str, kernel_name: str, case: tuple[Shape, Any], dtype: Any, draws: st.DataObject
) -> None:
    shape, key = case
    data = items(dtype, shape)
    with somewhere(place_name, kernel_name) as place:
        ingot.array(data, place, **draws.draw(layouts(shape)))
        array = ingot.open(place)
        assert same(array[...], data)
        try:
            expected = data[key]
        except (IndexError, OverflowError):
            with pytest.raises(SelectionError):
                array[key]
            return
        assert same(array[key], expected)
        out = np.zeros_like(expected)
        if isinstance(expected, np.ndarray):
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
        assert_assigns(place, expected, key, value, draws.draw(layouts(shape)))


def assert_assigns(
    place: Place, expected: NDArray[Any], key: Any, value: Any, layout: dict[str, Any]
) -> None:
    """Assign to an array and to NumPy's: both hold the same then, or refuse the value."""
    array = ingot.array(expected, place, **layout)
    if error_of_numpy(expected, key, value) is not None:
        with pytest.raises(ValueError):
            array[key] = value
    else:
        array[key] = value
    assert same(array[...], expected)
    assert same(ingot.open(place)[...], expected)


@everywhere
@settings(max_examples=50, deadline=None)
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
        assert_orthogonal(place, data, key, places, draws.draw(layouts(shape)))


def assert_orthogonal(
    place: Place, data: NDArray[Any], key: Any, places: NDArray[Any], layout: dict[str, Any]
) -> None:
    """Read and assign by an orthogonal key; `places` are its items of the flattened data."""
    array = ingot.array(data, place, **layout)
    assert same(array.oindex[key], data.reshape(-1)[places])
    value = items(data.dtype, (1,), start=50)[0]
    array.oindex[key] = value
    data.reshape(-1)[places] = value
    assert same(array[...], data)


@everywhere
@settings(max_examples=50, deadline=None)
@given(
    shape=st.lists(st.integers(0, 6), min_size=1, max_size=3).map(tuple),
    fill=st.sampled_from([0, 1.5, np.nan, -0.0]),
    draws=st.data(),
)
def test_fill_values_hold_where_nothing_was_written(
    place_name: str, kernel_name: str, shape: Shape, fill: float, draws: st.DataObject
) -> None:
    expected = np.full(shape, fill, "<f8")
    box = tuple(slice(*sorted(draws.draw(st.tuples(*[st.integers(0, n)] * 2)))) for n in shape)
    with somewhere(place_name, kernel_name) as place:
        settings = draws.draw(layouts(shape))
        array = ingot.create(place, shape=shape, dtype="<f8", fill=fill, **settings)
        array[box] = 7
        expected[box] = 7
        assert same(ingot.open(place)[...], expected)
        array[...] = fill
        assert array.stored_bytes == 0

"""Windows of whole chunks, and arrays moved through them whatever their chunks."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.codecs.codec import CodecChain
from ingot.engine.payload import engine_of
from ingot.engine.ragged import RaggedEngine
from ingot.engine.rechunk import window_shape
from ingot.engine.transfer import Tally, compare, compare_items, transferred, windows
from ingot.errors import CorruptionError
from ingot.schema import ArraySchema, Flat


@st.composite
def cuts(draw):
    """Draw the shape of an array, and two shapes of its chunks."""
    shape = draw(st.lists(st.integers(1, 13), min_size=1, max_size=3))
    first, second = ([draw(st.integers(1, n + 2)) for n in shape] for _ in range(2))
    return tuple(shape), tuple(first), tuple(second)


def cut(schema, unit, most):
    return windows(schema, window_shape(schema, unit, schema.grid, most, ascending=True))


@given(cuts(), st.integers(1, 400))
def test_windows_cover_every_item_once_in_the_order_of_chunks(drawn, most):
    shape, unit, _ = drawn
    schema = ArraySchema(shape, np.dtype("u1"), unit, CodecChain(), 0)
    seen = np.zeros(shape, int)
    chunk = math.prod(map(min, unit, shape))
    last = -1
    for key in cut(schema, unit, most):
        seen[key] += 1
        assert seen[key].size <= max(most, chunk)
        assert all(each.start % n == 0 for each, n in zip(key, unit, strict=True))
        number = schema.grid.linear(tuple(e.start // n for e, n in zip(key, unit, strict=True)))
        assert number > last
        last = number
    assert (seen == 1).all()


@given(cuts(), st.integers(1, 400), st.sampled_from("CF"))
def test_windows_of_a_flat_array_follow_its_items(drawn, most, order):
    shape, _, _ = drawn
    schema = ArraySchema(
        shape, np.dtype("u1"), (), CodecChain(), 0, order, flat=Flat(max(1, most // 3))
    )
    places = np.arange(math.prod(shape)).reshape(shape, order=order)
    found = [places[key].ravel(order=order) for key in cut(schema, schema.chunks, most)]
    assert np.array_equal(np.concatenate(found), np.arange(places.size))


@settings(max_examples=40)
@given(
    cuts(),
    st.integers(1, 400),
    st.sampled_from(["zarr3", "zarr2", "blsk", "bloscpack"]),
    st.sampled_from("CF"),
)
def test_any_chunks_become_any_others(drawn, most, format, order):
    shape, first, second = drawn
    values = np.arange(math.prod(shape), dtype="<i2").reshape(shape)
    source = ingot.array(values, chunks=first)
    options = ingot.Options(limits=ingot.Limits(window_bytes=most))
    chunks = "auto" if format == "bloscpack" else second
    made = ingot.convert(
        source, format=format, chunks=chunks, order=order, options=options, verify=True
    )
    assert np.array_equal(made[...], values)


def engine(values, **layout):
    array = ingot.array(values, **layout)
    return engine_of(array._handle.value.chunks, ingot.Options())


def test_compare_names_the_chunk():
    one = np.zeros((40, 40))
    two = one.copy()
    two[25, 3] = -0.0
    compare(engine(one), engine(one, chunks=(10, 10)), lambda count: None)
    target = engine(two, chunks=(10, 10))
    target.options = ingot.Options(limits=ingot.Limits(window_bytes=800))
    with pytest.raises(CorruptionError, match=r"chunk \(2, 0\)"):
        compare(engine(one), target, lambda count: None)


def test_compare_items_names_the_items():
    one, two = (
        RaggedEngine(ingot.ragged(items)._handle.value.packs, ingot.Options())
        for items in (["a", None], ["a", ""])
    )
    compare_items(one, one, lambda count: None)
    with pytest.raises(CorruptionError, match="items 0 to 2"):
        compare_items(one, two, lambda count: None)


def test_nothing_is_moved_of_an_array_without_items():
    empty = engine(np.zeros((0, 3)))
    assert list(transferred(empty, empty, Tally(print))) == []

"""Selections of flat arrays as runs of units, and runs as parts of chunks."""

from typing import Any

import numpy as np
import pytest

from ingot.codecs.codec import CodecChain
from ingot.engine import flat
from ingot.engine.flat import PayloadMap, RunAxis, Runs
from ingot.errors import UnsupportedError
from ingot.schema import ArraySchema, Flat
from ingot.selection import parse, parse_orthogonal
from ingot.stores import MemoryStore
from tests.contracts.toy.flat import FlatToyMap


def schema_of(shape: tuple[int, ...], order: str = "C", chunk_bytes: int = 8) -> ArraySchema:
    dtype, chain = np.dtype("<i4"), CodecChain()
    return ArraySchema(shape, dtype, (), chain, np.int32(7), order=order, flat=Flat(chunk_bytes))


@pytest.mark.parametrize(
    ("key", "order", "expected"),
    [
        (..., "C", (0, 24)),
        (..., "F", (0, 24)),
        (1, "C", (12, 12)),
        (slice(1, 2), "C", (12, 12)),
        ((..., 1), "F", (6, 6)),
        ((1, 2), "C", (20, 4)),
        ((1, 2, 3), "F", (23, 1)),
        ((1, slice(0, 2)), "C", (12, 8)),
        ((1, 1, slice(1, 3)), "C", (17, 2)),
    ],
)
def test_what_lies_together_is_one_run(key: Any, order: str, expected: tuple[int, int]) -> None:
    schema = schema_of((2, 3, 4), order)
    runs = flat.cut(parse(key, schema.shape), schema)
    assert runs.axes == ()
    assert (runs.start, runs.length) == expected
    assert runs.single == range(expected[0], sum(expected))


@pytest.mark.parametrize(
    ("key", "order", "count", "length"),
    [
        ((slice(None), 1), "C", 2, 4),
        ((..., slice(0, 2)), "C", 6, 2),
        ((..., slice(None, None, 2)), "C", 12, 1),
        (slice(None, None, -1), "C", 2, 12),
        ((0,), "F", 12, 1),
        (([1, 0],), "C", 2, 12),
        (([0, 1], slice(None), [1, 3]), "C", 6, 1),
        (([0, 1], [1, 2]), "C", 2, 4),
    ],
)
def test_runs_are_as_long_as_they_can_be(key: Any, order: str, count: int, length: int) -> None:
    schema = schema_of((2, 3, 4), order)
    runs = flat.cut(parse(key, schema.shape), schema)
    assert (runs.count, runs.length) == (count, length)


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 24, 30])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(
    "key",
    [
        (slice(None), 1),
        (..., slice(3, 0, -2)),
        ([1, 0], slice(1, 3)),
        ([1, 0, 1], slice(None), [3, 0, 3]),
        (slice(None), [2, 0], [0, 3]),
        ([1, 0], [2, 2], slice(None, None, 3)),
    ],
)
def test_parts_of_chunks_are_all_that_is_wanted(key: Any, order: str, chunk: int) -> None:
    schema = schema_of((2, 3, 4), order)
    # The payload holds its own places.
    numbers = np.arange(24).reshape((2, 3, 4), order=order)
    selection, repeats = flat.without_repeats(parse(key, schema.shape), schema.shape)
    runs = flat.cut(selection, schema)
    sources = [runs.source(number) for number in range(runs.count)]
    assert sources == sorted(set(sources))
    found = np.full(int(np.prod(selection.engine_shape)), -1)
    touched = list(runs.touched(chunk))
    for number in range(-(-24 // chunk)):
        begin = number * chunk
        parts = list(runs.parts(begin, min(begin + chunk, 24)))
        assert bool(parts) == (number in touched)
        for source, target in parts:
            found[target] = np.arange(begin, begin + chunk)[source]
    transposed = flat.is_transposed(selection, schema)
    shape = selection.engine_shape
    result = found.reshape(shape[::-1]).T if transposed else found.reshape(shape)
    for axis, places in repeats:
        result = result.take(places, axis)
    assert np.array_equal(parse(key, schema.shape).finish(result), numbers[key])


def test_items_are_cut_into_units() -> None:
    schema = schema_of((10,), chunk_bytes=6)
    runs = flat.cut(parse(slice(1, 3), (10,)), schema)
    assert (schema.payload.dtype, runs.single) == (np.dtype("u2"), range(2, 6))
    assert list(runs.touched(schema.payload.chunks[0])) == [0, 1]
    fill = np.array(7, "<i4")
    assert flat.repeated(fill, 1, 5, schema.payload.dtype).tolist() == [0, 7, 0, 7]


def test_long_runs_are_slices() -> None:
    runs = Runs((RunAxis(range(0, 3000, 1000), range(0, 1500, 500)),), start=100, length=500)
    assert list(runs.parts(0, 1300)) == [
        (slice(100, 600), slice(0, 500)),
        (slice(1100, 1300), slice(500, 700)),
    ]
    assert list(runs.touched(250)) == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_repeats_keep_the_last_value() -> None:
    selection, repeats = flat.without_repeats(parse_orthogonal(([3, 1, 3], [0, 0]), (5, 2)), (5, 2))
    assert selection.engine_shape == (2, 1)
    assert [(axis, flat.last_of(places).tolist()) for axis, places in repeats] == [
        (0, [1, 2]),
        (1, [1]),
    ]


@pytest.mark.parametrize(("order", "slowest"), [("C", (9, 3, 4)), ("F", (2, 3, 9))])
def test_only_the_slowest_axis_changes(order: str, slowest: tuple[int, ...]) -> None:
    schema = schema_of((2, 3, 4), order)
    flat.check_shape(schema, slowest)
    flat.check_shape(schema, (2, 0, 9))
    for shape in ((2, 9, 4), slowest[::-1]):
        with pytest.raises(UnsupportedError, match=f"only axis {slowest.index(9)} can change"):
            flat.check_shape(schema, shape)


def test_the_payload_has_no_shape_and_no_attributes() -> None:
    payload = PayloadMap.of(FlatToyMap(MemoryStore(), schema_of((3,)), "a", ()))
    with pytest.raises(UnsupportedError):
        payload.resized((4,))
    with pytest.raises(UnsupportedError):
        payload.described({})

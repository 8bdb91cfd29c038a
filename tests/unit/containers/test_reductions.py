"""Reductions of arrays against NumPy's own, whatever the chunks."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.containers import reductions
from ingot.containers.reductions import Source
from ingot.errors import AxisError
from ingot.grid import ChunkGrid
from tests.storage import Place

METHODS = ["sum", "mean", "min", "max", "any", "all"]
AXES: list[Any] = [None, 0, -1, 1, (0, 2), (2, 0), (0, 1, 2), ()]
DTYPES = ["?", "i1", "u1", ">i2", "i4", "i8", "u8", "f2", "f4", ">f4", "f8", "c8", "c16", "m8[s]"]

# The most by which sums may differ: NumPy itself rounds in the type of the items, we round later.
TOLERANCES = {"e": 2e-3, "f": 1e-6, "F": 1e-6, "d": 1e-14, "D": 1e-14}


def sample(dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    random = np.random.default_rng(7)
    numbers = random.integers(-100, 100, shape)
    if np.dtype(dtype).kind in "fc":
        return (numbers * random.random(shape)).astype(dtype)
    return numbers.astype(dtype)


def source(data: NDArray[Any], chunk: tuple[int, ...]) -> Source:
    """Blocks of single chunks: joining them is for test_blocks.py."""
    return Source(ChunkGrid(data.shape, chunk, padded=True), data.dtype, data.__getitem__)


def call(which: str, where: Source, axis: Any, **settings: Any) -> Any:
    if which in ("sum", "mean"):
        return {"sum": reductions.total, "mean": reductions.mean}[which](where, axis, **settings)
    return reductions.reduce(where, getattr(reductions, which.upper()), axis, **settings)


def assert_close(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    assert np.shape(found) == np.shape(expected)
    tolerance = TOLERANCES.get(expected.dtype.char, 0)
    if tolerance:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 100)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.fixture(params=[1, 2**24], ids=["chunks", "whole"])
def _block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Walk in single chunks, and in one block of all."""
    whole = reductions.block_shape
    monkeypatch.setattr(
        reductions,
        "block_shape",
        lambda grid, itemsize, order: whole(grid, itemsize, most=request.param, order=order),
    )


@pytest.mark.usefixtures("_block_bytes")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_and_types_are_those_of_numpy(method: str, dtype: str) -> None:
    data = sample(dtype, (5, 4, 7))
    for axis in AXES:
        expected = getattr(data, method)(axis=axis)
        assert_close(call(method, source(data, (2, 3, 4)), axis), expected)
        kept = getattr(data, method)(axis=axis, keepdims=True)
        assert_close(call(method, source(data, (2, 3, 4)), axis, keepdims=True), kept)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 3), (2, 0, 3)])
def test_small_and_empty_arrays(method: str, shape: tuple[int, ...]) -> None:
    data = sample("f8", shape)
    for axis in [None, *range(len(shape))]:
        found, expected = [], []
        for reduce, results in (
            (lambda: call(method, source(data, (2,) * len(shape)), axis), found),  # noqa: B023
            (lambda: getattr(data, method)(axis=axis), expected),  # noqa: B023
        ):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    results.append(reduce())
                except ValueError as error:
                    results.append(str(error))
            results.append(sorted(str(each.message) for each in caught))
        assert str(found) == str(expected)


@pytest.mark.parametrize(
    ("dtype", "items"),
    [
        ("f8", [1.0, np.nan, 3.0]),
        ("f4", [np.inf, -np.inf, 1.0]),
        ("f8", [np.inf, 5.0, 1.0]),
        ("M8[D]", [5, "NaT", 7]),
        ("m8[D]", [5, "NaT", 7]),
        ("M8[D]", [5, 6, 7]),
        ("i8", [2**63 - 1, 1, 5]),
        ("u8", [2**64 - 1, 1, 5]),
        ("f4", [3e38, 3e38, 1]),
        ("c8", [1 + 1j, np.nan, 2]),
    ],
)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_items_with_rules_of_their_own(method: str, dtype: str, items: list[Any]) -> None:
    data = np.array([np.dtype(dtype).type(item, *_unit(dtype)) for item in items], dtype)
    try:
        expected = getattr(data, method)()
    except TypeError:
        with pytest.raises(TypeError):
            call(method, source(data, (1,)), None)
        return
    found = call(method, source(data, (1,)), None)
    if method == "mean" and dtype == "f4" and items[0] == 3e38:
        assert found == pytest.approx(2e38)  # NumPy's own sum is infinite; ours is not.
    else:
        np.testing.assert_array_equal(found, expected, strict=True)


def _unit(dtype: str) -> list[str]:
    return ["D"] if dtype[0] in "mM" else []


def test_long_sums_of_narrow_floats_stay_accurate() -> None:
    data = np.full(2**18, 0.1, "f4")
    exact = math.fsum(data.tolist())
    found = reductions.total(source(data, (3,)), None)
    assert found == np.float32(exact)
    wide = np.random.default_rng(1).normal(size=2**16)
    added = reductions.total(source(wide, (5,)), None)
    assert abs(added - math.fsum(wide)) <= 1e-15 * np.abs(wide).sum()


@pytest.mark.parametrize("dtype", ["i2", "f8", "f4", "c16"])
def test_the_type_of_a_sum_can_be_chosen(dtype: str) -> None:
    data = sample("i1", (6, 5))
    for method in ("sum", "mean"):
        expected = getattr(data, method)(axis=0, dtype=dtype)
        found = call(method, source(data, (4, 2)), 0, dtype=dtype)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_results_go_where_they_are_wanted() -> None:
    data = sample("i4", (6, 5))
    for method in METHODS:
        expected = getattr(data, method)(axis=0)
        out = np.empty_like(expected)
        assert call(method, source(data, (4, 2)), 0, out=out) is out
        np.testing.assert_array_equal(out, expected)
    with pytest.raises(ValueError, match=r"out has shape \(6,\), the result has \(5,\)"):
        call("sum", source(data, (4, 2)), 0, out=np.empty(6))
    with pytest.raises(TypeError, match="same_kind"):
        call("mean", source(data, (4, 2)), 0, out=np.empty(5, int))


def test_axes_that_are_none() -> None:
    data = sample("i4", (6, 5))
    for axis in (2, -3, (0, 0), (0, 5)):
        with pytest.raises(ValueError):
            data.sum(axis=axis)
        with pytest.raises(ValueError):
            call("sum", source(data, (4, 2)), axis)


@pytest.mark.parametrize(("method", "value"), [("any", True), ("all", False)])
@pytest.mark.usefixtures("_block_bytes")
def test_what_is_decided_is_read_no_further(method: str, value: bool) -> None:
    data = np.full(100, not value)
    data[10] = value
    read: list[Any] = []

    def watched(key: Any) -> NDArray[Any]:
        read.append(key)
        return data[key]

    where = Source(ChunkGrid((100,), (10,), padded=True), data.dtype, watched)
    assert call(method, where, None) == value
    assert sum(key[0].stop - key[0].start for key in read) in (20, 100)
    assert len(read) <= 2


FUNCTIONS: list[Callable[..., Any]] = [np.sum, np.mean, np.min, np.max, np.any, np.all]


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["i2", "f4", "?"])
def test_numpy_functions_reduce_block_by_block(
    place: Place, function: Callable[..., Any], dtype: str
) -> None:
    data = sample(dtype, (9, 5))
    array = ingot.array(data, place, chunks=(4, 3))
    assert_close(function(array), function(data))
    assert_close(function(array, axis=1), function(data, axis=1))
    assert_close(function(array, axis=0, keepdims=True), function(data, axis=0, keepdims=True))


def test_text_and_objects_are_reduced_as_a_whole() -> None:
    text = ingot.array(["b", "a", "c"], dtype=str, chunks=1)
    assert (text.min(), text.max(), text.any()) == ("a", "c", True)
    numbers = ingot.create(shape=3, dtype=object, codec="json2", chunks=1)
    numbers[...] = [1, 2.5, 3]
    assert (numbers.sum(), numbers.max(), numbers.mean()) == (6.5, 3, pytest.approx(6.5 / 3))


@pytest.mark.parametrize("method", METHODS)
def test_an_array_without_axes_gives_one_item(method: str) -> None:
    data = np.array(7, "i4")
    array = ingot.array(data)
    for keepdims in (False, True):
        found, expected = (getattr(each, method)(keepdims=keepdims) for each in (array, data))
        assert found == expected
        assert type(found) is type(expected)


POSITIONED = {
    "integers": np.array([[3, 1, 2], [1, 3, 0], [0, 3, 3]]),
    "floats": np.array([[3, 1, np.nan], [np.nan, 3, 0], [0, 3, 3.5]]),
    "complex": np.array([[3 + 1j, 1, 2j], [1, 3 + 2j, complex(1, np.nan)], [np.nan, 0, 0]]),
    "booleans": np.array([[False, True], [True, False]]),
    "times": np.array([["2020-01-02", "NaT"], ["NaT", "2019-01-01"]], "M8[D]"),
    "text": np.array([["b", "a"], ["c", "a"]]),
    "big": np.random.default_rng(5).integers(0, 50, (37, 23, 5)),
    "one": np.array(5),
    "line": np.array([2, 9, 9, 1, 1]),
}


@pytest.mark.parametrize("method", ["argmin", "argmax"])
@pytest.mark.parametrize("name", POSITIONED)
@pytest.mark.parametrize("keepdims", [False, True])
def test_positions_are_those_of_numpy(
    method: str, name: str, keepdims: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = POSITIONED[name]
    # Blocks of single chunks, so that equal items lie in different ones.
    monkeypatch.setattr(reductions, "block_shape", lambda grid, *_, **__: grid.chunk)
    array = ingot.array(data, chunks=(2,) * data.ndim)
    for axis in (None, *range(-data.ndim, data.ndim)):
        due = getattr(data, method)(axis=axis, keepdims=keepdims)
        found = getattr(array, method)(axis=axis, keepdims=keepdims)
        np.testing.assert_array_equal(found, due)
        assert (type(found), found.dtype) == (type(due), due.dtype)
        assert np.array_equal(getattr(np, method)(array, axis=axis), getattr(data, method)(axis))


def test_positions_in_an_array_of_the_callers() -> None:
    array, out = ingot.array([[1, 2], [4, 3]]), np.zeros(2, np.intp)
    assert array.argmax(axis=1, out=out) is out
    assert out.tolist() == [1, 0]
    with pytest.raises(AxisError):
        array.argmax(axis=2)


def test_positions_among_no_items() -> None:
    array = ingot.create(shape=(0, 3), dtype="i4")
    with pytest.raises(ValueError, match="empty sequence"):
        array.argmin()
    assert array.argmin(axis=1).shape == (0,)

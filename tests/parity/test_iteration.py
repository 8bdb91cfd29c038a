"""Iterators over blocks of arrays: the native ones against NumPy, and their enemies."""

import gc
import sys
import threading
import weakref
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingot import native
from ingot.compat import bcolz
from tests.kernels import KERNELS, needs_native
from tests.storage import use_kernel

NUMBERS = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]


@pytest.fixture
def iterators(monkeypatch: pytest.MonkeyPatch) -> native.Iterators:
    use_kernel("native", monkeypatch)
    found = native.iterators()
    assert found is not None
    return found


def extremes(dtype: str) -> Any:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.array([True, False, True])
    if kind.kind == "f":
        limits = np.finfo(kind)
        return np.array([limits.min, -0.0, np.nan, np.inf, limits.tiny, 1 / 3], kind)
    limit = np.iinfo(kind)
    return np.array([limit.min, 0, 1, 100, limit.max], kind)


@needs_native
@pytest.mark.parametrize("dtype", NUMBERS)
def test_items_are_those_of_tolist(dtype: str, iterators: native.Iterators) -> None:
    blocks = [extremes(dtype), np.empty(0, dtype), extremes(dtype)[::-1].copy()]
    right = [item for block in blocks for item in block.tolist()]
    found = list(iterators.iterate_items(blocks))
    assert list(map(repr, found)) == list(map(repr, right))
    assert list(map(type, found)) == list(map(type, right))


@needs_native
@given(blocks=st.lists(st.lists(st.booleans(), max_size=300), max_size=5))
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_numbers_of_true_items_are_those_of_flatnonzero(
    iterators: native.Iterators, blocks: list[list[bool]]
) -> None:
    whole = [item for block in blocks for item in block]
    found = list(iterators.iterate_true(np.array(block, np.bool_) for block in blocks))
    assert found == np.flatnonzero(np.array(whole, np.bool_)).tolist()


@needs_native
@pytest.mark.parametrize("width", [1, 3, 16, 17, 40])
def test_rows_are_those_of_zip(width: int, iterators: native.Iterators) -> None:
    columns: list[Any] = [extremes("i8") + number for number in range(width)]
    columns[width // 2] = ["a", None, "b", (), "c"]
    right = list(zip(*(list(each) for each in columns), strict=True)) * 2
    assert list(iterators.iterate_rows([columns, columns])) == right
    row: Any = namedtuple("row", [f"f{number}" for number in range(width)])  # type: ignore[misc]
    found = list(iterators.iterate_rows([columns, columns], row))
    assert found == right
    assert {type(each) for each in found} == {row}
    assert found[0].f0 == columns[0][0]


@needs_native
@pytest.mark.parametrize(
    ("block", "error"),
    [
        (np.zeros((2, 2)), "along one axis"),
        (np.zeros(6)[::2], "contiguous"),
        (np.zeros(2, "c16"), "neither"),
        (np.zeros(2, ">i4"), "neither"),
        (np.zeros(2, "O"), "neither"),
        (np.zeros(2, "i4,f8"), "neither"),
        (np.zeros(2, "U3"), "neither"),
        (7, "bytes-like"),
    ],
)
def test_blocks_of_other_kinds_are_refused(
    block: Any, error: str, iterators: native.Iterators
) -> None:
    found = iterators.iterate_items(iter([np.array([1]), block, np.array([2])]))
    assert next(found) == 1
    with pytest.raises(TypeError, match=error):
        next(found)
    # As a generator that has raised, it is at its end.
    assert list(found) == []


@needs_native
def test_wrong_arguments_are_refused(iterators: native.Iterators) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        iterators.iterate_items(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="subclass"):
        iterators.iterate_rows([], dict)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="booleans"):
        list(iterators.iterate_true([np.array([1, 0])]))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="different lengths"):
        list(iterators.iterate_rows([[np.arange(3), np.arange(4)]]))
    with pytest.raises(TypeError):
        type(iterators.iterate_items([]))()


@needs_native
def test_an_error_of_the_blocks_passes(iterators: native.Iterators) -> None:
    def blocks() -> Iterator[Any]:
        yield np.arange(2)
        raise ZeroDivisionError("a block that cannot be read")

    found = iterators.iterate_items(blocks())
    assert [next(found), next(found)] == [0, 1]
    with pytest.raises(ZeroDivisionError):
        next(found)
    assert list(found) == []


@needs_native
def test_an_iterator_cannot_be_advanced_while_it_fetches_a_block(
    iterators: native.Iterators,
) -> None:
    raised = []

    def blocks() -> Iterator[Any]:
        yield np.arange(2)
        try:
            next(found)
        except ValueError as error:
            raised.append(str(error))
        yield np.arange(2, 4)

    found = iterators.iterate_items(blocks())
    assert list(found) == [0, 1, 2, 3]
    assert len(raised) == 1
    assert "already" in raised[0]


@needs_native
def test_a_list_that_becomes_shorter_is_noticed(iterators: native.Iterators) -> None:
    items = ["a", "b", "c"]
    found = iterators.iterate_rows([[items, np.arange(3)]])
    assert next(found) == ("a", 0)
    del items[1:]
    with pytest.raises(IndexError):
        next(found)


@needs_native
def test_references_are_given_back(iterators: native.Iterators) -> None:
    item = object()
    items = [item] * 10
    before = sys.getrefcount(item)
    row: Any = namedtuple("row", "a b")
    for _ in range(3):
        list(iterators.iterate_items([items, items]))
        list(iterators.iterate_rows([[items, items]], row))
        found = iterators.iterate_rows([[items, items]])
        next(found)
        del found
    assert sys.getrefcount(item) == before


@needs_native
def test_a_cycle_through_an_iterator_is_collected(iterators: native.Iterators) -> None:
    class Blocks:
        def __iter__(self) -> "Blocks":
            return self

        def __next__(self) -> Any:
            return np.arange(4)

    blocks: Any = Blocks()
    blocks.iterator = iterators.iterate_items(blocks)
    assert next(blocks.iterator) == 0
    gone = weakref.ref(blocks)
    del blocks
    gc.collect()
    assert gone() is None


@needs_native
def test_a_finalizer_may_advance_the_iterator_while_a_row_is_made(
    iterators: native.Iterators,
) -> None:
    taken: list[Any] = []

    class Advancing:
        def __init__(self) -> None:
            self.cycle = self

        def __del__(self) -> None:
            taken.extend([next(found, None)])

    count = 3000
    blocks = ([np.arange(at, at + 3), np.arange(3)] for at in range(0, count, 3))
    found = iterators.iterate_rows(blocks, namedtuple("row", "a b"))
    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        rows = []
        for number, row in enumerate(found):
            rows.append(row)
            if number % 7 == 0:
                Advancing()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    # No row is made twice, and none is lost.
    seen = sorted(row.a for row in [*rows, *taken] if row is not None)
    assert seen == list(range(count))
    assert len(taken) > 10


@needs_native
def test_threads_that_share_an_iterator_get_each_item_once(iterators: native.Iterators) -> None:
    lock = threading.Lock()
    blocks = (np.arange(at, at + 10) for at in range(0, 20_000, 10))
    found = iterators.iterate_items(blocks)
    seen: list[list[int]] = [[], []]

    def take(own: list[int]) -> None:
        while True:
            with lock:
                item = next(found, None)
            if item is None:
                return
            own.append(item)

    threads = [threading.Thread(target=take, args=(each,)) for each in seen]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(seen[0] + seen[1]) == list(range(20_000))


@pytest.mark.parametrize("kernel", KERNELS)
def test_iterators_of_carrays_have_what_carrays_have(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel, monkeypatch)
    array = bcolz.carray(np.arange(10))
    found: Any = array.iter(2, 8, 3)
    assert found.dtype == array.dtype
    assert len(array) == found.len
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name
    assert list(found) == [2, 5]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", [*NUMBERS, "c16", ">i4", "U3", "S2", "M8[s]", "i4,f8"])
def test_rows_of_tables_are_those_of_numpy(
    kernel: str, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel, monkeypatch)
    column = (
        np.arange(1003).astype("i8").astype(dtype) if dtype != "i4,f8" else np.zeros(1003, dtype)
    )
    wide = np.arange(2006).reshape(1003, 2)
    table = bcolz.ctable([np.arange(1003), column, wide], names=["a", "b", "c"], chunklen=100)
    for rows, chosen in (
        (table.iter(5, 900, 7), np.arange(5, 900, 7)),
        (table.iter(outcols=["nrow__", "b", "c"]), np.arange(1003)),
        (table.where("(a > 150) & (a % 3 == 0)"), np.arange(153, 1003, 3)),
        (table.iter(limit=20, skip=90, out_flavor=tuple), np.arange(90, 110)),
    ):
        found = list(rows)
        assert [row[0] for row in found] == chosen.tolist()
        assert [row[1] for row in found] == column[chosen].tolist()
        np.testing.assert_array_equal([row[2] for row in found], wide[chosen])
        assert {type(row[0]) for row in found} == {int}


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_that_wait_are_iterated_over(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(kernel, monkeypatch)
    array = bcolz.carray(np.arange(1000), chunklen=64)
    for value in range(1000, 1100):
        array.append(value)
    assert list(array) == list(range(1100))
    assert list(array.iter(990, 1010)) == list(range(990, 1010))
    mask = bcolz.carray(array[:] % 3 == 0, chunklen=64)
    mask.append(True)
    assert list(mask.wheretrue()) == [*range(0, 1100, 3), 1100]
    assert list(mask.wheretrue(limit=3, skip=2)) == [6, 9, 12]

"""Arrays in stores without files, whose chunks the store hands over to the kernel."""

from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.containers.array import Array
from ingot.engine.handed import AxisChunks, HandedLayout, fetch
from ingot.engine.run import Engine
from ingot.errors import CorruptionError
from ingot.options import Limits, Options
from ingot.selection import parse
from ingot.stores import Commit, Delete, Extent, MemoryStore, Put

VALUES = np.arange(40 * 30, dtype="<i4").reshape(40, 30)
SMALL = Options(limits=Limits(window_bytes=600))

needs_kernel = pytest.mark.skipif(
    native.choice().name != "native", reason="the twin decodes chunk by chunk"
)


class CountingStore(MemoryStore):
    """A store in memory that notes how many extents each read asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    def read(self, extents: Any) -> list[bytes | None]:
        self.reads.append(len(extents))
        return super().read(extents)


def engine(array: Array) -> Engine:
    return array._handle.value


@pytest.mark.parametrize("step", [1, 2, 3, 4, 7, -1, -5])
@pytest.mark.parametrize(("start", "count"), [(0, 1), (3, 5), (11, 9)])
def test_the_chunks_of_a_range_are_those_of_its_positions(
    step: int, start: int, count: int
) -> None:
    axis = range(start, start + count * step, step)
    if axis[-1] < 0:
        axis = axis[: start // -step + 1]
    touched = AxisChunks(axis, 4, 100)
    expected = sorted({position // 4 for position in axis})
    if abs(step) >= 4:
        expected = sorted(position // 4 for position in axis)
    assert touched.numbers(np.arange(len(touched))).tolist() == expected
    whole = [set(range(4 * n, 4 * n + 4)) <= set(axis) and abs(step) == 1 for n in expected]
    assert touched.whole(np.arange(len(touched))).tolist() == whole


def test_the_last_chunk_is_whole_without_what_lies_beyond_the_edge() -> None:
    assert AxisChunks(range(8, 10), 4, 10).whole(np.arange(1)).tolist() == [True]
    assert AxisChunks(range(8, 9), 4, 10).whole(np.arange(1)).tolist() == [False]


def test_index_arrays_touch_each_chunk_once() -> None:
    touched = AxisChunks(np.array([9, 1, 8, 1]), 4, 12)
    assert touched.numbers(np.arange(len(touched))).tolist() == [0, 2]
    assert not touched.whole(np.arange(2)).any()


@needs_kernel
@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_a_selection_is_one_batch_for_each_window(format: str) -> None:
    store = CountingStore()
    array = ingot.array(VALUES, store, chunks=(10, 10), format=format)
    assert isinstance(engine(array).layout(), HandedLayout)
    store.reads.clear()
    assert np.array_equal(engine(array).read(parse(..., array.shape)), VALUES)
    assert store.reads == [12]
    small = ingot.open(store, options=Options(limits=Limits(window_bytes=5 * 512)))
    store.reads.clear()
    assert np.array_equal(engine(small).read(parse(..., array.shape)), VALUES)
    assert store.reads == [5, 5, 2]


@pytest.mark.parametrize("options", [Options(), SMALL], ids=["default", "small windows"])
@pytest.mark.parametrize("layout", [{}, {"shards": (20, 10)}], ids=["chunks", "shards"])
@pytest.mark.parametrize(
    "key",
    [
        ...,
        (slice(3, 37), slice(5, 6)),
        (slice(None, None, -3), slice(28, 1, -9)),
        ([5, 39, 5, 0], slice(None)),
        (7, [1, 2, 29]),
        ([1, 2, 30], [4, 5, 6]),
        VALUES % 7 == 0,
    ],
    ids=repr,
)
def test_any_key_is_read_and_assigned(key: Any, layout: dict[str, Any], options: Options) -> None:
    store = MemoryStore()
    array = ingot.array(VALUES, store, chunks=(5, 10), options=options, format="zarr3", **layout)
    assert np.array_equal(array[key], VALUES[key])
    expected = VALUES.copy()
    expected[key] = -1
    array[key] = -1
    assert np.array_equal(array[...], expected)
    assert np.array_equal(ingot.open(store)[...], expected)


@pytest.mark.parametrize("options", [Options(), SMALL], ids=["default", "small windows"])
def test_rows_of_a_table_are_searched_updated_and_deleted(options: Options) -> None:
    values = {"a": np.arange(1000), "b": np.arange(1000) % 17 / 2}
    table = ingot.table(values, MemoryStore(), chunks={"a": 64, "b": 100}, options=options)
    wanted = (values["a"] > 300) & (values["b"] == 3)
    assert table.read(where="(a > 300) & (b == 3)")["a"].tolist() == values["a"][wanted].tolist()
    assert table.where("b == 3").count() == np.count_nonzero(values["b"] == 3)
    rows = np.array([3, 77, 3, 999])
    assert table["a"][rows].tolist() == rows.tolist()
    table.update("b == 3", {"a": -1})
    expected = np.where(values["b"] == 3, -1, values["a"])
    assert np.array_equal(table["a"][...], expected)
    table.delete("a == -1")
    assert np.array_equal(table["a"][...], expected[expected != -1])


def test_an_array_without_axes() -> None:
    array = ingot.array(np.float32(3.5), MemoryStore(), format="zarr3")
    assert array[()] == 3.5
    array[()] = 4
    assert array[...].tolist() == 4


@pytest.mark.parametrize("format", ["bcolz", "zarr2"])
def test_a_damaged_chunk_is_named(format: str) -> None:
    store = MemoryStore()
    codec = "blosc" if format == "bcolz" else "none"
    array = ingot.array(VALUES, store, chunks=10, format=format, codec=codec)
    key = "data/__2.blp" if format == "bcolz" else "2.0"
    (data,) = store.read([Extent(key)])
    assert data is not None
    store.apply(Commit(publish=(Put(key, data[:-5]),)))
    for selection in (..., [25], ([25, 1], [3, 4])):
        with pytest.raises(CorruptionError) as caught:
            array[selection]
        assert f"in chunk (2, 0), key {key!r}, of memory" in caught.value.__notes__


def test_a_lost_chunk_is_no_fill_value() -> None:
    store = MemoryStore()
    array = ingot.array(VALUES, store, chunks=10, format="bcolz")
    store.apply(Commit(publish=(Delete("data/__1.blp"),)))
    with pytest.raises(CorruptionError, match="missing"):
        array[...]
    with pytest.raises(CorruptionError, match="missing"):
        fetch(engine(array).chunks, np.array([[1, 0]]), threads=1, verify="first")


def test_chunks_beyond_the_grid_are_absent() -> None:
    array = ingot.array(VALUES, MemoryStore(), chunks=10, format="zarr2")
    coords = np.array([[4, 0], [0, 7]])
    assert fetch(engine(array).chunks, coords, threads=1, verify="first") == [None, None]


@needs_kernel
@pytest.mark.parametrize("verify", ["first", "always", "never"])
@pytest.mark.parametrize("selection", [..., [31, 2, 30]])
def test_a_value_in_memory_is_compared_once(verify: Any, selection: Any) -> None:
    store = MemoryStore()
    options = Options(verify=verify)
    settings: dict[str, Any] = {"chunks": 10, "format": "zarr3", "codec": "none"}
    array = ingot.array(VALUES, store, checksum=True, options=options, **settings)
    assert np.array_equal(array[selection], VALUES[selection])
    (data,) = store.read([Extent("c/3/0")])
    assert data is not None
    damaged = bytes([data[0] ^ 1]) + data[1:]
    # Bytes that change without a commit: nothing but a checksum can tell.
    store._values["c/3/0"] = damaged
    found = VALUES.copy()
    found[30, 0] ^= 1
    if verify == "always":
        with pytest.raises(CorruptionError):
            array[selection]
    else:
        assert np.array_equal(array[selection], found[selection])
    store.apply(Commit(publish=(Put("c/3/0", damaged),)))
    if verify == "never":
        assert np.array_equal(array[selection], found[selection])
    else:
        with pytest.raises(CorruptionError):
            array[selection]
    array[30:] = VALUES[30:]
    assert np.array_equal(array[selection], VALUES[selection])


@needs_kernel
def test_rows_in_memory_are_compared_once() -> None:
    columns = {"a": np.arange(50_000), "b": np.arange(50_000) % 7}
    store = MemoryStore()
    table = ingot.table(columns, store, chunks=10_000, format="bcolz")
    for _ in range(3):
        found = table.read(where="(b == 4) & (a > 20000)")
        assert found["a"].tolist() == [n for n in range(20_001, 50_000) if n % 7 == 4]
        assert set(found["b"].tolist()) == {4}
    (data,) = store.read([Extent("a/data/__3.blp")])
    assert data is not None
    store.apply(Commit(publish=(Put("a/data/__3.blp", data[:200] + b"\xff" * 9 + data[209:]),)))
    with pytest.raises(CorruptionError):
        table.read(where="(b == 4) & (a > 20000)")

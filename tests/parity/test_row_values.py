"""Values of single rows: assigned by the native kernel in one call, held against NumPy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.blosc.header import ChunkHeader
from ingot.codecs.zone_maps import zone_map_of
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import CorruptionError
from ingot.formats import trailer
from ingot.formats.trailer import block_spans
from ingot.stores import Store
from tests.kernels import NATIVE_IS_BUILT, needs_native, on_each_kernel
from tests.storage import STORES, content, use_kernel

LAYOUTS: list[dict[str, Any]] = [
    {"format": "bcolz", "chunks": 70},
    {"format": "bcolz", "chunks": 70, "codec": "blosc:lz4:0:noshuffle"},
    {"format": "zarr2", "chunks": 70},
    {"format": "zarr3", "chunks": 70, "codec": "none"},
    {"format": "zarr3", "chunks": 35, "shards": 140, "codec": "zstd:1"},
]
ROWS: list[Any] = [
    [0],
    [999, 0, 500],
    [3, 3, 70, 3, 69],
    list(range(5, 990, 7)),
    list(range(999, -1, -1)),
    np.arange(1000) % 3 == 1,
]


def refuse(*given: object) -> Any:
    raise AssertionError("chunks are merged in Python")


@on_each_kernel
@pytest.mark.parametrize("make", STORES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("dtype", ["<i8", ">f4", "S3"])
def test_rows_get_the_values_that_numpy_gives_them(
    kernel_name: str,
    dtype: str,
    layout: dict[str, Any],
    make: Callable[[Path], Store],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    expected = (np.arange(1000) % 90).astype(dtype)
    array = ingot.array(expected, make(tmp_path), options=ingot.Options(threads=2), **layout)
    if kernel_name == "native":
        monkeypatch.setattr(Engine, "_merged", refuse)
    for turn, rows in enumerate(ROWS):
        count = len(np.arange(1000)[rows])
        values = ((np.arange(count) + turn) % 80).astype(dtype)
        array[rows] = values
        expected[rows] = values
        assert np.array_equal(array[...], expected), rows
        array[rows] = values[0]
        expected[rows] = values[0]
        assert np.array_equal(array[...], expected), rows
    assert np.array_equal(array[array[...] == expected[7]], expected[expected == expected[7]])


@on_each_kernel
def test_rows_with_several_items(
    kernel_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    expected = np.arange(600.0).reshape(100, 2, 3)
    array = ingot.array(expected, tmp_path / "a", format="bcolz", chunks=8)
    if kernel_name == "native":
        monkeypatch.setattr(Engine, "_merged", refuse)
    rows = [99, 3, 50, 3]
    for value in (np.arange(24.0).reshape(4, 2, 3), np.arange(3.0), -1):
        array[rows] = value
        expected[rows] = value
        assert np.array_equal(array[...], expected)
        assert np.array_equal(ingot.open(tmp_path / "a")[...], expected)


@on_each_kernel
def test_zone_maps_follow(
    kernel_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    values = np.arange(5000)
    table = ingot.table({"a": values}, tmp_path / "t", chunks=500)
    for rows, value in (([7, 4999], -5), ([600, 601], 10**9), (list(range(0, 5000, 2)), 3)):
        table.update(rows, {"a": value})
        values[rows] = value
        for where, found in (
            ("a < 0", values < 0),
            ("a > 10000", values > 10_000),
            ("a == 3", values == 3),
        ):
            assert table.where(where).count() == found.sum(), (rows, where)


def blocks(file: bytes) -> list[bytes]:
    """Return the stored bytes of each block of a chunk file."""
    end = 16 + int.from_bytes(file[28:32], "little")
    chunk = memoryview(file)[16:end]
    return [bytes(chunk[a:b]) for a, b in block_spans(ChunkHeader.parse(chunk), chunk)]


@needs_native
def test_blocks_without_new_rows_keep_their_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel("native", monkeypatch)
    values = np.random.default_rng(2).integers(0, 1000, 200_000)
    array = ingot.array(values, tmp_path / "a", format="bcolz", chunks=200_000)
    path = tmp_path / "a/data/__0.blp"
    before = blocks(path.read_bytes())
    size = int.from_bytes(path.read_bytes()[24:28], "little") // 8  # Items of a block.
    assert len(before) > 4
    rows = [2 * size, 5, 2 * size + 9]
    array[rows] = values[rows] = [1, 2, 3]
    after = blocks(path.read_bytes())
    assert [n for n, block in enumerate(before) if block != after[n]] == [0, 2]
    assert np.array_equal(array[...], values)


@on_each_kernel
@pytest.mark.parametrize("format", ["bcolz", "zarr3"])
def test_a_damaged_chunk_is_named_and_nothing_is_left(
    kernel_name: str, format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    array = ingot.array(np.arange(1000), tmp_path / "a", format=format, chunks=100)
    key = "data/__4.blp" if format == "bcolz" else "c/4"
    damaged = bytearray((tmp_path / "a" / key).read_bytes())
    damaged[60] ^= 1
    (tmp_path / "a" / key).write_bytes(damaged)
    before = content(tmp_path / "a")
    with pytest.raises(CorruptionError) as caught:
        array[[5, 433, 900]] = 7
    assert key in " ".join(caught.value.__notes__)
    assert content(tmp_path / "a") == before
    array[[5, 900]] = 7
    assert array[[5, 6, 900]].tolist() == [7, 6, 7]


@pytest.mark.skipif(not NATIVE_IS_BUILT, reason="the native kernel is not built")
def test_rows_and_values_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    array = ingot.array(np.arange(100), tmp_path / "a", format="bcolz", chunks=10)
    layout: Any = engine_of(array._handle.value.chunks, ingot.Options()).layout()
    with pytest.raises(IndexError, match="row 100 of an array of 100 rows"):
        layout.assign_rows(np.array([1, 100]), np.array([1]), 1)
    with pytest.raises(IndexError, match="row -1"):
        layout.assign_rows(np.array([-1]), np.array([1]), 1)
    with pytest.raises(ValueError, match="neither one, nor one for each row"):
        layout.assign_rows(np.array([1, 2, 3]), np.array([1, 2]), 1)
    with pytest.raises(ValueError, match="items have 4 bytes"):
        layout.assign_rows(np.array([1]), np.array([1], "i4"), 1)
    grid = ingot.array(np.ones((9, 9)), tmp_path / "b", format="zarr3", chunks=(3, 3))
    layout = engine_of(grid._handle.value.chunks, ingot.Options()).layout()
    with pytest.raises(ValueError, match="the chunks of this array are no rows"):
        layout.assign_rows(np.array([1]), np.ones(9), 1)


@needs_native
@pytest.mark.parametrize("dtype", ["<i8", "<f8", "<f4", "u1", "<M8[s]", "S4", ">i4"])
def test_the_zone_map_of_a_chunk_with_few_new_rows_is_that_of_all_rows(
    dtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel("native", monkeypatch)
    values = (np.arange(3000) // 20).astype(dtype)
    array = ingot.array(values, tmp_path / "a", format="bcolz", chunks=3000)
    path = tmp_path / "a/data/__0.blp"
    low, high = values[0], values[-1]
    nothing = np.array("NaT" if values.dtype.kind == "M" else 0).astype(dtype)
    if values.dtype.kind == "f":
        nothing = np.array(np.nan, dtype)
    # Ascending still, no longer, the lowest and the highest replaced, nulls in and out, and back.
    for rows, value in [
        ([0, 1], values[0]),
        ([50, 2000], values[700]),
        ([0, 1, 5], high),
        (list(range(20)), values[25]),
        ([7, 2999], nothing),
        ([7, 2999], low),
        ([2999], high),
    ]:
        array[rows] = value
        values[rows] = value
        data = path.read_bytes()
        zone = trailer.parse(data[16 + int.from_bytes(data[28:32], "little") :]).zone
        expected = zone_map_of(values)
        assert expected is not None
        assert zone == expected.pack(values.dtype), (rows, value)
    assert np.array_equal(array[...], values)

"""Grids of several lengths: boxes, index arrays and assignments are those of NumPy, in one call."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.stores import Commit, Extent, Put, Store
from ingot.testing.counting import CountingStore
from tests.kernels import KERNELS
from tests.storage import STORES, content, in_folder, put, use_kernel

SHAPE = (23, 17)
# Chunks beyond the end are longer than all others; the second axis is regular, or not.
GRIDS = [[[5, [3, 2], 7, 9, 40], 4], [[23], [[1, 3], 10, 4]], [4, [17, 99]]]


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kernel(request.param, monkeypatch)
    return str(request.param)


def make(
    store: Store, grid: list[Any], shape: tuple[int, ...] = SHAPE, **layout: Any
) -> ingot.Array:
    """Create an array of sevens and change its grid, as only other programs do."""
    layout = {"dtype": "<i4", "fill": 7, **layout}
    ingot.create(store, shape=shape, chunks=shape, format="zarr3", **layout).close()
    (document,) = store.read([Extent("zarr.json")])
    assert document is not None
    shapes = {"kind": "inline", "chunk_shapes": grid}
    changed = json.loads(document) | {
        "chunk_grid": {"name": "rectilinear", "configuration": shapes}
    }
    store.apply(Commit(publish=(Put("zarr.json", json.dumps(changed).encode()),)))
    return ingot.open(store, "r+")


def boxes(random: np.random.Generator) -> tuple[slice, ...]:
    found = []
    for length in SHAPE:
        low, high = sorted(random.integers(0, length + 1, 2).tolist())
        step = int(random.integers(1, 9))
        found.append(slice(low, high, step) if random.random() < 0.7 else slice(None, None, -step))
    return tuple(found)


@pytest.mark.parametrize("make_store", STORES)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.parametrize(
    "layout",
    [{}, {"order": "F"}, {"codec": "none"}, {"codec": "zstd:1", "checksum": False}],
    ids=str,
)
def test_selections_are_those_of_numpy(
    tmp_path: Path,
    kernel: str,
    make_store: Callable[[Path], Store],
    grid: list[Any],
    layout: dict[str, Any],
) -> None:
    random, store = np.random.default_rng(5), make_store(tmp_path)
    array, values = make(store, grid, **layout), np.full(SHAPE, 7, "<i4")
    for turn in range(8):
        box = boxes(random)
        if turn % 2:
            items = random.integers(0, 1000, values[box].shape, "<i4")
            values[box] = items
            array[box] = items
        assert np.array_equal(array[box], values[box]), box
        rows = random.integers(-23, 23, 6)
        columns = [3, 1, 16, 1]
        assert np.array_equal(array[rows], values[rows])
        assert np.array_equal(array.oindex[rows, columns], values[np.ix_(rows, columns)])
        assert np.array_equal(array[rows, 4:13:2], values[rows, 4:13:2])
        assert np.array_equal(array[rows[:4], columns], values[rows[:4], columns])
    array[rows] = values[rows] = 9
    assert np.array_equal(ingot.open(store)[...], values)
    if kernel == "native":
        assert "in one call" in array.explain().reason


@pytest.mark.parametrize("make_store", STORES)
def test_arrays_grow_and_shrink(
    tmp_path: Path, kernel: str, make_store: Callable[[Path], Store]
) -> None:
    array = make(make_store(tmp_path), [[5, 3, 7], 4], (9, 4))
    values = np.arange(40, dtype="<i4").reshape(10, 4)
    array[...] = values[:9]
    array.append(values)
    wanted = np.concatenate([values[:9], values])
    assert np.array_equal(array[...], wanted)
    array.append(values)
    wanted = np.concatenate([wanted, values])
    assert np.array_equal(array[3:29:4], wanted[3:29:4])
    array.resize((6, 4))
    array.resize((14, 4))
    assert np.array_equal(array[...], np.concatenate([wanted[:6], np.full((8, 4), 7)]))


def test_a_chunk_of_another_length_is_corrupt(tmp_path: Path, kernel: str) -> None:
    store = in_folder(tmp_path)
    array = make(store, [[5, 3, 7, 8], 17])
    array[...] = np.arange(23 * 17, dtype="<i4").reshape(SHAPE)
    put(store, {"c/1/0": content(store)["c/0/0"]})
    for key in (..., np.s_[6, 3], [6, 1], np.s_[5:8:2]):
        with pytest.raises(CorruptionError) as caught:
            array[key]
        assert any("c/1/0" in note for note in caught.value.__notes__)
    assert np.array_equal(array[8:, 5], np.arange(23 * 17).reshape(SHAPE)[8:, 5])


class Counted(CountingStore):
    """A store that also counts the bytes that are read."""

    def reset(self) -> None:
        super().reset()
        self.bytes_read = 0

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = super().read(extents)
        self.bytes_read += sum(len(data or b"") for data in found)
        return found


def test_small_selections_read_parts_of_chunks(kernel: str) -> None:
    """As many bytes as `explain` says, of chunks of several lengths."""
    store = Counted()
    grid = [[[20_000, 2], 70_000, 90_000]]
    layout = {"checksum": False, "codec": "blosc:lz4:5:shuffle:4096"}
    array = make(store, grid, (150_000,), **layout)
    values = np.random.default_rng(3).integers(0, 9, 150_000, "<i4")
    array[...] = values
    for start, stop in ((39_000, 41_000), (45_000, 45_003), (120_000, 120_100)):
        told = array.explain(slice(start, stop)).read
        whole = sum(len(data) for key, data in content(store).items() if key.startswith("c/"))
        store.reset()
        assert np.array_equal(array[start:stop], values[start:stop])
        if kernel == "native":
            # One byte behind the end of each chunk shows that it ends there.
            assert told <= store.bytes_read <= told + 2 * 2 < whole // 2

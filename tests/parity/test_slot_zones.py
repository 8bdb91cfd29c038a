"""Zone maps of chunks in slots that change by blocks are those of chunks that are written whole."""

import numpy as np
import pytest

import ingot
from ingot.stores import MemoryStore

CHUNK = 1 << 10
CODEC = "blosc:lz4:5:shuffle:512"


def _zones(array: ingot.Array) -> list[bytes]:
    chunks = array._handle.value.chunks
    return list(chunks.zones(range(chunks.schema.grid.chunk_count)))


def _stored(values: np.ndarray) -> ingot.Array:
    return ingot.array(values, MemoryStore(), format="blsk", chunks=CHUNK, codec=CODEC)


def _check(array: ingot.Array, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(array[...], expected)
    assert _zones(array) == _zones(_stored(expected))
    assert any(_zones(array))


@pytest.mark.parametrize("dtype", ["i4", "f8", "u2", "S3"])
@pytest.mark.parametrize("seed", range(3))
def test_items_and_rows_that_change(tmp_path, dtype, seed) -> None:
    chance = np.random.default_rng(seed)
    expected = np.sort(chance.integers(1, 900, 2 * CHUNK + 300)).astype(dtype)
    place = tmp_path / "a" if seed else MemoryStore()
    array = ingot.array(expected, place, format="blsk", chunks=CHUNK, codec=CODEC)
    for turn in range(12):
        first = int(chance.integers(0, len(expected)))
        count = int(chance.integers(1, 4 if turn % 2 else 300))
        part = slice(first, first + count)
        # Ends that move inwards and outwards, and values that leave or keep the order.
        new = chance.integers(1, 1200 if turn % 3 else 500, len(expected[part])).astype(dtype)
        expected[part] = new if turn % 4 else expected[part]
        array[part] = expected[part]
        _check(array, expected)


@pytest.mark.parametrize("dtype", ["i4", "f8", "S3"])
@pytest.mark.parametrize("ascending", [True, False])
def test_rows_that_are_appended(tmp_path, dtype, ascending) -> None:
    chance = np.random.default_rng(4)
    steps = chance.integers(0, 9, 3 * CHUNK) if ascending else chance.integers(-9, 9, 3 * CHUNK)
    every = (100 + np.cumsum(steps) % 9000).astype(dtype)
    array = ingot.array(every[:5], tmp_path / "a", format="blsk", chunks=CHUNK, codec=CODEC)
    end = 5
    # Ends in the middle of a block, at the end of a block, and at the end of a chunk.
    for count in (1, 40, 512 // every.itemsize - 46, 128, 3, CHUNK, 700, 1):
        array.append(every[end : end + count])
        end += count
        _check(array, every[:end])
    array.resize(end - 9)
    array.append(every[end - 9 : end - 2])
    np.testing.assert_array_equal(array[...], every[: end - 2])


@pytest.mark.parametrize("dtype", ["i4", "f8", "u1", "S3"])
@pytest.mark.parametrize("kind", ["ascending", "random", "many at the ends"])
def test_few_rows_by_their_numbers(tmp_path, dtype, kind) -> None:
    """The zone map follows from the items that change, unless one was the lowest or the highest."""
    chance = np.random.default_rng(7)
    every = chance.integers(10, 90, 3 * CHUNK)
    if kind == "ascending":
        every.sort()
    elif kind != "random":
        every = np.where(chance.random(len(every)) < 0.5, 10, 90)
    expected = every.astype(dtype)
    array = ingot.array(expected, tmp_path / "a", format="blsk", chunks=CHUNK, codec=CODEC)
    for turn in range(30):
        rows = chance.integers(0, len(expected), int(chance.integers(1, 40)))
        if turn % 3 == 1:
            # The ends of the chunks, by value and by place.
            rows = np.concatenate([rows[:5], [0, CHUNK - 1, CHUNK, len(expected) - 1]])
            rows = np.append(rows, [int(np.argmin(expected)), int(np.argmax(expected))])
        new = chance.integers(5, 95, len(rows)).astype(dtype)
        if turn % 3 == 2:
            new = expected[rows]  # The order stays.
        expected[rows] = new
        array[rows] = new
        _check(array, expected)


def test_nulls_of_few_rows_are_counted(tmp_path) -> None:
    chance = np.random.default_rng(8)
    expected = chance.random(2 * CHUNK)
    array = ingot.array(expected, tmp_path / "a", format="blsk", chunks=CHUNK, codec=CODEC)
    for turn in range(20):
        rows = chance.choice(len(expected), 9, replace=False)
        new = np.where(chance.random(9) < 0.5, np.nan, chance.random(9) * (1 + turn % 3))
        expected[rows] = new
        array[rows] = new
        _check(array, expected)
    array[:] = expected[:] = np.nan
    array[[5, CHUNK + 5]] = expected[[5, CHUNK + 5]] = 1.5
    _check(array, expected)


def test_nulls_of_floats_are_counted(tmp_path) -> None:
    expected = np.linspace(0, 1, CHUNK)
    array = ingot.array(expected, tmp_path / "a", format="blsk", chunks=CHUNK, codec=CODEC)
    for place in (0, 70, CHUNK - 1):
        expected[place] = array[place] = np.nan
        _check(array, expected)
    expected[70] = array[70] = 5.0
    _check(array, expected)

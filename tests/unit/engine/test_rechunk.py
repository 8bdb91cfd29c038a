"""Windows by which no chunk of a source is read more than twice, and the file of waiting items."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.codecs.codec import CodecChain
from ingot.engine.rechunk import MOST_READS, Spool, reads_of, window_shape
from ingot.grid import ChunkGrid, RectilinearAxis, blocks
from ingot.schema import ArraySchema
from ingot.testing.counting import CountingStore


class ByteCount(CountingStore):
    """Counts the bytes that are read of each key."""

    def reset(self):
        super().reset()
        self.nbytes = Counter()

    def read(self, extents):
        found = super().read(extents)
        for extent, data in zip(extents, found, strict=True):
            self.nbytes[extent.key] += len(data or b"")
        return found


def noise(shape):
    return np.random.default_rng(1).integers(0, 2**31, shape, "<i4")


CUTS = {
    "rows to columns": ((256, 256), (256, 4), (4, 256)),
    "columns to rows": ((256, 256), (4, 256), (256, 4)),
    "crossing": ((300, 200), (70, 30), (40, 90)),
    "three axes": ((40, 50, 60), (40, 5, 5), (4, 50, 60)),
    "the same": ((200, 200), (20, 20), (20, 20)),
}


@pytest.mark.parametrize("target", ["zarr3", "zarr2", "blsk", "bcolz", "bloscpack"])
@pytest.mark.parametrize("cut", CUTS)
def test_no_chunk_is_read_more_than_twice(kernel, tmp_path, cut, target):
    shape, first, second = CUTS[cut]
    store, values = ByteCount(), noise(shape)
    source = ingot.array(values, store, chunks=first, codec="zstd:1")
    store.reset()
    options = ingot.Options(limits=ingot.Limits(window_bytes=values.nbytes // 9))
    chunks = "auto" if target in ("bcolz", "bloscpack") else second
    made = ingot.convert(
        source, tmp_path / "b", format=target, chunks=chunks, codec="blosc:lz4", options=options
    )
    chunk_files = [key for key in store.nbytes if key.startswith("c/")]
    assert len(chunk_files) == source.nchunks
    for key in chunk_files:
        assert store.nbytes[key] <= MOST_READS * store.size(key), key
    assert np.array_equal(made[...], values)


def test_an_array_given_as_values_is_read_twice_at_most(tmp_path):
    shape, first, second = CUTS["rows to columns"]
    store, values = ByteCount(), noise(shape)
    source = ingot.array(values, store, chunks=first, codec="zstd:1")
    store.reset()
    options = ingot.Options(limits=ingot.Limits(window_bytes=values.nbytes // 9))
    made = ingot.array(source, tmp_path / "b.zarr", chunks=second, options=options)
    assert all(
        count <= MOST_READS * store.size(key)
        for key, count in store.nbytes.items()
        if key.startswith("c/")
    )
    assert np.array_equal(made[...], values)


axes = st.lists(st.integers(1, 30), min_size=1, max_size=3)


def counted(grid, window):
    """Return in how many windows a chunk lies at most, by counting."""
    most = 0
    for coords in product(*map(range, grid.counts)):
        mask = np.zeros(grid.shape, bool)
        mask[grid.box(coords)] = True
        most = max(most, sum(bool(mask[key].any()) for key in blocks(grid.shape, window)))
    return most


@settings(max_examples=60, deadline=None)
@given(
    axes.flatmap(
        lambda shape: st.tuples(
            st.just(shape),
            *[st.lists(st.integers(1, 30), min_size=len(shape), max_size=len(shape))] * 2,
        )
    )
)
def test_reads_are_not_underestimated(drawn):
    shape, chunks, window = (tuple(each) for each in drawn)
    shape = tuple(min(each, 12) for each in shape)
    grid = ChunkGrid(shape, chunks, padded=True)
    assert counted(grid, window) <= reads_of(grid, window)


def test_reads_of_chunks_of_several_lengths():
    grid = ChunkGrid((20,), (9,), padded=True, rectilinear=(RectilinearAxis([2, 9, 9]),))
    for window in range(1, 21):
        assert reads_of(grid, (window,)) == counted(grid, (window,))


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40)),
    *[st.tuples(st.integers(1, 40), st.integers(1, 40))] * 2,
    st.integers(1, 800),
)
def test_windows_are_whole_units_within_the_memory(shape, unit, chunk, most):
    schema = ArraySchema(shape, np.dtype("u1"), unit, CodecChain(), 0)
    source = ChunkGrid(shape, chunk, padded=True)
    usual, best = (
        window_shape(schema, unit, source, most, ascending=each) for each in (True, False)
    )
    assert reads_of(source, best) <= reads_of(source, usual)
    for length, size, whole in zip(best, unit, shape, strict=True):
        assert length == whole or length % size == 0
    assert math.prod(best) <= max(most, math.prod(map(min, unit, shape)))


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    *[st.tuples(st.integers(1, 10), st.integers(1, 10))] * 2,
    st.sets(st.integers(0, 80)),
)
def test_items_wait_for_their_window(shape, box, window, left_out):
    values = np.arange(math.prod(shape), dtype="<i2").reshape(shape)
    boxes, windows = (ChunkGrid(shape, each, padded=False) for each in (box, window))
    spool = Spool(boxes, windows, values.dtype, left_out.__contains__)
    for number in filter(spool.wants, range(boxes.chunk_count)):
        spool.put(number, values[boxes.box(boxes.coords(number))])
    for number in range(windows.chunk_count):
        if number not in left_out:
            assert np.array_equal(spool.take(number), values[windows.box(windows.coords(number))])
    spool.close()

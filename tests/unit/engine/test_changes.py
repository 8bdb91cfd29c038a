"""What changes of an array leave in the store."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.engine import changes
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import LimitError
from ingot.formats.zarr.v2 import Zarr2Format
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.options import Limits, Options
from ingot.selection import parse
from ingot.stores import Commit, Extent, LocalStore, MemoryStore, Move, Put

SHAPES = [(4, 5), (4, 4), (8, 8), (1, 9), (0, 3), (5, 0), (12, 12), (3, 7)]


def stored(shape: tuple[int, ...], chunks: tuple[int, ...]) -> MemoryStore:
    """Return an array whose chunks hold sevens, also beyond the edge."""
    store = MemoryStore()
    array = ingot.create(
        store, shape=shape, dtype="u1", chunks=chunks, codec="none", format="zarr2"
    )
    grid = engine_of(Zarr2Format().open(store).chunks, Options()).chunks.schema.grid
    edits = [
        Put(".".join(map(str, coords)), b"\x07" * int(np.prod(chunks)))
        for coords in np.ndindex(*grid.counts)
    ]
    store.apply(Commit(publish=tuple(edits)))
    assert (array[...] == 7).all()
    return store


@pytest.mark.parametrize("old", SHAPES)
@pytest.mark.parametrize("new", SHAPES)
def test_nothing_comes_to_light_that_lay_beyond_the_edge(
    old: tuple[int, int], new: tuple[int, int]
) -> None:
    store = stored(old, (4, 3))
    array = ingot.open(store, "r+")
    array.resize(new)
    expected = np.zeros(new, "u1")
    expected[: old[0], : old[1]] = 7
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(ingot.open(store)[...], expected)


def engine(store: MemoryStore | LocalStore, **limits: int) -> Engine:
    return engine_of(Zarr2Format().open(store).chunks, Options(limits=Limits(**limits)))


def test_each_edge_chunk_is_cleared_once_and_before_the_shape() -> None:
    step = changes.resized(engine(stored((5, 5, 5), (4, 4, 4))), (9, 9, 5))
    puts = [edit.key for edit in step.commit.prepare if isinstance(edit, Put)]
    edges = [f"{i}.{j}.{k}" for i, j, k in np.ndindex(2, 2, 2) if i or j]
    assert sorted(puts) == edges
    assert [edit.key for edit in step.commit.publish] == [".zarray"]


def test_what_is_appended_goes_ahead_of_the_shape() -> None:
    store = stored((6,), (4,))
    now = engine(store)
    step = changes.grown(now, (9,), parse(slice(6, 9), (9,)), np.array([1, 2, 3], "u1"))
    assert [edit.key for edit in step.commit.publish] == [".zarray"]
    assert {edit.key for edit in step.commit.prepare} == {"1", "2"}
    assert now.shape == (6,)
    assert step.engine.shape == (9,)
    store.apply(step.commit)
    assert step.engine.read(parse(..., (9,))).tolist() == [7] * 6 + [1, 2, 3]


def test_what_an_earlier_array_left_is_not_merged_into_what_grows() -> None:
    store = stored((4,), (4,))
    store.apply(Commit(publish=(Put("1", b"\x09" * 4),)))
    now = engine(store)
    step = changes.grown(now, (5,), parse(slice(4, 5), (5,)), np.array([1], "u1"))
    store.apply(step.commit)
    assert store.read([Extent("1")]) == [b"\x01\0\0\0"]


def test_what_does_not_fit_the_window_is_staged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = LocalStore(tmp_path, writable=True)
    ingot.create(store, shape=40, dtype="u1", chunks=4, codec="none", format="zarr2")
    small = engine(store, window_bytes=10)
    commit = small.stage(((n,), np.full(4, n + 1, "u1")) for n in range(10))
    aside = [edit for edit in commit.publish if isinstance(edit, Move)]
    assert len(aside) == 9
    assert len(list(store.names(hidden=True))) == 10
    small.discard(commit)
    assert list(store.names(hidden=True)) == [".zarray"]
    store.apply(small.stage(((n,), np.full(4, n + 1, "u1")) for n in range(10)))
    assert small.read(parse(..., (40,))).tolist() == [n + 1 for n in range(10) for _ in range(4)]


def test_a_failure_on_the_way_leaves_nothing_staged(tmp_path) -> None:  # type: ignore[no-untyped-def]
    store = LocalStore(tmp_path, writable=True)
    ingot.create(store, shape=40, dtype="u1", chunks=4, codec="none", format="zarr2")

    def chunks():  # type: ignore[no-untyped-def]
        for n in range(8):
            yield (n,), np.full(4, n + 1, "u1")
        raise RuntimeError("out of chunks")

    with pytest.raises(RuntimeError):
        engine(store, window_bytes=10).stage(chunks())
    assert list(store.names(hidden=True)) == [".zarray"]


def test_arrays_of_rows_without_items_grow_and_shrink() -> None:
    array = ingot.create(shape=(3, 0), dtype="i4", chunks=2, format="bcolz")
    for rows in (9, 1, 4):
        array.resize((rows, 0))
        assert array.shape == (rows, 0)
        assert array[...].shape == (rows, 0)


KEYS = {
    "index arrays": np.s_[np.arange(63, -1, -1)],
    "a step": np.s_[::3, ::-1],
    "points": (np.arange(64), np.arange(64) * 100),
}


@pytest.mark.parametrize("name", KEYS)
def test_shards_are_staged_one_by_one_and_each_once(tmp_path: Path, name: str) -> None:
    layout = {"chunks": (4, 1 << 10), "shards": (16, 1 << 12), "codec": "none", "format": "zarr3"}
    store = LocalStore(tmp_path, writable=True)
    expected = np.random.default_rng(4).integers(1, 255, (64, 1 << 13), dtype="u1")
    ingot.array(expected, store, **layout)
    # With a cache nothing is left to the native kernel.
    options = Options(cache_bytes=1, limits=Limits(window_bytes=1))
    small = engine_of(Zarr3Format().open(store).chunks, options)
    selection = parse(KEYS[name], expected.shape)
    expected[KEYS[name]] += 1
    commit = small.assign(selection, expected[KEYS[name]])
    keys = [edit.key for edit in commit.publish]
    assert len(set(keys)) == len(keys) > 3
    assert sum(isinstance(edit, Put) for edit in commit.publish) == 1
    store.apply(commit)
    assert (ingot.open(store)[...] == expected).all()


def test_an_assignment_holds_few_shards_at_a_time(tmp_path) -> None:  # type: ignore[no-untyped-def]
    shard = 16 << 14
    options = Options(durability="process", limits=Limits(window_bytes=1 << 16))
    array = ingot.create(
        tmp_path / "array",
        shape=(64, 1 << 15),
        dtype="u1",
        chunks=(4, 1 << 13),
        shards=(16, 1 << 14),
        codec="none",
        options=options,
    )
    values = np.random.default_rng(5).integers(0, 255, array.shape, dtype="u1")
    tracemalloc.start()
    try:
        array[np.arange(64)] = values
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert values.nbytes == 8 * shard
    assert peak < 4 * shard
    assert (array[...] == values).all()


EMPTY = [(2**33, 0), (0, 2**33), (2**61, 0), (2**30, 0, 2**30)]


@pytest.mark.parametrize("shape", EMPTY)
@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_an_empty_axis_beside_a_long_one_costs_nothing(format: str, shape: tuple[int, ...]) -> None:
    """The chunks of the long axis are not listed."""
    array = ingot.create(shape=shape, dtype="u1", chunks=(1,) * len(shape), format=format)
    tracemalloc.start()
    array.append(np.zeros((1 if 0 in shape[1:] else 0, *shape[1:]), "u1"))
    array.resize(tuple(2 * length for length in shape))
    array.resize((0,) * len(shape))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert array.shape == (0,) * len(shape)
    assert peak < 1 << 20


def test_assigning_to_an_empty_shape_that_numpy_does_not_hold_is_a_limit() -> None:
    array = ingot.create(shape=(2**33, 0, 2**33), dtype="u1", chunks=(1, 1, 1))
    with pytest.raises(LimitError):
        array[...] = 1
    with pytest.raises(ValueError, match="could not broadcast"):
        array[...] = [1, 2]


@pytest.mark.parametrize("shape", [(2**63 - 1,), (2**63 - 1, 0)])
def test_an_axis_does_not_grow_beyond_64_bits(shape: tuple[int, ...]) -> None:
    array = ingot.create(shape=shape, dtype="u1", chunks=(2**20, 1)[: len(shape)])
    with pytest.raises(LimitError, match="at most"):
        array.append(np.zeros((1, *shape[1:]), "u1"))
    assert array.shape == shape


@pytest.mark.parametrize("format", ["zarr0", "zarr2", "zarr3"])
def test_a_commit_of_too_many_chunks_is_refused_before_any_is_stored(
    tmp_path: Path, format: str
) -> None:
    array = ingot.create(tmp_path / "a", shape=2**40, dtype="u1", chunks=4, format=format)
    before = sorted(tmp_path.rglob("*"))
    for key in (..., slice(None, None, 2), slice(8, 2**30)):
        with pytest.raises(LimitError, match="chunks"):
            array[key] = 1
    assert sorted(tmp_path.rglob("*")) == before
    array[:10] = 1
    assert array[:12].tolist() == [1] * 10 + [0] * 2


def test_the_limit_of_chunks_is_that_of_the_options() -> None:
    options = Options(limits=Limits(commit_chunks=3))
    array = ingot.create(shape=40, dtype="u1", chunks=4, options=options)
    array[:12] = 1
    with pytest.raises(LimitError, match="4 chunks, the limit is 3"):
        array[:13] = 2
    with pytest.raises(LimitError, match="10 chunks, the limit is 3"):
        array[[0, 39, *range(40)]] = 2
    assert array[:].tolist() == [1] * 12 + [0] * 28
    with pytest.raises(LimitError, match="10 chunks"):
        ingot.create(shape=40, dtype="u1", chunks=4, format="bcolz", options=options)

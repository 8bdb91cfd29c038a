"""Selections against NumPy: any key, any shape, any way to cut it, reading and assigning.

The engine is emulated twice: in one piece, and chunk by chunk with the chunks visited backwards,
each chunk a separate array. Expected results are always NumPy's own.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingot.errors import SelectionError
from ingot.grid import (
    ChunkGrid,
    count_parts,
    cut_range,
    group_points,
)
from ingot.selection import (
    BasicSelection,
    CoordinateSelection,
    Selection,
    parse,
    parse_orthogonal,
)

Shape = tuple[int, ...]
Indices = NDArray[np.int64]

many = settings(max_examples=500, deadline=None)
some = settings(max_examples=300, deadline=None)

# Axes without items are worth a try, but whatever else a key has is lost on them.
sizes = st.sampled_from([4, 2, 3, 5, 6, 2, 3, 4, 5, 6, 3, 4, 1, 0])
shapes = st.lists(sizes, max_size=4).map(tuple)


# Keys -----------------------------------------------------------------------------------------

# Building a strategy costs more than drawing from it, so they are kept.

coin = st.booleans()
lengths = st.sampled_from([2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 1, 0])
broadcasts = st.lists(lengths, min_size=1, max_size=3).map(tuple)


@functools.cache
def upto(most: int) -> st.SearchStrategy[int]:
    return st.integers(0, most)


@functools.cache
def slices(size: int) -> st.SearchStrategy[slice]:
    bound = st.none() | st.integers(-size - 2, size + 2)
    step = st.sampled_from([None, 1, -1, 2, -2, 3, -3, size + 1, -size - 1, 10**30, -(10**30)])
    return st.tuples(bound, bound, step).map(lambda parts: slice(*parts))


@functools.cache
def integers(size: int) -> st.SearchStrategy[Any]:
    """Positions in every form an integer can have; now and then just out of bounds."""
    inside = range(-size, size) if size else range(1)
    forms = (int, int, np.int64, np.int8, np.array)
    usual = [form(number) for number in inside for form in forms]
    return st.sampled_from([*usual, *usual, size, -size - 1, np.array(size)])


@functools.cache
def positions(size: int, count: int) -> st.SearchStrategy[list[int]]:
    number = st.integers(-size, size - 1) if size else st.just(0)
    return st.lists(number, min_size=count, max_size=count)


@functools.cache
def masks(shape: Shape) -> st.SearchStrategy[NDArray[np.bool_]]:
    count = math.prod(shape)
    packed = st.binary(min_size=-(-count // 8), max_size=-(-count // 8))
    return packed.map(
        lambda data: (
            np.unpackbits(np.frombuffer(data, dtype=np.uint8), count=count)
            .astype(bool)
            .reshape(shape)
        )
    )


@st.composite
def index_arrays(draw: st.DrawFn, size: int, together: Shape) -> Any:
    """An index array that broadcasts to ``together``."""
    form = draw(upto(255))
    kept = together[form % 4 if form < 128 else 0 :] or (1,)
    shape = tuple(1 if form >> k & 9 == 9 else length for k, length in enumerate(kept))
    items = draw(positions(size, math.prod(shape)))
    if items and form == 1:
        items[0] = size
    array = np.array(items, dtype=np.int64).reshape(shape)
    types = ("i8", "i8", "i1", ">i4", "i2", "list", "list", "list")
    kind = types[form >> 3 & 7]
    return array.tolist() if kind == "list" else array.astype(kind)


@st.composite
def keys(draw: st.DrawFn, shape: Shape, kinds: str) -> Any:
    """A key for the shape; ``kinds`` has a letter for each kind of item that may occur."""
    together = draw(broadcasts)
    items: list[Any] = []
    axis = 0
    for kind in draw(st.text(kinds, min_size=len(shape), max_size=len(shape) + 3)):
        left = shape[axis:]
        if kind == "n":
            items.append(None)
        elif kind == "." and not any(item is Ellipsis for item in items):
            items.append(...)
            axis += draw(upto(len(left)))
        elif kind == "b":
            items.append(draw(st.sampled_from([True, np.True_, np.array(True), True, True, False])))
        elif left and kind == "m":
            taken = 1 + draw(upto(len(left) - 1))
            items.append(draw(masks(left[:taken])))
            axis += taken
        elif left and kind in "isa":
            choose = {"i": integers, "s": slices, "a": lambda n: index_arrays(n, together)}
            items.append(draw(choose[kind](left[0])))
            axis += 1
    return items[0] if len(items) == 1 and draw(coin) else tuple(items)


@st.composite
def cases(draw: st.DrawFn, kinds: str = "iisssaaaan.m" * 2 + "b") -> tuple[Shape, Any]:
    shape = draw(shapes)
    return shape, draw(keys(shape, kinds))


# The engine, emulated -----------------------------------------------------------------------------


def ranges(selection: Selection) -> list[range | Indices]:
    if not isinstance(selection, BasicSelection):
        return list(selection.axes)
    return [
        range(start, start + count * step, step)
        for start, count, step in zip(
            selection.starts, selection.counts, selection.steps, strict=True
        )
    ]


def engine_index(selection: Selection) -> tuple[Indices, ...]:
    """Index arrays that take engine order from the whole array at once."""
    ndim = len(selection.engine_shape)
    walked = isinstance(selection, CoordinateSelection)
    place = 1 if walked else 0
    found = []
    for axis in ranges(selection):
        shape = [1] * ndim
        if walked and not isinstance(axis, range):
            shape[0] = len(axis)
        else:
            shape[place] = len(axis)
            place += 1
        found.append(np.array(axis, dtype=np.int64).reshape(shape))
    return tuple(found)


def read_whole(data: NDArray[Any], selection: Selection) -> NDArray[Any]:
    if 0 in selection.engine_shape:
        return np.empty(selection.engine_shape, dtype=data.dtype)
    return np.array(data[engine_index(selection)]).reshape(selection.engine_shape)


Part = tuple[tuple[int, ...], tuple[Indices, ...], Indices]
"""Chunk coordinates along some axes, positions inside the chunk, positions in engine order."""


def range_parts(axis: range, chunk: int) -> list[Part]:
    rows = cut_range(axis.start, len(axis), axis.step, chunk)
    return [
        ((number,), (offset + np.arange(items) * axis.step,), position + np.arange(items))
        for number, offset, items, position in rows
    ]


def point_parts(coordinates: list[Indices], chunk: list[int]) -> list[Part]:
    groups = group_points(coordinates, chunk)
    parts = []
    for group, coords in enumerate(groups.chunks):
        inside = slice(groups.bounds[group], groups.bounds[group + 1])
        offsets = tuple(offset[inside] for offset in groups.offsets)
        parts.append((tuple(coords.tolist()), offsets, groups.order[inside]))
    return parts


def chunk_parts(
    selection: Selection, chunk: Shape
) -> Iterator[tuple[Shape, tuple[Indices, ...], tuple[Indices, ...]]]:
    """For each chunk: coordinates, index arrays inside it, index arrays in engine order."""
    if 0 in selection.engine_shape:
        return
    axes = ranges(selection)
    if isinstance(selection, CoordinateSelection):
        walked = [n for n, axis in enumerate(axes) if not isinstance(axis, range)]
    else:
        walked = []
    owners = [walked] if walked else []
    tables = [point_parts([axes[n] for n in walked], [chunk[n] for n in walked])] if walked else []
    for n, axis in enumerate(axes):
        if n not in walked:
            owners.append([n])
            if isinstance(axis, range):
                tables.append(range_parts(axis, chunk[n]))
            else:
                tables.append(point_parts([axis], [chunk[n]]))
    for parts in reversed(list(itertools.product(*tables))):
        coords, inside = [0] * len(axes), [np.zeros(0, dtype=np.int64)] * len(axes)
        for place, (taken, (numbers, offsets, _)) in enumerate(zip(owners, parts, strict=True)):
            shape = [1] * len(parts)
            shape[place] = -1
            for n, number, offset in zip(taken, numbers, offsets, strict=True):
                coords[n] = number
                inside[n] = offset.reshape(shape)
        yield tuple(coords), tuple(inside), np.ix_(*(positions for _, _, positions in parts))


def cut(data: NDArray[Any], grid: ChunkGrid) -> dict[Shape, NDArray[Any]]:
    """The chunks of an array, as a format would store them; padding is -1."""
    chunks = {}
    for linear in range(grid.chunk_count):
        coords = grid.coords(linear)
        assert grid.linear(coords) == linear
        chunk = np.full(grid.stored_shape(coords), -1, dtype=data.dtype)
        chunk[box((0,) * data.ndim, grid.valid_shape(coords))] = data[place(grid, coords)]
        chunks[coords] = chunk
    return chunks


def joined(chunks: dict[Shape, NDArray[Any]], grid: ChunkGrid) -> NDArray[Any]:
    data = np.full(grid.shape, -2, dtype=np.int64)
    for coords, chunk in chunks.items():
        inside = box((0,) * data.ndim, grid.valid_shape(coords))
        data[place(grid, coords)] = chunk[inside]
        chunk[inside] = -1
        assert (chunk == -1).all()
    return data


def place(grid: ChunkGrid, coords: Shape) -> tuple[slice, ...]:
    start = tuple(number * step for number, step in zip(coords, grid.chunk, strict=True))
    return box(start, grid.valid_shape(coords))


def box(start: Shape, shape: Shape) -> tuple[slice, ...]:
    return tuple(slice(a, a + n) for a, n in zip(start, shape, strict=True))


def numbered(shape: Shape) -> NDArray[np.int64]:
    return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)


def orthogonal(data: NDArray[Any], key: tuple[Any, ...]) -> NDArray[Any]:
    """What an orthogonal key selects, one axis after the other, from the last to the first."""
    axis = data.ndim
    for item in reversed(key):
        axis -= 1
        data = data[(slice(None),) * axis + (item,)]
    return data[()]


# The laws -----------------------------------------------------------------------------------------


def assert_same(got: Any, expected: Any) -> None:
    assert isinstance(got, np.ndarray) == isinstance(expected, np.ndarray)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected, strict=True)


def check_reading(shape: Shape, key: Any) -> None:
    data = numbered(shape)
    try:
        expected = data[key]
    except (IndexError, OverflowError):
        with pytest.raises(SelectionError):
            parse(key, shape)
        return
    selection = parse(key, shape)
    assert selection.shape == np.shape(expected)
    assert_same(selection.finish(read_whole(data, selection)), expected)


@many
@given(cases(kinds="is"))
def test_plain_keys_read_as_numpy(case: tuple[Shape, Any]) -> None:
    check_reading(*case)


@many
@given(cases())
def test_any_key_reads_as_numpy(case: tuple[Shape, Any]) -> None:
    check_reading(*case)


@some
@given(cases(kinds="aaais"))
def test_index_arrays_read_as_numpy(case: tuple[Shape, Any]) -> None:
    check_reading(*case)


@st.composite
def chunked_cases(draw: st.DrawFn) -> tuple[ChunkGrid, Any]:
    shape, key = draw(cases() | cases(kinds="aaaiism"))
    chunk = tuple(draw(st.integers(1, size + 2)) for size in shape)
    return ChunkGrid(shape, chunk, padded=draw(coin)), key


@many
@given(chunked_cases())
def test_reading_chunk_by_chunk(case: tuple[ChunkGrid, Any]) -> None:
    grid, key = case
    data = numbered(grid.shape)
    try:
        expected = data[key]
    except (IndexError, OverflowError):
        return
    selection = parse(key, grid.shape)
    chunks = cut(data, grid)
    engine = np.full(selection.engine_shape, -3, dtype=np.int64)
    for coords, inside, target in chunk_parts(selection, grid.chunk):
        assert all(
            (index >= 0).all() and (index < size).all()
            for index, size in zip(inside, grid.valid_shape(coords), strict=True)
        )
        engine[target] = chunks[coords][inside]
    assert_same(selection.finish(engine), expected)


@st.composite
def values(draw: st.DrawFn, shape: Shape) -> NDArray[np.int64]:
    """Distinct items that broadcast to the shape, or almost."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    lengths = [1 if draw(st.integers(0, 3)) == 0 else length for length in kept]
    if len(kept) == len(shape):
        lengths = [1] * draw(st.integers(0, 2)) + lengths
    if lengths and draw(st.integers(0, 9)) == 0:
        lengths[0] += 1
    return 1000 + numbered(tuple(lengths))


def error_of_numpy(array: NDArray[Any], key: Any, value: NDArray[Any]) -> str | None:
    """Assign; what NumPy says if it refuses to."""
    excess = value.shape[: max(0, value.ndim - np.ndim(array[key]))]
    # By accident NumPy drops any leading axes when there are no items, not only those of length 1.
    assume(value.size or set(excess) <= {1})
    try:
        array[key] = value
    except ValueError as error:
        return str(error).strip()
    except TypeError as error:
        # It does not drop them at all when the key is one mask of all axes.
        assume("requires a 0 or 1-dimensional input" not in str(error))
        raise
    return None


@many
@given(chunked_cases(), st.data())
def test_assigning_chunk_by_chunk(case: tuple[ChunkGrid, Any], draws: st.DataObject) -> None:
    grid, key = case
    expected = numbered(grid.shape)
    chunks = cut(expected, grid)
    try:
        value = draws.draw(values(np.shape(expected[key])))
    except (IndexError, OverflowError):
        return
    selection = parse(key, grid.shape)
    complaint = error_of_numpy(expected, key, value)
    if complaint is not None:
        with pytest.raises(ValueError) as caught:
            selection.prepare(value)
        # For a mask of all axes NumPy counts the items that are true; ours speaks of shapes.
        if "where the mask is true" not in complaint:
            assert str(caught.value) == complaint
        return
    engine = selection.prepare(value, expected.dtype)
    assert engine.shape == selection.engine_shape
    for coords, inside, target in chunk_parts(selection, grid.chunk):
        chunks[coords][inside] = engine[target]
    np.testing.assert_array_equal(joined(chunks, grid), expected)


@st.composite
def orthogonal_cases(draw: st.DrawFn) -> tuple[Shape, tuple[Any, ...]]:
    shape = draw(shapes)
    items: list[Any] = []
    for size in shape:
        count = draw(st.integers(0, 5)) if size else 0
        items.append(
            draw(
                slices(size)
                | masks((size,))
                | (st.integers(-size, size - 1) if size else slices(size))
                | index_arrays(size, (count,)).filter(lambda item: np.ndim(item) == 1)
            )
        )
    return shape, tuple(items)


@many
@given(orthogonal_cases())
def test_orthogonal_keys_read_axis_by_axis(case: tuple[Shape, tuple[Any, ...]]) -> None:
    shape, key = case
    data = numbered(shape)
    try:
        expected = orthogonal(data, key)
    except IndexError:
        with pytest.raises(SelectionError):
            parse_orthogonal(key, shape)
        return
    selection = parse_orthogonal(key, shape)
    assert_same(selection.finish(read_whole(data, selection)), expected)


@some
@given(orthogonal_cases(), st.data())
def test_orthogonal_keys_assign(case: tuple[Shape, tuple[Any, ...]], draws: st.DataObject) -> None:
    shape, key = case
    expected, got = numbered(shape), numbered(shape)
    try:
        # The items themselves, as an array of places: assigning to those is assigning to the key.
        places = np.asarray(orthogonal(expected.copy(), key))
    except IndexError:
        return
    value = draws.draw(st.just(places + 1000) | st.just(np.int64(7)))
    expected.reshape(-1)[places.reshape(-1)] = np.broadcast_to(value, places.shape).reshape(-1)
    selection = parse_orthogonal(key, shape)
    engine = selection.prepare(value)
    if 0 not in selection.engine_shape:
        got[engine_index(selection)] = engine
    np.testing.assert_array_equal(got, expected)


@many
@given(
    st.integers(0, 200),
    st.integers(0, 60),
    st.integers(-70, 70).filter(bool),
    st.integers(1, 80),
)
def test_cuts_are_complete(start: int, count: int, step: int, chunk: int) -> None:
    start += max(0, -step * count)
    rows = cut_range(start, count, step, chunk)
    assert count_parts(start, count, step, chunk) == len(rows)
    assert len({number for number, *_ in rows}) == len(rows)
    assert [
        (position + k, number * chunk + offset + k * step)
        for number, offset, items, position in rows
        for k in range(items)
    ] == [(k, start + k * step) for k in range(count)]
    assert all(
        0 <= offset < chunk and 0 <= offset + (items - 1) * step < chunk and items > 0
        for _, offset, items, _ in rows
    )


@many
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=40), st.data())
def test_groups_hold_every_point_once(points: list[tuple[int, int]], draws: st.DataObject) -> None:
    chunk = (draws.draw(st.integers(1, 40)), draws.draw(st.integers(1, 40)))
    if draws.draw(coin):
        points.sort()
    columns = np.array(points, dtype=np.int64).reshape(-1, 2).T
    groups = group_points(list(columns), chunk)
    seen = []
    for group, coords in enumerate(groups.chunks.tolist()):
        inside = range(*groups.bounds[group : group + 2].tolist())
        members = groups.order[inside.start : inside.stop].tolist()
        assert members
        assert members == sorted(members)
        for k, member in zip(inside, members, strict=True):
            located = [
                c * n + int(o[k]) for c, n, o in zip(coords, chunk, groups.offsets, strict=True)
            ]
            assert tuple(located) == points[member]
            assert [x // n for x, n in zip(points[member], chunk, strict=True)] == coords
        seen += members
    assert sorted(seen) == list(range(len(points)))
    assert groups.chunks.tolist() == sorted(groups.chunks.tolist())
    assert groups.ordered == (groups.order.tolist() == list(range(len(points))))

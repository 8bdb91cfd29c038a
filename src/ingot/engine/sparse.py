"""Sparse arrays: which of the very many chunks of a selection are stored.

A file may claim any number of chunks, of which few are stored. Where a selection touches very many
chunks and few of them are stored, they are found by listing the store, so that the work is bounded
by what is stored. This module lists; it reads no array data.
"""

import math
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.engine import plan
from ingot.formats.format import ChunkMap, Coords, as_sharded, manifested, stored_map
from ingot.formats.keys import stored
from ingot.grid import ChunkGrid, RectilinearAxis
from ingot.selection import BasicSelection, CoordinateSelection, Selection
from ingot.stores.store import Constant, Extent, Feature

__all__ = ["MANY", "file_numbers", "lost_among", "lost_files", "stored_coords", "stored_files"]

IntArray = NDArray[np.int64]

MANY: Final = 4096
"""Up to this many chunks, asking for each is cheaper than listing the store."""

# Where at least so many of so many chunks, chosen at random, are stored, all are asked for.
_SAMPLED: Final = 32
_MANY_SAMPLED: Final = 4
# How many chunks of shards are looked up at once.
_WINDOW: Final = 4096


def stored_files(chunks: ChunkMap, selection: Selection, many: int = MANY) -> IntArray | None:
    """Return the stored files of which a selection wants items, as a table of coordinates.

    A file is a chunk, or a shard where the array has them. Returns None where it is better to ask
    for every chunk: the selection touches at most `many` chunks, a good part of them is stored, no
    chunk may be absent, or the store does not list its keys.
    """
    files = stored_map(chunks)
    if not chunks.schema.sparse or files.template is None or 0 in selection.engine_shape:
        return None
    if Feature.LIST not in files.store.features or not files.schema.shape:
        return None
    grid = chunks.schema.grid
    # No more than this, and cheaper to count than the chunks of index arrays.
    shape = selection.engine_shape
    points = isinstance(selection, CoordinateSelection)
    if math.prod(shape if points else map(min, shape, grid.counts)) <= many:
        return None
    if plan.count_rows(selection, grid) <= many or _mostly_stored(files, selection):
        return None
    grid = files.schema.grid
    counts = grid.counts
    listed = [
        coords
        for coords in stored(files.store, files.template, len(counts))
        if all(map(int.__lt__, coords, counts))
    ]
    table = np.array(sorted(listed), np.int64).reshape(len(listed), len(counts))
    return _wanted(table, selection, grid)


def lost_files(chunks: ChunkMap, selection: Selection) -> list[Coords]:
    """Return the files of a selection that the manifest of an array names and that are absent.

    A file is a chunk, or a shard where the array has them. Without a manifest none is known.
    """
    named, files = manifested(chunks), stored_map(chunks)
    if named is None or 0 in selection.engine_shape:
        return []
    grid, rows = files.schema.grid, None
    if grid.counts:
        first, axis = _axes(selection)[0], grid.axes[0]
        ends = (first[0], first[-1]) if isinstance(first, range) else (first.min(), first.max())
        rows = range(_number(int(min(ends)), axis), _number(int(max(ends)), axis) + 1)
    wanted = map(tuple, _wanted(named.named_chunks(rows), selection, grid).tolist())
    return _absent(files, [row.coords for row in plan.rows_of(selection, grid, wanted)])


def lost_among(chunks: ChunkMap, files: Sequence[Coords]) -> set[Coords]:
    """Return those of some files that the manifest of an array names and that are absent."""
    named = manifested(chunks) if files else None
    if named is None:
        return set()
    rows = range(min(files)[0], max(files)[0] + 1) if files[0] else None
    wanted = set(files)
    names = (tuple(row) for row in named.named_chunks(rows).tolist())
    return set(_absent(stored_map(chunks), [each for each in names if each in wanted]))


def _absent(files: ChunkMap, named: Sequence[Coords]) -> list[Coords]:
    """Return those of some files that are not stored."""
    template = files.template
    assert template is not None
    if len(named) <= MANY or Feature.LIST not in files.store.features:
        return [each for each in named if files.store.size(template.key(each)) is None]
    present = set(stored(files.store, template, len(files.schema.grid.counts)))
    return [each for each in named if each not in present]


def _wanted(table: IntArray, selection: Selection, grid: ChunkGrid) -> IntArray:
    """Return the rows of a table of files of which the axes of a selection want items."""
    for axis, (positions, chunk) in enumerate(zip(_axes(selection), grid.axes, strict=True)):
        table = table[_parts(positions, chunk, table[:, axis]) >= 0]
    return table


def file_numbers(files: IntArray, selection: Selection, grid: ChunkGrid) -> list[int]:
    """Return the numbers of files among all that a box or an outer product touches, in C order.

    >>> from ingot.selection import parse
    >>> grid = ChunkGrid((10, 10), (4, 4), padded=True)
    >>> file_numbers(np.array([[1, 0], [2, 2]]), parse((slice(4, 10), ...), (10, 10)), grid)
    [0, 5]
    """
    numbers = np.zeros(len(files), np.int64)
    for axis, (positions, chunk) in enumerate(zip(_axes(selection), grid.axes, strict=True)):
        count = plan.count_axis(positions, chunk)
        numbers = numbers * count + _parts(positions, chunk, files[:, axis])
    found: list[int] = numbers.tolist()
    return found


def stored_coords(chunks: ChunkMap, files: IntArray, selection: Selection) -> Iterator[Coords]:
    """Yield the chunks in stored files that are stored and of which a selection wants items."""
    if as_sharded(chunks) is None:
        yield from map(tuple, files.tolist())
        return
    grid = chunks.schema.grid
    unit = [
        shard // chunk
        for shard, chunk in zip(stored_map(chunks).schema.chunks, chunks.schema.chunks, strict=True)
    ]
    for shard in files.tolist():
        inside = (
            range(place * count, min((place + 1) * count, total))
            for place, count, total in zip(shard, unit, grid.counts, strict=True)
        )
        axes = [
            plan.touched_chunks(positions, chunk, numbers)
            for positions, chunk, numbers in zip(_axes(selection), grid.axes, inside, strict=True)
        ]
        found = plan.lazy_product(axes)
        while window := list(islice(found, _WINDOW)):
            table = np.array(window, np.int64).reshape(len(window), len(unit))
            for coords, location in zip(window, chunks.locate(table), strict=True):
                absent = isinstance(location, Extent) and location.length == 0
                if not isinstance(location, Constant) and not absent:
                    yield coords


def _mostly_stored(files: ChunkMap, selection: Selection) -> bool:
    """Return whether a good part of the files that a selection touches is stored, by a sample."""
    template, grid = files.template, files.schema.grid
    assert template is not None
    extents = []
    for _ in range(_SAMPLED):
        point = _below(selection.engine_shape[0])
        coords = [
            _number(
                int(positions[point])
                if isinstance(selection, CoordinateSelection) and not isinstance(positions, range)
                else int(positions[_below(len(positions))]),
                chunk,
            )
            for positions, chunk in zip(_axes(selection), grid.axes, strict=True)
        ]
        extents.append(Extent(template.key(coords), 0, 1))
    return sum(each is not None for each in files.store.read(extents)) >= _MANY_SAMPLED


def _below(stop: int) -> int:
    """Return a random number; importing `random` takes longer than reading an array."""
    return int.from_bytes(os.urandom(16)) % stop


def _axes(selection: Selection) -> tuple[range | IntArray, ...]:
    if not isinstance(selection, BasicSelection):
        return selection.axes
    box = zip(selection.starts, selection.counts, selection.steps, strict=True)
    return tuple(range(start, start + count * step, step) for start, count, step in box)


def _number(position: int, chunk: int | RectilinearAxis) -> int:
    if isinstance(chunk, int):
        return position // chunk
    return int(chunk.numbers(np.array([position]))[0])


def _parts(
    positions: range | IntArray, chunk: int | RectilinearAxis, numbers: IntArray
) -> IntArray:
    """Return which part of an axis lies in each of some chunks; -1 where none does."""
    if isinstance(positions, range) and isinstance(chunk, int):
        ascending = positions if positions.step > 0 else positions[::-1]
        low, high, step = ascending[0], ascending[-1], ascending.step
        inside = (numbers >= low // chunk) & (numbers <= high // chunk)
        if step < chunk:
            return np.where(inside, numbers - low // chunk, -1)
        begins = np.where(inside, numbers, low // chunk) * chunk
        parts = np.maximum(-((low - begins) // step), 0)
        return np.where(inside & ((low + parts * step) // chunk == numbers), parts, -1)
    touched = np.array(plan.axis_chunks(positions, chunk), np.int64)
    places = np.minimum(np.searchsorted(touched, numbers), len(touched) - 1)
    return np.where(touched[places] == numbers, places, -1)

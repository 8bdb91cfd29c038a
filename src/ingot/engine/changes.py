"""The changes of an array, each as the state that it leads to and the commit that leads there.

Knows in which order what an array gains and loses reaches the store, so that a crash leaves one
state or the other. Refuses to apply anything: the commit may be part of a larger one, and the turn
of a writer is for its caller to take.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.engine import kernel
from ingot.engine.run import Engine
from ingot.formats.format import ChunkMap, Coords, as_sharded
from ingot.grid import ChunkGrid
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import Selection, parse
from ingot.stores.store import Commit

__all__ = [
    "Growth",
    "Step",
    "appended",
    "assigned",
    "described",
    "evaluated",
    "filled",
    "grown",
    "items_of",
    "resized",
]


class Step(NamedTuple):
    """An array after a change, and how it gets there."""

    engine: Engine
    commit: Commit


def assigned(engine: Engine, selection: Selection, value: object) -> Step:
    """Return what assigning to a selection leads to."""
    commit = engine.written(selection, value)
    return Step(engine.settled(), commit)


def grown(engine: Engine, shape: tuple[int, ...], place: Selection, values: NDArray[Any]) -> Step:
    """Return what it leads to when an array gets a larger shape, and `values` fill all of that.

    The values are stored first and the shape last. Until then nobody reads them: cells of an edge
    chunk that lie beyond the edge mean nothing.
    """
    chunks, commit = engine.chunks.resized(shape)
    after = engine.following(chunks)
    first = after.written(place, values)
    return Step(after.settled(), _first(chunks, first, commit))


def resized(engine: Engine, shape: tuple[int, ...]) -> Step:
    """Return what another shape leads to; cells that come into being hold the fill value.

    What the edge chunks hold beyond the edge is cleared before it comes to light.
    """
    chunks, commit = engine.chunks.resized(shape)
    after = engine.following(chunks)
    sparse = chunks.schema.sparse
    cleared = after.staged(_cleared(engine, shape) if sparse else _added(engine, after))
    return Step(after.settled(), _first(chunks, cleared, commit))


def filled(engine: Engine) -> Commit:
    """Return the commit that stores a new array of nothing but the fill value.

    Where chunks may be absent, nothing is all that it takes.
    """
    grid = engine.chunks.schema.grid
    if engine.chunks.schema.sparse:
        return Commit()
    every = map(grid.coords, range(grid.chunk_count))
    return engine.staged((coords, engine.blank(coords, None)) for coords in every)


def recoded(
    source: ChunkMap, rows: slice, target: ChunkMap, place: slice, options: Options
) -> Commit:
    """Return the commit that stores rows of one array as rows of another."""
    values = Engine(source, options).read(parse(rows, source.schema.shape))
    return Engine(target, options).written(parse(place, target.schema.shape), values)


def described(engine: Engine, attrs: Mapping[str, Any]) -> Step:
    """Return what other attributes lead to."""
    chunks, commit = engine.chunks.described(attrs)
    return Step(engine.following(chunks).settled(), commit)


def _first(chunks: ChunkMap, data: Commit, shape: Commit) -> Commit:
    """Return the commit of a shape that what `data` publishes goes ahead of."""
    prepare = (*shape.prepare, *data.prepare)
    cleanup = (*shape.cleanup, *data.cleanup)
    if as_sharded(chunks) is not None:
        # Another shard in the place of one whose index was read: only the number of the state
        # tells the reader that the chunks which it reads next may lie elsewhere.
        return Commit(prepare, (*data.publish, *shape.publish), cleanup)
    return Commit((*prepare, *data.publish), shape.publish, cleanup)


def _cleared(engine: Engine, shape: tuple[int, ...]) -> Iterator[tuple[Coords, NDArray[Any]]]:
    """Yield the edge chunks that hold anything beyond the edge that a larger shape would show."""
    schema = engine.chunks.schema
    grid, fill = schema.grid, kernel.fill_item(schema)
    for coords, old in engine.stored(_edges(grid, shape)):
        chunk = np.full(old.shape, fill, old.dtype)
        valid = tuple(map(slice, grid.valid_shape(coords)))
        chunk[valid] = old[valid]
        yield coords, chunk


def _added(engine: Engine, after: Engine) -> Iterator[tuple[Coords, NDArray[Any]]]:
    """Yield the chunks that are new or longer when rows are added, where none may be absent."""
    old, new = engine.chunks.schema.grid, after.chunks.schema.grid
    if new.shape[0] <= old.shape[0] or not new.chunk_count:
        return
    first = old.shape[0] // new.chunk[0]
    for number in range(first, new.counts[0]):
        coords = (number,) + (0,) * (len(new.shape) - 1)
        kept = dict(engine.stored([coords])) if number < old.counts[0] else {}
        yield coords, after.blank(coords, kept.get(coords))


def _edges(grid: ChunkGrid, shape: tuple[int, ...]) -> Iterator[Coords]:
    """Yield the chunks that reach beyond the edge of an axis that gets longer."""
    if not grid.padded:
        return
    reaching = [
        reach > length and new > length
        for length, reach, new in zip(grid.shape, grid.reach, shape, strict=True)
    ]
    kept = ChunkGrid(tuple(map(min, grid.shape, shape)), grid.chunk, grid.padded, grid.rectilinear)
    for axis in itertools.compress(range(len(shape)), reaching):
        # Each chunk once: on the axes before this one, not at an edge that was visited already.
        ranges = [range(kept.counts[n] - (n < axis and reaching[n])) for n in range(len(shape))]
        ranges[axis] = range(max(kept.counts[axis] - 1, 0), kept.counts[axis])
        yield from itertools.product(*ranges)


class Growth(NamedTuple):
    """Where values go, the values, and the shape of the array that has such a place."""

    place: Selection
    values: NDArray[Any]
    shape: tuple[int, ...]


def appended(values: object, schema: ArraySchema, axis: int) -> Growth:
    """Return what becomes of an array when values are added at the end of an axis.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((9, 2), np.dtype("<i4"), (4, 2), CodecChain(), 0)
    >>> appended([[1, 2]], schema, axis=0).shape
    (10, 2)
    >>> appended([1, 2], schema, axis=0)
    Traceback (most recent call last):
    ValueError: values of shape (2,) cannot be appended to (9, 2) along axis 0
    """
    old = schema.shape
    axis = normalize_axis_index(axis, len(old))
    added = items_of(values, schema, axis)
    length = old[axis] + added.shape[axis] if axis < added.ndim else 0
    shape = (*old[:axis], length, *old[axis + 1 :])
    if added.shape != (*old[:axis], length - old[axis], *old[axis + 1 :]):
        raise ValueError(
            f"values of shape {added.shape} cannot be appended to {old} along axis {axis}"
        )
    place = parse((*[slice(None)] * axis, slice(old[axis], None)), shape)
    return Growth(place, added, shape)


def items_of(values: object, schema: ArraySchema, axis: int = 0) -> NDArray[Any]:
    """Return values to append as items of an array; those of its type already stay as they are."""
    if schema.dtype == np.dtype(object) and axis == 0 and isinstance(values, list | tuple):
        # An item may be a list itself: how deep to look, the shape of the array tells.
        items = np.empty((len(values), *schema.shape[1:]), schema.dtype)
        for position, value in enumerate(values):
            items[position] = value
        return items
    return np.asarray(values, schema.dtype)


def evaluated(value: object, dtype: DType) -> object:
    """Return a value to assign as an array, so that its own code runs before a lock is taken.

    What only NumPy's own assignment can convert stays as it is.

    >>> evaluated([1.5, 2], np.dtype("i2"))
    array([1, 2], dtype=int16)
    """
    return value if dtype.kind in "OT" else np.asarray(value, dtype)

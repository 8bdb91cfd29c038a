"""The changes of an array: assign, append, resize, fill, recode, and other attributes.

A change is the engine of the new state and the commit that leads to it, or only the commit. Commits
are ordered so that a crash leaves the old or the new state. Nothing is applied here: the caller
holds the writer lock, and the commit may be part of a larger one. `evaluated`, `items_of` and
`appended` convert the values of a caller, before the lock is taken where that is possible.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.engine import flat, kernel
from ingot.engine.payload import FlatEngine, engine_of
from ingot.engine.plan import lazy_product
from ingot.engine.run import Engine, assign_together
from ingot.errors import ArgumentError, LimitError, UnsupportedError
from ingot.formats.format import (
    ChunkMap,
    Coords,
    as_sharded,
    compactable,
    is_relocating,
    recorded,
)
from ingot.grid import ChunkGrid, axis_numbers
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import Selection, parse
from ingot.stores.store import Commit, Patch
from ingot.values import as_array

__all__ = [
    "ArrayChange",
    "Growth",
    "appended",
    "assigned",
    "assigned_together",
    "change_of",
    "check_numbers",
    "compacted",
    "copied",
    "described",
    "evaluated",
    "filled",
    "grown",
    "grown_together",
    "items_of",
    "joined",
    "recoded",
    "reshaped",
    "reshaping",
    "resized",
    "without_rows",
]


_LONGEST: Final = 2**63 - 1


class ArrayChange(NamedTuple):
    """The engine of an array after a change, and the commit of the change."""

    engine: Engine
    commit: Commit


class Growth(NamedTuple):
    """Values to append: the selection they fill, the values, and the new shape of the array."""

    selection: Selection
    values: NDArray[Any]
    shape: tuple[int, ...]


def change_of(engine: Engine, commit: Commit) -> ArrayChange:
    """Return the change that a commit makes, which also keeps the manifest of chunks, if any.

    Called by the one writer.
    """
    return ArrayChange(engine, recorded(engine.chunks, commit))


def evaluated(value: object, dtype: DType) -> object:
    """Return a value to assign as an array, so that its own code runs before a lock is taken.

    Values for objects and text stay unchanged: only the assignment itself converts them.

    >>> evaluated([1.5, 2], np.dtype("i2"))
    array([1, 2], dtype=int16)
    """
    if dtype.kind in "OT":
        return value
    check_numbers(value, dtype)
    return as_array(value, dtype)


def check_numbers(values: object, dtype: DType) -> None:
    """Refuse NaN and infinities for integers: NumPy makes some number of them.

    >>> check_numbers(np.array([1.5, np.nan]), np.dtype("i4"))
    Traceback (most recent call last):
    ingot.errors.ArgumentError: an array of int32 cannot hold nan
    """
    if dtype.kind not in "iu" or not isinstance(values, np.ndarray | np.generic):
        return
    if values.dtype.kind in "fc" and not (finite := np.isfinite(values)).all():
        wrong = np.asarray(values)[~np.asarray(finite)].flat[0]
        raise ArgumentError(f"an array of {dtype} cannot hold {wrong}")


def items_of(values: object, schema: ArraySchema, axis: int = 0) -> NDArray[Any]:
    """Return values to append as an array of the schema's type; one of that type is not copied."""
    if schema.dtype == np.dtype(object) and axis == 0 and isinstance(values, list | tuple):
        # An item may be a list itself, so NumPy must not find the shape by nesting.
        items = np.empty((len(values), *schema.shape[1:]), schema.dtype)
        for position, value in enumerate(values):
            items[position] = value
        return items
    check_numbers(values, schema.dtype)
    return as_array(values, schema.dtype)


def appended(values: object, schema: ArraySchema, axis: int) -> Growth:
    """Check values to append at the end of an axis, and return where they go.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((9, 2), np.dtype("<i4"), (4, 2), CodecChain(), 0)
    >>> appended([[1, 2]], schema, axis=0).shape
    (10, 2)
    >>> appended([1, 2], schema, axis=0)
    Traceback (most recent call last):
    ingot.errors.ArgumentError: values of shape (2,) cannot be appended to (9, 2) along axis 0
    """
    old = schema.shape
    (axis,) = axis_numbers(axis, len(old))
    added = items_of(values, schema, axis)
    length = old[axis] + added.shape[axis] if axis < added.ndim else 0
    shape = (*old[:axis], length, *old[axis + 1 :])
    if added.shape != (*old[:axis], length - old[axis], *old[axis + 1 :]):
        raise ArgumentError(
            f"values of shape {added.shape} cannot be appended to {old} along axis {axis}"
        )
    selection = parse((*[slice(None)] * axis, slice(old[axis], None)), shape)
    return Growth(selection, added, shape)


def assigned(engine: Engine, selection: Selection, value: object) -> ArrayChange:
    """Assign a value to a selection."""
    commit = engine.assign(selection, value)
    return change_of(engine.committed(), commit)


def assigned_together(
    assignments: Sequence[tuple[Engine, Selection, object]],
) -> list[ArrayChange]:
    """Assign values to selections of several arrays of one store."""
    commits = assign_together(assignments)
    pairs = zip(assignments, commits, strict=True)
    return [change_of(engine.committed(), commit) for (engine, *_), commit in pairs]


def grown(
    engine: Engine, shape: tuple[int, ...], selection: Selection, values: NDArray[Any]
) -> ArrayChange:
    """Give an array a larger shape; `selection` is all of the new part, `values` its content.

    The values are stored first and the shape last. Until then no reader sees the values: the cells
    of an edge chunk that lie beyond the edge mean nothing.
    """
    after, commit = reshaping(engine, shape)
    if isinstance(after, FlatEngine) and not values.size:
        data = after.resize_payload()
    else:
        data = after.assign(selection, values)
    return change_of(after.committed(), _data_first(after.chunks, data, commit))


def grown_together(
    growths: Sequence[tuple[Engine, tuple[int, ...], Selection, NDArray[Any]]],
) -> list[ArrayChange]:
    """Give several arrays of one store, none of them flat, larger shapes, each as `grown` does."""
    resized = [reshaping(engine, shape) for engine, shape, _, _ in growths]
    assignments = [
        (after, selection, values)
        for (after, _), (_, _, selection, values) in zip(resized, growths, strict=True)
    ]
    data = assign_together(assignments)
    return [
        change_of(after.committed(), _data_first(after.chunks, each, commit))
        for (after, commit), each in zip(resized, data, strict=True)
    ]


def reshaping(engine: Engine, shape: tuple[int, ...]) -> tuple[Engine, Commit]:
    """Return the engine that builds the state of another shape, and the commit of the shape."""
    if max(shape) > _LONGEST:
        raise LimitError(f"shape {shape}: an axis has at most 2**63 - 1 items")
    if engine.chunks.schema.flat is not None:
        flat.check_shape(engine.chunks.schema, shape)
    chunks, commit = engine.chunks.resized(shape)
    return engine.next_state(chunks), commit


def reshaped(engine: Engine, shape: tuple[int, ...]) -> Engine:
    """Return the engine that builds the state of a larger shape; the same one for its own shape."""
    return engine if shape == engine.shape else reshaping(engine, shape)[0]


def joined(engine: Engine, shape: tuple[int, ...], data: Commit) -> ArrayChange:
    """Give an array a larger shape, or its own, and chunks that engines of `reshaped` staged."""
    if shape == engine.shape:
        return change_of(engine.committed(), data)
    after, commit = reshaping(engine, shape)
    return change_of(after.committed(), _data_first(after.chunks, data, commit))


def resized(engine: Engine, shape: tuple[int, ...]) -> ArrayChange:
    """Give an array another shape; new cells hold the fill value.

    What the edge chunks hold beyond the old edge is cleared before the new shape shows it.
    """
    if engine.chunks.schema.flat is not None:
        flat.check_shape(engine.chunks.schema, shape)
    chunks, commit = engine.chunks.resized(shape)
    after = engine.next_state(chunks)
    if isinstance(after, FlatEngine):
        return change_of(after.committed(), _data_first(chunks, after.resize_payload(), commit))
    sparse = chunks.schema.sparse
    data = after.stage(_cleared(engine, shape) if sparse else _added(engine, after))
    return change_of(after.committed(), _data_first(chunks, data, commit))


def filled(engine: Engine) -> Commit:
    """Return the commit that stores a new array in which every item is the fill value.

    Where chunks may be absent the commit is empty.
    """
    grid = engine.chunks.schema.grid
    if engine.chunks.schema.sparse:
        return Commit()
    if isinstance(engine, FlatEngine):
        return engine.fill_payload()
    engine.check_count(grid.chunk_count)
    every = map(grid.coords, range(grid.chunk_count))
    return engine.stage((coords, engine.writable_chunk(coords, None)) for coords in every)


def copied(source: ChunkMap, target: ChunkMap, offset: int, options: Options) -> Commit | None:
    """Return the commit that stores chunks of one array as those of another, their bytes verified.

    Chunk n of `target` is chunk n + `offset` of `source`. None where only the format can do it.
    """
    return engine_of(target, options).copied(engine_of(source, options), offset)


def recoded(
    source: ChunkMap, rows: slice, target: ChunkMap, target_rows: slice, options: Options
) -> Commit:
    """Return the commit that stores rows of one array as rows of another."""
    values = engine_of(source, options).read(parse(rows, source.schema.shape))
    return engine_of(target, options).assign(parse(target_rows, target.schema.shape), values)


def without_rows(engine: Engine, rows: NDArray[np.int64]) -> ArrayChange:
    """Remove rows, whose numbers ascend, from an array whose engine `has_rows`.

    The chunks and the length are published together: rows behind the first removed one move up.
    """
    chunks, commit = engine.chunks.resized((engine.shape[0] - len(rows), *engine.shape[1:]))
    engine.layout()  # That of the next state is made from it.
    after = engine.next_state(chunks)
    data = after.without_rows(engine, rows)
    publish = (*data.publish, *commit.publish)
    whole = Commit((*data.prepare, *commit.prepare), publish, (*data.cleanup, *commit.cleanup))
    return change_of(after.committed(), whole)


def described(engine: Engine, attrs: Mapping[str, Any]) -> ArrayChange:
    """Give an array other attributes."""
    chunks, commit = engine.chunks.described(attrs)
    return change_of(engine.next_state(chunks).committed(), commit)


def compacted(engine: Engine) -> ArrayChange:
    """Make files with dead bytes anew, without them."""
    chunks = compactable(engine.chunks)
    if chunks is None:
        raise UnsupportedError(
            f"{engine.chunks.store.location}: files of this format have no dead bytes"
        )
    commit = chunks.compacted()
    return change_of(engine.committed(), commit)


def _data_first(chunks: ChunkMap, data: Commit, shape: Commit) -> Commit:
    """Return the commit that stores data and then publishes a shape."""
    prepare = (*shape.prepare, *data.prepare)
    cleanup = (*shape.cleanup, *data.cleanup)
    # A patch changes bytes that the committed state reaches. And data that replace a shard may
    # replace an index that a reader holds: only a change of the version makes the reader read it
    # again, and so may chunks that change their places. The chunks and the shape of a flat array
    # lie in one file. In all these cases data and shape are published together.
    together = as_sharded(chunks) is not None or chunks.schema.flat is not None
    if together or is_relocating(chunks) or any(isinstance(edit, Patch) for edit in data.publish):
        return Commit(prepare, (*data.publish, *shape.publish), cleanup)
    return Commit((*prepare, *data.publish), shape.publish, cleanup)


def _cleared(engine: Engine, shape: tuple[int, ...]) -> Iterator[tuple[Coords, NDArray[Any]]]:
    """Yield the stored edge chunks, with the fill value in the cells that a larger shape shows."""
    schema = engine.chunks.schema
    grid, fill = schema.grid, kernel.fill_item(schema)
    for coords, old in engine.stored_chunks(_stored_edges(engine, shape)):
        chunk = np.full(old.shape, fill, old.dtype)
        valid = tuple(map(slice, grid.valid_shape(coords)))
        chunk[valid] = old[valid]
        yield coords, chunk


def _added(engine: Engine, after: Engine) -> Iterator[tuple[Coords, NDArray[Any]]]:
    """Yield the chunks that added rows create or lengthen, where no chunk may be absent."""
    old, new = engine.chunks.schema.grid, after.chunks.schema.grid
    if new.shape[0] <= old.shape[0] or not new.chunk_count:
        return
    first = old.shape[0] // new.chunk[0]
    after.check_count(new.counts[0] - first)
    for number in range(first, new.counts[0]):
        coords = (number,) + (0,) * (len(new.shape) - 1)
        kept = dict(engine.stored_chunks([coords])) if number < old.counts[0] else {}
        yield coords, after.writable_chunk(coords, kept.get(coords))


def _stored_edges(engine: Engine, shape: tuple[int, ...]) -> Iterator[Coords]:
    """Yield what `_edges` does, without chunks that are not stored where the array is sparse."""
    grid = engine.chunks.schema.grid
    stored = engine.stored_coords(parse(..., grid.shape))
    if stored is None:
        return _edges(grid, shape)
    reaching = _reaching(grid, shape)
    lasts = [count - 1 for count in _kept(grid, shape).counts]
    return (
        coords
        for coords in stored
        if all(map(int.__le__, coords, lasts))
        and any(itertools.compress(map(int.__eq__, coords, lasts), reaching))
    )


def _edges(grid: ChunkGrid, shape: tuple[int, ...]) -> Iterator[Coords]:
    """Yield the coordinates of chunks that reach beyond the edge of an axis that gets longer."""
    reaching, kept = _reaching(grid, shape), _kept(grid, shape)
    for axis in itertools.compress(range(len(shape)), reaching):
        # Each chunk once: earlier axes leave out the edge chunks that their own round yielded.
        ranges = [range(kept.counts[n] - (n < axis and reaching[n])) for n in range(len(shape))]
        ranges[axis] = range(max(kept.counts[axis] - 1, 0), kept.counts[axis])
        yield from lazy_product(ranges)


def _reaching(grid: ChunkGrid, shape: tuple[int, ...]) -> list[bool]:
    """Return for each axis whether it gets longer and its last chunk reaches beyond its edge."""
    return [
        grid.padded and reach > length and new > length
        for length, reach, new in zip(grid.shape, grid.reach, shape, strict=True)
    ]


def _kept(grid: ChunkGrid, shape: tuple[int, ...]) -> ChunkGrid:
    """Return the grid of the chunks that an array keeps in another shape."""
    common = tuple(map(min, grid.shape, shape))
    return ChunkGrid(common, grid.chunk, grid.padded, grid.rectilinear)

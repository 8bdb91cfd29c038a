"""Moving the items of one dataset into another, whatever the chunks of both, in bounded memory.

A window is a box of whole chunks of the target. It is read from the source, encoded and staged
before the next one is read. No chunk of the source is read more than twice (`engine.rechunk`).
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import is_variable
from ingot.engine import moves, ragged, rechunk
from ingot.engine.payload import FlatEngine
from ingot.engine.ragged import RaggedEngine
from ingot.engine.rechunk import Box
from ingot.engine.run import Engine
from ingot.errors import CorruptionError
from ingot.formats.format import stored_map, streaming
from ingot.grid import ChunkGrid, blocks
from ingot.ragged_array import RaggedArray
from ingot.schema import ArraySchema
from ingot.selection import BasicSelection, parse
from ingot.stores.store import Commit, Delete, Edit, Feature, native_root

__all__ = [
    "Report",
    "Tally",
    "compare",
    "compare_items",
    "is_windowed",
    "transferred",
    "transferred_items",
    "transferred_whole",
    "transferred_windows",
    "windows",
]

Report: TypeAlias = Callable[[int], object]
"""Called with the number of bytes of a window that is done."""


@dataclass(slots=True)
class Tally:
    """Counts chunks that are stored, and how many of them were moved without being encoded."""

    report: Report = lambda count: None
    chunks: int = 0
    untouched: int = 0

    def moved(self, count: int, untouched: bool) -> None:
        """Count one chunk of `count` bytes."""
        self.chunks += 1
        self.untouched += untouched
        self.report(count)


def windows(schema: ArraySchema, window: tuple[int, ...]) -> Iterator[Box]:
    """Yield the keys of windows, in ascending order of chunks.

    The windows of a flat array ascend in the order in which its items are stored.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((5, 6), np.dtype("u1"), (2, 3), CodecChain(), 0)
    >>> [[(each.start, each.stop) for each in key] for key in windows(schema, (2, 6))]
    [[(0, 2), (0, 6)], [(2, 4), (0, 6)], [(4, 5), (0, 6)]]
    """
    axes = list(schema.stored_axes) if schema.flat is not None else list(range(len(schema.shape)))
    shape = [schema.shape[axis] for axis in axes]
    for key in blocks(shape, [window[axis] for axis in axes]):
        box = [slice(None)] * len(axes)
        for axis, part in zip(axes, key, strict=True):
            box[axis] = part
        yield tuple(box)


def transferred(source: Engine, target: Engine, tally: Tally) -> Iterator[Commit]:
    """Yield commits that together store all items of one array in another, new and of its shape.

    Encoded chunks are moved untouched where both arrays agree. Otherwise, where chunks are files,
    there is a commit for each window. A commit that is not applied is discarded by the caller.
    """
    schema = target.chunks.schema
    if 0 in schema.shape:
        return
    if moves.takes(target, source):
        if is_windowed(target):
            for _, edits in moves.moved(source, target, tally.moved):
                yield Commit(publish=edits)
        else:
            yield moves.store_moved(source, target, tally.moved)
        return
    tally.chunks += schema.chunk_count
    read = _read(source, target, tally.report)
    if isinstance(target, FlatEngine):
        yield target.store_payload(_payload(read, schema))
    elif streaming(target.chunks) is None and Feature.NATIVE in target.chunks.store.features:
        for _, selection, values in read:
            yield Commit(publish=_stored(target, selection, values))
    else:
        yield target.assign_each((selection, values) for _, selection, values in read)


def is_keyed(target: Engine) -> bool:
    """Return whether the chunks of an array, or its shards, are values of keys of their own."""
    files, schema = stored_map(target.chunks), target.chunks.schema
    if schema.flat is not None or streaming(target.chunks) is not None:
        return False
    return files.template is not None


def is_windowed(target: Engine) -> bool:
    """Return whether the chunks of a new array can be stored window by window, as files."""
    return Feature.NATIVE in target.chunks.store.features and is_keyed(target)


def transferred_windows(
    source: Engine, target: Engine, tally: Tally, skips: Callable[[int], bool]
) -> Iterator[tuple[int, tuple[Edit, ...]]]:
    """Yield the edits of each window of a new array that `is_windowed`, by numbers.

    The numbers are the same in every run with the same arrays. `skips` says which are left out.
    """
    schema = target.chunks.schema
    if 0 in schema.shape:
        return
    if moves.takes(target, source):
        yield from moves.moved(source, target, tally.moved, skips)
        return
    tally.chunks += schema.chunk_count
    for window, selection, values in _read(source, target, tally.report, skips):
        yield window, _stored(target, selection, values)


def _stored(target: Engine, selection: BasicSelection, values: NDArray[Any]) -> tuple[Edit, ...]:
    """Return the edits that store a window of a new array, which has no chunk to remove."""
    edits = target.assign(selection, values).edits
    return tuple(edit for edit in edits if not isinstance(edit, Delete))


def transferred_whole(source: Engine, target: Engine) -> Commit:
    """Return one commit that stores all items of one array in another, which is new."""
    edits: list[Edit] = []
    try:
        for commit in transferred(source, target, Tally()):
            edits += commit.edits
    except BaseException:
        target.discard(Commit(publish=tuple(edits)))
        raise
    return Commit(publish=tuple(edits))


def _read(
    source: Engine,
    target: Engine,
    report: Report,
    skips: Callable[[int], bool] = lambda window: False,
) -> Iterator[tuple[int, BasicSelection, NDArray[Any]]]:
    """Yield the windows of a target with the items of a source, by numbers that ascend."""
    window = _window_shape(source, target)
    there = source.chunks.schema
    if not there.variable and rechunk.reads_of(there.grid, window) > rechunk.MOST_READS:
        yield from _read_spooled(source, target, window, report, skips)
        return
    for number, key in enumerate(windows(target.chunks.schema, window)):
        if not skips(number):
            selection, values = _read_box(source, key)
            yield number, selection, values
            report(values.nbytes)


def _window_shape(source: Engine, target: Engine) -> tuple[int, ...]:
    schema = target.chunks.schema
    ascending = schema.flat is not None or streaming(target.chunks) is not None
    return rechunk.window_shape(
        schema,
        stored_map(target.chunks).schema.chunks,
        source.chunks.schema.grid,
        target.options.limits.window_bytes,
        ascending=ascending,
    )


def _read_spooled(
    source: Engine,
    target: Engine,
    window: tuple[int, ...],
    report: Report,
    skips: Callable[[int], bool],
) -> Iterator[tuple[int, BasicSelection, NDArray[Any]]]:
    """Yield the same as `_read`: boxes of whole chunks of the source go through a file."""
    schema, there = target.chunks.schema, source.chunks.schema
    most = target.options.limits.window_bytes
    box = rechunk.window_shape(there, there.chunks, there.grid, most, ascending=True)
    boxes, grid = (ChunkGrid(schema.shape, each, padded=False) for each in (box, window))
    store, folder = target.chunks.store, None
    if Feature.NATIVE in store.features and os.path.isdir(native_root(store)):
        folder = native_root(store)
    spool = rechunk.Spool(boxes, grid, there.dtype, skips, folder)
    try:
        for number in filter(spool.wants, range(boxes.chunk_count)):
            _, values = _read_box(source, boxes.box(boxes.coords(number)))
            spool.put(number, values)
            report(values.nbytes - values.nbytes // 2)
        for key in windows(schema, window):
            places = zip(key, window, strict=True)
            number = grid.linear([each.start // length for each, length in places])
            if not skips(number):
                selection = parse(key, schema.shape)
                assert isinstance(selection, BasicSelection)
                values = spool.take(number)
                yield number, selection, values
                report(values.nbytes // 2)
    finally:
        spool.close()


def _read_box(source: Engine, key: Box) -> tuple[BasicSelection, NDArray[Any]]:
    selection = parse(key, source.shape)
    assert isinstance(selection, BasicSelection)
    return selection, np.asarray(source.read(selection))


def _payload(
    read: Iterator[tuple[int, BasicSelection, NDArray[Any]]], schema: ArraySchema
) -> Iterator[NDArray[Any]]:
    """Yield the items of windows as a flat array stores them."""
    for _, _, values in read:
        values = values.astype(schema.dtype, copy=False)
        yield np.ascontiguousarray(values.T if schema.order == "F" else values)


def transferred_items(source: RaggedEngine, target: RaggedEngine, report: Report) -> Commit:
    """Return the commit that stores all items of one sequence in another, which is new."""
    return ragged.filled_each(target, _blocks(source, report))


def _blocks(source: RaggedEngine, report: Report) -> Iterator[RaggedArray]:
    start, packs = 0, 1
    while rows := source.block(start, packs):
        items = source.read(rows)
        yield items
        report(items.nbytes)
        start, packs = rows.stop, ragged.following_packs(packs, items)


def compare(source: Engine, target: Engine, report: Report, place: str | None = None) -> None:
    """Compare two arrays chunk by chunk; raise `CorruptionError` for the first that differs.

    The error names the target by `place`, or by its store.
    """
    schema = target.chunks.schema
    if 0 in schema.shape:
        return
    unit = schema.chunks
    for _, selection, values in _read(source, target, report):
        found = np.asarray(target.read(selection))
        if not _is_same(values, found):
            first = tuple(start // size for start, size in zip(selection.starts, unit, strict=True))
            raise CorruptionError(
                f"{place or target.chunks.store.location}: items of chunk {first}, or of one that "
                f"follows it, differ from those of {source.chunks.store.location}"
            )


def compare_items(
    source: RaggedEngine, target: RaggedEngine, report: Report, place: str | None = None
) -> None:
    """Compare two sequences of items; raise `CorruptionError` where they differ.

    The error names the target by `place`, or by its store.
    """
    start = 0
    for items in _blocks(source, report):
        found = target.read(range(start, start + len(items)))
        if found != items:
            raise CorruptionError(
                f"{place or target.packs.store.location}: of the items {start} to "
                f"{start + len(items)}, some differ from those of {source.packs.store.location}"
            )
        start += len(items)


def _is_same(values: NDArray[Any], found: NDArray[Any]) -> bool:
    """Return whether arrays hold the same items: bit by bit, where they have no objects."""
    if values.shape != found.shape:
        return False
    names = values.dtype.names
    if names is not None and names == found.dtype.names:
        # Bytes between fields are no part of the items, and not every format stores them.
        return all(_is_same(values[name], found[name]) for name in names)
    if is_variable(values.dtype) or values.dtype.hasobject:
        return all(map(_is_same_object, values.flat, found.flat))
    if values.dtype != found.dtype:
        found = found.astype(values.dtype)
    return np.ascontiguousarray(values).tobytes() == np.ascontiguousarray(found).tobytes()


def _is_same_object(value: Any, found: Any) -> bool:
    """Return whether two objects are equal; NaN is equal to NaN, and arrays are compared whole."""
    if isinstance(value, np.ndarray) or isinstance(found, np.ndarray):
        both = isinstance(value, np.ndarray) and isinstance(found, np.ndarray)
        return both and value.dtype == found.dtype and _is_same(value, found)
    return value is found or bool(value == found) or bool(value != value and found != found)

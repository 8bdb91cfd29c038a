"""The one module that moves array data: fetch, decode, scatter; gather, encode, stage, apply.

Knows how a selection of an array is carried out, by one call into the native kernel where that can
do all of it, else row by row. Decides what a missing chunk means (the fill value) and says of every
other failure which chunk it was. Refuses to know any particular store, format or codec.
"""

import math
import os
import secrets
from collections.abc import Hashable, Iterator
from itertools import islice
from types import EllipsisType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.engine import kernel, plan
from ingot.engine.cache import ChunkCache
from ingot.engine.explanation import Explanation, explain
from ingot.engine.plan import Row
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap
from ingot.grid import count_parts
from ingot.options import Options
from ingot.selection import BasicSelection, Selection
from ingot.stores.store import (
    Commit,
    Constant,
    Delete,
    Extent,
    Feature,
    Inline,
    Location,
    Move,
    check_commit,
)

__all__ = ["Engine"]

# What planning one chunk takes in memory, about.
_ROW_BYTES: Final = 2048


class Engine:
    """One array, ready to be read and written: its chunk map, and how to carry out selections."""

    __slots__ = ("_cache", "_dtype", "_layout", "_plain", "_threads", "chunks", "options")

    def __init__(self, chunks: ChunkMap, options: Options) -> None:
        self.chunks = chunks
        self.options = options
        self._dtype = chunks.schema.dtype
        self._plain = kernel.plain_dtype(self._dtype)
        self._threads = options.thread_count()
        self._cache = ChunkCache(options.cache_bytes) if options.cache_bytes else None
        # Made by the first call that needs it: many arrays are opened only to be looked at.
        self._layout: native.Layout | EllipsisType | None = ...

    def with_chunks(self, chunks: ChunkMap) -> "Engine":
        """Return an engine for another state of the array."""
        return Engine(chunks, self.options)

    def read(self, selection: Selection) -> Any:
        """Return what NumPy would return for the same selection of the whole array."""
        layout = self._layout
        if layout is ...:
            layout = self._make_layout()
        if type(selection) is BasicSelection and layout is not None:
            counts = selection.counts
            result = np.empty(counts, self._plain)
            if 0 not in counts:
                report = layout.read(result, selection.starts, selection.steps, self._threads)
                if report is not None:
                    self._judge(report[1])
            if self._plain is not self._dtype:
                result = result.view(self._dtype)
            return selection.finish(result)
        result = np.empty(selection.engine_shape, self._dtype)
        self._read_rows(selection, result)
        return selection.finish(result)

    def read_into(self, selection: Selection, out: NDArray[Any]) -> None:
        """Read into an array that has the shape and the type of the result."""
        if out.shape != selection.shape or out.dtype != self._dtype:
            raise ValueError(
                f"out is {out.dtype}{list(out.shape)}, the selection is "
                f"{self._dtype}{list(selection.shape)}"
            )
        if not isinstance(selection, BasicSelection) or not out.flags.c_contiguous:
            out[...] = self.read(selection)
            return
        box = out.reshape(selection.counts)
        layout = self._make_layout()
        if layout is None:
            self._read_rows(selection, box)
        elif 0 not in selection.counts:
            plain = box if self._plain is self._dtype else box.view(self._plain)
            report = layout.read(plain, selection.starts, selection.steps, self._threads)
            if report is not None:
                self._judge(report[1])

    def write(self, selection: Selection, value: object) -> None:
        """Assign to a selection as NumPy would; what fails leaves chunks whole, old or new."""
        values = selection.prepare(value, self._dtype)
        if 0 in selection.engine_shape:
            return
        layout = self._make_layout()
        if isinstance(selection, BasicSelection) and layout is not None:
            self._write_native(layout, selection, values)
            return
        for window in self._windows(selection):
            encoded = {}
            for row, location, data in self._fetched(window, changing=True):
                with _Place(self.chunks, row.coords, location):
                    chunk = self._merged(row, location, data, row.pick(values))
                    encoded[row.coords] = kernel.encode(chunk, self.chunks.schema)
            self._apply(encoded)

    def explain(self, selection: Selection) -> Explanation:
        """Tell what reading a selection will cost, without reading it."""
        whole = isinstance(selection, BasicSelection) and self._make_layout() is not None
        kernel_name = "native" if whole else "python"
        return explain(self.chunks, selection, kernel_name, self.count_chunks(selection))

    def count_chunks(self, selection: Selection) -> int:
        """The number of chunks that a selection touches."""
        grid = self.chunks.schema.grid
        if not isinstance(selection, BasicSelection):
            return plan.count_rows(selection, grid)
        if 0 in selection.counts:
            return 0
        total = 1
        boxes = zip(selection.starts, selection.counts, selection.steps, grid.chunk, strict=True)
        for start, count, step, chunk in boxes:
            total *= count_parts(start, count, step, chunk)
        return total

    def _make_layout(self) -> native.Layout | None:
        layout = self._layout
        if layout is ...:
            layout = None
            if self._cache is None:
                layout = kernel.native_layout(self.chunks, self.options.limits.chunk_bytes)
            self._layout = layout
        return layout

    def _write_native(
        self, layout: native.Layout, selection: BasicSelection, values: NDArray[Any]
    ) -> None:
        store = self.chunks.store
        check_commit(store, Commit())
        if self._plain is not self._dtype:
            values = np.ascontiguousarray(values).view(self._plain)
        box = selection.starts, selection.steps
        transaction = secrets.token_hex(8)
        edits: list[Move | Delete] = []
        try:
            for first in range(0, self.count_chunks(selection), self._window()):
                staged, troubles = layout.stage(
                    values, *box, first, first + self._window(), self._threads, transaction
                )
                edits += [
                    Delete(key) if source is None else Move(source, key)
                    for _, key, source in staged
                ]
                self._judge(troubles)
        except BaseException:
            images = tuple(Delete(edit.source) for edit in edits if isinstance(edit, Move))
            store.apply(Commit(cleanup=images), durability="process")
            raise
        store.apply(Commit(publish=tuple(edits)), durability=self.options.durability)

    def _apply(self, encoded: dict[tuple[int, ...], bytes | None]) -> None:
        commit = self.chunks.stage(encoded)
        self.chunks.store.apply(commit, durability=self.options.durability)
        if self._cache is not None:
            for coords in encoded:
                self._cache.forget(coords)

    def _judge(self, troubles: list[tuple[tuple[int, ...], str, BaseException]]) -> None:
        """Raise the first thing that went wrong; absent chunks are what the fill value is for."""
        if troubles:
            coords, key, error = min(troubles, key=lambda trouble: trouble[0])
            error.add_note(_where(self.chunks, coords, key))
            raise error

    def _read_rows(self, selection: Selection, result: NDArray[Any]) -> None:
        fill = kernel.fill_item(self.chunks.schema)
        for window in self._windows(selection):
            for row, location, data in self._fetched(window, changing=False):
                with _Place(self.chunks, row.coords, location):
                    chunk = self._decoded(row.coords, location, data)
                    row.place(result, fill if chunk is None else row.take(chunk))

    def _windows(self, selection: Selection) -> Iterator[list[Row]]:
        """Cut a selection into rows, as many at a time as their chunks fit the window."""
        rows = plan.rows(selection, self.chunks.schema.grid)
        size = self._window()
        while window := list(islice(rows, size)):
            yield window

    def _window(self) -> int:
        """The number of chunks that may be held in memory at a time; a row costs something too."""
        schema = self.chunks.schema
        nbytes = math.prod(schema.chunks) * schema.dtype.itemsize
        return max(1, self.options.limits.window_bytes // max(nbytes, _ROW_BYTES))

    def _fetched(
        self, rows: list[Row], *, changing: bool
    ) -> Iterator[tuple[Row, Location, bytes | NDArray[Any] | None]]:
        """Pair each row with where its chunk lies and what is there: bytes, or a cached chunk.

        A chunk that is going to be replaced whole is not fetched.
        """
        grid, store = self.chunks.schema.grid, self.chunks.store
        coords = np.array([row.coords for row in rows], np.int64).reshape(
            len(rows), len(grid.chunk)
        )
        locations = list(self.chunks.locate(coords))
        found: dict[int, bytes | NDArray[Any] | None] = {}
        wanted: list[tuple[int, Extent]] = []
        for index, (row, location) in enumerate(zip(rows, locations, strict=True)):
            if changing and row.covers(grid.valid_shape(row.coords)):
                continue
            if isinstance(location, Inline):
                found[index] = location.data
            elif isinstance(location, Extent):
                cached = self._cached(row.coords, location)
                if cached is None:
                    wanted.append((index, location))
                else:
                    found[index] = cached
        extents = [extent for _, extent in wanted]
        for (index, _), data in zip(wanted, store.read(extents), strict=True):
            found[index] = data
        for index, (row, location) in enumerate(zip(rows, locations, strict=True)):
            yield row, location, found.pop(index, None)

    def _decoded(
        self,
        coords: tuple[int, ...],
        location: Location,
        data: bytes | NDArray[Any] | None,
    ) -> NDArray[Any] | None:
        """Return a chunk that may be read-only; None where there is only the fill value."""
        schema = self.chunks.schema
        if isinstance(location, Constant):
            return np.broadcast_to(
                np.asarray(location.value, schema.dtype), schema.spec(coords).shape
            )
        if data is None or isinstance(data, np.ndarray):
            return data
        limit = self.options.limits.chunk_bytes
        identity = self._identity(location)
        chunk = kernel.decode(data, schema, schema.spec(coords), limit)
        # Asked for before and after decoding: the bytes were read in between.
        if self._cache is not None and identity is not None:
            self._cache.keep(coords, identity, chunk)
        return chunk

    def _merged(
        self,
        row: Row,
        location: Location,
        data: bytes | NDArray[Any] | None,
        values: NDArray[Any],
    ) -> NDArray[Any]:
        """Return what a chunk will hold: what it held, or the fill value, and the values."""
        schema = self.chunks.schema
        old = None
        if not row.covers(schema.grid.valid_shape(row.coords)):
            old = self._decoded(row.coords, location, data)
        spec = schema.spec(row.coords)
        if old is None:
            chunk = np.full(spec.shape, kernel.fill_item(schema), spec.dtype)
        else:
            chunk = np.array(old)
        row.put(chunk, values)
        return chunk

    def _cached(self, coords: tuple[int, ...], location: Extent) -> NDArray[Any] | None:
        if self._cache is None:
            return None
        identity = self._identity(location)
        return None if identity is None else self._cache.find(coords, identity)

    def _identity(self, location: Location) -> Hashable:
        """Return what changes when the bytes of a chunk may have changed; None if nothing tells."""
        store = self.chunks.store
        if not isinstance(location, Extent) or Feature.NATIVE not in store.features:
            return None
        try:
            facts = os.stat(os.path.join(store.root, location.key))  # type: ignore[attr-defined]
        except OSError:
            return None
        return facts.st_ino, facts.st_mtime_ns, facts.st_size, location.start, location.length


class _Place:
    """Says of an error that passes through in which chunk it happened."""

    __slots__ = ("_chunks", "_coords", "_location")

    def __init__(self, chunks: ChunkMap, coords: tuple[int, ...], location: Location) -> None:
        self._chunks = chunks
        self._coords = coords
        self._location = location

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IngotError):
            key = self._location.key if isinstance(self._location, Extent) else ""
            error.add_note(_where(self._chunks, self._coords, key))


def _where(chunks: ChunkMap, coords: tuple[int, ...], key: str) -> str:
    return f"in chunk {coords}, key {key!r}, of {chunks.store.location}"

"""The one module that moves array data: fetch, decode, scatter; gather, encode, stage, apply.

Knows how a selection of an array is carried out, by one call into the native kernel where that can
do all of it, else row by row. Decides what a missing chunk means (the fill value) and says of every
other failure which chunk it was. Writing ends with a commit, which others apply: it may be part of
a larger one. Refuses to know any particular store, format or codec.
"""

import math
import os
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from operator import floordiv
from types import EllipsisType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.zone_maps import ZoneMaps, has_zone_map
from ingot.engine import kernel, plan
from ingot.engine.cache import ChunkCache
from ingot.engine.explain import Explanation, explain
from ingot.engine.plan import Row
from ingot.errors import CorruptionError, IngotError, UnsafeError
from ingot.formats.format import ChunkMap, Coords, stored_map, zone_mapped
from ingot.grid import begins_chunk, count_parts
from ingot.options import Options
from ingot.selection import BasicSelection, OrthogonalSelection, Selection
from ingot.stores.store import (
    Commit,
    Constant,
    Delete,
    Edit,
    Extent,
    Inline,
    Location,
    Move,
    Put,
    Store,
    check_commit,
)
from ingot.stores.versions import announce, discard, versioned

__all__ = ["Engine"]

# What planning one chunk takes in memory, about.
_ROW_BYTES: Final = 2048
# Staged chunks take no memory but for their names; the kernel's threads never wait in between.
_STAGED_AT_ONCE: Final = 1 << 16


class Engine:
    """One state of one array: its chunk map, and how to carry out selections.

    `before` is the map of the state that is stored, when `chunks` is that of one to come.
    """

    __slots__ = (
        "_before",
        "_cache",
        "_dtype",
        "_layout",
        "_plain",
        "_threads",
        "_zones",
        "chunks",
        "options",
        "shape",
    )

    def __init__(
        self,
        chunks: ChunkMap,
        options: Options,
        *,
        before: ChunkMap | None = None,
    ) -> None:
        if chunks.schema.chain.serializer.runs_code and not options.allow_pickle:
            what = repr(chunks.path) if chunks.path else "the array"
            raise UnsafeError(
                f"{chunks.store.location}: {what} is of Python objects, "
                "which are stored as pickles; reading them runs whatever code the files hold; "
                "Options(allow_pickle=True) allows both"
            )
        self.chunks = chunks
        self.options = options
        self.shape = chunks.schema.shape
        self._before = chunks if before is None else before
        self._dtype = chunks.schema.dtype
        self._plain = kernel.plain_dtype(self._dtype)
        self._threads = options.thread_count()
        # Another state has another cache: file systems give the number of a removed file again.
        self._cache = ChunkCache(options.cache_bytes) if options.cache_bytes else None
        # Those of one state; where other chunks may be stored, another engine begins.
        self._zones: ZoneMaps | None = None
        # Made by the first call that needs it: many arrays are opened only to be looked at.
        self._layout: native.Layout | EllipsisType | None = ...

    def reopened(self, store: Store) -> "Engine":
        """Return an engine for the array as `store` has it now; nothing is taken over."""
        return Engine(self.chunks.reopened(store), self.options)

    def following(self, chunks: ChunkMap) -> "Engine":
        """Return an engine that writes towards the state of `chunks` while this one is stored."""
        engine = Engine(chunks, self.options, before=self.chunks)
        engine._layout = kernel.resized_layout(self._layout, chunks, self.chunks)
        return engine

    def settled(self) -> "Engine":
        """Return the engine for the state that was written towards, once it is stored."""
        same = self._before is self.chunks
        if same and self._cache is None and zone_mapped(self.chunks) is None:
            return self
        engine = Engine(self.chunks, self.options)
        # A layout of chunks that are cut at the edge knows where the edge was before.
        if same or self.chunks.schema.padded:
            engine._layout = self._layout
        else:
            engine._layout = kernel.resized_layout(self._layout, self.chunks, self.chunks)
        return engine

    def discard(self, commit: Commit) -> None:
        """Remove what was put aside for a commit that nobody will apply."""
        discard(self.chunks.store, commit.edits)

    def read(self, selection: Selection) -> Any:
        """Return what NumPy would return for the same selection of the whole array."""
        layout = self._layout
        if layout is ...:
            layout = self._make_layout()
        if type(selection) is BasicSelection and layout is not None:
            counts = selection.counts
            result = kernel.new_result(counts, self._plain)
            if 0 not in counts:
                report = layout.read(result, selection.starts, selection.steps, self._threads)
                if report is not None:
                    self.judge(report[1])
            if self._plain is not self._dtype:
                result = result.view(self._dtype)
            return selection.finish(result)
        if type(selection) is OrthogonalSelection and layout is not None:
            result = kernel.new_result(selection.engine_shape, self._plain)
            if result.size:
                read, zoned = kernel.read_outer, zone_mapped(self.chunks) is not None
                if zoned and kernel.picks_rows(selection.axes, self.shape):
                    read = kernel.read_scattered
                self.judge(read(layout, result, selection.axes, self._threads))
            return selection.finish(result.view(self._dtype))
        result = kernel.new_result(selection.engine_shape, self._dtype)
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
                self.judge(report[1])

    def written(self, selection: Selection, value: object) -> Commit:
        """Return the commit that assigns to a selection as NumPy would.

        For a writer whose turn it is: chunks that change in part are read. Those that are replaced
        whole (`replaces`) need no turn.
        """
        values = selection.prepare(value, self._dtype)
        if 0 in selection.engine_shape:
            return Commit()
        layout = self._make_layout()
        if isinstance(selection, BasicSelection) and layout is not None:
            return Commit(publish=tuple(self._stage_natively(layout, selection, values)))
        unit = self._unit()
        rows = plan.rows(selection, self.chunks.schema.grid, unit)
        return self.staged(self._changed(rows, values), unit)

    def replaces(self, selection: Selection) -> bool:
        """Tell whether a selection has whole chunks only, so that nothing of them is kept.

        Of arrays in shards, whole shards only.
        """
        if not isinstance(selection, BasicSelection):
            return False
        box = zip(selection.starts, selection.counts, selection.steps, strict=True)
        chunks = self.chunks
        grid = stored_map(chunks).schema.grid
        for (start, count, step), length, axis in zip(box, grid.shape, grid.axes, strict=True):
            stop = start + count
            if step != 1 or not begins_chunk(start, axis):
                return False
            if stop != length and not begins_chunk(stop, axis):
                return False
        return True

    def stored(self, coords: Iterable[Coords]) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """Yield those of some chunks that are stored, each whole and perhaps read-only."""
        chosen = iter(coords)
        while window := list(islice(chosen, self._window())):
            for place, fetched in zip(window, self._fetch(window), strict=True):
                with _Place(self.chunks, place, fetched.location):
                    chunk = self._decoded(place, fetched)
                if chunk is not None:
                    yield place, chunk

    def blank(self, coords: Coords, old: NDArray[Any] | None) -> NDArray[Any]:
        """Return a chunk to be written to, with what it held and the fill value elsewhere."""
        schema = self.chunks.schema
        spec = schema.spec(coords)
        if old is not None and old.shape == spec.shape:
            return np.array(old)
        chunk = np.full(spec.shape, kernel.fill_item(schema), spec.dtype)
        if old is not None:
            # A chunk that is cut at the edge of the array has another shape when that moves.
            common = tuple(slice(min(pair)) for pair in zip(old.shape, spec.shape, strict=True))
            chunk[common] = old[common]
        return chunk

    def staged(
        self,
        chunks: Iterable[tuple[Coords, NDArray[Any]]],
        unit: tuple[int, ...] | None = None,
    ) -> Commit:
        """Return the commit that stores some chunks; what does not fit the window is put aside.

        With `unit`, blocks of so many chunks come one after the other, and each has a key to
        itself; without it, only a chunk that has one can be stored before the others are known.
        """
        store, schema = self.chunks.store, self.chunks.schema
        most = self.options.limits.window_bytes
        if unit is None and self.chunks.template is not None:
            unit = (1,) * len(schema.shape)
        waiting: dict[Coords, bytes | None] = {}
        aside: list[Edit] = []
        held, block = 0, None
        try:
            for coords, chunk in chunks:
                before, block = block, unit and tuple(map(floordiv, coords, unit))
                if held > most and block != before:
                    aside += _put_aside(store, self.chunks.stage(waiting))
                    waiting, held = {}, 0
                data = waiting[coords] = kernel.encode(chunk, schema, schema.grid.linear(coords))
                held += 0 if data is None else len(data)
        except BaseException:
            discard(store, aside)
            raise
        rest = self.chunks.stage(waiting)
        return Commit(rest.prepare, (*aside, *rest.publish), rest.cleanup)

    def zones(self) -> ZoneMaps | None:
        """Return what the zone maps of all chunks say; None where chunks have none."""
        chunks, dtype = zone_mapped(self.chunks), self._dtype
        if chunks is None or not has_zone_map(dtype):
            return None
        if self._zones is None:
            numbers = range(self.chunks.schema.grid.chunk_count)
            layout = self._make_layout()
            packed = chunks.zones(numbers) if layout is None else layout.zones(numbers)
            self._zones = ZoneMaps.parse(packed, dtype)
        return self._zones

    def layout(self) -> native.Layout | None:
        """Return how the native kernel sees the array; None where it cannot do all of it."""
        return self._make_layout()

    def explain(self, selection: Selection) -> Explanation:
        """Tell what reading a selection will cost, without reading it."""
        native_keys = BasicSelection | OrthogonalSelection
        whole = isinstance(selection, native_keys) and self._make_layout() is not None
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
        boxes = zip(selection.starts, selection.counts, selection.steps, grid.axes, strict=True)
        for start, count, step, chunk in boxes:
            total *= count_parts(start, count, step, chunk)
        return total

    def _make_layout(self) -> native.Layout | None:
        layout = self._layout
        if layout is ...:
            layout = None
            if self._cache is None:
                limit, verify = self.options.limits.chunk_bytes, self.options.verify
                layout = kernel.native_layout(self.chunks, limit, verify, self._before)
            self._layout = layout
        return layout

    def _stage_natively(
        self, layout: native.Layout, selection: BasicSelection, values: NDArray[Any]
    ) -> list[Edit]:
        store = self.chunks.store
        check_commit(store, Commit())
        if self._plain is not self._dtype:
            values = np.ascontiguousarray(values).view(self._plain)
        box = selection.starts, selection.steps
        transaction = os.urandom(8).hex()
        announce(store, transaction)
        edits: list[Edit] = []
        try:
            count = self._files().count_chunks(selection)
            for first in range(0, count, _STAGED_AT_ONCE):
                staged, troubles = layout.stage(
                    values, *box, first, first + _STAGED_AT_ONCE, self._threads, transaction
                )
                edits += [
                    Delete(key) if source is None else Move(source, key, size, checksum)
                    for _, key, source, size, checksum in staged
                ]
                self.judge(troubles)
        except BaseException:
            discard(store, edits)
            raise
        return edits

    def _unit(self) -> tuple[int, ...] | None:
        """The number of chunks along each axis that share a key; None where all of them do."""
        files = stored_map(self.chunks)
        if files.template is None:
            return None
        return tuple(map(floordiv, files.schema.chunks, self.chunks.schema.chunks))

    def _files(self) -> "Engine":
        """The same array with a chunk for every file that is written."""
        files = stored_map(self.chunks)
        return self if files is self.chunks else Engine(files, self.options)

    def judge(self, troubles: list[tuple[tuple[int, ...], str, BaseException]]) -> None:
        """Raise the first thing that went wrong; absent chunks are what the fill value is for."""
        if troubles:
            coords, key, error = min(troubles, key=lambda trouble: trouble[0])
            error.add_note(_where(self.chunks, coords, key))
            raise error

    def _read_rows(self, selection: Selection, result: NDArray[Any]) -> None:
        fill = kernel.fill_item(self.chunks.schema)
        rows = plan.rows(selection, self.chunks.schema.grid)
        while window := list(islice(rows, self._window())):
            fetched = self._fetch([row.coords for row in window])
            for row, each in zip(window, fetched, strict=True):
                with _Place(self.chunks, row.coords, each.location):
                    chunk = self._decoded(row.coords, each)
                    row.place(result, fill if chunk is None else row.take(chunk))

    def _changed(
        self, rows: Iterator[Row], values: NDArray[Any]
    ) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """Yield what chunks will hold: what they held, or the fill value, and the values."""
        grid = self.chunks.schema.grid
        while window := list(islice(rows, self._window())):
            kept = [row for row in window if not row.covers(grid.valid_shape(row.coords))]
            coords = [row.coords for row in kept]
            fetched = dict(zip(coords, self._fetch(coords), strict=True))
            for row in window:
                each = fetched.pop(row.coords, _NOTHING)
                with _Place(self.chunks, row.coords, each.location):
                    chunk = self.blank(row.coords, self._decoded(row.coords, each))
                    row.put(chunk, row.pick(values))
                yield row.coords, chunk

    def _window(self) -> int:
        """The number of chunks that may be held in memory at a time; a row costs something too."""
        schema = self.chunks.schema
        nbytes = math.prod(schema.chunks) * schema.dtype.itemsize
        return max(1, self.options.limits.window_bytes // max(nbytes, _ROW_BYTES))

    def _fetch(self, coords: Sequence[Coords]) -> list["_Fetched"]:
        """Return where chunks lie in the stored state, and their bytes, or a cached chunk."""
        chunks = self._before
        counts = chunks.schema.grid.counts
        # Beyond the grid there is nothing, whatever a larger array before this one has left there.
        inside = [n for n, place in enumerate(coords) if all(map(int.__lt__, place, counts))]
        table = np.array([coords[n] for n in inside], np.int64).reshape(len(inside), len(counts))
        found = [_NOTHING] * len(coords)
        wanted: list[tuple[int, Extent, Hashable]] = []
        for n, location in zip(inside, chunks.locate(table), strict=True):
            if isinstance(location, Inline):
                found[n] = _Fetched(location, location.data)
            elif isinstance(location, Constant):
                found[n] = _Fetched(location, None)
            else:
                # Before the bytes are read: whatever takes their place then has another one.
                identity = self._identity(location)
                cached = self._cached(coords[n], identity)
                found[n] = _Fetched(location, cached)
                if cached is None:
                    wanted.append((n, location, identity))
        data = chunks.store.read([extent for _, extent, _ in wanted])
        for (n, extent, identity), each in zip(wanted, data, strict=True):
            found[n] = _Fetched(extent, each, identity)
        return found

    def _decoded(self, coords: Coords, fetched: "_Fetched") -> NDArray[Any] | None:
        """Return a chunk that may be read-only; None where there is only the fill value."""
        schema = self._before.schema
        location, data, identity = fetched
        if isinstance(location, Constant):
            return np.broadcast_to(
                np.asarray(location.value, schema.dtype), schema.spec(coords).shape
            )
        if data is None and isinstance(location, Extent) and not schema.sparse:
            raise CorruptionError("the chunk is missing")
        if data is None or isinstance(data, np.ndarray):
            return data
        limit = self.options.limits.chunk_bytes
        chunk = kernel.decode(data, schema, schema.spec(coords), limit)
        if self._cache is not None and identity is not None:
            self._cache.keep(coords, identity, chunk)
        return chunk

    def _cached(self, coords: Coords, identity: Hashable) -> NDArray[Any] | None:
        if self._cache is None or identity is None:
            return None
        return self._cache.find(coords, identity)

    def _identity(self, location: Extent) -> Hashable:
        """Return a value that changes with the bytes of a chunk; None when none is to be kept."""
        if self._cache is None:
            return None
        identity = self._before.store.identity(location.key)
        return None if identity is None else (identity, location.start, location.length)


class _Fetched(NamedTuple):
    """Where a chunk lies, its bytes or the chunk itself, and what tells if they have changed."""

    location: Location
    data: bytes | NDArray[Any] | None
    identity: Hashable = None


_NOTHING: Final = _Fetched(Inline(b""), None)


def _put_aside(store: Store, commit: Commit) -> Iterator[Edit]:
    states = versioned(store)
    for edit in commit.publish:
        if isinstance(edit, Put) and states is not None:
            yield states.stage(edit.key, edit.data)
        else:
            yield edit


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

"""Reading and writing selections of an array: fetch, decode, scatter; gather, encode, stage.

One call into the native kernel does it where it can do all of the work; otherwise Python does it
chunk by chunk. The engine decides what a missing chunk means (the fill value, as
long as the metadata is that of the store) and adds the chunk to the message of every other failure.
A write returns a commit, which the caller applies, alone or as part of a larger one. The engine
knows no particular store, format or codec.
"""

import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from operator import floordiv, mul
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot import native, signals
from ingot.codecs.codec import CheckedPart, ChunkSpec, StoredBytes
from ingot.codecs.zone_maps import ZoneMaps, has_zone_map
from ingot.engine import kernel, plan, sparse
from ingot.engine.cache import ChunkCache
from ingot.engine.explain import Explanation, Reading, explain
from ingot.engine.handed import HandedLayout
from ingot.engine.parts import Ask, Checked, PartReader, whole_from
from ingot.engine.plan import Row
from ingot.engine.sparse import MANY
from ingot.engine.staging import edits_of, edits_of_images, stage_values, staged_edits
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    DamageWarning,
    IngotError,
    LimitError,
    RemoteError,
    UnsafeError,
)
from ingot.formats.format import (
    ChunkMap,
    Coords,
    Slotted,
    Streaming,
    as_sharded,
    is_relocating,
    is_renewable,
    manifested,
    relocated,
    renewed,
    slotted,
    stored_map,
    streaming,
    zone_mapped,
)
from ingot.formats.keys import stored
from ingot.grid import RectilinearAxis, begins_chunk, block_shape, blocks
from ingot.options import Options
from ingot.selection import (
    BasicSelection,
    CoordinateSelection,
    OrthogonalSelection,
    Selection,
    parse,
)
from ingot.stores.documents import DocumentCheck
from ingot.stores.store import (
    Buffer,
    Commit,
    Constant,
    Delete,
    Edit,
    Extent,
    Feature,
    Inline,
    Location,
    Store,
    check_writable,
)
from ingot.stores.versions import discard

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = [
    "HANDED_OVER",
    "LOST",
    "READ_BY_KERNEL",
    "BloscForm",
    "ChunkContext",
    "ChunkFailure",
    "Engine",
    "Fetched",
    "Pieces",
    "Read",
    "as_buffer",
    "assign_together",
    "chunk_note",
    "key_of",
    "memory_for",
]

# About how much memory the row of one chunk in a plan takes.
_ROW_BYTES: Final = 2048
# How many chunks one call into the kernel stages; of each, only the names are held in memory.
_MOST_ZONES: Final = 1 << 20
_STAGED_PER_CALL: Final = 1 << 16
# About how many bytes of chunks are decoded or encoded at a time where the kernel cuts no box.
_BATCH_BYTES: Final = 16 << 20


LOST: Final = "the chunk is lost: the manifest names it, and it is not stored"
"""What is wrong with a chunk that only a manifest knows of."""
_CALLER: Final = 5
"""How many calls a warning lies below the caller of an array."""

HANDED_OVER: Final = "in one call: the store hands over the chunks"
READ_BY_KERNEL: Final = "in one call: the kernel reads the files"
"""How the native kernel reads a selection, as an explanation says it."""

Read: TypeAlias = Callable[
    [Store, Sequence[Extent], Sequence[int]], "Sequence[bytes | memoryview | Pieces | None]"
]
"""Reads extents as `Store.read` does; the bytes may be memory of the caller."""

Images: TypeAlias = "tuple[list[native.Image], list[native.Trouble]]"
Part = TypeVar("Part")

_Room: TypeAlias = tuple[int, Sequence[tuple[int, int]], int, float]
"""An open file, its gaps, its end, and the fraction of room behind a chunk at the end."""
_Written: TypeAlias = "tuple[bytes, int, int | None, list[native.Trouble]]"
"""Number, start and size of chunks; the end of their file; a checksum; chunks that failed."""


class ChunkFailure(NamedTuple):
    """A chunk that cannot be read: its coordinates, the key that holds it, and the error."""

    coords: Coords
    key: str
    error: Exception


class Engine:
    """One state of one array: reads and writes its selections.

    `chunks` is the chunk map of the state. Where the state is not committed yet, `before` is the
    map of the committed one, from which chunks are read.
    """

    _serves_again: ClassVar[bool] = True
    """Whether an engine that built a state serves it, once it is committed."""

    __slots__ = (
        "_before",
        "_cache",
        "_check",
        "_coder",
        "_few_chunks",
        "_layout",
        "_part_reader",
        "_stager",
        "_threads",
        "_zones",
        "chunks",
        "dtype",
        "options",
        "plain",
        "shape",
    )

    def __init__(
        self,
        chunks: ChunkMap,
        options: Options,
        *,
        before: ChunkMap | None = None,
    ) -> None:
        schema = chunks.schema
        if schema.chain.serializer.runs_code and not options.allow_pickle:
            what = repr(chunks.path) if chunks.path else "the array"
            raise UnsafeError(
                f"{chunks.store.location}: {what} is of Python objects, "
                "which are stored as pickles; reading them runs whatever code the files hold; "
                "Options(allow_pickle=True) allows both"
            )
        self.chunks = chunks
        self.options = options
        self.shape = schema.shape
        self._before = chunks if before is None else before
        self.dtype = schema.dtype
        self.plain = kernel.plain_dtype(self.dtype)
        # Counted when they are needed: a dataset may be opened for its metadata.
        self._threads = 0
        # Each state has its own cache, since file systems reuse the numbers of removed files.
        self._cache = ChunkCache(options.cache_bytes) if options.cache_bytes else None
        self._check: DocumentCheck[ChunkMap] | None = None  # Made when a chunk is absent.
        # The zone maps of this state; another state has another engine.
        self._zones: ZoneMaps | None = None
        # Whether an array of so few chunks is read without listing them; None until it is asked.
        self._few_chunks: bool | None = None
        # The ellipsis stands for a layout that no call has needed yet.
        self._layout: native.Layout | HandedLayout | EllipsisType | None = ...
        self._coder: native.Layout | EllipsisType | None = ...
        self._part_reader: PartReader | EllipsisType | None = ...
        # What encodes chunks that may lie elsewhere afterwards; None until it is needed.
        self._stager: native.Layout | None = None

    def reopened(self, store: Store) -> "Engine":
        """Return an engine for the array as `store` holds it now; nothing cached is kept."""
        return type(self)(self.chunks.reopened(store), self.options)

    def next_state(self, chunks: ChunkMap) -> "Engine":
        """Return an engine that builds the state of `chunks` while this one is committed."""
        engine = type(self)(chunks, self.options, before=self.chunks)
        engine._layout = kernel.resized_layout(self._layout, chunks, self.chunks)
        engine._threads = self._threads
        return engine

    def committed(self) -> "Engine":
        """Return the engine to use once the commits that this one built are applied."""
        chunks = relocated(self.chunks)
        same = self._before is chunks
        if same and self._cache is None and zone_mapped(self.chunks) is None:
            return self
        engine, layout = self, self._layout
        unread = self._cache is None and self._zones is None
        if same or not unread or chunks is not self.chunks or not self._serves_again:
            engine = type(self)(chunks, self.options)
            engine._threads = self._threads
            if chunks.schema is self.chunks.schema:
                engine._stager = self._stager
                kept = is_renewable(chunks) and self._before is self.chunks
                if kept and not isinstance(layout, HandedLayout):
                    engine._layout = layout
        else:
            # It served nothing but the change, and keeps nothing of the state before.
            engine._before = chunks
            engine._coder = engine._part_reader = ...
        if chunks is not self.chunks or not self._serves_again:
            return engine
        if isinstance(layout, HandedLayout):
            # It reads from the map of the state before.
            engine._layout = layout if same else ...
        elif same or chunks.schema.padded:
            engine._layout = layout
        elif layout is None or layout is ... or as_sharded(chunks) is not None:
            engine._layout = ...
        else:
            # The layout of chunks that are cut at the edge holds the length before the change.
            engine._layout = layout.resized(self.shape, None)
        return engine

    def renewed(self, store: Store) -> "Engine | None":
        """Return the engine of a later state in `store` with the same documents.

        None where it is opened: only that tells, or this state was seen through a journal.
        """
        chunks = renewed(self.chunks) if self.chunks.store is store else None
        if chunks is None:
            return None
        if chunks is self.chunks and self._cache is None and self._zones is None:
            return self
        engine = type(self)(chunks, self.options)
        engine._threads, engine._stager = self._threads, self._stager
        if self._cache is None and not isinstance(self._layout, HandedLayout):
            engine._layout = self._layout
        return engine

    def discard(self, commit: Commit) -> None:
        """Remove the staged values of a commit that will not be applied."""
        discard(self.chunks.store, commit.edits)

    def read(self, selection: Selection) -> Any:
        """Return what NumPy would return for the same selection of the whole array."""
        layout = self._layout
        if layout is ...:
            layout = self.layout()
        if type(selection) is BasicSelection and layout is not None:
            counts = selection.counts
            result = kernel.new_result(counts, self.plain)
            only = None
            if result.size > MANY:
                only = self._stored_numbers(selection)
                if only is not None:
                    del result
                    result = kernel.filled_result(counts, self.chunks.schema).view(self.plain)
            if 0 not in counts:
                threads = self._threads or self.thread_count()
                try:
                    report = layout.read(result, selection.starts, selection.steps, threads, only)
                except (IngotError, OSError):
                    if self.options.damaged != "fill":
                        raise
                    return self._read_around(selection)
                if report is not None:
                    if report[1] and self.options.damaged == "fill":
                        return self._read_around(selection)
                    self.raise_first(report[1])
                    self.confirm_absent()
                if only is not None or report is not None:
                    if self.options.damaged == "fill" and sparse.lost_files(self.chunks, selection):
                        return self._read_around(selection)
                    self.refuse_missing(selection)
            if self.plain is not self.dtype:
                result = result.view(self.dtype)
            return selection.finish(result)
        if type(selection) is OrthogonalSelection and layout is not None:
            if self.options.damaged == "fill":
                return self._read_around(selection)
            if self.options.missing == "error":
                self.refuse_missing(selection)
            only = self._stored_numbers(selection)
            if only is None:
                result = kernel.new_result(selection.engine_shape, self.plain)
            else:
                shape = selection.engine_shape
                result = kernel.filled_result(shape, self.chunks.schema).view(self.plain)
            if result.size:
                if self._has_rows() and kernel.selects_rows(selection.axes, self.shape):
                    axes, threads = selection.axes, self.thread_count()
                    self.raise_first(kernel.gather_rows(layout, result, axes, threads))
                else:
                    threads = self.thread_count()
                    report = kernel.read_outer(layout, result, selection.axes, threads, only)
                    if report is not None:
                        self.raise_first(report[1])
                        self.confirm_absent()
                    if only is not None or report is not None:
                        self._refuse_lost(selection)
            return selection.finish(result.view(self.dtype))
        if self.options.damaged == "fill":
            return self._read_around(selection)
        result = kernel.new_result(selection.engine_shape, self.dtype)
        self._read_rows(selection, result)
        return selection.finish(result)

    def result_bytes(self, selection: Selection) -> int:
        """Return how many bytes the result of a read has."""
        return math.prod(selection.engine_shape) * self.dtype.itemsize

    def _read_around(self, selection: Selection) -> Any:
        """Read a selection; chunks that cannot be read are filled, and a warning names them."""
        failures: list[ChunkFailure] = []
        result = self._result_around(selection, failures)
        if failures:
            chunks = tuple((each.coords, each.key, str(each.error)) for each in failures)
            where = self.chunks.store.location
            warnings.warn(DamageWarning(where, chunks), stacklevel=_CALLER)
        return selection.finish(result)

    def _result_around(self, selection: Selection, failures: list[ChunkFailure]) -> NDArray[Any]:
        """Return the items of a selection, and add the chunks that cannot be read to `failures`."""
        result = kernel.new_result(selection.engine_shape, self.dtype)
        self._read_rows(selection, result, failures)
        return result

    def _decoded_around(
        self, coords: Sequence[Coords], failures: list[ChunkFailure]
    ) -> list[NDArray[Any] | None]:
        """Return chunks; None for those that cannot be read, which are added to the failures."""
        try:
            return list(self._decoded(coords))
        except (IngotError, OSError):
            found: list[NDArray[Any] | None] = []
        for each in coords:
            try:
                found += self._decoded([each])
            except RemoteError:
                raise
            except (IngotError, OSError) as error:
                failures.append(ChunkFailure(each, self._key_at(each), error))
                found.append(None)
        return found

    def refuse_missing(self, selection: Selection) -> None:
        """Raise `CorruptionError` for a chunk that is lost, or not stored where the options say so.

        Only a manifest tells a lost chunk from one that was never written.
        """
        self._refuse_lost(selection)
        chunks = self.chunks
        if self.options.missing != "error" or not chunks.schema.sparse:
            return
        grid = chunks.schema.grid
        for row in plan.rows(selection, grid):
            (location,) = chunks.locate(np.array([row.coords], np.int64).reshape(1, -1))
            key = location.key if isinstance(location, Extent) else ""
            if isinstance(location, Constant) or (key and chunks.store.size(key) is None):
                error = CorruptionError("the chunk is not stored, and missing chunks are refused")
                error.add_note(chunk_note(chunks, row.coords, key))
                raise error

    def lost_chunks(self) -> list[ChunkFailure]:
        """Return the chunks, or the first ones of shards, that are lost as the manifest tells."""
        return list(self._lost(parse(..., self.shape)))

    def _refuse_lost(self, selection: Selection) -> None:
        """Raise `CorruptionError` for a chunk that the manifest names and that is not stored."""
        for each in self._lost(selection):
            each.error.add_note(chunk_note(self.chunks, each.coords, each.key))
            raise each.error

    def _lost(self, selection: Selection) -> Iterator[ChunkFailure]:
        """Yield the chunks, or shards, that the manifest names and that are not stored."""
        files, unit = stored_map(self._before), self.unit()
        for each in sparse.lost_files(self._before, selection):
            assert files.template is not None
            first = tuple(map(mul, each, unit or each))
            yield ChunkFailure(first, files.template.key(each), CorruptionError(LOST))

    def read_into(self, selection: Selection, out: NDArray[Any]) -> None:
        """Read into an array of the shape and type of the result."""
        if out.shape != selection.shape or out.dtype != self.dtype:
            raise ArgumentError(
                f"out is {out.dtype}{list(out.shape)}, the selection is "
                f"{self.dtype}{list(selection.shape)}"
            )
        if self.options.damaged == "fill" or self.options.missing == "error":
            out[...] = self.read(selection)
        else:
            self._read_into(selection, out)

    def _read_into(self, selection: Selection, out: NDArray[Any]) -> None:
        if not isinstance(selection, BasicSelection) or not out.flags.c_contiguous:
            out[...] = self.read(selection)
            return
        box = out.reshape(selection.counts)
        layout = self.layout()
        if layout is None:
            self._read_rows(selection, box)
        elif 0 not in selection.counts:
            plain = box if self.plain is self.dtype else box.view(self.plain)
            only = self._stored_numbers(selection)
            if only is not None:
                box[...] = kernel.fill_item(self.chunks.schema)
            report = layout.read(
                plain, selection.starts, selection.steps, self.thread_count(), only
            )
            if report is not None:
                self.raise_first(report[1])
                self.confirm_absent()
            if only is not None or report is not None:
                self._refuse_lost(selection)

    def assign(self, selection: Selection, value: object) -> Commit:
        """Return the commit that assigns a value to a selection as NumPy would.

        Chunks that change in part are read and merged, so the caller holds the writer lock. A
        selection that replaces whole chunks (`replaces`) needs no lock.
        """
        if self.erases(selection, value):
            commit = self._erase(selection)
            if commit is not None:
                return commit
        values = selection.prepare(value, self.dtype)
        if 0 in selection.engine_shape:
            return Commit()
        return self._assign_values(selection, values)

    def _assign_values(self, selection: Selection, values: NDArray[Any]) -> Commit:
        """Return the commit that assigns values of the type and shape of a selection."""
        if manifested(self.chunks) is not None and not self.replaces(selection):
            # The rest of a lost chunk must not become the fill value.
            self._refuse_lost(selection)
        run = self._slot_run(selection, values)
        if run is not None:
            return run.commit()
        layout = self._staging_layout()
        if isinstance(selection, BasicSelection) and layout is not None:
            if isinstance(layout, HandedLayout):
                self.check_count(plan.count_rows(selection, stored_map(self.chunks).schema.grid))
                return self.commit_of(self._encoded(layout, selection, values), self.unit())
            return Commit(publish=tuple(self._stage_natively(layout, selection, values)))
        self.check_count(plan.count_rows(selection, stored_map(self.chunks).schema.grid))
        encodes = layout is not None and (
            not is_relocating(self.chunks) or slotted(self.chunks) is not None
        )
        numbers = self._single_rows(selection) if encodes else None
        if layout is not None and numbers is not None:
            return self._assign_rows(layout, numbers, values)
        unit = self.unit()
        rows = plan.rows(selection, self.chunks.schema.grid, unit)
        if streaming(self.chunks) is not None:
            # An axis may be walked backwards; chunks are stored in ascending order.
            rows = iter(sorted(rows, key=lambda row: row.coords))
        return self.stage(self._merged(rows, values), unit)

    def assign_each(self, blocks: Iterable[tuple[BasicSelection, NDArray[Any]]]) -> Commit:
        """Return the commit that assigns values to boxes of whole chunks, one after the other.

        The boxes ascend. Each is encoded before the next is asked for, so that not all values are
        in memory.
        """
        layout, unit = self._staging_layout(), self.unit()

        def encoded() -> Iterator[tuple[Coords, bytes | None]]:
            for selection, given in blocks:
                values = selection.prepare(given, self.dtype)
                if isinstance(layout, HandedLayout):
                    yield from self._encoded(layout, selection, values)
                else:
                    rows = plan.rows(selection, self.chunks.schema.grid, unit)
                    yield from self.encoded_chunks(self._merged(rows, values))

        return self.commit_of(encoded(), unit)

    def boxes(self) -> "Engine":
        """Return the engine whose chunks are boxes; that of another array for one that is flat."""
        return self

    def switched(self, chunks: ChunkMap) -> "Engine":
        """Return the engine of the state after a slot change, in which the map is `chunks`."""
        engine = type(self)(chunks, self.options)
        engine._threads, engine._stager = self._threads, self._stager
        engine._layout = self._layout
        return engine

    def _slot_run(self, selection: Selection, values: NDArray[Any]) -> "_SlotRun | None":
        """Return chunks that the kernel encodes into the files that hold them.

        None where it cannot, and where there is one chunk only: that takes as few steps.
        """
        chunks, count = slotted(self.chunks), self.count_chunks(selection)
        if chunks is None or Feature.NATIVE not in self.chunks.store.features or count == 1:
            return None
        if self.chunks.schema.grid.counts[1:] != self._before.schema.grid.counts[1:]:
            return None
        layout = self.layout()
        if layout is None or isinstance(layout, HandedLayout):
            return None
        self.check_count(count)
        check_writable(self.chunks.store)
        if isinstance(selection, BasicSelection):
            return self._box_run(chunks, layout, selection, values)
        rows = self._single_rows(selection)
        return None if rows is None else self._row_run(chunks, layout, rows, values)

    def _box_run(
        self,
        chunks: Slotted,
        layout: native.Layout,
        selection: BasicSelection,
        values: NDArray[Any],
    ) -> "_SlotRun":
        starts, steps, threads = selection.starts, selection.steps, self.thread_count()
        grid, numbers = self.chunks.schema.grid, np.zeros(1, np.int64)
        box = zip(starts, selection.counts, steps, grid.axes, grid.counts, strict=True)
        for start, count, step, axis, total in box:
            touched = plan.axis_chunks(range(start, start + count * step, step), axis)
            numbers = (numbers[:, None] * total + np.array(touched, np.int64)).reshape(-1)
        given = values if self.plain is self.dtype else values.view(self.plain)

        def write(part: slice, room: _Room) -> _Written:
            target, gaps, end, spare = room
            only = range(part.start, part.stop)
            return layout.write_box(given, starts, steps, only, target, gaps, end, spare, threads)

        return _SlotRun(numbers, self, chunks, write)

    def _row_run(
        self, chunks: Slotted, layout: native.Layout, rows: NDArray[np.int64], values: NDArray[Any]
    ) -> "_SlotRun":
        rows, given, single = self._ordered(rows, values)
        chunk, threads = self.chunks.schema.chunks[0], self.thread_count()
        numbers = np.unique(rows // chunk)

        def write(part: slice, room: _Room) -> _Written:
            target, gaps, end, spare = room
            ends = numbers[part][[0, -1]] + (0, 1)
            first, last = np.searchsorted(rows, ends * chunk)
            own = given if single else given[first:last]
            return layout.write_rows(rows[first:last], own, target, gaps, end, spare, threads)

        return _SlotRun(numbers, self, chunks, write)

    def _ordered(
        self, rows: NDArray[np.int64], values: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[Any], bool]:
        """Return rows in ascending order with their values, and whether one value is for all."""
        single = len(rows) > 1 and not values.strides[0]
        values = as_buffer(values[:1] if single else values, self.plain)
        if bool((rows[:-1] > rows[1:]).any()):
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values if single else values[order]
        return rows, values, single

    def _single_rows(self, selection: Selection) -> NDArray[np.int64] | None:
        """Return the numbers of rows to which the kernel assigns values one by one.

        None for other selections, and where chunks are no rows.
        """
        schema = self.chunks.schema
        if not isinstance(selection, OrthogonalSelection) or schema.rectilinear:
            return None
        if not kernel.selects_rows(selection.axes, self.shape):
            return None
        cut = kernel.has_rows(schema) or (len(self.shape) == 1 and schema.padded)
        return np.asarray(selection.axes[0]) if cut else None

    def _assign_rows(
        self, layout: native.Layout | HandedLayout, rows: NDArray[np.int64], values: NDArray[Any]
    ) -> Commit:
        """Return the commit that assigns values to rows, encoded natively, block by block."""
        if self.chunks.template is None:
            # The chunks have no files of their own.
            handed = kernel.handed_layout(self.chunks, self.options, self._before)
            layout = layout if handed is None else handed
        rows, values, single = self._ordered(rows, values)
        chunk, threads = self.chunks.schema.chunks[0], self.thread_count()
        numbers = rows // chunk
        numbers = numbers[np.flatnonzero(np.diff(numbers, prepend=-1))]

        def make(part: NDArray[np.int64], transaction: str | None) -> Images:
            held = layout.held_rows(part) if isinstance(layout, HandedLayout) else None
            first, last = np.searchsorted(rows, [part[0] * chunk, (part[-1] + 1) * chunk])
            given = values if single else values[first:last]
            kernel_layout = _of_kernel(layout)
            return kernel_layout.assign_rows(rows[first:last], given, threads, transaction, held)

        step = layout.window if isinstance(layout, HandedLayout) else _STAGED_PER_CALL
        parts = [numbers[first : first + step] for first in range(0, len(numbers), step)]
        return self._commit_of_images(parts, self, make, handed=isinstance(layout, HandedLayout))

    def copied(self, source: "Engine", offset: int) -> Commit | None:
        """Return the commit that stores the chunks of another array as those of this one.

        Chunk n is a copy of chunk n + `offset` of `source`: the bytes are verified, not decoded.
        None where the kernel cannot do it: chunks are no rows with trailers.
        """
        target, given = self.layout(), source.layout()
        if target is None or given is None:
            return None
        if not kernel.has_rows(self.chunks.schema):
            return None
        threads = self.thread_count()

        def make(numbers: range, transaction: str | None) -> Images:
            held = None
            if isinstance(given, HandedLayout):
                held = given.held_rows(np.arange(numbers.start + offset, numbers.stop + offset))
            layouts, ends = (_of_kernel(given), _of_kernel(target)), (numbers.start, numbers.stop)
            return layouts[0].copy_chunks(layouts[1], *ends, offset, threads, transaction, held)

        numbers = range(self.chunks.schema.grid.counts[0])
        self.check_count(len(numbers))
        step = given.window if isinstance(given, HandedLayout) else _STAGED_PER_CALL
        parts = [numbers[first : first + step] for first in range(0, len(numbers), step)]
        return self._commit_of_images(parts, source, make, handed=isinstance(target, HandedLayout))

    @property
    def has_rows(self) -> bool:
        """Whether the kernel removes rows of the array in one pass: see `without_rows`."""
        return self.layout() is not None and kernel.has_rows(self.chunks.schema)

    def without_rows(self, source: "Engine", removed: NDArray[np.int64]) -> Commit:
        """Return the commit that stores the rows of another array without some of them.

        This array is the next state of `source`, whose engine `has_rows`. The removed rows ascend;
        the chunks in front of the first of them are not touched.
        """
        target, given = self.layout(), source.layout()
        assert target is not None
        assert given is not None
        if self.shape[0] <= removed[0]:
            return Commit()  # The last rows were removed: a chunk may hold more than there are.
        chunk, threads = self.chunks.schema.chunks[0], self.thread_count()
        numbers = range(int(removed[0]) // chunk, self.chunks.schema.grid.counts[0])
        self.check_count(len(numbers))
        # In front of removed row n, all but n rows are kept.
        ahead = removed - np.arange(len(removed))

        def old_chunk(row: int) -> int:
            """Return the chunk of `source` that holds a row of this array."""
            return (row + int(np.searchsorted(ahead, row, side="right"))) // chunk

        def make(part: range, transaction: str | None) -> Images:
            held = None
            if isinstance(given, HandedLayout):
                last = min(part.stop * chunk, self.shape[0]) - 1
                wanted = np.arange(old_chunk(part.start * chunk), old_chunk(last) + 1)
                held = given.held_rows(wanted)
            layouts = _of_kernel(given), _of_kernel(target)
            ends = part.start, part.stop
            return layouts[0].remove_rows(layouts[1], removed, *ends, threads, transaction, held)

        parts: list[range] = []
        most = given.window if isinstance(given, HandedLayout) else _STAGED_PER_CALL
        start = numbers.start
        for number in numbers[1:]:
            # The chunks that a part is made of are in memory at the same time.
            if old_chunk(number * chunk + chunk - 1) - old_chunk(start * chunk) >= most:
                parts.append(range(start, number))
                start = number
        if numbers:
            parts.append(range(start, numbers.stop))
        return self._commit_of_images(parts, source, make, handed=isinstance(target, HandedLayout))

    def _commit_of_images(
        self,
        parts: Sequence[Part],
        source: "Engine",
        make: Callable[[Part, str | None], Images],
        *,
        handed: bool,
    ) -> Commit:
        """Return the commit that stores chunks of rows, which `make` makes of those of `source`.

        It makes them part by part, since their bytes may be in memory: staged under the name of a
        transaction, or as bytes where the layout is `handed` the chunks.
        """
        store, rest = self.chunks.store, (0,) * (len(self.shape) - 1)
        if handed:

            def encoded() -> Iterator[tuple[Coords, bytes | None]]:
                for part in parts:
                    images, troubles = make(part, None)
                    source.raise_first(troubles)
                    for number, _, data, _, _ in images:
                        assert not isinstance(data, str), "there is no transaction"
                        yield (number, *rest), data

            return self.commit_of(encoded(), self.unit())

        def stage(transaction: str, edits: list[Edit]) -> None:
            for part in parts:
                images, troubles = make(part, transaction)
                edits += edits_of_images(images)
                source.raise_first(troubles)

        check_writable(store)
        return Commit(publish=tuple(staged_edits(store, stage)))

    def _staging_layout(self) -> native.Layout | HandedLayout | None:
        """Return what encodes chunks natively; None where Python does.

        Where only the map knows where their images go, they are handed over.
        """
        if not is_relocating(self.chunks):
            return self.layout()
        new, old = self.chunks.schema.grid.counts, self._before.schema.grid.counts
        if new[1:] != old[1:]:
            # Chunks that state their numbers are read by the numbers of the old grid, which one
            # layout with the new ones cannot do.
            return None
        if self._stager is None:
            found = kernel.handed_layout(self.chunks, self.options, self._before)
            if isinstance(found, HandedLayout):
                self._stager = found.kernel
            return found
        return HandedLayout(self._stager, self.chunks, self._before, self.options)

    def _box(
        self, selection: Selection, value: object
    ) -> tuple[native.Layout, NDArray[Any], tuple[int, ...]] | None:
        """Return how the kernel stages an assignment beside those of other arrays.

        These are the layout, the values, and where they begin. None where only `assign` can: the
        step is not 1, or chunks have no files of their own.
        """
        layout = self.layout()
        if layout is None or isinstance(layout, HandedLayout) or as_sharded(self.chunks):
            return None
        if is_relocating(self.chunks):
            return None
        if not isinstance(selection, BasicSelection) or set(selection.steps) != {1}:
            return None
        if 0 in selection.counts or self.erases(selection, value):
            return None
        values = selection.prepare(value, self.dtype)
        if self.plain is not self.dtype:
            values = values.view(self.plain)
        return layout, values, selection.starts

    def check_count(self, chunks: int) -> None:
        """Raise `LimitError` where one commit would store too many chunks."""
        most = self.options.limits.commit_chunks
        if chunks > most:
            raise LimitError(
                f"{self.chunks.store.location}: one commit would store {chunks} chunks, "
                f"the limit is {most}"
            )

    def erases(self, selection: Selection, value: object) -> bool:
        """Return whether an assignment sets very many chunks to the fill value.

        Then only the chunks that are stored change, and the store is listed to find them.
        """
        schema = self.chunks.schema
        if not schema.sparse or schema.variable or math.prod(selection.engine_shape) <= MANY:
            return False
        item = np.asarray(value, self.dtype)
        # Byte for byte, so that -0.0 and the payloads of NaN survive.
        if item.ndim or item.tobytes() != kernel.fill_item(schema).tobytes():
            return False
        return self.count_chunks(selection) > MANY

    def replaces(self, selection: Selection) -> bool:
        """Return whether a selection consists of whole chunks, or shards where the array has them.

        Then an assignment keeps nothing of what is stored.
        """
        if not isinstance(selection, BasicSelection):
            return False
        if is_relocating(self.chunks):
            return False  # Other chunks of the file may have to move.
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

    def stored_chunks(self, coords: Iterable[Coords]) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """Yield each of the given chunks that is stored; the arrays may be read-only."""
        chosen = iter(coords)
        while window := list(islice(chosen, self.window())):
            for each, chunk in zip(window, self._decoded(window), strict=True):
                if chunk is not None:
                    yield each, chunk

    def writable_chunk(self, coords: Coords, old: NDArray[Any] | None) -> NDArray[Any]:
        """Return an array to change: the old content of a chunk, and the fill value elsewhere."""
        schema = self.chunks.schema
        spec = schema.spec(coords)
        if old is not None and old.shape == spec.shape:
            # What was decoded for this call alone needs no copy.
            return old if old.flags.writeable and self._cache is None else np.array(old)
        if old is not None and len(spec.shape) == 1:
            chunk = kernel.new_result(spec.shape, spec.dtype)
            chunk[: len(old)] = old[: len(chunk)]
            chunk[len(old) :] = kernel.fill_item(schema)
            return chunk
        chunk = np.full(spec.shape, kernel.fill_item(schema), spec.dtype)
        if old is not None:
            # A chunk that is cut at the edge of the array changes its shape when the edge moves.
            common = tuple(slice(min(pair)) for pair in zip(old.shape, spec.shape, strict=True))
            chunk[common] = old[common]
        return chunk

    def stage(
        self,
        chunks: Iterable[tuple[Coords, NDArray[Any]]],
        unit: tuple[int, ...] | None = None,
    ) -> Commit:
        """Return the commit that stores chunks; what exceeds the memory window is staged at once.

        `unit` is the number of chunks along each axis that share a key; chunks that share one must
        follow each other. Without it only an array with a key for each chunk is staged in parts.
        """
        return self.commit_of(self.encoded_chunks(chunks), unit)

    def commit_of(
        self, encoded: Iterable[tuple[Coords, Buffer | None]], unit: tuple[int, ...] | None
    ) -> Commit:
        """Return the commit that stores encoded chunks; `unit` as in `stage`.

        Chunks in C order complete the keys along the first axis one after the other, so what
        exceeds the memory window is staged where the first axis leaves a key.
        """
        store, schema = self.chunks.store, self.chunks.schema
        most = self.options.limits.window_bytes
        stream = self._streaming()
        if stream is not None:
            return stream.stage_each(encoded)
        if unit is None and self.chunks.template is not None:
            unit = (1,) * len(schema.shape)
        waiting: dict[Coords, bytes | None] = {}
        staged: list[Edit] = []
        held, block = 0, None
        try:
            for coords, data in encoded:
                signals.check()
                before, block = block, unit and tuple(map(floordiv, coords, unit))
                if held > most and block != before:
                    staged += stage_values(store, self.chunks.stage(waiting))
                    waiting, held = {}, 0
                waiting[coords] = None if data is None else bytes(data)
                held += 0 if data is None else len(data)
        except BaseException:
            discard(store, staged)
            raise
        rest = self.chunks.stage(waiting)
        return Commit(rest.prepare, (*staged, *rest.publish), rest.cleanup)

    def _streaming(self) -> Streaming | None:
        """Return the map that stores encoded chunks as they come; None where they are gathered."""
        return streaming(self.chunks)

    def encoded_chunks(
        self, chunks: Iterable[tuple[Coords, NDArray[Any]]]
    ) -> Iterator[tuple[Coords, bytes | None]]:
        """Yield chunks with the bytes to store for them, encoded natively where that is possible.

        Some chunks at a time, so that they can be shared out over threads.
        """
        schema, coder, rest = self.chunks.schema, self.chunk_coder(), iter(chunks)
        if coder is None:
            for coords, chunk in rest:
                yield coords, kernel.encode(chunk, schema, schema.grid.linear(coords))
            return
        while window := list(islice(rest, self.batch())):
            arrays = [
                (as_buffer(chunk, self.plain), schema.grid.linear(coords))
                for coords, chunk in window
            ]
            data = coder.encode_chunks(arrays, schema.sparse, self.thread_count())
            yield from zip((coords for coords, _ in window), data, strict=True)

    def _encoded(
        self, layout: HandedLayout, selection: BasicSelection, values: NDArray[Any]
    ) -> Iterator[tuple[Coords, bytes | None]]:
        """Yield the chunks of a box with the bytes to store for them, encoded natively.

        The chunks of one key follow each other.
        """
        if self.plain is not self.dtype:
            values = values.view(self.plain)
        unit = self.unit()
        waiting: list[tuple[Coords, bytes | None]] = []
        for encoded, failures in layout.encode(
            values, selection.starts, selection.steps, self.thread_count()
        ):
            self.raise_first(failures)
            if unit is None or set(unit) <= {1}:
                yield from encoded
                continue
            waiting += encoded
            # All keys before the one that the last chunk lies in along the first axis are complete.
            last = waiting[-1][0][0] // unit[0]
            ready = [each for each in waiting if each[0][0] // unit[0] < last]
            waiting = waiting[len(ready) :]
            yield from sorted(ready, key=lambda each: tuple(map(floordiv, each[0], unit)))
        if waiting and unit is not None:
            yield from sorted(waiting, key=lambda each: tuple(map(floordiv, each[0], unit)))

    def _has_rows(self) -> bool:
        """Return whether the native kernel finds single rows of the array by itself."""
        rows = not self.chunks.schema.padded or len(self.shape) == 1
        return rows and zone_mapped(self.chunks) is not None

    def zones(self) -> ZoneMaps | None:
        """Return the zone maps of all chunks; None where chunks have none."""
        chunks, dtype = zone_mapped(self.chunks), self.dtype
        if chunks is None or not has_zone_map(dtype):
            return None
        if self._zones is None:
            numbers = range(self.chunks.schema.grid.chunk_count)
            if len(numbers) > MANY and self._count_stored() < len(numbers):
                return None  # A read raises the error.
            if self.chunks.schema.sparse and len(numbers) > _MOST_ZONES:
                return None  # Most chunks are absent.
            layout = self.layout()
            packed = chunks.zones(numbers) if layout is None else layout.zones(numbers)
            self._zones = ZoneMaps.parse(packed, dtype)
        return self._zones

    def layout(self) -> native.Layout | HandedLayout | None:
        """Return the array as the native kernel takes it; None where the kernel cannot read it."""
        layout = self._layout
        if layout is ...:
            layout = None
            if self._cache is None:
                layout = kernel.native_layout(self.chunks, self.options, self._before)
            self._layout = layout
        return layout

    def chunk_coder(self) -> native.Layout | None:
        """Return what codes whole chunks natively; None where only Python can."""
        coder = self._coder
        if coder is ...:
            coder = self._coder = kernel.chunk_coder(self.chunks.schema, self.options)
        return coder

    def thread_count(self) -> int:
        if not self._threads:
            self._threads = self.options.thread_count()
        return self._threads

    def windows(self, nbytes: int) -> Iterator[tuple[slice, ...]]:
        """Yield keys of `verify` that cover the array, of whole chunks of about `nbytes` bytes."""
        # Chunks that share a file are read together.
        grid = stored_map(self.chunks).schema.grid
        yield from blocks(self.shape, block_shape(grid, self.dtype.itemsize, most=nbytes))

    def verify(
        self, key: tuple[slice, ...], memory: NDArray[np.uint8] | None = None
    ) -> list[ChunkFailure]:
        """Read the chunks that a key of `windows` touches, and return those that cannot be read.

        Items are decoded into `memory`, where they fit. The key may be that of a larger array.
        """
        box = parse(key, self.shape)
        assert isinstance(box, BasicSelection)
        if 0 in box.counts:
            return []
        layout = self.layout()
        if layout is not None:
            out = memory_for(box.counts, self.plain, memory)
            try:
                report = layout.read(out, box.starts, box.steps, self.thread_count(), None)
            except (IngotError, OSError):
                pass  # The store could not hand over all chunks: they are read one by one.
            else:
                return self._failures([] if report is None else report[1])
        axes = [
            numbers.tolist() if isinstance(numbers, np.ndarray) else numbers
            for numbers in map(_touched, box.starts, box.counts, self.chunks.schema.grid.axes)
        ]
        return list(self.verify_chunks(plan.lazy_product(axes)))

    def verify_chunks(self, coords: Iterable[Coords]) -> Iterator[ChunkFailure]:
        """Read chunks, and yield those that cannot be read."""
        chosen = iter(coords)
        while window := list(islice(chosen, self.window())):
            signals.check()
            try:
                for _ in self._decoded(window):
                    pass
            except (IngotError, OSError):
                for each in window:
                    try:
                        for _ in self._decoded([each]):
                            pass
                    except RemoteError:
                        raise
                    except (IngotError, OSError) as error:
                        yield ChunkFailure(each, self._key_at(each), error)

    def dropped(self, coords: Iterable[Coords]) -> Commit:
        """Return the commit that stores the fill value in chunks; their content is not read."""
        chunks = ((each, self.writable_chunk(each, None)) for each in sorted(set(coords)))
        return self.stage(chunks, self.unit())

    def dropped_files(self, coords: Iterable[Coords]) -> Commit:
        """Return the commit that removes the files, or shards, that hold chunks.

        Only where chunks may be absent: all items of the files then read as the fill value.
        """
        files = stored_map(self.chunks)
        unit = self.unit()
        assert unit is not None, "the chunks have files"
        keys = {tuple(map(floordiv, each, unit)) for each in coords}
        return files.stage(dict.fromkeys(sorted(keys)))

    def _failures(
        self, troubles: Sequence[tuple[tuple[int, ...], str, BaseException]]
    ) -> list[ChunkFailure]:
        """Return what the kernel reports as failures; rows have one number, bytes have no key."""
        found = []
        for coords, key, error in troubles:
            if not isinstance(error, Exception):
                raise error
            coords += (0,) * (len(self.shape) - len(coords))
            found.append(ChunkFailure(coords, key or self._key_at(coords), error))
        return sorted(found, key=lambda failure: failure.coords)

    def _key_at(self, coords: Coords) -> str:
        """Return the key that holds a chunk; empty where that is not known."""
        with suppress(IngotError, OSError):
            if key := key_of(self._before, coords):
                return key
        outer = stored_map(self._before)
        if outer.template is None:
            return ""
        unit = self.unit() or (1,) * len(coords)
        return outer.template.key(tuple(map(floordiv, coords, unit)))

    def explain(self, selection: Selection) -> Explanation:
        """Return the cost of reading a selection, without reading it."""
        kernel_name, reason = self._kernel_used(selection)
        count = self.count_chunks(selection)
        reading = Reading() if kernel_name == "python" else self._reading(selection, count)
        return explain(self.chunks, selection, kernel_name, reason, count, reading)

    def _reading(self, selection: Selection, count: int) -> Reading:
        """Return how the native kernel reads the chunks of a selection."""
        layout = self.layout()
        if layout is None or isinstance(selection, CoordinateSelection):
            return Reading()
        if not isinstance(layout, HandedLayout):
            files = layout

            def is_verified(extent: Extent) -> bool:
                return files.is_verified(extent.key, extent.start)

            def is_known(extent: Extent) -> bool:
                return files.is_known(extent.key, extent.start)

            return Reading(True, True, frames=True, is_verified=is_verified, is_known=is_known)
        parts, items = layout.parts, math.prod(selection.engine_shape)
        axes: tuple[range | NDArray[np.int64], ...]
        if isinstance(selection, BasicSelection):
            box = zip(selection.starts, selection.counts, selection.steps, strict=True)
            axes = tuple(range(start, start + n * step, step) for start, n, step in box)
        else:
            axes = selection.axes
        if parts is None or not items or not parts.wants_few(axes, items, count):
            return Reading(decodes_parts=True)
        known, most = parts.is_verified, whole_from
        return Reading(True, True, frames=True, is_verified=known, whole_from=most)

    def _kernel_used(self, selection: Selection) -> tuple[str, str]:
        """Return the kernel that reads a selection, and why and how it does."""
        reason = kernel.python_reason(self.chunks.schema, self.options)
        if reason is None and self._cache is not None:
            reason = "decoded chunks are cached"
        if reason is not None:
            return "python", reason
        return "native", self._native_reason(selection)

    def _native_reason(self, selection: Selection) -> str:
        """Return how the native kernel reads a selection."""
        layout = self.layout()
        if isinstance(selection, CoordinateSelection):
            return "chunk by chunk: the key selects points"
        if layout is None:
            return "chunk by chunk: the array has no axes, or chunks end at its edge"
        return HANDED_OVER if isinstance(layout, HandedLayout) else READ_BY_KERNEL

    def count_chunks(self, selection: Selection) -> int:
        """Return the number of chunks that a selection touches."""
        return plan.count_rows(selection, self.chunks.schema.grid)

    def raise_first(self, failures: Sequence[tuple[tuple[int, ...], str, BaseException]]) -> None:
        """Raise the failure of the first chunk, if any; the kernel fills absent chunks itself."""
        if failures:
            coords, key, error = min(failures, key=lambda failure: failure[0])
            # Chunks of rows have one number.
            coords += (0,) * (len(self.shape) - len(coords))
            # Of chunks that the store handed over, the kernel knows no keys. Of an index, it has
            # read what was wanted: what is wrong with the whole of it is raised first.
            key = key_of(self._before, coords) or key
            error.add_note(chunk_note(self.chunks, coords, key))
            raise error

    def _stage_natively(
        self, layout: native.Layout, selection: BasicSelection, values: NDArray[Any]
    ) -> list[Edit]:
        store = self.chunks.store
        check_writable(store)
        if self.plain is not self.dtype:
            values = values.view(self.plain)
        box = selection.starts, selection.steps
        count = plan.count_rows(selection, stored_map(self.chunks).schema.grid)
        self.check_count(count)
        threads = self.thread_count()

        def stage(transaction: str, edits: list[Edit]) -> None:
            for first in range(0, count, _STAGED_PER_CALL):
                staged, failures = layout.stage(
                    values, *box, first, first + _STAGED_PER_CALL, threads, transaction
                )
                edits += edits_of(staged)
                self.raise_first(failures)

        return staged_edits(store, stage)

    def stored_coords(self, selection: Selection, many: int = MANY) -> Iterator[Coords] | None:
        """Return the stored chunks of a selection, where they are few of more than `many`."""
        files = sparse.stored_files(self._before, selection, many)
        if files is None:
            return None
        self.confirm_absent()
        return sparse.stored_coords(self._before, files, selection)

    def _stored_numbers(self, selection: BasicSelection | OrthogonalSelection) -> list[int] | None:
        """Return the numbers of the stored files of a selection, where they are few of many."""
        if self._few_chunks is None:
            self._few_chunks = self.chunks.schema.grid.chunk_count <= MANY
        if self._few_chunks:
            return None
        files = sparse.stored_files(self.chunks, selection)
        if files is None:
            return None
        self.confirm_absent()
        if isinstance(self.layout(), HandedLayout):
            # The store hands over chunks, not shards.
            coords = list(sparse.stored_coords(self.chunks, files, selection))
            table = np.array(coords, np.int64).reshape(len(coords), len(self.shape))
            return sorted(sparse.file_numbers(table, selection, self.chunks.schema.grid))
        return sparse.file_numbers(files, selection, stored_map(self.chunks).schema.grid)

    def _erase(self, selection: Selection) -> Commit | None:
        """Return the commit that sets items to the fill value; None where chunks are not listed."""
        chunks, outer = self.chunks, stored_map(self.chunks)
        files = sparse.stored_files(self._before, selection)
        if files is None or outer.template is None:
            return None
        whole: list[Edit] = []
        partial: list[Coords] = []
        for row in plan.rows_of(selection, outer.schema.grid, map(tuple, files.tolist())):
            if row.covers(outer.schema.grid.valid_shape(row.coords)):
                whole.append(Delete(outer.template.key(row.coords)))
            else:
                partial.append(row.coords)
        table = np.array(partial, np.int64).reshape(len(partial), len(outer.schema.shape))
        coords = sparse.stored_coords(self._before, table, selection)
        rows = plan.rows_of(selection, chunks.schema.grid, coords)
        rest = self.stage(self._merged(rows, None), self.unit())
        return Commit(rest.prepare, (*whole, *rest.publish), rest.cleanup)

    def _count_stored(self) -> int:
        """Return the number of stored files, or of all chunks where the store cannot list."""
        files, grid = stored_map(self.chunks), self.chunks.schema.grid
        if files.template is None or Feature.LIST not in files.store.features:
            return grid.chunk_count
        return sum(1 for _ in stored(files.store, files.template, len(grid.counts)))

    def confirm_absent(self) -> None:
        """Raise `CorruptionError` if the metadata has changed: absent chunks may lie outside now.

        Other programs remove chunks when an array gets shorter. Only with the metadata of the store
        an absent chunk means the fill value.
        """
        chunks = self.chunks
        if chunks is not self._before or not chunks.documents:
            return  # The state is not committed yet.
        check = self._check
        if check is None:
            check = self._check = DocumentCheck()
        store = chunks.store
        if not (check.is_known(store, chunks) or check.compare(store, chunks, chunks.documents)):
            raise CorruptionError(
                f"{chunks.store.location}: chunks are missing, and another program has changed "
                "the metadata since it was read"
            )

    def unit(self) -> tuple[int, ...] | None:
        """Return the number of chunks along each axis that share a key; None where all do."""
        outer = stored_map(self.chunks)
        if outer.template is None:
            return None
        return tuple(map(floordiv, outer.schema.chunks, self.chunks.schema.chunks))

    def _read_rows(
        self,
        selection: Selection,
        result: NDArray[Any],
        failures: list[ChunkFailure] | None = None,
    ) -> None:
        """Read chunk by chunk; with `failures`, chunks that cannot be read are the fill value."""
        fill = kernel.fill_item(self.chunks.schema)
        grid = self.chunks.schema.grid
        found = self.stored_coords(selection)
        if found is None:
            rows = plan.rows(selection, grid)
        else:
            result[...] = fill
            rows = plan.rows_of(selection, grid, found)
        absent = False
        while window := list(islice(rows, self.window())):
            coords = [row.coords for row in window]
            decoded: Iterable[NDArray[Any] | None] = (
                self._decoded(coords)
                if failures is None
                else self._decoded_around(coords, failures)
            )
            for row, chunk in zip(window, decoded, strict=True):
                row.scatter(result, fill if chunk is None else row.take(chunk))
                absent = absent or chunk is None
        if absent:
            self.confirm_absent()
        if found is not None and failures is not None:
            failures += self._lost(selection)
        if (absent or found is not None) and not failures:
            self.refuse_missing(selection)

    def _merged(
        self, rows: Iterator[Row], values: NDArray[Any] | None
    ) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """Yield the new content of chunks: the values, over the old content or the fill value.

        Without values the fill value is assigned.
        """
        grid, fill = self.chunks.schema.grid, kernel.fill_item(self.chunks.schema)
        while window := list(islice(rows, self.window())):
            kept = [row for row in window if not row.covers(grid.valid_shape(row.coords))]
            coords = [row.coords for row in kept]
            decoded = iter(zip(coords, self._decoded(coords), strict=True))
            following = next(decoded, None)
            for row in window:
                old = None
                # Rows that keep something come in the order of the window.
                if following is not None and following[0] == row.coords:
                    old, following = following[1], next(decoded, None)
                chunk = self.writable_chunk(row.coords, old)
                row.put(chunk, fill if values is None else row.gather(values))
                yield row.coords, chunk

    def window(self, most: int | None = None) -> int:
        """Return how many chunks, with their rows of a plan, a window of `most` bytes holds.

        None stands for the memory window.
        """
        schema = self.chunks.schema
        nbytes = math.prod(schema.chunks) * schema.dtype.itemsize
        held = self.options.limits.window_bytes if most is None else most
        return max(1, held // max(nbytes, _ROW_BYTES))

    def batch(self) -> int:
        """Return how many chunks are decoded or encoded at a time, shared out over threads."""
        schema = self.chunks.schema
        nbytes = math.prod(schema.chunks) * schema.dtype.itemsize
        return max(1, min(self.options.limits.window_bytes, _BATCH_BYTES) // max(nbytes, 1))

    def _decoded(self, coords: Sequence[Coords]) -> Iterator[NDArray[Any] | None]:
        """Yield chunks, which may be read-only; None where every item is the fill value."""
        return self.decoded(coords, self.fetch(coords))

    def blosc_form(self, shape: tuple[int, ...]) -> "BloscForm | None":
        """Return the form of chunks of a shape where these are Blosc's; None where they are not."""
        schema = self._before.schema
        coding = schema.chain.native_coding(ChunkSpec(shape, schema.dtype, schema.fill))
        if coding is None or coding.kind not in ("blosc", "blosc2"):
            return None
        return BloscForm(shape, coding.axes)

    def blosc_bytes(
        self, coords: Sequence[Coords], fetched: "Sequence[Fetched]", executor: "Executor"
    ) -> list[Buffer | None]:
        """Return fetched chunks of an array of Blosc as Blosc has them, their checksums compared.

        None for a chunk that is not stored, or has another size. The first error is raised.
        """
        schema = self._before.schema

        def bare(place: Coords, each: Fetched) -> Buffer | None:
            if not isinstance(each.data, bytes | memoryview):
                return None
            with ChunkContext(self.chunks, place, each.location):
                found = schema.chain.unframed(each.data, schema.spec(place))
            return None if found is None else found.data

        if schema.chain.is_framed:
            return list(executor.map(bare, coords, fetched))
        return [
            each.data if isinstance(each.data, bytes | memoryview) else None for each in fetched
        ]

    def checked_part(
        self, coords: Coords, location: Location, stored: StoredBytes
    ) -> CheckedPart | None:
        """Return where the parts of a chunk with a trailer are, what is wanted of it compared.

        None where it has to be decoded as a whole. A block that does not agree is an error.
        """
        schema = self._before.schema
        with ChunkContext(self.chunks, coords, location):
            return schema.chain.checked_part(stored, schema.spec(coords))

    def part_reader(self) -> PartReader | None:
        """Return what reads parts of Blosc chunks; None where chunks are read as a whole."""
        reader = self._part_reader
        if reader is ...:
            reader, schema = None, self._before.schema
            coding = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype, schema.fill))
            plain = coding is not None and not coding.framed and self._cache is None
            if coding is not None and plain and PartReader.serves(self._before, coding):
                reader = PartReader(self._before, coding, self.options.verify)
            self._part_reader = reader
        return reader

    def fetch_parts(
        self, reader: PartReader, coords: Sequence[Coords], ask: Ask
    ) -> "tuple[list[Fetched | Pieces], list[Checked]]":
        """Return chunks as `fetch` does, or only the bytes of them that `ask` names.

        The second list is for `PartReader.remember`, once the checksums are compared.
        """
        chunks, ndim = self._before, len(self.shape)
        table = np.array(coords, np.int64).reshape(len(coords), ndim)
        held, checked = reader.fetch(table, ask)
        found: list[Fetched | Pieces] = []
        for each, location in zip(held, chunks.locate(table), strict=True):
            if isinstance(each, tuple) and len(each) == 2:
                found.append(Pieces(*each))
            else:
                found.append(Fetched(location, each if isinstance(each, bytes) else None))
        return found, checked

    def decoded(
        self, coords: Sequence[Coords], fetched: Sequence["Fetched"]
    ) -> Iterator[NDArray[Any] | None]:
        """Yield fetched chunks decoded; None where every item is the fill value."""
        schema = self._before.schema
        coder = None if self._cache is not None else self.chunk_coder()
        if coder is None:
            for place, each in zip(coords, fetched, strict=True):
                with ChunkContext(self.chunks, place, each.location):
                    chunk = self._decode(place, each)
                yield chunk
            return
        size = self.batch()
        for first in range(0, len(coords), size):
            chunks: list[NDArray[Any] | None] = []
            outs: list[tuple[NDArray[Any], int, bytes]] = []
            places: dict[int, int] = {}
            for place, each in zip(
                coords[first : first + size], fetched[first : first + size], strict=True
            ):
                if not isinstance(each.data, bytes):
                    with ChunkContext(self.chunks, place, each.location):
                        chunks.append(self._decode(place, each))
                    continue
                spec = schema.spec(place)
                chunk = kernel.new_result(spec.shape or (1,), self.plain)
                places[spec.number] = first + len(chunks)
                outs.append((chunk, spec.number, each.data))
                chunks.append(chunk.view(self.dtype).reshape(spec.shape))
            if failures := coder.decode_chunks(outs, self.thread_count()):
                (number,), _, error = min(failures, key=lambda failure: places[failure[0][0]])
                with ChunkContext(self.chunks, coords[places[number]], fetched[places[number]][0]):
                    raise error
            yield from chunks

    def fetch(self, coords: Sequence[Coords], read: "Read | None" = None) -> list["Fetched"]:
        """Return the location of each chunk in the committed state, with its bytes or array.

        `read` reads the bytes in place of the store; it also gets the places of the chunks, and may
        return pieces.
        """
        chunks = self._before
        counts = chunks.schema.grid.counts
        # Chunks beyond the grid are absent, even where a larger array left files for them.
        inside = [n for n, each in enumerate(coords) if all(map(int.__lt__, each, counts))]
        table = np.array([coords[n] for n in inside], np.int64).reshape(len(inside), len(counts))
        found = [_ABSENT] * len(coords)
        wanted: list[tuple[int, Extent, Hashable]] = []
        for n, location in zip(inside, chunks.locate(table), strict=True):
            if isinstance(location, Inline):
                found[n] = Fetched(location, location.data)
            elif isinstance(location, Constant):
                found[n] = Fetched(location, None)
            else:
                # Taken before the bytes are read: bytes that replace them have another identity.
                identity = self._identity(location)
                cached = self._cached(coords[n], identity)
                found[n] = Fetched(location, cached)
                if cached is None:
                    wanted.append((n, location, identity))
        extents = [extent for _, extent, _ in wanted]
        if read is None:
            data: Sequence[bytes | memoryview | Pieces | None] = chunks.store.read(extents)
        else:
            data = read(chunks.store, extents, [n for n, _, _ in wanted])
        for (n, extent, identity), each in zip(wanted, data, strict=True):
            found[n] = Fetched(extent, each, identity)
        if manifested(chunks) is not None:
            self._mark_lost(coords, inside, found)
        return found

    def _mark_lost(
        self, coords: Sequence[Coords], inside: Sequence[int], found: list["Fetched"]
    ) -> None:
        """Mark the chunks that are not stored although the manifest names them."""
        unit = self.unit()
        assert unit is not None, "what has a manifest has files"
        absent = {n: tuple(map(floordiv, coords[n], unit)) for n in inside if found[n].data is None}
        lost = sparse.lost_among(self._before, list(absent.values()))
        for n, file in absent.items():
            found[n] = found[n]._replace(lost=file in lost)

    def _decode(self, coords: Coords, fetched: "Fetched") -> NDArray[Any] | None:
        """Return a chunk, which may be read-only; None where every item is the fill value."""
        schema = self._before.schema
        location, data, identity, lost = fetched
        if lost:
            raise CorruptionError(LOST)
        if isinstance(location, Constant):
            if location.value is schema.fill:
                return None
            return np.broadcast_to(
                np.asarray(location.value, schema.dtype), schema.spec(coords).shape
            )
        if data is None and isinstance(location, Extent) and not schema.sparse:
            raise CorruptionError("the chunk is missing")
        if data is None or isinstance(data, np.ndarray):
            return data
        assert not isinstance(data, Pieces), "only a device decodes pieces"
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


@dataclass(frozen=True, slots=True, eq=False)
class _SlotRun:
    """Chunks of one call that the kernel encodes into the files that hold many of them."""

    numbers: NDArray[np.int64]
    engine: Engine
    chunks: Slotted
    write: "Callable[[slice, _Room], _Written]"

    def write_to(
        self, part: slice, descriptor: int, gaps: Sequence[tuple[int, int]], end: int, spare: float
    ) -> tuple[NDArray[np.int64], int, int | None]:
        places, end, checksum, troubles = self.write(part, (descriptor, gaps, end, spare))
        self.engine.raise_first(troubles)
        return np.frombuffer(places, "<i8").reshape(-1, 3), end, checksum

    def commit(self) -> Commit:
        return self.chunks.stage_slots(self)


class Fetched(NamedTuple):
    """The location of a chunk, its bytes or the decoded chunk, and the identity of the bytes."""

    location: Location
    data: "bytes | memoryview | Pieces | NDArray[Any] | None"
    identity: Hashable = None
    lost: bool = False
    """Whether it is not stored although the manifest of the array names it."""


class Pieces(NamedTuple):
    """The size of a chunk, and pieces of it with the places of their first bytes."""

    size: int
    pieces: Sequence[tuple[int, bytes | memoryview]]


class BloscForm(NamedTuple):
    """The shape of the items of a Blosc chunk, and their axes, the slowest first."""

    shape: tuple[int, ...]
    axes: tuple[int, ...]


_ABSENT: Final = Fetched(Inline(b""), None)


def memory_for(
    shape: tuple[int, ...], dtype: np.dtype[Any], memory: NDArray[np.uint8] | None
) -> NDArray[Any]:
    """Return an array for items that are not kept: in `memory`, if they fit."""
    nbytes = math.prod(shape) * dtype.itemsize
    if memory is None or nbytes > len(memory) or not dtype.itemsize:
        return kernel.new_result(shape, dtype)
    return memory[:nbytes].view(dtype).reshape(shape)


def _touched(start: int, count: int, axis: int | RectilinearAxis) -> range | NDArray[np.int64]:
    """Return the numbers of the chunks along an axis that hold items."""
    if isinstance(axis, RectilinearAxis):
        return axis.touched(range(start, start + count))
    return range(start // axis, (start + count - 1) // axis + 1)


def as_buffer(chunk: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a chunk as the kernel takes it: in C order, and with one axis at least."""
    return np.ascontiguousarray(chunk).reshape(chunk.shape or (1,)).view(dtype)


def _of_kernel(layout: native.Layout | HandedLayout) -> native.Layout:
    """Return the layout of the kernel: of files, or that to which chunks are handed."""
    return layout.kernel if isinstance(layout, HandedLayout) else layout


def key_of(chunks: ChunkMap, coords: tuple[int, ...]) -> str:
    """Return the key that holds a chunk; empty where no key does."""
    (location,) = chunks.locate(np.array([coords], np.int64).reshape(1, len(coords)))
    return location.key if isinstance(location, Extent) else ""


def assign_together(
    assignments: Sequence[tuple[Engine, Selection, object]],
) -> list[Commit]:
    """Return the commits that assign values to selections of several arrays of one store.

    Chunks that are files are staged by one call into the kernel, those of all arrays.
    """
    commits: dict[int, Commit] = {}
    boxes: dict[int, tuple[native.Layout, NDArray[Any], tuple[int, ...]]] = {}
    total = 0
    for number, (engine, selection, value) in enumerate(assignments):
        same = engine.chunks.store is assignments[0][0].chunks.store
        box = engine._box(selection, value) if same else None
        if box is not None:
            boxes[number] = box
            count = plan.count_rows(selection, engine.chunks.schema.grid)
            engine.check_count(count)
            total += count
    if len(boxes) > 1 and total <= _STAGED_PER_CALL:
        commits = _stage_boxes(assignments, boxes)
    try:
        for number, (engine, selection, value) in enumerate(assignments):
            if number not in commits:
                commits[number] = engine.assign(selection, value)
    except BaseException:
        for number, commit in commits.items():
            assignments[number][0].discard(commit)
        raise
    return [commits[number] for number in range(len(assignments))]


def _stage_boxes(
    assignments: Sequence[tuple[Engine, Selection, object]],
    boxes: Mapping[int, tuple[native.Layout, NDArray[Any], tuple[int, ...]]],
) -> dict[int, Commit]:
    """Return the commits of those assignments of which there are boxes, by their numbers."""
    first = assignments[next(iter(boxes))][0]
    store, threads = first.chunks.store, first.thread_count()
    check_writable(store)
    commits: dict[int, Commit] = {}

    def stage(transaction: str, edits: list[Edit]) -> None:
        found = native.stage_arrays(list(boxes.values()), threads, transaction)
        for number, (staged, _) in zip(boxes, found, strict=True):
            own = edits_of(staged)
            edits += own
            commits[number] = Commit(publish=tuple(own))
        for number, (_, failures) in zip(boxes, found, strict=True):
            assignments[number][0].raise_first(failures)

    staged_edits(store, stage)
    return commits


class ChunkContext:
    """Adds the chunk to the message of an error that is raised within the block."""

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
            error.add_note(chunk_note(self._chunks, self._coords, key))


def chunk_note(chunks: ChunkMap, coords: tuple[int, ...], key: str) -> str:
    """Return what the message of an error adds about the chunk that it happened in."""
    return f"in chunk {coords}, key {key!r}, of {chunks.store.location}"

"""Selections read onto a device: which bytes of which chunks it gets, and where their items go.

The chunks of a selection are fetched in windows of bounded size; where little of them is wanted,
only the blocks that are needed. Blosc chunks go to the device as they are stored, as far as their
blocks are needed; their checksums are compared before. Any other
chunk is decoded here, and what is wanted of it is sent. While the device works on one window, the
next one is fetched. A chunk that the device refuses is decoded here as well, which raises what a
read without a device would.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import islice
from operator import mul
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import CheckedPart, CodecChain, StoredBytes
from ingot.device.device import Device
from ingot.device.plan import Part, Region, Steps, WantedChunks, make_plan
from ingot.device.window import BoxAxis, Buffer, ChunkPieces, Staged, Window, WindowBuilder
from ingot.engine import flat, kernel, plan
from ingot.engine.parts import Checked
from ingot.engine.plan import BoxRow, Row
from ingot.engine.run import BloscForm, Engine, Fetched, Pieces
from ingot.errors import ArgumentError, IngotError, UnsupportedError
from ingot.formats.format import Coords
from ingot.selection import BasicSelection, Selection, parse
from ingot.stores.store import Extent, Store, ValuesToRead, fills_memory, opened_values

__all__ = ["device_dtype", "read"]

Ints: TypeAlias = NDArray[np.int64]
Statuses: TypeAlias = Callable[[], NDArray[np.uint32]]
"""Waits for a window, and returns the status of each stream."""

# The types of numbers that GPUs have, by their kind and size.
_WIDTHS: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
# How many windows the device may have at a time: one to decode, one that is on its way.
_AHEAD: Final = 2
# Chunks of which less than one part in so many is wanted are not read as a whole.
_FEW: Final = 3
# So many bytes of a file are read to learn where its blocks are.
_HEAD: Final = 4096
# Up to so many bytes are read by the thread of the caller: handing them over would take longer.
_SOON: Final = 16 << 20


def device_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that items have on a device: the same, in the byte order of the machine.

    >>> device_dtype(np.dtype(">f4"))
    dtype('float32')
    >>> device_dtype(np.dtype("M8[ns]"))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: items of type datetime64[ns] cannot be read onto a device, ...
    """
    own = dtype.isbuiltin != 2 and dtype.itemsize in _WIDTHS.get(dtype.kind, ())
    if not own:
        raise UnsupportedError(
            f"items of type {dtype} cannot be read onto a device, which has booleans, integers, "
            "and real and complex numbers"
        )
    return dtype.newbyteorder("=")


def read(engine: Engine, device: Device, key: Any, out: Any = None) -> Any:
    """Return what ``array[key]`` is, as an array of a device: a new one, or `out`."""
    selection = parse(key, engine.shape)
    if out is None:
        return _read_new(engine, selection, device)
    _read_into(engine, selection, device, out)
    return out


def _read_new(engine: Engine, selection: Selection, device: Device) -> Any:
    dtype = device_dtype(engine.dtype)
    if engine.options.damaged == "fill":
        # Which chunks are damaged is found out by decoding them.
        return device.upload(np.asarray(engine.read(selection), dtype))
    return selection.finish(_read(engine, selection, device, None))


def _read_into(engine: Engine, selection: Selection, device: Device, out: Any) -> None:
    dtype = device_dtype(engine.dtype)
    contiguous = device.is_contiguous(out)
    if out.shape != selection.shape or out.dtype != dtype:
        raise ArgumentError(
            f"out is {out.dtype}{list(out.shape)}, the selection is {dtype}{list(selection.shape)}"
        )
    direct = isinstance(selection, BasicSelection) and engine.boxes() is engine
    if contiguous and direct and engine.options.damaged != "fill":
        _read(engine, selection, device, out.reshape(selection.engine_shape))
    else:
        out[...] = _read_new(engine, selection, device)


def _read(engine: Engine, selection: Selection, device: Device, result: Any) -> Any:
    """Return the items of a selection in engine order, in `result` where it is given."""
    if engine.boxes() is not engine:
        return _read_flat(engine, selection, device)
    dtype = device_dtype(engine.dtype)
    if result is None:
        result = device.empty(selection.engine_shape, dtype)
    if 0 not in selection.engine_shape:
        _BoxReader(engine, device, result, selection).run()
        _restore_order(engine, device, result)
    return result


def _read_flat(engine: Engine, selection: Selection, device: Device) -> Any:
    """Return the items of a selection of a flat array in engine order."""
    schema = engine.chunks.schema
    wanted, repeats = flat.without_repeats(selection, engine.shape)
    transposed, shape = flat.is_transposed(wanted, schema), wanted.engine_shape
    memory = device.empty(shape[::-1] if transposed else shape, device_dtype(engine.dtype))
    if 0 not in shape:
        _RunReader(engine.boxes(), device, memory, flat.cut(wanted, schema)).run()
        _restore_order(engine, device, memory)
    result = memory.T if transposed else memory
    for axis, places in repeats:
        result = result.take(device.upload(places), axis)
    return result


def _restore_order(engine: Engine, device: Device, result: Any) -> None:
    """Turn the bytes of items around that are stored in the other byte order."""
    dtype = engine.dtype
    if not dtype.isnative:
        device.swap_bytes(result, dtype.itemsize // (2 if dtype.kind == "c" else 1))


def _strides(shape: Sequence[int], order: Sequence[int], itemsize: int) -> list[int]:
    """Return the strides of an array whose axes lie in an order, the slowest first."""
    strides = [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = itemsize
        itemsize *= shape[axis]
    return strides


def _packed(lengths: Sequence[int], itemsize: int) -> Part:
    """Return items that lie one behind the other, the last axis fastest."""
    strides = _strides(lengths, range(len(lengths)), itemsize)
    return Part(0, [Steps(*each) for each in zip(lengths, strides, strict=True)])


def _same(lengths: Sequence[int]) -> Part:
    """Return one item, for all places of a result."""
    return Part(0, [Steps(length, 0) for length in lengths])


def _region(row: Row, strides: Sequence[int], target_strides: Sequence[int]) -> Region:
    """Return the items of a chunk that a row wants, and the places of engine order they go to."""
    if isinstance(row, BoxRow):
        return Region(row.source, strides, row.target, target_strides, row.items)
    points = np.zeros(len(row.offsets[0]), np.int64)
    for axis, offsets in zip(row.axes, row.offsets, strict=True):
        points += offsets * strides[axis]
    others = [stride for axis, stride in enumerate(strides) if axis not in row.axes]
    return Region(
        (points, *(part.source for part in row.ranges)),
        (1, *others),
        (row.points, *(part.target for part in row.ranges)),
        target_strides,
        (len(points), *(part.items for part in row.ranges)),
    )


class _WantedItems(NamedTuple):
    """What is wanted of one chunk.

    `take` cuts it out of the decoded chunk. `regions` are the items of a chunk whose axes have some
    strides, and the places that they go to; there are several of a flat array.
    """

    coords: Coords
    take: Callable[[NDArray[Any]], NDArray[Any]]
    regions: Callable[[Sequence[int]], list[Region]]

    def places(self) -> list[tuple[Sequence[int], Part]]:
        """Return the lengths of the axes of each region, and the places that its items go to."""
        regions = self.regions([0] * len(self.coords))
        return [(region.lengths, region.places) for region in regions]


class _StagedSource:
    """Reads the values of a window into memory that the device copies, where a store can do so."""

    def __init__(self, device: Device, executor: Executor, threads: int) -> None:
        self._device = device
        self._executor = executor
        self._threads = threads
        self._opened = ExitStack()
        self._values: ValuesToRead | None = None
        self.memory: NDArray[np.uint8] | None = None
        self.is_refused = False

    def whole(
        self, store: Store, extents: Sequence[Extent], numbers: Sequence[int]
    ) -> Sequence[bytes | memoryview | Pieces | None]:
        """Begin to read extents; return their bytes, as the store would. They are there in the end.

        The end is when `finish` has returned.
        """
        values = self._open(store, extents)
        return store.read(extents) if values is None else self._begin(values, {})

    def parts(
        self,
        plan: WantedChunks,
        chain: CodecChain,
        store: Store,
        extents: Sequence[Extent],
        numbers: Sequence[int],
    ) -> Sequence[bytes | memoryview | Pieces | None]:
        """Begin to read what a plan needs of extents, of which `numbers` are those in the plan.

        Their first bytes are read at once. Where a store cannot do so, `is_refused` becomes True.
        """
        values = self._open(store, extents)
        if values is None:
            self.is_refused = True
            return [None] * len(extents)
        first = [None if size is None else min(size, _HEAD) for size in values.sizes]
        heads = _read_parts(values, [(n, 0, size) for n, size in enumerate(first) if size])
        begin = chain.head_bytes
        chunks = [head[begin:] for head in heads.values()]
        needs = plan.needed([numbers[n] for n in heads], chunks)
        found: dict[int, tuple[bytes, Sequence[tuple[int, int]]]] = {}
        for n, chunk, need in zip(heads, chunks, needs, strict=True):
            size = values.sizes[n]
            if need is None or size is None:
                continue
            # A size that is not true is found out from the whole chunk.
            end = begin + need[0]
            if end == size or (chain.is_trailed and end < size):
                found[n] = heads[n], chain.part_ranges(chunk, size, need[1])
        return self._begin(values, found)

    def _open(self, store: Store, extents: Sequence[Extent]) -> ValuesToRead | None:
        opened = opened_values(store, extents)
        return None if opened is None else self._opened.enter_context(opened)

    def _begin(
        self, values: ValuesToRead, needed: Mapping[int, tuple[bytes, Sequence[tuple[int, int]]]]
    ) -> list[memoryview | Pieces | None]:
        """Begin to read values, or only those ranges of them that are needed."""
        parts: list[tuple[int, int, int]] = []
        for number, size in enumerate(values.sizes):
            if number in needed:
                parts += [(number, start, stop) for start, stop in needed[number][1]]
            elif size is not None:
                parts.append((number, 0, size))
        total = sum(stop - start for _, start, stop in parts)
        memory = self._device.staging(total)
        self.memory, at = memory, 0
        pieces: dict[int, list[tuple[int, bytes | memoryview]]] = {}
        for number, start, stop in parts:
            part = memory.data[at : at + stop - start]
            at += stop - start
            pieces.setdefault(number, []).append((start, part))
        result: list[memoryview | Pieces | None] = [None] * len(values.sizes)
        for number, own in pieces.items():
            size = values.sizes[number]
            assert size is not None, "what is absent has no pieces"
            head = [(0, needed[number][0])] if number in needed else []
            whole = own[0][1] if not head and isinstance(own[0][1], memoryview) else None
            result[number] = Pieces(size, [*head, *own]) if whole is None else whole
        if total <= _SOON:
            values.read_parts(memory.data, parts, self._threads)
            self.close()
        else:
            values.begin_reading(memory.data, parts, self._executor, self._threads)
            self._values = values
        return result

    def finish(self) -> None:
        """Wait until all bytes are there; raise the error of the first that cannot be read."""
        if self._values is not None:
            self._values.finish_reading()
        self.close()

    def close(self) -> None:
        """Close what is open, once nothing is read any more."""
        self._values = None
        self._opened.close()


def _read_parts(values: ValuesToRead, parts: Sequence[tuple[int, int, int]]) -> dict[int, bytes]:
    """Return short parts of values, by the numbers of the values."""
    memory = memoryview(bytearray(sum(stop - start for _, start, stop in parts)))
    values.read_parts(memory, parts, 1)
    found, at = {}, 0
    for number, start, stop in parts:
        found[number] = bytes(memory[at : at + stop - start])
        at += stop - start
    return found


def _chunk_in(pieces: Pieces, checked: CheckedPart) -> Buffer | ChunkPieces:
    """Return a chunk without what lies before and behind it.

    Of several pieces the first one gives the front only: all blocks come from the others, where
    they were compared.
    """
    begin, front, end = checked
    _, first = pieces.pieces[0]
    if len(pieces.pieces) == 1:
        return memoryview(first)[begin:end]
    others = [(start - begin, data) for start, data in pieces.pieces[1:] if start < end]
    return ChunkPieces(end - begin, [(0, memoryview(first)[begin:front]), *others])


class _ComingWindow:
    """The chunks of a window, which are fetched before it is planned.

    What goes wrong meanwhile is raised when it is planned: windows before it have their errors
    first.
    """

    def __init__(self, source: _StagedSource) -> None:
        self.source = source
        self.group: list[_WantedItems] = []
        self.plan: WantedChunks | None = None
        self.fetched: Sequence[Fetched | Pieces] = ()
        self.checked: list[Checked] = []
        self.error: Exception | None = None

    def finish(self) -> None:
        """Wait until all chunks are there; raise what went wrong."""
        if self.error is not None:
            raise self.error
        self.source.finish()


class _DeviceReader:
    """Sends the chunks of an engine to a device, window by window."""

    def __init__(self, engine: Engine, device: Device, result: Any) -> None:
        self._engine = engine
        self._device = device
        self._result = result
        self._itemsize = engine.dtype.itemsize
        self._threads = engine.thread_count()
        self._forms: dict[tuple[int, ...], tuple[BloscForm, list[int]] | None] = {}
        self.absent = False

    def send(self, chunks: Iterable[_WantedItems]) -> None:
        """Decode what is wanted of chunks, and return when all of it is in the result."""
        # The native kernel reads windows one after the other, each by threads of its own.
        readers = 1 if native.read_ranges() is not None else self._threads
        with (
            ThreadPoolExecutor(readers, "ingot-reading") as reading,
            ThreadPoolExecutor(self._threads, "ingot-device") as executor,
        ):
            self._send(chunks, reading, executor)

    def _send(self, chunks: Iterable[_WantedItems], reading: Executor, executor: Executor) -> None:
        coming: list[_ComingWindow] = []
        pending: list[tuple[list[_WantedItems], Window, Statuses]] = []
        source = iter(chunks)
        try:
            while coming or self._begin(source, reading, coming):
                # Threads read the files of the next window while this one is planned.
                if coming[0].source.memory is not None:
                    self._begin(source, reading, coming)
                try:
                    for window in self._windows(coming[0], executor):
                        submitted = self._device.submit(window, self._result)
                        pending.append((coming[0].group, window, submitted))
                        if len(pending) == _AHEAD:
                            self._settle(*pending.pop(0))
                except Exception:
                    # Chunks of windows before have their errors first.
                    while pending:
                        self._settle(*pending.pop(0))
                    raise
                coming.pop(0)
            while pending:
                self._settle(*pending.pop(0))
        finally:
            # After an error too, memory is not given back while files are read into it, or while
            # the device works on it.
            for each in coming:
                each.source.close()
            for _, _, wait in pending:
                wait()

    def _begin(
        self, chunks: Iterator[_WantedItems], executor: Executor, coming: list[_ComingWindow]
    ) -> bool:
        """Fetch the chunks of a window, or begin to; return whether there is one more."""
        window = _ComingWindow(_StagedSource(self._device, executor, self._threads))
        coming.append(window)
        try:
            most = self._engine.options.limits.device_window_bytes
            window.group = list(islice(chunks, self._engine.window(most)))
            if not window.group:
                coming.pop()
                return False
            found = [self._in_chunk(wanted) for wanted in window.group]
            sizes = [None if each is None else each[0] for each in found]
            regions = [[] if each is None else each[1] for each in found]
            window.plan = make_plan(self._itemsize, sizes, regions)
            window.fetched, window.checked = self._fetched(window, window.plan, None not in sizes)
        except Exception as error:
            window.error = error
        return True

    def fill(self, item: bytes, shape: Sequence[int]) -> None:
        """Fill the whole result with an item."""
        builder = WindowBuilder()
        staged = builder.add_plain(0, item)
        self._add_box(builder, staged, 0, _same(shape), _packed(shape, len(item)))
        self._device.submit(builder.build(), self._result)()

    def _windows(self, coming: _ComingWindow, executor: Executor) -> Iterator[Window]:
        """Yield the windows of some chunks: those as they are stored, then those decoded here."""
        coming.finish()
        engine, group, fetched, plan = self._engine, coming.group, coming.fetched, coming.plan
        assert plan is not None, "chunks that are fetched are planned"
        memory = coming.source.memory
        window, others = plan.build(memory, self._stored(coming, executor), self._threads)
        if len(others) < len(group):
            yield window
        if others:
            builder = WindowBuilder()
            for number, items in zip(others, self._decoded(group, fetched, others), strict=True):
                self._add_decoded(builder, number, group[number], items)
            yield builder.build()
        reader = engine.part_reader()
        if reader is not None and coming.checked:
            reader.remember(coming.checked)

    def _stored(
        self, coming: _ComingWindow, executor: Executor
    ) -> list[Buffer | ChunkPieces | None]:
        """Return the chunks of a window as they are stored, their checksums compared."""
        if self._engine.chunks.schema.chain.is_trailed:
            return self._trailed(coming, executor)
        found: list[Buffer | ChunkPieces | None] = [
            ChunkPieces(*each) if isinstance(each, Pieces) else None for each in coming.fetched
        ]
        whole = [n for n, each in enumerate(coming.fetched) if isinstance(each, Fetched)]
        coords = [coming.group[n].coords for n in whole]
        fetched = [each for each in coming.fetched if isinstance(each, Fetched)]
        if coords and self._form(coords[0]) is not None:
            stored = self._engine.blosc_bytes(coords, fetched, executor)
            for n, each in zip(whole, stored, strict=True):
                found[n] = each
        return found

    def _trailed(
        self, coming: _ComingWindow, executor: Executor
    ) -> list[Buffer | ChunkPieces | None]:
        """Return chunks that have trailers, the checksums of what is wanted of them compared."""
        engine, group, plan = self._engine, coming.group, coming.plan
        assert plan is not None, "chunks that are fetched are planned"

        def part(number: int) -> Buffer | ChunkPieces | IngotError | None:
            fetched, coords = coming.fetched[number], group[number].coords
            assert isinstance(fetched, Fetched), "chunks with trailers are fetched with locations"
            data = fetched.data
            if not isinstance(data, bytes | memoryview | Pieces) or self._form(coords) is None:
                return None
            pieces = data if isinstance(data, Pieces) else Pieces(len(data), [(0, data)])
            # The first piece comes last: it may repeat bytes of blocks, and those that the device
            # gets are the ones to compare.
            ordered = ChunkPieces(pieces.size, [*pieces.pieces[1:], pieces.pieces[0]])
            stored = StoredBytes(pieces.size, ordered.cut, partial(plan.blocks, number))
            try:
                checked = engine.checked_part(coords, fetched.location, stored)
            except IngotError as error:
                return error
            return None if checked is None else _chunk_in(pieces, checked)

        found: list[Buffer | ChunkPieces | None] = []
        for number, each in enumerate(executor.map(part, range(len(group)))):
            if isinstance(each, IngotError):
                # Chunks before that are decoded here have their errors first.
                before = [n for n in range(number) if found[n] is None]
                for _ in self._decoded(group, coming.fetched, before):
                    pass
                raise each
            found.append(each)
        return found

    def _decoded(
        self,
        group: Sequence[_WantedItems],
        fetched: Sequence[Fetched | Pieces],
        numbers: Sequence[int],
    ) -> Iterator[NDArray[Any] | None]:
        """Yield some chunks of a window decoded here; None where all items are the fill value."""
        engine, schema = self._engine, self._engine.chunks.schema
        coords = [group[number].coords for number in numbers]
        whole = [self._whole(group[number], fetched[number]) for number in numbers]
        try:
            yield from engine.decoded(coords, whole)
        except IngotError:
            if schema.chain.is_trailed:
                # A read of any item says first what is wrong with front or trailer, and says of a
                # slot what it knows of it.
                for place in coords:
                    first = tuple(map(mul, place, schema.chunks))
                    engine.read(parse(first, engine.shape))
            raise

    def _whole(self, wanted: _WantedItems, fetched: Fetched | Pieces) -> Fetched:
        """Return a chunk that is decoded here; pieces of it are of no use."""
        if isinstance(fetched, Pieces) or isinstance(fetched.data, Pieces):
            return self._engine.fetch([wanted.coords])[0]
        whole = fetched
        if isinstance(whole.data, memoryview):
            whole = whole._replace(data=bytes(whole.data))
        return whole

    def _form(self, coords: Coords) -> tuple[BloscForm, list[int]] | None:
        """Return the form of a Blosc chunk, and its strides; None where chunks are not Blosc's."""
        shape = self._engine.chunks.schema.grid.stored_shape(coords)
        if shape not in self._forms:
            form = self._engine.blosc_form(shape)
            self._forms[shape] = None
            if form is not None:
                self._forms[shape] = form, _strides(shape, form.axes, self._itemsize)
        return self._forms[shape]

    def _in_chunk(self, wanted: _WantedItems) -> tuple[int, list[Region]] | None:
        """Return the size of a Blosc chunk, and what is wanted of it; None for other chunks."""
        form = self._form(wanted.coords)
        if form is None:
            return None
        return math.prod(form[0].shape) * self._itemsize, wanted.regions(form[1])

    def _fetched(
        self, window: _ComingWindow, plan: WantedChunks, known: bool
    ) -> "tuple[Sequence[Fetched | Pieces], list[Checked]]":
        """Return chunks, or only the blocks that are needed where these are a small part of all.

        `known` says whether all chunks are Blosc's.
        """
        engine, source = self._engine, window.source
        coords = [each.coords for each in window.group]
        wanted, every = plan.sizes()
        few = wanted * _FEW < every
        chunks = engine.chunks
        chain = chunks.schema.chain
        in_parts = known and (chain.is_trailed or not chain.is_framed)
        if in_parts and wanted < every // 4 * 3 and fills_memory(chunks.store):
            # Chunks without a checksum of all bytes: what is not needed is not read.
            found = engine.fetch(coords, partial(source.parts, plan, chain))
            if not source.is_refused and chain.is_trailed:
                return found, []
            if not source.is_refused:
                return [each.data if isinstance(each.data, Pieces) else each for each in found], []
        if known and not few:
            return engine.fetch(coords, source.whole), []
        reader = engine.part_reader() if few else None
        if reader is None:
            return engine.fetch(coords), []
        return engine.fetch_parts(reader, coords, plan.needed)

    def _settle(self, group: Sequence[_WantedItems], window: Window, wait: Statuses) -> None:
        """Wait for a window, and decode here what the device refused of it."""
        failed = window.failed(wait())
        if not failed:
            return
        builder, engine = WindowBuilder(), self._engine
        coords = [group[number].coords for number in failed]
        decoded = engine.decoded(coords, engine.fetch(coords))
        for number, chunk in zip(failed, decoded, strict=True):
            self._add_decoded(builder, number, group[number], chunk)
        self._device.submit(builder.build(), self._result)()

    def _add_decoded(
        self, builder: WindowBuilder, number: int, wanted: _WantedItems, chunk: NDArray[Any] | None
    ) -> None:
        """Add what is wanted of a decoded chunk; None stands for the fill value."""
        if chunk is None:
            self.absent = True
            staged = builder.add_plain(number, self._fill())
            for lengths, target in wanted.places():
                self._add_box(builder, staged, 0, _same(lengths), target)
            return
        items = np.ascontiguousarray(wanted.take(chunk))
        staged, start = builder.add_plain(number, items.reshape(-1).view(np.uint8).data), 0
        for lengths, target in wanted.places():
            self._add_box(builder, staged, start, _packed(lengths, self._itemsize), target)
            start += math.prod(lengths) * self._itemsize

    def _add_box(
        self, builder: WindowBuilder, staged: Staged, start: int, source: Part, target: Part
    ) -> None:
        """Add items that begin at byte `start` of a decoded chunk, or behind it."""
        axes = [
            BoxAxis(one.length, one.step, other.step, one.table, other.table)
            for one, other in zip(source.axes, target.axes, strict=True)
        ]
        builder.add_box(staged, start + source.start, target.start, self._itemsize, axes)

    def _fill(self) -> bytes:
        return kernel.fill_item(self._engine.chunks.schema).tobytes()


class _BoxReader(_DeviceReader):
    """Reads a selection of an array whose chunks are boxes."""

    def __init__(self, engine: Engine, device: Device, result: Any, selection: Selection) -> None:
        super().__init__(engine, device, result)
        self._selection = selection
        shape = selection.engine_shape
        self._strides = _strides(shape, range(len(shape)), self._itemsize)

    def run(self) -> None:
        """Read all of the selection."""
        engine, selection = self._engine, self._selection
        grid = engine.chunks.schema.grid
        found = engine.stored_coords(selection)
        if found is None:
            rows = plan.rows(selection, grid)
        else:
            self.fill(self._fill(), selection.engine_shape)
            rows = plan.rows_of(selection, grid, found)
        self.send(map(self._wanted, rows))
        if self.absent:
            engine.confirm_absent()
        if self.absent or found is not None:
            engine.refuse_missing(selection)

    def _wanted(self, row: Row) -> _WantedItems:
        def regions(strides: Sequence[int]) -> list[Region]:
            return [_region(row, strides, self._strides)]

        return _WantedItems(row.coords, row.take, regions)


class _RunReader(_DeviceReader):
    """Reads runs of the payload of a flat array."""

    def __init__(self, engine: Engine, device: Device, result: Any, runs: flat.Runs) -> None:
        super().__init__(engine, device, result)
        self._runs = runs

    def run(self) -> None:
        """Read all of the runs."""
        (step,) = self._engine.chunks.schema.chunks
        self.send(map(self._wanted, self._runs.touched(step)))

    def _wanted(self, number: int) -> _WantedItems:
        (size,), (step,) = self._engine.shape, self._engine.chunks.schema.chunks
        begin, end = number * step, min(number * step + step, size)
        pairs = list(self._runs.parts(begin, end))

        def take(chunk: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([chunk[source] for source, _ in pairs])

        def regions(strides: Sequence[int]) -> list[Region]:
            return [
                Region((source,), strides, (target,), [self._itemsize], [_length(source)])
                for source, target in pairs
            ]

        return _WantedItems((number,), take, regions)


def _length(index: flat.Index) -> int:
    return index.stop - index.start if isinstance(index, slice) else len(index)

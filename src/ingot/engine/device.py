"""Selections read onto a device: which bytes of which chunks it gets, and where their items go.

The chunks of a selection are fetched in windows of bounded size; where little of them is wanted,
only the blocks that are needed. Blosc chunks go to the device as they are stored, as far as their
blocks are needed; their checksums are compared before. Any other
chunk is decoded here, and what is wanted of it is sent. While the device works on one window, the
next one is fetched. A chunk that the device refuses is decoded here as well, which raises what a
read without a device would.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.device.device import Device
from ingot.device.window import (
    BoxAxis,
    Buffer,
    ChunkPieces,
    Spans,
    Staged,
    Window,
    WindowBuilder,
    needed_ranges,
)
from ingot.engine import flat, kernel, plan
from ingot.engine.parts import Checked, Needed, whole_from
from ingot.engine.plan import BoxRow, Row
from ingot.engine.run import Engine, Fetched, Pieces
from ingot.errors import ArgumentError, UnsupportedError
from ingot.formats.format import Coords
from ingot.selection import BasicSelection, Selection, parse
from ingot.stores.store import Extent, Store, ValuesToRead, opened_values

__all__ = ["device_dtype", "read"]

Ints: TypeAlias = NDArray[np.int64]
Statuses: TypeAlias = Callable[[], NDArray[np.uint32]]
"""Waits for a window, and returns the status of each stream."""

# The types of numbers that GPUs have, by their kind and size.
_WIDTHS: Final = {"b": (1,), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8), "c": (8, 16)}
# How many windows the device may have at a time: one to decode, one that is on its way.
_AHEAD: Final = 2
# Items that lie no further apart are in neighbouring blocks, but for very small ones.
_SHORT_STEP: Final = 4096
# Chunks of which less than one part in so many is wanted are not read as a whole.
_FEW: Final = 3


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


class _Steps(NamedTuple):
    """Positions along one axis, as offsets in bytes: equal steps from 0, or a table."""

    length: int
    step: int
    table: Ints | None = None

    @classmethod
    def of(cls, index: plan.Index, length: int, stride: int) -> "tuple[int, _Steps]":
        """Return where positions along an axis begin, and their steps from there on."""
        if isinstance(index, slice):
            return int(index.start or 0) * stride, cls(length, (index.step or 1) * stride)
        return 0, cls(length, 0, np.asarray(index, np.int64) * stride)

    @property
    def offsets(self) -> Ints:
        """All offsets."""
        return np.arange(self.length) * self.step if self.table is None else self.table

    def steps_within(self, most: int) -> bool:
        """Return whether the positions have equal steps of at most so many bytes."""
        return self.table is None and abs(self.step) <= most

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest offset."""
        if self.table is not None:
            return int(self.table.min()), int(self.table.max())
        last = (self.length - 1) * self.step
        return min(last, 0), max(last, 0)


class _Part(NamedTuple):
    """Items of a chunk, or places of a result, as an outer product of axes, slowest first."""

    start: int
    axes: Sequence[_Steps]

    @classmethod
    def of(
        cls, indices: Sequence[plan.Index], lengths: Sequence[int], strides: Sequence[int]
    ) -> "_Part":
        """Return the part that indices along each axis select."""
        found = [_Steps.of(*each) for each in zip(indices, lengths, strides, strict=True)]
        return cls(sum(start for start, _ in found), [steps for _, steps in found])

    @classmethod
    def packed(cls, lengths: Sequence[int], itemsize: int) -> "_Part":
        """Return items that lie one behind the other, the last axis fastest."""
        strides = _strides(lengths, range(len(lengths)), itemsize)
        return cls(0, [_Steps(*each) for each in zip(lengths, strides, strict=True)])

    @classmethod
    def same(cls, lengths: Sequence[int]) -> "_Part":
        """Return one item, for all places of a result."""
        return cls(0, [_Steps(length, 0) for length in lengths])

    def spans(self, itemsize: int) -> Spans:
        """Return the ranges of bytes that the items lie in, one for each of the longest steps.

        Steps that are no longer than most blocks make one range.
        """
        ends = [axis.ends for axis in self.axes]
        low, high = (self.start + sum(each) for each in zip((0, 0), *ends, strict=True))
        widths = [most - least for least, most in ends]
        slow = widths.index(max(widths)) if widths else 0
        if not widths or self.axes[slow].steps_within(_SHORT_STEP):
            return Spans(np.array([low]), np.array([high + itemsize]))
        offsets, (least, most) = self.axes[slow].offsets, ends[slow]
        return Spans(offsets + (low - least), offsets + (high - most + itemsize))


def _strides(shape: Sequence[int], order: Sequence[int], itemsize: int) -> list[int]:
    """Return the strides of an array whose axes lie in an order, the slowest first."""
    strides = [0] * len(shape)
    for axis in reversed(order):
        strides[axis] = itemsize
        itemsize *= shape[axis]
    return strides


def _source_part(row: Row, strides: Sequence[int]) -> _Part:
    """Return the items of a chunk that a row wants."""
    if isinstance(row, BoxRow):
        return _Part.of(row.source, row.items, strides)
    points = np.zeros(len(row.offsets[0]), np.int64)
    for axis, offsets in zip(row.axes, row.offsets, strict=True):
        points += offsets * strides[axis]
    others = [stride for axis, stride in enumerate(strides) if axis not in row.axes]
    rest = _Part.of(
        [part.source for part in row.ranges], [part.items for part in row.ranges], others
    )
    return _Part(rest.start, [_Steps(len(points), 0, points), *rest.axes])


def _target_part(row: Row, strides: Sequence[int]) -> _Part:
    """Return the places of engine order that the items of a row go to."""
    if isinstance(row, BoxRow):
        return _Part.of(row.target, row.items, strides)
    indices = [row.points, *(part.target for part in row.ranges)]
    lengths = [len(row.offsets[0]), *(part.items for part in row.ranges)]
    return _Part.of(indices, lengths, strides)


class _WantedItems(NamedTuple):
    """What is wanted of one chunk.

    `take` cuts it out of the decoded chunk. `parts` are the items of a chunk whose axes have some
    strides, and the places that they go to; there are several of a flat array.
    """

    coords: Coords
    take: Callable[[NDArray[Any]], NDArray[Any]]
    parts: Callable[[Sequence[int]], list[tuple[_Part, _Part]]]

    def places(self) -> list[tuple[list[int], _Part]]:
        """Return the lengths of the axes of each part, and the places that its items go to."""
        parts = self.parts([0] * len(self.coords))
        return [([axis.length for axis in source.axes], target) for source, target in parts]


class _ChunkPart(NamedTuple):
    """Where wanted items lie among the decoded bytes of a Blosc chunk, and where they go."""

    nbytes: int
    spans: Spans
    parts: list[tuple[_Part, _Part]]

    @property
    def wanted(self) -> int:
        """How many bytes the items lie in, at most."""
        return min(int((self.spans.ends - self.spans.begins).sum()), self.nbytes)

    def needed(self, head: bytes) -> Needed:
        """Return which bytes of the chunk are needed; None for all of them."""
        found = needed_ranges(head, self.nbytes, self.spans)
        if found is None or sum(end - begin for begin, end in found[1]) >= whole_from(found[0]):
            return None
        return found


class _StagedSource:
    """Reads the values of a window into memory that the device copies, where a store can do so."""

    def __init__(self, device: Device, executor: Executor) -> None:
        self._device = device
        self._executor = executor
        self._opened = ExitStack()
        self._values: ValuesToRead | None = None
        self.memory: NDArray[np.uint8] | None = None

    @property
    def is_reading(self) -> bool:
        """Whether values are being read, which `finish` waits for."""
        return self._values is not None

    def begin(self, store: Store, extents: Sequence[Extent]) -> Sequence[bytes | memoryview | None]:
        """Return the bytes of each extent, as the store would; call it once.

        The bytes are there when `finish` has returned.
        """
        opened = opened_values(store, extents)
        if opened is None:
            return store.read(extents)
        values = self._opened.enter_context(opened)
        memory = self._device.staging(sum(size or 0 for size in values.sizes))
        values.begin_reading(memory.data, self._executor)
        self._values, self.memory, found, at = values, memory, [], 0
        for size in values.sizes:
            found.append(None if size is None else memory.data[at : at + size])
            at += size or 0
        return found

    def finish(self) -> None:
        """Wait until all bytes are there; raise the error of the first that cannot be read."""
        if self._values is not None:
            self._values.finish_reading()
        self.close()

    def close(self) -> None:
        """Close what is open, once nothing is read any more."""
        self._values = None
        self._opened.close()


class _ComingWindow:
    """The chunks of a window, which are fetched before it is planned.

    What goes wrong meanwhile is raised when it is planned: windows before it have their errors
    first.
    """

    def __init__(self, source: _StagedSource) -> None:
        self.source = source
        self.group: list[_WantedItems] = []
        self.chunks: list[_ChunkPart | None] = []
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
        self.absent = False

    def send(self, chunks: Iterable[_WantedItems]) -> None:
        """Decode what is wanted of chunks, and return when all of it is in the result."""
        with ThreadPoolExecutor(self._engine.thread_count(), "ingot-device") as executor:
            self._send(chunks, executor)

    def _send(self, chunks: Iterable[_WantedItems], executor: Executor) -> None:
        coming: list[_ComingWindow] = []
        pending: list[tuple[list[_WantedItems], Window, Statuses]] = []
        source = iter(chunks)
        try:
            while coming or self._begin(source, executor, coming):
                # Threads read the files of the next window while this one is planned.
                if coming[0].source.is_reading:
                    self._begin(source, executor, coming)
                try:
                    window = self._window(coming[0])
                except Exception:
                    # Chunks of windows before have their errors first.
                    while pending:
                        self._settle(*pending.pop(0))
                    raise
                group = coming.pop(0).group
                pending.append((group, window, self._device.submit(window, self._result)))
                if len(pending) == _AHEAD:
                    self._settle(*pending.pop(0))
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
        window = _ComingWindow(_StagedSource(self._device, executor))
        coming.append(window)
        try:
            most = self._engine.options.limits.device_window_bytes
            window.group = list(islice(chunks, self._engine.window(most)))
            if not window.group:
                coming.pop()
                return False
            window.chunks = [self._in_chunk(wanted) for wanted in window.group]
            window.fetched, window.checked = self._fetched(window)
        except Exception as error:
            window.error = error
        return True

    def fill(self, item: bytes, shape: Sequence[int]) -> None:
        """Fill the whole result with an item."""
        builder = WindowBuilder()
        staged = builder.add_plain(0, item)
        self._add_box(builder, staged, 0, _Part.same(shape), _Part.packed(shape, len(item)))
        self._device.submit(builder.build(), self._result)()

    def _window(self, coming: _ComingWindow) -> Window:
        """Return the window of some chunks: as they are stored, or decoded here."""
        coming.finish()
        engine, group, chunks, fetched = self._engine, coming.group, coming.chunks, coming.fetched
        builder = WindowBuilder(coming.source.memory)
        others: dict[int, Fetched] = {}
        for number, (chunk, each) in enumerate(zip(chunks, fetched, strict=True)):
            if self._add_stored(builder, number, group[number].coords, chunk, each):
                continue
            # Pieces are of no use here: the whole chunk is fetched.
            whole = engine.fetch([group[number].coords])[0] if isinstance(each, Pieces) else each
            if isinstance(whole.data, memoryview):
                whole = whole._replace(data=bytes(whole.data))
            others[number] = whole
        coords = [group[number].coords for number in others]
        decoded = engine.decoded(coords, list(others.values()))
        for number, items in zip(others, decoded, strict=True):
            self._add_decoded(builder, number, group[number], items)
        reader = engine.part_reader()
        if reader is not None and coming.checked:
            reader.remember(coming.checked)
        return builder.build()

    def _in_chunk(self, wanted: _WantedItems) -> "_ChunkPart | None":
        """Return where wanted items lie in a Blosc chunk; None where chunks are not Blosc's."""
        form = self._engine.blosc_form(wanted.coords)
        if form is None:
            return None
        parts = wanted.parts(_strides(form.shape, form.axes, self._itemsize))
        ranges = [source.spans(self._itemsize) for source, _ in parts]
        spans = Spans(*(np.concatenate(each) for each in zip(*ranges, strict=True)))
        return _ChunkPart(math.prod(form.shape) * self._itemsize, spans, parts)

    def _fetched(self, window: _ComingWindow) -> "tuple[Sequence[Fetched | Pieces], list[Checked]]":
        """Return chunks, or only the blocks that are needed where these are a small part of all."""
        engine, chunks = self._engine, window.chunks
        coords = [each.coords for each in window.group]
        reader = engine.part_reader()
        known = [chunk for chunk in chunks if chunk is not None]
        few = sum(chunk.wanted for chunk in known) * _FEW < sum(chunk.nbytes for chunk in known)
        if not few and len(known) == len(chunks):
            return engine.fetch(coords, window.source.begin), []
        if reader is None or not few:
            return engine.fetch(coords), []

        def ask(places: Sequence[int], heads: Sequence[bytes]) -> list[Needed]:
            asked = zip((chunks[place] for place in places), heads, strict=True)
            return [None if chunk is None else chunk.needed(head) for chunk, head in asked]

        return engine.fetch_parts(reader, coords, ask)

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

    def _add_stored(
        self,
        builder: WindowBuilder,
        number: int,
        coords: Coords,
        chunk: "_ChunkPart | None",
        fetched: Fetched | Pieces,
    ) -> bool:
        """Add a Blosc chunk as it is stored; False where that cannot be."""
        if chunk is None:
            return False
        if isinstance(fetched, Pieces):
            stored: Buffer | ChunkPieces | None = ChunkPieces(*fetched)
        else:
            stored = self._engine.blosc_bytes(coords, fetched)
        if stored is None:
            return False
        staged = builder.add_chunk(number, stored, chunk.nbytes, chunk.spans)
        if staged is None:
            return False
        for source, target in chunk.parts:
            self._add_box(builder, staged, 0, source, target)
        return True

    def _add_decoded(
        self, builder: WindowBuilder, number: int, wanted: _WantedItems, chunk: NDArray[Any] | None
    ) -> None:
        """Add what is wanted of a decoded chunk; None stands for the fill value."""
        if chunk is None:
            self.absent = True
            staged = builder.add_plain(number, self._fill())
            for lengths, target in wanted.places():
                self._add_box(builder, staged, 0, _Part.same(lengths), target)
            return
        items = np.ascontiguousarray(wanted.take(chunk))
        staged, start = builder.add_plain(number, items.reshape(-1).view(np.uint8).data), 0
        for lengths, target in wanted.places():
            self._add_box(builder, staged, start, _Part.packed(lengths, self._itemsize), target)
            start += math.prod(lengths) * self._itemsize

    def _add_box(
        self, builder: WindowBuilder, staged: Staged, start: int, source: _Part, target: _Part
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
        def parts(strides: Sequence[int]) -> list[tuple[_Part, _Part]]:
            return [(_source_part(row, strides), _target_part(row, self._strides))]

        return _WantedItems(row.coords, row.take, parts)


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

        def parts(strides: Sequence[int]) -> list[tuple[_Part, _Part]]:
            return [
                (
                    _Part.of([source], [_length(source)], strides),
                    _Part.of([target], [_length(target)], [self._itemsize]),
                )
                for source, target in pairs
            ]

        return _WantedItems((number,), take, parts)


def _length(index: flat.Index) -> int:
    return index.stop - index.start if isinstance(index, slice) else len(index)

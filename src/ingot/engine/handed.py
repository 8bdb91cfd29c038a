"""Arrays in stores without files: the kernel works on bytes that the store hands over.

`HandedLayout` has the calls of a native layout. Each of them finds the chunks that it touches,
reads their bytes from the store in one batch for each memory window, and hands the batch to the
kernel, which verifies, decodes and scatters on several threads. An archive hands over places in its
file instead of bytes, and the kernel reads them. Of chunks that are wanted in small part, only that
is read, in two batches (`ingot.engine.parts`). Where chunks lie is the format's answer; this module
only asks and passes on.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from operator import lt
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.engine.parts import Ask, Checked, Needed, PartReader, constant, locate, settle
from ingot.formats.format import ChunkMap, Coords
from ingot.grid import RectilinearAxis
from ingot.options import Options
from ingot.stores.store import ArrivingStore, Extent, Feature, Inline, Store, read_or_locate

__all__ = ["AxisChunks", "HandedLayout", "Trouble", "fetch"]

Trouble: TypeAlias = tuple[Coords, str, BaseException]
"""The coordinates of a chunk that failed, its key, and the error."""

Comparisons: TypeAlias = Sequence[tuple[str, bytes]]
Ints: TypeAlias = NDArray[np.int64]

# About how much memory the bytes of one chunk take beside themselves.
_CHUNK_BYTES: Final = 512
# How many bytes are encoded by one call into the kernel, which uses its memory again for the next.
_ENCODED_BYTES: Final = 16 << 20


def fetch(
    chunks: ChunkMap, coords: Ints, *, threads: int, verify: str, numbered: bool = False
) -> list["native.HeldChunk"]:
    """Return what is stored of chunks, as the kernel takes it: one read of the store.

    If `numbered`, the kernel compares the checksums of values in memory once.
    """
    if len(coords) == 1 and not numbered:
        return [_fetch_one(chunks, coords, threads=threads, verify=verify)]
    held, wanted = locate(chunks, coords)
    extents = [extent for _, extent in wanted]
    if numbered:
        found = _numbered(chunks.store, extents)
    else:
        found = [*read_or_locate(chunks.store, extents, threads=threads, verify=verify)]
    if len(found) == len(held) and not any(data is None for data in found):
        return [*found]  # The usual case: every chunk is stored.
    for (number, extent), data in zip(wanted, found, strict=True):
        held[number] = settle(chunks, coords[number], extent, data)
    return held


def _numbered(store: Store, extents: Sequence[Extent]) -> list["native.HeldChunk"]:
    """Return values in memory, each with the number of the last change of its key."""
    before = [store.identity(extent.key) for extent in extents]
    found: list[native.HeldChunk] = []
    for extent, data, number in zip(extents, store.read(extents), before, strict=True):
        # Bytes that replaced others meanwhile must not have the number of these.
        known = isinstance(number, int) and number > 0 and store.identity(extent.key) == number
        found.append((data, cast(int, number)) if known and data is not None else data)
    return found


def _arriving(chunks: ChunkMap, coords: Ints) -> Iterator[list[tuple[int, "native.HeldChunk"]]]:
    """Yield what is stored of chunks, with their places in `coords`, as it arrives.

    The store is one that waits for a network (`ArrivingStore`).
    """
    held, wanted = locate(chunks, coords)
    fetched = {place for place, _ in wanted}
    known = [(place, each) for place, each in enumerate(held) if place not in fetched]
    if known:
        yield known
    store = cast(ArrivingStore, chunks.store)
    for group in store.arriving([extent for _, extent in wanted]):
        batch = [(*wanted[number], data) for number, data in group]
        yield [(at, settle(chunks, coords[at], extent, data)) for at, extent, data in batch]


def _fetch_one(chunks: ChunkMap, coords: Ints, *, threads: int, verify: str) -> "native.HeldChunk":
    """Return what is stored of one chunk, as `fetch` does."""
    if not all(map(lt, coords[0].tolist(), chunks.schema.grid.counts)):
        return None
    location = chunks.locate(coords)[0]
    if isinstance(location, Extent):
        (data,) = read_or_locate(chunks.store, [location], threads=threads, verify=verify)
        return settle(chunks, coords[0], location, data)
    return location.data if isinstance(location, Inline) else constant(location, chunks.schema)


class AxisChunks:
    """The chunks that positions along an axis touch, in ascending order, found when asked for.

    >>> touched = AxisChunks(range(9, 3, -2), 4, 12)
    >>> len(touched), touched.numbers(np.arange(2)), touched.whole(np.arange(2))
    (2, array([1, 2]), array([False, False]))
    >>> touched = AxisChunks(range(2, 12), RectilinearAxis([2, 1, 8, 9]), 12)
    >>> touched.numbers(np.arange(3)), touched.whole(np.arange(3))
    (array([1, 2, 3]), array([ True,  True,  True]))
    """

    __slots__ = ("_chunk", "_length", "_listed", "_range", "count")

    def __init__(self, axis: range | Ints, chunk: int | RectilinearAxis, length: int) -> None:
        self._chunk = chunk
        self._length = length
        self._range: range | None = None
        self._listed: Ints | None = None
        if not isinstance(axis, range):
            found = axis // chunk if isinstance(chunk, int) else chunk.numbers(axis)
            self._listed = np.unique(found)
            self.count = len(self._listed)
            return
        self._range = axis if axis.step > 0 else axis[::-1]
        if isinstance(chunk, RectilinearAxis):
            self._listed = chunk.touched(axis)
            self.count = len(self._listed)
            return
        low, high = self._range[0], self._range[-1]
        dense = self._range.step < chunk
        self.count = high // chunk - low // chunk + 1 if dense else len(self._range)

    def __len__(self) -> int:
        return self.count

    def numbers(self, indices: Ints) -> Ints:
        """Return the numbers of some of the chunks along the axis."""
        if self._listed is not None:
            return self._listed[indices]
        assert self._range is not None
        assert isinstance(self._chunk, int)
        low, step = self._range[0], self._range.step
        if step < self._chunk:
            return indices + low // self._chunk
        return (low + indices * step) // self._chunk

    def whole(self, indices: Ints) -> NDArray[np.bool_]:
        """Return whether the positions are all of each chunk that lies inside the array."""
        if self._range is None or self._range.step != 1:
            return np.zeros(len(indices), np.bool_)
        numbers, chunk = self.numbers(indices), self._chunk
        if isinstance(chunk, RectilinearAxis):
            first, end = chunk.bounds[numbers], chunk.bounds[numbers + 1]
        else:
            first = numbers * chunk
            end = first + chunk
        last = np.minimum(end, self._length)
        return (first >= self._range[0]) & (last <= self._range[-1] + 1)


class HandedLayout:
    """An array whose chunks reach the kernel as bytes; has the calls of `native.Layout`.

    `chunks` is the map of the array, and `before` that of the committed state, from which chunks
    are read. `parts` reads parts of chunks for selections that want little of them, where that is
    possible. `kernel` is the layout to which the bytes are handed.
    """

    __slots__ = (
        "_before",
        "_encoded",
        "_fetch",
        "_fetch_numbered",
        "_grid",
        "_schema",
        "kernel",
        "parts",
        "window",
    )

    def __init__(
        self,
        layout: native.Layout,
        chunks: ChunkMap,
        before: ChunkMap,
        options: Options,
        parts: PartReader | None = None,
    ) -> None:
        self.parts = parts
        self.kernel = layout
        self._before = before
        self._fetch = partial(fetch, before, threads=options.thread_count(), verify=options.verify)
        # What is read again and again is compared once, as in files.
        lasting = Feature.HELD in before.store.features and options.verify == "first"
        self._fetch_numbered = partial(self._fetch, numbered=True) if lasting else self._fetch
        self._schema = chunks.schema
        self._grid = chunks.schema.grid
        size = math.prod(self._schema.chunks) * self._schema.dtype.itemsize
        # About how many bytes of decoded chunks one call into the kernel covers.
        self.window = max(1, options.limits.window_bytes // max(size, _CHUNK_BYTES))
        self._encoded = min(self.window, max(1, _ENCODED_BYTES // max(size, _CHUNK_BYTES)))

    def read(
        self,
        out: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        threads: int,
        only: Sequence[int] | None = None,
    ) -> "native.Report | None":
        """Read a box; see `native.Layout.read`. `only` has numbers of chunks."""
        axes = _ranges(starts, steps, out.shape)

        def call(numbers: Sequence[int], held: "native.Held") -> "native.Report | None":
            return self.kernel.read(out, starts, steps, threads, numbers, held)

        def ask(numbers: Sequence[int], heads: Sequence[bytes]) -> Sequence[Needed]:
            indices = [None] * len(steps)
            return self.kernel.needed(out, starts, steps, indices, numbers, heads)

        return self._in_windows(axes, only, call, ask, out.size)

    def read_outer(
        self,
        out: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        indices: Sequence[Ints | None],
        threads: int,
        only: Sequence[int] | None = None,
    ) -> "native.Report | None":
        """Read an outer product; see `native.Layout.read_outer`."""
        ranges = _ranges(starts, steps, out.shape)
        axes = [
            each if index is None else index for each, index in zip(ranges, indices, strict=True)
        ]

        def call(numbers: Sequence[int], held: "native.Held") -> "native.Report | None":
            return self.kernel.read_outer(out, starts, steps, indices, threads, numbers, held)

        def ask(numbers: Sequence[int], heads: Sequence[bytes]) -> Sequence[Needed]:
            return self.kernel.needed(out, starts, steps, indices, numbers, heads)

        return self._in_windows(axes, only, call, ask, out.size)

    def encode(
        self,
        values: NDArray[Any],
        starts: Sequence[int],
        steps: Sequence[int],
        threads: int,
    ) -> Iterator[tuple[list[tuple[Coords, bytes | None]], list[Trouble]]]:
        """Yield the encoded chunks of a box, and those that failed, one window after the other."""
        axes = _ranges(starts, steps, values.shape)
        alone = self._in_one(axes)
        if alone is not None:
            coords = np.array([alone], np.int64)
            held = dict(zip(self._numbers(coords), self._fetch(coords), strict=True))
            yield self.kernel.encode(values, starts, steps, 0, 1, threads, held)
            return
        touched = self._touched(axes)
        count = math.prod(map(len, touched))
        for first in range(0, count, self._encoded):
            last = min(first + self._encoded, count)
            places = _places(np.arange(first, last), touched)
            whole = np.logical_and.reduce(
                [axis.whole(place) for axis, place in zip(touched, places, strict=True)]
            )
            coords = _coords(places, touched)[~whole]
            held = dict(zip(self._numbers(coords), self._fetch(coords), strict=True))
            yield self.kernel.encode(values, starts, steps, first, last, threads, held)

    def gather(self, out: NDArray[Any], rows: NDArray[Any], threads: int) -> list[Trouble] | None:
        """Copy rows by ascending numbers; see `native.Layout.gather`."""
        troubles: list[Trouble] = []
        numbers = rows // self._schema.chunks[0]
        firsts = np.empty(len(numbers), np.bool_)
        firsts[:1] = True
        np.not_equal(numbers[1:], numbers[:-1], out=firsts[1:])
        numbers = numbers[firsts]
        for first in range(0, len(numbers), self.window):
            window = numbers[first : first + self.window]
            ends = (window[0], window[-1] + 1)
            begin, end = np.searchsorted(rows, [each * self._schema.chunks[0] for each in ends])
            held = self.held_rows(window)
            found = self.kernel.gather(out[begin:end], rows[begin:end], threads, held)
            troubles += found or []
        return troubles or None

    def compare(
        self, out: NDArray[Any], start: int, comparisons: Comparisons, threads: int
    ) -> list[Trouble] | None:
        """Mark rows for which comparisons are true; see `native.Layout.compare`."""
        troubles: list[Trouble] = []
        step = self.window * self._schema.chunks[0]
        for begin, end in _windows(start, start + len(out), step):
            held = self.held_rows(self._chunks_of(begin, end))
            marks = out[begin - start : end - start]
            troubles += self.kernel.compare(marks, begin, comparisons, threads, held) or []
        return troubles or None

    def search(
        self,
        comparisons: Comparisons,
        others: Sequence[tuple["HandedLayout", Comparisons, int]],
        spans: Sequence[tuple[int, int]],
        numbers: bool,
        threads: int,
    ) -> tuple[int, bytearray | None, list[tuple[int, list[Trouble]]]]:
        """Find the rows for which comparisons are true; see `native.Layout.search`."""
        columns = [self, *(layout for layout, _, _ in others)]
        longest = max(column._schema.chunks[0] for column in columns)
        rows = min(column.window * column._schema.chunks[0] for column in columns) // len(columns)
        step = max(longest, rows // longest * longest)
        count, found = 0, bytearray()
        troubles: list[tuple[int, list[Trouble]]] = []
        for group in _grouped(spans, step):
            held = [column._held_spans(group) for column in columns]
            asked = [
                (layout.kernel, tests, alternative, each)
                for (layout, tests, alternative), each in zip(others, held[1:], strict=True)
            ]
            part, places, failed = self.kernel.search(
                comparisons, asked, group, numbers, threads, held[0]
            )
            count += part
            found += places or b""
            troubles += failed
        return count, found if numbers else None, troubles

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks; see `native.Layout.zones`."""
        zones: list[bytes] = []
        for first in range(0, len(numbers), self.window):
            window = numbers[first : first + self.window]
            held = self.held_rows(np.array(window, np.int64))
            zones += self.kernel.zones(window, held)
        return zones

    def _in_windows(
        self,
        axes: Sequence[range | Ints],
        only: Sequence[int] | None,
        call: Callable[[Sequence[int], "native.Held"], "native.Report | None"],
        ask: Ask,
        items: int,
    ) -> "native.Report | None":
        """Read `items` items of the touched chunks; `ask` says which bytes these are."""
        touched = self._touched(axes)
        numbers = range(math.prod(map(len, touched))) if only is None else only
        absent, troubles = 0, []
        parts = self.parts
        if parts is not None and not parts.wants_few(axes, items, len(numbers)):
            parts = None
        arrives = hasattr(self._before.store, "arriving")
        for first in range(0, len(numbers), self.window):
            window = numbers[first : first + self.window]
            coords = _coords(_places(np.array(window, np.int64), touched), touched)
            checked: Sequence[Checked] = ()
            report: native.Report | None
            if parts is None and arrives:
                report = self._as_it_arrives(window, coords, call)
            else:
                if parts is None:
                    found = self._fetch_numbered(coords)
                else:
                    found, checked = parts.fetch(coords, partial(_asked, ask, window))
                report = call(window, dict(zip(self._numbers(coords), found, strict=True)))
            if report is not None:
                absent += report[0]
                troubles += report[1]
            if parts is not None and checked and (report is None or not report[1]):
                parts.remember(checked)
        return (absent, troubles) if absent or troubles else None

    def _as_it_arrives(
        self,
        window: Sequence[int],
        coords: Ints,
        call: Callable[[Sequence[int], "native.Held"], "native.Report | None"],
    ) -> "native.Report":
        """Read the chunks of a window, the first of them while others are on their way."""
        absent, troubles = 0, []
        for batch in _arriving(self._before, coords):
            places = [place for place, _ in batch]
            numbers = self._numbers(coords[places])
            held = {number: chunk for number, (_, chunk) in zip(numbers, batch, strict=True)}
            report = call([window[place] for place in places], held)
            if report is not None:
                absent += report[0]
                troubles += report[1]
        return absent, troubles

    def _in_one(self, axes: Sequence[range]) -> Coords | None:
        """Return the coordinates of the chunk in which a box lies, as a part of it; else None.

        They are found without arrays: most changes are as small.
        """
        coords = []
        whole = True
        for axis, chunk, length in zip(axes, self._grid.axes, self._schema.shape, strict=True):
            if isinstance(chunk, RectilinearAxis):
                return None
            low, high = min(axis[0], axis[-1]), max(axis[0], axis[-1])
            at = low // chunk
            if high // chunk != at:
                return None
            whole &= len(axis) == min(chunk, length - at * chunk)
            coords.append(at)
        return None if whole else tuple(coords)

    def _touched(self, axes: Sequence[range | Ints]) -> list[AxisChunks]:
        lengths = zip(axes, self._grid.axes, self._schema.shape, strict=True)
        return [AxisChunks(*each) for each in lengths]

    def _numbers(self, coords: Ints) -> list[int]:
        """Return the numbers of chunks, in C order over the grid."""
        numbers = np.zeros(len(coords), np.int64)
        for axis, count in enumerate(self._grid.counts):
            numbers = numbers * count + coords[:, axis]
        found: list[int] = numbers.tolist()
        return found

    def _chunks_of(self, begin: int, end: int) -> Ints:
        rows = self._schema.chunks[0]
        return np.arange(begin // rows, -(-end // rows))

    def held_rows(self, numbers: Ints) -> "native.Held":
        """Return the chunks of an array that is cut along its first axis only."""
        coords = np.zeros((len(numbers), len(self._schema.shape)), np.int64)
        coords[:, 0] = numbers
        return dict(zip(numbers.tolist(), self._fetch_numbered(coords), strict=True))

    def _held_spans(self, spans: Sequence[tuple[int, int]]) -> "native.Held":
        numbers = [self._chunks_of(begin, end) for begin, end in spans if begin < end]
        if len(numbers) == 1:
            return self.held_rows(numbers[0])
        return self.held_rows(np.unique(np.concatenate(numbers)) if numbers else np.zeros(0, int))


def _asked(
    ask: Ask, window: Sequence[int], places: Sequence[int], heads: Sequence[bytes]
) -> Sequence[Needed]:
    """Ask for chunks by their places in a window."""
    return ask([window[place] for place in places], heads)


def _ranges(starts: Sequence[int], steps: Sequence[int], counts: Sequence[int]) -> list[range]:
    box = zip(starts, steps, counts, strict=True)
    return [range(start, start + count * step, step) for start, step, count in box]


def _places(numbers: Ints, touched: Sequence[AxisChunks]) -> list[Ints]:
    """Return which of the touched chunks along each axis the chunks with some numbers are."""
    if len(touched) == 1:
        return [numbers]
    places = []
    for axis in reversed(touched):
        numbers, place = np.divmod(numbers, len(axis))
        places.append(place)
    return places[::-1]


def _coords(places: Sequence[Ints], touched: Sequence[AxisChunks]) -> Ints:
    if len(touched) == 1:
        return touched[0].numbers(places[0]).reshape(-1, 1)
    columns = [axis.numbers(place) for axis, place in zip(touched, places, strict=True)]
    return np.stack(columns, axis=1)


def _windows(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows that end at multiples of a step."""
    edges = [start, *range((start // step + 1) * step, stop, step), stop]
    yield from ((a, b) for a, b in pairwise(edges) if a < b)


def _grouped(spans: Sequence[tuple[int, int]], step: int) -> Iterator[list[tuple[int, int]]]:
    """Yield spans in groups that lie in one window of rows each."""
    group: list[tuple[int, int]] = []
    window = -1
    for start, stop in spans:
        for begin, end in _windows(start, stop, step):
            if begin // step != window and group:
                yield group
                group = []
            window = begin // step
            group.append((begin, end))
    if group:
        yield group

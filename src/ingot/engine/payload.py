"""Flat arrays: the engine of an array whose chunks are runs of items, and that of its payload.

A selection of a flat array is cut into runs of units (`engine.flat`). The payload, an array of one
axis, is read and written by an engine of its own.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain, islice, pairwise
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.engine import flat, kernel
from ingot.engine.explain import Reading
from ingot.engine.flat import PayloadMap, Runs
from ingot.engine.handed import fetch
from ingot.engine.run import (
    HANDED_OVER,
    READ_BY_KERNEL,
    ChunkFailure,
    Engine,
    as_buffer,
    chunk_note,
    key_of,
    memory_for,
)
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap, Coords, Streaming, streaming
from ingot.options import Options
from ingot.selection import BasicSelection, Selection
from ingot.stores.store import Buffer, Commit

__all__ = ["FlatEngine", "engine_of"]


def engine_of(chunks: ChunkMap, options: Options) -> Engine:
    """Return the engine of a committed state of an array."""
    return (Engine if chunks.schema.flat is None else FlatEngine)(chunks, options)


class FlatEngine(Engine):
    """One state of one flat array: reads and writes its selections as runs of its payload."""

    __slots__ = ("_payload",)

    _serves_again: ClassVar[bool] = False

    def __init__(
        self, chunks: ChunkMap, options: Options, *, before: ChunkMap | None = None
    ) -> None:
        super().__init__(chunks, options, before=before)
        # Made when it is needed: a dataset may be opened for its metadata.
        self._payload: PayloadEngine | None = None

    def read(self, selection: Selection) -> Any:
        """Return what NumPy would return for the same selection of the whole array."""
        if self.options.damaged == "fill":
            return self._read_around(selection)
        return selection.finish(self._result(selection, None))

    def _result_around(self, selection: Selection, failures: list[ChunkFailure]) -> NDArray[Any]:
        return self._result(selection, failures)

    def _result(self, selection: Selection, failures: list[ChunkFailure] | None) -> NDArray[Any]:
        """Return the items of a selection; see `PayloadEngine.read_runs` for the failures."""
        schema = self.chunks.schema
        wanted, repeats = flat.without_repeats(selection, self.shape)
        transposed, shape = flat.is_transposed(wanted, schema), wanted.engine_shape
        memory = kernel.new_result(shape[::-1] if transposed else shape, self.dtype)
        if memory.size:
            runs, inner = flat.cut(wanted, schema), self._payload_engine()
            if failures is None:
                inner.read_runs(runs, memory)
            else:
                inner.read_runs_around(runs, memory, kernel.fill_item(schema), failures)
        result = memory.T if transposed else memory
        for axis, places in repeats:
            result = result.take(places, axis)
        return result

    def _read_into(self, selection: Selection, out: NDArray[Any]) -> None:
        schema = self.chunks.schema
        if isinstance(selection, BasicSelection) and out.size:
            # A view, since `out` is contiguous in the order that is asked for.
            stored = out.T if schema.order == "F" else out
            if stored.flags.c_contiguous:
                self._payload_engine().read_runs(flat.cut(selection, schema), stored)
                return
        out[...] = self.read(selection)

    def replaces(self, selection: Selection) -> bool:
        """Return False: other chunks of the file may have to move."""
        return False

    def _assign_values(self, selection: Selection, values: NDArray[Any]) -> Commit:
        schema = self.chunks.schema
        wanted, repeats = flat.without_repeats(selection, self.shape)
        for axis, places in repeats:
            # Of several values for one item NumPy keeps the last.
            values = values.take(flat.last_of(places), axis)
        if flat.is_transposed(wanted, schema):
            values = values.T
        inner, runs = self._payload_engine(), flat.cut(wanted, schema)
        self.check_count(self.count_chunks(wanted))
        if values.size > 1 and not any(values.strides):
            # One value for all items is not spread out in memory.
            item = np.array(values[(0,) * values.ndim], self.dtype)
            return inner.stage(inner.merged_runs(runs, item=item))
        units = np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(inner.dtype)
        topped = inner.topped_up(runs, units)
        if topped is not None:
            return inner.commit_of(topped, None)
        encoded = inner.encoded_chunks(inner.merged_runs(runs, units))
        numbers, coder = inner.whole_chunks(runs), inner.chunk_coder()
        if numbers is not None and coder is not None and kernel.is_blosc(inner.chunks.schema):
            run = _MemoryRun(numbers, units.view(np.uint8), coder, self.thread_count(), encoded)
            return inner.commit_of(run, None)
        return inner.commit_of(encoded, None)

    def store_payload(self, blocks: Iterable[NDArray[Any]]) -> Commit:
        """Return the commit that stores all items of a new flat array.

        The blocks have the items in the order in which they are stored, and are in C order. Each
        is encoded before the next is asked for.
        """
        inner = self._payload_engine()
        (step,), dtype = inner.chunks.schema.chunks, inner.dtype

        def cut() -> Iterator[tuple[Coords, NDArray[Any]]]:
            number, rest = 0, np.zeros(0, dtype)
            for block in blocks:
                units = block.reshape(-1).view(np.uint8).view(dtype)
                if len(rest):
                    units = np.concatenate((rest, units))
                whole = len(units) // step * step
                for begin in range(0, whole, step):
                    yield (number,), units[begin : begin + step]
                    number += 1
                rest = units[whole:]
            if len(rest):
                yield (number,), rest

        return inner.commit_of(inner.encoded_chunks(cut()), None)

    def fill_payload(self) -> Commit:
        """Return the commit that stores the fill value in every item of a new flat array."""
        return self._stage_payload(0)

    def resize_payload(self) -> Commit:
        """Return the commit that stores what another shape changes of a flat array.

        These are the last chunk, which gets longer or shorter, and new ones of the fill value.
        """
        return self._stage_payload(self._payload_engine()._before.schema.shape[0])

    def _stage_payload(self, kept: int) -> Commit:
        """Return the commit that stores the fill value behind so many units of the payload."""
        inner, fill = self._payload_engine(), kernel.fill_item(self.chunks.schema)
        (size,), (step,) = inner.shape, inner.chunks.schema.chunks
        whole = min(size, kept) // step
        # A shorter payload that ends with a chunk leaves all chunks as they are.
        numbers = range(0) if size == kept else range(whole, -(-size // step))
        inner.check_count(len(numbers))

        def chunks() -> Iterator[tuple[Coords, NDArray[Any]]]:
            for number in numbers:
                begin, end = number * step, min(number * step + step, size)
                chunk = flat.repeated(fill, begin, end, inner.dtype)
                if begin < kept:
                    (old,) = inner._decoded([(number,)])
                    assert old is not None, "a flat array is not sparse"
                    common = min(len(old), end - begin)
                    chunk[:common] = old[:common]
                yield (number,), chunk

        return inner.stage(chunks())

    def windows(self, nbytes: int) -> Iterator[tuple[slice, ...]]:
        """Yield keys of `verify` that cover the array: runs of units of its payload."""
        yield from self._payload_engine().windows(nbytes)

    def verify(
        self, key: tuple[slice, ...], memory: NDArray[np.uint8] | None = None
    ) -> list[ChunkFailure]:
        """Read the chunks that a key of `windows` touches, and return those that cannot be read."""
        inner = self._payload_engine()
        found = inner.verify_runs(range(*key[0].indices(inner.shape[0])), memory)
        return sorted(found, key=lambda failure: failure.coords)

    def dropped(self, coords: Iterable[Coords]) -> Commit:
        """Return the commit that stores the fill value in chunks of the payload."""
        inner, fill = self._payload_engine(), kernel.fill_item(self.chunks.schema)
        (size,), (step,) = inner.shape, inner.chunks.schema.chunks

        def filled(number: int) -> NDArray[Any]:
            begin, end = number * step, min(number * step + step, size)
            return flat.repeated(fill, begin, end, inner.dtype)

        return inner.stage(((number,), filled(number)) for (number,) in sorted(set(coords)))

    def count_chunks(self, selection: Selection) -> int:
        """Return the number of chunks that a selection touches."""
        if 0 in selection.engine_shape:
            return 0
        chunk = self.chunks.schema.payload.chunks[0]
        kept = flat.without_repeats(selection, self.shape)[0]
        return sum(1 for _ in flat.cut(kept, self.chunks.schema).touched(chunk))

    def _reading(self, selection: Selection, count: int) -> Reading:
        found = self._payload_engine().native_runs()
        in_parts = found is not None and not found[1]
        return Reading(reads_parts=in_parts, decodes_parts=True)

    def _native_reason(self, selection: Selection) -> str:
        found = self._payload_engine().native_runs()
        return HANDED_OVER if found is None or found[1] else READ_BY_KERNEL

    def boxes(self) -> Engine:
        return self._payload_engine()

    def _payload_engine(self) -> "PayloadEngine":
        """Return the engine of the payload of this array."""
        engine = self._payload
        if engine is None:
            chunks = PayloadMap.of(self.chunks)
            before = None if self._before is self.chunks else PayloadMap.of(self._before)
            engine = self._payload = PayloadEngine(chunks, self.options, before=before)
        return engine


class PayloadEngine(Engine):
    """One state of the payload of a flat array, read and written by runs of its units."""

    __slots__ = ("_run_layout",)

    def __init__(
        self, chunks: PayloadMap, options: Options, *, before: PayloadMap | None = None
    ) -> None:
        super().__init__(chunks, options, before=before)
        # The ellipsis stands for a layout that no call has needed yet.
        self._run_layout: tuple[native.Layout, bool] | EllipsisType | None = ...

    def read_runs(self, runs: Runs, memory: NDArray[Any]) -> None:
        """Read runs of the payload into memory in C order."""
        units = memory.reshape(-1).view(np.uint8).view(self.dtype)
        (size,), (step,) = self.shape, self.chunks.schema.chunks
        layout = self.native_runs()
        if layout is not None and not layout[1]:
            self._read_natively(layout[0], runs, units, None)
            return
        numbers = runs.touched(step)
        if layout is not None:
            while window := list(islice(numbers, self.window())):
                self._read_natively(layout[0], runs, units, window)
            return
        while window := list(islice(numbers, self.window())):
            decoded = self._decoded([(number,) for number in window])
            for number, chunk in zip(window, decoded, strict=True):
                begin = number * step
                assert chunk is not None, "a flat array is not sparse"
                for source, target in runs.parts(begin, min(begin + step, size)):
                    units[target] = chunk[source]

    def read_runs_around(
        self, runs: Runs, memory: NDArray[Any], item: NDArray[Any], failures: list[ChunkFailure]
    ) -> None:
        """Read runs of this payload; chunks that cannot be read hold an item of the array."""
        units = memory.reshape(-1).view(np.uint8).view(self.dtype)
        (size,), (step,) = self.shape, self.chunks.schema.chunks
        numbers = runs.touched(step)
        while window := list(islice(numbers, self.window())):
            decoded = self._decoded_around([(number,) for number in window], failures)
            for number, chunk in zip(window, decoded, strict=True):
                begin, end = number * step, min(number * step + step, size)
                found = chunk
                if found is None:
                    found = flat.repeated(item, begin, end, self.dtype)
                for source, target in runs.parts(begin, end):
                    units[target] = found[source]

    def verify_runs(self, units: range, memory: NDArray[np.uint8] | None) -> list[ChunkFailure]:
        """Read units of this payload, and return the chunks that cannot be read."""
        (step,) = self.chunks.schema.chunks
        numbers = range(units.start // step, -(-units.stop // step))
        found = self.native_runs()
        if found is None or not numbers:
            return list(self.verify_chunks((number,) for number in numbers))
        layout, handed = found
        out = memory_for((len(units),), self.plain, memory)
        held = None
        try:
            if handed:
                coords = np.array(numbers, np.int64)[:, None]
                verify, threads = self.options.verify, self.thread_count()
                data = fetch(self._before, coords, threads=threads, verify=verify)
                held = dict(zip(numbers, data, strict=True))
            axes: list[Any] = []
            report = layout.read_runs(
                out,
                axes,
                units.start,
                len(units),
                self.thread_count(),
                list(numbers) if handed else None,
                held,
            )
        except (IngotError, OSError):
            return list(self.verify_chunks((number,) for number in numbers))
        return self._failures([] if report is None else report[1])

    def topped_up(
        self, runs: Runs, values: NDArray[Any]
    ) -> Iterator[tuple[Coords, Buffer | None]] | None:
        """Return the chunks of a payload to which values are appended, encoded natively.

        The full blocks of the last chunk keep their bytes, and the others are shared out over
        threads. None where values are not appended, and where chunks are not Blosc's.
        """
        (size,), (step,), (held,) = self.shape, self.chunks.schema.chunks, self._before.schema.shape
        coder, number = self.chunk_coder(), held // step
        if coder is None or self._cache is not None or runs.single != range(held, size):
            return None
        if not held or not kernel.is_blosc(self.chunks.schema):
            return None
        stored: bytes | None = b""
        if held % step:
            files = self.native_runs()
            if files is not None and not files[1]:
                coder, stored = files[0], None
            else:
                (fetched,) = self.fetch([(number,)])
                if not isinstance(fetched.data, bytes):
                    return None
                stored = fetched.data
        until = min(size, (number + self.batch()) * step)
        added = as_buffer(values[: until - held], self.plain)
        try:
            made = coder.top_up(stored, held % step, added, self.thread_count())
        except IngotError as error:
            if held % step:
                key = key_of(self._before, (number,))
                error.add_note(chunk_note(self.chunks, (number,), key))
            raise
        if made is None:
            return None
        # What is read of them is a part of the same memory, which is used again afterwards.
        data, ends = memoryview(made[0]), list(accumulate(made[1], initial=0))
        parts = (data[begin:end] for begin, end in pairwise(ends))
        first = (((number + place,), part) for place, part in enumerate(parts))
        rest = Runs((), until, size - until)
        behind = self.merged_runs(rest, values[until - held :]) if rest.length else ()
        return chain(first, self.encoded_chunks(behind))

    def whole_chunks(self, runs: Runs) -> range | None:
        """Return the numbers of the chunks of a payload that are one run; None for other runs."""
        (size,), (step,), single = self.shape, self.chunks.schema.chunks, runs.single
        if single is None or single.start % step or (single.stop % step and single.stop != size):
            return None
        return range(single.start // step, -(-single.stop // step))

    def merged_runs(
        self, runs: Runs, values: NDArray[Any] | None = None, item: NDArray[Any] | None = None
    ) -> Iterator[tuple[Coords, NDArray[Any]]]:
        """Yield the new content of chunks of a payload: runs of values over the old content.

        The values are units in the order of the selection, or one item for all.
        """
        (size,), (step,) = self.shape, self.chunks.schema.chunks
        single = runs.single
        for number in runs.touched(step):
            begin, end = number * step, min(number * step + step, size)
            same = None if item is None else flat.repeated(item, begin, end, self.dtype)
            if single is not None and single.start <= begin and end <= single.stop:
                if same is None and values is not None:
                    same = values[begin - single.start : end - single.start]
                assert same is not None, "there are values, or one item"
                yield (number,), same
                continue
            (old,) = self._decoded([(number,)])
            chunk = self.writable_chunk((number,), old)
            for source, target in runs.parts(begin, end):
                if same is not None:
                    chunk[source] = same[source]
                elif values is not None:
                    chunk[source] = values[target]
            yield (number,), chunk

    def native_runs(self) -> tuple[native.Layout, bool] | None:
        """Return what reads runs of this payload natively; see `kernel.run_layout`."""
        layout = self._run_layout
        if layout is ...:
            layout = None
            if self._cache is None and isinstance(self._before, PayloadMap):
                layout = kernel.run_layout(self._before, self.options)
            self._run_layout = layout
        return layout

    def _read_natively(
        self, layout: native.Layout, runs: Runs, out: NDArray[Any], numbers: list[int] | None
    ) -> None:
        """Read runs of this payload; the chunks of `numbers`, if given, are handed over."""
        held = None
        if numbers is not None:
            coords = np.array(numbers, np.int64)[:, None]
            verify, threads = self.options.verify, self.thread_count()
            found = fetch(self._before, coords, threads=threads, verify=verify)
            held = dict(zip(numbers, found, strict=True))
        axes, threads = runs.native_axes(), self.thread_count()
        report = layout.read_runs(out, axes, runs.start, runs.length, threads, numbers, held)
        if report is not None:
            self.raise_first(report[1])

    def _streaming(self) -> Streaming | None:
        assert isinstance(self.chunks, PayloadMap)
        return streaming(self.chunks.chunks)


@dataclass(frozen=True, slots=True, eq=False)
class _MemoryRun:
    """Chunks of a payload that follow each other, encoded from the memory of the caller."""

    numbers: range
    items: NDArray[np.uint8]
    coder: native.Layout
    threads: int
    encoded: Iterable[tuple[Coords, bytes | None]]

    def write_to(self, descriptor: int, start: int) -> NDArray[np.int64]:
        places = self.coder.write_chunks(self.items, descriptor, start, self.threads)
        return np.frombuffer(places, "<i8")

    def __iter__(self) -> Iterator[tuple[Coords, bytes | None]]:
        return iter(self.encoded)

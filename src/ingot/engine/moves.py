"""Moving the encoded chunks of one array into another, untouched where both agree.

`takes` says whether they do: the arrays have one shape and type, cut and order their items in the
same way, and have one codec but for checksums. A flat array stands for the array of its units.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import EncodedChunk
from ingot.codecs.zone_maps import has_zone_map
from ingot.engine import kernel, plan
from ingot.engine.handed import HandedLayout
from ingot.engine.run import LOST, ChunkContext, Engine, Fetched
from ingot.engine.staging import edits_of, staged_edits
from ingot.errors import CorruptionError
from ingot.formats.format import Coords, as_sharded, zone_mapped
from ingot.grid import ChunkGrid
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.store import Buffer, Commit, Delete, Edit, Extent, Move, check_writable
from ingot.stores.versions import discard

__all__ = ["moved", "store_moved", "takes"]

Report = Callable[[int, bool], object]
"""Called for each chunk with the bytes of its items, and whether it is moved untouched."""


def takes(target: Engine, source: Engine) -> bool:
    """Return whether an array can store the encoded chunks of another one as they are."""
    here, there = target.chunks.schema, source.chunks.schema
    same = here.shape == there.shape and here.dtype == there.dtype
    if not same or here.variable or 0 in here.shape:
        return False
    return _is_cut_alike(here, there) and _coding(here) == _coding(there)


def moved(
    source: Engine,
    target: Engine,
    report: Report,
    skips: Callable[[int], bool] = lambda window: False,
) -> Iterator[tuple[int, tuple[Edit, ...]]]:
    """Yield the edits that store the encoded chunks of a source in a target that `takes` them.

    The chunks of the target are files. There is a window of chunks at a time, and the numbers of
    the windows ascend; `skips` says of a window whether it is left out. The checksums of the source
    are compared; a chunk that has none is decoded to check it. A chunk that has another size in the
    target, at the edge of the array, is encoded anew.
    """
    here, there = target.boxes(), source.boxes()
    for window, numbers in _move_windows(here, there):
        if skips(window):
            continue
        edits, rest = _moved_natively(source, target, numbers)
        try:
            chunks = _moved(source, target, rest, report)
            staged = target.chunks.stage(
                {coords: None if data is None else bytes(data) for coords, data in chunks}
            )
        except BaseException:
            discard(target.chunks.store, edits)
            raise
        # A new array has no chunk to remove.
        puts = (edit for edit in staged.edits if not isinstance(edit, Delete))
        yield window, (*edits, *puts)
        for number in sorted(set(numbers).difference(rest)):
            report(_valid_bytes(target, number), True)


def store_moved(source: Engine, target: Engine, report: Report) -> Commit:
    """Return the commit that stores the encoded chunks of a source in a target; see `moved`."""
    here, there = target.boxes(), source.boxes()
    windows = (_moved(source, target, numbers, report) for _, numbers in _move_windows(here, there))
    return here.commit_of(chain.from_iterable(windows), here.unit())


def _move_windows(here: Engine, there: Engine) -> Iterator[tuple[int, list[int]]]:
    """Yield the numbers of chunks that move at a time: all chunks of a key, in ascending order.

    The first number of each pair counts the windows.
    """
    count = here.chunks.schema.chunk_count
    unit = here.unit()
    groups: Iterable[Sequence[int]] = (range(n, n + 1) for n in range(count))
    if unit is not None and set(unit) > {1}:
        groups = _numbers_by_key(here.chunks.schema.grid, unit)
    step, window, held = there.batch(), 0, list[int]()
    for group in groups:
        held += group
        if len(held) >= step:
            yield window, held
            window, held = window + 1, []
    if held:
        yield window, held


def _moved_natively(
    source: Engine, target: Engine, numbers: Sequence[int]
) -> tuple[list[Edit], Sequence[int]]:
    """Stage encoded chunks by one call into the kernel.

    Return the edits that publish them, and the numbers of the chunks that are left: those that
    are not stored, or are encoded anew.
    """
    here, there = target.layout(), source.layout()
    kinds = (target.chunks, source.chunks)
    if any(as_sharded(each) is not None or each.schema.flat is not None for each in kinds):
        return [], numbers
    if zone_mapped(target.chunks) is not None or here is None or there is None:
        return [], numbers
    if isinstance(here, HandedLayout) or isinstance(there, HandedLayout):
        return [], numbers
    found: list[native.Staged] = []

    def stage(transaction: str, edits: list[Edit]) -> None:
        staged, failures = there.move_chunks(here, numbers, target.thread_count(), transaction)
        found.extend(staged)
        edits += (edit for edit in edits_of(staged) if isinstance(edit, Move))
        source.raise_first(failures)

    check_writable(target.chunks.store)
    edits = staged_edits(target.chunks.store, stage)
    images = zip(numbers, found, strict=True)
    return edits, [number for number, (_, _, image, _, _) in images if image is None]


def _valid_bytes(engine: Engine, number: int) -> int:
    """Return the bytes of the items of a chunk that lie inside the array."""
    schema = engine.chunks.schema
    valid = schema.grid.valid_shape(schema.grid.coords(number))
    return math.prod(valid) * schema.dtype.itemsize


def _moved(
    source: Engine, target: Engine, numbers: Sequence[int], report: Report
) -> Iterator[tuple[Coords, Buffer | None]]:
    """Yield chunks of a source as the target stores them."""
    if not numbers:
        return
    here, there = target.boxes(), source.boxes()
    old, new = there.chunks.schema, here.chunks.schema
    zoned = zone_mapped(target.chunks) is not None and has_zone_map(target.dtype)
    same_fill = kernel.fill_item(new).tobytes() == kernel.fill_item(old).tobytes()
    fetched = there.fetch([old.grid.coords(number) for number in numbers])
    found = _unframed(there, numbers, fetched, zoned=zoned)
    any_absent = False
    for number, each, bare in zip(numbers, fetched, found, strict=True):
        coords = new.grid.coords(number)
        spec = new.spec(coords)
        nbytes = _valid_bytes(here, number)
        data: Buffer | None = None
        absent = each.data is None and isinstance(each.location, Extent)
        any_absent = any_absent or absent
        if each.lost:
            with ChunkContext(there.chunks, old.grid.coords(number), each.location):
                raise CorruptionError(LOST)
        if absent and new.sparse and same_fill:
            report(nbytes, True)
            continue
        if bare is not None and old.spec(old.grid.coords(number)).nbytes == spec.nbytes:
            chunk, array = bare
            data = new.chain.framed(chunk, spec, array)
        untouched = data is not None
        if data is None:
            data = _reencoded(source, target, number)
        yield coords, data
        report(nbytes, untouched)
    if any_absent:
        source.confirm_absent()


def _unframed(
    engine: Engine, numbers: Sequence[int], fetched: Sequence[Fetched], *, zoned: bool
) -> list[tuple[EncodedChunk, NDArray[Any] | None] | None]:
    """Return chunks without their checksums, which are compared; None for one to be encoded.

    The items come with a chunk that has no checksum, and where `zoned`, with one that has no
    zone map.
    """
    schema, coder = engine.chunks.schema, engine.chunk_coder()
    found: list[tuple[EncodedChunk, NDArray[Any] | None] | None] = []
    outs: list[tuple[NDArray[Any], int, bytes]] = []
    for number, each in zip(numbers, fetched, strict=True):
        coords = schema.grid.coords(number)
        with ChunkContext(engine.chunks, coords, each.location):
            if each.data is None and isinstance(each.location, Extent) and not schema.sparse:
                raise CorruptionError("the chunk is missing")
            if not isinstance(each.data, bytes):
                found.append(None)
                continue
            spec = schema.spec(coords)
            bare = schema.chain.unframed(each.data, spec)
            array = None
            if bare is not None and (not bare.verified or (zoned and not bare.zone)):
                if coder is None:
                    limit = engine.options.limits.chunk_bytes
                    array = kernel.decode(each.data, schema, spec, limit)
                else:
                    plain = kernel.new_result(spec.shape or (1,), engine.plain)
                    outs.append((plain, number, each.data))
                    array = plain.view(engine.dtype).reshape(spec.shape)
            found.append(None if bare is None else (bare, array))
    if outs and coder is not None:
        engine.raise_first(coder.decode_chunks(outs, engine.thread_count()) or ())
    return found


def _reencoded(source: Engine, target: Engine, number: int) -> Buffer | None:
    """Return one chunk of the target, encoded from the items of a source."""
    here = target.boxes()
    schema = here.chunks.schema
    coords = schema.grid.coords(number)
    if here is target:
        sizes = zip(coords, schema.chunks, schema.grid.valid_shape(coords), strict=True)
        box = tuple(slice(at * size, at * size + length) for at, size, length in sizes)
    else:
        rows = target.chunks.schema.chunks[0]
        box = (slice(number * rows, (number + 1) * rows),)
    values = np.asarray(source.read(parse(box, target.shape)))
    if here is not target:
        chunk = np.ascontiguousarray(values).reshape(-1).view(np.uint8).view(here.dtype)
    else:
        chunk = here.writable_chunk(coords, None)
        chunk[tuple(slice(length) for length in values.shape)] = values
    ((_, data),) = here.encoded_chunks([(coords, chunk)])
    return data


def _numbers_by_key(grid: ChunkGrid, unit: tuple[int, ...]) -> Iterator[list[int]]:
    """Yield the numbers of the chunks of each key; `unit` is how many a key has along each axis."""
    keys = [range(-(-count // size)) for count, size in zip(grid.counts, unit, strict=True)]
    for key in plan.lazy_product(keys):
        axes = zip(key, unit, grid.counts, strict=True)
        parts = [range(at * size, min(at * size + size, count)) for at, size, count in axes]
        yield [grid.linear(coords) for coords in plan.lazy_product(parts)]


def _is_cut_alike(one: ArraySchema, other: ArraySchema) -> bool:
    """Return whether the chunks of two arrays hold the same items under the same numbers.

    A flat array and one that is cut along the first axis only may do so.
    """
    if one.rectilinear or other.rectilinear:
        return False
    if one.flat is None and other.flat is None:
        return one.chunks == other.chunks
    if one.flat is not None and other.flat is not None:
        linear = len(one.shape) <= 1 or one.order == other.order
        return linear and one.flat.chunk_bytes == other.flat.chunk_bytes
    flat_one, boxes = (one, other) if one.flat is not None else (other, one)
    assert flat_one.flat is not None
    if not boxes.shape or (len(boxes.shape) > 1 and "F" in (flat_one.order, boxes.order)):
        return False
    whole = boxes.chunks[1:] == boxes.shape[1:]
    size = math.prod(boxes.chunks) * boxes.dtype.itemsize
    return whole and size == flat_one.flat.chunk_bytes


def _coding(schema: ArraySchema) -> tuple[object, ...]:
    """Return what decides how a chunk is decoded, without checksums.

    What every chunk of Blosc states itself does not count.
    """
    chain, ndim = schema.chain, len(schema.shape)
    moved = [each.axes(ndim) for each in chain.filters]
    order: object = chain.filters
    if None not in moved:
        axes = tuple(range(ndim))
        for permutation in moved:
            assert permutation is not None
            axes = tuple(axes[axis] for axis in permutation)
        order = () if axes == tuple(range(ndim)) else axes
    serializer = None if chain.serializer.plain(schema.dtype) else chain.serializer
    compressors = chain.compressors
    if compressors and compressors[-1].appended is not None:
        compressors = compressors[:-1]
    own = {"blocksize", "typesize"}
    codecs = [
        tuple(sorted((k, repr(v)) for k, v in each.config().items() if k not in own))
        for each in compressors
    ]
    return order, serializer, tuple(codecs)

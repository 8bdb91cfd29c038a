"""Variable-length items: reading, and the changes of a sequence of items.

A sequence is stored in packs (`ingot.formats.format.RaggedMap`). Packs are read in batches, decoded
by the codec of the schema, and cut or joined as buffers. A change is the engine of the new state
and the commit that leads to it; nothing is applied here.
"""

import mmap
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, pairwise
from typing import IO, Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import CHUNK_LIMIT
from ingot.codecs.zone_maps import PREFIX, ZoneMaps
from ingot.engine.explain import ChunkCost, Explanation
from ingot.engine.stored_size import location_bytes
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    DamageWarning,
    IngotError,
    LimitError,
    RemoteError,
    UnsupportedError,
)
from ingot.formats.format import (
    Pack,
    RaggedMap,
    Splice,
    compactable_ragged,
    fitted,
    zone_mapped,
)
from ingot.options import Options
from ingot.ragged_array import BYTES, UTF8, ItemKind, ItemTest, RaggedArray, offsets_of, passing
from ingot.schema import PackSources, RaggedSchema, many_packs
from ingot.stores.store import (
    Buffer,
    Commit,
    Extent,
    Inline,
    Location,
    native_names,
    native_root,
)
from ingot.stores.versions import discard

__all__ = [
    "PackStream",
    "RaggedChange",
    "RaggedEngine",
    "appended",
    "assigned",
    "compacted",
    "deleted",
    "described",
    "extended",
    "filled",
    "filled_each",
    "following_packs",
    "resized",
    "stored",
    "streamed",
]

Rows: TypeAlias = range | NDArray[np.int64]
"""Numbers of items: all of a range, or those of an array, in any order."""

# How many calls a warning lies below the caller of a sequence.
_CALLER: Final = 5
# The packs that are read by one call of the store.
_BATCH: Final = 1024
# What a block of packs is to hold at most, and how many times more packs than the one before.
_BLOCK_BYTES: Final = 4 << 20
_BLOCK_ITEMS: Final = 65_536
_BLOCK_GROWTH: Final = 8
# The most packs whose places are listed at once.
_MOST_AT_ONCE: Final = 10_000
# From so many bytes on, packs of a stream wait in a file.
_SPOOLED: Final = 64 << 20
# The most items that one call has room for at once: their number is a claim of the file.
_MARKED: Final = 1 << 24
# The rows whose numbers are written down at once.
_ROWS: Final = 1 << 20


class RaggedEngine:
    """Reads the items of one state of a sequence."""

    __slots__ = ("_zones", "options", "packs")

    def __init__(self, packs: RaggedMap, options: Options) -> None:
        self.packs = packs
        self.options = options
        self._zones: ZoneMaps | None = None

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return self.packs.schema.shape

    @property
    def pack_count(self) -> int:
        """The number of packs."""
        schema = self.packs.schema
        return schema.pack_count if schema.regular else len(self.packs.bounds()) - 1

    def span(self, number: int) -> range:
        """Return the numbers of the items of a pack."""
        schema = self.packs.schema
        if not schema.regular:
            return range(*self.packs.bounds()[number : number + 2].tolist())
        first = number * schema.pack_items
        return range(first, min(first + schema.pack_items, schema.length))

    def read(self, rows: Rows, *, strict: bool = False) -> RaggedArray:
        """Return the items of some rows, in their order.

        If `strict`, damage in a run of rows is an error, whatever the options say.
        """
        if not len(rows):
            return RaggedArray.nulls(self.packs.schema.kind, 0)
        if isinstance(rows, range) and rows.step == 1:
            first, last = self._pack_of(np.array([rows[0], rows[-1]])).tolist()
            parts = []
            for group, _, items in self._joined(range(first, last + 1), strict=strict):
                start = self.span(group[0]).start
                parts.append(items[max(0, rows.start - start) : rows.stop - start])
            return RaggedArray.joined(parts)
        if isinstance(rows, range) and len(rows) > _ROWS:
            # The length is a claim of the file: a pack that is not stored ends it.
            steps = range(0, len(rows), _ROWS)
            return RaggedArray.joined([self.read(rows[at : at + _ROWS]) for at in steps])
        numbers = np.asarray(rows, np.int64)
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        found = self._taken(ascending)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return RaggedArray.joined(found).take(back)

    def explain(self, rows: Rows) -> Explanation:
        """Return what reading some rows costs: each pack that holds one is read as a whole."""
        packs, numbers = self.packs, np.asarray(rows, np.int64)
        touched, items = np.unique(self._pack_of(numbers), return_counts=True)
        costs = []
        for number, count, location in zip(
            touched[:_MOST_AT_ONCE].tolist(),
            items.tolist(),
            packs.locate(touched[:_MOST_AT_ONCE]),
            strict=False,
        ):
            stored = location_bytes(packs.store, location)
            key = location.key if isinstance(location, Extent) else ""
            costs.append(ChunkCost((number,), key, stored, count, stored, None))
        nbytes = len(numbers) * packs.schema.dtype.itemsize
        return Explanation(
            (len(numbers),), nbytes, native.choice().name, "packs", len(touched), tuple(costs)
        )

    def verify(self, numbers: range) -> Iterator[tuple[int, str, Exception]]:
        """Read packs, and yield those that cannot be read: number, key if it is known, and error.

        Numbers behind the last pack count as none.
        """
        numbers = range(numbers.start, min(numbers.stop, self.pack_count))
        try:
            for _ in self._joined(numbers, strict=True):
                pass
        except (IngotError, OSError):
            for number in numbers:
                try:
                    for _ in self._decoded(range(number, number + 1)):
                        pass
                except RemoteError:
                    raise
                except (IngotError, OSError) as error:
                    yield number, self._key_of(number), error

    def dropped(self, numbers: Iterable[int]) -> "RaggedChange":
        """Return the sequence with nulls for all items of some packs, which are not read."""
        kind = self.packs.schema.kind
        nulls = ((n, RaggedArray.nulls(kind, len(self.span(n)))) for n in sorted(set(numbers)))
        return _spliced(self, [Splice(n, n + 1, self.encoded([each], n)) for n, each in nulls])

    def _key_of(self, number: int) -> str:
        try:
            (location,) = self.packs.locate(np.array([number]))
        except (IngotError, OSError):
            return ""
        return location.key if isinstance(location, Extent) else ""

    def zones(self) -> ZoneMaps | None:
        """Return the zone maps of all packs; None where they have none."""
        zoned = zone_mapped(self.packs)
        if (
            zoned is None
            or not self.packs.schema.regular
            or self.packs.schema.kind not in (UTF8, BYTES)
        ):
            return None
        if self._zones is None:
            packed: list[bytes] = []
            for start in range(0, self.pack_count, _BATCH):
                found = zoned.zones(range(start, min(start + _BATCH, self.pack_count)))
                if start == 0 and not any(found):
                    # The length is a claim of the file: no packs are stored.
                    return None
                packed += found
            self._zones = ZoneMaps.parse(packed, PREFIX)
        return self._zones

    def stored_bytes(self) -> int:
        """Return the bytes of all stored packs."""
        packs, total, count = self.packs, 0, self.pack_count
        for start in range(0, count, _BATCH):
            located = packs.locate(np.arange(start, min(start + _BATCH, count)))
            found = sum(location_bytes(packs.store, location) for location in located)
            total += found
            if not found:
                # The length is a claim of the file: no more packs are stored.
                break
        return total

    def discard(self, commit: Commit) -> None:
        """Remove the staged values of a commit that will not be applied."""
        discard(self.packs.store, commit.edits)

    def encoded(self, parts: Iterable[RaggedArray], first: int) -> tuple[Pack, ...]:
        """Return the packs that hold these parts; `first` is the number of the first of them."""
        packs = []
        for number, part in enumerate(parts, first):
            self.check_size(part.nbytes, number)
            packs.append(Pack(len(part), self._image(part, number)))
        return tuple(packs)

    def _image(self, items: RaggedArray, number: int) -> bytes:
        """Return one pack, encoded by the kernel where it can."""
        codec = self.packs.schema.codec
        many = many_packs(codec)
        images = None if many is None else many.encode_many(items, [0, len(items)], number, 1)
        return codec.encode(items, number) if images is None else images[0]

    def encoded_items(self, items: RaggedArray, first: int) -> tuple[Pack, ...]:
        """Return the packs of items, which are cut; `first` is the number of the first pack."""
        schema = self.packs.schema
        self.check_kind(items)
        cuts = _cuts(items, schema)
        self.check_count(len(cuts) - 1)
        many = many_packs(schema.codec)
        if len(cuts) > 1 and many is not None:
            sizes = np.diff(items.offsets[cuts])
            longest = int(sizes.argmax())
            self.check_size(int(sizes[longest]), first + longest)
            images = many.encode_many(items, cuts, first, self.options.thread_count())
            if images is not None:
                counts = (stop - start for start, stop in pairwise(cuts))
                return tuple(map(Pack, counts, images))
        return self.encoded((items[start:stop] for start, stop in pairwise(cuts)), first)

    def cut(self, items: RaggedArray) -> Iterator[RaggedArray]:
        """Yield items in parts of the size of a pack."""
        self.check_kind(items)
        cuts = _cuts(items, self.packs.schema)
        self.check_count(len(cuts) - 1)
        return (items[start:stop] for start, stop in pairwise(cuts))

    def recut(self, items: RaggedArray) -> Iterable[RaggedArray]:
        """Return the items of a pack that was changed; in parts if they are too many for one."""
        schema = self.packs.schema
        most = schema.pack_bytes
        fits = most is None or items.nbytes <= 2 * most or len(items) == 1
        return [items] if fits and len(items) <= schema.pack_items else self.cut(items)

    def block(self, start: int, packs: int) -> range:
        """Return the numbers of the items from `start` on, up to the end of so many packs."""
        if start >= self.shape[0]:
            return range(start, start)
        (first,) = self._pack_of(np.array([start])).tolist()
        return range(start, self.span(min(first + packs, self.pack_count) - 1).stop)

    def check_kind(self, items: RaggedArray) -> None:
        """Raise `ValueError` for items of another kind than those of the sequence."""
        kind = self.packs.schema.kind
        if items.kind != kind:
            raise ArgumentError(f"items of {items.kind} are not {kind}")

    def check_size(self, size: int, number: int) -> None:
        """Raise `LimitError` for a pack whose items have more bytes than a chunk holds."""
        if size > CHUNK_LIMIT:
            raise LimitError(
                f"pack {number} would hold {size} bytes of items, the most is {CHUNK_LIMIT}; "
                f"packs have {self.packs.schema.pack_items} items, fewer would fit"
            )

    def check_count(self, count: int) -> None:
        """Raise `LimitError` for more packs than one commit may store."""
        limit = self.options.limits.commit_chunks
        if count > limit:
            raise LimitError(f"a commit of {count} packs, the most is {limit}")

    def touched(
        self, ascending: NDArray[np.int64]
    ) -> Iterator[tuple[int, range, slice, RaggedArray]]:
        """Yield the packs that hold items, by ascending numbers of these.

        Each with its number, the numbers of its items, its part of `ascending`, and its items.
        """
        numbers, starts = np.unique(self._pack_of(ascending), return_index=True)
        ends = [*starts.tolist(), len(ascending)][1:]
        decoded = self._decoded(numbers)
        for (number, span, items), start, end in zip(decoded, starts.tolist(), ends, strict=True):
            yield number, span, slice(start, end), items

    def _pack_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        schema = self.packs.schema
        if schema.regular:
            return rows // schema.pack_items
        return np.searchsorted(self.packs.bounds(), rows, "right") - 1

    def _decoded(self, numbers: Rows) -> Iterator[tuple[int, range, RaggedArray]]:
        """Yield packs: the number of each, the numbers of its items, and the items."""
        for group in self._fetched(numbers):
            for number, data in group:
                span = self.span(number)
                yield number, span, self._decode(number, data, len(span))

    def _taken(self, ascending: NDArray[np.int64]) -> list[RaggedArray]:
        """Return items by their ascending numbers, in parts."""
        own = self._pack_of(ascending)
        packs, firsts = np.unique(own, return_index=True)
        ends = np.append(firsts[1:], len(own))
        found: list[RaggedArray] = []
        for at in range(0, len(packs), _BATCH):
            part = slice(at, at + _BATCH)
            first, last = int(firsts[at]), int(ends[part][-1])
            wanted = ascending[first:last]
            items = self._taken_by_kernel(packs[part], wanted, ends[part] - first)
            found += self._taken_of_whole(wanted) if items is None else [items]
        return found

    def _taken_by_kernel(
        self, packs: NDArray[np.int64], ascending: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> RaggedArray | None:
        """Return items of packs, of which only parts are decoded; None where all have to be."""
        many, sources = many_packs(self.packs.schema.codec), self._sources(packs)
        if many is None or sources is None:
            return None
        starts = np.array([self.span(number).start for number in packs.tolist()], np.int64)
        within = ascending - np.repeat(starts, np.diff(ends, prepend=0))
        kind, threads = self.packs.schema.kind, self.options.thread_count()
        return many.take_many(sources, kind, within, ends.tolist(), threads)

    def _taken_of_whole(self, ascending: NDArray[np.int64]) -> Iterator[RaggedArray]:
        """Yield items by their ascending numbers; packs are decoded as a whole."""
        own = self._pack_of(ascending)
        for numbers, counts, items in self._joined(np.unique(own)):
            first, last = np.searchsorted(own, [numbers[0], numbers[-1] + 1]).tolist()
            starts = np.array([self.span(number).start for number in numbers], np.int64)
            # Where the items of each pack lie among those of all.
            shifts = offsets_of(np.array(counts, np.int64))[:-1] - starts
            places = np.searchsorted(numbers, own[first:last])
            yield items.take(ascending[first:last] + shifts[places])

    def read_array(self, rows: Rows) -> NDArray[Any]:
        """Return items as an array: text as NumPy's strings, other items as objects."""
        schema = self.packs.schema
        whole = isinstance(rows, range) and rows == range(schema.length)
        few = 0 < schema.length <= _MARKED and self.pack_count <= _MOST_AT_ONCE
        if whole and few and schema.kind == UTF8:
            many, sources = many_packs(schema.codec), self._sources(np.arange(self.pack_count))
            if many is not None and sources is not None:
                found = many.text_of_many(sources, self.options.thread_count())
                if found is not None:
                    return found
        return self.read(rows).to_numpy()

    def mark(self, rows: range, tests: Sequence[ItemTest]) -> NDArray[np.bool_]:
        """Return which items of a run of rows pass all tests.

        The kernel tests items while it decodes them, and keeps none of them.
        """
        if not rows:
            return np.zeros(0, np.bool_)
        first, last = self._pack_of(np.array([rows[0], rows[-1]])).tolist()
        parts: list[NDArray[np.bool_]] = []
        for at in range(first, last + 1, _BATCH):
            numbers = np.arange(at, min(at + _BATCH, last + 1))
            parts += self._marked(numbers, tests)
        marks = parts[0] if len(parts) == 1 else np.concatenate(parts)
        start = rows.start - self.span(first).start
        return marks[start : start + len(rows)]

    def _marked(
        self, numbers: NDArray[np.int64], tests: Sequence[ItemTest]
    ) -> Iterable[NDArray[np.bool_]]:
        """Return which items of packs pass all tests, in parts."""
        many, sources = many_packs(self.packs.schema.codec), self._sources(numbers)
        if many is not None and sources is not None and sum(sources.counts) <= _MARKED:
            kind, threads = self.packs.schema.kind, self.options.thread_count()
            marks = many.mark_many(sources, kind, tests, threads)
            if marks is not None:
                return [marks]
        return (
            np.logical_and.reduce([passing(items, test) for test in tests])
            for _, _, items in self._joined(numbers)
        )

    def _sources(self, numbers: NDArray[np.int64]) -> PackSources | None:
        """Return packs for the kernel to read; None where one of them is not stored."""
        store = self.packs.store
        located = list(self.packs.locate(numbers))
        extents = [each for each in located if isinstance(each, Extent)]
        if len(extents) < len(located):
            return None
        counts = [len(self.span(number)) for number in numbers.tolist()]
        if native_names(store) == {}:
            pieces = [(each.key, each.start, each.length) for each in extents]
            return PackSources(pieces, native_root(store), counts, numbers.tolist())
        found = [each for each in store.read(extents) if each is not None]
        if len(found) < len(extents):
            return None
        return PackSources(found, None, counts, numbers.tolist())

    def _joined(
        self, wanted: Rows, *, strict: bool = False
    ) -> Iterator[tuple[list[int], list[int], RaggedArray]]:
        """Yield packs, many at a time: their numbers, how many items each has, and all items."""
        schema, threads = self.packs.schema, self.options.thread_count()
        many = many_packs(schema.codec)
        for group in self._fetched(wanted):
            numbers = [number for number, _ in group]
            counts = [len(self.span(number)) for number in numbers]
            stored = [data for _, data in group if data is not None]
            items = None
            if len(stored) == len(group) and many is not None:
                items = many.decode_many(stored, schema.kind, counts, numbers, threads)
            if items is None:
                around = self.options.damaged == "fill" and not strict
                decode = self._decode_around if around else self._decode
                parts = [
                    decode(number, data, count)
                    for (number, data), count in zip(group, counts, strict=True)
                ]
                items = RaggedArray.joined(parts)
            yield numbers, counts, items

    def _decode_around(self, number: int, data: bytes | None, count: int) -> RaggedArray:
        """Return the items of one pack; nulls, with a warning, where it cannot be read."""
        try:
            return self._decode(number, data, count)
        except IngotError as error:
            chunks = (((number,), self._key_of(number), str(error)),)
            warnings.warn(DamageWarning(self.packs.store.location, chunks), stacklevel=_CALLER)
            return RaggedArray.nulls(self.packs.schema.kind, count)

    def _decode(self, number: int, data: bytes | None, count: int) -> RaggedArray:
        """Return the items of one pack; errors name it."""
        packs, schema = self.packs, self.packs.schema
        where = f"pack {number} of {packs.path or 'the items'}"
        if data is None and schema.fill is not None and self.options.missing == "fill":
            return schema.fill.take(np.zeros(count, np.int64))
        if data is None:
            raise CorruptionError(f"{packs.store.location}: {where} is not stored")
        many = many_packs(schema.codec)
        found = None
        if many is not None:
            found = many.decode_many([data], schema.kind, [count], [number], 1)
        if found is not None:
            return found
        try:
            # It also says what is wrong with the pack.
            return schema.codec.decode(data, schema.kind, count, number)
        except IngotError as error:
            error.add_note(f"in {where} in {packs.store.location}")
            raise

    def _fetched(self, numbers: Rows) -> Iterator[list[tuple[int, bytes | None]]]:
        """Yield packs with their bytes: a few long ones at a time, or many short ones."""
        packs, window = self.packs, self.options.limits.window_bytes
        for start in range(0, len(numbers), _BATCH):
            chosen = np.asarray(numbers[start : start + _BATCH], np.int64)
            located = list(packs.locate(chosen))
            at = 0
            while at < len(located):
                stop, size = at, 0
                while stop < len(located) and (stop == at or size < window):
                    location = located[stop]
                    size += (location.length or 0) if isinstance(location, Extent) else 0
                    stop += 1
                extents = [each for each in located[at:stop] if isinstance(each, Extent)]
                read = iter(packs.store.read(extents))
                yield [
                    (int(chosen[place]), _stored(located[place], read)) for place in range(at, stop)
                ]
                at = stop


class RaggedChange(NamedTuple):
    """The engine of a sequence after a change, and the commit of the change."""

    engine: RaggedEngine
    commit: Commit


def assigned(engine: RaggedEngine, rows: Rows, items: RaggedArray) -> RaggedChange:
    """Set items in some rows; the last one counts where a row is repeated."""
    engine.check_kind(items)
    numbers = np.asarray(rows, np.int64)
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    splices = []
    for number, span, place, old in engine.touched(ascending):
        new = old.replaced(ascending[place] - span.start, items.take(order[place]))
        splices.append(Splice(number, number + 1, engine.encoded(engine.recut(new), number)))
    return _spliced(engine, splices)


def appended(engine: RaggedEngine, items: RaggedArray) -> RaggedChange:
    """Add items at the end; a last pack that has room is encoded again."""
    if not len(items):
        return RaggedChange(engine, Commit())
    engine.check_kind(items)
    first, old = _open_pack(engine)
    joined = items if old is None else RaggedArray.joined([old, items])
    if not first:
        # All packs are made now, so that their length can be chosen for what they hold.
        engine = _refitted(engine, len(joined), joined.nbytes / len(joined))
    if old is not None and _cuts(joined, engine.packs.schema)[1] == len(old):
        # The first item needs a pack of its own.
        joined = items
        first += 1
    packs = engine.encoded_items(joined, first)
    return _spliced(engine, [Splice(first, engine.pack_count, packs)])


def streamed(engine: RaggedEngine, blocks: Iterable[RaggedArray]) -> "PackStream":
    """Encode items that come in blocks, so that not all of them are held in memory.

    That needs no turn to write: the packs are part of no state until they are added. Regular packs
    go on with the last one that is stored; others begin a pack of their own.
    """
    schema, blocks = engine.packs.schema, iter(blocks)
    if not schema.regular:
        return PackStream(schema, schema, None, 0, None, _packed(engine, blocks, 0))
    first, held = _open_pack(engine)
    given = blocks if held is None else chain([held], blocks)
    fit = None
    if not first:
        # All packs are made now, so that their length can be chosen for the first of their items.
        ahead = list(islice(given, 1 if held is None else 2))
        given = chain(ahead, given)
        count = sum(map(len, ahead))
        if count:
            fit = count, sum(each.nbytes for each in ahead) / count
            engine = _refitted(engine, *fit)
    packs = _packed(engine, given, first)
    return PackStream(schema, engine.packs.schema, fit, first, held, packs)


def _refitted(engine: RaggedEngine, count: int, item_bytes: float) -> RaggedEngine:
    """Return the engine of a sequence all of whose packs are made by the next splice."""
    after = fitted(engine.packs, count, item_bytes)
    return engine if after is engine.packs else RaggedEngine(after, engine.options)


def _packed(engine: RaggedEngine, blocks: Iterable[RaggedArray], first: int) -> tuple[Pack, ...]:
    """Return the packs of items that come in blocks; `first` is the number of the first pack."""
    schema = engine.packs.schema
    images = _Spool()
    counts: list[int] = []

    def encode(items: RaggedArray) -> None:
        for pack in engine.encoded_items(items, first + len(counts)):
            counts.append(pack.items)
            images.add(pack.data)
        # An iterator may have no end.
        engine.check_count(len(counts))

    rest = RaggedArray.nulls(schema.kind, 0)
    for block in blocks:
        joined = RaggedArray.joined([rest, block]) if len(rest) else block
        cuts = _cuts(joined, schema)
        # The last pack may have room for items of the next block.
        full = cuts[-2] if len(cuts) > 1 else 0
        encode(joined[:full])
        rest = joined[full:]
    encode(rest)
    return tuple(map(Pack, counts, images.read()))


def filled_each(engine: RaggedEngine, blocks: Iterable[RaggedArray]) -> Commit:
    """Return the commit that stores all packs of a new sequence, whose items come in blocks."""
    packs = _packed(engine, blocks, 0)
    return engine.packs.spliced([Splice(0, len(packs), packs)])[1] if packs else Commit()


def extended(engine: RaggedEngine, stream: "PackStream") -> RaggedChange:
    """Add packs that were encoded before at the end.

    Where another writer has changed the sequence since, they are encoded again, one by one.
    """
    if not stream.packs:
        return RaggedChange(engine, Commit())
    if not stream.continues(engine):
        stream = streamed(engine, stream.blocks(engine.packs.schema.kind))
    if stream.fit is not None:
        engine = _refitted(engine, *stream.fit)
    engine.check_count(len(stream.packs))
    count = engine.pack_count
    first = stream.first if engine.packs.schema.regular else count
    return _spliced(engine, [Splice(first, count, stream.packs)])


class PackStream(NamedTuple):
    """Packs that are encoded, to be added to a sequence."""

    before: RaggedSchema
    """The schema of the sequence that they were made for."""
    schema: RaggedSchema
    """The schema by which they are encoded: with another length of packs, perhaps."""
    fit: tuple[int, float] | None
    """The number and the mean size of the items that the length of packs was chosen for."""
    first: int
    """The number of the first pack, where packs are regular."""
    held: RaggedArray | None
    """The items of the last pack of the sequence, with which the first pack begins."""
    packs: tuple[Pack, ...]

    def continues(self, engine: RaggedEngine) -> bool:
        """Return whether the packs can be added to a sequence as they are."""
        now, before = engine.packs.schema, self.before
        if (now.kind, now.codec, now.regular) != (before.kind, before.codec, before.regular):
            return False
        if not now.regular:
            return True
        return now.length == before.length and _open_pack(engine) == (self.first, self.held)

    def blocks(self, kind: ItemKind) -> Iterator[RaggedArray]:
        """Yield the items that are to be added, pack by pack, as items of a kind."""
        codec, own = self.schema.codec, self.schema.kind
        skipped = 0 if self.held is None else len(self.held)
        for number, pack in enumerate(self.packs, self.first):
            items = codec.decode(bytes(pack.data), own, pack.items, number)
            yield items[min(skipped, len(items)) :].cast(kind)
            skipped -= min(skipped, len(items))


class _Spool:
    """Values in the order in which they are added; many bytes wait in a file without a name."""

    __slots__ = ("_file", "_held", "_lengths", "_size")

    def __init__(self) -> None:
        self._held: list[bytes] = []
        self._lengths: list[int] = []
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, data: Buffer) -> None:
        self._held.append(bytes(data))
        self._lengths.append(len(data))
        self._size += len(data)
        if self._size > _SPOOLED:
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115, since the values lie in it
            self._file.writelines(self._held)
            self._held, self._size = [], 0

    def read(self) -> Iterator[Buffer]:
        """Yield the values. Those in the file are mapped, so that the system may drop them."""
        at = 0
        stored = memoryview(b"")
        if self._file is not None:
            self._file.flush()
            # Nothing else knows the file, so that nothing can cut it off.
            stored = memoryview(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        for length in self._lengths[: len(self._lengths) - len(self._held)]:
            yield stored[at : at + length]
            at += length
        yield from self._held


def deleted(engine: RaggedEngine, rows: Rows) -> RaggedChange:
    """Remove the items of some rows."""
    numbers = np.unique(np.asarray(rows, np.int64))
    if not len(numbers):
        return RaggedChange(engine, Commit())
    if engine.packs.schema.regular:
        first = int(engine._pack_of(numbers[:1])[0])
        start = engine.span(first).start
        held = engine.read(range(start, engine.shape[0]))
        packs = engine.encoded(engine.cut(_without(held, numbers - start)), first)
        return _spliced(engine, [Splice(first, engine.pack_count, packs)])
    splices = []
    for number, span, place, old in engine.touched(numbers):
        left = _without(old, numbers[place] - span.start)
        packs = engine.encoded([left] if len(left) else [], number)
        splices.append(Splice(number, number + 1, packs))
    return _spliced(engine, splices)


def compacted(engine: RaggedEngine) -> RaggedChange:
    """Store the items without the bytes that changes have left behind."""
    packs = compactable_ragged(engine.packs)
    if packs is None:
        raise UnsupportedError(f"{engine.packs.store.location}: its format leaves no bytes behind")
    after, commit = packs.compacted()
    return RaggedChange(RaggedEngine(after, engine.options), commit)


def resized(engine: RaggedEngine, length: int) -> RaggedChange:
    """Give a sequence another length; new items are null."""
    schema, count = engine.packs.schema, engine.pack_count
    added = length - schema.length
    if not added:
        return RaggedChange(engine, Commit())
    if added > 0:
        # Pack by pack: so many nulls may be more than the memory holds.
        engine.check_count(added // schema.pack_items + 1)
        first, old = _open_pack(engine)
        parts = _with_nulls(old, added, schema)
        return _spliced(engine, [Splice(first, count, engine.encoded(parts, first))])
    first = int(engine._pack_of(np.array([length]))[0])
    kept = engine.read(range(engine.span(first).start, length))
    packs = engine.encoded([kept] if len(kept) else [], first)
    return _spliced(engine, [Splice(first, count, packs)])


def filled(engine: RaggedEngine, items: RaggedArray) -> Commit:
    """Return the commit that stores all packs of a new sequence of the length of `items`."""
    return stored(engine, items, 0)


def stored(engine: RaggedEngine, items: RaggedArray, start: int) -> Commit:
    """Return the commit that stores whole packs of a sequence whose length is known.

    `start` is the number of the first item, which begins a pack.
    """
    first = start // engine.packs.schema.pack_items
    packs = engine.encoded_items(items, first)
    if not packs:
        return Commit()
    return engine.packs.spliced([Splice(first, first + len(packs), packs)])[1]


def described(engine: RaggedEngine, attrs: Mapping[str, Any]) -> RaggedChange:
    """Give a sequence other attributes."""
    packs, commit = engine.packs.described(attrs)
    return RaggedChange(RaggedEngine(packs, engine.options), commit)


def _spliced(engine: RaggedEngine, splices: list[Splice]) -> RaggedChange:
    if not splices:
        return RaggedChange(engine, Commit())
    packs, commit = engine.packs.spliced(splices)
    return RaggedChange(RaggedEngine(packs, engine.options), commit)


def following_packs(packs: int, items: RaggedArray) -> int:
    """Return how many packs the next block has, where one of so many packs had these items.

    The size of packs is not known before they are read: a block begins with one of them, and the
    next ones have up to 65,536 items or 4 MiB.

    >>> following_packs(1, RaggedArray.of(["ape"] * 4096))
    8
    >>> following_packs(8, RaggedArray.of(["x" * 2**20] * 8))
    4
    """
    count = max(1, len(items))
    room = min(_BLOCK_ITEMS / count, _BLOCK_BYTES / max(1, items.nbytes), _BLOCK_GROWTH)
    return max(1, int(packs * room))


def _stored(location: Location, read: Iterator[bytes | None]) -> bytes | None:
    if isinstance(location, Inline):
        return location.data
    return next(read) if isinstance(location, Extent) else None


def _cuts(items: RaggedArray, schema: RaggedSchema) -> Sequence[int]:
    """Return where packs begin, and where the last one ends."""
    count, most = len(items), schema.pack_items
    if schema.pack_bytes is None:
        return [*range(0, count, most), count] if count else [0]
    cuts, at, offsets = [0], 0, items.offsets
    while at < count:
        # As many items as fit, and at least one.
        until = int(np.searchsorted(offsets, offsets[at] + schema.pack_bytes, "right")) - 1
        at = min(max(until, at + 1), at + most, count)
        cuts.append(at)
    return cuts


def _without(items: RaggedArray, rows: NDArray[np.int64]) -> RaggedArray:
    kept = np.ones(len(items), np.bool_)
    kept[rows] = False
    return items.masked(kept)


def _open_pack(engine: RaggedEngine) -> tuple[int, RaggedArray | None]:
    """Return the number of the first pack that an append stores, and what it holds already."""
    count, schema = engine.pack_count, engine.packs.schema
    last = engine.span(count - 1) if count else range(0)
    if count and len(last) < schema.pack_items:
        held = engine.read(last)
        if schema.pack_bytes is None or held.nbytes < schema.pack_bytes:
            return count - 1, held
    return count, None


def _with_nulls(old: RaggedArray | None, added: int, schema: RaggedSchema) -> Iterator[RaggedArray]:
    """Yield packs of nulls; the first of them behind the items of a pack that has room."""
    if old is not None:
        room = min(added, schema.pack_items - len(old))
        yield RaggedArray.joined([old, RaggedArray.nulls(schema.kind, room)])
        added -= room
    full = RaggedArray.nulls(schema.kind, min(added, schema.pack_items))
    for at in range(0, added, schema.pack_items):
        yield full[: added - at]

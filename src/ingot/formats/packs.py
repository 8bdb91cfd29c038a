"""Packs of variable-length items: the lengths and the bytes of the items in two Blosc chunks.

The lengths are 32-bit integers, with all bits set for a null; they count bytes and add up to those
of the second chunk. This module has what the packs of all formats share, and the codec of packs
whose chunks have trailers (`ingot.formats.trailer`), which columns of bcolz and blsk use. Both
trailers state the number of the pack and its items; the first has the zone map of the items.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.blosc.header import HEADER_BYTES, LARGEST_EXPANSION, ChunkHeader
from ingot.codecs.codec import CHUNK_LIMIT, Buffer, Stage
from ingot.codecs.compressors import Blosc
from ingot.codecs.zone_maps import prefix_zone_map
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsupportedError,
)
from ingot.formats import trailer
from ingot.formats.format import Locations, RaggedRequest, Splice
from ingot.ragged_array import BYTES, JSON, UTF8, ItemKind, ItemTest, RaggedArray, offsets_of
from ingot.schema import PackSources, RaggedSchema
from ingot.stores.store import Extent, Store

__all__ = [
    "LENGTH",
    "KernelPacks",
    "PackGuards",
    "RegularPacks",
    "TrailedPacks",
    "check_rows",
    "default_codec",
    "has_zone_map",
    "items_of",
    "lengths_codec",
    "lengths_of",
    "pack_codec",
    "spliced_length",
    "total_bytes",
    "unchecked_items",
]

LENGTH: Final = np.dtype("<u4")
"""The type of a length."""
# No stored byte stands for the lengths of more items.
_MOST_ITEMS: Final = max(LARGEST_EXPANSION.values()) // LENGTH.itemsize
# What many packs may decode to at once; more is decoded one by one.
_MOST_DECODED: Final = 1 << 30

_NULL: Final = 2**32 - 1
_NEWEST: Final = 2
_SHUFFLE: Final = 1
_CBYTES: Final = slice(12, HEADER_BYTES)
# What is read of a pack to get its zone map.
_FIRST_BYTES: Final = 1 << 15


def default_codec(kind: ItemKind) -> Blosc:
    """Return the codec of the bytes of items where nothing else is said.

    >>> default_codec(UTF8).shuffle, default_codec(ItemKind.of("<f8")).typesize
    (0, 8)
    """
    if kind.item is None:
        return Blosc(shuffle=0)
    return Blosc().bind(kind.item.itemsize)


def pack_codec(request: RaggedRequest, format: str) -> Blosc:
    """Return the codec that a caller wants for the bytes of items; refuse all but Blosc."""
    stages, kind = request.stages, request.kind
    if stages is None:
        return default_codec(kind)
    if len(stages) > 1 or not all(isinstance(stage, Blosc) for stage in stages):
        raise not_blosc(format, stages)
    stage = stages[0] if stages else Blosc(clevel=0)
    assert isinstance(stage, Blosc)
    return stage.bind(1 if kind.item is None else kind.item.itemsize)


def not_blosc(format: str, stages: Sequence[Stage]) -> UnsupportedError:
    """Return the error of items that another codec than Blosc would compress.

    >>> from ingot.codecs.codec import parse_spelling
    >>> raise not_blosc("bcolz", parse_spelling("zstd:3"))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: bcolz: variable-length items are compressed by Blosc only, not by
    zstd; "blosc:zstd" compresses with Zstandard inside of Blosc
    """
    names = ", ".join(stage.name for stage in stages)
    return UnsupportedError(
        f"{format}: variable-length items are compressed by Blosc only, not by {names}; "
        '"blosc:zstd" compresses with Zstandard inside of Blosc'
    )


def check_rows(rows: int, what: str) -> None:
    """Raise `LimitError` for packs of more items than a chunk of lengths holds."""
    if rows * LENGTH.itemsize > CHUNK_LIMIT:
        raise LimitError(
            f"{what} {rows} makes {rows * LENGTH.itemsize} bytes of lengths, "
            f"the limit is {CHUNK_LIMIT}"
        )


def lengths_codec(blosc: Blosc) -> Blosc:
    """Return the codec of the lengths, given that of the bytes."""
    return Blosc(blosc.cname, blosc.clevel, _SHUFFLE, typesize=LENGTH.itemsize)


def lengths_of(items: RaggedArray) -> NDArray[np.uint32]:
    """Return the lengths of items as packs store them."""
    lengths = items.lengths.astype(LENGTH)
    if items.validity is not None:
        lengths[~items.validity] = _NULL
    return lengths


def total_bytes(lengths: NDArray[np.uint32]) -> int:
    """Return the bytes of all items that have these lengths."""
    return int(lengths.sum(where=lengths != _NULL, dtype=np.int64))


def items_of(
    stored: NDArray[np.uint32], held: Buffer, kind: ItemKind, where: str, *, nulls: bool = True
) -> RaggedArray:
    """Return items of these lengths, whose sum is known to be right; `where` names them in errors.

    Without `nulls` a null is damage.
    """
    items = unchecked_items(stored, held, kind, where, nulls=nulls)
    return RaggedArray.checked(kind, items.offsets, items.data, items.validity, where)


def unchecked_items(
    stored: NDArray[np.uint32], held: Buffer, kind: ItemKind, where: str, *, nulls: bool
) -> RaggedArray:
    """Return what `items_of` does, of items that are text where they have to be."""
    lengths = stored.astype(np.int64)
    validity = None
    null = stored == _NULL
    if null.any():
        if not nulls:
            first = int(null.argmax())
            raise CorruptionError(f"{where}: item {first} is null, which no item may be")
        validity = ~null
        lengths[null] = 0
    return RaggedArray(kind, offsets_of(lengths), np.frombuffer(held, np.uint8), validity)


def has_zone_map(kind: ItemKind) -> bool:
    """Return whether items of a kind have an order, and so a zone map.

    >>> has_zone_map(UTF8), has_zone_map(ItemKind("json"))
    (True, False)
    """
    return kind in (UTF8, BYTES)


def spliced_length(schema: RaggedSchema, splices: Sequence[Splice]) -> int:
    """Return the number of items of a sequence with regular packs after splices.

    >>> from ingot.formats.format import Pack
    >>> schema = RaggedSchema(10, UTF8, 4, None)
    >>> spliced_length(schema, [Splice(2, 3, (Pack(4, b""), Pack(1, b"")))])
    13
    """
    length = schema.length
    for start, stop, packs in splices:
        first, last = (min(each * schema.pack_items, schema.length) for each in (start, stop))
        length += sum(pack.items for pack in packs) - (last - first)
    return length


class PackGuards(NamedTuple):
    """What stands around the chunks of packs, for the kernel to verify."""

    checksum: str
    """The kind of the digests behind chunks."""
    trailers: tuple[bytes, bool, Sequence[tuple[int, int | None]]] | None = None
    """What stands in front of packs, whether they end with their trailers, and what these state."""
    nulls: bool = True
    """Whether items may be null."""


class KernelPacks:
    """What codecs of packs share that the native kernel decodes: many packs by one call."""

    __slots__ = ()

    def guards(self, numbers: Sequence[int]) -> PackGuards | None:
        """Return what the kernel verifies of packs; None where it does not know them."""
        raise NotImplementedError

    def decode_many(
        self,
        packs: Sequence[bytes],
        kind: ItemKind,
        counts: Sequence[int],
        numbers: Sequence[int],
        threads: int,
    ) -> RaggedArray | None:
        """Return the items of many packs; None where one is wrong, or no kernel decodes them."""
        decode, guards, count = native.decode_packs(), self.guards(numbers), sum(counts)
        # Before memory is taken for what the documents claim.
        if decode is None or guards is None or count > sum(map(len, packs)) * _MOST_ITEMS:
            return None
        offsets, validity = np.empty(count + 1, np.int64), np.empty(count, np.bool_)
        around, out = (guards.checksum, guards.trailers), (offsets, validity)
        try:
            held, nulls = decode(packs, counts, *around, kind.is_text, *out, _MOST_DECODED, threads)
            if nulls and not guards.nulls:
                return None
            data = np.frombuffer(held, np.uint8)
            return RaggedArray(kind, offsets, data, validity if nulls else None).conforming("packs")
        except IngotError:
            return None

    def mark_many(
        self, sources: PackSources, kind: ItemKind, tests: Sequence[ItemTest], threads: int
    ) -> NDArray[np.bool_] | None:
        """Return which items of many packs pass all tests; None where `decode_many` is needed."""
        mark, guards = native.mark_packs(), self.guards(sources.numbers)
        # JSON may spell out a null, which only those notice that decode it.
        if mark is None or guards is None or not guards.nulls or kind == JSON:
            return None
        marks = np.empty(sum(sources.counts), np.bool_)
        try:
            mark(_pack_set(sources, guards), tests, kind.is_text, marks, threads)
        except (IngotError, OSError):
            return None
        return marks

    def text_of_many(self, sources: PackSources, threads: int) -> NDArray[Any] | None:
        """Return the text of many packs as NumPy's strings; None where `decode_many` is needed."""
        fill, guards = native.pack_strings_of(), self.guards(sources.numbers)
        if fill is None or guards is None or not guards.nulls:
            return None
        found = np.zeros(sum(sources.counts), UTF8.dtype)
        try:
            fill(found, _pack_set(sources, guards), threads)
        except (IngotError, OSError):
            return None
        return found

    def take_many(
        self,
        sources: PackSources,
        kind: ItemKind,
        rows: NDArray[np.int64],
        ends: Sequence[int],
        threads: int,
    ) -> RaggedArray | None:
        """Return items by ascending numbers within packs; None where `decode_many` is needed."""
        take, guards = native.take_packs(), self.guards(sources.numbers)
        if take is None or guards is None:
            return None
        wanted = rows.astype(np.uint64)
        try:
            lengths, held = take(_pack_set(sources, guards), wanted, ends, kind.is_text, threads)
            stored = np.frombuffer(lengths, LENGTH)
            return unchecked_items(stored, held, kind, "packs", nulls=guards.nulls).conforming()
        except (IngotError, OSError):
            return None


def _pack_set(sources: PackSources, guards: PackGuards) -> tuple[object, ...]:
    around = guards.checksum, guards.trailers
    return sources.packs, sources.root, sources.counts, *around, _MOST_DECODED


@dataclass(frozen=True, slots=True)
class TrailedPacks(KernelPacks):
    """The codec of packs whose chunks have trailers; a format may put a head in front of them.

    A pack has at most `rows` items. `parts` has the number of the first pack of each part of the
    sequence, and the identity that the trailers of the part repeat; numbers begin with 0 in each.

    >>> codec = TrailedPacks(Blosc(shuffle=0), 4)
    >>> pack = codec.encode(RaggedArray.of(["ape", None, "bee"]), 7)
    >>> codec.decode(pack, UTF8, 2, 7).to_list()
    ['ape', None]
    """

    blosc: Blosc
    rows: int
    parts: tuple[tuple[int, int | None], ...] = ((0, None),)
    auto: bool = False
    """Whether the format chose the length of packs."""

    head: ClassVar[bytes] = b""
    """What stands in front of the first chunk."""
    exact: ClassVar[bool] = False
    """Whether nothing may stand behind a pack."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The codec of the bytes."""
        return (self.blosc,)

    def identified(self, identity: int | None) -> "TrailedPacks":
        """Return the codec of the same items in a column with an identity."""
        return replace(self, parts=((0, identity),))

    def stated(self, number: int) -> tuple[int, int | None]:
        """Return the number and the identity that the trailers of a pack state."""
        part = bisect_right(self.parts, number, key=lambda each: each[0]) - 1
        first, identity = self.parts[part]
        return number - first, identity

    def encode(self, items: RaggedArray, number: int) -> bytes:
        """Return the image of a pack."""
        own, identity = self.stated(number)
        zone = prefix_zone_map(items) if has_zone_map(items.kind) else b""
        pieces: list[Buffer] = [self.head]
        contents = (
            (lengths_of(items), lengths_codec(self.blosc), zone),
            (
                items.payload,
                self.blosc,
                b"",
            ),
        )
        for raw, blosc, zone_map in contents:
            chunk = blosc.encode(np.ascontiguousarray(raw).data)
            pieces += [chunk, trailer.pack(chunk, own, len(items), zone_map, identity)]
        return b"".join(pieces)

    def decode(self, data: bytes, kind: ItemKind, count: int, number: int) -> RaggedArray:
        """Return the first `count` items of a pack, which may hold up to `rows` items."""
        lengths_chunk, bytes_chunk = self.chunks(data)
        held_items = lengths_chunk.items(count, self.rows)
        lengths_chunk.check(*self.stated(number), held_items)
        bytes_chunk.check(*self.stated(number), held_items)
        lengths = np.frombuffer(lengths_chunk.decode(), LENGTH)
        total = total_bytes(lengths)
        if total != bytes_chunk.header.nbytes:
            raise CorruptionError(
                f"pack: the lengths add up to {total} bytes, the chunk of the bytes "
                f"holds {bytes_chunk.header.nbytes}"
            )
        items = items_of(lengths, bytes_chunk.decode(), kind, "pack")
        # The last pack may hold items of an append that was not committed.
        return items if len(items) == count else items.take(np.arange(count))

    def encode_many(
        self, items: RaggedArray, cuts: Sequence[int], first: int, threads: int
    ) -> list[bytes] | None:
        """Return the images of many packs; None where the native kernel does not make them."""
        encode = native.encode_packs()
        number, identity = self.stated(first)
        if encode is None or self.stated(first + len(cuts)) != (number + len(cuts), identity):
            return None
        ends = items.offsets[cuts[1:]] - items.offsets[0]
        blosc = self.blosc.native_coding()
        coding = blosc.codec, blosc.level, blosc.shuffle, blosc.typesize, blosc.blocksize
        trailers = self.head, number, identity, has_zone_map(items.kind)
        return encode(
            lengths_of(items),
            items.payload,
            list(cuts[1:]),
            ends.tolist(),
            coding,
            "none",
            threads,
            trailers,
        )

    def guards(self, numbers: Sequence[int]) -> PackGuards:
        """Return what the kernel verifies of packs."""
        return PackGuards("none", (self.head, self.exact, list(map(self.stated, numbers))))

    def zone_in(self, data: Buffer, number: int) -> bytes:
        """Return the zone map of a pack, after checking its trailer; its first bytes are enough."""
        lengths, _ = PackChunk.find(self._body(memoryview(data)), "lengths")
        lengths.check(*self.stated(number), lengths.items(0, self.rows))
        return lengths.trailer.zone

    def zone_end(self, data: Buffer) -> int:
        """Return how many bytes of a pack `zone_in` needs, as far as its first bytes say it."""
        view = memoryview(data)
        end = len(self.head) + HEADER_BYTES
        if len(view) < end:
            return end
        end += max(0, int.from_bytes(view[end - 4 : end], "little", signed=True) - HEADER_BYTES)
        if len(view) < end + trailer.LEAST_BYTES:
            return end + trailer.LEAST_BYTES
        return end + trailer.claimed_size(view[end : end + trailer.LEAST_BYTES])

    def moved(self, data: Buffer, old: int, new: int, target: "TrailedPacks") -> bytes:
        """Return a pack as that of another number in another column, after checking it."""
        pieces: list[Buffer] = [target.head]
        chunks = self.chunks(data)
        held_items = chunks[0].items(0, self.rows)
        for each in chunks:
            each.check(*self.stated(old), held_items)
            pieces += [each.chunk, each.trailer.moved(each.chunk, *target.stated(new))]
        return b"".join(pieces)

    def measure(self, data: Buffer) -> int:
        """Return how many of the given bytes a pack has; nothing is decoded."""
        view = memoryview(data)
        end = len(self.head)
        for _ in range(2):
            end += _chunk_bytes(view[end:])
            end += trailer.size_of(view[end:])
        return end

    def chunks(self, data: Buffer) -> "tuple[PackChunk, PackChunk]":
        """Return the two chunks of a pack."""
        view = self._body(memoryview(data))
        lengths, behind = PackChunk.find(view, "lengths")
        held, rest = PackChunk.find(behind, "bytes")
        if self.exact and rest:
            raise CorruptionError(f"pack: {len(rest)} bytes lie behind it")
        return lengths, held

    def _body(self, view: memoryview) -> memoryview:
        """Return what follows the head."""
        return view


class RegularPacks:
    """What maps of packs of one length share: where packs begin, and their zone maps."""

    __slots__ = ()

    if TYPE_CHECKING:
        # Each map brings them, as fields or otherwise.
        @property
        def store(self) -> Store: ...

        @property
        def schema(self) -> RaggedSchema: ...

        def locate(self, numbers: NDArray[np.int64]) -> Locations: ...

    @property
    def codec(self) -> TrailedPacks:
        """The codec of the packs."""
        codec = self.schema.codec
        assert isinstance(codec, TrailedPacks)
        return codec

    def fitted_rows(self, wanted: int) -> int | None:
        """Return the length of packs to change to; None where it stays.

        Items that are stored already are worth it only where the length differs much.
        """
        now = self.schema.pack_items
        near = bool(self.schema.length) and now < 2 * wanted < 4 * now
        return None if near or wanted == now or not self.codec.auto else wanted

    def bounds(self) -> NDArray[np.int64]:
        """Return the first item of each pack, and the number of items at the end."""
        return self.schema.regular_bounds()

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of packs; b"" for those that are not stored."""
        located = list(self.locate(np.asarray(numbers, np.int64)))
        extents = [each for each in located if isinstance(each, Extent)]
        # The lengths come first, and are short.
        found = iter(self.store.read([_cut(each, _FIRST_BYTES) for each in extents]))
        zones = []
        for number, location in zip(numbers, located, strict=True):
            data = next(found) if isinstance(location, Extent) else None
            if data is None or not isinstance(location, Extent):
                zones.append(b"")
                continue
            try:
                zones.append(self._zone(int(number), location, data))
            except IngotError as error:
                error.add_note(f"in {location.key!r} of {self.store.location}")
                raise
        return zones

    def _zone(self, number: int, location: Extent, data: bytes) -> bytes:
        """Return the zone map of a pack, given its first bytes."""
        codec = self.codec
        if codec.zone_end(data) > len(data) and len(data) == _FIRST_BYTES:
            (whole,) = self.store.read([location])
            data = whole or b""
        return codec.zone_in(data, number)


def _cut(extent: Extent, most: int) -> Extent:
    length = most if extent.length is None else min(most, extent.length)
    return Extent(extent.key, extent.start, length)


@dataclass(frozen=True, slots=True)
class PackChunk:
    """A chunk of a pack, and its trailer."""

    what: str
    header: ChunkHeader
    chunk: memoryview
    trailer: trailer.Trailer

    @classmethod
    def find(cls, view: memoryview, what: str) -> "tuple[PackChunk, memoryview]":
        """Return the chunk at the start of some bytes, and what follows its trailer."""
        end = _chunk_bytes(view)
        chunk, rest = view[:end], view[end:]
        header = ChunkHeader.parse(chunk)
        header.check_decodable()
        if header.version > _NEWEST or header.extended:
            raise FormatError(
                f"pack: the chunk of the {what} is of Blosc version {header.version}, "
                f"packs have version {_NEWEST}"
            )
        size = trailer.size_of(rest)
        return cls(what, header, chunk, trailer.parse(rest[:size])), rest[size:]

    def items(self, least: int, most: int) -> int:
        """Return how many lengths the chunk holds; raise an error if they are too few or many."""
        count, rest = divmod(self.header.nbytes, LENGTH.itemsize)
        if rest or not least <= count <= most:
            raise CorruptionError(
                f"pack: {self.header.nbytes} bytes of lengths, {least} to {most} items are due"
            )
        return count

    def check(self, number: int, identity: int | None, items: int) -> None:
        """Raise `CorruptionError` unless the trailer agrees with the chunk, and states these."""
        self.trailer.check(self.chunk, self.header, number, identity)
        if self.trailer.rows != items:
            raise CorruptionError(
                f"chunk trailer: {self.trailer.rows} rows are claimed, the pack holds {items}"
            )

    def decode(self) -> Buffer:
        """Return the content of the chunk, which was checked."""
        return Blosc().decode(self.chunk, self.header.nbytes, CHUNK_LIMIT)


def _chunk_bytes(view: memoryview) -> int:
    if len(view) < HEADER_BYTES:
        raise CorruptionError(f"pack: a chunk needs {HEADER_BYTES} bytes, {len(view)} are stored")
    claim = int.from_bytes(view[_CBYTES], "little", signed=True)
    if not HEADER_BYTES <= claim <= len(view):
        raise CorruptionError(f"pack: a chunk claims {claim} bytes, {len(view)} are stored")
    return claim

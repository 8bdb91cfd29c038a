"""The items of a file: where their packs lie, and the commits that change the file.

A new file is written piece by piece under another name: first a header that says that the file is
not finished, then all packs, and last the header, the metadata and the table. A rename makes it
visible. A change is made in place where the file is long enough for that to cost less. New packs
are written behind the end of the file, outside of the journal; those that fit into the room of the
pack that they replace, and the front, are patches of one commit. A new file is made when the table
or the metadata have no room, in stores that cannot patch, and when more than half of the file is
dead: bytes of packs that no entry reaches any more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.checksums import Digest
from ingot.codecs.compressors import Blosc
from ingot.errors import ArgumentError, CorruptionError, IngotError, UnsupportedError
from ingot.formats.bloscpack.header import CHECKSUMS, HEADER_BYTES, LARGEST_CHUNK
from ingot.formats.format import (
    Documents,
    FreeBytes,
    Locations,
    Pack,
    RaggedNode,
    RaggedRequest,
    Splice,
)
from ingot.formats.packs import default_codec, not_blosc
from ingot.formats.varlen.file import VarlenFile
from ingot.formats.varlen.header import VarlenHeader
from ingot.formats.varlen.metadata import (
    PACK_BYTES,
    Reserve,
    VarlenMetadata,
    check_reserve,
)
from ingot.formats.varlen.offsets import NULL, PackTable
from ingot.formats.varlen.packs import VarlenPacks, chunk_bytes
from ingot.schema import RaggedSchema
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Inline,
    Patch,
    Put,
    Store,
    extend,
    put_pieces,
)

__all__ = ["VarlenMap", "create_items", "design_items", "open_items"]

# A mean from which on every item gets a chunk of its own.
_LARGE_ITEM: Final = 16 << 10
# The lengths of so many items are as long as a pack: items may have no bytes.
_PACK_ITEMS: Final = 1 << 14
# Below this size a new file costs less than the journal.
_SMALLEST_IN_PLACE: Final = 1 << 20
# Longer packs are not written twice: they go to the end of the file.
_MOST_PATCHED: Final = 1 << 20
# A room that is longer may hold much that is dead: the chunks say how long they are.
_LONG_ROOM: Final = 1 << 18
# About how many bytes of packs are copied at a time.
_COPIED: Final = 4 << 20
_WRITTEN: Final = 1 << 18
"""The fewest bytes that are written by one call, where there are as many."""
_LEAST_SPARE: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class VarlenMap:
    """The packs of the items in a file; a `fresh` file does not exist yet."""

    store: Store
    path: str
    schema: RaggedSchema
    file: VarlenFile
    fresh: bool = False
    measured: dict[int, int] = field(default_factory=dict, repr=False)
    """The bytes of packs that have a long room, by their numbers, as far as they are known."""

    @property
    def documents(self) -> Documents:
        """No key is a document alone: the packs lie in the same file."""
        return {}

    @property
    def codec(self) -> VarlenPacks:
        """The codec of the packs."""
        codec = self.schema.codec
        assert isinstance(codec, VarlenPacks)
        return codec

    def free_bytes(self) -> FreeBytes:
        """Return how many bytes no entry of the table reaches any more."""
        return FreeBytes(self.file.metadata.dead, 0)

    def bounds(self) -> NDArray[np.int64]:
        """Return the first item of each pack, and the number of items at the end."""
        return self.file.bounds

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie, with their room; an item that is null has no bytes."""
        file = self.file
        starts, lengths = file.table.starts[numbers], file.rooms[numbers]
        long = np.flatnonzero(lengths > _LONG_ROOM)
        if len(long):
            lengths[long] = self._measure(numbers[long])
        null = np.flatnonzero(starts == NULL)
        others = dict.fromkeys(null.tolist(), Inline(b""))
        return Locations((self.path,) * len(numbers), starts, lengths, others)

    def is_current(self, store: Store) -> bool:
        """Return whether `store` has the file in the state that the map was read from."""
        return not self.fresh and self.file.is_current(store, self.path)

    def reopened(self, store: Store) -> "VarlenMap":
        """Return the map of the same items in their current state in `store`."""
        return open_items(store, self.path)

    def rebound(self, store: Store) -> "VarlenMap":
        """Return the same map of another store."""
        return replace(self, store=store)

    def removed(self) -> Commit:
        """Return the commit that removes the file."""
        return Commit(publish=(Delete(self.path),))

    def spliced(self, splices: Sequence[Splice]) -> "tuple[VarlenMap, Commit]":
        """Return the map with other packs, and the commit that stores them."""
        return self._changed(_Sequence.of(self.bounds(), splices), self.schema.attrs)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[VarlenMap, Commit]":
        """Return the map with other attributes."""
        return self._changed(_Sequence.of(self.bounds(), ()), attrs)

    def compacted(self) -> "tuple[VarlenMap, Commit]":
        """Return the map of a new file without dead bytes."""
        sequence = _Sequence.of(self.bounds(), ())
        return self._rewritten(sequence, replace(self.file.metadata, dead=0))

    # Which way a change is made

    def _changed(
        self, sequence: "_Sequence", attrs: Mapping[str, Any]
    ) -> "tuple[VarlenMap, Commit]":
        file = self.file
        # What is written may be null.
        nulls = file.metadata.nulls or bool(sequence.packs)
        metadata = replace(file.metadata, length=sequence.length, nulls=nulls, attrs=attrs)
        in_place = (
            not self.fresh
            and Feature.PATCH in self.store.features
            and file.size >= _SMALLEST_IN_PLACE
            and len(sequence.sources) <= file.table.capacity
        )
        if in_place:
            layout = self._laid_out(sequence)
            metadata = replace(metadata, dead=metadata.dead + layout.dead)
            fits = len(metadata.text()) <= file.header.meta_bytes
            if fits and 2 * metadata.dead <= layout.end:
                return self._patched(sequence, layout, metadata)
        return self._rewritten(sequence, replace(metadata, dead=0))

    def _following(self, file: VarlenFile) -> "VarlenMap":
        codec = replace(self.codec, nulls=file.metadata.nulls)
        schema = replace(self.schema, length=file.length, attrs=file.metadata.attrs, codec=codec)
        return VarlenMap(self.store, self.path, schema, file)

    # In place

    def _laid_out(self, sequence: "_Sequence") -> "_Layout":
        """Return where new packs go: over the ones that they replace, or to the end."""
        file, starts, rooms = self.file, self.file.table.starts, self.file.rooms
        last = int(starts.max(initial=0))
        places = [0] * len(sequence.packs)
        patches: list[tuple[int, Buffer]] = []
        behind: list[Buffer] = []
        end, moved = file.size, list(sequence.gone)
        for old, new in sequence.pairs:
            image, start = sequence.packs[new].data, int(starts[old])
            room = int(rooms[old])
            is_last = start == last
            if not image or start == NULL or len(image) > _MOST_PATCHED:
                moved.append(old)
            elif len(image) <= room:
                places[new] = start
                patches.append((start, image))
            elif is_last:
                places[new] = start
                patches.append((start, memoryview(image)[:room]))
                reserve = self._reserve(len(image))
                behind.append(memoryview(image)[room:])
                behind.append(bytes(reserve))
                end += len(image) - room + reserve
            else:
                moved.append(old)
        for number, pack in enumerate(sequence.packs):
            if pack.data and not places[number]:
                places[number] = end
                reserve = self._reserve(len(pack.data))
                behind += [pack.data, bytes(reserve)]
                end += len(pack.data) + reserve
        gone = np.array([old for old in moved if starts[old] != NULL], np.int64)
        dead = int(self._measure(gone).sum()) if len(gone) else 0
        return _Layout(np.array(places, np.int64), patches, behind, end, dead)

    def _patched(
        self, sequence: "_Sequence", layout: "_Layout", metadata: VarlenMetadata
    ) -> "tuple[VarlenMap, Commit]":
        file = self.file
        starts = sequence.chosen(file.table.starts, layout.places)
        spare = file.table.capacity - len(starts)
        table = PackTable(starts, sequence.firsts if self.codec.packed else None, spare)
        after = VarlenFile.assemble(file.header, metadata, table, layout.end)
        prepare: tuple[Edit, ...] = ()
        behind = [each for each in layout.behind if len(each)]
        if behind:
            prepare = (extend(self.store, self.path, _joined(behind), end=file.size),)
        publish = [
            Patch(self.path, place, data)
            for place, data in (*_differences(file.front, after.front), *layout.patches)
        ]
        return self._following(after), Commit(prepare, tuple(publish))

    # A new file

    def _rewritten(
        self, sequence: "_Sequence", metadata: VarlenMetadata
    ) -> "tuple[VarlenMap, Commit]":
        file, count = self.file, len(sequence.sources)
        spare = file.table.spare if self.fresh else file.table.capacity - count
        if spare < 0:
            spare = max(count, _LEAST_SPARE)
        firsts = sequence.firsts if self.codec.packed else None
        header = replace(file.header, meta_bytes=0)
        empty = PackTable(np.zeros(count, np.int64), firsts, spare)
        planned = VarlenFile.assemble(header, metadata, empty, 0)
        starts: list[int] = []
        made: list[VarlenFile] = []

        def pieces() -> Iterator[Buffer]:
            yield planned.unfinished()
            place = planned.begin
            for image in self._images(sequence):
                starts.append(place if len(image) else NULL)
                yield image
                place += len(image)
                reserve = self._reserve(len(image))
                if reserve and len(image):
                    yield bytes(reserve)
                    place += reserve
            table = PackTable(np.array(starts, np.int64), firsts, spare)
            made.append(VarlenFile.assemble(header, metadata, table, place))

        edit = put_pieces(self.store, self.path, _joined(pieces()), head=lambda: made[0].front)
        return self._following(made[0]), Commit(publish=(edit,))

    def _images(self, sequence: "_Sequence") -> Iterator[Buffer]:
        """Yield the packs of a new file in their order; old ones as they are stored."""
        sources, at = sequence.sources, 0
        while at < len(sources):
            source = int(sources[at])
            if source < 0:
                yield sequence.packs[-1 - source].data
                at += 1
                continue
            # Rooms say about how many packs are read at once.
            until = at + 1
            total = int(self.file.rooms[source])
            while until < len(sources) and sources[until] >= 0:
                total += int(self.file.rooms[sources[until]])
                if total > _COPIED:
                    break
                until += 1
            yield from self._copied(sources[at:until])
            at = until

    def _copied(self, numbers: NDArray[np.int64]) -> Iterator[Buffer]:
        located = list(self.locate(numbers))
        extents = [each for each in located if isinstance(each, Extent)]
        read = iter(self.store.read(extents))
        for number, location in zip(numbers.tolist(), located, strict=True):
            if not isinstance(location, Extent):
                yield b""
                continue
            data = next(read)
            try:
                if data is None:
                    raise CorruptionError(f"{self.path}: it is gone")
                yield memoryview(data)[: self.codec.measure(data)]
            except IngotError as error:
                error.add_note(f"in pack {number} of {self.path!r} of {self.store.location}")
                raise

    # Sizes

    def _reserve(self, length: int) -> int:
        reserve = self.file.metadata.reserve
        return int(reserve * length) if isinstance(reserve, float) else reserve

    def _measure(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the bytes of packs, which the headers of their chunks say."""
        known, file = self.measured, self.file
        wanted = [number for number in numbers.tolist() if number not in known]
        ends = file.table.starts[wanted]
        extra = CHECKSUMS[self.codec.checksum]
        for _ in range(2 if self.codec.packed else 1):
            extents = [Extent(self.path, place, HEADER_BYTES) for place in ends.tolist()]
            claims = [chunk_bytes(head or b"") for head in self.store.read(extents)]
            ends = ends + np.array(claims, np.int64) + extra
        for number, end in zip(wanted, ends.tolist(), strict=True):
            length = end - int(file.table.starts[number])
            if length > file.rooms[number]:
                raise CorruptionError(
                    f"{self.path}: pack {number} claims {length} bytes, "
                    f"its room has {file.rooms[number]}"
                )
            known[number] = length
        return np.array([known[number] for number in numbers.tolist()], np.int64)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where new packs go, in a file that stays."""

    places: NDArray[np.int64]
    """The place of each new pack; `NULL` for an item that is null."""
    patches: list[tuple[int, Buffer]]
    behind: list[Buffer]
    """What is written behind the end of the file."""
    end: int
    """The bytes of the file after the change."""
    dead: int
    """The bytes that no entry will reach any more."""


@dataclass(frozen=True, slots=True)
class _Sequence:
    """The packs after a change: old ones by their numbers, new ones by -1 minus theirs."""

    sources: NDArray[np.int64]
    firsts: NDArray[np.int64]
    length: int
    packs: list[Pack]
    pairs: list[tuple[int, int]]
    """Old packs and the new ones that take their places."""
    gone: list[int]
    """Old packs without a successor."""

    @classmethod
    def of(cls, bounds: NDArray[np.int64], splices: Sequence[Splice]) -> "_Sequence":
        """Return the packs after splices, which ascend and do not overlap."""
        parts: list[NDArray[np.int64]] = []
        packs: list[Pack] = []
        pairs: list[tuple[int, int]] = []
        gone: list[int] = []
        at, count = 0, len(bounds) - 1
        for start, stop, new in splices:
            parts.append(np.arange(at, start))
            first = len(packs)
            packs += new
            parts.append(-1 - np.arange(first, len(packs)))
            pairs += zip(range(start, stop), range(first, len(packs)), strict=False)
            gone += range(min(stop, start + len(new)), stop)
            at = stop
        parts.append(np.arange(at, count))
        sources = np.concatenate(parts)
        items = np.array([pack.items for pack in packs], np.int64)
        counts = _chosen(sources, np.diff(bounds), items)
        ends = np.cumsum(counts)
        length = int(ends[-1]) if len(ends) else 0
        return cls(sources, ends - counts, length, packs, pairs, gone)

    def chosen(self, old: NDArray[np.int64], new: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a value for each pack, given those of old packs and those of new ones."""
        return _chosen(self.sources, old, new)


def _chosen(
    sources: NDArray[np.int64], old: NDArray[np.int64], new: NDArray[np.int64]
) -> NDArray[np.int64]:
    found = np.empty(len(sources), np.int64)
    is_old = sources >= 0
    found[is_old] = old[sources[is_old]]
    found[~is_old] = new[-1 - sources[~is_old]]
    return found


def _joined(pieces: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield the same bytes in pieces that are long enough to be written by a call for each."""
    held: list[Buffer] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= _WRITTEN:
            yield held[0] if len(held) == 1 else b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _differences(old: bytes, new: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the header, and what else differs in the front of a file, as patches."""
    yield 0, new[:HEADER_BYTES]
    before = np.frombuffer(old, np.uint8)[HEADER_BYTES:]
    after = np.frombuffer(new, np.uint8)[HEADER_BYTES:]
    # Places are wide apart where metadata and the end of the table differ.
    places = np.flatnonzero(before != after)
    for run in np.split(places, np.flatnonzero(np.diff(places) > HEADER_BYTES) + 1):
        if len(run):
            start, stop = HEADER_BYTES + int(run[0]), HEADER_BYTES + int(run[-1]) + 1
            yield start, new[start:stop]


def open_items(store: Store, path: str) -> VarlenMap:
    """Return the items in a file."""
    file = VarlenFile.read(store, path)
    metadata, header = file.metadata, file.header
    codec = VarlenPacks(metadata.codec, header.checksum, header.packed, metadata.nulls)
    schema = _schema(file.length, metadata, codec)
    return VarlenMap(store, path, schema, file)


def design_items(
    request: RaggedRequest,
    *,
    packed: bool | None = None,
    checksum: str | bool | None = "crc32",
    pack_bytes: int = PACK_BYTES,
    reserve: Reserve = 0,
    slots: int = 0,
) -> RaggedSchema:
    """Return the layout of new items.

    >>> from ingot.ragged_array import UTF8
    >>> design_items(RaggedRequest(5, UTF8, 100_000.0)).codec.packed
    False
    """
    check_reserve(reserve)
    if type(slots) is not int or slots < 0:
        raise ArgumentError(f"slots is {slots!r}, not a number from 0 on")
    if type(pack_bytes) is not int or not 1 <= pack_bytes <= LARGEST_CHUNK:
        raise ArgumentError(f"pack_bytes is {pack_bytes!r}, not a number up to {LARGEST_CHUNK}")
    if packed is None:
        packed = request.item_bytes is None or request.item_bytes < _LARGE_ITEM
    codec = VarlenPacks(_blosc(request), _checksum(request, checksum), bool(packed))
    metadata = VarlenMetadata(
        request.kind, request.length, True, codec.blosc, pack_bytes, reserve, attrs=request.attrs
    )
    metadata.text()  # Raises an error for attributes that JSON cannot hold.
    return _schema(request.length, metadata, codec)


def create_items(
    store: Store, schema: RaggedSchema, path: str, *, reserve: Reserve = 0, slots: int = 0
) -> tuple[RaggedNode, Commit]:
    """Return new items, and the commit that makes their file, without packs."""
    if not path:
        raise UnsupportedError("varlen: a file has a name")
    codec, kind = schema.codec, schema.kind
    assert isinstance(codec, VarlenPacks)
    pack_bytes = PACK_BYTES if schema.pack_bytes is None else schema.pack_bytes
    metadata = VarlenMetadata(kind, 0, True, codec.blosc, pack_bytes, reserve, attrs=schema.attrs)
    header = VarlenHeader(
        packed=codec.packed, checksum=codec.checksum, typesize=codec.blosc.typesize
    )
    none = np.zeros(0, np.int64)
    table = PackTable(none, none if codec.packed else None, slots)
    file = VarlenFile.assemble(header, metadata, table, 0)
    made = VarlenMap(store, path, replace(schema, length=0), file, fresh=True)
    return RaggedNode(made), Commit(publish=(Put(path, file.front),))


def _schema(length: int, metadata: VarlenMetadata, codec: VarlenPacks) -> RaggedSchema:
    return RaggedSchema(
        length,
        metadata.kind,
        _PACK_ITEMS if codec.packed else 1,
        codec,
        metadata.attrs,
        regular=False,
        pack_bytes=metadata.pack_bytes if codec.packed else None,
    )


def _blosc(request: RaggedRequest) -> Blosc:
    stages = request.stages
    if stages is None:
        return default_codec(request.kind)
    stages = tuple(stage for stage in stages if not isinstance(stage, Digest))
    if len(stages) > 1 or not all(isinstance(stage, Blosc) for stage in stages):
        raise not_blosc("varlen", stages)
    stage = stages[0] if stages else Blosc(clevel=0)
    assert isinstance(stage, Blosc)
    return stage.bind(1 if request.kind.item is None else request.kind.item.itemsize)


def _checksum(request: RaggedRequest, checksum: str | bool | None) -> str:
    # The codec of other items has their checksum, and may be given for these.
    given = [stage.kind for stage in request.stages or () if isinstance(stage, Digest)]
    if given and checksum == "crc32":
        checksum = given[-1]
    if checksum is True:
        checksum = "crc32"
    if checksum in (None, False):
        checksum = "none"
    if not isinstance(checksum, str) or checksum not in CHECKSUMS:
        raise ArgumentError(f"checksum {checksum!r} is unknown; there is {', '.join(CHECKSUMS)}")
    return checksum

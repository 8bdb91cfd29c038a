"""The arrays of blsk: three documents, and super-chunk files with many chunks each.

This module has the keys of an array (``meta/storage``, ``meta/nrows``, ``meta/attributes``,
``data/__N__.bin``), opens and creates arrays, and orders the edits of a change. Documents are
parsed and packed by `metadata`, files by `chunk_file`, what a slot holds by `slots`.

A new image of a chunk goes where no entry of the index reaches: into free space of the file, or
behind its end. Then the entries change, of all chunks and files in one commit. Chunks are numbered
in C order over the grid, so that growth along the first axis renumbers none. Growth along another
axis makes new files.
"""

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import CHUNK_LIMIT, ChunkSpec, Stage
from ingot.codecs.compressors import Blosc, Blosc2
from ingot.codecs.numeric import TruncatePrecision
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import trailer, yaml
from ingot.formats.addresses import Addresses, SuperChunkPart, SuperChunks
from ingot.formats.bcolz.metadata import BLOCK_BYTES, draw_identity
from ingot.formats.blsk import slots
from ingot.formats.blsk.chunk_file import (
    ABSENT,
    ENTRY_BYTES,
    HEAD_BYTES,
    LARGEST_CAPACITY,
    PACK_SPARE,
    SPARE,
    FreeSpace,
    Head,
    SuperChunk,
    pack_entries,
    slots_begin,
    used_entries,
)
from ingot.formats.blsk.metadata import (
    ATTRIBUTES,
    FILE_NAME,
    NROWS,
    OTHER_STORAGES,
    STORAGE,
    ColumnStorage,
    pack_attributes,
    pack_nrows,
    parse_attributes,
    parse_columns,
    parse_nrows,
    unknown_fields,
)
from ingot.formats.blsk.slots import SlotChain
from ingot.formats.folder_table import folder_name
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    FreeBytes,
    Locations,
    Request,
    SlotRun,
)
from ingot.formats.paths import prefix
from ingot.formats.yaml import Document
from ingot.grid import ChunkGrid
from ingot.schema import ArraySchema
from ingot.stores.store import (
    Buffer,
    Commit,
    Constant,
    Delete,
    Edit,
    Extent,
    Feature,
    Patch,
    Piece,
    Put,
    Store,
    extend,
    is_staged,
    put_pieces,
)

__all__ = [
    "BlskMap",
    "DatasetDocuments",
    "capacity_of",
    "check_layout",
    "create_array",
    "design",
    "fresh",
    "numbers_of",
    "open_array",
    "other_keys",
    "storage_name",
    "stored_as",
]

_MOST_SPARE: Final = 10
_LEAST_FILE: Final = 16 << 20
_MOST_FILE: Final = 256 << 20
_CHUNK_BYTES: Final = 256 << 10
_ROWS_BYTES: Final = 1 << 20
"""Of one axis, blocks are read by themselves, and few chunks have few trailers and zone maps."""
_FEW_FILES: Final = 8
"""So many files are found faster one by one than by a list of all."""
_FEW_CHUNKS: Final = 4096
"""Of so many chunks the index is 32 KiB long, which is read at once."""
_LARGE_CHUNK: Final = 16 << 20
_LEAST_DEAD: Final = 1 << 20
"""A file with fewer free bytes is never written anew to get rid of them."""


@dataclass(slots=True)
class _KnownFiles:
    """The files of an array whose index was read, by their number; None for an absent file."""

    files: dict[int, SuperChunk | None] = field(default_factory=dict)
    lengths: dict[int, NDArray[np.int64]] = field(default_factory=dict)
    """How many bytes the images of all entries have, of files that were changed before."""
    slots: dict[int, native.SlotFile] = field(default_factory=dict)
    """The files that the kernel changes by itself, as it knows them."""
    fresh: bool = False
    """Whether the array does not exist yet: no file of the store is one of its own."""
    complete: bool = False
    """Whether the file in front of absent ones is known to hold as many chunks as it should."""
    following: "_KnownFiles | None" = None
    """The same after the commit that was made last, and is not applied yet."""


@dataclass(frozen=True, slots=True, eq=False)
class BlskMap:
    """The chunks of one array, many in each file."""

    store: Store
    path: str
    folder: str
    """The folder of the files."""
    storage: ColumnStorage
    schema: ArraySchema
    found: Mapping[str, bytes | None] = field(repr=False)
    """The documents, by their names."""
    column: tuple[str, ...] = ()
    """The path of the column, if the array is one of a table."""
    spare: float = SPARE
    kept: _KnownFiles = field(default_factory=_KnownFiles, repr=False)
    before: "BlskMap | None" = field(default=None, repr=False)
    """The map of the same array in another shape, whose files are still those of the store."""
    template: ClassVar[None] = None

    @property
    def documents(self) -> Documents:
        """The documents of the array, by key."""
        start = prefix(self.path)
        return {start + name: data for name, data in self.found.items()}

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields of ``meta/storage`` that blsk does not define; a table has its own."""
        return {} if self.column else unknown_fields(self._storage_document())

    def annotated(self, fields: Mapping[str, Any]) -> Commit:
        """Return the commit that stores ``meta/storage`` with such fields."""
        document = self._storage_document()
        changed = document.changed({**document.values, **fields})
        return Commit(publish=(Put(prefix(self.path) + storage_name(self.found), changed.text),))

    def _storage_document(self) -> Document:
        name = storage_name(self.found)
        return Document.parse(self.found[name] or b"", name)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: each begins its slot, and ends where its header says."""
        if len(coords) == 1:
            return self._locate_one(_number(coords[0].tolist(), self.schema.grid.counts))
        numbers = numbers_of(coords, self.schema.grid)
        files = numbers // self.storage.capacity
        self._load(np.unique(files).tolist())
        keys: list[str] = []
        starts = np.zeros(len(numbers), np.int64)
        lengths = np.zeros(len(numbers), np.int64)
        rooms: dict[int, NDArray[np.int64]] = {}
        entries = numbers % self.storage.capacity
        for place, (number, entry) in enumerate(zip(files.tolist(), entries.tolist(), strict=True)):
            file = self.kept.files[number]
            start = ABSENT if file is None else int(file.offsets[entry])
            if file is None or start == ABSENT:
                keys.append("")
                continue
            if number not in rooms:
                rooms[number] = self._rooms(file)
            keys.append(file.key)
            starts[place], lengths[place] = start, rooms[number][entry]
        others = {place: Constant(self.schema.fill) for place, key in enumerate(keys) if not key}
        return Locations(tuple(keys), starts, lengths, others)

    def _locate_one(self, number: int) -> Locations:
        number, entry = divmod(number, self.storage.capacity)
        file = self._loaded(number)
        start = ABSENT if file is None else int(file.offsets[entry])
        if file is None or start == ABSENT:
            return Locations(("",), others={0: Constant(self.schema.fill)})
        room = file.room(entry) if file.head.trailers else int(self._lengths(file)[entry])
        return Locations((file.key,), np.array([start]), np.array([room]))

    def addresses(self) -> Addresses:
        """Return where all chunks lie; the kernel reads the indexes when it needs them."""
        return SuperChunks((self.part(0),))

    def part(self, first: int) -> SuperChunkPart:
        """Return the files for the kernel, as part of an array in which chunk 0 is `first`."""
        self._check_end()
        return SuperChunkPart(
            first, self._stored_count(), f"{self.folder}__", "__.bin", self.storage.capacity
        )

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks, by their numbers; b"" for those that have none."""
        if len(self.schema.shape) != 1:
            return [b""] * len(numbers)
        located = self.locate(np.asarray(numbers, np.int64).reshape(-1, 1))
        stored = [place for place, each in enumerate(located) if isinstance(each, Extent)]
        extents = [each for each in located if isinstance(each, Extent)]
        zones = [b""] * len(numbers)
        for place, data in zip(stored, self.store.read(extents), strict=True):
            number = int(numbers[place])
            try:
                zones[place] = self._chain.zone_in(data or b"", number)
            except IngotError as error:
                error.add_note(f"in chunk {number}, key {located.keys[place]!r}")
                raise
        return zones

    @property
    def _chain(self) -> SlotChain:
        chain = self.schema.chain
        assert isinstance(chain, SlotChain)
        return chain

    def renewed(self) -> "BlskMap":
        """Return the map of a later state with the same documents: this one, if it is unread."""
        kept = self.kept
        unread = self.before is None and not (kept.files or kept.slots or kept.fresh)
        return self if unread else replace(self, kept=_KnownFiles(), before=None)

    def reopened(self, store: Store) -> "BlskMap":
        """Return the map of the same array in its current state in `store`."""
        documents = DatasetDocuments.read(store, self.path)
        if self.column not in documents.columns:
            raise NotFoundError(f"{store.location}: no column {'.'.join(self.column)!r}")
        return replace(documents.chunks(store, self.column), spare=self.spare)

    def rebound(self, store: Store) -> "BlskMap":
        """Return the map of the same array in another store, which holds the same bytes."""
        return replace(self, store=store, kept=_KnownFiles(fresh=self.kept.fresh), before=None)

    def relocated(self) -> "BlskMap":
        """Return the map to use once the commit of the last change is applied."""
        following, self.kept.following = self.kept.following, None
        return replace(self, kept=following or _KnownFiles(), before=None)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        return self.stage_each(sorted(encoded.items()))

    def stage_each(self, encoded: Iterable[tuple[Coords, Buffer | None]]) -> Commit:
        """Return the commit that stores chunks, which are given in the order of their numbers."""
        self._warn_of_truncate()
        capacity, counts = self.storage.capacity, self.schema.grid.counts
        numbered: Iterator[tuple[int, Buffer | None]] = (
            (_number(coords, counts), data) for coords, data in encoded
        )
        renumbered = self.before is not None and self.before.schema.grid.counts[1:] != counts[1:]
        if self.before is not None and renumbered:
            self.kept.following = None
            return Commit(publish=tuple(self._renumbered(self.before, dict(numbered))))
        if self.before is not None:
            removed = self._outside(self.before)
            numbered = iter(sorted({**removed, **dict(numbered)}.items()))
        return self._staged(
            (number, images, None) for number, images in _by_file(numbered, capacity)
        )

    def stage_slots(self, run: SlotRun) -> Commit:
        """Return the commit that stores chunks; they are written at once, where nothing reaches."""
        self._warn_of_truncate()
        capacity = self.storage.capacity
        erased: dict[int, dict[int, Buffer | None]] = {}
        if self.before is not None:
            for chunk in set(self._outside(self.before)).difference(run.numbers.tolist()):
                erased.setdefault(chunk // capacity, {})[chunk % capacity] = None
        files = sorted({*np.unique(run.numbers // capacity).tolist(), *erased})
        edges = np.searchsorted(run.numbers, [[n * capacity, (n + 1) * capacity] for n in files])
        pieces = [
            _SlotPiece(run, slice(first, last), number * capacity, self.spare)
            for number, (first, last) in zip(files, edges.tolist(), strict=True)
        ]
        return self._staged(
            (
                number,
                erased.get(number, {}).items(),
                piece if piece.part.stop > piece.part.start else None,
            )
            for number, piece in zip(files, pieces, strict=True)
        )

    def slot_file(self, number: int) -> native.SlotFile | None:
        """Return the file of a chunk, in which the kernel changes the chunk by itself.

        None where a commit has to change it: chunks need a warning, files have no trailers or must
        be made anew, or an index takes longer to compare than Python does.
        """
        storage, kept = self.storage, self.kept
        part = number // storage.capacity
        known = kept.slots.get(part)
        if known is None:
            usual = storage.truncate != -1 and storage.kind is None and self.before is None
            if not usual or kept.fresh or storage.capacity > _FEW_CHUNKS or self._is_large():
                return None
            file = self._loaded(part)
            if file is None or not file.head.trailers:
                return None
            lengths = kept.lengths[part] if part in kept.lengths else self._lengths(file)
            first = part * storage.capacity
            known = native.make_slot_file(file.key, first, file.pack(), lengths, file.size)
            if known is None:
                return None
            kept.slots[part] = known
        free = known.free()
        return None if free is None or free[0] > max(_LEAST_DEAD, free[1] // 2) else known

    def switched(self, number: int) -> "BlskMap":
        """Return the map of the state after the kernel has changed a chunk in its `slot_file`."""
        before, part = self.kept, number // self.storage.capacity
        kept = _KnownFiles(slots=before.slots, complete=before.complete)
        if before.files:
            # A reader in another thread may have loaded the file, as it was, meanwhile.
            kept.files = {key: file for key, file in before.files.items() if key != part}
            kept.lengths = {key: each for key, each in before.lengths.items() if key != part}
        return replace(self, kept=kept)

    def _is_large(self) -> bool:
        """Return whether a chunk takes so long to encode that Ctrl-C must end it."""
        return math.prod(self.schema.chunks) * self.schema.dtype.itemsize > _LARGE_CHUNK

    def _recall(self, number: int) -> None:
        """Ask the kernel what it knows of a file that it changes by itself."""
        kept = self.kept
        slots = kept.slots.get(number)
        if slots is None:
            return
        known = slots.known()
        if known is None:
            # Another program has changed it.
            for each in (kept.slots, kept.files, kept.lengths):
                each.pop(number, None)
        elif number not in kept.files:
            index, lengths, size = known
            file = SuperChunk.parse(index, size, self.storage.capacity, self._key(number))
            kept.files[number] = file
            kept.lengths[number] = np.frombuffer(lengths, np.int64)

    def _warn_of_truncate(self) -> None:
        if self.storage.truncate == -1:
            warnings.warn(
                f"{prefix(self.path)}{storage_name(self.found)}: truncate does not say how many "
                "bits floats keep; new chunks keep all of them",
                stacklevel=3,
            )

    def _staged(self, files: "Iterable[_FileChange]") -> Commit:
        """Return the commit that changes files, and note what they are then."""
        prepare: list[Edit] = []
        publish: list[Edit] = []
        self.kept.following = None
        after = _KnownFiles(dict(self.kept.files), dict(self.kept.lengths))
        after.complete = self.kept.complete
        visited = set()
        for number, images, piece in files:
            visited.add(number)
            file = self._current(number)
            if file is None:
                edit = self._new_file(number, images, after, piece)
                publish += () if edit is None else (edit,)
            else:
                early, late = self._changed(file, number, dict(images), after, piece)
                prepare += early
                publish += late
        for number in self._ends() - visited:
            # It has another number of chunks, though none of those that are stored changes.
            file = self._current(number)
            if file is not None:
                publish += self._changed(file, number, {}, after)[1]
        if self.kept.fresh:
            # Whoever reads next reads what was staged.
            self.kept.files.clear()
            self.kept.fresh = False
        changed = visited | self._ends()
        after.slots = {key: file for key, file in self.kept.slots.items() if key not in changed}
        self.kept.following = after
        return Commit(tuple(prepare), tuple(publish))

    def resized(self, shape: tuple[int, ...]) -> "tuple[BlskMap, Commit]":
        """Return the map of another shape, and the commit that makes it so.

        The commit of `stage`, which must follow, changes the files.
        """
        old = self.schema
        if len(shape) != len(old.shape):
            raise UnsupportedError(f"blsk: {list(old.shape)} cannot become {list(shape)}")
        start = prefix(self.path)
        storage = replace(self.storage, shape=shape)
        length = shape[0] if shape else 1
        schema = storage.schema(length, old.attrs)
        found = {**self.found, NROWS: pack_nrows(length)}
        publish: list[Edit] = []
        if shape[1:] != old.shape[1:] and self.column:
            raise UnsupportedError("blsk: columns of a table change their length only")
        if shape[1:] != old.shape[1:]:
            name = storage_name(self.found)
            document = Document.parse(_needed(self.found[name]), start + name)
            text = document.changed({**document.values, "shape": list(shape)}).text
            found[name] = text
            publish.append(Put(start + name, text))
        publish.append(Put(start + NROWS, _needed(found[NROWS])))
        before = self if self.before is None else self.before
        self.kept.following = None
        after = replace(self, storage=storage, schema=schema, found=found, before=before)
        return after, Commit(publish=tuple(publish))

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BlskMap, Commit]":
        """Return the map with other attributes."""
        if self.column:
            raise UnsupportedError("blsk: a table has attributes, its columns have none")
        key = prefix(self.path) + ATTRIBUTES
        data = pack_attributes(attrs, self.found.get(ATTRIBUTES), key)
        schema = self.schema.described(parse_attributes(data, key))
        kept = _KnownFiles(self.kept.files, self.kept.lengths, fresh=self.kept.fresh)
        found = {**self.found, ATTRIBUTES: data}
        after = replace(self, schema=schema, found=found, kept=kept)
        return after, Commit(publish=(Put(key, data),))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        start = prefix(self.path)
        # Without the number of rows it is no dataset, so that goes first.
        names = {NROWS: None, **self.found}
        documents = tuple(Delete(start + name) for name in names)
        return Commit(publish=documents, cleanup=tuple(map(Delete, self.file_keys())))

    def file_keys(self) -> Iterator[str]:
        """Yield the keys of all files."""
        yield from map(self._key, self._stored_files())

    def free_bytes(self) -> FreeBytes:
        """Return how many bytes of the files hold nothing.

        Spare is the room behind a chunk, up to what a new chunk gets; all else is dead.
        """
        found = [self._free_in(number) for number in self._stored_files()]
        return FreeBytes(sum(each.dead for each in found), sum(each.spare for each in found))

    def compacted(self) -> Commit:
        """Return the commit that makes files with dead bytes anew."""
        edits: list[Edit] = []
        self.kept.following = None
        after = _KnownFiles(dict(self.kept.files))
        for number in self._stored_files():
            file = self._current(number)
            if file is not None and self._free_in(number).dead:
                edits.append(self._rewritten(file, number, {}, after))
        self.kept.following = after
        return Commit(publish=tuple(edits))

    def other_files(self) -> list[str]:
        """Return the keys of files in ``meta`` that are none of the documents."""
        return [] if self.column else other_keys(self.store, self.path)

    def image_of(self, number: int, stated: slots.Stated) -> bytes | None:
        """Return the image of a chunk as that of another number and array; None if it is absent."""
        part, entry = divmod(number, self.storage.capacity)
        file = self._loaded(part)
        if file is None or file.offsets[entry] == ABSENT:
            return None
        if part not in self.kept.lengths:
            self.kept.lengths[part] = self._lengths(file)
        image = self._image(file, entry, int(self.kept.lengths[part][entry]), number)
        own = number, self.storage.identity
        return slots.renumbered(image, own, stated, self.storage.slot_chunks)

    def _free_in(self, number: int) -> FreeBytes:
        file = self._loaded(number)
        if file is None:
            return FreeBytes(0, 0)
        return FreeBytes(*file.free_bytes(self._lengths(file), self.spare))

    # Files

    def _loaded(self, number: int) -> SuperChunk | None:
        self._load([number])
        return self.kept.files[number]

    def _key(self, number: int) -> str:
        return f"{self.folder}__{number + 1}__.bin"

    def _file_count(self) -> int:
        return -(-self.schema.grid.chunk_count // self.storage.capacity)

    def _stored_files(self, among: range | None = None) -> list[int]:
        """Return the numbers of the files that exist, of all or of some."""
        among = range(self._file_count()) if among is None else among
        if len(among) <= _FEW_FILES or Feature.LIST not in self.store.features:
            found = self.store.read([Extent(self._key(number), 0, 1) for number in among])
            return [number for number, data in zip(among, found, strict=True) if data is not None]
        # The grid may have far more files than exist.
        named = map(FILE_NAME.fullmatch, self.store.names(self.folder))
        numbers = (int(match[1]) - 1 for match in named if match is not None)
        return sorted(number for number in numbers if number in among)

    def _current(self, number: int) -> SuperChunk | None:
        """Return a file as the store has it now: another program may have changed it."""
        self._recall(number)
        known = self.kept.files.get(number)
        if known is None or self.kept.fresh:
            return self._loaded(number)
        # What lies behind the end that is known is not reached, and is overwritten.
        (data,) = self.store.read([Extent(known.key, 0, slots_begin(known.capacity))])
        if data != known.pack():
            del self.kept.files[number]
            self.kept.lengths.pop(number, None)
            self.kept.slots.pop(number, None)
        return self._loaded(number)

    def _load(self, numbers: Sequence[int]) -> None:
        """Read the indexes of files that were not read yet."""
        for number in numbers:
            self._recall(number)
        missing = [number for number in numbers if number not in self.kept.files]
        if self.kept.fresh:
            self.kept.files.update(dict.fromkeys(missing))
        if self.kept.fresh or not missing:
            return
        end = slots_begin(self.storage.capacity)
        keys = [self._key(number) for number in missing]
        found = self.store.read([Extent(key, 0, end) for key in keys])
        for number, key, data in zip(missing, keys, found, strict=True):
            if data is None:
                self.kept.files[number] = None
                continue
            try:
                size = self.store.size(key)
                file = SuperChunk.parse(data, size or 0, self.storage.capacity, key)
                self._check_count(key, file.head, number)
                if file.head.typesize != self.schema.dtype.itemsize:
                    raise CorruptionError(
                        f"{key}: typesize is {file.head.typesize}, "
                        f"items of {self.schema.dtype} have {self.schema.dtype.itemsize} bytes"
                    )
                if self.storage.kind is not None and not file.head.trailers:
                    raise CorruptionError(f"{key}: its packs have no trailers")
            except IngotError as error:
                error.add_note(f"in {self.store.location}")
                raise
            self.kept.files[number] = file
        absent = [number for number in missing if number and self.kept.files[number] is None]
        if absent and not self.kept.complete:
            # The last file in front of an absent one tells whether so many chunks were ever stored.
            self._load(self._stored_files(range(absent[-1]))[-1:])
            self.kept.complete = True

    def _check_count(self, key: str, head: Head, number: int) -> None:
        """Raise `CorruptionError` where the array has more chunks than the head of a file counts.

        The rows of an append are stored before their number is, never after it.
        """
        due = _count_in(number, self._stored_count(), self.storage.capacity)
        if head.nchunks < due:
            raise CorruptionError(
                f"{key}: nchunks is {head.nchunks}, by {prefix(self.path)}{NROWS} and "
                f"the shape of chunks it holds {due}"
            )

    def _stored_count(self) -> int:
        """Return how many chunks the array has in the state that is stored."""
        return (self if self.before is None else self.before).schema.grid.chunk_count

    def _check_end(self) -> None:
        """Raise `CorruptionError` where fewer chunks were ever stored than the array has."""
        last = -(-self._stored_count() // self.storage.capacity) - 1
        if last < 0 or self.kept.fresh:
            return
        (head,) = self.store.read([Extent(self._key(last), 0, HEAD_BYTES)])
        if head is None:
            # The last file that exists tells whether so many chunks were ever stored.
            stored = self._stored_files(range(last))
            if not stored:
                return
            last = stored[-1]
            (head,) = self.store.read([Extent(self._key(last), 0, HEAD_BYTES)])
        key = self._key(last)
        self._check_count(key, Head.parse(head or b"", key), last)

    def _rooms(self, file: SuperChunk) -> NDArray[np.int64]:
        """Return for each entry how many bytes from its offset on may belong to it."""
        # Without trailers, a chunk has nothing behind it but spare bytes.
        return file.rooms() if file.head.trailers else self._lengths(file)

    def _lengths(self, file: SuperChunk) -> NDArray[np.int64]:
        """Return for each entry how many bytes its image has, without spare bytes."""
        used, rooms = file.used, file.rooms()
        ends = file.offsets[used]
        lengths = np.zeros(file.capacity, np.int64)
        for _ in range(self.storage.slot_chunks):
            heads = self.store.read([Extent(file.key, end, HEAD_BYTES) for end in ends.tolist()])
            ends = ends + np.array([slots.chunk_bytes(data or b"") for data in heads], np.int64)
            lengths[used] = ends - file.offsets[used]
            if file.head.trailers and not (lengths > rooms).any():
                ends = ends + self._trailer_bytes(file.key, ends)
                lengths[used] = ends - file.offsets[used]
            if (lengths > rooms).any():
                break
        if (lengths > rooms).any():
            entry = int(np.flatnonzero(lengths > rooms)[0])
            raise CorruptionError(f"{file.key}: chunk {entry} is larger than its slot")
        return lengths

    def _trailer_bytes(self, key: str, starts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many bytes the trailers claim that begin at some places of a file."""
        found = self.store.read([Extent(key, at, trailer.LEAST_BYTES) for at in starts.tolist()])
        return np.array([trailer.claimed_size(data or b"") for data in found], np.int64)

    # Changes

    def _ends(self) -> set[int]:
        """Return the numbers of the files that hold the last chunk, before and after a resize."""
        if self.before is None:
            return set()
        counts = (each.schema.grid.chunk_count for each in (self, self.before))
        return {(count - 1) // self.storage.capacity for count in counts if count}

    def _changed(
        self,
        file: SuperChunk,
        number: int,
        images: Mapping[int, Buffer | None],
        after: _KnownFiles,
        piece: "_SlotPiece | None" = None,
    ) -> tuple[list[Edit], list[Edit]]:
        """Return the edits that store images in a file, before and with the switch to them.

        `after` gets the file as it is then. A `piece` writes further images itself.
        """
        if Feature.PATCH in self.store.features:
            return self._patched(file, number, images, after, piece)
        return [], [self._rewritten(file, number, images, after, piece)]

    def _new_file(
        self,
        number: int,
        images: Iterable[tuple[int, Buffer | None]],
        after: _KnownFiles,
        piece: "_SlotPiece | None" = None,
    ) -> Edit | None:
        """Return the edit that makes a file; None where no chunk is stored."""
        stored = ((entry, data) for entry, data in images if data is not None)
        first = next(stored, None)
        after.lengths.pop(number, None)
        if first is None and piece is None:
            after.files[number] = None
            return None
        after.files.pop(number, None)
        offsets = np.full(self.storage.capacity, ABSENT, np.int64)
        begin = slots_begin(self.storage.capacity)
        end = begin

        def pieces() -> Iterator[Piece]:
            nonlocal end
            yield bytes(begin)
            if piece is not None:
                yield piece
                offsets[piece.entries] = piece.starts
                end = piece.end
            for entry, data in () if first is None else _chained(first, stored):
                spare = int(len(data) * self.spare)
                offsets[entry] = end
                end += len(data) + spare
                yield data
                if spare:
                    yield bytes(spare)

        def head() -> bytes:
            if (offsets == ABSENT).all():
                raise _NothingStored
            count = _count_in(number, self.schema.grid.chunk_count, self.storage.capacity)
            head = Head(self.schema.dtype.itemsize, max(count, used_entries(offsets)))
            return head.pack() + pack_entries(offsets)

        try:
            return put_pieces(self.store, self._key(number), pieces(), head=head)
        except _NothingStored:
            after.files[number] = None
            return None

    def _patched(
        self,
        file: SuperChunk,
        number: int,
        images: Mapping[int, Buffer | None],
        following: _KnownFiles,
        piece: "_SlotPiece | None",
    ) -> tuple[list[Edit], list[Edit]]:
        """Return the edits that put images into parts of a file that no image uses."""
        lengths = self.kept.lengths.get(number)
        if lengths is None:
            lengths = self.kept.lengths[number] = self._lengths(file)
        used = file.used
        begin = slots_begin(file.capacity)
        space = FreeSpace(file.offsets[used], lengths[used], begin=begin, end=file.size)
        # Where most images change, the new ones are likely to fill as many free bytes: a file that
        # is changed as a whole, again and again, keeps its two halves.
        due = set(images) if piece is None else set(images) | piece.due
        changing = int(lengths[list(due)].sum())
        dead = space.dead - (changing if 2 * changing > int(lengths[used].sum()) else 0)
        if dead > max(_LEAST_DEAD, (file.size - begin) // 2):
            return [], [self._rewritten(file, number, images, following, piece)]
        starts: dict[int, int] = {}
        sizes: dict[int, int] = {}
        prepare: list[Edit] = []
        publish: list[Edit] = []
        behind: list[Buffer] = []
        end = file.size
        if piece is not None:
            piece.gaps = space.gaps
            prepare.append(extend(self.store, file.key, [piece], end=end))
            starts.update(zip(piece.entries.tolist(), piece.starts.tolist(), strict=True))
            sizes.update(zip(piece.entries.tolist(), piece.lengths.tolist(), strict=True))
            end = piece.end
        for entry, data in images.items():
            sizes[entry] = 0 if data is None else len(data)
            if data is None:
                starts[entry] = ABSENT
                continue
            place = space.take(len(data))
            if place is not None:
                prepare.append(Patch(file.key, place, data, free=True))
            else:
                spare = int(len(data) * self.spare)
                place = end
                behind += [data, bytes(spare)]
                end += len(data) + spare
            starts[entry] = place
        if behind:
            prepare.append(extend(self.store, file.key, behind, end=file.size))
        count = _count_in(number, self.schema.grid.chunk_count, file.capacity)
        after = file.changed(list(starts), list(starts.values()), end, count)
        following.lengths.pop(number, None)
        if not len(after.used):
            following.files[number] = None
            return [], [Delete(file.key)]
        following.files[number] = after
        following.lengths[number] = lengths.copy()
        following.lengths[number][list(sizes)] = list(sizes.values())
        if after.head != file.head:
            publish.append(Patch(file.key, 0, after.head.pack()))
        for first, last in _runs(sorted(starts)) if starts else ():
            at = HEAD_BYTES + ENTRY_BYTES * first
            publish.append(Patch(file.key, at, pack_entries(after.offsets[first : last + 1])))
        return prepare, publish

    def _rewritten(
        self,
        file: SuperChunk,
        number: int,
        images: Mapping[int, Buffer | None],
        following: _KnownFiles,
        piece: "_SlotPiece | None" = None,
    ) -> Edit:
        """Return the edit that makes a file anew, with other images and without free space."""
        own = set() if piece is None else piece.due
        entries = sorted({*file.used.tolist(), *images} - own)
        first = number * self.storage.capacity

        def all_images() -> Iterator[tuple[int, Buffer | None]]:
            lengths = self._lengths(file)
            for entry in entries:
                if entry in images:
                    yield entry, images[entry]
                else:
                    yield entry, self._image(file, entry, int(lengths[entry]), first + entry)

        edit = self._new_file(number, all_images(), following, piece)
        return Delete(file.key) if edit is None else edit

    def _image(self, file: SuperChunk, entry: int, length: int, number: int) -> bytes:
        start = int(file.offsets[entry])
        (data,) = self.store.read([Extent(file.key, start, length)])
        if data is None or len(data) != length:
            raise CorruptionError(f"{file.key}: chunk {entry} has {length} bytes at {start}")
        # A file that is written anew has trailers behind all of its chunks.
        return data if file.head.trailers else self._moved(data, number)

    def _moved(self, image: bytes, old: int, new: int | None = None) -> bytes:
        """Return the image of a chunk with another number."""
        identity = self.storage.identity
        number = old if new is None else new
        return slots.renumbered(image, (old, identity), (number, identity))

    def _outside(self, before: "BlskMap") -> dict[int, None]:
        """Return the numbers of stored chunks that lie outside of this shape or that of `before`.

        A writer that knows nothing of the rest of a file may leave chunks behind the last row; they
        must not show when the array grows.
        """
        count = min(before.schema.grid.chunk_count, self.schema.grid.chunk_count)
        capacity = self.storage.capacity
        most = max(before._file_count(), self._file_count())
        numbers = self._stored_files(range(count // capacity, most))
        self._load(numbers)
        found: dict[int, None] = {}
        for number in numbers:
            file = self.kept.files[number]
            used = [] if file is None else file.used.tolist()
            every = (number * capacity + entry for entry in used)
            found.update(dict.fromkeys(each for each in every if each >= count))
        return found

    def _renumbered(self, before: "BlskMap", images: Mapping[int, Buffer | None]) -> list[Edit]:
        """Return the edits that store new images and the chunks that stay, in another grid."""
        old, counts, capacity = before.schema.grid, self.schema.grid.counts, self.storage.capacity
        places: dict[int, int | None] = dict.fromkeys(images)
        files = before._stored_files()
        before._load(files)
        for number in files:
            file = before.kept.files[number]
            for entry in [] if file is None else file.used.tolist():
                coords = np.unravel_index(number * capacity + entry, old.counts)
                if all(int(at) < count for at, count in zip(coords, counts, strict=True)):
                    new = _number(tuple(map(int, coords)), counts)
                    places.setdefault(new, number * capacity + entry)
        lengths: dict[int, NDArray[np.int64]] = {}

        def every() -> Iterator[tuple[int, Buffer | None]]:
            for new, place in sorted(places.items()):
                if place is None:
                    yield new, images[new]
                    continue
                number, entry = divmod(place, capacity)
                file = before.kept.files[number]
                assert file is not None
                if number not in lengths:
                    lengths[number] = before._lengths(file)
                image = before._image(file, entry, int(lengths[number][entry]), place)
                yield new, self._moved(image, place, new)

        edits: list[Edit] = []
        made = set()
        for number, found in _by_file(every(), capacity):
            edit = self._new_file(number, found, _KnownFiles())
            if edit is not None:
                edits.append(edit)
                made.add(number)
        return edits + [Delete(self._key(number)) for number in files if number not in made]


class _NothingStored(Exception):
    """The chunks of a new file hold nothing but the fill value, as the kernel has found."""


@dataclass(slots=True, eq=False)
class _SlotPiece:
    """Chunks of a run that lie in one file, which they write themselves into; see `FilePiece`."""

    run: SlotRun
    part: slice
    first: int
    """The number of the first chunk of the file."""
    spare: float
    gaps: Sequence[tuple[int, int]] = ()
    places: NDArray[np.int64] = field(default_factory=lambda: np.zeros((0, 3), np.int64))
    end: int = 0
    checksum: int | None = None

    def write_to(self, descriptor: int, start: int) -> int:
        """Write the chunks into gaps of a file, or from a place on; return how long it got."""
        written = self.run.write_to(self.part, descriptor, self.gaps, start, self.spare)
        self.places, self.end, self.checksum = written
        return self.end - start

    def __iter__(self) -> Iterator[Buffer]:
        """Raise an error: only the kernel encodes these chunks."""
        raise UnsupportedError("chunks that are encoded into a file are no bytes")

    @property
    def due(self) -> set[int]:
        """The entries that will be written."""
        return set((self.run.numbers[self.part] - self.first).tolist())

    @property
    def entries(self) -> NDArray[np.int64]:
        """The entries that were written."""
        return self.places[:, 0] - self.first

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each lies; `ABSENT` for one of nothing but the fill value."""
        return self.places[:, 1]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many bytes the image of each has."""
        return self.places[:, 2]


_FileChange: TypeAlias = tuple[int, Iterable[tuple[int, Buffer | None]], _SlotPiece | None]
"""The number of a file, the images of entries, and what writes further images itself."""


@dataclass(frozen=True, slots=True)
class DatasetDocuments:
    """The documents of an array or a table: as they are, and what they say."""

    path: str
    found: Mapping[str, bytes | None] = field(repr=False)
    """The documents by their names; one that is absent is None."""
    columns: Mapping[tuple[str, ...], ColumnStorage]
    """How the columns of a table are stored, by their paths; an array has the path ()."""
    length: int
    attrs: Mapping[str, Any]

    @classmethod
    def read(
        cls, store: Store, path: str, found: Mapping[str, bytes | None] | None = None
    ) -> "DatasetDocuments":
        """Return the documents at `path`, of which some may have been read already."""
        names = (STORAGE, NROWS, ATTRIBUTES)
        given = _read(store, path, names) if found is None else found
        known = {name: given.get(name) for name in names}
        if known[STORAGE] is None:
            others = _read(store, path, OTHER_STORAGES)
            known |= {name: data for name, data in others.items() if data is not None}
        try:
            return cls.parse(store, path, known)
        except IngotError as error:
            error.add_note(f"in {store.location}")
            raise

    @classmethod
    def parse(
        cls, store: Store, path: str, found: Mapping[str, bytes | None]
    ) -> "DatasetDocuments":
        """Return what documents say; every claim in them is checked."""
        start = prefix(path)
        name, nrows = storage_name(found), found[NROWS]
        storage = found[name]
        if storage is None and nrows is None:
            raise NotFoundError(f"{store.location}: no {start}{STORAGE}")
        if storage is None or nrows is None:
            lost = name if storage is None else NROWS
            raise CorruptionError(f"{start}{lost} is missing")
        columns = parse_columns(Document.parse(storage, start + name))
        length = parse_nrows(nrows, start + NROWS)
        for column, each in columns.items():
            if column and not each.shape:
                raise FormatError(f"{start}{name}: {'.'.join(column)}: a column needs an axis")
            if not each.shape and length != 1:
                raise CorruptionError(f"{start}{NROWS}: {length} rows, an array without axes has 1")
        attrs = parse_attributes(found[ATTRIBUTES], start + ATTRIBUTES)
        return cls(path, found, columns, length, attrs)

    @property
    def is_array(self) -> bool:
        """Whether this is one array, or one sequence of items, not a table."""
        return () in self.columns

    @property
    def storage(self) -> tuple[str, bytes]:
        """The document that says how the data are stored: its name, and its bytes."""
        name = storage_name(self.found)
        return name, _needed(self.found[name])

    def chunks(self, store: Store, column: tuple[str, ...] = ()) -> "BlskMap":
        """Return the map of a column, or of the array."""
        storage = self.columns[column]
        shape = (self.length, *storage.shape[1:]) if storage.shape else ()
        storage = replace(storage, shape=shape)
        schema = storage.schema(self.length, {} if column else self.attrs)
        parts = ("data", *map(folder_name, column))
        folder = prefix(self.path) + "".join(f"{part}/" for part in parts)
        # The other documents are those of the table.
        found = {NROWS: self.found[NROWS]} if column else self.found
        spare = SPARE if storage.kind is None else PACK_SPARE
        return BlskMap(store, self.path, folder, storage, schema, found, column, spare)


def other_keys(store: Store, path: str) -> list[str]:
    """Return the keys of files in the ``meta`` of a dataset that are none of its documents.

    >>> from ingot.stores import MemoryStore
    >>> other_keys(MemoryStore({"a/meta/nrows": b"0", "a/meta/units": b"m"}), "a")
    ['a/meta/units']
    """
    if Feature.LIST not in store.features:
        return []
    own = {STORAGE, NROWS, ATTRIBUTES, *OTHER_STORAGES}
    names = (f"meta/{name}" for name in store.names(prefix(path) + "meta/"))
    found = (name for name in names if name not in own and not name.endswith("/"))
    return sorted(
        prefix(path) + name for name in found if not is_staged(name.removeprefix("meta/"))
    )


def open_array(
    store: Store, path: str = "", found: Mapping[str, bytes | None] | None = None
) -> BlskMap:
    """Return the array at `path`; `found` are its documents, if they were read already."""
    documents = DatasetDocuments.read(store, path, found)
    found_kind = None if () not in documents.columns else documents.columns[()].kind
    if not documents.is_array or found_kind is not None:
        what = "a table" if found_kind is None else f"items of {found_kind}"
        raise FormatError(f"{prefix(path)}{documents.storage[0]}: it is {what}")
    return documents.chunks(store)


def _read(store: Store, path: str, names: Sequence[str]) -> dict[str, bytes | None]:
    # One byte more than allowed shows that a document is too long.
    extents = [Extent(prefix(path) + name, 0, yaml.LARGEST + 1) for name in names]
    return dict(zip(names, store.read(extents), strict=True))


def storage_name(found: Mapping[str, bytes | None]) -> str:
    """Return the name of the document that says how data are stored."""
    names = (STORAGE, *OTHER_STORAGES)
    return next((name for name in names if found.get(name) is not None), STORAGE)


def design(
    request: Request,
    *,
    order: str = "C",
    superchunksize: int | None = None,
    spare: float | None = None,
) -> ArraySchema:
    """Return the layout of a new array.

    >>> design(Request((10**6, 3), np.dtype("<f8"), np.float64(0))).chunks
    (10922, 3)
    """
    if order not in ("C", "F"):
        raise ArgumentError(f"order is {order!r}, not 'C' or 'F'")
    return _designed(request, order, superchunksize, spare)[1]


def _designed(
    request: Request, order: str, superchunksize: int | None, spare: float | None
) -> tuple[ColumnStorage, ArraySchema]:
    dtype, shape = request.dtype, request.shape
    if dtype.hasobject or dtype.names is not None or not dtype.itemsize:
        raise UnsupportedError(f"blsk: an array of {dtype} cannot be stored")
    chunks = _default_chunks(shape, dtype.itemsize) if request.chunks is None else request.chunks
    size = math.prod(chunks) * dtype.itemsize
    if size > CHUNK_LIMIT:
        raise LimitError(f"chunks of {size} bytes, the limit is {CHUNK_LIMIT}")
    blosc, truncate = _codec(request.stages, ChunkSpec(chunks, dtype))
    if superchunksize is None:
        superchunksize = capacity_of(shape, chunks, size)
    check_layout(superchunksize, spare)
    storage = ColumnStorage(
        dtype, shape, chunks, superchunksize, request.fill, order, blosc, truncate
    )
    return storage, storage.schema(shape[0] if shape else 1, request.attrs)


def check_layout(superchunksize: int, spare: float | None) -> None:
    """Raise `ValueError` for settings that a new dataset cannot have."""
    if spare is not None and not 0 <= spare <= _MOST_SPARE:
        raise ArgumentError(f"spare is {spare}, not from 0 to {_MOST_SPARE}")
    if not 1 <= superchunksize <= LARGEST_CAPACITY:
        raise ArgumentError(f"superchunksize is {superchunksize}, not from 1 to {LARGEST_CAPACITY}")


def stored_as(
    schema: ArraySchema, superchunksize: int | None = None, spare: float | None = None
) -> ColumnStorage:
    """Return how an array of a schema that was designed is stored."""
    request = Request(
        schema.shape, schema.dtype, schema.fill, schema.chunks, schema.codec, schema.attrs
    )
    return _designed(request, schema.order, superchunksize, spare)[0]


def fresh(chunks: BlskMap, spare: float | None = None) -> BlskMap:
    """Return the map of an array that does not exist yet; `spare` unless it has its own."""
    spare = chunks.spare if spare is None else spare
    return replace(chunks, spare=spare, kept=_KnownFiles(fresh=True))


def create_array(
    store: Store,
    schema: ArraySchema,
    path: str = "",
    *,
    superchunksize: int | None = None,
    spare: float | None = None,
) -> tuple[ArrayNode, Commit]:
    """Return a new array, and the commit that creates it, without any chunks."""
    start = prefix(path)
    storage = replace(stored_as(schema, superchunksize, spare), identity=draw_identity())
    document = yaml.pack(storage.document(), start + STORAGE)
    nrows = pack_nrows(schema.shape[0] if schema.shape else 1)
    attributes = pack_attributes(schema.attrs, None, start + ATTRIBUTES)
    found = {STORAGE: document, NROWS: nrows, ATTRIBUTES: attributes}
    documents = DatasetDocuments.parse(store, path, found)
    chunks = fresh(documents.chunks(store), spare)
    edits = tuple(Put(start + name, data) for name, data in found.items())
    return ArrayNode(chunks), Commit(publish=edits)


def _codec(stages: tuple[Stage, ...] | None, spec: ChunkSpec) -> tuple[Blosc | Blosc2, int | None]:
    """Return requested codecs as Blosc and a number of bits; refuse what blsk cannot store."""
    if stages is None:
        return Blosc(blocksize=BLOCK_BYTES).bind(spec.dtype.itemsize), None
    cut = [stage for stage in stages if isinstance(stage, TruncatePrecision)]
    blosc = [stage for stage in stages if isinstance(stage, Blosc | Blosc2)]
    if len(cut) + len(blosc) != len(stages) or max(len(cut), len(blosc)) > 1:
        raise UnsupportedError("blsk: chunks are compressed by Blosc, and floats may be truncated")
    for stage in cut:
        stage.encoded(spec)
    codec = blosc[0] if blosc else Blosc(clevel=0)
    plain = codec.parameters if isinstance(codec, Blosc2) else codec
    if plain.blocksize == 0 and len(spec.shape) == 1:
        # Single rows are read and changed by blocks.
        plain = replace(plain, blocksize=BLOCK_BYTES)
    if isinstance(codec, Blosc2) and codec.delta == "none":
        raise UnsupportedError("blsk: chunks of Blosc 2 are those with delta; use blosc instead")
    if isinstance(codec, Blosc2) and plain.cname == "snappy":
        raise UnsupportedError("blsk: Blosc 2 has no Snappy, which delta would need")
    chosen = replace(codec, parameters=plain) if isinstance(codec, Blosc2) else plain
    return chosen, (cut[0].bits if cut else None)


def _default_chunks(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return chunks of about 256 KiB, long along the last axes; of one axis, of 1 MiB."""
    left = max(1, (_CHUNK_BYTES if len(shape) != 1 else _ROWS_BYTES) // itemsize)
    chunks = []
    for length in reversed(shape[1:]):
        side = max(1, min(length, left))
        chunks.append(side)
        left = max(1, left // side)
    if shape:
        chunks.append(max(1, left))
    return tuple(reversed(chunks))


def capacity_of(shape: tuple[int, ...], chunks: tuple[int, ...], size: int) -> int:
    """Return how many chunks a file has, so that it has 16 to 256 MiB, as far as they go.

    Of small chunks a file has fewer bytes: its index would be longer than all that is stored.
    """
    count = math.prod(-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True))
    wanted = min(_MOST_FILE, max(_LEAST_FILE, count * size // 8))
    most = min(LARGEST_CAPACITY, max(_FEW_CHUNKS, count))
    return max(1, min(most, wanted // max(1, size)))


def _count_in(number: int, count: int, capacity: int) -> int:
    """Return how many of the chunks of an array belong to a file.

    >>> _count_in(0, 7, 5), _count_in(1, 7, 5), _count_in(2, 7, 5)
    (5, 2, 0)
    """
    return max(0, min(capacity, count - number * capacity))


def _number(coords: Sequence[int], counts: Sequence[int]) -> int:
    number = 0
    for at, count in zip(coords, counts, strict=True):
        number = number * count + at
    return number


def numbers_of(coords: NDArray[np.int64], grid: ChunkGrid) -> NDArray[np.int64]:
    """Return the numbers of chunks, in C order over the grid.

    >>> numbers_of(np.array([[1, 2]]), ChunkGrid((4, 6), (2, 2), padded=True)).tolist()
    [5]
    """
    numbers = np.zeros(len(coords), np.int64)
    for axis, count in enumerate(grid.counts):
        numbers = numbers * count + coords[:, axis]
    return numbers


def _by_file(
    numbered: Iterable[tuple[int, Buffer | None]], capacity: int
) -> Iterator[tuple[int, Iterator[tuple[int, Buffer | None]]]]:
    """Yield the number of each file with its entries, which must be used up before the next."""
    rest = iter(numbered)
    ahead = next(rest, None)

    def entries(file: int) -> Iterator[tuple[int, Buffer | None]]:
        nonlocal ahead
        while ahead is not None and ahead[0] // capacity == file:
            number, data = ahead
            ahead = next(rest, None)
            # A file that came twice would be changed twice, each time from the same state.
            if ahead is not None and ahead[0] <= number:
                raise ArgumentError(f"chunk {ahead[0]} is staged after chunk {number}")
            yield number % capacity, data

    while ahead is not None:
        file = ahead[0] // capacity
        yield file, entries(file)
        if ahead is not None and ahead[0] // capacity == file:
            raise FormatError(f"file {file} got fewer chunks than it was given")


def _chained(
    first: tuple[int, Buffer], rest: Iterable[tuple[int, Buffer]]
) -> Iterator[tuple[int, Buffer]]:
    yield first
    yield from rest


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of numbers that follow each other."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield first, last
            first = number
        last = number
    yield first, last


def _needed(data: bytes | None) -> bytes:
    assert data is not None
    return data

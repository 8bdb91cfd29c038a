"""Super-chunk files without metadata: a file by itself is read as an array of one axis.

The items are those of the chunks one behind the other, with what lies beyond the edges of the array
that the file was taken from. Their type is raw bytes of the size that the head states, unless the
caller knows it. The file is read only: nothing says how its chunks were made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ingot import dtypes
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import CHUNK_LIMIT, ChunkSpec, NativeCoding
from ingot.codecs.compressors import Blosc
from ingot.dtypes import DType
from ingot.errors import CorruptionError, IngotError, LimitError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.addresses import ChunkState, ChunkTable
from ingot.formats.blsk.array import BlskMap
from ingot.formats.blsk.chunk_file import (
    ABSENT,
    LARGEST_CAPACITY,
    SuperChunk,
    find_capacity,
    slots_begin,
)
from ingot.formats.blsk.metadata import ColumnStorage
from ingot.formats.blsk.slots import SlotChain, Stated, chunk_bytes
from ingot.formats.format import Coords
from ingot.stores.store import Commit, Extent, Store

__all__ = ["LoneFileMap", "is_super_chunk", "open_file"]

_MAGIC: Final = b"blsk"


def is_super_chunk(head: bytes, tail: bytes) -> bool:
    """Return whether a file with these first bytes is a super-chunk file.

    >>> is_super_chunk(b"blsk\\x01\\x01\\x00\\x00", b"")
    True
    """
    return head.startswith(_MAGIC)


@dataclass(frozen=True, slots=True)
class _LoneChain(SlotChain):
    """The codec chain of a file by itself, whose first chunk may have any number in its array."""

    base: int = 0

    def stated(self, number: int) -> Stated:
        """Return the number and the identity that the trailer of a chunk states."""
        return number + self.base, self.identity

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it; None when only Python can run it."""
        # The kernel compares the numbers that trailers state with those of chunks from 0 on.
        return None if self.base else SlotChain.native_coding(self, spec)


@dataclass(frozen=True, slots=True, eq=False)
class LoneFileMap(BlskMap):
    """The chunks of one file."""

    def addresses(self) -> ChunkTable:
        """Return where all chunks lie."""
        file = self._loaded(0)
        assert file is not None
        count = self.schema.grid.chunk_count
        starts, rooms = file.offsets[:count], self._rooms(file)[:count]
        stored = starts != ABSENT
        states = np.where(stored, ChunkState.STORED, ChunkState.ABSENT)
        numbers = np.zeros(count, np.int64)
        return ChunkTable((file.key,), numbers, np.where(stored, starts, 0), rooms, states)

    def zones(self, numbers: Any) -> list[bytes]:
        """Return no zone maps: what rows the chunks hold is not known."""
        return [b""] * len(numbers)

    def reopened(self, store: Store) -> "LoneFileMap":
        """Return the map of the file as `store` has it now."""
        return open_file(store, self.path, self.schema.dtype)

    def stage_each(self, encoded: Any) -> Commit:
        """Refuse to store chunks."""
        raise self._refused()

    def stage_slots(self, run: Any) -> Commit:
        """Refuse to store chunks."""
        raise self._refused()

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Refuse to store chunks."""
        raise self._refused()

    def resized(self, shape: tuple[int, ...]) -> Any:
        """Refuse another shape."""
        raise self._refused()

    def described(self, attrs: Mapping[str, Any]) -> Any:
        """Refuse attributes."""
        raise self._refused()

    def removed(self) -> Commit:
        """Refuse to remove the file."""
        raise self._refused()

    def compacted(self) -> Commit:
        """Refuse to write the file anew."""
        raise self._refused()

    def other_files(self) -> list[str]:
        """Return nothing: there is no folder of documents."""
        return []

    def _key(self, number: int) -> str:
        return self.path

    def _refused(self) -> UnsupportedError:
        return UnsupportedError(
            f"{self.store.location}: a super-chunk file without meta/storage is only read"
        )


def open_file(store: Store, key: str, dtype: DType | None = None) -> LoneFileMap:
    """Return the array in a file; its items are raw bytes, unless `dtype` says what they are."""
    try:
        return _opened(store, key, dtype)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _opened(store: Store, key: str, dtype: DType | None) -> LoneFileMap:
    (first,) = store.read([Extent(key, 0, slots_begin(LARGEST_CAPACITY))])
    data = first or b""
    capacity = max(1, find_capacity(data, key))
    file = SuperChunk.parse(data, store.size(key) or 0, capacity, key)
    typesize = file.head.typesize
    if dtype is None:
        dtype = np.dtype("u1" if typesize == 1 else f"V{typesize}")
    if dtype.itemsize != typesize or dtype.hasobject:
        raise UnsupportedError(f"{key}: items have {typesize} bytes, {dtype} is no type of them")
    nbytes, base, identity = _first_chunk(store, file)
    if nbytes > CHUNK_LIMIT:
        raise LimitError(f"{key}: chunks of {nbytes} bytes, the limit is {CHUNK_LIMIT}")
    if nbytes % typesize:
        raise CorruptionError(f"{key}: chunks of {nbytes} bytes, items have {typesize}")
    rows = max(1, nbytes // typesize)
    length = file.head.nchunks * rows if nbytes else 0
    fill = dtypes.zero(dtype)
    storage = ColumnStorage(
        dtype, (length,), (rows,), capacity, fill, "C", Blosc().bind(typesize), identity=identity
    )
    schema = storage.schema(length, {})
    own = schema.chain
    assert isinstance(own, SlotChain)
    stages = own.filters, own.serializer, own.compressors
    chain = _LoneChain(*stages, length, rows, 1, identity, base)
    return LoneFileMap(store, key, "", storage, schema.coded(chain), {})


def _first_chunk(store: Store, file: SuperChunk) -> tuple[int, int, int | None]:
    """Return the bytes of a chunk, the number of entry 0 in its array, and whose chunk it is."""
    used = file.used
    if not len(used):
        return 0, 0, None
    entry = int(used[0])
    start, room = int(file.offsets[entry]), int(file.rooms()[entry])
    (head,) = store.read([Extent(file.key, start, min(room, EXTENDED_HEADER_BYTES))])
    size = chunk_bytes(head or b"")
    header = ChunkHeader.parse(head or b"", stored=size)
    if size > room:
        raise CorruptionError(f"{file.key}: chunk {entry} is larger than its slot")
    if not file.head.trailers or size == room:
        return header.nbytes, 0, None
    (behind,) = store.read([Extent(file.key, start + size, room - size)])
    found = trailer.parse((behind or b"")[: trailer.size_of(behind or b"")])
    if found.number < entry:
        raise CorruptionError(f"{file.key}: entry {entry} is chunk {found.number} of its array")
    return header.nbytes, found.number - entry, found.identity

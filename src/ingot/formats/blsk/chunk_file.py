"""Super-chunk files: a head, an index of offsets, and slots with a Blosc chunk each.

This module parses and packs heads and indexes, checks them against the size of the file, and finds
free space between slots. What a slot holds is coded by `chain`. Where the files lie, and which
chunk of an array an entry means, is not its concern.

All integers are little-endian::

    0   magic "blsk"            8   typesize, i32
    4   version, u8: 1          12  nchunks, i32: entries that the array uses
    5   flags, u8               16  the index: an offset for each entry, i64; -1 without a chunk
    6   reserved, 2 bytes: 0    ..  slots

The index has a fixed number of entries, the capacity; those behind the used ones are -1. A slot is
a chunk, its trailer if bit 0 of the flags says so, and spare bytes. A chunk ends where its header
says, and its slot where the next one begins. Slots may stand in any order.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import HEADER_BYTES
from ingot.errors import CorruptionError, FormatError, UnsupportedError

__all__ = [
    "ABSENT",
    "ENTRY_BYTES",
    "HEAD_BYTES",
    "LARGEST_CAPACITY",
    "PACK_SPARE",
    "SPARE",
    "FreeSpace",
    "Head",
    "SuperChunk",
    "find_capacity",
    "pack_entries",
    "slots_begin",
    "used_entries",
]

HEAD_BYTES: Final = 16
"""The size of the head, in bytes."""

ENTRY_BYTES: Final = 8
"""The size of an entry of the index, in bytes."""

ABSENT: Final = -1
"""The entry of a chunk that is not stored."""

LARGEST_CAPACITY: Final = 2**20
"""The most entries of an index."""

SPARE: Final = 0.1
"""The room behind a new chunk, as a fraction of its size, unless another one is asked for."""

PACK_SPARE: Final = 1 / 32
"""The same of a new pack, which has thousands of items: one that changes needs little room."""

_HEAD: Final = struct.Struct("<4sBBHii")
_MAGIC: Final = b"blsk"
_VERSION: Final = 1
_TRAILERS: Final = 1

IntArray: TypeAlias = NDArray[np.int64]
Integers: TypeAlias = Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a file.

    >>> Head(typesize=8, nchunks=2).pack()
    b'blsk\\x01\\x01\\x00\\x00\\x08\\x00\\x00\\x00\\x02\\x00\\x00\\x00'
    """

    typesize: int
    nchunks: int
    trailers: bool = True

    @classmethod
    def parse(cls, data: bytes, where: str) -> "Head":
        """Return the head at the start of a file; `where` names the file in errors.

        >>> Head.parse(b"blsk\\x02" + bytes(11), "__1__.bin")
        Traceback (most recent call last):
        ingot.errors.UnsupportedError: __1__.bin: version 2 is unknown
        """
        if len(data) < HEAD_BYTES:
            raise CorruptionError(
                f"{where}: a head needs {HEAD_BYTES} bytes, {len(data)} are stored"
            )
        magic, version, flags, reserved, typesize, nchunks = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise FormatError(f"{where}: it begins with {magic!r}, not with {_MAGIC!r}")
        if version != _VERSION:
            raise UnsupportedError(f"{where}: version {version} is unknown")
        if flags & ~_TRAILERS or reserved:
            raise UnsupportedError(
                f"{where}: flags {flags:#04x} and reserved bytes {reserved:#06x} are unknown"
            )
        if typesize < 1:
            raise FormatError(f"{where}: typesize is {typesize}")
        if nchunks < 0:
            raise FormatError(f"{where}: nchunks is {nchunks}")
        return cls(typesize, nchunks, bool(flags & _TRAILERS))

    def pack(self) -> bytes:
        """Return the head that `parse` reads back."""
        flags = _TRAILERS if self.trailers else 0
        return _HEAD.pack(_MAGIC, _VERSION, flags, 0, self.typesize, self.nchunks)


@dataclass(frozen=True, slots=True, eq=False)
class SuperChunk:
    """The head and the index of a file, checked against its size."""

    key: str
    head: Head
    size: int
    offsets: IntArray
    """The whole index: an offset, or `ABSENT`, for each entry."""

    @classmethod
    def parse(cls, data: bytes, size: int, capacity: int, key: str) -> "SuperChunk":
        """Return what the first bytes of a file say, of which there must be enough.

        `capacity` is the number of entries that the index has by the metadata, `size` the size of
        the file.
        """
        head = Head.parse(data, key)
        if head.nchunks > capacity:
            raise CorruptionError(
                f"{key}: nchunks claims {head.nchunks} chunks, the index has {capacity} entries"
            )
        begin = slots_begin(capacity)
        if begin > size or begin > len(data):
            raise CorruptionError(
                f"{key}: an index of {capacity} entries ends at byte {begin}, "
                f"{min(size, len(data))} are stored"
            )
        offsets = np.frombuffer(data, "<i8", capacity, HEAD_BYTES).astype(np.int64)
        made = cls(key, head, size, offsets)
        made._check()
        return made

    def pack(self) -> bytes:
        """Return the head and the index."""
        return self.head.pack() + pack_entries(self.offsets)

    @property
    def capacity(self) -> int:
        """The number of entries of the index."""
        return len(self.offsets)

    @property
    def used(self) -> IntArray:
        """The entries that have a chunk, in their order."""
        return np.flatnonzero(self.offsets != ABSENT)

    def rooms(self) -> IntArray:
        """Return for each entry how many bytes its slot has; 0 without a chunk."""
        used = self.used
        starts = self.offsets[used]
        edges = np.append(np.sort(starts), self.size)
        rooms = np.zeros(self.capacity, np.int64)
        rooms[used] = edges[np.searchsorted(edges, starts, side="right")] - starts
        return rooms

    def room(self, entry: int) -> int:
        """Return how many bytes the slot of an entry has that has a chunk."""
        start = self.offsets[entry]
        behind = self.offsets[self.offsets > start]
        return int(behind.min(initial=self.size) - start)

    def free_bytes(self, lengths: IntArray, spare: float) -> tuple[int, int]:
        """Return how many bytes of the slots are dead, and how many are spare.

        `lengths` are those of the images of all entries. Spare are the bytes behind an image, up to
        the fraction `spare` of its length.
        """
        behind = np.minimum(self.rooms() - lengths, (lengths * spare).astype(np.int64))
        kept = int(behind.sum())
        return self.size - slots_begin(self.capacity) - int(lengths.sum()) - kept, kept

    def changed(
        self, entries: Sequence[int], starts: Sequence[int], size: int, nchunks: int
    ) -> "SuperChunk":
        """Return the state of the file after some entries got other offsets.

        `nchunks` is how many entries the array uses; the head counts more where others are used.
        """
        offsets = self.offsets.copy()
        offsets[list(entries)] = starts
        nchunks = max(nchunks, used_entries(offsets))
        return replace(self, head=replace(self.head, nchunks=nchunks), size=size, offsets=offsets)

    def _check(self) -> None:
        offsets, begin = self.offsets, slots_begin(self.capacity)
        last = self.size - HEADER_BYTES
        wrong = (offsets != ABSENT) & ((offsets < begin) | (offsets > last))
        if wrong.any():
            entry = int(np.flatnonzero(wrong)[0])
            raise CorruptionError(
                f"{self.key}: chunk {entry} starts at {offsets[entry]}, "
                f"slots lie from byte {begin} to {self.size}"
            )
        behind = offsets[self.head.nchunks :] != ABSENT
        if behind.any():
            entry = self.head.nchunks + int(np.flatnonzero(behind)[0])
            raise CorruptionError(
                f"{self.key}: chunk {entry} has an offset, nchunks is {self.head.nchunks}"
            )
        starts = np.sort(offsets[self.used])
        near = np.flatnonzero(np.diff(starts) < HEADER_BYTES)
        if len(near):
            start = int(starts[near[0]])
            raise CorruptionError(
                f"{self.key}: two chunks start at {start} and {starts[near[0] + 1]}"
            )


def used_entries(offsets: IntArray) -> int:
    """Return how many entries of an index there are up to the last one with a chunk.

    >>> used_entries(np.array([24, -1, 90, -1]))
    3
    """
    used = np.flatnonzero(offsets != ABSENT)
    return int(used[-1]) + 1 if len(used) else 0


def slots_begin(capacity: int) -> int:
    """Return where the index of a file ends, and its slots begin."""
    return HEAD_BYTES + ENTRY_BYTES * capacity


def pack_entries(offsets: Sequence[int] | IntArray) -> bytes:
    """Return the bytes of entries of an index.

    >>> pack_entries([24, -1]).hex()
    '1800000000000000ffffffffffffffff'
    """
    return np.asarray(offsets, "<i8").tobytes()


def find_capacity(data: bytes, key: str) -> int:
    """Return the number of entries in the index of a file whose metadata are not there.

    It is the used entries and the run of entries without a chunk behind them: no chunk begins with
    such bytes. `data` are the first bytes of the file.

    >>> find_capacity(Head(1, 1).pack() + pack_entries([40, -1, -1]) + bytes(20), "__1__.bin")
    3
    """
    head = Head.parse(data, key)
    entries = np.frombuffer(data, "<i8", (len(data) - HEAD_BYTES) // ENTRY_BYTES, HEAD_BYTES)
    if head.nchunks > len(entries):
        raise CorruptionError(
            f"{key}: nchunks claims {head.nchunks} chunks, {len(data)} bytes are stored"
        )
    stored = np.flatnonzero(entries[head.nchunks :] != ABSENT)
    return head.nchunks + (int(stored[0]) if len(stored) else len(entries) - head.nchunks)


class FreeSpace:
    """The bytes of a file that no slot uses, given out to new images.

    `starts` and `lengths` are those of the images that must stay, `begin` is where slots begin.

    >>> space = FreeSpace([100, 200], [50, 10], begin=80, end=300)
    >>> space.take(60), space.take(20), space.take(50)
    (210, 80, 150)
    >>> space.take(1000) is None, space.dead
    (True, 30)
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self, starts: Integers, lengths: Integers, begin: int, end: int) -> None:
        order = np.argsort(np.asarray(starts, np.int64), kind="stable")
        first = np.asarray(starts, np.int64)[order]
        behind = first + np.asarray(lengths, np.int64)[order]
        lows = np.concatenate(([begin], behind))
        highs = np.concatenate((first, [end]))
        if (lows[1:-1] > first[1:]).any() or (len(first) and int(behind[-1]) > end):
            raise CorruptionError("chunks of a super-chunk file overlap")
        self._lows, self._highs = lows, highs

    @property
    def dead(self) -> int:
        """The bytes that are free."""
        return int((self._highs - self._lows).sum())

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """The first byte of each gap, and the one behind its last.

        >>> FreeSpace([100, 200], [50, 10], begin=100, end=300).gaps
        [(150, 200), (210, 300)]
        """
        free = self._lows < self._highs
        return list(zip(self._lows[free].tolist(), self._highs[free].tolist(), strict=True))

    def take(self, length: int) -> int | None:
        """Return where an image of this length fits best; None where it does not."""
        sizes = self._highs - self._lows
        fitting = np.flatnonzero(sizes >= length)
        if not len(fitting):
            return None
        gap = fitting[np.argmin(sizes[fitting])]
        low = int(self._lows[gap])
        self._lows[gap] += length
        return low

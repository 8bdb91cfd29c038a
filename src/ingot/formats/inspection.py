"""Inspection of super-chunk files, those of blsk and those of bcolz: head, index and slots.

A file is shown as it lies there, without the metadata of its dataset. A slot that is damaged is
shown with the reason, and the others all the same. Nothing is decoded.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from ingot.blosc.header import EXTENDED_HEADER_BYTES, HEADER_BYTES, ChunkHeader
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.bcolz import chunk_file as bcolz_file
from ingot.formats.blsk import chunk_file as blsk_file
from ingot.formats.blsk.slots import chunk_bytes

__all__ = ["FileInspection", "Read", "Slot", "inspect_file", "is_super_chunk"]

Read: TypeAlias = Callable[[int, int], bytes]
"""Returns bytes of a file, given the first and their number; fewer where the file ends."""

_MAGICS: Final = {b"blsk": "blsk", b"blpk": "bcolz"}
_MOST_SLOTS: Final = 16
"""How many chunks a file of bcolz may claim."""


@dataclass(frozen=True, slots=True)
class Slot:
    """One chunk of a file: where it lies, and what its header and its trailer say."""

    entry: int
    start: int
    room: int
    """The bytes up to the next slot, or to the end of the file."""
    nbytes: int = 0
    cbytes: int = 0
    codec: str = ""
    filter: str = ""
    blocks: int = 0
    trailer_bytes: int = 0
    number: int | None = None
    """The number of the chunk in its array, by the trailer."""
    rows: int | None = None
    identity: str | None = None
    damage: str = ""
    """Why the rest is not known; empty for a sound slot."""

    @property
    def used(self) -> int:
        """The bytes of the chunk and its trailer."""
        return self.cbytes + self.trailer_bytes


@dataclass(frozen=True, slots=True)
class FileInspection:
    """The parts of a super-chunk file; ``print`` shows a table of them."""

    where: str
    kind: str
    """The format that the file is of."""
    size: int
    typesize: int | None
    nchunks: int
    trailers: bool
    capacity: int
    """The entries of the index; 0 without one."""
    begin: int
    """Where slots begin."""
    slots: tuple[Slot, ...]
    dead: int
    spare: int

    @property
    def is_damaged(self) -> bool:
        """Whether a slot is damaged."""
        return any(slot.damage for slot in self.slots)

    def to_dict(self) -> dict[str, Any]:
        """Return the same as nested dicts and lists for JSON."""
        return asdict(self)

    def table(self) -> list[tuple[str, ...]]:
        """Return the slots as rows of text, with a row of titles."""
        titles = ("chunk", "start", "stored", "of bytes", "codec", "filter", "blocks")
        rows: list[tuple[str, ...]] = [(*titles, "trailer", "number", "rows", "free")]
        for slot in self.slots:
            if slot.damage:
                rows.append((str(slot.entry), f"{slot.start:,}", slot.damage, *[""] * 8))
                continue
            known = slot.number is not None
            rows.append(
                (
                    str(slot.entry),
                    f"{slot.start:,}",
                    f"{slot.cbytes:,}",
                    f"{slot.nbytes:,}",
                    slot.codec,
                    slot.filter,
                    str(slot.blocks),
                    f"{slot.trailer_bytes:,}",
                    str(slot.number) if known else "",
                    str(slot.rows) if known else "",
                    f"{slot.room - slot.used:,}",
                )
            )
        return rows

    def summary(self) -> list[str]:
        """Return the head, the index and the sums of all slots as lines of text."""
        count = len(self.slots)
        lines = [
            f"{self.where}: super-chunk file of {self.kind}, {count:,} "
            f"chunk{'' if count == 1 else 's'} in {self.size:,} bytes",
            f"head   version 1, typesize {self.typesize or 'not stated'}, nchunks {self.nchunks}, "
            f"{'with' if self.trailers else 'without'} trailers",
        ]
        if self.capacity:
            lines.append(f"index  {self.capacity:,} entries up to byte {self.begin:,}")
        used = sum(slot.used for slot in self.slots)
        lines.append(
            f"slots  {used:,} bytes of chunks, {self.spare:,} bytes spare, {self.dead:,} bytes dead"
        )
        return lines


def is_super_chunk(first: bytes) -> bool:
    """Return whether bytes begin like a super-chunk file.

    >>> is_super_chunk(b"blsk..."), is_super_chunk(bytes(4))
    (True, False)
    """
    return first[:4] in _MAGICS


def inspect_file(read: Read, size: int, where: str) -> FileInspection:
    """Return the parts of a file of `size` bytes; `where` names it in errors.

    >>> from ingot.formats.blsk.chunk_file import Head, pack_entries
    >>> data = Head(4, 0).pack() + pack_entries([-1, -1])
    >>> found = inspect_file(lambda start, length: data[start:start + length], len(data), "a.bin")
    >>> found.capacity, found.slots, found.dead
    (2, (), 0)
    """
    kind = _MAGICS.get(read(0, 4))
    if kind is None:
        raise UnsupportedError(f"{where}: this is no super-chunk file")
    return (_blsk if kind == "blsk" else _bcolz)(read, size, where)


def _blsk(read: Read, size: int, where: str) -> FileInspection:
    first = read(0, blsk_file.slots_begin(blsk_file.LARGEST_CAPACITY))
    capacity = blsk_file.find_capacity(first, where)
    begin = blsk_file.slots_begin(capacity)
    file = blsk_file.SuperChunk.parse(first[:begin], size, capacity, where)
    rooms = file.rooms()
    slots = tuple(
        _slot(read, entry, int(file.offsets[entry]), int(rooms[entry]), file.head.trailers)
        for entry in file.used.tolist()
    )
    lengths = np.zeros(capacity, np.int64)
    for slot in slots:
        # Of a damaged slot nothing is known to be free.
        lengths[slot.entry] = slot.room if slot.damage else slot.used
    dead, spare = file.free_bytes(lengths, blsk_file.SPARE)
    head = file.head
    facts = head.typesize, head.nchunks, head.trailers, capacity, begin
    return FileInspection(where, "blsk", size, *facts, slots, dead, spare)


def _bcolz(read: Read, size: int, where: str) -> FileInspection:
    head = read(0, bcolz_file.HEAD_BYTES)
    if len(head) < bcolz_file.HEAD_BYTES or head[4] != 1:
        raise UnsupportedError(
            f"{where}: this is no super-chunk file of bcolz, but one of Bloscpack; "
            "`ingot info` shows it"
        )
    count = int.from_bytes(head[8:16], "little", signed=True)
    if not 0 <= count <= _MOST_SLOTS:
        raise UnsupportedError(f"{where}: nchunks is {count}, files of bcolz have 1 chunk")
    slots: list[Slot] = []
    start = bcolz_file.HEAD_BYTES
    for entry in range(count):
        slot = _slot(read, entry, start, size - start, True)
        slots.append(slot)
        if slot.damage:
            break
        start += slot.used
    trailers = any(slot.trailer_bytes for slot in slots)
    behind = 0 if slots and slots[-1].damage else size - start
    facts = None, count, trailers, 0, bcolz_file.HEAD_BYTES
    return FileInspection(where, "bcolz", size, *facts, tuple(_cut(slots)), behind, 0)


def _cut(slots: list[Slot]) -> Iterator[Slot]:
    """Yield slots with the room that each has for itself."""
    for slot in slots:
        room = slot.room if slot.damage else slot.used
        yield Slot(**{**asdict(slot), "room": room})


def _slot(read: Read, entry: int, start: int, room: int, trailers: bool) -> Slot:
    try:
        head = read(start, min(room, EXTENDED_HEADER_BYTES))
        if len(head) < HEADER_BYTES:
            raise CorruptionError(f"slot: {len(head)} bytes hold no chunk")
        cbytes = chunk_bytes(head)
        header = ChunkHeader.parse(head, stored=cbytes)
        if cbytes > room:
            raise CorruptionError(f"Blosc chunk: cbytes claims {cbytes} bytes, {room} are stored")
        facts = header.nbytes, cbytes, header.codec, header.filter, header.block_count
        behind = start + cbytes
        if not trailers or cbytes == room:
            return Slot(entry, start, room, *facts)
        first = read(behind, min(trailer.LEAST_BYTES, room - cbytes))
        length = trailer.claimed_size(first)
        if length > room - cbytes:
            raise CorruptionError(
                f"chunk trailer: it claims {length} bytes, {room - cbytes} are stored"
            )
        found = trailer.parse(read(behind, length))
        identity = None if found.identity is None else f"{found.identity:016x}"
        return Slot(entry, start, room, *facts, length, found.number, found.rows, identity)
    except IngotError as error:
        return Slot(entry, start, room, damage=str(error))

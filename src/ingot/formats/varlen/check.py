"""What is wrong with a file of variable-length items before its packs, and how it is mended.

A file whose table is damaged, or was never written, still has its packs. They are found by a walk
over the chunks, each of which is decoded and compared with its digest. Entries of the table that
lead to a whole pack are kept; others get the pack that the walk found for them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from ingot.blosc.header import HEADER_BYTES as CHUNK_HEADER_BYTES
from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.bloscpack.header import CHECKSUMS, HEADER_BYTES, UNKNOWN
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.varlen.file import VarlenFile
from ingot.formats.varlen.header import VarlenHeader
from ingot.formats.varlen.metadata import VarlenMetadata
from ingot.formats.varlen.offsets import NULL, PackTable
from ingot.formats.varlen.packs import VarlenPacks, chunk_bytes
from ingot.stores.store import Commit, Edit, Extent, Patch, Store, Truncate

__all__ = ["findings", "next_repair"]

_WINDOW: Final = 1 << 16
_MOST_PACKS: Final = 1 << 24


class _Found(NamedTuple):
    """A pack that the walk found: where it begins and ends, and how many items it holds."""

    start: int
    end: int
    items: int


def findings(store: Store, key: str, name: str) -> Iterator[Finding]:
    """Yield what is wrong with the front of a file, and how many of its bytes are dead."""
    try:
        file = VarlenFile.read(store, key)
    except IngotError:
        step = next_repair(store, key, None, name)
        if step is not None:
            yield step.finding
        return
    if file.metadata.dead:
        problem = f"{file.metadata.dead} bytes of packs that were replaced"
        yield Finding(name, "dead", problem, key, severity="note")


def next_repair(store: Store, key: str, request: RepairRequest | None, name: str) -> Repair | None:
    """Return the step that writes the front of a file anew; None where it is whole."""
    try:
        VarlenFile.read(store, key)
    except IngotError as error:
        problem = " ".join(str(error).split())
    else:
        return None
    size = store.size(key)
    (front,) = store.read([Extent(key, 0, HEADER_BYTES + json.LARGEST)])
    if size is None or front is None:
        return None
    try:
        header = VarlenHeader.parse(front[:HEADER_BYTES])
    except IngotError:
        return None
    document = front[HEADER_BYTES : header.table_start]
    kept = True
    try:
        metadata = VarlenMetadata.parse(document)
    except IngotError:
        metadata, kept = VarlenMetadata(), False
    codec = VarlenPacks(metadata.codec, header.checksum, header.packed)
    reader = _Reader(store, key, size, codec, metadata)
    begin, entries = _table(reader, header)
    found = list(reader.walk(begin))
    drop = request is not None and request.drop
    table, length, end, lost = _matched(found, entries, reader, header, drop=drop)
    if table is None:
        return None
    capacity = (begin - header.table_start) // header.entry_bytes
    if len(table) > capacity:
        return None
    table = replace(table, spare=capacity - len(table))
    nulls = metadata.nulls or bool((table.starts == NULL).any())
    metadata = replace(metadata, length=length, nulls=nulls)
    try:
        file = VarlenFile.assemble(replace(header, count=len(table)), metadata, table, end)
        table.check(length, begin, end, header.least_pack, nulls=nulls)
    except IngotError:
        return None
    if len(file.front) != begin:
        return None
    edits: list[Edit] = [Patch(key, 0, file.front)]
    if end < size:
        edits.append(Truncate(key, end))
    lost = ", ".join(filter(None, (lost, "" if kept else "the metadata: items are bytes now")))
    repair = f"write the table of {len(table)} entries for {length} items"
    finding = Finding(name, "index", problem, key, lost=lost, repair=repair)
    return Repair(finding, Commit(publish=tuple(edits)))


class _Reader:
    """Reads packs of a file at any place."""

    __slots__ = ("_codec", "_key", "_kind", "_store", "size")

    def __init__(
        self, store: Store, key: str, size: int, codec: VarlenPacks, metadata: VarlenMetadata
    ) -> None:
        self._store = store
        self._key = key
        self._codec = codec
        self._kind = metadata.kind
        self.size = size

    def bytes(self, start: int, length: int) -> bytes:
        (data,) = self._store.read([Extent(self._key, start, length)])
        return data or b""

    def pack_at(self, start: int) -> _Found | None:
        """Return the whole pack that begins at a place; None where there is none."""
        try:
            data, end, chunks = self.bytes(start, _WINDOW), 0, 2 if self._codec.packed else 1
            for _ in range(chunks):
                if end + CHUNK_HEADER_BYTES > len(data):
                    data = self.bytes(start, end + _WINDOW)
                end += chunk_bytes(data[end : end + CHUNK_HEADER_BYTES])
                end += CHECKSUMS[self._codec.checksum]
                if start + end > self.size:
                    return None
            if end > len(data):
                data = self.bytes(start, end)
            items = 1
            if self._codec.packed:
                items = int.from_bytes(data[4:8], "little") // 4
            decoded = self._codec.decode(data[:end], self._kind, items, 0)
            return _Found(start, start + end, len(decoded))
        except IngotError:
            return None

    def walk(self, begin: int) -> Iterator[_Found]:
        """Yield the packs that follow each other from a place on; room between them is skipped."""
        at, count = begin, 0
        while at < self.size and count < _MOST_PACKS:
            found = self.pack_at(at)
            if found is None:
                at = self._behind_room(at)
                continue
            yield found
            count += 1
            at = found.end

    def _behind_room(self, at: int) -> int:
        """Return the next place at which a pack may begin: behind bytes of 0, or the end."""
        while at < self.size:
            window = np.frombuffer(self.bytes(at, _WINDOW), np.uint8)
            filled = np.flatnonzero(window)
            if not len(window):
                return self.size
            if not len(filled):
                at += len(window)
                continue
            # A pack that is torn ends the walk; zeros in front of one are room.
            return at + int(filled[0]) if filled[0] else self.size
        return self.size


def _table(reader: _Reader, header: VarlenHeader) -> tuple[int, PackTable | None]:
    """Return where packs begin, and the entries of the table, unless the packs tell as much."""
    start, entry = header.table_start, header.entry_bytes
    if header.count == UNKNOWN:
        used, begin = _written(reader, header)
        # Nulls have no chunks: only the table knows of them.
        wanted = 0 if header.packed else used
    else:
        used = header.count if start + header.count * entry <= reader.size else 0
        begin = _behind_unused(reader, start + used * entry, entry)
        wanted = used
    if not wanted:
        return begin, None
    return begin, PackTable.parse(reader.bytes(start, wanted * entry), wanted, packed=header.packed)


def _written(reader: _Reader, header: VarlenHeader) -> tuple[int, int]:
    """Return how many entries a writer that did not finish has written, and where packs begin."""
    start, entry = header.table_start, header.entry_bytes
    used, bound = 0, reader.size
    while start + (used + 1) * entry <= bound:
        place = int.from_bytes(reader.bytes(start + used * entry, 8), "little", signed=True)
        null = place == NULL and not header.packed
        if not null and not start + entry <= place < reader.size:
            break
        bound = bound if null else min(bound, place)
        used += 1
    return used, min(bound, _behind_unused(reader, start + used * entry, entry))


def _behind_unused(reader: _Reader, at: int, entry: int) -> int:
    """Return where the entries of the table end that were never written."""
    while at < reader.size:
        window = reader.bytes(at, _WINDOW // entry * entry)
        filled = np.flatnonzero(np.frombuffer(window, np.uint8) != 0xFF)
        if len(filled):
            return at + int(filled[0]) // entry * entry
        if not window:
            break
        at += len(window)
    return at


def _matched(
    found: Sequence[_Found],
    entries: PackTable | None,
    reader: _Reader,
    header: VarlenHeader,
    *,
    drop: bool,
) -> tuple[PackTable | None, int, int, str]:
    """Return the table of a file, the number of items, where the last pack ends, what is lost."""
    if entries is None:
        starts = np.array([each.start for each in found], np.int64)
        counts = np.array([each.items for each in found], np.int64)
        length = int(counts.sum())
        end = max((each.end for each in found), default=reader.size if not found else 0)
        firsts = (np.cumsum(counts) - counts).astype(np.int64) if header.packed else None
        end = end if found else header.table_start
        lost = "items that were not written whole, and nulls" if not header.packed else ""
        return PackTable(starts, firsts), length, end, lost or "items that were not written whole"
    packs = {each.start: each for each in found}
    chosen: list[_Found | None] = []
    for start in entries.starts.tolist():
        if start == NULL and not header.packed:
            chosen.append(_Found(NULL, 0, 1))
            continue
        whole = packs.get(start)
        if whole is None and 0 < start < reader.size:
            whole = reader.pack_at(start)
        chosen.append(whole)
    taken = {each.start for each in chosen if each is not None}
    spare = [each for each in found if each.start not in taken]
    empty = [number for number, each in enumerate(chosen) if each is None]
    if empty and len(spare) == len(empty):
        # Packs are written in the order of their items.
        for number, each in zip(empty, spare, strict=True):
            chosen[number] = each
        empty = []
    while chosen and chosen[-1] is None:
        chosen.pop()
    if header.count == UNKNOWN:
        # An item is written before its entry.
        last = max((each.start for each in chosen if each is not None), default=0)
        chosen += [each for each in spare if each.start > last]
    if any(each is None for each in chosen):
        if header.packed or not drop:
            return None, 0, 0, ""
        chosen = [each or _Found(NULL, 0, 1) for each in chosen]
    kept = [each for each in chosen if each is not None]
    starts = np.array([each.start for each in kept], np.int64)
    counts = np.array([each.items for each in kept], np.int64)
    firsts = (np.cumsum(counts) - counts).astype(np.int64) if header.packed else None
    end = max((each.end for each in kept), default=0)
    end = max(end, *(each.end for each in found)) if found else end
    gone = f"{len(empty)} packs" if header.packed else f"{len(empty)} items"
    unsure = "what the damage changed in the metadata, if it did"
    return PackTable(starts, firsts), int(counts.sum()), end, gone if empty else unsure

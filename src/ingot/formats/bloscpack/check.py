"""What is wrong with a Bloscpack file before and behind its chunks, and how it is mended.

Chunks stand one behind the other, so a walk finds them all without the offsets. A file whose header
or offsets are wrong, or that was cut short, gets those of the chunks that are whole; an array in C
order then has as many rows as they hold.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from ingot.blosc.header import EXTENDED_HEADER_BYTES
from ingot.codecs.checksums import digest
from ingot.errors import IngotError
from ingot.formats.bloscpack import metadata, offsets
from ingot.formats.bloscpack.array import open_array
from ingot.formats.bloscpack.header import HEADER_BYTES, UNKNOWN, Header
from ingot.formats.bloscpack.metadata import HEAD_BYTES, MetadataHead
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.stores.store import Commit, Edit, Extent, Patch, Store, Truncate

__all__ = ["findings", "next_repair"]

_MOST_CHUNKS: Final = 1 << 24


def findings(store: Store, key: str, name: str) -> Iterator[Finding]:
    """Yield what is wrong with a file, and how many bytes lie behind its last chunk."""
    try:
        file = open_array(store, key).file
    except IngotError:
        step = next_repair(store, key, None, name)
        if step is not None:
            yield step.finding
        return
    if file.size > file.end and file.header.version > 1:
        problem = f"{file.size - file.end} bytes behind the last chunk, which nothing reads"
        yield Finding(name, "dead", problem, key, severity="note")


def next_repair(store: Store, key: str, request: RepairRequest | None, name: str) -> Repair | None:
    """Return the step that writes header and offsets anew; None where they are right."""
    try:
        open_array(store, key)
    except IngotError as error:
        problem = " ".join(str(error).split())
    else:
        return None
    size = store.size(key)
    if size is None:
        return None
    try:
        return _rebuilt(_File(store, key, size), name, problem)
    except IngotError:
        return None  # What is left does not tell how the file was.


class _File:
    """The bytes of a file."""

    __slots__ = ("_store", "key", "size")

    def __init__(self, store: Store, key: str, size: int) -> None:
        self._store = store
        self.key = key
        self.size = size

    def read(self, start: int, length: int) -> bytes:
        (data,) = self._store.read([Extent(self.key, start, length)])
        return data or b""


def _rebuilt(file: _File, name: str, problem: str) -> Repair | None:
    header = Header.parse(file.read(0, HEADER_BYTES))
    section, value, behind = None, None, header.header_bytes
    if header.has_metadata:
        section = MetadataHead.parse(file.read(behind, HEAD_BYTES), file.size - behind)
        document = file.read(behind + HEAD_BYTES, section.stored)
        stored = file.read(behind + section.digest_start, section.digest_bytes)
        value = section.decode(document, stored)
        behind += section.section_bytes
    walks = []
    for begin in _begins(file, header, behind):
        starts, sizes, end = _walk(file, header, begin)
        walks.append((len(starts), begin, starts, sizes, end))
    count, begin, starts, sizes, end = max(walks, default=(0, 0, [], [], 0))
    if not count:
        return None
    entries = (begin - behind) // offsets.ENTRY_BYTES
    fixed = _header(header, sizes, entries)
    if fixed is None:
        return None
    changes: list[Edit] = []
    lost = "" if end == file.size else f"{file.size - end} bytes that are no whole chunk"
    if section is not None and isinstance(value, dict):
        shorter, gone = _described(value, sum(sizes))
        if shorter is None:
            return None
        if gone:
            lost = gone
            repacked = metadata.repack(section, shorter)
            if repacked is None:
                return None
            base = header.header_bytes
            changes += [Patch(file.key, base + start, data) for start, data in repacked]
    if header.nchunks not in (UNKNOWN, len(starts)) and not lost:
        lost = f"{max(0, header.nchunks - len(starts))} chunks"
    changes.insert(0, Patch(file.key, 0, fixed.pack()))
    if fixed.has_offsets:
        changes.append(Patch(file.key, behind, offsets.pack(starts, fixed.max_app_chunks)))
    if end < file.size:
        changes.append(Truncate(file.key, end))
    repair = f"write header and offsets of the {len(starts)} chunks that are whole"
    finding = Finding(name, "index", problem, file.key, lost=lost, repair=repair)
    return Repair(finding, Commit(publish=tuple(changes)))


def _begins(file: _File, header: Header, behind: int) -> Iterator[int]:
    """Yield where the first chunk may start: as the header says, and as the first offset says."""
    yield behind + header.table_bytes
    if header.has_offsets:
        first = int.from_bytes(file.read(behind, offsets.ENTRY_BYTES), "little", signed=True)
        if behind < first < file.size and not (first - behind) % offsets.ENTRY_BYTES:
            yield first


def _walk(file: _File, header: Header, begin: int) -> tuple[list[int], list[int], int]:
    """Return where whole chunks start, their decoded bytes, and where the last one ends."""
    starts: list[int] = []
    sizes: list[int] = []
    at = begin
    while at < file.size and len(starts) < _MOST_CHUNKS:
        try:
            first = file.read(at, EXTENDED_HEADER_BYTES)
            chunk = offsets.chunk_header(first, file.size - at, header.digest_bytes)
        except IngotError:
            break
        data = file.read(at, chunk.cbytes + header.digest_bytes)
        if header.digest_bytes:
            stored = data[chunk.cbytes :]
            following = at + chunk.cbytes + header.digest_bytes >= file.size
            # A digest in the middle that differs is damage of one chunk, which stays in its place.
            if digest(header.checksum, data[: chunk.cbytes]) != stored and following:
                break
        starts.append(at)
        sizes.append(chunk.nbytes)
        at += chunk.cbytes + header.digest_bytes
    return starts, sizes, at


def _header(header: Header, sizes: list[int], entries: int) -> Header | None:
    """Return the header of chunks of these sizes; the table keeps its length."""
    chunk_size = sizes[0] if len(sizes) > 1 else max(sizes[0], header.chunk_size)
    if any(size != chunk_size for size in sizes[:-1]) or sizes[-1] > chunk_size:
        return None
    count = len(sizes)
    if header.version == 1:
        return replace(header, nchunks=count)
    spare = 0
    if header.has_offsets:
        spare = entries - count
        if spare < 0:
            return None
    return replace(
        header,
        chunk_size=chunk_size,
        last_chunk=sizes[-1],
        nchunks=count,
        max_app_chunks=spare,
    )


def _described(value: dict[str, Any], payload: int) -> tuple[dict[str, Any] | None, str]:
    """Return the metadata of an array of so many bytes, and which rows are gone.

    None where the chunks do not end with a row.
    """
    description = metadata.parse_description(value)
    if description is None or description.nbytes == payload:
        return value, ""
    shape = description.shape
    row = math.prod(shape[1:]) * description.dtype.itemsize
    if not shape or not row or (description.order != "C" and len(shape) > 1):
        return None, ""
    rows = payload // row
    if rows * row != payload or rows > shape[0]:
        return None, ""
    return {**value, "shape": [rows, *shape[1:]]}, f"rows [{rows}:{shape[0]}]"

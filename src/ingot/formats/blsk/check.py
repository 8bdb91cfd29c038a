"""What is wrong with arrays and tables of blsk beside their chunks, and how it is mended.

The trailer of a chunk states its number and its array, so the index of a super-chunk file can be
rebuilt by a search for chunks in the file, and a lost number of rows follows from the last chunks.
Of several images of one chunk, the older ones are left from changes; which one is the newest cannot
be told, so an entry is rebuilt only where there is one image.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.errors import IngotError
from ingot.formats import trailer
from ingot.formats.blsk import slots
from ingot.formats.blsk.array import BlskMap, DatasetDocuments
from ingot.formats.blsk.chunk_file import (
    ABSENT,
    HEAD_BYTES,
    Head,
    SuperChunk,
    pack_entries,
    slots_begin,
    used_entries,
)
from ingot.formats.blsk.metadata import FILE_NAME, NROWS, STORAGE, pack_nrows, parse_nrows
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.packs import LENGTH
from ingot.formats.paths import prefix
from ingot.formats.yaml import LARGEST
from ingot.stores.store import Commit, Extent, Feature, Patch, Put, Store

__all__ = ["findings", "next_repair", "suspects"]

_WINDOW: Final = 8 << 20
_LEAST_DEAD: Final = 1


class _Image(NamedTuple):
    """A chunk that was found in a file, with what its trailer states."""

    number: int
    start: int
    length: int
    rows: int


def suspects(store: Store, path: str) -> bool:
    """Return whether a folder has the storage of blsk, and no number of rows."""
    start = prefix(path)
    storage, nrows = store.read([Extent(start + name, 0, 1) for name in (STORAGE, NROWS)])
    if storage is None or nrows is not None or Feature.LIST not in store.features:
        return False
    return any(_has_files(store, start + "data/", depth) for depth in range(3))


def _has_files(store: Store, folder: str, depth: int) -> bool:
    for name in store.names(folder):
        if FILE_NAME.fullmatch(name) is not None:
            return True
        if name.endswith("/") and depth and _has_files(store, folder + name, depth - 1):
            return True
    return False


def findings(store: Store, path: str, name: str, *, quick: bool) -> Iterator[Finding]:
    """Yield what is wrong with documents, heads and indexes, and how many bytes are dead.

    Dead bytes are counted by the lengths of chunks, which `quick` leaves out.
    """
    lost = _nrows_step(store, path, name)
    if lost is not None:
        yield lost.finding
        return
    dead = 0
    for array, shown in _arrays(store, path, name):
        broken = False
        for number in array._stored_files():
            problem = _problem(array, number)
            if problem:
                broken = True
                repair = "rebuild the index from the chunks in the file; with drop: give up others"
                what = "chunks of the file, until repaired"
                yield Finding(shown, "index", problem, array._key(number), None, what, repair)
        if not broken and not quick:
            # Chunks that are torn are found by the one that reads them.
            with suppress(IngotError):
                dead += array.free_bytes().dead
    if dead >= _LEAST_DEAD:
        problem = f"{dead} bytes that no chunk uses; compact() removes them"
        yield Finding(name, "dead", problem, severity="note")


def next_repair(store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
    """Return the next step that mends an array or a table."""
    lost = _nrows_step(store, path, name)
    if lost is not None:
        return lost
    for array, shown in _arrays(store, path, name):
        for number in array._stored_files():
            step = _index_step(array, number, shown, drop=request.drop)
            if step is not None:
                return step
    return None


def _arrays(store: Store, path: str, name: str) -> Iterator[tuple[BlskMap, str]]:
    """Yield the array at a path, or the columns of the table, with what findings call them."""
    try:
        documents = DatasetDocuments.read(store, path)
    except IngotError:
        return
    for column in documents.columns:
        shown = f"{name}: column {'.'.join(column)}" if column else name
        yield documents.chunks(store, column), shown


def _problem(array: BlskMap, number: int) -> str:
    """Return what is wrong with the head or the index of a file; empty where nothing is."""
    try:
        array._load([number])
    except IngotError as error:
        return " ".join(str(error).split())
    return ""


# The number of rows ------------------------------------------------------------------------------


def _nrows_step(store: Store, path: str, name: str) -> Repair | None:
    """Rebuild ``meta/nrows`` from the last chunks, where it is lost or torn."""
    key = prefix(path) + NROWS
    names = [prefix(path) + each for each in (STORAGE, NROWS)]
    storage, nrows = store.read([Extent(each, 0, LARGEST + 1) for each in names])
    if storage is None:
        return None
    said = "is lost"
    if nrows is not None:
        try:
            parse_nrows(nrows, key)
            return None
        except IngotError:
            said = "cannot be parsed"
    try:
        given = {STORAGE: storage, NROWS: pack_nrows(1)}
        documents = DatasetDocuments.read(store, path, given)
        rows = min(_stored_rows(documents.chunks(store, each)) for each in documents.columns)
    except (IngotError, ValueError):
        return None
    finding = Finding(
        name,
        "document",
        f"{NROWS} {said}",
        key,
        lost="rows of the fill value at the end",
        repair=f"count the rows of the chunks: {rows}",
    )
    return Repair(finding, Commit(publish=(Put(key, pack_nrows(rows)),)))


def _stored_rows(array: BlskMap) -> int:
    """Return how many rows the chunks of an array have, by the last of them."""
    store, capacity, chain = array.store, array.storage.capacity, array._chain
    if not array.storage.shape:
        return 1
    names = (FILE_NAME.fullmatch(name) for name in store.names(array.folder))
    numbers = sorted((int(match[1]) - 1 for match in names if match is not None), reverse=True)
    most = 0
    for number in numbers:
        key = array._key(number)
        (front,) = store.read([Extent(key, 0, slots_begin(capacity))])
        size = store.size(key) or 0
        file = SuperChunk.parse(front or b"", size, capacity, key)
        for entry in reversed(file.used.tolist()):
            found = _image_at(array, key, int(file.offsets[entry]), size)
            chunk = number * capacity + entry
            first = chunk // chain.across * chain.rows
            if most >= first + chain.rows:
                return most
            most = max(most, first + (chain.rows if found is None else found.rows))
        if most:
            return most
    return most


# The index of a file -----------------------------------------------------------------------------


def _index_step(array: BlskMap, number: int, name: str, *, drop: bool) -> Repair | None:
    """Rebuild the entries of an index that do not lead to their chunk."""
    store, capacity, key = array.store, array.storage.capacity, array._key(number)
    begin, size = slots_begin(capacity), store.size(key)
    (front,) = store.read([Extent(key, 0, begin)])
    if size is None or front is None or len(front) < begin:
        return None
    problem = _problem(array, number)
    try:
        head = Head.parse(front, key)
    except IngotError:
        head = Head(array.schema.dtype.itemsize, 0)
    if not head.trailers:
        return None
    stored = np.frombuffer(front, "<i8", capacity, HEAD_BYTES).astype(np.int64)
    bad = _bad_entries(array, number, stored, size)
    due = max(0, min(capacity, array.schema.grid.chunk_count - number * capacity))
    offsets = stored.copy()
    if len(bad):
        images = _search(array, key, begin, size)
        used = {int(each) for each in np.delete(stored, bad)}
        for entry in bad:
            own = [each for each in images.get(number * capacity + entry, []) if each not in used]
            if len(own) == 1:
                offsets[entry] = own[0]
            elif drop or entry >= due:  # An entry behind the last chunk holds nothing.
                offsets[entry] = ABSENT
    rebuilt = [entry for entry in bad if offsets[entry] not in (stored[entry], ABSENT)]
    given_up = [entry for entry in bad if entry < due and offsets[entry] == ABSENT]
    fixed = Head(array.schema.dtype.itemsize, max(due, used_entries(offsets)), head.trailers)
    packed = fixed.pack() + pack_entries(offsets)
    if packed == front or not (problem or rebuilt or given_up):
        return None
    try:
        SuperChunk.parse(packed, size, capacity, key)
    except IngotError:
        return None  # Some entries lead nowhere, and are given up only with drop.
    lost = f"{len(given_up)} chunks" if given_up else ""
    problem = problem or f"{len(bad)} entries of the index do not lead to their chunk"
    repair = f"write the index anew, {len(rebuilt)} entries from chunks in the file"
    inside = [entry for entry in bad if entry < due]
    single = array.schema.grid.coords(number * capacity + inside[0]) if len(inside) == 1 else None
    finding = Finding(name, "index", problem, key, single, lost, repair)
    return Repair(finding, Commit(publish=(Patch(key, 0, packed),)))


def _bad_entries(array: BlskMap, number: int, offsets: NDArray[np.int64], size: int) -> list[int]:
    """Return the entries that do not lead to a chunk of their number."""
    capacity, key = array.storage.capacity, array._key(number)
    begin = slots_begin(capacity)
    bad = []
    for entry in np.flatnonzero(offsets != ABSENT).tolist():
        start = int(offsets[entry])
        found = None
        if begin <= start <= size - HEADER_BYTES:
            found = _image_at(array, key, start, size, whole=False)
        if found is None or found.number != number * capacity + entry:
            bad.append(entry)
    return bad


def _image_at(
    array: BlskMap, key: str, start: int, size: int, *, whole: bool = True
) -> _Image | None:
    """Return the chunk or pack that begins at a place; None where there is none.

    If `whole`, all of its checksums are compared, otherwise only that of its first trailer.
    """
    found = _chunk_at(array, key, start, size, whole=whole)
    if found is None or not whole:
        return found
    length = found.length
    for _ in range(1, array.storage.slot_chunks):
        behind = _chunk_at(array, key, start + length, size, whole=True)
        if behind is None or behind.number != found.number:
            return None
        length += behind.length
    return found._replace(length=length)


def _chunk_at(array: BlskMap, key: str, start: int, size: int, *, whole: bool) -> _Image | None:
    """Return the chunk that begins at a place, with its trailer; None where there is none."""
    store = array.store
    (head,) = store.read([Extent(key, start, HEADER_BYTES)])
    if head is None or len(head) < HEADER_BYTES:
        return None
    length = slots.chunk_bytes(head)
    if length < HEADER_BYTES or start + length > size:
        return None
    try:
        (behind,) = store.read([Extent(key, start + length, trailer.LEAST_BYTES)])
        claimed = trailer.claimed_size(behind or b"")
        if start + length + claimed > size:
            return None
        (data,) = store.read([Extent(key, start + length, claimed)])
        found = trailer.parse(data or b"")
        if found.identity is not None and found.identity != array.storage.identity:
            return None
        if whole:
            (chunk,) = store.read([Extent(key, start, length)])
            header = ChunkHeader.parse(chunk or b"")
            found.check(chunk or b"", header, found.number, found.identity)
    except IngotError:
        return None
    return _Image(found.number, start, length + claimed, found.rows)


def _search(array: BlskMap, key: str, begin: int, size: int) -> dict[int, list[int]]:
    """Return where whole chunks or packs lie in a file, by their numbers."""
    images: dict[int, list[int]] = {}
    for nbytes in _decoded_sizes(array):
        for number, starts in _search_size(array, key, begin, size, nbytes).items():
            images.setdefault(number, []).extend(starts)
    return {number: sorted(set(starts)) for number, starts in images.items()}


def _decoded_sizes(array: BlskMap) -> set[int]:
    """Return the decoded sizes of first chunks of slots, which stand in their headers.

    All chunks of an array have one size. A pack begins with the lengths of its items, of which the
    last pack has fewer.
    """
    if array.storage.kind is None:
        size = int(np.prod(array.schema.chunks, dtype=np.int64))
        return {size * array.schema.dtype.itemsize}
    (rows,), (length,) = array.schema.chunks, array.schema.shape
    return {LENGTH.itemsize * each for each in (min(rows, length), length % rows) if each}


def _search_size(
    array: BlskMap, key: str, begin: int, size: int, nbytes: int
) -> dict[int, list[int]]:
    pattern = nbytes.to_bytes(4, "little")
    images: dict[int, list[int]] = {}
    at = begin
    while at < size:
        (data,) = array.store.read([Extent(key, at, _WINDOW + HEADER_BYTES)])
        if not data:
            break
        place, behind = data.find(pattern), at
        while 0 <= place < _WINDOW + 4:
            start = at + place - 4
            found = _image_at(array, key, start, size) if start >= max(begin, behind) else None
            if found is not None:
                images.setdefault(found.number, []).append(start)
                behind = start + found.length
            place = data.find(pattern, place + 1)
        at += _WINDOW
    return images

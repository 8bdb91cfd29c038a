"""What is wrong with arrays and tables of bcolz beside their chunks, and how it is mended.

A number of rows that is lost follows from the chunk files, a type that is lost only in part: its
size is known, so items become raw bytes. The columns of a table whose ``__rootdirs__`` is lost are
the folders that hold arrays; their order is lost. A length that is larger than what is stored is
cut to it, and columns of different length get that of the shortest, or of the longest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, Final, NamedTuple

import numpy as np

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import CHUNK_LIMIT
from ingot.codecs.compressors import Blosc
from ingot.errors import IngotError
from ingot.formats import json, trailer
from ingot.formats.bcolz.array import (
    ATTRS,
    NO_ATTRS,
    ArrayDocuments,
    BcolzMap,
    DamagedAttributes,
    open_array,
    parse_attrs,
    read_documents,
)
from ingot.formats.bcolz.chunk_file import HEAD_BYTES, PackFiles, check_head
from ingot.formats.bcolz.metadata import (
    SIZES,
    STORAGE,
    BcolzMetadata,
    Storage,
    parse_sizes,
    with_identity,
    without_identity,
)
from ingot.formats.bcolz.ragged import BcolzRaggedMap, ItemStorage, is_items, open_items
from ingot.formats.bcolz.table import DATA, ROOTDIRS
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.folder_table import folder_name
from ingot.formats.format import ArrayNode, KeyTemplate, RaggedNode
from ingot.formats.keys import stored
from ingot.formats.packs import LENGTH
from ingot.formats.paths import joined, prefix
from ingot.stores.store import Commit, Delete, Edit, Extent, Feature, Put, Store

__all__ = ["findings", "next_repair", "suspects"]

_SHUFFLES: Final = {"none": 0, "shuffle": 1, "bitshuffle": 2}
_MOST_CHUNKS: Final = 1 << 20
_LOST_SIZES: Final = "count the rows of the chunk files"
_LOST_STORAGE: Final = "take size and codec of the items from a chunk; items become raw bytes"
_LOST_NAMES: Final = "name the folders that hold arrays; their order is lost"
_SHORTEN: Final = "shorten the array to the rows that are stored"


def findings(store: Store, path: str, name: str) -> Iterator[Finding]:
    """Yield what is wrong with the documents and lengths of an array or a table."""
    if _is_table(store, path):
        yield from _table_findings(store, path, name)
    elif _has_array(store, path):
        yield from _array_findings(store, path, name)


def next_repair(store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
    """Return the next step that mends an array or a table."""
    if _is_table(store, path):
        return _table_repair(store, path, request, name)
    return _array_repair(store, path, name, None) if _has_array(store, path) else None


def suspects(store: Store, path: str) -> bool:
    """Return whether a folder without markers was an array or a table of bcolz.

    An array has chunk files. A table has an ``__attrs__`` beside the folders of its columns.
    """
    if Feature.LIST not in store.features:
        return False
    start = prefix(path)
    (attrs,) = store.read([Extent(start + ATTRS, 0, 1)])
    if _has_chunks(store, path):
        return True
    return attrs is not None and bool(_column_folders(store, path))


class _Chunk(NamedTuple):
    """What the head of a chunk file says."""

    number: int
    header: ChunkHeader
    size: int
    rows: int | None
    """The rows that the trailer states."""
    identity: int | None

    @property
    def is_whole(self) -> bool:
        """Whether the file has all bytes that its header claims."""
        return self.size >= HEAD_BYTES + self.header.cbytes


@dataclass(frozen=True, slots=True)
class _Stored:
    """The chunk files of an array: which numbers there are, and how long the first run is."""

    numbers: list[int]

    @property
    def run(self) -> int:
        """The number of chunks from the first one on, without a gap."""
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], enumerate(self.numbers)))


def _template(path: str) -> KeyTemplate:
    return KeyTemplate(f"{prefix(path)}data/__", suffix=".blp")


def _chunk_numbers(store: Store, path: str) -> _Stored:
    return _Stored(sorted(number for (number,) in stored(store, _template(path), 1)))


def _read_chunk(store: Store, path: str, number: int) -> _Chunk | None:
    """Return what a chunk file says; None where it says nothing that can be believed."""
    key = _template(path).key((number,))
    size = store.size(key)
    (head,) = store.read([Extent(key, 0, HEAD_BYTES + HEADER_BYTES)])
    if size is None or head is None:
        return None
    try:
        check_head(head)
        claim = int.from_bytes(head[HEAD_BYTES + 12 : HEAD_BYTES + 16], "little")
        header = ChunkHeader.parse(head[HEAD_BYTES:], stored=max(claim, HEADER_BYTES))
        header.check_decodable()
    except IngotError:
        return None
    end = HEAD_BYTES + header.cbytes
    rows, identity = None, None
    if size > end:
        (behind,) = store.read([Extent(key, end, size - end)])
        try:
            found = trailer.parse(behind or b"")
        except IngotError:
            return _Chunk(number, header, size, None, None)
        rows, identity = found.rows, found.identity
    return _Chunk(number, header, size, rows, identity)


def _is_table(store: Store, path: str) -> bool:
    start = prefix(path)
    (found,) = store.read([Extent(start + ROOTDIRS, 0, 1)])
    if found is not None:
        return True
    if _has_array(store, path) or Feature.LIST not in store.features:
        return False
    return bool(_column_folders(store, path))


def _has_array(store: Store, path: str) -> bool:
    (found,) = read_documents(store, [path])
    return found.is_array or _has_chunks(store, path)


def _has_chunks(store: Store, path: str) -> bool:
    if Feature.LIST not in store.features:
        return False
    names = store.names(prefix(path) + DATA)
    return any(_template("").parse(f"data/{name}", 1) is not None for name in names)


def _column_folders(store: Store, path: str) -> list[str]:
    """Return the names of folders that hold an array or a table, sorted."""
    start, found = prefix(path), []
    for name in store.names(path):
        folder = name.removesuffix("/")
        if not name.endswith("/") or name.startswith("."):
            continue
        (mark,) = store.read([Extent(f"{start}{folder}/{ROOTDIRS}", 0, 1)])
        if mark is not None or _has_array(store, start + folder):
            found.append(folder)
    return found


# Arrays ------------------------------------------------------------------------------------------


def _array_findings(store: Store, path: str, name: str) -> Iterator[Finding]:
    step = _array_repair(store, path, name, None)
    if step is not None and step.finding.kind != "attributes":
        yield step.finding
    (documents,) = read_documents(store, [path])
    damaged = parse_attrs(documents.attrs, ATTRS)
    if isinstance(damaged, DamagedAttributes):
        yield _attrs_step(path, name, documents.attrs or b"").finding


def _array_repair(store: Store, path: str, name: str, rows: int | None) -> Repair | None:
    """Return the next step that mends an array; `rows` is the length of its table, if known."""
    start = prefix(path)
    (documents,) = read_documents(store, [path])
    items = is_items(documents.storage)
    step = _pack_repair(store, path, name, documents)
    if step is not None or items:
        pass
    elif not _is_good(
        lambda data: json.parse_object(data, STORAGE, allow_nan=True), documents.storage
    ):
        step = _storage_step(store, path, name, documents, rows)
    elif not _is_good(Storage.parse, documents.storage):
        return None  # It says something that this version does not know.
    elif not _is_good(parse_sizes, documents.sizes):
        step = _sizes_step(store, path, name, documents)
    elif not _is_good(lambda _: open_array(store, path), b""):
        return None  # The documents contradict each other; neither is known to be wrong.
    else:
        step = _length_step(store, path, name)
    if step is None and isinstance(parse_attrs(documents.attrs, start + ATTRS), DamagedAttributes):
        return _attrs_step(path, name, documents.attrs or b"")
    return step


# Items of variable length ------------------------------------------------------------------------


class _Pack(NamedTuple):
    """What the chunks and trailers of a pack say."""

    rows: int
    blosc: ChunkHeader
    identity: int | None


def _pack_repair(store: Store, path: str, name: str, documents: ArrayDocuments) -> Repair | None:
    """Return the next step that mends variable-length items; None for arrays, and without a fault.

    A pack states how many items it has, and not what they are: of a lost type, bytes are left.
    """
    start = prefix(path)
    found = _chunk_numbers(store, path)
    readable = _is_good(
        lambda data: json.parse_object(data, STORAGE, allow_nan=True), documents.storage
    )
    if readable and not is_items(documents.storage):
        return None
    packs = {number: _read_pack(store, path, number) for number in {0, found.run - 1} if found.run}
    last = packs.get(found.run - 1)
    if not readable:
        first = packs.get(0)
        return None if first is None else _kind_step(path, name, documents, first)
    if not _is_good(ItemStorage.parse, without_identity(documents.storage or b"")[0]):
        return None  # It says something that this version does not know.
    storage = ItemStorage.parse(without_identity(documents.storage or b"")[0])
    counted = None if found.run and last is None else 0
    if last is not None:
        counted = (found.run - 1) * storage.chunklen + min(last.rows, storage.chunklen)
    if counted is None or found.run != len(found.numbers):
        return None  # Packs in the middle are lost, or damaged.
    if not _is_good(parse_sizes, documents.sizes):
        said = "is lost" if documents.sizes is None else "cannot be parsed"
        finding = Finding(
            name,
            "document",
            f"{SIZES} {said}",
            start + SIZES,
            lost="the number of items, where the last pack has more",
            repair="count the items of the packs",
        )
        sizes = json.pack_line({"shape": [counted]}, SIZES)
        return Repair(finding, Commit(publish=(Put(start + SIZES, sizes),)))
    shape, fields = parse_sizes(documents.sizes or b"")
    if shape[0] <= counted:
        return None
    problem = f"{shape[0]} items are claimed, {counted} are stored"
    finding = Finding(
        name,
        "length",
        problem,
        start + SIZES,
        lost=f"items [{counted}:{shape[0]}]",
        repair=_SHORTEN,
    )
    sizes = json.pack_line({**fields, "shape": [counted]}, SIZES)
    return Repair(finding, Commit(publish=(Put(start + SIZES, sizes),)))


def _kind_step(path: str, name: str, documents: ArrayDocuments, first: _Pack) -> Repair | None:
    """Rebuild the ``meta/storage`` of items from their first pack."""
    key = prefix(path) + STORAGE
    said = "is lost" if documents.storage is None else "cannot be parsed"
    values = {
        "dtype": "bytes",
        "cparams": {
            "clevel": 5,
            "shuffle": _SHUFFLES.get(first.blosc.filter, 0),
            "cname": first.blosc.codec if not first.blosc.memcpyed else "lz4",
            "quantize": 0,
        },
        "chunklen": first.rows,
        "expectedlen": first.rows,
        "dflt": None,
    }
    data = json.pack_line(values, STORAGE, allow_nan=True)
    if not _is_good(ItemStorage.parse, data):
        return None
    if first.identity is not None:
        data = with_identity(data, first.identity)
    finding = Finding(
        name,
        "document",
        f"{STORAGE} {said}",
        key,
        lost="the kind of the items",
        repair="take codec and length of packs from the first; items become bytes",
    )
    return Repair(finding, Commit(publish=(Put(key, data),)))


def _read_pack(store: Store, path: str, number: int) -> _Pack | None:
    """Return what a pack says, if its trailers agree with its chunks; None for other files."""
    key = _template(path).key((number,))
    (data,) = store.read([Extent(key)])
    if data is None:
        return None
    try:
        lengths, contents = PackFiles(Blosc(), CHUNK_LIMIT // LENGTH.itemsize).chunks(data)
        rows, identity = lengths.trailer.rows, lengths.trailer.identity
        lengths.items(rows, rows)
        for chunk in (lengths, contents):
            chunk.check(number, identity, rows)
    except IngotError:
        return None
    return _Pack(rows, contents.header, identity) if rows else None


def _is_good(parse: Any, data: bytes | None) -> bool:
    if data is None:
        return False
    try:
        parse(data)
    except IngotError:
        return False
    return True


def _attrs_step(path: str, name: str, data: bytes) -> Repair:
    key = prefix(path) + ATTRS
    problem = f"the attributes cannot be parsed: {len(data)} bytes"
    finding = Finding(
        name, "attributes", problem, key, lost="the attributes", repair="set them to none"
    )
    return Repair(finding, Commit(publish=(Put(key, NO_ATTRS),)))


def _storage_step(
    store: Store, path: str, name: str, documents: ArrayDocuments, rows: int | None
) -> Repair | None:
    """Rebuild ``meta/storage`` from the first chunk: item size, codec, filter, chunk length."""
    key = prefix(path) + STORAGE
    said = "is lost" if documents.storage is None else "cannot be parsed"
    numbers = _chunk_numbers(store, path)
    first = _read_chunk(store, path, 0) if numbers.run else None
    if first is None:
        return None
    header, shape = first.header, None
    if _is_good(parse_sizes, documents.sizes):
        shape, _ = parse_sizes(documents.sizes or b"")
        rows = shape[0]
    itemsize = header.typesize
    chunk_rows = first.rows if numbers.run > 1 else None
    if rows is not None and numbers.run == len(numbers.numbers) and numbers.numbers:
        # The bytes of all chunks and the rows tell the bytes of a row.
        last = _read_chunk(store, path, numbers.numbers[-1])
        total = header.nbytes * (numbers.run - 1) + (last.header.nbytes if last else 0)
        inner = int(np.prod(shape[1:])) if shape else 1
        if rows and inner and not total % (rows * inner):
            itemsize = max(total // (rows * inner), 1)
    elif chunk_rows and shape is None and not header.nbytes % chunk_rows:
        itemsize = header.nbytes // chunk_rows
    inner = int(np.prod(shape[1:])) if shape else 1
    row = max(1, itemsize * max(1, inner))
    values = {
        "dtype": f"|V{itemsize}" if itemsize > 1 or header.typesize > 1 else "uint8",
        "cparams": {
            "clevel": 5,
            "shuffle": _SHUFFLES.get(header.filter, 1),
            "cname": header.codec if not header.memcpyed else "lz4",
            "quantize": 0,
        },
        "chunklen": max(1, header.nbytes // row),
        "expectedlen": rows or 0,
        "dflt": 0 if itemsize == 1 else "\0" * itemsize,
    }
    if first.identity is not None:
        values["x_id"] = f"{first.identity:016x}"
    finding = Finding(
        name,
        "document",
        f"{STORAGE} {said}",
        key,
        lost="the type of the items and the fill value",
        repair=_LOST_STORAGE,
    )
    data = json.pack_line(values, STORAGE, allow_nan=True)
    try:
        Storage.parse(data)
    except IngotError:
        return None
    return Repair(finding, Commit(publish=(Put(key, data),)))


def _sizes_step(store: Store, path: str, name: str, documents: ArrayDocuments) -> Repair | None:
    """Rebuild ``meta/sizes`` from the chunk files."""
    assert documents.storage is not None
    key = prefix(path) + SIZES
    storage = Storage.parse(documents.storage)
    said = "is lost" if documents.sizes is None else "cannot be parsed"
    found = _chunk_numbers(store, path)
    run, item = found.run, storage.dtype.itemsize
    inner, rows = 1, 0
    if storage.dtype == np.dtype(object):
        rows = run
    elif run:
        whole = [_read_chunk(store, path, number) for number in {0, run - 1}]
        if any(each is None or not each.is_whole for each in whole):
            run -= 1
        first = _read_chunk(store, path, 0) if run else None
        last = _read_chunk(store, path, run - 1) if run else None
        if first is not None and last is not None:
            length = storage.chunklen
            if first.rows and run == 1:
                length = first.rows
            elif run == 1:
                length = min(storage.chunklen, first.header.nbytes // item)
            row = max(1, first.header.nbytes // length)
            inner = max(1, row // item)
            rows = storage.chunklen * (run - 1) + last.header.nbytes // (inner * item)
    shape = (rows,) if inner == 1 else (rows, inner)
    metadata = BcolzMetadata.of(storage, shape, {})
    lost = "" if inner == 1 else "the shape of a row, which is flat now"
    finding = Finding(
        name, "document", f"{SIZES} {said}", key, lost=lost or "the length", repair=_LOST_SIZES
    )
    return Repair(finding, Commit(publish=(Put(key, metadata.pack_sizes()),)))


def _length_step(store: Store, path: str, name: str) -> Repair | None:
    """Cut the length of an array to the rows that are stored, where the last ones are missing."""
    array = open_array(store, path)
    rows = _stored_rows(store, array)
    claimed = array.schema.shape[0]
    if rows is None or rows >= claimed:
        return None
    metadata = array.metadata.resized(rows)
    key = prefix(path) + SIZES
    finding = Finding(
        name,
        "length",
        f"{claimed} rows are claimed, {rows} are stored",
        key,
        lost=f"rows [{rows}:{claimed}]",
        repair=_SHORTEN,
    )
    keep: tuple[Edit, ...] = ()
    if not rows:
        keep = (Put(f"{prefix(path)}data/.keep", b""),)
    template, count = array.template, metadata.schema.grid.counts[0]
    # What is left of a chunk that was cut short would be taken for a chunk by the next append.
    torn = [number for number in _chunk_numbers(store, path).numbers if number >= count]
    removed = tuple(Delete(template.key((number,))) for number in torn)
    return Repair(finding, Commit(keep, (Put(key, metadata.pack_sizes()),), removed))


def _stored_rows(store: Store, array: BcolzMap) -> int | None:
    """Return how many rows are stored up to the first chunk that is missing or cut short.

    None where chunks behind it are stored whole: then rows in the middle are lost, and only the
    caller decides what becomes of them.
    """
    schema = array.schema
    count = schema.grid.counts[0]
    if Feature.LIST not in store.features:
        return None
    found = _chunk_numbers(store, array.path)
    numbers = [number for number in found.numbers if number < count]
    if not count or len(numbers) > _MOST_CHUNKS:
        return None
    if schema.dtype == np.dtype(object):
        return found.run if len(numbers) == found.run else None
    step = schema.chunks[0]
    row = max(1, schema.dtype.itemsize * int(np.prod(schema.shape[1:])))
    torn: list[int] = []
    while numbers:
        last = _read_chunk(store, array.path, numbers[-1])
        if last is not None and last.is_whole:
            break
        torn.append(numbers.pop())
    if numbers != list(range(len(numbers))):
        return None
    if not numbers:
        return 0
    assert last is not None
    inside = min(last.header.nbytes // row, step)
    return min((len(numbers) - 1) * step + inside, schema.shape[0])


# Tables ------------------------------------------------------------------------------------------


def _table_findings(store: Store, path: str, name: str) -> Iterator[Finding]:
    names = _names(store, path)
    if names is None:
        step = _names_step(store, path, name)
        if step is not None:
            yield step.finding
        names = _column_folders(store, path)
    for column in names:
        folder = _folder_of(store, path, column)
        if folder is None:
            yield _absent_column(path, name, column).finding
        elif _is_table(store, folder):
            yield from _table_findings(store, folder, f"{name}: column {column}")
        else:
            yield from _array_findings(store, folder, f"{name}: column {column}")
    lengths = _lengths_of(_columns(store, path, names))
    if len(set(lengths.values())) > 1:
        yield _lengths_finding(path, name, lengths, longest=False)
    unnamed = sorted(set(_listed(store, path)) - set(map(folder_name, names)))
    if unnamed:
        problem = f"{len(unnamed)} folders hold arrays that {ROOTDIRS} does not name: {unnamed[0]}"
        yield Finding(name, "stray", problem, prefix(path) + unnamed[0], severity="note")


def _listed(store: Store, path: str) -> list[str]:
    return _column_folders(store, path) if Feature.LIST in store.features else []


def _table_repair(store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
    names = _names(store, path)
    if names is None:
        return _names_step(store, path, name)
    columns = _columns(store, path, names)
    lengths = _lengths_of(columns)
    known = max(set(lengths.values()), key=list(lengths.values()).count) if lengths else None
    for column in names:
        folder = _folder_of(store, path, column)
        inner = f"{name}: column {column}"
        if folder is None:
            return _absent_column(path, name, column, store)
        if _is_table(store, folder):
            step = _table_repair(store, folder, request, inner)
        else:
            step = _array_repair(store, folder, inner, known)
        if step is not None:
            return step
    (attrs,) = store.read([Extent(prefix(path) + ATTRS, 0, json.LARGEST + 1)])
    if isinstance(parse_attrs(attrs, ATTRS), DamagedAttributes):
        return _attrs_step(path, name, attrs or b"")
    if len(set(lengths.values())) > 1:
        return _lengths_step(path, request, name, columns)
    return None


def _names(store: Store, path: str) -> list[str] | None:
    """Return the columns that ``__rootdirs__`` names; None where it is lost or damaged."""
    key = prefix(path) + ROOTDIRS
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        return None
    try:
        values = json.parse_object(data, key)
    except IngotError:
        return None
    names: list[Any] = []
    for listed in (values.get("x_names", values.get("names")), values.get("names")):
        if not isinstance(listed, list):
            return None
        names += listed
    if not all(isinstance(name, str) for name in names):
        return None
    return list(dict.fromkeys(names))


def _names_step(store: Store, path: str, name: str) -> Repair | None:
    key = prefix(path) + ROOTDIRS
    (data,) = store.read([Extent(key, 0, 1)])
    said = "is lost" if data is None else "cannot be parsed"
    found = _listed(store, path)
    if not found:
        return None
    finding = Finding(
        name, "document", f"{ROOTDIRS} {said}", key, lost="the order of columns", repair=_LOST_NAMES
    )
    text = json.pack_line({"names": found}, ROOTDIRS)
    return Repair(finding, Commit(publish=(Put(key, text),)))


def _folder_of(store: Store, path: str, column: str) -> str | None:
    """Return the folder of a column; None where nothing of it is stored."""
    own = folder_name(column)
    for folder in (joined(path, own), joined(joined(path, DATA), own)):
        if _has_array(store, folder) or store.size(f"{folder}/{ROOTDIRS}") is not None:
            return folder
    return None


def _absent_column(path: str, name: str, column: str, store: Store | None = None) -> Repair:
    key = prefix(path) + ROOTDIRS
    finding = Finding(
        name,
        "column",
        f"column {column!r} is named, and nothing of it is stored",
        key,
        lost=f"column {column!r}",
        repair=f"take it out of {ROOTDIRS}",
    )
    if store is None:
        return Repair(finding, Commit())
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    values = dict(json.parse_object(data or b"{}", key))
    for field in ("names", "x_names"):
        if field in values:
            values[field] = [each for each in values[field] if each != column]
    return Repair(finding, Commit(publish=(Put(key, json.pack_line(values, ROOTDIRS)),)))


def _columns(store: Store, path: str, names: list[str]) -> dict[str, BcolzMap | BcolzRaggedMap]:
    """Return the columns that open, nested ones by "a.b"."""
    found: dict[str, BcolzMap | BcolzRaggedMap] = {}
    for column in names:
        folder = _folder_of(store, path, column)
        if folder is None:
            continue
        if _is_table(store, folder):
            inner = _columns(store, folder, _names(store, folder) or [])
            found |= {f"{column}.{each}": opened for each, opened in inner.items()}
            continue
        try:
            found[column] = _opened(store, folder)
        except IngotError:
            continue
    return found


def _opened(store: Store, folder: str) -> BcolzMap | BcolzRaggedMap:
    (documents,) = read_documents(store, [folder])
    if is_items(documents.storage):
        return open_items(store, folder, documents, parse_attrs(documents.attrs, ATTRS))
    return open_array(store, folder)


def _lengths_of(columns: Mapping[str, BcolzMap | BcolzRaggedMap]) -> dict[str, int]:
    return {name: column.schema.shape[0] for name, column in columns.items()}


def _lengths_finding(path: str, name: str, lengths: Mapping[str, int], *, longest: bool) -> Finding:
    least, most = min(lengths.values()), max(lengths.values())
    shown = ", ".join(f"{column} {length}" for column, length in list(lengths.items())[:10])
    repair = f"give all columns {least} rows, or with longest {most}"
    return Finding(
        name,
        "length",
        f"columns of different length: {shown}",
        prefix(path) + ROOTDIRS,
        lost=f"rows [{least}:{most}] of some columns",
        repair=f"give all columns {most} rows" if longest else repair,
    )


def _lengths_step(
    path: str,
    request: RepairRequest,
    name: str,
    columns: Mapping[str, BcolzMap | BcolzRaggedMap],
) -> Repair:
    lengths = _lengths_of(columns)
    due = max(lengths.values()) if request.longest else min(lengths.values())
    commits = []
    for column, length in lengths.items():
        opened = columns[column]
        if length > due:
            sizes = opened.metadata.resized(due).pack_sizes()
            commits.append(Commit(publish=(Put(prefix(opened.path) + SIZES, sizes),)))
        elif length < due:
            node = RaggedNode(opened) if isinstance(opened, BcolzRaggedMap) else ArrayNode(opened)
            commits.append(request.grow(node, due))
    finding = _lengths_finding(path, name, lengths, longest=request.longest)
    joint = Commit(
        tuple(edit for each in commits for edit in each.prepare),
        tuple(edit for each in commits for edit in each.publish),
        tuple(edit for each in commits for edit in each.cleanup),
    )
    return Repair(finding, joint)

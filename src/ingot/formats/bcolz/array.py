"""The arrays of bcolz 1.x: a folder with two documents, and a file for each chunk.

This module has the keys of an array (``meta/storage``, ``meta/sizes``, ``__attrs__``,
``data/__N.blp``), opens and creates arrays, and orders the edits of a change. Documents are parsed
and packed by `metadata`, chunk files by `chunk_file`.

The number of rows in ``meta/sizes`` is what a commit switches: chunks beyond it, and rows beyond it
in the last chunk, do not count. An append writes chunks first and the number last.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import CHUNK_LIMIT, ChunkSpec
from ingot.dtypes import DType
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import json
from ingot.formats.bcolz import types as bcolz_types
from ingot.formats.bcolz.chunk_file import zone_in
from ingot.formats.bcolz.metadata import (
    SIZES,
    STORAGE,
    BcolzMetadata,
    Storage,
    check_stages,
    default_chunk,
    draw_identity,
    row_bytes,
    with_identity,
)
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    KeyTemplate,
    Locations,
    Request,
)
from ingot.formats.keys import all_removals, stored_difference
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Delete, Edit, Extent, Put, Store

__all__ = [
    "ATTRS",
    "KEEP",
    "NO_ATTRS",
    "ArrayDocuments",
    "BcolzColumnMap",
    "BcolzFolder",
    "BcolzMap",
    "DamagedAttributes",
    "StoredAttributes",
    "create_array",
    "design",
    "document_extents",
    "open_array",
    "open_column",
    "pack_attrs",
    "parse_attrs",
    "read_documents",
    "template_of",
]

ATTRS: Final = "__attrs__"

_OBJECT: Final = np.dtype(object)
KEEP: Final = ".keep"
"""The file that keeps the folder of chunks where there are none."""
NO_ATTRS: Final = b"{}\n"


class ArrayDocuments(NamedTuple):
    """The documents in a folder that may be an array, each None when absent."""

    storage: bytes | None = None
    sizes: bytes | None = None
    attrs: bytes | None = None

    @property
    def is_array(self) -> bool:
        """Whether one of the two documents that mark an array is present."""
        return self.storage is not None or self.sizes is not None


# Every change of an array asks for it several times.
@lru_cache(maxsize=1024)
def template_of(path: str) -> KeyTemplate:
    """Return how the keys of chunks in a folder follow from their numbers."""
    return KeyTemplate(f"{prefix(path)}data/__", suffix=".blp", leading=1)


class FolderMetadata(Protocol):
    """The metadata of what lies in a folder, as its map needs them."""

    @property
    def schema(self) -> ArraySchema | RaggedSchema:
        """What lies in the folder."""
        ...

    def described(self, attrs: Mapping[str, Any]) -> Self:
        """Return the metadata with other attributes."""
        ...


Metadata = TypeVar("Metadata", bound=FolderMetadata)


@dataclass(frozen=True, slots=True)
class BcolzFolder(Generic[Metadata]):
    """A folder with documents, and files that are numbered: an array, or variable-length items."""

    store: Store
    metadata: Metadata
    path: str = ""
    found: ArrayDocuments = field(default=ArrayDocuments(), compare=False, repr=False)
    """The documents that the map was read from, or that its commit writes."""

    @property
    def file_count(self) -> int:
        """The number of files in ``data``."""
        raise NotImplementedError

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates: only the first axis has more than one file."""
        return template_of(self.path)

    @property
    def documents(self) -> Documents:
        """The documents of the folder, by key."""
        start = prefix(self.path)
        storage, sizes, attrs = self.found
        documents = {start + STORAGE: storage, start + SIZES: sizes}
        # Attributes that are read anew whenever they are asked for cannot be out of date.
        if not isinstance(self.metadata.schema.attrs, StoredAttributes):
            documents[start + ATTRS] = attrs
        return documents

    def described(self, attrs: Mapping[str, Any]) -> tuple[Self, Commit]:
        """Return the map with other attributes."""
        data = pack_attrs(attrs)
        metadata, documents = self.metadata.described(attrs), self.found._replace(attrs=data)
        commit = Commit(publish=(Put(self._key(ATTRS), data),))
        return replace(self, metadata=metadata, found=documents), commit

    def removed(self) -> Commit:
        """Return the commit that removes all that lies in the folder."""
        start = prefix(self.path)
        files = all_removals(self.store, self.template, (self.file_count,))
        documents = tuple(Delete(start + name) for name in (SIZES, STORAGE, ATTRS))
        return Commit(publish=documents, cleanup=(*files, Delete(f"{start}data/{KEEP}")))

    def keys(self) -> Iterator[str]:
        """Yield the keys of the folder: of its documents, and of all files."""
        yield from (self._key(name) for name in (STORAGE, SIZES, ATTRS))
        yield self._key(f"data/{KEEP}")
        for number in range(self.file_count):
            yield self.template.key((number,))

    def moved(self, path: str) -> Self:
        """Return the map of the same data in another folder."""
        return replace(self, path=path, metadata=self._with_attributes_of(self.store, path))

    def _with_attributes_of(self, store: Store, path: str) -> Metadata:
        """Return the metadata; attributes that are read when they are asked for come from there."""
        if not isinstance(self.metadata.schema.attrs, StoredAttributes):
            return self.metadata
        return self.metadata.described(StoredAttributes(store, path))

    def _key(self, name: str) -> str:
        return prefix(self.path) + name


@dataclass(frozen=True, slots=True)
class BcolzMap(BcolzFolder[BcolzMetadata]):
    """The chunks of one array, each in its own file; no chunk may be absent."""

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.metadata.schema

    @property
    def file_count(self) -> int:
        """The number of chunks."""
        return self.schema.grid.counts[0]

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields of ``meta/storage`` that neither bcolz nor Ingot defines."""
        return self.metadata.storage.unknown_fields

    def annotated(self, fields: Mapping[str, Any]) -> Commit:
        """Return the commit that stores ``meta/storage`` with such fields."""
        storage = self.metadata.storage.annotated(fields)
        return Commit(publish=(Put(self._key(STORAGE), storage.pack()),))

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: each is a whole file, with head and trailer."""
        return Locations(self.template.keys(coords))

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks, b"" for chunks without one."""
        keys = [self.template.key((number,)) for number in numbers]
        found = self.store.read([Extent(key) for key in keys])
        identity = self.metadata.storage.identity
        zones = []
        for number, key, data in zip(numbers, keys, found, strict=True):
            try:
                zones.append(b"" if data is None else zone_in(data, number, identity))
            except IngotError as error:
                error.add_note(f"in {key!r} of {self.store.location}")
                raise
        return zones

    def reopened(self, store: Store) -> "BcolzMap":
        """Return the map of the same array in its current state in `store`."""
        now = open_array(store, self.path)
        return replace(self, store=store, metadata=now.metadata, found=now.found)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        template = self.template
        edits: list[Edit] = []
        for coords, data in encoded.items():
            key = template.key(coords)
            edits.append(Delete(key) if data is None else Put(key, data))
        return Commit(publish=tuple(edits))

    def resized(self, shape: tuple[int, ...]) -> "tuple[BcolzMap, Commit]":
        """Return the map with another number of rows; the commit switches by that number.

        Before the array grows, the caller stores the chunks of all new rows.
        """
        old = self.schema.shape
        if len(shape) != len(old) or (shape[0] and shape[1:] != old[1:]):
            raise UnsupportedError(
                f"bcolz: {list(old)} cannot become {list(shape)}: "
                "only the number of rows can change"
            )
        metadata = self.metadata.resized(shape[0])
        prepare: tuple[Edit, ...] = ()
        sizes = metadata.pack_sizes()
        documents = self.found._replace(sizes=sizes)
        if metadata.storage is not self.metadata.storage:
            # The length of chunks changes only while the array has no rows.
            storage = metadata.storage.pack()
            prepare = (Put(self._key(STORAGE), storage),)
            documents = documents._replace(storage=storage)
        if not shape[0] and self.schema.shape[0]:
            # The folder of the chunks stays, also where the array is moved or copied.
            prepare = (*prepare, Put(self._key(f"data/{KEEP}"), b""))
        publish = (Put(self._key(SIZES), sizes),)
        template = self.template
        inside, outside = self.schema.grid.counts[:1], metadata.schema.grid.counts[:1]
        cleanup: tuple[Edit, ...] = ()
        if inside > outside:
            found = stored_difference(self.store, template, inside, outside)
            cleanup = tuple(Delete(template.key(coords)) for coords in found)
        after = type(self)(self.store, metadata, self.path, documents)
        return after, Commit(prepare, publish, cleanup)


@dataclass(frozen=True, slots=True)
class BcolzColumnMap(BcolzMap):
    """The chunks of a column that was opened without its table, which owns its length."""

    @classmethod
    def of(cls, chunks: BcolzMap) -> "BcolzColumnMap":
        """Return the map of the same chunks as a column."""
        return cls(chunks.store, chunks.metadata, chunks.path, chunks.found)

    def resized(self, shape: tuple[int, ...]) -> "tuple[BcolzMap, Commit]":
        """Raise `UnsupportedError`: the other columns would keep their length."""
        raise UnsupportedError(
            f"{self.store.location}: {self.path!r} is a column; open the table to change its length"
        )

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: the table would still name the column."""
        raise UnsupportedError(
            f"{self.store.location}: {self.path!r} is a column; open the table to drop it"
        )


class DamagedAttributes(Mapping[str, Any]):
    """Attributes whose document is damaged: every access raises the error of the parser.

    The data of the array do not depend on them, so the array still opens.

    >>> DamagedAttributes(CorruptionError("__attrs__: the document is empty"))["units"]
    Traceback (most recent call last):
    ingot.errors.CorruptionError: __attrs__: the document is empty
    """

    __slots__ = ("_error",)

    def __init__(self, error: IngotError) -> None:
        self._error = error

    def __getitem__(self, key: str) -> Any:
        raise self._error

    def __iter__(self) -> Any:
        raise self._error

    def __len__(self) -> int:
        raise self._error


class StoredAttributes(Mapping[str, Any]):
    """The attributes of a column: its ``__attrs__``, which is read when they are asked for.

    A table has one such document for each column, and most uses of a table ask for none. Every
    access sees the document as it is stored then; it is read again only if it has changed.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"price/__attrs__": b'{"unit": "EUR"}'})
    >>> StoredAttributes(store, "price")["unit"]
    'EUR'
    """

    __slots__ = ("_kept", "_key", "_store")

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._key = prefix(path) + ATTRS
        # One tuple, so that other threads never see half of a change.
        self._kept: tuple[Hashable, Mapping[str, Any]] | None = None

    def __getitem__(self, key: str) -> Any:
        return self._values()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(self._values())

    def __repr__(self) -> str:
        return f"StoredAttributes({self._store!r}, {self._key!r})"

    def _values(self) -> Mapping[str, Any]:
        # Asked for first: a document that changes after that has another identity.
        identity = self._store.identity(self._key)
        kept = self._kept
        if kept is not None and identity is not None and kept[0] == identity:
            return kept[1]
        (data,) = self._store.read([Extent(self._key, 0, json.LARGEST + 1)])
        values = parse_attrs(data, f"{self._store.location}: {self._key}")
        self._kept = identity, values
        return values


def document_extents(paths: Sequence[str]) -> list[Extent]:
    """Return where the documents of arrays lie, in the order of the fields of `ArrayDocuments`."""
    keys = [prefix(path) + name for path in paths for name in (STORAGE, SIZES, ATTRS)]
    # One byte more than allowed shows that a document is too long without reading all of it.
    return [Extent(key, 0, json.LARGEST + 1) for key in keys]


def read_documents(store: Store, paths: Sequence[str]) -> list[ArrayDocuments]:
    """Return the documents of some folders, by one read."""
    found = store.read(document_extents(paths))
    return [ArrayDocuments(*found[at : at + 3]) for at in range(0, len(found), 3)]


def open_array(store: Store, path: str = "", found: ArrayDocuments | None = None) -> BcolzMap:
    """Return the array at `path`; `found` are its documents, if they were read already."""
    if found is None:
        (found,) = read_documents(store, [path])
    attrs = parse_attrs(found.attrs, f"{store.location}: {prefix(path)}{ATTRS}")
    return _described_by(store, path, found, attrs)


def open_column(store: Store, path: str, found: ArrayDocuments) -> BcolzMap:
    """Return the array at `path`, whose attributes are read when they are asked for."""
    return _described_by(store, path, found, StoredAttributes(store, path))


def _described_by(
    store: Store, path: str, found: ArrayDocuments, attrs: Mapping[str, Any]
) -> BcolzMap:
    storage, sizes = prefix(path) + STORAGE, prefix(path) + SIZES
    if not found.is_array:
        raise NotFoundError(f"{store.location}: no {storage} and no {sizes}")
    try:
        if found.storage is None:
            raise FormatError(f"{storage} is missing: the type of the items is lost")
        if found.sizes is None:
            raise CorruptionError(f"{sizes} is missing: the number of rows is lost")
        metadata = BcolzMetadata.parse(found.storage, found.sizes, attrs, (storage, sizes))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    return BcolzMap(store, metadata, path, found)


def parse_attrs(data: bytes | None, where: str = ATTRS) -> Mapping[str, Any]:
    """Return the attributes of an ``__attrs__``; an absent document has none.

    >>> parse_attrs(b'{"temp": 22.5, "limit": NaN}')
    {'temp': 22.5, 'limit': nan}
    """
    if data is None or data == NO_ATTRS:
        return {}
    try:
        return json.parse_object(data, where, allow_nan=True)
    except (CorruptionError, FormatError) as error:
        # bcolz truncates the document before it rewrites it; a crash in between loses attributes.
        return DamagedAttributes(error)


def pack_attrs(attrs: Mapping[str, Any]) -> bytes:
    """Return the ``__attrs__`` that `parse_attrs` reads back.

    >>> pack_attrs({"temp": 22.5})
    b'{"temp": 22.5}\\n'
    """
    return json.pack_line(dict(attrs), ATTRS, allow_nan=True)


def design(request: Request) -> ArraySchema:
    """Return the layout of a new array, which has chunks along its first axis only.

    >>> design(Request((10, 3), np.dtype("<f8"), np.float64(0))).chunks
    (43690, 3)
    """
    shape, dtype = request.shape, request.dtype
    if not shape:
        raise UnsupportedError("bcolz: an array has one axis at least")
    bcolz_types.pack(dtype)
    if _has_sub_arrays(dtype):
        # bcolz cannot store the fill value of such a structure, and opens no array without one.
        raise UnsupportedError(f"bcolz: {dtype} has fields that are arrays")
    rows = _chunk_rows(request, dtype)
    blosc, quantize = check_stages(request.stages, ChunkSpec((rows,), dtype))
    auto = {"x_chunklen": "auto"} if request.chunks is None else {}
    storage = Storage(dtype, blosc, quantize, rows, request.fill, auto)
    schema = BcolzMetadata.of(storage, shape, request.attrs).schema
    size = rows * row_bytes(shape, dtype)
    if size > CHUNK_LIMIT:
        raise LimitError(f"chunks of {size} bytes, the limit is {CHUNK_LIMIT}")
    return schema


def _has_sub_arrays(dtype: DType) -> bool:
    """Return whether a structure, or a structure in it, has fields that are arrays."""
    return dtype.names is not None and any(
        dtype[name].subdtype is not None or _has_sub_arrays(dtype[name]) for name in dtype.names
    )


def create_array(store: Store, schema: ArraySchema, path: str = "") -> tuple[ArrayNode, Commit]:
    """Return a new array, and the commit that creates it, without any chunks.

    The array is the one that opening will return: its metadata is parsed from the new documents.
    Its identity is new, whatever array the schema comes from.
    """
    storage = Storage.of(schema).pack()
    fresh = BcolzMetadata.of(Storage.parse(storage), schema.shape, schema.attrs)
    sizes = fresh.pack_sizes()
    attrs = pack_attrs(schema.attrs)
    metadata = BcolzMetadata.parse(storage, sizes, parse_attrs(attrs))
    identity = draw_identity()
    storage, metadata = with_identity(storage, identity), metadata.identified(identity)
    start = prefix(path)
    publish = (Put(start + STORAGE, storage), Put(start + ATTRS, attrs), Put(start + SIZES, sizes))
    # Stores have no empty folders, and bcolz opens no array without a folder for its chunks.
    folder = () if 0 not in schema.shape else (Put(f"{start}data/{KEEP}", b""),)
    chunks = BcolzMap(store, metadata, path, ArrayDocuments(storage, sizes, attrs))
    return ArrayNode(chunks), Commit(prepare=folder, publish=publish)


def _chunk_rows(request: Request, dtype: DType) -> int:
    if dtype == _OBJECT:
        return 1
    if request.chunks is None:
        return default_chunk(request.shape[0], row_bytes(request.shape, dtype))
    rows, *others = request.chunks
    lengths = zip(others, request.shape[1:], strict=True)
    if any(chunk < length for chunk, length in lengths):
        raise UnsupportedError(
            f"bcolz: chunks {list(request.chunks)} cut an axis that is not the first"
        )
    return rows

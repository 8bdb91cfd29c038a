"""A format of tables as small as it can be, whose columns may hold variable-length items.

A table is a folder with `toytable.json`, the names of its columns, and `notes.json`, its
attributes. A column is a folder with `array.json` and the raw bytes of chunks, or with `items.json`
and packs, or it is a table. A pack is the number of its items, the length of each in 4 bytes (-1
for a null), and the bytes of all of them.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import CodecChain, Stage
from ingot.errors import CorruptionError, FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import INT64, FieldReader
from ingot.formats import folder_table, json, keys
from ingot.formats.folder_table import FolderTableMap, RaggedFolderLayout, check_lengths, check_name
from ingot.formats.format import (
    ArrayNode,
    Column,
    Coords,
    Documents,
    KeyTemplate,
    Kind,
    Locations,
    RaggedNode,
    RaggedRequest,
    Request,
    Splice,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.registry import FormatEntry
from ingot.grid import auto_chunks
from ingot.ragged_array import ItemKind, RaggedArray, offsets_of
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Delete, Edit, Extent, Put, Store
from tests.contracts.toy import format as toy

__all__ = ["ENTRY", "TableToyFormat", "ToyPacks"]

TABLE: Final = "toytable.json"
NOTES: Final = "notes.json"
ARRAY: Final = "array.json"
ITEMS: Final = "items.json"
_COUNT: Final = struct.Struct("<I")
_DEEPEST: Final = 20

ENTRY: Final = FormatEntry(
    "toytable",
    "tests.contracts.toy.table:TableToyFormat",
    Kind.TABLE | Kind.RAGGED,
    markers=(TABLE,),
    documents=((TABLE, NOTES),),
    suffixes=(".toytable",),
)


@dataclass(frozen=True, slots=True)
class ToyPacks:
    """The codec of packs."""

    stages: ClassVar[tuple[Stage, ...]] = ()

    def encode(self, items: RaggedArray, number: int) -> bytes:
        """Return the count, the lengths and the bytes."""
        lengths = np.where(items.is_null, -1, items.lengths).astype("<i4")
        return _COUNT.pack(len(items)) + lengths.tobytes() + items.payload.tobytes()

    def decode(self, data: bytes, kind: ItemKind, count: int, number: int) -> RaggedArray:
        """Return the items of a pack."""
        head = _COUNT.size + 4 * count
        claim = _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else 0
        if claim != count or len(data) < head:
            raise CorruptionError(f"pack: {claim} items in {len(data)} bytes, {count} are due")
        lengths = np.frombuffer(data, "<i4", count, _COUNT.size).astype(np.int64)
        if len(lengths) and int(lengths.min()) < -1:
            raise CorruptionError(f"pack: an item of {lengths.min()} bytes")
        offsets = offsets_of(np.maximum(lengths, 0))
        if int(offsets[-1]) != len(data) - head:
            raise CorruptionError(f"pack: {offsets[-1]} bytes of items, {len(data) - head} stored")
        return RaggedArray.checked(
            kind, offsets, np.frombuffer(data, np.uint8, offset=head), lengths >= 0, "pack"
        )


@dataclass(frozen=True, slots=True)
class ToyColumnMap:
    """The chunks of a column that is an array."""

    store: Store
    schema: ArraySchema
    path: str
    document: bytes

    @classmethod
    def of(cls, store: Store, schema: ArraySchema, path: str) -> "ToyColumnMap":
        """Return the map of a column, with the document that says what it is."""
        return cls(store, schema, path, toy.pack(schema, ARRAY))

    @property
    def template(self) -> KeyTemplate:
        """How the keys of chunks follow from coordinates."""
        return KeyTemplate(prefix(self.path) + "chunk-", "-")

    @property
    def documents(self) -> Documents:
        """The one document."""
        return {prefix(self.path) + ARRAY: self.document}

    def keys(self) -> Iterator[str]:
        """Yield the keys of the column."""
        yield from self.documents
        for number in range(self.schema.grid.chunk_count):
            yield self.template.key(self.schema.grid.coords(number))

    def moved(self, path: str) -> "ToyColumnMap":
        """Return the map of the same column in another folder."""
        return replace(self, path=path)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "ToyColumnMap":
        """Return the map of the same column as `store` has it now."""
        (data,) = store.read([Extent(prefix(self.path) + ARRAY)])
        if data is None:
            raise NotFoundError(f"{store.location}: no {self.path}")
        return ToyColumnMap(store, _parse_array(data, self.path), self.path, data)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[ToyColumnMap, Commit]":
        """Return the map of another shape."""
        after = ToyColumnMap.of(self.store, self.schema.resized(shape), self.path)
        old, new = self.schema.grid.counts, after.schema.grid.counts
        commit = Commit(
            prepare=keys.removals(self.store, self.template, new, old),
            publish=(Put(prefix(self.path) + ARRAY, after.document),),
            cleanup=keys.removals(self.store, self.template, old, new),
        )
        return after, commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ToyColumnMap, Commit]":
        """Return the map with other attributes."""
        after = ToyColumnMap.of(self.store, self.schema.described(attrs), self.path)
        return after, Commit(publish=(Put(prefix(self.path) + ARRAY, after.document),))

    def removed(self) -> Commit:
        """Return the commit that removes the column."""
        chunks = keys.all_removals(self.store, self.template, self.schema.grid.counts)
        return Commit(publish=(Delete(prefix(self.path) + ARRAY), *chunks))


@dataclass(frozen=True, slots=True)
class ToyRaggedMap:
    """The packs of a column of variable-length items."""

    store: Store
    schema: RaggedSchema
    path: str
    document: bytes

    @classmethod
    def of(cls, store: Store, schema: RaggedSchema, path: str) -> "ToyRaggedMap":
        """Return the map of a column, with the document that says what it is."""
        return cls(store, schema, path, _pack_items(schema))

    @property
    def documents(self) -> Documents:
        """The one document."""
        return {prefix(self.path) + ITEMS: self.document}

    def key(self, number: int) -> str:
        """Return the key of a pack."""
        return f"{prefix(self.path)}pack-{number}"

    def keys(self) -> Iterator[str]:
        """Yield the keys of the column."""
        yield from self.documents
        yield from map(self.key, range(self.schema.pack_count))

    def moved(self, path: str) -> "ToyRaggedMap":
        """Return the map of the same column in another folder."""
        return replace(self, path=path)

    def bounds(self) -> NDArray[np.int64]:
        """Return the first item of each pack, and the number of items."""
        starts = np.arange(0, self.schema.length, self.schema.pack_items)
        return np.append(starts, self.schema.length)

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie."""
        return Locations(tuple(map(self.key, numbers.tolist())))

    def spliced(self, splices: Sequence[Splice]) -> "tuple[ToyRaggedMap, Commit]":
        """Return the map with other packs; those that no reader reaches are stored before."""
        count, length = self.schema.pack_count, self.schema.length
        ahead: list[Edit] = []
        exchanged: list[Edit] = []
        for start, stop, packs in splices:
            for number, pack in enumerate(packs, start):
                edits = exchanged if number < count else ahead
                edits.append(Put(self.key(number), pack.data))
            held = min(stop * self.schema.pack_items, self.schema.length)
            length += sum(pack.items for pack in packs)
            length -= held - min(start * self.schema.pack_items, self.schema.length)
        after = ToyRaggedMap.of(self.store, self.schema.resized(length), self.path)
        gone = range(after.schema.pack_count, count)
        commit = Commit(
            prepare=tuple(ahead),
            publish=(*exchanged, Put(prefix(self.path) + ITEMS, after.document)),
            cleanup=tuple(Delete(self.key(number)) for number in gone),
        )
        return after, commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ToyRaggedMap, Commit]":
        """Return the map with other attributes."""
        after = ToyRaggedMap.of(self.store, self.schema.described(attrs), self.path)
        return after, Commit(publish=(Put(prefix(self.path) + ITEMS, after.document),))

    def removed(self) -> Commit:
        """Return the commit that removes the column."""
        return Commit(publish=tuple(map(Delete, self.keys())))

    def reopened(self, store: Store) -> "ToyRaggedMap":
        """Return the map of the same column as `store` has it now."""
        (data,) = store.read([Extent(prefix(self.path) + ITEMS)])
        if data is None:
            raise NotFoundError(f"{store.location}: no {self.path}")
        return ToyRaggedMap(store, _parse_items(data, self.path), self.path, data)

    def rebound(self, store: Store) -> "ToyRaggedMap":
        """Return the same map of another store."""
        return replace(self, store=store)


class ToyLayout:
    """The documents of a table."""

    taken: ClassVar[frozenset[str]] = frozenset({TABLE, NOTES})
    documents: ClassVar[tuple[str, str]] = TABLE, NOTES

    def name_columns(self, columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the contents of the document that names columns."""
        return {**old, "columns": list(columns)}

    def pack_names(self, values: Mapping[str, Any]) -> bytes:
        """Return the document that names the columns."""
        return json.pack(values, TABLE)

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        """Return the document of the attributes."""
        return json.pack(dict(attrs), NOTES)

    def parse_attrs(self, data: bytes) -> Mapping[str, Any]:
        """Return the attributes in a document."""
        return json.parse_object(data, NOTES)

    def create_array(
        self, store: Store, schema: ArraySchema, folder: str
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array in a folder."""
        made = ToyColumnMap.of(store, schema, folder)
        strays = keys.stray_removals(store, made.template, schema.grid.counts)
        return ArrayNode(made), Commit(strays, (Put(prefix(folder) + ARRAY, made.document),))

    def create_ragged(
        self, store: Store, schema: RaggedSchema, folder: str
    ) -> tuple[RaggedNode, Commit]:
        """Return new items in a folder."""
        made = ToyRaggedMap.of(store, schema, folder)
        return RaggedNode(made), Commit(publish=(Put(prefix(folder) + ITEMS, made.document),))

    def is_length(self, key: str) -> bool:
        """Return whether a key is the document with the length of a column."""
        return key.rpartition("/")[2] in (ARRAY, ITEMS)

    def reopen(self, store: Store, path: str, *, part: bool) -> "ToyTableMap":
        """Return the table at a path as a store has it now."""
        return _open(store, path)


@dataclass(frozen=True, slots=True)
class ToyTableMap(FolderTableMap):
    """The columns of a table."""

    layout: ClassVar[RaggedFolderLayout] = ToyLayout()


class TableToyFormat:
    """Tables."""

    name: ClassVar[str] = "toytable"
    holds: ClassVar[Kind] = Kind.TABLE | Kind.RAGGED
    settings: ClassVar[tuple[str, ...]] = ()

    def open(self, store: Store, path: str = "") -> TableNode:
        """Return the table at a path."""
        return TableNode(_open(store, path))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> TableNode | None:
        """Return the table that the documents describe."""
        names = documents.get(TABLE)
        if names is None:
            return None
        return TableNode(_opened(store, {path: (names, documents.get(NOTES))})[path])

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return how a column will be stored."""
        if request.stages or dtypes.is_variable(request.dtype):
            raise UnsupportedError("toytable: only plain items without codecs are stored")
        chunks = request.chunks or auto_chunks(request.shape, request.dtype.itemsize)
        return ArraySchema(
            request.shape, request.dtype, chunks, CodecChain(), request.fill, attrs=request.attrs
        )

    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        """Return how variable-length items will be stored."""
        if request.stages:
            raise UnsupportedError("toytable: items are stored without codecs")
        return RaggedSchema(
            request.length, request.kind, request.pack_items or 1000, ToyPacks(), request.attrs
        )

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Raise `UnsupportedError`: an array is a column."""
        raise UnsupportedError("toytable: holds no arrays alone")

    def create_table(
        self,
        store: Store,
        schema: TableSchema,
        attrs: Mapping[str, Any],
        path: str = "",
        **layout: Any,
    ) -> tuple[TableNode, Commit]:
        """Return a new table, and the commit that makes it."""
        return folder_table.create_table(ToyTableMap, store, schema, attrs, path)


def _open(store: Store, path: str) -> ToyTableMap:
    names, notes = store.read([Extent(prefix(path) + each) for each in (TABLE, NOTES)])
    if names is None:
        raise NotFoundError(f"{store.location}: no {prefix(path)}{TABLE}")
    return _opened(store, {path: (names, notes)})[path]


def _opened(
    store: Store, tables: Mapping[str, tuple[bytes, bytes | None]], depth: int = 0
) -> dict[str, ToyTableMap]:
    """Return tables by their paths; the documents of all columns are read at once."""
    try:
        return _level(store, tables, depth)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _level(
    store: Store, tables: Mapping[str, tuple[bytes, bytes | None]], depth: int
) -> dict[str, ToyTableMap]:
    if depth > _DEEPEST:
        raise FormatError(f"toytable: tables are nested more than {_DEEPEST} deep")
    contents = {path: json.parse_object(names, TABLE) for path, (names, _) in tables.items()}
    named = {path: _names(values) for path, values in contents.items()}
    folders = [prefix(path) + name for path, names in named.items() for name in names]
    wanted = (ARRAY, ITEMS, TABLE, NOTES)
    read = iter(store.read([Extent(f"{each}/{name}") for each in folders for name in wanted]))
    columns: dict[str, Column] = {}
    inner: dict[str, tuple[bytes, bytes | None]] = {}
    for folder in folders:
        array, items, names, notes = (next(read) for _ in wanted)
        if array is not None:
            schema = _parse_array(array, folder)
            columns[folder] = ArrayNode(ToyColumnMap(store, schema, folder, array))
        elif items is not None:
            ragged = _parse_items(items, folder)
            columns[folder] = RaggedNode(ToyRaggedMap(store, ragged, folder, items))
        elif names is not None:
            inner[folder] = names, notes
        else:
            raise CorruptionError(f"toytable: nothing is stored in {folder!r}")
    if inner:
        columns |= {
            path: TableNode(table) for path, table in _level(store, inner, depth + 1).items()
        }
    found: dict[str, ToyTableMap] = {}
    for path, (document, notes) in tables.items():
        own = {name: columns[prefix(path) + name] for name in named[path]}
        check_lengths(own, path)
        documents = {prefix(path) + TABLE: document, prefix(path) + NOTES: notes}
        attrs = json.parse_object(notes or b"{}", NOTES)
        found[path] = ToyTableMap(store, own, attrs, path, {}, contents[path], documents=documents)
    return found


def _names(values: Mapping[str, Any]) -> list[str]:
    names = values.get("columns")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise FormatError(f"{TABLE}: columns is no list of names")
    for name in names:
        check_name(name, TABLE)
    return names


def _parse_array(data: bytes, folder: str) -> ArraySchema:
    schema = toy.parse(data, f"{folder}/{ARRAY}")
    if not schema.shape:
        raise FormatError(f"{folder}/{ARRAY}: a column has rows")
    return schema


def _parse_items(data: bytes, folder: str) -> RaggedSchema:
    fields = FieldReader(f"{folder}/{ITEMS}", json.parse_object(data, f"{folder}/{ITEMS}"))
    kind = ItemKind.parse(fields.value("kind"), f"{folder}/{ITEMS}: kind")
    length = fields.integer("length", low=0, high=INT64)
    packs = fields.integer("pack_items", low=1, high=INT64)
    return RaggedSchema(length, kind, packs, ToyPacks(), fields.mapping("attrs") or {})


def _pack_items(schema: RaggedSchema) -> bytes:
    values = {
        "kind": str(schema.kind),
        "length": schema.length,
        "pack_items": schema.pack_items,
        "attrs": dict(schema.attrs),
    }
    return json.pack(values, ITEMS)

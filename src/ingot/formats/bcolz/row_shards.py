"""Row shards: datasets that were split by rows, read as one dataset.

``shards.json`` has the number of rows in each of the folders ``shard-00000``, ``shard-00001`` and
so on. This module numbers the chunks of all shards as those of one array. The whole is read-only:
each shard is a dataset by itself, and is changed by itself. `split` creates the shards.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.errors import CorruptionError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats import annotations, json
from ingot.formats.addresses import Keyed
from ingot.formats.bcolz.array import (
    ATTRS,
    ArrayDocuments,
    BcolzMap,
    document_extents,
    open_array,
    parse_attrs,
)
from ingot.formats.bcolz.chunk_file import ChunkFileChain
from ingot.formats.bcolz.ragged import BcolzRaggedMap, is_items, open_items
from ingot.formats.bcolz.table import ROOTDIRS, BcolzTableMap, TableDocuments, open_tables
from ingot.formats.format import (
    ArrayNode,
    Column,
    ColumnSchema,
    Coords,
    Documents,
    Locations,
    RaggedMap,
    RaggedNode,
    Splice,
    TableNode,
)
from ingot.formats.packs import RegularPacks, TrailedPacks
from ingot.formats.paths import prefix
from ingot.formats.validity import visible
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Extent, Store

__all__ = [
    "SHARDS",
    "RowShardMap",
    "RowShardRaggedMap",
    "RowShardTableMap",
    "RowShards",
    "first_packs",
    "joined_items",
    "open_shards",
    "shard_of",
]

SHARDS: Final = "shards.json"

_VERSION: Final = 1
_FORMATS: Final = "bcolz", "blsk"
_MOST_SHARDS: Final = 10**5


@dataclass(frozen=True, slots=True)
class RowShards:
    """The contents of a ``shards.json``: the number of rows in each shard.

    >>> RowShards.parse(b'{"version": 1, "format": "bcolz", "rows": [4, 4, 2]}').rows
    (4, 4, 2)
    """

    rows: tuple[int, ...]
    format: str = "bcolz"
    """The format of the shards."""

    @classmethod
    def parse(cls, data: bytes, where: str = SHARDS) -> "RowShards":
        """Return the contents of a document."""
        fields = FieldReader(where, json.parse_object(data, where))
        version, format = fields.integer("version"), fields.text("format")
        if version != _VERSION:
            raise UnsupportedError(f"{where}: version {version} is unknown")
        if format not in _FORMATS:
            raise UnsupportedError(f"{where}: shards of format {format!r} are not read")
        return cls(fields.integers("rows", low=0, most=_MOST_SHARDS), format)

    def pack(self) -> bytes:
        """Return the document that `parse` reads."""
        values = {"version": _VERSION, "format": self.format, "rows": list(self.rows)}
        return json.pack_line(values, SHARDS)

    @staticmethod
    def folder(number: int) -> str:
        """Return the folder of a shard.

        >>> RowShards.folder(7)
        'shard-00007'
        """
        return f"shard-{number:05d}"


@dataclass(frozen=True, slots=True)
class RowShardChain(ChunkFileChain):
    """The codec chain of all shards; trailers have the number of a chunk in its own shard.

    `identities` are those of the shards, each of which is an array by itself.
    """

    firsts: tuple[int, ...] = (0,)
    identities: tuple[int | None, ...] = (None,)

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it, with the first chunk of each shard."""
        coding = ChunkFileChain.native_coding(self, spec)
        parts = tuple(zip(self.firsts, self.identities, strict=True))
        return None if coding is None else replace(coding, parts=parts)

    def stated(self, number: int) -> tuple[int, int | None]:
        """Return the number and the identity that the trailer of a chunk states."""
        shard = bisect_right(self.firsts, number) - 1
        return number - self.firsts[shard], self.identities[shard]


@dataclass(frozen=True, slots=True)
class RowShardMap:
    """The chunks of an array in many shards; all but the last have whole chunks only."""

    store: Store
    parts: tuple[BcolzMap, ...]
    path: str = ""
    inner: str = ""
    """The path of the column in each shard; empty for an array."""
    schema: ArraySchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        counts = [part.schema.grid.counts[0] for part in self.parts]
        # A shard without rows has no chunks, and the same first number as the shard after it:
        # `bisect_right` finds the later one.
        firsts = tuple(accumulate(counts[:-1], initial=0))
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", _joined(self.parts, firsts, prefix(self.inner)))

    @property
    def template(self) -> None:
        """None: keys do not follow from coordinates by one rule."""

    @property
    def documents(self) -> Documents:
        """The documents of the shards; ``shards.json`` repeats their lengths."""
        return {key: data for part in self.parts for key, data in part.documents.items()}

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return Locations(tuple(self._key(number) for number in coords[:, 0].tolist()))

    def addresses(self) -> Keyed:
        """Return where all chunks lie: each is a whole file of its shard."""
        prefixes = (part.template.prefix for part in self.parts)
        return Keyed(self.parts[0].template, tuple(zip(self.firsts, prefixes, strict=True)))

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks."""
        found = []
        for number in numbers:
            shard = bisect_right(self.firsts, number) - 1
            found += self.parts[shard].zones([number - self.firsts[shard]])
        return found

    def reopened(self, store: Store) -> "RowShardMap":
        """Return the map of the same array in its current state in `store`."""
        node: Column = open_shards(store, self.path)
        for name in self.inner.split("/") if self.inner else ():
            if not isinstance(node, TableNode) or name not in node.columns:
                raise NotFoundError(f"{store.location}: no column {self.inner!r}")
            node = node.columns[name]
        if not isinstance(node, ArrayNode) or not isinstance(node.chunks, RowShardMap):
            raise NotFoundError(f"{store.location}: {self.inner!r} is no longer an array")
        return node.chunks

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def resized(self, shape: tuple[int, ...]) -> "tuple[RowShardMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[RowShardMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def _key(self, number: int) -> str:
        shard = bisect_right(self.firsts, number) - 1
        return self.parts[shard].template.key((number - self.firsts[shard],))


@dataclass(frozen=True, slots=True)
class RowShardRaggedMap(RegularPacks):
    """The packs of variable-length items in many shards; all but the last have whole packs only."""

    store: Store
    parts: tuple[RaggedMap, ...]
    path: str = ""
    inner: str = ""
    """The path of the column in each shard; empty for items alone."""
    schema: RaggedSchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        firsts = first_packs(self.parts)
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", joined_items(self.parts, firsts))

    @property
    def documents(self) -> Documents:
        """The documents of the shards; ``shards.json`` repeats their lengths."""
        return {key: data for part in self.parts for key, data in part.documents.items()}

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie."""
        shards = np.searchsorted(np.array(self.firsts), numbers, side="right") - 1
        found = []
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            own = self.parts[shard].locate(numbers[places] - self.firsts[shard])
            found.append((places, own))
        return Locations.merged(len(numbers), found)

    def reopened(self, store: Store) -> "RowShardRaggedMap":
        """Return the map of the same items in their current state in `store`."""
        node = self._open(store)
        for name in self.inner.split("/") if self.inner else ():
            if not isinstance(node, TableNode) or name not in node.columns:
                raise NotFoundError(f"{store.location}: no column {self.inner!r}")
            node = node.columns[name]
        if not isinstance(node, RaggedNode) or not isinstance(node.packs, RowShardRaggedMap):
            raise NotFoundError(f"{store.location}: {self.inner!r} no longer has such items")
        return node.packs

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)

    def rebound(self, store: Store) -> "RowShardRaggedMap":
        """Return the same map of another store."""
        return replace(self, store=store, parts=tuple(part.rebound(store) for part in self.parts))

    def spliced(self, splices: Sequence[Splice]) -> "tuple[RowShardRaggedMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[RowShardRaggedMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


@dataclass(frozen=True, slots=True)
class RowShardTableMap:
    """The columns of a table in many shards."""

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""
    plain: frozenset[str] = frozenset()
    """Names of columns that say nothing about others, whatever their names are."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, without those that say which items of a column exist."""
        return visible(self.columns, self.plain)

    @property
    def documents(self) -> Documents:
        """No document: row shards are read-only as a whole."""
        return {}

    def reopened(self, store: Store) -> "RowShardTableMap":
        """Return the map of the same table in its current state in `store`."""
        node = open_shards(store, self.path)
        if not isinstance(node, TableNode) or not isinstance(node.table, RowShardTableMap):
            raise NotFoundError(f"{store.location}: no longer a table")
        return node.table

    def described(self, attrs: Mapping[str, Any]) -> "tuple[RowShardTableMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def added(
        self, name: str, schema: ColumnSchema, position: int | None = None
    ) -> "tuple[RowShardTableMap, Column, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def dropped(self, name: str) -> "tuple[RowShardTableMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def renamed(self, old: str, new: str) -> "tuple[RowShardTableMap, Mapping[str, str], Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def exchanged(self, name: str, column: Column) -> "RowShardTableMap":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


def open_shards(
    store: Store, path: str = "", data: bytes | None = None
) -> ArrayNode | RaggedNode | TableNode:
    """Return what lies in the shards at `path`; `data` is the document, if it was read.

    The documents of all shards are read together.
    """
    key = prefix(path) + SHARDS
    if data is None:
        (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {key}")
    try:
        shards = RowShards.parse(data, key)
        if not shards.rows:
            raise CorruptionError(f"{key}: there are no shards")
        folders = [prefix(path) + RowShards.folder(number) for number in range(len(shards.rows))]
        marks = [Extent(f"{folder}/{ROOTDIRS}", 0, json.LARGEST + 1) for folder in folders]
        found = store.read(marks + document_extents(folders))
        rootdirs, rest = found[: len(marks)], found[len(marks) :]
        documents = [ArrayDocuments(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
        if rootdirs[0] is None and is_items(documents[0].storage):
            items = tuple(map(partial(_items, store), folders, documents))
            _check_rows([part.schema.length for part in items], shards, key)
            return RaggedNode(RowShardRaggedMap(store, items, path))
        if rootdirs[0] is None:
            arrays = tuple(map(partial(open_array, store), folders, documents))
            _check_rows([part.schema.shape[0] for part in arrays], shards, key)
            return ArrayNode(RowShardMap(store, arrays, path))
        attrs = (each.attrs for each in documents)
        tables = open_tables(store, list(map(TableDocuments, folders, rootdirs, attrs)))
        _check_rows([table.rows for table in tables], shards, key)
        columns = _columns(store, [table.columns for table in tables], path, "")
        plain = frozenset(tables[0].names)
        described = annotations.joined([table.attrs for table in tables], key)
        return TableNode(RowShardTableMap(store, columns, described, path, plain))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _items(store: Store, folder: str, documents: ArrayDocuments) -> BcolzRaggedMap:
    attrs = parse_attrs(documents.attrs, f"{store.location}: {folder}/{ATTRS}")
    return open_items(store, folder, documents, attrs)


def shard_of(store: Store, path: str, format: str = "bcolz") -> str:
    """Return the folder of the shard of a format that contains a path; "" if no shard does.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({SHARDS: RowShards((4, 4, 2)).pack()})
    >>> shard_of(store, "shard-00002/price"), shard_of(store, "shard-00003"), shard_of(store, "a")
    ('shard-00002', '', '')
    """
    first = path.partition("/")[0]
    if not first.startswith(RowShards.folder(0)[:6]):
        return ""
    (data,) = store.read([Extent(SHARDS, 0, json.LARGEST + 1)])
    try:
        shards = RowShards(()) if data is None else RowShards.parse(data)
    except IngotError:
        return ""  # Opening the whole raises the error.
    count = len(shards.rows) if shards.format == format else 0
    return first if first in map(RowShards.folder, range(count)) else ""


def _check_rows(found: Sequence[int], shards: RowShards, where: str) -> None:
    for number, (fact, claim) in enumerate(zip(found, shards.rows, strict=True)):
        if fact != claim:
            raise CorruptionError(
                f"{where}: {RowShards.folder(number)} has {fact} rows, {claim} are claimed"
            )


def _columns(
    store: Store, shards: Sequence[Mapping[str, Column]], path: str, inner: str
) -> dict[str, Column]:
    names = list(shards[0])
    if any(list(columns) != names for columns in shards):
        raise CorruptionError(f"{path or SHARDS}: the shards have different columns")
    return {
        name: _column(store, [columns[name] for columns in shards], path, prefix(inner) + name)
        for name in names
    }


def _column(store: Store, parts: Sequence[Column], path: str, inner: str) -> Column:
    arrays = [part.chunks for part in parts if isinstance(part, ArrayNode)]
    maps = [chunks for chunks in arrays if isinstance(chunks, BcolzMap)]
    if len(maps) == len(parts):
        return ArrayNode(RowShardMap(store, tuple(maps), path, inner))
    packs = [part.packs for part in parts if isinstance(part, RaggedNode)]
    items = [each for each in packs if isinstance(each, BcolzRaggedMap)]
    if len(items) == len(parts):
        return RaggedNode(RowShardRaggedMap(store, tuple(items), path, inner))
    tables = [part.table for part in parts if isinstance(part, TableNode)]
    if len(tables) != len(parts):
        raise CorruptionError(f"column {inner!r}: of one kind in some shards, of another in others")
    nested = [table for table in tables if isinstance(table, BcolzTableMap)]
    columns = _columns(store, [table.columns for table in nested], path, inner)
    plain = frozenset(nested[0].names)
    return TableNode(RowShardTableMap(store, columns, nested[0].attrs, path, plain))


def _joined(parts: Sequence[BcolzMap], firsts: tuple[int, ...], where: str) -> ArraySchema:
    """Return the schema of an array in shards; raise an error if the shards do not match."""
    first = parts[0].schema
    chunk = first.chunks[0]
    filled = [part for part in parts if part.schema.shape[0]]
    for part in parts:
        schema = part.schema
        same = schema.dtype == first.dtype and schema.shape[1:] == first.shape[1:]
        if not same or schema.chunks != first.chunks:
            raise CorruptionError(f"{part.path}: another type or another shape than other shards")
    for part in filled[:-1]:
        if part.schema.shape[0] % chunk:
            raise UnsupportedError(
                f"{part.path}: {part.schema.shape[0]} rows are no whole number of chunks of "
                f"{chunk}, so the shards behind it cannot be read together with it"
            )
    rows = sum(part.schema.shape[0] for part in parts)
    chain = first.chain
    assert isinstance(chain, ChunkFileChain)
    stages = chain.filters, chain.serializer, chain.compressors
    identities = tuple(part.metadata.storage.identity for part in parts)
    joined = RowShardChain(*stages, chain.rows, chain.auto, firsts=firsts, identities=identities)
    return replace(first, shape=(rows, *first.shape[1:]), chain=joined)


def first_packs(parts: Sequence[RaggedMap]) -> tuple[int, ...]:
    """Return the number of the first pack of each shard."""
    return tuple(accumulate((part.schema.pack_count for part in parts[:-1]), initial=0))


def joined_items(parts: Sequence[RaggedMap], firsts: Sequence[int]) -> RaggedSchema:
    """Return the schema of items in shards; raise an error if the shards do not match."""
    first = parts[0].schema
    identities = []
    for part in parts:
        schema, codec = part.schema, part.schema.codec
        assert isinstance(codec, TrailedPacks)
        if (schema.kind, schema.pack_items) != (first.kind, first.pack_items):
            raise CorruptionError(f"{part.path}: items of another kind than in other shards")
        identities.append(codec.parts[0][1])
    filled = [part for part in parts if part.schema.length]
    for part in filled[:-1]:
        if part.schema.length % first.pack_items:
            raise UnsupportedError(
                f"{part.path}: {part.schema.length} items are no whole number of packs of "
                f"{first.pack_items}, so the shards behind it cannot be read together with it"
            )
    codec = first.codec
    assert isinstance(codec, TrailedPacks)
    joined = replace(codec, parts=tuple(zip(firsts, identities, strict=True)))
    return replace(first, length=sum(part.schema.length for part in parts), codec=joined)


def _refuse(store: Store) -> NoReturn:
    raise UnsupportedError(
        f"{store.location}: shards are read as one; each of them is changed by itself"
    )

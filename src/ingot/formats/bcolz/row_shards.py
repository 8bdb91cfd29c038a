"""Row shards of bcolz: datasets that were split by rows, read as one dataset.

`ingot.formats.row_shards` has the document and the maps. This module reads the documents of all
shards together, and says where their chunk files lie. `split` creates the shards.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.errors import CorruptionError, IngotError
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
from ingot.formats.format import ArrayNode, Column, Locations, RaggedNode, TableNode
from ingot.formats.paths import prefix
from ingot.formats.row_shards import (
    SHARDS,
    RowShardItems,
    RowShardMap,
    RowShards,
    RowShardTable,
    ShardNumbers,
    check_lengths,
    joined_rows,
)
from ingot.schema import ArraySchema
from ingot.stores.store import Extent, Store

__all__ = ["BcolzShardItems", "BcolzShardMap", "BcolzShardTable", "open_shards"]


@dataclass(frozen=True, slots=True)
class BcolzShardChain(ShardNumbers, ChunkFileChain):
    """The codec chain of all shards; trailers have the number of a chunk in its own shard."""

    firsts: tuple[int, ...] = (0,)
    identities: tuple[int | None, ...] = (None,)

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it, with the first chunk of each shard."""
        return self.in_shards(ChunkFileChain.native_coding(self, spec))


@dataclass(frozen=True, slots=True, eq=False)
class BcolzShardMap(RowShardMap[BcolzMap]):
    """The chunks of an array in many shards: each is a file of its shard."""

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return Locations(tuple(self._key(number) for number in coords[:, 0].tolist()))

    def addresses(self) -> Keyed:
        """Return where all chunks lie: each is a whole file of its shard."""
        prefixes = (part.template.prefix for part in self.parts)
        return Keyed(self.parts[0].template, tuple(zip(self.firsts, prefixes, strict=True)))

    def _key(self, number: int) -> str:
        shard = bisect_right(self.firsts, number) - 1
        return self.parts[shard].template.key((number - self.firsts[shard],))

    def _joined(self) -> ArraySchema:
        first, rows = self.parts[0].schema, joined_rows(self.parts)
        chain = first.chain
        assert isinstance(chain, ChunkFileChain)
        stages = chain.filters, chain.serializer, chain.compressors
        identities = tuple(part.metadata.storage.identity for part in self.parts)
        joined = BcolzShardChain(
            *stages, chain.rows, chain.auto, firsts=self.firsts, identities=identities
        )
        return replace(first, shape=(rows, *first.shape[1:]), chain=joined)

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


@dataclass(frozen=True, slots=True)
class BcolzShardItems(RowShardItems):
    """The packs of variable-length items in many shards."""

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


@dataclass(frozen=True, slots=True)
class BcolzShardTable(RowShardTable):
    """The columns of a table in many shards."""

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


def open_shards(
    store: Store, path: str = "", data: bytes | None = None
) -> ArrayNode | RaggedNode | TableNode:
    """Return what lies in the shards at `path`; `data` is the document, if it was read.

    The documents of all shards are read together.
    """
    key = prefix(path) + SHARDS
    try:
        shards = RowShards.read(store, path, data)
        folders = [prefix(path) + RowShards.folder(number) for number in range(len(shards.rows))]
        marks = [Extent(f"{folder}/{ROOTDIRS}", 0, json.LARGEST + 1) for folder in folders]
        found = store.read(marks + document_extents(folders))
        rootdirs, rest = found[: len(marks)], found[len(marks) :]
        documents = [ArrayDocuments(*rest[at : at + 3]) for at in range(0, len(rest), 3)]
        if rootdirs[0] is None and is_items(documents[0].storage):
            items = tuple(map(partial(_items, store), folders, documents))
            check_lengths((part.schema.length for part in items), shards, key)
            return RaggedNode(BcolzShardItems(store, items, path))
        if rootdirs[0] is None:
            arrays = tuple(map(partial(open_array, store), folders, documents))
            check_lengths((part.schema.shape[0] for part in arrays), shards, key)
            return ArrayNode(BcolzShardMap(store, arrays, path))
        attrs = (each.attrs for each in documents)
        tables = open_tables(store, list(map(TableDocuments, folders, rootdirs, attrs)))
        check_lengths((table.rows for table in tables), shards, key)
        described = annotations.joined([table.attrs for table in tables], key)
        return _table(store, tables, path, (), described)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _items(store: Store, folder: str, documents: ArrayDocuments) -> BcolzRaggedMap:
    attrs = parse_attrs(documents.attrs, f"{store.location}: {folder}/{ATTRS}")
    return open_items(store, folder, documents, attrs)


def _table(
    store: Store,
    tables: Sequence[BcolzTableMap],
    path: str,
    within: tuple[str, ...],
    attrs: Mapping[str, object],
) -> TableNode:
    """Return a table in shards, or a nested one; raise an error if its columns do not match."""
    names = list(tables[0].columns)
    if any(list(table.columns) != names for table in tables):
        raise CorruptionError(f"{path or SHARDS}: the shards have different columns")
    columns = {
        name: _column(store, [table.columns[name] for table in tables], path, (*within, name))
        for name in names
    }
    plain = frozenset(tables[0].names)
    return TableNode(BcolzShardTable(store, columns, attrs, path, plain, within))


def _column(
    store: Store, parts: Sequence[Column], path: str, within: tuple[str, ...]
) -> ArrayNode | RaggedNode | TableNode:
    arrays = [part.chunks for part in parts if isinstance(part, ArrayNode)]
    maps = [chunks for chunks in arrays if isinstance(chunks, BcolzMap)]
    if len(maps) == len(parts):
        return ArrayNode(BcolzShardMap(store, tuple(maps), path, within))
    packs = [part.packs for part in parts if isinstance(part, RaggedNode)]
    items = [each for each in packs if isinstance(each, BcolzRaggedMap)]
    if len(items) == len(parts):
        return RaggedNode(BcolzShardItems(store, tuple(items), path, within))
    tables = [part.table for part in parts if isinstance(part, TableNode)]
    nested = [table for table in tables if isinstance(table, BcolzTableMap)]
    if len(nested) != len(parts):
        raise CorruptionError(
            f"column {'.'.join(within)!r}: of one kind in some shards, of another in others"
        )
    return _table(store, nested, path, within, nested[0].attrs)

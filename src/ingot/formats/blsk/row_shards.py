"""Row shards of blsk: datasets that were split by rows, read as one dataset.

``shards.json`` and the folders are those of `ingot.formats.bcolz.row_shards`. This module numbers
the chunks of all shards as those of one array. The whole is read-only: each shard is a dataset by
itself, and is changed by itself. `split` creates the shards.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.errors import CorruptionError, IngotError, NotFoundError, UnsupportedError
from ingot.formats import annotations, json
from ingot.formats.addresses import SuperChunks
from ingot.formats.bcolz.row_shards import SHARDS, RowShardRaggedMap, RowShards, RowShardTableMap
from ingot.formats.blsk.array import BlskMap, DatasetDocuments, numbers_of
from ingot.formats.blsk.ragged import column_of
from ingot.formats.blsk.slots import SlotChain, Stated
from ingot.formats.blsk.table import BlskTableMap, table_of
from ingot.formats.format import (
    ArrayNode,
    Column,
    Coords,
    Documents,
    Locations,
    RaggedNode,
    TableNode,
)
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Extent, Store

__all__ = ["BlskShardMap", "BlskShardRaggedMap", "BlskShardTableMap", "open_shards"]


@dataclass(frozen=True, slots=True)
class _ShardChain(SlotChain):
    """The codec chain of all shards; trailers have the number of a chunk in its own shard.

    `identities` are those of the shards, each of which is an array by itself.
    """

    firsts: tuple[int, ...] = (0,)
    identities: tuple[int | None, ...] = (None,)

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it, with the first chunk of each shard."""
        coding = SlotChain.native_coding(self, spec)
        parts = tuple(zip(self.firsts, self.identities, strict=True))
        return None if coding is None else replace(coding, parts=parts)

    def stated(self, number: int) -> Stated:
        """Return the number and the identity that the trailer of a chunk states."""
        shard = bisect_right(self.firsts, number) - 1
        return number - self.firsts[shard], self.identities[shard]


@dataclass(frozen=True, slots=True, eq=False)
class BlskShardMap:
    """The chunks of an array in many shards; all but the last have whole chunks only."""

    store: Store
    parts: tuple[BlskMap, ...]
    path: str = ""
    column: tuple[str, ...] = ()
    """The path of the column in each shard; empty for an array."""
    schema: ArraySchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)
    """The number of the first chunk of each shard."""
    template: ClassVar[None] = None
    stated_format: ClassVar[str] = "blsk"

    def __post_init__(self) -> None:
        counts = [part.schema.grid.chunk_count for part in self.parts]
        firsts = tuple(accumulate(counts[:-1], initial=0))
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", _joined(self.parts, firsts))

    @property
    def documents(self) -> Documents:
        """The documents of the shards; ``shards.json`` repeats their lengths."""
        return {key: data for part in self.parts for key, data in part.documents.items()}

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie, each in the files of its shard."""
        numbers = numbers_of(coords, self.schema.grid)
        shards = np.searchsorted(np.array(self.firsts), numbers, side="right") - 1
        rows = list(accumulate((part.schema.grid.counts[0] for part in self.parts), initial=0))
        found = []
        for shard in np.unique(shards).tolist():
            places = np.flatnonzero(shards == shard)
            own = coords[places].copy()
            own[:, 0] -= rows[shard]
            found.append((places, self.parts[shard].locate(own)))
        return Locations.merged(len(numbers), found)

    def addresses(self) -> SuperChunks:
        """Return where all chunks lie; the kernel reads the indexes when it needs them."""
        parts = zip(self.parts, self.firsts, strict=True)
        return SuperChunks(tuple(part.part(first) for part, first in parts))

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks."""
        found = []
        for number in numbers:
            shard = bisect_right(self.firsts, number) - 1
            found += self.parts[shard].zones([number - self.firsts[shard]])
        return found

    def reopened(self, store: Store) -> "BlskShardMap":
        """Return the map of the same array in its current state in `store`."""
        node: Column = open_shards(store, self.path)
        for name in self.column:
            if not isinstance(node, TableNode) or name not in node.columns:
                raise NotFoundError(f"{store.location}: no column {'.'.join(self.column)!r}")
            node = node.columns[name]
        if not isinstance(node, ArrayNode) or not isinstance(node.chunks, BlskShardMap):
            raise NotFoundError(f"{store.location}: {'.'.join(self.column)!r} is no longer there")
        return node.chunks

    def relocated(self) -> "BlskShardMap":
        """Return the same map: it is never changed."""
        return self

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def resized(self, shape: tuple[int, ...]) -> "tuple[BlskShardMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BlskShardMap, Commit]":
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


@dataclass(frozen=True, slots=True)
class BlskShardRaggedMap(RowShardRaggedMap):
    """The packs of variable-length items in many shards."""

    stated_format: ClassVar[str] = "blsk"

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


@dataclass(frozen=True, slots=True)
class BlskShardTableMap(RowShardTableMap):
    """The columns of a table in many shards."""

    within: tuple[str, ...] = ()
    """The path of a nested table."""
    stated_format: ClassVar[str] = "blsk"

    def reopened(self, store: Store) -> "BlskShardTableMap":
        """Return the map of the same table in its current state in `store`."""
        node: Column = open_shards(store, self.path)
        for name in self.within:
            if not isinstance(node, TableNode) or name not in node.columns:
                raise NotFoundError(f"{store.location}: no table {'.'.join(self.within)!r}")
            node = node.columns[name]
        if not isinstance(node, TableNode) or not isinstance(node.table, BlskShardTableMap):
            raise NotFoundError(f"{store.location}: no longer a table")
        return node.table


def open_shards(store: Store, path: str = "", data: bytes | None = None) -> Column:
    """Return the dataset in the shards at `path`; `data` is the document, if it was read."""
    key = prefix(path) + SHARDS
    if data is None:
        (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {key}")
    try:
        shards = RowShards.parse(data, key)
        if not shards.rows or shards.format != "blsk":
            raise CorruptionError(f"{key}: there are no shards of blsk")
        found = []
        for number, rows in enumerate(shards.rows):
            folder = RowShards.folder(number)
            each = DatasetDocuments.read(store, prefix(path) + folder)
            if each.length != rows:
                raise CorruptionError(f"{key}: {folder} has {each.length} rows, {rows} are claimed")
            found.append(each)
        if len({each.is_array for each in found}) > 1:
            raise CorruptionError(f"{key}: some shards are arrays, others are tables")
        if found[0].is_array:
            return _leaf(store, [column_of(each, store) for each in found], path, (), key)
        tables = [table_of(store, each) for each in found]
        return _table(store, tables, path, (), key)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _table(
    store: Store, tables: Sequence[BlskTableMap], path: str, within: tuple[str, ...], where: str
) -> TableNode:
    names = tuple(tables[0].columns)
    if any(tuple(table.columns) != names for table in tables):
        raise CorruptionError(f"{where}: the shards have different columns")
    columns: dict[str, Column] = {}
    for name in names:
        parts = [table.columns[name] for table in tables]
        nested = [part.table for part in parts if isinstance(part, TableNode)]
        inner = [table for table in nested if isinstance(table, BlskTableMap)]
        if len(inner) == len(parts):
            columns[name] = _table(store, inner, path, (*within, name), where)
        else:
            columns[name] = _leaf(store, parts, path, (*within, name), where)
    attrs = annotations.joined([table.attrs for table in tables], where)
    return TableNode(BlskShardTableMap(store, columns, attrs, path, within=within))


def _leaf(
    store: Store, parts: Sequence[Column], path: str, column: tuple[str, ...], where: str
) -> ArrayNode | RaggedNode:
    """Return an array or items in shards; raise an error if the shards do not agree on that."""
    arrays = [part.chunks for part in parts if isinstance(part, ArrayNode)]
    maps = [chunks for chunks in arrays if isinstance(chunks, BlskMap)]
    packs = [part.packs for part in parts if isinstance(part, RaggedNode)]
    if len(maps) == len(parts):
        return ArrayNode(BlskShardMap(store, tuple(maps), path, column))
    if len(packs) == len(parts):
        return RaggedNode(BlskShardRaggedMap(store, tuple(packs), path, "/".join(column)))
    what = f"{'.'.join(column)!r} is" if column else "they are"
    raise CorruptionError(f"{where}: {what} of one kind in some shards, of another in others")


def _joined(parts: Sequence[BlskMap], firsts: tuple[int, ...]) -> ArraySchema:
    """Return the schema of an array in shards; raise an error if the shards do not match."""
    first = parts[0].schema
    if not first.shape:
        raise CorruptionError(f"{parts[0].path}: an array without axes is no shard")
    filled = [part for part in parts if part.schema.shape[0]]
    for part in parts:
        schema = part.schema
        same = schema.dtype == first.dtype and schema.shape[1:] == first.shape[1:]
        same = same and schema.chunks == first.chunks and schema.order == first.order
        if not same or np.asarray(schema.fill).tobytes() != np.asarray(first.fill).tobytes():
            raise CorruptionError(f"{part.path}: another type or another shape than other shards")
    chunk = first.chunks[0]
    for part in filled[:-1]:
        if part.schema.shape[0] % chunk:
            raise UnsupportedError(
                f"{part.path}: {part.schema.shape[0]} rows are no whole number of chunks of "
                f"{chunk}, so the shards behind it cannot be read together with it"
            )
    rows = sum(part.schema.shape[0] for part in parts)
    chain = first.chain
    assert isinstance(chain, SlotChain)
    stages = chain.filters, chain.serializer, chain.compressors
    identities = tuple(part.storage.identity for part in parts)
    joined = _ShardChain(*stages, rows, chunk, chain.across, None, firsts, identities)
    return replace(first, shape=(rows, *first.shape[1:]), chain=joined)


def _refuse(store: Store) -> NoReturn:
    raise UnsupportedError(
        f"{store.location}: shards are read as one; each of them is changed by itself"
    )

"""Row shards of blsk: datasets that were split by rows, read as one dataset.

`ingot.formats.row_shards` has the document and the maps. This module opens the shards, and says
where their chunks lie in super-chunk files. `split` creates the shards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import ChunkSpec, NativeCoding
from ingot.errors import CorruptionError, IngotError
from ingot.formats import annotations
from ingot.formats.addresses import SuperChunks
from ingot.formats.blsk.array import BlskMap, DatasetDocuments, numbers_of
from ingot.formats.blsk.ragged import column_of
from ingot.formats.blsk.slots import SlotChain
from ingot.formats.blsk.table import BlskTableMap, table_of
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
from ingot.stores.store import Store

__all__ = ["BlskShardItems", "BlskShardMap", "BlskShardTable", "open_shards"]


@dataclass(frozen=True, slots=True)
class BlskShardChain(ShardNumbers, SlotChain):
    """The codec chain of all shards; trailers have the number of a chunk in its own shard."""

    firsts: tuple[int, ...] = (0,)
    identities: tuple[int | None, ...] = (None,)

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it, with the first chunk of each shard."""
        return self.in_shards(SlotChain.native_coding(self, spec))


@dataclass(frozen=True, slots=True, eq=False)
class BlskShardMap(RowShardMap[BlskMap]):
    """The chunks of an array in many shards, each in the super-chunk files of its shard."""

    stated_format: ClassVar[str] = "blsk"

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

    def relocated(self) -> "BlskShardMap":
        """Return the same map: it is never changed."""
        return self

    def _joined(self) -> ArraySchema:
        first = self.parts[0].schema
        if not first.shape:
            raise CorruptionError(f"{self.parts[0].path}: an array without axes is no shard")
        rows, fill = joined_rows(self.parts), np.asarray(first.fill).tobytes()
        for part in self.parts:
            if np.asarray(part.schema.fill).tobytes() != fill:
                raise CorruptionError(f"{part.path}: another fill value than other shards")
        chain = first.chain
        assert isinstance(chain, SlotChain)
        stages = chain.filters, chain.serializer, chain.compressors
        identities = tuple(part.storage.identity for part in self.parts)
        joined = BlskShardChain(
            *stages, rows, first.chunks[0], chain.across, None, self.firsts, identities
        )
        return replace(first, shape=(rows, *first.shape[1:]), chain=joined)

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


@dataclass(frozen=True, slots=True)
class BlskShardItems(RowShardItems):
    """The packs of variable-length items in many shards."""

    stated_format: ClassVar[str] = "blsk"

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


@dataclass(frozen=True, slots=True)
class BlskShardTable(RowShardTable):
    """The columns of a table in many shards."""

    stated_format: ClassVar[str] = "blsk"

    def _open(self, store: Store) -> Column:
        return open_shards(store, self.path)


def open_shards(store: Store, path: str = "", data: bytes | None = None) -> Column:
    """Return the dataset in the shards at `path`; `data` is the document, if it was read."""
    key = prefix(path) + SHARDS
    try:
        shards = RowShards.read(store, path, data)
        if shards.format != "blsk":
            raise CorruptionError(f"{key}: there are no shards of blsk")
        folders = [prefix(path) + RowShards.folder(number) for number in range(len(shards.rows))]
        found = [DatasetDocuments.read(store, folder) for folder in folders]
        check_lengths((each.length for each in found), shards, key)
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
    return TableNode(BlskShardTable(store, columns, attrs, path, column=within))


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
        return RaggedNode(BlskShardItems(store, tuple(packs), path, column))
    what = f"{'.'.join(column)!r} is" if column else "they are"
    raise CorruptionError(f"{where}: {what} of one kind in some shards, of another in others")

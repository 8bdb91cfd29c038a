"""Splits a dataset of blsk by rows into shards, each a dataset by itself.

Where a shard begins at the beginning of a chunk, chunks are copied; only the number and the
identity in the trailer are rewritten. Elsewhere the rows are encoded again, by a function that the
caller passes: formats move no array data. `row_shards` reads the shards as one dataset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from ingot.errors import UnsupportedError
from ingot.formats.bcolz.split import fitting_chunk, shard_rows
from ingot.formats.blsk.array import BlskMap, create_array, other_keys
from ingot.formats.blsk.ragged import BlskRaggedMap, create_ragged
from ingot.formats.blsk.slots import SlotChain
from ingot.formats.blsk.table import BlskTableMap, create_table
from ingot.formats.format import (
    ArrayNode,
    Column,
    Coords,
    RaggedNode,
    Recode,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.row_shards import SHARDS, RowShards
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Edit, Extent, Put, Store

__all__ = ["split"]


def split(node: Column, count: int, store: Store, recode: Recode) -> Iterator[Commit]:
    """Yield the commits that store a dataset as `count` shards; the last one makes them visible."""
    columns = list(_leaves(node, ()))
    rows = columns[0][1].schema.shape[0] if columns else 0
    longest = max((_slots(leaf).schema.chunks[0] for _, leaf in columns), default=1)
    parts = shard_rows(rows, longest, count)
    for number, length in enumerate(parts):
        start = sum(parts[:number])
        yield from _shard(node, store, RowShards.folder(number), start, length, parts, recode)
    yield Commit(publish=(Put(SHARDS, RowShards(parts, "blsk").pack()),))


Leaf: TypeAlias = BlskMap | BlskRaggedMap
"""The map of a column that is no table."""


def _slots(leaf: Leaf) -> BlskMap:
    return leaf.slots if isinstance(leaf, BlskRaggedMap) else leaf


def _leaves(node: Column, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Leaf]]:
    """Yield all arrays and items of a dataset, with the paths of their columns."""
    if isinstance(node, TableNode):
        for name, column in node.columns.items():
            yield from _leaves(column, (*path, name))
        return
    leaf = node.chunks if isinstance(node, ArrayNode) else node.packs
    if not isinstance(leaf, BlskMap | BlskRaggedMap) or not leaf.schema.shape:
        raise UnsupportedError(
            "only arrays with an axis, items and tables of blsk are cut into shards"
        )
    if not _slots(leaf).found:
        raise UnsupportedError("a super-chunk file without its metadata is not cut into shards")
    yield path, leaf


def _shard(
    node: Column,
    store: Store,
    folder: str,
    start: int,
    length: int,
    parts: Sequence[int],
    recode: Recode,
) -> Iterator[Commit]:
    """Yield the commits that store one shard: first its chunks, then its documents."""
    made = {path: _cut(leaf, length, parts) for path, leaf in _leaves(node, ())}
    shard: Column
    if isinstance(node, TableNode):
        assert isinstance(node.table, BlskTableMap)
        shard, commit = create_table(store, _schemas(node, made, ()), node.attrs, folder)
        source = node.table.store, node.table.path
    else:
        ((_, leaf),) = _leaves(node, ())
        shard, commit = _alone(store, made[()], folder, _slots(leaf))
        source = leaf.store, leaf.path
    # The chunks state the identities that are in the documents.
    targets = dict(_leaves(shard, ()))
    for path, leaf in _leaves(node, ()):
        yield from _chunks(leaf, targets[path], start, recode)
    yield Commit(prepare=(*commit.edits, *_others(*source, folder)))


def _alone(
    store: Store, schema: ArraySchema | RaggedSchema, folder: str, like: BlskMap
) -> tuple[ArrayNode | RaggedNode, Commit]:
    """Return a shard of an array or of items, with the settings of the whole."""
    capacity, spare = like.storage.capacity, like.spare
    if isinstance(schema, RaggedSchema):
        return create_ragged(store, schema, folder, superchunksize=capacity, spare=spare)
    return create_array(store, schema, folder, superchunksize=capacity, spare=spare)


def _others(store: Store, path: str, folder: str) -> Iterator[Edit]:
    """Yield the edits that carry further files of ``meta`` along."""
    keys = other_keys(store, path)
    for key, data in zip(keys, store.read([Extent(key) for key in keys]), strict=True):
        if data is not None:
            yield Put(f"{folder}/{key.removeprefix(prefix(path))}", data)


def _cut(leaf: Leaf, length: int, parts: Sequence[int]) -> ArraySchema | RaggedSchema:
    rows = fitting_chunk(_slots(leaf).schema.chunks[0], parts)
    if isinstance(leaf, BlskRaggedMap):
        codec = replace(leaf.codec, rows=rows)
        return replace(leaf.schema, length=length, pack_items=rows, codec=codec)
    schema = leaf.schema
    return replace(schema, shape=(length, *schema.shape[1:]), chunks=(rows, *schema.chunks[1:]))


def _schemas(
    node: TableNode,
    made: Mapping[tuple[str, ...], ArraySchema | RaggedSchema],
    path: tuple[str, ...],
) -> TableSchema:
    return {
        name: _schemas(column, made, (*path, name))
        if isinstance(column, TableNode)
        else made[(*path, name)]
        for name, column in node.columns.items()
    }


def _chunks(leaf: Leaf, target: Leaf, start: int, recode: Recode) -> Iterator[Commit]:
    """Yield the commits that store one column of one shard, a file or all of them at a time."""
    old, new = _slots(leaf), _slots(target)
    length, rows = new.schema.shape[0], new.schema.chunks[0]
    if not new.schema.grid.chunk_count:
        return
    if rows == old.schema.chunks[0] and start % rows == 0:
        yield Commit(prepare=new.stage_each(_moved(old, new, start // rows)).edits)
        return
    # Commits of several files do not depend on each other. Files of one axis hold whole rows.
    step = new.storage.capacity * rows if len(new.schema.shape) == 1 else length
    for begin in range(0, length, step):
        end = min(begin + step, length)
        there, here = slice(start + begin, start + end), slice(begin, end)
        yield Commit(prepare=recode(leaf, there, target, here).edits)


def _moved(chunks: BlskMap, target: BlskMap, first: int) -> Iterator[tuple[Coords, bytes | None]]:
    """Yield the images of chunks under their numbers and the identity of the shard."""
    chain = chunks.schema.chain
    assert isinstance(chain, SlotChain)
    offset = first * chain.across
    for number in range(target.schema.grid.chunk_count):
        coords = tuple(map(int, np.unravel_index(number, target.schema.grid.counts)))
        yield coords, chunks.image_of(number + offset, (number, target.storage.identity))

"""Splits a dataset of blsk by rows into shards, each a dataset by itself.

Where a shard begins at the beginning of a chunk, chunks are copied; only the number and the
identity in the trailer are rewritten. Elsewhere the rows are encoded again, by a function that the
caller passes: formats move no array data. `row_shards` reads the shards as one dataset.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from ingot.errors import UnsupportedError
from ingot.formats.bcolz.row_shards import SHARDS, RowShards
from ingot.formats.bcolz.split import fitting_chunk, shard_rows
from ingot.formats.blsk.array import BlskMap, create_array, other_keys
from ingot.formats.blsk.slots import SlotChain
from ingot.formats.blsk.table import BlskTableMap, create_table
from ingot.formats.format import ArrayNode, Column, Coords, Recode, TableNode, TableSchema
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Edit, Extent, Put, Store

__all__ = ["split"]


def split(node: Column, count: int, store: Store, recode: Recode) -> Iterator[Commit]:
    """Yield the commits that store a dataset as `count` shards; the last one makes them visible."""
    columns = list(_leaves(node, ()))
    rows = columns[0][1].schema.shape[0] if columns else 0
    longest = max((chunks.schema.chunks[0] for _, chunks in columns), default=1)
    parts = shard_rows(rows, longest, count)
    for number, length in enumerate(parts):
        start = sum(parts[:number])
        yield from _shard(node, store, RowShards.folder(number), start, length, parts, recode)
    yield Commit(publish=(Put(SHARDS, RowShards(parts, "blsk").pack()),))


def _leaves(node: Column, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], BlskMap]]:
    """Yield all arrays of a dataset, with the paths of their columns."""
    if isinstance(node, TableNode):
        for name, column in node.columns.items():
            yield from _leaves(column, (*path, name))
        return
    chunks = node.chunks if isinstance(node, ArrayNode) else None
    if not isinstance(chunks, BlskMap) or not chunks.schema.shape:
        raise UnsupportedError("only arrays with an axis and tables of blsk are cut into shards")
    if not chunks.found:
        raise UnsupportedError("a super-chunk file without its metadata is not cut into shards")
    yield path, chunks


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
    made = {path: _cut(chunks, length, parts) for path, chunks in _leaves(node, ())}
    shard: Column
    if isinstance(node, TableNode):
        assert isinstance(node.table, BlskTableMap)
        shard, commit = create_table(store, _schemas(node, made, ()), node.attrs, folder)
        source = node.table.store, node.table.path
    else:
        assert isinstance(node, ArrayNode)
        assert isinstance(node.chunks, BlskMap)
        settings = node.chunks.storage.capacity, node.chunks.spare
        shard, commit = create_array(
            store, made[()], folder, superchunksize=settings[0], spare=settings[1]
        )
        source = node.chunks.store, node.chunks.path
    # The chunks state the identities that are in the documents.
    targets = dict(_leaves(shard, ()))
    for path, chunks in _leaves(node, ()):
        yield from _chunks(chunks, targets[path], start, recode)
    yield Commit(prepare=(*commit.edits, *_others(*source, folder)))


def _others(store: Store, path: str, folder: str) -> Iterator[Edit]:
    """Yield the edits that carry further files of ``meta`` along."""
    keys = other_keys(store, path)
    for key, data in zip(keys, store.read([Extent(key) for key in keys]), strict=True):
        if data is not None:
            yield Put(f"{folder}/{key.removeprefix(prefix(path))}", data)


def _cut(chunks: BlskMap, length: int, parts: Sequence[int]) -> ArraySchema:
    schema = chunks.schema
    rows = fitting_chunk(schema.chunks[0], parts)
    return replace(schema, shape=(length, *schema.shape[1:]), chunks=(rows, *schema.chunks[1:]))


def _schemas(
    node: TableNode, made: dict[tuple[str, ...], ArraySchema], path: tuple[str, ...]
) -> TableSchema:
    return {
        name: _schemas(column, made, (*path, name))
        if isinstance(column, TableNode)
        else made[(*path, name)]
        for name, column in node.columns.items()
    }


def _chunks(chunks: BlskMap, target: BlskMap, start: int, recode: Recode) -> Iterator[Commit]:
    """Yield the commits that store one column of one shard, a file or all of them at a time."""
    length, rows = target.schema.shape[0], target.schema.chunks[0]
    count = target.schema.grid.chunk_count
    if not count:
        return
    if rows == chunks.schema.chunks[0] and start % rows == 0:
        yield Commit(prepare=target.stage_each(_moved(chunks, target, start // rows)).edits)
        return
    # Commits of several files do not depend on each other. Files of one axis hold whole rows.
    step = target.storage.capacity * rows if len(target.schema.shape) == 1 else length
    for begin in range(0, length, step):
        end = min(begin + step, length)
        there, here = slice(start + begin, start + end), slice(begin, end)
        yield Commit(prepare=recode(chunks, there, target, here).edits)


def _moved(chunks: BlskMap, target: BlskMap, first: int) -> Iterator[tuple[Coords, bytes | None]]:
    """Yield the images of chunks under their numbers and the identity of the shard."""
    chain = chunks.schema.chain
    assert isinstance(chain, SlotChain)
    offset = first * chain.across
    for number in range(target.schema.grid.chunk_count):
        coords = tuple(map(int, np.unravel_index(number, target.schema.grid.counts)))
        yield coords, chunks.image_of(number + offset, (number, target.storage.identity))

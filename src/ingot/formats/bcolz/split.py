"""Splits a bcolz dataset by rows into shards, each a dataset by itself.

Where a shard begins at the beginning of a chunk, chunks are copied; only the number and the
identity in the trailer are rewritten. Elsewhere the rows are encoded again. The caller passes the
functions that do both natively: formats move no array data. Without the native kernel the chunks
are copied here. `row_shards` reads the shards as one dataset.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from ingot.blosc.header import ChunkHeader
from ingot.errors import CorruptionError, UnsupportedError
from ingot.formats import trailer
from ingot.formats.bcolz.array import ATTRS, BcolzMap, create_array, pack_attrs
from ingot.formats.bcolz.chunk_file import HEAD_BYTES, check_head, pack_head
from ingot.formats.bcolz.ragged import BcolzRaggedMap, create_ragged
from ingot.formats.bcolz.table import BcolzTableMap, create_table
from ingot.formats.folder_table import folder_name
from ingot.formats.format import (
    ArrayNode,
    Column,
    ColumnSchema,
    CopyChunks,
    RaggedNode,
    Recode,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.row_shards import SHARDS, RowShards
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Edit, Extent, Put, Store

__all__ = ["fitting_chunk", "leaves", "shard_rows", "split"]

_WINDOW: Final = 64


def split(
    node: Column, count: int, store: Store, recode: Recode, copy: CopyChunks
) -> Iterator[Commit]:
    """Yield the commits that store a dataset as `count` shards; the last one makes them visible.

    Each shard is a dataset in its own folder, which bcolz opens as well.
    """
    columns = list(leaves(node))
    rows = columns[0][1].schema.shape[0] if columns else 0
    longest = max((_chunk_rows(chunks) for _, chunks in columns), default=1)
    parts = shard_rows(rows, longest, count)
    for number, length in enumerate(parts):
        start = sum(parts[:number])
        folder = RowShards.folder(number)
        yield from _shard(node, store, folder, start, length, parts, recode, copy)
    yield Commit(publish=(Put(SHARDS, RowShards(parts).pack()),))


Leaf: TypeAlias = BcolzMap | BcolzRaggedMap
"""The map of a column that is no table."""


def _chunk_rows(leaf: Leaf) -> int:
    schema = leaf.schema
    return schema.pack_items if isinstance(schema, RaggedSchema) else schema.chunks[0]


def leaves(node: Column, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Yield all arrays and items of a dataset, with the paths of their columns.

    >>> list(leaves(TableNode(BcolzTableMap(None, {}, {}))))
    []
    """
    if isinstance(node, TableNode):
        for name, column in node.columns.items():
            yield from leaves(column, prefix(path) + folder_name(name))
    elif isinstance(node, ArrayNode) and isinstance(node.chunks, BcolzMap):
        yield path, node.chunks
    elif isinstance(node, RaggedNode) and isinstance(node.packs, BcolzRaggedMap):
        yield path, node.packs
    else:
        name = f"column {path!r}" if path else "the array"
        store = node.chunks.store if isinstance(node, ArrayNode) else node.packs.store
        raise UnsupportedError(
            f"{store.location}: {name} cannot be split into shards: it is in shards "
            "already, or its format is not bcolz"
        )


def shard_rows(rows: int, chunk: int, count: int) -> tuple[int, ...]:
    """Return the number of rows in each of `count` shards: whole chunks, distributed evenly.

    >>> shard_rows(95, 10, 4), shard_rows(95, 50, 4), shard_rows(2, 10, 4)
    ((30, 30, 20, 15), (23, 23, 23, 26), (1, 1, 0, 0))
    """
    chunks = -(-rows // chunk)
    if chunks < count:
        # There are fewer chunks than shards: shards get less than a chunk.
        chunk = max(1, rows // count)
        chunks = min(count, rows)
    each, more = divmod(chunks, count)
    starts = [min((each * n + min(n, more)) * chunk, rows) for n in range(count)]
    return tuple(stop - start for start, stop in zip(starts, [*starts[1:], rows], strict=True))


def fitting_chunk(chunk: int, rows: Sequence[int]) -> int:
    """Return the largest length of chunks, up to `chunk`, that divides all shards but the last.

    >>> fitting_chunk(10, (30, 30, 15)), fitting_chunk(8, (30, 30, 15))
    (10, 6)
    """
    unit = math.gcd(*(length for length in rows[:-1]))
    if unit == 0 or unit % chunk == 0:
        return chunk
    return next(length for length in range(min(chunk, unit), 0, -1) if unit % length == 0)


def _shard(
    node: Column,
    store: Store,
    folder: str,
    start: int,
    length: int,
    parts: Sequence[int],
    recode: Recode,
    copy: CopyChunks,
) -> Iterator[Commit]:
    """Yield the commits that store one shard: first its chunks, then its documents."""
    made = {
        path: _cut(chunks, length, fitting_chunk(_chunk_rows(chunks), parts))
        for path, chunks in leaves(node)
    }
    shard: Column
    if isinstance(node, TableNode):
        assert isinstance(node.table, BcolzTableMap)
        shard, commit = create_table(store, _schemas(node, made, ""), node.attrs, folder)
        documents = (*commit.edits, *_attrs(node, folder))
    elif isinstance(schema := made[""], RaggedSchema):
        shard, commit = create_ragged(store, schema, folder)
        documents = commit.edits
    else:
        shard, commit = create_array(store, schema, folder)
        documents = commit.edits
    # The chunks state the identities that are in the documents.
    targets = dict(leaves(shard))
    for path, chunks in leaves(node):
        yield from _chunks(chunks, targets[path], start, recode, copy)
    yield Commit(prepare=documents)


def _attrs(node: TableNode, folder: str) -> Iterator[Edit]:
    """Yield the edits that store the attributes of nested tables."""
    for name, column in node.columns.items():
        if isinstance(column, TableNode):
            inner = f"{folder}/{folder_name(name)}"
            yield Put(f"{inner}/{ATTRS}", pack_attrs(column.attrs))
            yield from _attrs(column, inner)


def _schemas(
    node: TableNode, made: Mapping[str, ArraySchema | RaggedSchema], path: str
) -> TableSchema:
    schemas: dict[str, ColumnSchema] = {}
    for name, column in node.columns.items():
        inner = prefix(path) + folder_name(name)
        if isinstance(column, TableNode):
            schemas[name] = _schemas(column, made, inner)
        else:
            schemas[name] = made[inner]
    return schemas


def _cut(chunks: Leaf, length: int, rows: int) -> ArraySchema | RaggedSchema:
    schema = chunks.schema
    if isinstance(schema, RaggedSchema):
        codec = replace(schema.codec, rows=rows)  # type: ignore[type-var]
        return replace(schema, length=length, pack_items=rows, codec=codec)
    chain = replace(schema.chain, rows=rows)  # type: ignore[call-arg]
    return replace(
        schema, shape=(length, *schema.shape[1:]), chunks=(rows, *schema.chunks[1:]), chain=chain
    )


def _chunks(
    chunks: Leaf, target: Leaf, start: int, recode: Recode, copy: CopyChunks
) -> Iterator[Commit]:
    """Yield the commits that store the chunks of one column of one shard, some at a time."""
    length, rows = target.schema.shape[0], _chunk_rows(target)
    untouched = rows == _chunk_rows(chunks) and start % rows == 0
    if untouched and length and isinstance(chunks, BcolzMap) and isinstance(target, BcolzMap):
        commit = copy(chunks, target, start // rows)
        if commit is not None:
            yield Commit(prepare=commit.edits)
            return
    count = -(-length // rows)
    for first in range(0, count, _WINDOW):
        numbers = range(first, min(first + _WINDOW, count))
        if untouched:
            yield Commit(prepare=tuple(_moved(chunks, target, start // rows, numbers)))
            continue
        begin, end = first * rows, min((first + len(numbers)) * rows, length)
        rows_there, rows_here = slice(start + begin, start + end), slice(begin, end)
        yield Commit(prepare=recode(chunks, rows_there, target, rows_here).edits)


def _moved(chunks: Leaf, target: Leaf, offset: int, numbers: Sequence[int]) -> Iterator[Edit]:
    """Yield the edits that copy chunks under their numbers in the shard."""
    keys = [chunks.template.key((number + offset,)) for number in numbers]
    found = chunks.store.read([Extent(key) for key in keys])
    for number, key, data in zip(numbers, keys, found, strict=True):
        if data is None:
            raise CorruptionError(f"{chunks.store.location}: {key} is missing")
        moved = _image(chunks, target, data, number + offset, number)
        yield Put(target.template.key((number,)), moved)


def _image(chunks: Leaf, target: Leaf, data: bytes, old: int, new: int) -> bytes:
    if isinstance(chunks, BcolzRaggedMap):
        assert isinstance(target, BcolzRaggedMap)
        return chunks.codec.moved(data, old, new, target.codec)
    assert isinstance(target, BcolzMap)
    before, after = (each.metadata.storage.identity for each in (chunks, target))
    return _renamed(data, (old, before), (new, after))


def _renamed(data: bytes, old: tuple[int, int | None], new: tuple[int, int | None]) -> bytes:
    """Return a chunk file with another number and identity in its trailer, after checking it."""
    check_head(data)
    end = HEAD_BYTES + int.from_bytes(data[HEAD_BYTES + 12 : HEAD_BYTES + 16], "little")
    chunk, rest = memoryview(data)[HEAD_BYTES:end], data[end:]
    header = ChunkHeader.parse(chunk)
    if not rest:
        return data
    found = trailer.parse(rest)
    found.check(chunk, header, *old)
    number, identity = new
    return b"".join((pack_head(), chunk, found.moved(chunk, number, identity)))

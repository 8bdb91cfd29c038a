"""Splitting a bcolz dataset by rows into datasets of their own.

A chunk moves unchanged where a shard ends at the end of a chunk: only the number in its trailer is
rewritten. Elsewhere the rows are encoded anew, by the function that the caller passes: formats move
no array data. `row_shards` reads the shards as one dataset.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from ingot.blosc.header import ChunkHeader
from ingot.errors import CorruptionError
from ingot.formats import trailer
from ingot.formats.bcolz.array import ATTRS, BcolzMap, create_array, pack_attrs
from ingot.formats.bcolz.chunk_file import FRAME_BYTES, pack_frame, parse_frame
from ingot.formats.bcolz.row_shards import SHARDS, Shards, fitting_chunk, leaves, lengths
from ingot.formats.bcolz.table import BcolzTable, create_table
from ingot.formats.format import Column, Recode, TableNode, TableSchema
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Edit, Extent, Put, Store

__all__ = ["split"]

_WINDOW: Final = 64


def split(node: Column, count: int, store: Store, recode: Recode) -> Iterator[Commit]:
    """Yield the commits that store a dataset as `count` shards; the last one makes them visible.

    Each shard is a dataset in a folder of its own, which bcolz opens as well.
    """
    columns = list(leaves(node))
    rows = columns[0][1].schema.shape[0] if columns else 0
    longest = max((chunks.schema.chunks[0] for _, chunks in columns), default=1)
    parts = lengths(rows, longest, count)
    for number, length in enumerate(parts):
        start = sum(parts[:number])
        yield from _shard(node, store, Shards.folder(number), start, length, parts, recode)
    yield Commit(publish=(Put(SHARDS, Shards(parts).pack()),))


def _shard(
    node: Column,
    store: Store,
    folder: str,
    start: int,
    length: int,
    parts: Sequence[int],
    recode: Recode,
) -> Iterator[Commit]:
    """Yield what makes one shard: its chunks, then the documents that make it one."""
    made: dict[str, ArraySchema] = {}
    for path, chunks in leaves(node):
        schema = _cut(chunks, length, fitting_chunk(chunks.schema.chunks[0], parts))
        made[path] = schema
        yield from _chunks(chunks, schema, store, f"{folder}/{path}".rstrip("/"), start, recode)
    if isinstance(node, TableNode):
        assert isinstance(node.table, BcolzTable)
        _, commit = create_table(store, _schemas(node, made, ""), node.attrs, folder)
        yield Commit(prepare=(*commit.edits, *_attrs(node, folder)))
    else:
        yield Commit(prepare=create_array(store, made[""], folder)[1].edits)


def _attrs(node: TableNode, folder: str) -> Iterator[Edit]:
    """Yield the attributes of nested tables."""
    for name, column in node.columns.items():
        if isinstance(column, TableNode):
            yield Put(f"{folder}/{name}/{ATTRS}", pack_attrs(column.attrs))
            yield from _attrs(column, f"{folder}/{name}")


def _schemas(node: TableNode, made: dict[str, ArraySchema], path: str) -> TableSchema:
    schemas: dict[str, ArraySchema | TableSchema] = {}
    for name, column in node.columns.items():
        inner = f"{path}/{name}" if path else name
        nested = isinstance(column, TableNode)
        schemas[name] = _schemas(column, made, inner) if nested else made[inner]  # type: ignore[arg-type]
    return schemas


def _cut(chunks: BcolzMap, length: int, rows: int) -> ArraySchema:
    schema = chunks.schema
    chain = replace(schema.chain, rows=rows)  # type: ignore[call-arg]
    return replace(
        schema, shape=(length, *schema.shape[1:]), chunks=(rows, *schema.chunks[1:]), chain=chain
    )


def _chunks(
    chunks: BcolzMap, schema: ArraySchema, store: Store, folder: str, start: int, recode: Recode
) -> Iterator[Commit]:
    """Yield the chunks of one column of one shard, some at a time."""
    node, _ = create_array(store, schema, folder)
    target = node.chunks
    assert isinstance(target, BcolzMap)
    length, rows = schema.shape[0], schema.chunks[0]
    untouched = rows == chunks.schema.chunks[0] and start % rows == 0
    for first in range(0, target.schema.grid.counts[0], _WINDOW):
        numbers = range(first, min(first + _WINDOW, target.schema.grid.counts[0]))
        if untouched:
            yield Commit(prepare=tuple(_moved(chunks, target, start // rows, numbers)))
            continue
        begin, end = first * rows, min((first + len(numbers)) * rows, length)
        rows_there, rows_here = slice(start + begin, start + end), slice(begin, end)
        yield Commit(prepare=recode(chunks, rows_there, target, rows_here).edits)


def _moved(
    chunks: BcolzMap, target: BcolzMap, offset: int, numbers: Sequence[int]
) -> Iterator[Edit]:
    """Yield the edits that store chunks as they are, under the numbers of the shard."""
    keys = [chunks.template.key((number + offset,)) for number in numbers]
    found = chunks.store.read([Extent(key) for key in keys])
    for number, key, data in zip(numbers, keys, found, strict=True):
        if data is None:
            raise CorruptionError(f"{chunks.store.location}: {key} is missing")
        yield Put(target.template.key((number,)), _renumbered(data, number + offset, number))


def _renumbered(data: bytes, old: int, new: int) -> bytes:
    """Return a file as that of another chunk; what it holds is checked as far as it can be."""
    parse_frame(data)
    end = FRAME_BYTES + int.from_bytes(data[FRAME_BYTES + 12 : FRAME_BYTES + 16], "little")
    chunk, rest = data[FRAME_BYTES:end], data[end:]
    header = ChunkHeader.parse(chunk)
    if not rest:
        return data
    found = trailer.parse(rest)
    found.check(chunk, header, old)
    return pack_frame() + chunk + trailer.pack(chunk, new, found.rows, found.zone)

"""Cutting a bcolz dataset by rows into datasets of their own.

Knows which chunks go where, and that they move as they are wherever a shard ends where a chunk
does: only the number in the trailer is another one then. Refuses to know how shards are read
together: `formats.row_shards` does.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from ingot.codecs.header import ChunkHeader
from ingot.engine.run import Engine
from ingot.errors import CorruptionError, ExistsError
from ingot.formats import trailer
from ingot.formats.bcolz import BcolzFormat
from ingot.formats.bcolz_array import ATTRS, BcolzMap, create_array, pack_attrs
from ingot.formats.bcolz_table import BcolzTable, create_table
from ingot.formats.format import Column, TableNode, TableSchema
from ingot.formats.row_shards import SHARDS, Shards, fitting_chunk, leaves, lengths
from ingot.formats.superchunk import FRAME_BYTES, pack_frame, parse_frame
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores import Commit, Edit, Extent, LocalStore, Put, Store
from ingot.stores.state import stateful

__all__ = ["Target", "cut", "shard"]

Target: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is, or where its shards shall be."""

_WINDOW: Final = 64


def shard(source: Target, count: int, path: Target, *, options: Options | None = None) -> None:
    """Cut the bcolz array or table at `source` into `count` shards at `path`.

    Each shard is a dataset by itself, in a folder of its own, that bcolz opens as well;
    `ingot.open` reads all of them as one. They appear when all of them are stored.

    >>> import tempfile
    >>> import numpy as np
    >>> import ingot
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = ingot.array(np.arange(10), f"{folder}/whole", format="bcolz", chunks=2)
    ...     shard(f"{folder}/whole", 3, f"{folder}/cut")
    ...     sorted(os.listdir(f"{folder}/cut"))[-4:], ingot.open(f"{folder}/cut")[3:7]
    (['shard-00000', 'shard-00001', 'shard-00002', 'shards.json'], array([3, 4, 5, 6]))
    """
    origin = source if isinstance(source, Store) else LocalStore(source)
    states = stateful(origin)
    if states is None:
        cut(BcolzFormat().open(origin), count, path, options)
        return
    with states.hold() as view:
        cut(BcolzFormat().open(view), count, path, options)


def cut(node: Column, count: int, path: Target, options: Options | None = None) -> None:
    """Cut an array or table into `count` shards at `path`, whatever state of it the maps show."""
    if count < 1:
        raise ValueError(f"count is {count}, at least 1 is needed")
    target = path if isinstance(path, Store) else LocalStore(path, writable=True)
    if any(True for _ in target.names()):
        raise ExistsError(f"{target.location}: there is something already")
    choices, columns = options or Options(), list(leaves(node))
    rows = columns[0][1].schema.shape[0] if columns else 0
    longest = max((chunks.schema.chunks[0] for _, chunks in columns), default=1)
    parts = lengths(rows, longest, count)
    for number, length in enumerate(parts):
        start = sum(parts[:number])
        for commit in _shard(node, target, Shards.folder(number), start, length, parts, choices):
            target.apply(commit, durability=choices.durability)
    publish = (Put(SHARDS, Shards(parts).pack()),)
    target.apply(Commit(publish=publish), durability=choices.durability)


def _shard(
    node: Column,
    store: Store,
    folder: str,
    start: int,
    length: int,
    parts: Sequence[int],
    options: Options,
) -> Iterator[Commit]:
    """Yield what makes one shard: its chunks, then the documents that make it one."""
    made: dict[str, ArraySchema] = {}
    for path, chunks in leaves(node):
        schema = _cut(chunks, length, fitting_chunk(chunks.schema.chunks[0], parts))
        made[path] = schema
        yield from _chunks(chunks, schema, store, f"{folder}/{path}".rstrip("/"), start, options)
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
    chunks: BcolzMap, schema: ArraySchema, store: Store, folder: str, start: int, options: Options
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
        box = parse(slice(start + begin, start + end), chunks.schema.shape)
        values = Engine(chunks, options).read(box)
        place = parse(slice(begin, end), schema.shape)
        yield Commit(prepare=Engine(target, options).written(place, values).edits)


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

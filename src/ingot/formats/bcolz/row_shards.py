"""Datasets that are cut by rows into datasets of their own, and read as one.

Knows ``shards.json``, which says how many rows each of the folders ``shard-00000``, ``shard-00001``
and so on has, and how the chunks of all of them are counted as those of one array. Refuses to
change anything: a shard is a dataset by itself, and is changed as one.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from ingot.errors import CorruptionError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats import json
from ingot.formats.bcolz.array import BcolzMap, open_array
from ingot.formats.bcolz.chunk_file import ChunkFileChain
from ingot.formats.bcolz.table import ROOTDIRS, BcolzTable, open_table
from ingot.formats.format import ArrayNode, Column, Coords, Locations, TableNode, TableSchema
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Extent, Store

__all__ = [
    "SHARDS",
    "ShardedRows",
    "ShardedTable",
    "Shards",
    "fitting_chunk",
    "leaves",
    "lengths",
    "open_shards",
    "shard_of",
]

SHARDS: Final = "shards.json"

_VERSION: Final = 1
_FORMAT: Final = "bcolz"
_MOST_SHARDS: Final = 10**5


@dataclass(frozen=True, slots=True)
class Shards:
    """What a ``shards.json`` says: the rows of each shard.

    >>> Shards.parse(b'{"version": 1, "format": "bcolz", "rows": [4, 4, 2]}').rows
    (4, 4, 2)
    """

    rows: tuple[int, ...]

    @classmethod
    def parse(cls, data: bytes, where: str = SHARDS) -> "Shards":
        """Return what a document says, or complain."""
        claims = FieldReader(where, json.parse_object(data, where))
        version, format = claims.integer("version"), claims.text("format")
        if version != _VERSION:
            raise UnsupportedError(f"{where}: version {version} is unknown")
        if format != _FORMAT:
            raise UnsupportedError(f"{where}: shards of format {format!r} are not read")
        return cls(claims.integers("rows", low=0, most=_MOST_SHARDS))

    def pack(self) -> bytes:
        """Return the document that `parse` reads."""
        values = {"version": _VERSION, "format": _FORMAT, "rows": list(self.rows)}
        return json.pack_line(values, SHARDS)

    @staticmethod
    def folder(number: int) -> str:
        """Return the folder of a shard.

        >>> Shards.folder(7)
        'shard-00007'
        """
        return f"shard-{number:05d}"


@dataclass(frozen=True, slots=True)
class ShardedChain(ChunkFileChain):
    """The chain of all shards: a chunk is numbered as the shard that it lies in counts."""

    firsts: tuple[int, ...] = (0,)

    def decode(self, data: Any, spec: Any, out: Any = None, **options: Any) -> Any:
        """Return the rows of a file."""
        local = spec.number - self.firsts[bisect_right(self.firsts, spec.number) - 1]
        return ChunkFileChain.decode(self, data, replace(spec, number=local), out, **options)

    def native_coding(self, spec: Any) -> None:
        """Return nothing: the native kernel knows one folder at a time."""


@dataclass(frozen=True, slots=True)
class ShardedRows:
    """The chunks of an array in many shards, all but the last of whole chunks."""

    store: Store
    parts: tuple[BcolzMap, ...]
    path: str = ""
    inner: str = ""
    """Which column of the shards it is."""
    schema: ArraySchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        counts = [part.schema.grid.counts[0] for part in self.parts]
        # Shards without rows have no chunks: the later of two with one first number counts.
        firsts = tuple(accumulate(counts[:-1], initial=0))
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", _joined(self.parts, firsts, prefix(self.inner)))

    @property
    def template(self) -> None:
        """How keys follow from coordinates: by a table."""

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return Locations(tuple(self._key(number) for number in coords[:, 0].tolist()))

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks."""
        found = []
        for number in numbers:
            shard = bisect_right(self.firsts, number) - 1
            found += self.parts[shard].zones([number - self.firsts[shard]])
        return found

    def reopened(self, store: Store) -> "ShardedRows":
        """Return the map of the same array as `store` has it now."""
        node: Column = open_shards(store, self.path)
        for name in self.inner.split("/") if self.inner else ():
            if not isinstance(node, TableNode) or name not in node.columns:
                raise NotFoundError(f"{store.location}: no column {self.inner!r}")
            node = node.columns[name]
        if not isinstance(node, ArrayNode) or not isinstance(node.chunks, ShardedRows):
            raise NotFoundError(f"{store.location}: {self.inner!r} is no longer an array")
        return node.chunks

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Complain."""
        _refuse(self.store)

    def resized(self, shape: tuple[int, ...]) -> "tuple[ShardedRows, Commit]":
        """Complain."""
        _refuse(self.store)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ShardedRows, Commit]":
        """Complain."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Complain."""
        _refuse(self.store)

    def _key(self, number: int) -> str:
        shard = bisect_right(self.firsts, number) - 1
        return self.parts[shard].template.key((number - self.firsts[shard],))


@dataclass(frozen=True, slots=True)
class ShardedTable:
    """The columns of a table in many shards."""

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.columns)

    def reopened(self, store: Store) -> "ShardedTable":
        """Return the map of the same table as `store` has it now."""
        node = open_shards(store, self.path)
        if not isinstance(node, TableNode) or not isinstance(node.table, ShardedTable):
            raise NotFoundError(f"{store.location}: no longer a table")
        return node.table

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ShardedTable, Commit]":
        """Complain."""
        _refuse(self.store)

    def added(
        self, name: str, schema: ArraySchema | TableSchema, position: int | None = None
    ) -> "tuple[ShardedTable, Column, Commit]":
        """Complain."""
        _refuse(self.store)

    def dropped(self, name: str) -> "tuple[ShardedTable, Commit]":
        """Complain."""
        _refuse(self.store)

    def renamed(self, old: str, new: str) -> "tuple[ShardedTable, Mapping[str, str], Commit]":
        """Complain."""
        _refuse(self.store)

    def removed(self) -> Commit:
        """Complain."""
        _refuse(self.store)

    def exchanged(self, name: str, column: Column) -> "ShardedTable":
        """Complain."""
        _refuse(self.store)

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Complain."""
        _refuse(self.store)


def open_shards(store: Store, path: str = "") -> ArrayNode | TableNode:
    """Return the array or table that the shards at `path` make."""
    key = prefix(path) + SHARDS
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {key}")
    try:
        shards = Shards.parse(data, key)
        if not shards.rows:
            raise CorruptionError(f"{key}: there are no shards")
        folders = [prefix(path) + Shards.folder(number) for number in range(len(shards.rows))]
        if store.size(f"{folders[0]}/{ROOTDIRS}") is None:
            arrays = tuple(open_array(store, folder) for folder in folders)
            _check_rows([part.schema.shape[0] for part in arrays], shards, key)
            return ArrayNode(ShardedRows(store, arrays, path))
        tables = [open_table(store, folder) for folder in folders]
        _check_rows([table.rows for table in tables], shards, key)
        columns = _columns(store, [table.columns for table in tables], path, "")
        return TableNode(ShardedTable(store, columns, tables[0].attrs, path))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def shard_of(store: Store, path: str) -> str:
    """Return the folder of the shard in a store that a path leads to or into; "" if to none.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({SHARDS: Shards((4, 4, 2)).pack()})
    >>> shard_of(store, "shard-00002/price"), shard_of(store, "shard-00003"), shard_of(store, "a")
    ('shard-00002', '', '')
    """
    first = path.partition("/")[0]
    if not first.startswith(Shards.folder(0)[:6]):
        return ""
    (data,) = store.read([Extent(SHARDS, 0, json.LARGEST + 1)])
    try:
        count = 0 if data is None else len(Shards.parse(data).rows)
    except IngotError:
        return ""  # Who opens all of them is told what is wrong.
    return first if first in map(Shards.folder, range(count)) else ""


def leaves(node: Column, path: str = "") -> Iterator[tuple[str, BcolzMap]]:
    """Yield all arrays of a dataset, by the path of their column.

    >>> list(leaves(TableNode(BcolzTable(None, {}, {}))))
    []
    """
    if isinstance(node, TableNode):
        for name, column in node.columns.items():
            yield from leaves(column, prefix(path) + name)
    elif isinstance(node.chunks, BcolzMap):
        yield path, node.chunks
    else:
        name = f"column {path!r}" if path else "the array"
        raise UnsupportedError(
            f"{node.chunks.store.location}: {name} cannot be cut into shards: it is one of them "
            "already, or of another format than bcolz"
        )


def lengths(rows: int, chunk: int, count: int) -> tuple[int, ...]:
    """Return the rows of `count` shards: whole chunks, as evenly as there are chunks.

    >>> lengths(95, 10, 4), lengths(95, 50, 4), lengths(2, 10, 4)
    ((30, 30, 20, 15), (23, 23, 23, 26), (1, 1, 0, 0))
    """
    chunks = -(-rows // chunk)
    if chunks < count:
        # Less than a chunk for each: chunks are cut as well.
        chunk = max(1, rows // count)
        chunks = min(count, rows)
    each, more = divmod(chunks, count)
    starts = [min((each * n + min(n, more)) * chunk, rows) for n in range(count)]
    return tuple(stop - start for start, stop in zip(starts, [*starts[1:], rows], strict=True))


def fitting_chunk(chunk: int, rows: Sequence[int]) -> int:
    """Return the longest chunks, not longer than `chunk`, that end where shards do.

    >>> fitting_chunk(10, (30, 30, 15)), fitting_chunk(8, (30, 30, 15))
    (10, 6)
    """
    unit = math.gcd(*(length for length in rows[:-1]))
    if unit == 0 or unit % chunk == 0:
        return chunk
    return next(length for length in range(min(chunk, unit), 0, -1) if unit % length == 0)


def _check_rows(found: Sequence[int], shards: Shards, where: str) -> None:
    for number, (fact, claim) in enumerate(zip(found, shards.rows, strict=True)):
        if fact != claim:
            raise CorruptionError(
                f"{where}: {Shards.folder(number)} has {fact} rows, {claim} are claimed"
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
        return ArrayNode(ShardedRows(store, tuple(maps), path, inner))
    tables = [part.table for part in parts if isinstance(part, TableNode)]
    if len(tables) != len(parts):
        raise CorruptionError(f"column {inner!r}: a table in some shards, an array in others")
    nested = [table for table in tables if isinstance(table, BcolzTable)]
    columns = _columns(store, [table.columns for table in nested], path, inner)
    return TableNode(ShardedTable(store, columns, nested[0].attrs, path))


def _joined(parts: Sequence[BcolzMap], firsts: tuple[int, ...], where: str) -> ArraySchema:
    """Return what all shards of an array are together."""
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
    joined = ShardedChain(*stages, chain.rows, chain.auto, firsts)
    return replace(first, shape=(rows, *first.shape[1:]), chain=joined)


def _refuse(store: Store) -> NoReturn:
    raise UnsupportedError(
        f"{store.location}: shards are read as one; each of them is changed by itself"
    )

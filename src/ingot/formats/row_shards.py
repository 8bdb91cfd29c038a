"""Row shards: datasets that were split by rows, read as one dataset.

``shards.json`` has the number of rows in each of the folders ``shard-00000``, ``shard-00001`` and
so on. This module has what is the same in every format: the document, the numbers of the chunks of
all shards as those of one array, and the maps of arrays, items and tables, which are read-only as a
whole. Each shard is a dataset by itself, and is changed by itself. A format that has row shards
opens them in a module of the same name, and creates them in its `split`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, ClassVar, Final, Generic, NoReturn, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import NativeCoding
from ingot.errors import CorruptionError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats import json
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
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
    "RowShardItems",
    "RowShardMap",
    "RowShardTable",
    "RowShards",
    "ShardNumbers",
    "check_lengths",
    "joined_rows",
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

    @classmethod
    def read(cls, store: Store, path: str, data: bytes | None = None) -> "RowShards":
        """Return the contents of the document at `path`; `data` is the document, if it was read."""
        key = prefix(path) + SHARDS
        if data is None:
            (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
        if data is None:
            raise NotFoundError(f"{store.location}: no {key}")
        shards = cls.parse(data, key)
        if not shards.rows:
            raise CorruptionError(f"{key}: there are no shards")
        return shards

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


def check_lengths(lengths: Iterable[int], shards: RowShards, where: str) -> None:
    """Raise `CorruptionError` if a shard has another length than the document claims."""
    for number, (fact, claim) in enumerate(zip(lengths, shards.rows, strict=True)):
        if fact != claim:
            raise CorruptionError(
                f"{where}: {RowShards.folder(number)} has {fact} rows, {claim} are claimed"
            )


class ShardNumbers:
    """What the codec chains of arrays in shards share: trailers state numbers in their own shards.

    `firsts` are the numbers of the first chunks of the shards. `identities` are those of the
    shards, each of which is an array by itself.
    """

    __slots__ = ()

    firsts: tuple[int, ...]
    identities: tuple[int | None, ...]

    def stated(self, number: int) -> tuple[int, int | None]:
        """Return the number and the identity that the trailer of a chunk states."""
        shard = bisect_right(self.firsts, number) - 1
        return number - self.firsts[shard], self.identities[shard]

    def in_shards(self, coding: NativeCoding | None) -> NativeCoding | None:
        """Return how the native kernel codes chunks, with the first chunk of each shard."""
        parts = tuple(zip(self.firsts, self.identities, strict=True))
        return None if coding is None else replace(coding, parts=parts)


class _ReadOnly:
    """What the maps of shards as one dataset share: only single shards are changed."""

    __slots__ = ()

    store: Store

    def described(self, attrs: Mapping[str, Any]) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def removed(self) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


class ArrayShard(ChunkMap, Protocol):
    """The chunks of one shard of an array."""

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks."""
        ...


Shard = TypeVar("Shard", bound=ArrayShard)


@dataclass(frozen=True, slots=True, eq=False)
class RowShardMap(_ReadOnly, ABC, Generic[Shard]):
    """The chunks of an array in many shards; all but the last have whole chunks only."""

    store: Store
    parts: tuple[Shard, ...]
    path: str = ""
    column: tuple[str, ...] = ()
    """The path of the column in each shard; empty for an array."""
    schema: ArraySchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)
    """The number of the first chunk of each shard."""
    template: ClassVar[None] = None

    def __post_init__(self) -> None:
        # A shard without rows has no chunks, and the same first number as the shard after it:
        # `bisect_right` finds the later one.
        firsts = _first_numbers([part.schema.grid.chunk_count for part in self.parts])
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", self._joined())

    @abstractmethod
    def _joined(self) -> ArraySchema:
        """Return the schema of the whole; raise an error if the shards do not match."""

    @abstractmethod
    def _open(self, store: Store) -> Column:
        """Return what lies in the shards at the path of the whole."""

    @abstractmethod
    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie, each in its shard."""

    @property
    def documents(self) -> Documents:
        """The documents of the shards; ``shards.json`` repeats their lengths."""
        return {key: data for part in self.parts for key, data in part.documents.items()}

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks."""
        found = []
        for number in numbers:
            shard = bisect_right(self.firsts, number) - 1
            found += self.parts[shard].zones([number - self.firsts[shard]])
        return found

    def reopened(self, store: Store) -> Self:
        """Return the map of the same array in its current state in `store`."""
        node = _column_at(self._open(store), self.column, store)
        if not isinstance(node, ArrayNode) or not isinstance(node.chunks, type(self)):
            raise NotFoundError(f"{store.location}: {_named(self.column)} is no longer an array")
        return node.chunks

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def resized(self, shape: tuple[int, ...]) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


@dataclass(frozen=True, slots=True)
class RowShardItems(_ReadOnly, RegularPacks, ABC):
    """The packs of variable-length items in many shards; all but the last have whole packs only."""

    store: Store
    parts: tuple[RaggedMap, ...]
    path: str = ""
    column: tuple[str, ...] = ()
    """The path of the column in each shard; empty for items alone."""
    schema: RaggedSchema = field(init=False)
    firsts: tuple[int, ...] = field(init=False)
    """The number of the first pack of each shard."""

    def __post_init__(self) -> None:
        firsts = _first_numbers([part.schema.pack_count for part in self.parts])
        object.__setattr__(self, "firsts", firsts)
        object.__setattr__(self, "schema", _joined_items(self.parts, firsts))

    @abstractmethod
    def _open(self, store: Store) -> Column:
        """Return what lies in the shards at the path of the whole."""

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

    def reopened(self, store: Store) -> Self:
        """Return the map of the same items in their current state in `store`."""
        node = _column_at(self._open(store), self.column, store)
        if not isinstance(node, RaggedNode) or not isinstance(node.packs, type(self)):
            raise NotFoundError(f"{store.location}: {_named(self.column)} no longer has such items")
        return node.packs

    def rebound(self, store: Store) -> Self:
        """Return the same map of another store."""
        return replace(self, store=store, parts=tuple(part.rebound(store) for part in self.parts))

    def spliced(self, splices: Sequence[Splice]) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


@dataclass(frozen=True, slots=True)
class RowShardTable(_ReadOnly, ABC):
    """The columns of a table in many shards."""

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""
    plain: frozenset[str] = frozenset()
    """Names of columns that say nothing about others, whatever their names are."""
    column: tuple[str, ...] = ()
    """The path of a nested table."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, without those that say which items of a column exist."""
        return visible(self.columns, self.plain)

    @property
    def documents(self) -> Documents:
        """No document: row shards are read-only as a whole."""
        return {}

    @abstractmethod
    def _open(self, store: Store) -> Column:
        """Return what lies in the shards at the path of the whole."""

    def reopened(self, store: Store) -> Self:
        """Return the map of the same table in its current state in `store`."""
        node = _column_at(self._open(store), self.column, store)
        if not isinstance(node, TableNode) or not isinstance(node.table, type(self)):
            raise NotFoundError(f"{store.location}: {_named(self.column)} is no longer a table")
        return node.table

    def added(self, name: str, schema: ColumnSchema, position: int | None = None) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def dropped(self, name: str) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def renamed(self, old: str, new: str) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def exchanged(self, name: str, column: Column) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> NoReturn:
        """Raise `UnsupportedError`: row shards are read-only as a whole."""
        _refuse(self.store)


def joined_rows(parts: Sequence[ChunkMap]) -> int:
    """Return the number of rows of an array in shards; raise an error if they do not match."""
    first = parts[0].schema
    for part in parts:
        schema = part.schema
        same = schema.dtype == first.dtype and schema.shape[1:] == first.shape[1:]
        if not same or schema.chunks != first.chunks or schema.order != first.order:
            raise CorruptionError(f"{part.path}: another type or another shape than other shards")
    lengths = {part.path: part.schema.shape[0] for part in parts}
    _check_whole(lengths, first.chunks[0], "rows", "chunks")
    return sum(lengths.values())


def _joined_items(parts: Sequence[RaggedMap], firsts: Sequence[int]) -> RaggedSchema:
    """Return the schema of items in shards; raise an error if the shards do not match."""
    first = parts[0].schema
    identities = []
    for part in parts:
        schema, codec = part.schema, part.schema.codec
        assert isinstance(codec, TrailedPacks)
        if (schema.kind, schema.pack_items) != (first.kind, first.pack_items):
            raise CorruptionError(f"{part.path}: items of another kind than in other shards")
        identities.append(codec.parts[0][1])
    lengths = {part.path: part.schema.length for part in parts}
    _check_whole(lengths, first.pack_items, "items", "packs")
    codec = first.codec
    assert isinstance(codec, TrailedPacks)
    joined = replace(codec, parts=tuple(zip(firsts, identities, strict=True)))
    return replace(first, length=sum(lengths.values()), codec=joined)


def _check_whole(lengths: Mapping[str, int], size: int, items: str, units: str) -> None:
    """Raise `UnsupportedError` unless all shards but the last with items have whole units."""
    filled = [(path, length) for path, length in lengths.items() if length]
    for path, length in filled[:-1]:
        if length % size:
            raise UnsupportedError(
                f"{path}: {length} {items} are no whole number of {units} of {size}, "
                "so the shards behind it cannot be read together with it"
            )


def _first_numbers(counts: Sequence[int]) -> tuple[int, ...]:
    """Return the number of the first unit of each shard.

    >>> _first_numbers([4, 0, 2])
    (0, 4, 4)
    """
    return tuple(accumulate(counts[:-1], initial=0))


def _column_at(node: Column, names: Sequence[str], store: Store) -> Column:
    for name in names:
        if not isinstance(node, TableNode) or name not in node.columns:
            raise NotFoundError(f"{store.location}: no column {'.'.join(names)!r}")
        node = node.columns[name]
    return node


def _named(column: Sequence[str]) -> str:
    return f"column {'.'.join(column)!r}" if column else "the whole"


def _refuse(store: Store) -> NoReturn:
    raise UnsupportedError(
        f"{store.location}: shards are read as one; each of them is changed by itself"
    )

"""The contract of formats: an address book of chunks, and the nodes that opening yields.

Knows what the engine asks of a format: which chunks lie where (`ChunkMap.locate`), which edits
store new ones (`stage`), and which change the shape or the attributes. Refuses to know any format,
and never reads or writes by itself: a format returns commits, a store applies them.
"""

import enum
import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Stage
from ingot.codecs.shards import IndexForm
from ingot.dtypes import DType
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Constant, Extent, Inline, Location, Store

__all__ = [
    "ArrayNode",
    "ChunkMap",
    "Coords",
    "Format",
    "GroupNode",
    "KeyTemplate",
    "Kind",
    "Locations",
    "Node",
    "RaggedNode",
    "Request",
    "Sharded",
    "Signature",
    "TableNode",
    "files_of",
    "sharded_of",
]


Coords: TypeAlias = tuple[int, ...]
"""The place of a chunk in its grid."""

# Below this many keys, making them column by column costs more than it saves.
_FEWEST_COLUMN_ROWS: Final = 64

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.A)


class Kind(enum.Flag):
    """What a format can hold.

    >>> Kind.TABLE in Kind.ARRAY | Kind.TABLE
    True
    """

    ARRAY = enum.auto()
    TABLE = enum.auto()
    RAGGED = enum.auto()
    GROUP = enum.auto()


@dataclass(frozen=True, slots=True)
class Signature:
    """How a format is recognised without opening it.

    `markers` are names of which one lies in the format's directory. For single files `head` and
    `tail` are how many of their first and last bytes `matches` wants to see.

    >>> Signature(markers=(".zarray", ".zgroup")).matches(b"", b"")
    False
    """

    markers: tuple[str, ...] = ()
    head: int = 0
    tail: int = 0
    matches: Callable[[bytes, bytes], bool] = field(default=lambda head, tail: False)


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """How keys follow from coordinates; the native kernel can do it as well.

    An array without axes has one chunk, called `scalar`.

    >>> KeyTemplate("a/", ".").key((1, 20)), KeyTemplate().key(())
    ('a/1.20', '0')
    """

    prefix: str = ""
    separator: str = "."
    suffix: str = ""
    scalar: str = "0"

    def key(self, coords: Sequence[int]) -> str:
        """Return the key of one chunk."""
        return f"{self.prefix}{self.separator.join(map(str, coords)) or self.scalar}{self.suffix}"

    def keys(self, coords: NDArray[np.int64]) -> tuple[str, ...]:
        """Return the keys of many chunks, a row of `coords` each.

        >>> KeyTemplate(suffix=".blosc").keys(np.array([[0, 1], [2, 3]]))
        ('0.1.blosc', '2.3.blosc')
        """
        if len(coords) < _FEWEST_COLUMN_ROWS or not coords.shape[1]:
            return tuple(map(self.key, coords.tolist()))
        prefix, suffix, join = self.prefix, self.suffix, self.separator.join
        # A column has few different numbers, and a table of their texts is cheaper than str().
        columns = [list(map(_texts(column).__getitem__, column.tolist())) for column in coords.T]
        return tuple([f"{prefix}{join(parts)}{suffix}" for parts in zip(*columns, strict=True)])

    def parse(self, key: str, ndim: int) -> Coords | None:
        """Return the coordinates of a key, or None when it is no chunk's.

        >>> KeyTemplate("a/", ".").parse("a/1.20", 2), KeyTemplate().parse("01.2", 2)
        ((1, 20), None)
        """
        if not (key.startswith(self.prefix) and key.endswith(self.suffix)):
            return None
        text = key[len(self.prefix) : len(key) - len(self.suffix)]
        if ndim == 0:
            return () if text == self.scalar else None
        parts = text.split(self.separator)
        if len(parts) != ndim or not all(map(_NUMBER.fullmatch, parts)):
            return None
        return tuple(map(int, parts))


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the bytes of some chunks lie, column by column, in the order they were asked for.

    Chunk i has the bytes `starts[i]` to `starts[i] + lengths[i]` of `keys[i]`; without `starts`
    from its beginning, without `lengths` to its end, a length of -1 likewise. `others` holds the
    chunks that are no extents. A key that is absent means the fill value.

    >>> list(Locations(("a", ""), others={1: Constant(0)}))
    [Extent(key='a', start=0, length=None), Constant(value=0)]
    """

    keys: tuple[str, ...]
    starts: NDArray[np.int64] | None = None
    lengths: NDArray[np.int64] | None = None
    others: Mapping[int, Inline | Constant] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Location:
        if index in self.others:
            return self.others[index]
        start = 0 if self.starts is None else int(self.starts[index])
        length = -1 if self.lengths is None else int(self.lengths[index])
        return Extent(self.keys[index], start, None if length < 0 else length)

    def __iter__(self) -> Iterator[Location]:
        return map(self.__getitem__, range(len(self)))


@runtime_checkable
class ChunkMap(Protocol):
    """The address book of one array: immutable, and cheap to ask."""

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        ...

    @property
    def store(self) -> Store:
        """Where its bytes are."""
        ...

    @property
    def path(self) -> str:
        """Where in its store the array lies: what `Format.open` takes."""
        ...

    @property
    def template(self) -> KeyTemplate | None:
        """How keys follow from coordinates when that is all there is to `locate`, else None."""
        ...

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie; `coords` has a row of coordinates for each."""
        ...

    def reopened(self, store: Store) -> "ChunkMap":
        """Return the map of the same array as `store` has it now: the same store, or a view of it.

        `NotFoundError` when the array is no longer there.
        """
        ...

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks; None erases one, which then reads as fill.

        Called by a writer whose turn it is, so what it reads of the store stays as it is until the
        commit is applied.
        """
        ...

    def resized(self, shape: tuple[int, ...]) -> tuple["ChunkMap", Commit]:
        """Return the map of the array in another shape, and the commit that makes it so.

        The commit removes chunks that lie outside. What an edge chunk holds beyond the old edge is
        the engine's to clear, before the array grows: only codecs can look inside.
        """
        ...

    def described(self, attrs: Mapping[str, Any]) -> tuple["ChunkMap", Commit]:
        """Return the map with other attributes, and the commit that stores them."""
        ...

    def removed(self) -> Commit:
        """Return the commit that removes the array and all of its chunks at once."""
        ...


@runtime_checkable
class Sharded(Protocol):
    """A chunk map whose chunks lie in shards, many in the value of one key.

    Whoever writes some chunks of a shard replaces all of it, so that takes a writer's turn.
    """

    @property
    def shards(self) -> ChunkMap:
        """The map of the same array whose chunks are the shards."""
        ...

    @property
    def levels(self) -> tuple[IndexForm, ...]:
        """The indexes of shards, and of shards inside them."""
        ...


def files_of(chunks: ChunkMap) -> ChunkMap:
    """Return the map of the same array whose chunks are the values of keys: shards, or chunks."""
    sharded = sharded_of(chunks)
    return chunks if sharded is None else sharded.shards


def sharded_of(chunks: ChunkMap) -> Sharded | None:
    """Return a map as one whose chunks lie in shards; None when they do not."""
    return cast(Sharded, chunks) if _is_sharded(type(chunks)) else None


@functools.cache
def _is_sharded(kind: type) -> bool:
    # Asking a protocol takes longer than many reads.
    return hasattr(kind, "shards") and hasattr(kind, "levels")


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array in a store."""

    chunks: ChunkMap

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.chunks.schema


@dataclass(frozen=True, slots=True)
class TableNode:
    """A table: columns of one length, in their order; a nested table is a column as well."""

    columns: Mapping[str, "ArrayNode | TableNode | RaggedNode"]
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RaggedNode:
    """Items of any length: `chunks` holds their bytes, `kind` says what an item is."""

    chunks: ChunkMap
    kind: str
    attrs: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group: the names of its children in their order; opening them is the format's work."""

    path: str
    children: tuple[str, ...]
    attrs: Mapping[str, Any]


Node: TypeAlias = ArrayNode | TableNode | RaggedNode | GroupNode
"""What opening yields."""


@dataclass(frozen=True, slots=True)
class Request:
    """An array that somebody wants, before a format has said how it would lie there.

    `fill` is an item of `dtype`. Without `chunks` or `stages` (the codecs, in the order of
    encoding) the format chooses.

    >>> Request((10, 10), np.dtype("<f4"), np.float32(0)).chunks is None
    True
    """

    shape: tuple[int, ...]
    dtype: DType
    fill: Any
    chunks: tuple[int, ...] | None = None
    stages: tuple[Stage, ...] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Format(Protocol):
    """One way to lay out data in a store."""

    @property
    def name(self) -> str:
        """What users call it."""
        ...

    @property
    def holds(self) -> Kind:
        """What it can hold."""
        ...

    @property
    def signature(self) -> Signature:
        """How it is recognised."""
        ...

    @property
    def settings(self) -> Collection[str]:
        """The names of what only some formats have, and `design` and `create` take as `layout`."""
        ...

    def open(self, store: Store, path: str = "") -> Node:
        """Return what lies at `path`; `NotFoundError` when nothing of this format does."""
        ...

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return how the format lays out an array; `ValueError` for a setting of a wrong value."""
        ...

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[Node, Commit]:
        """Return a new array, and the commit that makes it."""
        ...


def _texts(column: NDArray[np.int64]) -> dict[int, str]:
    return {number: str(number) for number in np.unique(column).tolist()}

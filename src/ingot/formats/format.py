"""The contract of formats: address books of chunks and packs, and the nodes that opening yields.

A format says where chunks lie (`ChunkMap.locate`), which edits store new chunks (`stage`), and
which edits change the shape or the attributes. A format never writes: it returns commits, and a
store applies them.
"""

import enum
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import Stage
from ingot.dtypes import DType
from ingot.formats.addresses import (
    Addresses,
    ChunkTable,
    Coords,
    Indexed,
    Keyed,
    KeyTemplate,
    Locations,
    SuperChunks,
)
from ingot.formats.shard_index import IndexForm
from ingot.ragged_array import ItemKind
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.documents import Documents
from ingot.stores.store import Batch, Buffer, Commit, Put, Store

__all__ = [
    "Addressed",
    "Addresses",
    "Annotated",
    "ArrayNode",
    "ChunkMap",
    "ChunkRun",
    "ChunkTable",
    "Column",
    "ColumnSchema",
    "Compactable",
    "CompactableRagged",
    "Comparable",
    "ConsolidatedMetadata",
    "Coords",
    "CopyChunks",
    "DocumentFormat",
    "Documents",
    "EnclosingFormat",
    "Fitting",
    "Format",
    "FreeBytes",
    "GroupFormat",
    "GroupMembers",
    "GroupNode",
    "Indexed",
    "KeyTemplate",
    "Keyed",
    "Kind",
    "Locations",
    "Manifested",
    "NamingFormat",
    "Node",
    "Pack",
    "RaggedFormat",
    "RaggedMap",
    "RaggedNode",
    "RaggedRequest",
    "Recode",
    "Relocating",
    "Renewable",
    "Request",
    "SequenceFormat",
    "Sharded",
    "SlotRun",
    "Slotted",
    "Splice",
    "SplitFormat",
    "Streaming",
    "SuperChunks",
    "TableFormat",
    "TableMap",
    "TableNode",
    "TableSchema",
    "TypedAttributes",
    "UntypedFormat",
    "ZoneMapped",
    "addressed",
    "addresses",
    "as_annotated",
    "as_chunk_run",
    "as_sharded",
    "compactable",
    "compactable_ragged",
    "fitted",
    "has_typed_attributes",
    "is_current",
    "is_relocating",
    "is_renewable",
    "manifested",
    "recorded",
    "relocated",
    "renewed",
    "slotted",
    "stated_format",
    "stored_map",
    "streaming",
    "zone_mapped",
]


class Kind(enum.Flag):
    """What a format can hold.

    >>> Kind.TABLE in Kind.ARRAY | Kind.TABLE
    True
    """

    ARRAY = enum.auto()
    TABLE = enum.auto()
    RAGGED = enum.auto()
    GROUP = enum.auto()


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

    @property
    def documents(self) -> Documents:
        """The documents that the map was read from, or that its commit writes, by key.

        A writer compares them with the store before it relies on the map: other programs change
        them without a new version.
        """
        ...

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie; `coords` has a row of coordinates for each.

        The coordinate of a chunk of a flat array is its number.
        """
        ...

    def reopened(self, store: Store) -> "ChunkMap":
        """Return the map of the same array as `store` has it now: the same store, or a view of it.

        `NotFoundError` when the array is no longer there.
        """
        ...

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks; None erases one, which then reads as fill.

        Called by the one writer: what it reads of the store does not change before the commit is
        applied.
        """
        ...

    def resized(self, shape: tuple[int, ...]) -> tuple["ChunkMap", Commit]:
        """Return the map of the array in another shape, and the commit that makes it so.

        The commit removes chunks that lie outside. Before an array grows, the engine clears what
        edge chunks hold beyond the old edge: only codecs can change the inside of a chunk.
        """
        ...

    def described(self, attrs: Mapping[str, Any]) -> tuple["ChunkMap", Commit]:
        """Return the map with other attributes, and the commit that stores them."""
        ...

    def removed(self) -> Commit:
        """Return the commit that removes the array and all of its chunks at once."""
        ...


@runtime_checkable
class ZoneMapped(Protocol):
    """A map whose chunks or packs may have zone maps (`ingot.codecs.zone_maps`)."""

    def zones(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the zone maps of chunks, by their numbers; b"" for those that have none."""
        ...


@runtime_checkable
class Annotated(Protocol):
    """A map whose document may have fields that the format keeps without knowing them."""

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields that the format does not know."""
        ...

    def annotated(self, fields: Mapping[str, Any]) -> Commit:
        """Return the commit that stores the document of the array with such fields."""
        ...


def as_annotated(chunks: ChunkMap) -> Annotated | None:
    """Return the map of an array, or of its shards, as one that keeps unknown fields, or None."""
    found = stored_map(chunks)
    return cast(Annotated, found) if hasattr(type(found), "unknown_fields") else None


@runtime_checkable
class Manifested(Protocol):
    """A chunk map that may keep a manifest: a document that names the stored chunks."""

    @property
    def has_manifest(self) -> bool:
        """Whether the array has a manifest."""
        ...

    def named_chunks(self, rows: range | None = None) -> NDArray[np.int64]:
        """Return the coordinates of the chunks that the manifest names, a row for each.

        With `rows` only those whose first coordinate lies in this range.
        """
        ...

    def recorded(self, commit: Commit) -> Commit:
        """Return a commit that leads to this map, and that also keeps the manifest up to date."""
        ...

    def naming(self, stored: Iterable[Coords]) -> Put:
        """Return the edit that makes a manifest which names some chunks."""
        ...


def manifested(chunks: ChunkMap) -> Manifested | None:
    """Return the map of an array, or of its shards, that keeps a manifest; None without one."""
    found = stored_map(chunks)
    if not hasattr(type(found), "has_manifest"):
        return None
    named = cast(Manifested, found)
    return named if named.has_manifest else None


def recorded(chunks: ChunkMap, commit: Commit) -> Commit:
    """Return a commit that leads to a map, and that also keeps its manifest up to date, if any."""
    named = manifested(chunks)
    return commit if named is None else named.recorded(commit)


@runtime_checkable
class Sharded(Protocol):
    """A chunk map whose chunks lie in shards, many in the value of one key.

    Writing some chunks of a shard replaces the whole shard, so only the one writer may do it.
    """

    @property
    def shards(self) -> ChunkMap:
        """The map of the same array whose chunks are the shards."""
        ...

    @property
    def levels(self) -> tuple[IndexForm, ...]:
        """The indexes of shards, and of shards inside them."""
        ...


@runtime_checkable
class Addressed(Protocol):
    """A chunk map that says itself where all of its chunks lie, for the native kernel."""

    def addresses(self) -> Addresses | None:
        """Return where all chunks lie; None where only `locate` can say it."""
        ...


def addressed(chunks: ChunkMap) -> Addressed | None:
    """Return a map as one that says where all of its chunks lie; None when it does not."""
    return cast(Addressed, chunks) if hasattr(type(chunks), "addresses") else None


def addresses(chunks: ChunkMap) -> Addresses | None:
    """Return where all chunks of a map lie, as one value; None where only `locate` can say it."""
    sharded = as_sharded(chunks)
    if sharded is not None:
        template, forms = sharded.shards.template, [form.native_form for form in sharded.levels]
        levels = tuple(form for form in forms if form is not None)
        # Only `locate` reads an index with codecs of its own.
        return Indexed(template, levels) if template and len(levels) == len(forms) else None
    stated = addressed(chunks)
    if stated is not None:
        return stated.addresses()
    return None if chunks.template is None else Keyed(chunks.template)


@runtime_checkable
class ChunkRun(Protocol):
    """Chunks of a flat array that follow each other, and are encoded when they are stored."""

    @property
    def numbers(self) -> range:
        """The numbers of the chunks."""
        ...

    def write_to(self, descriptor: int, start: int) -> NDArray[np.int64]:
        """Encode the chunks into an open file, one behind the other.

        Return where they start, and where the last one ends.
        """
        ...

    def __iter__(self) -> Iterator[tuple[Coords, bytes | None]]:
        """Yield the encoded chunks instead; only one of the two is called, once."""
        ...


def as_chunk_run(encoded: Iterable[tuple[Coords, Buffer | None]]) -> ChunkRun | None:
    """Return encoded chunks as a run that can write itself; None when they are none."""
    return cast(ChunkRun, encoded) if hasattr(type(encoded), "write_to") else None


class SlotRun(Protocol):
    """Chunks of one call that are encoded into the files that hold many of them."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the chunks, which ascend."""
        ...

    def write_to(
        self, part: slice, descriptor: int, gaps: Sequence[tuple[int, int]], end: int, spare: float
    ) -> tuple[NDArray[np.int64], int, int | None]:
        """Encode some of the chunks into an open file: into gaps, or from `end` on.

        Behind a chunk at the end lies a fraction `spare` of its size. Return the number, the start
        and the size of each, a start of -1 for one of nothing but the fill value; the new end; and
        without gaps the CRC-32 of the bytes up to there.
        """
        ...


@runtime_checkable
class Slotted(Protocol):
    """A chunk map whose chunks lie in files with many of them, into which they are encoded."""

    @property
    def spare(self) -> float:
        """The room behind a chunk at the end of a file, as a fraction of its size."""
        ...

    def stage_slots(self, run: SlotRun) -> Commit:
        """Return the commit that stores chunks; they are written at once, where nothing reaches."""
        ...

    def slot_file(self, number: int) -> native.SlotFile | None:
        """Return the file of a chunk, in which the kernel changes the chunk by itself.

        From then on the kernel keeps what is known of the file. None where a commit has to change
        it.
        """
        ...

    def switched(self, number: int) -> ChunkMap:
        """Return the map of the state after the kernel has changed a chunk in its `slot_file`."""
        ...


def slotted(chunks: ChunkMap) -> Slotted | None:
    """Return a map as one whose chunks are encoded into files; None when they are not."""
    return cast(Slotted, chunks) if hasattr(type(chunks), "stage_slots") else None


@runtime_checkable
class Streaming(Protocol):
    """A chunk map that stores chunks while they are encoded, so that not all are held in memory."""

    def stage_each(self, encoded: Iterable[tuple[Coords, Buffer | None]]) -> Commit:
        """Return the commit that stores chunks, which come in ascending order; as `stage` does.

        They may be a `ChunkRun`.
        """
        ...


def streaming(chunks: ChunkMap) -> Streaming | None:
    """Return a map as one that stores chunks while they are encoded; None when it does not."""
    return cast(Streaming, chunks) if hasattr(type(chunks), "stage_each") else None


@runtime_checkable
class Comparable(Protocol):
    """A map without documents that compares what it was read from with a store."""

    def is_current(self, store: Store) -> bool:
        """Return whether `store` has the state that the map was read from.

        False says nothing: the map is then read again.
        """
        ...


def is_current(chunks: "ChunkMap | RaggedMap", store: Store) -> bool:
    """Return whether a map is known to be that of the state in `store`."""
    if not hasattr(type(chunks), "is_current"):
        return False
    return cast(Comparable, chunks).is_current(store)


@runtime_checkable
class Relocating(Protocol):
    """A chunk map whose chunks may lie elsewhere after each commit."""

    def relocated(self) -> ChunkMap:
        """Return the map of the state after the commit that was made from this map.

        It is asked for before the commit is applied, and finds its chunks when they are needed.
        """
        ...


def relocated(chunks: ChunkMap) -> ChunkMap:
    """Return the map of the state after the commit that was made from a map."""
    return cast(Relocating, chunks).relocated() if hasattr(type(chunks), "relocated") else chunks


@runtime_checkable
class Renewable(Protocol):
    """A chunk map of which nothing but its documents decides what the kernel needs to read it."""

    def renewed(self) -> ChunkMap:
        """Return the map of a later state with the same documents, which knows nothing of files."""
        ...


def renewed(chunks: ChunkMap) -> ChunkMap | None:
    """Return the map of a later state with the same documents; None where only opening tells."""
    return cast(Renewable, chunks).renewed() if is_renewable(chunks) else None


def is_renewable(chunks: ChunkMap) -> bool:
    """Return whether documents alone decide what the kernel needs to read a map."""
    return hasattr(type(chunks), "renewed")


def is_relocating(chunks: ChunkMap) -> bool:
    """Return whether chunks of a map may lie elsewhere after each commit.

    Where they go depends on where the others lie, so only the one writer may stage them.
    """
    return hasattr(type(chunks), "relocated")


class FreeBytes(NamedTuple):
    """The bytes of files that hold nothing: `dead` ones, and `spare` ones behind chunks."""

    dead: int
    spare: int


@runtime_checkable
class Compactable(Protocol):
    """A chunk map whose files may have bytes that hold nothing."""

    def free_bytes(self) -> FreeBytes:
        """Return how many bytes of the files hold nothing."""
        ...

    def compacted(self) -> Commit:
        """Return the commit that makes files with dead bytes anew; `relocated` is the map after it.

        Called by the one writer.
        """
        ...

    def other_files(self) -> Sequence[str]:
        """Return the keys of files beside the documents that other programs have put there."""
        ...


def compactable(chunks: ChunkMap) -> Compactable | None:
    """Return a map as one whose files may have bytes that hold nothing; None when it is none."""
    return cast(Compactable, chunks) if hasattr(type(chunks), "compacted") else None


def stated_format(node: "Node") -> str | None:
    """Return the name of the format that a dataset itself states; None where its marker tells.

    Shards of several formats have the same marker.
    """
    found: object = None
    if isinstance(node, ArrayNode):
        found = getattr(type(node.chunks), "stated_format", None)
    elif isinstance(node, RaggedNode):
        found = getattr(type(node.packs), "stated_format", None)
    elif isinstance(node, TableNode):
        found = getattr(type(node.table), "stated_format", None)
    return found if isinstance(found, str) else None


def stored_map(chunks: ChunkMap) -> ChunkMap:
    """Return the map of the same array whose chunks are the values of keys: shards, or chunks."""
    sharded = as_sharded(chunks)
    return chunks if sharded is None else sharded.shards


def as_sharded(chunks: ChunkMap) -> Sharded | None:
    """Return a map as one whose chunks lie in shards; None when they do not."""
    return cast(Sharded, chunks) if _is_sharded(type(chunks)) else None


@functools.cache
def _is_sharded(kind: type) -> bool:
    # A check against a protocol takes longer than many reads.
    return hasattr(kind, "shards") and hasattr(kind, "levels")


def zone_mapped(chunks: "ChunkMap | RaggedMap") -> ZoneMapped | None:
    """Return a map as one whose chunks may have zone maps; None when they do not."""
    return cast(ZoneMapped, chunks) if _is_zone_mapped(type(chunks)) else None


@functools.cache
def _is_zone_mapped(kind: type) -> bool:
    return hasattr(kind, "zones")


@dataclass(frozen=True, slots=True)
class ArrayNode:
    """An array in a store."""

    chunks: ChunkMap

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.chunks.schema


class Pack(NamedTuple):
    """The image of a pack of variable-length items, and how many items it holds."""

    items: int
    data: Buffer


class Splice(NamedTuple):
    """Packs that replace those from `start` to `stop`; an empty range where packs are added."""

    start: int
    stop: int
    packs: tuple[Pack, ...]


@runtime_checkable
class RaggedMap(Protocol):
    """The address book of one sequence of variable-length items: immutable, and cheap to ask.

    Items are stored in packs. A pack is encoded and decoded by the codec of the schema; the map
    says which items it holds and where its bytes lie.
    """

    @property
    def schema(self) -> RaggedSchema:
        """What the sequence is."""
        ...

    @property
    def store(self) -> Store:
        """Where its bytes are."""
        ...

    @property
    def path(self) -> str:
        """Where in its store the sequence lies."""
        ...

    @property
    def documents(self) -> Documents:
        """The documents that the map was read from, or that its commit writes; see `ChunkMap`."""
        ...

    def bounds(self) -> NDArray[np.int64]:
        """Return the number of the first item of each pack, and the number of items at the end.

        Where packs are regular, these follow from the schema.
        """
        ...

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie, by their numbers. A pack that is not stored is lost."""
        ...

    def spliced(self, splices: Sequence[Splice]) -> tuple["RaggedMap", Commit]:
        """Return the map with other packs, and the commit that stores them.

        Splices ascend and do not overlap. The length follows from the packs. Where packs are
        regular, only the last splice changes the number of items, and it reaches to the end; a
        change that makes a sequence longer leaves the items that it has as they are. Called
        by the one writer: what it reads of the store does not change before the commit is applied.
        """
        ...

    def described(self, attrs: Mapping[str, Any]) -> tuple["RaggedMap", Commit]:
        """Return the map with other attributes, and the commit that stores them."""
        ...

    def removed(self) -> Commit:
        """Return the commit that removes the sequence and all of its packs at once."""
        ...

    def reopened(self, store: Store) -> "RaggedMap":
        """Return the map of the same sequence as `store` has it now."""
        ...

    def rebound(self, store: Store) -> "RaggedMap":
        """Return the same map of another store, in which the same keys hold the same bytes.

        What was built in a buffer over a store becomes the state of the store with its commit.
        """
        ...


@runtime_checkable
class CompactableRagged(Protocol):
    """A map of items whose changes leave bytes behind that nothing reaches."""

    def free_bytes(self) -> FreeBytes:
        """Return how many bytes hold nothing, as far as writers counted them."""
        ...

    def compacted(self) -> tuple[RaggedMap, Commit]:
        """Return the map of the same items without dead bytes, and the commit that stores them."""
        ...


def compactable_ragged(packs: RaggedMap) -> CompactableRagged | None:
    """Return a map as one that leaves bytes behind; None when it does not."""
    return cast(CompactableRagged, packs) if hasattr(type(packs), "compacted") else None


@runtime_checkable
class Fitting(Protocol):
    """A map of items that chooses the length of its packs while it has one pack at most."""

    def fitted(self, rows: int, item_bytes: float) -> RaggedMap:
        """Return the map for `rows` items of this mean size; the next splice stores all of them."""
        ...


def fitted(packs: RaggedMap, rows: int, item_bytes: float) -> RaggedMap:
    """Return the map of a sequence all of whose packs are made by the next splice."""
    if not hasattr(type(packs), "fitted"):
        return packs
    return cast(Fitting, packs).fitted(rows, item_bytes)


@runtime_checkable
class TableMap(Protocol):
    """The address book of one table: its columns, and the commits that change them.

    All columns have the same length, that of their first axis. The `ChunkMap` or `RaggedMap` of a
    column changes the values of the column; `joined` makes one commit of those of many columns.
    """

    @property
    def store(self) -> Store:
        """Where its bytes are."""
        ...

    @property
    def path(self) -> str:
        """The folder of the table in the store."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in their order."""
        ...

    @property
    def columns(self) -> Mapping[str, "Column"]:
        """The columns, in their order; a nested table is a column as well."""
        ...

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the table itself."""
        ...

    @property
    def documents(self) -> Documents:
        """The documents of the table itself, without those of its columns; see `ChunkMap`."""
        ...

    def reopened(self, store: Store) -> "TableMap":
        """Return the map of the same table as `store` has it now."""
        ...

    def described(self, attrs: Mapping[str, Any]) -> tuple["TableMap", Commit]:
        """Return the map with other attributes, and the commit that stores them."""
        ...

    def added(
        self, name: str, schema: "ColumnSchema", position: int | None = None
    ) -> tuple["TableMap", "Column", Commit]:
        """Return the map with one column more, the column, and the commit that makes it.

        No reader reaches the column before the commit's `publish`, so edits that fill it belong to
        `prepare`. The schema has the length of the other columns.
        """
        ...

    def dropped(self, name: str) -> tuple["TableMap", Commit]:
        """Return the map without a column, and the commit that removes it."""
        ...

    def renamed(self, old: str, new: str) -> tuple["TableMap", Mapping[str, str], Commit]:
        """Return the map with a column under another name, and the commit that moves it.

        The mapping has the new keys of the column, each with its old key. The caller copies the
        values after the edits that the commit prepares, and before it publishes.
        """
        ...

    def removed(self) -> Commit:
        """Return the commit that removes the table and all of its columns at once."""
        ...

    def exchanged(self, name: str, column: "Column") -> "TableMap":
        """Return the map with another state of a column: a nested table after a change."""
        ...

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Return one commit of those of columns (nested ones by "a.b").

        The length of the first column changes last, or first when the table gets shorter: readers
        that take it for the length of the table never see a row that is not stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class TableNode:
    """A table: columns of one length, in their order; a nested table is a column as well."""

    table: TableMap

    @property
    def columns(self) -> Mapping[str, "Column"]:
        """The columns, in their order."""
        return self.table.columns

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the table itself."""
        return self.table.attrs


@dataclass(frozen=True, slots=True)
class RaggedNode:
    """A sequence of variable-length items in a store."""

    packs: RaggedMap

    @property
    def schema(self) -> RaggedSchema:
        """What the sequence is."""
        return self.packs.schema


@dataclass(frozen=True, slots=True)
class GroupNode:
    """A group; the format lists and opens its members (`GroupFormat.children`, `members`)."""

    path: str
    attrs: Mapping[str, Any]
    documents: Documents = field(default_factory=dict, compare=False, repr=False)
    """The documents of the group itself; see `ChunkMap`."""


@dataclass(frozen=True, slots=True)
class GroupMembers:
    """Members of a group by their names, sorted; not `complete` when some were left out."""

    nodes: Mapping[str, "Node"]
    complete: bool = True


Column: TypeAlias = ArrayNode | TableNode | RaggedNode
"""A column of a table."""

Node: TypeAlias = ArrayNode | TableNode | RaggedNode | GroupNode
"""What opening yields."""

TableSchema: TypeAlias = Mapping[str, "ColumnSchema"]
"""The columns of a new table, in their order; a mapping is a nested table."""

ColumnSchema: TypeAlias = ArraySchema | RaggedSchema | TableSchema
"""A column of a new table: an array, variable-length items, or a nested table."""


@dataclass(frozen=True, slots=True)
class Request:
    """A new array as its creator describes it, before a format lays it out.

    `fill` is an item of `dtype`. Without `chunks` or `stages` (the codecs, in the order of
    encoding) the format chooses them; those of a `remote` array, whose chunks come over a network,
    have small blocks, since a block is the least that is fetched.

    >>> Request((10, 10), np.dtype("<f4"), np.float32(0)).chunks is None
    True
    """

    shape: tuple[int, ...]
    dtype: DType
    fill: Any
    chunks: tuple[int, ...] | None = None
    stages: tuple[Stage, ...] | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    remote: bool = False


@dataclass(frozen=True, slots=True)
class RaggedRequest:
    """New variable-length items as their creator describes them, before a format lays them out.

    Without `pack_items` or `stages` the format chooses them; `item_bytes` is the mean size of an
    item, if it is known.
    """

    length: int
    kind: ItemKind
    item_bytes: float | None = None
    pack_items: int | None = None
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
    def settings(self) -> Collection[str]:
        """The names of settings that only some formats have: the `layout` of `design`, `create`."""
        ...

    def open(self, store: Store, path: str = "") -> Node:
        """Return the dataset at `path`; `NotFoundError` when there is none of this format."""
        ...

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return how the format lays out an array; `ValueError` for a wrong value of a setting."""
        ...

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[Node, Commit]:
        """Return a new array, and the commit that makes it."""
        ...


@runtime_checkable
class TypedAttributes(Protocol):
    """A format that stores the type of attributes that are NumPy scalars or arrays."""

    @property
    def typed_attributes(self) -> bool:
        """True."""
        ...


def has_typed_attributes(format: Format) -> bool:
    """Return whether a format stores the type of NumPy attributes.

    Other formats get them as plain numbers, text and lists.
    """
    return hasattr(type(format), "typed_attributes")


@runtime_checkable
class UntypedFormat(Format, Protocol):
    """A format with datasets that do not say what type their items have."""

    def typed(self, dtype: DType) -> Format:
        """Return the format that reads such items as a type."""
        ...


@runtime_checkable
class DocumentFormat(Format, Protocol):
    """A format in which a few small files, read together, say what lies at a path.

    Its entry in the registry names the files.
    """

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> Node | None:
        """Return what the documents at `path` say, by their names; None if they say nothing.

        `documents` has one group of those that the entry names; a file that is absent is None, or
        not in the mapping. The bytes are a whole document, or more than any document may have.
        """
        ...


@runtime_checkable
class NamingFormat(DocumentFormat, Protocol):
    """A format in which the first document of a group names further ones."""

    def named(self, documents: Mapping[str, bytes | None]) -> Batch | None:
        """Return the further documents that those of a group name at the root of a store.

        Only the first document of the group says which. `from_documents` takes them from its
        mapping, if they are in it; where all of them are present it reads nothing else. None where
        none are named, or not all that it reads.
        """
        ...


@dataclass(frozen=True, slots=True)
class ConsolidatedMetadata:
    """Copies of metadata that a group keeps; `stale` names the documents that differ from theirs.

    >>> ConsolidatedMetadata(("a/.zarray",)).current
    False
    """

    stale: tuple[str, ...]

    @property
    def current(self) -> bool:
        """Whether every copy equals the document that it is a copy of."""
        return not self.stale


@runtime_checkable
class EnclosingFormat(Format, Protocol):
    """A format in which a dataset may be part of another one, in a folder of its own.

    The enclosing dataset has one lock and one journal, which hold for all its parts. Its entry in
    the registry says by which files it is recognised.
    """

    def has_part(self, store: Store, path: str) -> bool:
        """Return whether the dataset in a store has a part at a path, or might get one there."""
        ...


@runtime_checkable
class GroupFormat(EnclosingFormat, Protocol):
    """A format whose arrays may lie in groups, all in one store.

    Methods that return a commit are called by the one writer, so they may read the store. Commits
    that change a document also change the copies of it that groups above keep.
    """

    def children(self, store: Store, path: str) -> tuple[str, ...]:
        """Return the names of the members of a group, sorted."""
        ...

    def members(
        self, store: Store, groups: Sequence[str], most: int | None = None
    ) -> list[GroupMembers]:
        """Return the members of groups, by one read of all documents; `most` limits their number.

        A group that is absent has no members.
        """
        ...

    def create_group(
        self, store: Store, path: str = "", attrs: Mapping[str, Any] | None = None
    ) -> tuple[GroupNode, Commit]:
        """Return a new group, and the commit that makes it and the groups above it."""
        ...

    def describe_group(self, store: Store, path: str, attrs: Mapping[str, Any]) -> Commit:
        """Return the commit that gives a group other attributes."""
        ...

    def removed(self, store: Store, path: str) -> Commit:
        """Return the commit that removes a node and all below it; other files stay."""
        ...

    def compare_consolidated(self, store: Store, path: str) -> ConsolidatedMetadata | None:
        """Return how consolidated metadata compares with the documents; None without any."""
        ...

    def consolidated(self, store: Store, path: str) -> Commit:
        """Return the commit that consolidates the metadata of a group and of all below it."""
        ...


Recode: TypeAlias = Callable[[ChunkMap | RaggedMap, slice, ChunkMap | RaggedMap, slice], Commit]
"""Returns the commit that stores rows of one column as rows of another, of the same kind.

Rows of variable-length items begin with a pack of the target.
"""

CopyChunks: TypeAlias = Callable[[ChunkMap, ChunkMap, int], Commit | None]
"""Returns the commit that stores chunks of one array, from a number on, as all of another.

None where the caller cannot do it without the format.
"""


@runtime_checkable
class SplitFormat(Format, Protocol):
    """A format whose datasets can be split by rows into shards that open as one dataset."""

    def split(
        self, node: Column, count: int, store: Store, recode: Recode, copy: CopyChunks
    ) -> Iterator[Commit]:
        """Yield the commits that store a dataset as shards; the last one makes them visible."""
        ...


@runtime_checkable
class RaggedFormat(Format, Protocol):
    """A format that holds variable-length items; where it holds tables, as columns of them."""

    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        """Return how the format lays out items; `ValueError` for a wrong value of a setting."""
        ...


@runtime_checkable
class SequenceFormat(RaggedFormat, Protocol):
    """A format that holds variable-length items on their own, not as a column."""

    def create_ragged(
        self, store: Store, schema: RaggedSchema, path: str = "", **layout: Any
    ) -> tuple[RaggedNode, Commit]:
        """Return a new sequence without items, and the commit that makes it.

        The length of the schema is not stored: the caller appends the items, and applies both
        commits as one.
        """
        ...


@runtime_checkable
class TableFormat(Format, Protocol):
    """A format that holds tables as well."""

    def create_table(
        self,
        store: Store,
        schema: TableSchema,
        attrs: Mapping[str, Any],
        path: str = "",
        **layout: Any,
    ) -> tuple[TableNode, Commit]:
        """Return a new table, and the commit that makes it; `publish` makes it visible."""
        ...

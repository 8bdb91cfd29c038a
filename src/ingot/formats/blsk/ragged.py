"""Variable-length items in blsk: super-chunk files like those of an array, whose slots hold packs.

``meta/storage`` spells the kind of the items (``utf8``, ``bytes``, ``json``, ``list<DTYPE>``) where
arrays have their type. A slot holds a pack of as many items as ``chunkshape`` says, the last one of
fewer: the lengths and the bytes of the items, each in a chunk with its trailer. Files, free space
and commits are those of an array (`ingot.formats.blsk.array`). The items of a pack that is not
stored are null.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.formats import yaml
from ingot.formats.bcolz.metadata import draw_identity
from ingot.formats.bcolz.ragged import pack_rows
from ingot.formats.blsk.array import (
    BlskMap,
    DatasetDocuments,
    capacity_of,
    check_layout,
    fresh,
)
from ingot.formats.blsk.metadata import (
    ATTRIBUTES,
    NROWS,
    STORAGE,
    ColumnStorage,
    pack_attributes,
    pack_columns,
    pack_nrows,
    parse_columns,
)
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    FreeBytes,
    Locations,
    RaggedNode,
    RaggedRequest,
    Splice,
)
from ingot.formats.packs import RegularPacks, TrailedPacks, check_rows, pack_codec, spliced_length
from ingot.formats.paths import prefix
from ingot.formats.yaml import Document
from ingot.schema import RaggedSchema
from ingot.stores.store import Buffer, Commit, Edit, Put, Store

__all__ = ["BlskRaggedMap", "column_of", "create_ragged", "design_ragged", "items_stored_as"]

_BYTE: Final = np.dtype("u1")
_PACK_BYTES: Final = 256 << 10
"""About how many bytes a pack has, for the number of packs in a file."""


@dataclass(frozen=True, slots=True, eq=False)
class BlskRaggedMap(RegularPacks):
    """The packs of variable-length items, many in each file."""

    slots: BlskMap
    """The slots of the packs, as those of an array whose chunks are the packs."""
    schema: RaggedSchema
    storage: tuple[str, bytes] = field(repr=False)
    """The ``meta/storage`` of the items, or of their table: its name, and its bytes."""
    refitted: bool = False
    """Whether the length of packs changed, which the next commit stores."""

    @classmethod
    def of(cls, slots: BlskMap, storage: tuple[str, bytes]) -> "BlskRaggedMap":
        """Return the map of the packs in slots."""
        (length,) = slots.schema.shape
        return cls(slots, slots.storage.items_schema(length, slots.schema.attrs), storage)

    @property
    def store(self) -> Store:
        """Where the bytes are."""
        return self.slots.store

    @property
    def path(self) -> str:
        """Where in the store the items lie, or the table that they are a column of."""
        return self.slots.path

    @property
    def documents(self) -> Documents:
        """The documents of the items, by key."""
        return self.slots.documents

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie: each begins its slot, and ends where its chunks say."""
        return self.slots.locate(np.asarray(numbers, np.int64).reshape(-1, 1))

    def fitted(self, rows: int, item_bytes: float) -> "BlskRaggedMap":
        """Return the map with packs of the length that items of that mean size get."""
        wanted = self.fitted_rows(pack_rows(0, item_bytes))
        if wanted is None:
            return self
        old = self.slots
        kept = replace(old.storage, chunks=(wanted,))
        schema = kept.schema(self.schema.length, self.schema.attrs)
        before = None if old.kept.fresh else old
        name, text = self.storage
        document = Document.parse(text, prefix(self.path) + name)
        columns = {**parse_columns(document), old.column: kept}
        text = document.changed(pack_columns(columns, document.values)).text
        found = old.found if old.column else {**old.found, name: text}
        slots = replace(old, storage=kept, schema=schema, before=before, found=found)
        return replace(self.of(slots, (name, text)), refitted=True)

    def spliced(self, splices: Sequence[Splice]) -> "tuple[BlskRaggedMap, Commit]":
        """Return the map with other packs; entries and number of items switch in one commit."""
        length, slots = spliced_length(self.schema, splices), self.slots
        behind: tuple[Edit, ...] = ()
        if length != self.schema.length:
            slots, resized = slots.resized((length,))
            behind = resized.publish
        staged = slots.stage_each(_images(splices))
        ahead: tuple[Edit, ...] = ()
        if self.refitted:
            name, text = self.storage
            ahead = (Put(prefix(self.path) + name, text),)
        commit = Commit(staged.prepare, (*ahead, *staged.publish, *behind))
        return self.of(slots.relocated(), self.storage), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BlskRaggedMap, Commit]":
        """Return the map with other attributes."""
        slots, commit = self.slots.described(attrs)
        return self.of(slots, self.storage), commit

    def removed(self) -> Commit:
        """Return the commit that removes the items."""
        return self.slots.removed()

    def reopened(self, store: Store) -> "BlskRaggedMap":
        """Return the map of the same items in their current state in `store`."""
        now = self.slots.reopened(store)
        documents = DatasetDocuments.read(store, self.path)
        return self.of(now, documents.storage)

    def rebound(self, store: Store) -> "BlskRaggedMap":
        """Return the same map of another store."""
        return replace(self, slots=self.slots.rebound(store))

    def free_bytes(self) -> FreeBytes:
        """Return how many bytes of the files hold nothing."""
        return self.slots.free_bytes()

    def compacted(self) -> "tuple[BlskRaggedMap, Commit]":
        """Return the map of the same items in files without dead bytes, and their commit."""
        commit = self.slots.compacted()
        return replace(self, slots=self.slots.relocated()), commit


def column_of(
    documents: DatasetDocuments, store: Store, column: tuple[str, ...] = ()
) -> ArrayNode | RaggedNode:
    """Return a column of a table, or with the path () what the documents describe alone."""
    chunks = documents.chunks(store, column)
    if chunks.storage.kind is None:
        return ArrayNode(chunks)
    return RaggedNode(BlskRaggedMap.of(chunks, documents.storage))


def design_ragged(
    request: RaggedRequest,
    *,
    order: str = "C",
    superchunksize: int | None = None,
    spare: float | None = None,
) -> RaggedSchema:
    """Return the layout of new items; an `order` has no meaning for them.

    >>> from ingot.ragged_array import UTF8
    >>> design_ragged(RaggedRequest(1000, UTF8, 60.0)).pack_items
    4096
    """
    rows = request.pack_items
    chosen = pack_rows(0, request.item_bytes) if rows is None else rows
    check_rows(chosen, "blsk: a length of packs of")
    codec = TrailedPacks(pack_codec(request, "blsk"), chosen, auto=rows is None)
    schema = RaggedSchema(request.length, request.kind, chosen, codec, request.attrs)
    return items_stored_as(schema, superchunksize, spare).items_schema(request.length, schema.attrs)


def items_stored_as(
    schema: RaggedSchema, superchunksize: int | None = None, spare: float | None = None
) -> ColumnStorage:
    """Return how items of a schema that was designed are stored."""
    codec, kind = schema.codec, schema.kind
    assert isinstance(codec, TrailedPacks)
    shape, chunks = schema.shape, (schema.pack_items,)
    if superchunksize is None:
        superchunksize = capacity_of(shape, chunks, _PACK_BYTES)
    check_layout(superchunksize, spare)
    dtype = _BYTE if kind.item is None else kind.item
    fill = dtypes.zero(dtype)
    return ColumnStorage(
        dtype, shape, chunks, superchunksize, fill, "C", codec.blosc, kind=kind, auto=codec.auto
    )


def create_ragged(
    store: Store,
    schema: RaggedSchema,
    path: str = "",
    *,
    length: int | None = None,
    superchunksize: int | None = None,
    spare: float | None = None,
) -> tuple[RaggedNode, Commit]:
    """Return new items, and the commit that makes them, without any packs.

    They are as many as the schema says, or `length`.
    """
    start, rows = prefix(path), schema.length if length is None else length
    storage = items_stored_as(schema, superchunksize, spare)
    storage = replace(storage, shape=(rows,), identity=draw_identity())
    text = yaml.pack(storage.document(), start + STORAGE)
    attributes = pack_attributes(schema.attrs, None, start + ATTRIBUTES)
    found = {STORAGE: text, NROWS: pack_nrows(rows), ATTRIBUTES: attributes}
    documents = DatasetDocuments.parse(store, path, found)
    slots = fresh(documents.chunks(store), spare)
    edits = tuple(Put(start + name, data) for name, data in found.items())
    return RaggedNode(BlskRaggedMap.of(slots, documents.storage)), Commit(publish=edits)


def _images(splices: Sequence[Splice]) -> Iterator[tuple[Coords, Buffer | None]]:
    """Yield the images of packs with their numbers, which ascend."""
    for start, _, packs in splices:
        for number, pack in enumerate(packs, start):
            yield (number,), pack.data

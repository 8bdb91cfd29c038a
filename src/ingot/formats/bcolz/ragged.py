"""Variable-length items in bcolz: a folder like that of an array, whose chunks are packs.

``meta/storage`` spells the kind of the items (``utf8``, ``bytes``, ``json``, ``list<DTYPE>``) where
arrays have their type. A file ``data/__N.blp`` is a pack of ``chunklen`` items, the last one of
fewer. The number of items in ``meta/sizes`` is what a commit switches, as for arrays: an append
writes packs first and the number last. bcolz does not know such folders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.compressors import Blosc
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.fields import FieldReader
from ingot.formats import json
from ingot.formats.bcolz.array import (
    ATTRS,
    KEEP,
    ArrayDocuments,
    BcolzFolder,
    pack_attrs,
    parse_attrs,
    read_documents,
)
from ingot.formats.bcolz.chunk_file import PackFiles
from ingot.formats.bcolz.metadata import (
    AUTO,
    BLOCKSIZE,
    SIZES,
    STORAGE,
    default_chunk,
    draw_identity,
    pack_parameters,
    parse_identity,
    parse_parameters,
    parse_sizes,
    with_identity,
    without_identity,
)
from ingot.formats.format import (
    Locations,
    RaggedNode,
    RaggedRequest,
    Splice,
)
from ingot.formats.keys import removals
from ingot.formats.packs import LENGTH, RegularPacks, check_rows, pack_codec, spliced_length
from ingot.formats.paths import prefix
from ingot.ragged_array import ItemKind
from ingot.schema import RaggedSchema
from ingot.stores.store import Commit, Edit, Put, Store

__all__ = [
    "BcolzRaggedColumnMap",
    "BcolzRaggedMap",
    "ItemStorage",
    "ItemsMetadata",
    "create_ragged",
    "design_ragged",
    "is_items",
    "open_items",
    "pack_rows",
]

# About how many bytes of items a pack has at least. To read one item is to decode its pack.
_LEAST_PACK: Final = 1 << 18
# The mean bytes of an item where nothing is known of the items.
_USUAL_ITEM: Final = 28


def pack_rows(rows: int, item_bytes: float | None) -> int:
    """Return how many items a pack has by default, given their number and their mean size.

    >>> pack_rows(1000, 60.0), pack_rows(0, None), pack_rows(10, 1e6)
    (4096, 8192, 1)
    """
    size = (_USUAL_ITEM if item_bytes is None else item_bytes) + LENGTH.itemsize
    return default_chunk(rows, size, _LEAST_PACK)


@dataclass(frozen=True, slots=True)
class ItemStorage:
    """The contents of a ``meta/storage`` of variable-length items.

    >>> storage = ItemStorage.parse(b'{"dtype": "utf8", "cparams": {"clevel": 5}, "chunklen": 9}')
    >>> str(storage.kind), storage.chunklen
    ('utf8', 9)
    """

    kind: ItemKind
    blosc: Blosc
    chunklen: int
    document: Mapping[str, Any]
    """All fields but the identity."""

    @classmethod
    def parse(cls, data: bytes, where: str = STORAGE) -> "ItemStorage":
        """Return the contents of a document without an identity; every claim is checked."""
        return _parse_storage(data, where)

    @classmethod
    def of(cls, schema: RaggedSchema) -> "ItemStorage":
        """Return the storage of new items."""
        codec = schema.codec
        assert isinstance(codec, PackFiles)
        blosc = codec.blosc
        values: dict[str, Any] = {
            "dtype": str(schema.kind),
            "cparams": pack_parameters(blosc),
            "chunklen": schema.pack_items,
            "expectedlen": schema.length,
            "dflt": None,
        }
        if codec.auto:
            values[AUTO] = "auto"
        if blosc.blocksize:
            values[BLOCKSIZE] = blosc.blocksize
        return cls(schema.kind, blosc, schema.pack_items, values)

    @property
    def auto(self) -> bool:
        """Whether the format chose the length of packs."""
        return self.document.get(AUTO) == "auto"

    def pack(self, identity: int | None) -> bytes:
        """Return the document, with an identity."""
        data = json.pack_line(dict(self.document), STORAGE, allow_nan=True)
        return data if identity is None else with_identity(data, identity)

    def with_chunklen(self, chunklen: int) -> "ItemStorage":
        """Return the same storage with packs of another length."""
        return replace(self, chunklen=chunklen, document={**self.document, "chunklen": chunklen})


@dataclass(frozen=True, slots=True)
class ItemsMetadata:
    """The metadata of variable-length items: the contents of both documents."""

    storage: ItemStorage
    sizes: Mapping[str, Any]
    schema: RaggedSchema
    identity: int | None = None

    @classmethod
    def of(
        cls,
        storage: ItemStorage,
        length: int,
        attrs: Mapping[str, Any],
        sizes: Mapping[str, Any] | None = None,
        identity: int | None = None,
    ) -> "ItemsMetadata":
        """Return the metadata of so many items."""
        rows = storage.chunklen
        codec = PackFiles(storage.blosc, rows, ((0, identity),), storage.auto)
        schema = RaggedSchema(length, storage.kind, rows, codec, attrs)
        return cls(storage, {**(sizes or {}), "shape": [length]}, schema, identity)

    @classmethod
    def parse(
        cls,
        storage: bytes,
        sizes: bytes,
        attrs: Mapping[str, Any],
        where: tuple[str, str] = (STORAGE, SIZES),
    ) -> "ItemsMetadata":
        """Return the metadata in two documents."""
        rest, identity = without_identity(bytes(storage))
        kept = ItemStorage.parse(rest, where[0])
        if identity is None:
            identity = parse_identity(FieldReader(where[0], kept.document))
            document = {name: value for name, value in kept.document.items() if name != "x_id"}
            kept = replace(kept, document=document)
        shape, counts = parse_sizes(bytes(sizes), where[1])
        if len(shape) != 1:
            raise FormatError(f"{where[1]}: shape {list(shape)}, items have one axis")
        return cls.of(kept, shape[0], attrs, counts, identity)

    def resized(self, length: int) -> "ItemsMetadata":
        """Return the metadata of another number of items."""
        sizes = {**self.sizes, "shape": [length]}
        return replace(self, sizes=sizes, schema=self.schema.resized(length))

    def described(self, attrs: Mapping[str, Any]) -> "ItemsMetadata":
        """Return the metadata with other attributes."""
        return replace(self, schema=self.schema.described(attrs))

    def identified(self, identity: int) -> "ItemsMetadata":
        """Return the metadata of the same items with an identity."""
        return self.of(self.storage, self.schema.length, self.schema.attrs, self.sizes, identity)

    def pack_sizes(self) -> bytes:
        """Return the ``meta/sizes`` of the items."""
        return json.pack_line(dict(self.sizes), SIZES)


def is_items(storage: bytes | None) -> bool:
    """Return whether a ``meta/storage`` is that of variable-length items, and not of an array.

    >>> is_items(b'{"dtype": "utf8"}'), is_items(b'{"dtype": "int8"}'), is_items(b"{")
    (True, False, False)
    """
    # Nearly all documents are those of arrays, and this is asked for each of them.
    if storage is None or not any(word in storage for word in _WORDS):
        return False
    return _is_items(bytes(storage))


# JSON may spell any letter by a backslash.
_WORDS: Final = b"utf8", b"bytes", b"json", b"list<", b"\\"


@lru_cache(maxsize=1024)
def _is_items(storage: bytes) -> bool:
    try:
        dtype = json.parse_object(storage, STORAGE, allow_nan=True).get("dtype")
    except IngotError:
        return False
    plain = dtype in ("utf8", "bytes", "json")
    return plain or (isinstance(dtype, str) and dtype.startswith("list<"))


@lru_cache(maxsize=256)
def _parse_storage(data: bytes, where: str) -> ItemStorage:
    values = json.parse_object(data, where, allow_nan=True)
    fields = FieldReader(where, values)
    kind = ItemKind.parse(fields.value("dtype"), f"{where}: dtype")
    chunklen = fields.integer("chunklen", low=1)
    check_rows(chunklen, f"{where}: chunklen")
    blosc, _ = parse_parameters(fields)
    blosc = replace(blosc, typesize=1 if kind.item is None else kind.item.itemsize)
    return ItemStorage(kind, blosc, chunklen, values)


@dataclass(frozen=True, slots=True)
class BcolzRaggedMap(RegularPacks, BcolzFolder[ItemsMetadata]):
    """The packs of variable-length items, each in its own file; no pack may be absent."""

    refitted: bool = False
    """Whether the length of packs changed, which the next commit stores."""

    @property
    def schema(self) -> RaggedSchema:
        """What the sequence is."""
        return self.metadata.schema

    @property
    def file_count(self) -> int:
        """The number of packs."""
        return self.schema.pack_count

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where packs lie: each is a whole file."""
        return Locations(self.template.keys(np.asarray(numbers, np.int64).reshape(-1, 1)))

    def fitted(self, rows: int, item_bytes: float) -> "BcolzRaggedMap":
        """Return the map with packs of the length that so many items of that mean size get."""
        chunklen = self.fitted_rows(pack_rows(rows, item_bytes))
        if chunklen is None:
            return self
        old, length = self.metadata, self.schema.length
        storage = old.storage.with_chunklen(chunklen)
        metadata = ItemsMetadata.of(storage, length, old.schema.attrs, old.sizes, old.identity)
        found = self.found._replace(storage=storage.pack(old.identity))
        return replace(self, metadata=metadata, found=found, refitted=True)

    def spliced(self, splices: Sequence[Splice]) -> "tuple[BcolzRaggedMap, Commit]":
        """Return the map with other packs; the commit switches by the number of items.

        Packs that no reader reaches are stored before. So is the last pack when it gets more items:
        those that it has stay, and no reader takes more than the number says.
        """
        old, count, template = self.schema, self.schema.pack_count, self.template
        metadata = self.metadata.resized(spliced_length(old, splices))
        length = metadata.schema.length
        first_ahead = count if length <= old.length else old.length // old.pack_items
        ahead: list[Edit] = []
        exchanged: list[Edit] = []
        if self.refitted:
            assert self.found.storage is not None
            # Items that are stored move to other packs, at once.
            first_ahead = metadata.schema.pack_count if old.length else 0
            edits = exchanged if old.length else ahead
            edits.append(Put(self._key(STORAGE), self.found.storage))
        for start, _, packs in splices:
            for number, pack in enumerate(packs, start):
                edits = exchanged if number < first_ahead else ahead
                edits.append(Put(template.key((number,)), pack.data))
        found = self.found
        if length != old.length:
            sizes = metadata.pack_sizes()
            exchanged.append(Put(self._key(SIZES), sizes))
            found = found._replace(sizes=sizes)
        if old.length and not length:
            # The folder of the packs stays, as that of the chunks of an array.
            ahead.append(Put(self._key(f"data/{KEEP}"), b""))
        gone = removals(self.store, template, (count,), (metadata.schema.pack_count,))
        after = replace(self, metadata=metadata, found=found, refitted=False)
        return after, Commit(tuple(ahead), tuple(exchanged), gone)

    def reopened(self, store: Store) -> "BcolzRaggedMap":
        """Return the map of the same items in their current state in `store`."""
        (found,) = read_documents(store, [self.path])
        attrs = parse_attrs(found.attrs, f"{store.location}: {prefix(self.path)}{ATTRS}")
        now = open_items(store, self.path, found, attrs)
        return replace(self, store=store, metadata=now.metadata, found=now.found)

    def rebound(self, store: Store) -> "BcolzRaggedMap":
        """Return the same map of another store."""
        return replace(self, store=store, metadata=self._with_attributes_of(store, self.path))


@dataclass(frozen=True, slots=True)
class BcolzRaggedColumnMap(BcolzRaggedMap):
    """The packs of a column that was opened without its table, which owns its length."""

    @classmethod
    def of(cls, packs: BcolzRaggedMap) -> "BcolzRaggedColumnMap":
        """Return the map of the same packs as a column."""
        return cls(packs.store, packs.metadata, packs.path, packs.found)

    def spliced(self, splices: Sequence[Splice]) -> "tuple[BcolzRaggedMap, Commit]":
        """Return the map with other packs; `UnsupportedError` for another number of items."""
        if spliced_length(self.schema, splices) != self.schema.length:
            raise UnsupportedError(
                f"{self.store.location}: {self.path!r} is a column; "
                "open the table to change its length"
            )
        # `super` without arguments finds no class that was made again with slots.
        return BcolzRaggedMap.spliced(self, splices)

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: the table would still name the column."""
        raise UnsupportedError(
            f"{self.store.location}: {self.path!r} is a column; open the table to drop it"
        )


def open_items(
    store: Store, path: str, found: ArrayDocuments, attrs: Mapping[str, Any]
) -> BcolzRaggedMap:
    """Return the items at `path`, whose documents were read."""
    storage, sizes = prefix(path) + STORAGE, prefix(path) + SIZES
    if not found.is_array:
        raise NotFoundError(f"{store.location}: no {storage} and no {sizes}")
    try:
        if found.storage is None:
            raise FormatError(f"{storage} is missing: the type of the items is lost")
        if found.sizes is None:
            raise CorruptionError(f"{sizes} is missing: the number of items is lost")
        metadata = ItemsMetadata.parse(found.storage, found.sizes, attrs, (storage, sizes))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    return BcolzRaggedMap(store, metadata, path, found)


def design_ragged(request: RaggedRequest) -> RaggedSchema:
    """Return the layout of new items.

    >>> from ingot.ragged_array import UTF8
    >>> design_ragged(RaggedRequest(1000, UTF8, 60.0)).pack_items
    4096
    """
    rows = request.pack_items
    blosc = pack_codec(request, "bcolz")
    chosen = pack_rows(request.length, request.item_bytes) if rows is None else rows
    check_rows(chosen, "bcolz: a length of packs of")
    codec = PackFiles(blosc, chosen, auto=rows is None)
    return RaggedSchema(request.length, request.kind, chosen, codec, request.attrs)


def create_ragged(store: Store, schema: RaggedSchema, path: str = "") -> tuple[RaggedNode, Commit]:
    """Return new items, and the commit that makes them, without any packs.

    Their identity is new, whatever items the schema comes from.
    """
    identity = draw_identity()
    storage = ItemStorage.of(schema).pack(identity)
    attrs = pack_attrs(schema.attrs)
    sizes = json.pack_line({"shape": [schema.length]}, SIZES)
    metadata = ItemsMetadata.parse(storage, sizes, parse_attrs(attrs))
    start = prefix(path)
    publish = (Put(start + STORAGE, storage), Put(start + ATTRS, attrs), Put(start + SIZES, sizes))
    folder = () if schema.length else (Put(f"{start}data/{KEEP}", b""),)
    packs = BcolzRaggedMap(store, metadata, path, ArrayDocuments(storage, sizes, attrs))
    return RaggedNode(packs), Commit(prepare=folder, publish=publish)

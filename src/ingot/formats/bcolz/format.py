"""bcolz 1.x in a store: opening and creating its arrays and tables.

A folder with ``__rootdirs__`` is a table, a folder with ``meta/sizes`` an array, a folder with
``shards.json`` a dataset in row shards. Each has its own module: `table`, `array`, `row_shards`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from ingot.errors import NotFoundError
from ingot.formats import json
from ingot.formats.bcolz import check as checks
from ingot.formats.bcolz.array import (
    ATTRS,
    ArrayDocuments,
    BcolzColumnMap,
    create_array,
    design,
    open_array,
    parse_attrs,
)
from ingot.formats.bcolz.metadata import SIZES, STORAGE
from ingot.formats.bcolz.ragged import (
    BcolzRaggedColumnMap,
    create_ragged,
    design_ragged,
    is_items,
    open_items,
)
from ingot.formats.bcolz.row_shards import open_shards
from ingot.formats.bcolz.split import split
from ingot.formats.bcolz.table import (
    ROOTDIRS,
    column_documents,
    create_table,
    has_column,
    is_data_layout,
    open_table,
)
from ingot.formats.blsk.row_shards import open_shards as open_blsk_shards
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import (
    ArrayNode,
    Column,
    CopyChunks,
    Kind,
    Node,
    RaggedNode,
    RaggedRequest,
    Recode,
    Request,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.row_shards import SHARDS, RowShards, shard_of
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Batch, Commit, Extent, Store

__all__ = ["BcolzFormat"]

_DOCUMENTS: Final = (ROOTDIRS, SIZES, STORAGE, ATTRS, SHARDS)


class BcolzFormat:
    """bcolz 1.x, and its predecessors carray and blz.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({
    ...     "meta/storage": b'{"dtype": "int8", "cparams": {"clevel": 5, "shuffle": 1},'
    ...                     b' "chunklen": 10, "dflt": 0, "expectedlen": 0}',
    ...     "meta/sizes": b'{"shape": [0], "nbytes": 0, "cbytes": 0}',
    ... })
    >>> BcolzFormat().open(store).schema.dtype
    dtype('int8')
    """

    name: ClassVar[str] = "bcolz"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.TABLE | Kind.RAGGED
    settings: ClassVar[tuple[str, ...]] = ()

    def open(self, store: Store, path: str = "") -> ArrayNode | RaggedNode | TableNode:
        """Return the array, the items or the table at `path`."""
        wanted = [Extent(prefix(path) + name, 0, json.LARGEST + 1) for name in _DOCUMENTS]
        documents = dict(zip(_DOCUMENTS, store.read(wanted), strict=True))
        node = self.from_documents(store, path, documents)
        if node is not None:
            return node
        if not is_data_layout(store, path):
            known = ", ".join(prefix(path) + mark for mark in (ROOTDIRS, SIZES, STORAGE, SHARDS))
            raise NotFoundError(f"{store.location}: none of {known}")
        part = bool(path) and _is_column(store, path)
        return TableNode(open_table(store, path, part=part))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | RaggedNode | TableNode | None:
        """Return the dataset that documents describe; columns are read from the store."""
        if documents.get(ROOTDIRS) is not None:
            part = bool(path) and _is_column(store, path)
            return TableNode(open_table(store, path, part=part, found=documents))
        attrs = documents.get(ATTRS)
        found = ArrayDocuments(documents.get(STORAGE), documents.get(SIZES), attrs)
        if not found.is_array:
            shards = documents.get(SHARDS)
            if shards is None:
                return None
            if RowShards.parse(shards, prefix(path) + SHARDS).format == "blsk":
                return open_blsk_shards(store, path, shards)
            return open_shards(store, path, shards)
        if is_items(found.storage):
            described = parse_attrs(attrs, f"{store.location}: {prefix(path)}{ATTRS}")
            items = open_items(store, path, found, described)
            is_part = path and _is_column(store, path)
            return RaggedNode(BcolzRaggedColumnMap.of(items) if is_part else items)
        array = open_array(store, path, found)
        if path and _is_column(store, path):
            return ArrayNode(BcolzColumnMap.of(array))
        return ArrayNode(array)

    def named(self, documents: Mapping[str, bytes | None]) -> Batch | None:
        """Return the documents of the columns that a ``__rootdirs__`` names."""
        rootdirs = documents.get(ROOTDIRS)
        return None if rootdirs is None else column_documents(rootdirs)

    def has_part(self, store: Store, path: str) -> bool:
        """Return whether a store has a shard or a column at a path, also in nested tables."""
        return shard_of(store, path) == path or _is_column(store, path)

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return the layout of a new array, which has chunks along its first axis only."""
        return design(request)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that creates it."""
        return create_array(store, schema, path)

    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        """Return the layout of new variable-length items, in packs of one length."""
        return design_ragged(request)

    def create_ragged(
        self, store: Store, schema: RaggedSchema, path: str = "", **layout: Any
    ) -> tuple[RaggedNode, Commit]:
        """Return a new sequence without items, and the commit that makes it."""
        return create_ragged(store, schema.resized(0), path)

    def create_table(
        self,
        store: Store,
        schema: TableSchema,
        attrs: Mapping[str, Any],
        path: str = "",
        **layout: Any,
    ) -> tuple[TableNode, Commit]:
        """Return a new table, and the commit that creates it."""
        return create_table(store, schema, attrs, path)

    def split(
        self, node: Column, count: int, store: Store, recode: Recode, copy: CopyChunks
    ) -> Iterator[Commit]:
        """Yield the commits that store a dataset as shards; the last one makes them visible."""
        return split(node, count, store, recode, copy)

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents and lengths."""
        return checks.findings(store, path, name)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends an array or a table."""
        return checks.next_repair(store, path, request, name)

    def suspects(self, store: Store, path: str) -> bool:
        """Return whether a folder without markers was an array or a table of bcolz."""
        return checks.suspects(store, path)


def _is_column(store: Store, path: str) -> bool:
    """Return whether a path is a column of the table in a store, or of one of its row shards."""
    return has_column(store, path, shard_of(store, path))

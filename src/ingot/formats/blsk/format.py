"""blsk in a store: opening and creating its arrays, items and tables."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ingot.dtypes import DType
from ingot.errors import NotFoundError, UnsafeError, UnsupportedError
from ingot.formats import json
from ingot.formats.blsk import check as checks
from ingot.formats.blsk.array import DatasetDocuments, create_array, design
from ingot.formats.blsk.lone_file import is_super_chunk, open_file
from ingot.formats.blsk.metadata import NROWS, STORAGE
from ingot.formats.blsk.ragged import column_of, create_ragged, design_ragged
from ingot.formats.blsk.row_shards import open_shards
from ingot.formats.blsk.split import split
from ingot.formats.blsk.table import create_table, table_of
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
from ingot.formats.row_shards import SHARDS, shard_of
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Extent, Store

__all__ = ["BlskFormat"]


class BlskFormat:
    """Super-chunk files with an index and spare room: carray's proposal.

    >>> BlskFormat().name
    'blsk'
    """

    __slots__ = ("_dtype",)

    name: ClassVar[str] = "blsk"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.TABLE | Kind.RAGGED
    typed_attributes: ClassVar[bool] = True
    settings: ClassVar[tuple[str, ...]] = ("order", "superchunksize", "spare")

    def __init__(self, dtype: DType | None = None) -> None:
        self._dtype = dtype

    def typed(self, dtype: DType) -> "BlskFormat":
        """Return the format that reads the items of files without metadata as a type."""
        return BlskFormat(dtype)

    def open(self, store: Store, path: str = "") -> ArrayNode | RaggedNode | TableNode:
        """Return the dataset at `path`, or the array in the file that lies there."""
        if path and _is_file(store, path):
            return ArrayNode(open_file(store, path, self._dtype))
        if self._dtype is not None:
            raise UnsupportedError(
                f"{store.location}: only a super-chunk file without metadata takes a dtype"
            )
        try:
            return _node(store, DatasetDocuments.read(store, path))
        except NotFoundError:
            (shards,) = store.read([Extent(prefix(path) + SHARDS, 0, json.LARGEST + 1)])
            if shards is None:
                raise
            return open_shards(store, path, shards)

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | RaggedNode | TableNode | None:
        """Return the dataset that documents describe; None without them."""
        if documents.get(NROWS) is None and documents.get(STORAGE) is None:
            return None
        return _node(store, DatasetDocuments.read(store, path, documents))

    def has_part(self, store: Store, path: str) -> bool:
        """Return whether a store has a shard at a path."""
        return shard_of(store, path, "blsk") == path

    def split(
        self, node: Column, count: int, store: Store, recode: Recode, copy: CopyChunks
    ) -> Iterator[Commit]:
        """Yield the commits that store a dataset as shards; the last one makes them visible.

        Chunks in slots are not copied natively.
        """
        return split(node, count, store, recode)

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return the layout of a new array."""
        return design(request, **layout)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that creates it."""
        layout.pop("order", None)
        return create_array(store, schema, path, **layout)

    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        """Return the layout of new variable-length items, in packs of one length."""
        return design_ragged(request, **layout)

    def create_ragged(
        self, store: Store, schema: RaggedSchema, path: str = "", **layout: Any
    ) -> tuple[RaggedNode, Commit]:
        """Return a new sequence without items, and the commit that makes it."""
        layout.pop("order", None)
        return create_ragged(store, schema, path, length=0, **layout)

    def create_table(
        self,
        store: Store,
        schema: TableSchema,
        attrs: Mapping[str, Any],
        path: str = "",
        **layout: Any,
    ) -> tuple[TableNode, Commit]:
        """Return a new table, and the commit that creates it."""
        layout.pop("order", None)
        return create_table(store, schema, attrs, path, **layout)

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents, heads and indexes."""
        if path and _is_file(store, path):
            return iter(())
        return checks.findings(store, path, name, quick=quick)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends an array or a table."""
        if path and _is_file(store, path):
            return None
        return checks.next_repair(store, path, request, name)

    def suspects(self, store: Store, path: str) -> bool:
        """Return whether a folder was an array or a table that lost its number of rows."""
        return checks.suspects(store, path)


def _is_file(store: Store, path: str) -> bool:
    """Return whether a super-chunk file, not a folder, lies at `path`."""
    try:
        (head,) = store.read([Extent(path, 0, 8)])
    except UnsafeError:  # A folder.
        return False
    return head is not None and is_super_chunk(head, b"")


def _node(store: Store, documents: DatasetDocuments) -> ArrayNode | RaggedNode | TableNode:
    if documents.is_array:
        return column_of(documents, store)
    return TableNode(table_of(store, documents))

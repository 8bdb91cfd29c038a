"""bcolz 1.x in a store: opening and creating its arrays and tables.

A folder with ``__rootdirs__`` is a table, a folder with ``meta/sizes`` an array, a folder with
``shards.json`` a dataset in row shards. Each has its own module: `table`, `array`, `row_shards`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from ingot.errors import NotFoundError
from ingot.formats.bcolz.array import (
    BcolzColumnMap,
    create_array,
    design,
    open_array,
    read_documents,
)
from ingot.formats.bcolz.metadata import SIZES, STORAGE
from ingot.formats.bcolz.row_shards import SHARDS, open_shards, shard_of
from ingot.formats.bcolz.split import split
from ingot.formats.bcolz.table import (
    DATA,
    ROOTDIRS,
    create_table,
    has_column,
    is_data_layout,
    open_table,
)
from ingot.formats.format import (
    ArrayNode,
    Column,
    Kind,
    Recode,
    Request,
    Signature,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Store

__all__ = ["BcolzFormat"]


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
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.TABLE
    signature: ClassVar[Signature] = Signature(
        markers=(ROOTDIRS, SIZES, STORAGE, SHARDS), looks=is_data_layout
    )
    settings: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[str, ...]] = (ROOTDIRS, SHARDS)
    between: ClassVar[str | None] = DATA

    def open(self, store: Store, path: str = "") -> ArrayNode | TableNode:
        """Return the array or table at `path`."""
        if store.size(prefix(path) + ROOTDIRS) is not None:
            part = bool(path) and _is_column(store, path)
            return TableNode(open_table(store, path, part=part))
        (found,) = read_documents(store, [path])
        if not found.is_array and store.size(prefix(path) + SHARDS) is not None:
            return open_shards(store, path)
        if not found.is_array and is_data_layout(store, path):
            part = bool(path) and _is_column(store, path)
            return TableNode(open_table(store, path, part=part))
        if not found.is_array:
            known = ", ".join(prefix(path) + mark for mark in self.signature.markers)
            raise NotFoundError(f"{store.location}: none of {known}")
        array = open_array(store, path, found)
        if path and _is_column(store, path):
            return ArrayNode(BcolzColumnMap.of(array))
        return ArrayNode(array)

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

    def split(self, node: Column, count: int, store: Store, recode: Recode) -> Iterator[Commit]:
        """Yield the commits that store a dataset as shards; the last one makes them visible."""
        return split(node, count, store, recode)


def _is_column(store: Store, path: str) -> bool:
    """Return whether a path is a column of the table in a store, or of one of its row shards."""
    return has_column(store, path, shard_of(store, path))

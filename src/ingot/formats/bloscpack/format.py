"""Bloscpack files in a store: opening and creating their arrays."""

from collections.abc import Iterator
from typing import Any, ClassVar

from ingot.formats.bloscpack import check as checks
from ingot.formats.bloscpack.array import create_array, design, open_array
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ArrayNode, Kind, Node, Request
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Store

__all__ = ["BloscpackFormat"]


class BloscpackFormat:
    """Bloscpack files of versions 1 to 3; new ones have version 3.

    >>> import ingot
    >>> array = ingot.array([1.0, 2.0], format="bloscpack", checksum="sha256")
    >>> array.format, array[...]
    ('bloscpack', array([1., 2.]))
    """

    name: ClassVar[str] = "bloscpack"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ("checksum", "order", "chunk_bytes")

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a file; `path` is its key."""
        return ArrayNode(open_array(store, path))

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return the layout of a new array.

        `checksum` is the name of the checksum of chunks, `order` that of the items, `chunk_bytes`
        the length of chunks in bytes.
        """
        return design(request, **layout)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes its file."""
        return create_array(store, schema, path)

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with header, offsets and the end of a file."""
        return checks.findings(store, path, name)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends a file."""
        return checks.next_repair(store, path, request, name)

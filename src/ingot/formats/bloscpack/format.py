"""Bloscpack files in a store: opening and creating their arrays."""

from typing import Any, ClassVar

from ingot.formats.bloscpack.array import create_array, design, open_array
from ingot.formats.format import ArrayNode, Kind, Request
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

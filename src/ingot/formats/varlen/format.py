"""Files of variable-length items in a store: opening and creating them."""

from collections.abc import Iterator
from typing import Any, ClassVar

from ingot.errors import UnsupportedError
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ArrayNode, Kind, Node, RaggedNode, RaggedRequest, Request
from ingot.formats.varlen import check as checks
from ingot.formats.varlen.metadata import Reserve
from ingot.formats.varlen.ragged import create_items, design_items, open_items
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Store

__all__ = ["VarlenFormat"]


class VarlenFormat:
    """Variable-length items in a single file: version 4 of Bloscpack.

    >>> import ingot
    >>> items = ingot.ragged(["ape", None, "bee"], format="varlen", checksum="sha256")
    >>> items.format, items[2], len(items)
    ('varlen', 'bee', 3)
    """

    name: ClassVar[str] = "varlen"
    holds: ClassVar[Kind] = Kind.RAGGED
    settings: ClassVar[tuple[str, ...]] = ("checksum", "pack_bytes", "packed", "reserve", "slots")

    def open(self, store: Store, path: str = "") -> RaggedNode:
        """Return the items of a file; `path` is its key."""
        return RaggedNode(open_items(store, path))

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Raise `UnsupportedError`: a file holds items, not an array."""
        raise UnsupportedError("varlen: holds no arrays")

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Raise `UnsupportedError`: a file holds items, not an array."""
        raise UnsupportedError("varlen: holds no arrays")

    def design_ragged(self, request: RaggedRequest, **layout: Any) -> RaggedSchema:
        """Return the layout of new items.

        `packed` says whether items share packs, of about `pack_bytes` bytes; otherwise each has a
        chunk of its own. `checksum` is the name of the checksum of chunks, `reserve` the room
        behind each pack, in bytes or as a fraction, `slots` the number of spare entries.
        """
        return design_items(request, **layout)

    def create_ragged(
        self,
        store: Store,
        schema: RaggedSchema,
        path: str = "",
        *,
        reserve: Reserve = 0,
        slots: int = 0,
        **layout: Any,
    ) -> tuple[RaggedNode, Commit]:
        """Return new items, and the commit that makes their file."""
        return create_items(store, schema, path, reserve=reserve, slots=slots)

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with the front of a file."""
        return checks.findings(store, path, name)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends a file."""
        return checks.next_repair(store, path, request, name)

"""A format as small as a format of single files can be: a head of 4096 bytes, then all chunks.

The head is the magic and the document of `format`, filled up with spaces. Chunks follow each other
in the order of their numbers, each in a slot of one size, so an array grows along its first axis
only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot.errors import FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.formats.format import ArrayNode, Coords, Documents, Kind, Locations, Request
from ingot.grid import ChunkGrid
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Delete, Extent, Patch, Put, Store
from tests.contracts.toy import format as toy

__all__ = ["SingleToyFormat", "is_single_toy"]

MAGIC: Final = b"toyfile\n"
HEAD: Final = 4096


def is_single_toy(head: bytes, tail: bytes) -> bool:
    """Return whether a file begins with the magic."""
    return head.startswith(MAGIC)


@dataclass(frozen=True, slots=True)
class SingleToyMap:
    """The chunks of the one array of a file."""

    store: Store
    schema: ArraySchema
    path: str
    template: ClassVar[None] = None

    @property
    def documents(self) -> Documents:
        """No key is a document alone: the chunks lie in the same file."""
        return {}

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        slot, grid, dtype = _slot(self.schema), self.schema.grid, self.schema.dtype
        starts = [HEAD + number(grid, each) * slot for each in coords.tolist()]
        shapes = [grid.stored_shape(tuple(each)) for each in coords.tolist()]
        lengths = [int(np.prod(shape, dtype=np.int64)) * dtype.itemsize for shape in shapes]
        return Locations(
            (self.path,) * len(starts), np.array(starts, np.int64), np.array(lengths, np.int64)
        )

    def reopened(self, store: Store) -> "SingleToyMap":
        """Return the map of the same array as `store` has it now."""
        return _open(store, self.path)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        slot, grid = _slot(self.schema), self.schema.grid
        found = sorted((number(grid, coords), data or b"") for coords, data in encoded.items())
        edits = (Patch(self.path, HEAD + at * slot, data.ljust(slot, b"\0")) for at, data in found)
        return Commit(publish=tuple(edits))

    def resized(self, shape: tuple[int, ...]) -> "tuple[SingleToyMap, Commit]":
        """Return the map of another shape."""
        if shape[1:] != self.schema.shape[1:]:
            raise UnsupportedError("toyfile: an array changes along its first axis only")
        return self._changed(self.schema.resized(shape))

    def described(self, attrs: Mapping[str, Any]) -> "tuple[SingleToyMap, Commit]":
        """Return the map with other attributes."""
        return self._changed(self.schema.described(attrs))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        return Commit(publish=(Delete(self.path),))

    def _changed(self, schema: ArraySchema) -> "tuple[SingleToyMap, Commit]":
        commit = Commit(publish=(Patch(self.path, 0, _pack(schema)),))
        return replace(self, schema=schema), commit


class SingleToyFormat:
    """One array in a file."""

    name: ClassVar[str] = "toyfile"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ()

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a file; `path` is its key."""
        return ArrayNode(_open(store, path))

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return how an array will be stored."""
        return _dense(toy.ToyFormat().design(request, **layout))

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes it."""
        if not path:
            raise UnsupportedError("toyfile: a file has a name")
        return ArrayNode(SingleToyMap(store, schema, path)), Commit(
            publish=(Put(path, _pack(schema)),)
        )


def _open(store: Store, path: str) -> SingleToyMap:
    head = store.read([Extent(path, 0, HEAD)])[0] if path else None
    if head is None:
        raise NotFoundError(f"{store.location}: no {path or 'file'}")
    try:
        if len(head) < HEAD or not head.startswith(MAGIC):
            raise FormatError(f"{path}: no head of {HEAD} bytes")
        schema = _dense(toy.parse(head[len(MAGIC) :].rstrip(b" ")))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    return SingleToyMap(store, schema, path)


def _pack(schema: ArraySchema) -> bytes:
    head = MAGIC + toy.pack(schema)
    if len(head) > HEAD:
        raise UnsupportedError(f"toyfile: attributes of more than {HEAD} bytes")
    return head.ljust(HEAD)


def _dense(schema: ArraySchema) -> ArraySchema:
    return replace(schema, sparse=False, padded=False)


def _slot(schema: ArraySchema) -> int:
    return int(np.prod(schema.chunks, dtype=np.int64)) * schema.dtype.itemsize


def number(grid: ChunkGrid, coords: Sequence[int]) -> int:
    """Return the number of a chunk, which does not change when the first axis grows."""
    found = 0
    for position, count in zip(coords, grid.counts, strict=True):
        found = found * count + position
    return found

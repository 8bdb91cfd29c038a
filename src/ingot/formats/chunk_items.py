"""Arrays of variable-length items as sequences: their chunks are the packs.

Zarr keeps text, bytes and rows of several lengths as arrays whose chunks have one of the ``vlen``
layouts (`ingot.codecs.text`). An array of one axis is read here as items in buffers, without an
object for each. It is changed as an array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import CodecChain, Stage
from ingot.codecs.text import VlenSerializer
from ingot.errors import UnsupportedError
from ingot.formats.format import ChunkMap, Documents, Locations, Splice
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Store

__all__ = ["ChunkItems", "ChunkItemsMap"]


@dataclass(frozen=True, slots=True)
class ChunkItems:
    """The codec of packs that are the chunks of an array."""

    array: ArraySchema

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The codecs of a chunk, as a caller spells them."""
        return self.array.codec

    def encode(self, items: RaggedArray, number: int) -> bytes:
        """Refuse to encode items: they are changed as an array."""
        _refuse()

    def decode(self, data: bytes, kind: ItemKind, count: int, number: int) -> RaggedArray:
        """Return the first `count` items of a chunk, which has the same length at the end."""
        spec = self.array.spec((number,))
        serialized = self.array.chain.serialized(data, spec)
        items = _serializer(self.array).items(serialized, spec.count)
        return items.take(np.arange(count)) if count < len(items) else items


@dataclass(frozen=True, slots=True, eq=False)
class ChunkItemsMap:
    """The chunks of an array of variable-length items, as packs."""

    chunks: ChunkMap
    schema: RaggedSchema

    @classmethod
    def of(cls, chunks: ChunkMap) -> "ChunkItemsMap":
        """Return the items of an array; `UnsupportedError` unless it has one axis of such items."""
        array = chunks.schema
        serializer = _serializer(array)
        if len(array.shape) != 1 or array.rectilinear:
            axes = "chunks of several lengths" if array.rectilinear else f"{len(array.shape)} axes"
            raise UnsupportedError(f"items are read of arrays with one axis, this one has {axes}")
        fill = _fill_item(array, serializer)
        codec = ChunkItems(array)
        length, rows = array.shape[0], array.chunks[0]
        return cls(
            chunks, RaggedSchema(length, serializer.kind, rows, codec, array.attrs, fill=fill)
        )

    @property
    def store(self) -> Store:
        """Where the bytes are."""
        return self.chunks.store

    @property
    def path(self) -> str:
        """Where in the store the array lies."""
        return self.chunks.path

    @property
    def documents(self) -> Documents:
        """The documents of the array."""
        return self.chunks.documents

    def bounds(self) -> NDArray[np.int64]:
        """Return the first item of each chunk, and the number of items at the end."""
        return self.schema.regular_bounds()

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return self.chunks.locate(np.asarray(numbers, np.int64).reshape(-1, 1))

    def reopened(self, store: Store) -> "ChunkItemsMap":
        """Return the map of the same array as `store` has it now."""
        return self.of(self.chunks.reopened(store))

    def rebound(self, store: Store) -> "ChunkItemsMap":
        """Return the same map of another store."""
        return self.reopened(store)

    def spliced(self, splices: Sequence[Splice]) -> "tuple[ChunkItemsMap, Commit]":
        """Raise `UnsupportedError`: items are changed as an array."""
        _refuse()

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ChunkItemsMap, Commit]":
        """Raise `UnsupportedError`: items are changed as an array."""
        _refuse()

    def removed(self) -> Commit:
        """Raise `UnsupportedError`: items are changed as an array."""
        _refuse()


def _serializer(array: ArraySchema) -> VlenSerializer:
    """Return what lays out the items of a chunk; refuse arrays of other items."""
    chain: CodecChain = array.chain
    if not isinstance(chain.serializer, VlenSerializer) or chain.filters:
        raise UnsupportedError(
            f"an array of {array.dtype} has no items of variable length that are read as such"
        )
    return chain.serializer


def _fill_item(array: ArraySchema, serializer: VlenSerializer) -> RaggedArray:
    """Return the item of chunks that are not stored."""
    if array.fill is None:
        return RaggedArray.nulls(serializer.kind, 1)
    single = np.empty(1, array.dtype)
    single[0] = array.fill
    return serializer.items(serializer.encode(single), 1)


def _refuse() -> NoReturn:
    raise UnsupportedError("items of an array are only read; change the array")

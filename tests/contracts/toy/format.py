"""A format as small as a format can be: one JSON document, and the raw bytes of every chunk.

`toy.json` has the shape, the type, the shape of a chunk, the fill value and the attributes; the
chunk at the coordinates 1, 2 is the key `chunk-1-2`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import CodecChain
from ingot.errors import FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import INT64, FieldReader
from ingot.formats import json, keys
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    KeyTemplate,
    Kind,
    Locations,
    Request,
)
from ingot.grid import auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = ["ToyFormat"]

DOCUMENT: Final = "toy.json"


def parse(data: bytes, where: str = DOCUMENT) -> ArraySchema:
    """Return what a document says; `where` names it in errors."""
    fields = FieldReader(where, json.parse_object(data, where))
    shape, chunks = fields.integers("shape", low=0), fields.integers("chunks", low=1)
    dtype = dtypes.parse(fields.value("dtype"), f"{where}: dtype")
    fill = bytes.fromhex(fields.text("fill"))
    if len(shape) != len(chunks) or len(fill) != dtype.itemsize or dtype.hasobject:
        raise FormatError(f"{where}: shape, chunks, dtype and fill do not fit together")
    if math.prod((*shape, dtype.itemsize)) > INT64:
        raise FormatError(f"{where}: shape {list(shape)} has more bytes than 64 bits count")
    attrs = fields.mapping("attrs") or {}
    item = np.frombuffer(fill, dtype)[0]
    return ArraySchema(shape, dtype, chunks, CodecChain(), item, attrs=attrs)


def pack(schema: ArraySchema, where: str = DOCUMENT) -> bytes:
    """Return the document that `parse` reads."""
    values = {
        "shape": list(schema.shape),
        "chunks": list(schema.chunks),
        "dtype": dtypes.pack(schema.dtype),
        "fill": np.asarray(schema.fill, schema.dtype).tobytes().hex(),
        "attrs": dict(schema.attrs),
    }
    return json.pack(values, where)


@dataclass(frozen=True, slots=True)
class ToyMap:
    """The chunks of the one array of a store."""

    store: Store
    schema: ArraySchema
    document: bytes
    path: str = ""
    template: ClassVar[KeyTemplate] = KeyTemplate("chunk-", "-")

    @property
    def documents(self) -> Documents:
        """The one document."""
        return {DOCUMENT: self.document}

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "ToyMap":
        """Return the map of the same array as `store` has it now."""
        return _open(store)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[ToyMap, Commit]":
        """Return the map of another shape."""
        schema = self.schema.resized(shape)
        after = replace(self, schema=schema, document=pack(schema))
        old, new = self.schema.grid.counts, after.schema.grid.counts
        commit = Commit(
            prepare=keys.removals(self.store, self.template, new, old),
            publish=(Put(DOCUMENT, after.document),),
            cleanup=keys.removals(self.store, self.template, old, new),
        )
        return after, commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[ToyMap, Commit]":
        """Return the map with other attributes."""
        schema = self.schema.described(attrs)
        after = replace(self, schema=schema, document=pack(schema))
        return after, Commit(publish=(Put(DOCUMENT, after.document),))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        chunks = keys.all_removals(self.store, self.template, self.schema.grid.counts)
        return Commit(publish=(Delete(DOCUMENT), *chunks))


class ToyFormat:
    """One array in a store."""

    name: ClassVar[str] = "toy"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ()

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a store."""
        if path:
            raise NotFoundError(f"{store.location}: no {path!r}")
        return ArrayNode(_open(store))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        """Return the array that the document describes."""
        data = documents.get(DOCUMENT)
        return None if data is None else ArrayNode(_parsed(store, data))

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return how an array will be stored."""
        if request.stages or request.dtype.hasobject or dtypes.is_variable(request.dtype):
            raise UnsupportedError("toy: only plain items without codecs are stored")
        chunks = request.chunks or auto_chunks(request.shape, request.dtype.itemsize)
        return ArraySchema(
            request.shape, request.dtype, chunks, CodecChain(), request.fill, attrs=request.attrs
        )

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes it."""
        if path:
            raise UnsupportedError(f"toy: holds one array alone, not one at {path!r}")
        chunks = ToyMap(store, schema, pack(schema))
        strays = keys.stray_removals(store, chunks.template, schema.grid.counts)
        return ArrayNode(chunks), Commit(strays, (Put(DOCUMENT, chunks.document),))


def _open(store: Store) -> ToyMap:
    (data,) = store.read([Extent(DOCUMENT, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {DOCUMENT}")
    return _parsed(store, data)


def _parsed(store: Store, data: bytes) -> ToyMap:
    try:
        return ToyMap(store, parse(data), data)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise

"""A format of flat arrays as small as it can be: a file with a head, then all chunks.

The head of 64 KiB is the magic and a document, filled up with spaces. Chunks follow each other
without gaps, so that they move with every change, and every commit writes the file anew.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.checksums import DIGEST_BYTES, Digest
from ingot.codecs.codec import CodecChain, Compressor, Raw
from ingot.codecs.compressors import Blosc
from ingot.errors import CorruptionError, FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.fields import INT64, FieldReader
from ingot.formats import json
from ingot.formats.addresses import ChunkTable
from ingot.formats.format import ArrayNode, Coords, Documents, Kind, Locations, Request
from ingot.formats.registry import FormatEntry
from ingot.schema import ArraySchema, Flat
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = ["ENTRY", "FlatToyFormat", "FlatToyMap", "is_flat_toy"]

MAGIC: Final = b"toyflat\n"
HEAD: Final = 1 << 16

ENTRY: Final = FormatEntry(
    "toyflat",
    "tests.contracts.toy.flat:FlatToyFormat",
    Kind.ARRAY,
    suffixes=(".toyflat",),
    head=8,
    matches="tests.contracts.toy.flat:is_flat_toy",
)


def is_flat_toy(head: bytes, tail: bytes) -> bool:
    """Return whether a file begins with the magic."""
    return head.startswith(MAGIC)


@dataclass(frozen=True, slots=True)
class FlatToyMap:
    """The chunks of the one array of a file; `sizes` are read when they are needed."""

    store: Store
    schema: ArraySchema
    path: str
    sizes: tuple[int, ...] | None
    """The stored sizes of the chunks in the committed state."""
    template: ClassVar[None] = None

    @property
    def documents(self) -> Documents:
        """No key is a document alone: the chunks lie in the same file."""
        return {}

    def addresses(self) -> ChunkTable:
        """Return where all chunks lie."""
        sizes = np.array(self._sizes(), np.int64)
        starts = HEAD + np.cumsum(sizes) - sizes
        table = ChunkTable((self.path,), 0 * sizes, starts, sizes, 0 * sizes)
        table.check([self.store.size(self.path) or 0], {0: range(HEAD)})
        return table

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie."""
        return self.addresses().locate(coords[:, 0], self.schema.fill)

    def reopened(self, store: Store) -> "FlatToyMap":
        """Return the map of the same array as `store` has it now."""
        return _open(store, self.path)

    def relocated(self) -> "FlatToyMap":
        """Return the map after the commit that was made from this one."""
        return replace(self, sizes=None)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks: a new file."""
        table = self.addresses() if self._sizes() else None
        images: list[bytes] = []
        for number in range(self.schema.payload.grid.chunk_count):
            data = encoded.get((number,))
            if data is None:
                assert table is not None, "all chunks of a new file are staged"
                extent = Extent(self.path, int(table.start[number]), int(table.length[number]))
                data = self.store.read([extent])[0]
                assert data is not None
            images.append(data)
        head = _pack(self.schema, [len(image) for image in images])
        return Commit(publish=(Put(self.path, head + b"".join(images)),))

    def resized(self, shape: tuple[int, ...]) -> "tuple[FlatToyMap, Commit]":
        """Return the map of another shape; `stage` writes the file."""
        return replace(self, schema=self.schema.resized(shape), sizes=self._sizes()), Commit()

    def described(self, attrs: Mapping[str, Any]) -> "tuple[FlatToyMap, Commit]":
        """Return the map with other attributes."""
        after = replace(self, schema=self.schema.described(attrs))
        return after, after.stage({})

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        return Commit(publish=(Delete(self.path),))

    def _sizes(self) -> tuple[int, ...]:
        if self.sizes is not None:
            return self.sizes
        found = _open(self.store, self.path).sizes
        assert found is not None
        return found


class FlatToyFormat:
    """One flat array in a file."""

    name: ClassVar[str] = "toyflat"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ("order", "chunk_bytes", "checksum")

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a file; `path` is its key."""
        return ArrayNode(_open(store, path))

    def design(
        self,
        request: Request,
        *,
        order: str = "C",
        chunk_bytes: int | None = None,
        checksum: str = "adler32",
    ) -> ArraySchema:
        """Return how an array will be stored."""
        if request.dtype.hasobject or dtypes.is_variable(request.dtype) or request.stages:
            raise UnsupportedError("toyflat: only plain items are stored, by its own codec")
        if chunk_bytes is None:
            items = math.prod(request.chunks) if request.chunks else 1000
            chunk_bytes = max(1, items * request.dtype.itemsize)
        values = request.shape, request.dtype, request.fill
        return _schema(*values, order, request.attrs, chunk_bytes, checksum)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes it."""
        if not path:
            raise UnsupportedError("toyflat: a file has a name")
        # A file without chunks, which the first `stage` replaces.
        sizes = () if schema.payload.grid.chunk_count == 0 else None
        made = _pack(schema.resized((0,) * len(schema.shape)) if sizes is None else schema, ())
        return ArrayNode(FlatToyMap(store, schema, path, ())), Commit(publish=(Put(path, made),))


def _schema(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    fill: Any,
    order: str,
    attrs: Mapping[str, Any],
    chunk_bytes: int,
    checksum: str,
) -> ArraySchema:
    size = dtype.itemsize if dtype.itemsize < 256 else 1
    stages: tuple[Compressor, ...] = (Blosc("lz4", 5, 1, 0, size),)
    if checksum != "none":
        stages = (*stages, Digest(checksum))
    chain, flat = CodecChain((), Raw(), stages), Flat(chunk_bytes)
    return ArraySchema(shape, dtype, (), chain, fill, order=order, attrs=attrs, flat=flat)


def _open(store: Store, path: str) -> FlatToyMap:
    head = store.read([Extent(path, 0, HEAD)])[0] if path else None
    if head is None:
        raise NotFoundError(f"{store.location}: no {path or 'file'}")
    try:
        if len(head) < HEAD or not head.startswith(MAGIC):
            raise FormatError(f"{path}: no head of {HEAD} bytes")
        schema, sizes = _parse(head[len(MAGIC) :].rstrip(b" "))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    return FlatToyMap(store, schema, path, sizes)


def _parse(data: bytes) -> tuple[ArraySchema, tuple[int, ...]]:
    fields = FieldReader("toyflat", json.parse_object(data, "toyflat"))
    shape = fields.integers("shape", low=0)
    dtype = dtypes.parse(fields.value("dtype"), "toyflat: dtype")
    fill = bytes.fromhex(fields.text("fill"))
    if len(fill) != dtype.itemsize or dtype.hasobject:
        raise FormatError("toyflat: dtype and fill do not fit together")
    if math.prod((*shape, dtype.itemsize)) > INT64:
        raise FormatError(f"toyflat: shape {list(shape)} has more bytes than 64 bits count")
    schema = _schema(
        shape,
        dtype,
        np.frombuffer(fill, dtype)[0],
        fields.choice("order", ("C", "F")),
        fields.mapping("attrs") or {},
        fields.integer("chunk_bytes", low=1),
        fields.choice("checksum", tuple(DIGEST_BYTES)),
    )
    sizes = fields.integers("sizes", low=0, most=HEAD)
    if len(sizes) != schema.payload.grid.chunk_count:
        raise CorruptionError(f"toyflat: sizes of {len(sizes)} chunks")
    return schema, sizes


def _pack(schema: ArraySchema, sizes: Any) -> bytes:
    assert schema.flat is not None
    stages = schema.chain.compressors
    values = {
        "shape": list(schema.shape),
        "dtype": dtypes.pack(schema.dtype),
        "fill": np.asarray(schema.fill, schema.dtype).tobytes().hex(),
        "order": schema.order,
        "chunk_bytes": schema.flat.chunk_bytes,
        "checksum": stages[1].appended if len(stages) > 1 else "none",
        "attrs": dict(schema.attrs),
        "sizes": list(sizes),
    }
    head = MAGIC + json.pack(values, "toyflat")
    if len(head) > HEAD:
        raise UnsupportedError(f"toyflat: a head of more than {HEAD} bytes")
    return head.ljust(HEAD)

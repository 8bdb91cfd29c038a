"""Zarr version 3 in a store: a ``zarr.json`` for every node, and a key for every chunk.

Knows where documents and chunks lie and what a new array is made of. Refuses to know what a
document says: `ingot.formats.zarr.v3_metadata` does.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.byteorder import byte_order, in_order
from ingot.codecs.checksums import Checksum, Crc32c
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage, assemble
from ingot.codecs.compressors import Blosc
from ingot.codecs.filters import Transpose
from ingot.codecs.text import VlenUtf8
from ingot.dtypes import DType
from ingot.errors import ExistsError, FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.formats import json
from ingot.formats.format import (
    ArrayNode,
    Coords,
    GroupNode,
    KeyTemplate,
    Kind,
    Locations,
    Request,
    Signature,
)
from ingot.formats.keys import all_removals, removals, stage, stray_removals
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import (
    v3_codecs as zarr3_codecs,
)
from ingot.formats.zarr import (
    v3_consolidated as zarr3_copies,
)
from ingot.formats.zarr import (
    v3_metadata as zarr3_document,
)
from ingot.formats.zarr import (
    v3_types as zarr3_types,
)
from ingot.formats.zarr.shards import inner_map
from ingot.formats.zarr.v3_metadata import (
    NODE,
    ArrayMetadata,
    GroupMetadata,
    KeyEncoding,
    Metadata,
)
from ingot.formats.zarr.v3_sharding import sharded
from ingot.grid import ChunkGrid, auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Delete, Extent, Feature, Put, Store

__all__ = ["Zarr3Format", "Zarr3Map", "checked_path", "default_stages", "documented"]

_ORDERS: Final = ("C", "F")

# Inside a shard a chunk costs little, so that smaller ones pay.
_SMALL: Final = 2**18


def default_stages(dtype: DType) -> tuple[Stage, ...]:
    """Return the codecs of a new array for which none were chosen, but for the checksum.

    >>> default_stages(np.dtype("<f4"))
    (Blosc(cname='lz4', clevel=5, shuffle=1, blocksize=0, typesize=1),)
    """
    if dtype == dtypes.TEXT:
        return (VlenUtf8(), Blosc())
    if dtypes.is_variable(dtype):
        raise UnsupportedError(f"{dtype}: say by a codec what the objects are")
    return (Blosc(),)


@dataclass(frozen=True, slots=True)
class Zarr3Map:
    """The chunks of one array: each under a key of its own, absent when all fill.

    Where the array is in shards, they are these chunks.
    """

    store: Store
    metadata: ArrayMetadata
    path: str = ""

    @property
    def schema(self) -> ArraySchema:
        """What the array is, each of its chunks being the value of a key."""
        return self.metadata.schema

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates."""
        template = self.metadata.template
        if not self.path:
            return template
        return replace(template, prefix=prefix(self.path) + template.prefix)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: every one is a whole key."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "Zarr3Map":
        """Return the map of the same array as `store` has it now."""
        metadata = _read(store, self.path)
        if isinstance(metadata, GroupMetadata):
            raise NotFoundError(f"{store.location}: {self.path!r} has become a group")
        return replace(self, store=store, metadata=metadata)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        return stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[Zarr3Map, Commit]":
        """Return the map of another shape; chunks that leave or enter the grid are removed.

        Chunks beyond the old grid are what an earlier, larger array has left; were they not
        removed before the array grows, they would come back to life.
        """
        if len(shape) != len(self.schema.shape):
            raise ValueError(f"shape {shape} has not {len(self.schema.shape)} axes")
        metadata = self.metadata.resized(shape)
        old, new = self.schema.grid.counts, metadata.schema.grid.counts
        template = self.template
        commit = Commit(
            prepare=removals(self.store, template, new, old),
            publish=self._documented(metadata),
            cleanup=removals(self.store, template, old, new),
        )
        return Zarr3Map(self.store, metadata, self.path), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[Zarr3Map, Commit]":
        """Return the map with other attributes."""
        metadata = self.metadata.described(attrs)
        return replace(self, metadata=metadata), Commit(publish=self._documented(metadata))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        chunks = all_removals(self.store, self.template, len(self.schema.shape))
        followed = zarr3_copies.followed(self.store, above(self.path), {}, gone=self.path)
        return Commit(publish=(Delete(prefix(self.path) + NODE), *followed, *chunks))

    def _documented(self, metadata: ArrayMetadata) -> tuple[Put, ...]:
        """Return what stores a document, and keeps the copies of it true."""
        changes = {self.path: metadata.document}
        followed = zarr3_copies.followed(self.store, above(self.path), changes)
        return Put(prefix(self.path) + NODE, zarr3_document.pack(metadata)), *followed


class Zarr3Format:
    """Zarr version 3 in a store; every node has a path, that of the first one is empty."""

    name: ClassVar[str] = "zarr3"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.GROUP
    signature: ClassVar[Signature] = Signature(markers=(NODE,))
    documents: ClassVar[tuple[str, ...]] = (NODE,)
    settings: ClassVar[tuple[str, ...]] = (
        "order",
        "checksum",
        "shards",
        "dimension_names",
        "chunk_key_encoding",
        "dimension_separator",
    )

    def open(self, store: Store, path: str = "") -> ArrayNode | GroupNode:
        """Return the array or group at `path`."""
        path = normalised(path)
        return _node(store, path, _read(store, path))

    def from_documents(
        self, store: Store, path: str, found: Sequence[bytes | None]
    ) -> ArrayNode | GroupNode | None:
        """Return the array or group that a document tells."""
        [data] = found
        return None if data is None else _node(store, path, _parse(store, path, data))

    def design(
        self,
        request: Request,
        *,
        order: str = "C",
        checksum: bool = True,
        dimension_names: Sequence[str | None] | None = None,
        shards: int | Sequence[int] | Literal["auto"] | None = None,
        **layout: Any,
    ) -> ArraySchema:
        """Return how an array will lie here; without chunks, near to cubes of 1 MiB.

        A `checksum` of every chunk (CRC-32C) stands behind its codecs, unless one of them is a
        checksum already. With `shards`, the shape of one or "auto", many chunks are stored
        together; they are smaller then, near to cubes of 256 KiB.
        """
        if order not in _ORDERS:
            raise ValueError(f"order is {order!r}, not 'C' or 'F'")
        dtype = _held(request.dtype)
        fill = request.fill if dtypes.is_variable(dtype) else np.asarray(request.fill, dtype)[()]
        chunks = request.chunks or _chunks(request.shape, dtype.itemsize, shards)
        grid = ChunkGrid(request.shape, chunks, padded=True)
        stages = default_stages(dtype) if request.stages is None else request.stages
        chain = _built(stages, ChunkSpec(grid.chunk, dtype, fill), order, checksum=checksum)
        lengths = grid.chunk
        if shards is not None:
            lengths, chain = sharded(shards, grid, chain, dtype.itemsize)
        return ArraySchema(
            grid.shape,
            dtype,
            lengths,
            chain,
            fill,
            order,
            request.attrs,
            dimension_names=_names(dimension_names, len(grid.shape)),
        )

    def create(
        self,
        store: Store,
        schema: ArraySchema,
        path: str = "",
        *,
        chunk_key_encoding: Literal["default", "v2"] = "default",
        dimension_separator: str | None = None,
        **layout: Any,
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes it and the groups above it.

        What is returned is what opening will find: the metadata is read back from its bytes.
        """
        path = checked_path(normalised(path))
        encoding = _encoding(chunk_key_encoding, dimension_separator)
        data = zarr3_document.pack(ArrayMetadata.of(schema, encoding))
        metadata = _array(zarr3_document.parse(data))
        chunks = Zarr3Map(store, metadata, path)
        # What an array that was here before left behind, if it was not removed to the end.
        left = stray_removals(store, chunks.template, len(schema.shape))
        return ArrayNode(inner_map(chunks)), Commit(left, documented(store, path, metadata, data))


def documented(
    store: Store, path: str, metadata: Metadata, data: bytes | None = None
) -> tuple[Put, ...]:
    """Return what makes a node, and the groups above it, all at once; `data` is its document."""
    made: dict[str, Metadata] = {}
    for group in above(path):
        try:
            found = _read(store, group)
        except NotFoundError:
            made[group] = GroupMetadata()
            continue
        if not isinstance(found, GroupMetadata):
            raise ExistsError(f"{store.location}: {group!r} is an array, nothing lies below it")
    puts = [Put(prefix(place) + NODE, zarr3_document.pack(each)) for place, each in made.items()]
    puts.append(Put(prefix(path) + NODE, zarr3_document.pack(metadata) if data is None else data))
    made[path] = metadata
    changes = {place: each.document for place, each in made.items()}
    followed = zarr3_copies.followed(store, above(path), changes, gone=path if path else None)
    return (*puts, *followed)


def checked_path(path: str) -> str:
    """Return a path for a new node, or complain about a name that no node may have.

    >>> checked_path("a/__b")
    Traceback (most recent call last):
    ValueError: '__b' cannot be the name of a node
    """
    for name in path.split("/") if path else ():
        if not name.strip(".") or name.startswith("__") or name == NODE:
            raise ValueError(f"{name!r} cannot be the name of a node")
    return path


def _read(store: Store, path: str) -> Metadata:
    """Return what the document at `path` says."""
    key = prefix(path) + NODE
    # One byte more than allowed tells that a document is too long without reading all of it.
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {key}")
    return _parse(store, path, data)


def _parse(store: Store, path: str, data: bytes) -> Metadata:
    try:
        return zarr3_document.parse(data, prefix(path) + NODE)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _node(store: Store, path: str, metadata: Metadata) -> ArrayNode | GroupNode:
    if isinstance(metadata, GroupMetadata):
        return GroupNode(path, tuple(_children(store, path)), metadata.attrs)
    return ArrayNode(inner_map(Zarr3Map(store, metadata, path)))


def _array(metadata: Metadata) -> ArrayMetadata:
    assert isinstance(metadata, ArrayMetadata)
    return metadata


def _held(dtype: DType) -> DType:
    """Return the type in which a new array is held: without gaps, in one byte order."""
    dtype = zarr3_types.normalised(dtype)
    return in_order(dtype, "little") if byte_order(dtype) == "mixed" else dtype


def _chunks(
    shape: tuple[int, ...], itemsize: int, shards: int | Sequence[int] | str | None
) -> tuple[int, ...]:
    """Return the shape of chunks that were left to the format; they divide shards."""
    growing = 0 in shape
    if shards is None:
        return auto_chunks(shape, itemsize, growing=growing)
    if isinstance(shards, str):
        return auto_chunks(shape, itemsize, target=_SMALL, least=_SMALL // 4, growing=growing)
    lengths = (shards,) if isinstance(shards, int | np.integer) else tuple(shards)
    shard = ChunkGrid(shape, lengths, padded=True).chunk
    return tuple(
        map(_divisor, shard, auto_chunks(shard, itemsize, target=_SMALL, least=_SMALL // 4))
    )


def _divisor(whole: int, most: int) -> int:
    """Return the largest divisor that is not above `most`."""
    return next(part for part in range(min(most, whole), 0, -1) if whole % part == 0)


def _built(stages: Sequence[Stage], spec: ChunkSpec, order: str, *, checksum: bool) -> CodecChain:
    """Return the chain of stages, in the order of encoding, for items stored in `order`."""
    first = [Transpose()] if order == "F" and len(spec.shape) > 1 else []
    last: list[Stage] = []
    if checksum and not any(isinstance(stage, Checksum) for stage in stages):
        last.append(Crc32c())
    try:
        chain = zarr3_codecs.serialized(assemble([*first, *stages, *last], spec), spec)
        # Names and configurations that nothing here could read back are found out now.
        return zarr3_codecs.parse_chain(
            zarr3_codecs.pack_chain(chain, len(spec.shape)), spec, "codec"
        )
    except (FormatError, UnsupportedError) as error:
        text = str(error)
        raise type(error)(text if text.startswith("codec") else f"codec: {text}") from None


def _names(names: Sequence[str | None] | None, ndim: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(name is None or isinstance(name, str) for name in names):
        raise ValueError(f"dimension_names is {names!r}, not a sequence of strings and None")
    if len(names) != ndim:
        raise ValueError(f"dimension_names has {len(names)} names, the array {ndim} axes")
    return tuple(names)


def _encoding(name: str, separator: str | None) -> KeyEncoding:
    if name not in ("default", "v2"):
        raise ValueError(f"chunk_key_encoding is {name!r}, not 'default' or 'v2'")
    if separator not in (None, ".", "/"):
        raise ValueError(f"dimension_separator is {separator!r}, not '.' or '/'")
    if name == "v2":
        return KeyEncoding("v2", separator or ".")
    return KeyEncoding("default", separator or "/")


def _children(store: Store, path: str) -> Iterator[str]:
    if Feature.LIST in store.features:
        folders = [name[:-1] for name in store.names(path) if name.endswith("/")]
    else:
        folders = list(zarr3_copies.children(store, path))
    found = store.read([Extent(f"{prefix(path)}{name}/{NODE}", 0, 1) for name in folders])
    for name, marker in zip(folders, found, strict=True):
        if marker is not None:
            yield name

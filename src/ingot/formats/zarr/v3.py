"""Zarr version 3 in a store: a ``zarr.json`` for every node, and a key for every chunk.

This module opens nodes, designs and creates arrays, and returns the commits that change them.
Documents are parsed and packed by `ingot.formats.zarr.v3_metadata`, groups are created and changed
by `ingot.formats.zarr.v3_groups`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.byteorder import byte_order, in_order
from ingot.codecs.checksums import Checksum, Crc32c
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage, assemble
from ingot.codecs.filters import Transpose
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import json, keys, manifest
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    GroupNode,
    KeyTemplate,
    Kind,
    Locations,
    Request,
)
from ingot.formats.paths import above, check_new, normalised, prefix
from ingot.formats.zarr import v3_codecs, v3_consolidated, v3_metadata, v3_types
from ingot.formats.zarr.defaults import check_stages, default_stages
from ingot.formats.zarr.shards import inner_map
from ingot.formats.zarr.v3_metadata import (
    MANIFEST,
    NODE,
    KeyEncoding,
    V3ArrayMetadata,
    V3GroupMetadata,
    V3Metadata,
)
from ingot.formats.zarr.v3_sharding import design_shards
from ingot.grid import ChunkGrid, auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.documents import documents_after
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = [
    "Zarr3Format",
    "Zarr3Map",
    "check_node_path",
    "open_all",
    "stage_node",
]

_ORDERS: Final = ("C", "F")

# Inside a shard a chunk costs little, so that smaller chunks pay off.
_SMALL: Final = 2**18


@dataclass(frozen=True, slots=True)
class Zarr3Map:
    """The chunks of one array, each under its own key; a chunk of nothing but fill is absent.

    In an array with shards, the shards are these chunks.
    """

    store: Store
    metadata: V3ArrayMetadata
    path: str = ""
    documents: Documents = field(default_factory=dict, compare=False, repr=False)

    @property
    def schema(self) -> ArraySchema:
        """What the array is; each of its chunks is the value of one key."""
        return self.metadata.schema

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates."""
        template = self.metadata.template
        if not self.path:
            return template
        return replace(template, prefix=prefix(self.path) + template.prefix)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: each is the whole value of a key."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "Zarr3Map":
        """Return the map of the same array in its current state in `store`."""
        data = _read(store, self.path)
        metadata = _parse(store, self.path, data)
        if isinstance(metadata, V3GroupMetadata):
            raise NotFoundError(f"{store.location}: {self.path!r} has become a group")
        return Zarr3Map(store, metadata, self.path, {prefix(self.path) + NODE: data})

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[Zarr3Map, Commit]":
        """Return the map of another shape; chunks that leave or enter the grid are removed.

        Chunks beyond the old grid are leftovers of an earlier, larger array. They are removed
        before the array grows, so that they do not become part of it.
        """
        if len(shape) != len(self.schema.shape):
            raise ArgumentError(f"shape {shape}: the array has {len(self.schema.shape)} axes")
        metadata = self.metadata.resized(shape)
        old, new = self.schema.grid.counts, metadata.schema.grid.counts
        template = self.template
        commit = Commit(
            prepare=keys.removals(self.store, template, new, old),
            publish=self._document_edits(metadata),
            cleanup=keys.removals(self.store, template, old, new),
        )
        documents = documents_after(self.documents, commit)
        return Zarr3Map(self.store, metadata, self.path, documents), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[Zarr3Map, Commit]":
        """Return the map with other attributes."""
        metadata = self.metadata.described(attrs)
        commit = Commit(publish=self._document_edits(metadata))
        documents = documents_after(self.documents, commit)
        return replace(self, metadata=metadata, documents=documents), commit

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields of the document that Zarr does not define."""
        return self.metadata.unknown_fields

    def annotated(self, fields: Mapping[str, Any]) -> Commit:
        """Return the commit that stores the document with fields that Zarr does not define."""
        document = {**self.metadata.document, **fields}
        return Commit(publish=self._document_edits(replace(self.metadata, document=document)))

    @property
    def has_manifest(self) -> bool:
        """Whether the array has a manifest of its chunks, or of its shards."""
        return MANIFEST in self.metadata.document

    @property
    def manifest_key(self) -> str:
        """The key of the manifest, whether there is one or not."""
        return prefix(self.path) + manifest.NAME

    def named_chunks(self, rows: range | None = None) -> NDArray[np.int64]:
        """Return the coordinates of the chunks that the manifest names, a row for each."""
        counts = self.schema.grid.counts
        return manifest.read(self.store, self.manifest_key, counts).coords(rows)

    def recorded(self, commit: Commit) -> Commit:
        """Return a commit that leads to this map, and that also keeps the manifest up to date."""
        node, grid = prefix(self.path) + NODE, self.schema.grid
        return manifest.recorded(self.store, self.manifest_key, node, self.template, grid, commit)

    def naming(self, stored: Iterable[Coords]) -> Put:
        """Return the edit that makes a manifest which names some chunks."""
        made = manifest.Manifest.of(self.schema.grid.counts, stored)
        return Put(self.manifest_key, made.pack(self.manifest_key))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        chunks = keys.all_removals(self.store, self.template, self.schema.grid.counts)
        updates = v3_consolidated.updates(self.store, above(self.path), {}, removed=self.path)
        names = (NODE, manifest.NAME) if self.has_manifest else (NODE,)
        documents = (Delete(prefix(self.path) + name) for name in names)
        return Commit(publish=(*documents, *updates, *chunks))

    def _document_edits(self, metadata: V3ArrayMetadata) -> tuple[Put, ...]:
        """Return the edits that store a document and update the consolidated metadata."""
        changes = {self.path: metadata.document}
        updates = v3_consolidated.updates(self.store, above(self.path), changes)
        return Put(prefix(self.path) + NODE, v3_metadata.pack(metadata)), *updates


class Zarr3Format:
    """Zarr version 3 in a store; every node has a path, the root the empty one."""

    name: ClassVar[str] = "zarr3"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.GROUP
    settings: ClassVar[tuple[str, ...]] = (
        "order",
        "checksum",
        "shards",
        "dimension_names",
        "chunk_key_encoding",
        "dimension_separator",
        "manifest",
    )

    def open(self, store: Store, path: str = "") -> ArrayNode | GroupNode:
        """Return the array or group at `path`."""
        path = normalised(path)
        return _node(store, path, _read(store, path))

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | GroupNode | None:
        """Return the array or group that a document describes."""
        data = documents.get(NODE)
        return None if data is None else _node(store, path, data)

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
        """Return the layout of a new array; the default chunks are near to cubes of 1 MiB.

        `checksum` appends a CRC-32C of every chunk to the codecs, unless one of them is a checksum
        already. With `shards` (a shape, or "auto"), many chunks are stored together; the default
        chunks are then near to cubes of 256 KiB.
        """
        if order not in _ORDERS:
            raise ArgumentError(f"order is {order!r}, not 'C' or 'F'")
        dtype = _stored_dtype(request.dtype)
        fill = request.fill if dtypes.is_variable(dtype) else np.asarray(request.fill, dtype)[()]
        chunks = request.chunks or _chunks(request.shape, dtype.itemsize, shards)
        grid = ChunkGrid(request.shape, chunks, padded=True)
        stages = request.stages
        if stages is None:
            stages = default_stages(dtype, remote=request.remote)
        check_stages(stages)
        chain = _build_chain(stages, ChunkSpec(grid.chunk, dtype, fill), order, checksum=checksum)
        lengths = grid.chunk
        if shards is not None:
            lengths, chain = design_shards(shards, grid, chain, dtype.itemsize)
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
        manifest: bool = False,
        **layout: Any,
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that creates it and the groups above it.

        The array is the one that opening will return: its metadata is parsed from the new document.
        With `manifest` there is a document that names the stored chunks; a new one names none.
        """
        path = normalised(path)
        check_node_path(path)
        encoding = _encoding(chunk_key_encoding, dimension_separator)
        data = v3_metadata.pack(V3ArrayMetadata.of(schema, encoding, has_manifest=manifest))
        metadata = _array(v3_metadata.parse(data))
        chunks = Zarr3Map(store, metadata, path, {prefix(path) + NODE: data})
        # An earlier array at this path may have left chunks, if its removal was interrupted.
        strays = keys.stray_removals(store, chunks.template, schema.grid.counts)
        commit = stage_node(store, path, metadata, data)
        named = (chunks.naming(()),) if manifest else ()
        publish = (*named, *commit.publish)
        return ArrayNode(inner_map(chunks)), replace(commit, prepare=strays, publish=publish)


def stage_node(store: Store, path: str, metadata: V3Metadata, data: bytes | None = None) -> Commit:
    """Return the commit that stores a node and the missing groups above it, all at once.

    `data` is the packed document of the node, where the caller has it.
    """
    made: dict[str, V3Metadata] = {}
    groups = list(above(path))
    for group, node in zip(groups, open_all(store, groups), strict=True):
        if node is None:
            made[group] = V3GroupMetadata()
        elif not isinstance(node, GroupNode):
            raise ExistsError(f"{store.location}: {group!r} is an array, nothing lies below it")
    puts = [Put(prefix(place) + NODE, v3_metadata.pack(each)) for place, each in made.items()]
    puts.append(Put(prefix(path) + NODE, v3_metadata.pack(metadata) if data is None else data))
    made[path] = metadata
    changes = {place: each.document for place, each in made.items()}
    updates = v3_consolidated.updates(store, above(path), changes, removed=path if path else None)
    return Commit(publish=(*puts, *updates))


def check_node_path(path: str) -> None:
    """Raise `ValueError` for a path of a new node with a name that the specification forbids.

    >>> check_node_path("a/__b")
    Traceback (most recent call last):
    ingot.errors.ArgumentError: '__b' cannot be the name of a node
    """
    for name in path.split("/") if path else ():
        if not name.strip(".") or name.startswith("__") or name == NODE:
            raise ArgumentError(f"{name!r} cannot be the name of a node")
    check_new(path)


def _read(store: Store, path: str) -> bytes:
    """Return the document at `path`."""
    key = prefix(path) + NODE
    # One byte more than allowed shows that a document is too long without reading all of it.
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        raise NotFoundError(f"{store.location}: no {key}")
    return data


def open_all(store: Store, paths: Sequence[str]) -> list[ArrayNode | GroupNode | None]:
    """Return the nodes at some paths, by one read; None where there is none."""
    keys_of = [prefix(path) + NODE for path in paths]
    found = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys_of])
    return [
        None if data is None else _node(store, path, data)
        for path, data in zip(paths, found, strict=True)
    ]


def _parse(store: Store, path: str, data: bytes) -> V3Metadata:
    try:
        return v3_metadata.parse(data, prefix(path) + NODE)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise


def _node(store: Store, path: str, data: bytes) -> ArrayNode | GroupNode:
    metadata, documents = _parse(store, path, data), {prefix(path) + NODE: data}
    if isinstance(metadata, V3GroupMetadata):
        return GroupNode(path, metadata.attrs, documents)
    return ArrayNode(inner_map(Zarr3Map(store, metadata, path, documents)))


def _array(metadata: V3Metadata) -> V3ArrayMetadata:
    assert isinstance(metadata, V3ArrayMetadata)
    return metadata


def _stored_dtype(dtype: DType) -> DType:
    """Return the dtype of a new array: that of the request, without gaps, in one byte order."""
    dtype = v3_types.normalised(dtype)
    return in_order(dtype, "little") if byte_order(dtype) == "mixed" else dtype


def _chunks(
    shape: tuple[int, ...], itemsize: int, shards: int | Sequence[int] | str | None
) -> tuple[int, ...]:
    """Return the default shape of chunks, which divides the shards."""
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


def _build_chain(
    stages: Sequence[Stage], spec: ChunkSpec, order: str, *, checksum: bool
) -> CodecChain:
    """Return the chain of stages, in the order of encoding, for items stored in `order`."""
    first = [Transpose()] if order == "F" and len(spec.shape) > 1 else []
    last: list[Stage] = []
    if checksum and not any(isinstance(stage, Checksum) for stage in stages):
        last.append(Crc32c())
    try:
        chain = v3_codecs.serialized(assemble([*first, *stages, *last], spec), spec)
        # Parsing the packed chain refuses codecs that could not be read back.
        return v3_codecs.parse_chain(v3_codecs.pack_chain(chain, len(spec.shape)), spec, "codec")
    except (FormatError, UnsupportedError) as error:
        text = str(error)
        raise type(error)(text if text.startswith("codec") else f"codec: {text}") from None


def _names(names: Sequence[str | None] | None, ndim: int) -> tuple[str | None, ...] | None:
    if names is None:
        return None
    if isinstance(names, str) or not all(name is None or isinstance(name, str) for name in names):
        raise ArgumentError(f"dimension_names is {names!r}, not a sequence of strings and None")
    if len(names) != ndim:
        raise ArgumentError(f"dimension_names has {len(names)} names, the array {ndim} axes")
    return tuple(names)


def _encoding(name: str, separator: str | None) -> KeyEncoding:
    if name not in ("default", "v2"):
        raise ArgumentError(f"chunk_key_encoding is {name!r}, not 'default' or 'v2'")
    if separator not in (None, ".", "/"):
        raise ArgumentError(f"dimension_separator is {separator!r}, not '.' or '/'")
    if name == "v2":
        return KeyEncoding("v2", separator or ".")
    return KeyEncoding("default", separator or "/")

"""Zarr version 2: ``.zarray``, ``.zgroup`` and ``.zattrs``, and a key for every chunk.

Knows the three documents, as functions from bytes to values and back, and the names of chunks.
Refuses to know codecs by name: the registry does. What the documents say beyond what is understood
is kept and written again.

Object arrays (``"|O"``) are held as what their codec says they are: text as `ingot.dtypes.TEXT`,
everything else as Python objects. Pickled objects are refused.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import (
    ChunkSpec,
    CodecChain,
    Filter,
    Raw,
    Serializer,
    Stage,
    assemble,
    parse_stage,
)
from ingot.codecs.compressors import Blosc
from ingot.codecs.filters import Transpose
from ingot.codecs.text import VlenArray, VlenBytes, VlenUtf8
from ingot.dtypes import DType
from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import INT64, FieldReader, Problems
from ingot.formats import json, keys
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
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import fills, v2_consolidated
from ingot.grid import ChunkGrid, auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Delete, Extent, Feature, Put, Store

__all__ = [
    "ARRAY",
    "ATTRS",
    "GROUP",
    "ArrayMetadata",
    "Zarr2Format",
    "Zarr2Map",
    "build_chain",
    "default_stages",
    "documented",
    "missing_groups",
    "pack_array",
    "pack_attrs",
    "pack_group",
    "parse_array",
    "parse_attrs",
    "parse_group",
]

ARRAY: Final = ".zarray"
GROUP: Final = ".zgroup"
ATTRS: Final = ".zattrs"

_VERSION: Final = 2
_SEPARATORS: Final = (".", "/")
_MOST_FILTERS: Final = 32
_GROUP: Final[Mapping[str, Any]] = {"zarr_format": _VERSION}
_RESERVED: Final = (ARRAY, GROUP, ATTRS, v2_consolidated.COPIES)


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """What a ``.zarray`` says: the array, how its keys are joined, and the document itself."""

    schema: ArraySchema
    separator: str
    document: Mapping[str, Any]

    @classmethod
    def of(cls, schema: ArraySchema, separator: str = ".") -> "ArrayMetadata":
        """Return the metadata of a new array."""
        filters, compressor = _spelled(schema)
        values: dict[str, Any] = {
            "zarr_format": _VERSION,
            "shape": list(schema.shape),
            "chunks": list(schema.chunks),
            "dtype": dtypes.pack(schema.dtype),
            "compressor": compressor,
            "fill_value": _pack_fill(schema),
            "order": schema.order,
            "filters": filters or None,
        }
        if separator != ".":
            values["dimension_separator"] = separator
        return cls(schema, separator, values)

    def resized(self, shape: tuple[int, ...]) -> "ArrayMetadata":
        """Return the metadata of the same array in another shape."""
        values = {**self.document, "shape": list(shape)}
        return replace(self, schema=self.schema.resized(shape), document=values)


def parse_array(
    data: bytes, attrs: Mapping[str, Any] | None = None, where: str = ARRAY
) -> ArrayMetadata:
    """Return what a ``.zarray`` says, or all that is wrong with it in one error.

    >>> metadata = parse_array(b'''{"zarr_format": 2, "shape": [10], "chunks": [4], "order": "C",
    ...     "dtype": "<i4", "fill_value": 7, "filters": null,
    ...     "compressor": {"id": "zlib", "level": 1}}''')
    >>> metadata.schema.fill, metadata.schema.chain.compressors
    (np.int32(7), (Zlib(level=1),))
    """
    metadata = _parse_array(bytes(data), where)
    if metadata.schema.variable:
        # Its fill value may be a list, which must not be shared.
        metadata = _parse_array.__wrapped__(bytes(data), where)
    return replace(metadata, schema=metadata.schema.described(attrs)) if attrs else metadata


# Arrays of one hierarchy often have the very same document, and programs open them again and again.
@lru_cache(maxsize=256)
def _parse_array(data: bytes, where: str) -> ArrayMetadata:
    values = json.parse_object(data, where, allow_nan=True)
    claims, complaints = FieldReader(where, values), Problems()
    claims.choice("zarr_format", (_VERSION,))
    take = complaints.take
    shape: tuple[int, ...] = take(lambda: claims.integers("shape", low=0), ())
    chunks: tuple[int, ...] = take(lambda: claims.integers("chunks", low=1), ())
    order = take(lambda: claims.choice("order", ("C", "F")), "C")
    separator = take(lambda: claims.choice("dimension_separator", _SEPARATORS, "."), ".")
    stages: list[Stage] = take(lambda: _parse_stages(claims), [])
    dtype = take(lambda: dtypes.parse(claims.value("dtype"), f"{where}: dtype"), np.dtype("u1"))
    complaints.settle()
    take(lambda: _check_geometry(where, shape, chunks), None)
    dtype = take(lambda: _held(where, dtype, stages), dtype)
    fill = take(lambda: _parse_fill(claims, dtype, stages), None)
    spec = ChunkSpec(chunks, dtype, fill)
    chain = take(lambda: build_chain(stages, spec, order, where), CodecChain())
    complaints.settle()
    schema = ArraySchema(shape, dtype, chunks, chain, fill, order)
    return ArrayMetadata(schema, separator, values)


def pack_array(metadata: ArrayMetadata) -> bytes:
    """Return the ``.zarray`` that `parse_array` reads back, with all keys it does not know."""
    return json.pack(metadata.document, ARRAY, allow_nan=True)


def parse_attrs(data: bytes, where: str = ATTRS) -> dict[str, Any]:
    """Return the attributes of a ``.zattrs``.

    >>> parse_attrs(b'{"limit": NaN}')
    {'limit': nan}
    """
    return json.parse_object(data, where, allow_nan=True)


def pack_attrs(attrs: Mapping[str, Any]) -> bytes:
    """Return the ``.zattrs`` that `parse_attrs` reads back."""
    return json.pack(dict(attrs), ATTRS, allow_nan=True)


def parse_group(data: bytes, where: str = GROUP) -> None:
    """Complain about a ``.zgroup`` that is none; it says nothing but its version."""
    FieldReader(where, json.parse_object(data, where)).choice("zarr_format", (_VERSION,))


def pack_group() -> bytes:
    """Return a ``.zgroup``."""
    return json.pack(dict(_GROUP), GROUP)


def build_chain(
    stages: Sequence[Stage], spec: ChunkSpec, order: str = "C", where: str = ARRAY
) -> CodecChain:
    """Return the chain of stages, in the order of encoding, for items stored in `order`.

    Order is that in which the items go through the filters, so it comes first. Stages that store
    the shape with the items have no use for it.
    """
    shaped = any(isinstance(stage, Serializer) and stage.shaped for stage in stages)
    first = [Transpose()] if order == "F" and len(spec.shape) > 1 and not shaped else []
    try:
        return assemble([*first, *stages], spec)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None


def default_stages(dtype: DType) -> tuple[Stage, ...]:
    """Return the codecs of a new array for which none were chosen."""
    if dtype == dtypes.TEXT:
        return (VlenUtf8(), Blosc())
    if dtypes.is_variable(dtype):
        raise UnsupportedError(f"{dtype}: say by a codec what the objects are")
    return (Blosc(),)


def missing_groups(store: Store, path: str) -> Iterator[str]:
    """Yield the groups above `path` that are not there yet; what is there must be a group."""
    for name in path.split("/"):
        if name in _RESERVED:
            raise UnsafeError(f"{path!r}: {name!r} is the name of a document, not of a node")
    for group in above(path):
        if store.size(prefix(group) + ARRAY) is not None:
            raise ExistsError(f"{store.location}: {group!r} is an array, nothing lies below it")
        if store.size(prefix(group) + GROUP) is None:
            yield group


def documented(
    store: Store, path: str, name: str, content: Mapping[str, Any], attrs: Mapping[str, Any]
) -> Commit:
    """Return what makes a node, by the document `name`, and the groups above it, all at once."""
    made: dict[str, Mapping[str, Any]] = {}
    for group in missing_groups(store, path):
        made[prefix(group) + GROUP] = _GROUP
    if attrs:
        made[prefix(path) + ATTRS] = attrs
    made[prefix(path) + name] = content
    puts = [Put(key, json.pack(dict(each), key, allow_nan=True)) for key, each in made.items()]
    followed = v2_consolidated.followed(store, above(path), made, gone=path if path else None)
    return Commit(publish=(*puts, *followed))


@dataclass(frozen=True, slots=True)
class Zarr2Map:
    """The chunks of one array: each under a key of its own, absent when all fill."""

    store: Store
    metadata: ArrayMetadata
    path: str = ""

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.metadata.schema

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates."""
        return KeyTemplate(prefix(self.path), self.metadata.separator)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: every one is a whole key."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "Zarr2Map":
        """Return the map of the same array as `store` has it now."""
        node = Zarr2Format().open(store, self.path)
        if not isinstance(node, ArrayNode):
            raise NotFoundError(f"{store.location}: {self.path!r} has become a group")
        return node.chunks  # type: ignore[return-value]

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[Zarr2Map, Commit]":
        """Return the map of another shape; chunks that leave or enter the grid are removed.

        Chunks beyond the old grid are what an earlier, larger array has left; were they not
        removed before the array grows, they would come back to life.
        """
        if len(shape) != len(self.schema.shape):
            raise ValueError(f"shape {shape} has not {len(self.schema.shape)} axes")
        metadata = self.metadata.resized(shape)
        old, new = self.schema.grid.counts, metadata.schema.grid.counts
        commit = Commit(
            prepare=keys.removals(self.store, self.template, new, old),
            publish=(
                Put(prefix(self.path) + ARRAY, pack_array(metadata)),
                *self._followed(ARRAY, metadata.document),
            ),
            cleanup=keys.removals(self.store, self.template, old, new),
        )
        return replace(self, metadata=metadata), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[Zarr2Map, Commit]":
        """Return the map with other attributes."""
        metadata = replace(self.metadata, schema=self.schema.described(attrs))
        followed = self._followed(ATTRS, dict(attrs))
        commit = Commit(publish=(Put(prefix(self.path) + ATTRS, pack_attrs(attrs)), *followed))
        return replace(self, metadata=metadata), commit

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        place = prefix(self.path)
        chunks = keys.all_removals(self.store, self.template, len(self.schema.shape))
        documents = Delete(place + ARRAY), Delete(place + ATTRS)
        followed = v2_consolidated.followed(self.store, above(self.path), {}, gone=self.path)
        return Commit(publish=(*documents, *followed, *chunks))

    def _followed(self, name: str, content: Mapping[str, Any]) -> tuple[Put, ...]:
        """Return what keeps the copies of a document true."""
        changes = {prefix(self.path) + name: content}
        return v2_consolidated.followed(self.store, above(self.path), changes)


class Zarr2Format:
    """Zarr version 2 in a store; every node has a path, that of the first one is empty."""

    name: ClassVar[str] = "zarr2"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.GROUP
    signature: ClassVar[Signature] = Signature(markers=(ARRAY, GROUP))
    documents: ClassVar[tuple[str, ...]] = (ARRAY, GROUP, ATTRS)
    settings: ClassVar[tuple[str, ...]] = ("order", "dimension_separator")

    def open(self, store: Store, path: str = "") -> ArrayNode | GroupNode:
        """Return the array or group at `path`."""
        path = normalised(path)
        names = [prefix(path) + name for name in self.documents]
        node = self.from_documents(store, path, _read(store, names))
        if node is None:
            raise NotFoundError(f"{store.location}: no {names[0]} and no {names[1]}")
        return node

    def from_documents(
        self, store: Store, path: str, found: Sequence[bytes | None]
    ) -> ArrayNode | GroupNode | None:
        """Return the array or group that documents tell."""
        array, group, attrs = found
        if array is None and group is None:
            return None
        names = [prefix(path) + name for name in self.documents]
        try:
            described = {} if attrs is None else parse_attrs(attrs, names[2])
            if array is not None:
                metadata = parse_array(array, described, names[0])
                return ArrayNode(Zarr2Map(store, metadata, path))
            assert group is not None
            parse_group(group, names[1])
            return GroupNode(path, tuple(_children(store, path)), described)
        except IngotError as error:
            error.add_note(f"in {store.location}")
            raise

    def design(self, request: Request, *, order: str = "C", **layout: Any) -> ArraySchema:
        """Return how an array will lie here; without chunks, near to cubes of 1 MiB."""
        _check_choice("order", order, ("C", "F"))
        shape, dtype = request.shape, request.dtype
        chunks = request.chunks
        if chunks is None:
            chunks = auto_chunks(shape, dtype.itemsize, growing=0 in shape)
        stages = default_stages(dtype) if request.stages is None else request.stages
        grid = ChunkGrid(shape, chunks, padded=True)
        spec = ChunkSpec(grid.chunk, dtype, request.fill)
        chain = build_chain(stages, spec, order, where="codec")
        return ArraySchema(grid.shape, dtype, grid.chunk, chain, request.fill, order, request.attrs)

    def create(
        self,
        store: Store,
        schema: ArraySchema,
        path: str = "",
        *,
        dimension_separator: str = ".",
        **layout: Any,
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that makes it and the groups above it.

        What is returned is what opening will find: the metadata is read back from its bytes.
        """
        _check_choice("dimension_separator", dimension_separator, _SEPARATORS)
        path = normalised(path)
        data = pack_array(ArrayMetadata.of(schema, dimension_separator))
        metadata = parse_array(data, schema.attrs)
        chunks = Zarr2Map(store, metadata, path)
        commit = documented(store, path, ARRAY, metadata.document, schema.attrs)
        # What an array that was here before left behind, if it was not removed to the end.
        strays = keys.stray_removals(store, chunks.template, len(schema.shape))
        return ArrayNode(chunks), Commit(strays, commit.publish)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}")


def _parse_stages(claims: FieldReader) -> list[Stage]:
    filters = claims.value("filters", None)
    if filters is None:
        filters = []
    if not isinstance(filters, list) or len(filters) > _MOST_FILTERS:
        raise claims.wrong("filters", filters, f"null or a list of at most {_MOST_FILTERS} codecs")
    configs = [(f"filters[{index}]", config) for index, config in enumerate(filters)]
    compressor = claims.value("compressor")
    if compressor is not None:
        configs.append(("compressor", compressor))
    stages = []
    for field, config in configs:
        try:
            stages.append(parse_stage(config))
        except IngotError as error:
            raise type(error)(f"{claims.where}: {field}: {error}") from None
    return stages


def _check_geometry(where: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    if len(shape) != len(chunks):
        raise FormatError(f"{where}: shape has {len(shape)} axes, chunks has {len(chunks)}")
    for field, lengths in (("shape", shape), ("chunks", chunks)):
        if math.prod(lengths) > INT64:
            raise FormatError(f"{where}: {field} {list(lengths)} has more cells than 64 bits count")


def _held(where: str, dtype: DType, stages: Sequence[Stage]) -> DType:
    """Return the type in which items are held: that of objects is known to their codec."""
    if dtype != np.dtype(object):
        return dtype
    for stage in stages:
        if isinstance(stage, Filter | Serializer) and stage.holds is not None:
            return stage.holds
    raise FormatError(f"{where}: dtype is '|O', but no filter says what the objects are")


def _parse_fill(claims: FieldReader, dtype: DType, stages: Sequence[Stage]) -> Any:
    claim, where = claims.value("fill_value", None), f"{claims.where}: fill_value"
    if dtype != np.dtype(object):
        return fills.parse(claim, dtype, where)
    empty = claim is None or claim == "" or (type(claim) is int and claim == 0)
    for stage in stages:
        if isinstance(stage, VlenBytes):
            return b"" if empty else fills.parse_bytes(claim, where)
        if isinstance(stage, VlenArray):
            return fills.parse_row([] if empty else claim, stage.dtype, where)
    return claim


def _pack_fill(schema: ArraySchema) -> Any:
    if schema.dtype != np.dtype(object):
        return fills.pack(schema.fill, schema.dtype)
    if isinstance(schema.fill, bytes):
        return fills.pack_bytes(schema.fill)
    return schema.fill.tolist() if isinstance(schema.fill, np.ndarray) else schema.fill


def _spelled(schema: ArraySchema) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return filters and compressor as the document spells them."""
    chain = schema.chain
    stages: list[Stage] = []
    for stage in chain.filters:
        if not isinstance(stage, Transpose):
            stages.append(stage)
        elif schema.order != "F" or stages or stage != Transpose():
            raise UnsupportedError(f"zarr2: {stage} is more than order 'F'")
    stages += () if isinstance(chain.serializer, Raw) else (chain.serializer,)
    stages += chain.compressors
    # What only rearranges or checks is a filter; readers expect the compressor to compress.
    last = chain.compressors[-1] if chain.compressors else None
    compressor = stages.pop().config() if last and last.encoded_size(0) is None else None
    return [stage.config() for stage in stages], compressor


def _read(store: Store, names: Sequence[str]) -> list[bytes | None]:
    # One byte more than allowed tells that a document is too long without reading all of it.
    return store.read([Extent(name, 0, json.LARGEST + 1) for name in names])


def _children(store: Store, path: str) -> Iterator[str]:
    if Feature.LIST in store.features:
        folders = [name[:-1] for name in store.names(path) if name.endswith("/")]
    else:
        folders = list(v2_consolidated.children(store, path))
    markers = [f"{prefix(path)}{name}/{marker}" for name in folders for marker in (ARRAY, GROUP)]
    found = store.read([Extent(key, 0, 1) for key in markers])
    for index, name in enumerate(folders):
        if any(marker is not None for marker in found[2 * index : 2 * index + 2]):
            yield name

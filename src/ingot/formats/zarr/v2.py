"""Zarr version 2: ``.zarray``, ``.zgroup`` and ``.zattrs``, and a key for every chunk.

This module parses and packs the three documents, opens nodes, designs and creates arrays, and
returns the commits that change them. Codecs are found by name in the registry of codecs; groups are
created and changed by `ingot.formats.zarr.v2_groups`. Unknown fields of a document are kept and
written again.

The items of object arrays (``"|O"``) are held as their codec says: text as `ingot.dtypes.TEXT`,
everything else as Python objects. Pickled objects are refused.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.checksums import Checksum, Crc32c
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
from ingot.codecs.filters import Transpose
from ingot.codecs.text import VlenArray, VlenBytes
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.fields import INT64, FieldReader, Problems
from ingot.formats import json, keys
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
from ingot.formats.zarr import fills, v2_consolidated
from ingot.formats.zarr.defaults import check_stages, default_stages
from ingot.grid import ChunkGrid, auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.documents import documents_after
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = [
    "ARRAY",
    "ATTRS",
    "GROUP",
    "V2ArrayMetadata",
    "Zarr2Format",
    "Zarr2Map",
    "build_chain",
    "missing_groups",
    "open_all",
    "pack_array",
    "pack_attrs",
    "pack_group",
    "parse_array",
    "parse_attrs",
    "parse_group",
    "stage_node",
]

ARRAY: Final = ".zarray"
GROUP: Final = ".zgroup"
ATTRS: Final = ".zattrs"
_DOCUMENTS: Final = (ARRAY, GROUP, ATTRS)

_VERSION: Final = 2
_SEPARATORS: Final = (".", "/")
_MOST_FILTERS: Final = 32
_GROUP: Final[Mapping[str, Any]] = {"zarr_format": _VERSION}
_RESERVED: Final = (ARRAY, GROUP, ATTRS, v2_consolidated.CONSOLIDATED)


@dataclass(frozen=True, slots=True)
class V2ArrayMetadata:
    """The contents of a ``.zarray``: schema, separator of chunk keys, and the document itself."""

    schema: ArraySchema
    separator: str
    document: Mapping[str, Any]

    @classmethod
    def of(cls, schema: ArraySchema, separator: str = ".") -> "V2ArrayMetadata":
        """Return the metadata of a new array."""
        filters, compressor = _pack_codecs(schema)
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

    def resized(self, shape: tuple[int, ...]) -> "V2ArrayMetadata":
        """Return the metadata of the same array in another shape."""
        values = {**self.document, "shape": list(shape)}
        return replace(self, schema=self.schema.resized(shape), document=values)


def parse_array(
    data: bytes, attrs: Mapping[str, Any] | None = None, where: str = ARRAY
) -> V2ArrayMetadata:
    """Return the contents of a ``.zarray``, or raise one error that names all problems.

    >>> metadata = parse_array(b'''{"zarr_format": 2, "shape": [10], "chunks": [4], "order": "C",
    ...     "dtype": "<i4", "fill_value": 7, "filters": null,
    ...     "compressor": {"id": "zlib", "level": 1}}''')
    >>> metadata.schema.fill, metadata.schema.chain.compressors
    (np.int32(7), (Zlib(level=1),))
    """
    metadata = _parse_array(bytes(data), where)
    if metadata.schema.variable:
        # The fill value may be a list, which must not be shared through the cache.
        metadata = _parse_array.__wrapped__(bytes(data), where)
    return replace(metadata, schema=metadata.schema.described(attrs)) if attrs else metadata


# Arrays of one hierarchy often have equal documents, and programs open them repeatedly.
@lru_cache(maxsize=256)
def _parse_array(data: bytes, where: str) -> V2ArrayMetadata:
    values = json.parse_object(data, where, allow_nan=True)
    fields, problems = FieldReader(where, values), Problems()
    fields.choice("zarr_format", (_VERSION,))
    take = problems.take
    shape: tuple[int, ...] = take(lambda: fields.integers("shape", low=0), ())
    chunks: tuple[int, ...] = take(lambda: fields.integers("chunks", low=1), ())
    order = take(lambda: fields.choice("order", ("C", "F")), "C")
    separator = take(lambda: fields.choice("dimension_separator", _SEPARATORS, "."), ".")
    stages: list[Stage] = take(lambda: _parse_stages(fields), [])
    dtype = take(lambda: dtypes.parse(fields.value("dtype"), f"{where}: dtype"), np.dtype("u1"))
    problems.settle()
    take(lambda: _check_geometry(where, shape, chunks), None)
    dtype = take(lambda: _item_type(where, dtype, stages), dtype)
    fill = take(lambda: _parse_fill(fields, dtype, stages), None)
    spec = ChunkSpec(chunks, dtype, fill)
    chain = take(lambda: build_chain(stages, spec, order, where), CodecChain())
    problems.settle()
    stated = values.get("fill_value") is not None
    schema = ArraySchema(shape, dtype, chunks, chain, fill, order, fill_stated=stated)
    return V2ArrayMetadata(schema, separator, values)


def pack_array(metadata: V2ArrayMetadata) -> bytes:
    """Return the ``.zarray`` that `parse_array` reads back, unknown fields included."""
    return json.pack(metadata.document, ARRAY, allow_nan=True)


def parse_attrs(data: bytes, where: str = ATTRS) -> dict[str, Any]:
    """Return the attributes of a ``.zattrs``.

    >>> parse_attrs(b'{"limit": NaN}')
    {'limit': nan}
    """
    return json.parse_object(data, where, allow_nan=True)


def pack_attrs(attrs: Mapping[str, Any]) -> bytes:
    """Return the ``.zattrs`` that `parse_attrs` reads back."""
    return json.pack(dict(attrs), ATTRS, allow_nan=True, in_order="")


def parse_group(data: bytes, where: str = GROUP) -> None:
    """Raise an error unless the data is a ``.zgroup``, which has only a version."""
    FieldReader(where, json.parse_object(data, where)).choice("zarr_format", (_VERSION,))


def pack_group() -> bytes:
    """Return a ``.zgroup``."""
    return json.pack(dict(_GROUP), GROUP)


def build_chain(
    stages: Sequence[Stage], spec: ChunkSpec, order: str = "C", where: str = ARRAY
) -> CodecChain:
    """Return the chain of stages, in the order of encoding, for items stored in `order`.

    Filters see the items in that order, so the transposition comes first. It is left out where a
    stage stores the shape with the items.
    """
    shaped = any(isinstance(stage, Serializer) and stage.shaped for stage in stages)
    first = [Transpose()] if order == "F" and len(spec.shape) > 1 and not shaped else []
    try:
        return assemble([*first, *stages], spec)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None


def missing_groups(store: Store, path: str) -> Iterator[str]:
    """Yield the groups above `path` that do not exist; raise `ExistsError` for an array there."""
    check_new(path, _RESERVED)
    groups = list(above(path))
    marks = [Extent(prefix(group) + name, 0, 1) for group in groups for name in (ARRAY, GROUP)]
    found = store.read(marks) if marks else []
    for index, group in enumerate(groups):
        if found[2 * index] is not None:
            raise ExistsError(f"{store.location}: {group!r} is an array, nothing lies below it")
        if found[2 * index + 1] is None:
            yield group


def stage_node(
    store: Store, path: str, name: str, content: Mapping[str, Any], attrs: Mapping[str, Any]
) -> Commit:
    """Return the commit that stores a node, by the document `name`, and missing groups above it."""
    made: dict[str, Mapping[str, Any]] = {}
    for group in missing_groups(store, path):
        made[prefix(group) + GROUP] = _GROUP
    if attrs:
        made[prefix(path) + ATTRS] = attrs
    made[prefix(path) + name] = content
    puts = [
        Put(
            key,
            pack_attrs(each) if key.endswith(ATTRS) else json.pack(dict(each), key, allow_nan=True),
        )
        for key, each in made.items()
    ]
    updates = v2_consolidated.updates(store, above(path), made, removed=path if path else None)
    return Commit(publish=(*puts, *updates))


@dataclass(frozen=True, slots=True)
class Zarr2Map:
    """The chunks of one array, each under its own key; a chunk of nothing but fill is absent."""

    store: Store
    metadata: V2ArrayMetadata
    path: str = ""
    documents: Documents = field(default_factory=dict, compare=False, repr=False)

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.metadata.schema

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates."""
        return KeyTemplate(prefix(self.path), self.metadata.separator)

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: each is the whole value of a key."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "Zarr2Map":
        """Return the map of the same array in its current state in `store`."""
        node = Zarr2Format().open(store, self.path)
        if not isinstance(node, ArrayNode):
            raise NotFoundError(f"{store.location}: {self.path!r} has become a group")
        return node.chunks  # type: ignore[return-value]

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[Zarr2Map, Commit]":
        """Return the map of another shape; chunks that leave or enter the grid are removed.

        Chunks beyond the old grid are leftovers of an earlier, larger array. They are removed
        before the array grows, so that they do not become part of it.
        """
        if len(shape) != len(self.schema.shape):
            raise ArgumentError(f"shape {shape}: the array has {len(self.schema.shape)} axes")
        metadata = self.metadata.resized(shape)
        old, new = self.schema.grid.counts, metadata.schema.grid.counts
        put = Put(prefix(self.path) + ARRAY, pack_array(metadata))
        commit = Commit(
            prepare=keys.removals(self.store, self.template, new, old),
            publish=(put, *self._consolidated_edits(ARRAY, metadata.document)),
            cleanup=keys.removals(self.store, self.template, old, new),
        )
        documents = documents_after(self.documents, commit)
        return replace(self, metadata=metadata, documents=documents), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[Zarr2Map, Commit]":
        """Return the map with other attributes."""
        metadata = replace(self.metadata, schema=self.schema.described(attrs))
        updates = self._consolidated_edits(ATTRS, dict(attrs))
        commit = Commit(publish=(Put(prefix(self.path) + ATTRS, pack_attrs(attrs)), *updates))
        documents = documents_after(self.documents, commit)
        return replace(self, metadata=metadata, documents=documents), commit

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields of the document that Zarr does not define."""
        plain = V2ArrayMetadata.of(self.schema, self.metadata.separator).document
        known = {*plain, "dimension_separator"}
        return {name: v for name, v in self.metadata.document.items() if name not in known}

    def annotated(self, fields: Mapping[str, Any]) -> Commit:
        """Return the commit that stores the document with fields that Zarr does not define."""
        document = {**self.metadata.document, **fields}
        put = Put(prefix(self.path) + ARRAY, pack_array(replace(self.metadata, document=document)))
        return Commit(publish=(put, *self._consolidated_edits(ARRAY, document)))

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        place = prefix(self.path)
        chunks = keys.all_removals(self.store, self.template, self.schema.grid.counts)
        documents = Delete(place + ARRAY), Delete(place + ATTRS)
        updates = v2_consolidated.updates(self.store, above(self.path), {}, removed=self.path)
        return Commit(publish=(*documents, *updates, *chunks))

    def _consolidated_edits(self, name: str, content: Mapping[str, Any]) -> tuple[Put, ...]:
        """Return the edits that update the consolidated metadata after a change of a document."""
        changes = {prefix(self.path) + name: content}
        return v2_consolidated.updates(self.store, above(self.path), changes)


class Zarr2Format:
    """Zarr version 2 in a store; every node has a path, the root the empty one."""

    name: ClassVar[str] = "zarr2"
    holds: ClassVar[Kind] = Kind.ARRAY | Kind.GROUP
    settings: ClassVar[tuple[str, ...]] = ("order", "dimension_separator", "checksum")

    def open(self, store: Store, path: str = "") -> ArrayNode | GroupNode:
        """Return the array or group at `path`."""
        path = normalised(path)
        names = [prefix(path) + name for name in _DOCUMENTS]
        found = _read(store, names)
        node = self.from_documents(store, path, dict(zip(_DOCUMENTS, found, strict=True)))
        if node is None:
            raise NotFoundError(f"{store.location}: no {names[0]} and no {names[1]}")
        return node

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | GroupNode | None:
        """Return the array or group that documents describe."""
        array, group, attrs = map(documents.get, _DOCUMENTS)
        if array is None and group is None:
            return None
        names = [prefix(path) + name for name in _DOCUMENTS]
        try:
            described = {} if attrs is None else parse_attrs(attrs, names[2])
            if array is not None:
                metadata = parse_array(array, described, names[0])
                return ArrayNode(
                    Zarr2Map(store, metadata, path, {names[0]: array, names[2]: attrs})
                )
            assert group is not None
            parse_group(group, names[1])
            return GroupNode(path, described, {names[1]: group, names[2]: attrs})
        except IngotError as error:
            error.add_note(f"in {store.location}")
            raise

    def design(
        self, request: Request, *, order: str = "C", checksum: bool = False, **layout: Any
    ) -> ArraySchema:
        """Return the layout of a new array; the default chunks are near to cubes of 1 MiB.

        With `checksum`, a CRC-32C follows every chunk: the codec ``crc32c`` of numcodecs, unless
        one of the codecs is a checksum already. It comes last, so that a compressor before it is
        stored among the filters.
        """
        _check_choice("order", order, ("C", "F"))
        shape, dtype = request.shape, request.dtype
        chunks = request.chunks
        if chunks is None:
            chunks = auto_chunks(shape, dtype.itemsize, growing=0 in shape)
        stages = request.stages
        if stages is None:
            stages = default_stages(dtype, remote=request.remote)
        check_stages(stages)
        if checksum and not any(isinstance(stage, Checksum) for stage in stages):
            stages = (*stages, Crc32c())
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
        """Return a new array, and the commit that creates it and the groups above it.

        The array is the one that opening will return: its metadata is parsed from the new document.
        """
        _check_choice("dimension_separator", dimension_separator, _SEPARATORS)
        path = normalised(path)
        data = pack_array(V2ArrayMetadata.of(schema, dimension_separator))
        metadata = parse_array(data, schema.attrs)
        commit = stage_node(store, path, ARRAY, metadata.document, schema.attrs)
        absent = dict.fromkeys((prefix(path) + ARRAY, prefix(path) + ATTRS))
        chunks = Zarr2Map(store, metadata, path, documents_after(absent, commit))
        # An earlier array at this path may have left chunks, if its removal was interrupted.
        strays = keys.stray_removals(store, chunks.template, schema.grid.counts)
        return ArrayNode(chunks), Commit(strays, commit.publish)


def open_all(store: Store, paths: Sequence[str]) -> list[ArrayNode | GroupNode | None]:
    """Return the nodes at some paths, by one read; None where there is none."""
    found = iter(_read(store, [prefix(path) + name for path in paths for name in _DOCUMENTS]))
    format = Zarr2Format()
    return [
        format.from_documents(store, path, {name: next(found) for name in _DOCUMENTS})
        for path in paths
    ]


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}, not one of {', '.join(map(repr, choices))}")


def _parse_stages(fields: FieldReader) -> list[Stage]:
    filters = fields.value("filters", None)
    if filters is None:
        filters = []
    if not isinstance(filters, list) or len(filters) > _MOST_FILTERS:
        raise fields.wrong("filters", filters, f"null or a list of at most {_MOST_FILTERS} codecs")
    configs = [(f"filters[{index}]", config) for index, config in enumerate(filters)]
    compressor = fields.value("compressor")
    if compressor is not None:
        configs.append(("compressor", compressor))
    stages = []
    for name, config in configs:
        try:
            stages.append(parse_stage(config))
        except IngotError as error:
            raise type(error)(f"{fields.where}: {name}: {error}") from None
    return stages


def _check_geometry(where: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    if len(shape) != len(chunks):
        raise FormatError(f"{where}: shape has {len(shape)} axes, chunks has {len(chunks)}")
    for name, lengths in (("shape", shape), ("chunks", chunks)):
        if math.prod(lengths) > INT64:
            raise FormatError(f"{where}: {name} {list(lengths)} has more cells than 64 bits count")


def _item_type(where: str, dtype: DType, stages: Sequence[Stage]) -> DType:
    """Return the type of the items in memory; for objects, their codec says what it is."""
    if dtype != np.dtype(object):
        return dtype
    for stage in stages:
        if isinstance(stage, Filter | Serializer) and stage.holds is not None:
            return stage.holds
    raise FormatError(f"{where}: dtype is '|O', but no filter says what the objects are")


def _parse_fill(fields: FieldReader, dtype: DType, stages: Sequence[Stage]) -> Any:
    claim, where = fields.value("fill_value", None), f"{fields.where}: fill_value"
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


def _pack_codecs(schema: ArraySchema) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the configurations of filters and compressor."""
    chain = schema.chain
    stages: list[Stage] = []
    for stage in chain.filters:
        if not isinstance(stage, Transpose):
            stages.append(stage)
        elif schema.order != "F" or stages or stage != Transpose():
            raise UnsupportedError(f"zarr2: {stage} is more than order 'F'")
    stages += () if isinstance(chain.serializer, Raw) else (chain.serializer,)
    stages += chain.compressors
    # Readers expect the compressor to compress: a stage that only rearranges or checks is a filter.
    last = chain.compressors[-1] if chain.compressors else None
    compressor = stages.pop().config() if last and last.encoded_size(0) is None else None
    return [stage.config() for stage in stages], compressor


def _read(store: Store, names: Sequence[str]) -> list[bytes | None]:
    # One byte more than allowed shows that a document is too long without reading all of it.
    return store.read([Extent(name, 0, json.LARGEST + 1) for name in names])

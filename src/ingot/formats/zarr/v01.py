"""What the first two layouts of Zarr share: a store that holds one array and nothing else.

Metadata is one document, attributes are another, and each chunk has its own key. This module has
the chunk map, and the rules for types, shapes and fill values that both layouts share. The
documents are parsed and packed by `ingot.formats.zarr.v0` and `ingot.formats.zarr.v1`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import INT64, FieldReader, shown
from ingot.formats import json, keys
from ingot.formats.format import (
    ArrayNode,
    Coords,
    Documents,
    KeyTemplate,
    Locations,
    Request,
)
from ingot.grid import ChunkGrid, auto_chunks
from ingot.schema import ArraySchema
from ingot.stores.documents import documents_after
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = [
    "V01Layout",
    "V01Map",
    "V01Metadata",
    "check_geometry",
    "design_grid",
    "from_documents",
    "open_array",
    "pack_attrs",
    "pack_metadata",
    "pack_scalar",
    "parse_attrs",
    "parse_dtype",
    "parse_fill",
    "parse_scalar",
]


@dataclass(frozen=True, slots=True)
class V01Metadata:
    """The contents of a metadata document: the schema, and the document with its unknown fields."""

    schema: ArraySchema
    document: Mapping[str, Any]

    def resized(self, shape: tuple[int, ...]) -> "V01Metadata":
        """Return the metadata of the same array in another shape."""
        values = {**self.document, "shape": list(shape)}
        return V01Metadata(self.schema.resized(shape), values)

    def described(self, attrs: Mapping[str, Any]) -> "V01Metadata":
        """Return the metadata of the same array with other attributes."""
        return replace(self, schema=self.schema.described(attrs))


@dataclass(frozen=True, slots=True)
class V01Layout:
    """The keys of documents and chunks, and the parser of the metadata."""

    meta: str
    attrs: str
    template: KeyTemplate
    parse: Callable[[bytes, str], V01Metadata]


@dataclass(frozen=True, slots=True)
class V01Map:
    """The chunks of the only array of a store, each under its own key, absent when all fill."""

    store: Store
    metadata: V01Metadata
    layout: V01Layout
    documents: Documents = field(default_factory=dict, compare=False, repr=False)

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.metadata.schema

    @property
    def path(self) -> str:
        """The empty path: the array is all that its store holds."""
        return ""

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates."""
        return self.layout.template

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie: each is the whole value of a key."""
        return Locations(self.template.keys(coords))

    def reopened(self, store: Store) -> "V01Map":
        """Return the map of the same array in its current state in `store`."""
        return _open(store, self.layout)

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks, each by one atomic edit."""
        return keys.stage(self.template, encoded)

    def resized(self, shape: tuple[int, ...]) -> "tuple[V01Map, Commit]":
        """Return the map of another shape; chunks that leave or enter the grid are removed.

        zarr 0.x and 1.x did not remove chunks when an array shrank. Such leftovers are removed
        before the array grows, so that they do not become part of it.
        """
        if len(shape) != len(self.schema.shape):
            raise ArgumentError(f"shape {shape}: the array has {len(self.schema.shape)} axes")
        metadata = self.metadata.resized(shape)
        old, new = self.schema.grid.counts, metadata.schema.grid.counts
        commit = Commit(
            prepare=keys.removals(self.store, self.template, new, old),
            publish=(Put(self.layout.meta, pack_metadata(metadata, self.layout.meta)),),
            cleanup=keys.removals(self.store, self.template, old, new),
        )
        documents = documents_after(self.documents, commit)
        return replace(self, metadata=metadata, documents=documents), commit

    def described(self, attrs: Mapping[str, Any]) -> "tuple[V01Map, Commit]":
        """Return the map with other attributes."""
        commit = Commit(publish=(Put(self.layout.attrs, pack_attrs(attrs, self.layout.attrs)),))
        metadata, documents = (
            self.metadata.described(attrs),
            documents_after(self.documents, commit),
        )
        return replace(self, metadata=metadata, documents=documents), commit

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        chunks = keys.all_removals(self.store, self.template, self.schema.grid.counts)
        documents = Delete(self.layout.meta), Delete(self.layout.attrs)
        return Commit(publish=(*documents, *chunks))


def open_array(store: Store, path: str, layout: V01Layout) -> ArrayNode:
    """Return the only array of a store; `path` must be empty."""
    if path.strip("/"):
        raise NotFoundError(f"{store.location}: no {path!r}, this layout holds one array alone")
    return ArrayNode(_open(store, layout))


def from_documents(
    store: Store, path: str, documents: Mapping[str, bytes | None], layout: V01Layout
) -> ArrayNode | None:
    """Return the array that documents describe, None without a metadata document."""
    meta = documents.get(layout.meta)
    if path or meta is None:
        return None
    return ArrayNode(_parsed(store, meta, documents.get(layout.attrs), layout))


def pack_metadata(metadata: V01Metadata, where: str) -> bytes:
    """Return a metadata document as JSON: keys sorted, four spaces of indent."""
    values, schema = dict(metadata.document), metadata.schema
    # The fill value of a pickled document may be a type that JSON does not have.
    if not isinstance(values.get("fill_value"), bool | int | float | str | None):
        values["fill_value"] = pack_scalar(schema.fill, schema.dtype)
    return json.pack(values, where, allow_nan=True)


def parse_attrs(data: bytes, where: str) -> dict[str, Any]:
    """Return the attributes of a document.

    >>> parse_attrs(b'{"limit": NaN}', "attrs")
    {'limit': nan}
    """
    return json.parse_object(data, where, allow_nan=True)


def pack_attrs(attrs: Mapping[str, Any], where: str) -> bytes:
    """Return the attributes as the document that `parse_attrs` reads back.

    >>> print(pack_attrs({"foo": 42, "bar": 4.2}, "__zattr__").decode())
    {
        "foo": 42,
        "bar": 4.2
    }
    """
    return json.pack(dict(attrs), where, allow_nan=True, in_order="")


def parse_dtype(fields: FieldReader) -> DType:
    """Return the field `dtype`; objects are refused, since only their addresses were stored."""
    dtype = dtypes.parse(fields.value("dtype"), f"{fields.where}: dtype")
    if dtype.hasobject:
        raise UnsafeError(f"{fields.where}: dtype is '|O': addresses of objects, not objects")
    return dtype


def parse_fill(fields: FieldReader, dtype: DType) -> Any:
    """Return the field `fill_value` as an item of `dtype`."""
    return parse_scalar(fields.value("fill_value"), dtype, f"{fields.where}: fill_value")


def check_geometry(where: str, shape: tuple[int, ...], chunks: tuple[int, ...]) -> None:
    """Raise `FormatError` unless shape and chunks match and the layout can hold them."""
    if len(shape) != len(chunks):
        raise FormatError(f"{where}: shape has {len(shape)} axes, chunks has {len(chunks)}")
    if not shape:
        raise FormatError(f"{where}: shape is [], this layout has no arrays without axes")
    for name, lengths in (("shape", shape), ("chunks", chunks)):
        if math.prod(lengths) > INT64:
            raise FormatError(f"{where}: {name} {list(lengths)} has more cells than 64 bits count")


def design_grid(request: Request, name: str) -> ChunkGrid:
    """Return the grid of a new array; raise an error if the layout `name` cannot hold it.

    >>> design_grid(Request((), np.dtype("<f4"), np.float32(0)), "zarr0")
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: zarr0: arrays without axes cannot be stored
    """
    shape, dtype = request.shape, request.dtype
    if not shape:
        raise UnsupportedError(f"{name}: arrays without axes cannot be stored")
    if dtypes.is_variable(dtype):
        raise UnsupportedError(f"{name}: items of type {dtype} cannot be stored")
    chunks = request.chunks
    if chunks is None:
        chunks = auto_chunks(shape, dtype.itemsize, growing=0 in shape)
    return ChunkGrid(shape, chunks, padded=True)


def _open(store: Store, layout: V01Layout) -> V01Map:
    # One byte more than allowed shows that a document is too long without reading all of it.
    wanted = [Extent(key, 0, json.LARGEST + 1) for key in (layout.meta, layout.attrs)]
    meta, attrs = store.read(wanted)
    if meta is None:
        raise NotFoundError(f"{store.location}: no {layout.meta}")
    return _parsed(store, meta, attrs, layout)


def _parsed(store: Store, meta: bytes, attrs: bytes | None, layout: V01Layout) -> V01Map:
    try:
        metadata = layout.parse(meta, layout.meta)
        if attrs is not None:
            metadata = metadata.described(parse_attrs(attrs, layout.attrs))
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    return V01Map(store, metadata, layout, {layout.meta: meta, layout.attrs: attrs})


def parse_scalar(claim: object, dtype: DType, where: str = "fill_value") -> Any:
    """Return the item of `dtype` that a file claims; null, which meant undefined, reads as zero.

    >>> parse_scalar(0, np.dtype("S5")), parse_scalar(3.0, np.dtype("<i4"))
    (np.bytes_(b'0'), np.int32(3))
    >>> parse_scalar(None, np.dtype("<f8"))
    np.float64(0.0)
    >>> parse_scalar(300, np.dtype("|u1"))
    Traceback (most recent call last):
    ingot.errors.FormatError: fill_value: 300 is no value of type uint8
    """
    item = np.zeros((), dtype)
    opaque = dtype.kind == "V" and dtype.names is None
    if claim is None or (opaque and type(claim) is int and claim == 0):
        return item[()]
    try:
        _check_kind(claim, dtype)
        with np.errstate(all="ignore"):
            item.fill(claim)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}") from None
    if isinstance(claim, int | float) and dtype.kind in "fc" and _overflowed(item, claim):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}")
    return item[()]


def pack_scalar(fill: Any, dtype: DType) -> Any:
    """Return the spelling that `parse_scalar` reads back as `fill`; some items have none.

    >>> pack_scalar(np.float32(0.5), np.dtype("<f4")), pack_scalar(b"ab", np.dtype("S5"))
    (0.5, 'ab')
    >>> pack_scalar(1j, np.dtype("<c16"))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: fill_value: this layout cannot spell 1j of type complex128
    """
    item = np.zeros((), dtype)
    item[()] = fill
    for spelling in (_plain_value(item), 0, None):
        try:
            found = parse_scalar(spelling, dtype)
        except FormatError:
            continue
        if _same(np.asarray(found, dtype), item):
            return spelling
    raise UnsupportedError(f"fill_value: this layout cannot spell {fill!r} of type {dtype}")


def _check_kind(claim: object, dtype: DType) -> None:
    # NumPy would also parse text as a number, and accept any value for a boolean.
    if isinstance(claim, list | dict) or (isinstance(claim, str) and dtype.kind in "biufc"):
        raise ArgumentTypeError


def _overflowed(item: Any, claim: float) -> bool:
    """Return whether a finite number became infinite."""
    return bool(np.isinf(item)) and (isinstance(claim, int) or not math.isinf(claim))


def _plain_value(item: Any) -> Any:
    kind = item.dtype.kind
    if kind == "b":
        return bool(item)
    if kind in "iu":
        return int(item)
    if kind in "fc":
        return float(item.real)
    if kind in "mM":
        return int(item.view(f"{item.dtype.byteorder}i8"))
    if kind == "S":
        return bytes(item[()]).decode("latin-1")
    return str(item[()]) if kind == "U" else 0


def _same(found: Any, item: Any) -> bool:
    if item.dtype.kind == "f" and np.isnan(item):
        return bool(np.isnan(found))
    return bool(found.tobytes() == item.tobytes())

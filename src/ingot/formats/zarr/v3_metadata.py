"""``zarr.json``, the one document of every node of Zarr version 3.

Knows what an array's and a group's document say, as functions from bytes to values and back.
Refuses to know stores. Fields that it does not know and need not understand are kept and written
again; others are refused, as the specification demands.
"""

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from ingot.codecs.byteorder import Bytes, in_order
from ingot.codecs.codec import ChunkSpec, CodecChain
from ingot.codecs.filters import Transpose
from ingot.dtypes import DType
from ingot.errors import FormatError, UnsupportedError
from ingot.fields import INT64, FieldReader, Problems, shown
from ingot.formats import json
from ingot.formats.format import KeyTemplate
from ingot.formats.zarr import (
    v3_codecs as zarr3_codecs,
)
from ingot.formats.zarr import (
    v3_extension as extension,
)
from ingot.formats.zarr import (
    v3_fills as zarr3_fills,
)
from ingot.formats.zarr import (
    v3_grids as zarr3_grids,
)
from ingot.formats.zarr import (
    v3_types as zarr3_types,
)
from ingot.formats.zarr.v3_grids import Cut
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.schema import ArraySchema

__all__ = [
    "NODE",
    "ArrayMetadata",
    "GroupMetadata",
    "KeyEncoding",
    "Metadata",
    "pack",
    "parse",
    "respelled",
]

NODE: Final = "zarr.json"

_VERSION: Final = 3
_SEPARATORS: Final = {"default": "/", "v2": "."}
_ARRAY_FIELDS: Final = frozenset(
    {
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
        *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
    }
)
_GROUP_FIELDS: Final = frozenset(
    {"zarr_format", "node_type", "attributes", "consolidated_metadata"}
)


@dataclass(frozen=True, slots=True)
class KeyEncoding:
    """How the keys of chunks follow from their coordinates: which scheme, which separator.

    >>> KeyEncoding().template(2).key((1, 20)), KeyEncoding("v2", "/").template(2).key((1, 20))
    ('c/1/20', '1/20')
    >>> KeyEncoding().template(0).key(())
    'c'
    """

    name: Literal["default", "v2"] = "default"
    separator: str = "/"

    def template(self, ndim: int) -> KeyTemplate:
        """Return how the keys of an array of so many axes are made."""
        if self.name == "v2":
            return KeyTemplate("", self.separator)
        if ndim == 0:
            return KeyTemplate(scalar="c")
        return KeyTemplate(f"c{self.separator}", self.separator)

    @classmethod
    def parse(cls, claim: object, where: str) -> "KeyEncoding":
        """Return the encoding that a file claims."""
        found = extension.parse(claim, where, required=True)
        if found.name not in _SEPARATORS:
            raise UnsupportedError(f"{where}: {shown(found.name)} is unknown")
        claims = found.claims()
        separator = claims.choice("separator", ("/", "."), _SEPARATORS[found.name])
        claims.finish()
        return cls("v2" if found.name == "v2" else "default", separator)

    def pack(self) -> dict[str, Any]:
        """Return the spelling that `parse` reads back."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


@dataclass(frozen=True, slots=True)
class ArrayMetadata:
    """What the document of an array says.

    The chunks of `schema` are what keys stand for: whole shards, where there are any.
    """

    schema: ArraySchema
    encoding: KeyEncoding
    document: Mapping[str, Any]
    around: tuple[bytes, bytes] | None = field(default=None, repr=False, compare=False)
    """What is packed before and behind the shape, once another shape was asked for."""

    @classmethod
    def of(cls, schema: ArraySchema, encoding: KeyEncoding) -> "ArrayMetadata":
        """Return the metadata of a new array."""
        values: dict[str, Any] = {
            "zarr_format": _VERSION,
            "node_type": "array",
            "shape": list(schema.shape),
            "data_type": zarr3_types.pack(schema.dtype),
            "chunk_grid": zarr3_grids.pack(Cut(schema.chunks, schema.rectilinear)),
            "chunk_key_encoding": encoding.pack(),
            "fill_value": zarr3_fills.pack(schema.fill, schema.dtype),
            "codecs": zarr3_codecs.pack_chain(schema.chain, len(schema.shape)),
            "attributes": _checked_attrs(schema.attrs),
        }
        if schema.dimension_names is not None:
            values["dimension_names"] = list(schema.dimension_names)
        return cls(schema, encoding, values)

    @property
    def sharding(self) -> Sharding | None:
        """How the chunks inside of shards are put together; None without shards."""
        serializer = self.schema.chain.serializer
        return serializer if isinstance(serializer, Sharding) else None

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates, below the array's own path."""
        return self.encoding.template(len(self.schema.shape))

    def resized(self, shape: tuple[int, ...]) -> "ArrayMetadata":
        """Return the metadata of the same array in another shape."""
        schema = self.schema.resized(shape)
        values = {**self.document, "shape": list(shape)}
        if schema.rectilinear:
            values["chunk_grid"] = zarr3_grids.pack(Cut(schema.chunks, schema.rectilinear))
            return ArrayMetadata(schema, self.encoding, values)
        around = self.around or json.pack_around(values, "shape", NODE, bare_nan=True)
        return ArrayMetadata(schema, self.encoding, values, around)

    def described(self, attrs: Mapping[str, Any]) -> "ArrayMetadata":
        """Return the metadata with other attributes."""
        return replace(
            self,
            schema=self.schema.described(attrs),
            document={**self.document, "attributes": _checked_attrs(attrs)},
            around=None,
        )


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """What the document of a group says."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] = field(
        default_factory=lambda: {"zarr_format": _VERSION, "node_type": "group"}
    )

    def described(self, attrs: Mapping[str, Any]) -> "GroupMetadata":
        """Return the metadata with other attributes."""
        return replace(
            self, attrs=attrs, document={**self.document, "attributes": _checked_attrs(attrs)}
        )


Metadata: TypeAlias = ArrayMetadata | GroupMetadata


def parse(data: bytes, where: str = NODE) -> Metadata:
    """Return what a ``zarr.json`` says, or all that is wrong with it in one error.

    >>> metadata = parse(b'''{"zarr_format": 3, "node_type": "array", "shape": [10],
    ...     "data_type": "int16", "fill_value": 7, "chunk_key_encoding": "default",
    ...     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    ...     "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}''')
    >>> metadata.schema.fill, metadata.schema.dtype, metadata.template.key((2,))
    (np.int16(7), dtype('>i2'), 'c/2')
    """
    metadata = _parse(bytes(data), where)
    # Attributes are the caller's to change; all else is frozen, and shared.
    if isinstance(metadata, ArrayMetadata) and metadata.schema.attrs:
        attrs = copy.deepcopy(dict(metadata.schema.attrs))
        return replace(metadata, schema=metadata.schema.described(attrs))
    if isinstance(metadata, GroupMetadata):
        return replace(metadata, attrs=copy.deepcopy(dict(metadata.attrs)))
    return metadata


def pack(metadata: Metadata) -> bytes:
    """Return the ``zarr.json`` that `parse` reads back, with all fields that were kept.

    >>> pack(GroupMetadata()).decode()
    '{\\n    "node_type": "group",\\n    "zarr_format": 3\\n}'
    """
    if isinstance(metadata, ArrayMetadata) and metadata.around is not None:
        head, tail = metadata.around
        return head + json.pack_integers(metadata.schema.shape) + tail
    # What another program has written as NaN stays; attributes of ours have been checked.
    return json.pack(metadata.document, NODE, bare_nan=True)


def respelled(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document that says the same as we would spell it, or complain about it.

    >>> respelled({"zarr_format": 3, "node_type": "group", "attributes": {}})
    {'zarr_format': 3, 'node_type': 'group'}
    """
    metadata = parse(json.pack(dict(values), NODE, bare_nan=True))
    if isinstance(metadata, GroupMetadata):
        attrs, known, plain = metadata.attrs, _GROUP_FIELDS, GroupMetadata().document
    else:
        attrs, known = metadata.schema.attrs, _ARRAY_FIELDS
        # What others have put into attributes need not be what we would put there.
        bare = metadata.schema.described({})
        plain = {**ArrayMetadata.of(bare, metadata.encoding).document, "attributes": {}}
    kept = {key: value for key, value in values.items() if key not in known}
    said = {**plain, **kept, "attributes": dict(attrs)}
    return {key: value for key, value in said.items() if value or key != "attributes"}


# Arrays of one hierarchy often have the very same document, and programs open them again and again.
@lru_cache(maxsize=256)
def _parse(data: bytes, where: str) -> Metadata:
    values = json.parse_object(data, where, bare_nan=True)
    claims = FieldReader(where, values)
    claims.choice("zarr_format", (_VERSION,))
    if claims.choice("node_type", ("array", "group")) == "array":
        return _parse_array(claims, values)
    attrs = _parse_attrs(claims)
    _check_fields(values, _GROUP_FIELDS, where)
    return GroupMetadata(attrs, values)


def _parse_array(claims: FieldReader, values: dict[str, Any]) -> ArrayMetadata:
    where, complaints = claims.where, Problems()
    take, value = complaints.take, claims.value
    shape: tuple[int, ...] = take(lambda: claims.integers("shape", low=0), ())
    dtype: DType = take(
        lambda: zarr3_types.parse(value("data_type"), f"{where}: data_type"), np.dtype("u1")
    )
    encoding = take(
        lambda: KeyEncoding.parse(value("chunk_key_encoding"), f"{where}: chunk_key_encoding"),
        KeyEncoding(),
    )
    attrs: dict[str, Any] = take(lambda: _parse_attrs(claims), {})
    names = take(lambda: _parse_names(claims, len(shape)), None)
    take(lambda: _check_transformers(claims), None)
    take(lambda: _check_fields(values, _ARRAY_FIELDS, where), None)
    complaints.settle()
    cut = take(lambda: zarr3_grids.parse(value("chunk_grid"), shape, f"{where}: chunk_grid"), None)
    complaints.settle()
    assert cut is not None
    take(lambda: _check_size(where, shape, cut.chunks), None)
    spec = ChunkSpec(cut.chunks, dtype)
    chain = take(
        lambda: zarr3_codecs.parse_chain(value("codecs"), spec, f"{where}: codecs"), CodecChain()
    )
    dtype = _held(dtype, chain)
    fill = take(lambda: zarr3_fills.parse(value("fill_value"), dtype, f"{where}: fill_value"), None)
    take(lambda: _check_shards(chain, cut, where), None)
    complaints.settle()
    _check_fill(chain, ChunkSpec(cut.chunks, dtype, fill), where)
    schema = ArraySchema(
        shape,
        dtype,
        cut.chunks,
        chain,
        fill,
        _order(chain, len(shape)),
        attrs,
        rectilinear=cut.edges,
        dimension_names=names,
    )
    return ArrayMetadata(schema, encoding, values)


def _held(dtype: DType, chain: CodecChain) -> DType:
    """Return the type in the byte order that is stored, unless filters make other items of it."""
    if not all(isinstance(stage, Transpose) for stage in chain.filters):
        return dtype
    serializer = chain.serializer
    if isinstance(serializer, Sharding):
        return _held(dtype, serializer.inner_chain)
    if isinstance(serializer, Bytes):
        return in_order(dtype, serializer.endian or "little")
    return dtype


def _order(chain: CodecChain, ndim: int) -> str:
    """Return "F" where all that filters do is to reverse the axes."""
    if isinstance(chain.serializer, Sharding) and not chain.filters:
        return _order(chain.serializer.inner_chain, ndim)
    backwards = tuple(reversed(range(ndim)))
    reverses = ndim > 1 and [stage.axes(ndim) for stage in chain.filters] == [backwards]
    return "F" if reverses else "C"


def _parse_attrs(claims: FieldReader) -> dict[str, Any]:
    return dict(claims.mapping("attributes") or {})


def _parse_names(claims: FieldReader, ndim: int) -> tuple[str | None, ...] | None:
    names = claims.value("dimension_names", None)
    if names is None:
        return None
    if not isinstance(names, list) or not all(
        name is None or isinstance(name, str) for name in names
    ):
        raise claims.wrong("dimension_names", names, "a list of strings and nulls")
    if len(names) != ndim:
        raise FormatError(
            f"{claims.where}: dimension_names has {len(names)} names, the shape {ndim} axes"
        )
    return tuple(names)


def _check_transformers(claims: FieldReader) -> None:
    found = claims.value("storage_transformers", None)
    if found is not None and found != []:
        raise UnsupportedError(
            f"{claims.where}: storage_transformers is {shown(found)}; none is supported"
        )


def _check_fields(values: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for key, value in values.items():
        if key not in known and not (
            isinstance(value, dict) and value.get("must_understand") is False
        ):
            raise UnsupportedError(f"{where}: the field {shown(key)} is unknown")


def _check_size(where: str, shape: Sequence[int], chunks: Sequence[int]) -> None:
    for name, lengths in (("shape", shape), ("chunk_grid", chunks)):
        if math.prod(lengths) > INT64:
            raise FormatError(f"{where}: {name} {list(lengths)} has more cells than 64 bits count")


def _check_shards(chain: CodecChain, cut: Cut, where: str) -> None:
    """Complain about edges that inner chunks do not divide; one chunk of each was looked at."""
    if not isinstance(chain.serializer, Sharding) or not cut.edges:
        return
    if chain.filters:
        raise UnsupportedError(f"{where}: filters around shards of several lengths")
    for axis, edges in enumerate(cut.edges):
        inner = chain.serializer.inner_chunks[axis]
        if edges is not None and (edges.lengths % inner).any():
            raise FormatError(f"{where}: chunk_grid: inner chunks of {inner} do not divide shards")


def _check_fill(chain: CodecChain, spec: ChunkSpec, where: str) -> None:
    """Complain about filters that make of the fill value something from which it does not return.

    Where inner chunks are absent from a shard behind them, what they make of it is read.
    """
    try:
        for stage in chain.filters:
            spec = stage.encoded(spec)
    except FormatError as error:
        raise FormatError(f"{where}: fill_value: {error}") from None


def _checked_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the document holds them, having made sure that JSON can."""
    values = dict(attrs)
    json.pack(values, f"{NODE}: attributes")
    return values

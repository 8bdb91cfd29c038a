"""``zarr.json``, the one document of every node of Zarr version 3.

This module parses and packs the documents of arrays and groups; it does not access stores. Unknown
fields are kept and written again if the document says that they need not be understood; all others
are refused, as the specification demands.
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
from ingot.formats.zarr import v3_codecs, v3_extension, v3_fills, v3_grids, v3_types
from ingot.formats.zarr.v3_grids import ChunkShapes
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.schema import ArraySchema

__all__ = [
    "MANIFEST",
    "NODE",
    "KeyEncoding",
    "V3ArrayMetadata",
    "V3GroupMetadata",
    "V3Metadata",
    "canonical",
    "pack",
    "parse",
]

NODE: Final = "zarr.json"

_VERSION: Final = 3
_ATTRIBUTES: Final = "attributes"
MANIFEST: Final = "ingot_manifest"
"""The field of an array that has a manifest of its stored chunks."""
_OPTIONAL: Final = {"must_understand": False}
_SEPARATORS: Final = {"default": "/", "v2": "."}
_ARRAY_FIELDS: Final = frozenset(
    {
        *("zarr_format", "node_type", "shape", "data_type", "chunk_grid", "chunk_key_encoding"),
        *("fill_value", "codecs", "attributes", "storage_transformers", "dimension_names"),
        MANIFEST,
    }
)
_GROUP_FIELDS: Final = frozenset(
    {"zarr_format", "node_type", "attributes", "consolidated_metadata"}
)


@dataclass(frozen=True, slots=True)
class KeyEncoding:
    """How the keys of chunks follow from their coordinates: a scheme and a separator.

    >>> KeyEncoding().template(2).key((1, 20)), KeyEncoding("v2", "/").template(2).key((1, 20))
    ('c/1/20', '1/20')
    >>> KeyEncoding().template(0).key(())
    'c'
    """

    name: Literal["default", "v2"] = "default"
    separator: str = "/"

    def template(self, ndim: int) -> KeyTemplate:
        """Return the key template of an array with `ndim` axes."""
        if self.name == "v2":
            return KeyTemplate("", self.separator)
        if ndim == 0:
            return KeyTemplate(scalar="c")
        return KeyTemplate(f"c{self.separator}", self.separator)

    @classmethod
    def parse(cls, claim: object, where: str) -> "KeyEncoding":
        """Return the encoding that a file names."""
        found = v3_extension.parse(claim, where, required=True)
        if found.name not in _SEPARATORS:
            raise UnsupportedError(f"{where}: {shown(found.name)} is unknown")
        fields = found.fields()
        separator = fields.choice("separator", ("/", "."), _SEPARATORS[found.name])
        fields.finish()
        return cls("v2" if found.name == "v2" else "default", separator)

    def pack(self) -> dict[str, Any]:
        """Return the spelling that `parse` reads back."""
        return {"name": self.name, "configuration": {"separator": self.separator}}


@dataclass(frozen=True, slots=True)
class V3ArrayMetadata:
    """The document of an array.

    The chunks of `schema` are the values of keys: shards, in an array with shards.
    """

    schema: ArraySchema
    encoding: KeyEncoding
    document: Mapping[str, Any]
    around: tuple[bytes, bytes] | None = field(default=None, repr=False, compare=False)
    """The packed document before and after the shape; None until the array is resized."""

    @classmethod
    def of(
        cls, schema: ArraySchema, encoding: KeyEncoding, *, has_manifest: bool = False
    ) -> "V3ArrayMetadata":
        """Return the metadata of a new array."""
        values: dict[str, Any] = {
            "zarr_format": _VERSION,
            "node_type": "array",
            "shape": list(schema.shape),
            "data_type": v3_types.pack(schema.dtype),
            "chunk_grid": v3_grids.pack(ChunkShapes(schema.chunks, schema.rectilinear)),
            "chunk_key_encoding": encoding.pack(),
            "fill_value": v3_fills.pack(schema.fill, schema.dtype),
            "codecs": v3_codecs.pack_chain(schema.chain, len(schema.shape)),
            "attributes": _checked_attrs(schema.attrs),
        }
        if schema.dimension_names is not None:
            values["dimension_names"] = list(schema.dimension_names)
        if has_manifest:
            values[MANIFEST] = dict(_OPTIONAL)
        return cls(schema, encoding, values)

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields that Zarr does not define, and that need not be understood."""
        return {name: v for name, v in self.document.items() if name not in _ARRAY_FIELDS}

    @property
    def sharding(self) -> Sharding | None:
        """The sharding codec; None without shards."""
        serializer = self.schema.chain.serializer
        return serializer if isinstance(serializer, Sharding) else None

    @property
    def template(self) -> KeyTemplate:
        """How keys follow from coordinates, relative to the path of the array."""
        return self.encoding.template(len(self.schema.shape))

    def resized(self, shape: tuple[int, ...]) -> "V3ArrayMetadata":
        """Return the metadata of the same array in another shape."""
        schema = self.schema.resized(shape)
        values = {**self.document, "shape": list(shape)}
        if schema.rectilinear:
            values["chunk_grid"] = v3_grids.pack(ChunkShapes(schema.chunks, schema.rectilinear))
            return V3ArrayMetadata(schema, self.encoding, values)
        around = self.around or json.pack_around(
            values, "shape", NODE, allow_nan=True, in_order=_ATTRIBUTES
        )
        return V3ArrayMetadata(schema, self.encoding, values, around)

    def described(self, attrs: Mapping[str, Any]) -> "V3ArrayMetadata":
        """Return the metadata with other attributes."""
        return replace(
            self,
            schema=self.schema.described(attrs),
            document={**self.document, "attributes": _checked_attrs(attrs)},
            around=None,
        )


@dataclass(frozen=True, slots=True)
class V3GroupMetadata:
    """The document of a group."""

    attrs: Mapping[str, Any] = field(default_factory=dict)
    document: Mapping[str, Any] = field(
        default_factory=lambda: {"zarr_format": _VERSION, "node_type": "group"}
    )

    def described(self, attrs: Mapping[str, Any]) -> "V3GroupMetadata":
        """Return the metadata with other attributes."""
        return replace(
            self, attrs=attrs, document={**self.document, "attributes": _checked_attrs(attrs)}
        )


V3Metadata: TypeAlias = V3ArrayMetadata | V3GroupMetadata


def parse(data: bytes, where: str = NODE) -> V3Metadata:
    """Return the contents of a ``zarr.json``, or raise one error that names all problems.

    >>> metadata = parse(b'''{"zarr_format": 3, "node_type": "array", "shape": [10],
    ...     "data_type": "int16", "fill_value": 7, "chunk_key_encoding": "default",
    ...     "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4]}},
    ...     "codecs": [{"name": "bytes", "configuration": {"endian": "big"}}]}''')
    >>> metadata.schema.fill, metadata.schema.dtype, metadata.template.key((2,))
    (np.int16(7), dtype('>i2'), 'c/2')
    """
    metadata = _parse(bytes(data), where)
    # Callers may change attributes; everything else is frozen, and shared through the cache.
    if isinstance(metadata, V3ArrayMetadata) and metadata.schema.attrs:
        attrs = copy.deepcopy(dict(metadata.schema.attrs))
        return replace(metadata, schema=metadata.schema.described(attrs))
    if isinstance(metadata, V3GroupMetadata):
        return replace(metadata, attrs=copy.deepcopy(dict(metadata.attrs)))
    return metadata


def pack(metadata: V3Metadata) -> bytes:
    """Return the ``zarr.json`` that `parse` reads back, with all fields that were kept.

    >>> pack(V3GroupMetadata()).decode()
    '{\\n    "node_type": "group",\\n    "zarr_format": 3\\n}'
    """
    if isinstance(metadata, V3ArrayMetadata) and metadata.around is not None:
        head, tail = metadata.around
        return json.checked(head + json.pack_integers(metadata.schema.shape) + tail, NODE)
    # NaN that another program wrote is kept; attributes set here have been checked.
    return pack_document(metadata.document, NODE)


def pack_document(values: Mapping[str, Any], where: str) -> bytes:
    """Return a document of a node, in which attributes keep their order."""
    return json.pack(values, where, allow_nan=True, in_order=_ATTRIBUTES)


def canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an equal document in the spelling of Ingot; raise an error if it is malformed.

    >>> canonical({"zarr_format": 3, "node_type": "group", "attributes": {}})
    {'zarr_format': 3, 'node_type': 'group'}
    """
    metadata = parse(json.pack(dict(values), NODE, allow_nan=True))
    if isinstance(metadata, V3GroupMetadata):
        attrs, known, plain = metadata.attrs, _GROUP_FIELDS, V3GroupMetadata().document
    else:
        attrs, known = metadata.schema.attrs, _ARRAY_FIELDS
        # Attributes of other programs may be ones that Ingot refuses to write.
        schema = metadata.schema.described({})
        same = V3ArrayMetadata.of(schema, metadata.encoding, has_manifest=MANIFEST in values)
        plain = {**same.document, "attributes": {}}
    kept = {key: value for key, value in values.items() if key not in known}
    spelled = {**plain, **kept, "attributes": dict(attrs)}
    return {key: value for key, value in spelled.items() if value or key != "attributes"}


# Arrays of one hierarchy often have equal documents, and programs open them repeatedly.
@lru_cache(maxsize=256)
def _parse(data: bytes, where: str) -> V3Metadata:
    values = json.parse_object(data, where, allow_nan=True)
    fields = FieldReader(where, values)
    fields.choice("zarr_format", (_VERSION,))
    if fields.choice("node_type", ("array", "group")) == "array":
        return _parse_array(fields, values)
    attrs = _parse_attrs(fields)
    _check_fields(values, _GROUP_FIELDS, where)
    return V3GroupMetadata(attrs, values)


def _parse_array(fields: FieldReader, values: dict[str, Any]) -> V3ArrayMetadata:
    where, problems = fields.where, Problems()
    take, value = problems.take, fields.value
    shape: tuple[int, ...] = take(lambda: fields.integers("shape", low=0), ())
    dtype: DType = take(
        lambda: v3_types.parse(value("data_type"), f"{where}: data_type"), np.dtype("u1")
    )
    encoding = take(
        lambda: KeyEncoding.parse(value("chunk_key_encoding"), f"{where}: chunk_key_encoding"),
        KeyEncoding(),
    )
    attrs: dict[str, Any] = take(lambda: _parse_attrs(fields), {})
    names = take(lambda: _parse_names(fields, len(shape)), None)
    take(lambda: _check_transformers(fields), None)
    take(lambda: _check_fields(values, _ARRAY_FIELDS, where), None)
    take(lambda: _check_manifest(fields), None)
    problems.settle()
    grid = take(lambda: v3_grids.parse(value("chunk_grid"), shape, f"{where}: chunk_grid"), None)
    problems.settle()
    assert grid is not None
    take(lambda: _check_size(where, shape, grid.chunks), None)
    spec = ChunkSpec(grid.chunks, dtype)
    chain = take(
        lambda: v3_codecs.parse_chain(value("codecs"), spec, f"{where}: codecs"), CodecChain()
    )
    dtype = _stored_dtype(dtype, chain)
    fill = take(lambda: v3_fills.parse(value("fill_value"), dtype, f"{where}: fill_value"), None)
    take(lambda: _check_shards(chain, grid, where), None)
    problems.settle()
    _check_fill(chain, ChunkSpec(grid.chunks, dtype, fill), where)
    schema = ArraySchema(
        shape,
        dtype,
        grid.chunks,
        chain,
        fill,
        _order(chain, len(shape)),
        attrs,
        rectilinear=grid.rectilinear,
        dimension_names=names,
    )
    return V3ArrayMetadata(schema, encoding, values)


def _stored_dtype(dtype: DType, chain: CodecChain) -> DType:
    """Return the type in the stored byte order, unless filters change the type of items."""
    if not all(isinstance(stage, Transpose) for stage in chain.filters):
        return dtype
    serializer = chain.serializer
    if isinstance(serializer, Sharding):
        return _stored_dtype(dtype, serializer.inner_chain)
    if isinstance(serializer, Bytes):
        return in_order(dtype, serializer.endian or "little")
    return dtype


def _order(chain: CodecChain, ndim: int) -> str:
    """Return "F" if the filters only reverse the axes, else "C"."""
    if isinstance(chain.serializer, Sharding) and not chain.filters:
        return _order(chain.serializer.inner_chain, ndim)
    backwards = tuple(reversed(range(ndim)))
    reverses = ndim > 1 and [stage.axes(ndim) for stage in chain.filters] == [backwards]
    return "F" if reverses else "C"


def _parse_attrs(fields: FieldReader) -> dict[str, Any]:
    return dict(fields.mapping("attributes") or {})


def _parse_names(fields: FieldReader, ndim: int) -> tuple[str | None, ...] | None:
    names = fields.value("dimension_names", None)
    if names is None:
        return None
    if not isinstance(names, list) or not all(
        name is None or isinstance(name, str) for name in names
    ):
        raise fields.wrong("dimension_names", names, "a list of strings and nulls")
    if len(names) != ndim:
        raise FormatError(
            f"{fields.where}: dimension_names has {len(names)} names, the shape {ndim} axes"
        )
    return tuple(names)


def _check_transformers(fields: FieldReader) -> None:
    found = fields.value("storage_transformers", None)
    if found is not None and found != []:
        raise UnsupportedError(
            f"{fields.where}: storage_transformers is {shown(found)}; none is supported"
        )


def _check_manifest(fields: FieldReader) -> None:
    found = fields.value(MANIFEST, _OPTIONAL)
    if found != _OPTIONAL:
        raise UnsupportedError(f"{fields.where}: {MANIFEST} is {shown(found)}, not {_OPTIONAL}")


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


def _check_shards(chain: CodecChain, grid: ChunkShapes, where: str) -> None:
    """Refuse shards of several lengths that inner chunks do not divide.

    Only the longest shard was checked when the codecs were parsed.
    """
    if not isinstance(chain.serializer, Sharding) or not grid.rectilinear:
        return
    if chain.filters:
        raise UnsupportedError(f"{where}: filters around shards of several lengths")
    for axis, edges in enumerate(grid.rectilinear):
        inner = chain.serializer.inner_chunks[axis]
        if edges is not None and (edges.lengths % inner).any():
            raise FormatError(f"{where}: chunk_grid: inner chunks of {inner} do not divide shards")


def _check_fill(chain: CodecChain, spec: ChunkSpec, where: str) -> None:
    """Refuse filters that cannot restore the fill value from its encoded form.

    Inner chunks that are absent from a shard read as the encoded fill value.
    """
    try:
        for stage in chain.filters:
            spec = stage.encoded(spec)
    except FormatError as error:
        raise FormatError(f"{where}: fill_value: {error}") from None


def _checked_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes as the document holds them; raise an error if JSON cannot."""
    values = dict(attrs)
    json.check_values(values, f"{NODE}: attributes")
    return values

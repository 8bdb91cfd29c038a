"""Codecs as Zarr version 3 names and configures them.

This module maps names to stages, checks the order of stages, and packs chains. How a stage works is
not its concern. Names that begin with ``numcodecs.`` are those of version 2.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from ingot._lazy import deferred
from ingot.codecs.byteorder import Bytes, byte_order
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import (
    BytesFilter,
    ChunkSpec,
    CodecChain,
    Compressor,
    Filter,
    Raw,
    Serializer,
    Stage,
    parse_stage,
)
from ingot.codecs.compressors import Blosc, Gzip
from ingot.codecs.filters import Reshape, Transpose
from ingot.codecs.text import VlenBytes, VlenUtf8
from ingot.dtypes import DType
from ingot.errors import FormatError, IngotError, UnsupportedError
from ingot.fields import FieldReader, shown
from ingot.formats.zarr import v3_extension, v3_fills, v3_types
from ingot.formats.zarr.v3_extension import NamedConfiguration
from ingot.formats.zarr.v3_sharding import Sharding, index_spec

# Few files name the codecs of these modules, which take longer to import than all others here.
if TYPE_CHECKING:
    from ingot.codecs import bits, numeric
else:
    bits = deferred("ingot.codecs.bits")
    numeric = deferred("ingot.codecs.numeric")

__all__ = ["pack_chain", "parse_chain", "serialized"]

_MOST_CODECS: Final = 32
_FOREIGN: Final = "numcodecs."
_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")
_MOST_PAIRS: Final = 2**16
_MOST_BITS: Final = 64
# The default level of zlib.
_DEFAULT_GZIP: Final = 6

# Names without a prefix that are not specified; their configuration is that of version 2.
_SHARED: Final = frozenset({"bitround", "zlib", "bz2", "fletcher32", "adler32"})


def parse_chain(claim: object, spec: ChunkSpec, where: str = "codecs") -> CodecChain:
    """Return the chain that a list of codecs describes, for chunks of `spec`.

    >>> import numpy as np
    >>> spec = ChunkSpec((10,), np.dtype("<i4"))
    >>> parse_chain([{"name": "bytes", "configuration": {"endian": "big"}}, "crc32c"], spec)
    CodecChain(filters=(), serializer=Bytes(endian='big'), compressors=(Crc32c(location='end'),))
    >>> parse_chain(["crc32c", "bytes"], spec)
    Traceback (most recent call last):
    ingot.errors.FormatError: codecs[0]: 'crc32c' makes bytes of bytes, but is given an array
    """
    if not isinstance(claim, list) or not claim or len(claim) > _MOST_CODECS:
        raise FormatError(f"{where}: {shown(claim)} is no list of 1 to {_MOST_CODECS} codecs")
    filters: list[Filter] = []
    serializer: Serializer | None = None
    compressors: list[Compressor] = []
    for index, each in enumerate(claim):
        found = v3_extension.parse(each, f"{where}[{index}]")
        stage = _stage(found, spec)
        if isinstance(stage, Compressor) and serializer is not None:
            compressors.append(stage)
        elif isinstance(stage, Serializer) and serializer is None:
            serializer = stage
        elif isinstance(stage, Filter) and serializer is None:
            filters.append(stage)
            spec = _encoded(found, stage, spec)
        elif stage is not None:
            raise _misplaced(found, stage)
    if serializer is None:
        raise FormatError(f"{where}: none of the codecs turns arrays into bytes")
    chain = CodecChain(tuple(filters), serializer, tuple(compressors))
    _check_sizes(chain, spec, where)
    return chain


def pack_chain(chain: CodecChain, ndim: int) -> list[dict[str, Any]]:
    """Return the list of codecs that `parse_chain` reads back, for arrays of `ndim` axes.

    >>> pack_chain(CodecChain((), Bytes("little"), (Gzip(5), Crc32c())), 1)[1:]
    [{'name': 'gzip', 'configuration': {'level': 5}}, {'name': 'crc32c'}]
    """
    stages: list[Stage] = [*chain.filters, chain.serializer, *chain.compressors]
    return [_pack_stage(stage, ndim) for stage in stages]


def serialized(chain: CodecChain, spec: ChunkSpec) -> CodecChain:
    """Return the same chain with a serializer that version 3 names: raw items get a byte order.

    >>> import numpy as np
    >>> serialized(CodecChain(), ChunkSpec((3,), np.dtype(">i4"))).serializer
    Bytes(endian='big')
    """
    if any(isinstance(stage, BytesFilter) for stage in chain.compressors):
        raise UnsupportedError("zarr3: filters stand before the codec that makes bytes of an array")
    if not isinstance(chain.serializer, Raw):
        return chain
    for stage in chain.filters:
        spec = stage.encoded(spec)
    order = byte_order(spec.dtype)
    serializer = Bytes("little" if order == "mixed" else order)
    return CodecChain(chain.filters, serializer, chain.compressors)


def _stage(found: NamedConfiguration, spec: ChunkSpec) -> Stage | None:
    """Return the stage of a codec; None for an unknown one that a reader may ignore."""
    name = found.name
    try:
        if name == Sharding.name:
            return _parse_sharding(found, spec)
        if name in _PARSERS:
            return _PARSERS[name](found.fields(), spec)
        if name in _SHARED or name.startswith(_FOREIGN):
            return _parse_shared(found)
    except IngotError as error:
        if str(error).startswith(found.where):
            raise
        raise type(error)(f"{found.where}: {error}") from None
    if found.optional:
        return None
    raise UnsupportedError(f"{found.where}: codec {shown(name)} is unknown")


def _parse_shared(found: NamedConfiguration) -> Stage:
    name = found.name.removeprefix(_FOREIGN)
    stage = parse_stage({**found.configuration, "id": name})
    # Version 2 does not store the size of items; version 3 does, as typesize.
    typesize = found.configuration.get("typesize")
    return stage.bind(typesize) if isinstance(stage, Blosc) and type(typesize) is int else stage


def _parse_blosc(fields: FieldReader, spec: ChunkSpec) -> Blosc:
    shuffle = fields.choice("shuffle", _SHUFFLES, "noshuffle")
    given = {key: fields.value(key, None) for key in ("cname", "clevel", "blocksize")}
    stage = Blosc.parse(
        FieldReader(fields.where, {key: value for key, value in given.items() if value is not None})
    )
    typesize = spec.dtype.itemsize
    if fields.value("typesize", None) is not None:
        typesize = fields.integer("typesize", low=1, high=2**31 - 1)
    fields.finish()
    return replace(stage, shuffle=_SHUFFLES.index(shuffle)).bind(typesize)


def _parse_gzip(fields: FieldReader, spec: ChunkSpec) -> Gzip:
    stage = Gzip(fields.integer("level", 1, low=0, high=9))
    fields.finish()
    return stage


def _parse_zstd(fields: FieldReader, spec: ChunkSpec) -> Stage:
    level = fields.integer("level", 0, low=-131072, high=22)
    checksum = fields.flag("checksum", False)
    fields.finish()
    return parse_stage({"id": "zstd", "level": level, "checksum": checksum})


def _parse_crc32c(fields: FieldReader, spec: ChunkSpec) -> Crc32c:
    fields.finish()
    return Crc32c()


def _parse_transpose(fields: FieldReader, spec: ChunkSpec) -> Transpose:
    order = fields.value("order")
    # Drafts of the specification had words for the two usual orders.
    if order in ("C", "F"):
        fields.finish()
        axes = range(len(spec.shape))
        return Transpose(tuple(axes if order == "C" else reversed(axes)))
    return Transpose.parse(fields)


def _parse_packbits(fields: FieldReader, spec: ChunkSpec) -> "bits.PackedBits":
    padding = fields.choice("padding_encoding", get_args(bits.Padding), "none")
    first, last = (
        None if fields.value(key, None) is None else fields.integer(key, high=_MOST_BITS)
        for key in ("first_bit", "last_bit")
    )
    fields.finish()
    return bits.PackedBits(padding, first, last)


def _parse_scale_offset(fields: FieldReader, spec: ChunkSpec) -> "numeric.ScaleOffset":
    # Refuses items that are not numbers.
    numeric.ScaleOffset().encoded(ChunkSpec(spec.shape, spec.dtype))
    offset, scale = (
        v3_fills.parse(fields.value(key, default), spec.dtype, f"{fields.where}: {key}")
        for key, default in (("offset", 0), ("scale", 1))
    )
    fields.finish()
    return numeric.ScaleOffset(offset, scale)


def _parse_cast_value(fields: FieldReader, spec: ChunkSpec) -> "numeric.CastValue":
    dtype = v3_types.parse(fields.value("data_type"), f"{fields.where}: data_type")
    rounding = fields.choice("rounding", get_args(numeric.Rounding), "nearest-even")
    rule = None
    if fields.value("out_of_range", None) is not None:
        rule = fields.choice("out_of_range", get_args(numeric.OutOfRange))
    maps = FieldReader(f"{fields.where}: scalar_map", fields.mapping("scalar_map") or {})
    encoding = _parse_pairs(maps, "encode", spec.dtype, dtype)
    decoding = _parse_pairs(maps, "decode", dtype, spec.dtype)
    maps.finish()
    fields.finish()
    return numeric.CastValue(dtype, rounding, rule, encoding, decoding)


def _parse_pairs(maps: FieldReader, key: str, source: DType, target: DType) -> "numeric.Pairs":
    found = maps.value(key, None)
    if found is None:
        return ()
    where = f"{maps.where}: {key}"
    if not isinstance(found, list) or len(found) > _MOST_PAIRS:
        raise maps.wrong(key, found, f"a list of at most {_MOST_PAIRS} pairs")
    pairs = []
    for pair in found:
        if not isinstance(pair, list) or len(pair) != 2:
            raise FormatError(f"{where}: {pair!r} is no pair")
        # Some writers spell the sign of infinity here, and only here.
        item, other = ("Infinity" if each == "+Infinity" else each for each in pair)
        pairs.append((v3_fills.parse(item, source, where), v3_fills.parse(other, target, where)))
    return tuple(pairs)


_PARSERS: Final[Mapping[str, Callable[[FieldReader, ChunkSpec], Stage]]] = {
    "bytes": lambda fields, spec: Bytes.parse(fields),
    "endian": lambda fields, spec: Bytes.parse(fields),
    "transpose": _parse_transpose,
    "blosc": _parse_blosc,
    "gzip": _parse_gzip,
    "zstd": _parse_zstd,
    "crc32c": _parse_crc32c,
    "vlen-utf8": lambda fields, spec: VlenUtf8.parse(fields),
    "vlen-bytes": lambda fields, spec: VlenBytes.parse(fields),
    "packbits": _parse_packbits,
    "reshape": lambda fields, spec: Reshape.parse(fields),
    "scale_offset": _parse_scale_offset,
    "cast_value": _parse_cast_value,
}


def _parse_sharding(found: NamedConfiguration, spec: ChunkSpec) -> Sharding:
    fields, where = found.fields(), f"{found.where}: {found.name}"
    inner = fields.integers("chunk_shape", low=1)
    location = fields.choice("index_location", ("start", "end"), "end")
    chain = parse_chain(
        fields.value("codecs"), ChunkSpec(inner, spec.dtype, spec.fill), f"{where}: codecs"
    )
    bare = Sharding(inner, chain, CodecChain())
    index = index_spec(bare.counts(spec.shape))
    index_chain = parse_chain(fields.value("index_codecs"), index, f"{where}: index_codecs")
    fields.finish()
    _check_index(index_chain, index, where)
    return Sharding(inner, chain, index_chain, "start" if location == "start" else "end")


def _check_index(chain: CodecChain, index: ChunkSpec, where: str) -> None:
    fixed = chain.serializer.serialized_size(index) is not None
    if not fixed or any(stage.encoded_size(index.nbytes) is None for stage in chain.compressors):
        raise FormatError(f"{where}: index_codecs make an index whose size varies")


def _check_sizes(chain: CodecChain, spec: ChunkSpec, where: str) -> None:
    try:
        size = chain.serializer.serialized_size(spec)
        for stage in chain.compressors:
            size = stage.encoded_size(size) if size is not None else None
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None


def _encoded(found: NamedConfiguration, stage: Filter, spec: ChunkSpec) -> ChunkSpec:
    try:
        return stage.encoded(spec)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{found.where}: {error}") from None


def _misplaced(found: NamedConfiguration, stage: Stage) -> FormatError:
    if isinstance(stage, Compressor):
        return FormatError(
            f"{found.where}: {found.name!r} makes bytes of bytes, but is given an array"
        )
    return FormatError(f"{found.where}: {found.name!r} needs an array, but is given bytes")


def _pack_stage(stage: Stage, ndim: int) -> dict[str, Any]:
    name, configuration = stage.name, _configuration(stage, ndim)
    if configuration is None:
        config = {key: value for key, value in stage.config().items() if key != "id"}
        # Readers of these names require a configuration, even an empty one.
        return {"name": _FOREIGN + name, "configuration": config}
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def _configuration(stage: Stage, ndim: int) -> dict[str, Any] | None:
    """Return the configuration of a stage that version 3 names, else None.

    >>> _configuration(bits.PackedBits("first_byte", last_bit=11), 1)
    {'padding_encoding': 'first_byte', 'last_bit': 11}
    >>> _configuration(Reshape(((0, 1), -1)), 2)
    {'shape': [[0, 1], -1]}
    """
    if isinstance(stage, Sharding):
        return {
            "chunk_shape": list(stage.inner_chunks),
            "codecs": pack_chain(stage.inner_chain, ndim),
            "index_codecs": pack_chain(stage.index_chain, ndim + 1),
            "index_location": stage.index_location,
        }
    if isinstance(stage, Bytes):
        return {} if stage.endian is None else {"endian": stage.endian}
    if isinstance(stage, Transpose):
        return {"order": list(stage.axes(ndim))}
    if isinstance(stage, Blosc):
        config = {key: value for key, value in stage.config().items() if key != "id"}
        return {**config, "typesize": stage.typesize, "shuffle": stage.shuffle_word}
    if isinstance(stage, Gzip):
        return {"level": stage.level if stage.level >= 0 else _DEFAULT_GZIP}
    if stage.name == "zstd":
        return {"checksum": False} | {k: v for k, v in stage.config().items() if k != "id"}
    if isinstance(stage, Reshape):
        return {"shape": [list(axis) if isinstance(axis, tuple) else axis for axis in stage.shape]}
    if stage.name in ("packbits", "scale_offset", "cast_value"):
        return _deferred_configuration(stage)
    plain = isinstance(stage, VlenUtf8 | VlenBytes) or stage == Crc32c()
    return {} if plain else None


def _deferred_configuration(stage: Stage) -> dict[str, Any] | None:
    """Return the configuration of a stage of a deferred module."""
    if isinstance(stage, bits.PackedBits):
        given = {"first_bit": stage.first_bit, "last_bit": stage.last_bit}
        stored = {key: bit for key, bit in given.items() if bit is not None}
        return {"padding_encoding": stage.padding, **stored}
    if isinstance(stage, numeric.ScaleOffset):
        return {"offset": _pack_number(stage.offset), "scale": _pack_number(stage.scale)}
    return _pack_cast_value(stage) if isinstance(stage, numeric.CastValue) else None


def _pack_cast_value(stage: "numeric.CastValue") -> dict[str, Any]:
    values: dict[str, Any] = {
        "data_type": v3_types.pack(stage.dtype),
        "rounding": stage.rounding,
    }
    if stage.out_of_range is not None:
        values["out_of_range"] = stage.out_of_range
    maps = {
        key: [[_pack_number(item), _pack_number(other)] for item, other in pairs]
        for key, pairs in (("encode", stage.encoding), ("decode", stage.decoding))
        if pairs
    }
    return {**values, "scalar_map": maps} if maps else values


def _pack_number(item: Any) -> Any:
    """Return the spelling of a number, which depends on its type."""
    if isinstance(item, float):
        item = v3_fills.pack(item, v3_types.parse("float64"))
    return v3_fills.pack(item, item.dtype) if hasattr(item, "dtype") else item

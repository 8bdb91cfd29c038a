"""Codecs as Zarr version 3 names and configures them.

Knows which stage each name means, in which order stages may stand, and how a chain is spelled.
Refuses to know how any stage works. Names that begin with ``numcodecs.`` are those of version 2.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

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
from ingot.codecs.filters import Transpose
from ingot.codecs.text import VlenBytes, VlenUtf8
from ingot.errors import FormatError, IngotError, UnsupportedError
from ingot.fields import FieldReader, shown
from ingot.formats.zarr import v3_extension
from ingot.formats.zarr.v3_extension import Extension
from ingot.formats.zarr.v3_sharding import Sharding, index_spec

__all__ = ["pack_chain", "parse_chain", "serialized"]

_MOST_CODECS: Final = 32
_FOREIGN: Final = "numcodecs."
_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")
# What zlib itself takes when it is left the choice.
_USUAL_GZIP: Final = 6

# Plain names beside the specified ones whose configuration is that of version 2.
_SHARED: Final = frozenset({"bitround", "zlib", "bz2", "fletcher32", "adler32"})

# Names that few files have, of codecs that take longer to import than all others of this format.
_RARE: Final = frozenset({"packbits", "reshape", "scale_offset", "cast_value"})


def parse_chain(claim: object, spec: ChunkSpec, where: str = "codecs") -> CodecChain:
    """Return the chain that a list of codecs claims, for chunks of `spec`.

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
    return [_spelled(stage, ndim) for stage in stages]


def serialized(chain: CodecChain, spec: ChunkSpec) -> CodecChain:
    """Return a chain whose serializer has a name here: raw items get their byte order.

    >>> import numpy as np
    >>> serialized(CodecChain(), ChunkSpec((3,), np.dtype(">i4"))).serializer
    Bytes(endian='big')
    """
    if any(isinstance(stage, BytesFilter) for stage in chain.compressors):
        raise UnsupportedError("zarr3: filters stand in front of what makes bytes of an array")
    if not isinstance(chain.serializer, Raw):
        return chain
    for stage in chain.filters:
        spec = stage.encoded(spec)
    order = byte_order(spec.dtype)
    serializer = Bytes("little" if order == "mixed" else order)
    return CodecChain(chain.filters, serializer, chain.compressors)


def _stage(found: Extension, spec: ChunkSpec) -> Stage | None:
    """Return the stage of an extension; None for one that a reader may do without."""
    name = found.name
    try:
        if name == Sharding.name:
            return _parse_sharding(found, spec)
        if name in _PARSERS:
            return _PARSERS[name](found.claims(), spec)
        if name in _RARE:
            rare: Stage = _values().PARSERS[name](found.claims(), spec)
            return rare
        if name in _SHARED or name.startswith(_FOREIGN):
            return _parse_shared(found)
    except IngotError as error:
        if str(error).startswith(found.where):
            raise
        raise type(error)(f"{found.where}: {error}") from None
    if found.optional:
        return None
    raise UnsupportedError(f"{found.where}: codec {shown(name)} is unknown")


def _parse_shared(found: Extension) -> Stage:
    name = found.name.removeprefix(_FOREIGN)
    stage = parse_stage({**found.configuration, "id": name})
    # What it is called here is what it is bound to there: the size of items.
    typesize = found.configuration.get("typesize")
    return stage.bind(typesize) if isinstance(stage, Blosc) and type(typesize) is int else stage


def _parse_blosc(claims: FieldReader, spec: ChunkSpec) -> Blosc:
    shuffle = claims.choice("shuffle", _SHUFFLES, "noshuffle")
    given = {key: claims.value(key, None) for key in ("cname", "clevel", "blocksize")}
    stage = Blosc.parse(
        FieldReader(claims.where, {key: value for key, value in given.items() if value is not None})
    )
    typesize = spec.dtype.itemsize
    if claims.value("typesize", None) is not None:
        typesize = claims.integer("typesize", low=1, high=2**31 - 1)
    claims.finish()
    return replace(stage, shuffle=_SHUFFLES.index(shuffle)).bind(typesize)


def _parse_gzip(claims: FieldReader, spec: ChunkSpec) -> Gzip:
    stage = Gzip(claims.integer("level", 1, low=0, high=9))
    claims.finish()
    return stage


def _parse_zstd(claims: FieldReader, spec: ChunkSpec) -> Stage:
    level = claims.integer("level", 0, low=-131072, high=22)
    checksum = claims.flag("checksum", False)
    claims.finish()
    return parse_stage({"id": "zstd", "level": level, "checksum": checksum})


def _parse_crc32c(claims: FieldReader, spec: ChunkSpec) -> Crc32c:
    claims.finish()
    return Crc32c()


def _parse_transpose(claims: FieldReader, spec: ChunkSpec) -> Transpose:
    order = claims.value("order")
    # Words for the two plain orders, from drafts of the specification.
    if order in ("C", "F"):
        claims.finish()
        axes = range(len(spec.shape))
        return Transpose(tuple(axes if order == "C" else reversed(axes)))
    return Transpose.parse(claims)


_PARSERS: Final[Mapping[str, Callable[[FieldReader, ChunkSpec], Stage]]] = {
    "bytes": lambda claims, spec: Bytes.parse(claims),
    "endian": lambda claims, spec: Bytes.parse(claims),
    "transpose": _parse_transpose,
    "blosc": _parse_blosc,
    "gzip": _parse_gzip,
    "zstd": _parse_zstd,
    "crc32c": _parse_crc32c,
    "vlen-utf8": lambda claims, spec: VlenUtf8.parse(claims),
    "vlen-bytes": lambda claims, spec: VlenBytes.parse(claims),
}


def _values() -> Any:
    return importlib.import_module("ingot.formats.zarr.v3_item_codecs")


def _parse_sharding(found: Extension, spec: ChunkSpec) -> Sharding:
    claims, where = found.claims(), f"{found.where}: {found.name}"
    inner = claims.integers("chunk_shape", low=1)
    location = claims.choice("index_location", ("start", "end"), "end")
    chain = parse_chain(
        claims.value("codecs"), ChunkSpec(inner, spec.dtype, spec.fill), f"{where}: codecs"
    )
    bare = Sharding(inner, chain, CodecChain())
    index = index_spec(bare.counts(spec.shape))
    index_chain = parse_chain(claims.value("index_codecs"), index, f"{where}: index_codecs")
    claims.finish()
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


def _encoded(found: Extension, stage: Filter, spec: ChunkSpec) -> ChunkSpec:
    try:
        return stage.encoded(spec)
    except (FormatError, UnsupportedError) as error:
        raise type(error)(f"{found.where}: {error}") from None


def _misplaced(found: Extension, stage: Stage) -> FormatError:
    if isinstance(stage, Compressor):
        return FormatError(
            f"{found.where}: {found.name!r} makes bytes of bytes, but is given an array"
        )
    return FormatError(f"{found.where}: {found.name!r} needs an array, but is given bytes")


def _spelled(stage: Stage, ndim: int) -> dict[str, Any]:
    name, configuration = stage.name, _configuration(stage, ndim)
    if configuration is None:
        config = {key: value for key, value in stage.config().items() if key != "id"}
        # Readers of these names want a configuration, be it empty.
        return {"name": _FOREIGN + name, "configuration": config}
    return {"name": name, "configuration": configuration} if configuration else {"name": name}


def _configuration(stage: Stage, ndim: int) -> dict[str, Any] | None:
    """Return the configuration of a stage that has a name of its own here, else None."""
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
        return {"level": stage.level if stage.level >= 0 else _USUAL_GZIP}
    if stage.name == "zstd":
        return {"checksum": False} | {k: v for k, v in stage.config().items() if k != "id"}
    plain = isinstance(stage, VlenUtf8 | VlenBytes) or stage == Crc32c()
    if stage.name in _RARE:
        found: dict[str, Any] | None = _values().configuration(stage)
        return found
    return {} if plain else None

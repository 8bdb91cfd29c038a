"""One chunk at a time in plain Python, and the native layout where there is one.

Knows how the bytes of a chunk become items and back, by the chain of its array: the twin of what
the native kernel does for a whole selection at once, and its oracle. Refuses to know stores,
commits and what a missing chunk means.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import Buffer, ChunkSpec
from ingot.formats.format import ChunkMap, sharded_of
from ingot.schema import ArraySchema
from ingot.stores.store import Feature

__all__ = ["decode", "encode", "fill_item", "native_layout", "plain_dtype", "read_outer"]

_FROM_OTHERS: Final = 2
_NATIVE_KINDS: Final = frozenset({"raw", "blosc", "zlib", "zstd", "lz4"})


def decode(data: Buffer, schema: ArraySchema, spec: ChunkSpec, limit: int) -> NDArray[Any]:
    """Return the chunk whose stored bytes are `data`; it may be read-only.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0))
    >>> decode(bytes([1, 0, 2, 0]), schema, schema.spec((0,)), limit=100)
    array([1, 2], dtype=int16)
    """
    return schema.chain.decode(data, spec, limit=limit)


def encode(chunk: NDArray[Any], schema: ArraySchema) -> bytes | None:
    """Return the bytes to be stored for a chunk; None when it holds nothing but the fill value.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0))
    >>> encode(np.array([1, 2], "<i2"), schema), encode(np.array([0, 0], "<i2"), schema)
    (b'\\x01\\x00\\x02\\x00', None)
    """
    if _is_all_fill(chunk, schema):
        return None
    return schema.chain.encode(chunk)


def fill_item(schema: ArraySchema) -> NDArray[Any]:
    """Return the fill value as an array without axes: also one that is a list or an array itself.

    >>> from ingot.codecs.codec import CodecChain
    >>> fill_item(ArraySchema((2,), np.dtype(object), (2,), CodecChain(), [1, 2])).shape
    ()
    """
    item = np.empty((), schema.dtype)
    item[()] = schema.fill
    return item


def native_layout(chunks: ChunkMap, limit: int, verify: str) -> native.Layout | None:
    """Return the array as the native kernel wants it, or None where only Python can.

    That is: the native kernel runs, keys are files that it may open, they follow from coordinates
    alone, as chunks or as shards with a plain index, and every codec of the chain has native code.
    """
    schema, template, sharding = chunks.schema, chunks.template, None
    sharded = sharded_of(chunks)
    if sharded is not None:
        sharding = sharded.levels[0].recipe if len(sharded.levels) == 1 else None
        template = None if sharding is None else sharded.shards.template
    if template is None or Feature.NATIVE not in chunks.store.features:
        return None
    # A buffer without axes has no shape to go by.
    if schema.variable or not schema.padded or not schema.shape or not schema.dtype.itemsize:
        return None
    if schema.edges:
        return None
    spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
    recipe = schema.chain.recipe(spec)
    if recipe is None or recipe.kind not in _NATIVE_KINDS or spec.nbytes > limit:
        return None
    return native.make_layout(
        root=chunks.store.root,  # type: ignore[attr-defined]
        names=(template.prefix, template.separator, template.suffix, template.scalar),
        shape=schema.shape,
        chunk=schema.chunks,
        axes=recipe.axes,
        itemsize=schema.dtype.itemsize,
        fill=fill_item(schema).tobytes(),
        kind=recipe.kind,
        codec=recipe.codec,
        level=recipe.level,
        filter=recipe.shuffle,
        typesize=recipe.typesize,
        blocksize=recipe.blocksize,
        checksum=recipe.checksum,
        sealed=recipe.sealed,
        verify=verify,
        sharding=sharding,
    )


def read_outer(
    layout: native.Layout,
    out: NDArray[Any],
    axes: Sequence[range | NDArray[np.int64]],
    threads: int,
) -> list[tuple[tuple[int, ...], str, BaseException]]:
    """Read what is selected along every axis on its own, and return what went wrong."""
    ranges = [axis if isinstance(axis, range) else range(1) for axis in axes]
    indices = [None if isinstance(axis, range) else axis for axis in axes]
    starts, steps = [each.start for each in ranges], [each.step for each in ranges]
    report = layout.read_outer(out, starts, steps, indices, threads)
    return [] if report is None else report[1]


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same size whose memory other languages can be shown.

    Dates cannot, nor types that other packages bring; a structure takes long to describe.

    >>> plain_dtype(np.dtype("M8[ns]")), plain_dtype(np.dtype(">f4"))
    (dtype('V8'), dtype('>f4'))
    """
    own = dtype.kind in "biufc" and dtype.isbuiltin != _FROM_OTHERS
    return dtype if own else np.dtype((np.void, dtype.itemsize))


def _is_all_fill(chunk: NDArray[Any], schema: ArraySchema) -> bool:
    if schema.variable:
        return bool((chunk == schema.fill).all()) if chunk.dtype.kind == "T" else False
    item = fill_item(schema).tobytes()
    # Byte for byte, so that -0.0 and the payloads of NaN survive.
    flat = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    size = len(item)
    return flat[:size].tobytes() == item and bool((flat[size:] == flat[:-size]).all())

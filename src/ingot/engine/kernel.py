"""One chunk at a time in plain Python, and the native layout where there is one.

Knows how the bytes of a chunk become items and back, by the chain of its array: the twin of what
the native kernel does for a whole selection at once, and its oracle. Refuses to know stores,
commits and what a missing chunk means.
"""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import Buffer, ChunkSpec
from ingot.errors import LimitError
from ingot.formats.format import ChunkMap, as_sharded
from ingot.schema import ArraySchema
from ingot.stores.store import Feature

__all__ = [
    "decode",
    "encode",
    "fill_item",
    "native_layout",
    "new_result",
    "picks_rows",
    "plain_dtype",
    "read_outer",
    "read_scattered",
]

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


def encode(chunk: NDArray[Any], schema: ArraySchema, number: int = 0) -> bytes | None:
    """Return the bytes to be stored for a chunk; None when it need not be stored.

    That is when it holds nothing but the fill value, and chunks may be absent.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0))
    >>> encode(np.array([1, 2], "<i2"), schema), encode(np.array([0, 0], "<i2"), schema)
    (b'\\x01\\x00\\x02\\x00', None)
    """
    if schema.sparse and _is_all_fill(chunk, schema):
        return None
    return schema.chain.encode(chunk, number)


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array for what is to be read, or complain that there is no room for it.

    >>> new_result((2**40, 2**20), np.dtype("f8"))
    Traceback (most recent call last):
    ingot.errors.LimitError: a result of (1099511627776, 1048576) items of float64: array is too ...
    """
    try:
        return np.empty(shape, dtype)
    except (ValueError, MemoryError) as error:
        raise LimitError(f"a result of {shape} items of {dtype}: {error}") from None


def fill_item(schema: ArraySchema) -> NDArray[Any]:
    """Return the fill value as an array without axes: also one that is a list or an array itself.

    >>> from ingot.codecs.codec import CodecChain
    >>> fill_item(ArraySchema((2,), np.dtype(object), (2,), CodecChain(), [1, 2])).shape
    ()
    """
    item = np.empty((), schema.dtype)
    item[()] = schema.fill
    return item


def native_layout(
    chunks: ChunkMap, limit: int, verify: str, before: ChunkMap
) -> native.Layout | None:
    """Return the array as the native kernel wants it, or None where only Python can.

    `before` is the array as it is stored, when `chunks` is what it is going to be.

    That is: the native kernel runs, keys are files that it may open, they follow from coordinates
    alone, as chunks or as shards with a plain index, and every codec of the chain has native code.
    """
    schema, template, sharding = chunks.schema, chunks.template, None
    sharded = as_sharded(chunks)
    if sharded is not None:
        sharding = sharded.levels[0].recipe if len(sharded.levels) == 1 else None
        template = None if sharding is None else sharded.shards.template
    if template is None or Feature.NATIVE not in chunks.store.features:
        return None
    # A buffer without axes has no shape to go by.
    if schema.variable or not schema.shape or not schema.dtype.itemsize:
        return None
    if schema.rectilinear:
        return None
    spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
    recipe = schema.chain.native_coding(spec)
    if recipe is None or recipe.kind not in _NATIVE_KINDS or spec.nbytes > limit:
        return None
    if schema.padded is recipe.framed:
        return None
    return native.make_layout(
        addresses={
            "root": chunks.store.root,  # type: ignore[attr-defined]
            "names": (template.prefix, template.separator, template.suffix, template.scalar),
            "leading": template.leading,
            "shards": sharding,
        },
        coding={
            "kind": recipe.kind,
            "codec": recipe.codec,
            "level": recipe.level,
            "filter": recipe.shuffle,
            "typesize": recipe.typesize,
            "blocksize": recipe.blocksize,
            "frame_checksum": recipe.checksum,
            "checksum": recipe.crc32c,
            "verify": verify,
            "framed": recipe.framed,
        },
        grid={
            "shape": schema.shape,
            "chunk": schema.chunks,
            "order": recipe.axes,
            "fill": fill_item(schema).tobytes(),
            "kind": schema.dtype.kind,
            "big_endian": schema.dtype.str.startswith(">"),
            "short": _short(schema, before.schema) if recipe.framed else None,
        },
    )


def resized_layout(
    layout: native.Layout | EllipsisType | None, chunks: ChunkMap, before: ChunkMap
) -> native.Layout | EllipsisType:
    """Return what `native_layout` would, from the layout of an array that was the same but longer.

    An ellipsis where that has to be asked.
    """
    old, new = before.schema, chunks.schema
    if layout is None or layout is ... or new.rectilinear or as_sharded(chunks) is not None:
        return ...
    # Whoever changes no more than the shape keeps the rest as it is.
    same = new.chain is old.chain and new.fill is old.fill and new.dtype is old.dtype
    if not same or new.chunks != old.chunks or chunks.template != before.template:
        return ...
    if not new.shape or chunks.store is not before.store:
        return ...
    return layout.resized(new.shape, None if new.padded else _short(new, old))


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


def picks_rows(axes: Sequence[range | NDArray[np.int64]], shape: tuple[int, ...]) -> bool:
    """Tell whether a selection has single rows, and all of each.

    >>> picks_rows((np.array([3, 1]), range(4)), (9, 4)), picks_rows((range(3),), (9,))
    (True, False)
    """
    whole = all(
        isinstance(axis, range) and axis == range(length)
        for axis, length in zip(axes[1:], shape[1:], strict=True)
    )
    return whole and not isinstance(axes[0], range)


def read_scattered(
    layout: native.Layout,
    out: NDArray[Any],
    axes: Sequence[range | NDArray[np.int64]],
    threads: int,
) -> list[tuple[tuple[int, ...], str, BaseException]]:
    """Read single rows of chunks that are cut in rows, each block once; return what went wrong."""
    rows = np.asarray(axes[0])
    if bool((rows[:-1] <= rows[1:]).all()):
        return layout.gather(out, rows, threads) or []
    order = np.argsort(rows, kind="stable")
    ascending = np.empty_like(out)
    troubles = layout.gather(ascending, rows[order], threads)
    out[order] = ascending
    return troubles or []


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same size whose memory other languages can be shown.

    Dates cannot, nor types that other packages bring; a structure takes long to describe.

    >>> plain_dtype(np.dtype("M8[ns]")), plain_dtype(np.dtype(">f4"))
    (dtype('V8'), dtype('>f4'))
    """
    own = dtype.kind in "biufc" and dtype.isbuiltin != _FROM_OTHERS
    return dtype if own else np.dtype((np.void, dtype.itemsize))


def _short(schema: ArraySchema, before: ArraySchema) -> tuple[int, int] | None:
    number, rows = divmod(before.shape[0], schema.chunks[0])
    return (number, rows) if rows and before.shape[0] < schema.shape[0] else None


def _is_all_fill(chunk: NDArray[Any], schema: ArraySchema) -> bool:
    if schema.variable:
        # Not with the text itself: NumPy would drop zeros at its end.
        return bool((chunk == fill_item(schema)).all()) if chunk.dtype.kind == "T" else False
    item = fill_item(schema).tobytes()
    # Byte for byte, so that -0.0 and the payloads of NaN survive.
    flat = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    size = len(item)
    return flat[:size].tobytes() == item and bool((flat[size:] == flat[:-size]).all())

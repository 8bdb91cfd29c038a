"""The coding of single chunks in Python, and the layout by which the native kernel is called.

Decodes and encodes one chunk by the codec chain of its array: the twin of what the native kernel
does for a whole selection, and its oracle. Opens no files, builds no commits, and does not decide
what a missing chunk means.
"""

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import Buffer, ChunkSpec, NativeCoding
from ingot.engine.flat import PayloadMap
from ingot.engine.handed import HandedLayout
from ingot.engine.parts import PartReader
from ingot.errors import LimitError
from ingot.formats.format import (
    ChunkMap,
    ChunkTable,
    Indexed,
    Keyed,
    SuperChunks,
    addressed,
    addresses,
    as_sharded,
)
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.stores.store import Feature, native_names, native_patches, native_root

__all__ = [
    "PYTHON_ONLY",
    "chunk_coder",
    "decode",
    "encode",
    "fill_item",
    "filled_result",
    "gather_rows",
    "handed_layout",
    "has_rows",
    "is_blosc",
    "native_layout",
    "new_result",
    "plain_dtype",
    "python_reason",
    "read_outer",
    "resized_layout",
    "run_layout",
    "selects_rows",
]

# The value of `dtype.isbuiltin` for a type that another package defines.
_FROM_ANOTHER_PACKAGE: Final = 2
_NATIVE_KINDS: Final = frozenset({"raw", "blosc", "zlib", "zstd", "lz4"})


PYTHON_ONLY: Final = (
    "objects and text of any length",
    "JSON",
    "codecs without native code: filters, gzip, bz2, lzma, and those of other packages",
)
"""What Python codes although the native kernel is built."""


def decode(data: Buffer, schema: ArraySchema, spec: ChunkSpec, limit: int) -> NDArray[Any]:
    """Return the chunk whose stored bytes are `data`; the array may be read-only.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0))
    >>> decode(bytes([1, 0, 2, 0]), schema, schema.spec((0,)), limit=100)
    array([1, 2], dtype=int16)
    """
    return schema.chain.decode(data, spec, limit=limit)


def encode(chunk: NDArray[Any], schema: ArraySchema, number: int = 0) -> bytes | None:
    """Return the bytes to store for a chunk; None when it need not be stored.

    A chunk need not be stored when chunks may be absent and it holds only the fill value.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0))
    >>> encode(np.array([1, 2], "<i2"), schema), encode(np.array([0, 0], "<i2"), schema)
    (b'\\x01\\x00\\x02\\x00', None)
    """
    if schema.sparse and _is_all_fill(chunk, schema):
        return None
    return schema.chain.encode(chunk, number)


def new_result(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an empty array for the result of a read, or raise `LimitError` if memory lacks.

    >>> new_result((2**40, 2**20), np.dtype("f8"))
    Traceback (most recent call last):
    ingot.errors.LimitError: a result of (1099511627776, 1048576) items of float64: array is too ...
    """
    try:
        return np.empty(shape, dtype)
    except (ValueError, MemoryError) as error:
        raise LimitError(f"a result of {shape} items of {dtype}: {error}") from None


def filled_result(shape: tuple[int, ...], schema: ArraySchema) -> NDArray[Any]:
    """Return an array for the result of a read that holds the fill value.

    >>> from ingot.codecs.codec import CodecChain
    >>> filled_result((2,), ArraySchema((9,), np.dtype("<i2"), (9,), CodecChain(), np.int16(7)))
    array([7, 7], dtype=int16)
    """
    fill = fill_item(schema)
    try:
        if not any(fill.tobytes()):
            return np.zeros(shape, schema.dtype)
        return np.full(shape, fill, schema.dtype)
    except (ValueError, MemoryError) as error:
        raise LimitError(f"a result of {shape} items of {schema.dtype}: {error}") from None


def fill_item(schema: ArraySchema) -> NDArray[Any]:
    """Return the fill value as an array without axes, even where it is a list or an array.

    >>> from ingot.codecs.codec import CodecChain
    >>> fill_item(ArraySchema((2,), np.dtype(object), (2,), CodecChain(), [1, 2])).shape
    ()
    """
    item = np.empty((), schema.dtype)
    item[()] = schema.fill
    return item


def native_layout(
    chunks: ChunkMap, options: Options, before: ChunkMap
) -> native.Layout | HandedLayout | None:
    """Return the array as the native kernel takes it, or None where no box of it can be.

    `before` is the map of the committed state, from which chunks are read; `chunks` may be that of
    the next state.

    The kernel opens files itself where keys are files and follow from coordinates alone, as chunks
    or as shards with plain indexes, and where the format has a table of places. Otherwise the store
    hands over the bytes of chunks.
    """
    return _box_layout(chunks, options, before, _places(chunks))


def handed_layout(
    chunks: ChunkMap, options: Options, before: ChunkMap
) -> native.Layout | HandedLayout | None:
    """Return what `native_layout` does, but a layout to which the store hands over all chunks."""
    return _box_layout(chunks, options, before, None)


def _box_layout(
    chunks: ChunkMap, options: Options, before: ChunkMap, places: dict[str, Any] | None
) -> native.Layout | HandedLayout | None:
    schema = chunks.schema
    # The kernel takes the shape of a box from its buffer, which needs at least one axis.
    if not schema.shape or schema.flat is not None:
        return None
    coding = _native_coding(schema, options.limits.chunk_bytes)
    if isinstance(coding, str) or (schema.padded and coding.framed):
        return None
    if not (schema.padded or coding.framed or _ends_exactly(schema)):
        return None
    layout = _make_layout(schema, before.schema, coding, places or {}, options.verify)
    if layout is None or places is not None:
        return layout
    parts = None
    if PartReader.serves(before, coding):
        parts = PartReader(before, coding, options.verify)
    return HandedLayout(layout, chunks, before, options, parts)


def run_layout(chunks: PayloadMap, options: Options) -> tuple[native.Layout, bool] | None:
    """Return what reads runs of a flat array natively, and whether chunks are handed to it.

    None where only Python can read them. The kernel opens the files itself where it can.
    """
    coding = _native_coding(chunks.schema, options.limits.chunk_bytes)
    if isinstance(coding, str):
        return None
    places = _places(chunks.chunks)
    layout = _make_layout(chunks.schema, chunks.schema, coding, places or {}, options.verify)
    if layout is None:
        return None
    return layout, places is None


def chunk_coder(schema: ArraySchema, options: Options) -> native.Layout | None:
    """Return what decodes and encodes whole chunks of an array natively, each by itself.

    None where only Python can: `python_reason` says why.
    """
    coding = _native_coding(schema, options.limits.chunk_bytes)
    if isinstance(coding, str):
        return None
    return _make_layout(schema, schema, coding, {}, options.verify)


def is_blosc(schema: ArraySchema) -> bool:
    """Return whether the chunks of an array are Blosc chunks, with or without a checksum.

    >>> from ingot.codecs.codec import CodecChain
    >>> is_blosc(ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0)))
    False
    """
    coding = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype, schema.fill))
    plain = coding is not None and not coding.framed and not coding.slotted
    return coding is not None and plain and coding.kind == "blosc"


def has_rows(schema: ArraySchema) -> bool:
    """Return whether the chunks of an array are rows with a trailer, each the value of a key.

    >>> from ingot.codecs.codec import CodecChain
    >>> has_rows(ArraySchema((2,), np.dtype("<i2"), (2,), CodecChain(), np.int16(0)))
    False
    """
    coding = schema.chain.native_coding(ChunkSpec(schema.chunks, schema.dtype, schema.fill))
    return coding is not None and coding.framed


def python_reason(schema: ArraySchema, options: Options) -> str | None:
    """Return why Python codes the chunks of an array; None where the native kernel does.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((2,), np.dtype(object), (2,), CodecChain(), 0)
    >>> python_reason(schema, Options()) is not None
    True
    """
    if native.choice().name != "native":
        return native.reason()
    coding = _native_coding(schema, options.limits.chunk_bytes)
    return coding if isinstance(coding, str) else None


def _native_coding(schema: ArraySchema, limit: int) -> NativeCoding | str:
    """Return how the native kernel codes chunks, or the reason why only Python can."""
    if schema.variable:
        return f"items of type {schema.dtype} lie outside of the array"
    if not schema.dtype.itemsize:
        return "items have no bytes"
    spec = ChunkSpec(schema.chunks, schema.dtype, schema.fill)
    if spec.nbytes > limit:
        return f"a chunk of {spec.nbytes} bytes, the limit is {limit}"
    coding = schema.chain.native_coding(spec)
    # Chunks of Blosc 2 are encoded where they lie in slots; elsewhere they have no further filter.
    if coding is None or not (coding.kind in _NATIVE_KINDS or coding.slotted):
        names = ", ".join(stage.name for stage in schema.codec) or schema.chain.serializer.name
        return f"the codec {names} is not native"
    return coding


def _places(chunks: ChunkMap) -> dict[str, Any] | None:
    """Return where the kernel finds the chunks of an array in files; None where it cannot."""
    if Feature.NATIVE not in chunks.store.features:
        return None
    found = addresses(chunks)
    if found is None:
        return None
    root = native_root(chunks.store)
    if isinstance(found, SuperChunks):
        patches = native_patches(chunks.store, found.holds)
        if patches is None or not found.are_indexed(patches):
            return None
        return {"root": root, "super_chunks": found.parts, "patches": patches}
    if isinstance(found, ChunkTable):
        if native_names(chunks.store) != {}:
            return None  # A journal changes some of the files.
        return {"root": root, "table": _columns(found)}
    template = found.template
    ndim = len(chunks.schema.shape)
    keyed = found if isinstance(found, Keyed) else Keyed(template)
    renamed = native_names(chunks.store, keyed.holds(ndim))
    if renamed is None:
        return None
    return {
        "root": root,
        "names": (template.prefix, template.separator, template.suffix, template.scalar),
        "leading": template.leading,
        "shards": found.levels if isinstance(found, Indexed) else None,
        "renamed": renamed or None,
        "parts": keyed.parts,
    }


def _columns(table: ChunkTable) -> tuple[Any, ...]:
    """Return a table of chunks as the kernel takes it, which copies the columns."""
    columns = (table.file, table.start, table.length, table.state)
    return list(table.files), *map(np.ascontiguousarray, columns), dict(table.constants)


def _make_layout(
    schema: ArraySchema,
    before: ArraySchema,
    coding: NativeCoding,
    places: dict[str, Any],
    verify: str,
) -> native.Layout | None:
    return native.make_layout(
        addresses=places,
        coding={
            "kind": coding.kind,
            "codec": coding.codec,
            "level": coding.level,
            "filter": coding.shuffle,
            "typesize": coding.typesize,
            "blocksize": coding.blocksize,
            "frame_checksum": coding.checksum,
            "checksum": coding.digest,
            "verify": verify,
            "framed": coding.framed,
            "slotted": coding.slotted,
        },
        grid={
            "shape": schema.shape or (1,),
            "chunk": schema.chunks or (1,),
            "order": coding.axes or (0,),
            "fill": fill_item(schema).tobytes(),
            "kind": schema.dtype.kind,
            "big_endian": schema.dtype.str.startswith(">"),
            "short": _short(schema, before) if coding.framed and schema.shape else None,
            "parts": coding.parts,
            "bounds": _bounds(schema),
        },
    )


def _bounds(schema: ArraySchema) -> list[NDArray[np.int64] | None]:
    """Return where chunks of several lengths start and the last one ends, for each axis."""
    if not any(schema.rectilinear):
        return []
    return [None if isinstance(axis, int) else axis.bounds for axis in schema.grid.axes]


def _ends_exactly(schema: ArraySchema) -> bool:
    """Return whether chunks of several lengths end where the array does, so that none is cut."""
    return any(schema.rectilinear) and schema.grid.reach == schema.shape


def resized_layout(
    layout: native.Layout | HandedLayout | EllipsisType | None, chunks: ChunkMap, before: ChunkMap
) -> native.Layout | EllipsisType:
    """Return what `native_layout` would, from the layout of the same array in another shape.

    Returns an ellipsis where only `native_layout` can answer.
    """
    old, new = before.schema, chunks.schema
    if layout is None or layout is ... or isinstance(layout, HandedLayout):
        return ...
    if new.rectilinear or as_sharded(chunks) is not None or addressed(chunks) is not None:
        return ...
    # A change of nothing but the shape keeps these objects.
    same = new.chain is old.chain and new.fill is old.fill and new.dtype is old.dtype
    if not same or new.chunks != old.chunks:
        return ...
    template, earlier = chunks.template, before.template
    if template is not earlier and template != earlier:
        return ...
    if not new.shape or chunks.store is not before.store:
        return ...
    return layout.resized(new.shape, None if new.padded else _short(new, old))


def read_outer(
    layout: native.Layout | HandedLayout,
    out: NDArray[Any],
    axes: Sequence[range | NDArray[np.int64]],
    threads: int,
    only: Sequence[int] | None = None,
) -> tuple[int, list[tuple[tuple[int, ...], str, BaseException]]] | None:
    """Read the outer product of the axes, and return what `native.Layout.read` does.

    `only` has the numbers of the files to read.
    """
    ranges = [axis if isinstance(axis, range) else range(1) for axis in axes]
    indices = [None if isinstance(axis, range) else axis for axis in axes]
    starts, steps = [each.start for each in ranges], [each.step for each in ranges]
    return layout.read_outer(out, starts, steps, indices, threads, only)


def selects_rows(axes: Sequence[range | NDArray[np.int64]], shape: tuple[int, ...]) -> bool:
    """Return whether a selection is an index array of rows, each of them whole.

    >>> selects_rows((np.array([3, 1]), range(4)), (9, 4)), selects_rows((range(3),), (9,))
    (True, False)
    """
    whole = all(
        isinstance(axis, range) and axis == range(length)
        for axis, length in zip(axes[1:], shape[1:], strict=True)
    )
    return whole and not isinstance(axes[0], range)


def gather_rows(
    layout: native.Layout | HandedLayout,
    out: NDArray[Any],
    axes: Sequence[range | NDArray[np.int64]],
    threads: int,
) -> list[tuple[tuple[int, ...], str, BaseException]]:
    """Read single rows, decoding each block once, and return the failures of chunks."""
    rows = np.asarray(axes[0])
    if bool((rows[:-1] <= rows[1:]).all()):
        return layout.gather(out, rows, threads) or []
    order = np.argsort(rows, kind="stable")
    ascending = np.empty_like(out)
    failures = layout.gather(ascending, rows[order], threads)
    out[order] = ascending
    return failures or []


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type of the same size that the buffer protocol describes, and quickly.

    It does not describe dates and the types of other packages; a structure takes long to describe.

    >>> plain_dtype(np.dtype("M8[ns]")), plain_dtype(np.dtype(">f4"))
    (dtype('V8'), dtype('>f4'))
    """
    own = dtype.kind in "biufc" and dtype.isbuiltin != _FROM_ANOTHER_PACKAGE
    return dtype if own else np.dtype((np.void, dtype.itemsize))


def _short(schema: ArraySchema, before: ArraySchema) -> tuple[int, int] | None:
    number, rows = divmod(before.shape[0], schema.chunks[0])
    return (number, rows) if rows and before.shape[0] < schema.shape[0] else None


def _is_all_fill(chunk: NDArray[Any], schema: ArraySchema) -> bool:
    if schema.variable:
        # Compared as an array: from a scalar text NumPy would drop zeros at the end.
        return bool((chunk == fill_item(schema)).all()) if chunk.dtype.kind == "T" else False
    item = fill_item(schema).tobytes()
    # Byte for byte, so that -0.0 and the payloads of NaN survive.
    flat = np.ascontiguousarray(chunk).reshape(-1).view(np.uint8)
    size = len(item)
    return flat[:size].tobytes() == item and bool((flat[size:] == flat[:-size]).all())

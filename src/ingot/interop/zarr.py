"""A codec pipeline for zarr-python: its arrays are read and written by Ingot.

    zarr.config.set({"codec_pipeline.path": "ingot.interop.zarr.IngotCodecPipeline"})

zarr-python gives a pipeline the chunks of a selection, each with the part of it that is wanted and
the place of that part in the result. The pipeline puts them together again as one key of the whole
array and hands it to an `ingot.Array`:

- In a `LocalStore` the array is opened by its path. The kernel reads the files, or only the blocks
  that are needed, and a write is one commit: a lock, one state for readers, nothing half-done.
- In any other store zarr-python fetches and stores the chunks, and Ingot codes them in memory.

zarr-python itself changes the shape of an array, outside of any lock. `append` of this module makes
one commit of new items and new shape, so that batches of several writers are not lost.

What Ingot does not hold as zarr-python does (objects, codecs of other packages, buffers outside of
the memory of the host) is left to the pipeline of zarr-python.

There are codecs for its own pipelines as well: `blosc` that is safe against hostile bytes, after

    zarr.config.set({"codecs.blosc": "ingot.interop.zarr.SafeBloscCodec"})

and `numcodecs.blosc2`, which needs no setting.
"""

import asyncio
import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import BytesBytesCodec, Codec, CodecPipeline
from zarr.codecs import BloscCodec
from zarr.core.array import create_codec_pipeline
from zarr.core.buffer import default_buffer_prototype
from zarr.core.codec_pipeline import BatchedCodecPipeline
from zarr.core.common import concurrent_map
from zarr.core.config import config
from zarr.registry import register_codec, register_pipeline
from zarr.storage import LocalStore, ObjectStore

from ingot import api, stores
from ingot.containers.array import Array
from ingot.containers.group import Group
from ingot.errors import ArgumentError, FormatError, IngotError, NotFoundError, UnsupportedError
from ingot.interop.numcodecs import Blosc2Chunks, SafeBlosc
from ingot.options import Options
from ingot.stores import MemoryStore
from ingot.stores.store import Extent

__all__ = [
    "Blosc2Codec",
    "Box",
    "ChunkPart",
    "IngotCodecPipeline",
    "SafeBloscCodec",
    "append",
    "parse_key",
    "whole_box",
]

Selector: TypeAlias = "int | slice | NDArray[Any]"

# A thread costs about 100 us: smaller reads are over before it would begin.
_LARGE: Final = 1 << 20
# The codecs that run natively, by their classes in zarr-python and in numcodecs.
_CODECS: Final = frozenset(
    (
        *("BytesCodec", "BloscCodec", "ZstdCodec", "GzipCodec", "Crc32cCodec", "TransposeCodec"),
        *("ShardingCodec", "Blosc", "Zstd", "GZip", "Zlib", "LZ4", "CRC32C"),
        *("SafeBloscCodec", "SafeBlosc", "VLenUTF8Codec", "VLenUTF8"),
    )
)
# The name of a codec that numcodecs knows and the specification does not.
_BLOSC2: Final = "numcodecs.blosc2"
# What zarr-python promises of a write: that it outlives the process.
_OPTIONS: Final = Options(durability="process")


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """A part of one chunk, and its place in the result: one entry of a batch of zarr-python."""

    coords: tuple[int, ...]
    inside: Any
    outside: Any


@dataclass(frozen=True, slots=True)
class Box:
    """A key of the whole array, and the box of the result that it fills."""

    key: tuple[int | slice, ...]
    outside: tuple[slice, ...]


class Plan(NamedTuple):
    """A batch of zarr-python: the path of an array, parts of its chunks, the shape of a chunk."""

    path: str
    parts: list[ChunkPart]
    chunk: tuple[int, ...]


def parse_key(key: str, axes: int, separator: str, named: bool) -> tuple[str, tuple[int, ...]]:
    """Return the path of an array and the coordinates of the chunk with a key.

    `named` tells keys that begin with a "c" (the default of Zarr 3) from those of Zarr 2.

    >>> parse_key("group/a/c/3/4", 2, "/", named=True)
    ('group/a/', (3, 4))
    >>> parse_key("a/3.4", 2, ".", named=False)
    ('a/', (3, 4))
    """
    folder, slash, name = key.rpartition("/")
    parts = [*folder.split("/"), name] if separator == "/" and slash else [name]
    if separator != "/":
        words = name.split(separator)
        path = folder + slash
    else:
        count = axes + named if axes or named else 1
        words, path = parts[-count:], "".join(f"{part}/" for part in parts[:-count])
    if named:
        first, *words = words
        if first != "c":
            raise ArgumentError(f"{key!r} is not the key of a chunk")
    if len(words) != (axes or (0 if named else 1)):
        raise ArgumentError(f"{key!r} is not the key of a chunk of {axes} axes")
    return path, tuple(map(int, words)) if axes else ()


def whole_box(parts: Sequence[ChunkPart], chunk: tuple[int, ...]) -> Box | None:
    """Return the one key that all parts together make up; None where they are no box.

    >>> left = ChunkPart((0,), (slice(3, 5),), (slice(0, 2),))
    >>> right = ChunkPart((1,), (slice(0, 4),), (slice(2, 6),))
    >>> whole_box([left, right], (5,))
    Box(key=(slice(3, 9, 1),), outside=(slice(0, 6, None),))
    """
    tables: list[dict[int, tuple[Any, Any]]] = [{} for _ in chunk]
    for part in parts:
        inside, outside = part.inside, part.outside
        if not isinstance(inside, tuple) or not isinstance(outside, tuple):
            return None
        if len(inside) != len(chunk):
            return None
        places = iter(outside)
        for table, number, selector in zip(tables, part.coords, inside, strict=True):
            if isinstance(selector, slice):
                place = next(places, None)
                if not isinstance(place, slice):
                    return None
            elif isinstance(selector, int | np.integer):
                place = None
            else:
                return None
            if table.setdefault(number, (selector, place)) != (selector, place):
                return None
        if next(places, None) is not None:
            return None
    # The parts are a product of the axes when there are as many of them, and all differ.
    count = 1
    for table in tables:
        count *= len(table)
    if count != len(parts) or len({part.coords for part in parts}) != count:
        return None
    axes = [_axis(table, length) for table, length in zip(tables, chunk, strict=True)]
    if any(axis is None for axis in axes):
        return None
    found = [axis for axis in axes if axis is not None]
    return Box(
        tuple(selector for selector, _ in found),
        tuple(place for _, place in found if place is not None),
    )


def _axis(
    table: Mapping[int, tuple[Any, Any]], length: int
) -> tuple[int | slice, slice | None] | None:
    """Return what the parts of one axis select together, and where it goes; None for no range."""
    start = step = first = end = None
    for number, (selector, place) in sorted(table.items()):
        if place is None:
            return (number * length + int(selector), None) if len(table) == 1 else None
        low, high, stride = selector.indices(length)
        count = len(range(low, high, stride))
        if stride < 1 or place.step not in (None, 1) or place.stop - place.start != count:
            return None
        low += number * length
        if start is None or end is None:
            start, step, first = low, stride, place.start
        elif (stride, place.start, low) != (step, end, start + step * (end - first)):
            return None
        end = place.stop
    if start is None or step is None or end is None:
        return None
    return slice(start, start + step * (end - first - 1) + 1, step), slice(first, end)


def _shifted(part: ChunkPart, chunk: tuple[int, ...]) -> Any:
    """Return the key of the whole array that selects a part of a chunk."""
    inside = part.inside if isinstance(part.inside, tuple) else (part.inside,)
    if len(inside) == 1 and getattr(inside[0], "ndim", 1) > 1:
        inside = inside[0].nonzero()  # A mask of the whole chunk.
    firsts = [number * length for number, length in zip(part.coords, chunk, strict=True)]
    return tuple(map(_moved, inside, firsts, chunk))


def _moved(selector: Selector, first: int, length: int) -> Selector:
    """Return what selects the same of the whole axis as of a chunk that begins at `first`."""
    if isinstance(selector, slice):
        start, stop, step = selector.indices(length)
        return slice(first + start, first + stop, step)
    if isinstance(selector, np.ndarray) and selector.dtype == bool:
        return np.flatnonzero(selector) + first
    return selector + first


def _is_whole(part: ChunkPart, chunk: tuple[int, ...]) -> bool:
    """Return whether a part is all of its chunk, what lies outside of the array included."""
    inside = part.inside if isinstance(part.inside, tuple) else ()
    return len(inside) == len(chunk) and all(
        isinstance(selector, slice) and selector.indices(length) == (0, length, 1)
        for selector, length in zip(inside, chunk, strict=True)
    )


@dataclass(frozen=True)
class IngotCodecPipeline(CodecPipeline):  # type: ignore[misc]  # zarr is not followed by mypy
    """The chunks of one array of zarr-python, read and written by Ingot.

    zarr-python makes it when the setting ``codec_pipeline.path`` names it.
    """

    metadata: Any
    store: Any
    other: Any
    """The pipeline of zarr-python for what Ingot leaves to it."""
    arrays: dict[Any, Array | None] = field(default_factory=dict, compare=False, repr=False)
    """The array at each path and mode, opened when it is first used; None if it cannot be."""

    # What zarr-python asks of every pipeline ------------------------------------------------------

    @classmethod
    def from_codecs(cls, codecs: Iterable[Codec]) -> Any:
        """Return a pipeline of zarr-python: codecs alone do not say what the array is."""
        return BatchedCodecPipeline.from_codecs(codecs)

    @classmethod
    def from_array_metadata_and_store(cls, array_metadata: Any, store: Any) -> "IngotCodecPipeline":
        """Return the pipeline of an array."""
        return cls(array_metadata, store, create_codec_pipeline(array_metadata))

    def __getstate__(self) -> tuple[Any, Any, Any]:
        return self.metadata, self.store, self.other

    def __setstate__(self, state: tuple[Any, Any, Any]) -> None:
        for name, value in zip(("metadata", "store", "other"), state, strict=True):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "arrays", {})

    def evolve_from_array_spec(self, array_spec: Any) -> "IngotCodecPipeline":
        """Return the pipeline itself: it was made for its array."""
        return self

    @property
    def supports_partial_decode(self) -> bool:
        """Whether zarr-python's own pipeline reads parts of a chunk."""
        return bool(self.other.supports_partial_decode)

    @property
    def supports_partial_encode(self) -> bool:
        """Whether zarr-python's own pipeline writes parts of a chunk."""
        return bool(self.other.supports_partial_encode)

    def __iter__(self) -> Iterator[Codec]:
        return iter(self.other)

    def validate(self, **array: Any) -> None:
        """Check the codecs against an array, as zarr-python does."""
        self.other.validate(**array)

    def compute_encoded_size(self, byte_length: int, array_spec: Any) -> int:
        """Return the size of encoded bytes, where it does not depend on the data."""
        return int(self.other.compute_encoded_size(byte_length, array_spec))

    async def decode(self, chunk_bytes_and_specs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
        """Decode chunks by the codecs of zarr-python."""
        found: Iterable[Any] = await self.other.decode(chunk_bytes_and_specs)
        return found

    async def encode(self, chunk_arrays_and_specs: Iterable[tuple[Any, Any]]) -> Iterable[Any]:
        """Encode chunks by the codecs of zarr-python."""
        made: Iterable[Any] = await self.other.encode(chunk_arrays_and_specs)
        return made

    # Reading and writing --------------------------------------------------------------------------

    async def read(
        self, batch_info: Iterable[Any], out: Any, drop_axes: tuple[int, ...] = ()
    ) -> tuple[Any, ...]:
        """Fill `out` with parts of chunks; return for each that it was there, or is fill."""
        batch = list(batch_info)
        plan = self._plan(batch, out)
        if plan is None:
            return await self._left(self.other.read, batch, out, drop_axes)
        path, parts, chunk = plan
        result = out.as_ndarray_like()
        array = self._opened(path, "r", parts, chunk, result.dtype)
        if array is None:
            store = await self._fetched(batch, plan, writing=False)
            array = None if store is None else _open(store, "r", result.dtype)
        if array is None:
            return await self._left(self.other.read, batch, out, drop_axes)
        await _run(_read, array, parts, chunk, result, drop_axes, size=result.nbytes)
        return tuple({"status": "present"} for _ in batch)

    async def write(
        self, batch_info: Iterable[Any], value: Any, drop_axes: tuple[int, ...] = ()
    ) -> None:
        """Store parts of chunks; in a `LocalStore` all of them by one commit."""
        batch = list(batch_info)
        plan = None
        if not any(entry[1].config.write_empty_chunks for entry in batch[:1]):
            plan = self._plan(batch, value)
        if plan is None:
            await self.other.write(batch, value, drop_axes)
            return
        path, parts, chunk = plan
        values = value.as_ndarray_like()
        array = None
        if not self.store.read_only:
            array = self._opened(path, "r+", parts, chunk, values.dtype)
        if array is not None:
            await _run(_write, array, parts, chunk, values, drop_axes, size=values.nbytes)
            return
        store = await self._fetched(batch, plan, writing=True)
        array = None if store is None else _open(store, "r+", values.dtype)
        if store is None or array is None:
            await self.other.write(batch, value, drop_axes)
            return
        await _run(_write, array, parts, chunk, values, drop_axes, size=values.nbytes)
        await _map(_store, [(entry[0], store, path, entry[1].prototype) for entry in batch])

    async def _left(
        self, read: Any, batch: list[Any], out: Any, drop_axes: tuple[int, ...]
    ) -> tuple[Any, ...]:
        """Read by the pipeline of zarr-python, whose older versions return nothing."""
        return await read(batch, out, drop_axes) or ()

    def _plan(self, batch: list[Any], buffer: Any) -> Plan | None:
        """Return what a batch is made of; None for what is left to zarr-python."""
        values = buffer.as_ndarray_like()
        if not batch or not isinstance(values, np.ndarray) or not _is_held(values.dtype):
            return None
        spec = batch[0][1]
        if getattr(spec.config, "read_missing_chunks", True) is False:
            return None
        if any(entry[1] is not spec and entry[1].shape != spec.shape for entry in batch):
            return None
        style = _key_style(self.metadata)
        if style is None or not _is_known(self.metadata):
            return None
        separator, named = style
        parts, path = [], None
        try:
            for getter, _, inside, outside, *_ in batch:
                found, coords = parse_key(getter.path, len(spec.shape), separator, named)
                if path is None:
                    path = found
                elif path != found:
                    return None
                parts.append(ChunkPart(coords, inside, outside))
        except (AttributeError, ValueError):
            # No path in a store: the chunks of a shard, for example.
            return None
        return Plan(path or "", parts, tuple(spec.shape))

    def _opened(
        self,
        path: str,
        mode: Any,
        parts: Sequence[ChunkPart],
        chunk: tuple[int, ...],
        dtype: np.dtype[Any],
    ) -> Array | None:
        """Return the array in the folder of a `LocalStore`; None for other stores and arrays."""
        if type(self.store) is not LocalStore:
            return None
        key = path, mode
        if key not in self.arrays:
            array = _open(os.path.join(str(self.store.root), path), mode, dtype)
            if array is not None and not self._is_of(array):
                array = None
            self.arrays[key] = array
        array = self.arrays[key]
        if array is None or array.dtype != dtype:
            return None
        # zarr-python changes the shape of an array without making another pipeline.
        ends = [max(axis) for axis in zip(*(part.coords for part in parts), strict=True)]
        for _ in range(2):
            limits = zip(ends, chunk, array.shape, strict=True)
            if all(number * length < axis for number, length, axis in limits):
                return array
            array.refresh()
        return None

    def _is_of(self, array: Array) -> bool:
        """Return whether the stored metadata is what zarr-python has in memory, but for shapes."""
        documents = self._documents((), ())
        own = None if documents is None else _open(MemoryStore(documents), "r", array.dtype)
        if own is None:
            return False
        pairs = ((own.chunks, array.chunks), (own.codec, array.codec), (own.ndim, array.ndim))
        same = all(one == other for one, other in pairs)
        fills = np.asarray(own.fill), np.asarray(array.fill)
        if array.dtype.kind == "T":
            return same and bool(fills[0] == fills[1])
        return same and fills[0].tobytes() == fills[1].tobytes()

    def _documents(
        self, parts: Sequence[ChunkPart], chunk: tuple[int, ...]
    ) -> dict[str, bytes] | None:
        """Return the metadata as it is stored, with a shape that reaches around some chunks.

        zarr-python changes the shape of an array without making another pipeline, and the items of
        a chunk do not depend on it. None for metadata that is not written.
        """
        name = "zarr.json" if self.metadata.zarr_format == 3 else ".zarray"
        try:
            found = self.metadata.to_buffer_dict(default_buffer_prototype())
            document = json.loads(found[name].to_bytes())
        except (KeyError, TypeError, ValueError):
            return None
        document.pop("attributes", None)
        if parts:
            coords = zip(*(part.coords for part in parts), strict=True)
            counts = (max(axis) + 1 for axis in coords)
            document["shape"] = [
                count * length for count, length in zip(counts, chunk, strict=True)
            ]
        return {name: json.dumps(document).encode()}

    async def _fetched(self, batch: list[Any], plan: Plan, *, writing: bool) -> MemoryStore | None:
        """Return a store with the metadata and the chunks of a batch, as zarr-python fetches them.

        None for shards of which a part is wanted: zarr-python fetches only that part. Chunks that
        are written as a whole are not fetched.
        """
        path, parts, chunk = plan
        # Shards keep the items beyond the end of the array: a part of one is never all of it.
        sharded = _is_sharded(self.metadata)
        if None in self.arrays or (sharded and not all(_is_whole(part, chunk) for part in parts)):
            return None
        documents = self._documents(parts, chunk)
        if documents is None or _open(MemoryStore(documents), "r", None) is None:
            self.arrays[None] = None  # It will not be tried again.
            return None
        wanted = [
            (getter, spec.prototype)
            for getter, spec, _, _, whole in batch
            if not (writing and whole)
        ]
        found = await _map(_fetch, wanted)
        content = {key.removeprefix(path): data for key, data in found if data is not None}
        return MemoryStore({**documents, **content})


def append(array: Any, values: object, axis: int = 0) -> Any:
    """Append to an array of zarr-python by one commit; return the array as it is then.

    Any number of processes append to one array, and no batch is lost, if all of them append by this
    function or by Ingot. The array lies in a `LocalStore` or in an `ObjectStore` of obstore.

    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = zarr.create_array(folder, shape=2, chunks=2, dtype="i4")
    ...     append(array, [7, 8, 9])[:]
    array([0, 0, 7, 8, 9], dtype=int32)
    """
    _writable(array).append(values, axis)
    format = array.metadata.zarr_format
    return zarr.open_array(array.store_path, mode="r+", zarr_format=format)


def _writable(array: Any) -> Array:
    """Return an array of zarr-python as one of Ingot that writes to the same place."""
    store, path = array.store, array.path
    if store.read_only:
        raise ArgumentError(f"{array.store_path}: the store was opened for reading")
    if type(store) is LocalStore:
        found = api.open(os.path.join(str(store.root), path), "r+", options=_OPTIONS)
    elif type(store) is ObjectStore:
        found = _in_bucket(store.store, path)
    else:
        raise UnsupportedError(f"{type(store).__name__}: a local folder or an obstore is needed")
    assert isinstance(found, Array)
    return found


def _in_bucket(bucket: Any, path: str) -> Any:
    """Return the array at a path of a bucket, as a part of the outermost group that has it.

    The group has the record by which all writers wait for each other.
    """
    parts = path.split("/") if path else []
    for count in range(len(parts)):
        place = stores.ObjectStore(bucket, "/".join(parts[:count]), writable=True)
        try:
            group = api.open(place, "r+", options=_OPTIONS)
        except (NotFoundError, FormatError):
            continue
        inner = "/".join(parts[count:])
        if isinstance(group, Group) and inner in group:
            return group[inner]
    return api.open(stores.ObjectStore(bucket, path, writable=True), "r+", options=_OPTIONS)


def _open(place: Any, mode: Any, dtype: np.dtype[Any] | None) -> Array | None:
    """Return an array with items of a type; None for what Ingot refuses or holds otherwise."""
    try:
        array = api.open(place, mode, options=_OPTIONS)
    except (IngotError, OSError):
        return None
    if not isinstance(array, Array) or not _is_held(array.dtype):
        return None
    return array if dtype is None or array.dtype == dtype else None


def _is_held(dtype: np.dtype[Any]) -> bool:
    """Return whether items are held as zarr-python holds them: numbers, times, NumPy's strings."""
    return dtype.kind == "T" or not dtype.hasobject


def _key_style(metadata: Any) -> tuple[str, bool] | None:
    """Return how chunk keys are spelled: the separator, and whether they begin with a "c".

    None where keys or chunks follow other rules: another encoding, chunks of several lengths.
    """
    if metadata.zarr_format == 2:
        return metadata.dimension_separator, False
    if not hasattr(metadata.chunk_grid, "chunk_shape"):
        return None
    encoding = metadata.chunk_key_encoding
    if encoding.name not in ("default", "v2"):
        return None
    return encoding.separator, encoding.name == "default"


def _codecs(metadata: Any) -> Iterator[Any]:
    """Yield the codecs of an array, those inside of shards too."""
    if metadata.zarr_format == 2:
        yield from (*(metadata.filters or ()), *filter(None, [metadata.compressor]))
        return
    waiting = list(metadata.codecs)
    while waiting:
        codec = waiting.pop()
        waiting += (*getattr(codec, "codecs", ()), *getattr(codec, "index_codecs", ()))
        yield codec


def _is_known(metadata: Any) -> bool:
    """Return whether Ingot has native code for all codecs of an array."""
    return all(type(codec).__name__ in _CODECS for codec in _codecs(metadata))


def _is_sharded(metadata: Any) -> bool:
    return any(type(codec).__name__ == "ShardingCodec" for codec in _codecs(metadata))


async def _run(job: Any, *arguments: Any, size: int) -> None:
    """Run a job here, or in a thread where it takes long enough to keep other tasks waiting."""
    if size < _LARGE:
        job(*arguments)
    else:
        await asyncio.to_thread(job, *arguments)


async def _map(job: Any, items: list[Any]) -> list[Any]:
    found: list[Any] = await concurrent_map(items, job, config.get("async.concurrency"))
    return found


async def _fetch(getter: Any, prototype: Any) -> tuple[str, bytes | None]:
    data = await getter.get(prototype)
    return getter.path, None if data is None else data.to_bytes()


async def _store(setter: Any, store: MemoryStore, path: str, prototype: Any) -> None:
    (data,) = store.read([Extent(setter.path.removeprefix(path))])
    if data is None:
        await setter.delete()
    else:
        await setter.set(prototype.buffer.from_bytes(data))


def _read(
    array: Array,
    parts: Sequence[ChunkPart],
    chunk: tuple[int, ...],
    out: NDArray[Any],
    drop_axes: tuple[int, ...],
) -> None:
    """Read parts of chunks into their places: by one call where they are a box."""
    box = whole_box(parts, chunk) if not drop_axes else None
    if box is not None:
        array.read(box.key, out=out[box.outside] if box.outside else out)
        return
    with array.snapshot():
        for part in parts:
            items = array[_shifted(part, chunk)]
            if drop_axes:
                items = items.squeeze(axis=drop_axes)
            out[part.outside] = items


def _write(
    array: Array,
    parts: Sequence[ChunkPart],
    chunk: tuple[int, ...],
    values: NDArray[Any],
    drop_axes: tuple[int, ...],
) -> None:
    """Assign parts of chunks, all of them in one commit."""
    box = whole_box(parts, chunk) if not drop_axes else None
    if box is not None:
        array[box.key] = values[box.outside] if values.ndim else values
        return
    group: AbstractContextManager[None] = nullcontext() if len(parts) == 1 else array.transaction()
    added = tuple(None if axis in drop_axes else slice(None) for axis in range(len(chunk)))
    with group:
        for part in parts:
            items = values[part.outside] if values.ndim else values
            array[_shifted(part, chunk)] = items[added] if drop_axes and values.ndim else items


class SafeBloscCodec(BloscCodec):  # type: ignore[misc]
    """The codec `blosc` of zarr-python, by the kernels of Ingot.

    >>> SafeBloscCodec(cname="lz4").to_dict()["configuration"]["cname"]
    'lz4'
    """

    @cached_property
    def _blosc_codec(self) -> SafeBlosc:
        # The one that zarr-python makes has the parameters, but not the item size.
        made = super()._blosc_codec
        return SafeBlosc(
            made.cname, made.clevel, made.shuffle, made.blocksize, typesize=self.typesize
        )


@dataclass(frozen=True)
class Blosc2Codec(BytesBytesCodec):  # type: ignore[misc]
    """The codec `blosc2` of `ingot.interop.numcodecs` in Zarr version 3.

    >>> Blosc2Codec(clevel=1).to_dict()["name"]
    'numcodecs.blosc2'
    """

    cname: str = "lz4"
    clevel: int = 5
    shuffle: int = 1
    blocksize: int = 0
    typesize: int = field(default=1, compare=False, repr=False)
    """That of the items of the array; the document does not say it."""

    is_fixed_size: ClassVar[bool] = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Blosc2Codec":
        """Return the codec that a document describes."""
        return cls(**data.get("configuration", {}))

    def to_dict(self) -> dict[str, Any]:
        """Return the codec as a document describes it."""
        names = "cname", "clevel", "shuffle", "blocksize"
        return {"name": _BLOSC2, "configuration": {name: getattr(self, name) for name in names}}

    def evolve_from_array_spec(self, array_spec: Any) -> "Blosc2Codec":
        """Return the codec for the items of an array."""
        return replace(self, typesize=getattr(array_spec.dtype, "item_size", 1))

    def compute_encoded_size(self, _input_byte_length: int, _chunk_spec: Any) -> int:
        """Raise an error: the size of a compressed chunk is not known before."""
        raise NotImplementedError

    async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        data = await asyncio.to_thread(self._codec.decode, chunk_bytes.as_numpy_array())
        return chunk_spec.prototype.buffer.from_bytes(data)

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        data = await asyncio.to_thread(
            self._codec.encode_items, chunk_bytes.as_numpy_array(), self.typesize
        )
        return chunk_spec.prototype.buffer.from_bytes(data)

    @property
    def _codec(self) -> Blosc2Chunks:
        return Blosc2Chunks(self.cname, self.clevel, self.shuffle, self.blocksize)


register_pipeline(IngotCodecPipeline)
register_codec("blosc", SafeBloscCodec)
register_codec(_BLOSC2, Blosc2Codec)
# zarr-python warns of every file in a group that it does not know; a writer's lock file is one.
warnings.filterwarnings("ignore", r"Object at \.(lock|commit) is not recognized", UserWarning)

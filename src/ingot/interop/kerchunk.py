"""References: a virtual Zarr dataset over chunks that lie in files of other formats.

A chunk of plain Blosc 1 is the same bytes in a bcolz folder, in a Bloscpack file, in a blsk file
and in Zarr. References say, for each key of a Zarr dataset (version 2), in which file and where its
bytes lie. fsspec's ``reference://`` file system serves them, and zarr-python, xarray and
VirtualiZarr read them, without a byte copied.

What Zarr would read otherwise, or not at all, is refused, with a reason for each array.
"""

import base64
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, TypeAlias

import numpy as np

from ingot import api
from ingot.blosc.chunk import compress
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import Stage
from ingot.codecs.compressors import Blosc
from ingot.containers.array import Array
from ingot.containers.column import TableColumn
from ingot.containers.create import ArraySpec
from ingot.containers.group import Group
from ingot.containers.ragged import Ragged
from ingot.containers.table import Table
from ingot.dtypes import DType
from ingot.errors import CorruptionError, IngotError, UnsupportedError
from ingot.formats.format import ChunkMap, stored_map
from ingot.formats.registry import format_named
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.stores import MemoryStore
from ingot.stores.store import Extent, Feature, Put, Store, native_root

__all__ = ["references"]

References: TypeAlias = dict[str, Any]

# The codecs of Blosc that numcodecs, by which zarr-python decodes, was built with.
_CODECS: Final = frozenset({"blosclz", "lz4", "zlib", "zstd"})
_BLOSC_1: Final = frozenset({1, 2})
# How many headers of chunks are read at a time.
_BATCH: Final = 4096
_DIMENSIONS: Final = "_ARRAY_DIMENSIONS"
_ROW: Final = "row"


def references(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    inline: bool = False,
    url: str | None = None,
    options: Options | None = None,
) -> References:
    """Return references to the chunks of a dataset, as version 1 of kerchunk's JSON has them.

    A group or a table becomes a group of Zarr version 2, an array by itself an array. `columns` are
    the members that are wanted. An array that cannot be referenced is an `UnsupportedError` with
    the reason: chunks of other codecs, a last chunk that is shorter than the others, chunks that
    are no box of the array. With `inline`, a shorter last chunk is filled up and put into the
    references themselves. `url` stands for the path where the files lie for readers, such as
    "s3://bucket/old.bcolz".

    >>> import ingot, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = ingot.array(range(6), folder.name + "/a.bcolz", dtype="i4", chunks=3)
    >>> found = references(folder.name + "/a.bcolz", url="s3://old/a.bcolz")["refs"]
    >>> sorted(found), found["1"]
    (['.zarray', '.zattrs', '0', '1'], ['s3://old/a.bcolz/data/__1.blp', 16, 28])
    >>> folder.cleanup()
    """
    opened = api.open(path, options=options)
    if "://" in os.fspath(path):
        raise UnsupportedError(
            f"{os.fspath(path)}: references are made where the files are; `url` says where readers "
            "find them"
        )
    with opened.snapshot():
        if opened._unfinished:
            raise UnsupportedError(
                f"{os.fspath(path)}: a writer has died in a commit; the next one finishes it"
            )
        run = _Collection(os.fspath(path), url, inline)
        if isinstance(opened, Array):
            run.add("", opened, [])
        else:
            run.add_group("", opened, columns)
    if run.reasons:
        raise UnsupportedError(f"{os.fspath(path)}: no references: {'; '.join(run.reasons)}")
    return {"version": 1, "refs": run.refs}


@dataclass(slots=True)
class _Collection:
    """Collects references, and the reasons why arrays have none."""

    path: str
    url: str | None
    inline: bool
    refs: References = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)

    def add_group(self, prefix: str, node: Any, columns: Sequence[str] | None) -> None:
        """Add the members of a group, or the columns of a table."""
        if isinstance(node, Ragged):
            self.reasons.append("items of variable length have no chunks of Zarr")
            return
        self.refs[f"{prefix}.zgroup"] = json.dumps({"zarr_format": 2})
        self.refs[f"{prefix}.zattrs"] = json.dumps(dict(node.attrs))
        is_table = isinstance(node, Table)
        for name in columns if columns is not None else node.names if is_table else node:
            member = node[name]
            if isinstance(member, Group | Table):
                self.add_group(f"{prefix}{name}/", member, None)
            elif isinstance(member, Ragged):
                self.reasons.append(f"{prefix}{name}: its items are of variable length")
            else:
                first = _ROW if is_table else f"{name}_dim_0"
                self.add(f"{prefix}{name}/", member, [first])

    def add(self, prefix: str, array: Array, dimensions: list[str]) -> None:
        """Add one array, or the reason why it cannot be."""
        name = prefix.rstrip("/") or "array"
        try:
            found = _ChunkReferences.of(array)
            refs: References = dict(found.documents(_dimensions(array, name, dimensions)))
            for key, place in found.places(inline=self.inline):
                at = self._at(found.chunks.store, place) if isinstance(place, Extent) else place
                refs[key] = at
        except IngotError as error:
            self.reasons.append(f"{name}: {error}")
            return
        self.refs.update({f"{prefix}{key}": value for key, value in refs.items()})

    def _at(self, store: Store, place: Extent) -> list[Any]:
        """Return a reference to bytes of a file."""
        whole = os.path.join(native_root(store), place.key)
        if self.url is not None:
            inside = os.path.relpath(whole, self.path)
            whole = self.url if inside == "." else f"{self.url.rstrip('/')}/{inside}"
        return [whole, place.start, place.length]


@dataclass(frozen=True, slots=True)
class _ChunkReferences:
    """The chunks of one array, and what they are in Zarr."""

    array: Array
    chunks: ChunkMap

    @classmethod
    def of(cls, array: Array) -> "_ChunkReferences":
        """Return the chunks of an array; `UnsupportedError` where they cannot be those of Zarr."""
        chunks = array._chunks
        schema, store = chunks.schema, chunks.store
        if Feature.NATIVE not in store.features:
            raise UnsupportedError(f"{store.location} has no files that other programs read")
        if stored_map(chunks) is not chunks:
            raise UnsupportedError("its chunks lie in shards")
        if schema.rectilinear:
            raise UnsupportedError("its chunks have several lengths")
        if schema.variable or schema.dtype.hasobject:
            raise UnsupportedError(f"items of {schema.dtype} are not stored by their bytes")
        if not _has_plain_fields(schema.dtype):
            raise UnsupportedError(f"zarr-python has no such fields: {schema.dtype}")
        if isinstance(array, TableColumn) and array.has_nulls:
            raise UnsupportedError("it has nulls, which arrays of Zarr do not have")
        if not _is_blosc(schema.codec):
            names = ", ".join(stage.name for stage in schema.codec)
            raise UnsupportedError(f"its codec is {names or 'none'}, not Blosc alone")
        whole = math.prod(schema.chunks) * schema.dtype.itemsize
        if schema.flat is not None and schema.flat.chunk_bytes != whole:
            raise UnsupportedError(
                f"chunks of {schema.flat.chunk_bytes} bytes are no boxes of the array"
            )
        return cls(array, chunks)

    @property
    def schema(self) -> ArraySchema:
        """What the array is."""
        return self.chunks.schema

    def documents(self, dimensions: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the metadata of the array in Zarr version 2, by keys."""
        schema, zarr = self.schema, format_named("zarr2")
        codec = next(stage for stage in schema.codec if isinstance(stage, Blosc))
        attrs = {**dict(self.array.attrs), _DIMENSIONS: list(dimensions)}
        layout = {"order": schema.order}
        given = schema.shape, schema.dtype, schema.chunks, codec, schema.fill
        spec = ArraySpec(*given, attrs=attrs, layout=layout)
        _, commit = zarr.create(MemoryStore(), spec.schema(zarr), "", **layout)
        for edit in commit.edits:
            if isinstance(edit, Put):
                document = json.loads(bytes(edit.data))
                if edit.key == ".zarray" and not self._states_fill():
                    document["fill_value"] = None
                yield edit.key, json.dumps(document)

    def _states_fill(self) -> bool:
        """Return whether Zarr is told the fill value, which xarray takes for missing values."""
        stated = self.array.format.startswith("zarr") and self.array.fill_stated
        return stated or (
            self.schema.sparse and bool(np.asarray(self.schema.fill).tobytes().strip(b"\0"))
        )

    def places(self, *, inline: bool) -> Iterator[tuple[str, Extent | str]]:
        """Yield the key of each stored chunk, and where its bytes lie, or the bytes themselves."""
        count = self.schema.chunk_count
        for first in range(0, count, _BATCH):
            for number, place, head in self._headers(range(first, min(first + _BATCH, count))):
                coords = self._coords(number)
                key = ".".join(map(str, coords)) or "0"
                try:
                    header = ChunkHeader.parse(head, int.from_bytes(head[12:16], "little"))
                    whole = self._check(header, place, inline=inline)
                except IngotError as error:
                    raise UnsupportedError(f"chunk {key}: {error}") from error
                start = place.start + self.schema.chain.head_bytes
                at = Extent(place.key, start, header.cbytes)
                yield key, at if whole else self._filled_up(coords)

    def _coords(self, number: int) -> tuple[int, ...]:
        """Return the coordinates of a chunk as Zarr counts them."""
        schema = self.schema
        if schema.flat is None:
            return schema.grid.coords(number)
        axis = 0 if schema.order == "C" else len(schema.shape) - 1
        return tuple(number * (each == axis) for each in range(len(schema.shape)))

    def _headers(self, numbers: range) -> Iterator[tuple[int, Extent, bytes]]:
        """Yield the stored chunks of some numbers, with the headers of their Blosc chunks."""
        schema, store = self.schema, self.chunks.store
        flat = schema.flat is not None
        coords = [(number,) if flat else schema.grid.coords(number) for number in numbers]
        found = self.chunks.locate(np.array(coords, np.int64).reshape(len(coords), -1))
        stored = [
            (number, place)
            for number, place in zip(numbers, found, strict=True)
            if isinstance(place, Extent)
        ]
        skipped = schema.chain.head_bytes
        heads = [
            Extent(each.key, each.start + skipped, EXTENDED_HEADER_BYTES) for _, each in stored
        ]
        for (number, place), head in zip(stored, store.read(heads), strict=True):
            if head is not None:
                yield number, place, head
            elif not schema.sparse:
                raise CorruptionError(f"chunk {number}, {place.key!r}, is missing")

    def _check(self, header: ChunkHeader, place: Extent, *, inline: bool) -> bool:
        """Return whether a chunk is whole; raise an error if Zarr cannot read it."""
        schema, store = self.schema, self.chunks.store
        if header.version not in _BLOSC_1 or header.codec not in _CODECS:
            raise UnsupportedError(
                f"Blosc format {header.version} with {header.codec} is not read by numcodecs"
            )
        end = place.start + schema.chain.head_bytes + header.cbytes
        size = store.size(place.key) or 0
        if end > size:
            raise CorruptionError(f"it ends at {end} of {place.key!r}, which has {size} bytes")
        whole = math.prod(schema.chunks) * schema.dtype.itemsize
        if header.nbytes != whole and not inline:
            raise UnsupportedError(
                f"it holds {header.nbytes} bytes, a chunk of Zarr {whole}; inline=True fills it up"
            )
        return header.nbytes == whole

    def _filled_up(self, coords: tuple[int, ...]) -> str:
        """Return a chunk that is shorter than others as text: whole, with the fill value."""
        schema = self.schema
        box = tuple(
            slice(number * size, (number + 1) * size)
            for number, size in zip(coords, schema.chunks, strict=True)
        )
        items = np.asarray(self.array[box])
        chunk = np.full(schema.chunks, schema.fill, schema.dtype, order="C")
        chunk[tuple(map(slice, items.shape))] = items
        data = compress(
            chunk.tobytes("F" if schema.order == "F" else "C"),
            typesize=min(schema.dtype.itemsize, 255),
        )
        return f"base64:{base64.b64encode(data).decode()}"


def _has_plain_fields(dtype: DType) -> bool:
    """Return whether items have no fields, or fields without gaps, fields and arrays in them."""
    fields = [dtype[name] for name in dtype.names or ()]
    nested = any(each.subdtype is not None or each.names is not None for each in fields)
    return not nested and sum(each.itemsize for each in fields) in (0, dtype.itemsize)


def _is_blosc(codec: Sequence[Stage]) -> bool:
    """Return whether chunks are Blosc chunks, apart from a checksum behind them."""
    bare = [stage for stage in codec if getattr(stage, "appended", None) is None]
    return len(bare) == 1 and isinstance(bare[0], Blosc)


def _dimensions(array: Array, name: str, unnamed: Sequence[str]) -> list[str]:
    """Return a name for each dimension of an array; `unnamed` are those of the first ones."""
    stated = array.dimension_names or array.attrs.get(_DIMENSIONS) or ()
    own = [f"{name}_dim_{axis}" for axis in range(array.ndim)]
    own[: len(unnamed)] = unnamed[: array.ndim]
    return [given or other for given, other in zip_longest(stated, own)][: array.ndim]

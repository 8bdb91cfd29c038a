"""The first layout of Zarr: ``__zmeta__``, ``__zattr__``, and Blosc chunks in ``__zdata__``.

zarr 0.4 wrote the metadata as JSON, zarr 0.3 pickled it; both are read, JSON is written. The layout
cannot hold arrays without axes, objects, any codec but Blosc, or Zstandard, which its Blosc did not
have: these are refused. Other files in the folder are ignored, such as the ``.lock`` and
``.partial`` files that its writers left beside chunks.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np

from ingot import blosc, dtypes
from ingot.codecs.codec import ChunkSpec, Stage, assemble
from ingot.codecs.compressors import Blosc
from ingot.errors import UnsupportedError
from ingot.fields import FieldReader, Problems
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ArrayNode, KeyTemplate, Kind, Node, Request
from ingot.formats.zarr import check, pickled, restore, v01
from ingot.formats.zarr.v01 import V01Layout, V01Map, V01Metadata
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Delete, Put, Store, staged_key

__all__ = ["ATTRS", "DATA", "META", "Zarr0Format", "pack_meta", "parse_meta"]

META: Final = "__zmeta__"
ATTRS: Final = "__zattr__"
DATA: Final = "__zdata__"

_CODECS: Final = tuple(name for name in blosc.CODECS if name != "zstd")
_SHUFFLES: Final = range(3)


def parse_meta(data: bytes, where: str = META) -> V01Metadata:
    """Return the contents of a ``__zmeta__``, in JSON or pickled.

    >>> metadata = parse_meta(b'''{"chunks": [10], "clevel": 3, "cname": "lz4", "dtype": "<i4",
    ...     "fill_value": 42, "shape": [25], "shuffle": 1}''')
    >>> metadata.schema.fill, metadata.schema.grid.chunk_count
    (np.int32(42), 3)
    """
    return _parse_meta(bytes(data), where)


# Programs open the same array repeatedly.
@lru_cache(maxsize=256)
def _parse_meta(data: bytes, where: str) -> V01Metadata:
    if data[:1] == b"(":
        values = _unpickled(data, where)
    else:
        values = json.parse_object(data, where, allow_nan=True)
    fields, problems = FieldReader(where, values), Problems()
    take = problems.take
    shape: tuple[int, ...] = take(lambda: fields.integers("shape", low=0), (0,))
    chunks: tuple[int, ...] = take(lambda: fields.integers("chunks", low=1), (1,))
    stage = take(lambda: _parse_stage(fields), Blosc())
    dtype = take(lambda: v01.parse_dtype(fields), np.dtype("u1"))
    problems.settle()
    take(lambda: v01.check_geometry(where, shape, chunks), None)
    fill = take(lambda: v01.parse_fill(fields, dtype), None)
    problems.settle()
    chain = assemble([stage], ChunkSpec(chunks, dtype, fill))
    return V01Metadata(ArraySchema(shape, dtype, chunks, chain, fill), values)


def pack_meta(schema: ArraySchema) -> bytes:
    """Return the ``__zmeta__`` of an array, in JSON, as zarr 0.4 wrote it."""
    [stage] = schema.chain.compressors
    assert isinstance(stage, Blosc)
    values = {
        "chunks": list(schema.chunks),
        "clevel": stage.clevel,
        "cname": stage.cname,
        "dtype": dtypes.pack(schema.dtype),
        "fill_value": v01.pack_scalar(schema.fill, schema.dtype),
        "shape": list(schema.shape),
        "shuffle": stage.shuffle,
    }
    return json.pack(values, META, allow_nan=True)


class Zarr0Format:
    """The first layout of Zarr: one array in a store."""

    name: ClassVar[str] = "zarr0"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ()

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a store."""
        return v01.open_array(store, path, _LAYOUT)

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        """Return the array that documents describe."""
        return v01.from_documents(store, path, documents, _LAYOUT)

    def design(self, request: Request, **layout: Any) -> ArraySchema:
        """Return the layout of a new array; the default chunks are near to cubes of 1 MiB."""
        grid = v01.design_grid(request, self.name)
        stages = (Blosc(),) if request.stages is None else request.stages
        _check_stages(stages)
        chain = assemble(stages, ChunkSpec(grid.chunk, request.dtype, request.fill))
        v01.pack_scalar(request.fill, request.dtype)
        return ArraySchema(
            grid.shape, request.dtype, grid.chunk, chain, request.fill, attrs=request.attrs
        )

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that creates it, with an empty folder for its chunks.

        The array is the one that opening will return: its metadata is parsed from the new document.
        """
        if path:
            raise UnsupportedError(f"zarr0: a store holds one array, at its root, not at {path!r}")
        data = pack_meta(schema)
        # Stores cannot create folders, but a folder remains when the only key in it is deleted.
        holder = staged_key(f"{DATA}/folder", "0")
        publish = [Put(META, data)]
        attrs = v01.pack_attrs(schema.attrs, ATTRS) if schema.attrs else None
        if attrs is not None:
            publish.insert(0, Put(ATTRS, attrs))
        metadata = parse_meta(data).described(schema.attrs)
        chunks = V01Map(store, metadata, _LAYOUT, {META: data, ATTRS: attrs})
        return ArrayNode(chunks), Commit((Put(holder, b""),), tuple(publish), (Delete(holder),))

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents."""
        step = None if node is not None else self._metadata_step(store, path, name)
        if step is not None:
            yield step.finding
        else:
            yield from check.findings(store, path, node, name, _PARSERS, quick=quick)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the step that mends documents; None without a fault that can be mended."""
        step = self._metadata_step(store, path, name)
        return step or restore.attributes_step(store, ATTRS, name, v01.parse_attrs)

    def suspects(self, store: Store, path: str) -> bool:
        """Return whether a store has chunks of this layout and no metadata."""
        absent = store.size(META) is None and not path
        return absent and restore.has_chunks(store, f"{DATA}/", ".blosc")

    def _metadata_step(self, store: Store, path: str, name: str) -> Repair | None:
        if path:
            return None
        chunks = (f"{DATA}/", ".blosc")
        return restore.metadata_step(
            store, path, name, META, chunks, parse_meta, self.design, pack_meta
        )


_PARSERS: Final[check.Parsers] = {META: parse_meta, ATTRS: v01.parse_attrs}
_LAYOUT: Final = V01Layout(META, ATTRS, KeyTemplate(f"{DATA}/", ".", ".blosc"), parse_meta)


def _unpickled(data: bytes, where: str) -> dict[str, Any]:
    values = pickled.parse(data, where)
    cname = values.get("cname")
    if isinstance(cname, bytes):
        values["cname"] = cname.decode("latin-1")
    return values


def _parse_stage(fields: FieldReader) -> Blosc:
    return Blosc(
        cname=fields.choice("cname", blosc.CODECS),
        clevel=fields.integer("clevel", high=9),
        shuffle=fields.integer("shuffle", high=_SHUFFLES[-1]),
    )


def _check_stages(stages: Sequence[Stage]) -> None:
    if len(stages) != 1 or not isinstance(stages[0], Blosc):
        raise UnsupportedError("zarr0: a chunk is one Blosc chunk, no other codec can be used")
    stage = stages[0]
    if stage.cname not in _CODECS:
        raise UnsupportedError(f"zarr0: Blosc has {', '.join(_CODECS)} here, not {stage.cname}")
    if stage.shuffle not in _SHUFFLES or stage.blocksize:
        raise UnsupportedError("zarr0: no blocksize can be stored, and no shuffle but 0, 1 or 2")

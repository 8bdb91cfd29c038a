"""Zarr version 1: ``meta``, ``attrs``, and chunks beside them, ``0.0`` and so on.

This is the layout of zarr 1.0 and 1.1. It cannot hold arrays without axes, objects, filters, or
more than one codec: these are refused.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage, assemble
from ingot.codecs.compressors import Blosc, Bz2, Lzma, Zlib
from ingot.codecs.filters import Transpose
from ingot.errors import ArgumentError, UnsupportedError
from ingot.fields import FieldReader, Problems
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ArrayNode, KeyTemplate, Kind, Node, Request
from ingot.formats.zarr import check, restore, v01
from ingot.formats.zarr.v01 import V01Layout, V01Map, V01Metadata
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Put, Store

__all__ = ["ATTRS", "META", "Zarr1Format", "pack_meta", "parse_meta"]

META: Final = "meta"
ATTRS: Final = "attrs"

_VERSION: Final = 1
_NAMES: Final = ("blosc", "zlib", "gzip", "bz2", "lzma", "none", None)
_LEVELS: Final = {"zlib": Zlib, "gzip": Zlib, "bz2": Bz2}
_ORDERS: Final = ("C", "F")


def parse_meta(data: bytes, where: str = META) -> V01Metadata:
    """Return the contents of a ``meta``, or raise one error that names all problems.

    >>> metadata = parse_meta(b'''{"zarr_format": 1, "shape": [25], "chunks": [10], "order": "C",
    ...     "dtype": "<i4", "fill_value": 42, "compression": "zlib", "compression_opts": 1}''')
    >>> metadata.schema.fill, metadata.schema.chain.compressors
    (np.int32(42), (Zlib(level=1),))
    """
    return _parse_meta(bytes(data), where)


# Programs open the same array repeatedly.
@lru_cache(maxsize=256)
def _parse_meta(data: bytes, where: str) -> V01Metadata:
    values = json.parse_object(data, where, allow_nan=True)
    fields, problems = FieldReader(where, values), Problems()
    fields.choice("zarr_format", (_VERSION,))
    take = problems.take
    shape: tuple[int, ...] = take(lambda: fields.integers("shape", low=0), (0,))
    chunks: tuple[int, ...] = take(lambda: fields.integers("chunks", low=1), (1,))
    order = take(lambda: fields.choice("order", _ORDERS), "C")
    stages: list[Stage] = take(lambda: _parse_stages(fields), [])
    dtype = take(lambda: v01.parse_dtype(fields), np.dtype("u1"))
    problems.settle()
    take(lambda: v01.check_geometry(where, shape, chunks), None)
    fill = take(lambda: v01.parse_fill(fields, dtype), None)
    problems.settle()
    chain = _chain(stages, ChunkSpec(chunks, dtype, fill), order)
    return V01Metadata(ArraySchema(shape, dtype, chunks, chain, fill, order), values)


def pack_meta(schema: ArraySchema) -> bytes:
    """Return the ``meta`` of an array, as zarr 1.1 wrote it."""
    name, options = _pack_compressor(schema.chain.compressors)
    values = {
        "chunks": list(schema.chunks),
        "compression": name,
        "compression_opts": options,
        "dtype": dtypes.pack(schema.dtype),
        "fill_value": v01.pack_scalar(schema.fill, schema.dtype),
        "order": schema.order,
        "shape": list(schema.shape),
        "zarr_format": _VERSION,
    }
    return json.pack(values, META, allow_nan=True)


class Zarr1Format:
    """Zarr version 1: one array in a store."""

    name: ClassVar[str] = "zarr1"
    holds: ClassVar[Kind] = Kind.ARRAY
    settings: ClassVar[tuple[str, ...]] = ("order",)

    def open(self, store: Store, path: str = "") -> ArrayNode:
        """Return the array of a store."""
        return v01.open_array(store, path, _LAYOUT)

    def from_documents(
        self, store: Store, path: str, documents: Mapping[str, bytes | None]
    ) -> ArrayNode | None:
        """Return the array that documents describe."""
        return v01.from_documents(store, path, documents, _LAYOUT)

    def design(self, request: Request, *, order: str = "C", **layout: Any) -> ArraySchema:
        """Return the layout of a new array; the default chunks are near to cubes of 1 MiB."""
        if order not in _ORDERS:
            raise ArgumentError(f"order is {order!r}, not one of {', '.join(map(repr, _ORDERS))}")
        grid = v01.design_grid(request, self.name)
        dtype, fill = request.dtype, request.fill
        stages = (Blosc(),) if request.stages is None else request.stages
        _pack_compressor(stages)
        v01.pack_scalar(fill, dtype)
        chain = _chain(stages, ChunkSpec(grid.chunk, dtype, fill), order)
        return ArraySchema(grid.shape, dtype, grid.chunk, chain, fill, order, request.attrs)

    def create(
        self, store: Store, schema: ArraySchema, path: str = "", **layout: Any
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array, and the commit that creates it; attributes are always written.

        The array is the one that opening will return: its metadata is parsed from the new document.
        """
        if path:
            raise UnsupportedError(f"zarr1: a store holds one array, at its root, not at {path!r}")
        data = pack_meta(schema)
        attrs = v01.pack_attrs(schema.attrs, ATTRS)
        metadata = parse_meta(data).described(schema.attrs)
        chunks = V01Map(store, metadata, _LAYOUT, {META: data, ATTRS: attrs})
        return ArrayNode(chunks), Commit(publish=(Put(ATTRS, attrs), Put(META, data)))

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
        if path or store.size(META) is not None or store.size(ATTRS) is None:
            return False
        return restore.has_chunks(store, "")

    def _metadata_step(self, store: Store, path: str, name: str) -> Repair | None:
        if path:
            return None
        chunks = ("", "")
        return restore.metadata_step(
            store, path, name, META, chunks, parse_meta, self.design, pack_meta
        )


_PARSERS: Final[check.Parsers] = {META: parse_meta, ATTRS: v01.parse_attrs}
_LAYOUT: Final = V01Layout(META, ATTRS, KeyTemplate(), parse_meta)


def _chain(stages: Sequence[Stage], spec: ChunkSpec, order: str) -> CodecChain:
    first = [Transpose()] if order == "F" and len(spec.shape) > 1 else []
    return assemble([*first, *stages], spec)


def _parse_stages(fields: FieldReader) -> list[Stage]:
    name = fields.choice("compression", _NAMES)
    options = fields.value("compression_opts", None)
    if name in ("none", None):
        return []
    where = f"{fields.where}: compression_opts"
    if name in _LEVELS:
        level = {} if options is None else {"level": options}
        return [_LEVELS[name].parse(FieldReader(where, level))]
    if options is not None and not isinstance(options, dict):
        raise fields.wrong("compression_opts", options, "an object or null")
    inner = FieldReader(where, options or {})
    return [Blosc.parse(inner) if name == "blosc" else Lzma.parse(inner)]


def _pack_compressor(stages: Sequence[Stage]) -> tuple[str, Any]:
    """Return the name of a compressor and its options in the spelling of the document."""
    if not stages:
        return "none", None
    [stage, *more] = stages
    if more or not isinstance(stage, Blosc | Zlib | Bz2 | Lzma):
        raise UnsupportedError("zarr1: a chunk goes through one of blosc, zlib, bz2, lzma, or none")
    config = stage.config()
    name = config.pop("id")
    if isinstance(stage, Blosc):
        if stage.blocksize or stage.shuffle < 0:
            raise UnsupportedError("zarr1: no blocksize can be stored, no shuffle but 0, 1 or 2")
        del config["blocksize"]
    return name, config["level"] if isinstance(stage, Zlib | Bz2) else config

"""Documents of Zarr that are lost or torn: restored from copies, or from what chunks tell.

Consolidated metadata have a copy of every document below a group. A document that is gone, or that
cannot be parsed, comes back from there where its node still has files: of a node without any,
another program has removed all.

Without a copy, Blosc chunks tell their size, the size of an item and the codec; the names of their
files tell the grid. Neither the type nor the shape of a chunk is among them. The array gets raw
items, and every chunk is one row of them along the last axis, in the order in which it stores
items. It ends with the last stored chunks, for chunks at the edge are padded in Zarr.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from ingot import blosc
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.codecs.compressors import Blosc
from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair
from ingot.formats.format import Request
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Extent, Feature, Put, Store

__all__ = ["Copies", "attributes_step", "copies_step", "has_chunks", "metadata_step"]

Parse = Callable[[bytes, str], object]
Pack = Callable[[ArraySchema], bytes]
Design = Callable[[Request], ArraySchema]
Copies = Mapping[str, tuple[bytes, Parse]]
"""The copies of documents by their keys, each with the function that parses one."""

_COPY: Final = "write the copy of the consolidated metadata"
_NONE: Final = "set them to none"
_RAW: Final = "take sizes and codec from the chunks: raw items, a row for each chunk"
_MOST_CHUNKS: Final = 1 << 16
_FIRST: Final = 16
"""Chunks that are looked at to tell whether a folder was an array."""


def copies_step(store: Store, path: str, name: str, copies: Copies) -> Repair | None:
    """Return the step that restores the first lost or torn document of a group from its copy.

    Attributes that are absent stay so: they are the same as none.
    """
    # A copy may claim to be of any place.
    inside = {key: copy for key, copy in copies.items() if _is_below(key)}
    keys = [prefix(path) + key for key in inside]
    found = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
    for key, data, (copy, parse) in zip(keys, found, inside.values(), strict=True):
        if data is not None:
            if _problem(data, key, parse) is None or _problem(copy, key, parse) is not None:
                continue
            said = "cannot be parsed"
        else:
            folder = key.rpartition("/")[0]
            if not _may_be_lost(key) or _is_empty(store, folder):
                continue
            if _problem(copy, key, parse) is not None:
                continue
            said = "is lost"
        finding = Finding(name, "document", f"{key} {said}", key, lost="", repair=_COPY)
        return Repair(finding, Commit(publish=(Put(key, copy),)))
    return None


def _is_below(key: str) -> bool:
    return not {"", ".", ".."}.intersection(key.split("/"))


def _may_be_lost(key: str) -> bool:
    return not key.endswith(".zattrs")


def _is_empty(store: Store, folder: str) -> bool:
    if Feature.LIST not in store.features:
        return True
    return not any(True for _ in store.names(folder and f"{folder}/"))


def _problem(data: bytes, key: str, parse: Parse) -> IngotError | None:
    try:
        parse(data, key)
    except IngotError as error:
        return error
    return None


def attributes_step(store: Store, key: str, name: str, parse: Parse) -> Repair | None:
    """Return the step that sets attributes to none which cannot be parsed."""
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    problem = None if data is None else _problem(data, key, parse)
    if data is None or problem is None:
        return None
    text = f"the attributes cannot be parsed: {len(data)} bytes"
    finding = Finding(name, "attributes", text, key, lost="the attributes", repair=_NONE)
    return Repair(finding, Commit(publish=(Put(key, json.pack({}, key)),)))


# Chunks ------------------------------------------------------------------------------------------


class _FoundChunks(NamedTuple):
    """What chunk files and their names tell of an array."""

    counts: tuple[int, ...]
    header: ChunkHeader


def has_chunks(store: Store, folder: str, suffix: str = "") -> bool:
    """Return whether a folder has files that are named as chunks of Zarr, and are Blosc chunks."""
    return _found(store, folder, suffix, most=_FIRST) is not None


def metadata_step(
    store: Store,
    path: str,
    name: str,
    key: str,
    chunks: tuple[str, str],
    parse: Parse,
    design: Design,
    pack: Pack,
) -> Repair | None:
    """Return the step that makes the lost or torn metadata of an array anew from its chunks.

    `chunks` has the folder of the chunk files, and what their names end with.
    """
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is not None and _problem(data, key, parse) is None:
        return None
    found = _found(store, *chunks, most=_MOST_CHUNKS)
    if found is None:
        return None
    header = found.header
    itemsize = header.typesize if not header.nbytes % header.typesize else 1
    dtype = np.dtype(f"V{itemsize}" if itemsize > 1 else "u1")
    items = header.nbytes // itemsize
    shape = (*found.counts[:-1], found.counts[-1] * items)
    shuffle = {"shuffle": 1, "bitshuffle": 2}.get(str(header.filter), 0)
    codec = header.codec if header.codec in blosc.CODECS else "lz4"
    stages = (Blosc(cname=codec, clevel=5, shuffle=shuffle, blocksize=0),)
    edges = (*(1 for _ in found.counts[:-1]), items)
    fill = np.zeros((), dtype)[()]
    try:
        schema = design(Request(shape, dtype, fill, edges, stages))
        made = pack(schema)
        parse(made, key)
    except IngotError:
        return None
    said = "is lost" if data is None else "cannot be parsed"
    lost = "type, shape of a chunk, fill value, and where the array ends in its last chunks"
    finding = Finding(name, "document", f"{key} {said}", key, lost=lost, repair=_RAW)
    return Repair(finding, Commit(publish=(Put(key, made),)))


def _found(store: Store, folder: str, suffix: str, most: int) -> _FoundChunks | None:
    """Return what chunk files tell, if all of them are Blosc chunks of one size and typesize."""
    if Feature.LIST not in store.features:
        return None
    pattern = re.compile(rf"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*{re.escape(suffix)}")
    names = [each for each in _names(store, folder) if pattern.fullmatch(each)]
    if not names or len(names) > _MOST_CHUNKS:
        return None
    grid = [tuple(map(int, each.removesuffix(suffix).split("."))) for each in names]
    if len(set(map(len, grid))) != 1:
        return None
    header = None
    # Chunks that are damaged or empty tell nothing.
    for each in names[:most]:
        other = _header_of(store, f"{folder}{each}")
        if other is None:
            continue
        if header is not None and (other.nbytes, other.typesize) != (
            header.nbytes,
            header.typesize,
        ):
            return None
        header = header or other
    if header is None or not header.nbytes:
        return None
    return _FoundChunks(tuple(max(axis) + 1 for axis in zip(*grid, strict=True)), header)


def _names(store: Store, folder: str) -> Iterator[str]:
    return (each for each in store.names(folder) if not each.endswith("/"))


def _header_of(store: Store, key: str) -> ChunkHeader | None:
    size = store.size(key)
    (head,) = store.read([Extent(key, 0, EXTENDED_HEADER_BYTES)])
    if size is None or head is None:
        return None
    try:
        return ChunkHeader.parse(head, size)
    except IngotError:
        return None

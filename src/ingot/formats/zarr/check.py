"""What is wrong with arrays and groups of Zarr beside their chunks, and what mends it.

Of a dataset that does not open, the documents that cannot be parsed are named. Of an array with
shards, the bytes of shards that no index names are counted: some writers append what changes. A
manifest is compared with the chunks that are stored, and made anew from them; so is the index of a
shard, by a walk over its chunks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations, islice, permutations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import EXTENDED_HEADER_BYTES, HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import CodecChain
from ingot.codecs.compressors import Blosc
from ingot.errors import IngotError, RemoteError
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair
from ingot.formats.format import ArrayNode, Node, Sharded, as_sharded, manifested, stored_map
from ingot.formats.keys import stored
from ingot.formats.paths import prefix
from ingot.formats.shard_index import IndexForm
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Extent, Feature, Put, Store

__all__ = ["Parsers", "dead_bytes", "findings", "repair"]

Parsers = Mapping[str, Callable[[bytes, str], object]]
"""The names of documents, each with the function that parses one and names it in errors."""

_BATCH: Final = 256
_TRACES: Final = "the traces of chunks that are lost as well"
_ANEW: Final = "make it anew from the chunks that are stored"
_NAME: Final = "name them"
_REBUILD: Final = "make it anew from the chunks in the shard"
_SEAL_BYTES: Final = 4
_MOST_WAYS: Final = 10_000
"""Ways to give entries of an index their chunks that are compared with its checksum."""
_NOWHERE: Final = (2**64 - 1, 2**64 - 1)
"""The entry of a chunk that is absent."""


def findings(
    store: Store, path: str, node: Node | None, name: str, parsers: Parsers, *, quick: bool
) -> Iterator[Finding]:
    """Yield what is wrong with documents, and how many bytes of shards are dead."""
    if node is None:
        yield from _documents(store, path, name, parsers)
        return
    step = _manifest_repair(node, name) if isinstance(node, ArrayNode) else None
    if step is not None:
        yield step.finding
    sharded = as_sharded(node.chunks) if isinstance(node, ArrayNode) else None
    if sharded is None or quick or Feature.LIST not in store.features:
        return
    dead = dead_bytes(sharded)
    if dead:
        problem = f"{dead} bytes of shards that no index names; storing the array anew removes them"
        yield Finding(name, "dead", problem, severity="note")


def repair(node: Node, name: str) -> Repair | None:
    """Return the next step that mends an array; None without a fault that can be mended."""
    if not isinstance(node, ArrayNode):
        return None
    return _manifest_repair(node, name) or _shard_repair(node, name)


def _shard_repair(node: ArrayNode, name: str) -> Repair | None:
    """Return the step that makes a damaged index of a shard anew from the chunks in the shard."""
    sharded, tail = as_sharded(node.chunks), _bytes_behind(node.schema.chain)
    if sharded is None or len(sharded.levels) > 1 or tail is None:
        return None
    files, form = sharded.shards, sharded.levels[0]
    store, template, counts = files.store, files.template, files.schema.grid.counts
    if template is None or Feature.LIST not in store.features:
        return None
    for coords in stored(store, template, len(counts)):
        key = template.key(coords)
        if not all(map(int.__lt__, coords, counts)) or _has_index(store, key, form):
            continue
        (shard,) = store.read([Extent(key)])
        entries = None if shard is None else _rebuilt(form, bytes(shard), node.schema, tail)
        if shard is None or entries is None:
            continue
        start, length = form.place(len(shard))
        whole = bytes(shard[:start]) + form.pack(entries) + bytes(shard[start + length :])
        finding = Finding(name, "index", "the index of the shard is damaged", key, repair=_REBUILD)
        return Repair(finding, Commit(publish=(Put(key, whole),)))
    return None


def _has_index(store: Store, key: str, form: IndexForm) -> bool:
    try:
        size = store.size(key) or 0
        (data,) = store.read([Extent(key, *form.place(size))])
        form.parse(data or b"", size)
    except IngotError:
        return False
    return True


def _bytes_behind(chain: CodecChain) -> int | None:
    """Return the bytes behind each Blosc chunk of a chain: checksums; None for other chains."""
    first, *rest = chain.compressors or (None,)
    if chain.filters or not isinstance(first, Blosc):
        return None
    sizes = [stage.encoded_size(0) for stage in rest]
    return None if None in sizes else sum(size or 0 for size in sizes)


def _rebuilt(
    form: IndexForm, shard: bytes, schema: ArraySchema, tail: int
) -> NDArray[np.uint64] | None:
    """Return the entries of a damaged index; None where what is stored does not tell them.

    The chunks are found by a walk: each says how long it is. An entry that leads to the beginning
    of a chunk, which no other entry claims, gets its length. For other entries that lead nowhere,
    all ways to give them the chunks that are left are tried: the checksum of the index tells which
    is right. Where the checksum is damaged as well, or there is none, one entry gets the one chunk
    that is left; without such a chunk, an entry of which one number is that of absent chunks is one
    of them.
    """
    kernel = form.native_form
    if kernel is None:
        return None
    start, length = form.place(len(shard))
    raw = np.frombuffer(shard, ">u8" if kernel[2] else "<u8", 2 * form.total, start)
    entries = raw.astype(np.uint64).reshape(-1, 2)
    found = dict(_walk(shard, 0 if start else length, start or len(shard), tail))
    claims = [(int(begin), int(count)) for begin, count in entries]
    free = dict(set(found.items()).difference(claims))
    wrong = [n for n, each in enumerate(claims) if each not in found.items() and each != _NOWHERE]
    seal = shard[start : start + length][-_SEAL_BYTES:] if kernel[3] else None
    begins = [claims[n][0] for n in wrong]
    for n in list(wrong):
        begin = claims[n][0]
        if begin in free and begins.count(begin) == 1:
            entries[n] = begin, free.pop(begin)
            wrong.remove(n)
    if not wrong:
        return entries
    # An entry of an absent chunk may be a torn one as well.
    absent_too = sorted({*wrong, *(n for n, each in enumerate(claims) if each == _NOWHERE)})
    for doubtful in (wrong, absent_too) if seal is not None else ():
        tried = entries.copy()
        if _sealed(form, tried, doubtful, sorted(free.items()), seal or b""):
            return tried
    absent = len(wrong) == 1 and not free and _NOWHERE[0] in claims[wrong[0]]
    if len(wrong) > 1 or (len(free) != 1 and not absent):
        return None
    if absent:
        entries[wrong[0]] = _NOWHERE
        return entries
    ((begin, count),) = free.items()
    try:
        schema.chain.decode(shard[begin : begin + count], schema.spec((0,) * len(schema.shape)))
    except IngotError:
        return None
    entries[wrong[0]] = begin, count
    return entries


def _sealed(
    form: IndexForm,
    entries: NDArray[np.uint64],
    wrong: Sequence[int],
    free: Sequence[tuple[int, int]],
    seal: bytes,
) -> bool:
    """Set wrong entries so that the index has its checksum; return whether there is a way to."""
    for places, chunks in islice(_ways(wrong, free), _MOST_WAYS):
        entries[wrong] = _NOWHERE
        for place, chunk in zip(places, chunks, strict=True):
            entries[place] = chunk
        if form.pack(entries)[-_SEAL_BYTES:] == seal:
            return True
    return False


def _ways(
    wrong: Sequence[int], free: Sequence[tuple[int, int]]
) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Yield entries and the chunks that they may lead to; all other entries are absent chunks.

    Chunks in the order of their numbers come first: most writers store them so.
    """
    count = min(len(wrong), len(free))
    for places in combinations(wrong, count):
        for chunks in combinations(free, count):
            yield list(places), list(chunks)
    for count in range(min(len(wrong), len(free)), -1, -1):
        for places in combinations(wrong, count):
            for chunks in permutations(free, count):
                yield list(places), list(chunks)


def _walk(shard: bytes, begin: int, end: int, tail: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of Blosc chunks that lie one behind the other."""
    while begin + HEADER_BYTES <= end:
        head = shard[begin : begin + EXTENDED_HEADER_BYTES]
        cbytes = int.from_bytes(head[12:16], "little")
        try:
            ChunkHeader.parse(head, cbytes)
        except IngotError:
            return
        if begin + cbytes + tail > end:
            return
        yield begin, cbytes + tail
        begin += cbytes + tail


def _manifest_repair(node: ArrayNode, name: str) -> Repair | None:
    """Return what is wrong with the manifest of an array, and the commit that mends it.

    Lost chunks are no fault of the manifest: reads find them.
    """
    named, files = manifested(node.chunks), stored_map(node.chunks)
    if named is None or files.template is None or Feature.LIST not in files.store.features:
        return None
    counts = files.schema.grid.counts
    listed = stored(files.store, files.template, len(counts))
    present = {each for each in listed if all(map(int.__lt__, each, counts))}
    try:
        names = {tuple(row) for row in named.named_chunks().tolist()}
    except RemoteError:
        raise
    except IngotError as error:
        made = named.naming(present)
        problem = f"the manifest cannot be read: {' '.join(str(error).split())}"
        finding = Finding(name, "manifest", problem, made.key, lost=_TRACES, repair=_ANEW)
    else:
        made = named.naming(names | present)
        problem = f"{len(present - names)} stored chunks are not named by the manifest"
        finding = Finding(name, "manifest", problem, made.key, repair=_NAME, severity="warning")
        if present <= names:
            return None
    return Repair(finding, Commit(publish=(made,)))


def _documents(store: Store, path: str, name: str, parsers: Parsers) -> Iterator[Finding]:
    keys = [prefix(path) + each for each in parsers]
    found = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
    for key, data, parse in zip(keys, found, parsers.values(), strict=True):
        if data is None:
            continue
        try:
            parse(data, key)
        except IngotError as error:
            problem = f"cannot be read: {' '.join(str(error).split())}"
            yield Finding(name, "document", problem, key, lost="the whole, until repaired")


def dead_bytes(sharded: Sharded) -> int:
    """Return how many bytes of the outermost shards of an array no index names.

    A shard whose index is damaged does not count: the chunks in it cannot be told from the rest.
    """
    shards, form, dead = sharded.shards, sharded.levels[0], 0
    template, grid = shards.template, shards.schema.grid
    if template is None:
        return 0
    listed = stored(shards.store, template, len(grid.counts))
    inside = (each for each in listed if all(map(int.__lt__, each, grid.counts)))
    while some := list(islice(inside, _BATCH)):
        dead += sum(_dead_in(shards.store, template.key(coords), form) for coords in some)
    return dead


def _dead_in(store: Store, key: str, form: IndexForm) -> int:
    size = store.size(key)
    if size is None:
        return 0
    try:
        start, length = form.place(size)
        (data,) = store.read([Extent(key, start, length)])
        index = form.parse(data or b"", size)
    except IngotError:
        return 0
    used = {(int(begin), int(count)) for begin, count in index.entries[index.present]}
    return max(0, size - length - sum(count for _, count in used))

"""What is wrong with arrays and groups of Zarr beside their chunks, and what mends it.

Of a dataset that does not open, the documents that cannot be parsed are named. Of an array with
shards, the bytes of shards that no index names are counted: some writers append what changes. A
manifest is compared with the chunks that are stored, and made anew from them.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair
from ingot.formats.format import ArrayNode, Node, Sharded, as_sharded, manifested, stored_map
from ingot.formats.keys import stored
from ingot.formats.paths import prefix
from ingot.formats.shard_index import IndexForm
from ingot.stores.store import Commit, Extent, Feature, Store

__all__ = ["Parsers", "dead_bytes", "findings", "repair"]

Parsers = Mapping[str, Callable[[bytes, str], object]]
"""The names of documents, each with the function that parses one and names it in errors."""

_BATCH: Final = 256
_TRACES: Final = "the traces of chunks that are lost as well"
_ANEW: Final = "make it anew from the chunks that are stored"
_NAME: Final = "name them"


def findings(
    store: Store, path: str, node: Node | None, name: str, parsers: Parsers, *, quick: bool
) -> Iterator[Finding]:
    """Yield what is wrong with documents, and how many bytes of shards are dead."""
    if node is None:
        yield from _documents(store, path, name, parsers)
        return
    step = repair(node, name)
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
    return _manifest_repair(node, name) if isinstance(node, ArrayNode) else None


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

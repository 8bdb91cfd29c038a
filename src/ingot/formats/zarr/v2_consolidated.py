"""Consolidated metadata of Zarr 2: copies of documents in one document, ``.zmetadata``.

A group may have copies of its own documents and of all documents below it. This module parses and
packs the copies, updates them in the commit that changes a document, and compares them with the
documents. It does not interpret documents. Nodes are always opened from their own documents, never
from a copy.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ingot.errors import FormatError, IngotError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats import json
from ingot.formats.paths import above, prefix
from ingot.stores.store import Extent, Put, Store

__all__ = ["CONSOLIDATED", "children", "pack", "parse", "read", "read_all", "stale_keys", "updates"]

CONSOLIDATED: Final = ".zmetadata"

_VERSION: Final = 1
_ATTRIBUTES: Final = ".zattrs"
"""How the keys of attributes end; those in their copies keep their order."""


def parse(data: bytes, where: str = CONSOLIDATED) -> dict[str, Any]:
    """Return the copies by the keys of their documents, relative to the group.

    >>> parse(b'{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}}}')
    {'.zgroup': {'zarr_format': 2}}
    """
    fields = FieldReader(where, json.parse_object(data, where, allow_nan=True))
    fields.choice("zarr_consolidated_format", (_VERSION,))
    found = fields.mapping("metadata")
    if found is None:
        raise FormatError(f"{where}: metadata is missing")
    for key, copy in found.items():
        if not isinstance(copy, dict):
            raise FormatError(f"{where}: the copy of {key!r} is no object")
    return dict(found)


def pack(copies: Mapping[str, Any]) -> bytes:
    """Return the document that `parse` reads back."""
    values = {"metadata": dict(copies), "zarr_consolidated_format": _VERSION}
    return json.pack(values, CONSOLIDATED, allow_nan=True, in_order=_ATTRIBUTES)


def read(store: Store, path: str) -> dict[str, Any] | None:
    """Return the copies in a group; None without readable copies."""
    return read_all(store, [path])[0]


def read_all(store: Store, paths: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return the copies in some groups, by one read; None without readable copies."""
    documents = [prefix(path) + CONSOLIDATED for path in paths]
    found = store.read([Extent(key, 0, json.LARGEST + 1) for key in documents])
    return list(map(_parsed, found, documents))


def _parsed(data: bytes | None, key: str) -> dict[str, Any] | None:
    try:
        return None if data is None else parse(data, key)
    except IngotError:
        return None  # Nodes are opened from their own documents.


def updates(
    store: Store, groups: Iterable[str], changes: Mapping[str, Any], removed: str | None = None
) -> tuple[Put, ...]:
    """Return the edits that update the copies in `groups` when documents change.

    `changes` has the new content of each document, by key. Copies of the node at the path `removed`
    and of all nodes below it are dropped first.

    >>> from ingot.stores import MemoryStore
    >>> old = {"a/.zarray": {"shape": [1]}, ".zgroup": {}}
    >>> store = MemoryStore({".zmetadata": pack(old), ".zgroup": b""})
    >>> [put] = updates(store, above("a"), {"a/.zarray": {"shape": [2]}})
    >>> parse(put.data)
    {'.zgroup': {}, 'a/.zarray': {'shape': [2]}}
    """
    edits = []
    groups = list(groups)
    if not groups:
        return ()
    for group, copies in zip(groups, read_all(store, groups), strict=True):
        if copies is None:
            continue
        lead = prefix(group)
        if removed is not None:
            left = f"{removed.removeprefix(lead)}/"
            copies = {key: copy for key, copy in copies.items() if not key.startswith(left)}
        inside = {key: copy for key, copy in changes.items() if key.startswith(lead)}
        copies |= {key.removeprefix(lead): copy for key, copy in inside.items()}
        edits.append(Put(lead + CONSOLIDATED, pack(copies)))
    return tuple(edits)


def children(store: Store, path: str) -> Iterator[str]:
    """Yield the names directly below a group, by the copies in it or in a group above it.

    `UnsupportedError` where there are no copies: nothing else says what a store holds that cannot
    be listed.
    """
    groups = path, *reversed(list(above(path)))
    for group, copies in zip(groups, read_all(store, groups), strict=True):
        if copies is not None:
            inner = prefix(path).removeprefix(prefix(group))
            found = {
                key[len(inner) :].partition("/")[0]
                for key in copies
                if key.startswith(inner) and "/" in key[len(inner) :]
            }
            yield from sorted(found)
            return
    raise UnsupportedError(
        f"{store.location}: cannot be listed, and no consolidated metadata names the members of "
        f"the group {path!r}"
    )


def stale_keys(copies: Mapping[str, Any], actual: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of documents whose copy is missing, left over or different.

    >>> stale_keys({"a": {"n": 1}, "b": {}}, {"a": {"n": 2}, "c": {}})
    ('a', 'b', 'c')
    """
    keys = sorted(copies.keys() | actual.keys())
    return tuple(key for key in keys if not _same(copies.get(key), actual.get(key)))


def _same(copy: Any, actual: Any) -> bool:
    # Compared as text too, in which NaN equals NaN.
    return copy == actual or (
        copy is not None
        and actual is not None
        and json.pack(copy, CONSOLIDATED, allow_nan=True)
        == json.pack(actual, CONSOLIDATED, allow_nan=True)
    )

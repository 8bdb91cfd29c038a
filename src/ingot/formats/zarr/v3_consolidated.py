"""Consolidated metadata of Zarr 3: copies of documents in the field ``consolidated_metadata``.

A group may have copies of the documents of all nodes below it. This module parses and packs the
copies, and updates them in the commit that changes a document. It does not interpret documents.
Nodes are always opened from their own documents, never from a copy. A copy contains no copies.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from ingot.errors import IngotError, UnsupportedError
from ingot.formats import json
from ingot.formats.paths import above, prefix
from ingot.formats.zarr.v3_metadata import NODE, canonical, pack_document
from ingot.stores.store import Extent, Put, Store

__all__ = [
    "FIELD",
    "children",
    "parse",
    "stale_paths",
    "updates",
    "with_consolidated",
    "without_consolidated",
]

FIELD: Final = "consolidated_metadata"

_KIND: Final = "inline"


def parse(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the copies in the document of a group, by path; None without readable copies.

    >>> parse({"consolidated_metadata": {"kind": "inline", "metadata": {"a": {"node_type": "x"}}}})
    {'a': {'node_type': 'x'}}
    """
    found = values.get(FIELD)
    if not isinstance(found, dict) or found.get("kind") != _KIND:
        return None
    copies = found.get("metadata")
    if not isinstance(copies, dict) or not all(isinstance(copy, dict) for copy in copies.values()):
        return None
    return dict(copies)


def with_consolidated(values: Mapping[str, Any], copies: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a group with the given copies in it."""
    metadata = {path: without_consolidated(copy) for path, copy in copies.items()}
    return {**values, FIELD: {"kind": _KIND, "must_understand": False, "metadata": metadata}}


def without_consolidated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without its consolidated metadata."""
    return {key: value for key, value in values.items() if key != FIELD}


def updates(
    store: Store, groups: Iterable[str], changes: Mapping[str, Any], removed: str | None = None
) -> tuple[Put, ...]:
    """Return the edits that update the copies in `groups` when the documents of nodes change.

    `changes` has the new document of each node, by path. Copies of the node at the path `removed`
    and of all nodes below it are dropped first.
    """
    edits = []
    groups = list(groups)
    if not groups:
        return ()
    for group, values in zip(groups, _read_all(store, groups), strict=True):
        copies = None if values is None else parse(values)
        if values is None or copies is None:
            continue
        lead = prefix(group)
        if removed is not None:
            left = removed.removeprefix(lead)
            copies = {
                path: copy
                for path, copy in copies.items()
                if path != left and not path.startswith(f"{left}/")
            }
        inside = {path: copy for path, copy in changes.items() if path.startswith(lead) and path}
        copies |= {path.removeprefix(lead): copy for path, copy in inside.items()}
        data = pack_document(with_consolidated(values, copies), lead + NODE)
        edits.append(Put(lead + NODE, data))
    return tuple(edits)


def children(store: Store, path: str) -> Iterator[str]:
    """Yield the names directly below a group, by the copies in it or in a group above it.

    `UnsupportedError` where there are no copies: nothing else says what a store holds that cannot
    be listed.
    """
    groups = path, *reversed(list(above(path)))
    for group, values in zip(groups, _read_all(store, groups), strict=True):
        copies = None if values is None else parse(values)
        if copies is not None:
            inner = prefix(path).removeprefix(prefix(group))
            below = (key[len(inner) :] for key in copies if key.startswith(inner))
            yield from sorted({key.partition("/")[0] for key in below if key})
            return
    raise UnsupportedError(
        f"{store.location}: cannot be listed, and no consolidated metadata names the members of "
        f"the group {path!r}"
    )


def stale_paths(copies: Mapping[str, Any], actual: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of nodes whose copy is missing, left over or different.

    >>> stale_paths({"a": {"n": 1}, "b": {}}, {"a": {"n": 2}, "c": {}})
    ('a', 'b', 'c')
    """
    return tuple(
        path
        for path in sorted(copies.keys() | actual.keys())
        if path not in copies or path not in actual or not _same(copies[path], actual[path])
    )


def _same(copy: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    # Compared as text, in which NaN equals NaN.
    copy, actual = without_consolidated(copy), without_consolidated(actual)
    if _text(copy) == _text(actual):
        return True
    try:
        # Some programs spell out defaults in copies that the document omits.
        return _text(canonical(copy)) == _text(canonical(actual))
    except IngotError:
        return False


def _text(values: Mapping[str, Any]) -> bytes:
    return json.pack(dict(values), FIELD, allow_nan=True)


def _read_all(store: Store, paths: Sequence[str]) -> list[dict[str, Any] | None]:
    """Return the documents of nodes; None for one that is absent or malformed."""
    documents = [prefix(path) + NODE for path in paths]
    found = store.read([Extent(key, 0, json.LARGEST + 1) for key in documents])
    return list(map(_parsed, found, documents))


def _parsed(data: bytes | None, key: str) -> dict[str, Any] | None:
    try:
        return None if data is None else json.parse_object(data, key, allow_nan=True)
    except IngotError:
        return None

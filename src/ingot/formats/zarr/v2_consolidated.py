"""Copies of metadata that Zarr 2 keeps in one document, ``.zmetadata``, at a group.

Knows how the copies of all documents below a group are spelled, how they follow a change of one of
them in the same commit, and whether they still are what they are copies of. Refuses to know what
the documents say, and to read anything from a copy that the real document can tell.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ingot.errors import FormatError, IngotError
from ingot.fields import FieldReader
from ingot.formats import json
from ingot.formats.paths import above, prefix
from ingot.stores.store import Extent, Put, Store

__all__ = ["COPIES", "children", "differences", "followed", "pack", "parse", "read"]

COPIES: Final = ".zmetadata"

_VERSION: Final = 1


def parse(data: bytes, where: str = COPIES) -> dict[str, Any]:
    """Return the copies by the keys of their documents, below the group.

    >>> parse(b'{"zarr_consolidated_format": 1, "metadata": {".zgroup": {"zarr_format": 2}}}')
    {'.zgroup': {'zarr_format': 2}}
    """
    claims = FieldReader(where, json.parse_object(data, where, allow_nan=True))
    claims.choice("zarr_consolidated_format", (_VERSION,))
    found = claims.mapping("metadata")
    if found is None:
        raise FormatError(f"{where}: metadata is missing")
    for key, copy in found.items():
        if not isinstance(copy, dict):
            raise FormatError(f"{where}: the copy of {key!r} is no object")
    return dict(found)


def pack(copies: Mapping[str, Any]) -> bytes:
    """Return the document that `parse` reads back."""
    values = {"metadata": dict(copies), "zarr_consolidated_format": _VERSION}
    return json.pack(values, COPIES, allow_nan=True)


def read(store: Store, path: str) -> dict[str, Any] | None:
    """Return the copies at a group; None when there are none, or none that can be read."""
    key = prefix(path) + COPIES
    [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is None:
        return None
    try:
        return parse(data, key)
    except IngotError:
        return None  # The documents themselves are what counts.


def followed(
    store: Store, groups: Iterable[str], changes: Mapping[str, Any], gone: str | None = None
) -> tuple[Put, ...]:
    """Return what keeps the copies at some groups true when documents change.

    `changes` has the key of each document that changes, and its content. What lay at the path
    `gone`, or below it, is removed before.

    >>> from ingot.stores import MemoryStore
    >>> old = {"a/.zarray": {"shape": [1]}, ".zgroup": {}}
    >>> store = MemoryStore({".zmetadata": pack(old), ".zgroup": b""})
    >>> [put] = followed(store, above("a"), {"a/.zarray": {"shape": [2]}})
    >>> parse(put.data)
    {'.zgroup': {}, 'a/.zarray': {'shape': [2]}}
    """
    edits = []
    for group in groups:
        copies = read(store, group)
        if copies is None:
            continue
        lead = prefix(group)
        if gone is not None:
            left = f"{gone.removeprefix(lead)}/"
            copies = {key: copy for key, copy in copies.items() if not key.startswith(left)}
        inside = {key: copy for key, copy in changes.items() if key.startswith(lead)}
        copies |= {key.removeprefix(lead): copy for key, copy in inside.items()}
        edits.append(Put(lead + COPIES, pack(copies)))
    return tuple(edits)


def children(store: Store, path: str) -> Iterator[str]:
    """Yield the names directly below a group of which there are copies, its own or above it."""
    for group in (path, *reversed(list(above(path)))):
        copies = read(store, group)
        if copies is not None:
            inner = prefix(path).removeprefix(prefix(group))
            found = {
                key[len(inner) :].partition("/")[0]
                for key in copies
                if key.startswith(inner) and "/" in key[len(inner) :]
            }
            yield from sorted(found)
            return


def differences(copies: Mapping[str, Any], real: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of documents whose copy is missing, is left over or says something else.

    >>> differences({"a": {"n": 1}, "b": {}}, {"a": {"n": 2}, "c": {}})
    ('a', 'b', 'c')
    """
    keys = sorted(copies.keys() | real.keys())
    return tuple(key for key in keys if not _same(copies.get(key), real.get(key)))


def _same(copy: Any, real: Any) -> bool:
    # As text, in which numbers that are none equal themselves.
    return copy == real or (
        copy is not None
        and real is not None
        and json.pack(copy, COPIES, allow_nan=True) == json.pack(real, COPIES, allow_nan=True)
    )

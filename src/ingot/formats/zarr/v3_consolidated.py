"""Copies of metadata that Zarr 3 keeps in the document of a group, ``consolidated_metadata``.

Knows how the copies of all documents below a group are spelled, and how they follow a change of one
of them in the same commit. Refuses to know what the documents say, and to read anything from a copy
that the real document can tell. A copy has no copies in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.paths import above, prefix
from ingot.formats.zarr.v3_metadata import NODE, respelled
from ingot.stores.store import Extent, Put, Store

__all__ = ["FIELD", "bare", "children", "differences", "followed", "parse", "with_copies"]

FIELD: Final = "consolidated_metadata"

_KIND: Final = "inline"


def parse(values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the copies in the document of a group by paths; None when there are none to read.

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


def with_copies(values: Mapping[str, Any], copies: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a group with copies in it."""
    metadata = {path: bare(copy) for path, copy in copies.items()}
    return {**values, FIELD: {"kind": _KIND, "must_understand": False, "metadata": metadata}}


def bare(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document without the copies in it."""
    return {key: value for key, value in values.items() if key != FIELD}


def followed(
    store: Store, groups: Iterable[str], changes: Mapping[str, Any], gone: str | None = None
) -> tuple[Put, ...]:
    """Return what keeps the copies at some groups true when the documents of nodes change.

    `changes` has the path of each node and its document. What lay at the path `gone`, or below it,
    is removed before.
    """
    edits = []
    for group in groups:
        values = _read(store, group)
        copies = None if values is None else parse(values)
        if values is None or copies is None:
            continue
        lead = prefix(group)
        if gone is not None:
            left = gone.removeprefix(lead)
            copies = {
                path: copy
                for path, copy in copies.items()
                if path != left and not path.startswith(f"{left}/")
            }
        inside = {path: copy for path, copy in changes.items() if path.startswith(lead) and path}
        copies |= {path.removeprefix(lead): copy for path, copy in inside.items()}
        data = json.pack(with_copies(values, copies), lead + NODE, allow_nan=True)
        edits.append(Put(lead + NODE, data))
    return tuple(edits)


def children(store: Store, path: str) -> Iterator[str]:
    """Yield the names directly below a group of which there are copies, its own or above it."""
    for group in (path, *reversed(list(above(path)))):
        values = _read(store, group)
        copies = None if values is None else parse(values)
        if copies is not None:
            inner = prefix(path).removeprefix(prefix(group))
            below = (key[len(inner) :] for key in copies if key.startswith(inner))
            yield from sorted({key.partition("/")[0] for key in below if key})
            return


def differences(copies: Mapping[str, Any], real: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of nodes whose copy is missing, is left over or says something else.

    >>> differences({"a": {"n": 1}, "b": {}}, {"a": {"n": 2}, "c": {}})
    ('a', 'b', 'c')
    """
    return tuple(
        path
        for path in sorted(copies.keys() | real.keys())
        if path not in copies or path not in real or not _same(copies[path], real[path])
    )


def _same(copy: Mapping[str, Any], real: Mapping[str, Any]) -> bool:
    # As text, in which numbers that are none equal themselves.
    copy, real = bare(copy), bare(real)
    if _text(copy) == _text(real):
        return True
    try:
        # Some programs spell out in copies what a document leaves to its defaults.
        return _text(respelled(copy)) == _text(respelled(real))
    except IngotError:
        return False


def _text(values: Mapping[str, Any]) -> bytes:
    return json.pack(dict(values), FIELD, allow_nan=True)


def _read(store: Store, path: str) -> dict[str, Any] | None:
    key = prefix(path) + NODE
    [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
    try:
        return None if data is None else json.parse_object(data, key, allow_nan=True)
    except IngotError:
        return None

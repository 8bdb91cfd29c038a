"""Groups of Zarr version 2, and their consolidated metadata.

This module returns the commits that create, change and remove groups. Arrays are handled by
`ingot.formats.zarr.v2`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ConsolidatedMetadata, GroupMembers, GroupNode, Node
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import check, hierarchy, restore, v2_consolidated
from ingot.formats.zarr.v2 import (
    ARRAY,
    ATTRS,
    GROUP,
    V2ArrayMetadata,
    Zarr2Format,
    open_all,
    pack_array,
    pack_attrs,
    pack_group,
    parse_array,
    parse_attrs,
    parse_group,
    stage_node,
)
from ingot.stores.store import Commit, Extent, Feature, Put, Store

__all__ = ["Zarr2GroupFormat"]

_PARSERS: Final[check.Parsers] = {
    ARRAY: lambda data, key: parse_array(data, None, key),
    GROUP: parse_group,
    ATTRS: parse_attrs,
}


class Zarr2GroupFormat(Zarr2Format):
    """Zarr version 2, arrays and groups."""

    def has_part(self, store: Store, path: str) -> bool:
        """Return whether all nodes above a path are groups, or can become groups with it."""
        groups = list(above(path))
        marks = [Extent(prefix(each) + name, 0, 1) for each in groups for name in (GROUP, ARRAY)]
        found = store.read(marks)
        if found[0] is None or any(array is not None for array in found[1::2]):
            return False
        missing = [each for each, mark in zip(groups, found[::2], strict=True) if mark is None]
        return not any(any(store.names(each)) for each in missing)

    def create_group(
        self, store: Store, path: str = "", attrs: Mapping[str, Any] | None = None
    ) -> tuple[GroupNode, Commit]:
        """Return a new group, and the commit that creates it and the groups above it."""
        path, attrs = normalised(path), dict(attrs or {})
        content = json.parse_object(pack_group(), GROUP)
        commit = stage_node(store, path, GROUP, content, attrs)
        if not path and Feature.LIST not in store.features:
            # Only consolidated metadata can name the members; every change keeps it up to date.
            copies = {GROUP: content, **({ATTRS: attrs} if attrs else {})}
            consolidated = Put(v2_consolidated.CONSOLIDATED, v2_consolidated.pack(copies))
            commit = replace(commit, publish=(*commit.publish, consolidated))
        return GroupNode(path, attrs), commit

    def children(self, store: Store, path: str) -> tuple[str, ...]:
        """Return the names of the members of a group, sorted."""
        names, marks = _folders(store, path), (ARRAY, GROUP)
        keys = [f"{prefix(path)}{name}/{mark}" for name in names for mark in marks]
        found = store.read([Extent(key, 0, 1) for key in keys])
        pairs = zip(names, found[::2], found[1::2], strict=True)
        return tuple(name for name, array, group in pairs if array is not None or group is not None)

    def members(
        self, store: Store, groups: Sequence[str], most: int | None = None
    ) -> list[GroupMembers]:
        """Return the members of groups, by one read of all documents."""
        return hierarchy.members(groups, partial(_folders, store), partial(open_all, store), most)

    def describe_group(self, store: Store, path: str, attrs: Mapping[str, Any]) -> Commit:
        """Return the commit that changes the attributes of a group, consolidated ones included."""
        key = prefix(path) + ATTRS
        updates = v2_consolidated.updates(store, (*above(path), path), {key: dict(attrs)})
        return Commit(publish=(Put(key, pack_attrs(attrs)), *updates))

    def removed(self, store: Store, path: str) -> Commit:
        """Return the commit that removes a node and all below it, at once."""
        commit = hierarchy.removed(self, store, path, (GROUP, ATTRS, v2_consolidated.CONSOLIDATED))
        updates = v2_consolidated.updates(store, above(path), {}, removed=path)
        return replace(commit, publish=(*commit.publish, *updates))

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents."""
        step = self._document_step(store, path, name)
        if step is not None:
            yield step.finding
        if step is None or node is not None:
            yield from check.findings(store, path, node, name, _PARSERS, quick=quick)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends documents; None without a fault that can be mended."""
        step = self._document_step(store, path, name)
        return step or restore.attributes_step(store, prefix(path) + ATTRS, name, parse_attrs)

    def suspects(self, store: Store, path: str) -> bool:
        """Return whether a folder has copies of documents, or chunks, and no document."""
        lead = prefix(path)
        if any(store.size(lead + mark) is not None for mark in (ARRAY, GROUP)):
            return False
        if v2_consolidated.read(store, path) is not None:
            return True
        return store.size(lead + ATTRS) is not None and restore.has_chunks(store, lead)

    def _document_step(self, store: Store, path: str, name: str) -> Repair | None:
        """Return the step that restores a document, from a copy or else from chunks."""
        copies = v2_consolidated.read(store, path) or {}
        known: restore.Copies = {
            key: (
                json.pack(value, key, allow_nan=True, in_order="" if key.endswith(ATTRS) else None),
                parse,
            )
            for key, value in copies.items()
            for mark, parse in _PARSERS.items()
            if key == mark or key.endswith(f"/{mark}")
        }
        step = restore.copies_step(store, path, name, known)
        lead = prefix(path)
        if step is not None or store.size(lead + GROUP) is not None or known:
            return step
        return restore.metadata_step(
            store,
            path,
            name,
            lead + ARRAY,
            (lead, ""),
            _PARSERS[ARRAY],
            self.design,
            lambda schema: pack_array(V2ArrayMetadata.of(schema)),
        )

    def compare_consolidated(self, store: Store, path: str) -> ConsolidatedMetadata | None:
        """Return how consolidated metadata compares with the documents; None without any."""
        found = v2_consolidated.read(store, path)
        if found is None:
            return None
        actual = self._documents(store, path)
        stale = v2_consolidated.stale_keys(_comparable(found), _comparable(actual))
        return ConsolidatedMetadata(
            tuple(key for key in stale if not _same(found.get(key), actual.get(key)))
        )

    def consolidated(self, store: Store, path: str) -> Commit:
        """Return the commit that consolidates the metadata of a group and of all nodes below it."""
        data = v2_consolidated.pack(self._documents(store, path))
        return Commit(publish=(Put(prefix(path) + v2_consolidated.CONSOLIDATED, data),))

    def _documents(self, store: Store, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        places = sorted(map(hierarchy.path_of, hierarchy.walk(self, store, path)))
        keys = [prefix(place) + name for place in places for name in (ARRAY, GROUP, ATTRS)]
        contents = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
        for key, content in zip(keys, contents, strict=True):
            if content is not None:
                value = json.parse_object(content, key, allow_nan=True)
                found[key.removeprefix(prefix(path))] = value
        return found


def _folders(store: Store, path: str) -> list[str]:
    """Return the names below a group that may be members; without listing, by the copies."""
    if Feature.LIST in store.features:
        return [name[:-1] for name in store.names(path) if name.endswith("/")]
    return list(v2_consolidated.children(store, path))


def _comparable(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return documents without the fields that some writers add to their copies."""
    found = {}
    for key, value in documents.items():
        name = key.rpartition("/")[2]
        if name == GROUP:
            found[key] = {"zarr_format": value.get("zarr_format")}
        elif value or name != ATTRS:
            found[key] = value
    return found


def _same(copy: Any, actual: Any) -> bool:
    """Return whether two documents of arrays mean the same, whatever their spelling."""
    try:
        # Some programs spell out defaults in copies that the document omits.
        return bool(copy and actual) and _canonical(copy) == _canonical(actual)
    except IngotError:
        return False


def _canonical(values: Mapping[str, Any]) -> bytes:
    """Return an equal document of an array in the spelling of Ingot."""
    metadata = parse_array(json.pack(dict(values), ARRAY, allow_nan=True))
    plain = V2ArrayMetadata.of(metadata.schema, metadata.separator).document
    kept = {key: value for key, value in values.items() if key not in plain}
    spelled = {**plain, **kept, "dimension_separator": metadata.separator}
    return json.pack(spelled, ARRAY, allow_nan=True)

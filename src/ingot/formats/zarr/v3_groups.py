"""Groups of Zarr version 3, and their consolidated metadata.

This module returns the commits that create, change and remove groups. Arrays are handled by
`ingot.formats.zarr.v3`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ingot.errors import IngotError, NotFoundError
from ingot.formats import json
from ingot.formats.checkable import Finding, Repair, RepairRequest
from ingot.formats.format import ConsolidatedMetadata, GroupMembers, GroupNode, Node
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import check, hierarchy, restore, v3_consolidated, v3_metadata
from ingot.formats.zarr.v3 import Zarr3Format, check_node_path, open_all, stage_node
from ingot.formats.zarr.v3_metadata import NODE, V3GroupMetadata, pack_document
from ingot.stores.store import Commit, Extent, Feature, Put, Store

__all__ = ["Zarr3GroupFormat"]


_PARSERS: Final[check.Parsers] = {NODE: v3_metadata.parse}


class Zarr3GroupFormat(Zarr3Format):
    """Zarr version 3, arrays and groups."""

    def has_part(self, store: Store, path: str) -> bool:
        """Return whether all nodes above a path are groups, or can become groups with it."""
        groups = list(above(path))
        for group in groups:
            key = prefix(group) + NODE
            [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
            if data is None:
                if not group or any(store.names(group)):
                    return False
            elif json.parse_object(data, key, allow_nan=True).get("node_type") != "group":
                return False
        return True

    def create_group(
        self, store: Store, path: str = "", attrs: Mapping[str, Any] | None = None
    ) -> tuple[GroupNode, Commit]:
        """Return a new group, and the commit that creates it and the groups above it."""
        path = normalised(path)
        check_node_path(path)
        metadata, data = V3GroupMetadata().described(attrs or {}), None
        if not path and Feature.LIST not in store.features:
            # Only consolidated metadata can name the members; every change keeps it up to date.
            empty = v3_consolidated.with_consolidated(metadata.document, {})
            data = pack_document(empty, NODE)
        commit = stage_node(store, path, metadata, data)
        return GroupNode(path, dict(metadata.attrs)), commit

    def children(self, store: Store, path: str) -> tuple[str, ...]:
        """Return the names of the members of a group, sorted."""
        names = _folders(store, path)
        found = store.read([Extent(f"{prefix(path)}{name}/{NODE}", 0, 1) for name in names])
        return tuple(name for name, marker in zip(names, found, strict=True) if marker is not None)

    def members(
        self, store: Store, groups: Sequence[str], most: int | None = None
    ) -> list[GroupMembers]:
        """Return the members of groups, by one read of all documents."""
        return hierarchy.members(groups, partial(_folders, store), partial(open_all, store), most)

    def describe_group(self, store: Store, path: str, attrs: Mapping[str, Any]) -> Commit:
        """Return the commit that changes the attributes of a group, consolidated ones included."""
        metadata = self._group(store, path).described(attrs)
        updates = v3_consolidated.updates(store, above(path), {path: metadata.document})
        return Commit(publish=(Put(prefix(path) + NODE, v3_metadata.pack(metadata)), *updates))

    def removed(self, store: Store, path: str) -> Commit:
        """Return the commit that removes a node and all below it, at once."""
        commit = hierarchy.removed(self, store, path, (NODE,))
        updates = v3_consolidated.updates(store, above(path), {}, removed=path)
        return replace(commit, publish=(*commit.publish, *updates))

    def compare_consolidated(self, store: Store, path: str) -> ConsolidatedMetadata | None:
        """Return how consolidated metadata compares with the documents; None without any."""
        found = v3_consolidated.parse(self._group(store, path).document)
        if found is None:
            return None
        return ConsolidatedMetadata(
            v3_consolidated.stale_paths(found, self._documents(store, path))
        )

    def consolidated(self, store: Store, path: str) -> Commit:
        """Return the commit that consolidates the metadata of all nodes below a group."""
        values = self._group(store, path).document
        full = v3_consolidated.with_consolidated(values, self._documents(store, path))
        data = pack_document(full, prefix(path) + NODE)
        return Commit(publish=(Put(prefix(path) + NODE, data),))

    def findings(
        self, store: Store, path: str, node: Node | None, name: str, *, quick: bool = False
    ) -> Iterator[Finding]:
        """Yield what is wrong with documents, and how many bytes of shards are dead."""
        step = self._copies_step(store, path, name)
        if step is not None:
            yield step.finding
        yield from check.findings(store, path, node, name, _PARSERS, quick=quick)

    def repair(self, store: Store, path: str, request: RepairRequest, name: str) -> Repair | None:
        """Return the next step that mends a node; None without a fault that can be mended."""
        step = self._copies_step(store, path, name)
        if step is not None:
            return step
        try:
            node = self.open(store, path)
        except IngotError:
            return None
        return check.repair(node, name)

    def _copies_step(self, store: Store, path: str, name: str) -> Repair | None:
        """Return the step that restores a document below a group from its copy."""
        try:
            copies = v3_consolidated.parse(self._group(store, path).document)
        except IngotError:
            return None
        known: restore.Copies = {
            f"{inner}/{NODE}": (pack_document(copy, inner), v3_metadata.parse)
            for inner, copy in (copies or {}).items()
        }
        return restore.copies_step(store, path, name, known)

    def _group(self, store: Store, path: str) -> V3GroupMetadata:
        key = prefix(path) + NODE
        [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
        found = None if data is None else v3_metadata.parse(data, key)
        if not isinstance(found, V3GroupMetadata):
            raise NotFoundError(f"{store.location}: no group at {path!r}")
        return found

    def _documents(self, store: Store, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        nodes = map(hierarchy.path_of, hierarchy.walk(self, store, path))
        places = sorted(place for place in nodes if place != path)
        documents = [prefix(place) + NODE for place in places]
        contents = store.read([Extent(key, 0, json.LARGEST + 1) for key in documents])
        for place, key, data in zip(places, documents, contents, strict=True):
            if data is not None:
                found[place.removeprefix(prefix(path))] = v3_consolidated.without_consolidated(
                    json.parse_object(data, key, allow_nan=True)
                )
        return found


def _folders(store: Store, path: str) -> list[str]:
    """Return the names below a group that may be members; without listing, by the copies."""
    if Feature.LIST in store.features:
        return [name[:-1] for name in store.names(path) if name.endswith("/")]
    return list(v3_consolidated.children(store, path))

"""Groups of Zarr version 3, and the copies of metadata that they may keep.

Knows the commits by which groups come, change and go. Refuses to know arrays, which `zarr3` does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ingot.errors import NotFoundError
from ingot.formats import json
from ingot.formats.format import Copies, GroupNode
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import (
    hierarchy as nodes,
)
from ingot.formats.zarr import (
    v3_consolidated as zarr3_copies,
)
from ingot.formats.zarr import (
    v3_metadata as zarr3_document,
)
from ingot.formats.zarr.v3 import Zarr3Format, checked_path, documented
from ingot.formats.zarr.v3_metadata import NODE, GroupMetadata
from ingot.stores.store import Commit, Extent, Put, Store

__all__ = ["Zarr3GroupFormat"]


class Zarr3GroupFormat(Zarr3Format):
    """Zarr version 3 with its groups."""

    marks: ClassVar[tuple[str, ...]] = (NODE,)
    between: ClassVar[str | None] = None

    def has_part(self, store: Store, path: str) -> bool:
        """Tell whether all nodes above a path are groups, or can become groups with it."""
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
        """Return a new group, and the commit that makes it and the groups above it."""
        path = checked_path(normalised(path))
        metadata = GroupMetadata().described(attrs or {})
        commit = Commit(publish=documented(store, path, metadata))
        return GroupNode(path, (), dict(metadata.attrs)), commit

    def describe_group(self, store: Store, path: str, attrs: Mapping[str, Any]) -> Commit:
        """Return the commit that gives a group other attributes, and its copies too."""
        metadata = self._group(store, path).described(attrs)
        followed = zarr3_copies.followed(store, above(path), {path: metadata.document})
        return Commit(publish=(Put(prefix(path) + NODE, zarr3_document.pack(metadata)), *followed))

    def removed(self, store: Store, path: str) -> Commit:
        """Return the commit that removes a node and all below it, at once."""
        commit = nodes.removed(self, store, path, (NODE,))
        followed = zarr3_copies.followed(store, above(path), {}, gone=path)
        return replace(commit, publish=(*commit.publish, *followed))

    def copies(self, store: Store, path: str) -> Copies | None:
        """Return how the copies at a group compare with the documents; None without copies."""
        found = zarr3_copies.parse(self._group(store, path).document)
        if found is None:
            return None
        return Copies(zarr3_copies.differences(found, self._documents(store, path)))

    def consolidated(self, store: Store, path: str) -> Commit:
        """Return the commit that makes copies of all documents below a group."""
        values = self._group(store, path).document
        full = zarr3_copies.with_copies(values, self._documents(store, path))
        data = json.pack(full, prefix(path) + NODE, allow_nan=True)
        return Commit(publish=(Put(prefix(path) + NODE, data),))

    def _group(self, store: Store, path: str) -> GroupMetadata:
        key = prefix(path) + NODE
        [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
        found = None if data is None else zarr3_document.parse(data, key)
        if not isinstance(found, GroupMetadata):
            raise NotFoundError(f"{store.location}: no group at {path!r}")
        return found

    def _documents(self, store: Store, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in nodes.walk(self, store, path):
            place = nodes.path_of(node)
            if place == path:
                continue
            key = prefix(place) + NODE
            [data] = store.read([Extent(key, 0, json.LARGEST + 1)])
            if data is not None:
                found[place.removeprefix(prefix(path))] = zarr3_copies.bare(
                    json.parse_object(data, key, allow_nan=True)
                )
        return found

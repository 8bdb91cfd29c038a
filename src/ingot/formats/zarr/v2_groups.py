"""Groups of Zarr version 2, and the copies of metadata that they may keep.

Knows the commits by which groups come, change and go. Refuses to know arrays, which `zarr2` does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ingot.errors import IngotError
from ingot.formats import json
from ingot.formats.format import Copies, GroupNode
from ingot.formats.paths import above, normalised, prefix
from ingot.formats.zarr import hierarchy, v2_consolidated
from ingot.formats.zarr.v2 import (
    ARRAY,
    ATTRS,
    GROUP,
    ArrayMetadata,
    Zarr2Format,
    documented,
    pack_attrs,
    pack_group,
    parse_array,
)
from ingot.stores.store import Commit, Extent, Put, Store

__all__ = ["Zarr2GroupFormat"]


class Zarr2GroupFormat(Zarr2Format):
    """Zarr version 2 with its groups."""

    marks: ClassVar[tuple[str, ...]] = (GROUP,)
    between: ClassVar[str | None] = None

    def has_part(self, store: Store, path: str) -> bool:
        """Tell whether all nodes above a path are groups, or can become groups with it."""
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
        """Return a new group, and the commit that makes it and the groups above it."""
        path, attrs = normalised(path), dict(attrs or {})
        content = json.parse_object(pack_group(), GROUP)
        return GroupNode(path, (), attrs), documented(store, path, GROUP, content, attrs)

    def describe_group(self, store: Store, path: str, attrs: Mapping[str, Any]) -> Commit:
        """Return the commit that gives a group other attributes, and its copies too."""
        key = prefix(path) + ATTRS
        followed = v2_consolidated.followed(store, (*above(path), path), {key: dict(attrs)})
        return Commit(publish=(Put(key, pack_attrs(attrs)), *followed))

    def removed(self, store: Store, path: str) -> Commit:
        """Return the commit that removes a node and all below it, at once."""
        commit = hierarchy.removed(self, store, path, (GROUP, ATTRS, v2_consolidated.COPIES))
        followed = v2_consolidated.followed(store, above(path), {}, gone=path)
        return replace(commit, publish=(*commit.publish, *followed))

    def copies(self, store: Store, path: str) -> Copies | None:
        """Return how the copies at a group compare with the documents; None without copies."""
        found = v2_consolidated.read(store, path)
        if found is None:
            return None
        real = self._documents(store, path)
        stale = v2_consolidated.differences(_told(found), _told(real))
        return Copies(tuple(key for key in stale if not _same(found.get(key), real.get(key))))

    def consolidated(self, store: Store, path: str) -> Commit:
        """Return the commit that makes copies of all documents at a group and below it."""
        data = v2_consolidated.pack(self._documents(store, path))
        return Commit(publish=(Put(prefix(path) + v2_consolidated.COPIES, data),))

    def _documents(self, store: Store, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for node in hierarchy.walk(self, store, path):
            place = prefix(hierarchy.path_of(node))
            keys = [place + name for name in (ARRAY, GROUP, ATTRS)]
            data = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
            for key, content in zip(keys, data, strict=True):
                if content is not None:
                    value = json.parse_object(content, key, allow_nan=True)
                    found[key.removeprefix(prefix(path))] = value
        return found


def _told(documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return what documents say, without what some writers add to the copies of them."""
    found = {}
    for key, value in documents.items():
        name = key.rpartition("/")[2]
        if name == GROUP:
            found[key] = {"zarr_format": value.get("zarr_format")}
        elif value or name != ATTRS:
            found[key] = value
    return found


def _same(copy: Any, real: Any) -> bool:
    """Tell whether two documents of arrays say the same, though they spell it differently."""
    try:
        # Some programs spell out in copies what a document leaves to its defaults.
        return bool(copy and real) and _respelled(copy) == _respelled(real)
    except IngotError:
        return False


def _respelled(values: Mapping[str, Any]) -> bytes:
    """Return the document of an array that says the same as we would spell it."""
    metadata = parse_array(json.pack(dict(values), ARRAY, allow_nan=True))
    plain = ArrayMetadata.of(metadata.schema, metadata.separator).document
    kept = {key: value for key, value in values.items() if key not in plain}
    said = {**plain, **kept, "dimension_separator": metadata.separator}
    return json.pack(said, ARRAY, allow_nan=True)

"""Files in the folder of a source that are no part of the dataset: kept, or listed.

A file is kept where the target is a folder in which nothing else bears its name. A file by which a
format is recognised is never kept: it would describe a dataset that is not there. In the same
format, files beside the documents in ``meta`` are kept beside those of the target.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final, cast

from ingot.errors import IngotError
from ingot.formats.format import ArrayNode, Format, GroupFormat, Node, RaggedNode, TableNode
from ingot.formats.paths import prefix
from ingot.formats.registry import FORMATS
from ingot.stores.store import Commit, Extent, Feature, Store

__all__ = ["LARGEST", "extra_files", "path_of", "read_extra"]

LARGEST: Final = 1 << 20
"""The most bytes of a file that is kept."""
_LOCK: Final = ".lock"
# The folder in which blsk and bcolz have their documents, and other programs may have files.
_META: Final = "meta/"
_DEEPEST: Final = 64


def path_of(node: Node) -> str:
    """Return the path of a dataset in its store."""
    if isinstance(node, ArrayNode):
        return node.chunks.path
    if isinstance(node, TableNode):
        return node.table.path
    return node.packs.path if isinstance(node, RaggedNode) else node.path


def extra_files(node: Node, format: Format, store: Store) -> list[str]:
    """Return the files below a dataset that are no part of it, by their names there.

    >>> import numpy as np
    >>> import ingot
    >>> from ingot.stores import MemoryStore, Put
    >>> store = MemoryStore()
    >>> array = ingot.array(np.arange(3), store)
    >>> store.apply(Commit(publish=(Put("notes/today.txt", b"warm"),)))
    >>> extra_files(ArrayNode(array._handle.value.chunks), array._format, store)
    ['notes/today.txt']
    """
    entry = FORMATS.entries.get(format.name)
    if entry is None or not entry.is_folder or Feature.LIST not in store.features:
        return []
    listed = cast(Store, _ListedOnce(store))
    try:
        opened = format.open(listed, path_of(node))
        if type(opened) is not type(node):
            return []  # A column of a table, whose folder is that of the table.
        own = {edit.key for edit in _removal(opened, format, listed).edits}
    except IngotError:
        return []  # A part that is not removed alone.
    lead = prefix(path_of(node))
    found = (key for key in _keys(listed, lead, 0) if key not in own)
    return [name for key in found if (name := key.removeprefix(lead)) != _LOCK]


class _ListedOnce:
    """A store that lists each folder once: listing many takes a while."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._names: dict[str, tuple[str, ...]] = {}

    def names(self, folder: str, *, hidden: bool = False) -> Iterator[str]:
        """Yield what the store lists, or has listed before."""
        if hidden:
            return iter(self._store.names(folder, hidden=True))
        if folder not in self._names:
            self._names[folder] = tuple(self._store.names(folder))
        return iter(self._names[folder])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def _removal(node: Node, format: Format, store: Store) -> Commit:
    """Return the commit that removes a dataset: it names every file that is a part of it."""
    if isinstance(node, ArrayNode):
        return node.chunks.removed()
    if isinstance(node, TableNode):
        return node.table.removed()
    if isinstance(node, RaggedNode):
        return node.packs.removed()
    assert isinstance(format, GroupFormat)
    return format.removed(store, node.path)


def _keys(store: Store, folder: str, depth: int) -> Iterator[str]:
    for name in store.names(folder):
        if not name.endswith("/"):
            yield folder + name
        elif depth < _DEEPEST:
            yield from _keys(store, folder + name, depth + 1)


def read_extra(
    store: Store, folder: str, name: str, taken: Collection[str], *, same: bool = False
) -> tuple[bytes | None, str]:
    """Return the bytes of a file that a target keeps; None, and why it does not keep it.

    `taken` has the files of the target, `same` says whether its format is that of the source.
    """
    first = name.partition("/")[0]
    if same and name.startswith(_META) and name not in taken:
        return _read_small(store, prefix(folder) + name)
    known = {mark for entry in FORMATS.entries.values() for mark in _names_of(entry.name)}
    if first in known:
        return None, f"a format looks for {first}"
    if first[:1].isdecimal() or first in {key.partition("/")[0] for key in taken}:
        return None, f"the target has {first} itself"
    return _read_small(store, prefix(folder) + name)


def _read_small(store: Store, key: str) -> tuple[bytes | None, str]:
    (data,) = store.read([Extent(key, 0, LARGEST + 1)])
    if data is None or len(data) > LARGEST:
        return None, f"it has more than {LARGEST} bytes"
    return data, ""


def _names_of(format: str) -> Iterator[str]:
    """Yield the first parts of the names of documents and chunks of a format."""
    entry = FORMATS.entries[format]
    documents = (name for group in entry.documents for name in group)
    for name in (*entry.markers, *entry.encloses, *documents, "c", "data", "__zdata__"):
        yield name.partition("/")[0]

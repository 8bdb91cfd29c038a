"""Walks and removals of whole hierarchies, for any format with groups."""

from collections.abc import Iterator, Sequence

from ingot.errors import NotFoundError
from ingot.formats.format import ArrayNode, Format, GroupNode
from ingot.formats.paths import joined, prefix
from ingot.stores.store import Commit, Delete, Edit, Store

__all__ = ["path_of", "removed", "walk"]


def walk(format: Format, store: Store, path: str) -> Iterator[ArrayNode | GroupNode]:
    """Yield the node at a path and all below it, a group before its members."""
    waiting = [path]
    while waiting:
        place = waiting.pop()
        try:
            node = format.open(store, place)
        except NotFoundError:
            continue  # Removed since its group was listed.
        if isinstance(node, GroupNode):
            waiting += (joined(place, name) for name in reversed(node.children))
        if isinstance(node, ArrayNode | GroupNode):
            yield node


def removed(format: Format, store: Store, path: str, documents: Sequence[str]) -> Commit:
    """Return the commit that removes a node and all below it, at once.

    `documents` are the names of a group's documents. Consolidated metadata is left to the caller.
    """
    edits: list[Edit] = []
    for node in walk(format, store, path):
        if isinstance(node, ArrayNode):
            edits += (edit for edit in node.chunks.removed().edits if isinstance(edit, Delete))
        else:
            edits += (Delete(prefix(node.path) + name) for name in documents)
    # Innermost first: if the removal is interrupted, remaining nodes still lie in groups.
    return Commit(publish=tuple(reversed(edits)))


def path_of(node: ArrayNode | GroupNode) -> str:
    """Return the path of a node in its store."""
    return node.chunks.path if isinstance(node, ArrayNode) else node.path

"""Listings, walks and removals of whole hierarchies, for any format with groups."""

from collections.abc import Callable, Iterator, Sequence

from ingot.errors import NotFoundError
from ingot.formats.format import ArrayNode, GroupFormat, GroupMembers, GroupNode, Node
from ingot.formats.paths import joined, prefix
from ingot.stores.store import Commit, Delete, Edit, Store

__all__ = ["members", "path_of", "removed", "walk"]


def members(
    groups: Sequence[str],
    folders: Callable[[str], Sequence[str]],
    open_all: Callable[[Sequence[str]], Sequence[Node | None]],
    most: int | None,
) -> list[GroupMembers]:
    """Return the members of groups; `folders` lists a group, `open_all` reads all nodes at once."""
    listed = [folders(group) for group in groups]
    kept: list[Sequence[str]] = []
    for names in listed:
        kept.append(names if most is None else names[:most])
        most = None if most is None else most - len(kept[-1])
    paths = [
        joined(group, name) for group, names in zip(groups, kept, strict=True) for name in names
    ]
    nodes = iter(open_all(paths))
    found = []
    for names, some in zip(listed, kept, strict=True):
        opened = [(name, next(nodes)) for name in some]
        present = {name: node for name, node in opened if node is not None}
        found.append(GroupMembers(present, complete=len(some) == len(names)))
    return found


def walk(format: GroupFormat, store: Store, path: str) -> Iterator[ArrayNode | GroupNode]:
    """Yield the node at a path and all below it, level by level; each level is read at once."""
    try:
        level: list[Node] = [format.open(store, path)]
    except NotFoundError:
        return
    while level:
        yield from (node for node in level if isinstance(node, ArrayNode | GroupNode))
        groups = [node.path for node in level if isinstance(node, GroupNode)]
        below = format.members(store, groups)
        level = [node for each in below for node in each.nodes.values()]


def removed(format: GroupFormat, store: Store, path: str, documents: Sequence[str]) -> Commit:
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

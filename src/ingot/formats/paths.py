"""Paths of nodes in a hierarchy: names joined by slashes; the path of the root is empty."""

from collections.abc import Iterator

__all__ = ["above", "joined", "normalised", "prefix"]


def normalised(path: str) -> str:
    r"""Return a path without empty parts and with slashes for backslashes.

    >>> normalised("/a//b\\c/")
    'a/b/c'
    """
    return "/".join(part for part in path.replace("\\", "/").split("/") if part)


def joined(path: str, name: str) -> str:
    """Return the path of the node `name` below another path; both are normalised.

    >>> joined("a", "b/c"), joined("", "b"), joined("a", "")
    ('a/b/c', 'b', 'a')
    """
    return f"{path}/{name}" if path and name else path or name


def prefix(path: str) -> str:
    """Return the beginning of all keys below a path.

    >>> prefix("a/b"), prefix("")
    ('a/b/', '')
    """
    return f"{path}/" if path else ""


def above(path: str) -> Iterator[str]:
    """Yield the paths of all nodes above a path, the root first.

    >>> list(above("a/b/c")), list(above(""))
    (['', 'a', 'a/b'], [])
    """
    parts = path.split("/") if path else []
    for depth in range(len(parts)):
        yield "/".join(parts[:depth])

"""Paths of nodes in a hierarchy: names joined by slashes; the path of the root is empty."""

from collections.abc import Container, Iterator
from typing import Final

from ingot.errors import UnsafeError
from ingot.stores.store import check_new_key, is_staged

__all__ = ["above", "check_new", "joined", "normalised", "prefix"]

_CONTROL_FILES: Final = frozenset({".commit", ".lock", ".log"})


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


def check_new(path: str, documents: Container[str] = ()) -> None:
    """Raise `UnsafeError` for a path of a new node that a store refuses, or of a control file.

    Those are the lock file, the journal, staged files, and the `documents` of the format.

    >>> check_new("a/.zarray", (".zarray", ".zgroup"))
    Traceback (most recent call last):
    ingot.errors.UnsafeError: 'a/.zarray': '.zarray' is the name of a control file, not of a node
    """
    for name in path.split("/") if path else ():
        if name in _CONTROL_FILES or name in documents or is_staged(name):
            raise UnsafeError(f"{path!r}: {name!r} is the name of a control file, not of a node")
    if path:
        check_new_key(path)

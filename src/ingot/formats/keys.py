"""The chunks that a store holds under keys made of their coordinates.

Knows how to find them and which of them lie in one grid and not in another. Refuses to know what a
chunk holds; what a key looks like, `KeyTemplate` says.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Final

from ingot.formats.format import Coords, KeyTemplate
from ingot.stores.store import Store

__all__ = ["difference", "leaving", "stored"]

# Removing so many keys that may not be there is cheaper than asking which are.
_MOST_UNSEEN: Final = 4096


def stored(store: Store, template: KeyTemplate, ndim: int) -> Iterator[Coords]:
    """Yield the coordinates of all chunks that a store holds, wherever they lie.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"a/0/1": b"", "a/0/x": b"", "a/.zarray": b""})
    >>> list(stored(store, KeyTemplate("a/", "/"), 2))
    [(0, 1)]
    """
    folders = ndim - 1 if template.separator == "/" else 0
    # A prefix may end with the beginning of a name.
    folder, slash, _ = template.prefix.rpartition("/")
    for key in _walk(store, folder + slash, folders):
        coords = template.parse(key, ndim)
        if coords is not None:
            yield coords


def leaving(
    store: Store, template: KeyTemplate, inside: Coords, outside: Coords
) -> Iterator[Coords]:
    """Yield the chunks in a grid of `inside` that are not in one of `outside`, if stored.

    Where they are few, also those that are not stored: looking for them would cost more.

    >>> from ingot.stores import MemoryStore
    >>> list(leaving(MemoryStore(), KeyTemplate(), (2, 2), (1, 2)))
    [(1, 0), (1, 1)]
    """
    common = tuple(map(min, inside, outside))
    if math.prod(inside) - math.prod(common) <= _MOST_UNSEEN:
        yield from difference(inside, outside)
        return
    for coords in stored(store, template, len(inside)):
        if _within(coords, inside) and not _within(coords, outside):
            yield coords


def difference(inside: Coords, outside: Coords) -> Iterator[Coords]:
    """Yield the chunks in a grid of `inside` chunks along each axis that are not in `outside`.

    >>> list(difference((2, 3), (1, 2)))
    [(1, 0), (1, 1), (1, 2), (0, 2)]
    """
    for axis in range(len(inside)):
        # Inside the common part on all axes before, beyond it on this one, anywhere after.
        ranges = [range(min(a, b)) for a, b in zip(inside[:axis], outside[:axis], strict=True)]
        ranges.append(range(outside[axis], inside[axis]))
        ranges += map(range, inside[axis + 1 :])
        yield from itertools.product(*ranges)


def _walk(store: Store, prefix: str, folders: int) -> Iterator[str]:
    for name in store.names(prefix):
        if not name.endswith("/"):
            yield prefix + name
        elif folders and name[:-1].isdecimal():
            yield from _walk(store, prefix + name, folders - 1)


def _within(coords: Coords, counts: Coords) -> bool:
    return all(position < count for position, count in zip(coords, counts, strict=True))

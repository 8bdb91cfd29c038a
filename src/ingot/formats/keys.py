"""The chunks that a store holds under keys made of their coordinates.

Knows how to find them, which of them lie in one grid and not in another, and the edits that store
and remove them. Refuses to know what a chunk holds; what a key looks like, `KeyTemplate` says.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Final

from ingot.formats.format import Coords, KeyTemplate
from ingot.stores.store import Commit, Delete, Put, Store

__all__ = ["all_removed", "difference", "leaving", "removals", "staged", "stored", "strays"]

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


def staged(template: KeyTemplate, encoded: Mapping[Coords, bytes | None]) -> Commit:
    """Return the commit that stores chunks, each by one atomic edit; None removes one.

    >>> staged(KeyTemplate(), {(0, 1): b"abc", (2, 0): None}).publish
    (Put('0.1', 3 bytes), Delete(key='2.0'))
    """
    return Commit(
        publish=tuple(
            Delete(template.key(coords)) if data is None else Put(template.key(coords), data)
            for coords, data in encoded.items()
        )
    )


def removals(
    store: Store, template: KeyTemplate, inside: Coords, outside: Coords
) -> tuple[Delete, ...]:
    """Return the removal of all chunks in the grid `inside` that are not in `outside`.

    >>> from ingot.stores import MemoryStore
    >>> removals(MemoryStore(), KeyTemplate(suffix=".blosc"), (3,), (2,))
    (Delete(key='2.blosc'),)
    """
    if all(map(int.__le__, inside, outside)):
        return ()
    found = leaving(store, template, inside, outside)
    return tuple(Delete(template.key(coords)) for coords in found)


def all_removed(store: Store, template: KeyTemplate, ndim: int) -> tuple[Delete, ...]:
    """Return the removal of all chunks that a store holds, wherever they lie.

    >>> from ingot.stores import MemoryStore
    >>> all_removed(MemoryStore({"0.1": b"", "7.0": b"", ".zarray": b""}), KeyTemplate(), 2)
    (Delete(key='0.1'), Delete(key='7.0'))
    """
    return tuple(Delete(template.key(coords)) for coords in stored(store, template, ndim))


def strays(store: Store, template: KeyTemplate, ndim: int) -> tuple[Delete, ...]:
    """Return the removal of what lies where the chunks of a new array will be.

    That are chunks which an array left, and folders with the key of a chunk, which one of more axes
    left, empty.
    """
    folders = ndim - 1 if template.separator == "/" else 0
    folder, slash, _ = template.prefix.rpartition("/")
    keys = (key.removesuffix("/") for key in _walk(store, folder + slash, folders, leaves=True))
    return tuple(Delete(key) for key in keys if template.parse(key, ndim) is not None)


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


def _walk(store: Store, prefix: str, folders: int, *, leaves: bool = False) -> Iterator[str]:
    """Yield the keys below so many folders, and the folders there too if `leaves`."""
    for name in store.names(prefix):
        if not name.endswith("/"):
            yield prefix + name
        elif folders:
            if name[:-1].isdecimal():
                yield from _walk(store, prefix + name, folders - 1, leaves=leaves)
        elif leaves:
            yield prefix + name


def _within(coords: Coords, counts: Coords) -> bool:
    return all(position < count for position, count in zip(coords, counts, strict=True))

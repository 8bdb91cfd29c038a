"""Chunks that are stored under keys made of their coordinates.

This module finds them, compares grids, and returns the edits that store and remove chunks. The
spelling of keys is `KeyTemplate`'s.
"""

import itertools
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Final

from ingot.errors import UnsupportedError
from ingot.formats.format import Coords, KeyTemplate
from ingot.stores.store import Commit, Delete, Feature, Put, Store

__all__ = [
    "all_removals",
    "grid_difference",
    "removals",
    "stage",
    "stored",
    "stored_difference",
    "stray_removals",
]

# Removing up to this many keys, present or not, is cheaper than listing the store.
_MOST_UNSEEN: Final = 4096
# The most keys that are removed, present or not, where the store cannot be listed.
_MOST_UNLISTED: Final = 2**20


def stored(store: Store, template: KeyTemplate, ndim: int) -> Iterator[Coords]:
    """Yield the coordinates of all chunks in a store, inside or outside of any grid.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"a/0/1": b"", "a/0/x": b"", "a/.zarray": b""})
    >>> list(stored(store, KeyTemplate("a/", "/"), 2))
    [(0, 1)]
    """
    folders = ndim - 1 if template.separator == "/" else 0
    # A prefix may end with the first letters of a file name.
    folder, slash, _ = template.prefix.rpartition("/")
    for key in _walk(store, folder + slash, folders):
        coords = template.parse(key, ndim)
        if coords is not None:
            yield coords


def stored_difference(
    store: Store, template: KeyTemplate, inside: Coords, outside: Coords
) -> Iterator[Coords]:
    """Return the stored chunks in the grid `inside` that are not in the grid `outside`.

    Where the difference is small, chunks that are not stored are among them: listing the store
    would cost more.

    >>> from ingot.stores import MemoryStore
    >>> list(stored_difference(MemoryStore(), KeyTemplate(), (2, 2), (1, 2)))
    [(1, 0), (1, 1)]
    """
    if all(map(operator.le, inside, outside)):
        return iter(())  # As for every append.
    common = tuple(map(min, inside, outside))
    count = math.prod(inside) - math.prod(common)
    if count <= _MOST_UNSEEN or Feature.LIST not in store.features:
        _check_unlisted(store, count)
        return grid_difference(inside, outside)
    every = stored(store, template, len(inside))
    return (each for each in every if _within(each, inside) and not _within(each, outside))


def stage(template: KeyTemplate, encoded: Mapping[Coords, bytes | None]) -> Commit:
    """Return the commit that stores chunks, each by one atomic edit; None removes a chunk.

    >>> stage(KeyTemplate(), {(0, 1): b"abc", (2, 0): None}).publish
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
    """Return the edits that remove all chunks in the grid `inside` that are not in `outside`.

    >>> from ingot.stores import MemoryStore
    >>> removals(MemoryStore(), KeyTemplate(suffix=".blosc"), (3,), (2,))
    (Delete(key='2.blosc'),)
    """
    if all(map(int.__le__, inside, outside)):
        return ()
    found = stored_difference(store, template, inside, outside)
    return tuple(Delete(template.key(coords)) for coords in found)


def all_removals(store: Store, template: KeyTemplate, counts: Coords) -> tuple[Delete, ...]:
    """Return the edits that remove all chunks in a store, inside or outside of any grid.

    Where the store cannot be listed, all of the grid `counts`.

    >>> from ingot.stores import MemoryStore
    >>> all_removals(MemoryStore({"0.1": b"", "7.0": b"", ".zarray": b""}), KeyTemplate(), (1, 2))
    (Delete(key='0.1'), Delete(key='7.0'))
    """
    if Feature.LIST not in store.features:
        return _grid_removals(store, template, counts)
    return tuple(Delete(template.key(coords)) for coords in stored(store, template, len(counts)))


def stray_removals(store: Store, template: KeyTemplate, counts: Coords) -> tuple[Delete, ...]:
    """Return the edits that remove everything under the keys of a new array's chunks.

    These are the chunks of an earlier array, and the empty folders that an array with more axes
    left under the key of a chunk. Where the store cannot be listed, all of the grid `counts`: a
    chunk that stayed would become part of the new array.
    """
    if Feature.LIST not in store.features:
        return _grid_removals(store, template, counts)
    ndim = len(counts)
    folders = ndim - 1 if template.separator == "/" else 0
    folder, slash, _ = template.prefix.rpartition("/")
    keys = (key.removesuffix("/") for key in _walk(store, folder + slash, folders, leaves=True))
    return tuple(Delete(key) for key in keys if template.parse(key, ndim) is not None)


def _grid_removals(store: Store, template: KeyTemplate, counts: Coords) -> tuple[Delete, ...]:
    _check_unlisted(store, math.prod(counts))
    return tuple(Delete(template.key(coords)) for coords in itertools.product(*map(range, counts)))


def _check_unlisted(store: Store, count: int) -> None:
    if count > _MOST_UNLISTED:
        raise UnsupportedError(
            f"{store.location}: cannot be listed, and {count} chunks are too many to be removed "
            f"one by one; the limit is {_MOST_UNLISTED}"
        )


def grid_difference(inside: Coords, outside: Coords) -> Iterator[Coords]:
    """Yield the coordinates in the grid `inside` that are not in the grid `outside`.

    A grid is given by its number of chunks along each axis.

    >>> list(grid_difference((2, 3), (1, 2)))
    [(1, 0), (1, 1), (1, 2), (0, 2)]
    """
    for axis in range(len(inside)):
        # In the common part on all axes before, beyond it on this axis, anywhere on later ones.
        ranges = [range(min(a, b)) for a, b in zip(inside[:axis], outside[:axis], strict=True)]
        ranges.append(range(outside[axis], inside[axis]))
        ranges += map(range, inside[axis + 1 :])
        # A product of nothing would still hold all positions of the other axes in memory.
        if all(ranges):
            yield from itertools.product(*ranges)


def _walk(store: Store, prefix: str, folders: int, *, leaves: bool = False) -> Iterator[str]:
    """Yield the keys at most `folders` levels down, and the folders at that level if `leaves`."""
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

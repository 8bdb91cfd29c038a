"""The stored size of an array: the bytes that its chunks take in the store.

Asks the chunk map and the store for sizes and reads no chunk.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.engine.flat import PayloadMap
from ingot.formats.format import ChunkMap, Coords, stored_map
from ingot.formats.keys import stored
from ingot.stores.store import Extent, Feature, Inline, Location, Store

__all__ = ["location_bytes", "stored_bytes"]

_WINDOW: Final = 4096


def stored_bytes(chunks: ChunkMap) -> int:
    """Return the bytes of all stored chunks; chunks that are not stored count as none.

    >>> import ingot
    >>> array = ingot.create(shape=100, dtype="u1", chunks=10, codec="none", checksum=False)
    >>> array[:15] = 7
    >>> array.stored_bytes
    20
    """
    # A shard counts as a whole, with its index and gaps: that takes one request per shard.
    chunks = stored_map(chunks)
    if chunks.schema.flat is not None:
        chunks = PayloadMap.of(chunks)
    return sum(
        location_bytes(chunks.store, location)
        for window in _windows(chunks)
        for location in chunks.locate(window)
    )


def location_bytes(store: Store, location: Location) -> int:
    """Return the stored bytes at a location; none where nothing is stored."""
    if isinstance(location, Inline):
        return len(location.data)
    if not isinstance(location, Extent):
        return 0
    if location.length is not None:
        return location.length
    return max(0, (store.size(location.key) or 0) - location.start)


def _windows(chunks: ChunkMap) -> Iterator[NDArray[np.int64]]:
    """Yield the coordinates of chunks that may be stored, in tables of up to `_WINDOW` rows."""
    grid = chunks.schema.grid
    ndim = len(grid.counts)
    found: list[Coords] = []
    for coords in _candidates(chunks):
        if all(position < count for position, count in zip(coords, grid.counts, strict=True)):
            found.append(coords)
        if len(found) == _WINDOW:
            yield np.array(found, np.int64)
            found = []
    yield np.array(found, np.int64).reshape(len(found), ndim)


def _candidates(chunks: ChunkMap) -> Iterator[Coords]:
    grid = chunks.schema.grid
    if chunks.template is not None and Feature.LIST in chunks.store.features:
        # A listing is as long as the stored chunks are many; a grid is as long as a file claims.
        return stored(chunks.store, chunks.template, len(grid.counts))
    return map(grid.coords, range(grid.chunk_count))

"""A cache of decoded chunks, within a budget of bytes.

The least recently used chunk is evicted first. A chunk whose bytes may have changed is never
returned. The cache does not know what a chunk is or where its bytes lie.
"""

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any

from numpy.typing import NDArray

__all__ = ["ChunkCache"]


class ChunkCache:
    """Arrays by key, each with the identity (`Store.identity`) of the bytes it was decoded from.

    >>> import numpy as np
    >>> cache = ChunkCache(100)
    >>> cache.keep("0.0", identity=1, chunk=np.zeros(10))
    >>> cache.find("0.0", identity=1).size, cache.find("0.0", identity=2)
    (10, None)
    """

    __slots__ = ("_budget", "_held", "_lock", "_used")

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._used = 0
        self._held: OrderedDict[Hashable, tuple[Hashable, NDArray[Any]]] = OrderedDict()
        self._lock = Lock()

    @property
    def used(self) -> int:
        """The bytes of all cached arrays."""
        return self._used

    def find(self, key: Hashable, identity: Hashable) -> NDArray[Any] | None:
        """Return the array of `key` if it was decoded from bytes of that identity, else None."""
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            if found[0] != identity:
                self._drop(key)
                return None
            self._held.move_to_end(key)
            return found[1]

    def keep(self, key: Hashable, identity: Hashable, chunk: NDArray[Any]) -> None:
        """Cache an array, and evict the least recently used ones beyond the budget."""
        with self._lock:
            self._drop(key)
            if chunk.nbytes > self._budget:
                return
            self._held[key] = (identity, chunk)
            self._used += chunk.nbytes
            while self._used > self._budget:
                self._drop(next(iter(self._held)))

    def forget(self, key: Hashable) -> None:
        """Drop the array of `key`, if there is one."""
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._held.clear()
            self._used = 0

    def _drop(self, key: Hashable) -> None:
        held = self._held.pop(key, None)
        if held is not None:
            self._used -= held[1].nbytes

"""An axis that is cut into chunks of several lengths.

Knows where each chunk begins and where ranges and points fall. Refuses to know other axes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_EDGES", "Edges"]

IntArray = NDArray[np.int64]

MOST_EDGES: Final = 2**22
"""The most chunks along an axis of this kind: their lengths are held in memory."""


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """The lengths of the chunks along an axis; together they may reach beyond its end.

    >>> edges = Edges([2, 5, 2])
    >>> edges.count(7), edges.count(8), edges.reach(3)
    (2, 3, 9)
    """

    lengths: IntArray
    bounds: IntArray = field(init=False, repr=False)
    """Where the chunks begin, and where the last one ends."""

    def __init__(self, lengths: Sequence[int] | IntArray) -> None:
        values = np.asarray(lengths, np.int64).reshape(-1)
        if len(values) > MOST_EDGES:
            raise ValueError(f"{len(values)} chunks along an axis, the most is {MOST_EDGES}")
        if len(values) == 0 or values.min() < 1 or values.sum(dtype=np.float64) >= 2**63:
            raise ValueError("the lengths of chunks are positive and end within 64 bits")
        object.__setattr__(self, "lengths", values)
        object.__setattr__(self, "bounds", np.concatenate([[0], np.cumsum(values)]))

    @property
    def longest(self) -> int:
        """The length of the longest chunk."""
        return int(self.lengths.max())

    def count(self, length: int) -> int:
        """Return how many chunks the first `length` items need."""
        if length > self.bounds[-1]:
            raise ValueError(f"chunks end at {self.bounds[-1]}, the axis has {length} items")
        return int(np.searchsorted(self.bounds, length))

    def reach(self, count: int) -> int:
        """Return where the first `count` chunks end."""
        return int(self.bounds[count])

    def begins(self, position: int) -> bool:
        """Tell whether a chunk begins, or the last one ends, at a position."""
        return int(self.bounds[np.searchsorted(self.bounds, position)]) == position

    def covering(self, length: int) -> "Edges":
        """Return the same chunks, and as many more, as long as the last one, as `length` needs.

        >>> Edges([2, 5]).covering(13).lengths.tolist()
        [2, 5, 5, 5]
        """
        missing = length - self.reach(-1)
        if missing <= 0:
            return self
        last = int(self.lengths[-1])
        more = -(-missing // last)
        if len(self.lengths) + more > MOST_EDGES:
            raise ValueError(f"more than {MOST_EDGES} chunks along an axis")
        return Edges(np.concatenate([self.lengths, np.full(more, last, np.int64)]))

    def numbers(self, points: IntArray) -> IntArray:
        """Return the chunk of each point.

        >>> Edges([2, 5]).numbers(np.array([0, 2, 6])).tolist()
        [0, 1, 1]
        """
        return np.searchsorted(self.bounds, points, side="right").astype(np.int64) - 1

    def cut(self, start: int, count: int, step: int) -> list[tuple[int, int, int, int]]:
        """Cut a range by chunks, as `ingot.grid.cut_range` does.

        >>> Edges([2, 5]).cut(1, 3, 2)
        [(0, 1, 1, 0), (1, 1, 2, 1)]
        """
        parts = []
        position = 0
        while position < count:
            index = start + position * step
            number = int(np.searchsorted(self.bounds, index, side="right")) - 1
            offset = index - int(self.bounds[number])
            room = int(self.lengths[number]) - 1 - offset if step > 0 else offset
            items = min(room // abs(step) + 1, count - position)
            parts.append((number, offset, items, position))
            position += items
        return parts

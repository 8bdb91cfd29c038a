"""A NumPy-style key, read item by item against a shape.

Knows what may stand in a key, which axis each item is about, and whether it fits that axis.
Refuses to know what the items mean together: that is a selection.
"""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.errors import SelectionError

__all__ = ["BREAK", "GROUP", "NEW", "POINT", "Key", "out_of_bounds", "within_bounds"]

IntArray = NDArray[np.int64]

NEW: Final = -1
"""A piece that adds an axis of length 1."""
POINT: Final = -2
"""A piece that takes one position of an axis; the axis is dropped."""
GROUP: Final = -3
"""A piece that is one of the index arrays that broadcast together."""
BREAK: Final = -4
"""A piece that only separates its neighbours: ``...``, even where it stands for no axis."""


@dataclass(slots=True)
class Key:
    """A key that was read: a range or index array for each axis, and the pieces it is made of.

    ``pieces`` follow the order of the key. A piece is the number of the axis it keeps, or one of
    the constants `NEW`, `POINT`, `GROUP`, `BREAK`. Index arrays are copies, not yet checked where
    they belong to a group, because NumPy does not look at those that are broadcast away.

    >>> key = Key.read((0, ..., None, [1, 2]), (5, 6, 7))
    >>> key.axes, key.pieces
    ([range(0, 1), range(0, 6), array([1, 2])], [-2, -4, 1, -1, -3])
    """

    shape: tuple[int, ...]
    axes: list[range | IntArray] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    lone: list[tuple[int, ...]] = field(default_factory=list)
    """The shapes that masks without axes, True and False, add to the broadcast."""

    @classmethod
    def read(
        cls, items: Sequence[object], shape: tuple[int, ...], *, orthogonal: bool = False
    ) -> "Key":
        """Read the items of a key; ``orthogonal`` keeps every index array to its own axis.

        >>> Key.read(([1, 2], [3, -4]), (5, 6), orthogonal=True).axes
        [array([1, 2]), array([3, 2])]
        """
        key = cls(shape)
        for item in _expanded([_recognised(item) for item in items], len(shape)):
            if item is None:
                key.pieces.append(NEW)
            elif item is Ellipsis:
                key.pieces.append(BREAK)
            elif isinstance(item, slice):
                key.pieces.append(len(key.axes))
                key.axes.append(_range(item, shape[len(key.axes)]))
            elif isinstance(item, int):
                key._take_integer(item)
            elif orthogonal:
                key._take_alone(np.asarray(item))
            else:
                key._take_into_group(np.asarray(item))
        return key

    def _take_integer(self, item: int) -> None:
        axis = len(self.axes)
        size = self.shape[axis]
        if not -size <= item < size:
            raise out_of_bounds(axis, item, size)
        position = item % size
        self.pieces.append(POINT)
        self.axes.append(range(position, position + 1))

    def _take_alone(self, array: NDArray[Any]) -> None:
        axis = len(self.axes)
        if array.ndim != 1:
            raise SelectionError(
                f"axis {axis}: an orthogonal index has 1 axis, this array has {array.ndim}"
            )
        if array.dtype == bool:
            array = _positions(array, axis, self.shape)[0]
        self.pieces.append(axis)
        self.axes.append(within_bounds(array, axis, self.shape[axis]))

    def _take_into_group(self, array: NDArray[Any]) -> None:
        if array.dtype != bool:
            self.pieces.append(GROUP)
            self.axes.append(array)
        elif array.ndim == 0:
            self.pieces.append(GROUP)
            self.lone.append((int(array),))
        else:
            self.pieces += [GROUP] * array.ndim
            self.axes += _positions(array, len(self.axes), self.shape)


def within_bounds(index: IntArray, axis: int, size: int) -> IntArray:
    """The same index array, checked and counted from the start of the axis, from now read-only.

    >>> within_bounds(np.array([0, -1]), 0, 10).tolist()
    [0, 9]
    """
    if index.size:
        low, high = int(index.min()), int(index.max())
        if high >= size or low < -size:
            raise out_of_bounds(axis, high if high >= size else low, size)
        if low < 0:
            index[index < 0] += size
    index.setflags(write=False)
    return index


def out_of_bounds(axis: int, index: int, size: int) -> SelectionError:
    """The error for a position that the axis does not have.

    >>> print(out_of_bounds(1, 5, 3))
    index 5 is out of bounds for axis 1 with size 3
    """
    return SelectionError(f"index {index} is out of bounds for axis {axis} with size {size}")


def _expanded(items: list[object], ndim: int) -> list[object]:
    """Write out the axes that ``...``, or the end of the key, stands for."""
    places = [place for place, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise SelectionError("an index can only have a single ellipsis ('...')")
    used = 0
    for item in items:
        if isinstance(item, np.ndarray) and item.dtype == bool:
            used += item.ndim
        elif item is not None and item is not Ellipsis:
            used += 1
    if used > ndim:
        raise SelectionError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    place = places[0] + 1 if places else len(items)
    return [*items[:place], *[slice(None)] * (ndim - used), *items[place:]]


def _recognised(item: object) -> object:
    """None, Ellipsis, a slice, an int, an array of booleans, or a private array of int64."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, bool | np.bool_):
        return np.array(item)
    if not isinstance(item, np.ndarray):
        if hasattr(item, "__index__"):
            try:
                return operator.index(item)
            except TypeError:
                pass  # An array of another library that is not a single integer.
        array = np.asarray(item)
        # An empty list has no items to tell its type by.
        item = array if array.size else array.astype(np.int64)
    if item.dtype == bool:
        return item
    if item.dtype.kind not in "iu":
        raise SelectionError(
            "only integers, slices (`:`), ellipsis (`...`), None and arrays of integers or "
            f"booleans are valid indices, not {item.dtype}"
        )
    if item.ndim == 0:
        return int(item)
    if item.dtype.kind == "u":
        # What 64 bits with a sign cannot hold is out of bounds, and so is the largest they can.
        item = np.minimum(item, np.uint64(2**63 - 1))
    return np.array(item, dtype=np.int64, order="C")


def _range(item: slice, size: int) -> range:
    """The positions of a slice. Fewer than two have step 1, none start at 0."""
    found = range(*item.indices(size))
    if len(found) < 2:
        start = found.start if found else 0
        return range(start, start + len(found))
    return range(found.start, found.start + len(found) * found.step, found.step)


def _positions(mask: NDArray[np.bool_], axis: int, shape: tuple[int, ...]) -> list[IntArray]:
    """Index arrays, one for each axis of the mask, of where it is true."""
    for place, (length, size) in enumerate(zip(mask.shape, shape[axis:], strict=False), axis):
        # Like NumPy, take a mask of no items for any axis: it selects none of it.
        if length not in (0, size):
            raise SelectionError(
                f"boolean index did not match indexed array along axis {place}; size of axis is "
                f"{size} but size of corresponding boolean axis is {length}"
            )
    return [index.astype(np.int64, copy=False) for index in mask.nonzero()]

"""Single items that a transaction assigns to an array, until they are stored together."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType

__all__ = ["AssignedItems"]

_ROOM: Final = 64
# Kinds of values of Python that NumPy casts to kinds of types without a question.
_CAST: Final = {int: "iufc", float: "fc", bool: "biufc"}


class AssignedItems:
    """Items and their places in an array; of several items for one place, the last counts.

    >>> items = AssignedItems((10,), np.dtype("i4"), most=1000)
    >>> items.put_plain(-1, 7), items.put_plain(10, 7), items.put_plain(3, "7")
    (True, False, False)
    >>> items.put((2,), np.array([5], "i4"))
    >>> places, values = items.take()
    >>> places, values
    ((array([9, 2]),), array([7, 5], dtype=int32))
    """

    __slots__ = ("_numbers", "_room", "_values", "dtype", "most", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: DType, most: int) -> None:
        self.shape = shape
        self.dtype = dtype
        self.most = most
        """How many are kept at most."""
        self._values: NDArray[Any] = np.empty(_ROOM, dtype)
        self._room = _ROOM
        # By place: the number of its item. An array with one axis has places without a tuple.
        self._numbers: dict[int | tuple[int, ...], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def is_full(self) -> bool:
        """Whether as many are kept as may be."""
        return len(self._numbers) >= self.most

    def put_plain(self, key: object, value: object) -> bool:
        """Keep a value of Python or NumPy; return False, and keep nothing, for any but a plain one.

        A plain one is a number that NumPy casts without a question, at a place that is given by
        integers and lies inside the array.
        """
        place = self._place(key)
        cast = _CAST.get(type(value))
        if place is None or self.dtype.kind not in (cast or "biufc"):
            return False
        if cast is None and not (isinstance(value, np.generic) and value.dtype == self.dtype):
            return False
        number = self._number(place)
        try:
            self._values[number] = value
        except (TypeError, ValueError, OverflowError, Warning):
            return False
        self._numbers[place] = number
        return True

    def put(self, place: tuple[int, ...], item: NDArray[Any]) -> None:
        """Keep a copy of an array of one item; it is of the type."""
        key = place[0] if len(self.shape) == 1 else place
        number = self._number(key)
        self._values[number : number + 1] = item.reshape(1)
        self._numbers[key] = number

    def take(self) -> tuple[tuple[NDArray[np.int64], ...], NDArray[Any]]:
        """Return the places, an array of positions for each axis, and the items."""
        places = np.array(list(self._numbers), np.int64).reshape(len(self), len(self.shape))
        return tuple(places.T), self._values[: len(self)]

    def _number(self, place: int | tuple[int, ...]) -> int:
        """Return the number of the item at a place; there is room for it."""
        number = self._numbers.get(place)
        if number is None:
            number = len(self._numbers)
            if number == self._room:
                values = np.empty(2 * self._room, self.dtype)
                values[:number] = self._values
                self._values, self._room = values, len(values)
        return number

    def _place(self, key: object) -> int | tuple[int, ...] | None:
        """Return the place of a key of integers; None for other keys, and outside of the array."""
        shape = self.shape
        if len(shape) == 1:
            if isinstance(key, tuple) and len(key) == 1:
                (key,) = key
            return _position(key, shape[0])
        if not isinstance(key, tuple) or len(key) != len(shape):
            return None
        found = [_position(each, length) for each, length in zip(key, shape, strict=True)]
        place = tuple(at for at in found if at is not None)
        return place if len(place) == len(shape) else None


def _position(key: object, length: int) -> int | None:
    if type(key) is not int:
        if not isinstance(key, np.integer):
            return None
        key = int(key)
    if key < 0:
        key += length
    return key if 0 <= key < length else None

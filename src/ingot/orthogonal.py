"""Keys that select along every axis on its own.

Knows the square brackets that such keys are put into; refuses to know what is read and written by
them, which is for the two functions that it is given.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["OrthogonalIndex"]


class OrthogonalIndex:
    """An array with keys that select along every axis on its own; see `Array.oindex`.

    >>> import ingot
    >>> array = ingot.create(shape=(3, 3), dtype="i8")
    >>> array.oindex[[0, 2], [0, 2]] = 1
    >>> array[...]
    array([[1, 0, 1], [0, 0, 0], [1, 0, 1]])
    """

    __slots__ = ("_assign", "_read")

    def __init__(self, read: Callable[[Any], Any], assign: Callable[[Any, object], None]) -> None:
        self._read = read
        self._assign = assign

    def __getitem__(self, key: Any) -> Any:
        return self._read(key)

    def __setitem__(self, key: Any, value: object) -> None:
        self._assign(key, value)

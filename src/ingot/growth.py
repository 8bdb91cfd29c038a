"""What an array takes in when it grows.

Knows which values may be appended to an array and where they go. Refuses to write.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.typing import NDArray

from ingot.schema import ArraySchema
from ingot.selection import Selection, parse

__all__ = ["Growth", "appended"]


class Growth(NamedTuple):
    """Where values go, the values, and the shape of the array that has such a place."""

    place: Selection
    values: NDArray[Any]
    shape: tuple[int, ...]


def appended(values: object, schema: ArraySchema, axis: int) -> Growth:
    """Return what becomes of an array when values are added at the end of an axis.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((9, 2), np.dtype("<i4"), (4, 2), CodecChain(), 0)
    >>> appended([[1, 2]], schema, axis=0).shape
    (10, 2)
    >>> appended([1, 2], schema, axis=0)
    Traceback (most recent call last):
    ValueError: values of shape (2,) cannot be appended to (9, 2) along axis 0
    """
    old = schema.shape
    axis = normalize_axis_index(axis, len(old))
    added = _items(values, schema, axis)
    length = old[axis] + added.shape[axis] if axis < added.ndim else 0
    shape = (*old[:axis], length, *old[axis + 1 :])
    if added.shape != (*old[:axis], length - old[axis], *old[axis + 1 :]):
        raise ValueError(
            f"values of shape {added.shape} cannot be appended to {old} along axis {axis}"
        )
    place = parse((*[slice(None)] * axis, slice(old[axis], None)), shape)
    return Growth(place, added, shape)


def _items(values: object, schema: ArraySchema, axis: int) -> NDArray[Any]:
    if schema.dtype == np.dtype(object) and axis == 0 and isinstance(values, list | tuple):
        # An item may be a list itself: how deep to look, the shape of the array tells.
        items = np.empty((len(values), *schema.shape[1:]), schema.dtype)
        for position, value in enumerate(values):
            items[position] = value
        return items
    return np.asarray(values, schema.dtype)

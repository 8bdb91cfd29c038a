"""What an array takes in when it grows.

Knows which values may be appended to an array and where they go, and which cells of its edge chunks
are outside of it now and will be inside. Refuses to write.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.typing import NDArray

from ingot.grid import ChunkGrid
from ingot.schema import ArraySchema
from ingot.selection import Selection, parse

__all__ = ["Growth", "appended", "overhangs"]


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


def overhangs(grid: ChunkGrid, shape: tuple[int, ...]) -> Iterator[Selection]:
    """Yield the parts of an array of the new `shape` that the chunks of `grid` hold already.

    An edge chunk may hold anything beyond the edge: what was there before the array shrank, or
    whatever another program pads with.

    >>> grid = ChunkGrid((5, 4), (4, 4), padded=True)
    >>> [(part.starts, part.counts) for part in overhangs(grid, (20, 6))]
    [((5, 0), (3, 4))]
    """
    if not grid.padded:
        return
    stored = [count * chunk for count, chunk in zip(grid.counts, grid.chunk, strict=True)]
    kept = list(map(min, grid.shape, shape))
    reach = list(map(min, stored, shape))
    for axis in range(len(shape)):
        if kept[axis] < reach[axis]:
            before = [slice(0, length) for length in kept[:axis]]
            after = [slice(0, length) for length in reach[axis + 1 :]]
            yield parse((*before, slice(kept[axis], reach[axis]), *after), shape)


def _items(values: object, schema: ArraySchema, axis: int) -> NDArray[Any]:
    if schema.dtype == np.dtype(object) and axis == 0 and isinstance(values, list | tuple):
        # An item may be a list itself: how deep to look, the shape of the array tells.
        items = np.empty((len(values), *schema.shape[1:]), schema.dtype)
        for position, value in enumerate(values):
            items[position] = value
        return items
    return np.asarray(values, schema.dtype)

"""Measures of an array: a column of a table, and the keys that are read for it.

Holds units, and chooses positions that are the same for all libraries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.samples import Key, Recipe
from benchmarks.table import Column, Value

__all__ = ["Measure", "boxes", "elements", "nothing", "planes", "whole"]

POSITIONS = 16
PLANES = 4
BOX = 10

Keys = Callable[[Recipe], tuple[Key, ...]]


def nothing(recipe: Recipe) -> tuple[Key, ...]:
    """Return no keys, for columns that read nothing.

    >>> nothing(Recipe((4,), "<f4", (2,)))
    ()
    """
    return ()


def whole(recipe: Recipe) -> tuple[Key, ...]:
    """Return one key for the whole array.

    >>> whole(Recipe((4, 2), "<f4", (2, 2)))
    ((slice(0, 4, None), slice(0, 2, None)),)
    """
    return (tuple(slice(0, length) for length in recipe.shape),)


def boxes(recipe: Recipe) -> tuple[Key, ...]:
    """Return boxes that lie inside one chunk; planes read several chunks.

    >>> boxes(Recipe((20, 10), "<f4", (10, 10)))[0][1]
    slice(0, 10, None)
    """
    rng = np.random.default_rng(10)
    keys = []
    for _ in range(POSITIONS):
        corner = []
        for length, chunk in zip(recipe.shape, recipe.chunks, strict=True):
            first = int(rng.integers(0, -(-length // chunk))) * chunk
            corner.append(first + int(rng.integers(0, min(chunk, length - first) - BOX + 1)))
        keys.append(tuple(slice(start, start + BOX) for start in corner))
    return tuple(keys)


def elements(recipe: Recipe) -> tuple[Key, ...]:
    """Return the keys of single elements.

    >>> elements(Recipe((1, 1), "<f4", (1, 1)))[:2]
    ((0, 0), (0, 0))
    """
    points = np.random.default_rng(1).integers(0, recipe.shape, (POSITIONS, len(recipe.shape)))
    return tuple(tuple(point) for point in points.tolist())


def planes(axis: int) -> Keys:
    """Return a function for planes across one axis; a negative axis counts from the last.

    >>> planes(-1)(Recipe((4, 1), "<f4", (2, 1)))[0]
    (slice(0, 4, None), 0)
    """
    return partial(_planes, axis)


def _planes(axis: int, recipe: Recipe) -> tuple[Key, ...]:
    axis %= len(recipe.shape)
    indexes = np.random.default_rng(2).integers(0, recipe.shape[axis], PLANES).tolist()
    ranges = [slice(0, length) for length in recipe.shape]
    return tuple((*ranges[:axis], index, *ranges[axis + 1 :]) for index in indexes)


@dataclass(frozen=True, slots=True)
class Measure:
    """A column: what is read for it, the unit of the result, and the bar against the best peer."""

    title: str
    unit: str
    keys: Keys = nothing
    bar: float = 1.0

    @property
    def column(self) -> Column:
        """The column of the table."""
        spec = {"MB/s": ".0f", "us": ".1f", "ms": ".2f"}[self.unit]
        return Column(f"{self.title} {self.unit}", spec)

    def convert(self, time: float | str, recipe: Recipe) -> Value:
        """Convert the seconds of one call to the unit; text in place of a time is kept.

        >>> recipe = Recipe((500, 1000), "<f8", (500, 100))
        >>> Measure("read", "MB/s").convert(2.0, recipe), Measure("open", "us").convert(2.0, recipe)
        (2.0, 2000000.0)
        """
        if isinstance(time, str):
            return time
        if self.unit == "MB/s":
            return recipe.nbytes / time / 1e6
        per_key = time / max(len(self.keys(recipe)), 1)
        return per_key * {"us": 1e6, "ms": 1e3}[self.unit]

    def ratio(self, ours: float, theirs: float) -> float:
        """Return how many times as fast we are, given two values of the column.

        >>> Measure("open", "us").ratio(1.0, 3.0), Measure("write", "MB/s").ratio(1.0, 4.0)
        (3.0, 0.25)
        """
        return ours / theirs if self.unit == "MB/s" else theirs / ours

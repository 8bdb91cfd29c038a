"""Data for benchmarks, the same on every machine and in every process.

Makes series for single chunks and fields for arrays, whole or in parts.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["KINDS", "Array", "Key", "Recipe", "fill", "parts", "select", "series"]

Array = npt.NDArray[Any]

Key = tuple[int | slice, ...]
"""A key to read: an index or a range with both ends per axis, from the first axis on."""

KINDS = ("ints", "walk", "linear")
"""A running sum of integers 0 to 1000, a rounded random walk, and a straight line."""


def series(kind: str, nbytes: int) -> bytes:
    """Make items of eight bytes, as many as fit into ``nbytes``.

    >>> np.frombuffer(series("linear", 24))
    array([   0.,  500., 1000.])
    """
    count = nbytes // 8
    rng = np.random.default_rng(8)
    if kind == "ints":
        return np.cumsum(rng.integers(0, 1001, count, dtype=np.int64)).tobytes()
    if kind == "walk":
        return np.round(np.cumsum(rng.normal(size=count)), 2).tobytes()
    if kind == "linear":
        return np.linspace(0, 1000, count).tobytes()
    raise ValueError(f"kind is {kind!r}, known are {', '.join(KINDS)}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """An array to be made: its shape and type, how it is stored, and its content.

    ``content`` is ``"field"``, smooth with noise in it, ``"line"``, evenly spaced from 0 to 1,
    ``"cubic"``, integers that grow ever faster and wrap around, or ``"sine"``, waves of bytes with
    noise. ``blocks`` is the shape of the blocks in formats that divide chunks into such blocks,
    ``shards`` the shape of the shards.

    >>> Recipe((100, 40), "<f4", (10, 40)).nbytes
    16000
    """

    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    codec: str = "lz4"
    level: int = 5
    content: str = "field"
    blocks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of the array in memory."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def nchunks(self) -> int:
        """The number of chunks."""
        pairs = zip(self.shape, self.chunks, strict=True)
        return math.prod(-(-length // chunk) for length, chunk in pairs)

    def scaled(self, scale: float) -> "Recipe":
        """Return a smaller array, of about this part of the size: fewer chunks of the same size.

        >>> Recipe((400, 500, 500), "<f4", (50, 125, 125)).scaled(1 / 8).shape
        (200, 250, 250)
        """
        factor = min(scale, 1.0) ** (1 / len(self.shape))
        units = self.shards or self.chunks
        counts = [
            max(1, round(length / unit * factor))
            for length, unit in zip(self.shape, units, strict=True)
        ]
        # One chunk alone would hide the cost of going from one to the next.
        counts[0] = max(counts[0], min(2, -(-self.shape[0] // units[0])))
        lengths = zip(counts, units, self.shape, strict=True)
        return self._replaced(tuple(min(n * chunk, length) for n, chunk, length in lengths))

    def _replaced(self, shape: tuple[int, ...]) -> "Recipe":
        return Recipe(**{**asdict(self), "shape": shape})


def fill(recipe: Recipe) -> Array:
    """Make the whole array.

    >>> fill(Recipe((3, 2), "<f8", (1, 2), content="line")).tolist()
    [[0.0, 0.2], [0.4, 0.6], [0.8, 1.0]]
    """
    whole = np.empty(recipe.shape, recipe.dtype)
    for rows, part in parts(recipe):
        whole[rows] = part
    return whole


def parts(recipe: Recipe) -> Iterator[tuple[slice, Array]]:
    """Yield the array in parts along its first axis, each as long as a chunk or a shard.

    >>> [rows for rows, part in parts(Recipe((5, 2), "<f4", (2, 2)))]
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    make = _CONTENTS[recipe.content]
    height = (recipe.shards or recipe.chunks)[0]
    for start in range(0, recipe.shape[0], height):
        rows = slice(start, min(start + height, recipe.shape[0]))
        yield rows, make(recipe, rows).astype(recipe.dtype, copy=False)


def select(recipe: Recipe, keys: Sequence[Key]) -> list[Array]:
    """Return what each key holds, without making the whole array at once.

    >>> recipe = Recipe((3, 2), "<f8", (1, 2), content="line")
    >>> [found.tolist() for found in select(recipe, [(2,), (slice(1, 3), 0)])]
    [[0.8, 1.0], [0.4, 0.8]]
    """
    pieces: list[list[Array]] = [[] for _ in keys]
    for rows, part in parts(recipe):
        for found, key in zip(pieces, keys, strict=True):
            local = _within(key[0], rows)
            if local is not None:
                found.append(part[(local, *key[1:])].copy())
    return [
        found[0] if isinstance(key[0], int) else np.concatenate(found)
        for found, key in zip(pieces, keys, strict=True)
    ]


def _within(index: int | slice, rows: slice) -> int | slice | None:
    """Return an index relative to the rows of one part; None when it selects none of them."""
    if isinstance(index, int):
        return index - rows.start if rows.start <= index < rows.stop else None
    start, stop = max(index.start, rows.start), min(index.stop, rows.stop)
    return slice(start - rows.start, stop - rows.start) if start < stop else None


def _field(recipe: Recipe, rows: slice) -> Array:
    """Make temperatures in kelvin: waves along every axis and noise, in steps of 1/512.

    Real fields have a resolution; with this one Blosc halves them.
    """
    rng = np.random.default_rng([4, rows.start])
    shape = (rows.stop - rows.start, *recipe.shape[1:])
    field = rng.standard_normal(shape, np.float32)
    field *= np.float32(0.3)
    field += np.float32(285)
    for axis, length in enumerate(shape):
        first = rows.start if axis == 0 else 0
        wave = np.sin(np.arange(first, first + length) / (20 + 10 * axis)) * 5
        field += np.expand_dims(
            wave.astype(np.float32), [a for a in range(len(shape)) if a != axis]
        )
    return np.round(field * np.float32(512)) / np.float32(512)


def _line(recipe: Recipe, rows: slice) -> Array:
    row = math.prod(recipe.shape[1:])
    count = row * recipe.shape[0]
    values = np.arange(rows.start * row, rows.stop * row) / max(count - 1, 1)
    return values.reshape(rows.stop - rows.start, *recipe.shape[1:])


def _cubic(recipe: Recipe, rows: slice) -> Array:
    """Make ``x + y**2 / 32 + z**3`` modulo 65536, the last axis being x and the first one z."""
    ranges = [range(rows.start, rows.stop), *map(range, recipe.shape[1:])]
    z, y, x = np.meshgrid(*map(np.array, ranges), indexing="ij", sparse=True)
    return (x + y**2 // 32 + z**3) % 65536


def _sine(recipe: Recipe, rows: slice) -> Array:
    rng = np.random.default_rng([6, rows.start])
    shape = (rows.stop - rows.start, *recipe.shape[1:])
    first = rows.start * math.prod(recipe.shape[1:])
    wave = np.sin(np.arange(first, first + math.prod(shape)) / 1000).reshape(shape)
    return 128 + 100 * wave + rng.normal(0, 2, shape)


_CONTENTS: dict[str, Callable[[Recipe, slice], Array]] = {
    "field": _field,
    "line": _line,
    "cubic": _cubic,
    "sine": _sine,
}

"""Where chunks lie: keys made of coordinates, and the locations of many chunks at once.

This module converts between the coordinates of a chunk in its grid and its key. What a key holds is
not its concern.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.stores.store import Constant, Extent, Inline, Location

__all__ = ["Coords", "KeyTemplate", "Locations"]

Coords: TypeAlias = tuple[int, ...]
"""The position of a chunk in its grid, one index per axis."""

# Below this many keys, building them column by column costs more than it saves.
_FEWEST_COLUMN_ROWS: Final = 64

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.A)


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """How keys follow from coordinates. The native kernel implements the same rule.

    The key of the only chunk of an array without axes is `scalar`. Where only the first `leading`
    axes are divided into chunks, the key has only their coordinates: the others are always 0.

    >>> KeyTemplate("a/", ".").key((1, 20)), KeyTemplate().key(())
    ('a/1.20', '0')
    >>> KeyTemplate("__", suffix=".blp", leading=1).key((7, 0))
    '__7.blp'
    """

    prefix: str = ""
    separator: str = "."
    suffix: str = ""
    scalar: str = "0"
    leading: int | None = None

    def key(self, coords: Sequence[int]) -> str:
        """Return the key of one chunk."""
        coords = coords[: self.leading]
        return f"{self.prefix}{self.separator.join(map(str, coords)) or self.scalar}{self.suffix}"

    def keys(self, coords: NDArray[np.int64]) -> tuple[str, ...]:
        """Return the keys of many chunks, a row of `coords` each.

        >>> KeyTemplate(suffix=".blosc").keys(np.array([[0, 1], [2, 3]]))
        ('0.1.blosc', '2.3.blosc')
        """
        if len(coords) < _FEWEST_COLUMN_ROWS or not coords.shape[1]:
            return tuple(map(self.key, coords.tolist()))
        prefix, suffix, join = self.prefix, self.suffix, self.separator.join
        # A column has few distinct numbers; looking up their texts is cheaper than str().
        columns = [
            list(map(_texts(column).__getitem__, column.tolist()))
            for column in coords.T[: self.leading]
        ]
        return tuple([f"{prefix}{join(parts)}{suffix}" for parts in zip(*columns, strict=True)])

    def parse(self, key: str, ndim: int) -> Coords | None:
        """Return the coordinates of a key, or None when it is not the key of a chunk.

        >>> KeyTemplate("a/", ".").parse("a/1.20", 2), KeyTemplate().parse("01.2", 2)
        ((1, 20), None)
        """
        if not (key.startswith(self.prefix) and key.endswith(self.suffix)):
            return None
        text = key[len(self.prefix) : len(key) - len(self.suffix)]
        if ndim == 0:
            return () if text == self.scalar else None
        parts = text.split(self.separator)
        count = ndim if self.leading is None else self.leading
        if len(parts) != count or not all(map(_NUMBER.fullmatch, parts)):
            return None
        return (*map(int, parts), *(0,) * (ndim - count))

    def is_folder(self, key: str, ndim: int) -> bool:
        """Return whether a key is that of a folder that contains chunks.

        >>> KeyTemplate("c/", "/").is_folder("c/1", 2), KeyTemplate().is_folder("1", 2)
        (True, False)
        """
        if self.separator != "/" or not key.startswith(self.prefix):
            return False
        parts = key[len(self.prefix) :].split("/")
        return len(parts) < ndim and all(map(_NUMBER.fullmatch, parts))


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the bytes of some chunks lie, in columns, in the order of the request.

    Chunk i is the bytes `starts[i]` to `starts[i] + lengths[i]` of `keys[i]`. Without `starts` it
    begins at the first byte of the key; without `lengths`, or with a length of -1, it ends with the
    last. `others` holds the chunks that are not extents. An absent key means the fill value.

    >>> list(Locations(("a", ""), others={1: Constant(0)}))
    [Extent(key='a', start=0, length=None), Constant(value=0)]
    """

    keys: tuple[str, ...]
    starts: NDArray[np.int64] | None = None
    lengths: NDArray[np.int64] | None = None
    others: Mapping[int, Inline | Constant] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> Location:
        if index in self.others:
            return self.others[index]
        start = 0 if self.starts is None else int(self.starts[index])
        length = -1 if self.lengths is None else int(self.lengths[index])
        return Extent(self.keys[index], start, None if length < 0 else length)

    def __iter__(self) -> Iterator[Location]:
        return map(self.__getitem__, range(len(self)))


def _texts(column: NDArray[np.int64]) -> dict[int, str]:
    return {number: str(number) for number in np.unique(column).tolist()}

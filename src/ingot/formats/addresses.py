"""Where chunks lie: keys made of coordinates, and the places of many chunks at once.

Knows how a key follows from the place of a chunk in its grid, and back. Refuses to know what lies
there.
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
"""The place of a chunk in its grid."""

# Below this many keys, making them column by column costs more than it saves.
_FEWEST_COLUMN_ROWS: Final = 64

_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}", re.A)


@dataclass(frozen=True, slots=True)
class KeyTemplate:
    """How keys follow from coordinates; the native kernel can do it as well.

    An array without axes has one chunk, called `scalar`. Where only the `leading` first axes are
    cut, only their coordinates are in the key: the others are always 0.

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
        # A column has few different numbers, and a table of their texts is cheaper than str().
        columns = [
            list(map(_texts(column).__getitem__, column.tolist()))
            for column in coords.T[: self.leading]
        ]
        return tuple([f"{prefix}{join(parts)}{suffix}" for parts in zip(*columns, strict=True)])

    def parse(self, key: str, ndim: int) -> Coords | None:
        """Return the coordinates of a key, or None when it is no chunk's.

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
        """Tell whether a key is that of a folder in which chunks lie.

        >>> KeyTemplate("c/", "/").is_folder("c/1", 2), KeyTemplate().is_folder("1", 2)
        (True, False)
        """
        if self.separator != "/" or not key.startswith(self.prefix):
            return False
        parts = key[len(self.prefix) :].split("/")
        return len(parts) < ndim and all(map(_NUMBER.fullmatch, parts))


@dataclass(frozen=True, slots=True)
class Locations:
    """Where the bytes of some chunks lie, column by column, in the order they were asked for.

    Chunk i has the bytes `starts[i]` to `starts[i] + lengths[i]` of `keys[i]`; without `starts`
    from its beginning, without `lengths` to its end, a length of -1 likewise. `others` holds the
    chunks that are no extents. A key that is absent means the fill value.

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

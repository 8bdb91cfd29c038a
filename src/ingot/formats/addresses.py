"""Where chunks lie: keys made of coordinates, shards, tables of places in files, many locations.

`Addresses` is one value for all chunks of an array, in one of three forms, as the native kernel
takes it.

This module converts between the coordinates of a chunk in its grid and its key, and checks tables
against the sizes of their files. What a key holds is not its concern.
"""

import enum
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.errors import CorruptionError
from ingot.stores.store import Constant, Extent, Inline, Location

__all__ = [
    "Addresses",
    "ChunkState",
    "ChunkTable",
    "Coords",
    "Indexed",
    "KeyTemplate",
    "Keyed",
    "Locations",
    "SuperChunkPart",
    "SuperChunks",
]

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
        prefix, suffix, join = self.prefix, self.suffix, self.separator.join
        if coords[:, : self.leading].shape[1] == 1:
            return tuple([f"{prefix}{number}{suffix}" for number in coords[:, 0].tolist()])
        if len(coords) < _FEWEST_COLUMN_ROWS or not coords.shape[1]:
            return tuple(map(self.key, coords.tolist()))
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
class Keyed:
    """Chunks that are the values of keys.

    Where chunks along the first axis lie in parts that count them from 0, `parts` has the number of
    the first chunk of each part and the prefix of its keys.

    >>> Keyed(KeyTemplate("c/", "/")).key((1, 2))
    'c/1/2'
    >>> Keyed(KeyTemplate(), ((0, "a/"), (5, "b/"))).key((7,))
    'b/2'
    """

    template: KeyTemplate
    parts: tuple[tuple[int, str], ...] = ()

    def key(self, coords: Sequence[int]) -> str:
        """Return the key of one chunk."""
        if not self.parts:
            return self.template.key(coords)
        # Of parts with one first chunk all but the last are empty.
        part = bisect_right(self.parts, coords[0], key=itemgetter(0)) - 1
        first, prefix = self.parts[part]
        return replace(self.template, prefix=prefix).key((coords[0] - first, *coords[1:]))

    def holds(self, ndim: int) -> Callable[[str], bool]:
        """Return the function that says whether a key may be that of a chunk.

        >>> holds = Keyed(KeyTemplate(suffix=".blp"), ((0, "a/__"), (5, "b/__"))).holds(1)
        >>> holds("b/__12.blp"), holds("c/__12.blp"), holds("b/__12")
        (True, False, False)
        """
        template, prefixes = self.template, frozenset(prefix for _, prefix in self.parts)
        if not prefixes:
            return lambda key: template.parse(key, ndim) is not None

        def is_chunk(key: str) -> bool:
            stem = key.removesuffix(template.suffix)
            numbers = "0123456789" + template.separator
            return key.endswith(template.suffix) and stem.rstrip(numbers) in prefixes

        return is_chunk


@dataclass(frozen=True, slots=True)
class Indexed:
    """Chunks in shards: the keys of the shards, and the form of the indexes in each of them.

    >>> outer, inner = ((2,), True, False, False), ((3,), False, False, True)
    >>> Indexed(KeyTemplate("c/", "/"), (outer, inner)).counts
    (6,)
    """

    template: KeyTemplate
    levels: tuple[tuple[tuple[int, ...], bool, bool, bool], ...]
    """The chunks of a shard along each axis; whether the index is at the start, is big-endian, has
    a CRC-32C. Then the same of shards inside the shards."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of innermost chunks of a key along each axis."""
        axes = zip(*(counts for counts, *_ in self.levels), strict=True)
        return tuple(map(math.prod, axes))


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

    @classmethod
    def merged(
        cls, count: int, parts: "Iterable[tuple[NDArray[np.int64], Locations]]"
    ) -> "Locations":
        """Return the locations of `count` chunks from parts, each with its places among them.

        >>> parts = [(np.array([1]), Locations(("a",))), (np.array([0]), Locations(("b",)))]
        >>> Locations.merged(2, parts).keys
        ('b', 'a')
        """
        keys = [""] * count
        starts, lengths = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        others: dict[int, Inline | Constant] = {}
        for places, found in parts:
            for place, key in zip(places.tolist(), found.keys, strict=True):
                keys[place] = key
            if found.starts is not None:
                starts[places] = found.starts
            if found.lengths is not None:
                lengths[places] = found.lengths
            others.update((int(places[index]), each) for index, each in found.others.items())
        return cls(tuple(keys), starts, lengths, others)

    @property
    def are_whole_keys(self) -> bool:
        """Whether each chunk is all that its key holds.

        >>> Locations(("a", "b")).are_whole_keys, Locations(("a",), np.array([8])).are_whole_keys
        (True, False)
        """
        return self.starts is None and self.lengths is None and not self.others

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


class ChunkState(enum.IntEnum):
    """What a `ChunkTable` says of a chunk.

    >>> ChunkState(1).name
    'ABSENT'
    """

    STORED = 0
    ABSENT = 1
    """Every item is the fill value."""
    CONSTANT = 2
    """Every item is the one that the table has for the chunk."""
    LOST = 3
    """The bytes do not exist, although they should."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkTable:
    """Where chunks lie in files: a row for each chunk, by its number in C order over the grid.

    Chunk i is the bytes `start[i]` to `start[i] + length[i]` of `files[file[i]]`; with the length
    `END` it ends with the file. `constants` has the items of constant chunks. The native kernel
    takes the same columns.

    >>> numbers = np.arange(2)
    >>> table = ChunkTable(("a",), numbers * 0, numbers * 8, numbers + 8, np.array([0, 1]))
    >>> list(table.locate(numbers, fill=0))
    [Extent(key='a', start=0, length=8), Constant(value=0)]
    """

    END: ClassVar[int] = 2**64 - 1
    """The length of a chunk that ends with its file."""

    files: tuple[str, ...]
    file: NDArray[Any]
    start: NDArray[Any]
    length: NDArray[Any]
    state: NDArray[Any]
    constants: Mapping[int, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        types = {"file": np.uint32, "start": np.uint64, "length": np.uint64, "state": np.uint8}
        for name, dtype in types.items():
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))

    def __len__(self) -> int:
        return len(self.file)

    def locate(self, numbers: NDArray[np.int64], fill: object) -> Locations:
        """Return where some chunks lie; `fill` is the value of absent ones."""
        state = self.state[numbers]
        if (state == ChunkState.LOST).any():
            lost = int(numbers[state == ChunkState.LOST][0])
            raise CorruptionError(f"chunk {lost}: the chunk is lost")
        others: dict[int, Inline | Constant] = {}
        for place in np.flatnonzero(state != ChunkState.STORED).tolist():
            others[place] = Constant(fill)
            if state[place] == ChunkState.CONSTANT:
                item = self.constants[int(numbers[place])]
                others[place] = Constant(np.frombuffer(item, np.asarray(fill).dtype)[0])
        keys = tuple(
            "" if place in others else self.files[file]
            for place, file in enumerate(self.file[numbers].tolist())
        )
        length = self.length[numbers]
        lengths = np.where(length == self.END, np.uint64(0), length).astype(np.int64)
        lengths[length == self.END] = -1
        return Locations(keys, self.start[numbers].astype(np.int64), lengths, others)

    def check(self, sizes: Sequence[int], indexes: Mapping[int, range] | None = None) -> None:
        """Check every claim against the sizes of the files, before memory is taken for chunks.

        `indexes` has the bytes of a file in which no chunk may start. Chunks that share bytes are
        refused once a file would be read more than once in all: then work multiplies.

        >>> ChunkTable(("a",), [0], [4], [8], [0]).check([10])
        Traceback (most recent call last):
        ingot.errors.CorruptionError: a: chunk 0 claims 8 bytes at 4, 10 are stored
        """
        stored = np.flatnonzero(self.state == ChunkState.STORED)
        files = self.file[stored]
        for number, size in enumerate(sizes):
            chunks = stored[files == number]
            name, start, length = self.files[number], self.start[chunks], self.length[chunks]
            if len(chunks) > size:
                raise CorruptionError(f"{name}: {len(chunks)} chunks in {size} bytes")
            length = np.where(length == self.END, np.uint64(size) - np.minimum(start, size), length)
            room = np.uint64(size)
            bad = (start > room) | (length > room - np.minimum(start, room))
            if bad.any():
                first = int(np.flatnonzero(bad)[0])
                raise CorruptionError(
                    f"{name}: chunk {chunks[first]} claims {length[first]} bytes at "
                    f"{start[first]}, {size} are stored"
                )
            index = (indexes or {}).get(number, range(0))
            inside = (start >= index.start) & (start < index.stop)
            if inside.any():
                first = int(np.flatnonzero(inside)[0])
                raise CorruptionError(
                    f"{name}: chunk {chunks[first]} starts at {start[first]}, inside the index, "
                    f"which is bytes {index.start} to {index.stop}"
                )
            claimed = sum(map(int, length.tolist()))
            if claimed > size:
                raise CorruptionError(
                    f"{name}: its {len(chunks)} chunks claim {claimed} bytes, {size} are stored"
                )


class SuperChunkPart(NamedTuple):
    """Chunks that follow each other, in super-chunk files of their own.

    >>> SuperChunkPart(0, 7, "data/__", "__.bin", capacity=5).key(1)
    'data/__2__.bin'
    """

    first: int
    """The number of the first chunk in the array."""
    length: int
    """The number of chunks."""
    prefix: str
    suffix: str
    capacity: int
    """The number of entries of an index."""

    def key(self, file: int) -> str:
        """Return the key of a file; files are counted from 0."""
        return f"{self.prefix}{file + 1}{self.suffix}"

    def holds(self, key: str) -> bool:
        """Return whether a key may be that of a file."""
        return key.startswith(self.prefix) and key.endswith(self.suffix)

    @property
    def slots(self) -> int:
        """Where the slots of a file begin: behind a head of 16 bytes and entries of 8 bytes."""
        return 16 + 8 * self.capacity


@dataclass(frozen=True, slots=True)
class SuperChunks:
    """Chunks in super-chunk files, of which the kernel reads the indexes, entry by entry.

    Nothing of the files is held, so the same value serves every state in which the array has so
    many chunks.
    """

    parts: tuple[SuperChunkPart, ...]
    """In the order of their chunks."""

    def holds(self, key: str) -> bool:
        """Return whether a key may be that of a file of a part."""
        return any(part.holds(key) for part in self.parts)

    def are_indexed(self, patches: Mapping[str, Sequence[tuple[int, bytes]]]) -> bool:
        """Return whether bytes over the files lie in heads and indexes only, not in slots.

        >>> files = SuperChunks((SuperChunkPart(0, 7, "data/__", "__.bin", capacity=5),))
        >>> files.are_indexed({"data/__1__.bin": [(16, bytes(40))]})
        True
        >>> files.are_indexed({"data/__1__.bin": [(16, bytes(41))]})
        False
        """
        ends = (
            (key, max((start + len(data) for start, data in ranges), default=0))
            for key, ranges in patches.items()
        )
        return all(end <= part.slots for key, end in ends for part in self.parts if part.holds(key))


Addresses: TypeAlias = Keyed | Indexed | ChunkTable | SuperChunks
"""Where all chunks of an array lie."""


def _texts(column: NDArray[np.int64]) -> dict[int, str]:
    return {number: str(number) for number in np.unique(column).tolist()}

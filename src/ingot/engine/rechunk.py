"""Cutting an array anew: the windows of a target, and a file in which items wait for theirs.

A window is a box of whole chunks of the target, and is stored before the next one. Windows are
shaped so that a chunk of the source lies in two of them at most. Where memory allows no such
windows, items are read from the source once, box by box, and wait in a file without a name, in
the order in which the windows need them.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.grid import ChunkGrid, RectilinearAxis, block_shape
from ingot.schema import ArraySchema

__all__ = ["MOST_READS", "Box", "Spool", "reads_of", "window_shape"]

Box = tuple[slice, ...]

MOST_READS: Final = 2
"""How often a chunk of a source is read at most."""
_MOST_AXES: Final = 6
"""Axes up to which all shapes of windows are compared; each has up to four lengths."""


def reads_of(grid: ChunkGrid, window: Sequence[int]) -> int:
    """Return in how many windows a chunk of a grid lies at most.

    >>> reads_of(ChunkGrid((100, 100), (100, 10), padded=True), (20, 100))
    5
    >>> reads_of(ChunkGrid((100, 100), (100, 10), padded=True), (100, 25))
    2
    """
    return math.prod(map(_reads_along, grid.shape, grid.axes, window))


def _reads_along(length: int, axis: int | RectilinearAxis, window: int) -> int:
    if length <= window:
        return 1
    if isinstance(axis, RectilinearAxis):
        last = np.minimum(axis.bounds[1:], length) - 1
        return int((last // window - axis.bounds[:-1] // window).max()) + 1
    # Chunks begin inside a window at multiples of the greatest common divisor.
    latest = window - math.gcd(axis, window)
    return min((latest + axis - 1) // window + 1, -(-length // window))


def window_shape(
    target: ArraySchema, unit: Sequence[int], source: ChunkGrid, most: int, *, ascending: bool
) -> tuple[int, ...]:
    """Return the shape of windows of at most `most` bytes, if one unit allows it.

    `unit` is the shape of what is stored under one key, a chunk or a shard. Windows that ascend
    follow each other in the order of chunks, or of the items of a flat array. Others have the
    shape by which a chunk of the source lies in the fewest windows.

    >>> from ingot.codecs.codec import CodecChain
    >>> schema = ArraySchema((100, 100), np.dtype("u1"), (10, 100), CodecChain(), 0)
    >>> source = ChunkGrid((100, 100), (100, 10), padded=True)
    >>> window_shape(schema, (10, 10), source, 2000, ascending=True)
    (20, 100)
    >>> window_shape(schema, (10, 10), source, 2000, ascending=False)
    (100, 20)
    """
    axes = list(target.stored_axes if target.flat is not None else range(len(target.shape)))
    grid = ChunkGrid(target.shape, tuple(unit), padded=True)
    usual = block_shape(grid, target.dtype.itemsize, most=most, order=axes[::-1])
    if ascending or len(axes) > _MOST_AXES or reads_of(source, usual) == 1:
        return usual
    room = most // max(1, target.dtype.itemsize)
    shapes = [usual]
    for lengths in product(*map(_lengths, target.shape, unit, source.chunk)):
        if math.prod(lengths) <= room:
            whole = ChunkGrid(target.shape, lengths, padded=True)
            shapes.append(block_shape(whole, target.dtype.itemsize, most=most))
    return min(shapes, key=lambda shape: (reads_of(source, shape), -math.prod(shape)))


def _lengths(length: int, unit: int, chunk: int) -> Iterable[int]:
    """Return lengths of a window along an axis by which few chunks of a source are cut."""
    covering = -(-chunk // unit) * unit
    return {max(1, min(length, each)) for each in (unit, covering, math.lcm(unit, chunk), length)}


class Spool:
    """A file in which items wait until their window is stored.

    `boxes` are put in, each once and in ascending order, and `windows` are taken out. The items of
    a window lie together, those of each box behind those of the one before.

    >>> boxes, windows = (ChunkGrid((2, 4), cut, padded=False) for cut in ((1, 4), (2, 2)))
    >>> spool = Spool(boxes, windows, np.dtype("u1"))
    >>> spool.put(0, np.array([[1, 2, 3, 4]], "u1"))
    >>> spool.put(1, np.array([[5, 6, 7, 8]], "u1"))
    >>> spool.take(1).tolist()
    [[3, 4], [7, 8]]
    """

    def __init__(
        self,
        boxes: ChunkGrid,
        windows: ChunkGrid,
        dtype: np.dtype[Any],
        skips: Callable[[int], bool] = lambda window: False,
        folder: str | None = None,
    ) -> None:
        self._boxes: Final = boxes
        self._windows: Final = windows
        self._dtype: Final = dtype
        self._skips: Final = skips
        """Says which windows are not taken out."""
        self._held: Final = np.zeros(windows.chunk_count, np.int64)
        """The number of items of each window that were put in."""
        self._file: Final[IO[bytes]] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115

    def wants(self, box: int) -> bool:
        """Return whether items of a box lie in a window that is taken out."""
        return any(not self._skips(number) for number, _ in _cut(self._box(box), self._windows))

    def put(self, box: int, values: NDArray[Any]) -> None:
        """Put in the items of a box."""
        whole = self._box(box)
        for number, part in _cut(whole, self._windows):
            if self._skips(number):
                continue
            piece = np.ascontiguousarray(values[_inside(part, whole)])
            self._file.seek(self._place(number) + int(self._held[number]) * self._dtype.itemsize)
            self._file.write(piece.reshape(-1).view(np.uint8).data)
            self._held[number] += piece.size

    def take(self, window: int) -> NDArray[Any]:
        """Return the items of a window, of which all boxes were put in."""
        whole = self._windows.box(self._windows.coords(window))
        values = np.empty(_lengths_of(whole), self._dtype)
        self._file.seek(self._place(window))
        for _, part in _cut(whole, self._boxes):
            shape = _lengths_of(part)
            data = self._file.read(math.prod(shape) * self._dtype.itemsize)
            values[_inside(part, whole)] = np.frombuffer(data, self._dtype).reshape(shape)
        return values

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def _box(self, number: int) -> Box:
        return self._boxes.box(self._boxes.coords(number))

    def _place(self, window: int) -> int:
        """Return where the items of a window begin; those at an edge leave some room unused."""
        return window * math.prod(self._windows.chunk) * self._dtype.itemsize


def _cut(box: Box, grid: ChunkGrid) -> Iterator[tuple[int, Box]]:
    """Yield the numbers of the chunks of a grid that a box lies in, with its part in each."""
    axes = zip(box, grid.chunk, strict=True)
    touched = [range(each.start // n, (each.stop - 1) // n + 1) for each, n in axes]
    for coords in product(*touched):
        pairs = zip(box, grid.box(coords), strict=True)
        part = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in pairs)
        yield grid.linear(coords), part


def _inside(part: Box, whole: Box) -> Box:
    """Return the key of a part of a box in the items of the box."""
    pairs = zip(part, whole, strict=True)
    return tuple(slice(a.start - b.start, a.stop - b.start) for a, b in pairs)


def _lengths_of(box: Box) -> tuple[int, ...]:
    return tuple(each.stop - each.start for each in box)

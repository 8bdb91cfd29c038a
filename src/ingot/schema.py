"""What an array is, whatever format it came from.

Knows shape, type, chunks, fill value, codecs and attributes of an array, and what follows from
them for a chunk. Refuses to know where chunks lie and how metadata is spelled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage
from ingot.dtypes import DType
from ingot.grid import ChunkGrid, RectilinearAxis

__all__ = ["ArraySchema"]


@dataclass(frozen=True, slots=True, eq=False)
class ArraySchema:
    """The description of one array.

    `fill` is one item of `dtype`: what cells read as that were never written. `order` is the order
    in which the items of a chunk are stored, "C" or "F"; the chain does what it takes, this is for
    those who ask. `padded` chunks have full size at the edges, others are cut there. In a `sparse`
    array a chunk that is not stored holds the fill value; in others it is lost.

    >>> import numpy as np
    >>> schema = ArraySchema((10,), np.dtype("<f8"), (4,), CodecChain(), np.float64(0))
    >>> schema.grid.chunk_count, schema.spec((2,)).shape
    (3, (4,))
    """

    shape: tuple[int, ...]
    dtype: DType
    chunks: tuple[int, ...]
    chain: CodecChain
    fill: Any
    order: str = "C"
    attrs: Mapping[str, Any] = field(default_factory=dict)
    padded: bool = True
    sparse: bool = True
    edges: tuple[RectilinearAxis | None, ...] = ()
    """The lengths of chunks along the axes that have several; `chunks` has the longest."""
    dimension_names: tuple[str | None, ...] | None = None
    """What the axes are called, where a format can say it."""
    grid: ChunkGrid = field(init=False, repr=False)
    """How the shape is cut into chunks."""

    def __post_init__(self) -> None:
        grid = ChunkGrid(self.shape, self.chunks, self.padded, self.edges)
        object.__setattr__(self, "grid", grid)
        if self.edges:
            object.__setattr__(self, "chunks", grid.chunk)

    @property
    def codec(self) -> tuple[Stage, ...]:
        """What a chunk goes through apart from what every chunk does: as it is asked for."""
        # The order of the items is told by itself, and is no codec in most formats.
        reversing = self.order == "F"
        ndim, chain = len(self.shape), self.chain
        filters = [
            each for each in chain.filters if not (reversing and each.axes(ndim) is not None)
        ]
        serializer = () if chain.serializer.plain(self.dtype) else (chain.serializer,)
        return (*filters, *serializer, *chain.compressors)

    def spec(self, coords: tuple[int, ...]) -> ChunkSpec:
        """Return what the chunk at `coords` decodes to."""
        grid = self.grid
        return ChunkSpec(grid.stored_shape(coords), self.dtype, self.fill, grid.linear(coords))

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array; what variable-length items hold is not in it."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    @property
    def variable(self) -> bool:
        """Whether items live outside the array's own memory: objects, text of any length."""
        return dtypes.is_variable(self.dtype)

    def resized(self, shape: tuple[int, ...]) -> Self:
        """Return the same array of another shape; chunks of several lengths go on as the last."""
        if not self.edges:
            return type(self)(
                shape,
                self.dtype,
                self.chunks,
                self.chain,
                self.fill,
                self.order,
                self.attrs,
                self.padded,
                self.sparse,
                dimension_names=self.dimension_names,
            )
        edges = tuple(
            axis and axis.covering(length) for axis, length in zip(self.edges, shape, strict=True)
        )
        return replace(self, shape=shape, edges=edges)

    def described(self, attrs: Mapping[str, Any]) -> Self:
        """Return the same array with other attributes."""
        return replace(self, attrs=attrs)

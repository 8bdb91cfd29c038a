"""The schema of an array: shape, type, chunks, fill value, codecs and attributes.

A schema is the same for every format. It does not say where chunks lie or how a format spells its
metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage
from ingot.dtypes import LARGEST_ITEM, DType
from ingot.errors import LimitError
from ingot.grid import ChunkGrid, RectilinearAxis

__all__ = ["ArraySchema"]


@dataclass(frozen=True, slots=True, eq=False)
class ArraySchema:
    """The description of one array.

    `fill` is one item of `dtype`, the value of cells that were never written. `order` is the order
    in which the items of a chunk are stored, "C" or "F"; it only informs, since the chain has the
    filter that transposes. `padded` chunks have full size at the edges, others are cut there. In a
    `sparse` array a chunk that is not stored holds the fill value; in others it is lost.

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
    rectilinear: tuple[RectilinearAxis | None, ...] = ()
    """The axes that are cut into chunks of several lengths; `chunks` has the longest of each."""
    dimension_names: tuple[str | None, ...] | None = None
    """The names of the axes, in formats that store them."""
    grid: ChunkGrid = field(init=False, repr=False)
    """The chunks that the shape is cut into."""

    def __post_init__(self) -> None:
        if self.dtype.itemsize > LARGEST_ITEM:
            raise LimitError(f"items of {self.dtype} are larger than {LARGEST_ITEM} bytes")
        grid = ChunkGrid(self.shape, self.chunks, self.padded, self.rectilinear)
        object.__setattr__(self, "grid", grid)
        if self.rectilinear:
            object.__setattr__(self, "chunks", grid.chunk)

    @property
    def codec(self) -> tuple[Stage, ...]:
        """The codec as a caller spells it: the stages of the chain, without those implied."""
        # `order` says this already, and most formats do not store it as a codec.
        transposed = self.order == "F"
        ndim, chain = len(self.shape), self.chain
        filters = [
            each for each in chain.filters if not (transposed and each.axes(ndim) is not None)
        ]
        serializer = () if chain.serializer.plain(self.dtype) else (chain.serializer,)
        return (*filters, *serializer, *chain.compressors)

    def spec(self, coords: tuple[int, ...]) -> ChunkSpec:
        """Return the shape and type that the chunk at `coords` decodes to."""
        grid = self.grid
        return ChunkSpec(grid.stored_shape(coords), self.dtype, self.fill, grid.linear(coords))

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array, without the contents of variable-length items."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    @property
    def variable(self) -> bool:
        """Whether items lie outside the array's own memory: objects, text of any length."""
        return dtypes.is_variable(self.dtype)

    def resized(self, shape: tuple[int, ...]) -> Self:
        """Return the schema with another shape; rectilinear axes grow by chunks like the last."""
        if not self.rectilinear:
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
        rectilinear = tuple(
            axis and axis.covering(length)
            for axis, length in zip(self.rectilinear, shape, strict=True)
        )
        return replace(self, shape=shape, rectilinear=rectilinear)

    def described(self, attrs: Mapping[str, Any]) -> Self:
        """Return the schema with other attributes."""
        # The attributes do not change the grid, which `replace` would make and check again.
        described = object.__new__(type(self))
        for name in self.__slots__:
            object.__setattr__(described, name, getattr(self, name))
        object.__setattr__(described, "attrs", attrs)
        return described

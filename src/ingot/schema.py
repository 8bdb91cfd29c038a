"""Schemas: what an array is, and what a sequence of variable-length items is.

A schema is the same for every format. It does not say where chunks or packs lie, or how a format
spells its metadata.
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol, Self, cast

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Stage
from ingot.dtypes import LARGEST_ITEM, DType
from ingot.errors import ArgumentError, LimitError
from ingot.grid import ChunkGrid, RectilinearAxis
from ingot.ragged_array import ItemKind, ItemTest, RaggedArray

__all__ = [
    "ArraySchema",
    "Flat",
    "ManyPacksCodec",
    "PackCodec",
    "PackSources",
    "RaggedSchema",
    "many_packs",
]

# The sizes for which NumPy has numbers, which it moves faster than plain bytes.
_NUMBERS: Final = frozenset({1, 2, 4, 8})


@dataclass(frozen=True, slots=True)
class Flat:
    """Chunks that are runs of the bytes of an array, its items one behind the other.

    Chunk i is the bytes from `i * chunk_bytes` on, the last chunk is shorter. An item may lie in
    two chunks.
    """

    chunk_bytes: int

    def __post_init__(self) -> None:
        if self.chunk_bytes < 1:
            raise ArgumentError(f"flat chunks of {self.chunk_bytes} bytes")


@dataclass(frozen=True, slots=True, eq=False)
class ArraySchema:
    """The description of one array.

    `fill` is one item of `dtype`, the value of cells that were never written. `order` is the order
    in which the items of a chunk are stored, "C" or "F"; it only informs, since the chain has the
    filter that transposes. `padded` chunks have full size at the edges, others are cut there. In a
    `sparse` array a chunk that is not stored holds the fill value; in others it is lost.

    The chunks of a `flat` array are runs of its bytes in `order`, coded by the chain as bytes. It
    is neither padded nor sparse. `chunks` is then the largest box of whole rows that fits a chunk,
    and `payload` describes what the chunks hold.

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
    flat: Flat | None = None
    """How the bytes are cut where chunks are runs of them; None where chunks are boxes."""
    fill_stated: bool = True
    """Whether a file states the fill value; if none does, `fill` is the zero of the type."""
    grid: ChunkGrid = field(init=False, repr=False)
    """The chunks that the shape is cut into."""

    def __post_init__(self) -> None:
        if self.dtype.itemsize > LARGEST_ITEM:
            raise LimitError(f"items of {self.dtype} are larger than {LARGEST_ITEM} bytes")
        if self.flat is not None:
            object.__setattr__(self, "padded", False)
            object.__setattr__(self, "sparse", False)
            object.__setattr__(self, "chunks", self._rows(self.flat.chunk_bytes))
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
    def payload(self) -> "ArraySchema":
        """The bytes of a flat array as an array of one axis, whose chunks are boxes.

        Its items are the largest units that neither items nor chunks cut.

        >>> import numpy as np
        >>> schema = ArraySchema((9,), np.dtype("<f8"), (), CodecChain(), 0.0, flat=Flat(20))
        >>> schema.payload.shape, schema.payload.dtype, schema.payload.chunks
        ((18,), dtype('uint32'), (5,))
        """
        assert self.flat is not None, "only a flat array has a payload"
        unit = math.gcd(self.flat.chunk_bytes, self.dtype.itemsize)
        size = self.nbytes // unit
        chunk = self.flat.chunk_bytes // unit
        dtype = np.dtype(f"u{unit}" if unit in _NUMBERS else (np.void, unit))
        return ArraySchema(
            (size,),
            dtype,
            (chunk,),
            self.chain,
            np.zeros((), dtype)[()],
            padded=False,
            sparse=False,
        )

    @property
    def chunk_count(self) -> int:
        """The number of chunks."""
        if self.flat is None:
            return self.grid.chunk_count
        return -(-self.nbytes // self.flat.chunk_bytes)

    @property
    def stored_axes(self) -> Sequence[int]:
        """The axes of a flat array in the order in which its items are stored, slowest first."""
        axes = range(len(self.shape))
        return axes[::-1] if self.order == "F" else axes

    def _rows(self, chunk_bytes: int) -> tuple[int, ...]:
        """Return the largest box of whole rows in so many bytes, rows along the slowest axis."""
        chunks = [1] * len(self.shape)
        size = max(1, self.dtype.itemsize)
        for axis in reversed(self.stored_axes):
            chunks[axis] = max(1, chunk_bytes // size)
            if axis == self.stored_axes[0] or chunks[axis] < self.shape[axis]:
                break
            chunks[axis] = max(1, self.shape[axis])
            size *= chunks[axis]
        return tuple(chunks)

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
        if not self.rectilinear and self.flat is None:
            grid = self.grid.resized(shape)
            return self._with(shape=grid.shape, grid=grid)
        if not self.rectilinear:
            return replace(self, shape=shape)
        rectilinear = tuple(
            axis and axis.covering(length)
            for axis, length in zip(self.rectilinear, shape, strict=True)
        )
        return replace(self, shape=shape, rectilinear=rectilinear)

    def described(self, attrs: Mapping[str, Any]) -> Self:
        """Return the schema with other attributes."""
        return self._with(attrs=attrs)

    def coded(self, chain: CodecChain) -> Self:
        """Return the schema with another codec chain."""
        return self._with(chain=chain)

    def _with(self, **changed: Any) -> Self:
        """Return the schema with other values of fields that fit the others.

        `replace` would make and check the grid again.
        """
        made = object.__new__(type(self))
        put = object.__setattr__
        # Every append makes a schema for each column, so no loop of Python copies the fields.
        deque(map(put, repeat(made), self.__slots__, _FIELDS(self)), maxlen=0)
        for name, value in changed.items():
            put(made, name, value)
        return made


_FIELDS: Final = attrgetter(*ArraySchema.__slots__)


class PackCodec(Protocol):
    """How a pack of variable-length items becomes bytes, and back."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The codecs that the bytes of the items pass through, as a caller spells them."""
        ...

    def encode(self, items: RaggedArray, number: int) -> bytes:
        """Return the image of a pack; `number` is its place among the packs."""
        ...

    def decode(self, data: bytes, kind: ItemKind, count: int, number: int) -> RaggedArray:
        """Return the `count` items of a pack; raise `CorruptionError` if it holds others.

        The result is checked: offsets, UTF-8, whole rows.
        """
        ...


class PackSources(NamedTuple):
    """Packs that the kernel finds by itself, and how many items each of them has."""

    packs: Sequence[bytes | tuple[str, int, int | None]]
    """The packs in memory, or the key, the start and the length of each in files."""
    root: str | None
    """The folder of the files."""
    counts: Sequence[int]
    numbers: Sequence[int]


class ManyPacksCodec(PackCodec, Protocol):
    """A codec that encodes and decodes many packs by one call, on several threads."""

    def encode_many(
        self, items: RaggedArray, cuts: Sequence[int], first: int, threads: int
    ) -> list[bytes] | None:
        """Return the images of packs that begin at `cuts`, of which the last is the end of all.

        `first` is the number of the first pack, the others follow. None when packs have to be
        encoded one by one.
        """
        ...

    def decode_many(
        self,
        packs: Sequence[bytes],
        kind: ItemKind,
        counts: Sequence[int],
        numbers: Sequence[int],
        threads: int,
    ) -> RaggedArray | None:
        """Return the items of packs, one behind the other, checked as `decode` checks them.

        None when packs have to be decoded one by one, which also finds the one that is wrong.
        """
        ...

    def mark_many(
        self, sources: PackSources, kind: ItemKind, tests: Sequence[ItemTest], threads: int
    ) -> NDArray[np.bool_] | None:
        """Return which items of packs pass all tests; None where `decode_many` returns None."""
        ...

    def text_of_many(self, sources: PackSources, threads: int) -> NDArray[Any] | None:
        """Return the text of packs as NumPy's strings; None where `decode_many` returns None."""
        ...

    def take_many(
        self,
        sources: PackSources,
        kind: ItemKind,
        rows: NDArray[np.int64],
        ends: Sequence[int],
        threads: int,
    ) -> RaggedArray | None:
        """Return items by ascending numbers within their packs; None where `decode_many` does.

        `ends` says where the numbers of each pack end.
        """
        ...


def many_packs(codec: PackCodec) -> ManyPacksCodec | None:
    """Return a codec that takes many packs by one call; None for any other."""
    return cast(ManyPacksCodec, codec) if hasattr(type(codec), "decode_many") else None


@dataclass(frozen=True, slots=True, eq=False)
class RaggedSchema:
    """The description of a sequence of variable-length items, which are stored in packs.

    A pack has at most `pack_items` items. Where packs are `regular`, all but the last have exactly
    as many, as the chunks of a column have; otherwise the map says where each pack begins, and new
    packs have about `pack_bytes` bytes of items, if that is given. The items of a pack that is not
    stored are all `fill`, one item; without it such a pack is lost.

    >>> RaggedSchema(10, ItemKind("utf8"), 4, None).pack_count
    3
    """

    length: int
    kind: ItemKind
    pack_items: int
    codec: PackCodec
    attrs: Mapping[str, Any] = field(default_factory=dict)
    regular: bool = True
    pack_bytes: int | None = None
    fill: RaggedArray | None = None

    def __post_init__(self) -> None:
        if self.pack_items < 1:
            raise ArgumentError(f"packs of {self.pack_items} items")

    @property
    def shape(self) -> tuple[int]:
        """The number of items, as the only axis."""
        return (self.length,)

    @property
    def dtype(self) -> DType:
        """The type of an array of the items: text that may be None, or objects."""
        return self.kind.dtype

    @property
    def pack_count(self) -> int:
        """The number of packs, where packs are regular."""
        return -(-self.length // self.pack_items)

    def regular_bounds(self) -> NDArray[np.int64]:
        """Return the first item of each regular pack, and the number of items at the end.

        >>> RaggedSchema(10, ItemKind("utf8"), 4, None).regular_bounds()
        array([ 0,  4,  8, 10])
        """
        return np.append(np.arange(0, self.length, self.pack_items, dtype=np.int64), self.length)

    @property
    def nbytes(self) -> int:
        """The bytes of an array of the items, without their contents."""
        return self.length * self.dtype.itemsize

    def resized(self, length: int) -> Self:
        """Return the schema with another length."""
        return replace(self, length=length)

    def described(self, attrs: Mapping[str, Any]) -> Self:
        """Return the schema with other attributes."""
        return replace(self, attrs=attrs)

"""The sharding codec of Zarr version 3: many inner chunks in one shard, with an index.

`Sharding` is a serializer that encodes and decodes whole shards. Arrays use it directly only where
other codecs enclose the shards; otherwise `ingot.formats.zarr.shards` addresses the inner chunks.
`ingot.formats.zarr.v3_codecs` parses and packs its configuration.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import Buffer, ChunkSpec, CodecChain, Serializer
from ingot.errors import ArgumentError, FormatError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats.shard_index import IndexForm, build_shard
from ingot.grid import ChunkGrid

__all__ = ["IndexLocation", "Sharding", "auto_shards", "design_shards", "index_spec"]

IndexLocation: TypeAlias = Literal["start", "end"]

# Large enough for few files, small enough to be rewritten when a part of a shard changes.
_SHARD_BYTES: Final = 32 << 20
_MOST_CHUNKS: Final = 4096


@dataclass(frozen=True, slots=True)
class Sharding(Serializer):
    """How a shard is made of inner chunks: the serializer of an array with shards.

    The serializer of `inner_chain` may be a sharding again. `index_chain` encodes every index into
    the same number of bytes. The index has a row of two numbers, offset and length, for each inner
    chunk, in C order; see `index_spec`.
    """

    name: ClassVar[str] = "sharding_indexed"
    inner_chunks: tuple[int, ...]
    inner_chain: CodecChain
    index_chain: CodecChain
    index_location: IndexLocation = "end"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise `UnsupportedError`: the inner codecs depend on the type of the items."""
        raise UnsupportedError(f"codec {fields.where!r} is part of an array's metadata")

    def counts(self, shard: tuple[int, ...]) -> tuple[int, ...]:
        """Return the number of inner chunks along each axis of a shard of that shape.

        >>> Sharding((2, 5), CodecChain(), CodecChain()).counts((4, 5))
        (2, 1)
        >>> Sharding((3,), CodecChain(), CodecChain()).counts((4,))
        Traceback (most recent call last):
        ingot.errors.FormatError: sharding_indexed: inner chunks (3,) do not divide a shard (4,)
        """
        inner = self.inner_chunks
        if len(inner) != len(shard) or any(a % b for a, b in zip(shard, inner, strict=True)):
            raise FormatError(f"{self.name}: inner chunks {inner} do not divide a shard {shard}")
        return tuple(a // b for a, b in zip(shard, inner, strict=True))

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Return None, and refuse shards that inner chunks do not divide."""
        self.counts(spec.shape)

    def form(self, shard: tuple[int, ...]) -> IndexForm:
        """Return how the index of a shard of that shape is stored.

        >>> Sharding((2,), CodecChain(), CodecChain()).form((8,)).nbytes
        64
        """
        inner = self.inner_chain
        bare = not inner.filters and not inner.compressors
        holds_shards = bare and isinstance(inner.serializer, Sharding)
        counts = self.counts(shard)
        return IndexForm(counts, self.index_chain, self.index_location, holds_shards)

    def encode(self, array: NDArray[Any]) -> Buffer:
        """Return a whole shard with all of its inner chunks."""
        form = self.form(array.shape)
        places = enumerate(np.ndindex(form.counts))
        chunks = {n: self.inner_chain.encode(array[self._part(coords)]) for n, coords in places}
        return build_shard(form, chunks) or b""

    def decode(self, data: Buffer, spec: ChunkSpec) -> NDArray[Any]:
        """Return the items of a whole shard; absent inner chunks hold the fill value."""
        form = self.form(spec.shape)
        index = form.find(data)
        starts, lengths = index.ranges(np.arange(form.total))
        result = np.empty(spec.shape, spec.dtype)
        inner = ChunkSpec(self.inner_chunks, spec.dtype, spec.fill)
        view = memoryview(data)
        places = zip(np.ndindex(form.counts), starts.tolist(), lengths.tolist(), strict=True)
        for coords, start, length in places:
            part: Any = spec.fill if spec.fill is not None else np.zeros((), spec.dtype)
            if length >= 0:
                part = self.inner_chain.decode(view[start : start + length], inner)
            result[self._part(coords)] = part
        return result

    def _part(self, coords: tuple[int, ...]) -> tuple[slice, ...]:
        return tuple(
            slice(position * length, (position + 1) * length)
            for position, length in zip(coords, self.inner_chunks, strict=True)
        )


def design_shards(
    shards: int | Sequence[int] | Literal["auto"],
    grid: ChunkGrid,
    chain: CodecChain,
    itemsize: int,
) -> tuple[tuple[int, ...], CodecChain]:
    """Return the shape and the chain of shards for the chunks of `grid`, encoded by `chain`.

    >>> grid = ChunkGrid((100,), (10,), padded=True)
    >>> shape, chain = design_shards(50, grid, CodecChain(), 8)
    >>> shape, chain.serializer.inner_chunks
    ((50,), (10,))
    >>> design_shards(45, grid, CodecChain(), 8)
    Traceback (most recent call last):
    ingot.errors.ArgumentError: shards (45,): chunks (10,) do not divide them
    """
    if isinstance(shards, str):
        if shards != "auto":
            raise ArgumentError(f"shards is {shards!r}, not a shape or 'auto'")
        shape = auto_shards(grid.shape, grid.chunk, itemsize)
    else:
        lengths = (shards,) if isinstance(shards, int | np.integer) else tuple(shards)
        shape = ChunkGrid(grid.shape, lengths, padded=True).chunk
    if any(outer % inner for outer, inner in zip(shape, grid.chunk, strict=True)):
        raise ArgumentError(f"shards {shape}: chunks {grid.chunk} do not divide them")
    index = CodecChain((), Bytes("little"), (Crc32c(),))
    sharding = Sharding(grid.chunk, chain, index)
    sharding.form(shape)
    return shape, CodecChain((), sharding, ())


def auto_shards(shape: tuple[int, ...], chunks: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Return the default shape of shards: up to 32 MiB and 4096 chunks in each.

    Axes are doubled in turn, the one with the fewest chunks first, until the array is covered. An
    axis of length 0 is expected to grow.

    >>> auto_shards((512, 512, 512), (32, 32, 32), 2)
    (256, 256, 256)
    >>> auto_shards((100,), (10,), 8)
    (160,)
    """
    counts = [1] * len(chunks)
    size = math.prod(chunks) * max(itemsize, 1)
    while size * 2 <= _SHARD_BYTES and math.prod(counts) * 2 <= _MOST_CHUNKS:
        open_axes = [
            (count, -length, axis)
            for axis, (count, chunk, length) in enumerate(zip(counts, chunks, shape, strict=True))
            if count * chunk < length or length == 0
        ]
        if not open_axes:
            break
        counts[min(open_axes)[2]] *= 2
        size *= 2
    return tuple(count * chunk for count, chunk in zip(counts, chunks, strict=True))


def index_spec(counts: tuple[int, ...]) -> ChunkSpec:
    """Return the shape and type of the decoded index of a shard with `counts` inner chunks.

    >>> index_spec((2, 1)).shape, index_spec((2, 1)).nbytes
    ((2, 1, 2), 32)
    """
    return ChunkSpec((*counts, 2), np.dtype(np.uint64))

"""The encoding half of the Python kernel: special values, blocks, streams, header.

It writes chunks of Blosc 1 and of Blosc 2, and has the policy for what a writer may choose: the
size of blocks, and whether they are split. Its input is never modified. LZ4HC is written as the
densest plain LZ4, and a dictionary is stored but not used for compression, because numcodecs, which
compresses the streams, has neither.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ingot.blosc import filters, special, streams
from ingot.blosc.blocks import LARGEST_DICTIONARY
from ingot.blosc.filters import Pipeline
from ingot.blosc.header import (
    BITSHUFFLE,
    CODECS,
    COMPRESSORS,
    DELTA,
    DICTIONARY,
    EXTENDED_HEADER_BYTES,
    EXTENSION_SLOTS,
    FEWEST_SPLIT_ITEMS,
    HEADER_BYTES,
    LARGEST_BLOCK,
    LARGEST_CHUNK,
    LARGEST_SPLIT_TYPESIZE,
    MEMCPYED,
    SHUFFLE,
    UNSPLIT,
    ChunkHeader,
    Extension,
)
from ingot.errors import ArgumentError, LimitError

if TYPE_CHECKING:
    from ingot.blosc.header import BytesLike

__all__ = ["SPLITS", "compress", "compress2", "train_dictionary"]

SPLITS = ("auto", "always", "never")
"""When ``compress2`` splits blocks into one stream per byte of the item."""

_DEFAULT_BLOCK_BYTES = 128 << 10
_STREAM_BYTES = 32 << 10
_WIDEST_BLOCK_BYTES = 512 << 10
_SMALLEST_COMPRESSED = 32
# How many items a block must have for splitting to pay, by codec; each zlib stream has tables of
# its own.
_FEWEST_SPLIT_ITEMS_1 = dict.fromkeys(("blosclz", "lz4", "lz4hc"), FEWEST_SPLIT_ITEMS) | {
    "zlib": 4096
}
_DENSEST_SPLIT_ZSTD = 5
_FEWEST_SPLIT_ITEMS_2 = 32
_DICTIONARY_CODECS = ("lz4", "lz4hc", "zstd")
_FILTER_FLAGS = {"none": 0, "shuffle": SHUFFLE, "bitshuffle": BITSHUFFLE}
_FILTER_STEPS: dict[str, tuple[tuple[int, int], ...]] = {
    "none": (),
    "shuffle": ((filters.SHUFFLE, 0),),
    "bitshuffle": ((filters.BITSHUFFLE, 0),),
}


def compress(
    data: "BytesLike",
    typesize: int,
    codec: str,
    level: int,
    filter: str,
    blocksize: int,
    threads: int = 1,
) -> bytes:
    """Encode one Blosc-1 chunk; with ``blocksize`` 0 the policy chooses the block size.

    >>> ChunkHeader.parse(compress(bytes(1 << 20), 6, "zstd", 5, "shuffle", 0)).blocksize
    131040
    """
    source = _view(data)
    if filter not in _FILTER_FLAGS:
        raise ArgumentError(f"filter is {filter!r}, known are {', '.join(_FILTER_FLAGS)}")
    _check_arguments(source.size, typesize, codec, level, blocksize, HEADER_BYTES)
    typesize = typesize if typesize <= 255 else 1
    block_bytes = _choose_block_bytes(source.size, typesize, blocksize)
    split = _splits_1(codec, filter, typesize, block_bytes)
    if split and not blocksize:
        block_bytes = _even_block_bytes(source.size, typesize, block_bytes)
    flags = _FILTER_FLAGS[filter] | (0 if split else UNSPLIT)
    flags |= CODECS[codec] << 5
    body = b""
    if level and source.size >= _SMALLEST_COMPRESSED:
        pipeline = Pipeline(_FILTER_STEPS[filter], typesize, partial_bitshuffle=False)
        body = _BlockWriter(pipeline, codec, level, block_bytes, split).pack(source, HEADER_BYTES)
    if not body or len(body) >= source.size:
        flags |= MEMCPYED
        body = source.tobytes()
    header = ChunkHeader(
        flags=flags,
        typesize=typesize,
        nbytes=source.size,
        blocksize=max(block_bytes, 1),
        cbytes=HEADER_BYTES + len(body),
    )
    return header.pack() + body


def compress2(
    data: "BytesLike",
    typesize: int,
    codec: str,
    level: int,
    filters: Sequence[tuple[int, int]],
    blocksize: int = 0,
    split: str = "auto",
    dictionary: "BytesLike | None" = None,
    threads: int = 1,
) -> bytes:
    """Encode one Blosc-2 chunk; ``filters`` are numbers with metadata, in the order applied.

    Data that are zeros, NaN or one repeated item become a header (and that item), unless ``level``
    is 0 or a truncating filter would change them.

    >>> len(compress2(bytes(1 << 20), 8, "lz4", 5, [(1, 0)]))
    32
    >>> ChunkHeader.parse(compress2(bytes(range(64)), 4, "lz4", 5, [(3, 0), (1, 0)])).pipeline
    ((3, 0), (1, 0))
    """
    source = _view(data)
    _check_arguments(source.size, typesize, codec, level, blocksize, EXTENDED_HEADER_BYTES)
    typesize = typesize if typesize <= 255 else 1
    pipeline = Pipeline(tuple(filters), typesize)
    known = None if dictionary is None else _view(dictionary).tobytes()
    _check_extension(pipeline, split, codec, known)
    kind = special.find(source, typesize) if level and not pipeline.truncates else None
    if kind is not None:
        return special.pack(kind, source.size, typesize, source[:typesize].tobytes())
    block_bytes = _choose_block_bytes(source.size, typesize, blocksize)
    splits = _splits_2(split, codec, level, pipeline, block_bytes)
    # A split block has several streams, so it may be longer.
    wider = min(_WIDEST_BLOCK_BYTES, _STREAM_BYTES * typesize)
    if splits and not blocksize and wider > block_bytes:
        block_bytes = min(wider // (8 * typesize) * (8 * typesize), source.size)
        splits = _splits_2(split, codec, level, pipeline, block_bytes)
    body = b""
    if level and source.size >= _SMALLEST_COMPRESSED:
        writer = _BlockWriter(
            pipeline, codec, level, block_bytes, splits, runs=True, dictionary=known
        )
        body = writer.pack(source, EXTENDED_HEADER_BYTES)
    stored = not body or len(body) >= source.size
    flags = SHUFFLE | BITSHUFFLE | CODECS[codec] << 5
    flags |= (0 if splits else UNSPLIT) | (DELTA if pipeline.has_delta else 0)
    header = ChunkHeader(
        version=5,
        flags=flags | (MEMCPYED if stored else 0),
        typesize=typesize,
        nbytes=source.size,
        blocksize=max(block_bytes, 1),
        cbytes=EXTENDED_HEADER_BYTES + (source.size if stored else len(body)),
        extension=_extension(pipeline, codec, 0 if stored or known is None else DICTIONARY),
    )
    return header.pack() + (source.tobytes() if stored else body)


def train_dictionary(
    data: "BytesLike",
    typesize: int,
    codec: str,
    level: int,
    filters: Sequence[tuple[int, int]],
    blocksize: int = 0,
    split: str = "auto",
) -> bytes:
    """Return a dictionary that pays for its room in the chunk; empty bytes if none does.

    The result is always empty, because the encoders of this module do not use dictionaries.

    >>> train_dictionary(bytes(1000), 1, "zstd", 5, [])
    b''
    """
    return b""


@dataclass(frozen=True, slots=True)
class _BlockWriter:
    """The choices for all blocks of a chunk."""

    pipeline: Pipeline
    codec: str
    level: int
    block_bytes: int
    split: bool
    runs: bool = False
    dictionary: bytes | None = None

    def pack(self, source: npt.NDArray[np.uint8], header_bytes: int) -> bytes:
        """Return the block starts, the dictionary and the blocks."""
        blocks = [b"".join(map(self._pack_stream, parts)) for parts in self._filtered(source)]
        before = b""
        if self.dictionary is not None:
            before = struct.pack("<i", len(self.dictionary)) + self.dictionary
        sizes = [header_bytes + 4 * len(blocks) + len(before), *map(len, blocks)]
        starts = np.cumsum(sizes[:-1], dtype=np.int64).astype("<i4")
        return starts.tobytes() + before + b"".join(blocks)

    def _filtered(self, source: npt.NDArray[np.uint8]) -> Iterator[npt.NDArray[np.uint8]]:
        """Yield every block after the filters, one row for each of its streams."""
        reference: npt.NDArray[np.uint8] | None = None
        for at in range(0, source.size, self.block_bytes):
            block = self.pipeline.apply(source[at : at + self.block_bytes], reference)
            if reference is None and self.pipeline.has_delta:
                # Delta compares with the block that readers see, which truncation may have changed.
                reference = self.pipeline.undo(block, None)
            whole = block.size == self.block_bytes
            yield block.reshape(self.pipeline.typesize if self.split and whole else 1, -1)

    def _pack_stream(self, part: npt.NDArray[np.uint8]) -> bytes:
        data = part.tobytes()
        if self.runs and data.count(data[:1]) == len(data):
            return struct.pack("<i", -data[0]) + (b"\x01" if data[0] else b"")
        encoded = streams.encode(self.codec, data, self.level)
        stored = encoded if len(encoded) < len(data) else data
        return struct.pack("<i", len(stored)) + stored


def _extension(pipeline: Pipeline, codec: str, blosc2_flags: int) -> Extension:
    """Return the extension, its filter slots filled from the end, as C-Blosc2 does."""
    spare = ((0, 0),) * (EXTENSION_SLOTS - len(pipeline.steps))
    numbers, metas = zip(*spare, *pipeline.steps, strict=True)
    return Extension(numbers, COMPRESSORS[codec], 0, metas, 0, blosc2_flags)


def _view(buffer: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of any C-contiguous buffer, without copying them."""
    return np.frombuffer(buffer, np.uint8)


def _check_arguments(
    nbytes: int, typesize: int, codec: str, level: int, blocksize: int, header_bytes: int
) -> None:
    if codec not in CODECS:
        raise ArgumentError(f"codec is {codec!r}, known are {', '.join(CODECS)}")
    if not 0 <= level <= 9:
        raise ArgumentError(f"level is {level}, it lies in 0..9")
    if typesize < 1:
        raise ArgumentError(f"typesize is {typesize}, the least is 1")
    if not 0 <= blocksize <= LARGEST_BLOCK:
        raise ArgumentError(f"blocksize is {blocksize}, it lies in 0..{LARGEST_BLOCK}")
    if nbytes > LARGEST_CHUNK - header_bytes:
        raise LimitError(
            f"data has {nbytes} bytes, a chunk holds at most {LARGEST_CHUNK - header_bytes}"
        )


def _check_extension(pipeline: Pipeline, split: str, codec: str, dictionary: bytes | None) -> None:
    if split not in SPLITS:
        raise ArgumentError(f"split is {split!r}, known are {', '.join(SPLITS)}")
    if len(pipeline.steps) > EXTENSION_SLOTS:
        raise ArgumentError(f"{len(pipeline.steps)} filters are given, {EXTENSION_SLOTS} fit")
    pipeline.check_applicable()
    if dictionary is None:
        return
    if codec not in _DICTIONARY_CODECS:
        raise ArgumentError(f"{codec} uses no dictionary, {', '.join(_DICTIONARY_CODECS)} do")
    if not 1 <= len(dictionary) <= LARGEST_DICTIONARY:
        raise ArgumentError(
            f"the dictionary has {len(dictionary)} bytes, it has 1..{LARGEST_DICTIONARY}"
        )


def _choose_block_bytes(nbytes: int, typesize: int, requested: int) -> int:
    """Return the block size: whole items, by the policy a multiple of eight items.

    Data that are smaller than that make one block, whatever their size.
    """
    unit = typesize if requested else 8 * typesize
    wanted = (requested or _DEFAULT_BLOCK_BYTES) // unit * unit
    return min(max(wanted, typesize), nbytes)


def _even_block_bytes(nbytes: int, typesize: int, block_bytes: int) -> int:
    """Return a block size, little below the given one, of which ``nbytes`` is a multiple.

    A shorter block at the end of a chunk would not be split. Where there is no such size, the given
    one is returned.

    >>> _even_block_bytes(3_125_000, 4, 131_072), _even_block_bytes(3_125_004, 4, 131_072)
    (125000, 131072)
    """
    fewest = -(-nbytes // block_bytes)
    counts = range(fewest, fewest + fewest // 8 + 1)
    return next((nbytes // n for n in counts if nbytes % (n * typesize) == 0), block_bytes)


def _splits_1(codec: str, filter: str, typesize: int, block_bytes: int) -> bool:
    """Return whether full blocks are split into one stream per byte of the item.

    Splitting pays only after a shuffle. The other conditions are those of readers of all versions.
    """
    return (
        filter == "shuffle"
        and codec in _FEWEST_SPLIT_ITEMS_1
        and 2 <= typesize <= LARGEST_SPLIT_TYPESIZE
        and block_bytes // typesize >= _FEWEST_SPLIT_ITEMS_1[codec]
        and block_bytes % typesize == 0
    )


def _splits_2(split: str, codec: str, level: int, pipeline: Pipeline, block_bytes: int) -> bool:
    """Return the same for Blosc 2, whose readers use the flag alone."""
    typesize = pipeline.typesize
    if split == "never" or not block_bytes or block_bytes % typesize:
        return False
    return split == "always" or (
        (codec in ("blosclz", "lz4") or (codec == "zstd" and level <= _DENSEST_SPLIT_ZSTD))
        and any(number == filters.SHUFFLE for number, _ in pipeline.steps)
        and typesize <= LARGEST_SPLIT_TYPESIZE
        and block_bytes // typesize >= _FEWEST_SPLIT_ITEMS_2
    )

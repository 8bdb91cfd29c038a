"""The kernel's functions in NumPy: the chunk format written down as plainly as it can be.

Knows how a Blosc-1 chunk is put together and taken apart. It is the twin of the native kernel:
what runs where that one was not built, and what that one is tested against. Refuses to be fast,
to use threads (the argument is there because the twin has it), and to decode anything whose
claims the bytes do not bear out. LZ4HC is written as plain LZ4 at its densest.
"""

import operator
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ingot.codecs import streams
from ingot.codecs.blocks import Block, locate
from ingot.codecs.header import (
    BITSHUFFLE,
    CODECS,
    FEWEST_SPLIT_ITEMS,
    HEADER_BYTES,
    LARGEST_BLOCK,
    LARGEST_CHUNK,
    LARGEST_SPLIT_TYPESIZE,
    MEMCPYED,
    SHUFFLE,
    UNSPLIT,
    ChunkHeader,
)
from ingot.codecs.shuffle import bitshuffle, shuffle, unbitshuffle, unshuffle
from ingot.errors import LimitError, SelectionError
from ingot.native import Description

if TYPE_CHECKING:
    from ingot.codecs.header import BytesLike

__all__ = ["compress", "decompress", "decompress_slice", "describe"]

_DEFAULT_BLOCK_BYTES = 128 << 10
_SMALLEST_COMPRESSED = 32
_SPLIT_CODECS = ("blosclz", "lz4", "lz4hc", "zlib")
_FILTER_FLAGS = {"none": 0, "shuffle": SHUFFLE, "bitshuffle": BITSHUFFLE}


def decompress(
    chunk: "BytesLike", out: "BytesLike | None" = None, threads: int = 1, limit: int = LARGEST_CHUNK
) -> bytes | int:
    """Decode a whole chunk: into new bytes, or into ``out``, returning how many bytes.

    >>> chunk = compress(b"spam" * 100, 4, "lz4", 5, "shuffle", 0)
    >>> decompress(chunk) == b"spam" * 100
    True
    >>> decompress(chunk, bytearray(400))
    400
    """
    source = _view(chunk)
    header = ChunkHeader.parse(source)
    header.check_decodable(limit)
    return _fill(out, header.nbytes, lambda target: _decode(header, source, target))


def decompress_slice(
    chunk: "BytesLike",
    start: int,
    stop: int,
    out: "BytesLike | None" = None,
    limit: int = LARGEST_CHUNK,
) -> bytes | int:
    """Decode items ``start`` to ``stop``, touching only the blocks that hold them.

    >>> decompress_slice(compress(b"spam" * 100, 1, "lz4", 5, "none", 0), 5, 8)
    b'pam'
    """
    source = _view(chunk)
    header = ChunkHeader.parse(source)
    header.check_decodable(limit)
    first, last = operator.index(start), operator.index(stop)
    if not 0 <= first <= last <= header.item_count:
        raise SelectionError(
            f"Blosc chunk: items {first} to {last} of a chunk that holds {header.item_count}"
        )
    begin, end = first * header.typesize, last * header.typesize
    return _fill(out, end - begin, lambda target: _decode(header, source, target, begin))


def compress(
    data: "BytesLike",
    typesize: int,
    codec: str,
    level: int,
    filter: str,
    blocksize: int,
    threads: int = 1,
) -> bytes:
    """Encode one Blosc-1 chunk; ``blocksize`` 0 leaves the block size to the policy.

    >>> ChunkHeader.parse(compress(bytes(1 << 20), 6, "zstd", 5, "shuffle", 0)).blocksize
    131040
    """
    source = _view(data)
    _check_arguments(source.size, typesize, codec, level, filter, blocksize)
    typesize = typesize if typesize <= 255 else 1
    block_bytes = _choose_block_bytes(source.size, typesize, blocksize)
    split = _splits(codec, filter, typesize, block_bytes)
    flags = _FILTER_FLAGS[filter] | (0 if split else UNSPLIT)
    flags |= CODECS[codec] << 5
    body = b""
    if level and source.size >= _SMALLEST_COMPRESSED:
        body = _encode_blocks(source, typesize, codec, level, filter, block_bytes, split)
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


def describe() -> Description:
    """Name the kernel, its vector instructions and its codecs.

    >>> describe()["kernel"]
    'python'
    """
    return {"kernel": "python", "simd": "none", "codecs": list(CODECS)}


def _view(buffer: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of any C-contiguous buffer, without copying them."""
    return np.frombuffer(buffer, np.uint8)


def _fill(
    out: "BytesLike | None", nbytes: int, decode_into: Callable[[npt.NDArray[np.uint8]], None]
) -> bytes | int:
    """Decode into ``out`` or into new bytes; nothing is written to an ``out`` that does not fit."""
    if out is None:
        try:
            target = np.empty(nbytes, np.uint8)
            decode_into(target)
            return target.tobytes()
        except MemoryError:
            raise LimitError(f"Blosc chunk: no memory for {nbytes} decoded bytes") from None
    if isinstance(out, np.ndarray) and out.dtype.hasobject:
        raise TypeError("out is an array of Python objects; bytes written there would be addresses")
    target = _view(out)
    if not target.flags.writeable:
        raise ValueError("out must be writable")
    if target.size < nbytes:
        raise ValueError(f"out has {target.size} bytes, {nbytes} are needed")
    try:
        decode_into(target[:nbytes])
    except MemoryError:
        raise LimitError(f"Blosc chunk: no memory to decode {nbytes} bytes") from None
    return nbytes


def _decode(
    header: ChunkHeader,
    source: npt.NDArray[np.uint8],
    target: npt.NDArray[np.uint8],
    begin: int = 0,
) -> None:
    """Fill ``target`` with the decoded bytes from ``begin`` on."""
    end = begin + target.size
    if header.memcpyed:
        target[:] = source[header.header_bytes + begin : header.header_bytes + end]
        return
    if begin == end:
        return
    size = header.block_bytes
    for block in locate(header, source.data, begin // size, -(-end // size)):
        decoded = _decode_block(header, source, block)
        at = block.index * size
        wanted = decoded[max(begin - at, 0) : end - at]
        place = max(at - begin, 0)
        target[place : place + wanted.size] = wanted


def _decode_block(
    header: ChunkHeader, source: npt.NDArray[np.uint8], block: Block
) -> npt.NDArray[np.uint8]:
    parts = []
    for stream in block.streams:
        stored = source[stream.offset : stream.offset + stream.cbytes].tobytes()
        raw = stream.kind == "raw"
        parts.append(stored if raw else streams.decode(header.codec, stored, stream.nbytes))
    joined = np.frombuffer(b"".join(parts), np.uint8)
    if header.filter == "shuffle":
        return unshuffle(joined, header.typesize)
    return unbitshuffle(joined, header.typesize) if header.filter == "bitshuffle" else joined


def _check_arguments(
    nbytes: int, typesize: int, codec: str, level: int, filter: str, blocksize: int
) -> None:
    if codec not in CODECS:
        raise ValueError(f"codec is {codec!r}, known are {', '.join(CODECS)}")
    if filter not in _FILTER_FLAGS:
        raise ValueError(f"filter is {filter!r}, known are {', '.join(_FILTER_FLAGS)}")
    if not 0 <= level <= 9:
        raise ValueError(f"level is {level}, it lies in 0..9")
    if typesize < 1:
        raise ValueError(f"typesize is {typesize}, the least is 1")
    if not 0 <= blocksize <= LARGEST_BLOCK:
        raise ValueError(f"blocksize is {blocksize}, it lies in 0..{LARGEST_BLOCK}")
    if nbytes > LARGEST_CHUNK - HEADER_BYTES:
        raise LimitError(
            f"data has {nbytes} bytes, a chunk holds at most {LARGEST_CHUNK - HEADER_BYTES}"
        )


def _choose_block_bytes(nbytes: int, typesize: int, requested: int) -> int:
    """Return the block size: whole items, by the policy whole groups of eight of them.

    Data that fit in less make one block of their own, whatever their size.
    """
    unit = typesize if requested else 8 * typesize
    wanted = (requested or _DEFAULT_BLOCK_BYTES) // unit * unit
    return min(max(wanted, typesize), nbytes)


def _splits(codec: str, filter: str, typesize: int, block_bytes: int) -> bool:
    """Tell whether full blocks are split into one stream per byte of the item.

    Only what was shuffled has streams worth their own; readers of every version agree on the rest.
    """
    return (
        filter == "shuffle"
        and codec in _SPLIT_CODECS
        and 2 <= typesize <= LARGEST_SPLIT_TYPESIZE
        and block_bytes // typesize >= FEWEST_SPLIT_ITEMS
        and block_bytes % typesize == 0
    )


def _encode_blocks(
    source: npt.NDArray[np.uint8],
    typesize: int,
    codec: str,
    level: int,
    filter: str,
    block_bytes: int,
    split: bool,
) -> bytes:
    """Return the block starts and the blocks."""
    blocks = []
    for at in range(0, source.size, block_bytes):
        block = source[at : at + block_bytes]
        if filter != "none":
            block = (shuffle if filter == "shuffle" else bitshuffle)(block, typesize)
        count = typesize if split and block.size == block_bytes else 1
        parts = block.reshape(count, -1)
        blocks.append(b"".join(_encode_stream(codec, part.tobytes(), level) for part in parts))
    sizes = [HEADER_BYTES + 4 * len(blocks), *map(len, blocks)]
    starts = np.cumsum(sizes[:-1], dtype=np.int64).astype("<i4")
    return starts.tobytes() + b"".join(blocks)


def _encode_stream(codec: str, data: bytes, level: int) -> bytes:
    encoded = streams.encode(codec, data, level)
    stored = encoded if len(encoded) < len(data) else data
    return struct.pack("<i", len(stored)) + stored

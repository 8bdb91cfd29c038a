"""The Python kernel: the functions of the native kernel in NumPy, decoding first of all.

It is the twin of the native kernel: it runs where the native kernel was not built, and the native
kernel is tested against it. It is written to be plain, not fast, and uses no threads; the argument
``threads`` exists because both kernels have the same signatures. ``ingot.blosc.encode`` has the
encoding half.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ingot.blosc import special, streams
from ingot.blosc.blocks import Block, Stream, locate, locate_dictionary
from ingot.blosc.encode import compress, compress2, train_dictionary
from ingot.blosc.filters import Pipeline
from ingot.blosc.header import CODECS, LARGEST_CHUNK, ChunkHeader
from ingot.errors import ArgumentError, ArgumentTypeError, LimitError, SelectionError
from ingot.native import Description

if TYPE_CHECKING:
    from ingot.blosc.header import BytesLike

__all__ = [
    "compress",
    "compress2",
    "decompress",
    "decompress_slice",
    "describe",
    "train_dictionary",
]

# A repeated value is copied in pieces of about this size, which stay in the cache.
_REPEATED_BYTES: Final = 1 << 14


def decompress(
    chunk: "BytesLike", out: "BytesLike | None" = None, threads: int = 1, limit: int = LARGEST_CHUNK
) -> bytes | int:
    """Decode a whole chunk into new bytes, or into ``out``; then return the number of bytes.

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
    """Decode items ``start`` to ``stop``, reading only the blocks that hold them.

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


def describe() -> Description:
    """Return the name of the kernel, its vector instructions and its codecs.

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
        raise ArgumentTypeError(
            "out is an array of Python objects; bytes written there would be addresses"
        )
    target = _view(out)
    if not target.flags.writeable:
        raise ArgumentError("out must be writable")
    if target.size < nbytes:
        raise ArgumentError(f"out has {target.size} bytes, {nbytes} are needed")
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
    if begin == end:
        return
    if header.special != "none":
        value = np.frombuffer(special.unpack(header, source), np.uint8)
        _repeat(np.roll(value, -(begin % value.size)), target)
    elif header.memcpyed:
        target[:] = source[header.header_bytes + begin : header.header_bytes + end]
    else:
        decoder = _ChunkDecoder.of(header, source)
        for at, decoded in decoder.blocks(begin, end):
            wanted = decoded[max(begin - at, 0) : end - at]
            place = max(at - begin, 0)
            target[place : place + wanted.size] = wanted


def _repeat(value: npt.NDArray[np.uint8], target: npt.NDArray[np.uint8]) -> None:
    """Fill ``target`` with copies of a value, at the speed of memory."""
    if value.size == 1:
        target.fill(value[0])
        return
    block = np.tile(value, max(1, _REPEATED_BYTES // value.size))
    whole = target.size // block.size * block.size
    target[:whole].reshape(-1, block.size)[...] = block
    target[whole:] = block[: target.size - whole]


@dataclass(frozen=True, slots=True)
class _ChunkDecoder:
    """What decoding needs of a chunk, the same for all its blocks."""

    header: ChunkHeader
    source: npt.NDArray[np.uint8]
    pipeline: Pipeline
    dictionary: bytes | None

    @classmethod
    def of(cls, header: ChunkHeader, source: npt.NDArray[np.uint8]) -> "_ChunkDecoder":
        place = locate_dictionary(header, source.data)
        dictionary = None if place is None else source[place.offset : place.stop].tobytes()
        pipeline = Pipeline(header.pipeline, header.typesize, header.partial_bitshuffle)
        return cls(header, source, pipeline, dictionary)

    def blocks(self, begin: int, end: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Yield the blocks that hold the bytes ``begin`` to ``end``, decoded, with their starts."""
        reference = None
        for at, block in self._located(begin, end):
            if block.index and self.pipeline.has_delta and reference is None:
                (first,) = locate(self.header, self.source.data, 0, 1)
                reference = self._decode_block(first, None)
            decoded = self._decode_block(block, reference)
            if not block.index:
                reference = decoded
            yield at, decoded

    def _located(self, begin: int, end: int) -> Iterator[tuple[int, Block]]:
        size = self.header.block_bytes
        if not self.header.variable:
            blocks = begin // size, -(-end // size)
            for block in locate(self.header, self.source.data, *blocks, self._decode_streams):
                yield block.index * size, block
            return
        at = 0
        for block in locate(self.header, self.source.data):
            if begin < at + block.nbytes and at < end:
                yield at, block
            at += block.nbytes

    def _decode_block(
        self, block: Block, reference: npt.NDArray[np.uint8] | None
    ) -> npt.NDArray[np.uint8]:
        joined = self._decode_streams(block.streams)
        return self.pipeline.undo(np.frombuffer(joined, np.uint8), reference)

    def _decode_streams(self, streams: Sequence[Stream]) -> bytes:
        return b"".join(map(self._decode_stream, streams))

    def _decode_stream(self, stream: Stream) -> bytes:
        if stream.value is not None:
            return bytes([stream.value]) * stream.nbytes
        stored = self.source[stream.offset : stream.offset + stream.cbytes].tobytes()
        if stream.kind == "raw":
            return stored
        return streams.decode(self.header.codec, stored, stream.nbytes, self.dictionary)

"""The compressed streams of a Blosc chunk, encoded and decoded by codec.

A stream must decode to exactly the expected number of bytes and end with its last byte; no more
memory than that is allocated. LZ4 and Zstandard come from numcodecs, zlib from the standard
library; BloscLZ, Snappy and Zstandard with a dictionary come from ``ingot.blosc.pure``.
"""

import zlib
from collections.abc import Callable

from numcodecs import lz4, zstd

from ingot.blosc.pure import blosclz, snappy
from ingot.blosc.pure import zstd as zstandard
from ingot.errors import CorruptionError, UnsupportedError

__all__ = ["decode", "encode"]

_ZSTD_MAGIC = bytes.fromhex("28 b5 2f fd")
# Frames of Zstandard 0.7, from before its format was settled.
_ZSTD_07_MAGIC = bytes.fromhex("27 b5 2f fd")
_ZSTD_LARGEST_CLEVEL = 22
_ZSTD_BLOCK = 128 << 10
_ZSTD_CHECKSUM = 0x04
_ZSTD_SINGLE_SEGMENT = 0x20

_LZ4_REACH = 65535
# A match ends five literals before the stream: token, distance, token, literals.
_LZ4_SHORTEST_MATCH = 9


def encode(codec: str, data: bytes, level: int) -> bytes:
    """Compress ``data`` (not empty) at ``level`` 1 to 9; the result may be longer than the data.

    >>> len(encode("zlib", bytes(1000), 5)) < 30
    True
    """
    return _ENCODERS[codec](data, level)


def decode(codec: str, stream: bytes, nbytes: int, dictionary: bytes | None = None) -> bytes:
    """Decompress a stream in one of the formats of the header to exactly ``nbytes`` bytes.

    Only LZ4 and Zstandard use a ``dictionary``; for other codecs it is ignored, because some
    writers store one.

    >>> decode("zlib", encode("zlib", b"spam" * 100, 5), 400) == b"spam" * 100
    True
    >>> decode("zlib", encode("zlib", b"spam" * 100, 5), 399)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: zlib: the stream does not hold 399 bytes exactly
    """
    if dictionary is not None and codec in _DICTIONARY_DECODERS:
        return _DICTIONARY_DECODERS[codec](stream, nbytes, dictionary)
    return _DECODERS[codec](stream, nbytes)


def _encode_lz4(data: bytes, level: int) -> bytes:
    # numcodecs writes the decoded length first; a Blosc stream does not have it.
    return bytes(lz4.compress(data, 10 - level))[4:]


def _encode_lz4hc(data: bytes, _: int) -> bytes:
    # numcodecs has no LZ4HC; the densest plain LZ4 is a stream of the same format.
    return _encode_lz4(data, 9)


def _encode_zstd(data: bytes, level: int) -> bytes:
    return bytes(zstd.compress(data, _ZSTD_LARGEST_CLEVEL if level == 9 else 2 * level - 1))


def _decode_lz4(stream: bytes, nbytes: int) -> bytes:
    try:
        output = bytes(lz4.decompress(nbytes.to_bytes(4, "little") + stream))
    except (RuntimeError, ValueError) as error:
        raise CorruptionError(
            f"LZ4: the stream of {len(stream)} bytes does not hold {nbytes} bytes: {error}"
        ) from None
    return output


def _decode_lz4_after(stream: bytes, nbytes: int, dictionary: bytes) -> bytes:
    """Decode a stream whose matches may reach back into ``dictionary``.

    numcodecs has no dictionaries. The stream therefore gets a beginning that decodes to as much as
    any match can reach and ends with the dictionary: literals, and the match that must follow them.
    The bytes before the dictionary are filled in two ways: if the results differ, a match has
    reached back beyond the dictionary.
    """
    if len(stream) < _LZ4_SHORTEST_MATCH:
        raise CorruptionError(f"LZ4: a stream of {len(stream)} bytes cannot hold {nbytes} bytes")
    outputs = []
    for filling in (b"\x00", b"\xff"):
        window = dictionary.rjust(_LZ4_REACH, filling)
        literals = window[-4:] + window[:-4]
        full, rest = divmod(len(literals) - 15, 255)
        beginning = b"\xf0" + b"\xff" * full + bytes([rest]) + literals + b"\xff\xff"
        outputs.append(_decode_lz4(beginning + stream, len(window) + 4 + nbytes)[-nbytes:])
    if outputs[0] != outputs[1]:
        raise CorruptionError(
            f"LZ4: a match reaches back over the dictionary of {len(dictionary)} bytes"
        )
    return outputs[0]


def _decode_zlib(stream: bytes, nbytes: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        # Room for one more byte: only then does zlib read the checksum after the last one.
        output = inflater.decompress(stream, nbytes + 1)
    except zlib.error as error:
        raise CorruptionError(f"zlib: the stream is damaged: {error}") from None
    if len(output) != nbytes or not inflater.eof or inflater.unused_data:
        raise CorruptionError(f"zlib: the stream does not hold {nbytes} bytes exactly")
    return output


def _decode_zstd_after(stream: bytes, nbytes: int, dictionary: bytes) -> bytes:
    try:
        frame = _sized_frame(stream, nbytes)
    except IndexError:
        raise CorruptionError(f"Zstandard: the frame of {len(stream)} bytes is cut off") from None
    output = zstandard.decode(frame, nbytes, dictionary)
    if frame[4] & _ZSTD_CHECKSUM:
        _check_zstd_sum(output, frame[-4:])
    return output


def _check_zstd_sum(data: bytes, checksum: bytes) -> None:
    """Check the checksum of a frame, by giving the library a frame that stores the data."""
    head = _ZSTD_MAGIC + bytes([0x80 | _ZSTD_SINGLE_SEGMENT | _ZSTD_CHECKSUM])
    parts = [data[at : at + _ZSTD_BLOCK] for at in range(0, len(data), _ZSTD_BLOCK)]
    sizes = [(len(part) << 3).to_bytes(3, "little") for part in parts]
    sizes[-1] = (len(parts[-1]) << 3 | 1).to_bytes(3, "little")
    blocks = (piece for pair in zip(sizes, parts, strict=True) for piece in pair)
    frame = b"".join([head, len(data).to_bytes(4, "little"), *blocks, checksum])
    try:
        zstd.decompress(frame)
    except (RuntimeError, ValueError):
        raise CorruptionError(
            f"Zstandard: the checksum {checksum.hex()} is not that of the {len(data)} bytes"
        ) from None


def _decode_zstd(stream: bytes, nbytes: int) -> bytes:
    try:
        frame = _sized_frame(stream, nbytes)
    except IndexError:
        raise CorruptionError(f"Zstandard: the frame of {len(stream)} bytes is cut off") from None
    try:
        output = bytes(zstd.decompress(frame))
    except (RuntimeError, ValueError) as error:
        raise CorruptionError(f"Zstandard: the frame is damaged: {error}") from None
    if len(output) != nbytes:
        raise CorruptionError(f"Zstandard: the frame holds {len(output)} bytes, {nbytes} are due")
    return output


def _sized_frame(stream: bytes, nbytes: int) -> bytes:
    """Return the one frame of ``stream`` with a header that claims ``nbytes`` bytes.

    numcodecs allocates what the frames claim, or all that they decode to if they claim nothing. So
    the claim must be the expected size, and is added to a frame without one: the decoder then stops
    at that size and reports any other.
    """
    if stream[:4] == _ZSTD_07_MAGIC:
        raise UnsupportedError("Zstandard: frames of version 0.7 are not decoded")
    if stream[:4] != _ZSTD_MAGIC:
        raise CorruptionError(f"Zstandard: the stream begins with {stream[:4].hex(' ')}")
    descriptor = stream[4]
    single_segment = bool(descriptor & _ZSTD_SINGLE_SEGMENT)
    size_at = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size_width = (single_segment, 2, 4, 8)[descriptor >> 6]
    blocks_at = size_at + size_width
    end = _end_of_blocks(stream, blocks_at) + (4 if descriptor & _ZSTD_CHECKSUM else 0)
    if end != len(stream):
        raise CorruptionError(f"Zstandard: the frame ends at {end}, the stream has {len(stream)}")
    if not size_width:
        described = stream[:4] + bytes([descriptor | 2 << 6]) + stream[5:size_at]
        return described + nbytes.to_bytes(4, "little") + stream[size_at:]
    claim = int.from_bytes(stream[size_at:blocks_at], "little") + (256 if size_width == 2 else 0)
    if claim != nbytes:
        raise CorruptionError(f"Zstandard: the frame claims {claim} bytes, {nbytes} are due")
    return stream


def _end_of_blocks(stream: bytes, position: int) -> int:
    """Walk over the blocks of a frame by their headers; return where the last one ends."""
    while True:
        header = stream[position] | stream[position + 1] << 8 | stream[position + 2] << 16
        run = header >> 1 & 3 == 1
        position += 3 + (1 if run else header >> 3)
        if header & 1:
            return position


_ENCODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "blosclz": lambda data, _: blosclz.encode(data),
    "lz4": _encode_lz4,
    "lz4hc": _encode_lz4hc,
    "snappy": lambda data, _: snappy.encode(data),
    "zlib": zlib.compress,
    "zstd": _encode_zstd,
}

_DECODERS: dict[str, Callable[[bytes, int], bytes]] = {
    "blosclz": blosclz.decode,
    "lz4": _decode_lz4,
    "snappy": snappy.decode,
    "zlib": _decode_zlib,
    "zstd": _decode_zstd,
}

_DICTIONARY_DECODERS: dict[str, Callable[[bytes, int, bytes], bytes]] = {
    "lz4": _decode_lz4_after,
    "zstd": _decode_zstd_after,
}

"""BloscLZ, the codec that only Blosc has, in pure Python: plain, not fast.

A stream is a sequence of operations. The upper three bits of the first byte of an operation give
its kind (in the very first byte of a stream they are ignored: it is always a literal run)::

    000 nnnnn                         n + 1 literal bytes follow
    lll ooooo [255 … e] c             copy l + 2 bytes, l in 1..6; for l = 7: 9 + the sum of 255 … e
                                      from o * 256 + c + 1 bytes back
    lll 11111 [255 … e] 255 h l       … from h * 256 + l + 8192 bytes back
"""

from ingot.blosc.pure.lz77 import find_matches
from ingot.errors import CorruptionError

__all__ = ["decode", "encode"]

_LONGEST_LITERAL_RUN = 32
_NEAR = 8191
_FAR = _NEAR + 1 + 0xFFFF
_LONG_MATCH = 9

# C-Blosc refuses a stream that ends with a match, so the last bytes are always literals.
_TAIL = 12


def encode(data: bytes) -> bytes:
    """Compress ``data`` into one stream, which may be longer than the data.

    >>> encode(b"abcd" * 100)
    b'\\x03abcd\\xe0\\xffx\\x03\\x0babcdabcdabcd'
    """
    output = bytearray()
    done = 0
    for start, length, distance in find_matches(data, _FAR, _TAIL):
        _append_literals(output, data, done, start)
        _append_match(output, length, distance)
        done = start + length
    _append_literals(output, data, done, len(data))
    return bytes(output)


def decode(stream: bytes, nbytes: int) -> bytes:
    """Decompress a stream that must hold exactly ``nbytes`` bytes.

    >>> decode(encode(b"abcd" * 100), 400) == b"abcd" * 100
    True
    >>> decode(b"\\x03ab", 4)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: BloscLZ: the stream of 3 bytes ends inside an operation
    """
    try:
        output = _decode(stream, nbytes)
    except IndexError:
        raise CorruptionError(
            f"BloscLZ: the stream of {len(stream)} bytes ends inside an operation"
        ) from None
    if len(output) != nbytes:
        raise CorruptionError(f"BloscLZ: the stream holds {len(output)} bytes, {nbytes} are due")
    return bytes(output)


def _decode(stream: bytes, nbytes: int) -> bytearray:
    """Return what all operations write; an IndexError means that the stream is cut off."""
    output = bytearray()
    control = stream[0] & 31
    position = 1
    while True:
        if control < 32:
            length = control + 1
            literals = stream[position : position + length]
            if len(literals) < length:
                raise IndexError
            _check_room(output, length, nbytes)
            output += literals
            position += length
        else:
            length, distance, position = _parse_match(stream, control, position)
            _check_room(output, length, nbytes)
            _copy(output, length, distance)
        if position == len(stream):
            return output
        control = stream[position]
        position += 1


def _parse_match(stream: bytes, control: int, position: int) -> tuple[int, int, int]:
    """Return length, distance and the position after the operation."""
    length = (control >> 5) + 2
    if length == _LONG_MATCH:
        while stream[position] == 255:
            length += 255
            position += 1
        length += stream[position]
        position += 1
    distance = ((control & 31) << 8) + stream[position] + 1
    position += 1
    if distance == _NEAR + 1:
        distance += stream[position] << 8 | stream[position + 1]
        position += 2
    return length, distance, position


def _check_room(output: bytearray, length: int, nbytes: int) -> None:
    if len(output) + length > nbytes:
        raise CorruptionError(
            f"BloscLZ: the stream holds {len(output) + length} bytes or more, {nbytes} are due"
        )


def _copy(output: bytearray, length: int, distance: int) -> None:
    """Append ``length`` bytes from ``distance`` back; where both overlap, the bytes repeat."""
    start = len(output) - distance
    if start < 0:
        raise CorruptionError(
            f"BloscLZ: a match reaches {distance} bytes back, {len(output)} are decoded"
        )
    pattern = output[start : start + length]
    output += (pattern * -(-length // len(pattern)))[:length]


def _append_literals(output: bytearray, data: bytes, start: int, stop: int) -> None:
    for first in range(start, stop, _LONGEST_LITERAL_RUN):
        run = data[first : min(first + _LONGEST_LITERAL_RUN, stop)]
        output.append(len(run) - 1)
        output += run


def _append_match(output: bytearray, length: int, distance: int) -> None:
    back = distance - 1
    high = 31 if back >= _NEAR else back >> 8
    if length < _LONG_MATCH:
        output.append((length - 2) << 5 | high)
    else:
        full, rest = divmod(length - _LONG_MATCH, 255)
        output.append(7 << 5 | high)
        output += b"\xff" * full
        output.append(rest)
    if back < _NEAR:
        output.append(back & 255)
    else:
        output.append(255)
        output += (back - _NEAR).to_bytes(2, "big")

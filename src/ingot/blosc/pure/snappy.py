"""Snappy's raw block format, in pure Python: plain, not fast.

Blosc never uses Snappy's framing format, so it is not here. A block is the decoded length as a
little-endian base-128 number, then elements, whose kind is in the lower two bits of their first
byte::

    nnnnnn00 [length]        literals: n + 1 for n < 60, else length + 1 in n - 59 bytes
    ooolll01 o               copy l + 4 bytes from o back, 11 bits, the upper three first
    nnnnnn10 o o             copy n + 1 bytes from o back, 16 bits little-endian
    nnnnnn11 o o o o         copy n + 1 bytes from o back, 32 bits little-endian
"""

from ingot.blosc.pure.lz77 import find_matches
from ingot.errors import CorruptionError

__all__ = ["decode", "encode"]

_LONGEST_COPY = 64
_FURTHEST = 0xFFFF


def encode(data: bytes) -> bytes:
    """Compress ``data`` into one block, which may be longer than the data.

    >>> encode(b"abcd" * 10)
    b'(\\x0cabcd\\x8e\\x04\\x00'
    """
    output = bytearray(_pack_length(len(data)))
    done = 0
    for start, length, distance in find_matches(data, _FURTHEST, 0):
        _append_literals(output, data[done:start])
        for copied in range(0, length, _LONGEST_COPY):
            output.append((min(length - copied, _LONGEST_COPY) - 1) << 2 | 2)
            output += distance.to_bytes(2, "little")
        done = start + length
    _append_literals(output, data[done:])
    return bytes(output)


def decode(block: bytes, nbytes: int) -> bytes:
    """Decompress a block that must hold exactly ``nbytes`` bytes.

    >>> decode(encode(b"abcd" * 10), 40) == b"abcd" * 10
    True
    >>> decode(b"\\x05\\x00a", 4)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: Snappy: the block claims 5 bytes, 4 are due
    """
    try:
        claim, position = _parse_length(block)
        if claim != nbytes:
            raise CorruptionError(f"Snappy: the block claims {claim} bytes, {nbytes} are due")
        output = _decode(block, position, nbytes)
    except IndexError:
        raise CorruptionError(
            f"Snappy: the block of {len(block)} bytes ends inside an element"
        ) from None
    if len(output) != nbytes:
        raise CorruptionError(f"Snappy: the block holds {len(output)} bytes, {nbytes} are due")
    return bytes(output)


def _decode(block: bytes, position: int, nbytes: int) -> bytearray:
    """Return what all elements write; an IndexError means that the block is cut off."""
    output = bytearray()
    while position < len(block):
        tag = block[position]
        position += 1
        if tag & 3 == 0:
            length, position = _parse_literal_length(block, tag >> 2, position)
            literals = block[position : position + length]
            if len(literals) < length:
                raise IndexError
            output += literals
            position += length
        else:
            length, distance, position = _parse_copy(block, tag, position)
            _check_copy(output, length, distance, nbytes)
            pattern = output[len(output) - distance :][:length]
            output += (pattern * -(-length // len(pattern)))[:length]
    return output


def _check_copy(output: bytearray, length: int, distance: int, nbytes: int) -> None:
    if not 1 <= distance <= len(output):
        raise CorruptionError(
            f"Snappy: a copy reaches {distance} bytes back, {len(output)} are decoded"
        )
    if len(output) + length > nbytes:
        raise CorruptionError(
            f"Snappy: the block holds {len(output) + length} bytes or more, {nbytes} are due"
        )


def _parse_literal_length(block: bytes, code: int, position: int) -> tuple[int, int]:
    if code < 60:
        return code + 1, position
    width = code - 59
    return _parse_number(block, position, width) + 1, position + width


def _parse_copy(block: bytes, tag: int, position: int) -> tuple[int, int, int]:
    """Return length, distance and the position after the element."""
    if tag & 3 == 1:
        return (tag >> 2 & 7) + 4, (tag >> 5) << 8 | block[position], position + 1
    width = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, _parse_number(block, position, width), position + width


def _parse_number(block: bytes, position: int, width: int) -> int:
    digits = block[position : position + width]
    if len(digits) < width:
        raise IndexError
    return int.from_bytes(digits, "little")


def _parse_length(block: bytes) -> tuple[int, int]:
    """Return the decoded length that the block claims, and where its elements begin."""
    length = 0
    for position in range(5):
        length |= (block[position] & 127) << 7 * position
        if block[position] < 128:
            return length, position + 1
    raise CorruptionError("Snappy: the block's length has more than five bytes")


def _pack_length(length: int) -> bytes:
    output = bytearray()
    while length > 127:
        output.append(length & 127 | 128)
        length >>= 7
    output.append(length)
    return bytes(output)


def _append_literals(output: bytearray, literals: bytes) -> None:
    if not literals:
        return
    code = len(literals) - 1
    if code < 60:
        output.append(code << 2)
    else:
        width = (code.bit_length() + 7) // 8
        output.append((59 + width) << 2)
        output += code.to_bytes(width, "little")
    output += literals

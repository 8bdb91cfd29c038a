"""Checksums of 32 bits, and the stages that store them before or after the bytes.

CRC-32 and Adler-32 come from the standard library. CRC-32C comes from the native kernel where it
was built; its twin computes it with NumPy.
"""

import zlib
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.codecs.codec import Buffer, Compressor, register
from ingot.errors import CorruptionError
from ingot.fields import FieldReader

__all__ = ["CHECKSUM_BYTES", "Adler32", "Checksum", "Crc32", "Crc32c", "crc32c"]

CHECKSUM_BYTES: Final = 4

_POLYNOMIAL: Final = 0x82F63B78
# Below this size the plain loop is faster than setting up the lanes.
_FEWEST_LANE_BYTES: Final = 2**13
_LANE_BYTES: Final = 2**8

Words = NDArray[np.uint32]


def crc32c(data: Buffer) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    native_crc32c = native.checksum("crc32c")
    if native_crc32c is not None:
        return native_crc32c(data)
    octets = np.frombuffer(data, np.uint8)
    head = octets.size % _LANE_BYTES if octets.size >= _FEWEST_LANE_BYTES else octets.size
    state = 0xFFFFFFFF
    table = _table().tolist()
    for octet in octets[:head].tolist():
        state = table[(state ^ octet) & 0xFF] ^ state >> 8
    if head < octets.size:
        state = _crc32c_in_lanes(octets[head:].reshape(-1, _LANE_BYTES), state)
    return state ^ 0xFFFFFFFF


class Checksum(Compressor):
    """A little-endian checksum before or after the bytes it covers."""

    __slots__ = ()

    @property
    def place(self) -> str:
        """The place of the checksum: "start" or "end"."""
        return "end"

    def compute(self, data: Buffer) -> int:
        """Return the checksum of some bytes."""
        raise NotImplementedError

    def encoded_size(self, size: int) -> int:
        """Return the size with the checksum."""
        return size + CHECKSUM_BYTES

    def encode(self, data: Buffer) -> Buffer:
        """Return the bytes with their checksum."""
        checksum = self.compute(data).to_bytes(CHECKSUM_BYTES, "little")
        return b"".join((checksum, data) if self.place == "start" else (data, checksum))

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the bytes without their checksum; raise if it does not match."""
        if len(data) < CHECKSUM_BYTES:
            raise CorruptionError(f"{self.name}: {len(data)} bytes hold no checksum")
        view = memoryview(data)
        front = self.place == "start"
        stored = view[:CHECKSUM_BYTES] if front else view[-CHECKSUM_BYTES:]
        content = view[CHECKSUM_BYTES:] if front else view[:-CHECKSUM_BYTES]
        claim, fact = int.from_bytes(stored, "little"), self.compute(content)
        if claim != fact:
            raise CorruptionError(
                f"{self.name}: the checksum is {fact:#010x}, {claim:#010x} is stored"
            )
        return content


@register
@dataclass(frozen=True, slots=True)
class Crc32(Checksum):
    """CRC-32, as in zip and gzip."""

    name: ClassVar[str] = "crc32"
    location: str = "start"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(_parse_location(fields, "start"))

    @property
    def place(self) -> str:
        """The place of the checksum."""
        return self.location

    def compute(self, data: Buffer) -> int:
        """Return the CRC-32 of some bytes."""
        return zlib.crc32(data)


@register
@dataclass(frozen=True, slots=True)
class Adler32(Checksum):
    """Adler-32, as in zlib."""

    name: ClassVar[str] = "adler32"
    location: str = "start"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(_parse_location(fields, "start"))

    @property
    def place(self) -> str:
        """The place of the checksum."""
        return self.location

    def compute(self, data: Buffer) -> int:
        """Return the Adler-32 of some bytes."""
        return zlib.adler32(data)


@register
@dataclass(frozen=True, slots=True)
class Crc32c(Checksum):
    """CRC-32C, by default after the bytes."""

    name: ClassVar[str] = "crc32c"
    location: str = "end"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(_parse_location(fields, "end"))

    @property
    def place(self) -> str:
        """The place of the checksum."""
        return self.location

    @property
    def appends_crc32c(self) -> bool:
        """Whether the checksum follows the bytes, as the native kernel expects."""
        return self.location == "end"

    def compute(self, data: Buffer) -> int:
        """Return the CRC-32C of some bytes."""
        return crc32c(data)


def _parse_location(fields: FieldReader, usual: str) -> str:
    location = usual
    if fields.value("location", None) is not None:
        location = fields.choice("location", ("start", "end"))
    fields.finish()
    return location


@cache
def _table() -> Words:
    """Return the table of CRC-32C: how each value of the lowest byte changes the state."""
    entries: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        entries = entries >> np.uint32(1) ^ (entries & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    return entries


def _crc32c_in_lanes(lanes: NDArray[np.uint8], state: int) -> int:
    """Return the state after all rows of `lanes`, computed for all rows at once.

    A CRC is linear: each row starts from state 0, and the state left by the rows before it is moved
    over the row by a map of bits that depends only on the length of the row.
    """
    lanes = lanes.copy()
    lanes[0, :4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    missing = -len(lanes) % (1 << (len(lanes) - 1).bit_length())
    # Leading zeros change nothing, and make the number of rows a power of two.
    lanes = np.concatenate([np.zeros((missing, lanes.shape[1]), np.uint8), lanes])
    table = _table()
    states = np.zeros(len(lanes), np.uint32)
    for column in lanes.T:
        states = table[(states ^ column) & np.uint32(0xFF)] ^ states >> 8
    move = _mover(lanes.shape[1])
    while len(states) > 1:
        states = _moved(states[0::2], move) ^ states[1::2]
        move = _moved(move, move)
    return int(states[0])


@cache
def _mover(length: int) -> Words:
    """Return the state after `length` zero bytes (a power of two), for each bit of the state."""
    bits: Words = np.uint32(1) << np.arange(32, dtype=np.uint32)
    move: Words = _table()[bits & np.uint32(0xFF)] ^ bits >> 8
    while length > 1:
        move = _moved(move, move)
        length //= 2
    return move


def _moved(states: Words, move: Words) -> Words:
    result = np.zeros_like(states)
    for bit in range(32):
        result ^= (states >> np.uint32(bit) & np.uint32(1)) * move[bit]
    return result

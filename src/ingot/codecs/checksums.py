"""Checksums of every kind, and the stages that store them before or after the bytes.

They come from the native kernel where it was built. The twin takes them from the standard library,
and computes CRC-32C with NumPy.
"""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot._lazy import deferred
from ingot.codecs.codec import Buffer, Compressor, register
from ingot.errors import ArgumentError, CorruptionError
from ingot.fields import FieldReader

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = deferred("hashlib")

__all__ = [
    "CHECKSUM_BYTES",
    "DIGEST_BYTES",
    "Adler32",
    "Checksum",
    "Crc32",
    "Crc32c",
    "Digest",
    "crc32c",
    "digest",
    "digests",
]

CHECKSUM_BYTES: Final = 4

DIGEST_BYTES: Final[Mapping[str, int]] = {
    "none": 0,
    "adler32": 4,
    "crc32": 4,
    "crc32c": 4,
    "md5": 16,
    "sha1": 20,
    "sha224": 28,
    "sha256": 32,
    "sha384": 48,
    "sha512": 64,
}
"""The kinds of checksums, each with the number of bytes that it takes."""

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


def digest(kind: str, data: Buffer) -> bytes:
    """Return a checksum as it is stored: 32 bits in little-endian order, or the bytes of a digest.

    >>> digest("adler32", b"abc").hex(), digest("none", b"abc")
    ('27014d02', b'')
    """
    return digests(kind, [data])[0]


def digests(kind: str, buffers: Sequence[Buffer], threads: int = 1) -> list[bytes]:
    """Return the checksums of several buffers, which the native kernel shares out over threads.

    >>> digests("crc32", [b"a", b"b"]) == [digest("crc32", b"a"), digest("crc32", b"b")]
    True
    """
    if kind not in DIGEST_BYTES:
        raise ArgumentError(f"checksum {kind!r} is unknown; known are {', '.join(DIGEST_BYTES)}")
    if kind == "none":
        return [b""] * len(buffers)
    compute = native.digests()
    if compute is not None:
        return compute(kind, buffers, threads)
    if kind in _WORDS:
        return [_WORDS[kind](data).to_bytes(CHECKSUM_BYTES, "little") for data in buffers]
    # Such a digest finds damage and keeps no secret.
    return [hashlib.new(kind, data, usedforsecurity=False).digest() for data in buffers]


_WORDS: Final[Mapping[str, Callable[[Buffer], int]]] = {
    "adler32": zlib.adler32,
    "crc32": zlib.crc32,
    "crc32c": crc32c,
}


class Checksum(Compressor):
    """A little-endian checksum before or after the bytes it covers."""

    __slots__ = ()

    @property
    def place(self) -> str:
        """The place of the checksum: "start" or "end"."""
        return "end"

    @property
    def appended(self) -> str | None:
        """The kind of checksum, where it follows the bytes and the native kernel knows it."""
        return self.name if self.place == "end" and self.name in DIGEST_BYTES else None

    def compute(self, data: Buffer) -> int:
        """Return the checksum of some bytes."""
        return int.from_bytes(digest(self.name, data), "little")

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


@dataclass(frozen=True, slots=True)
class Digest(Compressor):
    """A checksum of any kind behind the bytes, as `digest` returns it.

    Files do not name this stage; their format says which kind they have.

    >>> Digest("md5").encoded_size(100)
    116
    """

    name: ClassVar[str] = "digest"
    kind: str

    def __post_init__(self) -> None:
        if DIGEST_BYTES.get(self.kind, 0) == 0:
            raise ArgumentError(f"checksum {self.kind!r} is unknown, or none at all")

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        kind = fields.choice("kind", tuple(kind for kind in DIGEST_BYTES if kind != "none"))
        fields.finish()
        return cls(kind)

    @property
    def appended(self) -> str | None:
        """The kind of checksum."""
        return self.kind

    def encoded_size(self, size: int) -> int:
        """Return the size with the checksum."""
        return size + DIGEST_BYTES[self.kind]

    def encode(self, data: Buffer) -> Buffer:
        """Return the bytes with their checksum."""
        return b"".join((data, digest(self.kind, data)))

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the bytes without their checksum; raise if it does not match."""
        behind = len(data) - DIGEST_BYTES[self.kind]
        if behind < 0:
            raise CorruptionError(f"{self.kind}: {len(data)} bytes hold no checksum")
        view = memoryview(data)
        claim, fact = bytes(view[behind:]), digest(self.kind, view[:behind])
        if claim != fact:
            raise CorruptionError(
                f"{self.kind}: the checksum is {_shown(fact)}, {_shown(claim)} is stored"
            )
        return view[:behind]


def _shown(checksum: bytes) -> str:
    if len(checksum) == CHECKSUM_BYTES:
        return f"{int.from_bytes(checksum, 'little'):#010x}"
    return checksum.hex()


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

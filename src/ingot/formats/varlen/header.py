"""The header of a file of variable-length items: version 4 of Bloscpack.

A `VarlenHeader` is always consistent in itself, and `check` compares its claims with the size of
the file. Metadata, table and packs, which follow it, are the subjects of other modules.

All integers are little-endian::

    0   magic "blpk"            8   chunk size, i32: -1
    4   version, u8: 4          12  size of the last chunk, i32: -1
    5   options, u8             16  number of entries of the table in use, i64
    6   checksum, u8            24  bytes of the metadata, i32
    7   typesize, u8            28  CRC-32 of header, metadata and table, u32
"""

import struct
import zlib
from dataclasses import dataclass, replace
from typing import Final

from ingot.codecs.codec import Buffer
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import INT64
from ingot.formats.bloscpack.header import CHECKSUMS, HEADER_BYTES, LEAST_CHUNK, MAGIC, UNKNOWN

__all__ = ["CHECKED_BYTES", "LARGEST_METADATA", "VERSION", "VarlenHeader", "is_varlen"]

VERSION: Final = 4
"""The version byte: upstream ends with 3, where bytes 24 to 31 have another meaning."""

CHECKED_BYTES: Final = 28
"""The bytes of the header before the CRC-32, which covers them."""

LARGEST_METADATA: Final = 2**31 - 1
"""The most bytes that the field for the size of the metadata can claim."""

_FIELDS: Final = struct.Struct("<4sBBBBiiqiI")
_NAMES: Final = tuple(CHECKSUMS)

_OFFSETS: Final = 0x01
_METADATA: Final = 0x02
_VARIABLE: Final = 0x04
_PACKED: Final = 0x08
_CRC: Final = 0x10
_KNOWN: Final = _OFFSETS | _METADATA | _VARIABLE | _PACKED | _CRC


@dataclass(frozen=True, slots=True)
class VarlenHeader:
    """What the header of a file says.

    >>> header = VarlenHeader(count=3, packed=False, meta_bytes=20)
    >>> header.entry_bytes, header.table_start, VarlenHeader.parse(header.pack()) == header
    (8, 52, True)
    """

    count: int = 0
    """The entries of the table that are in use; `UNKNOWN` in a file that is not finished."""
    meta_bytes: int = 0
    """The bytes between the header and the table: a JSON document, and spaces."""
    packed: bool = True
    """Whether an entry of the table is a pack of items; otherwise it is one item."""
    checksum: str = "crc32"
    typesize: int = 1
    crc: int | None = None
    """The CRC-32 of header, metadata and table; None in a file without one."""

    def __post_init__(self) -> None:
        if self.checksum not in CHECKSUMS:
            raise FormatError(f"varlen header: there is no checksum {self.checksum!r}")
        for name, low, high in _RANGES:
            found = getattr(self, name)
            if not low <= found <= high:
                raise FormatError(f"varlen header: {name} is {found}, it lies in {low}..{high}")

    @classmethod
    def parse(cls, data: Buffer) -> "VarlenHeader":
        """Return the header at the start of a file.

        >>> VarlenHeader.parse(b"blpk" + bytes([4, 0x25, 1, 1]) + bytes(24))
        Traceback (most recent call last):
        ingot.errors.FormatError: varlen header: options are 0x25, only 0x1f are known
        """
        if len(data) < HEADER_BYTES:
            raise CorruptionError(
                f"varlen header: it needs {HEADER_BYTES} bytes, {len(data)} are stored"
            )
        magic, version, options, checksum, typesize, _, _, count, meta_bytes, crc = (
            _FIELDS.unpack_from(data)
        )
        if magic != MAGIC:
            raise FormatError(f"varlen header: it begins with {magic!r}, not with {MAGIC!r}")
        if version != VERSION:
            raise UnsupportedError(f"varlen header: version is {version}, not {VERSION}")
        if not options & _VARIABLE:
            raise UnsupportedError("varlen header: version 4 without option bit 2 is unknown")
        if options & ~_KNOWN:
            raise FormatError(
                f"varlen header: options are {options:#04x}, only {_KNOWN:#04x} are known"
            )
        if not options & _OFFSETS:
            raise FormatError("varlen header: option bit 0 is clear, but there is always a table")
        if checksum >= len(_NAMES):
            raise FormatError(
                f"varlen header: checksum is {checksum}, it lies in 0..{len(_NAMES) - 1}"
            )
        if bool(options & _METADATA) != bool(meta_bytes):
            said = "set" if options & _METADATA else "clear"
            raise FormatError(
                f"varlen header: option bit 1 is {said}, the metadata have {meta_bytes} bytes"
            )
        if crc and not options & _CRC:
            raise FormatError("varlen header: bytes 28 to 31 are not 0, but option bit 4 is clear")
        return cls(
            count,
            meta_bytes,
            bool(options & _PACKED),
            _NAMES[checksum],
            typesize,
            crc if options & _CRC else None,
        )

    def pack(self) -> bytes:
        """Return the bytes that `parse` reads."""
        options = _OFFSETS | _VARIABLE | _PACKED * self.packed
        options |= _METADATA * bool(self.meta_bytes) | _CRC * (self.crc is not None)
        return _FIELDS.pack(
            MAGIC,
            VERSION,
            options,
            _NAMES.index(self.checksum),
            self.typesize,
            UNKNOWN,
            UNKNOWN,
            self.count,
            self.meta_bytes,
            self.crc or 0,
        )

    def sealed(self, behind: Buffer) -> "VarlenHeader":
        """Return the header with the CRC-32 of itself and of metadata and table, given as bytes.

        >>> VarlenHeader().sealed(b"").crc == zlib.crc32(VarlenHeader(crc=0).pack()[:28])
        True
        """
        first = replace(self, crc=0).pack()[:CHECKED_BYTES]
        return replace(self, crc=zlib.crc32(behind, zlib.crc32(first)))

    def check_crc(self, front: Buffer) -> None:
        """Raise `CorruptionError` unless the front of a file, up to its packs, has the CRC-32."""
        if self.crc is None:
            return
        view = memoryview(front)
        fact = zlib.crc32(view[HEADER_BYTES:], zlib.crc32(view[:CHECKED_BYTES]))
        if fact != self.crc:
            raise CorruptionError(
                f"varlen header: the CRC-32 of header, metadata and table is {fact:#010x}, "
                f"{self.crc:#010x} is stored"
            )

    def check(self, size: int) -> None:
        """Raise `CorruptionError` unless a file of `size` bytes has room for all that is claimed.

        >>> VarlenHeader(count=2**40).check(10**6)
        Traceback (most recent call last):
        ingot.errors.CorruptionError: varlen header: count claims 1099511627776 entries, ...
        """
        if self.table_start > size:
            raise CorruptionError(
                f"varlen header: the metadata claim {self.meta_bytes} bytes, "
                f"{max(0, size - HEADER_BYTES)} follow the header"
            )
        if self.count == UNKNOWN:
            error = CorruptionError(
                "varlen header: the number of entries is -1: the writer of the file did not finish"
            )
            error.add_note(
                "the packs that were written are still in the file: ingot.repair reads every item "
                "that was written whole; or write the items again"
            )
            raise error
        room = (size - self.table_start) // self.entry_bytes
        if self.count > room:
            raise CorruptionError(
                f"varlen header: count claims {self.count} entries, "
                f"the file of {size} bytes has room for {room}"
            )

    @property
    def digest_bytes(self) -> int:
        """The bytes of a digest behind each chunk."""
        return CHECKSUMS[self.checksum]

    @property
    def entry_bytes(self) -> int:
        """The bytes of an entry of the table."""
        return 16 if self.packed else 8

    @property
    def table_start(self) -> int:
        """The first byte of the table."""
        return HEADER_BYTES + self.meta_bytes

    @property
    def least_pack(self) -> int:
        """The fewest bytes of a pack, which has two chunks, or of an item, which has one."""
        return (2 if self.packed else 1) * (LEAST_CHUNK + self.digest_bytes)


_RANGES: Final = (
    ("count", UNKNOWN, INT64),
    ("meta_bytes", 0, LARGEST_METADATA),
    ("typesize", 0, 255),
)


def is_varlen(head: bytes, tail: bytes) -> bool:
    """Return whether a file begins like one of variable-length items.

    >>> is_varlen(b"blpk\\x04\\x05", b""), is_varlen(b"blpk\\x03\\x05", b"")
    (True, False)
    """
    return (
        head.startswith(MAGIC)
        and head[4:5] == bytes([VERSION])
        and bool(head[5:6] and head[5] & _VARIABLE)
    )

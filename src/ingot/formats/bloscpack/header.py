"""The header of a Bloscpack file, in versions 1, 2 and 3.

A `Header` is always consistent in itself, and `check` compares its claims with the size of the
file. Metadata, offsets and chunks, which follow it, are the subjects of other modules.

All integers are little-endian. Version 1 has 16 bytes::

    0   magic "blpk"            5   reserved, 3 bytes
    4   version, u8: 1          8   number of chunks, i64

Versions 2 and 3 have 32 bytes; in version 2 the last field is reserved::

    0   magic "blpk"            8   decoded bytes of every chunk but the last, i32
    4   version, u8             12  decoded bytes of the last chunk, i32
    5   options, u8             16  number of chunks, i64
    6   checksum, u8            24  entries of the offsets that are spare, i64
    7   typesize, u8
"""

import struct
from dataclasses import dataclass
from typing import Final

from ingot.codecs.checksums import DIGEST_BYTES
from ingot.codecs.codec import Buffer
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import INT64

__all__ = [
    "CHECKSUMS",
    "HEADER_BYTES",
    "LARGEST_CHUNK",
    "LEAST_CHUNK",
    "MAGIC",
    "UNKNOWN",
    "VERSION",
    "Header",
    "is_bloscpack",
]

MAGIC: Final = b"blpk"

VERSION: Final = 3
"""The version that is written."""

HEADER_BYTES: Final = 32
"""The most bytes of a header; that of version 1 is shorter."""

UNKNOWN: Final = -1
"""A size or a number that the writer did not know."""

LARGEST_CHUNK: Final = 2**31 - 1 - 16
"""The most decoded bytes of a chunk: those that Blosc 1 can compress."""

LEAST_CHUNK: Final = 16
"""The fewest bytes that a chunk takes in the file, without its digest."""

CHECKSUMS: Final = {
    name: DIGEST_BYTES[name]
    for name in ["none", "adler32", "crc32", "md5", "sha1", "sha224", "sha256", "sha384", "sha512"]
}
"""The checksums, in the order of their numbers, with the bytes of a digest."""

_NAMES: Final = tuple(CHECKSUMS)
_FIRST: Final = struct.Struct("<4sB3sq")
_FIELDS: Final = struct.Struct("<4sBBBBiiqq")
_ENTRY_BYTES: Final = 8

_OFFSETS: Final = 0x01
_METADATA: Final = 0x02
_THIRD_OPTION: Final = 0x04
_OPTIONS: Final = {1: 0, 2: _OFFSETS, 3: _OFFSETS | _METADATA}
_VARIABLE_LENGTH: Final = 4

# Room in the offsets for appended chunks, for each chunk: as bloscpack has it, but not without end.
_SPARE: Final = 10
_MOST_SPARE: Final = 100_000


@dataclass(frozen=True, slots=True)
class Header:
    """What the header of a file says; sizes and numbers may be `UNKNOWN`.

    >>> header = Header(chunk_size=1000, last_chunk=200, nchunks=3, max_app_chunks=30)
    >>> header.payload, header.table_entries, Header.parse(header.pack()) == header
    (2200, 33, True)
    >>> Header(chunk_size=1000, last_chunk=1200)
    Traceback (most recent call last):
    ingot.errors.FormatError: Bloscpack header: last_chunk is 1200, chunk_size is 1000
    """

    version: int = VERSION
    has_offsets: bool = True
    has_metadata: bool = False
    checksum: str = "adler32"
    typesize: int = 8
    chunk_size: int = 0
    last_chunk: int = 0
    nchunks: int = 1
    max_app_chunks: int = 0
    """The spare entries of the offsets: how many chunks can be appended in place."""

    def __post_init__(self) -> None:
        if self.checksum not in CHECKSUMS:
            raise FormatError(f"Bloscpack header: there is no checksum {self.checksum!r}")
        for name, low, high in _RANGES:
            found = getattr(self, name)
            if not low <= found <= high:
                raise FormatError(f"Bloscpack header: {name} is {found}, it lies in {low}..{high}")
        single = self.version == 2 and self.nchunks == 1 and self.chunk_size == 0
        if self.last_chunk > self.chunk_size != UNKNOWN and not single:
            raise FormatError(
                f"Bloscpack header: last_chunk is {self.last_chunk}, "
                f"chunk_size is {self.chunk_size}"
            )
        if self.nchunks == UNKNOWN and (self.has_offsets or self.max_app_chunks):
            raise FormatError(
                "Bloscpack header: nchunks is -1, so the length of the offsets is unknown"
            )

    @classmethod
    def of_payload(
        cls,
        size: int,
        chunk_size: int,
        *,
        checksum: str,
        typesize: int,
        has_metadata: bool,
        has_offsets: bool = True,
    ) -> "Header":
        """Return the header of a new file of `size` decoded bytes, which has room to grow.

        >>> header = Header.of_payload(2500, 1000, checksum="md5", typesize=8, has_metadata=False)
        >>> header.nchunks, header.last_chunk, header.max_app_chunks
        (3, 500, 30)
        """
        count = max(1, -(-size // chunk_size))
        return cls(
            VERSION,
            has_offsets,
            has_metadata,
            checksum,
            typesize,
            chunk_size,
            last_chunk=size - (count - 1) * chunk_size,
            nchunks=count,
            max_app_chunks=min(_SPARE * count, _MOST_SPARE) if has_offsets else 0,
        )

    @classmethod
    def parse(cls, data: Buffer, size: int | None = None) -> "Header":
        """Return the header at the start of a file of `size` bytes, if that is known.

        >>> Header.parse(b"blpk" + bytes([3, 0x80, 1, 8]) + bytes(24))
        Traceback (most recent call last):
        ingot.errors.FormatError: Bloscpack header: options are 0x80, version 3 has 0x03
        """
        if len(data) < _FIRST.size:
            raise CorruptionError(
                f"Bloscpack header: it needs {_FIRST.size} bytes, {len(data)} are stored"
            )
        magic, version, reserved, count = _FIRST.unpack_from(data)
        if magic != MAGIC:
            raise FormatError(f"Bloscpack header: it begins with {magic!r}, not with {MAGIC!r}")
        try:
            if version == 1:
                if any(reserved):
                    raise FormatError("Bloscpack header: the reserved bytes 5 to 7 are not 0")
                header = cls(1, False, False, "none", 1, UNKNOWN, UNKNOWN, count)
            else:
                header = cls._parse_fields(data)
            if size is not None:
                header.check(size)
        except (FormatError, CorruptionError, UnsupportedError) as error:
            if _is_candidate(data):
                error.add_note(
                    "the file looks like one of the release candidates of 2012, which have a "
                    "header of 8 bytes and are not read"
                )
            raise
        return header

    @classmethod
    def _parse_fields(cls, data: Buffer) -> "Header":
        version, options = data[4], data[5]
        if version == _VARIABLE_LENGTH and options & _THIRD_OPTION:
            raise UnsupportedError("Bloscpack header: version 4 with items of any length")
        if version not in _OPTIONS:
            raise UnsupportedError(f"Bloscpack header: version {version} is unknown")
        if len(data) < HEADER_BYTES:
            raise CorruptionError(
                f"Bloscpack header: it needs {HEADER_BYTES} bytes, {len(data)} are stored"
            )
        checksum, typesize, chunk_size, last_chunk, nchunks, spare = _FIELDS.unpack_from(data)[3:]
        if version == VERSION and options & _THIRD_OPTION:
            raise UnsupportedError(
                "Bloscpack header: option bit 2, which only development versions of 2012 wrote"
            )
        if options & ~_OPTIONS[version]:
            raise FormatError(
                f"Bloscpack header: options are {options:#04x}, version {version} has "
                f"{_OPTIONS[version]:#04x}"
            )
        if checksum >= len(_NAMES):
            raise FormatError(
                f"Bloscpack header: checksum is {checksum}, it lies in 0..{len(_NAMES) - 1}"
            )
        if version == 2 and spare:
            raise FormatError("Bloscpack header: the reserved bytes 24 to 31 are not 0")
        return cls(
            version,
            bool(options & _OFFSETS),
            bool(options & _METADATA),
            _NAMES[checksum],
            typesize,
            chunk_size,
            last_chunk,
            nchunks,
            spare,
        )

    def pack(self) -> bytes:
        """Return the bytes that `parse` reads."""
        if self.version == 1:
            return _FIRST.pack(MAGIC, 1, bytes(3), self.nchunks)
        options = _OFFSETS * self.has_offsets | _METADATA * self.has_metadata
        sizes = self.chunk_size, self.last_chunk, self.nchunks, self.max_app_chunks
        checksum = _NAMES.index(self.checksum)
        return _FIELDS.pack(MAGIC, self.version, options, checksum, self.typesize, *sizes)

    def check(self, size: int, behind: int = 0) -> None:
        """Raise `CorruptionError` unless a file of `size` bytes has room for all that is claimed.

        `behind` is the length of the metadata section.

        >>> Header(nchunks=2**40).check(10**6)
        Traceback (most recent call last):
        ingot.errors.CorruptionError: Bloscpack header: nchunks claims 1099511627776 chunks, ...
        """
        rest = size - self.header_bytes - behind
        entries = self.table_entries
        if _ENTRY_BYTES * entries > rest:
            claim = f"nchunks claims {self.nchunks} chunks, max_app_chunks {self.max_app_chunks}"
            raise CorruptionError(
                f"Bloscpack header: {claim}: their {entries} offsets do not fit into the "
                f"{max(rest, 0)} bytes behind header and metadata"
            )
        room = (rest - _ENTRY_BYTES * entries) // (LEAST_CHUNK + self.digest_bytes)
        if self.nchunks > room:
            raise CorruptionError(
                f"Bloscpack header: nchunks claims {self.nchunks} chunks, "
                f"the file of {size} bytes has room for {room}"
            )

    @property
    def header_bytes(self) -> int:
        """The length of the header itself."""
        return _FIRST.size if self.version == 1 else HEADER_BYTES

    @property
    def digest_bytes(self) -> int:
        """The bytes of a digest behind each chunk."""
        return CHECKSUMS[self.checksum]

    @property
    def table_entries(self) -> int:
        """The number of offsets, spare ones included; 0 without offsets."""
        return self.nchunks + self.max_app_chunks if self.has_offsets else 0

    @property
    def table_bytes(self) -> int:
        """The length of the offsets."""
        return _ENTRY_BYTES * self.table_entries

    @property
    def payload(self) -> int | None:
        """The decoded bytes of all chunks; None when the header does not say."""
        if self.nchunks == 0:
            return 0
        if UNKNOWN in (self.nchunks, self.chunk_size, self.last_chunk):
            return None
        return (self.nchunks - 1) * self.chunk_size + self.last_chunk


_RANGES: Final = (
    ("version", 1, VERSION),
    ("typesize", 1, 255),
    ("chunk_size", UNKNOWN, LARGEST_CHUNK),
    ("last_chunk", UNKNOWN, LARGEST_CHUNK),
    ("nchunks", UNKNOWN, INT64),
    ("max_app_chunks", 0, INT64),
)


def is_bloscpack(head: bytes, tail: bytes) -> bool:
    """Return whether a file begins like one of Bloscpack, of whatever version.

    >>> is_bloscpack(b"blpk\\x03", b""), is_bloscpack(b"blpk\\x04\\x05", b"")
    (True, False)
    """
    if not head.startswith(MAGIC):
        return False
    # Version 4 with option bit 2 is another format: one of items of any length.
    return not (head[4:5] == bytes([_VARIABLE_LENGTH]) and head[5:6] and head[5] & _THIRD_OPTION)


def _is_candidate(data: Buffer) -> bool:
    """Return whether a file has the header of 8 bytes of the first release candidates.

    Behind the magic it has the number of chunks, and the first chunk follows: version 2 of Blosc,
    and a typesize.
    """
    return not any(data[5:8]) and data[8] == 2 and data[11] > 0

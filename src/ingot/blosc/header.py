"""The header of a Blosc chunk.

Every chunk begins with 16 bytes; Blosc 2 adds 16 more. They determine how many blocks a chunk has,
how large these are, their streams and their filters. A ``ChunkHeader`` is always consistent in
itself; ``parse`` also checks it against the bytes that are stored. Where the blocks lie is the
subject of ``ingot.blosc.blocks``.
"""

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, cast

from ingot.errors import CorruptionError, FormatError, LimitError, UnsupportedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

    # NumPy's arrays are buffers, but its type stubs say so only from Python 3.12 on.
    BytesLike: TypeAlias = Buffer | npt.NDArray[np.generic]

__all__ = [
    "BITSHUFFLE",
    "CODECS",
    "COMPRESSORS",
    "DELTA",
    "DICTIONARY",
    "EXTENDED_HEADER_BYTES",
    "EXTENSION_SLOTS",
    "FEWEST_SPLIT_ITEMS",
    "FILTERS",
    "FORMATS",
    "HEADER_BYTES",
    "LARGEST_BLOCK",
    "LARGEST_CHUNK",
    "LARGEST_EXPANSION",
    "LARGEST_SPLIT_TYPESIZE",
    "LAZY",
    "MEMCPYED",
    "SHUFFLE",
    "SPECIALS",
    "UNSPLIT",
    "VARIABLE",
    "ChunkHeader",
    "Extension",
]

HEADER_BYTES = 16
EXTENDED_HEADER_BYTES = 32

SHUFFLE = 0x01
MEMCPYED = 0x02
BITSHUFFLE = 0x04
DELTA = 0x08
UNSPLIT = 0x10

FORMATS = ("blosclz", "lz4", "snappy", "zlib", "zstd")
"""The stream formats, in the order of their numbers in the flags."""

CODECS = {"blosclz": 0, "lz4": 1, "lz4hc": 1, "snappy": 2, "zlib": 3, "zstd": 4}
"""The codecs, with the number of the stream format that each of them writes."""

COMPRESSORS = {"blosclz": 0, "lz4": 1, "lz4hc": 2, "snappy": 3, "zlib": 4, "zstd": 5}
"""The codecs, with the numbers that Blosc 2 writes into ``codec_id``."""

FILTERS = {
    1: "shuffle",
    2: "bitshuffle",
    3: "delta",
    4: "truncate",
    35: "bytedelta",
    36: "int_trunc",
}
"""The filters that can be decoded, by the numbers of Blosc 2."""

SPECIALS = ("none", "zeros", "nan", "value", "uninitialised")
"""The special values that a chunk can have instead of blocks, in the order of their numbers."""

EXTENSION_SLOTS = 6
"""How many filters an extended header has room for."""

# Bits of the byte ``blosc2_flags``, and of ``flags2`` before it.
DICTIONARY = 0x01
LAZY = 0x08
VARIABLE = 0x01
_CODEC_ELSEWHERE = 0x04
_INSTRUMENTED = 0x80

LARGEST_CHUNK = 2**31 - 1
"""The largest value of the signed 32-bit fields ``nbytes`` and ``cbytes``."""

LARGEST_BLOCK = 536_866_816
"""The largest block size that any Blosc library accepts."""

# Blosc 1 readers split a block into one stream per byte of the item only within these bounds.
LARGEST_SPLIT_TYPESIZE = 16
FEWEST_SPLIT_ITEMS = 128

# The most decoded bytes that one stored byte can stand for. LZ4, BloscLZ and Snappy spend a byte
# on each 255 bytes of a match; Deflate 2 bits on 258; Zstandard 4 bytes on a run of 128 KiB.
LARGEST_EXPANSION = {"blosclz": 255, "lz4": 255, "snappy": 255, "zlib": 1032, "zstd": 2**15}

# From this version on the split flag alone decides, and bitshuffle may filter part of a block.
_BLOSC_2 = 3

_FIELDS = struct.Struct("<BBBBiii")
_EXTENSION_FIELDS = struct.Struct("<6sBB6sBB")


@dataclass(frozen=True, slots=True)
class Extension:
    """The second half of an extended, 32-byte header (Blosc 2).

    ``codec_id`` numbers compressors, not stream formats, and is used only when the flags say so.

    >>> Extension.parse(bytes([0, 0, 0, 0, 0, 1, 5]) + bytes(9)).filters
    (0, 0, 0, 0, 0, 1)
    """

    filters: tuple[int, ...]
    codec_id: int
    codec_meta: int
    filters_meta: tuple[int, ...]
    flags2: int
    blosc2_flags: int

    @classmethod
    def parse(cls, chunk: "Buffer", offset: int = 0) -> "Extension":
        """Read the 16 bytes at ``offset``; the caller has checked that they exist."""
        filters, codec_id, codec_meta, filters_meta, flags2, flags = _EXTENSION_FIELDS.unpack_from(
            chunk, offset
        )
        return cls(tuple(filters), codec_id, codec_meta, tuple(filters_meta), flags2, flags)

    def pack(self) -> bytes:
        """Return the 16 bytes that ``parse`` reads."""
        return _EXTENSION_FIELDS.pack(
            bytes(self.filters),
            self.codec_id,
            self.codec_meta,
            bytes(self.filters_meta),
            self.flags2,
            self.blosc2_flags,
        )


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """The fields of a chunk's header, and what follows from them.

    >>> header = ChunkHeader(flags=0x21, typesize=8, nbytes=8000, blocksize=4000, cbytes=400)
    >>> header.codec, header.filter, header.block_count, header.streams_of(0)
    ('lz4', 'shuffle', 2, 8)
    >>> ChunkHeader.parse(header.pack(), stored=400) == header
    True
    >>> ChunkHeader.parse(header.pack(), stored=60)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: Blosc chunk: cbytes claims 400 bytes, 60 are stored
    """

    version: int = 2
    versionlz: int = 1
    flags: int = UNSPLIT
    typesize: int = 1
    nbytes: int = 0
    blocksize: int = 1
    cbytes: int = HEADER_BYTES
    extension: Extension | None = None

    DECODED_VERSIONS: ClassVar[tuple[int, ...]] = (1, 2, 3, 4, 5, 6)

    def __post_init__(self) -> None:
        self._check_fields()
        if self.cbytes < self.header_bytes:
            raise FormatError(
                f"Blosc chunk: cbytes is {self.cbytes}, the header alone has {self.header_bytes}"
            )
        if self.memcpyed and self.cbytes != self.nbytes + self.header_bytes:
            raise CorruptionError(
                f"Blosc chunk: stored uncompressed, cbytes is {self.cbytes}, "
                f"nbytes and header make {self.nbytes + self.header_bytes}"
            )

    @classmethod
    def parse(cls, chunk: "BytesLike", stored: int | None = None) -> "ChunkHeader":
        """Read the header at the start of ``chunk``.

        ``stored`` is how many bytes of the chunk exist, if ``chunk`` is only its beginning.
        """
        view = memoryview(cast("Buffer", chunk))
        available = view.nbytes if stored is None else stored
        if min(view.nbytes, available) < HEADER_BYTES:
            raise CorruptionError(
                f"Blosc chunk: a header needs {HEADER_BYTES} bytes, "
                f"{min(view.nbytes, available)} are stored"
            )
        version, versionlz, flags, typesize, nbytes, blocksize, cbytes = _FIELDS.unpack_from(view)
        extension = _parse_extension(flags, view)
        header = cls(version, versionlz, flags, typesize, nbytes, blocksize, cbytes, extension)
        if available < header.cbytes:
            raise CorruptionError(
                f"Blosc chunk: cbytes claims {header.cbytes} bytes, {available} are stored"
            )
        if available > header.cbytes:
            raise FormatError(
                f"Blosc chunk: cbytes claims {header.cbytes} bytes, {available} are given"
            )
        return header

    def pack(self) -> bytes:
        """Return the bytes that ``parse`` reads: 16, or 32 with an extension."""
        first = _FIELDS.pack(
            self.version,
            self.versionlz,
            self.flags,
            self.typesize,
            self.nbytes,
            self.blocksize,
            self.cbytes,
        )
        return first if self.extension is None else first + self.extension.pack()

    @property
    def extended(self) -> bool:
        """Whether the header has 32 bytes; the shuffle bits then have no meaning of their own."""
        return self.flags & (SHUFFLE | BITSHUFFLE) == SHUFFLE | BITSHUFFLE

    @property
    def header_bytes(self) -> int:
        """The length of the header itself."""
        return EXTENDED_HEADER_BYTES if self.extended else HEADER_BYTES

    @property
    def codec(self) -> str:
        """The name of the stream format; LZ4 and LZ4HC share one. Without meaning if memcpyed."""
        return (*FORMATS, "reserved", "user-defined", "super-chunk")[self.flags >> 5]

    @property
    def filter(self) -> Literal["none", "shuffle", "bitshuffle"]:
        """The filter in the flags; an extended header has its filters in the extension."""
        if self.extended or not self.flags & (SHUFFLE | BITSHUFFLE):
            return "none"
        return "shuffle" if self.flags & SHUFFLE else "bitshuffle"

    @property
    def pipeline(self) -> tuple[tuple[int, int], ...]:
        """The filters with their metadata, in the order applied; ``FILTERS`` has their names.

        The alpha version 3 had five slots, so the sixth is ignored there.
        """
        if self.extension is None:
            delta = ((3, 0),) if self.flags & DELTA else ()
            last = {"none": (), "shuffle": ((1, 0),), "bitshuffle": ((2, 0),)}[self.filter]
            return (*delta, *last)
        slots = zip(self.extension.filters, self.extension.filters_meta, strict=True)
        known = list(slots)[: EXTENSION_SLOTS - (self.version == _BLOSC_2)]
        return tuple((number, meta) for number, meta in known if number)

    @property
    def special(self) -> str:
        """The special value of the chunk, one of ``SPECIALS``; ``"none"`` if it has data."""
        number = 0 if self.extension is None else self.extension.blosc2_flags >> 4 & 7
        return SPECIALS[number] if number < len(SPECIALS) else "reserved"

    @property
    def variable(self) -> bool:
        """Whether every block states its own size; ``blocksize`` is then the number of blocks."""
        return self.extension is not None and bool(self.extension.flags2 & VARIABLE)

    @property
    def has_dictionary(self) -> bool:
        """Whether a dictionary lies between the block starts and the blocks."""
        extension = self.extension
        return bool(self.block_count and extension and extension.blosc2_flags & DICTIONARY)

    @property
    def lazy(self) -> bool:
        """Whether the blocks are stored elsewhere: a layout for memory, never for files."""
        return self.extension is not None and bool(self.extension.blosc2_flags & LAZY)

    @property
    def memcpyed(self) -> bool:
        """Whether the data follow the header unfiltered, uncompressed and without blocks."""
        return bool(self.flags & MEMCPYED) and self.special == "none"

    @property
    def block_bytes(self) -> int:
        """The size of all blocks but the last: ``blocksize``, or ``nbytes`` if that is less."""
        return min(self.blocksize, self.nbytes)

    @property
    def block_count(self) -> int:
        """How many blocks are stored; none in an empty, special or memcpyed chunk."""
        if self.memcpyed or not self.nbytes or self.special != "none":
            return 0
        return self.blocksize if self.variable else -(-self.nbytes // self.blocksize)

    @property
    def data_start(self) -> int:
        """The end of the block starts, where the dictionary or the first block can begin."""
        return self.header_bytes + 4 * self.block_count

    @property
    def item_count(self) -> int:
        """How many whole items the chunk holds."""
        return self.nbytes // self.typesize

    @property
    def split(self) -> bool:
        """Whether full blocks hold one stream per byte of the item.

        In Blosc 2 the flag decides. Chunks of Blosc 1 may be older than the flag and leave it
        clear, so readers apply the whole rule.
        """
        if self.flags & UNSPLIT or self.variable:
            return False
        return self.version >= _BLOSC_2 or (
            self.typesize <= LARGEST_SPLIT_TYPESIZE
            and self.block_bytes // self.typesize >= FEWEST_SPLIT_ITEMS
        )

    @property
    def partial_bitshuffle(self) -> bool:
        """Whether bitshuffle filters the first multiple of eight items, not only whole blocks."""
        return self.version >= _BLOSC_2

    def bytes_of(self, block: int) -> int:
        """Return the decoded size of block number ``block``; the last one may be short."""
        return min(self.block_bytes, self.nbytes - block * self.block_bytes)

    def streams_of(self, block: int) -> int:
        """Return how many streams block number ``block`` has; a short block is never split."""
        return self.typesize if self.split and self.bytes_of(block) == self.block_bytes else 1

    def check_decodable(self, limit: int = LARGEST_CHUNK) -> None:
        """Raise unless Ingot can decode the chunk and its fields are possible."""
        self._check_supported()
        if self.nbytes > limit:
            raise LimitError(
                f"Blosc chunk: nbytes claims {self.nbytes} bytes, the limit is {limit}"
            )
        if self.special != "none":
            self._check_special()
        elif self.block_count:
            self._check_room()

    def _check_fields(self) -> None:
        if self.version < 1:
            raise FormatError(f"Blosc chunk: format version is {self.version}, the first was 1")
        if self.version > 6:
            raise UnsupportedError(f"Blosc chunk: format version {self.version} is unknown")
        if not (0 <= self.versionlz <= 255 and 0 <= self.flags <= 255):
            raise FormatError(
                f"Blosc chunk: versionlz {self.versionlz} and flags {self.flags} must fit a byte"
            )
        if self.extended != (self.extension is not None):
            raise FormatError(
                f"Blosc chunk: flags {self.flags:#04x} and the length of the header disagree"
            )
        if not 1 <= self.typesize <= 255:
            raise FormatError(f"Blosc chunk: typesize is {self.typesize}, it lies in 1..255")
        if not 0 <= self.nbytes <= LARGEST_CHUNK:
            raise FormatError(
                f"Blosc chunk: nbytes is {self.nbytes}, it lies in 0..{LARGEST_CHUNK}"
            )
        if self.nbytes and not 1 <= self.blocksize <= LARGEST_BLOCK:
            raise FormatError(
                f"Blosc chunk: blocksize is {self.blocksize}, it lies in 1..{LARGEST_BLOCK}"
            )

    def _check_supported(self) -> None:
        if self.extension is not None:
            self._check_extension(self.extension)
        if not self.block_count:
            return
        if self.codec not in FORMATS:
            raise UnsupportedError(
                f"Blosc chunk: codec {self.flags >> 5} ({self.codec}) is not decoded"
            )
        if self.version < _BLOSC_2 and self.flags & DELTA and not self.extended:
            raise UnsupportedError("Blosc chunk: the delta filter is not decoded in Blosc 1 chunks")
        for number, _ in self.pipeline:
            if number not in FILTERS:
                raise UnsupportedError(f"Blosc chunk: filter {number} is not decoded")
            if self.variable and FILTERS[number] == "delta":
                raise UnsupportedError(
                    "Blosc chunk: delta over blocks of variable length has no settled meaning"
                )

    def _check_extension(self, extension: Extension) -> None:
        if self.lazy:
            raise FormatError(
                "Blosc chunk: blosc2_flags say that the chunk is lazy; such chunks are not stored"
            )
        if extension.blosc2_flags & (_INSTRUMENTED | _CODEC_ELSEWHERE):
            raise UnsupportedError(
                f"Blosc chunk: blosc2_flags {extension.blosc2_flags:#04x} ask for "
                "instrumentation or a codec outside of the chunk"
            )
        if extension.flags2 & ~VARIABLE:
            raise UnsupportedError(
                f"Blosc chunk: flags2 is {extension.flags2:#04x}, only bit 0 is known"
            )
        if self.special == "reserved":
            raise UnsupportedError(
                f"Blosc chunk: special value {extension.blosc2_flags >> 4 & 7} is reserved"
            )
        if self.variable and (self.memcpyed or self.special != "none"):
            raise FormatError(
                "Blosc chunk: blocks of variable length in a chunk that has no blocks at all"
            )

    def _check_special(self) -> None:
        if self.special == "nan" and self.typesize not in (4, 8):
            raise FormatError(
                f"Blosc chunk: a run of NaN with typesize {self.typesize}, it is 4 or 8"
            )
        width = self.typesize
        if self.special == "value":
            width = self.cbytes - EXTENDED_HEADER_BYTES
        elif self.cbytes != EXTENDED_HEADER_BYTES:
            raise FormatError(
                f"Blosc chunk: a run of {self.special} has cbytes {EXTENDED_HEADER_BYTES}, "
                f"not {self.cbytes}"
            )
        if not width:
            raise FormatError("Blosc chunk: a run of a value has no value behind its header")
        if self.special != "zeros" and self.nbytes % width:
            raise FormatError(
                f"Blosc chunk: nbytes is {self.nbytes}, no whole number of values of {width} bytes"
            )

    def _check_room(self) -> None:
        if self.data_start > self.cbytes:
            raise CorruptionError(
                f"Blosc chunk: {self.block_count} block starts end at {self.data_start}, "
                f"cbytes is {self.cbytes}"
            )
        if self.split and self.block_bytes % self.typesize:
            raise CorruptionError(
                f"Blosc chunk: blocks of {self.block_bytes} bytes cannot be split "
                f"into {self.typesize} equal streams"
            )
        payload = self.cbytes - self.data_start
        # Only Blosc 2 has runs, which take no room beside their length.
        if not self.extended and self.nbytes > payload * LARGEST_EXPANSION[self.codec]:
            raise CorruptionError(
                f"Blosc chunk: nbytes claims {self.nbytes} bytes, "
                f"{payload} bytes of {self.codec} cannot hold them"
            )


def _parse_extension(flags: int, view: memoryview) -> Extension | None:
    if flags & (SHUFFLE | BITSHUFFLE) != SHUFFLE | BITSHUFFLE:
        return None
    if view.nbytes < EXTENDED_HEADER_BYTES:
        raise CorruptionError(
            f"Blosc chunk: flags {flags:#04x} announce a header of {EXTENDED_HEADER_BYTES} bytes, "
            f"{view.nbytes} are stored"
        )
    return Extension.parse(view, HEADER_BYTES)

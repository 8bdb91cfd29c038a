"""The files of bcolz: a head of 16 bytes, one Blosc chunk, and the trailer that Ingot adds.

Knows what has to hold in such a file before its chunk is decoded, and that the last chunk of an
array may hold more rows than count. Refuses to know where the files are, and what a row means.
"""

import math
import struct
from dataclasses import dataclass, replace
from typing import Final

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import CHUNK_LIMIT, Array, Buffer, ChunkSpec, CodecChain, NativeCoding
from ingot.codecs.zone_maps import zone_map_of
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.formats import trailer

__all__ = ["FRAME_BYTES", "ChunkFileChain", "pack_frame", "parse_frame", "zone_in"]

FRAME_BYTES: Final = 16
"""The bytes in front of the chunk."""

_FRAME: Final = struct.Struct("<4sB3xq")
_MAGIC: Final = b"blpk"
_VERSION: Final = 1


def pack_frame() -> bytes:
    """Return the bytes in front of the chunk.

    >>> pack_frame()
    b'blpk\\x01\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return _FRAME.pack(_MAGIC, _VERSION, 1)


def parse_frame(data: Buffer) -> None:
    """Complain about bytes in front of a chunk that are not as they must be.

    >>> parse_frame(b"blpk\\x02" + bytes(11))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: super-chunk: version 2 is unknown
    """
    if len(data) < FRAME_BYTES:
        raise CorruptionError(
            f"super-chunk: a head needs {FRAME_BYTES} bytes, {len(data)} are stored"
        )
    magic, version, count = _FRAME.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"super-chunk: it begins with {magic!r}, not with {_MAGIC!r}")
    if version != _VERSION:
        raise UnsupportedError(f"super-chunk: version {version} is unknown")
    if count != 1:
        raise UnsupportedError(f"super-chunk: nchunks is {count}, only 1 is known")


def zone_in(data: Buffer, number: int) -> bytes:
    """Return the zone map in a whole file, the trailer checked; b"" when it has none."""
    view = memoryview(data)
    parse_frame(view)
    header, chunk = _chunk(view[FRAME_BYTES:])
    rest = view[FRAME_BYTES + len(chunk) :]
    if not rest:
        return b""
    found = trailer.parse(rest)
    found.check(chunk, header, number)
    return found.zone


@dataclass(frozen=True, slots=True)
class ChunkFileChain(CodecChain):
    """The chain of an array whose chunks lie in such files, rows along the first axis.

    `rows` is how many a full chunk has, `auto` that their number was nobody's wish.

    >>> chain = ChunkFileChain(rows=4)
    >>> chain.rows
    4
    """

    rows: int = 1
    auto: bool = False

    def encode(self, array: Array, number: int = 0) -> bytes:
        """Return the bytes of a file."""
        for stage in self.filters:
            array = stage.encode(array)
        chunk = CodecChain.encode(replace(self, filters=()), array)
        zone = zone_map_of(array)
        packed = b"" if zone is None else zone.pack(array.dtype)
        rows = array.shape[0] if array.ndim else 1
        return pack_frame() + chunk + trailer.pack(chunk, number, rows, packed)

    def decode(
        self, data: Buffer, spec: ChunkSpec, out: Array | None = None, *, limit: int = CHUNK_LIMIT
    ) -> Array:
        """Return the rows of a file, after everything it says has been compared."""
        view = memoryview(data)
        parse_frame(view)
        header, chunk = _chunk(view[FRAME_BYTES:])
        rest = view[FRAME_BYTES + len(chunk) :]
        rows = self._stored_rows(header, spec)
        if rest:
            found = trailer.parse(rest)
            found.check(chunk, header, spec.number)
            if found.rows != rows:
                raise CorruptionError(
                    f"chunk trailer: {found.rows} rows are claimed, the chunk holds {rows}"
                )
        stored = replace(spec, shape=(rows, *spec.shape[1:]))
        array = CodecChain.decode(self, chunk, stored, limit=limit)[: spec.shape[0]]
        if out is None:
            return array
        out[...] = array
        return out

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return what the native kernel can do by itself."""
        recipe = CodecChain.native_coding(self, spec)
        if recipe is None or self.filters:
            return None
        return replace(recipe, framed=True)

    @property
    def head_bytes(self) -> int:
        """How many bytes stand in front of the Blosc chunk."""
        return FRAME_BYTES

    def _stored_rows(self, header: ChunkHeader, spec: ChunkSpec) -> int:
        """Return how many rows the chunk holds, or complain that they are not those that are due.

        The last chunk of an array may hold more than count: rows that were cut off, or that were
        written and never counted.
        """
        wanted = spec.shape[0]
        size = math.prod(spec.shape[1:]) * spec.dtype.itemsize
        if self.serializer.serialized_size(spec) is None or not size:
            return wanted
        rows, rest = divmod(header.nbytes, size)
        if rest or not wanted <= rows <= self.rows:
            most = f", or up to {self.rows}" if self.rows > wanted else ""
            raise CorruptionError(
                f"Blosc chunk: nbytes claims {header.nbytes} bytes, {wanted} rows of {size} bytes "
                f"are due{most}"
            )
        return rows


def _chunk(view: memoryview) -> tuple[ChunkHeader, memoryview]:
    """Return the chunk at the start of some bytes, and its header."""
    claim = int.from_bytes(view[12:HEADER_BYTES], "little")
    chunk = view[:claim] if HEADER_BYTES <= claim <= len(view) else view
    return ChunkHeader.parse(chunk), chunk

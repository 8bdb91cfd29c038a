"""Chunk files of bcolz: a head of 16 bytes, one Blosc chunk, and the trailer that Ingot adds.

This module encodes and decodes chunk files, and checks a file before its chunk is decoded. The last
chunk of an array may hold more rows than the array has. Python objects are pickled, one in each
file. Where the files lie is not the concern of this module.

The head is little-endian::

    0   magic "blpk"            5   reserved, 3 bytes
    4   version, u8: 1          8   number of chunks, i64: 1, or 2 for a pack

A pack of variable-length items (`ingot.formats.packs`) has two chunks, each with its trailer.
"""

import math
import pickle
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Self

import numpy as np

from ingot.blosc.header import HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import (
    CHUNK_LIMIT,
    Array,
    Buffer,
    CheckedPart,
    ChunkSpec,
    CodecChain,
    EncodedChunk,
    NativeCoding,
    Serializer,
    StoredBytes,
)
from ingot.codecs.zone_maps import zone_map_of
from ingot.errors import CorruptionError, FormatError, IngotError, UnsafeError, UnsupportedError
from ingot.fields import FieldReader
from ingot.formats import trailer
from ingot.formats.packs import TrailedPacks

__all__ = [
    "HEAD_BYTES",
    "ChunkFileChain",
    "PackFiles",
    "PickledObject",
    "check_head",
    "pack_head",
    "zone_in",
]

HEAD_BYTES: Final = 16
"""The size of the head, in bytes."""

_HEAD: Final = struct.Struct("<4sB3xq")
_MAGIC: Final = b"blpk"
_VERSION: Final = 1

# Python 2, on which bcolz 1.0 also ran, reads pickles up to this protocol.
_PICKLE_PROTOCOL: Final = 2


def pack_head(chunks: int = 1) -> bytes:
    """Return the head of a chunk file, or of a pack, which has two chunks.

    >>> pack_head()
    b'blpk\\x01\\x00\\x00\\x00\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return _HEAD.pack(_MAGIC, _VERSION, chunks)


def check_head(data: Buffer, chunks: int = 1) -> None:
    """Raise an error unless a file of so many chunks begins with the expected head.

    >>> check_head(b"blpk\\x02" + bytes(11))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: chunk file: version 2 is unknown
    """
    if len(data) < HEAD_BYTES:
        raise CorruptionError(
            f"chunk file: a head needs {HEAD_BYTES} bytes, {len(data)} are stored"
        )
    magic, version, count = _HEAD.unpack_from(data)
    if magic != _MAGIC:
        raise FormatError(f"chunk file: it begins with {magic!r}, not with {_MAGIC!r}")
    if version != _VERSION:
        raise UnsupportedError(f"chunk file: version {version} is unknown")
    if count != chunks:
        raise UnsupportedError(f"chunk file: nchunks is {count}, {chunks} is due")


def zone_in(data: Buffer, number: int, identity: int | None) -> bytes:
    """Return the zone map of a whole chunk file, after checking its trailer; b"" without one."""
    view = memoryview(data)
    check_head(view)
    header, chunk = _chunk(view[HEAD_BYTES:])
    rest = view[HEAD_BYTES + len(chunk) :]
    if not rest:
        return b""
    found = trailer.parse(rest)
    found.check(chunk, header, number, identity)
    return found.zone


@dataclass(frozen=True, slots=True)
class ChunkFileChain(CodecChain):
    """The codec chain of an array in chunk files, with rows along the first axis.

    `rows` is the number of rows of a full chunk; `auto` says that the format chose it. `identity`
    is that of the array, which the trailers repeat; None where the array has none.

    >>> chain = ChunkFileChain(rows=4)
    >>> chain.rows
    4
    """

    rows: int = 1
    auto: bool = False
    identity: int | None = None

    def encode(self, array: Array, number: int = 0) -> bytes:
        """Return a chunk file."""
        for stage in self.filters:
            array = stage.encode(array)
        chunk = CodecChain.encode(replace(self, filters=()), array)
        zone = zone_map_of(array)
        packed = b"" if zone is None else zone.pack(array.dtype)
        rows = array.shape[0] if array.ndim else 1
        return pack_head() + chunk + trailer.pack(chunk, number, rows, packed, self.identity)

    def decode(
        self, data: Buffer, spec: ChunkSpec, out: Array | None = None, *, limit: int = CHUNK_LIMIT
    ) -> Array:
        """Return the rows of a chunk file, after checking head, trailer and number of rows."""
        view = memoryview(data)
        check_head(view)
        header, chunk = _chunk(view[HEAD_BYTES:])
        rest = view[HEAD_BYTES + len(chunk) :]
        rows = self._stored_rows(header, spec)
        if rest:
            found = trailer.parse(rest)
            found.check(chunk, header, *self.stated(spec.number))
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

    @property
    def is_framed(self) -> bool:
        """Whether anything but a chunk of the codec is stored: a trailer."""
        return True

    @property
    def is_trailed(self) -> bool:
        """Whether a trailer has a checksum of each block."""
        return True

    def part_ranges(
        self, head: Buffer, size: int, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Return what is read of a file to decode and compare ranges of its chunk."""
        return trailer.part_ranges(head, HEAD_BYTES, size, ranges)

    def checked_part(self, stored: StoredBytes, spec: ChunkSpec) -> CheckedPart | None:
        """Return where the parts of a chunk are, after checking head, front and wanted blocks."""
        head = stored.cut(0, min(HEAD_BYTES, stored.size))
        if head is None:
            return None
        try:
            check_head(head)
        except IngotError:
            return None
        rows = spec.shape[0]
        return trailer.checked_part(
            stored,
            HEAD_BYTES,
            spec.nbytes,
            self.stated(spec.number),
            range(rows, rows + 1),
            exact=True,
        )

    def unframed(self, data: Buffer, spec: ChunkSpec) -> EncodedChunk | None:
        """Return the chunk of a chunk file, after checking head and trailer."""
        view = memoryview(data)
        check_head(view)
        header, chunk = _chunk(view[HEAD_BYTES:])
        rest, zone = view[HEAD_BYTES + len(chunk) :], b""
        if rest:
            found = trailer.parse(rest)
            found.check(chunk, header, *self.stated(spec.number))
            zone = found.zone
        if self._stored_rows(header, spec) != spec.shape[0]:
            return None
        return EncodedChunk(chunk, verified=bool(rest), zone=zone)

    def framed(
        self, chunk: EncodedChunk, spec: ChunkSpec, array: Array | None = None
    ) -> Buffer | None:
        """Return the chunk file of an encoded chunk; None for a chunk of Blosc 2."""
        if ChunkHeader.parse(chunk.data).extended:
            return None
        zone = chunk.zone
        if not zone and array is not None:
            made = zone_map_of(array)
            zone = b"" if made is None else made.pack(array.dtype)
        number, identity = self.stated(spec.number)
        behind = trailer.pack(chunk.data, number, spec.shape[0], zone, identity)
        return b"".join((pack_head(), chunk.data, behind))

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the chain as the native kernel takes it; None when only Python can run it."""
        coding = CodecChain.native_coding(self, spec)
        if coding is None or self.filters:
            return None
        return replace(coding, framed=True, parts=((0, self.identity),))

    def identified(self, identity: int) -> "ChunkFileChain":
        """Return the same chain for an array with an identity."""
        stages = self.filters, self.serializer, self.compressors
        return ChunkFileChain(*stages, self.rows, self.auto, identity)

    def stated(self, number: int) -> tuple[int, int | None]:
        """Return the number and the identity that the trailer of a chunk states."""
        return number, self.identity

    @property
    def head_bytes(self) -> int:
        """The number of bytes before the Blosc chunk."""
        return HEAD_BYTES

    def _stored_rows(self, header: ChunkHeader, spec: ChunkSpec) -> int:
        """Return the number of rows in the chunk; raise an error if the array cannot have them.

        The last chunk may hold more rows than the array has: rows that were trimmed, or rows of an
        append that was not committed.
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


@dataclass(frozen=True, slots=True)
class PackFiles(TrailedPacks):
    """The codec of packs in files of their own, each with a head."""

    head: ClassVar[bytes] = pack_head(2)
    exact: ClassVar[bool] = True

    def _body(self, view: memoryview) -> memoryview:
        check_head(view, 2)
        return view[HEAD_BYTES:]


@dataclass(frozen=True, slots=True)
class PickledObject(Serializer):
    """The serializer of Python objects: a chunk is one pickled object.

    Unpickling runs whatever code the bytes hold. The stage says so (`runs_code`), and the engine
    refuses it unless the caller has allowed it. It is not in the registry of codecs, so that no
    file can name it.
    """

    name: ClassVar[str] = "pickle"
    runs_code: ClassVar[bool] = True

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise `UnsafeError`: a file cannot name this stage."""
        raise UnsafeError(f"codec {cls.name!r} is refused: unpickling runs whatever a file holds")

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Return None: the size depends on the object."""

    def encode(self, array: Array) -> Buffer:
        """Return the pickle of the only object."""
        return pickle.dumps(array.reshape(-1)[0], _PICKLE_PROTOCOL)

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the object as an array of `spec`; text of Python 2 is read as Latin-1."""
        array = np.empty(spec.shape, spec.dtype)
        try:
            array.reshape(-1)[0] = pickle.loads(data, encoding="latin1")
        except Exception as error:
            # A pickle can raise any exception.
            raise CorruptionError(f"pickle: {type(error).__name__}: {error}") from error
        return array


def _chunk(view: memoryview) -> tuple[ChunkHeader, memoryview]:
    """Return the header of the chunk at the start of `view`, and the chunk."""
    claim = int.from_bytes(view[12:HEADER_BYTES], "little")
    chunk = view[:claim] if HEADER_BYTES <= claim <= len(view) else view
    header = ChunkHeader.parse(chunk)
    header.check_decodable()
    return header, chunk

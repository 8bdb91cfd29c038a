"""What a Bloscpack file holds: its header, its metadata, and where its chunks lie.

`BloscpackFile.read` reads no more than that, and compares every claim with the size of the file.
Chunks are not decoded. Their places come from the offsets; the walk over all chunks is made where
there are none, or where sizes are unknown.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.blosc.header import EXTENDED_HEADER_BYTES, LARGEST_EXPANSION, ChunkHeader
from ingot.codecs.codec import Buffer
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import trailer
from ingot.formats.bloscpack import offsets
from ingot.formats.bloscpack.header import HEADER_BYTES, LEAST_CHUNK, Header
from ingot.formats.bloscpack.metadata import HEAD_BYTES, MetadataHead
from ingot.formats.bloscpack.offsets import ChunkRow
from ingot.stores.store import Extent, Store

__all__ = ["BloscpackFile"]

# One read of this length has all that comes before the chunks of most files.
_WINDOW: Final = 1 << 16
_MOST_DECODED: Final = max(LARGEST_EXPANSION.values())


@dataclass(frozen=True, slots=True, eq=False)
class BloscpackFile:
    """One state of a file.

    >>> from ingot.stores import MemoryStore
    >>> empty = Header(has_offsets=False, checksum="none").pack() + ChunkHeader().pack()
    >>> file = BloscpackFile.read(MemoryStore({"a.blp": empty}), "a.blp")
    >>> file.header.nchunks, file.row.payload, file.end
    (1, 0, 48)
    """

    header: Header
    section: MetadataHead | None
    """The head of the metadata section, if there is one."""
    value: Any
    """The value of the metadata; None without a section."""
    row: ChunkRow
    size: int
    """The bytes of the whole file."""
    last: ChunkHeader | None = field(default=None, repr=False)
    """The header of the last chunk: how it is compressed. None without chunks."""
    evidence: tuple[tuple[int, bytes], ...] = field(default=(), repr=False)
    """The bytes that say all of this, with their places; none where chunks were walked over."""

    @property
    def begin(self) -> int:
        """The place of the first chunk."""
        section = 0 if self.section is None else self.section.section_bytes
        return self.header.header_bytes + section + self.header.table_bytes

    @property
    def end(self) -> int:
        """The first byte behind the last chunk and its digest; what follows has no meaning."""
        if not len(self.row):
            return self.begin
        return int(self.row.start[-1] + self.row.cbytes[-1]) + self.header.digest_bytes

    @classmethod
    def read(cls, store: Store, key: str) -> "BloscpackFile":
        """Return what the file with that key holds; errors name the file."""
        head = store.read([Extent(key, 0, _WINDOW)])[0] if key else None
        if head is None:
            raise NotFoundError(f"{store.location}: no {key or 'file'}")
        # A file that ends inside the window needs no look at its size.
        size = len(head) if len(head) < _WINDOW else store.size(key)
        if size is None:
            raise NotFoundError(f"{store.location}: no {key}")

        def read(start: int, length: int) -> bytes:
            (found,) = store.read([Extent(key, start, length)])
            if found is None:
                raise NotFoundError(f"{store.location}: no {key}")
            return found

        try:
            return cls.parse(read, size, head)
        except IngotError as error:
            error.add_note(f"in {key!r} of {store.location}")
            raise

    def is_current(self, store: Store, key: str) -> bool:
        """Return whether the file with that key still says the same, byte for byte.

        False says nothing where there is no evidence.
        """
        if not self.evidence or store.size(key) != self.size:
            return False
        return all(
            store.read([Extent(key, start, len(data))]) == [data] for start, data in self.evidence
        )

    @classmethod
    def parse(cls, read: offsets.Read, size: int, head: bytes | None = None) -> "BloscpackFile":
        """Return what a file of `size` bytes holds; `head` are its first bytes, if known."""
        return _FileReader(read, read(0, _WINDOW) if head is None else head, size).file()


class _FileReader:
    """Reads one file; what lies in its first bytes is read once."""

    __slots__ = ("_head", "_last", "_read", "_size")

    def __init__(self, read: offsets.Read, head: Buffer, size: int) -> None:
        self._read = read
        self._head = memoryview(head)
        self._size = size
        # The first bytes of the last chunk, and where they are.
        self._last: tuple[int, bytes] | None = None

    def file(self) -> BloscpackFile:
        header = Header.parse(self._head[:HEADER_BYTES], self._size)
        section, value = None, None
        behind = header.header_bytes
        if header.has_metadata:
            section = MetadataHead.parse(self._bytes(behind, HEAD_BYTES), self._size - behind)
            document = self._bytes(behind + HEAD_BYTES, section.stored)
            digest = self._bytes(behind + section.digest_start, section.digest_bytes)
            value = section.decode(document, digest)
            header.check(self._size, section.section_bytes)
            behind += section.section_bytes
        row, last = self._row(header, behind)
        evidence: tuple[tuple[int, bytes], ...] = ()
        front = behind + header.nchunks * offsets.ENTRY_BYTES
        if self._last is not None and front <= len(self._head):
            evidence = (0, bytes(self._head[:front])), self._last
        if last is None and len(row):
            last = self._header_at(int(row.start[-1]), len(row) - 1, header)
        found = BloscpackFile(header, section, value, row, self._size, last, evidence)
        if header.version == 1 and len(row) == 1:
            self._check_trailer(found)
        return found

    def _row(self, header: Header, behind: int) -> tuple[ChunkRow, ChunkHeader | None]:
        """Return the chunks, and the header of the last one if it was read for that."""
        begin = behind + header.table_bytes
        starts = None
        if header.has_offsets:
            table = self._bytes(behind, header.nchunks * offsets.ENTRY_BYTES)
            starts = offsets.parse(table, header.nchunks)
            if not offsets.check(starts, begin, self._size, header.digest_bytes):
                starts = None
        if starts is not None and header.payload is not None:
            return self._row_of(starts, header)
        row = offsets.walk(self._bytes, header, begin, self._size)
        if starts is not None and (starts != row.start).any():
            place = int(np.flatnonzero(starts != row.start)[0])
            raise CorruptionError(
                f"Bloscpack offsets: entry {place} is {starts[place]}, "
                f"the chunk starts at {row.start[place]}"
            )
        return row, None

    def _row_of(
        self, starts: NDArray[np.int64], header: Header
    ) -> tuple[ChunkRow, ChunkHeader | None]:
        """Return the chunks that a table names; only the last one is looked at."""
        last = None
        count = len(starts)
        nbytes = np.full(count, header.chunk_size, np.int64)
        cbytes = np.empty(count, np.int64)
        if count:
            place = int(starts[-1])
            first = self._bytes(place, min(EXTENDED_HEADER_BYTES, self._size - place))
            self._last = place, bytes(first)
            np.subtract(starts[1:], starts[:-1] + header.digest_bytes, out=cbytes[:-1])
            nbytes[-1] = header.last_chunk
            try:
                last = self._header_of(first, place, count - 1, header)
            except (FormatError, UnsupportedError) as error:
                raise CorruptionError(
                    f"Bloscpack offsets: entry {count - 1} is {place}, no chunk starts there: "
                    f"{error}"
                ) from None
            cbytes[-1] = last.cbytes
            if last.nbytes != header.last_chunk:
                raise CorruptionError(
                    f"Bloscpack header: last_chunk claims {header.last_chunk} bytes, "
                    f"the last chunk holds {last.nbytes}"
                )
        if count and max(header.chunk_size, header.last_chunk) > cbytes.min() * _MOST_DECODED:
            self._check_claims(nbytes, cbytes, header)
        row = ChunkRow(starts, cbytes, nbytes)
        self._compare_near(row)
        return row, last

    def _check_claims(
        self, nbytes: NDArray[np.int64], cbytes: NDArray[np.int64], header: Header
    ) -> None:
        """Raise `CorruptionError` where the stored bytes of a chunk cannot hold what it claims."""
        short = np.flatnonzero(nbytes > cbytes * _MOST_DECODED)
        if len(short):
            raise CorruptionError(
                f"Bloscpack header: chunk_size claims {header.chunk_size} bytes, "
                f"the {cbytes[short[0]]} bytes of chunk {short[0]} cannot hold them"
            )

    def _compare_near(self, row: ChunkRow) -> None:
        """Compare a table with the headers of those chunks that were read with the front.

        What the others say is compared when they are decoded.
        """
        near = row.start[: int(row.start.searchsorted(len(self._head) - LEAST_CHUNK, "right"))]
        if not len(near):
            return
        head = np.frombuffer(self._head, np.uint8)
        fields = head[near[:, None] + np.arange(4, LEAST_CHUNK)].view("<i4")
        for name, column, due in (("nbytes", 0, row.nbytes), ("cbytes", 2, row.cbytes)):
            other = np.flatnonzero(fields[:, column] != due[: len(near)])
            if len(other):
                place = int(other[0])
                raise CorruptionError(
                    f"Bloscpack offsets: entry {place} is {near[place]}; the chunk there has "
                    f"{name} {fields[place, column]}, {due[place]} is due"
                )

    def _header_at(self, start: int, number: int, header: Header) -> ChunkHeader:
        first = self._bytes(start, min(EXTENDED_HEADER_BYTES, self._size - start))
        return self._header_of(first, start, number, header)

    def _header_of(self, first: Buffer, start: int, number: int, header: Header) -> ChunkHeader:
        try:
            return offsets.chunk_header(first, self._size - start, header.digest_bytes)
        except IngotError as error:
            error.add_note(f"in chunk {number}, at byte {start}")
            raise

    def _check_trailer(self, file: BloscpackFile) -> None:
        """Check the trailer that Ingot adds to the chunk files of bcolz, where there is one."""
        start, end = int(file.row.start[0]), file.end
        if bytes(self._bytes(end, len(trailer.MAGIC))) != trailer.MAGIC:
            return
        found = trailer.parse(self._bytes(end, self._size - end))
        chunk = self._bytes(start, end - start)
        found.check(chunk, ChunkHeader.parse(chunk), found.number, found.identity)

    def _bytes(self, start: int, length: int) -> memoryview:
        """Return bytes of the file; fewer where it ends earlier."""
        if start + length <= len(self._head):
            return self._head[start : start + length]
        return memoryview(self._read(start, length))

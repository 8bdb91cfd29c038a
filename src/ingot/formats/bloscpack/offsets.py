"""Where the chunks of a Bloscpack file lie: the table of offsets, and the walk over the chunks.

The table has an i64 for each chunk, the place of its first byte in the file, and spare entries of
-1. Chunks stand one behind the other, each with its digest, and bloscpack reads them so without a
look at the table. A table that says anything else is refused.

The walk reads the header of every chunk from the first to the last. It is the only way where there
are no offsets, and where an interrupted writer left entries of -1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.blosc.header import EXTENDED_HEADER_BYTES, ChunkHeader
from ingot.codecs.codec import Buffer
from ingot.errors import CorruptionError, IngotError
from ingot.formats.bloscpack.header import LEAST_CHUNK, UNKNOWN, Header

__all__ = ["ENTRY_BYTES", "UNUSED", "ChunkRow", "check", "chunk_header", "pack", "parse", "walk"]

ENTRY_BYTES: Final = 8
"""The bytes of an entry of the table."""

UNUSED: Final = -1
"""An entry that says nothing."""
# Most headers lie far apart; where chunks are small, one read has many of them.
_WINDOW: Final = 4096
_LONG_WINDOW: Final = 1 << 18

Read = Callable[[int, int], Buffer]
"""Returns bytes of the file, given their start and their number; fewer at its end."""


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRow:
    """The chunks of a file, one behind the other, without their digests.

    >>> row = ChunkRow(np.array([32, 100]), np.array([64, 40]), np.array([800, 300]))
    >>> row.uniform(), len(row), row.payload
    ((800, 300), 2, 1100)
    """

    start: NDArray[np.int64]
    """The first byte of each chunk in the file."""
    cbytes: NDArray[np.int64]
    """The stored bytes of each chunk."""
    nbytes: NDArray[np.int64]
    """The decoded bytes of each chunk."""

    def __len__(self) -> int:
        return len(self.start)

    @property
    def payload(self) -> int:
        """The decoded bytes of all chunks."""
        return int(self.nbytes.sum())

    def uniform(self) -> tuple[int, int] | None:
        """Return the decoded bytes of every chunk but the last, and of the last.

        None when the chunks before the last differ, or are shorter than the last.
        """
        if not len(self):
            return 0, 0
        first, last = int(self.nbytes[0]), int(self.nbytes[-1])
        if last > first or (self.nbytes[:-1] != first).any():
            return None
        return first, last


def parse(data: Buffer, count: int) -> NDArray[np.int64]:
    """Return the first `count` entries of a table.

    >>> parse(pack([32, 40], spare=3), 2)
    array([32, 40])
    """
    if len(data) < count * ENTRY_BYTES:
        raise CorruptionError(
            f"Bloscpack offsets: {count} entries need {count * ENTRY_BYTES} bytes, "
            f"{len(data)} are stored"
        )
    return np.frombuffer(data, "<i8", count).astype(np.int64)


def pack(starts: Sequence[int] | NDArray[np.int64], spare: int = 0) -> bytes:
    """Return a table of chunks that start at `starts`, with `spare` entries behind them.

    >>> pack([32], spare=1).hex()
    '2000000000000000ffffffffffffffff'
    """
    entries = np.asarray(starts, "<i8").tobytes()
    return entries + UNUSED.to_bytes(ENTRY_BYTES, "little", signed=True) * spare


def check(starts: NDArray[np.int64], begin: int, size: int, digest_bytes: int) -> bool:
    """Return whether a table says where all chunks lie; False when an entry says nothing.

    `begin` is the first byte behind the table, `size` that of the file. Raises `CorruptionError`
    for a table that the chunks of no file can have: an entry that is no first byte of a chunk, two
    that are swapped or the same.

    >>> check(np.array([32, 100]), 32, 200, 4), check(np.array([32, -1]), 32, 200, 4)
    (True, False)
    >>> check(np.array([32, 32]), 32, 200, 4)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: Bloscpack offsets: entry 1 is 32, the chunk before it starts at 32
    """
    if not len(starts):
        return True
    least = LEAST_CHUNK + digest_bytes
    # What a damaged entry is must not overflow when it is subtracted from another.
    inside = starts.min() >= 0 and starts.max() <= size - least
    if inside and starts[0] == begin and not (starts[1:] - starts[:-1] < least).any():
        return True
    # Something is wrong, or an entry says nothing.
    bad = (starts < UNUSED) | (starts > size)
    if bad.any():
        place = int(np.flatnonzero(bad)[0])
        raise CorruptionError(
            f"Bloscpack offsets: entry {place} is {starts[place]}, the file has {size} bytes"
        )
    if (starts == UNUSED).any():
        return False
    if starts[0] != begin:
        raise CorruptionError(
            f"Bloscpack offsets: entry 0 is {starts[0]}, the first chunk starts at {begin}"
        )
    near = np.flatnonzero(np.diff(starts) < least)
    if len(near):
        place = int(near[0]) + 1
        raise CorruptionError(
            f"Bloscpack offsets: entry {place} is {starts[place]}, the chunk before it starts at "
            f"{starts[place - 1]}"
        )
    if starts[-1] > size - least:
        raise CorruptionError(
            f"Bloscpack offsets: entry {len(starts) - 1} is {starts[-1]}, a chunk with its digest "
            f"needs {least} bytes, the file has {size}"
        )
    return True


def chunk_header(data: Buffer, room: int, digest_bytes: int) -> ChunkHeader:
    """Return the header of a chunk, given its first bytes and the bytes up to the end of the file.

    >>> chunk_header(ChunkHeader(cbytes=16).pack(), 19, 4)
    Traceback (most recent call last):
    ingot.errors.CorruptionError: Bloscpack chunk: its digest has 4 bytes, 3 are stored
    """
    claim = int.from_bytes(data[12:16], "little", signed=True)
    stored = claim if LEAST_CHUNK <= claim <= room else room
    header = ChunkHeader.parse(data, stored=stored)
    header.check_decodable()
    if room - header.cbytes < digest_bytes:
        raise CorruptionError(
            f"Bloscpack chunk: its digest has {digest_bytes} bytes, "
            f"{room - header.cbytes} are stored"
        )
    return header


def walk(read: Read, header: Header, begin: int, size: int) -> ChunkRow:
    """Return the chunks of a file of `size` bytes, of which the first starts at `begin`.

    Without a number of chunks in the header, they reach to the end of the file. Sizes that the
    header does have are compared with those of the chunks.
    """
    gap, at, window, origin = header.digest_bytes, begin, memoryview(b""), begin
    # The stored and the decoded bytes of chunks: of many, and of single ones behind them.
    parts, singles = [np.zeros((0, 2), np.int64)], list[tuple[int, int]]()
    count, most = 0, size if header.nchunks == UNKNOWN else header.nchunks
    while count < most and (header.nchunks != UNKNOWN or at < size):
        place = at - origin
        if place + EXTENDED_HEADER_BYTES > len(window) and origin + len(window) < size:
            # Where chunks are small, the next window has more of them.
            is_dense = count and at - origin <= len(window)
            window, origin = memoryview(read(at, _LONG_WINDOW if is_dense else _WINDOW)), at
            place = 0
        # The kernel walks as far as all is right. The first error is found below.
        found = native.walk_chunks(window[place:], size - at, gap, most - count)
        if found:
            parts += [np.array(singles, np.int64).reshape(-1, 2), _sizes(found)]
            singles.clear()
            count += len(parts[-1])
            at += int(parts[-1][:, 0].sum()) + gap * len(parts[-1])
            continue
        try:
            first = window[place : place + EXTENDED_HEADER_BYTES]
            chunk = chunk_header(first, size - at, gap)
        except IngotError as error:
            error.add_note(f"in chunk {count}, at byte {at}")
            raise
        singles.append((chunk.cbytes, chunk.nbytes))
        count += 1
        at += chunk.cbytes + gap
    parts.append(np.array(singles, np.int64).reshape(-1, 2))
    cbytes, nbytes = np.ascontiguousarray(np.concatenate(parts).T)
    row = ChunkRow(begin + np.cumsum(cbytes + gap) - cbytes - gap, cbytes, nbytes)
    _compare(row, header)
    return row


def _sizes(data: bytes) -> NDArray[np.int64]:
    return np.frombuffer(data, "<i8").reshape(-1, 2).astype(np.int64)


def _compare(row: ChunkRow, header: Header) -> None:
    """Raise `CorruptionError` when sizes in the header are not those of the chunks."""
    if not len(row):
        return
    if header.last_chunk not in (UNKNOWN, int(row.nbytes[-1])):
        raise CorruptionError(
            f"Bloscpack header: last_chunk claims {header.last_chunk} bytes, "
            f"the last chunk holds {row.nbytes[-1]}"
        )
    if header.chunk_size != UNKNOWN:
        other = np.flatnonzero(row.nbytes[:-1] != header.chunk_size)
        if len(other):
            raise CorruptionError(
                f"Bloscpack header: chunk_size claims {header.chunk_size} bytes, "
                f"chunk {other[0]} holds {row.nbytes[other[0]]}"
            )

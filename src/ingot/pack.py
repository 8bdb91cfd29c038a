"""Files packed as Bloscpack files, and unpacked again, in memory that does not grow with them.

Files and pipes are given as open descriptors. From one regular file to another, the native kernel
does the work in one call: its threads read, code and write chunks by themselves. Everything else
(pipes, and all of it with the Python kernel) goes chunk by chunk through threads of Python, in
order.
"""

import itertools
import os
import stat
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot import blosc, native
from ingot.blosc.chunk import CODECS, FILTERS
from ingot.blosc.header import HEADER_BYTES as CHUNK_HEADER_BYTES
from ingot.codecs.checksums import digest
from ingot.errors import ArgumentError, CorruptionError, IngotError, LimitError
from ingot.formats import trailer
from ingot.formats.bloscpack import metadata as metadata_section
from ingot.formats.bloscpack import offsets
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS, HEADER_BYTES, LARGEST_CHUNK, UNKNOWN, Header
from ingot.formats.bloscpack.metadata import HEAD_BYTES, MetadataHead
from ingot.formats.bloscpack.offsets import ENTRY_BYTES, UNUSED
from ingot.options import Options
from ingot.stores.local.files import read_at, write_at

__all__ = [
    "PackedFile",
    "Packing",
    "Sizes",
    "pack",
    "pack_spooled",
    "pack_stream",
    "read_packed",
    "read_pieces",
    "unpack",
    "unpack_stream",
    "verify",
]

Progress = Callable[[int], object]
"""Called now and then with the number of plain bytes that are done."""

Item = TypeVar("Item")
Result = TypeVar("Result")

_V1_BYTES: Final = 16
_PIECE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Packing:
    """How a file is packed.

    >>> Packing(codec="zstd", level=3, checksum="sha256").chunk_size
    1048576
    >>> Packing(level=10)
    Traceback (most recent call last):
    ingot.errors.ArgumentError: level is 10, it lies in 0..9
    """

    codec: str = "lz4"
    level: int = 5
    filter: str = "shuffle"
    typesize: int = 8
    chunk_size: int = 1 << 20
    checksum: str = "adler32"
    offsets: bool = True
    metadata: Any = None
    """A JSON value; None stands for no metadata."""

    def __post_init__(self) -> None:
        choices = (
            ("codec", CODECS),
            ("filter", ("none", *FILTERS)),
            ("checksum", tuple(CHECKSUMS)),
        )
        for name, known in choices:
            if getattr(self, name) not in known:
                raise ArgumentError(
                    f"{name} is {getattr(self, name)!r}, known are {', '.join(known)}"
                )
        ranges = (("level", 0, 9), ("typesize", 1, 255), ("chunk_size", 1, LARGEST_CHUNK))
        for name, low, high in ranges:
            if not low <= getattr(self, name) <= high:
                raise ArgumentError(f"{name} is {getattr(self, name)}, it lies in {low}..{high}")

    def encode(self, plain: bytes) -> tuple[bytes, int]:
        """Return a chunk with its digest, and how many bytes it stands for."""
        filters = () if self.filter == "none" else (self.filter,)
        chunk = blosc.compress(
            plain, typesize=self.typesize, codec=self.codec, level=self.level, filters=filters
        )
        return chunk + digest(self.checksum, chunk), len(plain)

    def head(self, starts: NDArray[np.int64], size: int) -> bytes:
        """Return all that stands before the chunks, whose places count from the first of them."""
        header = Header.of_payload(
            size,
            self.chunk_size,
            checksum=self.checksum,
            typesize=self.typesize,
            has_metadata=self.metadata is not None,
            has_offsets=self.offsets,
        )
        section = self._section()
        begin = HEADER_BYTES + len(section) + header.table_bytes
        table = offsets.pack(starts + begin, header.max_app_chunks) if self.offsets else b""
        return header.pack() + section + table

    def stream_head(self) -> bytes:
        """Return what stands before chunks of an unknown number."""
        header = Header(
            has_offsets=False,
            has_metadata=self.metadata is not None,
            checksum=self.checksum,
            typesize=self.typesize,
            chunk_size=self.chunk_size,
            last_chunk=UNKNOWN,
            nchunks=UNKNOWN,
        )
        return header.pack() + self._section()

    def _section(self) -> bytes:
        return b"" if self.metadata is None else metadata_section.pack(self.metadata)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many bytes a file has, packed and plain, and how many lie behind its end."""

    packed: int
    plain: int
    behind: int = 0

    @property
    def ratio(self) -> float:
        """How many times smaller the packed file is.

        >>> Sizes(100, 250).ratio
        2.5
        """
        return self.plain / self.packed if self.packed else 0.0


def pack(
    source: int,
    target: int,
    packing: Packing,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Sizes:
    """Pack a file or a pipe into an empty regular file."""
    options = options or Options()
    threads = _workers(options, packing.chunk_size)
    facts = os.fstat(source)
    # Files of the system claim no bytes. A file may be read up to a place already.
    is_sized = stat.S_ISREG(facts.st_mode) and facts.st_size > 0
    if not is_sized or os.lseek(source, 0, os.SEEK_CUR):
        return _pack_unsized(source, target, packing, threads, progress)
    size = facts.st_size
    count = max(1, -(-size // packing.chunk_size))
    # Everything but the offsets themselves is known before the first chunk is written.
    begin = len(packing.head(np.zeros(count, np.int64), size))
    stored = native.pack_file(
        source,
        target,
        size,
        begin,
        packing.chunk_size,
        (packing.codec, packing.level, packing.filter, packing.typesize, 0),
        packing.checksum,
        threads,
        progress,
    )
    if stored is None:
        pieces = _pread_pieces(source, size, packing.chunk_size)
        bounds = _write_chunks(pieces, target, begin, packing, threads, progress)
    else:
        bounds = np.frombuffer(stored, "<i8")
    if os.pread(source, 1, size):
        raise CorruptionError(f"the file that is packed has become longer than {size} bytes")
    write_at(target, 0, packing.head(bounds[:-1] - begin, size))
    return Sizes(int(bounds[-1]), size)


def pack_stream(
    source: int,
    target: int,
    packing: Packing,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Sizes:
    """Pack a file or a pipe into any other in one pass: without offsets and number of chunks."""
    threads = _workers(options or Options(), packing.chunk_size)
    head = packing.stream_head()
    _write_all(target, head)
    packed, plain = len(head), 0
    pieces = read_pieces(source, packing.chunk_size)
    for chunk, size in _in_order(packing.encode, pieces, threads):
        _write_all(target, chunk)
        packed += len(chunk)
        plain += size
        if progress is not None:
            progress(plain)
    return Sizes(packed, plain)


def pack_spooled(
    source: int,
    target: int,
    packing: Packing,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Sizes:
    """Pack a file or a pipe into a temporary file, and copy that to a pipe."""
    with tempfile.TemporaryFile() as spool:
        sizes = pack(source, spool.fileno(), packing, options=options, progress=progress)
        for start in range(0, sizes.packed, _PIECE):
            _write_all(target, read_at(spool.fileno(), start, _PIECE))
    return sizes


def _pack_unsized(
    source: int, target: int, packing: Packing, threads: int, progress: Progress | None
) -> Sizes:
    """Pack a pipe: how long the offsets are is known at the end, and then the chunks are moved."""
    sizes: list[int] = []

    def pieces() -> Iterator[bytes]:
        for piece in read_pieces(source, packing.chunk_size):
            sizes.append(len(piece))
            yield piece

    bounds = _write_chunks(pieces(), target, 0, packing, threads, progress)
    head = packing.head(bounds[:-1], sum(sizes))
    end = int(bounds[-1])
    for start in reversed(range(0, end, _PIECE)):
        moved = read_at(target, start, min(_PIECE, end - start))
        write_at(target, start + len(head), moved)
    write_at(target, 0, head)
    return Sizes(len(head) + end, sum(sizes))


def _write_chunks(
    pieces: Iterable[bytes],
    target: int,
    begin: int,
    packing: Packing,
    threads: int,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """Write chunks by position; return where they start, and where the last one ends."""
    bounds, done = [begin], 0
    for chunk, size in _in_order(packing.encode, pieces, threads):
        write_at(target, bounds[-1], chunk)
        bounds.append(bounds[-1] + len(chunk))
        done += size
        if progress is not None:
            progress(done)
    return np.array(bounds, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class PackedFile:
    """A packed regular file: where its chunks lie, and where their bytes belong."""

    file: BloscpackFile
    stored: NDArray[np.int64]
    """Where each chunk starts in the file, and where the last one ends, digests included."""
    plain: NDArray[np.int64]
    """Where the bytes of each chunk start in the plain file, and where the last ones end."""
    behind: int
    """The bytes behind the end that mean nothing."""

    @property
    def sizes(self) -> Sizes:
        """The sizes of the file."""
        return Sizes(int(self.stored[-1]), int(self.plain[-1]), self.behind)


def read_packed(source: int) -> PackedFile:
    """Return what a packed regular file holds, without decoding its chunks.

    Every claim is compared with the size of the file.
    """
    size = os.fstat(source).st_size
    file = BloscpackFile.parse(partial(read_at, source), size)
    plain = np.concatenate((np.zeros(1, np.int64), np.cumsum(file.row.nbytes)))
    # The trailer of a chunk file of bcolz was checked when it was read.
    is_trailed = read_at(source, file.end, len(trailer.MAGIC)) == trailer.MAGIC
    is_trailed = is_trailed and file.header.version == 1 and len(file.row) == 1
    behind = 0 if is_trailed else size - file.end
    return PackedFile(file, np.append(file.row.start, file.end), plain, behind)


def unpack(
    source: int,
    target: int,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Sizes:
    """Unpack a regular file into an empty regular file."""
    return _unpack_file(source, target, options or Options(), progress)


def verify(
    source: int, *, options: Options | None = None, progress: Progress | None = None
) -> Sizes:
    """Verify a packed file or pipe: every digest is compared, every chunk decoded."""
    options = options or Options()
    if stat.S_ISREG(os.fstat(source).st_mode):
        return _unpack_file(source, None, options, progress)
    return _unpack_through(source, None, options, progress)


def unpack_stream(
    source: int,
    target: int,
    *,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Sizes:
    """Unpack a file or a pipe into any other, in order."""
    return _unpack_through(source, target, options or Options(), progress)


def _unpack_file(
    source: int, target: int | None, options: Options, progress: Progress | None
) -> Sizes:
    packed = read_packed(source)
    header = packed.file.header
    largest = int(np.diff(packed.plain).max(initial=0))
    _check_limit(largest, options)
    threads = _workers(options, largest)
    done = native.unpack_file(
        source,
        target,
        packed.stored.astype("<i8"),
        packed.plain.astype("<i8"),
        header.checksum,
        threads,
        progress,
    )
    if not done:
        stored = _pread_chunks(source, packed)
        at = 0
        for plain in _in_order(_Decode(header), stored, threads):
            if target is not None:
                write_at(target, at, plain)
            at += len(plain)
            if progress is not None:
                progress(at)
    return packed.sizes


def _unpack_through(
    source: int, target: int | None, options: Options, progress: Progress | None
) -> Sizes:
    """Unpack what is read and written from the front to the end."""
    reader = _PipeReader(source)
    header, starts = _read_front(reader, options.limits.window_bytes)
    most = options.limits.chunk_bytes
    # What the header does not say, the chunks say one by one.
    is_known = header.version > 1 and header.chunk_size != UNKNOWN and header.nchunks > 1
    threads = _workers(options, header.chunk_size if is_known else min(most, LARGEST_CHUNK))
    plain_bytes = 0
    chunks = _read_chunks(reader, header, starts, most)
    for plain in _in_order(_Decode(header), chunks, threads):
        if target is not None:
            _write_all(target, plain)
        plain_bytes += len(plain)
        if progress is not None:
            progress(plain_bytes)
    end = reader.at
    return Sizes(end, plain_bytes, reader.drain())


class _Decode:
    """Verifies and decodes stored chunks of one file, each given with its number."""

    def __init__(self, header: Header) -> None:
        self._header = header

    def __call__(self, numbered: tuple[int, int, bytes]) -> bytes:
        number, at, stored = numbered
        header = self._header
        try:
            return self._decode(number, memoryview(stored), header)
        except IngotError as error:
            error.add_note(f"in chunk {number} at {at}")
            raise

    def _decode(self, number: int, stored: memoryview, header: Header) -> bytes:
        size = len(stored) - header.digest_bytes
        chunk = stored[: max(size, 0)]
        parsed = offsets.chunk_header(
            chunk[: 2 * CHUNK_HEADER_BYTES], len(stored), header.digest_bytes
        )
        if parsed.cbytes != size:
            raise CorruptionError(
                f"cbytes is {parsed.cbytes}, the place of what follows makes it {size}"
            )
        last = number == header.nchunks - 1
        claim = header.last_chunk if last else header.chunk_size
        unsure = header.nchunks == UNKNOWN and parsed.nbytes <= claim
        if claim not in (UNKNOWN, parsed.nbytes) and not unsure:
            raise CorruptionError(
                f"nbytes is {parsed.nbytes}, the header of the file makes it {claim}"
            )
        fact = digest(header.checksum, chunk)
        if fact != bytes(stored[size:]):
            raise CorruptionError(
                f"the {header.checksum} is {fact.hex()}, {bytes(stored[size:]).hex()} is stored"
            )
        return blosc.decompress(bytes(chunk))


def _read_front(reader: "_PipeReader", most: int) -> tuple[Header, NDArray[np.int64]]:
    """Return the header of a pipe and its offsets; all that lies before the chunks is verified.

    Of the offsets, `most` bytes are kept to be compared with the chunks.
    """
    first = reader.take(_V1_BYTES)
    if first[4:5] != b"\x01":
        first += reader.take(HEADER_BYTES - _V1_BYTES)
    header = Header.parse(first)
    if header.has_metadata:
        section = MetadataHead.parse(reader.take(HEAD_BYTES))
        document = reader.take(section.stored)
        reader.skip(section.room - section.stored)
        section.decode(document, reader.take(section.digest_bytes))
    kept = reader.take(min(max(header.nchunks, 0) * ENTRY_BYTES, header.table_bytes, most))
    reader.skip(header.table_bytes - len(kept))
    return header, offsets.parse(kept, len(kept) // ENTRY_BYTES)


class _PipeReader:
    """Reads a pipe from its front. Memory is taken for bytes that have come, not for claims."""

    def __init__(self, file: int) -> None:
        self._file = file
        self.at = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes; fewer at the end."""
        data = b"".join(self._parts(count))
        self.at += len(data)
        return data

    def skip(self, count: int) -> None:
        """Leave bytes out."""
        self.at += sum(map(len, self._parts(count)))

    def drain(self) -> int:
        """Leave all out that is left; return how many bytes it was."""
        at = self.at
        while self.take(_PIECE):
            pass
        return self.at - at

    def _parts(self, count: int) -> Iterator[bytes]:
        while count:
            part = os.read(self._file, min(count, _PIECE))
            if not part:
                return
            yield part
            count -= len(part)


def _read_chunks(
    reader: _PipeReader, header: Header, starts: NDArray[np.int64], most: int
) -> Iterator[tuple[int, int, bytes]]:
    """Yield the chunks of a pipe with their digests: number, place, bytes.

    `starts` are offsets that they have; -1 says nothing.
    """
    nbytes = header.chunk_size
    for number in itertools.count():
        at = reader.at
        if number == header.nchunks:
            return
        if number < len(starts) and starts[number] not in (UNUSED, at):
            raise CorruptionError(
                f"Bloscpack offsets: entry {number} is {starts[number]}, the chunk starts at {at}"
            )
        first = reader.take(CHUNK_HEADER_BYTES)
        if not first and header.nchunks == UNKNOWN:
            return
        if header.nchunks == UNKNOWN and nbytes != header.chunk_size != UNKNOWN:
            raise CorruptionError(
                f"Bloscpack header: chunk_size claims {header.chunk_size} bytes, "
                f"chunk {number - 1} holds {nbytes}"
            )
        nbytes = int.from_bytes(first[4:8], "little", signed=True)
        claim = int.from_bytes(first[12:16], "little", signed=True)
        if nbytes > most:
            raise LimitError(
                f"Bloscpack chunk {number} at {at}: {nbytes} bytes, the limit is {most}"
            )
        rest = reader.take(max(0, claim - CHUNK_HEADER_BYTES) + header.digest_bytes)
        if len(first) + len(rest) < max(claim, CHUNK_HEADER_BYTES) + header.digest_bytes:
            raise CorruptionError(
                f"Bloscpack chunk {number} at {at}: {claim} bytes and a digest of "
                f"{header.digest_bytes} are claimed, {len(first) + len(rest)} are stored"
            )
        yield number, at, first + rest


def _pread_chunks(source: int, packed: PackedFile) -> Iterator[tuple[int, int, bytes]]:
    for number, (start, end) in enumerate(itertools.pairwise(packed.stored.tolist())):
        yield number, start, read_at(source, start, end - start)


def _pread_pieces(source: int, size: int, chunk_size: int) -> Iterator[bytes]:
    """Yield the pieces of a regular file; one, if it is empty."""
    for start in range(0, max(size, 1), chunk_size):
        wanted = min(chunk_size, size - start)
        piece = read_at(source, start, wanted)
        if len(piece) < wanted:
            raise CorruptionError(
                f"the file that is packed has become shorter: {wanted} bytes at {start} are wanted"
            )
        yield piece


def read_pieces(source: int, chunk_size: int) -> Iterator[bytes]:
    """Yield the pieces of a pipe; one, if it is empty."""
    reader = _PipeReader(source)
    piece = reader.take(chunk_size)
    yield piece
    while len(piece) == chunk_size:
        piece = reader.take(chunk_size)
        if piece:
            yield piece


def _in_order(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int
) -> Iterator[Result]:
    """Yield what threads make of items, in their order; few are under way at a time."""
    iterator = iter(items)
    # Most files are small, and need no threads.
    ahead = list(itertools.islice(iterator, 2))
    if threads <= 1 or len(ahead) < 2:
        yield from map(work, itertools.chain(ahead, iterator))
        return
    pool = ThreadPoolExecutor(threads)
    under_way: deque[Future[Result]] = deque()
    try:
        for item in itertools.chain(ahead, iterator):
            under_way.append(pool.submit(work, item))
            if len(under_way) > threads:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _workers(options: Options, chunk_size: int) -> int:
    """Return how many chunks are worked on at a time: large ones are fewer, to bound memory."""
    threads = options.thread_count()
    window = options.limits.window_bytes // (2 * max(chunk_size, 1))
    return max(1, min(threads, threads // 2 + window))


def _check_limit(chunk_size: int, options: Options) -> None:
    if chunk_size > options.limits.chunk_bytes:
        raise LimitError(
            f"Bloscpack header: chunks of {chunk_size} bytes, "
            f"the limit is {options.limits.chunk_bytes}"
        )


def _write_all(file: int, data: bytes) -> None:
    """Write to a file or a pipe, from where it stands on."""
    view = memoryview(data)
    while len(view):
        view = view[os.write(file, view) :]

"""The array of a Bloscpack file: where its chunks lie, and the commits that change the file.

Chunks are runs of the payload, the bytes of all items in C or Fortran order. In the file they stand
one behind the other, since bloscpack reads them so. An array file describes its array in the
metadata. Every other file is a plain one: an array of bytes whose attributes are the metadata.

A change makes a new file, which replaces the old one by a rename. Chunks that do not change are
copied as they are. Two changes are made in place, by patches that go through the journal of the
store: other attributes, where the metadata section has room for them, and rows that are appended.
An append tops up the last chunk and needs as many spare offsets as it has new chunks. What lies
behind the old end of the file is written first, outside of the journal.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain as chained
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot.blosc.header import CODECS, MEMCPYED, SHUFFLE, UNSPLIT, ChunkHeader
from ingot.codecs.checksums import Digest, digest
from ingot.codecs.codec import CodecChain, Compressor, Raw
from ingot.codecs.compressors import Blosc
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import shown
from ingot.formats.addresses import ChunkTable
from ingot.formats.bloscpack import metadata, offsets
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.formats.bloscpack.header import CHECKSUMS, LARGEST_CHUNK, VERSION, Header
from ingot.formats.bloscpack.metadata import DESCRIPTION, ArrayDescription
from ingot.formats.bloscpack.offsets import ENTRY_BYTES
from ingot.formats.format import (
    ArrayNode,
    ChunkRun,
    Coords,
    Documents,
    Locations,
    Request,
    as_chunk_run,
)
from ingot.grid import RectilinearAxis
from ingot.schema import ArraySchema, Flat
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Patch,
    Piece,
    Put,
    Store,
    Truncate,
    extend,
    put_pieces,
)

__all__ = ["FILL", "BloscpackMap", "create_array", "design", "open_array"]

FILL: Final = "x_fill"
"""The key of a fill value other than zero in the metadata: the bytes of the item in hexadecimal."""

_CHECKSUM: Final = "adler32"
_CHUNK_BYTES: Final = 1 << 20
_LARGEST_TYPESIZE: Final = 255
# Below this size a new file costs less than the journal.
_SMALLEST_IN_PLACE: Final = 1 << 20
_COPIED: Final = 4 << 20
"""About how many bytes of chunks are copied at a time."""
_BYTE: Final = np.dtype(np.uint8)


@dataclass(slots=True)
class _Kept:
    """A file that was read, or is read when it is needed first."""

    file: BloscpackFile | None = None


@dataclass(frozen=True, slots=True, eq=False)
class BloscpackMap:
    """The chunks of the array in a file.

    A `fresh` file does not exist yet: all of its chunks are still to be staged. `plain` is the
    metadata of a file that describes no array, in a tuple; it is None for an array.
    """

    store: Store
    path: str
    schema: ArraySchema
    plain: tuple[Any] | None = None
    fresh: bool = False
    kept: _Kept = field(default_factory=_Kept, repr=False)
    template: ClassVar[None] = None

    @property
    def documents(self) -> Documents:
        """No key is a document alone: the chunks lie in the same file."""
        return {}

    @property
    def file(self) -> BloscpackFile:
        """The state of the file that the map reads from."""
        kept = self.kept
        if kept.file is None:
            kept.file = BloscpackFile.read(self.store, self.path)
        return kept.file

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where chunks lie, with their digests."""
        numbers = coords[:, 0]
        starts, lengths = self._places()
        if len(numbers) and int(numbers.max()) >= len(starts):
            raise CorruptionError(
                f"{self.path}: no chunk {numbers.max()}, the file has {len(starts)}"
            )
        return Locations((self.path,) * len(numbers), starts[numbers], lengths[numbers])

    def addresses(self) -> ChunkTable:
        """Return where all chunks lie, for the native kernel."""
        starts, lengths = self._places()
        nothing = np.zeros(len(starts), np.uint8)
        return ChunkTable((self.path,), nothing, starts, lengths, nothing)

    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the start and the length of each chunk that holds a part of the array."""
        file = self.file
        lengths = file.row.cbytes + file.header.digest_bytes
        if file.row.nbytes.all():
            return file.row.start, lengths
        filled = np.flatnonzero(file.row.nbytes)
        return file.row.start[filled], lengths[filled]

    def is_current(self, store: Store) -> bool:
        """Return whether `store` has the file in the state that the map was read from."""
        file = self.kept.file
        return file is not None and not self.fresh and file.is_current(store, self.path)

    def reopened(self, store: Store) -> "BloscpackMap":
        """Return the map of the same array in its current state in `store`."""
        return open_array(store, self.path)

    def relocated(self) -> "BloscpackMap":
        """Return the map to use once the commit of the last change is applied."""
        return replace(self, fresh=False, kept=_Kept())

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores chunks."""
        return self.stage_each(sorted(encoded.items()))

    def stage_each(self, encoded: Iterable[tuple[Coords, Buffer | None]]) -> Commit:
        """Return the commit that stores chunks, which are given in the order of their numbers.

        It also stores the shape of the array, where that is another one than in the file.
        """
        images = _Images(encoded)
        if self.fresh:
            return Commit(publish=(self._new_file(images, None),))
        file = self.file
        _chunk_bytes(self.schema)
        if images.following is None and self._is_shape_of(file):
            return Commit()
        changes = self._room(file)
        if changes is not None and _appends(file, images):
            return self._appended(file, images, changes)
        return Commit(publish=(self._new_file(images, file),))

    def resized(self, shape: tuple[int, ...]) -> "tuple[BloscpackMap, Commit]":
        """Return the map of another shape; the commit is that of `stage`, which must follow."""
        _chunk_bytes(self.schema)
        return replace(self, schema=self.schema.resized(shape)), Commit()

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BloscpackMap, Commit]":
        """Return the map with other attributes."""
        plain = None if self.plain is None else (_checked_plain(dict(attrs)),)
        after = replace(self, schema=self.schema.described(attrs), plain=plain)
        if self.fresh:
            return after, Commit(publish=(Put(self.path, after._skeleton()),))
        file = self.file
        changes = None
        if file.section is not None and Feature.PATCH in self.store.features:
            changes = metadata.repack(file.section, after._value())
        if changes is None:
            commit = Commit(publish=(after._new_file(_Images(()), file),))
        else:
            begin = file.header.header_bytes
            edits = (Patch(self.path, begin + start, data) for start, data in changes)
            commit = Commit(publish=tuple(edits))
        return after.relocated(), commit

    def removed(self) -> Commit:
        """Return the commit that removes the file."""
        return Commit(publish=(Delete(self.path),))

    # What a file says

    def _value(self) -> Any:
        """Return the metadata; None for a plain file that has none."""
        return _document(self.schema) if self.plain is None else self.plain[0]

    def _is_shape_of(self, file: BloscpackFile) -> bool:
        described = metadata.parse_description(file.value)
        if described is None:
            return self.schema.nbytes == file.row.payload
        return self.schema.shape == described.shape

    def _header(self) -> Header:
        """Return the header of a new file."""
        schema = self.schema
        stages = schema.chain.compressors
        blosc = next(each for each in stages if isinstance(each, Blosc))
        return Header.of_payload(
            schema.nbytes,
            _chunk_bytes(schema),
            checksum=next((each.kind for each in stages if isinstance(each, Digest)), "none"),
            typesize=blosc.typesize,
            has_metadata=self._value() is not None,
        )

    def _front(self, header: Header, file: BloscpackFile | None) -> bytes:
        """Return what a new file has before the offsets."""
        if not header.has_metadata:
            return header.pack()
        old = None if file is None else file.section
        kind = header.checksum if old is None else old.checksum
        return header.pack() + metadata.pack(self._value(), kind)

    def _skeleton(self, file: BloscpackFile | None = None) -> bytes:
        """Return a new file without its chunks; a file without items has a chunk of 0 bytes."""
        header = self._header()
        front = self._front(header, file)
        if _count(self.schema):
            return front + offsets.pack((), header.table_entries)
        start = len(front) + header.table_bytes
        return front + offsets.pack([start], header.max_app_chunks) + _empty_chunk(header)

    # A new file

    def _new_file(self, images: "_Images", file: BloscpackFile | None) -> Edit:
        """Return the edit that puts a file of new chunks, and of those of `file` for all others."""
        if not _count(self.schema):
            images.finish()
            return Put(self.path, self._skeleton(file))
        header = self._header()
        front = self._front(header, file)
        begin = len(front) + header.table_bytes
        lengths: list[int] = []

        def pieces() -> Iterator[Piece]:
            yield bytes(begin)
            run = images.take_all(header.nchunks)
            if run is not None:
                yield _RunPiece(run, lengths)
            else:
                yield from self._chunks(images, file, header.nchunks, lengths)

        def head() -> bytes:
            starts = begin + np.cumsum([0, *lengths[:-1]])
            return front + offsets.pack(starts, header.max_app_chunks)

        return put_pieces(self.store, self.path, pieces(), head=head)

    def _chunks(
        self, images: "_Images", file: BloscpackFile | None, count: int, lengths: list[int]
    ) -> Iterator[Buffer]:
        """Yield the chunks of a new file in their order, and note how long each of them is."""
        number = 0
        while number < count:
            data = images.take(number)
            if data is not None:
                lengths.append(len(data))
                yield data
                number += 1
                continue
            end = min(count, count if images.following is None else images.following)
            yield from self._copied(file, number, end, lengths)
            number = end
        images.finish()

    def _copied(
        self, file: BloscpackFile | None, first: int, end: int, lengths: list[int]
    ) -> Iterator[bytes]:
        """Yield old chunks as they are stored, some at a time."""
        row = None if file is None else file.row
        if row is None or file is None or end > len(row):
            raise FormatError(f"{self.path}: chunk {first} is not given, and not stored")
        extra = file.header.digest_bytes
        ends = row.start + row.cbytes + extra
        while first < end:
            begin = int(row.start[first])
            until = int(np.searchsorted(ends[first:end], begin + _COPIED, side="right"))
            last = first + max(until, 1)
            length = int(ends[last - 1]) - begin
            (data,) = self.store.read([Extent(self.path, begin, length)])
            if data is None or len(data) != length:
                found = 0 if data is None else len(data)
                raise CorruptionError(
                    f"{self.path}: {length} bytes of chunks at {begin}, {found} are stored"
                )
            lengths += (row.cbytes[first:last] + extra).tolist()
            yield data
            first = last

    # Appending in place

    def _room(self, file: BloscpackFile) -> list[tuple[int, bytes]] | None:
        """Return what changes in the metadata section by an append in place; None for a new file.

        A file grows in place where its table has spare entries, and the store writes behind its
        end.
        """
        header, schema = file.header, self.schema
        chunk, payload = _chunk_bytes(schema), file.row.payload
        possible = (
            header.version == VERSION
            and header.has_offsets
            and header.chunk_size == chunk
            and len(file.row) == -(-payload // chunk)
            and schema.nbytes > payload
            and _count(schema) <= header.table_entries
            and file.size >= _SMALLEST_IN_PLACE
            and Feature.PATCH in self.store.features
        )
        if not possible:
            return None
        # The metadata of a plain file does not say how long it is.
        if self.plain is not None or file.section is None:
            return []
        return metadata.repack(file.section, self._value())

    def _appended(
        self, file: BloscpackFile, images: "_Images", changes: list[tuple[int, bytes]]
    ) -> Commit:
        """Return the commit that puts chunks in the place of the last one, and behind it."""
        count, first = _count(self.schema), images.following
        assert first is not None
        begin = int(file.row.start[first]) if first < len(file.row) else file.end
        lengths: list[int] = []
        over: list[Buffer] = []
        room = file.end - begin
        behind = self._chunks(images.numbered_from(first), None, count - first, lengths)
        # The first bytes lie over those of the old last chunk.
        rest: Buffer = b""
        for piece in behind:
            view = memoryview(piece)
            over.append(view[:room])
            rest = view[room:]
            room -= len(over[-1])
            if len(rest):
                break
        prepare: tuple[Edit, ...] = ()
        if len(rest):
            prepare = (extend(self.store, self.path, chained([rest], behind), end=file.end),)
        starts = begin + np.cumsum([0, *lengths])
        header = replace(
            file.header,
            last_chunk=self.schema.nbytes - (count - 1) * file.header.chunk_size,
            nchunks=count,
            max_app_chunks=file.header.table_entries - count,
        )
        entry = file.begin - file.header.table_bytes + first * ENTRY_BYTES
        publish: list[Edit] = [Patch(self.path, 0, header.pack())]
        place = header.header_bytes
        publish += [Patch(self.path, place + start, data) for start, data in changes]
        publish.append(Patch(self.path, entry, offsets.pack(starts[:-1])))
        tail = over[0] if len(over) == 1 else b"".join(over)
        if len(tail):
            publish.append(Patch(self.path, begin, tail))
        end = int(starts[-1])
        cut = (Truncate(self.path, end),) if end < file.end else ()
        return Commit(prepare, tuple(publish), cut)


class _RunPiece:
    """All chunks of a new file, which note how long each of them is."""

    __slots__ = ("_lengths", "_run")
    checksum: ClassVar[None] = None

    def __init__(self, run: ChunkRun, lengths: list[int]) -> None:
        self._run = run
        self._lengths = lengths

    def write_to(self, descriptor: int, start: int) -> int:
        places = self._run.write_to(descriptor, start)
        self._lengths += np.diff(places).tolist()
        return int(places[-1]) - start

    def __iter__(self) -> Iterator[Buffer]:
        for coords, data in self._run:
            if data is None:
                raise _absent(coords)
            self._lengths.append(len(data))
            yield data


class _Images:
    """New chunks in the order of their numbers, one ahead."""

    __slots__ = ("_ahead", "_first", "_rest", "_run")

    def __init__(self, encoded: Iterable[tuple[Coords, Buffer | None]], first: int = 0) -> None:
        # A run is not begun before it is clear that its chunks are needed one by one.
        self._run = as_chunk_run(encoded)
        self._rest: Iterator[tuple[Coords, Buffer | None]]
        self._rest = iter(()) if self._run is not None else iter(encoded)
        self._ahead = next(self._rest, None)
        self._first = first

    @property
    def following(self) -> int | None:
        """The number of the next chunk."""
        if self._run is not None:
            return self._run.numbers.start - self._first
        return None if self._ahead is None else self._ahead[0][0] - self._first

    def numbered_from(self, first: int) -> "_Images":
        """Return the same chunks, counted from another one."""
        images = _Images((), first)
        images._rest, images._ahead, images._run = self._rest, self._ahead, self._run
        return images

    def take_all(self, count: int) -> ChunkRun | None:
        """Return a run of so many chunks, if these are all of them."""
        run = self._run
        if run is None or run.numbers != range(count):
            return None
        self._run = None
        return run

    def take(self, number: int) -> Buffer | None:
        """Return the chunk with a number, if it is the next one."""
        if self._run is not None:
            self._rest, self._run = iter(self._run), None
            self._ahead = next(self._rest, None)
        if self._ahead is None or self.following != number:
            return None
        coords, data = self._ahead
        if data is None:
            raise _absent(coords)
        self._ahead = next(self._rest, None)
        return data

    def finish(self) -> None:
        """Raise an error for a chunk that the array does not have."""
        if self._ahead is not None:
            raise FormatError(f"chunk {self._ahead[0]}: the array has no such chunk")


def _absent(coords: Coords) -> UnsupportedError:
    return UnsupportedError(f"chunk {coords}: in a Bloscpack file every chunk is stored")


def _appends(file: BloscpackFile, images: _Images) -> bool:
    """Return whether the first new chunk is the last old one, or follows it."""
    return images.following is not None and images.following >= len(file.row) - 1


def open_array(store: Store, path: str) -> BloscpackMap:
    """Return the array in a file; a file without a description is an array of bytes."""
    file = BloscpackFile.read(store, path)
    plain: tuple[Any] | None = None
    try:
        described = metadata.parse_description(file.value)
        if described is None:
            attrs = metadata.attributes(file.value)
            schema = _schema(file, (file.row.payload,), _BYTE, "C", attrs, np.uint8(0))
            plain = (file.value,)
        else:
            if described.nbytes != file.row.payload:
                raise CorruptionError(
                    f"Bloscpack metadata: shape {list(described.shape)} of {described.dtype} has "
                    f"{described.nbytes} bytes, the chunks hold {file.row.payload}"
                )
            attrs = dict(described.attrs)
            fill = _parse_fill(attrs.pop(FILL, None), described.dtype)
            schema = _schema(file, described.shape, described.dtype, described.order, attrs, fill)
    except IngotError as error:
        error.add_note(f"in {path!r} of {store.location}")
        raise
    return BloscpackMap(store, path, schema, plain=plain, kept=_Kept(file))


def design(
    request: Request,
    *,
    checksum: str | bool | None = _CHECKSUM,
    order: str = "C",
    chunk_bytes: int | None = None,
) -> ArraySchema:
    """Return the layout of a new array.

    >>> design(Request((10**6, 3), np.dtype("<f8"), np.float64(0))).flat
    Flat(chunk_bytes=1048560)
    """
    dtype = request.dtype
    if order not in ("C", "F"):
        raise ArgumentError(f"order is {order!r}, not 'C' or 'F'")
    compressors: tuple[Compressor, ...] = (_blosc(request),)
    # The codec of an array has its checksum, and may be given for another array.
    given = [stage.kind for stage in request.stages or () if isinstance(stage, Digest)]
    if given and checksum == _CHECKSUM:
        checksum = given[-1]
    if checksum not in ("none", None, False):
        compressors += (_digest(_CHECKSUM if checksum is True else checksum),)
    schema = ArraySchema(
        request.shape,
        dtype,
        (),
        CodecChain((), Raw(), compressors),
        request.fill,
        order,
        request.attrs,
        flat=Flat(_designed_bytes(request, order, chunk_bytes)),
    )
    metadata.pack(_document(schema))
    return schema


def create_array(store: Store, schema: ArraySchema, path: str) -> tuple[ArrayNode, Commit]:
    """Return a new array, and the commit that makes its file, without chunks."""
    if not path:
        raise UnsupportedError("bloscpack: a file has a name")
    chunks = BloscpackMap(store, path, schema, fresh=True)
    return ArrayNode(chunks), Commit(publish=(Put(path, chunks._skeleton()),))


def _schema(
    file: BloscpackFile,
    shape: tuple[int, ...],
    dtype: DType,
    order: str,
    attrs: Mapping[str, Any],
    fill: Any,
) -> ArraySchema:
    header, row = file.header, file.row
    typesize = header.typesize if dtype == _BYTE else _typesize(dtype)
    compressors: tuple[Compressor, ...] = (_blosc_of(file.last, typesize),)
    if header.checksum != "none":
        compressors += (Digest(header.checksum),)
    chain = CodecChain((), Raw(), compressors)
    sizes = row.uniform()
    if sizes is None:
        return _ragged(file, shape, dtype, chain, attrs, fill)
    chunk = sizes[0]
    if len(row) <= 1:
        # The file has one chunk, and says how long it may become.
        chunk = max(chunk, header.chunk_size) or _default_bytes(shape, dtype, order)
    return ArraySchema(shape, dtype, (), chain, fill, order, attrs, flat=Flat(chunk))


def _ragged(
    file: BloscpackFile,
    shape: tuple[int, ...],
    dtype: DType,
    chain: CodecChain,
    attrs: Mapping[str, Any],
    fill: Any,
) -> ArraySchema:
    """Return the schema of a file whose chunks have several lengths."""
    lengths = file.row.nbytes[file.row.nbytes > 0]
    if len(shape) != 1 or (lengths % dtype.itemsize).any():
        raise UnsupportedError(
            "Bloscpack chunks: they have several lengths, which only arrays of one axis and whole "
            "items may have"
        )
    axis = RectilinearAxis(lengths // dtype.itemsize)
    return ArraySchema(
        shape,
        dtype,
        (axis.longest,),
        chain,
        fill,
        attrs=attrs,
        padded=False,
        sparse=False,
        rectilinear=(axis,),
    )


def _checked_plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of a plain file, unless it would describe an array."""
    try:
        array = metadata.parse_description(value) is not None
    except (FormatError, LimitError, UnsafeError, UnsupportedError):
        array = True
    if array:
        raise UnsupportedError(
            "these attributes would describe an array: a plain Bloscpack file has none of the "
            f"name 'order' beside {', '.join(map(repr, DESCRIPTION))}"
        )
    return value


def _document(schema: ArraySchema) -> dict[str, Any]:
    """Return the metadata of an array."""
    if FILL in schema.attrs:
        raise UnsupportedError(f"attribute {FILL!r}: the key stands for the fill value")
    array = ArrayDescription(schema.shape, schema.dtype, schema.order, schema.attrs)
    document = array.document()
    item = np.zeros((), schema.dtype)
    item[()] = schema.fill
    if not any(item.tobytes()):
        return document
    described = {key: document[key] for key in DESCRIPTION}
    return {**described, FILL: item.tobytes().hex(), **schema.attrs}


def _parse_fill(claim: object, dtype: DType) -> Any:
    if claim is None:
        return dtypes.zero(dtype)
    try:
        data = bytes.fromhex(claim) if isinstance(claim, str) else b""
    except ValueError:
        data = b""
    if len(data) != dtype.itemsize:
        raise FormatError(
            f"Bloscpack metadata: {FILL} is {shown(claim)}, not {dtype.itemsize} bytes"
        )
    return np.frombuffer(data, dtype)[0]


def _count(schema: ArraySchema) -> int:
    """Return the number of chunks that hold items."""
    _chunk_bytes(schema)
    return schema.chunk_count


def _chunk_bytes(schema: ArraySchema) -> int:
    if schema.flat is None:
        raise UnsupportedError(
            "Bloscpack chunks: they have several lengths; only a copy of the file can be changed"
        )
    return schema.flat.chunk_bytes


def _empty_chunk(header: Header) -> bytes:
    """Return the only chunk of a file without items, as bloscpack writes it."""
    flags = SHUFFLE | MEMCPYED | UNSPLIT
    chunk = ChunkHeader(flags=flags, typesize=header.typesize).pack()
    return chunk + digest(header.checksum, chunk)


def _typesize(dtype: DType) -> int:
    return dtype.itemsize if dtype.itemsize <= _LARGEST_TYPESIZE else 1


def _blosc(request: Request) -> Blosc:
    stages = (Blosc(),) if request.stages is None else request.stages
    stages = tuple(stage for stage in stages if not isinstance(stage, Digest))
    if len(stages) > 1 or not all(isinstance(stage, Blosc) for stage in stages):
        raise UnsupportedError("bloscpack: chunks are compressed by Blosc, and by nothing else")
    stage = stages[0] if stages else Blosc(clevel=0)
    assert isinstance(stage, Blosc)
    return stage.bind(request.dtype.itemsize)


def _blosc_of(last: ChunkHeader | None, typesize: int) -> Blosc:
    """Return the codec for new chunks: that of the last one, whose level is not known."""
    if last is None or last.extended or last.codec not in CODECS:
        return Blosc(typesize=typesize)
    shuffle = ("none", "shuffle", "bitshuffle").index(last.filter)
    return Blosc(last.codec, shuffle=shuffle, typesize=typesize)


def _digest(checksum: object) -> Digest:
    if not isinstance(checksum, str) or checksum not in CHECKSUMS:
        known = ", ".join(CHECKSUMS)
        raise ArgumentError(f"checksum {checksum!r} is unknown; there is {known}")
    return Digest(checksum)


def _designed_bytes(request: Request, order: str, chunk_bytes: int | None) -> int:
    shape, itemsize = request.shape, request.dtype.itemsize
    if chunk_bytes is not None:
        if request.chunks is not None:
            raise ArgumentError("chunks and chunk_bytes both say how long a chunk is")
        found = max(1, chunk_bytes // itemsize) * itemsize
    elif request.chunks is None:
        found = _default_bytes(shape, request.dtype, order)
    else:
        inner, rows = shape[1:], request.chunks[:1]
        whole = request.chunks[1:]
        if order == "F":
            inner, rows, whole = shape[:-1], request.chunks[-1:], request.chunks[:-1]
        if any(chunk < length for chunk, length in zip(whole, inner, strict=True)):
            raise UnsupportedError(
                f"bloscpack: chunks {list(request.chunks)} cut an axis that is not the slowest"
            )
        if rows and rows[0] < 1:
            raise ArgumentError(f"chunks is {list(request.chunks)}, not lengths from 1 on")
        found = (rows[0] if rows else 1) * (math.prod(inner) or 1) * itemsize
    if found > LARGEST_CHUNK:
        raise LimitError(f"chunks of {found} bytes, the limit is {LARGEST_CHUNK}")
    return found


def _default_bytes(shape: tuple[int, ...], dtype: DType, order: str) -> int:
    """Return the length of chunks of about 1 MiB: whole rows, or whole items of long ones."""
    inner = shape[:-1] if order == "F" else shape[1:]
    unit = (math.prod(inner) or 1) * dtype.itemsize
    if unit > _CHUNK_BYTES:
        unit = dtype.itemsize
    return max(1, _CHUNK_BYTES // unit) * unit

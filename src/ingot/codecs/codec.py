"""The contract of codecs: the stages that turn a chunk into bytes, and the chain they form.

A chunk is an array in C order. *Filters* turn arrays into arrays, one *serializer* turns an array
into bytes, *compressors* turn bytes into bytes; decoding goes the other way. Arrays that are stored
with the first axis fastest have a filter that transposes, so order is a stage like any other.

The chain tells each stage how many bytes to decode, as far as that follows from the shape and type
of the chunk: whatever a chunk claims, memory is allocated by the metadata.

Stages are found by the names that files give them (`register`, `find`). This module holds only the
plainest serializer; the other modules of the package hold the codecs themselves.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes
from ingot._lazy import load
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    CorruptionError,
    FormatError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import FieldReader, shown

__all__ = [
    "CHUNK_LIMIT",
    "Array",
    "Buffer",
    "BytesFilter",
    "CheckedPart",
    "ChunkSpec",
    "CodecChain",
    "Compressor",
    "EncodedChunk",
    "Filter",
    "NativeCoding",
    "Raw",
    "Serializer",
    "Stage",
    "StoredBytes",
    "assemble",
    "check_choice",
    "find",
    "parse_choice",
    "parse_spelling",
    "parse_stage",
    "register",
    "without_checksums",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes between two stages, one-dimensional and contiguous."""

Array: TypeAlias = NDArray[Any]

CHUNK_LIMIT: Final = 2**31 - 1 - 16
"""The most bytes a chunk may decode to, unless the caller says otherwise."""

_BYTE: Final = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class ChunkSpec:
    """A decoded chunk: its shape, the type of its items, and their fill value.

    `number` is the number of the chunk in its array, counted with the last axis fastest.

    >>> ChunkSpec((10, 4), np.dtype("<f8")).nbytes
    320
    """

    shape: tuple[int, ...]
    dtype: DType
    fill: Any = field(default=None, compare=False)
    number: int = field(default=0, compare=False)

    @property
    def count(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of the array itself, without the contents of variable-length items."""
        return self.count * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class NativeCoding:
    """A codec chain in the terms of the native kernel, which runs it without Python.

    `kind` is "raw" or the one compressor of the chain; `axes` is the order in which the axes are
    stored, slowest first. `digest` is the kind of checksum of all bytes of the chunk that follows
    them (`ingot.codecs.checksums`). `framed` chunks of rows lie in files with a header and a
    trailer; `parts` has the number of the first chunk and the identity of each array that they are
    in, which the trailers state. `slotted` chunks have a trailer and spare bytes behind them. The
    other fields are for encoding only.

    >>> NativeCoding("raw", digest="crc32c").level
    0
    """

    kind: str
    axes: tuple[int, ...] = ()
    level: int = 0
    codec: str = ""
    shuffle: str = "none"
    typesize: int = 1
    blocksize: int = 0
    checksum: bool = False
    digest: str = "none"
    framed: bool = False
    slotted: bool = False
    parts: tuple[tuple[int, int | None], ...] = ()


class Stage(ABC):
    """One step of a chain: a frozen dataclass whose fields are the parameters of the codec.

    `name` is the name that files use. `spelling` lists the parameters that may follow the name in
    a short spelling, in order.
    """

    __slots__ = ()

    name: ClassVar[str]
    spelling: ClassVar[tuple[str, ...]] = ()
    chosen_from: ClassVar[Mapping[str, tuple[range, ...]]] = {}
    """What new data may choose for a parameter, where files may hold more: encoders clamp it."""

    @classmethod
    @abstractmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields of a file describe; raise if they are not valid."""

    def config(self) -> dict[str, Any]:
        """Return the stage as a file spells it; `parse` reads it back."""
        values = {each.name: getattr(self, each.name) for each in dataclass_fields(self)}  # type: ignore[arg-type]
        return {"id": self.name} | {key: _plain(value) for key, value in values.items()}


class Filter(Stage):
    """Array to array. `holds` is the type of decoded items where a file calls them objects."""

    __slots__ = ()

    holds: ClassVar[DType | None] = None

    @abstractmethod
    def encoded(self, spec: ChunkSpec) -> ChunkSpec:
        """Return the spec of what `encode` returns for an array of `spec`; raise if it cannot."""

    @abstractmethod
    def encode(self, array: Array) -> Array:
        """Return the array to be stored instead; `array` is left as it is."""

    @abstractmethod
    def decode(self, array: Array, spec: ChunkSpec) -> Array:
        """Undo `encode`: `array` is as `encoded` says, the result as `spec` says."""

    def axes(self, ndim: int) -> tuple[int, ...] | None:
        """Return the order of the axes if the filter only permutes them, else None."""
        return None


class Serializer(Stage):
    """Array to bytes. `shaped` bytes state the shape themselves, so that order has no meaning."""

    __slots__ = ()

    holds: ClassVar[DType | None] = None
    shaped: ClassVar[bool] = False
    runs_code: ClassVar[bool] = False
    """Whether decoding runs code that the bytes contain."""

    @abstractmethod
    def serialized_size(self, spec: ChunkSpec) -> int | None:
        """Return how many bytes an array of `spec` takes, or None when that depends on its items.

        Raises if the serializer cannot store items of the type.
        """

    def plain(self, dtype: DType) -> bool:
        """Return whether items of a type are stored as they lie in memory."""
        return False

    @abstractmethod
    def encode(self, array: Array) -> Buffer:
        """Return the bytes of an array."""

    @abstractmethod
    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the array of `spec` whose bytes are `data`; it may be read-only."""


class Compressor(Stage):
    """Bytes to bytes."""

    __slots__ = ()

    @property
    def appended(self) -> str | None:
        """The kind of checksum that the stage appends to the bytes, if it does nothing else."""
        return None

    def encoded_size(self, size: int) -> int | None:
        """Return how many bytes `size` bytes become, or None when that depends on the bytes."""
        return None

    def bind(self, itemsize: int) -> Self:
        """Return the stage for data whose items have `itemsize` bytes."""
        return self

    @abstractmethod
    def encode(self, data: Buffer) -> Buffer:
        """Return the bytes to be stored instead."""

    @abstractmethod
    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Undo `encode`. The result has exactly `size` bytes; if that is None, at most `limit`.

        No more memory than that is allocated, whatever `data` claims. Another size raises
        `CorruptionError` when `size` is known; a size beyond `limit` raises `LimitError`.
        """

    def native_coding(self) -> NativeCoding | None:
        """Return the same coding for the native kernel, or None if only Python has it."""
        return None


S = TypeVar("S", bound=type[Stage])

_STAGES: Final[dict[str, type[Stage]]] = {}

# Modules are imported when one of their stages is needed: ``foreign`` imports numcodecs, which
# takes as long to import as all of Ingot, and most data needs nothing from it.
_MODULES: Final = {
    name: f"ingot.codecs.{module}"
    for module, names in {
        "compressors": "blosc blosc2 zlib gzip bz2 lzma base64 shuffle",
        "checksums": "crc32 crc32c adler32",
        "filters": "transpose delta fixedscaleoffset quantize bitround packbits astype categorize",
        "numeric": "truncate",
        "text": "vlen-utf8 vlen-bytes vlen-array json2",
        "foreign": "lz4 zstd fletcher32 jenkins_lookup3 msgpack2 pcodec zfpy",
    }.items()
    for name in names.split()
}

_ENTRY_POINTS: Final = "ingot.codecs"
_REFUSED: Final = {"pickle": "unpickling runs whatever code a file holds"}


def register(stage: S) -> S:
    """Register a stage by its name; a class decorator.

    Other packages add stages by entry points of the group ``ingot.codecs``, named like the stage.
    """
    if _STAGES.setdefault(stage.name, stage) is not stage:
        raise ArgumentError(f"a codec named {stage.name!r} is registered already")
    return stage


def find(name: str) -> type[Stage]:
    """Return the stage that has a name.

    >>> find("zlib").name
    'zlib'
    >>> find("pickle")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: codec 'pickle' is refused: unpickling runs whatever code a file holds
    """
    if name in _REFUSED:
        raise UnsafeError(f"codec {name!r} is refused: {_REFUSED[name]}")
    if name not in _STAGES:
        _load(name)
    if name not in _STAGES:
        # Those of text and of numbers are found by the types of items, seldom by their names.
        named = {each for each, home in _MODULES.items() if not home.endswith(("text", "numeric"))}
        known = ", ".join(sorted(named | _plugged()))
        raise UnsupportedError(f"codec {shown(name)} is unknown; there is {known}")
    return _STAGES[name]


def parse_stage(config: object) -> Stage:
    """Return the stage of a JSON object ``{"id": name, parameter: value, …}``.

    >>> parse_stage({"id": "zlib", "level": 1})
    Zlib(level=1)
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise FormatError(f"codec: {shown(config)} is not an object with an 'id'")
    name = config["id"]
    stage = find(name)
    return stage.parse(
        FieldReader(name, {key: value for key, value in config.items() if key != "id"})
    )


def parse_spelling(text: str) -> tuple[Stage, ...]:
    """Return the stages of a short spelling: a name and its parameters, or "none".

    >>> parse_spelling("blosc:zstd:7:bitshuffle")
    (Blosc(cname='zstd', clevel=7, shuffle=2, blocksize=0, typesize=1),)
    >>> parse_spelling("none")
    ()
    """
    name, *values = text.split(":")
    if text == "none":
        return ()
    stage = find(name)
    if len(values) > len(stage.spelling):
        form = ":".join([name, *(f"<{parameter}>" for parameter in stage.spelling)])
        raise FormatError(f"codec {text!r}: more than {form}")
    parameters = zip(stage.spelling, map(_number_or_text, values), strict=False)
    return (parse_choice({"id": name} | dict(parameters)),)


def parse_choice(config: object) -> Stage:
    """Return the stage that a caller chooses for new data, as `parse_stage` reads it from a file.

    A level that an encoder would replace by its highest one is refused.

    >>> parse_choice({"id": "zstd", "level": 99})
    Traceback (most recent call last):
    ingot.errors.FormatError: zstd: level is 99, not an integer from -131072 to 22
    """
    if isinstance(config, Mapping) and isinstance(config.get("id"), str):
        check_choice(find(config["id"]), config)
    return parse_stage(config)


def check_choice(stage: type[Stage], parameters: Mapping[str, object]) -> None:
    """Raise `FormatError` for a parameter that new data may not choose."""
    for name, allowed in stage.chosen_from.items():
        value = parameters.get(name)
        if type(value) is int and not any(value in each for each in allowed):
            spans = " or ".join(f"from {each.start} to {each.stop - 1}" for each in allowed)
            raise FormatError(f"{stage.name}: {name} is {value}, not an integer {spans}")


@register
@dataclass(frozen=True, slots=True)
class Raw(Serializer):
    """Items as they lie in memory, the last axis fastest."""

    name: ClassVar[str] = "raw"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
        return cls()

    def serialized_size(self, spec: ChunkSpec) -> int:
        """Return how many bytes an array of `spec` takes."""
        if dtypes.is_variable(spec.dtype):
            raise FormatError(f"items of type {spec.dtype} need a codec that knows what they are")
        return spec.nbytes

    def plain(self, dtype: DType) -> bool:
        """Return True: all of them are."""
        return True

    def encode(self, array: Array) -> Buffer:
        """Return the memory of an array, shared when it is in C order."""
        return np.ascontiguousarray(array).reshape(-1).view(_BYTE).data

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return a view of `data`."""
        return np.frombuffer(data, spec.dtype).reshape(spec.shape)


@dataclass(frozen=True, slots=True)
class BytesFilter(Compressor):
    """A filter behind a stage that returns bytes: the filter sees them as an array of bytes."""

    name: ClassVar[str] = "viewed"
    filter: Filter

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Raise: files name the filter itself."""
        raise UnsupportedError(f"codec {fields.where!r} is unknown")

    def config(self) -> dict[str, Any]:
        """Return the filter as a file spells it."""
        return self.filter.config()

    def encoded_size(self, size: int) -> int:
        """Return how many bytes `size` bytes become."""
        return self.filter.encoded(ChunkSpec((size,), _BYTE)).nbytes

    def encode(self, data: Buffer) -> Buffer:
        """Return the bytes of the filtered array."""
        return Raw().encode(self.filter.encode(np.frombuffer(data, _BYTE)))

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Undo `encode`; the size must be known."""
        if size is None:
            raise UnsupportedError(f"{self.filter.name} behind a codec whose size varies")
        spec = ChunkSpec((size,), _BYTE)
        stored = np.frombuffer(data, self.filter.encoded(spec).dtype)
        return Raw().encode(self.filter.decode(stored, spec))


@dataclass(frozen=True, slots=True)
class CodecChain:
    """All stages between an array and the bytes of its chunks.

    >>> chain = CodecChain((), Raw(), parse_spelling("zlib:9"))
    >>> stored = chain.encode(np.zeros(1000, "<i4"))
    >>> chain.decode(stored, ChunkSpec((1000,), np.dtype("<i4"))).any()
    np.False_
    >>> chain.decode(stored, ChunkSpec((999,), np.dtype("<i4")))
    Traceback (most recent call last):
    ingot.errors.CorruptionError: zlib: 3996 bytes are due, the stream holds more
    """

    filters: tuple[Filter, ...] = ()
    serializer: Serializer = field(default_factory=Raw)
    compressors: tuple[Compressor, ...] = ()

    def encode(self, array: Array, number: int = 0) -> bytes:
        """Return the bytes to be stored for the chunk with that number."""
        for stage in self.filters:
            array = stage.encode(array)
        data = self.serializer.encode(array)
        for compressor in self.compressors:
            data = compressor.encode(data)
        return bytes(data)

    def decode(
        self, data: Buffer, spec: ChunkSpec, out: Array | None = None, *, limit: int = CHUNK_LIMIT
    ) -> Array:
        """Return the chunk whose stored bytes are `data`; raise unless they decode to `spec`.

        The result is written to `out` if that is given, an array of the shape and type of `spec`.
        Otherwise it may be read-only and share memory with `data`.
        """
        specs = self._specs(spec)
        data = self._decompressed(data, self._sizes(specs[-1], limit), limit)
        array = self.serializer.decode(data, specs[-1])
        for stage, decoded in zip(reversed(self.filters), reversed(specs[:-1]), strict=True):
            array = stage.decode(array, decoded)
        if out is None:
            return array
        if out.shape != spec.shape or out.dtype != spec.dtype:
            raise ArgumentError(f"out is {out.dtype}{out.shape}, not {spec.dtype}{spec.shape}")
        out[...] = array
        return out

    def serialized(self, data: Buffer, spec: ChunkSpec, *, limit: int = CHUNK_LIMIT) -> Buffer:
        """Return what the serializer made of the items of a chunk, given its stored bytes."""
        return self._decompressed(data, self._sizes(self._specs(spec)[-1], limit), limit)

    def native_coding(self, spec: ChunkSpec) -> NativeCoding | None:
        """Return the same coding for the native kernel, or None if only Python has it."""
        axes = tuple(range(len(spec.shape)))
        for stage in self.filters:
            permutation = stage.axes(len(axes))
            if permutation is None:
                return None
            axes = tuple(axes[axis] for axis in permutation)
        compressors = self.compressors
        digest = compressors[-1].appended if compressors else None
        if digest is not None:
            compressors = compressors[:-1]
        if not self.serializer.plain(spec.dtype) or len(compressors) > 1:
            return None
        coding = compressors[0].native_coding() if compressors else NativeCoding("raw")
        return None if coding is None else replace(coding, axes=axes, digest=digest or "none")

    @property
    def is_framed(self) -> bool:
        """Whether anything but a chunk of the codec is stored, such as a checksum behind it."""
        return bool(self.compressors) and self.compressors[-1].appended is not None

    def unframed(self, data: Buffer, spec: ChunkSpec) -> "EncodedChunk | None":
        """Return a stored chunk without the checksum that follows it, after comparing that.

        None where the chunk has another size than `spec`, so that only its items can be moved.

        >>> chain = CodecChain((), Raw(), parse_spelling("zlib:1"))
        >>> stored, spec = chain.encode(np.zeros(10, "<i4")), ChunkSpec((10,), np.dtype("<i4"))
        >>> chain.framed(chain.unframed(stored, spec), spec) == stored
        True
        """
        if self.compressors and self.compressors[-1].appended is not None:
            last = self.compressors[-1]
            bare = last.decode(data, None, len(data))
            return EncodedChunk(bare, verified=True, sealed=(last, data))
        return EncodedChunk(data, verified=False)

    def framed(
        self, chunk: "EncodedChunk", spec: ChunkSpec, array: Array | None = None
    ) -> Buffer | None:
        """Return what is stored for an encoded chunk; `array` has its items, where they are known.

        None where the format cannot store these bytes.
        """
        if self.compressors and self.compressors[-1].appended is not None:
            if chunk.sealed is not None and chunk.sealed[0] == self.compressors[-1]:
                return chunk.sealed[1]
            return self.compressors[-1].encode(chunk.data)
        return chunk.data

    @property
    def head_bytes(self) -> int:
        """How many bytes the chain stores in front of what its compressors return."""
        return 0

    @property
    def is_trailed(self) -> bool:
        """Whether a trailer has a checksum of each block, so that parts can be compared."""
        return False

    def part_ranges(
        self, head: Buffer, size: int, ranges: Sequence[tuple[int, int]]
    ) -> Sequence[tuple[int, int]]:
        """Return what is read of `size` stored bytes to decode and compare ranges of a chunk.

        `head` is its first bytes, without what the chain stores in front of it.
        """
        return ranges

    def checked_part(self, stored: "StoredBytes", spec: ChunkSpec) -> "CheckedPart | None":
        """Return where the parts of a stored chunk are, what is wanted of it compared.

        That is its front and its wanted blocks; a block that does not agree is `CorruptionError`.
        None where the chunk has to be decoded as a whole, which says what is wrong with it.
        """
        return None

    def _specs(self, spec: ChunkSpec) -> list[ChunkSpec]:
        specs = [spec]
        for stage in self.filters:
            specs.append(stage.encoded(specs[-1]))
        return specs

    def _sizes(self, spec: ChunkSpec, limit: int) -> list[int | None]:
        """Return the number of bytes before each compressor, and after the last one."""
        size = self.serializer.serialized_size(spec)
        if (size or 0) > limit:
            raise LimitError(f"a chunk {spec.shape} of {size} bytes: the limit is {limit}")
        sizes = [size]
        for compressor in self.compressors:
            size = compressor.encoded_size(size) if size is not None else None
            sizes.append(size)
        return sizes

    def _decompressed(self, data: Buffer, sizes: list[int | None], limit: int) -> Buffer:
        if len(data) == 0 and sizes[0] != 0:
            raise CorruptionError("the chunk is empty: no bytes are stored")
        if sizes[-1] is not None and len(data) != sizes[-1]:
            raise CorruptionError(f"{sizes[-1]} bytes are due, {len(data)} are stored")
        # No encoder doubles its input, so longer data is corrupt without being decoded.
        known = [size for size in sizes if size is not None]
        between = min(limit, 2 * max(known) + 2**16) if known else limit
        if known and len(data) > between:
            raise CorruptionError(f"{len(data)} bytes are stored for a chunk of {sizes[0]} bytes")
        for index in reversed(range(len(self.compressors))):
            compressor, size = self.compressors[index], sizes[index]
            data = compressor.decode(data, size, limit if index == 0 else between)
            if size is not None and len(data) != size:
                raise CorruptionError(f"{compressor.name}: {size} bytes are due, not {len(data)}")
        return data


class EncodedChunk(NamedTuple):
    """What the compressors of a chain made of a chunk, without what a format adds to it."""

    data: Buffer
    verified: bool
    """Whether a checksum of the bytes was compared."""
    zone: bytes = b""
    """The zone map that was stored with the chunk."""
    sealed: tuple[Compressor, Buffer] | None = None
    """The stage that appended a checksum, and the bytes with it: the same stage needs no other."""


class StoredBytes(NamedTuple):
    """Some bytes of what is stored of a Blosc chunk, and the blocks of it that are wanted."""

    size: int
    """How many bytes are stored, with those that are not at hand."""
    cut: Callable[[int, int], memoryview | None]
    """Returns the bytes from one place to another; None unless they lie in one piece."""
    wanted: Callable[[Buffer], Sequence[int]]
    """Returns the ascending numbers of the blocks that are wanted, by the header of the chunk."""


class CheckedPart(NamedTuple):
    """Where a chunk begins among the stored bytes, where its front ends, and where it ends itself.

    The front is its header and its block starts.
    """

    begin: int
    front: int
    end: int


def assemble(stages: Sequence[Stage], spec: ChunkSpec) -> CodecChain:
    """Put stages, in the order of encoding, into a chain for chunks of `spec`.

    If no stage turns the array into bytes, `Raw` does. Filters that follow a serializer work on its
    bytes.

    >>> assemble(parse_spelling("blosc"), ChunkSpec((10,), np.dtype("<i8"))).compressors
    (Blosc(cname='lz4', clevel=5, shuffle=1, blocksize=0, typesize=8),)
    """
    filters: list[Filter] = []
    serializer: Serializer | None = None
    compressors: list[Compressor] = []
    for stage in stages:
        if isinstance(stage, Serializer):
            if serializer is not None:
                raise FormatError(f"codec {stage.name!r} needs an array, but is given bytes")
            serializer = stage
        elif isinstance(stage, Compressor):
            serializer = serializer or Raw()
            compressors.append(stage)
        elif isinstance(stage, Filter):
            if serializer is None:
                filters.append(stage)
            else:
                compressors.append(BytesFilter(stage))
        else:
            raise ArgumentTypeError(f"{stage!r} is not a stage of a codec chain")
    for each in filters:
        spec = each.encoded(spec)
    serializer = serializer or Raw()
    fixed = serializer.serialized_size(spec) is not None
    if compressors:
        compressors[0] = compressors[0].bind(spec.dtype.itemsize if fixed else 1)
    return CodecChain(tuple(filters), serializer, tuple(compressors))


def without_checksums(stages: Sequence[Stage]) -> tuple[Stage, ...]:
    """Return codecs without those that only append a checksum.

    >>> stages = [*parse_spelling("zlib:1"), *parse_spelling("crc32c")]
    >>> [each.name for each in without_checksums(stages)]
    ['zlib']
    """
    return tuple(s for s in stages if not (isinstance(s, Compressor) and s.appended))


def _load(name: str) -> None:
    if name in _MODULES:
        load(_MODULES[name])
        return
    for entry_point in _entry_points(name=name):
        stage = entry_point.load()
        _STAGES.setdefault(name, stage)


def _plugged() -> set[str]:
    """Return the names of the stages that other packages add."""
    return {entry_point.name for entry_point in _entry_points()}


def _entry_points(**wanted: str) -> Any:
    # Imported by name: most programs never need it, and it imports the `email` package.
    return load("importlib.metadata").entry_points(group=_ENTRY_POINTS, **wanted)


def _plain(value: object) -> Any:
    if isinstance(value, np.dtype):
        return dtypes.pack(value)
    return list(value) if isinstance(value, tuple) else value


def _number_or_text(value: str) -> int | str:
    digits = value.removeprefix("-")
    return int(value) if digits.isascii() and digits.isdigit() and len(digits) < 10 else value

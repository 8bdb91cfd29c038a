"""Codecs that other packages implement: LZ4, Zstandard and the less common codecs of numcodecs.

Before a decoder runs, the size that a stream claims is compared with the expected size, and with
the most that its bytes can decode to, so that no decoder allocates memory beyond that. The Blosc
decoder of numcodecs is not used: it trusts the sizes in a chunk.

Importing numcodecs costs about as much as importing NumPy. This module is therefore imported when
one of its codecs is first found by name (`ingot.codecs.codec.find`), and never at the top of
another module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numcodecs import fletcher32, jenkins, lz4, zstd
from numpy.typing import NDArray

from ingot.codecs.checksums import CHECKSUM_BYTES, Checksum
from ingot.codecs.codec import (
    CHUNK_LIMIT,
    Buffer,
    ChunkSpec,
    Compressor,
    NativeCoding,
    Serializer,
    register,
)
from ingot.codecs.text import shaped_array, shaped_list
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader

__all__ = ["Fletcher32", "JenkinsLookup3", "Lz4", "MsgPack2", "PCodec", "Zfpy", "Zstd"]

Array = NDArray[Any]

_PREFIX: Final = 4
_LZ4_LARGEST: Final = 0x7E000000
# LZ4 spends a byte on each 255 bytes of a match.
_LZ4_EXPANSION: Final = 255
_LZ4_HIGHEST_ACCELERATION: Final = 65537

_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGICS: Final = range(0x184D2A50, 0x184D2A60)
_ZSTD_LARGEST_BLOCK: Final = 2**17
_ZSTD_LOWEST_LEVEL: Final = -131072
_ZSTD_HIGHEST_LEVEL: Final = 22
_ZFP_LARGEST_HEADER: Final = 64
_ZFP_MOST_AXES: Final = 4

_ZSTD_RUN: Final = 1
_ZSTD_COMPRESSED: Final = 2


@register
@dataclass(frozen=True, slots=True)
class Lz4(Compressor):
    """The decoded size, then one LZ4 block."""

    name: ClassVar[str] = "lz4"
    spelling: ClassVar[tuple[str, ...]] = ("acceleration",)
    chosen_from: ClassVar[Mapping[str, tuple[range, ...]]] = {
        "acceleration": (range(_LZ4_HIGHEST_ACCELERATION + 1),)
    }
    acceleration: int = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(fields.integer("acceleration", 1, low=-(2**31), high=2**31 - 1))

    def encode(self, data: Buffer) -> Buffer:
        """Return the block."""
        if len(data) > _LZ4_LARGEST:
            raise LimitError(f"lz4: {len(data)} bytes, the most is {_LZ4_LARGEST}")
        return bytes(lz4.compress(data, self.acceleration))

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the block."""
        if len(data) < _PREFIX:
            raise CorruptionError(f"lz4: {len(data)} bytes have no room for the size")
        claim = int.from_bytes(data[:_PREFIX], "little")
        _check_claim(self.name, claim, size, min(limit, _LZ4_LARGEST))
        if claim > (len(data) - _PREFIX) * _LZ4_EXPANSION:
            raise CorruptionError(f"lz4: {len(data)} bytes cannot hold the {claim} they claim")
        if claim == 0:
            return b""
        try:
            return bytes(lz4.decompress(data))
        except (RuntimeError, ValueError) as error:
            raise CorruptionError(f"lz4: the block is damaged: {error}") from None

    def native_coding(self) -> NativeCoding:
        """Return the same coding for the native kernel."""
        return NativeCoding(kind=self.name, level=self.acceleration)


@register
@dataclass(frozen=True, slots=True)
class Zstd(Compressor):
    """Zstandard frames, one after the other, with or without their decoded size."""

    name: ClassVar[str] = "zstd"
    spelling: ClassVar[tuple[str, ...]] = ("level",)
    chosen_from: ClassVar[Mapping[str, tuple[range, ...]]] = {
        "level": (range(_ZSTD_LOWEST_LEVEL, _ZSTD_HIGHEST_LEVEL + 1),)
    }
    level: int = 0
    checksum: bool = False

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; levels above the highest mean the highest."""
        level = fields.integer("level", 0, low=_ZSTD_LOWEST_LEVEL, high=2**31 - 1)
        return cls(min(level, _ZSTD_HIGHEST_LEVEL), fields.flag("checksum", False))

    def config(self) -> dict[str, Any]:
        """Return the stage as files spell it; some readers do not know the field `checksum`."""
        config: dict[str, Any] = {"id": self.name, "level": self.level}
        return config | {"checksum": True} if self.checksum else config

    def encode(self, data: Buffer) -> Buffer:
        """Return one frame."""
        return bytes(zstd.compress(data, self.level, self.checksum))

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the frames."""
        view = memoryview(data)
        try:
            claim, most = _measure_frames(view)
        except IndexError:
            raise CorruptionError(f"zstd: the frames end early, at {len(view)} bytes") from None
        if claim is not None:
            _check_claim(self.name, claim, size, limit)
            if claim > most:
                raise CorruptionError(f"zstd: frames of {most} bytes at most claim {claim}")
        elif size is None and most > limit:
            raise LimitError(f"zstd: frames of up to {most} bytes, the limit is {limit}")
        if (claim if claim is not None else size) == 0 and most == 0:
            return b""
        try:
            # A buffer of the expected size cannot receive more than that.
            room = None if size is None else np.empty(size, np.uint8)
            result = zstd.decompress(view, room)
        except (RuntimeError, ValueError) as error:
            raise CorruptionError(f"zstd: the frames are damaged: {error}") from None
        return result if room is None else room.data

    def native_coding(self) -> NativeCoding:
        """Return the same coding for the native kernel."""
        return NativeCoding(kind=self.name, level=self.level, checksum=self.checksum)


@register
@dataclass(frozen=True, slots=True)
class Fletcher32(Checksum):
    """Fletcher's checksum, as in HDF5, after the bytes."""

    name: ClassVar[str] = "fletcher32"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
        return cls()

    def compute(self, data: Buffer) -> int:
        """Return the checksum of some bytes."""
        if len(data) == 0:
            return 0
        footer = fletcher32.Fletcher32().encode(data)[-CHECKSUM_BYTES:]
        return int.from_bytes(footer, "little")


@register
@dataclass(frozen=True, slots=True)
class JenkinsLookup3(Checksum):
    """Jenkins' lookup3 hash, as in HDF5, after the bytes."""

    name: ClassVar[str] = "jenkins_lookup3"
    initval: int = 0
    prefix: None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; a prefix cannot be spelled in JSON."""
        initval = fields.integer("initval", 0, high=2**32 - 1)
        if fields.value("prefix", None) is not None:
            raise UnsupportedError("jenkins_lookup3: a prefix is not supported")
        fields.finish()
        return cls(initval)

    def compute(self, data: Buffer) -> int:
        """Return the hash of some bytes."""
        return int(jenkins.jenkins_lookup3(data, self.initval))


@register
@dataclass(frozen=True, slots=True)
class MsgPack2(Serializer):
    """One MessagePack list: the items, nested as the array is, then its type and its shape."""

    name: ClassVar[str] = "msgpack2"
    holds: ClassVar[DType | None] = np.dtype(object)
    shaped: ClassVar[bool] = True
    raw: bool = False
    use_single_float: bool = False
    use_bin_type: bool = True

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        _msgpack(cls.name)
        stage = cls(
            fields.flag("raw", False),
            fields.flag("use_single_float", False),
            fields.flag("use_bin_type", True),
        )
        fields.finish()
        return stage

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Accept items of every type: MessagePack stores what JSON stores, and bytes."""

    def encode(self, array: Array) -> Buffer:
        """Return the packed list."""
        msgpack = _msgpack(self.name)
        packed: bytes = msgpack.packb(
            shaped_list(array),
            use_single_float=self.use_single_float,
            use_bin_type=self.use_bin_type,
        )
        return packed

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the items; the package accepts no list that is longer than its bytes."""
        msgpack = _msgpack(self.name)
        try:
            items = msgpack.unpackb(data, raw=self.raw, strict_map_key=False)
        except (ValueError, TypeError, msgpack.UnpackException, RecursionError) as error:
            raise CorruptionError(f"msgpack2: {error or type(error).__name__}") from None
        if self.raw and isinstance(items, list) and len(items) > 1 and type(items[-2]) is bytes:
            items[-2] = items[-2].decode("ascii", "replace")
        return shaped_array(self.name, items, spec)


@register
@dataclass(frozen=True, slots=True)
class PCodec(Serializer):
    """Numbers by the package pcodec."""

    name: ClassVar[str] = "pcodec"
    level: int = 8
    mode_spec: str = "auto"
    delta_spec: str = "auto"
    paging_spec: str = "equal_pages_up_to"
    delta_encoding_order: int | None = None
    equal_pages_up_to: int = 262144

    _TYPES: ClassVar[frozenset[str]] = frozenset(
        f"{kind}{width}" for kind in "uif" for width in (2, 4, 8)
    )

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; only the encoder uses the parameters."""
        _pcodec(cls.name)
        order = fields.value("delta_encoding_order", None)
        stage = cls(
            level=fields.integer("level", 8, high=12),
            mode_spec=fields.text("mode_spec", "auto"),
            delta_spec=fields.text("delta_spec", "auto"),
            paging_spec=fields.text("paging_spec", "equal_pages_up_to"),
            delta_encoding_order=(
                None if order is None else fields.integer("delta_encoding_order", high=7)
            ),
            equal_pages_up_to=fields.integer("equal_pages_up_to", 262144, low=1, high=2**31),
        )
        fields.finish()
        return stage

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Raise unless items are numbers of two bytes or more, in native byte order."""
        if spec.dtype.str[1:] not in self._TYPES or not spec.dtype.isnative:
            raise FormatError(f"pcodec: items of type {spec.dtype} are not supported")

    def encode(self, array: Array) -> Buffer:
        """Return the compressed numbers."""
        options = {key: value for key, value in self.config().items() if key != "id"}
        _pcodec(self.name)
        from numcodecs.pcodec import PCodec as Encoder

        try:
            return bytes(Encoder(**options).encode(np.ascontiguousarray(array).reshape(-1)))
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:
            raise FormatError(f"pcodec: cannot encode with {options}: {error}") from None

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the numbers, decoded into an array of the expected size."""
        standalone = _pcodec(self.name)
        result = np.empty(spec.count, spec.dtype)
        try:
            progress = standalone.simple_decompress_into(bytes(data), result)
        except (RuntimeError, ValueError, TypeError) as error:
            raise CorruptionError(f"pcodec: the numbers are damaged: {error}") from None
        if progress.n_processed != spec.count or not progress.finished:
            raise CorruptionError(f"pcodec: the chunk does not hold {spec.count} numbers exactly")
        return result.reshape(spec.shape)


@register
@dataclass(frozen=True, slots=True)
class Zfpy(Serializer):
    """Floats by the package zfpy, with its header."""

    name: ClassVar[str] = "zfpy"
    mode: int = 4
    tolerance: float = -1
    rate: float = -1
    precision: float = -1
    compression_kwargs: dict[str, float] | None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; `compression_kwargs` repeats the others."""
        _zfpy(cls.name)
        fields.value("compression_kwargs", None)
        stage = cls(
            mode=fields.integer("mode", 4, low=2, high=4),
            tolerance=fields.number("tolerance", -1),
            rate=fields.number("rate", -1),
            precision=fields.number("precision", -1),
        )
        fields.finish()
        return stage

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Raise for items that zfp cannot store."""
        if spec.dtype.str not in ("<f4", "<f8", "<i4", "<i8"):
            raise FormatError(f"zfpy: items of type {spec.dtype} are not supported")

    def encode(self, array: Array) -> Buffer:
        """Return the compressed floats."""
        zfpy = _zfpy(self.name)
        option = {2: "rate", 3: "precision", 4: "tolerance"}[self.mode]
        array = np.ascontiguousarray(array)
        packed: bytes = zfpy.compress_numpy(
            array if array.ndim <= _ZFP_MOST_AXES else array.reshape(-1),
            write_header=True,
            **{option: getattr(self, option)},
        )
        return packed

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the floats; raise unless the header describes the array of `spec`.

        The decoder does not check where its bytes end. It therefore gets room after them for all
        that it could read, filled in two ways: if the results differ, it has read beyond the end.
        """
        zfpy = _zfpy(self.name)
        room = self._room(zfpy, bytes(data), spec)
        try:
            first, second = (
                np.asarray(zfpy.decompress_numpy(bytes(data) + filling * room))
                for filling in (b"\x00", b"\xff")
            )
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            raise CorruptionError(f"zfpy: the floats are damaged: {error}") from None
        if first.tobytes() != second.tobytes():
            raise CorruptionError(f"zfpy: the stream ends early, at {len(data)} bytes")
        return first.reshape(spec.shape)

    def _room(self, zfpy: Any, data: bytes, spec: ChunkSpec) -> int:
        """Check the header; return how many bytes the decoder could read beyond the end."""
        try:
            header = zfpy.header(data + bytes(_ZFP_LARGEST_HEADER))
        except (RuntimeError, ValueError, TypeError) as error:
            raise CorruptionError(f"zfpy: the header is damaged: {error}") from None
        # Some writers store chunks with their own shape, others as one long row.
        lengths = [header[axis] for axis in ("nw", "nz", "ny", "nx") if header[axis]]
        if math.prod(lengths) != spec.count or header["type"] is not spec.dtype.type:
            raise CorruptionError(f"zfpy: the header claims {lengths}, {spec.shape} is due")
        if header["mode"] not in ("rate", "precision", "tolerance", "reversible"):
            raise UnsupportedError(f"zfpy: the mode {header['mode']!r} is not supported")
        items = 4 ** len(lengths)
        rate = float(header["config"].get("rate", 0))
        most = max(items * spec.dtype.itemsize, math.ceil(rate * items / 8))
        blocks = math.prod(-(-length // 4) for length in lengths)
        room: int = blocks * (most + _ZFP_LARGEST_HEADER) + _ZFP_LARGEST_HEADER
        if room > CHUNK_LIMIT:
            raise LimitError(f"zfpy: a chunk {spec.shape} could take {room} bytes")
        return room


def _check_claim(name: str, claim: int, size: int | None, limit: int) -> None:
    if size is not None and claim != size:
        raise CorruptionError(f"{name}: {claim} bytes are claimed, {size} are due")
    if size is None and claim > limit:
        raise LimitError(f"{name}: {claim} bytes are claimed, the limit is {limit}")


def _measure_frames(view: memoryview) -> tuple[int | None, int]:
    """Return the size that all frames claim, if all do, and the most that they can hold."""
    position, claims, most = 0, list[int | None](), 0
    while position < len(view):
        magic = int.from_bytes(view[position : position + 4], "little")
        if magic in _SKIPPABLE_MAGICS:
            position += 8 + int.from_bytes(view[position + 4 : position + 8], "little")
        elif magic == _ZSTD_MAGIC:
            claim, held, position = _measure_frame(view, position)
            claims.append(claim)
            most += held
        else:
            raise CorruptionError(f"zstd: no frame begins at byte {position}")
    if position > len(view):
        raise IndexError
    known = [claim for claim in claims if claim is not None]
    return (sum(known) if len(known) == len(claims) else None), most


def _measure_frame(view: memoryview, position: int) -> tuple[int | None, int, int]:
    """Return the size that a frame claims, the most that it can hold, and where it ends."""
    descriptor = view[position + 4]
    if descriptor & 3:
        raise UnsupportedError("zstd: a frame that needs a dictionary")
    single_segment = descriptor >> 5 & 1
    size_at = position + 5 + (1 - single_segment)
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    claim = None
    if width:
        claim = int.from_bytes(view[size_at : size_at + width], "little")
        claim += 256 if width == 2 else 0
    position, most, last = size_at + width, 0, 0
    while not last:
        header = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        most += _ZSTD_LARGEST_BLOCK if kind == _ZSTD_COMPRESSED else size
        position += 3 + (1 if kind == _ZSTD_RUN else size)
    return claim, most, position + (4 if descriptor & 4 else 0)


def _msgpack(codec: str) -> Any:
    try:
        import msgpack  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise _missing(codec, "msgpack", error) from None
    return msgpack


def _pcodec(codec: str) -> Any:
    try:
        from pcodec import standalone  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise _missing(codec, "pcodec", error) from None
    return standalone


def _zfpy(codec: str) -> Any:
    try:
        import zfpy  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise _missing(codec, "zfpy", error) from None
    return zfpy


def _missing(codec: str, package: str, error: ImportError) -> UnsupportedError:
    return UnsupportedError(f"codec {codec!r} needs the package {package!r}: {error}")

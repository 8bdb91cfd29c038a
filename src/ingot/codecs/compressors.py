"""Compressors: Blosc, those of the standard library, and the bytes codecs Base64 and Shuffle.

Each has its parameters as files spell them, and decodes within a bound that is set before its first
byte. A stream that ends early, runs on, or is followed by bytes that its format does not allow is
corrupt; numcodecs would ignore some of that.
"""

import base64
import binascii
import lzma
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, Self

import numpy as np

from ingot._lazy import deferred
from ingot.blosc.filters import shuffle, unshuffle
from ingot.blosc.header import CODECS, HEADER_BYTES, LARGEST_BLOCK, ChunkHeader
from ingot.codecs.codec import Buffer, Compressor, NativeCoding, register
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.fields import FieldReader, shown

if TYPE_CHECKING:
    import bz2
    import gzip

    from ingot.blosc import chunk as blosc
else:
    blosc, bz2, gzip = deferred("ingot.blosc.chunk"), deferred("bz2"), deferred("gzip")

__all__ = ["Base64", "Blosc", "Blosc2", "Bz2", "Gzip", "Lzma", "Shuffle", "Zlib"]

_AUTO: Final = -1
_SHUFFLES: Final = ("noshuffle", "shuffle", "bitshuffle")
_DELTAS: Final = ("none", "items", "bytes")
_LARGEST_TYPESIZE: Final = 255

# The input of one call to a decoder. A decoder returns a copy of the bytes after its stream, which
# must not be the whole rest of a chunk for each of many short streams.
_WINDOW: Final = 2**16

_LZMA_MEMORY: Final = 2**28
"""The most memory that an LZMA decoder may use; the densest preset uses a quarter of it."""


@register
@dataclass(frozen=True, slots=True)
class Blosc(Compressor):
    """One Blosc chunk. Shuffle is 0 (none), 1 (bytes), 2 (bits) or -1 (bits for single bytes)."""

    name: ClassVar[str] = "blosc"
    spelling: ClassVar[tuple[str, ...]] = ("cname", "clevel", "shuffle", "blocksize")
    cname: str = "lz4"
    clevel: int = 5
    shuffle: int = 1
    blocksize: int = 0
    typesize: int = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; shuffle may also be a word."""
        shuffle = fields.value("shuffle", 1)
        if isinstance(shuffle, str):
            number = _SHUFFLES.index(fields.choice("shuffle", _SHUFFLES))
        else:
            number = fields.integer("shuffle", 1, low=_AUTO, high=2)
        return cls(
            cname=fields.choice("cname", tuple(CODECS), "lz4"),
            clevel=fields.integer("clevel", 5, high=9),
            shuffle=number,
            blocksize=fields.integer("blocksize", 0, high=LARGEST_BLOCK),
        )

    def config(self) -> dict[str, Any]:
        """Return the stage as a file spells it; the item size follows from the data."""
        return {
            "id": self.name,
            "cname": self.cname,
            "clevel": self.clevel,
            "shuffle": self.shuffle,
            "blocksize": self.blocksize,
        }

    def bind(self, itemsize: int) -> Self:
        """Return the stage for items of `itemsize` bytes; above 255 they count as single bytes."""
        return replace(self, typesize=itemsize if itemsize <= _LARGEST_TYPESIZE else 1)

    def encode(self, data: Buffer) -> Buffer:
        """Return the chunk."""
        word = self._shuffle()
        return self.encode_version(data, 1, () if word == "none" else (word,))

    def encode_version(
        self, data: Buffer, version: Literal[1, 2], filters: tuple[str, ...]
    ) -> Buffer:
        """Return the chunk in a version of the Blosc format, with filters by their names."""
        return blosc.compress(
            data,
            typesize=self.typesize,
            codec=self.cname,
            level=self.clevel,
            filters=filters,
            blocksize=self.blocksize or None,
            version=version,
        )

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the chunk."""
        if len(data) > int.from_bytes(data[12:HEADER_BYTES], "little") >= HEADER_BYTES:
            end = int.from_bytes(data[12:HEADER_BYTES], "little")
            raise CorruptionError(f"Blosc chunk: cbytes claims {end} bytes, {len(data)} are stored")
        header = ChunkHeader.parse(data)
        header.check_decodable()
        claim = header.nbytes
        if size is not None and claim != size:
            raise CorruptionError(f"Blosc chunk: nbytes claims {claim} bytes, {size} are due")
        return blosc.decompress(data, limit=limit if size is None else size)

    def native_coding(self) -> NativeCoding:
        """Return the same coding for the native kernel."""
        return NativeCoding(
            kind=self.name,
            level=self.clevel,
            codec=self.cname,
            shuffle=self._shuffle(),
            typesize=self.typesize,
            blocksize=self.blocksize,
        )

    @property
    def shuffle_word(self) -> str:
        """How items are shuffled, as a word: "noshuffle", "shuffle" or "bitshuffle"."""
        return {"none": "noshuffle"}.get(self._shuffle(), self._shuffle())

    def _shuffle(self) -> str:
        if self.shuffle == _AUTO:
            return "bitshuffle" if self.typesize == 1 else "shuffle"
        return ("none", "shuffle", "bitshuffle")[self.shuffle]


@register
@dataclass(frozen=True, slots=True)
class Blosc2(Compressor):
    """One chunk of Blosc 2, with the parameters of `Blosc`; see `ingot.interop.numcodecs`.

    `delta` is a further filter, which only chunks in blsk have: "items" stores items as differences
    from those of the first block, before they are shuffled; "bytes" stores bytes as differences
    from those in front of them, behind the shuffle; "none" is none.

    >>> Blosc2(Blosc("zstd", 1), "bytes").filters
    ('shuffle', 'bytedelta')
    """

    name: ClassVar[str] = "blosc2"
    spelling: ClassVar[tuple[str, ...]] = (*Blosc.spelling, "delta")
    parameters: Blosc = Blosc()
    delta: str = "none"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        made = cls(Blosc.parse(fields), fields.choice("delta", _DELTAS, "none"))
        if made.delta == "bytes" and made.parameters.shuffle != 1:
            raise FormatError(f"{fields.where}: delta is 'bytes', which needs a shuffle of bytes")
        return made

    def config(self) -> dict[str, Any]:
        """Return the stage as a file spells it."""
        found = {**self.parameters.config(), "id": self.name}
        return found if self.delta == "none" else {**found, "delta": self.delta}

    @property
    def filters(self) -> tuple[str, ...]:
        """The filters of the chunk, in the order in which they are applied."""
        word = self.parameters.native_coding().shuffle
        shuffled = () if word == "none" else (word,)
        if self.delta == "items":
            return ("delta", *shuffled)
        return (*shuffled, "bytedelta") if self.delta == "bytes" else shuffled

    def bind(self, itemsize: int) -> Self:
        """Return the stage for items of `itemsize` bytes."""
        return replace(self, parameters=self.parameters.bind(itemsize))

    def encode(self, data: Buffer) -> Buffer:
        """Return the chunk."""
        return self.parameters.encode_version(data, 2, self.filters)

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the chunk."""
        return self.parameters.decode(data, size, limit)

    def native_coding(self) -> NativeCoding:
        """Return the same coding as that of `Blosc`, by the name of this codec."""
        filters = "+".join(self.filters) or "none"
        return replace(self.parameters.native_coding(), kind=self.name, shuffle=filters)


@register
@dataclass(frozen=True, slots=True)
class Zlib(Compressor):
    """One zlib stream."""

    name: ClassVar[str] = "zlib"
    spelling: ClassVar[tuple[str, ...]] = ("level",)
    level: int = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(fields.integer("level", 1, low=-1, high=9))

    def encode(self, data: Buffer) -> Buffer:
        """Return the stream."""
        return zlib.compress(data, self.level)

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the stream."""
        return _decode_streams(self.name, zlib.decompressobj, data, size, limit, several=False)

    def native_coding(self) -> NativeCoding:
        """Return the same coding for the native kernel."""
        return NativeCoding(kind=self.name, level=self.level)


@register
@dataclass(frozen=True, slots=True)
class Gzip(Compressor):
    """Gzip members, one after the other; zeros may follow them."""

    name: ClassVar[str] = "gzip"
    spelling: ClassVar[tuple[str, ...]] = ("level",)
    level: int = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(fields.integer("level", 1, low=-1, high=9))

    def encode(self, data: Buffer) -> Buffer:
        """Return one member without a time stamp, so that equal data give equal bytes."""
        return gzip.compress(data, self.level, mtime=0)

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the members."""
        return _decode_streams(self.name, _gzip_decoder, data, size, limit, padded=True)

    def native_coding(self) -> NativeCoding:
        """Return the same coding for the native kernel."""
        return NativeCoding(kind=self.name, level=self.level)


@register
@dataclass(frozen=True, slots=True)
class Bz2(Compressor):
    """Bzip2 streams, one after the other."""

    name: ClassVar[str] = "bz2"
    spelling: ClassVar[tuple[str, ...]] = ("level",)
    level: int = 1

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        return cls(fields.integer("level", 1, low=1, high=9))

    def encode(self, data: Buffer) -> Buffer:
        """Return one stream."""
        return bz2.compress(data, self.level)

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the streams."""
        return _decode_streams(self.name, bz2.BZ2Decompressor, data, size, limit)


@register
@dataclass(frozen=True, slots=True)
class Lzma(Compressor):
    """LZMA; `format` and `check` are the constants of the standard library's module."""

    name: ClassVar[str] = "lzma"
    spelling: ClassVar[tuple[str, ...]] = ("preset",)
    chosen_from: ClassVar[Mapping[str, tuple[range, ...]]] = {
        "preset": (range(10), range(lzma.PRESET_EXTREME, lzma.PRESET_EXTREME + 10))
    }
    format: int = lzma.FORMAT_XZ
    check: int = -1
    preset: int | None = None
    filters: tuple[Mapping[str, int], ...] | None = None

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; only raw streams need filters to decode."""
        preset = fields.value("preset", None)
        return cls(
            format=fields.integer("format", lzma.FORMAT_XZ, high=lzma.FORMAT_RAW),
            check=fields.integer("check", -1, low=-1, high=lzma.CHECK_SHA256),
            preset=None if preset is None else fields.integer("preset", high=2**32 - 1),
            filters=_parse_lzma_filters(fields),
        )

    def encode(self, data: Buffer) -> Buffer:
        """Return one stream."""
        try:
            return lzma.compress(data, self.format, self.check, self.preset, self._filters())
        except (lzma.LZMAError, ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"lzma: cannot encode with {self.config()}: {error}") from None

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the content of the streams."""
        several = self.format in (lzma.FORMAT_AUTO, lzma.FORMAT_XZ)
        return _decode_streams(
            self.name, self._decoder, data, size, limit, several=several, padded=several
        )

    def _decoder(self) -> lzma.LZMADecompressor:
        try:
            if self.format == lzma.FORMAT_RAW:
                return lzma.LZMADecompressor(self.format, filters=self._filters())
            return lzma.LZMADecompressor(self.format, memlimit=_LZMA_MEMORY)
        except (lzma.LZMAError, ValueError, TypeError, OverflowError) as error:
            raise FormatError(f"lzma: cannot decode with {self.config()}: {error}") from None

    def _filters(self) -> list[dict[str, int]] | None:
        return None if self.filters is None else [dict(each) for each in self.filters]


@register
@dataclass(frozen=True, slots=True)
class Base64(Compressor):
    """Base64 text, padded, on one line."""

    name: ClassVar[str] = "base64"

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
        return cls()

    def encoded_size(self, size: int) -> int:
        """Return the length of the text."""
        return (size + 2) // 3 * 4

    def encode(self, data: Buffer) -> Buffer:
        """Return the text."""
        return base64.b64encode(data)

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the bytes."""
        if size is None and len(data) // 4 * 3 > limit + 2:
            raise LimitError(f"base64: {len(data)} characters hold more than {limit} bytes")
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise CorruptionError(f"base64: the text is damaged: {error}") from None


@register
@dataclass(frozen=True, slots=True)
class Shuffle(Compressor):
    """The first bytes of all items, then the second ones, and so on."""

    name: ClassVar[str] = "shuffle"
    spelling: ClassVar[tuple[str, ...]] = ("elementsize",)
    elementsize: int = 4

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe; sizes 0 and 1 leave the bytes unchanged."""
        elementsize = fields.integer("elementsize", 4, high=2**31 - 1)
        fields.finish()
        return cls(elementsize)

    def encoded_size(self, size: int) -> int:
        """Return `size`; raise unless it is a multiple of the item size."""
        if size % max(self.elementsize, 1):
            raise FormatError(
                f"shuffle: {size} bytes are not a multiple of {self.elementsize} bytes"
            )
        return size

    def encode(self, data: Buffer) -> Buffer:
        """Return the shuffled bytes."""
        self.encoded_size(len(data))
        return shuffle(np.frombuffer(data, np.uint8), max(self.elementsize, 1)).data

    def decode(self, data: Buffer, size: int | None, limit: int) -> Buffer:
        """Return the bytes in their original order."""
        if len(data) % max(self.elementsize, 1):
            raise CorruptionError(
                f"shuffle: {len(data)} bytes are not a multiple of {self.elementsize} bytes"
            )
        return unshuffle(np.frombuffer(data, np.uint8), max(self.elementsize, 1)).data


class _StreamDecoder(Protocol):
    """What the decoders of zlib, bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: Buffer, max_length: int, /) -> bytes: ...


def _gzip_decoder() -> _StreamDecoder:
    return zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)


def _decode_streams(
    name: str,
    start: Callable[[], _StreamDecoder],
    data: Buffer,
    size: int | None,
    limit: int,
    *,
    several: bool = True,
    padded: bool = False,
) -> bytearray:
    """Decode one stream, or `several` in a row; if `padded`, zeros may follow them."""
    view, output, position = memoryview(data), bytearray(), 0
    most = limit if size is None else size
    while position == 0 or (position < len(view) and not (padded and not any(view[position:]))):
        if position and not several:
            raise CorruptionError(f"{name}: {len(view) - position} bytes follow the stream")
        decoder = start()
        try:
            position = _decode_stream(decoder, view, position, output, most)
        except EOFError:
            raise CorruptionError(f"{name}: the stream ends early, at {len(view)} bytes") from None
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            if "limit" in str(error):
                raise LimitError(f"lzma: the decoder needs more memory: {error}") from None
            raise CorruptionError(f"{name}: the stream is damaged: {error}") from None
        if len(output) > most and size is None:
            raise LimitError(f"{name}: the stream holds more than {limit} bytes, the limit")
        if len(output) > most:
            raise CorruptionError(f"{name}: {size} bytes are due, the stream holds more")
    if size is not None and len(output) != size:
        raise CorruptionError(f"{name}: {size} bytes are due, the stream holds {len(output)}")
    return output


def _decode_stream(
    decoder: _StreamDecoder, view: memoryview, position: int, output: bytearray, most: int
) -> int:
    """Append the decoded stream at `position` to `output`, and return where the stream ends.

    Stops when `output` has more than `most` bytes; raises EOFError if the data ends first.
    """
    while not decoder.eof and len(output) <= most:
        # Decoders of bz2 and lzma keep input that they could not use, that of zlib returns it.
        needs_input = getattr(decoder, "needs_input", True)
        window = view[position : position + _WINDOW] if needs_input else view[:0]
        # Room for one more byte: only then does a decoder read the checksum at the end.
        part = decoder.decompress(window, most - len(output) + 1)
        output += part
        position += len(window) - len(getattr(decoder, "unconsumed_tail", b""))
        if not part and not window and not decoder.eof:
            raise EOFError
    return position - len(decoder.unused_data)


def _parse_lzma_filters(fields: FieldReader) -> tuple[Mapping[str, int], ...] | None:
    found = fields.value("filters", None)
    if found is None:
        return None
    if not isinstance(found, list) or not 1 <= len(found) <= 4:
        raise fields.wrong("filters", found, "a list of one to four filters")
    for each in found:
        if not isinstance(each, dict) or "id" not in each:
            raise FormatError(f"lzma: the filter {shown(each)} is not an object with an id")
        if not all(type(value) is int and 0 <= value < 2**63 for value in each.values()):
            raise FormatError(f"lzma: the filter {shown(each)} has a value that is not an integer")
        if each.get("dict_size", 0) > _LZMA_MEMORY:
            raise LimitError(
                f"lzma: dict_size is {each['dict_size']} bytes, the limit is {_LZMA_MEMORY}"
            )
    return tuple(found)

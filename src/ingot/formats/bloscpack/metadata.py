"""The metadata section of a Bloscpack file, and the description of an array in it.

The section is a head of 32 bytes, a JSON document that is compressed by zlib or not, room for a
longer one, and a digest of the stored bytes of the document. The digest lies behind the room.

The head is little-endian::

    0   magic "JSON", 8 bytes   12  decoded bytes of the document, u32
    8   options, u8: 0          16  bytes of document and room, u32
    9   checksum, u8            20  stored bytes of the document, u32
    10  codec, u8: 0 or 1       24  reserved, 8 bytes
    11  level of the codec, u8

A document that describes an array has four keys of bloscpack: `dtype`, `shape`, `order` and
`container`. Others may stand beside them.
"""

import math
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ingot import dtypes
from ingot.codecs.checksums import digest
from ingot.codecs.codec import Buffer
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError, LimitError, UnsafeError, UnsupportedError
from ingot.fields import INT64, FieldReader
from ingot.formats import json, literals
from ingot.formats.bloscpack.header import CHECKSUMS

__all__ = [
    "DESCRIPTION",
    "HEAD_BYTES",
    "ArrayDescription",
    "MetadataHead",
    "attributes",
    "dtype_text",
    "pack",
    "parse",
    "parse_description",
    "parse_dtype",
    "repack",
    "room_for",
]

HEAD_BYTES: Final = 32
"""The bytes of the head of the section."""

DESCRIPTION: Final = ("dtype", "shape", "order", "container")
"""The keys that describe an array, in the order of bloscpack."""

_HEAD: Final = struct.Struct("<8sBBBBIII8s")
_MAGIC: Final = b"JSON"
_NAMES: Final = tuple(CHECKSUMS)
_CODECS: Final = ("none", "zlib")
_LEVEL: Final = 6
_NUMPY: Final = "numpy"
_LITERAL: Final = re.compile(r"""\s*(?:[\[(]|u?['"])""")
_LARGEST_FIELD: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class MetadataHead:
    """The head of a metadata section.

    >>> head = MetadataHead.parse(pack({"a": 1}))
    >>> head.size, head.room, head.section_bytes
    (7, 70, 106)
    """

    checksum: str
    codec: str
    level: int
    size: int
    """The bytes of the JSON document."""
    room: int
    """The bytes that its stored form may have: `max_meta_size`."""
    stored: int
    """The bytes that it has: `meta_comp_size`."""

    @classmethod
    def parse(cls, data: Buffer, available: int | None = None) -> "MetadataHead":
        """Return the head of a section, of which `available` bytes exist if that is known."""
        if len(data) < HEAD_BYTES:
            raise CorruptionError(
                f"Bloscpack metadata: a head needs {HEAD_BYTES} bytes, {len(data)} are stored"
            )
        magic, _, checksum, codec, level, size, room, stored, _ = _HEAD.unpack_from(data)
        # The documentation pads the magic by spaces, the program by zeros.
        if magic.rstrip(b"\0 ") != _MAGIC:
            error = FormatError(f"Bloscpack metadata: it is {magic!r}, only {_MAGIC!r} is known")
            if magic[:1] in (b"{", b"["):
                error.add_note(
                    "the file looks like one of the development versions of 2012, whose metadata "
                    "has no head"
                )
            raise error
        if checksum >= len(_NAMES):
            raise FormatError(
                f"Bloscpack metadata: meta_checksum is {checksum}, it lies in 0..{len(_NAMES) - 1}"
            )
        if codec >= len(_CODECS):
            raise FormatError(
                f"Bloscpack metadata: meta_codec is {codec}, it lies in 0..{len(_CODECS) - 1}"
            )
        if stored > room:
            raise FormatError(
                f"Bloscpack metadata: meta_comp_size is {stored}, max_meta_size is {room}"
            )
        if codec == 0 and stored != size:
            raise CorruptionError(
                f"Bloscpack metadata: not compressed, {size} bytes are claimed, {stored} are stored"
            )
        head = cls(_NAMES[checksum], _CODECS[codec], level, size, room, stored)
        if available is not None and head.section_bytes > available:
            raise CorruptionError(
                f"Bloscpack metadata: the section claims {head.section_bytes} bytes, "
                f"{available} are stored"
            )
        if size > json.LARGEST:
            raise LimitError(
                f"Bloscpack metadata: meta_size claims {size} bytes, the limit is {json.LARGEST}"
            )
        return head

    def pack(self) -> bytes:
        """Return the bytes that `parse` reads."""
        numbers = _NAMES.index(self.checksum), _CODECS.index(self.codec), self.level
        sizes = self.size, self.room, self.stored
        return _HEAD.pack(_MAGIC, 0, *numbers, *sizes, b"")

    @property
    def digest_bytes(self) -> int:
        """The bytes of the digest."""
        return CHECKSUMS[self.checksum]

    @property
    def digest_start(self) -> int:
        """Where in the section the digest lies."""
        return HEAD_BYTES + self.room

    @property
    def section_bytes(self) -> int:
        """The length of the whole section."""
        return self.digest_start + self.digest_bytes

    def decode(self, document: Buffer, stored_digest: Buffer) -> Any:
        """Return the value of the stored document, after checking its digest."""
        if len(document) != self.stored or len(stored_digest) != self.digest_bytes:
            raise CorruptionError(
                f"Bloscpack metadata: {self.stored} and {self.digest_bytes} bytes are claimed, "
                f"{len(document)} and {len(stored_digest)} are stored"
            )
        fact = digest(self.checksum, document)
        if fact != bytes(stored_digest):
            raise CorruptionError(
                f"Bloscpack metadata: the {self.checksum} is {fact.hex()}, "
                f"{bytes(stored_digest).hex()} is stored"
            )
        text = bytes(document) if self.codec == "none" else _inflated(document, self.size)
        return json.parse(text, "Bloscpack metadata", allow_nan=True)


def parse(section: Buffer) -> Any:
    """Return the value in a whole section.

    >>> parse(pack([1, {"two": 2}], checksum="sha256"))
    [1, {'two': 2}]
    """
    view = memoryview(section)
    head = MetadataHead.parse(view, len(view))
    document = view[HEAD_BYTES : HEAD_BYTES + head.stored]
    return head.decode(document, view[head.digest_start : head.section_bytes])


def pack(value: Any, checksum: str = "adler32", room: int | None = None) -> bytes:
    """Return the section of a value, with the room of `room_for` if none is given.

    The document is compressed where that does not make it longer.
    """
    text, codec, document = _deflated(value)
    room = room_for(len(text)) if room is None else room
    head = MetadataHead(
        checksum, codec, _LEVEL if codec == "zlib" else 0, len(text), room, len(document)
    )
    if not len(document) <= room <= _LARGEST_FIELD:
        raise LimitError(f"Bloscpack metadata: {len(document)} bytes in a room of {room}")
    padding = bytes(room - len(document))
    return b"".join((head.pack(), document, padding, digest(checksum, document)))


def repack(head: MetadataHead, value: Any) -> list[tuple[int, bytes]] | None:
    """Return what changes in a section to hold another value: bytes with their places in it.

    None when the room of the section is too small. The checksum stays.

    >>> head = MetadataHead.parse(pack({"a": 1}, room=20))
    >>> [place for place, _ in repack(head, {"a": 2})], repack(head, {"a": "x" * 9}) is None
    ([0, 52], False)
    >>> repack(head, list(range(10, 40))) is None
    True
    """
    text, codec, document = _deflated(value)
    if len(document) > head.room:
        return None
    level = _LEVEL if codec == "zlib" else 0
    new = MetadataHead(head.checksum, codec, level, len(text), head.room, len(document))
    # No byte of the older document stays behind a shorter one.
    padding = bytes(max(0, head.stored - len(document)))
    changes = [(0, b"".join((new.pack(), document, padding)))]
    if head.digest_bytes:
        changes.append((head.digest_start, digest(head.checksum, document)))
    return changes


def room_for(size: int) -> int:
    """Return the room for a document of `size` bytes: it may grow, and is rewritten in place.

    >>> room_for(64), room_for(1000), room_for(10_000)
    (640, 4096, 20000)
    """
    return min(10 * size, max(4096, 2 * size))


@dataclass(frozen=True, slots=True)
class ArrayDescription:
    """What the metadata says of an array; `attrs` are the other keys.

    >>> array = ArrayDescription((2, 3), dtypes.parse("<f8"), attrs={"unit": "m"})
    >>> array.document()
    {'dtype': "'<f8'", 'shape': [2, 3], 'order': 'C', 'container': 'numpy', 'unit': 'm'}
    >>> parse_description(array.document()) == array
    True
    """

    shape: tuple[int, ...]
    dtype: DType
    order: str = "C"
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Return the value that `parse_description` reads."""
        for key in DESCRIPTION:
            if key in self.attrs:
                raise UnsupportedError(
                    f"attribute {key!r}: the metadata of a Bloscpack array has a key of this name"
                )
        values = (dtype_text(self.dtype), list(self.shape), self.order, _NUMPY)
        return {**dict(zip(DESCRIPTION, values, strict=True)), **self.attrs}

    @property
    def nbytes(self) -> int:
        """The decoded bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize


def parse_description(value: object) -> ArrayDescription | None:
    """Return the array that a document describes; None when the file is a plain one.

    >>> parse_description({"dtype": "float64", "shape": [2500]}) is None
    True
    >>> parse_description({"order": "C", "container": "pandas"})
    Traceback (most recent call last):
    ingot.errors.FormatError: Bloscpack metadata: container is 'pandas', not one of 'numpy'
    """
    if not isinstance(value, dict) or "order" not in value:
        return None
    fields = FieldReader("Bloscpack metadata", value)
    fields.choice("container", (_NUMPY,))
    if not all(key in value for key in DESCRIPTION):
        return None
    order = fields.choice("order", ("C", "F"))
    shape = fields.integers("shape", low=0)
    dtype = parse_dtype(fields.value("dtype"))
    attrs = {key: each for key, each in value.items() if key not in DESCRIPTION}
    if math.prod(shape) * dtype.itemsize > INT64:
        raise FormatError(
            f"Bloscpack metadata: shape {list(shape)} of {dtype} has more bytes than 64 bits count"
        )
    return ArrayDescription(shape, dtype, order, attrs)


def attributes(value: object) -> dict[str, Any]:
    """Return the metadata of a plain file as attributes; None stands for no section at all.

    >>> attributes({"a": 1}), attributes([1, 2]), attributes(None)
    ({'a': 1}, {'metadata': [1, 2]}, {})
    """
    if value is None:
        return {}
    return dict(value) if isinstance(value, dict) else {"metadata": value}


def parse_dtype(spelling: object, where: str = "Bloscpack metadata: dtype") -> DType:
    """Return a type in any spelling: of 0.7.2 and later, of 0.4.1 to 0.7.1, of 0.4.0.

    Text is a literal of Python, or a type string; fields are lists or tuples. A single field
    without a name was the spelling of a plain type.

    >>> parse_dtype("'<f8'"), parse_dtype("<f8"), parse_dtype([["", "<f8"]])
    (dtype('float64'), dtype('float64'), dtype('float64'))
    >>> parse_dtype("[('a', '|S3'), ('b', '<i4', (2,))]")
    dtype([('a', 'S3'), ('b', '<i4', (2,))])
    """
    if isinstance(spelling, str) and _LITERAL.match(spelling):
        spelling = literals.parse(spelling, where)
    listed = _lists(spelling)
    match listed:
        case [["", kind, *shape]] if shape in ([], [[]]):
            listed = kind
    dtype = dtypes.parse(listed, where)
    if dtype.hasobject:
        raise UnsafeError(f"{where}: {dtype}: addresses of objects, not objects")
    return dtype


def dtype_text(dtype: DType) -> str:
    """Return the spelling of bloscpack: a literal of Python in a string.

    >>> import numpy as np
    >>> dtype_text(np.dtype("<f8")), dtype_text(np.dtype([("a", "<i4")]))
    ("'<f8'", "[('a', '<i4')]")
    """
    if dtypes.is_variable(dtype):
        raise UnsupportedError(f"dtype {dtype}: bloscpack holds items of a fixed size")
    dtypes.pack(dtype)  # Raises an error for fields that cannot be spelled.
    text = repr(dtype.str if dtype.names is None else dtype.descr)
    if parse_dtype(text) != dtype:
        raise UnsupportedError(f"dtype {dtype}: bloscpack has no spelling for it")
    return text


def _lists(spelling: object) -> object:
    if isinstance(spelling, list | tuple):
        return [_lists(part) for part in spelling]
    return spelling


def _deflated(value: Any) -> tuple[bytes, str, bytes]:
    """Return the document of a value, the codec that makes it shorter, and its stored form."""
    text = json.pack_compact(value, "Bloscpack metadata", allow_nan=True)
    packed = zlib.compress(text, _LEVEL)
    return (text, "zlib", packed) if len(packed) <= len(text) else (text, "none", text)


def _inflated(document: Buffer, size: int) -> bytes:
    """Return `size` bytes of a zlib stream, which must hold as many."""
    inflater = zlib.decompressobj()
    try:
        # One byte more than claimed shows that the stream holds more, without inflating all.
        text = inflater.decompress(document, size + 1)
    except zlib.error as error:
        raise CorruptionError(f"Bloscpack metadata: zlib: {error}") from None
    if len(text) != size or not inflater.eof:
        more = "more" if len(text) > size else str(len(text))
        raise CorruptionError(
            f"Bloscpack metadata: meta_size claims {size} bytes, the stream holds {more}"
        )
    return text

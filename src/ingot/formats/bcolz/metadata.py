"""The two documents of a bcolz array, ``meta/storage`` and ``meta/sizes``.

This module parses and packs them, in all spellings that bcolz, carray and blz have written:
list-valued defaults, booleans for numbers. Unknown fields are kept and written again. Where the
documents lie is not its concern.

Only the shape in ``meta/sizes`` is used. The numbers of bytes beside it are not reliable in files
of any version; they are written as estimates.
"""

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from ingot.blosc.chunk import CODECS
from ingot.blosc.header import LARGEST_BLOCK
from ingot.codecs.codec import CHUNK_LIMIT, ChunkSpec, Filter, Raw, Stage
from ingot.codecs.compressors import Blosc
from ingot.codecs.filters import Quantize
from ingot.dtypes import DType, zero
from ingot.errors import ArgumentError, FormatError, LimitError, UnsupportedError
from ingot.fields import INT64, FieldReader, shown
from ingot.formats import json
from ingot.formats.bcolz import types as bcolz_types
from ingot.formats.bcolz.chunk_file import ChunkFileChain, PickledObject
from ingot.formats.zarr import fills
from ingot.schema import ArraySchema

__all__ = [
    "AUTO",
    "BLOCKSIZE",
    "BLOCK_BYTES",
    "SIZES",
    "STORAGE",
    "BcolzMetadata",
    "Storage",
    "check_stages",
    "default_chunk",
    "draw_identity",
    "pack_parameters",
    "parse_identity",
    "parse_parameters",
    "parse_sizes",
    "row_bytes",
    "with_identity",
    "without_identity",
]

STORAGE: Final = "meta/storage"
SIZES: Final = "meta/sizes"

_SIZES_FIELDS: Final = "shape", "nbytes", "cbytes"
_OBJECT: Final = np.dtype(object)
AUTO: Final = "x_chunklen"
_FILL: Final = "x_fill"
BLOCKSIZE: Final = "x_blocksize"
_IDENTITY: Final = "x_id"
_KNOWN: Final = frozenset(
    {"dtype", "cparams", "chunklen", "expectedlen", "dflt", AUTO, _FILL, BLOCKSIZE}
)
_IDENTITY_DIGITS: Final = re.compile("[0-9a-f]{16}")
# How Ingot ends a document: the identity is the last field.
_IDENTITY_END: Final = re.compile(rb', "x_id": "([0-9a-f]{16})"}\n\Z')
_IDENTITY_END_BYTES: Final = 30
_MOST_DIGITS: Final = 300

# Sizes of chunks in bytes. Large arrays get larger chunks, up to the maximum, for fewer files.
_LEAST_CHUNK: Final = 2**20
_MOST_CHUNK: Final = 2**24
_MOST_FILES: Final = 1024
BLOCK_BYTES: Final = 16 << 10
"""Reading a row costs reading its block. Blocks this short cost at most 5 % more space."""


@dataclass(frozen=True, slots=True)
class Storage:
    """The contents of a ``meta/storage``: everything about an array except its shape.

    >>> Storage.parse(b'''{"dtype": "int32", "cparams": {"shuffle": true, "clevel": 5},
    ...     "chunklen": 65536, "dflt": 0, "expectedlen": 100000}''').blosc.cname
    'blosclz'
    """

    dtype: DType
    blosc: Blosc
    quantize: int
    chunklen: int
    fill: Any
    document: Mapping[str, Any]
    """All fields but the identity."""
    identity: int | None = None
    """What the trailers of the array's chunks repeat; None where the document has none."""

    @classmethod
    def parse(cls, data: bytes, where: str = STORAGE) -> "Storage":
        """Return the contents of a document."""
        return _parse_storage(bytes(data), where)

    @classmethod
    def of(cls, schema: ArraySchema) -> "Storage":
        """Return the storage of a new array."""
        blosc, quantize = _parameters_of(schema)
        dtype, chunklen = schema.dtype, schema.chunks[0]
        dflt = _pack_default(schema.fill, dtype)
        values: dict[str, Any] = {
            "dtype": bcolz_types.pack(dtype),
            "cparams": pack_parameters(blosc, quantize),
            "chunklen": chunklen,
            "expectedlen": schema.shape[0],
            "dflt": dflt,
        }
        if dtype != _OBJECT and not _same(_parse_default(dflt, dtype, ()), schema.fill, dtype):
            values[_FILL] = fills.pack(schema.fill, dtype)
        if isinstance(schema.chain, ChunkFileChain) and schema.chain.auto:
            values[AUTO] = "auto"
        if blosc.blocksize:
            values[BLOCKSIZE] = blosc.blocksize
        return cls(dtype, blosc, quantize, chunklen, schema.fill, values)

    @property
    def auto(self) -> bool:
        """Whether the format chose the length of chunks."""
        return self.document.get(AUTO) == "auto"

    def identified(self, identity: int) -> "Storage":
        """Return the same storage with an identity."""
        own = self.dtype, self.blosc, self.quantize, self.chunklen, self.fill, self.document
        return Storage(*own, identity)

    def pack(self) -> bytes:
        """Return the document that `parse` reads back, unknown fields included."""
        values = dict(self.document)
        if self.identity is not None:
            values[_IDENTITY] = f"{self.identity:016x}"
        return json.pack_line(values, STORAGE, allow_nan=True)

    @property
    def unknown_fields(self) -> Mapping[str, Any]:
        """The fields that neither bcolz nor Ingot defines."""
        return {name: v for name, v in self.document.items() if name not in _KNOWN}

    def annotated(self, fields: Mapping[str, Any]) -> "Storage":
        """Return the same storage with further fields."""
        return replace(self, document={**self.document, **fields})

    def with_chunklen(self, chunklen: int) -> "Storage":
        """Return the same storage with chunks of another length."""
        return replace(self, chunklen=chunklen, document={**self.document, "chunklen": chunklen})

    def chain(self) -> ChunkFileChain:
        """Return the codec chain of the chunks."""
        blosc = replace(self.blosc, typesize=bcolz_types.typesize(self.dtype))
        if self.dtype == _OBJECT:
            return ChunkFileChain((), PickledObject(), (blosc,), identity=self.identity)
        filters: tuple[Filter, ...] = ()
        if self.quantize and self.dtype.kind == "f":
            filters = (Quantize(self.quantize, self.dtype, self.dtype),)
        stages = filters, Raw(), (blosc,)
        return ChunkFileChain(*stages, self.chunklen, self.auto, self.identity)


@dataclass(frozen=True, slots=True)
class BcolzMetadata:
    """The metadata of an array: the contents of both documents and its attributes."""

    storage: Storage
    sizes: Mapping[str, Any]
    schema: ArraySchema

    @classmethod
    def of(
        cls,
        storage: Storage,
        shape: tuple[int, ...],
        attrs: Mapping[str, Any],
        sizes: Mapping[str, Any] | None = None,
    ) -> "BcolzMetadata":
        """Return the metadata of an array of that shape."""
        rows = 1 if storage.dtype == _OBJECT else storage.chunklen
        cut = (rows, *(max(1, length) for length in shape[1:]))
        schema = ArraySchema(
            shape,
            storage.dtype,
            cut,
            storage.chain(),
            storage.fill,
            attrs=attrs,
            padded=False,
            sparse=False,
        )
        return cls(storage, _update_sizes(sizes or {}, schema), schema)

    @classmethod
    def parse(
        cls,
        storage: bytes,
        sizes: bytes,
        attrs: Mapping[str, Any],
        where: tuple[str, str] = (STORAGE, SIZES),
    ) -> "BcolzMetadata":
        """Return the metadata in two documents; raise an error if they contradict each other."""
        metadata = _parse_metadata(bytes(storage), bytes(sizes), where)
        plain = type(attrs) is dict and not attrs
        return metadata if plain else metadata.described(attrs)

    def resized(self, rows: int) -> "BcolzMetadata":
        """Return the metadata of the same array with another number of rows.

        When an array without rows gets its first rows and the format chose the length of chunks, it
        is chosen again for that number of rows.
        """
        old, element = self.schema.shape[0], self.schema.shape[1:]
        storage = self.storage
        if not old and storage.auto and storage.dtype != _OBJECT:
            best = default_chunk(rows, row_bytes((rows, *element), storage.dtype))
            storage = storage if best == storage.chunklen else storage.with_chunklen(best)
        if storage is not self.storage:
            return BcolzMetadata.of(storage, (rows, *element), self.schema.attrs, self.sizes)
        schema = self.schema.resized((rows, *element))
        return BcolzMetadata(storage, _update_sizes(self.sizes, schema), schema)

    def described(self, attrs: Mapping[str, Any]) -> "BcolzMetadata":
        """Return the metadata with other attributes."""
        return replace(self, schema=self.schema.described(attrs))

    def identified(self, identity: int) -> "BcolzMetadata":
        """Return the metadata of the same array with an identity."""
        chain = self.schema.chain
        assert isinstance(chain, ChunkFileChain)
        schema = self.schema.coded(chain.identified(identity))
        return BcolzMetadata(self.storage.identified(identity), self.sizes, schema)

    def pack_sizes(self) -> bytes:
        """Return the ``meta/sizes`` of the array."""
        sizes = self.sizes
        if tuple(sizes) == _SIZES_FIELDS:
            shape, nbytes, cbytes = sizes.values()
            numbers = [*shape, nbytes, cbytes]
            if set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) <= INT64:
                # What `pack_line` returns, for every append.
                text = f'{{"shape": {numbers[:-2]}, "nbytes": {nbytes}, "cbytes": {cbytes}}}\n'
                return text.encode("ascii")
        return json.pack_line(dict(self.sizes), SIZES)


def draw_identity() -> int:
    """Return the identity of a new array.

    >>> 0 <= draw_identity() < 2**64
    True
    """
    return int.from_bytes(os.urandom(8), "little")


def with_identity(storage: bytes, identity: int) -> bytes:
    """Return a ``meta/storage`` that `Storage.pack` made without an identity, with one.

    >>> with_identity(b'{"chunklen": 4}\\n', 255)
    b'{"chunklen": 4, "x_id": "00000000000000ff"}\\n'
    """
    return b'%b, "x_id": "%016x"}\n' % (storage[:-2], identity)


def without_identity(storage: bytes) -> tuple[bytes, int | None]:
    """Return a ``meta/storage`` without the identity at its end, and the identity.

    Arrays that differ only by their identities share what is parsed of the rest. A document whose
    identity stands elsewhere, or may stand there once more, is returned as it is, with None.

    >>> without_identity(b'{"chunklen": 4, "x_id": "00000000000000ff"}\\n')
    (b'{"chunklen": 4}\\n', 255)
    """
    found = _IDENTITY_END.match(storage, max(0, len(storage) - _IDENTITY_END_BYTES))
    if found is None:
        return storage, None
    rest = storage[: found.start()] + b"}\n"
    # A backslash may spell a letter of the key.
    if b"x_id" in rest or b"\\" in rest:
        return storage, None
    return rest, int(found[1], 16)


def parse_sizes(data: bytes, where: str = SIZES) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the shape that a ``meta/sizes`` claims, and all of its fields.

    >>> parse_sizes(b'{"shape": [100000], "nbytes": 400000, "cbytes": 266904}')[0]
    (100000,)
    """
    values = json.parse_object(data, where)
    shape = FieldReader(where, values).integers("shape", low=0)
    if not shape:
        raise FormatError(f"{where}: shape is [], an array has one axis at least")
    if math.prod(shape) > INT64 or math.prod(max(1, length) for length in shape) > INT64:
        raise FormatError(f"{where}: shape {list(shape)} has more cells than 64 bits count")
    return shape, values


def row_bytes(shape: tuple[int, ...], dtype: DType) -> int:
    """Return the bytes of one row, at least 1.

    >>> row_bytes((10, 3), np.dtype("f4"))
    12
    """
    return max(1, math.prod(shape[1:]) * dtype.itemsize)


def default_chunk(rows: int, size: float, least: int = _LEAST_CHUNK) -> int:
    """Return the default length of chunks in an array of `rows` rows of `size` bytes.

    `least` is about how many bytes a chunk has at least.

    >>> default_chunk(0, 8), default_chunk(10**9, 8), default_chunk(10**6, 2**30)
    (131072, 1048576, 1)
    """
    best = least
    while best < _MOST_CHUNK and best * _MOST_FILES < rows * size:
        best *= 2
    return max(1, int(best // size))


# Programs open the same array repeatedly.
@lru_cache(maxsize=1024)
def _parse_metadata(storage: bytes, sizes: bytes, where: tuple[str, str]) -> BcolzMetadata:
    rest, identity = without_identity(storage)
    metadata = _parse_rest(rest, sizes, where)
    return metadata if identity is None else metadata.identified(identity)


# Arrays often have equal documents but for their identities.
@lru_cache(maxsize=1024)
def _parse_rest(storage: bytes, sizes: bytes, where: tuple[str, str]) -> BcolzMetadata:
    kept = Storage.parse(storage, where[0])
    shape, counts = parse_sizes(sizes, where[1])
    if math.prod(shape) * kept.dtype.itemsize > INT64:
        raise FormatError(f"{where[1]}: shape {list(shape)} has more bytes than 64 bits count")
    size = kept.chunklen * row_bytes(shape, kept.dtype)
    if kept.dtype != _OBJECT and size > CHUNK_LIMIT:
        raise LimitError(
            f"{where[0]}: chunklen {kept.chunklen} makes chunks of {size} bytes, "
            f"the limit is {CHUNK_LIMIT}"
        )
    return BcolzMetadata.of(kept, shape, {}, counts)


@lru_cache(maxsize=256)
def _parse_storage(data: bytes, where: str) -> Storage:
    values = json.parse_object(data, where, allow_nan=True)
    fields = FieldReader(where, values)
    dtype = bcolz_types.parse(fields.value("dtype"), f"{where}: dtype")
    if not dtype.itemsize:
        raise FormatError(f"{where}: dtype {dtype} has items of 0 bytes")
    chunklen = fields.integer("chunklen", low=1)
    blosc, quantize = parse_parameters(fields)
    fill = _parse_fill(fields, dtype)
    identity = parse_identity(fields)
    rest = {name: value for name, value in values.items() if name != _IDENTITY}
    return Storage(dtype, blosc, quantize, chunklen, fill, rest, identity)


def parse_identity(fields: FieldReader) -> int | None:
    """Return the identity that a ``meta/storage`` states; None where it states none."""
    identity = fields.value(_IDENTITY, None)
    if identity is None:
        return None
    if not (isinstance(identity, str) and _IDENTITY_DIGITS.fullmatch(identity)):
        raise fields.wrong(_IDENTITY, identity, "16 hexadecimal digits")
    return int(identity, 16)


def parse_parameters(fields: FieldReader) -> tuple[Blosc, int]:
    """Return how a ``meta/storage`` says that chunks are compressed, and the digits of floats."""
    field = "cparams" if fields.value("cparams", None) is not None else "bparams"
    values = fields.mapping(field)
    if values is None:
        raise FormatError(f"{fields.where}: cparams is missing")
    inner = FieldReader(f"{fields.where}: {field}", values)
    shuffle = inner.value("shuffle", 1)
    number = int(shuffle) if type(shuffle) is bool else inner.integer("shuffle", 1, high=2)
    cname = inner.text("cname", "blosclz")
    if cname not in CODECS:
        raise UnsupportedError(f"{inner.where}: cname {shown(cname)} is unknown")
    quantize = inner.integer("quantize", 0, high=_MOST_DIGITS)
    blocksize = fields.integer(BLOCKSIZE, 0, high=LARGEST_BLOCK)
    return Blosc(cname, inner.integer("clevel", 5, high=9), number, blocksize), quantize


def pack_parameters(blosc: Blosc, quantize: int = 0) -> dict[str, Any]:
    """Return the ``cparams`` that `parse_parameters` reads."""
    return {
        "clevel": blosc.clevel,
        "shuffle": _shuffle(blosc),
        "cname": blosc.cname,
        "quantize": quantize,
    }


def _parse_fill(fields: FieldReader, dtype: DType) -> Any:
    exact = fields.value(_FILL, None)
    if exact is not None and dtype != _OBJECT:
        return fills.parse(exact, dtype, f"{fields.where}: {_FILL}")
    claim = fields.value("dflt", 0)
    try:
        return _parse_default(claim, dtype, ())
    except (ValueError, TypeError, OverflowError):
        raise FormatError(
            f"{fields.where}: dflt {shown(claim)} is no value of type {dtype}"
        ) from None


def _parse_default(claim: Any, dtype: DType, path: tuple[int, ...]) -> Any:
    """Return the item of a ``dflt``; up to bcolz 1.0 it has the shape of a row."""
    if dtype == _OBJECT:
        return claim
    if isinstance(claim, list) and dtype.names is None:
        first = claim[0] if claim else 0
        if any(each != first for each in claim) or len(path) > 32:
            raise ArgumentError
        return _parse_default(first, dtype, (*path, 0))
    if claim is None or claim == 0 or claim == "":
        return zero(dtype)
    if dtype.names is not None:
        return _parse_structure(claim, dtype)
    if dtype.kind in "SV":
        return _parse_octets(claim, dtype)
    if dtype.kind == "c" and type(claim) in (int, float):
        return dtype.type(claim)
    return fills.parse(claim, dtype)


def _parse_structure(claim: Any, dtype: DType) -> Any:
    names = dtype.names or ()
    # A structure is a list, and so is a row of structures.
    while isinstance(claim, list) and claim and isinstance(claim[0], list) and len(claim) == 1:
        claim = claim[0]
    if not isinstance(claim, list) or len(claim) != len(names):
        raise ArgumentError
    item = np.zeros((), dtype)
    for name, part in zip(names, claim, strict=True):
        item[name] = _parse_default(part, dtype[name].base, ())
    return item[()]


def _parse_octets(claim: Any, dtype: DType) -> Any:
    if not isinstance(claim, str):
        raise ArgumentError
    octets = claim.encode("latin-1")
    if len(octets) > dtype.itemsize:
        raise ArgumentError
    return np.frombuffer(octets.ljust(dtype.itemsize, b"\0"), dtype)[0]


def _pack_default(fill: Any, dtype: DType) -> Any:
    """Return the ``dflt`` of a fill value; 0 where bcolz cannot spell it."""
    kind = dtype.kind
    if kind == "O" or kind in "cmM" or (kind == "f" and dtype.itemsize > 8):
        return 0
    if kind == "S":
        return fill.decode("ascii") if bytes(fill).isascii() else ""
    if kind == "V" and dtype.names is None:
        return "\0" * dtype.itemsize
    if kind == "V":
        return [_pack_default(fill[name], dtype[name]) for name in dtype.names or ()]
    return np.asarray(fill, dtype)[()].tolist()


def _same(fill: Any, other: Any, dtype: DType) -> bool:
    return np.asarray(fill, dtype).tobytes() == np.asarray(other, dtype).tobytes()


def _parameters_of(schema: ArraySchema) -> tuple[Blosc, int]:
    """Return the parameters of Blosc and the number of digits to quantize to, 0 for none."""
    chain = schema.chain
    (blosc,) = chain.compressors
    assert isinstance(blosc, Blosc)
    digits = [each.digits for each in chain.filters if isinstance(each, Quantize)]
    return blosc, digits[0] if digits else 0


def _shuffle(blosc: Blosc) -> int:
    return ("none", "shuffle", "bitshuffle").index(blosc.native_coding().shuffle)


def _update_sizes(sizes: Mapping[str, Any], schema: ArraySchema) -> dict[str, Any]:
    """Return ``meta/sizes`` for a shape; the numbers of bytes are estimates."""
    shape = list(schema.shape)
    if sizes.get("shape") == shape:
        return dict(sizes)
    nbytes = schema.nbytes
    before, stored = sizes.get("nbytes"), sizes.get("cbytes")
    counts = type(before) is int and type(stored) is int
    guess = nbytes if not counts or not before else nbytes * stored // before  # type: ignore[operator]
    return {**sizes, "shape": shape, "nbytes": nbytes, "cbytes": max(guess, 0)}


def check_stages(stages: tuple[Stage, ...] | None, spec: ChunkSpec) -> tuple[Blosc, int]:
    """Return requested codecs as `Blosc` and a number of digits; refuse what bcolz cannot store.

    >>> check_stages(None, ChunkSpec((1,), np.dtype("f8")))[0].cname
    'lz4'
    """
    if stages is None:
        return Blosc(blocksize=BLOCK_BYTES), 0
    quantize = [stage for stage in stages if isinstance(stage, Quantize)]
    blosc = [stage for stage in stages if isinstance(stage, Blosc)]
    if len(quantize) + len(blosc) != len(stages) or max(len(quantize), len(blosc)) > 1:
        raise UnsupportedError("bcolz: chunks are compressed by Blosc, and floats may be quantized")
    if quantize and (quantize[0].dtype != spec.dtype or quantize[0].astype != spec.dtype):
        raise UnsupportedError("bcolz: quantize keeps the type of the items")
    return blosc[0] if blosc else Blosc(clevel=0), quantize[0].digits if quantize else 0

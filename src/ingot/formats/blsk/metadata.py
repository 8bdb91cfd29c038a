"""The metadata of blsk: ``meta/storage``, ``meta/nrows`` and ``meta/attributes``.

This module parses and packs the three documents. ``storage`` says how an array is stored, or each
column of a table; ``nrows`` has the length of the first axis; ``attributes`` are those of the user.
Where chunks lie is not its concern.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np

from ingot import dtypes
from ingot.blosc.header import CODECS, LARGEST_BLOCK
from ingot.codecs.codec import CHUNK_LIMIT, Array, ChunkSpec, Filter, Raw
from ingot.codecs.compressors import Blosc, Blosc2
from ingot.codecs.filters import Transpose
from ingot.codecs.numeric import TruncatePrecision
from ingot.dtypes import DType
from ingot.errors import CorruptionError, FormatError, LimitError, UnsupportedError
from ingot.fields import INT64, MOST_AXES, FieldReader, shown
from ingot.formats import yaml
from ingot.formats.bcolz import types
from ingot.formats.blsk.chunk_file import LARGEST_CAPACITY
from ingot.formats.blsk.slots import SlotChain
from ingot.formats.folder_table import check_folders
from ingot.formats.packs import TrailedPacks, check_rows
from ingot.formats.yaml import Document
from ingot.formats.zarr import fills
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.schema import ArraySchema, RaggedSchema

__all__ = [
    "ATTRIBUTES",
    "AUTO",
    "BLOCKSIZE",
    "FILE_NAME",
    "IDENTITY",
    "NROWS",
    "OTHER_STORAGES",
    "STORAGE",
    "ColumnStorage",
    "Storages",
    "pack_attributes",
    "pack_columns",
    "pack_nrows",
    "parse_attributes",
    "parse_columns",
    "parse_nrows",
]

STORAGE: Final = "meta/storage"
OTHER_STORAGES: Final = ("meta/dtype", "meta/domain")
"""Names that the proposal allows for ``meta/storage`` as well."""
NROWS: Final = "meta/nrows"
ATTRIBUTES: Final = "meta/attributes"

BLOCKSIZE: Final = "x_blocksize"
"""The key in ``compression`` of the length of the blocks of new chunks."""
IDENTITY: Final = "x_id"
"""The key in ``meta/storage`` of the identity of an array."""
AUTO: Final = "x_chunkshape"
"""The key in ``meta/storage`` that says that the format chose the length of packs."""

FILE_NAME: Final = re.compile(r"__([1-9][0-9]{0,18})__\.bin", re.A)
"""The name of a super-chunk file, with its number."""

_TUPLE: Final = re.compile(r"\(\s*((?:[0-9]{1,19}\s*,\s*)*[0-9]{0,19})\s*\)", re.A)
_NROWS: Final = re.compile(rb"[0-9]{1,19}\r?\n\s*")
_SIZED: Final = re.compile("[SUV][0-9]{1,10}", re.A)
_IDENTITY_DIGITS: Final = re.compile("[0-9a-f]{16}")
_ORDERS: Final = {"little": "<", "big": ">"}
_DELTAS: Final = {"delta": "items", "bytedelta": "bytes"}
_FIELDS: Final = frozenset({"value", "type", "dtype"})
_MOST_COLUMNS: Final = 2**16
_DEEPEST: Final = 16
_BYTE: Final = np.dtype("u1")
_SETTINGS: Final = (
    "shape",
    "chunkshape",
    "superchunksize",
    "endianness",
    "order",
    "compression",
    "fill",
)
"""The settings that every column has."""
_EXTRAS: Final = (AUTO, IDENTITY)
"""Those that a column may have."""


@dataclass(frozen=True, slots=True)
class ColumnStorage:
    """How an array, or a column of a table, is stored: all but its length and attributes.

    Variable-length items have a `kind`, and packs instead of chunks. Their `dtype` is then that of
    an item of a row, or a byte.
    """

    dtype: DType
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    capacity: int
    """How many chunks a file has at most."""
    fill: Any
    order: str
    blosc: Blosc | Blosc2
    """The codec; chunks of Blosc 2 have a filter that Blosc 1 does not have."""
    truncate: int | None = None
    """How many bits floats keep; -1 where the document does not say it."""
    identity: int | None = None
    """What the trailers of the chunks repeat."""
    kind: ItemKind | None = None
    auto: bool = False
    """Whether the format chose the length of packs."""

    @property
    def slot_chunks(self) -> int:
        """How many Blosc chunks with trailers a slot has: 2 for a pack."""
        return 1 if self.kind is None else 2

    def items_schema(self, length: int, attrs: Mapping[str, Any]) -> RaggedSchema:
        """Return the schema of `length` variable-length items."""
        assert self.kind is not None, "only items have packs"
        assert isinstance(self.blosc, Blosc), "packs have chunks of Blosc 1"
        (rows,) = self.chunks
        codec = TrailedPacks(self.blosc, rows, ((0, self.identity),), self.auto)
        fill = RaggedArray.nulls(self.kind, 1)
        return RaggedSchema(length, self.kind, rows, codec, attrs, fill=fill)

    def schema(self, length: int, attrs: Mapping[str, Any]) -> ArraySchema:
        """Return the schema of the array, whose first axis has `length` rows.

        That of variable-length items is an array of as many bytes, whose chunks are the packs.
        """
        shape = (length, *self.shape[1:]) if self.shape else ()
        filters: tuple[Filter, ...] = ()
        fill = self.fill
        if self.truncate is not None and self.truncate >= 0:
            stage = TruncatePrecision(self.truncate)
            filters += (stage,)
            # The value of a cell must not depend on whether its chunk is stored.
            fill = stage.encode(np.asarray(fill, self.dtype))[()]
        if self.order == "F" and len(shape) > 1:
            filters += (Transpose(),)
        across = math.prod(
            -(-length // chunk) for length, chunk in zip(shape[1:], self.chunks[1:], strict=True)
        )
        chain = SlotChain(
            filters,
            Raw(),
            (self.blosc.bind(self.dtype.itemsize),),
            length=length,
            rows=self.chunks[0] if self.chunks else 1,
            across=max(1, across),
            identity=self.identity,
        )
        return ArraySchema(shape, self.dtype, self.chunks, chain, fill, self.order, attrs)

    def document(self) -> dict[str, Any]:
        """Return the contents of the ``storage`` of a new array."""
        filters: list[Any] = []
        if self.truncate is not None:
            filters.append("truncate" if self.truncate < 0 else {"truncate": self.truncate})
        plain = self.blosc if isinstance(self.blosc, Blosc) else self.blosc.parameters
        if isinstance(self.blosc, Blosc2):
            filters += self.blosc.filters
        else:
            word = plain.native_coding().shuffle
            filters += [] if word == "none" else [word]
        extras = {} if self.identity is None else {IDENTITY: f"{self.identity:016x}"}
        if self.auto:
            extras[AUTO] = "auto"
        big = self.kind is None and self.dtype.str.startswith(">")
        return {
            "dtype": _pack_dtype(self.dtype) if self.kind is None else str(self.kind),
            "shape": list(self.shape),
            "chunkshape": list(self.chunks),
            "superchunksize": self.capacity,
            "endianness": "big" if big else "little",
            "order": self.order,
            "compression": {
                "library": plain.cname,
                "level": plain.clevel,
                "filters": filters,
                **({BLOCKSIZE: plain.blocksize} if plain.blocksize else {}),
            },
            "fill": _pack_fill(self.fill, self.dtype) if self.kind is None else None,
            **extras,
        }


Storages: TypeAlias = Mapping[tuple[str, ...], ColumnStorage]
"""How the columns of a table are stored, by their paths; an array has the path ()."""


def parse_columns(document: Document) -> dict[tuple[str, ...], ColumnStorage]:
    """Return how each column of a table is stored, by its path; an array has the path ().

    Nested columns have longer paths.
    """
    claim = document.values.get("dtype")
    if claim is None:
        raise FormatError(f"{document.where}: dtype is missing")
    found = {}
    for path, dtype in _leaves(claim, (), document.where):
        found[path] = _column(document, path, dtype)
        if len(found) > _MOST_COLUMNS:
            raise LimitError(f"{document.where}: more than {_MOST_COLUMNS} columns")
    return found


def unknown_fields(document: Document) -> dict[str, Any]:
    r"""Return the fields of a ``storage`` that the format does not define.

    >>> unknown_fields(Document.parse(b"dtype: int8\norder: C\nlab: 7\n", "meta/storage"))
    {'lab': 7}
    """
    known = {"dtype", *_SETTINGS, *_EXTRAS}
    return {name: value for name, value in document.values.items() if name not in known}


def pack_columns(storages: Storages, old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a ``storage`` with these columns; other fields of `old` stay.

    A setting that is one value for all columns stays one.
    """
    documents = {path: storage.document() for path, storage in storages.items()}
    if () in documents:
        return {**old, **documents[()]}
    values: dict[str, Any] = {**old, "dtype": _tree(documents, "dtype")}
    for name in _SETTINGS:
        single = name in old and not _by_column(name, old[name])
        differing = {repr(each[name]) for each in documents.values()}
        if not (single and len(differing) <= 1):
            values[name] = _tree(documents, name)
    for name in _EXTRAS:
        values.pop(name, None)
        found = _tree(documents, name)
        values |= {name: found} if found else {}
    return values


def _by_column(name: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return name != "compression" or all(isinstance(each, dict) for each in value.values())


def _tree(documents: Mapping[tuple[str, ...], Mapping[str, Any]], name: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, values in documents.items():
        if name not in values:
            continue
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = values[name]
    return tree


def parse_nrows(data: bytes, where: str = NROWS) -> int:
    """Return the number in a ``nrows``; without the end of its line it is not complete.

    >>> parse_nrows(b"2123244\\n")
    2123244
    """
    if not _NROWS.fullmatch(data):
        raise CorruptionError(f"{where}: {shown(data[:40])} is no number of rows")
    number = int(data)
    if number > INT64:
        raise FormatError(f"{where}: {number} rows are more than 64 bits count")
    return number


def pack_nrows(rows: int) -> bytes:
    """Return a ``nrows``.

    >>> pack_nrows(7)
    b'7\\n'
    """
    return b"%d\n" % rows


def parse_attributes(data: bytes | None, where: str = ATTRIBUTES) -> dict[str, Any]:
    """Return attributes: NumPy values where the document states a type, plain ones otherwise.

    >>> parse_attributes(b"t: {value: 23.5, type: scalar, dtype: float32}\\nname: x\\n")
    {'t': np.float32(23.5), 'name': 'x'}
    """
    if data is None or not data.strip():
        return {}
    values = Document.parse(data, where).values
    return {name: _attribute(value, f"{where}: {name}") for name, value in values.items()}


def pack_attributes(attrs: Mapping[str, Any], old: bytes | None, where: str = ATTRIBUTES) -> bytes:
    """Return the document that `parse_attributes` reads back.

    Comments and order of the `old` document stay where its values do.
    """
    values = {name: _pack_attribute(value, f"{where}: {name}") for name, value in attrs.items()}
    before = Document.parse(old, where) if old and old.strip() else None
    if before is None:
        return yaml.pack(values, where)
    # Values that the user left alone keep their spelling.
    for name, value in before.values.items():
        if name in values and _same(_attribute(value, where), attrs[name]):
            values[name] = value
    return before.changed(values).text


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic) != isinstance(other, np.ndarray | np.generic):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    return type(one) is type(other) and bool(one == other)


def _attribute(value: Any, where: str) -> Any:
    if not isinstance(value, dict) or set(value) != _FIELDS:
        return value
    kind, text = value["type"], value["dtype"]
    if kind not in ("scalar", "array"):
        raise FormatError(f"{where}: type is {shown(kind)}, not 'scalar' or 'array'")
    dtype = _parse_dtype(text, "<", f"{where}: dtype")
    claim = value["value"]
    try:
        array = np.array(_items(claim, dtype), dtype)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(f"{where}: {shown(claim)} is no {kind} of type {dtype}") from None
    if (array.ndim == 0) != (kind == "scalar"):
        raise FormatError(f"{where}: {shown(claim)} is no {kind}")
    return array[()] if kind == "scalar" else array


def _items(claim: Any, dtype: DType) -> Any:
    """Return the items of nested lists, each parsed as the type needs it."""
    if isinstance(claim, list) and not (dtype.kind == "c" and _is_complex(claim)):
        return [_items(each, dtype) for each in claim]
    if isinstance(claim, float) and dtype.kind in "fc":
        return claim
    return fills.parse(claim, dtype)


def _is_complex(claim: list[Any]) -> bool:
    return len(claim) == 2 and not any(isinstance(each, list) for each in claim)


def _pack_attribute(value: Any, where: str) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject or array.dtype.names is not None:
            raise FormatError(f"{where}: attributes of type {array.dtype} cannot be stored")
        kind = "array" if array.ndim else "scalar"
        packed = _packed_items(array)
        return {"value": packed, "type": kind, "dtype": _pack_dtype(array.dtype, explicit=True)}
    if isinstance(value, dict) and set(value) == _FIELDS:
        raise FormatError(f"{where}: a mapping of value, type and dtype stands for a NumPy value")
    return value


def _packed_items(array: Array) -> Any:
    if array.ndim:
        return [_packed_items(np.asarray(each)) for each in array]
    if array.dtype.kind == "f" and array.dtype.itemsize <= 8:
        return float(array)
    return fills.pack(array[()], array.dtype)


# The storage of one column


def _leaves(claim: Any, path: tuple[str, ...], where: str) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(claim, dict):
        if len(path) >= _DEEPEST:
            raise LimitError(f"{where}: columns are nested more than {_DEEPEST} deep")
        if path and not claim:
            raise FormatError(f"{where}: {'.'.join(path)}: a nested table needs a column")
        check_folders(claim, where)
        for name, each in claim.items():
            if FILE_NAME.fullmatch(name):
                raise FormatError(
                    f"{where}: column {shown(name)} has the name of a super-chunk file"
                )
            yield from _leaves(each, (*path, name), where)
    elif isinstance(claim, str):
        yield path, claim
    else:
        raise FormatError(f"{where}: dtype: {shown(claim)} is no type")


def _setting(values: Mapping[str, Any], name: str, path: tuple[str, ...]) -> Any:
    """Return a setting of a column: one value for all, or one in a mapping by column."""
    found = values.get(name)
    for part in path:
        if not isinstance(found, dict):
            break
        found = found.get(part)
    return found


def _compression(values: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    """Return the compression of a column: a mapping of mappings has one for each column."""
    found = values.get("compression")
    for part in path:
        if not isinstance(found, dict) or not found:
            break
        if not all(isinstance(each, dict) for each in found.values()):
            break
        found = found.get(part)
    return found


def _column(document: Document, path: tuple[str, ...], text: str) -> ColumnStorage:
    values, where = document.values, document.where
    if path:
        where = f"{where}: {'.'.join(path)}"
    fields = FieldReader(
        where,
        {
            name: found
            for name in ("superchunksize", "endianness", "order")
            if (found := _setting(values, name, path)) is not None
        },
    )
    endianness = fields.choice("endianness", tuple(_ORDERS), "little")
    kind = ItemKind.parse(text, f"{where}: dtype") if _is_kind(text) else None
    if kind is None:
        dtype = _parse_dtype(text, _ORDERS[endianness], f"{where}: dtype")
    else:
        dtype = _BYTE if kind.item is None else kind.item
    shape = _parse_shape(_setting(values, "shape", path), f"{where}: shape", 0)
    chunks = _parse_shape(_setting(values, "chunkshape", path), f"{where}: chunkshape", 1)
    if len(shape) != len(chunks):
        raise FormatError(f"{where}: shape has {len(shape)} axes, chunkshape {len(chunks)}")
    blosc, truncate = _parse_compression(_compression(values, path), document.where)
    column = ColumnStorage(
        dtype,
        shape,
        chunks,
        fields.integer("superchunksize", low=1, high=LARGEST_CAPACITY),
        dtypes.zero(dtype),
        fields.choice("order", ("C", "F"), "C"),
        blosc,
        truncate,
        _parse_identity(_setting(values, IDENTITY, path), f"{where}: {IDENTITY}"),
    )
    if kind is not None:
        auto = _setting(values, AUTO, path) == "auto"
        return _with_packs(column, kind, where, auto=auto)
    size = math.prod(chunks) * dtype.itemsize
    if size > CHUNK_LIMIT:
        raise LimitError(f"{where}: chunks of {size} bytes, the limit is {CHUNK_LIMIT}")
    if truncate is not None and truncate >= 0:
        TruncatePrecision(truncate).encoded(ChunkSpec(chunks, dtype))
    fill = _parse_fill(_setting(values, "fill", path), dtype, f"{where}: fill")
    return replace(column, fill=fill)


def _is_kind(text: str) -> bool:
    """Return whether the type of a column is that of variable-length items."""
    return text in ("utf8", "bytes", "json") or text.startswith("list<")


def _with_packs(column: ColumnStorage, kind: ItemKind, where: str, *, auto: bool) -> ColumnStorage:
    """Return the storage of variable-length items."""
    if len(column.shape) != 1:
        raise FormatError(f"{where}: shape has {len(column.shape)} axes, items have one")
    if column.truncate is not None:
        raise UnsupportedError(f"{where}: compression: items of {kind} are not truncated")
    if isinstance(column.blosc, Blosc2):
        raise UnsupportedError(f"{where}: compression: items of {kind} are no differences")
    check_rows(column.chunks[0], f"{where}: chunkshape")
    blosc = column.blosc.bind(column.dtype.itemsize)
    return replace(column, kind=kind, order="C", blosc=blosc, auto=auto)


def _parse_dtype(claim: Any, order: str, where: str) -> DType:
    if isinstance(claim, str) and _SIZED.fullmatch(claim):
        claim = f"{order if claim[0] == 'U' else '|'}{claim}"
    # The names of NumPy's types are spelled as in bcolz.
    dtype = types.parse(claim, where)
    if dtype.hasobject or dtype.names is not None or not dtype.itemsize:
        raise UnsupportedError(f"{where}: {shown(claim)} is no type of items of a fixed size")
    explicit = isinstance(claim, str) and claim[:1] in "<>|="
    return dtype if explicit or order == "<" else dtype.newbyteorder(">")


def _pack_dtype(dtype: DType, *, explicit: bool = False) -> str:
    if explicit and dtype.str.startswith(">"):
        return dtype.str
    plain = dtype.newbyteorder("<")
    return str(plain) if plain.kind in "biufcmM" else plain.str.lstrip("<|")


def _parse_shape(claim: Any, where: str, low: int) -> tuple[int, ...]:
    """Return lengths in a list, in a tuple in text, or one length."""
    found = claim
    if isinstance(claim, str):
        match = _TUPLE.fullmatch(claim.strip())
        parts = None if match is None else filter(str.strip, match[1].split(","))
        found = None if parts is None else list(map(int, parts))
    elif type(claim) is int:
        found = [claim]
    if not isinstance(found, list) or not all(
        type(each) is int and low <= each <= INT64 for each in found
    ):
        raise FormatError(f"{where} is {shown(claim)}, not a list of lengths from {low} on")
    if len(found) > MOST_AXES:
        raise LimitError(f"{where} has {len(found)} axes, the most is {MOST_AXES}")
    if math.prod(max(1, each) for each in found) > INT64:
        raise FormatError(f"{where} {found} has more cells than 64 bits count")
    return tuple(found)


def _parse_compression(claim: Any, where: str) -> tuple[Blosc | Blosc2, int | None]:
    if claim is not None and not isinstance(claim, dict):
        raise FormatError(f"{where}: compression is {shown(claim)}, not a mapping")
    fields = FieldReader(f"{where}: compression", claim or {})
    library = fields.text("library", "blosclz")
    if library not in CODECS:
        raise UnsupportedError(f"{fields.where}: library {shown(library)} is unknown")
    level = fields.integer("level", 5, high=9)
    filters = fields.value("filters", None)
    if filters is not None and not isinstance(filters, list):
        raise FormatError(f"{fields.where}: filters is {shown(filters)}, not a list")
    shuffle, truncate, delta = 0, None, "none"
    for each in filters or ():
        if each in ("shuffle", "bitshuffle"):
            if shuffle:
                raise FormatError(f"{fields.where}: filters has two kinds of shuffle")
            shuffle = 1 + (each == "bitshuffle")
        elif isinstance(each, str) and each in _DELTAS:
            if delta != "none":
                raise FormatError(f"{fields.where}: filters has two kinds of delta")
            delta = _DELTAS[each]
        elif each == "truncate":
            truncate = -1
        elif isinstance(each, dict) and list(each) == ["truncate"]:
            truncate = FieldReader(fields.where, each).integer("truncate", high=52)
        else:
            raise UnsupportedError(f"{fields.where}: filter {shown(each)} is unknown")
    blocksize = fields.integer(BLOCKSIZE, 0, high=LARGEST_BLOCK)
    plain = Blosc(library, level, shuffle, blocksize)
    if delta == "none":
        return plain, truncate
    if delta == "bytes" and shuffle != 1:
        raise FormatError(f"{fields.where}: filters has bytedelta without shuffle")
    if library == "snappy":
        raise UnsupportedError(f"{fields.where}: Blosc 2 has no Snappy, which delta would need")
    return Blosc2(plain, delta), truncate


def _parse_identity(claim: Any, where: str) -> int | None:
    if claim is None:
        return None
    if not isinstance(claim, str) or not _IDENTITY_DIGITS.fullmatch(claim):
        raise FormatError(f"{where} is {shown(claim)}, not text of 16 hexadecimal digits")
    return int(claim, 16)


def _parse_fill(claim: Any, dtype: DType, where: str) -> Any:
    if claim is None:
        return dtypes.zero(dtype)
    if type(claim) is float and dtype.kind == "f":
        return dtype.type(claim)
    return fills.parse(claim, dtype, where)


def _pack_fill(fill: Any, dtype: DType) -> Any:
    if dtype.kind == "f" and dtype.itemsize <= 8:
        packed = float(fill)
        # The payload of a NaN has no spelling.
        if np.asarray(fill, dtype).tobytes() == np.asarray(packed, dtype).tobytes():
            return packed
    return fills.pack(fill, dtype)

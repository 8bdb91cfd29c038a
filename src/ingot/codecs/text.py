"""Serializers of items without a fixed size: text, bytes, ragged rows, JSON values.

These are the layouts that Zarr files use for object arrays, except for pickles, which run code.
Every length in them is checked against the stored bytes. Text is held as NumPy's variable-length
strings (`ingot.dtypes.TEXT`), everything else as Python objects.

The three ``vlen`` layouts are alike: a count of items, then for each item its length and its bytes,
all numbers little-endian in four bytes. The layout cannot express missing items; as in numcodecs
they are written as empty ones.
"""

import json
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray

from ingot import dtypes, native
from ingot.codecs.codec import Buffer, ChunkSpec, Serializer, register
from ingot.dtypes import DType
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    CorruptionError,
    FormatError,
    IngotError,
    UnsupportedError,
)
from ingot.fields import FieldReader, shown
from ingot.ragged_array import (
    BYTES,
    UTF8,
    ItemKind,
    RaggedArray,
    from_text,
    offsets_of,
    to_text,
)

__all__ = [
    "Json2",
    "VlenArray",
    "VlenBytes",
    "VlenSerializer",
    "VlenUtf8",
    "shaped_array",
    "shaped_list",
]

Array = NDArray[Any]

_OBJECT: Final = np.dtype(object)
_COUNT: Final = struct.Struct("<I")
_PLAIN_KINDS: Final = "biufcSU"
_ENCODINGS: Final = ("utf-8", "utf8", "ascii", "latin-1", "utf-16", "utf-32")


class VlenSerializer(Serializer):
    """The three ``vlen`` layouts, whose items can be read as one value."""

    __slots__ = ()

    @property
    def kind(self) -> ItemKind:
        """What the items are."""
        raise NotImplementedError

    def items(self, data: Buffer, count: int) -> RaggedArray:
        """Return `count` items; no object is made for their values.

        >>> VlenUtf8().items(VlenUtf8().encode(np.array(["ape", ""])), 2).to_list()
        ['ape', '']
        """
        offsets, values = _split(self.name, data, count)
        return RaggedArray.checked(self.kind, offsets, values, None, self.name)


@register
@dataclass(frozen=True, slots=True)
class VlenUtf8(VlenSerializer):
    """Text of any length."""

    name: ClassVar[str] = "vlen-utf8"
    holds: ClassVar[DType | None] = dtypes.TEXT
    kind: ClassVar[ItemKind] = UTF8

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
        return cls()

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Raise unless items are text or objects."""
        _check_type(self.name, spec, "TO")

    def encode(self, array: Array) -> Buffer:
        """Return the texts in UTF-8."""
        made = _joined(array) if array.dtype in (dtypes.TEXT, dtypes.NULLABLE_TEXT) else None
        return _pack(array, _encoded_text) if made is None else made

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the texts."""
        if spec.dtype.kind == "T":
            return to_text(self.items(data, spec.count), spec.dtype).reshape(spec.shape)
        try:
            texts = [str(item, "utf-8") for item in _unpack(self.name, data, spec.count)]
        except UnicodeDecodeError as error:
            raise CorruptionError(f"{self.name}: an item is not text: {error}") from None
        return np.array(texts, spec.dtype).reshape(spec.shape)


@register
@dataclass(frozen=True, slots=True)
class VlenBytes(VlenSerializer):
    """Bytes of any length."""

    name: ClassVar[str] = "vlen-bytes"
    holds: ClassVar[DType | None] = _OBJECT
    kind: ClassVar[ItemKind] = BYTES

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        fields.finish()
        return cls()

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Raise unless items are objects."""
        _check_type(self.name, spec, "O")

    def encode(self, array: Array) -> Buffer:
        """Return the items with their lengths."""
        return _pack(array, _encoded_bytes)

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the items as bytes."""
        return _objects((bytes(item) for item in _unpack(self.name, data, spec.count)), spec.shape)


@register
@dataclass(frozen=True, slots=True)
class VlenArray(VlenSerializer):
    """Rows of any length, all of one type."""

    name: ClassVar[str] = "vlen-array"
    holds: ClassVar[DType | None] = _OBJECT
    dtype: DType

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe."""
        dtype = dtypes.read_field(fields, "dtype")
        if dtypes.is_variable(dtype):
            raise fields.wrong("dtype", dtype.str, "a type of fixed size")
        fields.finish()
        return cls(dtype)

    @property
    def kind(self) -> ItemKind:
        """What the items are: rows of the type."""
        return ItemKind("list", self.dtype)

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Raise unless items are objects."""
        _check_type(self.name, spec, "O")

    def encode(self, array: Array) -> Buffer:
        """Return the rows with their lengths in bytes."""
        return _pack(array, self._encoded_row)

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the rows as arrays of their own."""
        rows = []
        for item in _unpack(self.name, data, spec.count):
            if len(item) % self.dtype.itemsize:
                raise CorruptionError(
                    f"{self.name}: {len(item)} bytes are not a row of {self.dtype}"
                )
            rows.append(np.frombuffer(item, self.dtype).copy())
        return _objects(rows, spec.shape)

    def _encoded_row(self, item: object) -> bytes:
        row = np.asarray([] if item is None else item, self.dtype)
        if row.ndim != 1:
            raise ArgumentError(f"{self.name}: a row has one axis, not {row.ndim}")
        return row.tobytes()


@register
@dataclass(frozen=True, slots=True)
class Json2(Serializer):
    """One JSON list: the items, nested as the array is, then its type and its shape."""

    name: ClassVar[str] = "json2"
    holds: ClassVar[DType | None] = _OBJECT
    shaped: ClassVar[bool] = True
    encoding: str = "utf-8"
    skipkeys: bool = False
    ensure_ascii: bool = True
    check_circular: bool = True
    allow_nan: bool = True
    sort_keys: bool = True
    indent: int | str | None = None
    separators: tuple[str, str] = (",", ":")
    strict: bool = True

    @classmethod
    def parse(cls, fields: FieldReader) -> Self:
        """Return the stage that the fields describe: the parameters of Python's JSON encoder."""
        indent = fields.value("indent", None)
        if type(indent) is bool:
            indent = int(indent)
        elif type(indent) is int:
            indent = fields.integer("indent", high=100)
        elif indent is not None:
            indent = fields.text("indent")
        separators = fields.value("separators", None) or ([",", ":"] if indent is None else None)
        if separators is None:
            separators = [", ", ": "]
        if not isinstance(separators, list) or list(map(type, separators)) != [str, str]:
            raise fields.wrong("separators", separators, "two strings")
        keys = ("skipkeys", "ensure_ascii", "check_circular", "allow_nan", "sort_keys", "strict")
        usual = {"skipkeys": False}
        flags = {key: fields.flag(key, usual.get(key, True)) for key in keys}
        encoding = fields.choice("encoding", _ENCODINGS, "utf-8")
        fields.finish()
        return cls(encoding=encoding, indent=indent, separators=tuple(separators), **flags)

    def serialized_size(self, spec: ChunkSpec) -> None:
        """Accept items of every type: JSON stores all of them except bytes."""

    def encode(self, array: Array) -> Buffer:
        """Return the text."""
        options: dict[str, Any] = self.config()
        for key in ("id", "encoding", "strict"):
            del options[key]
        return json.dumps(shaped_list(array), **options).encode(self.encoding)

    def decode(self, data: Buffer, spec: ChunkSpec) -> Array:
        """Return the items."""
        try:
            text = str(data, self.encoding)
            items = json.JSONDecoder(strict=self.strict).decode(text)
        except (ValueError, RecursionError) as error:
            raise CorruptionError(f"{self.name}: {error}") from None
        return shaped_array(self.name, items, spec)


def shaped_list(array: Array) -> list[Any]:
    """Return the items as nested lists, then the type and the shape; `shaped_array` reads it.

    >>> shaped_list(np.array([[1, "a"]], object))
    [[1, 'a'], '|O', [1, 2]]
    """
    items = np.atleast_1d(array).tolist()
    return [*items, dtypes.pack(array.dtype), list(array.shape)]


def shaped_array(name: str, items: object, spec: ChunkSpec) -> Array:
    """Return the array of a list that `shaped_list` made; raise unless it fits `spec`.

    >>> spec = ChunkSpec((1, 2), np.dtype(object))
    >>> shaped_array("json2", [[1, "a"], "|O", [1, 2]], spec)
    array([[1, 'a']], dtype=object)
    """
    if not isinstance(items, list) or len(items) < 2:
        raise CorruptionError(f"{name}: {shown(items)} is not a list with a type and a shape")
    *values, claim, shape = items
    if not isinstance(shape, list | tuple) or tuple(shape) != spec.shape:
        raise CorruptionError(f"{name}: the shape is {shown(shape)}, {spec.shape} is due")
    try:
        dtype = dtypes.parse(claim, name)
    except IngotError as error:
        raise CorruptionError(str(error)) from None
    if dtype != spec.dtype:
        raise CorruptionError(f"{name}: items of type {dtype}, {spec.dtype} are due")
    rows: list[Any] = [values]
    for length in spec.shape or (1,):
        rows = list(_opened(name, rows, length))
    return _typed(name, rows, spec)


def _opened(name: str, rows: list[Any], length: int) -> Iterator[Any]:
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != length:
            raise CorruptionError(f"{name}: {shown(row)} is not a list of {length} items")
        yield from row


def _typed(name: str, items: list[Any], spec: ChunkSpec) -> Array:
    if spec.dtype == _OBJECT:
        return _objects(items, spec.shape)
    if spec.dtype.kind not in _PLAIN_KINDS:
        raise UnsupportedError(f"{name}: items of type {spec.dtype} are not supported")
    try:
        return np.array(items, spec.dtype).reshape(spec.shape)
    except (ValueError, TypeError, OverflowError) as error:
        raise CorruptionError(f"{name}: not of type {spec.dtype}: {error}") from None


def _check_type(name: str, spec: ChunkSpec, kinds: str) -> None:
    if spec.dtype.kind not in kinds:
        raise FormatError(f"{name}: items of type {spec.dtype} are not of variable length")


def _pack(array: Array, encoded: Callable[[object], bytes]) -> bytes:
    parts = [_COUNT.pack(array.size)]
    for item in array.reshape(-1).tolist():
        data = encoded(item)
        parts += (_COUNT.pack(len(data)), data)
    return b"".join(parts)


def _unpack(name: str, data: Buffer, count: int) -> Iterator[memoryview]:
    """Yield the items of a ``vlen`` layout; raise unless there are exactly `count` of them."""
    view = memoryview(data)
    if len(view) < _COUNT.size or _COUNT.unpack_from(view)[0] != count:
        claim = _COUNT.unpack_from(view)[0] if len(view) >= _COUNT.size else 0
        raise CorruptionError(f"{name}: the count is {claim}, {count} items are due")
    if len(view) < _COUNT.size * (count + 1):
        raise CorruptionError(f"{name}: {len(view)} bytes cannot hold {count} items")
    position = _COUNT.size
    for index in range(count):
        start = position + _COUNT.size
        if start > len(view):
            raise CorruptionError(f"{name}: the bytes end before item {index} of {count}")
        position = start + _COUNT.unpack_from(view, start - _COUNT.size)[0]
        if position > len(view):
            raise CorruptionError(
                f"{name}: item {index} ends at byte {position}, {len(view)} are stored"
            )
        yield view[start:position]
    if position != len(view):
        raise CorruptionError(f"{name}: {len(view) - position} bytes follow the last item")


def _split(name: str, data: Buffer, count: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the offsets and the bytes of the items of a ``vlen`` layout."""
    framed = native.framed_items()
    made = None if framed is None else framed.split_items(data, count)
    if made is not None:
        return np.frombuffer(made[0], np.int64), np.frombuffer(made[1], np.uint8)
    # It also says what is wrong.
    found = list(_unpack(name, data, count))
    lengths = np.fromiter(map(len, found), np.int64, count)
    return offsets_of(lengths), np.frombuffer(b"".join(found), np.uint8)


def _joined(array: Array) -> bytes | None:
    """Return NumPy's strings in the ``vlen`` layout, by the kernel; missing ones are empty."""
    framed = native.framed_items()
    if framed is None:
        return None
    texts = from_text(array.reshape(-1))
    offsets, items = texts.offsets.data, np.ascontiguousarray(texts.data).data
    return framed.join_items(offsets, items)


def _encoded_text(item: object) -> bytes:
    # A missing item is empty text, and so is the 0 with which NumPy fills object arrays.
    if item is None or (type(item) is int and item == 0):
        return b""
    if not isinstance(item, str):
        raise ArgumentTypeError(f"vlen-utf8 holds text, not {type(item).__name__}")
    return item.encode("utf-8")


def _encoded_bytes(item: object) -> bytes:
    if item is None or (type(item) is int and item == 0):
        return b""
    if not isinstance(item, bytes | bytearray | memoryview):
        raise ArgumentTypeError(f"vlen-bytes holds bytes, not {type(item).__name__}")
    return bytes(item)


def _objects(items: Iterable[object], shape: tuple[int, ...]) -> Array:
    # Filled one by one: NumPy would make rows of equal length another axis.
    values = list(items)
    array = np.empty(len(values), _OBJECT)
    for index, value in enumerate(values):
        array[index] = value
    return array.reshape(shape)

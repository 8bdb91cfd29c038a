"""NumPy data types as formats spell them in JSON.

A type is spelled as a type string (``"<i4"``, ``"|S5"``, ``"<M8[10ms]"``) or as a list of fields,
which may be nested and have sub-array shapes. A spelling is checked in full before NumPy sees it,
because NumPy's own parser accepts far more than a file may contain.

Unnamed ``|V`` fields are padding: an aligned struct has them when it is spelled as a list of
fields. They become gaps between the fields, as in the ``.npy`` format.
"""

import math
import re
from typing import Any, TypeAlias

import numpy as np

from ingot.errors import ArgumentError, FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader, shown

__all__ = [
    "LARGEST_ITEM",
    "NULLABLE_TEXT",
    "TEXT",
    "DType",
    "is_variable",
    "narrow_bits",
    "pack",
    "parse",
    "read_field",
    "zero",
]

DType: TypeAlias = np.dtype[Any]

TEXT: DType = np.dtypes.StringDType()
"""The type of variable-length strings: text of any length."""

NULLABLE_TEXT: DType = np.dtypes.StringDType(na_object=None)
"""The type of text of any length that may be missing: None."""

LARGEST_ITEM = 2**24
"""The most bytes of an item: opening an array takes the memory of a few, for its fill value."""

_TYPE = re.compile(
    r"([<>|]?)([biufcmMSUVO])([0-9]{0,10})(?:\[([0-9]{0,9})([A-Za-z]{1,7})\])?", re.A
)
_SIZES = {
    "b": (1,),
    "i": (1, 2, 4, 8),
    "u": (1, 2, 4, 8),
    "f": (2, 4, 8, 12, 16),
    "c": (8, 16, 24, 32),
    "m": (8,),
    "M": (8,),
}
_UNITS = frozenset(
    {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "generic"}
)

# `dtype.isbuiltin` of types that other packages register.
_REGISTERED = 2
_NARROW = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}


def parse(spelling: object, where: str = "dtype") -> DType:
    """Return the type that a file spells; `where` names the field in errors.

    Types of more than one byte must state their byte order. ``"|O"`` is the object type, which
    cannot be part of a struct; a codec says what its items are.

    >>> parse("<M8[10ms]")
    dtype('<M8[10ms]')
    >>> parse([["a", "<i4"], ["b", [["x", "|S3"], ["y", ">f8", [2, 2]]]]])
    dtype([('a', '<i4'), ('b', [('x', 'S3'), ('y', '>f8', (2, 2))])])
    >>> parse("i4")
    Traceback (most recent call last):
    ingot.errors.FormatError: dtype: 'i4' has no byte order, items have several bytes
    """
    if isinstance(spelling, str):
        return _parse_string(spelling, where)
    if isinstance(spelling, list):
        return _parse_fields(spelling, where)
    raise FormatError(f"{where}: {shown(spelling)} is not a type string or a list of fields")


def pack(dtype: DType) -> str | list[Any]:
    """Return the spelling that `parse` reads back as `dtype`.

    >>> pack(np.dtype([("a", "<i4"), ("b", "<f8", (2,))]))
    [['a', '<i4'], ['b', '<f8', [2]]]
    >>> pack(np.dtype("i1,i4", align=True))
    [['f0', '|i1'], ['', '|V3'], ['f1', '<i4']]
    """
    if is_variable(dtype) and dtype.names is None:
        return "|O"
    if dtype.names is None:
        return dtype.str
    try:
        return _listed(dtype.descr)
    except ValueError as error:
        raise UnsupportedError(f"dtype {dtype}: cannot be stored: {error}") from None


def read_field(fields: FieldReader, key: str, default: DType | None = None) -> DType:
    """Return the field `key` as a data type; without a default it is required.

    >>> fields = FieldReader("delta", {"dtype": "<i4", "astype": None})
    >>> read_field(fields, "astype", np.dtype("<i2"))
    dtype('int16')
    """
    spelling = fields.value(key) if default is None else fields.value(key, None)
    if spelling is None and default is not None:
        return default
    return parse(spelling, f"{fields.where}: {key}")


def narrow_bits(dtype: DType) -> int | None:
    """Return the bits of an item of a type narrower than a byte; None for other types.

    >>> narrow_bits(np.dtype("u1")) is None
    True
    """
    return _NARROW.get(dtype.type.__name__) if dtype.isbuiltin == _REGISTERED else None


def is_variable(dtype: DType) -> bool:
    """Return whether items lie outside the array's own memory: objects, text of any length.

    >>> is_variable(TEXT), is_variable(np.dtype("<U4"))
    (True, False)
    """
    return dtype.hasobject


def zero(dtype: DType) -> Any:
    """Return the item whose bytes are all zero: 0, False, the epoch, empty text.

    >>> zero(np.dtype("<U4")), zero(TEXT)
    (np.str_(''), '')
    """
    return np.zeros((), dtype)[()]


def _parse_string(spelling: str, where: str) -> DType:
    match = _TYPE.fullmatch(spelling)
    if match is None:
        raise FormatError(f"{where}: {shown(spelling)} is not a type string")
    order, kind, digits, factor, unit = match.groups()
    if kind == "O":
        if digits not in ("", "8") or unit:
            raise FormatError(f"{where}: {spelling!r} is not a type string")
        return np.dtype(object)
    if not digits:
        raise FormatError(f"{where}: {spelling!r} does not say how many bytes an item has")
    size = int(digits)
    _check_size(spelling, kind, size, where)
    if (unit is not None) and (
        kind not in "mM" or unit not in _UNITS or (factor and int(factor) == 0)
    ):
        raise FormatError(f"{where}: {spelling!r} has no such unit")
    if order not in ("<", ">") and (kind == "U" or (kind not in "SV" and size > 1)):
        raise FormatError(f"{where}: {spelling!r} has no byte order, items have several bytes")
    try:
        return np.dtype(spelling)
    except (TypeError, ValueError) as error:
        # The spelling is valid, so this machine does not have the width or unit.
        raise UnsupportedError(f"{where}: {spelling!r} is not available here: {error}") from None


def _check_size(spelling: str, kind: str, size: int, where: str) -> None:
    if kind in _SIZES and size not in _SIZES[kind]:
        raise FormatError(f"{where}: {spelling!r} has no such width")
    if size == 0:
        raise FormatError(f"{where}: {spelling!r} has items of 0 bytes")
    if size * (4 if kind == "U" else 1) > LARGEST_ITEM:
        raise LimitError(f"{where}: items of {spelling!r} are larger than {LARGEST_ITEM} bytes")


def _parse_fields(spelling: list[object], where: str) -> DType:
    if not spelling:
        raise FormatError(f"{where}: the list of fields is empty")
    names: list[str] = []
    formats: list[DType] = []
    offsets: list[int] = []
    offset = 0
    for position, field in enumerate(spelling):
        name, dtype = _parse_field(field, f"{where}[{position}]")
        if name:
            names.append(name)
            formats.append(dtype)
            offsets.append(offset)
        offset += dtype.itemsize
        if offset > LARGEST_ITEM:
            raise LimitError(f"{where}: items are larger than {LARGEST_ITEM} bytes")
    if len(set(names)) != len(names):
        raise FormatError(f"{where}: two fields have the same name among {names}")
    if not names:
        raise FormatError(f"{where}: the fields are all padding")
    if len(names) == len(spelling):
        return np.dtype(list(zip(names, formats, strict=True)))
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": offset})


def _parse_field(field: object, where: str) -> tuple[str, DType]:
    if not isinstance(field, list) or len(field) not in (2, 3) or not isinstance(field[0], str):
        raise FormatError(f"{where}: {shown(field)} is not [name, type] or [name, type, shape]")
    name, dtype = field[0], parse(field[1], where)
    if dtype.hasobject:
        raise UnsupportedError(f"{where}: objects as a field of a struct are not supported")
    if not name and (dtype.kind != "V" or dtype.names is not None):
        raise FormatError(f"{where}: a field of type {field[1]!r} without a name")
    if len(field) == 3:
        dtype = _sub_array(dtype, field[2], where)
    return name, dtype


def _sub_array(dtype: DType, shape: object, where: str) -> DType:
    lengths = shape if isinstance(shape, list) else [shape]
    if len(lengths) > 32 or not all(type(length) is int and length > 0 for length in lengths):
        raise FormatError(f"{where}: {shown(shape)} is not the shape of a sub-array")
    if math.prod(lengths) * dtype.itemsize > LARGEST_ITEM:
        raise LimitError(f"{where}: a sub-array {lengths} of {dtype} has over {LARGEST_ITEM} bytes")
    return np.dtype((dtype, tuple(lengths)))


def _listed(description: Any) -> list[Any]:
    fields = []
    for name, kind, *shape in description:
        if not isinstance(name, str):
            raise ArgumentError(f"the field {name} has a title")
        field = [name, kind if isinstance(kind, str) else _listed(kind)]
        fields.append([*field, list(shape[0])] if shape else field)
    return fields

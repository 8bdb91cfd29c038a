"""NumPy data types as the formats spell them in JSON.

Knows type strings (``"<i4"``, ``"|S5"``, ``"<M8[10ms]"``) and field lists, nested or with sub-array
shapes, and reads them without ever handing free text to NumPy, whose own reader takes far more than
a file may say. Refuses to know what a type is used for.

Unnamed ``|V`` fields are padding: they are what is left of an aligned struct when it is spelled as
a field list. They become gaps between the fields, as in the ``.npy`` format.
"""

import math
import re
from typing import Any, TypeAlias

import numpy as np

from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader, shown

__all__ = [
    "LARGEST_ITEM",
    "TEXT",
    "DType",
    "claimed",
    "is_variable",
    "narrow_bits",
    "pack",
    "parse",
    "zero",
]

DType: TypeAlias = np.dtype[Any]

TEXT: DType = np.dtypes.StringDType()
"""Text of any length: the type in which variable-length strings are held."""

LARGEST_ITEM = 2**31 - 1
"""NumPy counts the bytes of an item in 31 bits."""

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


# What NumPy answers of types that other packages have added.
_FROM_OTHERS = 2
_NARROW = {
    "int2": 2,
    "uint2": 2,
    "int4": 4,
    "uint4": 4,
    "float4_e2m1fn": 4,
    "float6_e2m3fn": 6,
    "float6_e3m2fn": 6,
}


def parse(claim: object, where: str = "dtype") -> DType:
    """Return the type that a file claims; `where` names the claim in errors.

    Types of more than one byte must state their byte order. ``"|O"`` is the object type, at the top
    only: what its items are is for a codec to say.

    >>> parse("<M8[10ms]")
    dtype('<M8[10ms]')
    >>> parse([["a", "<i4"], ["b", [["x", "|S3"], ["y", ">f8", [2, 2]]]]])
    dtype([('a', '<i4'), ('b', [('x', 'S3'), ('y', '>f8', (2, 2))])])
    >>> parse("i4")
    Traceback (most recent call last):
    ingot.errors.FormatError: dtype: 'i4' has no byte order, items have several bytes
    """
    if isinstance(claim, str):
        return _parse_string(claim, where)
    if isinstance(claim, list):
        return _parse_fields(claim, where)
    raise FormatError(f"{where}: {shown(claim)} is no type string and no list of fields")


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


def claimed(claims: FieldReader, key: str, default: DType | None = None) -> DType:
    """Take the field `key` as a data type; without a default it must be there.

    >>> claimed(FieldReader("delta", {"dtype": "<i4", "astype": None}), "astype", np.dtype("<i2"))
    dtype('int16')
    """
    claim = claims.value(key) if default is None else claims.value(key, None)
    if claim is None and default is not None:
        return default
    return parse(claim, f"{claims.where}: {key}")


def narrow_bits(dtype: DType) -> int | None:
    """Return how many bits items have that do not fill the byte they take in memory, else None.

    >>> narrow_bits(np.dtype("u1")) is None
    True
    """
    return _NARROW.get(dtype.type.__name__) if dtype.isbuiltin == _FROM_OTHERS else None


def is_variable(dtype: DType) -> bool:
    """Tell whether items live outside the array's own memory: objects, text of any length.

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


def _parse_string(claim: str, where: str) -> DType:
    match = _TYPE.fullmatch(claim)
    if match is None:
        raise FormatError(f"{where}: {shown(claim)} is no type string")
    order, kind, digits, factor, unit = match.groups()
    if kind == "O":
        if digits not in ("", "8") or unit:
            raise FormatError(f"{where}: {claim!r} is no type string")
        return np.dtype(object)
    if not digits:
        raise FormatError(f"{where}: {claim!r} does not say how many bytes an item has")
    size = int(digits)
    _check_size(claim, kind, size, where)
    if (unit is not None) and (
        kind not in "mM" or unit not in _UNITS or (factor and int(factor) == 0)
    ):
        raise FormatError(f"{where}: {claim!r} has no such unit")
    if order not in ("<", ">") and (kind == "U" or (kind not in "SV" and size > 1)):
        raise FormatError(f"{where}: {claim!r} has no byte order, items have several bytes")
    try:
        return np.dtype(claim)
    except (TypeError, ValueError) as error:
        # The spelling is sound; what is left is a width or unit that this machine does not have.
        raise UnsupportedError(f"{where}: {claim!r} is not available here: {error}") from None


def _check_size(claim: str, kind: str, size: int, where: str) -> None:
    if kind in _SIZES and size not in _SIZES[kind]:
        raise FormatError(f"{where}: {claim!r} has no such width")
    if size == 0:
        raise FormatError(f"{where}: {claim!r} has items of 0 bytes")
    if size * (4 if kind == "U" else 1) > LARGEST_ITEM:
        raise LimitError(f"{where}: items of {claim!r} are larger than {LARGEST_ITEM} bytes")


def _parse_fields(claim: list[object], where: str) -> DType:
    if not claim:
        raise FormatError(f"{where}: a list of no fields")
    names: list[str] = []
    formats: list[DType] = []
    offsets: list[int] = []
    offset = 0
    for position, field in enumerate(claim):
        name, dtype = _parse_field(field, f"{where}[{position}]")
        if name:
            names.append(name)
            formats.append(dtype)
            offsets.append(offset)
        offset += dtype.itemsize
        if offset > LARGEST_ITEM:
            raise LimitError(f"{where}: items are larger than {LARGEST_ITEM} bytes")
    if len(set(names)) != len(names):
        raise FormatError(f"{where}: two fields of one name among {names}")
    if not names:
        raise FormatError(f"{where}: nothing but padding")
    if len(names) == len(claim):
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


def _sub_array(dtype: DType, claim: object, where: str) -> DType:
    lengths = claim if isinstance(claim, list) else [claim]
    if len(lengths) > 32 or not all(type(length) is int and length > 0 for length in lengths):
        raise FormatError(f"{where}: {shown(claim)} is no shape of a sub-array")
    if math.prod(lengths) * dtype.itemsize > LARGEST_ITEM:
        raise LimitError(f"{where}: a sub-array {lengths} of {dtype} has over {LARGEST_ITEM} bytes")
    return np.dtype((dtype, tuple(lengths)))


def _listed(description: Any) -> list[Any]:
    fields = []
    for name, kind, *shape in description:
        if not isinstance(name, str):
            raise ValueError(f"the field {name} has a title")
        field = [name, kind if isinstance(kind, str) else _listed(kind)]
        fields.append([*field, list(shape[0])] if shape else field)
    return fields

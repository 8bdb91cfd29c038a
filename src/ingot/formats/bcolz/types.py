"""NumPy types as bcolz spells them: by ``str``, and for structures by ``repr``.

These are names (``int32``, ``datetime64[ns]``), type strings (``>i4``, ``|S7``), and the lists and
dicts of fields that bcolz wrote but could not read. A name without a byte order is taken as
little-endian: the files do not say, and nearly all machines were. Text from a file is never passed
to NumPy.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ingot import dtypes
from ingot.dtypes import DType
from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader, shown
from ingot.formats import literals

__all__ = ["pack", "parse", "typesize"]

_NAME: Final = re.compile(
    r"(bool|object|(?:int|uint|float|complex)([0-9]{1,3})"
    r"|(?:datetime64|timedelta64)(?:\[[0-9]{0,9}[A-Za-z]{1,7}\])?)_?",
    re.A,
)
_LETTERS: Final = {"int": "i", "uint": "u", "float": "f", "complex": "c"}
_LARGEST_TYPESIZE: Final = 255


def parse(claim: object, where: str = "dtype") -> DType:
    """Return the type that a file claims; `where` names the claim in errors.

    >>> parse("int32"), parse(">f8"), parse("datetime64[ns]")
    (dtype('int32'), dtype('>f8'), dtype('<M8[ns]'))
    >>> parse("[('a', '<i4'), ('b', '?')]")
    dtype([('a', '<i4'), ('b', '?')])
    >>> parse("i4; import os")
    Traceback (most recent call last):
    ingot.errors.FormatError: dtype: 'i4; import os' is not a type string
    """
    if not isinstance(claim, str):
        raise FormatError(f"{where}: {shown(claim)} is no text")
    if claim[:1] in "[{":
        return _parse_fields(literals.parse(claim, where), where)
    return dtypes.parse(_type_string(claim), where)


def pack(dtype: DType) -> str:
    """Return the spelling that `parse` reads back as `dtype`; bcolz reads it where it can.

    >>> pack(np.dtype("<i4")), pack(np.dtype(">i4")), pack(np.dtype("<U3"))
    ('int32', '>i4', '<U3')
    >>> pack(np.dtype([("a", "<i4"), ("b", "|S2")]))
    "[('a', '<i4'), ('b', 'S2')]"
    """
    if dtype == dtypes.TEXT:
        raise UnsupportedError("text of any length: bcolz holds text of a fixed length, like 'U10'")
    text = str(dtype)
    if dtype.byteorder == "=" and np.little_endian is False:
        text = dtype.str
    if parse(text) != dtype:
        raise UnsupportedError(f"dtype {dtype}: bcolz has no spelling for it")
    return text


def typesize(dtype: DType) -> int:
    """Return the item size that bcolz passes to Blosc, and uses to read parts of a chunk.

    >>> typesize(np.dtype("S7")), typesize(np.dtype("U7")), typesize(np.dtype("f8"))
    (1, 4, 8)
    """
    if dtype.kind == "U":
        return 4
    if dtype.kind in "SO" or dtype.itemsize > _LARGEST_TYPESIZE:
        return 1
    return dtype.itemsize


def _type_string(claim: str) -> str:
    """Return the type string, with a byte order, of a type that bcolz spells by name."""
    match = _NAME.fullmatch(claim)
    if match is None:
        return "|b1" if claim == "?" else claim
    name = claim.rstrip("_")
    if name in ("bool", "object"):
        return {"bool": "|b1", "object": "|O"}[name]
    if match[2] is None:
        return name.replace("datetime64", "<M8").replace("timedelta64", "<m8")
    size = int(match[2]) // 8
    letter = _LETTERS[name.removesuffix(match[2])]
    if size * 8 != int(match[2]):
        return claim
    return f"{'|' if size == 1 else '<'}{letter}{size}"


def _parse_fields(fields: object, where: str) -> DType:
    if isinstance(fields, dict):
        return _parse_offsets(fields, where)
    if not isinstance(fields, list):
        raise FormatError(f"{where}: {shown(fields)} is no list of fields")
    listed: list[Any] = []
    for position, field in enumerate(fields):
        if not isinstance(field, tuple) or len(field) not in (2, 3):
            raise FormatError(f"{where}[{position}]: {shown(field)} is not (name, type) with shape")
        shape = [list(part) if isinstance(part, tuple) else part for part in field[2:]]
        listed.append([field[0], _parse_member(field[1], f"{where}[{position}]"), *shape])
    return _structured(listed, where)


def _parse_member(claim: object, where: str) -> DType:
    """Return the type of a field, which may be a structure, or a type with a shape."""
    if isinstance(claim, str):
        return parse(claim, where)
    if isinstance(claim, tuple) and len(claim) == 2:
        return _sub_array(_parse_member(claim[0], where), claim[1], where)
    return _parse_fields(claim, where)


def _structured(listed: list[Any], where: str) -> DType:
    fields = [
        # `ingot.dtypes` checks names, shapes and sizes; it takes the lists of JSON.
        [name, dtypes.pack(dtype) if dtype.subdtype is None else dtypes.pack(dtype.base), *rest]
        for name, dtype, *rest in (_flat_shape(field, where) for field in listed)
    ]
    parsed = dtypes.parse(fields, where)
    if parsed.hasobject:
        raise UnsupportedError(f"{where}: objects as a field of a struct are not supported")
    return parsed


def _flat_shape(field: list[Any], where: str) -> list[Any]:
    name, dtype, *shape = field
    if dtype.subdtype is None:
        return field
    if shape:
        raise FormatError(f"{where}: the field {shown(name)} has two shapes")
    return [name, dtype, list(dtype.shape)]


def _sub_array(dtype: DType, claim: object, where: str) -> DType:
    lengths = list(claim) if isinstance(claim, tuple) else [claim]
    field = dtypes.parse([["item", dtypes.pack(dtype), lengths]], where)
    return field["item"]


def _parse_offsets(values: Mapping[str, Any], where: str) -> DType:
    fields = FieldReader(where, values)
    size = fields.integer("itemsize", low=1, high=dtypes.LARGEST_ITEM)
    offsets = fields.integers("offsets", low=0, most=2**16)
    names, formats = fields.value("names"), fields.value("formats")
    fields.flag("aligned", False)
    fields.finish()
    if not isinstance(names, list) or not isinstance(formats, list):
        raise FormatError(f"{where}: names and formats are not lists")
    if not len(names) == len(formats) == len(offsets):
        raise FormatError(f"{where}: names, formats and offsets differ in length")
    types = [_parse_member(each, f"{where}: formats") for each in formats]
    end = 0
    for name, dtype, offset in sorted(
        zip(names, types, offsets, strict=True), key=lambda field: field[2]
    ):
        if not isinstance(name, str) or not name or dtype.hasobject or offset < end:
            raise FormatError(
                f"{where}: the field {shown(name)} at {offset} is invalid, or overlaps another"
            )
        end = offset + dtype.itemsize
    if end > size or len(set(names)) != len(names):
        raise FormatError(
            f"{where}: fields end at byte {end} of items of {size} bytes, or a name is repeated"
        )
    return _made({"names": names, "formats": types, "offsets": offsets, "itemsize": size}, where)


def _made(fields: dict[str, Any], where: str) -> DType:
    try:
        return np.dtype(fields)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError) as error:
        raise LimitError(f"{where}: not available here: {error}") from None

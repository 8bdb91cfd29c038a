"""Data types as Zarr version 3 names them.

This module maps the core types and the extensions in use to NumPy. Byte order belongs to the
``bytes`` codec: types are returned in the byte order of the machine.

Types that NumPy itself does not have come from the package ``ml_dtypes``, if it is installed.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ingot import dtypes
from ingot.dtypes import LARGEST_ITEM, DType
from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader, shown
from ingot.formats.zarr import v3_extension
from ingot.formats.zarr.v3_extension import NamedConfiguration

__all__ = ["is_extra", "normalised", "pack", "pair_part", "parse"]

_CORE: Final[Mapping[str, DType]] = {
    name: np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
}
_ALIASES: Final[Mapping[str, DType]] = {
    "complex_float32": np.dtype("complex64"),
    "complex_float64": np.dtype("complex128"),
    "string": dtypes.TEXT,
    "bytes": np.dtype(object),
    "variable_length_bytes": np.dtype(object),
}
# Names in documents, and the names of the same types in ml_dtypes.
_EXTRA: Final = {
    **{name: name for name in ("bfloat16", "int2", "int4", "uint2", "uint4")},
    **{name: name for name in ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")},
    **{
        f"float8_{name}": f"float8_{name}"
        for name in (
            *("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz"),
            *("e5m2", "e5m2fnuz", "e8m0fnu"),
        )
    },
    "complex_float16": "complex32",
    "complex_bfloat16": "bcomplex32",
}
# Floats of one byte or less. NumPy has no complex type of them: a structure of two is used.
_PARTS: Final = frozenset(
    name for name in _EXTRA if name.startswith(("float4_", "float6_", "float8_"))
)
_COMPLEX: Final = "complex_"
_HALVES: Final = ("real", "imag")
_RAW: Final = re.compile(r"r([1-9][0-9]{0,10})", re.A)
_UNITS: Final = {
    **{unit: unit for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs")},
    "as": "as",
    "μs": "us",
    "µs": "us",
    "generic": "generic",
}
_LARGEST_SCALE: Final = 2**31 - 1


def parse(claim: object, where: str = "data_type") -> DType:
    """Return the type that a file claims; `where` names the claim in errors.

    Bytes of variable length are held as objects, for lack of a NumPy type. Complex numbers with
    parts of one byte are held as structures, with the fields ``real`` and ``imag``.

    >>> parse("r24"), parse({"name": "fixed_length_utf32", "configuration": {"length_bytes": 8}})
    (dtype('V3'), dtype('<U2'))
    >>> parse("float31")
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: data_type: 'float31' is unknown
    """
    found = v3_extension.parse(claim, where, required=True)
    name, fields = found.name, found.fields()
    if name in _PARSERS:
        dtype = _PARSERS[name](found, fields)
    elif name in _CORE or name in _ALIASES:
        dtype = _CORE[name] if name in _CORE else _ALIASES[name]
    elif name in _EXTRA:
        dtype = _extra(_EXTRA[name], where)
    elif match := _RAW.fullmatch(name):
        dtype = _parse_raw(int(match.group(1)), where)
    elif name.removeprefix(_COMPLEX) in _PARTS and name.startswith(_COMPLEX):
        part = _extra(name.removeprefix(_COMPLEX), where)
        dtype = np.dtype([(half, part) for half in _HALVES])
    else:
        raise UnsupportedError(f"{where}: {shown(name)} is unknown")
    fields.finish()
    return dtype


def pack(dtype: DType) -> str | dict[str, Any]:
    """Return the spelling that `parse` reads back as `dtype`, except for its byte order.

    >>> pack(np.dtype(">i4")), pack(np.dtype("S5"))
    ('int32', {'name': 'null_terminated_bytes', 'configuration': {'length_bytes': 5}})
    >>> pack(np.dtype("M8[10ms]"))["configuration"]
    {'unit': 'ms', 'scale_factor': 10}
    """
    if dtypes.is_variable(dtype):
        return "string" if dtype == dtypes.TEXT else "variable_length_bytes"
    if dtype.newbyteorder("=") in _CORE.values():
        return dtype.newbyteorder("=").name
    if is_extra(dtype):
        return _packed_extra(dtype)
    part = pair_part(dtype)
    if part is not None:
        return _COMPLEX + _packed_extra(part)
    if dtype.names is not None:
        members = [{"name": name, "data_type": pack(dtype[name])} for name in dtype.names]
        return _named("struct", fields=members)
    if dtype.kind in "mM":
        unit, scale = np.datetime_data(dtype)
        kind = "numpy.datetime64" if dtype.kind == "M" else "numpy.timedelta64"
        return _named(kind, unit=unit, scale_factor=scale)
    lengths = {"S": "null_terminated_bytes", "U": "fixed_length_utf32", "V": "raw_bytes"}
    if dtype.kind in lengths and dtype.subdtype is None:
        return _named(lengths[dtype.kind], length_bytes=dtype.itemsize)
    raise UnsupportedError(f"dtype {dtype}: Zarr version 3 has no such type")


def normalised(dtype: DType) -> DType:
    """Return the same type without gaps between the fields of structures.

    >>> normalised(np.dtype("i1,i4", align=True)).itemsize
    5
    """
    if dtype.names is None:
        return dtype
    return np.dtype([(name, normalised(dtype[name])) for name in dtype.names])


def is_extra(dtype: DType) -> bool:
    """Return whether a type is not one of NumPy's own.

    >>> is_extra(np.dtype("V2"))
    False
    """
    return dtype.isbuiltin == 2


def pair_part(dtype: DType) -> DType | None:
    """Return the type of both parts of complex numbers that are held as structures, else None.

    >>> pair_part(np.dtype([("real", "f4"), ("imag", "f4")])) is None
    True
    """
    if dtype.names != _HALVES or dtype["real"] != dtype["imag"]:
        return None
    part: DType = dtype["real"]
    return part if is_extra(part) and part.type.__name__ in _PARTS else None


def _parse_struct(found: NamedConfiguration, fields: FieldReader) -> DType:
    members = fields.value("fields")
    if not isinstance(members, list) or not members:
        raise fields.wrong("fields", members, "a list of fields")
    names: list[str] = []
    types: list[DType] = []
    for index, field in enumerate(members):
        name, dtype = _parse_field(field, f"{fields.where}: fields[{index}]")
        names.append(name)
        types.append(dtype)
    if len(set(names)) != len(names):
        raise FormatError(f"{fields.where}: two fields of one name among {shown(names)}")
    if sum(dtype.itemsize for dtype in types) > LARGEST_ITEM:
        raise LimitError(f"{fields.where}: items are larger than {LARGEST_ITEM} bytes")
    return np.dtype(list(zip(names, types, strict=True)))


def _parse_field(field: object, where: str) -> tuple[str, DType]:
    # Before the type was registered, fields were spelled as pairs.
    if isinstance(field, list) and len(field) == 2:
        field = {"name": field[0], "data_type": field[1]}
    if not isinstance(field, dict):
        raise FormatError(f"{where}: {shown(field)} is no object with a name and a data_type")
    fields = FieldReader(where, field)
    name, dtype = fields.text("name"), parse(fields.value("data_type"), where)
    fields.finish()
    if not name:
        raise FormatError(f"{where}: name is empty")
    if dtypes.is_variable(dtype):
        raise FormatError(f"{where}: items of variable length cannot be fields")
    return name, dtype


def _parse_time(found: NamedConfiguration, fields: FieldReader) -> DType:
    unit = _UNITS[fields.choice("unit", tuple(_UNITS), "generic")]
    scale = fields.integer("scale_factor", 1, low=1, high=_LARGEST_SCALE)
    code = "M8" if found.name == "numpy.datetime64" else "m8"
    if unit == "generic":
        return np.dtype(code)
    try:
        return np.dtype(f"{code}[{scale}{unit}]")
    except (TypeError, ValueError) as error:
        raise UnsupportedError(f"{fields.where}: is not available here: {error}") from None


def _parse_length(found: NamedConfiguration, fields: FieldReader) -> DType:
    length = fields.integer("length_bytes", low=1)
    if length > LARGEST_ITEM:
        raise LimitError(f"{fields.where}: items are larger than {LARGEST_ITEM} bytes")
    if found.name == "fixed_length_utf32":
        if length % 4:
            raise fields.wrong("length_bytes", length, "a multiple of 4")
        return np.dtype(f"U{length // 4}")
    return np.dtype(f"{'S' if found.name == 'null_terminated_bytes' else 'V'}{length}")


_PARSERS: Final[Mapping[str, Callable[[NamedConfiguration, FieldReader], DType]]] = {
    "struct": _parse_struct,
    "structured": _parse_struct,
    "numpy.datetime64": _parse_time,
    "numpy.timedelta64": _parse_time,
    "null_terminated_bytes": _parse_length,
    "fixed_length_utf32": _parse_length,
    "raw_bytes": _parse_length,
}


def _parse_raw(bits: int, where: str) -> DType:
    if bits % 8:
        raise FormatError(f"{where}: r{bits} is no whole number of bytes")
    if bits // 8 > LARGEST_ITEM:
        raise LimitError(f"{where}: items of r{bits} are larger than {LARGEST_ITEM} bytes")
    return np.dtype(f"V{bits // 8}")


def _packed_extra(dtype: DType) -> str:
    known = dtype.type.__name__
    for name, theirs in _EXTRA.items():
        if theirs == known:
            return name
    raise UnsupportedError(f"dtype {dtype}: Zarr version 3 has no such type")


def _named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


def _extra(name: str, where: str) -> DType:
    try:
        import ml_dtypes  # type: ignore[import-untyped, import-not-found, unused-ignore]
    except ImportError as error:
        raise UnsupportedError(f"{where}: {name} needs the package 'ml_dtypes': {error}") from None
    if not hasattr(ml_dtypes, name):
        raise UnsupportedError(f"{where}: {name} is unknown to ml_dtypes {ml_dtypes.__version__}")
    dtype: DType = np.dtype(getattr(ml_dtypes, name))
    return dtype

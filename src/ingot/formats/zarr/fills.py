"""Fill values as Zarr version 2 spells them in JSON.

This module parses and packs one item of any type. It accepts the spellings of all known writers
where they are unambiguous, and refuses a number that the type cannot hold or bytes of a wrong
length. A null reads as zero, and as NaT for dates and times, as in zarr-python.
"""

import base64
import binascii
import math
from typing import Any, Final

import numpy as np

from ingot.dtypes import DType, zero
from ingot.errors import FormatError
from ingot.fields import shown

__all__ = ["pack", "pack_bytes", "parse", "parse_bytes", "parse_row"]

_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NOT_A_TIME: Final = -(2**63)


def parse(claim: object, dtype: DType, where: str = "fill_value") -> Any:
    """Return the item of `dtype` that a file claims; `where` names the claim in errors.

    >>> parse("NaN", np.dtype("<f4")), parse([1, "-Infinity"], np.dtype("<c16"))
    (np.float32(nan), np.complex128(1-infj))
    >>> parse("BwAAAAAAAAAAAARA", np.dtype([("a", "<i4"), ("b", "<f8")]))
    np.void((7, 2.5), dtype=[('a', '<i4'), ('b', '<f8')])
    >>> parse(300, np.dtype("|u1"))
    Traceback (most recent call last):
    ingot.errors.FormatError: fill_value: 300 is no value of type uint8
    """
    # Many writers spell the zero of any type as 0. In Python 0 == False, so the type is compared.
    if claim is None and dtype.kind in "mM":
        return np.array("NaT", dtype)[()]
    if claim is None or (type(claim) is int and claim == 0):
        return zero(dtype)
    parsers = {"b": _flag, "i": _integer, "u": _integer, "f": _float, "c": _complex, "T": _text}
    parsers |= {"m": _time, "M": _time, "S": _bytes, "V": _void, "U": _text}
    try:
        return parsers[dtype.kind](claim, dtype)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}") from None


def pack(fill: Any, dtype: DType) -> Any:
    """Return the spelling that `parse` reads back as `fill`.

    >>> pack(np.float32("-inf"), np.dtype("<f4")), pack(b"ab", np.dtype("S5"))
    ('-Infinity', 'YWI=')
    """
    item = np.asarray(fill, dtype)
    kind = dtype.kind
    if kind == "b":
        return bool(item)
    if kind in "iu":
        return int(item)
    if kind == "f":
        return _packed_float(item)
    if kind == "c":
        return [_packed_float(item.real), _packed_float(item.imag)]
    if kind in "mM":
        return int(item.view(f"{dtype.byteorder}i8"))
    if kind in "UT":
        return str(item[()])
    return pack_bytes(bytes(item[()]) if kind == "S" else item.tobytes())


def parse_bytes(claim: object, where: str = "fill_value") -> bytes:
    """Return the bytes, of any length, that a file claims in base64.

    >>> parse_bytes("YWI=")
    b'ab'
    """
    try:
        return _decoded(claim)
    except ValueError:
        raise FormatError(f"{where}: {shown(claim)} is no base64") from None


def pack_bytes(fill: bytes) -> str:
    """Return the spelling that `parse_bytes` reads back.

    >>> pack_bytes(b"ab")
    'YWI='
    """
    return base64.b64encode(fill).decode("ascii")


def parse_row(claim: object, dtype: DType, where: str = "fill_value") -> Any:
    """Return the row, of any length, of items of `dtype` that a file claims.

    >>> parse_row([1, 2], np.dtype("<i2"))
    array([1, 2], dtype=int16)
    """
    if not isinstance(claim, list):
        raise FormatError(f"{where}: {shown(claim)} is no list")
    row = np.empty(len(claim), dtype)
    for index, item in enumerate(claim):
        row[index] = parse(item, dtype, where)
    return row


def _flag(claim: object, dtype: DType) -> Any:
    if type(claim) is bool or (type(claim) is int and claim == 1):
        return np.bool_(claim)
    raise ValueError


def _integer(claim: object, dtype: DType) -> Any:
    if type(claim) is float and claim.is_integer():
        claim = int(claim)
    if type(claim) is not int:
        raise ValueError
    return np.array(claim, dtype)[()]


def _float(claim: object, dtype: DType) -> Any:
    value = _WORDS[claim] if isinstance(claim, str) and claim in _WORDS else claim
    if type(value) is not float and type(value) is not int:
        raise ValueError
    with np.errstate(over="ignore"):
        item = np.array(value, dtype)[()]
    if np.isinf(item) and not math.isinf(value):
        raise ValueError
    return item


def _complex(claim: object, dtype: DType) -> Any:
    parts = claim if isinstance(claim, list) else [claim, 0]
    if len(parts) != 2:
        raise ValueError
    item = np.zeros((), dtype)
    item.real, item.imag = (_float(part, item.real.dtype) for part in parts)
    return item[()]


def _time(claim: object, dtype: DType) -> Any:
    number = _NOT_A_TIME if claim == "NaT" else claim
    if type(number) is not int:
        raise ValueError
    return np.array(number, f"{dtype.byteorder}i8").view(dtype)[()]


def _bytes(claim: object, dtype: DType) -> Any:
    content = _decoded(claim)
    if len(content) > dtype.itemsize:
        raise ValueError
    return np.array(content, dtype)[()]


def _void(claim: object, dtype: DType) -> Any:
    content = _decoded(claim)
    if len(content) != dtype.itemsize:
        raise ValueError
    return np.frombuffer(content, dtype)[0].copy()


def _text(claim: object, dtype: DType) -> Any:
    if not isinstance(claim, str) or (dtype.kind == "U" and len(claim) * 4 > dtype.itemsize):
        raise ValueError
    return np.array(claim, dtype)[()]


def _decoded(claim: object) -> bytes:
    if not isinstance(claim, str):
        raise ValueError
    try:
        return base64.b64decode(claim, validate=True)
    except binascii.Error:
        raise ValueError from None


def _packed_float(item: Any) -> float | str:
    value = float(item)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value

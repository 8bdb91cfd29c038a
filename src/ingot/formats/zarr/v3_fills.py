"""Fill values as Zarr version 3 spells them.

This module parses and packs the JSON value of one item of any data type, including the bits of a
float in hexadecimal digits and objects for structures. It is stricter than version 2: null is
refused, and 0 is a value of numeric types only.
"""

import base64
import math
import re
from typing import Any, Final

import numpy as np

from ingot.dtypes import DType
from ingot.errors import FormatError, UnsupportedError
from ingot.fields import shown
from ingot.formats.zarr import fills
from ingot.formats.zarr.v3_types import is_extra, pair_part

__all__ = ["pack", "parse"]

_BITS: Final = re.compile(r"0x[0-9a-fA-F]{1,32}", re.A)
_WORDS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def parse(claim: object, dtype: DType, where: str = "fill_value") -> Any:
    """Return the item of `dtype` that a file claims; `where` names the claim in errors.

    >>> parse("0x7fc00001", np.dtype("<f4")).tobytes().hex()
    '0100c07f'
    >>> parse({"x": 1, "y": "NaN"}, np.dtype([("x", "<i4"), ("y", "<f8")]))
    np.void((1, nan), dtype=[('x', '<i4'), ('y', '<f8')])
    >>> parse(None, np.dtype("|u1"))
    Traceback (most recent call last):
    ingot.errors.FormatError: fill_value: None is no value of type uint8
    """
    try:
        return _item(claim, dtype)
    except (ValueError, TypeError, OverflowError, FormatError):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}") from None


def pack(fill: Any, dtype: DType) -> Any:
    """Return the spelling that `parse` reads back as `fill`, bit for bit.

    >>> pack(np.float32("nan"), np.dtype("<f4")), pack(np.float32(0.5), np.dtype("<f4"))
    ('NaN', 0.5)
    >>> pack(b"\\1\\2", np.dtype(object))
    'AQI='
    """
    if dtype == np.dtype(object):
        if isinstance(fill, np.ndarray):
            raise UnsupportedError("zarr3 holds no arrays as items: its objects are bytes and text")
        return fills.pack_bytes(bytes(fill or b""))
    if dtype.names is not None and pair_part(dtype) is None:
        item = np.asarray(fill, dtype)
        return {name: pack(item[name], dtype[name]) for name in dtype.names}
    if dtype.kind == "T":
        return str(fill)
    item = np.asarray(fill, dtype)
    halves = _halves(dtype)
    if halves is not None:
        real, imaginary = np.frombuffer(item.tobytes(), halves)
        return [pack(real, halves), pack(imaginary, halves)]
    if _is_float(dtype):
        return _packed_float(item)
    return int(item) if is_extra(dtype) else fills.pack(item, dtype)


def _item(claim: object, dtype: DType) -> Any:
    kind = dtype.kind
    halves = _halves(dtype)
    if halves is not None:
        if not isinstance(claim, list) or len(claim) != 2:
            raise ValueError
        content = b"".join(np.asarray(_float(part, halves), halves).tobytes() for part in claim)
        return np.frombuffer(content, dtype)[0]
    if _is_float(dtype):
        return _float(claim, dtype)
    if is_extra(dtype):
        return _small_integer(claim, dtype)
    if kind == "O":
        return _content(claim)
    if dtype.names is not None and isinstance(claim, dict):
        return _structure(claim, dtype)
    wanted = {"b": bool, "i": int, "u": int, "T": str, "U": str, "S": str}
    if kind in wanted and type(claim) is not wanted[kind]:
        raise ValueError
    if kind in "mM" and claim != "NaT" and type(claim) is not int:
        raise ValueError
    if kind == "V":
        claim = base64.b64encode(_content(claim)).decode("ascii")
    return fills.parse(claim, dtype)


def _structure(claim: dict[str, object], dtype: DType) -> Any:
    names = dtype.names or ()
    if set(claim) != set(names):
        raise ValueError
    item = np.zeros((), dtype)
    for name in names:
        item[name] = _item(claim[name], dtype[name])
    return item[()]


def _float(claim: object, dtype: DType) -> Any:
    if isinstance(claim, str) and _BITS.fullmatch(claim):
        if len(claim) != 2 + 2 * dtype.itemsize:
            raise ValueError
        order = "big" if dtype.byteorder == ">" else "little"
        return np.frombuffer(int(claim, 16).to_bytes(dtype.itemsize, order), dtype)[0]  # type: ignore[arg-type]
    value = _WORDS[claim] if isinstance(claim, str) and claim in _WORDS else claim
    if type(value) is not float and type(value) is not int:
        raise ValueError
    with np.errstate(all="ignore"):
        item = np.array(value, dtype)[()]
    if math.isfinite(value) != math.isfinite(float(item)):
        raise ValueError
    return item


def _small_integer(claim: object, dtype: DType) -> Any:
    if type(claim) is not int:
        raise ValueError
    item = np.array(claim, dtype)[()]
    if int(item) != claim:
        raise ValueError
    return item


def _content(claim: object) -> bytes:
    """Return bytes, spelled in base64 or as a list of numbers."""
    if isinstance(claim, list):
        if not all(type(each) is int for each in claim):
            raise ValueError
        return bytes(claim)
    return fills.parse_bytes(claim)


def _halves(dtype: DType) -> DType | None:
    """Return the type of the two parts of a complex number."""
    if dtype.names is not None:
        return pair_part(dtype)
    if dtype.kind == "c":
        return np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
    if not is_extra(dtype) or not dtype.type.__name__.endswith("complex32"):
        return None
    if dtype.type.__name__ == "complex32":
        return np.dtype(f"{dtype.byteorder}f2")
    # NumPy has no name for the type of the two parts; an item's real part has that type.
    part: DType = np.asarray(np.zeros((), dtype)[()].real).dtype
    return part


def _is_float(dtype: DType) -> bool:
    return dtype.kind == "f" or (is_extra(dtype) and "float" in dtype.type.__name__)


def _packed_float(item: Any) -> float | str:
    value = float(item)
    if math.isfinite(value):
        return value
    word = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if np.asarray(_float(word, item.dtype), item.dtype).tobytes() == item.tobytes():
        return word
    digits = item.astype(item.dtype.newbyteorder(">")).tobytes().hex()
    return f"0x{digits}"

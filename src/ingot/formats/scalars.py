"""Fill values as the first Zarr layouts spell them: one bare JSON scalar, handed to NumPy.

Knows what the software of that time made of such a scalar: it called ``ndarray.fill``, so that 0 is
the text "0" in an array of text, a float in an array of integers loses its fraction, and a number
fills every field of a struct. Numbers that are none stand as the bare words NaN and Infinity.
Refuses what the type cannot hold, where that software stored whatever came out. Later versions
spell fill values another way, which `fills` knows.
"""

import math
from typing import Any

import numpy as np

from ingot.claims import shown
from ingot.dtypes import DType
from ingot.errors import FormatError, UnsupportedError

__all__ = ["pack", "parse"]


def parse(claim: object, dtype: DType, where: str = "fill_value") -> Any:
    """Return the item of `dtype` that a file claims; null, which meant any memory, reads as zero.

    >>> parse(0, np.dtype("S5")), parse(3.0, np.dtype("<i4")), parse(None, np.dtype("<f8"))
    (np.bytes_(b'0'), np.int32(3), np.float64(0.0))
    >>> parse(300, np.dtype("|u1"))
    Traceback (most recent call last):
    ingot.errors.FormatError: fill_value: 300 is no value of type uint8
    """
    item = np.zeros((), dtype)
    opaque = dtype.kind == "V" and dtype.names is None
    if claim is None or (opaque and type(claim) is int and claim == 0):
        return item[()]
    try:
        _check_kind(claim, dtype)
        with np.errstate(all="ignore"):
            item.fill(claim)
    except (ValueError, TypeError, OverflowError):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}") from None
    if isinstance(claim, int | float) and dtype.kind in "fc" and _lost(item, claim):
        raise FormatError(f"{where}: {shown(claim)} is no value of type {dtype}")
    return item[()]


def pack(fill: Any, dtype: DType) -> Any:
    """Return the spelling that `parse` reads back as `fill`; some items have none.

    >>> pack(np.float32(0.5), np.dtype("<f4")), pack(b"ab", np.dtype("S5"))
    (0.5, 'ab')
    >>> pack(1j, np.dtype("<c16"))
    Traceback (most recent call last):
    ingot.errors.UnsupportedError: fill_value: this layout cannot spell 1j of type complex128
    """
    item = np.zeros((), dtype)
    item[()] = fill
    for spelling in (_natural(item), 0, None):
        try:
            found = parse(spelling, dtype)
        except FormatError:
            continue
        if _same(np.asarray(found, dtype), item):
            return spelling
    raise UnsupportedError(f"fill_value: this layout cannot spell {fill!r} of type {dtype}")


def _check_kind(claim: object, dtype: DType) -> None:
    # NumPy would also parse text as a number, and take anything at all for true or false.
    if isinstance(claim, list | dict) or (isinstance(claim, str) and dtype.kind in "biufc"):
        raise TypeError


def _lost(item: Any, claim: float) -> bool:
    """Tell whether a finite number became infinite."""
    return bool(np.isinf(item)) and (isinstance(claim, int) or not math.isinf(claim))


def _natural(item: Any) -> Any:
    kind = item.dtype.kind
    if kind == "b":
        return bool(item)
    if kind in "iu":
        return int(item)
    if kind in "fc":
        return float(item.real)
    if kind in "mM":
        return int(item.view(f"{item.dtype.byteorder}i8"))
    if kind == "S":
        return bytes(item[()]).decode("latin-1")
    return str(item[()]) if kind == "U" else 0


def _same(found: Any, item: Any) -> bool:
    if item.dtype.kind == "f" and np.isnan(item):
        return bool(np.isnan(found))
    return bool(found.tobytes() == item.tobytes())

"""Literals adapted to the type of the column that they are compared with.

Text becomes a date beside dates and bytes beside bytes. Dates of different units compare exactly,
also where NumPy's conversion would overflow.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from ingot.dtypes import DType
from ingot.errors import SelectionError
from ingot.ragged_array import BYTES, UTF8, ItemKind

__all__ = ["MIRRORED", "adapt", "adapted_values", "encoded_item"]

MIRRORED: Final[Mapping[str, str]] = {
    "==": "==",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
"""The comparison that means the same with its sides exchanged."""

_NAMES: Final[Mapping[str, str]] = {"M": "dates", "m": "durations", "S": "bytes", "U": "text"}


def adapt(operator: str, value: Any, dtype: DType) -> tuple[str, Any] | bool:
    """Return the operator and the right side that mean the same for items of `dtype`.

    The result is a single boolean if it is the same for all items.

    >>> adapt("<", "2024-02-29", np.dtype("M8[s]"))
    ('<', np.datetime64('2024-02-29T00:00:00'))
    >>> adapt("<", np.datetime64("2024-02-29T12"), np.dtype("M8[D]"))
    ('<=', np.datetime64('2024-02-29'))
    >>> adapt("==", np.datetime64("2024-02-29T12"), np.dtype("M8[D]"))
    False
    >>> adapt("==", "a", np.dtype("S3"))
    ('==', b'a')
    >>> adapt("==", "a", np.dtype("i4"))
    Traceback (most recent call last):
    ingot.errors.SelectionError: int32 cannot be compared with 'a'
    """
    kind = dtype.kind
    if kind == "M" and isinstance(value, str | np.datetime64):
        return _aligned(operator, _date(value, dtype), dtype)
    if kind == "m" and isinstance(value, np.timedelta64):
        return _aligned(operator, value, dtype)
    if kind == "S" and isinstance(value, str):
        return operator, value.encode()
    if kind in "UT" and isinstance(value, bytes):
        try:
            return operator, value.decode()
        except UnicodeDecodeError:
            raise SelectionError(f"{value!r} is not text in UTF-8") from None
    _check_kinds(kind, value, dtype)
    return operator, value


def adapted_values(values: tuple[Any, ...], dtype: DType) -> list[Any]:
    """Return the values that an item of `dtype` can equal, adapted to the type.

    >>> adapted_values(("2024-02-29", "2024-02-29T12"), np.dtype("M8[D]"))
    [np.datetime64('2024-02-29')]
    """
    found = [adapt("==", value, dtype) for value in values]
    return [each[1] for each in found if isinstance(each, tuple)]


def _check_kinds(kind: str, value: Any, dtype: DType) -> None:
    """Raise for a value that NumPy finds unequal to items whatever their values."""
    text, data = isinstance(value, str), isinstance(value, bytes)
    numeric = isinstance(value, bool | int | float | complex | np.number | np.bool_)
    wrong = (kind in "biufcmMV" and (text or data)) or (kind in "SUTMV" and numeric)
    if wrong and not isinstance(value, np.timedelta64 | np.datetime64):
        raise SelectionError(f"{_NAMES.get(kind, dtype)} cannot be compared with {value!r}")


def _date(value: str | np.datetime64, dtype: DType) -> np.datetime64:
    try:
        return np.datetime64(value) if isinstance(value, str) else value
    except ValueError:
        raise SelectionError(f"{value!r} is not a date, but is compared with {dtype}") from None


def _aligned(
    operator: str, value: np.datetime64 | np.timedelta64, dtype: DType
) -> tuple[str, Any] | bool:
    """Return the comparison with the value in the unit of the items, without overflow."""
    own = dtype.newbyteorder("=")
    if np.isnat(value) or "generic" in (_unit(own)[0], _unit(value.dtype)[0]):
        return operator, value
    if (
        isinstance(value, np.timedelta64)
        and len({_unit(each)[0] in "YM" for each in (own, value.dtype)}) > 1
    ):
        raise SelectionError(f"{value!r} cannot be compared with {dtype}: months vary in length")
    amount = int(value.astype(np.int64))
    if abs(amount) * (_seconds(value.dtype) / _seconds(own)) >= 2.0**63:
        return _beyond(operator, own, later=amount > 0)
    try:
        floor = value.astype(own)
        back = floor.astype(value.dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise SelectionError(f"{value!r} cannot be compared with {dtype}: {error}") from None
    if back == value:
        return operator, floor
    if operator in ("==", "!="):
        return operator == "!="
    if back > value:
        floor = (floor.astype(np.int64) - 1).astype(own)
    return ("<=" if operator in ("<", "<=") else ">"), floor


def _beyond(operator: str, own: DType, *, later: bool) -> tuple[str, Any] | bool:
    """Return a comparison with a value out of range: true for no item, or for all but NaT."""
    if operator in ("==", "!="):
        return operator == "!="
    last = np.int64(2**63 - 1 if later else -(2**63) + 1).astype(own)
    if operator in ("<", "<="):
        return ("<=" if later else "<"), last
    return (">" if later else ">="), last


def _unit(dtype: DType) -> tuple[str, int]:
    return np.datetime_data(dtype)


def _seconds(dtype: DType) -> float:
    """Return the length of the unit of a type; that of months and years is an average."""
    unit, step = _unit(dtype)
    return _SECONDS[unit] * step


_SECONDS: Final[Mapping[str, float]] = {
    "Y": 31556952.0,
    "M": 2629746.0,
    "W": 604800.0,
    "D": 86400.0,
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
    "ps": 1e-12,
    "fs": 1e-15,
    "as": 1e-18,
}


def encoded_item(kind: ItemKind, value: Any) -> bytes:
    """Return a literal as the bytes that a variable-length item which equals it has.

    >>> encoded_item(UTF8, "é")
    b'\\xc3\\xa9'
    """
    if kind not in (UTF8, BYTES) or not isinstance(value, str | bytes):
        raise SelectionError(f"{kind} cannot be compared with {value!r}")
    if isinstance(value, str):
        return value.encode()
    if kind == UTF8:
        adapt("==", value, kind.dtype)  # Refuses what is no text.
    return value

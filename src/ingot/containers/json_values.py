"""Values as JSON has them: numbers, texts, lists and objects, from those of Python and NumPy."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["to_json"]


def to_json(value: Any) -> Any:
    """Return a value made of what JSON has.

    Scalars and arrays of NumPy become numbers, texts and lists; dates become texts of ISO 8601,
    durations numbers of their unit. Missing items, NaN and NaT become null, infinities the texts
    "Infinity" and "-Infinity". Bytes become text, with escapes for what is no UTF-8.

    >>> import numpy as np
    >>> to_json({"a": np.float32(1.5), "b": np.array([1, 2]), "c": (float("nan"), b"x")})
    {'a': 1.5, 'b': [1, 2], 'c': [None, 'x']}
    >>> to_json(np.ma.array([1, 2], mask=[False, True]))
    [1, None]
    """
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, complex):
        return [to_json(value.real), to_json(value.imag)]
    if isinstance(value, Mapping):
        return {str(name): to_json(each) for name, each in value.items()}
    if hasattr(value, "dtype") and value.dtype.kind in "mM":
        return _dates(value)
    if hasattr(value, "tolist"):
        plain = value.tolist()
        return str(plain) if hasattr(plain, "tolist") else to_json(plain)
    if isinstance(value, Iterable):
        return [to_json(each) for each in value]
    return str(value)


def _dates(value: Any) -> Any:
    """Return dates as texts, and durations as numbers of their unit."""
    if value.ndim:
        return [to_json(each) for each in value]
    text = str(value)
    if text == "NaT":
        return None
    return text if value.dtype.kind == "M" else int(value.astype("i8"))

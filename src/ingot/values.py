"""Values that a caller gives, as NumPy makes arrays of them, with errors that say what to do."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.errors import ArgumentError, ArgumentOverflowError, ArgumentTypeError

__all__ = ["as_array"]


def as_array(values: object, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return values as an array; one of that type is not copied.

    Masked items have no place in an array, and are refused.

    >>> as_array([1, 2], np.dtype("i2"))
    array([1, 2], dtype=int16)
    >>> as_array([300], np.dtype("i1"))
    Traceback (most recent call last):
    ingot.errors.ArgumentOverflowError: Python integer 300 out of bounds for int8
    >>> as_array([[1, 2], [3]])
    Traceback (most recent call last):
    ingot.errors.ArgumentError: rows of different lengths are no array; ingot.ragged holds them
    """
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise ArgumentError(
            "an array holds no masked items; values.filled(...) replaces them, and a column of "
            "ingot.table keeps them as nulls"
        )
    try:
        return np.asarray(values, dtype)
    except TypeError as error:
        raise ArgumentTypeError(str(error)) from error
    except OverflowError as error:
        raise ArgumentOverflowError(str(error)) from error
    except ValueError as error:
        text = str(error)
        if "inhomogeneous" in text and dtype is None:
            text = "rows of different lengths are no array; ingot.ragged holds them"
        raise ArgumentError(text) from error

"""How values become arrays of the type of a carray, and how long its chunks are."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType

__all__ = ["calc_chunksize", "default_chunklen", "to_ndarray"]

_MB: Final = 1 << 20
_SMALLEST: Final = 4 * 1024


def to_ndarray(
    array: Any, dtype: DType | None, arrlen: int | None = None, safe: bool = True
) -> NDArray[Any]:
    """Return a value as a contiguous array of a type, broadcast to `arrlen` rows if given.

    >>> to_ndarray([1.7, 2], np.dtype("i8"))
    array([1, 2])
    >>> to_ndarray(7, np.dtype("i8"), arrlen=3)
    array([7, 7, 7])
    """
    if not safe:
        return array  # type: ignore[no-any-return]
    if not isinstance(array, np.ndarray) and dtype is None:
        array = np.array(array)
    if type(array) is np.ndarray and array.strides and array.strides[0] == 0 and len(array) > 1:
        if dtype is not None and array.dtype != dtype.base:
            raise TypeError("dtypes do not match")
        return array
    if dtype is not None and (type(array) is not np.ndarray or array.dtype != dtype.base):
        try:
            array = np.array(array, dtype=dtype.base)
        except ValueError:
            raise ValueError("cannot convert to an ndarray object") from None
    if not array.flags.contiguous:
        array = array.copy()
    if not array.shape:
        array = array.reshape(1)
    if arrlen is not None and arrlen != len(array):
        assert dtype is not None
        spread = np.empty(arrlen, dtype)
        spread[:] = array
        array = spread
    return array  # type: ignore[no-any-return]


def calc_chunksize(expected_mb: float) -> int:
    """Return the bytes of a chunk of a dataset that is expected to have so many MiB.

    >>> [calc_chunksize(size) // 1024 for size in (0, 0.05, 5, 50, 500, 5000, 10**6)]
    [16, 128, 256, 512, 1024, 2048, 4096]
    """
    size = min(max(expected_mb, 1e-4), 1e4)
    zone = int(math.log10(size))
    return int(_SMALLEST * int(2 ** (math.log10(10**zone) + 6)))


def default_chunklen(expectedlen: float, row: int) -> int:
    """Return the rows of a chunk of an array that is expected to have so many.

    >>> default_chunklen(1_474_200, 4)
    65536
    """
    return max(1, calc_chunksize(expectedlen * row / _MB) // row)

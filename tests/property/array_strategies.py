"""Arrays for tests: types, items of them, and every way to store them."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

Shape = tuple[int, ...]

FIXED = [
    *["?", "i1", "<u2", "<i4", ">i4", "<u8", "<f2", ">f4", "<f8", "<c8", "<M8[us]", ">m8[D]"],
    *["S3", "<U2", "V3", [("a", "<i4"), ("b", "<f4"), ("c", [("d", "S2")])]],
]
"""Types of fixed size; arrays of them are compared byte by byte."""

CODECS = ["blosc:lz4:5:shuffle", "blosc:zstd:1:bitshuffle", "none", "zlib:1", "lz4", "zstd:1"]


def items(dtype: Any, shape: Shape, start: int = 1) -> NDArray[Any]:
    """Items that differ, as far as the type has so many.

    >>> items("S3", (2, 2)).tolist()
    [[b'1', b'2'], [b'3', b'4']]
    """
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=int))
    numbers = np.arange(start, start + count)
    if kind.kind == "V":
        # Small numbers in every byte, so that no float is beyond its range.
        steps = numbers[:, None] + np.arange(kind.itemsize)
        return (steps % 63).astype(np.uint8).view(kind).reshape(shape)
    if kind.kind == "M":
        numbers = numbers.astype("M8[s]")
    return numbers.astype(kind).reshape(shape)


def same(found: Any, expected: Any) -> bool:
    """Return whether results are of one kind, type and shape, and equal to the last bit."""
    return (
        type(found) is type(expected)
        and found.dtype == expected.dtype
        and found.shape == expected.shape
        and found.tobytes() == expected.tobytes()
    )


@st.composite
def layouts(draw: st.DrawFn, shape: Shape) -> dict[str, Any]:
    """Settings of `ingot.create` that change how an array is stored, not what it holds."""
    return {
        "format": draw(st.sampled_from(["zarr2", "zarr3"])),
        "chunks": tuple(draw(st.integers(1, length + 2)) for length in shape),
        "codec": draw(st.sampled_from(CODECS)),
        "order": draw(st.sampled_from("CF")),
        "dimension_separator": draw(st.sampled_from("./")),
        "options": None,
    }

"""Fill values of the first layouts: what NumPy's fill made of them."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis.extra import numpy as npst

from ingot.errors import FormatError, UnsupportedError
from ingot.formats.zarr import v01

# What `numpy.ndarray.fill` does, as zarr 0.4 called it.
FILLED: list[tuple[object, Any, Any]] = [
    (0, "S5", b"0"),
    (0, "<U4", "0"),
    (1.5, "<U4", "1.5"),
    ("abcdef", "S3", b"abc"),
    (3.0, "<i4", 3),
    (3.7, "<i4", 3),
    (-3.7, "<i4", -3),
    (1, "|b1", True),
    (True, "<f8", 1.0),
    (2**64 - 1, "<u8", 2**64 - 1),
    (1.5, "<c16", 1.5 + 0j),
    (math.inf, "<f4", math.inf),
    (5, "<M8[ns]", np.datetime64(5, "ns")),
    ("2001-01-01", "<M8[us]", np.datetime64("2001-01-01", "us")),
    (None, "<f8", 0.0),
    (None, "S5", b""),
    (0, "V3", np.void(bytes(3))),
]


@pytest.mark.parametrize(("claim", "dtype", "item"), FILLED)
def test_a_claim_reads_as_numpy_filled_it(claim: object, dtype: str, item: Any) -> None:
    found = v01.parse_scalar(claim, np.dtype(dtype))
    assert found.dtype.kind == np.dtype(dtype).kind
    assert found == item


def test_a_number_fills_all_fields() -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "S3"), ("c", "<f8", (2,))])
    assert v01.parse_scalar(7, dtype).tolist()[:2] == (7, b"7")
    assert v01.parse_scalar(7, dtype)["c"].tolist() == [7.0, 7.0]
    assert v01.parse_scalar(None, dtype).tobytes() == bytes(dtype.itemsize)


@pytest.mark.parametrize(
    ("claim", "dtype"),
    [
        *((claim, "<i4") for claim in (2**31, 1e300, math.nan, "5", [], [1], {}, {"a": 1})),
        *((claim, "|b1") for claim in ("x", "", [])),
        *((claim, "<f4") for claim in (1e300, 2**200, "NaN", [1.0])),
        *((claim, "S3") for claim in ("é", ["a"])),
        *((claim, "V3") for claim in (1, "abc", 0.0, False)),
        *((claim, "<M8[s]") for claim in (1.5, "yesterday", [0])),
        (-1, "<u8"),
        (300, "|u1"),
    ],
)
def test_what_no_item_holds_is_refused(claim: object, dtype: str) -> None:
    with pytest.raises(FormatError, match=r"fill_value: .* is no value of type"):
        v01.parse_scalar(claim, np.dtype(dtype))


@given(item=npst.arrays(npst.scalar_dtypes(), ()))
def test_a_spelling_reads_back_or_is_refused(item: Any) -> None:
    try:
        spelling = v01.pack_scalar(item[()], item.dtype)
    except UnsupportedError:
        # All that JSON scalars cannot say: text beyond ASCII as bytes, numbers of two parts.
        assert item.dtype.kind in "cS"
        return
    found = np.asarray(v01.parse_scalar(spelling, item.dtype), item.dtype)
    nan = item.dtype.kind == "f" and np.isnan(item)
    assert np.isnan(found) if nan else found.tobytes() == item.tobytes()


def test_structs_have_few_fill_values() -> None:
    dtype = np.dtype([("a", "<i4"), ("b", "<f8")])
    assert v01.pack_scalar(np.zeros((), dtype)[()], dtype) == 0
    texts = np.dtype([("a", "<i4"), ("b", "S3")])
    assert v01.pack_scalar(np.zeros((), texts)[()], texts) is None
    with pytest.raises(UnsupportedError, match="cannot spell"):
        v01.pack_scalar(np.array((1, 2.5), dtype)[()], dtype)

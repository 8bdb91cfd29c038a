"""Fill values: every spelling that writers have used, and no guesses."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ingot import dtypes
from ingot.errors import FormatError
from ingot.formats.zarr import fills

STRUCT = np.dtype([("a", "<i4"), ("b", ">f8"), ("c", "S2", (2,))])


def item(value: Any, dtype: str) -> Any:
    return np.array(value, dtype)


@pytest.mark.parametrize(
    ("claim", "dtype", "expected"),
    [
        (True, "|b1", item(True, "?")),
        (1, "|b1", item(True, "?")),
        (-7, "<i2", item(-7, "<i2")),
        (3.0, ">i4", item(3, ">i4")),
        (2**64 - 1, "<u8", item(2**64 - 1, "<u8")),
        (-(2**63), "<i8", item(-(2**63), "<i8")),
        (0.1, "<f4", item(0.1, "<f4")),
        (5, ">f8", item(5, ">f8")),
        ("NaN", "<f2", item(np.nan, "<f2")),
        (float("nan"), "<f8", item(np.nan, "<f8")),
        ("Infinity", ">f4", item(np.inf, ">f4")),
        ("-Infinity", "<f8", item(-np.inf, "<f8")),
        ([1.5, -2], "<c8", item(1.5 - 2j, "<c8")),
        (["NaN", "Infinity"], ">c16", item(complex(np.nan, np.inf), ">c16")),
        (2.5, "<c16", item(2.5, "<c16")),
        (1, "<M8[D]", item("1970-01-02", "<M8[D]")),
        (-(2**63), ">M8[ns]", item("NaT", ">M8[ns]")),
        ("NaT", "<m8[s]", item("NaT", "<m8[s]")),
        (10, ">m8[10ms]", item(10, ">m8[10ms]")),
        ("YWL/", "|S5", item(b"ab\xff", "S5")),
        ("", "|S5", item(b"", "S5")),
        ("hé", "<U4", item("hé", "<U4")),
        ("", ">U4", item("", ">U4")),
        ("AQIDBAUGBw==", "|V7", np.array(b"\1\2\3\4\5\6\7", "V7")),
    ],
    ids=str,
)
def test_a_spelling(claim: object, dtype: str, expected: Any) -> None:
    found = fills.parse(claim, np.dtype(dtype))
    assert np.array(found, dtype).tobytes() == expected.tobytes()


def test_long_doubles() -> None:
    dtype = np.dtype(np.longdouble)
    assert fills.parse(1.5, dtype) == 1.5
    assert fills.parse("-Infinity", dtype) == -np.inf
    assert fills.pack(np.longdouble(1.5), dtype) == 1.5
    assert fills.parse([1.5, 2], np.dtype(np.clongdouble)) == 1.5 + 2j


@pytest.mark.parametrize("claim", [None, 0])
@pytest.mark.parametrize(
    "dtype",
    ["|b1", "<i4", ">u8", "<f4", "<c8", "<M8[s]", "<m8[D]", "|S3", "<U2", "|V3", STRUCT],
    ids=str,
)
def test_null_and_zero_are_zero_in_every_type(claim: object, dtype: Any) -> None:
    found = np.array(fills.parse(claim, np.dtype(dtype)), dtype)
    if claim is None and found.dtype.kind in "mM":
        assert np.isnat(found)
        return
    assert not any(found.tobytes())


def test_null_and_zero_are_empty_text() -> None:
    assert fills.parse(None, dtypes.TEXT) == fills.parse(0, dtypes.TEXT) == ""
    assert fills.parse("é", dtypes.TEXT) == "é"


WRONG: dict[Any, list[Any]] = {
    "|b1": [2, 1.0, "true", []],
    "<i2": [1.5, 2**15, "5", True, [5], float("nan"), float("inf")],
    "|u1": [-1, 256, 300.0],
    "<f4": ["nan", "inf", "1.5", True, [1.5], {}, 1e300, 10**400],
    "<f2": [1e6, "0x7e00"],
    "<c8": [[1], [1, 2, 3], ["x", 1], "NaNx", [True, 1], [[1], 1]],
    "<M8[s]": [1.5, "2020-01-01", 2**63, True, [1]],
    "|S3": ["YWJjZA==", "YWI", "é", 5, b"abc", ["YQ=="]],
    "<U2": ["abc", 5, ["ab"], b"ab"],
    "|V3": ["YWI=", "YWJjZA==", "", 5, "!!!!"],
    STRUCT: ["AAAA", [1, 2.5, "x"], {"a": 1}, 7],
    dtypes.TEXT: [5, True, ["x"], {}],
}


@pytest.mark.parametrize(
    ("claim", "dtype"),
    [(claim, dtype) for dtype, wrong in WRONG.items() for claim in wrong],
    ids=str,
)
def test_what_the_type_cannot_hold(claim: object, dtype: Any) -> None:
    with pytest.raises(FormatError, match="here: "):
        fills.parse(claim, np.dtype(dtype), "here")


fixed = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(),
    npst.unsigned_integer_dtypes(),
    npst.floating_dtypes(sizes=(16, 32, 64)),
    npst.complex_number_dtypes(sizes=(64, 128)),
    npst.datetime64_dtypes(),
    npst.timedelta64_dtypes(),
    npst.byte_string_dtypes(min_len=1, max_len=6),
    npst.unicode_string_dtypes(min_len=1, max_len=6),
    st.just(STRUCT),
)
items = fixed.flatmap(lambda dtype: npst.arrays(dtype, ()))
voids = st.binary(min_size=5, max_size=5).map(
    lambda octets: np.frombuffer(octets, "V5")[0:1].reshape(())
)


@given(items | voids)
def test_what_is_packed_is_parsed(array: Any) -> None:
    spelling = json.loads(json.dumps(fills.pack(array[()], array.dtype), allow_nan=False))
    found = np.array(fills.parse(spelling, array.dtype), array.dtype)
    if array.dtype.kind in "fc":
        assert np.array_equal(found, array, equal_nan=True)
    else:
        assert found.tobytes() == array.tobytes()


def test_bytes_and_rows_of_any_length() -> None:
    assert fills.parse_bytes(fills.pack_bytes(b"\xffab")) == b"\xffab"
    assert fills.parse_row([1, 2], np.dtype(">i2")).tobytes() == b"\0\1\0\2"
    for text in (5, None, "!", b"YQ==", "YQ"):
        with pytest.raises(FormatError, match="base64"):
            fills.parse_bytes(text)
    for row in (5, "x", [1, "x"], [2**20]):
        with pytest.raises(FormatError):
            fills.parse_row(row, np.dtype("<i2"))

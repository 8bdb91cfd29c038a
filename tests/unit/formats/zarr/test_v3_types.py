"""Data types and fill values of Zarr version 3: what is read, refused, and written again."""

import base64
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ingot import dtypes
from ingot.errors import FormatError, IngotError, LimitError, UnsupportedError
from ingot.formats.zarr import v3_fills, v3_types

ml_dtypes = pytest.importorskip("ml_dtypes", reason="types that NumPy does not have")


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


FIELDS = [{"name": "a", "data_type": "int32"}, {"name": "b", "data_type": "r16"}]

KNOWN = [
    ("bool", "?"),
    ("int8", "i1"),
    ("uint64", "u8"),
    ("float16", "f2"),
    ("complex64", "c8"),
    ("complex_float64", "c16"),
    ("r8", "V1"),
    ("r24", "V3"),
    ({"name": "r24"}, "V3"),
    (named("raw_bytes", length_bytes=3), "V3"),
    (named("null_terminated_bytes", length_bytes=5), "S5"),
    (named("fixed_length_utf32", length_bytes=8), "U2"),
    (named("numpy.datetime64", unit="ns", scale_factor=1), "M8[ns]"),
    (named("numpy.datetime64", unit="μs", scale_factor=10), "M8[10us]"),
    (named("numpy.timedelta64", unit="generic", scale_factor=1), "m8"),
    (named("struct", fields=FIELDS), [("a", "i4"), ("b", "V2")]),
    (named("structured", fields=[["a", "int32"], ["b", "r16"]]), [("a", "i4"), ("b", "V2")]),
    (
        named("struct", fields=[{"name": "in", "data_type": named("struct", fields=FIELDS)}]),
        [("in", [("a", "i4"), ("b", "V2")])],
    ),
]


@pytest.mark.parametrize(("claim", "dtype"), KNOWN)
def test_a_type_is_read(claim: Any, dtype: Any) -> None:
    assert v3_types.parse(claim) == np.dtype(dtype)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint2"])
def test_types_that_numpy_does_not_have_are_read_and_written(name: str) -> None:
    dtype = v3_types.parse(name)
    assert dtype == np.dtype(getattr(ml_dtypes, name))
    assert v3_types.pack(dtype) == name


def test_variable_length_is_text_or_objects() -> None:
    assert v3_types.parse("string") == dtypes.TEXT
    for name in ("bytes", "variable_length_bytes"):
        assert v3_types.parse(name) == np.dtype(object)


WRONG = [
    (None, FormatError),
    (["int32"], FormatError),
    ({}, FormatError),
    ("", FormatError),
    ({"name": 3}, FormatError),
    ("int24", UnsupportedError),
    ("r12", FormatError),
    ("r0", UnsupportedError),
    ("r99999999992", LimitError),
    ("complex_float9_e3m5", UnsupportedError),
    ("complex_int4", UnsupportedError),
    ({"name": "int32", "must_understand": False}, FormatError),
    ({"name": "int32", "extra": 1}, UnsupportedError),
    ({"name": "int32", "configuration": []}, FormatError),
    (named("int32", endian="big"), UnsupportedError),
    ("numpy.datetime64x", UnsupportedError),
    (named("numpy.datetime64", unit="fortnight", scale_factor=1), FormatError),
    (named("numpy.datetime64", unit="s", scale_factor=0), FormatError),
    (named("numpy.datetime64", unit="s", scale_factor=2**31), FormatError),
    (named("null_terminated_bytes"), FormatError),
    (named("null_terminated_bytes", length_bytes=0), FormatError),
    (named("null_terminated_bytes", length_bytes=2**40), LimitError),
    (named("fixed_length_utf32", length_bytes=6), FormatError),
    (named("struct", fields=[]), FormatError),
    (named("struct", fields="abc"), FormatError),
    (named("struct", fields=[{"name": "", "data_type": "int8"}]), FormatError),
    (named("struct", fields=[{"name": "a", "data_type": "string"}]), FormatError),
    (named("struct", fields=[{"name": "a"}]), FormatError),
    (named("struct", fields=[["a", "int8"], ["a", "int8"]]), FormatError),
    (named("struct", fields=[["a", "int8", 3]]), FormatError),
    (named("struct", fields=[["a", named("raw_bytes", length_bytes=2**24 + 1)]]), LimitError),
    (named("struct", fields=[["a", named("raw_bytes", length_bytes=2**24)]]), None),
]


@pytest.mark.parametrize(("claim", "error"), WRONG)
def test_a_wrong_type_is_refused(claim: Any, error: type[IngotError] | None) -> None:
    if error is None:
        assert v3_types.parse(claim).itemsize == 2**24
        return
    with pytest.raises(error, match="data_type"):
        v3_types.parse(claim)


def test_a_structure_too_large_is_refused() -> None:
    fields = [[name, named("raw_bytes", length_bytes=2**30)] for name in "abc"]
    with pytest.raises(LimitError):
        v3_types.parse(named("struct", fields=fields))


PLAIN = (
    npst.scalar_dtypes()
    | npst.unicode_string_dtypes(max_len=9)
    | npst.byte_string_dtypes(max_len=9)
).filter(lambda dtype: dtype.itemsize and dtype.kind + str(dtype.itemsize) not in ("f16", "c32"))


@given(
    PLAIN
    | st.lists(PLAIN, min_size=1, max_size=3).map(
        lambda parts: np.dtype([(f"f{index}", part) for index, part in enumerate(parts)])
    )
)
def test_every_type_of_numpy_comes_back_but_for_its_byte_order(dtype: np.dtype[Any]) -> None:
    assert v3_types.parse(v3_types.pack(dtype)) == dtype.newbyteorder("=")


@pytest.mark.parametrize("dtype", ["f16", "c32", ("i4", (2,)), [("a", "i4", (2,))]])
def test_a_type_without_a_name_is_refused(dtype: Any) -> None:
    with pytest.raises(UnsupportedError):
        v3_types.pack(np.dtype(dtype))


FILLS = [
    ("bool", True, b"\1"),
    ("int8", -128, b"\x80"),
    ("uint64", 2**64 - 1, b"\xff" * 8),
    ("float16", "0x7e01", b"\x01\x7e"),
    ("float32", "NaN", b"\0\0\xc0\x7f"),
    ("float32", "-Infinity", b"\0\0\x80\xff"),
    ("float32", "0x7fc00001", b"\1\0\xc0\x7f"),
    ("float32", 0.1, struct.pack("<f", 0.1)),
    ("float64", 3, struct.pack("<d", 3)),
    ("complex64", [1, "NaN"], struct.pack("<f", 1) + b"\0\0\xc0\x7f"),
    ("complex128", ["0x7ff0000000000001", -0.5], b"\1\0\0\0\0\0\xf0\x7f" + struct.pack("<d", -0.5)),
    ("r24", [1, 2, 255], b"\1\2\xff"),
    (named("raw_bytes", length_bytes=3), "AQL/", b"\1\2\xff"),
    (named("null_terminated_bytes", length_bytes=3), "YWI=", b"ab\0"),
    (named("fixed_length_utf32", length_bytes=8), "é", "é".encode("utf-32-le") + b"\0" * 4),
    (named("numpy.datetime64", unit="s", scale_factor=1), "NaT", struct.pack("<q", -(2**63))),
    (named("numpy.datetime64", unit="s", scale_factor=1), -5, struct.pack("<q", -5)),
    (named("struct", fields=FIELDS), {"a": 1, "b": [2, 3]}, b"\1\0\0\0\2\3"),
    (
        named("structured", fields=FIELDS),
        base64.b64encode(b"\1\0\0\0\2\3").decode(),
        b"\1\0\0\0\2\3",
    ),
    ("bfloat16", 1.5, b"\xc0\x3f"),
    ("bfloat16", "0x3fc0", b"\xc0\x3f"),
    ("int4", -3, np.array(-3, ml_dtypes.int4).tobytes()),
    ("float8_e4m3fn", 1.0, b"\x38"),
]


@pytest.mark.parametrize(("claim", "fill", "expected"), FILLS)
def test_a_fill_value_is_read_to_the_last_bit(claim: Any, fill: Any, expected: bytes) -> None:
    dtype = v3_types.parse(claim)
    item = v3_fills.parse(fill, dtype)
    assert np.asarray(item, dtype).tobytes() == expected
    again = v3_fills.parse(v3_fills.pack(item, dtype), dtype)
    assert np.asarray(again, dtype).tobytes() == expected


@pytest.mark.parametrize("dtype", [">c8", ">c16", ">f4"])
def test_fill_values_have_the_byte_order_of_their_type(dtype: str) -> None:
    item = np.array(1.5 if dtype == ">f4" else 1.5 - 2j, dtype)
    packed = v3_fills.pack(item, item.dtype)
    assert packed == (1.5 if dtype == ">f4" else [1.5, -2.0])
    assert v3_fills.parse(packed, item.dtype) == item
    nan = np.array(np.nan, ">f8")
    assert v3_fills.pack(nan, nan.dtype) == "NaN"


def test_text_and_bytes_are_their_own_fill_values() -> None:
    assert v3_fills.parse("é", dtypes.TEXT) == "é"
    assert v3_fills.parse("AQID", np.dtype(object)) == b"\1\2\3"
    assert v3_fills.parse([1, 2, 3], np.dtype(object)) == b"\1\2\3"
    assert v3_fills.pack("é", dtypes.TEXT) == "é"


NO_FILLS = [
    *[(name, None) for name in ("bool", "int8", "float32", "string", "bytes", "r8")],
    ("bool", 0),
    ("bool", "true"),
    ("int8", 128),
    ("int8", 1.5),
    ("int8", True),
    ("uint8", -1),
    ("uint8", "1"),
    ("float32", 1e40),
    ("float32", "nan"),
    ("float32", "0x7fc0000"),
    ("float32", "0x7fc000000"),
    ("float32", "0xzzzzzzzz"),
    ("float32", True),
    ("float32", [1]),
    ("complex64", 1),
    ("complex64", [1]),
    ("complex64", [1, 2, 3]),
    ("complex64", "NaN"),
    ("r24", [1, 2]),
    ("r24", [1, 2, 256]),
    ("r24", [1, 2, True]),
    ("r24", "AQI="),
    ("r24", "!"),
    (named("null_terminated_bytes", length_bytes=1), "YWI="),
    (named("null_terminated_bytes", length_bytes=1), 0),
    (named("fixed_length_utf32", length_bytes=4), "ab"),
    (named("numpy.datetime64", unit="s", scale_factor=1), "2020"),
    (named("numpy.datetime64", unit="s", scale_factor=1), 1.0),
    (named("numpy.datetime64", unit="s", scale_factor=1), 2**63),
    (named("struct", fields=FIELDS), {"a": 1}),
    (named("struct", fields=FIELDS), {"a": 1, "b": [2, 3], "c": 1}),
    (named("struct", fields=FIELDS), {"a": 2**40, "b": [2, 3]}),
    (named("struct", fields=FIELDS), 0),
    (named("struct", fields=FIELDS), "AAAA"),
    ("string", 0),
    ("bytes", 0),
    ("bytes", [-1]),
    ("int4", 8),
    ("int4", 1.0),
    ("bfloat16", "0x3fc"),
    ("bfloat16", 1e300),
]


@pytest.mark.parametrize(("claim", "fill"), NO_FILLS)
def test_a_wrong_fill_value_is_refused(claim: Any, fill: Any) -> None:
    with pytest.raises(FormatError, match="fill_value"):
        v3_fills.parse(fill, v3_types.parse(claim))


@given(
    npst.arrays(
        npst.floating_dtypes(endianness="<", sizes=(16, 32, 64)), (), elements=None, fill=None
    ),
    st.binary(min_size=8, max_size=8),
)
def test_every_bit_of_a_float_survives(example: Any, content: bytes) -> None:
    dtype = example.dtype
    item = np.frombuffer(content[: dtype.itemsize], dtype)[0]
    for order in ("<", ">"):
        held = dtype.newbyteorder(order)
        value = np.frombuffer(content[: dtype.itemsize], dtype).astype(held)[0]
        again = v3_fills.parse(v3_fills.pack(item, dtype), held)
        assert np.asarray(again, held).tobytes() == np.asarray(value, held).tobytes()

"""Data types in JSON: read strictly, written back the same."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ingot import dtypes
from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import FieldReader

SPELLINGS = [
    *("|b1", "|i1", "|u1", "<i2", ">i4", "<i8", ">u2", "<u4", "<u8", "<f2", ">f4", "<f8"),
    *("<c8", ">c16", "|S1", "|S300", "<U4", ">U7", "|V7", "<M8[ns]", ">m8[10ms]", "<M8[D]", "<m8"),
    "|O",
]


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_type_string_is_that_of_numpy(text: str) -> None:
    assert dtypes.parse(text) == np.dtype(text)
    assert dtypes.pack(np.dtype(text)) == text


@pytest.mark.parametrize("text", ["b1", "i1", "S5", "<S5", "<b1", ">i1"])
def test_single_bytes_need_no_order(text: str) -> None:
    assert dtypes.parse(text) == np.dtype(text)


def test_fields_nested_and_with_shapes() -> None:
    claim = [["a", "<i4"], ["b", [["x", "|S3"], ["y", ">f8", [2, 2]]], [3]], ["c", "|V2", 5]]
    expected = np.dtype(
        [("a", "<i4"), ("b", [("x", "S3"), ("y", ">f8", (2, 2))], (3,)), ("c", "V2", (5,))]
    )
    assert dtypes.parse(claim) == expected
    assert dtypes.parse(dtypes.pack(expected)) == expected


def test_padding_becomes_gaps() -> None:
    aligned = np.dtype([("a", "i1"), ("b", "<f8"), ("c", [("x", "<i2"), ("y", "<i8")])], align=True)
    assert dtypes.parse(dtypes.pack(aligned)) == aligned
    found = dtypes.parse([["a", "|i1"], ["", "|V3"], ["b", "<i4"], ["", "|V8"]])
    assert found.names == ("a", "b")
    assert found.itemsize == 16
    assert found.fields is not None
    assert found.fields["b"][1] == 4


scalars = npst.scalar_dtypes().filter(lambda dtype: dtype.itemsize > 0)
structs = st.recursive(
    scalars | npst.byte_string_dtypes(min_len=1) | npst.unicode_string_dtypes(min_len=1),
    lambda inner: st.tuples(
        st.lists(
            st.tuples(inner, npst.array_shapes(min_dims=0, max_dims=2)), min_size=1, max_size=3
        ),
        st.booleans(),
    ).map(lambda made: struct(*made)),
    max_leaves=6,
)


def struct(fields: list[tuple[Any, tuple[int, ...]]], align: bool) -> Any:
    named = [(f"f{n}", dtype, shape) for n, (dtype, shape) in enumerate(fields)]
    return np.dtype(named, align=align)


@given(structs)
def test_what_is_packed_is_parsed(dtype: Any) -> None:
    assert dtypes.parse(json.loads(json.dumps(dtypes.pack(dtype)))) == dtype


def test_text_of_any_length_is_spelled_as_objects() -> None:
    assert dtypes.pack(dtypes.TEXT) == "|O"
    assert dtypes.is_variable(dtypes.TEXT)
    assert dtypes.is_variable(np.dtype(object))
    assert not dtypes.is_variable(np.dtype("<U4"))


@pytest.mark.parametrize(
    "claim",
    [
        *("", "i4", "=i4", "|i4", "|f8", "U4", "|U1", "<i3", "<i16", "<f1", "<c4", "<b2", "<x4"),
        *("<M4[s]", "<M8[s/10]", "<M8[2]", "<M8[parsec]", "<M8[0s]", "<i4[s]", "<S", "|S0", "|V0"),
        *(
            "(2,)<i4",
            "<i4,<f8",
            "f8; import os",
            "<i٤",
            "<i4 ",
            "|O4",
            "O[s]",
            "float64",
            "datetime64",
        ),
        *(5, None, True, 2.5, {}, [], [[]], ["<i4"], [["a"]], [["a", "<i4", 1, 2]], [[5, "<i4"]]),
        *([["", "<i4"]], [["", [["x", "<i4"]]]], [["", "|V4"]], [["a", "<i4"], ["a", "<f8"]]),
        *([["a", "<i4", [0]]], [["a", "<i4", [-1]]], [["a", "<i4", [True]]], [["a", "<i4", ["2"]]]),
        [["a", "<i4", [2.0]]],
    ],
    ids=str,
)
def test_what_is_no_type(claim: object) -> None:
    with pytest.raises(FormatError, match="here"):
        dtypes.parse(claim, "here")


@pytest.mark.parametrize(
    "claim",
    [
        "|S2147483648",
        "<U999999999",
        [["a", "<i8", [2**31]]],
        [["a", "<i8", [2**30, 2**30]]],
        [["a", "|V2147483647"], ["b", "|V2147483647"]],
        [["a", [["b", "|V2000000000"]], [2]]],
    ],
    ids=str,
)
def test_items_that_are_too_large(claim: object) -> None:
    with pytest.raises(LimitError, match=str(dtypes.LARGEST_ITEM)):
        dtypes.parse(claim)


def test_objects_are_no_field() -> None:
    with pytest.raises(UnsupportedError, match=r"dtype\[1\].*field"):
        dtypes.parse([["a", "<i4"], ["b", "|O"]])


def test_a_width_that_this_machine_does_not_have() -> None:
    missing = 12 if np.dtype(np.longdouble).itemsize != 12 else 16
    with pytest.raises(UnsupportedError, match="not available"):
        dtypes.parse(f"<f{missing}")


def test_what_a_field_list_cannot_say_is_refused() -> None:
    titled = np.dtype([(("title", "a"), "<i4")])
    overlapping = np.dtype({"names": ["a", "b"], "formats": ["<i4", "<i4"], "offsets": [0, 2]})
    for dtype in (titled, overlapping, np.dtype([("a", titled)])):
        with pytest.raises(UnsupportedError):
            dtypes.pack(dtype)


def test_a_type_in_a_field() -> None:
    fields = FieldReader("delta", {"dtype": "<i4", "astype": None, "bad": "x"})
    assert dtypes.read_field(fields, "dtype") == np.dtype("<i4")
    assert dtypes.read_field(fields, "astype", np.dtype("u1")) == np.dtype("u1")
    assert dtypes.read_field(fields, "absent", np.dtype("u1")) == np.dtype("u1")
    for key in ("bad", "absent", "astype"):
        with pytest.raises(FormatError, match=f"delta: {key}"):
            dtypes.read_field(fields, key)


def test_the_largest_items_are_read() -> None:
    assert dtypes.parse(f"|V{dtypes.LARGEST_ITEM}").itemsize == dtypes.LARGEST_ITEM == 2**24
    with pytest.raises(LimitError, match=str(dtypes.LARGEST_ITEM)):
        dtypes.parse(f"|V{dtypes.LARGEST_ITEM + 1}")

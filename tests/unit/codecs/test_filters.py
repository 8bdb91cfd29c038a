"""Filters: the bytes of numcodecs, both ways, and what cannot be filtered is refused."""

from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Filter, assemble, parse_stage
from ingot.codecs.filters import BitRound, Categorize, Delta, PackBits, Reshape, Transpose
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from ingot.fields import FieldReader

Array = np.ndarray[Any, Any]

NUMERIC = ["<i2", ">i4", "<i8", "|u1", "|i1", "<u4", ">u8", "<f4", ">f8"]

# What is filtered, by which filter; every one of them keeps these values exactly.
CASES: list[tuple[dict[str, Any], str]] = [
    *(({"id": "delta", "dtype": dtype}, dtype) for dtype in NUMERIC),
    ({"id": "delta", "dtype": "<i8", "astype": "<i4"}, "<i8"),
    ({"id": "delta", "dtype": "<i8", "astype": "<i2"}, "<M8[ns]"),
    ({"id": "delta", "dtype": "<f4", "astype": "<f8"}, "<f4"),
    ({"id": "fixedscaleoffset", "offset": 10, "scale": 4, "dtype": "<f8", "astype": "<i4"}, "<f8"),
    (
        {"id": "fixedscaleoffset", "offset": -1.5, "scale": 0.5, "dtype": "<f4", "astype": "<f4"},
        "<f4",
    ),
    ({"id": "fixedscaleoffset", "offset": 100, "scale": 1, "dtype": "<i4", "astype": "<i2"}, "<i4"),
    ({"id": "quantize", "digits": 3, "dtype": "<f8", "astype": "<f4"}, "<f8"),
    ({"id": "quantize", "digits": -1, "dtype": "<f4"}, "<f4"),
    ({"id": "astype", "encode_dtype": "<f4", "decode_dtype": "<f8"}, "<f8"),
    ({"id": "astype", "encode_dtype": "|u1", "decode_dtype": "<i8"}, "<i8"),
    ({"id": "bitround", "keepbits": 3}, "<f8"),
    ({"id": "bitround", "keepbits": 23}, "<f4"),
    ({"id": "bitround", "keepbits": 0}, "<f2"),
    ({"id": "packbits"}, "|b1"),
]
each_case = pytest.mark.parametrize(("config", "dtype"), CASES, ids=str)


def filter_of(config: dict[str, Any]) -> Filter:
    stage = parse_stage(config)
    assert isinstance(stage, Filter)
    return stage


def chain_of(config: dict[str, Any], array: Array) -> tuple[CodecChain, ChunkSpec]:
    spec = ChunkSpec(array.shape, array.dtype)
    return assemble([filter_of(config)], spec), spec


@each_case
@pytest.mark.parametrize("count", [1, 7, 8, 30])
def test_bytes_are_those_of_numcodecs(config: dict[str, Any], dtype: str, count: int) -> None:
    array = (np.arange(count) * 7 % 31 * 0.5).astype("<i8" if "M8" in dtype else dtype).view(dtype)
    chain, spec = chain_of(config, array)
    codec = numcodecs.get_codec(config)
    encoded = codec.encode(array)
    assert chain.encode(array) == encoded.tobytes()
    found = chain.decode(encoded.tobytes(), spec)
    assert found.dtype == spec.dtype
    assert found.tobytes() == codec.decode(encoded).tobytes()


@each_case
def test_axes_and_configs_come_back(config: dict[str, Any], dtype: str) -> None:
    array = np.zeros((2, 3, 4), dtype)
    chain, spec = chain_of(config, array)
    assert chain.decode(chain.encode(array), spec).shape == (2, 3, 4)
    [stage] = chain.filters
    assert parse_stage(stage.config()) == stage
    assert {key: stage.config()[key] for key in config} == config


@given(
    npst.arrays(
        st.sampled_from(["<i4", ">i8", "|u1", "|b1"]),
        npst.array_shapes(max_dims=3, max_side=6),
    )
)
def test_differences_of_whole_numbers_are_exact(array: Array) -> None:
    chain, spec = chain_of({"id": "delta", "dtype": array.dtype.str}, array)
    assert chain.decode(chain.encode(array), spec).tobytes() == array.tobytes()


@given(npst.arrays("|b1", npst.array_shapes(max_dims=2, max_side=20)))
def test_booleans_are_packed(array: Array) -> None:
    chain, spec = chain_of({"id": "packbits"}, array)
    stored = chain.encode(array)
    assert len(stored) == 1 + -(-array.size // 8)
    assert chain.decode(stored, spec).tolist() == array.tolist()


def test_differences_run_in_the_stored_order() -> None:
    array = np.array([[1, 2], [10, 20]], "<i4")
    spec = ChunkSpec((2, 2), array.dtype)
    delta = Delta(array.dtype, array.dtype)
    plain, turned = assemble([delta], spec), assemble([Transpose(), delta], spec)
    assert np.frombuffer(plain.encode(array), "<i4").tolist() == [1, 1, 8, 10]
    assert np.frombuffer(turned.encode(array), "<i4").tolist() == [1, 9, -8, 18]
    assert turned.decode(turned.encode(array), spec).tolist() == array.tolist()


@given(st.permutations(range(3)))
def test_axes_are_permuted_and_back(order: list[int]) -> None:
    array = np.arange(24).reshape(2, 3, 4)
    stage, spec = Transpose(tuple(order)), ChunkSpec((2, 3, 4), array.dtype)
    stored = stage.encode(array)
    assert stored.tolist() == array.transpose(order).tolist()
    assert stage.encoded(spec).shape == stored.shape
    assert stage.decode(stored, spec).tolist() == array.tolist()


def test_an_order_for_other_axes_is_refused() -> None:
    with pytest.raises(FormatError, match="2 axes for 3"):
        assemble([Transpose((1, 0))], ChunkSpec((2, 3, 4), np.dtype("u1")))
    for order in ([0, 0], [1, 2], [-1, 0], "CF", [True, False]):
        with pytest.raises(FormatError, match="order"):
            parse_stage({"id": "transpose", "order": order})


@pytest.mark.parametrize("width", [2, 4, 8])
@pytest.mark.parametrize("order", ["<", ">"])
def test_rounding_goes_to_even(width: int, order: str) -> None:
    array = np.array([1.0, 1.25, 1.5, 1.75, -1.25, 1.126, np.inf, 0.0], f"{order}f{width}")
    rounded = BitRound(1).encode(array)
    assert rounded.dtype == array.dtype
    assert rounded.tolist() == [1.0, 1.0, 1.5, 2.0, -1.0, 1.0, np.inf, 0.0]
    assert array[1] == 1.25


LABELS = {"id": "categorize", "labels": ["male", "female"], "dtype": "|O", "astype": "|u1"}


@pytest.mark.parametrize("dtype", [dtypes.TEXT, np.dtype("<U6")], ids=str)
def test_labels_become_numbers(dtype: Any) -> None:
    array = np.array([["male", "female"], ["other", "male"]], dtype)
    chain, spec = chain_of(LABELS, array)
    stored = chain.encode(array)
    assert list(stored) == [1, 2, 0, 1]
    theirs = numcodecs.get_codec(LABELS)
    assert theirs.encode(array.astype(object)).tobytes() == stored
    assert chain.decode(stored, spec).tolist() == [["male", "female"], ["", "male"]]


def test_numbers_without_a_label_are_empty_text() -> None:
    spec = ChunkSpec((4,), dtypes.TEXT)
    signed = Categorize(("a",), np.dtype(object), np.dtype("i1"))
    chain = assemble([signed], spec)
    assert chain.decode(b"\x01\x02\xff\x80", spec).tolist() == ["a", "", "", ""]


def test_the_padding_of_packed_bits_must_be_right() -> None:
    spec = ChunkSpec((10,), np.dtype(bool))
    stored = bytearray(assemble([PackBits()], spec).encode(np.ones(10, bool)))
    stored[0] = 7
    with pytest.raises(CorruptionError, match="padding"):
        assemble([PackBits()], spec).decode(stored, spec)


def test_numbers_that_have_no_other_type_are_corrupt() -> None:
    config = {"id": "astype", "encode_dtype": "|S3", "decode_dtype": "<i4"}
    chain, spec = chain_of(config, np.zeros(2, "<i4"))
    assert chain.decode(b"12\x00-34", spec).tolist() == [12, -34]
    with pytest.raises(CorruptionError, match="astype"):
        chain.decode(b"12\x00abc", spec)


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        ({"id": "delta", "dtype": "<i8"}, "|V6"),
        ({"id": "delta", "dtype": "<i8"}, "|O"),
        ({"id": "bitround", "keepbits": 24}, "<f4"),
        ({"id": "bitround", "keepbits": 3}, "<i4"),
        ({"id": "bitround", "keepbits": 3}, "<f16"),
        (LABELS, "<i4"),
    ],
    ids=str,
)
def test_items_that_cannot_be_filtered(config: dict[str, Any], dtype: str) -> None:
    with pytest.raises(FormatError, match=config["id"]):
        assemble([filter_of(config)], ChunkSpec((3,), np.dtype(dtype)))


@pytest.mark.parametrize(
    "config",
    [
        {"id": "delta"},
        {"id": "delta", "dtype": "|O"},
        {"id": "delta", "dtype": "<M8[s]"},
        {"id": "delta", "dtype": "<i4", "astype": "|S4"},
        {"id": "fixedscaleoffset", "scale": 0, "offset": 0, "dtype": "<f4"},
        {"id": "fixedscaleoffset", "scale": float("nan"), "offset": 0, "dtype": "<f4"},
        {"id": "fixedscaleoffset", "scale": "1", "offset": 0, "dtype": "<f4"},
        {"id": "fixedscaleoffset", "offset": 0, "dtype": "<f4"},
        {"id": "quantize", "digits": 1.5, "dtype": "<f4"},
        {"id": "quantize", "digits": 1000, "dtype": "<f4"},
        {"id": "quantize", "digits": 1, "dtype": "<i4"},
        {"id": "bitround", "keepbits": -1},
        {"id": "bitround", "keepbits": 53},
        {"id": "astype", "encode_dtype": "<f4"},
        {"id": "astype", "encode_dtype": "<f4", "decode_dtype": "|V4"},
        {"id": "categorize", "labels": ["a"], "dtype": "|S3"},
        {"id": "categorize", "labels": [5], "dtype": "|O"},
        {"id": "categorize", "labels": "ab", "dtype": "|O"},
        {"id": "categorize", "labels": ["x"] * 300, "dtype": "|O", "astype": "|u1"},
    ],
    ids=str,
)
def test_parameters_that_mean_nothing(config: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=config["id"]):
        parse_stage(config)


@pytest.mark.parametrize("name", ["delta", "packbits", "bitround", "astype"])
def test_unknown_fields_are_refused(name: str) -> None:
    known = {"dtype": "<i4", "keepbits": 3, "encode_dtype": "<i4", "decode_dtype": "<i4"}
    keys = {"delta": ["dtype"], "packbits": [], "bitround": ["keepbits"]}
    fields = {key: known[key] for key in keys.get(name, ["encode_dtype", "decode_dtype"])}
    with pytest.raises(UnsupportedError, match="'more'"):
        parse_stage({"id": name, "more": 1} | fields)


# Axes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claim", "shape", "expected"),
    [
        ([[0, 1], [2], 3], (100, 50, 64, 3), (5000, 64, 3)),
        ([-1], (2, 3, 4), (24,)),
        ([24], (2, 3, 4), (24,)),
        ([4, -1], (2, 3, 4), (4, 6)),
        ([[0], -1], (2, 3, 4), (2, 12)),
        ([1, [0], 1, [1, 2], 1], (2, 3, 4), (1, 2, 1, 12, 1)),
        ([[]], (1, 1), (1,)),
        # Axes of one item make no difference.
        ([[0], [2]], (2, 1, 3), (2, 3)),
        ([], (), ()),
        ([1, 1], (), (1, 1)),
        ([], (1, 1), ()),
    ],
)
def test_other_axes(claim: Any, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    stage = Reshape.parse(FieldReader("reshape", {"shape": claim}))
    spec = ChunkSpec(shape, np.dtype("i4"), 7)
    assert stage.encoded(spec) == ChunkSpec(expected, np.dtype("i4"))
    assert stage.encoded(spec).fill == 7
    array = np.arange(np.prod(shape, dtype=int), dtype="i4").reshape(shape)
    stored = stage.encode(array)
    np.testing.assert_array_equal(stored, array.reshape(expected), strict=True)
    np.testing.assert_array_equal(stage.decode(stored, spec), array, strict=True)


@pytest.mark.parametrize(
    ("claim", "shape"),
    [
        ([23], (2, 3, 4)),
        ([5, -1], (2, 3, 4)),
        ([-1, -1], (2, 3, 4)),
        ([[1], [0]], (2, 3)),
        ([[1, 0]], (2, 3)),
        ([[0], [0]], (2, 2)),
        ([[0], [2]], (2, 4, 3)),
        ([[0, 2], -1], (2, 3, 4)),
        ([3, [0]], (3, 3)),
        ([[1], 2], (2, 3)),
        ([[3]], (2, 3)),
        ([10**30, -1], (2, 3)),
    ],
)
def test_axes_that_do_not_follow(claim: Any, shape: tuple[int, ...]) -> None:
    stage = Reshape.parse(FieldReader("reshape", {"shape": claim}))
    with pytest.raises(FormatError, match="reshape"):
        stage.encoded(ChunkSpec(shape, np.dtype("i4")))


@pytest.mark.parametrize(
    "claim", [None, 5, "x", {}, [0], [-2], [1.0], [True], ["1"], [[-1]], [[True]], [None], [1] * 33]
)
def test_what_are_no_axes(claim: Any) -> None:
    with pytest.raises(FormatError, match="shape"):
        Reshape.parse(FieldReader("reshape", {"shape": claim}))
    with pytest.raises(UnsupportedError, match="order"):
        Reshape.parse(FieldReader("reshape", {"shape": [1], "order": "F"}))

"""Serializers of variable-length items: the layouts of numcodecs, every length checked."""

import json
import struct
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot import dtypes
from ingot.codecs.codec import ChunkSpec, CodecChain, Serializer, parse_stage
from ingot.codecs.text import Json2, VlenArray, VlenBytes, VlenUtf8
from ingot.errors import CorruptionError, FormatError, UnsupportedError
from tests.kernels import KERNELS
from tests.storage import use_kernel

Array = np.ndarray[Any, Any]
OBJECT = np.dtype(object)


def objects(items: list[Any], *shape: int) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape or (len(items),))


def packed(*items: bytes) -> bytes:
    parts = [struct.pack("<I", len(item)) + item for item in items]
    return struct.pack("<I", len(items)) + b"".join(parts)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(text, min_size=1, max_size=12))
def test_text_is_laid_out_as_in_numcodecs(texts: list[str]) -> None:
    array = np.array(texts, dtypes.TEXT)
    stored = CodecChain((), VlenUtf8()).encode(array)
    assert stored == bytes(numcodecs.VLenUTF8().encode(array.astype(object)))
    assert stored == packed(*(item.encode() for item in texts))
    found = CodecChain((), VlenUtf8()).decode(stored, ChunkSpec(array.shape, dtypes.TEXT))
    assert found.dtype == dtypes.TEXT
    assert found.tolist() == texts


@pytest.mark.parametrize("kernel_name", KERNELS)
def test_text_of_every_kind_is_the_same_on_both_kernels(
    kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    texts = ["", "ape", "b\0", "\0", "å∂𝄞", "a sentence that does not lie in the array " * 9]
    array = np.array(texts * 2, dtypes.TEXT).reshape(3, 4)
    stored = CodecChain((), VlenUtf8()).encode(array)
    assert stored == packed(*(item.encode() for item in texts * 2))
    assert CodecChain((), VlenUtf8()).encode(array.T.copy().T) == stored
    found = CodecChain((), VlenUtf8()).decode(stored, ChunkSpec((3, 4), dtypes.TEXT))
    assert (found.dtype, found.tolist()) == (dtypes.TEXT, array.tolist())
    nulls = np.array(["a", None, ""], dtypes.NULLABLE_TEXT)
    assert CodecChain((), VlenUtf8()).encode(nulls) == packed(b"a", b"", b"")
    empty = np.zeros((0, 2), dtypes.TEXT)
    assert CodecChain((), VlenUtf8()).encode(empty) == packed()
    found = CodecChain((), VlenUtf8()).decode(packed(), ChunkSpec((0, 2), dtypes.TEXT))
    assert found.shape == (0, 2)


@pytest.mark.parametrize("kernel_name", KERNELS)
@pytest.mark.parametrize("item", [b"\xff\xfe", b"\xed\xa0\x80", b"caf\xc3"])
def test_what_is_no_text_is_corrupt_on_both_kernels(
    kernel_name: str, item: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    with pytest.raises(CorruptionError, match="vlen-utf8: item 1"):
        VlenUtf8().decode(packed(b"ab", item), ChunkSpec((2,), dtypes.TEXT))


@given(st.lists(st.binary(max_size=8), min_size=1, max_size=12))
def test_bytes_are_laid_out_as_in_numcodecs(items: list[bytes]) -> None:
    array = objects(items)
    stored = CodecChain((), VlenBytes()).encode(array)
    assert stored == bytes(numcodecs.VLenBytes().encode(array))
    assert (
        CodecChain((), VlenBytes()).decode(stored, ChunkSpec(array.shape, OBJECT)).tolist() == items
    )


@given(st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=9))
def test_rows_are_laid_out_as_in_numcodecs(rows: list[list[int]]) -> None:
    array = np.empty(len(rows), object)
    for index, row in enumerate(rows):
        array[index] = np.array(row, ">i2")
    stage = VlenArray(np.dtype(">i2"))
    stored = CodecChain((), stage).encode(array)
    assert stored == bytes(numcodecs.VLenArray(">i2").encode(array))
    found = CodecChain((), stage).decode(stored, ChunkSpec(array.shape, OBJECT))
    assert [row.tolist() for row in found] == rows
    assert all(row.dtype == np.dtype(">i2") and row.flags.writeable for row in found)


def test_rows_of_one_length_do_not_become_an_axis() -> None:
    stage, spec = VlenArray(np.dtype("<i4")), ChunkSpec((2, 2), OBJECT)
    array = np.empty((2, 2), object)
    for index in np.ndindex(2, 2):
        array[index] = np.array([1, 2], "<i4")
    found = CodecChain((), stage).decode(CodecChain((), stage).encode(array), spec)
    assert found.shape == (2, 2)
    assert found[1, 1].tolist() == [1, 2]


def test_missing_items_are_written_as_empty_ones() -> None:
    assert CodecChain((), VlenUtf8()).encode(objects([None, 0, "a"])) == packed(b"", b"", b"a")
    assert CodecChain((), VlenBytes()).encode(objects([None, 0, b"a"])) == packed(b"", b"", b"a")
    stored = CodecChain((), VlenArray(np.dtype("u1"))).encode(objects([None, [7]]))
    assert stored == packed(b"", b"\x07")


def test_items_of_another_kind_are_not_written() -> None:
    with pytest.raises(TypeError, match="text, not bytes"):
        VlenUtf8().encode(objects([b"a"]))
    with pytest.raises(TypeError, match="bytes, not str"):
        VlenBytes().encode(objects(["a"]))
    with pytest.raises(ValueError, match="one axis"):
        VlenArray(np.dtype("u1")).encode(objects([np.zeros((2, 2))]))


STAGES = [VlenUtf8(), VlenBytes(), VlenArray(np.dtype("<u2"))]
each_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
DAMAGED = {
    "nothing": b"",
    "no room for the count": b"\x02\x00\x00",
    "another count": packed(b"ab"),
    "a huge count": b"\xff\xff\xff\xff" + packed(b"ab", b"cd")[4:],
    "no room for the lengths": packed(b"ab", b"cd")[:11],
    "an item that is cut": packed(b"ab", b"cd")[:-1],
    "a length beyond the end": b"\x02\x00\x00\x00\x02\x00\x00\x00ab\xff\xff\xff\xffcd",
    "a length over the next one": b"\x02\x00\x00\x00\x08\x00\x00\x00ab\x02\x00\x00\x00cd",
    "bytes behind the last item": packed(b"ab", b"cd") + b"\x00",
}


@each_stage
@pytest.mark.parametrize("name", DAMAGED)
@pytest.mark.parametrize("kernel_name", KERNELS)
def test_lengths_are_counted_against_the_bytes(
    kernel_name: str, stage: Serializer, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    spec = ChunkSpec((2,), stage.holds or OBJECT)
    with pytest.raises(CorruptionError, match=f"{stage.name}|no bytes"):
        CodecChain((), stage).decode(DAMAGED[name], spec)


def test_text_that_is_no_text_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="item 0 is no text in UTF-8"):
        VlenUtf8().decode(packed(b"\xff\xfe"), ChunkSpec((1,), dtypes.TEXT))


def test_half_an_item_of_a_row_is_corrupt() -> None:
    with pytest.raises(CorruptionError, match="not a row"):
        VlenArray(np.dtype("<u2")).decode(packed(b"abc"), ChunkSpec((1,), OBJECT))


def test_a_count_that_the_bytes_cannot_hold_costs_nothing() -> None:
    spec = ChunkSpec((2**32 - 1,), OBJECT)
    with pytest.raises(CorruptionError, match="cannot hold"):
        VlenBytes().decode(b"\xff\xff\xff\xff", spec)


VALUES = [42, "foo", ["bar", None], {"a": 1.5}, True, None]


def test_json_is_laid_out_as_in_numcodecs() -> None:
    array = objects(VALUES, 2, 3)
    stored = CodecChain((), Json2()).encode(array)
    assert stored == numcodecs.JSON().encode(array)
    assert (
        CodecChain((), Json2()).decode(stored, ChunkSpec((2, 3), OBJECT)).tolist() == array.tolist()
    )


def test_json_of_other_types_than_objects() -> None:
    for array in (np.arange(6).reshape(2, 3), np.array(["a", "bc"]), np.array([True, False])):
        stored = CodecChain((), Json2()).encode(array)
        assert stored == numcodecs.JSON().encode(array)
        found = CodecChain((), Json2()).decode(stored, ChunkSpec(array.shape, array.dtype))
        assert found.dtype == array.dtype
        assert found.tolist() == array.tolist()


def test_json_of_one_item_without_axes() -> None:
    spec = ChunkSpec((), OBJECT)
    array = np.empty((), object)
    array[()] = {"a": [1]}
    stored = CodecChain((), Json2()).encode(array)
    assert stored == numcodecs.JSON().encode(array)
    assert CodecChain((), Json2()).decode(stored, spec)[()] == {"a": [1]}


def test_the_parameters_of_the_json_encoder() -> None:
    config = {"id": "json2", "indent": 2, "sort_keys": False, "ensure_ascii": False}
    array = objects([{"b": "é", "a": 1}])
    stage = parse_stage(config)
    assert isinstance(stage, Serializer)
    assert stage.encode(array) == numcodecs.get_codec(config).encode(array)
    assert parse_stage(stage.config()) == stage
    assert numcodecs.get_codec(Json2().config()).encode(array) == Json2().encode(array)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b'["|O"]',
        b'[1, 2, "|O", [3]]',
        b'[1, 2, "|O", [4]]',
        b'[1, 2, 3, "|O", [2]]',
        b'[1, 2, "|O", "2"]',
        b'[1, 2, "|O", {"a": 2}]',
        b'[1, 2, "O8; import os", [2]]',
        b"[1, 2, 5, [2]]",
        b'[1, 2, "<i4", [2]]',
        b'[1, 2, "|O", [1099511627776]]',
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" + b"9" * 10_000 + b', 1, "|O", [2]]',
    ],
)
def test_json_that_is_no_array_of_that_shape(document: bytes) -> None:
    with pytest.raises(CorruptionError):
        CodecChain((), Json2()).decode(document, ChunkSpec((2,), OBJECT))


def test_json_rows_must_fit_the_shape() -> None:
    spec = ChunkSpec((2, 2), OBJECT)
    for rows in ([[1, 2], [3]], [[1, 2], 3], [[1, 2], "ab"], [[1, 2], {"a": 1, "b": 2}]):
        with pytest.raises(CorruptionError, match="not a list of 2"):
            Json2().decode(json.dumps([*rows, "|O", [2, 2]]).encode(), spec)


def test_json_numbers_must_fit_the_type() -> None:
    for value in (300, "x", None, 1e300):
        document = json.dumps([value, "|u1", [1]]).encode()
        with pytest.raises(CorruptionError, match="uint8"):
            Json2().decode(document, ChunkSpec((1,), np.dtype("u1")))
    with pytest.raises(UnsupportedError, match="V4"):
        Json2().decode(b'["abcd", "|V4", [1]]', ChunkSpec((1,), np.dtype("V4")))


@pytest.mark.parametrize(
    "config",
    [
        {"id": "vlen-array"},
        {"id": "vlen-array", "dtype": "|O"},
        {"id": "json2", "encoding": "rot13"},
        {"id": "json2", "indent": 1.5},
        {"id": "json2", "indent": 10**9},
        {"id": "json2", "separators": [","]},
        {"id": "json2", "strict": 1},
    ],
    ids=str,
)
def test_parameters_that_mean_nothing(config: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match=config["id"]):
        parse_stage(config)


def test_unknown_fields_are_refused() -> None:
    for name in ("vlen-utf8", "vlen-bytes", "json2"):
        with pytest.raises(UnsupportedError, match="'more'"):
            parse_stage({"id": name, "more": 1})

"""The documents of blsk: both examples of the proposal, and what is refused."""

from typing import Any

import numpy as np
import pytest

from ingot.codecs.codec import ChunkSpec
from ingot.codecs.numeric import TruncatePrecision
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from ingot.formats.blsk.metadata import (
    pack_attributes,
    parse_attributes,
    parse_columns,
    parse_nrows,
)
from ingot.formats.yaml import Document

STORAGE = b"""\
dtype:
  col1: int8
  col2: float32
shape: (300,200)
chunkshape: (30, 20)
superchunksize: 10  # max. number of chunks in a single file
endianness: big  # default: little
order: C         # default: C
compression:
  library: blosclz
  level: 5
  filters: [shuffle, truncate]  # order matters
"""

ATTRIBUTES = b"""\
temperature:
  value: 23.5
  type: scalar
  dtype: float32
pressure:
  value: 225.5
  type: scalar
  dtype: float32
ids:
  value: [1,3,6,10]
  type: array
  dtype: int32
"""


def columns(text: bytes) -> dict[tuple[str, ...], Any]:
    return parse_columns(Document.parse(text, "meta/storage"))


def test_the_storage_of_the_proposal() -> None:
    found = columns(STORAGE)
    assert list(found) == [("col1",), ("col2",)]
    first, second = found.values()
    assert (first.dtype, second.dtype) == (np.dtype("i1"), np.dtype(">f4"))
    for column in found.values():
        assert (column.shape, column.chunks, column.capacity) == ((300, 200), (30, 20), 10)
        assert (column.blosc.cname, column.blosc.clevel, column.blosc.shuffle) == ("blosclz", 5, 1)
        assert (column.order, column.truncate, column.fill) == ("C", -1, 0)
        # A bare `truncate` says nothing of the bits: chunks are written as they are.
        assert column.schema(300, {}).chain.filters == ()


def test_the_attributes_of_the_proposal() -> None:
    found = parse_attributes(ATTRIBUTES)
    assert found["temperature"] == np.float32(23.5)
    assert found["temperature"].dtype == found["pressure"].dtype == np.dtype("f4")
    assert found["ids"].dtype == np.dtype("i4")
    assert found["ids"].tolist() == [1, 3, 6, 10]
    changed = pack_attributes({**found, "pressure": np.float32(1.5)}, ATTRIBUTES)
    assert changed == ATTRIBUTES.replace(b"225.5", b"1.5")


def test_settings_may_differ_by_column() -> None:
    text = b"""
dtype: {a: int32, n: {b: ">f8", c: U3}}
shape: {a: [5], n: {b: [5, 2], c: [5]}}
chunkshape: {a: [2], n: {b: [2, 2], c: [2]}}
superchunksize: {a: 7, n: 9}
fill: {n: {b: .nan, c: x}}
order: {n: F}
"""
    found = columns(text)
    assert list(found) == [("a",), ("n", "b"), ("n", "c")]
    a, b, c = found.values()
    assert (a.dtype, b.dtype, c.dtype) == (np.dtype("<i4"), np.dtype(">f8"), np.dtype("<U3"))
    assert (a.capacity, b.capacity, c.capacity) == (7, 9, 9)
    assert (a.order, b.order) == ("C", "F")
    assert (a.fill, c.fill) == (0, "x")
    assert np.isnan(b.fill)


ARRAY = b"dtype: int32\nshape: [10]\nchunkshape: [4]\nsuperchunksize: 3\n"


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (b"dtype: int32", b"other: 1", FormatError),
        (b"int32", b"{a: {}}", FormatError),
        (b"int32", b"{../a: int8}", IngotError),
        (b"int32", b'{"": int8}', IngotError),
        (b"int32", b"[int32]", FormatError),
        (b"int32", b"7", FormatError),
        (b"int32", b"i4; import os", FormatError),
        (b"int32", b"object", UnsupportedError),
        (b"int32", b"int7", IngotError),
        (b"int32", b"S0", IngotError),
        (b"int32", b"S99999999999", IngotError),
        (b"[10]", b"(10", FormatError),
        (b"[10]", b"(10;)", FormatError),
        (b"[10]", b"[-1]", FormatError),
        (b"[10]", b"[1.5]", FormatError),
        (b"[10]", b"[true]", FormatError),
        (b"[10]", b"[10, 10]", FormatError),
        (b"[10]", b"[9223372036854775807, 9]", FormatError),
        (b"[10]", b"[" + b"1, " * 40 + b"1]", LimitError),
        (b"[4]", b"[0]", FormatError),
        (b"[4]", b"[4000000000]", LimitError),
        (b"[4]", b"null", FormatError),
        (b": 3", b": 0", FormatError),
        (b": 3", b": 1048577", FormatError),
        (b": 3", b": many", FormatError),
        (b": 3\n", b": 3\nendianness: middle\n", FormatError),
        (b": 3\n", b": 3\norder: A\n", FormatError),
        (b": 3\n", b": 3\nx_id: 0123456789abcde\n", FormatError),
        (b": 3\n", b": 3\nx_id: 1234567890123456\n", FormatError),
        (b": 3\n", b": 3\nx_id: 0123456789ABCDEF\n", FormatError),
        (b": 3\n", b": 3\nfill: 3000000000\n", FormatError),
        (b": 3\n", b": 3\nfill: x\n", FormatError),
        (b": 3\n", b": 3\ncompression: blosclz\n", FormatError),
        (b": 3\n", b": 3\ncompression: {library: lzma}\n", UnsupportedError),
        (b": 3\n", b": 3\ncompression: {level: 10}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: shuffle}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: [shuffle, bitshuffle]}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: [trunc]}\n", UnsupportedError),
        (b": 3\n", b": 3\ncompression: {filters: [bytedelta]}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: [bitshuffle, bytedelta]}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: [delta, shuffle, bytedelta]}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {library: snappy, filters: [delta]}\n", UnsupportedError),
        (b": 3\n", b": 3\ncompression: {filters: [{truncate: 53}]}\n", FormatError),
        (b": 3\n", b": 3\ncompression: {filters: [{truncate: 8}]}\n", UnsupportedError),
    ],
)
def test_what_is_refused(old: bytes, new: bytes, error: type[Exception]) -> None:
    assert list(columns(ARRAY)) == [()]
    with pytest.raises(error, match=r"^meta/storage|^truncate"):
        columns(ARRAY.replace(old, new))


def test_columns_have_limits() -> None:
    nested = "int8"
    for _ in range(17):
        nested = f"{{a: {nested}}}"
    with pytest.raises(LimitError, match="nested more than 16 deep"):
        columns(ARRAY.replace(b"int32", nested.encode()))


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"12", b"-1\n", b"1.0\n", b"0x10\n", b"1 2\n", b"9" * 20]
)
def test_what_is_no_number_of_rows(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="is no number of rows"):
        parse_nrows(data)
    with pytest.raises(FormatError, match="more than 64 bits count"):
        parse_nrows(b"9223372036854775808\n")


@pytest.mark.parametrize(
    "value",
    [
        np.float32("nan"),
        np.float64(-0.0),
        np.complex64(1 - 2j),
        np.array([[1 + 1j, 2], [3, 4]]),
        np.datetime64("2026-11-16"),
        np.timedelta64(-7, "ms"),
        np.bytes_(b"a\0b"),
        np.str_("ä"),
        np.bool_(True),
        np.array([], "u2"),
        np.zeros((2, 0, 3), ">f8"),
        np.array([b"x", b"yy"]),
        np.uint64(2**64 - 1),
        np.float16(0.1),
    ],
    ids=repr,
)
def test_numpy_attributes_come_back(value: Any) -> None:
    found = parse_attributes(pack_attributes({"a": value}, None))["a"]
    assert type(found) is type(value)
    assert found.dtype == value.dtype
    assert found.tobytes() == value.tobytes()


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ({"value": 1, "type": "scalar", "dtype": "int8"}, FormatError),
        pytest.param(object(), FormatError, id="object"),
        (2**65, LimitError),
        (np.array([None]), FormatError),
        ({1: 2}, FormatError),
    ],
    ids=repr,
)
def test_attributes_that_cannot_be_stored(value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="meta/attributes"):
        pack_attributes({"a": value}, None)


@pytest.mark.parametrize(
    "text",
    [
        b"a: {value: x, type: scalar, dtype: int8}",
        b"a: {value: 300, type: scalar, dtype: int8}",
        b"a: {value: [1], type: scalar, dtype: int8}",
        b"a: {value: 1, type: array, dtype: int8}",
        b"a: {value: [[1], 2], type: array, dtype: int8}",
        b"a: {value: 1, type: list, dtype: int8}",
        b"a: {value: 1, type: scalar, dtype: [int8]}",
    ],
)
def test_attributes_that_are_refused(text: bytes) -> None:
    with pytest.raises(IngotError, match="meta/attributes: a"):
        parse_attributes(text)


def test_truncated_floats_lose_their_last_bits() -> None:
    for dtype, bits in (("<f4", 23), (">f8", 52)):
        values = np.array([np.pi, -1e-30, 0.0, -0.0, np.inf, np.nan], dtype)
        assert TruncatePrecision(bits).encode(values).tobytes() == values.tobytes()
        kept = TruncatePrecision(8).encode(values)
        assert kept.dtype == values.dtype
        assert np.allclose(kept[:4], values[:4], rtol=2**-8)
        assert (kept.view(f"{dtype[0]}i{dtype[2]}") & ((1 << bits - 8) - 1) == 0).all()
    with pytest.raises(UnsupportedError, match="not int32"):
        TruncatePrecision(3).encoded(ChunkSpec((4,), np.dtype("<i4")))

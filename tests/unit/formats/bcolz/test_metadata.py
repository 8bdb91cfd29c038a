"""The documents of a bcolz array: every spelling of them, and the length of chunks."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.formats.bcolz.array import design, parse_attrs
from ingot.formats.bcolz.metadata import BcolzMetadata, Storage, default_chunk, parse_sizes
from ingot.formats.format import (
    Request,
)
from tests.storage import Place


def test_the_examples_of_the_description_are_read() -> None:
    shape, _ = parse_sizes(b'{"shape": [100000], "nbytes": 400000, "cbytes": 266904}')
    assert shape == (100_000,)
    storage = Storage.parse(
        b'{"dtype": "int32", "cparams": {"shuffle": true, "clevel": 5}, "chunklen": 65536, '
        b'"dflt": 0, "expectedlen": 100000}'
    )
    assert (storage.dtype, storage.chunklen, storage.blosc.clevel) == (np.dtype("<i4"), 65536, 5)
    attrs = b'{"temp": 22.5, "pressure": 999.2, "timestamp": "2016030915"}'
    assert parse_attrs(attrs) == {"temp": 22.5, "pressure": 999.2, "timestamp": "2016030915"}


FILLS = [
    ("<i4", -3),
    ("<f8", float("nan")),
    ("<f4", float("-inf")),
    ("|b1", True),
    ("|S4", b"ab"),
    ("|S4", b"\xff\x00\x01"),
    ("<U3", "äö"),
    ("<M8[D]", np.datetime64("2020-01-02")),
    ("<m8[s]", np.timedelta64(5, "s")),
    ("<c16", 1 - 2j),
    ("<g", np.longdouble(1.5)),
    ("|V3", b"abc"),
]


@pytest.mark.parametrize(("dtype", "fill"), FILLS, ids=str)
def test_fill_values_come_back(place: Place, dtype: str, fill: Any) -> None:
    value = np.frombuffer(fill, dtype)[0] if dtype == "|V3" else fill
    array = ingot.create(place, shape=3, dtype=dtype, fill=value, format="bcolz", chunks=4)
    array.resize(10)
    expected = np.empty(10, dtype)
    expected[...] = value
    again = ingot.open(place)
    np.testing.assert_array_equal(again[...], expected)
    np.testing.assert_array_equal(np.asarray(again.fill, dtype), expected[0])


@pytest.mark.parametrize(
    ("dtype", "dflt", "expected"),
    [
        ("float64", [2.5, 2.5], 2.5),
        ("float64", [[1.5], [1.5]], 1.5),
        ("|S3", "ab", b"ab"),
        ("<U3", "ab", "ab"),
        ("int8", None, 0),
        ("bool", True, True),
        ("datetime64[ns]", 0, np.datetime64(0, "ns")),
        ("[('a', '<i4'), ('b', '<f8')]", [1, 2.5], (1, 2.5)),
        ("|V3", "\0\0\0", b"\0\0\0"),
    ],
    ids=str,
)
def test_defaults_in_all_spellings(dtype: str, dflt: Any, expected: Any) -> None:
    values = {"dtype": dtype, "cparams": {"clevel": 5, "shuffle": True}, "chunklen": 3}
    data = json.dumps(values | {"expectedlen": -1, "dflt": dflt}).encode()
    fill = Storage.parse(data).fill
    assert (fill.tobytes() if dtype == "|V3" else fill.tolist()) == (
        expected.tolist() if isinstance(expected, np.generic) else expected
    )


def test_chunks_are_chosen_for_the_size() -> None:
    assert design(Request((0,), np.dtype("f8"), 0.0)).chunks == (131_072,)
    assert design(Request((10**10,), np.dtype("f8"), 0.0)).chunks == (2**21,)
    assert default_chunk(5, 2**40) == 1


def test_an_array_that_was_empty_gets_chunks_for_what_it_is_given() -> None:
    empty = BcolzMetadata.of(Storage.of(design(Request((0,), np.dtype("f8"), 0.0))), (0,), {})
    assert empty.resized(10**9).storage.chunklen == 2**20
    assert empty.resized(10).storage.chunklen == 131_072
    assert empty.resized(10).resized(10**9).storage.chunklen == 131_072
    wished = BcolzMetadata.of(
        Storage.of(design(Request((0,), np.dtype("f8"), 0.0, (100,)))), (0,), {}
    )
    assert wished.resized(10**9).storage.chunklen == 100


@pytest.mark.parametrize(
    "sizes",
    [
        {"shape": [6000], "nbytes": 48000, "cbytes": 5000},
        {"shape": [0, 3, 2], "nbytes": 0, "cbytes": 0},
        {"shape": [2**62], "nbytes": 2**63 - 1, "cbytes": 2**63 - 1},
        {"shape": [1], "nbytes": 2**63, "cbytes": 0},
        {"shape": [1], "nbytes": True, "cbytes": 1.5},
        {"nbytes": 8, "shape": [1], "cbytes": 8},
        {"shape": [1], "nbytes": 8, "cbytes": 8, "more": {"a": [None, "é"]}},
        {"shape": [1]},
    ],
)
def test_sizes_are_spelled_as_json_spells_them(sizes: dict[str, Any]) -> None:
    storage = b'{"dtype": "int32", "cparams": {"clevel": 5}, "chunklen": 4, "dflt": 0}'
    metadata = BcolzMetadata.parse(storage, b'{"shape": [1], "nbytes": 4, "cbytes": 4}', {})
    packed = replace(metadata, sizes=sizes).pack_sizes()
    assert packed == json.dumps(sizes).encode() + b"\n"

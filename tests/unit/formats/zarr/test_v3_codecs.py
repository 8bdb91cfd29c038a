"""Codecs of Zarr 3 that speak of items, as documents spell them, and whole arrays of them."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ingot
from ingot.codecs.bits import PackedBits
from ingot.codecs.codec import ChunkSpec, Stage
from ingot.codecs.filters import PackBits, Reshape
from ingot.codecs.numeric import CastValue, ScaleOffset
from ingot.errors import CorruptionError, FormatError, IngotError, UnsupportedError
from ingot.formats.zarr import v3_codecs, v3_metadata
from ingot.stores import MemoryStore
from ingot.stores.store import Extent
from tests.kernels import on_each_kernel
from tests.storage import use_kernel
from tests.unit.formats.zarr.test_v3 import LITTLE, PLAIN, named, regular

BYTES: dict[str, Any] = {"name": "bytes"}


def stages_of(codecs: list[Any], dtype: str, shape: tuple[int, ...] = (4, 6)) -> list[Stage]:
    chain = v3_codecs.parse_chain(codecs, ChunkSpec(shape, np.dtype(dtype)))
    return [*chain.filters, chain.serializer]


def document_of(store: MemoryStore) -> dict[str, Any]:
    [data] = store.read([Extent("zarr.json")])
    found: dict[str, Any] = json.loads(data or b"")
    return found


# Spellings, of the specifications and the shortest ones.
SPELLINGS: list[tuple[dict[str, Any] | str, str, Stage]] = [
    ("packbits", "bool", PackedBits()),
    (named("packbits", padding_encoding="last_byte"), "bool", PackedBits("last_byte")),
    (named("packbits", first_bit=None, last_bit=11), "uint16", PackedBits("none", None, 11)),
    (named("reshape", shape=[[0], -1, 2]), "int8", Reshape(((0,), -1, 2))),
    ("scale_offset", "int8", ScaleOffset(np.int8(0), np.int8(1))),
    (
        named("scale_offset", offset=5, scale=0.5),
        "float32",
        ScaleOffset(np.float32(5), np.float32(0.5)),
    ),
    (named("cast_value", data_type="uint8"), "float64", CastValue(np.dtype("u1"))),
    (
        named(
            "cast_value",
            data_type="uint8",
            rounding="towards-zero",
            out_of_range="wrap",
            scalar_map={
                "encode": [["+Infinity", 0], ["-Infinity", 1]],
                "decode": [[0, "Infinity"]],
            },
        ),
        "float64",
        CastValue(
            np.dtype("u1"),
            "towards-zero",
            "wrap",
            ((np.float64("inf"), np.uint8(0)), (np.float64("-inf"), np.uint8(1))),
            ((np.uint8(0), np.float64("inf")),),
        ),
    ),
]


@pytest.mark.parametrize(("claim", "dtype", "stage"), SPELLINGS)
def test_what_a_document_says(claim: Any, dtype: str, stage: Stage) -> None:
    serializes = isinstance(stage, PackedBits)
    codecs = [claim] if serializes else [claim, named("bytes", endian="little")]
    spec = ChunkSpec((4, 6), np.dtype(dtype))
    chain = v3_codecs.parse_chain(codecs, spec)
    assert stage in (*chain.filters, chain.serializer)
    spelled = v3_codecs.pack_chain(chain, 2)
    assert v3_codecs.parse_chain(json.loads(json.dumps(spelled)), spec) == chain


def test_the_older_codec_keeps_its_name() -> None:
    spelled = v3_codecs.pack_chain(
        v3_codecs.parse_chain([named("numcodecs.packbits"), BYTES], ChunkSpec((9,), np.dtype("?"))),
        1,
    )
    assert spelled[0] == {"name": "numcodecs.packbits", "configuration": {}}
    assert PackBits() in stages_of([named("numcodecs.packbits"), BYTES], "?")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (named("packbits", padding_encoding="middle"), "bool", "padding_encoding"),
    (named("packbits", first_bit=-1), "int8", "first_bit"),
    (named("packbits", last_bit=True), "int8", "last_bit"),
    (named("packbits", last_bit=8), "int8", "no bits 0 to 8"),
    (named("packbits", first_bit=3, last_bit=2), "int8", "no bits 3 to 2"),
    (named("packbits", width=3), "int8", "'width' is unknown"),
    (named("packbits"), "string", "not numbers"),
    (named("reshape"), "int8", "shape is missing"),
    (named("reshape", shape=[5]), "int8", "does not cut"),
    (named("reshape", shape="all"), "int8", "shape"),
    (named("scale_offset", scale=0), "int8", "lose the data"),
    (named("scale_offset", scale="Infinity"), "float32", "lose the data"),
    (named("scale_offset", offset="NaN"), "float32", "lose the data"),
    (named("scale_offset", scale=300), "int8", "300 is no value"),
    (named("scale_offset", offset=0.5), "int8", "0.5 is no value"),
    (named("scale_offset", offset="x"), "float32", "no value"),
    (named("scale_offset", base=1), "float32", "'base' is unknown"),
    (named("scale_offset"), "complex64", "not real numbers"),
    (named("cast_value"), "int8", "data_type is missing"),
    (named("cast_value", data_type="int31"), "int8", "'int31' is unknown"),
    (named("cast_value", data_type="bool"), "int8", "not real numbers"),
    (named("cast_value", data_type="string"), "int8", "not real numbers"),
    (named("cast_value", data_type="int8"), "string", "not real numbers"),
    (named("cast_value", data_type="int8", rounding="up"), "float32", "rounding"),
    (named("cast_value", data_type="int8", out_of_range="ignore"), "float32", "out_of_range"),
    (named("cast_value", data_type="float32", out_of_range="wrap"), "float64", "only integers"),
    (named("cast_value", data_type="int8", scalar_map=[]), "float32", "scalar_map"),
    (named("cast_value", data_type="int8", scalar_map={"both": []}), "float32", "'both'"),
    (named("cast_value", data_type="int8", scalar_map={"encode": 5}), "float32", "encode"),
    (named("cast_value", data_type="int8", scalar_map={"encode": [[1]]}), "float32", "no pair"),
    (
        named("cast_value", data_type="int8", scalar_map={"encode": [["NaN", 300]]}),
        "float32",
        "300 is no value",
    ),
    (
        named("cast_value", data_type="int8", scalar_map={"decode": [[1, []]]}),
        "float32",
        "no value",
    ),
    (named("cast_value", data_type="int8", note=1), "float32", "'note' is unknown"),
]


@pytest.mark.parametrize(
    ("claim", "dtype", "match"), REFUSED, ids=[f"{c['name']}-{m}" for c, _, m in REFUSED]
)
def test_what_is_refused(claim: dict[str, Any], dtype: str, match: str) -> None:
    last = [] if claim["name"] == "packbits" else [LITTLE]
    document = PLAIN | {"data_type": dtype, "codecs": [claim, *last]}
    if dtype == "string":
        document["fill_value"] = ""
    with pytest.raises((FormatError, UnsupportedError), match=match):
        v3_metadata.parse(json.dumps(document).encode())


@given(
    name=st.sampled_from(["packbits", "reshape", "scale_offset", "cast_value"]),
    dtype=st.sampled_from(["bool", "int8", "float32", "complex64", "string", "int4", "r24"]),
    configuration=st.dictionaries(
        st.sampled_from(
            [
                *("padding_encoding", "first_bit", "last_bit", "shape", "offset", "scale"),
                *("data_type", "rounding", "out_of_range", "scalar_map"),
            ]
        ),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.floats()
            | st.sampled_from(["int8", "float32", "clamp", "wrap", "NaN", "none", "encode"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["encode", "decode", "name"]), inner, max_size=2)
            ),
            max_leaves=6,
        ),
        max_size=4,
    ),
)
def test_documents_are_read_or_refused(
    name: str, dtype: str, configuration: dict[str, Any]
) -> None:
    claim = {"name": name, "configuration": configuration}
    codecs = [claim] if name == "packbits" else [claim, LITTLE]
    document = PLAIN | {"data_type": dtype, "codecs": codecs, "fill_value": 0}
    try:
        canonical = v3_metadata.canonical(document)
    except IngotError:
        return
    assert v3_metadata.canonical(canonical) == canonical


def test_a_fill_value_that_would_not_come_back() -> None:
    codecs = [named("cast_value", data_type="uint8"), BYTES]
    document = PLAIN | {"data_type": "float64", "codecs": codecs}
    v3_metadata.parse(json.dumps(document | {"fill_value": 7}).encode())
    for fill in (0.5, -1, 256, "NaN"):
        with pytest.raises(FormatError, match=r"zarr.json: fill_value: cast_value"):
            v3_metadata.parse(json.dumps(document | {"fill_value": fill}).encode())


CHAINS: list[tuple[str, list[Stage]]] = [
    ("?", [PackedBits("first_byte")]),
    ("<u2", [PackedBits(last_bit=11)]),
    (">i4", [PackedBits(last_bit=20)]),
    ("<c16", [PackedBits()]),
    (">f4", [Reshape(((0, 1),))]),
    ("<i4", [Reshape((-1, 2)), PackedBits()]),
    ("<f8", [ScaleOffset(-10, 2.0), CastValue(np.dtype("u1"))]),
    (">i8", [ScaleOffset(3, 2), CastValue(np.dtype("i2"))]),
    ("<f4", [CastValue(np.dtype("f2"), out_of_range="clamp")]),
]


@on_each_kernel
@pytest.mark.parametrize("shards", [None, (8, 6)])
@pytest.mark.parametrize(("dtype", "codec"), CHAINS)
def test_arrays_go_there_and_back(
    kernel_name: str,
    dtype: str,
    codec: list[Stage],
    shards: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    store = MemoryStore()
    data = (np.arange(90).reshape(10, 9) % 40).astype(dtype)
    array = ingot.create(
        store, shape=(10, 9), dtype=dtype, chunks=(4, 3), codec=codec, fill=1, shards=shards
    )
    array[2:, 1:] = data[2:, 1:]
    expected = np.ones((10, 9), dtype)
    expected[2:, 1:] = data[2:, 1:]
    again = ingot.open(store, "r+")
    assert isinstance(again, ingot.Array)
    np.testing.assert_array_equal(again[...], expected)
    np.testing.assert_array_equal(again[3:7:2, ::-1], expected[3:7:2, ::-1])
    again.append(np.zeros((1, 9), dtype))
    np.testing.assert_array_equal(ingot.open(store)[...], np.vstack([expected, np.zeros((1, 9))]))


@on_each_kernel
def test_chunks_absent_behind_a_cast_hold_the_fill_value(
    kernel_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Filters in front of shards change the fill value too."""
    use_kernel(kernel_name, monkeypatch)
    sharding = named(
        "sharding_indexed",
        chunk_shape=[2],
        codecs=[BYTES],
        index_codecs=[LITTLE],
        index_location="end",
    )
    codecs = [named("scale_offset", offset=-10), named("cast_value", data_type="uint8"), sharding]
    document = PLAIN | {
        "shape": [4],
        "chunk_grid": regular(4),
        "data_type": "float64",
        "fill_value": 7,
        "codecs": codecs,
    }
    index = np.array([0, 2, 2**64 - 1, 2**64 - 1], "<u8").tobytes()
    store = MemoryStore({"zarr.json": json.dumps(document).encode(), "c/0": b"\x0b\x14" + index})
    assert ingot.open(store)[...].tolist() == [1.0, 10.0, 7.0, 7.0]


def test_values_that_do_not_fit_are_not_stored() -> None:
    store = MemoryStore()
    codec = [CastValue(np.dtype("u1"))]
    array = ingot.array([1, 2, 3], store, chunks=3, codec=codec, format="zarr3")
    with pytest.raises(FormatError, match="cast_value: 256 is not a value of type uint8"):
        array[1] = 256
    assert array[...].tolist() == [1, 2, 3]


def test_stored_values_that_do_not_fit_are_damage() -> None:
    document = PLAIN | {
        "shape": [2],
        "chunk_grid": regular(2),
        "data_type": "int8",
        "codecs": [named("cast_value", data_type="int16"), LITTLE],
    }
    store = MemoryStore({"zarr.json": json.dumps(document).encode(), "c/0": b"\x01\x00\x00\x01"})
    with pytest.raises(CorruptionError, match="cast_value: 256 is not a value of type int8"):
        ingot.open(store)[...]


# Types of less than a byte ------------------------------------------------------------------------


@on_each_kernel
@pytest.mark.parametrize(
    ("name", "stored", "expected"),
    [
        ("int4", [0x07, 0xF8, 0x5F, 0xA0], [7, -8, -1, 0]),
        ("uint4", [0x07, 0xF8, 0x5F, 0xA0], [7, 8, 15, 0]),
        ("int2", [0x01, 0xFE, 0xAB, 0x50], [1, -2, -1, 0]),
        ("uint2", [0x01, 0xFE, 0xAB, 0x50], [1, 2, 3, 0]),
        ("float4_e2m1fn", [0x02, 0xF2, 0xCA, 0x40], [1, 1, -1, 0]),
        ("float6_e2m3fn", [0x08, 0xC8, 0xA8, 0x40], [1, 1, -1, 0]),
        ("float6_e3m2fn", [0x0C, 0xCC, 0xAC, 0x40], [1, 1, -1, 0]),
    ],
)
def test_bits_beyond_a_type_mean_nothing(
    kernel_name: str,
    name: str,
    stored: list[int],
    expected: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("ml_dtypes")
    use_kernel(kernel_name, monkeypatch)
    document = PLAIN | {
        "shape": [4],
        "chunk_grid": regular(4),
        "data_type": name,
        "codecs": [BYTES],
    }
    store = MemoryStore({"zarr.json": json.dumps(document).encode(), "c/0": bytes(stored)})
    assert ingot.open(store)[...].astype(float).tolist() == expected


PAIRS = ["complex_float4_e2m1fn", "complex_float6_e3m2fn", "complex_float8_e4m3"]


@on_each_kernel
@pytest.mark.parametrize("name", PAIRS)
def test_complex_numbers_of_short_parts(
    kernel_name: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    use_kernel(kernel_name, monkeypatch)
    part = np.dtype(getattr(ml_dtypes, name.removeprefix("complex_")))
    document = PLAIN | {
        "shape": [3],
        "chunk_grid": regular(2),
        "data_type": name,
        "codecs": [BYTES],
        "fill_value": [1.0, -1.5],
    }
    chunk = np.array([1, 2, -1, 0.5]).astype(part).tobytes()
    store = MemoryStore({"zarr.json": json.dumps(document).encode(), "c/0": chunk})
    array = ingot.open(store, "r+")
    assert isinstance(array, ingot.Array)
    assert array.dtype == np.dtype([("real", part), ("imag", part)])
    assert array[...]["real"].astype(float).tolist() == [1, -1, 1]
    assert array[...]["imag"].astype(float).tolist() == [2, 0.5, -1.5]
    array.append(array[:1])
    copy = MemoryStore()
    ingot.array(array[...], copy, fill=array.fill, codec="none", format="zarr3")
    found = document_of(copy)
    assert (found["data_type"], found["fill_value"]) == (name, [1.0, -1.5])
    np.testing.assert_array_equal(ingot.open(copy)[...].view("u1"), array[...].view("u1"))


@pytest.mark.parametrize("fill", [0, [1], [1, 2, 3], ["x", 0], [1, None], {"real": 1, "imag": 2}])
def test_what_is_no_complex_number(fill: Any) -> None:
    pytest.importorskip("ml_dtypes")
    document = PLAIN | {"data_type": PAIRS[2], "codecs": [BYTES], "fill_value": fill}
    with pytest.raises(FormatError, match="fill_value"):
        v3_metadata.parse(json.dumps(document).encode())

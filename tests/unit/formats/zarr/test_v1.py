"""Zarr version 1: what is read, refused and written."""

import bz2
import json
import lzma
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import FormatError, IngotError, LimitError, UnsafeError, UnsupportedError
from ingot.formats.zarr.v1 import parse_meta
from ingot.stores import MemoryStore
from tests.storage import Place, content, put

PLAIN: dict[str, Any] = {
    "chunks": [2],
    "compression": "blosc",
    "compression_opts": {"clevel": 5, "cname": "lz4", "shuffle": 1},
    "dtype": "<i4",
    "fill_value": 0,
    "order": "C",
    "shape": [4],
    "zarr_format": 1,
}

# As zarr 1.1 wrote it.
META = """\
{
    "chunks": [
        2
    ],
    "compression": "blosc",
    "compression_opts": {
        "clevel": 5,
        "cname": "lz4",
        "shuffle": 1
    },
    "dtype": "<i4",
    "fill_value": 0,
    "order": "C",
    "shape": [
        4
    ],
    "zarr_format": 1
}"""


def create(place: Place, **wishes: Any) -> ingot.Array:
    return ingot.create(
        place, **{"shape": 4, "chunks": 2, "dtype": "<i4", **wishes}, format="zarr1"
    )


def test_a_new_array(place: Place) -> None:
    array = create(place)
    assert content(place) == {"meta": META.encode(), "attrs": b"{}"}
    array[1:] = 5
    assert sorted(content(place)) == ["0", "1", "attrs", "meta"]
    array.attrs["foo"] = 42
    assert content(place)["attrs"] == b'{\n    "foo": 42\n}'
    again = ingot.open(place)
    assert again.format == "zarr1"
    assert again[...].tolist() == [0, 5, 5, 5]


@pytest.mark.parametrize(
    ("codec", "name", "options"),
    [
        ("none", "none", None),
        ("zlib:3", "zlib", 3),
        ("bz2:9", "bz2", 9),
        ("lzma:1", "lzma", {"format": 1, "check": -1, "preset": 1, "filters": None}),
        ("blosc:zstd:1:2", "blosc", {"cname": "zstd", "clevel": 1, "shuffle": 2}),
    ],
)
def test_compressors_come_back(place: Place, codec: str, name: str, options: Any) -> None:
    data = np.arange(100, dtype="<u2").reshape(10, 10)
    ingot.array(data, place, chunks=(4, 4), codec=codec, format="zarr1")
    meta = json.loads(content(place)["meta"])
    assert (meta["compression"], meta["compression_opts"]) == (name, options)
    array = ingot.open(place)
    assert array[...].tolist() == data.tolist()
    expected = ingot.create(shape=1, dtype="<u2", codec=codec, format="zarr2")
    assert array.codec == expected.codec


@pytest.mark.parametrize(
    ("name", "options", "encode"),
    [
        ("none", None, bytes),
        (None, None, bytes),
        ("zlib", 1, zlib.compress),
        ("gzip", 1, zlib.compress),
        ("zlib", None, zlib.compress),
        ("bz2", 1, bz2.compress),
        ("lzma", {"preset": 1, "format": 1, "check": 0, "filters": None}, lzma.compress),
        ("lzma", None, lzma.compress),
    ],
)
def test_compressors_are_read(place: Place, name: str, options: Any, encode: Any) -> None:
    meta = PLAIN | {"compression": name, "compression_opts": options}
    chunk = encode(np.array([3, 4], "<i4").tobytes())
    put(place, {"meta": json.dumps(meta).encode(), "attrs": b"{}", "1": chunk})
    assert ingot.open(place)[...].tolist() == [0, 0, 3, 4]


def test_order_f(place: Place) -> None:
    data = np.arange(24, dtype="<i4").reshape(4, 6)
    ingot.array(data, place, chunks=(4, 6), codec="none", order="F", format="zarr1")
    assert content(place)["0.0"] == data.tobytes("F")
    assert ingot.open(place)[...].tolist() == data.tolist()


def test_attributes_may_be_missing(place: Place) -> None:
    put(place, {"meta": META.encode()})
    assert dict(ingot.open(place).attrs) == {}


def test_unknown_keys_and_files_survive(place: Place) -> None:
    put(place, {"meta": json.dumps(PLAIN | {"later": 1}).encode(), "readme": b"mine"})
    array = ingot.open(place, "r+")
    array.append([9, 9, 9])
    assert json.loads(content(place)["meta"]) == PLAIN | {"later": 1, "shape": [7]}
    assert content(place)["readme"] == b"mine"


BAD: list[tuple[dict[str, Any], type[IngotError], str]] = [
    *(({"zarr_format": v}, FormatError, "zarr_format") for v in (0, 2, "1", 1.0, True, None)),
    *(({"shape": v}, FormatError, "shape") for v in (None, 4, [-1], [4.0], [1, 2])),
    ({"shape": [], "chunks": []}, FormatError, "without axes"),
    ({"shape": [1] * 33, "chunks": [1] * 33}, LimitError, "33"),
    ({"chunks": [0]}, FormatError, "chunks"),
    *(({"order": v}, FormatError, "order") for v in (None, "A", 0)),
    *(({"compression": v}, FormatError, "compression") for v in ("lzo", 5, {}, ["zlib"])),
    *(({"compression_opts": v}, FormatError, "compression_opts") for v in (5, "x", [1])),
    ({"compression_opts": {"cname": "lzo"}}, FormatError, "compression_opts: cname"),
    ({"compression_opts": {"clevel": 10}}, FormatError, "compression_opts: clevel"),
    ({"compression": "zlib", "compression_opts": 10}, FormatError, "level"),
    ({"compression": "zlib", "compression_opts": {"level": 1}}, FormatError, "level"),
    ({"compression": "lzma", "compression_opts": {"format": 9}}, FormatError, "format"),
    ({"dtype": "|O"}, UnsafeError, "objects"),
    ({"dtype": "int"}, FormatError, "dtype"),
    ({"fill_value": "NaN"}, FormatError, "fill_value"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_metadata_is_refused(
    changes: dict[str, Any], error: type[IngotError], message: str
) -> None:
    with pytest.raises(error, match=f"meta.*{message}"):
        parse_meta(json.dumps(PLAIN | changes).encode())


@pytest.mark.parametrize("key", sorted(PLAIN.keys() - {"compression_opts"}))
def test_every_key_is_needed(key: str) -> None:
    few = {name: value for name, value in PLAIN.items() if name != key}
    with pytest.raises(FormatError, match=f"{key} is missing"):
        parse_meta(json.dumps(few).encode())


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"shape": (), "chunks": ()}, "without axes"),
        ({"dtype": str}, "cannot be stored"),
        ({"codec": ["shuffle", "zlib:1"]}, "one of"),
        ({"codec": "zstd:3"}, "one of"),
        ({"codec": "blosc:lz4:5:-1"}, "shuffle"),
        ({"codec": "blosc:lz4:5:1:4096"}, "blocksize"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(wishes: dict[str, Any], message: str) -> None:
    store = MemoryStore()
    with pytest.raises(UnsupportedError, match=message):
        create(store, **wishes)
    assert content(store) == {}


def test_orders_there_are_not(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="order"):
        create(tmp_path, order="A")


def test_a_folder_called_meta_is_no_array(tmp_path: Path) -> None:
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "notes").write_text("")
    with pytest.raises(FormatError, match="no dataset of a known format"):
        ingot.open(tmp_path)

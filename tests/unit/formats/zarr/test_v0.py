"""The first layout of Zarr: every example of its description, what is refused, what is kept."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.zarr.v0 import Zarr0Format, parse_meta
from ingot.stores import MemoryStore
from tests.storage import Place, content, put

EXAMPLE: dict[str, Any] = {
    "shape": (1_000_000, 1000),
    "chunks": (10_000, 100),
    "dtype": "<i4",
    "fill": 42,
    "codec": "blosc:lz4:3:1",
}

META = """\
{
    "chunks": [
        10000,
        100
    ],
    "clevel": 3,
    "cname": "lz4",
    "dtype": "<i4",
    "fill_value": 42,
    "shape": [
        1000000,
        1000
    ],
    "shuffle": 1
}"""

ATTRS = """\
{
    "bar": 4.2,
    "baz": "quux",
    "foo": 42
}"""

PLAIN: dict[str, Any] = {
    "chunks": [10],
    "clevel": 5,
    "cname": "blosclz",
    "dtype": "<i4",
    "fill_value": 7,
    "shape": [25],
    "shuffle": 1,
}


def create(place: Place, **wishes: Any) -> ingot.Array:
    return ingot.create(
        place, **{"shape": 25, "chunks": 10, "dtype": "<i4", "fill": 7, **wishes}, format="zarr0"
    )


# The examples of the description ------------------------------------------------------------------


def test_metadata_of_the_example(place: Place) -> None:
    create(place, **EXAMPLE)
    assert content(place)["__zmeta__"].decode() == META


def test_attributes_of_the_example(place: Place) -> None:
    array = create(place, **EXAMPLE)
    assert "__zattr__" not in content(place)
    # zarr sorts them, Ingot keeps their order.
    array.attrs["bar"] = 4.2
    array.attrs["baz"] = "quux"
    array.attrs["foo"] = 42
    assert content(place)["__zattr__"].decode() == ATTRS
    assert dict(ingot.open(place).attrs) == {"foo": 42, "bar": 4.2, "baz": "quux"}


def test_a_new_array_has_an_empty_folder_of_chunks(tmp_path: Path) -> None:
    array = create(tmp_path / "example.zarr", **EXAMPLE)
    assert list((tmp_path / "example.zarr" / "__zdata__").iterdir()) == []
    array[:20_000, :500] = 0
    names = sorted(path.name for path in (tmp_path / "example.zarr" / "__zdata__").iterdir())
    assert names[:5] == ["0.0.blosc", "0.1.blosc", "0.2.blosc", "0.3.blosc", "0.4.blosc"]
    assert len(names) == 10


def test_chunks_are_named_by_their_place(place: Place) -> None:
    data = np.arange(10_000, dtype="<i4").reshape(100, 100)
    ingot.array(data, place, chunks=(10, 10), format="zarr0")
    chunks = {key: value for key, value in content(place).items() if key.startswith("__zdata__/")}
    assert sorted(chunks) == sorted(
        f"__zdata__/{row}.{column}.blosc" for row in range(10) for column in range(10)
    )
    for key, part in (("0.0", data[:10, :10]), ("4.2", data[40:50, 20:30])):
        chunk = chunks[f"__zdata__/{key}.blosc"]
        assert ingot.blosc.decompress(chunk) == part.tobytes()
        # Blosc version 1: format 2, then the size of items, the bytes of the data and of the file.
        assert (chunk[0], chunk[3]) == (2, 4)
        assert int.from_bytes(chunk[4:8], "little") == 400
        assert int.from_bytes(chunk[12:16], "little") == len(chunk)


def test_missing_chunks_hold_the_fill_value(place: Place) -> None:
    put(place, {"__zmeta__": json.dumps(PLAIN).encode()})
    assert ingot.open(place)[...].tolist() == [7] * 25


def test_edge_chunks_have_full_size_and_hold_the_fill_value(place: Place) -> None:
    array = create(place)
    array[...] = np.arange(25)
    chunk = ingot.blosc.decompress(content(place)["__zdata__/2.blosc"])
    assert np.frombuffer(chunk, "<i4").tolist() == [20, 21, 22, 23, 24, 7, 7, 7, 7, 7]


# Living in an old folder --------------------------------------------------------------------------


def test_files_of_old_writers_are_ignored_and_kept(place: Place) -> None:
    array = create(place)
    array[...] = np.arange(25)
    strays = {
        "__zdata__/0.blosc.lock": b"",
        "__zdata__/1.blosc.x3k2.partial": b"half",
        "__zdata__/.nfs0001": b"gone",
        "__zattr__.lock": b"",
        "notes.txt": b"mine",
    }
    put(place, strays)
    array = ingot.open(place, "r+")
    assert array[...].tolist() == list(range(25))
    array.resize(5)
    array.resize(25)
    assert array[...].tolist() == [0, 1, 2, 3, 4] + [7] * 20
    assert content(place).items() >= strays.items()


def test_what_a_larger_array_left_stays_dead(place: Place) -> None:
    array = create(place)
    array[...] = np.arange(25)
    # Old writers changed the shape and removed nothing.
    put(place, {"__zmeta__": json.dumps({**PLAIN, "shape": [5]}).encode()})
    array = ingot.open(place, "r+")
    array.append([50])
    array.resize(25)
    assert array[...].tolist() == [0, 1, 2, 3, 4, 50] + [7] * 19


def test_unknown_keys_survive(place: Place) -> None:
    put(place, {"__zmeta__": json.dumps({**PLAIN, "later": [1, None]}).encode()})
    ingot.open(place, "r+").resize(30)
    found = json.loads(content(place)["__zmeta__"])
    assert found == {**PLAIN, "shape": [30], "later": [1, None]}


@pytest.mark.parametrize("fill", [float("nan"), float("inf"), -float("inf"), 0.1, 3])
def test_numbers_that_are_none_are_bare_words(place: Place, fill: float) -> None:
    create(place, dtype="<f8", fill=fill)
    text = content(place)["__zmeta__"].decode()
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity", "0.1": "0.1", "3": "3.0"}
    assert f'"fill_value": {words[str(fill)]},' in text
    assert np.array_equal(ingot.open(place).fill, fill, equal_nan=True)


def test_pickled_metadata_becomes_json_when_it_changes(place: Place) -> None:
    values = {**PLAIN, "dtype": np.dtype(">f4"), "cname": b"blosclz", "fill_value": np.float64(1.5)}
    values |= {"shape": (25,), "chunks": (10,)}
    put(place, {"__zmeta__": pickle.dumps(values, protocol=0)})
    array = ingot.open(place, "r+")
    assert (array.dtype, array.fill) == (np.dtype(">f4"), 1.5)
    array[3] = 9
    assert content(place)["__zmeta__"][:1] == b"("
    array.append([4.0])
    found = json.loads(content(place)["__zmeta__"])
    assert found == {**PLAIN, "dtype": ">f4", "fill_value": 1.5, "shape": [26]}
    assert ingot.open(place)[...].tolist() == [1.5] * 3 + [9] + [1.5] * 21 + [4]


def test_replacing_an_array(place: Place) -> None:
    create(place, attrs={"a": 1})[...] = 1
    create(place, overwrite=True)
    assert ingot.open(place)[...].tolist() == [7] * 25
    assert dict(ingot.open(place).attrs) == {}


# What is refused ----------------------------------------------------------------------------------

BAD: list[tuple[dict[str, Any], type[IngotError], str]] = [
    *(({"shape": shape}, FormatError, "shape") for shape in (None, 25, [2.5], [-1], [True], [[]])),
    ({"shape": []}, FormatError, "axes"),
    ({"shape": [], "chunks": []}, FormatError, "no arrays without axes"),
    ({"shape": [1] * 33, "chunks": [1] * 33}, LimitError, "33"),
    ({"shape": [2**62, 4], "chunks": [1, 1]}, FormatError, "64 bits"),
    ({"shape": [2**70]}, LimitError, "64 bits"),
    *(({"chunks": chunks}, FormatError, "chunks") for chunks in (None, [0], [-1], ["1"], [1, 1])),
    ({"chunks": [2**62, 8], "shape": [1, 1]}, FormatError, "64 bits"),
    *(({"cname": name}, FormatError, "cname") for name in (None, "lzo", 5, ["lz4"])),
    *(({"clevel": level}, FormatError, "clevel") for level in (-1, 10, 5.0, None, True)),
    *(({"shuffle": number}, FormatError, "shuffle") for number in (-1, 3, True, "1", None)),
    ({"dtype": "|O"}, UnsafeError, "objects"),
    ({"dtype": "|O8"}, UnsafeError, "objects"),
    *(
        ({"dtype": kind}, FormatError, "dtype")
        for kind in (None, 4, "i4", "<i3", "<V", [], [["a"]])
    ),
    ({"dtype": [["a", "|O"]]}, UnsupportedError, "objects"),
    ({"dtype": "|S4294967296"}, LimitError, "larger"),
    *(({"fill_value": fill}, FormatError, "fill_value") for fill in ("x", [], {}, 2**40)),
    ({"shape": "x", "clevel": 11, "dtype": "y"}, FormatError, "shape .*clevel .*dtype"),
]


@pytest.mark.parametrize(("changes", "error", "message"), BAD, ids=lambda value: str(value)[:40])
def test_bad_metadata_is_refused(
    changes: dict[str, Any], error: type[IngotError], message: str
) -> None:
    with pytest.raises(error, match=f"__zmeta__.*{message}"):
        parse_meta(json.dumps(PLAIN | changes).encode())


@pytest.mark.parametrize("key", PLAIN)
def test_every_key_is_needed(key: str) -> None:
    few = {name: value for name, value in PLAIN.items() if name != key}
    with pytest.raises(FormatError, match=f"{key} is missing"):
        parse_meta(json.dumps(few).encode())


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptionError),
        (bytes(40), CorruptionError),
        (b"[]", FormatError),
        (META[:-1].encode(), FormatError),
        (b'{"shape": ' + b"[" * 100_000, LimitError),
        (b"\xff\xfe", FormatError),
        (b'{"shape": [1], "shape": [2]}', FormatError),
    ],
)
def test_what_is_no_document_is_refused(data: bytes, error: type[IngotError]) -> None:
    with pytest.raises(error, match="__zmeta__"):
        parse_meta(data)


def test_bad_attributes_are_refused(place: Place) -> None:
    put(place, {"__zmeta__": json.dumps(PLAIN).encode(), "__zattr__": b"[]"})
    with pytest.raises(FormatError, match="__zattr__"):
        ingot.open(place)


def test_a_bomb_is_refused_by_its_size(place: Place) -> None:
    chunk = ingot.blosc.compress(bytes(40))
    values = {**PLAIN, "shape": [2**40], "chunks": [2**40]}
    put(place, {"__zmeta__": json.dumps(values).encode(), "__zdata__/0.blosc": chunk})
    with pytest.raises(IngotError):
        ingot.open(place)[:10]


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"shape": (), "chunks": ()}, "without axes"),
        ({"dtype": str, "fill": 0}, "cannot be stored"),
        ({"codec": "zlib:1"}, "no other codec"),
        ({"codec": "none"}, "no other codec"),
        ({"codec": "blosc:zstd:3"}, "zstd"),
        ({"codec": "blosc:lz4:3:1:65536"}, "blocksize"),
        ({"dtype": "c16", "fill": 1j}, "cannot spell"),
    ],
)
def test_what_the_layout_cannot_hold_is_refused(wishes: dict[str, Any], message: str) -> None:
    store = MemoryStore()
    with pytest.raises(UnsupportedError, match=message):
        create(store, **wishes)
    assert content(store) == {}


def test_settings_of_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="zarr0 has no setting 'order'"):
        create(tmp_path, order="F")


def test_there_is_nothing_below_an_array() -> None:
    store = MemoryStore({"__zmeta__": json.dumps(PLAIN).encode()})
    with pytest.raises(NotFoundError, match="alone"):
        Zarr0Format().open(store, "a")
    with pytest.raises(NotFoundError, match="__zmeta__"):
        Zarr0Format().open(MemoryStore())


DTYPES = ["|b1", "|i1", ">i2", "<u8", "<f2", ">f8", "<c8", "S5", "<U4", "<M8[ns]", "<m8[s]", "V3"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_come_back(dtype: str, new_place: Callable[[], Place]) -> None:
    chance = np.random.default_rng(5)
    items = np.frombuffer(chance.bytes(30 * np.dtype(dtype).itemsize), "u1")
    if dtype in ("|b1", "S5", "<U4"):
        items = np.asarray([str(number % 2 * number) for number in range(30)]).astype(dtype)
    data = items.view(dtype).reshape(5, 6)
    place = new_place()
    ingot.array(data, place, chunks=(2, 4), format="zarr0")
    found = ingot.open(place)
    assert found.format == "zarr0"
    assert found[...].tobytes() == data.tobytes()
    assert found.dtype == data.dtype

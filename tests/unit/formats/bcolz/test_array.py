"""bcolz arrays: what can be made, and every change of them."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import (
    CorruptionError,
    FormatError,
    UnsupportedError,
)
from ingot.formats.bcolz.array import design
from ingot.formats.format import (
    Request,
)
from tests.storage import Place, content, put


def test_new_arrays_have_the_documents_that_bcolz_writes(place: Place) -> None:
    ingot.array(np.arange(10, dtype="<i4"), place, format="bcolz", chunks=4, attrs={"a": 1})
    found = content(place)
    storage = json.loads(found["meta/storage"])
    # What bcolz does not write, and does not look at.
    assert storage.pop("x_blocksize") == 16 << 10
    assert re.fullmatch("[0-9a-f]{16}", storage.pop("x_id"))
    assert storage == {
        "dtype": "int32",
        "cparams": {"clevel": 5, "shuffle": 1, "cname": "lz4", "quantize": 0},
        "chunklen": 4,
        "expectedlen": 10,
        "dflt": 0,
    }
    assert json.loads(found["meta/sizes"])["shape"] == [10]
    assert found["__attrs__"] == b'{"a": 1}\n'
    assert all(found[name].endswith(b"}\n") for name in ("meta/storage", "meta/sizes"))
    assert {name for name in found if name.startswith("data/")} == {
        "data/__0.blp",
        "data/__1.blp",
        "data/__2.blp",
    }
    assert found["data/__0.blp"][:16] == b"blpk\1\0\0\0\1\0\0\0\0\0\0\0"
    # The last chunk is as short as it is: two numbers.
    assert int.from_bytes(found["data/__2.blp"][20:24], "little") == 8


def test_unknown_keys_survive_every_change(place: Place) -> None:
    ingot.array(np.arange(5), place, format="bcolz", chunks=4)
    found = content(place)
    for key in ("meta/storage", "meta/sizes"):
        values = json.loads(found[key]) | {"mine": [1, 2]}
        put(place, {key: json.dumps(values).encode()})
    put(place, {"meta/other": b"kept", "notes.txt": b"kept"})
    array = ingot.open(place, "r+")
    array.append([9])
    array[0] = 3
    array.attrs["b"] = 2
    after = content(place)
    assert json.loads(after["meta/storage"])["mine"] == [1, 2]
    assert json.loads(after["meta/sizes"])["mine"] == [1, 2]
    assert after["meta/other"] == after["notes.txt"] == b"kept"


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(b"", CorruptionError), (bytes(9), CorruptionError), (b'{"a": [1', FormatError)],
)
def test_lost_attributes_do_not_hide_the_data(
    place: Place, damage: bytes, kind: type[Exception]
) -> None:
    ingot.array(np.arange(5), place, format="bcolz", attrs={"a": [1, 2]})
    put(place, {"__attrs__": damage})
    array = ingot.open(place, "r+")
    array.append([5])
    assert array[...].tolist() == [0, 1, 2, 3, 4, 5]
    for look in (lambda: dict(array.attrs), lambda: array.attrs["a"], lambda: len(array.attrs)):
        with pytest.raises(kind):
            look()


def test_quantized_floats_are_rounded_when_they_are_written(place: Place) -> None:
    data = np.random.default_rng(0).normal(size=50)
    stages = [{"id": "quantize", "digits": 2, "dtype": "<f8"}, {"id": "blosc"}]
    codec = [ingot.codecs.codec.parse_stage(each) for each in stages]  # type: ignore[attr-defined]
    ingot.array(data, place, format="bcolz", chunks=20, codec=codec)
    assert json.loads(content(place)["meta/storage"])["cparams"]["quantize"] == 2
    found = ingot.open(place)[...]
    np.testing.assert_array_equal(found, np.around(data * 128) / 128)


def test_chunks_that_grew_are_stored_so(place: Place) -> None:
    array = ingot.create(place, shape=0, dtype="f8", format="bcolz")
    values = json.loads(content(place)["meta/storage"])
    assert values["x_chunklen"] == "auto"
    put(place, {"meta/storage": json.dumps(values | {"chunklen": 3}).encode()})
    array = ingot.open(place, "r+")
    assert array.chunks == (3,)
    array.append(np.arange(10.0))
    assert array.chunks == (131_072,)
    assert ingot.open(place).chunks == (131_072,)
    array.append(np.arange(5.0))
    np.testing.assert_array_equal(ingot.open(place)[...], [*range(10), *range(5)])


@pytest.mark.parametrize(
    "request_",
    [
        Request((), np.dtype("f8"), 0.0),
        Request((3,), np.dtypes.StringDType(), ""),
        Request((3, 8), np.dtype("f8"), 0.0, (2, 4)),
    ],
    ids=["no axes", "text of any length", "cut elsewhere"],
)
def test_what_bcolz_does_not_hold(request_: Request) -> None:
    with pytest.raises(UnsupportedError):
        design(request_)


def test_other_codecs_are_refused() -> None:
    with pytest.raises(UnsupportedError):
        ingot.create(shape=3, dtype="f8", format="bcolz", codec="zlib:1")


def test_only_rows_can_change_in_number(place: Place) -> None:
    array = ingot.create(place, shape=(3, 2), dtype="i4", format="bcolz")
    with pytest.raises(UnsupportedError):
        array.resize((3, 3))
    array.resize((5, 2))
    assert ingot.open(place).shape == (5, 2)


def test_arrays_are_replaced(place: Place) -> None:
    ingot.array(np.arange(10), place, format="bcolz", chunks=2, attrs={"a": 1})
    ingot.array(np.arange(3.0), place, format="bcolz", chunks=2, overwrite=True)
    found = ingot.open(place)
    np.testing.assert_array_equal(found[...], [0.0, 1.0, 2.0])
    assert dict(found.attrs) == {}
    assert sum(name.endswith(".blp") for name in content(place)) == 2


def test_stray_rows_do_not_come_back(place: Place) -> None:
    array = ingot.array(np.arange(1, 11), place, format="bcolz", chunks=4)
    array.resize(5)
    array.resize(10)
    np.testing.assert_array_equal(ingot.open(place)[...], [1, 2, 3, 4, 5, 0, 0, 0, 0, 0])


def test_costs_are_explained_by_blocks(tmp_path: Path, kernel: str) -> None:
    data = np.random.default_rng(0).integers(0, 1000, 40_000)
    array = ingot.array(
        data, tmp_path / "a", format="bcolz", chunks=20_000, codec="blosc:lz4:5:shuffle:16384"
    )
    (cost,) = array.explain(slice(100, 200)).costs
    if kernel == "native":
        assert cost.blocks == (1, 10)
        assert cost.read < cost.stored / 4
    else:
        assert (cost.blocks, cost.read) == ((10, 10), cost.stored)
    assert array.explain().read == array.stored_bytes


@pytest.mark.parametrize(
    "dtype", [[("a", "<i4", (2,)), ("b", "<f8")], [("a", [("b", "<i4", (2, 3))])]]
)
def test_structures_with_arrays_are_refused_before_anything_is_written(
    dtype: Any, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match="fields that are arrays"):
        ingot.array(np.zeros(10, dtype), tmp_path / "a", format="bcolz")
    assert not list(tmp_path.iterdir())

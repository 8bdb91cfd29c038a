"""Arrays of zarr 0.3, 0.4 and 1.1, and damaged ones, give what a right reader gives.

``zarr-early.tar.xz`` is never regenerated: the software that wrote it runs nowhere today. Its
manifest says of each case what must come out. Every case is read on both kernels, in memory and on
disk.
"""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import IngotError, UnsafeError
from ingot.formats.zarr import v0, v01, v1
from ingot.stores import MemoryStore
from tests.golden.archive import below, unpacked
from tests.kernels import needs_native
from tests.storage import Place, put, use_kernel

FORMATS = {"zmeta": "zarr0", "zmeta-pickle": "zarr0", "1": "zarr1"}

Case = dict[str, Any]


FILES = unpacked("zarr-early")
CASES: list[Case] = json.loads(FILES["manifest.json"])


def cases(expectation: str) -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["expect"] == expectation]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


def content(case: Case) -> dict[str, bytes]:
    return below(FILES, case["store"])


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path, kernel: None) -> Place:
    return MemoryStore() if request.param == "memory" else tmp_path / "array"


def expected(case: Case) -> np.ndarray[Any, Any]:
    found = np.load(io.BytesIO(FILES[case["expected"]]), allow_pickle=False)
    assert isinstance(found, np.ndarray)
    return found


@cases("equal")
def test_an_array_reads_as_its_writer_meant_it(case: Case, place: Place) -> None:
    put(place, content(case))
    array, answer = ingot.open(place), expected(case)
    assert array.format == FORMATS[case["format"]]
    found = array[...]
    assert (found.shape, found.dtype) == (answer.shape, answer.dtype)
    assert found.tobytes() == answer.tobytes()
    assert dict(array.attrs) == case.get("attrs", {})
    if "chunks" in case:
        assert list(array.chunks) == case["chunks"]
    backwards = tuple(slice(None, None, -2) for _ in answer.shape)
    assert array[backwards].tobytes() == answer[backwards].tobytes()


@cases("error")
def test_a_broken_array_is_an_error(case: Case, place: Place) -> None:
    put(place, content(case))
    with pytest.raises(IngotError):
        ingot.open(place)[...]


@cases("equal")
def test_metadata_is_written_as_it_was_found(case: Case) -> None:
    module, key = (v1, "meta") if case["format"] == "1" else (v0, "__zmeta__")
    stored = content(case)[key]
    metadata = module.parse_meta(stored)
    if case["format"] == "zmeta-pickle":
        again = v0.parse_meta(v01.pack_metadata(metadata, key)).schema
        assert (again.shape, again.dtype, again.chunks) == (
            metadata.schema.shape,
            metadata.schema.dtype,
            metadata.schema.chunks,
        )
        assert np.array_equal(again.fill, metadata.schema.fill)
        return
    assert v01.pack_metadata(metadata, key) == stored
    # What null stood for was any memory, so a new array says which value it has.
    if json.loads(stored)["fill_value"] is not None:
        made = json.loads(module.pack_meta(metadata.schema))
        assert made == json.loads(stored)


def test_a_pickle_that_calls_is_refused_by_name(place: Place) -> None:
    [case] = [case for case in CASES if case["id"] == "zmeta-pickle/bad_pickle_global"]
    put(place, content(case))
    with pytest.raises(UnsafeError, match=r"posix\.getpid"):
        ingot.open(place)


def test_every_expectation_is_tested() -> None:
    assert {case["expect"] for case in CASES} == {"equal", "error"}
    assert len(CASES) == 71

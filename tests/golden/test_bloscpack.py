"""Bloscpack files of all versions, of bcolz and of hands, and damaged ones, give what is in them.

``bloscpack.tar.xz`` is never regenerated. Every case is read on both kernels, in memory and on
disk.
"""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.errors import CorruptionError, IngotError
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.stores import MemoryStore
from tests.golden.archive import unpacked
from tests.kernels import needs_native
from tests.storage import use_kernel

Case = dict[str, Any]

FILES = unpacked("bloscpack")
CASES: list[Case] = json.loads(FILES["manifest.json"])
READ = ("read", "read-if-legacy-supported", "read-if-codec-available")
SOUND = [case for case in CASES if case["must"] in READ]
DAMAGED = [case for case in CASES if case["must"] == "error"]
EITHER = [case for case in CASES if case["must"] == "either"]


def named(case: Case) -> str:
    return f"{case['group']}/{case['name']}"


def expected(case: Case) -> NDArray[Any]:
    data = FILES[case["expected"]]
    if case["expected"].endswith(".npy"):
        loaded: NDArray[Any] = np.load(io.BytesIO(data), allow_pickle=False)
        return loaded
    return np.frombuffer(data, np.uint8)


def same(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Return whether items are the same to the last bit; the padding of structures is no item."""
    if found.dtype.names:
        return all(same(found[name], wanted[name]) for name in found.dtype.names)
    return found.tobytes() == wanted.tobytes()


@pytest.fixture(params=["memory", "local"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Case], Any]:
    def build(case: Case) -> Any:
        data = FILES[case["file"]]
        if request.param == "memory":
            return ingot.open(MemoryStore({"case.blp": data}))
        path = tmp_path / "case.blp"
        path.write_bytes(data)
        return ingot.open(path)

    return build


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


def test_every_case_is_here() -> None:
    others = [case["name"] for case in CASES if case not in SOUND + DAMAGED + EITHER]
    assert others == ["ndarray_stale_shape"]
    assert len(CASES) == 101


@pytest.mark.parametrize("case", SOUND, ids=named)
def test_sound_files_are_read(case: Case, opened: Callable[[Case], Any]) -> None:
    array, wanted = opened(case), expected(case)
    assert array.format == "bloscpack"
    assert (array.shape, array.dtype) == (wanted.shape, wanted.dtype)
    assert same(array[...], wanted)
    if wanted.ndim:
        half = slice(len(wanted) // 3, None, 2)
        assert same(array[half], wanted[half])
    value = case.get("metadata")
    if case["kind"] == "bytes" and value is not None:
        assert dict(array.attrs) == (value if isinstance(value, dict) else {"metadata": value})
    elif case["kind"] == "ndarray":
        assert dict(array.attrs) == {}


@pytest.mark.parametrize("case", SOUND, ids=named)
def test_the_parts_of_files_are_found(case: Case) -> None:
    file = BloscpackFile.read(MemoryStore({"a": FILES[case["file"]]}), "a")
    if "header" in case:
        header = case["header"]
        assert file.header.version == header["format_version"]
        for name in ("typesize", "chunk_size", "last_chunk", "nchunks", "max_app_chunks"):
            assert getattr(file.header, name) == header[name]
    if case.get("offsets") is not None:
        assert file.row.start.tolist() == case["offsets"]
    if case.get("metadata") is not None:
        assert file.value == case["metadata"]
    if "nbytes" in case and case["header"]["nchunks"] >= 0:
        assert (file.row.payload, file.end) == (case["nbytes"], case["data_end"])


@pytest.mark.parametrize("case", DAMAGED, ids=named)
def test_damaged_files_are_errors(case: Case, opened: Callable[[Case], Any]) -> None:
    with pytest.raises(IngotError):
        opened(case)[...]


@pytest.mark.parametrize("case", EITHER, ids=named)
def test_what_the_original_ignores_is_refused(case: Case, opened: Callable[[Case], Any]) -> None:
    with pytest.raises(CorruptionError):
        opened(case)


def test_a_shape_that_was_not_updated_is_refused(opened: Callable[[Case], Any]) -> None:
    (case,) = (case for case in CASES if case["name"] == "ndarray_stale_shape")
    with pytest.raises(CorruptionError, match="has 4000 bytes, the chunks hold 6400"):
        opened(case)

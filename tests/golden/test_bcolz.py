"""bcolz directories of three writers, older layouts and damaged ones give what is in them.

``bcolz.tar.xz`` is never regenerated. Every case is read on both kernels, in memory and on disk.
Two real bundles of zipline are read as well where ``INGOT_ZIPLINE`` says that they lie.
"""

import io
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError, IngotError, UnsafeError
from ingot.formats.bcolz.format import BcolzFormat
from ingot.formats.format import ArrayNode, Column, TableNode
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import LocalStore, MemoryStore, Store
from tests.golden.archive import below, unpacked
from tests.kernels import needs_native
from tests.storage import put, use_kernel

Case = dict[str, Any]


FILES = unpacked("bcolz")
CASES: list[Case] = json.loads(FILES["manifest.json"])
DAMAGED = [case for case in CASES if case["path"].startswith("damaged/")]
SOUND = [case for case in CASES if case not in DAMAGED and case["kind"] != "tree"]


def expected(case: Case) -> Case:
    found: Case = json.loads(FILES[f"{case['path']}/expected.json"])
    return found


def values(case: Case) -> NDArray[Any]:
    """Return the data that a case refers to."""
    path = os.path.normpath(f"{case['path']}/{expected(case)['expected']}")
    return np.load(io.BytesIO(FILES[path]), allow_pickle=False)  # type: ignore[no-any-return]


def content(case: Case) -> dict[str, bytes]:
    return below(FILES, f"{case['path']}/ds")


@pytest.fixture(params=["memory", "local"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Case], Store]:
    def build(case: Case) -> Store:
        if request.param == "memory":
            return MemoryStore(content(case))
        put(tmp_path, content(case))
        return LocalStore(tmp_path)

    return build


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"], autouse=True)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


def read(column: Column, key: Any = ...) -> Any:
    assert isinstance(column, ArrayNode)
    engine = engine_of(column.chunks, Options(allow_pickle=True))
    return engine.read(parse(key, column.schema.shape))


def same(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    return (
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and found.tobytes() == wanted.tobytes()
    )


@pytest.mark.parametrize("case", SOUND, ids=lambda case: case["id"])
def test_sound_data_are_read(case: Case, place: Callable[[Case], Store]) -> None:
    node = BcolzFormat().open(place(case))
    wanted = expected(case)
    if "expected" not in wanted:
        found = _listed(node)
        assert found == wanted["values"]
    elif isinstance(node, TableNode):
        data = values(case)
        assert tuple(node.columns) == data.dtype.names
        for name, column in node.columns.items():
            assert same(read(column), np.ascontiguousarray(data[name])), name
    else:
        data = values(case)
        assert same(read(node), data)
        half = slice(len(data) // 3, None, 2)
        assert same(read(node, half), data[half])


@pytest.mark.parametrize(
    "case",
    [
        case
        for case in SOUND
        if expected(case).get("storage", {"dtype": "object"})["dtype"] != "object"
    ],
    ids=lambda case: case["id"],
)
def test_the_documents_are_understood(case: Case, place: Callable[[Case], Store]) -> None:
    wanted = expected(case)
    node = BcolzFormat().open(place(case))
    assert isinstance(node, ArrayNode)
    assert node.schema.shape == tuple(wanted["sizes"]["shape"])
    assert node.schema.chunks[0] == wanted["storage"]["chunklen"]
    assert "attrs" not in wanted or dict(node.schema.attrs) == wanted["attrs"]


def _listed(node: Column) -> Any:
    if isinstance(node, TableNode):
        return {name: _listed(column) for name, column in node.columns.items()}
    return read(node).tolist()


@pytest.mark.parametrize(
    "case", [case for case in SOUND if "object" in case["case"]], ids=lambda case: case["id"]
)
def test_objects_are_refused_unless_they_are_allowed(
    case: Case, place: Callable[[Case], Store]
) -> None:
    node = BcolzFormat().open(place(case))
    column = node.columns["o"] if isinstance(node, TableNode) else node
    assert isinstance(column, ArrayNode)
    with pytest.raises(UnsafeError):
        engine_of(column.chunks, Options())


@pytest.mark.parametrize(
    "case",
    [case for case in DAMAGED if expected(case)["expect"] == "error-on-open"],
    ids=lambda case: case["id"],
)
def test_what_cannot_be_opened_says_so(case: Case, place: Callable[[Case], Store]) -> None:
    with pytest.raises(IngotError):
        BcolzFormat().open(place(case))


@pytest.mark.parametrize(
    "case",
    [case for case in DAMAGED if expected(case)["expect"].startswith("error-on-chunk")],
    ids=lambda case: case["id"],
)
def test_a_damaged_chunk_is_an_error_and_the_others_are_read(
    case: Case, place: Callable[[Case], Store]
) -> None:
    node = BcolzFormat().open(place(case))
    facts = expected(case)
    rows, bad = facts["chunklen"], int(facts["expect"].rpartition("-")[2])
    assert isinstance(node, ArrayNode)
    good = values({"path": "bcolz-zipline-1.13.0/auto_chunk_i8_100k"})
    for number in range(node.schema.grid.counts[0]):
        part = slice(number * rows, (number + 1) * rows)
        if number == bad:
            with pytest.raises(CorruptionError):
                read(node, part)
        else:
            assert same(read(node, part), good[part])


def test_lost_attributes_are_reported_beside_the_data(place: Callable[[Case], Store]) -> None:
    (case,) = (case for case in DAMAGED if expected(case)["expect"] == "data-but-report-attrs")
    node = BcolzFormat().open(place(case))
    assert isinstance(node, ArrayNode)
    assert same(read(node), values(case))
    with pytest.raises(CorruptionError):
        dict(node.schema.attrs)


def test_every_damaged_case_has_its_test() -> None:
    known = ("error-on-open", "error-on-chunk", "data-but-report-attrs")
    assert all(expected(case)["expect"].startswith(known) for case in DAMAGED)


def test_a_tree_has_members(place: Callable[[Case], Store]) -> None:
    (case,) = (case for case in CASES if case["kind"] == "tree")
    store = place(case)
    kinds = {"carray": ArrayNode, "ctable": TableNode}
    for path, kind in expected(case)["values"].items():
        assert isinstance(BcolzFormat().open(store, path), kinds[kind])


BUNDLES = os.environ.get("INGOT_ZIPLINE")


@pytest.mark.skipif(BUNDLES is None, reason="INGOT_ZIPLINE names no folder with zipline's bundles")
def test_the_bundles_of_zipline_are_read() -> None:
    assert BUNDLES is not None
    facts: list[Mapping[str, Any]] = json.loads(Path(BUNDLES, "manifest.json").read_bytes())
    for case in facts:
        folder = Path(BUNDLES, str(case["case"]))
        node = BcolzFormat().open(LocalStore(folder / "ds"))
        assert isinstance(node, TableNode)
        attrs = json.loads((folder / "expected.json").read_bytes())["attrs_subset"]
        assert attrs.items() <= dict(node.attrs).items()
        wanted = np.load(folder / "expected.npy")
        assert tuple(node.columns) == wanted.dtype.names
        for name, column in node.columns.items():
            assert same(read(column), np.ascontiguousarray(wanted[name])), name

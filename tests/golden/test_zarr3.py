"""Zarr version 3 arrays of three writers, and damaged ones, give what a right reader gives.

``zarr3.tar.xz`` is never regenerated. Its manifest says of each case what must come out: the data,
an error, or anything but a crash. Every case is read on both kernels, in memory and on disk.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ingot
from ingot.errors import IngotError, NotFoundError
from ingot.formats.format import GroupNode
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.stores import MemoryStore
from tests.golden.archive import assert_parts, assert_same_items, below, unpacked
from tests.kernels import needs_native
from tests.storage import Place, put, use_kernel

Case = dict[str, Any]
Open = Callable[[Case, str], ingot.Array]


FILES = unpacked("zarr3")
CASES: list[Case] = json.loads(FILES["manifest.json"])


def cases(expectation: str, node: str = "array") -> pytest.MarkDecorator:
    chosen = [case for case in CASES if case["expect"] == expectation and case["node"] == node]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


def content(case: Case, path: str = "") -> dict[str, bytes]:
    """Return the keys and bytes of a case, or of what lies at a path in it."""
    return below(below(FILES, case["store"]), path)


@pytest.fixture(params=["memory", "local"])
def place_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def opened(
    request: pytest.FixtureRequest,
    place_name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Open:
    """Opens cases, on each kernel, in each place."""
    use_kernel(request.param, monkeypatch)

    def opens(case: Case, path: str = "") -> ingot.Array:
        place: Place = MemoryStore() if place_name == "memory" else tmp_path / (path or "array")
        put(place, content(case, path))
        return ingot.open(place)

    return opens


@cases("equal")
def test_an_array_reads_as_its_writer_meant_it(case: Case, opened: Open) -> None:
    array = opened(case, case["inner"])
    assert_same_items(array[...], case["expected"], FILES[case["expected"]])
    assert dict(array.attrs) == json.loads(content(case, case["inner"])["zarr.json"]).get(
        "attributes", {}
    )


@cases("equal")
def test_parts_of_an_array_are_parts_of_the_whole(case: Case, opened: Open) -> None:
    array = opened(case, case["inner"])
    whole = array[...]
    if whole.ndim == 0:
        return
    assert_parts(array)


@cases("equal", node="group")
def test_the_members_of_a_group_are_arrays(case: Case, opened: Open) -> None:
    for path, name in case["members"].items():
        assert_same_items(opened(case, path)[...], name, FILES[name])


@cases("equal", node="group")
def test_a_group_has_its_members(case: Case) -> None:
    store = MemoryStore(content(case))
    for path in case["groups"]:
        group = Zarr3Format().open(store, path)
        assert isinstance(group, GroupNode)
        below = [path for path in (*case["groups"], *case["members"]) if path]
        parts = [each.rpartition("/") for each in below]
        assert sorted(group.children) == sorted(name for head, _, name in parts if head == path)


@cases("error")
def test_a_broken_array_is_an_error(case: Case, opened: Open) -> None:
    with pytest.raises(IngotError):
        opened(case, case["inner"])[...]


@cases("any")
def test_a_doubtful_array_is_read_or_refused(case: Case, opened: Open) -> None:
    try:
        array = opened(case, case["inner"])
        found = array[...]
    except IngotError:
        return
    assert found.shape == array.shape


def test_a_folder_without_a_document_is_no_group() -> None:
    [case] = [case for case in CASES if "root_only_child" in case["id"]]
    with pytest.raises(NotFoundError):
        Zarr3Format().open(MemoryStore(content(case)))


def test_every_expectation_is_tested() -> None:
    assert {case["expect"] for case in CASES} == {"equal", "error", "any"}
    assert len(CASES) == 98

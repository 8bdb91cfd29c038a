"""Zarr arrays of three writers, and damaged ones, give what a right reader gives.

``zarr2.tar.xz`` and ``zarr3.tar.xz`` are never regenerated. Their manifests say of each case what
must come out: the data, an error, or anything but a crash. Every case is read on both kernels, in
memory and on disk.
"""

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import IngotError, NotFoundError, UnsafeError
from ingot.formats.format import GroupNode
from ingot.formats.zarr.v3_groups import Zarr3GroupFormat
from ingot.stores import MemoryStore
from tests.golden.archive import assert_parts, assert_same_items, below, unpacked
from tests.kernels import needs_native
from tests.storage import Place, put, use_kernel

Case = dict[str, Any]
Open = Callable[[Case, str], Any]

CASES: dict[int, list[Case]] = {
    version: [
        {**case, "version": version}
        for case in json.loads(unpacked(f"zarr{version}")["manifest.json"])
    ]
    for version in (2, 3)
}


def cases(expectation: str, node: str = "array") -> pytest.MarkDecorator:
    chosen = [
        case
        for version in CASES.values()
        for case in version
        if case["expect"] == expectation and case["node"] == node
    ]
    return pytest.mark.parametrize("case", chosen, ids=lambda case: case["id"])


def file(case: Case, name: str) -> bytes:
    """Return a file of the archive that a case is in."""
    return unpacked(f"zarr{case['version']}")[name]


def content(case: Case, path: str = "") -> dict[str, bytes]:
    """Return the keys and bytes of a case, or of what lies at a path in it."""
    if case["store"].endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(file(case, case["store"]))) as archive:
            return below({name: archive.read(name) for name in archive.namelist()}, path)
    return below(below(unpacked(f"zarr{case['version']}"), case["store"]), path)


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

    def opens(case: Case, path: str = "") -> Any:
        place: Place = MemoryStore() if place_name == "memory" else tmp_path / (path or "array")
        put(place, content(case, path))
        return ingot.open(place)

    return opens


@cases("equal")
def test_an_array_reads_as_its_writer_meant_it(case: Case, opened: Open) -> None:
    array = opened(case, case["inner"])
    assert_same_items(array[...], case["expected"], file(case, case["expected"]))
    if case["version"] == 2:
        assert dict(array.attrs) == case.get("attrs", {})
        assert list(array.chunks) == case.get("chunks", list(array.chunks))
    else:
        document = json.loads(content(case, case["inner"])["zarr.json"])
        assert dict(array.attrs) == document.get("attributes", {})


@cases("equal")
def test_parts_of_an_array_are_parts_of_the_whole(case: Case, opened: Open) -> None:
    array = opened(case, case["inner"])
    whole = array[...]
    if whole.ndim == 0 or (case["version"] == 2 and whole.dtype.kind == "O"):
        return
    assert_parts(array)


def has_root(case: Case) -> bool:
    """Return whether the folder of a case is a group itself; in version 3 it may hold one."""
    return "root_only_child" not in case["id"]


@cases("equal", node="group")
def test_the_members_of_a_group_are_arrays(case: Case, opened: Open) -> None:
    for path, name in case["members"].items():
        assert_same_items(opened(case, path)[...], name, file(case, name))
    if has_root(case):
        group = opened(case, "")
        assert isinstance(group, ingot.Group)
        for path, name in case["members"].items():
            assert_same_items(group[path][...], name, file(case, name))


@cases("equal", node="group")
def test_a_group_has_its_members(case: Case, opened: Open) -> None:
    for path in case["groups"]:
        below = [path for path in (*case["groups"], *case["members"]) if path]
        parts = [each.rpartition("/") for each in below]
        expected = sorted(name for head, _, name in parts if head == path)
        if case["version"] == 3:
            node = Zarr3GroupFormat().open(MemoryStore(content(case)), path)
            assert isinstance(node, GroupNode)
            children = Zarr3GroupFormat().children(MemoryStore(content(case)), path)
            assert list(children) == expected
        group = opened(case, path)
        assert isinstance(group, ingot.Group)
        assert list(group) == expected
        if has_root(case):
            root = opened(case, "")
            assert list(root[path] if path else root) == expected


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


# Version 2


def test_a_group_in_an_archive_is_read_in_place(tmp_path: Path) -> None:
    [case] = [case for case in CASES[2] if case["store"].endswith(".zip")]
    (tmp_path / "archive").write_bytes(file(case, case["store"]))
    group = ingot.open(tmp_path / "archive")
    assert isinstance(group, ingot.Group)
    for path, name in case["members"].items():
        assert_same_items(group[path][...], name, file(case, name))


@cases("open-ok")
def test_an_array_without_a_fill_value_reads_as_zeros_where_it_is_absent(
    case: Case, opened: Open
) -> None:
    array = opened(case, case["inner"])
    stored = content(case)
    counts = [-(-n // c) for n, c in zip(array.shape, array.chunks, strict=True)]
    assert [c for c in np.ndindex(*counts) if "{}.{}".format(*c) not in stored] == [(0, 0)]
    assert not array[: array.chunks[0], : array.chunks[1]].any()
    assert array[...].any()


def test_pickled_objects_are_refused_by_name(opened: Open) -> None:
    [case] = [case for case in CASES[2] if case["id"] == "v2-zarr2/object_pickle"]
    with pytest.raises(UnsafeError, match="pickle"):
        opened(case, "")


# Version 3


def test_a_folder_without_a_document_is_no_group() -> None:
    [case] = [case for case in CASES[3] if "root_only_child" in case["id"]]
    with pytest.raises(NotFoundError):
        Zarr3GroupFormat().open(MemoryStore(content(case)))


def test_every_expectation_is_tested() -> None:
    assert {case["expect"] for case in CASES[2]} == {"equal", "error", "any", "open-ok"}
    assert {case["expect"] for case in CASES[3]} == {"equal", "error", "any"}
    assert (len(CASES[2]), len(CASES[3])) == (91, 98)

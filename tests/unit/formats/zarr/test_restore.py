"""Documents of Zarr that are lost or torn: restored from copies, or from what chunks tell."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.check import KEPT_ASIDE
from ingot.stores import MemoryStore

VALUES = np.arange(100, dtype="<i4").reshape(10, 10) + 1
METADATA = {"zarr0": "__zmeta__", "zarr1": "meta", "zarr2": ".zarray"}
ATTRIBUTES = {"zarr0": "__zattr__", "zarr1": "attrs", "zarr2": ".zattrs"}
CHUNKS = {"zarr0": "__zdata__/{}.blosc", "zarr1": "{}", "zarr2": "{}"}

formats = pytest.mark.parametrize("format", METADATA)


def mended(path: Path) -> Any:
    """Repair a dataset, and prove that a second repair changes nothing."""
    report = ingot.repair(path)
    before = {each: each.read_bytes() for each in path.rglob("*") if each.is_file()}
    assert not ingot.repair(path).done
    assert {each: each.read_bytes() for each in path.rglob("*") if each.is_file()} == before
    return report


def stored(path: Path, format: str, **settings: Any) -> None:
    ingot.array(VALUES, path, format=format, chunks=(4, 5), attrs={"units": "m"}, **settings)


@formats
@pytest.mark.parametrize("torn", [None, b"", b'{"shape": [10'])
def test_lost_metadata_are_made_from_chunks(
    tmp_path: Path, format: str, torn: bytes | None
) -> None:
    path = tmp_path / "a"
    stored(path, format)
    document = path / METADATA[format]
    os.remove(document) if torn is None else document.write_bytes(torn)
    report = ingot.check(path)
    assert not report.ok
    assert "raw items" in report.errors[0].repair
    report = mended(path)
    assert report.ok
    found = ingot.open(path)
    assert (found.format, found.attrs["units"]) == (format, "m")
    # Each chunk is a row: its items lie in its order, padded at the edge.
    due = np.zeros((12, 10), "<i4")
    due[:10] = VALUES
    rows = due.reshape(3, 4, 2, 5).swapaxes(1, 2).reshape(3, 40)
    raw = found[...].view("<i4")
    inside = rows != 0
    assert raw.shape == (3, 40)
    assert np.array_equal(raw[inside], rows[inside])


@formats
def test_bytes_and_single_axes_come_back_whole(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a"
    values = np.arange(12, dtype="u1")
    ingot.array(values, path, format=format, chunks=4, codec="blosc:zlib:3:noshuffle")
    if not (path / ATTRIBUTES[format]).exists():
        (path / ATTRIBUTES[format]).write_bytes(b"{}")
    os.remove(path / METADATA[format])
    assert mended(path).ok
    found = ingot.open(path)
    assert found.dtype == np.dtype("u1")
    assert np.array_equal(found[...], values)


@formats
@pytest.mark.parametrize("others", ["sizes", "axes", "none", "nothing whole"])
def test_chunks_that_contradict_each_other_tell_nothing(
    tmp_path: Path, format: str, others: str
) -> None:
    path = tmp_path / "a"
    stored(path, format)
    os.remove(path / METADATA[format])
    first = path / CHUNKS[format].format("0.0")
    if others == "sizes":
        other = tmp_path / "b"
        ingot.array(VALUES, other, format=format, chunks=(5, 5))
        shutil.copy(other / CHUNKS[format].format("0.0"), first)
    elif others == "axes":
        shutil.copy(first, path / CHUNKS[format].format("0.0.0"))
    else:
        for row, column in np.ndindex(3, 2):
            file = path / CHUNKS[format].format(f"{row}.{column}")
            os.remove(file) if others == "none" else file.write_bytes(b"\xff" * 40)
    before = sorted(each for each in path.rglob("*") if each.is_file())
    # Without a chunk, nothing tells that there was a dataset.
    with contextlib.suppress(ingot.errors.IngotError):
        assert not ingot.repair(path).ok
    assert sorted(each for each in path.rglob("*") if each.is_file()) == before


@formats
def test_torn_attributes_become_none(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a"
    stored(path, format)
    (path / ATTRIBUTES[format]).write_bytes(b'{"units": ')
    assert not ingot.check(path).ok
    report = mended(path)
    assert report.ok
    assert [(each.kind, each.lost) for each in report.done] == [("attributes", "the attributes")]
    assert Path(f"{path}{KEPT_ASIDE}", ATTRIBUTES[format]).read_bytes() == b'{"units": '
    assert np.array_equal(ingot.open(path)[...], VALUES)


@formats
def test_bad_chunks_are_dropped_only_when_allowed(tmp_path: Path, format: str) -> None:
    path = tmp_path / "a"
    stored(path, format)
    chunk = path / CHUNKS[format].format("1.1")
    chunk.write_bytes(b"\xff" + chunk.read_bytes()[1:])
    assert not ingot.repair(path).ok
    report = ingot.repair(path, drop=True)
    assert report.ok
    assert [each.chunk for each in report.done] == [(1, 1)]
    due = VALUES.copy()
    due[4:8, 5:] = 0
    assert np.array_equal(ingot.open(path)[...], due)


def group_of(path: Path, format: str) -> dict[str, bytes]:
    group = ingot.group(path, format=format)
    group.create_group("sub").array("a", VALUES, attrs={"units": "m"})
    group["b"] = VALUES
    group.consolidate()
    return {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*.z*")}


@pytest.mark.parametrize(
    ("format", "lost"),
    [
        ("zarr2", "sub/a/.zarray"),
        ("zarr2", "sub/.zgroup"),
        ("zarr2", "b/.zarray"),
        ("zarr3", "sub/a/zarr.json"),
        ("zarr3", "sub/zarr.json"),
        ("zarr3", "b/zarr.json"),
    ],
)
@pytest.mark.parametrize("torn", [None, b"{"])
def test_documents_come_back_from_consolidated_metadata(
    tmp_path: Path, format: str, lost: str, torn: bytes | None
) -> None:
    path = tmp_path / "g"
    group_of(path, format)
    document = path / lost
    old = json.loads(document.read_bytes())
    os.remove(document) if torn is None else document.write_bytes(torn)
    report = ingot.check(path)
    assert not report.ok
    assert mended(path).ok
    assert json.loads(document.read_bytes()) == old
    group = ingot.open(path)
    assert np.array_equal(group["sub/a"][...], VALUES)
    assert np.array_equal(group["b"][...], VALUES)
    assert group["sub/a"].attrs["units"] == "m"


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_members_that_were_removed_do_not_come_back(tmp_path: Path, format: str) -> None:
    """Another program removes a folder, and leaves the copies as they were."""
    path = tmp_path / "g"
    group_of(path, format)
    shutil.rmtree(path / "b")
    assert mended(path).ok
    assert not (path / "b").exists()
    assert list(ingot.open(path)) == ["sub"]


@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
@pytest.mark.parametrize("name", ["../evil", "sub/../../evil", "/evil", "sub//x"])
def test_copies_of_other_places_are_not_written(tmp_path: Path, format: str, name: str) -> None:
    path = tmp_path / "g"
    group_of(path, format)
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "file").write_bytes(b"mine")
    document = path / (".zmetadata" if format == "zarr2" else "zarr.json")
    values = json.loads(document.read_bytes())
    copies = (
        values["metadata"] if format == "zarr2" else values["consolidated_metadata"]["metadata"]
    )
    key = "b/.zarray" if format == "zarr2" else "b"
    copies[f"{name}/.zarray" if format == "zarr2" else name] = copies[key]
    document.write_bytes(json.dumps(values).encode())
    ingot.repair(path)
    assert os.listdir(tmp_path / "evil") == ["file"]
    assert np.array_equal(ingot.open(path)["b"][...], VALUES)


def test_a_folder_with_copies_alone_is_known_as_zarr2() -> None:
    store = MemoryStore()
    group = ingot.group(store, format="zarr2")
    group["b"] = VALUES
    group.consolidate()
    left = {key: bytes(store.read([ingot.stores.Extent(key)])[0] or b"") for key in keys(store)}
    del left[".zgroup"]
    lost = MemoryStore(left)
    report = ingot.repair(lost)
    assert report.ok, str(report)
    assert np.array_equal(ingot.open(lost)["b"][...], VALUES)


def keys(store: MemoryStore, folder: str = "") -> list[str]:
    found = []
    for name in store.names(folder):
        found += keys(store, folder + name) if name.endswith("/") else [folder + name]
    return found

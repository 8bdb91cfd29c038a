"""What lies at a path, found at a glance and the long way."""

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.containers.resolve import find, glance
from ingot.errors import FormatError, NotFoundError, UnsafeError, UnsupportedError
from ingot.formats.format import ArrayNode, GroupNode
from ingot.stores import LocalStore, MemoryStore
from ingot.stores.local import lock

fast = pytest.mark.skipif(native.choice().name != "native", reason="the twin has no glance")

VALUES = np.arange(12).reshape(3, 4)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("zarr3", "zarr2"):
        ingot.array(VALUES, folder / name, format=name, attrs={"units": "m"})
        ingot.group(folder / f"{name}-group", format=name).array("a", VALUES)
    ingot.array(VALUES, folder / "sharded", chunks=(1, 2), shards=(3, 4))
    ingot.table({"a": [1, 2]}, folder / "table")
    return folder


def _strip(folder: Path) -> None:
    """Make a dataset one that nobody wrote to: others have no lock file."""
    (folder / ".lock").unlink()


@fast
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("format", ["zarr3", "zarr2", "sharded"])
def test_a_glance_finds_what_the_long_way_finds(
    place: Path, format: str, locked: bool, writable: bool
) -> None:
    if not locked:
        _strip(place / format)
    named = None if format == "sharded" else format
    for path, said in ((place / format, None), (str(place / format), named)):
        found, known = glance(path, said, writable=writable), find(path, said, writable=writable)
        assert found is not None
        assert found.format is known.format
        assert found.number == known.number
        assert (found.number is not None) == locked
        assert isinstance(found.node, ArrayNode)
        assert isinstance(known.node, ArrayNode)
        assert type(found.node.chunks) is type(known.node.chunks)
        assert repr(found.node.schema) == repr(known.node.schema)
        assert found.place.path == known.place.path == str(place / format)
        assert found.place.store.features == known.place.store.features


@fast
@pytest.mark.parametrize("format", ["zarr3", "zarr2"])
def test_groups_are_found_with_their_members(place: Path, format: str) -> None:
    path = place / f"{format}-group"
    found, known = glance(path, None, writable=False), find(path, None, writable=False)
    assert found is not None
    assert isinstance(found.node, GroupNode)
    assert found.node == known.node
    assert found.node.children == ("a",)


def _malformed(place: Path) -> Path:
    (place / "zarr3" / "zarr.json").write_text("{")
    return place / "zarr3"


def _special(place: Path) -> Path:
    (place / "zarr3" / "zarr.json").unlink()
    os.mkfifo(place / "zarr3" / "zarr.json")
    return place / "zarr3"


def _leading_out(place: Path) -> Path:
    (place / "zarr3" / "zarr.json").rename(place / "zarr.json")
    (place / "zarr3" / "zarr.json").symlink_to("../zarr.json")
    return place / "zarr3"


UNUSUAL: list[tuple[Callable[[Path], Path], type[Exception] | None]] = [
    (lambda place: place / "zarr3-group" / "a", None),
    (lambda place: place / "zarr2-group" / "a", None),
    (lambda place: place / "table", None),
    (lambda place: place / "table" / "a", None),
    (lambda place: place / "absent", NotFoundError),
    (lambda place: place, FormatError),
    (lambda place: place / "zarr3" / "zarr.json", FormatError),
    (lambda place: place / "zarr3" / "zarr.json" / "inner", NotFoundError),
    (_malformed, FormatError),
    (_special, UnsafeError),
    (_leading_out, UnsafeError),
]


@pytest.mark.parametrize(("prepare", "error"), UNUSUAL)
def test_what_is_unusual_is_not_for_a_glance(
    place: Path, prepare: Callable[[Path], Path], error: type[Exception] | None
) -> None:
    path = prepare(place)
    assert glance(path, None, writable=False) is None
    if error is None:
        assert ingot.open(path).shape is not None  # type: ignore[union-attr]
    else:
        with pytest.raises(error):
            ingot.open(path)


def test_a_glance_is_for_paths(place: Path) -> None:
    assert glance(MemoryStore(), None, writable=False) is None
    assert glance(LocalStore(place / "zarr3"), None, writable=False) is None
    assert glance("s3://bucket/array", None, writable=False) is None
    for format in ("bcolz", "zarr2", "zarr4"):
        assert glance(place / "zarr3", format, writable=False) is None
    with pytest.raises(UnsupportedError, match="'zarr4' is unknown; there is zarr3"):
        ingot.open(place / "zarr3", format="zarr4")


@pytest.mark.parametrize("state", [lock.State.BUSY, lock.State.UNKNOWN])
def test_a_commit_that_may_be_half_done_is_looked_at_closely(
    place: Path, state: lock.State
) -> None:
    with (place / "zarr3" / ".lock").open("r+b") as file:
        file.seek(24)
        file.write(bytes([state]))
    assert glance(place / "zarr3", None, writable=False) is None
    assert np.array_equal(ingot.open(place / "zarr3")[...], VALUES)  # type: ignore[index]


@fast
def test_a_folder_may_be_reached_by_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(place / "zarr3")
    (tmp_path / "elsewhere" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    # What lies above a dataset is what lies above the folder, not above the link to it.
    assert glance(tmp_path / "elsewhere" / "link", None, writable=False) is not None
    (place / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    assert glance(tmp_path / "elsewhere" / "link", None, writable=False) is None
    found = find(tmp_path / "elsewhere" / "link", None, writable=False)
    assert found.place.inner == "zarr3"

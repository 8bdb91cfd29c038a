"""The dataset at a path, found by one probe and by the complete way."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.containers.resolve import find_enclosing, open_complete, open_fast
from ingot.errors import (
    CorruptionError,
    FormatError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.formats.format import ArrayNode, GroupNode, TableNode
from ingot.stores import LocalStore, MemoryStore
from ingot.stores.local import lock

fast = pytest.mark.skipif(native.choice().name != "native", reason="the twin has no probe")

VALUES = np.arange(12).reshape(3, 4)


ARRAYS = ["zarr3", "zarr2", "bcolz", "zarr0", "zarr1"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "datasets"
    folder.mkdir()
    for name in ARRAYS:
        ingot.array(VALUES, folder / name, format=name, attrs={"units": "m"})
    for name in ("zarr3", "zarr2"):
        ingot.group(folder / f"{name}-group", format=name).array("a", VALUES)
    ingot.array(VALUES, folder / "sharded", chunks=(1, 2), shards=(3, 4))
    ingot.table({"a": [1, 2], "b": [1.5, 2.5]}, folder / "table", chunks=1, attrs={"units": "m"})
    ingot.table({"a": [1, 2], "n": {"b": [1, 2], "c": [3, 4]}}, folder / "nested")
    return folder


def _strip(folder: Path) -> None:
    """Remove the lock file, as in the datasets of other programs."""
    (folder / ".lock").unlink()


@fast
@pytest.mark.parametrize("writable", [False, True])
@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("format", [*ARRAYS, "sharded"])
def test_one_probe_finds_what_the_complete_way_finds(
    place: Path, format: str, locked: bool, writable: bool
) -> None:
    if not locked:
        _strip(place / format)
    named = None if format == "sharded" else format
    for path, said in ((place / format, None), (str(place / format), named)):
        found, known = (
            open_fast(path, said, writable=writable),
            open_complete(path, said, writable=writable),
        )
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
    found, known = open_fast(path, None, writable=False), open_complete(path, None, writable=False)
    assert found is not None
    assert isinstance(found.node, GroupNode)
    assert found.node == known.node
    assert list(ingot.open(path)) == ["a"]


@fast
def test_row_shards_are_found_as_one_table(place: Path) -> None:
    path = place / "rows"
    ingot.open(place / "table").shard(2, path)  # type: ignore[union-attr]
    found, known = open_fast(path, None, writable=False), open_complete(path, None, writable=False)
    assert found is not None
    assert isinstance(found.node, TableNode)
    assert isinstance(known.node, TableNode)
    assert found.number == known.number
    assert repr(found.node.columns) == repr(known.node.columns)


def _described(table: TableNode) -> tuple[object, ...]:
    columns = {name: repr(column.chunks.schema) for name, column in table.columns.items()}
    return columns, dict(table.attrs), table.table.documents


@fast
def test_a_table_is_the_same_the_second_time(place: Path) -> None:
    """The second time, the documents that the first one names are read with it."""
    path = place / "table"
    for time in range(3):
        found = open_fast(path, None, writable=False)
        known = open_complete(path, None, writable=False)
        assert found is not None
        assert isinstance(found.node, TableNode)
        assert isinstance(known.node, TableNode)
        assert _described(found.node) == _described(known.node), time
        assert found.number == known.number
    (path / "b" / "meta" / "sizes").write_text("{")
    assert open_fast(path, None, writable=False) is None
    (path / "b" / "meta" / "sizes").unlink()
    assert open_fast(path, None, writable=False) is None
    with pytest.raises(CorruptionError, match="b/meta/sizes is missing"):
        ingot.open(path)


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


def _in_data(place: Path) -> Path:
    """Return a table as the document of bcolz 1.x draws it: without a list of the columns."""
    shutil.copytree(place / "table", place / "old" / "data")
    (place / "old" / "data" / "__rootdirs__").unlink()
    (place / "old" / "data" / ".lock").rename(place / "old" / ".lock")
    return place / "old"


def _column_in_data(place: Path) -> Path:
    return _in_data(place) / "data" / "a"


def _plain(place: Path) -> Path:
    (place / "plain").mkdir()
    (place / "plain" / "notes.txt").write_text("no dataset")
    return place / "plain"


UNUSUAL: list[tuple[Callable[[Path], Path], type[Exception] | None]] = [
    (lambda place: place / "zarr3-group" / "a", None),
    (lambda place: place / "zarr2-group" / "a", None),
    (lambda place: place / "table" / "a", None),
    (lambda place: place / "nested" / "n", None),
    (lambda place: place / "nested" / "n" / "b", None),
    (_in_data, None),
    (_column_in_data, None),
    (lambda place: place / "absent", NotFoundError),
    (_plain, FormatError),
    (lambda place: place / "zarr3" / "zarr.json", FormatError),
    (lambda place: place / "zarr3" / "zarr.json" / "inner", NotFoundError),
    (_malformed, FormatError),
    (_special, UnsafeError),
    (_leading_out, UnsafeError),
]


@pytest.mark.parametrize(("prepare", "error"), UNUSUAL)
def test_what_is_unusual_takes_the_complete_way(
    place: Path, prepare: Callable[[Path], Path], error: type[Exception] | None
) -> None:
    path = prepare(place)
    assert open_fast(path, None, writable=False) is None
    if error is None:
        assert ingot.open(path).shape is not None  # type: ignore[union-attr]
    else:
        with pytest.raises(error):
            ingot.open(path)


def test_a_probe_is_for_paths(place: Path) -> None:
    assert open_fast(MemoryStore(), None, writable=False) is None
    assert open_fast(LocalStore(place / "zarr3"), None, writable=False) is None
    assert open_fast("s3://bucket/array", None, writable=False) is None
    for format in ("bcolz", "zarr2", "zarr4"):
        assert open_fast(place / "zarr3", format, writable=False) is None
    with pytest.raises(UnsupportedError, match="'zarr4' is unknown; there is zarr3"):
        ingot.open(place / "zarr3", format="zarr4")


@pytest.mark.parametrize("state", [lock.LockState.BUSY, lock.LockState.UNKNOWN])
def test_a_commit_that_may_be_under_way_takes_the_complete_way(
    place: Path, state: lock.LockState
) -> None:
    with (place / "zarr3" / ".lock").open("r+b") as file:
        file.seek(24)
        file.write(bytes([state]))
    assert open_fast(place / "zarr3", None, writable=False) is None
    assert np.array_equal(ingot.open(place / "zarr3")[...], VALUES)  # type: ignore[index]


@fast
def test_a_folder_may_be_reached_by_a_link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link").symlink_to(place / "zarr3")
    (tmp_path / "elsewhere" / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    # What lies above a dataset is what lies above the folder, not above the link to it.
    assert open_fast(tmp_path / "elsewhere" / "link", None, writable=False) is not None
    (place / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group"}')
    assert open_fast(tmp_path / "elsewhere" / "link", None, writable=False) is None
    found = open_complete(tmp_path / "elsewhere" / "link", None, writable=False)
    assert found.place.inner == "zarr3"


def _described(node: object) -> object:
    """Return what a table says, for comparison."""
    assert isinstance(node, TableNode)
    columns = {
        name: (type(each.chunks), each.chunks.path, repr(each.chunks.schema))
        if isinstance(each, ArrayNode)
        else _described(each)
        for name, each in node.columns.items()
    }
    return type(node.table), node.table.path, dict(node.attrs), columns


@fast
@pytest.mark.parametrize("locked", [True, False])
@pytest.mark.parametrize("name", ["table", "nested"])
def test_tables_are_found_with_their_columns(place: Path, name: str, locked: bool) -> None:
    if not locked:
        _strip(place / name)
    for said in (None, "bcolz"):
        found = open_fast(place / name, said, writable=False)
        known = open_complete(place / name, said, writable=False)
        assert found is not None
        assert found.number == known.number
        assert (found.number is not None) == locked
        assert _described(found.node) == _described(known.node)


@fast
def test_a_table_with_many_columns(place: Path) -> None:
    names = [f"column{number}" for number in range(300)]
    ingot.table({name: [1, 2] for name in names}, place / "wide")
    found = open_fast(place / "wide", None, writable=False)
    assert found is not None
    assert isinstance(found.node, TableNode)
    assert list(found.node.columns) == names


@fast
def test_attributes_of_columns_are_not_shared(place: Path) -> None:
    with ingot.open(place / "table", "r+") as table:  # type: ignore[union-attr]
        table["a"].attrs["unit"] = ["m"]
    first, second = ingot.open(place / "table"), ingot.open(place / "table")
    first["a"].attrs["unit"].append("s")  # type: ignore[index]
    assert second["a"].attrs["unit"] == ["m"]  # type: ignore[index]
    assert ingot.open(place / "table")["a"].attrs["unit"] == ["m"]  # type: ignore[index]


@fast
@pytest.mark.parametrize("enclosed", [False, True])
def test_folders_between_a_table_and_its_columns(
    place: Path, tmp_path: Path, enclosed: bool
) -> None:
    """A folder called `data` is nothing special, unless a table lies above it."""
    (place / "old").mkdir()
    (place / "old" / "data").mkdir()
    ingot.array(VALUES, place / "old" / "data" / "a", format="bcolz")
    if enclosed:
        (place / "old" / "__rootdirs__").write_text('{"names": ["a"]}')
    (tmp_path / "link").symlink_to(place / "old" / "data" / "a")
    for path in (place / "old" / "data" / "a", tmp_path / "link"):
        assert (find_enclosing(str(path)) is not None) == enclosed
        assert (open_fast(path, None, writable=True) is None) == enclosed
        assert open_complete(path, None, writable=True).place.inner == "data/a" * enclosed


@fast
def test_formats_are_distinguished_by_their_order(place: Path) -> None:
    """Whatever else lies in a folder, the probe decides as the complete way does."""
    orders = [["zarr2", "bcolz"], ["bcolz", "zarr0"], ["zarr0", "zarr2"], ["bcolz", "zarr2"]]
    for number, (first, second) in enumerate(orders):
        both = place / f"both{number}"
        shutil.copytree(place / first, both)
        for file in (place / second).iterdir():
            if file.is_file() and file.name != ".lock":
                shutil.copy(file, both)
        found = open_fast(both, None, writable=False)
        known = open_complete(both, None, writable=False)
        assert found is not None
        assert found.format is known.format
    (place / "bcolz" / "meta" / "sizes").unlink()
    shutil.copy(place / "zarr0" / "__zmeta__", place / "bcolz")
    assert open_fast(place / "bcolz", None, writable=False) is None
    with pytest.raises(CorruptionError, match="meta/sizes is missing"):
        ingot.open(place / "bcolz")

"""An old dataset that is replaced: it stays whole until the new one is."""

import os
from itertools import product

import numpy as np
import pytest

import ingot
from ingot.containers.replacement import replace_folder
from ingot.errors import CorruptionError, ExistsError
from ingot.stores import Commit, Delete, LocalStore, Put

OLD = np.arange(600).reshape(30, 20)
NEW = np.arange(4000).reshape(100, 40)
FOLDERS = [
    name for name, holds in ingot.formats().items() if "array" in holds and name != "bloscpack"
]
SMALL = ingot.Options(limits=ingot.Limits(window_bytes=4000))


class Stop(BaseException):
    """What ends a conversion in these tests."""


def stop(done, total):
    raise Stop


@pytest.fixture
def source(tmp_path):
    return ingot.array(NEW, tmp_path / "new.zarr", chunks=(10, 40))


# A folder is not replaced by a file.
PAIRS = [*product(FOLDERS, FOLDERS), ("bloscpack", "bloscpack")]


@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_the_old_one_is_kept_until_the_new_one_is_whole(source, tmp_path, old, new):
    place = tmp_path / "a"
    chunks = "auto" if old in ("bcolz", "bloscpack") else (7, 9)
    ingot.array(OLD, place, format=old, chunks=chunks)
    with pytest.raises(Stop):
        ingot.convert(source, place, format=new, overwrite=True, progress=stop, options=SMALL)
    found = ingot.open(place)
    assert found.format == old
    assert np.array_equal(found[...], OLD)
    found.close()
    made = ingot.convert(source, place, format=new, overwrite=True, options=SMALL, verify=True)
    assert made.format == new
    assert np.array_equal(ingot.open(place)[...], NEW)
    assert ingot.check(place).findings == ()
    assert {name for name in os.listdir(tmp_path) if not name.endswith(".lock")} == {
        "a",
        "new.zarr",
    }


def test_other_files_in_the_folder_are_not_lost(source, tmp_path):
    ingot.array(OLD, tmp_path / "a", format="zarr1")
    (tmp_path / "a" / "notes").write_text("ours")
    with pytest.raises(ExistsError, match="notes"):
        ingot.convert(source, tmp_path / "a", format="bcolz", overwrite=True)
    assert np.array_equal(ingot.open(tmp_path / "a")[...], OLD)


def test_a_member_of_a_group_is_not_deleted_first(tmp_path, source):
    root = ingot.group(tmp_path / "g", format="zarr2")
    root.array("x", OLD[0])  # The file of its chunk is called 0.
    with pytest.raises(ExistsError, match="delete it first"):
        ingot.convert(
            source, tmp_path / "g" / "x", overwrite=True, chunks=(10, 40), dimension_separator="/"
        )
    assert np.array_equal(ingot.open(tmp_path / "g" / "x")[...], OLD[0])


def test_a_folder_takes_the_place_of_another(tmp_path):
    store = LocalStore(tmp_path / "a", writable=True)
    store.apply(Commit(publish=(Put("meta", b"old"),)))

    def write(new):
        new.apply(Commit(publish=(Put("meta/sizes", b"new"),)))

    replace_folder(store, Commit(publish=(Delete("meta"),)), write)
    assert (tmp_path / "a" / "meta" / "sizes").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["a"]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_array_that_blocks_the_new_one_is_kept_until_that_is_whole(tmp_path, streamed):
    """The file ``0`` of the old array has the name of a folder of the new one."""
    place = tmp_path / "a"
    ingot.array(np.arange(4), place, format="zarr2", chunks=1)
    new = {"format": "zarr2", "chunks": (1, 40), "dimension_separator": "/", "overwrite": True}
    source = ingot.array(NEW, tmp_path / "b.zarr", chunks=(10, 40), codec="none")
    torn = tmp_path / "b.zarr" / "c" / "9" / "0"
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-8])
    with pytest.raises(CorruptionError):
        ingot.array(source if streamed else source[...], place, **new)
    assert ingot.open(place)[...].tolist() == [0, 1, 2, 3]
    assert ingot.check(place).findings == ()
    torn.write_bytes(whole)
    made = ingot.array(source if streamed else source[...], place, **new)
    assert np.array_equal(made[...], NEW)
    made[0, 0] = -1
    assert ingot.open(place)[0, 0] == -1
    assert sorted(os.listdir(tmp_path)) == ["a", "b.zarr"]


def test_a_table_replaces_an_array_that_blocks_it(tmp_path):
    place = tmp_path / "a"
    ingot.array(np.arange(4), place, format="zarr2", chunks=1)
    table = ingot.table({"0": [1, 2], "1": ["x", None]}, place, format="bcolz", overwrite=True)
    assert table["0"][:].tolist() == [1, 2]
    table.append({"0": [3], "1": ["z"]})
    assert len(ingot.open(place)) == 3
    assert os.listdir(tmp_path) == ["a"]

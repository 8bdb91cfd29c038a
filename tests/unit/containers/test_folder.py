"""A plain folder of datasets opens as a read-only group of them."""

import os
import pickle
import stat

import numpy as np
import pytest

import ingot
from ingot.containers.folder import FolderGroup, walk
from ingot.errors import FormatError, MemberError, NotFoundError, ReadOnlyError


@pytest.fixture
def folder(tmp_path):
    ingot.array(np.arange(6).reshape(2, 3), tmp_path / "a.zarr")
    ingot.table({"x": [1, 2, 3], "y": [1.5, 2.5, 3.5]}, tmp_path / "old" / "prices.bcolz")
    ingot.ragged(["ape", "bee"], tmp_path / "old" / "words.blv")
    ingot.array([1, 2], tmp_path / "deep" / "er" / "b.blp", format="bloscpack")
    root = ingot.group(tmp_path / "tree.zarr")
    root.array("day/one", [1, 2, 3])
    root.close()
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "empty").mkdir()
    (tmp_path / ".hidden").mkdir()
    ingot.array([1], tmp_path / ".hidden" / "c.zarr")
    return tmp_path


def test_members_are_datasets_and_folders_that_hold_some(folder):
    group = ingot.open(folder)
    assert isinstance(group, ingot.Group)
    assert list(group) == ["a.zarr", "deep", "old", "tree.zarr"]
    assert len(group) == 4
    assert (group.format, group.mode, group.path) == ("folder", "r", str(folder))
    assert group["a.zarr"][1, 2] == 5
    assert group["old"]["prices.bcolz"]["y"][2] == 3.5
    assert group["deep/er/b.blp"][1] == 2
    assert group["tree.zarr/day/one"][2] == 3
    assert list(group["old"]["words.blv"]) == ["ape", "bee"]
    assert "old/words.blv" in group
    assert "old/nothing" not in group
    assert "notes.txt" not in group
    assert 7 not in group
    assert dict(group.attrs) == {}
    assert group.consolidated is None


@pytest.mark.parametrize(
    "name", ["nothing", "notes.txt", "empty", "../x", "", ".", "old/../a.zarr"]
)
def test_other_names_are_no_members(folder, name):
    with pytest.raises(MemberError, match="no member"):
        ingot.open(folder)[name]


def test_walk_finds_every_dataset_below(folder):
    found = {each.name: each.dataset.format for each in walk(ingot.open(folder))}
    assert found == {
        "a.zarr": "zarr3",
        "deep/er/b.blp": "bloscpack",
        "old/prices.bcolz": "bcolz",
        "old/words.blv": "varlen",
        "tree.zarr": "zarr3",
        "tree.zarr/day": "zarr3",
        "tree.zarr/day/one": "zarr3",
    }


def test_the_tree_shows_every_dataset(folder):
    assert repr(ingot.open(folder).tree()).splitlines() == [
        "/",
        "├── a.zarr (2, 3) int64, zarr3",
        "├── deep/",
        "│   └── er/",
        "│       └── b.blp (2,) int64, bloscpack",
        "├── old/",
        "│   ├── prices.bcolz 3 rows, 2 columns, bcolz",
        "│   └── words.blv 2 items of utf8, varlen",
        "└── tree.zarr/ zarr3",
        "    └── day/",
        "        └── one (3,) int64",
    ]
    assert "er/" not in repr(ingot.open(folder).tree(depth=1)).replace("deep/", "")
    assert "4 members" in repr(ingot.open(folder))
    assert "<b>a.zarr</b>" in ingot.open(folder)._repr_html_()


def test_problems_are_findings_and_do_not_stop_the_walk(folder):
    os.symlink("nowhere", folder / "broken")
    os.symlink(folder, folder / "old" / "loop")
    os.mkfifo(folder / "pipe")
    name = os.fsencode(folder) + b"/\xff.blp"
    with open(name, "wb") as file:
        file.write((folder / "deep/er/b.blp").read_bytes())
    (folder / "a.zarr" / "zarr.json").write_text("{")
    problems = {
        each.name: each.problem for each in walk(ingot.open(folder)) if each.dataset is None
    }
    assert problems.pop("a.zarr").count("zarr.json")
    assert problems == {
        "broken": "a broken link",
        "old/loop": "a link to a folder above",
        "\udcff.blp": "a name that is no Unicode",
    }
    good = [each.name for each in walk(ingot.open(folder)) if each.dataset is not None]
    assert len(good) == 6
    tree = repr(ingot.open(folder).tree())
    assert "broken a broken link" in tree
    assert "a.zarr cannot be opened: " in tree


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_entries_are_problems(folder):
    (folder / "old").chmod(0)
    try:
        assert ingot.open(folder).entries()["old"] == "Permission denied"
    finally:
        (folder / "old").chmod(stat.S_IRWXU)


def test_nothing_can_be_changed(folder):
    group = ingot.open(folder)
    before = sorted(os.listdir(folder))
    for change in (
        lambda: group.array("n", [1]),
        lambda: group.create_array("n", shape=3, dtype="i4"),
        lambda: group.group("n"),
        lambda: group.__delitem__("a.zarr"),
        lambda: group.attrs.update(a=1),
        group.consolidate,
        lambda: group.transaction().__enter__(),
    ):
        with pytest.raises(ReadOnlyError, match="a plain folder of datasets cannot be changed"):
            change()
    with pytest.raises(FormatError, match="no dataset of a known format") as caught:
        ingot.open(folder, "r+")
    assert caught.value.__notes__ == ["a folder of datasets is opened with mode 'r' only"]
    assert sorted(os.listdir(folder)) == before


def test_folders_without_datasets_stay_an_error(tmp_path):
    with pytest.raises(NotFoundError, match="nothing is there"):
        ingot.open(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    os.symlink(tmp_path, tmp_path / "self")
    with pytest.raises(FormatError, match="no dataset of a known format"):
        ingot.open(tmp_path)


def test_a_damaged_dataset_is_no_folder_of_datasets(tmp_path):
    root = ingot.group(tmp_path / "g")
    root.array("a", [1])
    (tmp_path / "g" / "zarr.json").write_text("{")
    with pytest.raises(ingot.errors.IngotError, match=r"zarr\.json"):
        ingot.open(tmp_path / "g")


def test_it_is_closed_pickled_and_kept(folder):
    group = pickle.loads(pickle.dumps(ingot.open(folder)))
    assert isinstance(group, FolderGroup)
    assert len(group) == 4
    with group, group.snapshot():
        group.flush()
        group.refresh()
        one = group["a.zarr"]
    assert one[0, 0] == 0
    with pytest.raises(ValueError, match="is closed"):
        list(group)
    assert "closed" in repr(group)


def test_names_that_stores_refuse_are_problems_and_printed_with_escapes(folder):
    packed = folder / "old" / "c\x1b[1m.blp"
    ingot.array(np.arange(5), folder / "c.blp").close()
    (folder / "c.blp").rename(packed)
    entries = ingot.open(folder / "old").entries()
    assert entries[packed.name] == "a name with a backslash or a control character"
    text = str(ingot.open(folder / "old").tree())
    assert "\x1b" not in text
    assert "c\\x1b[1m.blp a name with" in text

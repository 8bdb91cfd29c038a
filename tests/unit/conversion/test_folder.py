"""Many datasets at once: folders of them, and groups in formats without groups."""

import json
import os
import shutil

import numpy as np
import pytest

import ingot
from ingot.conversion import run
from ingot.errors import ExistsError, UnsupportedError

VALUES = np.arange(500, dtype="<i4").reshape(50, 10)


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "old"
    ingot.array(VALUES, root / "a.zarr", chunks=(7, 10))
    ingot.table({"x": [1, 2, 3], "y": [1.5, 2.5, 3.5]}, root / "deep" / "prices.bcolz")
    ingot.array(VALUES, root / "deep" / "plain", format="zarr2")
    ingot.ragged(["a", None], root / "words.blv")
    (root / "notes.txt").write_text("mine")
    return root


def test_a_folder_is_copied_with_its_tree(folder, tmp_path):
    made = ingot.convert(folder, tmp_path / "new", verify=True)
    record = made.conversion
    assert record.failures == ()
    assert [os.path.relpath(each.target, tmp_path / "new") for each in record.members] == [
        "a.zarr",
        "deep/plain",
        "deep/prices.bcolz",
        "words.blv",
    ]
    assert [each.format for each in record.members] == ["zarr3", "zarr2", "bcolz", "varlen"]
    assert "notes.txt: no dataset, it is not copied" in record.changes
    assert np.array_equal(made["deep/plain"][...], VALUES)
    assert made["deep"]["prices.bcolz"]["y"][:].tolist() == [1.5, 2.5, 3.5]
    assert not (tmp_path / "new" / ".convert.json").exists()


def test_a_failure_does_not_stop_the_others(folder, tmp_path):
    (folder / "broken").symlink_to("nowhere")
    damaged = folder / "deep" / "plain" / "0.0"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    made = ingot.convert(folder, tmp_path / "new", format="blsk")
    failures = dict(made.conversion.failures)
    assert list(failures) == ["broken", "deep/plain"]
    assert "link" in failures["broken"]
    assert "(0, 0)" in failures["deep/plain"]
    assert list(ingot.open(tmp_path / "new" / "words.blsk")) == list(
        ingot.open(folder / "words.blv")
    )
    assert np.array_equal(ingot.open(tmp_path / "new" / "a.blsk")[...], VALUES)
    assert ingot.open(tmp_path / "new" / "deep" / "prices.blsk").names == ("x", "y")


def test_a_group_becomes_a_folder_where_there_are_no_groups(tmp_path):
    root = ingot.group(tmp_path / "a.zarr", attrs={"title": "ours"})
    root.array("x", VALUES, chunks=(7, 10))
    root.array("deep/y", VALUES[0])
    made = ingot.convert(root, tmp_path / "new", format="bcolz", verify=True)
    assert made.conversion.changes == ("attribute 'title' of the group is dropped",)
    assert ingot.open(tmp_path / "new" / "deep" / "y").format == "bcolz"
    assert np.array_equal(made["x"][...], VALUES)


def test_a_folder_that_is_there_already(folder, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("mine")
    with pytest.raises(ExistsError):
        ingot.convert(folder, tmp_path / "new")
    assert os.listdir(tmp_path / "new") == ["mine"]
    for target in (folder, folder / "deep" / "new", tmp_path):
        with pytest.raises((UnsupportedError, ExistsError)):
            ingot.convert(folder, target, overwrite=True)


def test_nothing_could_be_converted(tmp_path):
    ingot.ragged(["a"], tmp_path / "old" / "words.blv")
    with pytest.raises(UnsupportedError, match=r"words\.blv"):
        ingot.convert(tmp_path / "old", tmp_path / "new", format="zarr3")
    assert not (tmp_path / "new").exists()


def test_a_folder_that_was_left_half_way_is_continued(folder, tmp_path, monkeypatch):
    calls = []
    convert = run.convert

    def stopped(source, *arguments, **options):
        calls.append(source.path)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return convert(source, *arguments, **options)

    monkeypatch.setattr(run, "convert", stopped)
    with pytest.raises(KeyboardInterrupt):
        ingot.convert(folder, tmp_path / "new")
    found = json.loads((tmp_path / "new" / ".convert.json").read_text())
    assert found == {"source": str(folder), "done": ["a.zarr", "deep/plain"]}
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    with pytest.raises(ExistsError, match="unfinished"):
        ingot.convert(other, tmp_path / "new")
    calls.clear()
    calls += ["", "", ""]
    made = ingot.convert(folder, tmp_path / "new")
    assert [os.path.basename(path) for path in calls[3:]] == ["prices.bcolz", "words.blv"]
    assert len(made["deep"]) == 2
    assert not (tmp_path / "new" / ".convert.json").exists()

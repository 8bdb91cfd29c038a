"""``ingot ls`` lists every dataset, ``ingot tree`` draws them."""

import json
import os

import numpy as np
import pytest

import ingot
from tests.command import invoke


@pytest.fixture
def folder(tmp_path):
    ingot.array(np.arange(6).reshape(2, 3), tmp_path / "a.zarr")
    ingot.table({"x": [1, 2, 3]}, tmp_path / "old" / "prices.bcolz")
    ingot.ragged(["ape", "bee"], tmp_path / "old" / "words.blv")
    root = ingot.group(tmp_path / "tree.zarr")
    root.array("day/one", [1, 2, 3])
    return tmp_path


def test_every_dataset_is_listed(folder):
    result = invoke("ls", "--json", folder)
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [(each["name"], each["format"], each["kind"]) for each in found] == [
        ("a.zarr", "zarr3", "array"),
        ("old/prices.bcolz", "bcolz", "table"),
        ("old/words.blv", "varlen", "ragged"),
        ("tree.zarr", "zarr3", "group"),
        ("tree.zarr/day", "zarr3", "group"),
        ("tree.zarr/day/one", "zarr3", "array"),
    ]
    assert all(ingot.open(each["path"]).format == each["format"] for each in found)
    assert (found[0]["shape"], found[0]["dtype"], found[0]["chunks"]) == ([2, 3], "int64", [2, 3])
    assert (found[1]["rows"], found[2]["length"]) == (3, 2)
    lines = invoke("ls", folder).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [each["path"] for each in found]


def test_a_dataset_lists_itself(folder):
    (found,) = json.loads(invoke("ls", "--json", folder / "a.zarr").stdout)
    assert (found["path"], found["kind"]) == (str(folder / "a.zarr"), "array")
    assert invoke("tree", folder / "a.zarr").stdout == f"{folder / 'a.zarr'} (2, 3) int64, zarr3\n"


def test_the_current_folder_is_the_default(folder, monkeypatch):
    monkeypatch.chdir(folder)
    found = json.loads(invoke("ls", "--json").stdout)
    assert [each["path"] for each in found][:2] == ["a.zarr", "old/prices.bcolz"]
    assert invoke("tree").stdout.splitlines()[0] == "."


def test_problems_are_listed_and_are_status_1(folder):
    os.symlink("nowhere", folder / "broken")
    (folder / "a.zarr" / "zarr.json").write_text("{")
    with open(os.fsencode(folder) + b"/\xff", "wb") as file:
        file.write(b"x")
    result = invoke("ls", "--json", folder)
    assert result.exit_code == 1
    found = {each["name"]: each.get("problem") for each in json.loads(result.stdout)}
    assert found["broken"] == "a broken link"
    assert "zarr.json" in found["a.zarr"]
    assert found["old/prices.bcolz"] is None
    assert found["\udcff"] == "a name that is no Unicode"
    assert "a broken link" in invoke("ls", folder).stdout


def test_the_tree(folder):
    lines = invoke("tree", folder).stdout.splitlines()
    assert lines[0] == str(folder)
    assert lines[1] == "├── a.zarr (2, 3) int64, zarr3"
    assert lines[-1] == "        └── one (3,) int64"
    shallow = invoke("tree", folder, "--depth", "1").stdout
    assert "prices" not in shallow
    assert "old/" in shallow
    names = [each["name"] for each in json.loads(invoke("tree", "--json", folder).stdout)]
    assert "tree.zarr/day/one" in names
    names = [each["name"] for each in json.loads(invoke("tree", "-d1", "--json", folder).stdout)]
    assert names == ["a.zarr", "tree.zarr"]


def test_an_empty_folder_is_a_problem(tmp_path):
    result = invoke("ls", tmp_path)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_dataset_that_cannot_be_described_does_not_end_the_list(folder):
    attributes = folder / "broken.bcolz" / "__attrs__"
    ingot.array([1, 2], attributes.parent)
    attributes.write_bytes(b"")
    result = invoke("ls", "--json", folder)
    assert result.exit_code == 1
    found = {each["name"]: each for each in json.loads(result.stdout)}
    assert len(found) > 1
    assert found["broken.bcolz"]["kind"] == "array"
    assert "__attrs__" in found["broken.bcolz"]["problem"]
    assert "__attrs__" in invoke("info", folder).stdout

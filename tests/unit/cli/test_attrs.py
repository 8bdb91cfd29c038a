"""``ingot attrs`` shows, sets and removes attributes."""

import json

import pytest

import ingot
from ingot.cli import attrs
from tests.command import invoke


@pytest.fixture
def path(tmp_path):
    ingot.array([1, 2], tmp_path / "a.zarr", attrs={"units": "m", "n": 3}).close()
    return tmp_path / "a.zarr"


def test_attributes_are_shown(path):
    assert json.loads(invoke("attrs", path, "--json").stdout) == {"units": "m", "n": 3}
    assert [line.split() for line in sorted(invoke("attrs", path).stdout.splitlines())] == [
        ["n", "3"],
        ["units", "m"],
    ]
    assert invoke("attrs", path, "units").stdout == "m\n"
    assert invoke("attrs", path, "n", "--json").stdout == "3\n"


def test_attributes_are_set_and_removed_in_one_commit(path):
    result = invoke("attrs", path, "--set", "n=[1, 2]", "-s", "title=a = b", "--remove", "units")
    assert (result.exit_code, result.output) == (0, "")
    assert dict(ingot.open(path).attrs) == {"n": [1, 2], "title": "a = b"}
    refused = invoke("attrs", path, "--set", "x=1", "--remove", "missing")
    assert (refused.exit_code, "no attribute 'missing'" in refused.stderr) == (1, True)
    assert dict(ingot.open(path).attrs) == {"n": [1, 2], "title": "a = b"}


def test_wrong_use(path):
    assert invoke("attrs", path, "missing").exit_code == 1
    assert invoke("attrs", path, "--set", "x").exit_code == 2
    assert invoke("attrs", path, "--set", "=x").exit_code == 2


@pytest.mark.parametrize("make", [ingot.group, lambda path: ingot.table({"a": [1]}, path)])
def test_groups_and_tables_have_attributes_too(tmp_path, make):
    make(tmp_path / "x").close()
    assert invoke("attrs", tmp_path / "x").output == ""
    assert invoke("attrs", tmp_path / "x", "--set", 'title="7"').exit_code == 0
    assert dict(ingot.open(tmp_path / "x").attrs) == {"title": "7"}


def test_a_folder_of_datasets_gets_none(path):
    result = invoke("attrs", path.parent, "--set", "a=1")
    assert result.exit_code == 1
    assert "mode 'r' only" in result.stderr


def test_long_values_are_cut_on_a_terminal_only(path, monkeypatch, capsys):
    numbers = list(range(10_000))
    with ingot.open(path, "r+") as array:
        array.attrs["numbers"] = numbers
    assert invoke("attrs", path).stdout.count("9999") == 1
    monkeypatch.setattr(attrs, "terminal_width", lambda: 80)
    attrs.attrs(path)
    shown = capsys.readouterr().out
    assert "units" in shown
    assert "9999" not in shown
    assert "ingot attrs PATH NAME" in shown
    attrs.attrs(path, "numbers")
    assert capsys.readouterr().out == f"{numbers}\n"

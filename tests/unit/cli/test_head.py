"""``ingot head`` and ``ingot tail`` show what NumPy would."""

import json

import numpy as np
import pytest

import ingot
from tests.command import invoke

VALUES = np.arange(120).reshape(20, 6) / 4


@pytest.fixture
def array(tmp_path):
    ingot.array(VALUES, tmp_path / "a.zarr", chunks=(7, 4)).close()
    return tmp_path / "a.zarr"


@pytest.fixture
def table(tmp_path):
    columns = {
        "day": np.arange(50) + np.datetime64("2026-01-01"),
        "price": np.arange(50) / 4,
        "name": np.array(["ape", "bee"] * 25),
        "n": {"x": np.arange(50)},
    }
    ingot.table(columns, tmp_path / "t.bcolz").close()
    return tmp_path / "t.bcolz"


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        (("head",), np.s_[:10]),
        (("tail",), np.s_[-10:]),
        (("head", "-n", "3"), np.s_[:3]),
        (("tail", "-n", "2"), np.s_[-2:]),
        (("tail", "-n", "0"), np.s_[:0]),
        (("head", "-k", "0:10, ::5"), np.s_[0:10, ::5]),
        (("head", "-k", "-1"), np.s_[-1]),
        (("head", "--key", "..., [0, 2]"), np.s_[..., [0, 2]]),
    ],
)
def test_items_of_an_array(array, arguments, key):
    command, *rest = arguments
    report = json.loads(invoke(command, array, *rest, "--json").stdout)
    expected = VALUES[key]
    assert report["shape"] == list(expected.shape)
    assert report["dtype"] == "float64"
    assert report["data"] == expected.tolist()
    text = invoke(command, array, *rest).stdout.splitlines()
    assert text[0] == f"{expected.shape} float64 of (20, 6)"
    assert "\n".join(text[1:]) == np.array2string(expected, max_line_width=100)


def test_an_array_without_axes(tmp_path):
    ingot.array(7, tmp_path / "a.zarr").close()
    report = json.loads(invoke("head", tmp_path / "a.zarr", "--json").stdout)
    assert (report["shape"], report["data"]) == ([], 7)


def test_rows_of_a_table(table):
    report = json.loads(invoke("head", table, "-n", "2", "--json").stdout)
    assert report == {
        "kind": "table",
        "columns": ["day", "price", "name", "n.x"],
        "rows": [
            {"day": "2026-01-01", "price": 0.0, "name": "ape", "n.x": 0},
            {"day": "2026-01-02", "price": 0.25, "name": "bee", "n.x": 1},
        ],
    }
    lines = invoke("head", table, "-n", "2").stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["day", "price", "name", "n.x"],
        ["2026-01-01", "0.0", "ape", "0"],
        ["2026-01-02", "0.25", "bee", "1"],
    ]
    report = json.loads(invoke("tail", table, "-n", "1", "--json").stdout)
    assert [row["n.x"] for row in report["rows"]] == [49]


def test_columns_and_a_condition(table):
    options = ("--columns", "name,price", "--where", "(price >= 10) & (name == 'bee')")
    report = json.loads(invoke("head", table, *options, "-n", "2", "--json").stdout)
    assert report["rows"] == [
        {"name": "bee", "price": 10.25},
        {"name": "bee", "price": 10.75},
    ]
    report = json.loads(invoke("tail", table, *options, "-n", "1", "--json").stdout)
    assert report["rows"] == [{"name": "bee", "price": 12.25}]
    none = invoke("head", table, "--where", "price > 1000")
    assert (none.exit_code, none.stdout.split()) == (0, ["day", "price", "name", "n.x"])


@pytest.mark.parametrize(
    ("key", "rows"), [("3", [3]), ("::20", [0, 20, 40]), ("[5, 1]", [5, 1]), ("-2:", [48, 49])]
)
def test_rows_by_a_key(table, key, rows):
    report = json.loads(invoke("head", table, "-k", key, "--columns", "n.x", "--json").stdout)
    assert [row["n.x"] for row in report["rows"]] == rows


def test_items_of_variable_length(tmp_path):
    items = ["ape", None, "a\nb", "x" * 100]
    ingot.ragged(items, tmp_path / "a.blv").close()
    report = json.loads(invoke("head", tmp_path / "a.blv", "--json").stdout)
    assert report["items"] == items
    report = json.loads(invoke("head", tmp_path / "a.blv", "-k", "[2, 0]", "--json").stdout)
    assert report["items"] == ["a\nb", "ape"]
    lines = invoke("head", tmp_path / "a.blv").stdout.splitlines()
    assert lines[1:4] == ["     0  ape", "     1  null", "     2  a b"]
    assert lines[4].endswith("x…")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("-k", "x"), 2, "key 'x' is no integer"),
        (("-k", "100"), 1, "100"),
        (("-n", "-1"), 2, "range"),
        (("--where", "a > 1"), 1, "--columns and --where are for tables"),
    ],
)
def test_wrong_arguments(array, arguments, status, message):
    result = invoke("head", array, *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert message in result.stderr


def test_wrong_columns_and_conditions(table):
    for options in (("--columns", "nothing"), ("--where", "nothing > 1"), ("--where", "price >")):
        result = invoke("head", table, *options)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("ingot: ")
        assert "unexpected" not in result.stderr
    assert invoke("head", table, "-k", "1,2").exit_code == 1


def test_a_group_has_no_items(tmp_path):
    ingot.group(tmp_path / "g.zarr").close()
    assert "ingot ls lists its members" in invoke("head", tmp_path / "g.zarr").stderr

"""``ingot explain`` prints what `explain` returns."""

import json

import numpy as np
import pytest

import ingot
from tests.command import invoke


@pytest.fixture
def array(tmp_path):
    ingot.array(np.arange(1000), tmp_path / "a.zarr", chunks=50, codec="none").close()
    return tmp_path / "a.zarr"


def test_the_cost_of_a_key(array):
    report = json.loads(invoke("explain", array, "-k", "40:160", "--json").stdout)
    assert {name: report[name] for name in ("shape", "nbytes", "chunks", "files")} == {
        "shape": [120],
        "nbytes": 960,
        "chunks": 4,
        "files": 4,
    }
    assert [cost["items"] for cost in report["costs"]] == [10, 50, 50, 10]
    text = invoke("explain", array, "-k", "40:160").stdout
    assert "[120], 960 bytes" in text
    assert ["(3,)", "c/3", "10", "404", "404"] in [line.split() for line in text.splitlines()]


def test_the_rest_is_counted(array):
    assert invoke("explain", array).stdout.endswith("... and 8 more\n")


def test_columns_of_a_table(tmp_path):
    table = tmp_path / "t.bcolz"
    ingot.table({"a": np.arange(100), "b": {"c": np.zeros(100)}}, table).close()
    report = json.loads(invoke("explain", table, "-k", "0:10", "--json").stdout)
    assert report["columns"]["a"]["shape"] == [10]
    lines = [line.split() for line in invoke("explain", table, "-c", "b.c").stdout.splitlines()]
    assert [line[0] for line in lines] == ["100", "column", "b.c"]


def test_rows_of_a_table_that_can_match(tmp_path):
    table = tmp_path / "t.bcolz"
    ingot.table({"a": np.arange(100), "b": np.zeros(100)}, table, chunks=10).close()
    report = json.loads(invoke("explain", table, "-w", "a >= 95", "-c", "b", "--json").stdout)
    assert (report["rows"], report["total"], list(report["columns"])) == (10, 100, ["a", "b"])
    assert invoke("explain", table, "-w", "a >= 95").stdout.startswith("10 of 100 rows")


def test_what_cannot_be_explained(tmp_path, array):
    ingot.ragged(["a"], tmp_path / "a.blv").close()
    assert invoke("explain", tmp_path / "a.blv").exit_code == 1
    assert invoke("explain", array, "-k", "x").exit_code == 2


def test_one_file_is_one_file(tmp_path):
    array = ingot.array(np.arange(10), tmp_path / "b.zarr")
    assert invoke("explain", tmp_path / "b.zarr").stdout.count("in 1 file\n") == 1
    assert repr(array.explain()) == str(array.explain())
    assert "in 1 file\n" in repr(array.explain())

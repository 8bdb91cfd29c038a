"""What reading rows of tables and views costs, before it is done."""

import json

import numpy as np
import pytest

import ingot
from ingot.containers.table_explanation import TableExplanation


@pytest.fixture(params=["bcolz", "blsk"])
def table(request):
    columns = {"a": np.arange(1000), "in": {"b": np.arange(1000) / 2}, "t": ["x"] * 1000}
    return ingot.table(columns, format=request.param, chunks=100)


def test_a_table_is_explained_by_columns(table):
    found = table.explain(slice(150, 350))
    assert (found.rows, found.total) == (200, 1000)
    # Text of any length is left out.
    assert list(found.columns) == ["a", "in.b"]
    assert [cost.chunks for cost in found.columns.values()] == [3, 3]
    assert found.columns["a"].nbytes == 200 * 8
    assert found.read == sum(cost.read for cost in found.columns.values()) > 0
    assert list(table.explain(columns="in").columns) == ["in.b"]
    assert table.explain([0, 999], "a").columns["a"].chunks == 2
    assert table.explain(slice(None, None, -1), "a").rows == 1000


def test_a_view_is_explained_by_its_zone_maps(table):
    found = table.where("(a >= 250) & (a < 320)")[["in.b"]].explain()
    assert found.rows == 200
    assert list(found.columns) == ["a", "in.b"]
    assert [cost.chunks for cost in found.columns.values()] == [2, 2]
    assert table.where("(a < 50) | (a > 950)").explain().rows == 200
    assert table.where("a < 0").explain().rows == 0
    mask = np.zeros(1000, bool)
    mask[[5, 405]] = True
    assert table.where(mask).explain().columns["a"].chunks == 2
    assert table.where("a > 400").where(mask).explain().rows == 1


def test_an_explanation_is_text_json_and_html(table):
    found = table.where("a > 950").explain()
    lines = str(found).splitlines()
    assert lines[0] == "100 of 1,000 rows can match"
    assert lines[1].split()[:2] == ["column", "chunks"]
    assert [line.split()[0] for line in lines[2:]] == ["a", "in.b"]
    assert json.loads(json.dumps(found.to_dict()))["rows"] == 100
    assert ">in.b</td>" in found._repr_html_()
    assert "&lt;" in TableExplanation(1, 1, {"<": found.columns["a"]})._repr_html_()

"""SQL over tables: DuckDB's answers, NumPy's sums, and nothing outside."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import SelectionError
from ingot.testing.counting import CountingStore

duckdb = pytest.importorskip("duckdb")
pyarrow = pytest.importorskip("pyarrow")


def made(rows: int, store: Any = None, **settings: Any) -> ingot.Table:
    chance = np.random.default_rng(5)
    columns = {
        "time": np.arange(rows).astype("M8[s]"),
        "group": chance.integers(0, 7, rows).astype("i4"),
        # Eighths, so that sums are exact in any order.
        "value": np.round(chance.normal(size=rows) * 8) / 8,
        "name": chance.integers(0, 50, rows).astype("U3"),
    }
    return ingot.table(columns, store, **settings)


def test_a_query_of_a_table() -> None:
    table = made(1000)
    found = table.sql('select sum(value) as v, count(*) as n from t where "group" = 3').to_pydict()
    mask = table["group"][:] == 3
    assert found["n"] == [mask.sum()]
    assert found["v"] == [table["value"][:][mask].sum()]


def test_parameters_and_other_tables() -> None:
    table, other = made(100), ingot.table({"group": [1, 2], "word": ["one", "two"]})
    text = 'select distinct word from t join u using ("group") where value > ? order by word'
    assert table.sql(text, [-99.0], tables={"u": other}).to_pydict() == {"word": ["one", "two"]}
    view = other.where("group == 2")
    assert table.sql("select word from v", tables={"v": view})["word"].to_pylist() == ["two"]
    frame = pyarrow.table({"x": [1]})
    assert table.sql("select x from f", tables={"f": frame})["x"].to_pylist() == [1]


def test_a_query_inside_a_transaction_sees_its_changes() -> None:
    table = ingot.table({"a": [1, 2]})
    with table.transaction():
        table.append({"a": [3]})
        assert table.sql("select sum(a)::int as s from t")["s"].to_pylist() == [6]


@pytest.mark.parametrize(
    "text",
    [
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "copy t to '{file}.out'",
        "attach '{file}.db'",
        "set enable_external_access = true",
        "select * from outside",
        "install httpfs",
        "select * from nothing",
        "selct",
    ],
)
def test_queries_reach_nothing_outside(text: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    outside = pyarrow.table({"a": [1]})
    with pytest.raises(SelectionError, match="DuckDB"):
        ingot.table({"a": [1]}).sql(text.format(file=file))
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"]
    assert outside.num_rows == 1


def test_external_files_may_be_allowed(tmp_path: Path) -> None:
    (tmp_path / "file.csv").write_text("a\n1\n")
    text = f"select a from read_csv('{tmp_path}/file.csv')"
    assert ingot.table({"b": [1]}).sql(text, external=True)["a"].to_pylist() == [1]


QUERIES = [
    "select count(*) from {}",
    'select "group", count(*), sum(value), min(time) from {} group by all order by all',
    "select name, max(value) from {} where time >= '1970-01-01 00:10:00' group by all order by all",
    "select count(*) from {} where \"group\" in (1, 2) and name like '1%' and value < 0.5",
    "select sum(value) from {} where not (name = '12' or value > 0)",
    "select time, value from {} where name is not null order by value, time limit 5",
]


@pytest.mark.parametrize("text", QUERIES)
def test_duckdb_finds_tables_and_datasets_by_their_names(text: str) -> None:
    table = made(3000, chunks=256)
    dataset, whole = table.dataset(), table.to_arrow()
    expected = duckdb.sql(text.format("whole")).fetchall()
    for name in ("table", "dataset"):
        assert duckdb.sql(text.format(f'"{name}"')).fetchall() == expected
    assert dataset.count_rows() == whole.num_rows


def test_duckdb_reads_only_chunks_that_can_match() -> None:
    store = CountingStore()
    made(10_000, store, chunks=100)
    dataset = ingot.open(store).dataset()
    text = "select sum(value) from dataset where time between ? and ?"
    times = ["1970-01-01 01:00:00", "1970-01-01 01:01:00"]
    first = duckdb.execute(text, times).fetchall()
    store.reset()
    assert duckdb.execute(text, times).fetchall() == first
    assert store.extents <= 10
    assert dataset.count_rows() == 10_000

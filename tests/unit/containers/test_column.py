"""Columns with nulls: what comes in and goes out, expressions, and every change of a table."""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, UnsupportedError
from tests.kernels import needs_native

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

FORMATS = ["bcolz", "blsk"]


def masked(values: list[Any], dtype: str) -> Any:
    """Return a masked array; None is masked."""
    mask = [each is None for each in values]
    return np.ma.MaskedArray([0 if each is None else each for each in values], mask, dtype=dtype)


def nulls(values: Any) -> list[bool]:
    return np.ma.getmaskarray(values).tolist()


@pytest.fixture(params=FORMATS)
def table(request: pytest.FixtureRequest) -> ingot.Table:
    columns = {"a": np.arange(6, dtype="i4"), "q": {"f": np.arange(6) / 2}, "ok": [True] * 6}
    return ingot.table(columns, chunks=4, format=request.param)


# Reading and assigning


def test_a_column_without_nulls_reads_as_before(table: ingot.Table) -> None:
    assert type(table["a"][:]) is np.ndarray
    assert not table["a"].has_nulls
    assert isinstance(table["a"], ingot.Array)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (2, None, [0, 1, None, 3, 4, 5]),
        (slice(1, 4), None, [0, None, None, None, 4, 5]),
        ([0, 5], [None, 9], [None, 1, 2, 3, 4, 9]),
        (slice(None, None, -2), masked([1, None, 3], "i8"), [0, 3, 2, None, 4, 1]),
        (np.array([True, False] * 3), None, [None, 1, None, 3, None, 5]),
        (..., pandas.array([1, None, 3, 4, 5, 6], "Int64"), [1, None, 3, 4, 5, 6]),
        (slice(2), pyarrow.array([None, 7]), [None, 7, 2, 3, 4, 5]),
        (slice(2), pandas.Series([None, 7], dtype="Int8"), [None, 7, 2, 3, 4, 5]),
    ],
)
def test_nulls_are_assigned_to_a_column(
    table: ingot.Table, key: Any, value: Any, expected: list[Any]
) -> None:
    table["a"][key] = value
    assert table["a"][:].tolist() == expected
    assert table["a"].has_nulls
    assert [each is np.ma.masked for each in table["a"]] == [each is None for each in expected]
    assert table.where("isnull(a)").count() == expected.count(None)


def test_a_value_takes_the_place_of_a_null(table: ingot.Table) -> None:
    table["a"][1:3] = None
    table["a"][1] = 7
    assert table["a"][:].tolist() == [0, 7, None, 3, 4, 5]
    table["a"][:] = np.arange(6)
    assert not table["a"].has_nulls
    assert isinstance(table["a"][:], np.ma.MaskedArray)
    table["a"].oindex[[0, 3]] = [None, 1]
    assert table["a"].oindex[[3, 0]].tolist() == [1, None]


def test_items_of_a_column_with_nulls(table: ingot.Table) -> None:
    table["a"][1] = None
    assert table["a"][1] is np.ma.masked
    assert table["a"][2] == 2
    assert table[1]["a"] is np.ma.masked
    assert [row["a"] is np.ma.masked for row in table] == [False, True, False, False, False, False]
    with pytest.raises(ValueError, match="column 'a' has nulls, which int32 cannot express"):
        np.asarray(table["a"])
    table["q.f"][1] = None
    assert np.isnan(np.asarray(table["q.f"])[1])
    out: Any = np.ma.zeros(6, "i4")
    assert table["a"].read(out=out).tolist() == [0, None, 2, 3, 4, 5]
    with pytest.raises(ValueError, match="out must be a masked array"):
        table["a"].read(out=np.zeros(6, "i4"))


def test_items_of_several_axes(table: ingot.Table) -> None:
    table.add_column("v", [[1, 2], [3, 4], [5, 6]] * 2)
    table.update(1, {"v": None})
    assert table["v"][:3].tolist() == [[1, 2], [None, None], [5, 6]]
    assert table["v"][1:3, 0].tolist() == [None, 5]
    assert table["v"].oindex[[1, 2], 1:].tolist() == [[None], [6]]
    table["v"][1, 0] = 9
    assert table["v"][1].tolist() == [9, 0]
    with pytest.raises(UnsupportedError, match="reduce column"):
        table["v"].sum()


def test_reductions_are_those_of_the_items_that_exist(table: ingot.Table) -> None:
    values = [3, None, 5, 1, None, 9]
    table["a"][:] = values
    exist = np.array([each for each in values if each is not None], "i4")
    column = table["a"]
    for name in ("sum", "mean", "min", "max", "any", "all"):
        assert getattr(column, name)() == getattr(exist, name)()
    assert column.sum().dtype == exist.sum().dtype
    column[:] = None
    assert column.sum() == 0
    with pytest.raises(ValueError, match="zero-size"):
        column.min()


def test_a_column_is_pickled_with_its_table(tmp_path: Path) -> None:
    table = ingot.table({"a": [1, None]}, tmp_path / "t.bcolz")
    assert pickle.loads(pickle.dumps(table["a"]))[:].tolist() == [1, None]


# What comes in


@pytest.mark.parametrize(
    "given",
    [
        {"a": [1, None, 3], "b": [1.5, None, None]},
        {"a": masked([1, None, 3], "i8"), "b": masked([1.5, None, None], "f8")},
        pandas.DataFrame(
            {
                "a": pandas.array([1, None, 3], "Int64"),
                "b": pandas.array([1.5, None, None], "Float64"),
            }
        ),
        pandas.DataFrame(
            {
                "a": pandas.Series([1, None, 3], dtype=object),
                "b": pandas.Series([1.5, pandas.NA, None], dtype=object),
            }
        ),
        pyarrow.table({"a": [1, None, 3], "b": [1.5, None, None]}),
        pyarrow.table({"a": [1, None, 3], "b": [1.5, None, None]}).to_pandas(
            types_mapper=pandas.ArrowDtype
        ),
        {"a": pyarrow.array([1, None, 3]), "b": [1.5, pandas.NA, pandas.NaT]},
    ],
)
@pytest.mark.parametrize("format", FORMATS)
def test_nulls_of_all_libraries_come_in(given: Any, format: str) -> None:
    made = ingot.table(given, format=format)
    added = ingot.table({"a": np.zeros(0, "i8"), "b": np.zeros(0, "f8")}, format=format)
    added.append(given)
    updated = ingot.table({"a": np.zeros(3, "i8"), "b": np.zeros(3, "f8")}, format=format)
    updated.update(slice(None), given)
    for table in (made, added, updated):
        found = table.read()
        assert found["a"].tolist() == [1, None, 3]
        assert found["b"].tolist() == [1.5, None, None]
        assert table.names == ("a", "b")
        assert table.to_arrow().to_pydict() == {"a": [1, None, 3], "b": [1.5, None, None]}


def test_nan_is_a_number_unless_it_is_said() -> None:
    nan = float("nan")
    table = ingot.table({"x": [1.0, nan]})
    assert not table["x"].has_nulls
    table.append({"x": [nan]}, nan_as_null=True)
    table.update(0, {"x": nan}, nan_as_null=True)
    assert nulls(table["x"][:]) == [True, False, True]
    table.update(0, {"x": nan})
    assert nulls(table["x"][:]) == [False, False, True]
    table.add_column("y", [nan, 1.0, 2.0], nan_as_null=True)
    assert table["y"][:].tolist() == [None, 1.0, 2.0]
    frame = pandas.DataFrame({"x": [1.0, nan], "t": pandas.to_datetime(["2024-01-01", None])})
    found = ingot.table(frame)
    assert not found["x"].has_nulls
    assert nulls(found["t"][:]) == [False, True]
    assert nulls(ingot.table(frame, nan_as_null=True)["x"][:]) == [False, True]


def test_times_keep_what_the_source_says() -> None:
    times = np.array(["2024-01-01", "NaT"], "M8[D]")
    table = ingot.table({"t": times, "u": times - times[0]})
    assert not table["t"].has_nulls
    table.append({"t": [None, "2024-02-29"], "u": [np.timedelta64(3, "D"), None]})
    assert nulls(table["t"][:]) == [False, False, True, False]
    assert nulls(table["u"][:]) == [False, False, False, True]
    assert table.where("isnull(t)").rows().tolist() == [1, 2]
    assert table.to_arrow()["t"].null_count == 2
    assert table.to_pandas()["t"].isna().tolist() == [False, True, True, False]


def test_what_does_not_fit_is_refused_beside_nulls() -> None:
    table = ingot.table({"a": np.array([1], "i1")})
    for wrong in ([None, 300], [None, 1.5], [None, "x"], masked([None, 300], "i8")):
        with pytest.raises(ValueError, match="column 'a'"):
            table.append({"a": wrong})
    with pytest.raises(ValueError, match="row 1 is masked in part"):
        ingot.table({"a": np.ma.MaskedArray([[1, 2], [3, 4]], [[0, 0], [0, 1]])})
    assert len(table) == 1
    table.append({"a": masked([None, 7], "i8")})
    assert table["a"][:].tolist() == [1, None, 7]


# What goes out


def test_nulls_go_out_to_pandas_arrow_and_polars() -> None:
    polars = pytest.importorskip("polars")
    given = {
        "i": masked([1, None, 3], "i2"),
        "f": masked([1.5, None, float("nan")], "f4"),
        "b": masked([True, None, False], "?"),
        "t": np.ma.MaskedArray(np.array(["2024-01-01"] * 3, "M8[us]"), [0, 1, 0]),
        "n": np.ma.MaskedArray(np.array([1, 2, 3], "m8[s]"), [0, 1, 0]),
    }
    table = ingot.table(given)
    frame = table.to_pandas()
    assert [str(each) for each in frame.dtypes] == [
        "Int16",
        "Float32",
        "boolean",
        "datetime64[us]",
        "timedelta64[s]",
    ]
    assert frame.isna()["i"].tolist() == [False, True, False]
    assert [str(each) for each in frame["f"].tolist()] == ["1.5", "<NA>", "nan"]
    back = ingot.table(polars.from_arrow(table.to_arrow()))
    again = ingot.table(frame)
    for name in given:
        assert nulls(back[name][:]) == nulls(given[name])
        # In pandas, NaN of a column with nulls is missing as well.
        if name != "f":
            assert nulls(again[name][:]) == nulls(given[name])
            assert again[name].dtype == given[name].dtype


def test_duckdb_sees_nulls() -> None:
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.from_arrow(ingot.table({"a": [1, None, 3]}).to_arrow())
    assert found.select("a is null").fetchall() == [(False,), (True,), (False,)]


# Expressions


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a > 2", [3, 5]),
        ("a != 3", [0, 1, 5]),
        ("not a > 2", [0, 1, 2, 4]),
        ("a == 0", [0]),
        ("a in (0, 3)", [0, 3]),
        ("a not in (0, 3)", [1, 2, 4, 5]),
        ("isnull(a)", [2, 4]),
        ("~isnull(a)", [0, 1, 3, 5]),
        ("a + f > 3", [5]),
        ("-a < 0", [1, 3, 5]),
        ("a & 1 == 1", [1, 3, 5]),
        ("a > f", [1, 5]),
        ("flag", [0, 3]),
        ("~flag", [1, 2, 4, 5]),
        ("not flag", [1, 2, 4, 5]),
        ("flag & (a > 2)", [3]),
        ("flag | (a > 3)", [0, 3, 5]),
        ("flag ^ True", [1, 2, 4, 5]),
        ("abs(a) >= 3", [3, 5]),
        ("isnan(f)", [3]),
        ("isnull(f)", [0]),
        ("d != '2024-01-01T12'", [0, 1, 2, 4]),
        ("isnull(s) or startswith(s, 'b')", [1, 2]),
        ("s == ''", []),
    ],
)
def test_a_comparison_with_a_null_is_false(
    format: str, expression: str, expected: list[int]
) -> None:
    table = ingot.table(
        {
            "a": masked([0, 1, None, 3, None, 5], "i4"),
            "f": masked([None, 0.5, 1.5, float("nan"), 2.5, 3.5], "f8"),
            "flag": masked([True, False, None, True, False, None], "?"),
            "d": np.ma.MaskedArray(np.arange(6).astype("M8[D]"), [0, 0, 0, 1, 0, 1]),
            "s": masked(["a", "b", None, "c", "d", "e"], "U3"),
        },
        chunks=2,
        format=format,
    )
    assert table.where(expression).rows().tolist() == expected
    assert table.where(expression).count() == len(expected)


@needs_native
def test_chunks_without_nulls_are_not_read(tmp_path: Path) -> None:
    table = ingot.table({"a": np.arange(40)}, tmp_path / "t", chunks=10)
    table.update(25, {"a": None})
    # In chunks that a query of nulls must not decode, a byte of the data is wrong.
    for chunk in ("__0.blp", "__3.blp"):
        file = tmp_path / "t" / "a" / "data" / chunk
        data = bytearray(file.read_bytes())
        data[44] ^= 0xFF
        file.write_bytes(data)
    found = ingot.open(tmp_path / "t")
    assert found.where("isnull(a)").rows().tolist() == [25]
    assert found.where("a >= 30").count() == 10
    with pytest.raises(CorruptionError):
        found.read("a")


# Changes of the table


def test_every_change_keeps_values_and_nulls_together(table: ingot.Table) -> None:
    with table.transaction():
        table.append({"a": [None, 7], "q": {"f": [1.0, None]}, "ok": [None, False]})
        table["a"][0] = None
    table.rename_column("q", "p")
    table.rename_column("p.f", "p.g")
    table.delete("a == 3")
    table.resize(8)
    expected = {
        "a": [None, 1, 2, 4, 5, None, 7, 0],
        "p.g": [0.0, 0.5, 1.0, 2.0, 2.5, 1.0, None, 0.0],
        "ok": [True] * 5 + [None, False, False],
    }
    assert {name: values.tolist() for name, values in table.read().items()} == expected
    assert table["p"].read()["g"].tolist() == expected["p.g"]
    table["p"].update(0, {"g": None})
    assert table["p.g"][0] is np.ma.masked
    table.drop_column("a")
    table.add_column("a", np.arange(8))
    assert table["a"][:].tolist() == list(range(8))
    assert table.names == ("p", "ok", "a")


def test_shards_keep_nulls(table: ingot.Table, tmp_path: Path) -> None:
    table.update([1, 5], {"a": None, "q.f": None})
    table.shard(2, tmp_path / "shards")
    found = ingot.open(tmp_path / "shards")
    assert found.names == table.names
    for name, values in table.read().items():
        assert found.read()[name].tolist() == values.tolist()


def test_another_handle_sees_the_first_null(tmp_path: Path) -> None:
    table = ingot.table({"a": [1, 2], "b": [1, 2]}, tmp_path / "t")
    other = ingot.open(tmp_path / "t", "r+")
    column = other["a"]
    assert column[:].tolist() == [1, 2]
    table.update(0, {"a": None})
    assert column[:].tolist() == [None, 2]
    other.append({"a": [None], "b": [None]})
    assert table.read()["b"].tolist() == [1, 2, None]


def test_the_values_of_nulls_are_the_fill_value(tmp_path: Path) -> None:
    table = ingot.table({"a": [1, 2]}, tmp_path / "t")
    table.add_column("b", masked([None, 5], "i4"), fill=-7)
    assert ingot.open(tmp_path / "t" / "b")[:].tolist() == [-7, 5]
    table.update(1, {"b": None})
    assert ingot.open(tmp_path / "t" / "b")[:].tolist() == [-7, -7]


def test_old_bcolz_opens_the_values(tmp_path: Path) -> None:
    table = ingot.table({"a": [1, None, 3], "b": [1.5, 2.5, None]}, tmp_path / "t", format="bcolz")
    table.update("a == 3", {"a": None})
    read = (
        "import sys, bcolz; t = bcolz.open(sys.argv[1], 'r');"
        "print(t.names, t['a'][:].tolist(), t['b'][:].tolist(), len(t))"
    )
    pytest.importorskip("bcolz", reason="bcolz-zipline has no wheel for this Python")
    command = [sys.executable, "-c", read, str(tmp_path / "t")]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert found.strip() == "['a', 'b'] [1, 0, 0] [1.5, 2.5, 0.0] 3"

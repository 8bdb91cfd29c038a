"""Data frames of pandas from tables, with the types of both of its backends; narwhals on top."""

import datetime
from typing import Any

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal

import ingot
from ingot.interop import pandas as frames

pyarrow = pytest.importorskip("pyarrow")

COLUMNS = {
    "i": np.arange(4, dtype="i2"),
    "u": np.arange(4, dtype="u8"),
    "f": np.array([0.5, np.nan, 1, 2], "f4"),
    "b": np.array([True, False, True, True]),
    "t": np.array(["a", "bc", "", "é"]),
    "d": np.array(["2020-01-01", "NaT", "2021-01-01", "2022-01-01"], "M8[ns]"),
}


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_the_types_are_those_of_a_backend(backend: str) -> None:
    table = ingot.table(COLUMNS)
    found = table.to_pandas(dtype_backend=backend)
    for name in ("i", "u", "b"):
        assert found[name].tolist() == COLUMNS[name].tolist()
    text = {"numpy_nullable": "string", "pyarrow": "string[pyarrow]"}[backend]
    assert str(found["t"].dtype) == text
    integer = {"numpy_nullable": "Int16", "pyarrow": "int16[pyarrow]"}[backend]
    assert str(found["i"].dtype) == integer
    assert found["d"].isna().tolist() == [False, True, False, False]
    some = table.where("i >= 2").to_pandas(dtype_backend=backend)
    assert some.index.tolist() == [2, 3]
    assert some["u"].tolist() == [2, 3]


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="dtype_backend is 'numpy'"):
        frames.of_arrow(pyarrow.table({"a": [1]}), "numpy")


def test_pandas_takes_the_stream() -> None:
    table = ingot.table({"a": [1, 2], "b": [0.5, 1.5]})
    expected = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert_frame_equal(pandas.DataFrame.from_arrow(table), expected)
    assert_frame_equal(table.to_pandas(), expected)
    assert_frame_equal(pandas.DataFrame(table.read()), expected)


def test_narwhals_takes_the_stream() -> None:
    narwhals = pytest.importorskip("narwhals")
    frame = narwhals.from_arrow(ingot.table({"a": [1, 2, 3]}), backend="pyarrow")
    assert frame.filter(narwhals.col("a") > 1)["a"].to_list() == [2, 3]


NULLS: dict[str, tuple[list[Any], str]] = {
    "text": (["a", pandas.NA, "long text", None, pandas.NaT], "utf8"),
    "text behind a null": ([pandas.NA, "a"], "utf8"),
    "bytes": ([b"a", pandas.NA], "bytes"),
    "rows": ([[1, 2], pandas.NA, [3]], "<i8"),
    "rows of one length": ([pandas.NA, [1, 2]], "<i8"),
    "json": ([{"a": 1}, pandas.NA], "json"),
}


@pytest.mark.parametrize("name", NULLS)
def test_nulls_of_pandas_in_lists_of_items(name: str) -> None:
    items, kind = NULLS[name]
    expected = [None if each is pandas.NA or each is pandas.NaT else each for each in items]
    table = ingot.table({"a": items})
    wanted = kind if not kind.startswith("<") else np.dtype(kind)
    assert table["a"].kind == wanted
    found = ingot.ragged(items[:1], kind=kind)
    found.append(items[1:])
    found.append(each for each in items)
    for column, due in ((table["a"], expected), (found, expected * 2)):
        plain = [each.tolist() if isinstance(each, np.ndarray) else each for each in column]
        assert plain == due


def test_nulls_of_pandas_are_assigned_to_items() -> None:
    table = ingot.table({"a": ["x", "y", "z"]})
    table["a"][0] = pandas.NA
    table.update([1], {"a": pandas.NA})
    assert list(table["a"]) == [None, None, "z"]
    table["a"][1:] = [pandas.NA, "w"]
    assert list(table["a"]) == [None, None, "w"]


def test_an_item_that_is_neither_null_nor_text_is_refused_by_its_place() -> None:
    with pytest.raises(ValueError, match="item 2 is int"):
        ingot.table({"a": ["x", pandas.NA, 3]})


@pytest.mark.parametrize("null", [None, pandas.NaT, pandas.NA])
@pytest.mark.parametrize(
    "value",
    [
        pandas.Timestamp("2020-01-01T00:00:00.000000001"),
        pandas.Timestamp("2020-01-01T10:00:00.000000001", tz="Europe/Oslo"),
        pandas.Timestamp("2020-01-01"),
        pandas.Timedelta(1001, "ns"),
        datetime.timedelta(days=1, microseconds=3),
    ],
)
def test_lists_of_times_lose_neither_nanoseconds_nor_nulls(value: Any, null: object) -> None:
    for items in ([value, null], [null, value]):
        found = ingot.table({"a": items}).to_pandas()["a"]
        assert found.isna().tolist() == [each is null for each in items]
        assert found.dropna().tolist() == [value]


@pytest.mark.parametrize("nested", [False, True])
def test_the_constructor_of_pandas_is_refused_with_the_way_that_works(nested: bool) -> None:
    text = ["x", None, "z"]
    table = ingot.table({"a": [1, 2, 3], "b": {"c": text} if nested else text})
    for rows in (table, table.where("a > 1")):
        with pytest.raises(ingot.errors.ArgumentTypeError, match=r"to_pandas\(\)"):
            pandas.DataFrame(rows)
        found = pandas.DataFrame.from_arrow(rows)
        assert list(found) == list(rows.to_pandas())
        assert found["a"].tolist() == np.asarray(rows["a"]).tolist()


def test_the_constructor_of_pandas_is_refused_for_structures() -> None:
    values = np.zeros(3, [("a", "i4"), ("b", "f4")])
    array = ingot.array(values)
    with pytest.raises(ingot.errors.ArgumentTypeError, match=r"array\[\.\.\.\]"):
        pandas.DataFrame(array)
    assert_frame_equal(pandas.DataFrame(array[...]), pandas.DataFrame(values))
    assert pandas.DataFrame(ingot.array(np.eye(2))).to_numpy().tolist() == [[1, 0], [0, 1]]


def test_rows_are_iterated_as_ever_outside_of_the_constructor() -> None:
    table = ingot.table({"a": [1, 2, 3], "b": ["x", None, "z"]})
    rows = [(1, "x"), (2, None), (3, "z")]
    assert [row.item() for row in table] == rows
    assert [row.item() for row in list(table.where("a > 1"))] == rows[1:]
    assert pandas.DataFrame([tuple(row) for row in table]).shape == (3, 2)
    assert pandas.DataFrame(dict(table))["a"].tolist() == [1, 2, 3]

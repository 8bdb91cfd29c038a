"""The table, in memory and on disk, on both kernels."""

import errno
import os
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from numpy.typing import NDArray

import ingot
from ingot.errors import (
    ColumnError,
    LockedError,
    ReadOnlyError,
    SelectionError,
    UnsupportedError,
)
from ingot.sharding import shard
from ingot.stores import LocalStore
from ingot.stores.pending import PendingStore
from tests.places import Place, content, put

NewPlace = Callable[[], Place]

ROWS = 1000


def data(rows: int = ROWS, first: int = 0) -> dict[str, NDArray[Any]]:
    """Return columns of many kinds."""
    numbers = np.arange(first, first + rows)
    return {
        "i": numbers.astype("i8"),
        "f": np.where(numbers % 7 == 3, np.nan, numbers / 4).astype("f4"),
        "d": (numbers * 3600).astype("M8[s]"),
        "s": np.char.mod("n%d", numbers).astype("S8"),
        "t": np.char.mod("ä%d", numbers % 100).astype("U3"),
        "b": numbers % 3 == 0,
        "m": (numbers[:, None] * [1, -1]).astype("i2"),
    }


def make(place: Place, columns: Any = None, **settings: Any) -> ingot.Table:
    return ingot.table(data() if columns is None else columns, place, chunks=64, **settings)


def assert_holds(table: ingot.Table, expected: dict[str, NDArray[Any]]) -> None:
    found = table.read()
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, strict=True)
        np.testing.assert_array_equal(table[name][...], values, strict=True)
    assert len(table) == len(next(iter(expected.values()), ()))


def without(columns: dict[str, NDArray[Any]], rows: Any) -> dict[str, NDArray[Any]]:
    return {name: np.delete(values, rows, axis=0) for name, values in columns.items()}


def joined(*parts: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def test_columns_come_back(place: Place) -> None:
    make(place, attrs={"year": 2024})
    table = ingot.open(place)
    assert isinstance(table, ingot.Table)
    assert_holds(table, data())
    assert dict(table.attrs) == {"year": 2024}
    assert table.names == tuple(data())
    assert table.dtypes == {name: values.dtype for name, values in data().items()}
    assert table.shape == (ROWS,)
    assert (table.format, table.mode) == ("bcolz", "r")


SOURCES: dict[str, Callable[[dict[str, NDArray[Any]]], Any]] = {
    "mapping": dict,
    "structure": lambda columns: pandas.DataFrame(columns).to_records(index=False),
    "frame": pandas.DataFrame,
    "arrow": pyarrow.table,
    "stream": lambda columns: Streaming(pyarrow.table(columns)),
    "table": ingot.table,
}


class Streaming:
    """Something that has nothing but the Arrow stream."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("source", SOURCES)
def test_tables_are_made_of_and_appended_from(source: str, place: Place) -> None:
    columns = {name: data()[name] for name in "ifdb"}
    made = SOURCES[source](columns)
    table = make(place, made)
    assert_holds(table, columns)
    table.append(made)
    assert_holds(table, joined(columns, columns))


def test_lists_of_rows_are_appended(place: Place) -> None:
    table = make(place, {"a": np.zeros(0, "i4"), "b": np.zeros(0, "U3")})
    table.append([(1, "x"), [2, "yy"]])
    table.append([{"b": "z", "a": 3}])
    table.append([])
    table.append(np.array([(4, "w")], [("a", "i8"), ("b", "U1")]))
    table.append(
        np.array([(5, "v")], [("b2", "U1"), ("a2", "i8")][::-1])[["a2", "b2"]].astype(
            [("a", "i4"), ("b", "U1")]
        )[0]
    )
    assert_holds(
        table,
        {
            "a": np.array([1, 2, 3, 4, 5], "i4"),
            "b": np.array(["x", "yy", "z", "w", "v"], "U3"),
        },
    )


@pytest.mark.parametrize("key", [0, -1, 999, slice(10, 200, 7), slice(None, None, -3), [5, 5, 2]])
def test_rows_are_structures(key: Any, place: Place) -> None:
    table = make(place)
    expected = np.zeros(ROWS, table.dtype)
    for name, values in data().items():
        expected[name] = values
    found = table[key]
    assert found.dtype == expected.dtype
    for name in table.names:
        np.testing.assert_array_equal(found[name], expected[key][name], strict=True)
    mask = np.zeros(ROWS, bool)
    mask[[1, 500, 999]] = True
    assert table[mask]["i"].tolist() == [1, 500, 999]


def test_a_row_that_is_not_there(place: Place) -> None:
    with pytest.raises(SelectionError, match="out of bounds"):
        make(place)[ROWS]


def test_columns_are_live_arrays(place: Place) -> None:
    table = make(place)
    column = table["i"]
    assert isinstance(column, ingot.Array)
    assert column.sum() == data()["i"].sum()
    column[10:20] = -1
    assert table[15]["i"] == -1
    table.append(data(3))
    assert column.shape == (ROWS + 3,)
    column.attrs["unit"] = "m"
    assert ingot.open(place)["i"].attrs["unit"] == "m"


def test_a_query_sees_what_took_the_place_of_whole_chunks(place: Place) -> None:
    table = ingot.table({"a": np.zeros(8, "i4")}, place, chunks=2)
    assert len(table.where("a > 5").rows()) == 0, "the zone maps are known now"
    table["a"][...] = np.arange(8)
    np.testing.assert_array_equal(table.where("a > 5").rows(), [6, 7])


def test_a_column_alone_cannot_grow(place: Place) -> None:
    table = make(place)
    before = content(place)
    with pytest.raises(ValueError, match="rows are added and removed by the table"):
        table["i"].append([1])
    with pytest.raises(ValueError, match="rows are added and removed by the table"):
        table["i"].resize(5)
    assert content(place) == before


def test_some_columns_are_a_view(place: Place) -> None:
    view = make(place)[["f", "i"]]
    assert view.names == ("f", "i")
    assert list(view.read()) == ["f", "i"]
    assert len(view) == ROWS
    assert view.dtype.names == ("f", "i")


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i >= 990", lambda c: c["i"] >= 990),
        ("(i > 100) & (i <= 164)", lambda c: (c["i"] > 100) & (c["i"] <= 164)),
        ("isnan(f) and i < 50", lambda c: np.isnan(c["f"]) & (c["i"] < 50)),
        ("d < '1970-01-02'", lambda c: c["d"] < np.datetime64("1970-01-02")),
        ("s == 'n17' or t == 'ä7'", lambda c: (c["s"] == b"n17") | (c["t"] == "ä7")),
        ("b & (i % 2 == 0)", lambda c: c["b"] & (c["i"] % 2 == 0)),
        ("i in (3, 5, 10000)", lambda c: np.isin(c["i"], [3, 5])),
        ("True", lambda c: np.ones(ROWS, bool)),
        ("i < 0", lambda c: np.zeros(ROWS, bool)),
    ],
)
def test_expressions_choose_rows(where: str, expected: Any, place: Place) -> None:
    table, columns = make(place), data()
    mask = expected(columns)
    view = table.where(where)
    assert len(view) == view.count() == mask.sum()
    assert view.rows().tolist() == np.flatnonzero(mask).tolist()
    for name, values in view.read().items():
        np.testing.assert_array_equal(values, columns[name][mask], strict=True)
    np.testing.assert_array_equal(view["i"], columns["i"][mask])
    assert table.read("s", where=where)["s"].tolist() == columns["s"][mask].tolist()
    assert [row["i"] for row in view] == columns["i"][mask].tolist()
    assert view.to_pandas()["i"].tolist() == columns["i"][mask].tolist()
    assert view[["i"]].to_arrow()["i"].to_pylist() == columns["i"][mask].tolist()
    wanted = slice(900, 100, -2)
    found = table.read("i", where=where, rows=wanted)["i"]
    assert found.tolist() == columns["i"][wanted][mask[wanted]].tolist()


@pytest.mark.parametrize("where", ["nope > 1", "i", "i + 1", "m > 0", "i == 'x'", "i >"])
def test_wrong_expressions_are_refused_at_once(where: str, place: Place) -> None:
    table = make(place)
    for ask in (table.where, lambda text: table.read(where=text), table.delete):
        with pytest.raises(SelectionError):
            ask(where)
    assert_holds(table, data())


def test_unknown_columns_are_key_errors(place: Place) -> None:
    table = make(place)
    for ask in (table.__getitem__, table.read, table.drop_column):
        with pytest.raises(ColumnError, match="there is no column 'nope'; there is i, f, d"):
            ask("nope")
    with pytest.raises(KeyError):
        table["nope"]
    with pytest.raises(ColumnError):
        table.where("i > 1")["nope"]


def test_appending_what_does_not_fit_changes_nothing(place: Place) -> None:
    table = make(place, {"a": np.array([1], "i1"), "s": np.array([b"abc"]), "t": np.array(["é"])})
    before = content(place)
    good = {"a": [1], "s": [b"x"], "t": ["y"]}
    for wrong in (
        {"a": [300]},
        {"a": [1.5]},
        {"a": ["1"]},
        {"a": [None]},
        {"a": [1, 2]},
        {"a": [[1]]},
        {"a": 1},
        {"s": [b"abcd"]},
        {"s": ["é"]},
        {"t": ["yz"]},
        {"more": [1]},
    ):
        with pytest.raises(ValueError):
            table.append(good | wrong)
    for wrong in ({"a": [1]}, [(1, b"x")], [(1, b"x", "y", 4)], ["row"], [{"a": 1}]):
        with pytest.raises(ValueError):
            table.append(wrong)
    for wrong in (5, "text", np.arange(3)):
        with pytest.raises(TypeError):
            table.append(wrong)
    assert content(place) == before
    table.append(good | {"a": [1.0]})
    assert table["a"][:].tolist() == [1, 1]


def test_small_appends_add_up(place: Place) -> None:
    table = make(place, data(1))
    for number in range(1, 140):
        table.append(data(1, number))
    assert_holds(table, data(140))
    assert_holds(ingot.open(place), data(140))


def test_the_appender_stores_groups(place: Place) -> None:
    table = make(place, {"a": np.zeros(0, "i8"), "b": np.zeros(0, "f8")})
    reader = ingot.open(place)
    with table.appender(rows=10, seconds=None) as add:
        for number in range(25):
            add((number, number / 2))
        assert len(reader) == 20
        add(a=25, b=12.5)
        add.flush()
        assert len(reader) == 26
        add({"a": 26, "b": 13})
    assert reader["b"][:].tolist() == [number / 2 for number in range(27)]
    with pytest.raises(ValueError, match="closed"):
        add((1, 2))
    with table.appender(rows=None, seconds=0) as add:
        add((27, 0))
        assert len(reader) == 28
    with pytest.raises(ValueError, match="at least 1"):
        table.appender(rows=0)


def test_update(place: Place) -> None:
    table, columns = make(place), data()
    assert table.update("i >= 900", {"f": 1.5, "s": b"new"}) == 100
    columns["f"][900:] = 1.5
    columns["s"][900:] = b"new"
    assert table.update([3, 999, 3], {"m": [[1, 2], [3, 4], [5, 6]]}) == 3
    columns["m"][[3, 999]] = [[5, 6], [3, 4]]
    assert table.update(slice(10, 0, -1), {"i": np.arange(10)}) == 10
    columns["i"][10:0:-1] = np.arange(10)
    assert table.update("i > 10**9", {"i": 0}) == 0
    table[5] = {"t": "z"}
    columns["t"][5] = "z"
    table["b"] = np.zeros(ROWS, bool)
    columns["b"][:] = False
    table[7] = table[8]
    for values in columns.values():
        values[7] = values[8]
    assert_holds(table, columns)
    assert_holds(ingot.open(place), columns)


def test_updates_that_do_not_fit_change_nothing(place: Place) -> None:
    table = make(place)
    before = content(place)
    for wrong in ({"s": b"far too long"}, {"i": [1, 2]}, {"i": 0.5}, {"m": [1, 2, 3]}):
        with pytest.raises(ValueError):
            table.update("i < 3", wrong)
    with pytest.raises(ColumnError):
        table.update("i < 3", {"i": 0, "nope": 1})
    assert content(place) == before


@pytest.mark.parametrize(
    "rows",
    [
        slice(0, 0),
        slice(0, 1),
        slice(999, 1000),
        slice(64, 128),
        slice(500, 999),
        slice(None),
        slice(3, None, 2),
        [5, 5, 900, 7],
        -1,
    ],
)
def test_delete(rows: Any, place: Place) -> None:
    table = make(place)
    expected = without(data(), rows)
    assert table.delete(rows) == ROWS - len(expected["i"])
    assert_holds(table, expected)
    assert_holds(ingot.open(place), expected)
    table.append(data(5))
    assert_holds(table, joined(expected, data(5)))


def test_delete_by_expression(place: Place) -> None:
    table, columns = make(place), data()
    assert table.delete("isnan(f) | (i > 990)") == np.sum(
        np.isnan(columns["f"]) | (columns["i"] > 990)
    )
    assert_holds(table, without(columns, np.isnan(columns["f"]) | (columns["i"] > 990)))


def test_resize(place: Place) -> None:
    table, columns = make(place), data()
    for rows in (70, 64, 130, 0, 5):
        table.resize(rows)
        for name, values in columns.items():
            fresh = np.zeros((rows, *values.shape[1:]), values.dtype)
            fresh[: len(values)] = values[:rows]
            columns[name] = fresh
        assert_holds(table, columns)
    with pytest.raises(ValueError, match="at least 0"):
        table.resize(-1)


def test_columns_are_added_dropped_and_renamed(place: Place) -> None:
    table, columns = make(place), data()
    table.append(data(10))
    columns = joined(columns, data(10))
    table.add_column("new", columns["i"] * 2, position=1, attrs={"unit": "s"}, chunks=100)
    table.drop_column("d")
    table.rename_column("f", "g")
    columns = {
        "i": columns["i"],
        "new": columns["i"] * 2,
        "g": columns["f"],
        "s": columns["s"],
        "t": columns["t"],
        "b": columns["b"],
        "m": columns["m"],
    }
    assert_holds(table, columns)
    assert_holds(ingot.open(place), columns)
    assert dict(ingot.open(place)["new"].attrs) == {"unit": "s"}
    assert table["new"].chunks == (100,)
    with pytest.raises(ValueError, match="1010 rows"):
        table.add_column("short", [1, 2])
    with pytest.raises(ValueError, match="already"):
        table.add_column("i", columns["i"])
    with pytest.raises(ValueError, match="already"):
        table.rename_column("i", "s")
    with pytest.raises(ColumnError):
        table.rename_column("nope", "x")
    assert_holds(table, columns)


def test_nested_columns(place: Place) -> None:
    points = np.zeros(10, [("x", "f8"), ("y", [("z", "i4")])])
    points["x"] = np.arange(10)
    table = make(place, {"n": np.arange(10), "p": points})
    assert table.names == ("n", "p")
    assert table["p"]["y"]["z"].dtype == table["p.y.z"].dtype == np.dtype("i4")
    assert isinstance(table["p"], ingot.Table)
    assert table.dtypes["p"] == points.dtype
    assert table["p"].read("x", where="x > 7")["x"].tolist() == [8, 9]
    assert table.read("n", where="p.x > 7")["n"].tolist() == [8, 9]
    assert list(table.read("p")) == ["p.x", "p.y.z"]
    table.append({"n": [10], "p": {"x": [10.0], "y": {"z": [1]}}})
    table.append(np.zeros(1, table.dtype))
    assert table[10]["p"]["y"]["z"] == 1
    table["p"].update("x == 10", {"y": {"z": 7}})
    assert table["p.y.z"][10] == 7
    assert table.delete("p.y.z == 7") == 1
    assert len(table["p"]) == 11
    with pytest.raises(ValueError, match="by the table"):
        table["p"].resize(3)
    table.add_column("q", {"r": np.arange(11)})
    assert ingot.open(place)["q.r"][:].tolist() == list(range(11))


def nested() -> dict[str, Any]:
    """Return columns, some of them in tables inside of tables."""
    return {"n": np.arange(10), "p": {"x": np.arange(10.0), "y": {"z": np.ones(10, "i4")}}}


NESTED_CHANGES: dict[str, Callable[[ingot.Table], object]] = {
    "added inside": lambda table: table["p"].add_column("w", np.arange(10), position=0),
    "added by dots": lambda table: table.add_column("p.w", np.arange(10), position=0),
    "added deeper": lambda table: table.add_column("p.y.w", {"v": np.arange(10)}),
    "dropped inside": lambda table: table["p"].drop_column("y"),
    "dropped by dots": lambda table: table.drop_column("p.y"),
    "renamed inside": lambda table: table["p"]["y"].rename_column("z", "w"),
    "renamed by dots": lambda table: table.rename_column("p.y.z", "p.y.w"),
    "renamed table": lambda table: table["p"].rename_column("y", "w"),
    "described": lambda table: table["p"].attrs.update(unit="m"),
    "described deeper": lambda table: table["p"]["y"].attrs.update(unit="m"),
    "described column": lambda table: table["p"]["y"]["z"].attrs.update(unit="m"),
    "updated": lambda table: table["p"]["y"].update(slice(2), {"z": 7}),
}


def portrait(table: ingot.Table) -> dict[str, Any]:
    """Return all that a table says of itself, with the tables inside of it."""
    inner = {name: table[name] for name in table.names}
    return {
        "attrs": dict(table.attrs),
        "columns": {
            name: portrait(each)
            if isinstance(each, ingot.Table)
            else (each[...].tolist(), dict(each.attrs))
            for name, each in inner.items()
        },
    }


@pytest.mark.parametrize("change", NESTED_CHANGES.values(), ids=list(NESTED_CHANGES))
def test_what_changes_a_nested_table_changes_the_whole(
    place: Place, change: Callable[[ingot.Table], object]
) -> None:
    table = make(place, nested())
    before = portrait(table)
    change(table)
    after = portrait(table)
    assert after != before
    assert portrait(ingot.open(place)) == after  # type: ignore[arg-type]
    # What comes next starts from there, in the nested table and in the whole.
    table["p"].attrs["later"] = 1
    table.update([0], {"n": 100})
    assert portrait(ingot.open(place)) == portrait(table)  # type: ignore[arg-type]
    assert portrait(table)["columns"]["p"]["attrs"]["later"] == 1


def test_the_names_in_a_nested_table_are_what_was_asked_for(place: Place) -> None:
    table = make(place, nested())
    inner = table["p"]
    table.add_column("p.w", np.arange(10), position=0, attrs={"unit": "s"})
    table.rename_column("p.x", "p.u")
    table.rename_column("p.y", "p.v")
    assert inner.names == ("w", "u", "v")
    assert dict(table["p.w"].attrs) == {"unit": "s"}
    table.append({"n": [10], "p": {"w": [10], "u": [10.0], "v": {"z": [2]}}})
    table.drop_column("p.w")
    assert list(ingot.open(place).read()) == ["n", "p.u", "p.v.z"]
    assert inner["v"]["z"][9:].tolist() == [1, 2]


def test_a_transaction_over_nested_tables_is_one_commit(place: Place) -> None:
    table = make(place, nested())
    reader = ingot.open(place)
    assert isinstance(reader, ingot.Table)
    before = portrait(reader)
    with table["p"].transaction():
        table["p"].add_column("w", np.arange(10))
        table.rename_column("p.x", "p.u")
        table.append({"n": [1], "p": {"u": [1.0], "y": {"z": [1]}, "w": [1]}})
        table["p.y"].attrs["unit"] = "m"
        assert portrait(reader) == before
    assert portrait(reader) == portrait(table)
    assert reader["p"].names == ("u", "y", "w")
    assert len(reader["p.u"]) == 11

    def fail() -> None:
        with table.transaction():
            table.drop_column("p.w")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert portrait(reader) == portrait(table)
    assert reader["p"].names == ("u", "y", "w")


REFUSED_NESTED: dict[str, Callable[[ingot.Table], object]] = {
    "rows": lambda table: table["p"].append({"x": [1.0], "y": {"z": [1]}}),
    "fewer rows": lambda table: table["p"]["y"].delete([1]),
    "no such table": lambda table: table.add_column("q.w", np.arange(10)),
    "an array": lambda table: table.add_column("n.w", np.arange(10)),
    "length": lambda table: table.add_column("p.w", np.arange(9)),
    "taken": lambda table: table.add_column("p.x", np.arange(10)),
    "empty": lambda table: table.add_column("p.w", {}),
    "absent": lambda table: table.drop_column("p.w"),
    "the last": lambda table: table.drop_column("p.y.z"),
    "out of it": lambda table: table.rename_column("p.x", "x"),
    "into another": lambda table: table.rename_column("p.x", "p.y.x"),
    "into it": lambda table: table.rename_column("n", "p.n"),
}


@pytest.mark.parametrize("change", REFUSED_NESTED.values(), ids=list(REFUSED_NESTED))
def test_what_a_nested_table_cannot_become_is_refused(
    place: Place, change: Callable[[ingot.Table], object]
) -> None:
    table = make(place, nested())
    stored = content(place)
    with pytest.raises((ValueError, ColumnError)):
        change(table)
    assert content(place).keys() - {".lock"} == stored.keys() - {".lock"}
    assert portrait(ingot.open(place)) == portrait(table)  # type: ignore[arg-type]
    assert table["p"]["y"].names == ("z",)


def test_a_nested_table_that_is_gone_says_so(place: Place) -> None:
    table = make(place, nested())
    inner = table["p"]["y"]
    table.drop_column("p.y")
    with pytest.raises(ColumnError):
        inner.read()
    with pytest.raises(ColumnError):
        inner.attrs["unit"] = "m"


def test_a_transaction_is_one_commit(place: Place) -> None:
    table, columns = make(place), data()
    reader = ingot.open(place)
    with table.transaction():
        table.append(data(100))
        table["i"][0] = 77
        table.delete(slice(1, 3))
        table.add_column("k", np.arange(ROWS + 98))
        table.rename_column("f", "g")
        table.attrs["done"] = True
        assert len(table) == ROWS + 98
        assert table.where("i == 77").count() == 1 + np.sum(columns["i"] == 77) + 1
        assert_holds(reader, columns)
        assert "done" not in reader.attrs
    expected = without(joined(columns, data(100)), [1, 2])
    expected["i"][0] = 77
    expected = {"g" if name == "f" else name: values for name, values in expected.items()}
    expected["k"] = np.arange(ROWS + 98)
    assert_holds(table, expected)
    assert_holds(reader, expected)
    assert reader.attrs["done"] is True


def test_an_exception_leaves_everything_as_it_was(place: Place) -> None:
    table = make(place)
    before = content(place)
    with pytest.raises(ZeroDivisionError):
        fail_inside(table)
    assert_holds(table, data())
    assert content(place) == before
    table.append(data(1))
    assert len(table) == ROWS + 1


def fail_inside(table: ingot.Table) -> None:
    with table.transaction():
        table.append(data(500))
        table.drop_column("i")
        raise ZeroDivisionError


def test_a_transaction_that_fails_when_it_is_decided_keeps_what_was_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingot.table({"a": np.arange(10), "b": np.arange(10.0)}, tmp_path / "t", chunks=4)
    monkeypatch.setattr(PendingStore.__init__, "__kwdefaults__", {"most": 0})
    real = os.rename

    def rename(source: str, target: str, **named: int) -> None:
        if target.endswith(".blp"):
            raise OSError(errno.EIO, "Input/output error")
        real(source, target, **named)

    transaction = table.transaction()
    transaction.__enter__()
    table.append({"a": [10, 11], "b": [10.0, 11.0]})
    table["b"][0] = -1
    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="Input/output error"):
            transaction.__exit__(None, None, None)
    expected = {"a": np.arange(12), "b": np.array([-1.0, *range(1, 12)])}
    assert_holds(ingot.open(tmp_path / "t"), expected)
    table.append({"a": [12], "b": [12.0]})
    assert len(ingot.open(tmp_path / "t")) == 13
    assert not list(tmp_path.rglob(".g-*"))


def test_transactions_inside_of_each_other_are_one(place: Place) -> None:
    table, reader = make(place), ingot.open(place)
    with table.transaction():
        with table.transaction():
            table.resize(5)
        assert len(reader) == ROWS
    assert len(reader) == 5


def test_other_threads_do_not_see_a_transaction(place: Place) -> None:
    table = make(place)
    seen: list[int] = []
    with table.transaction():
        table.resize(3)
        thread = threading.Thread(target=lambda: seen.append(len(table)))
        thread.start()
        thread.join()
        assert len(table) == 3
    assert seen == [ROWS]


def test_a_transaction_does_not_undo_what_others_did(place: Place) -> None:
    table, other = make(place), ingot.open(place, "r+")
    transaction = table.transaction()
    transaction.__enter__()
    table.resize(5)
    other.append(data(1))
    with pytest.raises(LockedError, match="another writer"):
        transaction.__exit__(None, None, None)
    assert_holds(table, joined(data(), data(1)))


def test_a_transaction_that_was_overtaken_is_told_so_at_once(place: Place) -> None:
    table, other = make(place), ingot.open(place, "r+")
    calls: list[Callable[[], object]] = [
        lambda: table["i"][:],
        lambda: len(table),
        lambda: table.where("i < 5").rows(),
        lambda: table.append(data(1)),
        lambda: table["i"].__setitem__(0, 1),
    ]
    for number, call in enumerate(calls):
        with table.transaction():
            assert len(table["i"][:]) == ROWS - 100 * number
            # What the transaction goes by is no longer there, or is that of another state.
            other.resize(ROWS - 100 * (number + 1))
            with pytest.raises(LockedError, match="another writer"):
                call()
    assert len(table) == ROWS - 500


def test_a_transaction_begins_with_what_a_dead_writer_had_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ingot.table({"a": np.arange(10), "b": np.arange(10)}, tmp_path / "t", chunks=4)
    other, real = ingot.open(tmp_path / "t", "r+"), os.rename

    def rename(source: str, target: str, **named: int) -> None:
        real(source, target, **named)
        if target == ".commit":
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises(KeyboardInterrupt):
            other.update(slice(None), {"a": np.arange(10) + 50, "b": np.arange(10) + 70})
    with table.transaction():
        assert table["a"][:].tolist() == list(range(50, 60))
        table["a"][0] = 0
    assert table["a"][:].tolist() == [0, *range(51, 60)]
    assert table["b"][:].tolist() == list(range(70, 80))


def test_read_only_means_read_only(place: Place) -> None:
    make(place)
    before = content(place)
    table = ingot.open(place)
    for change in (
        lambda: table.append(data(1)),
        lambda: table.resize(1),
        lambda: table.delete(0),
        lambda: table.update(0, {"i": 1}),
        lambda: table.drop_column("i"),
        lambda: table.rename_column("i", "j"),
        lambda: table.add_column("z", np.zeros(ROWS)),
        lambda: table.attrs.update(a=1),
        lambda: table["i"].__setitem__(0, 1),
        lambda: table.appender(),
        lambda: table.transaction(),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert content(place) == before


def test_what_is_there_is_not_overwritten(place: Place) -> None:
    make(place)
    with pytest.raises(FileExistsError):
        make(place)
    assert_holds(ingot.open(place), data())


def test_closing_and_pickling(place: Place) -> None:
    table = make(place)
    again = pickle.loads(pickle.dumps(table))
    assert_holds(again, data())
    with table:
        assert len(table) == ROWS
    with pytest.raises(ValueError, match="closed"):
        len(table)
    assert repr(table) == "<ingot.Table, closed>"


def test_tables_without_rows_or_columns(new_place: NewPlace) -> None:
    table = make(new_place(), {})
    assert (len(table), table.names, table.read()) == (0, (), {})
    table.add_column("a", [1, 2, 3])
    assert table["a"][:].tolist() == [1, 2, 3]
    table = make(new_place(), data(0))
    assert_holds(table, data(0))
    assert table.where("i > 1").read()["s"].dtype == "S8"
    table.append(data(3))
    assert_holds(table, data(3))


def test_columns_must_have_one_length(place: Place) -> None:
    with pytest.raises(ValueError, match="different lengths: a 2, b 1"):
        make(place, {"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match="one value"):
        make(place, {"a": 5})
    assert content(place) == {}


def test_it_goes_to_other_libraries_and_back(place: Place) -> None:
    columns = {name: data()[name] for name in "ifdtb"}
    table = make(place, columns)
    frame = table.to_pandas()
    assert list(frame.columns) == list("ifdtb")
    assert frame["d"].iloc[5] == pandas.Timestamp("1970-01-01 05:00")
    arrow = pyarrow.table(table)
    assert arrow.drop("f").equals(table.to_arrow().drop("f"))
    assert_holds(ingot.table(frame), columns)
    assert_holds(ingot.table(arrow), columns)
    assert pyarrow.table(table.where("i < 2"))["i"].to_pylist() == [0, 1]


def test_codecs_and_chunks_by_column(place: Place) -> None:
    columns = {name: data()[name] for name in "if"}
    table = ingot.table(columns, place, codec={"f": "blosc:zstd:9:shuffle"}, chunks={"i": 10})
    assert table["i"].chunks == (10,)
    assert "zstd" in repr(table["f"].codec)
    with pytest.raises(ValueError, match="'nope'"):
        ingot.table(columns, codec={"nope": "zlib"})


def test_info_shows_columns_and_first_rows(place: Place) -> None:
    text = repr(make(place).info)
    for part in ("rows    1,000", "i       int64", "0, 1, 2, 3, 4, …", "m       int16 [2]", "n0"):
        assert part in text
    assert "times smaller" in text
    html = ingot.table({"a": ["<b>"]})._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


def test_snapshots_stay(place: Place) -> None:
    table = make(place)
    with table.snapshot():
        assert len(table) == ROWS
        with pytest.raises(ReadOnlyError):
            table.append(data(1))
    table.append(data(1))
    assert len(table) == ROWS + 1


def test_two_handles_see_each_others_commits(place: Place) -> None:
    first, second = make(place), ingot.open(place, "r+")
    column = second["i"]
    first.append(data(10))
    assert len(second) == len(column) == ROWS + 10
    second.delete(slice(0, ROWS))
    assert_holds(first, data(10))


def test_a_column_opened_alone_is_locked_with_its_table(tmp_path: Path) -> None:
    make(tmp_path / "t")
    store = LocalStore(tmp_path / "t", writable=True)
    before = store.look()
    assert before is not None
    column = ingot.open(tmp_path / "t" / "i", "r+")
    assert column[5] == 5
    column[5] = 55
    assert not (tmp_path / "t" / "i" / ".lock").exists()
    after = store.look()
    assert after is not None
    assert after.sequence > before.sequence
    assert ingot.open(tmp_path / "t")["i"][5] == 55


def test_a_nested_table_opened_alone_keeps_its_length(tmp_path: Path) -> None:
    whole = make(tmp_path / "t", nested())
    inner = ingot.open(tmp_path / "t" / "p", "r+")
    inner.attrs["unit"] = "m"
    inner.add_column("w", np.arange(10))
    inner["y"]["z"][3] = 9
    assert not (tmp_path / "t" / "p" / ".lock").exists()
    assert (whole["p"].attrs["unit"], whole["p"].names) == ("m", ("x", "y", "w"))
    assert whole["p.y.z"][3] == 9
    refused: tuple[Callable[[], object], ...] = (
        lambda: inner.append({"x": [1.0], "y": {"z": [1]}, "w": [1]}),
        lambda: inner.delete([1]),
        lambda: inner["y"].resize(3),
        lambda: ingot.open(tmp_path / "t" / "p" / "x", "r+").append([1.0]),
        lambda: ingot.table({"a": [1]}, tmp_path / "t" / "p", overwrite=True),
    )
    before = content(tmp_path / "t")
    for change in refused:
        with pytest.raises(UnsupportedError):
            change()
    with pytest.raises(ValueError, match="last column"):
        ingot.open(tmp_path / "t" / "p" / "y", "r+").drop_column("z")
    after = content(tmp_path / "t")
    assert {**after, ".lock": b""} == {**before, ".lock": b""}
    assert len(ingot.open(tmp_path / "t")) == 10


OLD: dict[str, Callable[[Place], object]] = {
    "a table": lambda place: make(place, attrs={"old": 1}),
    "nested tables": lambda place: make(place, nested()),
    "an array": lambda place: ingot.array(np.arange(99), place, chunks=5, format="bcolz"),
    "an array of another format": lambda place: ingot.array(np.arange(9), place, format="zarr2"),
}


@pytest.mark.parametrize("old", OLD.values(), ids=list(OLD))
def test_a_table_takes_the_place_of_what_was_there(
    place: Place, old: Callable[[Place], object]
) -> None:
    old(place)
    put(place, {"notes.txt": b"mine", "p/notes.txt": b"mine", "i/notes.txt": b"mine"})
    with pytest.raises(FileExistsError):
        ingot.table({"i": np.arange(7), "z": np.ones(7)}, place)
    made = ingot.table({"i": np.arange(7), "z": np.ones(7)}, place, overwrite=True)
    for table in (made, ingot.open(place)):
        assert isinstance(table, ingot.Table)
        assert_holds(table, {"i": np.arange(7), "z": np.ones(7)})
        assert dict(table.attrs) == {}
    left = content(place)
    for key in ("notes.txt", "p/notes.txt", "i/notes.txt"):
        assert left.pop(key) == b"mine"
    assert {key.partition("/")[0] for key in left} <= {
        "__rootdirs__",
        "__attrs__",
        ".lock",
        "i",
        "z",
    }
    made.append({"i": [7], "z": [2.0]})
    assert len(ingot.open(place)) == 8


def test_a_column_may_have_the_name_of_an_old_chunk(place: Place) -> None:
    ingot.array(np.arange(9), place, chunks=3, format="zarr2")
    assert "0" in content(place)
    ingot.table({"0": np.arange(7)}, place, overwrite=True)
    assert ingot.open(place)["0"][...].tolist() == list(range(7))


def test_an_array_takes_the_place_of_a_table(place: Place) -> None:
    make(place, nested())
    with pytest.raises(FileExistsError):
        ingot.array(np.arange(7), place, format="bcolz")
    array = ingot.array(np.arange(7), place, format="bcolz", overwrite=True)
    assert array[...].tolist() == ingot.open(place)[...].tolist() == list(range(7))
    assert {key.partition("/")[0] for key in content(place)} <= {
        "__attrs__",
        ".lock",
        "meta",
        "data",
    }


def test_shards_are_not_replaced(tmp_path: Path) -> None:
    make(tmp_path / "t")
    shard(tmp_path / "t", 3, tmp_path / "cut")
    before = content(tmp_path / "cut")
    with pytest.raises(UnsupportedError, match="by itself"):
        ingot.table({"a": [1]}, tmp_path / "cut", overwrite=True)
    assert content(tmp_path / "cut") == before

"""The changes of tables: rows and columns that come, go and become others."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest

import ingot
from ingot.containers.appender import Appender
from ingot.errors import (
    ColumnError,
    IngotError,
    SelectionError,
    UnsafeError,
)
from tests.storage import Place, Unlocked, content
from tests.tables import ROWS, assert_holds, data, joined, make, without


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


def test_appending_what_does_not_fit_changes_nothing(place: Place) -> None:
    table = make(place, {"a": np.array([1], "i1"), "s": np.array([b"abc"]), "t": np.array(["é"])})
    before = content(place)
    good = {"a": [1], "s": [b"x"], "t": ["y"]}
    for wrong in (
        {"a": [300]},
        {"a": [1.5]},
        {"a": ["1"]},
        {"a": [None, "1"]},
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


def test_iterators_of_rows_and_of_blocks_are_appended_by_one_commit(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingot.containers.ingest._STREAM_ROWS", 4)
    table = make(place, {"a": np.zeros(0, "i4"), "b": np.zeros(0, "U3")})

    def rows() -> Iterator[Any]:
        for number in range(6):
            yield (number, f"r{number}") if number % 2 else {"b": f"r{number}", "a": number}
        yield np.array([(6, "r6"), (7, "r7")], [("a", "i4"), ("b", "U3")])
        yield pyarrow.record_batch({"a": [8], "b": ["r8"]})
        yield (9, "r9")

    table.append(rows())
    right = {"a": np.arange(10, dtype="i4"), "b": np.array([f"r{n}" for n in range(10)], "U3")}
    assert_holds(table, right)
    table.append(iter([]))
    assert_holds(table, right)

    def failing() -> Iterator[Any]:
        yield from [(number, "x") for number in range(9)]
        raise ZeroDivisionError("no more rows")

    before = content(place)
    with pytest.raises(ZeroDivisionError):
        table.append(failing())
    with pytest.raises(ValueError, match="row 1 does not have one value"):
        table.append(iter([(1, "x"), (2, "y", 3)]))
    with pytest.raises(ValueError, match="cannot hold"):
        table.append(iter([(number, "x") for number in range(9)] + [(1.5, "x")]))
    assert content(place) == before
    assert_holds(table, right)


def test_a_single_row_that_is_no_list_of_rows_is_named(place: Place) -> None:
    table = make(place, {"a": np.zeros(0, "i4"), "b": np.zeros(0, "U3")})
    with pytest.raises(ValueError, match="row 0 is 1, and not a row of a, b; rows are given as a"):
        table.append((1, "x"))
    assert len(table) == 0


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


def add_and_interrupt(add: Appender, rows: int) -> None:
    """Add rows in the block of an appender, and end the block by Ctrl-C."""
    with add:
        for number in range(rows):
            add((number,))
        raise KeyboardInterrupt


def test_an_error_in_the_block_of_an_appender_says_that_rows_are_stored(place: Place) -> None:
    table = make(place, {"a": np.zeros(1)})
    with pytest.raises(KeyboardInterrupt) as raised:
        add_and_interrupt(table.appender(), 2)
    assert raised.value.__notes__ == ["the rows that waited in the appender are stored: 2"]
    assert table["a"][...].tolist() == [0, 0, 1]


def test_an_error_in_the_block_of_an_empty_appender_has_no_note(place: Place) -> None:
    table = make(place, {"a": np.zeros(1)})
    with pytest.raises(KeyboardInterrupt) as raised:
        add_and_interrupt(table.appender(rows=1), 1)
    assert not hasattr(raised.value, "__notes__")


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


def test_values_are_evaluated_before_the_lock_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = ingot.table({"a": [1, 2], "b": [1.5, 2.5]}, path)
    given = [Unlocked(path, [3, 4]), Unlocked(path, [3.5, 4.5]), Unlocked(path, [7, 8])]
    table.append({"a": given[0], "b": given[1]})
    table.update("a > 2", {"a": given[2]})
    assert all(each.evaluated for each in given)
    assert table["a"][:].tolist() == [1, 2, 7, 8]
    assert table["b"][:].tolist() == [1.5, 2.5, 3.5, 4.5]


def test_a_stream_of_rows_is_read_once_when_another_writer_comes_first(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "t"
    table, other = ingot.table({"a": [1, 2]}, path), ingot.open(path, "r+")

    class Stream:
        reads = 0

        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            self.reads += 1
            other.append({"a": [3]})
            return pyarrow.table({"a": [4, 5]}).__arrow_c_stream__(requested_schema)

    stream = Stream()
    table.append(stream)
    assert stream.reads == 1
    assert table["a"][:].tolist() == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", [".lock", ".commit", "a.", "a..b", ".g-2f81-a"])
def test_names_with_empty_parts_are_refused(name: str) -> None:
    table = ingot.table({"a": [1, 2]})
    with pytest.raises(ValueError, match="cannot be the name of a column"):
        table.add_column(name, [3, 4])
    assert table.names == ("a",)


@pytest.mark.parametrize("name", [".lock/x", ".g-x-y/z", "x/../y", "", "..", "a\0b"])
def test_hostile_names_are_refused(name: str) -> None:
    table = ingot.table({"a": [1, 2]})
    with pytest.raises(IngotError, match="column"):
        table.add_column(name, [3, 4])
    with pytest.raises(IngotError, match="column"):
        ingot.table({name: [3, 4]})
    with pytest.raises(IngotError, match="column"):
        table.rename_column("a", name)
    assert table.names == ("a",)


ODD_NAMES = [
    *(
        "km/h",
        "a\\b",
        "tab\t",
        "two\nlines",
        "AUX",
        "trail ",
        "ä/ö",
        "C:",
        "a:b",
        "/",
        "x" * 100 + "/",
    ),
    # These have had folders of their own always.
    *("100%", "%", "%41", " lead", "*?<>|", "'", '"', "#", "- x", "{a: b}", "null", "1", "~", "`"),
]


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_of_columns(format: str, name: str, tmp_path: Path) -> None:
    columns = {name: [1, None, 3], "n": ["x", None, "z"], "in": {name: [1.5, 2.5, 3.5]}}
    ingot.table(columns, tmp_path / "t", format=format)
    assert not [each for each in os.listdir(tmp_path) if each != "t"]
    table = ingot.open(tmp_path / "t", "r+")
    assert table.names == (name, "n", "in")
    assert table[name][:].tolist() == [1, None, 3]
    table.append({name: [4], "n": ["w"], "in": {name: [4.5]}})
    assert table.update(slice(1, 2), {name: 2}) == 1
    assert table.delete([0]) == 1
    table.rename_column(name, f"{name}/2")
    table.add_column(name, [7, 8, 9], position=0)
    table.drop_column(f"{name}/2")
    table.shard(2, tmp_path / "s")
    other = "blsk" if format == "bcolz" else "bcolz"
    for found in (
        ingot.open(tmp_path / "t"),
        ingot.open(tmp_path / "s"),
        ingot.convert(tmp_path / "t", tmp_path / "c", format=other),
    ):
        assert found.names == (name, "n", "in")
        assert found[name][:].tolist() == [7, 8, 9]
        assert found[f"in.{name}"][:].tolist() == [2.5, 3.5, 4.5]
        assert found["n"][:].tolist() == [None, "z", "w"]
    assert ingot.check(tmp_path / "t").ok


def test_two_names_have_not_one_folder() -> None:
    table = ingot.table({"km/h": [1], "%km%2F": [2]})
    with pytest.raises(UnsafeError, match="one folder"):
        table.add_column("%km%2Fh", [3])
    with pytest.raises(UnsafeError, match="one folder"):
        ingot.table({"%km%2Fh": [2], "km/h": [1]})


def test_bcolz_opens_the_columns_with_plain_names(tmp_path: Path) -> None:
    ingot.table({"km/h": [1], "n": [2]}, tmp_path / "t")
    names = json.loads((tmp_path / "t" / "__rootdirs__").read_text())
    assert names == {"names": ["n"], "x_names": ["km/h", "n"]}


def test_a_group_of_zarr_has_no_such_members(tmp_path: Path) -> None:
    ingot.table({"km/h": [1]}, tmp_path / "t")
    with pytest.raises(ingot.errors.UnsupportedError, match="no member of the name 'km/h'"):
        ingot.convert(tmp_path / "t", tmp_path / "z", format="zarr3")
    assert not (tmp_path / "z").exists()


@pytest.mark.parametrize("names", [("a", "a.b"), ("a.b", "a")])
def test_a_column_is_no_nested_table_as_well(names: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="nested table"):
        ingot.table({name: [1, 2] for name in names})


class Writing:
    """A key of rows that writes to the table itself when it is evaluated."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.table.attrs["seen"] = True
        return np.array([0, 2])


@pytest.mark.parametrize("operation", ["update", "delete"])
def test_keys_of_rows_are_evaluated_before_the_lock_is_taken(
    tmp_path: Path, operation: str
) -> None:
    """A key may use another handle of the same table."""
    table = ingot.table({"a": [1, 2, 3]}, tmp_path / "t")
    other = ingot.open(ingot.stores.LocalStore(tmp_path / "t", writable=True, wait=0.1), "r+")
    key = Writing(other)
    if operation == "update":
        assert table.update(key, {"a": 7}) == 2
        assert table["a"][:].tolist() == [7, 2, 7]
    else:
        assert table.delete(key) == 2
        assert table["a"][:].tolist() == [2]
    assert table.attrs["seen"]


def test_new_rows_hold_the_fill_values_of_their_columns(place: Place) -> None:
    columns = {"a": np.array([1]), "b": np.array([1.5]), "c": np.array(["x"])}
    table = ingot.table(columns, place, format="bcolz", fill={"a": 7, "c": "y"})
    table.resize(2)
    assert table[1].tolist() == (7, 0.0, "y")
    with pytest.raises(ValueError, match="fill names the column 'd'"):
        ingot.table(columns, fill={"d": 1})


def test_updates_and_deletions_have_parameters() -> None:
    table = ingot.table({"a": [1, 2, 3, 4], "b": [0.0] * 4})
    assert table.update("a > @low", {"b": 1.0}, params={"low": 2}) == 2
    assert table["b"][:].tolist() == [0, 0, 1, 1]
    assert table.delete("a in @some", params={"some": [1, 4]}) == 2
    assert table["a"][:].tolist() == [2, 3]
    with pytest.raises(SelectionError, match="no variable 'low'"):
        table.delete("a > @low")
    with pytest.raises(TypeError, match="given as text"):
        table.update([0], {"b": 1.0}, params={"low": 2})

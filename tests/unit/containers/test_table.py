"""The table, in memory and on disk, on both kernels."""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from numpy.typing import NDArray

import ingot
from ingot.errors import (
    ColumnError,
    ReadOnlyError,
    SelectionError,
)
from tests.storage import Place, content
from tests.tables import ROWS, assert_holds, data, joined, make

NewPlace = Callable[[], Place]


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
        with pytest.raises(ColumnError, match="there is no column 'nope'; the columns are i, f, d"):
            ask("nope")
    with pytest.raises(KeyError):
        table["nope"]
    with pytest.raises(ColumnError):
        table.where("i > 1")["nope"]


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
    # Text of other libraries has any length.
    texts = columns["t"].astype(np.dtypes.StringDType(na_object=None))
    assert_holds(ingot.table(frame), {**columns, "t": texts})
    assert_holds(ingot.table(arrow), {**columns, "t": texts})
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
    assert "ratio" in text
    html = ingot.table({"a": ["<b>"]})._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html

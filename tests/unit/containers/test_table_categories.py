"""Categories, zones, decimals and indexes in tables: through every change, in both formats."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, LimitError
from ingot.stores import MemoryStore
from tests.storage import Place

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

FORMATS = ["bcolz", "blsk"]


def frame() -> Any:
    return pandas.DataFrame(
        {
            "city": pandas.Categorical(["b", None, "a", "b"], categories=["a", "b", "unused"]),
            "size": pandas.Categorical(
                ["low", "high", None, "low"], categories=["low", "mid", "high"], ordered=True
            ),
            "at": pandas.date_range("2024-03-30", periods=4, tz="Europe/Oslo", freq="12h"),
            "n": [1, 2, 3, 4],
        }
    )


def check(table: ingot.Table, expected: Any) -> None:
    pandas.testing.assert_frame_equal(table.to_pandas(), expected, check_freq=False)


@pytest.fixture(params=FORMATS)
def table(request: Any, place: Place) -> ingot.Table:
    return ingot.table(frame(), place, format=request.param, chunks=3)


def test_descriptions_say_what_columns_mean(table: ingot.Table) -> None:
    text = str(table.info)
    assert "category of 3 words" in text
    assert "ordered category of 3 words" in text
    assert "time in Europe/Oslo" in text
    (city, *_) = table.info.to_dict()["columns"]
    assert city["meaning"] == "category of 3 words"
    assert city["dtype"] == "int32"


def test_a_frame_comes_back(table: ingot.Table, place: Place) -> None:
    check(table, frame())
    check(ingot.open(place), frame())
    assert dict(table.attrs) == {}
    assert table["at"].dtype == np.dtype("M8[us]")
    assert table["at"][0] == np.datetime64("2024-03-29T23:00")


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("city == 'b'", [0, 3]),
        ("city != 'b'", [2]),
        ("not city == 'b'", [1, 2]),
        ("city in ('a', 'z')", [2]),
        ("isnull(city)", [1]),
        ("city == 'unused' or n == 1", [0]),
        ("size < 'high' and n > 1", [3]),
        ("startswith(city, 'b')", [0, 3]),
        ("at < '2024-03-31'", [0, 1, 2]),
    ],
)
def test_rows_are_found_by_words(table: ingot.Table, where: str, rows: list[int]) -> None:
    assert table.where(where).rows().tolist() == rows
    assert table.where(where).count() == len(rows)
    expected = frame().iloc[rows]
    pandas.testing.assert_frame_equal(table.where(where).to_pandas(), expected, check_freq=False)
    assert table.where(where).to_arrow()["n"].to_pylist() == [row + 1 for row in rows]


def test_new_words_come_with_the_rows(table: ingot.Table, place: Place) -> None:
    more = frame()
    more["city"] = pandas.Categorical(["c", "a", None, "c"])
    table.append(more)
    assert table["city"].categories.tolist() == ["a", "b", "unused", "c"]
    expected = pandas.concat([frame(), more], ignore_index=True)
    expected["city"] = expected["city"].astype(table.to_pandas()["city"].dtype)
    check(table, expected)
    check(ingot.open(place), expected)
    assert table.where("city == 'c'").rows().tolist() == [4, 7]


def test_rows_are_appended_in_every_form(table: ingot.Table) -> None:
    at = np.datetime64("2024-01-01T00:00:00", "us")
    table.append([("x", "mid", at, 5), {"city": None, "size": None, "at": at, "n": 6}])
    table.append({"city": np.array(["y"]), "size": ["low"], "at": [None], "n": [7]})
    table.append(frame().iloc[:1])
    table.append(pyarrow.table(frame().iloc[1:2]))
    table.append(pyarrow.table(frame().iloc[2:]).to_reader(max_chunksize=1))
    assert table["city"][4:].tolist() == ["x", None, "y", "b", None, "a", "b"]
    assert table["size"][4:].tolist() == ["mid", None, "low", "low", "high", None, "low"]
    assert table["n"][:].tolist() == [1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": ["huge"]}, "column 'size': 'huge' is none of its ordered words"),
        ({"city": [1]}, "column 'city': item 0 is 1, not text"),
        ({"city": "b"}, "column 'city' is one value"),
    ],
)
def test_a_row_that_does_not_fit_changes_nothing(
    table: ingot.Table, wrong: dict[str, Any], message: str
) -> None:
    row = {"city": ["new"], "size": ["low"], "at": [np.datetime64(0, "us")], "n": [5], **wrong}
    with pytest.raises(ValueError, match=message):
        table.append(row)
    check(table, frame())


def test_words_are_set_by_updates(table: ingot.Table) -> None:
    assert table.update("city == 'b'", {"city": "new", "size": ["mid", None]}) == 2
    assert table.update("isnull(city)", {"city": "a"}) == 1
    table[2] = {"city": None}
    assert table["city"][:].tolist() == ["new", "a", None, "new"]
    assert table["size"][:].tolist() == ["mid", "high", None, None]
    with pytest.raises(ValueError, match="ordered words"):
        table.update("n == 1", {"size": "huge"})


def test_rows_go_and_new_ones_are_null(table: ingot.Table) -> None:
    table.delete("city == 'a'")
    assert table["city"][:].tolist() == ["b", None, "b"]
    table.resize(5)
    assert table["city"][:].tolist() == ["b", None, "b", None, None]
    table.resize(1)
    assert table["city"].categories.tolist() == ["a", "b", "unused"]


def test_columns_carry_their_words(table: ingot.Table, place: Place) -> None:
    table.rename_column("city", "town")
    table.drop_column("size")
    table.add_column("kind", pandas.Series(["u", "v", "u", None], dtype="category"))
    expected = frame().rename(columns={"city": "town"}).drop(columns="size")
    expected["kind"] = pandas.Categorical(["u", "v", "u", None])
    check(ingot.open(place), expected)
    # A new column of an old name has nothing of the old one.
    table.add_column("size", [1, 2, 3, 4])
    assert table["size"][:].tolist() == [1, 2, 3, 4]


def test_transactions_and_snapshots_have_their_words(table: ingot.Table) -> None:
    with table.snapshot():
        assert table["city"][0] == "b"

    def fail() -> None:
        with table.transaction():
            table.update("n == 1", {"city": "new"})
            assert table["city"][0] == "new"
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    check(table, frame())
    with table.transaction():
        table.update("n == 1", {"city": "new"})
        table.append(frame())
    assert table["city"].categories.tolist() == ["a", "b", "unused", "new"]
    assert table["city"][:5].tolist() == ["new", None, "a", "b", "b"]


def test_other_attributes_do_not_touch_the_words(table: ingot.Table, place: Place) -> None:
    table.attrs["units"] = "m"
    assert dict(ingot.open(place).attrs) == {"units": "m"}
    table.attrs.clear()
    check(ingot.open(place), frame())
    with pytest.raises(FormatError, match="x_columns"):
        table.attrs["x_columns"] = {}
    with pytest.raises(FormatError, match="x_columns"):
        ingot.table({"a": [1]}, attrs={"x_columns": {}})


def test_text_becomes_categories_and_back(table: ingot.Table) -> None:
    table.add_column("text", np.array(["p", "q", "p", "p"]))
    table.retype("text", "category")
    assert table["text"].categories.tolist() == ["p", "q"]
    assert table.where("text == 'q'").rows().tolist() == [1]
    table.retype("text", "category")
    table.retype("text", "utf8")
    assert table["text"][:].tolist() == ["p", "q", "p", "p"]
    table.append(frame().assign(text="other"))
    table.retype("n", "category")
    assert table["n"][:4].tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("format", FORMATS)
def test_nested_tables_have_words_too(format: str, tmp_path: Path) -> None:
    kind = pandas.Categorical(["a", "b"])
    columns = {"p": {"kind": kind, "q": {"deep": kind}}, "n": [1, 2]}
    table = ingot.table(columns, tmp_path / "t", format=format)
    assert table["p.kind"][:].tolist() == table["p"]["q"]["deep"][:].tolist() == ["a", "b"]
    table["p"].rename_column("kind", "sort")
    table["p"].update("sort == 'a'", {"q.deep": "new"})
    table["p"]["q"].add_column("more", kind)
    table["p"]["q"].drop_column("more")
    found = ingot.open(tmp_path / "t")
    assert found.where("p.q.deep == 'new'").rows().tolist() == [0]
    assert found["p.sort"].categories.tolist() == ["a", "b"]
    assert set(found._state.notes) == {"p.sort", "p.q.deep"}


@pytest.mark.parametrize("format", FORMATS)
def test_shards_open_with_the_words_of_all(format: str, tmp_path: Path) -> None:
    ingot.table(frame(), format=format, chunks=1).shard(2, tmp_path / "s")
    check(ingot.open(tmp_path / "s"), frame())
    second = ingot.open(tmp_path / "s" / "shard-00001", "r+")
    second.update("city == 'a'", {"city": "new"})
    shards = ingot.open(tmp_path / "s")
    assert shards["city"][:].tolist() == ["b", None, "new", "b"]
    first = ingot.open(tmp_path / "s" / "shard-00000", "r+")
    first.update("city == 'b'", {"city": "other"})
    with pytest.raises(CorruptionError, match="x_columns"):
        ingot.open(tmp_path / "s")


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_conversions_keep_all_of_it(source: str, target: str, tmp_path: Path) -> None:
    ingot.table(frame().set_index("at"), tmp_path / "a", format=source)
    found = ingot.convert(tmp_path / "a", tmp_path / "b", format=target)
    check(found, frame().set_index("at"))


@pytest.mark.parametrize("format", FORMATS)
def test_codes_and_annotations_that_contradict_are_refused(format: str) -> None:
    store = MemoryStore()
    table = ingot.table({"c": pandas.Categorical(["a", "b"])}, store, format=format)
    table["c"].codes[0] = 7
    for use in (table["c"].read, table.to_pandas, table.to_arrow, lambda: table[0]):
        with pytest.raises(CorruptionError, match="the code 7 of 2 words"):
            use()
    assert table.where("c == 'b'").rows().tolist() == [1]


def test_too_many_words_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    many = pandas.Categorical([f"{number:0100}" for number in range(45_000)])
    with pytest.raises(LimitError, match="column 'c'"):
        ingot.table({"c": many}, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "index",
    [
        pandas.Index([1.5, 2.5, 3.5, 4.5], name="x"),
        pandas.Index(["p", "q", "r", "s"], name="x", dtype="string"),
        pandas.RangeIndex(4, name="x"),
        pandas.date_range("2024-01-01", periods=4, name="x", tz="UTC"),
        pandas.date_range("2024-01-01", periods=4),
        pandas.CategoricalIndex(["a", "b", "a", "b"], name="x"),
        pandas.MultiIndex.from_product([[1.5, 2.5], [1, 2]], names=["x", None]),
    ],
    ids=lambda index: type(index).__name__ + str(index.names[0]),
)
def test_indexes_come_back(format: str, index: Any, tmp_path: Path) -> None:
    given = frame().set_index(index)
    table = ingot.table(given, tmp_path / "t", format=format)
    check(table, given)
    table.append(given)
    check(table, pandas.concat([given, given]))
    found = table.where("n > 2").to_pandas()
    both = pandas.concat([given, given])
    pandas.testing.assert_frame_equal(found, both[both["n"] > 2], check_freq=False)
    backed = table.to_pandas(dtype_backend="pyarrow")
    assert backed.index.names == given.index.names


def test_numbers_of_rows_are_no_column() -> None:
    table = ingot.table(frame()[frame()["n"] > 2])
    assert table.names == ("city", "size", "at", "n")
    with pytest.raises(ValueError, match="column 'x' is none of"):
        table.append(frame().set_index(pandas.Index([1.0, 2, 3, 4], name="x")))
    with pytest.raises(ValueError, match="one name"):
        ingot.table(frame().set_index("n").assign(n=1))


def test_times_of_a_zone_stay_in_their_column() -> None:
    table = ingot.table(frame())
    later = pandas.Timestamp("2024-06-01 12:00", tz="America/New_York")
    table.append(frame().iloc[:1].assign(at=pandas.Series([later])))
    assert table.to_pandas()["at"].iloc[-1] == later
    assert str(table.to_pandas()["at"].dtype) == "datetime64[us, Europe/Oslo]"
    plain = ingot.table({"at": np.array(["2024-01-01"], "M8[us]")})
    with pytest.raises(ValueError, match="column 'at' has no time zone"):
        plain.append({"at": frame()["at"]})


@pytest.mark.parametrize("format", FORMATS)
def test_decimals_dates_and_times_are_kept_exactly(format: str) -> None:
    price = [Decimal("1.50"), None, Decimal("-3.25")]
    columns = {
        "price": price,
        "day": [datetime.date(2024, 2, 29), None, datetime.date(1969, 12, 31)],
        "time": [datetime.time(1, 2, 3, 4), None, datetime.time(23)],
    }
    table = ingot.table(columns, format=format)
    assert table["price"][:].tolist() == price
    assert table.to_arrow().to_pydict() == columns
    assert table.to_pandas()["price"].tolist() == price
    assert table.to_pandas()["time"].tolist() == columns["time"]
    table.append([(7, datetime.date(2024, 1, 1), datetime.time(4))])
    table.append({"price": ["8.25"], "day": [None], "time": [np.timedelta64(5, "s")]})
    assert table["price"][3:].tolist() == [Decimal(7), Decimal("8.25")]
    assert table.to_arrow()["time"].to_pylist()[3:] == [datetime.time(4), datetime.time(0, 0, 5)]
    assert table.where("price > 1.49 and price < 7").rows().tolist() == [0]
    assert table.where("time >= '04:00'").rows().tolist() == [2, 3]
    with pytest.raises(ValueError, match="column 'price' of 3 digits"):
        table.append([(Decimal("1000"), None, None)])


@pytest.mark.parametrize("format", FORMATS)
def test_words_of_two_writers_do_not_get_in_each_others_way(format: str, tmp_path: Path) -> None:
    first = ingot.table({"c": pandas.Categorical(["a"])}, tmp_path / "t", format=format)
    second = ingot.open(tmp_path / "t", "r+")
    for number in range(3):
        first.append({"c": [f"first {number}"]})
        second.append({"c": [f"second {number}", "a"]})
        first.update("c == 'a'", {"c": f"set {number}"})
    expected = ["set 0"]
    for number in range(3):
        expected += [f"first {number}", f"second {number}", f"set {number}"]
    assert first["c"][:].tolist() == second["c"][:].tolist() == expected


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_the_table_of_the_tutorial_passes_all_doors(tmp_path: Path, format: str) -> None:
    polars = pytest.importorskip("polars")
    _ = pytest.importorskip("duckdb")
    path = tmp_path / "stations"
    start = {"name": ["Bergen", "Oslo"], "height": [12, 94], "coast": ["west", "south"]}
    table = ingot.table(start, path, format=format)
    table.retype("coast", "category")
    table.append({"name": ["Trondheim", None], "height": [100, None], "coast": ["west", None]})
    table = ingot.open(path)
    expected = {
        "name": ["Bergen", "Oslo", "Trondheim", None],
        "height": [12, 94, 100, None],
        "coast": ["west", "south", "west", None],
    }
    arrow = table.to_arrow()
    assert arrow.to_pydict() == expected
    assert pyarrow.types.is_dictionary(arrow.schema.field("coast").type)
    frame = table.to_pandas()
    assert str(frame["coast"].dtype) == "category"
    plain = frame.astype(object).where(frame.notna(), None)
    assert plain.to_dict("list") == expected
    other = polars.DataFrame(table)
    assert other["coast"].dtype == polars.Categorical
    assert (
        other.with_columns(polars.col("coast").cast(polars.String)).to_dict(as_series=False)
        == expected
    )
    assert table.sql("select name, height, coast from t").to_pydict() == expected
    # What has come out comes in again, and is the same.
    for given in (arrow, frame, other):
        assert ingot.table(given, format=format).to_arrow().to_pydict() == expected

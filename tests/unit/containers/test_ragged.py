"""Columns of variable-length items, by a format for tests that holds them."""

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
from numpy.typing import NDArray

import ingot
from ingot.containers import table_state
from ingot.containers.ingest import arrays_of
from ingot.containers.ragged import Ragged
from ingot.engine import ragged as engine
from ingot.errors import ReadOnlyError, SelectionError, UnsupportedError
from ingot.formats.registry import register, unregister
from ingot.ragged_array import RaggedArray
from ingot.stores import MemoryStore
from tests.contracts.toy.table import ENTRY
from tests.storage import content

WORDS: list[Any] = ["ape", None, "", "bée", "日本"]
NULLABLE = np.dtypes.StringDType(na_object=None)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    """Register the format for one test."""
    register(ENTRY)
    yield
    unregister("toytable")


def made(columns: Any, **settings: Any) -> ingot.Table:
    return ingot.table(columns, MemoryStore(), format="toytable", chunks=2, **settings)


def plain(items: Any) -> list[Any]:
    return [each.tolist() if isinstance(each, np.ndarray) else each for each in items]


def test_a_column_is_read_by_keys_of_numpy() -> None:
    column = made({"word": WORDS})["word"]
    assert isinstance(column, Ragged)
    expected = np.array(WORDS, object)
    for key in (
        ...,
        slice(1, 4),
        slice(None, None, -1),
        [4, 0, -1],
        np.array([True] * 3 + [False] * 2),
    ):
        found = column[key]
        assert found.dtype == NULLABLE
        assert found.tolist() == expected[key].tolist()
    assert [column[0], column[-1], column[np.int64(1)]] == ["ape", "日本", None]
    assert (len(column), column.shape, column.kind, column.dtype) == (5, (5,), "utf8", NULLABLE)
    assert list(column) == np.asarray(column).tolist() == WORDS
    assert np.asarray(column, object).tolist() == WORDS
    with pytest.raises(ValueError, match="only by a copy"):
        np.asarray(column, copy=False)
    assert repr(column) == "<ingot.Ragged of 5 utf8; toytable in memory, r+>"
    for wrong in (5, -6, [5], [[0]], None, True, (0, 1), "x", 1.5):
        with pytest.raises((SelectionError, IndexError)):
            column[wrong]
    column.close()
    assert repr(column) == "<ingot.Ragged, closed>"
    with pytest.raises(ValueError, match="closed"):
        len(column)


def test_items_are_assigned() -> None:
    table = made({"word": WORDS, "rows": [[1], [2, 3], None, [], [4]], "json": [{}] * 5})
    word, rows, json = table["word"], table["rows"], table["json"]
    word[1] = "two"
    word[-2:] = ["x" * 100, None]
    word[[0, 2]] = "same"
    assert word[:].tolist() == ["same", "two", "same", "x" * 100, None]
    rows[0] = [7, 8]
    rows[2:] = [9]
    assert plain(rows[:]) == [[7, 8], [2, 3], [9], [9], [9]]
    assert rows.kind == np.dtype("i8")
    rows[1:3] = [None, [5]]
    rows[3:] = [[], np.array([6])]
    assert plain(rows) == [[7, 8], None, [5], [], [6]]
    json[0] = [1, {"a": None}]
    json[1:3] = {"b": 2}
    json[3:] = [None, "text"]
    assert list(json) == [[1, {"a": None}], {"b": 2}, {"b": 2}, None, "text"]
    before = content(table._handle.store)  # type: ignore[arg-type]
    for column, key, value in (
        (word, 0, 1),
        (word, slice(2), ["a", b"b"]),
        (word, slice(2), ["a"]),
        (word, 9, "x"),
        (rows, 0, [0.5]),
        (rows, 0, "a"),
        (rows, 0, 5),
        (json, 0, object()),
    ):
        with pytest.raises((ValueError, IndexError)):
            column[key] = value
    assert content(table._handle.store) == before  # type: ignore[arg-type]


def test_items_are_assigned_from_other_libraries() -> None:
    table = made({"word": ["a", "b"], "rows": [[1], [2, 3]], "json": [{}, {}]})
    given = {
        "word": [None, "c"],
        "rows": [[], [4]],
        "json": [[1], None],
    }
    arrow = made({name: RaggedArray.of(given[name], table[name].kind) for name in given}).to_arrow()
    for columns in (
        arrow.to_pydict() | {"json": given["json"]},
        {name: arrow[name] for name in given},
        {name: pandas.Series(given[name], dtype=object) for name in given},
        {name: iter(given[name]) for name in given},
    ):
        table.update(slice(None), {"word": "x", "rows": [0], "json": {"y": 1}})
        table.update(slice(None), columns)
        assert {name: plain(table[name]) for name in given} == given
        for name, values in given.items():
            table[name][:] = pandas.Series(values, dtype=object)
            assert plain(table[name]) == values


def test_a_column_becomes_a_column_of_another_table() -> None:
    table = made({"word": WORDS, "json": RaggedArray.of(["text", None, 1, [], {}], "json")})
    copy = made({"word": table["word"], "json": table["json"]})
    copy.add_column("again", table["json"])
    copy.append({"word": table["word"], "json": table["json"], "again": copy["json"]})
    assert copy["again"].kind == copy["json"].kind == "json"
    assert list(copy["word"]) == WORDS * 2
    assert list(copy["again"]) == list(copy["json"]) == ["text", None, 1, [], {}] * 2
    other = ingot.table({"word": made({"word": ["a", "bb"]})["word"]}, format="bcolz")
    assert (other["word"].kind, list(other["word"])) == ("utf8", ["a", "bb"])


def test_numbers_beside_text_are_not_spelled_as_text() -> None:
    nan = float("nan")
    for mixed, message in (
        ([1, "x"], "item 1 is str, item 0 is int"),
        ([nan, nan, "x"], "item 2 is str, item 0 is float"),
        ([True, b"x"], "item 1 is bytes, item 0 is bool"),
        ([[1, 2], ["x", "y"]], "item 1 is JSON, item 0 is a row of numbers"),
    ):
        with pytest.raises(ValueError, match=f"column 'a': {message}"):
            made({"a": mixed})
    assert list(made({"a": [["x", 1], ["y", 2]]})["a"]) == [["x", 1], ["y", 2]]
    assert made({"a": [["x", "1"], ["y", "2"]]})["a"].shape == (2, 2)


def test_attributes_belong_to_the_column() -> None:
    table = made({"word": WORDS})
    table["word"].attrs["language"] = "en"
    assert dict(table["word"].attrs) == {"language": "en"}
    assert dict(table.attrs) == {}
    with table["word"].transaction():
        table["word"][0] = "a"
        table["word"].attrs["language"] = "de"
    assert (table["word"][0], dict(table["word"].attrs)) == ("a", {"language": "de"})
    with table["word"].snapshot():
        assert table["word"].stored_bytes == table.stored_bytes > 0


def test_what_is_opened_to_read_is_not_changed() -> None:
    store = MemoryStore()
    ingot.table({"word": WORDS}, store, format="toytable")
    column: Any = ingot.open(store)["word"]  # type: ignore[index]
    with pytest.raises(ReadOnlyError):
        column[0] = "x"
    with pytest.raises(ReadOnlyError):
        column.attrs["a"] = 1
    with pytest.raises(ReadOnlyError):
        column.transaction()
    column.refresh()
    with column:
        assert (column.mode, column.format, column.path) == ("r", "toytable", None)


def test_arrays_of_numpy_keep_their_width() -> None:
    table = made(
        {
            "fixed": np.array(["a", "bb"]),
            "bytes": np.array([b"a", b"bb"]),
            "listed": ["a", "bb"],
            "text": np.array(["a", None], NULLABLE),
            "objects": np.array(["a", None], object),
            "square": [[1, 2], [3, 4]],
            "rows": [[1, 2], [3]],
        }
    )
    types = {name: str(dtype) for name, dtype in table.dtypes.items()}
    text = "StringDType(na_object=None)"
    assert types == {
        "fixed": "<U2",
        "bytes": "|S2",
        "listed": text,
        "text": text,
        "objects": text,
        "square": "int64",
        "rows": "object",
    }
    assert table["square"].shape == (2, 2)
    assert table.dtype["listed"] == np.dtype(object)
    assert table[1]["rows"].tolist() == [3]
    assert table.to_numpy()["text"].tolist() == ["a", None]
    table.append([("cc", b"c", "long" * 9, None, "z", [5, 6], None)])
    with pytest.raises(ValueError, match="column 'fixed' of <U2 cannot hold 'ccc'"):
        table.append([("ccc", b"c", "", None, "z", [5, 6], [])])
    assert len(table) == 3
    assert "  listed   utf8, " in repr(table.info)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"a": [4], "b": [1]}, "column 'b': item 0 is 1, not text"),
        ({"a": [4, 5], "b": ["x", b"y"]}, "column 'b': item 1 is b'y', not text"),
        ({"a": [4, 5], "b": ["x"]}, "columns of different lengths: a 2, b 1"),
        ({"a": [4], "b": "x"}, "column 'b' is one value"),
        ({"a": [4], "b": {"c": 1}}, "column 'b' is missing"),
    ],
)
def test_wrong_rows_are_refused_and_nothing_changes(rows: Any, message: str) -> None:
    table = made({"a": [1, 2], "b": ["x", None]})
    with pytest.raises(ValueError, match=message):
        table.append(rows)
    assert table["b"][:].tolist() == ["x", None]
    assert table["a"][:].tolist() == [1, 2]


def test_rows_of_many_forms_are_appended() -> None:
    table = made({"n": [0], "s": ["a"], "j": [{"x": 1}]})
    table.append([{"n": 1, "s": None, "j": None}])
    table.append([(2, "b", [1, 2])])
    table.append({"n": [3], "s": np.array(["c"]), "j": ["text"]})
    table.append(pandas.DataFrame({"n": [4], "s": ["d"], "j": [{"y": 2}]}))
    with table.appender(rows=2) as add:
        for number in (5, 6, 7):
            add(n=number, s=str(number), j={"n": number})
    assert table["s"][:].tolist() == ["a", None, "b", "c", "d", "5", "6", "7"]
    assert list(table["j"])[:5] == [{"x": 1}, None, [1, 2], "text", {"y": 2}]
    assert len(table) == 8


def test_a_column_that_is_replaced_meanwhile_takes_its_own_kind() -> None:
    table = made({"n": [0, 1], "s": ["a", "b"]})

    class Replacing:
        def __iter__(self) -> Iterator[str]:
            if table["s"].kind == "utf8":
                table.drop_column("s")
                table.add_column("s", [b"x", b"y"])
            return iter(["c", "d"])

    column = table["s"]
    with pytest.raises(ValueError, match="item 0 is 'c', not bytes"):
        column[:] = Replacing()
    assert table["s"][:].tolist() == [b"x", b"y"]


def test_a_column_does_not_grow_alone() -> None:
    table = made({"n": [0], "s": ["a"]})
    handle = table_state.items_handle(table._handle, "s")
    with (
        pytest.raises(ValueError, match="rows are added and removed by the table"),
        handle.writing() as turn,
    ):
        turn.commit(*engine.appended(turn.value, RaggedArray.of(["x"])))
    assert (len(table), table["s"][:].tolist()) == (1, ["a"])


def test_a_format_without_such_items_keeps_fixed_widths() -> None:
    items = RaggedArray.of(["a", "bb"])
    found = arrays_of({"a": items, "b": ["x", "yyy"]})
    assert [str(each.dtype) for each in found.values()] == ["<U2", "<U3"]
    table = ingot.table({"a": np.array(["a", "bb"]), "b": np.array(["x", "yyy"])})
    table.append({"a": RaggedArray.of(["c"]), "b": pyarrow.array(["z"])})
    assert table["a"][:].tolist() == ["a", "bb", "c"]
    table.append({"a": RaggedArray.of(["d", None]), "b": ["x", "y"]})
    assert table["a"][:].tolist() == ["a", "bb", "c", "d", None]
    with pytest.raises(UnsupportedError, match="column 'a': list<<i8> has no type in NumPy"):
        arrays_of({"a": RaggedArray.of([[1], [2]])})
    with pytest.raises(ValueError, match="different shapes"):
        arrays_of({"a": [[1], [2, 3]]})


def test_fill_values_and_codecs_of_items() -> None:
    table = made({"a": [1, 2]})
    with pytest.raises(ValueError, match="fill 'x': new items of column 'b' are null"):
        table.add_column("b", ["x", "y"], fill="x")
    with pytest.raises(UnsupportedError, match="without codecs"):
        table.add_column("b", ["x", "y"], codec="zlib:1")
    assert table.names == ("a",)


# Other libraries


ARROW: dict[str, pyarrow.DataType] = {
    "text": pyarrow.large_string(),
    "data": pyarrow.large_binary(),
    "rows": pyarrow.large_list(pyarrow.float32()),
}
VALUES: dict[str, list[Any]] = {
    "text": ["ape", None, "", "bée", "日本"],
    "data": [b"", b"\0", None, b"xyz", b"\xff"],
    "rows": [[0.5], None, [], [1.5, 2.5], [3.5]],
}


def test_arrow_comes_in_and_goes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    given = pyarrow.table({name: pyarrow.array(VALUES[name], ARROW[name]) for name in ARROW})
    # No object is made for an item.
    for name in ("_joined", "to_list", "__iter__"):
        monkeypatch.setattr(RaggedArray, name, None)
    table = made(given)
    assert table.to_arrow().equals(given)
    assert pyarrow.table(table).equals(given)
    table.append(given.slice(1, 3))
    expected = pyarrow.concat_tables([given, given.slice(1, 3)]).combine_chunks()
    assert table.to_arrow().equals(expected)
    assert table.where("text >= 'b'").to_arrow()["text"].to_pylist() == ["bée", "日本", "bée"]
    assert table["text"].to_arrow().to_pylist() == expected["text"].to_pylist()
    assert table["text"][:].tolist() == expected["text"].to_pylist()


def test_arrow_of_all_widths_and_pieces() -> None:
    text, data, rows = VALUES["text"], VALUES["data"], VALUES["rows"]
    pieces = pyarrow.chunked_array([["x", None], [], ["yy"]])
    table = made(
        {
            "string": pyarrow.array(text),
            "view": pyarrow.array(text, pyarrow.string_view()),
            "binary": pyarrow.array(data),
            "sliced": pyarrow.array([*text, *text]).slice(3, 5),
            "list": pyarrow.array(rows),
            "words": pyarrow.array(text).dictionary_encode(),
            "series": pandas.Series(text, dtype="string"),
        }
    )
    found = {name: plain(values) for name, values in table.read().items()}
    assert found == {
        "string": text,
        "view": text,
        "binary": data,
        "sliced": [*text[3:], *text[:3]],
        "list": rows,
        "words": text,
        "series": text,
    }
    assert made({"a": pieces})["a"][:].tolist() == ["x", None, "yy"]
    assert made({"a": pieces.slice(1, 0)})["a"][:].tolist() == []
    nested = pyarrow.array([{"x": "a", "y": 1}, {"x": None, "y": 2}])
    inner = made(pyarrow.table({"n": nested}))
    assert inner["n.x"][:].tolist() == ["a", None]
    with pytest.raises(UnsupportedError, match="column 'a'"):
        made({"a": pyarrow.array([[1, None]])})
    with pytest.raises(UnsupportedError, match="column 'a'"):
        made({"a": pyarrow.array([["x"]])})


def test_json_of_arrow() -> None:
    json = [{"a": [1, None]}, None, "text", [1], 2.5]
    table = made({"j": RaggedArray.of(json, "json")})
    arrow = table.to_arrow()
    assert str(arrow["j"].type.extension_name) == "arrow.json"
    table.append(arrow)
    assert list(table["j"]) == json * 2
    table.append({"j": pyarrow.array(["plain"])})
    assert table["j"][-1] == "plain"


def test_json_of_arrow_is_parsed_when_it_comes_in() -> None:
    def json(*texts: str | None, kind: pyarrow.DataType) -> pyarrow.Array:
        return pyarrow.array(texts, kind).cast(pyarrow.json_(kind))

    for kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
        table = made({"j": json("null", "1", None, " null ", '"null"', kind=kind)})
        assert list(table["j"]) == [None, 1, None, None, "null"]
        assert table.where("isnull(j)").rows().tolist() == [0, 2, 3]
        for wrong in ("{", "NaN", "1e999"):
            with pytest.raises(ingot.errors.CorruptionError, match="column 'j': item 1 is no JSON"):
                table.append({"j": json("1", wrong, kind=kind)})
        assert len(table) == 5


def test_lists_of_arrow_with_wrong_offsets_are_refused() -> None:
    # 2**61 numbers of 8 bytes have 2**64 bytes, which is 0 in 64 bits.
    offsets = pyarrow.py_buffer(np.array([0, 2**61, 3]))
    numbers, kind = pyarrow.array([1, 2, 3]), pyarrow.large_list(pyarrow.int64())
    wrong = pyarrow.LargeListArray.from_buffers(kind, 2, [None, offsets], children=[numbers])
    with pytest.raises(ingot.errors.CorruptionError, match="column 'a': item 1 ends at byte 3"):
        made({"a": wrong})


def test_wrong_text_of_arrow_is_refused() -> None:
    offsets, data = np.array([0, 1, 2], "<i4"), b"a\xff"
    buffers = [None, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data)]
    wrong = pyarrow.Array.from_buffers(pyarrow.string(), 2, buffers)
    with pytest.raises(ingot.errors.CorruptionError, match="item 1 is no text in UTF-8"):
        made({"a": wrong})
    buffers[1] = pyarrow.py_buffer(np.array([0, 2, 1], "<i4"))
    wrong = pyarrow.Array.from_buffers(pyarrow.string(), 2, buffers)
    with pytest.raises(ingot.errors.CorruptionError, match="item 1 ends at byte 1"):
        made({"a": wrong})


@pytest.mark.parametrize("dtype", ["object", "string[python]", "string[pyarrow]", "str"])
def test_pandas_comes_in_and_goes_out(dtype: str) -> None:
    frame = pandas.DataFrame({"text": pandas.Series(VALUES["text"], dtype=dtype)})
    frame["data"] = pandas.Series(VALUES["data"], dtype=object)
    frame["rows"] = pandas.Series(VALUES["rows"], dtype=object)
    frame["json"] = pandas.Series([{"a": 1}, None, {}, {"b": [2]}, None], dtype=object)
    table = made(frame)
    found = table.to_pandas()
    assert found["text"].dtype == "string"
    assert found["text"].isna().tolist() == [text is None for text in VALUES["text"]]
    assert found["text"].fillna("?").tolist() == [
        text or "?" if text is None else text for text in VALUES["text"]
    ]
    assert found["data"].tolist() == VALUES["data"]
    assert plain(found["rows"]) == VALUES["rows"]
    assert found["json"].tolist() == [{"a": 1}, None, {}, {"b": [2]}, None]
    table.append(found)
    assert table["text"][5:].tolist() == VALUES["text"]
    assert list(table["json"])[5:] == [{"a": 1}, None, {}, {"b": [2]}, None]
    view = table.where("isnull(data)").to_pandas()
    assert (view.index.tolist(), view["text"].tolist()) == ([2, 7], ["", ""])


@pytest.mark.parametrize("count", [0, 2])
def test_columns_without_a_value_are_nulls_of_every_kind(count: int) -> None:
    given: dict[str, list[Any]] = {"text": ["a"], "data": [b"b"], "rows": [[1]], "json": [{"c": 1}]}
    columns = {name: RaggedArray.of(items) for name, items in given.items()}
    table = made(columns)
    missing = {name: [None] * count for name in columns}
    table.append(pandas.DataFrame(missing, dtype=object))
    table.append(pyarrow.table({name: pyarrow.nulls(count) for name in columns}))
    table.append(missing)
    for name in columns:
        assert plain(table[name]) == given[name] + [None] * (3 * count)
    if count:
        numbers = made({"n": [1]})
        numbers.append(pyarrow.table({"n": pyarrow.nulls(count)}))
        assert numbers["n"][:].tolist() == [1, None, None]


def test_arrays_of_arrow_in_a_frame() -> None:
    kinds = {"text": pyarrow.string(), "rows": pyarrow.list_(pyarrow.float32())}
    frame = pandas.DataFrame(
        {
            name: pandas.Series(VALUES[name], dtype=pandas.ArrowDtype(kind))
            for name, kind in kinds.items()
        }
    )
    frame["n"] = pandas.Series([1, 2, 3, 4, 5], dtype=pandas.ArrowDtype(pyarrow.int16()))
    table = made(frame)
    assert [plain(table[name]) for name in kinds] == [VALUES[name] for name in kinds]
    assert (table["n"].dtype, table["n"][:].tolist()) == (np.dtype("i2"), [1, 2, 3, 4, 5])
    frame.loc[1, "n"] = None
    assert made(frame)["n"][:].tolist() == [1, None, 3, 4, 5]


def test_json_of_several_kinds_goes_to_pandas_and_back() -> None:
    values = [{"a": 1}, "text", None, [1], 2, True]
    table = made({"j": RaggedArray.of(values, "json")})
    frame = table.to_pandas()
    table.append(frame)
    table.append(frame[3:4])
    assert list(table["j"]) == [*values, *values, [1]]
    assert table.update(slice(3), frame[3:]) == 3
    assert list(table["j"][:3]) == [[1], 2, True]
    for make in (made, ingot.table):
        with pytest.raises(ValueError, match="column 'j': item 1 is text, item 0 is JSON"):
            make(frame)


def test_objects_and_categories_of_pandas() -> None:
    frame = pandas.DataFrame(
        {
            "floats": pandas.Series([1.5, np.nan], dtype=object),
            "square": pandas.Series([[1, 2], [3, 4]], dtype=object),
            "words": pandas.Series(["a", "b"], dtype="category"),
            "numbers": pandas.Series([7, 8], dtype="category"),
        }
    )
    for table in (made(frame), ingot.table(frame)):
        assert str(table["floats"][:]) == "[1.5 nan]"
        assert table["square"][:].tolist() == [[1, 2], [3, 4]]
        assert table["words"][:].tolist() == ["a", "b"]
        assert table["numbers"][:].tolist() == [7, 8]
    missing = pandas.DataFrame({"words": pandas.Series(["a", None], dtype="category")})
    assert made(missing)["words"][:].tolist() == ["a", None]
    assert ingot.table(missing)["words"][:].tolist() == ["a", None]
    numbers = pandas.DataFrame({"n": pandas.Series([1, None], dtype="category")})
    assert made(numbers)["n"][:].tolist() == [1, None]
    assert made(frame[:0])["words"].shape == (0,)


def test_columns_of_fixed_size_of_arrow() -> None:
    square = pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.int32(), 2))
    data = pyarrow.array([b"ab", b"cd"], pyarrow.binary(2))
    nested = pyarrow.array([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}])
    given = pyarrow.table({"square": square, "data": data, "nested": nested})
    for table in (made(given), ingot.table(given)):
        assert table["square"][:].tolist() == [[1, 2], [3, 4]]
        assert table["data"][:].tolist() == [b"ab", b"cd"]
        assert table["nested.y"][:].tolist() == ["a", "b"]
    assert made(pyarrow.table({"n": pyarrow.array([1, None])}))["n"][:].tolist() == [1, None]


def test_without_pyarrow_pandas_gets_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.interop.arrow.is_installed", lambda: False)
    found = made({"text": WORDS}).to_pandas()
    assert found["text"].dtype == "string"
    assert found["text"].tolist() == ["ape", pandas.NA, "", "bée", "日本"]


def test_text_beside_other_columns_in_expressions() -> None:
    fixed: NDArray[Any] = np.array(["ape", "x", "", "bée", "z"])
    table = made({"word": WORDS, "fixed": fixed, "other": [*WORDS[:2], "a", "c", "日本"]})
    assert table.where("word == fixed").rows().tolist() == [0, 2, 3]
    assert table.where("fixed == word").rows().tolist() == [0, 2, 3]
    assert table.where("word < other").rows().tolist() == [2, 3]
    assert table.where("word != other").rows().tolist() == [2, 3]
    data = made({"data": [b"a", None, b"c"], "fixed": np.array([b"a", b"b", b"d"])})
    assert data.where("data == fixed").rows().tolist() == [0]
    assert data.where("fixed > data").rows().tolist() == [2]
    assert table.where("isnull(fixed)").count() == 0
    assert table.update("isnull(word)", {"word": "found"}) == 1
    assert table.delete("startswith(word, 'b') or word == 'found'") == 2
    assert table["word"][:].tolist() == ["ape", "", "日本"]
    with pytest.raises(SelectionError, match="cannot be compared with int64"):
        made({"word": WORDS, "n": np.arange(5)}).where("word == n")


def test_a_table_in_a_folder_is_pickled_by_its_path(tmp_path: Any) -> None:
    table = ingot.table({"word": WORDS}, tmp_path / "t", format="toytable")
    again = pickle.loads(pickle.dumps(table))
    assert again["word"][:].tolist() == WORDS
    assert again["word"].path == f"{tmp_path / 't'}/word"
    with pytest.raises(UnsupportedError, match="part of another dataset are pickled with it"):
        pickle.dumps(table["word"])

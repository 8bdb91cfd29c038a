"""Columns become arrays of Arrow, buffer by buffer; pyarrow and NumPy say what they hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.errors import UnsupportedError
from ingot.interop import arrow
from ingot.nullable_array import NullableArray
from ingot.ragged_array import JSON, UTF8, ItemKind, RaggedArray

pyarrow = pytest.importorskip("pyarrow")

NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i4", ">f8"]


def one(values: Any) -> Any:
    """Return a column as an array of Arrow that pyarrow finds valid."""
    (column,) = arrow.table({"a": values}).columns
    column.validate(full=True)
    return column.chunk(0)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_share_their_memory(dtype: str) -> None:
    values = np.arange(5).astype(dtype)
    made = one(values)
    assert made.type == pyarrow.from_numpy_dtype(values.dtype.newbyteorder("="))
    assert made.to_pylist() == values.tolist()
    if values.dtype.isnative:
        assert made.buffers()[1].address == values.ctypes.data


def test_slices_that_are_not_contiguous() -> None:
    assert one(np.arange(10)[::-3]).to_pylist() == [9, 6, 3, 0]


def test_booleans() -> None:
    values = np.array([True, False, True, True, False, True, False, False, True])
    assert one(values).to_pylist() == values.tolist()


UNITS = {
    "M8[s]": pyarrow.timestamp("s"),
    "M8[ms]": pyarrow.timestamp("ms"),
    "M8[us]": pyarrow.timestamp("us"),
    "M8[ns]": pyarrow.timestamp("ns"),
    "M8[25us]": pyarrow.timestamp("us"),
    "M8[D]": pyarrow.date32(),
    "M8[Y]": pyarrow.timestamp("s"),
    "M8[M]": pyarrow.timestamp("s"),
    "M8[W]": pyarrow.timestamp("s"),
    "M8[h]": pyarrow.timestamp("s"),
    "M8[m]": pyarrow.timestamp("s"),
    "m8[ns]": pyarrow.duration("ns"),
    "m8[us]": pyarrow.duration("us"),
    "m8[s]": pyarrow.duration("s"),
    "m8[D]": pyarrow.duration("s"),
    "m8[W]": pyarrow.duration("s"),
    "m8[h]": pyarrow.duration("s"),
}


@pytest.mark.parametrize("dtype", UNITS)
def test_dates_and_durations(dtype: str) -> None:
    values = np.array([-3, 0, 12, np.iinfo(np.int64).min]).astype(dtype)
    made = one(values)
    assert made.type == UNITS[dtype]
    assert made.null_count == 1
    assert not made[3].is_valid
    # NumPy converts units by itself.
    back = made.slice(0, 3).to_numpy(zero_copy_only=False)
    assert (back == values[:3]).all()


@pytest.mark.parametrize("dtype", ["m8[M]", "m8[Y]", "M8[ps]", "m8[as]", "c8", "c16", "V3", "O"])
def test_types_that_arrow_lacks_are_refused_by_name(dtype: str) -> None:
    with pytest.raises(UnsupportedError, match=r"column 'a': .* has no type in Arrow"):
        arrow.table({"a": np.zeros(2, dtype)})


def test_days_and_years_that_arrow_cannot_count() -> None:
    with pytest.raises(UnsupportedError, match=r"column 'a'.*day"):
        arrow.table({"a": np.array([2**31]).astype("M8[D]")})
    with pytest.raises(UnsupportedError, match=r"column 'a'.*date"):
        arrow.table({"a": np.array([2**60]).astype("M8[Y]")})


TEXTS = [["", "a", "abc"], ["abc", "xyz"], ["é", "", "日本語"], [], [""], ["a\0b", "c"]]


@pytest.mark.parametrize("texts", TEXTS)
def test_text_of_one_width(texts: list[str]) -> None:
    made = one(np.array(texts, "U3"))
    assert made.type == pyarrow.string()
    assert made.to_pylist() == texts
    data = [text.encode() for text in texts]
    made = one(np.array(data, "S9"))
    assert made.type == pyarrow.binary()
    assert made.to_pylist() == data


def test_rows_of_numbers() -> None:
    made = one(np.arange(12).reshape(2, 3, 2))
    assert made.to_pylist() == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]


@pytest.mark.parametrize(
    "values",
    [
        np.arange(3),
        np.array([1.5, 2, 3]),
        np.array(["a", "b", "c"]),
        np.zeros(3, "M8[D]"),
        np.zeros((3, 2)),
    ],
)
def test_nulls_stay_nulls(values: NDArray[Any]) -> None:
    made = one(NullableArray(values, np.array([True, False, True])))
    assert made.is_valid().to_pylist() == [True, False, True]


def test_items_of_every_kind() -> None:
    assert one(RaggedArray.of(["a", None, "bc"])[1:]).to_pylist() == [None, "bc"]
    assert one(RaggedArray.of([[1.5], None, [], [2, 3]])).to_pylist() == [[1.5], None, [], [2, 3]]
    # The rows begin at an odd byte of the buffer.
    odd = RaggedArray(ItemKind("list", np.dtype("<i4")), np.array([1, 9]), np.zeros(9, np.uint8))
    assert one(odd).to_pylist() == [[0, 0]]


def test_the_schema_needs_no_values() -> None:
    layout = {
        "n": (np.dtype("<i4"), ()),
        "square": (np.dtype("f8"), (2,)),
        "text": UTF8,
        "json": JSON,
    }
    made = arrow.schema(layout)
    assert made.names == list(layout)
    assert made.field("n").type == pyarrow.int32()
    assert made.field("square").type == pyarrow.list_(pyarrow.float64(), 2)
    assert made.field("text").type == pyarrow.large_string()


def test_requested_types_are_given() -> None:
    own = arrow.schema({"a": (np.dtype("i8"), ())})
    assert arrow.requested(own, None) is own
    wish = pyarrow.schema({"a": pyarrow.int16()})
    schema = arrow.requested(own, wish.__arrow_c_schema__())
    made = arrow.batch({"a": np.array([1, 2])}, schema)
    assert made.schema == wish
    assert made["a"].to_pylist() == [1, 2]
    with pytest.raises(UnsupportedError, match="column 'a' of int64 is no int16"):
        arrow.batch({"a": np.array([1, 70_000])}, schema)
    other = pyarrow.schema({"b": pyarrow.int16()})
    with pytest.raises(ValueError, match=r"columns b, the stream has a"):
        arrow.requested(own, other.__arrow_c_schema__())


def buffer(values: list[int], dtype: str) -> Any:
    return pyarrow.py_buffer(np.array(values, dtype))


def from_buffers(kind: Any, count: int, *buffers: Any) -> Any:
    return pyarrow.Array.from_buffers(kind, count, [None, *buffers])


LIES = {
    "offsets that go back": lambda: from_buffers(
        pyarrow.string(), 2, buffer([0, 3, 1], "i4"), buffer([97] * 3, "u1")
    ),
    "no text": lambda: from_buffers(
        pyarrow.large_string(), 1, buffer([0, 1], "i8"), buffer([255], "u1")
    ),
    "no text in a struct": lambda: pyarrow.StructArray.from_arrays(
        [from_buffers(pyarrow.string(), 1, buffer([0, 1], "i4"), buffer([255], "u1"))], ["x"]
    ),
    "lists whose offsets go back": lambda: pyarrow.Array.from_buffers(
        pyarrow.list_(pyarrow.int8()),
        3,
        [None, buffer([0, 2, 1, 2], "i4")],
        children=[pyarrow.array([1, 2], pyarrow.int8())],
    ),
    "a code beyond the words": lambda: pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, 7], pyarrow.int8()), pyarrow.array(["a"]), safe=False
    ),
    "a code below zero": lambda: pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0, -1], pyarrow.int8()), pyarrow.array(["a"]), safe=False
    ),
    "a time after midnight": lambda: from_buffers(pyarrow.time32("s"), 1, buffer([86_400], "i4")),
    "a time before midnight": lambda: from_buffers(pyarrow.time64("ns"), 1, buffer([-1], "i8")),
    "a decimal that is too long": lambda: from_buffers(
        pyarrow.decimal128(3, 0), 1, buffer([1000, 0], "i8")
    ),
    "a decimal with wrong upper bits": lambda: from_buffers(
        pyarrow.decimal128(18, 0), 1, buffer([1, 5], "i8")
    ),
}


class Stream:
    """A producer that is no object of pyarrow."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(requested_schema)


def test_a_slice_of_views_without_rows_is_taken() -> None:
    views = pyarrow.array(["a", ""]).cast(pyarrow.string_view())
    empty = pyarrow.array([""]).cast(pyarrow.string_view())[1:]
    column = pyarrow.chunked_array([empty, views, views[2:]])
    assert ingot.table({"a": column})["a"][:].tolist() == ["a", ""]


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("way", ["column", "table", "stream"])
def test_producers_that_lie_are_refused(lie: str, way: str, tmp_path: Path) -> None:
    column = LIES[lie]()
    table = pyarrow.table({"a": column})
    given = {"column": {"a": column}, "table": table, "stream": Stream(table)}[way]
    with pytest.raises(ingot.errors.CorruptionError, match="a"):
        ingot.table(given, tmp_path / "t")
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("way", ["table", "stream"])
def test_a_null_struct_is_refused_and_null_fields_are_kept(way: str, tmp_path: Path) -> None:
    kept = pyarrow.array([{"x": 1, "y": "a"}, {"x": None, "y": None}])
    for column in (pyarrow.array([{"x": 1, "y": "a"}, None]), kept):
        table = pyarrow.table({"n": [1, 2], "a": column})
        given = table if way == "table" else Stream(table)
        if column is kept:
            made = ingot.table(given, tmp_path / "t")
            assert made["a"]["x"][...].tolist() == [1, None]
            continue
        with pytest.raises(ingot.errors.UnsupportedError, match="column 'a': 1 structs are null"):
            ingot.table(given, tmp_path / "t")
        assert not (tmp_path / "t").exists()


def list_of(kind: Any) -> Any:
    return pyarrow.list_(kind)


@pytest.mark.parametrize(
    "kind",
    [
        pyarrow.decimal256(50, 2),
        pyarrow.month_day_nano_interval(),
        pyarrow.map_(pyarrow.string(), pyarrow.int8()),
        pyarrow.dense_union([pyarrow.field("x", pyarrow.int8())]),
        pyarrow.struct([]),
        pyarrow.struct([("x", pyarrow.decimal256(50, 2))]),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.decimal128(5, 2)),
        pyarrow.dictionary(pyarrow.int8(), pyarrow.timestamp("s", "UTC")),
        list_of(pyarrow.struct([("x", pyarrow.int8())])),
        list_of(list_of(pyarrow.int8())),
        list_of(pyarrow.dictionary(pyarrow.int8(), pyarrow.string())),
        list_of(pyarrow.timestamp("s", "UTC")),
        list_of(pyarrow.decimal128(3, 1)),
        pyarrow.list_(pyarrow.string(), 2),
        pyarrow.list_(pyarrow.timestamp("s", "UTC"), 2),
        pyarrow.binary(0),
        pyarrow.opaque(pyarrow.int8(), "a", "b"),
        pyarrow.uuid(),
    ],
    ids=str,
)
def test_types_that_cannot_be_kept_are_refused_before_a_row_is_read(kind: Any) -> None:
    def rows() -> Iterator[Any]:
        raise AssertionError("a row was read")
        yield

    schema = pyarrow.schema([("n", pyarrow.int8()), ("a", kind)])
    reader = pyarrow.RecordBatchReader.from_batches(schema, rows())
    with pytest.raises(ingot.errors.UnsupportedError, match=r"column 'a(\.x)?'"):
        ingot.table(reader)


def test_runs_are_decoded() -> None:
    runs = pyarrow.RunEndEncodedArray.from_arrays([2, 3], ["x", None])
    assert ingot.table({"a": runs}).to_arrow()["a"].to_pylist() == ["x", "x", None]


def test_the_schema_that_is_requested() -> None:
    given = pyarrow.table(
        {
            "c": pyarrow.array(["x", None, "y"]).dictionary_encode(),
            "d": pyarrow.array([1, None, 3], pyarrow.decimal128(5, 2)),
            "z": pyarrow.array([1, None, 3], pyarrow.timestamp("s", "Europe/Oslo")),
        }
    )
    table = ingot.table(given)
    wish = pyarrow.schema(
        {
            "c": pyarrow.string(),
            "d": pyarrow.decimal128(9, 4),
            "z": pyarrow.timestamp("ms", "UTC"),
        }
    )
    found = pyarrow.RecordBatchReader.from_stream(table, schema=wish).read_all()
    assert found.schema == wish
    assert found["c"].to_pylist() == ["x", None, "y"]
    assert found["d"].equals(given["d"].cast(wish.field("d").type))
    assert found["z"].equals(given["z"].cast(wish.field("z").type))


def test_pieces_with_different_words_are_joined() -> None:
    pieces = [
        pyarrow.DictionaryArray.from_arrays(pyarrow.array([1, 0, None]), ["a", "b"]),
        pyarrow.DictionaryArray.from_arrays(pyarrow.array([0, 1, 2, 3]), ["c", None, "b", "c"]),
    ]
    table = ingot.table({"a": pyarrow.chunked_array(pieces)})
    assert table["a"][:].tolist() == ["b", "a", None, "c", None, "b", "c"]
    assert table["a"].categories.tolist() == ["a", "b", "c"]

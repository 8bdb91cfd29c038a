"""Arrow in and out: columns of every type that tables keep, with nulls, in slices and pieces."""

from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.errors import UnsupportedError
from ingot.formats.registry import register, unregister
from tests.contracts.toy.table import ENTRY

pyarrow = pytest.importorskip("pyarrow")

WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=6)


@pytest.fixture(autouse=True, scope="module")
def _toy_format() -> Iterator[None]:
    """Use the format of the contracts whose tables hold variable-length items."""
    register(ENTRY)
    yield
    unregister("toytable")


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1)


def integers_of(digits: int) -> st.SearchStrategy[int]:
    return st.integers(-(10**digits) + 1, 10**digits - 1)


def decimal(count: int, scale: int) -> Decimal:
    return Decimal(count).scaleb(-scale, Context(prec=40))


def counted(low: int, high: int) -> st.SearchStrategy[int]:
    # The smallest integer is NumPy's mark of a missing date.
    return st.integers(low, high)


TYPES: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    **{
        f"{'' if signed else 'u'}int{bits}": (
            getattr(pyarrow, f"{'' if signed else 'u'}int{bits}")(),
            integers(bits, signed=signed),
        )
        for bits in (8, 16, 32, 64)
        for signed in (True, False)
    },
    "float16": (pyarrow.float16(), st.floats(width=16, allow_nan=False).map(np.float16)),
    "float32": (pyarrow.float32(), st.floats(width=32, allow_nan=False)),
    "float64": (pyarrow.float64(), st.floats(allow_nan=False)),
    "bool": (pyarrow.bool_(), st.booleans()),
    "date32": (pyarrow.date32(), st.integers(-(2**31), 2**31 - 1)),
    **{
        f"timestamp[{unit}]": (pyarrow.timestamp(unit), counted(-(2**63) + 1, 2**63 - 1))
        for unit in ("s", "ms", "us", "ns")
    },
    **{
        f"duration[{unit}]": (pyarrow.duration(unit), counted(-(2**63) + 1, 2**63 - 1))
        for unit in ("s", "ms", "us", "ns")
    },
    "string": (pyarrow.string(), WORDS),
    "large_string": (pyarrow.large_string(), WORDS),
    "string_view": (pyarrow.string_view(), WORDS),
    "binary": (pyarrow.binary(), st.binary(max_size=6).filter(lambda each: each[-1:] != b"\0")),
    "dictionary": (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), st.sampled_from("abc")),
    "fixed list": (pyarrow.list_(pyarrow.int16(), 2), st.tuples(*[integers(16, signed=True)] * 2)),
    "fixed bytes": (pyarrow.binary(3), st.binary(min_size=3, max_size=3)),
    "date64": (pyarrow.date64(), st.integers(-(10**6), 10**6).map(lambda day: day * 86_400_000)),
    **{
        f"time[{unit}]": (
            pyarrow.time32(unit) if unit in ("s", "ms") else pyarrow.time64(unit),
            st.integers(0, 86_400 * count - 1),
        )
        for unit, count in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
    },
    **{
        f"zoned[{zone}]": (pyarrow.timestamp(unit, zone), counted(-(2**63) + 1, 2**63 - 1))
        for unit, zone in (("s", "UTC"), ("us", "Europe/Oslo"), ("ns", "+05:30"))
    },
    **{
        f"decimal({precision}, {scale})": (
            pyarrow.decimal128(precision, scale),
            integers_of(precision).map(lambda count, scale=scale: decimal(count, scale)),
        )
        for precision, scale in ((1, 0), (5, 2), (18, 18), (18, -3), (19, 4), (38, 38), (38, 0))
    },
    "dictionary of numbers": (
        pyarrow.dictionary(pyarrow.uint16(), pyarrow.int64()),
        st.integers(-2, 2),
    ),
    "ordered dictionary": (
        pyarrow.dictionary(pyarrow.int64(), pyarrow.large_string(), ordered=True),
        st.sampled_from("ab"),
    ),
}
RAGGED: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "list": (pyarrow.list_(pyarrow.int32()), st.lists(integers(32, signed=True), max_size=4)),
    "large list": (pyarrow.large_list(pyarrow.float64()), st.lists(st.floats(0, 1), max_size=4)),
    "list view": (
        pyarrow.list_view(pyarrow.int8()),
        st.lists(integers(8, signed=True), max_size=3),
    ),
    "binary with NUL": (pyarrow.large_binary(), st.binary(max_size=9)),
    "text with NUL": (pyarrow.string(), st.text(st.characters(exclude_categories=["Cs"]))),
}


@st.composite
def columns(draw: Any, types: dict[str, Any]) -> tuple[Any, str]:
    """Draw a chunked array of any type: pieces, slices of longer arrays, some of no length."""
    name = draw(st.sampled_from(sorted(types)))
    kind, items = types[name]
    pieces = []
    for _ in range(draw(st.integers(0, 3))):
        null = st.none() if draw(st.booleans()) else items
        values = draw(st.lists(items | null, max_size=9))
        whole = pyarrow.array(values, kind)
        start = draw(st.integers(0, len(values)))
        pieces.append(whole.slice(start, draw(st.integers(0, len(values) - start))))
    return pyarrow.chunked_array(pieces, kind), name


def plain(column: Any) -> Any:
    """Return a column in the type that both sides share: one piece, without views."""
    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = pyarrow.chunked_array(
            [each.dictionary_decode() for each in column.chunks], kind.value_type
        )
    names = {"string": "large_string", "string_view": "large_string", "binary": "large_binary"}
    own = str(column.type)
    if own in names:
        column = column.cast(getattr(pyarrow, names[own])())
    if own.startswith(("list", "large_list")) and not pyarrow.types.is_fixed_size_list(kind):
        # By objects: pyarrow's cast gets the last offset of some slices of views wrong.
        return pyarrow.array(column.to_pylist(), pyarrow.large_list(kind.value_type))
    return pyarrow.chunked_array(column.chunks, column.type).combine_chunks()


def check(column: Any, format: str) -> None:
    count = len(column)
    given = pyarrow.table({"n": np.arange(count), "a": column})
    for source in (given, given.to_reader(max_chunksize=4)):
        table = ingot.table(source, format=format, chunks=4)
        found = table.to_arrow()["a"]
        found.validate(full=True)
        assert plain(found).equals(plain(column))
        batches = pyarrow.Table.from_batches(
            list(table.to_batches(batch_rows=3)), pyarrow.schema(table)
        )
        assert plain(batches["a"]).equals(plain(column))
        assert plain(pyarrow.table(table.where("n >= 2"))["a"]).equals(plain(column.slice(2)))
        table.append(given)
        assert plain(table.to_arrow()["a"]).equals(
            plain(pyarrow.chunked_array([*column.chunks, *column.chunks], column.type))
        )


@settings(max_examples=120, deadline=None)
@given(columns(TYPES))
def test_columns_of_fixed_size_come_back(drawn: tuple[Any, str]) -> None:
    check(drawn[0], "bcolz")


@settings(max_examples=120, deadline=None)
@given(columns({**TYPES, **RAGGED}))
def test_columns_of_any_length_come_back(drawn: tuple[Any, str]) -> None:
    check(drawn[0], "toytable")


@pytest.mark.parametrize("kind", [pyarrow.binary(2), pyarrow.large_binary()])
def test_bytes_that_numpy_would_shorten_are_kept(kind: Any) -> None:
    given = pyarrow.table({"a": pyarrow.array([b"a\0", None], kind)})
    assert ingot.table(given, format="toytable").to_arrow()["a"].equals(given["a"])


def test_rows_of_structs_with_missing_fields() -> None:
    rows = pyarrow.array([{"x": 1, "y": "p"}, {"x": None, "y": None}, {"x": 3, "y": None}])
    table = ingot.table(pyarrow.table({"s": rows}), format="toytable")
    assert table.names == ("s",)
    assert table.to_arrow()["s.x"].to_pylist() == [1, None, 3]
    assert table.to_arrow()["s.y"].to_pylist() == ["p", None, None]


def test_rows_of_structs_that_are_missing_are_refused() -> None:
    rows = pyarrow.array([{"x": 1, "y": "p"}, None])
    with pytest.raises(UnsupportedError, match="column 's': 1 structs are null"):
        ingot.table(pyarrow.table({"s": rows}), format="toytable")

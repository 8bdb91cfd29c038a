"""Tables as datasets of pyarrow: the rows of pyarrow's own datasets, and no needless chunk."""

import pickle
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.errors import UnsupportedError
from ingot.interop.arrow_dataset import Node, compared, translated
from ingot.query.expr import spelled
from ingot.ragged_array import UTF8
from ingot.testing.counting import CountingStore

pyarrow = pytest.importorskip("pyarrow")
datasets = pytest.importorskip("pyarrow.dataset")
pc = pytest.importorskip("pyarrow.compute")

ROWS = 300


def columns() -> dict[str, Any]:
    chance = np.random.default_rng(3)
    floats = chance.integers(-3, 4, ROWS) / 10
    floats[::17] = np.nan
    floats[::19] = -0.0
    dates = (np.arange(ROWS) // 4).astype("M8[s]")
    dates[::13] = "NaT"
    return {
        "i": np.arange(ROWS) // 5,
        "u": chance.integers(0, 9, ROWS).astype("u1"),
        "f": floats,
        "h": floats.astype("f4"),
        "b": chance.integers(0, 2, ROWS).astype("?"),
        "d": dates,
        "day": (np.arange(ROWS) // 40).astype("M8[D]"),
        "t": chance.integers(0, 30, ROWS).astype("U2"),
        "s": chance.integers(0, 30, ROWS).astype("S2"),
    }


COLUMNS = columns()
TABLE = ingot.table(COLUMNS, chunks=32)
ARROW = TABLE.to_arrow()

LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-2, 70) | st.sampled_from([2.5, 10.0, -(2**40)]),
    "u": st.integers(0, 9),
    "f": st.sampled_from([0.1, -0.0, 0.0, 0.25, -0.3, float("nan"), float("inf"), 1]),
    "h": st.sampled_from([0.1, 0.0, 0.25, -0.3, 0.2, float("nan")]),
    "b": st.booleans(),
    "d": st.integers(0, 80).map(lambda n: np.datetime64(n * 500, "ms")),
    "day": st.integers(0, 9).map(lambda n: np.datetime64(n, "D")),
    "t": st.integers(0, 31).map(str),
    "s": st.integers(0, 31).map(lambda n: str(n).encode()),
}


@st.composite
def comparisons(draw: Any) -> Any:
    name = draw(st.sampled_from(sorted(LITERALS)))
    field = pc.field(name)
    value = draw(LITERALS[name])
    kind = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in", "null", "mirror", "cast"]))
    if kind == "in" and not isinstance(value, float):
        values = draw(st.lists(LITERALS[name], max_size=4))
        typed = pyarrow.array(np.array(values, COLUMNS[name].dtype))
        return field.isin(typed)
    if kind == "null":
        return draw(st.sampled_from([field.is_null(), field.is_valid(), field != field]))
    scalar = pyarrow.scalar(value.item() if isinstance(value, np.datetime64) else value)
    if kind == "mirror":
        return pc.scalar(scalar) < field
    if kind == "cast" and name == "u":
        return field.cast(pyarrow.int64()) > 3
    operators = {"<": field < scalar, "<=": field <= scalar, ">": field > scalar}
    operators |= {">=": field >= scalar, "==": field == scalar}
    return operators.get(kind, field != scalar)


filters = st.recursive(
    comparisons(),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).flatmap(
            lambda parts: st.sampled_from([reduce(and_, parts), reduce(or_, parts)])
        )
        | inner.map(lambda each: ~each)
        | inner.map(lambda each: pc.if_else(each, each, pyarrow.scalar(None, pyarrow.bool_())))
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(filters)
def test_filters_give_the_rows_that_pyarrow_gives(filter: Any) -> None:
    expected = datasets.dataset(ARROW).to_table(filter=filter, columns=["i", "t"])
    found = TABLE.dataset().to_table(filter=filter, columns=["i", "t"])
    assert found.equals(expected)


def test_what_a_dataset_offers() -> None:
    data = TABLE.dataset()
    assert data.schema == ARROW.schema
    assert data.count_rows() == ROWS
    assert data.count_rows(filter=pc.field("i") < 2) == 10
    assert data.to_table(columns=[]).num_rows == ROWS
    assert data.head(3, columns=["i"])["i"].to_pylist() == [0, 0, 0]
    assert sum(batch.num_rows for batch in data.to_batches(batch_size=50)) == ROWS
    named = data.to_table(columns={"twice": pc.field("i") + pc.field("i")}, filter=~pc.field("b"))
    assert named["twice"].to_pylist() == (2 * COLUMNS["i"][~COLUMNS["b"]]).tolist()
    # Every scan begins anew.
    assert data.to_table().drop(["f", "h"]).equals(ARROW.drop(["f", "h"]))
    view = TABLE.where("i < 9")[["t", "i"]].dataset()
    assert view.schema.names == ["t", "i"]
    assert view.count_rows(filter=pc.field("i") > 7) == 5


def test_what_a_dataset_does_not_offer_raises() -> None:
    data = TABLE.dataset()
    for call in (
        lambda: list(data.get_fragments()),
        lambda: data.filter(pc.field("i") < 2),
        lambda: data.replace_schema(data.schema),
        lambda: data.sort_by("i"),
        lambda: data.join(data, "i"),
        lambda: pickle.dumps(data),
    ):
        with pytest.raises(UnsupportedError):
            call()
    # Code of pyarrow that goes past the scanner is refused, and finds no rows that are not there.
    with pytest.raises(Exception, match="Ingot"):
        datasets.dataset([data, data]).to_table()
    with pytest.raises(Exception, match="absent"):
        data.to_table(columns=["absent"])


def test_unknown_filters_read_all_columns() -> None:
    nested = pc.field("i", "x") == 1
    with pytest.raises(Exception, match="i"):
        TABLE.dataset().to_table(filter=nested)
    by_number = pc.field(0) < 2
    assert TABLE.dataset().to_table(filter=by_number, columns=["i"]).num_rows == 10


def test_chunks_that_cannot_match_are_not_read() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(10_000), "b": np.arange(10_000) % 7}, store, chunks=100)
    data = ingot.open(store).dataset()
    near = (pc.field("a") >= 5000) & (pc.field("a") < 5050) & pc.field("b").isin([1, 2, 3])
    expected = data.to_table(filter=near)
    store.reset()
    assert data.to_table(filter=near, columns=["b"]).equals(expected.select(["b"]))
    assert store.extents <= 8
    store.reset()
    data.to_table(columns=["b"])
    assert 100 <= store.extents < 200


LAYOUT = {
    "f": (np.dtype("f4"), ()),
    "i": (np.dtype("i8"), ()),
    "t": UTF8,
    "l": (np.dtype("i8"), (2,)),
}


@pytest.mark.parametrize(
    ("name", "operator", "value", "text"),
    [
        ("f", ">", 0.1, "(f >= 0.1)"),
        ("f", "<", 0.25, "(f < 0.25)"),
        ("f", "!=", 0.1, None),
        ("i", "<", 2.5, "(i < 2.5)"),
        ("i", "<", 2.0**60, None),
        ("i", "==", "x", None),
        ("i", "==", True, None),
        ("t", "==", "x", "(t == 'x')"),
        ("t", "==", 1, None),
        ("l", "==", 1, None),
        ("i", "==", (), None),
    ],
)
def test_comparisons_that_mean_the_same(name: str, operator: str, value: Any, text: Any) -> None:
    found = compared(name, operator, value, LAYOUT[name])
    assert (None if found is None else spelled(found)) == text


def test_parts_of_an_or_that_are_not_known() -> None:
    known = Node("less", None, (Node("field", "i"), Node("", 3)))
    odd = Node("sqrt", None, (Node("field", "i"),))
    both, either = Node("and_kleene", None, (known, odd)), Node("or_kleene", None, (known, odd))
    assert spelled(translated(both, LAYOUT)) == "(i < 3)"  # type: ignore[arg-type]
    assert translated(either, LAYOUT) is None
    assert translated(Node("invert", None, (both,)), LAYOUT) is None
    inverted = translated(Node("invert", None, (either,)), LAYOUT)
    assert inverted is not None
    assert spelled(inverted) == "not (i < 3)"

"""Tables as lazy frames of polars: the rows that polars finds in memory, and no needless chunk."""

import datetime
from functools import reduce
from operator import and_, or_
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot
from ingot.errors import UnsupportedError
from ingot.testing.counting import CountingStore

polars = pytest.importorskip("polars")
pytest.importorskip("pyarrow")

from polars.testing import assert_frame_equal  # noqa: E402

from ingot.interop.polars import scan  # noqa: E402

ROWS = 300


def columns() -> dict[str, Any]:
    chance = np.random.default_rng(4)
    floats = chance.integers(-3, 4, ROWS) / 10
    floats[::17] = np.nan
    floats[::19] = -0.0
    times = (np.arange(ROWS) // 4).astype("M8[ms]")
    times[::13] = "NaT"
    return {
        "i": np.arange(ROWS) // 5,
        "u": chance.integers(0, 9, ROWS).astype("u1"),
        "f": floats,
        "h": floats.astype("f4"),
        "b": chance.integers(0, 2, ROWS).astype("?"),
        "d": times,
        "day": (np.arange(ROWS) // 40).astype("M8[D]"),
        "t": chance.integers(0, 30, ROWS).astype("U2"),
    }


TABLE = ingot.table(columns(), chunks=32)
FRAME = polars.from_arrow(TABLE.to_arrow())
EPOCH = datetime.datetime(1970, 1, 1)

LITERALS: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-2, 70) | st.just(2.5),
    "u": st.integers(0, 9),
    "f": st.sampled_from([0.1, -0.0, 0.25, -0.3, float("nan"), float("inf"), 1]),
    "h": st.sampled_from([0.1, 0.0, 0.25, -0.3, float("nan")]),
    "b": st.booleans(),
    "d": st.integers(0, 80).map(lambda n: EPOCH + datetime.timedelta(microseconds=n * 500)),
    "day": st.integers(0, 9).map(lambda n: EPOCH.date() + datetime.timedelta(days=n)),
    "t": st.integers(0, 31).map(str),
}


@st.composite
def comparisons(draw: Any) -> Any:
    name = draw(st.sampled_from(sorted(LITERALS)))
    column, value = polars.col(name), draw(LITERALS[name])
    found = {
        "<": column < value,
        "<=": column <= value,
        ">": column > value,
        ">=": column >= value,
        "==": column == value,
        "!=": column != value,
        "in": column.is_in([value]) if name in "iut" and value != 2.5 else column.is_null(),
        "null": column.is_not_null(),
        "between": column.is_between(polars.lit(value), polars.lit(draw(LITERALS[name]))),
        "missing": column.ne_missing(value),
        "mirror": polars.lit(value) < column,
    }
    return found[draw(st.sampled_from(sorted(found)))]


filters = st.recursive(
    comparisons(),
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).flatmap(
            lambda parts: st.sampled_from([reduce(and_, parts), reduce(or_, parts)])
        )
        | inner.map(lambda each: ~each)
    ),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None)
@given(filters)
def test_filters_give_the_rows_that_polars_gives(filter: Any) -> None:
    expected = FRAME.lazy().filter(filter).select("i", "t").collect()
    assert_frame_equal(scan(TABLE).filter(filter).select("i", "t").collect(), expected)


def test_queries_by_path(tmp_path: Path) -> None:
    path = tmp_path / "t.bcolz"
    ingot.table(columns(), path, chunks=50)
    frame = scan(path)
    assert_frame_equal(frame.collect(), FRAME)
    assert frame.collect_schema() == FRAME.schema
    grouped = frame.group_by("u").agg(polars.col("i").sum()).sort("u").collect()
    assert_frame_equal(grouped, FRAME.group_by("u").agg(polars.col("i").sum()).sort("u"))
    assert frame.select(polars.len()).collect().item() == ROWS
    # A path is opened for each query.
    ingot.open(path, "r+").append(columns())
    assert frame.select(polars.len()).collect().item() == 2 * ROWS


def test_limits() -> None:
    frame = scan(TABLE)
    assert_frame_equal(frame.head(70).collect(), FRAME.head(70))
    few = polars.col("i") > 3
    assert_frame_equal(frame.head(40).filter(few).collect(), FRAME.head(40).filter(few))
    assert_frame_equal(frame.filter(few).head(5).collect(), FRAME.filter(few).head(5))
    # The smallest rows: polars joins a hint to the filter that only it understands.
    found = frame.filter(few).sort("i", "u", "t").head(3).select("i").collect()
    assert found["i"].to_list() == [4, 4, 4]
    assert frame.bottom_k(3, by="i").select("i").collect()["i"].to_list() == [0, 0, 0]


def test_views_and_frames() -> None:
    view = TABLE.where("i < 9")[["t", "i"]]
    assert_frame_equal(scan(view).collect(), FRAME.filter(polars.col("i") < 9).select("t", "i"))
    assert_frame_equal(polars.DataFrame(TABLE), FRAME)
    found = polars.from_arrow(view)
    # Some versions of polars make one column of structures of a stream.
    found = found if isinstance(found, polars.DataFrame) else found.struct.unnest()
    assert_frame_equal(found, FRAME.filter(polars.col("i") < 9).select("t", "i"))
    back = ingot.table(FRAME.select("i", "f", "d", "t"))
    assert back["t"][:].tolist() == TABLE["t"][:].tolist()


def test_chunks_that_cannot_match_are_not_read() -> None:
    store = CountingStore()
    ingot.table({"a": np.arange(10_000), "b": np.arange(10_000) % 7}, store, chunks=100)
    # An open table keeps its zone maps.
    frame = scan(ingot.open(store))
    a = polars.col("a")
    near = frame.filter(a.is_between(5000, 5049) & polars.col("b").is_in([1, 2, 3])).select("b")
    first = near.collect()
    store.reset()
    assert_frame_equal(near.collect(), first)
    assert store.extents <= 8
    store.reset()
    assert frame.select("b").collect().height == 10_000
    assert 100 <= store.extents < 200


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="no table"):
        scan(ingot.array([1, 2])._handle.store)

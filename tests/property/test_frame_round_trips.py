"""Data frames of pandas and polars in and out: columns of every type that tables keep."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ingot

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
assert_polars_equal = pytest.importorskip("polars.testing").assert_frame_equal

FORMATS = st.sampled_from(["bcolz", "blsk"])
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TIMES = st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))
ZONES = st.sampled_from(["UTC", "Europe/Oslo", "Asia/Kathmandu"])


@st.composite
def pandas_columns(draw: Any, rows: int) -> Any:
    """Draw a column of pandas, of a type that comes back as it is."""

    def items(values: st.SearchStrategy[Any], *, nulls: bool = True) -> list[Any]:
        each = st.none() | values if nulls else values
        return draw(st.lists(each, min_size=rows, max_size=rows))

    kind = draw(st.sampled_from(["category", "numbers", "zone", "text", "Int16", "boolean", "f8"]))
    if kind in ("category", "numbers"):
        words = WORDS if kind == "category" else st.integers(-5, 5)
        known = draw(st.lists(words, min_size=1, max_size=5, unique=True))
        ordered = draw(st.booleans())
        values = items(st.sampled_from(known))
        return pandas.Categorical(values, categories=known, ordered=ordered)
    if kind == "zone":
        zone = draw(ZONES)
        return (
            pandas.DatetimeIndex(items(TIMES), dtype="datetime64[us]")
            .tz_localize("UTC")
            .tz_convert(zone)
        )
    if kind == "text":
        return pandas.array(items(WORDS), dtype="string")
    if kind == "Int16":
        # Without nulls, such a column comes back as a plain one.
        values = items(st.integers(-(2**15), 2**15 - 1), nulls=False)
        return np.array(values, "i2")
    if kind == "boolean":
        return pandas.array([*items(st.booleans())[:-1], None], dtype="boolean")
    return np.array(items(st.floats(), nulls=False), "f8")


@st.composite
def pandas_frames(draw: Any) -> Any:
    rows = draw(st.integers(1, 8))
    count = draw(st.integers(1, 3))
    made = pandas.DataFrame({f"c{n}": draw(pandas_columns(rows)) for n in range(count)})
    if draw(st.booleans()):
        names = draw(st.sampled_from([["x"], ["x", None], ["x", "y"]]))
        for number in range(len(names)):
            made[f"__{number}"] = draw(pandas_columns(rows))
        made = made.set_index([f"__{number}" for number in range(len(names))])
        made.index.names = names
    return made


@settings(max_examples=120, deadline=None)
@given(pandas_frames(), FORMATS, st.integers(1, 5))
def test_frames_of_pandas_come_back(frame: Any, format: str, chunks: int) -> None:
    table = ingot.table(frame, format=format, chunks=chunks)
    pandas.testing.assert_frame_equal(table.to_pandas(), frame)
    table.append(frame)
    twice = pandas.concat([frame, frame], ignore_index=frame.index.names == [None])
    pandas.testing.assert_frame_equal(table.to_pandas(), twice)


POLARS: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "text": (polars.String, WORDS),
    "categorical": (polars.Categorical, st.sampled_from(["a", "b", "", "long word"])),
    "enum": (polars.Enum(["z", "a", "unused"]), st.sampled_from(["a", "z"])),
    "zoned": (polars.Datetime("us", "Europe/Oslo"), TIMES.map(lambda at: at)),
    "datetime": (polars.Datetime("ms"), TIMES.map(lambda at: at.replace(microsecond=0))),
    "date": (polars.Date, st.dates()),
    "time": (polars.Time, st.times()),
    "duration": (
        polars.Duration("us"),
        st.timedeltas(datetime.timedelta(-(10**5)), datetime.timedelta(10**5)),
    ),
    "decimal": (
        polars.Decimal(12, 3),
        st.integers(-(10**9), 10**9).map(lambda count: Decimal(count).scaleb(-3)),
    ),
    "i8": (polars.Int8, st.integers(-128, 127)),
    "u64": (polars.UInt64, st.integers(0, 2**64 - 1)),
    "f32": (polars.Float32, st.floats(width=32, allow_nan=False)),
    "bool": (polars.Boolean, st.booleans()),
    "binary": (polars.Binary, st.binary(max_size=5)),
    "list": (polars.List(polars.Int32), st.lists(st.integers(-9, 9), max_size=3)),
}


@st.composite
def polars_frames(draw: Any) -> Any:
    rows = draw(st.integers(0, 8))
    columns = {}
    for number in range(draw(st.integers(1, 3))):
        kind, items = POLARS[draw(st.sampled_from(sorted(POLARS)))]
        values = draw(st.lists(st.none() | items, min_size=rows, max_size=rows))
        if kind == polars.Datetime("us", "Europe/Oslo"):
            values = [each and each.replace(tzinfo=datetime.UTC) for each in values]
        columns[f"c{number}"] = polars.Series(values, dtype=kind)
    made = polars.DataFrame(columns)
    start = draw(st.integers(0, rows))
    return made.slice(start) if draw(st.booleans()) else made


@settings(max_examples=120, deadline=None)
@given(polars_frames(), FORMATS, st.integers(1, 5))
def test_frames_of_polars_come_back(frame: Any, format: str, chunks: int) -> None:
    table = ingot.table(frame, format=format, chunks=chunks)
    assert_polars_equal(polars.DataFrame(table), frame)
    table.append(frame)
    assert_polars_equal(polars.DataFrame(table), polars.concat([frame, frame]))

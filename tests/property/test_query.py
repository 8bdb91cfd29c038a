"""Expressions against NumPy itself, and zone maps against the rows they describe."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.errors import SelectionError
from ingot.query.evaluate import matches
from ingot.query.expr import Column, Compare, Literal
from ingot.query.literals import adapt
from ingot.query.parse import parse
from ingot.query.pruning import ColumnZoneMaps, prune

ROWS = 24
TYPES = ["i1", "i4", "i8", "u1", "u8", "f4", "f8", "?"]
VALUES = st.one_of(
    st.integers(-130, 260),
    st.sampled_from([2**31, 2**63, -(2**63), 2**64 - 1]),
    st.floats(width=32, allow_infinity=True, allow_nan=True),
    st.booleans(),
)


@st.composite
def columns(draw):
    """Draw three numeric columns."""
    made = {}
    for name in "abc":
        dtype = np.dtype(draw(st.sampled_from(TYPES)))
        numbers = draw(st.lists(st.integers(-100, 100), min_size=ROWS, max_size=ROWS))
        column = (np.array(numbers) // draw(st.sampled_from([1, 7]))).astype(dtype)
        if dtype.kind == "f":
            column[draw(st.lists(st.integers(0, ROWS - 1), max_size=5))] = np.nan
        made[name] = column
    return made


@st.composite
def numbers(draw, depth=2):
    """Draw the text of a number: a column, a literal, or what two of them make."""
    if depth == 0 or draw(st.booleans()):
        literal = repr(draw(VALUES)).replace("inf", "1e999").replace("nan", "(1e999 - 1e999)")
        return draw(st.sampled_from(["a", "b", "c", f"({literal})"]))
    operator = draw(st.sampled_from(["+", "-", "*", "/", "//", "%"]))
    return f"({draw(numbers(depth - 1))} {operator} {draw(numbers(depth - 1))})"


@st.composite
def conditions(draw, depth=3):
    """Draw the text of a condition; every part of it has a column, so that NumPy computes it."""
    kind = draw(st.integers(0, 4)) if depth else 0
    if kind in (0, 1):
        operator = draw(st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
        sides = [draw(st.sampled_from(["a", "(b * c)"])), draw(numbers())]
        if draw(st.booleans()):
            sides.reverse()
        return f"({sides[0]} {operator} {sides[1]})"
    if kind == 2:
        return f"(~{draw(conditions(depth - 1))})"
    operator = draw(st.sampled_from(["&", "|", "^"]))
    return f"({draw(conditions(depth - 1))} {operator} {draw(conditions(depth - 1))})"


@settings(max_examples=400, deadline=None)
@given(columns(), conditions())
def test_expressions_have_the_results_of_numpy(table, text):
    with np.errstate(all="ignore"):
        try:
            expected = eval(text, {}, table)
        except (TypeError, ArithmeticError, ValueError):
            with pytest.raises(SelectionError):
                matches(parse(text), table, ROWS)
            return
    try:
        found = matches(parse(text), table, ROWS)
    except SelectionError as error:
        # NumPy goes on with Python's integers there.
        assert "64 bits" in str(error)  # noqa: PT017
        return
    np.testing.assert_array_equal(found, expected)


def zones_of(column, length):
    """Describe the chunks of a column, some of them not at all."""
    parts = [column[start : start + length] for start in range(0, len(column), length)]
    none = [part != part for part in parts]
    valid = [part[~empty] for part, empty in zip(parts, none, strict=True)]
    low = np.array([part.min() if len(part) else 0 for part in valid], column.dtype)
    high = np.array([part.max() if len(part) else 0 for part in valid], column.dtype)
    known = np.array([index % 4 != 3 for index in range(len(parts))])
    nulls = np.array([empty.sum() for empty in none], np.int64)
    return ColumnZoneMaps(length, len(column), low, high, nulls, known)


@settings(max_examples=400, deadline=None)
@given(columns(), conditions(), st.integers(0, ROWS), st.data())
def test_pruning_leaves_out_only_rows_that_do_not_match(table, text, rows, data):
    table = {name: np.sort(column[:rows]) for name, column in table.items()}
    lengths = {name: data.draw(st.integers(1, 7)) for name in table}
    described = data.draw(st.sets(st.sampled_from("abc")))
    zones = {name: zones_of(table[name], lengths[name]) for name in described}
    try:
        expression = parse(text)
        expected = matches(expression, table, rows)
    except SelectionError:
        return
    spans = prune(expression, zones, rows)
    possible, certain = np.zeros(rows, bool), np.zeros(rows, bool)
    for start, stop, sure in spans:
        assert not possible[start:stop].any()
        possible[start:stop] = True
        certain[start:stop] = sure
    assert not (expected & ~possible).any()
    assert not (certain & ~expected).any()


def test_zone_maps_prune():
    """The property above holds for one that never leaves out anything; this does not."""
    column = np.arange(100.0)
    column[60:70] = np.nan
    zones = {"a": zones_of(column, 10)}
    for text, starts in {
        "a < 15": [0, 10, 30, 70],
        "(a > 41) & (a <= 49)": [30, 40, 70],
        "a == 55": [30, 50, 70],
        "a in (5, 55)": [0, 30, 50, 70],
        "isnan(a)": [30, 60, 70],
        "not (a >= 20)": [0, 10, 30, 60, 70],
        "a != a": [0, 10, 20, 30, 40, 50, 60, 70, 80, 90],
    }.items():
        spans = prune(parse(text), zones, 100)
        rows = [row for start, stop, _ in spans for row in range(start, stop, 10)]
        assert rows == starts, text
    assert [span for span in prune(parse("a < 15"), zones, 100) if span.certain] == [(0, 10, True)]


UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "7s", "5m"]


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(UNITS),
    st.sampled_from(UNITS),
    st.integers(-(10**6), 10**6),
    st.integers(-(10**6), 10**6),
    st.sampled_from(["<", "<=", "==", "!=", ">", ">="]),
)
def test_dates_of_any_units_compare_exactly(unit, other, item, value, operator):
    column = np.array([item], f"M8[{unit}]")
    literal = np.int64(value).astype(f"M8[{other}]")
    adapted = adapt(operator, literal, column.dtype)
    left, right = seconds(column[0]), seconds(literal)
    expected = eval(f"left {operator} right", {"left": left, "right": right})
    if isinstance(adapted, bool):
        assert adapted == expected
    else:
        found = matches(Compare(adapted[0], Column("a"), Literal(adapted[1])), {"a": column}, 1)
        assert found[0] == expected


def seconds(date):
    """Count the billionths of seconds of a date, in Python's integers."""
    days = int(date.astype("M8[D]").astype(np.int64))
    unit, step = np.datetime_data(date.dtype)
    sizes = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
    if unit in sizes:
        return int(date.astype(np.int64)) * step * sizes[unit]
    return days * 86400 * 10**9

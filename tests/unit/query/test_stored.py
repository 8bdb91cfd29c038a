"""Expressions over words, decimals and times of day become ones over what is stored."""

import pytest

from ingot.errors import SelectionError
from ingot.logical_types import CategoryType, DecimalType, LogicalType, TimeType, words_of
from ingot.query.expr import spelled
from ingot.query.parse import parse
from ingot.query.stored import stored_expression

TYPES: dict[str, LogicalType] = {
    "c": CategoryType(words_of(["b", "a", "ab"])),
    "o": CategoryType(words_of(["low", "mid", "high"]), ordered=True),
    "n": CategoryType(words_of([10, 20])),
    "d": DecimalType(8, 2),
    "w": DecimalType(30, 2),
    "t": TimeType(),
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("x > 1", "x > 1"),
        ("c == 'a'", "c in (1,)"),
        ("'a' == c", "c in (1,)"),
        ("c == 'unknown'", "c in ()"),
        ("c != 'a'", "c in (0, 2)"),
        ("c in ('a', 'b', 'z')", "c in (0, 1)"),
        ("c < 'ab'", "c in (1,)"),
        ("startswith(c, 'a')", "c in (1, 2)"),
        ("isnull(c)", "c == -1"),
        ("not isnull(c)", "not (c == -1)"),
        ("o < 'high'", "o >= 0 and o < 2"),
        ("'mid' <= o", "o >= 0 and o >= 1"),
        ("o == 'mid'", "o in (1,)"),
        ("n > 15", "n in (1,)"),
        ("n + 5 > 20", "n in (1,)"),
        ("d > 1.5", "d > 150"),
        ("d == 1.005", "d in ()"),
        ("d != 1.005", "not isnull(d)"),
        ("d < 1.005", "d <= 100"),
        ("d >= -1.005", "d > -101"),
        ("1.005 > d", "d <= 100"),
        ("d in (1, 2.5, 0.001)", "d in (100, 250)"),
        ("isnull(d)", "isnull(d)"),
        ("isnull(w)", "isnull(w)"),
        ("t > '12:30'", "t > timedelta64(750, 'm')"),
        ("x > 1 and (c == 'a' or d == 2)", "x > 1 and (c in (1,) or d == 200)"),
        ("(c == 'a') & ~(x > 1)", "(c in (1,)) & ~(x > 1)"),
    ],
)
def test_comparisons_are_those_of_stored_values(given: str, expected: str) -> None:
    found = spelled(stored_expression(parse(given), TYPES))
    # The parser has no empty list of values.
    assert found == (f"({expected})" if "in ()" in expected else spelled(parse(expected)))


@pytest.mark.parametrize(
    "text",
    ["c == x", "c + 'a' == 'b'", "d + 1 > 2", "w > 1", "d == 'a'", "d == True", "d < 1e999"],
)
def test_what_has_no_meaning_is_refused(text: str) -> None:
    with pytest.raises(SelectionError):
        stored_expression(parse(text), TYPES)


@pytest.mark.parametrize("text", ["o < 'unknown'", "t > 'noon'", "c > 1", "abs(c) > 1"])
def test_values_of_another_kind_are_refused(text: str) -> None:
    with pytest.raises(SelectionError):
        stored_expression(parse(text), TYPES)

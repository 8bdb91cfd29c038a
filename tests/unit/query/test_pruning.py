"""Which runs of rows zone maps leave: none that matches is left out, none is certain wrongly."""

from typing import Any

import numpy as np
import pytest

from ingot.codecs.zone_maps import zone_map_of
from ingot.query.evaluate import matches
from ingot.query.parse import parse
from ingot.query.pruning import ColumnZoneMaps, Span, prune

NAN = np.nan


def zones(values: Any, chunk: int, *, unknown: tuple[int, ...] = ()) -> ColumnZoneMaps:
    """Return the zone maps of a column, all but those of the chunks that have none."""
    items = np.asarray(values)
    found = [zone_map_of(items[at : at + chunk]) for at in range(0, len(items), chunk)]
    return ColumnZoneMaps(
        chunk,
        len(items),
        np.array([zone.low for zone in found if zone is not None], items.dtype),
        np.array([zone.high for zone in found if zone is not None], items.dtype),
        np.array([zone.nulls for zone in found if zone is not None], np.int64),
        np.array([number not in unknown for number in range(len(found))]),
    )


def spans(text: str, chunk: int = 2, **columns: Any) -> list[tuple[int, int, bool]]:
    """Return the spans of an expression, after holding them against its rows."""
    arrays = {name: np.asarray(values) for name, values in columns.items()}
    count = len(next(iter(arrays.values())))
    found = prune(parse(text), {name: zones(each, chunk) for name, each in arrays.items()}, count)
    rows = matches(parse(text), arrays, count)
    inside = np.zeros(count, np.bool_)
    for span in found:
        inside[span.start : span.stop] = True
        assert not span.certain or rows[span.start : span.stop].all()
    assert not rows[~inside].any()
    return [tuple(span) for span in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a < 3", [(0, 2, True), (2, 4, False)]),
        ("a <= 2", [(0, 2, True), (2, 4, False)]),
        ("3 > a", [(0, 2, True), (2, 4, False)]),
        ("a == 4", [(4, 6, True)]),
        ("a == 2", [(2, 4, False)]),
        ("a != 4", [(0, 4, True)]),
        ("a in (2, 9)", [(2, 4, False)]),
        ("not a < 3", [(2, 4, False), (4, 6, True)]),
        ("~(a < 3)", [(2, 4, False), (4, 6, True)]),
        ("(a > 1) & (a < 4)", [(2, 4, True)]),
        ("(a < 1) | (a > 3)", [(0, 2, False), (4, 6, True)]),
        ("a < 1 or a > 3", [(0, 2, False), (4, 6, True)]),
        ("True", [(0, 6, True)]),
        ("False", []),
        ("(a > 1) & True", [(2, 6, True)]),
        ("(a > 1) | False", [(2, 6, True)]),
        ("a + 1 > 100", [(0, 6, False)]),
    ],
)
def test_runs_are_left_out_or_certain(text: str, expected: list[Any]) -> None:
    assert spans(text, a=[0, 1, 2, 3, 4, 4]) == expected


def test_bits_of_numbers_are_not_conditions() -> None:
    """Bits are inverted and joined, which says nothing of the order of the numbers."""
    one = zones([1, 1, 1, 1], 2)
    for text in ("~a", "a & 2", "a | 0", "(a == 1) & a", "a ^ a", "~(a & 1)", "abs(a) & 1"):
        assert prune(parse(text), {"a": one}, 4) == [Span(0, 4, False)], text
    assert spans("~b", b=[True, True, True, False]) == [(2, 4, False)]
    assert spans("b & True", b=[True, True, False, False]) == [(0, 2, True)]
    assert spans("b & (b | False)", b=[True, True, False, False]) == [(0, 2, True)]


def test_columns_that_have_no_zone_maps_say_nothing() -> None:
    known = zones([0, 1, 2, 3], 2)
    for text in ("b == 1", "b", "~b", "b & (a >= 0)", "b | (a < 0)", "b in (1, 2)", "isnan(b)"):
        assert prune(parse(text), {"a": known}, 4) == [Span(0, 4, False)], text
    assert prune(parse("a > 1 and b == 1"), {"a": known}, 4) == [Span(2, 4, False)]
    assert prune(parse("a > 1"), {}, 4) == [Span(0, 4, False)]
    some = zones([0, 1, 2, 3], 2, unknown=(0,))
    assert prune(parse("a > 1"), {"a": some}, 4) == [Span(0, 2, False), Span(2, 4, True)]


def test_nulls_match_no_comparison_but_inequality() -> None:
    assert spans("f > 0", f=[NAN, NAN, 1.0, NAN, 2.0, 3.0]) == [(2, 4, False), (4, 6, True)]
    assert spans("f != 1", f=[NAN, NAN, 1.0, 1.0]) == [(0, 2, True)]
    assert spans("isnan(f)", f=[NAN, NAN, 1.0, NAN, 2.0, 3.0]) == [(0, 2, True), (2, 4, False)]


def test_the_last_chunk_may_hold_rows_that_do_not_count() -> None:
    """Its zone map counts nulls of rows that were trimmed, so it never proves that all are null."""
    stored = zones([5.0, 6.0, NAN, NAN, 7.0, 8.0], 2)
    last = ColumnZoneMaps(
        2, 5, stored.low, stored.high, np.array([0, 2, 2], np.int64), stored.known
    )
    assert prune(parse("f > 0"), {"f": last}, 5) == [Span(0, 2, True), Span(4, 5, False)]
    whole = ColumnZoneMaps(2, 6, last.low, last.high, last.nulls, last.known)
    assert prune(parse("f > 0"), {"f": whole}, 6) == [Span(0, 2, True)]


def test_runs_lie_in_one_chunk_of_every_column() -> None:
    columns = {"a": zones([0, 1, 2, 3, 4, 5], 2), "b": zones([0, 1, 2, 3, 4, 5], 3)}
    found = prune(parse("(a > 1) & (b < 3)"), columns, 6)
    assert found == [Span(2, 3, True)]
    assert prune(parse("a > 1"), columns, 0) == []


@pytest.mark.parametrize("text", ["a == 'x'", "a < b'x'", "startswith(a, 'x')", "d < 'never'"])
def test_what_raises_when_it_is_evaluated_is_left_to_that(text: str) -> None:
    columns = {"a": zones([0, 1], 2), "d": zones(np.array([0, 1], "M8[D]"), 2)}
    assert prune(parse(text), columns, 2) == [Span(0, 2, False)]


def test_the_number_of_zone_maps_is_that_of_the_chunks() -> None:
    with pytest.raises(ValueError, match="2 zone maps for 5 rows by 2"):
        ColumnZoneMaps(2, 5, *[np.zeros(2)] * 2, np.zeros(2, np.int64), np.ones(2, np.bool_))

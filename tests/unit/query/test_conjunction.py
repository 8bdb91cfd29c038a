"""Tests that ``and`` joins: the answers of NumPy, and few rows read where a test leaves few."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot import native
from ingot.engine import scan
from ingot.query import search
from ingot.query.conjunction import Conjunction
from ingot.query.expr import spelled
from ingot.query.parse import parse

ROWS = 40_000
NUMBERS = np.arange(ROWS)
WORDS = [None if number % 7 == 3 else f"word {number % 50}" for number in range(ROWS)]


@pytest.fixture(scope="module")
def table() -> ingot.Table:
    columns = {"a": NUMBERS % 100, "b": NUMBERS * 0.5, "day": NUMBERS.astype("M8[D]")}
    return ingot.table({**columns, "word": WORDS}, format="bcolz", chunks=4096)


def is_word(word: str) -> NDArray[np.bool_]:
    return np.array([each == word for each in WORDS])


EXPRESSIONS: dict[str, NDArray[np.bool_]] = {
    "(a == 7) & (word == 'word 7')": (NUMBERS % 100 == 7) & is_word("word 7"),
    "word == 'word 7' and a in (7, 57) and b > 9000": (
        is_word("word 7") & np.isin(NUMBERS % 100, [7, 57]) & (NUMBERS > 18_000)
    ),
    "isnull(word) and a == 3": np.array([w is None for w in WORDS]) & (NUMBERS % 100 == 3),
    "(startswith(word, 'word 4') | (a == 1)) & (day < '1980-01-01')": (
        (np.array([(w or "").startswith("word 4") for w in WORDS]) | (NUMBERS % 100 == 1))
        & (NUMBERS.astype("M8[D]") < np.datetime64("1980-01-01"))
    ),
    "not (word == 'word 1') and a == 1 and word != 'word 1'": (
        (NUMBERS % 100 == 1) & ~is_word("word 1") & np.array([w is not None for w in WORDS])
    ),
    "a and word == 'word 0'": (NUMBERS % 100 != 0) & is_word("word 0"),
    "a % 2 == 1 and b * 2 == a": (NUMBERS % 2 == 1) & (NUMBERS < 100),
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_answers_are_those_of_numpy(table: ingot.Table, text: str) -> None:
    expected = np.flatnonzero(EXPRESSIONS[text])
    assert np.array_equal(table.where(text).rows(), expected)
    assert table.where(text).count() == len(expected)


class Source:
    """Columns in memory that note which rows are read of them."""

    def __init__(self, **columns: NDArray[Any]) -> None:
        self.columns = columns
        self.read: list[tuple[str, int]] = []

    def items(self, name: str) -> None:
        return None

    def engine(self, name: str) -> Any:
        raise AssertionError("arithmetic is not pushed down")

    def gather(self, name: str, rows: Any) -> NDArray[Any]:
        self.read.append((name, len(rows)))
        return self.columns[name][np.asarray(rows)]


def test_the_test_that_leaves_fewest_rows_comes_first() -> None:
    source = Source(a=NUMBERS % 2, b=NUMBERS % 1000)
    tests = Conjunction(source, parse("a + 0 == 1 and b + 0 == 5"), source.gather)  # type: ignore[arg-type]
    expected = (NUMBERS % 2 == 1) & (NUMBERS % 1000 == 5)
    assert np.array_equal(tests.mask(range(10_000)), expected[:10_000])
    assert source.read == [("a", 10_000), ("b", 10_000)]
    source.read.clear()
    assert np.array_equal(tests.mask(range(10_000, 20_000)), expected[10_000:20_000])
    assert source.read == [("b", 10_000), ("a", 10)]


def test_nothing_is_read_where_no_row_is_left() -> None:
    source = Source(a=NUMBERS % 2, b=np.full(ROWS, -1))
    tests = Conjunction(source, parse("a + 0 == 1 and b + 0 == 5"), source.gather)  # type: ignore[arg-type]
    tests.mask(range(100))
    source.read.clear()
    assert not tests.mask(range(100, 900)).any()
    assert source.read == [("b", 800)]


def test_tests_of_one_column_read_it_once() -> None:
    source = Source(a=NUMBERS, b=NUMBERS)
    tests = Conjunction(source, parse("a + 0 > 1 and b + 0 > 3 and a + 0 < 9"), source.gather)  # type: ignore[arg-type]
    assert np.flatnonzero(tests.mask(range(50))).tolist() == [4, 5, 6, 7, 8]
    assert source.read == [("a", 50), ("b", 50)]


def test_numbers_that_and_joins_are_no_tests() -> None:
    source = Source(a=NUMBERS % 2, b=NUMBERS)
    expression = parse("a and b + 0 < 4")
    tests = Conjunction(source, expression, source.gather)  # type: ignore[arg-type]
    assert np.flatnonzero(tests.mask(range(50))).tolist() == [1, 3], spelled(expression)


def test_the_kernel_begins_with_the_column_that_leaves_fewest_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = np.arange(1 << 18)
    table = ingot.table({"many": rows % 2, "few": rows % 5000}, format="bcolz")
    asked: list[list[str]] = []
    for name in ("find", "count"):
        found = getattr(scan, name)

        def noting(alternatives: Any, spans: Any, found: Any = found) -> Any:
            asked.extend([engine.chunks.path for engine, _ in each] for each in alternatives)
            return found(alternatives, spans)

        monkeypatch.setattr(scan, name, noting)
    expected = np.flatnonzero((rows % 2 == 1) & np.isin(rows % 5000, (77, 79)))
    for where in ("many == 1 and few in (77, 79)", "many == 1 and (few == 77 or few == 79)"):
        assert np.array_equal(table.where(where).rows(), expected)
        assert table.where(where).count() == len(expected)
    assert all(names == ["few", "many"] for names in asked)
    # Of the second expression, each call has two alternatives.
    assert len(asked) == (6 if native.choice().name == "native" else 0)


def test_search_counts_what_it_finds(table: ingot.Table) -> None:
    state = table._handle.value
    expression = parse("word == 'word 7' and a == 7")
    assert search.count(state, expression) == len(search.find(state, expression))

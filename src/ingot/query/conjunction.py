"""Tests that ``and`` joins: each is made on the rows that those before it leave.

The first block of rows passes through all tests, which shows how many rows each of them leaves. In
the blocks behind it, the test that leaves fewest comes first, and where it leaves few rows, only
these are read of the other columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.query.columns import ColumnSource
from ingot.query.evaluate import matches
from ingot.query.expr import (
    Among,
    Binary,
    Call,
    Combine,
    Compare,
    Expression,
    Unary,
    column_names,
)
from ingot.query.pushdown import compared, sides

__all__ = ["Conjunction"]

Mask: TypeAlias = NDArray[np.bool_]
Gather: TypeAlias = Callable[[str, range | NDArray[np.int64]], Any]
"""A function that reads a column in some rows."""

# Up to one row in so many is read by its number; for more, whole blocks are decoded.
_FEW: Final = 64
# How many times as long a column of text takes to read as one of numbers, about.
_TEXT: Final = 8.0
_BOOLEAN: Final = ("contains", "endswith", "isfinite", "isinf", "isnan", "isnull", "startswith")


@dataclass(slots=True)
class _Test:
    """A part of an expression, and what is known of it."""

    expression: Expression
    names: tuple[str, ...]
    cost: float
    pushed: bool = True
    """Whether the kernel makes the test while it decodes; as long as nothing else is known."""
    rank: float = 0.0
    """What it costs to exclude a row; the smallest comes first."""


class Conjunction:
    """An expression as tests that all rows of a result pass."""

    __slots__ = ("_gather", "_ranked", "_table", "_tests")

    def __init__(self, table: ColumnSource, expression: Expression, gather: Gather) -> None:
        self._table = table
        self._gather = gather
        self._tests = [self._test(each) for each in _by_column(expression)]
        self._ranked = len(self._tests) == 1

    def mask(self, rows: range) -> Mask:
        """Return which rows of a run pass all tests."""
        if not self._ranked:
            return self._ranking(rows)
        first, *others = self._tests
        found = self._whole(first, rows)
        for test in others:
            left = int(np.count_nonzero(found))
            if not left:
                break
            if left * _FEW > len(rows):
                found = found & self._whole(test, rows)
                continue
            numbers = np.flatnonzero(found)
            found = np.zeros(len(rows), np.bool_)
            found[numbers[self._evaluated(test, numbers + rows.start)]] = True
        return found

    def _ranking(self, rows: range) -> Mask:
        """Return which rows pass, and put the tests in the order of what they leave."""
        found = np.ones(len(rows), np.bool_)
        for test in self._tests:
            passed = self._whole(test, rows)
            excluded = len(rows) - int(np.count_nonzero(passed))
            test.rank = test.cost / (excluded + 1)
            found &= passed
        self._tests.sort(key=lambda test: test.rank)
        self._ranked = True
        return found

    def _whole(self, test: _Test, rows: range) -> Mask:
        """Return which of all rows pass a test."""
        marks = compared(self._table, test.expression, rows) if test.pushed else None
        if marks is None:
            test.pushed = False
            marks = self._evaluated(test, rows)
        return marks

    def _evaluated(self, test: _Test, rows: range | NDArray[np.int64]) -> Mask:
        columns = {name: self._gather(name, rows) for name in test.names}
        return matches(test.expression, columns, len(rows))

    def _test(self, expression: Expression) -> _Test:
        names = column_names(expression)
        text = any(self._table.items(name) is not None for name in names)
        return _Test(expression, names, _TEXT if text else 1.0)


def _by_column(expression: Expression) -> list[Expression]:
    """Return the tests that an expression joins by ``and``; those of one column are one test."""
    parts = list(sides(expression))
    if not all(map(_is_boolean, parts)):
        return [expression]
    grouped: dict[tuple[str, ...], list[Expression]] = {}
    for part in parts:
        grouped.setdefault(column_names(part), []).append(part)
    return [each[0] if len(each) == 1 else Combine("and", tuple(each)) for each in grouped.values()]


def _is_boolean(expression: Expression) -> bool:
    """Return whether an expression is true or false in each row, whatever its columns are."""
    if isinstance(expression, Call):
        return expression.function in _BOOLEAN
    if isinstance(expression, Unary):
        return expression.operator == "not" or (
            expression.operator == "~" and _is_boolean(expression.operand)
        )
    if isinstance(expression, Binary):
        return expression.operator in "&|^" and all(
            map(_is_boolean, (expression.left, expression.right))
        )
    return isinstance(expression, Compare | Among | Combine)

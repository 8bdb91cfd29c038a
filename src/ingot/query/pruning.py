"""What the extremes of chunks tell of an expression before any row is read.

Knows for every chunk the least and the greatest item and how many are none at all (NaN, NaT), and
from that whether an expression can be true, and whether it can be false, of a run of rows. Refuses
to guess: of what it does not understand, both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.errors import IngotError
from ingot.query.evaluate import COMPARISONS
from ingot.query.expr import (
    Among,
    Binary,
    Call,
    Column,
    Combine,
    Compare,
    Expression,
    Literal,
    Unary,
)
from ingot.query.literals import MIRRORED, adapt, adapted_values

__all__ = ["Span", "Zones", "survey"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Zones:
    """What is known of the chunks of one column, an item for each.

    `chunk` is the length of a chunk, `rows` that of the column. `low` and `high` leave out items
    that are none; where `nulls` has as many as the chunk has rows there is nothing but such, and
    they mean nothing. Of chunks that are not `known`, nothing is.

    A chunk may hold more rows than count, for the last one that is usual. What is said of all of
    them is true of those that count, but there may be fewer nulls among these.
    """

    chunk: int
    rows: int
    low: NDArray[Any]
    high: NDArray[Any]
    nulls: NDArray[np.int64]
    known: Bools

    def __post_init__(self) -> None:
        if len(self.known) != -(-self.rows // self.chunk):
            raise ValueError(f"{len(self.known)} zone maps for {self.rows} rows by {self.chunk}")

    @property
    def some(self) -> Bools:
        """Whether a chunk can have an item that is not none."""
        found = self.nulls < self.chunk
        if self.rows % self.chunk:
            # How many rows the last chunk holds, nobody says.
            found[-1] = True
        return found


class Span(NamedTuple):
    """Rows of a table, and whether they are known to match, all of them, without a look."""

    start: int
    stop: int
    certain: bool


def survey(expression: Expression, zones: Mapping[str, Zones], rows: int) -> list[Span]:
    """Return the runs of rows of which the expression can be true, in order.

    >>> from ingot.query.parse import parse
    >>> low = np.array([0, 10, 20])
    >>> none = np.zeros(3, np.int64)
    >>> column = Zones(4, 11, low, low + 9, none, none == 0)
    >>> survey(parse("a >= 12"), {"a": column}, 11)
    [Span(start=4, stop=8, certain=False), Span(start=8, stop=11, certain=True)]
    """
    if rows == 0:
        return []
    starts = _segments({column.chunk for column in zones.values()}, rows)
    outlook = _Outlook(zones, starts).of(expression)
    # A run begins where either answer is another than before.
    answers = outlook.true.astype(np.int8) + (outlook.true & ~outlook.false)
    begins = np.flatnonzero(np.diff(answers, prepend=-1))
    edges = np.append(starts[begins], rows).tolist()
    return [
        Span(edges[index], edges[index + 1], answer == 2)
        for index, answer in enumerate(answers[begins].tolist())
        if answer
    ]


def _segments(lengths: set[int], rows: int) -> NDArray[np.int64]:
    """Return where runs of rows begin that lie in one chunk of every column."""
    if not lengths:
        return np.zeros(1, np.int64)
    starts = [np.arange(0, rows, length, dtype=np.int64) for length in lengths]
    return starts[0] if len(starts) == 1 else np.unique(np.concatenate(starts))


class _Answer(NamedTuple):
    """For each run: can the expression be true of a row of it, and can it be false."""

    true: Bools
    false: Bools


class _Outlook:
    """Answers expressions for the runs that begin at `starts`."""

    __slots__ = ("_everything", "_starts", "_zones")

    def __init__(self, zones: Mapping[str, Zones], starts: NDArray[np.int64]) -> None:
        self._zones = zones
        self._starts = starts
        self._everything = np.ones(len(starts), np.bool_)

    def of(self, expression: Expression) -> _Answer:
        try:
            with np.errstate(all="ignore"):
                answer = self._of(expression)
        except (IngotError, TypeError, ValueError, ArithmeticError):
            # Whatever is wrong with it, evaluating it will say so.
            answer = None
        return answer or _Answer(self._everything, self._everything)

    def _of(self, expression: Expression) -> _Answer | None:
        if isinstance(expression, Combine):
            return self._combined(expression.operator, [self.of(e) for e in expression.operands])
        if isinstance(expression, Unary):
            # Of numbers, ~ turns all bits around, and that is another question.
            if expression.operator == "not" or self._is_boolean(expression):
                inner = self.of(expression.operand)
                return _Answer(inner.false, inner.true)
        elif isinstance(expression, Binary):
            if expression.operator in "&|" and self._is_boolean(expression):
                joined = "and" if expression.operator == "&" else "or"
                return self._combined(joined, [self.of(expression.left), self.of(expression.right)])
        elif isinstance(expression, Compare):
            return self._compared(expression)
        elif isinstance(expression, Among):
            return self._among(expression)
        elif isinstance(expression, Call):
            return self._called(expression)
        elif isinstance(expression, Column):
            return self._compared(Compare("==", expression, Literal(True)))
        elif isinstance(expression.value, bool):
            truth = self._everything & expression.value
            return _Answer(truth, ~truth)
        return None

    def _is_boolean(self, expression: Expression) -> bool:
        """Tell whether all that comes out is booleans, so that bits are logic."""
        if isinstance(expression, Compare | Among | Combine):
            return True
        if isinstance(expression, Unary):
            if expression.operator == "not":
                return True
            return expression.operator == "~" and self._is_boolean(expression.operand)
        if isinstance(expression, Binary):
            sides = self._is_boolean(expression.left) and self._is_boolean(expression.right)
            return expression.operator in "&|^" and sides
        if isinstance(expression, Column):
            column = self._zones.get(expression.name)
            return column is not None and column.low.dtype == np.bool_
        if isinstance(expression, Literal):
            return isinstance(expression.value, bool)
        return expression.function != "abs"

    def _combined(self, operator: str, answers: list[_Answer]) -> _Answer:
        every = np.logical_and.reduce
        some = np.logical_or.reduce
        true, false = (every, some) if operator == "and" else (some, every)
        return _Answer(true([each.true for each in answers]), false([a.false for a in answers]))

    def _compared(self, expression: Compare) -> _Answer | None:
        operator, column, value = expression.operator, expression.left, expression.right
        if isinstance(column, Literal):
            operator, column, value = MIRRORED[operator], value, column
        if not isinstance(column, Column) or not isinstance(value, Literal):
            return None
        zones = self._zones.get(column.name)
        if zones is None:
            return None
        adapted = adapt(operator, value.value, zones.low.dtype)
        if isinstance(adapted, bool):
            truth = self._everything & adapted
            return _Answer(truth, ~truth)
        return self._spread(zones, _bounded(zones, *adapted))

    def _among(self, expression: Among) -> _Answer | None:
        operand = expression.operand
        zones = self._zones.get(operand.name) if isinstance(operand, Column) else None
        if zones is None:
            return None
        values = adapted_values(tuple(each.value for each in expression.values), zones.low.dtype)
        reached = np.zeros(len(zones.known), np.bool_)
        for value in values:
            reached |= _bounded(zones, "==", value).true
        return self._spread(zones, _Answer(reached, np.ones(len(reached), np.bool_)))

    def _called(self, expression: Call) -> _Answer | None:
        operand = expression.arguments[0]
        zones = self._zones.get(operand.name) if isinstance(operand, Column) else None
        if zones is None or expression.function != "isnan":
            return None
        return self._spread(zones, _Answer(zones.nulls > 0, zones.some))

    def _spread(self, zones: Zones, answer: _Answer) -> _Answer:
        """Return for runs what is known for chunks."""
        chunks = self._starts // zones.chunk
        unknown = ~zones.known
        return _Answer((answer.true | unknown)[chunks], (answer.false | unknown)[chunks])


def _bounded(zones: Zones, operator: str, value: Any) -> _Answer:
    """Return what a comparison with a value can be, for each chunk."""
    low, high = zones.low, zones.high
    some, nulls = zones.some, zones.nulls > 0
    if operator in ("==", "!="):
        inside = (low <= value) & (high >= value) & some
        only = (low == value) & (high == value)
        # What is none equals nothing, itself included.
        answer = _Answer(inside, nulls | (some & ~only))
        return answer if operator == "==" else _Answer(answer.false, answer.true)
    compare = COMPARISONS[operator]
    nearest, farthest = (low, high) if operator in ("<", "<=") else (high, low)
    return _Answer(compare(nearest, value) & some, nulls | (some & ~compare(farthest, value)))

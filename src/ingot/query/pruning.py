"""Pruning by zone maps: which runs of rows can match an expression, before any row is read.

The zone maps give the smallest and the largest item of every chunk, and its number of nulls (NaN,
NaT). From these follows whether an expression can be true, and whether it can be false, for a row
of a run. For an expression that is not understood, both are assumed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.zone_maps import PREFIX
from ingot.errors import ArgumentError, ArgumentTypeError, IngotError
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

__all__ = ["ColumnZoneMaps", "Span", "prune"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ColumnZoneMaps:
    """The zone maps of one column as arrays, with an item for each chunk.

    `chunk` is the length of a chunk, `rows` that of the column. `low` and `high` ignore NaN and NaT
    (`nulls`), and have no meaning in a chunk that has only these. `known` is false for a chunk
    without a zone map.

    A chunk may hold more rows than the column has; the last one usually does. Bounds of all its
    rows are bounds of the rows that count, but these may have fewer nulls.
    """

    chunk: int
    rows: int
    low: NDArray[Any]
    high: NDArray[Any]
    nulls: NDArray[np.int64]
    known: Bools
    missing: Bools | None = None
    """Whether a chunk may have items that do not exist, whatever is stored in their place."""
    prefixes: bool = False
    """Whether the extremes are the first bytes of variable-length items, padded with zeros."""

    def __post_init__(self) -> None:
        if len(self.known) != -(-self.rows // self.chunk):
            raise ArgumentError(f"{len(self.known)} zone maps for {self.rows} rows by {self.chunk}")

    @property
    def some(self) -> Bools:
        """Whether a chunk can have an item that is not null."""
        found = self.nulls < self.chunk
        if self.rows % self.chunk:
            # The zone map does not say how many rows the last chunk holds.
            found[-1] = True
        return found


class Span(NamedTuple):
    """A run of rows, and whether all of them are certain to match without being read."""

    start: int
    stop: int
    certain: bool


def prune(expression: Expression, zones: Mapping[str, ColumnZoneMaps], rows: int) -> list[Span]:
    """Return the runs of rows for which the expression can be true, in order.

    >>> from ingot.query.parse import parse
    >>> low = np.array([0, 10, 20])
    >>> none = np.zeros(3, np.int64)
    >>> column = ColumnZoneMaps(4, 11, low, low + 9, none, none == 0)
    >>> prune(parse("a >= 12"), {"a": column}, 11)
    [Span(start=4, stop=8, certain=False), Span(start=8, stop=11, certain=True)]
    """
    if rows == 0:
        return []
    starts = _segments({column.chunk for column in zones.values()}, rows)
    possible = _Pruner(zones, starts).possible(expression)
    # 0: no row matches, 1: some may, 2: all do. A run begins where this changes.
    matching = possible.true.astype(np.int8) + (possible.true & ~possible.false)
    begins = np.flatnonzero(np.diff(matching, prepend=-1))
    bounds = np.append(starts[begins], rows).tolist()
    return [
        Span(bounds[index], bounds[index + 1], level == 2)
        for index, level in enumerate(matching[begins].tolist())
        if level
    ]


def _segments(lengths: set[int], rows: int) -> NDArray[np.int64]:
    """Return the starts of the runs of rows that lie in one chunk of every column."""
    if not lengths:
        return np.zeros(1, np.int64)
    starts = [np.arange(0, rows, length, dtype=np.int64) for length in lengths]
    return starts[0] if len(starts) == 1 else np.unique(np.concatenate(starts))


class _Possible(NamedTuple):
    """For each run whether the expression can be true, and whether it can be false, for a row."""

    true: Bools
    false: Bools


class _Pruner:
    """Finds the possible results of expressions for the runs that begin at `starts`."""

    __slots__ = ("_everything", "_starts", "_zones")

    def __init__(self, zones: Mapping[str, ColumnZoneMaps], starts: NDArray[np.int64]) -> None:
        self._zones = zones
        self._starts = starts
        self._everything = np.ones(len(starts), np.bool_)

    def possible(self, expression: Expression) -> _Possible:
        try:
            with np.errstate(all="ignore"):
                found = self._bounded(expression)
        except (IngotError, TypeError, ValueError, ArithmeticError):
            # Evaluating the expression raises the error.
            found = None
        return found or _Possible(self._everything, self._everything)

    def _bounded(self, expression: Expression) -> _Possible | None:
        """Return the possible results; None for an expression that zone maps do not bound."""
        if isinstance(expression, Combine):
            return self._combined(
                expression.operator, [self.possible(e) for e in expression.operands]
            )
        if isinstance(expression, Unary):
            # For numbers ~ inverts the bits, which is not a negation.
            if expression.operator == "not" or self._is_boolean(expression):
                inner = self.possible(expression.operand)
                return _Possible(inner.false, inner.true)
        elif isinstance(expression, Binary):
            if expression.operator in "&|" and self._is_boolean(expression):
                joined = "and" if expression.operator == "&" else "or"
                return self._combined(
                    joined, [self.possible(expression.left), self.possible(expression.right)]
                )
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
            return _Possible(truth, ~truth)
        return None

    def _is_boolean(self, expression: Expression) -> bool:
        """Return whether the result is boolean, so that bitwise operators are logical."""
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

    def _combined(self, operator: str, sides: list[_Possible]) -> _Possible:
        every = np.logical_and.reduce
        some = np.logical_or.reduce
        true, false = (every, some) if operator == "and" else (some, every)
        return _Possible(true([each.true for each in sides]), false([each.false for each in sides]))

    def _compared(self, expression: Compare) -> _Possible | None:
        operator, column, value = expression.operator, expression.left, expression.right
        if isinstance(column, Literal):
            operator, column, value = MIRRORED[operator], value, column
        if not isinstance(column, Column) or not isinstance(value, Literal):
            return None
        zones = self._zones.get(column.name)
        if zones is None:
            return None
        if zones.prefixes:
            reached = _reached(zones, operator, _encoded(value.value))
            return self._spread(zones, _Possible(reached, np.ones(len(reached), np.bool_)))
        adapted = adapt(operator, value.value, zones.low.dtype)
        if isinstance(adapted, bool):
            truth = np.full(len(zones.known), adapted)
            return self._spread(zones, _Possible(truth, ~truth))
        return self._spread(zones, _compare(zones, *adapted))

    def _among(self, expression: Among) -> _Possible | None:
        operand = expression.operand
        zones = self._zones.get(operand.name) if isinstance(operand, Column) else None
        if zones is None:
            return None
        if zones.prefixes:
            wanted = [_encoded(each.value) for each in expression.values]
            every = [_reached(zones, "==", each) for each in wanted]
            found = np.logical_or.reduce(every) if every else np.zeros(len(zones.known), np.bool_)
            return self._spread(zones, _Possible(found, np.ones(len(found), np.bool_)))
        values = adapted_values(tuple(each.value for each in expression.values), zones.low.dtype)
        reached = np.zeros(len(zones.known), np.bool_)
        for value in values:
            reached |= _compare(zones, "==", value).true
        return self._spread(zones, _Possible(reached, np.ones(len(reached), np.bool_)))

    def _called(self, expression: Call) -> _Possible | None:
        operand = expression.arguments[0]
        zones = self._zones.get(operand.name) if isinstance(operand, Column) else None
        if zones is None:
            return None
        if zones.prefixes:
            return self._called_of_items(expression, zones)
        if expression.function == "isnull" and zones.missing is not None:
            dated = zones.low.dtype.kind in "mM"
            found = zones.missing | (zones.nulls > 0) if dated else zones.missing
            return self._spread(zones, _Possible(found, np.ones(len(found), np.bool_)))
        if expression.function != "isnan":
            return None
        return self._spread(zones, _Possible(zones.nulls > 0, zones.some))

    def _called_of_items(self, expression: Call, zones: ColumnZoneMaps) -> _Possible | None:
        if expression.function == "isnull":
            return self._spread(zones, _Possible(zones.nulls > 0, zones.some))
        if expression.function not in ("startswith", "endswith", "contains"):
            return None
        found, value = zones.some, expression.arguments[1]
        if expression.function == "startswith" and isinstance(value, Literal):
            wanted = _encoded(value.value)[: PREFIX.itemsize]
            last = wanted.ljust(PREFIX.itemsize, b"\xff")
            found &= (zones.low <= np.bytes_(last)) & (zones.high >= np.bytes_(wanted))
        return self._spread(zones, _Possible(found, np.ones(len(found), np.bool_)))

    def _spread(self, zones: ColumnZoneMaps, possible: _Possible) -> _Possible:
        """Return for each run what is possible for its chunk."""
        chunks = self._starts // zones.chunk
        unknown = ~zones.known
        false = possible.false | unknown
        if zones.missing is not None:
            # Nothing is true of an item that does not exist.
            false |= zones.missing
        return _Possible((possible.true | unknown)[chunks], false[chunks])


def _encoded(value: Any) -> bytes:
    """Return text or bytes as items are stored; `TypeError` for all else."""
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise ArgumentTypeError(f"{value!r} is neither text nor bytes")
    return value


def _reached(zones: ColumnZoneMaps, operator: str, value: bytes) -> Bools:
    """Return for each chunk whether a comparison with an item can be true.

    Padded prefixes have the order of the items, but items that differ may have equal ones.
    """
    prefix = np.bytes_(value[: PREFIX.itemsize])
    if operator == "==":
        return (zones.low <= prefix) & (zones.high >= prefix) & zones.some
    if operator == "!=":
        return zones.some
    return zones.some & (zones.low <= prefix if operator in ("<", "<=") else zones.high >= prefix)


def _compare(zones: ColumnZoneMaps, operator: str, value: Any) -> _Possible:
    """Return for each chunk the possible results of a comparison with a value."""
    low, high = zones.low, zones.high
    some, nulls = zones.some, zones.nulls > 0
    if operator in ("==", "!="):
        inside = (low <= value) & (high >= value) & some
        only = (low == value) & (high == value)
        # A null equals nothing, itself included.
        equal = _Possible(inside, nulls | (some & ~only))
        return equal if operator == "==" else _Possible(equal.false, equal.true)
    compare = COMPARISONS[operator]
    nearest, farthest = (low, high) if operator in ("<", "<=") else (high, low)
    return _Possible(compare(nearest, value) & some, nulls | (some & ~compare(farthest, value)))

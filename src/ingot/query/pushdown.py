"""Pushdown: comparisons that the kernel makes while it decodes, without a column in memory.

The kernel compares one column with one value, text and bytes also with several, and searches for a
part of them. Expressions that join such tests by ``and``, ``or``, ``not`` and their like are pushed
down; all others are evaluated on columns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.engine.ragged import RaggedEngine
from ingot.engine.scan import Comparison, Condition, comparable, mark
from ingot.query.columns import ColumnSource
from ingot.query.evaluate import ITEM_FUNCTIONS
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
from ingot.query.literals import MIRRORED, adapt, encoded_item
from ingot.ragged_array import ItemTest

__all__ = ["compared", "conditions", "item_of", "sides"]

Mask = NDArray[np.bool_]


def conditions(table: ColumnSource, expression: Expression) -> list[Condition] | None:
    """Return the comparisons that an expression joins by ``and``, by column.

    The result is None if the expression has other parts, or the kernel lacks a comparison.
    """
    tests: dict[str, list[Comparison]] = {}
    for side in sides(expression):
        found = _test(table, side) if isinstance(side, Compare) else None
        if found is None:
            return None
        tests.setdefault(found[0], []).append(found[1])
    return [each for name, tests_of in tests.items() for each in _existing(table, name, tests_of)]


def compared(table: ColumnSource, expression: Expression, rows: range) -> Mask | None:
    """Return for which rows an expression is true; None if the kernel cannot evaluate it."""
    if isinstance(expression, Compare | Among | Call):
        return _all_true(table, (expression,), rows)
    if isinstance(expression, Unary) and expression.operator in ("~", "not"):
        inner = compared(table, expression.operand, rows)
        return None if inner is None else np.logical_not(inner, out=inner)
    word = _word(expression)
    if word == "and":
        return _all_true(table, tuple(sides(expression)), rows)
    if word is not None:
        return _joined(word, (compared(table, side, rows) for side in _parts(expression)))
    return None


def item_of(value: Any, dtype: DType) -> NDArray[Any] | None:
    """Return the item of `dtype` that NumPy compares with in a comparison with a value.

    The result is None if NumPy converts both sides to another type first.

    >>> item_of(0.1, np.dtype("f4")), item_of(300, np.dtype("u1")), item_of(0.5, np.dtype("i4"))
    (array(0.1, dtype=float32), None, None)
    """
    kind = dtype.kind
    if isinstance(value, np.datetime64 | np.timedelta64):
        # Both have the same unit already.
        return np.array(value, dtype) if value.dtype == dtype else None
    if kind == "b":
        return np.array(value) if isinstance(value, bool) else None
    if kind in "iu" and isinstance(value, int):
        limits = np.iinfo(dtype)
        return np.array(value, dtype) if limits.min <= value <= limits.max else None
    if kind == "f" and isinstance(value, int | float):
        with np.errstate(all="ignore"):
            return np.array(float(value), dtype)
    return None


_WORDS = {"&": "and", "|": "or", "^": "xor"}
_JOINS: dict[str, Callable[..., Mask]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def _word(expression: Expression) -> str | None:
    """Return the word that joins the parts of an expression; None if it has no parts."""
    if isinstance(expression, Combine):
        return expression.operator
    return _WORDS.get(expression.operator) if isinstance(expression, Binary) else None


def _parts(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Combine):
        return expression.operands
    return (expression.left, expression.right) if isinstance(expression, Binary) else ()


def sides(expression: Expression) -> Iterator[Expression]:
    """Yield the expressions that an expression joins by ``and``."""
    if _word(expression) != "and":
        yield expression
        return
    for part in _parts(expression):
        yield from sides(part)


def _all_true(table: ColumnSource, expressions: Sequence[Expression], rows: range) -> Mask | None:
    """Return for which rows all are true; a column is decoded once for all its comparisons."""
    tests: dict[str, list[Comparison]] = {}
    item_tests: dict[str, list[ItemTest]] = {}
    others: list[Expression] = []
    for expression in expressions:
        of_items = _item_test(table, expression)
        if of_items is not None:
            item_tests.setdefault(of_items[0], []).append(of_items[1])
        elif isinstance(expression, Compare):
            found = _test(table, expression)
            if found is None:
                return None
            tests.setdefault(found[0], []).append(found[1])
        elif isinstance(expression, Among | Call):
            return None
        else:
            others.append(expression)
    rest = (compared(table, each, rows) for each in others)
    asked = (each for name, tests_of in tests.items() for each in _existing(table, name, tests_of))
    # Text comes last: it takes longest to decode.
    items = (_items(table, name).mark(rows, tests_of) for name, tests_of in item_tests.items())
    return _joined("and", chain(rest, (mark(each, rows) for each in asked), items))


def _items(table: ColumnSource, name: str) -> RaggedEngine:
    items = table.items(name)
    assert items is not None, "a test of items is one of a column that has them"
    return items


def _item_test(table: ColumnSource, expression: Expression) -> tuple[str, ItemTest] | None:
    """Return a column of text or bytes and its test; None for all other expressions."""
    name = ""
    operand: Expression | None = None
    arguments: tuple[Expression, ...] = ()
    if isinstance(expression, Compare):
        name, operand, arguments = expression.operator, expression.left, (expression.right,)
        if isinstance(operand, Literal):
            name, operand, arguments = MIRRORED[name], expression.right, (operand,)
    elif isinstance(expression, Among):
        name, operand, arguments = "==", expression.operand, expression.values
    elif isinstance(expression, Call) and expression.function in (*ITEM_FUNCTIONS, "isnull"):
        name, operand, *rest = expression.function, *expression.arguments
        arguments = tuple(rest)
    if not isinstance(operand, Column):
        return None
    items = table.items(operand.name)
    values = [each.value for each in arguments if isinstance(each, Literal)]
    if items is None or len(values) < len(arguments):
        return None
    kind = items.packs.schema.kind
    return operand.name, ItemTest(name, tuple(encoded_item(kind, each) for each in values))


def _existing(table: ColumnSource, name: str, tests: Sequence[Comparison]) -> Iterator[Condition]:
    """Yield the comparisons of a column, and that its items exist where it has nulls."""
    yield table.engine(name), tests
    validity = table.validity(name)
    if validity is not None:
        yield validity, [("==", np.array(True))]


def _joined(word: str, masks: Iterable[Mask | None]) -> Mask | None:
    result: Mask | None = None
    for mask in masks:
        if mask is None:
            return None
        result = mask if result is None else _JOINS[word](result, mask, out=result)
        if word == "and" and not result.any():
            # The rest cannot make a row true, and the kernel can evaluate it: that was checked.
            return result
    return result


def _test(table: ColumnSource, expression: Compare) -> tuple[str, Comparison] | None:
    """Return a column and its comparison; None if the kernel cannot make it."""
    operator, column, value = expression.operator, expression.left, expression.right
    if isinstance(column, Literal):
        operator, column, value = MIRRORED[operator], value, column
    if not isinstance(column, Column) or not isinstance(value, Literal):
        return None
    if table.items(column.name) is not None:
        return None
    engine = table.engine(column.name)
    dtype = engine.chunks.schema.dtype
    adapted = adapt(operator, value.value, dtype)
    if isinstance(adapted, bool):
        return None
    item = item_of(adapted[1], dtype)
    if item is None or not comparable(engine):
        return None
    validity = table.validity(column.name)
    if validity is not None and not comparable(validity):
        return None
    return column.name, (adapted[0], item)

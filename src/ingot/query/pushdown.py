"""Pushdown: comparisons that the kernel makes while it decodes, without a column in memory.

The kernel compares one column with one value or with several, and searches for a part of text and
bytes. Expressions that join such tests by ``and``, ``or``, ``not`` and their like are pushed down;
all others are evaluated on columns.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.engine.ragged import RaggedEngine
from ingot.engine.scan import Alternative, Comparison, Condition, comparable, mark
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
from ingot.query.literals import MIRRORED, adapt, adapted_values, encoded_item
from ingot.ragged_array import ItemTest

__all__ = ["alternatives", "compared", "item_of", "sides"]

Mask = NDArray[np.bool_]

# With more, the columns are decoded too often; each of them is decoded once for a mask.
_MOST_ALTERNATIVES: Final = 4


def alternatives(table: ColumnSource, expression: Expression) -> list[Alternative] | None:
    """Return the conditions of which an expression wants all of one alternative to hold.

    ``or`` joins alternatives, ``and`` joins conditions. The result is None if the expression has
    other parts, if the kernel lacks a comparison, or if there are too many alternatives.
    """
    found = _alternatives(expression)
    if found is None:
        return None
    asked = [_conditions(table, each) for each in found]
    return None if None in asked else [each for each in asked if each is not None]


def _alternatives(expression: Expression) -> list[list[Expression]] | None:
    """Return the tests of each alternative; None for too many alternatives."""
    word = _word(expression)
    if word == "or":
        inner = [_alternatives(each) for each in _parts(expression)]
        found = [each for side in inner for each in side or ()]
    elif word == "and":
        inner = [_alternatives(each) for each in _parts(expression)]
        found = [list(chain(*each)) for each in product(*(side or () for side in inner))]
    else:
        return [[expression]]
    return None if None in inner or len(found) > _MOST_ALTERNATIVES else found


def _conditions(table: ColumnSource, expressions: Iterable[Expression]) -> Alternative | None:
    """Return tests that all hold, by column; None if the kernel lacks one of them."""
    tests: dict[str, list[Comparison]] = {}
    nulls: list[Condition] = []
    for each in expressions:
        null = _null_test(table, each)
        if null is not None:
            nulls.append(null)
            continue
        found = _test(table, each) if isinstance(each, Compare | Among) else None
        if found is None:
            return None
        tests.setdefault(found[0], []).append(found[1])
    asked = (_existing(table, name, tests_of) for name, tests_of in tests.items())
    return [*nulls, *chain.from_iterable(asked)]


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
    tests: list[Expression] = []
    item_tests: dict[str, list[ItemTest]] = {}
    others: list[Expression] = []
    for expression in expressions:
        of_items = _item_test(table, expression)
        if of_items is not None:
            item_tests.setdefault(of_items[0], []).append(of_items[1])
        elif isinstance(expression, Compare | Among | Call):
            tests.append(expression)
        else:
            others.append(expression)
    asked = _conditions(table, tests)
    if asked is None:
        return None
    rest = (compared(table, each, rows) for each in others)
    # Text comes last: it takes longest to decode.
    items = (_items(table, name).mark(rows, tests_of) for name, tests_of in item_tests.items())
    return _joined("and", chain(rest, (mark(each, rows) for each in asked), items))


def _items(table: ColumnSource, name: str) -> RaggedEngine:
    items = table.items(name)
    assert items is not None, "a test of items is one of a column that has them"
    return items


def _item_test(table: ColumnSource, expression: Expression) -> tuple[str, ItemTest] | None:
    """Return a column of text or bytes and its test; None for all other expressions."""
    if isinstance(expression, Compare | Among):
        name, operand, arguments = _sides(expression)
    elif isinstance(expression, Call) and expression.function in (*ITEM_FUNCTIONS, "isnull"):
        name, operand, *rest = expression.function, *expression.arguments
        arguments = tuple(rest)
    else:
        return None
    if not isinstance(operand, Column):
        return None
    items = table.items(operand.name)
    values = [each.value for each in arguments if isinstance(each, Literal)]
    if items is None or len(values) < len(arguments):
        return None
    kind = items.packs.schema.kind
    return operand.name, ItemTest(name, tuple(encoded_item(kind, each) for each in values))


def _null_test(table: ColumnSource, expression: Expression) -> Condition | None:
    """Return the test of which items of a column exist, for ``isnull`` and its negation.

    Of times, NaT is null as well; of text, a test of the items says it. None for both.
    """
    null = True
    if isinstance(expression, Unary) and expression.operator in ("not", "~"):
        null, expression = False, expression.operand
    if not isinstance(expression, Call) or expression.function != "isnull":
        return None
    (column,) = expression.arguments
    if not isinstance(column, Column) or table.items(column.name) is not None:
        return None
    validity = table.validity(column.name)
    if validity is None or table.engine(column.name).chunks.schema.dtype.kind in "mM":
        return None
    return (validity, [("==", np.array(not null))]) if comparable(validity) else None


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


def _test(table: ColumnSource, expression: Compare | Among) -> tuple[str, Comparison] | None:
    """Return a column and its comparison; None if the kernel cannot make it."""
    operator, column, values = _sides(expression)
    literals = [each.value for each in values if isinstance(each, Literal)]
    if not isinstance(column, Column) or len(literals) < len(values):
        return None
    if table.items(column.name) is not None:
        return None
    engine, validity = table.engine(column.name), table.validity(column.name)
    if not comparable(engine) or (validity is not None and not comparable(validity)):
        return None
    dtype = engine.chunks.schema.dtype
    if isinstance(expression, Among):
        items = _items_among(literals, dtype)
        return None if items is None else (column.name, ("==", items))
    adapted = adapt(operator, literals[0], dtype)
    if isinstance(adapted, bool):
        return None
    item = item_of(adapted[1], dtype)
    return None if item is None else (column.name, (adapted[0], item))


def _sides(expression: Compare | Among) -> tuple[str, Expression, tuple[Expression, ...]]:
    """Return the operator, what is compared, and what with."""
    if isinstance(expression, Among):
        return "==", expression.operand, expression.values
    if isinstance(expression.left, Literal):
        return MIRRORED[expression.operator], expression.right, (expression.left,)
    return expression.operator, expression.left, (expression.right,)


def _items_among(values: Sequence[Any], dtype: DType) -> NDArray[Any] | None:
    """Return the items that values are equal to, ascending; None if NumPy compares otherwise."""
    items = [item_of(each, dtype) for each in adapted_values(tuple(values), dtype)]
    if any(each is None for each in items):
        return None
    # Neither NaN nor NaT equals anything.
    found: NDArray[Any] = np.unique(np.array([each for each in items if each == each], dtype))
    return found

"""Expressions over columns with a logical type, as expressions over what is stored.

A comparison of categories with a word becomes one of their codes, a comparison of decimals with a
number one of scaled integers. So zone maps and the kernel work on them as on other integers.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np

from ingot.errors import SelectionError
from ingot.logical_types import CategoryType, DecimalType, LogicalType, TimeType
from ingot.query.evaluate import matches
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
    column_names,
    spelled,
)
from ingot.query.literals import MIRRORED
from ingot.ragged_array import from_text

__all__ = ["stored_expression"]

Types = Mapping[str, LogicalType]


def stored_expression(expression: Expression, types: Types) -> Expression:
    """Return the expression over stored values that is true for the same rows.

    >>> from ingot.logical_types import words_of
    >>> from ingot.query.parse import parse
    >>> types = {"city": CategoryType(words_of(["Bergen", "Oslo"])), "price": DecimalType(8, 2)}
    >>> spelled(stored_expression(parse("city == 'Oslo' and price < 9.5"), types))
    '((city in (1,)) and (price < 950))'
    """
    coded = {
        name: kind
        for name, kind in types.items()
        if isinstance(kind, CategoryType | DecimalType | TimeType)
    }
    if not coded or not any(name in coded for name in column_names(expression)):
        return expression
    return _stored(expression, coded)


def _stored(expression: Expression, types: Types) -> Expression:
    if isinstance(expression, Combine):
        parts = tuple(_stored(each, types) for each in expression.operands)
        return Combine(expression.operator, parts)
    if isinstance(expression, Unary) and expression.operator in ("not", "~"):
        return Unary(expression.operator, _stored(expression.operand, types))
    if isinstance(expression, Binary) and expression.operator in ("&", "|", "^"):
        sides = _stored(expression.left, types), _stored(expression.right, types)
        return Binary(expression.operator, *sides)
    names = [name for name in column_names(expression) if name in types]
    if not names:
        return expression
    kind = types[names[0]]
    found = None
    if len(column_names(expression)) == 1:
        if isinstance(kind, CategoryType):
            found = _of_categories(expression, Column(names[0]), kind)
        elif isinstance(kind, DecimalType):
            found = _of_decimals(expression, Column(names[0]), kind)
        else:
            found = _of_times(expression)
    if found is None:
        raise SelectionError(
            f"{spelled(expression)}: column {names[0]!r} is only compared with values"
        )
    return found


def _of_categories(expression: Expression, column: Column, kind: CategoryType) -> Expression | None:
    if expression == Call("isnull", (column,)):
        return Compare("==", column, Literal(-1))
    if not isinstance(expression, Compare | Among | Call):
        return None
    if kind.ordered and (found := _of_ordered(expression, column, kind)) is not None:
        return found
    # What is true of a word is true of all items that have it.
    words: Any = from_text(kind.words) if kind.is_text else kind.words
    true = matches(expression, {column.name: words}, len(kind.words))
    return Among(column, tuple(map(Literal, np.flatnonzero(true).tolist())))


def _sides(expression: Expression, column: Column) -> tuple[str, Literal] | None:
    """Return the operator and the value of a comparison of a column with a value, else None."""
    if not isinstance(expression, Compare):
        return None
    operator, left, right = expression.operator, expression.left, expression.right
    if right == column:
        operator, left, right = MIRRORED[operator], right, left
    return (operator, right) if left == column and isinstance(right, Literal) else None


def _of_ordered(expression: Expression, column: Column, kind: CategoryType) -> Expression | None:
    """Return a comparison by the order of words; None for one that does not need the order."""
    operator, value = _sides(expression, column) or ("==", None)
    if value is None or operator in ("==", "!="):
        return None
    code = kind.codes.get(value.value)
    if code is None:
        raise SelectionError(f"{spelled(expression)}: {value.value!r} is none of the ordered words")
    compared = Compare(operator, column, Literal(code))
    return Combine("and", (Compare(">=", column, Literal(0)), compared))


def _of_decimals(expression: Expression, column: Column, kind: DecimalType) -> Expression | None:
    if expression == Call("isnull", (column,)):
        return expression
    if not kind.is_short:
        return None
    if isinstance(expression, Among) and expression.operand == column:
        scaled = [_scaled(each.value, kind, expression) for each in expression.values]
        whole = [int(each) for each in scaled if each == each.to_integral_value()]
        return Among(column, tuple(map(Literal, whole)))
    sides = _sides(expression, column)
    if sides is None:
        return None
    operator, value = sides
    count = _scaled(value.value, kind, expression)
    floor = int(count.to_integral_value("ROUND_FLOOR"))
    if count == floor:
        return Compare(operator, column, Literal(floor))
    if operator == "==":
        return Among(column, ())
    if operator == "!=":
        return Unary("not", Call("isnull", (column,)))
    return Compare("<=" if operator in ("<", "<=") else ">", column, Literal(floor))


def _scaled(value: Any, kind: DecimalType, expression: Expression) -> Decimal:
    """Return a number as a count of the last digit; a float is the number that it is spelled as."""
    number = isinstance(value, int | float | Decimal | np.integer | np.floating)
    if isinstance(value, bool) or not number or not np.isfinite(float(value)):
        raise SelectionError(f"{spelled(expression)}: decimals cannot be compared with {value!r}")
    return Decimal(str(value)).scaleb(kind.scale)


def _of_times(expression: Expression) -> Expression | None:
    """Return a comparison of times of day, in which text such as '12:30' is a time."""
    if isinstance(expression, Compare):
        return Compare(expression.operator, _as_time(expression.left), _as_time(expression.right))
    if isinstance(expression, Among):
        return Among(expression.operand, tuple(map(_as_time, expression.values)))
    return expression


def _as_time(expression: Any) -> Any:
    if not isinstance(expression, Literal) or not isinstance(expression.value, str):
        return expression
    try:
        return Literal(
            np.datetime64(f"1970-01-01T{expression.value}") - np.datetime64("1970-01-01")
        )
    except ValueError:
        raise SelectionError(f"{expression.value!r} is no time of day") from None

"""Expressions over the columns of a table, as values: the nodes of the tree, and its text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

__all__ = [
    "Among",
    "Binary",
    "Call",
    "Column",
    "Combine",
    "Compare",
    "Expression",
    "Literal",
    "Unary",
    "Value",
    "column_names",
    "spelled",
    "walked",
]

Value: TypeAlias = bool | int | float | complex | str | bytes | np.generic
"""The values that a literal can have."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its name; a dot separates the names of nested columns.

    >>> Column("quote.price").name
    'quote.price'
    """

    name: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal value: a number, text, bytes, a date.

    >>> Literal(3).value
    3
    """

    value: Value


@dataclass(frozen=True, slots=True)
class Unary:
    """``-``, ``+``, ``~`` or ``not`` of an operand.

    >>> spelled(Unary("-", Column("a")))
    '-a'
    """

    operator: str
    operand: "Expression"


@dataclass(frozen=True, slots=True)
class Binary:
    """Arithmetic, or bitwise ``&``, ``|``, ``^``, which are logical for booleans.

    >>> spelled(Binary("+", Column("a"), Literal(1)))
    '(a + 1)'
    """

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Compare:
    """One comparison.

    >>> spelled(Compare("<=", Column("a"), Literal(1)))
    '(a <= 1)'
    """

    operator: str
    left: "Expression"
    right: "Expression"


@dataclass(frozen=True, slots=True)
class Combine:
    """``and`` or ``or`` of two or more operands.

    >>> spelled(Combine("or", (Column("a"), Column("b"), Column("c"))))
    '(a or b or c)'
    """

    operator: str
    operands: tuple["Expression", ...]


@dataclass(frozen=True, slots=True)
class Among:
    """``in``: whether the operand is one of some values.

    >>> spelled(Among(Column("a"), (Literal(1), Literal(2))))
    '(a in (1, 2))'
    """

    operand: "Expression"
    values: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the functions that expressions have.

    >>> spelled(Call("isnan", (Column("a"),)))
    'isnan(a)'
    """

    function: str
    arguments: tuple["Expression", ...]


Expression: TypeAlias = Column | Literal | Unary | Binary | Compare | Combine | Among | Call


def walked(expression: Expression) -> Iterator[Expression]:
    """Yield an expression and all its parts, outer ones first.

    >>> [type(each).__name__ for each in walked(Compare("<", Column("a"), Literal(1)))]
    ['Compare', 'Column', 'Literal']
    """
    waiting = [expression]
    while waiting:
        current = waiting.pop()
        yield current
        waiting += reversed(_parts(current))


def column_names(expression: Expression) -> tuple[str, ...]:
    """Return the names of all columns in an expression, each once, in order of appearance.

    >>> column_names(Compare("<", Column("b"), Binary("+", Column("a"), Column("b"))))
    ('b', 'a')
    """
    found = (each.name for each in walked(expression) if isinstance(each, Column))
    return tuple(dict.fromkeys(found))


def spelled(expression: Expression) -> str:
    """Return an expression as text, which parses to the same expression.

    >>> spelled(Combine("and", (Column("a"), Unary("not", Column("b")))))
    '(a and not b)'
    """
    if isinstance(expression, Column):
        plain = all(part.isidentifier() for part in expression.name.split("."))
        return expression.name if plain else f"`{expression.name}`"
    if isinstance(expression, Literal):
        return _spelled_value(expression.value)
    if isinstance(expression, Unary):
        space = " " if expression.operator == "not" else ""
        return f"{expression.operator}{space}{spelled(expression.operand)}"
    if isinstance(expression, Combine):
        return f"({f' {expression.operator} '.join(map(spelled, expression.operands))})"
    if isinstance(expression, Call):
        return f"{expression.function}({', '.join(map(spelled, expression.arguments))})"
    if isinstance(expression, Among):
        values = ", ".join(map(spelled, expression.values))
        comma = "," if len(expression.values) == 1 else ""
        return f"({spelled(expression.operand)} in ({values}{comma}))"
    return f"({spelled(expression.left)} {expression.operator} {spelled(expression.right)})"


def _parts(expression: Expression) -> tuple[Expression, ...]:
    if isinstance(expression, Unary):
        return (expression.operand,)
    if isinstance(expression, Binary | Compare):
        return expression.left, expression.right
    if isinstance(expression, Combine):
        return expression.operands
    if isinstance(expression, Call):
        return expression.arguments
    if isinstance(expression, Among):
        return expression.operand, *expression.values
    return ()


def _spelled_value(value: Value) -> str:
    if isinstance(value, np.datetime64):
        return f"datetime64({str(value)!r})"
    if isinstance(value, np.timedelta64):
        unit, step = np.datetime_data(value.dtype)
        amount = int(value.astype(np.int64)) * step
        return f"timedelta64({amount}, {unit!r})"
    return repr(value.item()) if isinstance(value, np.generic) else repr(value)

"""Expressions in text over carrays, arrays and numbers; nothing is ever executed.

The parser is that of `ingot.query`; what it does not know is an error that names it. A function may
have the prefix ``np``, ``numpy``, ``da`` or ``math``. The outermost operation may be a reduction:
``sum(a)``, ``np.max(a, axis=0)``, ``(a + b).mean()``.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.errors import SelectionError
from ingot.query.evaluate import evaluate
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
)
from ingot.query.parse import LONGEST, parse

__all__ = ["BoundExpression", "OuterReduction", "bound", "is_sequence"]

Names = Sequence[Mapping[str, Any]]
"""Where the names of an expression are looked up, the first place first."""

_PREFIXES: Final = frozenset({"da", "math", "np", "numpy"})
_REDUCTIONS: Final[Mapping[str, np.ufunc]] = {
    "max": np.maximum,
    "mean": np.add,
    "min": np.minimum,
    "prod": np.multiply,
    "sum": np.add,
}
_BLOCK_BYTES: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class OuterReduction:
    """The outermost operation of an expression that yields fewer axes than it was given."""

    method: str
    axis: int | None

    def of(self, block: Any) -> Any:
        """Return the result for a block of rows; the mean of all rows is a sum at first."""
        across = self.axis in (None, 0)
        method = "sum" if self.method == "mean" and across else self.method
        return getattr(np, method)(block, axis=self.axis)

    def joined(self, results: list[Any], count: int) -> Any:
        """Return the result of all blocks; a mean is one of `count` items."""
        if self.axis not in (None, 0):
            return np.concatenate(results)
        result = _REDUCTIONS[self.method].reduce(np.stack(results), axis=0)
        return result / count if self.method == "mean" else result


@dataclass(frozen=True, slots=True)
class BoundExpression:
    """An expression whose names have got their values."""

    expression: Expression
    arrays: Mapping[str, Any]
    """The arrays and carrays by name; other values are in the expression."""
    length: int
    reduction: OuterReduction | None = None

    def of(self, start: int, stop: int) -> Any:
        """Return the values of some rows."""
        values = {
            name: array[start:stop] if len(array) == self.length else array[:]
            for name, array in self.arrays.items()
        }
        return evaluate(self.expression, values)

    def block_rows(self, rows: int | None = None) -> int:
        """Return how many rows are evaluated at a time: whole chunks, unless `rows` says it."""
        if rows:
            return rows
        chunks = [getattr(each, "chunklen", 1) for each in self.arrays.values()]
        row = sum(_row_bytes(each) for each in self.arrays.values())
        step, longest = _BLOCK_BYTES // max(1, row), max(chunks, default=1)
        return max(longest, step // longest * longest, 1)

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Any]]:
        """Yield the first row and the values of each block of rows."""
        step = self.block_rows(rows)
        for start in range(0, self.length, step):
            yield start, self.of(start, min(start + step, self.length))

    def masks(self, rows: int | None = None) -> Iterator[tuple[int, int, NDArray[np.bool_]]]:
        """Yield first row, last row and booleans of each block of rows."""
        for start, values in self.blocks(rows):
            stop = min(start + self.block_rows(rows), self.length)
            mask = np.asarray(values)
            if mask.dtype != np.bool_:
                raise IndexError(f"the expression gives {mask.dtype}, not booleans")
            yield start, stop, np.broadcast_to(mask, (stop - start,))

    def reduced(self, rows: int | None = None) -> Any:
        """Return what the outermost operation makes of all rows."""
        assert self.reduction is not None
        parts, count = [], 0
        for _, values in self.blocks(rows) if self.length else [(0, self.of(0, 0))]:
            block = np.asarray(values)
            parts.append(self.reduction.of(block))
            count += len(block) if self.reduction.axis == 0 else block.size
        return self.reduction.joined(parts, count)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the values."""
        return np.asarray(self.of(0, 0)).dtype


def bound(text: str | bytes, names: Names, *, vm: str = "numexpr") -> BoundExpression:
    """Return an expression with the values of its names.

    >>> found = bound("a * 2 > limit", [{"a": np.arange(4), "limit": 3}])
    >>> list(found.blocks())
    [(0, array([False, False,  True,  True]))]
    >>> bound("__import__('os').system('id')", [{}])
    Traceback (most recent call last):
    ingot.errors.SelectionError: "__import__('os').system('id')": there is no function ...
    """
    source = text.decode() if isinstance(text, bytes) else text
    inner, reduction = _reduced(source, vm)
    expression = parse(inner, prefixes=_PREFIXES)
    arrays: dict[str, Any] = {}
    literals: dict[str, Any] = {}
    for name in column_names(expression):
        value = _found(name, names)
        if isinstance(value, np.ndarray) and not value.ndim:
            value = value[()]
        if is_sequence(value):
            arrays[name] = _checked(value)
        else:
            literals[name] = value
    if literals:
        expression = _replaced(expression, literals)
    lengths = {len(each) for each in arrays.values()}
    if len(lengths - {1}) > 1:
        raise ValueError("arrays must have the same length")
    return BoundExpression(expression, arrays, max(lengths, default=1), reduction)


def is_sequence(value: Any) -> bool:
    """Return whether a value is a sequence, and neither text nor bytes.

    >>> is_sequence([1]), is_sequence("a")
    (True, False)
    """
    return hasattr(value, "__len__") and not isinstance(value, str | bytes | np.generic)


def _found(name: str, names: Names) -> Any:
    for place in names:
        if name in place:
            return place[name]
    raise NameError(f"variable name ``{name}`` not found")


def _checked(value: Any) -> Any:
    if not hasattr(value, "dtype"):
        raise ValueError("only numpy/carray sequences supported")
    if not isinstance(value, np.ndarray) and not hasattr(value, "chunklen"):
        raise ValueError("only numpy/carray objects supported")
    return value


def _row_bytes(value: Any) -> int:
    return int(value.dtype.itemsize * np.prod(value.shape[1:]))


def _reduced(text: str, vm: str) -> tuple[str, OuterReduction | None]:
    """Return what an expression reduces, and how; the text itself where it does not."""
    if len(text) > LONGEST or not any(name in text for name in _REDUCTIONS):
        return text, None
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text, None  # The parser of expressions says what is wrong.
    if not isinstance(node, ast.Call):
        return text, None
    function, arguments = node.func, list(node.args)
    if isinstance(function, ast.Attribute):
        prefixed = isinstance(function.value, ast.Name) and function.value.id in _PREFIXES
        name = function.attr
        if not prefixed:
            arguments.insert(0, function.value)
        axis = None
    else:
        name = function.id if isinstance(function, ast.Name) else ""
        # Python's own sum adds up the rows.
        axis = 0 if vm == "python" else None
    if name not in _REDUCTIONS or not arguments:
        return text, None
    given = [*arguments[1:], *(each.value for each in node.keywords if each.arg == "axis")]
    if len(given) > 1 or len(arguments) + len(node.keywords) > 2:
        raise SelectionError(f"{name} takes an expression and an axis")
    if given:
        number = given[0].value if isinstance(given[0], ast.Constant) else "?"
        if number is not None and type(number) is not int:
            raise SelectionError(f"{name}: the axis {ast.unparse(given[0])} is no number")
        axis = number
    return ast.unparse(arguments[0]), OuterReduction(name, axis)


def _replaced(expression: Expression, literals: Mapping[str, Any]) -> Expression:
    """Return an expression with values in place of names."""

    def again(part: Expression) -> Expression:
        return _replaced(part, literals)

    if isinstance(expression, Column):
        if expression.name not in literals:
            return expression
        value = literals[expression.name]
        if not isinstance(value, bool | int | float | complex | str | bytes | np.generic):
            raise SelectionError(f"{expression.name} is {value!r}, which is no value of a row")
        return Literal(value)
    if isinstance(expression, Unary):
        return Unary(expression.operator, again(expression.operand))
    if isinstance(expression, Binary):
        return Binary(expression.operator, again(expression.left), again(expression.right))
    if isinstance(expression, Compare):
        return Compare(expression.operator, again(expression.left), again(expression.right))
    if isinstance(expression, Combine):
        return Combine(expression.operator, tuple(map(again, expression.operands)))
    if isinstance(expression, Call):
        return Call(expression.function, tuple(map(again, expression.arguments)))
    if isinstance(expression, Among):
        return Among(again(expression.operand), expression.values)
    return expression

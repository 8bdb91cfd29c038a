"""Evaluation of an expression for a block of rows, with the results of NumPy.

Errors of NumPy become a `SelectionError` that names the expression.
"""

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.errors import IngotError, SelectionError
from ingot.nullable_array import NullableArray
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
    spelled,
)
from ingot.query.literals import MIRRORED, adapt, adapted_values, encoded_item
from ingot.ragged_array import BYTES, UTF8, ItemTest, RaggedArray, passing

__all__ = ["COMPARISONS", "ITEM_FUNCTIONS", "evaluate", "matches"]

ColumnValues = Mapping[str, NDArray[Any] | NullableArray | RaggedArray]
"""The values of each column in a block of rows."""

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
"""The comparisons of expressions as NumPy functions."""

_BINARY: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.power,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
}
_UNARY: Final[Mapping[str, Callable[[Any], Any]]] = {
    "-": np.negative,
    "+": np.positive,
    "~": np.invert,
    "not": np.logical_not,
}
_COMBINE: Final = {"and": np.logical_and, "or": np.logical_or}
_MATHEMATICS: Final[Mapping[str, Callable[..., Any]]] = {
    "arccos": np.arccos,
    "arccosh": np.arccosh,
    "arcsin": np.arcsin,
    "arcsinh": np.arcsinh,
    "arctan": np.arctan,
    "arctan2": np.arctan2,
    "arctanh": np.arctanh,
    "ceil": np.ceil,
    "conj": np.conj,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "expm1": np.expm1,
    "floor": np.floor,
    "imag": np.imag,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "real": np.real,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
}
_FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "abs": np.absolute,
    "contains": lambda text, part: np.strings.find(text, part) >= 0,
    "endswith": np.strings.endswith,
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": lambda values: np.isnat(values) if values.dtype.kind in "mM" else np.isnan(values),
    "isnull": lambda values: (
        np.isnat(values) if values.dtype.kind in "mM" else np.zeros(values.shape, np.bool_)
    ),
    "startswith": np.strings.startswith,
}
ITEM_FUNCTIONS: Final = ("contains", "endswith", "startswith")
"""The functions of text that are searched for in variable-length items."""

# Up to this many values, one comparison for each is faster than a search in sorted values.
_FEW_VALUES: Final = 8


def matches(expression: Expression, columns: ColumnValues, count: int) -> NDArray[np.bool_]:
    """Return for each of `count` rows whether the expression is true.

    >>> from ingot.query.parse import parse
    >>> matches(parse("a > 1"), {"a": np.array([1, 2])}, 2)
    array([False,  True])
    >>> matches(parse("a + 1"), {"a": np.array([1, 2])}, 2)
    Traceback (most recent call last):
    ingot.errors.SelectionError: (a + 1) gives int64, not booleans
    """
    found = evaluate(expression, columns)
    if isinstance(found, RaggedArray):
        raise SelectionError(f"{_shown(expression)} gives {found.kind}, not booleans")
    found = np.asarray(_truth(found))
    if found.dtype != np.bool_:
        raise SelectionError(f"{_shown(expression)} gives {found.dtype}, not booleans")
    if found.shape not in ((), (count,)):
        raise SelectionError(
            f"{_shown(expression)} gives {list(found.shape[1:])} booleans for each row, not one"
        )
    return np.broadcast_to(found, (count,))


def evaluate(expression: Expression, columns: ColumnValues) -> Any:
    """Return an array with an item for each row, or a single value if there are no columns.

    >>> from ingot.query.parse import parse
    >>> evaluate(parse("a * 2 + b"), {"a": np.array([1, 2]), "b": np.array([10, 20])})
    array([12, 24])
    """
    with np.errstate(all="ignore"):
        return _evaluated(expression, columns)


def _evaluated(expression: Expression, columns: ColumnValues) -> Any:
    if isinstance(expression, Column):
        return columns[expression.name]
    if isinstance(expression, Literal):
        return expression.value
    if isinstance(expression, Combine):
        parts = [_evaluated(each, columns) for each in expression.operands]
        join = _COMBINE[expression.operator]
        return _tried(expression, lambda: reduce(join, (_plain(_truth(each)) for each in parts)))
    if isinstance(expression, Among):
        operand = _evaluated(expression.operand, columns)
        values = tuple(each.value for each in expression.values)
        if isinstance(operand, RaggedArray):
            return _tried(expression, lambda: _items_among(operand, values))
        return _tried(expression, lambda: _only_valid(_among, operand, values))
    if isinstance(expression, Compare):
        left, right = _evaluated(expression.left, columns), _evaluated(expression.right, columns)
        return _tried(expression, lambda: _compared_valid(expression.operator, left, right))
    if isinstance(expression, Unary):
        operand = _evaluated(expression.operand, columns)
        return _tried(expression, lambda: _unary(expression.operator, operand))
    if isinstance(expression, Binary):
        left, right = _evaluated(expression.left, columns), _evaluated(expression.right, columns)
        return _tried(expression, lambda: _binary(expression.operator, left, right))
    arguments = [_evaluated(each, columns) for each in expression.arguments]
    return _tried(expression, lambda: _called(expression, arguments))


def _tried(expression: Expression, compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except IngotError as error:
        raise SelectionError(f"{_shown(expression)}: {error}") from None
    except (TypeError, ValueError, ArithmeticError) as error:
        raise SelectionError(f"{_shown(expression)}: {error}") from None


def _plain(operand: Any) -> Any:
    """Return an operand of arithmetic or logic; raise for variable-length items."""
    if isinstance(operand, RaggedArray):
        raise SelectionError(f"items of {operand.kind} can only be compared")
    return operand


def _truth(operand: Any) -> Any:
    """Return an operand of logic: of nullable values, a null is false."""
    if isinstance(operand, NullableArray):
        return np.logical_and(operand.values, operand.spread())
    return operand


def _values(operand: Any) -> Any:
    return operand.values if isinstance(operand, NullableArray) else operand


def _joint(*operands: Any) -> Any:
    """Return for which rows all operands exist; None if no operand has nulls."""
    masks = [each.spread() for each in operands if isinstance(each, NullableArray)]
    return reduce(operator.and_, masks) if masks else None


def _only_valid(function: Callable[..., Any], operand: Any, *arguments: Any) -> Any:
    """Return what is true of the items of an operand that exist."""
    found = function(np.asarray(_values(operand)), *arguments)
    valid = _joint(operand)
    return found if valid is None else found & valid


def _compared_valid(comparison: str, left: Any, right: Any) -> Any:
    """Compare operands; a comparison with a null is false."""
    found = _compared(comparison, _values(left), _values(right))
    valid = _joint(left, right)
    return found if valid is None else found & valid


def _unary(sign: str, operand: Any) -> Any:
    if sign == "not" or (isinstance(operand, NullableArray) and operand.dtype == np.bool_):
        return _UNARY[sign](_plain(_truth(operand)))
    if isinstance(operand, NullableArray):
        return NullableArray(_UNARY[sign](operand.values), operand.valid)
    return _UNARY[sign](_plain(operand))


def _binary(sign: str, left: Any, right: Any) -> Any:
    """Return the result of arithmetic, null where an operand is; in logic, a null is false."""
    valid = _joint(left, right)
    if valid is None:
        return _BINARY[sign](_plain(left), _plain(right))
    if sign in "&|^" and all(np.asarray(_values(_plain(e))).dtype == bool for e in (left, right)):
        return _BINARY[sign](_truth(left), _truth(right))
    found = _BINARY[sign](_values(_plain(left)), _values(_plain(right)))
    return NullableArray(found, valid)


def _compared(comparison: str, left: Any, right: Any) -> Any:
    if isinstance(left, RaggedArray):
        return _compared_items(comparison, left, right)
    if isinstance(right, RaggedArray):
        return _compared_items(MIRRORED[comparison], right, left)
    if isinstance(right, np.ndarray) and not isinstance(left, np.ndarray):
        return _compared(MIRRORED[comparison], right, left)
    if not isinstance(left, np.ndarray):
        return COMPARISONS[comparison](left, right)
    if isinstance(right, np.ndarray):
        _check_alike(left, right)
        return COMPARISONS[comparison](left, right)
    adapted = adapt(comparison, right, left.dtype)
    if isinstance(adapted, bool):
        return np.full(left.shape, adapted)
    return COMPARISONS[adapted[0]](left, adapted[1])


def _check_alike(left: NDArray[Any], right: NDArray[Any]) -> None:
    """Raise for types whose items NumPy finds unequal whatever their values."""
    kinds = {_KINDS.get(each.dtype.kind, each.dtype.kind) for each in (left, right)}
    if len(kinds) > 1:
        raise SelectionError(f"{left.dtype} cannot be compared with {right.dtype}")


_KINDS: Final = dict.fromkeys("biufc", "number") | {"U": "text", "T": "text"}


def _among(operand: NDArray[Any], values: tuple[Any, ...]) -> Any:
    kind = operand.dtype.kind
    wanted = adapted_values(values, operand.dtype)
    if not wanted:
        return np.zeros(operand.shape, np.bool_)
    if len(wanted) <= _FEW_VALUES or kind == "c":
        return reduce(operator.or_, (np.equal(operand, value) for value in wanted))
    if kind in "biu":
        return _among_integers(operand, wanted)
    if kind == "f":
        # Like a single comparison, search for each value rounded to the type of the items.
        return np.isin(operand, np.array([each for each in wanted if each == each], operand.dtype))
    if kind == "T":
        return np.isin(operand, np.array(wanted, operand.dtype))
    return np.isin(operand, np.array(wanted))


def _among_integers(operand: NDArray[Any], wanted: list[Any]) -> Any:
    own = np.dtype(np.uint8) if operand.dtype.kind == "b" else operand.dtype
    low, high = np.iinfo(own).min, np.iinfo(own).max
    whole = [int(each) for each in wanted if isinstance(each, int) and low <= each <= high]
    broken = [each for each in wanted if not isinstance(each, int)]
    found = np.isin(operand.astype(own, copy=False), np.array(whole, own))
    if broken:
        found |= np.isin(operand.astype(np.float64), np.array(broken, np.float64))
    return found


def _compared_items(comparison: str, items: RaggedArray, other: Any) -> NDArray[np.bool_]:
    """Compare text or bytes; a comparison with a null is false."""
    if isinstance(other, np.ndarray | RaggedArray):
        return _compared_pairs(comparison, items, other)
    return passing(items, ItemTest(comparison, (encoded_item(items.kind, other),)))


def _compared_pairs(
    comparison: str, items: RaggedArray, others: NDArray[Any] | RaggedArray
) -> NDArray[np.bool_]:
    """Compare the items of two columns, row by row."""
    if isinstance(others, np.ndarray):
        if others.ndim != 1 or others.dtype.kind not in "SUT":
            raise SelectionError(f"{items.kind} cannot be compared with {others.dtype}")
        others = RaggedArray.of(others, BYTES if others.dtype.kind == "S" else UTF8)
    if items.kind != others.kind or items.kind not in (UTF8, BYTES):
        raise SelectionError(f"{items.kind} cannot be compared with {others.kind}")
    ordered = _PAIRS[comparison]
    pairs = zip(items, others, strict=True)
    return np.array([a is not None and b is not None and ordered(a, b) for a, b in pairs], np.bool_)


_PAIRS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _items_among(items: RaggedArray, values: tuple[Any, ...]) -> NDArray[np.bool_]:
    return passing(items, ItemTest("==", tuple(encoded_item(items.kind, each) for each in values)))


def _called_items(expression: Call, arguments: list[Any]) -> Any:
    first = arguments[0]
    if expression.function == "isnull" and isinstance(first, RaggedArray):
        return first.is_null
    if expression.function not in ITEM_FUNCTIONS or not isinstance(first, RaggedArray):
        kinds = ", ".join(str(each.kind) for each in arguments if isinstance(each, RaggedArray))
        raise SelectionError(f"{expression.function} takes no {kinds}")
    return passing(first, ItemTest(expression.function, (encoded_item(first.kind, arguments[1]),)))


def _chosen(condition: Any, left: Any, right: Any) -> Any:
    """Return the left items where a condition is true, the right ones elsewhere and at a null."""
    true = _truth(condition)
    found = np.where(true, _values(left), _values(right))
    if _joint(left, right) is None:
        return found
    masks = [True if (valid := _joint(each)) is None else valid for each in (left, right)]
    return NullableArray(found, np.broadcast_to(np.where(true, *masks), found.shape))


def _called(expression: Call, arguments: list[Any]) -> Any:
    if any(isinstance(each, RaggedArray) for each in arguments):
        return _called_items(expression, arguments)
    name = expression.function
    if name == "where":
        return _chosen(*arguments)
    if name in _MATHEMATICS:
        found, valid = _MATHEMATICS[name](*map(_values, arguments)), _joint(*arguments)
        return found if valid is None else NullableArray(found, valid)
    if isinstance(arguments[0], NullableArray):
        operand = arguments[0]
        inner = _called(expression, [operand.values, *arguments[1:]])
        if name == "abs":
            return NullableArray(inner, operand.valid)
        return inner | ~operand.spread() if name == "isnull" else inner & operand.spread()
    first = np.asarray(arguments[0])
    if len(arguments) == 1:
        return _FUNCTIONS[name](first)
    adapted = adapt("==", arguments[1], first.dtype)
    part = adapted[1] if isinstance(adapted, tuple) else arguments[1]
    return _FUNCTIONS[name](first, part)


def _shown(expression: Expression) -> str:
    text = spelled(expression)
    return text if len(text) <= 200 else f"{text[:200]}…"

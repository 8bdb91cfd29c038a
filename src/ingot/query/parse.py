"""Parsing of expressions, by Python's grammar; nothing is ever executed.

Expressions have this part of the grammar: names of columns, with dots into nested columns, and in
backticks when they are not Python names; numbers, text, bytes; arithmetic; comparisons, also
chained; ``&``, ``|``, ``~``, ``and``, ``or``, ``not``; ``in`` a list of values; a few functions.
Everything else raises `SelectionError`.
"""

import ast
import datetime
import operator
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Final, TypeGuard

import numpy as np

from ingot.errors import SelectionError
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

__all__ = ["DEEPEST", "FUNCTIONS", "LONGEST", "parameters", "parse"]

LONGEST: Final = 1 << 20
"""The most characters of an expression: room for a list of some ten thousand values."""
DEEPEST: Final = 150
"""The deepest nesting of operations."""

FUNCTIONS: Final[Mapping[str, int]] = {
    "abs": 1,
    "arccos": 1,
    "arccosh": 1,
    "arcsin": 1,
    "arcsinh": 1,
    "arctan": 1,
    "arctan2": 2,
    "arctanh": 1,
    "ceil": 1,
    "conj": 1,
    "contains": 2,
    "cos": 1,
    "cosh": 1,
    "endswith": 2,
    "exp": 1,
    "expm1": 1,
    "floor": 1,
    "imag": 1,
    "isfinite": 1,
    "isinf": 1,
    "isnan": 1,
    "isnull": 1,
    "log": 1,
    "log10": 1,
    "log1p": 1,
    "real": 1,
    "sin": 1,
    "sinh": 1,
    "sqrt": 1,
    "startswith": 2,
    "tan": 1,
    "tanh": 1,
    "where": 3,
}
"""The functions that expressions have, with the number of their arguments.

Those of mathematics are NumPy's; they are all that numexpr has.
"""

_BINARY: Final[Mapping[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
}
_COMPUTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}
_UNARY: Final[Mapping[type[ast.unaryop], str]] = {
    ast.USub: "-",
    ast.UAdd: "+",
    ast.Invert: "~",
    ast.Not: "not",
}
_COMPARISONS: Final[Mapping[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_LOWEST: Final = -(2**63)
_HIGHEST: Final = 2**64 - 1
_MOST_POWER_BITS: Final = 128

# Quoted text is matched too, so that a backtick inside it is not a quote of a name.
_QUOTED: Final = re.compile(
    r"""('(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")|`([^`]*)`|@([^\W\d]\w*)""",
    re.DOTALL,
)


# One equals sign, which Python takes for an assignment.
_ASSIGNED: Final = re.compile("(?<![=!<>])=(?!=)")


def parameters(text: str) -> list[str]:
    """Return the names that follow ``@`` in the text of an expression.

    >>> parameters("a > @least and name != '@home'")
    ['least']
    """
    return [match[3] for match in _QUOTED.finditer(text) if match[3] is not None]


def parse(
    text: str, params: Mapping[str, Any] | None = None, *, prefixes: Collection[str] = ()
) -> Expression:
    """Return the expression of a text; raise `SelectionError` if it is not valid.

    `params` has the values of names that follow ``@``. They come from nowhere else.

    >>> parse("a in @some", {"some": [1, 2]}).values
    (Literal(value=1), Literal(value=2))

    A function may have one of the `prefixes`: with "np", ``np.sin`` is ``sin``.

    >>> parse("(ts >= 1) & (ts < 9)").operator
    '&'
    >>> parse("1 <= quote.price < 2")
    Combine(operator='and', operands=(Compare(operator='<=', left=Literal(value=1),
    right=Column(name='quote.price')), Compare(operator='<', left=Column(name='quote.price'),
    right=Literal(value=2))))
    >>> parse("`last price` in (1, 2)").operand
    Column(name='last price')
    >>> parse("__import__('os')")
    Traceback (most recent call last):
    ingot.errors.SelectionError: "__import__('os')": there is no function '__import__', only abs,
    arccos, ..., where, datetime64, timedelta64
    """
    if params is None and not prefixes:
        return _parse_again(text)
    return _parse(text, params, prefixes)


@lru_cache(maxsize=64)
def _parse_again(text: str) -> Expression:
    """The same for text alone: the same queries are asked again and again."""
    return _parse(text, None, ())


def _parse(text: str, params: Mapping[str, Any] | None, prefixes: Collection[str]) -> Expression:
    if len(text) > LONGEST:
        raise SelectionError(f"an expression of {len(text)} characters, the most is {LONGEST}")
    quoted: list[str] = []
    asked: list[str] = []

    def stand_in(match: re.Match[str]) -> str:
        if match[1] is not None:
            return match[1]
        if match[3] is not None:
            asked.append(match[3])
            return f" _{len(asked) - 1}_param"
        quoted.append(match[2])
        return f"_{len(quoted) - 1}_quoted"

    source = _QUOTED.sub(stand_in, text)
    names = {f"_{index}_quoted": name for index, name in enumerate(quoted)}
    try:
        tree = ast.parse(source.strip(), mode="eval")
    except SyntaxError as error:
        assigned = _ASSIGNED.search(_QUOTED.sub("", text)) is not None
        hint = "; == compares" if assigned else ""
        raise SelectionError(f"{_shown(text)}: {error.msg}{hint}") from None
    except (ValueError, RecursionError, MemoryError):
        raise SelectionError(f"{_shown(text)}: not an expression, or too deep") from None
    try:
        given = {f"_{n}_param": _param(name, params) for n, name in enumerate(asked)}
        return _Translator(names, prefixes, given).translate(tree.body, 1)
    except SelectionError as error:
        raise SelectionError(f"{_shown(text)}: {error}") from None


class _Translator:
    """Turns the nodes of Python's `ast` into expressions; each accepted kind has a method."""

    __slots__ = ("_names", "_params", "_prefixes")

    def __init__(
        self,
        names: Mapping[str, str],
        prefixes: Collection[str],
        params: Mapping[str, tuple[str, Any]],
    ) -> None:
        self._names = names
        self._prefixes = prefixes
        self._params = params

    def translate(self, node: ast.expr, depth: int) -> Expression:
        if depth > DEEPEST:
            raise SelectionError(f"operations are nested more than {DEEPEST} deep")
        method = _KINDS.get(type(node))
        if method is None:
            raise SelectionError(f"{type(node).__name__} is not allowed in an expression")
        return method(self, node, depth + 1)

    def _name(self, node: ast.Name, depth: int) -> Expression:
        if node.id in self._params:
            return _literal(*self._params[node.id])
        return Column(self._names.get(node.id, node.id))

    def _attribute(self, node: ast.Attribute, depth: int) -> Expression:
        inner = self.translate(node.value, depth)
        if not isinstance(inner, Column):
            raise SelectionError(f".{node.attr} follows something that is not a column")
        return Column(f"{inner.name}.{self._names.get(node.attr, node.attr)}")

    def _constant(self, node: ast.Constant, depth: int) -> Expression:
        value = node.value
        if not isinstance(value, bool | int | float | complex | str | bytes):
            raise SelectionError(f"{value!r} is not a value that a row can have")
        return Literal(_bounded(value))

    def _unary(self, node: ast.UnaryOp, depth: int) -> Expression:
        sign = _UNARY[type(node.op)]
        inner = node.operand
        if sign == "-" and isinstance(inner, ast.Constant):
            # The lowest integer has no positive counterpart, so the sign is part of the number.
            value = inner.value
            if isinstance(value, int | float | complex) and not isinstance(value, bool):
                return Literal(_bounded(-value))
        return Unary(sign, self.translate(inner, depth))

    def _binary(self, node: ast.BinOp, depth: int) -> Expression:
        sign = _BINARY.get(type(node.op))
        if sign is None:
            raise SelectionError(f"{type(node.op).__name__} is not an operator of expressions")
        left, right = self.translate(node.left, depth), self.translate(node.right, depth)
        if _is_number(left) and _is_number(right):
            return Literal(_computed(sign, left.value, right.value))
        return Binary(sign, left, right)

    def _combine(self, node: ast.BoolOp, depth: int) -> Expression:
        sign = "and" if isinstance(node.op, ast.And) else "or"
        return Combine(sign, tuple(self.translate(each, depth) for each in node.values))

    def _compare(self, node: ast.Compare, depth: int) -> Expression:
        parts: list[Expression] = []
        left = self.translate(node.left, depth)
        for sign, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(sign, ast.In | ast.NotIn):
                among = Among(left, self._values(right))
                parts.append(Unary("not", among) if isinstance(sign, ast.NotIn) else among)
                if len(node.ops) > 1:
                    raise SelectionError("'in' cannot be part of a chain of comparisons")
            elif type(sign) not in _COMPARISONS:
                raise SelectionError("'is' does not compare values; use ==, isnan or isnull")
            else:
                following = self.translate(right, depth)
                parts.append(Compare(_COMPARISONS[type(sign)], left, following))
                left = following
        return parts[0] if len(parts) == 1 else Combine("and", tuple(parts))

    def _values(self, node: ast.expr) -> tuple[Literal, ...]:
        if isinstance(node, ast.Name) and node.id in self._params:
            name, value = self._params[node.id]
            if not isinstance(value, list | tuple | set | frozenset | np.ndarray):
                raise SelectionError(f"'in' needs a list of values, @{name} is none")
            return tuple(_literal(name, each) for each in value)
        if not isinstance(node, ast.Tuple | ast.List | ast.Set):
            raise SelectionError("'in' needs a list of values")
        values = [self.translate(each, 1) for each in node.elts]
        if not all(isinstance(each, Literal) for each in values):
            raise SelectionError("'in' needs a list of values, not of columns")
        return tuple(each for each in values if isinstance(each, Literal))

    def _call(self, node: ast.Call, depth: int) -> Expression:
        name = self._function(node.func)
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise SelectionError("functions take plain arguments only")
        if name in _DATES:
            return _date(name, [self.translate(each, depth) for each in node.args])
        if name not in FUNCTIONS:
            known = ", ".join([*FUNCTIONS, *_DATES])
            raise SelectionError(f"there is no function {ast.unparse(node.func)!r}, only {known}")
        if len(node.args) != FUNCTIONS[name]:
            raise SelectionError(f"{name} takes {FUNCTIONS[name]} arguments, not {len(node.args)}")
        return Call(name, tuple(self.translate(each, depth) for each in node.args))

    def _function(self, node: ast.expr) -> str:
        """Return the name of a function without its prefix; "" for anything else."""
        if isinstance(node, ast.Attribute):
            owner = node.value
            known = isinstance(owner, ast.Name) and owner.id in self._prefixes
            return node.attr if known else ""
        return node.id if isinstance(node, ast.Name) else ""


_KINDS: Final[Mapping[type[ast.expr], Callable[..., Expression]]] = {
    ast.Name: _Translator._name,
    ast.Attribute: _Translator._attribute,
    ast.Constant: _Translator._constant,
    ast.UnaryOp: _Translator._unary,
    ast.BinOp: _Translator._binary,
    ast.BoolOp: _Translator._combine,
    ast.Compare: _Translator._compare,
    ast.Call: _Translator._call,
}


def _param(name: str, params: Mapping[str, Any] | None) -> tuple[str, Any]:
    """Return a parameter and its value."""
    if params is None or name not in params:
        known = ", ".join(params or ()) or "none"
        raise SelectionError(f"@{name} has no value; params has {known}")
    return name, params[name]


def _literal(name: str, value: Any) -> Literal:
    """Return the value of a parameter as a literal."""
    if isinstance(value, datetime.date):
        value = np.datetime64(value)
    elif isinstance(value, datetime.timedelta):
        value = np.timedelta64(value)
    elif isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    if isinstance(value, np.generic) and value.dtype.kind not in "mM":
        value = value.item()
    if isinstance(value, np.generic):
        return Literal(value)
    if not isinstance(value, bool | int | float | complex | str | bytes):
        raise SelectionError(f"@{name} is {type(value).__name__}, which a row cannot have")
    return Literal(_bounded(value))


_DATES: Final = {"datetime64": np.datetime64, "timedelta64": np.timedelta64}


def _date(name: str, arguments: list[Expression]) -> Literal:
    values: list[Any] = [each.value for each in arguments if isinstance(each, Literal)]
    if len(values) != len(arguments):
        raise SelectionError(f"{name} takes values, not columns")
    try:
        date: np.generic = _DATES[name](*values)
    except (TypeError, ValueError, OverflowError) as error:
        raise SelectionError(f"{name}: {error}") from None
    return Literal(date)


def _is_number(expression: Expression) -> TypeGuard[Literal]:
    return isinstance(expression, Literal) and isinstance(expression.value, int | float | complex)


def _computed(operation: str, left: Any, right: Any) -> Any:
    """Return the result of Python's arithmetic, which still adapts to the type of a column."""
    # Checked before the power is computed, which may be larger than memory.
    if operation == "**" and _power_bits(left, right) > _MOST_POWER_BITS:
        raise SelectionError("an integer beyond 64 bits")
    try:
        return _bounded(_COMPUTED[operation](left, right))
    except (ArithmeticError, TypeError) as error:
        raise SelectionError(f"{left} {operation} {right}: {error}") from None


def _power_bits(left: Any, right: Any) -> int:
    if not (isinstance(left, int) and isinstance(right, int)) or abs(left) < 2:
        return 1
    return abs(left).bit_length() * abs(right)


def _bounded(value: Any) -> Any:
    if isinstance(value, int) and not _LOWEST <= value <= _HIGHEST:
        raise SelectionError("an integer beyond 64 bits")
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:200]}…")

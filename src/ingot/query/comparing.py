"""Comparisons that the kernel makes while it decodes, so that no column is ever held in memory.

Knows which expressions are made of such comparisons: of one column with one value each, joined by
``and``, ``or``, ``not`` and their like. Refuses everything else, which is evaluated from columns.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.dtypes import DType
from ingot.query.expr import Binary, Column, Combine, Compare, Expression, Literal, Unary
from ingot.query.literals import MIRRORED, adapt
from ingot.sheet import Sheet

__all__ = ["compared", "item_of"]

Mask = NDArray[np.bool_]


def compared(sheet: Sheet, expression: Expression, rows: range) -> Mask | None:
    """Return of which rows an expression is true; None when the kernel cannot tell."""
    if isinstance(expression, Compare):
        return _compared_column(sheet, expression, rows)
    if isinstance(expression, Unary) and expression.operator in ("~", "not"):
        inner = compared(sheet, expression.operand, rows)
        return None if inner is None else np.logical_not(inner, out=inner)
    if isinstance(expression, Combine):
        return _joined(sheet, expression.operator, expression.operands, rows)
    if isinstance(expression, Binary) and expression.operator in _WORDS:
        sides = expression.left, expression.right
        return _joined(sheet, _WORDS[expression.operator], sides, rows)
    return None


def item_of(value: Any, dtype: DType) -> NDArray[Any] | None:
    """Return the item that NumPy compares with when it compares items of `dtype` with a value.

    None when it would make both sides another type first.

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


def _joined(
    sheet: Sheet, operator: str, operands: tuple[Expression, ...], rows: range
) -> Mask | None:
    result: Mask | None = None
    for operand in operands:
        found = compared(sheet, operand, rows)
        if found is None:
            return None
        result = found if result is None else _JOINS[operator](result, found, out=result)
    return result


def _compared_column(sheet: Sheet, expression: Compare, rows: range) -> Mask | None:
    operator, column, value = expression.operator, expression.left, expression.right
    if isinstance(column, Literal):
        operator, column, value = MIRRORED[operator], value, column
    if not isinstance(column, Column) or not isinstance(value, Literal):
        return None
    engine = sheet.engine(column.name)
    dtype = engine.chunks.schema.dtype
    adapted = adapt(operator, value.value, dtype)
    if isinstance(adapted, bool):
        return np.full(len(rows), adapted)
    item = item_of(adapted[1], dtype)
    return None if item is None else engine.compared(adapted[0], item, rows)

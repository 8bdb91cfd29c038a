"""Rows of arrays found by comparisons, while the native kernel decodes them.

Knows of which arrays the kernel can compare the items, and asks it. Refuses to know what
expressions the comparisons come from, and to compare anything itself.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot import native
from ingot.engine.run import Engine
from ingot.formats.format import zone_mapped

__all__ = ["Comparison", "Condition", "comparable", "count", "find", "mark"]

Comparison: TypeAlias = tuple[str, NDArray[Any]]
"""An operator, and an item of the array's own type."""

Condition: TypeAlias = tuple[Engine, Sequence[Comparison]]
"""An array, and comparisons that have to be true of its items, all of them."""

Spans: TypeAlias = Sequence[tuple[int, int]]


def comparable(engine: Engine) -> bool:
    """Tell whether the kernel can compare the items of an array: numbers and times, one a row."""
    dtype = engine.chunks.schema.dtype
    plain = dtype.isnative and dtype.kind in "biufmM" and dtype.str != "<f2"
    single = plain and len(engine.shape) == 1 and zone_mapped(engine.chunks) is not None
    return single and engine.layout() is not None


def mark(condition: Condition, rows: range) -> NDArray[np.bool_]:
    """Tell of which rows a condition is true; the array is comparable."""
    engine, comparisons = condition
    found = np.empty(len(rows), np.bool_)
    threads = engine.options.thread_count()
    layout, packed = _packed(engine, comparisons)
    engine.judge(layout.compare(found, rows.start, packed, threads) or [])
    return found


def find(conditions: Sequence[Condition], spans: Spans) -> NDArray[np.int64]:
    """Return the numbers of the rows, ascending, of which all conditions are true.

    The arrays are comparable and of one length. Of the second and those behind it, only what the
    ones before have left is decoded.
    """
    return np.frombuffer(_search(conditions, spans, numbers=True)[1], np.int64)


def count(conditions: Sequence[Condition], spans: Spans) -> int:
    """Return how many rows there are of which all conditions are true."""
    return _search(conditions, spans, numbers=False)[0]


def _search(
    conditions: Sequence[Condition], spans: Spans, *, numbers: bool
) -> tuple[int, bytearray]:
    if not spans:
        return 0, bytearray()
    (first, packed), *others = [_packed(engine, tests) for engine, tests in conditions]
    threads = conditions[0][0].options.thread_count()
    found, rows, troubles = first.search(packed, others, spans, numbers, threads)
    for number, wrong in sorted(troubles, key=lambda trouble: (trouble[0], trouble[1][0][0])):
        conditions[number][0].judge(wrong)
    return found, rows or bytearray()


def _packed(
    engine: Engine, comparisons: Sequence[Comparison]
) -> tuple[native.Layout, list[tuple[str, bytes]]]:
    layout = engine.layout()
    if layout is None:
        raise ValueError(f"{engine.chunks.store.location} is not comparable")
    return layout, [(operator, item.tobytes()) for operator, item in comparisons]

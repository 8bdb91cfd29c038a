"""Scans: the rows for which comparisons hold, found by the native kernel while it decodes.

Decides which arrays the kernel can compare and calls it. Compares nothing itself, and does not know
the expressions that comparisons come from.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.engine.handed import HandedLayout
from ingot.engine.run import Engine
from ingot.errors import ArgumentError
from ingot.formats.format import zone_mapped

__all__ = ["Comparison", "Condition", "comparable", "count", "find", "mark"]

Comparison: TypeAlias = tuple[str, NDArray[Any]]
"""An operator, and the item of the array's own type to compare with."""

Condition: TypeAlias = tuple[Engine, Sequence[Comparison]]
"""An array, and comparisons that must all hold for an item."""

Spans: TypeAlias = Sequence[tuple[int, int]]


def comparable(engine: Engine) -> bool:
    """Return whether the kernel can compare an array: numbers or times, one item per row."""
    dtype = engine.chunks.schema.dtype
    plain = dtype.isnative and dtype.kind in "biufmM" and dtype.str != "<f2"
    single = plain and len(engine.shape) == 1 and zone_mapped(engine.chunks) is not None
    return single and engine.layout() is not None


def mark(condition: Condition, rows: range) -> NDArray[np.bool_]:
    """Return for each row whether a condition holds; the array must be comparable."""
    engine, comparisons = condition
    found = np.empty(len(rows), np.bool_)
    threads = engine.options.thread_count()
    layout, packed = _packed(engine, comparisons)
    engine.raise_first(layout.compare(found, rows.start, packed, threads) or [])
    return found


def find(conditions: Sequence[Condition], spans: Spans) -> NDArray[np.int64]:
    """Return the ascending numbers of the rows for which all conditions hold.

    The arrays must be comparable and of one length. From the second condition on, only
    what the conditions before have left is decoded.
    """
    return np.frombuffer(_search(conditions, spans, numbers=True)[1], np.int64)


def count(conditions: Sequence[Condition], spans: Spans) -> int:
    """Return the number of rows for which all conditions hold."""
    return _search(conditions, spans, numbers=False)[0]


def _search(
    conditions: Sequence[Condition], spans: Spans, *, numbers: bool
) -> tuple[int, bytearray]:
    if not spans:
        return 0, bytearray()
    (first, packed), *others = [_packed(engine, tests) for engine, tests in conditions]
    threads = conditions[0][0].options.thread_count()
    if isinstance(first, HandedLayout):
        handed = [(layout, tests) for layout, tests in others if isinstance(layout, HandedLayout)]
        assert len(handed) == len(others), "the columns of a table share a store"
        found, rows, failures = first.search(packed, handed, spans, numbers, threads)
    else:
        opened = [(layout, tests, None) for layout, tests in others]
        found, rows, failures = first.search(packed, opened, spans, numbers, threads)
    for number, failed in sorted(failures, key=lambda failure: (failure[0], failure[1][0][0])):
        conditions[number][0].raise_first(failed)
    return found, rows or bytearray()


def _packed(
    engine: Engine, comparisons: Sequence[Comparison]
) -> tuple[Any, list[tuple[str, bytes]]]:
    layout = engine.layout()
    if layout is None:
        raise ArgumentError(f"{engine.chunks.store.location} is not comparable")
    return layout, [(operator, item.tobytes()) for operator, item in comparisons]

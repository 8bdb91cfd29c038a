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

__all__ = ["Alternative", "Comparison", "Condition", "comparable", "count", "find", "mark"]

Comparison: TypeAlias = tuple[str, NDArray[Any]]
"""An operator, and the item of the array's own type to compare with; for "==" also many items,
ascending and without NaN and NaT, one of which shall be equal."""

Condition: TypeAlias = tuple[Engine, Sequence[Comparison]]
"""An array, and comparisons that must all hold for an item."""

Alternative: TypeAlias = Sequence[Condition]
"""Conditions that must all hold for a row, the most selective first."""

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


def find(alternatives: Sequence[Alternative], spans: Spans) -> NDArray[np.int64]:
    """Return the ascending numbers of the rows for which an alternative holds.

    The arrays must be comparable and of one length. From the second condition of an alternative
    on, only what the conditions before have left is decoded.
    """
    return np.frombuffer(_search(alternatives, spans, numbers=True)[1], np.int64)


def count(alternatives: Sequence[Alternative], spans: Spans) -> int:
    """Return the number of rows for which an alternative holds."""
    return _search(alternatives, spans, numbers=False)[0]


def _search(
    alternatives: Sequence[Alternative], spans: Spans, *, numbers: bool
) -> tuple[int, bytearray]:
    if not spans:
        return 0, bytearray()
    numbered = [
        (engine, tests, number)
        for number, conditions in enumerate(alternatives)
        for engine, tests in conditions
    ]
    (first, packed, _), *others = [
        (*_packed(engine, tests), number) for engine, tests, number in numbered
    ]
    threads = numbered[0][0].options.thread_count()
    if isinstance(first, HandedLayout):
        handed = [each for each in others if isinstance(each[0], HandedLayout)]
        assert len(handed) == len(others), "the columns of a table share a store"
        found, rows, failures = first.search(packed, handed, spans, numbers, threads)
    else:
        opened = [(*each, None) for each in others]
        found, rows, failures = first.search(packed, opened, spans, numbers, threads)
    for number, failed in sorted(failures, key=lambda failure: (failure[0], failure[1][0][0])):
        numbered[number][0].raise_first(failed)
    return found, rows or bytearray()


def _packed(
    engine: Engine, comparisons: Sequence[Comparison]
) -> tuple[Any, list[tuple[str, bytes]]]:
    layout = engine.layout()
    if layout is None:
        raise ArgumentError(f"{engine.chunks.store.location} is not comparable")
    return layout, [(operator, item.tobytes()) for operator, item in comparisons]

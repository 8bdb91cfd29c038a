"""Rows of a table in batches: all of one committed state, decoded window by window.

A window is a run of rows that is decoded at once, on all cores; batches are slices of it, without a
copy. Rows that cannot match a filter are skipped by zone maps, and the columns of the filter decide
which rows of the others are decoded.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.containers.handle import HandleProtocol
from ingot.containers.table_state import ColumnValues, StoredValues, TableState, annotated
from ingot.errors import ArgumentError, LockedError
from ingot.interop.arrow import BATCH_ROWS
from ingot.query import search
from ingot.query.expr import Expression, column_names
from ingot.query.search import Rows
from ingot.ragged_array import RaggedArray

__all__ = ["read_batches"]

# Where one of so many rows matches, reading all of them is faster than picking the rows.
_SPARSE: Final = 32
# Enough for all threads of the kernel; a consumer holds about this much.
_WINDOW_BYTES: Final = 16 << 20


def read_batches(
    handle: HandleProtocol[TableState],
    names: Sequence[str],
    expression: Expression | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
    mask: NDArray[np.bool_] | None = None,
    loose: bool = False,
) -> Iterator[dict[str, ColumnValues]]:
    """Yield the values of columns in the rows that match, at most `batch_rows` at a time.

    With `loose`, for callers that filter the rows themselves, a window may have rows that do not
    match: where many do, the search costs more than it saves.

    All batches are of the state of the table at the first one; if the table changes before the
    last, the next raises `LockedError`. A `mask` has an item for each row of the table.
    """
    if batch_rows < 1:
        raise ArgumentError(f"batch_rows is {batch_rows}, at least 1 is needed")
    touched = dict.fromkeys([*names, *(() if expression is None else column_names(expression))])

    def plan(state: TableState) -> tuple[TableState, list[range]]:
        if expression is not None:
            search.check(state, expression)
        return state, list(search.windows(state, expression, tuple(touched), _WINDOW_BYTES))

    first, windows = handle.read(plan)
    dense = False
    for window in windows:
        sought = None if dense and loose else expression

        def read(
            state: TableState, window: range = window, sought: Expression | None = sought
        ) -> tuple[int, dict[str, ColumnValues]] | None:
            if state is not first:
                return None
            rows = search.find_within(state, sought, window)
            if mask is not None:
                rows = np.asarray(rows, np.int64)
                rows = rows[mask[rows]]
            return len(rows), _gathered(state, names, rows, window)

        found = handle.read(read)
        if found is None:
            raise LockedError(
                f"{handle.store.location}: the table was changed while it was streamed; "
                "a snapshot keeps writers away"
            )
        count, columns = found
        dense = count * _SPARSE >= len(window)
        for start in range(0, count, batch_rows):
            if start == 0 and count <= batch_rows:
                yield columns
            else:
                part = slice(start, start + batch_rows)
                yield {name: values[part] for name, values in columns.items()}


def _gathered(
    state: TableState, names: Sequence[str], rows: Rows, window: range
) -> dict[str, ColumnValues]:
    """Return the values of some rows of a window."""
    if isinstance(rows, range) or len(rows) * _SPARSE < len(window):
        return annotated(state, {name: search.gather(state, name, rows) for name in names})
    near = rows - window.start
    found: dict[str, StoredValues] = {}
    for name in names:
        values = search.gather(state, name, window)
        found[name] = values.take(near) if isinstance(values, RaggedArray) else values[near]
    return annotated(state, found)

"""Single rows, stored in groups: when a group is full, or its first row has waited long enough."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from ingot.errors import ArgumentError, ArgumentTypeError
from ingot.signals import Deferred

__all__ = ["Appender"]

ROWS: Final = 10_000
SECONDS: Final = 1.0


class Appender:
    """Collects rows and stores them in groups; leaving its block stores the rest.

    A row is a sequence with a value for each column, a mapping, or keyword arguments. A crash loses
    the rows that are not stored yet, at most one group. After an error in the block, rows that were
    added before it are stored all the same.

    >>> groups = []
    >>> with Appender(groups.append, rows=2) as add:
    ...     for number in range(5):
    ...         add((number, number * 10))
    >>> groups
    [[(0, 0), (1, 10)], [(2, 20), (3, 30)], [(4, 40)]]
    """

    def __init__(
        self,
        store: Callable[[list[Any]], None],
        *,
        rows: int | None = ROWS,
        seconds: float | None = SECONDS,
    ) -> None:
        if rows is not None and rows < 1:
            raise ArgumentError(f"rows is {rows}, at least 1 is needed")
        if seconds is not None and seconds < 0:
            raise ArgumentError(f"seconds is {seconds}, at least 0 is needed")
        self._store = store
        self._most = rows
        self._seconds = seconds
        self._waiting: list[Any] = []
        self._since = 0.0
        self._lock = threading.Lock()
        self._closed = False

    def __call__(self, row: Sequence[Any] | Mapping[str, Any] | None = None, **values: Any) -> None:
        """Add one row; store the group if it is full, or has waited long enough."""
        if (row is None) == (not values):
            raise ArgumentTypeError("a row is one sequence or mapping, or keyword arguments")
        with Deferred(), self._lock:
            if self._closed:
                raise ArgumentError("the appender is closed")
            if not self._waiting:
                self._since = time.monotonic()
            self._waiting.append(values if row is None else row)
            if self._is_due():
                self._store_waiting()

    def flush(self) -> None:
        """Store all waiting rows."""
        with Deferred(), self._lock:
            self._store_waiting()

    def close(self) -> None:
        """Store all waiting rows, and refuse further ones."""
        with Deferred(), self._lock:
            self._closed = True
            self._store_waiting()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with Deferred() as deferred:
            waiting = len(self._waiting)
            self.close()
            if waiting:
                note = f"the rows that waited in the appender are stored: {waiting}"
                # For Ctrl-C during the commit, and for what had ended the block before it.
                deferred.note = note
                if error is not None:
                    error.add_note(note)

    def _is_due(self) -> bool:
        if self._most is not None and len(self._waiting) >= self._most:
            return True
        return self._seconds is not None and time.monotonic() - self._since >= self._seconds

    def _store_waiting(self) -> None:
        if self._waiting:
            # Rows that are refused are dropped, so that later rows can be stored.
            rows, self._waiting = self._waiting, []
            self._store(rows)

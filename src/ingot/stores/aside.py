"""What one store has put aside while it was not its turn.

Knows the names under which values wait that no commit speaks of yet, and keeps it announced that
there are such. Refuses to know what they are, and where.
"""

import threading
from collections.abc import Callable, Iterable

from ingot.stores.lock import Announcement

__all__ = ["Aside"]


class Aside:
    """The transactions of one store that have not come to their turn, for all of its threads.

    >>> aside = Aside()
    >>> aside.begin("2f81", lambda: None)
    >>> aside.end(["data/.g-2f81-0"]), aside.end([])
    (0, 0)
    """

    __slots__ = ("_announcement", "_guard", "_names")

    def __init__(self) -> None:
        self._announcement: Announcement | None = None
        self._guard = threading.Lock()
        self._names: set[str] = set()

    def __reduce__(self) -> tuple[type["Aside"], tuple[()]]:
        return Aside, ()  # What one process put aside is not another's.

    def __del__(self) -> None:
        if self._announcement is not None:
            self._announcement.withdraw()

    def begin(self, name: str, announce: Callable[[], Announcement | None]) -> None:
        """Keep in mind that a transaction puts values aside, once that is announced."""
        with self._guard:
            if self._announcement is None or not self._announcement.stands:
                self._announcement = announce()
            self._names.add(name)

    def end(self, sources: Iterable[str]) -> int:
        """Forget the transactions of staged keys; return who announced them if none are left.

        Zero if nothing was announced, or something still is.
        """
        if not self._names:
            return 0
        with self._guard:
            self._names.difference_update(map(_transaction, sources))
            if self._names or self._announcement is None:
                return 0
            self._announcement.withdraw()
            own, self._announcement = self._announcement.own, None
            return own


def _transaction(source: str) -> str:
    return source.rpartition("/")[2].split("-", 2)[1].partition(".")[0]

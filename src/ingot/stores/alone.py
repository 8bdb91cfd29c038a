"""The turns of a writer where there are no locks.

Knows what such a writer keeps in mind between its turns. Refuses to know whether it really is the
only one: that is promised by whoever asks for it.
"""

from ingot.stores.lock import State

__all__ = ["Alone"]


class Alone:
    """The turns of somebody who promised to be the only writer; nobody else is told anything.

    >>> turn = Alone()
    >>> turn.found.name, turn.mark(State.CLEAN), turn.release(), turn.found.name
    ('UNKNOWN', None, None, 'CLEAN')
    """

    __slots__ = ("_left", "found", "sequence")

    def __init__(self) -> None:
        self.found = self._left = State.UNKNOWN
        self.sequence: int | None = None

    def bump(self) -> None:
        """Tell nobody."""

    def begin_apply(self) -> None:
        """Wait for nobody."""

    def begin_switch(self) -> None:
        """Tell nobody."""

    def mark(self, state: State) -> None:
        """Keep in mind what is left behind."""
        self._left = state

    def find_litter(self, own: int) -> bool:
        """Know of nobody who could leave any."""
        return False

    def leave_litter(self) -> bool:
        """Know of nobody whose values could be taken for litter."""
        return True

    def swept(self) -> None:
        """Tell nobody."""

    def release(self) -> None:
        """End a turn; one that did not say what it leaves behind has failed."""
        self.found, self._left = self._left, State.BUSY

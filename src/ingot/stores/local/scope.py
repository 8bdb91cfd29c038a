"""Scopes: the files of a directory that are committed together, with their lock, journal and log.

A scope is a whole directory, or one file in a directory that holds others as well.
"""

from dataclasses import dataclass
from typing import Final

from ingot.errors import UnsafeError
from ingot.stores.store import check_key, is_staged, staged_key

__all__ = ["WHOLE", "Scope"]


@dataclass(frozen=True, slots=True)
class Scope:
    """The files of a directory that are committed together: all of them, or one.

    >>> Scope().journal, Scope.of_file("a.blp").journal
    ('.commit', '.a.blp.commit')
    """

    journal: str = ".commit"
    lock: str = ".lock"
    only: str | None = None
    log: str | None = ".log"
    """The name of the log; a scope of one file has none."""

    @classmethod
    def of_file(cls, name: str) -> "Scope":
        """Return the scope of one file."""
        shown = staged_key(name, "0").removeprefix(".g-0-")
        if len(shown.encode()) > 240:
            shown = shown[:60]
        return cls(check_key(f".{shown}.commit"), check_key(f".{shown}.lock"), name, None)

    @property
    def reserved(self) -> tuple[str, ...]:
        """The names that no commit may change: those of the journal, the lock and the log."""
        own = self.journal, self.lock
        return own if self.log is None else (*own, self.log)

    def owns_staged(self, name: str) -> bool:
        """Return whether a name is that of a staged file of this scope."""
        if self.only is None:
            return is_staged(name)
        return is_staged(name, self.only) or is_staged(name, self.journal)

    def check(self, key: str, where: str) -> None:
        """Raise `UnsafeError` for a key that commits in this scope must not change."""
        first = key.partition("/")[0]
        if first == self.journal or first == self.lock or first == self.log:
            raise UnsafeError(f"{where}: key {key!r} is the store's own")
        if self.only is not None and key != self.only and not is_staged(key, self.only):
            raise UnsafeError(f"{where}: key {key!r} is not part of {self.only!r}")


WHOLE: Final = Scope()
"""The scope of a whole directory."""

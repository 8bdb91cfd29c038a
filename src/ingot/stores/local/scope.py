"""Which files of a directory belong together, and under which names they are committed.

Knows the names of the lock file and the journal, and which names a commit may touch. Refuses to
know what is in any of them.
"""

from dataclasses import dataclass
from typing import Final

from ingot.errors import UnsafeError
from ingot.stores.store import check_key, is_staged, staged_key

__all__ = ["WHOLE", "Dataset"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """What belongs together in one directory: all of it, or one file.

    >>> Dataset().journal, Dataset.of_file("a.blp").journal
    ('.commit', '.a.blp.commit')
    """

    journal: str = ".commit"
    lock: str = ".lock"
    only: str | None = None

    @classmethod
    def of_file(cls, name: str) -> "Dataset":
        """Return the dataset that is one file."""
        shown = staged_key(name, "0").removeprefix(".g-0-")
        if len(shown.encode()) > 240:
            shown = shown[:60]
        return cls(check_key(f".{shown}.commit"), check_key(f".{shown}.lock"), name)

    @property
    def controls(self) -> tuple[str, str]:
        """The names that no commit may touch."""
        return self.journal, self.lock

    def stages(self, name: str) -> bool:
        """Tell whether a name is one under which this dataset stages."""
        if self.only is None:
            return is_staged(name)
        return is_staged(name, self.only) or is_staged(name, self.journal)

    def check(self, key: str, where: str) -> None:
        """Refuse a key that is not the dataset's to change."""
        if key in self.controls:
            raise UnsafeError(f"{where}: key {key!r} is the store's own")
        if self.only is not None and key != self.only and not is_staged(key, self.only):
            raise UnsafeError(f"{where}: key {key!r} is not part of {self.only!r}")


WHOLE: Final = Dataset()
"""All of a directory."""

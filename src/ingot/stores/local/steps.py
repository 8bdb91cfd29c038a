"""The steps of a commit: a list that one call runs, in the kernel or here.

`commit` compiles a commit to steps, and `files` runs them. The kernel runs the same list
(`native/src/files/commit.rs`). `Progress` says how many steps are done, so that a failure is
judged by the step at which it happened.
"""

import enum
from typing import Any, Final, TypeAlias

__all__ = ["SYNCS", "Op", "Progress", "Step"]


class Op(enum.IntEnum):
    """What a step does with its key, staged key, position and data."""

    CREATE = 0
    """Create the file of the key with the data, and its folder as needed; it stays open.

    A failure leaves no file of that name, except one that existed before.
    """
    OPEN = 1
    """Open the existing file of the key; it stays open."""
    WRITE = 2
    """Write the data from the position on into the file that was opened last."""
    SYNC_FILES = 3
    """Sync the content of all open files."""
    CLOSE_FILES = 4
    """Close all open files."""
    REQUIRE = 5
    """Raise `NotFoundError` unless the staged file exists."""
    REQUIRE_CLEAR = 6
    """Raise `UnsafeError` if the key is a folder that holds files that are not in the data."""
    RENAME = 7
    """Rename the staged file to the key by `OpenDirectory.rename`."""
    REPLACE = 8
    """Rename the staged file to the key by `OpenDirectory.replace`."""
    PLACE = 9
    """Rename the staged file to the key by `OpenDirectory.place`."""
    UNLINK = 10
    """Remove the file of the key, if it exists."""
    CHANGED = 11
    """Count the folder that is the key among those in which names have changed."""
    SYNC_FOLDERS = 12
    """Sync the folders in which names have changed since the last such step."""
    FORGET_CHANGED = 13
    """Sync no folder for what has changed so far."""
    SYNC_ALL = 14
    """Sync the whole file system."""
    APPLY_LOCK = 15
    """Take the apply lock."""
    SWITCH = 16
    """Mark the version as switching."""
    BUMP = 17
    """Give readers a new version number."""
    MARK = 18
    """Record in the lock file the state that the position says."""
    TRUNCATE = 19
    """Cut off the file that was opened last behind the position."""


SYNCS: Final = frozenset({Op.SYNC_FILES, Op.SYNC_FOLDERS, Op.SYNC_ALL})
"""The operations after whose failure it is unknown what is durable."""

Step: TypeAlias = tuple[Op, str, str, int, Any]
"""An operation, a key, a staged key, a position, and data."""


class Progress:
    """How far a list of steps has been run, in the dataset at `where`."""

    __slots__ = ("changed", "done", "files", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.done = 0
        """The number of steps that are done."""
        self.changed: dict[str, None] = {}
        """The folders in which names have changed, in order, and which are not synced."""
        self.files: list[int] = []
        """The open files."""

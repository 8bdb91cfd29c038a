"""What may stand in the way of a commit: a folder that has the name of a file, a disk that is full.

Knows that a rename replaces every name but that of a folder, and which folders make room. Refuses
to move anything: it is asked while a commit can still be refused, for one that is decided must be
possible to finish.
"""

import errno
from collections.abc import Collection
from typing import Final

from ingot.errors import UnsafeError
from ingot.stores.files import Inside
from ingot.stores.outcome import bytes_to_write
from ingot.stores.store import Commit

__all__ = ["check_clear", "check_room"]

_SMALL: Final = 1 << 20


def check_clear(inside: Inside, key: str, leaving: Collection[str] = ()) -> None:
    """Complain when a folder has the name of `key`, with files in it that are not `leaving`."""
    try:
        inside.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in inside.names(folder, follow=False) and _holds_files(inside, key, leaving):
            raise


def check_room(commit: Commit, inside: Inside, where: str) -> None:
    """Complain of a commit for which there is not enough room, before any of it is written."""
    need = bytes_to_write(commit.edits)
    free = None if need < _SMALL else inside.free_bytes()
    if free is not None and need > free:
        raise OSError(errno.ENOSPC, f"{need} bytes to write, {free} are free", where)


def _holds_files(inside: Inside, folder: str, leaving: Collection[str]) -> bool:
    keys = (f"{folder}/{name}" for name in inside.names(folder, follow=False))
    return any(
        _holds_files(inside, key[:-1], leaving) if key.endswith("/") else key not in leaving
        for key in keys
    )

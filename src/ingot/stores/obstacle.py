"""What may stand in the way of a file that is about to get its name.

Knows that a rename replaces every name but that of a folder, and which folders make room. Refuses
to move anything: it is asked while a commit can still be refused, for one that is decided must be
possible to finish.
"""

from collections.abc import Collection

from ingot.errors import UnsafeError
from ingot.stores.files import Inside

__all__ = ["check_clear"]


def check_clear(inside: Inside, key: str, leaving: Collection[str] = ()) -> None:
    """Complain when a folder has the name of `key`, with files in it that are not `leaving`."""
    try:
        inside.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in inside.names(folder, follow=False) and _holds_files(inside, key, leaving):
            raise


def _holds_files(inside: Inside, folder: str, leaving: Collection[str]) -> bool:
    keys = (f"{folder}/{name}" for name in inside.names(folder, follow=False))
    return any(
        _holds_files(inside, key[:-1], leaving) if key.endswith("/") else key not in leaving
        for key in keys
    )

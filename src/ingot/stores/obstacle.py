"""What may stand in the way of a file that is about to get its name.

Knows that a rename replaces every name but that of a folder, and which folders make room. Refuses
to move anything: it is asked while a commit can still be refused, for one that is decided must be
possible to finish.
"""

from ingot.errors import UnsafeError
from ingot.stores.files import Inside

__all__ = ["check_clear"]


def check_clear(inside: Inside, key: str) -> None:
    """Complain when a folder with files in it has the name of `key`."""
    try:
        inside.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in inside.names(folder, follow=False) and _holds_files(inside, key):
            raise


def _holds_files(inside: Inside, folder: str) -> bool:
    return any(
        not name.endswith("/") or _holds_files(inside, f"{folder}/{name[:-1]}")
        for name in inside.names(folder, follow=False)
    )

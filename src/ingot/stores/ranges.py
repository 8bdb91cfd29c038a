"""Locks of an open file, each a byte of it, as the system at hand has them.

Knows how a lock is taken without waiting, and dropped. Refuses to know what is locked.

On Linux locks belong to the open file (OFD), so that threads exclude each other and closing another
descriptor loses nothing. Elsewhere `WRITER` is the whole file and `APPLY` the folder (flock); on
Windows a byte each, and what should be shared is exclusive. `STAGING` is there on Linux alone.
"""

import contextlib
import errno
import os
import struct
import sys
from typing import Final

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["APPLY", "OFD", "STAGING", "WRITER", "drop", "drop_all", "keep_place", "take"]

# Far behind the text, so that a system whose locks are mandatory still lets it be read.
WRITER: Final = 1 << 30
APPLY: Final = WRITER + 1
STAGING: Final = WRITER + 2

_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EDEADLK})

OFD: Final = hasattr(sys.modules.get("fcntl"), "F_OFD_SETLK")
"""Whether a file has more locks than two, that can be shared."""

if OFD:
    _RANGE: Final = struct.Struct("@hhqqi4x")

    def keep_place(folder: int) -> int:
        return -1

    def _change(file: int, which: int, kind: int, count: int = 1) -> None:
        request = _RANGE.pack(kind, os.SEEK_SET, which, count, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        _change(file, which, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK)

    def drop(file: int, place: int, which: int) -> None:
        _change(file, which, fcntl.F_UNLCK)

    def drop_all(file: int, place: int) -> None:
        _change(file, WRITER, fcntl.F_UNLCK, count=3)

elif sys.platform != "win32":

    def keep_place(folder: int) -> int:
        return os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(file if which == WRITER else place, kind | fcntl.LOCK_NB)

    def drop(file: int, place: int, which: int) -> None:
        fcntl.flock(file if which == WRITER else place, fcntl.LOCK_UN)

    def drop_all(file: int, place: int) -> None:
        for which in (APPLY, WRITER):
            drop(file, place, which)

else:

    def keep_place(folder: int) -> int:
        return -1

    def _at(file: int, which: int, mode: int) -> None:
        os.lseek(file, which, os.SEEK_SET)
        msvcrt.locking(file, mode, 1)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        _at(file, which, msvcrt.LK_NBLCK)

    def drop(file: int, place: int, which: int) -> None:
        _at(file, which, msvcrt.LK_UNLCK)

    def drop_all(file: int, place: int) -> None:
        for which in (APPLY, WRITER):
            with contextlib.suppress(OSError):  # Complains of what was not taken.
                drop(file, place, which)


def take(file: int, place: int, which: int, exclusive: bool) -> bool:
    """Take a lock, if nobody has it: False when somebody does."""
    try:
        _take(file, place, which, exclusive)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True

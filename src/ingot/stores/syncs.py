"""The system calls after which something lasts.

Knows which call of which system makes files and names survive a power cut. Refuses to know when
that is needed.
"""

import ctypes
import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Final

if sys.platform != "win32":
    import fcntl

__all__ = ["start_writing", "sync_data", "sync_file_system", "sync_folder"]

_WRITE: Final = 2


def start_writing(file: int) -> None:
    """Have the system begin to write a file back, where it can be asked for; nothing is promised.

    Whatever goes wrong, the sync of the file will meet as well, and say.
    """
    call = _system_start()
    if call is not None:
        call(file, 0, 0, _WRITE)


def sync_data(file: int) -> None:
    """Return when the content of a file lasts."""
    if sys.platform == "darwin":
        _sync_drive(file)
    else:
        getattr(os, "fdatasync", os.fsync)(file)


def sync_folder(folder: int) -> None:
    """Return when the names in a folder last."""
    if sys.platform == "darwin":
        _sync_drive(folder)
    else:
        os.fsync(folder)


def _sync_drive(file: int) -> None:
    """Sync past the cache of the drive, where fsync stops on this system."""
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC", 51))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY):
            raise
        os.fsync(file)


@functools.cache
def _system_start() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        call.restype = ctypes.c_int
    return call


@functools.cache
def _system_sync() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is not None:
        call.argtypes, call.restype = (ctypes.c_int,), ctypes.c_int
    return call


def sync_file_system(folder: int) -> None:
    """Return when everything on the file system of a folder lasts."""
    call = _system_sync()
    if call is None:
        os.sync()
    elif call(folder) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))

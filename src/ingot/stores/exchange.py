"""Two names of a file, and two names of a folder that change places in one step.

Knows the system's calls for that, and says where there are none. Refuses to know what the files
are.

Why it pays where nothing has to last: when a file takes the place of another by a plain rename,
ext4 writes it back at once, and frees the blocks of the other. After an exchange neither happens
if both are young: what was never written back has no blocks.
"""

import ctypes
import functools
import os
import stat
import sys
from collections.abc import Callable
from typing import Final

__all__ = ["exchanged", "linked", "placed", "second_name"]

_EXCHANGE: Final = 2


def exchanged(one: str, other: str, folder: int) -> bool:
    """Exchange two names in an open folder; False, and nothing done, where that is not possible.

    The second one must be a plain file that is there already.
    """
    call = _call()
    return call is not None and _is_plain(other, folder) and _done(call, one, other, folder)


def linked(old: str, origin: int, name: str, folder: int) -> bool:
    """Give a plain file of one open folder a second name in another; False where that cannot be."""
    if os.link not in os.supports_dir_fd or not _is_plain(old, origin):
        return False
    try:
        os.link(old, name, src_dir_fd=origin, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False  # No second names here, or no more of them; a copy is the same to readers.
    return True


def placed(one: str, other: str, folder: int) -> bool:
    """Give a file the place of another, and take its first name when it has the second.

    The first is a staged name. False, and nothing done, where that is not possible. At every time
    the first name, if there is one, is that of the file: who finds it there finds what he expects.
    """
    call = _call()
    if call is None or not _is_plain(other, folder):
        return False
    second = second_name(one)
    try:
        os.link(one, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False  # No second names here, or one that somebody left.
    done = _done(call, second, other, folder)
    os.unlink(second, dir_fd=folder)
    if done:
        os.unlink(one, dir_fd=folder)
    return done


def second_name(staged: str) -> str:
    """Return another name under which the same is staged, so that it is swept away likewise.

    >>> second_name(".g-2f81.0-sizes")
    '.g-2f81.0.x-sizes'
    """
    mark, transaction, name = staged.split("-", 2)
    return f"{mark}-{transaction}.x-{name}"


def _done(
    call: Callable[[int, bytes, int, bytes, int], int], one: str, other: str, at: int
) -> bool:
    # Whatever the call complains of, a rename will meet as well, and say.
    return call(at, os.fsencode(one), at, os.fsencode(other), _EXCHANGE) == 0


def _is_plain(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@functools.cache
def _call() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is not None:
        names = ctypes.c_int, ctypes.c_char_p
        call.argtypes = (*names, *names, ctypes.c_uint)
    return call

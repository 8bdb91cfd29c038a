"""Two names of a folder that change places in one step.

Knows the system's call for that, and says where there is none. Refuses to know what the files are.

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

__all__ = ["exchanged"]

_EXCHANGE: Final = 2


def exchanged(one: str, other: str, folder: int) -> bool:
    """Exchange two names in an open folder; False, and nothing done, where that is not possible.

    The second one must be a plain file that is there already.
    """
    call = _call()
    if call is None:
        return False
    try:
        plain = stat.S_ISREG(os.stat(other, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False
    # Whatever the call complains of, a rename will meet as well, and say.
    return plain and call(folder, os.fsencode(one), folder, os.fsencode(other), _EXCHANGE) == 0


@functools.cache
def _call() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is not None:
        names = ctypes.c_int, ctypes.c_char_p
        call.argtypes = (*names, *names, ctypes.c_uint)
    return call

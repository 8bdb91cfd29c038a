"""The bytes of an open file, all that was asked for and not what one system call takes.

Knows how to go on where a call ends early. Refuses to know which file it is.
"""

import errno
import os

from ingot.stores.store import Buffer, Extent

__all__ = ["read_extent", "write_at"]


def read_extent(descriptor: int, size: int, extent: Extent) -> bytes:
    """Return the bytes of an extent of a file that holds `size` bytes."""
    # Only what is stored is asked for: the length of an extent is a claim, perhaps a file's.
    available = max(size - extent.start, 0)
    length = available if extent.length is None else min(extent.length, available)
    if length == 0:
        return b""
    data = os.pread(descriptor, length, extent.start)
    if len(data) == length or not data:
        return data
    return _read_on(descriptor, data, length, extent.start)


def write_at(descriptor: int, start: int, data: Buffer) -> None:
    """Write all of `data` from `start` on."""
    view = memoryview(data)
    if view.nbytes == 0:
        return
    view = view.cast("B")
    written = 0
    while written < len(view):
        count = os.pwrite(descriptor, view[written:], start + written)
        if count == 0:
            raise OSError(errno.EIO, "nothing was written")
        written += count


def _read_on(descriptor: int, data: bytes, length: int, start: int) -> bytes:
    """Read what a system call left unread (it takes 2 GiB at most), to the end or `length`."""
    pieces, count = [data], len(data)
    while data and count < length:
        data = os.pread(descriptor, length - count, start + count)
        pieces.append(data)
        count += len(data)
    return b"".join(pieces)

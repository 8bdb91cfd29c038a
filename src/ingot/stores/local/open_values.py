"""Values of open files, read into memory of the caller by several threads at once."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ingot.errors import CorruptionError
from ingot.signals import uninterrupted
from ingot.stores.local.beneath import Root
from ingot.stores.store import Extent

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["MOST_OPEN", "OpenValues", "open_values"]

MOST_OPEN: Final = 256
"""How many files are open at a time, at most."""

# What one thread reads at a time.
_PART: Final = 1 << 20


class OpenValues:
    """The bytes of extents, whose sizes are known and which are read when there is memory for them.

    `sizes` has None for a key that is absent.
    """

    __slots__ = ("_files", "_root", "sizes")

    def __init__(self, root: Root, files: Sequence[tuple[str, int, int, int] | None]) -> None:
        self._root = root
        self._files = files
        self.sizes: list[int | None] = [None if each is None else each[3] for each in files]

    def read_into(self, memory: memoryview, executor: "Executor") -> None:
        """Read all values, one behind the other, into memory that has room for them."""
        jobs, at = [], 0
        for file in self._files:
            if file is None:
                continue
            key, descriptor, start, size = file
            for begin in range(0, size, _PART):
                end = min(begin + _PART, size)
                jobs.append((key, descriptor, start + begin, memory[at + begin : at + end]))
            at += size
        for _ in executor.map(self._read, jobs):
            pass

    def _read(self, job: tuple[str, int, int, memoryview]) -> None:
        key, descriptor, start, part = job
        done = 0
        while done < len(part):
            try:
                count = os.preadv(descriptor, [part[done:]], start + done)
            except OSError as error:
                raise self._root.failure(key, error) from error
            if not count:
                raise CorruptionError(
                    f"{self._root.path}: key {key!r} ends at byte {start + done}, "
                    "it was longer when it was opened"
                )
            done += count


@contextmanager
def open_values(root: Root, extents: Sequence[Extent]) -> Iterator[OpenValues]:
    """Open the files of extents; they are closed in the end."""
    opened: dict[str, tuple[int, int] | None] = {}
    try:
        _open(root, [extent.key for extent in extents], opened)
        files = [_part(extent, opened[extent.key]) for extent in extents]
        yield OpenValues(root, files)
    finally:
        for file in opened.values():
            if file is not None:
                os.close(file[0])


@uninterrupted
def _open(root: Root, keys: Sequence[str], opened: dict[str, tuple[int, int] | None]) -> None:
    folder = root.open()
    if folder is None:
        opened.update(dict.fromkeys(keys))
        return
    try:
        for key in keys:
            if key not in opened:
                opened[key] = root.open_file(folder, key)
    finally:
        os.close(folder)


def _part(extent: Extent, opened: tuple[int, int] | None) -> tuple[str, int, int, int] | None:
    """Return key, file, first byte and size of what is stored of an extent."""
    if opened is None:
        return None
    descriptor, size = opened
    available = max(size - extent.start, 0)
    length = available if extent.length is None else min(extent.length, available)
    return extent.key, descriptor, extent.start, length

"""Values of open files, read into memory of the caller by several threads at once.

Reading is begun, and goes on while the caller does other work: by threads of the native kernel,
which need no lock of Python, or by those of an executor. The files are closed when no thread reads
them any more.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ingot import native
from ingot.errors import CorruptionError
from ingot.signals import uninterrupted
from ingot.stores.local.beneath import Root
from ingot.stores.store import Extent

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

    from ingot.stores.store import Part

__all__ = ["MOST_OPEN", "OpenValues", "open_values"]

MOST_OPEN: Final = 256
"""How many files of a call are open at a time, at most."""

# About what one thread reads at a time. A smaller part is read in less time than it takes Python to
# hand it to a thread.
_PART: Final = 4 << 20


class OpenValues:
    """The bytes of extents, whose sizes are known and which are read when there is memory for them.

    `sizes` has None for a key that is absent.
    """

    __slots__ = ("_files", "_jobs", "_root", "sizes")

    def __init__(self, root: Root, files: Sequence[tuple[str, int, int, int] | None]) -> None:
        self._root = root
        self._files = files
        self._jobs: list[Future[Any]] = []
        self.sizes: list[int | None] = [None if each is None else each[3] for each in files]

    def begin_reading(
        self, memory: memoryview, parts: "Sequence[Part]", executor: "Executor", threads: int
    ) -> None:
        """Begin to read parts, one behind the other, into memory that has room for them."""
        if native.read_ranges() is not None:
            self._jobs.append(executor.submit(self.read_parts, memory, parts, threads))
            return
        for job in self._pieces(memory, parts):
            self._jobs.append(executor.submit(self._read, *job))

    def read_parts(self, memory: memoryview, parts: "Sequence[Part]", threads: int) -> None:
        """Read parts, one behind the other, into memory that has room for them."""
        read = native.read_ranges()
        if read is None:
            for job in self._pieces(memory, parts):
                self._read(*job)
            return
        files = [self._file(number) for number, _, _ in parts]
        ranges = [
            (file[1], file[2] + begin, end - begin)
            for file, (_, begin, end) in zip(files, parts, strict=True)
        ]
        failed = read(ranges, memory, threads)
        if failed is None:
            return
        number, done, code = failed
        key, start = files[number][0], ranges[number][1]
        if code is None:
            raise self._cut(key, start + done)
        raise self._root.failure(key, OSError(code, os.strerror(code)))

    def _file(self, number: int) -> tuple[str, int, int, int]:
        file = self._files[number]
        assert file is not None, "what is absent has no parts"
        return file

    def _pieces(
        self, memory: memoryview, parts: "Sequence[Part]"
    ) -> Iterator[tuple[str, int, int, memoryview]]:
        """Yield what `_read` takes, in pieces that a thread reads at a time."""
        at = 0
        for number, begin, end in parts:
            key, descriptor, start, _ = self._file(number)
            size = end - begin
            count = max(round(size / _PART), 1)
            for piece in range(count):
                low, high = size * piece // count, size * (piece + 1) // count
                yield key, descriptor, start + begin + low, memory[at + low : at + high]
            at += size

    def finish_reading(self) -> None:
        """Wait until all parts are read; raise the error of the first one that cannot be."""
        for job in self._jobs:
            job.result()

    def _cut(self, key: str, end: int) -> CorruptionError:
        return CorruptionError(
            f"{self._root.path}: key {key!r} ends at byte {end}, it was longer when it was opened"
        )

    @uninterrupted
    def end(self) -> None:
        """Return when no thread reads the files any more; what has not begun is left out."""
        started = [job for job in self._jobs if not job.cancel()]
        for job in started:
            job.exception()

    def _read(self, key: str, descriptor: int, start: int, part: memoryview) -> None:
        done = 0
        while done < len(part):
            try:
                count = os.preadv(descriptor, [part[done:]], start + done)
            except OSError as error:
                raise self._root.failure(key, error) from error
            if not count:
                raise self._cut(key, start + done)
            done += count


@contextmanager
def open_values(root: Root, extents: Sequence[Extent]) -> Iterator[OpenValues]:
    """Open the files of extents; they are closed in the end."""
    opened: dict[str, tuple[int, int] | None] = {}
    try:
        _open(root, [extent.key for extent in extents], opened)
        files = [_part(extent, opened[extent.key]) for extent in extents]
        values = OpenValues(root, files)
        try:
            yield values
        finally:
            values.end()
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
        wanted, several = list(dict.fromkeys(keys)), native.open_files()
        found = [None] * len(wanted) if several is None else several(folder, wanted)
        opened.update(zip(wanted, found, strict=True))
        # One that is no plain file is opened alone, which says what it is.
        for key in (key for key in wanted if opened[key] is None):
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

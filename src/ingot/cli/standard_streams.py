"""The standard streams of a command, which may be closed or unable to show all characters."""

import io
import os
import sys
from typing import NoReturn, TextIO, cast

from ingot.errors import NotFoundError

__all__ = ["prepare"]


def prepare() -> None:
    """Make the standard streams safe to use, whatever the process was started with.

    The use of a closed stream is an `IngotError` that names it; messages to a closed standard error
    are lost. What the encoding of a stream does not have is written as an escape, such as names of
    files that are no Unicode.
    """
    _occupy_closed()
    if sys.stdin is None:
        sys.stdin = cast(TextIO, _ClosedStream("standard input"))
    if sys.stdout is None:
        sys.stdout = cast(TextIO, _ClosedStream("standard output"))
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class _ClosedStream(io.TextIOBase):
    """A stream that is not there."""

    def __init__(self, name: str) -> None:
        self._name = name

    def fileno(self) -> NoReturn:
        raise NotFoundError(f"{self._name} is closed")

    def write(self, text: str) -> NoReturn:
        raise NotFoundError(f"{self._name} is closed")

    def isatty(self) -> bool:
        return False


def _occupy_closed() -> None:
    """Open something in the place of closed streams: no other file shall get their numbers.

    What some code writes to standard error would otherwise end up in a file of data.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest number that is free is taken: this one.
            os.open(os.devnull, os.O_RDWR)

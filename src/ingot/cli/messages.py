"""Errors as the commands show them: one sentence on standard error, and the exit status."""

import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ingot.cli.output import wrapped
from ingot.cli.parameters import BadParameter, Exit
from ingot.errors import IngotError
from ingot.fields import printable

__all__ = [
    "as_options",
    "as_typed",
    "message_of",
    "reporting",
    "silence_output",
    "usage",
    "with_notes",
]

_OPTIONS: Final = {
    "overwrite=True": "--overwrite",
    "Options(allow_pickle=True)": "--allow-pickle",
}
"""Arguments of functions as the commands spell them."""


@contextmanager
def reporting(*, debug: bool = False, words: Sequence[str] = ()) -> Iterator[None]:
    """Turn errors of a block into one sentence on standard error and exit status 1.

    `debug` shows the traceback as well; paths are shown as `words` have them. A reader that closes
    the pipe has seen enough: that is no error. `Exit` and `BadParameter` pass through.
    """
    try:
        yield
    except BrokenPipeError:
        silence_output()
        raise Exit(0) from None
    except (Exit, BadParameter):
        raise
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        text = as_typed(as_options(message_of(error)), words)
        if not isinstance(error, IngotError | OSError | UnicodeError | MemoryError):
            text = f"unexpected {type(error).__name__}: {text} (--debug shows where)"
        lines = printable(with_notes(f"ingot: {text}", error), keep="\n")
        if sys.stderr.isatty():
            lines = wrapped(lines, max(shutil.get_terminal_size().columns, 20))
        print(lines, file=sys.stderr)
        raise Exit(1) from None


def as_options(text: str) -> str:
    """Return a message with arguments of functions spelled as options of commands.

    >>> as_options("the target exists; overwrite=True replaces it")
    'the target exists; --overwrite replaces it'
    """
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text


def as_typed(text: str, words: Iterable[str | os.PathLike[str]]) -> str:
    """Return a text that names paths as they were typed, not from the root on.

    >>> as_typed(f"{os.path.abspath('old')}/a.blp: damaged", ["old"])
    'old/a.blp: damaged'
    """
    typed = {os.path.abspath(word): os.fspath(word) for word in words if os.fspath(word)}
    for whole in sorted(typed, key=len, reverse=True):
        if len(whole) > 1 and whole != typed[whole]:
            pattern = rf"(?<![^\s'\"]){re.escape(whole)}(?![^\s/:;,'\"])"
            text = re.sub(pattern, lambda _, name=typed[whole]: name, text)  # type: ignore[misc]
    return text


def message_of(error: BaseException, name: str | None = None) -> str:
    """Return an error as one line, with the file that it is about.

    >>> message_of(PermissionError(13, "Permission denied", "/root"))
    '/root: Permission denied'
    >>> message_of(ValueError("axis 3 of 2"), "prices")
    'prices: axis 3 of 2'
    """
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, IngotError) and error.errno:
        text = os.strerror(error.errno)
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else name
    if isinstance(error, MemoryError):
        text = text or "not enough memory"
    if name is not None and name not in text:
        text = f"{name}: {text}"
    return " ".join(text.splitlines())


def silence_output() -> None:
    """Lead standard output to nowhere, so that Python does not complain of it at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def usage() -> Iterator[None]:
    """Turn wrong values of options, which raise `ValueError`, into an error of usage."""
    try:
        yield
    except ValueError as error:
        raise BadParameter(str(error)) from None


def with_notes(text: str, error: BaseException) -> str:
    """Return a message with the notes of an error below it.

    >>> error = ValueError("no such column")
    >>> error.add_note("in prices.bcolz")
    >>> with_notes("no such column", error)
    'no such column\\n  in prices.bcolz'
    """
    return text + "".join(f"\n  {note}" for note in getattr(error, "__notes__", ()))

"""Ctrl-C and forks: what happens to locks and snapshots when either comes at a bad moment.

`Deferred` holds Ctrl-C back while a lock is taken, a commit is applied or a lock is released; it is
raised when the block ends. `forks` counts the forks between this process and the first one, so that
an object can tell that it was copied into a child and that the threads that held its locks do not
exist there.
"""

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, ParamSpec, Self, TypeVar

from ingot import native

__all__ = ["Deferred", "check", "forks", "uninterrupted"]


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# `signal` wraps the functions of this module to turn handlers into enum members, which takes longer
# than the calls. Other implementations of Python may not have it.
_signal: Final[Any] = sys.modules.get("_signal", signal)
_get_handler: Final[Callable[[int], Any]] = _signal.getsignal
_set_handler: Final[Callable[[int, Any], Any]] = _signal.signal
_SIGINT: Final = int(signal.SIGINT)


class _State:
    """The state of the main thread, the only one in which signal handlers run."""

    __slots__ = ("depth", "forks", "main", "note", "pending", "previous")

    def __init__(self) -> None:
        self.depth = 0
        self.forks = 0
        self.main = threading.main_thread().ident
        self.note: str | None = None
        self.pending: FrameType | bool | None = None
        self.previous: Any = signal.default_int_handler


_STATE: Final = _State()


def forks() -> int:
    """Return how many forks lie between the first process and this one."""
    return _STATE.forks


def _forked() -> None:
    _STATE.forks += 1
    # The thread that forked is the main thread of the child.
    _STATE.main = threading.get_ident()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _handle(number: int, frame: FrameType | None) -> None:
    # A native call that checks for signals ends with what the handler raises: a good place.
    if _STATE.depth and not native.is_checking_signals():
        _STATE.pending = True if frame is None else frame
    else:
        _STATE.previous(number, frame)


def check() -> None:
    """Raise what Ctrl-C raises, if it was held back; called between pieces of a long work."""
    if _STATE.pending is not None and threading.get_ident() == _STATE.main:
        frame, _STATE.pending = _STATE.pending, None
        _STATE.previous(signal.SIGINT, None if isinstance(frame, bool) else frame)


class Deferred:
    """A block during which Ctrl-C is held back; it is raised when the outermost block ends.

    `note` is added to the exception that is raised then.

    >>> before = signal.signal(signal.SIGINT, lambda number, frame: print("interrupted"))
    >>> with Deferred():
    ...     signal.raise_signal(signal.SIGINT)
    ...     print("done")
    done
    interrupted
    >>> _ = signal.signal(signal.SIGINT, before)
    """

    __slots__ = ("_entered", "note")

    def __init__(self) -> None:
        self._entered = False
        self.note: str | None = None

    def __enter__(self) -> Self:
        if threading.get_ident() == _STATE.main:
            if not _STATE.depth:
                _STATE.note = None
                current = _get_handler(_SIGINT)
                if current is not _handle and callable(current):
                    # Until the depth is raised the handler only calls the previous one.
                    _STATE.previous = current
                    _set_handler(_SIGINT, _handle)
            # No call below: nothing can be raised between these two and the block.
            _STATE.depth += 1
            self._entered = True
        return self

    def __exit__(self, *error: object) -> None:
        if not self._entered:
            return
        self._entered = False
        if self.note is not None:
            _STATE.note = self.note
        # From the next line on Ctrl-C is raised at once, so all of them are in this block.
        try:
            _STATE.depth -= 1
            if _STATE.depth:
                return
            if _get_handler(_SIGINT) is _handle:
                _set_handler(_SIGINT, _STATE.previous)
            check()
        except BaseException as raised:
            if _STATE.note is not None:
                raised.add_note(_STATE.note)
            raise


def uninterrupted(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Return a function during which Ctrl-C is held back, so that it closes what it opens.

    >>> uninterrupted(max)(1, 2)
    2
    """

    @functools.wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Result:
        if _STATE.depth and threading.get_ident() == _STATE.main:
            return function(*given, **named)  # A block further out holds it back.
        with Deferred():
            return function(*given, **named)

    return call

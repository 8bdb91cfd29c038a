"""Readers whose runs are remembered by the answers that they get.

A reader changes nothing, and what it does next follows from what it has read so far. Two states of
a disk that give the same answers to all its questions therefore give the same outcome. Most of the
many thousand states and schedules of a proof differ only in bytes that the reader never asks for:
for them the questions are asked again, and the reader itself is not run.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeVar, cast

from ingot.errors import IngotError
from ingot.stores.local.files import FileSystem
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Extent
from ingot.stores.versions import LogState, Version
from ingot.testing.disk import Disk

__all__ = ["Operation", "RememberedReader", "Respondent", "answer"]

Operation: TypeAlias = tuple[Hashable, ...]
"""The name of a question and its arguments."""


class Respondent(Protocol):
    """What answers the questions of a reader."""

    def ask(self, operation: Operation) -> Hashable:
        """Return the answer to a question."""
        ...


S = TypeVar("S", bound=Respondent)


def answer(disk: Disk, operation: Operation) -> Hashable:
    """Return what a disk answers.

    >>> answer(Disk({"a": b"xyz"}), ("read", "a", (Extent("a", 1),)))
    (b'yz',)
    """
    name, *arguments = operation
    found = getattr(disk, cast(str, name))(*arguments)
    return tuple(found) if type(found) is list else found


class RememberedReader:
    """A reader, with the outcome of every run so far.

    An outcome is the number that the reader returns, or a text with the error that it raises.
    """

    def __init__(self, read: Callable[[LocalStore], int]) -> None:
        self._read = read
        self._first: _Question | None = None
        self.runs = 0
        """How many times the reader itself had to be run."""

    def outcome(self, begin: Callable[[], S]) -> tuple[int | str, S]:
        """Return what the reader makes of a source, and the source after its last question."""
        source = begin()
        step: _Question | int | str | None = self._first
        while isinstance(step, _Question):
            step = step.next.get(source.ask(step.operation))
        if step is not None:
            return step, source
        return self._run(begin())

    def _run(self, source: S) -> tuple[int | str, S]:
        self.runs += 1
        files = _Recorder(source)
        result: int | str
        try:
            result = self._read(LocalStore(cast(FileSystem, files)))
        except (AssertionError, ValueError, IngotError, OSError) as error:
            result = f"a reader fails: {error!r}"
        self._remember(files.asked, result)
        return result, source

    def _remember(self, asked: Sequence[tuple[Operation, Hashable]], result: int | str) -> None:
        assert asked, "a reader that asks for nothing"
        if self._first is None:
            self._first = _Question(asked[0][0])
        question = self._first
        for (operation, given), (following, _) in pairwise(asked):
            assert question.operation == operation, "the reader does not depend on answers alone"
            then = question.next.setdefault(given, _Question(following))
            assert isinstance(then, _Question), "the reader does not depend on answers alone"
            question = then
        assert question.operation == asked[-1][0], "the reader does not depend on answers alone"
        question.next[asked[-1][1]] = result


class _Question:
    """What a reader asks at one point, and what follows from each answer seen so far."""

    __slots__ = ("next", "operation")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.next: dict[Hashable, _Question | int | str] = {}


class _Recorder:
    """The files of a reader, which notes all questions and answers."""

    path = "replay"

    def __init__(self, source: Respondent) -> None:
        self._source = source
        self.asked: list[tuple[Operation, Hashable]] = []

    def open(self) -> "_Recorder":
        return self

    def create(self, *, sync: bool) -> "_Recorder":
        raise AssertionError("a reader writes")

    def transaction(self) -> str:
        raise AssertionError("a reader writes")

    def close(self) -> None:
        return

    def version(self, name: str) -> Version:
        return cast(Version, self._ask("version", name))

    def log_state(self, name: str) -> LogState:
        return cast(LogState, self._ask("log_state", name))

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        found = cast(tuple[bytes, ...] | None, self._ask("read", key, tuple(extents)))
        return None if found is None else list(found)

    def size(self, key: str) -> int | None:
        return cast(int | None, self._ask("size", key))

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        return list(cast(tuple[str, ...], self._ask("names", folder)))

    def pin(self, name: str, wait: float) -> "_Recorder":
        self._ask("pin", name, wait)
        return self

    def release(self) -> None:
        self._ask("release")

    def _ask(self, *operation: Hashable) -> Hashable:
        found = self._source.ask(operation)
        self.asked.append((operation, found))
        return found

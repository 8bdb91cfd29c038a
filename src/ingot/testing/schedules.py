"""One writer and one reader, in every interleaving of their steps.

A reader changes nothing, so the work of a writer is recorded once, as the state after each of its
steps, and a reader is run against these states, later and later ones as the schedule says. No
thread is needed, every schedule can be repeated, and ten thousand take seconds.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from ingot.stores.local.store import LocalStore
from ingot.stores.store import Store
from ingot.stores.versions import read_state
from ingot.testing.crashes import Scenario
from ingot.testing.disk import Disk
from ingot.testing.readers import Operation, RememberedReader, answer

__all__ = ["Meeting", "schedules"]


@dataclass(frozen=True, slots=True)
class Meeting:
    """One schedule: the writer does `count` steps before operation `number` of the reader."""

    switches: tuple[tuple[int, int], ...]
    fault: str | None


def schedules(
    scenario: Scenario, *, switches: int = 2, read: Callable[[Store], int] | None = None
) -> Iterator[Meeting]:
    """Yield every schedule with at most `switches` switches to the writer, with its fault if any.

    What the reader sees must have been the committed state at some moment while it read. Without
    `read`, the scenario judges by `read_state`.
    """
    reader = RememberedReader(read or (lambda store: read_state(store, scenario.judge)))
    moments = _record(scenario)
    answers: dict[tuple[int, Operation], Hashable] = {}
    truths = [scenario.judge(LocalStore(moment).view()) for moment in moments]
    waiting: list[tuple[tuple[int, int], ...]] = [()]
    while waiting:
        chosen = waiting.pop()
        outcome, replay = reader.outcome(partial(_Replay, moments, answers, dict(chosen)))
        fault = None
        if isinstance(outcome, str):
            fault = outcome
        elif outcome not in truths[replay.first : replay.now + 1]:
            fault = f"a reader sees {outcome}"
        yield Meeting(chosen, fault)
        if len(chosen) < switches:
            begin = chosen[-1][0] + 1 if chosen else 0
            for number in range(begin, len(replay.room)):
                for count in range(1, replay.room[number] + 1):
                    waiting.append((*chosen, (number, count)))


def _record(scenario: Scenario) -> list[Disk]:
    """Return the disk before the first step of the writer, and after each."""
    disk = Disk(scenario.files)
    moments = [disk.copy()]
    disk.after = lambda: moments.append(disk.copy())
    for change in scenario.steps:
        change(LocalStore(disk, writable=True))
        moments.append(disk.copy())
    return moments


@dataclass(slots=True)
class _Replay:
    """The source of a reader: before each operation the writer may have gone on."""

    moments: Sequence[Disk]
    answers: dict[tuple[int, Operation], Hashable]
    """What the moments have answered so far: schedules ask the same again and again."""
    switches: dict[int, int]
    now: int = 0
    first: int = 0
    held: bool = False
    room: list[int] = field(default_factory=list)
    """How many steps the writer could have done before each operation."""

    def ask(self, operation: Operation) -> Hashable:
        if operation[0] == "release":
            self.held = False
            return None
        self._go_on()
        if operation[0] == "pin":
            while self.moments[self.now].applying:
                self.now += 1
            self.held = True
            return None
        key = self.now, operation
        if key not in self.answers:
            self.answers[key] = answer(self.moments[self.now], operation)
        return self.answers[key]

    def _go_on(self) -> None:
        """Advance the writer as the schedule says."""
        last = len(self.moments) - 1
        if self.held:
            # A writer that needs the apply lock waits for this reader.
            last = self.now
            while last + 1 < len(self.moments) and not self.moments[last + 1].applying:
                last += 1
        number = len(self.room)
        self.room.append(last - self.now)
        self.now += min(self.switches.get(number, 0), last - self.now)
        if not number:
            self.first = self.now

"""One writer and one reader, in every interleaving of their steps.

A reader changes nothing, so the work of a writer is recorded once, as the state after each of its
steps, and a reader is run against these states, later and later ones as the schedule says. No
thread is needed, every schedule can be repeated, and ten thousand take seconds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import cast

from ingot.errors import IngotError
from ingot.stores.local.files import FileSystem
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Extent, Store
from ingot.stores.versions import Version, read_state
from ingot.testing.crashes import Scenario
from ingot.testing.disk import Disk

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
    reader = read or (lambda store: read_state(store, scenario.judge))
    moments = _record(scenario)
    truths = [scenario.judge(LocalStore(moment).view()) for moment in moments]
    waiting: list[tuple[tuple[int, int], ...]] = [()]
    while waiting:
        chosen = waiting.pop()
        replay = _Replay(moments, dict(chosen))
        store = LocalStore(cast(FileSystem, replay))
        fault = None
        try:
            found = reader(store)
            if found not in truths[replay.first : replay.now + 1]:
                fault = f"a reader sees {found}"
        except (AssertionError, ValueError, IngotError, OSError) as error:
            fault = f"a reader fails: {error!r}"
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
    """The file system of a reader: before each operation the writer may have gone on."""

    moments: Sequence[Disk]
    switches: dict[int, int]
    now: int = 0
    first: int = 0
    held: bool = False
    room: list[int] = field(default_factory=list)
    """How many steps the writer could have done before each operation."""

    path = "replay"

    def open(self) -> "_Replay":
        return self

    def create(self, *, sync: bool) -> "_Replay":
        raise AssertionError("a reader writes")

    def transaction(self) -> str:
        raise AssertionError("a reader writes")

    def close(self) -> None:
        return

    def version(self, name: str) -> Version:
        return self._moment().version(name)

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        return self._moment().read(key, extents)

    def size(self, key: str) -> int | None:
        return self._moment().size(key)

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        return self._moment().names(folder)

    def pin(self, name: str, wait: float) -> "_Replay":
        self._moment()
        while self.moments[self.now].applying:
            self.now += 1
        self.held = True
        return self

    def release(self) -> None:
        self.held = False

    def _moment(self) -> Disk:
        """Advance the writer as the schedule says, and return the disk as it is then."""
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
        return self.moments[self.now]

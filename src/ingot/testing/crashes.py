"""The proof that every crash leaves a committed state.

A series of commits is cut after every step, and every state that a power cut may leave is built. A
reader judges it, a writer recovers it, and that writer crashes as well. A `Scenario` says what is
stored, changed and read.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from ingot.errors import IngotError
from ingot.stores.local.lock import LockState
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Store, is_staged
from ingot.testing.disk import Disk, Image
from ingot.testing.readers import Operation, RememberedReader, answer

__all__ = ["Proof", "Scenario", "prove"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """The files at the beginning, the commits that are made, and how to recognise the states.

    `judge` reads a store and returns how many of `steps` have taken effect; it raises
    `AssertionError` for any other state.
    """

    files: Mapping[str, bytes]
    steps: tuple[Callable[[Store], None], ...]
    judge: Callable[[Store], int]


@dataclass(slots=True)
class Proof:
    """The states that a crash can leave, and the faults that were found."""

    states: dict[Image, int] = field(default_factory=dict)
    """Every distinct state, with the number that a reader judges it to be."""
    kills: int = 0
    """How many times a writer was killed with its unsynced changes still in memory."""
    faults: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether no faults were found."""
        return not self.faults


def prove(
    scenario: Scenario,
    *,
    kills: bool = True,
    deep: bool = False,
    contents: int = 256,
    skip: int | None = None,
    most_faults: int = 1,
) -> Proof:
    """Take a scenario through every crash, and return the proof.

    With `kills` the writer is also killed after every step, and the next writer goes on with what
    was in memory; with `deep` the whole commit of the next writer is cut as well, not only its
    recovery. Of the contents that unsynced files may have, up to `contents` combinations are tried
    all, of more a part. `skip` leaves out one step that changes the disk, to test the proof itself.

    >>> from ingot.stores import Commit, Extent, Put
    >>> def change(store):
    ...     store.apply(Commit(publish=(Put("a", b"new"), Put("b", b"new"))))
    >>> def judge(store):
    ...     return [[b"old"] * 2, [b"new"] * 2].index(store.read([Extent("a"), Extent("b")]))
    >>> scenario = Scenario({"a": b"old", "b": b"old"}, (change,), judge)
    >>> proof = prove(scenario)
    >>> proof.holds, len(proof.states) > 25  # Each new file absent, empty, half, zeros or full.
    (True, True)
    >>> print(prove(scenario, skip=6).faults[0])
    a crash after 'unlink .commit': a reader fails: ...
    """
    return _Prover(scenario, most_faults, deep, contents).run(kills, skip)


class _Remains:
    """A disk that answers a reader and has no writer."""

    __slots__ = ("_disk",)

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def ask(self, operation: Operation) -> Hashable:
        return None if operation[0] in ("pin", "release") else answer(self._disk, operation)


class _Prover:
    def __init__(self, scenario: Scenario, most_faults: int, deep: bool, contents: int) -> None:
        self.scenario = scenario
        self.deep = deep
        self.contents = contents
        self.most_faults = most_faults
        self.proof = Proof()
        self.reader = RememberedReader(lambda store: scenario.judge(store.view()))
        self.waiting: deque[tuple[Image, str]] = deque()

    def run(self, kills: bool, skip: int | None) -> Proof:
        disk = Disk(self.scenario.files)
        live: list[tuple[Disk, int, str]] = []
        step = 0

        def after() -> None:
            what = f"a crash after {disk.steps[-1]!r}"
            self.see(disk, {step, step + 1}, what, newest=True)
            if kills:
                live.append((disk.copy(), step, disk.steps[-1]))

        disk.after = after
        disk.watch = None if skip is None else lambda what: len(disk.steps) == skip + 1
        self.see(disk, {0}, "a crash before anything was done")
        for step, change in enumerate(self.scenario.steps):
            try:
                change(LocalStore(disk, writable=True))
            except (IngotError, OSError, KeyError) as error:
                self.fault(f"step {step} fails: {error!r}")
                return self.proof
            self.check_tidy(disk, f"commit {step}")
            self.see(disk, {step + 1}, f"a crash after commit {step} was acknowledged")
            if self.full:
                return self.proof
        self.drain()
        for killed, at, what in live:
            if self.full:
                break
            self.kill(killed, at, f"a death after {what!r}")
        return self.proof

    @property
    def full(self) -> bool:
        return len(self.proof.faults) >= self.most_faults

    def fault(self, text: str) -> None:
        self.proof.faults.append(text)

    def see(self, disk: Disk, allowed: set[int], what: str, *, newest: bool = False) -> None:
        """Judge all states that a power cut may leave now."""
        for image in disk.images(newest=newest, contents=self.contents):
            found = self.proof.states.get(image)
            if found is None:
                found = self.judge(image, what)
                self.proof.states[image] = found
                self.waiting.append((image, what))
            if found not in allowed and not self.full:
                self.fault(f"{what}: a reader sees {found}, not one of {sorted(allowed)}: {image}")

    def judge(self, image: Image, what: str) -> int:
        """Return what a reader takes a state for that a power cut left; -1 if for nothing."""
        outcome, _ = self.reader.outcome(lambda: _Remains(Disk.of(image)))
        if isinstance(outcome, int):
            return outcome
        if not self.full:
            self.fault(f"{what}: {outcome}")
        return -1

    def read(self, store: LocalStore, what: str) -> int:
        """Return the number that a reader judges a state to be; -1 when it fails."""
        try:
            return self.scenario.judge(store.view())
        except (AssertionError, ValueError, IngotError, OSError) as error:
            if not self.full:
                self.fault(f"{what}: a reader fails: {error!r}")
            return -1

    def drain(self) -> None:
        """Recover every state, and judge what a crash during recovery leaves."""
        while self.waiting and not self.full:
            image, what = self.waiting.popleft()
            self.recover(Disk.of(image), self.proof.states[image], f"{what}, then recovery")

    def recover(self, disk: Disk, seen: int, what: str) -> None:
        disk.after = lambda: self.see(disk, {seen}, f"{what} and a crash in it", newest=True)
        store = LocalStore(disk, writable=True)
        try:
            store.recover()
        except (IngotError, OSError) as error:
            self.fault(f"{what}: fails: {error!r}")
            return
        self.check_tidy(disk, what)
        if self.read(store, what) != seen:
            self.fault(f"{what}: does not keep what a reader saw")

    def check_tidy(self, disk: Disk, what: str) -> None:
        folders = [""]
        while folders:
            folder = folders.pop()
            for name in disk.names(folder):
                if name.endswith("/"):
                    folders.append(f"{folder}/{name[:-1]}" if folder else name[:-1])
                elif is_staged(name) or name == ".commit":
                    self.fault(f"{what}: {folder}/{name} is left over")

    def kill(self, disk: Disk, step: int, what: str) -> None:
        """Let the next writer go on after one was killed, with nothing lost and nothing synced."""
        self.proof.kills += 1
        if disk.state not in (LockState.CLEAN, LockState.LOGGED):
            disk.state = LockState.BUSY
        allowed = {step, step + 1}
        seen = self.read(LocalStore(disk), what)
        if seen not in allowed:
            self.fault(f"{what}: a reader sees {seen}, not one of {sorted(allowed)}")
            return
        store = LocalStore(disk, writable=True)
        later = f"{what}, then the next writer and a crash"
        disk.after = lambda: self.see(disk, allowed, later, newest=True)
        try:
            if not self.deep:
                store.recover()
                disk.after = None
            self.scenario.steps[step](store)
        except (IngotError, OSError) as error:
            self.fault(f"{what}: the next writer fails: {error!r}")
            return
        self.see(disk, {step + 1}, f"{what}, then the next writer")
        if self.read(store, what) != step + 1:
            self.fault(f"{what}: the next writer does not write")
        self.drain()

"""Faults of the system at every single step: a full disk, a broken one.

One step of a scenario fails, once or from then on for ever, and what must hold afterwards is
checked.
"""

import errno
from collections.abc import Iterator
from dataclasses import dataclass

from ingot.errors import IngotError, ReadOnlyError
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Commit, Delete
from ingot.testing.crashes import Scenario
from ingot.testing.disk import Disk

__all__ = ["Fault", "strike"]


@dataclass(frozen=True, slots=True)
class Fault:
    """Step number `at` fails with a system error, and all steps after it if `forever`."""

    at: int
    code: int = errno.EIO
    forever: bool = False


def strike(scenario: Scenario, fault: Fault) -> tuple[bool, list[str]]:
    """Run a scenario with a fault; return whether it occurred, and what is wrong afterwards.

    The commit fails with the error, the state is the old or the new one, also after a power cut,
    a store whose sync failed writes no more, and the next one writes and leaves nothing behind.
    """
    disk = Disk(scenario.files)
    struck: list[str] = []

    def watch(what: str) -> None:
        number = len(disk.steps) - 1
        if number == fault.at or (fault.forever and number > fault.at):
            struck.append(what)
            raise OSError(fault.code, "fault")

    disk.watch = watch
    for step, change in enumerate(scenario.steps):
        store = LocalStore(disk, writable=True)
        try:
            change(store)
        except OSError as error:
            disk.watch = None
            if not struck or error.errno != fault.code:
                return True, [f"step {step} fails with {error!r}"]
            return True, list(_aftermath(scenario, disk, store, step, struck))
        if struck:
            return True, [f"step {step} does not tell that {struck[0]!r} failed"]
    return False, []


def _aftermath(
    scenario: Scenario, disk: Disk, store: LocalStore, step: int, struck: list[str]
) -> Iterator[str]:
    what = f"after {struck[0]!r} failed"
    change, allowed = scenario.steps[step], (step, step + 1)
    try:
        if (found := scenario.judge(LocalStore(disk).view())) not in allowed:
            yield f"{what}: a reader sees {found}"
        for image in disk.images():
            if (found := scenario.judge(LocalStore(Disk.of(image)).view())) not in allowed:
                yield f"{what}, and a power cut: a reader sees {found}"
        yield from _refused(store, struck, what)
        following = LocalStore(disk, writable=True)
        following.recover()
        change(following)
        if (found := scenario.judge(LocalStore(disk).view())) != step + 1:
            yield f"{what}: the next writer leaves {found}"
    except (AssertionError, ValueError, IngotError, OSError) as error:
        yield f"{what}: {error!r}"
    left = [name for name in disk.names("") if name.startswith((".g-", ".commit"))]
    if left:
        yield f"{what}: {left} are left over"


def _refused(store: LocalStore, struck: list[str], what: str) -> Iterator[str]:
    if struck[0].startswith("sync"):
        try:
            store.apply(Commit(cleanup=(Delete("absent"),)))
        except ReadOnlyError:
            return
        yield f"{what}: the same store writes on"

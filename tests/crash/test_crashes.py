"""No crash leaves anything but a committed state, and no step of a commit is there for nothing."""

import pytest

from ingot.stores import Commit, Delete, LocalStore, Put
from ingot.stores.local.commit import CommitRun
from ingot.stores.local.journal import Carried, Journal, Placed
from ingot.stores.local.lock import LockState
from ingot.testing import Disk, Scenario, prove
from tests.crash.scenarios import (
    APPEND,
    ARRAYS,
    FRAMES,
    MIXED,
    OLD,
    PLAIN,
    TRIM,
    array,
    filled,
    plain,
    puts,
    rows,
)

SCENARIOS = {
    **PLAIN,
    **{f"frame: {name}": scenario for name, scenario in FRAMES.items()},
    **{f"array: {name}": scenario for name, scenario in ARRAYS.items()},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(SCENARIOS[name])
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(SCENARIOS[name].steps) + 1))


@pytest.mark.parametrize(
    "name",
    [
        "two keys",
        "two large keys",
        "three keys",
        "append",
        "frame: appended",
        "array: three chunks",
    ],
)
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(SCENARIOS[name], deep=True).faults == []


# Without syncs: only the process dies.
UNSYNCED = {
    "two keys": plain(filled(2, b"old"), puts(2, b"new"), durability="process"),
    "large and small keys": plain(OLD, MIXED, durability="process"),
    "new folders": plain(
        {}, puts(2, b"new", "f/g/"), puts(3, b"newer", "f/"), durability="process"
    ),
}


@pytest.mark.parametrize("name", UNSYNCED)
def test_a_death_without_syncs_leaves_a_committed_state(name: str) -> None:
    scenario = UNSYNCED[name]
    disk = Disk(scenario.files)
    killed: list[tuple[Disk, int, str]] = []
    done: list[int] = []
    disk.after = lambda: killed.append((disk.copy(), len(done), disk.steps[-1]))
    for change in scenario.steps:
        change(LocalStore(disk, writable=True))
        done.append(len(done))
    seen = set()
    for left, step, last in killed:
        left.state = LockState.BUSY
        found = scenario.judge(LocalStore(left).view())
        assert found in (step, step + 1), last
        store = LocalStore(left, writable=True)
        store.recover()
        assert scenario.judge(store) == found, last
        names = [name for folder in ("", "f", "f/g") for name in left.names(folder)]
        assert not [name for name in names if name.startswith((".g-", ".commit"))], last
        seen.add(found)
    assert seen == set(range(len(scenario.steps) + 1))


def _put(*keys: str, value: bytes = b"new") -> Commit:
    return Commit(publish=tuple(Put(key, value + key.encode()) for key in keys))


FLAT = [str(number) for number in range(5)]
NESTED = [f"f{number % 2}/{number}" for number in range(5)]
DEEP = [f"f/{number % 3}/{number}" for number in range(5)]
LARGE: dict[str, Scenario] = {
    "replaced": plain(dict.fromkeys(FLAT, b"old"), _put(*FLAT)),
    "new": plain({}, _put(*(f"new{key}" for key in FLAT))),
    "in a folder": plain({"f/0": b"old"}, _put(*(f"f/{key}" for key in FLAT))),
    "in two folders": plain(dict.fromkeys(NESTED, b"old"), _put(*NESTED)),
    "in three folders": plain(dict.fromkeys(DEEP, b"old"), _put(*DEEP)),
    "with a removal": plain(
        {"gone": b"old"}, Commit(publish=(*_put(*FLAT, "5", value=b"x").publish, Delete("gone")))
    ),
    "array": array((20,), [{(n,): bytes([n + 50]) * 4 for n in range(5)}]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_thousand_states(name: str) -> None:
    # While nothing is synced, each of six new files, most often with the journal among them, is
    # absent, empty, half, zeros, or there. Keys and values differ between the scenarios, so no
    # state is counted twice.
    proof = prove(LARGE[name], kills=False, contents=4**6)
    assert proof.faults == []
    assert len(proof.states) >= 5**6 > 100_000 / len(LARGE)


def _steps(scenario: Scenario) -> list[str]:
    disk = Disk(scenario.files)
    for change in scenario.steps:
        change(LocalStore(disk, writable=True))
    return disk.steps


def _may_be_left_out(name: str, steps: list[str], number: int) -> bool:
    """Return why no crash notices: what is removed is not read, or nothing follows to be undone."""
    if steps[number].startswith("unlink"):
        return steps[number] != "unlink .commit"
    if name.startswith("frame") and steps[number] == "truncate":
        return True  # What lies behind the end is not read, and is overwritten.
    if name == "one moved" and number == 4:
        return True  # A staged name needs to last only when a journal speaks of it.
    if name in ("one truncated", "truncated, then grown") and number == 4:
        return True  # A truncation alone leaves the old or the new value without its journal, too.
    return steps[number].startswith("sync folder") and steps[number - 1].startswith("unlink")


KINDS = ("sync", "rename", "create", "write", "truncate", "unlink", "mkdir")


def _missed(name: str) -> list[tuple[int, str]]:
    scenario = SCENARIOS[name]
    return [
        (number, step)
        for number, step in enumerate(_steps(scenario))
        if step.startswith(KINDS) and prove(scenario, skip=number).holds
    ]


# Where a single file changes alone, a torn header of four bytes is none of the states.
ALONE = {f"frame: {name}" for name in FRAMES if not name.endswith(("key", "and appended"))}
TRIED = [name for name in SCENARIOS if "five" not in name and name not in ALONE]


@pytest.mark.parametrize("name", TRIED)
def test_no_step_can_be_left_out(name: str) -> None:
    steps = _steps(SCENARIOS[name])
    missed = [found for found in _missed(name) if not _may_be_left_out(name, steps, found[0])]
    assert missed == []


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("many keys, then one of them", ("unlink .commit", "sync folder .")),
        ("patched, then replaced", ("unlink .commit", "sync folder .")),
        ("array: shrink, then grow", ("unlink 3", "sync folder .")),
    ],
)
def test_what_follows_a_removal_needs_its_sync(name: str, step: tuple[str, str]) -> None:
    steps = _steps(SCENARIOS[name])
    numbers = [n + 1 for n in range(len(steps) - 1) if (steps[n], steps[n + 1]) == step]
    assert numbers
    for number in numbers:
        assert not prove(SCENARIOS[name], skip=number).holds


# The order of commits, and the parts of recovery


@pytest.mark.parametrize(
    "commit",
    [
        Commit(prepare=TRIM.cleanup, publish=TRIM.publish),
        Commit(prepare=APPEND.publish, publish=APPEND.prepare),
        Commit(publish=APPEND.publish, cleanup=APPEND.prepare),
    ],
)
def test_edits_in_the_wrong_phase_are_noticed(commit: Commit) -> None:
    assert not prove(rows(commit)).holds


def _nothing(*arguments: object, **named: object) -> None:
    return None


@pytest.mark.parametrize(
    "part", ["_decide", "_apply_journal", "_sweep", "_sync_all", "_sync_folders"]
)
def test_no_part_of_a_transaction_can_be_left_out(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CommitRun, part, _nothing)
    assert not prove(SCENARIOS["many keys, then one of them"]).holds


def test_small_values_ride_in_the_journal_and_large_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journals: list[Journal] = []
    real = CommitRun._apply_journal

    def kept(self: CommitRun, journal: Journal, **named: bool) -> None:
        journals.append(journal)
        real(self, journal, **named)

    monkeypatch.setattr(CommitRun, "_apply_journal", kept)
    store = LocalStore(Disk(), writable=True)
    values = {"a": bytes(4096), "b": bytes(4097), "c": b""}
    store.apply(Commit(publish=tuple(Put(key, data) for key, data in values.items())))
    kinds = [(entry.key, type(entry)) for entry in journals[0].entries]
    assert kinds == [("a", Carried), ("b", Placed), ("c", Carried)]
    # A journal does not grow without limit.
    store.apply(Commit(publish=tuple(Put(f"{n}", bytes(4096)) for n in range(300))))
    assert [type(entry) for entry in journals[1].entries] == [Carried] * 256 + [Placed] * 44


def test_a_journal_must_not_go_before_what_it_says_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = CommitRun._apply_journal

    def hasty(self: CommitRun, journal: Journal, **named: bool) -> None:
        self._unlink(".commit")
        real(self, journal, **named)

    monkeypatch.setattr(CommitRun, "_apply_journal", hasty)
    assert not prove(SCENARIOS["two keys"]).holds

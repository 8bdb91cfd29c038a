"""No crash around a log leaves anything but a committed state: its beginning, records and end."""

import errno
from functools import partial

import pytest

from ingot.stores import Commit, Extent, LocalStore, Patch, Put
from ingot.stores.local import log, store
from ingot.stores.local.commit import CommitRun
from ingot.testing import Disk, Fault, Scenario, prove, schedules, strike
from tests.crash.arrays import append, assign, describe, numbered, resize, scenario
from tests.crash.scenarios import plain
from tests.crash.table_scenarios import append as append_rows
from tests.crash.table_scenarios import table


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a short log begun by the first commit that can go into one."""
    monkeypatch.setattr(store, "COMMITS_BEFORE_LOG", 0)
    monkeypatch.setattr(log, "LOG_SECTORS", 4)


OLD = {"a": b"0123456789", "b": b"abcdefghij"}


def _patch(*values: bytes) -> Commit:
    """Return the commit that writes values into the middle of keys."""
    keys = zip("ab", values, strict=False)
    return Commit(publish=tuple(Patch(key, 2, value) for key, value in keys))


LONG = b"x" * 300
SMALL: dict[str, Scenario] = {
    "one record": plain(OLD, _patch(b"--", b"--")),
    "three records": plain(OLD, _patch(b"--", b"--"), _patch(b"++", b"++"), _patch(b"..", b"..")),
    # The log is full behind the third, and begun again.
    "a second log": plain(OLD, *(_patch(b"%d" % n, b"%d" % n) for n in range(10, 15))),
    # The second one begins in front of the middle of the log, and ends behind it.
    "a torn record": plain(
        {"a": bytes(400), "b": bytes(400)}, _patch(b"x", b"x"), _patch(LONG, LONG)
    ),
    "a log, then a journal": plain(
        OLD, _patch(b"--", b"--"), Commit(publish=(Put("a", b"new"), Put("b", b"new")))
    ),
    "a log, then a word": plain(OLD, _patch(b"--", b"--"), _patch(b"++")),
    "a journal, then a log": plain(
        OLD, Commit(publish=(Put("a", b"01234"), Put("b", b"01234"))), _patch(b"--", b"--")
    ),
    "overlapping": plain(
        OLD,
        Commit(publish=(Patch("a", 0, b"----------"), Patch("b", 1, b"-"))),
        Commit(publish=(Patch("a", 3, b"+"), Patch("b", 1, b"+"))),
        Commit(publish=(Patch("a", 0, b"=========="), Patch("b", 1, b"="))),
    ),
}

_blsk = {"format": "blsk", "superchunksize": 2, "chunks": 2}
_table = partial(table, format="blsk")
DATASETS: dict[str, Scenario] = {
    "chunks of one file": scenario(
        numbered(8), assign(slice(0, 3), 70), assign(slice(1, 4), 71), **_blsk
    ),
    "chunks of files": scenario(
        numbered(10), assign(slice(1, 9), 70), assign([0, 5], 71), assign(slice(0, 7), 72), **_blsk
    ),
    "one chunk, too": scenario(
        numbered(8), assign(slice(1, 7), 70), assign(0, 71), assign(slice(1, 5), 72), **_blsk
    ),
    "growth": scenario(
        numbered(5),
        assign(slice(0, 5), 9),
        append(numbered(4, first=80)),
        assign([0, 6], 1),
        **_blsk,
    ),
    "shrinking": scenario(
        numbered(8), assign(slice(0, 5), 9), resize(3), assign(slice(0, 3), 1), **_blsk
    ),
    "attributes": scenario(
        numbered(6), assign(slice(0, 5), 9), describe(a=1), assign(slice(0, 3), 1), **_blsk
    ),
    "columns": _table(
        6,
        lambda found: found.update("a >= 4", {"a": 60, "b": 9}),
        lambda found: found.update("a >= 2", {"a": 61, "b": 8}),
        append_rows(1),
    ),
}

SCENARIOS = {**SMALL, **DATASETS}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(SCENARIOS[name], contents=64 if name in SMALL else 16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(SCENARIOS[name].steps) + 1))


def test_a_log_is_what_is_tried() -> None:
    for name, each in SCENARIOS.items():
        disk = Disk(each.files)
        for change in each.steps:
            change(LocalStore(disk, writable=True))
        begun = disk.steps.count("rename .log")
        assert begun == (2 if name == "a second log" else 1) or (begun > 1 and name in DATASETS)


@pytest.mark.parametrize("name", ["one record", "three records", "a torn record", "columns"])
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(SCENARIOS[name], contents=16, deep=True).faults == []


def _steps(chosen: Scenario) -> list[str]:
    disk = Disk(chosen.files)
    for change in chosen.steps:
        change(LocalStore(disk, writable=True))
    return disk.steps


KINDS = ("sync", "rename", "create", "write", "unlink", "name log")


@pytest.mark.parametrize("name", ["three records", "a torn record", "a log, then a journal"])
def test_no_step_can_be_left_out(name: str) -> None:
    chosen = SCENARIOS[name]
    steps = _steps(chosen)
    tried = [
        number
        for number, step in enumerate(steps)
        # Where a journal that was applied comes back, nothing follows here that would mind.
        if step.startswith(KINDS)
        and steps[number - 1 : number + 1] != ["unlink .commit", "sync folder ."]
    ]
    missed = [n for n in tried if prove(chosen, contents=64, skip=n).holds]
    assert [(n, steps[n], steps) for n in missed] == []


@pytest.mark.parametrize("part", ["_apply_log", "_close_log", "_find_log"])
def test_no_part_can_be_left_out(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*arguments: object, **named: object) -> None:
        return None

    monkeypatch.setattr(CommitRun, part, nothing)
    assert not prove(SCENARIOS["a log, then a journal"]).holds


@pytest.mark.parametrize("name", ["one record", "a log, then a journal", "a second log"])
def test_a_reader_sees_one_committed_state(name: str) -> None:
    meetings = list(schedules(SCENARIOS[name], switches=2))
    assert len(meetings) > 500
    assert [meeting for meeting in meetings if meeting.fault] == []


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("name", ["three records", "a log, then a journal", "columns"])
def test_a_fault_at_any_step_leaves_a_committed_state(name: str, code: int, forever: bool) -> None:
    number, struck = 0, True
    while struck:
        struck, wrong = strike(SCENARIOS[name], Fault(number, code, forever))
        assert wrong == []
        number += 1
    assert number > 20


def test_a_reader_in_the_middle_looks_through_the_log() -> None:
    """A writer dies between two files: readers see its commit, and write nothing."""
    disk = Disk(OLD)
    LocalStore(disk, writable=True).apply(_patch(b"--", b"--"))
    torn: list[Disk] = []

    def after() -> None:
        if disk.steps[-2:] == ["switch", "write"]:
            torn.append(disk.copy())

    disk.after = after
    LocalStore(disk, writable=True).apply(_patch(b"++", b"++"))
    (left,) = torn
    left.watch = lambda what: pytest.fail(f"a reader makes the step {what!r}")
    found, both = LocalStore(left), [Extent("a"), Extent("b")]
    assert found.read(both) == [b"01++456789", b"ab--efghij"]
    assert found.view().read(both) == [b"01++456789", b"ab++efghij"]

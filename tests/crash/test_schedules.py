"""One writer and one reader, at every way their steps can meet; and what fails at every step."""

import errno

import pytest

from ingot.stores import LocalStore
from ingot.testing import Disk, Fault, schedules, strike
from tests.crash.scenarios import ARRAYS, FRAMES, PLAIN

SCENARIOS = {
    **PLAIN,
    **{f"frame: {name}": scenario for name, scenario in FRAMES.items()},
    **{f"array: {name}": scenario for name, scenario in ARRAYS.items()},
}
MET = [
    "two keys",
    "written, removed, patched",
    "one patched",
    "append, then trim",
    "many keys, then one of them",
    "frame: appended",
    "frame: shrunk, then appended",
    "array: shrink, then grow",
    "array: chunks, then one",
]


@pytest.mark.parametrize("name", MET)
def test_a_reader_sees_one_committed_state(name: str) -> None:
    # So few steps meet in two of them that three switches are no more than two of the others.
    few = ("one patched", "frame: appended")
    meetings = list(schedules(SCENARIOS[name], switches=3 if name in few else 2))
    assert len(meetings) > 1000
    assert [meeting for meeting in meetings if meeting.fault] == []


def test_a_reader_beside_many_writers_sees_one_state() -> None:
    meetings = list(schedules(SCENARIOS["append, then trim"], switches=1))
    assert [meeting for meeting in meetings if meeting.fault] == []


@pytest.mark.parametrize("name", ["two keys", "append, then trim", "array: chunks, then one"])
def test_reading_without_checking_the_version_again_is_noticed(name: str) -> None:
    def read(store: LocalStore) -> int:
        return SCENARIOS[name].judge(store.view())

    assert any(meeting.fault for meeting in schedules(SCENARIOS[name], read=read))


@pytest.mark.parametrize("name", ["two keys", "append, then trim"])
def test_a_writer_that_keeps_the_version_is_noticed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(disk: Disk, what: str) -> bool:
        disk.steps.append(what)
        return what not in ("switch", "bump")

    monkeypatch.setattr(Disk, "_step", silent)
    assert any(meeting.fault for meeting in schedules(SCENARIOS[name]))


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("name", [name for name in SCENARIOS if "five" not in name])
def test_a_fault_at_any_step_leaves_a_committed_state(name: str, code: int, forever: bool) -> None:
    number, struck = 0, True
    while struck:
        struck, wrong = strike(SCENARIOS[name], Fault(number, code, forever))
        assert wrong == []
        number += 1
    assert number > 3

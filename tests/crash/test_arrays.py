"""No crash, fault or schedule of writer and reader shows an array in an uncommitted state."""

import errno
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.stores import Store
from ingot.testing import Fault, prove, schedules, strike
from tests.crash.arrays import ArrayScenario, large, scenarios

LAYOUTS: dict[str, dict[str, Any]] = {
    "zarr2": {"format": "zarr2", "codec": "none"},
    "zarr3": {"format": "zarr3", "codec": "none"},
    "zarr2 in folders": {
        "format": "zarr2",
        "codec": "zlib:1",
        "dimension_separator": "/",
        "order": "F",
    },
}
# In what differs from version 2, documents and shards, a crash is what tells.
VERSION_3: dict[str, dict[str, Any]] = {
    "zarr3": {"format": "zarr3", "codec": "none"},
    "zarr3 with a manifest": {"format": "zarr3", "codec": "none", "manifest": True},
    "zarr3 in a shard": {"format": "zarr3", "codec": "none", "shards": "auto"},
}
SCENARIOS: dict[str, ArrayScenario] = {
    f"{layout}: {name}": scenario
    for layout, keywords in LAYOUTS.items()
    for name, scenario in scenarios(**keywords).items()
}
CRASHES: dict[str, ArrayScenario] = SCENARIOS | {
    f"{layout}: {name}": scenario
    for layout, keywords in VERSION_3.items()
    for name, scenario in scenarios(**keywords).items()
}
LARGE = large(**LAYOUTS["zarr2"])
STATES = {
    "assign over five": 15_000,
    "assign to parts of five": 15_000,
    "append five": 15_000,
    "append to the last and three": 15_000,
    "grow at five edges": 12_000,
    "replace three": 15_000,
    "create four": 15_000,
}


@pytest.mark.parametrize("name", CRASHES)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(CRASHES[name])
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(CRASHES[name].steps) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_hundred_thousand_states(name: str) -> None:
    # Items differ between the scenarios, so no state is counted twice.
    proof = prove(LARGE[name], kills=False, contents=4**6)
    assert proof.faults == []
    assert len(proof.states) >= STATES[name]


def test_a_hundred_thousand_states_are_asked_for() -> None:
    assert sum(STATES[name] for name in LARGE) >= 100_000


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("name", [name for name in SCENARIOS if name.startswith("zarr2:")])
def test_a_fault_at_any_step_leaves_a_committed_state(name: str, code: int, forever: bool) -> None:
    number, struck = 0, True
    while struck:
        struck, wrong = strike(SCENARIOS[name], Fault(number, code, forever))
        assert wrong == []
        number += 1
    assert number > 3


# Readers ------------------------------------------------------------------------------------------

MET = [
    "append over three chunks",
    "assign over 2 chunks",
    "assign whole chunks",
    "grow",
    "shrink, then grow",
    "shrink, append, assign",
    "replace",
]


@pytest.mark.parametrize("name", MET)
def test_one_call_reads_one_state(name: str) -> None:
    scenario = SCENARIOS[f"zarr2: {name}"]

    def read(store: Store) -> int:
        return scenario.find(ingot.open(store)[...])

    meetings = list(schedules(scenario, switches=2, read=read))
    assert len(meetings) > 1000
    assert [meeting for meeting in meetings if meeting.fault] == []


@pytest.mark.parametrize("name", MET)
def test_a_call_on_a_loaded_array_reads_one_state(name: str) -> None:
    scenario = SCENARIOS[f"zarr2: {name}"]

    def read(store: Store) -> int:
        array = ingot.open(store)
        assert array.shape  # Whatever happens from here on, what it needs is loaded.
        return scenario.find(array[...])

    meetings = list(schedules(scenario, switches=2, read=read))
    assert len(meetings) > 1000
    assert [meeting for meeting in meetings if meeting.fault] == []


def test_trusting_what_was_loaded_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "ingot.stores.versions.StoreProbe.confirms", lambda version_probe, number: True
    )
    scenario = SCENARIOS["zarr2: assign over 2 chunks"]

    def read(store: Store) -> int:
        array = ingot.open(store)
        assert array.shape
        return scenario.find(array[...])

    assert any(meeting.fault for meeting in schedules(scenario, switches=2, read=read))


@pytest.mark.parametrize("name", ["assign over 2 chunks", "shrink, append, assign"])
def test_calls_inside_of_a_snapshot_read_one_state(name: str) -> None:
    scenario = SCENARIOS[f"zarr2: {name}"]

    def read(store: Store) -> int:
        array = ingot.open(store)
        with array.snapshot():
            length, attrs = len(array), dict(array.attrs)
            return scenario.find(array[:length], attrs)

    meetings = list(schedules(scenario, switches=2, read=read))
    assert len(meetings) > 1000
    assert [meeting for meeting in meetings if meeting.fault] == []


def test_calls_without_a_snapshot_may_read_two_states() -> None:
    scenario = SCENARIOS["zarr2: assign over 2 chunks"]

    def read(store: Store) -> int:
        array = ingot.open(store)
        return scenario.find(np.array([array[n] for n in range(len(array))]))

    assert any(meeting.fault for meeting in schedules(scenario, switches=1, read=read))

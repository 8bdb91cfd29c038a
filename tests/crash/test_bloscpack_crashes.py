"""No crash leaves a Bloscpack file between two states."""

import pytest

from ingot.formats.bloscpack import array as bloscpack_array
from ingot.testing import prove
from tests.crash.bloscpack_scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short files grow in place, as long ones do."""
    monkeypatch.setattr(bloscpack_array, "_SMALLEST_IN_PLACE", 0)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    scenario = SCENARIOS[name]()
    proof = prove(scenario, contents=64)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.parametrize("name", ["append chunks", "attributes"])
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(SCENARIOS[name](), contents=16, deep=True).faults == []

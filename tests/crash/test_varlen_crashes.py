"""No crash leaves a file of variable-length items between two states."""

import pytest

from ingot.formats.varlen import ragged
from ingot.testing import prove
from tests.crash.item_scenarios import SCENARIOS


@pytest.fixture(autouse=True)
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short files be changed in place, as long ones are."""
    monkeypatch.setattr(ragged, "_SMALLEST_IN_PLACE", 0)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    scenario = SCENARIOS[name]()
    proof = prove(scenario, contents=64)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.parametrize("name", ["append packs", "replace at the end", "compact"])
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(SCENARIOS[name](), contents=16, deep=True).faults == []

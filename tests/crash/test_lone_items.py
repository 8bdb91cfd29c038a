"""No crash leaves variable-length items on their own in bcolz or blsk between two states."""

import pytest

from ingot.formats.blsk import array as blsk_array
from ingot.testing import prove
from tests.crash.item_scenarios import LONE


@pytest.mark.parametrize("name", LONE)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    scenario = LONE[name]()
    proof = prove(scenario, contents=16)
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(scenario.steps) + 1))


@pytest.mark.parametrize("name", ["blsk: replace at the end", "blsk: append twice"])
def test_no_crash_of_a_change_that_compacts_does_either(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blsk_array, "_LEAST_DEAD", 0)
    assert prove(LONE[name](), contents=16).faults == []


@pytest.mark.parametrize(
    "name",
    ["bcolz: append to the last pack", "bcolz: delete", "blsk: append packs", "blsk: compact"],
)
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(LONE[name](), contents=8, deep=True).faults == []

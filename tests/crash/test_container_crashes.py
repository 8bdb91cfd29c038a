"""No crash leaves anything but a committed state of an array or a group."""

import pytest

from ingot.testing import prove
from tests.crash.container_scenarios import CONTAINERS


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(CONTAINERS[name])
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(CONTAINERS[name].steps) + 1))


@pytest.mark.parametrize(
    "name",
    ["zarr0: append", "zarr2 group: a group deleted, and copies", "zarr3 group: a new array"],
)
def test_no_crash_of_the_writer_after_a_dead_one_does_either(name: str) -> None:
    assert prove(CONTAINERS[name], deep=True).faults == []

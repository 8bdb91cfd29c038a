"""The children of `tests.counted_kills` die before the step that is asked for."""

import os
from pathlib import Path

import pytest

from tests import counted_kills

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the child is forked")


@pytest.fixture(params=["traced", "profiled"])
def way(request, monkeypatch):
    if request.param == "profiled":
        monkeypatch.setattr(counted_kills, "_machine", lambda: None)
    elif counted_kills._machine() is None:
        pytest.skip("no child can be traced here")


def make(folder):
    for number in range(5):
        os.mkdir(folder / str(number))


def test_a_child_dies_before_its_step(way, tmp_path):
    steps = counted_kills.steps_of(lambda: make(tmp_path))
    assert len(os.listdir(tmp_path)) == 5
    assert steps >= 5
    made = []
    for step in range(1, steps + 1):
        folder = Path(tmp_path, f"killed {step}")
        folder.mkdir()
        assert counted_kills.killed_at(lambda folder=folder: make(folder), step)
        made.append(len(os.listdir(folder)))
    assert made == sorted(made)
    assert set(made) >= {0, 1, 2, 3, 4}


def test_a_child_that_takes_fewer_steps_ends(way, tmp_path):
    assert not counted_kills.killed_at(lambda: make(tmp_path), 10_000)
    assert len(os.listdir(tmp_path)) == 5


def test_a_child_that_fails_is_no_killed_one(way, tmp_path):
    with pytest.raises(AssertionError, match="ended with 1"):
        counted_kills.steps_of(lambda: 1 / 0)

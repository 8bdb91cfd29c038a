"""The demo tells the whole story, and checks what it tells."""

import re

import numpy as np
import pytest

import ingot
from ingot.cli import demo
from ingot.errors import CorruptionError
from tests.command import invoke


def test_the_story_is_whole(monkeypatch):
    monkeypatch.setattr(demo, "_ITEMS", {"native": 64 << 10, "python": 8 << 10})
    monkeypatch.setattr(demo, "_KILLS", 2)
    result = invoke("demo")
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    for part in (
        "(1050, 600), ",
        "blocks  ",
        "weather.bcolz",
        "datetime64[D]",
        "of 50,000 rows",
        "rain.bcolz",
        "no fault",
        "(400, 600) float64, zarr3",
        "2 writers of 64 chunks were killed",
        "CorruptionError: ",
        "numpy.save",
    ):
        assert part in text, part
    assert text.endswith("Everything read back equals what was written.\n")


def test_a_killed_writer_leaves_one_commit(tmp_path):
    states = demo.killed_writers(tmp_path / "a.zarr", 2)
    assert states == sorted(states)
    assert ingot.open(tmp_path / "a.zarr").shape == (64, 1000)


def test_items_of_two_commits_would_be_noticed(tmp_path, monkeypatch):
    halves = demo._WRITER.replace("array[...] = number", "array[:32] = number")
    monkeypatch.setattr(demo, "_WRITER", halves)
    monkeypatch.setattr(demo.random, "uniform", lambda least, most: 1.0)
    with pytest.raises(CorruptionError, match="items of two commits"):
        demo.killed_writers(tmp_path / "a.zarr", 3)


def test_the_bomb_claims_what_it_does_not_have():
    header = np.frombuffer(demo.bomb()[4:16], "<i4").tolist()
    assert header == [64 << 20, 64 << 20, 40]
    with pytest.raises(CorruptionError):
        ingot.blosc.decompress(demo.bomb())


def test_data_that_changed_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_array", lambda path: np.zeros(3))
    with pytest.raises(CorruptionError, match="the array of ingot"):
        demo.speeds(demo.temperatures(16), tmp_path)


def test_samples_are_the_same_every_time():
    assert np.array_equal(demo.temperatures(5), demo.temperatures(5))
    first, second = demo.weather(50), demo.weather(50)
    assert all(np.ma.allequal(first[name], second[name]) for name in first)
    assert re.fullmatch("Lima|Oslo|Trondheim", first["station"][0])

"""``ingot bench`` tries codecs and shapes, and its advice can be pasted."""

import json

import numpy as np
import pytest

import ingot
from ingot.cli import bench
from ingot.cli.bench import Trial
from tests.command import invoke

VALUES = np.round(np.cumsum(np.random.default_rng(1).normal(size=(200, 30)), 0), 1)


def test_every_codec_is_tried_and_the_advice_can_be_pasted(tmp_path):
    ingot.array(VALUES, tmp_path / "a.zarr", chunks=(50, 30)).close()
    report = json.loads(invoke("bench", tmp_path / "a.zarr", "--json").stdout)
    assert [trial["codec"] for trial in report["trials"]][: len(bench.CODECS)] == [*bench.CODECS]
    assert {tuple(trial["chunks"]) for trial in report["trials"]} >= {(50, 30), (25, 15), (100, 30)}
    made = ingot.create(shape=VALUES.shape, dtype="f8", **report["recommended"])
    assert list(made.chunks) == report["recommended"]["chunks"]
    lines = invoke("bench", tmp_path / "a.zarr").stdout.splitlines()
    assert lines[-1].startswith('ingot.create(..., codec="')
    advice = eval(f"dict({lines[-1].removeprefix('ingot.create(..., ')}")
    ingot.create(shape=VALUES.shape, dtype="f8", **advice)


def test_the_smallest_of_the_quick_ones_is_the_best():
    def trial(codec, stored, read_time):
        return Trial(codec, (1,), 1000, stored, 1.0, read_time, 1.0)

    found = [trial("none", 1000, 0.1), trial("a", 500, 1.0), trial("b", 300, 1.9)]
    assert bench.best([*found, trial("c", 100, 2.1)]).codec == "b"


def test_columns_of_tables(tmp_path):
    ingot.table({"a": np.arange(1000), "b": np.zeros(1000)}, tmp_path / "t.bcolz").close()
    report = json.loads(
        invoke("bench", tmp_path / "t.bcolz", "-c", "b", "-s", "4K", "--json").stdout
    )
    assert report["sample"] == [512]


def test_what_cannot_be_tried(tmp_path):
    ingot.group(tmp_path / "g.zarr").close()
    assert invoke("bench", tmp_path / "g.zarr").exit_code == 1
    assert invoke("bench", tmp_path / "g.zarr", "-s", "much").exit_code == 2
    with pytest.raises(ingot.errors.UnsupportedError):
        bench.sample_of(ingot.array(7), None, 100)

"""``ingot convert`` and ``ingot copy``."""

import json

import numpy as np
import pytest

import ingot
from tests.command import invoke

VALUES = np.arange(1_000_000, dtype="<f4").reshape(1000, 1000)


@pytest.fixture
def source(tmp_path):
    ingot.array(VALUES, tmp_path / "a.zarr", chunks=(100, 100), attrs={"units": "m"})
    return tmp_path / "a.zarr"


def test_convert(source, tmp_path):
    target = tmp_path / "b"
    done = invoke(
        *("convert", source, target, "--format", "zarr2"),
        *("--codec", "blosc:zstd:3:shuffle", "--chunks", "250,250", "--verify", "--json"),
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "source": str(source),
        "source_format": "zarr3",
        "target": str(target),
        "format": "zarr2",
        "changes": [],
        "chunks": 16,
        "untouched": 0,
        "nbytes": VALUES.nbytes,
        "verified": True,
        "members": [],
        "failures": [],
    }
    made = ingot.open(target)
    assert (made.format, made.chunks, made.codec[0].cname) == ("zarr2", (250, 250), "zstd")
    assert dict(made.attrs) == {"units": "m"}
    assert np.array_equal(made[...], VALUES)


def test_an_existing_target_is_replaced_only_when_asked_for(source, tmp_path):
    target = tmp_path / "b.bcolz"
    first = invoke("convert", source, target)
    assert first.exit_code == 0
    assert "chunks (100, 100) become (100, 1000)" in first.stdout
    again = invoke("convert", source, target)
    assert (again.exit_code, again.stderr.count("\n")) == (1, 1)
    assert "there already; --overwrite replaces it" in again.stderr
    assert invoke("convert", source, target, "--overwrite").exit_code == 0


def test_a_missing_source_is_one_line(tmp_path):
    done = invoke("convert", tmp_path / "absent", tmp_path / "b.zarr")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert not (tmp_path / "b.zarr").exists()


def test_wrong_options(source, tmp_path):
    for option, value in (("--codec", "nope"), ("--format", "nope"), ("--chunks", "5,5,5")):
        done = invoke("convert", source, tmp_path / "b", option, value)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1), done.stderr
        assert not (tmp_path / "b").exists()
    assert invoke("convert", source, tmp_path / "b", "--chunks", "5,,5").exit_code == 2


def test_shards(source, tmp_path):
    done = invoke("convert", source, tmp_path / "b.zarr", "--shards", "500,500")
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "b.zarr" / "c").glob("*/*"))) == 4


def test_copy_keeps_the_format(source, tmp_path):
    done = invoke("copy", source, tmp_path / "b.bcolz", "--verify")
    assert done.exit_code == 0, done.output
    assert ingot.open(tmp_path / "b.bcolz").format == "zarr3"


def test_a_folder_of_datasets(source, tmp_path):
    ingot.ragged(["a"], tmp_path / "words.blv")
    done = invoke("convert", tmp_path, tmp_path.parent / "new", "--format", "zarr2", "--json")
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert [each["format"] for each in report["members"]] == ["zarr2"]
    assert [name for name, _ in report["failures"]] == ["words.blv"]
    assert np.array_equal(ingot.open(report["members"][0]["target"])[...], VALUES)
    copied = invoke("copy", tmp_path, tmp_path.parent / "copy")
    assert copied.exit_code == 0, copied.output
    assert "2 datasets, 0 failed" in copied.stdout


def test_paths_are_printed_as_they_were_typed(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke("convert", "a.zarr", "b.zarr", "--verify")
    assert done.stdout == (
        "a.zarr (zarr3) to b.zarr (zarr3): 100 chunks, 100 untouched, compared with the source\n"
    )
    again = invoke("convert", "a.zarr", "b.zarr")
    assert (
        again.stderr == "ingot: b.zarr: a zarr3 dataset is there already; --overwrite replaces it\n"
    )

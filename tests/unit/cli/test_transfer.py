"""``ingot export`` and ``ingot import``."""

import json

import numpy as np
import pytest

import ingot
from tests.command import invoke


@pytest.fixture
def path(tmp_path):
    ingot.array(np.arange(12).reshape(3, 4), tmp_path / "a.zarr").close()
    return tmp_path / "a.zarr"


def test_an_array_goes_out_and_comes_back(path, tmp_path):
    result = invoke("export", path, tmp_path / "a.npy")
    assert result.exit_code == 0
    assert result.stdout == f"{path} -> {tmp_path / 'a.npy'}: (3, 4) int64\n"
    assert np.load(tmp_path / "a.npy").tolist() == np.arange(12).reshape(3, 4).tolist()
    options = ("--chunks", "2,2", "--codec", "zstd:3", "--format", "zarr2", "--json")
    result = invoke("import", tmp_path / "a.npy", tmp_path / "b", *options)
    assert json.loads(result.stdout)["summary"] == "(3, 4) int64"
    made = ingot.open(tmp_path / "b")
    assert (made.format, made.chunks) == ("zarr2", (2, 2))
    one = invoke("import", tmp_path / "a.npy", tmp_path / "c.zarr", "--chunks", "3")
    assert one.exit_code == 0
    assert ingot.open(tmp_path / "c.zarr").chunks[0] == 3


def test_nothing_is_replaced_unasked(path, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"precious")
    refused = invoke("export", path, tmp_path / "a.npy")
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert invoke("export", path, tmp_path / "a.npy", "--overwrite").exit_code == 0
    assert invoke("import", tmp_path / "a.npy", path).exit_code == 1
    assert invoke("import", tmp_path / "a.npy", path, "--overwrite").exit_code == 0


def test_wrong_use(path, tmp_path):
    assert invoke("export", path).exit_code == 2
    assert invoke("export", path, tmp_path / "a.txt").exit_code == 1
    assert invoke("export", tmp_path / "missing", tmp_path / "a.npy").exit_code == 1
    assert invoke("import", tmp_path / "missing.npy", tmp_path / "b").exit_code == 1
    assert (
        invoke("import", tmp_path / "missing.npy", tmp_path / "b", "--chunks", "x").exit_code == 2
    )

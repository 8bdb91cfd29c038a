"""``ingot check`` prints what is wrong, and its exit status says whether something is lost."""

import json

import numpy as np
import pytest

import ingot
from tests.command import invoke


@pytest.fixture
def array(tmp_path):
    ingot.array(np.arange(100), tmp_path / "a.zarr", chunks=50)
    return tmp_path / "a.zarr"


def test_a_sound_dataset_gives_status_0(array):
    done = invoke("check", array)
    assert done.exit_code == 0
    assert done.stdout == f"{array}: no fault; 1 dataset, 2 chunks, 800 bytes checked\n"


def test_damage_gives_status_1_and_a_line(array):
    (array / "c/1").write_bytes(b"?")
    done = invoke("check", array)
    assert done.exit_code == 1
    assert "c/1" in done.stdout.splitlines()[0]
    assert invoke("check", array, "--quick").exit_code == 0


def test_json_has_the_findings(array):
    (array / "c/1").write_bytes(b"?")
    done = invoke("check", array, "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert report["ok"] is False
    assert [(each["file"], each["chunk"]) for each in report["findings"]] == [("c/1", [1])]


def test_a_missing_path_gives_status_1_and_one_line(tmp_path):
    done = invoke("check", tmp_path / "absent")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_repair_says_what_it_did(array):
    (array / "c/1").write_bytes(b"?")
    done = invoke("repair", array)
    assert done.exit_code == 1
    done = invoke("repair", array, "--drop")
    assert done.exit_code == 0
    assert done.stdout.startswith("repaired: ")
    assert (array.parent / "a.zarr.before-repair/c/1").read_bytes() == b"?"
    done = invoke("repair", array, "--json")
    assert json.loads(done.stdout)["done"] == []


def test_repair_keeps_nothing_with_no_backup(array):
    (array / "c/1").write_bytes(b"?")
    done = invoke("repair", array, "--drop", "--no-backup", "--json")
    assert json.loads(done.stdout)["backup"] is None
    assert list(array.parent.iterdir()) == [array]


def test_repair_fills_up_columns_with_longest(tmp_path):
    path = tmp_path / "t.bcolz"
    ingot.table({"a": np.arange(10), "b": np.arange(10)}, path)
    sizes = path / "a/meta/sizes"
    sizes.write_text(sizes.read_text().replace("[10]", "[8]"))
    assert invoke("check", path).exit_code == 1
    assert invoke("repair", path, "--longest").exit_code == 0
    assert ingot.open(path)["a"][...].tolist() == [*range(8), 0, 0]


def test_repair_of_a_missing_path_gives_status_1_and_one_line(tmp_path):
    done = invoke("repair", tmp_path / "absent")
    assert done.exit_code == 1
    assert len(done.stderr.splitlines()) == 1

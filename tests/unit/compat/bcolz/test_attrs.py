"""Attributes of the bcolz module."""

from pathlib import Path

import pytest

from ingot.compat import bcolz
from ingot.compat.bcolz.attrs import attrs


def test_attributes_are_stored(tmp_path: Path) -> None:
    folder = str(tmp_path / "table")
    table = bcolz.ctable([[1], [2]], rootdir=folder)
    table.attrs["first_row"] = {"1": 0}
    table.attrs["gone"] = 1
    del table.attrs["gone"]
    found = attrs(folder, "r")
    assert found.attrs == {"first_row": {"1": 0}}
    assert len(found) == 1
    assert str(found) == "first_row : {'1': 0}"
    with pytest.raises(OSError, match="ead-only"):
        found["x"] = 1
    with pytest.raises(OSError, match="ead-only"):
        del found["first_row"]
    peer = pytest.importorskip("bcolz")
    assert peer.attrs.attrs(folder, "r").getall() == {"first_row": {"1": 0}}


def test_a_value_that_cannot_be_stored_leaves_the_others(tmp_path: Path) -> None:
    folder = str(tmp_path / "array")
    array = bcolz.carray([1], rootdir=folder)
    array.attrs["a"] = 1
    with pytest.raises((TypeError, ValueError)):
        array.attrs["b"] = object()
    assert array.attrs.getall() == bcolz.open(folder, "r").attrs.getall() == {"a": 1}


def test_attributes_of_a_missing_folder_are_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        attrs(str(tmp_path / "absent"), "r")

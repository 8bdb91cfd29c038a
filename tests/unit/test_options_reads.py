"""Reads around damage, and reads that refuse chunks that are not stored."""

import os
import warnings

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, DamageWarning
from tests.storage import use_kernel

AROUND = ingot.Options(damaged="fill")
STRICT = ingot.Options(missing="error")
VALUES = np.arange(200).reshape(20, 10)


@pytest.fixture(params=["native", "python"])
def kernel(request, monkeypatch):
    if request.param == "native":
        pytest.importorskip("ingot._native")
    use_kernel(request.param, monkeypatch)


def flip(path, place):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


FILES = {"zarr3": "c/1/0", "bcolz": "data/__1.blp"}


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", FILES)
@pytest.mark.parametrize(
    "key",
    [np.s_[...], np.s_[3:11, ::2], np.s_[7], np.s_[[2, 8, 19]], np.s_[[8, 9], [1, 2]]],
    ids=["all", "box", "row", "rows", "points"],
)
def test_damaged_chunks_are_filled_and_named(tmp_path, format, key):
    ingot.array(VALUES, tmp_path / "a", format=format, chunks=(6, 10), fill=-1)
    flip(tmp_path / "a" / FILES[format], 50)
    with pytest.raises(CorruptionError):
        ingot.open(tmp_path / "a")[key]
    due = VALUES.copy()
    due[6:12] = -1
    with pytest.warns(DamageWarning, match=FILES[format]) as caught:
        found = ingot.open(tmp_path / "a", options=AROUND)[key]
    assert np.array_equal(found, due[key])
    assert [chunk[0] for chunk in caught[0].message.chunks] == [(1, 0)]


@pytest.mark.usefixtures("kernel")
def test_what_is_sound_is_read_without_a_warning(tmp_path):
    ingot.array(VALUES, tmp_path / "a", chunks=(6, 10), fill=-1)
    flip(tmp_path / "a/c/1/0", 50)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        array = ingot.open(tmp_path / "a", options=AROUND)
        assert np.array_equal(array[12:], VALUES[12:])


def test_a_flat_array_is_read_around_damage(tmp_path):
    path = tmp_path / "a.blp"
    ingot.array(np.arange(1000), path, chunks=100)
    flip(path, path.stat().st_size - 60)
    with pytest.warns(DamageWarning) as caught:
        found = ingot.open(path, options=AROUND)[...]
    ((number,), _, _) = caught[0].message.chunks[0]
    due = np.arange(1000)
    due[number * 100 : number * 100 + 100] = 0
    assert np.array_equal(found, due)


def test_items_that_cannot_be_read_are_null(tmp_path):
    path = tmp_path / "a.blv"
    ingot.ragged([b"one", b"two", b"three"], path, packed=False)
    flip(path, -2)
    with pytest.warns(DamageWarning):
        assert list(ingot.open(path, options=AROUND)) == [b"one", b"two", None]


def test_no_change_is_made_from_what_was_filled(tmp_path):
    ingot.array(VALUES, tmp_path / "a", chunks=(6, 10))
    with pytest.raises(ValueError, match="mode 'r'"):
        ingot.open(tmp_path / "a", "r+", options=AROUND)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("format", ["zarr3", "zarr2"])
@pytest.mark.parametrize("key", [np.s_[...], np.s_[7], np.s_[[2, 8]], np.s_[[8, 9], [1, 2]]])
def test_chunks_that_are_not_stored_are_refused(tmp_path, format, key):
    ingot.array(VALUES + 1, tmp_path / "a", format=format, chunks=(6, 10))
    assert np.array_equal(ingot.open(tmp_path / "a", options=STRICT)[key], VALUES[key] + 1)
    os.remove(tmp_path / "a" / ("c/1/0" if format == "zarr3" else "1.0"))
    assert not ingot.open(tmp_path / "a")[6:12].any()
    with pytest.raises(CorruptionError, match="not stored"):
        ingot.open(tmp_path / "a", options=STRICT)[key]
    assert np.array_equal(ingot.open(tmp_path / "a", options=STRICT)[12:], VALUES[12:] + 1)


def test_a_check_tells_missing_chunks_where_the_options_refuse_them(tmp_path):
    ingot.array(VALUES + 1, tmp_path / "a", chunks=(6, 10))
    os.remove(tmp_path / "a/c/1/0")
    assert ingot.check(tmp_path / "a").ok
    (finding,) = ingot.check(tmp_path / "a", options=STRICT).errors
    assert (finding.kind, finding.lost) == ("missing", "items [6:12, 0:10]")


def test_values_of_the_options_are_checked():
    for wrong in ({"damaged": "drop"}, {"missing": "zero"}):
        with pytest.raises(ValueError, match="not one of"):
            ingot.Options(**wrong)

"""Indexes of super-chunk files and the number of rows are rebuilt from the chunks."""

import os

import numpy as np
import pytest

import ingot

NUMBERS = np.arange(1000)
FIRST, SECOND = "data/__1__.bin", "data/__2__.bin"


@pytest.fixture
def path(tmp_path):
    ingot.array(NUMBERS, tmp_path / "a.blsk", chunks=100, superchunksize=6)
    return tmp_path / "a.blsk"


def flip(path, place, bits=1):
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


# The head has 16 bytes, each entry of the index 8.
DAMAGE = {
    "an offset behind the file": (FIRST, 16 + 8 + 1, 0x20),
    "an offset inside a chunk": (FIRST, 16 + 8, 4),
    "an offset far away": (SECOND, 16 + 8 + 5, 0x20),
    "the magic": (FIRST, 0, 1),
    "the version": (FIRST, 4, 1),
    "the size of items": (FIRST, 8, 1),
    "the number of chunks": (FIRST, 12, 4),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_the_index_is_rebuilt(path, damage):
    key, place, bits = DAMAGE[damage]
    flip(path / key, place, bits)
    assert not ingot.check(path).ok
    report = ingot.repair(path)
    assert report.ok
    assert [each.file for each in report.done] == [key]
    assert np.array_equal(ingot.open(path)[...], NUMBERS)
    assert ingot.repair(path).done == ()


def test_the_older_image_of_a_chunk_is_not_taken(path):
    array = ingot.open(path, "r+")
    array[150] = -1  # A new image of chunk 1; the old one stays in the file.
    flip(path / FIRST, 16 + 8 + 1, 0x20)
    assert not ingot.repair(path).ok
    report = ingot.repair(path, drop=True)
    assert report.ok
    due = NUMBERS.copy()
    due[100:200] = 0
    assert np.array_equal(ingot.open(path)[...], due)


@pytest.mark.parametrize("data", [None, b"", b"many"])
def test_the_number_of_rows_is_counted(path, data):
    nrows = path / "meta/nrows"
    nrows.unlink() if data is None else nrows.write_bytes(data)
    assert not ingot.check(path).ok
    assert ingot.repair(path).ok
    assert np.array_equal(ingot.open(path)[...], NUMBERS)


def test_rows_are_counted_by_the_last_chunk_of_several_axes(tmp_path):
    values = np.arange(77 * 30).reshape(77, 30)
    path = tmp_path / "a.blsk"
    ingot.array(values, path, chunks=(10, 7), superchunksize=8)
    os.remove(path / "meta/nrows")
    assert ingot.repair(path).ok
    assert np.array_equal(ingot.open(path)[...], values)


def test_a_file_that_is_cut_short_loses_chunks_only_with_drop(path):
    os.truncate(path / SECOND, (path / SECOND).stat().st_size - 150)
    assert not ingot.repair(path).ok
    assert ingot.repair(path, drop=True).ok
    due = NUMBERS.copy()
    due[900:] = 0
    assert np.array_equal(ingot.open(path)[...], due)


def test_the_column_of_a_table_is_mended(tmp_path):
    path = tmp_path / "t.blsk"
    ingot.table({"a": NUMBERS, "b": NUMBERS * 2.0}, path, chunks=100)
    flip(path / "data/b/__1__.bin", 16 + 8, 8)
    assert not ingot.check(path).ok
    assert ingot.repair(path).ok
    assert np.array_equal(ingot.open(path)["b"][...], NUMBERS * 2.0)


def test_dead_bytes_are_a_note(path):
    ingot.open(path, "r+")[::100] = -1
    report = ingot.check(path)
    assert report.ok
    assert [each.kind for each in report.findings] == ["dead"]

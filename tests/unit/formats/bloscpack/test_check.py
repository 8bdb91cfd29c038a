"""Headers and offsets of Bloscpack files are rebuilt by a walk over the chunks."""

import os

import numpy as np
import pytest

import ingot
from ingot.formats.bloscpack.file import BloscpackFile
from ingot.stores import FileStore

VALUES = np.arange(1000).reshape(250, 4)


@pytest.fixture
def path(tmp_path):
    ingot.array(VALUES, tmp_path / "a.blp", chunks="1K")
    return tmp_path / "a.blp"


def flip(path, place, bits=1):
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


def file_of(path):
    return BloscpackFile.read(FileStore(path), path.name)


def mended(path):
    assert not ingot.check(path).ok
    report = ingot.repair(path)
    assert report.ok
    assert ingot.repair(path).done == ()
    return ingot.open(path)[...]


@pytest.mark.parametrize("entry", [0, 1, 7])
@pytest.mark.parametrize("byte", [0, 5])
def test_an_offset_is_rebuilt(path, entry, byte):
    file = file_of(path)
    table = file.begin - file.header.table_bytes
    flip(path, table + 8 * entry + byte)
    assert np.array_equal(mended(path), VALUES)


@pytest.mark.parametrize("place", [8, 12, 16, 24])
def test_a_number_in_the_header_is_rebuilt(path, place):
    # The sizes of chunks, the number of chunks, the number of spare offsets.
    flip(path, place, 2)
    assert np.array_equal(mended(path), VALUES)


@pytest.mark.parametrize("cut", [1, 50, 500])
def test_a_file_that_is_cut_short_keeps_whole_chunks(path, cut):
    os.truncate(path, path.stat().st_size - cut)
    found = mended(path)
    assert 0 < len(found) < len(VALUES)
    assert np.array_equal(found, VALUES[: len(found)])


def test_a_chunk_in_the_middle_stays_damaged(path):
    file = file_of(path)
    flip(path, int(file.row.start[3]) + 30)
    before = path.read_bytes()
    report = ingot.repair(path)
    assert [each.chunk for each in report.errors] == [(3,)]
    assert path.read_bytes() == before


def test_bytes_behind_the_last_chunk_are_a_note(path):
    with path.open("ab") as file:
        file.write(b"more")
    report = ingot.check(path)
    assert report.ok
    assert [each.kind for each in report.findings] == ["dead"]

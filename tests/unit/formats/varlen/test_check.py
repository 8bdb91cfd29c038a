"""The table of a file of items is rebuilt from its packs, and unfinished files are read again."""

import os

import pytest

import ingot
from ingot.formats.varlen.file import VarlenFile
from ingot.stores import FileStore

ITEMS = [b"item %d" % n * (n % 50) for n in range(600)]


@pytest.fixture(params=[True, False], ids=["packs", "items"])
def path(request, tmp_path):
    pack_bytes = 4096 if request.param else 65536
    ingot.ragged(ITEMS, tmp_path / "a.blv", packed=request.param, pack_bytes=pack_bytes)
    return tmp_path / "a.blv"


def flip(path, place, bits=1):
    data = bytearray(path.read_bytes())
    data[place] ^= bits
    path.write_bytes(data)


def file_of(path):
    return VarlenFile.read(FileStore(path), path.name)


def mended(path):
    assert not ingot.check(path).ok
    report = ingot.repair(path)
    assert report.ok
    assert ingot.repair(path).done == ()
    return list(ingot.open(path))


@pytest.mark.parametrize("entry", [0, 3, 20])
def test_an_entry_of_the_table_is_rebuilt(path, entry):
    header = file_of(path).header
    flip(path, header.table_start + entry * header.entry_bytes)
    assert mended(path) == ITEMS


def test_a_checksum_of_the_front_is_made_anew(path):
    flip(path, 29)
    assert mended(path) == ITEMS


def test_metadata_that_are_lost_leave_bytes(path):
    flip(path, 33, 128)
    assert mended(path) == ITEMS


def test_every_whole_item_of_an_unfinished_file_is_read(path):
    file, data = file_of(path), path.read_bytes()
    path.write_bytes(file.unfinished() + data[file.begin : -100])
    found = mended(path)
    assert found == ITEMS[: len(found)]
    # What was cut off is at most the last pack, or the last items.
    assert len(found) >= int(file.bounds[-2]) if file.header.packed else len(ITEMS) - 8


@pytest.mark.parametrize("written", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("packed", [True, False])
def test_a_writer_that_filled_the_table_as_it_went_loses_no_whole_item(tmp_path, packed, written):
    # As the document of the format has it: entries are -1 until they are written, the count comes
    # last. A null has an entry only.
    items = [*ITEMS[:200], *([None] if not packed else []), *ITEMS[200:]]
    path = tmp_path / "a.blv"
    ingot.ragged(items, path, packed=packed, pack_bytes=2048)
    file, data = file_of(path), bytearray(path.read_bytes())
    data[16:24], data[28:32] = b"\xff" * 8, bytes(4)
    header = file.header
    kept = int(header.count * written)
    start, end = header.table_start + kept * header.entry_bytes, file.begin
    data[start:end] = b"\xff" * (end - start)
    path.write_bytes(data)
    # A null is lost with its entry.
    known = items if packed or kept > 200 else [item for item in items if item is not None]
    assert mended(path) == known


def test_a_file_that_is_cut_short_keeps_the_items_in_front(path):
    os.truncate(path, path.stat().st_size - 300)
    found = mended(path)
    assert found == ITEMS[: len(found)]
    assert len(found) > 500


def test_a_lost_item_in_the_middle_becomes_null_only_with_drop(tmp_path):
    path = tmp_path / "a.blv"
    ingot.ragged([b"one", b"two", b"three"], path, packed=False)
    header, starts = file_of(path).header, file_of(path).table.starts
    flip(path, int(starts[1]) + 12, 0x40)  # The size that the chunk of an item claims.
    flip(path, header.table_start + 8 + 4)  # Its entry.
    assert not ingot.repair(path).ok
    assert ingot.repair(path, drop=True).ok
    assert list(ingot.open(path)) == [b"one", None, b"three"]


def test_dead_bytes_are_a_note(tmp_path):
    path = tmp_path / "a.blv"
    items = ingot.ragged([os.urandom(2000) for _ in range(1000)], path)
    items[5] = os.urandom(2100)
    assert items.dead_bytes
    report = ingot.check(path)
    assert report.ok
    assert [each.kind for each in report.findings] == ["dead"]

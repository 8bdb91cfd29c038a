"""Super-chunk files are shown as they lie there, damaged slots with the reason."""

import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import ingot
from ingot.errors import IngotError, UnsupportedError
from ingot.formats.inspection import FileInspection, inspect_file
from ingot.stores import MemoryStore
from tests.storage import content, identity_of


def inspected(data: bytes) -> FileInspection:
    return inspect_file(lambda start, length: data[start : start + length], len(data), "f.bin")


def blsk_file() -> bytes:
    store = MemoryStore()
    array = ingot.array(
        np.arange(100, dtype="<i4"), store, format="blsk", chunks=30, superchunksize=8, spare=0.05
    )
    array[95] = 7
    return content(store)["data/__1__.bin"]


def test_a_file_of_blsk() -> None:
    data = blsk_file()
    found = inspected(data)
    assert (found.kind, found.size, found.typesize) == ("blsk", len(data), 4)
    assert (found.nchunks, found.capacity, found.begin, found.trailers) == (4, 8, 80, True)
    assert [slot.entry for slot in found.slots] == [0, 1, 2, 3]
    offsets = struct.unpack_from("<4q", data, 16)
    assert [slot.start for slot in found.slots] == list(offsets)
    assert [slot.number for slot in found.slots] == [0, 1, 2, 3]
    assert [slot.rows for slot in found.slots] == [30, 30, 30, 10]
    assert {slot.nbytes for slot in found.slots} == {120}
    assert not found.is_damaged
    used = sum(slot.used for slot in found.slots)
    assert used + found.dead + found.spare + found.begin == len(data)
    # The image that the assignment replaced is dead, or spare room of the slot before it.
    assert found.dead > 100
    assert len(found.table()) == 5
    assert "4 chunks" in found.summary()[0]


def test_a_file_of_bcolz() -> None:
    store = MemoryStore()
    ingot.array(np.arange(20), store, format="bcolz", chunks=10)
    data = content(store)["data/__1.blp"]
    found = inspected(data)
    assert (found.kind, found.nchunks, found.capacity, found.dead) == ("bcolz", 1, 0, 0)
    (slot,) = found.slots
    assert (slot.start, slot.number, slot.rows, slot.nbytes) == (16, 1, 10, 80)
    assert slot.used == slot.room == len(data) - 16
    assert slot.identity == f"{identity_of(store):016x}"
    # As bcolz itself writes it, without a trailer.
    bare = inspected(data[: 16 + slot.cbytes])
    assert not bare.trailers
    assert bare.slots[0].number is None


def test_a_damaged_slot_does_not_hide_the_others() -> None:
    data = bytearray(blsk_file())
    offsets = struct.unpack_from("<4q", data, 16)
    struct.pack_into("<I", data, offsets[1] + 12, 1 << 30)
    data[offsets[2]] = 200
    found = inspected(bytes(data))
    assert found.is_damaged
    assert [bool(slot.damage) for slot in found.slots] == [False, True, True, False]
    assert "cbytes claims 1073741824 bytes" in found.slots[1].damage


def test_any_damage_is_shown_or_an_error() -> None:
    data = blsk_file()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        try:
            inspected(bytes(changed)).summary()
        except IngotError:
            assert place < 80, place
    for length in range(len(data)):
        with suppress(IngotError):
            inspected(data[:length]).table()


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="no super-chunk file"):
        inspected(b"PK\3\4" + bytes(100))
    with pytest.raises(UnsupportedError, match="Bloscpack"):
        inspected(b"blpk\3" + bytes(100))
    with pytest.raises(UnsupportedError, match="nchunks is -1"):
        inspected(b"blpk\1\0\0\0" + b"\xff" * 8)

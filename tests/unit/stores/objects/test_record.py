"""The record of an object store: all of it is checked before any of it is used."""

import zlib

import pytest

from ingot.errors import CorruptionError, IngotError, UnsafeError, UnsupportedError
from ingot.stores.local.journal import Carried, Journal, Placed, Removed
from ingot.stores.objects.record import Record, State, pack, parse

JOURNAL = Journal(
    "00112233aabbccdd",
    (
        Placed("c/0", "c/.g-00112233aabbccdd-0", 5, 0x1234),
        Carried("zarr.json", ".g-00112233aabbccdd-zarr.json", b"{}"),
        Removed("c/7"),
    ),
)
RECORDS = [
    Record(State.IDLE, 0, "00112233aabbccdd"),
    Record(State.HELD, 2**40, "00112233aabbccdd", 17, "process 4711 of host"),
    Record(State.DECIDED, 8, "00112233aabbccdd", 3, "process 4711", JOURNAL),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.state.name)
def test_a_record_is_what_was_packed(record: Record) -> None:
    assert parse(pack(record), "here") == record


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.state.name)
def test_no_damaged_record_is_used(record: Record) -> None:
    data = pack(record)
    for size in range(len(data)):
        with pytest.raises((CorruptionError, UnsupportedError), match="here"):
            parse(data[:size], "here")
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x41
        with pytest.raises((CorruptionError, UnsupportedError), match="here"):
            parse(bytes(changed), "here")


def summed(data: bytes) -> bytes:
    return data + zlib.crc32(data).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("start", "field"),
    [(8, b"\x02\x00"), (10, b"\x09\x00"), (20, b"not hexadecimal!"), (44, b"\xff\xff")],
    ids=["version", "state", "transaction", "length of the writer"],
)
def test_impossible_fields_are_refused_whatever_the_checksum(start: int, field: bytes) -> None:
    data = bytearray(pack(RECORDS[1])[:-4])
    data[start : start + len(field)] = field
    with pytest.raises(IngotError, match="here"):
        parse(summed(bytes(data)), "here")


def test_a_journal_belongs_to_a_decided_commit_only() -> None:
    for record in (
        Record(State.DECIDED, 8, "00112233aabbccdd"),
        Record(State.IDLE, 8, "00112233aabbccdd", journal=JOURNAL),
    ):
        with pytest.raises(CorruptionError, match="journal"):
            parse(pack(record), "here")


def test_keys_outside_of_the_dataset_are_refused() -> None:
    bad = Journal("00112233aabbccdd", (Removed("../other"),))
    with pytest.raises(UnsafeError):
        parse(pack(Record(State.DECIDED, 8, "00112233aabbccdd", journal=bad)), "here")

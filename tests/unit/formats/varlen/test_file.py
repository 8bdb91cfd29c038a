"""What a file of variable-length items holds, and the enemies of its front."""

import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, NotFoundError
from ingot.formats import json
from ingot.formats.varlen.file import VarlenFile
from ingot.stores import MemoryStore
from ingot.testing.counting import CountingStore
from tests import varlen_files as by_hand

PACKS: list[list[bytes | None]] = [[b"ape", None], [b"", b"bees" * 9, b"c"]]


def read(data: bytes) -> VarlenFile:
    return VarlenFile.read(MemoryStore({"a.blv": data}), "a.blv")


def test_a_file_by_hand_is_read() -> None:
    data = by_hand.packed_file(PACKS, spare=3, user={"unit": "m"})
    file = read(data)
    assert (file.length, file.size, file.header.count) == (5, len(data), 2)
    assert file.table.firsts is not None
    assert file.table.firsts.tolist() == [0, 2]
    assert (file.table.spare, file.metadata.attrs) == (3, {"unit": "m"})
    assert data.startswith(file.front)
    assert file.rooms.tolist() == [len(by_hand.pack(each)) for each in PACKS]
    assert file.begin == file.table.starts[0]


def test_bytes_behind_the_last_pack_have_no_meaning() -> None:
    store = MemoryStore({"a.blv": by_hand.packed_file(PACKS) + b"left by a writer that died"})
    found = ingot.open(store)
    assert isinstance(found, ingot.Ragged)
    assert list(found) == [b"ape", None, b"", b"bees" * 9, b"c"]


@pytest.mark.parametrize("spare", [0, 1, 4095, 4096, 4097, 20_000])
def test_tables_of_any_length_are_read(spare: int) -> None:
    file = read(by_hand.packed_file(PACKS, spare=spare))
    assert (file.table.spare, file.length) == (spare, 5)


def test_long_tables_take_few_reads() -> None:
    packs = [[b"x"]] * 20_000
    store = CountingStore({"a.blv": by_hand.packed_file(packs, spare=5)})
    store.reset()
    assert VarlenFile.read(store, "a.blv").table.spare == 5
    assert store.batches <= 3


def test_a_file_without_metadata_holds_bytes() -> None:
    images = [by_hand.chunk(b"one"), by_hand.chunk(b"two")]
    table = by_hand.entry(48, 48 + len(images[0]))
    data = by_hand.header(2, 0, options=0x05) + table + b"".join(images)
    found = ingot.open(MemoryStore({"a.blv": data}))
    assert isinstance(found, ingot.Ragged)
    assert list(found) == [b"one", b"two"]
    assert dict(found.attrs) == {}


def test_packs_need_the_number_of_items() -> None:
    meta = by_hand.document({"dtype": "utf8"})
    image = by_hand.pack([b"a"])
    front = by_hand.header(1, len(meta)) + meta + by_hand.entry(32 + len(meta) + 16, 0)
    with pytest.raises(FormatError, match="shape is missing"):
        read(by_hand.sealed(front) + image)


def test_absent_files_are_not_found() -> None:
    with pytest.raises(NotFoundError):
        VarlenFile.read(MemoryStore(), "a.blv")
    with pytest.raises(NotFoundError):
        VarlenFile.read(MemoryStore(), "")


def test_a_file_that_was_not_finished_is_refused() -> None:
    made = MemoryStore()
    ingot.ragged(["a", "b"], made)
    file = VarlenFile.read(made, "data.blv")
    unfinished = file.unfinished()
    assert len(unfinished) == file.begin
    assert unfinished[16:24] == b"\xff" * 8
    with pytest.raises(CorruptionError, match="did not finish") as caught:
        ingot.open(MemoryStore({"data.blv": unfinished + bytes(500)}))
    assert any("ingot.repair" in note for note in caught.value.__notes__)
    # The header of one that names a number, but no places.
    meta = by_hand.document({"dtype": "bytes", "shape": [1]})
    front = by_hand.header(1, len(meta), options=0x17) + meta + by_hand.entry(-1)
    with pytest.raises(CorruptionError, match="entry 0 is -1, it was never written"):
        read(by_hand.sealed(front) + by_hand.chunk(b"a"))


def test_errors_name_the_file() -> None:
    with pytest.raises(IngotError) as caught:
        read(by_hand.header(5, 0))
    assert "'a.blv'" in caught.value.__notes__[-1]


def test_metadata_longer_than_the_limit_are_not_read() -> None:
    size = json.LARGEST + 1
    data = by_hand.header(0, size) + b" " * size
    with pytest.raises(LimitError, match="metadata claim"):
        read(data)


@pytest.mark.parametrize("place", ["header", "metadata", "table", "spare"])
def test_damage_of_the_front_is_noticed(place: str) -> None:
    data = bytearray(by_hand.packed_file(PACKS, spare=2))
    file = read(bytes(data))
    start = file.header.table_start
    data[{"header": 7, "metadata": 50, "table": start, "spare": start + 33}[place]] ^= 1
    with pytest.raises(IngotError):
        read(bytes(data))


def test_is_current_compares_bytes() -> None:
    data = by_hand.packed_file(PACKS)
    store = MemoryStore({"a.blv": data})
    file = VarlenFile.read(store, "a.blv")
    assert file.is_current(store, "a.blv")
    assert not file.is_current(MemoryStore({"a.blv": data + b"x"}), "a.blv")
    other = by_hand.packed_file(PACKS, nulls=False)
    assert len(other) == len(data) + 1
    other = other[:-1]
    assert not file.is_current(MemoryStore({"a.blv": other}), "a.blv")
    assert not file.is_current(MemoryStore(), "a.blv")

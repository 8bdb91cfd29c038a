"""The table of a file of variable-length items."""

import numpy as np
import pytest

from ingot.errors import CorruptionError
from ingot.formats.varlen.offsets import PackTable, spare_entries
from tests import varlen_files as by_hand

BEGIN, SIZE, LEAST = 100, 1000, 40


def table(starts: list[int], firsts: list[int] | None = None, spare: int = 0) -> PackTable:
    numbers = None if firsts is None else np.array(firsts, np.int64)
    return PackTable(np.array(starts, np.int64), numbers, spare)


def test_offsets_follow_the_metadata_as_the_document_draws_them() -> None:
    made = table([100, 140, 0, 300], spare=2).pack()
    assert made == by_hand.entry(100, 140, 0, 300, -1, -1)
    found = PackTable.parse(made, 4, packed=False)
    assert (found.starts.tolist(), found.firsts, found.capacity) == ([100, 140, 0, 300], None, 6)


def test_pairs_have_the_place_and_the_first_item() -> None:
    made = table([100, 300], [0, 17], 1).pack()
    assert made == by_hand.entry(100, 0, 300, 17, -1, -1)
    found = PackTable.parse(made, 2)
    assert found.firsts is not None
    assert (found.starts.tolist(), found.firsts.tolist(), found.spare) == ([100, 300], [0, 17], 1)
    assert found.bounds(20).tolist() == [0, 17, 20]
    assert table([100, 0]).bounds(2).tolist() == [0, 1, 2]


def test_a_table_that_is_cut_off_is_refused() -> None:
    with pytest.raises(CorruptionError, match="3 entries, 2 are stored"):
        PackTable.parse(by_hand.entry(1, 2, 3, 4), 3)


def test_the_room_of_a_pack_reaches_to_the_next_higher_place() -> None:
    assert table([300, 100, 0, 500]).rooms(SIZE).tolist() == [200, 200, 0, 500]
    assert table([]).rooms(SIZE).tolist() == []


def test_right_tables_are_accepted() -> None:
    table([100, 140, 960], [0, 1, 9]).check(10, BEGIN, SIZE, LEAST, nulls=False)
    table([960, 100, 140], [0, 1, 9]).check(10, BEGIN, SIZE, LEAST, nulls=False)
    table([140, 0, 100, 0]).check(4, BEGIN, SIZE, LEAST, nulls=True)
    table([], []).check(0, BEGIN, SIZE, LEAST, nulls=False)
    table([]).check(0, BEGIN, SIZE, LEAST, nulls=False)


@pytest.mark.parametrize(
    ("starts", "firsts", "length", "text"),
    [
        ([99], [0], 1, "entry 0 is 99"),
        ([0], [0], 1, "entry 0 is 0"),
        ([31], [0], 1, "entry 0 is 31"),
        ([-5], [0], 1, "entry 0 is -5"),
        ([-(2**63)], [0], 1, "entry 0 is"),
        ([2**63 - 1], [0], 1, "entry 0 is"),
        ([100, 961], [0, 1], 2, "entry 1 is 961"),
        ([100, -1], [0, 1], 2, "entry 1 is -1, it was never written"),
        ([100, 100], [0, 1], 2, "entry 1 is 100, inside the pack at 100"),
        ([200, 161], [0, 1], 2, "entry 0 is 200, inside the pack at 161"),
        ([100, 200], [1, 2], 3, "first item of pack 0 is 1, not 0"),
        ([100, 200, 300], [0, 2, 2], 3, "first item of pack 2 is 2, that of the pack before it 2"),
        ([100, 200, 300], [0, 5, 2], 9, "first item of pack 2 is 2"),
        ([100, 200], [0, -3], 9, "first item of pack 1 is -3"),
        ([100, 200], [0, 9], 9, "first item of the last pack is 9, there are 9 items"),
        ([], [], 4, "claims 4 items, the table has no pack"),
        ([100, 200], None, 3, "claims 3 items, the table has 2"),
        ([100, 99], None, 2, "entry 1 is 99"),
        ([100, 110], None, 2, "inside the pack at 100"),
    ],
)
def test_wrong_tables_are_refused(
    starts: list[int], firsts: list[int] | None, length: int, text: str
) -> None:
    with pytest.raises(CorruptionError, match=text):
        table(starts, firsts).check(length, BEGIN, SIZE, LEAST, nulls=True)


def test_a_null_needs_the_word_of_the_metadata() -> None:
    with pytest.raises(CorruptionError, match="entry 1 marks a null, the metadata allow none"):
        table([100, 0]).check(2, BEGIN, SIZE, LEAST, nulls=False)


@pytest.mark.parametrize(
    ("data", "width", "count"),
    [
        (b"", 8, 0),
        (b"\x02" + b"\xff" * 40, 8, 0),
        (b"\xff" * 7, 8, 0),
        (b"\xff" * 8, 8, 1),
        (b"\xff" * 16 + b"\x02", 8, 2),
        (b"\xff" * 16 + b"\x02", 16, 1),
        (b"\xff" * 30 + b"\x02" * 2, 16, 1),
    ],
)
def test_spare_entries_end_where_a_chunk_begins(data: bytes, width: int, count: int) -> None:
    assert spare_entries(data, width) == count

"""Requests that fetch many extents, and how their answers are cut."""

import random

import pytest

from ingot.errors import UnsafeError
from ingot.stores.objects.ranges import GAP, ObjectRange, cut, spans_of
from ingot.stores.store import Extent


def test_extents_far_apart_are_requests_of_their_own() -> None:
    extents = [Extent("a", 0, 10), Extent("a", 10 + GAP, 5), Extent("a", 16 + 2 * GAP, 5)]
    assert spans_of(extents) == {
        "a": [ObjectRange("a", 0, 15 + GAP), ObjectRange("a", 16 + 2 * GAP, 21 + 2 * GAP)]
    }


def test_an_extent_to_the_end_takes_in_all_behind_its_start() -> None:
    assert spans_of([Extent("a", 900), Extent("a", 5, 4), Extent("a", 1 << 30, 4)]) == {
        "a": [ObjectRange("a", 5, None)]
    }


def test_no_bytes_ask_for_existence_only() -> None:
    extents = [Extent("a", 5, 0), Extent("a", 1 << 70, 4)]
    assert spans_of(extents) == {"a": [ObjectRange("a", 0, 0)]}
    assert [cut(extent, [ObjectRange("a", 0, 0)], [b""]) for extent in extents] == [b"", b""]


def test_hostile_keys_are_refused() -> None:
    with pytest.raises(UnsafeError):
        spans_of([Extent("../a")])


@pytest.mark.parametrize("seed", range(20))
def test_every_extent_is_cut_from_the_answers(seed: int) -> None:
    chance = random.Random(seed)
    value = chance.randbytes(100_000)
    extents = [
        Extent("a", chance.randrange(120_000), chance.choice([None, 0, 3, 500, 60_000, 2**70]))
        for _ in range(chance.randrange(1, 12))
    ]
    spans = spans_of(extents)["a"]
    data = [value[span.start : span.stop] for span in spans]
    for extent in extents:
        stop = None if extent.length is None else extent.start + extent.length
        assert cut(extent, spans, data) == value[extent.start : stop]

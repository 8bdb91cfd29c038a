"""Matches are true, disjoint, in order, and within their bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.blosc.pure import lz77
from ingot.blosc.pure.lz77 import find_matches


@given(st.text("ab", max_size=300).map(str.encode), st.integers(1, 100), st.integers(0, 20))
def test_every_match_is_one(data: bytes, window: int, tail: int) -> None:
    free = 0
    for start, length, distance in find_matches(data, window, tail):
        assert start >= free
        assert length >= 4
        assert 1 <= distance <= min(window, start)
        assert start + length <= len(data) - tail
        assert all(data[at] == data[at - distance] for at in range(start, start + length))
        free = start + length


def test_a_match_is_as_long_as_it_can_be() -> None:
    assert list(find_matches(b"0123456789" + b"0123456789" * 50 + b"end", 100, 3)) == [
        (10, 500, 10)
    ]


def test_only_so_many_positions_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(30)) * 2
    assert list(find_matches(data, 100, 0)) == [(30, 30, 30)]
    monkeypatch.setattr(lz77, "_REMEMBERED", 8)
    assert list(find_matches(data, 100, 0)) == []

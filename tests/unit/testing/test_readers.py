"""A remembered run has the outcome that running the reader again would have."""

from collections.abc import Hashable

import pytest

from ingot.stores import Extent, LocalStore
from ingot.testing import Disk
from ingot.testing.readers import Operation, RememberedReader, answer


class Source:
    def __init__(self, **files: bytes) -> None:
        self._disk = Disk(files)

    def ask(self, operation: Operation) -> Hashable:
        return answer(self._disk, operation)


def read(store: LocalStore) -> int:
    """Read `a`, and where it says so `b`; never `c`."""
    first, number = store.read([Extent("a")])[0], 1
    if first == b"more":
        number += len(store.read([Extent("b")])[0] or b"")
    if first is None:
        raise ValueError("no a")
    return number


FILES = [
    {"a": b"x"},
    {"a": b"x", "b": b"1", "c": b"2"},
    {"a": b"more"},
    {"a": b"more", "b": b"12"},
    {"a": b"more", "b": b"12", "c": b"3"},
    {"b": b"1"},
    {},
]


def test_outcomes_are_those_of_the_reader() -> None:
    reader = RememberedReader(read)
    for _ in range(2):
        found = [reader.outcome(lambda files=files: Source(**files))[0] for files in FILES]
        assert found == [1, 1, 1, 3, 3, *["a reader fails: ValueError('no a')"] * 2]
    assert reader.runs == 4


def test_a_reader_that_depends_on_more_than_answers_is_noticed() -> None:
    keys = iter("ab")
    reader = RememberedReader(lambda store: len(store.read([Extent(next(keys))])))
    reader.outcome(lambda: Source(a=b"x"))
    with pytest.raises(AssertionError, match="depend on answers alone"):
        reader.outcome(Source)

"""Values that a thread reads ahead."""

import threading

import pytest

from ingot.containers.device_blocks import read_each


def test_one_value_is_read_each() -> None:
    begun = [threading.Event() for _ in range(4)]
    values = read_each(range(4), lambda number: begun[number].set())
    assert not begun[0].is_set()
    next(values)
    assert begun[1].wait(10)
    next(values)
    assert begun[2].wait(10)
    assert not begun[3].wait(0.05)
    assert [key for key, _ in values] == [2, 3]


def test_an_error_comes_in_its_place() -> None:
    values = read_each([2, 1, 0], lambda number: 10 // number)
    assert [next(values), next(values)] == [(2, 5), (1, 10)]
    with pytest.raises(ZeroDivisionError):
        next(values)


def test_nothing_is_read_after_the_end() -> None:
    read: list[int] = []
    values = read_each(range(100), read.append)
    next(values)
    values.close()  # type: ignore[attr-defined]
    assert len(read) == 2
    assert not list(read_each([], read.append))

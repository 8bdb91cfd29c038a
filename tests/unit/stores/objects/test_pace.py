"""What a process has seen of a server decides how much it fetches at once."""

import pytest

from ingot.stores.objects.pace import Pace, pace_of


def _seen(small: list[float], large: list[tuple[int, float]]) -> Pace:
    pace = Pace()
    for seconds in small:
        pace.note(1000, seconds)
    for nbytes, seconds in large:
        pace.note(nbytes, seconds)
    return pace


@pytest.mark.parametrize(
    ("rate", "wait", "expected"),
    [(80e6, 0.020, 800_000), (2e6, 0.050, 50_000), (1e9, 0.030, 4 << 20)],
    ids=["a server near by", "a slow line", "no more than 4 MiB"],
)
def test_what_comes_in_half_a_round_trip_is_fetched_at_once(
    rate: float, wait: float, expected: int
) -> None:
    pace = _seen([wait] * 5, [(8_000_000, wait + 8_000_000 / rate)])
    assert pace.bytes_at_once == pytest.approx(expected, rel=0.01)


def test_a_server_is_tried_once_when_its_round_trips_are_known() -> None:
    pace = _seen([0.03] * 2, [])
    assert pace.bytes_at_once == 0
    pace.note(0, 0.03)
    assert pace.bytes_at_once == 1 << 20
    pace.note(1 << 20, 1.03)
    assert pace.bytes_at_once < 16 << 10


def test_one_slow_answer_changes_little() -> None:
    pace = _seen([0.02] * 5, [(1_000_000, 0.03)])
    before = pace.bytes_at_once
    pace.note(1000, 5.0)
    pace.note(1_000_000, 5.0)
    assert pace.bytes_at_once == before


def test_a_batch_that_took_no_time_by_the_clock_says_nothing() -> None:
    pace = _seen([0.02] * 5, [(1_000_000, 0.0)])
    assert pace.bytes_at_once == _seen([0.02] * 5, []).bytes_at_once


def test_servers_are_known_apart() -> None:
    assert pace_of("s3://a ") is not pace_of("s3://b ")

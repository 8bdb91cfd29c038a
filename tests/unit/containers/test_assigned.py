"""Single items of a transaction, before they are stored."""

import numpy as np
import pytest

from ingot.containers.assigned import AssignedItems


def _items(shape: tuple[int, ...] = (10,), dtype: str = "<i4", most: int = 1000) -> AssignedItems:
    return AssignedItems(shape, np.dtype(dtype), most)


def test_the_last_of_several_items_for_one_place_counts() -> None:
    items = _items()
    assert items.put_plain(3, 1)
    assert items.put_plain(-7, 2)
    assert items.put_plain((3,), np.int32(4))
    items.put((3,), np.array([[9]], "<i4"))
    assert items.put_plain(np.int8(4), True)
    (places,), values = items.take()
    assert dict(zip(places.tolist(), values.tolist(), strict=True)) == {3: 9, 4: 1}
    assert len(items) == 2


def test_a_value_that_does_not_fit_leaves_the_one_before() -> None:
    items = _items(dtype="i1")
    assert items.put_plain(3, 7)
    for value in (300, float("nan"), "7", None, np.int8, [1], np.array(5), 1.5, np.int16(4), 2j):
        assert not items.put_plain(3, value)
        assert not items.put_plain(4, value)
    (places,), values = items.take()
    assert (places.tolist(), values.tolist()) == ([3], [7])


@pytest.mark.parametrize(
    "key",
    [10, -11, 2**70, True, np.True_, 1.0, "1", None, ..., slice(1, 2), (1, 2), [1], (), (1.0,)],
)
def test_other_keys_are_left_alone(key: object) -> None:
    items = _items()
    assert not items.put_plain(key, 5)
    assert len(items) == 0


def test_places_of_several_axes() -> None:
    items = _items((3, 4), "<f4")
    assert items.put_plain((1, -1), 2.5)
    assert items.put_plain((np.int64(2), 0), 3)
    for key in (1, (1,), (3, 0), (0, 4), (0, -5), (0, slice(1)), (0, 0, 0)):
        assert not items.put_plain(key, 1)
    items.put((0, 1), np.array([[7]], "<f4"))
    places, values = items.take()
    found = np.zeros((3, 4))
    found[places] = values
    assert found.tolist() == [[0, 7, 0, 0], [0, 0, 0, 2.5], [3, 0, 0, 0]]


@pytest.mark.parametrize("dtype", [">i2", "?", "c8", "S3", "M8[s]", "U2", "V2", "f2"])
def test_plain_values_are_cast_as_numpy_does(dtype: str) -> None:
    expected = np.zeros(8, dtype)
    items = _items((8,), dtype)
    for place, value in enumerate([1, True, 2.5, expected[0], np.float32(1), 0]):
        if items.put_plain(place, value):
            expected[place] = value
        else:
            items.put((place,), expected[place : place + 1])
    (places,), values = items.take()
    assert values.dtype == expected.dtype
    assert places.tolist() == list(range(6))
    assert values.tobytes() == expected[:6].tobytes()


def test_more_items_than_there_was_room_for() -> None:
    items = _items((1000,), "<i8", 500)
    for place in range(500):
        assert not items.is_full
        assert items.put_plain(999 - place, place)
    assert items.is_full
    (places,), values = items.take()
    assert (places + values).tolist() == [999] * 500

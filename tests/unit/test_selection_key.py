"""How the items of a key are read, before they mean anything together."""

import numpy as np
import pytest

from ingot.errors import SelectionError
from ingot.selection import BREAK, GROUP, NEW, POINT, Key, within_bounds


def test_pieces_follow_the_key():
    key = Key.read((None, 1, ..., [0, 1], slice(2)), (5, 6, 7, 8))
    assert key.pieces == [NEW, POINT, BREAK, 1, GROUP, 3]
    assert key.axes[:2] == [range(1, 2), range(6)]


def test_an_ellipsis_for_no_axis_still_separates():
    assert Key.read((0, ..., [0, 1]), (5, 6)).pieces == [POINT, BREAK, GROUP]


def test_a_mask_is_a_piece_for_each_of_its_axes():
    key = Key.read((slice(None), np.eye(2, dtype=bool)), (5, 2, 2))
    assert key.pieces == [0, GROUP, GROUP]
    assert [axis.tolist() for axis in key.axes[1:]] == [[0, 1], [0, 1]]


def test_masks_without_axes_belong_to_none():
    key = Key.read((True, False), (5,))
    assert key.pieces == [GROUP, GROUP, 0]
    assert key.lone == [(1,), (0,)]
    assert key.axes == [range(5)]


def test_index_arrays_of_a_group_are_copied_and_not_yet_checked():
    given = np.array([99, -1], dtype=np.int64)
    (found,) = Key.read((given,), (5,)).axes
    assert found.tolist() == [99, -1]
    assert not np.shares_memory(found, given)


def test_orthogonal_index_arrays_are_checked_at_once():
    with pytest.raises(SelectionError, match="index 99 is out of bounds for axis 1 with size 5"):
        Key.read((0, [99]), (5, 5), orthogonal=True)


@pytest.mark.parametrize(
    ("indices", "culprit"), [([0, 5], 5), ([-6, 0], -6), ([-9, 9], 9), ([2**62], 2**62)]
)
def test_bounds(indices, culprit):
    with pytest.raises(SelectionError, match=f"index {culprit} is out of bounds for axis 3"):
        within_bounds(np.array(indices), 3, 5)


def test_an_axis_without_items_has_no_positions():
    assert within_bounds(np.zeros(0, dtype=np.int64), 0, 0).tolist() == []
    for item in (0, -1):
        with pytest.raises(SelectionError, match="for axis 0 with size 0"):
            Key.read((item, ...), (0,))

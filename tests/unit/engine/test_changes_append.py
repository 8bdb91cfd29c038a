"""What an array takes in when it grows."""

from typing import Any

import numpy as np
import pytest

from ingot.codecs.codec import CodecChain
from ingot.engine.changes import appended
from ingot.schema import ArraySchema


def schema(*shape: int, dtype: Any = "<i4") -> ArraySchema:
    return ArraySchema(shape, np.dtype(dtype), (3,) * len(shape), CodecChain(), None)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_values_go_behind_the_last_ones(axis: int) -> None:
    growth = appended(np.ones((5, 5)), schema(5, 5), axis)
    whole = np.zeros(growth.shape)
    place = tuple(
        slice(start, start + count)
        for start, count in zip(growth.selection.starts, growth.selection.counts, strict=True)
    )
    whole[place] = growth.values
    np.testing.assert_array_equal(whole, np.concatenate([np.zeros((5, 5)), np.ones((5, 5))], axis))
    assert growth.values.dtype == np.dtype("<i4")


def test_objects_are_as_deep_as_the_array_says() -> None:
    row = np.arange(3)
    growth = appended([row, row], schema(4, dtype=object), 0)
    assert growth.shape == (6,)
    assert all(item is row for item in growth.values)
    assert appended([[1, [2]]], schema(4, 2, dtype=object), 0).values[0, 1] == [2]

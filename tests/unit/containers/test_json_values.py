"""Values become what JSON has."""

import json

import numpy as np
import pytest

from ingot.containers.json_values import to_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.datetime64("2026-01-31"), "2026-01-31"),
        (np.array(["2026-01-31", "NaT"], "M8[D]"), ["2026-01-31", None]),
        (np.timedelta64(90, "s"), 90),
        (np.float32("inf"), "Infinity"),
        (np.array([[1, 2], [3, 4]], "u1"), [[1, 2], [3, 4]]),
        (np.array([(1, 2.5)], "i4,f8")[0], [1, 2.5]),
        (np.bool_(True), True),
        (b"\xff", "\\xff"),
        (1 + 2j, [1.0, 2.0]),
        ({1: np.nan}, {"1": None}),
        (None, None),
        (range(3), [0, 1, 2]),
    ],
)
def test_json_has_numbers_texts_and_lists(value, expected):
    assert to_json(value) == expected
    json.dumps(to_json(value), allow_nan=False)

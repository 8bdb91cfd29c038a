"""Values with nulls: slices, masks, and what comes from masked arrays and objects."""

import numpy as np
import pytest

from ingot.nullable_array import MaskedRows, NullableArray, of_masked, of_objects


def test_items_of_several_axes_share_one_mask() -> None:
    column = NullableArray(np.arange(6).reshape(3, 2), np.array([True, False, True]))
    assert column.masked().tolist() == [[0, 1], [None, None], [4, 5]]
    assert column.compressed().tolist() == [[0, 1], [4, 5]]
    assert column.filled(9).values.tolist() == [[0, 1], [9, 9], [4, 5]]
    assert column[1:].masked().tolist() == [[None, None], [4, 5]]
    assert (column.shape, column.ndim, len(column), column.has_nulls) == ((3, 2), 2, 3, True)
    assert column.astype(np.dtype("f4")).dtype == np.dtype("f4")


def test_changing_a_masked_array_changes_no_mask() -> None:
    column = NullableArray(np.array([1, 2]), np.array([True, False]))
    column.masked()[1] = 5
    assert column.valid.tolist() == [True, False]


def test_a_masked_array_without_masked_items_is_a_plain_one() -> None:
    assert type(of_masked(np.ma.MaskedArray([1, 2]), "a")) is np.ndarray
    found = of_masked(np.ma.MaskedArray([[1, 2], [3, 4]], [[True, True], [False, False]]), "a")
    assert isinstance(found, NullableArray)
    assert found.valid.tolist() == [False, True]


def test_objects_become_the_type_of_those_that_exist() -> None:
    nulls = np.array([True, False, True])
    found = of_objects([None, 2**40, "ignored"], nulls, None, "a")
    assert (found.dtype, found.masked().tolist()) == (np.dtype("i8"), [None, 2**40, None])
    assert of_objects([None], np.array([True]), None, "a").masked().tolist() == [None]
    with pytest.raises(ValueError, match="column 'a': "):
        of_objects([None, "x"], np.array([True, False]), np.dtype("i8"), "a")


def test_rows_with_nulls_have_their_plain_values() -> None:
    inner = np.dtype([("p", "i8"), ("q", object)])
    dtype = np.dtype([("a", "i8"), ("s", object), ("xy", "f8", (2,)), ("in", inner)])
    data = np.array([(1, "x", (1.0, 2.0), (3, "u")), (2, None, (3.0, 4.0), (5, "v"))], dtype)
    rows = MaskedRows(data, np.ma.make_mask_none((2,), dtype))
    rows.mask["a"][1] = True
    rows.mask["xy"][1] = True
    rows.mask["in"]["p"][1] = True
    first, second = rows
    assert first.item()[:2] == first.tolist()[:2] == (1, "x")
    assert second.item() == second.tolist() == (None, None, None, (None, "v"))
    assert second.item(3) == (None, "v")
    assert second["in"].item() == second[3].item() == (None, "v")
    assert second["a"] is np.ma.masked
    assert rows[::-1].tolist()[0] == second.item()
    assert rows["a"].tolist() == [1, None]
    assert rows["in"].tolist() == [(3, "u"), (None, "v")]

"""Values that a caller gives: what NumPy makes of them, and errors that say what to do."""

import numpy as np
import pytest

import ingot
from ingot.errors import ArgumentError, ArgumentTypeError, IngotError
from ingot.values import as_array


def test_an_array_of_the_type_is_not_copied() -> None:
    values = np.arange(4, dtype="i2")
    assert as_array(values, np.dtype("i2")) is values
    assert as_array(values).dtype == np.dtype("i2")


def test_masked_items_are_refused_and_masks_without_them_are_not() -> None:
    masked = np.ma.MaskedArray([1, 2], [False, True])
    with pytest.raises(ArgumentError, match="masked"):
        as_array(masked)
    assert as_array(np.ma.MaskedArray([1, 2], False)).tolist() == [1, 2]
    array = ingot.array([5, 6, 7])
    for change in (lambda: array.append(masked), lambda: array.__setitem__(slice(2), masked)):
        with pytest.raises(ArgumentError, match="masked"):
            change()
    assert array[...].tolist() == [5, 6, 7]
    table = ingot.table({"a": masked})
    assert table["a"][...].tolist() == [1, None]
    table["a"][:] = masked
    assert table["a"][...].tolist() == [1, None]


@pytest.mark.parametrize("values", [[2**70], [1000], ["x"]])
def test_values_that_do_not_fit_are_errors_of_ingot(values: list[object]) -> None:
    array = ingot.array(np.arange(3, dtype="i1"))
    for change in (
        lambda: ingot.array(values, dtype="i1"),
        lambda: array.append(values),
        lambda: array.__setitem__(slice(1), values),
    ):
        with pytest.raises(ArgumentError):
            change()
    assert array[...].tolist() == [0, 1, 2]


def test_rows_of_different_lengths_lead_to_ragged() -> None:
    with pytest.raises(ArgumentError, match=r"ingot\.ragged"):
        ingot.array([[1, 2], [3]])
    with pytest.raises(ArgumentTypeError) as caught:
        as_array(object(), np.dtype("i4"))
    assert isinstance(caught.value, IngotError)

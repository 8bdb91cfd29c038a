"""What keys mean, case by case; tests/property compares with NumPy at large."""

import datetime
from typing import Any

import numpy as np
import pytest

from ingot.errors import (
    ArgumentError,
    ArgumentOverflowError,
    ArgumentTypeError,
    SelectionError,
)
from ingot.selection import (
    Arrangement,
    BasicSelection,
    CoordinateSelection,
    OrthogonalSelection,
    parse,
    parse_orthogonal,
)


class TestBasic:
    def test_fields(self):
        selection = parse((slice(1, 9, 3), -1, slice(None, None, -2)), (10, 20, 5))
        assert selection == BasicSelection(
            starts=(1, 19, 4),
            counts=(3, 1, 3),
            steps=(3, 1, -2),
            dropped=(False, True, False),
            shape=(3, 3),
            scalar=False,
        )

    def test_axes_not_named_are_whole(self):
        selection = parse(slice(2, 4), (5, 6, 7))
        assert (selection.starts, selection.counts) == ((2, 0, 0), (2, 6, 7))

    @pytest.mark.parametrize("key", [(..., 1), (slice(None), slice(None), 1)])
    def test_ellipsis_stands_for_whole_axes(self, key):
        selection = parse(key, (5, 6, 7))
        assert selection.counts == (5, 6, 1)
        assert selection.dropped == (False, False, True)

    def test_new_axes_are_in_the_result_only(self):
        selection = parse((None, 2, None, ..., None), (5, 6))
        assert selection.engine_shape == (1, 6)
        assert selection.shape == (1, 1, 6, 1)

    @pytest.mark.parametrize(
        "item", [slice(5, 5), slice(9, 2), slice(100, 200), slice(2, 9, -1), slice(0, 0, 10**40)]
    )
    @pytest.mark.parametrize("form", [lambda item: item, lambda item: (item, ...)])
    def test_nothing_starts_at_zero_with_step_one(self, item, form):
        selection = parse(form(item), (10,))
        assert (selection.starts, selection.counts, selection.steps) == ((0,), (0,), (1,))

    @pytest.mark.parametrize("form", [lambda item: item, lambda item: (item, ...)])
    @pytest.mark.parametrize("step", [10**40, -(10**40), -7])
    def test_a_single_item_has_step_one(self, form, step):
        selection = parse(form(slice(3, 4 if step > 0 else 2, step)), (10,))
        assert (selection.starts, selection.counts, selection.steps) == ((3,), (1,), (1,))

    @pytest.mark.parametrize("form", [lambda item: item, lambda item: (item, ...)])
    def test_axes_of_2_to_62_cost_nothing(self, form):
        selection = parse(form(slice(None, None, -1)), (2**62, 2**62))
        assert selection.shape == (2**62, 2**62)
        assert selection.starts == (2**62 - 1, 0)

    @pytest.mark.parametrize(
        ("key", "shape", "scalar"),
        [
            ((1, 2), (3, 3), True),
            ((np.int64(1), np.uint8(2)), (3, 3), True),
            ((np.array(1), 2), (3, 3), True),
            ((), (), True),
            ((1, 2, ...), (3, 3), False),
            (..., (), False),
            ((1, slice(0, 1)), (3, 3), False),
            ((1,), (3, 3), False),
        ],
    )
    def test_items_and_arrays_without_axes(self, key, shape, scalar):
        data = np.zeros(shape)
        selection = parse(key, shape)
        assert selection.scalar == scalar
        assert isinstance(data[key], np.ndarray) != scalar
        finished = selection.finish(np.zeros(selection.engine_shape))
        assert isinstance(finished, np.ndarray) != scalar

    def test_an_object_comes_out_as_itself(self):
        array = np.empty((1, 1), dtype=object)
        array[0, 0] = [1, 2]
        assert parse((0, 0), (3, 3)).finish(array) == [1, 2]

    def test_finish_copies_nothing(self):
        array = np.zeros((1, 6))
        assert np.shares_memory(parse((2, None), (5, 6)).finish(array), array)


class TestOrthogonal:
    def test_one_index_array(self):
        selection = parse((slice(1, 3), [4, -1, 4]), (5, 6))
        assert isinstance(selection, OrthogonalSelection)
        assert selection.axes[0] == range(1, 3)
        assert selection.axes[1].tolist() == [4, 5, 4]
        assert selection.engine_shape == selection.shape == (2, 3)

    def test_integers_stay_ranges(self):
        selection = parse((2, slice(None), [1, 3]), (5, 6, 7))
        assert isinstance(selection, OrthogonalSelection)
        assert selection.axes[0] == range(2, 3)
        assert selection.engine_shape == (1, 6, 2)
        assert selection.shape == (2, 6)

    def test_a_product_of_index_arrays_is_not_walked(self):
        """A million by a million points, of which only the two million indices are kept."""
        rows = np.arange(10**6)
        selection = parse(np.ix_(rows, rows), (10**6, 10**6))
        assert isinstance(selection, OrthogonalSelection)
        assert selection.shape == selection.engine_shape == (10**6, 10**6)

    def test_a_product_the_other_way_round_is_turned(self):
        data = np.arange(30).reshape(5, 6)
        selection = parse(([0, 1, 2], [[3], [4]]), (5, 6))
        assert isinstance(selection, OrthogonalSelection)
        assert selection.engine_shape == (3, 2)
        finished = selection.finish(data[:3, 3:5])
        np.testing.assert_array_equal(finished, data[[0, 1, 2], [[3], [4]]])

    def test_an_index_array_with_axes_of_its_own_between_others(self):
        data = np.arange(30).reshape(5, 6)
        first, second = np.array([[[0, 1]], [[2, 3]]]), np.array([[1], [4], [5]])
        selection = parse((first, second), data.shape)
        assert isinstance(selection, OrthogonalSelection)
        assert selection.engine_shape == (4, 3)
        finished = selection.finish(data[:4][:, [1, 4, 5]])
        np.testing.assert_array_equal(finished, data[first, second])

    def test_mask_of_one_axis(self):
        selection = parse((slice(None), [True, False, True]), (4, 3))
        assert isinstance(selection, OrthogonalSelection)
        assert selection.axes[1].tolist() == [0, 2]

    @pytest.mark.parametrize("key", [True, np.True_, np.array(True), (True, True)])
    def test_true_adds_an_axis(self, key):
        selection = parse(key, (4, 3))
        assert selection.engine_shape == (4, 3)
        assert selection.shape == (1, 4, 3)

    def test_key_of_oindex(self):
        data = np.arange(120).reshape(4, 5, 6)
        selection = parse_orthogonal(
            ([3, 0], 1, [True, False, False, True, False, True]), (4, 5, 6)
        )
        assert [list(axis) for axis in selection.axes] == [[3, 0], [1], [0, 3, 5]]
        finished = selection.finish(data[[3, 0]][:, 1:2][:, :, [0, 3, 5]])
        np.testing.assert_array_equal(finished, data[[3, 0], 1][:, [0, 3, 5]])

    def test_key_of_oindex_may_be_short_or_have_new_axes(self):
        assert parse_orthogonal([0, 2], (4, 5)).shape == (2, 5)
        assert parse_orthogonal((..., [0, 2]), (4, 5)).shape == (4, 2)
        assert parse_orthogonal(([0, 2], None, [1]), (4, 5)).shape == (2, 1, 1)

    def test_key_of_oindex_without_arrays_is_basic(self):
        assert isinstance(parse_orthogonal((1, ..., slice(2)), (4, 5, 6)), BasicSelection)
        assert parse_orthogonal((1, slice(2)), (4, 5)) == parse((1, slice(2)), (4, 5))


class TestCoordinate:
    def test_points(self):
        selection = parse(([1, 2], slice(None), [3, -1]), (5, 6, 7))
        assert isinstance(selection, CoordinateSelection)
        assert selection.engine_shape == (2, 6)
        assert selection.axes[0].tolist() == [1, 2]
        assert selection.axes[1] == range(6)
        assert selection.axes[2].tolist() == [3, 6]

    def test_arrays_are_broadcast(self):
        selection = parse(([[1], [2]], [[3, 4], [5, 0]]), (5, 6))
        assert isinstance(selection, CoordinateSelection)
        assert [axis.tolist() for axis in selection.axes] == [[1, 1, 2, 2], [3, 4, 5, 0]]
        assert selection.engine_shape == (4,)
        assert selection.shape == (2, 2)

    def test_mask_of_all_axes(self):
        mask = np.array([[True, False, True], [False, False, True]])
        selection = parse(mask, (2, 3))
        assert isinstance(selection, CoordinateSelection)
        assert [axis.tolist() for axis in selection.axes] == [[0, 0, 1], [0, 2, 2]]

    def test_integers_stay_ranges(self):
        selection = parse(([1, 2], 3, [4, 5]), (5, 6, 7))
        assert isinstance(selection, CoordinateSelection)
        assert selection.axes[1] == range(3, 4)
        assert selection.engine_shape == (2, 1)
        assert selection.shape == (2,)

    @pytest.mark.parametrize("key", [False, np.False_, (False, slice(None)), (True, False)])
    def test_false_selects_no_points(self, key):
        selection = parse(key, (4, 3))
        assert isinstance(selection, CoordinateSelection)
        assert selection.engine_shape == selection.shape == (0, 4, 3)

    def test_indices_that_are_broadcast_away_do_not_get_out(self):
        selection = parse(([], [99]), (3, 3))
        assert [axis.tolist() for axis in selection.axes] == [[], []]


class TestIndexArrays:
    KEYS = (
        lambda index: index,
        lambda index: (index, slice(None)),
        lambda index: (index, index),
        lambda index: np.ix_(index, index),
    )

    @pytest.mark.parametrize("form", KEYS)
    def test_they_are_private_and_read_only(self, form):
        index = np.array([1, 2, -1])
        selection = parse(form(index), (5, 5))
        index[:] = 77
        arrays = [axis for axis in selection.axes if isinstance(axis, np.ndarray)]
        assert arrays
        for array in arrays:
            assert array.tolist() == [1, 2, 4]
            assert array.dtype == np.int64
            assert array.flags.c_contiguous
            with pytest.raises(ValueError):
                array[0] = 0

    def test_the_key_is_not_changed(self):
        index = np.array([1, 2, -1])
        parse(index, (5,))
        parse_orthogonal(index, (5,))
        assert index.tolist() == [1, 2, -1]

    def test_order_and_duplicates_are_kept(self):
        assert parse([3, 0, 3, 1], (5,)).axes[0].tolist() == [3, 0, 3, 1]


PLACES = [
    ((slice(None), [0, 1], [1, 2], slice(None)), (4, 2, 7)),
    (([0, 1], [1, 2]), (2, 6, 7)),
    ((slice(None), slice(None), [0, 1], [1, 2]), (4, 5, 2)),
    (([0, 1], slice(None), [1, 2]), (2, 5, 7)),
    ((0, slice(None), [1, 2]), (2, 5, 7)),
    ((slice(None), 0, [1, 2]), (4, 2, 7)),
    ((slice(None), [0, 1], None, [1, 2]), (2, 4, 1, 7)),
    ((slice(None), 0, ..., [1, 2]), (2, 4, 6)),
    ((slice(None), slice(None), 0, ..., [1, 2]), (2, 4, 5)),
    ((None, slice(None), [[0], [1]], [1, 2]), (1, 4, 2, 2, 7)),
]


@pytest.mark.parametrize(("key", "shape"), PLACES)
def test_where_the_broadcast_goes(key, shape):
    assert parse(key, (4, 5, 6, 7)).shape == shape


def error_of(call: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        call(*arguments)
    return caught.value


SAME_WORDS = [
    (5, (5,)),
    (-6, (5,)),
    ((0, 3), (5, 3)),
    ((0, np.int64(3)), (5, 3)),
    ((..., 3), (5, 3)),
    ([7], (5,)),
    ((slice(None), [0, -9]), (5, 3)),
    ((0, 0), (5,)),
    (([0], [0]), (5,)),
    (np.zeros((5, 1), dtype=bool), (5,)),
    ((..., ...), (5,)),
    ([True], (5,)),
    ((slice(None), np.ones((2, 2), dtype=bool)), (5, 2, 3)),
    (([1, 2], [0, 1, 1]), (5, 3)),
    (([True, True, False], [0, 1, 1]), (3, 3)),
    ((None,) * 62, (4, 2, 3)),
    (np.zeros((1,) * 63, dtype=int), (4, 2, 3)),
    (slice(1.0, None), (5,)),
    (slice(None, None, 0), (5,)),
    ((..., slice("a", None)), (5,)),
    ((False, 5), (3, 3)),
    ([[1, 2], [3]], (5,)),
]


@pytest.mark.parametrize(("key", "shape"), SAME_WORDS)
def test_errors_say_what_numpy_says(key, shape):
    expected = error_of(np.zeros(shape).__getitem__, key)
    error = error_of(parse, key, shape)
    assert str(error) == str(expected).strip()
    kinds = {IndexError: SelectionError, TypeError: ArgumentTypeError, ValueError: ArgumentError}
    assert type(error) is kinds[type(expected)]
    assert isinstance(error, type(expected))


@pytest.mark.parametrize(
    "key",
    [
        1.0,
        np.float64(1),
        "name",
        b"name",
        [1.0],
        ["a"],
        {1},
        {"a": 1},
        object(),
        np.array([]),
        np.array(1.0),
        np.array([1], dtype=object),
        [2**70],
        [slice(1)],
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
)
@pytest.mark.parametrize("call", [parse, parse_orthogonal])
def test_what_is_no_index(key, call):
    with pytest.raises(IndexError):
        np.zeros(5)[key]
    with pytest.raises(SelectionError, match="are valid indices"):
        call(key, (5,))


@pytest.mark.parametrize(
    "key", [2**70, -(2**70), np.array(2**64 - 1, dtype="u8"), np.array([2**64 - 1], dtype="u8")]
)
@pytest.mark.parametrize("call", [parse, parse_orthogonal])
def test_integers_beyond_64_bits_are_out_of_bounds(key, call):
    with pytest.raises(SelectionError, match="is out of bounds for axis 0 with size 9223372036"):
        call(key, (2**63 - 1,))


@pytest.mark.parametrize("key", [[[0, 1]], True, np.array(False), np.ones((2, 2), dtype=bool)])
def test_what_is_no_orthogonal_index(key):
    with pytest.raises(SelectionError, match="axis 0: an orthogonal index has 1 axis"):
        parse_orthogonal(key, (2, 2))


class TestForms:
    def test_anything_with_an_index(self):
        class Three:
            def __index__(self) -> int:
                return 3

        assert parse(Three(), (5,)) == parse(3, (5,))
        assert parse(slice(Three(), None), (5,)) == parse(slice(3, None), (5,))

    def test_arrays_of_others(self):
        class Others:
            def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
                return np.array([1, 3], dtype=dtype)

            def __index__(self) -> int:
                raise TypeError("not a single item")

        assert parse(Others(), (5,)).axes[0].tolist() == [1, 3]

    def test_empty_lists(self):
        assert parse([], (5,)).shape == (0,)
        assert parse([[]], (5,)).shape == (1, 0)
        assert parse_orthogonal(([], [1]), (5, 5)).shape == (0, 1)

    def test_sequences(self):
        assert parse(((1, 2),), (5, 6)).shape == (2, 6)
        assert parse(range(3), (5,)).axes[0].tolist() == [0, 1, 2]

    def test_masks_of_no_items_fit_any_axis(self):
        """As in NumPy, which makes an exception for them."""
        none = np.zeros(0, dtype=bool)
        assert np.zeros((3, 4))[none].shape == parse(none, (3, 4)).shape == (0, 4)


class TestPrepare:
    @pytest.mark.parametrize("key", [slice(0, 2), [0, 1], ([0, 1], [[0], [1]])])
    def test_an_item_is_repeated_without_memory(self, key):
        selection = parse(key, (10**6, 10**6))
        prepared = selection.prepare(7)
        assert prepared.shape == selection.engine_shape
        assert set(prepared.strides) == {0}

    def test_a_fitting_array_is_not_copied(self):
        value = np.zeros((3, 4))
        assert np.shares_memory(parse((slice(3), 1), (5, 6, 4)).prepare(value, value.dtype), value)
        assert np.shares_memory(parse([0, 2, 1], (5, 4)).prepare(value, value.dtype), value)

    @pytest.mark.parametrize(
        ("dtype", "value"),
        [
            ("i4", [1.7, -1.7, 3.2]),
            ("f4", [1, 2, 3]),
            ("?", [0, 2, 0]),
            ("S2", [b"a", b"abc", b""]),
            ("U2", "abc"),
            ("M8[s]", datetime.datetime(2020, 1, 1)),
            ("M8[D]", "NaT"),
            ([("a", "i4"), ("b", "f8")], (1, 2.5)),
            ([("a", "i4"), ("b", "f8")], [(1, 2.5), (3, 4), (5, 6)]),
            (np.dtypes.StringDType(), ["a", "long enough to be on the heap", ""]),
            ("O", [None, [1, 2], "x"]),
            ("O", [[1, 2], [3, 4], [5, 6]]),
            ("O", None),
            ("O", "text"),
            ("O", {"a": 1}),
        ],
    )
    def test_items_are_cast_as_on_assignment(self, dtype, value):
        expected = np.zeros(5, dtype=dtype)
        expected[1:4] = value
        prepared = parse(slice(1, 4), (5,)).prepare(value, np.dtype(dtype))
        assert prepared.dtype == expected.dtype
        assert prepared.tolist() == expected[1:4].tolist()

    @pytest.mark.parametrize("value", [[1, 2], np.arange(3), (1,), None, "x"])
    def test_an_object_item_may_be_a_sequence(self, value):
        prepared = parse(2, (5,)).prepare(value, np.dtype(object))
        assert prepared.shape == (1,)
        assert prepared[0] is value

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            (slice(0, 3), [1, 2]),
            ((slice(0, 3), ...), np.zeros((2, 1))),
            ([0, 1, 2], [1, 2]),
            ([0, 1, 2], np.zeros((2, 3))),
            ([[0, 1], [1, 2]], [1, 2, 3]),
            (([0, 1, 2], None), [1, 2]),
            (2, [1]),
            (2, [1, 2]),
            ((2, ...), np.zeros(2)),
            (slice(0, 0), [1, 2]),
            (False, [1, 2, 3]),
        ],
    )
    def test_what_does_not_fit_says_what_numpy_says(self, key, value):
        expected = error_of(np.zeros(5).__setitem__, key, value)
        with pytest.raises(ValueError) as caught:
            parse(key, (5,)).prepare(value, np.dtype("f8"))
        assert isinstance(expected, ValueError)
        assert str(caught.value) == str(expected).strip()

    def test_a_list_of_objects_that_does_not_fit(self):
        with pytest.raises(ValueError, match="could not broadcast"):
            parse(slice(3), (5,)).prepare([None, None], np.dtype(object))

    def test_numbers_that_do_not_fit_the_type(self):
        with pytest.raises(ArgumentOverflowError, match="300"):
            parse(slice(3), (5,)).prepare(300, np.dtype("u1"))

    def test_leading_axes_of_length_one_are_dropped(self):
        assert parse(slice(3), (5,)).prepare(np.zeros((1, 1, 3))).shape == (3,)
        assert parse([0, 1], (5,)).prepare(np.zeros((1, 1, 2))).shape == (2,)

    def test_other_leading_axes_are_not_dropped_even_without_items(self):
        value = np.zeros((2, 1, 0))
        expected = error_of(np.zeros((3, 0)).__setitem__, slice(2), value)
        with pytest.raises(ValueError) as caught:
            parse(slice(2), (3, 0)).prepare(value)
        assert str(caught.value) == str(expected)

    def test_the_last_of_equal_places_comes_last(self):
        selection = parse(([0, 1, 0], [2, 2, 2]), (3, 3))
        data = np.zeros((3, 3), dtype=int)
        value = selection.prepare([1, 2, 3])
        for item, *place in zip(value, *selection.axes, strict=True):
            data[tuple(place)] = item
        assert data[:, 2].tolist() == [3, 2, 0]


def test_as_many_axes_as_numpy_has():
    index = np.zeros((1,) * 31 + (2,) + (1,) * 30, dtype=int)
    data = np.arange(24).reshape(4, 2, 3)
    selection = parse(index, data.shape)
    assert selection.shape == data[index].shape
    np.testing.assert_array_equal(selection.finish(data[[0, 0]]), data[index])
    assert selection.prepare(np.zeros((1,) * 62 + (3,))).shape == (2, 2, 3)


def test_arrangement_is_its_own_reverse():
    arrangement = Arrangement(split=(2, 3, 4), order=(2, 0, 1), shape=(4, 1, 2, 3))
    engine = np.arange(24).reshape(6, 4)
    finished = arrangement.finish(engine)
    assert finished.shape == (4, 1, 2, 3)
    np.testing.assert_array_equal(arrangement.prepare(finished, None, (6, 4)), engine)

"""Names, comparisons and keys that users of other libraries try: errors say what to use."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    IngotError,
    SelectionError,
    UnknownNameError,
    UnsupportedError,
)


@pytest.fixture
def array() -> ingot.Array:
    return ingot.array(np.arange(12).reshape(3, 4), chunks=(2, 3))


@pytest.fixture
def table() -> ingot.Table:
    return ingot.table({"a": [1, 2, 3], "b": ["x", None, "z"]})


@pytest.mark.parametrize(
    ("name", "hint"),
    [("compressor", "codec"), ("reshape", "array[...].reshape"), ("cbytes", "stored_bytes")],
)
def test_names_of_other_libraries_name_those_of_arrays(
    array: ingot.Array, name: str, hint: str
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        getattr(array, name)
    assert str(caught.value).endswith(f"'{name}'; use {hint}")
    assert isinstance(caught.value, AttributeError)
    assert (caught.value.name, caught.value.obj) == (name, array)


def test_every_hint_is_for_a_name_that_does_not_exist(
    array: ingot.Array, table: ingot.Table
) -> None:
    group = ingot.group()
    for dataset in (array, table, group):
        assert dataset._ELSEWHERE
        for name in dataset._ELSEWHERE:
            assert not hasattr(dataset, name)
            with pytest.raises(UnknownNameError, match="; use "):
                getattr(dataset, name)
        with pytest.raises(UnknownNameError) as caught:
            dataset.nothing_like_it  # noqa: B018 - the access is what is tested
        assert "use" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "hint"), [("columns", "names"), ("head", "read() or to_numpy()"), ("nothing", None)]
)
def test_names_that_views_do_not_have(table: ingot.Table, name: str, hint: str | None) -> None:
    view = table.where("a > 1")
    with pytest.raises(UnknownNameError) as caught:
        getattr(view, name)
    assert str(caught.value).endswith(f"{name!r}" if hint is None else f"; use {hint}")
    assert (caught.value.name, caught.value.obj) == (name, view)
    assert copy.copy(view).read()["a"].tolist() == [2, 3]


def test_names_that_columns_of_words_do_not_have(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    ingot.table({"city": pandas.Categorical(["Oslo", "Bergen"])}, tmp_path / "t.bcolz")
    city = ingot.open(tmp_path / "t.bcolz")["city"]
    with pytest.raises(UnknownNameError, match=r"use column\[:\].tolist"):
        city.tolist()
    with pytest.raises(UnknownNameError, match=r"no attribute .nothing.$"):
        city.nothing  # noqa: B018 - the access is what is tested
    assert pickle.loads(pickle.dumps(city))[:].tolist() == ["Oslo", "Bergen"]


def test_a_column_is_no_attribute_and_the_error_says_how_it_is_read(table: ingot.Table) -> None:
    with pytest.raises(UnknownNameError, match=r"use table\['a'\]"):
        getattr(table, "a")  # noqa: B009 - mypy knows that there is none


@pytest.mark.parametrize("name", ["zeros", "open_array", "load", "save", "carray", "create_group"])
def test_names_of_other_packages_name_those_of_ingot(name: str) -> None:
    assert not hasattr(ingot, name)
    with pytest.raises(UnknownNameError, match=r"use ingot\."):
        getattr(ingot, name)


def test_copies_and_pickles_do_not_stumble_over_names(
    array: ingot.Array, table: ingot.Table
) -> None:
    assert copy.copy(array)[...].tolist() == array[...].tolist()
    assert copy.deepcopy(array)[...].tolist() == array[...].tolist()
    assert pickle.loads(pickle.dumps(table))["a"][:].tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [2, 2.5, "x", [1, 2], np.int64(3), None])
def test_arrays_are_not_compared_with_values(
    array: ingot.Array, table: ingot.Table, value: object
) -> None:
    comparisons: list[Callable[[Any], object]] = [
        lambda each: each < value,
        lambda each: each <= value,
        lambda each: each > value,
        lambda each: each >= value,
    ]
    for compare in comparisons:
        with pytest.raises(ArgumentTypeError, match=r"array\[\.\.\.\]"):
            compare(array)
        with pytest.raises(ArgumentTypeError, match=r"table\.where"):
            compare(table["a"])


def test_arrays_of_numpy_are_compared_item_by_item(array: ingot.Array) -> None:
    other = np.full((3, 4), 5)
    found: Any = array > other
    assert found.tolist() == (array[...] > other).tolist()
    found = other > array
    assert found.tolist() == (other > array[...]).tolist()


def test_in_asks_for_items(array: ingot.Array) -> None:
    assert 11 in array
    assert 12 not in array
    assert 7 in ingot.array(7)
    assert "b" in ingot.array(["a", "b"])


@pytest.mark.parametrize("key", [("a", "b"), (0, "a"), ("a", slice(2))])
def test_several_columns_are_a_list(table: ingot.Table, key: Any) -> None:
    with pytest.raises(SelectionError, match=r"table\[\["):
        table[key]


@pytest.mark.parametrize("rows", [[1, 2], (1, "x"), [(1,)], ["ab"]])
def test_rows_without_a_value_for_each_column_are_refused(table: ingot.Table, rows: Any) -> None:
    with pytest.raises(ArgumentError, match="row 0"):
        table.append(rows)
    assert len(table) == 3


@pytest.mark.parametrize("rows", ["x", 1.5, None])
def test_a_number_of_rows_is_a_whole_number(table: ingot.Table, rows: Any) -> None:
    for call in (table.head, table.tail, table.resize):
        with pytest.raises(ArgumentTypeError, match="rows"):
            call(rows)


def test_slices_raise_errors_of_ingot_that_numpy_users_catch(array: ingot.Array) -> None:
    with pytest.raises(ArgumentError, match="step cannot be zero"):
        array[::0]
    with pytest.raises(ArgumentTypeError, match="slice indices"):
        array[1.5:]  # type: ignore[misc]
    with pytest.raises(ArgumentError, match="step cannot be zero"):
        array.oindex[::0]
    with pytest.raises(SelectionError, match="'x'"):
        array["x"]


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".parquet", ".b2nd"])
def test_files_of_other_programs_are_not_made_by_their_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"data{suffix}"
    for make in (
        lambda: ingot.array([1, 2], path),
        lambda: ingot.table({"a": [1]}, path),
        lambda: ingot.convert(ingot.array([1], tmp_path / f"{suffix[1:]}.zarr").path, path),
    ):
        with pytest.raises(UnsupportedError, match="is the suffix of"):
            make()
        assert not path.exists()
    assert ingot.array([1, 2], path, format="zarr3").path == str(path)


@pytest.mark.parametrize("call", [ingot.open, ingot.check, lambda path: ingot.array([1], path)])
def test_an_empty_path_is_refused(call: Callable[[str], object]) -> None:
    with pytest.raises(ArgumentError, match="the path is empty"):
        call("")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"mode": "w"}, "overwrite=True"),
        ({"rootdir": "x"}, "'path'"),
        ({"compressor": None}, "'codec'"),
        ({"dtype": [("a", "i4"), ("a", "i4")]}, "more than once"),
        ({"dtype": object}, r"ingot\.ragged"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(IngotError, match=word):
        ingot.create(**{"shape": (3,), "dtype": "i4", **arguments})

"""Columns that read as words and as decimals, beside the integers that are stored."""

import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.containers.decoded_column import CategoryColumn, DecodedColumn

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

WORDS = ["b", None, "a", "b"]


@pytest.fixture(params=["bcolz", "blsk"])
def table(request: Any, tmp_path: Path) -> ingot.Table:
    city = pandas.Categorical(WORDS, categories=["a", "b", "unused"])
    price = pyarrow.array([Decimal("1.50"), None, Decimal("-2.25"), Decimal("0")])
    size = pandas.Categorical([2.5, None, 1.5, 2.5])
    columns = {"city": city, "price": price, "size": size}
    return ingot.table(columns, tmp_path / "t", format=request.param, chunks=3)


def test_categories_read_as_words(table: ingot.Table) -> None:
    city = table["city"]
    assert isinstance(city, CategoryColumn)
    assert city[:].tolist() == WORDS
    assert city[:].dtype == city.dtype == table.dtypes["city"]
    assert (city[0], city[1], city[-2]) == ("b", None, "a")
    assert city[[3, 0]].tolist() == ["b", "b"]
    assert city[np.array([False, True, True, False])].tolist() == [None, "a"]
    assert list(city) == WORDS
    assert np.asarray(city).tolist() == city.to_numpy().tolist() == city.read().tolist() == WORDS
    assert np.asarray(city, object).tolist() == WORDS
    assert (len(city), city.shape, city.ndim, city.size) == (4, (4,), 1, 4)
    assert city.categories.tolist() == ["a", "b", "unused"]
    assert city.codes[:].tolist() == city.stored[:].tolist() == [1, -1, 0, 1]
    assert not city.ordered
    assert city.has_nulls
    assert repr(city) == "<CategoryColumn 'city' of 4 items>"
    assert city.to_arrow().to_pylist() == WORDS


def test_words_that_are_numbers_read_as_masked_arrays(table: ingot.Table) -> None:
    assert table["size"][:].tolist() == [2.5, None, 1.5, 2.5]
    assert isinstance(table["size"][:], np.ma.MaskedArray)
    assert table["size"][1] is np.ma.masked
    assert table["size"].dtype == np.float64
    assert np.asarray(table["size"]).tolist() == [2.5, None, 1.5, 2.5]


def test_decimals_read_as_decimals(table: ingot.Table) -> None:
    price = table["price"]
    assert isinstance(price, DecodedColumn)
    assert price[:].tolist() == [Decimal("1.50"), None, Decimal("-2.25"), Decimal("0.00")]
    assert price.stored[:].tolist() == [150, None, -225, 0]
    assert price.dtype == np.dtype(object)
    assert price.has_nulls


def test_items_are_assigned_by_what_they_mean(table: ingot.Table) -> None:
    city, price = table["city"], table["price"]
    city[1] = "new"
    city[0:2] = ["a", "newer"]
    city[3] = None
    assert city[:].tolist() == ["a", "newer", "a", None]
    assert city.categories.tolist() == ["a", "b", "unused", "new", "newer"]
    city[...] = "b"
    assert city[:].tolist() == ["b"] * 4
    assert not city.has_nulls
    price[1] = Decimal("7.25")
    price[2] = None
    price[3] = 4
    assert price[:].tolist() == [Decimal("1.50"), Decimal("7.25"), None, Decimal("4.00")]
    for wrong in (Decimal("0.001"), "x", 100):
        with pytest.raises(ValueError, match="column 'price'"):
            price[0] = wrong
    with pytest.raises(ValueError, match="column 'city'"):
        city[0] = 7


def test_columns_have_attributes_and_are_pickled(table: ingot.Table) -> None:
    if table.format == "bcolz":
        table["city"].attrs["units"] = "none"
        assert dict(table["city"].attrs) == {"units": "none"}
    assert pickle.loads(pickle.dumps(table["city"]))[:].tolist() == WORDS


def test_a_column_that_became_another_says_so(table: ingot.Table) -> None:
    city = table["city"]
    table.drop_column("city")
    table.add_column("city", [1, 2, 3, 4])
    for use in (city.read, lambda: city.categories, lambda: city.dtype):
        with pytest.raises(ingot.errors.FormatError, match="no longer"):
            use()

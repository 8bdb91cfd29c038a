"""Tables as data frames of narwhals, and of those that ask by the protocol of data frames."""

from typing import Any

import pytest

import ingot

narwhals = pytest.importorskip("narwhals")
pyarrow = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")


def table() -> ingot.Table:
    return ingot.table({"city": pandas.Categorical(["a", None, "b"]), "n": [1, 2, 3]})


@pytest.mark.parametrize("source", [table(), table().where("n > 0")], ids=["table", "view"])
def test_narwhals_takes_a_table_as_it_is(source: Any) -> None:
    frame = narwhals.from_native(source)
    assert frame.filter(narwhals.col("n") > 1)["n"].to_list() == [2, 3]
    assert frame["city"].cast(narwhals.String).to_list() == ["a", None, "b"]


@pytest.mark.parametrize("source", [table(), table().where("n > 0")], ids=["table", "view"])
def test_the_protocol_of_data_frames_gives_arrow(source: Any) -> None:
    from pyarrow.interchange import from_dataframe

    found = source.__dataframe__()
    assert list(found.column_names()) == ["city", "n"]
    assert found.num_rows() == 3
    numbers = from_dataframe(source.__dataframe__().select_columns_by_name(["n"]))
    assert numbers["n"].to_pylist() == [1, 2, 3]

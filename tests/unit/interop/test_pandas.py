"""Data frames of pandas from tables, with the types of both of its backends; narwhals on top."""

import numpy as np
import pandas
import pytest
from pandas.testing import assert_frame_equal

import ingot
from ingot.interop import pandas as frames

pyarrow = pytest.importorskip("pyarrow")

COLUMNS = {
    "i": np.arange(4, dtype="i2"),
    "u": np.arange(4, dtype="u8"),
    "f": np.array([0.5, np.nan, 1, 2], "f4"),
    "b": np.array([True, False, True, True]),
    "t": np.array(["a", "bc", "", "é"]),
    "d": np.array(["2020-01-01", "NaT", "2021-01-01", "2022-01-01"], "M8[ns]"),
}


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_the_types_are_those_of_a_backend(backend: str) -> None:
    table = ingot.table(COLUMNS)
    found = table.to_pandas(dtype_backend=backend)
    for name in ("i", "u", "b"):
        assert found[name].tolist() == COLUMNS[name].tolist()
    text = {"numpy_nullable": "string", "pyarrow": "string[pyarrow]"}[backend]
    assert str(found["t"].dtype) == text
    integer = {"numpy_nullable": "Int16", "pyarrow": "int16[pyarrow]"}[backend]
    assert str(found["i"].dtype) == integer
    assert found["d"].isna().tolist() == [False, True, False, False]
    some = table.where("i >= 2").to_pandas(dtype_backend=backend)
    assert some.index.tolist() == [2, 3]
    assert some["u"].tolist() == [2, 3]


def test_unknown_backends_are_refused() -> None:
    with pytest.raises(ValueError, match="dtype_backend is 'numpy'"):
        frames.of_arrow(pyarrow.table({"a": [1]}), "numpy")


def test_pandas_takes_the_stream() -> None:
    table = ingot.table({"a": [1, 2], "b": [0.5, 1.5]})
    expected = pandas.DataFrame({"a": [1, 2], "b": [0.5, 1.5]})
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert_frame_equal(pandas.DataFrame.from_arrow(table), expected)
    assert_frame_equal(table.to_pandas(), expected)
    assert_frame_equal(pandas.DataFrame(table.read()), expected)


def test_narwhals_takes_the_stream() -> None:
    narwhals = pytest.importorskip("narwhals")
    frame = narwhals.from_arrow(ingot.table({"a": [1, 2, 3]}), backend="pyarrow")
    assert frame.filter(narwhals.col("a") > 1)["a"].to_list() == [2, 3]

"""Tables of many kinds of columns, for the tests of tables."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

import ingot
from tests.storage import Place

ROWS = 1000


def data(rows: int = ROWS, first: int = 0) -> dict[str, NDArray[Any]]:
    """Return columns of many kinds."""
    numbers = np.arange(first, first + rows)
    return {
        "i": numbers.astype("i8"),
        "f": np.where(numbers % 7 == 3, np.nan, numbers / 4).astype("f4"),
        "d": (numbers * 3600).astype("M8[s]"),
        "s": np.char.mod("n%d", numbers).astype("S8"),
        "t": np.char.mod("ä%d", numbers % 100).astype("U3"),
        "b": numbers % 3 == 0,
        "m": (numbers[:, None] * [1, -1]).astype("i2"),
    }


def make(place: Place, columns: Any = None, **settings: Any) -> ingot.Table:
    return ingot.table(data() if columns is None else columns, place, chunks=64, **settings)


def assert_holds(table: ingot.Table, expected: dict[str, NDArray[Any]]) -> None:
    found = table.read()
    assert list(found) == list(expected)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, strict=True)
        np.testing.assert_array_equal(table[name][...], values, strict=True)
    assert len(table) == len(next(iter(expected.values()), ()))


def without(columns: dict[str, NDArray[Any]], rows: Any) -> dict[str, NDArray[Any]]:
    return {name: np.delete(values, rows, axis=0) for name, values in columns.items()}


def joined(*parts: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def nested() -> dict[str, Any]:
    """Return columns, some of them in tables inside of tables."""
    return {"n": np.arange(10), "p": {"x": np.arange(10.0), "y": {"z": np.ones(10, "i4")}}}

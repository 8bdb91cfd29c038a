"""Tables inside of tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import (
    ColumnError,
    UnsupportedError,
)
from tests.storage import Place, content
from tests.tables import make, nested


def test_nested_columns(place: Place) -> None:
    points = np.zeros(10, [("x", "f8"), ("y", [("z", "i4")])])
    points["x"] = np.arange(10)
    table = make(place, {"n": np.arange(10), "p": points})
    assert table.names == ("n", "p")
    assert table["p"]["y"]["z"].dtype == table["p.y.z"].dtype == np.dtype("i4")
    assert isinstance(table["p"], ingot.Table)
    assert table.dtypes["p"] == points.dtype
    assert table["p"].read("x", where="x > 7")["x"].tolist() == [8, 9]
    assert table.read("n", where="p.x > 7")["n"].tolist() == [8, 9]
    assert list(table.read("p")) == ["p.x", "p.y.z"]
    table.append({"n": [10], "p": {"x": [10.0], "y": {"z": [1]}}})
    table.append(np.zeros(1, table.dtype))
    assert table[10]["p"]["y"]["z"] == 1
    table["p"].update("x == 10", {"y": {"z": 7}})
    assert table["p.y.z"][10] == 7
    assert table.delete("p.y.z == 7") == 1
    assert len(table["p"]) == 11
    with pytest.raises(ValueError, match="by the table"):
        table["p"].resize(3)
    table.add_column("q", {"r": np.arange(11)})
    assert ingot.open(place)["q.r"][:].tolist() == list(range(11))


NESTED_CHANGES: dict[str, Callable[[ingot.Table], object]] = {
    "added inside": lambda table: table["p"].add_column("w", np.arange(10), position=0),
    "added by dots": lambda table: table.add_column("p.w", np.arange(10), position=0),
    "added deeper": lambda table: table.add_column("p.y.w", {"v": np.arange(10)}),
    "dropped inside": lambda table: table["p"].drop_column("y"),
    "dropped by dots": lambda table: table.drop_column("p.y"),
    "renamed inside": lambda table: table["p"]["y"].rename_column("z", "w"),
    "renamed by dots": lambda table: table.rename_column("p.y.z", "p.y.w"),
    "renamed table": lambda table: table["p"].rename_column("y", "w"),
    "described": lambda table: table["p"].attrs.update(unit="m"),
    "described deeper": lambda table: table["p"]["y"].attrs.update(unit="m"),
    "described column": lambda table: table["p"]["y"]["z"].attrs.update(unit="m"),
    "updated": lambda table: table["p"]["y"].update(slice(2), {"z": 7}),
}


def portrait(table: ingot.Table) -> dict[str, Any]:
    """Return all that a table says of itself, with the tables inside of it."""
    inner = {name: table[name] for name in table.names}
    return {
        "attrs": dict(table.attrs),
        "columns": {
            name: portrait(each)
            if isinstance(each, ingot.Table)
            else (each[...].tolist(), dict(each.attrs))
            for name, each in inner.items()
        },
    }


@pytest.mark.parametrize("change", NESTED_CHANGES.values(), ids=list(NESTED_CHANGES))
def test_what_changes_a_nested_table_changes_the_whole(
    place: Place, change: Callable[[ingot.Table], object]
) -> None:
    table = make(place, nested())
    before = portrait(table)
    change(table)
    after = portrait(table)
    assert after != before
    assert portrait(ingot.open(place)) == after  # type: ignore[arg-type]
    # What comes next starts from there, in the nested table and in the whole.
    table["p"].attrs["later"] = 1
    table.update([0], {"n": 100})
    assert portrait(ingot.open(place)) == portrait(table)  # type: ignore[arg-type]
    assert portrait(table)["columns"]["p"]["attrs"]["later"] == 1


def test_the_names_in_a_nested_table_are_what_was_asked_for(place: Place) -> None:
    table = make(place, nested())
    inner = table["p"]
    table.add_column("p.w", np.arange(10), position=0, attrs={"unit": "s"})
    table.rename_column("p.x", "p.u")
    table.rename_column("p.y", "p.v")
    assert inner.names == ("w", "u", "v")
    assert dict(table["p.w"].attrs) == {"unit": "s"}
    table.append({"n": [10], "p": {"w": [10], "u": [10.0], "v": {"z": [2]}}})
    table.drop_column("p.w")
    assert list(ingot.open(place).read()) == ["n", "p.u", "p.v.z"]
    assert inner["v"]["z"][9:].tolist() == [1, 2]


def test_a_transaction_over_nested_tables_is_one_commit(place: Place) -> None:
    table = make(place, nested())
    reader = ingot.open(place)
    assert isinstance(reader, ingot.Table)
    before = portrait(reader)
    with table["p"].transaction():
        table["p"].add_column("w", np.arange(10))
        table.rename_column("p.x", "p.u")
        table.append({"n": [1], "p": {"u": [1.0], "y": {"z": [1]}, "w": [1]}})
        table["p.y"].attrs["unit"] = "m"
        assert portrait(reader) == before
    assert portrait(reader) == portrait(table)
    assert reader["p"].names == ("u", "y", "w")
    assert len(reader["p.u"]) == 11

    def fail() -> None:
        with table.transaction():
            table.drop_column("p.w")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert portrait(reader) == portrait(table)
    assert reader["p"].names == ("u", "y", "w")


REFUSED_NESTED: dict[str, Callable[[ingot.Table], object]] = {
    "rows": lambda table: table["p"].append({"x": [1.0], "y": {"z": [1]}}),
    "fewer rows": lambda table: table["p"]["y"].delete([1]),
    "no such table": lambda table: table.add_column("q.w", np.arange(10)),
    "an array": lambda table: table.add_column("n.w", np.arange(10)),
    "length": lambda table: table.add_column("p.w", np.arange(9)),
    "taken": lambda table: table.add_column("p.x", np.arange(10)),
    "empty": lambda table: table.add_column("p.w", {}),
    "absent": lambda table: table.drop_column("p.w"),
    "the last": lambda table: table.drop_column("p.y.z"),
    "out of it": lambda table: table.rename_column("p.x", "x"),
    "into another": lambda table: table.rename_column("p.x", "p.y.x"),
    "into it": lambda table: table.rename_column("n", "p.n"),
}


@pytest.mark.parametrize("change", REFUSED_NESTED.values(), ids=list(REFUSED_NESTED))
def test_what_a_nested_table_cannot_become_is_refused(
    place: Place, change: Callable[[ingot.Table], object]
) -> None:
    table = make(place, nested())
    stored = content(place)
    with pytest.raises((ValueError, ColumnError)):
        change(table)
    assert content(place).keys() - {".lock"} == stored.keys() - {".lock"}
    assert portrait(ingot.open(place)) == portrait(table)  # type: ignore[arg-type]
    assert table["p"]["y"].names == ("z",)


def test_expressions_name_columns_and_not_nested_tables(place: Place) -> None:
    table = make(place, nested())
    for wrong in ("p == 1", "isnull(p.y)", "n == 1 and p"):
        with pytest.raises(ColumnError, match="is a nested table, and not a column"):
            table.where(wrong)


def test_a_nested_table_that_is_gone_says_so(place: Place) -> None:
    table = make(place, nested())
    inner = table["p"]["y"]
    table.drop_column("p.y")
    with pytest.raises(ColumnError):
        inner.read()
    with pytest.raises(ColumnError):
        inner.attrs["unit"] = "m"


def test_a_nested_table_opened_alone_keeps_its_length(tmp_path: Path) -> None:
    whole = make(tmp_path / "t", nested())
    inner = ingot.open(tmp_path / "t" / "p", "r+")
    inner.attrs["unit"] = "m"
    inner.add_column("w", np.arange(10))
    inner["y"]["z"][3] = 9
    assert not (tmp_path / "t" / "p" / ".lock").exists()
    assert (whole["p"].attrs["unit"], whole["p"].names) == ("m", ("x", "y", "w"))
    assert whole["p.y.z"][3] == 9
    refused: tuple[Callable[[], object], ...] = (
        lambda: inner.append({"x": [1.0], "y": {"z": [1]}, "w": [1]}),
        lambda: inner.delete([1]),
        lambda: inner["y"].resize(3),
        lambda: ingot.open(tmp_path / "t" / "p" / "x", "r+").append([1.0]),
        lambda: ingot.table({"a": [1]}, tmp_path / "t" / "p", overwrite=True),
    )
    before = content(tmp_path / "t")
    for change in refused:
        with pytest.raises(UnsupportedError):
            change()
    with pytest.raises(ValueError, match="last column"):
        ingot.open(tmp_path / "t" / "p" / "y", "r+").drop_column("z")
    after = content(tmp_path / "t")
    assert {**after, ".lock": b""} == {**before, ".lock": b""}
    assert len(ingot.open(tmp_path / "t")) == 10

"""Views by masks and parameters, views of views, and the names that users of pandas reach for."""

import datetime
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import ColumnError, IngotError, SelectionError, UnsupportedError

MASK = np.array([True, False, True, True])


@pytest.fixture(params=["bcolz", "blsk"])
def table(request: pytest.FixtureRequest) -> ingot.Table:
    columns = {"a": [1, 2, 3, 4], "b": [1.5, 2.5, 3.5, 4.5]}
    return ingot.table(columns, chunks=2, format=request.param)


@pytest.mark.parametrize("mask", [MASK, MASK.tolist(), tuple(MASK.tolist())])
def test_a_mask_selects_rows(table: ingot.Table, mask: Any) -> None:
    view = table.where(mask)
    assert view.rows().tolist() == [0, 2, 3]
    assert (len(view), view.count()) == (3, 3)
    assert view["a"].tolist() == [1, 3, 4]
    assert view.read("b", rows=[3, 1, 0])["b"].tolist() == [4.5, 1.5]
    assert [row["a"] for row in view] == [1, 3, 4]
    assert view[["b"]].read() == {"b": pytest.approx([1.5, 3.5, 4.5])}
    assert table.read("a", where=mask)["a"].tolist() == [1, 3, 4]
    assert "a mask of 3 rows" in repr(view)


def test_a_mask_of_another_length_or_type_is_refused(table: ingot.Table) -> None:
    for wrong in ([True], [1, 0, 1, 1], [[True] * 4]):
        with pytest.raises(SelectionError, match="mask"):
            table.where(wrong)  # type: ignore[arg-type]
    view = table.where(MASK)
    table.append({"a": [5], "b": [5.5]})
    with pytest.raises(SelectionError, match="a mask of 4 items for a table of 5 rows"):
        view.read()


def test_a_mask_of_pandas(table: ingot.Table) -> None:
    pandas = pytest.importorskip("pandas")
    assert table.where(pandas.Series(MASK)).rows().tolist() == [0, 2, 3]


def test_views_of_views(table: ingot.Table) -> None:
    view = table.where("a > 1").where("b < 4")
    assert view.rows().tolist() == [1, 2]
    assert view.where(MASK).rows().tolist() == [2]
    assert table.where(MASK).where("a > 1").where(~MASK | (np.arange(4) == 3)).rows().tolist() == [
        3
    ]
    assert table[["b"]].where("a > 3").read() == {"b": pytest.approx([4.5])}
    with pytest.raises(ColumnError, match="no column 'z'"):
        view.where("z > 1")


def test_masks_reach_arrow(table: ingot.Table) -> None:
    pytest.importorskip("pyarrow")
    view = table.where(MASK).where("a != 3")
    assert view.to_arrow()["a"].to_pylist() == [1, 4]
    assert [value for batch in view.to_batches() for value in batch["a"].to_pylist()] == [1, 4]
    assert view.dataset().to_table()["b"].to_pylist() == [1.5, 4.5]


def test_a_view_is_pickled_with_its_table(tmp_path: Path) -> None:
    table = ingot.table({"a": [1, 2, 3], "b": [4, 5, 6]}, tmp_path / "t")
    for view in (table.where("a > 1"), table[["b"]], table.where([True, False, True])[["a"]]):
        again = pickle.loads(pickle.dumps(view))
        assert again.names == view.names
        assert again.rows().tolist() == view.rows().tolist()
    with pytest.raises(UnsupportedError, match="knows no table"):
        pickle.dumps(type(view)(table._handle))


@pytest.mark.parametrize(
    ("expression", "params", "expected"),
    [
        ("a > @x", {"x": 2}, [2, 3]),
        ("@low <= a < @high", {"low": np.int8(2), "high": 4.0}, [1, 2]),
        ("a in @some", {"some": [1, 4]}, [0, 3]),
        ("a not in @some", {"some": np.array([1, 4])}, [1, 2]),
        ("a == @a", {"a": 3}, [2]),
        ("d == @day", {"day": datetime.date(1970, 1, 3)}, [2]),
        ("d < @day", {"day": np.datetime64("1970-01-02")}, [0]),
        ("s == @text", {"text": "' or 1 == 1 or '"}, []),
        ("s == '@x'", {}, [3]),
    ],
)
def test_parameters(expression: str, params: dict[str, Any], expected: list[int]) -> None:
    columns = {"a": [1, 2, 3, 4], "d": np.arange(4).astype("M8[D]"), "s": ["a", "b", "c", "@x"]}
    found = ingot.table(columns).where(expression, params=params)
    assert found.rows().tolist() == expected


def test_given_parameters_come_from_nowhere_else(table: ingot.Table) -> None:
    x = y = 2
    for expression, params, message in (
        ("a > @x", {}, "@x has no value; params has none"),
        ("a > @y", {"x": x + y}, "@y has no value; params has x"),
        ("a > @x", {"x": [1]}, "@x is list, which a row cannot have"),
        ("a in @x", {"x": 1}, "@x is none"),
        ("a > @x", {"x": 2**70}, "beyond 64 bits"),
        ("a @ b", None, "invalid syntax|not an operator|MatMult"),
    ):
        with pytest.raises(SelectionError, match=message):
            table.where(expression, params=params)
    with pytest.raises(TypeError, match="parameters are for an expression"):
        table.where(MASK).where(table.where("a > 1")._expression, params={})


def test_one_equals_sign_gets_a_hint(table: ingot.Table) -> None:
    with pytest.raises(SelectionError, match="== compares"):
        table.where("a = 1")
    with pytest.raises(SelectionError) as caught:
        table.where("a == '=' +")
    assert "== compares" not in str(caught.value)


def test_names_that_users_of_pandas_reach_for(table: ingot.Table) -> None:
    assert table.head(2).tolist() == [(1, 1.5), (2, 2.5)]
    assert table.tail(1).tolist() == [(4, 4.5)]
    assert (len(table.head(99)), len(table.tail(99)), len(table.tail(0))) == (4, 4, 0)
    assert table.columns == table.keys() == ("a", "b")
    found = dict(table)
    assert list(found) == ["a", "b"]
    assert found["b"][:].tolist() == [1.5, 2.5, 3.5, 4.5]
    assert table._ipython_key_completions_() == ["a", "b"]
    table["c"] = [9, None, 7, 6]
    table["d"] = 1.5
    table["q"] = {"x": [1, 2, 3, 4]}
    table["q.y"] = [4, 3, 2, 1]
    table["a"] = 0
    assert table["c"][:].tolist() == [9, None, 7, 6]
    assert table["d"][:].tolist() == [1.5] * 4
    assert table["q"].read()["y"].tolist() == [4, 3, 2, 1]
    assert table["a"][:].tolist() == [0] * 4
    del table["b"], table["q.x"]
    assert (table.names, table["q"].names) == (("a", "c", "d", "q"), ("y",))
    with pytest.raises(TypeError, match="delete removes rows"):
        del table[0]  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="no column 'b'"):
        del table["b"]


def test_rows_are_assigned_as_tuples(table: ingot.Table) -> None:
    table[0] = (7, 7.0)
    table[-1] = [None, 8.5]
    table[1:3] = [(5, 5.5), (6, 6.5)]
    assert table.read()["a"].tolist() == [7, 5, 6, None]
    assert table["b"][:].tolist() == [7.0, 5.5, 6.5, 8.5]
    with pytest.raises(ValueError, match="one value for each of a, b"):
        table[0] = (1,)


@pytest.mark.parametrize("format", ["bcolz", "blsk"])
def test_a_null_is_none_in_the_plain_values_of_a_row(format: str) -> None:
    numbers = np.ma.MaskedArray([1, 2, 3], [False, True, False])
    table = ingot.table(
        {"n": numbers, "name": ["a", None, "c"], "in": {"p": numbers, "q": ["u", "v", None]}},
        format=format,
    )
    expected = [(1, "a", (1, "u")), (None, None, (None, "v")), (3, "c", (3, None))]
    assert [row.item() for row in table] == expected
    assert table[1].item() == expected[1]
    assert table[:].tolist() == expected
    assert [row.item() for row in table.where("isnull(n)")] == expected[1:2]


def test_rows_of_a_view_are_counted_in_the_view(table: ingot.Table) -> None:
    view = table.where(np.array([False, True, True, True]))
    everything = table[:].tolist()[1:]
    assert view[:].tolist() == everything
    assert view[0].tolist() == everything[0]
    assert view[-1].tolist() == everything[-1]
    assert view[::-1].tolist() == everything[::-1]
    assert view[[2, 0]].tolist() == [everything[2], everything[0]]
    assert table.where("a > @x", params={"x": 10**9})[:].tolist() == []
    with pytest.raises(SelectionError):
        view[3]


def test_rows_are_not_chosen_by_numbers(table: ingot.Table) -> None:
    with pytest.raises(IngotError, match="expression or a boolean mask"):
        table.where(5)  # type: ignore[arg-type]


THRESHOLD = 3


def test_parameters_are_variables_of_the_caller() -> None:
    table = ingot.table({"a": [1, 2, 3, 4, 5], "b": [0, 0, 0, 0, 0]})
    least = 2  # noqa: F841
    assert table.where("a > @least").rows().tolist() == [2, 3, 4]
    assert table.where("a > @THRESHOLD").rows().tolist() == [3, 4]
    assert table.where("a > @least").where("a < @top", params={"top": 4}).rows().tolist() == [2]
    top = 5  # noqa: F841
    assert table.where("a > @least").where("a < @top").rows().tolist() == [2, 3]
    assert table.read("a", where="a in @some", params={"some": [5]})["a"].tolist() == [5]
    assert table.read("a", where="a <= @least")["a"].tolist() == [1, 2]
    assert table.update("a == @top", {"b": 9}) == 1
    assert table.delete("a < @least") == 1
    assert table["b"][:].tolist() == [0, 0, 0, 9]


def test_a_variable_that_does_not_exist_is_named() -> None:
    table = ingot.table({"a": [1, 2]})
    with pytest.raises(SelectionError, match="no variable 'least'"):
        table.where("a > @least")
    least = 1  # noqa: F841
    with pytest.raises(SelectionError, match="@least has no value; params has most"):
        table.where("a > @least", params={"most": 2})
    assert table.where("a > @least").rows().tolist() == [1]
    # Names of the library itself, and of Python, are no variables of the caller.
    for name in ("expression", "self", "print"):
        with pytest.raises(SelectionError, match="no variable"):
            table.where(f"a > @{name}")


def test_no_code_of_a_variable_runs() -> None:
    class Trap:
        def __getattr__(self, name: str) -> object:
            raise AssertionError(name)

        def __index__(self) -> int:
            raise AssertionError("run")

    table = ingot.table({"a": [1, 2]})
    trap = Trap()
    with pytest.raises(SelectionError):
        table.where("a > @trap")
    assert trap is not None

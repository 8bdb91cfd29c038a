"""Expressions of the bcolz module: parsed, bound to names, evaluated block by block."""

import numpy as np
import pytest

from ingot.compat import bcolz
from ingot.compat.bcolz.chunked_eval import evaluated
from ingot.compat.bcolz.expressions import bound
from ingot.errors import SelectionError

A = np.arange(1000.0)
B = np.arange(1000)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a + 2 * b - 3", A + 2 * B - 3),
        ("sin(a) * np.cos(b)", np.sin(A) * np.cos(B)),
        ("da.sqrt(a) > math.log(b + 1)", np.sqrt(A) > np.log(B + 1)),
        ("where(b > 5, a, -a)", np.where(B > 5, A, -A)),
        ("arctan2(a, b + 1)", np.arctan2(A, B + 1)),
        ("~(a > 3) & (b != 2)", ~(A > 3) & (B != 2)),
        ("a ** 2 % 7", A**2 % 7),
    ],
)
@pytest.mark.parametrize("blen", [None, 7])
def test_values_are_those_of_numpy(text: str, wanted: np.ndarray, blen: int | None) -> None:
    names = {"a": bcolz.carray(A, chunklen=64), "b": B}
    found = evaluated(text, [names], blen=blen)
    np.testing.assert_array_equal(found[:], wanted)
    assert found.dtype == wanted.dtype
    as_numpy = evaluated(text, [names], blen=blen, out_flavor="numpy")
    np.testing.assert_array_equal(as_numpy, wanted)


ROWS = np.arange(3000.0).reshape(1000, 3)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(m)", ROWS.sum()),
        ("max(m)", ROWS.max()),
        ("np.min(m, axis=0)", ROWS.min(axis=0)),
        ("(m + 1).mean()", (ROWS + 1).mean()),
        ("da.sum(m * 2, axis=1)", (ROWS * 2).sum(axis=1)),
        ("sum(m, axis=0)", ROWS.sum(axis=0)),
    ],
)
@pytest.mark.parametrize("blen", [None, 7])
def test_reductions_are_those_of_numpy(text: str, wanted: object, blen: int | None) -> None:
    found = evaluated(text, [{"m": bcolz.carray(ROWS, chunklen=50)}], blen=blen)
    np.testing.assert_allclose(found, wanted)


def test_the_sum_of_python_adds_rows() -> None:
    found = evaluated("sum(m)", [{"m": bcolz.carray(ROWS)}], vm="python", blen=10)
    np.testing.assert_allclose(found, ROWS.sum(axis=0))


def test_names_are_looked_up_in_order() -> None:
    found = bound("a + c", [{"a": A}, {"a": B, "c": 2}])
    np.testing.assert_array_equal(found.of(0, 1000), A + 2)
    with pytest.raises(NameError, match="``ppp`` not found"):
        bound("a > ppp", [{"a": A}])


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(ValueError, match="only numpy/carray sequences"):
        bound("a * 2", [{"a": [1, 2]}])
    with pytest.raises(ValueError, match="same length"):
        bound("a + b", [{"a": A, "b": B[:10]}])
    with pytest.raises(SelectionError, match="no value of a row"):
        bound("a + b", [{"a": A, "b": None}])
    with pytest.raises(ValueError, match="`vm` must be"):
        evaluated("a", [{"a": A}], vm="java")


def test_an_array_of_one_row_goes_with_all() -> None:
    found = evaluated("a + one", [{"a": A, "one": np.array([5.0])}], blen=7)
    np.testing.assert_array_equal(found[:], A + 5)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "().__class__",
        "a.__class__",
        "sum(x for x in a)",
        "sum(a, axis=n)",
        "max(a, 1, 2)",
        "np.fromfile('x')",
        "lambda: 1",
        "(a := 1)",
        "sum(" * 500 + "a" + ")" * 500,
        "a" * (1 << 21),
    ],
)
def test_other_constructs_are_refused_by_name(text: str) -> None:
    with pytest.raises((SelectionError, NameError)):
        evaluated(text, [{"a": A, "n": 0}])

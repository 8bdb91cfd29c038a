"""What comes out of expressions: NumPy's results, and errors of our own."""

import numpy as np
import pytest

from ingot.errors import SelectionError
from ingot.nullable_array import NullableArray
from ingot.query.evaluate import evaluate, matches
from ingot.query.expr import Among, Column, Compare, Literal
from ingot.query.parse import parse

TABLE = {
    "i": np.array([-3, 0, 7], "i4"),
    "b": np.array([100, 100, 1], "i1"),
    "u": np.array([0, 1, 2**64 - 1], "u8"),
    "f": np.array([0.1, np.nan, -2.5], "f4"),
    "d": np.array(["2024-02-28", "NaT", "2024-03-01"], "M8[D]"),
    "ns": np.array(["2024-02-28T12", "NaT", "1700-01-01"], "M8[ns]"),
    "m": np.array([1, "NaT", 90], "m8[m]"),
    "s": np.array([b"ape", b"bee", b""]),
    "t": np.array(["ape", "béé", ""]),
    "v": np.array(["ape", "béé", ""], np.dtypes.StringDType()),
    "flag": np.array([True, False, True]),
    "wide": np.zeros((3, 2)),
}

CASES = [
    ("i > -1", [False, True, True]),
    ("1 > i", [True, True, False]),
    ("-3 <= i < 7", [True, True, False]),
    ("b + b > 0", [False, False, True]),
    ("u < -1", [False, False, False]),
    ("u == 18446744073709551615", [False, False, True]),
    ("b < 1000", [True, True, True]),
    ("f == 0.1", [True, False, False]),
    ("f != f", [False, True, False]),
    ("isnan(f)", [False, True, False]),
    ("isnan(d)", [False, True, False]),
    ("isfinite(f) & (abs(f) > 1)", [False, False, True]),
    ("i / 0 > 0", [False, False, True]),
    ("d >= '2024-02-29'", [False, False, True]),
    ("'2024-02-28T01' < d", [False, False, True]),
    ("d == '2024-02-28T01'", [False, False, False]),
    ("d != '2024-02-28T01'", [True, True, True]),
    ("d + timedelta64(1, 'D') == '2024-02-29'", [True, False, False]),
    ("ns < '2024-03'", [True, False, True]),
    ("ns < '9999-01-01'", [True, False, True]),
    ("ns > '9999-01-01'", [False, False, False]),
    ("ns > '0001-01-01'", [True, False, True]),
    ("ns != '9999-01-01'", [True, True, True]),
    ("ns == datetime64('9999-01-01')", [False, False, False]),
    ("m >= timedelta64(90, 's')", [False, False, True]),
    ("m <= timedelta64(1, 'h')", [True, False, False]),
    ("s == b'ape'", [True, False, False]),
    ("s == 'ape'", [True, False, False]),
    ("s < b'b'", [True, False, True]),
    ("t == 'béé'", [False, True, False]),
    ("t >= b'b'", [False, True, False]),
    ("v == 'béé'", [False, True, False]),
    ("t == v", [True, True, True]),
    ("startswith(t, 'b') | endswith(s, 'pe')", [True, True, False]),
    ("contains(v, 'éé')", [False, True, False]),
    ("flag", [True, False, True]),
    ("~flag", [False, True, False]),
    ("not flag or i == 7", [False, True, True]),
    ("flag ^ (i == 7)", [True, False, False]),
    ("i & 1 == 1", [True, False, True]),
    ("i in (7, 7, 99999999999)", [False, False, True]),
    ("f in (0.1, 5)", [True, False, False]),
    ("t not in ('ape',)", [False, True, True]),
    ("d in ('2024-03-01', '2024-03-01T01')", [False, False, True]),
    ("flag in (True,)", [True, False, True]),
    ("i in ()", [False, False, False]),
    ("True", [True, True, True]),
    ("1 < 2", [True, True, True]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_rows_that_match(text, expected):
    assert matches(parse(text), TABLE, 3).tolist() == expected


WRONG = [
    "i",
    "i + 1",
    "wide > 0",
    "i == 'a'",
    "i > b'a'",
    "t > 5",
    "s == 5",
    "i == t",
    "s == t",
    "d > 5",
    "d > i",
    "d > 'tomorrowish'",
    "t == b'\\xff'",
    "b + 1000 > 0",
    "i ** -1 > 0",
    "t * 2 == 'x'",
    "t - t == 'x'",
    "~f",
    "isnan(t)",
    "startswith(i, 'a')",
    "d + d > 0",
    "m > timedelta64(1, 'M')",
    "not d",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_has_no_answer_says_so(text):
    with pytest.raises(SelectionError):
        matches(parse(text), TABLE, 3)


@pytest.mark.parametrize("dtype", ["i1", "u8", "f4", "f8", "S4", "U4", "T", "M8[D]", "?"])
def test_many_values_are_found_as_few_are(dtype):
    """Longer lists are looked up in another way; that must not change what is found."""
    items = np.arange(-20, 20)
    if dtype in "i1 u8 f4 f8 ?":
        items = (items / 10).astype(dtype)
        values = [-1.5, 0.1, 0.2, 0.3, 1, 2, 3, 10**18, -5, 1.9, float("nan")]
    elif dtype == "M8[D]":
        items = items.astype("M8[Y]").astype(dtype)
        values = [np.datetime64(year, "Y") for year in range(-5, 9)]
    else:
        items = items.astype("U4").astype(dtype)
        values = [b"1" if dtype == "S4" else "1", *[str(n) for n in range(-5, 6)]]
    found = evaluate(Among(Column("a"), tuple(map(Literal, values))), {"a": items})
    singly = [
        evaluate(Compare("==", Column("a"), Literal(value)), {"a": items}) for value in values
    ]
    assert found.tolist() == np.logical_or.reduce(singly).tolist()
    assert found.any()


@pytest.mark.parametrize("dtype", ["S4", "U4"])
def test_many_texts_are_not_cut_to_the_width_of_the_column(dtype):
    items = np.array(["1234", "1", "123"]).astype(dtype)
    longer = ["12345", *(str(number) for number in range(5, 15))]
    assert evaluate(Among(Column("a"), tuple(map(Literal, longer))), {"a": items}).tolist() == [
        *(False, False, False)
    ]
    both = [*longer, "1234", "1"]
    assert evaluate(Among(Column("a"), tuple(map(Literal, both))), {"a": items}).tolist() == [
        *(True, True, False)
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sqrt(x)", np.sqrt),
        ("log(x) + log10(x) + log1p(x)", lambda x: np.log(x) + np.log10(x) + np.log1p(x)),
        ("exp(-x) * expm1(x)", lambda x: np.exp(-x) * np.expm1(x)),
        ("sin(x) + cos(x) + tan(x)", lambda x: np.sin(x) + np.cos(x) + np.tan(x)),
        ("arcsin(x / 9) + arccos(x / 9)", lambda x: np.arcsin(x / 9) + np.arccos(x / 9)),
        ("arctan(x) + arctan2(x, 2)", lambda x: np.arctan(x) + np.arctan2(x, 2)),
        ("sinh(x) + cosh(x) + tanh(x)", lambda x: np.sinh(x) + np.cosh(x) + np.tanh(x)),
        ("arcsinh(x) + arccosh(x + 1)", lambda x: np.arcsinh(x) + np.arccosh(x + 1)),
        ("arctanh(x / 9)", lambda x: np.arctanh(x / 9)),
        ("floor(x) + ceil(x)", lambda x: np.floor(x) + np.ceil(x)),
        ("where(x > 1, x, -1)", lambda x: np.where(x > 1, x, -1)),
        ("real(x) + imag(x) + conj(x)", lambda x: np.real(x) + np.imag(x) + np.conj(x)),
    ],
)
def test_mathematics_is_that_of_numpy(text, wanted):
    x = np.array([0.5, 1.0, 2.5, 8.75])
    np.testing.assert_array_equal(evaluate(parse(text), {"x": x}), wanted(x))


def test_mathematics_of_text_is_an_error_that_names_it():
    with pytest.raises(SelectionError, match=r"sqrt\(t\)"):
        evaluate(parse("sqrt(t)"), TABLE)


def test_mathematics_of_a_null_is_null():
    x = NullableArray(np.array([4.0, 9.0, 1.0]), np.array([True, False, True]))
    found = evaluate(parse("sqrt(x)"), {"x": x})
    assert found.valid.tolist() == [True, False, True]
    assert found.compressed().tolist() == [2.0, 1.0]
    chosen = evaluate(parse("where(x > 2, x, 7)"), {"x": x})
    assert chosen.masked().tolist() == [4.0, 7.0, 7.0]
    chosen = evaluate(parse("where(b, x, -1)"), {"x": x, "b": np.array([False, True, True])})
    assert chosen.masked().tolist() == [-1.0, None, 1.0]

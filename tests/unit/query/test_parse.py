"""What text becomes, and what it may not have."""

import numpy as np
import pytest

from ingot.errors import SelectionError
from ingot.query.expr import Among, Binary, Column, Compare, Literal, Unary, column_names, spelled
from ingot.query.parse import DEEPEST, LONGEST, parse


def test_quoted_names_are_columns():
    assert parse("`last price` > 1") == Compare(">", Column("last price"), Literal(1))


def test_backtick_in_text_stays():
    assert parse("name == '`a`'") == Compare("==", Column("name"), Literal("`a`"))
    assert parse('name == "\\"`a`"') == Compare("==", Column("name"), Literal('"`a`'))


def test_quoted_name_inside_a_path():
    assert parse("a.`b c`") == Column("a.b c")


def test_not_in_is_the_opposite_of_in():
    values = (Literal(1), Literal("a"))
    assert parse("a not in (1, 'a')") == Unary("not", Among(Column("a"), values))


def test_chain_compares_neighbours():
    parts = parse("1 < a < b").operands
    assert [spelled(part) for part in parts] == ["(1 < a)", "(a < b)"]


def test_negative_numbers_are_numbers():
    assert parse("-9223372036854775808") == Literal(-(2**63))
    assert parse("-a") == Unary("-", Column("a"))


def test_constants_stay_as_adaptable_as_they_are_in_python():
    assert parse("a < 2 * 3 + 2 ** 5 // 4") == Compare("<", Column("a"), Literal(14))


def test_dates_are_values():
    assert parse("datetime64('2024-02-29')") == Literal(np.datetime64("2024-02-29"))
    assert parse("timedelta64(5, 'D')") == Literal(np.timedelta64(5, "D"))


def test_names_come_in_order_and_once():
    assert column_names(parse("b + a.c > b and isnan(d)")) == ("b", "a.c", "d")


@pytest.mark.parametrize(
    "text",
    [
        "a > 1 & b < 2",
        "(a > 1) & ~(b < 2) | c",
        "not a and b or c",
        "a in (1,)",
        "x ** 2 // 3 % 4 - 1 / 2 ^ y",
        "`odd name` != b'bytes'",
        "startswith(name, 'x') and when < datetime64('2024-02-29T12')",
        "d < timedelta64(-5, 'ms')",
    ],
)
def test_spelling_parses_to_the_same(text):
    expression = parse(text)
    assert parse(spelled(expression)) == expression


HOSTILE = [
    "",
    "a >",
    "a; b",
    "a = 1",
    "a := 1",
    "lambda: 1",
    "[a for a in b]",
    "(a, b)",
    "a[0]",
    "a if b else c",
    "f'{a}'",
    "*a",
    "await a",
    "a @ b",
    "a << 3",
    "a >> 3",
    "a is None",
    "None",
    "...",
    "(1).real",
    "'text'.join",
    "isnan(a).b",
    "__import__('os').system('true')",
    "open('x')",
    "isnan(a, b)",
    "isnan()",
    "isnan(x=a)",
    "isnan(*a)",
    "a in b",
    "a in (b, 1)",
    "a in 'text'",
    "1 < a in (1, 2)",
    "18446744073709551616",
    "-9223372036854775809",
    "9 ** 9 ** 9",
    "2 ** -9999999999999",
    "1 / 0",
    "0.0 ** -1",
    "10.0 ** 1000",
    "1.5 & 1",
    "datetime64('yesterday')",
    "datetime64(a)",
    "timedelta64(1, 'parsec')",
    "a\0b",
    "\ud800",
    "1" * 5000,
    "(" * 300 + "a" + ")" * 300,
    "-" * (DEEPEST + 10) + "a",
    "~" * 100_000 + "a",
    "a" + "+a" * (DEEPEST + 1),
    "a" + ".b" * (DEEPEST + 1),
    "a" * (LONGEST + 1),
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: t[:30])
def test_what_is_no_expression_is_refused(text):
    with pytest.raises(SelectionError):
        parse(text)


def test_power_of_one_is_never_large():
    assert parse("1 ** 99999999999") == Literal(1)
    assert parse("2 ** 63") == Literal(2**63)


def test_many_values_are_one_level():
    values = ", ".join(map(str, range(20_000)))
    assert len(parse(f"a in ({values})").values) == 20_000


def test_wide_combinations_are_one_level():
    assert len(parse(" or ".join(["a == 1"] * 1000)).operands) == 1000


def test_bits_of_numbers_are_computed():
    assert parse("a & 6 | 1") == Binary("|", Binary("&", Column("a"), Literal(6)), Literal(1))


@pytest.mark.parametrize(("before", "behind"), [("-", ""), ("", "+a"), ("", ".b"), ("not ", "")])
def test_operations_nest_as_deep_as_the_limit_and_no_deeper(before, behind):
    for count in (DEEPEST - 1, DEEPEST):
        text = before * count + "a" + behind * count
        if count < DEEPEST:
            assert parse(text) is not None
        else:
            with pytest.raises(SelectionError, match=f"more than {DEEPEST} deep"):
                parse(text)


def test_functions_may_have_the_prefixes_that_are_given():
    assert parse("np.sqrt(a)", prefixes={"np"}) == parse("sqrt(a)")
    for text in ("np.sqrt(a)", "os.sqrt(a)", "np.random.sqrt(a)", "np.fromfile('x')"):
        with pytest.raises(SelectionError, match="there is no function"):
            parse(text, prefixes=() if text == "np.sqrt(a)" else {"np"})

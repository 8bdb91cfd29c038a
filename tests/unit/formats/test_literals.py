"""Python literals in metadata, and what is refused."""

from typing import Any

import pytest

from ingot.errors import (
    FormatError,
    LimitError,
)
from ingot.formats import literals


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it''s'", None),
        (r"'a\'b\\\x41\u00e4'", "a'b\\Aä"),
        ("( 1 , )", (1,)),
        ("()", ()),
        ("(1)", 1),
        ("[1, (2, 'x'), {'k': [True, None]}]", [1, (2, "x"), {"k": [True, None]}]),
        ("-5", -5),
    ],
)
def test_literals(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(FormatError):
            literals.parse(text, "x")
    else:
        assert literals.parse(text, "x") == value


@pytest.mark.parametrize(
    "text", ["", "[", "]", "[1", "{1: 2}", "{'a': 1, 'a': 2}", "1.5", "a", "[1 2]", r"'\q'", "1]"]
)
def test_what_is_no_literal(text: str) -> None:
    with pytest.raises(FormatError):
        literals.parse(text, "x")


def test_literals_have_limits() -> None:
    with pytest.raises(LimitError):
        literals.parse("[" * 50 + "]" * 50, "x")
    with pytest.raises(LimitError):
        literals.parse(" " * 2**21, "x")

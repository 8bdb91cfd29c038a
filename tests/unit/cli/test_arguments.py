"""Keys, names and shapes are read from text without running any of it."""

import pytest

from ingot.cli.arguments import parse_key, parse_names, parse_shape


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("3", (3,)),
        ("0:10, ::5", (slice(0, 10), slice(None, None, 5))),
        ("-3:", (slice(-3, None),)),
        ("...,1", (..., 1)),
        ("[0, -2], :", ([0, -2], slice(None))),
        ("::-1", (slice(None, None, -1),)),
        ("5,", (5,)),
    ],
)
def test_a_key_is_numpys(text, key):
    assert parse_key(text) == key


@pytest.mark.parametrize(
    "text", ["a", "1:2:3:4", "1,,2", "[1", "1]", "[a]", "__import__('os')", "", "1.5", ",", "[]"]
)
def test_other_texts_are_no_keys(text):
    with pytest.raises(ValueError, match="key"):
        parse_key(text)


def test_names_and_shapes():
    assert parse_names("a,b.c, d") == ["a", "b.c", "d"]
    assert parse_names(None) is None
    assert parse_shape("250, 250") == (250, 250)
    assert parse_shape("7") == (7,)
    with pytest.raises(ValueError, match="'a' is no shape"):
        parse_shape("a")

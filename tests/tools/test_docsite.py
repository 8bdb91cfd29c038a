"""The site of the documentation: examples in docstrings are shown as code."""

import pytest

pytest.importorskip("griffe", reason="the extra `docs` brings griffe, by which docstrings are read")

from docsite.examples import fence


def test_an_example_gets_a_fence():
    text = 'Say so.\n\n>>> print("a")\na\n\nAnd more.\n'
    assert fence(text).split("\n")[2:7] == ["```pycon", '>>> print("a")', "a", "```", ""]
    assert "And more." in fence(text).split("\n")


def test_examples_with_an_empty_line_between_them_are_one_block():
    assert fence(">>> a = 1\n\n>>> a\n1").count("```") == 2


def test_text_without_examples_stays_as_it_is():
    assert fence("Nothing to see.\n\nReally.").strip() == "Nothing to see.\n\nReally."

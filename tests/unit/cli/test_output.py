"""Tables fit the terminal, pipes get everything, JSON is JSON."""

import io
import json
import sys

import numpy as np
import pytest

from ingot.cli import output


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    def show(width, call, *arguments, **named):
        stream = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(width))
            patch.setenv("NO_COLOR", "1")
            patch.setenv("TERM", "xterm")
            patch.setattr(sys, "stdout", stream)
            call(*arguments, **named)
        return stream.getvalue()

    return show


HEADINGS = ("name", "decompressed bytes", "ratio", "a text about it")
ROWS = [("alpha", 123456789, 2.5, "words " * 12), ("beta", 7, 10.25, "short")]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_a_table_fits_the_terminal_and_no_cell_is_cut(terminal, width):
    text = terminal(width, output.print_table, HEADINGS, ROWS, left=[0, 3])
    assert max(map(len, text.splitlines())) <= width
    assert "123,456,789" in text
    assert "10.25" in text
    assert text.count("words") == 12
    for word in ("decompressed", "bytes", "ratio", "about"):
        assert word in text


def test_columns_that_cannot_fit_are_left_out_and_counted(terminal):
    headings = [f"column{number}" for number in range(30)]
    text = terminal(80, output.print_table, headings, [range(30)])
    assert max(map(len, text.splitlines())) <= 80
    assert "column0 " in text
    assert "column29" in text
    shown = sum(f"column{number} " in text.replace("\n", " ") for number in range(30))
    assert f"({shown} of 30 columns fit; a pipe gets all)" in text


def test_a_pipe_gets_all_columns(capsys):
    headings = [f"column{number}" for number in range(30)]
    output.print_table(headings, [range(30)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == headings
    assert lines[1].split() == [str(number) for number in range(30)]


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_values_are_continued_below_themselves(terminal, width):
    pairs = {"codec": "blosc " * 30, "shape": (3, 4)}
    lines = terminal(width, output.print_pairs, pairs, title="data").splitlines()
    assert max(map(len, lines)) <= width
    assert lines[0].rstrip() == "data"
    assert all(line.startswith(("  codec  ", "  shape  ", " " * 9)) for line in lines[1:])
    assert " ".join(lines).count("blosc") == 30


def test_pairs_in_a_pipe_are_one_line_each(capsys):
    output.print_pairs({"codec": "blosc " * 30, "n": 1234, "lines": "a\nb"}, title="data")
    lines = capsys.readouterr().out.splitlines()
    codec = "  codec  " + ("blosc " * 30).rstrip()
    assert lines[1:] == [codec, "  n      1,234", "  lines  a", "         b"]


def test_colours_are_for_terminals_that_want_them(terminal, monkeypatch):
    assert "\x1b" not in terminal(80, output.print_table, HEADINGS, ROWS)
    stream = Terminal()
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_pairs({"a": 1}, title="data")
    assert "\x1b[" in stream.getvalue()


def test_json_is_one_document(capsys):
    output.print_json({"a": [np.int64(1)], "b": float("nan")})
    assert json.loads(capsys.readouterr().out) == {"a": [1], "b": None}


def test_names_that_cannot_be_printed_are_escapes_and_aligned(capsys):
    output.print_table(("name", "size"), [("a\udcff", 1), ("plain", 2)], left=(0,))
    assert capsys.readouterr().out.splitlines() == ["name   size", "a\\xff     1", "plain     2"]
    output.print_text("a\x1b[31m")
    output.print_pairs({"a\x07": "b\x1b\nc"})
    assert capsys.readouterr().out == "a\\x1b[31m\na\\x07  b\\x1b\n       c\n"

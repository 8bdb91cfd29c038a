"""The bar is shown on a terminal, and nothing elsewhere."""

import io
import sys

import pytest

from ingot.cli.progress import progress_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("total", [100, None])
@pytest.mark.parametrize("unit", ["bytes", "chunks"])
def test_a_terminal_shows_a_bar_that_goes(monkeypatch, total, unit):
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress_bar("[data]", lambda: total, unit=unit) as report:
        report(50)
        report(100)
    assert "[data]" in terminal.getvalue()
    if unit != "bytes":
        assert "chunks" in terminal.getvalue()


def test_a_pipe_shows_nothing(monkeypatch):
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with progress_bar("data", lambda: pytest.fail("nothing is asked")) as report:
        assert report is None
    assert pipe.getvalue() == ""

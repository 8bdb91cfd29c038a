"""Standard streams that are closed, or that cannot show all characters."""

import os
import subprocess
import sys

import pytest

CLOSINGS = {0: "<&-", 1: ">&-", 2: "2>&-"}


def run(closed, *arguments, **named):
    """Run the command with closed standard streams."""
    script = " ".join(['exec "$0" -B -m ingot "$@"', *(CLOSINGS[number] for number in closed)])
    command = ["sh", "-c", script, sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, **named)


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").write_bytes(bytes(1000))


def test_a_closed_output_is_an_error_where_it_is_needed():
    done = run((1,), "pack", "data", "-o", "-")
    assert (done.returncode, done.stderr) == (1, b"ingot pack: data: standard output is closed\n")
    assert os.listdir() == ["data"]
    done = run((1,), "doctor")
    assert (done.returncode, done.stderr) == (1, b"ingot: standard output is closed\n")


def test_a_closed_input_is_an_error_where_it_is_needed():
    done = run((0,), "pack", "-", "-o", "x.blp")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"ingot pack: -: standard input is closed\n"
    assert os.listdir() == ["data"]


def test_no_file_gets_the_number_of_a_closed_stream():
    assert run((0, 1, 2), "pack", "data", "missing", "-v").returncode == 1
    assert sorted(os.listdir()) == ["data", "data.blp"]
    done = run((0, 2), "unpack", "data.blp", "missing", "-o", "-")
    # Two files cannot go to one output; the message is lost, and no file has it.
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
    done = run((0, 2), "unpack", "data.blp", "-o", "-")
    assert (done.returncode, done.stdout) == (0, bytes(1000))


def test_a_stream_without_a_character_shows_an_escape(tmp_path):
    (tmp_path / "meta.json").write_text('{"unit": "\u00b0C"}', encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    assert run((), "pack", "data", "-m", "meta.json", env=environment).returncode == 0
    done = run((), "info", "data.blp", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b'"unit": "\\xb0C"' in done.stdout

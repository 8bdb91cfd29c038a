"""Errors are one sentence on standard error; the status says what kind of error it was."""

import subprocess
import sys

import pytest

from ingot.cli.messages import message_of, reporting, usage
from ingot.cli.parameters import BadParameter, Exit
from ingot.errors import CorruptionError, NotFoundError


def report(error, **how):
    with pytest.raises(Exit) as stop, reporting(**how):
        raise error
    return stop.value.exit_code


def test_an_error_is_a_message_with_its_notes(capsys):
    error = CorruptionError("Blosc chunk: cbytes claims 400 bytes, 60 are stored")
    error.add_note("in chunk 7")
    assert report(error) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        "ingot: Blosc chunk: cbytes claims 400 bytes, 60 are stored\n  in chunk 7\n"
    )


def test_an_error_that_is_not_ours_is_named(capsys):
    assert report(ZeroDivisionError("division by zero")) == 1
    message = capsys.readouterr().err
    assert message == (
        "ingot: unexpected ZeroDivisionError: division by zero (--debug shows where)\n"
    )


def test_debug_shows_the_traceback(capsys):
    assert report(NotFoundError("prices: no such file"), debug=True) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ingot: prices: no such file"


def test_errors_of_usage_pass():
    with pytest.raises(BadParameter, match="axis"), reporting(), usage():
        raise ValueError("axis 3 of 2")
    with pytest.raises(Exit) as stop, reporting():
        raise Exit(7)
    assert stop.value.exit_code == 7


def test_an_error_of_the_system_names_its_file():
    error = PermissionError(13, "Permission denied", b"/data/\xff")
    assert message_of(error) == "/data/\udcff: Permission denied"
    assert message_of(MemoryError()) == "not enough memory"
    assert message_of(ValueError("one\ntwo")) == "one two"


def test_a_closed_pipe_is_no_error():
    program = (
        "import sys\n"
        "from ingot.cli.messages import reporting\n"
        "sys.stdin.read()\n"
        "with reporting():\n"
        "    print('x' * 100_000)\n"
        "    sys.stdout.flush()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        process.stdout.close()
        process.stdin.close()
        said = process.stderr.read().decode()
        process.wait()
    # Outside of the command line, the exception that says "status 0" is not caught.
    assert "BrokenPipe" not in said
    assert said.splitlines()[-1].endswith("Exit: 0")


def test_paths_are_as_they_were_typed(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    error = NotFoundError(f"{tmp_path}/a/c/0: lost, as {tmp_path}/ab is and '{tmp_path}/b.zarr'")
    assert report(error, words=["-k", "a", "b.zarr", ""]) == 1
    message = capsys.readouterr().err
    assert message == f"ingot: a/c/0: lost, as {tmp_path}/ab is and 'b.zarr'\n"


def test_control_characters_of_names_are_escapes(capsys):
    assert report(NotFoundError("a\x1b[2J\udcff: no such file")) == 1
    assert capsys.readouterr().err == "ingot: a\\x1b[2J\\xff: no such file\n"

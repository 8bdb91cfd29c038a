"""The command in a process of its own: on a terminal, in a pipe, and what is left of it."""

import os
import pty
import select
import subprocess
import sys

import numpy as np
import pytest

import ingot

COMMAND = (sys.executable, "-m", "ingot")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("datasets")
    rng = np.random.default_rng(3)
    names = [f"a_column_with_number_{number}" for number in range(12)]
    columns = {name: rng.integers(0, 10**9, 100) for name in names}
    columns["text"] = np.array(["words that go on and on, " * 3] * 100)
    ingot.table(columns, folder / "wide.bcolz").close()
    attrs = {"title": "a long title, " * 10}
    ingot.array(rng.normal(size=(300, 40)), folder / "a.zarr", chunks=(50, 20), attrs=attrs).close()
    ingot.array(rng.normal(size=5000), folder / "b.blp").close()
    return folder


def on_terminal(width, *arguments, **variables):
    """Run the command on a pseudo-terminal, and return what it shows, without control sequences."""
    leader, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(width), "TERM": "xterm-256color", **variables}
    environment.pop("NO_COLOR", None) if "NO_COLOR" not in variables else None
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=follower, stderr=follower, env=environment
    ) as process:
        os.close(follower)
        shown = b""
        while True:
            ready, _, _ = select.select([leader], [], [], 60)
            try:
                data = os.read(leader, 65536) if ready else b""
            except OSError:  # Linux says so when the other side is closed.
                data = b""
            if not data:
                break
            shown += data
        process.wait()
    os.close(leader)
    return process.returncode, shown.decode().replace("\r\n", "\n")


CALLS = [
    ("info", "a.zarr"),
    ("info", "wide.bcolz"),
    ("info", "b.blp"),
    ("info", "."),
    ("ls", "."),
    ("head", "wide.bcolz", "-n", "3"),
    ("head", "a.zarr"),
    ("explain", "a.zarr"),
    ("doctor",),
]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_everything_fits_the_terminal(folder, width):
    for command, *rest in CALLS:
        words = [folder / word if (folder / word).exists() else word for word in rest]
        status, text = on_terminal(width, command, *words, NO_COLOR="1")
        assert status == 0, text
        assert "\x1b" not in text
        lines = text.splitlines()
        assert max(map(len, lines)) <= width, (command, text)
        assert not any(line.rstrip().endswith(("mpre…", "ompres…")) for line in lines)


def test_headings_are_whole_at_80_columns(folder):
    _, text = on_terminal(80, "info", folder / "b.blp", NO_COLOR="1")
    for heading in ("number", "start", "cbytes", "nbytes", "codec", "typesize", "blocksize"):
        assert heading in text


def test_long_values_do_not_wrap_to_the_first_column(folder):
    _, text = on_terminal(60, "info", folder / "a.zarr", NO_COLOR="1")
    lines = text.splitlines()
    # The path itself may take several lines.
    first = next(number for number, line in enumerate(lines) if line.startswith("  format"))
    assert len(lines) > first + 5
    assert all(line.startswith("  ") or not line for line in lines[first:])


def test_colours_are_for_terminals(folder):
    assert "\x1b[" in on_terminal(80, "info", folder / "a.zarr")[1]
    assert "\x1b[" not in on_terminal(80, "info", folder / "a.zarr", TERM="dumb")[1]
    piped = subprocess.run([*COMMAND, "info", folder / "a.zarr"], capture_output=True, check=True)
    assert b"\x1b" not in piped.stdout


def test_a_pipe_gets_everything_in_full_width(folder):
    done = subprocess.run(
        [*COMMAND, "head", folder / "wide.bcolz", "-n", "2"], capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert all(f"a_column_with_number_{number}" in lines[0] for number in range(12))


def test_a_closed_pipe_is_no_error(folder):
    program = f"{' '.join(COMMAND)} head {folder}/a.zarr -k : | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_names_that_are_no_unicode_are_shown_with_escapes(tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(name)
    ingot.array([1, 2], tmp_path / "a.zarr").close()
    os.rename(tmp_path / "a.zarr", name + b"/a.zarr")
    done = subprocess.run([*COMMAND, "ls", tmp_path], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "/\\xff " in done.stdout
    done = subprocess.run([*COMMAND, "info", name + b"/nothing"], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1

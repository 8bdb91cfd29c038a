"""Every command is in the table, says what the table says, and is loaded when it is called."""

import json
import os
import secrets
import shutil
import subprocess
import sys

import numpy as np
import pytest

import ingot
from ingot.cli.commands import COMMANDS
from tests.command import invoke


def test_help_lists_every_command_with_its_summary():
    lines = [line.split(maxsplit=1) for line in invoke("--help").stdout.splitlines()]
    for name, entry in COMMANDS.items():
        assert [name, entry.summary] in lines


@pytest.mark.parametrize("name", COMMANDS)
def test_the_summary_is_the_first_sentence_of_the_command(name):
    entry = COMMANDS[name]
    assert entry.load().__doc__.splitlines()[0] == entry.summary
    shown = invoke(name, "--help")
    assert shown.exit_code == 0
    assert entry.summary in shown.stdout
    assert "--debug" in shown.stdout


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"pack", "demo"}))
def test_every_command_can_speak_json(name):
    assert "--json" in invoke(name, "--help").stdout


def loaded(*arguments):
    """Return the modules that a command has loaded in a new process."""
    program = (
        "import sys, json\n"
        "from ingot.cli.app import main\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        "try:\n    main()\n"
        "except SystemExit:\n    pass\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_help_loads_no_command_and_nothing_heavy():
    modules = loaded("--help")
    assert "ingot.cli.app" in modules
    heavy = {"numpy", "rich", "typer", "ingot.api", *(f"ingot.cli.{name}" for name in COMMANDS)}
    assert not heavy & modules


def test_an_unknown_command_is_an_error_of_usage():
    result = invoke("no-such-command")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no-such-command" in result.stderr


def test_commands_that_are_spelled_alike_are_named():
    assert "is it info?" in invoke("inof").stderr
    assert "is it head?" in invoke("headd").stderr


def test_help_without_arguments_is_wrong_use():
    result = invoke()
    assert (result.exit_code, result.stdout) == (2, "")
    assert "doctor" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_completion_names_every_command_and_its_options(shell):
    script = invoke("completion", shell).stdout
    options = json.loads(invoke("completion", "--json").stdout)
    assert set(options) == set(COMMANDS)
    assert {"--where", "--columns", "--json"} <= set(options["head"])
    for name, each in options.items():
        assert name in script
        assert all(option[2:] in script for option in each)


def test_an_unknown_shell_is_wrong_use():
    result = invoke("completion", "csh")
    assert (result.exit_code, result.stdout) == (2, "")


def completed(words):
    """Return what bash offers for the last of some words."""
    script = invoke("completion", "bash").stdout
    typed = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}\n"
        '_ingot_complete; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_and_options():
    assert completed(["ingot", "do"]) == ["doctor"]
    assert completed(["ingot", "doctor", "--j"]) == ["--json"]
    assert completed(["ingot", "doctor", "x"]) == []


def test_commands_take_addresses(tmp_path):
    url = f"memory://{secrets.token_hex(6)}"
    ingot.group(f"{url}/g.zarr").array("x", np.arange(3))
    assert f"{url}/g.zarr/x" in invoke("ls", f"{url}/g.zarr").stdout
    assert invoke("head", f"{url}/g.zarr/x").stdout.split("\n")[1] == "[0 1 2]"
    done = invoke("convert", f"{url}/g.zarr/x", tmp_path / "x.bcolz")
    assert (done.exit_code, done.stderr) == (0, "")
    assert invoke("convert", tmp_path / "x.bcolz", f"{url}/y.zarr").exit_code == 0
    assert ingot.open(f"{url}/y.zarr")[:].tolist() == [0, 1, 2]
    assert invoke("export", f"{url}/y.zarr", tmp_path / "y.npy").exit_code == 0
    assert np.load(tmp_path / "y.npy").tolist() == [0, 1, 2]
    assert f"{url}/none.zarr: no such file" in invoke("info", f"{url}/none.zarr").stderr

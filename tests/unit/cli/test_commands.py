"""Every command is in the table, says what the table says, and is loaded when it is called."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ingot.cli import app as cli
from ingot.cli.commands import COMMANDS


def invoke(*arguments):
    return CliRunner().invoke(cli.app, list(arguments))


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
    heavy = {"numpy", "rich", "ingot.api", *(f"ingot.cli.{name}" for name in COMMANDS)}
    assert not heavy & modules


def test_an_unknown_command_is_an_error_of_usage():
    result = invoke("no-such-command")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no-such-command" in result.stderr


def test_completion_offers_commands_and_options():
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "_INGOT_COMPLETE": "complete_bash",
        "COMP_WORDS": "ingot do",
        "COMP_CWORD": "1",
    }
    command = [sys.executable, "-m", "ingot"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["doctor"]
    environment |= {"COMP_WORDS": "ingot doctor --j", "COMP_CWORD": "2"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["--json"]

"""The ``ingot`` command line: how a command is found and run, and the exit status.

The exit status is 0 on success, 1 if a problem was found, 2 if the command was called wrongly. The
commands are listed in `ingot.cli.commands`; only the modules of this package use rich.
"""

import sys
from collections.abc import Sequence
from typing import Final

from ingot import __version__
from ingot.cli.commands import COMMANDS
from ingot.cli.messages import reporting
from ingot.cli.parameters import BadParameter, Exit
from ingot.cli.parser import command_parser
from ingot.cli.standard_streams import prepare

__all__ = ["main", "run"]

_USAGE: Final = "Usage: ingot COMMAND [ARGUMENTS]"


def main() -> None:
    """Run the command named by the arguments of the process, and exit with its status."""
    prepare()
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Run a command, given the words behind ``ingot``, and return the exit status.

    >>> run(["--version"])
    0.1.0
    0
    """
    name, rest = (words[0], words[1:]) if words else ("", ())
    if name in ("-h", "--help", "help"):
        print(_help())
        return 0
    if name == "--version":
        print(__version__)
        return 0
    if name not in COMMANDS:
        print(_unknown(name) if name else _help(), file=sys.stderr)
        return 2
    try:
        with reporting(debug="--debug" in rest, words=rest):
            _run_command(name, rest)
            sys.stdout.flush()
    except Exit as end:
        return end.exit_code
    except BadParameter as error:
        print(f"ingot {name}: {error}\nTry: ingot {name} --help", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"ingot {name}: interrupted", file=sys.stderr)
        return 130
    return 0


def _run_command(name: str, words: Sequence[str]) -> None:
    function = COMMANDS[name].load()
    parser = command_parser(name, function)
    if _asks_for_help(words):
        print(parser.format_help(), end="")
        return
    values = parser.read(words)
    for shared in ("debug", "help"):
        del values[shared]
    function(**values)


def _asks_for_help(words: Sequence[str]) -> bool:
    options = words[: words.index("--")] if "--" in words else words
    return "--help" in options or "-h" in options


def _help() -> str:
    lines = [_USAGE, "", "NumPy data compressed in chunks, in every format of the Blosc family."]
    longest = max(map(len, COMMANDS))
    for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
        lines += ["", f"{section}:"]
        lines += [
            f"  {name:<{longest}}  {entry.summary}"
            for name, entry in COMMANDS.items()
            if entry.section == section
        ]
    lines += [
        "",
        "Options:",
        f"  {'--help':<{longest}}  Show this message; behind a command, its arguments.",
        f"  {'--version':<{longest}}  Print the version.",
    ]
    return "\n".join(lines)


def _unknown(name: str) -> str:
    """Return the message for a command that does not exist, with those that are spelled alike."""
    letters = set(name)
    alike = [each for each in COMMANDS if each.startswith(name[:2]) or letters == set(each)]
    hint = f"; is it {' or '.join(alike)}?" if alike else ""
    return f"ingot: no command {name!r}{hint}\n{_USAGE}; ingot --help lists the commands"

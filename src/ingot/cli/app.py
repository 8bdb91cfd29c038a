"""The ``ingot`` command line: how a command is found and run, and the exit status.

The exit status is 0 on success, 1 if a problem was found, 2 if the command was called wrongly. The
commands are listed in `ingot.cli.commands`; only the modules of this package use typer and rich.
"""

import sys
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ingot import __version__
from ingot.cli.commands import COMMANDS
from ingot.cli.messages import reporting
from ingot.cli.standard_streams import prepare

__all__ = ["app", "main"]

_DEBUG: Final = "ingot.debug"


def main() -> None:
    """Run the command named by the arguments of the process, and exit with its status."""
    prepare()
    app(prog_name="ingot")


class CommandGroup(TyperGroup):
    """The commands of `ingot.cli.commands`, each loaded when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command; None if there is none of this name."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = _single_command(cmd_name, entry.load())
        command.params.extend(_single_command("shared", _shared_options).params)
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by sections, with the summaries of the table."""
        longest = max(map(len, COMMANDS))
        for section in dict.fromkeys(entry.section for entry in COMMANDS.values()):
            rows = [
                (name.ljust(longest), entry.summary)
                for name, entry in COMMANDS.items()
                if entry.section == section
            ]
            with formatter.section(section):
                formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options before the command; an error of the command asks for --debug."""
        ctx.meta[_DEBUG] = "--debug" in args
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run a command; its errors become messages, and the exit status."""
        with reporting(debug=ctx.meta[_DEBUG]):
            result = super().invoke(ctx)
            sys.stdout.flush()
        return result


app = typer.Typer(
    name="ingot",
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def ingot_command(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """NumPy data compressed in chunks, in every format of the Blosc family."""


def _shared_options(
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show where an error comes from.", expose_value=False),
    ] = False,
) -> None:
    """Declare the options that every command has; `CommandGroup` looks for them itself."""


def _single_command(name: str, function: Any) -> Any:
    """Return a function as a command of typer."""
    single = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    single.command(name)(function)
    return get_command(single)

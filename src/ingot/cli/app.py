"""The ``ingot`` command line: its commands, how errors are printed, and the exit status.

The exit status is 0 on success, 1 if a problem was found, 2 if the command was called wrongly. Each
family of commands has a module of its own; only the modules of this package use typer and rich.
"""

import sys
from typing import Annotated

import typer

import ingot
from ingot.cli.chunk import chunk
from ingot.cli.demo import demo
from ingot.cli.doctor import doctor
from ingot.cli.info import info
from ingot.cli.messages import with_notes
from ingot.cli.pack import pack, unpack
from ingot.cli.standard_streams import prepare
from ingot.errors import IngotError

__all__ = ["app", "main"]

app = typer.Typer(
    name="ingot",
    help="NumPy data compressed in chunks, in every format of the Blosc family.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def main() -> None:
    """Run the command; an `IngotError` becomes a message on standard error and exit status 1."""
    prepare()
    try:
        app()
    except IngotError as error:
        print(with_notes(f"ingot: {error}", error), file=sys.stderr)
        sys.exit(1)


@app.callback(invoke_without_command=True)
def ingot_command(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """NumPy data compressed in chunks, in every format of the Blosc family."""
    if show_version:
        print(ingot.__version__)
        raise typer.Exit


# In the order of ``ingot --help``.
for command in (info, pack, unpack, chunk, doctor, demo):
    app.command()(command)

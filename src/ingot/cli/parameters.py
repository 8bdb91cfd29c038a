"""Parameters of commands: what the annotations of a command's function say of them.

A command is a function. Each parameter is annotated as ``Annotated[type, Argument(...)]`` or
``Annotated[type, Option(...)]``; the type is text, a number, a path, a flag, or a list of these.
`ingot.cli.parser` reads the command line by them.
"""

from dataclasses import dataclass

__all__ = ["Argument", "BadParameter", "Exit", "Option"]


class Exit(Exception):
    """Ends a command with an exit status.

    >>> Exit(1).exit_code
    1
    """

    def __init__(self, exit_code: int = 0) -> None:
        super().__init__(exit_code)
        self.exit_code = exit_code


class BadParameter(Exception):
    """A command was called wrongly: its message is printed, and the exit status is 2."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter that is named by its place.

    >>> Argument(metavar="PATH", help="A dataset.").metavar
    'PATH'
    """

    metavar: str = ""
    """How the help calls it; by default, its name in capital letters."""
    help: str = ""


class Option:
    """A parameter that is named on the command line, such as "-n" and "--rows".

    A flag may have two names with a slash between them, the second of which says no. Without
    names, the option is called as the parameter. Numbers may have a least and a greatest value.

    >>> Option("-n", "--rows", help="How many.").names
    ('-n', '--rows')
    """

    __slots__ = ("help", "max", "metavar", "min", "names")

    def __init__(
        self,
        *names: str,
        help: str = "",
        metavar: str = "",
        min: int | None = None,
        max: int | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.metavar = metavar
        self.min = min
        self.max = max

"""Reading the command line: from the annotations of a command's function to its arguments.

argparse reads; this module tells it what there is to read. Importing a library that does the same
would take longer than opening a dataset.
"""

import argparse
import inspect
import textwrap
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args, get_origin

from ingot.cli.parameters import Argument, BadParameter, Option

__all__ = ["CommandParser", "command_parser", "options_of"]


class CommandParser(argparse.ArgumentParser):
    """A parser of one command; wrong use raises `BadParameter`."""

    def read(self, words: Sequence[str]) -> dict[str, Any]:
        """Return the arguments for the function.

        >>> from typing import Annotated
        >>> def show(path: str, rows: Annotated[int, Option("-n", "--rows", min=0)] = 10): "Show."
        >>> found = command_parser("show", show).read(["-n", "3", "data"])
        >>> found["path"], found["rows"]
        ('data', 3)
        """
        found = vars(self.parse_intermixed_args(list(self._joined(words))))
        # argparse gives a list for arguments that may be many, even if there are none.
        return {name: None if value == [] else value for name, value in found.items()}

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of ending the process."""
        raise BadParameter(message)

    def _joined(self, words: Sequence[str]) -> Iterator[str]:
        """Yield words; a value that begins with a dash, such as "-3:", joins its option."""
        known = self._option_string_actions
        waiting = iter(words)
        for word in waiting:
            action = known.get(word)
            if word == "--":
                yield word
                yield from waiting
            elif action is None or action.nargs == 0:
                yield word
            else:
                value = next(waiting, None)
                if value is None or not value.startswith("-") or value in known or value == "-":
                    yield from (word,) if value is None else (word, value)
                else:
                    yield f"{word}={value}" if word.startswith("--") else f"{word}{value}"


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help with headings that are whole words, at most 100 columns wide."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)
        self._width = min(self._width, 100)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Set paragraphs to the width; lines that are indented stay as they are."""
        paragraphs = []
        for paragraph in text.split("\n\n"):
            if not any(line.startswith(" ") for line in paragraph.splitlines()):
                words = " ".join(paragraph.split())
                paragraph = textwrap.fill(words, width, break_on_hyphens=False)
            paragraphs.append(textwrap.indent(paragraph, indent))
        return "\n\n".join(paragraphs)

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: Any = None) -> None:
        """Begin with a capital letter, as the other headings do."""
        super().add_usage(usage, actions, groups, prefix or "Usage: ")


def command_parser(name: str, function: Callable[..., Any]) -> CommandParser:
    """Return the parser of a command, by the annotations of its function."""
    description = inspect.cleandoc(function.__doc__ or "")
    parser = CommandParser(
        prog=f"ingot {name}",
        description=description,
        formatter_class=_HelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    arguments = parser.add_argument_group("Arguments")
    options = parser.add_argument_group("Options")
    for parameter in _parameters(function):
        _add(parameter, options if isinstance(parameter.declared, Option) else arguments)
    options.add_argument("--debug", action="store_true", help="Show where an error comes from.")
    options.add_argument("-h", "--help", action="store_true", help="Show this message.")
    places = [action for action in parser._actions if not action.option_strings]
    names = (f"[{a.metavar}]" if a.nargs in ("?", "*") else str(a.metavar) for a in places)
    dots = "..." if any(action.nargs in ("*", "+") for action in places) else ""
    parser.usage = f"{parser.prog} [OPTIONS] {' '.join(names)}{dots}".rstrip()
    return parser


def options_of(parser: CommandParser) -> list[str]:
    """Return all options of a command, as they are typed.

    >>> def show(path: str): "Show."
    >>> options_of(command_parser("show", show))
    ['--debug', '-h', '--help']
    """
    return list(parser._option_string_actions)


class _Parameter(NamedTuple):
    """One parameter of a function."""

    name: str
    kind: Any
    """Its type, without None."""
    declared: Argument | Option
    default: Any
    is_list: bool

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty


def _parameters(function: Callable[..., Any]) -> Iterator[_Parameter]:
    for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
        kind, declared = parameter.annotation, Argument()
        if hasattr(kind, "__metadata__"):
            kind, declared = kind.__origin__, kind.__metadata__[0]
        if isinstance(kind, types.UnionType):
            (kind,) = (each for each in get_args(kind) if each is not types.NoneType)
        is_list = get_origin(kind) is list
        if is_list:
            (kind,) = get_args(kind)
        yield _Parameter(name, kind, declared, parameter.default, is_list)


def _add(parameter: _Parameter, group: "argparse._ArgumentGroup") -> None:
    declared = parameter.declared
    if isinstance(declared, Argument):
        many = "+" if parameter.is_required else "*"
        one = None if parameter.is_required else "?"
        default = None if parameter.is_required else parameter.default
        metavar = (declared.metavar or parameter.name.upper()).strip("[].")
        group.add_argument(
            parameter.name,
            nargs=many if parameter.is_list else one,
            default=default,
            type=_place if parameter.kind is Path else parameter.kind,
            metavar=metavar,
            help=_help(declared.help, parameter),
        )
        return
    names = declared.names or (f"--{parameter.name.strip('_').replace('_', '-')}",)
    if parameter.kind is bool:
        yes = [each for name in names for each in name.split("/")[:1]]
        no = [each for name in names for each in name.split("/")[1:]]
        default = parameter.default
        group.add_argument(
            *yes, dest=parameter.name, action="store_true", default=default, help=declared.help
        )
        if no:
            group.add_argument(
                *no, dest=parameter.name, action="store_false", help=f"Not {yes[-1]}."
            )
        return
    group.add_argument(
        *names,
        dest=parameter.name,
        action="append" if parameter.is_list else "store",
        default=None if parameter.is_required else parameter.default,
        required=parameter.is_required,
        type=_bounded(parameter.kind, declared),
        metavar=declared.metavar or _metavar(parameter.kind),
        help=_help(declared.help, parameter),
    )


class _Address(str):
    """An address, such as "s3://bucket/a.zarr", with what commands ask of a path besides its text.

    >>> _Address("s3://bucket/a.zarr").name
    'a.zarr'
    """

    __slots__ = ()

    @property
    def name(self) -> str:
        """The last part."""
        return self.rstrip("/").rpartition("/")[2]


def _place(text: str) -> Path | _Address:
    """Return the path or the address that a text spells: a path would lose one of two slashes."""
    return _Address(text) if "://" in text else Path(text)


def _help(text: str, parameter: _Parameter) -> str:
    shown = parameter.default
    if parameter.is_required or shown is None or shown == "" or isinstance(shown, bool):
        return text.replace("%", "%%")
    return f"{text}  [{shown}]".replace("%", "%%")


def _metavar(kind: Any) -> str:
    return {int: "N", float: "X"}.get(kind, "TEXT" if kind is str else "PATH")


def _bounded(kind: Any, declared: Option) -> Callable[[str], Any]:
    least, most = declared.min, declared.max
    if least is None and most is None:
        parse: Callable[[str], Any] = kind
        return parse

    def number(text: str) -> Any:
        value = kind(text)
        if (least is not None and value < least) or (most is not None and value > most):
            raise argparse.ArgumentTypeError(f"{value} is not in the range {_range(declared)}")
        return value

    number.__name__ = kind.__name__
    return number


def _range(declared: Option) -> str:
    least = "" if declared.min is None else f"{declared.min} <= "
    most = "" if declared.max is None else f" <= {declared.max}"
    return f"{least}x{most}"

"""The command line is read by the annotations of a function."""

from pathlib import Path
from typing import Annotated

import pytest

from ingot.cli.parameters import Argument, BadParameter, Exit, Option
from ingot.cli.parser import command_parser, options_of


def show(
    path: Annotated[Path, Argument(metavar="PATH", help="A dataset.")],
    more: Annotated[list[str] | None, Argument(metavar="[MORE]...")] = None,
    key: Annotated[str | None, Option("-k", "--key", help="100 % of it.")] = None,
    rows: Annotated[int, Option("-n", "--rows", min=0, max=99)] = 10,
    names: Annotated[list[str] | None, Option("--name", metavar="NAME")] = None,
    sync: Annotated[bool, Option("--sync/--no-sync", help="Wait.")] = True,
    force: Annotated[bool, Option("-f", "--force")] = False,
    plain: Annotated[bool, Option()] = False,
) -> None:
    """Show it.

    In several lines.
    """


def read(*words):
    values = command_parser("show", show).read(words)
    return {name: value for name, value in values.items() if name not in ("debug", "help")}


DEFAULT = {
    "path": Path("a"),
    "more": None,
    "key": None,
    "rows": 10,
    "names": None,
    "sync": True,
    "force": False,
    "plain": False,
}


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["a"], {}),
        (["a", "b", "c"], {"more": ["b", "c"]}),
        (["a", "-n", "3", "b"], {"rows": 3, "more": ["b"]}),
        (["a", "b", "-f", "c"], {"force": True, "more": ["b", "c"]}),
        (["-k", "-3:", "a"], {"key": "-3:"}),
        (["--key", "-1", "a"], {"key": "-1"}),
        (["--key=::-1", "a"], {"key": "::-1"}),
        (["a", "--name", "x", "--name", "y"], {"names": ["x", "y"]}),
        (["a", "--no-sync", "--plain"], {"sync": False, "plain": True}),
        (["--", "a"], {}),
        (["a", "--key", "-"], {"key": "-"}),
    ],
)
def test_words_become_arguments(words, changed):
    assert read(*words) == DEFAULT | changed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "PATH"),
        (["a", "--nothing"], "--nothing"),
        (["a", "-n", "x"], "invalid int value"),
        (["a", "-n", "100"], "100 is not in the range 0 <= x <= 99"),
        (["a", "-n"], "expected one argument"),
        (["a", "--ro", "3"], "--ro"),
    ],
)
def test_wrong_use_is_an_error(words, message):
    with pytest.raises(BadParameter, match=message):
        read(*words)


def test_help_names_everything():
    text = command_parser("show", show).format_help()
    assert text.startswith("Usage: ingot show [OPTIONS] PATH [MORE]...\n\nShow it.\n\nIn several")
    for part in ("A dataset.", "-n N, --rows N", "[10]", "100 % of it.", "--no-sync", "--debug"):
        assert part in text
    assert "--no-sync" in options_of(command_parser("show", show))


def test_an_exit_has_a_status():
    assert (Exit().exit_code, Exit(1).exit_code, BadParameter("x").exit_code) == (0, 1, 2)

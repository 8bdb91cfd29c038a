"""The table of commands: the one place where a command is registered.

A command is a function with annotated parameters (`ingot.cli.parameters`), in a module of this
package. The module is loaded when its command is called: ``ingot --help`` loads none of them.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ingot._lazy import load

__all__ = ["COMMANDS", "CommandEntry"]


class CommandEntry(NamedTuple):
    """A command: where its function is, what ``ingot --help`` says of it, and in which section."""

    function: str
    """The module in `ingot.cli` and the function in it, such as "info:info"."""
    summary: str
    """The first sentence of the function's docstring."""
    section: str

    def load(self) -> Callable[..., Any]:
        """Import the module and return the function.

        >>> COMMANDS["doctor"].load().__name__
        'doctor'
        """
        module, _, name = self.function.partition(":")
        found: Callable[..., Any] = getattr(load(f"ingot.cli.{module}"), name)
        return found


_LOOK: Final = "Look at data"
_MOVE: Final = "Move and change data"
_ABOUT: Final = "About Ingot"

COMMANDS: Final[dict[str, CommandEntry]] = {
    "info": CommandEntry("info:info", "Say what a dataset is.", _LOOK),
    "ls": CommandEntry("listing:ls", "List the datasets of a folder or a group.", _LOOK),
    "tree": CommandEntry(
        "listing:tree", "Draw the datasets of a folder or a group as a tree.", _LOOK
    ),
    "head": CommandEntry("head:head", "Show the first rows or items of a dataset.", _LOOK),
    "tail": CommandEntry("head:tail", "Show the last rows or items of a dataset.", _LOOK),
    "explain": CommandEntry(
        "explain:explain", "Say what reading a part of a dataset costs.", _LOOK
    ),
    "view": CommandEntry("view:view", "Draw datasets as a page of HTML.", _LOOK),
    "chunk": CommandEntry("chunk:chunk", "Lay a Blosc chunk open.", _LOOK),
    "check": CommandEntry("check:check", "Check that datasets are whole.", _LOOK),
    "convert": CommandEntry(
        "convert:convert", "Convert a dataset to another format or layout.", _MOVE
    ),
    "copy": CommandEntry("convert:copy", "Copy a dataset as it is, from one state of it.", _MOVE),
    "repair": CommandEntry("check:repair", "Mend datasets that are damaged.", _MOVE),
    "attrs": CommandEntry("attrs:attrs", "Show, set and remove attributes.", _MOVE),
    "export": CommandEntry(
        "transfer:export", "Export a dataset to a file of another program.", _MOVE
    ),
    "import": CommandEntry(
        "transfer:import_", "Import a file of another program as a new dataset.", _MOVE
    ),
    "pack": CommandEntry("pack:pack", "Pack files as Bloscpack files.", _MOVE),
    "unpack": CommandEntry("pack:unpack", "Unpack Bloscpack files.", _MOVE),
    "bench": CommandEntry(
        "bench:bench", "Try codecs and chunk shapes on a sample of a dataset.", _LOOK
    ),
    "demo": CommandEntry("demo:demo", "Show what Ingot does.", _ABOUT),
    "completion": CommandEntry(
        "completion:completion", "Print a script for completion in a shell.", _ABOUT
    ),
    "doctor": CommandEntry("doctor:doctor", "Say which kernel runs, and why.", _ABOUT),
}
"""The commands in the order of ``ingot --help``, by name."""

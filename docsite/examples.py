"""Examples in docstrings, shown as code: an extension of griffe, which reads the docstrings.

The examples of Ingot stand in the text as doctest reads them, from `>>>` to the next empty line.
Markdown takes that for a paragraph; this puts a fence around each one.
"""

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"(?:^>>> .*\n(?:.+\n)*\n?)+", re.MULTILINE)


def fence(text: str) -> str:
    """Return a text with a fence around each of its examples."""
    return _EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n\n", text + "\n")


class FencedExamples(griffe.Extension):
    """Put fences around the examples of every docstring that is read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object as soon as it is known."""
        if obj.docstring is not None:
            obj.docstring.value = fence(obj.docstring.value)

"""What commands print: JSON, tables and names with values.

On a terminal, tables and texts are set by rich and fit its width. In a pipe they are plain text,
as wide as they are.
"""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ingot._lazy import deferred
from ingot.cli.columns import align
from ingot.containers.json_values import to_json
from ingot.fields import printable

if TYPE_CHECKING:
    import rich.box as rich_box
    import rich.console as rich_console
    import rich.padding as rich_padding
    import rich.table as rich_table
    import rich.text as rich_text
else:
    rich_box = deferred("rich.box")
    rich_console = deferred("rich.console")
    rich_padding = deferred("rich.padding")
    rich_table = deferred("rich.table")
    rich_text = deferred("rich.text")

__all__ = [
    "print_json",
    "print_pairs",
    "print_table",
    "print_text",
    "shown",
    "terminal_width",
    "to_json",
    "wrapped",
]

_NARROWEST_TEXT: Final = 12
"""A column of text is not made narrower than this, where it is wider."""

_GAP: Final = 2


def print_json(value: object) -> None:
    """Print a value as one JSON document; see `to_json` for what becomes of its parts.

    >>> print_json({"shape": (2, 3)})
    {
      "shape": [
        2,
        3
      ]
    }
    """
    print(json.dumps(to_json(value), indent=2, allow_nan=False))


def print_pairs(
    pairs: Mapping[str, object] | Iterable[tuple[str, object]], *, title: str = ""
) -> None:
    """Print names and values, one pair per line; long values are continued below themselves.

    >>> print_pairs({"shape": (2, 3), "codec": "none"}, title="prices")
    prices
      shape  (2, 3)
      codec  none
    """
    rows = [
        (printable(name), printable(shown(value), keep="\n")) for name, value in dict(pairs).items()
    ]
    if terminal_width() is None:
        if title:
            print(title)
        width = max((len(name) for name, _ in rows), default=0)
        indent = "  " if title else ""
        for name, value in rows:
            first, *more = value.splitlines() or [""]
            print(f"{indent}{name:<{width}}  {first}".rstrip())
            for line in more:
                print(" " * (len(indent) + width + 2) + line)
        return
    grid = rich_table.Table.grid(padding=(0, _GAP, 0, 0))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(rich_text.Text(name), rich_text.Text(value))
    console = _console()
    if title:
        console.print(rich_text.Text(title, style="bold cyan"))
    console.print(rich_padding.Padding(grid, (0, 0, 0, 2 if title else 0), expand=False))


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    left: Collection[int | str] = (),
    whole: Collection[int | str] = (),
    title: str = "",
) -> None:
    """Print rows under headings; columns are aligned to the right, but for those in `left`.

    `left` has positions or headings, and so has `whole`: columns whose texts are not broken where
    the others have room to give. On a terminal that is too narrow for all columns, texts are
    continued on the next line, and columns from the middle are left out; a line below says so.

    >>> print_table(("size", "file"), [(7, "a.blp"), (1000, "b.blp")], left=["file"])
     size  file
        7  a.blp
    1,000  b.blp
    """
    cells = [tuple(printable(shown(cell), keep="\n") for cell in row) for row in rows]
    lefts = {number for number, name in enumerate(headings) if number in left or name in left}
    width = terminal_width()
    if title:
        print_text(title, style="bold cyan")
    if width is None:
        flat = [tuple(cell.replace("\n", " ") for cell in row) for row in cells]
        print(align([tuple(headings), *flat], left=lefts))
        return
    narrowest = _narrowest(headings, cells, lefts)
    kept_whole = {n for n, name in enumerate(headings) if n in whole or name in whole}
    roomy = _narrowest(headings, cells, lefts - kept_whole)
    if sum(roomy) + _GAP * (len(roomy) - 1) <= width:
        narrowest = roomy
    else:
        kept_whole = set()
    kept = _fitting(narrowest, width)
    # The box of rich has a divider between columns, which is a space.
    table = rich_table.Table(
        box=rich_box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0)
    )
    for number in kept:
        if number is None:
            table.add_column("…")
            continue
        is_left = number in lefts
        justify: Any = "left" if is_left else "right"
        heading = rich_text.Text(headings[number])
        table.add_column(
            heading,
            justify=justify,
            min_width=narrowest[number],
            overflow="fold",
            no_wrap=number in kept_whole,
        )
    for row in cells:
        table.add_row(*(rich_text.Text("…" if n is None else row[n]) for n in kept))
    _console().print(table)
    if None in kept:
        count = len([number for number in kept if number is not None])
        print_text(f"({count} of {len(headings)} columns fit; a pipe gets all)", style="dim")


def print_text(text: str, *, style: str = "") -> None:
    """Print a text; on a terminal, lines that are too long are broken at words.

    >>> print_text("2 chunks")
    2 chunks
    """
    text, width = printable(text, keep="\n\t"), terminal_width()
    if width is None:
        print(text)
    else:
        _console().print(rich_text.Text(wrapped(text, width), style=style))


def wrapped(text: str, width: int) -> str:
    """Return a text whose lines fit a width: they are broken at spaces, and go on indented.

    A word that is too long, such as a path, stays whole, so that it can be copied.

    >>> print(wrapped("error: the checksum differs", 16))
    error: the
      checksum
      differs
    """
    lines = []
    for line in text.splitlines() or [""]:
        if len(line) <= width:
            lines.append(line)
            continue
        indent = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            max(width, len(indent) + _NARROWEST_TEXT),
            subsequent_indent=indent + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(lines)


def terminal_width() -> int | None:
    """Return how many columns the terminal has that standard output is; None in a pipe or file."""
    if not sys.stdout.isatty():
        return None
    return max(shutil.get_terminal_size().columns, 20)


def shown(value: object) -> str:
    """Return a cell of a table as text: "yes" and "no", integers with commas, "" for None.

    >>> shown(True), shown(1234567), shown(2.5), shown(None)
    ('yes', '1,234,567', '2.5', '')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _console() -> "rich_console.Console":
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return rich_console.Console(
        highlight=False,
        markup=False,
        emoji=False,
        width=terminal_width(),
        color_system=None if plain else "auto",
    )


def _narrowest(
    headings: Sequence[str], cells: Sequence[Sequence[str]], lefts: Collection[int]
) -> list[int]:
    """Return how narrow each column may get: headings are broken at words, numbers are whole."""
    found = []
    for number, heading in enumerate(headings):
        widest = max((len(line) for row in cells for line in row[number].splitlines()), default=0)
        if number in lefts:
            widest = min(widest, _NARROWEST_TEXT)
        found.append(max(widest, *map(len, heading.split()), 1))
    return found


def _fitting(narrowest: Sequence[int], width: int) -> list[int | None]:
    """Return the columns that fit a width, in order; None stands for those that are left out."""
    kept: list[int | None] = list(range(len(narrowest)))
    while len(kept) > 2:
        needed = sum(1 if number is None else narrowest[number] for number in kept)
        if needed + _GAP * (len(kept) - 1) <= width:
            break
        if None not in kept:
            kept[len(kept) // 2] = None
            continue
        # The side that has more columns gives one.
        place = kept.index(None)
        kept.pop(place - 1 if 2 * place >= len(kept) else place + 1)
    return kept

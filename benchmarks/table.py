"""Results as tables: for the terminal, for a page, for programs.

Formats rows and counts the bars that are met and missed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["Column", "Table", "Value", "summarize"]

Value = str | int | float | bool | None
"""A number, text in its place, a bar that is met or missed (a truth value), or None."""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, and the format of the numbers below it; without ``spec`` the column holds text.

    >>> Column("speed", ".1f").show(2.25), Column("bar").show(False), Column("size").show(None)
    ('2.2', 'MISSED', '–')
    """

    title: str
    spec: str = ""

    def show(self, value: Value) -> str:
        """Return the text of one value."""
        if value is None:
            return "–"
        if isinstance(value, bool):
            return "ok" if value else "MISSED"
        return value if isinstance(value, str) else format(value, self.spec)


@dataclass(frozen=True, slots=True)
class Table:
    """The results of one workload.

    >>> table = Table("speed", "How fast", (Column("who"), Column("bar")), (("we", True),))
    >>> print(table.as_text())
    How fast
    who  bar
    we    ok
    >>> table.verdicts()
    (1, 0)
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    notes: tuple[str, ...] = ()

    def verdicts(self) -> tuple[int, int]:
        """Return the number of bars that are met and missed."""
        verdicts = [value for row in self.rows for value in row if isinstance(value, bool)]
        return sum(verdicts), len(verdicts) - sum(verdicts)

    def missed(self) -> list[str]:
        """Return the description of each row that misses a bar."""
        return [
            f"{self.name}: {' '.join(words)}"
            for row, words in zip(self.rows, self._written(), strict=True)
            if any(value is False for value in row)
        ]

    def as_text(self) -> str:
        """Return the table as text for a terminal."""
        lines = [[column.title for column in self.columns], *self._written()]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        aligned = [
            "  ".join(
                word.ljust(width) if index == 0 else word.rjust(width)
                for index, (word, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *aligned, *self.notes])

    def as_markdown(self) -> str:
        """Return the table as Markdown."""
        rules = ["--:" if column.spec else "---" for column in self.columns]
        lines = [[column.title for column in self.columns], rules, *self._written()]
        body = ["| " + " | ".join(line) + " |" for line in lines]
        notes = [line for note in self.notes for line in ("", note)]
        return "\n".join([f"**{self.title}**", "", *body, *notes])

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain values, numbers in full."""
        titles = [column.title for column in self.columns]
        return {
            "name": self.name,
            "title": self.title,
            "rows": [dict(zip(titles, row, strict=True)) for row in self.rows],
            "notes": list(self.notes),
        }

    def _written(self) -> list[list[str]]:
        return [
            [column.show(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


def summarize(tables: Iterable[Table]) -> str:
    """Return a line with the number of bars that are met, and a line for each that is missed.

    >>> summarize([Table("speed", "How fast", (Column("who"), Column("bar")), (("we", False),))])
    'bars: 0 ok, 1 MISSED\\n  speed: we MISSED'
    """
    tables = list(tables)
    held = sum(table.verdicts()[0] for table in tables)
    missed = [line for table in tables for line in table.missed()]
    if not held and not missed:
        return "bars: none judged"
    return "\n  ".join([f"bars: {held} ok, {len(missed)} MISSED", *missed])

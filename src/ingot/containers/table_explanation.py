"""The cost of reading rows of a table, column by column, before anything is decoded."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.containers.table_state import TableState
from ingot.engine.explain import Explanation
from ingot.query import search
from ingot.query.expr import Expression
from ingot.query.search import Rows
from ingot.selection import parse

__all__ = ["HEADINGS", "TableExplanation", "candidate_rows", "explained"]

HEADINGS: Final = ("column", "chunks", "constant", "blocks", "bytes to read", "bytes decoded")
_MOST_NUMBERS: Final = 1 << 20
"""Rows whose numbers are listed one by one; of more, all between the first and the last count."""


@dataclass(frozen=True, slots=True, repr=False)
class TableExplanation:
    """What reading rows of a table costs, for each column of fixed-size items.

    >>> TableExplanation(2, 10, {})
    2 of 10 rows can match
    """

    rows: int
    """How many rows are read: those that are wanted, or that zone maps do not rule out."""
    total: int
    """How many rows the table has."""
    columns: Mapping[str, Explanation]

    @property
    def read(self) -> int:
        """The bytes to read from the inspected chunks of all columns."""
        return sum(each.read for each in self.columns.values())

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of `HEADINGS` for each column."""
        return [
            (
                name,
                f"{cost.chunks:,}",
                f"{cost.constants:,}",
                "" if not cost.blocks[1] else f"{cost.blocks[0]:,} of {cost.blocks[1]:,}",
                f"{cost.read:,}",
                f"{cost.nbytes:,}",
            )
            for name, cost in self.columns.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a dictionary that JSON can hold."""
        columns = {name: cost.to_dict() for name, cost in self.columns.items()}
        return {"rows": self.rows, "total": self.total, "columns": columns}

    def __repr__(self) -> str:
        lines = [f"{self.rows:,} of {self.total:,} rows can match"]
        if self.columns:
            rows = [HEADINGS, *self.table()]
            widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
            lines += ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = _html_row("th", HEADINGS)
        body = "".join(_html_row("td", row) for row in self.table())
        title = f"{self.rows:,} of {self.total:,} rows can match"
        return f"<p>{title}</p><table><thead>{head}</thead><tbody>{body}</tbody></table>"


def _html_row(tag: str, cells: Sequence[str]) -> str:
    """Return a row of HTML: the name of a column, and numbers to the right."""
    sides = ("left", *("right" for _ in cells[1:]))
    inside = (
        f'<{tag} style="text-align:{side};padding-right:1em">{html.escape(cell)}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(inside)}</tr>"


def candidate_rows(
    state: TableState, expression: Expression | None, mask: NDArray[np.bool_] | None
) -> Rows:
    """Return the rows that can match, as zone maps tell; nothing else is read.

    Where they are very many, these are all rows from the first of them to the last.
    """
    spans = [range(state.rows)] if expression is None else search.candidates(state, expression)
    count = sum(map(len, spans))
    if mask is None and (len(spans) < 2 or count > _MOST_NUMBERS):
        return range(spans[0].start, spans[-1].stop) if spans else range(0)
    runs = [np.arange(each.start, each.stop, dtype=np.int64) for each in spans]
    numbers = np.concatenate(runs) if runs else np.zeros(0, np.int64)
    return numbers if mask is None else numbers[mask[numbers]]


def explained(state: TableState, names: Sequence[str], rows: Rows) -> TableExplanation:
    """Return what reading some rows of some columns costs."""
    key = slice(rows.start, rows.stop, rows.step) if isinstance(rows, range) else rows
    if isinstance(rows, range) and rows.stop < 0:
        key = slice(rows.start, None, rows.step)
    columns: dict[str, Explanation] = {}
    for name in names:
        if state.items(name) is None:
            engine = state.engine(name)
            columns[name] = engine.explain(parse(key, engine.shape))
    return TableExplanation(len(rows), state.rows, columns)

"""The page that shows results: one section per workload, between markers.

Replaces a section and leaves the rest of the page unchanged. Pages and sections are not created:
the text around a table is written by hand.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from benchmarks.machine import portray
from benchmarks.table import Table, summarize

__all__ = ["PageError", "replace_section", "update", "write_section"]


class PageError(Exception):
    """A page without the markers that a section needs.

    >>> issubclass(PageError, Exception)
    True
    """


def update(path: Path, results: Mapping[str, Iterable[Table]], facts: Mapping[str, str]) -> None:
    """Replace the section of every workload in ``results``; all of them, or none."""
    text = path.read_text(encoding="utf-8")
    for name, tables in results.items():
        text = replace_section(text, name, write_section(tables, facts))
    draft = path.with_name(path.name + ".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)


def write_section(tables: Iterable[Table], facts: Mapping[str, str]) -> str:
    """Return the tables of a workload, and the facts of the machine, as Markdown.

    >>> print(write_section([], {"python": "3.13.0"}))
    bars: none judged
    <BLANKLINE>
    - python: 3.13.0
    """
    tables = list(tables)
    first_line = summarize(tables).partition("\n")[0]
    return "\n\n".join([*(table.as_markdown() for table in tables), first_line, portray(facts)])


def replace_section(text: str, name: str, body: str) -> str:
    """Return the page with another section ``name``.

    >>> page = "# Speed\\n<!-- begin decode -->\\nold\\n<!-- end decode -->\\nthe end"
    >>> replace_section(page, "decode", "new")
    '# Speed\\n<!-- begin decode -->\\n\\nnew\\n\\n<!-- end decode -->\\nthe end'
    """
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    head, opening, rest = text.partition(begin)
    _, closing, tail = rest.partition(end)
    if not opening or not closing:
        raise PageError(f"the page has no section {begin} … {end}")
    return f"{head}{begin}\n\n{body}\n\n{end}{tail}"

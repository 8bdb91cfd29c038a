"""The hidden columns of tables that say which items of a column exist.

The nulls of a column of fixed-size items are kept in a companion: a column of booleans with the
name of the column and ``.valid``, true where there is an item. No user gives a column such a name:
a dot leads into a nested table. A column without a companion has no nulls.
"""

from collections.abc import Container, Iterable
from typing import Final

import numpy as np

from ingot.errors import CorruptionError
from ingot.fields import shown
from ingot.formats.format import ArrayNode, TableMap

__all__ = ["SUFFIX", "check_companions", "companions", "is_companion", "valid_name", "visible"]

SUFFIX: Final = ".valid"
"""What the name of a companion ends with."""


def valid_name(name: str) -> str:
    """Return the name of the companion of a column.

    >>> valid_name("price")
    'price.valid'
    """
    return name + SUFFIX


def is_companion(name: str, columns: Container[str]) -> bool:
    """Return whether a new column is the companion of one of the columns.

    >>> is_companion("a.valid", ["a"]), is_companion("a.b", ["a"])
    (True, False)
    """
    return name.endswith(SUFFIX) and name.removesuffix(SUFFIX) in columns


def visible(names: Iterable[str], plain: Container[str] = ()) -> tuple[str, ...]:
    """Return names without those of companions; the `plain` ones are ordinary columns.

    >>> visible(["a", "a.valid", "b", "b.valid"], plain=["b.valid"])
    ('a', 'b', 'b.valid')
    """
    return tuple(name for name in names if not name.endswith(SUFFIX) or name in plain)


def companions(table: TableMap) -> dict[str, str]:
    """Return the companion of each column of a table that has one."""
    columns, names = table.columns, table.names
    if len(columns) == len(names):
        return {}
    shown_names = frozenset(names)
    return {name.removesuffix(SUFFIX): name for name in columns if name not in shown_names}


def check_companions(table: TableMap) -> None:
    """Refuse a hidden column that is no companion: without its column, or of another type."""
    for name, companion in companions(table).items():
        column, node = table.columns.get(name), table.columns[companion]
        where = f"{table.store.location}: column {shown(companion)}"
        if not isinstance(column, ArrayNode):
            raise CorruptionError(f"{where} says which items of {shown(name)} exist: no such array")
        if not isinstance(node, ArrayNode):
            raise CorruptionError(f"{where} is no array of booleans")
        schema = node.schema
        if schema.dtype != np.bool_ or schema.shape != column.schema.shape[:1]:
            raise CorruptionError(
                f"{where} has type {schema.dtype} and shape {schema.shape}, "
                f"bool and {column.schema.shape[:1]} are needed"
            )

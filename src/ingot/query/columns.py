"""The columns of a table as queries read them."""

from collections.abc import Mapping
from typing import Protocol

from ingot.engine.ragged import RaggedEngine
from ingot.engine.run import Engine
from ingot.logical_types import LogicalType
from ingot.schema import ArraySchema, RaggedSchema

__all__ = ["ColumnSource"]


class ColumnSource(Protocol):
    """One committed state of a table: its columns by name, each with an engine that reads it."""

    @property
    def rows(self) -> int:
        """The number of rows."""
        ...

    @property
    def logical_types(self) -> Mapping[str, LogicalType]:
        """The types of columns whose values mean something else than they are stored as."""
        ...

    def within(self, name: str) -> tuple[str, ...]:
        """Return the columns that a name stands for; raise `ColumnError` if there are none."""
        ...

    def schema(self, name: str) -> ArraySchema | RaggedSchema:
        """Return the schema of a column."""
        ...

    def engine(self, name: str) -> Engine:
        """Return the engine that reads a column that is an array."""
        ...

    def validity(self, name: str) -> Engine | None:
        """Return the engine of the booleans that say which items exist; None without nulls."""
        ...

    def items(self, name: str) -> RaggedEngine | None:
        """Return the engine of a column of variable-length items; None for an array."""
        ...

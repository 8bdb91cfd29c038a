"""Creation and opening of tables: arguments become a `TableSpec`, one commit stores the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.containers.array import Mode
from ingot.containers.attributes import converted
from ingot.containers.create import Chunks, Codec, ColumnSpec, blocks, check_layout
from ingot.containers.ingest import arrays_of, check_lengths
from ingot.containers.resolve import DatasetPath, FoundDataset, remove_existing
from ingot.containers.table import Table
from ingot.containers.table_state import TableState, created, table_handle
from ingot.formats.format import TableFormat, TableNode
from ingot.options import Options
from ingot.stores.store import Commit, Store
from ingot.stores.versions import change

__all__ = ["TableSpec", "create_table", "open_table"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A new table as its maker describes it; see `ingot.table`."""

    columns: object
    codec: Codec | Mapping[str, Codec]
    chunks: Chunks | Mapping[str, Chunks]
    attrs: Mapping[str, object]
    overwrite: bool
    options: Options
    layout: Mapping[str, Any] = field(default_factory=dict)


def open_table(found: FoundDataset, node: TableNode, mode: Mode, options: Options) -> Table:
    """Return the table that was found."""
    place, first = found.place, (TableState(node.table, options), found.number)
    ledger = table_handle(found.format, place.store, place.inner, options, first=first)
    return Table(found.format, ledger, path=place.path, mode=mode)


def create_table(format: TableFormat, place: DatasetPath, wish: TableSpec) -> Table:
    """Create the table that is wished for, by one commit."""
    check_layout(format, wish.layout)
    options, layout = wish.options, wish.layout
    given = arrays_of(wish.columns)
    check_lengths(given)
    columns = ColumnSpec(wish.chunks, wish.codec, options=options, layout=layout)
    schema, described = columns.schema(format, given), converted(wish.attrs)
    made: list[TableState] = []

    def build(store: Store) -> Commit:
        old = remove_existing(place, store, overwrite=wish.overwrite, groups=False)
        sheet, commit = created(
            format, store, schema, given, described, options, place.inner, **layout
        )
        made.append(sheet)
        return commit if old is None else Commit(publish=(*old.edits, *commit.edits))

    def clear(store: Store) -> Commit:
        return remove_existing(place, store, overwrite=wish.overwrite, groups=False) or Commit()

    # Before a lock file is made.
    if blocks(
        clear(place.store),
        format.create_table(place.store, schema, described, place.inner, **layout)[1],
    ):
        change(place.store, clear, durability=options.durability)
    number = change(place.store, build, durability=options.durability)
    ledger = table_handle(format, place.store, place.inner, options, first=(made[-1], number))
    return Table(format, ledger, path=place.path, mode="r+")

"""Creation and opening of tables: arguments become a `TableSpec`, one commit stores the table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot.containers.attributes import converted
from ingot.containers.create import Chunks, Codec, ColumnSpec, blocks, check_layout
from ingot.containers.dataset import Mode
from ingot.containers.ingest import arrays_of, check_lengths
from ingot.containers.resolve import DatasetPath, FoundDataset, remove_existing
from ingot.containers.table import Table
from ingot.containers.table_state import TableState, created, table_handle
from ingot.formats.format import Kind, TableFormat, TableNode, has_typed_attributes
from ingot.formats.validity import check_companions
from ingot.options import Options
from ingot.stores.store import Commit, Store
from ingot.stores.versions import writing

__all__ = ["TableSpec", "create_table", "open_table"]


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The arguments that describe a new table; see `ingot.table`."""

    columns: object
    codec: Codec | Mapping[str, Codec]
    chunks: Chunks | Mapping[str, Chunks]
    attrs: Mapping[str, object]
    overwrite: bool
    options: Options
    nan_as_null: bool = False
    layout: Mapping[str, Any] = field(default_factory=dict)


def open_table(found: FoundDataset, node: TableNode, mode: Mode, options: Options) -> Table:
    """Return the table that was found."""
    check_companions(node.table)
    place, first = found.place, (TableState(node.table, options), found.number)
    handle = table_handle(found.format, place.store, place.inner, options, first=first)
    return Table(found.format, handle, path=place.path, mode=mode)


def create_table(format: TableFormat, place: DatasetPath, inner: str, spec: TableSpec) -> Table:
    """Create a table at the path `inner` of a store, by one commit."""
    check_layout(format, spec.layout)
    options, layout = spec.options, spec.layout
    given = arrays_of(
        spec.columns, ragged=Kind.RAGGED in format.holds, nan_as_null=spec.nan_as_null
    )
    check_lengths(given)
    columns = ColumnSpec(spec.chunks, spec.codec, options=options, layout=layout)
    schema = columns.schema(format, given)
    described = converted(spec.attrs, typed=has_typed_attributes(format))

    def clear(store: Store) -> Commit | None:
        return remove_existing(place, store, overwrite=spec.overwrite, groups=False)

    # Before a lock file is made.
    if blocks(
        clear(place.store) or Commit(),
        format.create_table(place.store, schema, described, inner, **layout)[1],
    ):
        with writing(place.store, durability=options.durability) as turn:
            turn.commit(clear(turn.store) or Commit())
    with writing(place.store, durability=options.durability) as turn:
        old = clear(turn.store)
        state, commit = created(
            format, turn.store, schema, given, described, options, inner, **layout
        )
        # All of it at once: half a table, left by a crash, would block the next attempt.
        replaced = () if old is None else old.edits
        number = turn.commit(Commit(publish=(*replaced, *commit.edits)))
        # An error from here on gets the note that the commit is done.
        handle = table_handle(format, place.store, inner, options, first=(state, number))
        return Table(format, handle, path=place.path, mode="r+")

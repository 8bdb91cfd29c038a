"""How tables come into being and are opened.

Knows what a caller may say of a table that is not there yet, and makes it by one commit. Refuses to
know where it will be: the caller says. What a table can do, `ingot.table` knows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ingot import creation
from ingot.array import Mode
from ingot.attributes import converted
from ingot.columns import Chunks, ColumnsWish
from ingot.creation import Codec
from ingot.formats.format import TableFormat, TableNode
from ingot.options import Options
from ingot.places import Found, Place, in_the_way
from ingot.rows import arrays_of, check_lengths
from ingot.sheet import Sheet, created, opened
from ingot.stores.state import change
from ingot.stores.store import Commit, Store
from ingot.table import Table

__all__ = ["TableWish", "create_table", "open_table"]


@dataclass(frozen=True, slots=True)
class TableWish:
    """A new table as its maker describes it; see `ingot.table`."""

    columns: object
    codec: Codec | Mapping[str, Codec]
    chunks: Chunks | Mapping[str, Chunks]
    attrs: Mapping[str, object]
    overwrite: bool
    options: Options
    layout: Mapping[str, Any] = field(default_factory=dict)


def open_table(found: Found, node: TableNode, mode: Mode, options: Options) -> Table:
    """Return the table that was found."""
    place, first = found.place, (Sheet(node.table, options), found.number)
    ledger = opened(found.format, place.store, place.inner, options, first=first)
    return Table(found.format, ledger, path=place.path, mode=mode)


def create_table(format: TableFormat, place: Place, wish: TableWish) -> Table:
    """Create the table that is wished for, by one commit."""
    creation.check_layout(format, wish.layout)
    options, layout = wish.options, wish.layout
    given = arrays_of(wish.columns)
    check_lengths(given)
    columns = ColumnsWish(wish.chunks, wish.codec, options=options, layout=layout)
    schema, described = columns.schema(format, given), converted(wish.attrs)
    made: list[Sheet] = []

    def build(store: Store) -> Commit:
        old = in_the_way(place, store, overwrite=wish.overwrite, groups=False)
        sheet, commit = created(
            format, store, schema, given, described, options, place.inner, **layout
        )
        made.append(sheet)
        return commit if old is None else Commit(publish=(*old.edits, *commit.edits))

    def clear(store: Store) -> Commit:
        return in_the_way(place, store, overwrite=wish.overwrite, groups=False) or Commit()

    # Before a lock file is made.
    if creation.blocks(
        clear(place.store),
        format.create_table(place.store, schema, described, place.inner, **layout)[1],
    ):
        change(place.store, clear, durability=options.durability)
    number = change(place.store, build, durability=options.durability)
    ledger = opened(format, place.store, place.inner, options, first=(made[-1], number))
    return Table(format, ledger, path=place.path, mode="r+")

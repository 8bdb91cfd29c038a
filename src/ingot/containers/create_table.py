"""Creation and opening of tables: arguments become a `TableSpec`, one commit stores the table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot._lazy import deferred
from ingot.containers.attributes import converted
from ingot.containers.create import Chunks, Codec, ColumnSpec, blocks, check_layout
from ingot.containers.dataset import Mode
from ingot.containers.ingest import (
    arrays_of,
    check_lengths,
    fitted_logical,
    flattened,
    stream_of,
)
from ingot.containers.resolve import DatasetPath, FoundDataset, remove_existing
from ingot.containers.table import Table
from ingot.containers.table_state import TableState, created, plain_values, table_handle
from ingot.errors import FormatError
from ingot.formats import annotations
from ingot.formats.format import Kind, TableFormat, TableNode, has_typed_attributes
from ingot.formats.validity import check_companions
from ingot.logical_types import LogicalArray, LogicalKind
from ingot.nullable_array import NullableArray
from ingot.options import Options
from ingot.ragged_array import RaggedArray
from ingot.schema import ArraySchema
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Commit, Store
from ingot.stores.transaction import TransactionStore
from ingot.stores.versions import writing

if TYPE_CHECKING:
    from ingot.containers import replacement
else:
    replacement = deferred("ingot.containers.replacement")

__all__ = ["TableSpec", "create_table", "open_table"]

# The rows that a table is taken to have where a stream does not say it.
_MANY_ROWS: Final = 1 << 24
# What a buffer holds in memory; the rest of a stream is staged in the store.
_HELD_BYTES: Final = 16 << 20


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
    fill: object | Mapping[str, object] = 0


def open_table(found: FoundDataset, node: TableNode, mode: Mode, options: Options) -> Table:
    """Return the table that was found."""
    check_companions(node.table)
    place, first = found.place, (TableState(node.table, options), found.number)
    handle = table_handle(found.format, place.store, place.inner, options, first=first)
    return Table(found.format, handle, path=place.path, mode=mode)


def create_table(format: TableFormat, place: DatasetPath, inner: str, spec: TableSpec) -> Table:
    """Create a table at the path `inner` of a store, by one commit."""
    stream = stream_of(spec.columns)
    if stream is not None:
        first = next(stream)
        second = next(stream, None)
        if second is not None:
            return _create_streamed(format, place, inner, spec, chain((first, second), stream))
        spec = replace(spec, columns=first)
    check_layout(format, spec.layout)
    options, layout = spec.options, spec.layout
    given = arrays_of(
        spec.columns, ragged=Kind.RAGGED in format.holds, nan_as_null=spec.nan_as_null
    )
    check_lengths(given)
    stored, notes = plain_values(given)
    columns = ColumnSpec(spec.chunks, spec.codec, spec.fill, options=options, layout=layout)
    schema = columns.schema(format, given)
    if annotations.KEY in spec.attrs:
        raise FormatError(f"the attribute {annotations.KEY!r} is for the columns of the table")
    described = converted(spec.attrs, typed=has_typed_attributes(format))
    annotations.pack(notes)  # Refuses what cannot be kept before anything is written.

    def clear(store: Store) -> Commit | None:
        return remove_existing(place, store, overwrite=spec.overwrite, groups=False)

    # Before a lock file is made.
    present = clear(place.store) or Commit()
    made = format.create_table(place.store, schema, described, inner, **layout)[1]
    if blocks(present, made) and replacement.has_files(place.store):

        def write(store: Store) -> None:
            create_table(format, place._replace(store=store, path=store.location), inner, spec)

        replacement.replace_dataset(place.store, inner, present, place.name, write)
        handle = table_handle(format, place.store, inner, options)
        return Table(format, handle, path=place.path, mode="r+")
    with writing(place.store, durability=options.durability) as turn:
        old = clear(turn.store)
        state, commit = created(
            format, turn.store, schema, stored, described, options, inner, notes, **layout
        )
        # All of it at once: half a table, left by a crash, would block the next attempt.
        replaced = () if old is None else old.edits
        number = turn.commit(Commit(publish=(*replaced, *commit.edits)))
        # An error from here on gets the note that the commit is done.
        handle = table_handle(format, place.store, inner, options, first=(state, number))
        return Table(format, handle, path=place.path, mode="r+")


def _create_streamed(
    format: TableFormat,
    place: DatasetPath,
    inner: str,
    spec: TableSpec,
    stream: Iterator[dict[str, Any]],
) -> Table:
    """Create a table of rows that come block by block, by one commit.

    The table grows in a buffer over the store; what the buffer does not hold in memory is staged in
    the store.
    """
    first = next(stream)
    if Kind.RAGGED not in format.holds and any(
        isinstance(each, RaggedArray) for each in flattened(first).values()
    ):
        # The width of text is that of its longest item, which may be the last.
        return create_table(format, place, inner, replace(spec, columns=_joined([first, *stream])))
    buffered = BufferedStore(place.store, most=_HELD_BYTES)
    try:
        there = place._replace(store=TransactionStore(buffered))
        sizes = _sizes(format, spec, first)
        table = create_table(format, there, inner, replace(spec, columns=first, chunks=sizes))
        for block in stream:
            table.append(block, nan_as_null=spec.nan_as_null)
        return _published(format, place, inner, spec, buffered)
    except BaseException:
        buffered.discard()
        raise


def _published(
    format: TableFormat, place: DatasetPath, inner: str, spec: TableSpec, buffered: BufferedStore
) -> Table:
    """Commit a table that was made in a buffer, and return it."""
    commit, options = buffered.commit(), spec.options
    kept = {edit.key for edit in commit.edits}

    def clear(store: Store) -> Commit:
        old = remove_existing(place, store, overwrite=spec.overwrite, groups=False)
        return Commit() if old is None else old

    if blocks(clear(place.store), commit) and replacement.has_files(place.store):
        # The columns are staged in the folder of the old dataset.
        raise replacement.blocked(place.name)
    with writing(place.store, durability=options.durability) as turn:
        old = tuple(edit for edit in clear(turn.store).edits if edit.key not in kept)
        turn.commit(Commit(publish=(*old, *commit.edits)))
    handle = table_handle(format, place.store, inner, options)
    return Table(format, handle, path=place.path, mode="r+")


def _sizes(format: TableFormat, spec: TableSpec, first: Mapping[str, Any]) -> Mapping[str, Chunks]:
    """Return the rows of the chunks of columns whose length is not known: as for a long table."""
    given = arrays_of(first, ragged=Kind.RAGGED in format.holds)
    found: dict[str, Chunks] = {}
    for name, values in given.items():
        chunks = spec.chunks.get(name, "auto") if isinstance(spec.chunks, Mapping) else spec.chunks
        if isinstance(values, LogicalArray):
            values = values.values
        if chunks == "auto" and not isinstance(values, RaggedArray):
            long = np.broadcast_to(np.zeros((), values.dtype), (_MANY_ROWS, *values.shape[1:]))
            made = ColumnSpec(options=spec.options, layout=spec.layout).schema(format, {"a": long})
            column = made["a"]
            chunks = column.chunks[0] if isinstance(column, ArraySchema) else chunks
        found[name] = chunks
    return found


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of several blocks as those of one."""
    found: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts]
        if isinstance(first, dict):
            found[name] = _joined(values)
        elif isinstance(first, LogicalArray):
            found[name] = _joined_logical(name, values)
        elif isinstance(first, RaggedArray):
            found[name] = RaggedArray.joined(values)
        elif any(isinstance(each, NullableArray) for each in values):
            found[name] = NullableArray(
                np.concatenate([getattr(each, "values", each) for each in values]),
                np.concatenate([_valid(each) for each in values]),
            )
        else:
            found[name] = np.concatenate(values)
    return found


def _joined_logical(name: str, values: list[LogicalArray]) -> LogicalArray:
    """Return values of several blocks that mean the same; words are those of all blocks."""
    first = values[0]
    if first.type is None or isinstance(first.values, RaggedArray):
        return LogicalArray(_joined([{name: each.values} for each in values])[name], first.note)
    kind = first.type
    parts: list[dict[str, Any]] = []
    for each in values:
        fitted = fitted_logical(each, LogicalKind(first.dtype, first.shape[1:], kind), name)
        assert fitted.type is not None
        kind = fitted.type
        parts.append({name: fitted.values})
    return LogicalArray(_joined(parts)[name], replace(first.note, type=kind))


def _valid(values: Any) -> NDArray[np.bool_]:
    return values.valid if isinstance(values, NullableArray) else np.ones(len(values), np.bool_)

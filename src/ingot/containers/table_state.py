"""One state of a table: an engine for every column, and the changes that lead to the next state.

Columns have one length and change together: every change is the next state and one commit for all
columns. Nothing is applied here. Names of columns in nested tables are joined by dots.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.containers.handle import Handle, HandleProtocol, PartHandle, TransactionalHandle
from ingot.engine import changes, kernel_commit, ragged
from ingot.engine.kernel_commit import RowsChange
from ingot.engine.payload import engine_of
from ingot.engine.ragged import RaggedChange, RaggedEngine
from ingot.engine.run import Engine
from ingot.engine.stored_size import stored_bytes
from ingot.errors import ArgumentError, ColumnError, FormatError, SelectionError, UnsupportedError
from ingot.formats import annotations
from ingot.formats.format import (
    ArrayNode,
    Column,
    ColumnSchema,
    Compactable,
    CompactableRagged,
    Documents,
    Format,
    FreeBytes,
    RaggedNode,
    TableFormat,
    TableMap,
    TableNode,
    TableSchema,
    compactable,
    compactable_ragged,
    relocated,
)
from ingot.formats.validity import SUFFIX, check_companions, companions, valid_name
from ingot.logical_types import PLAIN, Annotation, LogicalArray, LogicalType
from ingot.nullable_array import NullableArray
from ingot.options import Options
from ingot.ragged_array import RaggedArray
from ingot.schema import ArraySchema, RaggedSchema
from ingot.selection import BasicSelection, Selection, parse
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Commit, Delete, Edit, Store
from ingot.stores.versions import NO_VERSION, copied, discard

__all__ = [
    "ColumnValues",
    "StoredValues",
    "TableChange",
    "TableState",
    "added",
    "annotated",
    "appended",
    "assigned",
    "assigned_parts",
    "column_handle",
    "compacted",
    "created",
    "deleted",
    "described",
    "dropped",
    "filled",
    "items_handle",
    "lacking_nulls",
    "nested_handle",
    "numbered",
    "plain_values",
    "renamed",
    "reopened_map",
    "resized",
    "retyped",
    "rows_change",
    "separated",
    "table_handle",
    "with_column",
    "with_first_nulls",
    "with_nested",
    "with_notes",
]


# About how many bytes one block of a column has when rows are moved.
_BLOCK_BYTES: Final = 16 << 20
# How many times larger variable-length items are taken to be than their packs.
_EXPANSION: Final = 4


Leaf: TypeAlias = ArrayNode | RaggedNode
ColumnEngine: TypeAlias = Engine | RaggedEngine
ColumnChange: TypeAlias = changes.ArrayChange | RaggedChange
_Growth: TypeAlias = tuple[Engine, tuple[int, ...], Selection, NDArray[Any]]

StoredValues: TypeAlias = NDArray[Any] | NullableArray | RaggedArray
"""The values of a stored column: an array, perhaps with nulls, or variable-length items."""

ColumnValues: TypeAlias = StoredValues | LogicalArray
"""The values of a column: as it is stored, perhaps with what they mean."""

Notes: TypeAlias = Mapping[str, Annotation]
"""What the types of columns do not say, by their names."""


class TableState:
    """A table in one state of its store."""

    __slots__ = (
        "_companions",
        "_engines",
        "_found",
        "_inner",
        "_nested",
        "_notes",
        "options",
        "table",
    )

    def __init__(
        self,
        table: TableMap,
        options: Options,
        engines: Mapping[str, ColumnEngine] | None = None,
        notes: Notes | None = None,
    ) -> None:
        """Take a table; `notes` are those of a nested one, which the outermost table stores."""
        self.table = table
        self.options = options
        self._notes = notes
        self._inner = notes is not None
        # Both are made when they are needed: often one of hundreds of columns is read.
        self._found: Mapping[str, Leaf] | None = None
        self._companions: Mapping[str, str] | None = None
        self._engines: dict[str, ColumnEngine] = dict(engines or {})
        self._nested: dict[str, TableState] = {}

    @property
    def _leaves(self) -> Mapping[str, Leaf]:
        """The stored columns, those of nested tables as "a.b"; hidden ones are among them."""
        if self._found is None:
            self._found = dict(_leaves(self.table.columns, ""))
        return self._found

    @property
    def companions(self) -> Mapping[str, str]:
        """The hidden column of each column that may have nulls, by its name."""
        if self._companions is None:
            some = any(name.endswith(SUFFIX) for name in self._leaves)
            self._companions = dict(_companions(self.table, "")) if some else {}
        return self._companions

    @property
    def notes(self) -> Notes:
        """The annotations of columns."""
        if self._notes is None:
            where = self.table.store.location
            self._notes = annotations.parse(self.table.attrs, where)
            for name, note in self._notes.items():
                # Another program may have removed the column.
                if name in self._leaves:
                    annotations.check(name, note, self.schema(name), where)
        return self._notes

    @property
    def logical_types(self) -> Mapping[str, LogicalType]:
        """The types of columns whose values mean something else than they are stored as."""
        if not self.notes:
            return {}
        return {name: note.type for name, note in self.notes.items() if note.type is not None}

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the table, without the annotations of its columns."""
        return annotations.without(self.table.attrs)

    @property
    def rows(self) -> int:
        """The number of rows: the length of every column."""
        leaves = self._found
        # Columns are made when they are needed, and the first one is enough here.
        found = _leaves(self.table.columns, "") if leaves is None else iter(leaves.items())
        for name, node in found:
            known = name in self._engines
            return self.schema(name).shape[0] if known else node.schema.shape[0]
        return 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; a nested table is one of them."""
        return self.table.names

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of all columns that hold values, those of nested tables as "a.b"."""
        if not self.companions:
            return tuple(self._leaves)
        hidden = frozenset(self.companions.values())
        return tuple(name for name in self._leaves if name not in hidden)

    @property
    def stored_leaves(self) -> tuple[str, ...]:
        """The names of all stored columns: those of `leaves`, and hidden ones."""
        return tuple(self._leaves)

    def schema(self, name: str) -> ArraySchema | RaggedSchema:
        """Return the schema of a column."""
        engine = self._engines.get(name)
        if engine is None:
            return self._leaves[name].schema
        if isinstance(engine, RaggedEngine):
            return engine.packs.schema
        return engine.chunks.schema

    def column(self, name: str) -> ColumnEngine:
        """Return the engine of a column, of either kind."""
        engine = self._engines.get(name)
        if engine is None:
            if name not in self._leaves:
                self.within(name)
            engine = self._engines[name] = _engine(self._leaves[name], self.options)
        return engine

    def validity(self, name: str) -> Engine | None:
        """Return the engine of the booleans that say which items of a column exist.

        None for a column without nulls.
        """
        companion = self.companions.get(name)
        return None if companion is None else self.engine(companion)

    def engine(self, name: str) -> Engine:
        """Return the engine of a column that is an array."""
        engine = self.column(name)
        if isinstance(engine, RaggedEngine):
            raise UnsupportedError(f"column {name!r} has items of variable length")
        return engine

    def items(self, name: str) -> RaggedEngine | None:
        """Return the engine of a column of variable-length items; None for an array."""
        engine = self.column(name)
        return engine if isinstance(engine, RaggedEngine) else None

    def _node(self, name: str) -> Leaf:
        engine = self._engines.get(name)
        if engine is None:
            return self._leaves[name]
        if isinstance(engine, RaggedEngine):
            return RaggedNode(engine.packs)
        return ArrayNode(engine.chunks)

    def within(self, name: str) -> tuple[str, ...]:
        """Return the columns that a name stands for: one, or all of a nested table.

        Raises `ColumnError` for a name that the table does not have.
        """
        if name in self._leaves and (not self.companions or name in self.leaves):
            return (name,)
        found = tuple(leaf for leaf in self.leaves if leaf.startswith(f"{name}."))
        if not found:
            known = ", ".join(self.leaves) or "none"
            raise ColumnError(f"there is no column {name!r}; the columns are {known}")
        return found

    def documents(self) -> Documents:
        """Return the documents of the table, of nested tables, and of all columns."""
        found = dict(_documents(self.table))
        for name in self._leaves:
            node = self._node(name)
            found.update(
                node.chunks.documents if isinstance(node, ArrayNode) else node.packs.documents
            )
        return found

    def stored(self) -> dict[str, int]:
        """Return the number of bytes of the stored chunks of each column, with its nulls."""
        found = {name: _stored_bytes(self._node(name), self.options) for name in self._leaves}
        for name, companion in self.companions.items():
            found[name] += found.pop(companion)
        return found

    def free(self) -> FreeBytes | None:
        """Return how many bytes of the files hold nothing; None where files have no such bytes."""
        maps = [_compactable(self._node(name)) for name in self._leaves]
        found = [each.free_bytes() for each in maps if each is not None]
        if not found:
            return None
        return FreeBytes(sum(each.dead for each in found), sum(each.spare for each in found))

    def nested(self, name: str) -> "TableState":
        """Return a nested table, which shares its columns with this one."""
        if (known := self._nested.get(name)) is not None:
            return known
        table = _inner(self.table, name)
        if table is None:
            raise ColumnError(f"there is no nested table {name!r}")
        prefix = f"{name}."
        own = {
            leaf.removeprefix(prefix): engine
            for leaf, engine in self._made()
            if leaf.startswith(prefix)
        }
        notes = {
            leaf.removeprefix(prefix): note
            for leaf, note in self.notes.items()
            if leaf.startswith(prefix)
        }
        # Kept, so that two reads of one state get the same.
        return self._nested.setdefault(name, TableState(table, self.options, own, notes))

    def _made(self) -> list[tuple[str, ColumnEngine]]:
        # A copy: other threads may add engines meanwhile.
        return list(self._engines.items())

    def following(self, engines: Mapping[str, ColumnEngine]) -> "TableState":
        """Return the state in which some columns have other engines."""
        after = TableState(self.table, self.options, {**self._engines, **engines}, self._notes)
        after._found, after._companions, after._inner = self._found, self._companions, self._inner
        return after

    def changed(self, table: TableMap, notes: Notes | None = None) -> "TableState":
        """Return the state after a change of the columns; `notes` are those of a nested table."""
        return TableState(table, self.options, None, notes if self._inner else None)


def table_handle(
    format: Format,
    store: Store,
    inner: str,
    options: Options,
    first: tuple[TableState | None, int | None] = (None, NO_VERSION),
) -> TransactionalHandle[TableState]:
    """Return a handle of the table at `inner` of a store."""

    def load(view: Store) -> TableState:
        node = format.open(view, inner)
        if not isinstance(node, TableNode):
            raise FormatError(f"{store.location}: no longer a table")
        check_companions(node.table)
        return TableState(node.table, options)

    handle = Handle(
        store, load, documents=TableState.documents, durability=options.durability, first=first
    )
    return TransactionalHandle(handle, load)


TableChange = tuple[TableState, Commit]
"""A table after a change, and the commit that leads there."""


def column_handle(whole: HandleProtocol[TableState], name: str) -> PartHandle[TableState, Engine]:
    """Return the handle of one column; its changes are changes of its table."""
    return PartHandle(
        whole,
        lambda state: state.engine(name),
        lambda state, engine, commit: with_column(state, name, engine, commit),
    )


def items_handle(
    whole: HandleProtocol[TableState], name: str
) -> PartHandle[TableState, RaggedEngine]:
    """Return the handle of a column of variable-length items."""

    def find(state: TableState) -> RaggedEngine:
        engine = state.items(name)
        if engine is None:
            raise FormatError(f"column {name!r} no longer has items of variable length")
        return engine

    return PartHandle(
        whole, find, lambda state, engine, commit: with_column(state, name, engine, commit)
    )


def nested_handle(
    whole: HandleProtocol[TableState], name: str
) -> PartHandle[TableState, TableState]:
    """Return the handle of a nested table; its changes are changes of the whole table."""
    return PartHandle(
        whole,
        lambda state: state.nested(name),
        lambda state, inner, commit: with_nested(state, name, inner, commit),
    )


def appended(state: TableState, columns: Mapping[str, StoredValues]) -> TableChange:
    """Return the change that adds rows at the end; all columns are given, of one length."""
    growths, steps = _growths(state, columns)
    return _joined(state, steps, lambda: _changed(growths, changes.grown_together))


def rows_change(
    state: TableState, columns: Mapping[str, ColumnValues]
) -> tuple[RowsChange, Callable[[], TableState]] | None:
    """Return the rows at the end that the kernel adds by itself, and what gives the state after it.

    None where it cannot: `appended` is the change then.
    """
    stored, notes = separated(state, columns)
    if notes != state.notes or lacking_nulls(state, stored):
        return None
    growths, steps = _growths(state, stored)
    change = None if steps else kernel_commit.growth_together(growths, state.table.joined)
    if change is None:
        return None
    return change, lambda: state.following(change.following())


def _growths(
    state: TableState, columns: Mapping[str, StoredValues]
) -> tuple[dict[str, _Growth], list[tuple[str, Callable[[Any], ColumnChange]]]]:
    """Return what arrays get at their ends, which can be stored together, and other steps."""
    old = state.rows
    columns = _stored_values(state, columns)
    steps: list[tuple[str, Callable[[Any], ColumnChange]]] = []
    growths: dict[str, _Growth] = {}
    # Most columns have one item in a row, so that the same selection serves them all.
    selections: dict[tuple[int, ...], Selection] = {}
    for name, values in columns.items():
        engine = state.column(name)
        if isinstance(engine, RaggedEngine):
            steps.append((name, partial(_appended_items, values=values)))
            continue
        assert isinstance(values, np.ndarray)
        shape = (old + len(values), *engine.shape[1:])
        selection = selections.get(shape)
        if selection is None:
            selection = selections[shape] = parse(slice(old, None), shape)
        if engine.chunks.schema.flat is None:
            growths[name] = engine, shape, selection, values
        else:
            growth = partial(changes.grown, shape=shape, selection=selection, values=values)
            steps.append((name, growth))
    return growths, steps


def _appended_items(engine: RaggedEngine, values: StoredValues) -> ColumnChange:
    return ragged.appended(engine, _items(values))


def assigned(state: TableState, rows: object, columns: Mapping[str, Any]) -> TableChange:
    """Return the change that sets the values of some columns in some rows."""
    return _assigned_stored(state, rows, _stored_values(state, columns))


def _assigned_stored(state: TableState, rows: object, columns: Mapping[str, Any]) -> TableChange:
    steps: list[tuple[str, Callable[[Any], ColumnChange]]] = []
    assignments: dict[str, tuple[Engine, Selection, Any]] = {}
    for name, values in columns.items():
        engine = state.column(name)
        if isinstance(engine, RaggedEngine):
            steps.append((name, partial(_assigned_items, rows=rows, values=values)))
        else:
            assignments[name] = engine, parse(rows, engine.shape), values
    return _joined(state, steps, lambda: _changed(assignments, changes.assigned_together))


def assigned_parts(state: TableState, parts: Mapping[str, tuple[Selection, Any]]) -> TableChange:
    """Return the change that assigns values to selections of stored columns."""
    assignments = {name: (state.engine(name), *part) for name, part in parts.items()}
    return _joined(state, (), lambda: _changed(assignments, changes.assigned_together))


def _assigned_items(engine: RaggedEngine, rows: object, values: Any) -> ColumnChange:
    return ragged.assigned(engine, numbered(rows, engine.shape[0]), _items(values))


Given = TypeVar("Given")


def _changed(
    given: Mapping[str, Given], change: Callable[[Sequence[Given]], Sequence[ColumnChange]]
) -> dict[str, ColumnChange]:
    """Return the changes of columns that `change` makes together, by their names."""
    return dict(zip(given, change(tuple(given.values())), strict=True))


def resized(state: TableState, rows: int) -> TableChange:
    """Return the change of the number of rows; new rows hold the fill values."""
    shrinking = rows < state.rows

    def resize(engine: ColumnEngine) -> ColumnChange:
        if isinstance(engine, RaggedEngine):
            return ragged.resized(engine, rows)
        return changes.resized(engine, (rows, *engine.shape[1:]))

    return _joined(state, ((name, resize) for name in state.stored_leaves), shrinking=shrinking)


def compacted(state: TableState) -> TableChange:
    """Return the change that makes files with dead bytes anew, of all columns."""

    def compact(engine: ColumnEngine) -> ColumnChange:
        if isinstance(engine, RaggedEngine):
            return ragged.compacted(engine)
        return changes.compacted(engine)

    return _joined(state, ((name, compact) for name in state.stored_leaves))


def with_column(state: TableState, name: str, engine: ColumnEngine, commit: Commit) -> TableChange:
    """Return the change of a table that a change of one column is."""
    if engine.shape[:1] != (state.rows,):
        engine.discard(commit)
        raise ArgumentError(
            f"column {name!r} would have {engine.shape[0]} rows, its table {state.rows}; "
            "rows are added and removed by the table"
        )
    return state.following({name: engine}), state.table.joined({name: commit})


def with_nested(state: TableState, name: str, nested: TableState, commit: Commit) -> TableChange:
    """Return the change of a table that a change of a nested table is."""
    if not nested.leaves:
        raise ArgumentError(f"{name!r} would have no columns left; drop the nested table itself")
    if nested.rows != state.rows:
        raise ArgumentError(
            f"{name!r} would have {nested.rows} rows, its table {state.rows}; "
            "rows are added and removed by the table"
        )
    prefix = f"{name}."
    own = {prefix + leaf: engine for leaf, engine in nested._made()}
    others = {leaf: each for leaf, each in state._made() if not leaf.startswith(prefix)}
    table = _with_inner(state.table, name, nested.table)
    notes = {leaf: note for leaf, note in state.notes.items() if not leaf.startswith(prefix)}
    notes |= {prefix + leaf: note for leaf, note in nested.notes.items()}
    kept = state.notes if state._inner else None
    after = TableState(table, state.options, {**others, **own}, kept)
    return with_notes(state, (after, commit), notes)


def with_notes(before: TableState, change: TableChange, notes: Notes) -> TableChange:
    """Return a change of a table that also changes the annotations of columns.

    They are published first: a reader that finds new codes finds their words.
    """
    after, commit = change
    notes = {name: note for name, note in notes.items() if note != PLAIN}
    if notes == before.notes:
        return change
    if after._inner:
        return TableState(after.table, after.options, dict(after._made()), notes), commit
    attrs = {**after.attrs, **annotations.pack(notes)}
    table, described = after.table.described(attrs)
    return TableState(table, after.options, dict(after._made())), _in_turn(described, commit)


def annotated(state: TableState, columns: Mapping[str, StoredValues]) -> dict[str, ColumnValues]:
    """Return values of stored columns with what they mean."""
    notes = state.notes
    if not notes:
        return dict(columns)
    return {
        name: LogicalArray(values, notes[name]) if name in notes else values
        for name, values in columns.items()
    }


def separated(
    state: TableState, columns: Mapping[str, ColumnValues]
) -> tuple[dict[str, StoredValues], Notes]:
    """Return values as they are stored, and the annotations that the table has with them.

    The words of categories are those of the values, which may be more.
    """
    stored, types = plain_values(columns)
    kept = {
        name: replace(note, type=types.get(name, note).type) for name, note in state.notes.items()
    }
    return stored, kept


def plain_values(columns: Mapping[str, ColumnValues]) -> tuple[dict[str, StoredValues], Notes]:
    """Return values as they are stored, and the annotations of those that have one."""
    stored: dict[str, StoredValues] = {}
    notes: dict[str, Annotation] = {}
    for name, values in columns.items():
        if isinstance(values, LogicalArray):
            notes[name] = values.note
            stored[name] = values.values
        else:
            stored[name] = values
    return stored, notes


def deleted(state: TableState, rows: NDArray[np.int64]) -> TableChange:
    """Return the change that removes rows; their numbers ascend, without duplicates.

    The rows behind the first of them move up, so all of those are written again.
    """
    if not len(rows):
        return state, Commit()
    columns = [state.column(name) for name in state.stored_leaves]
    if all(isinstance(column, Engine) and column.has_rows for column in columns):
        remove = partial(changes.without_rows, rows=rows)
        return _joined(state, ((name, remove) for name in state.stored_leaves), shrinking=True)
    buffered = BufferedStore(state.table.store)
    first, left = int(rows[0]), state.rows - len(rows)
    kept = np.ones(state.rows - first, np.bool_)
    kept[rows - first] = False
    try:
        moved = TableState(state.table.reopened(buffered), state.options)
        for name in state.stored_leaves if left > first else ():
            for place, values in _moved_up(moved.column(name), first, kept):
                after, commit = _assigned_stored(moved, place, {name: values})
                buffered.apply(commit)
                moved = after
        after, commit = resized(moved, left)
        buffered.apply(commit)
        shorter = {name: _shortened(state, after, name, left) for name in state.stored_leaves}
    except BaseException:
        buffered.discard()
        raise
    return state.following(shorter), buffered.commit()


def _shortened(state: TableState, after: TableState, name: str, rows: int) -> ColumnEngine:
    """Return the engine of a column after a deletion; `after` is the table in the buffer."""
    items = after.items(name)
    if items is not None:
        return RaggedEngine(items.packs.rebound(state.table.store), state.options)
    node = state._node(name)
    assert isinstance(node, ArrayNode)
    chunks, _ = node.chunks.resized((rows, *node.chunks.schema.shape[1:]))
    # Chunks may lie elsewhere now.
    return engine_of(relocated(chunks), state.options)


def _moved_up(
    engine: ColumnEngine, first: int, kept: NDArray[np.bool_]
) -> Iterator[tuple[slice, StoredValues]]:
    """Yield where to write the kept rows from `first` on, and their values, in whole chunks.

    Rows are never written behind the rows that were read, so each block may be written before the
    next is read.
    """
    length, chunk, row = engine.shape[0], *_chunk_and_row(engine)
    step = max(1, _BLOCK_BYTES // (row * chunk)) * chunk
    waiting: list[Any] = []
    place, held = first, 0
    for start in range(first // step * step, length, step):
        begin, stop = max(start, first), min(start + step, length)
        mask = kept[begin - first : stop - first]
        if isinstance(engine, RaggedEngine):
            waiting.append(engine.read(range(begin, stop)).masked(mask))
        else:
            waiting.append(engine.read(parse(slice(begin, stop), engine.shape))[mask])
        held += len(waiting[-1])
        ready = held if stop == length else max(0, (place + held) // chunk * chunk - place)
        if ready:
            joined = _concatenated(waiting)
            yield slice(place, place + ready), joined[:ready]
            waiting, place, held = [joined[ready:]], place + ready, held - ready


def _chunk_and_row(engine: ColumnEngine) -> tuple[int, int]:
    """Return the rows of a chunk, and about how many bytes one row has."""
    if isinstance(engine, RaggedEngine):
        stored = engine.stored_bytes() // max(1, engine.shape[0])
        return engine.packs.schema.pack_items, max(1, _EXPANSION * stored)
    schema = engine.chunks.schema
    return schema.chunks[0], max(1, schema.nbytes // max(1, schema.shape[0]))


def _concatenated(values: list[Any]) -> Any:
    if len(values) == 1:
        return values[0]
    if isinstance(values[0], RaggedArray):
        return RaggedArray.joined(values)
    return np.concatenate(values)


def added(
    state: TableState,
    name: str,
    schema: ColumnSchema,
    columns: Mapping[str, Any],
    position: int | None = None,
    companion: ArraySchema | None = None,
    notes: Notes | None = None,
) -> TableChange:
    """Return the change that adds a column, or a nested table, with the annotations of its columns.

    `companion` is the schema of the booleans that say which of its items exist.
    """
    table, node, commit = reopened_map(state).added(name, schema, position)
    leaves = dict(_leaves({name: node}, ""))
    if companion is not None:
        hidden = valid_name(name)
        table, node, also = table.added(hidden, companion)
        leaves[hidden] = _array_node(node)
        commit = _in_turn(commit, also)
    made = filled(leaves, columns, commit, state.options)
    known = {**_other_notes(state, name), **(notes or {})}
    return with_notes(state, (state.changed(table, state.notes), made), known)


def lacking_nulls(state: TableState, columns: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns whose first nulls are among these values."""
    found = (name for name, each in columns.items() if isinstance(each, NullableArray))
    return tuple(name for name in found if name not in state.companions)


def with_first_nulls(
    state: TableState,
    names: Iterable[str],
    design: Callable[[ArraySchema], ArraySchema],
    change: Callable[[TableState], TableChange],
) -> TableChange:
    """Return a change of a table in which some columns get their first nulls, as one commit.

    `design` returns the schema of the companion of a column. The state is for a handle that loads
    the table again: it reads from a buffer.
    """
    buffered = BufferedStore(state.table.store)
    unreached: set[str] = set()
    try:
        moved = state.changed(state.table.reopened(buffered), state.notes)
        for name in names:
            made = _with_companion(moved, name, design)
            unreached.update(edit.key for edit in made.prepare)
            buffered.apply(made)
            moved = state.changed(state.table.reopened(buffered), state.notes)
        after, commit = change(moved)
        buffered.apply(commit)
    except BaseException:
        buffered.discard()
        raise
    edits = buffered.commit().edits
    # No reader reaches a companion before the document that names it is published.
    prepare = tuple(edit for edit in edits if edit.key in unreached)
    publish = tuple(edit for edit in edits if edit.key not in unreached)
    return after, Commit(prepare, publish)


def _with_companion(
    state: TableState, name: str, design: Callable[[ArraySchema], ArraySchema]
) -> Commit:
    """Return the commit that makes the companion of a column, in which every item exists."""
    schema = state.schema(name)
    assert isinstance(schema, ArraySchema), "items of variable length have nulls by nature"
    owner, last = _owner_of(state.table, name)
    _, node, commit = owner.added(valid_name(last), design(schema))
    engine = _engine(_array_node(node), state.options)
    assert isinstance(engine, Engine)
    data = engine.assign(parse(..., engine.shape), np.True_)
    return Commit((*commit.prepare, *data.edits), commit.publish, commit.cleanup)


def _owner_of(table: TableMap, name: str) -> tuple[TableMap, str]:
    """Return the table, perhaps a nested one, that has a column, and its name there."""
    if name in table.columns:
        return table, name
    for own, node in table.columns.items():
        if isinstance(node, TableNode) and name.startswith(f"{own}."):
            return _owner_of(node.table, name.removeprefix(f"{own}."))
    raise ColumnError(f"there is no column {name!r}")


def filled(
    leaves: Mapping[str, Leaf], columns: Mapping[str, Any], commit: Commit, options: Options
) -> Commit:
    """Return the commit of new columns with their values, stored before they are published."""
    edits: list[Edit] = []
    stored = dict(_split_nulls(columns, lambda name: leaves[name].schema))
    for name, node in leaves.items():
        engine = _engine(node, options)
        try:
            if isinstance(engine, RaggedEngine):
                edits += ragged.filled(engine, _items(columns[name])).edits
            else:
                edits += engine.assign(parse(..., engine.shape), stored[name]).edits
        except BaseException:
            engine.discard(Commit(publish=tuple(edits)))
            raise
    return Commit((*commit.prepare, *edits), commit.publish, commit.cleanup)


def created(
    format: TableFormat,
    store: Store,
    schema: TableSchema,
    columns: Mapping[str, Any],
    attrs: Mapping[str, Any],
    options: Options,
    path: str = "",
    notes: Notes | None = None,
    **layout: Any,
) -> TableChange:
    """Return the change that creates a table with the values of its columns."""
    described = {**attrs, **annotations.pack(notes or {})}
    node, commit = format.create_table(store, schema, described, path, **layout)
    state = TableState(node.table, options)
    return state, filled(state._leaves, columns, commit, options)


def described(state: TableState, attrs: Mapping[str, Any]) -> TableChange:
    """Return the change of the attributes."""
    if annotations.KEY in attrs:
        raise FormatError(f"the attribute {annotations.KEY!r} is for the columns of the table")
    kept = {} if state._inner else annotations.pack(state.notes)
    table, commit = reopened_map(state).described({**attrs, **kept})
    return state.changed(table, state.notes), commit


def dropped(state: TableState, name: str) -> TableChange:
    """Return the change that removes a column."""
    table, commit = _without(state, name)
    change = state.changed(table, state.notes), commit
    return with_notes(state, change, _other_notes(state, name))


def _without(state: TableState, name: str) -> tuple[TableMap, Commit]:
    """Return the table without a column, and the commit that removes it."""
    _check_own(state, name)
    table, first = reopened_map(state), Commit()
    if name in state.companions:
        table, first = table.dropped(state.companions[name])
    table, commit = table.dropped(name)
    return table, _in_turn(first, commit)


def _other_notes(state: TableState, name: str) -> dict[str, Annotation]:
    """Return the annotations of other columns than one."""
    return {each: note for each, note in state.notes.items() if not _is_within(each, name)}


def _is_within(leaf: str, name: str) -> bool:
    """Return whether a column is that of a name, or one of a nested table of that name."""
    return leaf == name or leaf.startswith(f"{name}.")


def retyped(
    state: TableState,
    name: str,
    schema: ColumnSchema,
    columns: Mapping[str, Any],
    companion: ArraySchema | None = None,
    note: Annotation = PLAIN,
) -> TableChange:
    """Return the change that stores a column anew, with values of another type in its place.

    Old and new files have the same keys, so that all of them are exchanged by one publication.
    """
    position = state.names.index(name)
    without, gone = _without(state, name)
    places = [each for each in without.columns if each in without.names]
    columns_before = list(without.columns)
    at = columns_before.index(places[position]) if position < len(places) else len(columns_before)
    table, node, commit = without.added(name, schema, at)
    leaves = dict(_leaves({name: node}, ""))
    if companion is not None:
        hidden = valid_name(name)
        table, node, also = table.added(hidden, companion)
        leaves[hidden] = _array_node(node)
        commit = _in_turn(commit, also)
    made = filled(leaves, columns, commit, state.options)
    removed = {edit.key: edit for edit in gone.cleanup if isinstance(edit, Delete)}
    edits = [edit for edit in made.edits if not isinstance(edit, Delete)]
    commit = Commit(publish=(*removed.values(), *edits))
    change = state.changed(table, state.notes), commit
    return with_notes(state, change, {**state.notes, name: note})


def renamed(state: TableState, old: str, new: str) -> TableChange:
    """Return the change that renames a column."""
    _check_own(state, old)
    table, copies, commit = reopened_map(state).renamed(old, new)
    if old in state.companions and old != new:
        table, more, also = table.renamed(state.companions[old], valid_name(new))
        copies, commit = {**copies, **more}, _in_turn(commit, also)
    made = _with_copies(commit, state.table.store, copies)
    notes = {
        new + each.removeprefix(old) if _is_within(each, old) else each: note
        for each, note in state.notes.items()
    }
    return with_notes(state, (state.changed(table, state.notes), made), notes)


def reopened_map(state: TableState) -> TableMap:
    """Return the map of the table, opened again with the columns as the store has them."""
    return state.table.reopened(state.table.store)


def _with_copies(commit: Commit, store: Store, copies: Mapping[str, str]) -> Commit:
    """Return a commit that also prepares copies of keys: each key with its source."""
    edits: list[Edit] = []
    try:
        for key, source in copies.items():
            edits.append(copied(store, source, key))
    except BaseException:
        discard(store, edits)
        raise
    return replace(commit, prepare=(*commit.prepare, *edits))


def _documents(table: TableMap) -> Iterator[tuple[str, bytes | None]]:
    """Yield the documents of a table and of nested tables, without those of columns."""
    yield from table.documents.items()
    for column in table.columns.values():
        if isinstance(column, TableNode):
            yield from _documents(column.table)


def _check_own(state: TableState, name: str) -> None:
    if name not in state.names:
        known = ", ".join(state.names) or "none"
        raise ColumnError(f"there is no column {name!r}; the columns are {known}")


def _joined(
    state: TableState,
    steps: Iterable[tuple[str, Callable[[Any], ColumnChange]]],
    together: Callable[[], Mapping[str, ColumnChange]] = dict,
    *,
    shrinking: bool = False,
) -> TableChange:
    """Return the change of a table by steps that change a column each, and by one of others."""
    engines: dict[str, ColumnEngine] = {}
    commits: dict[str, Commit] = {}
    try:
        for name, step in steps:
            engines[name], commits[name] = step(state.column(name))
        for name, change in together().items():
            engines[name], commits[name] = change
    except BaseException:
        for name, commit in commits.items():
            state.column(name).discard(commit)
        raise
    return state.following(engines), state.table.joined(commits, shrinking=shrinking)


def _inner(table: TableMap, name: str) -> TableMap | None:
    """Return a nested table by its name, joined with dots; parts may have dots of their own."""
    for own, node in table.columns.items():
        if not isinstance(node, TableNode):
            continue
        if own == name:
            return node.table
        if name.startswith(f"{own}."):
            found = _inner(node.table, name.removeprefix(f"{own}."))
            if found is not None:
                return found
    return None


def _with_inner(table: TableMap, name: str, nested: TableMap) -> TableMap:
    """Return a table with another nested table of that name."""
    if nested is _inner(table, name):
        return table
    if name in table.columns:
        return table.exchanged(name, TableNode(nested))
    for own, node in table.columns.items():
        inner = name.removeprefix(f"{own}.")
        if inner != name and isinstance(node, TableNode) and _inner(node.table, inner) is not None:
            return table.exchanged(own, TableNode(_with_inner(node.table, inner, nested)))
    raise ColumnError(f"there is no nested table {name!r}")


def numbered(rows: object, count: int) -> range | NDArray[np.int64]:
    """Return the rows that a key of NumPy's kind stands for, in its order.

    >>> numbered(slice(None, None, -2), 4), numbered([True, False], 2)
    (range(3, -1, -2), array([0]))
    """
    selection = parse(rows, (count,))
    if len(selection.shape) > 1:
        raise SelectionError(f"rows are selected by one axis, not by {len(selection.shape)}")
    if isinstance(selection, BasicSelection):
        start, length, step = selection.starts[0], selection.counts[0], selection.steps[0]
        return range(start, start + length * step, step)
    axis = selection.axes[0]
    return axis if isinstance(axis, range) else np.asarray(axis)


def _engine(node: Leaf, options: Options) -> ColumnEngine:
    if isinstance(node, RaggedNode):
        return RaggedEngine(node.packs, options)
    return engine_of(node.chunks, options)


def _compactable(node: Leaf) -> Compactable | CompactableRagged | None:
    """Return the map of a column whose files may have bytes that hold nothing."""
    if isinstance(node, RaggedNode):
        return compactable_ragged(node.packs)
    return compactable(node.chunks)


def _stored_bytes(node: Leaf, options: Options) -> int:
    if isinstance(node, RaggedNode):
        return RaggedEngine(node.packs, options).stored_bytes()
    return stored_bytes(node.chunks)


def _stored_values(
    state: TableState, columns: Mapping[str, StoredValues]
) -> dict[str, NDArray[Any] | RaggedArray]:
    """Return the values of stored columns: those of companions are added.

    Where a column has nulls already, values without nulls exist.
    """
    found = dict(_split_nulls(columns, state.schema))
    if state.companions:
        for name, values in columns.items():
            companion = state.companions.get(name)
            if companion is not None and companion not in found:
                found[companion] = np.ones(len(values), np.bool_)
    return found


def _split_nulls(
    columns: Mapping[str, StoredValues], schema: Callable[[str], ArraySchema | RaggedSchema]
) -> Iterator[tuple[str, NDArray[Any] | RaggedArray]]:
    """Yield the values of stored columns; the place of a null holds the fill value."""
    for name, values in columns.items():
        if isinstance(values, NullableArray):
            described = schema(name)
            assert isinstance(described, ArraySchema)
            yield name, values.filled(described.fill).values
            yield valid_name(name), values.valid
        else:
            yield name, values


def _in_turn(first: Commit, second: Commit) -> Commit:
    """Return one commit of two, of which the second was made for the state after the first."""
    again = {edit.key for edit in second.publish}
    kept = tuple(edit for edit in first.publish if edit.key not in again)
    return Commit(
        (*first.prepare, *second.prepare),
        (*kept, *second.publish),
        (*first.cleanup, *second.cleanup),
    )


def _array_node(node: Column) -> ArrayNode:
    assert isinstance(node, ArrayNode), "booleans are an array"
    return node


def _companions(table: TableMap, prefix: str) -> Iterator[tuple[str, str]]:
    check_companions(table)
    for name, companion in companions(table).items():
        yield prefix + name, prefix + companion
    for name, node in table.columns.items():
        if isinstance(node, TableNode):
            yield from _companions(node.table, f"{prefix}{name}.")


def _items(values: Any) -> RaggedArray:
    assert isinstance(values, RaggedArray), "columns of variable-length items are given as such"
    return values


def _leaves(columns: Mapping[str, Column], prefix: str) -> Iterator[tuple[str, Leaf]]:
    for name, node in columns.items():
        if isinstance(node, TableNode):
            yield from _leaves(node.columns, f"{prefix}{name}.")
        else:
            yield prefix + name, node

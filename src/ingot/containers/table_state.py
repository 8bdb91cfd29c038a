"""One state of a table: an engine for every column, and the changes that lead to the next state.

Columns have one length and change together: every change is the next state and one commit for all
columns. Nothing is applied here. Names of columns in nested tables are joined by dots.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.containers.handle import Handle, HandleProtocol, PartHandle, TransactionalHandle
from ingot.engine import changes
from ingot.engine.run import Engine
from ingot.engine.stored_size import stored_bytes
from ingot.errors import ColumnError, FormatError, UnsupportedError
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    Column,
    Documents,
    Format,
    TableFormat,
    TableMap,
    TableNode,
    TableSchema,
)
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Commit, Edit, Store
from ingot.stores.versions import NO_VERSION, copied, discard

__all__ = [
    "TableChange",
    "TableState",
    "added",
    "appended",
    "assigned",
    "column_handle",
    "created",
    "deleted",
    "described",
    "dropped",
    "filled",
    "nested_handle",
    "renamed",
    "reopened_map",
    "resized",
    "table_handle",
    "with_column",
    "with_nested",
]


# About how many bytes one block of a column has when rows are moved.
_BLOCK_BYTES: Final = 16 << 20


class TableState:
    """A table in one state of its store."""

    __slots__ = ("_engines", "_found", "options", "table")

    def __init__(
        self, table: TableMap, options: Options, engines: Mapping[str, Engine] | None = None
    ) -> None:
        self.table = table
        self.options = options
        # Both are made when they are needed: often one of hundreds of columns is read.
        self._found: Mapping[str, ChunkMap] | None = None
        self._engines = dict(engines or {})

    @property
    def _leaves(self) -> Mapping[str, ChunkMap]:
        """The columns that hold values, those of nested tables as "a.b"."""
        if self._found is None:
            self._found = dict(_leaves(self.table.columns, ""))
        return self._found

    @property
    def rows(self) -> int:
        """The number of rows: the length of every column."""
        for name in self._leaves:
            return self.chunks(name).schema.shape[0]
        return 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns; a nested table is one of them."""
        return self.table.names

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of all columns that hold values, those of nested tables as "a.b"."""
        return tuple(self._leaves)

    def chunks(self, name: str) -> ChunkMap:
        """Return the chunk map of a column."""
        engine = self._engines.get(name)
        return self._leaves[name] if engine is None else engine.chunks

    def engine(self, name: str) -> Engine:
        """Return the engine of a column."""
        engine = self._engines.get(name)
        if engine is None:
            self.within(name)
            engine = self._engines[name] = Engine(self._leaves[name], self.options)
        return engine

    def within(self, name: str) -> tuple[str, ...]:
        """Return the columns that a name stands for: one, or all of a nested table.

        Raises `ColumnError` for a name that the table does not have.
        """
        if name in self._leaves:
            return (name,)
        found = tuple(leaf for leaf in self._leaves if leaf.startswith(f"{name}."))
        if not found:
            known = ", ".join(self._leaves) or "none"
            raise ColumnError(f"there is no column {name!r}; the columns are {known}")
        return found

    def documents(self) -> Documents:
        """Return the documents of the table, of nested tables, and of all columns."""
        found = dict(_documents(self.table))
        for name in self._leaves:
            found.update(self.chunks(name).documents)
        return found

    def stored(self) -> dict[str, int]:
        """Return the number of bytes of the stored chunks of each column."""
        return {name: stored_bytes(self.chunks(name)) for name in self._leaves}

    def nested(self, name: str) -> "TableState":
        """Return a nested table, which shares its columns with this one."""
        table = _inner(self.table, name)
        if table is None:
            raise ColumnError(f"there is no nested table {name!r}")
        prefix = f"{name}."
        own = {
            leaf.removeprefix(prefix): engine
            for leaf, engine in self._made()
            if leaf.startswith(prefix)
        }
        return TableState(table, self.options, own)

    def _made(self) -> list[tuple[str, Engine]]:
        # A copy: other threads may add engines meanwhile.
        return list(self._engines.items())

    def following(self, engines: Mapping[str, Engine]) -> "TableState":
        """Return the state in which some columns have other engines."""
        return TableState(self.table, self.options, {**self._engines, **engines})


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


def nested_handle(
    whole: HandleProtocol[TableState], name: str
) -> PartHandle[TableState, TableState]:
    """Return the handle of a nested table; its changes are changes of the whole table."""
    return PartHandle(
        whole,
        lambda state: state.nested(name),
        lambda state, inner, commit: with_nested(state, name, inner, commit),
    )


def appended(state: TableState, columns: Mapping[str, NDArray[Any]]) -> TableChange:
    """Return the change that adds rows at the end; all columns are given, of one length."""
    old = state.rows

    def grow(values: NDArray[Any], engine: Engine) -> changes.ArrayChange:
        shape = (old + len(values), *engine.shape[1:])
        return changes.grown(engine, shape, parse(slice(old, None), shape), values)

    return _joined(state, ((name, partial(grow, each)) for name, each in columns.items()))


def assigned(state: TableState, rows: object, columns: Mapping[str, Any]) -> TableChange:
    """Return the change that sets the values of some columns in some rows."""

    def assign(values: Any, engine: Engine) -> changes.ArrayChange:
        return changes.assigned(engine, parse(rows, engine.shape), values)

    return _joined(state, ((name, partial(assign, each)) for name, each in columns.items()))


def resized(state: TableState, rows: int) -> TableChange:
    """Return the change of the number of rows; new rows hold the fill values."""
    shrinking = rows < state.rows
    each = ((n, lambda e: changes.resized(e, (rows, *e.shape[1:]))) for n in state.leaves)
    return _joined(state, each, shrinking=shrinking)


def with_column(state: TableState, name: str, engine: Engine, commit: Commit) -> TableChange:
    """Return the change of a table that a change of one column is."""
    if engine.shape[:1] != (state.rows,):
        engine.discard(commit)
        raise ValueError(
            f"column {name!r} would have {engine.shape[0]} rows, its table {state.rows}; "
            "rows are added and removed by the table"
        )
    return state.following({name: engine}), state.table.joined({name: commit})


def with_nested(state: TableState, name: str, nested: TableState, commit: Commit) -> TableChange:
    """Return the change of a table that a change of a nested table is."""
    if not nested.leaves:
        raise ValueError(f"{name!r} would have no columns left; drop the nested table itself")
    if nested.rows != state.rows:
        raise ValueError(
            f"{name!r} would have {nested.rows} rows, its table {state.rows}; "
            "rows are added and removed by the table"
        )
    prefix = f"{name}."
    own = {prefix + leaf: engine for leaf, engine in nested._made()}
    others = {leaf: each for leaf, each in state._made() if not leaf.startswith(prefix)}
    table = _with_inner(state.table, name, nested.table)
    return TableState(table, state.options, {**others, **own}), commit


def deleted(state: TableState, rows: NDArray[np.int64]) -> TableChange:
    """Return the change that removes rows; their numbers ascend, without duplicates.

    The rows behind the first of them move up, so all of those are written again.
    """
    if not len(rows):
        return state, Commit()
    buffered = BufferedStore(state.table.store)
    first, left = int(rows[0]), state.rows - len(rows)
    kept = np.ones(state.rows - first, np.bool_)
    kept[rows - first] = False
    try:
        moved = TableState(state.table.reopened(buffered), state.options)
        for name in state.leaves if left > first else ():
            for place, values in _moved_up(moved.engine(name), first, kept):
                after, commit = assigned(moved, place, {name: values})
                buffered.apply(commit)
                moved = after
        buffered.apply(resized(moved, left)[1])
    except BaseException:
        buffered.discard()
        raise
    shorter = {
        name: Engine(chunks.resized((left, *chunks.schema.shape[1:]))[0], state.options)
        for name in state.leaves
        for chunks in (state.chunks(name),)
    }
    return state.following(shorter), buffered.commit()


def _moved_up(
    engine: Engine, first: int, kept: NDArray[np.bool_]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield where to write the kept rows from `first` on, and their values, in whole chunks.

    Rows are never written behind the rows that were read, so each block may be written before the
    next is read.
    """
    schema = engine.chunks.schema
    row = max(1, schema.nbytes // max(1, schema.shape[0]))
    chunk = schema.chunks[0]
    step = max(1, _BLOCK_BYTES // (row * chunk)) * chunk
    waiting: list[NDArray[Any]] = []
    place, held = first, 0
    for start in range(first // step * step, schema.shape[0], step):
        begin, stop = max(start, first), min(start + step, schema.shape[0])
        values = engine.read(parse(slice(begin, stop), engine.shape))
        values = values[kept[begin - first : stop - first]]
        waiting.append(values)
        held += len(values)
        last = stop == schema.shape[0]
        ready = held if last else max(0, (place + held) // chunk * chunk - place)
        if ready:
            joined = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            yield slice(place, place + ready), joined[:ready]
            waiting, place, held = [joined[ready:]], place + ready, held - ready


def added(
    state: TableState,
    name: str,
    schema: ArraySchema | TableSchema,
    columns: Mapping[str, Any],
    position: int | None = None,
) -> TableChange:
    """Return the change that adds a column, or a nested table."""
    table, node, commit = reopened_map(state).added(name, schema, position)
    maps = dict(_leaves({name: node}, ""))
    return TableState(table, state.options), filled(maps, columns, commit, state.options)


def filled(
    maps: Mapping[str, ChunkMap], columns: Mapping[str, Any], commit: Commit, options: Options
) -> Commit:
    """Return the commit of new columns with their values, stored before they are published."""
    edits: list[Edit] = []
    for name, chunks in maps.items():
        engine = Engine(chunks, options)
        try:
            edits += engine.assign(parse(..., engine.shape), columns[name]).edits
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
    **layout: Any,
) -> TableChange:
    """Return the change that creates a table with the values of its columns."""
    node, commit = format.create_table(store, schema, attrs, path, **layout)
    state = TableState(node.table, options)
    maps = {name: state.chunks(name) for name in state.leaves}
    return state, filled(maps, columns, commit, options)


def described(state: TableState, attrs: Mapping[str, Any]) -> TableChange:
    """Return the change of the attributes."""
    table, commit = reopened_map(state).described(attrs)
    return TableState(table, state.options), commit


def dropped(state: TableState, name: str) -> TableChange:
    """Return the change that removes a column."""
    _check_own(state, name)
    table, commit = reopened_map(state).dropped(name)
    return TableState(table, state.options), commit


def renamed(state: TableState, old: str, new: str) -> TableChange:
    """Return the change that renames a column."""
    _check_own(state, old)
    table, copies, commit = reopened_map(state).renamed(old, new)
    return TableState(table, state.options), _with_copies(commit, state.table.store, copies)


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
    steps: Iterable[tuple[str, Callable[[Engine], changes.ArrayChange]]],
    *,
    shrinking: bool = False,
) -> TableChange:
    engines: dict[str, Engine] = {}
    commits: dict[str, Commit] = {}
    try:
        for name, step in steps:
            engines[name], commits[name] = step(state.engine(name))
    except BaseException:
        for name, commit in commits.items():
            state.engine(name).discard(commit)
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


def _leaves(columns: Mapping[str, Column], prefix: str) -> Iterator[tuple[str, ChunkMap]]:
    for name, node in columns.items():
        if isinstance(node, TableNode):
            yield from _leaves(node.columns, f"{prefix}{name}.")
        elif isinstance(node, ArrayNode):
            yield prefix + name, node.chunks
        else:
            raise UnsupportedError(f"column {prefix + name!r}: items of any length")

"""One state of a table: an engine for every column, and the way to the next state.

Knows that columns have one length and change together: every change is the state that it leads to
and one commit for all columns. Refuses to apply anything, and to know which state is the committed
one. Columns inside of nested tables have their names joined by dots.
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
    "TableState",
    "Turn",
    "added",
    "adopted",
    "appended",
    "assigned",
    "column",
    "created",
    "deleted",
    "described",
    "dropped",
    "filled",
    "nested",
    "read_again",
    "renamed",
    "replaced",
    "resized",
    "table_handle",
]


# What one block of a column takes in memory, about, when rows are moved.
_BLOCK_BYTES: Final = 16 << 20


class TableState:
    """A table as it is stored at one time."""

    __slots__ = ("_engines", "_leaves", "options", "table")

    def __init__(
        self, table: TableMap, options: Options, engines: Mapping[str, Engine] | None = None
    ) -> None:
        self.table = table
        self.options = options
        self._leaves = dict(_leaves(table.columns, ""))
        # Made when they are needed: a table may have hundreds of columns, and one be asked for.
        self._engines = dict(engines or {})

    @property
    def rows(self) -> int:
        """The number of rows: the length of every column."""
        for name in self._leaves:
            return self.chunks(name).schema.shape[0]
        return 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns, nested ones by the name of their table."""
        return self.table.names

    @property
    def leaves(self) -> tuple[str, ...]:
        """The names of all columns that hold values, those of nested tables as "a.b"."""
        return tuple(self._leaves)

    def chunks(self, name: str) -> ChunkMap:
        """Return where the chunks of a column lie."""
        engine = self._engines.get(name)
        return self._leaves[name] if engine is None else engine.chunks

    def engine(self, name: str) -> Engine:
        """Return what carries out selections of a column."""
        engine = self._engines.get(name)
        if engine is None:
            self.within(name)
            engine = self._engines[name] = Engine(self._leaves[name], self.options)
        return engine

    def within(self, name: str) -> tuple[str, ...]:
        """Return the columns that a name stands for: one, or all of a nested table.

        Complains of a name that the table does not have.
        """
        if name in self._leaves:
            return (name,)
        found = tuple(leaf for leaf in self._leaves if leaf.startswith(f"{name}."))
        if not found:
            known = ", ".join(self._leaves) or "none"
            raise ColumnError(f"there is no column {name!r}; there is {known}")
        return found

    def stored(self) -> dict[str, int]:
        """Return how many bytes the chunks of each column take where they are stored."""
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
        # A copy: other threads may need their first engine meanwhile.
        return list(self._engines.items())

    def following(self, engines: Mapping[str, Engine]) -> "TableState":
        """Return the state in which some columns have become others."""
        return TableState(self.table, self.options, {**self._engines, **engines})


def table_handle(
    format: Format,
    store: Store,
    inner: str,
    options: Options,
    first: tuple[TableState | None, int | None] = (None, NO_VERSION),
) -> TransactionalHandle[TableState]:
    """Return the handle of the table that lies at `inner` of a store."""

    def load(view: Store) -> TableState:
        node = format.open(view, inner)
        if not isinstance(node, TableNode):
            raise FormatError(f"{store.location}: no longer a table")
        return TableState(node.table, options)

    return TransactionalHandle(
        Handle(store, load, durability=options.durability, first=first), load
    )


Turn = tuple[TableState, Commit]
"""A table after a change, and how it gets there."""


def column(whole: HandleProtocol[TableState], name: str) -> PartHandle[TableState, Engine]:
    """Return the handle of one column, whose changes are changes of its table."""
    return PartHandle(
        whole,
        lambda sheet: sheet.engine(name),
        lambda sheet, engine, commit: replaced(sheet, name, engine, commit),
    )


def nested(whole: HandleProtocol[TableState], name: str) -> PartHandle[TableState, TableState]:
    """Return the handle of a nested table, whose changes are changes of the whole."""
    return PartHandle(
        whole,
        lambda sheet: sheet.nested(name),
        lambda sheet, inner, commit: adopted(sheet, name, inner, commit),
    )


def appended(sheet: TableState, columns: Mapping[str, NDArray[Any]]) -> Turn:
    """Return what it leads to when rows are added at the end, all columns of one length."""
    old = sheet.rows

    def grow(values: NDArray[Any], engine: Engine) -> changes.Step:
        shape = (old + len(values), *engine.shape[1:])
        return changes.grown(engine, shape, parse(slice(old, None), shape), values)

    return _joined(sheet, ((name, partial(grow, each)) for name, each in columns.items()))


def assigned(sheet: TableState, rows: object, columns: Mapping[str, Any]) -> Turn:
    """Return what it leads to when some columns get other values in some rows."""

    def assign(values: Any, engine: Engine) -> changes.Step:
        return changes.assigned(engine, parse(rows, engine.shape), values)

    return _joined(sheet, ((name, partial(assign, each)) for name, each in columns.items()))


def resized(sheet: TableState, rows: int) -> Turn:
    """Return what another number of rows leads to; new ones hold the fill values."""
    shrinking = rows < sheet.rows
    each = ((n, lambda e: changes.resized(e, (rows, *e.shape[1:]))) for n in sheet.leaves)
    return _joined(sheet, each, shrinking=shrinking)


def replaced(sheet: TableState, name: str, engine: Engine, commit: Commit) -> Turn:
    """Return what it leads to when one column goes a step of its own."""
    if engine.shape[:1] != (sheet.rows,):
        engine.discard(commit)
        raise ValueError(
            f"column {name!r} would have {engine.shape[0]} rows, its table {sheet.rows}; "
            "rows are added and removed by the table"
        )
    return sheet.following({name: engine}), sheet.table.joined({name: commit})


def adopted(sheet: TableState, name: str, nested: TableState, commit: Commit) -> Turn:
    """Return what it leads to when a nested table has changed."""
    if not nested.leaves:
        raise ValueError(f"{name!r} would have no columns left; drop the nested table itself")
    if nested.rows != sheet.rows:
        raise ValueError(
            f"{name!r} would have {nested.rows} rows, its table {sheet.rows}; "
            "rows are added and removed by the table"
        )
    prefix = f"{name}."
    own = {prefix + leaf: engine for leaf, engine in nested._made()}
    others = {leaf: each for leaf, each in sheet._made() if not leaf.startswith(prefix)}
    table = _with_inner(sheet.table, name, nested.table)
    return TableState(table, sheet.options, {**others, **own}), commit


def deleted(sheet: TableState, rows: NDArray[np.int64]) -> Turn:
    """Return what it leads to when some rows are removed; they ascend, each named once.

    What follows the first of them moves up, so all of that is written anew.
    """
    if not len(rows):
        return sheet, Commit()
    pending = BufferedStore(sheet.table.store)
    first, left = int(rows[0]), sheet.rows - len(rows)
    kept = np.ones(sheet.rows - first, np.bool_)
    kept[rows - first] = False
    try:
        moved = TableState(sheet.table.reopened(pending), sheet.options)
        for name in sheet.leaves if left > first else ():
            for place, values in _moved_up(moved.engine(name), first, kept):
                after, commit = assigned(moved, place, {name: values})
                pending.apply(commit)
                moved = after
        pending.apply(resized(moved, left)[1])
    except BaseException:
        pending.discard()
        raise
    shorter = {
        name: Engine(chunks.resized((left, *chunks.schema.shape[1:]))[0], sheet.options)
        for name in sheet.leaves
        for chunks in (sheet.chunks(name),)
    }
    return sheet.following(shorter), pending.commit()


def _moved_up(
    engine: Engine, first: int, kept: NDArray[np.bool_]
) -> Iterator[tuple[slice, NDArray[Any]]]:
    """Yield what takes the place of the rows from `first` on, whole chunks at a time.

    A place is never behind what was read for it, so each may be written before the next is asked
    for.
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
    sheet: TableState,
    name: str,
    schema: ArraySchema | TableSchema,
    columns: Mapping[str, Any],
    position: int | None = None,
) -> Turn:
    """Return what it leads to when there is a column more, or a nested table of them."""
    table, node, commit = read_again(sheet).added(name, schema, position)
    maps = dict(_leaves({name: node}, ""))
    return TableState(table, sheet.options), filled(maps, columns, commit, sheet.options)


def filled(
    maps: Mapping[str, ChunkMap], columns: Mapping[str, Any], commit: Commit, options: Options
) -> Commit:
    """Return the commit of new columns together with what they hold, before anybody sees them."""
    edits: list[Edit] = []
    for name, chunks in maps.items():
        engine = Engine(chunks, options)
        try:
            edits += engine.written(parse(..., engine.shape), columns[name]).edits
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
) -> Turn:
    """Return a new table with what its columns hold."""
    node, commit = format.create_table(store, schema, attrs, path, **layout)
    sheet = TableState(node.table, options)
    maps = {name: sheet.chunks(name) for name in sheet.leaves}
    return sheet, filled(maps, columns, commit, options)


def described(sheet: TableState, attrs: Mapping[str, Any]) -> Turn:
    """Return the table with other attributes."""
    table, commit = read_again(sheet).described(attrs)
    return TableState(table, sheet.options), commit


def dropped(sheet: TableState, name: str) -> Turn:
    """Return what it leads to when a column is removed."""
    _check_own(sheet, name)
    table, commit = read_again(sheet).dropped(name)
    return TableState(table, sheet.options), commit


def renamed(sheet: TableState, old: str, new: str) -> Turn:
    """Return what it leads to when a column gets another name."""
    _check_own(sheet, old)
    table, copies, commit = read_again(sheet).renamed(old, new)
    return TableState(table, sheet.options), _with_copies(commit, sheet.table.store, copies)


def read_again(sheet: TableState) -> TableMap:
    """Return the map of the table with the columns as they are now, by the store itself."""
    return sheet.table.reopened(sheet.table.store)


def _with_copies(commit: Commit, store: Store, copies: Mapping[str, str]) -> Commit:
    """Return a commit that also prepares keys with the values of others, which keep theirs."""
    edits: list[Edit] = []
    try:
        for key, source in copies.items():
            edits.append(copied(store, source, key))
    except BaseException:
        discard(store, edits)
        raise
    return replace(commit, prepare=(*commit.prepare, *edits))


def _check_own(sheet: TableState, name: str) -> None:
    if name not in sheet.names:
        known = ", ".join(sheet.names) or "none"
        raise ColumnError(f"there is no column {name!r}; there is {known}")


def _joined(
    sheet: TableState,
    steps: Iterable[tuple[str, Callable[[Engine], changes.Step]]],
    *,
    shrinking: bool = False,
) -> Turn:
    engines: dict[str, Engine] = {}
    commits: dict[str, Commit] = {}
    try:
        for name, step in steps:
            engines[name], commits[name] = step(sheet.engine(name))
    except BaseException:
        for name, commit in commits.items():
            sheet.engine(name).discard(commit)
        raise
    return sheet.following(engines), sheet.table.joined(commits, shrinking=shrinking)


def _inner(table: TableMap, name: str) -> TableMap | None:
    """Return a nested table, by names joined with dots; a name may have dots of its own."""
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
    """Return a table in which a nested one has become another."""
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

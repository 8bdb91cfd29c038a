"""The tables of blsk: one set of documents, and a folder of super-chunk files for each column.

``meta/storage`` has the type of each column, and nested mappings for nested tables; all columns
have the one length of ``meta/nrows``. This module changes the documents when columns come and go,
and makes one commit of those of many columns. A column is an array of `array`, or variable-length
items of `ragged`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

from ingot.errors import ArgumentError, ArgumentTypeError, NotFoundError, UnsupportedError
from ingot.formats import yaml
from ingot.formats.bcolz.metadata import draw_identity
from ingot.formats.blsk.array import (
    BlskMap,
    DatasetDocuments,
    fresh,
    storage_name,
    stored_as,
)
from ingot.formats.blsk.metadata import (
    ATTRIBUTES,
    NROWS,
    STORAGE,
    ColumnStorage,
    Storages,
    pack_attributes,
    pack_columns,
    pack_nrows,
    parse_attributes,
    parse_columns,
)
from ingot.formats.blsk.ragged import BlskRaggedMap, column_of, items_stored_as
from ingot.formats.folder_table import check_folders, check_lengths, folder_name
from ingot.formats.format import (
    ArrayNode,
    Column,
    ColumnSchema,
    Documents,
    RaggedNode,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.validity import is_companion, visible
from ingot.formats.yaml import Document
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import Commit, Delete, Edit, Feature, Put, Store, is_staged

__all__ = ["BlskTableMap", "create_table", "table_of"]

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BlskTableMap:
    """The columns of a table, or of one that is nested `within` it."""

    store: Store
    state: DatasetDocuments
    columns: Mapping[str, Column]
    within: Path = ()

    @property
    def path(self) -> str:
        """The folder of the whole table."""
        return self.state.path

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, without those that say which items of a column exist."""
        return visible(self.columns)

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes of the whole table; a nested one has none of its own."""
        return {} if self.within else self.state.attrs

    @property
    def documents(self) -> Documents:
        """The documents of the whole table but the number of rows, which columns change."""
        found = {} if self.within else self.state.found
        return {self._key(name): data for name, data in found.items() if name != NROWS}

    def reopened(self, store: Store) -> "BlskTableMap":
        """Return the map of the same table in its current state in `store`."""
        state = DatasetDocuments.read(store, self.path)
        made = None if state.is_array else table_of(store, state)
        for name in self.within:
            inner = None if made is None else made.columns.get(name)
            table = inner.table if isinstance(inner, TableNode) else None
            made = table if isinstance(table, BlskTableMap) else None
        if made is None:
            raise NotFoundError(f"{store.location}: no table {'.'.join(self.within)!r}")
        return made

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BlskTableMap, Commit]":
        """Return the map with other attributes."""
        if self.within:
            raise UnsupportedError("blsk: a table has attributes, nested tables have none")
        key = self._key(ATTRIBUTES)
        data = pack_attributes(attrs, self.state.found.get(ATTRIBUTES), key)
        found = {**self.state.found, ATTRIBUTES: data}
        state = replace(self.state, found=found, attrs=parse_attributes(data, key))
        return replace(self, state=state), Commit(publish=(Put(key, data),))

    def added(
        self, name: str, schema: ColumnSchema, position: int | None = None
    ) -> "tuple[BlskTableMap, Column, Commit]":
        """Return the map with one more column, at the end or at `position`."""
        self._check_new(name)
        if not isinstance(schema, Mapping) and schema.attrs:
            raise UnsupportedError(f"blsk: a table has attributes, its column {name!r} has none")
        target = (*self.within, name)
        made = dict(_stored_columns(schema, target))
        for path, storage in made.items():
            if self.state.columns and storage.shape[0] != self.state.length:
                raise ArgumentError(
                    f"column {'.'.join(path)!r} has {storage.shape[0]} rows, "
                    f"the table has {self.state.length}"
                )
        names = list(self.columns)
        names.insert(len(names) if position is None else position, name)
        length = next(iter(made.values())).shape[0]
        storages = _ordered({**self.state.columns, **made}, self.within, names)
        # Files that another program left in the folder must not become part of the column.
        strays = tuple(map(Delete, self._stored_keys(target)))
        table, commit = self._with_columns(storages, length)
        column = table.columns[name]
        new = _mapped(column, fresh)
        return table, new, Commit((*strays, *commit.prepare), commit.publish)

    def dropped(self, name: str) -> "tuple[BlskTableMap, Commit]":
        """Return the map without a column; its files are removed."""
        gone = self._path_of(name)
        if self.within and len(self.columns) == 1:
            raise ArgumentError(f"{name!r} is the last column of a nested table, which needs one")
        left = {path: each for path, each in self.state.columns.items() if not _below(path, gone)}
        table, commit = self._with_columns(left, self.state.length)
        removed = tuple(map(Delete, self._stored_keys(gone)))
        return table, Commit(publish=commit.publish, cleanup=removed)

    def renamed(self, old: str, new: str) -> "tuple[BlskTableMap, Mapping[str, str], Commit]":
        """Return the map with a column under another name, and the old key of each new key."""
        source = self._path_of(old)
        if old == new:
            return self, {}, Commit()
        self._check_new(new)
        target = (*self.within, new)
        begin, end = self._folder(source), self._folder(target)
        copies = {end + key.removeprefix(begin): key for key in self._stored_keys(source)}
        strays = tuple(map(Delete, self._stored_keys(target)))
        storages = {
            (*target, *path[len(source) :]) if _below(path, source) else path: each
            for path, each in self.state.columns.items()
        }
        table, commit = self._with_columns(storages, self.state.length)
        cleanup = tuple(map(Delete, copies.values()))
        return table, copies, Commit(strays, commit.publish, cleanup)

    def removed(self) -> Commit:
        """Return the commit that removes the table with all of its columns."""
        if self.within:
            raise UnsupportedError(f"{'.'.join(self.within)!r} is a nested table: drop it instead")
        names = {NROWS: None, **self.state.found}
        files = (key for each in _maps(self.columns) for key in each.file_keys())
        return Commit(
            publish=tuple(Delete(self._key(name)) for name in names),
            cleanup=tuple(map(Delete, files)),
        )

    def exchanged(self, name: str, column: Column) -> "BlskTableMap":
        """Return the map with another state of a nested table, whose documents are the same."""
        if not (isinstance(column, TableNode) and isinstance(column.table, BlskTableMap)):
            return replace(self, columns={**self.columns, name: column})
        return _restated(replace(self, columns={**self.columns, name: column}), column.table.state)

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Return one commit for the commits of columns, which share the documents of the table."""
        rows: dict[str, Edit] = {}
        storages: dict[str, Put] = {}
        publish: list[Edit] = []
        storage_key = self._key(self.state.storage[0])
        for name, commit in commits.items():
            for edit in commit.publish:
                if edit.key == self._key(NROWS):
                    rows[edit.key] = edit
                elif edit.key == storage_key and isinstance(edit, Put):
                    storages[name] = edit
                else:
                    publish.append(edit)
        return Commit(
            prepare=tuple(edit for commit in commits.values() for edit in commit.prepare),
            publish=(*self._joined_storage(storages), *publish, *rows.values()),
            cleanup=tuple(edit for commit in commits.values() for edit in commit.cleanup),
        )

    def _joined_storage(self, edits: Mapping[str, Put]) -> tuple[Put, ...]:
        """Return the edit of the storage, given those that change how one column is stored."""
        if len(edits) < 2:
            return tuple(edits.values())
        key, old = self._storage
        columns = dict(self.state.columns)
        for name, edit in edits.items():
            path = self._leaf_path(name)
            columns[path] = parse_columns(Document.parse(bytes(edit.data), key))[path]
        return (Put(key, old.changed(pack_columns(columns, old.values)).text),)

    def _leaf_path(self, name: str) -> Path:
        """Return the path of a column by its name, in which dots lead into nested tables."""
        paths = (
            path[len(self.within) :] for path in self.state.columns if _below(path, self.within)
        )
        return next((*self.within, *path) for path in paths if ".".join(path) == name)

    @property
    def _storage(self) -> tuple[str, Document]:
        """The key of the storage, and its contents."""
        name, text = self.state.storage
        return self._key(name), Document.parse(text, self._key(name))

    def _key(self, name: str) -> str:
        return prefix(self.path) + name

    def _folder(self, path: Path) -> str:
        return self._key("".join(f"{part}/" for part in ("data", *map(folder_name, path))))

    def _path_of(self, name: str) -> Path:
        if name not in self.columns:
            raise NotFoundError(f"{self.store.location}: no column {name!r}")
        return (*self.within, name)

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str):
            raise ArgumentTypeError(f"a column's name is text, not {type(name).__name__}")
        _check_column(name, self.columns)
        if name in self.columns:
            raise ArgumentError(f"there is a column {name!r} already")

    def _stored_keys(self, path: Path) -> Iterator[str]:
        """Yield the keys below the folder of a column; without listing, those that it has."""
        if Feature.LIST in self.store.features:
            yield from _keys(self.store, self._folder(path))
            return
        for each in self.state.columns:
            if _below(each, path):
                yield from self.state.chunks(self.store, each).file_keys()

    def _with_columns(self, storages: Storages, length: int) -> "tuple[BlskTableMap, Commit]":
        """Return the map with other columns, and the commit of the documents that name them."""
        found = dict(self.state.found)
        key, old = self._storage
        text = old.changed(pack_columns(storages, old.values)).text
        found[storage_name(found)] = text
        publish: list[Edit] = [Put(key, text)]
        if length != self.state.length:
            found[NROWS] = pack_nrows(length)
            publish.append(Put(self._key(NROWS), pack_nrows(length)))
        state = DatasetDocuments.parse(self.store, self.path, found)
        made: Column = TableNode(table_of(self.store, state))
        for part in self.within:
            assert isinstance(made, TableNode)
            made = made.columns[part]
        assert isinstance(made, TableNode)
        assert isinstance(made.table, BlskTableMap)
        return made.table, Commit(publish=tuple(publish))


def table_of(store: Store, state: DatasetDocuments) -> BlskTableMap:
    """Return the table that documents describe."""
    return _table(store, state, ())


def create_table(
    store: Store,
    schema: TableSchema,
    attrs: Mapping[str, Any],
    path: str = "",
    *,
    superchunksize: int | None = None,
    spare: float | None = None,
) -> tuple[TableNode, Commit]:
    """Return a new table, and the commit that creates it."""
    start = prefix(path)
    storages = dict(_stored_columns(schema, (), superchunksize, spare))
    lengths = {storage.shape[0] for storage in storages.values()}
    document = yaml.pack(pack_columns(storages, {}), start + STORAGE)
    found: dict[str, bytes | None] = {
        STORAGE: document,
        NROWS: pack_nrows(max(lengths, default=0)),
        ATTRIBUTES: pack_attributes(attrs, None, start + ATTRIBUTES),
    }
    table = table_of(store, DatasetDocuments.parse(store, path, found))
    check_lengths(table.columns, path)
    columns = {
        name: _mapped(column, partial(fresh, spare=spare)) for name, column in table.columns.items()
    }
    edits = tuple(Put(start + name, data) for name, data in found.items() if data is not None)
    return TableNode(replace(table, columns=columns)), Commit(publish=edits)


def _table(store: Store, state: DatasetDocuments, within: Path) -> BlskTableMap:
    columns: dict[str, Column] = {}
    depth = len(within)
    for path in state.columns:
        if path[:depth] != within or path[depth] in columns:
            continue
        name = path[depth]
        if len(path) == depth + 1:
            columns[name] = column_of(state, store, path)
        else:
            columns[name] = TableNode(_table(store, state, (*within, name)))
    return BlskTableMap(store, state, columns, within)


def _restated(table: BlskTableMap, state: DatasetDocuments) -> BlskTableMap:
    """Return a table and those nested in it with other documents, which they share."""
    columns = {
        name: TableNode(_restated(column.table, state))
        if isinstance(column, TableNode) and isinstance(column.table, BlskTableMap)
        else column
        for name, column in table.columns.items()
    }
    return replace(table, columns=columns, state=state)


def _mapped(column: Column, change: Callable[[BlskMap], BlskMap]) -> Column:
    """Return a column with other maps of its arrays and of the slots of its packs."""
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BlskTableMap)
        columns = {name: _mapped(each, change) for name, each in table.columns.items()}
        return TableNode(replace(table, columns=columns))
    if isinstance(column, RaggedNode):
        packs = column.packs
        assert isinstance(packs, BlskRaggedMap)
        return RaggedNode(replace(packs, slots=change(packs.slots)))
    assert isinstance(column.chunks, BlskMap)
    return ArrayNode(change(column.chunks))


def _maps(columns: Mapping[str, Column]) -> Iterator[BlskMap]:
    for column in columns.values():
        if isinstance(column, TableNode):
            yield from _maps(column.columns)
        elif isinstance(column, RaggedNode):
            assert isinstance(column.packs, BlskRaggedMap)
            yield column.packs.slots
        else:
            assert isinstance(column.chunks, BlskMap)
            yield column.chunks


def _stored_columns(
    schema: ColumnSchema, path: Path, superchunksize: int | None = None, spare: float | None = None
) -> Iterator[tuple[Path, ColumnStorage]]:
    """Yield the paths of new columns, and how they are stored."""
    if isinstance(schema, ArraySchema):
        if not schema.shape:
            raise UnsupportedError(f"blsk: column {'.'.join(path)!r} has no axis")
        yield path, replace(stored_as(schema, superchunksize, spare), identity=draw_identity())
    elif isinstance(schema, RaggedSchema):
        stored = items_stored_as(schema, superchunksize, spare)
        yield path, replace(stored, identity=draw_identity())
    else:
        if path and not schema:
            raise ArgumentError(f"the nested table {'.'.join(path)!r} has no columns")
        for name, each in schema.items():
            _check_column(name, schema)
            yield from _stored_columns(each, (*path, name), superchunksize, spare)


def _check_column(name: str, columns: Collection[str]) -> None:
    check_folders((*columns, name), "table")
    if is_staged(name) or ("." in name and not is_companion(name, columns)):
        raise ArgumentError(f"{name!r} cannot be the name of a column")


def _below(path: Path, folder: Path) -> bool:
    return path[: len(folder)] == folder


def _ordered(storages: Storages, within: Path, names: list[str]) -> Storages:
    """Return columns with those of one table in the order of their names."""
    depth = len(within)

    def place(path: Path) -> int:
        return names.index(path[depth])

    inside = iter(sorted((path for path in storages if _below(path, within)), key=place))
    order = [next(inside) if _below(path, within) else path for path in storages]
    return {path: storages[path] for path in order}


def _keys(store: Store, folder: str) -> Iterator[str]:
    """Yield all keys below a folder."""
    for name in store.names(folder):
        if name.endswith("/"):
            yield from _keys(store, folder + name)
        else:
            yield folder + name

"""The tables of blsk: one set of documents, and a folder of super-chunk files for each column.

``meta/storage`` has the type of each column, and nested mappings for nested tables; all columns
have the one length of ``meta/nrows``. This module changes the documents when columns come and go,
and makes one commit of those of many columns. A column is an array of `array`.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from ingot.errors import NotFoundError, UnsupportedError
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
    IDENTITY,
    NROWS,
    STORAGE,
    ColumnStorage,
    pack_attributes,
    pack_nrows,
    parse_attributes,
)
from ingot.formats.folder_table import check_lengths, check_name
from ingot.formats.format import (
    ArrayNode,
    Column,
    ColumnSchema,
    Documents,
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
Storages: TypeAlias = Mapping[Path, ColumnStorage]

_SETTINGS: Final = (
    "shape",
    "chunkshape",
    "superchunksize",
    "endianness",
    "order",
    "compression",
    "fill",
)


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
        target = (*self.within, name)
        made = dict(_stored_columns(schema, target))
        for path, storage in made.items():
            if self.state.columns and storage.shape[0] != self.state.length:
                raise ValueError(
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
            raise ValueError(f"{name!r} is the last column of a nested table, which needs one")
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
        """Return one commit for the commits of columns, which share the number of rows."""
        rows: dict[str, Edit] = {}
        publish: list[Edit] = []
        for commit in commits.values():
            for edit in commit.publish:
                if edit.key == self._key(NROWS):
                    rows[edit.key] = edit
                else:
                    publish.append(edit)
        return Commit(
            prepare=tuple(edit for commit in commits.values() for edit in commit.prepare),
            publish=(*publish, *rows.values()),
            cleanup=tuple(edit for commit in commits.values() for edit in commit.cleanup),
        )

    def _key(self, name: str) -> str:
        return prefix(self.path) + name

    def _folder(self, path: Path) -> str:
        return self._key("".join(f"{part}/" for part in ("data", *path)))

    def _path_of(self, name: str) -> Path:
        if name not in self.columns:
            raise NotFoundError(f"{self.store.location}: no column {name!r}")
        return (*self.within, name)

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a column's name is text, not {type(name).__name__}")
        _check_column(name, self.columns)
        if name in self.columns:
            raise ValueError(f"there is a column {name!r} already")

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
        name = storage_name(found)
        old = Document.parse(found[name] or b"{}", self._key(name))
        text = old.changed(_document(storages, old.values)).text
        found[name] = text
        publish: list[Edit] = [Put(self._key(name), text)]
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
    spare: float = 0.1,
) -> tuple[TableNode, Commit]:
    """Return a new table, and the commit that creates it."""
    start = prefix(path)
    storages = dict(_stored_columns(schema, (), superchunksize, spare))
    lengths = {storage.shape[0] for storage in storages.values()}
    document = yaml.pack(_document(storages, {}), start + STORAGE)
    found: dict[str, bytes | None] = {
        STORAGE: document,
        NROWS: pack_nrows(max(lengths, default=0)),
        ATTRIBUTES: pack_attributes(attrs, None, start + ATTRIBUTES),
    }
    table = table_of(store, DatasetDocuments.parse(store, path, found))
    check_lengths(table.columns, path)
    columns = {name: _mapped(column, fresh, spare) for name, column in table.columns.items()}
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
            columns[name] = ArrayNode(state.chunks(store, path))
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


def _mapped(column: Column, change: Any, *given: Any) -> Column:
    """Return a column with other maps of its arrays."""
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BlskTableMap)
        columns = {name: _mapped(each, change, *given) for name, each in table.columns.items()}
        return TableNode(replace(table, columns=columns))
    assert isinstance(column, ArrayNode)
    return ArrayNode(change(column.chunks, *given))


def _maps(columns: Mapping[str, Column]) -> Iterator[BlskMap]:
    for column in columns.values():
        if isinstance(column, TableNode):
            yield from _maps(column.columns)
        elif isinstance(column, ArrayNode):
            assert isinstance(column.chunks, BlskMap)
            yield column.chunks


def _stored_columns(
    schema: ColumnSchema, path: Path, superchunksize: int | None = None, spare: float = 0.1
) -> Iterator[tuple[Path, ColumnStorage]]:
    """Yield the paths of new columns, and how they are stored."""
    if isinstance(schema, ArraySchema):
        if not schema.shape:
            raise UnsupportedError(f"blsk: column {'.'.join(path)!r} has no axis")
        yield path, replace(stored_as(schema, superchunksize, spare), identity=draw_identity())
    elif isinstance(schema, RaggedSchema):
        raise UnsupportedError(f"blsk: column {'.'.join(path)!r} has items of variable length")
    else:
        if path and not schema:
            raise ValueError(f"the nested table {'.'.join(path)!r} has no columns")
        for name, each in schema.items():
            _check_column(name, schema)
            yield from _stored_columns(each, (*path, name), superchunksize, spare)


def _check_column(name: str, columns: Container[str]) -> None:
    check_name(name, "table")
    if is_staged(name) or ("." in name and not is_companion(name, columns)):
        raise ValueError(f"{name!r} cannot be the name of a column")


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


def _document(storages: Storages, old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the contents of a ``storage`` with these columns; other fields of `old` stay.

    A setting that is one value for all columns stays one.
    """
    documents = {path: storage.document() for path, storage in storages.items()}
    values: dict[str, Any] = {**old, "dtype": _tree(documents, "dtype")}
    for name in _SETTINGS:
        single = name in old and not _by_column(name, old[name])
        differing = {repr(each[name]) for each in documents.values()}
        if not (single and len(differing) <= 1):
            values[name] = _tree(documents, name)
    # Columns that another program made may have none.
    identities = _tree(documents, IDENTITY)
    values.pop(IDENTITY, None)
    return {**values, IDENTITY: identities} if identities else values


def _by_column(name: str, value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return name != "compression" or all(isinstance(each, dict) for each in value.values())


def _tree(documents: Mapping[Path, Mapping[str, Any]], name: str) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, values in documents.items():
        if name not in values:
            continue
        at = tree
        for part in path[:-1]:
            at = at.setdefault(part, {})
        at[path[-1]] = values[name]
    return tree


def _keys(store: Store, folder: str) -> Iterator[str]:
    """Yield all keys below a folder."""
    for name in store.names(folder):
        if name.endswith("/"):
            yield from _keys(store, folder + name)
        else:
            yield folder + name

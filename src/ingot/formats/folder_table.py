"""Tables of folders: every column lies in a folder of its own below that of the table.

This module has what such tables share: the names of columns, nesting, one length for all columns,
columns that come and go, and the commit of many columns. A format brings its documents as a
`FolderLayout`: the document that names the columns, the document of the attributes, and arrays.
"""

import re
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, Self, cast, runtime_checkable

from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
    CorruptionError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import shown
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    Column,
    ColumnSchema,
    Documents,
    RaggedMap,
    RaggedNode,
    TableNode,
    TableSchema,
)
from ingot.formats.paths import prefix
from ingot.formats.validity import is_companion, visible
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.documents import documents_after
from ingot.stores.store import (
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Put,
    Store,
    check_key,
    is_staged,
)

__all__ = [
    "FolderArray",
    "FolderLayout",
    "FolderRagged",
    "FolderTableMap",
    "RaggedFolderLayout",
    "check_folders",
    "check_lengths",
    "check_name",
    "check_new_name",
    "column_length",
    "create_table",
    "folder_name",
]


_LONGEST_NAME: Final = 255
_MARK: Final = "%"
_PLAIN: Final = frozenset(string.ascii_letters.encode() + string.digits.encode() + b"-_")


class FolderArray(ChunkMap, Protocol):
    """The chunk map of an array in a folder, as a table needs it."""

    def keys(self) -> Iterator[str]:
        """Yield the keys of the array: of its documents, and of all of its chunks."""
        ...

    def moved(self, path: str) -> "FolderArray":
        """Return the map of the same array in another folder."""
        ...


class FolderRagged(RaggedMap, Protocol):
    """The map of variable-length items in a folder, as a table needs it."""

    def keys(self) -> Iterator[str]:
        """Yield the keys of the sequence: of its documents, and of all of its packs."""
        ...

    def moved(self, path: str) -> "FolderRagged":
        """Return the map of the same sequence in another folder."""
        ...


class FolderLayout(Protocol):
    """The documents of tables of one format."""

    @property
    def taken(self) -> frozenset[str]:
        """Names of other files in the folder of a table, which no column may have."""
        ...

    @property
    def documents(self) -> tuple[str, str]:
        """The names of the document that names the columns, and of that of the attributes."""
        ...

    def name_columns(self, columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the contents of the document that names columns; other fields of `old` stay."""
        ...

    def pack_names(self, values: Mapping[str, Any]) -> bytes:
        """Return the document that names the columns."""
        ...

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        """Return the document of the attributes."""
        ...

    def parse_attrs(self, data: bytes) -> Mapping[str, Any]:
        """Return the attributes in a document."""
        ...

    def create_array(
        self, store: Store, schema: ArraySchema, folder: str
    ) -> tuple[ArrayNode, Commit]:
        """Return a new array in a folder, and the commit that creates it."""
        ...

    def is_length(self, key: str) -> bool:
        """Return whether a key is the document with the length of a column."""
        ...

    def reopen(self, store: Store, path: str, *, part: bool) -> "FolderTableMap":
        """Return the table at a path as a store has it now."""
        ...


@runtime_checkable
class RaggedFolderLayout(FolderLayout, Protocol):
    """A layout whose columns may hold variable-length items."""

    def create_ragged(
        self, store: Store, schema: RaggedSchema, folder: str
    ) -> tuple[RaggedNode, Commit]:
        """Return new variable-length items in a folder, and the commit that creates them.

        The packs of a schema that has a length are stored by a splice of all of them.
        """
        ...


@dataclass(frozen=True, slots=True)
class FolderTableMap:
    """The columns of one table, in their order. A format subclasses it and names its layout."""

    layout: ClassVar[FolderLayout]

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    """The folders of columns whose folder is not called by their name."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The contents of the document that names the columns."""
    part: bool = False
    """Whether it was opened without the table that it is nested in, which owns its length."""
    documents: Documents = field(default_factory=dict, compare=False, repr=False)
    """The documents of the table itself."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, without those that say which items of a column exist."""
        return visible(self.columns)

    @property
    def rows(self) -> int:
        """The length of all columns."""
        return next((column_length(column) for column in self.columns.values()), 0)

    def reopened(self, store: Store) -> Self:
        """Return the map of the same table in its current state in `store`."""
        return cast(Self, self.layout.reopen(store, self.path, part=self.part))

    def described(self, attrs: Mapping[str, Any]) -> tuple[Self, Commit]:
        """Return the map with other attributes."""
        _, name = self.layout.documents
        put = Put(prefix(self.path) + name, self.layout.pack_attrs(attrs))
        commit = Commit(publish=(put,))
        documents = documents_after(self.documents, commit)
        return replace(self, attrs=attrs, documents=documents), commit

    def added(
        self, name: str, schema: ColumnSchema, position: int | None = None
    ) -> tuple[Self, Column, Commit]:
        """Return the map with one more column, at the end or at `position`."""
        check_new_name(name, self.columns, self.layout)
        folder = prefix(self.path) + folder_name(name)
        column, edits = _create_column(type(self), self.store, schema, folder)
        if self.columns and column_length(column) != self.rows:
            raise ArgumentError(
                f"column {name!r} has {column_length(column)} rows, the table has {self.rows}"
            )
        # Files that another program left in the folder must not become part of the column.
        strays = tuple(Delete(key) for key in _stray_keys(self.store, folder))
        items = list(self.columns.items())
        items.insert(len(items) if position is None else position, (name, column))
        table, names = self._with_columns(dict(items))
        return table, column, Commit(prepare=(*strays, *edits), publish=(names,))

    def dropped(self, name: str) -> tuple[Self, Commit]:
        """Return the map without a column; its folder is emptied."""
        self._check_exists(name)
        kept = {each: column for each, column in self.columns.items() if each != name}
        if self.part and not kept:
            raise ArgumentError(f"{name!r} is the last column of a nested table, which needs one")
        table, names = self._with_columns(kept)
        removed = tuple(Delete(key) for key in self._keys(name))
        return table, Commit(publish=(names,), cleanup=removed)

    def renamed(self, old: str, new: str) -> tuple[Self, Mapping[str, str], Commit]:
        """Return the map with a column under another name, and the old key of each new key.

        Until the document has the new name, the values exist under both keys.
        """
        self._check_exists(old)
        if old == new:
            return self, {}, Commit()
        check_new_name(new, self.columns, self.layout)
        source, target = self._folder(old), prefix(self.path) + folder_name(new)
        copies = {target + key.removeprefix(source): key for key in self._keys(old)}
        strays = tuple(Delete(key) for key in _stray_keys(self.store, target))
        columns = {
            (new if name == old else name): (
                _moved(column, source, target) if name == old else column
            )
            for name, column in self.columns.items()
        }
        table, names = self._with_columns(columns)
        cleanup = tuple(map(Delete, copies.values()))
        return table, copies, Commit(prepare=strays, publish=(names,), cleanup=cleanup)

    def removed(self) -> Commit:
        """Return the commit that removes the table with all of its columns."""
        if self.part:
            raise UnsupportedError(
                f"{self.store.location}: {self.path!r} is a nested table; open the whole to drop it"
            )
        commits = [_removed(column) for column in self.columns.values()]
        return Commit(
            # Columns are removed too: some formats find columns without the document.
            publish=(
                *(Delete(prefix(self.path) + name) for name in self.layout.documents),
                *(edit for commit in commits for edit in commit.publish),
            ),
            cleanup=tuple(edit for commit in commits for edit in commit.cleanup),
        )

    def exchanged(self, name: str, column: Column) -> Self:
        """Return the map with another state of a column."""
        return replace(self, columns={**self.columns, name: column})

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Return one commit for the commits of columns.

        The length of the first column switches last, or first when the table gets shorter.
        """
        order = [commits[name] for name in sorted(commits, key=self._position)]
        if not shrinking:
            order.reverse()
        prepare: list[Edit] = []
        ahead: list[Edit] = []
        behind: list[Edit] = []
        cleanup: list[Edit] = []
        is_length = self.layout.is_length
        for commit in order:
            prepare += commit.prepare
            for edit in commit.publish:
                (behind if is_length(edit.key) else ahead).append(edit)
            cleanup += commit.cleanup
        return Commit(tuple(prepare), (*ahead, *behind), tuple(cleanup))

    def _position(self, name: str) -> tuple[int, str]:
        first = name.partition(".")[0] if name not in self.columns else name
        return list(self.columns).index(first), name

    def _keys(self, name: str) -> Iterator[str]:
        """Yield all keys below the folder of a column; without listing, those that are its own."""
        if Feature.LIST in self.store.features:
            return _keys(self.store, self._folder(name))
        known = list(_own_keys(self.columns[name]))
        found = self.store.read([Extent(key, 0, 1) for key in known])
        return (key for key, data in zip(known, found, strict=True) if data is not None)

    def _folder(self, name: str) -> str:
        return self.folders.get(name, prefix(self.path) + folder_name(name))

    def _check_exists(self, name: str) -> None:
        if name not in self.columns:
            raise NotFoundError(f"{self.store.location}: no column {name!r} in {self.path!r}")

    def _with_columns(self, columns: Mapping[str, Column]) -> tuple[Self, Put]:
        """Return the map with other columns, and the edit of the document that names them."""
        values = self.layout.name_columns(columns, self.document)
        folders = {name: at for name, at in self.folders.items() if name in columns}
        name, _ = self.layout.documents
        put = Put(prefix(self.path) + name, self.layout.pack_names(values))
        documents = documents_after(self.documents, Commit(publish=(put,)))
        table = replace(
            self, columns=columns, folders=folders, document=values, documents=documents
        )
        return table, put


def create_table(
    kind: type[FolderTableMap],
    store: Store,
    schema: TableSchema,
    attrs: Mapping[str, Any],
    path: str = "",
) -> tuple[TableNode, Commit]:
    """Return a new table, and the commit that creates it by naming the columns last."""
    layout = kind.layout
    columns: dict[str, Column] = {}
    edits: list[Edit] = []
    for name, each in schema.items():
        check_new_name(name, columns, layout)
        folder = prefix(path) + folder_name(name)
        columns[name], made = _create_column(kind, store, each, folder)
        edits += made
    check_lengths(columns, path)
    names_key, attrs_key = (prefix(path) + name for name in layout.documents)
    described, values = layout.pack_attrs(attrs), layout.name_columns(columns, {})
    edits.append(Put(attrs_key, described))
    names = layout.pack_names(values)
    documents = {names_key: names, attrs_key: described}
    parsed = layout.parse_attrs(described)
    table = kind(store, columns, parsed, path, {}, values, documents=documents)
    return TableNode(table), Commit(prepare=tuple(edits), publish=(Put(names_key, names),))


def check_name(name: str, where: str) -> None:
    """Refuse a name that is not one folder below the table's own."""
    if "/" in name or "\\" in name or not name:
        raise UnsafeError(f"{where}: the column {shown(name)} leaves the table")
    try:
        check_key(name)
    except UnsafeError as error:
        raise UnsafeError(f"{where}: column: {error}") from None


@lru_cache(maxsize=1024)
def folder_name(name: str) -> str:
    """Return the name of the folder of a column: its own, where that is safe, or an encoded one.

    An encoded name begins with "%". Letters, digits, "-" and "_" stand for themselves, all other
    bytes of UTF-8 are "%" and two hexadecimal digits.

    >>> folder_name("price"), folder_name("km/h")
    ('price', '%km%2Fh')
    >>> folder_name("a" * 256)
    Traceback (most recent call last):
    ingot.errors.UnsafeError: column ...: the name is too long
    """
    try:
        check_name(name, "table")
    except UnsafeError:
        return _encoded(name)
    return name


def _encoded(name: str) -> str:
    if not name or "\0" in name or not {".", ".."}.isdisjoint(re.split(r"[/\\]", name)):
        raise UnsafeError(f"column {shown(name)} leaves the table, or has no name")
    try:
        data = name.encode()
    except UnicodeEncodeError:
        raise UnsafeError(f"column {shown(name)}: the name is no text") from None
    encoded = _MARK + "".join(chr(each) if each in _PLAIN else f"%{each:02X}" for each in data)
    if len(encoded) > _LONGEST_NAME:
        raise UnsafeError(f"column {shown(name)}: the name is too long")
    return encoded


def check_folders(names: Iterable[str], where: str) -> None:
    """Refuse names that no folder can have, and those of which two have the same folder."""
    # Only the folder of an encoded name can be that of another.
    folders: dict[str, str] = {}
    for name in names:
        try:
            folder = folder_name(name)
        except UnsafeError as error:
            raise UnsafeError(f"{where}: {error}") from None
        if folder.startswith(_MARK):
            other = folders.setdefault(folder, name)
            if other != name:
                both = f"{shown(other)} and {shown(name)}"
                raise UnsafeError(f"{where}: the columns {both} have one folder")


def check_new_name(name: str, columns: Mapping[str, Column], layout: FolderLayout) -> None:
    """Refuse a name that a new column of a table cannot have."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"a column's name is text, not {type(name).__name__}")
    if name in columns:
        raise ArgumentError(f"there is a column {name!r} already")
    if folder_name(name).startswith(_MARK):
        check_folders((*columns, name), "table")
    dotted = "." in name and not is_companion(name, columns)
    if name in layout.taken or is_staged(name) or dotted:
        raise ArgumentError(f"{name!r} cannot be the name of a column")


def check_lengths(columns: Mapping[str, Column], path: str) -> None:
    """Refuse columns of different length."""
    lengths = {name: column_length(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in list(lengths.items())[:10])
        error = CorruptionError(f"table {path!r}: columns of different length: {listed}")
        error.add_note(
            "a program may have appended rows to the columns that it knows: with longest=True, "
            "ingot.repair gives the others fill values and nulls in these rows; without it, it "
            "removes them"
        )
        raise error


def column_length(column: Column) -> int:
    """Return the number of rows of a column, also of one that is a table."""
    if isinstance(column, TableNode):
        return next((column_length(each) for each in column.columns.values()), 0)
    return column.schema.shape[0]


def _create_column(
    kind: type[FolderTableMap], store: Store, schema: ColumnSchema, folder: str
) -> tuple[Column, tuple[Edit, ...]]:
    if isinstance(schema, ArraySchema):
        node, commit = kind.layout.create_array(store, schema, folder)
        return node, commit.edits
    if isinstance(schema, RaggedSchema):
        layout = kind.layout
        if not isinstance(layout, RaggedFolderLayout):
            raise UnsupportedError(f"{folder}: the format has no columns of {schema.kind}")
        ragged, commit = layout.create_ragged(store, schema, folder)
        return ragged, commit.edits
    table, commit = create_table(kind, store, schema, {}, folder)
    return table, commit.edits


def _stray_keys(store: Store, folder: str) -> Iterator[str]:
    """Yield the keys below the folder of a new column, which must not become part of it.

    Where the store cannot be listed there are none: a new column writes its documents and all of
    its chunks, and what else lies there is not read.
    """
    return _keys(store, folder) if Feature.LIST in store.features else iter(())


def _own_keys(column: Column) -> Iterator[str]:
    """Yield the keys of a column, also of one that is a table."""
    if isinstance(column, TableNode):
        yield from column.table.documents
        for each in column.columns.values():
            yield from _own_keys(each)
    elif isinstance(column, RaggedNode):
        yield from cast(FolderRagged, column.packs).keys()
    else:
        yield from cast(FolderArray, column.chunks).keys()


def _keys(store: Store, folder: str) -> Iterator[str]:
    """Yield all keys below a folder."""
    for name in store.names(folder):
        key = f"{folder}/{name}"
        if name.endswith("/"):
            yield from _keys(store, key[:-1])
        else:
            yield key


def _moved(column: Column, source: str, target: str) -> Column:
    """Return a column whose files have moved from one folder to another."""
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, FolderTableMap)
        columns = {name: _moved(each, source, target) for name, each in table.columns.items()}
        folders = {name: target + at.removeprefix(source) for name, at in table.folders.items()}
        path = target + table.path.removeprefix(source)
        documents = {
            target + key.removeprefix(source): data for key, data in table.documents.items()
        }
        return TableNode(
            replace(table, path=path, columns=columns, folders=folders, documents=documents)
        )
    if isinstance(column, RaggedNode):
        packs = cast(FolderRagged, column.packs)
        return RaggedNode(packs.moved(target + packs.path.removeprefix(source)))
    chunks = cast(FolderArray, column.chunks)
    return ArrayNode(chunks.moved(target + chunks.path.removeprefix(source)))


def _removed(column: Column) -> Commit:
    if isinstance(column, TableNode):
        return column.table.removed()
    return column.packs.removed() if isinstance(column, RaggedNode) else column.chunks.removed()

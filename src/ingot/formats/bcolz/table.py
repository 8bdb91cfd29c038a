"""The tables of bcolz 1.x: a folder with the names of the columns, and a folder for each column.

This module parses and packs ``__rootdirs__``, and finds the folders of columns in all layouts that
bcolz has used. A column may be a table itself. Arrays are handled by `array`.

bcolz cannot open a table with a column that it cannot open. Such columns are left out of ``names``;
``x_names``, which bcolz ignores, has them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
    UnsafeError,
    UnsupportedError,
)
from ingot.fields import FieldReader, shown
from ingot.formats import json
from ingot.formats.bcolz.array import (
    ATTRS,
    ArrayDocuments,
    BcolzColumnMap,
    BcolzMap,
    StoredAttributes,
    create_array,
    document_extents,
    open_column,
    pack_attrs,
    parse_attrs,
    read_documents,
)
from ingot.formats.bcolz.metadata import SIZES, STORAGE, BcolzMetadata
from ingot.formats.format import ArrayNode, Column, Documents, TableNode, TableSchema
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.documents import documents_after
from ingot.stores.store import (
    Batch,
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
    "DATA",
    "ROOTDIRS",
    "BcolzTableMap",
    "TableDocuments",
    "create_table",
    "has_column",
    "is_data_layout",
    "open_table",
    "open_tables",
]

DATA: Final = "data"
ROOTDIRS: Final = "__rootdirs__"

_MOST_COLUMNS: Final = 2**16
_DEEPEST: Final = 16
_WIDEST: Final = 255
# Names of other files in the folder of a table.
_TAKEN: Final = frozenset({ROOTDIRS, ATTRS, ".commit", ".lock"})


@dataclass(frozen=True, slots=True)
class BcolzTableMap:
    """The columns of one table, in their order."""

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    """The folders of columns whose folder is not called by their name."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """The contents of ``__rootdirs__``."""
    part: bool = False
    """Whether it was opened without the table that it is nested in, which owns its length."""
    documents: Documents = field(default_factory=dict, compare=False, repr=False)
    """The documents of the table itself: ``__rootdirs__`` and ``__attrs__``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.columns)

    @property
    def rows(self) -> int:
        """The length of all columns."""
        return next((_length(column) for column in self.columns.values()), 0)

    def reopened(self, store: Store) -> "BcolzTableMap":
        """Return the map of the same table in its current state in `store`."""
        return open_table(store, self.path, part=self.part)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BcolzTableMap, Commit]":
        """Return the map with other attributes."""
        commit = Commit(publish=(Put(prefix(self.path) + ATTRS, pack_attrs(attrs)),))
        documents = documents_after(self.documents, commit)
        return replace(self, attrs=attrs, documents=documents), commit

    def added(
        self, name: str, schema: ArraySchema | TableSchema, position: int | None = None
    ) -> "tuple[BcolzTableMap, Column, Commit]":
        """Return the map with one more column, at the end or at `position`."""
        _check_new(name, self.columns)
        folder = prefix(self.path) + name
        column, edits = _create_column(self.store, schema, folder)
        if self.columns and _length(column) != self.rows:
            raise ValueError(
                f"column {name!r} has {_length(column)} rows, the table has {self.rows}"
            )
        # Files that another program left in the folder must not become part of the column.
        strays = tuple(Delete(key) for key in _stray_keys(self.store, folder))
        items = list(self.columns.items())
        items.insert(len(items) if position is None else position, (name, column))
        table, names = self._with_columns(dict(items))
        return table, column, Commit(prepare=(*strays, *edits), publish=(names,))

    def dropped(self, name: str) -> "tuple[BcolzTableMap, Commit]":
        """Return the map without a column; its folder is emptied."""
        self._check_exists(name)
        kept = {each: column for each, column in self.columns.items() if each != name}
        if self.part and not kept:
            raise ValueError(f"{name!r} is the last column of a nested table, which needs one")
        table, names = self._with_columns(kept)
        removed = tuple(Delete(key) for key in self._keys(name))
        return table, Commit(publish=(names,), cleanup=removed)

    def renamed(self, old: str, new: str) -> "tuple[BcolzTableMap, Mapping[str, str], Commit]":
        """Return the map with a column under another name, and the old key of each new key.

        Until the document has the new name, the values exist under both keys.
        """
        self._check_exists(old)
        if old == new:
            return self, {}, Commit()
        _check_new(new, self.columns)
        source, target = self._folder(old), prefix(self.path) + new
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
        start = prefix(self.path)
        commits = [_removed(column) for column in self.columns.values()]
        return Commit(
            # Columns are removed too: without the document, columns in ``data`` make a table.
            publish=(
                Delete(start + ROOTDIRS),
                Delete(start + ATTRS),
                *(edit for commit in commits for edit in commit.publish),
            ),
            cleanup=tuple(edit for commit in commits for edit in commit.cleanup),
        )

    def exchanged(self, name: str, column: Column) -> "BcolzTableMap":
        """Return the map with another state of a column."""
        return replace(self, columns={**self.columns, name: column})

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Return one commit for the commits of columns.

        The length of the first column switches last, or first when the table gets shorter.
        """
        order = [commits[name] for name in sorted(commits, key=self._position)]
        if not shrinking:
            order.reverse()
        lengths = {_sizes_key(commit) for commit in order} - {None}
        publish = [edit for commit in order for edit in commit.publish]
        ahead = [edit for edit in publish if edit.key not in lengths]
        behind = [edit for edit in publish if edit.key in lengths]
        return Commit(
            prepare=tuple(edit for commit in order for edit in commit.prepare),
            publish=(*ahead, *behind),
            cleanup=tuple(edit for commit in order for edit in commit.cleanup),
        )

    def _position(self, name: str) -> tuple[int, str]:
        first = name.partition(".")[0] if name not in self.columns else name
        return self.names.index(first), name

    def _keys(self, name: str) -> Iterator[str]:
        """Yield all keys below the folder of a column; without listing, those that are its own."""
        if Feature.LIST in self.store.features:
            return _keys(self.store, self._folder(name))
        known = list(_own_keys(self.columns[name]))
        found = self.store.read([Extent(key, 0, 1) for key in known])
        return (key for key, data in zip(known, found, strict=True) if data is not None)

    def _folder(self, name: str) -> str:
        return self.folders.get(name, prefix(self.path) + name)

    def _check_exists(self, name: str) -> None:
        if name not in self.columns:
            raise NotFoundError(f"{self.store.location}: no column {name!r} in {self.path!r}")

    def _with_columns(self, columns: Mapping[str, Column]) -> "tuple[BcolzTableMap, Put]":
        """Return the map with other columns, and the edit of the document that names them."""
        values = _name_columns(columns, self.document)
        folders = {name: at for name, at in self.folders.items() if name in columns}
        put = Put(prefix(self.path) + ROOTDIRS, json.pack_line(values, ROOTDIRS))
        documents = documents_after(self.documents, Commit(publish=(put,)))
        table = replace(
            self, columns=columns, folders=folders, document=values, documents=documents
        )
        return table, put


def open_table(
    store: Store,
    path: str = "",
    *,
    part: bool = False,
    found: tuple[bytes | None, bytes | None] | None = None,
) -> BcolzTableMap:
    """Return the table at `path`; in a `part`, columns cannot change their length.

    `found` are the documents of the table, ``__rootdirs__`` and ``__attrs__``, if they were read
    already.
    """
    if found is None:
        keys = prefix(path) + ROOTDIRS, prefix(path) + ATTRS
        rootdirs, attrs = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
    else:
        rootdirs, attrs = found
    try:
        draft = _TableDraft.begun(store, TableDocuments(path, rootdirs, attrs))
        reads = _column_reads(path, draft.names, draft.maybe_nested)
        draft.take(reads, store.read(reads.batch))
        [table] = (draft.finished(),) if draft.arrays is not None else _finished([draft], 0)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    if not part:
        return table
    columns = {name: _as_part(column) for name, column in table.columns.items()}
    return replace(table, columns=columns, part=True)


class TableDocuments(NamedTuple):
    """The folder of a table and its documents, each None when absent."""

    path: str
    rootdirs: bytes | None
    attrs: bytes | None


def open_tables(
    store: Store, tables: Sequence[TableDocuments], depth: int = 0
) -> list[BcolzTableMap]:
    """Return tables whose documents were read; the columns of all are read together.

    So are those of the tables that are nested in them, level by level.
    """
    if depth > _DEEPEST:
        path = tables[0].path
        raise LimitError(f"{store.location}: {path!r}: tables are nested more than {_DEEPEST} deep")
    drafts = [_TableDraft.begun(store, each) for each in tables]
    reads = [_column_reads(draft.path, draft.names, draft.maybe_nested) for draft in drafts]
    one = len(reads) == 1
    found = store.read(reads[0].batch if one else [part for each in reads for part in each.batch])
    at = 0
    for draft, each in zip(drafts, reads, strict=True):
        draft.take(each, found[at : at + len(each.batch)])
        at += len(each.batch)
    return _finished(drafts, depth)


def _finished(drafts: "Sequence[_TableDraft]", depth: int) -> list[BcolzTableMap]:
    """Return tables once the documents in the usual folders of all columns are taken over."""
    if any(draft.missing for draft in drafts):
        _find_missing(drafts)
    nested = [(draft, name) for draft in drafts for name in draft.nested]
    if nested:
        inner = open_tables(
            drafts[0].store, [draft.nested[name] for draft, name in nested], depth + 1
        )
        for (draft, name), table in zip(nested, inner, strict=True):
            draft.columns[name] = TableNode(table)
    return [draft.finished() for draft in drafts]


class _TableDraft:
    """A table that is being opened: its names are known, its columns are found step by step."""

    __slots__ = (
        "arrays",
        "attrs",
        "columns",
        "documents",
        "folders",
        "missing",
        "names",
        "nested",
        "path",
        "store",
        "values",
    )

    def __init__(
        self,
        store: Store,
        documents: TableDocuments,
        values: Mapping[str, Any],
        names: Sequence[str],
    ) -> None:
        self.store = store
        self.path = documents.path
        self.attrs = documents.attrs
        start = prefix(self.path)
        self.documents = {start + ROOTDIRS: documents.rootdirs, start + ATTRS: documents.attrs}
        self.values = values
        self.names = tuple(names)
        self.columns: dict[str, Column] = {}
        self.arrays: ArrayColumns | None = None
        self.folders: dict[str, str] = {}
        self.nested: dict[str, TableDocuments] = {}
        self.missing: list[str] = []

    @classmethod
    def begun(cls, store: Store, documents: TableDocuments) -> "_TableDraft":
        """Return the draft of a table, with the names of its columns."""
        path, rootdirs = documents.path, documents.rootdirs
        key = prefix(path) + ROOTDIRS
        if rootdirs is not None:
            values, names = _parse_rootdirs(rootdirs, key)
        elif is_data_layout(store, path):
            values, names = {}, _folders(store, _data(store, path))
        else:
            raise NotFoundError(f"{store.location}: no {key}")
        for name in names if "dirs" in values else ():
            # Refuses every path in `dirs` that leads out of the table, whether it is used or not.
            list(_candidate_folders(path, name, values))
        return cls(store, documents, values, names)

    @property
    def maybe_nested(self) -> tuple[str, ...]:
        """The columns that bcolz cannot open: among them are all nested tables that we wrote."""
        if "x_names" not in self.values:
            return ()
        plain = frozenset(self.values["names"])
        return tuple(name for name in self.names if name not in plain)

    def take(self, reads: "_ColumnReads", found: Sequence[bytes | None]) -> None:
        """Take over the documents in the folders that columns have in the current layout."""
        places = reads.places
        end = 2 * len(places)
        documents = tuple(found if len(found) == end else found[:end])
        parsed = _parse_arrays(places, documents)
        if parsed is not None:
            self.arrays = ArrayColumns(self.store, reads, documents, parsed)
            return
        inner = zip(found[end::2], found[end + 1 :: 2], strict=True)
        tables = dict(zip(self.maybe_nested, inner, strict=True))
        for number, (name, place) in enumerate(zip(self.names, places, strict=True)):
            array = ArrayDocuments(*found[2 * number : 2 * number + 2])
            rootdirs, attrs = tables.get(name, (None, None))
            if not self.settle(name, place, array._replace(attrs=attrs), rootdirs):
                self.missing.append(name)

    def settle(
        self, name: str, place: str, documents: ArrayDocuments, rootdirs: bytes | None
    ) -> bool:
        """Take a column from the documents in a folder; return whether they are those of one."""
        if documents.is_array:
            self.columns[name] = ArrayNode(open_column(self.store, place, documents))
        elif rootdirs is not None:
            self.nested[name] = TableDocuments(place, rootdirs, documents.attrs)
        else:
            return False
        return True

    def finished(self) -> BcolzTableMap:
        """Return the table; all columns have one length."""
        columns: Mapping[str, Column]
        if self.arrays is not None:
            columns = self.arrays
        else:
            columns = {name: self.columns[name] for name in self.names}
            _check_lengths(columns, self.path)
        where = f"{self.store.location}: {prefix(self.path)}{ATTRS}"
        described = parse_attrs(self.attrs, where)
        return BcolzTableMap(
            self.store,
            columns,
            described,
            self.path,
            self.folders,
            self.values,
            documents=self.documents,
        )


def _find_missing(drafts: Sequence[_TableDraft]) -> None:
    """Find columns that are no arrays in the current layout, by one read for all folders."""
    searched = [
        (draft, name, list(_candidate_folders(draft.path, name, draft.values)))
        for draft in drafts
        for name in draft.missing
    ]
    store = drafts[0].store
    places = [place for _, _, folders in searched for place in folders]
    marks = [Extent(prefix(place) + ROOTDIRS, 0, json.LARGEST + 1) for place in places]
    found = store.read(document_extents(places) + marks)
    arrays = [ArrayDocuments(*found[at : at + 3]) for at in range(0, 3 * len(places), 3)]
    documents = iter(zip(places, arrays, found[3 * len(places) :], strict=True))
    for draft, name, folders in searched:
        # All of them, so that the next column begins with its own.
        candidates = [next(documents) for _ in folders]
        for place, array, rootdirs in candidates:
            if draft.settle(name, place, array, rootdirs):
                break
        else:
            # A table without a document takes listings to find.
            inner = next((each for each in candidates if is_data_layout(store, each[0])), None)
            if inner is None:
                raise CorruptionError(f"column {name!r}: nothing is stored in {folders[0]!r}")
            place = inner[0]
            draft.nested[name] = TableDocuments(place, None, inner[1].attrs)
        if place != folders[0]:
            draft.folders[name] = place


def create_table(
    store: Store, schema: TableSchema, attrs: Mapping[str, Any], path: str = ""
) -> tuple[TableNode, Commit]:
    """Return a new table, and the commit that creates it by naming the columns last."""
    columns: dict[str, Column] = {}
    edits: list[Edit] = []
    for name, each in schema.items():
        _check_new(name, columns)
        columns[name], made = _create_column(store, each, prefix(path) + name)
        edits += made
    _check_lengths(columns, path)
    start, described = prefix(path), pack_attrs(attrs)
    values = _name_columns(columns, {})
    edits.append(Put(start + ATTRS, described))
    rootdirs = json.pack_line(values, ROOTDIRS)
    documents = {start + ROOTDIRS: rootdirs, start + ATTRS: described}
    table = BcolzTableMap(
        store, columns, parse_attrs(described), path, {}, values, documents=documents
    )
    publish = (Put(start + ROOTDIRS, rootdirs),)
    return TableNode(table), Commit(prepare=tuple(edits), publish=publish)


def is_data_layout(store: Store, path: str = "", depth: int = 0) -> bool:
    """Return whether `path` is a table in the layout of bcolz's format document.

    In that layout the folder has no ``__rootdirs__``, and columns lie in ``data``.

    >>> from ingot.stores import MemoryStore
    >>> is_data_layout(MemoryStore({"data/price/meta/sizes": b""}))
    True
    """
    names = _folders(store, _data(store, path))
    if not names or depth > _DEEPEST:
        return False
    folder = prefix(_data(store, path)) + names[0]
    (found,) = read_documents(store, [folder])
    return found.is_array or is_data_layout(store, folder, depth + 1)


def has_column(store: Store, path: str, table: str = "") -> bool:
    """Return whether `path` is the folder of a column of a table, also in nested tables.

    >>> from ingot.stores import MemoryStore
    >>> has_column(MemoryStore({"__rootdirs__": b'{"names": ["price"]}'}), "data/price")
    True
    """
    for place in _column_folders(store, table):
        if path == place or (path.startswith(f"{place}/") and has_column(store, path, place)):
            return True
    return False


def _column_folders(store: Store, table: str) -> Iterator[str]:
    """Yield the folders in which the columns of a table may lie; none if it is not a table."""
    key = prefix(table) + ROOTDIRS
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is not None:
        try:
            values = json.parse_object(data, key)
            for name in _parse_names(values, key):
                yield from _candidate_folders(table, name, values)
        except IngotError:
            return  # Opening the table itself raises the error.
    elif is_data_layout(store, table):
        folder = _data(store, table)
        yield from (f"{folder}/{name}" for name in _folders(store, folder))


def _data(store: Store, path: str) -> str:
    """Return the folder of the columns in the layout without ``__rootdirs__``.

    That is ``data``; in a nested table, which holds only folders, it is the folder of the table.
    """
    inner = prefix(path) + DATA
    return inner if not path or _folders(store, inner) else path


def _folders(store: Store, path: str) -> tuple[str, ...]:
    if Feature.LIST not in store.features:
        return ()
    names = (name for name in store.names(path) if name.endswith("/"))
    return tuple(name[:-1] for name in names if not name.startswith("."))


@lru_cache(maxsize=256)
def _parse_rootdirs(data: bytes, where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the contents of a ``__rootdirs__``, and the names of all columns in it."""
    values = json.parse_object(data, where)
    return values, _parse_names(values, where)


def _parse_names(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    fields = FieldReader(where, values)
    names = _parse_list(fields, "names")
    everything = _parse_list(fields, "x_names") if "x_names" in values else names
    # A program that does not know `x_names` adds a column to `names` only.
    return tuple(dict.fromkeys((*everything, *names)))


def _parse_list(fields: FieldReader, key: str) -> tuple[str, ...]:
    found = fields.value(key)
    if not isinstance(found, list):
        raise fields.wrong(key, found, "a list of names")
    if len(found) > _MOST_COLUMNS:
        raise LimitError(
            f"{fields.where}: {key} has {len(found)} entries, the most is {_MOST_COLUMNS}"
        )
    for name in found:
        if not isinstance(name, str):
            raise FormatError(f"{fields.where}: {key} holds {shown(name)}, which is no name")
        _check_name(name, fields.where)
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise FormatError(f"{fields.where}: {key} holds {shown(twice)} twice")
    return tuple(found)


def _check_name(name: str, where: str) -> None:
    """Refuse a name that is not one folder below the table's own."""
    if "/" in name or "\\" in name or not name:
        raise UnsafeError(f"{where}: the column {shown(name)} leaves the table")
    try:
        check_key(name)
    except UnsafeError as error:
        raise UnsafeError(f"{where}: column: {error}") from None


def _check_new(name: str, columns: Mapping[str, Column]) -> None:
    if not isinstance(name, str):
        raise TypeError(f"a column's name is text, not {type(name).__name__}")
    _check_name(name, "table")
    if name in columns:
        raise ValueError(f"there is a column {name!r} already")
    if name in _TAKEN or is_staged(name) or "." in name:
        raise ValueError(f"{name!r} cannot be the name of a column")


@lru_cache(maxsize=256)
def _parse_arrays(
    places: tuple[str, ...], found: tuple[bytes | None, ...]
) -> tuple[BcolzMetadata, ...] | None:
    """Return the metadata of columns that are all arrays of one length, without their attributes.

    Most tables have such columns. The result is immutable, so tables that are opened again share
    it. None for any other table, and for a table with a malformed document.
    """
    parsed: list[BcolzMetadata] = []
    for number, place in enumerate(places):
        storage, sizes = found[2 * number : 2 * number + 2]
        if storage is None or sizes is None:
            return None
        try:
            parsed.append(
                BcolzMetadata.parse(storage, sizes, {}, (f"{place}/{STORAGE}", f"{place}/{SIZES}"))
            )
        except IngotError:
            return None
    return tuple(parsed) if len({each.schema.shape[0] for each in parsed}) < 2 else None


class _ColumnReads(NamedTuple):
    """The folders of the columns of a table, and the batch that reads their documents.

    For each column, ``meta/storage`` and ``meta/sizes``; then ``__rootdirs__`` and ``__attrs__``
    of each column that may be a nested table.
    """

    places: tuple[str, ...]
    numbers: Mapping[str, int]
    """The position of each column, by its name."""
    batch: Batch


@lru_cache(maxsize=256)
def _column_reads(path: str, names: tuple[str, ...], maybe_nested: tuple[str, ...]) -> _ColumnReads:
    start = prefix(path)
    places = tuple(start + name for name in names)
    numbers = {name: number for number, name in enumerate(names)}
    keys = [f"{place}/{name}" for place in places for name in (STORAGE, SIZES)]
    keys += [f"{start}{name}/{mark}" for name in maybe_nested for mark in (ROOTDIRS, ATTRS)]
    # One byte more than allowed shows that a document is too long without reading all of it.
    return _ColumnReads(places, numbers, Batch([Extent(key, 0, json.LARGEST + 1) for key in keys]))


class ArrayColumns(Mapping[str, Column]):
    """The columns of a table in which every column is an array; each is made on first use."""

    __slots__ = ("_found", "_made", "_parsed", "_reads", "_store")

    def __init__(
        self,
        store: Store,
        reads: _ColumnReads,
        found: Sequence[bytes | None],
        parsed: Sequence[BcolzMetadata],
    ) -> None:
        self._store = store
        self._reads = reads
        self._found = found
        self._parsed = parsed
        self._made: dict[str, ArrayNode] = {}

    def __getitem__(self, name: str) -> ArrayNode:
        made = self._made.get(name)
        if made is None:
            number = self._reads.numbers[name]
            place = self._reads.places[number]
            documents = ArrayDocuments(*self._found[2 * number : 2 * number + 2])
            attrs = StoredAttributes(self._store, place)
            metadata = self._parsed[number].described(attrs)
            node = ArrayNode(BcolzMap(self._store, metadata, place, documents))
            # Another thread may have made it meanwhile; the first one is kept.
            made = self._made.setdefault(name, node)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._reads.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._reads.numbers)

    def __len__(self) -> int:
        return len(self._reads.numbers)


def _candidate_folders(path: str, name: str, values: Mapping[str, Any]) -> Iterator[str]:
    start = prefix(path)
    yield start + name
    yield f"{start}{DATA}/{name}"
    dirs = values.get("dirs")
    place = dirs.get(name) if isinstance(dirs, dict) else None
    if isinstance(place, str):
        # The path as it was when the table was created: only its last part is still valid.
        last = place.replace("\\", "/").rstrip("/").rpartition("/")[2]
        if last and last != name:
            _check_name(last, f"{start}{ROOTDIRS}: dirs")
            yield start + last


def _check_lengths(columns: Mapping[str, Column], path: str) -> None:
    lengths = {name: _length(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {length}" for name, length in list(lengths.items())[:10])
        raise CorruptionError(f"table {path!r}: columns of different length: {listed}")


def _length(column: Column) -> int:
    if isinstance(column, TableNode):
        return next((_length(each) for each in column.columns.values()), 0)
    return column.chunks.schema.shape[0]


def _create_column(
    store: Store, schema: ArraySchema | TableSchema, folder: str
) -> tuple[Column, tuple[Edit, ...]]:
    if isinstance(schema, ArraySchema):
        node, commit = create_array(store, schema, folder)
        return node, commit.edits
    table, commit = create_table(store, schema, {}, folder)
    return table, commit.edits


def _name_columns(columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that names columns, in their order; other fields are kept."""
    everything = list(columns)
    plain = [name for name in everything if _is_plain(columns[name])]
    values = {**old, "names": plain}
    values.pop("x_names", None)
    if plain != everything:
        values["x_names"] = everything
    return values


def _is_plain(column: Column) -> bool:
    """Return whether bcolz can open a column."""
    if not isinstance(column, ArrayNode):
        return False
    dtype = column.schema.dtype
    return dtype.names is None and (dtype.itemsize <= _WIDEST or dtype.kind in "SU")


def _stray_keys(store: Store, folder: str) -> Iterator[str]:
    """Yield the keys below the folder of a new column, which must not become part of it.

    Where the store cannot be listed there are none: a new column writes its documents and all of
    its chunks, and what else lies there is not read.
    """
    return _keys(store, folder) if Feature.LIST in store.features else iter(())


def _own_keys(column: Column) -> Iterator[str]:
    """Yield the keys of a column, also of one that is a table."""
    if isinstance(column, TableNode):
        yield from (prefix(column.table.path) + name for name in (ROOTDIRS, ATTRS))
        for each in column.columns.values():
            yield from _own_keys(each)
    else:
        assert isinstance(column.chunks, BcolzMap)
        yield from column.chunks.keys()


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
        assert isinstance(table, BcolzTableMap)
        columns = {name: _moved(each, source, target) for name, each in table.columns.items()}
        folders = {name: target + at.removeprefix(source) for name, at in table.folders.items()}
        path = target + table.path.removeprefix(source)
        documents = {
            target + key.removeprefix(source): data for key, data in table.documents.items()
        }
        return TableNode(
            replace(table, path=path, columns=columns, folders=folders, documents=documents)
        )
    chunks = column.chunks
    assert isinstance(chunks, BcolzMap)
    return ArrayNode(chunks.moved(target + chunks.path.removeprefix(source)))


def _removed(column: Column) -> Commit:
    return column.table.removed() if isinstance(column, TableNode) else column.chunks.removed()


def _as_part(column: Column) -> Column:
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BcolzTableMap)
        inner = {name: _as_part(each) for name, each in table.columns.items()}
        return TableNode(replace(table, columns=inner, part=True))
    assert isinstance(column.chunks, BcolzMap)
    return ArrayNode(BcolzColumnMap.of(column.chunks))


def _sizes_key(commit: Commit) -> str | None:
    return next((edit.key for edit in commit.publish if edit.key.endswith(SIZES)), None)

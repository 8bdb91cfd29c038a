"""The tables of bcolz 1.x: a folder with the names of the columns, and a folder for each column.

Knows ``__rootdirs__``, where columns lie in the layouts of twelve years, and that a column may be a
table itself. Refuses to know what an array is made of: `bcolz_array` does.

A column that bcolz cannot open would keep it from opening the table. Such columns are left out of
``names``; ``x_names``, which bcolz does not look at, has them all.
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
    NO_ATTRS,
    BcolzMap,
    ColumnMap,
    Documents,
    create_array,
    document_extents,
    open_array,
    pack_attrs,
    parse_attrs,
    read_documents,
)
from ingot.formats.bcolz.metadata import SIZES, STORAGE, Metadata
from ingot.formats.format import ArrayNode, Column, TableNode, TableSchema
from ingot.formats.paths import prefix
from ingot.schema import ArraySchema
from ingot.stores.store import Batch, Commit, Delete, Edit, Extent, Put, Store, check_key, is_staged

__all__ = [
    "DATA",
    "ROOTDIRS",
    "BcolzTable",
    "create_table",
    "holds_column",
    "lies_in_data",
    "open_table",
]

DATA: Final = "data"
ROOTDIRS: Final = "__rootdirs__"

_MOST_COLUMNS: Final = 2**16
_DEEPEST: Final = 16
_WIDEST: Final = 255
# Names that something else in a table's folder has.
_TAKEN: Final = frozenset({ROOTDIRS, ATTRS, ".commit", ".lock"})


@dataclass(frozen=True, slots=True)
class BcolzTable:
    """The columns of one table, in their order."""

    store: Store
    columns: Mapping[str, Column]
    attrs: Mapping[str, Any]
    path: str = ""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Where columns lie whose folder is not the one of their name."""
    document: Mapping[str, Any] = field(default_factory=dict)
    """What ``__rootdirs__`` says."""
    part: bool = False
    """Whether it is opened without the table that it is nested in, which has its length."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(self.columns)

    @property
    def rows(self) -> int:
        """The length of all columns."""
        return next((_length(column) for column in self.columns.values()), 0)

    def reopened(self, store: Store) -> "BcolzTable":
        """Return the map of the same table as `store` has it now."""
        return open_table(store, self.path, part=self.part)

    def described(self, attrs: Mapping[str, Any]) -> "tuple[BcolzTable, Commit]":
        """Return the map with other attributes."""
        commit = Commit(publish=(Put(prefix(self.path) + ATTRS, pack_attrs(attrs)),))
        return replace(self, attrs=attrs), commit

    def added(
        self, name: str, schema: ArraySchema | TableSchema, position: int | None = None
    ) -> "tuple[BcolzTable, Column, Commit]":
        """Return the map with one column more, at the end or at `position`."""
        _check_new(name, self.columns)
        folder = prefix(self.path) + name
        column, edits = _created(self.store, schema, folder)
        if self.columns and _length(column) != self.rows:
            raise ValueError(
                f"column {name!r} has {_length(column)} rows, the table has {self.rows}"
            )
        # What somebody left under that name is not part of the column.
        strays = tuple(Delete(key) for key in _keys(self.store, folder))
        items = list(self.columns.items())
        items.insert(len(items) if position is None else position, (name, column))
        table, names = self._with(dict(items))
        return table, column, Commit(prepare=(*strays, *edits), publish=(names,))

    def dropped(self, name: str) -> "tuple[BcolzTable, Commit]":
        """Return the map without a column; its folder is emptied."""
        self._check_there(name)
        kept = {each: column for each, column in self.columns.items() if each != name}
        if self.part and not kept:
            raise ValueError(f"{name!r} is the last column of a nested table, which needs one")
        table, names = self._with(kept)
        removed = tuple(Delete(key) for key in _keys(self.store, self._folder(name)))
        return table, Commit(publish=(names,), cleanup=removed)

    def renamed(self, old: str, new: str) -> "tuple[BcolzTable, Mapping[str, str], Commit]":
        """Return the map with a column under another name, and which keys become which.

        They have both names until the document has the new one.
        """
        self._check_there(old)
        if old == new:
            return self, {}, Commit()
        _check_new(new, self.columns)
        source, target = self._folder(old), prefix(self.path) + new
        copies = {target + key.removeprefix(source): key for key in _keys(self.store, source)}
        strays = tuple(Delete(key) for key in _keys(self.store, target))
        columns = {
            (new if name == old else name): (
                _moved(column, source, target) if name == old else column
            )
            for name, column in self.columns.items()
        }
        table, names = self._with(columns)
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
            # Columns as well: without the document they might still make a table of their own.
            publish=(
                Delete(start + ROOTDIRS),
                Delete(start + ATTRS),
                *(edit for commit in commits for edit in commit.publish),
            ),
            cleanup=tuple(edit for commit in commits for edit in commit.cleanup),
        )

    def exchanged(self, name: str, column: Column) -> "BcolzTable":
        """Return the map with a column as it has become."""
        return replace(self, columns={**self.columns, name: column})

    def joined(self, commits: Mapping[str, Commit], *, shrinking: bool = False) -> Commit:
        """Return one commit of those of columns; the first column's length switches last.

        When the table gets shorter, it switches first.
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

    def _folder(self, name: str) -> str:
        return self.folders.get(name, prefix(self.path) + name)

    def _check_there(self, name: str) -> None:
        if name not in self.columns:
            raise NotFoundError(f"{self.store.location}: no column {name!r} in {self.path!r}")

    def _with(self, columns: Mapping[str, Column]) -> "tuple[BcolzTable, Put]":
        """Return the map of other columns, and the edit of the document that names them."""
        values = _named(columns, self.document)
        folders = {name: at for name, at in self.folders.items() if name in columns}
        data = json.pack_line(values, ROOTDIRS)
        table = replace(self, columns=columns, folders=folders, document=values)
        return table, Put(prefix(self.path) + ROOTDIRS, data)


def open_table(
    store: Store,
    path: str = "",
    depth: int = 0,
    *,
    part: bool = False,
    found: tuple[bytes | None, bytes | None] | None = None,
) -> BcolzTable:
    """Return the table at `path`; as a `part`, its columns cannot change their length.

    `found` are the documents of the table, ``__rootdirs__`` and ``__attrs__``, where they are read
    already.
    """
    if depth > _DEEPEST:
        raise LimitError(f"{store.location}: {path!r}: more than {_DEEPEST} tables in each other")
    start = prefix(path)
    keys = start + ROOTDIRS, start + ATTRS
    if found is None:
        rootdirs, attrs = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
    else:
        rootdirs, attrs = found
    try:
        if rootdirs is not None:
            values, names = _parse_rootdirs(rootdirs, keys[0])
        elif lies_in_data(store, path):
            values, names = {}, _folders(store, _data(store, path))
        else:
            raise NotFoundError(f"{store.location}: no {keys[0]}")
        columns, folders = _open_columns(store, path, names, values, depth)
        if part:
            columns = {name: _as_part(column) for name, column in columns.items()}
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    described = parse_attrs(attrs, f"{store.location}: {keys[1]}")
    return BcolzTable(store, columns, described, path, folders, values, part)


def create_table(
    store: Store, schema: TableSchema, attrs: Mapping[str, Any], path: str = ""
) -> tuple[TableNode, Commit]:
    """Return a new table, and the commit that makes it; naming the columns is what switches."""
    columns: dict[str, Column] = {}
    edits: list[Edit] = []
    for name, each in schema.items():
        _check_new(name, columns)
        columns[name], made = _created(store, each, prefix(path) + name)
        edits += made
    _check_lengths(columns, path)
    start, described = prefix(path), pack_attrs(attrs)
    values = _named(columns, {})
    edits.append(Put(start + ATTRS, described))
    publish = (Put(start + ROOTDIRS, json.pack_line(values, ROOTDIRS)),)
    table = BcolzTable(store, columns, parse_attrs(described), path, {}, values)
    return TableNode(table), Commit(prepare=tuple(edits), publish=publish)


def lies_in_data(store: Store, path: str = "", depth: int = 0) -> bool:
    """Tell whether `path` is a table as the document of bcolz 1.x draws it: columns in ``data``.

    >>> from ingot.stores import MemoryStore
    >>> lies_in_data(MemoryStore({"data/price/meta/sizes": b""}))
    True
    """
    names = _folders(store, _data(store, path))
    if not names or depth > _DEEPEST:
        return False
    folder = prefix(_data(store, path)) + names[0]
    (found,) = read_documents(store, [folder])
    return found.is_array or lies_in_data(store, folder, depth + 1)


def holds_column(store: Store, path: str, table: str = "") -> bool:
    """Tell whether a table has a folder for a column, maybe in nested tables.

    >>> from ingot.stores import MemoryStore
    >>> holds_column(MemoryStore({"__rootdirs__": b'{"names": ["price"]}'}), "data/price")
    True
    """
    for place in _column_places(store, table):
        if path == place or (path.startswith(f"{place}/") and holds_column(store, path, place)):
            return True
    return False


def _column_places(store: Store, table: str) -> Iterator[str]:
    """Yield where the columns of a table may lie; nothing where no table is."""
    key = prefix(table) + ROOTDIRS
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    if data is not None:
        try:
            values = json.parse_object(data, key)
            for name in _parse_names(values, key):
                yield from _places(table, name, values)
        except IngotError:
            return  # Who opens the table itself is told what is wrong with it.
    elif lies_in_data(store, table):
        folder = _data(store, table)
        yield from (f"{folder}/{name}" for name in _folders(store, folder))


def _data(store: Store, path: str) -> str:
    """Return where columns lie in that layout: in ``data``, and below a column beside each other.

    A nested column holds only folders.
    """
    inner = prefix(path) + DATA
    return inner if not path or _folders(store, inner) else path


def _folders(store: Store, path: str) -> tuple[str, ...]:
    names = (name for name in store.names(path) if name.endswith("/"))
    return tuple(name[:-1] for name in names if not name.startswith("."))


@lru_cache(maxsize=256)
def _parse_rootdirs(data: bytes, where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return what a ``__rootdirs__`` says, and the names of all columns in it."""
    values = json.parse_object(data, where)
    return values, _parse_names(values, where)


def _parse_names(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    claims = FieldReader(where, values)
    names = _parse_list(claims, "names")
    everything = _parse_list(claims, "x_names") if "x_names" in values else names
    # Whoever adds a column without knowing of `x_names` puts it into `names` alone.
    return tuple(dict.fromkeys((*everything, *names)))


def _parse_list(claims: FieldReader, key: str) -> tuple[str, ...]:
    found = claims.value(key)
    if not isinstance(found, list):
        raise claims.wrong(key, found, "a list of names")
    if len(found) > _MOST_COLUMNS:
        raise LimitError(
            f"{claims.where}: {key} has {len(found)} entries, the most is {_MOST_COLUMNS}"
        )
    for name in found:
        if not isinstance(name, str):
            raise FormatError(f"{claims.where}: {key} holds {shown(name)}, which is no name")
        _check_name(name, claims.where)
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise FormatError(f"{claims.where}: {key} holds {shown(twice)} twice")
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


def _open_columns(
    store: Store, path: str, names: Sequence[str], values: Mapping[str, Any], depth: int
) -> tuple[dict[str, Column], dict[str, str]]:
    """Return the columns, and the folders of those that do not lie where they lie today.

    All columns have one length.
    """
    for name in names if "dirs" in values else ():
        list(_places(path, name, values))  # No name may lead out of the table, used or not.
    places, batch = _column_reads(path, tuple(names))
    found = store.read(batch)
    parsed = _parse_arrays(places, tuple(found))
    if parsed is not None:
        maps = (BcolzMap(store, each, at) for each, at in zip(parsed, places, strict=True))
        return dict(zip(names, map(ArrayNode, maps), strict=True)), {}
    columns: dict[str, Column] = {}
    folders: dict[str, str] = {}
    for number, (name, place) in enumerate(zip(names, places, strict=True)):
        documents = Documents(*found[3 * number : 3 * number + 3])
        column = _open_column(store, place, documents, depth)
        others = list(_places(path, name, values))[1:] if column is None else ()
        for other in others:
            column = _open_column(store, other, None, depth)
            if column is not None:
                folders[name] = other
                break
        if column is None:
            raise CorruptionError(f"column {name!r}: nothing is stored in {place!r}")
        columns[name] = column
    _check_lengths(columns, path)
    return columns, folders


@lru_cache(maxsize=256)
def _parse_arrays(
    places: tuple[str, ...], found: tuple[bytes | None, ...]
) -> tuple[Metadata, ...] | None:
    """Return what the documents of columns say: arrays of one length, without attributes.

    Most tables have such columns. Nothing of the result ever changes, so tables that are opened
    again share it. None for any other table, and for a table in which something is wrong.
    """
    parsed: list[Metadata] = []
    for number, place in enumerate(places):
        storage, sizes, attrs = found[3 * number : 3 * number + 3]
        if storage is None or sizes is None or attrs not in (None, NO_ATTRS):
            return None
        try:
            parsed.append(
                Metadata.parse(storage, sizes, {}, (f"{place}/{STORAGE}", f"{place}/{SIZES}"))
            )
        except IngotError:
            return None
    return tuple(parsed) if len({each.schema.shape[0] for each in parsed}) < 2 else None


class _ColumnReads(NamedTuple):
    """Where the columns of a table lie today, and what reads their documents at once."""

    places: tuple[str, ...]
    batch: Batch


@lru_cache(maxsize=256)
def _column_reads(path: str, names: tuple[str, ...]) -> _ColumnReads:
    places = tuple(prefix(path) + name for name in names)
    return _ColumnReads(places, Batch(document_extents(places)))


def _places(path: str, name: str, values: Mapping[str, Any]) -> Iterator[str]:
    start = prefix(path)
    yield start + name
    yield f"{start}{DATA}/{name}"
    dirs = values.get("dirs")
    place = dirs.get(name) if isinstance(dirs, dict) else None
    if isinstance(place, str):
        # Written as it was given when the table was made: only the last part is still true.
        last = place.replace("\\", "/").rstrip("/").rpartition("/")[2]
        if last and last != name:
            _check_name(last, f"{start}{ROOTDIRS}: dirs")
            yield start + last


def _open_column(store: Store, path: str, found: Documents | None, depth: int) -> Column | None:
    if found is None:
        (found,) = read_documents(store, [path])
    if found.is_array:
        return ArrayNode(open_array(store, path, found))
    if store.size(prefix(path) + ROOTDIRS) is not None or lies_in_data(store, path):
        return TableNode(open_table(store, path, depth + 1))
    return None


def _check_lengths(columns: Mapping[str, Column], path: str) -> None:
    lengths = {name: _length(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in list(lengths.items())[:10])
        raise CorruptionError(f"table {path!r}: columns of different length: {told}")


def _length(column: Column) -> int:
    if isinstance(column, TableNode):
        return next((_length(each) for each in column.columns.values()), 0)
    return column.chunks.schema.shape[0]


def _created(
    store: Store, schema: ArraySchema | TableSchema, folder: str
) -> tuple[Column, tuple[Edit, ...]]:
    if isinstance(schema, ArraySchema):
        node, commit = create_array(store, schema, folder)
        return node, commit.edits
    table, commit = create_table(store, schema, {}, folder)
    return table, commit.edits


def _named(columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document that names columns, in their order, with what else was in it."""
    everything = list(columns)
    plain = [name for name in everything if _is_plain(columns[name])]
    values = {**old, "names": plain}
    values.pop("x_names", None)
    if plain != everything:
        values["x_names"] = everything
    return values


def _is_plain(column: Column) -> bool:
    """Tell whether bcolz can open a column."""
    if not isinstance(column, ArrayNode):
        return False
    dtype = column.schema.dtype
    return dtype.names is None and (dtype.itemsize <= _WIDEST or dtype.kind in "SU")


def _keys(store: Store, folder: str) -> Iterator[str]:
    """Yield all keys below a folder."""
    for name in store.names(folder):
        key = f"{folder}/{name}"
        if name.endswith("/"):
            yield from _keys(store, key[:-1])
        else:
            yield key


def _moved(column: Column, source: str, target: str) -> Column:
    """Return a column after all that lies in one folder has moved to another."""
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BcolzTable)
        columns = {name: _moved(each, source, target) for name, each in table.columns.items()}
        folders = {name: target + at.removeprefix(source) for name, at in table.folders.items()}
        path = target + table.path.removeprefix(source)
        return TableNode(replace(table, path=path, columns=columns, folders=folders))
    chunks = column.chunks
    assert isinstance(chunks, BcolzMap)
    return ArrayNode(replace(chunks, path=target + chunks.path.removeprefix(source)))


def _removed(column: Column) -> Commit:
    return column.table.removed() if isinstance(column, TableNode) else column.chunks.removed()


def _as_part(column: Column) -> Column:
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BcolzTable)
        inner = {name: _as_part(each) for name, each in table.columns.items()}
        return TableNode(replace(table, columns=inner, part=True))
    assert isinstance(column.chunks, BcolzMap)
    return ArrayNode(ColumnMap.of(column.chunks))


def _sizes_key(commit: Commit) -> str | None:
    return next((edit.key for edit in commit.publish if edit.key.endswith(SIZES)), None)

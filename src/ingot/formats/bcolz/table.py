"""The tables of bcolz 1.x: a folder with the names of the columns, and a folder for each column.

This module parses and packs ``__rootdirs__``, and finds the folders of columns in all layouts that
bcolz has used. A column may be a table itself. Arrays are handled by `array`.

bcolz cannot open a table with a column that it cannot open. Such columns are left out of ``names``;
``x_names``, which bcolz ignores, has them all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias

from ingot.errors import (
    CorruptionError,
    FormatError,
    IngotError,
    LimitError,
    NotFoundError,
)
from ingot.fields import FieldReader, shown
from ingot.formats import folder_table, json
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
from ingot.formats.bcolz.metadata import SIZES, STORAGE, BcolzMetadata, without_identity
from ingot.formats.bcolz.ragged import (
    BcolzRaggedColumnMap,
    BcolzRaggedMap,
    ItemsMetadata,
    create_ragged,
    is_items,
    open_items,
)
from ingot.formats.folder_table import (
    FolderTableMap,
    RaggedFolderLayout,
    check_folders,
    check_lengths,
    check_name,
    folder_name,
)
from ingot.formats.format import ArrayNode, Column, RaggedNode, TableNode, TableSchema
from ingot.formats.paths import prefix
from ingot.formats.validity import visible
from ingot.schema import ArraySchema, RaggedSchema
from ingot.stores.store import (
    Batch,
    Commit,
    Extent,
    Feature,
    Store,
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

Metadata: TypeAlias = BcolzMetadata | ItemsMetadata
"""The metadata of a column that is no table."""

_MOST_COLUMNS: Final = 2**16
_DEEPEST: Final = 16
_WIDEST: Final = 255


class BcolzLayout:
    """The documents of a table: ``__rootdirs__`` names the columns, ``__attrs__`` describes it."""

    taken: ClassVar[frozenset[str]] = frozenset({ROOTDIRS, ATTRS, ".commit", ".lock", ".log"})
    documents: ClassVar[tuple[str, str]] = ROOTDIRS, ATTRS

    def name_columns(self, columns: Mapping[str, Column], old: Mapping[str, Any]) -> dict[str, Any]:
        """Return the document that names columns, in their order; other fields are kept."""
        everything = list(columns)
        shown_before = old.get("names", ())
        hidden = {*everything} - {*visible(everything, shown_before)}
        plain = [name for name in everything if name not in hidden and _is_plain(name, columns)]
        values = {**old, "names": plain}
        values.pop("x_names", None)
        if plain != everything:
            values["x_names"] = everything
        return values

    def pack_names(self, values: Mapping[str, Any]) -> bytes:
        """Return the ``__rootdirs__`` of a table."""
        return json.pack_line(dict(values), ROOTDIRS)

    def pack_attrs(self, attrs: Mapping[str, Any]) -> bytes:
        """Return the ``__attrs__`` of a table."""
        return pack_attrs(attrs)

    def parse_attrs(self, data: bytes) -> Mapping[str, Any]:
        """Return the attributes of an ``__attrs__``."""
        return parse_attrs(data)

    def create_array(
        self, store: Store, schema: ArraySchema, folder: str
    ) -> tuple[ArrayNode, Commit]:
        """Return a new column, and the commit that creates it."""
        return create_array(store, schema, folder)

    def create_ragged(
        self, store: Store, schema: RaggedSchema, folder: str
    ) -> tuple[RaggedNode, Commit]:
        """Return a new column of variable-length items, and the commit that creates it."""
        return create_ragged(store, schema, folder)

    def is_length(self, key: str) -> bool:
        """Return whether a key is the ``meta/sizes`` of a column."""
        return key.endswith(f"/{SIZES}")

    def reopen(self, store: Store, path: str, *, part: bool) -> "BcolzTableMap":
        """Return the table at a path as a store has it now."""
        return open_table(store, path, part=part)


@dataclass(frozen=True, slots=True)
class BcolzTableMap(FolderTableMap):
    """The columns of one table, in their order."""

    layout: ClassVar[RaggedFolderLayout] = BcolzLayout()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, without those that say which items of a column exist.

        Columns of bcolz itself may have any name; hidden ones are only in ``x_names``.
        """
        if "x_names" not in self.document:
            return tuple(self.columns)
        return visible(self.columns, frozenset(self.document["names"]))


def open_table(
    store: Store,
    path: str = "",
    *,
    part: bool = False,
    found: Mapping[str, bytes | None] | None = None,
) -> BcolzTableMap:
    """Return the table at `path`; in a `part`, columns cannot change their length.

    `found` are the documents of the table, ``__rootdirs__`` and ``__attrs__``, if they were read
    already, and perhaps those of `column_documents`.
    """
    if found is None:
        keys = prefix(path) + ROOTDIRS, prefix(path) + ATTRS
        rootdirs, attrs = store.read([Extent(key, 0, json.LARGEST + 1) for key in keys])
        found = {}
    else:
        rootdirs, attrs = found.get(ROOTDIRS), found.get(ATTRS)
    documents = TableDocuments(path, rootdirs, attrs)
    try:
        plan = _plan(store, documents)
        read = [found[key] for key in plan.keys] if plan.covers(found) else store.read(plan.batch)
        columns = ArrayColumns.of(store, plan, read)
        if columns is not None:
            table = _opened(store, documents, plan, columns, {})
        else:
            [table] = _finished([_TableDraft(store, documents, plan, read)], 0)
    except IngotError as error:
        error.add_note(f"in {store.location}")
        raise
    if not part:
        return table
    parts = {name: _as_part(column) for name, column in table.columns.items()}
    return replace(table, columns=parts, part=True)


def column_documents(rootdirs: bytes) -> Batch | None:
    """Return the documents of the columns that the ``__rootdirs__`` of a table names.

    They are those of a table at the root of a store. None for a malformed document, and where
    columns may be tables, whose columns have documents of their own.
    """
    try:
        plan = _plan_of(rootdirs, "")
    except IngotError:
        return None
    return None if plan.maybe_nested else plan.batch


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
    plans = [_plan(store, each) for each in tables]
    found = store.read([extent for plan in plans for extent in plan.batch])
    drafts = []
    at = 0
    for documents, plan in zip(tables, plans, strict=True):
        read = found[at : at + len(plan.batch)]
        drafts.append(_TableDraft(store, documents, plan, read))
        at += len(read)
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


def _opened(
    store: Store,
    documents: TableDocuments,
    plan: "_TablePlan",
    columns: Mapping[str, Column],
    folders: Mapping[str, str],
) -> BcolzTableMap:
    path, rootdirs, attrs = documents
    start = prefix(path)
    described = parse_attrs(attrs, f"{store.location}: {start}{ATTRS}")
    kept = {start + ROOTDIRS: rootdirs, start + ATTRS: attrs}
    return BcolzTableMap(store, columns, described, path, folders, plan.values, documents=kept)


class _TableDraft:
    """A table that is being opened: its names are known, its columns are found step by step."""

    __slots__ = ("columns", "documents", "folders", "missing", "nested", "plan", "store")

    def __init__(
        self,
        store: Store,
        documents: TableDocuments,
        plan: "_TablePlan",
        found: Sequence[bytes | None],
    ) -> None:
        """Take over the documents in the folders that columns have in the current layout."""
        self.store = store
        self.documents = documents
        self.plan = plan
        self.columns: dict[str, Column] = {}
        self.folders: dict[str, str] = {}
        self.nested: dict[str, TableDocuments] = {}
        self.missing: list[str] = []
        end = 2 * len(plan.places)
        inner = zip(found[end::2], found[end + 1 :: 2], strict=True)
        tables = dict(zip(plan.maybe_nested, inner, strict=True))
        for number, (name, place) in enumerate(zip(plan.numbers, plan.places, strict=True)):
            array = ArrayDocuments(*found[2 * number : 2 * number + 2])
            rootdirs, attrs = tables.get(name, (None, None))
            if not self.settle(name, place, array._replace(attrs=attrs), rootdirs):
                self.missing.append(name)

    def settle(
        self, name: str, place: str, documents: ArrayDocuments, rootdirs: bytes | None
    ) -> bool:
        """Take a column from the documents in a folder; return whether they are those of one."""
        if is_items(documents.storage):
            attrs = StoredAttributes(self.store, place)
            self.columns[name] = RaggedNode(open_items(self.store, place, documents, attrs))
        elif documents.is_array:
            self.columns[name] = ArrayNode(open_column(self.store, place, documents))
        elif rootdirs is not None:
            self.nested[name] = TableDocuments(place, rootdirs, documents.attrs)
        else:
            return False
        return True

    def finished(self) -> BcolzTableMap:
        """Return the table; all columns have one length."""
        columns = {name: self.columns[name] for name in self.plan.numbers}
        check_lengths(columns, self.documents.path)
        return _opened(self.store, self.documents, self.plan, columns, self.folders)


def _find_missing(drafts: Sequence[_TableDraft]) -> None:
    """Find columns that are no arrays in the current layout, by one read for all folders."""
    searched = [
        (draft, name, list(_candidate_folders(draft.documents.path, name, draft.plan.values)))
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
    return folder_table.create_table(BcolzTableMap, store, schema, attrs, path)


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


def _parse_names(values: Mapping[str, Any], where: str) -> tuple[str, ...]:
    fields = FieldReader(where, values)
    names = _parse_list(fields, "names")
    for name in names:
        check_name(name, where)
    everything = _parse_list(fields, "x_names") if "x_names" in values else names
    check_folders(everything, where)
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
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        raise FormatError(f"{fields.where}: {key} holds {shown(twice)} twice")
    return tuple(found)


@lru_cache(maxsize=256)
def _parse_identified(
    places: tuple[str, ...], found: tuple[bytes | None, ...]
) -> tuple[tuple[Metadata, ...] | None, tuple[int | None, ...]]:
    """Return the metadata of columns without their identities, as `_parse_arrays`, and these."""
    shared = list(found)
    identities: list[int | None] = [None] * len(places)
    for number, storage in enumerate(found[::2]):
        if storage is not None:
            shared[2 * number], identities[number] = without_identity(storage)
    return _parse_arrays(places, tuple(shared)), tuple(identities)


@lru_cache(maxsize=256)
def _parse_arrays(
    places: tuple[str, ...], found: tuple[bytes | None, ...]
) -> tuple[Metadata, ...] | None:
    """Return the metadata of columns of one length, none of them a table, without attributes.

    Most tables have such columns. The result is immutable, so tables that are opened again share
    it. None for any other table, and for a table with a malformed document.
    """
    parsed: list[Metadata] = []
    for number, place in enumerate(places):
        storage, sizes = found[2 * number : 2 * number + 2]
        if storage is None or sizes is None:
            return None
        try:
            kind = ItemsMetadata if is_items(storage) else BcolzMetadata
            parsed.append(
                kind.parse(storage, sizes, {}, (f"{place}/{STORAGE}", f"{place}/{SIZES}"))
            )
        except IngotError:
            return None
    return tuple(parsed) if len({each.schema.shape[0] for each in parsed}) < 2 else None


@dataclass(frozen=True, slots=True)
class _TablePlan:
    """What a ``__rootdirs__`` says, and how the documents of its columns are read."""

    values: Mapping[str, Any]
    """The contents of the document."""
    numbers: Mapping[str, int]
    """The position of each column, by its name."""
    places: tuple[str, ...]
    """The folder of each column."""
    maybe_nested: tuple[str, ...]
    """The columns that bcolz cannot open: among them are all nested tables that we wrote."""
    keys: tuple[str, ...]
    """For each column, the keys of ``meta/storage`` and ``meta/sizes``; then those of
    ``__rootdirs__`` and ``__attrs__`` of each column that may be a nested table."""
    batch: Batch
    """The batch that reads these keys."""

    def covers(self, found: Mapping[str, bytes | None]) -> bool:
        """Return whether all documents were found already, which are read together."""
        return bool(self.keys) and self.keys[-1] in found


def _plan(store: Store, documents: TableDocuments) -> _TablePlan:
    """Return how the columns of a table are read."""
    path, rootdirs, _ = documents
    if rootdirs is not None:
        return _plan_of(rootdirs, path)
    if is_data_layout(store, path):
        return _made_plan({}, _folders(store, _data(store, path)), path)
    raise NotFoundError(f"{store.location}: no {prefix(path)}{ROOTDIRS}")


@lru_cache(maxsize=256)
def _plan_of(rootdirs: bytes, path: str) -> _TablePlan:
    """Return how the columns that a ``__rootdirs__`` names are read."""
    key = prefix(path) + ROOTDIRS
    values = json.parse_object(rootdirs, key)
    names = _parse_names(values, key)
    for name in names if "dirs" in values else ():
        # Refuses every path in `dirs` that leads out of the table, whether it is used or not.
        list(_candidate_folders(path, name, values))
    return _made_plan(values, names, path)


def _made_plan(values: Mapping[str, Any], names: tuple[str, ...], path: str) -> _TablePlan:
    maybe_nested: tuple[str, ...] = ()
    if "x_names" in values:
        plain = frozenset(values["names"])
        maybe_nested = tuple(name for name in names if name not in plain)
    start = prefix(path)
    places = tuple(start + folder_name(name) for name in names)
    keys = [f"{place}/{name}" for place in places for name in (STORAGE, SIZES)]
    nested = (start + folder_name(name) for name in maybe_nested)
    keys += [f"{place}/{mark}" for place in nested for mark in (ROOTDIRS, ATTRS)]
    # One byte more than allowed shows that a document is too long without reading all of it.
    batch = Batch([Extent(key, 0, json.LARGEST + 1) for key in keys])
    numbers = {name: number for number, name in enumerate(names)}
    return _TablePlan(values, numbers, places, maybe_nested, tuple(keys), batch)


class ArrayColumns(Mapping[str, Column]):
    """The columns of a table without nested tables; each is made on first use.

    `parsed` is without the identities of the arrays, so that tables with equal columns share it.
    """

    __slots__ = ("_found", "_identities", "_made", "_parsed", "_plan", "_store")

    def __init__(
        self,
        store: Store,
        plan: _TablePlan,
        found: Sequence[bytes | None],
        parsed: Sequence[Metadata],
        identities: Sequence[int | None],
    ) -> None:
        self._store = store
        self._plan = plan
        self._found = found
        self._parsed = parsed
        self._identities = identities
        self._made: dict[str, ArrayNode | RaggedNode] = {}

    @classmethod
    def of(
        cls, store: Store, plan: _TablePlan, found: Sequence[bytes | None]
    ) -> "ArrayColumns | None":
        """Return the columns of a plan by their documents; None if one is a table."""
        documents = tuple(found[: 2 * len(plan.places)])
        parsed, identities = _parse_identified(plan.places, documents)
        return None if parsed is None else cls(store, plan, documents, parsed, identities)

    def __getitem__(self, name: str) -> ArrayNode | RaggedNode:
        made = self._made.get(name)
        if made is None:
            number = self._plan.numbers[name]
            place = self._plan.places[number]
            documents = ArrayDocuments(*self._found[2 * number : 2 * number + 2])
            attrs = StoredAttributes(self._store, place)
            metadata, identity = self._parsed[number], self._identities[number]
            if identity is not None:
                metadata = metadata.identified(identity)
            metadata = metadata.described(attrs)
            node: ArrayNode | RaggedNode
            if isinstance(metadata, ItemsMetadata):
                node = RaggedNode(BcolzRaggedMap(self._store, metadata, place, documents))
            else:
                node = ArrayNode(BcolzMap(self._store, metadata, place, documents))
            # Another thread may have made it meanwhile; the first one is kept.
            made = self._made.setdefault(name, node)
        return made

    def __contains__(self, name: object) -> bool:
        return name in self._plan.numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self._plan.numbers)

    def __len__(self) -> int:
        return len(self._plan.numbers)


def _candidate_folders(path: str, name: str, values: Mapping[str, Any]) -> Iterator[str]:
    start, folder = prefix(path), folder_name(name)
    yield start + folder
    yield f"{start}{DATA}/{folder}"
    dirs = values.get("dirs")
    place = dirs.get(name) if isinstance(dirs, dict) else None
    if isinstance(place, str):
        # The path as it was when the table was created: only its last part is still valid.
        last = place.replace("\\", "/").rstrip("/").rpartition("/")[2]
        if last and last != name:
            check_name(last, f"{start}{ROOTDIRS}: dirs")
            yield start + last


def _is_plain(name: str, columns: Mapping[str, Column]) -> bool:
    """Return whether bcolz can open a column, in a folder of its name."""
    column = columns[name]
    if not isinstance(column, ArrayNode) or folder_name(name) != name:
        return False
    dtype = column.schema.dtype
    return dtype.names is None and (dtype.itemsize <= _WIDEST or dtype.kind in "SU")


def _as_part(column: Column) -> Column:
    if isinstance(column, TableNode):
        table = column.table
        assert isinstance(table, BcolzTableMap)
        inner = {name: _as_part(each) for name, each in table.columns.items()}
        return TableNode(replace(table, columns=inner, part=True))
    if isinstance(column, RaggedNode):
        assert isinstance(column.packs, BcolzRaggedMap)
        return RaggedNode(BcolzRaggedColumnMap.of(column.packs))
    assert isinstance(column.chunks, BcolzMap)
    return ArrayNode(BcolzColumnMap.of(column.chunks))

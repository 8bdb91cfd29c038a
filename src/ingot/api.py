"""Opening and creating datasets: the one place that knows all stores and formats.

Knows which store a path means, which format a dataset has or shall have, and what of a caller's
wishes goes where. Refuses to move data: that is for the containers it returns.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ingot.array import Array, Mode, opened
from ingot.attributes import converted
from ingot.engine.changes import filled
from ingot.engine.run import Engine
from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats.bcolz import BcolzFormat
from ingot.formats.bcolz_table import ROOTDIRS, names_column
from ingot.formats.detect import detect, looked_for
from ingot.formats.format import ArrayNode, Format, GroupNode, Node, TableFormat, TableNode
from ingot.formats.zarr2 import Zarr2Format
from ingot.formats.zarr3 import Zarr3Format
from ingot.options import Options
from ingot.rows import check_lengths, columns_of, flattened
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.sheet import Sheet, created
from ingot.sheet import opened as opened_table
from ingot.stores import Commit, Feature, FileStore, LocalStore, MemoryStore, Store
from ingot.stores.state import change, read_numbered
from ingot.table import Table
from ingot.wish import Chunks, Codec, Wish, item_type

__all__ = ["array", "create", "formats", "open", "table"]

Path: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is: a path of the local file system, or a store."""

_FORMATS: Final[Mapping[str, Format]] = {
    each.name: each for each in (Zarr3Format(), Zarr2Format(), BcolzFormat())
}

_DEFAULT: Final = "zarr3"
_DEFAULT_TABLE: Final = "bcolz"

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def open(
    path: Path, mode: Mode = "r", *, format: str | None = None, options: Options | None = None
) -> Array | Table:
    """Open a dataset. What it is goes by its content, not by its name.

    Mode "r" never creates, changes or touches a file; "r+" allows changes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = create(folder.name, shape=(3, 4), dtype="i4")
    >>> open(folder.name).shape
    (3, 4)
    >>> open(folder.name + "/absent")
    Traceback (most recent call last):
    ingot.errors.NotFoundError: ...absent: no such file or folder
    >>> folder.cleanup()
    """
    if mode not in ("r", "r+"):
        raise ValueError(f"mode is {mode!r}, not 'r' or 'r+'; new datasets are made by create")
    place = _Place.of(path, writable=mode == "r+").rooted(writable=mode == "r+")

    def find(view: Store) -> tuple[Format, Node]:
        chosen = _format(format) if format is not None else _detected(place, view)
        return chosen, chosen.open(view, place.inner)

    (chosen, node), number = read_numbered(place.store, find)
    if isinstance(node, GroupNode):
        names = ", ".join(node.children) or "none"
        raise UnsupportedError(f"{place.name}: a group; open one of its members ({names}) instead")
    options = options or Options()
    if isinstance(node, TableNode):
        sheet = Sheet(node.table, options)
        ledger = opened_table(chosen, place.store, place.inner, options, first=(sheet, number))
        return Table(chosen, ledger, path=place.path, mode=mode)
    if not isinstance(node, ArrayNode):
        raise UnsupportedError(f"{place.name}: {type(node).__name__} is not supported")
    first = Engine(node.chunks, options), number
    handle = opened(chosen, place.store, place.inner, options, first=first)
    return Array(chosen, handle, path=place.path, mode=mode)


def create(
    path: Path | None = None,
    *,
    shape: int | Sequence[int],
    dtype: DTypeLike,
    chunks: int | Sequence[int] | str = "auto",
    codec: Codec = None,
    fill: object = 0,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> Array:
    """Create an array that holds the fill value everywhere; without a path, in memory.

    `chunks` is the shape of a chunk, a number of rows, or "auto": near to cubes of 1 MiB. `codec`
    is a codec or its short spelling, such as "blosc:lz4:5:shuffle", "zstd:3", "none", or several of
    them. A `fill` of 0 is the zero of any type: False, the epoch, empty text. The dtype `str` is
    text of any length. The formats zarr3 (the default) and zarr2 have the settings `order` ("C" or
    "F") and `dimension_separator` ("." or "/"); zarr3 has `shards` (the shape of one, or "auto"),
    `dimension_names`, `chunk_key_encoding` and `checksum` as well.

    What exists is not touched, unless `overwrite` allows to replace an array. Then the new one
    takes its place in one commit; files that are not the array's own stay. A group, or a folder
    with anything else in it, is never replaced.

    >>> array = create(shape=(1000, 1000), dtype="f4", codec="zlib:1", fill=float("nan"))
    >>> array.chunks, array[0, 0]
    ((500, 500), np.float32(nan))
    """
    wish = _Wish(shape, dtype, chunks, codec, fill, format, attrs, overwrite, options, layout)
    return _created(path, wish, None)


def array(data: object, path: Path | None = None, **as_create: Any) -> Array:
    """Create an array that holds `data`; takes what `create` takes, but for the shape.

    The array appears when all of the data is stored.

    >>> array([[1, 2], [3, 4]], codec="zlib:9")[1]
    array([3, 4])
    """
    dtype = as_create.pop("dtype", None)
    items = np.asarray(data, None if dtype is None else item_type(dtype))
    own = {each.name for each in fields(_Wish)} - {"layout"}
    layout = {name: as_create.pop(name) for name in as_create.keys() - own}
    return _created(path, _Wish(items.shape, items.dtype, **as_create, layout=layout), items)


def table(
    columns: object,
    path: Path | None = None,
    *,
    codec: Codec | Mapping[str, Codec] = None,
    chunks: Chunks | Mapping[str, Chunks] = "auto",
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
    **layout: Any,
) -> Table:
    """Create a table of columns; without a path, in memory.

    `columns` is a mapping of arrays (of mappings, for nested tables), a structured array, a data
    frame, or anything that streams Arrow batches. `codec` and `chunks` (a number of rows) are for
    all columns, or mappings from some of them. The table appears when all of it is stored.

    >>> table({"day": [1, 2], "quote": {"bid": [1.5, 1.6], "ask": [1.7, 1.8]}})["quote.ask"][:]
    array([1.7, 1.8])
    """
    chosen = _format(format or _DEFAULT_TABLE)
    if not isinstance(chosen, TableFormat):
        raise UnsupportedError(f"format {chosen.name} holds no tables")
    _check_layout(chosen, layout)
    options = options or Options()
    given = {name: np.asarray(each) for name, each in flattened(columns_of(columns)).items()}
    check_lengths(given)
    schema = Wish(chunks, codec).table_schema(chosen, given, options, **layout)
    described = converted(attrs or {})
    place = _Place.of(MemoryStore() if path is None else path, writable=True)
    made: list[Sheet] = []

    def build(store: Store) -> Commit:
        old = _in_the_way(place, store, overwrite=overwrite)
        sheet, commit = created(chosen, store, schema, given, described, options, **layout)
        made.append(sheet)
        return commit if old is None else Commit(publish=(*old.edits, *commit.edits))

    _in_the_way(place, place.store, overwrite=overwrite)  # Before a lock file is made.
    number = change(place.store, build, durability=options.durability)
    ledger = opened_table(chosen, place.store, "", options, first=(made[-1], number))
    return Table(chosen, ledger, path=place.path, mode="r+")


def formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that can be read and written, and what each of them holds.

    >>> formats()
    {'zarr3': ('array',), 'zarr2': ('array',), 'bcolz': ('array',)}
    """
    return dict.fromkeys(_FORMATS, ("array",))


@dataclass(frozen=True, slots=True)
class _Place:
    """The store that a path means, and how to speak of it."""

    store: Store
    path: str | None
    """None in memory."""
    file: str | None = None
    """The key of the only file, where the store is one."""
    inner: str = ""
    """Where the dataset lies in the store, which is that of a larger one."""

    @classmethod
    def of(cls, path: Path, *, writable: bool) -> "_Place":
        if not isinstance(path, str | os.PathLike):
            return cls._of_store(path)
        if isinstance(path, str) and _URL.match(path):
            raise UnsupportedError(f"{path}: only local paths and stores can be opened")
        try:
            folder = stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            folder = True
        except NotADirectoryError:
            raise NotFoundError(f"{os.fspath(path)}: a part of the path is a file") from None
        if folder:
            local = LocalStore(path, writable=writable)
            return cls(local, local.root)
        return cls._of_store(FileStore(path, writable=writable))

    @classmethod
    def _of_store(cls, store: Store) -> "_Place":
        if not isinstance(store, Store):
            raise TypeError(f"a path or a store is needed, not {type(store).__name__}")
        if isinstance(store, MemoryStore):
            return cls(store, None)
        return cls(store, store.location, store.key if isinstance(store, FileStore) else None)

    def rooted(self, *, writable: bool) -> "_Place":
        """Return the same place in the store of the outermost table that it is a column of.

        A commit is one of the whole table, and so are its lock and its journal.
        """
        if not isinstance(self.store, LocalStore):
            return self
        root, inner = self.store.root, ""
        while True:
            parent, name = os.path.split(root)
            named = name and os.path.exists(os.path.join(parent, ROOTDIRS))
            if not named or not names_column(LocalStore(parent), name):
                break
            root, inner = parent, f"{name}/{inner}" if inner else name
        return (
            self
            if not inner
            else replace(self, store=LocalStore(root, writable=writable), inner=inner)
        )

    @property
    def name(self) -> str:
        return self.store.location

    def is_empty(self) -> bool:
        # Without a listing only the formats' own marks could tell, and they were looked for.
        listed = Feature.LIST in self.store.features
        return self.file is None and not (listed and any(True for _ in self.store.names()))


def _format(name: str) -> Format:
    if name not in _FORMATS:
        raise UnsupportedError(f"format {name!r} is unknown; there is {', '.join(_FORMATS)}")
    return _FORMATS[name]


def _detected(place: _Place, view: Store) -> Format:
    if place.inner:
        return _FORMATS["bcolz"]
    found = detect(view, _FORMATS.values(), place.file)
    if found is not None:
        return found
    sought = looked_for(_FORMATS.values())
    if not place.is_empty():
        raise FormatError(f"{place.name}: no dataset of a known format; looked for {sought}")
    if place.path is not None and not os.path.exists(place.path):
        raise NotFoundError(f"{place.name}: no such file or folder")
    raise NotFoundError(f"{place.name}: nothing is there; looked for {sought}")


@dataclass(frozen=True, slots=True)
class _Wish:
    """A new array as its maker describes it."""

    shape: int | Sequence[int]
    dtype: DTypeLike
    chunks: int | Sequence[int] | str = "auto"
    codec: Codec = None
    fill: object = 0
    format: str | None = None
    attrs: Mapping[str, object] | None = None
    overwrite: bool = False
    options: Options | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    def schema(self, format: Format) -> ArraySchema:
        """Return how a format would lay out the array."""
        shape = (self.shape,) if isinstance(self.shape, int | np.integer) else tuple(self.shape)
        wish = Wish(self.chunks, self.codec, self.fill, self.attrs)
        options = self.options or Options()
        return wish.schema(format, shape, item_type(self.dtype), options, **self.layout)


def _created(path: Path | None, wish: _Wish, items: NDArray[Any] | None) -> Array:
    chosen = _format(wish.format or _DEFAULT)
    _check_layout(chosen, wish.layout)
    schema = wish.schema(chosen)
    place = _Place.of(MemoryStore() if path is None else path, writable=True)
    options = wish.options or Options()
    made: list[Engine] = []

    def build(store: Store) -> Commit:
        old = _in_the_way(place, store, overwrite=wish.overwrite)
        node, commit = chosen.create(store, schema, **wish.layout)
        assert isinstance(node, ArrayNode)
        made.append(Engine(node.chunks, options))
        if items is None:
            data = filled(made[-1])
        else:
            data = made[-1].written(parse(..., schema.shape), items)
        # All at once, or nothing: what is replaced is still read, and where nothing was, chunks
        # without an array would be in the way of who tries again.
        removed = () if old is None else old.edits
        return Commit(publish=(*removed, *data.edits, *commit.edits))

    _in_the_way(place, place.store, overwrite=wish.overwrite)  # Before a lock file is made.
    number = change(place.store, build, durability=options.durability)
    handle = opened(chosen, place.store, "", options, first=(made[-1], number))
    return Array(chosen, handle, path=place.path, mode="r+")


def _check_layout(format: Format, layout: Mapping[str, Any]) -> None:
    for name in layout:
        if name not in format.settings:
            known = ", ".join(format.settings) or "none"
            raise TypeError(f"{format.name} has no setting {name!r}; it has {known}")


def _in_the_way(place: _Place, store: Store, *, overwrite: bool) -> Commit | None:
    """Return the commit that removes what is there, if that is allowed; None if nothing is."""
    found = detect(store, _FORMATS.values(), place.file)
    if found is None:
        if place.is_empty():
            return None
        raise ExistsError(f"{place.name}: there is something already, and no known dataset")
    if not overwrite:
        raise ExistsError(f"{place.name}: a {found.name} dataset is there already")
    try:
        node = found.open(store)
    except IngotError as error:
        error.add_note("what cannot be read cannot be replaced: its files are not known")
        raise
    if not isinstance(node, ArrayNode):
        raise ExistsError(f"{place.name}: only arrays are replaced, this is none")
    return node.chunks.removed()

"""Opening and creating datasets: the one place that knows all stores and formats.

Knows which store a path means, which format a dataset has or shall have, and what of a caller's
wishes goes where. Refuses to move data: that is for the containers it returns.
"""

import builtins
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from numpy.typing import DTypeLike, NDArray

from ingot import creation
from ingot.array import Array, Mode
from ingot.attributes import converted
from ingot.columns import Chunks, ColumnsWish
from ingot.creation import Codec, Wish, create_array
from ingot.engine.run import Engine
from ingot.engines import opened
from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats.bcolz import BcolzFormat
from ingot.formats.detect import detect, looked_for
from ingot.formats.format import (
    ArrayNode,
    Format,
    GroupNode,
    Hierarchy,
    Node,
    Owner,
    TableFormat,
    TableNode,
)
from ingot.formats.paths import prefix
from ingot.formats.zarr0 import Zarr0Format
from ingot.formats.zarr1 import Zarr1Format
from ingot.formats.zarr2_groups import Zarr2Hierarchy
from ingot.formats.zarr3_groups import Zarr3Hierarchy
from ingot.group import Group, State, group_handle
from ingot.options import Options
from ingot.rows import arrays_of, check_lengths
from ingot.sheet import Sheet, created
from ingot.sheet import opened as opened_table
from ingot.stores import (
    Commit,
    Feature,
    FileStore,
    LocalStore,
    MemoryStore,
    Store,
    ZipStore,
    read_state,
)
from ingot.stores.dataset import WHOLE
from ingot.stores.state import change, read_numbered
from ingot.table import Table

__all__ = ["array", "create", "formats", "group", "open", "table"]

Path: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is: a path of the local file system, or a store."""

# In the order of detection: the marks of the last ones are the least certain.
_FORMATS: Final[Mapping[str, Format]] = {
    each.name: each
    for each in (
        Zarr3Hierarchy(),
        Zarr2Hierarchy(),
        BcolzFormat(),
        Zarr0Format(),
        Zarr1Format(),
    )
}

_OWNERS: Final = tuple(each for each in _FORMATS.values() if isinstance(each, Owner))

_DEFAULT: Final = "zarr3"
_DEFAULT_TABLE: Final = "bcolz"

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def open(
    path: Path, mode: Mode = "r", *, format: str | None = None, options: Options | None = None
) -> Array | Table | Group:
    """Open a dataset. What it is goes by its content, not by its name.

    Mode "r" never creates, changes or touches a file; "r+" allows changes. A member of a group is
    part of the whole that the outermost group is, and takes turns with it.

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
    place = _placed(path, format, writable=mode == "r+", quick=True)

    def find(view: Store) -> tuple[Format, Node]:
        chosen = _format(format) if format is not None else _detected(place, view)
        return chosen, chosen.open(view, place.inner)

    try:
        (chosen, node), number = read_numbered(place.store, find)
    except (FormatError, NotFoundError):
        whole = _placed(path, format, writable=mode == "r+")
        if whole.inner == place.inner:
            raise
        place = whole
        (chosen, node), number = read_numbered(place.store, find)
    options = options or Options()
    if isinstance(node, GroupNode) and isinstance(chosen, Hierarchy):
        first = State(place.store, node), number
        group = group_handle(chosen, place.store, place.inner, options, first=first)
        return Group(chosen, group, place.inner, path=place.path, mode=mode, options=options)
    if isinstance(node, TableNode):
        sheet = Sheet(node.table, options), number
        ledger = opened_table(chosen, place.store, place.inner, options, first=sheet)
        return Table(chosen, ledger, path=place.path, mode=mode)
    if not isinstance(node, ArrayNode):
        raise UnsupportedError(f"{place.name}: {type(node).__name__} is not supported")
    engine = Engine(node.chunks, options), number
    handle = opened(chosen, place.store, place.inner, options, first=engine)
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

    What exists is not touched, unless `overwrite` allows to replace an array or a table. Then the
    new one takes its place in one commit; files that are not the old one's stay. A group, or a
    folder with anything else in it, is never replaced.

    >>> array = create(shape=(1000, 1000), dtype="f4", codec="zlib:1", fill=float("nan"))
    >>> array.chunks, array[0, 0]
    ((500, 500), np.float32(nan))
    """
    wish = Wish(shape, dtype, chunks, codec, fill, format, attrs, overwrite, options, layout)
    return _created(path, wish, None)


def array(data: object, path: Path | None = None, **as_create: Any) -> Array:
    """Create an array that holds `data`; takes what `create` takes, but for the shape.

    The array appears when all of the data is stored.

    >>> array([[1, 2], [3, 4]], codec="zlib:9")[1]
    array([3, 4])
    """
    return _created(path, *Wish.of_data(data, as_create))


def group(
    path: Path | None = None,
    *,
    format: str | None = None,
    attrs: Mapping[str, object] | None = None,
    overwrite: bool = False,
    options: Options | None = None,
) -> Group:
    """Create a group, to which members are added; without a path, in memory.

    What exists is not touched, unless `overwrite` allows to replace an array, a table, or a group
    with all its members. Files that are not theirs stay.

    >>> root = group(attrs={"title": "ours"})
    >>> root.array("a/b", [1, 2])[0]
    np.int64(1)
    """
    place = _placed(MemoryStore() if path is None else path, format, writable=True)
    chosen = _format(format) if format is not None else place.owner or _format(_DEFAULT)
    if not isinstance(chosen, Hierarchy):
        raise UnsupportedError(f"{chosen.name} has no groups")
    described, options = converted(attrs or {}), options or Options()

    def build(store: Store) -> Commit:
        old = _in_the_way(place, store, overwrite=overwrite, groups=True)
        _, commit = chosen.create_group(store, place.inner, described)
        return commit if old is None else Commit(publish=(*old.edits, *commit.edits))

    _in_the_way(place, place.store, overwrite=overwrite, groups=True)  # Before a lock file is made.
    change(place.store, build, durability=options.durability)
    handle = group_handle(chosen, place.store, place.inner, options)
    return Group(chosen, handle, place.inner, path=place.path, mode="r+", options=options)


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

    What exists is not touched, unless `overwrite` allows to replace an array or a table, in one
    commit; files that are not the old one's stay.

    >>> table({"day": [1, 2], "quote": {"bid": [1.5, 1.6], "ask": [1.7, 1.8]}})["quote.ask"][:]
    array([1.7, 1.8])
    """
    chosen = _format(format or _DEFAULT_TABLE)
    if not isinstance(chosen, TableFormat):
        raise UnsupportedError(f"format {chosen.name} holds no tables")
    creation.check_layout(chosen, layout)
    place = _placed(MemoryStore() if path is None else path, chosen.name, writable=True)
    options = options or Options()
    given = arrays_of(columns)
    check_lengths(given)
    wish = ColumnsWish(chunks, codec, options=options, layout=layout)
    schema, described = wish.schema(chosen, given), converted(attrs or {})
    made: list[Sheet] = []

    def build(store: Store) -> Commit:
        old = _in_the_way(place, store, overwrite=overwrite, groups=False)
        sheet, commit = created(
            chosen, store, schema, given, described, options, place.inner, **layout
        )
        made.append(sheet)
        return commit if old is None else Commit(publish=(*old.edits, *commit.edits))

    def clear(store: Store) -> Commit:
        return _in_the_way(place, store, overwrite=overwrite, groups=False) or Commit()

    # Before a lock file is made.
    if creation.blocks(
        clear(place.store),
        chosen.create_table(place.store, schema, described, place.inner, **layout)[1],
    ):
        change(place.store, clear, durability=options.durability)
    number = change(place.store, build, durability=options.durability)
    ledger = opened_table(chosen, place.store, place.inner, options, first=(made[-1], number))
    return Table(chosen, ledger, path=place.path, mode="r+")


def formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that can be read and written, and what each of them holds.

    >>> formats()["zarr1"], formats()["zarr2"]
    (('array',), ('array', 'group'))
    """
    return {
        name: tuple(str(kind.name).lower() for kind in each.holds)
        for name, each in _FORMATS.items()
    }


@dataclass(frozen=True, slots=True)
class _Place:
    """The store that a path means, and how to speak of it."""

    store: Store
    path: str | None
    """None in memory."""
    file: str | None = None
    """The key of the only file, where the store is one."""
    inner: str = ""
    """Where in the store the dataset is, if it is part of a larger one."""
    owner: Format | None = None
    """The format of the larger one."""

    @classmethod
    def of(cls, path: Path, *, writable: bool) -> "_Place":
        if not isinstance(path, str | os.PathLike):
            return cls._of_store(path)
        if isinstance(path, str) and _URL.match(path):
            raise UnsupportedError(f"{path}: only local paths and stores can be opened")
        try:
            facts = os.stat(path)
        except FileNotFoundError:
            facts = None
        except NotADirectoryError:
            raise NotFoundError(f"{os.fspath(path)}: a part of the path is a file") from None
        if _is_zip(path, facts):
            return cls._of_store(ZipStore(path, writable=writable))
        if facts is None or stat.S_ISDIR(facts.st_mode):
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

    @property
    def name(self) -> str:
        return self.path if self.inner and self.path else self.store.location

    def is_empty(self) -> bool:
        # Without a listing only the formats' own marks could tell, and they were looked for.
        if self.file is not None or Feature.LIST not in self.store.features:
            return self.file is None
        # Folders alone are what a writer leaves that died early.
        folders = [prefix(self.inner)]
        while folders:
            folder = folders.pop()
            for name in self.store.names(folder):
                if not name.endswith("/"):
                    return False
                folders.append(folder + name)
        return True


def _placed(path: Path, format: str | None, *, writable: bool, quick: bool = False) -> _Place:
    """Return the place that a path means, in the whole that it is part of. A store is a whole."""
    place = _Place.of(path, writable=writable)
    given = not isinstance(path, str | os.PathLike)
    if given or not isinstance(place.store, LocalStore) or place.path is None:
        return place
    found = outermost(place.path, quick=quick)
    if found is None or (format is not None and format != found.owner.name):
        return place
    store = LocalStore(found.root, writable=writable)
    whole = replace(place, store=store, inner=found.inner, owner=found.owner)
    if format is None:
        # What lies there may be of another format, and on its own.
        view = read_state(store, lambda view: detect(view, _FORMATS.values(), path=found.inner))
        if view is not None and view is not found.owner:
            return place
    return whole


@dataclass(frozen=True, slots=True)
class Part:
    """A place inside of a dataset: the format and the folder of that, and the path to the place."""

    owner: Owner
    root: str
    inner: str


def outermost(folder: str, *, quick: bool = False) -> Part | None:
    """Return the largest dataset that a folder is part of; None when it is on its own.

    The dataset is the outermost folder whose parts reach to this one. Its lock and its journal are
    those of all of them. `quick` stops at the first folder without a mark, which is enough for what
    is there: only parts that a journal is yet to make may lie below such a folder, and those of
    formats that have such folders between.
    """
    place, inner = os.path.realpath(folder), ""
    found, owners = None, _OWNERS
    while owners:
        place, name = os.path.split(place)
        if not name:
            return found
        inner = f"{name}/{inner}" if inner else name
        having = [owner for owner in owners if _has_part(owner, place, inner)]
        if having:
            found = Part(having[-1], place, inner)
        elif quick:
            owners = tuple(owner for owner in owners if _reaches(owner, place))
    return found


def _reaches(owner: Owner, folder: str) -> bool:
    """Tell whether a folder may lie between a whole and its parts without a mark."""
    return owner.between is not None and f"/{owner.between}/" in f"{folder}/"


def _has_part(owner: Owner, folder: str, inner: str) -> bool:
    marks = [owner.mark]
    if owner.between is not None and inner.startswith(f"{owner.between}/"):
        # Folders like these need not be of a whole at all, unless a writer has taken it for one.
        marks.append(WHOLE.lock)
    if not any(os.access(f"{folder}/{mark}", os.F_OK) for mark in marks):
        return False
    try:
        return read_state(LocalStore(folder), lambda view: owner.has_part(view, inner))
    except (IngotError, OSError):
        return False  # Nothing that cannot be read is a whole that it would be part of.


def _is_zip(path: str | os.PathLike[str], facts: os.stat_result | None) -> bool:
    """Tell whether a path is an archive, by its content; by its suffix when it is yet to be."""
    if facts is None:
        return os.fspath(path).endswith(".zip")
    if not stat.S_ISREG(facts.st_mode):
        return False
    with builtins.open(path, "rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _format(name: str) -> Format:
    if name not in _FORMATS:
        raise UnsupportedError(f"format {name!r} is unknown; there is {', '.join(_FORMATS)}")
    return _FORMATS[name]


def _detected(place: _Place, view: Store) -> Format:
    found = detect(view, _FORMATS.values(), place.file, path=place.inner)
    if found is not None:
        return found
    sought = looked_for(_FORMATS.values())
    if not place.is_empty():
        raise FormatError(f"{place.name}: no dataset of a known format; looked for {sought}")
    if place.path is not None and not os.path.exists(place.path):
        raise NotFoundError(f"{place.name}: no such file or folder")
    raise NotFoundError(f"{place.name}: nothing is there; looked for {sought}")


def _created(path: Path | None, wish: Wish, items: NDArray[Any] | None = None) -> Array:
    place = _placed(MemoryStore() if path is None else path, wish.format, writable=True)
    chosen = _format(wish.format) if wish.format else place.owner or _format(_DEFAULT)

    def clear(store: Store) -> Commit | None:
        return _in_the_way(place, store, overwrite=wish.overwrite, groups=False)

    there = creation.Place(place.store, place.inner, place.path, clear)
    return create_array(chosen, there, wish, items)


def _in_the_way(place: _Place, store: Store, *, overwrite: bool, groups: bool) -> Commit | None:
    """Return the commit that removes what is there, if that is allowed; None if nothing is."""
    found = detect(store, _FORMATS.values(), place.file, path=place.inner)
    if found is None:
        if place.is_empty():
            return None
        raise ExistsError(f"{place.name}: there is something already, and no known dataset")
    if not overwrite:
        raise ExistsError(f"{place.name}: a {found.name} dataset is there already")
    try:
        node = found.open(store, place.inner)
    except IngotError as error:
        error.add_note("what cannot be read cannot be replaced: its files are not known")
        raise
    if isinstance(node, ArrayNode):
        return node.chunks.removed()
    if isinstance(node, TableNode):
        return node.table.removed()
    if not groups or not isinstance(found, Hierarchy):
        raise ExistsError(f"{place.name}: only arrays and tables are replaced, this is none")
    return found.removed(store, place.inner)

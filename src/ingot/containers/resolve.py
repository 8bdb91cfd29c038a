"""Where a path leads: a store, the dataset that is there, and what it is part of.

Knows which store a path means, and to which whole a folder belongs, whose lock and journal are
those of all its parts. Refuses to move data, and to know the containers that others make of it.
"""

import builtins
import functools
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeAlias, cast

from ingot.errors import (
    ExistsError,
    FormatError,
    IngotError,
    NotFoundError,
    UnsupportedError,
)
from ingot.formats import json
from ingot.formats.format import (
    ArrayNode,
    DocumentFormat,
    Format,
    GroupFormat,
    Node,
    Owner,
    TableNode,
)
from ingot.formats.paths import prefix
from ingot.formats.registry import FORMATS, OWNERS, detect, looked_for
from ingot.stores import Commit, Feature, FileStore, LocalStore, MemoryStore, Store, ZipStore
from ingot.stores.local.scope import WHOLE
from ingot.stores.store import Extent
from ingot.stores.versions import read_state, read_versioned, version_number

__all__ = [
    "Found",
    "Part",
    "Path",
    "Place",
    "find",
    "glance",
    "in_the_way",
    "named",
    "outermost",
    "placed",
]

Path: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is: a path of the local file system, or a store."""

# The formats whose datasets can be told at a glance, and what lies above a dataset of them that is
# part of another one.
_DOCUMENTED: Final = ("zarr3", "zarr2")
_MARKS: Final = [mark for name in _DOCUMENTED for mark in OWNERS[name][0]]

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


@dataclass(frozen=True, slots=True)
class Place:
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
    def of(cls, path: Path, *, writable: bool) -> "Place":
        """Return the place that a path means, on its own."""
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
    def _of_store(cls, store: Store) -> "Place":
        if not isinstance(store, Store):
            raise TypeError(f"a path or a store is needed, not {type(store).__name__}")
        if isinstance(store, MemoryStore):
            return cls(store, None)
        return cls(store, store.location, store.key if isinstance(store, FileStore) else None)

    @property
    def name(self) -> str:
        """What the place is called in messages."""
        return self.path if self.inner and self.path else self.store.location

    def is_empty(self) -> bool:
        """Tell whether no file is there."""
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


class Found(NamedTuple):
    """What lies at a path: where, of which format, what it is, and in which state of the store."""

    place: Place
    format: Format
    node: Node
    number: int | None


def find(path: Path, format: str | None, *, writable: bool) -> Found:
    """Return what lies at a path, of `format` if that is said; complain if it is nothing known."""
    place = placed(path, format, writable=writable, quick=True)
    if isinstance(place.store, LocalStore):
        place.store.check_journal()

    def read(view: Store) -> tuple[Format, Node]:
        chosen = named(format) if format is not None else _detected(place, view)
        return chosen, chosen.open(view, place.inner)

    try:
        (chosen, node), number = read_versioned(place.store, read)
    except (FormatError, NotFoundError):
        whole = placed(path, format, writable=writable)
        if whole.inner == place.inner:
            raise
        place = whole
        (chosen, node), number = read_versioned(place.store, read)
    return Found(place, chosen, node, number)


def glance(path: Path, format: str | None, *, writable: bool) -> Found | None:
    """Return what `find` would, in the usual case: a folder on its own, to which nobody writes.

    None means nothing: `find` knows more, and all about what is wrong.
    """
    if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
        return None
    names = _DOCUMENTED if format is None else (format,) if format in _DOCUMENTED else ()
    store = LocalStore(path, writable=writable)
    for name in names:
        seen = store.read_settled(_documents(name), above=_MARKS)
        if seen is None:
            return None
        number, found = seen
        chosen = cast(DocumentFormat, FORMATS[name])
        try:
            node = chosen.from_documents(store, "", found)
        except IngotError:
            return None
        # A group has read more than its documents, which the state must still be that of.
        if isinstance(node, ArrayNode) or (node and version_number(store.version()) == number):
            return Found(Place(store, store.root), chosen, node, number)
    return None


@functools.cache
def _documents(format: str) -> list[Extent]:
    documents = cast(DocumentFormat, FORMATS[format]).documents
    # One byte more than allowed tells that a document is too long without reading all of it.
    return [Extent(name, 0, json.LARGEST + 1) for name in documents]


def named(name: str) -> Format:
    """Return the format that has a name, or complain.

    >>> named("zarr1").name
    'zarr1'
    """
    if name not in FORMATS:
        raise UnsupportedError(f"format {name!r} is unknown; there is {', '.join(FORMATS)}")
    return FORMATS[name]


def placed(path: Path, format: str | None, *, writable: bool, quick: bool = False) -> Place:
    """Return the place that a path means, in the whole that it is part of. A store is a whole."""
    place = Place.of(path, writable=writable)
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
        view = read_state(store, lambda view: detect(view, FORMATS.values(), path=found.inner))
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
    found, owners = None, tuple(OWNERS)
    while owners:
        place, name = os.path.split(place)
        if not name:
            return found
        inner = f"{name}/{inner}" if inner else name
        having = [owner for owner in owners if _has_part(owner, place, inner)]
        if having:
            found = Part(cast(Owner, FORMATS[having[-1]]), place, inner)
        elif quick:
            owners = tuple(owner for owner in owners if _reaches(owner, place))
    return found


def _reaches(name: str, folder: str) -> bool:
    """Tell whether a folder may lie between a whole and its parts without a mark."""
    _, between = OWNERS[name]
    return between is not None and f"/{between}/" in f"{folder}/"


def _has_part(name: str, folder: str, inner: str) -> bool:
    marks, between = OWNERS[name]
    if between is not None and inner.startswith(f"{between}/"):
        # Folders like these need not be of a whole at all, unless a writer has taken it for one.
        marks = (*marks, WHOLE.lock)
    if not any(os.access(f"{folder}/{mark}", os.F_OK) for mark in marks):
        return False
    owner = cast(Owner, FORMATS[name])
    store = LocalStore(folder)
    with suppress(IngotError, OSError):
        return read_state(store, lambda view: owner.has_part(view, inner))
    # Of a whole with a damaged journal it is still a part: who opens it is to be told of that.
    with suppress(IngotError, OSError):
        return owner.has_part(store, inner)
    return False  # Nothing that cannot be read is a whole that it would be part of.


def _is_zip(path: str | os.PathLike[str], facts: os.stat_result | None) -> bool:
    """Tell whether a path is an archive, by its content; by its suffix when it is yet to be."""
    if facts is None:
        return os.fspath(path).endswith(".zip")
    if not stat.S_ISREG(facts.st_mode):
        return False
    with builtins.open(path, "rb") as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def _detected(place: Place, view: Store) -> Format:
    found = detect(view, FORMATS.values(), place.file, path=place.inner)
    if found is not None:
        return found
    sought = looked_for(FORMATS.values())
    if not place.is_empty():
        raise FormatError(f"{place.name}: no dataset of a known format; looked for {sought}")
    if place.path is not None and not os.path.exists(place.path):
        raise NotFoundError(f"{place.name}: no such file or folder")
    raise NotFoundError(f"{place.name}: nothing is there; looked for {sought}")


def in_the_way(place: Place, store: Store, *, overwrite: bool, groups: bool) -> Commit | None:
    """Return the commit that removes what is there, if that is allowed; None if nothing is."""
    listed = Feature.LIST in place.store.features
    if listed and place.is_empty():
        return None
    found = detect(store, FORMATS.values(), place.file, path=place.inner)
    if found is None:
        if not listed and place.is_empty():
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
    if not groups or not isinstance(found, GroupFormat):
        raise ExistsError(f"{place.name}: only arrays and tables are replaced, this is none")
    return found.removed(store, place.inner)

"""Where a path leads: the store, the format of the dataset, and the dataset that encloses it.

A dataset may be part of another one, whose lock and journal are those of all its parts; such a
dataset is opened as a part of the outermost one. This module moves no data and makes no containers.
"""

import builtins
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from ingot._lazy import deferred
from ingot.errors import (
    ArgumentError,
    ArgumentTypeError,
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
    EnclosingFormat,
    Format,
    GroupFormat,
    Kind,
    NamingFormat,
    Node,
    RaggedNode,
    TableNode,
    stated_format,
)
from ingot.formats.paths import prefix
from ingot.formats.registry import (
    FORMATS,
    FormatEntry,
    describe_search,
    detect,
    detect_folder,
    entry_of_suffix,
    format_named,
)
from ingot.formats.signatures import (
    SIGNATURE_BYTES,
    is_imported,
    recognised,
    suffix_of_others,
)
from ingot.stores import (
    Commit,
    Feature,
    FileStore,
    LocalStore,
    MemoryStore,
    Store,
    ZipStore,
)
from ingot.stores.local.files import FolderProbe, ProbedFiles
from ingot.stores.local.scope import WHOLE
from ingot.stores.store import Extent
from ingot.stores.versions import read_state, read_versioned

if TYPE_CHECKING:
    from ingot.stores.objects import store as objects
    from ingot.stores.objects import url as urls
    from ingot.stores.objects.url import ObjectURL
else:
    objects = deferred("ingot.stores.objects.store")
    urls = deferred("ingot.stores.objects.url")

__all__ = [
    "Address",
    "DatasetPath",
    "EnclosingDataset",
    "FoundDataset",
    "NewDataset",
    "Path",
    "RemotePath",
    "detect_dataset",
    "find_enclosing",
    "open_complete",
    "open_fast",
    "remove_existing",
    "resolve_new",
    "resolve_store",
    "with_settings",
]

Path: TypeAlias = str | os.PathLike[str] | Store
"""Where a dataset is: a path of the local file system, the address of a store, or a store."""


@dataclass(frozen=True, slots=True)
class RemotePath:
    """The address of an object store, with the settings to reach it (`Options.storage`)."""

    url: str
    storage: Mapping[str, object] = field(default_factory=dict, repr=False)


Address: TypeAlias = Path | RemotePath


def with_settings(path: Path, storage: Mapping[str, object]) -> Address:
    """Return a path as it is, and an address of an object store with settings to reach it.

    >>> with_settings("prices", {}), with_settings("s3://data/prices", {"region": "eu-1"})
    ('prices', RemotePath(url='s3://data/prices'))
    """
    return RemotePath(path, storage) if isinstance(path, str) and "://" in path else path


class DatasetPath(NamedTuple):
    """The store that a path means, and where in the store the dataset is."""

    store: Store
    path: str | None
    """The path as users read it; None in memory."""
    file: str | None = None
    """The key of the file, where the dataset is a single file."""
    inner: str = ""
    """What `Format.open` takes: the path in a larger dataset, or the key of a single file."""
    enclosing: Format | None = None
    """The format of the larger dataset."""
    likely: FormatEntry | None = None
    """The format that a suffix names and whose documents were found at the place."""

    @classmethod
    def of(cls, path: Address, *, writable: bool) -> "DatasetPath":
        """Return the store that a path means, without regard to enclosing datasets."""
        if isinstance(path, str):
            path = with_settings(path, {})
        if isinstance(path, RemotePath):
            return _remote_place(_url(path), writable=writable)
        if not isinstance(path, str | os.PathLike):
            return cls._of_store(path)
        if not os.fspath(path):
            raise ArgumentError("the path is empty; '.' is the current folder")
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
        file = FileStore(path, writable=writable)
        return cls(file, file.location, file.key, file.key)

    @classmethod
    def _of_store(cls, store: Store) -> "DatasetPath":
        if not isinstance(store, Store):
            raise ArgumentTypeError(f"a path or a store is needed, not {type(store).__name__}")
        if isinstance(store, MemoryStore):
            return cls(store, None)
        # A store of one file says which.
        key: str | None = getattr(store, "key", None)
        return cls(store, store.location, key, key or "")

    @property
    def name(self) -> str:
        """What messages call the dataset."""
        return self.path if self.inner and self.path else self.store.location

    def is_empty(self) -> bool:
        """Return whether no file lies at the path."""
        if self.file is not None:
            return self.store.size(self.file) is None
        # A store that cannot list has only the markers of formats, and the caller looked for them.
        if Feature.LIST not in self.store.features:
            return True
        # Folders without files are what a writer leaves that died early.
        folders = [prefix(self.inner)]
        while folders:
            folder = folders.pop()
            for name in self.store.names(folder):
                if not name.endswith("/"):
                    return False
                folders.append(folder + name)
        return True


class FoundDataset(NamedTuple):
    """A dataset that was found: where, its format, what it is, and the version it was read at."""

    place: DatasetPath
    format: Format
    node: Node
    number: int | None


def open_fast(path: Address, format: str | None, *, writable: bool) -> FoundDataset | None:
    """Return what `open_complete` returns, in the usual case, by one probe for all formats.

    The usual case is a folder of its own that no writer is changing. None says nothing about the
    dataset: `open_complete` then finds it, or reports what is wrong.
    """
    if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
        return None
    if format is not None and format not in FORMATS.entries:
        return None
    plan = _probe_plan(FORMATS.revision, format)
    if os.fspath(path).endswith(plan.single):
        return None
    store = LocalStore(path, writable=writable)
    read = store.read_settled(plan.probe)
    if read is None:
        return None
    number, found = read
    if found is None:
        return None
    group, contents, real = found
    entry, names = plan.groups[group]
    if entry is None or (
        entry.between and _may_be_enclosed(real or os.path.realpath(store.root), entry.between)
    ):
        return None
    chosen = cast(DocumentFormat, FORMATS[entry.name])
    documents = dict(zip(names, contents, strict=False))
    complete = False
    try:
        if names[0] in entry.naming:
            complete = _take_further(plan.probe, cast(NamingFormat, chosen), found, documents)
        node = chosen.from_documents(store, "", documents)
    except IngotError:
        return None
    if node is None:
        return None
    # Groups and tables may have read more than that: the version must still be the same.
    sure = complete or isinstance(node, ArrayNode)
    if not sure and not store.version_probe().confirms(number):
        return None
    return FoundDataset(DatasetPath(store, store.root), _own_format(chosen, node), node, number)


def _take_further(
    probe: FolderProbe,
    format: NamingFormat,
    found: ProbedFiles,
    documents: dict[str, bytes | None],
) -> bool:
    """Add the documents that were read because others name them; return whether all are there.

    If they were not read, the probe reads them the next time it finds the same names.
    """
    further = format.named(documents)
    if further is None:
        return False
    group, contents, _ = found
    read = contents[len(documents) :]
    if not read:
        probe.name_further(group, cast(bytes, contents[0]), further)
        return False
    documents.update(zip((extent.key for extent in further), read, strict=True))
    return None not in read


class _ProbePlan(NamedTuple):
    """What one probe reads, and whose documents each group of files is."""

    probe: FolderProbe
    groups: tuple[tuple[FormatEntry | None, tuple[str, ...]], ...]
    single: tuple[str, ...]
    """The suffixes of single files."""


@lru_cache(maxsize=64)
def _probe_plan(revision: int, format: str | None) -> _ProbePlan:
    """Return the plan for one format or for all; `revision` is that of the registry."""
    entries = FORMATS.entries
    chosen = list(entries.values()) if format is None else [entries[format]]
    groups = tuple(group for entry in chosen for group in _probe_groups(entry))
    # One byte more than allowed shows that a document is too long without reading all of it.
    files = [[Extent(name, 0, json.LARGEST + 1) for name in names] for _, names in groups]
    above = [mark for entry in entries.values() for mark in entry.encloses]
    resolved = [number for number, (entry, _) in enumerate(groups) if entry and entry.between]
    single = tuple(suffix for entry in chosen if entry.is_file for suffix in entry.suffixes)
    return _ProbePlan(FolderProbe(files, above, resolved), groups, single)


def _probe_groups(entry: FormatEntry) -> Iterator[tuple[FormatEntry | None, tuple[str, ...]]]:
    yield from ((entry, group) for group in entry.documents)
    # Any other marker decides for the format too, and leaves the rest to the complete way.
    first = {group[0] for group in entry.documents}
    yield from ((None, (marker,)) for marker in entry.markers if marker not in first)


def _may_be_enclosed(folder: str, between: str) -> bool:
    """Return whether a folder may be part of a dataset that is not the folder directly above.

    `folder` is a path without symbolic links.
    """
    return f"/{between}/" in folder and find_enclosing(folder, quick=True) is not None


def open_complete(path: Address, format: str | None, *, writable: bool) -> FoundDataset:
    """Return the dataset at a path, of `format` if that is given; raise if there is none."""
    place = resolve_store(path, format, writable=writable, quick=True)
    if isinstance(place.store, LocalStore):
        place.store.check_journal()

    def read(view: Store) -> tuple[DatasetPath, Format, Node]:
        if format is None:
            return _open_detected(place, view)
        chosen, found = format_named(format), place
        if _may_be_file(FORMATS.entries[format], place, view):
            found = _with_file(place, view)
        return found, chosen, chosen.open(view, found.inner)

    try:
        found, number = read_versioned(place.store, read)
    except (FormatError, NotFoundError):
        whole = resolve_store(path, format, writable=writable)
        if whole.inner == place.inner:
            raise
        place = whole
        found, number = read_versioned(place.store, read)
    return FoundDataset(*found, number)


class NewDataset(NamedTuple):
    """Where a new dataset goes: its format, and its path in the store of `place`.

    `place` says what is there already.
    """

    place: DatasetPath
    format: Format
    inner: str


def resolve_new(path: Address | None, format: str | None, kind: Kind, default: str) -> NewDataset:
    """Return where a new dataset of a kind goes, and its format.

    The format is the given one, or that of the suffix, or that of the group around the path, or the
    default. A member of a group has the format of its group, whatever its suffix, if the format of
    the suffix has groups too.
    """
    if isinstance(path, str):
        path = with_settings(path, {})
    place = resolve_store(MemoryStore() if path is None else path, format, writable=True)
    entry = None
    if format is None and place.path is not None:
        entry = entry_of_suffix(place.path)
        if entry is not None and place.enclosing is not None and Kind.GROUP in entry.holds:
            entry = None
    if entry is not None:
        assert path is not None
        place = resolve_store(path, entry.name, writable=True)
        chosen = FORMATS[entry.name]
    elif format is not None:
        chosen = format_named(format)
    elif place.enclosing is not None and kind in place.enclosing.holds:
        chosen = place.enclosing
    else:
        foreign = None if place.path is None else suffix_of_others(place.path)
        if foreign is not None:
            raise UnsupportedError(
                f"{place.name}: {foreign[0]} is the suffix of {foreign[1]}, which is no format of "
                "datasets here; `ingot export` writes some of these files, and format= makes a "
                "dataset of this name"
            )
        chosen = format_named(default)
    if kind not in chosen.holds:
        what = "items alone" if kind is Kind.RAGGED else f"{str(kind.name).lower()}s"
        by = "" if entry is None else f"{place.name}: by its suffix, "
        raise UnsupportedError(f"{by}format {chosen.name} holds no {what}")
    return _new_place(path, place, FORMATS.entries[chosen.name], chosen)


def _new_place(
    path: Address | None, place: DatasetPath, entry: FormatEntry, chosen: Format
) -> NewDataset:
    given = not isinstance(path, str | os.PathLike)
    if not entry.is_file:
        if isinstance(place.store, FileStore) and not given:
            raise ExistsError(f"{place.name}: a file is there already, {entry.name} needs a folder")
        return NewDataset(place, chosen, place.inner)
    if isinstance(place.store, LocalStore) and not given:
        assert place.path is not None
        if os.path.isdir(place.path):
            raise ExistsError(f"{place.name}: a folder is there already, {entry.name} is a file")
        place = DatasetPath._of_store(FileStore(place.path, writable=True))
    if isinstance(path, RemotePath) and place.file is None and _url(path).path:
        place = _remote_file(_url(path), writable=True)
    if place.file is not None:
        return NewDataset(place, chosen, place.file)
    there = _with_file(place, place.store)
    if there.file is not None:
        return NewDataset(there, chosen, there.file)
    name = os.path.basename(place.path or "").removesuffix(".zip")
    own = any(name.endswith(suffix) and name != suffix for suffix in entry.suffixes)
    return NewDataset(place, chosen, name if own else _default_file(entry))


def _may_be_file(entry: FormatEntry, place: DatasetPath, view: Store) -> bool:
    """Return whether a dataset of a format may be the only file in a store."""
    if not entry.is_folder or place.file is not None:
        return entry.matches is not None
    return entry.matches is not None and detect(view, [entry], path=place.inner) is None


def _default_file(entry: FormatEntry) -> str:
    """Return the key that a single file gets in a store that does not name it."""
    return f"data{(*entry.suffixes, '')[0]}"


def _default_files(store: Store) -> list[str]:
    """Return the default keys of single files that a store has."""
    names = [_default_file(entry) for entry in FORMATS.entries.values() if entry.is_file]
    found = store.read([Extent(name, 0, 1) for name in names])
    return [name for name, data in zip(names, found, strict=True) if data is not None]


def _with_file(place: DatasetPath, view: Store) -> DatasetPath:
    """Return a place with the key of the only file in its store; the same place without one."""
    if place.file is not None or place.inner:
        return place
    names = list(view.names()) if Feature.LIST in view.features else _default_files(view)
    if len(names) != 1 or names[0].endswith("/"):
        return place
    return place._replace(file=names[0], inner=names[0])


def resolve_store(
    path: Address, format: str | None, *, writable: bool, quick: bool = False
) -> DatasetPath:
    """Return the store that a path means: that of the enclosing dataset, if there is one.

    A store that is given as such is never part of a larger one.
    """
    place = DatasetPath.of(path, writable=writable)
    given = not isinstance(path, str | os.PathLike)
    if given or not isinstance(place.store, LocalStore) or place.path is None:
        return place
    found = find_enclosing(place.path, quick=quick)
    if found is None or (format is not None and format != found.format.name):
        return place
    store = LocalStore(found.root, writable=writable)
    if format is None:
        # A dataset of another format is not a part, wherever it lies.
        entries = FORMATS.entries.values()
        entry = read_state(store, lambda view: detect(view, entries, path=found.inner))
        if entry is not None and entry.name != found.format.name:
            return place
    return place._replace(store=store, inner=found.inner, enclosing=found.format)


def _url(path: RemotePath) -> "ObjectURL":
    return urls.ObjectURL.parse(path.url, path.storage)


def _remote_place(url: "ObjectURL", *, writable: bool) -> DatasetPath:
    """Return the store that an address means, and the larger dataset that it is part of.

    One batch of requests finds the documents of the dataset, those of the groups and tables around
    it, and whether the address is that of a single object.
    """
    store = objects.ObjectStore.from_url(url, writable=writable)
    named = entry_of_suffix(url.path)
    if named is not None and named.documents:
        existing = _load_ahead(store, url, (named,))
        if not existing.isdisjoint(prefix(url.path) + marker for marker in named.markers):
            return _enclosed(url, (named,), existing, writable=writable) or DatasetPath(
                store, str(url), likely=named
            )
    entries = tuple(FORMATS.entries.values())
    existing = _load_ahead(store, url, entries)
    # A web server has a page for a folder, too.
    inside = prefix(url.path)
    if url.path in existing and not any(inside and key.startswith(inside) for key in existing):
        return _remote_file(url, writable=writable)
    return _enclosed(url, entries, existing, writable=writable) or DatasetPath(store, str(url))


def _load_ahead(
    store: "objects.ObjectStore", url: "ObjectURL", entries: Sequence[FormatEntry]
) -> frozenset[str]:
    """Fetch the documents of formats at an address, and return what exists there and around it."""
    names = [name for entry in entries for group in entry.documents for name in group]
    names += [marker for entry in entries for marker in entry.markers]
    marks = sorted({mark for entry in entries for mark in entry.encloses})
    above = [prefix(folder) + mark for folder in _folders_above(url.path) for mark in marks]
    own = [url.path] if url.path and any(entry.is_file for entry in entries) else []
    return store.load_ahead(names, json.LARGEST + 1, beyond=[*own, *above])


def _enclosed(
    url: "ObjectURL", entries: Sequence[FormatEntry], existing: frozenset[str], *, writable: bool
) -> DatasetPath | None:
    """Return the place of a dataset as a part of the outermost one that has it; None without."""
    for folder in _folders_above(url.path):
        inner = url.path[len(prefix(folder)) :]
        for entry in entries:
            if any(prefix(folder) + mark in existing for mark in entry.encloses):
                outer = objects.ObjectStore.from_url(url.at(folder), writable=writable)
                if _encloses(outer, entry, inner):
                    return DatasetPath(outer, str(url), None, inner, FORMATS[entry.name])
    return None


def _remote_file(url: "ObjectURL", *, writable: bool) -> DatasetPath:
    """Return the place of a dataset that is one object."""
    folder, _, name = url.path.rpartition("/")
    store = objects.ObjectStore.from_url(url.at(folder), file=name, writable=writable)
    return DatasetPath(store, str(url), name, name)


def _folders_above(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, the outermost first.

    >>> list(_folders_above("a/b/c"))
    ['', 'a', 'a/b']
    """
    parts = path.split("/") if path else []
    for count in range(len(parts)):
        yield "/".join(parts[:count])


def _encloses(store: Store, entry: FormatEntry, inner: str) -> bool:
    """Return whether the dataset of a store has a part, which no other format claims."""
    format = cast(EnclosingFormat, FORMATS[entry.name])
    if not read_state(store, lambda view: format.has_part(view, inner)):
        return False
    found = read_state(store, lambda view: detect(view, FORMATS.entries.values(), path=inner))
    return found is None or found.name == entry.name


class EnclosingDataset(NamedTuple):
    """The dataset that a folder is part of: its format, its folder, and the path from there."""

    format: EnclosingFormat
    root: str
    inner: str


def find_enclosing(folder: str, *, quick: bool = False) -> EnclosingDataset | None:
    """Return the largest dataset that a folder is part of; None when the folder is on its own.

    The dataset is the outermost folder whose parts reach to this one. Its lock and its journal are
    those of all parts. `quick` stops at the first folder without a marker, which is enough for
    datasets that exist: only parts that a journal is yet to make may lie below such a folder, and
    parts of formats that have folders without a marker between a dataset and its parts.
    """
    place, inner = os.path.realpath(folder), ""
    entries = [entry for entry in FORMATS.entries.values() if entry.encloses]
    found = None
    while entries:
        place, name = os.path.split(place)
        if not name:
            return found
        inner = f"{name}/{inner}" if inner else name
        having = [entry for entry in entries if _has_part(entry, place, inner)]
        if having:
            format = cast(EnclosingFormat, FORMATS[having[-1].name])
            found = EnclosingDataset(format, place, inner)
        elif quick:
            entries = [entry for entry in entries if _reaches(entry, place)]
    return found


def _reaches(entry: FormatEntry, folder: str) -> bool:
    """Return whether a folder may lie between a dataset and its parts without a marker."""
    return entry.between is not None and f"/{entry.between}/" in f"{folder}/"


def _has_part(entry: FormatEntry, folder: str, inner: str) -> bool:
    marks = entry.encloses
    if entry.between is not None and inner.startswith(f"{entry.between}/"):
        # Only a lock file distinguishes a dataset without a marker from any other folder.
        marks = (*marks, WHOLE.lock)
    if not any(os.access(f"{folder}/{mark}", os.F_OK) for mark in marks):
        return False
    format = cast(EnclosingFormat, FORMATS[entry.name])
    store = LocalStore(folder)
    with suppress(IngotError, OSError):
        return read_state(store, lambda view: format.has_part(view, inner))
    # A dataset with a damaged journal has the same parts; opening one then reports the journal.
    with suppress(IngotError, OSError):
        return format.has_part(store, inner)
    return False  # A dataset that cannot be read has no parts.


def _is_zip(path: str | os.PathLike[str], facts: os.stat_result | None) -> bool:
    """Return whether a path is an archive: by its content, or by its suffix when it is absent."""
    if facts is None:
        return os.fspath(path).endswith(".zip")
    if not stat.S_ISREG(facts.st_mode):
        return False
    with builtins.open(path, "rb", buffering=0) as file:
        return file.read(4) in (b"PK\x03\x04", b"PK\x05\x06")


def detect_dataset(path: Address) -> FormatEntry | None:
    """Return the format of the dataset at a path; None if there is none.

    Only its markers are read: the dataset may be damaged.

    >>> detect_dataset("/") is None
    True
    """
    place = DatasetPath.of(path, writable=False)
    return read_state(place.store, lambda view: _detected(place, view)[1])


def _detected(
    place: DatasetPath, view: Store
) -> tuple[DatasetPath, FormatEntry | None, Mapping[str, bytes | None] | None]:
    """Return where the dataset at a path is, its format by its content, and its documents."""
    entries = FORMATS.entries.values() if place.likely is None else (place.likely,)
    entry = documents = None
    if place.file is None:
        entry, documents = detect_folder(view, entries, place.inner) or (None, None)
    if entry is None and (place.file is not None or not isinstance(place.store, LocalStore)):
        found = _with_file(place, view)
        if found.file is not None:
            entry, place = detect(view, entries, found.file), found
    return place, entry, documents


def _open_detected(place: DatasetPath, view: Store) -> tuple[DatasetPath, Format, Node]:
    """Return the dataset at a path and its format, which its content decides."""
    place, entry, documents = _detected(place, view)
    if entry is not None:
        chosen = FORMATS[entry.name]
        node = None
        if documents is not None:
            node = cast(DocumentFormat, chosen).from_documents(view, place.inner, documents)
        if node is None:
            node = chosen.open(view, place.inner)
        return place, _own_format(chosen, node), node
    sought = describe_search(FORMATS.entries.values())
    if not place.is_empty():
        looks = _looks(place, view)
        raise FormatError(f"{place.name}: no dataset of a known format{looks}; looked for {sought}")
    if place.path is not None and not os.path.exists(place.path):
        raise NotFoundError(f"{place.name}: no such file or folder")
    raise NotFoundError(f"{place.name}: nothing is there; looked for {sought}")


def _looks(place: DatasetPath, view: Store) -> str:
    """Return what a single file looks like, for a message."""
    if place.file is None:
        return ""
    name = recognised(view.read([Extent(place.file, 0, SIGNATURE_BYTES)])[0] or b"")
    looks = "" if name is None else f", it looks like {name}"
    inside = isinstance(place.store, ZipStore)
    if looks and inside:
        looks = f", {place.file!r} in it looks like {name}"
    if is_imported(place.name):
        looks += "; `ingot import` makes a dataset of it"
    return looks


def _own_format(chosen: Format, node: Node) -> Format:
    """Return the format that a dataset is of: where several have one marker, it states its own."""
    stated = stated_format(node)
    return chosen if stated is None else FORMATS[stated]


def remove_existing(
    place: DatasetPath,
    store: Store,
    *,
    overwrite: bool,
    groups: bool,
    hint: str = "overwrite=True replaces it",
) -> Commit | None:
    """Return the commit that removes the dataset at a path; None when no file is there.

    Raises `ExistsError`, with a hint, when `overwrite` does not allow it, and for what is never
    replaced: files that are no dataset, and groups unless `groups`.
    """
    listed = Feature.LIST in place.store.features
    if listed and place.is_empty():
        return None
    entry = detect(store, FORMATS.entries.values(), place.file, path=place.inner)
    if entry is None:
        if not listed and place.is_empty():
            return None
        raise ExistsError(f"{place.name}: there is something already, and no known dataset")
    if not overwrite:
        raise ExistsError(f"{place.name}: a {entry.name} dataset is there already; {hint}")
    found = FORMATS[entry.name]
    try:
        node = found.open(store, place.inner)
    except IngotError as error:
        error.add_note("what cannot be read cannot be replaced: its files are not known")
        raise
    if isinstance(node, ArrayNode):
        return node.chunks.removed()
    if isinstance(node, TableNode):
        return node.table.removed()
    if isinstance(node, RaggedNode):
        return node.packs.removed()
    if not groups or not isinstance(found, GroupFormat):
        raise ExistsError(f"{place.name}: only arrays, tables and items are replaced, this is none")
    return found.removed(store, place.inner)

"""The formats: one declarative entry for each, and detection by content.

An entry says all that is needed to recognise a dataset of its format, so that detection loads no
code of any format. The code is loaded when a dataset of the format is opened or created.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from ingot._lazy import load
from ingot.errors import ArgumentError, UnsafeError, UnsupportedError
from ingot.formats import json
from ingot.formats.format import Format, Kind
from ingot.formats.paths import prefix
from ingot.stores.store import Extent, Feature, Store, check_key

__all__ = [
    "FORMATS",
    "DetectedFolder",
    "FormatEntry",
    "FormatRegistry",
    "FormatsPackage",
    "describe_search",
    "detect",
    "detect_folder",
    "entry_of_suffix",
    "format_named",
    "list_formats",
    "register",
    "unregister",
]


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """What is known of a format before its code is loaded.

    A dataset is a folder in which one of the `markers` lies, or a single file that `matches`
    recognises by its first `head` and last `tail` bytes; new datasets of a format that has both are
    folders. Code is named as "module:name".

    >>> FormatEntry("toy", "toy.format:ToyFormat", Kind.ARRAY, markers=("toy.json",)).is_folder
    True
    >>> FormatEntry("toy", "toy.format", Kind.ARRAY)
    Traceback (most recent call last):
    ingot.errors.ArgumentError: format 'toy': 'toy.format' is not of the form "module:name"
    """

    name: str
    """What users call the format."""
    home: str
    """The class that implements `ingot.formats.format.Format`."""
    holds: Kind
    """What datasets of the format can be."""
    markers: tuple[str, ...] = ()
    """Names of files of which at least one lies in the folder of a dataset."""
    documents: tuple[tuple[str, ...], ...] = ()
    """The files that `from_documents` takes, in groups. Each group begins with a marker; the other
    files are read when the marker is present. Without groups, `open` alone opens datasets."""
    naming: tuple[str, ...] = ()
    """The first files of groups that name further documents, by `NamingFormat.named`."""
    suffixes: tuple[str, ...] = ()
    """The suffixes that paths of datasets of the format usually have."""
    head: int = 0
    """How many of the first bytes of a file `matches` takes."""
    tail: int = 0
    """How many of the last bytes of a file `matches` takes."""
    matches: str | None = None
    """The function that recognises a single file, given its first and its last bytes."""
    looks: str | None = None
    """The function that recognises a folder without a marker, given the store and the folder."""
    encloses: tuple[str, ...] = ()
    """Names of files of which one lies in every dataset that has other datasets as its parts."""
    between: str | None = None
    """The name of folders that may lie between a dataset and its parts without a marker. A folder
    that contains such a folder may enclose datasets without a marker, once it has a lock file."""

    def __post_init__(self) -> None:
        for code in (self.home, self.matches, self.looks):
            if code is not None and not all(code.partition(":")):
                raise ArgumentError(
                    f'format {self.name!r}: {code!r} is not of the form "module:name"'
                )
        for group in self.documents:
            if group[0] not in self.markers:
                raise ArgumentError(f"format {self.name!r}: {group[0]!r} is not one of its markers")
            for name in group:
                check_key(name)
        for name in (*self.markers, *self.encloses):
            check_key(name)

    @property
    def is_folder(self) -> bool:
        """Whether datasets of the format are folders."""
        return bool(self.markers) or self.looks is not None

    @property
    def is_file(self) -> bool:
        """Whether new datasets of the format are single files."""
        return self.matches is not None and not self.is_folder

    def load(self) -> Format:
        """Return the format, after loading its code."""
        return cast(Format, _load(self.home)())

    def matches_file(self, head: bytes, tail: bytes) -> bool:
        """Return whether a file with these first and last bytes is a dataset of the format."""
        return self.matches is not None and bool(_load(self.matches)(head, tail))

    def matches_folder(self, store: Store, folder: str) -> bool:
        """Return whether a folder without a marker is a dataset of the format."""
        return self.looks is not None and bool(_load(self.looks)(store, folder))


# In the order of detection: the later a format, the less certain its markers.
_BUILT_IN: Final = (
    FormatEntry(
        "zarr3",
        "ingot.formats.zarr.v3_groups:Zarr3GroupFormat",
        Kind.ARRAY | Kind.GROUP,
        markers=("zarr.json",),
        documents=(("zarr.json",),),
        suffixes=(".zarr",),
        encloses=("zarr.json",),
    ),
    FormatEntry(
        "zarr2",
        "ingot.formats.zarr.v2_groups:Zarr2GroupFormat",
        Kind.ARRAY | Kind.GROUP,
        markers=(".zarray", ".zgroup"),
        documents=((".zarray", ".zattrs"), (".zgroup", ".zattrs")),
        encloses=(".zgroup",),
    ),
    FormatEntry(
        "blsk",
        "ingot.formats.blsk.format:BlskFormat",
        Kind.ARRAY | Kind.TABLE | Kind.RAGGED,
        markers=("meta/nrows",),
        documents=(("meta/nrows", "meta/storage", "meta/attributes"),),
        suffixes=(".blsk",),
        head=8,
        matches="ingot.formats.blsk.lone_file:is_super_chunk",
        encloses=("shards.json",),
    ),
    FormatEntry(
        "bcolz",
        "ingot.formats.bcolz.format:BcolzFormat",
        Kind.ARRAY | Kind.TABLE | Kind.RAGGED,
        markers=("__rootdirs__", "meta/sizes", "meta/storage", "shards.json"),
        documents=(
            ("__rootdirs__", "__attrs__"),
            ("meta/sizes", "meta/storage", "__attrs__"),
            ("shards.json",),
        ),
        naming=("__rootdirs__",),
        suffixes=(".bcolz",),
        looks="ingot.formats.bcolz.table:is_data_layout",
        encloses=("__rootdirs__", "shards.json"),
        between="data",
    ),
    FormatEntry(
        "zarr0",
        "ingot.formats.zarr.v0:Zarr0Format",
        Kind.ARRAY,
        markers=("__zmeta__",),
        documents=(("__zmeta__", "__zattr__"),),
    ),
    FormatEntry(
        "zarr1",
        "ingot.formats.zarr.v1:Zarr1Format",
        Kind.ARRAY,
        markers=("meta",),
        documents=(("meta", "attrs"),),
    ),
    FormatEntry(
        "bloscpack",
        "ingot.formats.bloscpack.format:BloscpackFormat",
        Kind.ARRAY,
        suffixes=(".blp",),
        head=8,
        matches="ingot.formats.bloscpack.header:is_bloscpack",
    ),
    FormatEntry(
        "varlen",
        "ingot.formats.varlen.format:VarlenFormat",
        Kind.RAGGED,
        suffixes=(".blv",),
        head=8,
        matches="ingot.formats.varlen.header:is_varlen",
    ),
)


class FormatRegistry(Mapping[str, Format]):
    """All formats by their names, in the order of detection; looking one up loads it.

    >>> registry = FormatRegistry(_BUILT_IN)
    >>> list(registry)[:2], registry["zarr1"].name
    (['zarr3', 'zarr2'], 'zarr1')
    """

    __slots__ = ("_entries", "_loaded", "revision")

    def __init__(self, entries: Iterable[FormatEntry] = ()) -> None:
        self._entries: dict[str, FormatEntry] = {entry.name: entry for entry in entries}
        self._loaded: dict[str, Format] = {}
        self.revision = 0
        """Another number after every change of the registry."""

    @property
    def entries(self) -> Mapping[str, FormatEntry]:
        """The entries by name, in the order of detection."""
        return self._entries

    def register(self, entry: FormatEntry) -> None:
        """Add a format; it is detected after all others.

        >>> registry = FormatRegistry(_BUILT_IN)
        >>> registry.register(FormatEntry("toy", "toy.format:ToyFormat", Kind.ARRAY))
        >>> list(registry)[-1]
        'toy'
        """
        if entry.name in self._entries:
            raise ArgumentError(f"there is a format {entry.name!r} already")
        # Another mapping, since other threads may be walking through this one.
        self._entries = {**self._entries, entry.name: entry}
        self.revision += 1

    def unregister(self, name: str) -> None:
        """Remove a format that was added."""
        self._entries = {each: entry for each, entry in self._entries.items() if each != name}
        self._loaded.pop(name, None)
        self.revision += 1

    def __getitem__(self, name: str) -> Format:
        found = self._loaded.get(name)
        if found is None:
            # Two threads may load a format at the same time; the first instance is kept.
            found = self._loaded.setdefault(name, self._entries[name].load())
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


FORMATS: Final = FormatRegistry(_BUILT_IN)
"""The formats of this process."""

register = FORMATS.register
unregister = FORMATS.unregister


def format_named(name: str) -> Format:
    """Return the format of a name, or raise `UnsupportedError`.

    >>> format_named("zarr1").name
    'zarr1'
    """
    if name not in FORMATS.entries:
        raise UnsupportedError(f"format {name!r} is unknown; there is {', '.join(FORMATS)}")
    return FORMATS[name]


def entry_of_suffix(path: str) -> FormatEntry | None:
    """Return the entry whose suffix a path has, also before ".zip"; None without such an entry.

    >>> entry_of_suffix("a/prices.bcolz").name, entry_of_suffix("b.ZARR.zip").name
    ('bcolz', 'zarr3')
    >>> entry_of_suffix("prices") is entry_of_suffix(".bcolz") is None
    True
    """
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower().removesuffix(".zip")
    pairs = ((suffix, entry) for entry in FORMATS.entries.values() for suffix in entry.suffixes)
    found = [
        (len(suffix), entry) for suffix, entry in pairs if name.endswith(suffix) and name != suffix
    ]
    return max(found, key=lambda pair: pair[0])[1] if found else None


def list_formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that can be read and written, and what each of them holds.

    >>> list_formats()["zarr1"], list_formats()["zarr2"]
    (('array',), ('array', 'group'))
    """
    return {
        name: tuple(str(kind.name).lower() for kind in entry.holds)
        for name, entry in FORMATS.entries.items()
    }


class FormatsPackage(ModuleType):
    """The package `ingot.formats`, which can be called as `list_formats` can.

    >>> import ingot.formats.zarr.v1 as v1
    >>> import ingot
    >>> ingot.formats()[v1.Zarr1Format().name]
    ('array',)
    """

    def __call__(self) -> dict[str, tuple[str, ...]]:
        """Return the formats that can be read and written, and what each of them holds."""
        return list_formats()


def detect(
    store: Store,
    entries: Iterable[FormatEntry],
    file: str | None = None,
    *,
    path: str = "",
) -> FormatEntry | None:
    """Return the first of `entries` that recognises a dataset, or None.

    The dataset is the folder `path` of the store, or the single file with the key `file`.

    >>> from ingot.stores import MemoryStore
    >>> entries = FORMATS.entries.values()
    >>> detect(MemoryStore({".zgroup": b"{}"}), entries).name
    'zarr2'
    >>> detect(MemoryStore({"a/.zgroup": b"{}"}), entries) is None
    True
    """
    if file is not None:
        return _detect_file(store, tuple(entries), file)
    found = detect_folder(store, entries, path)
    return None if found is None else found.entry


class DetectedFolder(NamedTuple):
    """The entry that recognises a folder, and documents that `from_documents` takes, if any."""

    entry: FormatEntry
    documents: Mapping[str, bytes | None] | None = None


def detect_folder(
    store: Store, entries: Iterable[FormatEntry], path: str = ""
) -> DetectedFolder | None:
    """Return the first of `entries` that recognises a folder, with the documents that it names.

    The documents of all formats are read together with their markers.

    >>> from ingot.stores import MemoryStore
    >>> found = detect_folder(MemoryStore({".zgroup": b"{}"}), FORMATS.entries.values())
    >>> found.entry.name, found.documents
    ('zarr2', {'.zgroup': b'{}', '.zattrs': None})
    """
    lead, entries = prefix(path), tuple(entries)
    try:
        found = _marked(store, entries, lead)
    except UnsafeError:
        parts = (_marked_files(store, some, lead) for some in _apart(entries))
        found = next((each for each in parts if each is not None), None)
    if found is not None:
        return found
    if Feature.LIST in store.features:
        folder = lead.removesuffix("/")
        for entry in entries:
            if entry.matches_folder(store, folder):
                return DetectedFolder(entry)
    return None


def describe_search(entries: Iterable[FormatEntry]) -> str:
    """Return, for messages, what `detect` looks for.

    >>> describe_search([FORMATS.entries["zarr2"]])
    'zarr2 (.zarray, .zgroup)'
    """
    return ", ".join(
        f"{entry.name} ({', '.join(entry.markers) or 'a single file'})" for entry in entries
    )


def _apart(entries: tuple[FormatEntry, ...]) -> list[list[FormatEntry]]:
    """Return entries in parts of which each can be read at once.

    What is a file in one format (`meta`) may be a folder in another (`meta/sizes`); a store refuses
    to read a folder.
    """
    parts: list[list[FormatEntry]] = [[]]
    folders: set[str] = set()
    for entry in entries:
        if folders.intersection(entry.markers):
            parts.append([])
            folders.clear()
        parts[-1].append(entry)
        folders.update(marker.rpartition("/")[0] for marker in entry.markers)
    return parts


def _marked(store: Store, entries: Sequence[FormatEntry], lead: str) -> DetectedFolder | None:
    # One byte of a marker is enough; one more than allowed shows that a document is too long.
    lengths = {marker: 1 for entry in entries for marker in entry.markers}
    names = (name for entry in entries for group in entry.documents for name in group)
    lengths |= dict.fromkeys(names, json.LARGEST + 1)
    data = store.read([Extent(lead + name, 0, most) for name, most in lengths.items()])
    found = dict(zip(lengths, data, strict=True))
    for entry in entries:
        if any(found[marker] is not None for marker in entry.markers):
            groups = (group for group in entry.documents if found[group[0]] is not None)
            group = next(groups, None)
            documents = None if group is None else {name: found[name] for name in group}
            return DetectedFolder(entry, documents)
    return None


def _marked_files(store: Store, entries: Sequence[FormatEntry], lead: str) -> DetectedFolder | None:
    """Return what `_marked` does, where a folder has the name of a marker or of a document."""
    try:
        return _marked(store, entries, lead)
    except UnsafeError:
        files = set(store.names(lead))
    every = (marker for entry in entries for marker in entry.markers)
    markers = [name for name in every if name in files or "/" in name]
    data = store.read([Extent(lead + marker, 0, 1) for marker in markers])
    present = {name for name, each in zip(markers, data, strict=True) if each is not None}
    chosen = (entry for entry in entries if present.intersection(entry.markers))
    return next(map(DetectedFolder, chosen), None)


def _detect_file(store: Store, entries: tuple[FormatEntry, ...], file: str) -> FormatEntry | None:
    head = max((entry.head for entry in entries), default=0)
    tail = max((entry.tail for entry in entries), default=0)
    extents = [Extent(file, 0, head)]
    if tail:
        size = store.size(file)
        if size is None:
            return None
        extents.append(Extent(file, max(0, size - tail), tail))
    begin, *rest = store.read(extents)
    end = rest[0] if rest else b""
    if begin is None or end is None:
        return None
    for entry in entries:
        first, last = begin[: entry.head], end[max(0, len(end) - entry.tail) :]
        if entry.matches_file(first, last):
            return entry
    return None


def _load(code: str) -> Any:
    module, _, name = code.partition(":")
    return getattr(load(module), name)

"""The formats that there are, each loaded when it is first needed.

Knows their names, in the order in which they are looked for, and where their code is. Refuses to
know anything that only the code itself can tell, but for one thing: the marks of wholes, which are
looked for above every dataset that is opened.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import ModuleType
from typing import Final, cast

from ingot.errors import UnsafeError
from ingot.formats.format import Format, Signature
from ingot.formats.paths import prefix
from ingot.stores.store import Extent, Feature, Store

__all__ = ["FORMATS", "OWNERS", "Formats", "FormatsPackage", "detect", "list_formats", "looked_for"]

# In the order of detection: the marks of the last ones are the least certain.
_HOMES: Final[Mapping[str, tuple[str, str]]] = {
    "zarr3": ("ingot.formats.zarr.v3_groups", "Zarr3GroupFormat"),
    "zarr2": ("ingot.formats.zarr.v2_groups", "Zarr2GroupFormat"),
    "bcolz": ("ingot.formats.bcolz.format", "BcolzFormat"),
    "zarr0": ("ingot.formats.zarr.v0", "Zarr0Format"),
    "zarr1": ("ingot.formats.zarr.v1", "Zarr1Format"),
}

OWNERS: Final[Mapping[str, tuple[tuple[str, ...], str | None]]] = {
    "zarr3": (("zarr.json",), None),
    "zarr2": ((".zgroup",), None),
    "bcolz": (("__rootdirs__", "shards.json"), "data"),
}
"""The formats in which a dataset may be part of another: their `marks`, and what is `between`."""


class Formats(Mapping[str, Format]):
    """All formats by their names; asking for one loads it.

    >>> list(Formats())[:2], Formats()["zarr1"].name
    (['zarr3', 'zarr2'], 'zarr1')
    """

    __slots__ = ("_loaded",)

    def __init__(self) -> None:
        self._loaded: dict[str, Format] = {}

    def __getitem__(self, name: str) -> Format:
        found = self._loaded.get(name)
        if found is None:
            module, kind = _HOMES[name]
            made = getattr(importlib.import_module(module), kind)()
            # Two threads may load one at a time; the first one's is everybody's.
            found = self._loaded.setdefault(name, cast(Format, made))
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_HOMES)

    def __len__(self) -> int:
        return len(_HOMES)


FORMATS: Final = Formats()


def list_formats() -> dict[str, tuple[str, ...]]:
    """Return the formats that can be read and written, and what each of them holds.

    >>> list_formats()["zarr1"], list_formats()["zarr2"]
    (('array',), ('array', 'group'))
    """
    return {
        name: tuple(str(kind.name).lower() for kind in each.holds) for name, each in FORMATS.items()
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


_LIKELY: Final = 2


def detect(
    store: Store, formats: Iterable[Format], file: str | None = None, *, path: str = ""
) -> Format | None:
    """Return the first of `formats` whose signature is there, or None.

    The store is a directory, of which `path` is looked at, unless `file` names the one key that is
    to be looked at.

    >>> from ingot.formats.zarr.v2 import Zarr2Format
    >>> from ingot.stores import MemoryStore
    >>> detect(MemoryStore({".zgroup": b"{}"}), [Zarr2Format()]).name
    'zarr2'
    >>> detect(MemoryStore({"a/.zgroup": b"{}"}), [Zarr2Format()]) is None
    True
    """
    if file is None:
        return _detect_folder(store, formats, prefix(path))
    return _detect_file(store, list(formats), file)


def looked_for(formats: Iterable[Format]) -> str:
    """Return, for messages, what `detect` looks for.

    >>> from ingot.formats.zarr.v2 import Zarr2Format
    >>> looked_for([Zarr2Format()])
    'zarr2 (.zarray, .zgroup)'
    """
    return ", ".join(f"{each.name} ({_marks(each.signature)})" for each in formats)


def _detect_folder(store: Store, formats: Iterable[Format], lead: str) -> Format | None:
    # Most datasets are of the first formats; to load the others, and to look for their markers, has
    # its price.
    waiting, seen = iter(formats), list[Format]()
    for count in (_LIKELY, None):
        some = list(islice(waiting, count))
        found = _marked(store, some, lead)
        if found is not None:
            return found
        seen += some
    if Feature.LIST not in store.features:
        return None
    folder = lead.removesuffix("/")
    looking = ((each, each.signature.looks) for each in seen)
    return next(
        (each for each, looks in looking if looks is not None and looks(store, folder)), None
    )


def _marked(store: Store, formats: Sequence[Format], lead: str) -> Format | None:
    markers = [(each, lead + marker) for each in formats for marker in each.signature.markers]
    try:
        found = store.read([Extent(marker, 0, 1) for _, marker in markers])
    except UnsafeError:
        # What is a file in one format may be a folder in another.
        files = {lead + name for name in store.names(lead)}
        markers = [pair for pair in markers if pair[1] in files or "/" in pair[1][len(lead) :]]
        found = store.read([Extent(marker, 0, 1) for _, marker in markers])
    for (candidate, _), data in zip(markers, found, strict=True):
        if data is not None:
            return candidate
    return None


def _detect_file(store: Store, formats: Sequence[Format], file: str) -> Format | None:
    size = store.size(file)
    if size is None:
        return None
    head = max((each.signature.head for each in formats), default=0)
    tail = max((each.signature.tail for each in formats), default=0)
    begin, end = store.read([Extent(file, 0, head), Extent(file, max(0, size - tail), tail)])
    if begin is None or end is None:
        return None
    for candidate in formats:
        signature = candidate.signature
        if signature.matches(begin[: signature.head], end[max(0, len(end) - signature.tail) :]):
            return candidate
    return None


def _marks(signature: Signature) -> str:
    return ", ".join(signature.markers) or "a file of its own"

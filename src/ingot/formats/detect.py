"""Which format lies in a store, told by its content.

Knows how to look for every format's signature with one read. Refuses to know any format, and to go
by names and suffixes, which people change.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final

from ingot.errors import UnsafeError
from ingot.formats.format import Format, Signature
from ingot.formats.paths import prefix
from ingot.stores.store import Extent, Feature, Store

__all__ = ["detect", "looked_for"]

_LIKELY: Final = 2


def detect(
    store: Store, formats: Iterable[Format], file: str | None = None, *, path: str = ""
) -> Format | None:
    """Return the first of `formats` whose signature is there, or None.

    The store is a directory, of which `path` is looked at, unless `file` names the one key that is
    to be looked at.

    >>> from ingot.formats.zarr2 import Zarr2Format
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

    >>> from ingot.formats.zarr2 import Zarr2Format
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

"""A store under a journal: readers see a decided commit before it is applied.

A staged value is read under its staged name, bytes of a patch are read from the journal. A writer
that applies the journal meanwhile changes nothing of that: a staged name that is gone has become
the key itself.
"""

from collections.abc import Hashable, Iterator, Sequence

from ingot.errors import ReadOnlyError
from ingot.stores.local.journal import Journal, Placed, Removed, Written
from ingot.stores.store import (
    READING,
    Commit,
    Durability,
    Extent,
    Feature,
    Store,
    check_key,
    is_staged,
)

__all__ = ["Overlay"]


class Overlay:
    """A read-only view of a store as it is after a journal is applied.

    >>> from ingot.stores import MemoryStore
    >>> below = MemoryStore({"a": b"old", "b": b"0123", "c": b"", ".g-1-a": b"new"})
    >>> entries = Placed("a", ".g-1-a", 3, 0), Written("b", 3, b"xy", 4), Removed("c")
    >>> view = Overlay(below, Journal("00112233aabbccdd", entries))
    >>> view.read([Extent("a"), Extent("b", 1), Extent("c")]), list(view.names())
    ([b'new', b'12xy', None], ['a', 'b'])
    """

    __slots__ = ("_below", "_patches", "_placed", "_removed")

    def __init__(self, below: Store, journal: Journal) -> None:
        self._below = below
        self._placed = {
            entry.key: entry.staged for entry in journal.entries if isinstance(entry, Placed)
        }
        self._removed = {entry.key for entry in journal.entries if isinstance(entry, Removed)}
        self._patches: dict[str, list[Written]] = {}
        for entry in journal.entries:
            if isinstance(entry, Written):
                self._patches.setdefault(entry.key, []).append(entry)

    @property
    def features(self) -> Feature:
        """The reading features of the store below; native reads would bypass the journal."""
        return self._below.features & READING

    @property
    def location(self) -> str:
        """Where the store below is."""
        return self._below.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent as they will be when the journal is applied."""
        for extent in extents:
            check_key(extent.key)
        found = self._below.read([self._shifted(extent) for extent in extents])
        again = [
            position
            for position, extent in enumerate(extents)
            if extent.key in self._placed and found[position] is None
        ]
        if again:
            # All extents of one key come from one value, so they are read together.
            keys = {extents[position].key for position in again}
            again = [position for position, extent in enumerate(extents) if extent.key in keys]
            values = self._below.read([extents[position] for position in again])
            for position, value in zip(again, values, strict=True):
                found[position] = value
        return [self._patched(*pair) for pair in zip(extents, found, strict=True)]

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` will hold."""
        if key in self._removed:
            return None
        if key in self._patches:
            return self._size_after(key)
        staged = self._placed.get(key)
        size = None if staged is None else self._below.size(staged)
        return self._below.size(key) if size is None else size

    def identity(self, key: str) -> Hashable | None:
        """Return the identity below; None for a key that the journal changes."""
        if key in self._placed or key in self._removed or key in self._patches:
            return None
        return self._below.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix` as they will be."""
        folder = prefix.removesuffix("/")
        lead = f"{folder}/" if folder else ""
        names = set(self._below.names(prefix, hidden=hidden))
        placed = (key[len(lead) :] for key in self._placed if key.startswith(lead))
        names.update("".join(rest.partition("/")[:2]) for rest in placed)
        names -= {key[len(lead) :] for key in self._removed if key.startswith(lead)}
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Raise `ReadOnlyError`: the store itself finishes the journal before the next commit."""
        raise ReadOnlyError(f"{self.location}: a view of one state is for reading only")

    def __repr__(self) -> str:
        return f"Overlay({self._below!r})"

    def _shifted(self, extent: Extent) -> Extent:
        staged = self._placed.get(extent.key)
        return extent if staged is None else Extent(staged, extent.start, extent.length)

    def _size_after(self, key: str) -> int:
        patches = self._patches[key]
        return max(patches[0].before, *(patch.start + len(patch.data) for patch in patches))

    def _patched(self, extent: Extent, data: bytes | None) -> bytes | None:
        if extent.key in self._removed:
            return None
        if data is None or extent.key not in self._patches:
            return data
        # The stored value may have grown already: the journal holds every new byte.
        stop = self._size_after(extent.key)
        if extent.length is not None:
            stop = min(stop, extent.start + extent.length)
        value = bytearray(data.ljust(max(stop - extent.start, 0), b"\0"))
        for patch in self._patches[extent.key]:
            first = max(patch.start, extent.start)
            last = min(patch.start + len(patch.data), stop)
            if first < last:
                source = patch.data[first - patch.start : last - patch.start]
                value[first - extent.start : last - extent.start] = source
        return bytes(value)

"""A store under a journal: readers see a decided commit before it is applied.

A staged value is read under its staged name, bytes of a patch and a value that the journal carries
are read from the journal. A writer that applies the journal meanwhile changes nothing of that: a
staged name that is gone has become the key itself.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from ingot.errors import ReadOnlyError
from ingot.stores.local.journal import Journal, Truncated
from ingot.stores.patched import read_over
from ingot.stores.store import (
    READING,
    Buffer,
    Commit,
    Durability,
    Extent,
    Feature,
    Grown,
    Store,
    check_key,
    is_staged,
    native_root,
)

__all__ = ["Overlay"]


class Overlay:
    """A read-only view of a store as it is after a journal is applied.

    >>> from ingot.stores import MemoryStore
    >>> from ingot.stores.local.journal import Placed, Removed, Written
    >>> below = MemoryStore({"a": b"old", "b": b"0123", "c": b"", ".g-1-a": b"new"})
    >>> entries = Placed("a", ".g-1-a", 3, 0), Written("b", 3, b"xy", 4), Removed("c")
    >>> view = Overlay(below, Journal("00112233aabbccdd", entries))
    >>> view.read([Extent("a"), Extent("b", 1), Extent("c")]), list(view.names())
    ([b'new', b'12xy', None], ['a', 'b'])
    """

    __slots__ = ("_below", "_cut", "_keys", "_values")

    def __init__(self, below: Store, journal: Journal) -> None:
        self._below = below
        # None for a key that is removed.
        self._values = journal.values()
        self._cut = {entry.key for entry in journal.entries if isinstance(entry, Truncated)}
        # The keys of staged values.
        self._keys = {
            value.source: key
            for key, value in self._values.items()
            if value is not None and value.source not in (None, key)
        }

    @property
    def features(self) -> Feature:
        """The reading features of the store below: the kernel reads files by `native_names`."""
        return self._below.features & (READING | Feature.NATIVE | Feature.REMOTE)

    @property
    def root(self) -> str:
        """The directory of the store below."""
        return native_root(self._below)

    @property
    def location(self) -> str:
        """Where the store below is."""
        return self._below.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent as they will be when the journal is applied."""
        return read_over(self._read_below, extents, self._values)

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` will hold."""
        if check_key(key) not in self._values:
            return self._below.size(key)
        value = self._values[key]
        return None if value is None else value.size

    def identity(self, key: str) -> Hashable | None:
        """Return the identity below; None for a key that the journal changes."""
        return None if check_key(key) in self._values else self._below.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix` as they will be."""
        folder = prefix.removesuffix("/")
        lead = f"{folder}/" if folder else ""
        names = set(self._below.names(prefix, hidden=hidden))
        for key, value in self._values.items():
            if key.startswith(lead):
                if value is None:
                    names.discard(key[len(lead) :])
                else:
                    names.add("".join(key[len(lead) :].partition("/")[:2]))
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def native_names(
        self, concerned: Callable[[str], bool] | None = None
    ) -> Mapping[str, str | None] | None:
        """Return the staged files of keys; None where bytes of one of them are in the journal."""
        found: dict[str, str | None] = {}
        for key, value in self._values.items():
            if concerned is None or concerned(key):
                if value is not None and value.source in (None, key):
                    return None
                found[key] = None if value is None else value.source
        return found

    def native_patches(
        self, concerned: Callable[[str], bool]
    ) -> Mapping[str, tuple[tuple[int, bytes], ...]] | None:
        """Return the bytes that the journal has of keys; None where files change otherwise."""
        found: dict[str, tuple[tuple[int, bytes], ...]] = {}
        for key, value in self._values.items():
            if concerned(key):
                if value is None or value.source != key or value.size != value.kept:
                    return None
                if key in self._cut:
                    return None
                found[key] = value.ranges
        return found

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Raise `ReadOnlyError`: only the store itself is written to."""
        raise ReadOnlyError(f"{self.location}: a view of one state is for reading only")

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Raise `ReadOnlyError`: the store itself finishes the journal before the next commit."""
        raise ReadOnlyError(f"{self.location}: a view of one state is for reading only")

    def __repr__(self) -> str:
        return f"Overlay({self._below!r})"

    def _read_below(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = self._below.read(extents)
        gone = {
            extent.key
            for extent, data in zip(extents, found, strict=True)
            if data is None and extent.key in self._keys
        }
        if gone:
            # All extents of one key come from one value, so they are read together.
            again = [index for index, extent in enumerate(extents) if extent.key in gone]
            renamed = [
                replace(extents[index], key=self._keys[extents[index].key]) for index in again
            ]
            for index, data in zip(again, self._below.read(renamed), strict=True):
                found[index] = data
        return found

"""The store of a transaction: a buffered store with versions.

Several handles may read and change the same transaction. Each of them sees the changes of the
others by the version, as it sees the commits of other writers outside of a transaction.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Buffer, Commit, Durability, Edit, Extent, Feature, Grown, Put, Store
from ingot.stores.versions import Version

__all__ = ["TransactionStore", "TransactionTurn"]


class TransactionStore:
    """A `BufferedStore` whose version changes with every change; used by one thread.

    >>> from ingot.stores import MemoryStore
    >>> buffered = BufferedStore(MemoryStore())
    >>> store = TransactionStore(buffered)
    >>> with store.writing() as turn:
    ...     turn.commit(Commit(publish=(Put("a", b"alpha"),)))
    1
    >>> store.version().sequence, print(buffered.commit())
    publish: Put('a', 5 bytes)
    (1, None)
    """

    __slots__ = ("_buffered", "_changes")

    def __init__(self, buffered: BufferedStore) -> None:
        self._buffered = buffered
        self._changes = 0

    @property
    def features(self) -> Feature:
        """Those of the buffered store."""
        return self._buffered.features

    @property
    def location(self) -> str:
        """Where the store below is."""
        return self._buffered.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent as they will be."""
        return self._buffered.read(extents)

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` will hold."""
        return self._buffered.size(key)

    def identity(self, key: str) -> Hashable | None:
        """Return the identity of a key in the buffered store."""
        return self._buffered.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix` as they will be."""
        return self._buffered.names(prefix, hidden=hidden)

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Keep all changes of a commit; nothing is stored yet."""
        self._changes += 1
        self._buffered.apply(commit)

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Keep bytes behind the end of a key, for the commit of the transaction."""
        return self._buffered.extend(key, pieces, end=end)

    def copy(self, source: str, key: str) -> Edit:
        """Return the edit that makes the future value of `source` that of `key` too."""
        return self._buffered.copy(source, key)

    def version(self) -> Version:
        """Return the version: the number of changes so far."""
        return Version(self._changes, settled=True)

    def view(self) -> Store:
        """Return this store: a change is never half done."""
        return self

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give this store."""
        yield self

    @contextmanager
    def writing(self, *, durability: Durability = "full") -> Iterator["TransactionTurn"]:
        """Give a turn to write; the transaction has no other writers."""
        try:
            yield TransactionTurn(self)
        finally:
            self._buffered.drop_extensions()

    def stage(self, key: str, data: Buffer) -> Put:
        """Return an edit that holds the value: the buffered store decides where it is kept."""
        return Put(key, data)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Do nothing: nothing was staged."""


class TransactionTurn:
    """A turn to change a transaction."""

    __slots__ = ("store",)

    def __init__(self, store: TransactionStore) -> None:
        self.store: Final = store

    def commit(self, commit: Commit) -> int:
        """Keep the changes of a commit, and return the number of the new version."""
        self.store.apply(commit)
        return self.store.version().sequence

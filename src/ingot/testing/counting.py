"""A store in memory that counts round trips: what an object store would charge and wait for."""

from collections.abc import Iterator, Mapping, Sequence

from ingot.stores.memory import MemoryStore
from ingot.stores.store import Extent, Feature

__all__ = ["CountingStore"]


class CountingStore(MemoryStore):
    """A `MemoryStore` that counts batches of reads, the extents in them, and listings.

    The size of a key counts as a batch. A batch without extents costs nothing.

    >>> store = CountingStore({"a": b"alpha", "b/c": b""})
    >>> _ = store.read([Extent("a"), Extent("b/c")]), store.size("a"), list(store.names("b"))
    >>> store.batches, store.listings
    (2, 1)
    """

    def __init__(
        self, content: Mapping[str, bytes] | None = None, *, writable: bool = True
    ) -> None:
        super().__init__(content, writable=writable)
        self.reset()

    @property
    def features(self) -> Feature:
        """What the store can do; its values count as being elsewhere."""
        return super().features & ~Feature.HELD

    def reset(self) -> None:
        """Begin to count anew."""
        self.batches = 0
        """The number of batches of reads."""
        self.extents = 0
        """The number of extents that were read."""
        self.listings = 0
        """The number of folders that were listed."""

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, and count one batch."""
        self.batches += bool(extents)
        self.extents += len(extents)
        return super().read(extents)

    def size(self, key: str) -> int | None:
        """Return the number of bytes of a key, and count one batch."""
        self.batches += 1
        return super().size(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below a folder, and count one listing."""
        self.listings += 1
        return super().names(prefix, hidden=hidden)

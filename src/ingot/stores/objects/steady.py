"""One state of a bucket, for a reader that has no right to make writers wait.

Every read looks whether the state is still the same, behind what it has read. If it is another one,
the read is an error: the state that was wanted is gone.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ingot.errors import IngotError, LockedError, ReadOnlyError
from ingot.stores.store import (
    READING,
    Buffer,
    Commit,
    Durability,
    Extent,
    Feature,
    Grown,
    Store,
    bytes_at_once,
    first_bytes,
)

__all__ = ["SteadyView"]

Result = TypeVar("Result")


class SteadyView:
    """A read-only view of one state; `is_same` tells whether the store still has it.

    >>> from ingot.stores import MemoryStore
    >>> view = SteadyView(MemoryStore({"a": b"alpha"}), lambda: True)
    >>> view.read([Extent("a", 1, 2)])
    [b'lp']
    >>> SteadyView(MemoryStore({"a": b"alpha"}), lambda: False).read([Extent("a")])
    Traceback (most recent call last):
    ingot.errors.LockedError: memory: a writer has changed the state that is read...
    """

    __slots__ = ("_below", "_is_same")

    def __init__(self, below: Store, is_same: Callable[[], bool]) -> None:
        self._below: Final = below
        self._is_same: Final = is_same

    @property
    def features(self) -> Feature:
        """The reading features of the store below."""
        return self._below.features & (READING | Feature.REMOTE)

    @property
    def location(self) -> str:
        """Where the store below is."""
        return self._below.location

    @property
    def first_bytes(self) -> int:
        """How much of a chunk is fetched first, as in the store below."""
        return first_bytes(self._below)

    @property
    def bytes_at_once(self) -> int:
        """How many bytes come sooner than a round trip, as in the store below."""
        return bytes_at_once(self._below)

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; `LockedError` if the state has changed by then."""
        return self._same(lambda: self._below.read(extents))

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` holds."""
        return self._same(lambda: self._below.size(key))

    def identity(self, key: str) -> Hashable | None:
        """Return the identity below."""
        return self._below.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`."""
        return self._same(lambda: iter(list(self._below.names(prefix, hidden=hidden))))

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.location}: a view of one state is for reading only")

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"{self.location}: a view of one state is for reading only")

    def __repr__(self) -> str:
        return f"SteadyView({self._below!r})"

    def _same(self, read: Callable[[], Result]) -> Result:
        try:
            found = read()
        except IngotError:
            self._check()
            raise
        self._check()
        return found

    def _check(self) -> None:
        if not self._is_same():
            raise LockedError(
                f"{self.location}: a writer has changed the state that is read; a reader cannot "
                "make writers wait. Read it again, or open it with mode 'r+'"
            )

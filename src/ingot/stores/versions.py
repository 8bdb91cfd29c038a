"""The contract of states: how a store tells readers and writers apart which commits they see.

Knows that commits switch a store from one state to the next, and how to read one of them without a
lock. Refuses to know how a store keeps them.
"""

import functools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final, NamedTuple, Protocol, Self, TypeVar, cast, runtime_checkable

from ingot.errors import NotFoundError
from ingot.stores.store import Buffer, Commit, Durability, Edit, Extent, Put, Store

__all__ = [
    "ATTEMPTS",
    "NO_VERSION",
    "SWITCHING",
    "Copying",
    "StagingStore",
    "StoreProbe",
    "Version",
    "VersionProbe",
    "Versioned",
    "WriteTurn",
    "announce",
    "copied",
    "discard",
    "is_switching",
    "read_state",
    "read_versioned",
    "version_number",
    "version_probe",
    "versioned",
    "writing",
]

Result = TypeVar("Result")

ATTEMPTS: Final = 5
"""How many times a reader tries without a lock."""

NO_VERSION: Final = -1
"""The number of no state."""

SWITCHING: Final = 1 << 63
"""Part of the number while one state becomes the next: what is read then may be of either."""


class Version(NamedTuple):
    """What a reader sees of the state of a store at a glance."""

    sequence: int
    """Another number whenever the committed state may be another one."""
    settled: bool
    """Whether it is certain that no commit is half done."""


class WriteTurn(Protocol):
    """The right of one writer to change a store: no other writer commits before it ends."""

    @property
    def store(self) -> Store:
        """The store, whose committed state stays the same until `commit` is called."""
        ...

    def commit(self, commit: Commit) -> int | None:
        """Apply a commit, at most one in a turn, and return the number of the new version.

        The number is None where versions have none. Staged values of a commit that fails before it
        is decided are removed.
        """
        ...


@runtime_checkable
class Versioned(Protocol):
    """A store whose commits are switches from one state to the next, and that can tell."""

    def version(self) -> Version | None:
        """Return the number of the state; None before the first commit. Equal means unchanged."""
        ...

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, unless a commit is half done."""
        ...

    def pin(self) -> AbstractContextManager[Store]:
        """Give a view of the committed state, and keep writers from changing it meanwhile."""
        ...

    def writing(self, *, durability: Durability = "full") -> AbstractContextManager[WriteTurn]:
        """Return a turn to write: entering it takes the lock and finishes what a dead writer left.

        Leaving the block releases the lock, after a commit or without one.
        """
        ...

    def stage(self, key: str, data: Buffer) -> Edit:
        """Put a value aside that is too large to be kept, and return the edit that publishes it."""
        ...

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove what was put aside for edits that nobody will apply."""
        ...


class VersionProbe(Protocol):
    """A place from which to see at little cost whether a state is still the committed one."""

    def confirms(self, number: int | None) -> bool:
        """Tell whether a look now gives this number, and is certain that no commit is half done."""
        ...

    def moved(self, number: int | None) -> bool:
        """Tell whether it is another state by now; False where that takes a look to find out."""
        ...


class StoreProbe:
    """The lookout of a store that can do no more than look.

    >>> from ingot.stores import Commit, MemoryStore, Put
    >>> store = MemoryStore()
    >>> number = version_number(store.version())
    >>> StoreProbe(store).confirms(number)
    True
    >>> store.apply(Commit(publish=(Put("a", b"alpha"),)))
    >>> StoreProbe(store).confirms(number)
    False
    """

    __slots__ = ("_look",)

    def __init__(self, states: Versioned) -> None:
        self._look = states.version

    def confirms(self, number: int | None) -> bool:
        """Tell whether a look now gives this number, and is certain that no commit is half done."""
        look = self._look()
        return number is None if look is None else look == (number, True)

    def moved(self, number: int | None) -> bool:
        """Leave that to the next look."""
        return False


def version_probe(states: Versioned) -> VersionProbe:
    """Return the lookout of a store: its own, or one that looks.

    >>> from ingot.stores import MemoryStore
    >>> version_probe(MemoryStore()).moved(0)
    False
    """
    own: Callable[[], VersionProbe] | None = getattr(states, "version_probe", None)
    return StoreProbe(states) if own is None else own()


@runtime_checkable
class StagingStore(Protocol):
    """A store in which others than itself may stage values, under the name of a transaction."""

    def announce(self, transaction: str) -> None:
        """Have other writers leave alone what is staged under that name from now on."""
        ...


def read_state(store: Store, read: Callable[[Store], Result]) -> Result:
    """Return what `read` returns, given one committed state to read from.

    `read` is called again when the state changed meanwhile, so all it needs it must fetch itself,
    from the store it is given. It takes no lock, but for the sixth time.

    >>> from ingot.stores import Extent, MemoryStore
    >>> read_state(MemoryStore({"a": b"alpha"}), lambda view: view.read([Extent("a")]))
    [b'alpha']
    """
    return read_versioned(store, read)[0]


def read_versioned(store: Store, read: Callable[[Store], Result]) -> tuple[Result, int | None]:
    """Return what `read_state` does, and the number of the state; `NO_VERSION` if it was half done.

    The number says how long the result holds, as far as it speaks of the store itself.
    """
    states = versioned(store)
    if states is None:
        return read(store), None
    for _ in range(ATTEMPTS):
        look = states.version()
        if is_switching(look):
            break
        before = version_number(look)
        view = store if look is not None and look.settled else states.view()
        try:
            result = read(view)
        except Exception:
            # What is missing or does not fit may be what a writer has just changed.
            if version_number(states.version()) == before:
                raise
        else:
            if version_number(states.version()) == before:
                return result, before if view is store else NO_VERSION
    with states.pin() as view:
        return read(view), NO_VERSION


def writing(store: Store, *, durability: Durability = "full") -> AbstractContextManager[WriteTurn]:
    """Return a turn to write to any store; without versions it only applies its commit.

    >>> from ingot.stores import MemoryStore, Put
    >>> with writing(MemoryStore()) as turn:
    ...     turn.commit(Commit(publish=(Put("a", b"alpha"),)))
    2
    """
    states = versioned(store)
    if states is None:
        return _PlainTurn(store, durability)
    return states.writing(durability=durability)


class _PlainTurn:
    """A turn on a store that has no lock and no versions."""

    __slots__ = ("_durability", "store")

    def __init__(self, store: Store, durability: Durability) -> None:
        self.store: Final = store
        self._durability = durability

    def commit(self, commit: Commit) -> None:
        self.store.apply(commit, durability=self._durability)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return


@runtime_checkable
class Copying(Protocol):
    """A store that can give a key the value of another without holding it."""

    def copy(self, source: str, key: str) -> Edit:
        """Put the value of `source` aside, and return the edit that makes it that of `key` too."""
        ...


def copied(store: Store, source: str, key: str) -> Edit:
    """Return the edit that makes the value of `source` that of `key` too, put aside if possible.

    >>> from ingot.stores import MemoryStore
    >>> copied(MemoryStore({"a": b"alpha"}), "a", "b")
    Put('b', 5 bytes)
    """
    if isinstance(store, Copying):
        return store.copy(source, key)
    (data,) = store.read([Extent(source)])
    if data is None:
        raise NotFoundError(f"{store.location}: no key {source!r} to be copied")
    return Put(key, data)


def announce(store: Store, transaction: str) -> None:
    """Have others leave alone what will be staged, where others might take it for litter.

    >>> from ingot.stores import MemoryStore
    >>> announce(MemoryStore(), "2f81")
    """
    if _is_announcing(type(store)):
        cast(StagingStore, store).announce(transaction)


def discard(store: Store, edits: Iterable[Edit]) -> None:
    """Remove what was put aside for edits that nobody will apply, where anything was.

    >>> from ingot.stores import MemoryStore, Put
    >>> discard(MemoryStore(), [Put("a", b"alpha")])
    """
    states = versioned(store)
    if states is not None:
        states.discard(edits)


def versioned(store: Store) -> Versioned | None:
    """Return a store as one that tells its states; None when it does not.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore()
    >>> versioned(store) is store
    True
    """
    return cast(Versioned, store) if _is_versioned(type(store)) else None


@functools.cache
def _is_versioned(kind: type) -> bool:
    # Asking a protocol takes longer than the look at a lock file that the answer is needed for.
    return issubclass(kind, Versioned)


@functools.cache
def _is_announcing(kind: type) -> bool:
    return issubclass(kind, StagingStore)


def is_switching(look: Version | None) -> bool:
    """Tell whether one state was just becoming the next, or its writer died at that.

    >>> is_switching(Version(7, settled=False)), is_switching(Version(7 + SWITCHING, settled=False))
    (False, True)
    """
    return look is not None and look[0] >= SWITCHING


def version_number(look: Version | None) -> int | None:
    """Return the number of the state that was looked at; None before the first commit.

    >>> version_number(Version(7, settled=True)), version_number(None)
    (7, None)
    """
    return None if look is None else look[0]

"""Versions of a store: how readers detect commits without taking a lock, and how writers commit.

A commit switches a store from one version of its state to the next. This is the contract; how a
store keeps its versions is its own matter.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, TypeVar, cast, runtime_checkable

from ingot import native
from ingot.errors import NotFoundError
from ingot.stores.store import (
    Buffer,
    Commit,
    Durability,
    Edit,
    Extent,
    Feature,
    Put,
    Store,
    whole_keys,
)

__all__ = [
    "ATTEMPTS",
    "NO_VERSION",
    "SWITCHING",
    "Copying",
    "KernelCommit",
    "LogState",
    "SharedStore",
    "StagingStore",
    "StoreProbe",
    "Version",
    "VersionProbe",
    "Versioned",
    "WriteTurn",
    "announce_staging",
    "attempts",
    "close_log",
    "copied",
    "current_number",
    "discard",
    "hand_over",
    "is_switching",
    "is_switching_store",
    "read_state",
    "read_versioned",
    "settled_number",
    "shared",
    "switched",
    "version_number",
    "version_probe",
    "versioned",
    "withdraw_staging",
    "writing",
]

Result = TypeVar("Result")

ATTEMPTS: Final = 5
"""How many times a reader tries before it takes a lock, unless the store says otherwise."""

NO_VERSION: Final = -1
"""The number of no version."""

SWITCHING: Final = 1 << 63
"""Set in the number while one version becomes the next: reads then may see either."""


class Version(NamedTuple):
    """The version of the committed state of a store, as far as it can be read without a lock."""

    sequence: int
    """A number that changes whenever the committed state may have changed."""
    settled: bool
    """Whether it is certain that no commit is half done."""


class LogState(NamedTuple):
    """What is known of the log of a store without reading it."""

    name: str
    """The name of the log that may be open; empty where there is none."""
    written: bool
    """Whether the store holds all that is committed, so that readers need no log."""


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
    """A store whose commits switch from one version to the next, one writer at a time."""

    def version(self) -> Version | None:
        """Return the version; None before the first commit. Equal versions mean equal states."""
        ...

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, unless a commit is half done."""
        ...

    def pin(self) -> AbstractContextManager[Store]:
        """Give a view of the committed state; writers wait until the block ends."""
        ...

    def writing(self, *, durability: Durability = "full") -> AbstractContextManager[WriteTurn]:
        """Return a turn to write: entering it takes the lock and finishes what a dead writer left.

        Leaving the block releases the lock, after a commit or without one.
        """
        ...

    def stage(self, key: str, data: Buffer) -> Edit:
        """Stage a value that is too large for memory, and return the edit that publishes it."""
        ...

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove what was staged for edits that will not be applied."""
        ...


class KernelCommit(Protocol):
    """A commit that the kernel makes by itself, from the lock to its end.

    It writes bytes where nothing reaches, and lets one step switch the state: a word or a rename.
    """

    @property
    def edits(self) -> Sequence[Edit]:
        """What it does to documents, to be expected of the store afterwards."""
        ...

    def make(
        self,
        dataset: native.NativeDataset,
        documents: native.NativeDocuments,
        version: int,
        holder: bytes,
        devices: Sequence[int],
        sync: bool,
    ) -> "native.Changed | None":
        """Make the change; None where anything is unusual, and then nothing has changed."""
        ...


@runtime_checkable
class SwitchingStore(Protocol):
    """A store in whose files the kernel makes some commits by itself."""

    def switch(
        self,
        change: KernelCommit,
        documents: native.NativeDocuments,
        version: int,
        *,
        durability: Durability,
    ) -> int | None:
        """Make a change of the state of `version`, and return the new version.

        `documents` are what the store must still hold. None where only a turn to write can make the
        change; then nothing has changed.
        """
        ...


def switched(
    store: Store,
    change: KernelCommit,
    documents: native.NativeDocuments,
    version: int,
    *,
    durability: Durability,
) -> int | None:
    """Make a change by `SwitchingStore.switch`; None where the store cannot."""
    if not is_switching_store(store):
        return None
    switching = cast(SwitchingStore, store)
    return switching.switch(change, documents, version, durability=durability)


def is_switching_store(store: Store) -> bool:
    """Return whether the kernel can make commits in the files of a store by itself.

    >>> from ingot.stores import MemoryStore
    >>> is_switching_store(MemoryStore())
    False
    """
    return _is_switching_store(type(store))


class VersionProbe(Protocol):
    """A cheap way to check whether a version is still the committed one."""

    def confirms(self, number: int | None) -> bool:
        """Return whether this is the version now, and no commit can be half done."""
        ...

    def moved(self, number: int | None) -> bool:
        """Return whether the version is known to have changed; False where it must be read."""
        ...


class StoreProbe:
    """A probe that reads the version of a store each time.

    >>> from ingot.stores import Commit, MemoryStore, Put
    >>> store = MemoryStore()
    >>> number = version_number(store.version())
    >>> StoreProbe(store).confirms(number)
    True
    >>> store.apply(Commit(publish=(Put("a", b"alpha"),)))
    >>> StoreProbe(store).confirms(number)
    False
    """

    __slots__ = ("_version",)

    def __init__(self, states: Versioned) -> None:
        self._version = states.version

    def confirms(self, number: int | None) -> bool:
        """Return whether this is the version now, and no commit can be half done."""
        version = self._version()
        return number is None if version is None else version == (number, True)

    def moved(self, number: int | None) -> bool:
        """Return False: only reading the version can tell."""
        return False


def attempts(states: Versioned) -> int:
    """Return how many times a reader of a store tries before it takes a lock.

    >>> from ingot.stores import MemoryStore
    >>> attempts(MemoryStore())
    5
    """
    own: int = getattr(states, "read_attempts", ATTEMPTS)
    return own


def version_probe(states: Versioned) -> VersionProbe:
    """Return the probe of a store: its own, or one that reads the version each time.

    >>> from ingot.stores import MemoryStore
    >>> version_probe(MemoryStore()).moved(0)
    False
    """
    own: Callable[[], VersionProbe] | None = getattr(states, "version_probe", None)
    return StoreProbe(states) if own is None else own()


class SharedStore(Protocol):
    """A store that other processes reach by its address, and stage values in, one by one."""

    def stage_apart(self, transaction: str, key: str, data: Buffer) -> Edit:
        """Stage a value under a name of its own, and return the edit that publishes it."""
        ...

    def remove_apart(self, transaction: str) -> None:
        """Remove what was staged under the name of a transaction and not published."""
        ...


def shared(store: Store) -> SharedStore | None:
    """Return a store as a shared one; None where other processes do not reach its values.

    >>> from ingot.stores import MemoryStore
    >>> shared(MemoryStore()) is None
    True
    """
    return cast(SharedStore, store) if getattr(store, "is_shared", False) else None


@runtime_checkable
class StagingStore(Protocol):
    """A store whose values may be staged by other code, under the name of a transaction."""

    def announce_staging(self, transaction: str) -> None:
        """Keep other writers from removing what is staged under that name from now on."""
        ...

    def withdraw_staging(self, transaction: str, *, staged: bool = True) -> None:
        """Take back an announcement; the next writer searches for files, if any were `staged`."""
        ...

    def hand_over(self, edits: Iterable[Edit]) -> None:
        """Leave the staged values of edits to another process, which has announced staging."""
        ...


def read_state(store: Store, read: Callable[[Store], Result]) -> Result:
    """Return what `read` returns, given one committed state to read from.

    `read` is called again when the version changed meanwhile, so it must fetch all that it needs
    from the store that it is given. Only the sixth call takes a lock.

    >>> from ingot.stores import Extent, MemoryStore
    >>> read_state(MemoryStore({"a": b"alpha"}), lambda view: view.read([Extent("a")]))
    [b'alpha']
    """
    return read_versioned(store, read)[0]


def read_versioned(store: Store, read: Callable[[Store], Result]) -> tuple[Result, int | None]:
    """Return what `read_state` does, and the version number; `NO_VERSION` during a commit.

    The result holds as long as the store has that version.
    """
    states = versioned(store)
    if states is None:
        return read(store), None
    for _ in range(attempts(states)):
        version = states.version()
        if is_switching(version):
            break
        before = version_number(version)
        view = store if version is not None and version.settled else states.view()
        try:
            result = read(view)
        except Exception:
            # A key that is missing or does not fit may be one that a writer has just changed.
            if version_number(states.version()) == before:
                raise
        else:
            if version_number(states.version()) == before:
                return result, before if view is store else NO_VERSION
    with states.pin() as view:
        return read(view), NO_VERSION


def current_number(store: Store) -> int | None:
    """Return the version number of a store now; None where it has no versions.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore()
    >>> current_number(store) == settled_number(store)
    True
    """
    states = versioned(store)
    return None if states is None else version_number(states.version())


def settled_number(store: Store, durability: Durability = "full") -> int | None:
    """Return the version number of the committed state, with no commit half done.

    None where a store has no versions. A commit that is half done is finished.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore()
    >>> settled_number(store) == version_number(store.version())
    True
    """
    states = versioned(store)
    if states is None:
        return None
    version = states.version()
    # The version of a single file changes with its first lock file.
    counted = getattr(states, "has_lock_file", True)
    if version is None or not version.settled or not counted:
        # An empty commit finishes one that is half done, and makes the first version.
        with states.writing(durability=durability) as turn:
            turn.commit(Commit())
        version = states.version()
    return version_number(version)


def writing(store: Store, *, durability: Durability = "full") -> AbstractContextManager[WriteTurn]:
    """Return a turn to write to any store; without versions it only applies its commit.

    A store without `Feature.PATCH` gets commits in which keys are replaced whole.

    >>> from ingot.stores import MemoryStore, Put
    >>> with writing(MemoryStore()) as turn:
    ...     turn.commit(Commit(publish=(Put("a", b"alpha"),)))
    2
    """
    states = versioned(store)
    block: AbstractContextManager[WriteTurn]
    if states is None:
        block = _PlainTurn(store, durability)
    else:
        block = states.writing(durability=durability)
    return block if Feature.PATCH in store.features else _WholeKeys(block)


class _WholeKeys:
    """A turn on a store that replaces keys only as a whole: patches become such edits."""

    __slots__ = ("_block", "_turn")

    def __init__(self, block: AbstractContextManager[WriteTurn]) -> None:
        self._block = block
        self._turn: WriteTurn | None = None

    @property
    def store(self) -> Store:
        assert self._turn is not None
        return self._turn.store

    def commit(self, commit: Commit) -> int | None:
        assert self._turn is not None
        return self._turn.commit(whole_keys(self._turn.store, commit))

    def __enter__(self) -> Self:
        self._turn = self._block.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


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
        drop: Callable[[], None] | None = getattr(self.store, "drop_extensions", None)
        if drop is not None:
            drop()


@runtime_checkable
class Copying(Protocol):
    """A store that can copy the value of a key to another without reading it into memory."""

    def copy(self, source: str, key: str) -> Edit:
        """Stage the value of `source`, and return the edit that makes it that of `key` too."""
        ...


def copied(store: Store, source: str, key: str) -> Edit:
    """Return the edit that makes the value of `source` that of `key` too, staged if possible.

    >>> from ingot.stores import MemoryStore
    >>> copied(MemoryStore({"a": b"alpha"}), "a", "b")
    Put('b', 5 bytes)
    """
    if isinstance(store, Copying):
        return store.copy(source, key)
    (data,) = store.read([Extent(source)])
    if data is None:
        raise NotFoundError(f"{store.location}: no key {source!r} to copy")
    return Put(key, data)


def close_log(store: Store) -> None:
    """Have a store close its log, if it keeps one and this program has appended to it.

    >>> from ingot.stores import MemoryStore
    >>> close_log(MemoryStore())
    """
    close: Callable[[], None] | None = getattr(store, "close_log", None)
    if close is not None:
        close()


def announce_staging(store: Store, transaction: str) -> None:
    """Keep other writers from removing what is staged under a name; some stores need no such call.

    >>> from ingot.stores import MemoryStore
    >>> announce_staging(MemoryStore(), "2f81")
    """
    if _is_announcing(type(store)):
        cast(StagingStore, store).announce_staging(transaction)


def withdraw_staging(store: Store, transaction: str, *, staged: bool = True) -> None:
    """Take back an announcement; some stores need no such call.

    The next writer searches for files that were left, if any were `staged`.

    >>> from ingot.stores import MemoryStore
    >>> withdraw_staging(MemoryStore(), "2f81")
    """
    if _is_announcing(type(store)):
        cast(StagingStore, store).withdraw_staging(transaction, staged=staged)


def hand_over(store: Store, edits: Iterable[Edit]) -> None:
    """Leave the staged values of edits to a process that has announced staging, and commits them.

    >>> from ingot.stores import MemoryStore, Put
    >>> hand_over(MemoryStore(), [Put("a", b"alpha")])
    """
    if _is_announcing(type(store)):
        cast(StagingStore, store).hand_over(edits)


def discard(store: Store, edits: Iterable[Edit]) -> None:
    """Remove what was staged for edits that will not be applied.

    >>> from ingot.stores import MemoryStore, Put
    >>> discard(MemoryStore(), [Put("a", b"alpha")])
    """
    states = versioned(store)
    if states is not None:
        states.discard(edits)


def versioned(store: Store) -> Versioned | None:
    """Return a store as a versioned one; None when it has no versions.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore()
    >>> versioned(store) is store
    True
    """
    return cast(Versioned, store) if _is_versioned(type(store)) else None


@functools.cache
def _is_versioned(kind: type) -> bool:
    # Checking a protocol takes longer than reading the version from a lock file.
    return issubclass(kind, Versioned)


@functools.cache
def _is_switching_store(kind: type) -> bool:
    return issubclass(kind, SwitchingStore)


@functools.cache
def _is_announcing(kind: type) -> bool:
    return issubclass(kind, StagingStore)


def is_switching(version: Version | None) -> bool:
    """Return whether one version was just becoming the next, or its writer died during that.

    >>> is_switching(Version(7, settled=False)), is_switching(Version(7 + SWITCHING, settled=False))
    (False, True)
    """
    return version is not None and version[0] >= SWITCHING


def version_number(version: Version | None) -> int | None:
    """Return the number of a version; None before the first commit.

    >>> version_number(Version(7, settled=True)), version_number(None)
    (7, None)
    """
    return None if version is None else version[0]

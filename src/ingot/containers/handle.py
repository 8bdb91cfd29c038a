"""Handles of datasets: a value loaded from the committed state, and turns to change it.

A handle reads one committed state without a lock, reloads its value when another writer has
committed, and commits changes under the lock. What the value is, its `load` decides.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, cast

from ingot import signals
from ingot.containers.assigned import AssignedItems
from ingot.errors import ArgumentError, IngotError, LockedError, ReadOnlyError
from ingot.native import NativeDocuments, NativeVersionProbe
from ingot.stores.buffered import BufferedStore
from ingot.stores.documents import DocumentCheck, Documents
from ingot.stores.store import Commit, Durability, Store
from ingot.stores.transaction import TransactionStore
from ingot.stores.versions import (
    NO_VERSION,
    KernelCommit,
    Version,
    WriteTurn,
    attempts,
    discard,
    is_switching,
    settled_number,
    switched,
    version_number,
    version_probe,
    versioned,
    writing,
)

__all__ = [
    "Handle",
    "HandleProtocol",
    "HandleTurn",
    "PartHandle",
    "PartTurn",
    "StoreItems",
    "TransactionalHandle",
    "ValueTurn",
]

Value = TypeVar("Value")
Result = TypeVar("Result")
Whole = TypeVar("Whole")
Part = TypeVar("Part")


# A smaller read takes less time than a pin.
_LARGE_READ: Final = 256 << 10
# After so many seconds without a commit, a read is tried without a pin: the writer may have ended,
# or may be waiting for readers.
_LONGEST_PIN: Final = 0.5
# A reader beside a writer tries so many times before it takes the steps one by one.
_QUICK_LOOKS: Final = 3
# After so many items, a transaction looks again whether another writer has committed.
_ITEMS_BETWEEN_LOOKS: Final = 64


class Handle(Generic[Value]):
    """A value that is always that of the committed state, or of the state of a snapshot.

    `load` makes the value from a store. It is called again when another writer has committed, so it
    must read all that the value depends on from the store that it is given. `first` is a value that
    was loaded already, with its version number.

    Programs that do not know the lock change a dataset without a new version. `documents` gets the
    documents that a value was made from. Every turn to write, and every read that fails, compares
    them with the store, and loads the value again when they differ. Where another state has the
    same documents, `renew` makes its value from the one before and the store, or returns None.

    >>> from ingot.stores import Extent, MemoryStore, Put
    >>> store = MemoryStore({"length": b"3"})
    >>> handle = Handle(store, lambda view: view.read([Extent("length")])[0])
    >>> handle.value
    b'3'
    >>> store.apply(Commit(publish=(Put("length", b"4"),)))
    >>> handle.value
    b'4'
    >>> with handle.writing() as turn:
    ...     turn.commit(turn.value + b"0", Commit(publish=(Put("length", b"40"),)))
    >>> handle.value, store.read([Extent("length")])
    (b'40', [b'40'])
    """

    __slots__ = (
        "_check",
        "_closed",
        "_contention",
        "_documents",
        "_forks",
        "_is_current",
        "_load",
        "_loaded",
        "_pinned",
        "_probe",
        "_record_names",
        "_release",
        "_renew",
        "_snapshot_lock",
        "_snapshots",
        "_versioned",
        "_viewed",
        "_write_lock",
        "durability",
        "store",
    )

    def __init__(
        self,
        store: Store,
        load: Callable[[Store], Value],
        *,
        documents: Callable[[Value], Documents] | None = None,
        is_current: Callable[[Value, Store], bool] | None = None,
        renew: Callable[[Value, Store], Value | None] | None = None,
        durability: Durability = "full",
        first: tuple[Value | None, int | None] = (None, NO_VERSION),
    ) -> None:
        self.store: Final = store
        self.durability: Final = durability
        self._load = load
        self._documents = documents
        # Tells of a value without documents whether a store still has the state that it is of.
        self._is_current = is_current
        self._renew = renew
        self._contention = _Contention()
        self._check: DocumentCheck[Value] | None = None
        self._versioned = versioned(store)
        self._probe = None if self._versioned is None else version_probe(self._versioned)
        # What is asked for beside the version, where the probe is the kernel's.
        self._record_names: tuple[str, ...] | None = None
        if hasattr(self._probe, "stays"):
            self._record_names = getattr(store, "record_names", None)
        # One tuple, so that other threads never see half of a change.
        self._loaded = first
        # The view through a journal that is not applied yet, and the value loaded from it.
        self._viewed: tuple[Store, Value] | None = None
        self._pinned: tuple[Value] | None = None
        self._closed: str | None = None
        self._write_lock = threading.RLock()
        self._forks = signals.forks()
        self._snapshots: set[int] = set()
        self._snapshot_lock = threading.Lock()
        self._release: ExitStack | None = None

    @property
    def value(self) -> Value:
        """The value of the committed state, or of the snapshot."""
        return self.read(_same)

    def recent(self) -> Value:
        """Return the value at hand, without a look at the store.

        Another writer may have committed since. It serves what is made ready for a turn, which has
        the committed value.
        """
        value, number = self._loaded
        if value is None or number == NO_VERSION or self._pinned is not None:
            return self.value
        return value

    def read(
        self, use: Callable[[Value], Result], nbytes: Callable[[Value], int] | None = None
    ) -> Result:
        """Call `use` with the value and return its result; all that it reads is of one state.

        `use` is called again when the version changed before it returned. `nbytes` says how many
        bytes the result has: where reads of fewer bytes were overtaken by a writer, the state is
        pinned at once.
        """
        if self._versioned is None or self._probe is None:
            return use(self._unversioned())
        pinned = self._pinned
        if pinned is not None and self._forks != signals.forks():
            self._check_fork()
            pinned = None
        if pinned is not None:
            try:
                result = use(pinned[0])
            except Exception:
                if self._pinned is pinned:
                    raise
            else:
                # In another thread the snapshot may have ended meanwhile.
                if self._pinned is pinned:
                    return result
            return self._read_anew(use, nbytes)
        viewed = self._viewed
        if viewed is not None:
            return self._read_viewed(use, nbytes, *viewed)
        value, number = self._loaded
        hurried = nbytes is not None and self._contention.active
        # No number is used twice: if it is the same now, it was while `use` ran.
        if number == NO_VERSION or hurried:
            return self._read_anew(use, nbytes)
        if self._probe.moved(number):
            return self._read_next(use, nbytes, value)
        try:
            result = use(value)  # type: ignore[arg-type]
        except Exception:
            if self._probe.confirms(number) and self._is_unchanged(value):
                raise
        else:
            if self._stays(number):
                return result
            if nbytes is not None:
                self._contention.note(nbytes(value))  # type: ignore[arg-type]
            if not self._contention.active:
                return self._read_next(use, nbytes, value)
        return self._read_anew(use, nbytes)

    def _read_next(
        self,
        use: Callable[[Value], Result],
        nbytes: Callable[[Value], int] | None,
        before: Value | None,
    ) -> Result:
        """Read a state that follows the one at hand, and has its documents if a writer is at work.

        One look finds that out in the usual case; whatever is unusual is left to `_read_anew`.
        """
        assert self._versioned is not None
        kept = None if before is None or self._check is None else self._check.kept(before)
        committed_as = getattr(self._versioned, "committed_as", None)
        if kept is None or committed_as is None or self._renew is None:
            return self._read_anew(use, nbytes)
        for _ in range(_QUICK_LOOKS):
            number = committed_as(kept)
            value = None if number is None else self._renew(before, self.store)  # type: ignore[arg-type]
            if value is None or self._check is None:
                break
            self._check.follow(before, value, ())  # type: ignore[arg-type]
            # If the state changes meanwhile, its number is another one: none is used twice.
            self._loaded = value, number
            before = value
            try:
                result = use(value)
            except Exception:
                break  # The long way says what is wrong, if anything.
            if version_number(self._versioned.version()) == number:
                return result
            if nbytes is not None:
                self._contention.note(nbytes(value))
            if self._contention.active:
                break
        return self._read_anew(use, nbytes)

    def writing(self) -> "ValueTurn[Value]":
        """Return a turn to write: entering it takes the lock and gets the committed value.

        Leaving the block without a commit changes nothing.
        """
        self._check_fork()
        if self._pinned is not None:
            raise ReadOnlyError(f"{self.store.location}: cannot be changed inside a snapshot")
        return ValueTurn(self)

    def switch(self, value: Value, change: KernelCommit, after: Callable[[], Value]) -> bool:
        """Have the kernel commit a change of the value at hand; return whether it could.

        If not, nothing has changed, and a turn to write has to make the change. `after` returns the
        value of the next state.
        """
        self._check_fork()
        with self._write_lock:
            current, number = self._loaded
            if current is not value or number is None:
                return False
            if self._pinned is not None or self._viewed is not None:
                return False
            documents = self._kept_documents(value)
            if documents is None:
                return False
            version = switched(self.store, change, documents, number, durability=self.durability)
            if version is None:
                return False
            following = after()
            if self._check is not None:
                self._check.follow(value, following, change.edits)
            self._loaded = following, version
        return True

    def _kept_documents(self, value: Value) -> NativeDocuments | None:
        """Return the documents of a value, as the kernel compares them; None without the kernel."""
        kept = None if self._check is None else self._check.kept(value)
        if kept is None and self.describes(value) and self._check is not None:
            kept = self._check.kept(value)
        return kept

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state, for all threads; writers of all processes wait until the block ends.

        Snapshots that overlap are of the same state, until the last of them ends.
        """
        return _Snapshot(self)

    def _begin_snapshot(self, snapshot: "_Snapshot[Value]") -> None:
        self._check_fork()
        with signals.Deferred(), self._snapshot_lock:
            if not self._snapshots:
                self._pin()
            self._snapshots.add(id(snapshot))

    def _end_snapshot(self, snapshot: "_Snapshot[Value]") -> None:
        with signals.Deferred(), self._snapshot_lock:
            if id(snapshot) in self._snapshots:
                self._snapshots.discard(id(snapshot))
                if not self._snapshots:
                    self._pinned = None
                    if self._release is not None:
                        self._release.close()

    def _check_fork(self) -> None:
        """Begin anew in a forked child: locks and snapshots are those of the parent's threads."""
        if self._forks != signals.forks():
            self._forks = signals.forks()
            self._pinned = None
            self._snapshots = set()
            self._release = None
            self._write_lock = threading.RLock()
            self._snapshot_lock = threading.Lock()

    def refresh(self) -> None:
        """Load the value again."""
        if self._pinned is None:
            self._loaded = None, NO_VERSION
            self._viewed = None
            self.read(_same)

    def refresh_changed(self) -> None:
        """Load the value again if another program has changed its documents."""
        value, number = self._loaded
        if number != NO_VERSION and self._pinned is None:
            self._is_unchanged(value)

    def has_documents(self, value: Value) -> bool:
        """Return whether a value was made from documents that can be compared with the store."""
        return self._documents is not None and bool(self._documents(value))

    def describes(self, value: Value, *, strict: bool = False) -> bool:
        """Return whether the store still has the documents that a value was made from.

        If `strict`, documents that were only written again count as changed.
        """
        if self._documents is None:
            return True
        if self._check is None:
            self._check = DocumentCheck()
        if self._check.is_known(self.store, value):
            return True
        return self._check.compare(self.store, value, self._documents(value), strict=strict)

    def close(self, name: str) -> None:
        """Drop the value; later calls raise an error that says that `name` is closed."""
        self._closed = name
        self._loaded = None, NO_VERSION
        self._viewed = None
        if self._check is not None:
            self._check.forget()

    def forget(self) -> None:
        """Drop the value, which is loaded again when it is needed."""
        if self._pinned is None:
            self._loaded = None, NO_VERSION

    def check_open(self) -> None:
        """Raise `ValueError` if the handle is closed."""
        self._check_open()

    def _pin(self) -> None:
        if self._versioned is None:
            return
        self._check_open()
        with ExitStack() as stack:
            view = stack.enter_context(self._versioned.pin())
            self._pinned = (self._pinned_value(view),)
            self._release = stack.pop_all()

    def _stays(self, number: int | None) -> bool:
        """Return whether a version is still that of the committed state."""
        assert self._probe is not None
        if number is not None and self._record_names is not None:
            # The kernel finds out in one call, unless there is a journal or a log.
            known = cast(NativeVersionProbe, self._probe).stays(number, self._record_names)
            if known is not None:
                return known
        return self._probe.confirms(number) or self._is_still(number)

    def _is_still(self, number: int | None) -> bool:
        """Return whether this is the version of the committed state, where a probe cannot tell.

        A writer is at work, or died, or the system was restarted: only a journal means that another
        state is committed.
        """
        assert self._versioned is not None
        # A commit that was decided before this has a journal, or has changed the number.
        if self._versioned.view() is not self.store:
            return False
        version = self._versioned.version()
        return version_number(version) == number and not is_switching(version)

    def _read_viewed(
        self,
        use: Callable[[Value], Result],
        nbytes: Callable[[Value], int] | None,
        view: Store,
        value: Value,
    ) -> Result:
        """Read through a journal; there is the same view as long as its state is committed."""
        assert self._versioned is not None
        try:
            result = use(value)
        except Exception:
            # A file that is missing or does not fit may be one that a writer has just changed.
            return self._read_anew(use, nbytes)
        return result if self._versioned.view() is view else self._read_anew(use, nbytes)

    def _read_anew(
        self, use: Callable[[Value], Result], nbytes: Callable[[Value], int] | None
    ) -> Result:
        """Read the version before and after `use`, until it is the same; then take a lock."""
        assert self._versioned is not None
        read_version = self._versioned.version
        for _ in range(attempts(self._versioned)):
            version = read_version()
            if is_switching(version):
                break
            number = version_number(version)
            value: Value | None = None
            try:
                value = self._at(version)
                contention = self._contention
                if (
                    nbytes is not None
                    and contention.active
                    and contention.overtakes(nbytes(value), number)
                ):
                    break
                result = use(value)
            except Exception:
                # A key that is missing or does not fit may be one that a writer has changed, or
                # prepares: that does not fit what was read before.
                again = read_version()
                same = version_number(again) == number and (again is None or again.settled)
                if same and self._is_unchanged(value):
                    raise
            else:
                if version_number(read_version()) == number:
                    return result
                if nbytes is not None:
                    self._contention.note(nbytes(value))
        with self._versioned.pin() as view:
            return use(self._pinned_value(view))

    def _pinned_value(self, view: Store) -> Value:
        """Return the value of the state that is pinned and seen through `view`."""
        assert self._versioned is not None
        return self._at(self._versioned.version()) if view is self.store else self._load(view)

    def _at(self, version: Version | None) -> Value:
        """Return the value of a version, loaded if it is not the one at hand."""
        value, number = self._loaded
        if version is None:
            current = number is None
        elif version.settled:
            current = version.sequence == number
        else:
            # A writer is at work, or died: its journal decides which state is committed.
            assert self._versioned is not None
            view = self._versioned.view()
            if view is not self.store:
                viewed = self._viewed
                if viewed is None or viewed[0] is not view:
                    self._check_open()
                    # If the state changed meanwhile, there is another view by the next call.
                    self._viewed = viewed = view, self._load(view)
                return viewed[1]
            current = version.sequence == number
        self._viewed = None
        if current:
            return value  # type: ignore[return-value]
        self._check_open()
        if version is None and self._versioned is not None:
            view = self._versioned.view()
            if view is not self.store:
                return self._load(view)
        value = self._following(value, self.store)
        # If the state changed meanwhile, the caller sees another version: no number is used twice.
        self._loaded = value, version_number(version)
        return value

    def _following(self, value: Value | None, store: Store) -> Value:
        """Return the value of the state in `store`, given that of a state before, if any."""
        if value is not None and self._renew is not None and self.describes(value):
            after = self._renew(value, store)
            if after is not None:
                if self._check is not None:
                    self._check.follow(value, after, ())
                return after
        return self._load(store)

    def _is_unchanged(self, value: Value | None) -> bool:
        """Return whether no other program has changed the documents; drop a value if one has."""
        if value is None or self.describes(value):
            return True
        if self._loaded[0] is value:
            self._loaded = None, NO_VERSION
        return False

    def _committed(self, store: Store) -> Value:
        """Return the value of the committed state to a writer, who holds the lock."""
        if self._versioned is None:
            self._unversioned()
        value, number = self._loaded
        if self._versioned is not None and number != version_number(self._versioned.version()):
            return self._following(value, store)
        # Read again when it was only written again: what was kept of the data may be old.
        if value is not None and self.describes(value, strict=True):
            return value
        if value is not None and self._is_current is not None and self._is_current(value, store):
            return value
        self._check_open()
        try:
            value = self._load(store)
        except IngotError as error:
            error.add_note("another program has changed the metadata since it was read")
            raise
        self._loaded = value, number
        return value

    def _unversioned(self) -> Value:
        value, number = self._loaded
        if number == NO_VERSION:
            self._check_open()
            value = self._load(self.store)
            self._loaded = value, None
        return value  # type: ignore[return-value]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ArgumentError(f"{self._closed} is closed")


class _Contention:
    """How large the reads are that writers overtake, so that others as large pin the state.

    A small read is tried again when it was overtaken. A large one would be overtaken again, and the
    time of each attempt is lost. Readers whose pins overlap could keep writers waiting, so a handle
    ceases to pin when no commit was made for a while.
    """

    __slots__ = ("_least", "_number", "_since", "active")

    def __init__(self) -> None:
        self._least = 0
        self._number: int | None = NO_VERSION
        self._since = 0.0
        self.active = False
        """Whether large reads were overtaken of late."""

    def note(self, nbytes: int) -> None:
        """Note that a read of so many bytes was overtaken."""
        if nbytes >= _LARGE_READ:
            self._least = min(self._least, nbytes) if self.active else nbytes
            self._number, self.active = NO_VERSION, True

    def overtakes(self, nbytes: int, number: int | None) -> bool:
        """Return whether a read of so many bytes, from this version on, is likely to be overtaken.

        >>> contention = _Contention()
        >>> contention.note(1 << 20)
        >>> contention.overtakes(2 << 20, 7), contention.overtakes(4096, 7)
        (True, False)
        """
        if not self.active or nbytes < self._least:
            return False
        now = time.monotonic()
        if number != self._number:
            self._number, self._since = number, now
        self.active = now - self._since < _LONGEST_PIN
        return self.active


class _Snapshot(Generic[Value]):
    """The block of a snapshot, which ends at the latest when nothing refers to it any more."""

    __slots__ = ("_handle",)

    def __init__(self, handle: Handle[Value]) -> None:
        self._handle = handle

    def __enter__(self) -> None:
        self._handle._begin_snapshot(self)

    def __exit__(self, *error: object) -> None:
        self._handle._end_snapshot(self)

    def __del__(self) -> None:
        # Ctrl-C may come between the block and its end.
        self._handle._end_snapshot(self)


class HandleTurn(Protocol[Value]):
    """A turn to change a dataset, or a part of one, by one commit."""

    @property
    def value(self) -> Value:
        """The value of the committed state, which stays the same until `commit` is called."""
        ...

    @property
    def store(self) -> Store:
        """The store of the dataset."""
        ...

    def commit(self, value: Value, commit: Commit, *, again: bool = False) -> None:
        """Apply the commit that leads to the value; if `again`, the value is loaded again."""
        ...


class ValueTurn(Generic[Value]):
    """A turn of a `Handle`: a turn of its store, with the value of the committed state.

    Ctrl-C is held back from its beginning to its end.
    """

    __slots__ = ("_block", "_deferred", "_handle", "_turn", "value")

    value: Value
    _turn: WriteTurn

    def __init__(self, handle: Handle[Value]) -> None:
        self._handle = handle
        self._block = writing(handle.store, durability=handle.durability)
        self._deferred = signals.Deferred()

    def __enter__(self) -> Self:
        handle = self._handle
        self._deferred.__enter__()
        try:
            handle._write_lock.acquire()
        except BaseException:
            self._deferred.__exit__()
            raise
        try:
            handle._check_open()
            self._turn = self._block.__enter__()
            try:
                self.value = handle._committed(self._turn.store)
            except BaseException as error:
                self._block.__exit__(type(error), error, error.__traceback__)
                raise
        except BaseException:
            handle._write_lock.release()
            self._deferred.__exit__()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._block.__exit__(kind, error, trace)
        finally:
            self._handle._write_lock.release()
            self._deferred.__exit__()

    @property
    def store(self) -> Store:
        """The store of the dataset."""
        return self._turn.store

    def commit(self, value: Value, commit: Commit, *, again: bool = False) -> None:
        """Apply the commit that leads to the value.

        If `again`, the value is not kept, and is loaded when it is needed.
        """
        number = self._turn.commit(commit)
        handle = self._handle
        if handle._check is not None:
            handle._check.follow(self.value, value, commit.edits)
        handle._loaded = (None, NO_VERSION) if again else (value, number)


StoreItems: TypeAlias = Callable[[HandleTurn[Value], AssignedItems], object]
"""What stores items in a turn to write."""


class _PendingItems(NamedTuple):
    """Items of a transaction that are not stored yet, and how they are."""

    writing: Callable[[], AbstractContextManager[HandleTurn[Any]]]
    store_items: StoreItems[Any]
    items: AssignedItems

    def store(self, check: Callable[[HandleTurn[Any]], object] | None = None) -> None:
        """Store the items, once a turn to write has begun and passed a check."""
        with self.writing() as turn:
            if check is not None:
                check(turn)
            self.store_items(turn, self.items)


class HandleProtocol(Protocol[Value]):
    """What a container needs of the handle of its dataset; see `ingot.containers.handle.Handle`."""

    @property
    def store(self) -> Store:
        """The store of the dataset."""
        ...

    @property
    def durability(self) -> Durability:
        """What a commit survives when its call has returned."""
        ...

    @property
    def value(self) -> Value:
        """The value of the committed state, or of the snapshot."""
        ...

    def recent(self) -> Value:
        """Return the value at hand, without a look at the store: that of a turn may be another."""
        ...

    def read(
        self, use: Callable[[Value], Result], nbytes: Callable[[Value], int] | None = None
    ) -> Result:
        """Call `use` with the value and return its result; all that it reads is of one state.

        `nbytes` says how many bytes the result has.
        """
        ...

    def writing(self) -> AbstractContextManager[HandleTurn[Value]]:
        """Take the lock and give a turn to write."""
        ...

    def switch(self, value: Value, change: KernelCommit, after: Callable[[], Value]) -> bool:
        """Have the kernel commit a change of the value at hand; return whether it could."""
        ...

    def pending(
        self, store_items: StoreItems[Value], items: Callable[[], AssignedItems]
    ) -> AssignedItems | None:
        """Return items of this transaction that are not stored yet; None outside of one.

        `store_items` stores them in a turn before anything else is read or written, when the
        transaction ends, and when there are as many as may be. `items` makes room for some.
        """
        ...

    def pending_now(self, store_items: StoreItems[Value]) -> AssignedItems | None:
        """Return the items that this thread assigns now, if they are stored so; None without any.

        It does not look whether another writer has committed meanwhile. So it returns None from
        time to time, and `pending` looks.
        """
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state while a block runs."""
        ...

    def is_inside(self) -> bool:
        """Return whether this thread is inside a transaction."""
        ...

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes in a block; an exception discards all of them."""
        ...

    def refresh(self) -> None:
        """Load the value again."""
        ...

    def close(self, name: str) -> None:
        """Drop the value; later calls raise an error that says that `name` is closed."""
        ...


class PartHandle(Generic[Whole, Part]):
    """A handle of a part: `find` gets the part from the whole, `put` puts a changed part into it.

    >>> from ingot.containers.handle import Handle
    >>> from ingot.stores import MemoryStore
    >>> load = lambda store: (1, 2)
    >>> pair = TransactionalHandle(Handle(MemoryStore(), load), load)
    >>> put = lambda whole, part, commit: ((whole[0], part), commit)
    >>> second = PartHandle(pair, lambda whole: whole[1], put)
    >>> with second.writing() as turn:
    ...     turn.commit(turn.value * 10, Commit())
    >>> second.value, pair.value
    (20, (1, 20))
    """

    __slots__ = ("_closed", "_find", "_put", "_whole")

    def __init__(
        self,
        whole: HandleProtocol[Whole],
        find: Callable[[Whole], Part],
        put: Callable[[Whole, Part, Commit], tuple[Whole, Commit]],
    ) -> None:
        self._whole = whole
        self._find = find
        self._put = put
        self._closed: str | None = None

    @property
    def store(self) -> Store:
        """The store of the whole."""
        return self._whole.store

    @property
    def durability(self) -> Durability:
        """What a commit survives when its call has returned."""
        return self._whole.durability

    @property
    def value(self) -> Part:
        """The part in the committed state, or in the snapshot."""
        return self.read(_same)

    def recent(self) -> Part:
        """Return the part at hand, without a look at the store: that of a turn may be another."""
        self._check_open()
        return self._find(self._whole.recent())

    def read(
        self, use: Callable[[Part], Result], nbytes: Callable[[Part], int] | None = None
    ) -> Result:
        """Call `use` with the part and return its result; all that it reads is of one state."""
        self._check_open()
        find = self._find
        size = None if nbytes is None else lambda whole: nbytes(find(whole))
        return self._whole.read(lambda whole: use(find(whole)), size)

    def writing(self) -> "PartTurn[Whole, Part]":
        """Return a turn to change the part; entering it takes the lock of the whole."""
        self._check_open()
        return PartTurn(self._whole.writing(), self._find, self._put)

    def switch(self, value: Part, change: KernelCommit, after: Callable[[], Part]) -> bool:
        """Return False: the value of the whole changes with that of the part."""
        return False

    def pending(
        self, store_items: StoreItems[Part], items: Callable[[], AssignedItems]
    ) -> AssignedItems | None:
        """Return None: a part is stored with the whole."""
        return None

    def pending_now(self, store_items: StoreItems[Part]) -> AssignedItems | None:
        """Return None: a part is stored with the whole."""
        return None

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state of the whole."""
        return self._whole.snapshot()

    def is_inside(self) -> bool:
        """Return whether this thread is inside a transaction."""
        return self._whole.is_inside()

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes of the whole in a block."""
        return self._whole.transaction()

    def refresh(self) -> None:
        """Load the whole again."""
        self._whole.refresh()

    def close(self, name: str) -> None:
        """Close this handle of the part; the whole stays open."""
        self._closed = name

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ArgumentError(f"{self._closed} is closed")


class PartTurn(Generic[Whole, Part]):
    """A turn of a `PartHandle`: its commit is one of the whole."""

    __slots__ = ("_block", "_find", "_put", "_whole", "value")

    value: Part
    _whole: HandleTurn[Whole]

    def __init__(
        self,
        block: AbstractContextManager[HandleTurn[Whole]],
        find: Callable[[Whole], Part],
        put: Callable[[Whole, Part, Commit], tuple[Whole, Commit]],
    ) -> None:
        self._block = block
        self._find = find
        self._put = put

    def __enter__(self) -> Self:
        self._whole = self._block.__enter__()
        try:
            self.value = self._find(self._whole.value)
        except BaseException as error:
            self._block.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Nothing follows: a Ctrl-C that was held back is raised here, with its note.
        self._block.__exit__(kind, error, trace)

    @property
    def store(self) -> Store:
        """The store of the whole."""
        return self._whole.store

    def commit(self, value: Part, commit: Commit, *, again: bool = False) -> None:
        """Apply the commit that leads to the value of the part; if `again`, it is loaded again."""
        if again:
            self._whole.commit(self._whole.value, commit, again=True)
            return
        try:
            change = self._put(self._whole.value, value, commit)
        except BaseException:
            discard(self.store, commit.edits)
            raise
        self._whole.commit(*change)


class TransactionalHandle(Generic[Value]):
    """A handle with transactions, which make one commit of many; `load` is that of the handle.

    >>> from ingot.stores import Extent, MemoryStore, Put
    >>> store = MemoryStore({"n": b"1"})
    >>> load = lambda view: view.read([Extent("n")])[0]
    >>> handle = TransactionalHandle(Handle(store, load), load)
    >>> with handle.transaction():
    ...     with handle.writing() as turn:
    ...         turn.commit(b"2", Commit(publish=(Put("n", b"2"),)))
    ...     handle.value, load(store)
    (b'2', b'1')
    >>> handle.value, load(store)
    (b'2', b'2')
    """

    __slots__ = (
        "_begun",
        "_buffered",
        "_forks",
        "_handle",
        "_load",
        "_owner",
        "_pending",
        "_transactions",
    )

    def __init__(self, handle: Handle[Value], load: Callable[[Store], Value]) -> None:
        self._handle = handle
        self._load = load
        self._buffered: Handle[Value] | None = None
        self._owner: int | None = None
        self._begun: int | None = None
        self._pending: _PendingItems | None = None
        self._forks = signals.forks()
        self._transactions = threading.Lock()

    @property
    def below(self) -> Store:
        """The store of the dataset, inside a transaction too."""
        return self._handle.store

    @property
    def store(self) -> Store:
        """The store of the dataset, or the buffered store inside a transaction."""
        if self._pending is not None and self.is_inside():
            self.store_pending()
        return self._current().store

    @property
    def durability(self) -> Durability:
        """What a commit survives when its call has returned."""
        return self._handle.durability

    @property
    def value(self) -> Value:
        """The value of the committed state, or of the snapshot."""
        return self.read(_same)

    def recent(self) -> Value:
        """Return the value at hand, without a look at the store: that of a turn may be another."""
        return self._current().recent()

    def read(
        self, use: Callable[[Value], Result], nbytes: Callable[[Value], int] | None = None
    ) -> Result:
        """Call `use` with the value and return its result; all that it reads is of one state."""
        if self._buffered is None or not self.is_inside():
            return self._handle.read(use, nbytes)
        with self.unmoved() as buffered:
            return buffered.read(use)

    def writing(self) -> AbstractContextManager[ValueTurn[Value]]:
        """Give a turn to write, to the buffered store inside a transaction."""
        return self._buffered_turn() if self.is_inside() else self._handle.writing()

    def switch(self, value: Value, change: KernelCommit, after: Callable[[], Value]) -> bool:
        """Have the kernel commit a change of the value at hand; return whether it could."""
        return not self.is_inside() and self._handle.switch(value, change, after)

    def pending(
        self, store_items: StoreItems[Value], items: Callable[[], AssignedItems]
    ) -> AssignedItems | None:
        """Return items of this transaction that are not stored yet; None outside of one."""
        return self.pending_of(self.writing, store_items, items)

    def pending_of(
        self,
        writing: Callable[[], AbstractContextManager[HandleTurn[Any]]],
        store_items: StoreItems[Any],
        items: Callable[[], AssignedItems],
    ) -> AssignedItems | None:
        """Return items that are not stored yet of an array, to which `writing` gives turns.

        Items of another array are stored first: they may be of the same one, opened twice.
        """
        if not self.is_inside():
            return None
        self._check_unmoved()
        pending = self._pending
        if pending is None or pending.store_items != store_items or pending.items.is_full:
            self.store_pending()
            self._pending = pending = _PendingItems(writing, store_items, items())
        return pending.items

    def pending_now(self, store_items: StoreItems[Any]) -> AssignedItems | None:
        """Return the items that this thread assigns now, if they are stored so; None without any.

        It does not look whether another writer has committed meanwhile. So it returns None from
        time to time, and `pending` looks.
        """
        pending = self._pending
        if pending is None or not self.is_inside() or pending.store_items != store_items:
            return None
        items = pending.items
        return None if items.is_full or len(items) % _ITEMS_BETWEEN_LOOKS == 0 else items

    def store_pending(self) -> None:
        """Store items that were assigned in the transaction and are not stored yet."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.store()

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state while a block runs."""
        if self.is_inside():
            self.store_pending()
        return self._current().snapshot()

    def refresh(self) -> None:
        """Load the value again."""
        self._current().refresh()

    def close(self, name: str) -> None:
        """Drop the value; later calls raise an error that says that `name` is closed."""
        self._handle.close(name)

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes in a block; an exception discards all of them.

        A transaction inside another is part of it.
        """
        return _Transaction(self._transacting())

    @contextmanager
    def _transacting(self) -> Iterator[None]:
        if self.is_inside():
            yield
            return
        self._check_fork()
        with self._transactions:
            self._begun = settled_number(self._handle.store, self.durability)
            self._handle.refresh_changed()
            begun = self._handle.value
            store = BufferedStore(self._handle.store)
            try:
                inner = TransactionStore(store)
                self._buffered = Handle(inner, self._load, durability=self._handle.durability)
                self._owner = threading.get_ident()
                yield
                pending = None
                if self._pending is not None and not store.commit().edits:
                    # They are all of the transaction: nothing has to be buffered.
                    pending, self._pending = self._pending, None
                self.store_pending()
                after = begun
                if store.commit().edits:
                    with self.unmoved() as buffered:
                        after = buffered.value
            except BaseException:
                store.discard()
                raise
            finally:
                self._owner = self._buffered = self._pending = None
            if pending is not None:
                pending.store(partial(self._check_begun, begun))
            else:
                self._commit(begun, after, store)

    def _commit(self, begun: Value, after: Value, store: BufferedStore) -> None:
        commit = store.commit()
        if not commit.edits:
            return
        handed_over = False
        try:
            with self._handle.writing() as turn:
                self._check_begun(begun, turn)
                # From here on the store below removes what was staged, or needs it: a commit that
                # fails late is decided already.
                handed_over = True
                # The value of the transaction still reads from the buffered store.
                turn.commit(after, commit, again=True)
        finally:
            if not handed_over:
                store.discard()

    def _check_begun(self, begun: Value, turn: HandleTurn[Any]) -> None:
        if turn.value is not begun and not self._is_as_begun(begun):
            raise self._overtaken()

    def _is_as_begun(self, begun: Value) -> bool:
        """Return whether no other writer has changed the dataset since the transaction began."""
        states = versioned(self._handle.store)
        if states is None or version_number(states.version()) != self._begun:
            return False
        # What has no documents is only known by its version.
        return not self._handle.has_documents(begun) or self._handle.describes(begun)

    @contextmanager
    def _buffered_turn(self) -> Iterator[ValueTurn[Value]]:
        with self.unmoved() as buffered, buffered.writing() as turn:
            yield turn

    @contextmanager
    def unmoved(self) -> Iterator[Handle[Value]]:
        """Give the buffered handle; raise `LockedError` if the state below it has changed."""
        self.store_pending()
        assert self._buffered is not None
        try:
            yield self._buffered
        except Exception as error:
            # A key that is missing or does not fit may be one that another writer has just changed.
            self._check_unmoved(error)
            raise
        self._check_unmoved()

    def _check_unmoved(self, cause: Exception | None = None) -> None:
        states = versioned(self._handle.store)
        if states is not None and version_number(states.version()) != self._begun:
            raise self._overtaken() from cause

    def _overtaken(self) -> LockedError:
        return LockedError(
            f"{self._handle.store.location}: another writer has committed since the transaction "
            "began; nothing was changed"
        )

    def is_active(self) -> bool:
        """Return whether a transaction is under way, in this thread or in another."""
        return self._buffered is not None

    def is_inside(self) -> bool:
        """Return whether this thread is inside a transaction."""
        if self._buffered is None:
            return False
        self._check_fork()
        return self._buffered is not None and self._owner == threading.get_ident()

    def _check_fork(self) -> None:
        """Begin anew in a forked child: a transaction is the parent's."""
        if self._forks != signals.forks():
            self._forks = signals.forks()
            self._owner = self._buffered = self._pending = None
            self._transactions = threading.Lock()

    def _current(self) -> Handle[Value]:
        buffered = self._buffered
        return buffered if buffered is not None and self.is_inside() else self._handle


class _Transaction:
    """The block of a transaction; Ctrl-C is held back while it ends."""

    __slots__ = ("_block",)

    def __init__(self, block: AbstractContextManager[None]) -> None:
        self._block = block

    def __enter__(self) -> None:
        self._block.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        with signals.Deferred():
            return self._block.__exit__(kind, error, trace)


def _same(value: Value) -> Value:
    return value

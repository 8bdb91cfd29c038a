"""What a container holds of its dataset: the state it has read, and the way to the next one.

Knows when what was read before still holds, how to read one committed state without a lock, and how
to change it in a writer's turn. Refuses to know what is read: the value of a handle is whatever its
`load` makes of a store.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, Generic, Protocol, TypeVar

from ingot.errors import LockedError, ReadOnlyError
from ingot.stores.buffered import BufferedStore
from ingot.stores.store import Commit, Durability, Store
from ingot.stores.versions import (
    ATTEMPTS,
    NO_VERSION,
    Version,
    WriteTurn,
    discard,
    is_switching,
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
    "TransactionalHandle",
    "ValueTurn",
]

Value = TypeVar("Value")
Result = TypeVar("Result")
Whole = TypeVar("Whole")
Part = TypeVar("Part")


class Handle(Generic[Value]):
    """A value that is always that of the committed state, or of one state as long as that is held.

    `load` makes the value of a store. It is called again when another writer has committed, so all
    that the value depends on it must read from the store that it is given. `first` is what was
    loaded already, with the number of its state.

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
        "_closed",
        "_held",
        "_holders",
        "_holding",
        "_load",
        "_loaded",
        "_probe",
        "_release",
        "_turns",
        "_versioned",
        "durability",
        "store",
    )

    def __init__(
        self,
        store: Store,
        load: Callable[[Store], Value],
        *,
        durability: Durability = "full",
        first: tuple[Value | None, int | None] = (None, NO_VERSION),
    ) -> None:
        self.store: Final = store
        self.durability: Final = durability
        self._load = load
        self._versioned = versioned(store)
        self._probe = None if self._versioned is None else version_probe(self._versioned)
        # One value, so that a thread that reads never sees half of a change.
        self._loaded = first
        self._held: tuple[Value] | None = None
        self._closed: str | None = None
        self._turns = threading.RLock()
        self._holders = 0
        self._holding = threading.Lock()
        self._release = ExitStack()

    @property
    def value(self) -> Value:
        """The value now, or that of the state that is held."""
        return self.read(_same)

    def read(self, use: Callable[[Value], Result]) -> Result:
        """Return what `use` makes of the value, and of what it reads meanwhile, of one state.

        `use` is called again when the state changed before it returned.
        """
        if self._versioned is None or self._probe is None:
            return use(self._unwatched())
        held = self._held
        if held is not None:
            try:
                result = use(held[0])
            except Exception:
                if self._held is held:
                    raise
            else:
                # In another thread the snapshot may have ended meanwhile.
                if self._held is held:
                    return result
            return self._read_anew(use)
        value, number = self._loaded
        # No number comes twice: if it is this one still, it was while `use` ran.
        if number != NO_VERSION and not self._probe.moved(number):
            try:
                result = use(value)  # type: ignore[arg-type]
            except Exception:
                if self._probe.confirms(number):
                    raise
            else:
                if self._probe.confirms(number) or self._is_still(number):
                    return result
        return self._read_anew(use)

    @contextmanager
    def writing(self) -> Iterator["ValueTurn[Value]"]:
        """Give a turn to change the dataset: the lock is taken, and the value is the committed one.

        Leaving the block without a commit changes nothing.
        """
        if self._held is not None:
            raise ReadOnlyError(f"{self.store.location}: not to be changed inside of a snapshot")
        with self._turns:
            self._check_open()
            with writing(self.store, durability=self.durability) as turn:
                yield ValueTurn(self, turn, self._in_turn(turn.store))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Stay on one state, for all threads; writers, in other processes too, wait for the end.

        Snapshots that overlap are on the same state, until the last of them ends.
        """
        with self._holding:
            if not self._holders:
                self._hold()
            self._holders += 1
        try:
            yield
        finally:
            with self._holding:
                self._holders -= 1
                if not self._holders:
                    self._held = None
                    self._release.close()

    def refresh(self) -> None:
        """Load the value anew, whatever was read before."""
        if self._held is None:
            self._loaded = None, NO_VERSION
            self.read(_same)

    def close(self, name: str) -> None:
        """Let go of everything; later calls complain that `name` is closed."""
        self._closed = name
        self._loaded = None, NO_VERSION

    def _hold(self) -> None:
        if self._versioned is None:
            return
        self._check_open()
        with ExitStack() as stack:
            view = stack.enter_context(self._versioned.pin())
            look = self._versioned.version()
            self._held = (self._at(look) if view is self.store else self._load(view),)
            self._release = stack.pop_all()

    def _is_still(self, number: int | None) -> bool:
        """Tell whether the state with this number is the committed one, where a look is unsure.

        A writer is at work, or died, or the system was started again since it was: only a journal
        would say that another state is committed.
        """
        assert self._versioned is not None
        look = self._versioned.version()
        if (
            version_number(look) != number
            or is_switching(look)
            or self._versioned.view() is not self.store
        ):
            return False
        look = self._versioned.version()
        return version_number(look) == number and not is_switching(look)

    def _read_anew(self, use: Callable[[Value], Result]) -> Result:
        """Version before `use` and after it, and use the value of what is seen."""
        assert self._versioned is not None
        look_again = self._versioned.version
        for _ in range(ATTEMPTS):
            look = look_again()
            if is_switching(look):
                break
            number = version_number(look)
            try:
                result = use(self._at(look))
            except Exception:
                # What is missing or does not fit may be what a writer has just changed, or what it
                # prepares: that fits what is there already, but not what was read of it before.
                again = look_again()
                if version_number(again) == number and (again is None or again.settled):
                    raise
            else:
                if version_number(look_again()) == number:
                    return result
        with self._versioned.pin() as view:
            return use(self._load(view))

    def _at(self, look: Version | None) -> Value:
        """Return the value of the state that was looked at, if it still is that one."""
        value, number = self._loaded
        if look is None:
            current = number is None
        elif look.settled:
            current = look.sequence == number
        else:
            # A writer is at work, or died: only its journal can tell which state is committed.
            assert self._versioned is not None
            view = self._versioned.view()
            if view is not self.store:
                self._check_open()
                return self._load(view)
            current = look.sequence == number
        if current:
            return value  # type: ignore[return-value]
        self._check_open()
        if look is None and self._versioned is not None:
            view = self._versioned.view()
            if view is not self.store:
                return self._load(view)
        value = self._load(self.store)
        # Right or not, this is found out by who looks again: no state has this number twice.
        self._loaded = value, version_number(look)
        return value

    def _in_turn(self, store: Store) -> Value:
        if self._versioned is None:
            return self._unwatched()
        value, number = self._loaded
        if number == version_number(self._versioned.version()):
            return value  # type: ignore[return-value]
        return self._load(store)

    def _unwatched(self) -> Value:
        value, number = self._loaded
        if number == NO_VERSION:
            self._check_open()
            value = self._load(self.store)
            self._loaded = value, None
        return value  # type: ignore[return-value]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ValueError(f"{self._closed} is closed")


class HandleTurn(Protocol[Value]):
    """The right to change a dataset, or a part of one, by one commit."""

    @property
    def value(self) -> Value:
        """The value of the committed state, which stays that until `commit` is called."""
        ...

    @property
    def store(self) -> Store:
        """Where the dataset is."""
        ...

    def commit(self, value: Value, commit: Commit) -> None:
        """Apply the commit that leads to the value."""
        ...


class ValueTurn(Generic[Value]):
    """A turn of a `Handle`."""

    __slots__ = ("_handle", "_turn", "value")

    def __init__(self, handle: Handle[Value], turn: WriteTurn, value: Value) -> None:
        self.value: Final = value
        self._handle = handle
        self._turn = turn

    @property
    def store(self) -> Store:
        """Where the dataset is."""
        return self._turn.store

    def commit(self, value: Value, commit: Commit, *, again: bool = False) -> None:
        """Apply the commit that leads to the value.

        If `again`, the value is not to be used, and is loaded when it is needed.
        """
        number = self._turn.commit(commit)
        self._handle._loaded = (None, NO_VERSION) if again else (value, number)


class HandleProtocol(Protocol[Value]):
    """What a container needs of the handle of its dataset; see `ingot.containers.handle.Handle`."""

    @property
    def store(self) -> Store:
        """Where the dataset is."""
        ...

    @property
    def durability(self) -> Durability:
        """What a returned change has survived."""
        ...

    @property
    def value(self) -> Value:
        """The value now."""
        ...

    def read(self, use: Callable[[Value], Result]) -> Result:
        """Return what `use` makes of the value, of one state."""
        ...

    def writing(self) -> AbstractContextManager[HandleTurn[Value]]:
        """Give a turn to change the dataset."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state."""
        ...

    def refresh(self) -> None:
        """Load the value anew."""
        ...

    def close(self, name: str) -> None:
        """Let go of everything."""
        ...


class PartHandle(Generic[Whole, Part]):
    """The handle of a part: `find` gives the part of the whole, `put` makes its change the whole's.

    >>> from ingot.containers.handle import Handle
    >>> from ingot.stores import MemoryStore
    >>> pair = Handle(MemoryStore(), lambda store: (1, 2))
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
        """Where the whole is."""
        return self._whole.store

    @property
    def durability(self) -> Durability:
        """What a returned change has survived."""
        return self._whole.durability

    @property
    def value(self) -> Part:
        """The part now."""
        return self.read(_same)

    def read(self, use: Callable[[Part], Result]) -> Result:
        """Return what `use` makes of the part, and of what it reads meanwhile, of one state."""
        self._check_open()
        find = self._find
        return self._whole.read(lambda whole: use(find(whole)))

    @contextmanager
    def writing(self) -> Iterator["PartTurn[Whole, Part]"]:
        """Give a turn of the whole to change the part."""
        self._check_open()
        with self._whole.writing() as turn:
            yield PartTurn(turn, self._find(turn.value), self._put)

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state of the whole."""
        return self._whole.snapshot()

    def refresh(self) -> None:
        """Load the whole anew."""
        self._whole.refresh()

    def close(self, name: str) -> None:
        """End this way to the part; the whole stays open."""
        self._closed = name

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ValueError(f"{self._closed} is closed")


class PartTurn(Generic[Whole, Part]):
    """A turn of a `PartHandle`: its commit is one of the whole."""

    __slots__ = ("_put", "_whole", "value")

    def __init__(
        self,
        whole: HandleTurn[Whole],
        part: Part,
        put: Callable[[Whole, Part, Commit], tuple[Whole, Commit]],
    ) -> None:
        self.value: Final = part
        self._whole = whole
        self._put = put

    @property
    def store(self) -> Store:
        """Where the whole is."""
        return self._whole.store

    def commit(self, value: Part, commit: Commit) -> None:
        """Apply the commit that leads to the value of the part."""
        try:
            change = self._put(self._whole.value, value, commit)
        except BaseException:
            discard(self.store, commit.edits)
            raise
        self._whole.commit(*change)


class TransactionalHandle(Generic[Value]):
    """A handle that can gather changes; `load` makes the value of a store.

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

    __slots__ = ("_begun", "_handle", "_load", "_owner", "_pending", "_transactions")

    def __init__(self, handle: Handle[Value], load: Callable[[Store], Value]) -> None:
        self._handle = handle
        self._load = load
        self._pending: Handle[Value] | None = None
        self._owner: int | None = None
        self._begun: int | None = None
        self._transactions = threading.Lock()

    @property
    def store(self) -> Store:
        """Where the table is."""
        return self._current().store

    @property
    def durability(self) -> Durability:
        """What a returned change has survived."""
        return self._handle.durability

    @property
    def value(self) -> Value:
        """The value now."""
        return self.read(_same)

    def read(self, use: Callable[[Value], Result]) -> Result:
        """Return what `use` makes of the value, and of what it reads meanwhile, of one state."""
        if not self._is_inside():
            return self._handle.read(use)
        with self._unmoved() as buffered:
            return buffered.read(use)

    def writing(self) -> AbstractContextManager[ValueTurn[Value]]:
        """Give a turn to change the dataset, or what it will be when the transaction ends."""
        return self._buffered_turn() if self._is_inside() else self._handle.writing()

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state while a block runs."""
        return self._current().snapshot()

    def refresh(self) -> None:
        """Load the value anew, whatever was read before."""
        self._current().refresh()

    def close(self, name: str) -> None:
        """Let go of everything; later calls complain that `name` is closed."""
        self._handle.close(name)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make one commit of all changes of a block; an exception leaves everything as it was.

        Inside of another one it is a part of that.
        """
        if self._is_inside():
            yield
            return
        with self._transactions:
            self._begun = self._settled_number()
            begun = self._handle.value
            store = BufferedStore(self._handle.store)
            self._pending = Handle(store, self._load, durability=self._handle.durability)
            self._owner = threading.get_ident()
            try:
                yield
                after = begun
                if store.commit().edits:
                    with self._unmoved() as buffered:
                        after = buffered.value
            except BaseException:
                store.discard()
                raise
            finally:
                self._owner = self._pending = None
            self._commit(begun, after, store)

    def _commit(self, begun: Value, after: Value, store: BufferedStore) -> None:
        commit = store.commit()
        if not commit.edits:
            return
        handed_over = False
        try:
            with self._handle.writing() as turn:
                if turn.value is not begun and not self._is_as_begun():
                    raise self._overtaken()
                # From here on it is for the store below to remove what was staged, or to need it:
                # a commit that fails late is decided already.
                handed_over = True
                # The value that came out of the transaction still reads through it.
                turn.commit(after, commit, again=True)
        finally:
            if not handed_over:
                store.discard()

    def _settled_number(self) -> int | None:
        """Return the number of the committed state; what was decided before is done by then."""
        states = versioned(self._handle.store)
        if states is None:
            return None
        look = states.version()
        if look is None or not look.settled:
            # A turn of its own: it finishes what was decided, and where nobody has written yet,
            # states have numbers from now on.
            with states.writing(durability=self.durability) as turn:
                turn.commit(Commit())
            look = states.version()
        return version_number(look)

    def _is_as_begun(self) -> bool:
        """Tell whether nobody has committed since the transaction began."""
        states = versioned(self._handle.store)
        return states is not None and version_number(states.version()) == self._begun

    @contextmanager
    def _buffered_turn(self) -> Iterator[ValueTurn[Value]]:
        with self._unmoved() as buffered, buffered.writing() as turn:
            yield turn

    @contextmanager
    def _unmoved(self) -> Iterator[Handle[Value]]:
        """Give the state to be; what it stands on must not have changed when the block ends."""
        assert self._pending is not None
        states = versioned(self._handle.store)
        try:
            yield self._pending
        except Exception as error:
            # What is missing or does not fit may be what another writer has just changed.
            if states is not None and version_number(states.version()) != self._begun:
                raise self._overtaken() from error
            raise
        if states is not None and version_number(states.version()) != self._begun:
            raise self._overtaken()

    def _overtaken(self) -> LockedError:
        return LockedError(
            f"{self._handle.store.location}: another writer has committed since the transaction "
            "began; nothing was changed"
        )

    def _is_inside(self) -> bool:
        return self._pending is not None and self._owner == threading.get_ident()

    def _current(self) -> Handle[Value]:
        pending = self._pending
        return pending if pending is not None and self._is_inside() else self._handle


def _same(value: Value) -> Value:
    return value

"""The handle of a table: its committed state, or inside of a transaction the state to be.

Knows that a transaction belongs to the thread that began it, sees its own changes, and ends in one
commit or in none. Refuses to know what the changes are.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, TypeVar

from ingot.errors import LockedError
from ingot.handle import Handle
from ingot.stores.pending import PendingStore
from ingot.stores.state import number_of, stateful
from ingot.stores.store import Commit, Durability, Store

__all__ = ["Ledger"]

Value = TypeVar("Value")
Result = TypeVar("Result")


class Ledger(Generic[Value]):
    """A handle that can gather changes; `load` makes the value of a store.

    >>> from ingot.stores import Extent, MemoryStore, Put
    >>> store = MemoryStore({"n": b"1"})
    >>> load = lambda view: view.read([Extent("n")])[0]
    >>> ledger = Ledger(Handle(store, load), load)
    >>> with ledger.transaction():
    ...     ledger.change(lambda value: (b"2", Commit(publish=(Put("n", b"2"),))))
    ...     ledger.value, load(store)
    (b'2', b'1')
    >>> ledger.value, load(store)
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
        return self._unmoved(lambda pending: pending.read(use))

    def change(self, build: Callable[[Value], tuple[Value, Commit]]) -> None:
        """Apply the commit that `build` returns, or keep it until the transaction ends."""
        if self._is_inside():
            self._unmoved(lambda pending: pending.change(build))
        else:
            self._handle.change(build)

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
            store = PendingStore(self._handle.store)
            self._pending = Handle(store, self._load, durability=self._handle.durability)
            self._owner = threading.get_ident()
            try:
                yield
                changed = store.commit().edits
                after = self._unmoved(lambda pending: pending.value) if changed else begun
            except BaseException:
                store.discard()
                raise
            finally:
                self._owner = self._pending = None
            self._commit(begun, after, store)

    def _commit(self, begun: Value, after: Value, store: PendingStore) -> None:
        commit = store.commit()
        if not commit.edits:
            return
        waiting = [store]

        def build(now: Value) -> tuple[Value, Commit]:
            if now is not begun and not self._is_as_begun():
                raise self._overtaken()
            # From here on it is for the store below to remove what was put aside, or to need it:
            # a change that fails late is decided already.
            waiting.clear()
            return after, commit

        try:
            # The value that came out of the transaction still reads through it.
            self._handle.change(build, again=True)
        finally:
            for each in waiting:
                each.discard()

    def _settled_number(self) -> int | None:
        """Return the number of the committed state; what was decided before is done by then."""
        states = stateful(self._handle.store)
        if states is None:
            return None
        look = states.look()
        if look is None or not look.settled:
            # A turn of its own: it finishes what was decided, and where nobody has written yet,
            # states have numbers from now on.
            states.change(lambda _: Commit(), durability=self.durability)
            look = states.look()
        return number_of(look)

    def _is_as_begun(self) -> bool:
        """Tell whether nobody has committed since the transaction began."""
        states = stateful(self._handle.store)
        return states is not None and number_of(states.look()) == self._begun

    def _unmoved(self, use: Callable[[Handle[Value]], Result]) -> Result:
        """Use the state to be; what it stands on must not have changed since it began."""
        assert self._pending is not None
        states = stateful(self._handle.store)
        try:
            result = use(self._pending)
        except Exception as error:
            # What is missing or does not fit may be what another writer has just changed.
            if states is not None and number_of(states.look()) != self._begun:
                raise self._overtaken() from error
            raise
        if states is not None and number_of(states.look()) != self._begun:
            raise self._overtaken()
        return result

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

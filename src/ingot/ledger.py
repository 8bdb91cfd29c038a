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

    __slots__ = ("_handle", "_load", "_owner", "_pending", "_transactions")

    def __init__(self, handle: Handle[Value], load: Callable[[Store], Value]) -> None:
        self._handle = handle
        self._load = load
        self._pending: Handle[Value] | None = None
        self._owner: int | None = None
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
        return self._current().value

    def read(self, use: Callable[[Value], Result]) -> Result:
        """Return what `use` makes of the value, and of what it reads meanwhile, of one state."""
        return self._current().read(use)

    def change(self, build: Callable[[Value], tuple[Value, Commit]]) -> None:
        """Apply the commit that `build` returns, or keep it until the transaction ends."""
        self._current().change(build)

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
        if self._owner == threading.get_ident():
            yield
            return
        with self._transactions:
            begun = self._handle.value
            store = PendingStore(self._handle.store)
            self._pending = Handle(store, self._load, durability=self._handle.durability)
            self._owner = threading.get_ident()
            try:
                yield
                after = self._pending.value
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
            if now is not begun:
                raise LockedError(
                    f"{self._handle.store.location}: another writer has committed since the "
                    "transaction began; nothing was changed"
                )
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

    def _current(self) -> Handle[Value]:
        pending = self._pending
        if pending is not None and self._owner == threading.get_ident():
            return pending
        return self._handle

"""Handles of the members of one tree: each has its own value, all share their transactions.

A transaction of a group, or of any of its members, is one of the whole tree that was opened.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, TypeVar

from ingot.containers.assigned import AssignedItems
from ingot.containers.handle import Handle, HandleTurn, StoreItems, TransactionalHandle
from ingot.stores.store import Durability, Store
from ingot.stores.versions import KernelCommit

__all__ = ["MemberHandle", "tree_transactions"]

Value = TypeVar("Value")
Result = TypeVar("Result")


def tree_transactions(store: Store, durability: Durability) -> TransactionalHandle[object]:
    """Return what the handles of one tree share: the transactions of its store.

    >>> from ingot.stores import Commit, Extent, MemoryStore, Put
    >>> store = MemoryStore({"a": b"1", "b": b"2"})
    >>> tree = tree_transactions(store, "full")
    >>> reads = [lambda view, key=key: view.read([Extent(key)])[0] for key in "ab"]
    >>> a, b = (MemberHandle(tree, Handle(store, read), read) for read in reads)
    >>> with tree.transaction():
    ...     with a.writing() as turn:
    ...         turn.commit(b"10", Commit(publish=(Put("a", b"10"), Put("b", b"20"))))
    ...     a.value, b.value, store.read([Extent("a")])
    (b'10', b'20', [b'1'])
    >>> a.value, b.value, store.read([Extent("a")])
    (b'10', b'20', [b'10'])
    """

    def load(view: Store) -> object:
        return object()  # Another one for every version.

    return TransactionalHandle(Handle(store, load, durability=durability), load)


class MemberHandle(Generic[Value]):
    """The handle of a member: its own outside of transactions, one of the transaction inside."""

    __slots__ = ("_handle", "_load", "_tree", "_within")

    def __init__(
        self,
        tree: TransactionalHandle[Any],
        handle: Handle[Value],
        load: Callable[[Store], Value],
    ) -> None:
        self._tree = tree
        self._handle = handle
        self._load = load
        self._within: Handle[Value] | None = None

    @property
    def store(self) -> Store:
        """The store of the tree, or that of the transaction."""
        return self._tree.store

    @property
    def durability(self) -> Durability:
        """What a commit survives when its call has returned."""
        return self._handle.durability

    @property
    def value(self) -> Value:
        """The value of the committed state, of the snapshot, or of the transaction."""
        return self.read(_same)

    def recent(self) -> Value:
        """Return the value at hand, without a look at the store: that of a turn may be another."""
        return (self._inside() if self._tree.is_inside() else self._outside()).recent()

    def read(
        self, use: Callable[[Value], Result], nbytes: Callable[[Value], int] | None = None
    ) -> Result:
        """Call `use` with the value and return its result; all that it reads is of one state."""
        if not self._tree.is_inside():
            return self._outside().read(use, nbytes)
        with self._tree.unmoved():
            return self._inside().read(use)

    def writing(self) -> AbstractContextManager[HandleTurn[Value]]:
        """Take the lock and give a turn to write, or give a turn of the transaction."""
        return self._turn() if self._tree.is_inside() else self._outside().writing()

    def switch(self, value: Value, change: KernelCommit, after: Callable[[], Value]) -> bool:
        """Have the kernel commit a change of the value at hand; return whether it could."""
        return not self._tree.is_inside() and self._outside().switch(value, change, after)

    def pending(
        self, store_items: StoreItems[Value], items: Callable[[], AssignedItems]
    ) -> AssignedItems | None:
        """Return items of this transaction that are not stored yet; None outside of one."""
        return self._tree.pending_of(self.writing, store_items, items)

    def pending_now(self, store_items: StoreItems[Value]) -> AssignedItems | None:
        """Return the items that this thread assigns now, if they are stored so."""
        return self._tree.pending_now(store_items)

    def snapshot(self) -> AbstractContextManager[None]:
        """Stay on one state while a block runs."""
        return (self._inside() if self._tree.is_inside() else self._outside()).snapshot()

    def is_inside(self) -> bool:
        """Return whether this thread is inside a transaction of the tree."""
        return self._tree.is_inside()

    def transaction(self) -> AbstractContextManager[None]:
        """Make one commit of all changes of the tree in a block."""
        return self._tree.transaction()

    def refresh(self) -> None:
        """Load the value again."""
        (self._inside() if self._tree.is_inside() else self._outside()).refresh()

    def close(self, name: str) -> None:
        """Drop the value; later calls raise an error that says that `name` is closed."""
        self._handle.close(name)

    @contextmanager
    def _turn(self) -> Iterator[HandleTurn[Value]]:
        with self._tree.unmoved(), self._inside().writing() as turn:
            yield turn

    def _inside(self) -> Handle[Value]:
        """Return the handle of the transaction."""
        self._handle.check_open()
        store, within = self._tree.store, self._within
        if within is None or within.store is not store:
            within = Handle(store, self._load, durability=self._handle.durability)
            self._within = within
        return within

    def _outside(self) -> Handle[Value]:
        if self._within is not None and not self._tree.is_active():
            # In a store without versions only this shows that the transaction changed the value.
            self._within = None
            self._handle.forget()
        return self._handle


def _same(value: Value) -> Value:
    return value

"""What a container holds of its dataset: the state it has read, and the way to the next one.

Knows when what was read before still holds, how to read one committed state without a lock, and how
to change it in a writer's turn. Refuses to know what is read: the value of a handle is whatever its
`load` makes of a store.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final, Generic, TypeVar

from ingot.errors import ReadOnlyError
from ingot.stores.state import (
    ATTEMPTS,
    NEVER,
    Look,
    change,
    lookout,
    number_of,
    stateful,
    switches,
)
from ingot.stores.store import Commit, Durability, Store

__all__ = ["Handle"]

Value = TypeVar("Value")
Result = TypeVar("Result")


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
    >>> handle.change(lambda value: (value + b"0", Commit(publish=(Put("length", b"40"),))))
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
        "_lookout",
        "_release",
        "_stateful",
        "_turns",
        "durability",
        "store",
    )

    def __init__(
        self,
        store: Store,
        load: Callable[[Store], Value],
        *,
        durability: Durability = "full",
        first: tuple[Value | None, int | None] = (None, NEVER),
    ) -> None:
        self.store: Final = store
        self.durability: Final = durability
        self._load = load
        self._stateful = stateful(store)
        self._lookout = None if self._stateful is None else lookout(self._stateful)
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
        if self._stateful is None or self._lookout is None:
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
        if number != NEVER and not self._lookout.moved(number):
            try:
                result = use(value)  # type: ignore[arg-type]
            except Exception:
                if self._lookout.confirms(number):
                    raise
            else:
                if self._lookout.confirms(number) or self._is_still(number):
                    return result
        return self._read_anew(use)

    def change(
        self, build: Callable[[Value], tuple[Value, Commit]], *, again: bool = False
    ) -> None:
        """Apply the commit that `build` returns with the value that it leads to.

        `build` is given the value while no other writer is at work. If `again`, the value that it
        returns is not to be used, and is loaded when it is needed.
        """
        if self._held is not None:
            raise ReadOnlyError(f"{self.store.location}: not to be changed inside of a snapshot")
        with self._turns:
            self._check_open()
            made: list[Value] = []

            def built(store: Store) -> Commit:
                value, commit = build(self._in_turn(store))
                made.append(value)
                return commit

            number = change(self.store, built, durability=self.durability)
            self._loaded = (None, NEVER) if again else (made[-1], number)

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
            self._loaded = None, NEVER
            self.read(_same)

    def close(self, name: str) -> None:
        """Let go of everything; later calls complain that `name` is closed."""
        self._closed = name
        self._loaded = None, NEVER

    def _hold(self) -> None:
        if self._stateful is None:
            return
        self._check_open()
        with ExitStack() as stack:
            view = stack.enter_context(self._stateful.hold())
            look = self._stateful.look()
            self._held = (self._at(look) if view is self.store else self._load(view),)
            self._release = stack.pop_all()

    def _is_still(self, number: int | None) -> bool:
        """Tell whether the state with this number is the committed one, where a look is unsure.

        A writer is at work, or died, or the system was started again since it was: only a journal
        would say that another state is committed.
        """
        assert self._stateful is not None
        look = self._stateful.look()
        if number_of(look) != number or switches(look) or self._stateful.view() is not self.store:
            return False
        look = self._stateful.look()
        return number_of(look) == number and not switches(look)

    def _read_anew(self, use: Callable[[Value], Result]) -> Result:
        """Look before `use` and after it, and use the value of what is seen."""
        assert self._stateful is not None
        look_again = self._stateful.look
        for _ in range(ATTEMPTS):
            look = look_again()
            if switches(look):
                break
            number = number_of(look)
            try:
                result = use(self._at(look))
            except Exception:
                # What is missing or does not fit may be what a writer has just changed, or what it
                # prepares: that fits what is there already, but not what was read of it before.
                again = look_again()
                if number_of(again) == number and (again is None or again.settled):
                    raise
            else:
                if number_of(look_again()) == number:
                    return result
        with self._stateful.hold() as view:
            return use(self._load(view))

    def _at(self, look: Look | None) -> Value:
        """Return the value of the state that was looked at, if it still is that one."""
        value, number = self._loaded
        if look is None:
            current = number is None
        elif look.settled:
            current = look.sequence == number
        else:
            # A writer is at work, or died: only its journal can tell which state is committed.
            assert self._stateful is not None
            view = self._stateful.view()
            if view is not self.store:
                self._check_open()
                return self._load(view)
            current = look.sequence == number
        if current:
            return value  # type: ignore[return-value]
        self._check_open()
        if look is None and self._stateful is not None:
            view = self._stateful.view()
            if view is not self.store:
                return self._load(view)
        value = self._load(self.store)
        # Right or not, this is found out by who looks again: no state has this number twice.
        self._loaded = value, number_of(look)
        return value

    def _in_turn(self, store: Store) -> Value:
        if self._stateful is None:
            return self._unwatched()
        value, number = self._loaded
        if number == number_of(self._stateful.look()):
            return value  # type: ignore[return-value]
        return self._load(store)

    def _unwatched(self) -> Value:
        value, number = self._loaded
        if number == NEVER:
            self._check_open()
            value = self._load(self.store)
            self._loaded = value, None
        return value  # type: ignore[return-value]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise ValueError(f"{self._closed} is closed")


def _same(value: Value) -> Value:
    return value

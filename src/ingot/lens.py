"""A part of what a handle holds, as a handle of its own.

Knows how to come from the whole to the part and back, so that an array may be a column of a table:
it reads the table's committed state, and its changes are changes of the table. Refuses to hold
anything itself.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, Protocol, TypeVar

from ingot.stores.state import discard
from ingot.stores.store import Commit, Durability, Store

__all__ = ["Held", "Lens"]

Value = TypeVar("Value")
Whole = TypeVar("Whole")
Part = TypeVar("Part")
Result = TypeVar("Result")


class Held(Protocol[Value]):
    """What a container needs of the handle of its dataset; see `ingot.handle.Handle`."""

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

    def change(self, build: Callable[[Value], tuple[Value, Commit]]) -> None:
        """Apply the commit that `build` returns with the value that it leads to."""
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


class Lens(Generic[Whole, Part]):
    """The handle of a part: `find` gives the part of the whole, `put` makes its change the whole's.

    >>> from ingot.handle import Handle
    >>> from ingot.stores import MemoryStore
    >>> pair = Handle(MemoryStore(), lambda store: (1, 2))
    >>> second = Lens(pair, lambda whole: whole[1], lambda whole, new, how: ((whole[0], new), how))
    >>> second.change(lambda number: (number * 10, Commit()))
    >>> second.value, pair.value
    (20, (1, 20))
    """

    __slots__ = ("_closed", "_find", "_put", "_whole")

    def __init__(
        self,
        whole: Held[Whole],
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

    def change(self, build: Callable[[Part], tuple[Part, Commit]]) -> None:
        """Apply the change that `build` returns as one of the whole."""
        self._check_open()

        def built(whole: Whole) -> tuple[Whole, Commit]:
            part, commit = build(self._find(whole))
            try:
                return self._put(whole, part, commit)
            except BaseException:
                discard(self.store, commit.edits)
                raise

        self._whole.change(built)

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


def _same(value: Value) -> Value:
    return value

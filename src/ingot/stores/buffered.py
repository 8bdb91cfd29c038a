"""A store of changes that are not committed yet, over another store.

All changes together become one commit. The store below is not changed; only values that are too
large for memory are staged there. A patch takes memory for the bytes that it changes.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Final

from ingot.errors import NotFoundError
from ingot.stores.patched import Extensions, PatchedValue, read_over
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Durability,
    Edit,
    Extent,
    Feature,
    Grown,
    Move,
    Patch,
    Phase,
    Put,
    Store,
    Truncate,
    check_commit,
    check_key,
    check_range,
    is_staged,
)
from ingot.stores.versions import copied, versioned

__all__ = ["BufferedStore"]

_MOST_IN_MEMORY: Final = 64 << 20


class BufferedStore:
    """A store that changes only when its `commit` is applied to the one below.

    >>> from ingot.stores import MemoryStore
    >>> below = MemoryStore({"a": b"old", "b": b"gone", "c": b"0123"})
    >>> buffered = BufferedStore(below)
    >>> buffered.apply(Commit(publish=(Put("a", b"new"), Delete("b"), Patch("c", 1, b"x"))))
    >>> buffered.read([Extent("a"), Extent("b"), Extent("c")]), below.read([Extent("a")])
    ([b'new', None, b'0x23'], [b'old'])
    >>> print(buffered.commit())
    publish: Put('a', 3 bytes)
    publish: Delete(key='b')
    publish: Patch('c', 1, 1 byte)
    """

    __slots__ = ("_below", "_extensions", "_held", "_most", "_moves", "_values")

    def __init__(self, below: Store, *, most: int = _MOST_IN_MEMORY) -> None:
        self._below = below
        self._most = most
        self._held = 0
        self._extensions = Extensions()
        # In the order of the last change of each key; None for a key that is removed, or staged
        # below to become the value of another.
        self._values: dict[str, PatchedValue | None] = {}
        # By staged key.
        self._moves: dict[str, Move] = {}

    @property
    def features(self) -> Feature:
        """Those of the store below, without native reads, which would bypass the changes."""
        return self._below.features & ~Feature.NATIVE

    @property
    def location(self) -> str:
        """Where the store below is."""
        return self._below.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent as they will be."""
        return read_over(self._below.read, extents, self._values)

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` will hold."""
        if check_key(key) not in self._values:
            return self._below.size(key)
        value = self._values[key]
        return None if value is None else value.size

    def identity(self, key: str) -> Hashable | None:
        """Return None: `discard` restores values, and would restore their identities as well."""
        check_key(key)
        return None

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix` as they will be."""
        folder = prefix.removesuffix("/")
        lead = f"{folder}/" if folder else ""
        below = (n for n in self._below.names(prefix, hidden=hidden) if self._stays(lead + n))
        kept = (key for key, value in self._values.items() if value is not None)
        added = (key[len(lead) :] for key in kept if key.startswith(lead))
        names = {*below, *("".join(rest.partition("/")[:2]) for rest in added)}
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Keep all changes of a commit; nothing is stored yet."""
        check_commit(self, commit)
        for phase, edits in commit.phases:
            # By key: how many bytes of it the state before the commit reaches.
            reached: dict[str, int] = {}
            for edit in edits:
                if isinstance(edit, Patch | Truncate):
                    self._change(edit.key, self._patched(edit, phase, reached))
                elif isinstance(edit, Grown):
                    self._change(edit.key, self._grown(edit, reached))
                else:
                    reached[edit.key] = 0
                    self._change(edit.key, self._replaced(edit))
        self._extensions.clear()

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Keep bytes behind the end of a key in memory, for the commit of the transaction."""
        check_commit(self, Commit(publish=(Truncate(key, 0),)))
        return self._extensions.add(key, pieces, self.size(key), end, self.location)

    def drop_extensions(self) -> None:
        """Forget bytes behind the ends of keys: the turn that wrote them has ended."""
        self._extensions.clear()

    def copy(self, source: str, key: str) -> Edit:
        """Return the edit that makes the future value of `source` that of `key` too."""
        if check_key(source) not in self._values:
            return copied(self._below, source, key)
        value = self._values[source]
        if value is None:
            raise NotFoundError(f"{self.location}: no key {source!r} to copy")
        if value.source is not None and not value.ranges:
            return copied(self._below, value.source, key)
        (data,) = self.read([Extent(source)])
        return Put(key, data or b"")

    def commit(self) -> Commit:
        """Return all changes as one commit for the store below."""
        edits: list[Edit] = []
        for key, value in self._values.items():
            if value is None:
                edits += () if key in self._moves else (Delete(key),)
            elif value.source is None:
                edits.append(Put(key, value.over(Extent(key), None)))
            else:
                move = self._moves.get(value.source)
                if move is not None:
                    edits.append(Move(move.source, key, move.size, move.checksum))
                if value.size < (self._below.size(value.source) or 0):
                    edits.append(Truncate(key, value.size))
                edits += value.patches(key)
        return Commit(publish=tuple(edits))

    def discard(self) -> None:
        """Forget all changes, and remove what was staged for them."""
        moves, self._moves, self._values, self._held = self._moves, {}, {}, 0
        if (below := versioned(self._below)) is not None:
            below.discard(moves.values())

    def _current(self, key: str) -> PatchedValue | None:
        """Return the value of a key as it will be; None when it will be absent."""
        if key in self._values:
            return self._values[key]
        size = self._below.size(key)
        return None if size is None else PatchedValue(key, size)

    def _change(self, key: str, value: PatchedValue | None) -> None:
        old = self._values.pop(key, None)
        if old is not None:
            self._held -= old.held
            staged = None if old.source is None else self._moves.get(old.source)
            if staged is not None and (value is None or value.source != old.source):
                del self._moves[staged.source], self._values[staged.source]
                if (below := versioned(self._below)) is not None:
                    below.discard((staged,))
        self._values[key] = value
        self._held += 0 if value is None else value.held

    def _replaced(self, edit: Put | Move | Delete) -> PatchedValue | None:
        if isinstance(edit, Put):
            return self._put(edit)
        return self._moved(edit) if isinstance(edit, Move) else None

    def _put(self, edit: Put) -> PatchedValue:
        below, size = versioned(self._below), memoryview(edit.data).nbytes
        if self._held + size > self._most and below is not None:
            staged: Edit = below.stage(edit.key, edit.data)
            if isinstance(staged, Move):
                self._moves[staged.source] = staged
                self._values[staged.source] = None
                return PatchedValue(staged.source, size)
        return PatchedValue.of(edit.data)

    def _patched(
        self, edit: Patch | Truncate, phase: Phase, reached: dict[str, int]
    ) -> PatchedValue:
        value = self._current(edit.key)
        size = None if value is None else value.size
        staged = is_staged(edit.key.rpartition("/")[2])
        committed = 0 if staged else reached.setdefault(edit.key, size or 0)
        check_range(edit, size, committed, phase, self.location)
        assert value is not None
        return value.changed((edit,))

    def _grown(self, edit: Grown, reached: dict[str, int]) -> PatchedValue:
        value = self._current(edit.key) or PatchedValue()
        reached.setdefault(edit.key, value.size)
        return value.patched(edit.start, self._extensions.take(edit, self.location))

    def _moved(self, edit: Move) -> PatchedValue:
        known = edit.size is not None and edit.source not in self._values
        value = PatchedValue(edit.source, edit.size or 0) if known else self._current(edit.source)
        if value is None:
            raise NotFoundError(f"{self.location}: no key {edit.source!r} to become {edit.key!r}")
        self._held -= value.held if self._values.pop(edit.source, None) is not None else 0
        if value.source is not None:
            self._moves.setdefault(value.source, edit)
            self._values[edit.source] = None
        return value

    def _stays(self, name: str) -> bool:
        """Return whether a name below stays: a folder stays while it holds a key."""
        if not name.endswith("/"):
            return name not in self._values or self._values[name] is not None
        if not any(key.startswith(name) for key in self._values):
            return True
        return any(True for _ in self.names(name, hidden=True))

"""A store in memory: a dictionary of keys and bytes.

Pickling copies the content: there is no path by which another process could find it.
"""

import errno
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from ingot import signals
from ingot.errors import LockedError, NotFoundError
from ingot.stores.patched import Extensions, PatchedValue
from ingot.stores.store import (
    READING,
    READING_AND_WRITING,
    Buffer,
    Commit,
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
from ingot.stores.versions import Version

__all__ = ["MemoryStore"]

_WAIT: Final = 10.0


class MemoryStore:
    """Keys and bytes in a dictionary, safe to use from several threads.

    Values are immutable bytes: reading a whole key copies nothing. A patch copies the value it
    changes, so that readers keep what they hold.

    >>> store = MemoryStore({"sizes": b"3"})
    >>> store.apply(Commit(publish=(Put("data/0", b"abc"),)))
    >>> store.read([Extent("data/0", start=1), Extent("data/1")])
    [b'bc', None]
    >>> list(store.names())
    ['data/', 'sizes']
    """

    def __init__(
        self, content: Mapping[str, bytes] | None = None, *, writable: bool = True
    ) -> None:
        # None for a key that a commit has just removed.
        self._values: dict[str, bytes | None] = {
            check_key(key): bytes(value) for key, value in (content or {}).items()
        }
        self._writable = writable
        self._begin()

    @property
    def features(self) -> Feature:
        """Everything but native extents; nothing that writes when not writable."""
        return Feature.HELD | (READING_AND_WRITING if self._writable else READING)

    @property
    def location(self) -> str:
        """`memory`, for messages."""
        return "memory"

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for a key that is absent."""
        # Each key once, so that all extents of it come from one value.
        values = {key: self._value(key) for key in {extent.key for extent in extents}}
        return [_cut(values[extent.key], extent) for extent in extents]

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        value = self._value(key)
        return None if value is None else len(value)

    def identity(self, key: str) -> Hashable | None:
        """Return the number of the last change of `key`; None while it is changed or absent."""
        number = self._changes.get(key, 0)
        return None if self._value(key) is None else number

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash."""
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        self._check_fork()
        names = self._folders.names(folder)
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit, one writer at a time; nothing here outlives the process anyway.

        Of a phase that fails, or is interrupted, nothing takes effect.
        """
        check_commit(self, commit)
        with signals.Deferred() as deferred, self._locked():
            self._sequence += 1
            try:
                for phase, edits in commit.phases:
                    self._apply_phase(phase, edits)
                deferred.note = "the commit is done: readers see it"
            finally:
                self._sequence += 1
                self._extensions.clear()

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Keep bytes behind the end of a key; no reader sees them before they are committed."""
        check_commit(self, Commit(publish=(Truncate(key, 0),)))
        return self._extensions.add(key, pieces, self.size(key), end, "memory")

    # One committed state

    def version(self) -> Version:
        """Return the version of the committed state, once no commit is half done."""
        self._check_fork()
        sequence = self._sequence
        if sequence % 2:
            with self._writing:
                sequence = self._sequence
        return Version(sequence, settled=True)

    def view(self) -> Store:
        """Return this store: `version` waits for a commit that is half done."""
        return self

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give this store; writers wait until the block ends.

        It may end in another thread than it began in.
        """
        self._check_fork()
        pinned = False
        try:
            with signals.Deferred(), self._writing:
                self._pins += 1
                pinned = True
            yield self
        finally:
            with signals.Deferred():
                # The pins of a forked child are its own.
                if pinned and self._pins:
                    with self._writing:
                        self._pins -= 1
                        self._writing.notify_all()

    @contextmanager
    def writing(self, *, durability: Durability = "full") -> Iterator["MemoryTurn"]:
        """Give a turn to write; other threads that write, or pin the state, are waited for."""
        check_commit(self, Commit())
        with self._locked():
            try:
                yield MemoryTurn(self)
            finally:
                self._extensions.clear()

    def stage(self, key: str, data: Buffer) -> Put:
        """Return an edit that holds the value: it would be staged in memory as well."""
        return Put(key, data)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Forget bytes behind the ends of keys; nothing was staged."""
        self._extensions.discard(edits)

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._values)} keys)"

    def __getstate__(self) -> dict[str, Any]:
        values = {key: value for key, value in list(self._values.items()) if value is not None}
        return {"_values": values, "_writable": self._writable}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def _begin(self) -> None:
        self._forks = signals.forks()
        self._writing = threading.Condition()
        self._pins = 0
        self._sequence = 0
        self._change_count = 0
        self._extensions = Extensions()
        self._changes: dict[str, int | None] = {}
        self._folders = _Folders(self._values)

    def _check_fork(self) -> None:
        """Begin anew in a forked child: the lock and the pins are those of the parent's threads.

        A phase takes effect by one call, so the values are those before or after one.
        """
        if self._forks != signals.forks():
            self._forks = signals.forks()
            self._writing = threading.Condition()
            self._pins = 0
            self._sequence += self._sequence % 2
            self._folders = _Folders(self._values)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Wait for other writers, and until no reader pins the state."""
        self._check_fork()
        with self._writing:
            if not self._writing.wait_for(lambda: not self._pins, _WAIT):
                text = f"memory: held by a reader, in a snapshot perhaps; waited {_WAIT:g} s"
                raise LockedError(errno.EAGAIN, text)
            yield

    def _apply_phase(self, phase: Phase, edits: Sequence[Edit]) -> None:
        if not edits:
            return
        values: dict[str, PatchedValue | None] = {}
        # By key: how many bytes of it the committed state reaches.
        reached: dict[str, int] = {}
        for edit in edits:
            before = self._latest(edit.key, values)
            if isinstance(edit, Move):
                values[edit.key] = _moved(self._latest(edit.source, values), edit)
                values[edit.source] = None
                reached[edit.key] = 0
            elif isinstance(edit, Patch | Truncate):
                size = None if before is None else before.size
                staged = is_staged(edit.key.rpartition("/")[2])
                committed = 0 if staged else reached.setdefault(edit.key, size or 0)
                check_range(edit, size, committed, phase, "memory")
                assert before is not None
                values[edit.key] = before.changed((edit,))
            elif isinstance(edit, Grown):
                size = 0 if before is None else before.size
                reached.setdefault(edit.key, size)
                data = self._extensions.take(edit, "memory")
                values[edit.key] = (before or PatchedValue()).patched(edit.start, data)
            else:
                reached[edit.key] = 0
                values[edit.key] = PatchedValue.of(edit.data) if isinstance(edit, Put) else None
        # Many patches of one value copy it once.
        after = {
            key: None if value is None else value.over(Extent(key), None)
            for key, value in values.items()
        }
        self._changes.update(dict.fromkeys(after))
        try:
            # One call, which neither a fork nor an exception cuts in half.
            self._values.update(after)
        finally:
            self._number(after)

    def _latest(self, key: str, after: Mapping[str, PatchedValue | None]) -> PatchedValue | None:
        if key in after:
            return after[key]
        value = self._values.get(key)
        return None if value is None else PatchedValue.of(value)

    def _number(self, changed: Iterable[str]) -> None:
        self._change_count += 1
        for key in changed:
            if self._values.get(key) is not None:
                self._changes[key] = self._change_count
                self._folders.add(key)
            else:
                self._folders.remove(key)
                self._values.pop(key, None)
                self._changes.pop(key, None)

    def _value(self, key: str) -> bytes | None:
        value = self._values.get(key)
        # A key that has a value was checked when it got it.
        return self._values.get(check_key(key)) if value is None else value


class _Folders:
    """The names in every folder, so that listing one costs nothing for the keys in others."""

    __slots__ = ("_below",)

    def __init__(self, values: Mapping[str, bytes | None]) -> None:
        self._below: dict[str, dict[str, None]] = {}
        for key, value in values.items():
            if value is not None:
                self.add(key)

    def names(self, folder: str) -> list[str]:
        return list(self._below.get(folder, ()))

    def add(self, key: str) -> None:
        while True:
            folder, _, name = key.removesuffix("/").rpartition("/")
            name = f"{name}/" if key.endswith("/") else name
            known = folder in self._below
            self._below.setdefault(folder, {})[name] = None
            if known or not folder:
                return
            key = f"{folder}/"

    def remove(self, key: str) -> None:
        while True:
            folder, _, name = key.removesuffix("/").rpartition("/")
            below = self._below.get(folder, {})
            below.pop(f"{name}/" if key.endswith("/") else name, None)
            if below or folder not in self._below:
                return
            del self._below[folder]
            if not folder:
                return
            key = f"{folder}/"


class MemoryTurn:
    """A turn to write to a `MemoryStore`."""

    __slots__ = ("store",)

    def __init__(self, store: MemoryStore) -> None:
        self.store: Final = store

    def commit(self, commit: Commit) -> int:
        """Apply a commit and return the number of the new version."""
        self.store.apply(commit)
        return self.store._sequence


def _cut(value: bytes | None, extent: Extent) -> bytes | None:
    if value is None or (extent.length is None and not extent.start):
        return value
    stop = None if extent.length is None else extent.start + extent.length
    return value[extent.start : stop]


def _moved(value: PatchedValue | None, move: Move) -> PatchedValue:
    if value is None:
        raise NotFoundError(f"memory: no key {move.source!r} to become {move.key!r}")
    return value

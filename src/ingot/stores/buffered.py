"""A store of changes that are not committed yet, over another store.

All changes together become one commit. The store below is not changed; only values that are too
large for memory are staged there.
"""

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from ingot.errors import NotFoundError
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Durability,
    Edit,
    Extent,
    Feature,
    Move,
    Patch,
    Put,
    Store,
    check_commit,
    check_key,
    is_staged,
    patched,
)
from ingot.stores.versions import copied, versioned

__all__ = ["BufferedStore"]

_MOST_IN_MEMORY: Final = 64 << 20


class BufferedStore:
    """A store that changes only when its `commit` is applied to the one below.

    >>> from ingot.stores import MemoryStore
    >>> below = MemoryStore({"a": b"old", "b": b"gone"})
    >>> buffered = BufferedStore(below)
    >>> buffered.apply(Commit(publish=(Put("a", b"new"), Delete("b"))))
    >>> buffered.read([Extent("a"), Extent("b")]), below.read([Extent("a")])
    ([b'new', None], [b'old'])
    >>> print(buffered.commit())
    publish: Put('a', 3 bytes)
    publish: Delete(key='b')
    """

    __slots__ = ("_below", "_edits", "_most", "_size")

    def __init__(self, below: Store, *, most: int = _MOST_IN_MEMORY) -> None:
        self._below = below
        self._most = most
        self._size = 0
        # In the order of the last change of each key.
        self._edits: dict[str, Put | Delete | Move] = {}

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
        found: list[bytes | None] = [None] * len(extents)
        asked: list[tuple[int, Extent]] = []
        for index, extent in enumerate(extents):
            edit = self._edits.get(check_key(extent.key))
            if isinstance(edit, Put):
                found[index] = _cut(edit.data, extent)
            elif isinstance(edit, Move):
                asked.append((index, Extent(edit.source, extent.start, extent.length)))
            elif edit is None:
                asked.append((index, extent))
        values = self._below.read([extent for _, extent in asked])
        for (index, _), value in zip(asked, values, strict=True):
            found[index] = value
        return found

    def size(self, key: str) -> int | None:
        """Return the number of bytes that `key` will hold."""
        edit = self._edits.get(check_key(key))
        if isinstance(edit, Delete):
            return None
        if isinstance(edit, Put):
            return memoryview(edit.data).nbytes
        return self._below.size(key if edit is None else edit.source)

    def identity(self, key: str) -> Hashable | None:
        """Return None: `discard` restores values, and would restore their identities as well."""
        check_key(key)
        return None

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names below `prefix` as they will be."""
        folder = prefix.removesuffix("/")
        lead = f"{folder}/" if folder else ""
        below = (n for n in self._below.names(prefix, hidden=hidden) if self._stays(lead + n))
        kept = (key for key, edit in self._edits.items() if not isinstance(edit, Delete))
        added = (key[len(lead) :] for key in kept if key.startswith(lead))
        names = {*below, *("".join(rest.partition("/")[:2]) for rest in added)}
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Keep all changes of a commit; nothing is stored yet."""
        check_commit(self, commit)
        for edit in commit.edits:
            if isinstance(edit, Patch):
                edit = Put(edit.key, self._patched(edit))
            if isinstance(edit, Put):
                edit = self._kept(edit)
            self._forget(edit.key)
            self._edits[edit.key] = edit

    def copy(self, source: str, key: str) -> Edit:
        """Return the edit that makes the future value of `source` that of `key` too."""
        edit = self._edits.get(check_key(source))
        if isinstance(edit, Put):
            return Put(key, edit.data)
        if isinstance(edit, Delete):
            raise NotFoundError(f"{self.location}: no key {source!r} to copy")
        return copied(self._below, source if edit is None else edit.source, key)

    def commit(self) -> Commit:
        """Return all changes as one commit for the store below."""
        return Commit(publish=tuple(self._edits.values()))

    def discard(self) -> None:
        """Forget all changes, and remove what was staged for them."""
        edits, self._edits = self._edits, {}
        if (below := versioned(self._below)) is not None:
            below.discard(edits.values())

    def _kept(self, edit: Put) -> Put | Move:
        self._size += memoryview(edit.data).nbytes
        below = versioned(self._below)
        if self._size <= self._most or below is None:
            return edit
        staged: Edit = below.stage(edit.key, edit.data)
        if isinstance(staged, Move):
            self._size -= memoryview(edit.data).nbytes
            return staged
        return edit

    def _forget(self, key: str) -> None:
        old = self._edits.pop(key, None)
        if isinstance(old, Put):
            self._size -= memoryview(old.data).nbytes
        elif isinstance(old, Move) and (below := versioned(self._below)) is not None:
            below.discard((old,))

    def _patched(self, edit: Patch) -> bytes:
        (value,) = self.read([Extent(edit.key)])
        if value is None:
            raise NotFoundError(f"{self.location}: no key {edit.key!r} to patch")
        return patched(value, edit, self.location)

    def _stays(self, name: str) -> bool:
        """Return whether a name below stays: a folder stays while it holds a key."""
        if not name.endswith("/"):
            return not isinstance(self._edits.get(name), Delete)
        if not any(key.startswith(name) for key in self._edits):
            return True
        return any(True for _ in self.names(name, hidden=True))


def _cut(data: Buffer, extent: Extent) -> bytes:
    view = memoryview(data).cast("B")
    stop = None if extent.length is None else extent.start + extent.length
    return bytes(view[extent.start : stop])

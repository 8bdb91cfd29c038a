"""A store of one file of the local file system.

Its keys are the name of the file and its staged names; `ingot.stores.local.store` does the rest.

A new file is written under a staged name and gets its own by a rename that never replaces a file.
The lock file that its writer made is removed again, so that nothing stays beside a new file. The
first change of an existing file makes a lock file that stays. It is removed when the file is
removed, or replaced by another dataset.
"""

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Self

from ingot.errors import ExistsError, UnsafeError
from ingot.stores.local.scope import Scope
from ingot.stores.local.store import LocalStore
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
    Piece,
    Put,
    Store,
    check_commit,
    check_key,
    compose,
    is_staged,
)
from ingot.stores.versions import Version, WriteTurn, version_number

__all__ = ["FileStore", "FileTurn", "apply_in_turn"]


class FileStore:
    """One file as a store: its only key is `key`, the name of the file.

    The path is resolved once, here, so it may be a symbolic link; a commit replaces the file that
    the link leads to. Every other key is absent, and writing to it is `UnsafeError`, but for the
    staged keys of the file itself.

    >>> import tempfile
    >>> from ingot.stores import Put
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = FileStore(os.path.join(folder.name, "prices.blp"), writable=True)
    >>> store.apply(Commit(publish=(Put(store.key, b"abc"),)))
    >>> store.read([Extent("prices.blp"), Extent("sizes")]), list(store.names())
    ([b'abc', None], ['prices.blp'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        writable: bool = False,
        locking: bool = True,
        wait: float = 10.0,
    ) -> None:
        folder, name = os.path.split(os.path.realpath(path))
        self.key: Final = check_key(name)
        self._location: Final = os.path.join(folder, name)
        self._folder: Final = LocalStore(
            folder,
            writable=writable,
            locking=locking,
            wait=wait,
            dataset=Scope.of_file(name),
        )

    @property
    def features(self) -> Feature:
        """Those of a `LocalStore`."""
        return self._folder.features

    @property
    def root(self) -> str:
        """The absolute path of the folder that holds the file."""
        return self._folder.root

    @property
    def journal_path(self) -> str:
        """The path of the file that is the journal of a commit, while there is one."""
        return self._folder.journal_path

    @property
    def location(self) -> str:
        """The absolute path of the file, for messages."""
        return self._location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for every key but the file's."""
        if all(extent.key == self.key for extent in extents):
            return self._folder.read(extents)
        own = [extent for extent in extents if self._owns(check_key(extent.key))]
        found = iter(self._folder.read(own))
        return [next(found) if self._owns(extent.key) else None for extent in extents]

    def size(self, key: str) -> int | None:
        """Return the number of bytes of the file; None for an absent file, and for other keys."""
        return self._folder.size(key) if self._owns(check_key(key)) else None

    def identity(self, key: str) -> Hashable | None:
        """Return the identity of the file; None when it, or the key, is another one."""
        return self._folder.identity(key) if self._owns(check_key(key)) else None

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the name of the file, if it exists."""
        names = self._folder.names(prefix, hidden=hidden)
        return (name for name in names if not prefix and self._owns(name))

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit whose edits all change this file."""
        check_commit(self, commit)
        for edit in commit.edits:
            if not self._owns(edit.key):
                raise UnsafeError(f"{self.location}: the store of one file has no key {edit.key!r}")
        if not commit.edits:
            return
        apply_in_turn(lambda: self.writing(durability=durability), commit)

    def writing(self, *, durability: Durability = "full") -> "FileTurn":
        """Return a turn to write to the file; entering it waits for the lock and recovers.

        If the file is absent, the turn creates it and removes the lock file again. Its commit
        raises `ExistsError` when a program without the lock was first.
        """
        return FileTurn(self, self._folder, durability)

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Write bytes behind the end of the file, piece by piece; only inside a turn to write."""
        if not self._owns(key):
            raise UnsafeError(f"{self.location}: the store of one file has no key {key!r}")
        return self._folder.extend(key, pieces, end=end)

    def stage(self, key: str, data: Buffer) -> Move:
        """Write a value for the file under a staged name."""
        return self.stage_pieces(key, (data,))

    def stage_pieces(
        self, key: str, pieces: Iterable[Piece], *, head: Callable[[], Buffer] | None = None
    ) -> Move:
        """Stage a value that is given in pieces, so that it is never in memory as a whole.

        What `head` returns behind the last piece replaces the first bytes.
        """
        if not self._owns(key):
            raise UnsafeError(f"{self.location}: the store of one file has no key {key!r}")
        return self._folder.stage_pieces(key, pieces, head=head)

    def announce_staging(self, transaction: str) -> None:
        """Keep other writers from removing what is staged under the name of a transaction."""
        self._folder.announce_staging(transaction)

    def withdraw_staging(self, transaction: str, *, staged: bool = True) -> None:
        """Take back an announcement; the next writer searches for files, if any were `staged`."""
        self._folder.withdraw_staging(transaction, staged=staged)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove the staged values of edits that will not be applied."""
        self._folder.discard(edits)

    def recover(self) -> None:
        """Replay the journal of a dead writer, or discard what it staged."""
        self._folder.recover()

    def version(self) -> Version | None:
        """Return the version: that of the lock file, or one that changes when the file does."""
        found = self._folder.version()
        return self._version_of_file() if found is None else found

    def _version_of_file(self) -> Version | None:
        """Return the version while there is no lock file; None without the file."""
        try:
            facts = os.stat(self._location)
        except OSError:
            return None
        times = facts.st_mtime_ns, facts.st_ctime_ns
        return Version(hash((facts.st_dev, facts.st_ino, facts.st_size, *times)), settled=True)

    @property
    def has_lock_file(self) -> bool:
        """Whether versions are those of a lock file: the first change of the file makes one."""
        return self._folder.version() is not None

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, or through a journal."""
        view = self._folder.view()
        return self if view is self._folder else view

    def pin(self) -> AbstractContextManager[Store]:
        """Give a view of the committed state; writers wait until the block ends."""
        return self._folder.pin()

    def __repr__(self) -> str:
        writable = Feature.WRITE in self.features
        return f"FileStore({self.location!r}, writable={writable})"

    def _owns(self, key: str) -> bool:
        return key == self.key or is_staged(key, self.key)


class FileTurn:
    """A turn to write to a `FileStore`: a turn of its folder, which may create the file."""

    __slots__ = ("_creates", "_folder", "_sync", "_turn", "store")

    def __init__(self, store: FileStore, folder: LocalStore, durability: Durability) -> None:
        self.store: Final = store
        self._folder = folder
        self._sync = durability == "full"
        self._turn: Final = folder.writing(durability=durability, store=store)
        self._creates = False

    def __enter__(self) -> Self:
        self._turn.__enter__()
        try:
            self._turn.await_readers(self.store.key)
            self._creates = self._folder.size(self.store.key) is None
        except BaseException as error:
            self._turn.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if self._creates:
                self._turn.remove_lock(new=True)
        finally:
            self._turn.__exit__(kind, error, trace)

    def commit(self, commit: Commit) -> int | None:
        """Apply a commit and return the number of the new version.

        `ExistsError` when the turn creates the file, and another program was first.
        """
        if self._creates:
            outcomes, early = compose(commit.edits)
            made = [outcome for outcome in outcomes if isinstance(outcome, Put | Move)]
            gone = [outcome for outcome in outcomes if isinstance(outcome, Delete)]
            if not early and len(made) + len(gone) == len(outcomes):
                self._turn.create_file(commit, made)
                return self._without_lock()
        self._creates = False
        number = self._turn.commit(commit)
        if any(isinstance(edit, Delete) and edit.key == self.store.key for edit in commit.edits):
            return self._without_lock()
        return number

    def forget_lock(self) -> None:
        """Have the lock file removed: the caller has put another file in the place of this one."""
        self._turn.remove_lock()

    def _without_lock(self) -> int | None:
        """Have the lock file removed after a commit; return the number of the version then."""
        self._turn.remove_lock()
        return version_number(self.store._version_of_file())


def apply_in_turn(writing: Callable[[], AbstractContextManager[WriteTurn]], commit: Commit) -> None:
    """Apply a commit in a turn to write; in a second one if the first was to create the file.

    Another program may have made the file meanwhile; then the commit changes it.
    """
    try:
        with writing() as turn:
            turn.commit(commit)
    except ExistsError:
        with writing() as turn:
            turn.commit(commit)

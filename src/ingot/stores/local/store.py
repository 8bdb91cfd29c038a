"""The store that is a directory of the local file system.

Knows what a store of files is asked; refuses to know formats, and leaves the rest to its parts:
`files` has the system calls, `root` says which files may be opened at all, `transaction` the order
of a commit, `lock` whose turn it is, `overlay` what readers see of a commit that is not applied.

File contents change only by write, pwrite and rename. A `Put` is written to a new file under a
staged name in the folder of its key and then renamed over it: a reader has the old file or the new
one, and a reader that opened the old one keeps it.
"""

import os
import threading
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

from ingot.errors import ReadOnlyError
from ingot.stores.local.commit import Transaction
from ingot.stores.local.files import Files, Inside, LocalFileSystem, put_copy_aside
from ingot.stores.local.journal import checksum, read_journal
from ingot.stores.local.lock import NoLock, StagingLock, StagingLocks, Turn
from ingot.stores.local.overlay import Overlay
from ingot.stores.local.scope import WHOLE, Dataset
from ingot.stores.store import (
    READING,
    READING_AND_WRITING,
    Buffer,
    Commit,
    Durability,
    Edit,
    Extent,
    Feature,
    Move,
    Put,
    Store,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)
from ingot.stores.versions import StoreProbe, Version, VersionProbe

__all__ = ["LocalStore", "LocalTurn"]

# What one call reads at once: beyond it, what that saves is little beside the work.
_MOST_AT_ONCE: Final = 16


class LocalStore:
    """A directory of the local file system; keys are the paths of plain files below it.

    Without `writable` the store never creates, changes or removes anything. With it the directory
    is created by the first commit, not before. A store holds no descriptor between calls, but for
    the lock file, to look at. It can be pickled (by path), shared by threads, used after a fork.

    Writers take turns by the file `.lock`; one waits at most `wait` seconds for another. Where a
    file system has no locks, that is an error, and `locking=False` the promise of the caller to be
    the only writer. `dataset` says which files belong together.

    >>> import tempfile
    >>> from ingot.stores import Put
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = LocalStore(folder.name, writable=True)
    >>> store.apply(Commit(publish=(Put("data/0", b"abc"), Put("sizes", b"3"))))
    >>> store.read([Extent("data/0", start=1), Extent("data/1")])
    [b'bc', None]
    >>> list(store.names())
    ['data/', 'sizes']
    >>> folder.cleanup()
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | Files,
        *,
        writable: bool = False,
        locking: bool = True,
        wait: float = 10.0,
        dataset: Dataset = WHOLE,
    ) -> None:
        self._files: Final = LocalFileSystem(root) if isinstance(root, str | os.PathLike) else root
        self._writable: Final = writable
        self._locking: Final = locking
        self._alone: Final = NoLock()
        self._wait: Final = wait
        self._dataset: Final = dataset
        self._failure: str | None = None
        self._known: Final[set[str]] = set()
        self._left: int | None = None
        self._local: Final = self._files if isinstance(self._files, LocalFileSystem) else None
        self._aside: Final = StagingLocks()
        self._writer: int | None = None
        features = READING_AND_WRITING if writable else READING
        self._features: Final = features if self._local is None else features | Feature.NATIVE

    @property
    def features(self) -> Feature:
        """Everything, but nothing that writes when not writable."""
        return self._features

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._files.path

    @property
    def location(self) -> str:
        """The absolute path of the directory, for messages."""
        return self._files.path

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for a key that is absent. Each key opens once."""
        wanted: dict[str, list[int]] = {}
        for position, extent in enumerate(extents):
            wanted.setdefault(check_key(extent.key), []).append(position)
        if self._local is not None and len(wanted) == len(extents) <= _MOST_AT_ONCE:
            pieces = self._local.read(extents)
            if pieces is not None:
                return pieces
        found: list[bytes | None] = [None] * len(extents)
        inside = self._files.enter()
        if inside is None:
            return found
        try:
            for key, positions in wanted.items():
                values = inside.read(key, [extents[position] for position in positions])
                for position, value in zip(positions, values or (), strict=values is not None):
                    found[position] = value
        finally:
            inside.close()
        return found

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        check_key(key)
        with self._entered() as inside:
            return inside.size(key) if inside else None

    def identity(self, key: str) -> Hashable | None:
        """Return the device, number, modification time and size of the file, when they suffice."""
        check_key(key)
        return None if self._local is None else self._local.identity(key)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash.

        A symbolic link to a folder counts as a folder when it may be followed, else as a file.
        The lock file and the journal are no keys, and never listed.
        """
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        with self._entered() as inside:
            names = inside.names(folder) if inside else []
        own = () if folder else self._dataset.controls
        return iter(
            sorted(name for name in names if name not in own and (hidden or not is_staged(name)))
        )

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Carry out a commit, all of `publish` or nothing of it, whatever happens meanwhile.

        First it waits for the writer before (`LockedError` after `wait` seconds) and finishes what
        that one left undone. `docs/promise.md` says what survives what. When the system cannot say
        that something was stored for good (a failing fsync), this store writes no more: what
        lasts is known again to one that opens the directory anew.
        """
        self._check(commit)
        if commit.edits:
            with LocalTurn(self, self, sync=durability == "full") as turn:
                turn._carry_out(commit)

    def writing(
        self, *, durability: Durability = "full", store: Store | None = None
    ) -> "LocalTurn":
        """Return a turn to write; entering it waits for the lock (`LockedError` after `wait`).

        Then the commit of a writer that died is finished, or what it staged is discarded. What is
        read from then on is the committed state and stays that until the turn commits, so nothing
        that another writer does is lost. `store` is what the turn shows as its store.
        """
        return LocalTurn(self, self if store is None else store, sync=durability == "full")

    def stage(self, key: str, data: Buffer) -> Move:
        """Write a value under a staged name, and return the edit that makes it that of `key`.

        Nobody needs a turn for that: the name is new, and nothing speaks of it.
        """
        return self.stage_pieces(key, (data,))

    def stage_pieces(self, key: str, pieces: Iterable[Buffer]) -> Move:
        """Do the same with a value that is never in memory as a whole: its pieces in order."""
        self._check(Commit(publish=(Put(key, b""),)))
        transaction = self._files.transaction()
        source = staged_key(key, transaction)
        self.announce(transaction)
        size = sum_of_all = 0
        inside = self._files.create(sync=False)
        try:
            inside.make_folder(key.rpartition("/")[0])
            file = inside.open_new(source)
            try:
                for piece in pieces:
                    inside.write(file, size, piece)
                    size += memoryview(piece).nbytes
                    sum_of_all = checksum(piece, sum_of_all)
            except BaseException:
                with suppress(OSError):
                    inside.unlink(source)
                raise
            finally:
                inside.close_file(file)
        finally:
            inside.close()
        return Move(source, key, size, sum_of_all)

    def copy(self, source: str, key: str) -> Move:
        """Put the value of `source` aside, and return the edit that makes it that of `key` too.

        Where a file can have two names nothing is copied: files are replaced, never written to.
        """
        self._check(Commit(publish=(Put(key, b""),)))
        transaction = self._files.transaction()
        aside = staged_key(key, transaction)
        self.announce(transaction)
        inside = self._files.create(sync=False)
        try:
            inside.make_folder(key.rpartition("/")[0])
            put_copy_aside(inside, check_key(source), key, aside, self.location)
        finally:
            inside.close()
        return Move(aside, key)

    def announce(self, transaction: str) -> None:
        """Have other writers leave alone what is staged under the name of a transaction.

        To be called before that is done by others than this store. It ends with the commit that
        publishes such a value, when one is discarded, or with the process.
        """
        if self._locking and self._writer != threading.get_ident():
            self._aside.begin(transaction, self._announced)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove the staged values of edits that nobody will apply."""
        sources = [edit.source for edit in edits if isinstance(edit, Move)]
        with self._entered() as inside:
            if inside is not None:
                for source in sources:
                    inside.unlink(source)
        self._aside.end(sources)

    def recover(self) -> None:
        """Finish what a writer that died has decided, and remove what it has not.

        Every commit begins with this, though only here all folders are searched, always, for what
        somebody put aside and died before it was his turn. Who only reads needs it not at all.
        """
        if not self._writable:
            raise ReadOnlyError(f"{self.location}: opened for reading only")
        with self._entered() as inside:
            if inside is None:
                return
        with LocalTurn(self, self, sync=True, thorough=True) as turn:
            turn.commit(Commit())

    # One committed state

    def check_journal(self) -> None:
        """Complain about what lies in the place of the journal and is none.

        Nobody looks there while the lock file says that no commit is half done, so whoever opens
        a directory asks once.
        """
        if os.access(f"{self.root}/{self._dataset.journal}", os.F_OK):
            with self._entered() as inside:
                if inside is not None:
                    read_journal(inside, self._dataset, self.location)

    def version(self) -> Version | None:
        """Return the number of the committed state; None when there was no writer yet."""
        return self._files.version(self._dataset.lock)

    def version_probe(self) -> VersionProbe:
        """Return the place from which a state is seen to be the committed one still."""
        kept = self._local.version_probe(self._dataset.lock) if self._local is not None else None
        return StoreProbe(self) if kept is None else kept

    def glance(
        self, extents: Sequence[Extent], *, above: Sequence[str] = ()
    ) -> tuple[int | None, list[bytes | None]] | None:
        """Return the number of the committed state, and what `read` would return of it.

        For the usual case alone: nobody writes, the extents are short, each of a plain file of its
        own, and none of the names `above` lies in the folder above this one. Else None, and only
        the longer way (`ingot.stores.versions`) can tell.
        """
        if self._local is None:
            return None
        for extent in extents:
            check_key(extent.key)
        return self._local.glance(self._dataset.lock, self._dataset.journal, above, extents)

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, or through a journal."""
        found = self._files.version(self._dataset.lock)
        if found is not None and found.settled:
            return self
        with self._entered() as inside:
            journal = read_journal(inside, self._dataset, self.location) if inside else None
        return self if journal is None else Overlay(self, journal)

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give a view of the committed state, which stays that as long as the block runs.

        Writers wait for its end, so it must be short. Without a lock file, on media that cannot be
        written for instance, there is nobody to wait.
        """
        with self._entered() as inside:
            held = inside.pin(self._dataset.lock, self._wait) if inside and self._locking else None
            try:
                yield self.view()
            finally:
                if held is not None:
                    held.release()

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r}, writable={self._writable})"

    @contextmanager
    def _entered(self) -> Iterator[Inside | None]:
        inside = self._files.enter()
        try:
            yield inside
        finally:
            if inside is not None:
                inside.close()

    def _announced(self) -> StagingLock | None:
        inside = self._files.create(sync=False)
        try:
            return inside.announce(self._dataset.lock, self._wait)
        finally:
            inside.close()

    def _check(self, commit: Commit) -> None:
        check_commit(self, commit)
        for edit in commit.edits:
            self._dataset.check(edit.key, self.location)
        if self._failure is not None:
            raise ReadOnlyError(
                f"{self.location}: nothing is written after a failed sync ({self._failure}); "
                "open it again"
            )


class LocalTurn:
    """The turn of one writer of a `LocalStore`: an open folder, its lock, and one commit at most.

    What is taken is noted as soon as it is taken, and `_release` gives back what is noted, once:
    an exception at any point leaves nothing open and nothing locked.
    """

    __slots__ = ("_folder", "_lock", "_owner", "_pending", "_sync", "_thorough", "store")

    def __init__(
        self, owner: LocalStore, store: Store, *, sync: bool, thorough: bool = False
    ) -> None:
        self.store: Final = store
        self._owner = owner
        self._sync = sync
        self._thorough = thorough
        self._folder: Inside | None = None
        self._lock: Turn | None = None
        self._pending: Transaction | None = None

    def __enter__(self) -> Self:
        owner = self._owner
        owner._check(Commit())
        try:
            self._folder = folder = owner._files.create(sync=self._sync)
            if owner._locking:
                self._lock = folder.lock(owner._dataset.lock, owner._wait, sync=self._sync)
            else:
                self._lock = owner._alone
            self._recover(folder, self._lock)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            pending, self._pending = self._pending, None
            if pending is not None:
                pending.abandon()
                if error is not None:
                    self._owner._known.clear()
        finally:
            self._release()

    def commit(self, commit: Commit) -> int | None:
        """Apply a commit and return the number of the new version; None without a lock file."""
        try:
            self._owner._check(commit)
        except BaseException:
            self._owner.discard(commit.edits)
            raise
        return self._carry_out(commit)

    def _recover(self, folder: Inside, lock: Turn) -> None:
        owner = self._owner
        if lock.sequence != owner._left:
            owner._known.clear()  # Another writer may have removed folders since.
        owner._writer = threading.get_ident()
        run = Transaction(
            folder,
            owner._dataset,
            lock,
            owner._files.transaction(),
            owner.location,
            sync=self._sync,
            known=owner._known,
        )
        try:
            run.recover(thorough=self._thorough)
        except BaseException as error:
            self._note(error, run)
            raise
        self._pending = run

    def _carry_out(self, commit: Commit) -> int | None:
        owner, lock = self._owner, self._lock
        run, self._pending = self._pending, None
        if run is None or lock is None:
            raise ValueError(f"{owner.location}: a turn commits once, before its block ends")
        try:
            try:
                sources = {edit.source for edit in commit.edits if isinstance(edit, Move)}
                run.sweep(sources, owner._aside.end(sources))
            except BaseException:
                run.abandon()
                raise
            run.carry_out(commit)
        except BaseException as error:
            self._note(error, run)
            raise
        owner._left = lock.sequence
        return lock.sequence

    def _note(self, error: BaseException, run: Transaction) -> None:
        """Keep what a failure means for the store, and say so where the commit is decided."""
        self._owner._known.clear()
        if run.sync_failed:
            self._owner._failure = str(error)
        if run.decided:
            error.add_note("the commit is decided: readers see it, the next writer finishes it")

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        folder, self._folder = self._folder, None
        try:
            if lock is not None:
                self._owner._writer = None
                lock.release()
        finally:
            if folder is not None:
                folder.close()

"""A store that is a directory of the local file system.

`files` has the system calls, `beneath` decides which files may be opened at all, `commit` has the
order of a commit, `lock` the lock file, `overlay` the view of a commit that is not applied yet.

File contents change only by write, pwrite, ftruncate and rename. A `Put` is written to a new file
under a staged name in the folder of its key and then renamed over it: a reader has the old file or
the new one, and a reader that opened the old one keeps it.
"""

import functools
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice
from typing import Any, Final, Self, cast

from ingot import signals
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    ExistsError,
    IngotError,
    LockedError,
    NotFoundError,
    ReadOnlyError,
    UnsupportedError,
)
from ingot.native import NativeDocuments, make_documents
from ingot.stores.local.commit import CommitRun
from ingot.stores.local.files import (
    FileSystem,
    FolderProbe,
    LocalFileSystem,
    OpenDirectory,
    ProbedFiles,
    stage_copy,
    write_piece,
)
from ingot.stores.local.journal import Journal, checksum, joined_checksum, read_journal
from ingot.stores.local.lock import (
    LockState,
    NoLock,
    ReaderLock,
    StagedTransactions,
    StagingLock,
    WriterLock,
)
from ingot.stores.local.log import OpenLog, check_head, read_log
from ingot.stores.local.open_values import OpenValues
from ingot.stores.local.overlay import Overlay
from ingot.stores.local.scope import WHOLE, Scope
from ingot.stores.store import (
    READING,
    READING_AND_WRITING,
    Batch,
    Buffer,
    Commit,
    Durability,
    Edit,
    Extent,
    Feature,
    Grown,
    Move,
    Patch,
    Piece,
    Put,
    Store,
    Truncate,
    check_commit,
    check_key,
    is_file_piece,
    is_staged,
    staged_key,
)
from ingot.stores.versions import KernelCommit, StoreProbe, Version, VersionProbe

__all__ = ["LocalStore", "LocalTurn"]

# By whether the store is writable, and whether its files are those of the local file system.
_FEATURES: Final = {
    (False, False): READING,
    (True, False): READING_AND_WRITING,
    (False, True): READING | Feature.NATIVE,
    (True, True): READING_AND_WRITING | Feature.NATIVE,
}

# Reading more extents in one native call saves little, and loses more if one of them is large.
_MOST_AT_ONCE: Final = 64


class LocalStore:
    """A directory of the local file system; keys are the paths of plain files below it.

    Without `writable` the store never creates, changes or removes anything. With it the directory
    is created by the first commit, not before. Between calls a store holds no descriptor but that
    of the lock file, to read the version. It can be pickled (by path), shared by threads, and used
    after a fork.

    Writers exclude each other by the file `.lock`; one waits at most `wait` seconds for another. A
    file system without locks is an error; with `locking=False` the caller promises to be the only
    writer. `dataset` is the scope: the files that are committed together.

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
        root: str | os.PathLike[str] | FileSystem,
        *,
        writable: bool = False,
        locking: bool = True,
        wait: float = 10.0,
        dataset: Scope = WHOLE,
    ) -> None:
        self._files: Final = LocalFileSystem(root) if isinstance(root, str | os.PathLike) else root
        self._writable: Final = writable
        self._locking: Final = locking
        self._no_lock: Final = None if locking else NoLock()
        self._wait: Final = wait
        self._scope: Final = dataset
        self._failure: str | None = None
        self._known: Final[set[str]] = set()
        self._left: int | None = None
        self._local: Final = self._files if isinstance(self._files, LocalFileSystem) else None
        self._staging: Final = StagedTransactions() if writable else _NOTHING_STAGED
        self._writer: int | None = None
        self._run: CommitRun | None = None
        # Where keys end that this store has extended, as long as no other writer commits.
        self._ends: Final[dict[str, int]] = {}
        # The log, and how many commits in a row could have gone into one.
        self._log: OpenLog | None = None
        self._loggable = 0
        self._closing: weakref.finalize[Any, Any] | None = None
        self._forks = signals.forks()
        self._features: Final = _FEATURES[writable, self._local is not None]

    @property
    def features(self) -> Feature:
        """All features, without those for writing when not writable."""
        return self._features

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._files.path

    @property
    def location(self) -> str:
        """The absolute path of the directory, for messages."""
        return self._files.path

    @property
    def journal_path(self) -> str:
        """The path of the file that is the journal of a commit, while there is one."""
        return f"{self._files.path}/{self._scope.journal}"

    @property
    def log_path(self) -> str | None:
        """The path of the file that is the log, while there is one; None where there cannot be."""
        log = self._scope.log
        return None if log is None else f"{self._files.path}/{log}"

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for a key that is absent. Each key opens once."""
        if type(extents) is Batch and self._local is not None:
            pieces = self._local.read_batch(extents)
            if pieces is not None:
                return pieces
        wanted: dict[str, list[int]] = {}
        for position, extent in enumerate(extents):
            wanted.setdefault(check_key(extent.key), []).append(position)
        found: list[bytes | None] = [None] * len(extents)
        done = 0
        while self._local is not None and len(wanted) == len(extents):
            pieces = self._local.read(extents[done : done + _MOST_AT_ONCE])
            if pieces is None:
                break
            found[done : done + len(pieces)] = pieces
            done += len(pieces)
            if done == len(extents):
                return found
        directory = self._files.open()
        if directory is None:
            return found
        try:
            for key, positions in islice(wanted.items(), done, None):
                values = directory.read(key, [extents[position] for position in positions])
                for position, value in zip(positions, values or (), strict=values is not None):
                    found[position] = value
        finally:
            directory.close()
        return found

    def open_values(self, extents: Sequence[Extent]) -> AbstractContextManager[OpenValues] | None:
        """Return the bytes of extents, to be read into memory; see `MemoryFillingStore`."""
        for extent in extents:
            check_key(extent.key)
        return None if self._local is None else self._local.open_values(extents)

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        check_key(key)
        size = None if self._local is None else self._local.plain_size(key)
        if size is not None:
            return size
        with self._opened() as directory:
            return directory.size(key) if directory else None

    def identity(self, key: str) -> Hashable | None:
        """Return the device, number, modification time and size of the file, when they suffice."""
        check_key(key)
        return None if self._local is None else self._local.identity(key)

    def keep_documents(self, documents: Mapping[str, bytes | None]) -> NativeDocuments | None:
        """Return documents that the kernel compares with the files; None without the kernel."""
        if self._local is None:
            return None
        return make_documents(self._files.path, list(documents.items()))

    def committed_as(self, documents: NativeDocuments) -> int | None:
        """Return the number of the committed state, if it has documents that were compared before.

        None as well where one look at the files cannot tell.
        """
        local = self._local
        # A writer reads the version of its own turn.
        if local is None or self._scope.log is None or self._run is not None:
            return None
        probe = local.version_probe(self._scope.lock)
        return None if probe is None else documents.committed(probe, self.record_names)

    @property
    def record_names(self) -> tuple[str, ...]:
        """The names of the journal and, where there can be one, of the log."""
        scope = self._scope
        return (scope.journal,) if scope.log is None else (scope.journal, scope.log)

    def identities(self, keys: Sequence[str]) -> list[Hashable | None]:
        """Return the identity of each key; `ABSENT` for a key that is known to be absent."""
        _check_keys(tuple(keys))
        return [None] * len(keys) if self._local is None else self._local.identities(keys)

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash.

        A symbolic link to a folder counts as a folder when it may be followed, else as a file.
        The lock file and the journal are no keys, and never listed.
        """
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        with self._opened() as directory:
            names = directory.names(folder) if directory else []
        own = () if folder else self._scope.reserved
        return iter(
            sorted(name for name in names if name not in own and (hidden or not is_staged(name)))
        )

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit, all of `publish` or nothing of it, whatever happens meanwhile.

        First it waits for another writer (`LockedError` after `wait` seconds) and finishes what a
        dead one left. `docs/promise.md` says what survives what. After a failed sync this store
        writes no more, since what is durable is unknown; open the directory again.
        """
        self._check(commit)
        if commit.edits:
            with LocalTurn(self, self, sync=durability == "full") as turn:
                turn._apply(commit)

    def writing(
        self, *, durability: Durability = "full", store: Store | None = None
    ) -> "LocalTurn":
        """Return a turn to write; entering it waits for the lock (`LockedError` after `wait`).

        Then the commit of a writer that died is finished, or what it staged is discarded. What is
        read from then on is the committed state and stays that until the turn commits, so nothing
        that another writer does is lost. `store` is what the turn shows as its store.
        """
        return LocalTurn(self, self if store is None else store, sync=durability == "full")

    def switch(
        self,
        change: KernelCommit,
        documents: NativeDocuments,
        version: int,
        *,
        durability: Durability,
    ) -> int | None:
        """Have the kernel make a commit by itself, and return the new version.

        None where only a turn to write can: anything is unusual, and nothing has changed.
        """
        if self._local is None or not self._locking:
            return None
        self._check_writable()
        names = self._scope.lock, self._scope.journal
        with signals.Deferred() as deferred:
            changed = self._local.switch(
                names, change, documents, version, sync=durability == "full"
            )
            if changed is None:
                return None
            number, failure = changed
            if failure is not None:
                raise self._failed(*failure)
            deferred.note = COMMITTED
        return number

    def _failed(self, code: int, syncing: bool, decided: bool) -> OSError:
        """Return the error of a commit that the kernel could not finish."""
        error = OSError(code, os.strerror(code), self.location)
        if syncing:
            self._failure = str(error)
        if decided:
            error.add_note(DECIDED)
        return error

    def extend(self, key: str, pieces: Iterable[Piece], *, end: int | None = None) -> Grown:
        """Write bytes behind the end of a file, piece by piece; only inside a turn to write.

        Other keys of the turn are not touched. A turn that ends without a commit cuts the bytes
        off; after a death they stay, and the next extend, whose `end` lies before them, overwrites
        them.
        """
        self._check(Commit(publish=(Truncate(key, 0),)))
        run = self._run if self._writer == threading.get_ident() else None
        if run is None:
            raise ArgumentError(f"{self.location}: a key is extended inside a turn to write")
        return run.extend(key, pieces, end, self._ends.get(key, 0))

    def stage(self, key: str, data: Buffer) -> Move:
        """Write a value under a staged name, and return the edit that makes it that of `key`.

        That needs no writer lock: the name is new, and the committed state does not reach it.
        """
        return self.stage_pieces(key, (data,))

    def stage_pieces(
        self, key: str, pieces: Iterable[Piece], *, head: Callable[[], Buffer] | None = None
    ) -> Move:
        """Stage a value that is given in pieces, so that it is never in memory as a whole.

        What `head` returns behind the last piece replaces the first bytes.
        """
        self._check(Commit(publish=(Put(key, b""),)))
        transaction = self._files.transaction()
        source = staged_key(key, transaction)
        self.announce_staging(transaction)
        size = 0
        # Without those that the head replaces. A commit that needs the checksum of a value without
        # one reads the value.
        sum_of_all: int | None = 0
        replaced = 0
        directory = self._files.create(sync=False)
        try:
            directory.make_folder(key.rpartition("/")[0])
            try:
                file = directory.open_new(source)
                try:
                    for piece in pieces:
                        if is_file_piece(piece):
                            length = write_piece(directory, file, size, piece)
                            sum_of_all = joined_checksum(sum_of_all, piece.checksum, length)
                            size += length
                            continue
                        signals.check()
                        part = cast(Buffer, piece)
                        directory.write(file, size, part)
                        if head is None and sum_of_all is not None:
                            sum_of_all = checksum(part, sum_of_all)
                        elif not size:
                            replaced = memoryview(part).nbytes
                        else:
                            sum_of_all = None  # It is rarely needed, and takes long.
                        size += memoryview(part).nbytes
                    if head is not None:
                        first = head()
                        directory.write(file, 0, first)
                        known = memoryview(first).nbytes == replaced
                        before = checksum(first) if known and sum_of_all is not None else None
                        sum_of_all = joined_checksum(before, sum_of_all, size - replaced)
                finally:
                    directory.close_file(file)
            except BaseException:
                with suppress(OSError):
                    directory.unlink(source)
                self.withdraw_staging(transaction)
                raise
        finally:
            directory.close()
        return Move(source, key, size, sum_of_all)

    def copy(self, source: str, key: str) -> Move:
        """Stage the value of `source`, and return the edit that makes it that of `key` too.

        Where a file can have two names nothing is copied: files are replaced, never written to.
        """
        self._check(Commit(publish=(Put(key, b""),)))
        transaction = self._files.transaction()
        staged = staged_key(key, transaction)
        self.announce_staging(transaction)
        directory = self._files.create(sync=False)
        try:
            directory.make_folder(key.rpartition("/")[0])
            stage_copy(directory, check_key(source), key, staged, self.location)
        finally:
            directory.close()
        return Move(staged, key)

    def announce_staging(self, transaction: str) -> None:
        """Keep other writers from removing what is staged under the name of a transaction.

        To be called before anything but this store stages files. It ends with the commit that
        publishes such a file, when one is discarded, or with the process.
        """
        self._check_writable()
        if self._writer == threading.get_ident():
            if self._run is not None:
                self._run.add_staging(transaction)
        elif self._locking:
            self._staging.begin(transaction, self._announced)

    def withdraw_staging(self, transaction: str, *, staged: bool = True) -> None:
        """Take back an announcement; the next writer searches for files, if any were `staged`."""
        self._staging.withdraw(transaction, staged=staged)

    def hand_over(self, edits: Iterable[Edit]) -> None:
        """Leave the staged values of edits to another process, which has announced staging."""
        self._staging.end([edit.source for edit in edits if isinstance(edit, Move)])

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove the staged values of edits that will not be applied."""
        sources = [edit.source for edit in edits if isinstance(edit, Move)]
        with self._opened() as directory:
            if directory is not None:
                for source in sources:
                    directory.unlink(source)
        self._staging.end(sources)

    def recover(self) -> None:
        """Replay the journal of a dead writer, or discard what it staged.

        Every commit begins with this; readers never need it. Only this call always searches all
        folders for staged files of dead processes.
        """
        if not self._writable:
            raise ReadOnlyError(f"{self.location}: opened for reading only")
        with self._opened() as directory:
            if directory is None:
                return
        with LocalTurn(self, self, sync=True, thorough=True) as turn:
            turn.commit(Commit())

    # One committed state

    def check_journal(self) -> None:
        """Raise an error for a file that has the name of the journal and is none.

        Readers do not read the journal while the lock file says that no commit is half done, so
        opening a dataset calls this once.
        """
        if os.access(f"{self._files.path}/{self._scope.journal}", os.F_OK):
            with self._opened() as directory:
                if directory is not None:
                    read_journal(directory, self._scope, self.location)
        log = self._scope.log
        if log is not None and os.access(f"{self._files.path}/{log}", os.F_OK):
            with self._opened() as directory:
                found = None if directory is None else directory.read(log, [Extent(log, 0, 512)])
            named = self._files.log_state(self._scope.lock).name
            if found is not None and os.access(f"{self._files.path}/{log}", os.F_OK):
                check_head(found[0], named, f"{self.location}: {log!r}")

    def version(self) -> Version | None:
        """Return the version of the committed state; None before the first writer."""
        run = self._run
        if run is not None and self._writer == threading.get_ident():
            number = run.sequence
            if number is not None:  # It is this thread's turn: no other writer changes it.
                return Version(number, settled=False)
        return self._files.version(self._scope.lock)

    def version_probe(self) -> VersionProbe:
        """Return a probe that checks cheaply whether a version is still the committed one."""
        kept = self._local.version_probe(self._scope.lock) if self._local is not None else None
        return StoreProbe(self) if kept is None else kept

    def read_settled(self, probe: FolderProbe) -> tuple[int | None, ProbedFiles | None] | None:
        """Return the number of the committed state, and the files of a probe as it has them.

        The files are those of the first group whose first file is present, and behind them those
        that its first file is known to name. They come with the number of the group and, if the
        probe asks for it, the path of the folder without symbolic links; None when there is no such
        group. All is None when one call cannot say: a commit may
        be under way, a file is large or not a plain file, or one of the names `above` of the probe
        lies in the folder above. Then the caller reads by `ingot.stores.versions`.
        """
        if self._local is None:
            return None
        return self._local.read_settled(self._scope.lock, self._scope.journal, probe)

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, or through a journal.

        The view through one journal is one object, as long as the version stays.
        """
        local = self._local
        kept = None if local is None else local.viewed
        if local is not None and kept is None and not self._has_record():
            return self
        found = self._files.version(self._scope.lock)
        if found is not None and found.settled:
            if local is not None:
                local.viewed = None
            return self
        identity = None
        log = self._log_to_read()
        if local is not None:
            identity = tuple(
                local.journal_identity(name) for name in (self._scope.journal, log) if name
            )
            if not any(identity):
                local.viewed = None
                return self
            if found is not None and kept is not None and kept[0] == (found.sequence, identity):
                return cast(Overlay, kept[1])
        with self._opened() as directory:
            journal = read_journal(directory, self._scope, self.location) if directory else None
            if journal is None and directory is not None and log is not None:
                journal = self._read_log(directory)
        if journal is None:
            return self
        view = Overlay(self, journal)
        if local is not None and found is not None:
            local.viewed = (found.sequence, identity), view
        return view

    def _has_record(self) -> bool:
        """Return whether there may be a journal or a log."""
        path = self._files.path
        return any(os.access(f"{path}/{name}", os.F_OK) for name in self.record_names)

    def _log_to_read(self) -> str | None:
        """Return the name of the log, if the files may not hold what it says."""
        log = self._scope.log
        return None if log is None or self._files.log_state(self._scope.lock).written else log

    def _read_log(self, directory: OpenDirectory) -> Journal | None:
        """Return what the log says, as one journal; None where the files hold it all."""
        lock = self._scope.lock
        while True:
            state, version = self._files.log_state(lock), self._files.version(lock)
            if state.written:
                return None
            try:
                log = read_log(directory, self._scope, state.name, self.location)
            except (CorruptionError, UnsupportedError):
                # A writer may have begun or removed it meanwhile.
                if (state, version) != (self._files.log_state(lock), self._files.version(lock)):
                    continue
                raise
            return None if log is None else log.whole

    def close_log(self) -> None:
        """Make what the log has changed durable in the files, and remove the log.

        Nothing is done where this store has not appended to a log, or it is closed already. Where
        another writer is at work, the log is left to it.
        """
        closing, self._closing = self._closing, None
        if closing is not None:
            closing.detach()
        log = self._scope.log
        if (closing is None and self._log is None) or log is None:
            return
        if self._local is not None and not os.path.lexists(f"{self.root}/{log}"):
            self._log = None
            return
        with suppress(LockedError, ReadOnlyError), LocalTurn(self, self, sync=True) as turn:
            turn.commit(Commit())

    def _keep_log(self, log: OpenLog | None) -> None:
        """Remember the log that is open after a commit; it is closed at exit at the latest."""
        self._log = log
        if log is None:
            if self._closing is not None:
                self._closing.detach()
                self._closing = None
        elif self._local is not None and (self._closing is None or self._forks != signals.forks()):
            self._forks = signals.forks()
            self._closing = weakref.finalize(self, _close_left, self.root, self._scope, os.getpid())

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give a view of the committed state; writers wait until the block ends.

        So the block must be short. Without a lock file, for instance on read-only media, there are
        no writers. A single file without a lock file is pinned itself.
        """
        with self._opened() as directory:
            pinned = None
            try:
                with signals.Deferred():
                    if directory is not None and self._locking:
                        pinned = self._pinned(directory)
                yield self.view()
            finally:
                if pinned is not None:
                    pinned.release()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state of a copy: without the turn of a writer, whose files are open here."""
        fresh: dict[str, Any] = {
            "_run": None,
            "_writer": None,
            "_known": set(),
            "_ends": {},
            "_left": None,
            "_log": None,
            "_loggable": 0,
            "_closing": None,
        }
        return {**self.__dict__, **fresh}

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r}, writable={self._writable})"

    @contextmanager
    def _opened(self) -> Iterator[OpenDirectory | None]:
        directory = self._files.open()
        try:
            yield directory
        finally:
            if directory is not None:
                directory.close()

    def _announced(self) -> StagingLock | None:
        directory = self._files.create(sync=False)
        try:
            return directory.announce_staging(self._scope.lock, self._wait)
        finally:
            directory.close()

    def _check(self, commit: Commit) -> None:
        check_commit(self, commit)
        keys = tuple([edit.key for edit in commit.edits])
        check = _check_repeated if len(keys) <= _MOST_AT_ONCE else _check_scope
        check(self._scope, keys, self.location)
        self._check_writable()

    def _pinned(self, directory: OpenDirectory) -> ReaderLock | None:
        lock, only = self._scope.lock, self._scope.only
        while True:
            pinned = directory.pin(lock, self._wait)
            if pinned is not None or only is None:
                return pinned
            before = _number(f"{self.root}/{only}")
            pinned = directory.pin(only, self._wait)
            # The first writer may have made the lock file, or replaced the file, meanwhile.
            if self.version() is None and _number(f"{self.root}/{only}") == before:
                return pinned
            if pinned is not None:
                pinned.release()

    def _check_writable(self) -> None:
        if not self._writable:
            raise ReadOnlyError(f"{self.location}: opened for reading only")
        if self._failure is not None:
            raise ReadOnlyError(
                f"{self.location}: nothing is written after a failed sync ({self._failure}); "
                "open it again"
            )


COMMITS_BEFORE_LOG = 8
"""So many commits in a row that can go into a log are made before a log is begun.

To begin and to close a log takes as long as two or three commits by a journal.
"""


def _close_left(root: str, scope: Scope, process: int) -> None:
    """Close the log of a store that is gone; what fails is left to the next writer."""
    if process == os.getpid() and os.path.lexists(f"{root}/{scope.log}"):
        with suppress(IngotError, OSError):
            store = LocalStore(root, writable=True, dataset=scope, wait=0.1)
            with LocalTurn(store, store, sync=True) as turn:
                turn.commit(Commit())


_NOTHING_STAGED: Final = StagedTransactions()
"""The staged transactions of all stores that do not write."""


# A writer asks for the same keys in every turn.
@functools.lru_cache(maxsize=256)
def _check_keys(keys: tuple[str, ...]) -> None:
    for key in keys:
        check_key(key)


def _check_scope(scope: Scope, keys: tuple[str, ...], where: str) -> None:
    for key in keys:
        scope.check(key, where)


# Commits of few keys are often alike.
_check_repeated: Final = functools.lru_cache(maxsize=256)(_check_scope)


def _number(path: str) -> tuple[int, int] | None:
    """Return which file has a name; None when there is none."""
    try:
        facts = os.stat(path)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


COMMITTED: Final = "the commit is done: readers see it"
"""The note on an error or a Ctrl-C that came after a commit, before the call returned."""
DECIDED: Final = "the commit is decided: readers see it, the next writer finishes it"
"""The note on an error during a commit, after the step that decides it."""


class LocalTurn:
    """A turn to write to a `LocalStore`: an open directory, its lock, and one commit at most.

    Each resource is assigned as soon as it is taken, and `_release` releases what is assigned,
    once: an exception at any point leaves nothing open and nothing locked. Ctrl-C is held back
    until the turn ends, except in native calls and while the turn waits for the lock.
    """

    __slots__ = (
        "_deferred",
        "_directory",
        "_lock",
        "_owner",
        "_removes_lock",
        "_run",
        "_sync",
        "_thorough",
        "store",
    )

    def __init__(
        self, owner: LocalStore, store: Store, *, sync: bool, thorough: bool = False
    ) -> None:
        self.store: Final = store
        self._owner = owner
        self._sync = sync
        self._thorough = thorough
        self._deferred: Final = signals.Deferred()
        self._directory: OpenDirectory | None = None
        self._lock: WriterLock | None = None
        self._removes_lock = False
        self._run: CommitRun | None = None

    def __enter__(self) -> Self:
        owner = self._owner
        owner._check_writable()
        self._deferred.__enter__()
        try:
            self._recover(*self._begin())
        except BaseException:
            try:
                self._release()
            finally:
                self._deferred.__exit__()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            try:
                run, self._run = self._run, None
                if run is not None:
                    run.abandon()
                    if error is not None:
                        self._owner._known.clear()
            finally:
                self._release()
        except BaseException as late:
            error = late
            raise
        finally:
            if error is not None:
                self._add_note(error)
            self._deferred.__exit__()

    def commit(self, commit: Commit) -> int | None:
        """Apply a commit and return the number of the new version; None without a lock file."""
        try:
            self._owner._check(commit)
        except BaseException:
            self._owner.discard(commit.edits)
            raise
        return self._apply(commit)

    def await_readers(self, key: str) -> None:
        """Wait for readers that pin a file itself, if this turn has made the lock file."""
        directory, lock = self._directory, self._lock
        if directory is not None and lock is not None and lock.found is LockState.NEW:
            directory.await_readers(key, self._owner._wait)

    def create_file(self, commit: Commit, made: Sequence[Put | Move]) -> None:
        """Make the one new file of a commit, by a rename; `ExistsError` when it exists already.

        `made` is the outcome of the commit: at most one value, which may be staged already.
        """
        owner, directory = self._owner, self._directory
        assert directory is not None
        try:
            owner._check(commit)
            moves = [
                owner.stage(each.key, each.data) if isinstance(each, Put) else each for each in made
            ]
        except BaseException:
            owner.discard(commit.edits)
            raise
        named = False
        try:
            for move in moves:
                if self._sync:
                    self._sync_staged(directory, move)
                self._appear(directory, move)
                named = True
                if self._sync:
                    directory.sync_folder("")
        except BaseException as error:
            if named:
                error.add_note(COMMITTED)
            else:
                owner.discard(moves)
            raise
        self._deferred.note = COMMITTED

    def _sync_staged(self, directory: OpenDirectory, move: Move) -> None:
        opened = directory.open_old(move.source)
        if opened is not None:
            try:
                directory.sync(opened[0])
            finally:
                directory.close_file(opened[0])

    def _appear(self, directory: OpenDirectory, move: Move) -> None:
        where = self._owner.location
        try:
            directory.rename_new(move.source, move.key)
        except FileNotFoundError:
            raise NotFoundError(f"{where}: no key {move.source!r} to become {move.key!r}") from None
        except FileExistsError:
            raise ExistsError(
                f"{where}/{move.key}: another program has created it meanwhile"
            ) from None

    def remove_lock(self, *, new: bool = False) -> None:
        """Have the lock file removed when the turn ends: what it is about is removed, or replaced.

        If `new`, only a lock file that this turn has made. A writer that waits for the lock finds
        that the file is gone, and makes a new one.
        """
        lock = self._lock
        if lock is not None and self._owner._locking:
            self._removes_lock |= not new or lock.found is LockState.NEW

    def _begin(self) -> tuple[OpenDirectory, WriterLock, bool]:
        """Return the open directory, its lock, and whether there may be a journal."""
        owner = self._owner
        names = owner._scope.lock, owner._scope.journal
        if owner._locking and owner._local is not None:
            begun = owner._local.begin_turn(names, owner._wait)
            if begun is not None:
                self._directory, self._lock, _ = begun
                return begun
        self._directory = directory = owner._files.create(sync=self._sync)
        if owner._no_lock is not None:
            owner._no_lock.log = owner._files.log_state(names[0]).name
        lock = owner._no_lock or directory.lock(names[0], owner._wait, sync=self._sync)
        self._lock = lock
        return directory, lock, True

    def _recover(self, directory: OpenDirectory, lock: WriterLock, journal: bool) -> None:
        owner = self._owner
        if lock.sequence != owner._left:
            owner._loggable = 0
            owner._known.clear()  # Another writer may have removed folders since.
            owner._ends.clear()
        owner._writer = threading.get_ident()
        run = CommitRun(
            directory,
            owner._scope,
            lock,
            owner._files.transaction,
            owner.location,
            sync=self._sync,
            known=owner._known,
            log=owner._log,
            logging=owner._loggable >= COMMITS_BEFORE_LOG,
        )
        try:
            run.recover(thorough=self._thorough, journal=journal)
        except BaseException as error:
            self._record_failure(error, run)
            raise
        self._run = owner._run = run

    def _apply(self, commit: Commit) -> int | None:
        owner, lock = self._owner, self._lock
        run, self._run = self._run, None
        owner._run = None
        if run is None or lock is None:
            raise ArgumentError(f"{owner.location}: a turn commits once, before its block ends")
        try:
            try:
                sources = {edit.source for edit in commit.edits if isinstance(edit, Move)}
                run.sweep(sources, owner._staging.end(sources))
            except BaseException:
                run.abandon()
                raise
            run.apply(commit)
        except BaseException as error:
            self._record_failure(error, run)
            raise
        self._deferred.note = COMMITTED
        owner._left = lock.sequence
        owner._loggable = owner._loggable + 1 if run.logged else 0
        owner._keep_log(run.log)
        if owner._ends or commit.prepare:  # Only edits that prepare make a key grow.
            for edit in commit.edits:
                if isinstance(edit, Grown):
                    owner._ends[edit.key] = edit.start + edit.size
                elif not isinstance(edit, Patch):
                    owner._ends.pop(edit.key, None)
        return lock.sequence

    def _record_failure(self, error: BaseException, run: CommitRun) -> None:
        """Remember what a failure means for the store, and add a note if the commit is decided."""
        self._owner._known.clear()
        self._owner._log = None
        if run.sync_failed:
            self._owner._failure = str(error)
        if run.decided:
            self._deferred.note = DECIDED
            self._add_note(error)

    def _add_note(self, error: BaseException) -> None:
        """Add the note that a commit is done or decided, if it is, to an error."""
        note = self._deferred.note
        if note is not None and note not in getattr(error, "__notes__", ()):
            error.add_note(note)

    def _release(self) -> None:
        lock, self._lock = self._lock, None
        directory, self._directory = self._directory, None
        try:
            if lock is not None:
                self._owner._writer = self._owner._run = None
                self._release_lock(lock, directory)
        finally:
            if directory is not None:
                directory.close()

    def _release_lock(self, lock: WriterLock, directory: OpenDirectory | None) -> None:
        """Release the lock, and remove its file if the turn is to.

        The next writer may make a new lock file as soon as this one is gone, so nothing of the
        turn may follow but the release.
        """
        try:
            if self._removes_lock and directory is not None:
                directory.unlink(self._owner._scope.lock)
        finally:
            lock.release()

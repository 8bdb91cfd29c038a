"""Applying a commit to files: a crash anywhere leaves the old state or the new one.

This module is the order of writes, syncs and renames; `files` is how each of them is done:

1. The journal of a dead writer is replayed, or what it staged is removed.
2. Every new value is written under a staged name in the folder of its key, and the journal too if
   it is known already; then all of them are synced.
3. `prepare`: renames, patches and removals, then their folders are synced.
4. `publish`. One rename or one removal alone is done at once. Otherwise the journal gets its name:
   from then on the commit is decided, and the next writer can finish it.
5. The journal is applied, what it changed is synced, then it is removed.
6. `cleanup`.

The version number changes (`WriterLock.bump`) after the commit is decided and before anything is
touched that a reader of the old state needs: all reads between two bumps fit together.
"""

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from typing import Final

from ingot.errors import NotFoundError, UnsafeError
from ingot.stores.local import journal as journal_bytes
from ingot.stores.local.files import OpenDirectory
from ingot.stores.local.journal import (
    Journal,
    Placed,
    Removed,
    Written,
    checksum,
    read_journal,
    summed,
    verify,
)
from ingot.stores.local.lock import LockState, WriterLock, switching
from ingot.stores.local.scope import Scope
from ingot.stores.store import (
    Commit,
    Delete,
    Move,
    Outcome,
    Patch,
    Patches,
    Put,
    bytes_to_write,
    check_reach,
    compose,
    staged_key,
)

__all__ = ["CommitRun", "check_clear", "check_room"]

_MOST_OPEN: Final = 128
# Syncing more files one by one takes longer than syncing the whole file system.
_MOST_SYNCED_SINGLY: Final = 16


class CommitRun:
    """The steps of one commit, below one open directory, by the writer that holds the lock.

    `known` are the folders whose names are durable once this commit, and those before it, succeed.
    """

    __slots__ = (
        "_all_synced",
        "_changed",
        "_count",
        "_directory",
        "_journal",
        "_known",
        "_littered",
        "_lock",
        "_name",
        "_prepared",
        "_scope",
        "_staged",
        "_sync",
        "_synced",
        "_touched",
        "_where",
        "decided",
        "sync_failed",
    )

    def __init__(
        self,
        directory: OpenDirectory,
        scope: Scope,
        lock: WriterLock,
        name: str,
        where: str,
        *,
        sync: bool,
        known: set[str] | None = None,
    ) -> None:
        self._directory = directory
        self._scope = scope
        self._lock = lock
        self._name = name
        self._where = where
        self._sync = sync
        # By phase and key: a key may get another value in each phase.
        self._staged: dict[tuple[str, str], str] = {}
        self._count = 0
        # Staged names whose values are synced, and the keys that `prepare` puts.
        self._synced: set[str] = set()
        self._prepared: set[str] = set()
        self._journal: Journal | None = None
        # Whether everything that was staged is synced, names included.
        self._all_synced = False
        self._known = set() if known is None else known
        self._changed: dict[str, None] = {}
        self._touched = self._littered = False
        self.decided = False
        """Whether the new state will be read, whatever happens from now on."""
        self.sync_failed = False
        """Whether a sync failed: what is durable is unknown, and another sync proves nothing."""

    def recover(self, *, thorough: bool = False) -> None:
        """Replay the journal of a dead writer, if there is one, and see whether a sweep is due.

        If `thorough`, a sweep of all folders is always due.
        """
        found = self._lock.found
        journal = read_journal(self._directory, self._scope, self._where)
        if journal is None and found in (LockState.CLEAN, LockState.LOOSE, LockState.NEW):
            if found is LockState.LOOSE and self._sync:
                self._sync_all()
            self._littered = thorough
            return
        # A dead writer may have decided without a bump, and nothing of it needs to be durable.
        self._lock.bump()
        self._sync_all()
        if journal is not None:
            verify(journal, self._directory, f"{self._where}: {self._scope.journal!r}")
            self._lock.begin_apply()
            self._apply_journal(journal, sync=True, again=True)
        self._littered = True

    def sweep(self, kept: Set[str], own: int) -> None:
        """Remove staged files except `kept`, unless another process is still staging.

        `stager` is the number under which this writer has staged, see `WriterLock.begin_sweep`.
        """
        if self._lock.request_sweep() if self._littered else self._lock.begin_sweep(own):
            self._sweep("", kept)
            self._lock.end_sweep()

    def apply(self, commit: Commit) -> None:
        """Apply a commit; a failure before it is decided leaves the old state."""
        # What was staged for the commit is its own to remove from now on.
        sources = (edit.source for edit in commit.edits if isinstance(edit, Move))
        self._staged.update({("staged", source): source for source in sources})
        try:
            prepare, early = compose(commit.prepare)
            publish, late = compose(commit.publish)
            cleanup, last = compose(commit.cleanup)
            check_room(commit, self._directory, self._where)
            self._prepared = {outcome.key for outcome in prepare if isinstance(outcome, Put)}
            journal = None if late else self._early_journal(publish)
            self._stage({"prepare": prepare, "publish": publish}, journal)
            self._perform("prepare", early, prepare)
            self._publish(late, publish)
            if cleanup or last:
                self._stage({"cleanup": cleanup})
                self._perform("cleanup", last, cleanup)
                self._sync_folders()
        except BaseException:
            self.abandon()
            raise
        self._lock.mark(LockState.CLEAN if self._sync else LockState.LOOSE)

    def abandon(self) -> None:
        """Remove what was staged; if nothing else was touched, the state is as it was found."""
        try:
            for staged in self._staged.values():
                self._directory.unlink(staged)
            found = self._lock.found
            if not self._touched and found in (LockState.CLEAN, LockState.LOOSE, LockState.NEW):
                self._lock.mark(LockState.LOOSE if found is LockState.NEW else found)
        except OSError:
            return  # The state stays busy, so the next writer recovers and sweeps.

    # New values

    def _stage(
        self,
        phases: Mapping[str, Sequence[Outcome]],
        journal: Callable[[], Put] | None = None,
    ) -> None:
        """Write all new values and the journal; then sync them, and what was staged before."""
        puts = [
            (phase, outcome)
            for phase, outcomes in phases.items()
            for outcome in outcomes
            if isinstance(outcome, Put)
        ]
        sources = self._unsynced(chain.from_iterable(phases.values()))
        many = len(sources) > _MOST_SYNCED_SINGLY
        for first in range(0, max(len(puts), 1), _MOST_OPEN):
            files: list[int] = []
            try:
                for phase, put in puts[first : first + _MOST_OPEN]:
                    files.append(self._write_new(phase, put))
                if first + _MOST_OPEN >= len(puts):
                    files += [] if many else map(self._opened, sources)
                    files += [] if journal is None else [self._write_new("journal", journal())]
                self._sync_files([] if many else files)
                while files:
                    self._directory.close_file(files.pop())
            finally:
                for file in files:
                    with suppress(OSError):
                        self._directory.close_file(file)
        if many:
            self._sync_all()
            self._changed.clear()
        self._all_synced = many
        self._synced.update(sources)

    def _unsynced(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Return the staged names of values that were staged before this commit and not synced."""
        moves = (outcome for outcome in outcomes if self._sync and isinstance(outcome, Move))
        return [
            move.source
            for move in moves
            if move.source not in self._prepared and move.source not in self._synced
        ]

    def _write_new(self, phase: str, put: Put) -> int:
        self._make_folder(put.key)
        staged = staged_key(put.key, f"{self._name}.{self._count}")
        self._count += 1
        file = self._directory.open_new(staged)
        self._staged[phase, put.key] = staged
        try:
            self._directory.write(file, 0, put.data)
        except BaseException:
            with suppress(OSError):
                self._directory.close_file(file)
            raise
        return file

    def _make_folder(self, key: str) -> None:
        folder = key.rpartition("/")[0]
        if folder:
            self._changed.update(dict.fromkeys(self._directory.make_folder(folder)))

    # What no reader sees

    def _perform(self, phase: str, patches: Sequence[Patch], outcomes: Sequence[Outcome]) -> None:
        """Perform outcomes; the changed names are durable once their folders are synced."""
        self._patch_staged(patches)
        self._sync_sources(outcomes)
        for outcome in outcomes:
            if isinstance(outcome, Patches):
                self._check_patches(outcome)
        for outcome in outcomes:
            self._perform_one(phase, outcome)

    def _perform_one(self, phase: str, outcome: Outcome) -> None:
        self._touched = True
        if isinstance(outcome, Put):
            self._rename(self._staged[phase, outcome.key], outcome.key, phase)
            del self._staged[phase, outcome.key]
            self._synced.add(outcome.key)
        elif isinstance(outcome, Move):
            self._rename(outcome.source, outcome.key, phase)
        elif isinstance(outcome, Delete):
            self._unlink(outcome.key)
        else:
            self._write_into(outcome)

    def _patch_staged(self, patches: Sequence[Patch]) -> None:
        outcomes = [Patches(key, tuple(group)) for key, group in groupby(patches, _key_of)]
        for outcome in outcomes:
            self._check_patches(outcome)
            self._write_into(outcome)

    def _write_into(self, outcome: Patches) -> None:
        self._touched = True
        opened = self._directory.open_old(outcome.key)
        if opened is None:
            raise NotFoundError(f"{self._where}: no key {outcome.key!r} to patch")
        file, _ = opened
        try:
            for patch in outcome.patches:
                self._directory.write(file, patch.start, patch.data)
            if self._sync:
                self._sync_file(file)
        finally:
            self._directory.close_file(file)

    def _check_patches(self, outcome: Patches) -> int:
        """Return the size of the key, or raise an error for a patch that does not fit."""
        size = self._directory.size(outcome.key)
        if size is None:
            raise NotFoundError(f"{self._where}: no key {outcome.key!r} to patch")
        reach = size
        for patch in outcome.patches:
            check_reach(patch, reach, self._where)
            reach = max(reach, patch.start + memoryview(patch.data).nbytes)
        return size

    def _sync_sources(self, outcomes: Iterable[Outcome]) -> None:
        """Check values that were staged before this commit, and note their folders to be synced."""
        moves = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        for move in moves:
            if move.source not in self._synced and self._directory.size(move.source) is None:
                raise NotFoundError(f"{self._where}: no key {move.source!r} to become {move.key!r}")
        if not self._sync or self._all_synced:
            return
        for move in moves:
            # Any folder of the path may have been created when the value was staged.
            folder = move.key.rpartition("/")[0]
            above = [folder] if folder in self._known else _folders(move.key)
            self._changed.update(dict.fromkeys(above))
            self._known.update(above)

    def _opened(self, key: str) -> int:
        opened = self._directory.open_old(key)
        if opened is None:
            raise NotFoundError(f"{self._where}: no staged key {key!r}")
        return opened[0]

    # What readers see

    def _publish(self, late: Sequence[Patch], outcomes: Sequence[Outcome]) -> None:
        outcomes = [outcome for outcome in outcomes if not self._is_done(outcome)]
        if not outcomes:
            self._sync_folders()
            return
        self._patch_staged(late)
        self._sync_sources(outcomes)
        if len(outcomes) == 1 and not isinstance(outcomes[0], Patches):
            self._switch(outcomes)
            return
        leaving: set[str] = set()
        for outcome in outcomes:
            check_clear(self._directory, outcome.key, leaving)
            if isinstance(outcome, Delete):
                leaving.add(outcome.key)
        put = None if self._journal else self._record(outcomes)
        # The entries of a journal name staged files, whose names must be durable.
        self._sync_folders()
        if put is not None:
            self._stage({"journal": (put,)})
        self._decide()
        assert self._journal is not None
        self._apply_journal(self._journal, sync=self._sync)

    def _early_journal(self, outcomes: Sequence[Outcome]) -> Callable[[], Put] | None:
        """Return what packs the journal once all is staged; None if it depends on `prepare`."""
        for outcome in outcomes:
            if not isinstance(outcome, Put | Move):
                return None
            if isinstance(outcome, Move) and (
                None in (outcome.size, outcome.checksum) or outcome.source in self._prepared
            ):
                return None
        return None if len(outcomes) < 2 else partial(self._record, outcomes)

    def _record(self, outcomes: Iterable[Outcome]) -> Put:
        """Keep the journal of outcomes as the one to decide, and return the edit that writes it."""
        self._journal = Journal(self._name, tuple(self._entries(outcomes)))
        return Put(self._scope.journal, journal_bytes.pack(self._journal))

    def _switch(self, outcomes: Sequence[Outcome]) -> None:
        """Publish by one rename or one removal, once all that was prepared is durable."""
        if self._touched:
            self._sync_folders()
        with switching(self._lock):
            for outcome in outcomes:
                self._perform_one("publish", outcome)
            self.decided = True
            self._sync_folders()

    def _is_done(self, outcome: Outcome) -> bool:
        return isinstance(outcome, Delete) and self._directory.size(outcome.key) is None

    def _entries(self, outcomes: Iterable[Outcome]) -> Iterable[Placed | Written | Removed]:
        for outcome in outcomes:
            if isinstance(outcome, Put):
                size = memoryview(outcome.data).nbytes
                staged = self._staged["publish", outcome.key]
                yield Placed(outcome.key, staged, size, checksum(outcome.data))
                if not self._all_synced:
                    self._changed[outcome.key.rpartition("/")[0]] = None
            elif isinstance(outcome, Move):
                known = outcome.size, outcome.checksum
                fact = summed(self._directory, outcome.source) if None in known else known
                yield Placed(outcome.key, outcome.source, *fact)  # type: ignore[arg-type]
                if not self._all_synced:
                    self._changed[outcome.key.rpartition("/")[0]] = None
            elif isinstance(outcome, Delete):
                yield Removed(outcome.key)
            else:
                size = self._check_patches(outcome)
                for patch in outcome.patches:
                    yield Written(patch.key, patch.start, bytes(patch.data), size)

    def _decide(self) -> None:
        """Give the journal its name, once all that it names is durable."""
        name = self._scope.journal
        self._lock.begin_apply()
        # The entries name these files. Once the journal may have its name, as after a signal during
        # the rename, they must not be removed any more.
        staged, self._staged = self._staged, {}
        try:
            self._rename(staged["journal", name], name, "journal")
        except OSError:
            self._staged = staged
            raise
        self.decided = True
        self._sync_folders()
        self._lock.bump()

    def _apply_journal(self, journal: Journal, *, sync: bool, again: bool = False) -> None:
        """Apply a journal, perhaps `again` after a crash, and remove it when that is durable."""
        self._sync, before = sync, self._sync
        folder = None
        for key, group in groupby(journal.entries, _key_of):
            entries = tuple(group)
            entry = entries[0]
            # Programs that know no journal rely on the order of entries, after a power cut as well.
            if folder not in (None, key.rpartition("/")[0]):
                self._sync_folders()
            folder = key.rpartition("/")[0]
            if isinstance(entry, Removed):
                self._unlink(key)
            elif isinstance(entry, Written):
                self._write_into(_patches(key, entries))
            elif not again or self._directory.size(entry.staged) is not None:
                self._rename(entry.staged, key, "apply")
        self._sync_folders()
        self._unlink(self._scope.journal)
        self._sync_folders()
        self._lock.bump()
        self._sync = before

    # What dead processes left

    def _sweep(self, folder: str, kept: Set[str]) -> None:
        for name in self._directory.names(folder, follow=False):
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                if self._scope.only is None:
                    self._sweep(path[:-1], kept)
            elif self._scope.owns_staged(name) and path not in kept:
                self._directory.unlink(path)

    # Names and syncs

    def _rename(self, source: str, key: str, phase: str) -> None:
        self._touched = True
        self._forget_folder(key)
        if phase in ("prepare", "publish") and not self._sync:
            # No journal names the staged file, so its name may be that of the old file for a while.
            self._directory.replace(source, key)
        elif phase == "apply" and not self._sync:
            self._directory.place(source, key)
        else:
            self._directory.rename(source, key)
        self._changed[key.rpartition("/")[0]] = None

    def _unlink(self, key: str) -> None:
        self._touched = True
        self._forget_folder(key)
        if self._directory.unlink(key):
            self._changed[key.rpartition("/")[0]] = None

    def _forget_folder(self, key: str) -> None:
        if key in self._known:  # An empty folder is removed for a file of its name.
            self._known.clear()

    def _sync_folders(self) -> None:
        for folder in list(self._changed) if self._sync else ():
            self._guarded(partial(self._directory.sync_folder, folder))
        self._changed.clear()

    def _sync_files(self, files: Sequence[int]) -> None:
        if self._sync:
            # Once all are being written back, waiting for the first mostly covers the others.
            for file in files if len(files) > 1 else ():
                self._directory.start(file)
            for file in files:
                self._sync_file(file)

    def _sync_file(self, file: int) -> None:
        self._guarded(partial(self._directory.sync, file))

    def _sync_all(self) -> None:
        self._guarded(self._directory.sync_all)

    def _guarded(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError:
            self.sync_failed = True
            raise


def _folders(key: str) -> list[str]:
    parts = key.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def _key_of(part: Patch | Placed | Written | Removed) -> str:
    return part.key


def _patches(key: str, entries: Iterable[Placed | Written | Removed]) -> Patches:
    written = (entry for entry in entries if isinstance(entry, Written))
    return Patches(key, tuple(Patch(key, entry.start, entry.data) for entry in written))


_SMALL: Final = 1 << 20


def check_clear(directory: OpenDirectory, key: str, leaving: Collection[str] = ()) -> None:
    """Raise `UnsafeError` when `key` is a folder that holds files that are not `leaving`."""
    try:
        directory.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in directory.names(folder, follow=False) and _holds_files(
            directory, key, leaving
        ):
            raise


def check_room(commit: Commit, directory: OpenDirectory, where: str) -> None:
    """Raise an error for a commit that needs more bytes than are free, before it is written."""
    need = bytes_to_write(commit.edits)
    free = None if need < _SMALL else directory.free_bytes()
    if free is not None and need > free:
        raise OSError(errno.ENOSPC, f"{need} bytes to write, {free} are free", where)


def _holds_files(directory: OpenDirectory, folder: str, leaving: Collection[str]) -> bool:
    keys = (f"{folder}/{name}" for name in directory.names(folder, follow=False))
    return any(
        _holds_files(directory, key[:-1], leaving) if key.endswith("/") else key not in leaving
        for key in keys
    )

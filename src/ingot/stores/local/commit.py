"""Applying a commit to files: a crash anywhere leaves the old state or the new one.

This module is the order of writes, syncs and renames. It compiles them to a list of steps, which is
run as a whole unless a fact is needed in between; `steps` and `files` say how each step is done:

1. The journal of a dead writer is replayed, or what it staged is removed.
2. Every new value is written under a staged name in the folder of its key, and the journal too if
   it is known already; then all of them are synced. The journal carries small values as well, so
   their staged names need not be durable.
3. `prepare`: bytes behind the ends of keys are synced; renames, patches and removals, then their
   folders are synced.
4. `publish`. One rename or one removal alone is done at once, and so is a patch of one word of a
   file, which the system writes whole or not at all. Otherwise the journal gets its name: from then
   on the commit is decided, and the next writer can finish it.
5. The journal is applied, what it changed is synced, then it is removed.
6. `cleanup`.

A commit that only patches what is stored may go into the log instead of a journal (`log`), where
its writer makes many of them: step 4 is one record behind the others and one sync, and in step 5
the files are written without a sync. Before any other commit, the log is closed: what its records
change is synced, and it is removed.

The version number changes (`WriterLock.bump`) after the commit is decided and before anything is
touched that a reader of the old state needs: all reads between two bumps fit together.
"""

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from itertools import chain, groupby
from typing import Any, Final, cast

from ingot import signals
from ingot.errors import CorruptionError, NotFoundError, UnsafeError
from ingot.stores.local import journal as journal_bytes
from ingot.stores.local import log as log_bytes
from ingot.stores.local.files import OpenDirectory, write_piece
from ingot.stores.local.journal import (
    Carried,
    Entry,
    Journal,
    Placed,
    Removed,
    Truncated,
    Written,
    checksum,
    read_journal,
    summed,
    verify,
)
from ingot.stores.local.lock import LockState, WriterLock
from ingot.stores.local.log import OpenLog
from ingot.stores.local.log import begin as begin_log
from ingot.stores.local.scope import Scope
from ingot.stores.local.steps import SYNCS, Op, Progress, Step
from ingot.stores.patched import PatchedValue
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Extent,
    Grown,
    Move,
    Outcome,
    Patch,
    Patches,
    Phase,
    Piece,
    Put,
    Truncate,
    bytes_to_write,
    check_range,
    compose,
    is_file_piece,
    is_staged,
    staged_key,
)

__all__ = ["WORD", "CommitRun", "check_room"]

_MOST_OPEN: Final = 128
# Syncing more files one by one takes longer than syncing the whole file system.
_MOST_SYNCED_SINGLY: Final = 16
# A journal carries values of so many bytes, and so many bytes of values.
_LARGEST_CARRIED: Final = 4096
_MOST_CARRIED: Final = 1 << 20

# The checksum of no bytes.
_NO_BYTES: int | None = 0

# A record of a log has so many bytes of patches; larger commits take a journal.
_MOST_LOGGED: Final = 1 << 14

WORD: Final = 8
"""So many bytes, at a multiple of their number, are stored whole or not at all."""


class CommitRun:
    """The steps of one commit, below one open directory, by the writer that holds the lock.

    `known` are the folders whose names are durable once this commit, and those before it, succeed.
    """

    __slots__ = (
        "_all_synced",
        "_count",
        "_deciding",
        "_directory",
        "_extended",
        "_journal",
        "_known",
        "_littered",
        "_lock",
        "_logging",
        "_made_name",
        "_make_name",
        "_names",
        "_notes",
        "_own",
        "_prepared",
        "_prepares",
        "_progress",
        "_scope",
        "_sizes",
        "_staged",
        "_steps",
        "_switching",
        "_sync",
        "_synced",
        "_touched",
        "_touching",
        "_where",
        "decided",
        "log",
        "logged",
        "sync_failed",
    )

    def __init__(
        self,
        directory: OpenDirectory,
        scope: Scope,
        lock: WriterLock,
        name: Callable[[], str],
        where: str,
        *,
        sync: bool,
        known: set[str] | None = None,
        log: OpenLog | None = None,
        logging: bool = False,
    ) -> None:
        self._directory = directory
        self._scope = scope
        self._lock = lock
        # The name of the transaction is made when a file is staged under it.
        self._make_name = name
        self._made_name: str | None = None
        self._where = where
        self._sync = sync
        # By phase and key: a key may get another value in each phase.
        self._names: dict[tuple[str, str], str] = {}
        self._count = 0
        # The beginnings of the names of files that this turn has staged before the commit.
        self._own: tuple[str, ...] = ()
        # The staged files that exist, in order.
        self._staged: dict[str, None] = {}
        # Staged names whose values are synced, and the keys that `prepare` puts.
        self._synced: set[str] = set()
        self._prepared: set[str] = set()
        # By key: where the committed state ends, and where what this turn wrote behind it ends.
        self._extended: dict[str, tuple[int, int]] = {}
        # The sizes of keys, until the next steps are run.
        self._sizes: dict[str, int | None] = {}
        self._journal: Journal | None = None
        # Whether everything that was staged is synced, names included.
        self._all_synced = False
        self._known = set() if known is None else known
        # Steps that are not run yet, and what is known once as many of them as its number are done.
        self._steps: list[Step] = []
        self._notes: list[tuple[int, Callable[[], None]]] = []
        self._progress = Progress(where)
        self._deciding: dict[str, None] = {}
        self._touched = self._touching = False
        self._prepares = self._littered = self._switching = False
        # Whether a log is begun for a commit that can go into one.
        self._logging = logging
        self.log = log
        """The log that is open, as far as it is known; None without one."""
        self.logged = False
        """Whether the commit can go into a log."""
        self.decided = False
        """Whether the new state will be read, whatever happens from now on."""
        self.sync_failed = False
        """Whether a sync failed: what is durable is unknown, and another sync proves nothing."""

    @property
    def sequence(self) -> int | None:
        """The version number of the committed state; None without a lock."""
        return self._lock.sequence

    def add_staging(self, transaction: str) -> None:
        """Note that this turn stages files under the name of a transaction."""
        self._own += (f".g-{transaction}-",)

    def recover(self, *, thorough: bool = False, journal: bool = True) -> None:
        """Replay the journal of a dead writer, if there is one, and see whether a sweep is due.

        If `thorough`, a sweep of all folders is always due. `journal` says whether there may be a
        journal.
        """
        found = self._lock.found
        left = read_journal(self._directory, self._scope, self._where) if journal else None
        if left is None and found is LockState.LOGGED and not thorough:
            self._find_log()
            return
        self.log = None
        if left is None and found in (LockState.CLEAN, LockState.LOOSE, LockState.NEW):
            if found is LockState.LOOSE and self._sync:
                self._sync_all()
                self._run()
            # A process that died while it created a single file left no lock file.
            self._littered = thorough or (found is LockState.NEW and self._scope.only is not None)
            return
        log = self._read_log()
        if log is not None and left is not None:
            raise CorruptionError(
                f"{self._where}: {self._scope.journal!r} and {self._scope.log!r} exist, of which "
                "only one can"
            )
        # A dead writer may have decided without a bump, and nothing of it needs to be durable.
        self._add(Op.BUMP)
        self._sync_all()
        self._run()
        if left is not None:
            verify(left, self._directory, f"{self._where}: {self._scope.journal!r}")
            self._add(Op.APPLY_LOCK)
            self._apply_journal(left, sync=True, again=True)
            self._run()
        if log is not None:
            self._apply_log(log)
        elif self._lock.log:
            self._lock.forget_log()  # Its writer died before it existed, or when it was removed.
        self._littered = True

    def sweep(self, kept: Set[str], own: int) -> None:
        """Remove staged files except `kept`, unless another process is still staging.

        `kept` are the staged files of the commit that follows, `own` is the number under which this
        writer has staged, see `WriterLock.begin_sweep`.
        """
        # They are this commit's own to remove from now on.
        self._staged.update(dict.fromkeys(kept))
        if self._lock.request_sweep() if self._littered else self._lock.begin_sweep(own):
            self._sweep("", kept)
            self._lock.end_sweep()

    def apply(self, commit: Commit) -> None:
        """Apply a commit; a failure before it is decided leaves the old state.

        What it moves was handed to `sweep`.
        """
        try:
            prepare, early = compose(commit.prepare)
            publish, late = compose(commit.publish)
            cleanup, last = compose(commit.cleanup)
            check_room(commit, self._directory, self._where)
            self._prepared = {outcome.key for outcome in prepare if isinstance(outcome, Put)}
            self.logged = not (late or early or cleanup or last) and self._can_log(prepare, publish)
            if self.logged and self._keeps_log():
                self._apply_logged(commit, prepare, publish)
                return
            self._close_log()
            word = None if late else self._word_of(publish)
            journal = None if late else self._early_journal(publish)
            self._stage({"prepare": prepare, "publish": publish}, journal)
            if commit.prepare:
                self._finish_extends([edit for edit in commit.prepare if isinstance(edit, Grown)])
            if prepare or early:
                self._perform("prepare", early, prepare)
            # From now on the bytes behind the ends of keys may be committed.
            self._extended.clear()
            if word is None:
                self._publish(late, publish)
            else:
                self._switch_word(word)
            if cleanup or last:
                self._stage({"cleanup": cleanup})
                self._perform("cleanup", last, cleanup)
                self._sync_folders()
            self._add(Op.MARK, start=LockState.CLEAN if self._sync else LockState.LOOSE)
            self._run()
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Remove what was staged; if nothing else was touched, the state is as it was found."""
        self._steps.clear()
        self._notes.clear()
        try:
            for staged in self._staged:
                self._directory.unlink(staged)
            for key, (start, _) in self._extended.items():
                self._truncate(key, start)
            found = self._lock.found
            settled = LockState.CLEAN, LockState.LOOSE, LockState.NEW, LockState.LOGGED
            if not self._touched and found in settled:
                self._lock.mark(LockState.LOOSE if found is LockState.NEW else found)
        except OSError:
            return  # The state stays busy, so the next writer recovers and sweeps.

    # Bytes behind the end of a key

    def extend(self, key: str, pieces: Iterable[Piece], end: int | None, known: int) -> Grown:
        """Write bytes behind the end of a key; of the key, `known` bytes are committed for sure."""
        opened = self._directory.open_old(key)
        if opened is None:
            raise NotFoundError(f"{self._where}: no key {key!r} to extend")
        file, size = opened
        try:
            begin = size if end is None else end
            first, start = self._extended.get(key, (begin, begin))
            if start > size or start < known:
                what = "leaves a hole behind" if start > size else "touches"
                raise CorruptionError(
                    f"{self._where}: an extend of {key!r} from {start} on {what} its {size} bytes"
                )
            self._extended[key] = first, start
            count, sum_of_all = 0, _NO_BYTES
            for piece in pieces:
                signals.check()
                if is_file_piece(piece):
                    count += write_piece(self._directory, file, start + count, piece)
                    sum_of_all = None
                else:
                    part = cast(Buffer, piece)
                    self._directory.write(file, start + count, part)
                    count += memoryview(part).nbytes
                    sum_of_all = None if sum_of_all is None else checksum(part, sum_of_all)
                self._extended[key] = first, start + count
        finally:
            self._directory.close_file(file)
        return Grown(key, start, count, sum_of_all)

    def _finish_extends(self, grown: Sequence[Grown]) -> None:
        """Make what was written behind the ends of keys durable, and cut off what is behind it."""
        if not grown:
            return
        ends: dict[str, int] = {}
        for edit in grown:
            start, end = self._extended.get(edit.key, (0, 0))
            if ends.get(edit.key, start) != edit.start or edit.start + edit.size > end:
                raise CorruptionError(f"{self._where}: no extend of this turn has written {edit}")
            ends[edit.key] = edit.start + edit.size
        self._run()
        for key, end in ends.items():
            behind = self._directory.size(key) != end
            self._write_into(key, (), end if behind else None)

    def _truncate(self, key: str, size: int) -> None:
        opened = self._directory.open_old(key)
        if opened is not None:
            try:
                if opened[1] > size:
                    self._directory.truncate(opened[0], size)
            finally:
                self._directory.close_file(opened[0])

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
        sources = self._unsynced(chain.from_iterable(phases.values())) if self._sync else []
        if not puts and not sources and journal is None:
            self._all_synced = False
            return
        many = len(sources) > _MOST_SYNCED_SINGLY
        for first in range(0, max(len(puts), 1), _MOST_OPEN):
            before = len(self._steps)
            for phase, put in puts[first : first + _MOST_OPEN]:
                self._write_new(phase, put)
            if first + _MOST_OPEN >= len(puts):
                for source in () if many else sources:
                    self._add(Op.OPEN, source)
                if journal is not None:
                    self._write_new("journal", journal())
            if len(self._steps) > before:
                if self._sync and not many:
                    self._add(Op.SYNC_FILES)
                self._add(Op.CLOSE_FILES)
        if many:
            self._sync_all()
            self._add(Op.FORGET_CHANGED)
        self._all_synced = many
        self._synced.update(sources)

    def _place_again(self, entry: Carried) -> None:
        """Give a key the value that a journal carries, unless it has it.

        What is stored is synced by now, but what was staged may have been lost before.
        """
        self._run()
        if self._holds(entry.key, entry.data):
            return
        staged = self._holds(entry.staged, entry.data)
        if not staged:
            self._unlink(entry.staged)
            self._add(Op.CREATE, entry.staged, data=entry.data)
            self._add(Op.SYNC_FILES)
            self._add(Op.CLOSE_FILES)
        self._rename(entry.staged, entry.key, "publish")
        if not staged:
            self._sync_folders()

    def _holds(self, key: str, data: bytes) -> bool:
        try:
            return self._directory.read(key, [Extent(key, 0, len(data) + 1)]) == [data]
        except UnsafeError:
            return False  # A folder: the rename removes it if there are no files in it.

    def _unsynced(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Return the staged names of values that were staged before this commit and not synced."""
        moves = (outcome for outcome in outcomes if isinstance(outcome, Move))
        return [
            move.source
            for move in moves
            if move.source not in self._prepared and move.source not in self._synced
        ]

    def _name(self) -> str:
        if self._made_name is None:
            self._made_name = self._make_name()
        return self._made_name

    def _write_new(self, phase: str, put: Put) -> None:
        staged = staged_key(put.key, f"{self._name()}.{self._count}")
        self._count += 1
        self._names[phase, put.key] = staged
        self._add(Op.CREATE, staged, data=put.data)
        self._note(partial(self._staged.__setitem__, staged, None))

    # What no reader sees

    def _perform(
        self, phase: Phase, early: Sequence[Patch | Truncate], outcomes: Sequence[Outcome]
    ) -> None:
        """Perform outcomes; the changed names are durable once their folders are synced."""
        self._patch_staged(early)
        self._sync_sources(outcomes)
        checked = {
            outcome.key: self._check_patches(outcome, phase)
            for outcome in outcomes
            if isinstance(outcome, Patches)
        }
        for outcome in outcomes:
            if isinstance(outcome, Patches):
                self._write_patches(outcome.key, *checked[outcome.key])
            else:
                self._perform_one(phase, outcome)

    def _perform_one(self, phase: Phase, outcome: Put | Move | Delete) -> None:
        if isinstance(outcome, Put):
            staged = self._names[phase, outcome.key]
            self._rename(staged, outcome.key, phase)
            self._note(partial(self._staged.__delitem__, staged))
            self._synced.add(outcome.key)
        elif isinstance(outcome, Move):
            self._rename(outcome.source, outcome.key, phase)
        else:
            self._unlink(outcome.key)

    def _patch_staged(self, edits: Sequence[Patch | Truncate]) -> None:
        outcomes = [Patches(key, tuple(group)) for key, group in groupby(edits, _key_of)]
        for outcome in outcomes:
            self._write_patches(outcome.key, *self._check_patches(outcome, "prepare"))

    def _write_into(self, key: str, ranges: Iterable[tuple[int, bytes]], cut: int | None) -> None:
        """Write ranges into the file of a key; `cut` is its new size, where that is smaller."""
        self._touch()
        self._add(Op.OPEN, key)
        for start, data in ranges:
            self._add(Op.WRITE, start=start, data=data)
        if cut is not None:
            self._add(Op.TRUNCATE, start=cut)
        if self._sync:
            self._add(Op.SYNC_FILES)
        self._add(Op.CLOSE_FILES)

    def _write_patches(self, key: str, size: int, value: PatchedValue) -> None:
        self._write_into(key, value.ranges, value.size if value.size < size else None)

    def _check_patches(self, outcome: Patches, phase: Phase) -> tuple[int, PatchedValue]:
        """Return the size and the new value of a key; an error for an edit that does not fit."""
        self._run()
        key = outcome.key
        if key not in self._sizes:
            self._sizes[key] = self._directory.size(key)
        size = self._sizes[key]
        committed = self._extended.get(key, (size or 0, 0))[0]
        if is_staged(key.rpartition("/")[2]):
            committed = 0
        value = PatchedValue(key, size or 0)
        for edit in outcome.edits:
            reach = None if size is None else value.size
            check_range(edit, reach, committed, phase, self._where)
            value = value.changed((edit,))
        return size or 0, value

    def _sync_sources(self, outcomes: Iterable[Outcome]) -> None:
        """Check values that were staged before this commit, and note their folders to be synced."""
        moves = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        own = self._own
        for move in moves:
            source = move.source
            # What this turn has staged itself no other process removes.
            if source not in self._synced and not source.rpartition("/")[2].startswith(own):
                self._add(Op.REQUIRE, move.key, source)
        if not self._sync or self._all_synced:
            return
        for move in moves:
            # Any folder of the path may have been created when the value was staged.
            folder = move.key.rpartition("/")[0]
            above = [folder] if folder in self._known else _folders(move.key)
            for each in above:
                self._add(Op.CHANGED, each)
            self._known.update(above)

    # What readers see

    def _publish(self, late: Sequence[Patch | Truncate], outcomes: Sequence[Outcome]) -> None:
        outcomes = [outcome for outcome in outcomes if not self._is_done(outcome)]
        if not outcomes:
            self._sync_folders()
            return
        if late:
            self._patch_staged(late)
        self._sync_sources(outcomes)
        if len(outcomes) == 1 and not isinstance(outcomes[0], Patches):
            self._switch(outcomes[0])
            return
        leaving: tuple[str, ...] = ()
        for outcome in outcomes:
            self._add(Op.REQUIRE_CLEAR, outcome.key, data=leaving)
            if isinstance(outcome, Delete):
                leaving = (*leaving, outcome.key)
        put = None if self._journal else self._record(outcomes)
        if self._prepares or self._names_staged():
            self._sync_folders()
        if put is not None:
            self._stage({"journal": (put,)})
        self._decide()
        assert self._journal is not None
        self._apply_journal(self._journal, sync=self._sync)

    def _early_journal(self, outcomes: Sequence[Outcome]) -> Callable[[], Put] | None:
        """Return what packs the journal once all is staged; None if it depends on `prepare`."""
        if len(outcomes) < 2:
            return None
        for outcome in outcomes:
            if not isinstance(outcome, Put | Move):
                return None
            if isinstance(outcome, Move) and (
                None in (outcome.size, outcome.checksum) or outcome.source in self._prepared
            ):
                return None
        return partial(self._record, outcomes)

    def _record(self, outcomes: Iterable[Outcome]) -> Put:
        """Keep the journal of outcomes as the one to decide, and return the edit that writes it."""
        self._journal = Journal(self._name(), tuple(self._entries(outcomes)))
        return Put(self._scope.journal, journal_bytes.pack(self._journal))

    def _names_staged(self) -> bool:
        """Return whether the journal is about staged names, which must be durable then."""
        assert self._journal is not None
        return any(isinstance(entry, Placed) for entry in self._journal.entries)

    def _switch(self, outcome: Put | Move | Delete) -> None:
        """Publish by one rename or one removal, once all that was prepared is durable."""
        if self._prepares:
            self._sync_folders()
        self._begin_switch()
        self._perform_one("publish", outcome)
        self._note(partial(setattr, self, "decided", True))
        self._sync_folders()
        self._end_switch()

    def _begin_switch(self) -> None:
        self._add(Op.APPLY_LOCK)
        self._add(Op.SWITCH)
        self._note(partial(setattr, self, "_switching", True))

    def _end_switch(self) -> None:
        self._add(Op.BUMP)
        self._note(partial(setattr, self, "_switching", False))

    def _word_of(self, outcomes: Sequence[Outcome]) -> Patch | None:
        """Return the patch of one word that is all of a commit; None where there is more to it.

        A word is eight bytes at a multiple of eight. It lies in one page and in one sector, so
        neither the end of a process nor a power cut leaves a part of it.
        """
        if len(outcomes) != 1 or not isinstance(outcomes[0], Patches):
            return None
        edit = outcomes[0].edits[0]
        if len(outcomes[0].edits) > 1 or not isinstance(edit, Patch):
            return None
        size = memoryview(edit.data).nbytes
        if not size or edit.start // WORD != (edit.start + size - 1) // WORD:
            return None
        stored, value = self._check_patches(outcomes[0], "publish")
        return edit if value.size == stored else None

    def _switch_word(self, word: Patch) -> None:
        """Publish by writing one word, once all that was prepared is durable."""
        if self._prepares:
            self._sync_folders()
        self._add(Op.OPEN, word.key)
        self._begin_switch()
        self._touch()
        self._add(Op.WRITE, start=word.start, data=word.data)
        self._note(partial(setattr, self, "decided", True))
        if self._sync:
            self._add(Op.SYNC_FILES)
        self._add(Op.CLOSE_FILES)
        self._end_switch()

    def _is_done(self, outcome: Outcome) -> bool:
        if not isinstance(outcome, Delete):
            return False
        self._run()
        return self._directory.size(outcome.key) is None

    def _entries(self, outcomes: Iterable[Outcome]) -> Iterable[Entry]:
        carried = 0
        for outcome in outcomes:
            if isinstance(outcome, Put):
                size = memoryview(outcome.data).nbytes
                staged = self._names["publish", outcome.key]
                if size <= _LARGEST_CARRIED and carried + size <= _MOST_CARRIED:
                    carried += size
                    yield Carried(outcome.key, staged, bytes(outcome.data))
                    continue
                yield Placed(outcome.key, staged, size, checksum(outcome.data))
                if not self._all_synced:
                    self._add(Op.CHANGED, outcome.key.rpartition("/")[0])
            elif isinstance(outcome, Move):
                known = outcome.size, outcome.checksum
                fact = self._summed(outcome.source) if None in known else known
                yield Placed(outcome.key, outcome.source, *fact)  # type: ignore[arg-type]
                if not self._all_synced:
                    self._add(Op.CHANGED, outcome.key.rpartition("/")[0])
            elif isinstance(outcome, Delete):
                yield Removed(outcome.key)
            else:
                size, value = self._check_patches(outcome, "publish")
                for start, data in value.ranges:
                    yield Written(outcome.key, start, data, size)
                if value.size < size:
                    yield Truncated(outcome.key, value.size, size)

    def _summed(self, source: str) -> tuple[int, int]:
        self._run()
        return summed(self._directory, source)

    def _decide(self) -> None:
        """Give the journal its name, once all that it names is durable."""
        name = self._scope.journal
        self._add(Op.APPLY_LOCK)
        self._note(self._begin_deciding)
        self._rename(self._names["journal", name], name, "journal")
        self._note(self._end_deciding)
        self._sync_folders()
        self._add(Op.BUMP)

    def _begin_deciding(self) -> None:
        # The entries name these files. Once the journal may have its name they must not be removed
        # any more.
        self._deciding = dict(self._staged)
        self._staged.clear()

    def _end_deciding(self) -> None:
        self._deciding = {}
        self.decided = True

    def _apply_journal(self, journal: Journal, *, sync: bool, again: bool = False) -> None:
        """Apply a journal, perhaps `again` after a crash, and remove it when that is durable."""
        self._sync, before = sync, self._sync
        folder = None
        for key, group in groupby(journal.entries, _key_of):
            entries = tuple(group)
            entry = entries[0]
            # Programs that know no journal rely on the order of entries, after a power cut as well.
            if sync and folder not in (None, key.rpartition("/")[0]):
                self._sync_folders()
            folder = key.rpartition("/")[0]
            if isinstance(entry, Removed):
                self._unlink(key)
            elif isinstance(entry, Written | Truncated):
                written = ((e.start, e.data) for e in entries if isinstance(e, Written))
                cuts = (e.size for e in entries if isinstance(e, Truncated))
                self._write_into(key, written, next(cuts, None))
            elif isinstance(entry, Carried):
                if again:
                    self._place_again(entry)
                else:
                    self._rename(entry.staged, key, "publish")
            elif not again or self._is_staged(entry.staged):
                self._rename(entry.staged, key, "apply")
        self._sync_folders()
        self._unlink(self._scope.journal)
        self._sync_folders()
        self._add(Op.BUMP)
        self._sync = before

    def _is_staged(self, staged: str) -> bool:
        self._run()
        return self._directory.size(staged) is not None

    # The log

    def _can_log(self, prepare: Sequence[Outcome], publish: Sequence[Outcome]) -> bool:
        """Return whether a commit only patches what is stored, by more than one word."""
        lock = self._lock
        if not self._sync or self._scope.log is None or lock.found is LockState.NEW:
            return False
        if lock.sequence is None or not publish:
            return False
        if not all(isinstance(outcome, Patches) for outcome in prepare):
            return False
        held = 0
        for outcome in publish:
            if not isinstance(outcome, Patches):
                return False
            for edit in outcome.edits:
                if not isinstance(edit, Patch):
                    return False
                held += memoryview(edit.data).nbytes
        if held > _MOST_LOGGED or self._word_of(publish) is not None:
            return False
        entries = tuple(self._entries(publish))
        return all(isinstance(entry, Written) for entry in entries) and self._fits_log(entries)

    def _fits_log(self, entries: tuple[Entry, ...]) -> bool:
        """Return whether a new log has room for a record; its keys may be longer than its data."""
        record = journal_bytes.pack(Journal(self._name(), entries))
        return log_bytes.sectors_of(len(record)) < log_bytes.LOG_SECTORS

    def _keeps_log(self) -> bool:
        """Return whether a log is open, or is to be begun."""
        if self.log is not None:
            return True
        # A file of its name that is no log is another program's.
        return self._logging and self._scope.log not in self._directory.names("", follow=False)

    def _apply_logged(
        self, commit: Commit, prepare: Sequence[Outcome], publish: Sequence[Outcome]
    ) -> None:
        """Apply a commit that `_can_log`."""
        if commit.prepare:
            self._finish_extends([edit for edit in commit.prepare if isinstance(edit, Grown)])
        if prepare:
            self._perform("prepare", (), prepare)
        self._extended.clear()
        entries = tuple(self._entries(publish))
        log = self.log or self._open_log()
        data = self._record_of(log, entries)
        if log.tail * log_bytes.SECTOR + len(data) > log.size:
            self._close_log()
            log = self._open_log()
            data = self._record_of(log, entries)
        # The record decides the commit.
        self._touch()
        self._add(Op.OPEN, log.key)
        self._add(Op.WRITE, start=log.tail * log_bytes.SECTOR, data=data)
        self._add(Op.SYNC_FILES)
        self._note(partial(setattr, self, "decided", True))
        self._add(Op.CLOSE_FILES)
        # The files follow. Until all of them are written, readers look through the log.
        self._add(Op.APPLY_LOCK)
        self._add(Op.SWITCH)
        self._write_logged(entries, sync=False)
        self._add(Op.BUMP)
        self._add(Op.MARK, start=LockState.LOGGED)
        self._run()
        log.tail += len(data) // log_bytes.SECTOR
        log.keys.update(entry.key for entry in entries)
        log.sequence = self._lock.sequence

    def _record_of(self, log: OpenLog, entries: tuple[Entry, ...]) -> bytes:
        """Return the sectors of a record, as the next one of a log."""
        return log_bytes.frame(Journal(f"{log.name}0000", entries), log.tail)

    def _write_logged(self, entries: Iterable[Entry], *, sync: bool) -> None:
        for key, group in groupby(entries, _key_of):
            self._add(Op.OPEN, key)
            for entry in group:
                assert isinstance(entry, Written)
                self._add(Op.WRITE, start=entry.start, data=entry.data)
            if sync:
                self._add(Op.SYNC_FILES)
            self._add(Op.CLOSE_FILES)

    def _open_log(self) -> OpenLog:
        """Make a log, as the one that the lock file names."""
        key = cast(str, self._scope.log)
        name, sectors = self._name()[-12:], log_bytes.LOG_SECTORS
        staged = staged_key(key, self._name())
        self._add(Op.CREATE, staged, data=begin_log(name, sectors))
        self._note(partial(self._staged.__setitem__, staged, None))
        self._add(Op.SYNC_FILES)
        self._add(Op.CLOSE_FILES)
        self._run()
        self._lock.name_log(name)
        self._touch()
        self._add(Op.RENAME, key, staged)
        self._note(partial(self._staged.__delitem__, staged))
        self._add(Op.SYNC_FOLDERS)
        self._run()
        self.log = OpenLog(key, name, 1, sectors * log_bytes.SECTOR, set())
        return self.log

    def _find_log(self) -> None:
        """Find where the log ends that is open, and what its records change."""
        kept, known = self.log, (self._lock.log, self._lock.sequence)
        same = kept is not None and (kept.name, kept.sequence) == known
        if kept is not None and same and self._directory.size(kept.key) == kept.size:
            return
        log = self._read_log()
        self.log = None if log is None else log.opened(cast(str, self._scope.log))
        if log is None:
            # It was removed by another program. The files hold what it said.
            self._sync_all()
            self._run()
            self._lock.forget_log()

    def _read_log(self) -> log_bytes.Log | None:
        return log_bytes.read_log(self._directory, self._scope, self._lock.log, self._where)

    def _close_log(self) -> None:
        """Make durable what the records of the log have changed, and remove it."""
        log, self.log = self.log, None
        if log is None:
            return
        self._touch()
        for key in sorted(log.keys):
            self._add(Op.OPEN, key)
        self._add(Op.SYNC_FILES)
        self._add(Op.CLOSE_FILES)
        self._remove_log(log.key)

    def _apply_log(self, log: log_bytes.Log) -> None:
        """Apply the records of a log after a crash, and remove it when that is durable."""
        key = cast(str, self._scope.log)
        log_bytes.verify(log, self._directory, f"{self._where}: {key!r}")
        self._touch()
        self._add(Op.APPLY_LOCK)
        self._write_logged(sorted(log.whole.entries, key=_key_of), sync=True)
        self._remove_log(key)
        self._add(Op.BUMP)
        self._run()

    def _remove_log(self, key: str) -> None:
        self._add(Op.UNLINK, key)
        self._add(Op.CHANGED, "")
        self._add(Op.SYNC_FOLDERS)
        self._run()
        self._lock.forget_log()

    # What dead processes left

    def _sweep(self, folder: str, kept: Set[str]) -> None:
        for name in self._directory.names(folder, follow=False):
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                if self._scope.only is None:
                    self._sweep(path[:-1], kept)
            elif self._scope.owns_staged(name) and path not in kept:
                self._directory.unlink(path)

    # Steps

    def _add(
        self, operation: Op, key: str = "", source: str = "", *, start: int = 0, data: Any = b""
    ) -> None:
        self._steps.append((operation, key, source, start, data))

    def _note(self, fact: Callable[[], None]) -> None:
        """Call `fact` when the steps that were added so far are done, also if a later one fails."""
        self._notes.append((len(self._steps), fact))

    def _touch(self) -> None:
        """Note that the next step changes what this commit did not create."""
        self._prepares = True
        if not self._touching:
            self._touching = True
            self._note(partial(setattr, self, "_touched", True))

    def _run(self) -> None:
        """Run the steps that were added."""
        steps, self._steps = self._steps, []
        notes, self._notes = self._notes, []
        self._touching = False
        if not steps:
            return
        self._sizes.clear()
        progress = self._progress
        progress.done = 0
        try:
            self._directory.run(steps, self._lock, progress)
        except BaseException as error:
            _call(notes, progress.done)
            if isinstance(error, OSError):
                self._fail(steps[progress.done][0])
            raise
        for _, fact in notes:
            fact()

    def _fail(self, operation: Op) -> None:
        """Judge a system error by the operation that failed."""
        self.sync_failed |= operation in SYNCS
        self._staged.update(self._deciding)
        self._deciding = {}
        if self._switching:
            # The switch has happened or it has not: either way the state is settled now.
            self._switching = False
            self._lock.bump()

    def _rename(self, source: str, key: str, phase: str) -> None:
        self._touch()
        self._forget_folder(key)
        if phase in ("prepare", "publish") and not self._sync:
            # No reader of a journal needs the staged file, so its name may be that of the old file
            # for a while.
            operation = Op.REPLACE
        elif phase == "apply" and not self._sync:
            operation = Op.PLACE
        else:
            operation = Op.RENAME
        self._add(operation, key, source)

    def _unlink(self, key: str) -> None:
        self._touch()
        self._forget_folder(key)
        self._add(Op.UNLINK, key)

    def _forget_folder(self, key: str) -> None:
        if key in self._known:  # An empty folder is removed for a file of its name.
            self._known.clear()

    def _sync_all(self) -> None:
        self._add(Op.SYNC_ALL)

    def _sync_folders(self) -> None:
        self._add(Op.SYNC_FOLDERS if self._sync else Op.FORGET_CHANGED)


def _call(notes: Iterable[tuple[int, Callable[[], None]]], done: int) -> None:
    for number, fact in notes:
        if number <= done:
            fact()


def _folders(key: str) -> list[str]:
    parts = key.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


def _key_of(part: Patch | Truncate | Entry) -> str:
    return part.key


_SMALL: Final = 1 << 20


def check_room(commit: Commit, directory: OpenDirectory, where: str) -> None:
    """Raise an error for a commit that needs more bytes than are free, before it is written."""
    need = bytes_to_write(commit.edits)
    free = None if need < _SMALL else directory.free_bytes()
    if free is not None and need > free:
        raise OSError(errno.ENOSPC, f"{need} bytes to write, {free} are free", where)

"""One commit, carried out on files so that a crash anywhere leaves the old state or the new one.

Knows the order of writes, syncs and renames; refuses to know how each is done, which `files` does,
and what the bytes mean. The order:

1. What a writer before left undone is finished, or swept away.
2. Every new value is written under a staged name in the folder of its key, the journal with them
   if it is known already; then all are synced.
3. `prepare`: renames, patches and removals, then their folders are synced.
4. `publish`. When one rename or one removal is all, that is it. Otherwise a journal gets its name:
   from then on the commit is decided, and whoever comes next can finish it.
5. The journal is applied, what it changed is synced, then it is removed.
6. `cleanup`.

Readers are told (`Turn.bump`) after the commit is decided and before anything that an undecided
reader could still need is touched: between two bumps all that is read fits together.
"""

import errno
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from itertools import chain, groupby
from typing import Final

from ingot.errors import NotFoundError, UnsafeError
from ingot.stores.local import journal as journal_bytes
from ingot.stores.local.files import Inside
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
from ingot.stores.local.lock import State, Turn, switching
from ingot.stores.local.scope import Dataset
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

__all__ = ["Transaction", "check_clear", "check_room"]

_MOST_OPEN: Final = 128
# From so many files on, syncing the whole file system is faster than each of them.
_MANY: Final = 16


class Transaction:
    """The steps of one commit, below one open directory, by the writer whose turn it is.

    `known` are the folders whose names last when those before this commit, and it, succeeded.
    """

    __slots__ = (
        "_all_last",
        "_changed",
        "_count",
        "_dataset",
        "_inside",
        "_journal",
        "_known",
        "_lasting",
        "_littered",
        "_made",
        "_name",
        "_staged",
        "_sync",
        "_touched",
        "_turn",
        "_where",
        "decided",
        "sync_failed",
    )

    def __init__(
        self,
        inside: Inside,
        dataset: Dataset,
        turn: Turn,
        name: str,
        where: str,
        *,
        sync: bool,
        known: set[str] | None = None,
    ) -> None:
        self._inside = inside
        self._dataset = dataset
        self._turn = turn
        self._name = name
        self._where = where
        self._sync = sync
        # By phase and key: one key may get another value in each phase.
        self._staged: dict[tuple[str, str], str] = {}
        self._count = 0
        # Staged names whose values last, and those that this commit gives itself.
        self._lasting: set[str] = set()
        self._made: set[str] = set()
        self._journal: Journal | None = None
        # Whether all that was staged lasts, names included.
        self._all_last = False
        self._known = set() if known is None else known
        self._changed: dict[str, None] = {}
        self._touched = self._littered = False
        self.decided = False
        """Whether the commit will be there, whatever happens from now on."""
        self.sync_failed = False
        """Whether the system could not say that something lasts; asking again proves nothing."""

    def recover(self, *, thorough: bool = False) -> None:
        """Finish what a writer before decided; what it did not is to be swept away.

        Also if `thorough`, which only has all folders searched for what was put aside.
        """
        found = self._turn.found
        journal = read_journal(self._inside, self._dataset, self._where)
        if journal is None and found in (State.CLEAN, State.LOOSE, State.NEW):
            if found is State.LOOSE and self._sync:
                self._sync_all()
            self._littered = thorough
            return
        # A dead writer may have decided without telling, and none of it needs to last yet.
        self._turn.bump()
        self._sync_all()
        if journal is not None:
            verify(journal, self._inside, f"{self._where}: {self._dataset.journal!r}")
            self._turn.begin_apply()
            self._apply(journal, sync=True, again=True)
        self._littered = True

    def sweep(self, kept: Set[str], own: int) -> None:
        """Remove staged names but those to be `kept`, unless somebody is about to use his.

        `own` is what this writer is called who put values aside, see `Turn.find_litter`.
        """
        if self._turn.leave_litter() if self._littered else self._turn.find_litter(own):
            self._sweep("", kept)
            self._turn.swept()

    def carry_out(self, commit: Commit) -> None:
        """Carry out a commit; what fails before it is decided leaves the old state."""
        # Who hands over a commit hands over what was put aside for it.
        sources = (edit.source for edit in commit.edits if isinstance(edit, Move))
        self._staged.update({("aside", source): source for source in sources})
        try:
            prepare, early = compose(commit.prepare)
            publish, late = compose(commit.publish)
            cleanup, last = compose(commit.cleanup)
            check_room(commit, self._inside, self._where)
            self._made = {outcome.key for outcome in prepare if isinstance(outcome, Put)}
            journal = None if late else self._foreseen(publish)
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
        self._turn.mark(State.CLEAN if self._sync else State.LOOSE)

    def abandon(self) -> None:
        """Remove what was staged; if that is all there was, nothing is left behind."""
        try:
            for staged in self._staged.values():
                self._inside.unlink(staged)
            found = self._turn.found
            if not self._touched and found in (State.CLEAN, State.LOOSE, State.NEW):
                self._turn.mark(State.LOOSE if found is State.NEW else found)
        except OSError:
            return  # The next writer finds the state as it is, and sweeps.

    # New values

    def _stage(
        self,
        phases: Mapping[str, Sequence[Outcome]],
        journal: Callable[[], Put] | None = None,
    ) -> None:
        """Write all new values, and the journal; then make all last, and what was staged before."""
        puts = [
            (phase, outcome)
            for phase, outcomes in phases.items()
            for outcome in outcomes
            if isinstance(outcome, Put)
        ]
        sources = self._unsynced(chain.from_iterable(phases.values()))
        many = len(sources) > _MANY
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
                    self._inside.close_file(files.pop())
            finally:
                for file in files:
                    with suppress(OSError):
                        self._inside.close_file(file)
        if many:
            self._sync_all()
            self._changed.clear()
        self._all_last = many
        self._lasting.update(sources)

    def _unsynced(self, outcomes: Iterable[Outcome]) -> list[str]:
        """Return under which names values wait that others staged, if they have to last."""
        moves = (outcome for outcome in outcomes if self._sync and isinstance(outcome, Move))
        return [
            move.source
            for move in moves
            if move.source not in self._made and move.source not in self._lasting
        ]

    def _write_new(self, phase: str, put: Put) -> int:
        self._make_folder(put.key)
        staged = staged_key(put.key, f"{self._name}.{self._count}")
        self._count += 1
        file = self._inside.open_new(staged)
        self._staged[phase, put.key] = staged
        try:
            self._inside.write(file, 0, put.data)
        except BaseException:
            with suppress(OSError):
                self._inside.close_file(file)
            raise
        return file

    def _make_folder(self, key: str) -> None:
        folder = key.rpartition("/")[0]
        if folder:
            self._changed.update(dict.fromkeys(self._inside.make_folder(folder)))

    # What nobody reads

    def _perform(self, phase: str, patches: Sequence[Patch], outcomes: Sequence[Outcome]) -> None:
        """Bring about outcomes; the names that change last when their folders are synced."""
        self._patch_staged(patches)
        self._settle_sources(outcomes)
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
            self._lasting.add(outcome.key)
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
        opened = self._inside.open_old(outcome.key)
        if opened is None:
            raise NotFoundError(f"{self._where}: no key {outcome.key!r} to patch")
        file, _ = opened
        try:
            for patch in outcome.patches:
                self._inside.write(file, patch.start, patch.data)
            if self._sync:
                self._sync_file(file)
        finally:
            self._inside.close_file(file)

    def _check_patches(self, outcome: Patches) -> int:
        """Return how many bytes the key holds now, and complain about patches that do not fit."""
        size = self._inside.size(outcome.key)
        if size is None:
            raise NotFoundError(f"{self._where}: no key {outcome.key!r} to patch")
        reach = size
        for patch in outcome.patches:
            check_reach(patch, reach, self._where)
            reach = max(reach, patch.start + memoryview(patch.data).nbytes)
        return size

    def _settle_sources(self, outcomes: Iterable[Outcome]) -> None:
        """Make values last that were staged before this commit, and the folders they are in."""
        moves = [outcome for outcome in outcomes if isinstance(outcome, Move)]
        for move in moves:
            if move.source not in self._lasting and self._inside.size(move.source) is None:
                raise NotFoundError(f"{self._where}: no key {move.source!r} to become {move.key!r}")
        if not self._sync or self._all_last:
            return
        for move in moves:
            # Whoever staged it may have made any of the folders on the way to it.
            folder = move.key.rpartition("/")[0]
            above = [folder] if folder in self._known else _folders(move.key)
            self._changed.update(dict.fromkeys(above))
            self._known.update(above)

    def _opened(self, key: str) -> int:
        opened = self._inside.open_old(key)
        if opened is None:
            raise NotFoundError(f"{self._where}: no key {key!r} to take a place")
        return opened[0]

    # What readers see

    def _publish(self, late: Sequence[Patch], outcomes: Sequence[Outcome]) -> None:
        outcomes = [outcome for outcome in outcomes if not self._is_done(outcome)]
        if not outcomes:
            self._sync_folders()
            return
        self._patch_staged(late)
        self._settle_sources(outcomes)
        if len(outcomes) == 1 and not isinstance(outcomes[0], Patches):
            self._switch(outcomes)
            return
        leaving: set[str] = set()
        for outcome in outcomes:
            check_clear(self._inside, outcome.key, leaving)
            if isinstance(outcome, Delete):
                leaving.add(outcome.key)
        put = None if self._journal else self._recorded(outcomes)
        # Entries speak of names that must last.
        self._sync_folders()
        if put is not None:
            self._stage({"journal": (put,)})
        self._decide()
        assert self._journal is not None
        self._apply(self._journal, sync=self._sync)

    def _foreseen(self, outcomes: Sequence[Outcome]) -> Callable[[], Put] | None:
        """Return the journal, to be packed when all is staged, if it cannot depend on `prepare`."""
        for outcome in outcomes:
            if not isinstance(outcome, Put | Move):
                return None
            if isinstance(outcome, Move) and (
                None in (outcome.size, outcome.checksum) or outcome.source in self._made
            ):
                return None
        return None if len(outcomes) < 2 else partial(self._recorded, outcomes)

    def _recorded(self, outcomes: Iterable[Outcome]) -> Put:
        """Return the journal of outcomes, which waits to be decided from now on."""
        self._journal = Journal(self._name, tuple(self._entries(outcomes)))
        return Put(self._dataset.journal, journal_bytes.pack(self._journal))

    def _switch(self, outcomes: Sequence[Outcome]) -> None:
        """Publish by one rename or one removal, once all that was prepared lasts."""
        if self._touched:
            self._sync_folders()
        with switching(self._turn):
            for outcome in outcomes:
                self._perform_one("publish", outcome)
            self.decided = True
            self._sync_folders()

    def _is_done(self, outcome: Outcome) -> bool:
        return isinstance(outcome, Delete) and self._inside.size(outcome.key) is None

    def _entries(self, outcomes: Iterable[Outcome]) -> Iterable[Placed | Written | Removed]:
        for outcome in outcomes:
            if isinstance(outcome, Put):
                size = memoryview(outcome.data).nbytes
                staged = self._staged["publish", outcome.key]
                yield Placed(outcome.key, staged, size, checksum(outcome.data))
                if not self._all_last:
                    self._changed[outcome.key.rpartition("/")[0]] = None
            elif isinstance(outcome, Move):
                known = outcome.size, outcome.checksum
                fact = summed(self._inside, outcome.source) if None in known else known
                yield Placed(outcome.key, outcome.source, *fact)  # type: ignore[arg-type]
                if not self._all_last:
                    self._changed[outcome.key.rpartition("/")[0]] = None
            elif isinstance(outcome, Delete):
                yield Removed(outcome.key)
            else:
                size = self._check_patches(outcome)
                for patch in outcome.patches:
                    yield Written(patch.key, patch.start, bytes(patch.data), size)

    def _decide(self) -> None:
        """Give the journal its name, once all that it speaks of lasts."""
        name = self._dataset.journal
        self._turn.begin_apply()
        # Entries speak of these names. Even when nobody knows whether the journal has its own, as
        # after a signal in between, they are not ours to remove any more.
        staged, self._staged = self._staged, {}
        try:
            self._rename(staged["journal", name], name, "journal")
        except OSError:
            self._staged = staged
            raise
        self.decided = True
        self._sync_folders()
        self._turn.bump()

    def _apply(self, journal: Journal, *, sync: bool, again: bool = False) -> None:
        """Do what a journal says, perhaps `again` and again, and remove it when that lasts."""
        self._sync, before = sync, self._sync
        folder = None
        for key, group in groupby(journal.entries, _key_of):
            entries = tuple(group)
            entry = entries[0]
            # Readers who know no journal go by the order of entries, after a power cut as well.
            if folder not in (None, key.rpartition("/")[0]):
                self._sync_folders()
            folder = key.rpartition("/")[0]
            if isinstance(entry, Removed):
                self._unlink(key)
            elif isinstance(entry, Written):
                self._write_into(_patches(key, entries))
            elif not again or self._inside.size(entry.staged) is not None:
                self._rename(entry.staged, key, "apply")
        self._sync_folders()
        self._unlink(self._dataset.journal)
        self._sync_folders()
        self._turn.bump()
        self._sync = before

    # What others left

    def _sweep(self, folder: str, kept: Set[str]) -> None:
        for name in self._inside.names(folder, follow=False):
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                if self._dataset.only is None:
                    self._sweep(path[:-1], kept)
            elif self._dataset.stages(name) and path not in kept:
                self._inside.unlink(path)

    # Names and syncs

    def _rename(self, source: str, key: str, phase: str) -> None:
        self._touched = True
        self._forget_folder(key)
        if phase in ("prepare", "publish") and not self._sync:
            # Nobody knows the staged name, so it may be that of the old file for a while.
            self._inside.replace(source, key)
        elif phase == "apply" and not self._sync:
            self._inside.place(source, key)
        else:
            self._inside.rename(source, key)
        self._changed[key.rpartition("/")[0]] = None

    def _unlink(self, key: str) -> None:
        self._touched = True
        self._forget_folder(key)
        if self._inside.unlink(key):
            self._changed[key.rpartition("/")[0]] = None

    def _forget_folder(self, key: str) -> None:
        if key in self._known:  # An empty folder makes room for a file of its name.
            self._known.clear()

    def _sync_folders(self) -> None:
        for folder in list(self._changed) if self._sync else ():
            self._guarded(partial(self._inside.sync_folder, folder))
        self._changed.clear()

    def _sync_files(self, files: Sequence[int]) -> None:
        if self._sync:
            # When all are on their way, the first one that is waited for mostly brings the others.
            for file in files if len(files) > 1 else ():
                self._inside.start(file)
            for file in files:
                self._sync_file(file)

    def _sync_file(self, file: int) -> None:
        self._guarded(partial(self._inside.sync, file))

    def _sync_all(self) -> None:
        self._guarded(self._inside.sync_all)

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


def check_clear(inside: Inside, key: str, leaving: Collection[str] = ()) -> None:
    """Complain when a folder has the name of `key`, with files in it that are not `leaving`."""
    try:
        inside.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in inside.names(folder, follow=False) and _holds_files(inside, key, leaving):
            raise


def check_room(commit: Commit, inside: Inside, where: str) -> None:
    """Complain of a commit for which there is not enough room, before any of it is written."""
    need = bytes_to_write(commit.edits)
    free = None if need < _SMALL else inside.free_bytes()
    if free is not None and need > free:
        raise OSError(errno.ENOSPC, f"{need} bytes to write, {free} are free", where)


def _holds_files(inside: Inside, folder: str, leaving: Collection[str]) -> bool:
    keys = (f"{folder}/{name}" for name in inside.names(folder, follow=False))
    return any(
        _holds_files(inside, key[:-1], leaving) if key.endswith("/") else key not in leaving
        for key in keys
    )

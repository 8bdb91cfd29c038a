"""Turns to write to an object store: a lease, a commit that is decided by one PUT, its application.

All goes through the record (`ingot.stores.objects.record`), every change of which names the record
that it replaces: it is held, then it decides a commit, then it is idle again. A writer that waits
sees by the record whether the one that holds it lives. If it does not change for the time of a
lease, the next writer takes it over, and finishes a commit that is decided.
"""

import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Protocol, Self

from ingot import signals
from ingot.errors import (
    CorruptionError,
    LockedError,
    NotFoundError,
    RemoteError,
    UnsupportedError,
)
from ingot.stores.local.journal import Carried, Entry, Journal, Placed, Removed, checksum
from ingot.stores.local.scope import Scope
from ingot.stores.objects import record as records
from ingot.stores.objects.client import (
    ABSENT,
    Condition,
    ConflictError,
    ObjectClient,
    Requested,
    Tag,
)
from ingot.stores.objects.ranges import ObjectRange
from ingot.stores.objects.record import Record, State, StoredRecord
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Move,
    Outcome,
    Put,
    Store,
    check_commit,
    compose,
    is_staged,
    staged_key,
)

__all__ = ["LeasedStore", "ObjectTurn", "prove_conditions"]

# Values up to this size are carried by the journal, as long as it has room for them.
_SMALL: Final = 4096
_ROOM: Final = 1 << 20
# How often a PUT is sent again whose answer was lost, and how long a writer waits between.
_SENDINGS: Final = 6
_PAUSE: Final = 0.05
# How long a writer waits for others, beside a lease that must run out.
_PATIENCE: Final = 60.0
_LONGEST_DELAY: Final = 0.25


class _OvertakenError(Exception):
    """Another writer has finished the commit, which is applied."""


class _UndecidedError(Exception):
    """Whether a commit was decided is not known: nothing that it may need is removed."""

    def __init__(self, cause: RemoteError) -> None:
        super().__init__(str(cause))
        self.cause: Final = cause


def _doubtful(error: RemoteError) -> RemoteError:
    error.add_note("whether the commit is done is not known: read the data to find out")
    return error


class LeasedStore(Store, Protocol):
    """What a turn needs of its store: the client, the record, and the settings of the caller."""

    @property
    def client(self) -> ObjectClient:
        """What sends the requests."""
        ...

    @property
    def scope(self) -> Scope:
        """The keys that are committed together, and the name of the record."""
        ...

    @property
    def single_writer(self) -> bool:
        """Whether the caller answers for it that there is no other writer."""
        ...

    @property
    def lease(self) -> float:
        """After how many seconds without a sign of life another writer takes over."""
        ...

    @property
    def has_quick_readers(self) -> bool:
        """Whether readers rely on `NOTICE`."""
        ...

    @property
    def abandoned(self) -> set[str]:
        """The transactions of this store that failed before the record was idle again."""
        ...

    @property
    def proof(self) -> str:
        """What the support of conditional writes depends on."""
        ...

    def stored_now(self) -> StoredRecord:
        """Return the record as it is stored now."""
        ...

    def begin_turn(self, turn: "ObjectTurn") -> None:
        """Note that a thread writes, after waiting for the other threads that do."""
        ...

    def end_turn(self) -> None:
        """Note that the turn has ended."""
        ...


class ObjectTurn:
    """The turn of one writer; see `ingot.stores.versions.WriteTurn`."""

    def __init__(self, store: LeasedStore) -> None:
        self.store: Final = store
        self._client = store.client
        self._transaction = secrets.token_hex(8)
        self._lock = threading.Lock()
        # The record that this turn has written last, and its tag; None when it holds none.
        self._held: tuple[Record, Tag | None] | None = None
        self._renewed = 0.0
        # Since when the record certainly names this writer, so that readers are warned.
        self._named: float | None = None
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def __enter__(self) -> Self:
        check_commit(self.store, Commit())
        self.store.begin_turn(self)
        try:
            if self.store.single_writer:
                self._begin_alone()
            else:
                prove_conditions(self.store)
                self._acquire()
                self._heart = threading.Thread(target=self._beat, daemon=True)
                self._heart.start()
        except BaseException:
            self.store.end_turn()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._stop_heart()
            if self._held is not None and not self.store.single_writer:
                record, tag = self._held
                if record.state is State.HELD:
                    # If that fails, the lease runs out.
                    with suppress(ConflictError, RemoteError):
                        self._write(Record(State.IDLE, record.sequence, self._transaction), tag)
        finally:
            self.store.end_turn()

    @property
    def stored(self) -> StoredRecord | None:
        """The record, as long as this turn holds it."""
        return None if self._held is None else StoredRecord(*self._held)

    def commit(self, commit: Commit) -> int:
        """Apply a commit and return the number of the new version."""
        check_commit(self.store, commit)
        for edit in commit.edits:
            self.store.scope.check(edit.key, self.store.location)
        assert self._held is not None
        outcomes, _ = compose(commit.edits)
        if not outcomes:
            return self._held[0].sequence
        late = {edit.key for edit in (*commit.publish, *commit.cleanup)}
        early = [each for each in outcomes if each.key not in late]
        changes = [each for each in outcomes if each.key in late]
        with signals.Deferred() as deferred:
            number = self._commit(early, changes)
            deferred.note = "the commit is done: readers see it"
            return number

    def _commit(self, early: Sequence[Outcome], changes: Sequence[Outcome]) -> int:
        assert self._held is not None
        moves = [each for each in (*early, *changes) if isinstance(each, Move)]
        placed = {each.key: each for each in self._client.each(self._placed, moves)}
        journal, held, staged = self._planned(changes, placed)
        beside = [*(put.key for put in staged), *(move.source for move in moves)]
        sequence = self._held[0].sequence + 1
        tags: dict[str, Tag | None] = {}

        def prepare(task: Outcome | str) -> None:
            if isinstance(task, str):
                tags[task] = self._tag(task)
            elif isinstance(task, Move):
                self._put_early(Put(task.key, self._value(placed[task.key]) or b""))
            elif isinstance(task, Delete):
                self._check_lease()
                self._client.delete([task.key])
            elif isinstance(task, Put) and is_staged(task.key.rpartition("/")[2]):
                self._client.put(task.key, task.data)
            elif isinstance(task, Put):
                self._put_early(task)

        try:
            self._client.each(prepare, [*early, *staged, *(each.key for each in journal.entries)])
            if journal.entries:
                self._decide(sequence, journal)
        except _UndecidedError as error:
            raise error.cause from None
        except BaseException:
            self._discard(beside)
            raise
        if journal.entries:
            try:
                self._apply(journal, held, tags)
                self._client.delete(beside)
            except _OvertakenError:
                pass
            except BaseException as error:
                self.store.abandoned.add(self._transaction)
                self._held = None
                error.add_note("the commit is done: readers see it, and the next writer applies it")
                raise
        self._settle(sequence)
        return sequence

    def _discard(self, keys: Sequence[str]) -> None:
        """Remove values that were staged for a commit that is certainly not decided."""
        with suppress(RemoteError):
            self._client.delete(keys)

    def _placed(self, move: Move) -> Placed:
        """Return what the journal says of a value that was staged before; it has to be there."""
        size, stated = move.size, move.checksum
        if size is None or stated is None:
            found = self._client.get(Requested(ObjectRange(move.source, 0, None)))
            size, stated = (0, 0) if found is None else (len(found.data), checksum(found.data))
        else:
            found = self._client.get(Requested(ObjectRange(move.source, 0, 0)))
        if found is None or found.size != size:
            there = "it is absent" if found is None else f"it has {found.size} bytes, not {size}"
            raise NotFoundError(
                f"{self.store.location}: {move.source!r} should become {move.key!r}, and {there}"
            )
        return Placed(move.key, move.source, size, stated)

    def _planned(
        self, changes: Sequence[Outcome], placed: Mapping[str, Placed]
    ) -> tuple[Journal, dict[str, bytes], list[Put]]:
        """Return the journal of changes, the values at hand by their keys, and what is staged.

        `placed` has entries of values that were staged before.
        """
        entries: list[Entry] = []
        values: dict[str, bytes] = {}
        staged: list[Put] = []
        room = _ROOM
        for change in changes:
            if isinstance(change, Put):
                data = bytes(change.data)
                beside = staged_key(change.key, self._transaction)
                values[change.key] = data
                if len(data) <= min(_SMALL, room):
                    room -= len(data)
                    entries.append(Carried(change.key, beside, data))
                else:
                    staged.append(Put(beside, data))
                    entries.append(Placed(change.key, beside, len(data), checksum(data)))
            elif isinstance(change, Move):
                entries.append(placed[change.key])
            else:
                entries.append(Removed(change.key))
        return Journal(self._transaction, tuple(entries)), values, staged

    # The record

    def _begin_alone(self) -> None:
        """Begin without a lease: the caller answers for it that there is no other writer."""
        stored = self.store.stored_now()
        if stored.record is not None and stored.record.state is State.DECIDED:
            self._finish(stored)
            stored = self.store.stored_now()
        sequence = 0 if stored.record is None else stored.record.sequence
        self._held = Record(State.HELD, sequence, self._transaction), stored.tag

    def _acquire(self) -> None:
        """Hold the record, after waiting for the writer that holds it."""
        lease = self.store.lease
        begin = time.monotonic()
        end = begin + lease + _PATIENCE
        seen: tuple[Tag | None, float] = (None, 0.0)
        delay = _PAUSE / 10
        while True:
            stored = self.store.stored_now()
            record, now = stored.record, time.monotonic()
            if record is None or record.state is State.IDLE:
                if self._take(stored):
                    return
            else:
                if stored.tag != seen[0]:
                    seen = stored.tag, now
                if now - seen[1] >= lease or record.transaction in self.store.abandoned:
                    if record.state is State.DECIDED:
                        self._finish(stored)
                        continue
                    if self._take(stored):
                        self._remove_staged(record.transaction)
                        return
            if now > end:
                holder = "other writers" if record is None else record.writer or "another writer"
                raise LockedError(
                    f"{self.store.location}: held by {holder}; waited {now - begin:.0f} s"
                )
            time.sleep(delay * (0.5 + random.random()))
            delay = min(2 * delay, _LONGEST_DELAY)

    def _take(self, stored: StoredRecord) -> bool:
        """Hold the record in the place of the one that is stored; False if another writer did."""
        sequence = 0 if stored.record is None else stored.record.sequence
        record = Record(State.HELD, sequence, self._transaction, 0, _name())
        try:
            self._write(record, ABSENT if stored.record is None else stored.tag)
        except ConflictError:
            return False
        return True

    def _write(self, record: Record, condition: Condition) -> None:
        """Replace the record."""
        sent = time.monotonic()
        condition = None if self.store.single_writer else condition
        tag = self._put_surely(self.store.scope.journal, records.pack(record), condition)
        self._held, self._renewed = (record, tag), sent
        if self._named is None and record.state is not State.IDLE:
            self._named = time.monotonic()

    def _decide(self, sequence: int, journal: Journal) -> None:
        """Decide the commit by one PUT; an error says that it is not decided, or that it may be."""
        self._check_lease()
        record = Record(State.DECIDED, sequence, self._transaction, 0, _name(), journal)
        with self._lock:
            assert self._held is not None
            before, tag = self._held
            try:
                self._write(record, tag)
            except ConflictError:
                self._held = None
                self._check_undecided(sequence)
                raise self._lost() from None
            except RemoteError as error:
                # A PUT without an answer may still arrive, unless the record is another by then.
                self.store.abandoned.add(self._transaction)
                try:
                    self._write(Record(State.IDLE, before.sequence, self._transaction), tag)
                except (ConflictError, RemoteError):
                    self._held = None
                    raise _UndecidedError(_doubtful(error)) from None
                raise

    def _check_undecided(self, sequence: int) -> None:
        """Raise `_UndecidedError` if the version that a commit would have made is passed by now."""
        stored = self.store.stored_now().record
        if stored is not None and stored.sequence >= sequence:
            error = RemoteError(f"{self.store.location}: the answer to the commit was lost")
            raise _UndecidedError(_doubtful(error))

    def _settle(self, sequence: int) -> None:
        """Say that the commit is applied, unless another writer has said so."""
        self._stop_heart()
        assert self._held is not None
        idle = Record(State.IDLE, sequence, self._transaction)
        try:
            self._write(idle, self._held[1])
        except ConflictError:
            self._held = None
        except RemoteError:
            # The commit is done; the next writer settles it.
            self.store.abandoned.add(self._transaction)
            self._held = None

    def _beat(self) -> None:
        """Renew the lease until the turn ends, so that others see that this writer lives."""
        while not self._ended.wait(self.store.lease / 4):
            with self._lock:
                if self._held is None or self._ended.is_set():
                    return
                record, tag = self._held
                grown = Record(
                    *(record.state, record.sequence, record.transaction, record.beat + 1),
                    *(record.writer, record.journal),
                )
                with suppress(RemoteError):
                    try:
                        self._write(grown, tag)
                    except ConflictError:
                        self._renewed = -self.store.lease
                        return

    def _stop_heart(self) -> None:
        self._ended.set()
        if self._heart is not None:
            self._heart.join()
            self._heart = None

    def _check_lease(self) -> None:
        """Raise `LockedError` if another writer may have taken over."""
        late = time.monotonic() - self._renewed > self.store.lease * 2 / 3
        if late and not self.store.single_writer:
            raise self._lost()

    def _lost(self) -> LockedError:
        return LockedError(
            f"{self.store.location}: another writer took over, since this one did not renew its "
            "lease in time; nothing of the commit is done"
        )

    # Objects

    def _tag(self, key: str) -> Tag | None:
        found = self._client.get(Requested(ObjectRange(key, 0, 0)))
        return None if found is None else found.tag

    def _put_early(self, put: Put) -> None:
        """Store a value that the committed state does not reach, over nothing but leftovers."""
        self._check_lease()
        condition: Condition = ABSENT
        for _ in range(_SENDINGS):
            with suppress(ConflictError):
                self._put_surely(put.key, put.data, condition)
                return
            found = self._tag(put.key)
            condition = ABSENT if found is None else found
            # What was found is a leftover only if no other writer holds the record by now.
            self._check_held()
        raise self._lost()

    def _check_held(self) -> None:
        stored = self.store.stored_now()
        if stored.record is None or stored.record.transaction != self._transaction:
            raise self._lost()

    def _put_surely(self, key: str, data: Buffer, condition: Condition) -> Tag | None:
        """Store an object; if the answer is lost, what is stored tells what became of it."""
        condition = None if self.store.single_writer else condition
        for sending in range(_SENDINGS):
            try:
                return self._client.put(key, data, condition)
            except ConflictError:
                found = self._client.get(Requested(ObjectRange(key, 0, None)))
                if found is not None and found.data == bytes(data):
                    return found.tag
                raise
            except RemoteError as error:
                if isinstance(error, PermissionError) or sending + 1 == _SENDINGS:
                    raise
            time.sleep(_PAUSE * 2**sending * random.random())
        raise AssertionError

    def _apply(
        self, journal: Journal, held: Mapping[str, bytes], tags: Mapping[str, Tag | None]
    ) -> None:
        """Give keys their new values, in the order that programs without a journal rely on.

        Values that are not held in memory are fetched, each when its turn has come.
        """

        def apply(entry: Entry) -> None:
            data = held[entry.key] if entry.key in held else self._decided_value(journal, entry)
            if data is None:
                self._check_decided(journal)
                self._client.delete([entry.key])
            else:
                self._put_decided(journal, entry.key, data, tags[entry.key])

        self._give_notice()
        for group in _groups(journal.entries):
            self._client.each(apply, group[:-1])
            apply(group[-1])

    def _give_notice(self) -> None:
        """Wait until readers can no longer take the record for idle in the batch of their data."""
        if self.store.has_quick_readers:
            named, now = self._named, time.monotonic()
            time.sleep(records.NOTICE if named is None else max(0.0, named + records.NOTICE - now))

    def _put_decided(self, journal: Journal, key: str, data: bytes, tag: Tag | None) -> None:
        for _ in range(_SENDINGS):
            try:
                self._put_surely(key, data, ABSENT if tag is None else tag)
            except ConflictError:
                tag = self._tag(key)
                self._check_decided(journal)
            else:
                return
        raise RemoteError(f"{self.store.location}: key {key!r} is changed again and again")

    def _check_decided(self, journal: Journal) -> None:
        """Raise `_OvertakenError` if the commit is applied, so that newer values stay."""
        if self.store.single_writer:
            return
        stored = self.store.stored_now()
        record = stored.record
        if record is None or record.journal is None or record.transaction != journal.transaction:
            raise _OvertakenError

    # What a dead writer left

    def _finish(self, stored: StoredRecord) -> None:
        """Apply the commit that another writer has decided, and say so."""
        record = stored.record
        assert record is not None
        journal = record.journal
        assert journal is not None
        keys = [entry.key for entry in journal.entries]
        tags = dict(zip(keys, self._client.each(self._tag, keys), strict=True))
        idle = Record(State.IDLE, record.sequence, journal.transaction)
        with suppress(_OvertakenError, ConflictError):
            self._check_decided(journal)
            self._apply(journal, {}, tags)
            staged = [entry.staged for entry in journal.entries if isinstance(entry, Placed)]
            self._client.delete(staged)
            # The record may have been renewed since by a writer that lives.
            self._write(idle, self.store.stored_now().tag if self._is_same(journal) else stored.tag)
        self._held = None

    def _is_same(self, journal: Journal) -> bool:
        record = self.store.stored_now().record
        return record is not None and record.transaction == journal.transaction

    def _decided_value(self, journal: Journal, entry: Entry) -> bytes | None:
        """Return what `_value` does, unless another writer has applied the commit meanwhile."""
        try:
            return self._value(entry)
        except CorruptionError:
            self._check_decided(journal)
            raise

    def _value(self, entry: Entry) -> bytes | None:
        """Return the value that an entry gives its key; None for a key that is removed."""
        if isinstance(entry, Removed):
            return None
        if isinstance(entry, Carried):
            return entry.data
        if not isinstance(entry, Placed):
            raise UnsupportedError(f"{self.store.location}: the journal changes parts of objects")
        for key in (entry.staged, entry.key):
            found = self._client.get(Requested(ObjectRange(key, 0, None)))
            if found is not None and checksum(found.data) == entry.checksum:
                return found.data
        raise CorruptionError(
            f"{self.store.location}: the journal gives {entry.key!r} {entry.size} bytes, which "
            f"neither it nor {entry.staged!r} holds"
        )

    def _remove_staged(self, transaction: str) -> None:
        """Remove what a dead writer has staged and never decided."""
        lead = f".g-{transaction}-"
        names = [key for key in self._client.walk() if key.rpartition("/")[2].startswith(lead)]
        self._client.delete(names)


def _groups(entries: Sequence[Entry]) -> Iterator[list[Entry]]:
    """Yield entries that follow each other, of one folder and one kind.

    Of a group, the last entry is applied behind all others: it may be the length of an array.
    """
    group: list[Entry] = []
    for entry in entries:
        if group and _kind(entry) != _kind(group[-1]):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _kind(entry: Entry) -> tuple[str, bool]:
    return entry.key.rpartition("/")[0], isinstance(entry, Removed)


def _name() -> str:
    """Return what messages of other writers call this one."""
    return f"process {os.getpid()} on {socket.gethostname()}"


_PROVED: Final[set[str]] = set()
# The tag of no object.
_NO_TAG: Final = Tag(f'"{"f" * 32}"', "1")


def prove_conditions(store: LeasedStore) -> None:
    """Raise `UnsupportedError` for a server that ignores conditions or ranges.

    Servers that ignore them say that all is well, and lose data. They are found by trying, once
    for each bucket.
    """
    if store.proof in _PROVED:
        return
    client = store.client
    key = staged_key("probe", secrets.token_hex(8))
    try:
        tag = client.put(key, b"0123456789", ABSENT)
        ignored = _holds(store, key, ABSENT) or _holds(store, key, _NO_TAG)
        if tag is None or tag == Tag(None, None):
            raise UnsupportedError("objects have no tags")
        if ignored:
            raise UnsupportedError("conditions are ignored")
        client.put(key, b"abcdefghij", tag)
        found = client.get(Requested(ObjectRange(key, 2, 5)))
        if found is None or found.data != b"cde":
            raise UnsupportedError("what was written is not read")
    except (UnsupportedError, ConflictError) as error:
        raise UnsupportedError(
            f"{store.location}: the store does not support conditional writes ({error}); several "
            "writers would lose data. If there is certainly no other writer, give the setting "
            "single_writer=True"
        ) from None
    finally:
        with suppress(RemoteError):
            client.delete([key])
    _PROVED.add(store.proof)


def _holds(store: LeasedStore, key: str, condition: Condition) -> bool:
    """Return whether a PUT succeeds whose condition is not true."""
    try:
        store.client.put(key, b"0123456789", condition)
    except ConflictError:
        return False
    return True

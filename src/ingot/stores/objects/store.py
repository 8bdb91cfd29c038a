"""A store of objects: a bucket, or a part of one, behind obstore.

A read sends many requests at once, and takes all bytes of an object from one version of it, which
its tag (ETag) shows. The version of the whole state, its writer and its journal are one small
object, see `ingot.stores.objects.record`; readers compare it, and take no lock.
"""

import dataclasses
import itertools
import os
import secrets
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from ingot.errors import AccessError, LockedError, RemoteError, UnsafeError, UnsupportedError
from ingot.options import without_secrets
from ingot.stores.local.journal import checksum
from ingot.stores.local.overlay import Overlay
from ingot.stores.local.scope import WHOLE, Scope
from ingot.stores.objects import record as records
from ingot.stores.objects.cache import RangeCache
from ingot.stores.objects.client import (
    Answers,
    ConflictError,
    FetchedObject,
    ObjectClient,
    Obstore,
    Requested,
    Tag,
)
from ingot.stores.objects.pace import Pace, pace_of
from ingot.stores.objects.ranges import ObjectRange, cut, spans_of
from ingot.stores.objects.record import State, StoredRecord
from ingot.stores.objects.steady import SteadyView
from ingot.stores.objects.turn import ObjectTurn
from ingot.stores.objects.url import ObjectURL
from ingot.stores.store import (
    FIRST_BYTES,
    READING,
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
from ingot.stores.versions import Version, version_number

__all__ = ["ObjectReading", "ObjectStore"]

LEASE: Final = 15.0
"""After how many seconds without a sign of life a writer counts as dead."""
CACHE_BYTES: Final = 1 << 30
"""The size of a cache on disk, unless the settings say otherwise."""
WAIT: Final = 60.0
"""How many seconds a thread waits for another one, beside the time of a lease."""

# How many times a read begins anew because an object changed while its ranges were fetched.
_ATTEMPTS: Final = 5
_SLEEPS: Final = hasattr(time, "CLOCK_BOOTTIME")
# Added to the numbers of versions that were read together with documents, see `load_ahead`.
_AHEAD: Final = 1 << 62


class _Ahead(NamedTuple):
    """What was fetched before it was asked for: the record, and documents."""

    stored: StoredRecord
    found: Mapping[str, tuple[ObjectRange, FetchedObject | None]]


class ObjectStore:
    """Objects below a prefix of any store of obstore: `S3Store`, `GCSStore`, `MemoryStore`, …

    `file` is the key of a dataset that is a single object; the record of its commits then lies
    beside it. A store that is not `writable` sends nothing but reads. What `unchanging` and
    `first_bytes` save is described in `docs/object-stores.md`.

    >>> from obstore.store import MemoryStore
    >>> bucket = MemoryStore()
    >>> _ = bucket.put("prices/a", b"alpha")
    >>> store = ObjectStore(bucket, "prices")
    >>> store.read([Extent("a", 1, 3), Extent("b")]), list(store.names())
    ([b'lph', None], ['a'])
    """

    def __init__(
        self,
        store: Obstore | ObjectURL,
        prefix: str = "",
        *,
        file: str | None = None,
        writable: bool = False,
        single_writer: bool = False,
        lease: float = LEASE,
        unchanging: bool = False,
        first_bytes: int | None = None,
    ) -> None:
        self._url: Final = store if isinstance(store, ObjectURL) else None
        if isinstance(store, ObjectURL):
            lead = _lead(store.path)
            cache = _cache(store, lead)
            self.client = ObjectClient(store.store(), str(store), lead, store.concurrency, cache)
            unchanging = bool(store.setting("unchanging", unchanging))
            first_bytes = store.setting("first_bytes", first_bytes)
            writable = writable and store.writable
            single_writer = bool(store.setting("single_writer", single_writer))
            lease = float(store.setting("lease", lease))
        else:
            self.client = ObjectClient(store, _shown(store, prefix), _lead(prefix))
        self.key: Final = file
        """The key of a dataset that is a single object."""
        self.scope: Final = WHOLE if file is None else Scope.of_file(file)
        self._writable = writable and not unchanging
        self.single_writer: Final = single_writer
        """Whether the caller answers for it that there is no other writer."""
        self.lease: Final = lease
        """After how many seconds without a sign of life another writer takes over."""
        self.unchanging: Final = unchanging
        """Whether the caller answers for it that nothing changes, so that no read looks for it."""
        self.first_bytes: Final = FIRST_BYTES if first_bytes is None else int(first_bytes)
        """How much of a chunk is fetched before it is known which of its bytes are needed."""
        self._pace = Pace() if self._url is None else pace_of(self.proof)
        self._is_paced: Final = first_bytes is None
        self.abandoned: Final[set[str]] = set()
        """The transactions of this store that failed before the record was idle again."""
        self._writing = threading.Lock()
        self._turn: tuple[int, ObjectTurn] | None = None
        self._ahead: _Ahead | None = None
        # The number that stands for a version whose documents were fetched together with it.
        self._renamed: tuple[int | None, int] | None = None
        self._aheads = 0
        self._view: tuple[str, Overlay] | None = None
        # What the last batch of this thread found of the record, when it ended with that.
        self._confirmed = threading.local()

    @classmethod
    def from_url(
        cls, url: str | ObjectURL, *, file: str | None = None, writable: bool = False
    ) -> "ObjectStore":
        """Return the store at an address, such as `s3://bucket/path`.

        >>> ObjectStore.from_url("memory://doctest/prices")
        ObjectStore('memory://doctest/prices')
        """
        url = url if isinstance(url, ObjectURL) else ObjectURL.parse(url)
        return cls(url, file=file, writable=writable)

    @property
    def features(self) -> Feature:
        """Ranges and listings; values are replaced as a whole, also by what was staged before."""
        features = READING | Feature.REMOTE
        if self._url is not None and not self._url.lists:
            features &= ~Feature.LIST
        if self._writable:
            features |= Feature.WRITE | Feature.ATOMIC_PUT | Feature.RENAME
        return features

    @property
    def location(self) -> str:
        """The address, without credentials."""
        return self.client.where

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, by as few requests as possible, all at once."""
        return ObjectReading(self).read(extents)

    def arriving(self, extents: Sequence[Extent]) -> Iterator[list[tuple[int, bytes | None]]]:
        """Yield the bytes of each extent, with its place, as they arrive.

        The record is asked for when all requests were answered, before all bytes are here: it
        proves then that the objects are of its version.
        """
        keys = {check_key(extent.key) for extent in extents}
        if len(keys) < max(2, len(extents)) or not all(map(_is_whole, extents)):
            yield list(enumerate(self.reading().read(extents)))
            return
        ahead, self._ahead = self._ahead, None
        heads = self._checks_of(ahead)
        # The short answers come first: the record is asked for behind all of them.
        wanted = [*heads, *(Requested(ObjectRange(extent.key, 0, None)) for extent in extents)]
        answers = Answers(wanted)
        if not self.unchanging:
            self._confirmed.stored = _LaterRecord(self, answers)
        now: dict[int, FetchedObject | None] = {}
        begin, nbytes = _now(), 0
        for group in self.client.arriving(wanted, answers):
            nbytes += sum(len(found.data) for _, found in group if found is not None)
            now |= {place: found for place, found in group if place < len(heads)}
            values = [(place - len(heads), found) for place, found in group if place >= len(heads)]
            if values:
                yield [(place, None if found is None else found.data) for place, found in values]
        self._pace.note(nbytes, _now() - begin)
        if ahead is not None:
            self._compare(ahead, heads, [now[place] for place in range(len(heads))])

    def reading(self) -> "ObjectReading":
        """Return a reader for several batches that belong together, see `ObjectReading`.

        A batch that may be the last fetches the record too, see `ObjectStore.fetch`.
        """
        return ObjectReading(self, proves=not self.unchanging and self.has_quick_readers)

    @property
    def has_quick_readers(self) -> bool:
        """Whether a batch of requests proves by its duration that it read one committed state.

        Not in memory, where a round trip costs nothing, and notice would cost every writer.
        """
        if self._url is not None:
            return self._url.scheme != "memory"
        return type(self.client.store).__name__ != "MemoryStore"

    @property
    def bytes_at_once(self) -> int:
        """How many bytes come in less time than another round trip takes, as far as is known.

        0 where the caller has said how much of a chunk is fetched first.
        """
        return self._pace.bytes_at_once if self._is_paced and self.has_quick_readers else 0

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        (found,) = self.fetch([Requested(ObjectRange(check_key(key), 0, 0))])
        return None if found is None else found.size

    def identity(self, key: str) -> Hashable | None:
        """Return None: a tag costs a request, as reading a small value does."""
        check_key(key)
        return None

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash."""
        if Feature.LIST not in self.features:
            raise UnsupportedError(f"{self.location}: objects behind HTTP cannot be listed")
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        own = () if folder else self.scope.reserved
        for name in self.client.list(folder):
            if name not in own and _is_name(name) and (hidden or not is_staged(name)):
                yield name

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit; an acknowledged request is durable, whatever `durability` is."""
        check_commit(self, commit)
        if commit.edits:
            with ObjectTurn(self) as turn:
                turn.commit(commit)

    # One committed state

    def version(self) -> Version | None:
        """Return the version of the committed state; one request, unless it is at hand."""
        return self._shown_version(self.stored())

    def view(self) -> Store:
        """Return this store, or a view through the journal of a commit that is not applied yet."""
        stored = self.stored()
        record = stored.record
        if record is None or record.journal is None:
            return self
        if self._view is None or self._view[0] != record.transaction:
            self._view = record.transaction, Overlay(self, record.journal)
        return self._view[1]

    def version_probe(self) -> "_Probe":
        """Return a probe that uses what a read has found of the record by the way."""
        return _Probe(self)

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give the committed state; writers wait until the block ends.

        Where the store is opened for reading no writer waits: reads raise `LockedError` once the
        state has changed.
        """
        if self._writable:
            with ObjectTurn(self):
                yield self
        elif self.unchanging:
            yield self
        else:
            # What was fetched ahead may be of an earlier state.
            self._ahead = self._renamed = None
            record = self.stored_now().record
            number = None if record is None else record.sequence

            def is_same() -> bool:
                now = self.stored_now().record
                return number == (None if now is None else now.sequence)

            journal = None if record is None else record.journal
            yield SteadyView(self if journal is None else Overlay(self, journal), is_same)

    def writing(self, *, durability: Durability = "full") -> ObjectTurn:
        """Return a turn to write; an acknowledged request is durable."""
        return ObjectTurn(self)

    def stage(self, key: str, data: Buffer) -> Put:
        """Return an edit that holds the value: it is sent with the commit."""
        return Put(key, data)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Remove what was staged apart; values of other edits were not staged."""
        self.client.delete([edit.source for edit in edits if isinstance(edit, Move)])

    @property
    def is_shared(self) -> bool:
        """Whether other processes reach the objects by the address."""
        return self._url is not None and self._url.scheme != "memory"

    def stage_apart(self, transaction: str, key: str, data: Buffer) -> Move:
        """Stage a value for a commit of another process, and return the edit that publishes it.

        Every call stages an object of its own, so that a task which runs twice changes nothing of
        what it staged before.
        """
        source = staged_key(check_key(key), f"{transaction}.{secrets.token_hex(4)}")
        self.client.put(source, data)
        return Move(source, key, memoryview(data).nbytes, checksum(data))

    def remove_apart(self, transaction: str) -> None:
        """Remove what was staged apart for a transaction and is not published."""
        lead = f".g-{transaction}."
        names = [key for key in self.client.walk() if key.rpartition("/")[2].startswith(lead)]
        self.client.delete(names)

    read_attempts: Final = 50
    """How many times a reader tries: writers switch the state within a few requests."""

    # Requests

    def load_ahead(
        self, keys: Sequence[str], most: int, beyond: Sequence[str] = ()
    ) -> frozenset[str]:
        """Fetch the version and documents that are certainly asked for next, in one batch.

        The batch that follows compares the tags of the documents, so what was read is of one
        state, though no request waited for another. `beyond` are keys from the root of the bucket.
        Returned are all keys that exist and may be read, from the root of the bucket.
        """
        spans = [ObjectRange(key, 0, most) for key in dict.fromkeys(map(check_key, keys))]
        bucket = self.client.below("")
        wanted = [(self.client, ObjectRange(self.scope.journal, 0, None))]
        wanted += [(self.client, span) for span in spans]
        wanted += [(bucket, ObjectRange(key, 0, 0)) for key in beyond]

        def ask(asked: tuple[ObjectClient, ObjectRange]) -> FetchedObject | None:
            client, span = asked
            try:
                return client.get(Requested(span))
            except AccessError:
                if client is not bucket:
                    raise
                return None  # A user may have no right to what lies around the dataset.

        begin = _now()
        first, *found = self.client.each(ask, wanted)
        self._pace.note(sum(len(each.data) for each in found if each is not None), _now() - begin)
        documents = {
            span.key: (span, each) for span, each in zip(spans, found[: len(spans)], strict=True)
        }
        stored = self._parsed(first)
        self._ahead = _Ahead(stored, documents)
        self._aheads += 1
        sequence = None if stored.record is None else stored.record.sequence
        self._renamed = sequence, _AHEAD + self._aheads
        asked = [f"{client.prefix}{span.key}" for client, span in wanted[1:]]
        pairs = zip(asked, found, strict=True)
        # Some servers answer for a folder as for an object without bytes.
        return frozenset(key for key, each in pairs if each is not None and each.size > 0)

    def fetch(
        self,
        wanted: Sequence[Requested],
        *,
        confirm: bool = False,
        proves: bool = False,
    ) -> list[FetchedObject | None]:
        """Return what requests find; documents that were read ahead are compared in the same batch.

        With `confirm` the record is fetched in the same batch, for the next look at the version:
        the objects are those of an earlier batch. With `proves` they are read for the first time,
        and the record counts only if no writer can have changed one of them before the batch ended.
        """
        ahead, self._ahead = self._ahead, None
        heads = self._checks_of(ahead)
        own = [self._record_request] if confirm or proves else []
        begin = _now()
        found = self.client.fetch([*wanted, *heads, *own])
        seconds = _now() - begin
        self._pace.note(sum(len(each.data) for each in found if each is not None), seconds)
        if ahead is not None:
            self._compare(ahead, heads, found[len(wanted) :])
        stored = self._parsed(found[-1]) if own else None
        found, record = found[: len(wanted)], found[-1] if own else None
        if stored is not None and not confirm and not _is_proved(stored, record, found, seconds):
            stored = None
        self._confirmed.stored = stored
        return found

    @property
    def _record_request(self) -> Requested:
        return Requested(ObjectRange(self.scope.journal, 0, None))

    def _checks_of(self, ahead: "_Ahead | None") -> list[Requested]:
        """Return requests that find the tags of documents, which were fetched ahead, as of now."""
        if ahead is None or self.unchanging:
            return []
        return [Requested(ObjectRange(key, 0, 0)) for key, (_, each) in ahead.found.items() if each]

    def _compare(
        self, ahead: "_Ahead", checks: Sequence[Requested], found: Sequence[FetchedObject | None]
    ) -> None:
        """Compare the tags of documents that were fetched ahead with what is found now."""
        for (span, _), now in zip(checks, found, strict=False):
            before = ahead.found[span.key][1]
            if before is None or now is None or now.tag != before.tag:
                self._renamed = None  # The documents may be of another version.

    def stored(self) -> StoredRecord:
        """Return the record; that of a turn, or one that was fetched ahead, without a request."""
        turn = self._turn
        if turn is not None and turn[0] == threading.get_ident():
            held = turn[1].stored
            if held is not None:
                return held
        return self.stored_now() if self._ahead is None else self._ahead.stored

    def stored_now(self) -> StoredRecord:
        """Return the record as it is stored now."""
        (found,) = self.client.fetch([self._record_request])
        return self._parsed(found)

    def begin_turn(self, turn: ObjectTurn) -> None:
        """Note that a thread writes, after waiting for the other threads that do."""
        if self._ahead is not None:
            self.fetch([])  # The documents that were fetched ahead are compared.
        if not self._writing.acquire(timeout=self.lease + WAIT):
            raise LockedError(f"{self.location}: held by another thread of this process")
        self._turn = threading.get_ident(), turn

    def end_turn(self) -> None:
        """Note that the turn has ended."""
        self._turn = None
        self._writing.release()

    @property
    def proof(self) -> str:
        """What the support of conditional writes depends on: the server and the bucket."""
        if self._url is None:
            return f"{id(self.client.store)} {self.location}"
        return f"{self._url.scheme}://{self._url.bucket} {self._url.setting('endpoint', '')}"

    def confirmed(self) -> StoredRecord:
        """Return the record as of a time after the last bytes were read by this thread."""
        found = getattr(self._confirmed, "stored", None)
        self._confirmed.stored = None
        stored: StoredRecord | None = found.proof() if isinstance(found, _LaterRecord) else found
        if stored is None:
            self.fetch([], confirm=True)
            stored, self._confirmed.stored = self._confirmed.stored, None
        assert stored is not None
        return stored

    def ahead(self, extent: Extent) -> tuple[FetchedObject | None] | None:
        """Return what was fetched ahead of an extent; None where nothing was."""
        if self._ahead is None or extent.key not in self._ahead.found:
            return None
        span, found = self._ahead.found[extent.key]
        return (found,) if span.holds(extent) else None

    def _parsed(self, found: FetchedObject | None) -> StoredRecord:
        if found is None:
            return StoredRecord(None, None)
        record = records.parse(found.data, f"{self.location}: {self.scope.journal!r}")
        if record.journal is not None:
            for entry in record.journal.entries:
                self.scope.check(entry.key, self.location)
        return StoredRecord(record, found.tag)

    def _shown_version(self, stored: StoredRecord) -> Version | None:
        record = stored.record
        sequence = None if record is None else record.sequence
        settled = record is None or record.state is not State.DECIDED
        if self._renamed is not None and self._renamed[0] == sequence:
            return Version(self._renamed[1], settled)
        return None if sequence is None else Version(sequence, settled)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._url is None:
            raise UnsupportedError(
                f"{self.location}: a store that was given as an object is not pickled, since its "
                "credentials would be; open it by its address"
            )
        url = dataclasses.replace(self._url, storage=without_secrets(self._url.storage))
        return _restored, (url, self.key, self._writable)

    def __repr__(self) -> str:
        return f"ObjectStore({self.location!r})"


class _LaterRecord:
    """The record, asked for as soon as all requests of a batch were answered.

    A thread of its own waits for that: those that fetch have bytes to take meanwhile.
    """

    __slots__ = ("_answers", "_found", "_store")

    def __init__(self, store: ObjectStore, answers: Answers) -> None:
        self._store = store
        self._answers = answers
        self._found: Future[StoredRecord] = Future()
        threading.Thread(target=self._ask, name="ingot-record", daemon=True).start()

    def _ask(self) -> None:
        self._answers.are_complete()
        try:
            self._found.set_result(self._store.stored_now())
        except Exception as error:
            self._found.set_exception(error)

    def proof(self) -> StoredRecord | None:
        """Return the record; None if an object was fetched again, perhaps after the record was.

        To be called when all bytes are here.
        """
        stored = self._found.result()
        return None if self._answers.repeated else stored


class _Probe:
    """Compares the version with what the last batch of a read has found of it."""

    __slots__ = ("_store",)

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def confirms(self, number: int | None) -> bool:
        """Return whether this is the version now, and no commit can be half done."""
        if self._store.unchanging:
            return True
        version = self._store._shown_version(self._store.confirmed())
        return version_number(version) == number and (version is None or version.settled)

    def moved(self, number: int | None) -> bool:
        """Return False: only reading the version can tell."""
        return False


class ObjectReading:
    """A read that takes several batches: all bytes of an object are of one version of it.

    `RemoteError` says that an object was replaced or removed between two batches.
    """

    __slots__ = ("_proves", "_store", "_tags")

    def __init__(self, store: ObjectStore, *, proves: bool = False) -> None:
        self._store = store
        # Whether batches that may be the last of a read fetch the record as well.
        self._proves = proves
        self._tags: dict[str, Tag] = {}

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, as `Store.read` does."""
        found: list[bytes | None] = [None] * len(extents)
        wanted: list[int] = []
        for index, extent in enumerate(extents):
            known = self._store.ahead(extent)
            if known is None:
                wanted.append(index)
            elif known[0] is not None:
                found[index] = cut(extent, [ObjectRange(extent.key, 0, None)], [known[0].data])
        if not wanted:
            return found
        spans = spans_of(extents[index] for index in wanted)
        answers = self._fetch(spans)
        for index in wanted:
            extent = extents[index]
            answer = answers[extent.key]
            if answer is not None:
                found[index] = cut(extent, spans[extent.key], answer)
        return found

    def _fetch(self, spans: Mapping[str, list[ObjectRange]]) -> dict[str, list[bytes] | None]:
        """Return the bytes of the spans of each key; None for a key that is absent."""
        done: dict[str, list[bytes] | None] = {}
        left = list(spans)
        # If all tags are known, a record that is found now proves that the objects are as before.
        known = all(key in self._tags and self._tags[key].etag for key in left)
        confirm = known and not self._store.unchanging
        proves = (
            self._proves and not confirm and all(map(_may_be_all, itertools.chain(*spans.values())))
        )
        for _ in range(_ATTEMPTS):
            wanted = [Requested(span, self._tags.get(key)) for key in left for span in spans[key]]
            found = iter(self._requested(wanted, confirm=confirm, proves=proves))
            again = []
            for key in left:
                parts = [next(found) for _ in spans[key]]
                if self._agree(key, parts):
                    whole = [part.data for part in parts if part is not None]
                    done[key] = whole if len(whole) == len(parts) else None
                else:
                    again.append(key)
            left = again
            if not left:
                return done
        raise RemoteError(
            f"{self._store.location}: key {left[0]!r} changes faster than its ranges are read"
        )

    def _agree(self, key: str, parts: Sequence[FetchedObject | None]) -> bool:
        """Return whether parts are of one object, and keep its tag."""
        tags = {None if part is None else part.tag for part in parts}
        absent = [part is None for part in parts]
        if len(tags) > 1 or (any(absent) and not all(absent)):
            return False
        if key in self._tags and all(absent):
            raise RemoteError(f"{self._store.location}: key {key!r} was removed while it was read")
        for part in parts:
            if part is not None:
                self._tags[key] = part.tag
        return True

    def _requested(
        self, wanted: Sequence[Requested], *, confirm: bool, proves: bool
    ) -> list[FetchedObject | None]:
        try:
            return self._store.fetch(wanted, confirm=confirm, proves=proves)
        except ConflictError as error:
            raise RemoteError(f"{error}, between two ranges of one read") from None


def _cache(url: ObjectURL, lead: str) -> RangeCache | None:
    """Return the cache that the settings of an address name."""
    folder = url.setting("cache", None)
    if folder is None:
        return None
    store = f"{url.scheme}://{url.bucket}/{lead} {url.setting('endpoint', '')}"
    return RangeCache(os.fspath(folder), int(url.setting("cache_bytes", CACHE_BYTES)), store)


def _restored(url: ObjectURL, file: str | None, writable: bool) -> ObjectStore:
    return ObjectStore.from_url(url, file=file, writable=writable)


def _lead(prefix: str) -> str:
    prefix = prefix.strip("/")
    return f"{check_key(prefix)}/" if prefix else ""


def _is_whole(extent: Extent) -> bool:
    return extent.start == 0 and extent.length is None


def _may_be_all(span: ObjectRange) -> bool:
    """Return whether a span is more than the beginning that says what else is needed."""
    return span.stop is None or span.stop - span.start > FIRST_BYTES


def _is_proved(
    stored: StoredRecord,
    record: FetchedObject | None,
    found: Sequence[FetchedObject | None],
    seconds: float,
) -> bool:
    """Return whether objects are of the version of a record that was fetched in the same batch.

    A writer that came behind the record gives notice (`records.NOTICE`) before it changes any of
    them. If the clock stood still meanwhile, as in a suspended machine, the times at which the
    objects were stored show the change, by the clock of the server.
    """
    if not stored.is_idle or seconds >= records.NOTICE or None in found:
        return False
    if record is None:
        return True
    times = [each.modified for each in found if each is not None]
    last = record.modified
    return last is not None and all(each is not None and each <= last for each in times)


def _now() -> float:
    """Return the time of a clock that runs on while the machine sleeps, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _SLEEPS else time.monotonic()


def _is_name(name: str) -> bool:
    try:
        check_key(name.removesuffix("/"))
    except UnsafeError:
        return False
    return True


def _shown(store: Obstore, prefix: str) -> str:
    """Return what messages call a store of obstore, without anything of its credentials."""
    config = getattr(store, "config", None) or {}
    schemes = {"S3Store": "s3", "GCSStore": "gs", "AzureStore": "az"}
    kind = type(store).__name__
    bucket = config.get("bucket") or config.get("container_name")
    own = getattr(store, "prefix", None)
    parts = "/".join(str(part).strip("/") for part in (bucket, own, prefix) if part)
    if kind in schemes and bucket:
        return f"{schemes[kind]}://{parts}"
    return f"{kind}({prefix.strip('/')!r})" if prefix else kind

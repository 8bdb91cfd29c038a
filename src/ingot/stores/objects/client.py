"""The client of an object store: many requests at once, and errors that say what is wrong.

Only this module calls obstore, which is optional. What obstore says of a failure may contain
credentials and whole addresses, so messages are made anew: the status, the code of the server, and
the key.
"""

import functools
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar, cast

from ingot import signals
from ingot.errors import (
    AccessError,
    IngotError,
    NotFoundError,
    RemoteError,
    UnsupportedError,
)
from ingot.stores.objects.cache import KeptRange, RangeCache
from ingot.stores.objects.ranges import ObjectRange
from ingot.stores.store import Buffer

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Obstore
else:
    Obstore = object

__all__ = [
    "ABSENT",
    "Answers",
    "Condition",
    "ConflictError",
    "CutOffError",
    "FetchedObject",
    "ObjectClient",
    "Obstore",
    "RangeError",
    "Requested",
    "Tag",
    "obstore_module",
]

# How often an answer that was cut off is asked for again, and how long a client waits before.
_REPETITIONS: Final = 3
_PAUSE: Final = 0.05

# Memory for so many bytes is taken before they have come.
_AT_ONCE: Final = 16 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>([A-Za-z]{1,64})</Code>")
_DENIED: Final = re.compile(r"\b40[13]\b")
_RANGE: Final = ("Invalid range", "status code: 416", "InvalidRange")
_IGNORED_RANGE: Final = ("NotPartial", "not a partial", "partial response", "Received non-partial")
_TIMED_OUT: Final = ("TimedOut", "timed out", "Elapsed")
_REFUSED: Final = ("ConnectionRefused", "dns error", "ConnectError", "Connect,")
_CUT: Final = ("IncompleteMessage", "Body", "end of file", "UnexpectedEof", "unexpected EOF")
_CUT_OFF: Final = "the answer was cut off"
_REDIRECTED: Final = ("redirect", "Redirect")
_OTHER_BYTES: Final = ("UnexpectedRange", "ParseContentRange")


class Tag(NamedTuple):
    """What changes with every version of an object: its ETag, and its number where it has one."""

    etag: str | None
    number: str | None = None


ABSENT: Final = Tag("*")
"""The condition that an object does not exist yet."""

Condition: TypeAlias = Tag | None
"""What a PUT depends on: the tag of the object that it replaces, `ABSENT`, or nothing."""


class ConflictError(IngotError):
    """The condition of a request is not true: another writer has changed the object."""


class CutOffError(RemoteError):
    """An answer ended before its end; obstore does not ask again."""


class RangeError(IngotError):
    """A range begins behind the end of its object."""


class Requested(NamedTuple):
    """A request of bytes; with a tag, of the object that has this tag."""

    span: ObjectRange
    tag: Tag | None = None


class FetchedObject(NamedTuple):
    """An object, or a part of one: its bytes, its tag, and the size of the whole object.

    `modified` is when the object was stored, in seconds, by the clock of the server; None where
    that is not known.
    """

    data: bytes
    tag: Tag
    size: int
    modified: float | None = None


def obstore_module() -> Any:
    """Return obstore, with its modules `store` and `exceptions`; `UnsupportedError` without it."""
    try:
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise UnsupportedError(
            "object stores need obstore: pip install 'ingot-store[cloud]'"
        ) from None
    return obstore


def _threads(count: int) -> ThreadPoolExecutor:
    """Return the threads of this process: those of a parent do not survive a fork."""
    return _pool(count, signals.forks())


@functools.lru_cache(maxsize=8)
def _pool(count: int, forks: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix="ingot-objects")


class Answers:
    """Counts the requests of a batch that were answered; the bytes may still be on their way.

    An answer begins with the tag of its object, so its bytes are those that the object had then.

    >>> first, second = (Requested(ObjectRange(key, 0, None)) for key in "ab")
    >>> answers = Answers([first, second])
    >>> answers.note(second), answers.are_complete(0), answers.note(first), answers.are_complete(0)
    (None, False, None, True)
    """

    def __init__(self, wanted: Iterable[Requested]) -> None:
        self._missing = set(wanted)
        self._lock = threading.Lock()
        self._complete = threading.Event()
        self.repeated = False
        """Whether a request was sent again after it had been answered."""

    def note(self, wanted: Requested) -> None:
        """Note that a request was answered, or has failed."""
        with self._lock:
            self._missing.discard(wanted)
            if not self._missing:
                self._complete.set()

    def are_complete(self, timeout: float | None = None) -> bool:
        """Return whether all requests were answered, after waiting for that."""
        return self._complete.wait(timeout)


class ObjectClient:
    """Requests to one object store, below one prefix; `where` stands in messages.

    >>> client = ObjectClient(obstore_module().store.MemoryStore(), "memory://doctest")
    >>> tag = client.put("a", b"alpha", ABSENT)
    >>> client.put("a", b"beta", ABSENT)
    Traceback (most recent call last):
    ingot.stores.objects.client.ConflictError: memory://doctest: key 'a': exists already
    >>> [found.data for found in client.fetch([Requested(ObjectRange("a", 1, 3))])]
    [b'lp']
    """

    def __init__(
        self,
        store: Obstore,
        where: str,
        prefix: str = "",
        concurrency: int = 32,
        cache: RangeCache | None = None,
    ) -> None:
        self.store: Final = store
        self.where: Final = where
        self.prefix: Final = prefix
        self._concurrency = concurrency
        self._cache = cache
        self._ranged = True
        self._exceptions = obstore_module().exceptions

    def walk(self) -> Iterator[str]:
        """Yield all keys."""
        try:
            for batch in self.store.list(self.prefix.removesuffix("/") or None):
                paths = (each["path"] for each in batch)
                yield from (
                    path.removeprefix(self.prefix) for path in paths if path.startswith(self.prefix)
                )
        except Exception as error:
            raise self._failed(error, "") from None

    def below(self, prefix: str) -> "ObjectClient":
        """Return a client of the same store below another prefix."""
        return ObjectClient(self.store, self.where, prefix, self._concurrency)

    def each(self, call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Call a function for every item, many at a time, and return the results in order.

        The first error is raised, after all calls have ended. The calling thread makes the last
        call itself, since it waits anyway.
        """
        if len(items) < 2:
            return [call(item) for item in items]
        submit = _threads(self._concurrency).submit
        futures = [submit(call, item) for item in items[:-1]]
        own: Future[Result] = Future()
        try:
            own.set_result(call(items[-1]))
        except Exception as error:
            own.set_exception(error)
        failed: BaseException | None = None
        results = []
        for future in (*futures, own):
            try:
                results.append(future.result())
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return results

    def fetch(self, wanted: Sequence[Requested]) -> list[FetchedObject | None]:
        """Return what requests find, all at once; None for an object that is absent."""
        return self.each(self.get, wanted)

    def arriving(
        self, wanted: Sequence[Requested], answers: Answers
    ) -> Iterator[list[tuple[int, FetchedObject | None]]]:
        """Yield what requests find, with their places, as it arrives; `answers` counts them.

        All requests are sent at once. The first error is raised after all of them have ended.
        """

        def get(requested: Requested) -> FetchedObject | None:
            try:
                return self.get(requested, answers)
            finally:
                answers.note(requested)

        submit = _threads(self._concurrency).submit
        places = {submit(get, each): place for place, each in enumerate(wanted)}
        left: set[Future[FetchedObject | None]] = set(places)
        failed: BaseException | None = None
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            failed = failed or next(filter(None, (each.exception() for each in done)), None)
            if failed is None:
                yield [(places[each], each.result()) for each in done]
        if failed is not None:
            raise failed

    def get(self, wanted: Requested, answers: Answers | None = None) -> FetchedObject | None:
        """Return what a request finds; None for an object that is absent."""
        span, tag = wanted
        if self._cache is None or span[1:] == (0, 0):
            return self._get(wanted, None, answers)
        kept = self._cache.find(span)
        if kept is not None and tag is not None and tag.etag == kept.etag:
            return _from_cache(kept)
        found = self._get(wanted, kept, answers)
        if found is None or not found.data or found.tag.etag is None:
            return found
        if kept is None or kept.etag != found.tag.etag:
            new = KeptRange(found.data, found.tag.etag, found.tag.number, found.size)
            self._cache.keep(span, new)
        return found

    def _get(
        self, wanted: Requested, kept: KeptRange | None, answers: Answers | None
    ) -> FetchedObject | None:
        """Return what the server has; an answer that is cut off is asked for again."""
        for repetition in range(_REPETITIONS):
            try:
                return self._get_once(wanted, kept, answers)
            except CutOffError:
                if answers is not None:
                    answers.repeated = True
                time.sleep(_PAUSE * 2**repetition * random.random())
        return self._get_once(wanted, kept, answers)

    def _get_once(
        self, wanted: Requested, kept: KeptRange | None, answers: Answers | None
    ) -> FetchedObject | None:
        """Return what the server has; what is kept of it, if the server says that it is current."""
        (key, start, stop), tag = wanted
        options: dict[str, Any] = {}
        if tag is not None and tag.etag is not None:
            options["if_match"] = tag.etag
        elif kept is not None:
            options["if_none_match"] = kept.etag
        if (start, stop) == (0, 0):
            options["head"] = True
        elif self._ranged and stop is not None:
            options["range"] = start, stop
        elif self._ranged and start:
            options["range"] = {"offset": start}
        try:
            answer = self.store.get(self.prefix + key, options=cast(Any, options))
            if answers is not None:
                answers.note(wanted)
            meta, (first, end) = answer.meta, answer.range
            data = b"" if "head" in options else _taken(answer, end - first)
        except FileNotFoundError as error:
            if "NoSuchBucket" in str(error):
                raise NotFoundError(f"{self.where}: there is no such bucket") from None
            return None
        except Exception as error:
            if kept is not None and isinstance(error, self._exceptions.NotModifiedError):
                return _from_cache(kept)
            failure = self._failed(error, key)
            if isinstance(failure, RangeError):
                return self._behind(key, tag, start)
            if isinstance(failure, UnsupportedError) and "range" in options:
                # The server ignores ranges: from now on it is asked for whole objects.
                self._ranged = False
                return self._get(wanted, kept, answers)
            raise failure from None
        if "head" not in options and len(data) != end - first:
            raise CutOffError(
                f"{self.where}: key {key!r}: {end - first} bytes were announced, {len(data)} came"
            )
        if "range" not in options and data:
            data = data[start:stop]
        tag, modified = Tag(meta["e_tag"], meta["version"]), meta["last_modified"].timestamp()
        return FetchedObject(data, tag, meta["size"], modified)

    def put(self, key: str, data: Buffer, condition: Condition = None) -> Tag:
        """Store an object and return its tag; `ConflictError` if the condition is not true."""
        mode: Any = "overwrite"
        if condition is not None:
            fields = {"e_tag": condition.etag, "version": condition.number}
            named = {name: value for name, value in fields.items() if value is not None}
            mode = "create" if condition == ABSENT else named
        value = memoryview(data).cast("B") if memoryview(data).nbytes else b""
        try:
            answer = self.store.put(self.prefix + key, value, mode=mode, use_multipart=False)
        except Exception as error:
            raise self._failed(error, key, writing=True) from None
        return Tag(answer["e_tag"], answer["version"])

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are absent stay absent."""

        def remove(key: str) -> None:
            try:
                self.store.delete(self.prefix + key)
            except FileNotFoundError:
                return
            except Exception as error:
                raise self._failed(error, key, writing=True) from None

        self.each(remove, keys)

    def list(self, folder: str) -> Iterator[str]:
        """Yield the names directly below a folder, sorted; those of folders end with a slash."""
        lead = f"{self.prefix}{folder}/" if folder else self.prefix
        try:
            found = self.store.list_with_delimiter(lead.removesuffix("/") or None)
        except Exception as error:
            raise self._failed(error, f"{folder}/") from None
        folders = (each for each in found["common_prefixes"] if each.startswith(lead))
        names = {f"{each.removeprefix(lead).rstrip('/')}/" for each in folders}
        # Some servers list an empty folder as an object.
        paths = (each["path"] for each in found["objects"])
        names |= {path.removeprefix(lead) for path in paths if path.startswith(lead)}
        return iter(sorted(names))

    def _behind(self, key: str, tag: Tag | None, start: int) -> FetchedObject | None:
        """Return the answer to a request of bytes behind the end of an object."""
        found = self.get(Requested(ObjectRange(key, 0, 0), tag))
        if found is not None and found.size > start:
            raise RemoteError(
                f"{self.where}: key {key!r} has {found.size} bytes, and the server refuses those "
                f"from {start} on"
            )
        return found

    def _failed(self, error: Exception, key: str, *, writing: bool = False) -> IngotError:
        """Return our error for one of obstore, without its text."""
        text, kinds = str(error), self._exceptions
        if not isinstance(error, kinds.BaseError | OSError | NotImplementedError):
            raise error
        where = f"{self.where}: key {key!r}"
        if isinstance(error, kinds.AlreadyExistsError):
            return ConflictError(f"{where}: exists already")
        if isinstance(error, kinds.PreconditionError):
            return ConflictError(f"{where}: changed meanwhile")
        if isinstance(error, kinds.NotSupportedError | NotImplementedError):
            return UnsupportedError(f"{where}: the store does not support the request")
        if not writing and _has(text, _IGNORED_RANGE):
            return UnsupportedError(f"{where}: the server ignores ranges")
        if not writing and _has(text, _RANGE):
            return RangeError(f"{where}: a range behind its end")
        said = _said(text)
        denied = isinstance(error, kinds.PermissionDeniedError | kinds.UnauthenticatedError)
        if denied or _DENIED.search(said):
            return AccessError(f"{where}: {said}: access is denied; check the credentials")
        if "NoSuchBucket" in text:
            return NotFoundError(f"{self.where}: there is no such bucket")
        if "409" in said:
            return ConflictError(f"{where}: {said}")
        kind = CutOffError if said == _CUT_OFF else RemoteError
        return kind(f"{where}: {said}")


def _taken(answer: Any, announced: int) -> bytes:
    """Return the bytes of an answer; memory grows with what arrives, not with what is announced."""
    if announced <= _AT_ONCE:
        return bytes(answer.bytes())
    return b"".join(map(bytes, answer.stream(min_chunk_size=_AT_ONCE)))


def _from_cache(kept: KeptRange) -> FetchedObject:
    return FetchedObject(kept.data, Tag(kept.etag, kept.number), kept.size)


def _has(text: str, words: Iterable[str]) -> bool:
    return any(word in text for word in words)


def _said(text: str) -> str:
    """Return what a server answered, or what became of the request, in words of our own."""
    status, code = _STATUS.search(text), _CODE.search(text)
    if status is not None:
        return f"{status[1]} {code[1]}" if code else f"status {status[1]}"
    for words, meaning in (
        (_TIMED_OUT, "no answer in time"),
        (_REFUSED, "no connection to the server"),
        (_REDIRECTED, "the server sends the request elsewhere"),
        (_OTHER_BYTES, "the server sends other bytes than those asked for"),
        (_CUT, _CUT_OFF),
    ):
        if _has(text, words):
            return meaning
    if "credential" in text.lower():
        return "there are no credentials, or they cannot be fetched"
    return "the request failed"

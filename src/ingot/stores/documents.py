"""Documents of a dataset: whether a store still has the bytes that a value was made from.

Other programs change the metadata of a dataset without its lock and without a new version, so only
the files themselves show it. This module compares documents; what they say is not its concern.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from ingot.errors import IngotError
from ingot.native import NativeDocuments
from ingot.stores.store import Batch, Commit, Delete, Edit, Extent, Put, Store

__all__ = ["ABSENT", "DocumentCheck", "Documents", "documents_after", "identities"]

Value = TypeVar("Value")

Documents: TypeAlias = Mapping[str, bytes | None]
"""The contents of documents by key; None for a document that is absent."""

ABSENT: Final = "absent"
"""The identity of a key that is known to be absent."""

# What no identity equals: the document has to be read.
_UNKNOWN: Final = object()


def identities(store: Store, keys: Sequence[str]) -> list[Hashable | None]:
    """Return the identity of each key (`Store.identity`), by one call where the store has one.

    Where the store can tell, a key that is absent has the identity `ABSENT`.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"a": b"alpha"})
    >>> before = identities(store, ["a"])
    >>> store.apply(Commit(publish=(Put("a", b"beta"),)))
    >>> identities(store, ["a"]) == before
    False
    """
    own: Callable[[Sequence[str]], list[Hashable | None]] | None
    own = getattr(store, "identities", None)
    return [store.identity(key) for key in keys] if own is None else own(keys)


def documents_after(documents: Documents, commit: Commit) -> Documents:
    """Return documents as a commit of whole values leaves them.

    >>> documents_after({"a": b"1", "b": b"2"}, Commit(publish=(Put("a", b"3"), Put("c", b"4"))))
    {'a': b'3', 'b': b'2'}
    """
    values = {edit.key: bytes(edit.data) for edit in commit.edits if isinstance(edit, Put)}
    return {key: values.get(key, data) for key, data in documents.items()}


class _Record(NamedTuple, Generic[Value]):
    """The identities that the documents of a value had when they were last compared."""

    value: Value
    keys: tuple[str, ...]
    identities: list[object]
    kept: NativeDocuments | None = None
    """What knows the identities instead, where the store compares documents itself."""
    names: frozenset[str] = frozenset()
    """The names of the documents without their folders, where the store compares them."""


class DocumentCheck(Generic[Value]):
    """Compares the documents that a value was made from with those of a store.

    As long as their identities are the same as in the comparison before, they are not read.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"length": b"3"})
    >>> check = DocumentCheck()
    >>> check.compare(store, 3, {"length": b"3"}), check.is_known(store, 3)
    (True, True)
    >>> store.apply(Commit(publish=(Put("length", b"4"),)))
    >>> check.is_known(store, 3), check.compare(store, 3, {"length": b"3"})
    (False, False)
    """

    __slots__ = ("_record",)

    def __init__(self) -> None:
        # One tuple, so that other threads never see half of a change.
        self._record: _Record[Value] | None = None

    def is_known(self, store: Store, value: Value) -> bool:
        """Return whether the documents of a value were compared, and none has changed since.

        False says nothing: `compare` then finds out.
        """
        record = self._record
        if record is None or record.value is not value:
            return False
        if record.kept is not None:
            return _checked(record.kept, strict=True)
        return identities(store, record.keys) == record.identities

    def compare(
        self, store: Store, value: Value, documents: Documents, *, strict: bool = False
    ) -> bool:
        """Return whether a store has the documents of a value, byte for byte.

        If `strict`, a document that was written again since the last comparison differs, whatever
        its bytes: other programs write it along with the data. A value without documents never
        has them.
        """
        keys = tuple(documents)
        record, self._record = self._record, None
        known_before = record is not None and record.value is value and record.keys == keys
        kept = record.kept if record is not None and known_before else None
        if kept is None and keys:
            keep: Callable[[Documents], NativeDocuments | None] | None
            keep = getattr(store, "keep_documents", None)
            kept = None if keep is None else keep(documents)
        if kept is not None:
            same = _checked(kept, strict=strict)
            names = frozenset(key.rpartition("/")[2] for key in keys)
            self._record = _Record(value, keys, [], kept, names) if same else None
            return same
        known: list[object] = [_UNKNOWN] * len(keys)
        if record is not None and record.value is value and record.keys == keys:
            known = record.identities
        # Asked for first: a document that changes after that has another identity.
        now = identities(store, keys)
        pairs = zip(now, known, strict=True)
        if strict and any(each != old for each, old in pairs if old is not _UNKNOWN):
            return False
        doubtful = [
            # One byte more shows that a document has become longer.
            Extent(key, 0, len(data or b"") + 1)
            for (key, data), each, old in zip(documents.items(), now, known, strict=True)
            if each != old and not (each == ABSENT and data is None)
        ]
        found = store.read(Batch(doubtful)) if doubtful else []
        if not keys or found != [documents[extent.key] for extent in doubtful]:
            return False
        fresh = [_UNKNOWN if each is None else each for each in now]
        self._record = _Record(value, keys, fresh)
        return True

    def follow(self, value: Value, after: Value, edits: Iterable[Edit]) -> None:
        """Note that a commit has made one value of another; documents it wrote are read again."""
        record = self._record
        if record is None or record.value is not value:
            self._record = None
            return
        keys, known = record.keys, record.identities
        if record.kept is not None:
            for edit in edits:
                # A document of the same name elsewhere may be another one of the value.
                if edit.key.rpartition("/")[2] in record.names and not _put(record.kept, edit):
                    self._record = None
                    return
            if after is not value:
                self._record = _Record(after, keys, known, record.kept, record.names)
            return
        written = [edit.key for edit in edits if edit.key in keys]
        if written:
            pairs = zip(keys, known, strict=True)
            known = [_UNKNOWN if key in written else each for key, each in pairs]
        elif after is value:
            return
        self._record = _Record(after, keys, known)

    def kept(self, value: Value) -> NativeDocuments | None:
        """Return the documents of a value that the store compares itself, once they were compared.

        >>> DocumentCheck().kept(3) is None
        True
        """
        record = self._record
        return None if record is None or record.value is not value else record.kept

    def forget(self) -> None:
        """Forget what was compared, and the value."""
        self._record = None


def _checked(kept: NativeDocuments, *, strict: bool) -> bool:
    try:
        return kept.check(strict)
    except (IngotError, OSError):
        return False  # Reading the documents one by one raises the right error.


def _put(kept: NativeDocuments, edit: Edit) -> bool:
    """Expect what an edit leaves of a document; return False if only the store knows that."""
    if isinstance(edit, Put):
        return kept.put(edit.key, bytes(edit.data))
    return isinstance(edit, Delete) and kept.put(edit.key, None)

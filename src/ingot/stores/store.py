"""The contract of a store: keys that hold bytes, locations of bytes, and edits that change them.

A format turns chunk numbers into locations (`Extent`, `Inline`, `Constant`) and changes into a
`Commit`; a store reads the locations and applies the commit.

>>> commit = Commit(prepare=(Put("data/0", b"abc"),), publish=(Put("sizes", b"3"),))
>>> print(commit)
prepare: Put('data/0', 3 bytes)
publish: Put('sizes', 1 byte)
"""

import enum
import functools
import os
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import (
    TYPE_CHECKING,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    TypeGuard,
    cast,
    runtime_checkable,
)

from ingot._lazy import deferred
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    FormatError,
    NotFoundError,
    ReadOnlyError,
    UnsafeError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import hashlib
    from concurrent.futures import Executor

    from ingot import native
else:
    hashlib = deferred("hashlib")

__all__ = [
    "FIRST_BYTES",
    "READING",
    "READING_AND_WRITING",
    "SPARES",
    "ArrivingStore",
    "Batch",
    "Buffer",
    "Commit",
    "Constant",
    "Delete",
    "Durability",
    "Edit",
    "ExtendableStore",
    "Extent",
    "Feature",
    "FilePiece",
    "Grown",
    "Inline",
    "Location",
    "MemoryFillingStore",
    "Move",
    "Outcome",
    "Patch",
    "Patches",
    "Phase",
    "Piece",
    "PiecewiseStore",
    "Put",
    "SteadyReader",
    "Store",
    "Truncate",
    "ValuesToRead",
    "bytes_at_once",
    "bytes_to_write",
    "check_commit",
    "check_key",
    "check_new_key",
    "check_range",
    "check_reach",
    "check_writable",
    "compose",
    "extend",
    "first_bytes",
    "is_file_piece",
    "is_staged",
    "native_names",
    "native_patches",
    "native_root",
    "opened_values",
    "parts_of",
    "patched",
    "put_pieces",
    "staged_key",
    "steady_reader",
    "whole_keys",
]

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Bytes to be written: C-contiguous, and left alone until the commit that holds them is applied."""

Durability: TypeAlias = Literal["full", "process"]
"""What an applied commit survives: a power cut, or only the end of the process."""


class Feature(enum.Flag):
    """What a store can do; see `Store.features`.

    >>> Feature.RANGES in Feature.RANGES | Feature.LIST
    True
    """

    RANGES = enum.auto()
    """Reads part of a key without fetching the rest."""
    LIST = enum.auto()
    """`names` works. Without it `names` raises `UnsupportedError`."""
    WRITE = enum.auto()
    """`apply` works. Without it `apply` raises `ReadOnlyError`."""
    ATOMIC_PUT = enum.auto()
    """Every reader sees the whole of a `Put`, or nothing of it."""
    PATCH = enum.auto()
    """`Patch`, `Truncate`, `extend` and `Grown` work. Without it they are `UnsupportedError`."""
    RENAME = enum.auto()
    """`Move` works. Without it a commit with a move is `UnsupportedError`, and values are staged
    in memory."""
    HELD = enum.auto()
    """The values are in memory: a whole key is read without a copy, a part of it with one."""
    REMOTE = enum.auto()
    """Every batch of reads waits for a network: the bytes of a chunk that are not needed are not
    fetched to compare the checksum of the whole chunk, unless it is to be compared always."""
    NATIVE = enum.auto()
    """Keys are plain files below the attribute `root`, a directory: the kernel may open and read
    them itself, under the names of `native_names`. A store that wraps another one advertises this
    only if these names say all that it changes, or it would be bypassed."""


READING: Final = Feature.RANGES | Feature.LIST
"""The features of a read-only store in memory, in a folder or in an archive."""
READING_AND_WRITING: Final = (
    READING | Feature.WRITE | Feature.ATOMIC_PUT | Feature.PATCH | Feature.RENAME
)
"""The features of a writable one."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of one key: `length` of them from `start`, or all that follow when it is None.

    A length is an upper bound: a key that ends earlier gives fewer bytes.

    >>> Extent("data/0", start=16, length=-1)
    Traceback (most recent call last):
    ingot.errors.FormatError: 'data/0': an extent of -1 bytes from 16
    """

    key: str
    start: int = 0
    length: int | None = None

    def __post_init__(self) -> None:
        if self.start < 0 or (self.length is not None and self.length < 0):
            raise FormatError(f"{self.key!r}: an extent of {self.length} bytes from {self.start}")


class Batch(tuple[Extent, ...]):
    """Extents that are read together again and again: their keys differ, and are checked once.

    `prepared` is for the store that reads them: the form in which it reads them fastest.

    >>> Batch([Extent("a"), Extent("a", 5)])
    Traceback (most recent call last):
    ingot.errors.ArgumentError: the keys of a batch differ
    """

    prepared: object = None

    def __new__(cls, extents: Iterable[Extent]) -> "Batch":
        """Return the batch of these extents, after checking their keys."""
        batch = super().__new__(cls, extents)
        if len({check_key(extent.key) for extent in batch}) != len(batch):
            raise ArgumentError("the keys of a batch differ")
        return batch


@dataclass(frozen=True, slots=True, repr=False)
class Inline:
    """Bytes that are known without a read.

    >>> Inline(b"abc")
    Inline(3 bytes)
    """

    data: bytes

    def __repr__(self) -> str:
        return f"Inline({_amount(self.data)})"


@dataclass(frozen=True, slots=True)
class Constant:
    """No bytes at all: every cell holds `value`.

    >>> Constant(0)
    Constant(value=0)
    """

    value: object


Location: TypeAlias = Extent | Inline | Constant
"""Where the encoded bytes of a chunk lie."""


@dataclass(frozen=True, slots=True, repr=False)
class Put:
    """Make `data` the whole value of `key`, whether or not the key exists.

    >>> Put("sizes", b"{}")
    Put('sizes', 2 bytes)
    """

    key: str
    data: Buffer

    def __repr__(self) -> str:
        return f"Put({self.key!r}, {_amount(self.data)})"


@dataclass(frozen=True, slots=True, repr=False)
class Patch:
    """Write `data` over the value of `key` from `start` on; past its end the value grows.

    The key must exist (`NotFoundError`) and reach to `start` (`CorruptionError`): a patch never
    leaves a hole. Where the bytes are `free`, the committed state does not reach them, and they may
    be written in `prepare`. The caller answers for that; a transaction forgets it, since an earlier
    change of it may have freed them.

    >>> Patch("frame", 8, b"index")
    Patch('frame', 8, 5 bytes)
    """

    key: str
    start: int
    data: Buffer
    free: bool = False

    def __post_init__(self) -> None:
        if self.start < 0:
            raise FormatError(f"{self.key!r}: a patch from {self.start}")

    def __repr__(self) -> str:
        return f"Patch({self.key!r}, {self.start}, {_amount(self.data)})"


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove `key`; an absent key stays absent.

    >>> Delete("data/7")
    Delete(key='data/7')
    """

    key: str


@dataclass(frozen=True, slots=True)
class Move:
    """Make the value of `source` that of `key`; `source` is absent from then on.

    A value too large for memory is written under a staged name, piece by piece, and published in
    one step. So `source` is a staged name in the folder of `key`, and must exist
    (`NotFoundError`). Its size and checksum (CRC-32), if given, need not be found by reading it.

    >>> Move("data/.g-2f81-7", "data/7")
    Move(source='data/.g-2f81-7', key='data/7')
    >>> Move("data/6", "data/7")
    Traceback (most recent call last):
    ingot.errors.FormatError: 'data/7': only a staged name beside it can become it, not 'data/6'
    """

    source: str
    key: str
    size: int | None = field(default=None, repr=False)
    checksum: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        folder, _, name = self.source.rpartition("/")
        if folder != self.key.rpartition("/")[0] or not is_staged(name):
            raise FormatError(
                f"{self.key!r}: only a staged name beside it can become it, not {self.source!r}"
            )


@dataclass(frozen=True, slots=True)
class Grown:
    """Make bytes that `Store.extend` has written behind the end of a key a part of its value.

    They are `size` bytes from `start` on, with this checksum (CRC-32); None where a piece has
    written itself. The edit belongs to
    `prepare`: the bytes are durable before the edits of `publish` make a reader reach them. What
    an extend that was not committed has left behind them is cut off.

    >>> Grown("frame", 40, 5, 0xCBF43926)
    Grown(key='frame', start=40, size=5)
    """

    key: str
    start: int
    size: int
    checksum: int | None = field(repr=False)


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut off the value of `key` behind its first `size` bytes.

    The key must exist (`NotFoundError`) and have as many bytes (`CorruptionError`).

    >>> Truncate("frame", 40)
    Truncate(key='frame', size=40)
    """

    key: str
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise FormatError(f"{self.key!r}: cut to {self.size} bytes")


Edit: TypeAlias = Put | Patch | Delete | Move | Grown | Truncate
"""One change of one key."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A change as a value: it can be printed, tested, and cut in half.

    `prepare` touches only bytes that the committed state does not reach, `publish` switches from
    the old state to the new one, `cleanup` removes what the new state does not reach.

    The law: **cut anywhere, the old or the new state is read.** The builder of a commit puts its
    edits into the phase they belong to; a store keeps the order:

    - The whole commit is checked (`check_commit`) before its first edit.
    - A phase begins when the one before it is done; edits take effect in the order they stand.
    - An edit that fails ends the commit. No edit after it takes effect; those before it in the
      same phase may have; the phases before it have.
    - A store may carry out the net effect of a phase: of two edits of one key, the last decides.

    >>> Commit(publish=(Put("sizes", b"3"),), cleanup=(Delete("data/1"),)).edits
    (Put('sizes', 1 byte), Delete(key='data/1'))
    """

    prepare: tuple[Edit, ...] = ()
    publish: tuple[Edit, ...] = ()
    cleanup: tuple[Edit, ...] = ()

    @property
    def edits(self) -> tuple[Edit, ...]:
        """All edits in the order they take effect."""
        return self.prepare + self.publish + self.cleanup

    @property
    def phases(self) -> tuple[tuple["Phase", tuple[Edit, ...]], ...]:
        """The edits of each phase, with its name, in their order."""
        return ("prepare", self.prepare), ("publish", self.publish), ("cleanup", self.cleanup)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {edit}" for name, edits in self.phases for edit in edits)


@runtime_checkable
class Store(Protocol):
    """Keys that hold bytes. `ingot.testing.StoreContract` tests an implementation.

    Every method refuses keys that `check_key` refuses, and may be called from several threads.
    """

    @property
    def features(self) -> Feature:
        """What this store can do."""
        ...

    @property
    def location(self) -> str:
        """Where the store is, for messages."""
        ...

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, in order.

        None means that the key is absent, and nothing else means that: any other failure raises,
        with the key in the text. Fewer bytes than asked mean that the key ends there. Nothing is
        allocated for bytes that are not stored. Where puts are atomic, all extents of one key come
        from one value of it.
        """
        ...

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        ...

    def identity(self, key: str) -> Hashable | None:
        """Return a value that changes whenever the bytes of `key` may have changed.

        Callers keep it with what they derive from the bytes: they ask for it before they read, and
        use what they derived as long as it is the same. A value that has changed never returns.
        None means that nothing may be kept: the key is absent, the store has no such value, or the
        key was changed so recently that another change could leave the value as it is.
        """
        ...

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below the folder `prefix`, sorted; folders end with a slash.

        `prefix` may end with a slash itself. A folder that is absent has no names. Staged names
        (`is_staged`) are left out unless `hidden`; names that cannot be part of a key always are.
        """
        ...

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit by the law of `Commit`; when it returns, the change has `durability`.

        A store that is always durable, or that ends with the process, ignores `durability`.
        """
        ...


def native_root(store: Store) -> str:
    """Return the directory of a store that has `Feature.NATIVE`.

    >>> from ingot.stores import LocalStore
    >>> native_root(LocalStore("/data/prices"))
    '/data/prices'
    """
    root: str = store.root  # type: ignore[attr-defined]  # The feature promises the attribute.
    return root


def native_names(
    store: Store, concerned: Callable[[str], bool] | None = None
) -> Mapping[str, str | None] | None:
    """Return the keys whose files have other names; None stands for an absent key.

    Such a name, once it is gone, has become the key itself. All is None where the kernel cannot
    read the files at all: the store is not native, or the bytes of a file are not those of the key.
    `concerned` says which keys are meant; without it all are.

    >>> from ingot.stores import MemoryStore
    >>> native_names(MemoryStore()) is None
    True
    """
    if Feature.NATIVE not in store.features:
        return None
    names: Callable[[Callable[[str], bool] | None], Mapping[str, str | None] | None] | None
    names = getattr(store, "native_names", None)
    return {} if names is None else names(concerned)


def native_patches(
    store: Store, concerned: Callable[[str], bool]
) -> Mapping[str, tuple[tuple[int, bytes], ...]] | None:
    """Return the bytes over files: by key, each with the place where they start.

    All other bytes of a key are those of its file. All is None where that is not so for a key that
    is `concerned`: the store is not native, or a key is removed, cut off, or in another file.

    >>> from ingot.stores import MemoryStore
    >>> native_patches(MemoryStore(), str.isalpha) is None
    True
    """
    if Feature.NATIVE not in store.features:
        return None
    patches: (
        Callable[[Callable[[str], bool]], Mapping[str, tuple[tuple[int, bytes], ...]] | None] | None
    )
    patches = getattr(store, "native_patches", None)
    return {} if patches is None else patches(concerned)


_CONTROL: Final = r"\x00-\x1f\x7f-\x9f"
_DRIVE: Final = "[A-Za-z]:"
# The lookahead rejects most names before the slower comparison without case.
_DEVICE: Final = (
    r"(?=[acnlpACNLP])(?i:con(?:in\$|out\$)?|prn|aux|nul|(?:com|lpt)[0-9¹²³]) *(?:[.:/]|\Z)"
)
_DOTS: Final = r"[. ]*\.(?:/|\Z)"
_PART: Final = rf"(?!{_DRIVE}|{_DEVICE}|{_DOTS})[^/\\{_CONTROL}]{{1,255}}+(?<! )"
_KEY: Final = re.compile(rf"{_PART}(?:/{_PART})*+")
_PART_BYTES: Final = 255
_LAST_DOT: Final = re.compile(r"\.(?:/|\Z)")
# Windows removes such dots: the key would be that of another file.
_REMOVES_DOTS: Final = os.name == "nt"


@runtime_checkable
class ExtendableStore(Protocol):
    """A store with `Feature.PATCH`: bytes can be written behind the end of a key."""

    def extend(self, key: str, pieces: "Iterable[Piece]", *, end: int | None = None) -> Grown:
        """Write bytes behind the end of a key, and return the edit that makes them part of it.

        Called by the one writer, inside its turn: until the edit is applied in that turn, the
        committed state does not reach the bytes. `end` is where the committed state of the key
        ends, its size by default. Bytes behind `end` were left by an extend that was not
        committed, and are overwritten.

        `NotFoundError` for a key that is absent, `CorruptionError` for an `end` that leaves a hole
        or lies before bytes that are committed, `UnsupportedError` without `Feature.PATCH`.
        """
        ...


def extend(store: Store, key: str, pieces: "Iterable[Piece]", *, end: int | None = None) -> Grown:
    """Write bytes behind the end of a key; see `ExtendableStore.extend`.

    `UnsupportedError` for a store that cannot.
    """
    # One attribute tells; comparing with the whole protocol takes long.
    if not hasattr(store, "extend"):
        raise UnsupportedError(f"{store.location}: cannot write behind the end of {key!r}")
    return cast(ExtendableStore, store).extend(key, pieces, end=end)


@runtime_checkable
class FileBackedStore(Protocol):
    """A store whose values are bytes of a file, though a key is no file: an archive."""

    def locate_bytes(
        self, extents: Sequence[Extent], *, threads: int, verify: str
    ) -> "list[bytes | native.FileRange | None]":
        """Return what `read` does, but ranges of an open file instead of bytes where it can.

        Whole values are compared with the checksums that the store itself has of them: `verify` is
        "first", "always" or "never", as in `Options`.
        """
        ...


Part: TypeAlias = tuple[int, int, int]
"""A part of a value: the number of the value, and where the part begins and ends."""


class ValuesToRead(Protocol):
    """Values that are open, to be read into memory of the caller."""

    sizes: list[int | None]
    """The size of each value; None for a key that is absent."""

    def begin_reading(
        self, memory: memoryview, parts: "Sequence[Part]", executor: "Executor", threads: int
    ) -> None:
        """Begin to read parts, one behind the other, into memory that has room for them.

        The executor runs what Python does of it, `threads` are for all else. The values stay open
        until it has ended, even where nothing waits for it.
        """
        ...

    def read_parts(self, memory: memoryview, parts: "Sequence[Part]", threads: int) -> None:
        """Do the same, and return when it is done."""
        ...

    def finish_reading(self) -> None:
        """Wait until all parts are read; raise the error of the first one that cannot be."""
        ...


class MemoryFillingStore(Protocol):
    """A store that reads values into memory of the caller, by several threads."""

    def open_values(self, extents: Sequence[Extent]) -> AbstractContextManager[ValuesToRead] | None:
        """Return what `read` does as values that are open; None where they have to be read."""
        ...


def fills_memory(store: Store) -> bool:
    """Return whether a store may be able to read values into memory of the caller."""
    return hasattr(store, "open_values")


def opened_values(
    store: Store, extents: Sequence[Extent]
) -> AbstractContextManager[ValuesToRead] | None:
    """Return the values of extents, open to be read into memory; None where a store has no such."""
    if not fills_memory(store):
        return None
    return cast(MemoryFillingStore, store).open_values(extents)


class ArrivingStore(Protocol):
    """A store that waits for a network: the first values can be used before the last are here."""

    def arriving(self, extents: Sequence[Extent]) -> Iterator[list[tuple[int, bytes | None]]]:
        """Yield what `read` returns, with the places of the extents, as it arrives."""
        ...


def read_or_locate(
    store: Store, extents: Sequence[Extent], *, threads: int, verify: str
) -> "list[bytes | native.FileRange | None]":
    """Return the bytes of extents, or ranges of files that hold them, for the native kernel."""
    if hasattr(store, "locate_bytes"):
        located = cast(FileBackedStore, store)
        return located.locate_bytes(extents, threads=threads, verify=verify)
    return [*store.read(extents)]


class SteadyReader(Protocol):
    """Reads several batches: all bytes of one key come from one value of it."""

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, as `Store.read` does."""
        ...


def steady_reader(store: Store) -> SteadyReader:
    """Return a reader for batches that belong together; the store itself where it has none.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore()
    >>> steady_reader(store) is store
    True
    """
    own: Callable[[], SteadyReader] | None = getattr(store, "reading", None)
    return store if own is None else own()


FIRST_BYTES: Final = 4096
"""What is read first of a chunk: its header and the block starts of all but huge chunks."""


def first_bytes(store: Store) -> int:
    """Return how much of a chunk is read before it is known which of its bytes are needed.

    >>> from ingot.stores import MemoryStore
    >>> first_bytes(MemoryStore())
    4096
    """
    stated: int = getattr(store, "first_bytes", FIRST_BYTES)
    return stated


def bytes_at_once(store: Store) -> int:
    """Return how many bytes a store brings in less time than another batch of reads takes.

    >>> from ingot.stores import MemoryStore
    >>> bytes_at_once(MemoryStore())
    0
    """
    stated: int = getattr(store, "bytes_at_once", 0)
    return stated


@runtime_checkable
class FilePiece(Protocol):
    """A piece of a value that writes itself into an open file, so that it is never in memory."""

    def write_to(self, descriptor: int, start: int) -> int:
        """Write the piece from a place of the file on, and return its length."""
        ...

    def __iter__(self) -> Iterator[Buffer]:
        """Yield the same bytes, for a store without files; only one of the two is called, once."""
        ...

    @property
    def checksum(self) -> int | None:
        """The CRC-32 of the bytes that it has written; None where that is not known."""
        ...


def is_file_piece(piece: "Piece") -> TypeGuard[FilePiece]:
    """Return whether a piece writes itself into a file.

    >>> is_file_piece(b"abc")
    False
    """
    # One attribute tells; comparing with the whole protocol takes long.
    return hasattr(type(piece), "write_to")


Piece: TypeAlias = Buffer | FilePiece
"""A part of a value that is written piece by piece."""


@runtime_checkable
class PiecewiseStore(Protocol):
    """A store that stages a value piece by piece, so that it is never in memory as a whole."""

    def stage_pieces(
        self, key: str, pieces: Iterable[Piece], *, head: Callable[[], Buffer] | None = None
    ) -> Move:
        """Write a value under a staged name, and return the edit that makes it that of `key`.

        `head` is called behind the last piece, and what it returns replaces the first bytes.
        """
        ...


def put_pieces(
    store: Store,
    key: str,
    pieces: Iterable[Piece],
    *,
    head: Callable[[], Buffer] | None = None,
) -> Put | Move:
    """Return the edit that makes pieces the value of a key, staged where the store can.

    `head` is called behind the last piece, and what it returns replaces the first bytes: a header
    that says where the pieces lie.

    >>> from ingot.stores import MemoryStore
    >>> put_pieces(MemoryStore(), "a", [b"....", b"alpha"], head=lambda: b"head").data
    b'headalpha'
    """
    if Feature.RENAME in store.features and isinstance(store, PiecewiseStore):
        return store.stage_pieces(key, pieces, head=head)
    value = b"".join(chain.from_iterable(map(parts_of, pieces)))
    first = b"" if head is None else bytes(head())
    return Put(key, first + value[len(first) :] if first else value)


def parts_of(piece: Piece) -> Iterable[Buffer]:
    """Return the bytes of a piece, in parts.

    >>> list(parts_of(b"abc"))
    [b'abc']
    """
    return (piece,) if isinstance(piece, Buffer) else piece


def check_key(key: str) -> str:
    r"""Return `key` when it is safe to read in every store, else raise `UnsafeError`.

    A key is a relative path: parts joined by "/". No part is empty, consists of dots and spaces, is
    longer than 255 bytes in UTF-8, holds a backslash or a control character, begins with a drive
    ("C:"), ends with a space, or is the name of a Windows device with or without an extension.

    The rules are the same on every system: a key often comes out of a file, and what is written
    here must not mean something else than a file below the root where it is read. A colon that
    follows no single letter is left alone, for names such as "12:30".

    One rule depends on the use. The names of nodes in Zarr may end with a dot, but Windows removes
    that dot. So a part that ends with a dot is read on other systems only, and never written:
    `check_commit` refuses it everywhere.

    >>> check_key("table/price/data/__0.blp")
    'table/price/data/__0.blp'
    >>> check_key("../secret")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: key '../secret': the part '..' leaves its folder
    >>> check_key("table/AUX.blp")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: key 'table/AUX.blp': the part 'AUX.blp' names a device
    """
    if _KEY.fullmatch(key) and (key.isascii() or _fits(key)):
        return _check_last_dots(key) if _REMOVES_DOTS else key
    raise UnsafeError(f"key {_shortened(key)!r}: {_fault(key)}")


def check_new_key(key: str) -> str:
    """Return `key` when it may be written, else raise `UnsafeError`: see `check_key`.

    >>> check_new_key("a./c/0")
    Traceback (most recent call last):
    ingot.errors.UnsafeError: key 'a./c/0': a part ends with a dot, which Windows removes
    """
    return _check_last_dots(check_key(key))


def check_commit(store: Store, commit: Commit) -> None:
    """Check, before the first edit of `commit`, all that can be known of it.

    Raises `ReadOnlyError` when the store does not write, `UnsupportedError` for an edit that
    renames, or changes a part of a key, where it cannot, `UnsafeError` for a key that `check_key`
    refuses, `FormatError` for bytes behind the end of a key that would be published before they are
    durable.
    What depends on the stored bytes, a store checks by `check_range` before each phase.

    >>> from ingot.stores import MemoryStore
    >>> check_commit(MemoryStore(writable=False), Commit(cleanup=(Delete("data/0"),)))
    Traceback (most recent call last):
    ingot.errors.ReadOnlyError: memory: opened for reading only
    """
    features, edits = store.features, commit.edits
    renames = patches = _CHANGING in features
    if not renames:
        check_writable(store)
        renames, patches = Feature.RENAME in features, Feature.PATCH in features
    if not edits:
        return
    # A commit of few keys is often the like of the one before; one of many would only fill memory.
    check = _check_repeated if len(edits) <= _FEW_EDITS else _check_new_keys
    check(tuple([edit.key for edit in edits]))
    for edit in edits:
        if isinstance(edit, Move):
            check_new_key(edit.source)
            if not renames:
                raise UnsupportedError(f"{store.location}: cannot rename {edit.source!r}")
        elif not patches and isinstance(edit, _IN_PLACE):
            raise UnsupportedError(f"{store.location}: cannot patch {edit.key!r} in place")
    for edit in commit.publish + commit.cleanup:
        if isinstance(edit, Grown):
            raise FormatError(f"{store.location}: {edit} belongs to the edits that prepare")


def check_writable(store: Store) -> None:
    """Raise `ReadOnlyError` when a store does not write."""
    if Feature.WRITE not in store.features:
        raise ReadOnlyError(f"{store.location}: opened for reading only")


_IN_PLACE: Final = Patch, Truncate, Grown
_CHANGING: Final = Feature.WRITE | Feature.RENAME | Feature.PATCH
_FEW_EDITS: Final = 64


def _check_new_keys(keys: tuple[str, ...]) -> None:
    for key in keys:
        check_new_key(key)


_check_repeated: Final = functools.lru_cache(maxsize=256)(_check_new_keys)

Phase: TypeAlias = Literal["prepare", "publish", "cleanup"]


def check_range(
    edit: Patch | Truncate, size: int | None, committed: int, phase: Phase, where: str
) -> None:
    """Raise an error for an edit that leaves a hole or touches bytes of the committed state.

    `size` is that of the key before the edit, None when it is absent; the committed state reaches
    its first `committed` bytes, none of them where the key is staged or was put by the same commit.

    >>> check_range(Patch("a", 2, b"x"), 4, 4, "publish", "memory")
    >>> check_range(Patch("a", 2, b"x"), 4, 4, "prepare", "memory")
    Traceback (most recent call last):
    ingot.errors.CorruptionError: memory: prepare: Patch('a', 2, 1 byte) touches the 4 bytes of ...
    """
    if size is None:
        what = "patch" if isinstance(edit, Patch) else "truncate"
        raise NotFoundError(f"{where}: no key {edit.key!r} to {what}")
    if isinstance(edit, Patch):
        check_reach(edit, size, where)
        touches = edit.start < committed and not edit.free and memoryview(edit.data).nbytes > 0
    else:
        if edit.size > size:
            raise CorruptionError(
                f"{where}: key {edit.key!r} holds {size} bytes, it cannot be cut to {edit.size}"
            )
        # The new state does not reach what is removed after it was published.
        touches = edit.size < committed and phase == "prepare"
    if touches and phase != "publish":
        raise CorruptionError(
            f"{where}: {phase}: {edit} touches the {committed} bytes of {edit.key!r} that the "
            "committed state reaches"
        )


SPARES: Final = frozenset(
    (
        *(f".g-spare-{kind}{n or ''}" for kind in ("chunk", "document") for n in range(8)),
        ".g-spare-journal",
    )
)
"""The staged names, in the folder of a dataset, of files into which the kernel writes values.

Their bytes mean nothing, and they stay when a writer ends.
"""

_STAGED: Final = ".g-"
_TRANSACTION: Final = re.compile("[0-9A-Za-z.]{1,64}")
_STAGED_NAME: Final = re.compile(r"\.g-[0-9A-Za-z.]{1,64}-(.+)", re.DOTALL)
_LONGEST_STAGED: Final = _PART_BYTES - 64 - len(_STAGED) - len("-")


def staged_key(key: str, transaction: str) -> str:
    """Return the key, in the folder of `key`, under which its next value is staged.

    `transaction` is letters, digits and dots, so that the name behind it can be found.

    >>> staged_key("price/data/__5.blp", "2f81")
    'price/data/.g-2f81-__5.blp'
    """
    if not _TRANSACTION.fullmatch(transaction):
        raise ArgumentError(f"transaction {transaction!r}: not 1 to 64 letters, digits and dots")
    folder, slash, name = key.rpartition("/")
    return f"{folder}{slash}{_STAGED}{transaction}-{_staged_name(name)}"


def is_staged(name: str, target: str | None = None) -> bool:
    """Return whether `name`, without its folder, is one that `staged_key` gives (for `target`).

    Folders never are; their names end with a slash.

    >>> is_staged(".g-2f81-__5.blp"), is_staged(".g-2f81-__5.blp", "__6.blp"), is_staged(".zarray")
    (True, False, False)
    >>> is_staged(".g-2f81-a/"), is_staged(".g-")
    (False, False)
    """
    if not name.startswith(_STAGED) or name.endswith("/"):
        return False
    found = _STAGED_NAME.fullmatch(name)
    return found is not None and (target is None or found[1] == _staged_name(target))


def _staged_name(name: str) -> str:
    # Names of files that are not UTF-8 have surrogates.
    data = name.encode(errors="surrogatepass")
    if len(data) <= _LONGEST_STAGED:
        return name
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _amount(data: Buffer) -> str:
    size = memoryview(data).nbytes
    return f"{size} byte" if size == 1 else f"{size} bytes"


def _fits(key: str) -> bool:
    try:
        return all(len(part.encode()) <= _PART_BYTES for part in key.split("/"))
    except UnicodeEncodeError:
        return False


def _shortened(key: str) -> str:
    return key if len(key) <= 300 else f"{key[:300]}…"


def _check_last_dots(key: str) -> str:
    """Return `key` unless one of its parts ends with a dot."""
    if "." in key and _LAST_DOT.search(key):
        raise UnsafeError(f"key {_shortened(key)!r}: a part ends with a dot, which Windows removes")
    return key


def _fault(key: str) -> str:
    if key.startswith("/"):
        return "an absolute path leaves the store"
    for part in key.split("/"):
        if fault := _fault_of_part(part):
            return fault
    return "not a safe path"


def _fault_of_part(part: str) -> str | None:
    shown = f"the part {_shortened(part)!r}"
    if not part:
        return "a part is empty"
    if part in (".", ".."):
        return f"{shown} leaves its folder"
    if not part.strip(". "):
        return f"{shown} has only dots and spaces"
    if re.search(rf"[\\{_CONTROL}]", part):
        return f"{shown} holds a backslash or a control character"
    if re.match(_DRIVE, part):
        return f"{shown} begins with a drive"
    if re.match(_DEVICE, part):
        return f"{shown} names a device"
    if part.endswith(" "):
        return f"{shown} ends with a space"
    if not _fits(part):
        return f"{shown} is longer than {_PART_BYTES} bytes or is not Unicode text"
    return None


@dataclass(frozen=True, slots=True)
class Patches:
    """Patches and truncations of a key whose other bytes stay, in their order."""

    key: str
    edits: tuple[Patch | Truncate, ...]


Outcome: TypeAlias = Put | Move | Delete | Patches
"""The net effect of edits on one key."""
_WHOLE_KEYS: Final = frozenset({Put, Move, Delete})


def compose(edits: Sequence[Edit]) -> tuple[tuple[Outcome, ...], tuple[Patch | Truncate, ...]]:
    """Return one outcome for each key, in the order of their last edits, and edits to do first.

    Those change values that are still staged, which no reader sees. Bytes behind the end of a key
    (`Grown`) have no outcome: they are written before.

    >>> compose([Put("a", b"012"), Delete("b"), Patch("a", 1, b"xyz"), Put("b", b"")])
    ((Put('a', 4 bytes), Put('b', 0 bytes)), ())
    >>> compose([Move(".g-1-a", "a"), Patch("a", 0, b"x")])
    ((Move(source='.g-1-a', key='a'),), (Patch('.g-1-a', 0, 1 byte),))
    """
    found: dict[str, Outcome] = {}
    early: list[Patch | Truncate] = []
    if not edits:
        return (), ()
    if len(edits) == 1 and type(edits[0]) in _WHOLE_KEYS:
        return (cast("Outcome", edits[0]),), ()
    if {*map(type, edits)} <= _WHOLE_KEYS:
        keys = {edit.key for edit in edits}
        sources = {edit.source for edit in edits if isinstance(edit, Move)}
        if len(keys) == len(edits) and keys.isdisjoint(sources):
            return cast("tuple[Outcome, ...]", tuple(edits)), ()  # As of most commits.
    for edit in edits:
        if isinstance(edit, Grown):
            continue
        before = found.pop(edit.key, None)
        if isinstance(edit, Move):
            found[edit.key] = _moved(found.pop(edit.source, None), edit, early)
        elif not isinstance(edit, Patch | Truncate):
            found[edit.key] = edit
        elif isinstance(before, Move):
            early.append(replace(edit, key=before.source))
            found[edit.key] = Move(before.source, before.key)  # Its size and checksum change.
        else:
            found[edit.key] = _added(before, edit)
    return tuple(found.values()), tuple(early)


def whole_keys(store: Store, commit: Commit) -> Commit:
    """Return a commit with the same effect in which keys are replaced whole, not patched.

    The fallback for a store without `Feature.PATCH`, whatever the format. Changed keys are
    read as a whole. A key that is patched before it is published is replaced by `publish`: until
    then no reader reaches those bytes.

    >>> from ingot.stores import MemoryStore
    >>> store = MemoryStore({"a": b"0123"})
    >>> commit = Commit(prepare=(Patch("a", 4, b"45"),), publish=(Patch("a", 0, b"x"),))
    >>> whole_keys(store, commit).publish, whole_keys(store, commit).prepare
    ((Put('a', 6 bytes),), ())
    """
    if not any(isinstance(edit, _IN_PLACE) for edit in commit.edits):
        return commit
    prepare, early = _divided(commit.prepare)
    cleanup, late = _divided(commit.cleanup)
    values: dict[str, bytes] = {}
    edits: list[Edit] = []
    for edit in (*early, *commit.publish, *late):
        if isinstance(edit, Patch | Truncate):
            if edit.key not in values:
                (found,) = store.read([Extent(edit.key)])
                check_range(edit, None if found is None else len(found), 0, "publish", "a commit")
                values[edit.key] = found or b""
            value = values[edit.key]
            check_range(edit, len(value), 0, "publish", "a commit")
            if isinstance(edit, Patch):
                values[edit.key] = patched(value, edit, "a commit")
            else:
                values[edit.key] = value[: edit.size]
            edits = [each for each in edits if each.key != edit.key]
            edits.append(Put(edit.key, values[edit.key]))
        else:
            values.pop(edit.key, None)
            if isinstance(edit, Put):
                values[edit.key] = bytes(edit.data)
            edits.append(edit)
    return Commit(prepare, tuple(edits), cleanup)


def _divided(edits: Sequence[Edit]) -> tuple[tuple[Edit, ...], tuple[Patch | Truncate, ...]]:
    """Return the edits of whole keys, and those that change a part of one."""
    return (
        tuple(edit for edit in edits if not isinstance(edit, _IN_PLACE)),
        tuple(edit for edit in edits if isinstance(edit, Patch | Truncate)),
    )


def bytes_to_write(edits: Iterable[Edit]) -> int:
    """Return how many bytes edits write; a patch is written to the journal first.

    >>> bytes_to_write([Put("a", b"012"), Patch("b", 1, b"xy"), Delete("c")])
    7
    """
    count = 0
    for edit in edits:
        if isinstance(edit, Put):
            count += memoryview(edit.data).nbytes
        elif isinstance(edit, Patch):
            count += 2 * memoryview(edit.data).nbytes
    return count


def patched(value: Buffer, patch: Patch, where: str) -> bytes:
    """Return a value after a patch, which must begin inside the value or at its end."""
    check_reach(patch, memoryview(value).nbytes, where)
    old, data = bytes(value), bytes(patch.data)
    return old[: patch.start] + data + old[patch.start + len(data) :]


def check_reach(patch: Patch, size: int, where: str) -> None:
    """Raise `CorruptionError` for a patch that leaves a hole behind a value of `size` bytes."""
    if patch.start > size:
        raise CorruptionError(
            f"{where}: key {patch.key!r} holds {size} bytes, a patch starts at {patch.start}"
        )


def _moved(source: Outcome | None, move: Move, early: list[Patch | Truncate]) -> Outcome:
    if isinstance(source, Put):
        return Put(move.key, source.data)
    if isinstance(source, Delete):
        raise NotFoundError(f"a commit removes key {move.source!r} and moves it afterwards")
    if isinstance(source, Patches):
        early += source.edits
        return Move(move.source, move.key)
    if isinstance(source, Move):
        return replace(source, key=move.key)
    return move


def _added(before: Put | Delete | Patches | None, edit: Patch | Truncate) -> Outcome:
    if isinstance(before, Put):
        if isinstance(edit, Patch):
            return Put(edit.key, patched(before.data, edit, "a commit"))
        check_range(edit, memoryview(before.data).nbytes, 0, "publish", "a commit")
        return Put(edit.key, bytes(before.data)[: edit.size])
    if isinstance(before, Delete):
        raise NotFoundError(f"a commit removes key {edit.key!r} and changes it afterwards")
    earlier = before.edits if isinstance(before, Patches) else ()
    return Patches(edit.key, (*earlier, edit))

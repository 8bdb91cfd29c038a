"""A zip archive as a store: its members are the keys.

Members are read in place, without unpacking the archive. A commit writes a new archive, which
replaces the old one in a single step. `zip_format` has the bytes of the structure, `local.file` the
lock and the replacement.

Members are written without compression, since chunks are compressed already. Members that a commit
does not touch are copied as they are stored, piece by piece: the new archive is never in memory as
a whole, only what the commit itself holds is.
"""

import os
import zlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeAlias

from ingot import native, signals
from ingot.errors import CorruptionError, LimitError, NotFoundError
from ingot.stores import zip_format
from ingot.stores.local.beneath import Root
from ingot.stores.local.file import FileStore, FileTurn, apply_in_turn
from ingot.stores.local.files import read_at, write_at
from ingot.stores.patched import Extensions, PatchedValue
from ingot.stores.store import (
    READING,
    READING_AND_WRITING,
    Buffer,
    Commit,
    Delete,
    Durability,
    Edit,
    Extent,
    Feature,
    Grown,
    Patch,
    Phase,
    Put,
    Store,
    Truncate,
    check_commit,
    check_key,
    check_range,
    is_staged,
)
from ingot.stores.versions import NO_VERSION, Version, WriteTurn
from ingot.stores.zip_format import Directory, Member

__all__ = ["ZipStore"]

_WINDOW: Final = 2**16
_PIECE: Final = 2**20
_MOST_INFLATED: Final = 2**28

_Identity: TypeAlias = tuple[int, ...]
_Draft: TypeAlias = dict[str, "Member | PatchedValue"]


class ZipStore:
    """A zip archive of the local file system; keys are the names of its members.

    Without `writable` nothing is ever created or changed. With it the archive is created by the
    first commit, and every commit writes a new one, so a commit should change much at once. A store
    holds no descriptor between calls. A member that is compressed in the archive may have at most
    `most_inflated` bytes.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = ZipStore(os.path.join(folder.name, "example.zip"), writable=True)
    >>> store.apply(Commit(publish=(Put("data/0", b"abc"), Put("sizes", b"3"))))
    >>> store.read([Extent("data/0", start=1), Extent("data/1")]), list(store.names())
    ([b'bc', None], ['data/', 'sizes'])
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        writable: bool = False,
        locking: bool = True,
        wait: float = 10.0,
        most_inflated: int = _MOST_INFLATED,
    ) -> None:
        self._file: Final = FileStore(path, writable=writable, locking=locking, wait=wait)
        self._most: Final = most_inflated
        self._cached: tuple[_Identity, _Contents] | None = None
        self._extensions = Extensions()

    @property
    def features(self) -> Feature:
        """Ranges, listing, and writing when writable."""
        return READING_AND_WRITING if Feature.WRITE in self._file.features else READING

    @property
    def location(self) -> str:
        """The absolute path of the archive, for messages."""
        return self._file.location

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for a key that is absent."""
        for extent in extents:
            check_key(extent.key)
        with self._opened() as opened:
            return [None] * len(extents) if opened is None else opened.read(extents, self._most)

    def locate_bytes(
        self, extents: Sequence[Extent], *, threads: int, verify: str
    ) -> "list[bytes | native.FileRange | None]":
        """Return ranges of the archive instead of bytes, where members are not compressed."""
        for extent in extents:
            check_key(extent.key)
        with self._opened() as opened:
            if opened is None:
                return [None] * len(extents)
            file = native.open_file(opened.file.descriptor)
            if file is None:
                return [*opened.read(extents, self._most)]
            return opened.locate(extents, file, self._most, threads=threads, verify=verify)

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        check_key(key)
        with self._opened() as opened:
            member = None if opened is None else opened.member(key)
        return None if member is None else member.size

    def identity(self, key: str) -> Hashable | None:
        """Return the identity of the archive, which every commit replaces; None without `key`."""
        # Asked for first: an archive that is replaced meanwhile has another one.
        archive = self._file.identity(self._file.key)
        return None if self.size(key) is None else archive

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash."""
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        with self._opened() as opened:
            names = () if opened is None else opened.names(folder)
        return iter([name for name in names if hidden or not is_staged(name)])

    def apply(self, commit: Commit, *, durability: Durability = "full") -> None:
        """Apply a commit: a new archive replaces the old one."""
        check_commit(self, commit)
        if not commit.edits:
            return
        apply_in_turn(lambda: self.writing(durability=durability), commit)

    def writing(self, *, durability: Durability = "full") -> "ZipTurn":
        """Return a turn to write; entering it waits for other writers of the archive."""
        check_commit(self, Commit())
        return ZipTurn(self, self._file.writing(durability=durability))

    def extend(self, key: str, pieces: Iterable[Buffer], *, end: int | None = None) -> Grown:
        """Keep bytes behind the end of a key in memory, for the next archive."""
        check_commit(self, Commit(publish=(Truncate(key, 0),)))
        return self._extensions.add(key, pieces, self.size(key), end, self.location)

    def stage(self, key: str, data: Buffer) -> Put:
        """Return an edit that holds the value: an archive has no place for staged values."""
        return Put(check_key(key), data)

    def discard(self, edits: Iterable[Edit]) -> None:
        """Forget bytes behind the ends of keys; nothing was staged."""
        self._extensions.discard(edits)

    def recover(self) -> None:
        """Remove what a dead writer has left beside the archive."""
        self._file.recover()

    def version(self) -> Version | None:
        """Return a version that changes when the archive does, even by another program."""
        with self._opened() as opened:
            found = None if opened is None else hash(opened.contents.identity)
        return None if found is None else Version(found, settled=True)

    def view(self) -> Store:
        """Return a store that reads the committed state: this one, a commit is never half done."""
        return self

    @contextmanager
    def pin(self) -> Iterator[Store]:
        """Give a view of the committed state; writers wait until the block ends."""
        with self._file.pin():
            yield self

    def __repr__(self) -> str:
        return f"ZipStore({self.location!r}, writable={Feature.WRITE in self.features})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cached": None, "_extensions": Extensions()}

    def _opened(self) -> "_Opening":
        return _Opening(self)

    def _rewrite(self, commit: Commit, turn: WriteTurn) -> None:
        """Write a new archive as a commit leaves it, which replaces the old one.

        When an edit fails, the phases before it take effect, as in every store.
        """
        failures: list[BaseException] = []
        edits: tuple[Edit, ...] = ()
        try:
            with self._opened() as opened:
                drafting = _Drafting(opened, self.location, self._most, self._extensions)
                draft = drafting.drafted(commit, failures)
                if draft is not None:
                    _check_lost(opened, commit)
                    archive = _Archive(draft, opened)
                    edits = (self._file.stage_pieces(self._file.key, (archive,)),)
                    kept = any(
                        isinstance(v, Member) or v.source is not None for v in draft.values()
                    )
                    if opened is not None and not kept:
                        # Nothing of the old archive stays: it is replaced, not changed.
                        edits = (Delete(self._file.key), *edits)
        except BaseException:
            self._file.discard(edits)
            raise
        turn.commit(Commit(publish=edits))
        if failures:
            raise failures[0]

    def _contents(self, descriptor: int, size: int) -> "_Contents":
        facts = os.fstat(descriptor)
        identity = (facts.st_dev, facts.st_ino, size, facts.st_mtime_ns, facts.st_ctime_ns)
        cached = self._cached
        if cached is None or cached[0] != identity:
            directory = zip_format.parse_directory(_reader(descriptor), size, self.location)
            cached = identity, _Contents(identity, directory)
            self._cached = cached
        return cached[1]


class _Opening:
    """Opens an archive for one call; gives None when it is absent.

    No generator: Ctrl-C at the end of one may leave its frames alive, and the files of its caller.
    """

    __slots__ = ("_file", "_store")

    def __init__(self, store: ZipStore) -> None:
        self._store = store
        self._file: _OpenFile | None = None

    def __enter__(self) -> "_Opened | None":
        store = self._store
        self._file = file = _open_file(store._file.root, store._file.key)
        if file is None:
            return None
        try:
            contents = store._contents(file.descriptor, file.size)
        except BaseException:
            file.close()
            raise
        return _Opened(file, contents, store.location)

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


class ZipTurn:
    """A turn to write to a `ZipStore`, over a turn of the file that the archive is."""

    __slots__ = ("_file", "store")

    def __init__(self, store: ZipStore, file: FileTurn) -> None:
        self.store: Final = store
        self._file = file

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.store._extensions.clear()
        # Nothing follows: a Ctrl-C that was held back is raised here, with its note.
        self._file.__exit__(kind, error, trace)

    def commit(self, commit: Commit) -> int:
        """Apply a commit; return `NO_VERSION`.

        The version is that of a file, which a program without the lock may replace at any time, so
        the number of the new archive is not known.
        """
        check_commit(self.store, commit)
        self.store._rewrite(commit, self._file)
        return NO_VERSION


class _Contents:
    """The members of one state of the archive, with what was parsed of them."""

    __slots__ = ("_by_length", "_folders", "directory", "identity", "lost", "starts", "verified")

    def __init__(self, identity: _Identity, directory: Directory) -> None:
        self.identity = identity
        self.directory = directory
        self.starts: dict[str, int] = {}
        # The names of members that agreed with their checksum.
        self.verified: set[str] = set()
        self.lost: frozenset[str] | None = None if directory.gaps else frozenset()
        self._folders: Mapping[str, Sequence[str]] | None = None
        self._by_length: dict[int, list[Member]] | None = None

    def doubtful(self, key: str) -> list[Member]:
        """Return the members whose damaged name may be an absent key.

        They have a name of the same length, in characters or bytes, and were not read before.
        """
        if self._by_length is None:
            self._by_length = {}
            for name, member in self.directory.members.items():
                for length in {len(name), len(name.encode())}:
                    self._by_length.setdefault(length, []).append(member)
        lengths = {len(key), len(key.encode())}
        found = [member for length in lengths for member in self._by_length.get(length, ())]
        return [member for member in found if member.name not in self.starts]

    def trust(self, key: str) -> None:
        """Remember that no name of the length of `key` is damaged."""
        for length in {len(key), len(key.encode())}:
            if self._by_length is not None:
                self._by_length.pop(length, None)

    def names(self, folder: str, lost: Iterable[str]) -> Sequence[str]:
        if self._folders is None:
            self._folders = _folders([*self.directory.members, *lost])
        return self._folders.get(folder, ())


class _OpenFile:
    """A descriptor, which is closed at the latest when nothing refers to it any more."""

    __slots__ = ("descriptor", "size")

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.size = size

    @signals.uninterrupted
    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            # Nothing was written, so there is nothing that an error could mean.
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        # Ctrl-C may come before the file reached the variable that would close it.
        if self.descriptor >= 0:
            self.close()


@signals.uninterrupted
def _open_file(folder: str, name: str) -> _OpenFile | None:
    """Open a plain file of a folder; None when it is absent."""
    root = Root(folder)
    directory = root.open()
    if directory is None:
        return None
    try:
        found = root.open_file(directory, name)
    finally:
        with suppress(OSError):
            os.close(directory)
    return None if found is None else _OpenFile(*found)


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open archive, for one call."""

    file: _OpenFile
    contents: _Contents
    where: str

    def member(self, key: str) -> Member | None:
        """Return the member of a key; None when the archive has none.

        The directory has no checksum, and a damaged name would make a key absent. So before a key
        counts as absent, members with a name of its length are compared with their headers, and
        members are looked for that the directory does not name.
        """
        found = self.contents.directory.members.get(key)
        if found is None:
            if key in self.lost():
                raise CorruptionError(
                    f"{self.where}: member {key!r} lies in the archive, and the directory does not "
                    "name it"
                )
            for doubtful in self.contents.doubtful(key):
                self._start(doubtful)
            self.contents.trust(key)
        return found

    def lost(self) -> frozenset[str]:
        """Return the names of members that lie in the archive without being in its directory."""
        contents = self.contents
        if contents.lost is None:
            read = _reader(self.file.descriptor)
            contents.lost = zip_format.find_lost(contents.directory, read, self.where)
        return contents.lost

    def names(self, folder: str) -> Sequence[str]:
        """Return the names in a folder; lost members are listed, and raise an error when read."""
        return self.contents.names(folder, self.lost())

    def read(self, extents: Sequence[Extent], most: int) -> list[bytes | None]:
        inflated: dict[str, bytes] = {}
        found: list[bytes | None] = []
        for extent in extents:
            member = self.member(extent.key)
            if member is None:
                found.append(None)
            elif member.method == zip_format.STORED:
                found.append(self._cut(member, extent))
            else:
                if extent.key not in inflated:
                    ends = [_end(other, member) for other in extents if other.key == extent.key]
                    inflated[extent.key] = self._inflated(member, max(ends), most)
                found.append(inflated[extent.key][extent.start : _end(extent, member)])
        return found

    def locate(
        self,
        extents: Sequence[Extent],
        file: native.OpenFile,
        most: int,
        *,
        threads: int,
        verify: str,
    ) -> "list[bytes | native.FileRange | None]":
        """Return ranges of the archive, and the bytes of what is compressed."""
        found: list[bytes | native.FileRange | None] = []
        doubtful: dict[str, Member] = {}
        for extent in extents:
            member = self.member(extent.key)
            if member is None or member.method != zip_format.STORED:
                found += self.read([extent], most)
                continue
            start = self._start(member) + extent.start
            length = max(0, _end(extent, member) - extent.start)
            found.append((file, start, length))
            if length == member.size and verify != "never":
                doubtful[member.name] = member
        if verify == "first":
            doubtful = {k: v for k, v in doubtful.items() if k not in self.contents.verified}
        if doubtful:
            ranges = [(self._start(member), member.size) for member in doubtful.values()]
            for member, crc in zip(doubtful.values(), file.crc32(ranges, threads), strict=True):
                if crc != member.crc:
                    raise CorruptionError(f"{self._name(member)}: the checksum is wrong")
            if file.settled:
                self.contents.verified.update(doubtful)
        return found

    def value(self, member: Member, most: int) -> bytes:
        """Return the value of a member."""
        [found] = self.read([Extent(member.name)], most)
        assert found is not None
        return found

    def stored(self, member: Member) -> Iterator[bytes]:
        """Yield the bytes of a member as they are stored."""
        for start in range(0, member.stored, _PIECE):
            yield self._data(member, start, min(_PIECE, member.stored - start))

    def verify(self, member: Member) -> None:
        """Compare the checksum of a member that is stored without compression."""
        crc = 0
        for piece in self.stored(member):
            crc = _crc32(piece, crc)
        if crc != member.crc:
            raise CorruptionError(f"{self._name(member)}: the checksum is wrong")

    def _cut(self, member: Member, extent: Extent) -> bytes:
        end = _end(extent, member)
        data = self._data(member, extent.start, max(0, end - extent.start))
        if extent.start == 0 and end == member.size:
            self._check(member, data)
        return data

    def _inflated(self, member: Member, end: int, most: int) -> bytes:
        """Return the first bytes that a compressed member holds."""
        if end > most:
            raise LimitError(f"{self._name(member)}: {end} bytes, the limit is {most}")
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        pieces: list[bytes] = []
        count = start = 0
        for start in range(0, member.stored, _WINDOW):
            data = self._data(member, start, min(_WINDOW, member.stored - start))
            try:
                # One byte more than claimed proves that the claim is wrong.
                pieces.append(inflate.decompress(data, end + 1 - count))
            except zlib.error as error:
                raise CorruptionError(f"{self._name(member)}: {error}") from None
            count += len(pieces[-1])
            if inflate.eof or count > end:
                break
        found = b"".join(pieces)
        if end == member.size:
            whole = inflate.eof and not inflate.unused_data and start + _WINDOW >= member.stored
            if len(found) != end or not whole:
                raise CorruptionError(f"{self._name(member)}: does not hold the {end} bytes due")
            self._check(member, found)
        elif len(found) < end:
            raise CorruptionError(f"{self._name(member)}: ends after {len(found)} of {end} bytes")
        return found[:end]

    def _data(self, member: Member, start: int, length: int) -> bytes:
        first = self._start(member)
        data = read_at(self.file.descriptor, first + start, length) if length else b""
        if len(data) != length:
            raise CorruptionError(f"{self._name(member)}: {len(data)} of {length} bytes are stored")
        return data

    def _start(self, member: Member) -> int:
        """Return where the data of a member begins; its header is compared at first."""
        first = self.contents.starts.get(member.name)
        if first is None:
            first = zip_format.locate_data(member, _reader(self.file.descriptor), self.where)
            self.contents.starts[member.name] = first
        return first

    def _check(self, member: Member, data: bytes) -> None:
        if _crc32(data) != member.crc:
            raise CorruptionError(f"{self._name(member)}: the checksum is wrong")

    def _name(self, member: Member) -> str:
        return f"{self.where}: member {member.name!r}"


def _crc32(data: bytes, before: int = 0) -> int:
    return (native.checksum("crc32") or zlib.crc32)(data, before)


def _end(extent: Extent, member: Member) -> int:
    """Return where an extent of a member ends."""
    return member.size if extent.length is None else min(extent.start + extent.length, member.size)


def _reader(descriptor: int) -> zip_format.Read:
    return partial(read_at, descriptor)


def _folders(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names in each folder, sorted."""
    found: dict[str, set[str]] = {}
    for key in names:
        folder, _, name = key.rpartition("/")
        found.setdefault(folder, set()).add(name)
        while folder and f"{folder.rpartition('/')[2]}/" not in found.setdefault(
            folder.rpartition("/")[0], set()
        ):
            above, _, name = folder.rpartition("/")
            found[above].add(f"{name}/")
            folder = above
    return {folder: sorted(below) for folder, below in found.items()}


def _check_lost(opened: _Opened | None, commit: Commit) -> None:
    """Refuse a new archive without the lost members of the old one, unless they are replaced."""
    lost = set() if opened is None else opened.lost() - {edit.key for edit in commit.edits}
    if lost:
        raise CorruptionError(
            f"{opened.where if opened else ''}: member {min(lost)!r} lies in the archive, and the "
            "directory does not name it; a new archive would lose it"
        )


@dataclass(frozen=True, slots=True)
class _Drafting:
    """What the members of the next archive are made from."""

    opened: _Opened | None
    where: str
    most: int
    extensions: Extensions

    def drafted(self, commit: Commit, failures: list[BaseException]) -> _Draft | None:
        """Return the members after a commit; None when nothing changes. Failures are added."""
        draft: _Draft = dict(self.opened.contents.directory.members) if self.opened else {}
        before = dict(draft)
        for phase, edits in commit.phases:
            changed = dict(draft)
            # By key: how many bytes of it the committed state reaches.
            reached: dict[str, int] = {}
            try:
                for edit in edits:
                    self._perform(edit, changed, phase, reached)
            except (NotFoundError, CorruptionError, LimitError) as error:
                failures.append(error)
                break
            draft = changed
        return None if draft == before else draft

    def _perform(self, edit: Edit, draft: _Draft, phase: Phase, reached: dict[str, int]) -> None:
        if isinstance(edit, Patch | Truncate):
            found = draft.get(edit.key)
            size = None if found is None else found.size
            staged = is_staged(edit.key.rpartition("/")[2])
            committed = 0 if staged else reached.setdefault(edit.key, size or 0)
            check_range(edit, size, committed, phase, self.where)
            draft[edit.key] = self._value(draft, edit.key).changed((edit,))
            return
        if isinstance(edit, Grown):
            value = self._value(draft, edit.key)
            reached.setdefault(edit.key, value.size)
            data = self.extensions.take(edit, self.where)
            draft[edit.key] = value.patched(edit.start, data)
            return
        reached[edit.key] = 0
        if isinstance(edit, Put):
            draft[edit.key] = PatchedValue.of(edit.data)
        elif isinstance(edit, Delete):
            draft.pop(edit.key, None)
        elif edit.source in draft:
            draft[edit.key] = draft.pop(edit.source)
        else:
            raise NotFoundError(f"{self.where}: no key {edit.source!r} to become {edit.key!r}")

    def _value(self, draft: _Draft, key: str) -> PatchedValue:
        value = draft.get(key, PatchedValue())
        if not isinstance(value, Member):
            return value
        assert self.opened is not None
        if value.method != zip_format.STORED:
            return PatchedValue.of(self.opened.value(value, self.most))
        # The new checksum must not cover damage of the old bytes.
        self.opened.verify(value)
        return PatchedValue(value.name, value.size)


@dataclass(frozen=True, slots=True)
class _Archive:
    """The archive of some members, which is written piece by piece."""

    draft: _Draft
    opened: _Opened | None
    checksum: ClassVar[None] = None

    def write_to(self, descriptor: int, start: int) -> int:
        """Write the archive from a place of a file on, and return its length."""
        stored = (v.stored if isinstance(v, Member) else v.size for v in self.draft.values())
        native.reserve(descriptor, start, sum(stored))
        end = start
        for piece in self:
            signals.check()
            write_at(descriptor, end, piece)
            end += len(piece)
        return end - start

    def __iter__(self) -> Iterator[bytes]:
        """Yield the same bytes."""
        return _gathered(_packed(self.draft, self.opened))


def _packed(draft: _Draft, opened: _Opened | None) -> Iterator[bytes]:
    """Yield the archive of some members."""
    end = 0
    members = []
    for name, value in draft.items():
        if isinstance(value, Member):
            assert opened is not None
            member, content = replace(value, name=name, offset=end), opened.stored(value)
        else:
            crc = 0
            # The header of a member has its checksum, so the pieces are made twice.
            for piece in _pieces(value, opened):
                crc = _crc32(piece, crc)
            member = Member(name, value.size, value.size, crc, offset=end)
            content = _pieces(value, opened)
        head = zip_format.pack_header(member)
        yield head
        yield from content
        end += len(head) + member.stored
        members.append(member)
    comment = opened.contents.directory.comment if opened else b""
    yield zip_format.pack_directory(members, end, comment)


def _pieces(value: PatchedValue, opened: _Opened | None) -> Iterator[bytes]:
    """Yield a changed value; the bytes below its ranges are those of a stored member."""

    def read(extent: Extent) -> bytes:
        assert opened is not None
        [found] = opened.read([extent], 0)
        return found or b""

    if value.source is None:
        return iter((value.over(Extent("value"), None),))
    return value.pieces(read, value.source)


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in pieces that are worth a system call."""
    small: list[bytes] = []
    held = 0
    for piece in pieces:
        if held + len(piece) >= _PIECE:
            # Not joined with the large piece: that would be a copy of it.
            yield b"".join(small)
            yield piece
            small, held = [], 0
        else:
            small.append(piece)
            held += len(piece)
    yield b"".join(small)

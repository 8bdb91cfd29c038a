"""One file inside a dataset by which writers take turns and readers notice that something changed.

Knows two locks, a sequence number and what the last writer left behind; refuses to know what is
written. The file is created by the first writer and never removed: were it replaced, two writers
could each hold one. The system drops the locks of a process that ends, so no lock is ever stale.

- *writer*: held by whoever changes the dataset, for one commit.
- *apply*: held exclusively while what readers see changes, shared by readers that want it to stay.

- *staging*: shared by those who put values aside out of turn, held exclusively by a writer that
  sweeps away what such a one has left that died. Which locks a system has, `ranges` knows.

The 256 bytes of the file: magic (8), sequence number (8), the running system (8), the state (1), 7
unused, who wrote last, as text, and who put values aside (8). Only living processes read them, so
they are never synced; a state that another run of the system left is `State.UNKNOWN`.
"""

import contextlib
import enum
import errno
import functools
import os
import platform
import stat
import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from ingot import native
from ingot.errors import FormatError, LockedError, UnsafeError, UnsupportedError
from ingot.stores.versions import SWITCHING, Version

__all__ = [
    "LOCK_BYTES",
    "Hold",
    "NoLock",
    "StagingLock",
    "StagingLocks",
    "State",
    "Turn",
    "acquire",
    "announce",
    "pin",
    "switching",
    "version",
    "version_probe",
]

LOCK_BYTES: Final = 256
_MAGIC: Final = b"IngotL\x01\n"
_HEAD: Final = struct.Struct("<8sQ8sB7x")
_SEQUENCE_AT: Final = 8
_STATE_AT: Final = 24
_STAGER_AT: Final = LOCK_BYTES - 8
_HOLDER_BYTES: Final = _STAGER_AT - _HEAD.size

_SHORTEST_NAP: Final = 0.0002
_LONGEST_NAP: Final = 0.02


NOBODY: Final = 0
"""Who puts values aside when nobody does, nor died at it."""
SEVERAL: Final = 2**64 - 1
"""Who puts values aside when more than one did, or one who died."""


class State(enum.IntEnum):
    """What the last writer left behind."""

    UNKNOWN = 0
    """Another run of the system, or a power cut: there may be anything."""
    CLEAN = 1
    """Nothing staged, no journal, everything synced."""
    LOOSE = 2
    """Nothing staged, no journal, but not everything synced."""
    BUSY = 3
    """A writer is at work, or died at it."""
    NEW = 4
    """No writer was ever here."""


class Turn(Protocol):
    """The right to write, until it is released."""

    @property
    def found(self) -> State:
        """What the writer before left behind."""

    @property
    def sequence(self) -> int | None:
        """The number of the state that readers look at; None when they are told nothing."""

    def bump(self) -> None:
        """Tell readers that what they read before this may not fit what they read after it."""

    def begin_apply(self) -> None:
        """Wait until no reader holds the state as it is."""

    def begin_switch(self) -> None:
        """Tell readers to wait: what they read from now on, until the next bump, may not fit."""

    def mark(self, state: State) -> None:
        """Say what is left behind."""

    def find_litter(self, own: int) -> bool:
        """Tell whether what somebody put aside who died is there, and nobody is at that now.

        `own` is what this writer is called who put values aside himself, or 0. If there is litter,
        nobody can put anything aside until it is `swept`.
        """

    def leave_litter(self) -> bool:
        """Say that there is litter, unless nobody puts values aside now: then as `find_litter`."""

    def swept(self) -> None:
        """Say that there is no litter any more."""

    def release(self) -> None:
        """Let the next writer in."""


@contextlib.contextmanager
def switching(turn: Turn) -> Iterator[None]:
    """Have readers wait while one state becomes the next in a block."""
    turn.begin_apply()
    turn.begin_switch()
    try:
        yield
    except OSError:
        # It has happened or it has not: either way the state stays from now on.
        turn.bump()
        raise
    turn.bump()


class Hold(Protocol):
    """The state kept as it is, until it is released."""

    def release(self) -> None:
        """Let writers apply again."""


def acquire(folder: int, name: str, wait: float, where: str) -> Turn:
    """Become the writer of the dataset in the open `folder`, or `LockedError` after `wait` seconds.

    `UnsupportedError` where the file system does not hold locks.
    """
    deadline = time.monotonic() + wait
    while True:
        file, created, facts = _open_or_create(folder, name, where)
        try:
            if facts.st_dev not in _probed:
                _check_locks_hold(file, folder, name, where)
                _probed.add(facts.st_dev)
            _wait(file, folder, WRITER, True, deadline, wait, where)
            if _is_at(facts, folder, name):
                return _FileWriterLock(file, folder, created, wait, where)
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # The dataset was replaced while we waited: begin with the new one.


def announce(folder: int, name: str, wait: float, where: str) -> "StagingLock | None":
    """Say that values are put aside out of turn, until it is withdrawn; None where nobody asks.

    There must have been a writer before.
    """
    if not OFD:
        return None
    deadline = time.monotonic() + wait
    file, _, _ = _open_or_create(folder, name, where)
    try:
        own = int.from_bytes(os.urandom(7), "little") + 1
        first = take(file, -1, STAGING, True) and read_stager(file) == NOBODY
        if first:
            write_stager(file, own)
        _wait(file, -1, STAGING, False, deadline, wait, where)
        if not first:
            write_stager(file, SEVERAL)
    except BaseException:
        os.close(file)
        raise
    return StagingLock(file, own)


def version_probe(path: str) -> tuple[Callable[[], Version | None], native.VersionProbe | None]:
    """Return `version` for one path, and what the native kernel keeps open between its calls."""
    kept = native.make_version_probe(path, _MAGIC, _system(), bytes(_SETTLED))
    if kept is None:
        return functools.partial(version, path), None
    look_natively = kept.read

    def look_at() -> Version | None:
        found = look_natively()
        return None if found is None else _VERSION_OF(found)

    return look_at, kept


def version(path: str) -> Version | None:
    """Return what the lock file at `path` says, or None when no writer was ever here."""
    try:
        file = os.open(path, _READING)
    except OSError:
        return None
    try:
        data = os.pread(file, _HEAD.size, 0)
    except OSError:
        return None
    finally:
        os.close(file)
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return None
    _, sequence, system, state = _HEAD.unpack(data)
    return Version(sequence, system == _system() and state in _SETTLED)


def pin(folder: int, name: str, wait: float, where: str) -> Hold | None:
    """Keep writers from applying; needs no right to write. None when no writer was ever here."""
    try:
        file = os.open(name, _READING, dir_fd=folder)
    except (FileNotFoundError, PermissionError):
        return None
    place = keep_place(folder)
    try:
        _wait(file, place, APPLY, False, time.monotonic() + wait, wait, where)
    except BaseException:
        _close(file, place)
        raise
    return _FileReaderLock(file, place)


_SETTLED: Final = frozenset({State.CLEAN, State.LOOSE})
_VERSION_OF: Final = Version._make

_READING: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_WRITING: Final = (_READING & ~os.O_RDONLY) | os.O_RDWR


class _Held:
    """Open files with locks. A child that is forked meanwhile must not keep them locked."""

    __slots__ = ("__weakref__", "_file", "_place")

    def __init__(self, file: int, place: int) -> None:
        self._file = file
        self._place = place
        _held.add(self)

    def forget(self) -> None:
        """Close the files without unlocking: the locks are the parent's."""
        file, place, self._file, self._place = self._file, self._place, -1, -1
        _held.discard(self)
        _close(file, place)


_held: Final[weakref.WeakSet[_Held]] = weakref.WeakSet()


def _forget_all() -> None:
    for held in list(_held):
        held.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _FileReaderLock(_Held):
    __slots__ = ()

    def release(self) -> None:
        if self._file >= 0:
            drop(self._file, self._place, APPLY)
            self.forget()


class StagingLock(_Held):
    """That somebody puts values aside: nobody sweeps until it is withdrawn, or he died."""

    __slots__ = ("own",)

    def __init__(self, file: int, own: int) -> None:
        self.own = own
        super().__init__(file, -1)

    @property
    def stands(self) -> bool:
        """Whether it was made here and not withdrawn: it does not speak for a forked child."""
        return self._file >= 0

    def withdraw(self) -> None:
        """Say that nothing is put aside any more, or that it is this writer's turn."""
        if self._file >= 0:
            drop(self._file, -1, STAGING)
            self.forget()


class _FileWriterLock(_Held):
    __slots__ = ("_applying", "_stager", "_sweeping", "_wait", "_where", "found", "sequence")

    def __init__(self, file: int, folder: int, created: bool, wait: float, where: str) -> None:
        self._applying = self._sweeping = False
        self._wait = wait
        self._where = where
        self.sequence: int
        data = os.pread(file, LOCK_BYTES, 0)
        self._stager = int.from_bytes(data[_STAGER_AT:], "little")
        if data and not data.startswith(_MAGIC):
            raise FormatError(f"{where}: its lock file was not made by Ingot, or by a later one")
        if len(data) < _HEAD.size:
            self.sequence = int.from_bytes(os.urandom(4), "little") << 16
            self.found = State.NEW if created else State.UNKNOWN
        else:
            _, sequence, system, state = _HEAD.unpack_from(data)
            self.sequence = sequence % SWITCHING
            known = system == _system() and state in (State.CLEAN, State.LOOSE, State.BUSY)
            self.found = State(state) if known else State.UNKNOWN
        new = bytes(8) if len(data) < LOCK_BYTES else b""
        _write(file, self._record(State.BUSY) + new, 0)
        super().__init__(file, keep_place(folder))

    def bump(self) -> None:
        self.sequence = (self.sequence + 1) % SWITCHING
        _write(self._file, self.sequence.to_bytes(8, "little"), _SEQUENCE_AT)

    def begin_apply(self) -> None:
        if not self._applying:
            deadline = time.monotonic() + self._wait
            _wait(self._file, self._place, APPLY, True, deadline, self._wait, self._where)
            self._applying = True

    def begin_switch(self) -> None:
        _write(self._file, (self.sequence | SWITCHING).to_bytes(8, "little"), _SEQUENCE_AT)

    def mark(self, state: State) -> None:
        _write(self._file, bytes([state]), _STATE_AT)

    def release(self) -> None:
        if self._file >= 0:
            # Said explicitly: closing is not enough while a forked child has the file open, too.
            drop_all(self._file, self._place)
            self.forget()

    def find_litter(self, own: int) -> bool:
        if not (own or self._stager) or not self._excludes_stagers():
            return False
        # Whoever began after this writer's turn did is here to say so again.
        if read_stager(self._file) not in (NOBODY, own):
            return True
        self.swept()
        return False

    def leave_litter(self) -> bool:
        if self._excludes_stagers():
            return True
        if OFD:
            write_stager(self._file, SEVERAL)
        return not OFD

    def swept(self) -> None:
        write_stager(self._file, NOBODY)
        if self._sweeping:
            drop(self._file, self._place, STAGING)
            self._sweeping = False

    def _excludes_stagers(self) -> bool:
        if OFD and not self._sweeping:
            self._sweeping = take(self._file, self._place, STAGING, True)
        return self._sweeping

    def _record(self, state: State) -> bytes:
        head = _HEAD.pack(_MAGIC, self.sequence, _system(), state)
        return head + _holder()


def read_stager(file: int) -> int:
    """Return who put values aside since nobody was at it."""
    return int.from_bytes(os.pread(file, 8, _STAGER_AT), "little")


def write_stager(file: int, stager: int) -> None:
    """Say who put values aside since nobody was at it."""
    _write(file, stager.to_bytes(8, "little"), _STAGER_AT)


def _close(file: int, place: int) -> None:
    for descriptor in (file, place):
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _write(file: int, data: bytes, start: int) -> None:
    while data:
        count = os.pwrite(file, data, start)
        if count == 0:
            raise OSError(errno.EIO, "nothing was written to a lock file")
        data, start = data[count:], start + count


def _open_or_create(folder: int, name: str, where: str) -> tuple[int, bool, os.stat_result]:
    while True:
        try:
            file, created = os.open(name, _WRITING, dir_fd=folder), False
        except FileNotFoundError:
            try:
                flags = _WRITING | os.O_CREAT | os.O_EXCL
                file, created = os.open(name, flags, 0o666, dir_fd=folder), True
            except FileExistsError:
                continue
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
                raise UnsafeError(f"{where}: {name!r} is not a plain file") from None
            raise
        facts = os.fstat(file)
        if stat.S_ISREG(facts.st_mode):
            return file, created, facts
        os.close(file)
        raise UnsafeError(f"{where}: {name!r} is not a plain file")


def _is_at(facts: os.stat_result, folder: int, name: str) -> bool:
    try:
        there = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, facts)


def _wait(
    file: int, place: int, which: int, exclusive: bool, deadline: float, wait: float, where: str
) -> None:
    nap = _SHORTEST_NAP
    while not take(file, place, which, exclusive):
        if time.monotonic() >= deadline:
            held = "a reader or a writer" if which == APPLY and exclusive else _last_holder(file)
            raise LockedError(errno.EAGAIN, f"{where}: locked by {held}; waited {wait:g} s")
        time.sleep(nap)
        nap = min(2 * nap, _LONGEST_NAP)


def _holder() -> bytes:
    return _holder_at(os.getpid(), int(time.time()))


@functools.lru_cache(maxsize=1)
def _holder_at(process: int, second: int) -> bytes:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(second))
    text = f"process {process} on {platform.node()} since {since} UTC"
    return text.encode()[:_HOLDER_BYTES].ljust(_HOLDER_BYTES, b"\0")


def _last_holder(file: int) -> str:
    text = os.pread(file, _HOLDER_BYTES, _HEAD.size).rstrip(b"\0")
    shown = text.decode("utf-8", "replace")
    return shown if shown.isprintable() and shown else "a process that left no name"


@functools.cache
def _system() -> bytes:
    """Return what is another value after the system was started again."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().decode().replace("-", ""))[:8]
    except (OSError, ValueError):
        # Unknown: a dataset is then swept once by each process, which costs time and no more.
        return os.urandom(8)


_probed: Final[set[int]] = set()


def _check_locks_hold(file: int, folder: int, name: str, where: str) -> None:
    """Try whether a lock that is taken can be taken again."""
    second = os.open(name, _WRITING, dir_fd=folder)
    try:
        if not take(file, folder, WRITER, True):
            return  # Somebody holds it, so locks do hold.
        twice = take(second, folder, WRITER, True)
        drop(file, folder, WRITER)
    except OSError as error:
        raise UnsupportedError(
            f"{where}: this file system has no locks ({error.strerror}); "
            "without them there must be one writer only, and the store must be told so"
        ) from None
    finally:
        os.close(second)
    if twice:
        raise UnsupportedError(
            f"{where}: this file system gives one lock twice; "
            "without locks there must be one writer only, and the store must be told so"
        )


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

__all__ = ["APPLY", "OFD", "STAGING", "WRITER", "drop", "drop_all", "keep_place", "take"]

# Far behind the text, so that a system whose locks are mandatory still lets it be read.
WRITER: Final = 1 << 30
APPLY: Final = WRITER + 1
STAGING: Final = WRITER + 2

_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EDEADLK})

OFD: Final = hasattr(sys.modules.get("fcntl"), "F_OFD_SETLK")
"""Whether a file has more locks than two, that can be shared."""

if OFD:
    _RANGE: Final = struct.Struct("@hhqqi4x")

    def keep_place(folder: int) -> int:
        return -1

    def _change(file: int, which: int, kind: int, count: int = 1) -> None:
        request = _RANGE.pack(kind, os.SEEK_SET, which, count, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        _change(file, which, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK)

    def drop(file: int, place: int, which: int) -> None:
        _change(file, which, fcntl.F_UNLCK)

    def drop_all(file: int, place: int) -> None:
        _change(file, WRITER, fcntl.F_UNLCK, count=3)

elif sys.platform != "win32":

    def keep_place(folder: int) -> int:
        return os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        fcntl.flock(file if which == WRITER else place, kind | fcntl.LOCK_NB)

    def drop(file: int, place: int, which: int) -> None:
        fcntl.flock(file if which == WRITER else place, fcntl.LOCK_UN)

    def drop_all(file: int, place: int) -> None:
        for which in (APPLY, WRITER):
            drop(file, place, which)

else:

    def keep_place(folder: int) -> int:
        return -1

    def _at(file: int, which: int, mode: int) -> None:
        os.lseek(file, which, os.SEEK_SET)
        msvcrt.locking(file, mode, 1)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        _at(file, which, msvcrt.LK_NBLCK)

    def drop(file: int, place: int, which: int) -> None:
        _at(file, which, msvcrt.LK_UNLCK)

    def drop_all(file: int, place: int) -> None:
        for which in (APPLY, WRITER):
            with contextlib.suppress(OSError):  # Complains of what was not taken.
                drop(file, place, which)


def take(file: int, place: int, which: int, exclusive: bool) -> bool:
    """Take a lock, if nobody has it: False when somebody does."""
    try:
        _take(file, place, which, exclusive)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


class NoLock:
    """The turns of somebody who promised to be the only writer; nobody else is told anything.

    >>> turn = NoLock()
    >>> turn.found.name, turn.mark(State.CLEAN), turn.release(), turn.found.name
    ('UNKNOWN', None, None, 'CLEAN')
    """

    __slots__ = ("_left", "found", "sequence")

    def __init__(self) -> None:
        self.found = self._left = State.UNKNOWN
        self.sequence: int | None = None

    def bump(self) -> None:
        """Tell nobody."""

    def begin_apply(self) -> None:
        """Wait for nobody."""

    def begin_switch(self) -> None:
        """Tell nobody."""

    def mark(self, state: State) -> None:
        """Keep in mind what is left behind."""
        self._left = state

    def find_litter(self, own: int) -> bool:
        """Know of nobody who could leave any."""
        return False

    def leave_litter(self) -> bool:
        """Know of nobody whose values could be taken for litter."""
        return True

    def swept(self) -> None:
        """Tell nobody."""

    def release(self) -> None:
        """End a turn; one that did not say what it leaves behind has failed."""
        self.found, self._left = self._left, State.BUSY


class StagingLocks:
    """The transactions of one store that have not come to their turn, for all of its threads.

    >>> aside = StagingLocks()
    >>> aside.begin("2f81", lambda: None)
    >>> aside.end(["data/.g-2f81-0"]), aside.end([])
    (0, 0)
    """

    __slots__ = ("_announcement", "_guard", "_names")

    def __init__(self) -> None:
        self._announcement: StagingLock | None = None
        self._guard = threading.Lock()
        self._names: set[str] = set()

    def __reduce__(self) -> tuple[type["StagingLocks"], tuple[()]]:
        return StagingLocks, ()  # What one process put aside is not another's.

    def __del__(self) -> None:
        if self._announcement is not None:
            self._announcement.withdraw()

    def begin(self, name: str, announce: Callable[[], StagingLock | None]) -> None:
        """Keep in mind that a transaction puts values aside, once that is announced."""
        with self._guard:
            if self._announcement is None or not self._announcement.stands:
                self._announcement = announce()
            self._names.add(name)

    def end(self, sources: Iterable[str]) -> int:
        """Forget the transactions of staged keys; return who announced them if none are left.

        Zero if nothing was announced, or something still is.
        """
        if not self._names:
            return 0
        with self._guard:
            self._names.difference_update(map(_transaction, sources))
            if self._names or self._announcement is None:
                return 0
            self._announcement.withdraw()
            own, self._announcement = self._announcement.own, None
            return own


def _transaction(source: str) -> str:
    return source.rpartition("/")[2].split("-", 2)[1].partition(".")[0]

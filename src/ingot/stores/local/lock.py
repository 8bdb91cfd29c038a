"""The lock file of a dataset: one writer at a time, and a version number for readers.

The file is created by the first writer and never removed: if it were replaced, two writers could
each hold one. The system drops the locks of a process that ends, so no lock is ever stale. The
file has three locks:

- *writer*: held by the process that changes the dataset, for one commit.
- *apply*: held exclusively while the state that readers see changes, shared by readers that pin it.
- *staging*: shared by processes that stage files without the writer lock, held exclusively by a
  writer that removes the staged files of processes that died.

The 256 bytes of the file: magic (8), sequence number (8), the running system (8), the state (1),
whether the files hold what the log says (1), the name of the log (6), the last writer as text, and
the stager (8). Only living processes read them, so they are not synced; a state that was written
before the system was restarted is `LockState.UNKNOWN`. The name of a log is synced before the log
exists: a log that it does not name is one of another dataset, or of another time.
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
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from ingot import native, signals
from ingot.errors import FormatError, LockedError, UnsafeError, UnsupportedError
from ingot.stores.versions import SWITCHING, KernelCommit, LogState, Version

__all__ = [
    "APPLY",
    "LOCK_BYTES",
    "HeldLock",
    "LockState",
    "NoLock",
    "ReaderLock",
    "StagedTransactions",
    "StagingLock",
    "WriterLock",
    "acquire",
    "announce_staging",
    "await_readers",
    "begin_turn",
    "log_state",
    "pin",
    "switch",
    "version",
    "version_probe",
]

LOCK_BYTES: Final = 256
_MAGIC: Final = b"IngotL\x01\n"
_HEAD: Final = struct.Struct("<8sQ8sB7s")
_SEQUENCE_AT: Final = 8
_STATE_AT: Final = 24
_LOG_AT: Final = 25
_LOG_BYTES: Final = 7
_NO_LOG: Final = bytes(_LOG_BYTES)
_STAGER_AT: Final = LOCK_BYTES - 8
_HOLDER_BYTES: Final = _STAGER_AT - _HEAD.size

_SHORTEST_NAP: Final = 0.00002
_LONGEST_NAP: Final = 0.02


NO_STAGER: Final = 0  # No process is staging, and none died while staging.
SEVERAL_STAGERS: Final = 2**64 - 1  # Several processes have staged, or one that died.


class LockState(enum.IntEnum):
    """What the last writer left behind."""

    UNKNOWN = 0
    """The system was restarted, perhaps after a power cut: anything may be stored."""
    CLEAN = 1
    """Nothing staged, no journal, everything synced."""
    LOOSE = 2
    """Nothing staged, no journal, but not everything synced."""
    BUSY = 3
    """A writer is at work, or died while it was."""
    LOGGED = 4
    """Nothing staged, no journal, everything synced or in the log, which is open."""
    NEW = 5
    """The lock file is new: the dataset had no writer before."""


class HeldLock(NamedTuple):
    """A lock that is held, for the kernel."""

    file: int
    """The open lock file."""
    places: tuple[int, int, int]
    """The positions of the version number, of the state, and of the byte that is the apply lock."""
    sequence: int
    """The version number."""
    applying: bool
    """Whether the apply lock is held."""


class WriterLock(Protocol):
    """The lock of the one writer, until it is released."""

    @property
    def found(self) -> LockState:
        """What the writer before left behind."""

    @property
    def sequence(self) -> int | None:
        """The version number that readers compare; None without a lock file."""

    @property
    def held(self) -> "HeldLock | None":
        """The lock as the kernel needs it; None where the kernel cannot use it."""

    @property
    def log(self) -> str:
        """The name of the log that may be open; none where there is no such name."""

    def name_log(self, name: str) -> None:
        """Make the name of a log durable, before the log exists. The files hold what it says."""

    def forget_log(self) -> None:
        """Forget the name of a log that is removed, durably."""

    def advance(self, sequence: int, applying: bool) -> None:
        """Take over what the kernel did: the version number, and whether readers are locked out."""

    def bump(self) -> None:
        """Give readers a new version number: reads before and after it may not fit together."""

    def begin_apply(self) -> None:
        """Take the apply lock: wait until no reader pins the state."""

    def begin_switch(self) -> None:
        """Mark the version as switching: reads until the next bump may not fit together."""

    def mark(self, state: LockState) -> None:
        """Record what this writer leaves behind."""

    def begin_sweep(self, stager: int) -> bool:
        """Return whether a dead process left staged files and no live process is staging.

        `stager` is the number under which this writer has staged files itself, or 0. After True no
        process can stage until `end_sweep`.
        """

    def request_sweep(self) -> bool:
        """Return whether staged files can be removed now; if not, leave that to a later writer.

        After True no process can stage until `end_sweep`.
        """

    def end_sweep(self) -> None:
        """Record that no staged files of dead processes are left."""

    def release(self) -> None:
        """Let the next writer take the lock."""


class ReaderLock(Protocol):
    """A lock of readers: no writer changes the state until it is released."""

    def release(self) -> None:
        """Let writers apply commits again."""


def acquire(folder: int, name: str, wait: float, where: str) -> WriterLock:
    """Take the writer lock of the dataset in the open `folder`; `LockedError` after `wait` seconds.

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
                return _record_writer(file, folder, created, wait, where)
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # The dataset was replaced meanwhile: begin with the new one.


def begin_turn(
    path: str, names: tuple[str, str], wait: float
) -> tuple[int, WriterLock, bool] | None:
    """Open the folder at `path` and take its writer lock, in one native call.

    `names` are the lock file and the journal. The result is the open folder, the lock, and whether
    there may be a journal; None where anything is unusual, and then nothing has changed.
    """
    if not OFD:
        return None
    begun = native.begin_turn(
        path, names, _MAGIC, _system(), LockState.BUSY, _holder(), WRITER, _probed
    )
    if begun is None:
        return None
    folder, file, sequence, state, stager, journal = begun
    found = _LEFT_BEHIND.get(state, LockState.UNKNOWN)
    return folder, _FileWriterLock(file, folder, found, sequence, stager, wait, path), journal


def switch(
    path: str,
    names: tuple[str, str],
    change: KernelCommit,
    documents: native.NativeDocuments,
    version: int,
    *,
    sync: bool,
) -> "native.Changed | None":
    """Have the kernel make a commit in the folder at `path`, from the lock to its end.

    None where anything is unusual, and then nothing has changed.
    """
    dataset = _dataset(path, names) if OFD else None
    if dataset is None:
        return None
    return change.make(dataset, documents, version, _holder(), list(_probed), sync)


@functools.lru_cache(maxsize=256)
def _dataset(path: str, names: tuple[str, str]) -> native.NativeDataset | None:
    states = LockState.BUSY, LockState.CLEAN, LockState.LOOSE
    return native.make_dataset(path, names, _MAGIC, _system(), (WRITER, APPLY), states)


def announce_staging(folder: int, name: str, wait: float, where: str) -> "StagingLock | None":
    """Take the staging lock, so that no writer removes what this process stages.

    None on systems without locks of open files, where no writer removes staged files of others.
    The lock file must exist.
    """
    if not OFD:
        return None
    deadline = time.monotonic() + wait
    file, _, _ = _open_or_create(folder, name, where)
    try:
        stager = int.from_bytes(os.urandom(7), "little") + 1
        first = take(file, -1, STAGING, True) and read_stager(file) == NO_STAGER
        if first:
            write_stager(file, stager)
        _wait(file, -1, STAGING, False, deadline, wait, where)
        if not first:
            write_stager(file, SEVERAL_STAGERS)
    except BaseException:
        os.close(file)
        raise
    return StagingLock(file, stager)


def version_probe(
    path: str,
) -> tuple[Callable[[], Version | None], native.NativeVersionProbe | None]:
    """Return a function that reads the version at `path`, and the native probe it uses, if any."""
    kept = native.make_version_probe(path, _MAGIC, _system(), bytes(_SETTLED))
    if kept is None:
        return functools.partial(version, path), None
    look_natively = kept.read

    def look_at() -> Version | None:
        try:
            found = look_natively()
        except OSError as error:  # The kernel does not say which file it is.
            what = str(error).partition(" (os error ")[0]
            raise type(error)(f"{path}: {what}") from None
        return None if found is None else _VERSION_OF(found)

    return look_at, kept


@signals.uninterrupted
def version(path: str) -> Version | None:
    """Return the version in the lock file at `path`; None before the first writer.

    A file that cannot be read is an `OSError`: it may have a version.
    """
    try:
        file = os.open(path, _READING)
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            return None
        raise
    try:
        data = os.pread(file, _HEAD.size, 0)
    except IsADirectoryError:
        return None
    finally:
        os.close(file)
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return None
    _, sequence, system, state, _ = _HEAD.unpack(data)
    return Version(sequence, system == _system() and state in _SETTLED)


def log_state(path: str) -> LogState:
    """Return what the lock file at `path` says of the log."""
    try:
        file = os.open(path, _READING)
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            return LogState("", written=False)
        raise
    try:
        data = os.pread(file, _HEAD.size, 0)
    except IsADirectoryError:
        data = b""
    finally:
        os.close(file)
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        return LogState("", written=False)
    _, sequence, system, _, log = _HEAD.unpack(data)
    return LogState(_log_name(log), log[0] == 1 and system == _system() and sequence < SWITCHING)


def _log_name(field: bytes) -> str:
    return "" if field[1:] == _NO_LOG[1:] else field[1:].hex()


def pin(folder: int, name: str, wait: float, where: str) -> ReaderLock | None:
    """Take the reader lock, which needs no right to write; None before the first writer."""
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


def await_readers(folder: int, name: str, wait: float, where: str) -> None:
    """Wait until no reader pins a file itself; `LockedError` after `wait` seconds.

    Nothing is waited for where the file is absent or cannot be opened for writing.
    """
    try:
        file = os.open(name, _WRITING, dir_fd=folder)
    except (FileNotFoundError, PermissionError):
        return
    place = keep_place(folder)
    try:
        _wait(file, place, APPLY, True, time.monotonic() + wait, wait, where)
        drop_all(file, place)
    finally:
        _close(file, place)


_LEFT_BEHIND: Final = {
    int(state): state
    for state in (LockState.CLEAN, LockState.LOOSE, LockState.BUSY, LockState.LOGGED)
}
# Absent, or a link, a socket or a pipe of its name, which writers refuse.
_NO_LOCK_FILE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
_SETTLED: Final = frozenset({LockState.CLEAN, LockState.LOOSE, LockState.LOGGED})
_VERSION_OF: Final = Version._make

_READING: Final = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)
_WRITING: Final = (_READING & ~os.O_RDONLY) | os.O_RDWR


class _LockFile:
    """Open files that hold locks. A forked child must not keep them locked."""

    __slots__ = ("__weakref__", "_file", "_place")

    def __init__(self, file: int, place: int) -> None:
        self._file = file
        self._place = place
        _locked_files[id(self)] = weakref.ref(self)

    def __del__(self) -> None:
        # An exception may come before the lock reached the variable that would release it.
        if self._file >= 0 or self._place >= 0:
            self.forget()

    def forget(self) -> None:
        """Close the files without unlocking: the locks are the parent's."""
        file, place, self._file, self._place = self._file, self._place, -1, -1
        _locked_files.pop(id(self), None)
        _close(file, place)


# By identity, until their files are closed: every turn adds one, and a weak set takes longer.
_locked_files: Final[dict[int, weakref.ref[_LockFile]]] = {}


def _forget_all() -> None:
    for each in list(_locked_files.values()):
        locked = each()
        if locked is not None:
            locked.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


class _FileReaderLock(_LockFile):
    __slots__ = ()

    def release(self) -> None:
        if self._file >= 0:
            # Closing releases the lock as well, unless a forked child has the file open.
            with contextlib.suppress(OSError):
                drop(self._file, self._place, APPLY)
            self.forget()


class StagingLock(_LockFile):
    """Held by a process that stages files; once released, the next writer removes leftovers."""

    __slots__ = ("stager",)

    def __init__(self, file: int, stager: int) -> None:
        self.stager = stager
        super().__init__(file, -1)

    @property
    def is_held(self) -> bool:
        """Whether this process holds the lock; a forked child does not."""
        return self._file >= 0

    def release(self) -> None:
        """Release the lock: nothing is staged any more, or this process is the writer now."""
        if self._file >= 0:
            with contextlib.suppress(OSError):
                drop(self._file, -1, STAGING)
            self.forget()


class _FileWriterLock(_LockFile):
    __slots__ = ("_applying", "_stager", "_sweeping", "_wait", "_where", "found", "sequence")

    def __init__(
        self,
        file: int,
        folder: int,
        found: LockState,
        sequence: int,
        stager: int,
        wait: float,
        where: str,
    ) -> None:
        self.found = found
        self.sequence = sequence
        self._applying = self._sweeping = False
        self._stager = stager
        self._wait = wait
        self._where = where
        super().__init__(file, keep_place(folder))

    @property
    def held(self) -> HeldLock | None:
        if not OFD or self._file < 0:
            return None
        return HeldLock(self._file, _PLACES, self.sequence, self._applying)

    @property
    def log(self) -> str:
        return _log_name(os.pread(self._file, _LOG_BYTES, _LOG_AT).ljust(_LOG_BYTES, b"\0"))

    def name_log(self, name: str) -> None:
        _write(self._file, b"\1" + bytes.fromhex(name), _LOG_AT)
        os.fsync(self._file)

    def forget_log(self) -> None:
        _write(self._file, _NO_LOG, _LOG_AT)

    def advance(self, sequence: int, applying: bool) -> None:
        self.sequence, self._applying = sequence, applying

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

    def mark(self, state: LockState) -> None:
        _write(self._file, bytes([state]), _STATE_AT)

    def release(self) -> None:
        if self._file >= 0:
            # Explicitly: closing is not enough while a forked child has the file open, too.
            with contextlib.suppress(OSError):
                drop_all(self._file, self._place)
            self.forget()

    def begin_sweep(self, stager: int) -> bool:
        if not (stager or self._stager) or not self._excludes_stagers():
            return False
        # A process that began to stage after this writer took its lock has written its number.
        if read_stager(self._file) not in (NO_STAGER, stager):
            return True
        self.end_sweep()
        return False

    def request_sweep(self) -> bool:
        if self._excludes_stagers():
            return True
        if OFD:
            write_stager(self._file, SEVERAL_STAGERS)
        return not OFD

    def end_sweep(self) -> None:
        write_stager(self._file, NO_STAGER)
        if self._sweeping:
            drop(self._file, self._place, STAGING)
            self._sweeping = False

    def _excludes_stagers(self) -> bool:
        if OFD and not self._sweeping:
            self._sweeping = take(self._file, self._place, STAGING, True)
        return self._sweeping


def _record_writer(file: int, folder: int, created: bool, wait: float, where: str) -> WriterLock:
    """Read a lock file whose writer lock is held, and record this process in it."""
    data = os.pread(file, LOCK_BYTES, 0)
    if data and not data.startswith(_MAGIC):
        raise FormatError(f"{where}: its lock file was not made by Ingot, or by a later version")
    if len(data) < _HEAD.size:
        sequence = int.from_bytes(os.urandom(4), "little") << 16
        found = LockState.NEW if created else LockState.UNKNOWN
        log = _NO_LOG
    else:
        _, sequence, system, state, log = _HEAD.unpack_from(data)
        sequence %= SWITCHING
        known = system == _system()
        found = _LEFT_BEHIND.get(state, LockState.UNKNOWN) if known else LockState.UNKNOWN
        if found not in _SETTLED:
            # Until the log is applied, readers look through it.
            log = b"\0" + log[1:]
    new = bytes(8) if len(data) < LOCK_BYTES else b""
    record = _HEAD.pack(_MAGIC, sequence, _system(), LockState.BUSY, log) + _holder()
    _write(file, record + new, 0)
    stager = int.from_bytes(data[_STAGER_AT:], "little")
    return _FileWriterLock(file, folder, found, sequence, stager, wait, where)


def read_stager(file: int) -> int:
    """Return the number of the process that has staged since the last sweep."""
    return int.from_bytes(os.pread(file, 8, _STAGER_AT), "little")


def write_stager(file: int, stager: int) -> None:
    """Record the number of the process that has staged since the last sweep."""
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
        signals.check()
        if time.monotonic() >= deadline:
            holder = "a reader or a writer" if which == APPLY and exclusive else _last_holder(file)
            raise LockedError(errno.EAGAIN, f"{where}: locked by {holder}; waited {wait:g} s")
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
    """Return a value that changes when the system is restarted."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return bytes.fromhex(file.read().strip().decode().replace("-", ""))[:8]
    except (OSError, ValueError):
        # Unknown: each process then sweeps a dataset once, which costs time and no more.
        return os.urandom(8)


_probed: Final[set[int]] = set()


def _check_locks_hold(file: int, folder: int, name: str, where: str) -> None:
    """Check that a lock that is taken cannot be taken again."""
    second = os.open(name, _WRITING, dir_fd=folder)
    try:
        if not take(file, folder, WRITER, True):
            return  # Another process holds it, so locks do hold.
        taken_twice = take(second, folder, WRITER, True)
        drop(file, folder, WRITER)
    except OSError as error:
        raise UnsupportedError(
            f"{where}: this file system has no locks ({error.strerror}); "
            "with one writer only, open the store with locking=False"
        ) from None
    finally:
        os.close(second)
    if taken_twice:
        raise UnsupportedError(
            f"{where}: this file system gives one lock twice; "
            "with one writer only, open the store with locking=False"
        )


if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

# Far behind the text, so that systems with mandatory locks still let it be read.
WRITER: Final = 1 << 30
APPLY: Final = WRITER + 1
STAGING: Final = WRITER + 2

_PLACES: Final = (_SEQUENCE_AT, _STATE_AT, APPLY)

_BUSY: Final = frozenset({errno.EAGAIN, errno.EACCES, errno.EDEADLK})

OFD: Final = hasattr(sys.modules.get("fcntl"), "F_OFD_SETLK")
"""Whether the system has locks of open files: any number of them in a file, and shared ones."""

if OFD:
    _RANGE: Final = struct.Struct("@hhqqi4x")
    # The writer lock, the apply lock and the staging lock lie side by side.
    _ALL_FREE: Final = _RANGE.pack(fcntl.F_UNLCK, os.SEEK_SET, WRITER, 3, 0)

    def keep_place(folder: int) -> int:
        return -1

    def _change(file: int, which: int, kind: int) -> None:
        request = _RANGE.pack(kind, os.SEEK_SET, which, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, request)

    def _take(file: int, place: int, which: int, exclusive: bool) -> None:
        _change(file, which, fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK)

    def drop(file: int, place: int, which: int) -> None:
        _change(file, which, fcntl.F_UNLCK)

    def drop_all(file: int, place: int) -> None:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _ALL_FREE)

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
            with contextlib.suppress(OSError):  # Raised for a lock that was not taken.
                drop(file, place, which)


def take(file: int, place: int, which: int, exclusive: bool) -> bool:
    """Take a lock and return True; False when another process holds it."""
    try:
        _take(file, place, which, exclusive)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        raise
    return True


class NoLock:
    """The lock of a caller that promises to be the only writer; it excludes no other process.

    >>> lock = NoLock()
    >>> lock.found.name, lock.mark(LockState.CLEAN), lock.release(), lock.found.name
    ('UNKNOWN', None, None, 'CLEAN')
    """

    __slots__ = ("_left", "found", "log", "sequence")

    def __init__(self) -> None:
        self.found = self._left = LockState.UNKNOWN
        self.sequence: int | None = None
        # The log that a lock file of other writers names.
        self.log = ""

    @property
    def held(self) -> HeldLock | None:
        """None: there is no lock file."""
        return None

    def name_log(self, name: str) -> None:
        """Raise an error: without locks no log is begun."""
        raise UnsupportedError(f"a log {name!r} without a lock file")

    def forget_log(self) -> None:
        """Forget the log that was applied."""
        self.log = ""

    def advance(self, sequence: int, applying: bool) -> None:
        """Do nothing: there is no version number."""

    def bump(self) -> None:
        """Do nothing: there is no version number."""

    def begin_apply(self) -> None:
        """Do nothing: readers take no lock."""

    def begin_switch(self) -> None:
        """Do nothing: there is no version number."""

    def mark(self, state: LockState) -> None:
        """Keep what this writer leaves behind for the next one."""
        self._left = state

    def begin_sweep(self, stager: int) -> bool:
        """Return False: no other process stages."""
        return False

    def request_sweep(self) -> bool:
        """Return True: no other process stages."""
        return True

    def end_sweep(self) -> None:
        """Do nothing: no other process stages."""

    def release(self) -> None:
        """End the work of a writer; one that did not `mark` what it leaves behind has failed."""
        self.found, self._left = self._left, LockState.BUSY


class StagedTransactions:
    """The transactions of one store that have staged files and not committed, of all its threads.

    While there are any, the store holds the staging lock.

    >>> staged = StagedTransactions()
    >>> staged.begin("2f81", lambda: None)
    >>> staged.end(["data/.g-2f81-0"]), staged.end([])
    (0, 0)
    """

    __slots__ = ("_ended", "_forks", "_guard", "_lock", "_names")

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._forks = signals.forks()
        self._lock: StagingLock | None = None
        self._guard = threading.Lock()
        self._names: set[str] = set()
        # The stager number of a transaction that ended without anything staged.
        self._ended = 0

    def _check_fork(self) -> None:
        # The guard may be held by a thread of the parent, and what it staged is the parent's.
        if self._forks != signals.forks():
            self._begin()

    def __reduce__(self) -> tuple[type["StagedTransactions"], tuple[()]]:
        return StagedTransactions, ()  # What one process staged is not another's.

    def __del__(self) -> None:
        # An exception may come before there is anything to release.
        lock: StagingLock | None = getattr(self, "_lock", None)
        if lock is not None:
            lock.release()

    def begin(self, name: str, take_lock: Callable[[], StagingLock | None]) -> None:
        """Add a transaction that is going to stage files; `take_lock` takes the staging lock."""
        self._check_fork()
        with self._guard:
            if self._lock is None or not self._lock.is_held:
                self._lock = take_lock()
            self._names.add(name)

    def withdraw(self, name: str, *, staged: bool = True) -> None:
        """Remove a transaction that will not commit what it staged.

        The next writer searches for what it may have `staged`, unless that is nothing.
        """
        self._check_fork()
        with self._guard:
            self._names.discard(name)
            if not self._names and self._lock is not None:
                self._lock.release()
                self._ended = 0 if staged else self._lock.stager
                self._lock = None

    def end(self, sources: Iterable[str]) -> int:
        """Remove the transactions of staged keys; return the stager number if none are left.

        Zero if there were none, or some are left. The staging lock ends with the last of them.
        """
        if not self._names:
            ended, self._ended = self._ended, 0
            return ended
        self._check_fork()
        with self._guard:
            self._names.difference_update(map(_transaction, sources))
            if self._names or self._lock is None:
                return 0
            self._lock.release()
            stager, self._lock = self._lock.stager, None
            return stager


def _transaction(source: str) -> str:
    return source.rpartition("/")[2].split("-", 2)[1].partition(".")[0]

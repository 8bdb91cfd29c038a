"""The operations on files that a store on a file system is made of, one system call each.

Knows how each of them is done below a real directory; refuses to know in which order they make a
commit. The order is what tests must be able to see, cut short and disturb, so a store is handed
its files (`Files`) and calls nothing else.

Contents change by `open_new`, `open_old` and `write`, names by `make_folder`, `link`, `rename` and
`unlink`. A change lasts when the `sync` of the file, or the `sync_folder` of its folder, returns.
"""

import ctypes
import errno
import functools
import os
import stat
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final, Protocol, TypeVar

from ingot import native
from ingot.errors import NotFoundError, UnsafeError
from ingot.stores.local import lock
from ingot.stores.local.beneath import Root
from ingot.stores.local.lock import Hold, StagingLock, Turn
from ingot.stores.store import Buffer, Extent, check_key
from ingot.stores.versions import Version

__all__ = [
    "Files",
    "Inside",
    "LocalFileSystem",
    "exchanged",
    "linked",
    "placed",
    "put_copy_aside",
    "read_extent",
    "second_name",
    "write_at",
]

Result = TypeVar("Result")

_MOST_PLACES: Final = 32
# A file that was changed more recently may change again without another time of modification.
_UNNOTICED_NS: Final = 100_000_000


class Inside(Protocol):
    """A directory that is open. Keys have been checked; a file that is open is an integer."""

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        """Return what the extents of one file hold, all of the same file; None when absent."""

    def size(self, key: str) -> int | None:
        """Return the size of a plain file, None when it is absent."""

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        """Return what lies in a folder; folders end with a slash, links to them if `follow`."""

    def free_bytes(self) -> int | None:
        """Return how much can still be written, None when nobody knows."""

    def make_folder(self, folder: str) -> list[str]:
        """Create a folder and those above it; return the folders that got a new name."""

    def open_new(self, key: str) -> int:
        """Create a file that must not be there yet; its folder must."""

    def open_old(self, key: str) -> tuple[int, int] | None:
        """Open a file for writing into it, and return it with its size; None when absent."""

    def write(self, file: int, start: int, data: Buffer) -> None:
        """Write all of `data`."""

    def start(self, file: int) -> None:
        """Let the content of the file be on its way to where it lasts, which promises nothing."""

    def sync(self, file: int) -> None:
        """Return when the content of the file lasts."""

    def close_file(self, file: int) -> None:
        """Close a file; an error here is an error of what was written."""

    def link(self, source: str, key: str) -> bool:
        """Give a file a second name; False, and nothing done, where that is not possible."""

    def rename(self, source: str, key: str) -> None:
        """Give a file the place of another name in its folder, in one step.

        Where a folder has the name, it is removed before, if there are no files in it.
        """

    def replace(self, source: str, key: str) -> None:
        """Do the same, in two steps perhaps: what had the name may be `source` for a while."""

    def place(self, source: str, key: str) -> None:
        """Do the same, but `source`, while it is there, is always the new file."""

    def unlink(self, key: str) -> bool:
        """Remove a name, or a folder without files; tell whether it was there."""

    def sync_folder(self, folder: str) -> None:
        """Return when the names in the folder last."""

    def sync_all(self) -> None:
        """Return when everything that anybody did below the directory lasts."""

    def lock(self, name: str, wait: float, *, sync: bool) -> Turn:
        """Become the one writer."""

    def announce(self, name: str, wait: float) -> StagingLock | None:
        """Say that values are put aside out of turn; None where nobody sweeps."""

    def pin(self, name: str, wait: float) -> Hold | None:
        """Keep writers from applying; None when there is no lock file, so no writer either."""

    def close(self) -> None:
        """Leave the directory."""


class Files(Protocol):
    """A directory as a place to work in."""

    @property
    def path(self) -> str:
        """Where it is."""

    def enter(self) -> Inside | None:
        """Open the directory; None when it is absent."""

    def create(self, *, sync: bool) -> Inside:
        """Open the directory, after creating it and its parents as needed, to last if `sync`."""

    def transaction(self) -> str:
        """Return 16 hexadecimal digits that nobody used before."""

    def version(self, name: str) -> Version | None:
        """Return the sequence number without any lock; None when there is no lock file."""


class LocalFileSystem:
    """The files below a directory of the local file system."""

    __slots__ = ("_kept", "_probes", "_root")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root: Final = Root(path)
        self._probes: dict[str, Callable[[], Version | None]] = {}
        self._kept: dict[str, native.VersionProbe | None] = {}

    def __reduce__(self) -> tuple[type["LocalFileSystem"], tuple[str]]:
        return LocalFileSystem, (self._root.path,)

    @property
    def path(self) -> str:
        """The absolute path of the directory."""
        return self._root.path

    def enter(self) -> Inside | None:
        """Open the directory; None when it is absent."""
        descriptor = self._root.enter()
        return None if descriptor is None else _Folder(self._root, descriptor)

    def create(self, *, sync: bool) -> Inside:
        """Open the directory, after creating it and its parents as needed."""
        descriptor = self._root.enter()
        if descriptor is None:
            _make_folders(self.path, sync=sync)
            descriptor = self._root.create()
        return _Folder(self._root, descriptor)

    def transaction(self) -> str:
        """Return 16 hexadecimal digits by chance."""
        return os.urandom(8).hex()

    def version(self, name: str) -> Version | None:
        """Return the sequence number without any lock; None when there is no lock file."""
        probe = self._probes.get(name)
        if probe is None:
            probe = self._look_from(name)
        return probe()

    def version_probe(self, name: str) -> native.VersionProbe | None:
        """Return where the native kernel looks from, if it runs."""
        if name not in self._probes:
            self._look_from(name)
        return self._kept[name]

    def read(self, extents: Sequence[Extent]) -> list[bytes | None] | None:
        """Return short extents, each of a file of its own, by one call; None when it takes more."""
        try:
            return native.read_pieces(self._root.path, _pieces(extents))
        except OverflowError:
            return None  # Beyond 64 bits there is nothing, which is for others to find out.

    def identity(self, key: str) -> Hashable | None:
        """Return facts of a plain file that change with its bytes; None where they may not."""
        try:
            facts = os.stat(f"{self._root.path}/{key}")
        except OSError:
            return None
        recent = time.time_ns() - facts.st_mtime_ns < _UNNOTICED_NS
        if recent or not stat.S_ISREG(facts.st_mode):
            return None
        return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size

    def glance(
        self, name: str, journal: str, above: Sequence[str], extents: Sequence[Extent]
    ) -> tuple[int | None, list[bytes | None]] | None:
        """Return the sequence number, and what was read with it while nobody wrote, by one call.

        `name` is the lock file. None when it takes more than a call, and where one of the names
        `above` lies in the folder above.
        """
        kept = self.version_probe(name)
        if kept is None:
            return None
        try:
            return kept.read_settled(self._root.path, journal, above, _pieces(extents))
        except OverflowError:
            return None

    def _look_from(self, name: str) -> Callable[[], Version | None]:
        look, self._kept[name] = lock.version_probe(f"{self._root.path}/{name}")
        self._probes[name] = look
        return look


class _Folder:
    """The operations of `Inside`, by system calls relative to a descriptor."""

    __slots__ = ("_inside", "_keys", "_places", "_root")

    def __init__(self, root: Root, inside: int) -> None:
        self._root = root
        self._inside = inside
        self._keys: dict[int, str] = {}
        # Folders that were used before: a commit comes back to the same few again and again.
        self._places: dict[str, int] = {"": inside}

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        opened = self._root.open_file(self._inside, key)
        if opened is None:
            return None
        descriptor, size = opened
        try:
            return [read_extent(descriptor, size, extent) for extent in extents]
        except OSError as error:
            raise self._root.failure(key, error) from error
        finally:
            os.close(descriptor)

    def size(self, key: str) -> int | None:
        folder, _, name = key.rpartition("/")
        # Without opening it, when it is a file beside others that were asked for.
        try:
            place = self._find_place(folder)
            if place is None:
                return None
            status = os.stat(name, dir_fd=place, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                return status.st_size
        except FileNotFoundError:
            return None
        except (OSError, UnsafeError):
            pass  # Opening it says what is wrong.
        opened = self._root.open_file(self._inside, key)
        if opened is None:
            return None
        descriptor, size = opened
        os.close(descriptor)
        return size

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        descriptor = self._root.open_folder(self._inside, folder, listing=True)
        if descriptor is None:
            return []
        try:
            with os.scandir(descriptor) as entries:
                return [
                    f"{entry.name}/" if self._is_folder(folder, entry, follow) else entry.name
                    for entry in entries
                    if _is_name(entry.name)
                ]
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int | None:
        try:
            facts = os.statvfs(self._inside)
        except OSError:
            return None
        return facts.f_bavail * facts.f_frsize

    def make_folder(self, folder: str) -> list[str]:
        if self._find_place(folder) is not None:
            return []
        return self._root.make_folders(self._inside, folder)

    def open_new(self, key: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = self._beside(key, lambda name, place: os.open(name, flags, 0o666, dir_fd=place))
        self._keys[file] = key
        return file

    def open_old(self, key: str) -> tuple[int, int] | None:
        opened = self._root.open_file(self._inside, key, writing=True)
        if opened is not None:
            self._keys[opened[0]] = key
        return opened

    def write(self, file: int, start: int, data: Buffer) -> None:
        try:
            write_at(file, start, data)
        except OSError as error:
            raise self._root.failure(self._keys[file], error) from error

    def start(self, file: int) -> None:
        start_writing(file)

    def sync(self, file: int) -> None:
        try:
            sync_data(file)
        except OSError as error:
            raise self._root.failure(self._keys[file], error) from error

    def close_file(self, file: int) -> None:
        key = self._keys.pop(file)
        try:
            os.close(file)  # May fail too: some file systems report a full disk only here.
        except OSError as error:
            raise self._root.failure(key, error) from error

    def link(self, source: str, key: str) -> bool:
        folder, _, old = source.rpartition("/")
        origin = self._root.open_folder(self._inside, folder)
        if origin is None:
            return False
        try:
            return self._beside(key, lambda name, place: linked(old, origin, name, place))
        finally:
            os.close(origin)

    def rename(self, source: str, key: str) -> None:
        old = source.rpartition("/")[2]

        def rename(name: str, place: int) -> None:
            try:
                os.rename(old, name, src_dir_fd=place, dst_dir_fd=place)
            except IsADirectoryError:
                self._remove_folder(key, place)
                os.rename(old, name, src_dir_fd=place, dst_dir_fd=place)

        self._beside(key, rename)

    def replace(self, source: str, key: str) -> None:
        old = source.rpartition("/")[2]
        if self._beside(key, lambda name, place: exchanged(old, name, place)):
            self.unlink(source)
        else:
            self.rename(source, key)

    def place(self, source: str, key: str) -> None:
        old = source.rpartition("/")[2]
        if not self._beside(key, lambda name, place: placed(old, name, place)):
            self.rename(source, key)

    def unlink(self, key: str) -> bool:
        folder, _, name = key.rpartition("/")
        place = self._find_place(folder)
        if place is None:
            return False
        try:
            try:
                os.unlink(name, dir_fd=place)
            except IsADirectoryError:
                self._remove_folder(key, place)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._root.failure(key, error) from error
        return True

    def sync_folder(self, folder: str) -> None:
        descriptor = self._root.open_folder(self._inside, folder, listing=True)
        if descriptor is None:
            return
        try:
            sync_folder(descriptor)
        except OSError as error:
            raise self._root.failure(folder or ".", error) from error
        finally:
            os.close(descriptor)

    def sync_all(self) -> None:
        descriptor = self._root.open_folder(self._inside, "", listing=True)
        if descriptor is None:
            return
        try:
            sync_file_system(descriptor)
        except OSError as error:
            raise self._root.failure(".", error) from error
        finally:
            os.close(descriptor)

    def lock(self, name: str, wait: float, *, sync: bool) -> Turn:
        turn = lock.acquire(self._inside, name, wait, self._root.path)
        try:
            # Where there is a lock file a writer has been; where there is none nothing is swept.
            if turn.found is lock.State.NEW and sync:
                self.sync_folder("")
        except BaseException:
            turn.release()
            raise
        return turn

    def announce(self, name: str, wait: float) -> StagingLock | None:
        if self.size(name) is None:
            # The first writer here says so before anything else, as in any turn.
            turn = self.lock(name, wait, sync=True)
            turn.mark(lock.State.CLEAN if turn.found is lock.State.NEW else lock.State.BUSY)
            turn.release()
        return lock.announce(self._inside, name, wait, self._root.path)

    def pin(self, name: str, wait: float) -> Hold | None:
        return lock.pin(self._inside, name, wait, self._root.path)

    def close(self) -> None:
        for file in (*self._keys, *self._places.values()):
            with suppress(OSError):
                os.close(file)

    def _beside(self, key: str, act: Callable[[str, int], Result]) -> Result:
        """Act on the name of a key, relative to its folder."""
        folder, _, name = key.rpartition("/")
        place = self._places.get(folder)
        try:
            if place is None:
                place = self._keep_place(folder, self._root.require_folder(self._inside, folder))
            return act(name, place)
        except OSError as error:
            raise self._root.failure(key, error) from error

    def _find_place(self, folder: str) -> int | None:
        place = self._places.get(folder)
        if place is None:
            place = self._root.open_folder(self._inside, folder)
            if place is not None:
                place = self._keep_place(folder, place)
        return place

    def _remove_folder(self, key: str, place: int) -> None:
        gone = [kept for kept in self._places if f"{kept}/".startswith(f"{key}/")]
        for folder in gone:
            os.close(self._places.pop(folder))
        _remove_empty(key.rpartition("/")[2], place)

    def _keep_place(self, folder: str, place: int) -> int:
        if len(self._places) > _MOST_PLACES:
            os.close(self._places.pop(next(islice(self._places, 1, None))))
        self._places[folder] = place
        return place

    def _is_folder(self, folder: str, entry: os.DirEntry[str], follow: bool) -> bool:
        if not entry.is_symlink() or not follow:
            return entry.is_dir(follow_symlinks=False)
        path = f"{folder}/{entry.name}" if folder else entry.name
        try:
            descriptor = self._root.open_folder(self._inside, path)
        except (UnsafeError, OSError):
            return False
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def _pieces(extents: Sequence[Extent]) -> list[tuple[str, int, int | None]]:
    return [(extent.key, extent.start, extent.length) for extent in extents]


def _remove_empty(name: str, place: int) -> None:
    """Remove a folder in which there is nothing but folders.

    Keys that are gone leave their folders behind; a shorter key may have the name of one.
    """
    inside = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    try:
        with os.scandir(inside) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in below:
            _remove_empty(each, inside)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=place)


def _make_folders(path: str, *, sync: bool) -> None:
    """Create a folder and those above it; a name lasts when the folder that holds it is synced."""
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder)
        if sync:
            parent = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_folder(parent)
            finally:
                os.close(parent)


def _is_name(name: str) -> bool:
    try:
        check_key(name)
    except UnsafeError:
        return False
    return True


def read_extent(descriptor: int, size: int, extent: Extent) -> bytes:
    """Return what an extent of a file of so many bytes holds, read as far as it is there."""
    # Only what is stored is asked for: the length of an extent is a claim, perhaps a file's.
    available = max(size - extent.start, 0)
    length = available if extent.length is None else min(extent.length, available)
    if length == 0:
        return b""
    data = os.pread(descriptor, length, extent.start)
    if len(data) == length or not data:
        return data
    return _read_on(descriptor, data, length, extent.start)


def _read_on(descriptor: int, data: bytes, length: int, start: int) -> bytes:
    """Read what a system call left unread (it takes 2 GiB at most), to the end or `length`."""
    pieces, count = [data], len(data)
    while data and count < length:
        data = os.pread(descriptor, length - count, start + count)
        pieces.append(data)
        count += len(data)
    return b"".join(pieces)


def write_at(descriptor: int, start: int, data: Buffer) -> None:
    """Write all of `data` from byte `start` on."""
    view = memoryview(data)
    if view.nbytes == 0:
        return
    view = view.cast("B")
    written = 0
    while written < len(view):
        count = os.pwrite(descriptor, view[written:], start + written)
        if count == 0:
            raise OSError(errno.EIO, "nothing was written")
        written += count


if sys.platform != "win32":
    import fcntl

__all__ = ["start_writing", "sync_data", "sync_file_system", "sync_folder"]

_WRITE: Final = 2


def start_writing(file: int) -> None:
    """Have the system begin to write a file back, where it can be asked for; nothing is promised.

    Whatever goes wrong, the sync of the file will meet as well, and say.
    """
    call = _system_start()
    if call is not None:
        call(file, 0, 0, _WRITE)


def sync_data(file: int) -> None:
    """Return when the content of a file lasts."""
    if sys.platform == "darwin":
        _sync_drive(file)
    else:
        getattr(os, "fdatasync", os.fsync)(file)


def sync_folder(folder: int) -> None:
    """Return when the names in a folder last."""
    if sys.platform == "darwin":
        _sync_drive(folder)
    else:
        os.fsync(folder)


def _sync_drive(file: int) -> None:
    """Sync past the cache of the drive, where fsync stops on this system."""
    try:
        fcntl.fcntl(file, getattr(fcntl, "F_FULLFSYNC", 51))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY):
            raise
        os.fsync(file)


@functools.cache
def _system_start() -> Callable[[int, int, int, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
        call.restype = ctypes.c_int
    return call


@functools.cache
def _system_sync() -> Callable[[int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if call is not None:
        call.argtypes, call.restype = (ctypes.c_int,), ctypes.c_int
    return call


def sync_file_system(folder: int) -> None:
    """Return when everything on the file system of a folder lasts."""
    call = _system_sync()
    if call is None:
        os.sync()
    elif call(folder) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_EXCHANGE: Final = 2


def exchanged(one: str, other: str, folder: int) -> bool:
    """Exchange two names in an open folder; False, and nothing done, where that is not possible.

    The second one must be a plain file that is there already.
    """
    call = _call()
    return call is not None and _is_plain(other, folder) and _done(call, one, other, folder)


def linked(old: str, origin: int, name: str, folder: int) -> bool:
    """Give a plain file of one open folder a second name in another; False where that cannot be."""
    if os.link not in os.supports_dir_fd or not _is_plain(old, origin):
        return False
    try:
        os.link(old, name, src_dir_fd=origin, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False  # No second names here, or no more of them; a copy is the same to readers.
    return True


def placed(one: str, other: str, folder: int) -> bool:
    """Give a file the place of another, and take its first name when it has the second.

    The first is a staged name. False, and nothing done, where that is not possible. At every time
    the first name, if there is one, is that of the file: who finds it there finds what he expects.
    """
    call = _call()
    if call is None or not _is_plain(other, folder):
        return False
    second = second_name(one)
    try:
        os.link(one, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False  # No second names here, or one that somebody left.
    done = _done(call, second, other, folder)
    os.unlink(second, dir_fd=folder)
    if done:
        os.unlink(one, dir_fd=folder)
    return done


def second_name(staged: str) -> str:
    """Return another name under which the same is staged, so that it is swept away likewise.

    >>> second_name(".g-2f81.0-sizes")
    '.g-2f81.0.x-sizes'
    """
    mark, transaction, name = staged.split("-", 2)
    return f"{mark}-{transaction}.x-{name}"


def _done(
    call: Callable[[int, bytes, int, bytes, int], int], one: str, other: str, at: int
) -> bool:
    # Whatever the call complains of, a rename will meet as well, and say.
    return call(at, os.fsencode(one), at, os.fsencode(other), _EXCHANGE) == 0


def _is_plain(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


@functools.cache
def _call() -> Callable[[int, bytes, int, bytes, int], int] | None:
    if sys.platform != "linux":
        return None
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    if call is not None:
        names = ctypes.c_int, ctypes.c_char_p
        call.argtypes = (*names, *names, ctypes.c_uint)
    return call


_PIECE: Final = 1 << 24


def put_copy_aside(inside: Inside, source: str, key: str, aside: str, where: str) -> None:
    """Let a staged name lead to what `source` holds, before it becomes `key`."""
    # A key that leads to the same file already would let the rename do nothing.
    if inside.size(key) is None and inside.link(source, aside):
        return
    size = inside.size(source)
    if size is None:
        raise NotFoundError(f"{where}: no key {source!r} to be copied")
    file = inside.open_new(aside)
    try:
        for start in range(0, size, _PIECE):
            (piece,) = inside.read(source, [Extent(source, start, _PIECE)]) or (b"",)
            inside.write(file, start, piece)
    finally:
        inside.close_file(file)

"""A directory, and the only way to open files below it.

Opening a key never leaves the directory, and opens plain files and folders only.

The directory itself is the caller's choice and may be a symbolic link. Below it nothing is
trusted. Symbolic links are followed as long as every step of them stays below the directory; one
that is absolute, or that climbs out on its way, is `UnsafeError`, even when it comes back. So are
pipes, sockets, devices, and a folder where a file is wanted. All of that is checked on the open
descriptor, never on a path that could change before it is used.

Linux resolves such paths itself (openat2, since 5.6). Elsewhere, or where that call is not
permitted, the key is walked part by part, with the same outcome.
"""

import ctypes
import errno
import functools
import os
import stat
import sys
from collections.abc import Callable
from typing import Final

from ingot.errors import UnsafeError, UnsupportedError

__all__ = ["Root"]

# Opening must neither wait for the other end of a pipe nor adopt a terminal.
_FILE: Final = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY if os.name == "posix" else 0
_LISTING: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC if os.name == "posix" else 0
_FOLDER: Final = _LISTING | getattr(os, "O_PATH", 0)

_ABSENT: Final = frozenset({errno.ENOENT, errno.ENOTDIR})
_REFUSED: Final = {
    errno.EXDEV: "a symbolic link leads out of the store",
    errno.ELOOP: "its symbolic links cannot be followed",
    errno.ENXIO: "it is a socket or a device, not a plain file",
    errno.ENODEV: "it is a device, not a plain file",
    errno.EISDIR: "it is a folder, not a plain file",
    errno.ENOTEMPTY: "it is a folder with files in it, not a plain file",
}
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class Root:
    """A directory below which keys are opened, and nothing else.

    Descriptors are plain integers that the caller closes. The directory is opened again by each
    `open`, so a root holds no resource, survives a fork, and sees a directory that was replaced.

    >>> root = Root("/etc")
    >>> directory = root.open()
    >>> root.open_file(directory, "no-such-file") is None
    True
    >>> os.close(directory)
    """

    __slots__ = ("path",)

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd:
            raise UnsupportedError(
                f"local stores need files opened relative to a folder, {sys.platform} has none"
            )
        self.path: Final = os.path.abspath(os.fspath(path))

    def open(self) -> int | None:
        """Open the directory itself; None when it is absent."""
        try:
            return os.open(self.path, _FOLDER)
        except FileNotFoundError:
            return None

    def create(self) -> int:
        """Open the directory itself; create it and its parents as needed."""
        descriptor = self.open()
        if descriptor is None:
            os.makedirs(self.path, exist_ok=True)
            descriptor = os.open(self.path, _FOLDER)
        return descriptor

    def open_file(
        self, directory: int, key: str, *, writing: bool = False
    ) -> tuple[int, int] | None:
        """Open the plain file `key` and return its descriptor and size; None when it is absent."""
        descriptor = self._open(directory, key, _FILE | (os.O_RDWR if writing else os.O_RDONLY))
        if descriptor is None:
            return None
        try:
            return descriptor, self._size_of_file(descriptor, key)
        except BaseException:
            os.close(descriptor)
            raise

    def open_folder(self, directory: int, folder: str, *, listing: bool = False) -> int | None:
        """Open a folder ("" is the root), also for listing if asked; None when it is absent."""
        return self._open(directory, folder or ".", _LISTING if listing else _FOLDER)

    def require_folder(self, directory: int, folder: str) -> int:
        """Open the folder `folder`, which must exist."""
        try:
            return _open_beneath(directory, folder or ".", _FOLDER)
        except OSError as error:
            raise self.failure(folder, error) from error

    def make_folders(self, directory: int, folder: str) -> list[str]:
        """Create a folder and its parents; return those in which a name was added."""
        changed = []
        parts = folder.split("/")
        for count in range(len(parts)):
            parent = "/".join(parts[:count])
            if self._make(directory, parent, parts[count]):
                changed.append(parent)
        os.close(self.require_folder(directory, folder))
        return changed

    def failure(self, key: str, error: OSError) -> Exception:
        """Return what to raise for a system error: `UnsafeError`, or one that names the key."""
        if error.errno in _REFUSED:
            return UnsafeError(f"{self.path}: key {key!r}: {_REFUSED[error.errno]}")
        named = OSError(error.errno, error.strerror, f"{self.path}/{key}")
        named.add_note(f"key {key!r} of the store at {self.path}")
        return named

    def _open(self, directory: int, key: str, flags: int) -> int | None:
        try:
            return _open_beneath(directory, key, flags)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise self.failure(key, error) from error

    def _size_of_file(self, descriptor: int, key: str) -> int:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            return status.st_size
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a special file")
        raise UnsafeError(f"{self.path}: key {key!r}: it is {kind}, not a plain file")

    def _make(self, directory: int, parent: str, name: str) -> bool:
        folder = self.open_folder(directory, parent)
        if folder is None:
            return False  # A file has the name: opening the whole path raises that.
        try:
            os.mkdir(name, dir_fd=folder)
        except FileExistsError:
            return False
        except OSError as error:
            raise self.failure(f"{parent}/{name}" if parent else name, error) from error
        finally:
            os.close(folder)
        return True


def _open_beneath(directory: int, key: str, flags: int) -> int:
    if _kernel_resolves():
        return _open_by_kernel(directory, key, flags)
    return _open_by_walk(directory, key, flags)


class _HowToOpen(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_OPENAT2: Final = 437
_SAME_NUMBER: Final = frozenset({"x86_64", "aarch64", "riscv64", "ppc64le", "s390x", "loongarch64"})
_NO_MAGIC_LINKS: Final = 0x02
_BENEATH: Final = 0x08
_ATTEMPTS: Final = 100


@functools.cache
def _kernel_resolves() -> bool:
    if sys.platform != "linux" or os.uname().machine not in _SAME_NUMBER:
        return False
    place = os.open("/", _FOLDER)
    try:
        os.close(_open_by_kernel(place, ".", _FOLDER))
    except OSError:  # An old kernel, or a sandbox that does not know the call.
        return False
    else:
        return True
    finally:
        os.close(place)


@functools.cache
def _how_to_open(flags: int) -> _HowToOpen:
    return _HowToOpen(flags, 0, _BENEATH | _NO_MAGIC_LINKS)


@functools.cache
def _system_call() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    call.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(_HowToOpen),
        ctypes.c_size_t,
    )
    return call


def _open_by_kernel(directory: int, key: str, flags: int) -> int:
    call, how = _system_call(), _how_to_open(flags)
    for _ in range(_ATTEMPTS):
        descriptor = call(_OPENAT2, directory, os.fsencode(key), how, ctypes.sizeof(how))
        if descriptor >= 0:
            return descriptor
        code = ctypes.get_errno()
        # The kernel gives up when a folder of the path is renamed meanwhile, or at a signal.
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code))


_MOST_LINKS: Final = 40


def _open_by_walk(directory: int, key: str, flags: int) -> int:
    """Open `key` as the kernel would: links below `inside` are followed, none leads out of it.

    Going up means returning to a folder that is still held open, never asking for "..".
    """
    folders = [directory]
    pending = key.split("/")[::-1]
    links = 0
    try:
        while True:
            part = pending.pop()
            if part == "..":
                _leave(folders)
            if part in ("", ".", ".."):
                if pending:
                    continue
                part = "."
            try:
                opened = os.open(
                    part, (_FOLDER if pending else flags) | os.O_NOFOLLOW, dir_fd=folders[-1]
                )
            except OSError as error:
                links += 1
                pending += _follow(error, part, folders[-1], links)
                continue
            if not pending:
                return opened
            folders.append(opened)
    finally:
        for folder in folders[1:]:
            os.close(folder)


def _leave(folders: list[int]) -> None:
    if len(folders) == 1:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    os.close(folders.pop())


def _follow(error: OSError, part: str, folder: int, links: int) -> list[str]:
    """Return the parts, last one first, of the link that made opening `part` fail, if it is one."""
    # A link met without following it: ELOOP, ENOTDIR where a folder is wanted, EMLINK on BSD.
    if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EMLINK):
        raise error
    try:
        target = os.readlink(part, dir_fd=folder)
    except OSError:
        raise error from None
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.startswith("/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    return target.split("/")[::-1]

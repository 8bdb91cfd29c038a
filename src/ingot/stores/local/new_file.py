"""A new file that appears under its name complete, or not at all.

Where the system can, the file has no name while it is written: whatever ends the process, nothing
stays behind. Elsewhere it has a staged name beside its own. No lock is taken, because no other
program reaches the file before it has its name. Of two programs that create the same file, one is
refused.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ingot.errors import ExistsError
from ingot.signals import Deferred
from ingot.stores.local.files import renamed_new, sync_data, sync_folder
from ingot.stores.store import staged_key

__all__ = ["NewFile", "new_file"]

_UNNAMED: Final = getattr(os, "O_TMPFILE", 0)
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
# A file system or a system without files that have no name.
_NO_UNNAMED: Final = (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT)


class NewFile:
    """A file that is being written; `descriptor` is open for reading and writing."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Final = os.path.abspath(path)
        folder, self._name = os.path.split(self.path)
        self._path: Final = folder
        self._folder = -1
        self._staged: str | None = None
        self.descriptor = -1

    def _open(self, *, unnamed: bool) -> None:
        with Deferred():
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if unnamed and _UNNAMED:
                try:
                    self.descriptor = os.open(
                        ".", _UNNAMED | os.O_RDWR | os.O_CLOEXEC, 0o666, dir_fd=self._folder
                    )
                    return
                except OSError as error:
                    if error.errno not in _NO_UNNAMED:
                        raise
            self._staged = self._new_name()
            self.descriptor = os.open(
                self._staged, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=self._folder
            )

    def _new_name(self) -> str:
        return staged_key(self._name, os.urandom(8).hex())

    def publish(self, *, overwrite: bool = False, durable: bool = True) -> None:
        """Give the file its name; another file of that name is replaced only with `overwrite`.

        With `durable`, content and name survive a power cut when the call returns.
        """
        if durable:
            sync_data(self.descriptor)
        with Deferred():
            if self._staged is None and not self._link(self._name):
                if not overwrite:
                    raise self._exists()
                self._staged = self._new_name()
                self._link(self._staged)
            if self._staged is not None:
                self._rename(self._staged, overwrite)
            if durable:
                sync_folder(self._folder)

    def _link(self, name: str) -> bool:
        """Give a file without a name its first one; return False when something has it."""
        try:
            os.link(
                f"/proc/self/fd/{self.descriptor}",
                name,
                dst_dir_fd=self._folder,
                follow_symlinks=True,
            )
        except FileExistsError:
            return False
        return True

    def _rename(self, staged: str, overwrite: bool) -> None:
        if overwrite:
            os.replace(staged, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        else:
            try:
                renamed_new(staged, self._name, self._folder)
            except FileExistsError:
                raise self._exists() from None
        self._staged = None

    def _exists(self) -> ExistsError:
        return ExistsError(f"{self.path}: a file of this name exists already")

    def _close(self) -> None:
        with Deferred():
            if self.descriptor >= 0:
                os.close(self.descriptor)
                self.descriptor = -1
            if self._folder >= 0:
                if self._staged is not None:
                    with suppress(FileNotFoundError):
                        os.unlink(self._staged, dir_fd=self._folder)
                    self._staged = None
                os.close(self._folder)
                self._folder = -1


@contextmanager
def new_file(path: str | os.PathLike[str], *, unnamed: bool = True) -> Iterator[NewFile]:
    """Begin a new file, which is discarded unless the block publishes it.

    Without `unnamed`, the file has a staged name from the start.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with new_file(os.path.join(folder.name, "a")) as file:
    ...     _ = os.write(file.descriptor, b"abc")
    ...     file.publish()
    >>> with new_file(os.path.join(folder.name, "b")) as file:
    ...     _ = os.write(file.descriptor, b"abc")
    >>> os.listdir(folder.name)
    ['a']
    >>> folder.cleanup()
    """
    file = NewFile(path)
    try:
        file._open(unnamed=unnamed)
        yield file
    finally:
        file._close()

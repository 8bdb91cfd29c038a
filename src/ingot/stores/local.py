"""Stores on the local file system: a directory, or one file.

Knows how to read plain files in ranges and how to replace them whole; refuses to know formats, and
leaves it to `ingot.stores.root` which files may be opened at all.

File contents change only by write, pwrite and rename. A `Put` is written to a new file under a
staged name in the folder of its key and then renamed over it: a reader has the old file or the new
one, and a reader that opened the old one keeps it.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from ingot.errors import CorruptionError, NotFoundError, UnsafeError
from ingot.stores.root import Root
from ingot.stores.store import (
    Buffer,
    Commit,
    Delete,
    Edit,
    Extent,
    Feature,
    Patch,
    Put,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)

__all__ = ["FileStore", "LocalStore"]


class LocalStore:
    """A directory of the local file system; keys are the paths of plain files below it.

    Without `writable` the store never creates, changes or removes anything. With it the directory
    is created by the first commit, not before. A store holds no descriptor between calls: it can
    be pickled (by path), shared by threads, and used after a fork.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = LocalStore(folder.name, writable=True)
    >>> store.apply(Commit(publish=(Put("data/0", b"abc"), Put("sizes", b"3"))))
    >>> store.read([Extent("data/0", start=1), Extent("data/1")])
    [b'bc', None]
    >>> list(store.names())
    ['data/', 'sizes']
    >>> folder.cleanup()
    """

    def __init__(self, root: str | os.PathLike[str], *, writable: bool = False) -> None:
        self._root: Final = Root(root)
        self._writable: Final = writable

    @property
    def features(self) -> Feature:
        """Everything, but nothing that writes when not writable."""
        reading = Feature.RANGES | Feature.LIST | Feature.NATIVE
        writing = Feature.WRITE | Feature.ATOMIC_PUT | Feature.PATCH
        return reading | writing if self._writable else reading

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return self._root.path

    @property
    def location(self) -> str:
        """The absolute path of the directory, for messages."""
        return self._root.path

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for a key that is absent. Each key opens once."""
        wanted: dict[str, list[int]] = {}
        for position, extent in enumerate(extents):
            wanted.setdefault(check_key(extent.key), []).append(position)
        found: list[bytes | None] = [None] * len(extents)
        inside = self._root.enter()
        if inside is None:
            return found
        try:
            for key, positions in wanted.items():
                self._read_key(inside, key, extents, positions, found)
        finally:
            os.close(inside)
        return found

    def size(self, key: str) -> int | None:
        """Return the number of bytes `key` holds, or None when it is absent."""
        check_key(key)
        inside = self._root.enter()
        if inside is None:
            return None
        try:
            opened = self._root.open_file(inside, key)
        finally:
            os.close(inside)
        if opened is None:
            return None
        descriptor, size = opened
        os.close(descriptor)
        return size

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the names directly below `prefix`, sorted; folders end with a slash.

        A symbolic link to a folder counts as a folder when it may be followed, else as a file.
        """
        folder = check_key(prefix.removesuffix("/")) if prefix else ""
        inside = self._root.enter()
        if inside is None:
            return iter(())
        try:
            names = self._list(inside, folder)
        finally:
            os.close(inside)
        return iter(sorted(name for name in names if hidden or not is_staged(name)))

    def apply(self, commit: Commit) -> None:
        """Carry out a commit: all new values of a phase are written before its first edit."""
        check_commit(self, commit)
        if not commit.edits:
            return
        inside = self._root.create()
        try:
            for phase in (commit.prepare, commit.publish, commit.cleanup):
                self._perform(inside, phase)
        finally:
            os.close(inside)

    def __repr__(self) -> str:
        return f"LocalStore({self.root!r}, writable={self._writable})"

    def _read_key(
        self,
        inside: int,
        key: str,
        extents: Sequence[Extent],
        positions: list[int],
        found: list[bytes | None],
    ) -> None:
        opened = self._root.open_file(inside, key)
        if opened is None:
            return
        descriptor, size = opened
        try:
            for position in positions:
                found[position] = _read_extent(descriptor, size, extents[position])
        except OSError as error:
            raise self._root.failure(key, error) from error
        finally:
            os.close(descriptor)

    def _list(self, inside: int, folder: str) -> list[str]:
        descriptor = self._root.open_folder(inside, folder, listing=True)
        if descriptor is None:
            return []
        try:
            with os.scandir(descriptor) as entries:
                return [
                    f"{entry.name}/" if self._is_folder(inside, folder, entry) else entry.name
                    for entry in entries
                    if _is_name(entry.name)
                ]
        finally:
            os.close(descriptor)

    def _is_folder(self, inside: int, folder: str, entry: os.DirEntry[str]) -> bool:
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        try:
            descriptor = self._root.open_folder(inside, _join(folder, entry.name))
        except (UnsafeError, OSError):
            return False
        if descriptor is None:
            return False
        os.close(descriptor)
        return True

    def _perform(self, inside: int, phase: Sequence[Edit]) -> None:
        transaction = os.urandom(8).hex()
        staged: dict[int, str] = {}
        try:
            for number, edit in enumerate(phase):
                if isinstance(edit, Put):
                    key = staged_key(edit.key, f"{transaction}.{number}")
                    self._write_new(inside, key, edit.data)
                    staged[number] = key
            # Durability has its one place in this method: the new files are synced here, together,
            # and the folders they are renamed in after the loop. Neither is done: what is applied
            # survives a killed process, not a power cut.
            for number, edit in enumerate(phase):
                if isinstance(edit, Put):
                    self._rename(inside, staged[number], edit.key)
                    del staged[number]
                elif isinstance(edit, Patch):
                    self._patch(inside, edit)
                else:
                    self._delete(inside, edit)
        finally:
            for key in staged.values():
                with suppress(OSError, UnsafeError):
                    self._delete(inside, Delete(key))

    def _write_new(self, inside: int, key: str, data: Buffer) -> None:
        folder, _, name = key.rpartition("/")
        place = self._root.make_folder(inside, folder)
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o666, dir_fd=place)
            try:
                _write_and_close(descriptor, data)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=place)
                raise
        except OSError as error:
            raise self._root.failure(key, error) from error
        finally:
            os.close(place)

    def _rename(self, inside: int, source: str, key: str) -> None:
        folder, _, name = key.rpartition("/")
        place = self._root.make_folder(inside, folder)
        try:
            os.rename(source.rpartition("/")[2], name, src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            raise self._root.failure(key, error) from error
        finally:
            os.close(place)

    def _patch(self, inside: int, patch: Patch) -> None:
        opened = self._root.open_file(inside, patch.key, writing=True)
        if opened is None:
            raise NotFoundError(f"{self.location}: no key {patch.key!r} to patch")
        descriptor, size = opened
        try:
            if patch.start > size:
                raise CorruptionError(
                    f"{self.location}: key {patch.key!r} holds {size} bytes, "
                    f"a patch starts at {patch.start}"
                )
            _write_at(descriptor, patch.start, patch.data)
        except OSError as error:
            raise self._root.failure(patch.key, error) from error
        finally:
            os.close(descriptor)

    def _delete(self, inside: int, delete: Delete) -> None:
        folder, _, name = delete.key.rpartition("/")
        place = self._root.open_folder(inside, folder)
        if place is None:
            return
        try:
            os.unlink(name, dir_fd=place)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise self._root.failure(delete.key, error) from error
        finally:
            os.close(place)


class FileStore:
    """One file as a store: its only key is `key`, the name of the file.

    The path is resolved once, here, so it may be a symbolic link; a commit replaces the file that
    the link leads to. Every other key is absent, and writing to it is `UnsafeError`, but for the
    staged keys of the file itself.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = FileStore(os.path.join(folder.name, "prices.blp"), writable=True)
    >>> store.apply(Commit(publish=(Put(store.key, b"abc"),)))
    >>> store.read([Extent("prices.blp"), Extent("sizes")]), list(store.names())
    ([b'abc', None], ['prices.blp'])
    >>> folder.cleanup()
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = False) -> None:
        folder, name = os.path.split(os.path.realpath(path))
        self.key: Final = check_key(name)
        self._folder: Final = LocalStore(folder, writable=writable)

    @property
    def features(self) -> Feature:
        """Those of a `LocalStore`."""
        return self._folder.features

    @property
    def root(self) -> str:
        """The absolute path of the folder that holds the file."""
        return self._folder.root

    @property
    def location(self) -> str:
        """The absolute path of the file, for messages."""
        return os.path.join(self._folder.root, self.key)

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent; None for every key but the file's."""
        own = [extent for extent in extents if self._owns(check_key(extent.key))]
        found = iter(self._folder.read(own))
        return [next(found) if self._owns(extent.key) else None for extent in extents]

    def size(self, key: str) -> int | None:
        """Return the number of bytes of the file; None when it, or the key, is another one."""
        return self._folder.size(key) if self._owns(check_key(key)) else None

    def names(self, prefix: str = "", *, hidden: bool = False) -> Iterator[str]:
        """Yield the name of the file, if it is there."""
        names = self._folder.names(prefix, hidden=hidden)
        return (name for name in names if not prefix and self._owns(name))

    def apply(self, commit: Commit) -> None:
        """Carry out a commit whose edits are all about this file."""
        check_commit(self, commit)
        for edit in commit.edits:
            if not self._owns(edit.key):
                raise UnsafeError(f"{self.location}: the store of one file has no key {edit.key!r}")
        self._folder.apply(commit)

    def __repr__(self) -> str:
        writable = Feature.WRITE in self.features
        return f"FileStore({self.location!r}, writable={writable})"

    def _owns(self, key: str) -> bool:
        return key == self.key or is_staged(key, self.key)


def _read_extent(descriptor: int, size: int, extent: Extent) -> bytes:
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


def _write_at(descriptor: int, start: int, data: Buffer) -> None:
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


def _write_and_close(descriptor: int, data: Buffer) -> None:
    try:
        _write_at(descriptor, 0, data)
    finally:
        os.close(descriptor)  # May fail too: some file systems report a full disk only here.


def _is_name(name: str) -> bool:
    try:
        check_key(name)
    except UnsafeError:
        return False
    return True


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name

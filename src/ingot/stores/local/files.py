"""The operations on files that a local store is made of, one system call each.

The order in which they make a commit is in `commit`. Tests observe that order, cut it short and
disturb it, so a store is given its files (`FileSystem`) and uses no others.

Contents change by `open_new`, `open_old`, `write` and `truncate`, names by `make_folder`, `link`,
`rename` and `unlink`. A change is durable when the `sync` of the file, or the `sync_folder` of its
folder, returns.
"""

import ctypes
import errno
import functools
import os
import stat
import sys
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Final, NoReturn, Protocol, TypeAlias, TypeVar, cast

from ingot import native
from ingot.errors import NotFoundError, UnsafeError
from ingot.signals import uninterrupted
from ingot.stores.documents import ABSENT
from ingot.stores.local import lock as lock_file
from ingot.stores.local.beneath import Root
from ingot.stores.local.lock import ReaderLock, StagingLock, WriterLock
from ingot.stores.local.open_values import MOST_OPEN, OpenValues, open_values
from ingot.stores.local.steps import Op, Progress, Step
from ingot.stores.store import Batch, Buffer, Extent, FilePiece, check_key
from ingot.stores.versions import KernelCommit, LogState, Version

__all__ = [
    "FileSystem",
    "FolderProbe",
    "LocalFileSystem",
    "OpenDirectory",
    "check_clear",
    "exchanged",
    "linked",
    "placed",
    "read_at",
    "read_extent",
    "run_each",
    "second_name",
    "stage_copy",
    "write_at",
]

Result = TypeVar("Result")

_MOST_PLACES: Final = 32
# A file that was changed more recently may change again without another time of modification.
_UNNOTICED_NS: Final = 100_000_000
# Opening the folder costs more than it saves for so few files.
_FEW_KEYS: Final = 4


class OpenDirectory(Protocol):
    """An open directory. Keys have been checked; an open file is an integer."""

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        """Return the bytes of extents of one file; None when the file is absent."""

    def size(self, key: str) -> int | None:
        """Return the size of a plain file, None when it is absent."""

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        """Return the names in a folder; folders end with a slash, links to them too if `follow`."""

    def free_bytes(self) -> int | None:
        """Return how many bytes can still be written; None when that is unknown."""

    def make_folder(self, folder: str) -> list[str]:
        """Create a folder and its parents; return the folders in which a name was added."""

    def open_new(self, key: str) -> int:
        """Create a file, which must not exist, in a folder that does."""

    def open_old(self, key: str) -> tuple[int, int] | None:
        """Open an existing file for writing, and return it with its size; None when absent."""

    def write(self, file: int, start: int, data: Buffer) -> None:
        """Write all of `data`."""

    def truncate(self, file: int, size: int) -> None:
        """Cut off a file behind its first `size` bytes."""

    def start(self, file: int) -> None:
        """Ask the system to begin writing the file back; nothing is promised."""

    def sync(self, file: int) -> None:
        """Return when the content of the file is durable."""

    def close_file(self, file: int) -> None:
        """Close a file; an error here means that what was written may be lost."""

    def link(self, source: str, key: str) -> bool:
        """Give a file a second name; return False, and do nothing, where that is not possible."""

    def rename(self, source: str, key: str) -> None:
        """Rename a file within its folder, over the file that has the name, in one step.

        A folder that has the name is removed before, if there are no files in it.
        """

    def rename_new(self, source: str, key: str) -> None:
        """Rename a file within its folder; `FileExistsError` when something has the name."""

    def replace(self, source: str, key: str) -> None:
        """Do the same, perhaps in two steps between which `source` is the old file."""

    def place(self, source: str, key: str) -> None:
        """Do the same, perhaps in several steps; `source`, while it exists, is the new file."""

    def unlink(self, key: str) -> bool:
        """Remove a file, or a folder without files; return whether it existed."""

    def sync_folder(self, folder: str) -> None:
        """Return when the names in the folder are durable."""

    def sync_all(self) -> None:
        """Return when all changes below the directory, of every process, are durable."""

    def lock(self, name: str, wait: float, *, sync: bool) -> WriterLock:
        """Take the writer lock."""

    def announce_staging(self, name: str, wait: float) -> StagingLock | None:
        """Take the staging lock; None on systems where no writer removes staged files of others."""

    def await_readers(self, key: str, wait: float) -> None:
        """Wait until no reader pins a file itself, because it had no lock file."""

    def pin(self, name: str, wait: float) -> ReaderLock | None:
        """Take the reader lock; None when there is no lock file, so no writer either."""

    def run(self, steps: Sequence[Step], lock: WriterLock, progress: Progress) -> None:
        """Run the steps of a commit that are not done; `progress` says how far that went."""

    def close(self) -> None:
        """Close the directory."""


class FileSystem(Protocol):
    """A directory, which may not exist yet."""

    @property
    def path(self) -> str:
        """The path of the directory."""

    def open(self) -> OpenDirectory | None:
        """Open the directory; None when it is absent."""

    def create(self, *, sync: bool) -> OpenDirectory:
        """Open the directory; create it and its parents as needed, durably if `sync`."""

    def transaction(self) -> str:
        """Return 16 hexadecimal digits that were not used before."""

    def version(self, name: str) -> Version | None:
        """Return the version without taking a lock; None when there is no lock file."""

    def log_state(self, name: str) -> LogState:
        """Return what the lock file says of the log."""


ProbedFiles: TypeAlias = tuple[int, list[bytes | None], str | None]
"""The number of a group of a probe, its files, and the path of the folder, if that is known.

Behind the files of the group come further ones, if its first file is known to name them.
"""

_MOST_FURTHER: Final = 256


class FolderProbe:
    """Groups of small files: the first group is read whose first file is present.

    The names `above` may not lie in the folder above the one that is probed. The groups with the
    numbers `resolved` come with the path of the folder without symbolic links.
    """

    __slots__ = ("above", "groups", "prepared", "resolved")

    def __init__(
        self,
        groups: Iterable[Iterable[Extent]],
        above: Iterable[str] = (),
        resolved: Iterable[int] = (),
    ) -> None:
        self.groups: Final = tuple(Batch(group) for group in groups)
        self.above: Final = tuple(above)
        self.resolved: Final = tuple(resolved)
        self.prepared: native.SmallFiles | None = None

    def name_further(self, group: int, marker: bytes, files: Batch) -> None:
        """Read more files where the first file of a group holds `marker`, from now on.

        Does nothing before the first read, without the native kernel, and for very many files.
        """
        if self.prepared is not None and len(files) <= _MOST_FURTHER:
            self.prepared.name_further(group, marker, _pieces(files))


class LocalFileSystem:
    """The files below a directory of the local file system."""

    __slots__ = ("_kept", "_probes", "_root", "viewed")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._root: Final = Root(path)
        self._probes: dict[str, Callable[[], Version | None]] = {}
        self._kept: dict[str, native.NativeVersionProbe | None] = {}
        self.viewed: tuple[Hashable, object] | None = None
        """The identity of a journal, and the view through it."""

    def __reduce__(self) -> tuple[type["LocalFileSystem"], tuple[str]]:
        return LocalFileSystem, (self._root.path,)

    @property
    def path(self) -> str:
        """The absolute path of the directory."""
        return self._root.path

    @uninterrupted
    def open(self) -> OpenDirectory | None:
        """Open the directory; None when it is absent."""
        descriptor = self._root.open()
        return None if descriptor is None else _LocalDirectory(self._root, descriptor)

    @uninterrupted
    def create(self, *, sync: bool) -> OpenDirectory:
        """Open the directory; create it and its parents as needed."""
        descriptor = self._root.open()
        if descriptor is None:
            _make_folders(self.path, sync=sync)
            descriptor = self._root.create()
        return _LocalDirectory(self._root, descriptor)

    def begin_turn(
        self, names: tuple[str, str], wait: float
    ) -> tuple[OpenDirectory, WriterLock, bool] | None:
        """Open the directory and take its writer lock; see `lock_file.begin_turn`."""
        begun = lock_file.begin_turn(self._root.path, names, wait)
        if begun is None:
            return None
        descriptor, writer, journal = begun
        return _LocalDirectory(self._root, descriptor), writer, journal

    def switch(
        self,
        names: tuple[str, str],
        change: KernelCommit,
        documents: native.NativeDocuments,
        version: int,
        *,
        sync: bool,
    ) -> "native.Changed | None":
        """Have the kernel make a commit; see `lock_file.switch`."""
        return lock_file.switch(self._root.path, names, change, documents, version, sync=sync)

    def transaction(self) -> str:
        """Return 16 random hexadecimal digits."""
        return os.urandom(8).hex()

    def version(self, name: str) -> Version | None:
        """Return the version without taking a lock; None when there is no lock file."""
        probe = self._probes.get(name)
        if probe is None:
            probe = self._make_probe(name)
        return probe()

    def log_state(self, name: str) -> LogState:
        """Return what a lock file says of the log; nothing where there is no lock file."""
        return lock_file.log_state(f"{self._root.path}/{name}")

    def version_probe(self, name: str) -> native.NativeVersionProbe | None:
        """Return the native probe of a lock file; None without the native kernel."""
        if name not in self._probes:
            self._make_probe(name)
        return self._kept[name]

    def read(self, extents: Sequence[Extent]) -> list[bytes | None] | None:
        """Read short extents of different files in one native call; None when it takes more."""
        try:
            return native.read_pieces(self._root.path, _pieces(extents))
        except OverflowError:
            return None  # Beyond 64 bits; the general way finds that nothing is stored there.

    def open_values(self, extents: Sequence[Extent]) -> AbstractContextManager[OpenValues] | None:
        """Return the bytes of extents, to be read into memory; None where that is not possible."""
        if len({extent.key for extent in extents}) > MOST_OPEN or not hasattr(os, "preadv"):
            return None
        return open_values(self._root, extents)

    def identity(self, key: str) -> Hashable | None:
        """Return facts of a plain file that change with its bytes; None where they may not."""
        (found,) = self.identities((key,))
        return None if found == ABSENT else found

    def identities(self, keys: Sequence[str]) -> list[Hashable | None]:
        """Return the identity of each file; `ABSENT` for a file that is absent."""
        if len(keys) > _FEW_KEYS:
            return self._identities_below(keys)
        settled = time.time_ns() - _UNNOTICED_NS
        return [_identity(f"{self._root.path}/{key}", None, settled) for key in keys]

    @uninterrupted
    def _identities_below(self, keys: Sequence[str]) -> list[Hashable | None]:
        """Return what `identities` does; paths are shorter to follow below the open folder."""
        folder = self._root.open()
        if folder is None:
            return [ABSENT] * len(keys)
        try:
            settled = time.time_ns() - _UNNOTICED_NS
            return [_identity(key, folder, settled) for key in keys]
        finally:
            os.close(folder)

    def plain_size(self, key: str) -> int | None:
        """Return the size of a plain file directly in the folder; None where it takes more."""
        if "/" in key:
            return None  # A folder on the way may be a link that leads elsewhere.
        try:
            facts = os.stat(f"{self._root.path}/{key}", follow_symlinks=False)
        except OSError:
            return None
        return facts.st_size if stat.S_ISREG(facts.st_mode) else None

    def journal_identity(self, name: str) -> Hashable | None:
        """Return facts of a file that another file of its name does not share; None if absent.

        A journal is never changed in place, and another one comes with another version.
        """
        try:
            facts = os.stat(f"{self._root.path}/{name}", follow_symlinks=False)
        except FileNotFoundError:
            return None
        return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns

    def read_batch(self, batch: Batch) -> list[bytes | None] | None:
        """Return what `read` does, of a batch that is prepared by the first call."""
        if native.choice().name != "native":
            return None
        files = batch.prepared
        if files is None:
            try:
                files = batch.prepared = native.make_small_files([_pieces(batch)])
            except OverflowError:
                return None
        return cast(native.SmallFiles, files).read(self._root.path)

    def read_settled(
        self, name: str, journal: str, probe: "FolderProbe"
    ) -> tuple[int | None, ProbedFiles | None] | None:
        """Return the sequence number, and the files of a probe, by one call.

        `name` is the lock file. None when a commit may be under way, when it takes more than one
        call, and where one of the names `above` of the probe lies in the folder above.
        """
        kept = self.version_probe(name)
        if kept is None:
            return None
        files = probe.prepared
        if files is None:
            try:
                groups = [_pieces(group) for group in probe.groups]
                files = probe.prepared = native.make_small_files(
                    groups, probe.above, probe.resolved
                )
            except OverflowError:
                return None
            assert files is not None
        return kept.read_settled(self._root.path, journal, files)

    def _make_probe(self, name: str) -> Callable[[], Version | None]:
        version, self._kept[name] = lock_file.version_probe(f"{self._root.path}/{name}")
        self._probes[name] = version
        return version


def _identity(path: str, folder: int | None, settled: int) -> Hashable | None:
    """Return the identity of a file that was last changed before the time `settled`."""
    try:
        facts = os.stat(path, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return ABSENT
    except OSError:
        return None
    modified = facts.st_mtime_ns
    if modified > settled or not stat.S_ISREG(facts.st_mode):
        return None
    return facts.st_dev, facts.st_ino, modified, facts.st_size


class _LocalDirectory:
    """An `OpenDirectory` of the local file system: system calls relative to a descriptor."""

    __slots__ = ("_directory", "_keys", "_places", "_root")

    def __init__(self, root: Root, directory: int) -> None:
        self._root = root
        self._directory = directory
        self._keys: dict[int, str] = {}
        # Folders that were used before: a commit uses the same few again and again.
        self._places: dict[str, int] = {"": directory}

    @uninterrupted
    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        opened = self._root.open_file(self._directory, key)
        if opened is None:
            return None
        descriptor, size = opened
        try:
            return [read_extent(descriptor, size, extent) for extent in extents]
        except OSError as error:
            raise self._root.failure(key, error) from error
        finally:
            os.close(descriptor)

    @uninterrupted
    def size(self, key: str) -> int | None:
        folder, _, name = key.rpartition("/")
        # Without opening it, when its folder is open already.
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
            pass  # Opening the file raises the right error.
        opened = self._root.open_file(self._directory, key)
        if opened is None:
            return None
        descriptor, size = opened
        os.close(descriptor)
        return size

    @uninterrupted
    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        descriptor = self._root.open_folder(self._directory, folder, listing=True)
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
            facts = os.statvfs(self._directory)
        except OSError:
            return None
        return facts.f_bavail * facts.f_frsize

    def make_folder(self, folder: str) -> list[str]:
        if self._find_place(folder) is not None:
            return []
        return self._root.make_folders(self._directory, folder)

    def open_new(self, key: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        file = self._beside(key, lambda name, place: os.open(name, flags, 0o666, dir_fd=place))
        self._keys[file] = key
        return file

    def open_old(self, key: str) -> tuple[int, int] | None:
        opened = self._root.open_file(self._directory, key, writing=True)
        if opened is not None:
            self._keys[opened[0]] = key
        return opened

    def write(self, file: int, start: int, data: Buffer) -> None:
        try:
            write_at(file, start, data)
        except OSError as error:
            raise self._root.failure(self._keys[file], error) from error

    def write_piece(self, file: int, start: int, piece: FilePiece) -> int:
        try:
            return piece.write_to(file, start)
        except OSError as error:
            raise self._root.failure(self._keys[file], error) from error

    def truncate(self, file: int, size: int) -> None:
        try:
            os.ftruncate(file, size)
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
        origin = self._root.open_folder(self._directory, folder)
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

    def rename_new(self, source: str, key: str) -> None:
        old = source.rpartition("/")[2]
        self._beside(key, lambda name, place: renamed_new(old, name, place))

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
        descriptor = self._root.open_folder(self._directory, folder, listing=True)
        if descriptor is None:
            return
        try:
            sync_folder(descriptor)
        except OSError as error:
            raise self._root.failure(folder or ".", error) from error
        finally:
            os.close(descriptor)

    def sync_all(self) -> None:
        descriptor = self._root.open_folder(self._directory, "", listing=True)
        if descriptor is None:
            return
        try:
            sync_file_system(descriptor)
        except OSError as error:
            raise self._root.failure(".", error) from error
        finally:
            os.close(descriptor)

    def lock(self, name: str, wait: float, *, sync: bool) -> WriterLock:
        writer = lock_file.acquire(self._directory, name, wait, self._root.path)
        try:
            # Without a durable lock file, what a power cut leaves would not be swept.
            if writer.found is lock_file.LockState.NEW and sync:
                self.sync_folder("")
        except BaseException:
            writer.release()
            raise
        return writer

    def announce_staging(self, name: str, wait: float) -> StagingLock | None:
        if self.size(name) is None:
            # The lock file is made by a writer, before anything else.
            writer = self.lock(name, wait, sync=True)
            writer.mark(
                lock_file.LockState.CLEAN
                if writer.found is lock_file.LockState.NEW
                else lock_file.LockState.BUSY
            )
            writer.release()
        return lock_file.announce_staging(self._directory, name, wait, self._root.path)

    def await_readers(self, key: str, wait: float) -> None:
        lock_file.await_readers(self._directory, key, wait, self._root.path)

    def pin(self, name: str, wait: float) -> ReaderLock | None:
        return lock_file.pin(self._directory, name, wait, self._root.path)

    def run(self, steps: Sequence[Step], lock: WriterLock, progress: Progress) -> None:
        while not progress.files and (held := lock.held) is not None:
            ran = native.run_steps(
                self._directory, held, steps, progress.done, list(progress.changed)
            )
            if ran is None:
                break
            progress.done, changed, sequence, applying, opened, error = ran
            progress.changed = dict.fromkeys(changed)
            lock.advance(sequence, applying)
            if error is not None:
                code, key = error
                self._raise(code, steps[progress.done][1] if key is None else key)
            if progress.done == len(steps):
                return
            # The kernel has left one step, and perhaps open files.
            self._keys.update(opened)
            progress.files += [file for file, _ in opened]
            run_each(self, steps[: progress.done + 1], lock, progress)
        run_each(self, steps, lock, progress)

    def _raise(self, code: int, key: str) -> NoReturn:
        error = OSError(code, os.strerror(code))
        # Without a key it is the lock file that could not be written.
        raise self._root.failure(key, error) if key else error

    @uninterrupted
    def close(self) -> None:
        # Each descriptor leaves its dictionary before it is closed, so none is closed twice.
        for opened in (self._keys, self._places):
            while opened:
                entry = opened.popitem()
                with suppress(OSError):
                    os.close(entry[0] if isinstance(entry[0], int) else entry[1])

    def __del__(self) -> None:
        # An exception may come before the directory reached the variable that would close it.
        if self._keys or self._places:
            try:
                self.close()
            finally:
                self.close()  # Ctrl-C may have come before the first call held it back.

    def _beside(self, key: str, act: Callable[[str, int], Result]) -> Result:
        """Call `act` with the name of a key and the descriptor of its folder."""
        folder, _, name = key.rpartition("/")
        place = self._places.get(folder)
        try:
            if place is None:
                place = self._keep_place(folder, self._root.require_folder(self._directory, folder))
            return act(name, place)
        except OSError as error:
            raise self._root.failure(key, error) from error

    def _find_place(self, folder: str) -> int | None:
        place = self._places.get(folder)
        if place is None:
            place = self._root.open_folder(self._directory, folder)
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
            descriptor = self._root.open_folder(self._directory, path)
        except (UnsafeError, OSError):
            return False
        if descriptor is None:
            return False
        os.close(descriptor)
        return True


def run_each(
    directory: OpenDirectory, steps: Sequence[Step], lock: WriterLock, progress: Progress
) -> None:
    """Run the steps that are not done, one by one; a failure closes the open files."""
    try:
        for step in steps[progress.done :]:
            run_one(directory, step, lock, progress)
            progress.done += 1
    except BaseException:
        while progress.files:
            with suppress(OSError):
                directory.close_file(progress.files.pop())
        raise


def run_one(directory: OpenDirectory, step: Step, lock: WriterLock, progress: Progress) -> None:
    """Run one step."""
    operation, key, source, start, data = step
    files, changed = progress.files, progress.changed
    match operation:
        case Op.CREATE:
            folder = key.rpartition("/")[0]
            if folder:
                changed.update(dict.fromkeys(directory.make_folder(folder)))
            files.append(directory.open_new(key))
            try:
                directory.write(files[-1], 0, data)
            except BaseException:
                with suppress(OSError):
                    directory.unlink(key)
                raise
        case Op.OPEN:
            opened = directory.open_old(key)
            if opened is None:
                raise NotFoundError(f"{progress.where}: no key {key!r}")
            files.append(opened[0])
        case Op.WRITE:
            directory.write(files[-1], start, data)
        case Op.TRUNCATE:
            directory.truncate(files[-1], start)
        case Op.SYNC_FILES:
            # Once all are being written back, waiting for the first mostly covers the others.
            for file in files if len(files) > 1 else ():
                directory.start(file)
            for file in files:
                directory.sync(file)
        case Op.CLOSE_FILES:
            while files:
                directory.close_file(files.pop())
        case Op.REQUIRE:
            if directory.size(source) is None:
                raise NotFoundError(f"{progress.where}: no key {source!r} to become {key!r}")
        case Op.REQUIRE_CLEAR:
            check_clear(directory, key, data)
        case Op.RENAME | Op.REPLACE | Op.PLACE:
            if operation is Op.REPLACE:
                directory.replace(source, key)
            elif operation is Op.PLACE:
                directory.place(source, key)
            else:
                directory.rename(source, key)
            changed[key.rpartition("/")[0]] = None
        case Op.UNLINK:
            if directory.unlink(key):
                changed[key.rpartition("/")[0]] = None
        case Op.CHANGED:
            changed[key] = None
        case Op.SYNC_FOLDERS:
            for folder in list(changed):
                directory.sync_folder(folder)
            changed.clear()
        case Op.FORGET_CHANGED:
            changed.clear()
        case Op.SYNC_ALL:
            directory.sync_all()
        case Op.APPLY_LOCK:
            lock.begin_apply()
        case Op.SWITCH:
            lock.begin_switch()
        case Op.BUMP:
            lock.bump()
        case Op.MARK:
            lock.mark(lock_file.LockState(start))


def check_clear(directory: OpenDirectory, key: str, leaving: Collection[str] = ()) -> None:
    """Raise `UnsafeError` when `key` is a folder that holds files that are not `leaving`."""
    try:
        directory.size(key)
    except UnsafeError:
        folder, _, name = key.rpartition("/")
        # A link to a folder is a name like others.
        if f"{name}/" in directory.names(folder, follow=False) and _holds_files(
            directory, key, leaving
        ):
            raise


def _holds_files(directory: OpenDirectory, folder: str, leaving: Collection[str]) -> bool:
    keys = (f"{folder}/{name}" for name in directory.names(folder, follow=False))
    return any(
        _holds_files(directory, key[:-1], leaving) if key.endswith("/") else key not in leaving
        for key in keys
    )


def _pieces(extents: Sequence[Extent]) -> list[tuple[str, int, int | None]]:
    return [(extent.key, extent.start, extent.length) for extent in extents]


def _remove_empty(name: str, place: int) -> None:
    """Remove a folder that holds nothing but folders.

    Removed keys leave their folders behind; a shorter key may have the name of one.
    """
    directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
    try:
        with os.scandir(directory) as entries:
            below = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for each in below:
            _remove_empty(each, directory)
    finally:
        os.close(directory)
    os.rmdir(name, dir_fd=place)


def _make_folders(path: str, *, sync: bool) -> None:
    """Create a folder and its parents; with `sync`, sync the folder that holds each new name."""
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
    """Return the bytes of an extent of a file that has `size` bytes."""
    # Only stored bytes are asked for: the length of an extent may be a claim in a file.
    available = max(size - extent.start, 0)
    length = available if extent.length is None else min(extent.length, available)
    return read_at(descriptor, extent.start, length) if length else b""


def read_at(descriptor: int, start: int, length: int) -> bytes:
    """Return `length` bytes of a file from byte `start` on; fewer where the file ends."""
    data = os.pread(descriptor, length, start)
    if len(data) == length or not data:
        return data
    # One system call reads 2 GiB at most.
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

_WRITE: Final = 2


def start_writing(file: int) -> None:
    """Ask the system to begin writing a file back, where it can be asked; nothing is promised.

    An error here is met by the sync of the file as well, which raises it.
    """
    call = _system_start()
    if call is not None:
        call(file, 0, 0, _WRITE)


def sync_data(file: int) -> None:
    """Return when the content of a file is durable."""
    if sys.platform == "darwin":
        _sync_drive(file)
    else:
        getattr(os, "fdatasync", os.fsync)(file)


def sync_folder(folder: int) -> None:
    """Return when the names in a folder are durable."""
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
    """Return when everything on the file system of a folder is durable."""
    call = _system_sync()
    if call is None:
        os.sync()
    elif call(folder) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


_EXCHANGE: Final = 2
_NEW: Final = 1


def exchanged(one: str, other: str, folder: int) -> bool:
    """Exchange two names in an open folder; return False, and do nothing, where that fails.

    The second name must be that of an existing plain file.
    """
    call = _call()
    return call is not None and _is_plain(other, folder) and _done(call, one, other, folder)


def renamed_new(old: str, name: str, folder: int) -> None:
    """Rename a file in an open folder; `FileExistsError` when something has the new name."""
    call = _call()
    if call is not None and call(folder, os.fsencode(old), folder, os.fsencode(name), _NEW) == 0:
        return
    # Where the system has no such call, or raises an error, which these calls raise as well.
    os.link(old, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    os.unlink(old, dir_fd=folder)


def linked(old: str, origin: int, name: str, folder: int) -> bool:
    """Give a plain file of one open folder a second name in another; False where that fails."""
    if os.link not in os.supports_dir_fd or not _is_plain(old, origin):
        return False
    try:
        os.link(old, name, src_dir_fd=origin, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:
        return False  # No second names here, or no more of them; the caller makes a copy.
    return True


def placed(one: str, other: str, folder: int) -> bool:
    """Let a staged file replace another, and remove its staged name afterwards.

    Return False, and do nothing, where that cannot be done. At any time the staged name, if it
    exists, is that of the staged file, so that a journal can be replayed at any time.
    """
    call = _call()
    if call is None or not _is_plain(other, folder):
        return False
    second = second_name(one)
    try:
        os.link(one, second, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False  # No second names here, or a leftover has the name.
    done = _done(call, second, other, folder)
    os.unlink(second, dir_fd=folder)
    if done:
        os.unlink(one, dir_fd=folder)
    return done


def second_name(staged: str) -> str:
    """Return another staged name for the same file, so that a sweep removes it likewise.

    >>> second_name(".g-2f81.0-sizes")
    '.g-2f81.0.x-sizes'
    """
    mark, transaction, name = staged.split("-", 2)
    return f"{mark}-{transaction}.x-{name}"


def _done(
    call: Callable[[int, bytes, int, bytes, int], int], one: str, other: str, at: int
) -> bool:
    # An error here is met by a rename as well, which raises it.
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


def write_piece(directory: OpenDirectory, file: int, start: int, piece: FilePiece) -> int:
    """Write a piece of a value, and return its length; in a file of the system it writes itself."""
    if isinstance(directory, _LocalDirectory):
        return directory.write_piece(file, start, piece)
    end = start
    for part in piece:
        directory.write(file, end, part)
        end += memoryview(part).nbytes
    return end - start


def stage_copy(directory: OpenDirectory, source: str, key: str, staged: str, where: str) -> None:
    """Stage the value of `source` for `key`, as a second name of its file or as a copy."""
    # A rename does nothing when both names are the same file.
    if directory.size(key) is None and directory.link(source, staged):
        return
    size = directory.size(source)
    if size is None:
        raise NotFoundError(f"{where}: no key {source!r} to copy")
    file = directory.open_new(staged)
    try:
        for start in range(0, size, _PIECE):
            (piece,) = directory.read(source, [Extent(source, start, _PIECE)]) or (b"",)
            directory.write(file, start, piece)
    finally:
        directory.close_file(file)

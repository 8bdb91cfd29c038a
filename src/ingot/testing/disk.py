"""A file system in memory that knows which of its bytes and names a power cut may leave.

It models the least that a file system promises: the content of a file is durable as of its last
sync, a name as of the last sync of its folder, and a rename within a folder happens whole or not at
all. Any subset of the changes since then may be left, but eight bytes at a multiple of eight are
old or new. `ingot.stores.LocalStore` takes a disk as its root.

>>> from ingot.stores import Commit, LocalStore, Put
>>> disk = Disk({"a": b"old"})
>>> LocalStore(disk, writable=True).apply(Commit(publish=(Put("a", b"new"),)))
>>> disk.steps
['create .g-0000000000000001.0-a', 'write', 'sync', 'switch', 'rename a', 'sync folder .', 'bump',
'mark']
>>> [dict(image.files) for image in disk.images()]
[{'a': b'new'}]
"""

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Final, NamedTuple, TypeAlias

from ingot.errors import LockedError
from ingot.stores.local.commit import WORD
from ingot.stores.local.files import run_each, second_name
from ingot.stores.local.lock import LockState, WriterLock
from ingot.stores.local.steps import Progress, Step
from ingot.stores.store import Buffer, Extent
from ingot.stores.versions import SWITCHING, LogState, Version

__all__ = ["Disk", "Image"]

_SETTLED: Final = LockState.CLEAN, LockState.LOOSE, LockState.LOGGED
_FOLDER: Final = -1
_MOST_SUBSETS: Final = 7

Names: TypeAlias = dict[str, int]
Change: TypeAlias = tuple[tuple[str, int | None], ...]
"""The change of one operation to the names of a folder: all of it happens, or nothing."""


class Image(NamedTuple):
    """What a power cut leaves: the files with their content, and the folders."""

    files: tuple[tuple[str, bytes], ...]
    folders: tuple[str, ...]
    log: str = ""
    """The log that the lock file names."""


class Disk:
    """Files and folders in memory, what of them is durable, and every step that changed them.

    `watch` is called before each step with its description; it may raise an error instead, or
    return True to skip the step silently. `after` is called after each step.

    >>> disk = Disk({"a": b"1"})
    >>> file, size = disk.open_old("a")
    >>> disk.write(file, 3, b"4")
    >>> disk.truncate(file, 6)
    >>> disk.read("a", [Extent("a")])
    [b'1\\x00\\x004\\x00\\x00']
    """

    path: Final = "disk"

    def __init__(
        self,
        files: Mapping[str, bytes] | None = None,
        folders: Iterable[str] = (),
        state: LockState = LockState.CLEAN,
    ) -> None:
        self.steps: list[str] = []
        self.watch: Callable[[str], bool | None] | None = None
        self.after: Callable[[], None] | None = None
        self.state = state
        self.sequence = 1
        self.log = ""
        self.written = False
        # The names of logs that may be those on the disk: to forget one is not synced.
        self._logs: tuple[str, ...] = ("",)
        self.locked = False
        self.applying = False
        self.free: int | None = None
        self._transactions = 0
        self._contents: dict[int, bytes] = {}
        self._names: dict[str, Names] = {"": {}}
        for folder in folders:
            self._add_folder(folder)
        for key, data in (files or {}).items():
            folder, _, name = key.rpartition("/")
            self._add_folder(folder)
            self._contents[len(self._contents) + 1] = data
            self._names[folder][name] = len(self._contents)
        self._lasting = dict(self._contents)
        self._kept = {folder: dict(names) for folder, names in self._names.items()}
        self._pending: dict[str, list[Change]] = {}
        self._loose: set[int] = set()
        # The folder of the last change of names; "*" after a change of content, None after a sync.
        self._latest: str | None = None
        self._next = len(self._contents) + 1

    @classmethod
    def of(cls, image: Image) -> "Disk":
        """Return the disk that a power cut left, after the system was restarted."""
        disk = cls(dict(image.files), image.folders, LockState.UNKNOWN)
        disk.log, disk._logs = image.log, (image.log,)
        return disk

    def copy(self) -> "Disk":
        """Return a copy of the disk, without `watch` and `after`."""
        twin = Disk(state=self.state)
        twin.sequence, twin.applying, twin.free = self.sequence, self.applying, self.free
        twin._transactions, twin._next = self._transactions, self._next
        twin.log, twin.written, twin._logs = self.log, self.written, self._logs
        twin._contents, twin._lasting = dict(self._contents), dict(self._lasting)
        twin._names = {folder: dict(names) for folder, names in self._names.items()}
        twin._kept = {folder: dict(names) for folder, names in self._kept.items()}
        twin._pending = {folder: list(changes) for folder, changes in self._pending.items()}
        twin._loose = set(self._loose)
        return twin

    # What a power cut leaves

    def images(self, *, newest: bool = False, contents: int = 256) -> Iterator[Image]:
        """Yield the states that a power cut may leave now; see `_subsets` for the exceptions.

        Of the contents that unsynced files may have, up to `contents` combinations are yielded all,
        of more a part. With `newest`, only states that were not possible before the last step:
        after a sync there are none.
        """
        latest = self._latest if newest else None
        if newest and latest is None:
            return
        folders = [folder for folder, changes in self._pending.items() if changes]
        choices = [
            _subsets(self._kept.get(folder, {}), self._pending[folder], last=folder == latest)
            for folder in folders
        ]
        for chosen in product(*choices):
            kept = {**self._kept, **dict(zip(folders, chosen, strict=True))}
            for image in self._filled(kept, contents):
                yield from (image._replace(log=log) for log in self._logs)

    def _filled(self, kept: Mapping[str, Names], most: int) -> Iterator[Image]:
        files: list[tuple[str, int]] = []
        folders: list[str] = []
        _collect("", kept, files, folders)
        files.sort()
        shown = tuple(sorted(folders))
        loose = sorted({file for _, file in files if file in self._loose})
        if not loose:
            yield Image(tuple([(key, self._lasting[file]) for key, file in files]), shown)
            return
        for contents in self._variants(loose, most):
            yield Image(
                tuple(
                    (key, contents.get(file, self._lasting.get(file, b""))) for key, file in files
                ),
                shown,
            )

    def _variants(self, loose: Sequence[int], most: int) -> Iterator[dict[int, bytes]]:
        """Yield the contents that unsynced files may have."""
        options = [_torn(self._lasting.get(file), self._contents[file]) for file in loose]
        count = 1
        for option in options:
            count *= len(option)
        if count <= most:
            for chosen in product(*options):
                yield dict(zip(loose, chosen, strict=True))
            return
        for common in range(4):
            same = {
                file: option[common % len(option)]
                for file, option in zip(loose, options, strict=True)
            }
            yield same
            for file, option in zip(loose, options, strict=True):
                for other in option:
                    yield {**same, file: other}

    # Files

    def open(self) -> "Disk":
        """Open the directory."""
        return self

    def create(self, *, sync: bool) -> "Disk":
        """Open the directory, which always exists."""
        return self

    def transaction(self) -> str:
        """Return the next number."""
        self._transactions += 1
        return f"{self._transactions:016x}"

    def close(self) -> None:
        """Close the directory."""

    # Reading

    def read(self, key: str, extents: Sequence[Extent]) -> list[bytes] | None:
        """Return the bytes of extents of a file."""
        file = self._find(key)
        if file is None:
            return None
        data = self._contents[file]
        return [
            data[extent.start : None if extent.length is None else extent.start + extent.length]
            for extent in extents
        ]

    def size(self, key: str) -> int | None:
        """Return the size of a file."""
        file = self._find(key)
        return None if file is None else len(self._contents[file])

    def names(self, folder: str, *, follow: bool = True) -> list[str]:
        """Return the names in a folder."""
        return list(self._names.get(folder, ()))

    def free_bytes(self) -> int | None:
        """Return the number that a test has set."""
        return self.free

    # Writing

    def make_folder(self, folder: str) -> list[str]:
        """Create a folder and its parents."""
        changed = []
        parts = folder.split("/")
        for count in range(len(parts)):
            parent, path = "/".join(parts[:count]), "/".join(parts[: count + 1])
            if path not in self._names and self._step(f"mkdir {path}"):
                self._change(parent, ((f"{parts[count]}/", _FOLDER),))
                self._names[path] = {}
                self._done()
                changed.append(parent)
        return changed

    def open_new(self, key: str) -> int:
        """Create a file."""
        folder, _, name = key.rpartition("/")
        if name in self._names[folder]:
            raise FileExistsError(errno.EEXIST, "File exists", key)
        file, self._next = self._next, self._next + 1
        self._contents[file] = b""
        self._loose.add(file)
        if self._step(f"create {key}"):
            self._change(folder, ((name, file),))
            self._done()
        return file

    def open_old(self, key: str) -> tuple[int, int] | None:
        """Open an existing file for writing."""
        file = self._find(key)
        return None if file is None else (file, len(self._contents[file]))

    def write(self, file: int, start: int, data: Buffer) -> None:
        """Write into a file."""
        if self._step("write"):
            # What lies between the end of a file and a write behind it are zeros.
            old, new = self._contents[file].ljust(start, b"\0"), bytes(data)
            self._contents[file] = old[:start] + new + old[start + len(new) :]
            self._loose.add(file)
            self._latest = "*"
            self._done()

    def truncate(self, file: int, size: int) -> None:
        """Cut off a file, or fill it up with zeros."""
        if self._step("truncate"):
            self._contents[file] = self._contents[file][:size].ljust(size, b"\0")
            self._loose.add(file)
            self._latest = "*"
            self._done()

    def start(self, file: int) -> None:
        """Do nothing: the operation promises nothing."""

    def sync(self, file: int) -> None:
        """Make the content of a file durable."""
        if self._step("sync"):
            self._lasting[file] = self._contents[file]
            self._loose.discard(file)
            self._done()

    def close_file(self, file: int) -> None:
        """Close a file."""

    def link(self, source: str, key: str) -> bool:
        """Give a file a second name."""
        folder, _, name = key.rpartition("/")
        file = self._find(source)
        if file is None:
            return False
        if self._step(f"link {key}"):
            self._change(folder, ((name, file),))
            self._done()
        return True

    def rename(self, source: str, key: str) -> None:
        """Move a name within its folder."""
        folder, _, name = key.rpartition("/")
        old = source.rpartition("/")[2]
        if old not in self._names[folder]:
            raise FileNotFoundError(errno.ENOENT, "No such file", source)
        if self._step(f"rename {key}"):
            self._change(folder, ((old, None), (name, self._names[folder][old])))
            self._done()

    def rename_new(self, source: str, key: str) -> None:
        """Move a name within its folder, unless the new name exists."""
        folder, _, name = key.rpartition("/")
        if name in self._names[folder]:
            raise FileExistsError(errno.EEXIST, "File exists", key)
        self.rename(source, key)

    def replace(self, source: str, key: str) -> None:
        """Exchange two names of a folder, then remove the first; without the second, rename."""
        folder, _, name = key.rpartition("/")
        old, names = source.rpartition("/")[2], self._names[folder]
        if name not in names or old not in names:
            self.rename(source, key)
            return
        if self._step(f"exchange {key}"):
            self._change(folder, ((old, names[name]), (name, names[old])))
            self._done()
        self.unlink(source)

    def place(self, source: str, key: str) -> None:
        """Give a file a second name, exchange that with the key, and remove the staged names."""
        folder, _, name = key.rpartition("/")
        old, names = source.rpartition("/")[2], self._names[folder]
        if name not in names or old not in names:
            self.rename(source, key)
            return
        if self._step(f"link {source}"):
            self._change(folder, ((second_name(old), names[old]),))
            self._done()
        self.replace(source.removesuffix(old) + second_name(old), key)
        self.unlink(source)

    def unlink(self, key: str) -> bool:
        """Remove a name."""
        folder, _, name = key.rpartition("/")
        if name not in self._names.get(folder, ()):
            return False
        if self._step(f"unlink {key}"):
            self._change(folder, ((name, None),))
            self._done()
        return True

    def sync_folder(self, folder: str) -> None:
        """Make the names in a folder durable."""
        if self._step(f"sync folder {folder or '.'}"):
            self._keep(folder)
            self._done()

    def sync_all(self) -> None:
        """Make everything durable."""
        if self._step("sync all"):
            for folder in list(self._pending):
                self._keep(folder)
            for file in self._loose:
                self._lasting[file] = self._contents[file]
            self._loose.clear()
            self._done()

    # Locks

    def lock(self, name: str, wait: float, *, sync: bool) -> "_DiskLock":
        """Take the writer lock."""
        if self.locked:
            raise LockedError(errno.EAGAIN, "disk: locked")
        self.locked = True
        return _DiskLock(self)

    def version(self, name: str) -> Version:
        """Return the version."""
        return Version(self.sequence, self.state in _SETTLED)

    def log_state(self, name: str) -> LogState:
        """Return which log is named, and whether the files hold what it says."""
        return LogState(self.log, self.written and self.sequence < SWITCHING)

    def announce_staging(self, name: str, wait: float) -> None:
        """Do nothing: only this process stages files."""

    def await_readers(self, key: str, wait: float) -> None:
        """Do nothing: only single files are pinned without a lock file."""

    def pin(self, name: str, wait: float) -> None:
        """Do nothing: schedules of readers and writers take the lock into account."""

    def run(self, steps: Sequence[Step], lock: WriterLock, progress: Progress) -> None:
        """Run the steps of a commit."""
        run_each(self, steps, lock, progress)

    def _find(self, key: str) -> int | None:
        folder, _, name = key.rpartition("/")
        return self._names.get(folder, {}).get(name)

    def _add_folder(self, folder: str) -> None:
        if folder and folder not in self._names:
            parent, _, name = folder.rpartition("/")
            self._add_folder(parent)
            self._names[parent][f"{name}/"] = _FOLDER
            self._names[folder] = {}

    def _change(self, folder: str, change: Change) -> None:
        _perform(self._names[folder], change)
        self._pending.setdefault(folder, []).append(change)
        self._latest = folder

    def _keep(self, folder: str) -> None:
        if folder in self._names:
            self._kept[folder] = dict(self._names[folder])
        self._pending.pop(folder, None)

    def _step(self, what: str) -> bool:
        self.steps.append(what)
        self._latest = None
        return not (self.watch is not None and self.watch(what))

    def _done(self) -> None:
        if self.after is not None:
            self.after()


class _DiskLock:
    """The lock of the one writer of a disk."""

    __slots__ = ("_disk", "found")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.found = disk.state
        disk.state = LockState.BUSY
        disk.written = disk.written and self.found in _SETTLED
        disk.sequence %= SWITCHING

    @property
    def sequence(self) -> int:
        return self._disk.sequence

    @property
    def held(self) -> None:
        return None

    @property
    def log(self) -> str:
        return self._disk.log

    def name_log(self, name: str) -> None:
        if self._disk._step("name log"):
            self._disk.log, self._disk.written = name, True
            self._disk._logs = (name,)
            self._disk._latest = "*"
            self._disk._done()

    def forget_log(self) -> None:
        if self._disk._step("forget log"):
            self._disk.log, self._disk.written = "", False
            self._disk._logs = tuple({*self._disk._logs, ""})
            self._disk._latest = "*"
            self._disk._done()

    def advance(self, sequence: int, applying: bool) -> None:
        pass

    def bump(self) -> None:
        if self._disk._step("bump"):
            self._disk.sequence = self._disk.sequence % SWITCHING + 1
            self._disk._done()

    def begin_apply(self) -> None:
        self._disk.applying = True

    def begin_switch(self) -> None:
        if self._disk._step("switch"):
            self._disk.sequence |= SWITCHING
            self._disk._done()

    def mark(self, state: LockState) -> None:
        if self._disk._step("mark"):
            self._disk.state = state
            self._disk._done()

    def begin_sweep(self, own: int) -> bool:
        return False

    def request_sweep(self) -> bool:
        return True

    def end_sweep(self) -> None:
        pass

    def release(self) -> None:
        self._disk.locked = self._disk.applying = False


def _perform(names: Names, change: Change) -> None:
    for name, file in change:
        if file is None:
            names.pop(name, None)
        else:
            names[name] = file


def _subsets(kept: Names, changes: Sequence[Change], *, last: bool) -> list[Names]:
    """Return the names that a folder may hold after any subset of its changes, in their order.

    Of many changes: the first ones, the last ones, all but one, and one alone. With `last`, only
    subsets that include the last change.
    """
    count = len(changes)
    whole = range(count)
    chosen: Iterable[Sequence[int]]
    if count <= _MOST_SUBSETS:
        chosen = [part for size in range(count + 1) for part in combinations(whole, size)]
    else:
        chosen = [
            *(range(stop) for stop in range(count + 1)),
            *(range(first, count) for first in whole),
            *([index for index in whole if index != left] for left in whole),
            *([index] for index in whole),
        ]
    found: dict[tuple[tuple[str, int], ...], Names] = {}
    for part in chosen:
        if last and count - 1 not in part:
            continue
        names = dict(kept)
        for index in part:
            _perform(names, changes[index])
        found[tuple(sorted(names.items()))] = names
    return list(found.values())


def _torn(old: bytes | None, new: bytes) -> list[bytes]:
    """Return the contents that an unsynced file may have: old, half, zeros, full."""
    half = len(new) // 2
    if old is not None:
        # A word of both is written whole; what is shorter, or new, may end anywhere.
        word = slice(half // WORD * WORD, half // WORD * WORD + WORD)
        if old[word] != new[word] and min(len(old), len(new)) >= word.stop:
            half = word.start
    if old is None:
        options = [b"", new[:half], bytes(len(new)), new]
    else:
        options = [old, new[:half] + old[half:], old.ljust(len(new), b"\0"), new]
    return list(dict.fromkeys(options))


def _collect(
    folder: str, kept: Mapping[str, Names], files: list[tuple[str, int]], folders: list[str]
) -> None:
    lead = f"{folder}/" if folder else ""
    for name, file in kept.get(folder, {}).items():
        if file == _FOLDER:
            folders.append(lead + name[:-1])
            _collect(lead + name[:-1], kept, files, folders)
        else:
            files.append((lead + name, file))

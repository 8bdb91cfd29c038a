"""The record of a conversion that is under way, in the folder of its target.

The record has the documents of the target, which are not stored yet, and for each window of chunks
that is stored the sizes and checksums of its files. Without its documents the target is no dataset.
A conversion that was interrupted is continued from the record.
"""

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ingot.codecs.checksums import digests
from ingot.containers.conversion import PENDING
from ingot.errors import FormatError
from ingot.native import NativeDocuments
from ingot.stores import LocalStore
from ingot.stores.store import Buffer, Delete, Edit, Extent, Move, Put, Store

__all__ = [
    "PendingStore",
    "Progression",
    "folder_state",
    "is_stored",
    "read_progression",
    "read_windows",
    "removal",
    "remove_empty_folders",
    "remove_folder",
    "window_put",
]

_PLAN: Final = PENDING
_FOLDER: Final = PENDING.partition("/")[0]
_VERSION: Final = 2
"""Raised when windows get other numbers or other boxes."""
_BATCH: Final = 64
_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class Progression:
    """What a conversion makes, and from which state of its source.

    >>> made = Progression("old.zarr", "7f", {"zarr.json": b"{}"})
    >>> Progression.parse(made.pack()) == made
    True
    """

    source: str
    state: str
    """A digest of the state of the source, and of the layout of the target."""
    documents: Mapping[str, bytes]
    """The documents of the target, by their keys, in the order in which they are published."""

    def pack(self) -> bytes:
        """Return the record as it is stored."""
        documents = {key: base64.b64encode(data).decode() for key, data in self.documents.items()}
        return json.dumps(
            {
                "version": _VERSION,
                "source": self.source,
                "state": self.state,
                "documents": documents,
            }
        ).encode()

    @classmethod
    def parse(cls, data: bytes) -> "Progression":
        """Return the record that is stored; `FormatError` if it is none."""
        try:
            found = json.loads(data)
            if found["version"] != _VERSION:
                raise FormatError(f"{_PLAN}: version {found['version']!r} is unknown")
            documents = {
                str(key): base64.b64decode(text, validate=True)
                for key, text in found["documents"].items()
            }
            return cls(str(found["source"]), str(found["state"]), documents)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{_PLAN}: no record of a conversion: {error}") from None

    def put(self) -> Put:
        """Return the edit that stores the record."""
        return Put(_PLAN, self.pack())


def read_progression(store: Store) -> Progression | None:
    """Return the record of a conversion in a folder; None where there is none."""
    (data,) = store.read([Extent(_PLAN)])
    return None if data is None else Progression.parse(data)


def window_put(leaf: int, window: int, edits: Iterable[Edit]) -> Put:
    """Return the edit that records the files of a window.

    A file whose checksum is not known is recorded with a size of -1: it is never found stored.
    """
    files: list[tuple[str, int, int]] = []
    puts: dict[str, Buffer] = {}
    for edit in edits:
        if isinstance(edit, Put):
            puts[edit.key] = edit.data
        elif isinstance(edit, Move) and edit.size is not None and edit.checksum is not None:
            files.append((edit.key, edit.size, edit.checksum))
        else:
            files.append((edit.key, -1, 0))
    files += _facts(puts)
    return Put(f"{_FOLDER}/{leaf}.{window}", json.dumps(files).encode())


def _facts(values: Mapping[str, Buffer]) -> Iterator[tuple[str, int, int]]:
    """Yield keys with the sizes and checksums (CRC-32) of their values."""
    sums = digests("crc32", list(values.values()), _THREADS)
    for (key, data), checksum in zip(values.items(), sums, strict=True):
        yield key, len(data), int.from_bytes(checksum, "little")


def read_windows(store: Store) -> Iterator[tuple[int, int, list[tuple[str, int, int]]]]:
    """Yield the windows that were stored: leaf, window, and their files.

    A record of a window that cannot be read counts for nothing: the window is stored again.
    """
    for name in store.names(_FOLDER):
        leaf, _, window = name.partition(".")
        if not (leaf.isdecimal() and window.isdecimal()):
            continue
        (data,) = store.read([Extent(f"{_FOLDER}/{name}")])
        try:
            files = [
                (str(key), int(size), int(sum_)) for key, size, sum_ in json.loads(data or b"")
            ]
        except (ValueError, TypeError):
            continue
        yield int(leaf), int(window), files


def is_stored(store: Store, files: Sequence[tuple[str, int, int]]) -> bool:
    """Return whether files have the sizes and checksums of a record."""
    for first in range(0, len(files), _BATCH):
        part = files[first : first + _BATCH]
        found = store.read([Extent(key, 0, size + 1) for key, size, _ in part])
        values = {
            key: data for (key, _, _), data in zip(part, found, strict=True) if data is not None
        }
        if list(_facts(values)) != list(part):
            return False
    return True


def removal(store: Store) -> tuple[Delete, ...]:
    """Return the edits that remove the record."""
    return tuple(Delete(f"{_FOLDER}/{name}") for name in store.names(_FOLDER))


def remove_empty_folders(folder: str) -> None:
    """Remove all folders below a folder that hold nothing."""
    for place, _, _ in os.walk(folder, topdown=False):
        if place != folder:
            with suppress(OSError):
                os.rmdir(place)


def remove_folder(folder: str) -> None:
    """Remove a folder that holds nothing but a lock file and empty folders."""
    rest = [(place, name) for place, _, files in os.walk(folder) for name in files]
    if rest in ([], [(folder, ".lock")]):
        shutil.rmtree(folder, ignore_errors=True)


class PendingStore(LocalStore):
    """The folder of a target whose documents are not stored yet, and are read from the record."""

    def __init__(self, root: str, documents: Mapping[str, bytes]) -> None:
        super().__init__(root, writable=True)
        self._documents: Final = documents

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        """Return the bytes of each extent, of documents as they will be."""
        rest = iter(super().read([each for each in extents if each.key not in self._documents]))
        return [self._part(each) if each.key in self._documents else next(rest) for each in extents]

    def size(self, key: str) -> int | None:
        """Return the number of bytes of a key."""
        found = self._documents.get(key)
        return super().size(key) if found is None else len(found)

    def identity(self, key: str) -> Hashable | None:
        """Return the identity of a key; None for a document, which is no file."""
        return None if key in self._documents else super().identity(key)

    def identities(self, keys: Sequence[str]) -> list[Hashable | None]:
        """Return the identity of each key; None for a document, which is no file."""
        found = zip(keys, super().identities(keys), strict=True)
        return [None if key in self._documents else each for key, each in found]

    def keep_documents(self, documents: Mapping[str, bytes | None]) -> NativeDocuments | None:
        """Return None where one of the documents is no file: the kernel reads files only."""
        if self._documents.keys() & documents.keys():
            return None
        return super().keep_documents(documents)

    def _part(self, extent: Extent) -> bytes:
        data = self._documents[extent.key]
        end = len(data) if extent.length is None else extent.start + extent.length
        return data[extent.start : end]


def folder_state(folder: str | None, *parts: Any) -> str:
    """Return a digest of values, and of the sizes and times of a file, or of all of a folder."""
    made = hashlib.sha256(repr(parts).encode())
    for place, folders, files in os.walk(folder or ""):
        folders.sort()
        for name in sorted(files):
            if name != ".lock":
                made.update(_seen(os.path.join(place, name)))
    if folder is not None and os.path.isfile(folder):
        made.update(_seen(folder))
    return made.hexdigest()


def _seen(path: str) -> bytes:
    """Return the name, the size and the time of a file; without both when it is gone."""
    try:
        facts = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return path.encode("utf-8", "surrogateescape")
    return repr((os.path.basename(path), facts.st_size, facts.st_mtime_ns)).encode(
        "utf-8", "backslashreplace"
    )

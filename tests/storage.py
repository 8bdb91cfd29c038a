"""The places where the tests of containers put data: memory and disk, in the same words."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot import native
from ingot.stores import Commit, Delete, Extent, LocalStore, MemoryStore, Put, Store, ZipStore
from ingot.stores.local.commit import CommitRun

Place: TypeAlias = Path | Store
"""What ``ingot.create`` and ``ingot.open`` take for the same dataset again and again."""


def use_kernel(name: str, patch: pytest.MonkeyPatch) -> None:
    """Let one kernel do the work until the patch is undone."""
    chosen = native.choose(name)
    patch.setattr(native, "choice", lambda: chosen)


def store_at(place: Place) -> Store:
    """Return the store behind a place, to do there what another program would."""
    return LocalStore(place, writable=True) if isinstance(place, Path) else place


def content(place: Place) -> dict[str, bytes]:
    """Return all keys of a place with their bytes."""
    store = store_at(place)
    keys = list(_keys(store, ""))
    found = store.read([Extent(key) for key in keys])
    return {key: data for key, data in zip(keys, found, strict=True) if data is not None}


def identity_of(place: Place, column: str = "") -> int:
    """Return the identity of an array of bcolz, or of a column of a table."""
    start = f"{column}/" if column else ""
    return int(json.loads(content(place)[f"{start}meta/storage"])["x_id"], 16)


def put(place: Place, values: dict[str, bytes]) -> None:
    """Store bytes under keys."""
    store_at(place).apply(Commit(publish=tuple(Put(key, data) for key, data in values.items())))


def delete(place: Place, *keys: str) -> None:
    """Remove keys."""
    store_at(place).apply(Commit(publish=tuple(map(Delete, keys))))


def _keys(store: Store, folder: str) -> list[str]:
    found: list[str] = []
    for name in store.names(folder, hidden=True):
        found += _keys(store, folder + name) if name.endswith("/") else [folder + name]
    return found


def open_files(folder: Path) -> list[str]:
    """Return the files and folders below a folder that this process has open, by descriptor.

    Only those: what other tests left open may be closed at any time.
    """
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # The listing itself was open, too.
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    root = os.path.realpath(folder)
    return sorted(path for path in found if path == root or path.startswith(f"{root}/"))


class Unlocked:
    """Values that can only be evaluated while no writer holds the lock."""

    def __init__(self, path: Path, values: Any) -> None:
        self.path = path
        self.values = np.asarray(values)
        self.evaluated = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        with LocalStore(self.path, writable=True, wait=0).writing():
            self.evaluated += 1
        return self.values.astype(dtype)


def die_decided(run: CommitRun, *given: object, **named: object) -> None:
    """Do what a commit has compiled so far and fail, in the place of `CommitRun._apply_journal`."""
    run._run()
    raise ZeroDivisionError("died")


def in_memory(folder: Path) -> Store:
    return MemoryStore()


def in_zip(folder: Path) -> Store:
    return ZipStore(folder / "data.zip", writable=True)


def in_folder(folder: Path) -> Store:
    return LocalStore(folder / "data", writable=True)


STORES = [in_memory, in_zip, in_folder]

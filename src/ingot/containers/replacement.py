"""Replacing a dataset by a new one that cannot be committed into its folder.

Where files of the old dataset have the names of folders of the new one, no commit replaces the one
by the other. The new dataset is written beside the old one, and takes its place when it is whole.
"""

import os
import shutil
import tempfile
from collections.abc import Callable

from ingot.errors import ExistsError
from ingot.stores import LocalStore
from ingot.stores.local.files import sync_folder
from ingot.stores.store import Commit, Store
from ingot.stores.versions import writing

__all__ = ["blocked", "has_files", "replace_dataset", "replace_folder"]

_LOCK = ".lock"


def has_files(store: Store) -> bool:
    """Return whether the keys of a store are files: no file has the name of a folder."""
    return isinstance(store, LocalStore)


def blocked(name: str) -> ExistsError:
    """Return the error of an old dataset that no single step replaces by the new one."""
    return ExistsError(
        f"{name}: files of the old dataset have the names of folders of the new one; "
        "delete it first"
    )


def replace_dataset(
    store: Store, inner: str, old: Commit, name: str, write: Callable[[Store], None]
) -> None:
    """Have `write` write a dataset, and put it in the place of one that blocks it.

    Raises `ExistsError` where the old dataset is no folder of its own.
    """
    if not isinstance(store, LocalStore) or inner:
        raise blocked(name)
    replace_folder(store, old, write)


def replace_folder(store: LocalStore, removal: Commit, write: Callable[[Store], None]) -> None:
    """Have `write` write a dataset into a new store, and put it in the place of an old one.

    `removal` names the files of the old one. Raises `ExistsError` when the folder has others.
    """
    folder = os.path.realpath(store.root)
    own = {edit.key for edit in removal.edits} | {_LOCK}
    for place, _, files in os.walk(folder):
        for name in files:
            key = os.path.relpath(os.path.join(place, name), folder).replace(os.sep, "/")
            if key not in own:
                raise ExistsError(
                    f"{folder}: files of the old dataset have the names of folders of the new one, "
                    f"and the folder also has {key}, which is part of neither"
                )
    parent, name = os.path.split(folder)
    beside = tempfile.mkdtemp(prefix=f".{name}-", dir=parent)
    try:
        new, old = os.path.join(beside, "new"), os.path.join(beside, "old")
        write(LocalStore(new, writable=True))
        with writing(store):
            os.rename(folder, old)
            try:
                os.rename(new, folder)
            except OSError:
                os.rename(old, folder)
                raise
        _sync(parent)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _sync(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        sync_folder(descriptor)
    finally:
        os.close(descriptor)

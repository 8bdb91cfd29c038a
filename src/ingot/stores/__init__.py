"""Stores: where bytes lie. The contract is in `ingot.stores.store`."""

from typing import TYPE_CHECKING

from ingot._lazy import lazy_names
from ingot.stores.local.file import FileStore
from ingot.stores.local.store import LocalStore
from ingot.stores.memory import MemoryStore
from ingot.stores.store import (
    Commit,
    Constant,
    Delete,
    Durability,
    Edit,
    Extent,
    Feature,
    Grown,
    Inline,
    Location,
    Move,
    Patch,
    Put,
    Store,
    Truncate,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)
from ingot.stores.versions import Version, Versioned, read_state
from ingot.stores.zip import ZipStore

if TYPE_CHECKING:
    from ingot.stores.objects.store import ObjectStore

__all__ = [
    "Commit",
    "Constant",
    "Delete",
    "Durability",
    "Edit",
    "Extent",
    "Feature",
    "FileStore",
    "Grown",
    "Inline",
    "LocalStore",
    "Location",
    "MemoryStore",
    "Move",
    "ObjectStore",
    "Patch",
    "Put",
    "Store",
    "Truncate",
    "Version",
    "Versioned",
    "ZipStore",
    "check_commit",
    "check_key",
    "is_staged",
    "read_state",
    "staged_key",
]

__getattr__, __dir__ = lazy_names(__name__, {"ObjectStore": "ingot.stores.objects.store"})

"""Stores: where bytes lie. The contract is in `ingot.stores.store`."""

from ingot.stores.local import FileStore, LocalStore
from ingot.stores.memory import MemoryStore
from ingot.stores.store import (
    Commit,
    Constant,
    Delete,
    Edit,
    Extent,
    Feature,
    Inline,
    Location,
    Patch,
    Put,
    Store,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)

__all__ = [
    "Commit",
    "Constant",
    "Delete",
    "Edit",
    "Extent",
    "Feature",
    "FileStore",
    "Inline",
    "LocalStore",
    "Location",
    "MemoryStore",
    "Patch",
    "Put",
    "Store",
    "check_commit",
    "check_key",
    "is_staged",
    "staged_key",
]

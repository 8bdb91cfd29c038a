"""Stores: where bytes lie. The contract is in `ingot.stores.store`."""

from ingot.stores.local import LocalStore
from ingot.stores.memory import MemoryStore
from ingot.stores.single import FileStore
from ingot.stores.state import Look, Stateful, read_state
from ingot.stores.store import (
    Commit,
    Constant,
    Delete,
    Durability,
    Edit,
    Extent,
    Feature,
    Inline,
    Location,
    Move,
    Patch,
    Put,
    Store,
    check_commit,
    check_key,
    is_staged,
    staged_key,
)
from ingot.stores.zip import ZipStore

__all__ = [
    "Commit",
    "Constant",
    "Delete",
    "Durability",
    "Edit",
    "Extent",
    "Feature",
    "FileStore",
    "Inline",
    "LocalStore",
    "Location",
    "Look",
    "MemoryStore",
    "Move",
    "Patch",
    "Put",
    "Stateful",
    "Store",
    "ZipStore",
    "check_commit",
    "check_key",
    "is_staged",
    "read_state",
    "staged_key",
]

"""Storing an array or a table as shards: datasets of some rows each, which open as one."""

import os
from functools import partial
from typing import TypeAlias

from ingot.engine.changes import recoded
from ingot.errors import ExistsError, UnsupportedError
from ingot.formats.format import Column, Format, SplitFormat
from ingot.formats.registry import FORMATS
from ingot.options import Options
from ingot.stores import LocalStore, Store

__all__ = ["Target", "split"]

Target: TypeAlias = str | os.PathLike[str] | Store
"""Where the shards are stored: a folder or a store."""


def split(format: Format, node: Column, count: int, path: Target, options: Options) -> None:
    """Store a dataset as `count` shards at `path`, each in a folder of its own.

    The shards can be opened as one dataset when all of them are stored.
    """
    if count < 1:
        raise ValueError(f"count is {count}, at least 1 is needed")
    if not isinstance(format, SplitFormat):
        able = ", ".join(name for name, each in FORMATS.items() if isinstance(each, SplitFormat))
        raise UnsupportedError(
            f"datasets of format {format.name} cannot be cut into shards by rows; "
            f"formats that can: {able}"
        )
    target = path if isinstance(path, Store) else LocalStore(path, writable=True)
    if any(True for _ in target.names()):
        raise ExistsError(f"{target.location}: the target is not empty")
    for commit in format.split(node, count, target, partial(recoded, options=options)):
        target.apply(commit, durability=options.durability)

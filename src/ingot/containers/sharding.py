"""Storing an array or a table as shards: datasets of some rows each, which open as one."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

from ingot.engine.changes import recoded
from ingot.errors import ExistsError, UnsupportedError
from ingot.formats.format import Column, Format, SplitFormat
from ingot.formats.registry import FORMATS
from ingot.options import Options
from ingot.stores import Commit, LocalStore, Put, Store
from ingot.stores.store import Edit

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
    commits = format.split(node, count, target, partial(recoded, options=options))
    for commit in _joined(commits, options.limits.window_bytes):
        target.apply(commit, durability=options.durability)


def _joined(commits: Iterable[Commit], most: int) -> Iterator[Commit]:
    """Yield commits of about `most` bytes: in some stores, a commit rewrites all that is stored.

    >>> one = Commit(prepare=(Put("a", b"12"),))
    >>> [len(commit.edits) for commit in _joined([one, one, one], most=4)]
    [2, 1]
    """
    edits: dict[str, list[Edit]] = {}
    held = 0
    for commit in commits:
        for phase, added in commit.phases:
            edits.setdefault(phase, []).extend(added)
        held += sum(memoryview(edit.data).nbytes for edit in commit.edits if isinstance(edit, Put))
        if held >= most:
            yield Commit(**{phase: tuple(found) for phase, found in edits.items()})
            edits, held = {}, 0
    if edits:
        yield Commit(**{phase: tuple(found) for phase, found in edits.items()})

"""Storing an array or a table as shards: datasets of some rows each, which open as one."""

import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TypeAlias

from ingot.engine import ragged
from ingot.engine.changes import copied, recoded
from ingot.engine.ragged import RaggedEngine
from ingot.errors import ArgumentError, ExistsError, UnsupportedError
from ingot.formats.format import ChunkMap, Column, Format, RaggedMap, SplitFormat
from ingot.formats.registry import FORMATS
from ingot.options import Options
from ingot.stores import Commit, LocalStore, Put, Store
from ingot.stores.store import Edit
from ingot.stores.versions import discard

__all__ = ["Target", "split"]

Target: TypeAlias = str | os.PathLike[str] | Store
"""Where the shards are stored: a folder or a store."""


def split(format: Format, node: Column, count: int, path: Target, options: Options) -> None:
    """Store a dataset as `count` shards at `path`, each in a folder of its own.

    The shards can be opened as one dataset when all of them are stored.
    """
    if count < 1:
        raise ArgumentError(f"count is {count}, at least 1 is needed")
    if not isinstance(format, SplitFormat):
        able = ", ".join(name for name, each in FORMATS.items() if isinstance(each, SplitFormat))
        raise UnsupportedError(
            f"datasets of format {format.name} cannot be cut into shards by rows; "
            f"formats that can: {able}"
        )
    target = path if isinstance(path, Store) else LocalStore(path, writable=True)
    if _holds_keys(target):
        raise ExistsError(f"{target.location}: the target is not empty")
    recode, copy = partial(_recoded, options=options), partial(copied, options=options)
    commits = format.split(node, count, target, recode, copy)
    for commit in _joined(commits, target, options.limits.window_bytes):
        target.apply(commit, durability=options.durability)


def _recoded(
    source: ChunkMap | RaggedMap,
    rows: slice,
    target: ChunkMap | RaggedMap,
    target_rows: slice,
    options: Options,
) -> Commit:
    """Return the commit that stores rows of one column as rows of another, of the same kind."""
    if isinstance(source, RaggedMap):
        assert isinstance(target, RaggedMap)
        items = RaggedEngine(source, options).read(range(source.schema.length)[rows])
        return ragged.stored(RaggedEngine(target, options), items, target_rows.start)
    assert isinstance(target, ChunkMap)
    return recoded(source, rows, target, target_rows, options)


def _holds_keys(store: Store, folder: str = "") -> bool:
    """Return whether there is a key below a folder; empty folders may be left of a failure.

    >>> from ingot.stores import MemoryStore
    >>> _holds_keys(MemoryStore()), _holds_keys(MemoryStore({"a/b": b""}))
    (False, True)
    """
    found = (_holds_keys(store, folder + n) if n[-1:] == "/" else True for n in store.names(folder))
    return any(found)


def _joined(commits: Iterable[Commit], store: Store, most: int) -> Iterator[Commit]:
    """Yield commits of about `most` bytes: in some stores, a commit rewrites all that is stored.

    What was staged in the store is removed when the next commit cannot be made.

    >>> from ingot.stores import MemoryStore
    >>> one = Commit(prepare=(Put("a", b"12"),))
    >>> [len(commit.edits) for commit in _joined([one, one, one], MemoryStore(), most=4)]
    [2, 1]
    """
    edits: dict[str, list[Edit]] = {}
    held = 0
    try:
        for commit in commits:
            for phase, added in commit.phases:
                edits.setdefault(phase, []).extend(added)
            puts = (edit for edit in commit.edits if isinstance(edit, Put))
            held += sum(memoryview(edit.data).nbytes for edit in puts)
            if held >= most:
                whole = Commit(**{phase: tuple(found) for phase, found in edits.items()})
                edits, held = {}, 0
                yield whole
    except BaseException:
        discard(store, chain.from_iterable(edits.values()))
        raise
    if edits:
        yield Commit(**{phase: tuple(found) for phase, found in edits.items()})

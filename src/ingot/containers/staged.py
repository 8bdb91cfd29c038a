"""Arrays that several processes write together: each stages chunks, one commit publishes them.

A target says what is written. It is pickled to the processes that call `stage`; each returns edits,
which are small. The process that began the write publishes the edits that it gets. What was staged
and not published, by a process that died or by a task that ran twice, is never read, and a later
writer removes it.
"""

import functools
import math
import os
import threading
import uuid
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ingot.containers.array import Array
from ingot.engine import changes, transfer
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import LockedError
from ingot.formats.format import ArrayNode, Format, stored_map
from ingot.grid import RectilinearAxis
from ingot.options import Options
from ingot.schema import ArraySchema
from ingot.selection import parse
from ingot.stores.store import Commit, Edit, Put, Store
from ingot.stores.versions import (
    announce_staging,
    current_number,
    discard,
    hand_over,
    settled_number,
    shared,
    versioned,
    withdraw_staging,
)

__all__ = [
    "ExistingTarget",
    "NewTarget",
    "Target",
    "aligned",
    "announced",
    "dividing_chunks",
    "is_possible",
    "publish",
    "replaces",
    "settled_number",
    "stage",
]

# How many arrays a process keeps ready of those that it stages chunks of.
_MOST_ENGINES: Final = 16
# How many writes that have ended are remembered: tasks may outlive them.
_MOST_ENDED: Final = 1024
# About how large chunks are that divide larger ones, and how small they may get by that.
_CHUNK_BYTES: Final = 4 << 20
_LEAST_BYTES: Final = 64 << 10


class Target(Protocol):
    """What several processes write: a new array, or a state of one that exists."""

    @property
    def token(self) -> str:
        """The name of the write, which no other write has."""
        ...

    @property
    def store(self) -> Store:
        """The store of the array."""
        ...

    def engine(self) -> Engine:
        """Return the engine of the state that the write leads to."""
        ...


def _token() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True)
class NewTarget:
    """A new array: where it is created, and what it is."""

    format: Format
    store: Store
    inner: str
    schema: ArraySchema
    layout: Mapping[str, Any]
    options: Options
    token: str = field(default_factory=_token)

    def engine(self) -> Engine:
        """Return the engine of the array that is not created yet."""
        node, _ = self.format.create(self.store, self.schema, self.inner, **self.layout)
        assert isinstance(node, ArrayNode)
        return engine_of(node.chunks, self.options)


@dataclass(frozen=True, slots=True)
class ExistingTarget:
    """An array that exists: the shape that it has, and the shape that it gets."""

    array: Array
    before: tuple[int, ...]
    shape: tuple[int, ...]
    token: str = field(default_factory=_token)

    @property
    def store(self) -> Store:
        """The store of the array."""
        return self.array._handle.store

    def engine(self) -> Engine:
        """Return the engine of the array in its new shape."""
        return changes.reshaped(self.array._handle.value, self.shape)


def is_possible(target: Target) -> bool:
    """Return whether the chunks of an array are files or objects, which are staged one by one.

    Not where a new array gets an identity that its chunks state: each process would make another.
    """
    engine = _engine(_ByToken(target))
    alike = _is_alike(engine.chunks.schema, target.engine().chunks.schema)
    if shared(target.store) is not None:
        return alike and transfer.is_keyed(engine)
    return alike and transfer.is_windowed(engine)


def replaces(target: Target, key: tuple[slice, ...]) -> bool:
    """Return whether a key selects whole chunks, or shards: nothing of the old ones is kept."""
    engine = _engine(_ByToken(target))
    return engine.replaces(parse(key, engine.shape))


def stage(target: Target, key: tuple[slice, ...], values: NDArray[Any]) -> tuple[Edit, ...]:
    """Stage the chunks that a key selects, and return the edits that publish them.

    Two processes must not stage parts of one chunk: the edits of one would undo those of the other.
    """
    with _writes.staging(target):
        engine = _engine(_ByToken(target))
        store = engine.chunks.store
        commit = engine.assign(parse(key, engine.shape), values)
        edits = tuple(_staged(store, edit, target.token) for edit in commit.edits)
        hand_over(store, edits)
        return edits


def publish(target: ExistingTarget, edits: Sequence[Edit], version: int | None = None) -> None:
    """Commit what was staged for an array, and the shape of the target.

    Raises `LockedError`, and changes nothing, if the array has become another one meanwhile, or if
    its store has another version than a given one.
    """
    staged_for = _engine(_ByToken(target)).chunks.schema
    with target.array._handle.writing() as turn:
        try:
            change = changes.joined(turn.value, target.shape, Commit(publish=tuple(edits)))
            alike = _is_alike(staged_for, change.engine.chunks.schema)
            alike = alike and turn.value.shape == target.before
            if not alike or version not in (None, current_number(turn.store)):
                raise LockedError(
                    f"{turn.store.location}: another writer has committed while the array was "
                    "written to; nothing was changed"
                )
        except BaseException:
            discard(turn.store, edits)
            raise
        # What the state at hand keeps of replaced chunks is old.
        turn.commit(change.engine, change.commit, again=True)


class _Writes:
    """The writes of this process, and the threads that stage for them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[str, int] = {}
        self._ended: deque[str] = deque(maxlen=_MOST_ENDED)

    @contextmanager
    def begun(self, target: Target) -> Iterator[None]:
        """Let threads stage for a write until the block ends."""
        with self._changed:
            self._running[target.token] = 0
        try:
            yield
        finally:
            with self._changed:
                self._ended.append(target.token)
                try:
                    self._changed.wait_for(lambda: not self._running[target.token])
                finally:
                    del self._running[target.token]

    @contextmanager
    def staging(self, target: Target) -> Iterator[None]:
        """Count a thread that stages, unless the write has begun in another process."""
        token = target.token
        with self._changed:
            if token in self._ended:
                raise LockedError(f"{target.store.location}: this write has ended")
            counted = token in self._running
            if counted:
                self._running[token] += 1
        try:
            yield
        finally:
            if counted:
                with self._changed:
                    if token in self._running:
                        self._running[token] -= 1
                        self._changed.notify_all()


_writes = _Writes()


def _forked() -> None:
    # Another thread may have had the lock, and its stages are not of this process.
    global _writes
    _writes = _Writes()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@contextmanager
def announced(target: Target) -> Iterator[None]:
    """Keep other writers from removing what is staged for a target, until the block ends.

    A scheduler goes on when one of its threads has failed, while others are still staging. The end
    waits for those of this process, and lets none begin any more.
    """
    announce_staging(target.store, target.token)
    try:
        with _writes.begun(target):
            yield
    finally:
        withdraw_staging(target.store, target.token)
        apart = shared(target.store)
        if apart is not None:
            apart.remove_apart(target.token)


def aligned(target: Target, starts: Sequence[int], blocks: Sequence[Sequence[int]]) -> Any:
    """Return lengths of blocks, for each axis, so that every chunk lies in one block.

    `blocks` are lengths along the axes of a box that begins at `starts`. Their ends move to the
    nearest ends of chunks, or of shards.
    """
    grid = stored_map(_engine(_ByToken(target)).chunks).schema.grid
    axes = zip(grid.axes, grid.shape, starts, blocks, strict=True)
    return tuple(_aligned(axis, length, start, given) for axis, length, start, given in axes)


def _aligned(
    axis: int | RectilinearAxis, length: int, start: int, blocks: Sequence[int]
) -> tuple[int, ...]:
    """Return the lengths of blocks of one axis that end where chunks end.

    >>> _aligned(4, 20, 0, (5, 5, 5, 5)), _aligned(4, 20, 2, (5, 5, 5))
    ((4, 4, 8, 4), (6, 4, 5))
    """
    ends: Sequence[int] = range(0, length, axis) if isinstance(axis, int) else axis.bounds.tolist()
    stop = start + sum(blocks)
    cuts = {start, stop}
    for end in np.cumsum(blocks)[:-1].tolist():
        after = bisect_left(ends, start + end)
        near = [ends[number] for number in (after - 1, after) if 0 <= number < len(ends)]
        cut = min(near, key=lambda place: abs(place - start - end))
        if start < cut < stop:
            cuts.add(cut)
    return tuple(np.diff(sorted(cuts)).tolist()) or (0,)


def dividing_chunks(blocks: Sequence[Sequence[int]], itemsize: int) -> tuple[int, ...] | None:
    """Return a shape of chunks that divides blocks of an array; None if only small chunks do.

    `blocks` are the lengths of the blocks of each axis; the last one of an axis may be any. Chunks
    have at most about 4 MiB.

    >>> dividing_chunks([(1000, 1000, 10), (2000,)], 8)
    (500, 1000)
    >>> dividing_chunks([(3, 5, 4)], 8) is None
    True
    """
    shape = [max(1, math.gcd(*axis[:-1]) if len(axis) > 1 else axis[0]) for axis in blocks]
    largest = math.prod(map(max, blocks)) * itemsize
    if math.prod(shape) * itemsize < min(_LEAST_BYTES, largest):
        return None
    while math.prod(shape) * itemsize > _CHUNK_BYTES:
        longest = max(range(len(shape)), key=lambda axis: shape[axis])
        factor = next((n for n in (2, 3, 5, 7) if shape[longest] % n == 0), None)
        if factor is None:
            break
        shape[longest] //= factor
    return tuple(shape)


@dataclass(frozen=True, slots=True)
class _ByToken:
    """A target that is compared by its token."""

    target: Target

    def __hash__(self) -> int:
        return hash(self.target.token)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByToken) and other.target.token == self.target.token


@functools.lru_cache(maxsize=_MOST_ENGINES)
def _engine(place: _ByToken) -> Engine:
    return place.target.engine()


def _staged(store: Store, edit: Edit, token: str) -> Edit:
    """Return an edit without the bytes, which are staged."""
    apart, states = shared(store), versioned(store)
    if not isinstance(edit, Put) or states is None:
        return edit
    if apart is not None:
        return apart.stage_apart(token, edit.key, edit.data)
    return states.stage(edit.key, edit.data)


def _is_alike(one: ArraySchema, other: ArraySchema) -> bool:
    """Return whether chunks that were encoded for one schema are chunks of another."""
    return (one.shape, one.dtype, one.chunks, one.chain) == (
        other.shape,
        other.dtype,
        other.chunks,
        other.chain,
    ) and np.asarray(one.fill).tobytes() == np.asarray(other.fill).tobytes()

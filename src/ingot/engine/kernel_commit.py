"""Changes of one chunk that the kernel commits by itself, from the lock to the end.

Whatever is unusual has no such change: a turn to write makes it then, see `changes`.
"""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from ingot import native
from ingot.engine import changes, plan
from ingot.engine.handed import HandedLayout
from ingot.engine.run import Engine
from ingot.errors import IngotError
from ingot.formats.format import (
    ChunkMap,
    Slotted,
    as_sharded,
    is_relocating,
    manifested,
    slotted,
)
from ingot.selection import BasicSelection, Selection
from ingot.stores.store import Commit, Delete, Edit, Feature, Put
from ingot.stores.versions import KernelCommit, is_switching_store

__all__ = ["ChunkChange", "EngineCommit", "SlotChange", "change", "growth"]

# The kernel takes so long for a larger chunk that Ctrl-C must end it.
_LARGEST_CHUNK: Final = 16 << 20
# A whole chunk of more bytes than this is encoded without the lock, two by two threads.
_LARGE_CHUNK: Final = 1 << 20
# An append fills up a chunk and makes another.
_MOST_CHUNKS: Final = 2


class EngineCommit(KernelCommit, Protocol):
    """A commit that the kernel makes of a change of one array."""

    def following(self) -> Engine:
        """Return the engine of the state after the change."""
        ...


def change(
    engine: Engine, selection: Selection, value: object, whole: bool
) -> "EngineCommit | None":
    """Return an assignment to items of one chunk that the kernel commits by itself.

    `whole` says that they are all of the chunk. None where the kernel cannot, and where the value
    does not fit: `Engine.assign` says why.
    """
    if type(selection) is not BasicSelection or not is_switching_store(engine.chunks.store):
        return None
    if whole and _chunk_bytes(engine.chunks) > _LARGE_CHUNK:
        return None  # It is encoded before the lock is taken.
    number = plan.only_chunk(selection, engine.chunks.schema.grid)
    layout = None if number is None else _layout(engine)
    if number is None or layout is None:
        return None
    chunks = slotted(engine.chunks)
    try:
        file = None if chunks is None else chunks.slot_file(number)
        if file is None and (chunks is not None or not _has_files(engine.chunks)):
            return None
        engine.check_count(1)
        values = selection.prepare(value, engine.dtype)
    except (IngotError, TypeError, ValueError):
        return None
    given = _plain(engine, values)
    if chunks is not None and file is not None:
        return SlotChange(engine, chunks, file, layout, given, selection, number)
    return ChunkChange(engine, layout, given, selection)


def growth(engine: Engine, items: NDArray[Any], axis: int) -> "EngineCommit | None":
    """Return an append of one chunk or two that the kernel commits by itself.

    None where it cannot, and where the items do not fit: `changes.appended` says why.
    """
    if not is_switching_store(engine.chunks.store) or not _has_files(engine.chunks):
        return None
    if not items.size or items.nbytes > _MOST_CHUNKS * _chunk_bytes(engine.chunks):
        return None
    if _layout(engine) is None:
        return None
    try:
        grown = changes.appended(items, engine.chunks.schema, axis)
        after, commit = changes.reshaping(engine, grown.shape)
        count = plan.count_rows(grown.selection, after.chunks.schema.grid)
        if count > 1 and (count > _MOST_CHUNKS or _chunk_bytes(after.chunks) > _LARGE_CHUNK):
            return None
        engine.check_count(count)
    except (IngotError, TypeError, ValueError):
        return None
    layout = _layout(after)
    document = _only_document(commit)
    if layout is None or document is None or not _replaced(commit, after, grown.selection):
        return None
    selection = grown.selection
    if type(selection) is not BasicSelection:
        return None
    values = selection.prepare(grown.values, engine.dtype)
    return ChunkChange(after, layout, _plain(engine, values), selection, document)


def _layout(engine: Engine) -> native.Layout | None:
    layout = engine.layout()
    if layout is None or isinstance(layout, HandedLayout):
        return None
    return layout if Feature.WRITE in engine.chunks.store.features else None


def _has_files(chunks: ChunkMap) -> bool:
    """Return whether each chunk is a file of its own, and nothing else tells of it."""
    if chunks.schema.flat is not None or chunks.schema.rectilinear or chunks.template is None:
        return False
    if as_sharded(chunks) is not None or is_relocating(chunks) or manifested(chunks) is not None:
        return False
    return _chunk_bytes(chunks) <= _LARGEST_CHUNK


def _chunk_bytes(chunks: ChunkMap) -> int:
    return math.prod(chunks.schema.chunks) * chunks.schema.dtype.itemsize


def _plain(engine: Engine, values: NDArray[Any]) -> NDArray[Any]:
    return values if engine.plain is engine.dtype else values.view(engine.plain)


def _only_document(commit: Commit) -> Put | None:
    """Return the document that publishes a new length, where that is all of a commit.

    It may also remove what an earlier array has left under the keys of new chunks.
    """
    if commit.cleanup or len(commit.publish) != 1 or not isinstance(commit.publish[0], Put):
        return None
    return commit.publish[0]


def _replaced(commit: Commit, after: Engine, selection: Selection) -> bool:
    """Return whether all that a commit removes first gets another value."""
    if not commit.prepare:
        return True
    if not all(isinstance(edit, Delete) for edit in commit.prepare):
        return False
    template, grid = after.chunks.template, after.chunks.schema.grid
    assert template is not None
    written = {template.key(row.coords) for row in plan.rows(selection, grid)}
    return written.issuperset(edit.key for edit in commit.prepare)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkChange:
    """Items of chunks that are files, which the kernel changes as a commit of its own."""

    engine: Engine
    """The engine that builds the state of the change."""
    layout: native.Layout
    values: NDArray[Any]
    selection: BasicSelection
    document: Put | None = None
    """What makes readers see an append."""

    @property
    def edits(self) -> Sequence[Edit]:
        """What the change does to documents."""
        return () if self.document is None else (self.document,)

    def make(
        self,
        dataset: native.NativeDataset,
        documents: native.NativeDocuments,
        version: int,
        holder: bytes,
        devices: Sequence[int],
        sync: bool,
    ) -> "native.Changed | None":
        """Make the change; None where anything is unusual, and then nothing has changed."""
        document = self.document
        return dataset.change(
            self.layout,
            self.values,
            self.selection.starts,
            self.selection.steps,
            None if document is None else (document.key, bytes(document.data)),
            os.urandom(8).hex(),
            documents,
            version,
            holder,
            devices,
            sync,
        )

    def following(self) -> Engine:
        """Return the engine of the state after the change."""
        return self.engine.committed()


@dataclass(frozen=True, slots=True, eq=False)
class SlotChange:
    """Items of one chunk of a super-chunk file, which the kernel changes as a commit of its own."""

    engine: Engine
    chunks: Slotted
    file: native.SlotFile
    layout: native.Layout
    values: NDArray[Any]
    selection: BasicSelection
    number: int

    @property
    def edits(self) -> Sequence[Edit]:
        """What the change does to documents: nothing."""
        return ()

    def make(
        self,
        dataset: native.NativeDataset,
        documents: native.NativeDocuments,
        version: int,
        holder: bytes,
        devices: Sequence[int],
        sync: bool,
    ) -> "native.Changed | None":
        """Make the change; None where anything is unusual, and then nothing has changed."""
        starts, steps = self.selection.starts, self.selection.steps
        return self.file.change(
            self.layout,
            self.values,
            starts,
            steps,
            self.chunks.spare,
            dataset,
            documents,
            version,
            holder,
            devices,
            sync,
        )

    def following(self) -> Engine:
        """Return the engine of the state after the change."""
        return self.engine.switched(self.chunks.switched(self.number))

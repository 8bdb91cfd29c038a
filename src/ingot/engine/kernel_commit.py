"""Small changes that the kernel commits by itself, from the lock to the end.

Whatever is unusual has no such change: a turn to write makes it then, see `changes`.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

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

__all__ = [
    "ChunkChange",
    "EngineCommit",
    "RowsChange",
    "SlotChange",
    "change",
    "growth",
    "growth_together",
]

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
    return ChunkChange(engine, ((layout, given, selection.starts, selection.steps),))


def growth(engine: Engine, items: NDArray[Any], axis: int) -> "EngineCommit | None":
    """Return an append of one chunk or two that the kernel commits by itself.

    None where it cannot, and where the items do not fit: `changes.appended` says why.
    """
    if not is_switching_store(engine.chunks.store) or not items.size:
        return None
    try:
        grown = changes.appended(items, engine.chunks.schema, axis)
        part = _grown_part(engine, grown.shape, grown.selection, grown.values)
    except (IngotError, TypeError, ValueError):
        return None
    document = None if part is None else _only_document(part.commit)
    if part is None or document is None:
        return None
    return ChunkChange(part.after, (part.box,), (document,))


def growth_together(
    growths: Mapping[str, tuple[Engine, tuple[int, ...], Selection, NDArray[Any]]],
    joined: Callable[[Mapping[str, Commit]], Commit],
) -> "RowsChange | None":
    """Return appends to several arrays of one store that the kernel makes by one commit.

    Each is of an array, with its larger shape, the new part of it, and the items there. `joined`
    makes one commit of those that give the arrays their shapes. None where the kernel cannot, and
    where values do not fit: `changes.grown_together` says why.
    """
    engines = [engine for engine, *_ in growths.values()]
    if not engines or not is_switching_store(engines[0].chunks.store):
        return None
    if sum(values.nbytes for *_, values in growths.values()) > _LARGE_CHUNK:
        return None  # Several threads encode them.
    parts: dict[str, _GrownArray] = {}
    try:
        for name, given in growths.items():
            part = _grown_part(*given)
            if part is None:
                return None
            parts[name] = part
    except (IngotError, TypeError, ValueError):
        return None
    published = _documents(joined({name: part.commit for name, part in parts.items()}))
    if published is None:
        return None
    boxes = tuple(part.box for part in parts.values())
    return RowsChange(boxes, published, {name: part.after for name, part in parts.items()})


class _GrownArray(NamedTuple):
    """An append to one array: the engine of its new shape, the commit of the shape, the items."""

    after: Engine
    commit: Commit
    box: "native.Box"


def _grown_part(
    engine: Engine, shape: tuple[int, ...], selection: Selection, values: NDArray[Any]
) -> _GrownArray | None:
    if not _has_files(engine.chunks) or not values.size:
        return None
    if values.nbytes > _MOST_CHUNKS * _chunk_bytes(engine.chunks) or _layout(engine) is None:
        return None
    after, commit = changes.reshaping(engine, shape)
    count = plan.count_rows(selection, after.chunks.schema.grid)
    if count > 1 and (count > _MOST_CHUNKS or _chunk_bytes(after.chunks) > _LARGE_CHUNK):
        return None
    engine.check_count(count)
    layout = _layout(after)
    if layout is None or type(selection) is not BasicSelection:
        return None
    if not _replaced(commit, after, selection):
        return None
    return _GrownArray(after, commit, _box(after, layout, selection, values))


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


def _box(
    engine: Engine, layout: native.Layout, selection: BasicSelection, values: NDArray[Any]
) -> "native.Box":
    given = _plain(engine, selection.prepare(values, engine.dtype))
    return layout, given, selection.starts, selection.steps


def _only_document(commit: Commit) -> Put | None:
    """Return the document that publishes a new length, where that is all of a commit."""
    found = _documents(commit)
    return found[0] if found is not None and len(found) == 1 else None


def _documents(commit: Commit) -> tuple[Put, ...] | None:
    """Return the documents that publish new lengths, where they are all of a commit.

    It may also remove what an earlier array has left under the keys of new chunks.
    """
    puts = tuple(edit for edit in commit.publish if isinstance(edit, Put))
    return puts if puts and len(puts) == len(commit.publish) and not commit.cleanup else None


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
    boxes: "Sequence[native.Box]"
    published: Sequence[Put] = ()
    """What makes readers see an append."""

    @property
    def edits(self) -> Sequence[Edit]:
        """What the change does to documents."""
        return self.published

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
        return _made(self.boxes, self.published, dataset, documents, version, holder, devices, sync)

    def following(self) -> Engine:
        """Return the engine of the state after the change."""
        return self.engine.committed()


@dataclass(frozen=True, slots=True, eq=False)
class RowsChange:
    """Items that several arrays get at their ends, which the kernel adds as a commit of its own."""

    boxes: "Sequence[native.Box]"
    published: Sequence[Put]
    """What makes readers see the items."""
    engines: Mapping[str, Engine]
    """The engines that build the states of the change."""

    @property
    def edits(self) -> Sequence[Edit]:
        """What the change does to documents."""
        return self.published

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
        return _made(self.boxes, self.published, dataset, documents, version, holder, devices, sync)

    def following(self) -> dict[str, Engine]:
        """Return the engines of the state after the change."""
        return {name: engine.committed() for name, engine in self.engines.items()}


def _made(
    boxes: "Sequence[native.Box]",
    published: Sequence[Put],
    dataset: native.NativeDataset,
    documents: native.NativeDocuments,
    version: int,
    holder: bytes,
    devices: Sequence[int],
    sync: bool,
) -> "native.Changed | None":
    puts = [(put.key, bytes(put.data)) for put in published]
    transaction = os.urandom(8).hex()
    return dataset.change(boxes, puts, transaction, documents, version, holder, devices, sync)


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

"""Creation and opening of variable-length items: one commit stores the sequence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from numpy.typing import DTypeLike

from ingot.containers.attributes import converted
from ingot.containers.create import Codec, check_layout, item_stages
from ingot.containers.dataset import Mode
from ingot.containers.ingest import item_blocks, items_of
from ingot.containers.ragged import Ragged, ragged_handle
from ingot.containers.resolve import DatasetPath, FoundDataset, remove_existing
from ingot.engine import ragged
from ingot.engine.ragged import PackStream, RaggedEngine
from ingot.errors import UnsupportedError
from ingot.formats.format import (
    Format,
    RaggedNode,
    RaggedRequest,
    SequenceFormat,
    has_typed_attributes,
)
from ingot.options import Options
from ingot.ragged_array import ItemKind, RaggedArray
from ingot.stores.store import Commit
from ingot.stores.versions import writing

__all__ = ["RaggedSpec", "create_ragged", "open_ragged"]


@dataclass(frozen=True, slots=True)
class RaggedSpec:
    """The arguments that describe new items; see `ingot.ragged`."""

    items: object
    kind: DTypeLike | None
    codec: Codec
    attrs: Mapping[str, object]
    overwrite: bool
    options: Options
    layout: Mapping[str, Any] = field(default_factory=dict)


def open_ragged(found: FoundDataset, node: RaggedNode, mode: Mode, options: Options) -> Ragged:
    """Return the items that were found."""
    place, first = found.place, (RaggedEngine(node.packs, options), found.number)
    handle = ragged_handle(found.format, place.store, place.inner, options, first=first)
    return Ragged(found.format, handle, path=place.path, mode=mode)


def create_ragged(format: Format, place: DatasetPath, inner: str, spec: RaggedSpec) -> Ragged:
    """Create a sequence of items at the path `inner` of a store, by one commit."""
    if not isinstance(format, SequenceFormat):
        raise UnsupportedError(f"format {format.name} holds such items only as columns of tables")
    check_layout(format, spec.layout)
    options = spec.options
    kind = None if spec.kind is None else ItemKind.of(spec.kind)
    items, blocks = _first(spec.items, kind)
    mean = items.nbytes / len(items) if len(items) else None
    stages = item_stages(spec.codec, items)
    attrs = converted(spec.attrs, typed=has_typed_attributes(format))
    request = RaggedRequest(len(items), items.kind, mean, stages=stages, attrs=attrs)
    schema = format.design_ragged(request, **spec.layout)
    # Before a lock file is made.
    remove_existing(place, place.store, overwrite=spec.overwrite, groups=False)
    node, made = format.create_ragged(place.store, schema, inner, **spec.layout)
    stream: PackStream | None = None
    if blocks is not None:
        stream = ragged.streamed(RaggedEngine(node.packs, options), chain([items], blocks))
    with writing(place.store, durability=options.durability) as turn:
        old = remove_existing(place, turn.store, overwrite=spec.overwrite, groups=False)
        engine = RaggedEngine(node.packs.rebound(turn.store), options)
        if stream is None:
            after, data = ragged.appended(engine, items)
        else:
            after, data = ragged.extended(engine, stream)
        replaced = () if old is None else old.edits
        # All of it at once: half of the items, left by a crash, would block the next attempt.
        number = turn.commit(Commit(publish=(*replaced, *made.edits, *data.edits)))
        # An error from here on gets the note that the commit is done.
        handle = ragged_handle(format, place.store, inner, options, first=(after, number))
        return Ragged(format, handle, path=place.path, mode="r+")


def _first(
    items: object, kind: ItemKind | None
) -> tuple[RaggedArray, Iterator[RaggedArray] | None]:
    """Return items that are given; of an iterator the first block, and the others."""
    if not isinstance(items, Iterator):
        return items_of(items, kind), None
    blocks = item_blocks(items, kind)
    first = next(blocks, None)
    if first is None:
        assert kind is not None, "without a kind, the first block raises an error"
        first = RaggedArray.nulls(kind, 0)
    return first, blocks

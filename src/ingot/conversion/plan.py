"""The plan of a conversion: how a format lays out what a source holds, before a byte is written.

What the format has no place for is found here: what is lost or changed is listed, and what makes
the conversion impossible is listed as a reason against it, all reasons at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Final, TypeAlias

import numpy as np

from ingot import dtypes
from ingot.codecs import choice
from ingot.codecs.codec import Compressor, Stage, without_checksums
from ingot.codecs.compressors import Blosc2
from ingot.containers.attributes import converted
from ingot.containers.create import (
    ArraySpec,
    Chunks,
    Codec,
    check_layout,
    is_auto,
    item_stages,
    stages_of,
)
from ingot.containers.display import codec_text
from ingot.engine.payload import engine_of
from ingot.engine.ragged import RaggedEngine
from ingot.errors import IngotError, UnsupportedError
from ingot.formats import annotations
from ingot.formats.folder_table import folder_name
from ingot.formats.format import (
    ArrayNode,
    ChunkMap,
    Format,
    GroupFormat,
    GroupNode,
    Kind,
    Node,
    RaggedFormat,
    RaggedMap,
    RaggedNode,
    RaggedRequest,
    SequenceFormat,
    TableFormat,
    TableNode,
    as_annotated,
    as_sharded,
    has_typed_attributes,
    manifested,
    stored_map,
)
from ingot.formats.paths import joined
from ingot.formats.validity import companions
from ingot.options import Options
from ingot.schema import ArraySchema, RaggedSchema
from ingot.selection import parse
from ingot.stores.store import Store

__all__ = [
    "ArrayPlan",
    "Findings",
    "GroupPlan",
    "Plan",
    "RaggedPlan",
    "TablePlan",
    "Wanted",
    "differences",
    "kinds_of",
    "leaves",
    "make_plan",
]

_REFUSALS: Final = (IngotError, ValueError, TypeError)
# The items in a row that a sample of variable-length items has.
_SAMPLED: Final = 1024


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the caller of a conversion asks for; the rest is kept from the source."""

    codec: Codec | Mapping[str, Codec] = None
    chunks: Chunks | Mapping[str, Chunks] | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)
    options: Options = field(default_factory=Options)

    def codec_of(self, name: str) -> tuple[Stage, ...] | str | None:
        """Return the codec that is asked for; None when that of the source is kept.

        The codec "auto" stays a word: a sample of the source chooses it.
        """
        found = self.codec.get(name) if isinstance(self.codec, Mapping) else self.codec
        if is_auto(found):
            return choice.AUTO
        return None if found is None else tuple(stages_of(found))

    def chunks_of(self, name: str) -> Chunks | None:
        """Return the chunks that are asked for; None when those of the source are kept."""
        return self.chunks.get(name) if isinstance(self.chunks, Mapping) else self.chunks


@dataclass(slots=True)
class Findings:
    """What was found while a plan was made.

    `reasons` speak against the conversion. `changes` are what the target holds in another way, or
    not at all.
    """

    reasons: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)

    def check(self, source: str, format: str) -> None:
        """Raise `UnsupportedError` with all reasons, if there are any."""
        if self.reasons:
            each = "; ".join(dict.fromkeys(self.reasons))
            raise UnsupportedError(f"{source}: cannot be converted to {format}: {each}")


@dataclass(frozen=True, slots=True)
class ArrayPlan:
    """An array and its layout in the target."""

    source: ChunkMap
    schema: ArraySchema
    layout: Mapping[str, Any]
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the document of the source that its format keeps without knowing them."""


@dataclass(frozen=True, slots=True)
class RaggedPlan:
    """Variable-length items and their layout in the target."""

    source: RaggedMap
    schema: RaggedSchema
    layout: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table: the plans of its columns, in their order, and its attributes."""

    columns: Mapping[str, "Plan"]
    attrs: Mapping[str, Any]
    layout: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """A group: the plans of its members, and its attributes."""

    members: Mapping[str, "Plan"]
    attrs: Mapping[str, Any]
    consolidated: bool = False


Plan: TypeAlias = ArrayPlan | RaggedPlan | TablePlan | GroupPlan


def leaves(plan: Plan, name: str = "") -> Iterator[tuple[str, ArrayPlan | RaggedPlan]]:
    """Yield all arrays and items of a plan, with their paths."""
    if isinstance(plan, ArrayPlan | RaggedPlan):
        yield name, plan
        return
    inner = plan.columns if isinstance(plan, TablePlan) else plan.members
    for own, each in inner.items():
        yield from leaves(each, joined(name, own))


def kinds_of(node: Node) -> tuple[Kind, ...]:
    """Return what a dataset may become, the same kind first.

    A table becomes a group of its columns where a format has groups and no tables.
    """
    if isinstance(node, ArrayNode):
        return (Kind.ARRAY,)
    if isinstance(node, TableNode):
        return Kind.TABLE, Kind.GROUP
    return (Kind.RAGGED,) if isinstance(node, RaggedNode) else (Kind.GROUP,)


def make_plan(
    node: Node, origin: Format, store: Store, target: Format, wanted: Wanted, found: Findings
) -> Plan | None:
    """Return how a format lays out a dataset; None where reasons speak against it.

    `origin` is the format of the dataset, and `store` the store that it is read from.
    """
    layout: dict[str, Any] = {}
    for name, value in wanted.layout.items():
        try:
            check_layout(target, {name: value})
        except TypeError as error:
            found.reasons.append(str(error))
        else:
            layout[name] = value
    wanted = replace(wanted, layout=layout)
    return _Planner(origin, store, target, wanted, found).plan(node, "")


@dataclass(frozen=True, slots=True)
class _Planner:
    origin: Format
    store: Store
    target: Format
    wanted: Wanted
    found: Findings

    def plan(self, node: Node, name: str) -> Plan | None:
        if isinstance(node, ArrayNode):
            return self.array(node.chunks, name)
        if isinstance(node, RaggedNode):
            return self.items(node.packs, name)
        if isinstance(node, TableNode):
            return self.table(node, name)
        return self.group(node, name)

    def group(self, node: GroupNode, name: str) -> Plan | None:
        if not isinstance(self.target, GroupFormat):
            self.refuse(name, f"{self.target.name} has no groups")
            return None
        assert isinstance(self.origin, GroupFormat)
        (members,) = self.origin.members(self.store, [node.path])
        plans: dict[str, Plan] = {}
        for own, member in members.nodes.items():
            found = self.plan(member, joined(name, own))
            if found is not None:
                plans[own] = found
        # Copies of the metadata of all members lie in the outermost group.
        copies = None if name else self.origin.compare_consolidated(self.store, node.path)
        return GroupPlan(plans, self.attrs(node.attrs, name), consolidated=copies is not None)

    def table(self, node: TableNode, name: str) -> Plan | None:
        columns: dict[str, Plan] = {}
        for own, column in node.columns.items():
            found = self.plan(column, joined(name, own))
            if found is not None:
                columns[own] = found
        attrs = self.attrs(node.attrs, name)
        if isinstance(self.target, TableFormat):
            return TablePlan(columns, attrs, self.wanted.layout)
        if not isinstance(self.target, GroupFormat):
            self.refuse(name, f"{self.target.name} has no tables")
            return None
        if not name:
            self.change(name, "the table becomes a group of its columns")
        for own in columns:
            if folder_name(own) != own:
                self.refuse(name, f"{self.target.name} has no member of the name {own!r}")
        for own, companion in companions(node.table).items():
            self.change(joined(name, own), f"nulls are where the array {companion!r} is false")
        for own in attrs.get(annotations.KEY, ()):
            self.change(joined(name, own), f"its type is in the attribute {annotations.KEY!r}")
        return GroupPlan(columns, attrs)

    def items(self, packs: RaggedMap, name: str) -> Plan | None:
        schema, target = packs.schema, self.target
        as_column = bool(name) and isinstance(target, TableFormat)
        if not isinstance(target, RaggedFormat if as_column else SequenceFormat):
            self.refuse(name, f"{target.name} has no place for items of {schema.kind}")
            return None
        wanted = self.item_codec(packs, name)
        rows = self.wanted.chunks_of(name)
        pack = rows if isinstance(rows, int) else None
        attrs = self.attrs(schema.attrs, name)
        errors: list[str] = []
        kept = [schema.codec.stages, None] if wanted is None else [wanted]
        for stages in kept:
            request = RaggedRequest(schema.length, schema.kind, None, pack, stages, attrs)
            try:
                made = target.design_ragged(request, **self.wanted.layout)
            except _REFUSALS as error:
                errors.append(str(error))
                continue
            if stages is None:
                self.change(name, f"codec {codec_text(schema.codec.stages)}: {errors[0]}")
            return RaggedPlan(packs, made, self.wanted.layout)
        for reason in errors:
            self.refuse(name, reason)
        return None

    def item_codec(self, packs: RaggedMap, name: str) -> tuple[Stage, ...] | None:
        """Return the codec that is asked for items; "auto" is chosen by some of them."""
        wanted = self.wanted.codec_of(name)
        if not isinstance(wanted, str):
            return wanted
        shape, itemsize = (packs.schema.length,), choice.PIECE_BYTES // _SAMPLED
        parts = [np.arange(own.start, own.stop) for (own,) in choice.pieces(shape, shape, itemsize)]
        rows = np.unique(np.concatenate([np.arange(0), *parts]))
        return item_stages(wanted, RaggedEngine(packs, self.wanted.options).read(rows))

    def array(self, chunks: ChunkMap, name: str) -> ArrayPlan | None:
        schema = chunks.schema
        attrs = self.attrs(schema.attrs, name)
        fills = [schema.fill, dtypes.zero(schema.dtype)]
        for layout in self.layouts(chunks):
            for fill, stages, shape in product(
                fills, self.codecs(schema, name), self.chunks(chunks, name)
            ):
                try:
                    spec = self.spec(schema, shape, stages, fill, attrs, layout)
                    made = spec.schema(self.target, _SourceItems(chunks, self.wanted.options))
                except _REFUSALS:
                    continue
                return ArrayPlan(chunks, made, layout, self.fields(chunks, name))
        self.explain(chunks, attrs, name)
        return None

    def spec(
        self,
        schema: ArraySchema,
        chunks: Chunks,
        stages: Sequence[Stage] | str | None,
        fill: object,
        attrs: Mapping[str, Any],
        layout: Mapping[str, Any],
    ) -> ArraySpec:
        options = self.wanted.options
        return ArraySpec(
            schema.shape, schema.dtype, chunks, stages, fill, None, attrs, False, options, layout
        )

    def codecs(self, schema: ArraySchema, name: str) -> list[tuple[Stage, ...] | str | None]:
        """Return the codecs to try, the best first."""
        wanted = self.wanted.codec_of(name)
        if wanted is not None:
            return [wanted]
        if self.origin.name == self.target.name:
            return [schema.codec, None]
        # The target has checksums of its own, or none. A delta is a matter of blsk.
        bare = without_checksums(schema.codec)
        plain = tuple(_without_delta(stage) for stage in bare)
        return [bare, plain, None] if plain != bare else [bare, None]

    def chunks(self, chunks: ChunkMap, name: str) -> list[Chunks]:
        """Return the shapes of chunks to try, the best first."""
        wanted = self.wanted.chunks_of(name)
        if wanted is not None:
            return [wanted]
        schema = chunks.schema
        rows = tuple(max(1, length) for length in schema.shape[1:])
        return [schema.chunks, (*schema.chunks[:1], *rows), "auto"]

    def layouts(self, chunks: ChunkMap) -> list[Mapping[str, Any]]:
        """Return the settings to try: those of the source that the target has, or only the wanted.

        What a caller asks for goes before what the source has.
        """
        schema, settings = chunks.schema, self.target.settings
        kept: dict[str, Any] = {}
        if "dimension_names" in settings and schema.dimension_names is not None:
            kept["dimension_names"] = schema.dimension_names
        if "order" in settings and schema.order == "F":
            kept["order"] = "F"
        if "shards" in settings and as_sharded(chunks) is not None and self.wanted.chunks is None:
            kept["shards"] = stored_map(chunks).schema.chunks
        if "checksum" in settings and self.origin.name == self.target.name:
            checksums = [s for s in schema.codec if isinstance(s, Compressor) and s.appended]
            if not checksums and self.wanted.codec is None:
                kept["checksum"] = False
        if "manifest" in settings and manifested(chunks) is not None:
            kept["manifest"] = True
        wanted = dict(self.wanted.layout)
        return [{**kept, **wanted}, wanted] if kept else [wanted]

    def explain(self, chunks: ChunkMap, attrs: Mapping[str, Any], name: str) -> None:
        """Find all reasons why the target cannot hold an array, each by itself."""
        schema = chunks.schema
        zero, layout = dtypes.zero(schema.dtype), self.wanted.layout
        before = len(self.found.reasons)
        wanted: Chunks = self.wanted.chunks_of(name) or "auto"
        tries: list[ArraySpec] = [
            self.spec(schema, "auto", None, zero, {}, {}),
            self.spec(schema, wanted, None, zero, {}, {}),
            self.spec(schema, "auto", self.wanted.codec_of(name), zero, {}, {}),
            self.spec(schema, "auto", None, zero, attrs, {}),
            self.spec(schema, "auto", None, zero, {}, layout),
            self.spec(schema, wanted, self.wanted.codec_of(name), zero, attrs, layout),
        ]
        for spec in tries:
            try:
                spec.schema(self.target, _SourceItems(chunks, self.wanted.options))
            except _REFUSALS as error:
                self.refuse(name, str(error))
        if len(self.found.reasons) == before:
            self.refuse(name, f"{self.target.name} has no place for it")

    def attrs(self, attrs: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Return the attributes that the target can hold, in their order."""
        kept: dict[str, Any] = {}
        for own, value in attrs.items():
            try:
                kept |= converted({own: value}, typed=has_typed_attributes(self.target))
            except IngotError as error:
                self.change(name, f"{error}; it is dropped")
        return kept

    def fields(self, chunks: ChunkMap, name: str) -> Mapping[str, Any]:
        """Return the unknown fields of a document, which only the same format has a place for."""
        annotated = as_annotated(chunks)
        found = {} if annotated is None else annotated.unknown_fields
        if self.origin.name == self.target.name:
            return found
        for own in found:
            self.change(name, f"field {own!r} of the metadata is dropped")
        return {}

    def refuse(self, name: str, reason: str) -> None:
        self.found.reasons.append(f"{name}: {reason}" if name else reason)

    def change(self, name: str, text: str) -> None:
        self.found.changes.append(f"{name}: {text}" if name else text)


@dataclass(frozen=True, slots=True)
class _SourceItems:
    """The items of a stored array, read when they are asked for."""

    chunks: ChunkMap
    options: Options

    def __getitem__(self, key: tuple[slice, ...], /) -> Any:
        engine = engine_of(self.chunks, self.options)
        return engine.read(parse(key, engine.shape))


def differences(
    source: ChunkMap, made: ArraySchema, target: Format, wanted: Wanted, name: str
) -> Iterator[str]:
    """Yield what a new array has in another way than its source, without being asked for it."""
    schema, asked = source.schema, wanted.layout
    if made.dtype != schema.dtype:
        yield f"dtype {schema.dtype} becomes {made.dtype}"
    if wanted.codec_of(name) is None:
        old, new = (without_checksums(each.codec) for each in (schema, made))
        if list(map(_decoding, old)) != list(map(_decoding, new)):
            yield f"codec {codec_text(old)} becomes {codec_text(new)}"
    if schema.rectilinear:
        yield "chunks of several lengths become chunks of one"
    elif wanted.chunks_of(name) is None and made.flat is None and made.chunks != schema.chunks:
        yield f"chunks {schema.chunks} become {made.chunks}"
    if as_sharded(source) is not None and "shards" not in target.settings:
        yield f"shards {stored_map(source).schema.chunks} are dropped"
    if manifested(source) is not None and "manifest" not in target.settings:
        yield "the manifest of stored chunks is dropped"
    names = schema.dimension_names
    if names is not None and names != made.dimension_names and "dimension_names" not in asked:
        yield f"dimension names {list(names)} are dropped"
    if schema.order != made.order and "order" not in asked:
        yield f"order {schema.order} becomes {made.order}"
    if not _same_fill(schema.fill, made.fill):
        yield f"fill value {schema.fill!r} becomes {made.fill!r}"


def _without_delta(stage: Stage) -> Stage:
    """Return the same codec in chunks of Blosc 1, if its chunks of Blosc 2 have a delta."""
    return stage.parameters if isinstance(stage, Blosc2) and stage.delta != "none" else stage


def _decoding(stage: Stage) -> dict[str, Any]:
    """Return the parameters of a codec, without those that every chunk states itself."""
    return {k: v for k, v in stage.config().items() if k not in ("blocksize", "typesize")}


def _same_fill(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if isinstance(old, np.generic | np.ndarray) and isinstance(new, np.generic | np.ndarray):
        return old.tobytes() == np.asarray(new).astype(old.dtype).tobytes()
    if isinstance(old, np.ndarray) or isinstance(new, np.ndarray):
        return np.array_equal(old, new)
    return bool(old == new)

"""The chunk map of arrays with shards: where inner chunks lie.

This module locates an inner chunk through the index of its shard, also of shards inside shards, and
rebuilds the shards whose inner chunks change. The shards themselves are located by another map,
whose chunks are the shards.

A shard that other codecs enclose can only be read as a whole. Such an array has only the map of its
shards.
"""

import math
import operator
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, islice, product
from threading import Lock
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Buffer
from ingot.errors import IngotError
from ingot.formats.format import ChunkMap, Coords, Documents, Locations
from ingot.formats.keys import stored_difference
from ingot.formats.shard_index import IndexForm, ShardIndex, build_shard
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.schema import ArraySchema
from ingot.stores.store import Commit, Constant, Extent, Store

__all__ = ["ShardIndexes", "ShardedMap", "inner_map"]

_CACHE_BYTES: Final = 16 << 20
_WINDOW: Final = 1 << 16


def inner_map(shards: ChunkMap) -> ChunkMap:
    """Return the map of the inner chunks of an array with shards, else the same map."""
    levels = tuple(_levels(shards.schema))
    return ShardedMap(shards, levels) if levels else shards


class _Span(NamedTuple):
    """Where a shard lies: a range of bytes in the value of a key."""

    key: str
    start: int
    size: int


@dataclass(frozen=True, slots=True)
class ShardedMap:
    """The inner chunks of one array; `shards` is the map of its shards.

    `levels` has the index form of every level of shards, outermost first.
    """

    shards: ChunkMap
    levels: tuple[IndexForm, ...]
    indexes: "ShardIndexes" = field(default_factory=lambda: ShardIndexes(_CACHE_BYTES))
    before: Coords | None = None
    """The number of inner chunks along each axis before the resize that returned this map."""
    schema: ArraySchema = field(init=False)
    """What the array is; its chunks are the inner chunks."""

    def __post_init__(self) -> None:
        schema = self.shards.schema
        for _ in self.levels:
            stage = schema.chain.serializer
            assert isinstance(stage, Sharding)
            schema = replace(schema, chunks=stage.inner_chunks, chain=stage.inner_chain)
        object.__setattr__(self, "schema", schema)

    @property
    def store(self) -> Store:
        """The store that holds the array."""
        return self.shards.store

    @property
    def path(self) -> str:
        """The path of the array in its store."""
        return self.shards.path

    @property
    def template(self) -> None:
        """None: keys do not follow from the coordinates of inner chunks alone."""
        return None

    @property
    def documents(self) -> Documents:
        """The documents of the array."""
        return self.shards.documents

    def locate(self, coords: NDArray[np.int64]) -> Locations:
        """Return where inner chunks lie; this reads the index of every shard touched."""
        places, group = self._outermost(coords)
        rest = coords % self._counts()
        for level, form in enumerate(self.levels):
            inner = self._counts(level + 1)
            numbers = _numbers(rest // inner, form.counts)
            starts, lengths = self._ranges(form, places, group, numbers)
            rest = rest % inner
            if level + 1 < len(self.levels):
                places, group = _inside(places, group, numbers, starts, lengths)
        keys = self._keys(coords)
        fill = Constant(self.schema.fill)
        others = dict.fromkeys(np.flatnonzero(lengths < 0).tolist(), fill)
        return Locations(keys, starts, lengths, others)

    def reopened(self, store: Store) -> ChunkMap:
        """Return the map of the same array in its current state in `store`."""
        found = inner_map(self.shards.reopened(store))
        return replace(found, indexes=self.indexes) if isinstance(found, ShardedMap) else found

    def stage(self, encoded: Mapping[Coords, bytes | None]) -> Commit:
        """Return the commit that stores inner chunks: one edit for each shard that has one.

        The other chunks of these shards are copied from the store.
        """
        per_shard = self._counts()
        changes: dict[Coords, dict[Coords, bytes | None]] = {}
        for coords, data in encoded.items():
            shard, inner = _divided(coords, per_shard)
            changes.setdefault(shard, {})[inner] = data
        for shard, coming in self._newly_inside(changes):
            changes[shard] = dict.fromkeys(coming) | changes[shard]
        return self.shards.stage(
            {shard: self._rebuild(shard, inner) for shard, inner in changes.items()}
        )

    def resized(self, shape: tuple[int, ...]) -> tuple["ShardedMap", Commit]:
        """Return the map of another shape; shards outside of it are removed.

        Before the array grows, inner chunks beyond its edge are removed from the shards there: by
        the `prepare` edits of the commit, and by every commit staged before it is applied.
        """
        shards, commit = self.shards.resized(shape)
        grown = ShardedMap(shards, self.levels, self.indexes, self.schema.grid.counts)
        strays = self.stage(dict.fromkeys(self._stray_chunks(grown.schema.grid.counts)))
        return grown, replace(commit, prepare=(*strays.publish, *commit.prepare))

    def described(self, attrs: Mapping[str, Any]) -> tuple["ShardedMap", Commit]:
        """Return the map with other attributes."""
        shards, commit = self.shards.described(attrs)
        return ShardedMap(shards, self.levels, self.indexes), commit

    def removed(self) -> Commit:
        """Return the commit that removes the array."""
        return self.shards.removed()

    def _counts(self, level: int = 0) -> Coords:
        """Return the number of innermost chunks along each axis of a shard of a level."""
        counts = (1,) * len(self.schema.chunks)
        for form in self.levels[level:]:
            counts = tuple(a * b for a, b in zip(counts, form.counts, strict=True))
        return counts

    def _keys(self, coords: NDArray[np.int64]) -> tuple[str, ...]:
        return self.shards.locate(coords // self._counts()).keys

    def _outermost(self, coords: NDArray[np.int64]) -> tuple[list[_Span | None], NDArray[np.int64]]:
        """Return where the outermost shards lie, and which of them each inner chunk is in."""
        shards, group = np.unique(coords // self._counts(), axis=0, return_inverse=True)
        keys = self.shards.locate(shards).keys
        sizes = map(self.store.size, keys)
        places = [
            None if size is None else _Span(key, 0, size)
            for key, size in zip(keys, sizes, strict=True)
        ]
        return places, group.reshape(-1)

    def _ranges(
        self,
        form: IndexForm,
        places: Sequence[_Span | None],
        group: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return offset and length of chunks in their keys, by number in the shards of `group`."""
        starts = np.zeros(len(numbers), np.int64)
        lengths = np.full(len(numbers), -1, np.int64)
        present = [place for place in places if place is not None]
        found = iter(self.indexes.find(self.store, form, present))
        order = np.argsort(group, kind="stable")
        bounds = np.searchsorted(group[order], np.arange(len(places) + 1))
        for number, place in enumerate(places):
            if place is None:
                continue
            rows = order[bounds[number] : bounds[number + 1]]
            with _ShardNote(place.key):
                starts[rows], lengths[rows] = next(found).ranges(numbers[rows])
            starts[rows] += place.start
        return starts, lengths

    def _newly_inside(self, shards: Iterable[Coords]) -> Iterator[tuple[Coords, Iterator[Coords]]]:
        """Yield the chunks of some shards that lie in this array but not in the stored one."""
        counts, before = self.schema.grid.counts, self.before
        if before is None or not any(map(operator.gt, counts, before)):
            return
        if self.shards.reopened(self.store).schema.shape == self.schema.shape:
            return
        per_shard = self._counts()
        for shard in shards:
            inner = _beyond(shard, per_shard, before, counts)
            yield shard, (_divided(coords, per_shard)[1] for coords in inner)

    def _rebuild(self, shard: Coords, changes: Mapping[Coords, bytes | None]) -> bytes | None:
        """Return a whole shard with changed inner chunks."""
        per_shard, old = self._counts(), None
        axes = zip(self.schema.grid.counts, shard, per_shard, strict=True)
        valid = [min(each, count - position * each) for count, position, each in axes]
        (key,) = self._keys(np.array([shard], np.int64).reshape(1, -1) * per_shard)
        if sum(all(map(operator.lt, coords, valid)) for coords in changes) < math.prod(valid):
            (old,) = self.store.read([Extent(key)])
        with _ShardNote(key):
            return self._merge(0, changes, old)

    def _merge(
        self, level: int, changes: Mapping[Coords, bytes | None], old: Buffer | None
    ) -> bytes | None:
        """Return a shard of a level with changed inner chunks."""
        form, inner = self.levels[level], self._counts(level + 1)
        parts: dict[int, dict[Coords, bytes | None]] = {}
        for coords, data in changes.items():
            outer, rest = _divided(coords, inner)
            parts.setdefault(_number(outer, form.counts), {})[rest] = data
        if level + 1 == len(self.levels):
            chunks = {number: next(iter(part.values())) for number, part in parts.items()}
            return build_shard(form, chunks, old)
        index = None if old is None else form.find(old)
        rebuilt = {
            number: self._merge(level + 1, part, _cut(index, old, number))
            for number, part in parts.items()
        }
        return build_shard(form, rebuilt, old)

    def _stray_chunks(self, grown: Coords) -> Iterator[Coords]:
        """Yield the stored chunks beyond the edge of the array that `grown` would include."""
        counts, per_shard = self.schema.grid.counts, self._counts()
        shards = tuple(-(-count // each) for count, each in zip(counts, per_shard, strict=True))
        template = self.shards.template
        axes = zip(shards, counts, per_shard, grown, strict=True)
        # Along axes that grow, the last shard may have room for more chunks.
        inside = tuple(
            number - 1 if new > old and old % each else number for number, old, each, new in axes
        )
        if inside == shards or template is None:
            return
        candidates = (
            coords
            for shard in stored_difference(self.store, template, shards, inside)
            for coords in _beyond(shard, per_shard, counts, grown)
        )
        while window := list(islice(candidates, _WINDOW)):
            found = self.locate(np.array(window, np.int64))
            yield from compress(window, (isinstance(each, Extent) for each in found))


class ShardIndexes:
    """A cache of shard indexes, least recently used dropped first, within a budget of bytes.

    Each is kept with the identity of the key it was read from (`Store.identity`).
    """

    __slots__ = ("_budget", "_cached", "_lock", "_used")

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._used = 0
        self._cached: OrderedDict[_Span, tuple[Hashable, ShardIndex]] = OrderedDict()
        self._lock = Lock()

    @property
    def used(self) -> int:
        """The bytes of all cached indexes."""
        return self._used

    def find(self, store: Store, form: IndexForm, places: Sequence[_Span]) -> list[ShardIndex]:
        """Return the indexes of shards; those not in the cache are read together."""
        identities = [store.identity(place.key) for place in places]
        found = [self._known(*each) for each in zip(places, identities, strict=True)]
        missing = [number for number, index in enumerate(found) if index is None]
        extents = []
        for place in (places[number] for number in missing):
            with _ShardNote(place.key):
                start, length = form.place(place.size)
            extents.append(Extent(place.key, place.start + start, length))
        for number, data in zip(missing, store.read(extents), strict=True):
            place = places[number]
            with _ShardNote(place.key):
                index = form.parse(data or b"", place.size)
            self._keep(place, identities[number], index)
            found[number] = index
        return [index for index in found if index is not None]

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardIndexes, (self._budget,)

    def _known(self, place: _Span, identity: Hashable) -> ShardIndex | None:
        with self._lock:
            held = self._cached.get(place)
            if held is None or identity is None or held[0] != identity:
                return None
            self._cached.move_to_end(place)
            return held[1]

    def _keep(self, place: _Span, identity: Hashable, index: ShardIndex) -> None:
        with self._lock:
            old = self._cached.pop(place, None)
            self._used -= 0 if old is None else old[1].entries.nbytes
            if identity is None or index.entries.nbytes > self._budget:
                return
            self._cached[place] = identity, index
            self._used += index.entries.nbytes
            while self._used > self._budget:
                _, (_, oldest) = self._cached.popitem(last=False)
                self._used -= oldest.entries.nbytes


class _ShardNote:
    """Adds the key of a shard to errors raised in a ``with`` block."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key = key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, IngotError):
            error.add_note(f"in shard {self._key!r}")


def _levels(schema: ArraySchema) -> Iterator[IndexForm]:
    shape, chain = schema.chunks, schema.chain
    if schema.rectilinear:
        # Shards of several lengths have indexes of several sizes: they are read as a whole.
        return
    while not chain.filters and not chain.compressors and isinstance(chain.serializer, Sharding):
        sharding = chain.serializer
        yield sharding.form(shape)
        shape, chain = sharding.inner_chunks, sharding.inner_chain


def _inside(
    places: Sequence[_Span | None],
    group: NDArray[np.int64],
    numbers: NDArray[np.int64],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> tuple[list[_Span | None], NDArray[np.int64]]:
    """Return where the shards inside shards lie, and which of them each chunk is in."""
    pairs = np.stack([group, numbers], axis=1)
    _, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    inner: list[_Span | None] = []
    for row in first.tolist():
        place = places[group[row]]
        absent = place is None or lengths[row] < 0
        inner.append(None if absent else _Span(place.key, int(starts[row]), int(lengths[row])))
    return inner, inverse.reshape(-1)


def _beyond(shard: Coords, per_shard: Coords, counts: Coords, grown: Coords) -> Iterator[Coords]:
    """Yield the chunks of a shard that lie beyond `counts` but not beyond `grown`."""
    first = [position * each for position, each in zip(shard, per_shard, strict=True)]
    axes = zip(first, per_shard, grown, strict=True)
    ranges = [range(start, min(start + each, end)) for start, each, end in axes]
    for coords in product(*ranges):
        if any(map(operator.ge, coords, counts)):
            yield coords


def _divided(coords: Coords, unit: Coords) -> tuple[Coords, Coords]:
    pairs = [divmod(position, each) for position, each in zip(coords, unit, strict=True)]
    return tuple(whole for whole, _ in pairs), tuple(rest for _, rest in pairs)


def _number(coords: Coords, counts: Coords) -> int:
    number = 0
    for position, count in zip(coords, counts, strict=True):
        number = number * count + position
    return number


def _numbers(coords: NDArray[np.int64], counts: Coords) -> NDArray[np.int64]:
    numbers = np.zeros(len(coords), np.int64)
    for axis, count in enumerate(counts):
        numbers = numbers * count + coords[:, axis]
    return numbers


def _cut(index: ShardIndex | None, shard: Buffer | None, number: int) -> Buffer | None:
    if index is None or shard is None:
        return None
    starts, lengths = index.ranges(np.array([number]))
    start, length = int(starts[0]), int(lengths[0])
    return None if length < 0 else memoryview(shard)[start : start + length]

"""Manifests: which chunks of an array are stored; a lost one is told from one never written.

A manifest is a small JSON document beside the metadata of an array. It has the number of chunks
along each axis, the runs of stored chunks by their numbers in C order, and a CRC-32C of both. This
module parses, packs and changes manifests, and returns the commits that keep them up to date.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.checksums import crc32c
from ingot.errors import CorruptionError, FormatError, IngotError
from ingot.fields import INT64, FieldReader
from ingot.formats import json
from ingot.formats.addresses import Coords, KeyTemplate
from ingot.grid import ChunkGrid
from ingot.stores.store import Commit, Delete, Extent, Put, Store

__all__ = ["NAME", "Manifest", "read", "recorded"]

IntArray: TypeAlias = NDArray[np.int64]

NAME: Final = ".manifest"
"""The name of the document, in the folder of the array."""

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Manifest:
    """The stored chunks of a grid, as runs of numbers in C order.

    `bounds` ascends: the first number of a run, the first behind it, and so on.

    >>> manifest = Manifest.of((2, 3), [(0, 0), (0, 1), (1, 2)])
    >>> manifest.bounds.tolist(), manifest.coords().tolist()
    ([0, 2, 5, 6], [[0, 0], [0, 1], [1, 2]])
    >>> Manifest.parse(manifest.pack()).bounds.tolist()
    [0, 2, 5, 6]
    """

    counts: Coords
    bounds: IntArray

    @classmethod
    def of(cls, counts: Coords, stored: Iterable[Coords] = ()) -> "Manifest":
        """Return the manifest of some chunks; those outside of the grid are left out."""
        inside = [each for each in stored if all(map(int.__lt__, each, counts))]
        table = np.array(inside, np.int64).reshape(len(inside), len(counts))
        return cls(counts, _runs(_numbers(table, counts)))

    @classmethod
    def parse(cls, data: bytes, where: str = NAME) -> "Manifest":
        """Return the manifest that a document holds; every claim in it is checked."""
        fields = FieldReader(where, json.parse_object(data, where))
        fields.choice("version", (_VERSION,))
        counts = fields.integers("chunks", low=0)
        runs, claim = fields.value("stored"), fields.integer("crc32c")
        fields.finish()
        bounds = _parse_runs(runs, counts, where)
        actual = crc32c(json.pack_compact(_content(counts, bounds), where))
        if claim != actual:
            raise CorruptionError(f"{where}: crc32c is {claim}, the content has {actual}")
        return cls(counts, bounds)

    def pack(self, where: str = NAME) -> bytes:
        """Return the document that `parse` reads back."""
        content = _content(self.counts, self.bounds)
        checksum = crc32c(json.pack_compact(content, where))
        return json.pack_compact({**content, "crc32c": checksum}, where)

    def coords(self, rows: range | None = None) -> IntArray:
        """Return the coordinates of stored chunks, in C order; a row for each.

        With `rows` only those whose first coordinate lies in this range.
        """
        bounds, row = self.bounds, math.prod(self.counts[1:])
        if rows is not None:
            bounds = np.clip(bounds, rows.start * row, rows.stop * row)
        rest = _expanded(bounds)
        table = np.empty((len(rest), len(self.counts)), np.int64)
        for axis in reversed(range(len(self.counts))):
            rest, table[:, axis] = np.divmod(rest, max(self.counts[axis], 1))
        return table

    def regridded(self, counts: Coords) -> "Manifest":
        """Return the manifest of the same chunks in a grid of other lengths, without those outside.

        >>> Manifest.of((2, 2), [(0, 1), (1, 1)]).regridded((2, 5)).bounds.tolist()
        [1, 2, 6, 7]
        """
        if counts == self.counts:
            return self
        if counts[1:] == self.counts[1:]:
            return Manifest(counts, _merged(np.clip(self.bounds, 0, math.prod(counts))))
        return Manifest.of(counts, map(tuple, self.coords().tolist()))

    def changed(self, stored: Mapping[int, bool]) -> "Manifest":
        """Return the manifest in which some chunks, by their numbers, are stored or are not.

        >>> Manifest.of((9,), [(1,), (2,)]).changed({2: False, 3: True, 4: True}).bounds.tolist()
        [1, 2, 3, 5]
        """
        numbers, kept = np.array(list(stored), np.int64), np.array(list(stored.values()), bool)
        added, gone = _runs(numbers[kept]), _runs(numbers[~kept])
        points = np.union1d(np.union1d(self.bounds, added), gone)
        inside = (_within(points, self.bounds) | _within(points, added)) & ~_within(points, gone)
        edges = np.flatnonzero(np.diff(inside, prepend=False))
        return Manifest(self.counts, points[edges])


def read(store: Store, key: str, counts: Coords) -> Manifest:
    """Return the manifest of an array in a store, for the grid that the array has now."""
    data = _stored(store, key)
    if data is None:
        raise CorruptionError(
            f"{store.location}: the manifest {key} is lost: chunks that are not stored cannot be "
            "told from lost ones; ingot.repair makes it anew from what is stored"
        )
    found = Manifest.parse(data, key)
    if len(found.counts) != len(counts):
        raise CorruptionError(
            f"{key}: chunks has {len(found.counts)} axes, the array {len(counts)}"
        )
    return found.regridded(counts)


def recorded(
    store: Store, key: str, document: str, template: KeyTemplate, grid: ChunkGrid, commit: Commit
) -> Commit:
    """Return a commit that also keeps the manifest up to date.

    `key` is that of the manifest, `document` that of the metadata, which decides the grid. Where
    the commit creates the manifest, the chunks that it stores are added to that one. A manifest
    that is lost or damaged stays as it is: only a repair makes it anew.
    """
    changes, is_resized, made = dict[int, bool](), False, None
    for edit in commit.edits:
        coords = template.parse(edit.key, len(grid.counts))
        if coords is not None and all(map(int.__lt__, coords, grid.counts)):
            changes[grid.linear(coords)] = not isinstance(edit, Delete)
        is_resized = is_resized or edit.key == document
        made = edit if edit.key == key else made
    if not (changes or is_resized):
        return commit
    old = bytes(made.data) if isinstance(made, Put) else _stored(store, key)
    try:
        found = Manifest.parse(old or b"", key)
    except IngotError:
        return commit
    data = found.regridded(grid.counts).changed(changes).pack(key)
    if data == old:
        return commit
    others = tuple(edit for edit in commit.publish if edit.key != key)
    return replace(commit, publish=(*others, Put(key, data)))


def _stored(store: Store, key: str) -> bytes | None:
    # One byte more than allowed shows that a document is too long without reading all of it.
    (data,) = store.read([Extent(key, 0, json.LARGEST + 1)])
    return None if data is None else bytes(data)


def _content(counts: Coords, bounds: IntArray) -> dict[str, object]:
    return {
        "version": _VERSION,
        "chunks": list(counts),
        "stored": bounds.reshape(-1, 2).tolist(),
    }


def _parse_runs(claim: object, counts: Coords, where: str) -> IntArray:
    """Return the bounds of runs, which ascend, do not touch, and lie in the grid."""
    flat = list(_flattened(claim, where))
    bounds = np.array(flat, np.int64)
    total = min(math.prod(counts), INT64)
    if len(flat) and (flat[0] < 0 or flat[-1] > total or (np.diff(bounds) < 1).any()):
        raise FormatError(f"{where}: stored has runs that do not ascend from 0 to {total} chunks")
    return bounds


def _flattened(claim: object, where: str) -> Iterator[int]:
    for run in claim if isinstance(claim, list) else [claim]:
        pair = run if isinstance(run, list) and len(run) == 2 else [None]
        for bound in pair:
            if type(bound) is not int or bound > INT64:
                raise FormatError(f"{where}: stored is no list of pairs of chunk numbers")
            yield bound


def _numbers(table: IntArray, counts: Coords) -> IntArray:
    numbers = np.zeros(len(table), np.int64)
    for axis, count in enumerate(counts):
        numbers = numbers * count + table[:, axis]
    return numbers


def _runs(numbers: IntArray) -> IntArray:
    """Return the bounds of the runs of some numbers."""
    ascending = np.unique(numbers)
    first = ascending[np.flatnonzero(np.diff(ascending, prepend=-2) > 1)]
    last = ascending[np.flatnonzero(np.diff(ascending, append=INT64) > 1)]
    return np.stack([first, last + 1], axis=1).reshape(-1)


def _merged(bounds: IntArray) -> IntArray:
    """Return clipped bounds without runs that have become empty."""
    runs = bounds.reshape(-1, 2)
    kept: IntArray = runs[runs[:, 0] < runs[:, 1]].reshape(-1)
    return kept


def _expanded(bounds: IntArray) -> IntArray:
    """Return all numbers of runs."""
    runs = bounds.reshape(-1, 2)
    lengths = runs[:, 1] - runs[:, 0]
    begins = np.cumsum(lengths) - lengths
    numbers: IntArray = np.arange(lengths.sum()) + np.repeat(runs[:, 0] - begins, lengths)
    return numbers


def _within(points: IntArray, bounds: IntArray) -> NDArray[np.bool_]:
    return (np.searchsorted(bounds, points, side="right") & 1).astype(bool)

"""Chunk grids as Zarr version 3 spells them.

Knows the regular grid and the rectilinear one, whose axes are cut into chunks of several lengths.
Refuses to know what a chunk holds.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import INT64, MOST_AXES, FieldReader, shown
from ingot.formats.zarr import v3_extension
from ingot.grid import MOST_RECTILINEAR_CHUNKS, RectilinearAxis

__all__ = ["Cut", "pack", "parse"]

_MOST_RUNS: Final = 2**20


class Cut(NamedTuple):
    """How an array is cut: the shape of a chunk, and the lengths on axes that have several."""

    chunks: tuple[int, ...]
    edges: tuple[RectilinearAxis | None, ...] = ()


def parse(claim: object, shape: tuple[int, ...], where: str = "chunk_grid") -> Cut:
    """Return how a file claims that an array of `shape` is cut.

    >>> parse({"name": "regular", "configuration": {"chunk_shape": [3]}}, (10,))
    Cut(chunks=(3,), edges=())
    >>> cut = parse({"name": "rectilinear", "configuration":
    ...     {"kind": "inline", "chunk_shapes": [4, [[1, 3], 5]]}}, (6, 7))
    >>> cut.chunks, cut.edges[1].lengths.tolist()
    ((4, 5), [1, 1, 1, 5])
    """
    found = v3_extension.parse(claim, where, required=True)
    claims = found.claims()
    if found.name == "regular":
        chunks = claims.integers("chunk_shape", low=1)
        claims.finish()
        if len(chunks) != len(shape):
            raise FormatError(
                f"{claims.where}: chunk_shape has {len(chunks)} axes, the shape {len(shape)}"
            )
        return Cut(chunks)
    if found.name == "rectilinear":
        return _parse_rectilinear(claims, shape)
    raise UnsupportedError(f"{where}: chunk grid {shown(found.name)} is unknown")


def pack(cut: Cut) -> dict[str, Any]:
    """Return the spelling that `parse` reads back.

    >>> pack(Cut((4, 5), (None, RectilinearAxis([1, 1, 5]))))["configuration"]["chunk_shapes"]
    [4, [[1, 2], 5]]
    """
    if not any(cut.edges):
        return {"name": "regular", "configuration": {"chunk_shape": list(cut.chunks)}}
    shapes = [
        length if edges is None else _packed_runs(edges)
        for edges, length in zip(cut.edges, cut.chunks, strict=True)
    ]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


def _parse_rectilinear(claims: FieldReader, shape: tuple[int, ...]) -> Cut:
    claims.choice("kind", ("inline",))
    axes = claims.value("chunk_shapes")
    claims.finish()
    if not isinstance(axes, list) or len(axes) != len(shape) or len(axes) > MOST_AXES:
        raise claims.wrong("chunk_shapes", axes, f"a list of {len(shape)} axes")
    chunks: list[int] = []
    edges: list[RectilinearAxis | None] = []
    for index, (axis, length) in enumerate(zip(axes, shape, strict=True)):
        where = f"{claims.where}: chunk_shapes[{index}]"
        if isinstance(axis, list):
            found = _parse_lengths(axis, length, where)
            chunks.append(found.longest)
            edges.append(found)
        else:
            chunks.append(_checked(axis, where))
            edges.append(None)
    return Cut(tuple(chunks), tuple(edges) if any(edges) else ())


def _parse_lengths(axis: list[object], length: int, where: str) -> RectilinearAxis:
    if not axis or len(axis) > _MOST_RUNS:
        raise FormatError(f"{where}: {shown(axis)} is no list of 1 to {_MOST_RUNS} lengths")
    values: list[int] = []
    counts: list[int] = []
    for run in axis:
        pair = run if isinstance(run, list) else [run, 1]
        if len(pair) != 2:
            raise FormatError(f"{where}: {shown(run)} is no length and no [length, count]")
        values.append(_checked(pair[0], where))
        counts.append(_checked(pair[1], where))
    if sum(counts) > MOST_RECTILINEAR_CHUNKS:
        raise LimitError(f"{where}: {sum(counts)} chunks, the most is {MOST_RECTILINEAR_CHUNKS}")
    reach = sum(value * count for value, count in zip(values, counts, strict=True))
    if not length <= reach <= INT64:
        raise FormatError(f"{where}: chunks end at {reach}, the axis has {length} items")
    return RectilinearAxis(np.repeat(np.array(values, np.int64), np.array(counts, np.int64)))


def _checked(claim: object, where: str) -> int:
    if type(claim) is not int or not 1 <= claim <= INT64:
        raise FormatError(f"{where}: {shown(claim)} is no integer from 1 on")
    return claim


def _packed_runs(edges: RectilinearAxis) -> list[Any]:
    lengths = edges.lengths
    begins = np.concatenate([[0], np.flatnonzero(np.diff(lengths)) + 1, [len(lengths)]])
    runs = zip(lengths[begins[:-1]].tolist(), np.diff(begins).tolist(), strict=True)
    return [length if count == 1 else [length, count] for length, count in runs]

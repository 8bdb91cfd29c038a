"""Chunk grids as Zarr version 3 spells them.

There are two: the regular grid, and the rectilinear one, whose axes have chunks of several lengths.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from ingot.errors import FormatError, LimitError, UnsupportedError
from ingot.fields import INT64, MOST_AXES, FieldReader, shown
from ingot.formats.zarr import v3_extension
from ingot.grid import MOST_RECTILINEAR_CHUNKS, RectilinearAxis

__all__ = ["ChunkShapes", "pack", "parse"]

_MOST_RUNS: Final = 2**20


class ChunkShapes(NamedTuple):
    """The shape of a chunk, and the chunk lengths of axes that have several."""

    chunks: tuple[int, ...]
    rectilinear: tuple[RectilinearAxis | None, ...] = ()


def parse(claim: object, shape: tuple[int, ...], where: str = "chunk_grid") -> ChunkShapes:
    """Return the shapes of chunks that a file claims for an array of `shape`.

    >>> parse({"name": "regular", "configuration": {"chunk_shape": [3]}}, (10,))
    ChunkShapes(chunks=(3,), rectilinear=())
    >>> shapes = parse({"name": "rectilinear", "configuration":
    ...     {"kind": "inline", "chunk_shapes": [4, [[1, 3], 5]]}}, (6, 7))
    >>> shapes.chunks, shapes.rectilinear[1].lengths.tolist()
    ((4, 5), [1, 1, 1, 5])
    """
    found = v3_extension.parse(claim, where, required=True)
    fields = found.fields()
    if found.name == "regular":
        chunks = fields.integers("chunk_shape", low=1)
        fields.finish()
        if len(chunks) != len(shape):
            raise FormatError(
                f"{fields.where}: chunk_shape has {len(chunks)} axes, the shape {len(shape)}"
            )
        return ChunkShapes(chunks)
    if found.name == "rectilinear":
        return _parse_rectilinear(fields, shape)
    raise UnsupportedError(f"{where}: chunk grid {shown(found.name)} is unknown")


def pack(grid: ChunkShapes) -> dict[str, Any]:
    """Return the spelling that `parse` reads back.

    >>> pack(ChunkShapes((4, 5), (None, RectilinearAxis([1, 1, 5]))))["configuration"]
    {'kind': 'inline', 'chunk_shapes': [4, [[1, 2], 5]]}
    """
    if not any(grid.rectilinear):
        return {"name": "regular", "configuration": {"chunk_shape": list(grid.chunks)}}
    shapes = [
        length if edges is None else _packed_runs(edges)
        for edges, length in zip(grid.rectilinear, grid.chunks, strict=True)
    ]
    return {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": shapes}}


def _parse_rectilinear(fields: FieldReader, shape: tuple[int, ...]) -> ChunkShapes:
    fields.choice("kind", ("inline",))
    axes = fields.value("chunk_shapes")
    fields.finish()
    if not isinstance(axes, list) or len(axes) != len(shape) or len(axes) > MOST_AXES:
        raise fields.wrong("chunk_shapes", axes, f"a list of {len(shape)} axes")
    chunks: list[int] = []
    edges: list[RectilinearAxis | None] = []
    for index, (axis, length) in enumerate(zip(axes, shape, strict=True)):
        where = f"{fields.where}: chunk_shapes[{index}]"
        if isinstance(axis, list):
            found = _parse_lengths(axis, length, where)
            chunks.append(found.longest)
            edges.append(found)
        else:
            chunks.append(_checked(axis, where))
            edges.append(None)
    return ChunkShapes(tuple(chunks), tuple(edges) if any(edges) else ())


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

"""The search for the rows of a table that match an expression.

Chunks whose zone maps exclude a match are skipped, chunks whose zone maps prove one are not read,
and the rest is read block by block.
"""

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.engine import scan
from ingot.engine.run import Engine
from ingot.errors import ColumnError
from ingot.nullable_array import NullableArray
from ingot.query.columns import ColumnSource
from ingot.query.conjunction import Conjunction
from ingot.query.evaluate import matches
from ingot.query.expr import Expression, column_names
from ingot.query.pruning import ColumnZoneMaps, Span, prune
from ingot.query.pushdown import alternatives, compared
from ingot.query.stored import stored_expression
from ingot.ragged_array import RaggedArray
from ingot.schema import RaggedSchema
from ingot.selection import parse

__all__ = ["Rows", "candidates", "check", "count", "find", "find_within", "gather", "windows"]

Rows = range | NDArray[np.int64]
"""Numbers of rows, ascending: all of a range, or those of an array."""

# Large enough for all threads of the kernel, small enough for the processor's caches.
_BLOCK_BYTES: Final = 8 << 20
_BLOCK_ITEMS: Final = 1 << 17
# The rows that show how much a condition leaves.
_SAMPLED: Final = 1 << 15


def check(table: ColumnSource, expression: Expression) -> None:
    """Raise if an expression cannot be evaluated on the columns of a table.

    It is evaluated on no rows, so that a wrong one raises even where nothing would be read.
    """
    _checked(table, stored_expression(expression, table.logical_types))


def _checked(table: ColumnSource, expression: Expression) -> Expression:
    empty: dict[str, NDArray[Any] | NullableArray | RaggedArray] = {}
    for name in column_names(expression):
        if table.within(name) != (name,):
            raise ColumnError(f"{name!r} is a nested table, and not a column")
        schema = table.schema(name)
        if isinstance(schema, RaggedSchema):
            empty[name] = RaggedArray.nulls(schema.kind, 0)
        else:
            empty[name] = np.empty((0, *schema.shape[1:]), schema.dtype)
    matches(expression, empty, 0)
    return expression


def find(table: ColumnSource, expression: Expression) -> Rows:
    """Return the numbers of the rows that match."""
    expression = _checked(table, stored_expression(expression, table.logical_types))
    spans = _candidates(table, expression)
    asked = alternatives(table, expression)
    if asked is None:
        return _joined(list(_numbered_masks(table, expression, spans)))
    rest = _uncertain(spans)
    numbers = scan.find(_ordered(asked, rest), rest)
    return _joined(list(_numbered(numbers, spans)))


def windows(
    table: ColumnSource, expression: Expression | None, names: tuple[str, ...], nbytes: int
) -> Iterator[range]:
    """Yield the runs of rows that can match, cut at chunks into about `nbytes` of some columns.

    Without an expression, these are all rows.
    """
    spans = [Span(0, table.rows, certain=True)] if table.rows else []
    if expression is not None:
        spans = _candidates(table, stored_expression(expression, table.logical_types))
    start = stop = 0
    for span in spans:
        # Runs that are certain to match and runs that may match are read alike.
        if span.start > stop:
            yield from _cut(table, names, start, stop, nbytes)
            start = span.start
        stop = span.stop
    yield from _cut(table, names, start, stop, nbytes)


def _cut(
    table: ColumnSource, names: tuple[str, ...], start: int, stop: int, nbytes: int
) -> Iterator[range]:
    for block in _blocks(table, names, Span(start, stop, certain=False), nbytes):
        yield range(block.start, block.stop)


def candidates(table: ColumnSource, expression: Expression) -> list[range]:
    """Return the runs of rows that can match, as zone maps tell; no column is read."""
    expression = _checked(table, stored_expression(expression, table.logical_types))
    return [range(span.start, span.stop) for span in _candidates(table, expression)]


def find_within(table: ColumnSource, expression: Expression | None, rows: range) -> Rows:
    """Return the numbers of the rows of a run that match; without an expression, all of them."""
    if expression is None:
        return rows
    expression = stored_expression(expression, table.logical_types)
    spans = [Span(rows.start, rows.stop, certain=False)]
    asked = alternatives(table, expression)
    if asked is None:
        return _joined(list(_numbered_masks(table, expression, spans)))
    return _joined(list(_numbered(scan.find(asked, _uncertain(spans)), spans)))


def count(table: ColumnSource, expression: Expression) -> int:
    """Return how many rows match, without collecting their numbers."""
    expression = _checked(table, stored_expression(expression, table.logical_types))
    spans = _candidates(table, expression)
    asked = alternatives(table, expression)
    sure = sum(span.stop - span.start for span in spans if span.certain)
    if asked is not None:
        rest = _uncertain(spans)
        return sure + scan.count(_ordered(asked, rest), rest)
    masks = (mask for _, mask in _masks(table, expression, spans) if mask is not None)
    return sure + sum(int(np.count_nonzero(mask)) for mask in masks)


def gather(
    table: ColumnSource, name: str, rows: Rows | slice
) -> NDArray[Any] | NullableArray | RaggedArray:
    """Return the values of a column in some rows; variable-length items stay in buffers."""
    items = table.items(name)
    if items is not None:
        chosen = range(table.rows)[rows] if isinstance(rows, slice) else rows
        return items.read(chosen)
    engine = table.engine(name)
    key: object = rows
    if isinstance(rows, range):
        # In a slice that runs down to the first row, a stop of -1 would mean the last one.
        key = slice(rows.start, rows.stop if rows.stop >= 0 else None, rows.step)
    values: NDArray[Any] = engine.read(parse(key, engine.shape))
    validity = table.validity(name)
    if validity is None:
        return values
    return NullableArray(values, validity.read(parse(key, validity.shape)))


def _candidates(table: ColumnSource, expression: Expression) -> list[Span]:
    """Return the runs of rows that can match."""
    return prune(expression, _zone_maps(table, column_names(expression)), table.rows)


def _uncertain(spans: list[Span]) -> list[tuple[int, int]]:
    return [(span.start, span.stop) for span in spans if not span.certain]


def _ordered(asked: list[scan.Alternative], spans: list[tuple[int, int]]) -> list[scan.Alternative]:
    """Return alternatives, each with the condition first that leaves fewest rows of a sample.

    Of the columns behind the first one, only what is left is decoded. A sample does not pay for few
    rows.
    """
    if sum(stop - start for start, stop in spans) < 4 * _SAMPLED:
        return asked
    start, stop = max(spans, key=lambda span: span[1] - span[0])
    sample = range(start, min(stop, start + _SAMPLED))

    def left(condition: scan.Condition) -> int:
        return int(np.count_nonzero(scan.mark(condition, sample)))

    return [sorted(each, key=left) if len(each) > 1 else each for each in asked]


def _masks(
    table: ColumnSource, expression: Expression, spans: list[Span]
) -> Iterator[tuple[Span, NDArray[np.bool_] | None]]:
    """Yield runs of rows, each with the mask of its matching rows; None if all match."""
    names = column_names(expression)
    tests = Conjunction(table, expression, partial(gather, table))
    # What the kernel tests while it decodes is not kept, so that a block of it may be long.
    pushed = compared(table, expression, range(0)) is not None
    for span in spans:
        if span.certain:
            yield span, None
            continue
        for block in _blocks(table, names, span, kept=not pushed):
            yield block, tests.mask(range(block.start, block.stop))


def _blocks(
    table: ColumnSource,
    names: tuple[str, ...],
    span: Span,
    nbytes: int = _BLOCK_BYTES,
    *,
    kept: bool = True,
) -> Iterator[Span]:
    """Yield a run of rows in blocks; those are shorter where variable-length items are `kept`."""
    schemas = [table.schema(name) for name in names]
    row = sum(each.nbytes // max(1, each.shape[0]) for each in schemas)
    step = max(1, nbytes // max(1, row))
    lengths = [
        each.pack_items if isinstance(each, RaggedSchema) else each.chunks[0] for each in schemas
    ]
    if kept and any(isinstance(each, RaggedSchema) for each in schemas):
        # The bytes of the items are not known.
        step = min(step, _BLOCK_ITEMS)
    longest = max(lengths, default=1)
    # Whole chunks, so that none is decoded twice.
    step = max(longest, step // longest * longest)
    start = span.start
    while start < span.stop:
        stop = min((start // step + 1) * step, span.stop)
        yield Span(start, stop, certain=False)
        start = stop


def _zone_maps(table: ColumnSource, names: tuple[str, ...]) -> dict[str, ColumnZoneMaps]:
    found = {}
    for name in names:
        items = table.items(name)
        if items is not None:
            zones = items.zones() if table.rows else None
            if zones is not None:
                facts = zones.low, zones.high, zones.nulls, zones.known
                found[name] = ColumnZoneMaps(
                    items.packs.schema.pack_items, table.rows, *facts, prefixes=True
                )
            continue
        engine = table.engine(name)
        zones = engine.zones() if table.rows else None
        if zones is not None:
            rows = engine.chunks.schema.chunks[0]
            facts = zones.low, zones.high, zones.nulls, zones.known
            found[name] = ColumnZoneMaps(
                rows, table.rows, *facts, _missing(table.validity(name), rows, len(zones.known))
            )
    return found


def _missing(validity: Engine | None, rows: int, count: int) -> NDArray[np.bool_] | None:
    """Return which of `count` chunks may lack items; None for a column without nulls."""
    if validity is None:
        return None
    zones = validity.zones()
    if zones is None or validity.chunks.schema.chunks[0] != rows:
        return np.ones(count, np.bool_)
    return ~zones.known | ~zones.low.astype(np.bool_)


def _numbered_masks(
    table: ColumnSource, expression: Expression, spans: list[Span]
) -> Iterator[Rows]:
    """Yield the rows that match, run by run."""
    for span, mask in _masks(table, expression, spans):
        if mask is None or mask.all():
            yield range(span.start, span.stop)
        else:
            yield from _shortened(np.flatnonzero(mask) + span.start)


def _numbered(numbers: NDArray[np.int64], spans: list[Span]) -> Iterator[Rows]:
    """Yield rows run by run: all rows of a certain run, otherwise those in `numbers`."""
    ends = np.searchsorted(numbers, [span.stop for span in spans]).tolist()
    first = 0
    for span, end in zip(spans, ends, strict=True):
        if span.certain:
            yield range(span.start, span.stop)
        else:
            yield from _shortened(numbers[first:end])
        first = end


def _shortened(numbers: NDArray[np.int64]) -> Iterator[Rows]:
    """Yield the numbers, as a range if they are consecutive; nothing if there are none."""
    if len(numbers):
        first, last = int(numbers[0]), int(numbers[-1])
        yield range(first, last + 1) if last - first < len(numbers) else numbers


def _joined(parts: list[Rows]) -> Rows:
    if not parts:
        return range(0)
    if all(isinstance(part, range) for part in parts):
        ranges = [part for part in parts if isinstance(part, range)]
        if all(a.stop == b.start for a, b in pairwise(ranges)):
            return range(ranges[0].start, ranges[-1].stop)
    arrays = [np.arange(p.start, p.stop) if isinstance(p, range) else p for p in parts]
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

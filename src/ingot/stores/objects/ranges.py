"""Ranges of objects: which requests fetch many extents, and how the answers are cut.

Extents of one object that lie near each other are fetched by one request: a request costs more than
the bytes between them. This module sends nothing.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ingot.stores.store import Extent, check_key

__all__ = ["GAP", "ObjectRange", "cut", "spans_of"]

GAP: Final = 8 << 10
"""The most unwanted bytes between two extents that are fetched together."""

_END: Final = 1 << 62
"""No object is as long as this."""


class ObjectRange(NamedTuple):
    """Bytes of one object that are fetched by one request; without a stop, to its end."""

    key: str
    start: int
    stop: int | None

    def holds(self, extent: Extent) -> bool:
        """Return whether the bytes of an extent are among those of the span.

        >>> some = ObjectRange("a", 4, 9)
        >>> some.holds(Extent("a", 5, 4)), some.holds(Extent("a", 5))
        (True, False)
        """
        if extent.start < self.start:
            return False
        stop = _stop(extent)
        return self.stop is None or (stop is not None and stop <= self.stop)


def spans_of(extents: Iterable[Extent]) -> dict[str, list[ObjectRange]]:
    """Return the requests that fetch extents, by key.

    A span without bytes asks only whether the object exists, and how large it is.

    >>> extents = Extent("a", 0, 4), Extent("a", 100, 4), Extent("a", 1 << 20), Extent("b", 3, 0)
    >>> for spans in spans_of(extents).values():
    ...     print(*spans)
    ObjectRange(key='a', start=0, stop=104) ObjectRange(key='a', start=1048576, stop=None)
    ObjectRange(key='b', start=0, stop=0)
    """
    found: dict[str, list[Extent]] = {}
    for extent in extents:
        found.setdefault(check_key(extent.key), []).append(extent)
    return {key: _merged(key, wanted) for key, wanted in found.items()}


def _merged(key: str, extents: Sequence[Extent]) -> list[ObjectRange]:
    spans: list[ObjectRange] = []
    ends = [(each.start, _stop(each)) for each in extents if each.length != 0 and each.start < _END]
    for start, stop in sorted(ends, key=lambda each: each[0]):
        last = spans[-1] if spans else None
        if last is None or (last.stop is not None and start > last.stop + GAP):
            spans.append(ObjectRange(key, start, stop))
        elif last.stop is not None and (stop is None or stop > last.stop):
            spans[-1] = last._replace(stop=stop)
    return spans or [ObjectRange(key, 0, 0)]


def _stop(extent: Extent) -> int | None:
    if extent.length is None or extent.start + extent.length > _END:
        return None
    return extent.start + extent.length


def cut(extent: Extent, spans: Sequence[ObjectRange], data: Sequence[bytes]) -> bytes:
    """Return the bytes of an extent from those of the spans of its key.

    >>> cut(Extent("a", 5, 2), [ObjectRange("a", 4, 9)], [b"45678"])
    b'56'
    """
    if extent.length == 0 or extent.start >= _END:
        return b""
    for span, each in zip(spans, data, strict=True):
        if span.holds(extent):
            first = extent.start - span.start
            if first == 0 and (extent.length is None or extent.length >= len(each)):
                return each
            return each[first : None if extent.length is None else first + extent.length]
    raise AssertionError(f"no span holds {extent}")

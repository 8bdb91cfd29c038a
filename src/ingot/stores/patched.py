"""The bytes of a key with ranges over it: what patches make of a value, without a copy of it.

The write buffer of a transaction, the journal and the view through a journal keep a changed key as
this value. It reads nothing itself: a store fetches the bytes below the ranges. `Extensions` are
the bytes behind the ends of keys in stores that hold them in memory until they are committed.
"""

import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from ingot.errors import CorruptionError, NotFoundError
from ingot.stores.store import Buffer, Edit, Extent, Grown, Patch, Truncate, check_key

__all__ = ["Extensions", "PatchedValue", "read_over"]

_PIECE: Final = 1 << 20
_START: Final = itemgetter(0)


@dataclass(frozen=True, slots=True)
class PatchedValue:
    """The first `kept` bytes of the key `source`, with `ranges` over and behind them.

    A range is a start and its bytes. Ranges do not overlap, are sorted, and leave no hole. Without
    a source all bytes are in the ranges.

    >>> value = PatchedValue("a", 10).patched(8, b"xyz").patched(0, b"--")
    >>> value.size, value.ranges
    (11, ((0, b'--'), (8, b'xyz')))
    >>> value.below(Extent("a", 1, 4)), value.over(Extent("a", 1, 4), b"1234")
    (Extent(key='a', start=1, length=4), b'-234')
    """

    source: str | None = None
    kept: int = 0
    ranges: tuple[tuple[int, bytes], ...] = ()
    held: int = field(default=-1, repr=False, compare=False)
    """The number of bytes in the ranges, which are in memory; counted unless it is given."""

    def __post_init__(self) -> None:
        if self.held < 0:
            object.__setattr__(self, "held", sum(len(data) for _, data in self.ranges))

    @classmethod
    def of(cls, data: Buffer) -> "PatchedValue":
        """Return the value of some bytes, which are copied if they can change.

        >>> PatchedValue.of(b"abc").size
        3
        """
        return cls(ranges=((0, bytes(data)),) if memoryview(data).nbytes else ())

    @property
    def size(self) -> int:
        """The number of bytes of the value."""
        start, data = self.ranges[-1] if self.ranges else (0, b"")
        return max(self.kept, start + len(data))

    def patched(self, start: int, data: Buffer) -> "PatchedValue":
        """Return the value with bytes over it; `CorruptionError` for bytes that leave a hole.

        >>> PatchedValue.of(b"0123").patched(3, b"xy").ranges
        ((0, b'012'), (3, b'xy'))
        """
        if start > self.size:
            raise CorruptionError(f"holds {self.size} bytes, a patch starts at {start}")
        new = bytes(data)
        if not new:
            return self
        stop = start + len(new)
        ranges = (*self._cut(0, start), (start, new), *self._cut(stop, None))
        covered = sum(len(data) for _, data in self._cut(start, stop))
        return PatchedValue(self.source, self.kept, ranges, self.held + len(new) - covered)

    def changed(self, edits: Iterable[Patch | Truncate]) -> "PatchedValue":
        """Return the value after patches and truncations.

        >>> PatchedValue("a", 10).changed([Truncate("a", 4), Patch("a", 4, b"xyz")]).size
        7
        """
        value = self
        for edit in edits:
            if isinstance(edit, Patch):
                value = value.patched(edit.start, edit.data)
            else:
                value = value.truncated(edit.size)
        return value

    def truncated(self, size: int) -> "PatchedValue":
        """Return the first `size` bytes of the value.

        >>> PatchedValue("a", 10).patched(8, b"xyz").truncated(9)
        PatchedValue(source='a', kept=9, ranges=((8, b'x'),))
        """
        return PatchedValue(self.source, min(self.kept, size), tuple(self._cut(0, size)))

    def below(self, extent: Extent) -> Extent | None:
        """Return the bytes of the source that an extent of the value needs; None if it needs none.

        >>> PatchedValue("a", 10).patched(4, b"xyz").below(Extent("b", 5, 2)) is None
        True
        """
        stop = min(self._stop(extent), self.kept)
        if self.source is None or extent.start >= stop:
            return None
        place = self._place(extent.start)
        if place >= 0:
            start, data = self.ranges[place]
            if stop <= start + len(data):
                return None
        return Extent(self.source, extent.start, stop - extent.start)

    def over(self, extent: Extent, data: bytes | None) -> bytes:
        """Return the bytes of an extent, given what `below` asked for.

        >>> PatchedValue.of(b"0123").over(Extent("a", 1, 2), None)
        b'12'
        """
        stop = self._stop(extent)
        if stop <= extent.start:
            return b""
        found = self._cut(extent.start, stop)
        if not found:
            return data or b""
        if len(found) == 1 and len(found[0][1]) == stop - extent.start:
            return found[0][1]
        # The bytes below may be fewer: a key that ends early ends the value there.
        value = bytearray(data or b"")
        for start, part in found:
            at = start - extent.start
            if at > len(value):
                break
            value[at : at + len(part)] = part
        return bytes(value)

    def pieces(self, read: Callable[[Extent], bytes], key: str) -> Iterator[bytes]:
        """Yield the whole value piece by piece; `read` reads an extent of the source.

        >>> b"".join(PatchedValue("a", 4).patched(1, b"x").pieces(lambda extent: b"0123", "a"))
        b'0x23'
        """
        for start in range(0, self.size, _PIECE):
            extent = Extent(key, start, _PIECE)
            below = self.below(extent)
            yield self.over(extent, None if below is None else read(below))

    def patches(self, key: str) -> tuple[Patch, ...]:
        """Return the ranges as patches of a key.

        >>> PatchedValue("a", 4).patched(1, b"x").patches("b")
        (Patch('b', 1, 1 byte),)
        """
        return tuple(Patch(key, start, data) for start, data in self.ranges)

    def _stop(self, extent: Extent) -> int:
        size = self.size
        return size if extent.length is None else min(extent.start + extent.length, size)

    def _cut(self, first: int, stop: int | None) -> list[tuple[int, bytes]]:
        """Return what the ranges hold from `first` to `stop`."""
        ranges = self.ranges
        low = max(self._place(first), 0)
        high = len(ranges) if stop is None else bisect_left(ranges, stop, key=_START)
        inside = list(ranges[low:high])
        # Only the first and the last one can be cut.
        if inside and stop is not None:
            start, data = inside[-1]
            if start + len(data) > stop:
                inside[-1] = start, data[: stop - start]
        if inside and inside[0][0] < first:
            start, data = inside[0]
            inside[:1] = [(first, data[first - start :])] if start + len(data) > first else []
        return inside

    def _place(self, at: int) -> int:
        """Return which range begins at a byte, or is the last one before it; -1 for none."""
        return bisect_right(self.ranges, at, key=_START) - 1


def read_over(
    read: Callable[[Sequence[Extent]], list[bytes | None]],
    extents: Sequence[Extent],
    values: Mapping[str, PatchedValue | None],
) -> list[bytes | None]:
    """Return the bytes of extents with changed values over a store, by one call of its `read`.

    None stands for a key that is absent; a key without a value is not changed.

    >>> from ingot.stores import MemoryStore
    >>> below = MemoryStore({"a": b"0123", "b": b"gone"})
    >>> values = {"a": PatchedValue("a", 4).patched(2, b"x"), "b": None}
    >>> read_over(below.read, [Extent("a"), Extent("b"), Extent("c")], values)
    [b'01x3', None, None]
    """
    found: list[bytes | None] = [None] * len(extents)
    asked: list[tuple[int, PatchedValue | None, Extent]] = []
    for index, extent in enumerate(extents):
        if check_key(extent.key) not in values:
            asked.append((index, None, extent))
        elif (value := values[extent.key]) is not None:
            below = value.below(extent)
            if below is None:
                found[index] = value.over(extent, None)
            else:
                asked.append((index, value, below))
    data = read([extent for _, _, extent in asked])
    for (index, changed, _), each in zip(asked, data, strict=True):
        if changed is not None and each is not None:
            each = changed.over(extents[index], each)
        found[index] = each
    return found


class Extensions:
    """Bytes that were written behind the ends of keys and are not committed, in memory.

    >>> extensions = Extensions()
    >>> grown = extensions.add("a", [b"abc", b"de"], 10, None, "memory")
    >>> grown, extensions.take(grown, "memory")
    (Grown(key='a', start=10, size=5), b'abcde')
    """

    __slots__ = ("_values",)

    def __init__(self) -> None:
        # By key: where the committed value ends, and what follows.
        self._values: dict[str, tuple[int, list[bytes]]] = {}

    def add(
        self, key: str, pieces: Iterable[Buffer], size: int | None, end: int | None, where: str
    ) -> Grown:
        """Keep bytes behind a key that has `size` bytes, all of them committed."""
        if size is None:
            raise NotFoundError(f"{where}: no key {key!r} to extend")
        if end is not None and end != size:
            what = "leaves a hole behind" if end > size else "touches"
            raise CorruptionError(
                f"{where}: an extend of {key!r} from {end} on {what} its {size} bytes"
            )
        first, held = self._values.setdefault(key, (size, []))
        data = b"".join(pieces)
        start = first + sum(map(len, held))
        held.append(data)
        return Grown(key, start, len(data), zlib.crc32(data))

    def take(self, grown: Grown, where: str) -> bytes:
        """Return the bytes of an edit; `CorruptionError` for bytes that no extend has written."""
        first, held = self._values.get(grown.key, (0, []))
        at = grown.start - first
        data = b"".join(held)[at : at + grown.size] if at >= 0 else b""
        if len(data) != grown.size or zlib.crc32(data) != grown.checksum:
            raise CorruptionError(f"{where}: no extend of this turn has written {grown}")
        return data

    def discard(self, edits: Iterable[Edit]) -> None:
        """Forget the bytes of keys that edits, which will not be applied, would have extended."""
        for edit in edits:
            if isinstance(edit, Grown):
                self._values.pop(edit.key, None)

    def clear(self) -> None:
        """Forget all bytes."""
        self._values.clear()

"""Zone maps: the extremes of a chunk, known without decoding it.

A zone map has the smallest and the largest item of a chunk, the number of nulls (NaN or NaT), and
whether items ascend. In bytes it is both extremes, little-endian and each padded to a multiple of
8 bytes, then the number of nulls as u64, a byte that is 1 for ascending items, and 7 zeros. The
extremes of variable-length items are their first 16 bytes, padded with zeros.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Buffer
from ingot.dtypes import DType
from ingot.errors import CorruptionError
from ingot.ragged_array import RaggedArray

__all__ = ["PREFIX", "ZoneMap", "ZoneMaps", "has_zone_map", "prefix_zone_map", "zone_map_of"]

PREFIX: Final = np.dtype("S16")
"""The type of the extremes of variable-length items: their first bytes, padded with zeros."""

_COUNTS: Final = struct.Struct("<QB7x")
_WIDEST: Final = 256


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """The smallest and the largest item of a chunk, and the number of NaN or NaT items.

    `low` and `high` ignore nulls; in a chunk that has only nulls both are zero. The items of an
    `ascending` chunk never decrease.

    >>> zone_map_of(np.array([3.0, np.nan, 1.0]))
    ZoneMap(low=np.float64(1.0), high=np.float64(3.0), nulls=1, ascending=False)
    """

    low: Any
    high: Any
    nulls: int
    ascending: bool

    def pack(self, dtype: DType) -> bytes:
        """Return the bytes that `parse` reads.

        >>> len(zone_map_of(np.arange(5, dtype="<i2")).pack(np.dtype("<i2")))
        32
        """
        ends = np.array([self.low, self.high], dtype).astype(dtype.newbyteorder("<"))
        width = _width(dtype)
        packed = b"".join(end.tobytes().ljust(width, b"\0") for end in ends)
        return packed + _COUNTS.pack(self.nulls, self.ascending)

    @classmethod
    def parse(cls, data: Buffer, dtype: DType) -> "ZoneMap | None":
        """Return the zone map of a trailer; None if the trailer has none.

        >>> packed = zone_map_of(np.arange(5)).pack(np.dtype("<i8"))
        >>> ZoneMap.parse(packed, np.dtype("<i8")).high
        np.int64(4)
        """
        if not data or not has_zone_map(dtype):
            return None
        width = _width(dtype)
        if len(data) != 2 * width + _COUNTS.size:
            raise CorruptionError(f"zone map: {len(data)} bytes for items of type {dtype}")
        little, size = dtype.newbyteorder("<"), dtype.itemsize
        view = memoryview(data)
        low, high = (
            np.frombuffer(view[at : at + size], little).astype(dtype)[0] for at in (0, width)
        )
        nulls, ascending = _COUNTS.unpack_from(view, 2 * width)
        return cls(low, high, nulls, ascending == 1)


@dataclass(frozen=True, slots=True)
class ZoneMaps:
    """The zone maps of some chunks as columns; `known` is false for a chunk without one.

    >>> packed = [zone_map_of(np.array([3, 1])).pack(np.dtype("<i8")), b""]
    >>> zones = ZoneMaps.parse(packed, np.dtype("<i8"))
    >>> zones.low, zones.high, zones.known
    (array([1, 0]), array([3, 0]), array([ True, False]))
    """

    low: NDArray[Any]
    high: NDArray[Any]
    nulls: NDArray[np.int64]
    ascending: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @classmethod
    def parse(cls, packed: Sequence[bytes], dtype: DType) -> "ZoneMaps":
        """Return the zone maps of chunks of `dtype`; b"" stands for a chunk without one."""
        size = 2 * _width(dtype) + _COUNTS.size
        for each in packed:
            if each and len(each) != size:
                raise CorruptionError(f"zone map: {len(each)} bytes for items of type {dtype}")
        record = np.dtype(
            {
                "names": ["low", "high", "nulls", "ascending"],
                "formats": [dtype.newbyteorder("<"), dtype.newbyteorder("<"), "<i8", "u1"],
                "offsets": [0, _width(dtype), size - 16, size - 8],
                "itemsize": size,
            }
        )
        empty = bytes(size)
        table = np.frombuffer(b"".join(each or empty for each in packed), record)
        return cls(
            table["low"].astype(dtype),
            table["high"].astype(dtype),
            table["nulls"].astype(np.int64),
            table["ascending"] == 1,
            np.array([bool(each) for each in packed], np.bool_),
        )


def has_zone_map(dtype: DType) -> bool:
    """Return whether items of a type have an order, and so a zone map.

    >>> has_zone_map(np.dtype("S20")), has_zone_map(np.dtype("c8"))
    (True, False)
    """
    if dtype.kind in "SU":
        return 0 < dtype.itemsize <= _WIDEST
    return dtype.kind in "biufmM" and dtype.itemsize <= 8


def zone_map_of(items: NDArray[Any]) -> ZoneMap | None:
    """Return the zone map of some items; None if their type has none, or there are no items.

    >>> zone_map_of(np.array([b"b", b"a"]))
    ZoneMap(low=np.bytes_(b'a'), high=np.bytes_(b'b'), nulls=0, ascending=False)
    """
    dtype = items.dtype
    if not has_zone_map(dtype) or not items.size:
        return None
    flat = items.reshape(-1)
    ascending = bool((flat[:-1] <= flat[1:]).all())
    if dtype.kind in "SU":
        listed = flat.tolist()
        kind: Any = dtype.type
        return ZoneMap(kind(min(listed)), kind(max(listed)), 0, ascending)
    nulls = np.isnan(flat) if dtype.kind == "f" else np.isnat(flat) if dtype.kind in "mM" else None
    count = 0 if nulls is None else int(np.count_nonzero(nulls))
    if count == flat.size:
        zero = np.zeros((), dtype)[()]
        return ZoneMap(zero, zero, count, ascending=False)
    valid = flat if nulls is None or not count else flat[~nulls]
    return ZoneMap(valid.min(), valid.max(), count, ascending and not count)


def prefix_zone_map(items: RaggedArray) -> bytes:
    """Return the zone map of text or bytes of any length, in bytes; there is an item at least.

    Padded prefixes have the order of the items, but for items that differ behind them.

    >>> ZoneMap.parse(prefix_zone_map(RaggedArray.of(["b", None, "a"])), PREFIX)
    ZoneMap(low=np.bytes_(b'a'), high=np.bytes_(b'b'), nulls=1, ascending=False)
    """
    lengths, null = items.lengths, items.is_null
    nulls = int(np.count_nonzero(null))
    if nulls == len(items):
        return bytes(2 * PREFIX.itemsize) + _COUNTS.pack(nulls, 0)
    prefixes = np.zeros((len(items), PREFIX.itemsize), np.uint8)
    for place in range(PREFIX.itemsize):
        reached = np.flatnonzero(lengths > place)
        prefixes[reached, place] = items.data[items.offsets[reached] + place]
    # Big-endian numbers have the order of bytes.
    first, second = prefixes.view(">u8").astype(np.uint64).T
    order = np.lexsort((second, first))
    order = order[~null[order]]
    low: bytes = prefixes[order[0]].tobytes()
    high: bytes = prefixes[order[-1]].tobytes()
    ascending = not nulls and _ascend(items, first, second)
    return low + high + _COUNTS.pack(nulls, ascending)


def _ascend(items: RaggedArray, first: NDArray[np.uint64], second: NDArray[np.uint64]) -> bool:
    """Return whether no item is smaller than the one before it, given their prefixes."""
    less = (first[1:] < first[:-1]) | ((first[1:] == first[:-1]) & (second[1:] < second[:-1]))
    if less.any():
        return False
    offsets, data = items.offsets, items.data
    for place in np.flatnonzero((first[1:] == first[:-1]) & (second[1:] == second[:-1])).tolist():
        before, start, stop = offsets[place : place + 3].tolist()
        if data[before:start].tobytes() > data[start:stop].tobytes():
            return False
    return True


def _width(dtype: DType) -> int:
    return -(-dtype.itemsize // 8) * 8

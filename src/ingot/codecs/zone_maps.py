"""Zone maps: what lies in a chunk, told without decoding it.

Knows the smallest and the largest item of a chunk, how many items are none, whether they ascend,
and how that is spelled in bytes: both ends little-endian, each padded to a multiple of 8 bytes,
then the number of NaN or NaT as u64, a byte that is 1 for ascending items, and 7 zeros. Refuses to
know where a zone map is stored.
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

__all__ = ["Zone", "Zones", "has_zone", "zone_of"]

_COUNTS: Final = struct.Struct("<QB7x")
_WIDEST: Final = 256


@dataclass(frozen=True, slots=True)
class Zone:
    """What lies in a chunk: its smallest and largest item, and how many are NaN or NaT.

    Those that are no numbers count for neither end; a chunk of nothing else has `low` and `high`
    of zero. `ascending` items never get smaller.

    >>> zone_of(np.array([3.0, np.nan, 1.0]))
    Zone(low=np.float64(1.0), high=np.float64(3.0), nulls=1, ascending=False)
    """

    low: Any
    high: Any
    nulls: int
    ascending: bool

    def pack(self, dtype: DType) -> bytes:
        """Return the bytes that `parse` reads.

        >>> len(zone_of(np.arange(5, dtype="<i2")).pack(np.dtype("<i2")))
        32
        """
        ends = np.array([self.low, self.high], dtype).astype(dtype.newbyteorder("<"))
        width = _width(dtype)
        packed = b"".join(end.tobytes().ljust(width, b"\0") for end in ends)
        return packed + _COUNTS.pack(self.nulls, self.ascending)

    @classmethod
    def parse(cls, data: Buffer, dtype: DType) -> "Zone | None":
        """Return the zone map that a trailer holds; None when it holds none.

        >>> packed = zone_of(np.arange(5)).pack(np.dtype("<i8"))
        >>> Zone.parse(packed, np.dtype("<i8")).high
        np.int64(4)
        """
        if not data or not has_zone(dtype):
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
class Zones:
    """The zone maps of some chunks, an item for each; of chunks that are not `known`, nothing is.

    >>> packed = [zone_of(np.array([3, 1])).pack(np.dtype("<i8")), b""]
    >>> zones = Zones.parse(packed, np.dtype("<i8"))
    >>> zones.low, zones.high, zones.known
    (array([1, 0]), array([3, 0]), array([ True, False]))
    """

    low: NDArray[Any]
    high: NDArray[Any]
    nulls: NDArray[np.int64]
    ascending: NDArray[np.bool_]
    known: NDArray[np.bool_]

    @classmethod
    def parse(cls, packed: Sequence[bytes], dtype: DType) -> "Zones":
        """Return the zone maps that chunks of items of `dtype` have; b"" is none."""
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


def has_zone(dtype: DType) -> bool:
    """Tell whether items have an order that a zone map can tell of.

    >>> has_zone(np.dtype("S20")), has_zone(np.dtype("c8"))
    (True, False)
    """
    if dtype.kind in "SU":
        return 0 < dtype.itemsize <= _WIDEST
    return dtype.kind in "biufmM" and dtype.itemsize <= 8


def zone_of(items: NDArray[Any]) -> Zone | None:
    """Return the zone map of some items; None when they have no order.

    >>> zone_of(np.array([b"b", b"a"]))
    Zone(low=np.bytes_(b'a'), high=np.bytes_(b'b'), nulls=0, ascending=False)
    """
    dtype = items.dtype
    if not has_zone(dtype) or not items.size:
        return None
    flat = items.reshape(-1)
    ascending = bool((flat[:-1] <= flat[1:]).all())
    if dtype.kind in "SU":
        listed = flat.tolist()
        kind: Any = dtype.type
        return Zone(kind(min(listed)), kind(max(listed)), 0, ascending)
    nulls = np.isnan(flat) if dtype.kind == "f" else np.isnat(flat) if dtype.kind in "mM" else None
    count = 0 if nulls is None else int(np.count_nonzero(nulls))
    if count == flat.size:
        zero = np.zeros((), dtype)[()]
        return Zone(zero, zero, count, ascending=False)
    valid = flat if nulls is None or not count else flat[~nulls]
    return Zone(valid.min(), valid.max(), count, ascending and not count)


def _width(dtype: DType) -> int:
    return -(-dtype.itemsize // 8) * 8

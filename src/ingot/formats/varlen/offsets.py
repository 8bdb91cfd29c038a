"""The table of a file of variable-length items: where packs lie, and which items they hold.

An entry is the place of a pack in the file, i64, and the number of its first item, i64. Where every
item has a chunk of its own, an entry is only the place of the chunk, and 0 marks a null. Entries of
-1 behind those in use are spare. Places need not ascend: a pack that grows moves to the end of the
file. A pack never reaches to the next higher place, and what follows it up to there is its room.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Buffer
from ingot.errors import CorruptionError

__all__ = ["NULL", "UNUSED", "PackTable", "spare_entries"]

UNUSED: Final = -1
"""An entry that says nothing: it is spare, or was not written."""

NULL: Final = 0
"""The place of an item that is null: no chunk can lie there."""


@dataclass(frozen=True, slots=True, eq=False)
class PackTable:
    """The entries of a table; `spare` more follow them.

    >>> table = PackTable.parse(PackTable(np.array([80, 200]), np.array([0, 7]), 3).pack(), 2)
    >>> table.starts, table.firsts, table.capacity
    (array([ 80, 200]), array([0, 7]), 5)
    """

    starts: NDArray[np.int64]
    """The place of each pack in the file; `NULL` for an item that is null."""
    firsts: NDArray[np.int64] | None
    """The number of the first item of each pack; None where an entry is one item."""
    spare: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def capacity(self) -> int:
        """The number of entries, spare ones included."""
        return len(self) + self.spare

    @classmethod
    def parse(cls, data: Buffer, count: int, *, packed: bool = True) -> "PackTable":
        """Return a table of `count` entries in use; all other bytes are spare entries."""
        columns = 2 if packed else 1
        entries = np.frombuffer(data, "<i8").astype(np.int64).reshape(-1, columns)
        if len(entries) < count:
            raise CorruptionError(f"varlen table: {count} entries, {len(entries)} are stored")
        starts = entries[:count, 0].copy()
        firsts = entries[:count, 1].copy() if packed else None
        return cls(starts, firsts, len(entries) - count)

    def pack(self) -> bytes:
        """Return the bytes that `parse` reads."""
        columns = [self.starts] if self.firsts is None else [self.starts, self.firsts]
        entries = np.full((self.capacity, len(columns)), UNUSED, "<i8")
        for column, values in enumerate(columns):
            entries[: len(self), column] = values
        return entries.tobytes()

    def bounds(self, length: int) -> NDArray[np.int64]:
        """Return the number of the first item of each pack, and the number of items at the end."""
        if self.firsts is None:
            return np.arange(length + 1)
        return np.append(self.firsts, length)

    def rooms(self, size: int) -> NDArray[np.int64]:
        """Return the bytes from each place to the next higher one, or to the end of the file.

        >>> PackTable(np.array([200, 80]), np.array([0, 7])).rooms(500)
        array([300, 120])
        """
        order = np.argsort(self.starts, kind="stable")
        ascending = self.starts[order]
        rooms = np.empty(len(self), np.int64)
        rooms[order] = np.append(ascending[1:], size) - ascending
        rooms[self.starts == NULL] = 0
        return rooms

    def check(self, length: int, begin: int, size: int, least: int, *, nulls: bool) -> None:
        """Raise `CorruptionError` for a table that no file of `length` items can have.

        Packs lie between `begin` and `size`, and have at least `least` bytes.

        >>> PackTable(np.array([80, 90]), np.array([0, 7])).check(9, 80, 500, 40, nulls=False)
        Traceback (most recent call last):
        ingot.errors.CorruptionError: varlen table: entry 1 is 90, inside the pack at 80
        """
        starts, firsts = self.starts, self.firsts
        used = starts
        if firsts is None:
            used = starts[starts != NULL]
            if len(used) < len(starts) and not nulls:
                number = int(np.flatnonzero(starts == NULL)[0])
                raise CorruptionError(
                    f"varlen table: entry {number} marks a null, the metadata allow none"
                )
        if (used == UNUSED).any():
            number = int(np.flatnonzero(starts == UNUSED)[0])
            error = CorruptionError(f"varlen table: entry {number} is -1, it was never written")
            error.add_note(
                "the writer of the file did not finish: ingot.repair reads every item that was "
                "written whole"
            )
            raise error
        outside = (used < begin) | (used > size - least)
        if outside.any():
            wrong = int(used[outside][0])
            number = int(np.flatnonzero(starts == wrong)[0])
            raise CorruptionError(
                f"varlen table: entry {number} is {wrong}, packs of at least {least} bytes lie "
                f"between {begin} and {size}"
            )
        ascending = np.sort(used)
        near = np.flatnonzero(ascending[1:] - ascending[:-1] < least)
        if len(near):
            place = int(ascending[near[0] + 1])
            number = int(np.flatnonzero(starts == place)[-1])
            raise CorruptionError(
                f"varlen table: entry {number} is {place}, inside the pack at {ascending[near[0]]}"
            )
        self._check_firsts(length)

    def _check_firsts(self, length: int) -> None:
        firsts = self.firsts
        if firsts is None:
            if length != len(self):
                raise CorruptionError(
                    f"varlen metadata: shape claims {length} items, the table has {len(self)}"
                )
            return
        if not len(firsts):
            if length:
                raise CorruptionError(
                    f"varlen metadata: shape claims {length} items, the table has no pack"
                )
            return
        if firsts[0] != 0:
            raise CorruptionError(f"varlen table: the first item of pack 0 is {firsts[0]}, not 0")
        wrong = np.flatnonzero(firsts[1:] <= firsts[:-1])
        if len(wrong):
            number = int(wrong[0]) + 1
            raise CorruptionError(
                f"varlen table: the first item of pack {number} is {firsts[number]}, "
                f"that of the pack before it {firsts[number - 1]}"
            )
        if firsts[-1] >= length:
            raise CorruptionError(
                f"varlen table: the first item of the last pack is {firsts[-1]}, "
                f"there are {length} items"
            )


def spare_entries(data: Buffer, entry_bytes: int) -> int:
    """Return how many entries of -1 some bytes begin with: a chunk never begins with FF.

    >>> spare_entries(bytes.fromhex("ff" * 24 + "02"), 8), spare_entries(b"\\xff" * 24, 16)
    (3, 1)
    """
    found = np.frombuffer(data, np.uint8) != 0xFF
    run = int(found.argmax()) if found.any() else len(found)
    return run // entry_bytes

"""What a file of variable-length items holds: its header, its metadata, and its table.

`VarlenFile.read` reads no more than that, and compares every claim with the size of the file. Packs
are neither read nor decoded.
"""

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingot.codecs.codec import Buffer
from ingot.errors import FormatError, IngotError, LimitError, NotFoundError
from ingot.formats import json
from ingot.formats.bloscpack.header import HEADER_BYTES, UNKNOWN
from ingot.formats.varlen.header import VarlenHeader
from ingot.formats.varlen.metadata import VarlenMetadata
from ingot.formats.varlen.offsets import PackTable, spare_entries
from ingot.stores.store import Extent, Store

__all__ = ["VarlenFile"]

# One read of this length has all that comes before the packs of most files.
_WINDOW: Final = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class VarlenFile:
    """One state of a file.

    >>> from ingot.stores import MemoryStore
    >>> made = VarlenFile.assemble(VarlenHeader(), VarlenMetadata(length=0), _NO_PACKS, 200)
    >>> read = VarlenFile.read(MemoryStore({"a.blv": made.front}), "a.blv")
    >>> read.length, read.front == made.front, len(made.front)
    (0, True, 216)
    """

    header: VarlenHeader
    metadata: VarlenMetadata
    table: PackTable
    length: int
    """The number of items."""
    size: int
    """The bytes of the whole file."""
    front: bytes = field(repr=False)
    """The bytes before the packs: header, metadata and table."""
    rooms: NDArray[np.int64] = field(init=False, repr=False)
    """The bytes that each pack may have where it lies."""
    bounds: NDArray[np.int64] = field(init=False, repr=False)
    """The number of the first item of each pack, and the number of items at the end."""

    def __post_init__(self) -> None:
        # Once for each state: every read asks for them.
        object.__setattr__(self, "rooms", self.table.rooms(self.size))
        object.__setattr__(self, "bounds", self.table.bounds(self.length))

    @property
    def begin(self) -> int:
        """The first byte behind the table."""
        return len(self.front)

    @classmethod
    def assemble(
        cls, header: VarlenHeader, metadata: VarlenMetadata, table: PackTable, size: int
    ) -> "VarlenFile":
        """Return the state of a file of `size` bytes whose front is yet to be written.

        The number of items is that of the metadata. The room of the metadata is that of the header,
        or a new one where the header has none.
        """
        document = metadata.pack(header.meta_bytes or None)
        behind = document + table.pack()
        header = replace(header, count=len(table), meta_bytes=len(document)).sealed(behind)
        assert metadata.length is not None
        front = header.pack() + behind
        size = max(size, len(front))
        return cls(header, metadata, table, metadata.length, size, front)

    def unfinished(self) -> bytes:
        """Return the front of the same file before its packs are written: it names none."""
        start = self.header.table_start
        header = replace(self.header, count=UNKNOWN, crc=None)
        return header.pack() + self.front[HEADER_BYTES:start] + b"\xff" * (self.begin - start)

    @classmethod
    def read(cls, store: Store, key: str) -> "VarlenFile":
        """Return what the file with that key holds; errors name the file."""
        head = store.read([Extent(key, 0, _WINDOW)])[0] if key else None
        if head is None:
            raise NotFoundError(f"{store.location}: no {key or 'file'}")
        # A file that ends inside the window needs no look at its size.
        size = len(head) if len(head) < _WINDOW else store.size(key)
        if size is None:
            raise NotFoundError(f"{store.location}: no {key}")
        try:
            return cls._parse(_Front(store, key, head, size), size)
        except IngotError as error:
            error.add_note(f"in {key!r} of {store.location}")
            raise

    @classmethod
    def _parse(cls, front: "_Front", size: int) -> "VarlenFile":
        header = VarlenHeader.parse(front.first(HEADER_BYTES))
        header.check(size)
        if header.meta_bytes > json.LARGEST:
            raise LimitError(
                f"varlen header: the metadata claim {header.meta_bytes} bytes, "
                f"the limit is {json.LARGEST}"
            )
        used = header.table_start + header.count * header.entry_bytes
        end = used + front.spare(used, header.entry_bytes) * header.entry_bytes
        whole = front.first(end)
        header.check_crc(whole)
        metadata = VarlenMetadata()
        if header.meta_bytes:
            metadata = VarlenMetadata.parse(whole[HEADER_BYTES : header.table_start])
        table = PackTable.parse(whole[header.table_start :], header.count, packed=header.packed)
        length = header.count if metadata.length is None else metadata.length
        if metadata.length is None and header.packed:
            raise FormatError("varlen metadata: shape is missing, so the last pack has no end")
        table.check(length, end, size, header.least_pack, nulls=metadata.nulls)
        return cls(header, metadata, table, length, size, bytes(whole))

    def is_current(self, store: Store, key: str) -> bool:
        """Return whether the file with that key still says the same, byte for byte."""
        if store.size(key) != self.size:
            return False
        return store.read([Extent(key, 0, len(self.front))]) == [self.front]


class _Front:
    """The first bytes of a file, of which more are read as they are needed."""

    __slots__ = ("_head", "_key", "_size", "_store")

    def __init__(self, store: Store, key: str, head: bytes, size: int) -> None:
        self._store = store
        self._key = key
        self._head = head
        self._size = size

    def first(self, length: int) -> memoryview:
        """Return the first bytes of the file; fewer where it ends earlier."""
        if length > len(self._head) < self._size:
            (more,) = self._store.read(
                [Extent(self._key, len(self._head), length - len(self._head))]
            )
            if more is None:
                raise NotFoundError(f"{self._store.location}: no {self._key}")
            self._head += more
        return memoryview(self._head)[:length]

    def spare(self, start: int, entry_bytes: int) -> int:
        """Return the number of spare entries from a place on."""
        length = _WINDOW
        while True:
            window: Buffer = self.first(start + length)[start:]
            found = spare_entries(window, entry_bytes)
            if found * entry_bytes < len(window) // entry_bytes * entry_bytes:
                return found
            if len(window) < length or start + length >= self._size:
                return found
            length *= 2


_NO_PACKS: Final = PackTable(np.zeros(0, np.int64), np.zeros(0, np.int64))

"""The log: commits that are decided by one sync, before the files that they change are synced.

A commit that goes into the log is appended to it as one record, the log is synced, and then the
files are written without a sync. Nothing is read from a log while the system runs: the files hold
what it says. After a power cut, or where a writer died while it wrote the files, the records are
applied again before anything else is written; readers look through them.

A log is a run of sectors of 512 bytes, all of them zeros when it is made. Each sector that was
written states its own checksum and the record that it belongs to. The system writes a sector whole
or not at all, so of the last record, whose writer died, any sectors may be zeros. Everything else
that is not a record is damage.

The layout, little-endian, is in `docs/formats/journal.md`.
"""

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ingot.errors import CorruptionError, LimitError, UnsupportedError
from ingot.stores.local import journal
from ingot.stores.local.files import OpenDirectory
from ingot.stores.local.journal import Entry, Journal, Written
from ingot.stores.local.scope import Scope
from ingot.stores.store import Extent

__all__ = [
    "LOG_SECTORS",
    "MOST_BYTES",
    "SECTOR",
    "Log",
    "OpenLog",
    "begin",
    "frame",
    "parse",
    "parse_records",
    "read_log",
    "sectors_of",
]

SECTOR: Final = 512
"""So many bytes of a log are written whole or not at all."""

LOG_SECTORS: Final = 512
"""How many sectors a log has.

It is made with all of them: a disk overwrites bytes in less time than it makes a file longer.
"""

MOST_BYTES: Final = 16 << 20
"""The most bytes that a log may have."""

_MAGIC: Final = b"\x89IngotG\n"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHHI12s")
_FRONT: Final = struct.Struct("<II")
_ROOM: Final = SECTOR - _FRONT.size
_EMPTY: Final = bytes(SECTOR)
# The head of a journal, of which the first sector of a record has the beginning.
_SIZE_AT, _LEAST = 32, 44


@dataclass(frozen=True, slots=True)
class Log:
    """The commits that are in a log."""

    name: str
    records: tuple[Journal, ...]
    tail: int
    """The number of the sector in which the next record begins."""
    sectors: int

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The entries of all records, in their order."""
        return tuple(entry for record in self.records for entry in record.entries)

    def opened(self, key: str) -> "OpenLog":
        """Return the log as one to which more is appended."""
        keys = {entry.key for entry in self.entries}
        return OpenLog(key, self.name, self.tail, self.sectors * SECTOR, keys)

    @property
    def whole(self) -> Journal:
        """The commits as one."""
        return Journal(f"{self.name}0000", _latest(self.entries))


@dataclass(slots=True)
class OpenLog:
    """A log as a writer knows it that has appended to it."""

    key: str
    name: str
    tail: int
    """The number of the sector in which the next record begins."""
    size: int
    keys: set[str]
    """The keys that its records change."""
    sequence: int | None = None
    """The version that the last record made."""


def begin(name: str, sectors: int = LOG_SECTORS) -> bytes:
    """Return the bytes of a log without records.

    >>> log = parse(begin("0123456789ab", 4), "'.log'")
    >>> log.name, log.records, log.tail, log.sectors
    ('0123456789ab', (), 1, 4)
    """
    head = _HEAD.pack(_MAGIC, _VERSION, 0, sectors, name.encode())
    return _sealed(head, 0).ljust(sectors * SECTOR, b"\0")


def frame(record: Journal, tail: int) -> bytes:
    """Return the sectors of a record that begins in sector number `tail`.

    >>> record = Journal("0123456789ab0000", (Written("a", 0, b"abc", 3),))
    >>> data = begin("0123456789ab", 4)[:512] + frame(record, 1) + bytes(1024)
    >>> parse(data, "'.log'").records == (record,)
    True
    """
    data = journal.pack(record)
    return b"".join(
        _sealed(data[start : start + _ROOM], tail) for start in range(0, len(data), _ROOM)
    )


def sectors_of(size: int) -> int:
    """Return how many sectors the bytes of a record take.

    >>> sectors_of(504), sectors_of(505)
    (1, 2)
    """
    return -(-size // _ROOM)


def parse(data: bytes, where: str) -> Log:
    """Return the log in `data`, after checking all of it.

    A record that was not written whole is the end, and no part of the log. Raises
    `UnsupportedError` for what is no log, or one of a later version, `CorruptionError` for a
    damaged one, and what `journal.parse` raises for a record.
    """
    name, sectors = _parse_head(data, where)
    if sectors * SECTOR != len(data):
        raise CorruptionError(
            f"{where}: claims {sectors} sectors of {SECTOR} bytes, {len(data)} bytes are stored"
        )
    records, tail = parse_records(data, 0, 1, name, where)
    return Log(name, records, tail, sectors)


def parse_records(
    data: bytes, first: int, at: int, name: str, where: str
) -> tuple[tuple[Journal, ...], int]:
    """Return the records from sector `at` on, and the sector behind them.

    `data` are the sectors from number `first` on, up to the end of the log.
    """
    end = first + len(data) // SECTOR
    records = []
    while at < end:
        found = _parse_record(data, first, at, end, name, where)
        if found is None:
            break
        record, at = found
        records.append(record)
    return tuple(records), at


def read_log(directory: OpenDirectory, scope: Scope, named: str, where: str) -> Log | None:
    """Return the log of a dataset; None without one.

    `named` is the log that the lock file names; it must be this one.
    """
    key = scope.log
    if key is None or directory.size(key) is None:
        return None
    found = directory.read(key, [Extent(key, 0, MOST_BYTES + 1)])
    if found is None:
        return None
    shown = f"{where}: {key!r}"
    if not check_head(found[0], named, shown):
        return None
    if len(found[0]) > MOST_BYTES:
        raise LimitError(f"{shown}: more than {MOST_BYTES} bytes")
    log = parse(found[0], shown)
    for entry in log.entries:
        scope.check(entry.key, where)
    return log


def check_head(data: bytes, named: str, where: str) -> bool:
    """Return whether a file begins as the log does that the lock file names.

    False for a file of another program, where none is named. Another log is a `CorruptionError`.
    """
    if not named and data[8:16] != _MAGIC:
        return False
    name, _ = _parse_head(data, where)
    if name != named:
        shown = repr(named) if named else "none"
        raise CorruptionError(
            f"{where}: the log {name!r} of another dataset or of another time; the lock file names "
            f"{shown}"
        )
    return True


def verify(log: Log, directory: OpenDirectory, where: str) -> None:
    """Raise `CorruptionError` for a log that does not fit the stored files."""
    for key, value in log.whole.values().items():
        if value is None or value.source != key:
            continue
        size = directory.size(key)
        if size is None or size < value.size:
            stored = "nothing is" if size is None else f"{size} are"
            raise CorruptionError(
                f"{where} changes {key!r} up to byte {value.size}, {stored} stored"
            )


def _latest(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Return entries without those that a later one repeats, with other data, in the same place."""
    kept: dict[tuple[str, int, int], Entry] = {}
    for entry in entries:
        place = entry.key, -1, -1
        if isinstance(entry, Written):
            place = entry.key, entry.start, len(entry.data)
        # The later one comes behind all that it may overlap.
        kept.pop(place, None)
        kept[place] = entry
    return tuple(kept.values())


def _sealed(payload: bytes, number: int) -> bytes:
    """Return a sector of the record that begins in sector `number`."""
    body = number.to_bytes(4, "little") + payload.ljust(_ROOM, b"\0")
    return zlib.crc32(body).to_bytes(4, "little") + body


def _opened(sector: bytes, where: str, index: int) -> tuple[int, bytes] | None:
    """Return the number and the payload of a sector; None for one that was not written."""
    if sector == _EMPTY:
        return None
    crc, number = _FRONT.unpack_from(sector)
    if crc != zlib.crc32(memoryview(sector)[4:]):
        raise CorruptionError(f"{where}: sector {index} does not agree with its checksum")
    return number, sector[_FRONT.size :]


def _parse_head(data: bytes, where: str) -> tuple[str, int]:
    """Return the name of a log, and how many sectors it claims."""
    if data[8:16] != _MAGIC:
        kind = CorruptionError if not data.strip(b"\0") else UnsupportedError
        raise kind(f"{where}: not a log of Ingot")
    if len(data) < SECTOR:
        raise CorruptionError(f"{where}: a log of {len(data)} bytes has no room for its head")
    opened = _opened(data[:SECTOR], where, 0)
    assert opened is not None
    _, version, flags, sectors, name = _HEAD.unpack_from(opened[1])
    if version != _VERSION or flags:
        raise UnsupportedError(f"{where}: a log of version {version}, flags {flags}")
    shown = name.decode("latin-1")
    if not journal.is_hexadecimal(shown) or opened[0]:
        raise CorruptionError(f"{where}: a head with the name {shown!r} and number {opened[0]}")
    return shown, sectors


def _parse_record(
    data: bytes, first: int, at: int, end: int, name: str, where: str
) -> tuple[Journal, int] | None:
    """Return the record that begins in sector `at`, and the sector behind it; None at the end."""

    def sector(index: int) -> tuple[int, bytes] | None:
        start = (index - first) * SECTOR
        return _opened(data[start : start + SECTOR], where, index)

    head = sector(at)
    if head is None:
        _check_end(data, first, at, at + 1, end, where)
        return None
    number, payload = head
    if number != at:
        raise CorruptionError(f"{where}: sector {at} belongs to a record in sector {number}")
    size = int.from_bytes(payload[_SIZE_AT : _SIZE_AT + 8], "little")
    stop = at + sectors_of(size)
    if size < _LEAST or stop > end:
        raise CorruptionError(
            f"{where}: the record in sector {at} claims {size} bytes, the log has {end} sectors"
        )
    pieces = [payload]
    whole = True
    for index in range(at + 1, stop):
        found = sector(index)
        if found is None:
            whole = False
        elif found[0] != at:
            raise CorruptionError(f"{where}: sector {index} belongs to a record in {found[0]}")
        else:
            pieces.append(found[1])
    if not whole:
        _check_end(data, first, at, stop, end, where)
        return None
    body = b"".join(pieces)
    if body[size:].strip(b"\0"):
        raise CorruptionError(f"{where}: bytes behind the record in sector {at}")
    shown = f"{where}: the record in sector {at}"
    record = journal.parse(body[:size], shown)
    if record.transaction[:12] != name:
        raise CorruptionError(f"{shown} is one of the log {record.transaction[:12]!r}")
    if not all(isinstance(entry, Written) for entry in record.entries):
        raise CorruptionError(f"{shown} has entries of another kind than a log")
    return record, stop


def _check_end(data: bytes, first: int, at: int, stop: int, end: int, where: str) -> None:
    """Check that only the record in sector `at`, which is not whole, stands in a log from there on.

    Its sectors end before `stop`, unless its first one is missing, which says how many it has.
    """
    rest = memoryview(data)[(stop - first) * SECTOR :]
    if not bytes(rest).strip(b"\0"):
        return
    for index in range(stop, end):
        start = (index - first) * SECTOR
        found = _opened(data[start : start + SECTOR], where, index)
        if found is not None and (found[0] != at or stop > at + 1):
            raise CorruptionError(
                f"{where}: the record in sector {at} is not whole, and sector {index} follows it"
            )

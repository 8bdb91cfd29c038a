"""The journal: the record of a decided commit that changes several keys, to be replayed.

The journal is written whole and synced before it gets its name, so a journal under its name is
complete: one whose checksum disagrees was damaged, and nothing of it is used.

The layout, little-endian, is in `docs/formats/journal.md`.
"""

import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final, TypeAlias

from ingot import native
from ingot.errors import (
    ArgumentError,
    CorruptionError,
    FormatError,
    LimitError,
    UnsafeError,
    UnsupportedError,
)
from ingot.stores.local.files import OpenDirectory
from ingot.stores.local.scope import Scope
from ingot.stores.patched import PatchedValue
from ingot.stores.store import Buffer, Extent, check_key, is_staged

__all__ = [
    "LARGEST",
    "Carried",
    "Entry",
    "Journal",
    "Placed",
    "Removed",
    "Truncated",
    "Written",
    "checksum",
    "is_hexadecimal",
    "joined_checksum",
    "pack",
    "parse",
    "read_journal",
    "summed",
    "verify",
]

LARGEST: Final = 1 << 31
"""The most bytes a journal may have: the bytes of patches are in it."""

_MAGIC: Final = b"\x89IngotJ\n"
_VERSION: Final = 1
# The version of a journal that truncates a key: what does not know it must not apply it.
_TRUNCATING: Final = 2
# The version of a journal that carries whole values.
_CARRYING: Final = 3
_HEAD: Final = struct.Struct("<8sHHI16sQ")
_ENTRY: Final = struct.Struct("<BBHHHIIQQQ")
_PLACED, _WRITTEN, _REMOVED, _TRUNCATED, _CARRIED = 1, 2, 3, 4, 5
_TRANSACTION: Final = re.compile("[0-9a-f]{16}")
_DIGITS: Final = re.compile("[0-9a-f]+")
# To join so few bytes takes no longer than a checksum for each of their pieces.
_SHORT: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Placed:
    """`key` gets the value that is staged as `staged`: `size` bytes of this checksum."""

    key: str
    staged: str
    size: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Written:
    """`data` is written into the value of `key` from `start` on; it held `before` bytes."""

    key: str
    start: int
    data: bytes
    before: int


@dataclass(frozen=True, slots=True)
class Removed:
    """`key` is removed."""

    key: str


@dataclass(frozen=True, slots=True)
class Truncated:
    """The value of `key`, which held `before` bytes, ends behind its first `size` bytes."""

    key: str
    size: int
    before: int


@dataclass(frozen=True, slots=True)
class Carried:
    """`key` gets the value `data`.

    It is stored as `staged` as well, unless that was lost. Nothing but the journal is read.
    """

    key: str
    staged: str
    data: bytes


Entry: TypeAlias = Placed | Written | Removed | Truncated | Carried


@dataclass(frozen=True, slots=True)
class Journal:
    """A commit that is decided, and may be partly applied."""

    transaction: str
    entries: tuple[Entry, ...]

    def values(self) -> dict[str, PatchedValue | None]:
        """Return what each key holds after the commit; None for a key that is removed.

        >>> entries = Placed("a", ".g-1-a", 3, 0), Written("b", 3, b"xy", 4), Removed("c")
        >>> list(Journal("0" * 16, entries).values().values())[1:]
        [PatchedValue(source='b', kept=4, ranges=((3, b'xy'),)), None]
        """
        found: dict[str, PatchedValue | None] = {}
        for entry in self.entries:
            if isinstance(entry, Removed):
                found[entry.key] = None
            elif isinstance(entry, Placed):
                found[entry.key] = PatchedValue(entry.staged, entry.size)
            elif isinstance(entry, Carried):
                found[entry.key] = PatchedValue.of(entry.data)
            else:
                value = found.get(entry.key) or PatchedValue(entry.key, entry.before)
                if isinstance(entry, Written):
                    found[entry.key] = value.patched(entry.start, entry.data)
                else:
                    found[entry.key] = value.truncated(entry.size)
        return found


def checksum(data: Buffer, before: int = 0) -> int:
    """Return the CRC-32 of bytes, continued from that of the bytes `before` them.

    >>> hex(checksum(b"123456789")), hex(checksum(b"6789", checksum(b"12345")))
    ('0xcbf43926', '0xcbf43926')
    """
    return (native.checksum("crc32") or zlib.crc32)(data, before)


def joined_checksum(before: int | None, behind: int | None, length: int) -> int | None:
    """Return the CRC-32 of two parts, the second of so many bytes; None where it is not known.

    >>> joined_checksum(None, 5, 7) is None
    True
    """
    if before is None or behind is None:
        return None
    return native.join_crc32(before, behind, length)


def is_hexadecimal(text: str) -> bool:
    """Return whether text has only the digits that names of transactions have.

    >>> is_hexadecimal("2f81"), is_hexadecimal("2F81"), is_hexadecimal("")
    (True, False, False)
    """
    return _DIGITS.fullmatch(text) is not None


def pack(journal: Journal) -> bytes:
    """Return the bytes of a journal.

    >>> journal = Journal("00112233aabbccdd", (Removed("data/7"),))
    >>> parse(pack(journal), "'.commit'") == journal
    True
    """
    if not _TRANSACTION.fullmatch(journal.transaction):
        raise ArgumentError(f"transaction {journal.transaction!r}: not 16 hexadecimal digits")
    # The bytes of patches may be many, so they are copied once, when all pieces are joined.
    pieces, size, version = [b""], _HEAD.size + 4, _VERSION
    for entry in journal.entries:
        pieces += _pack_entry(entry)
        version = max(version, _version_of(entry))
    size += sum(map(len, pieces))
    if size > LARGEST:
        raise LimitError(f"a commit that patches {size} bytes in place, the limit is {LARGEST}")
    name = journal.transaction.encode()
    pieces[0] = _HEAD.pack(_MAGIC, version, 0, len(journal.entries), name, size)
    if size < _SHORT:
        pieces = [b"".join(pieces)]
    found = 0
    for piece in pieces:
        found = checksum(piece, found)
    return b"".join((*pieces, found.to_bytes(4, "little")))


def parse(data: bytes, where: str) -> Journal:
    """Return the journal in `data`, after checking all of it.

    Raises `UnsupportedError` for bytes that are no journal, or one of a later version,
    `CorruptionError` for a damaged journal, `UnsafeError` for a key that no commit may change.
    """
    if not data.startswith(_MAGIC):
        # A power cut may leave zeros of what was never synced; another program leaves its own.
        kind = CorruptionError if not data.strip(b"\0") else UnsupportedError
        raise kind(f"{where}: not a journal of Ingot")
    if len(data) < _HEAD.size + 4:
        raise CorruptionError(f"{where}: a journal of {len(data)} bytes has no room for its head")
    _, version, flags, count, name, size = _HEAD.unpack_from(data)
    if version not in (_VERSION, _TRUNCATING, _CARRYING) or flags:
        raise UnsupportedError(f"{where}: a journal of version {version}, flags {flags}")
    if size != len(data):
        raise CorruptionError(f"{where}: claims {size} bytes, {len(data)} are stored")
    stored = int.from_bytes(data[-4:], "little")
    found = checksum(memoryview(data)[:-4])
    if stored != found:
        raise CorruptionError(f"{where}: checksum {found:08x}, {stored:08x} is stored")
    transaction = name.decode("latin-1")
    if not _TRANSACTION.fullmatch(transaction):
        raise CorruptionError(f"{where}: transaction {transaction!r} is not hexadecimal")
    entries = _parse_entries(memoryview(data)[_HEAD.size : -4], count, where)
    journal = Journal(transaction, entries)
    needed = max(map(_version_of, entries), default=_VERSION)
    if needed > version:
        raise CorruptionError(f"{where}: version {version} has entries of version {needed}")
    try:
        journal.values()
    except CorruptionError as error:
        raise CorruptionError(f"{where}: a key {error}") from None
    return journal


def _version_of(entry: Entry) -> int:
    """Return the first version whose readers know an entry."""
    if isinstance(entry, Carried):
        return _CARRYING
    return _TRUNCATING if isinstance(entry, Truncated) else _VERSION


def _pack_entry(entry: Entry) -> list[bytes]:
    """Return the pieces of an entry: its fields and keys, and its data."""
    key, staged, data = entry.key.encode(), b"", b""
    if isinstance(entry, Placed):
        staged = entry.staged.encode()
        numbers = entry.checksum, 0, 0, entry.size, 0
        kind = _PLACED
    elif isinstance(entry, Written):
        data = entry.data
        numbers = checksum(data), 0, entry.start, len(data), entry.before
        kind = _WRITTEN
    elif isinstance(entry, Carried):
        staged, data = entry.staged.encode(), entry.data
        numbers, kind = (checksum(data), 0, 0, len(data), 0), _CARRIED
    elif isinstance(entry, Truncated):
        numbers, kind = (0, 0, 0, entry.size, entry.before), _TRUNCATED
    else:
        numbers, kind = (0, 0, 0, 0, 0), _REMOVED
    if max(len(key), len(staged)) > 0xFFFF:
        raise FormatError(f"key {entry.key[:60]!r}…: longer than 65535 bytes")
    first = _ENTRY.pack(kind, 0, len(key), len(staged), 0, *numbers) + key + staged
    return [first, data]


def _parse_entries(data: memoryview, count: int, where: str) -> tuple[Entry, ...]:
    if count * _ENTRY.size > len(data):
        raise CorruptionError(f"{where}: {count} entries do not fit {len(data)} bytes")
    entries: list[Entry] = []
    keys: dict[str, type] = {}
    at = 0
    for number in range(count):
        entry, at = _parse_entry(data, at, f"{where}: entry {number}")
        several = isinstance(entry, Written | Truncated) and keys.get(entry.key) is Written
        if entry.key in keys and not several:
            raise CorruptionError(f"{where}: entry {number}: a second one about {entry.key!r}")
        keys[entry.key] = type(entry)
        entries.append(entry)
    if at != len(data):
        raise CorruptionError(f"{where}: {len(data) - at} bytes behind the last entry")
    return tuple(entries)


def _parse_entry(data: memoryview, at: int, where: str) -> tuple[Entry, int]:
    if len(data) - at < _ENTRY.size:
        raise CorruptionError(f"{where}: cut off")
    fields = _ENTRY.unpack_from(data, at)
    kind, _, key_bytes, staged_bytes, _, crc, _, start, size, before = fields
    at += _ENTRY.size
    data_bytes = size if kind in (_WRITTEN, _CARRIED) else 0
    if key_bytes + staged_bytes + data_bytes > len(data) - at:
        raise CorruptionError(f"{where}: cut off")
    key = _parse_key(data[at : at + key_bytes], where)
    at += key_bytes
    staged = data[at : at + staged_bytes]
    at += staged_bytes
    if kind == _PLACED:
        return Placed(key, _parse_staged(staged, key, where), size, crc), at
    if kind == _WRITTEN:
        return Written(key, start, bytes(data[at : at + size]), before), at + size
    if kind == _CARRIED:
        value = bytes(data[at : at + size])
        if (start, before, crc) != (0, 0, found := checksum(value)):
            raise CorruptionError(
                f"{where}: {key!r} gets a value at {start}, behind {before}, with checksum "
                f"{crc:08x}; {found:08x} is that of its bytes"
            )
        return Carried(key, _parse_staged(staged, key, where, own=True), value), at + size
    if kind == _REMOVED:
        return Removed(key), at
    if kind == _TRUNCATED and size <= before:
        return Truncated(key, size, before), at
    raise CorruptionError(f"{where}: of kind {kind}")


def _parse_key(data: memoryview, where: str) -> str:
    try:
        key = check_key(bytes(data).decode())
    except UnicodeDecodeError:
        raise UnsafeError(f"{where}: its key is not Unicode text") from None
    except UnsafeError as error:
        raise UnsafeError(f"{where}: {error}") from None
    return key


def _parse_staged(data: memoryview, key: str, where: str, *, own: bool = False) -> str:
    """Return a staged key beside `key`; if `own`, one under which `key` itself is staged."""
    staged = _parse_key(data, where)
    folder, _, name = staged.rpartition("/")
    parent, _, target = key.rpartition("/")
    if folder != parent or not is_staged(name, target if own else None):
        raise UnsafeError(f"{where}: {staged!r} is not a staged name beside {key!r}")
    return staged


_PIECE: Final = 1 << 24


def read_journal(directory: OpenDirectory, scope: Scope, where: str) -> Journal | None:
    """Return the journal of a decided commit that may not be applied yet; None without one."""
    name = scope.journal
    if directory.size(name) is None:
        return None
    found = directory.read(name, [Extent(name, 0, LARGEST)])
    if found is None:
        return None
    journal = parse(found[0], f"{where}: {name!r}")
    for entry in journal.entries:
        scope.check(entry.key, where)
    return journal


def verify(journal: Journal, directory: OpenDirectory, where: str) -> None:
    """Raise `CorruptionError` for a journal that does not fit the stored files."""
    for entry in journal.entries:
        if isinstance(entry, Placed):
            fact = size, crc = summed(directory, entry.staged, entry.key)
            if fact != (entry.size, entry.checksum):
                raise CorruptionError(
                    f"{where} gives {entry.key!r} {entry.size} bytes with checksum "
                    f"{entry.checksum:08x}, {size} with {crc:08x} are stored"
                )
    for key, value in journal.values().items():
        if value is not None and value.source == key:
            _verify_size(key, value, _before(journal, key), directory, where)


def summed(directory: OpenDirectory, *keys: str) -> tuple[int, int]:
    """Return size and checksum of the first key that exists, read piece by piece."""
    for key in keys:
        size = directory.size(key)
        if size is None:
            continue
        crc = count = 0
        while count < size:
            found = directory.read(key, [Extent(key, count, _PIECE)])
            if not found or not found[0]:
                break
            crc = checksum(found[0], crc)
            count += len(found[0])
        return count, crc
    raise CorruptionError(f"neither of {', '.join(map(repr, keys))} exists")


def _before(journal: Journal, key: str) -> int:
    entries = (entry for entry in journal.entries if entry.key == key)
    return next(entry.before for entry in entries if isinstance(entry, Written | Truncated))


def _verify_size(
    key: str, value: PatchedValue, before: int, directory: OpenDirectory, where: str
) -> None:
    size = directory.size(key)
    if size is None or not min(before, value.size) <= size <= max(before, value.size):
        stored = "nothing is" if size is None else f"{size} are"
        raise CorruptionError(
            f"{where} patches {key!r} from {before} to {value.size} bytes, {stored} stored"
        )

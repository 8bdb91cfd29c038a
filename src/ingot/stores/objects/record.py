"""The record of an object store: who writes, which version is committed, and the journal.

One small object (`.commit`) holds all of it, and every change of it is a conditional PUT that names
the tag of the record that it replaces. So one writer at a time holds it, and the switch from one
version to the next is one PUT. The layout, little-endian, is in `docs/formats/journal.md`.

A writer gives notice: `NOTICE` seconds pass between the record that names it and its first change
of an object that the committed state reaches. So a batch of requests that takes less time, and
finds the record idle, has read one committed state, in whatever order the server took them.
"""

import enum
import re
import struct
import zlib
from dataclasses import dataclass
from typing import Final, NamedTuple

from ingot.errors import CorruptionError, UnsupportedError
from ingot.stores.local import journal as journals
from ingot.stores.local.journal import Journal
from ingot.stores.objects.client import Tag

__all__ = ["NOTICE", "Record", "State", "StoredRecord", "pack", "parse"]

NOTICE: Final = 0.1
"""For how many seconds the record names a writer before it changes what readers may be reading."""

_MAGIC: Final = b"\x89IngotO\n"
_VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sHHQ16sQH")
_TRANSACTION: Final = re.compile("[0-9a-f]{16}")
_LONGEST_WRITER: Final = 1000


class State(enum.IntEnum):
    """What the record says about writers."""

    IDLE = 1
    """No writer is at work."""
    HELD = 2
    """A writer prepares a commit; nothing of it is committed."""
    DECIDED = 3
    """A commit is decided, and may be applied in part."""


@dataclass(frozen=True, slots=True)
class Record:
    """The record: the number of the committed version, and the writer that holds it.

    `beat` grows while a writer is at work, so that others see that it lives.
    """

    state: State
    sequence: int
    transaction: str
    beat: int = 0
    writer: str = ""
    journal: Journal | None = None


class StoredRecord(NamedTuple):
    """The record as it is stored, with its tag; both are None where there is none."""

    record: Record | None
    tag: Tag | None

    @property
    def is_idle(self) -> bool:
        """Whether no writer is at work."""
        return self.record is None or self.record.state is State.IDLE


def pack(record: Record) -> bytes:
    """Return the bytes of a record.

    >>> record = Record(State.HELD, 7, "00112233aabbccdd", 1, "process 4711")
    >>> parse(pack(record), "'.commit'") == record
    True
    """
    writer = record.writer.encode()[:_LONGEST_WRITER]
    transaction = record.transaction.encode()
    head = _HEAD.pack(
        *(_MAGIC, _VERSION, record.state, record.sequence),
        *(transaction, record.beat, len(writer)),
    )
    body = b"" if record.journal is None else journals.pack(record.journal)
    data = head + writer + body
    return data + zlib.crc32(data).to_bytes(4, "little")


def parse(data: bytes, where: str) -> Record:
    """Return the record in `data`, after checking all of it.

    Raises `UnsupportedError` for bytes that are no record, or one of a later version,
    `CorruptionError` for a damaged one, `UnsafeError` for a key that no commit may change.
    """
    if not data.startswith(_MAGIC):
        raise UnsupportedError(f"{where}: not a record of Ingot")
    if len(data) < _HEAD.size + 4:
        raise CorruptionError(f"{where}: a record of {len(data)} bytes has no room for its head")
    _, version, state, sequence, name, beat, length = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise UnsupportedError(f"{where}: a record of version {version}")
    stored, found = int.from_bytes(data[-4:], "little"), zlib.crc32(memoryview(data)[:-4])
    if stored != found:
        raise CorruptionError(f"{where}: checksum {found:08x}, {stored:08x} is stored")
    transaction = name.decode("latin-1")
    body = data[_HEAD.size + length : -4]
    if state not in iter(State) or not _TRANSACTION.fullmatch(transaction):
        raise CorruptionError(f"{where}: state {state} of transaction {transaction!r}")
    if len(data) < _HEAD.size + length + 4 or (state == State.DECIDED) != bool(body):
        raise CorruptionError(f"{where}: state {state} with a journal of {len(body)} bytes")
    writer = data[_HEAD.size : _HEAD.size + length].decode(errors="replace")
    journal = journals.parse(body, where) if body else None
    return Record(State(state), sequence, transaction, beat, writer, journal)

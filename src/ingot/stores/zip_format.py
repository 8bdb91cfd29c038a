"""The structure of zip archives, as functions from bytes to values and back.

End records, the central directory and local headers, with 64-bit sizes. Every claim in them is
checked against the stored bytes: names that leave the archive, duplicate names, members that
overlap or lie outside, and sizes that contradict each other are errors. Members that lie in the
archive and are missing in its directory are found (`find_lost`) without reading the others.
"""

import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from ingot.errors import CorruptionError, FormatError, LimitError, UnsafeError, UnsupportedError
from ingot.stores.store import check_key

__all__ = [
    "DEFLATED",
    "STORED",
    "Directory",
    "Gap",
    "Member",
    "Read",
    "find_lost",
    "locate_data",
    "pack_directory",
    "pack_header",
    "parse_directory",
]

Read: TypeAlias = Callable[[int, int], bytes]
"""Takes a start and a length, and returns those bytes of the archive, fewer at its end."""

STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64: Final = struct.Struct("<4sLQL")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")

_END_SIGN: Final = b"PK\x05\x06"
_END_64_SIGN: Final = b"PK\x06\x06"
_LOCATOR_64_SIGN: Final = b"PK\x06\x07"
_CENTRAL_SIGN: Final = b"PK\x01\x02"
_LOCAL_SIGN: Final = b"PK\x03\x04"

_LONGEST_COMMENT: Final = 2**16 - 1
_LARGEST_DIRECTORY: Final = 2**30
_ZIP64: Final = 1
_FULL_16: Final = 2**16 - 1
_FULL_32: Final = 2**32 - 1

_ENCRYPTED: Final = 0x41  # Of old, or strongly.
_SIZES_FOLLOW: Final = 0x08
_UTF8: Final = 0x800

_VERSION: Final = 45
_UNIX: Final = 3
_PLAIN_FILE: Final = (stat.S_IFREG | 0o644) << 16
_FIRST_DAY: Final = 0x0021

# No Deflate stream grows further than this, so a larger claim is wrong.
_LARGEST_GROWTH: Final = 1032
_SHORTEST_STREAM: Final = 64

# The bytes after data whose header has no sizes: a checksum and two sizes of 4 or 8 bytes, with or
# without a signature, or nothing.
_DESCRIPTIONS: Final = (0, 12, 16, 20, 24)
_MOST_LOST: Final = 1000


@dataclass(frozen=True, slots=True)
class Member:
    """One member: its name, how it is stored, and where its local header begins."""

    name: str
    size: int
    stored: int
    crc: int
    method: int = STORED
    offset: int = 0
    limit: int = 0
    """Where the next member, or the directory, begins."""
    date: tuple[int, int] = (0, _FIRST_DAY)
    attributes: int = _PLAIN_FILE


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that the directory does not account for: after an entry, or before the first one."""

    entry: Member | None
    limit: int
    """Where the gap ends."""


@dataclass(frozen=True, slots=True)
class Directory:
    """All members of an archive by their names, its comment, and gaps that may hold members."""

    members: Mapping[str, Member]
    comment: bytes = b""
    folders: frozenset[str] = frozenset()
    """The names of entries that stand for folders."""
    gaps: tuple[Gap, ...] = ()


def parse_directory(read: Read, size: int, where: str) -> Directory:
    """Return the directory of an archive of `size` bytes; `where` names it in errors.

    >>> data = pack_directory([], 0)
    >>> parse_directory(lambda start, length: data[start : start + length], len(data), "x.zip")
    Directory(members={}, comment=b'', folders=frozenset(), gaps=())
    """
    try:
        return _parse_directory(read, size)
    except (CorruptionError, FormatError, LimitError, UnsafeError, UnsupportedError) as error:
        raise type(error)(f"{where}: {error}") from None


def locate_data(member: Member, read: Read, where: str) -> int:
    """Return where the data of a member begins, after comparing its header to the directory."""
    name = f"{where}: member {member.name!r}"
    head = read(member.offset, _LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != _LOCAL_SIGN:
        raise CorruptionError(f"{name}: no header at byte {member.offset}")
    _, _, flags, method, _, _, crc, stored, size, name_size, extra_size = _LOCAL.unpack(head)
    if method != member.method or flags & _ENCRYPTED:
        raise CorruptionError(f"{name}: header and directory disagree about the method")
    raw = read(member.offset + _LOCAL.size, name_size)
    if _decoded(raw, flags) != member.name:
        raise CorruptionError(f"{name}: the header has another name, {raw[:60]!r}")
    if not flags & _SIZES_FOLLOW:
        claims = (("crc", crc, member.crc), ("stored", stored, member.stored))
        for field, claim, fact in (*claims, ("size", size, member.size)):
            # A field of all ones stands for one in the extra part, which the directory has as well.
            if claim not in (fact, _FULL_32):
                raise CorruptionError(
                    f"{name}: {field} is {claim} in the header, {fact} in the directory"
                )
    start = member.offset + _LOCAL.size + int(name_size) + int(extra_size)
    if start + member.stored > member.limit:
        raise CorruptionError(
            f"{name}: claims {member.stored} bytes from {start}, {member.limit} is the end"
        )
    return start


def find_lost(directory: Directory, read: Read, where: str) -> frozenset[str]:
    """Return the names of members whose headers lie in gaps, and which the directory does not name.

    They are looked for where a member would begin: at the start of the archive, and right behind
    another member. A header with the name of a member is what a program left that replaced it.
    """
    found: set[str] = set()
    known = directory.members.keys() | directory.folders
    for gap in directory.gaps:
        for name in _headers(gap, read):
            if name not in known and not name.endswith("/"):
                found.add(name)
            if len(found) > _MOST_LOST:
                raise CorruptionError(
                    f"{where}: more than {_MOST_LOST} members that the directory does not name"
                )
    return frozenset(found)


def _headers(gap: Gap, read: Read) -> Iterator[str]:
    """Yield the names of the local headers that follow each other in a gap."""
    places: list[int] = [0]
    if gap.entry is not None:
        own = _parse_header(gap.entry.offset, read)
        # A missing header is an error as soon as the member is read.
        places = [] if own is None else own.ends(gap.entry.stored)
    while places:
        heads = (_parse_header(place, read) for place in places if place + _LOCAL.size < gap.limit)
        head = next((head for head in heads if head is not None), None)
        if head is None or head.start + (head.stored or 0) > gap.limit:
            return
        yield head.name
        # Where the sizes follow the data, the end of the data is unknown.
        places = [] if head.stored is None else head.ends(head.stored)


@dataclass(frozen=True, slots=True)
class _Header:
    """A local header: the name, where the data begins, and its stored size if it is known."""

    name: str
    start: int
    stored: int | None
    is_described: bool

    def ends(self, stored: int) -> list[int]:
        """Return where the next header may be: behind the data, or a description of its sizes."""
        end = self.start + stored
        return [end + more for more in (_DESCRIPTIONS if self.is_described else (0,))]


def _parse_header(place: int, read: Read) -> _Header | None:
    """Return the local header at a place; None when there is none."""
    head = read(place, _LOCAL.size)
    if len(head) < _LOCAL.size or head[:4] != _LOCAL_SIGN:
        return None
    _, _, flags, _, _, _, _, stored, size, name_size, extra_size = _LOCAL.unpack(head)
    raw = read(place + _LOCAL.size, name_size + extra_size)
    if len(raw) < name_size + extra_size:
        return None
    described = bool(flags & _SIZES_FOLLOW)
    try:
        name = _decoded(raw[:name_size], flags)
        check_key(name.removesuffix("/"))
        size, stored = _widened(raw[name_size:], name, size, stored)
    except (UnsafeError, CorruptionError):
        return None
    start = place + _LOCAL.size + int(name_size) + int(extra_size)
    return _Header(name, start, None if described and not stored else stored, described)


def pack_header(member: Member) -> bytes:
    """Return the local header of a member, after which its data follows."""
    name = member.name.encode()
    extra = b""
    stored, size = member.stored, member.size
    if max(stored, size) >= _FULL_32:
        extra = struct.pack("<2H2Q", _ZIP64, 16, size, stored)
        stored = size = _FULL_32
    flags = 0 if member.name.isascii() else _UTF8
    head = (_LOCAL_SIGN, _VERSION, flags, member.method, *member.date)
    return _LOCAL.pack(*head, member.crc, stored, size, len(name), len(extra)) + name + extra


def pack_directory(members: Iterable[Member], start: int, comment: bytes = b"") -> bytes:
    """Return the central directory, which begins at byte `start`, and the end of an archive."""
    entries = [_packed_entry(member) for member in members]
    directory = b"".join(entries)
    count, size = len(entries), len(directory)
    end = b""
    if count >= _FULL_16 or max(size, start) >= _FULL_32:
        rest = (_END_64.size - 12, _VERSION, _VERSION, 0, 0, count, count, size, start)
        end = _END_64.pack(_END_64_SIGN, *rest)
        end += _LOCATOR_64.pack(_LOCATOR_64_SIGN, 0, start + size, 1)
    few = min(count, _FULL_16)
    numbers = (few, few, min(size, _FULL_32), min(start, _FULL_32), len(comment))
    return directory + end + _END.pack(_END_SIGN, 0, 0, *numbers) + comment


def _parse_directory(read: Read, size: int) -> Directory:
    count, length, start, comment = _find_end(read, size)
    if length > _LARGEST_DIRECTORY:
        raise LimitError(f"a directory of {length} bytes, the limit is {_LARGEST_DIRECTORY}")
    if count * _CENTRAL.size > length:
        raise CorruptionError(f"{count} members in a directory of {length} bytes")
    data = read(start, length)
    members: dict[str, Member] = {}
    folders: list[Member] = []
    place = 0
    for _ in range(count):
        member, place = _parse_entry(data, place)
        if member.name.endswith("/"):
            folders.append(member)
            continue
        if member.name in members:
            raise FormatError(f"two members are called {member.name!r}")
        members[member.name] = member
    if place != length:
        raise CorruptionError(f"the directory claims {length} bytes, its members take {place}")
    gaps = _find_gaps([*members.values(), *folders], start)
    names = frozenset(folder.name for folder in folders)
    return Directory(_limited(members, start), comment, names, gaps)


def _find_gaps(entries: Sequence[Member], end: int) -> tuple[Gap, ...]:
    """Return where the entries leave room for a member, before the directory at `end`."""
    ordered = sorted(entries, key=lambda entry: entry.offset)
    least = [_LOCAL.size + len(entry.name) + entry.stored for entry in ordered]
    # An archive without gaps, like those that are written here, is recognised by its size.
    if end - sum(least) <= _LOCAL.size:
        return ()
    limits = [*(entry.offset for entry in ordered), end]
    gaps = [Gap(None, limits[0])] if limits[0] > _LOCAL.size else []
    for entry, taken, limit in zip(ordered, least, limits[1:], strict=True):
        if limit - entry.offset - taken > _LOCAL.size:
            gaps.append(Gap(entry, limit))
    return tuple(gaps)


def _find_end(read: Read, size: int) -> tuple[int, int, int, bytes]:
    """Return the count of members, the bytes and the start of the directory, and the comment."""
    begin = max(0, size - _END.size - _LONGEST_COMMENT)
    tail = read(begin, size - begin)
    place = tail.rfind(_END_SIGN)
    # The comment may hold the signature as well; the real end record fits the size of the file.
    while place >= 0:
        if len(tail) - place >= _END.size:
            fields = _END.unpack_from(tail, place)
            if place + _END.size + fields[7] == len(tail):
                break
        place = tail.rfind(_END_SIGN, 0, place + len(_END_SIGN) - 1)
    else:
        raise CorruptionError("no end of a zip archive; cut off, or no archive")
    _, disk, first, here, count, length, start, _ = fields
    comment, end = tail[place + _END.size :], begin + place
    if _FULL_16 in (here, count) or _FULL_32 in (length, start):
        far = _find_end_64(read, end)
        if far is not None:
            disk, first, here, count, length, start, end = far
    if disk or first or here != count:
        raise UnsupportedError("an archive of several parts")
    if start + length != end:
        raise CorruptionError(f"the directory claims {length} bytes from {start}, its end is {end}")
    return count, length, start, comment


def _find_end_64(read: Read, end: int) -> tuple[int, ...] | None:
    locator = read(max(0, end - _LOCATOR_64.size), _LOCATOR_64.size)
    if len(locator) < _LOCATOR_64.size or locator[:4] != _LOCATOR_64_SIGN:
        return None
    _, _, place, parts = _LOCATOR_64.unpack(locator)
    data = read(place, _END_64.size) if place <= end - _END_64.size else b""
    if len(data) < _END_64.size or data[:4] != _END_64_SIGN or parts > 1:
        raise CorruptionError(f"no end of a large zip archive at byte {place}")
    _, _, _, _, disk, first, here, count, length, start = _END_64.unpack(data)
    return disk, first, here, count, length, start, place


def _parse_entry(data: bytes, place: int) -> tuple[Member, int]:
    """Return the entry at a place of the directory, and the place behind it.

    The name of a folder ends with a slash.
    """
    if data[place : place + 4] != _CENTRAL_SIGN or place + _CENTRAL.size > len(data):
        raise CorruptionError(f"no member at byte {place} of the directory")
    fields = _CENTRAL.unpack_from(data, place)
    _, _, _, flags, method, time, day, crc, stored, size, *lengths = fields[:13]
    disk, _, attributes, offset = fields[13:]
    first = place + _CENTRAL.size
    ends = [first + sum(lengths[:count]) for count in range(4)]
    if ends[3] > len(data):
        raise CorruptionError(f"the member at byte {place} of the directory is cut off")
    name = _decoded(data[ends[0] : ends[1]], flags)
    size, stored, offset = _widened(data[ends[1] : ends[2]], name, size, stored, offset)
    if name.endswith("/") and not size:
        return Member(name, 0, stored, crc, method, offset), ends[3]
    _check_member(name, flags, method, stored, size, attributes)
    if disk:
        raise UnsupportedError(f"member {name!r}: in another part of the archive")
    member = Member(name, size, stored, crc, method, offset, 0, (time, day), attributes)
    return member, ends[3]


def _check_member(
    name: str, flags: int, method: int, stored: int, size: int, attributes: int
) -> None:
    check_key(name)
    if stat.S_ISLNK(attributes >> 16):
        raise UnsafeError(f"member {name!r}: a symbolic link")
    if flags & _ENCRYPTED:
        raise UnsupportedError(f"member {name!r}: encrypted")
    if method not in (STORED, DEFLATED):
        raise UnsupportedError(f"member {name!r}: compressed by the method {method}")
    if method == STORED and stored != size:
        raise CorruptionError(f"member {name!r}: {stored} bytes stored, the size is {size}")
    if size > stored * _LARGEST_GROWTH + _SHORTEST_STREAM:
        raise CorruptionError(f"member {name!r}: {stored} bytes cannot become {size}")


def _widened(extra: bytes, name: str, *numbers: int) -> list[int]:
    """Return size, stored size and offset; fields of all ones stand in the extra part."""
    if _FULL_32 not in numbers:
        return list(numbers)
    place = 0
    while place + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, place)
        if kind == _ZIP64:
            wide = extra[place + 4 : place + 4 + length]
            if len(wide) < 8 * numbers.count(_FULL_32):
                break
            values = iter(struct.unpack_from(f"<{numbers.count(_FULL_32)}Q", wide))
            return [next(values) if number == _FULL_32 else number for number in numbers]
        place += 4 + length
    raise CorruptionError(f"member {name!r}: sizes of 64 bits are missing")


def _limited(members: Mapping[str, Member], end: int) -> dict[str, Member]:
    """Return the members in the order of the archive, each with the start of the next."""
    ordered = sorted(members.values(), key=lambda member: member.offset)
    limits = [*(member.offset for member in ordered), end][1:]
    found = {}
    for member, limit in zip(ordered, limits, strict=True):
        least = _LOCAL.size + len(member.name) + member.stored
        if member.offset + least > limit:
            raise CorruptionError(
                f"member {member.name!r}: {least} bytes from {member.offset} reach beyond {limit}"
            )
        found[member.name] = replace(member, limit=limit)
    return found


def _packed_entry(member: Member) -> bytes:
    name = member.name.encode()
    numbers = (member.size, member.stored, member.offset)
    wide = [number for number in numbers if number >= _FULL_32]
    extra = struct.pack(f"<2H{len(wide)}Q", _ZIP64, 8 * len(wide), *wide) if wide else b""
    size, stored, offset = (min(number, _FULL_32) for number in numbers)
    flags = 0 if member.name.isascii() else _UTF8
    return (
        _CENTRAL.pack(
            _CENTRAL_SIGN,
            _VERSION | _UNIX << 8,
            _VERSION,
            flags,
            member.method,
            *member.date,
            member.crc,
            stored,
            size,
            len(name),
            len(extra),
            *(0, 0, 0),
            member.attributes,
            offset,
        )
        + name
        + extra
    )


def _decoded(name: bytes, flags: int) -> str:
    try:
        return name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise UnsafeError(f"the name {name[:60]!r} is no text") from None

"""Files of variable-length items, made and read by hand: nothing of Ingot's own code is used."""

import json
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from numcodecs import blosc

NULL = 2**32 - 1


def chunk(raw: bytes, typesize: int = 1) -> bytes:
    """Return a Blosc 1 chunk that stores bytes as they are, with its CRC-32."""
    head = struct.pack("<BBBBiii", 2, 1, 0x13, typesize, len(raw), max(1, len(raw)), 16 + len(raw))
    return head + raw + struct.pack("<I", zlib.crc32(head + raw))


def pack(items: Sequence[bytes | None]) -> bytes:
    """Return the image of a pack: two chunks with their CRC-32."""
    lengths = [NULL if item is None else len(item) for item in items]
    stored = b"".join(item for item in items if item is not None)
    return chunk(struct.pack(f"<{len(items)}I", *lengths), 4) + chunk(stored)


def header(
    count: int,
    meta: int,
    *,
    version: int = 4,
    options: int = 0x1F,
    checksum: int = 2,
    typesize: int = 1,
    crc: int = 0,
) -> bytes:
    """Return the 32 bytes of a header, field by field."""
    numbers = (version, options, checksum, typesize, -1, -1, count, meta, crc)
    return struct.pack("<4sBBBBiiqiI", b"blpk", *numbers)


def sealed(front: bytes) -> bytes:
    """Return the front of a file with its CRC-32 in bytes 28 to 31."""
    crc = zlib.crc32(front[32:], zlib.crc32(front[:28]))
    return front[:28] + struct.pack("<I", crc) + front[32:]


def document(values: Any, room: int = 0) -> bytes:
    """Return metadata as text with spaces behind it."""
    return json.dumps(values).encode().ljust(room)


def entry(*numbers: int) -> bytes:
    """Return an entry of the table, or several."""
    return struct.pack(f"<{len(numbers)}q", *numbers)


def packed_file(
    packs: Sequence[Sequence[bytes | None]], *, spare: int = 0, **metadata: Any
) -> bytes:
    """Return a file of packs, one behind the other, with spare entries of the table."""
    count = sum(map(len, packs))
    meta = document({"dtype": "bytes", "shape": [count], "nulls": True, **metadata})
    images = [pack(items) for items in packs]
    begin = 32 + len(meta) + 16 * (len(packs) + spare)
    table, at, first = b"", begin, 0
    for items, image in zip(packs, images, strict=True):
        table += entry(at, first)
        at, first = at + len(image), first + len(items)
    front = header(len(packs), len(meta)) + meta + table + b"\xff" * (16 * spare)
    return sealed(front) + b"".join(images)


def single_file(items: Sequence[bytes | None], *, spare: int = 0, **metadata: Any) -> bytes:
    """Return a file with one chunk for each item, as the document has it."""
    meta = document({"dtype": "bytes", "shape": [len(items)], "nulls": True, **metadata})
    begin = 32 + len(meta) + 8 * (len(items) + spare)
    table, images, at = b"", b"", begin
    for item in items:
        table += entry(0 if item is None else at)
        if item is not None:
            images += chunk(item)
            at = begin + len(images)
    front = header(len(items), len(meta), options=0x17) + meta + table + b"\xff" * (8 * spare)
    return sealed(front) + images


def read_file(data: bytes) -> tuple[list[bytes | None], dict[str, Any]]:
    """Return the items and the metadata of a file with CRC-32 everywhere; all of it is checked."""
    magic, version, options, checksum, _, size, last, count, meta, crc = struct.unpack_from(
        "<4sBBBBiiqiI", data
    )
    assert (magic, version, checksum, size, last) == (b"blpk", 4, 2, -1, -1)
    assert options & 0x17 == 0x17
    values = json.loads(data[32 : 32 + meta])
    width = 2 if options & 0x08 else 1
    start = 32 + meta
    end = start + 8 * width * count
    while data[end : end + 8 * width] == b"\xff" * 8 * width:
        end += 8 * width
    assert crc == zlib.crc32(data[32:end], zlib.crc32(data[:28]))
    table = struct.unpack_from(f"<{width * count}q", data, start)
    items: list[bytes | None] = []
    for number in range(count):
        place = table[width * number]
        if width == 1:
            items.append(None if place == 0 else _decoded(data, place)[0])
            continue
        assert table[2 * number + 1] == len(items)
        packed, place = _decoded(data, place)
        held, _ = _decoded(data, place)
        for length in struct.unpack(f"<{len(packed) // 4}I", packed):
            own = 0 if length == NULL else length
            items.append(None if length == NULL else held[:own])
            held = held[own:]
        assert not held
    assert values["shape"] == [len(items)]
    return items, values


def _decoded(data: bytes, place: int) -> tuple[bytes, int]:
    nbytes, _, cbytes = struct.unpack_from("<iii", data, place + 4)
    stored = data[place : place + cbytes]
    assert stored[0] == 2
    (crc,) = struct.unpack_from("<I", data, place + cbytes)
    assert crc == zlib.crc32(stored)
    found = bytes(blosc.decompress(stored)) if nbytes else b""
    assert len(found) == nbytes
    return found, place + cbytes + 4

"""Lone variable-length items of bcolz and blsk, made by hand: nothing of Ingot's code is used."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence

import google_crc32c
from numcodecs import blosc

from tests import varlen_files

NULL = varlen_files.NULL
IDENTITY = 0x0123_4567_89AB_CDEF
HEAD = b"blpk\x01\0\0\0" + struct.pack("<q", 2)
"""What stands in front of a pack in bcolz."""

Items = Sequence[bytes | None]


def chunk(raw: bytes, typesize: int = 1, *, compressed: bool = False) -> bytes:
    """Return a Blosc 1 chunk: the bytes as they are, or compressed by C-Blosc in small blocks."""
    if not compressed or len(raw) < 16 * typesize:
        return varlen_files.chunk(raw, typesize)[:-4]
    found: bytes = blosc.compress(raw, b"lz4", 5, int(typesize > 1), 32, typesize)
    return found


def trailer(chunk: bytes, number: int, rows: int, zone: bytes = b"") -> bytes:
    """Return the trailer of a chunk, whatever is wrong with the chunk."""
    spans, begin = _blocks(chunk)
    head = struct.pack("<4sBBHIQI", b"igt1", 2, 0, len(zone), len(spans), number, rows)
    head += struct.pack("<Q", IDENTITY)
    found = head + _crc(chunk[:begin] + head)
    found += b"".join(_crc(chunk[start:stop]) for start, stop in spans) + zone
    found += struct.pack("<I", len(found) + 8)
    return found + _crc(found)


def zone_map(items: Items) -> bytes:
    """Return the zone map of text or bytes."""
    held = sorted(item[:16].ljust(16, b"\0") for item in items if item is not None)
    low, high = (held[0], held[-1]) if held else (bytes(16), bytes(16))
    return low + high + struct.pack("<QQ", list(items).count(None), 0)


def contents(items: Items) -> tuple[bytes, bytes]:
    """Return the lengths of items as a pack stores them, and their bytes."""
    lengths = [NULL if item is None else len(item) for item in items]
    stored = b"".join(item for item in items if item is not None)
    return struct.pack(f"<{len(items)}I", *lengths), stored


def pack(
    parts: tuple[bytes, bytes],
    number: int,
    rows: int,
    zone: bytes,
    *,
    compressed: bool = False,
    damage: Callable[[bytearray], None] = lambda chunk: None,
) -> bytes:
    """Return a pack without a head; `damage` changes its chunks before they get their trailers."""
    found = b""
    for raw, typesize, own in ((parts[0], 4, zone), (parts[1], 1, b"")):
        image = bytearray(chunk(raw, typesize, compressed=compressed))
        damage(image)
        found += bytes(image) + trailer(bytes(image), number, rows, own)
    return found


def bcolz_files(kind: str, packs: Sequence[bytes], rows: int, count: int) -> dict[str, bytes]:
    """Return the files of items in bcolz, `rows` in each pack and `count` in all."""
    storage = {
        "dtype": kind,
        "cparams": {"clevel": 5, "shuffle": 0, "cname": "lz4"},
        "chunklen": rows,
        "expectedlen": count,
        "dflt": None,
        "x_id": f"{IDENTITY:016x}",
    }
    sizes = {"shape": [count], "nbytes": 0, "cbytes": 0}
    return {
        "meta/storage": json.dumps(storage).encode(),
        "meta/sizes": json.dumps(sizes).encode(),
        "__attrs__": b"{}",
        **{f"data/__{number}.blp": HEAD + image for number, image in enumerate(packs)},
    }


def blsk_files(kind: str, packs: Sequence[bytes], rows: int, count: int) -> dict[str, bytes]:
    """Return the files of items in blsk, two packs in each super-chunk file."""
    storage = (
        f"dtype: {json.dumps(kind)}\nshape: [{count}]\nchunkshape: [{rows}]\nsuperchunksize: 2\n"
        f"compression:\n  library: lz4\n  level: 5\n  filters: []\nx_id: '{IDENTITY:016x}'\n"
    )
    files = {"meta/storage": storage.encode(), "meta/nrows": b"%d\n" % count}
    typesize = 2 if kind.startswith("list<") else 1
    for number in range(0, len(packs), 2):
        held = packs[number : number + 2]
        places, slots = [-1, -1], b""
        for place, image in enumerate(held):
            places[place] = 32 + len(slots)
            slots += image + bytes(5)
        front = struct.pack("<4sBBHii", b"blsk", 1, 1, 0, typesize, len(held))
        files[f"data/__{number // 2 + 1}__.bin"] = front + struct.pack("<2q", *places) + slots
    return files


FORMATS: Mapping[str, Callable[[str, Sequence[bytes], int, int], dict[str, bytes]]] = {
    "bcolz": bcolz_files,
    "blsk": blsk_files,
}


def _blocks(chunk: bytes) -> tuple[list[tuple[int, int]], int]:
    """Return where the blocks of a chunk lie, and where the bytes before them end."""
    if len(chunk) < 16:
        return [], len(chunk)
    flags = chunk[2]
    nbytes, size = struct.unpack_from("<ii", chunk, 4)
    count = -(-nbytes // size) if nbytes > 0 and size > 0 else 0
    if count > len(chunk):
        return [], 16
    if flags & 2 or not count:
        starts = [16 + index * size for index in range(count)]
        return [(start, min(start + size, len(chunk))) for start in starts], 16
    begin = 16 + 4 * count
    if begin > len(chunk):
        return [], 16
    starts = list(struct.unpack_from(f"<{count}i", chunk, 16))
    edges = sorted({*starts, len(chunk)})
    ends = [next((edge for edge in edges if edge > start), len(chunk)) for start in starts]
    return list(zip(starts, ends, strict=True)), begin


def _crc(data: bytes) -> bytes:
    return struct.pack("<I", google_crc32c.value(bytes(data)))

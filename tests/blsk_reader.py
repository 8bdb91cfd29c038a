"""A reader of blsk that shares no code with Ingot: written from docs/formats/blsk.md alone."""

import base64
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc
import google_crc32c
import numpy as np
import yaml

Array = np.ndarray[Any, Any]


def read(root: Path) -> Any:
    """Return the array below a folder, or the columns of a table by their names."""
    storage = yaml.safe_load((root / "meta" / "storage").read_text("utf-8"))
    rows = int((root / "meta" / "nrows").read_text("ascii"))
    return _read(root / "data", storage, storage["dtype"], (), rows)


def _read(folder: Path, storage: Any, dtype: Any, path: tuple[str, ...], rows: int) -> Any:
    if isinstance(dtype, dict):
        return {
            name: _read(folder / name, storage, each, (*path, name), rows)
            for name, each in dtype.items()
        }

    def setting(name: str, default: Any = None) -> Any:
        found = storage.get(name, default)
        for part in path:
            found = found.get(part, default) if isinstance(found, dict) else found
        return found

    if dtype in ("utf8", "bytes", "json") or dtype.startswith("list<"):
        return _items(folder, dtype, rows, setting)
    shape, chunks = list(setting("shape")), list(setting("chunkshape"))
    shape[:1] = [rows] if shape else []
    order = ">" if setting("endianness") == "big" else "<"
    kind = np.dtype(dtype) if dtype[0] in "<>|" else np.dtype(dtype).newbyteorder(order)
    array = np.full(shape, _fill(setting("fill"), kind), kind)
    counts = [-(-length // chunk) for length, chunk in zip(shape, chunks, strict=True)]
    for number, coords in enumerate(np.ndindex(*counts)):
        place = number, math.prod(counts), setting("superchunksize")
        items = _chunk(folder, place, math.prod(chunks), kind, setting("x_id"))
        if items is not None:
            box = items.reshape(chunks, order=setting("order", "C"))
            place = [
                slice(at * n, min((at + 1) * n, length))
                for at, n, length in zip(coords, chunks, shape, strict=True)
            ]
            array[tuple(place)] = box[tuple(slice(0, each.stop - each.start) for each in place)]
    return array


def _items(folder: Path, dtype: str, rows: int, setting: Callable[[str], Any]) -> list[Any]:
    """Return variable-length items: text, bytes, JSON values, or rows of numbers as lists."""
    (pack_rows,), capacity = setting("chunkshape"), setting("superchunksize")
    item = np.dtype(dtype[5:-1]) if dtype.startswith("list<") else np.dtype("u1")
    decode: dict[str, Callable[[bytes], Any]] = {
        "utf8": bytes.decode,
        "bytes": bytes,
        "json": json.loads,
    }
    as_row = lambda data: np.frombuffer(data, item).tolist()  # noqa: E731
    found: list[Any] = []
    count = -(-rows // pack_rows)
    for number in range(count):
        due = min(pack_rows, rows - number * pack_rows)
        slot = _slot(folder, (number, count, capacity), item.itemsize, trailers=True)
        items = [None] * due if slot is None else _pack(slot, number, due, setting("x_id"))
        found += [None if each is None else decode.get(dtype, as_row)(each) for each in items]
    return found


def _pack(slot: bytes, number: int, count: int, identity: str) -> list[bytes | None]:
    """Return the items of the pack at the start of some bytes."""
    contents = []
    for _ in range(2):
        nbytes, size = struct.unpack_from("<I4xI", slot, 4)
        contents.append(blosc.decompress(slot[:size]) if nbytes else b"")
        end, rows = _check(slot[size:], number, identity)
        assert rows == count
        slot = slot[size + end :]
    lengths = np.frombuffer(contents[0], "<i4").tolist()
    assert len(lengths) == count
    assert sum(each for each in lengths if each != -1) == len(contents[1])
    items: list[bytes | None] = []
    at = 0
    for length in lengths:
        items.append(None if length == -1 else contents[1][at : at + length])
        at += max(0, length)
    return items


def _fill(value: Any, kind: np.dtype[Any]) -> Any:
    if kind.kind in "SV" and value is not None:
        return np.frombuffer(base64.b64decode(value).ljust(kind.itemsize, b"\0"), kind)[0]
    if kind.kind == "c" and value is not None:
        return complex(float(value[0]), float(value[1]))
    return np.zeros((), kind)[()] if value is None else np.array(value).astype(kind)


def _chunk(
    folder: Path, place: tuple[int, int, int], items: int, dtype: Any, identity: str | None
) -> Array | None:
    number = place[0]
    slot = _slot(folder, place, dtype.itemsize)
    if slot is None:
        return None
    size = struct.unpack_from("<I", slot, 12)[0]
    if slot[size : size + 4] == b"igt1":
        _check(slot[size:], number, identity)
    found: Array = np.frombuffer(blosc.decompress(slot[:size]), dtype)
    assert len(found) == items
    return found


def _slot(
    folder: Path, place: tuple[int, int, int], itemsize: int, *, trailers: bool = False
) -> bytes | None:
    """Return the bytes of a file from the start of a slot on; None where nothing is stored."""
    number, count, capacity = place
    file = folder / f"__{number // capacity + 1}__.bin"
    if not file.exists():
        return None
    data = file.read_bytes()
    magic, version, flags, typesize, used = struct.unpack_from("<4sBB2xii", data)
    assert (magic, version, flags & ~1, typesize) == (b"blsk", 1, 0, itemsize)
    assert flags & 1 or not trailers
    index = struct.unpack_from(f"<{capacity}q", data, 16)
    assert used >= min(capacity, count - number // capacity * capacity)
    start = index[number % capacity]
    if start == -1:
        return None
    assert number % capacity < used
    assert start >= 16 + 8 * capacity
    size = struct.unpack_from("<I", data, start + 12)[0]
    if flags & 1:
        assert data[start + size :][:4] == b"igt1"
    return data[start:]


def _check(behind: bytes, number: int, identity: str | None) -> tuple[int, int]:
    """Check the trailer behind a chunk: its number, the array that it belongs to, its checksum.

    Return how many bytes it has, and how many rows it counts.
    """
    magic, version, zone, blocks, claim, rows = struct.unpack_from("<4sBxHIQI", behind)
    extra = 8 if version == 2 else 0
    if extra:
        assert identity is not None
        assert struct.unpack_from("<Q", behind, 24)[0] == int(identity, 16)
    size = 28 + extra + 4 * blocks + zone + 8
    length, checksum = struct.unpack_from("<II", behind, size - 8)
    assert (magic, claim, length) == (b"igt1", number, size)
    assert google_crc32c.value(behind[: size - 4]) == checksum
    return size, rows

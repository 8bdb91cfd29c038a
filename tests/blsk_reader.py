"""A reader of blsk that shares no code with Ingot: written from docs/formats/blsk.md alone."""

import base64
import math
import struct
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


def _fill(value: Any, kind: np.dtype[Any]) -> Any:
    if kind.kind in "SV" and value is not None:
        return np.frombuffer(base64.b64decode(value).ljust(kind.itemsize, b"\0"), kind)[0]
    if kind.kind == "c" and value is not None:
        return complex(float(value[0]), float(value[1]))
    return np.zeros((), kind)[()] if value is None else np.array(value).astype(kind)


def _chunk(
    folder: Path, place: tuple[int, int, int], items: int, dtype: Any, identity: str | None
) -> Array | None:
    number, count, capacity = place
    file = folder / f"__{number // capacity + 1}__.bin"
    if not file.exists():
        return None
    data = file.read_bytes()
    magic, version, flags, typesize, used = struct.unpack_from("<4sBB2xii", data)
    assert (magic, version, flags & ~1, typesize) == (b"blsk", 1, 0, dtype.itemsize)
    index = struct.unpack_from(f"<{capacity}q", data, 16)
    assert used >= min(capacity, count - number // capacity * capacity)
    start = index[number % capacity]
    if start == -1:
        return None
    assert number % capacity < used
    assert start >= 16 + 8 * capacity
    size = struct.unpack_from("<I", data, start + 12)[0]
    if flags & 1:
        _check(data[start + size :], number, identity)
    found: Array = np.frombuffer(blosc.decompress(data[start : start + size]), dtype)
    assert len(found) == items
    return found


def _check(behind: bytes, number: int, identity: str | None) -> None:
    """Check the trailer behind a chunk: its number, the array that it belongs to, its checksum."""
    magic, version, zone, blocks, claim = struct.unpack_from("<4sBxHIQ", behind)
    extra = 8 if version == 2 else 0
    if extra:
        assert identity is not None
        assert struct.unpack_from("<Q", behind, 24)[0] == int(identity, 16)
    size = 28 + extra + 4 * blocks + zone + 8
    length, checksum = struct.unpack_from("<II", behind, size - 8)
    assert (magic, claim, length) == (b"igt1", number, size)
    assert google_crc32c.value(behind[: size - 4]) == checksum

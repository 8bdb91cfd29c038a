"""Datasets that lie, in all four layouts of Zarr and on both kernels: each gives one of our errors.

What documents alone can say is in the tests of each format. Here whole datasets lie on disk: chunks
that are not what the documents say, sizes that no memory holds, bombs.
"""

import bz2
import gzip
import json
import lzma
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError, FormatError, IngotError, LimitError, UnsupportedError
from tests.kernels import on_each_kernel
from tests.storage import use_kernel

DATA = np.arange(100, dtype="<i4")
BLOSC: dict[str, Any] = {"cname": "lz4", "clevel": 5, "shuffle": 1}


def named(name: str, **configuration: Any) -> dict[str, Any]:
    return {"name": name, "configuration": configuration}


def zarr0(folder: Path, chunk: bytes, shape: int = 100, chunks: int = 100) -> None:
    document = {
        "shape": [shape],
        "chunks": [chunks],
        "dtype": "<i4",
        "fill_value": 0,
        **BLOSC,
    }
    (folder / "__zdata__").mkdir()
    (folder / "__zdata__" / "0.blosc").write_bytes(chunk)
    (folder / "__zmeta__").write_text(json.dumps(document))


def zarr1(
    folder: Path, chunk: bytes, shape: int = 100, chunks: int = 100, codec: str = "blosc"
) -> None:
    options: Any = {"blosc": BLOSC, "zlib": 1, "bz2": 1, "lzma": None}[codec]
    document = {
        "zarr_format": 1,
        "shape": [shape],
        "chunks": [chunks],
        "dtype": "<i4",
        "compression": codec,
        "compression_opts": options,
        "fill_value": 0,
        "order": "C",
    }
    (folder / "0").write_bytes(chunk)
    (folder / "attrs").write_text("{}")
    (folder / "meta").write_text(json.dumps(document))


def zarr2(
    folder: Path, chunk: bytes, shape: int = 100, chunks: int = 100, codec: str = "blosc"
) -> None:
    compressor = {"id": codec, **(BLOSC | {"blocksize": 0} if codec == "blosc" else {})}
    document = {
        "zarr_format": 2,
        "shape": [shape],
        "chunks": [chunks],
        "dtype": "<i4",
        "order": "C",
        "compressor": compressor,
        "fill_value": 0,
        "filters": None,
    }
    (folder / "0").write_bytes(chunk)
    (folder / ".zarray").write_text(json.dumps(document))


def zarr3(
    folder: Path, chunk: bytes, shape: int = 100, chunks: int = 100, codec: str = "blosc"
) -> None:
    codecs: list[Any] = [named("bytes", endian="little"), {"name": codec}]
    if codec == "blosc":
        codecs[1] = named("blosc", **BLOSC | {"shuffle": "shuffle", "typesize": 4, "blocksize": 0})
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [shape],
        "data_type": "int32",
        "chunk_grid": named("regular", chunk_shape=[chunks]),
        "chunk_key_encoding": "default",
        "fill_value": 0,
        "codecs": codecs,
    }
    (folder / "c").mkdir()
    (folder / "c" / "0").write_bytes(chunk)
    (folder / "zarr.json").write_text(json.dumps(document))


LAYOUTS: dict[str, Callable[..., None]] = {
    "zarr0": zarr0,
    "zarr1": zarr1,
    "zarr2": zarr2,
    "zarr3": zarr3,
}

in_each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def blosc(
    body: bytes = DATA.tobytes(),
    *,
    version: int = 2,
    flags: int = 0x02,
    typesize: int = 4,
    nbytes: int = 400,
    blocksize: int = 400,
    cbytes: int | None = None,
) -> bytes:
    """Lay a chunk out, by itself one whose data are stored as they are."""
    stored = 16 + len(body) if cbytes is None else cbytes
    return struct.pack("<BBBBiii", version, 1, flags, typesize, nbytes, blocksize, stored) + body


def extended(body: bytes = b"", *, special: int = 0, nbytes: int = 400, **fields: Any) -> bytes:
    """Lay a chunk of Blosc 2 out."""
    extension = bytes(15) + bytes([special << 4 | fields.pop("more", 0)])
    return blosc(extension + body, version=5, flags=0x35, nbytes=nbytes, **fields)


ONE_STREAM = struct.pack("<ii", 20, 400) + DATA.tobytes()

# A header that cannot be, or one that is not what is stored: which is seen first may differ.
EITHER = (FormatError, CorruptionError)

CHUNKS: dict[str, tuple[bytes, Any]] = {
    "no bytes": (b"", CorruptionError),
    "half a header": (blosc()[:9], CorruptionError),
    "version 0": (blosc(version=0), FormatError),
    "version 255": (blosc(version=255), UnsupportedError),
    "reserved codec": (blosc(ONE_STREAM, flags=0xB0), UnsupportedError),
    "codec 7": (blosc(ONE_STREAM, flags=0xF0), UnsupportedError),
    "typesize 0": (blosc(ONE_STREAM, flags=0x30, typesize=0), FormatError),
    "nbytes 0": (blosc(b"", nbytes=0), CorruptionError),
    "nbytes negative": (blosc(nbytes=-400), FormatError),
    "nbytes too small": (blosc(bytes(396), nbytes=396), CorruptionError),
    "nbytes too large": (blosc(bytes(404), nbytes=404), CorruptionError),
    "2 GiB in 60 bytes": (
        blosc(bytes(44), flags=0x30, nbytes=2**31 - 1, blocksize=2**29 - 4096),
        CorruptionError,
    ),
    "blocksize 0": (blosc(ONE_STREAM, flags=0x30, blocksize=0), FormatError),
    "blocksize negative": (blosc(ONE_STREAM, flags=0x30, blocksize=-1), FormatError),
    "cbytes 15": (blosc(cbytes=15), EITHER),
    "cbytes too large": (blosc(cbytes=417), CorruptionError),
    "cbytes too small": (blosc(cbytes=415), CorruptionError),
    "cbytes beyond the file": (blosc(cbytes=2**31 - 1), CorruptionError),
    "cut": (blosc()[:-1], CorruptionError),
    "more behind": (blosc() + b"\0", CorruptionError),
    "start in the header": (
        blosc(struct.pack("<i", 12) + ONE_STREAM[4:], flags=0x30),
        CorruptionError,
    ),
    "start beyond the end": (
        blosc(struct.pack("<i", 420) + ONE_STREAM[4:], flags=0x30),
        CorruptionError,
    ),
    "start negative": (
        blosc(struct.pack("<i", -4) + ONE_STREAM[4:], flags=0x30),
        CorruptionError,
    ),
    "blocks in one place": (
        blosc(struct.pack("<iii", 24, 24, 200) + bytes(200), flags=0x30, blocksize=200),
        CorruptionError,
    ),
    "memcpyed and too short": (blosc(bytes(399)), CorruptionError),
    "stream too long": (
        blosc(struct.pack("<ii", 20, 401) + bytes(401), flags=0x30),
        CorruptionError,
    ),
    "stream of negative length": (
        blosc(struct.pack("<ii", 20, -65) + b"\x01", flags=0x30),
        CorruptionError,
    ),
    "run in Blosc 1": (blosc(struct.pack("<ii", 20, 0), flags=0x30), CorruptionError),
    "both shuffle bits, short": (blosc(bytes(15), flags=0x35, nbytes=0), CorruptionError),
    "lazy": (extended(struct.pack("<i", 36) + ONE_STREAM[4:], more=0x08), FormatError),
    "zeros, too many": (extended(special=1, nbytes=404), CorruptionError),
    "zeros, 2 GiB": (extended(special=1, nbytes=2**31 - 1), CorruptionError),
    "NaN, too few": (extended(special=2, nbytes=396), CorruptionError),
    "a value longer than the chunk": (extended(bytes(404), special=3), FormatError),
    "a value and a half": (extended(bytes(300), special=3), FormatError),
    "unknown special value": (extended(special=6), UnsupportedError),
    "lengths without end": (
        blosc(struct.pack("<ii", 20, 390) + b"\x00a\xe0" + b"\xff" * 387, flags=0x10),
        CorruptionError,
    ),
}


@on_each_kernel
@in_each_layout
@pytest.mark.parametrize("fault", CHUNKS)
def test_chunks_that_lie(
    kernel_name: str, layout: str, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    chunk, error = CHUNKS[fault]
    LAYOUTS[layout](tmp_path, chunk)
    array = ingot.open(tmp_path, "r+")
    assert isinstance(array, ingot.Array)
    # The first block lies where it should when the second one claims the same place.
    parts = (7, slice(90, None), [3, 50]) if fault != "blocks in one place" else ()
    for key in parts:
        with pytest.raises((error, CorruptionError) if error is not EITHER else EITHER):
            array[key]
    with pytest.raises(error) as caught:
        array[...]
    assert any("in chunk (0,)" in note for note in caught.value.__notes__)
    with pytest.raises(IngotError):
        array[5] = 1
    array[...] = DATA
    np.testing.assert_array_equal(ingot.open(tmp_path)[...], DATA)


@on_each_kernel
@in_each_layout
@pytest.mark.parametrize("typesize", [1, 2, 3, 8, 255])
def test_a_typesize_that_is_not_the_items_does_not_matter(
    kernel_name: str, layout: str, typesize: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    chunk = ingot.blosc.compress(DATA.tobytes(), typesize=typesize, blocksize=96)
    LAYOUTS[layout](tmp_path, chunk)
    array = ingot.open(tmp_path)
    np.testing.assert_array_equal(array[...], DATA)
    np.testing.assert_array_equal(array[31:77:3], DATA[31:77:3])
    assert array[99] == 99


@in_each_layout
def test_arrays_larger_than_memory_open(layout: str, tmp_path: Path) -> None:
    LAYOUTS[layout](tmp_path, blosc(), shape=2**61)
    array = ingot.open(tmp_path)
    assert array[[7, 2**61 - 1]].tolist() == [7, 0]
    for key in (..., slice(5, None), slice(None, None, 2)):
        with pytest.raises(LimitError, match="a result of"):
            array[key]


@on_each_kernel
@in_each_layout
def test_chunks_larger_than_the_limit_are_not_read(
    kernel_name: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_kernel(kernel_name, monkeypatch)
    LAYOUTS[layout](tmp_path, blosc(), shape=2**40, chunks=2**40)
    with pytest.raises(LimitError):
        ingot.open(tmp_path)[5]


LARGE = 1 << 28
BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "gzip": gzip.compress,
    "bz2": bz2.compress,
    "lzma": partial(lzma.compress, preset=0),
    "zstd": lambda data: bytes(numcodecs.Zstd(1).encode(data)),
    "lz4": lambda data: bytes(numcodecs.LZ4().encode(data)),
    "blosc": lambda data: ingot.blosc.compress(data, typesize=4),
}


@cache
def bomb(codec: str) -> bytes:
    """Return a chunk that claims little and holds 256 MiB."""
    return BOMBS[codec](bytes(LARGE))


@on_each_kernel
@pytest.mark.parametrize(
    ("layout", "codec"),
    [
        ("zarr0", "blosc"),
        *(("zarr1", codec) for codec in ("blosc", "zlib", "bz2", "lzma")),
        *(("zarr2", codec) for codec in BOMBS),
        *(("zarr3", codec) for codec in ("blosc", "gzip", "zstd")),
    ],
)
def test_bombs_take_no_memory(
    kernel_name: str,
    layout: str,
    codec: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_kernel(kernel_name, monkeypatch)
    more = {} if layout == "zarr0" else {"codec": codec}
    LAYOUTS[layout](tmp_path, bomb(codec), **more)
    array = ingot.open(tmp_path)
    tracemalloc.start()
    try:
        for key in (..., 7):
            with pytest.raises((CorruptionError, LimitError)):
                array[key]
        # The chunk may be read, and a decoder has its tables; nothing is made of it.
        assert tracemalloc.get_traced_memory()[1] < 2 * len(bomb(codec)) + (16 << 20)
    finally:
        tracemalloc.stop()

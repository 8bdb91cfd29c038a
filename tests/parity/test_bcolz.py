"""Parts of bcolz chunks, read from the blocks that hold them, by both kernels as by NumPy."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import ingot
from ingot.blosc.header import ChunkHeader
from ingot.codecs.checksums import crc32c
from ingot.errors import CorruptionError
from ingot.formats import trailer
from tests.kernels import needs_native
from tests.storage import use_kernel

CODECS = [
    "blosc:lz4:5:shuffle:4096",
    "blosc:blosclz:5:shuffle:4096",
    "blosc:zstd:1:bitshuffle:4096",
    "blosc:zlib:1:noshuffle:4096",
    "blosc:snappy:5:shuffle:4096",
    "blosc:lz4:0:noshuffle:4096",
]
KEYS: list[Any] = [
    ...,
    0,
    -1,
    2049,
    slice(100, 110),
    slice(1990, 2010),
    slice(None, None, 701),
    slice(None, None, -997),
    (slice(3, 4900, 1231), 1),
    (slice(2500, 2600), slice(None, None, -1)),
    [5, 4999, 2000, 5],
    np.arange(5000) % 1999 == 7,
    (slice(10, 10),),
]


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel(request.param, monkeypatch)


def data(dtype: str = "<f8") -> NDArray[Any]:
    # Neither noise nor constant: chunks get smaller, and are still long enough to be read in parts.
    numbers = np.random.default_rng(4).integers(0, 2000, (5000, 3))
    return numbers.astype(dtype)


def make(folder: Path, codec: str, *, legacy: bool, dtype: str = "<f8") -> NDArray[Any]:
    wanted = data(dtype)
    ingot.array(wanted, folder, format="bcolz", chunks=(2000, 3), codec=codec)
    for path in (folder / "data").glob("*.blp") if legacy else ():
        content = path.read_bytes()
        path.write_bytes(content[: 16 + int.from_bytes(content[28:32], "little")])
    return wanted


@pytest.mark.parametrize("legacy", [False, True], ids=["trailer", "legacy"])
@pytest.mark.parametrize("codec", CODECS)
def test_parts_are_read(tmp_path: Path, kernel: None, codec: str, legacy: bool) -> None:
    wanted = make(tmp_path / "a", codec, legacy=legacy)
    found = ingot.open(tmp_path / "a")
    assert min(path.stat().st_size for path in (tmp_path / "a/data").glob("*.blp")) > 4096
    for key in KEYS:
        np.testing.assert_array_equal(found[key], wanted[key], err_msg=str(key))
    rows, columns = [4000, 3, 1999], [2, 0]
    np.testing.assert_array_equal(found.oindex[rows, columns], wanted[np.ix_(rows, columns)])


@pytest.mark.parametrize("dtype", ["|S7", "<U3", "<M8[s]", ">i2", "|b1"])
def test_parts_of_other_types(tmp_path: Path, kernel: None, dtype: str) -> None:
    wanted = make(tmp_path / "a", CODECS[0], legacy=False, dtype=dtype)
    found = ingot.open(tmp_path / "a")
    for key in KEYS:
        np.testing.assert_array_equal(found[key], wanted[key], err_msg=str(key))


@pytest.mark.parametrize("codec", CODECS)
def test_a_change_of_parts_is_read_back(tmp_path: Path, kernel: None, codec: str) -> None:
    wanted = make(tmp_path / "a", codec, legacy=False)
    array = ingot.open(tmp_path / "a", "r+")
    for start, stop, step in ((10, 20, 1), (1990, 4100, 7), (4990, 5000, 1)):
        wanted[start:stop:step] = -start
        array[start:stop:step] = -start
    array.append(wanted[:1500])
    wanted = np.concatenate([wanted, wanted[:1500]])
    array.resize((6100, 3))
    np.testing.assert_array_equal(ingot.open(tmp_path / "a")[...], wanted[:6100])


@pytest.mark.parametrize("codec", [CODECS[0], CODECS[-1]], ids=["packed", "plain"])
def test_an_error_names_the_damaged_block(tmp_path: Path, kernel: None, codec: str) -> None:
    wanted = make(tmp_path / "a", codec, legacy=False)
    path = tmp_path / "a/data/__0.blp"
    content = bytearray(path.read_bytes())
    chunk = bytes(content[16 : 16 + int.from_bytes(content[28:32], "little")])
    spans = trailer.block_spans(ChunkHeader.parse(chunk), memoryview(chunk))
    start, stop = spans[5]
    content[16 + (start + stop) // 2] ^= 4
    path.write_bytes(content)
    found = ingot.open(tmp_path / "a")
    # Block 5 of 4096 bytes holds the items from 2560 to 3071, of rows that have three.
    with pytest.raises(CorruptionError, match="block 5"):
        found[900]
    with pytest.raises(CorruptionError, match="block 5"):
        found[...]
    np.testing.assert_array_equal(found[2000:], wanted[2000:])


@needs_native
def test_the_native_kernel_reads_past_a_damaged_block(tmp_path: Path) -> None:
    wanted = make(tmp_path / "a", CODECS[0], legacy=False)
    path = tmp_path / "a/data/__0.blp"
    content = bytearray(path.read_bytes())
    content[-60] ^= 4
    damaged = bytes(content)
    path.write_bytes(damaged)
    # What a trailer says of itself is compared whatever is read.
    with pytest.raises(CorruptionError):
        ingot.open(tmp_path / "a")[0]
    content[-60] ^= 4
    chunk = bytes(content[16 : 16 + int.from_bytes(content[28:32], "little")])
    spans = trailer.block_spans(ChunkHeader.parse(chunk), memoryview(chunk))
    content[16 + spans[5][0] + 9] ^= 4
    path.write_bytes(content)
    np.testing.assert_array_equal(ingot.open(tmp_path / "a")[:800], wanted[:800])


@pytest.mark.parametrize("change", [-1, 1])
def test_a_sealed_trailer_of_another_number_of_blocks_is_corrupt(
    change: int, kernel: str, tmp_path: Path
) -> None:
    """All its checksums are right; only the chunk has another number of blocks."""
    codec = "blosc:lz4:5:shuffle:4096"
    ingot.array(np.arange(4000), tmp_path / "a", format="bcolz", chunks=5000, codec=codec)
    (path,) = (tmp_path / "a/data").glob("*.blp")
    data = path.read_bytes()
    size = int.from_bytes(data[28:32], "little")
    chunk, old = data[16 : 16 + size], data[16 + size :]
    blocks = -(-32_000 // 4096)
    fields = list(struct.unpack_from("<4sBBHIQI", old))
    assert fields[4] == blocks
    fields[4] = blocks + change
    head = struct.pack("<4sBBHIQI", *fields) + old[24:32]
    sums = (old[36 : 36 + 4 * blocks] + bytes(4))[: 4 * (blocks + change)]
    front = crc32c(chunk[: 16 + 4 * blocks] + head)
    body = head + struct.pack("<I", front) + sums + old[36 + 4 * blocks : -8]
    body += struct.pack("<I", len(body) + 8)
    path.write_bytes(data[: 16 + size] + body + struct.pack("<I", crc32c(body)))
    message = f"checksums of {blocks + change} blocks, the chunk has {blocks}"
    array = ingot.open(tmp_path / "a", "r+")
    calls: list[Callable[[], Any]] = [
        lambda: array[...],
        lambda: array[0],
        lambda: array[-1],
        lambda: array[[5, 3000]],
        lambda: array.append([1]),
    ]
    for call in calls:
        with pytest.raises(CorruptionError, match=message):
            call()

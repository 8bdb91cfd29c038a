"""Chunks that grow at their end, beside chunks that were written at once, by both kernels."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import ingot
from ingot.codecs.zone_maps import ZoneMap, zone_map_of
from ingot.errors import CorruptionError
from ingot.formats.bcolz.chunk_file import zone_in
from tests.kernels import needs_native
from tests.storage import identity_of, use_kernel

CHUNK = 20_000
CODECS = ["blosc:lz4:5:shuffle:4096", "blosc:zstd:1:bitshuffle:4096", "blosc:lz4:0:noshuffle"]
KINDS = ["i1", "<i4", ">i4", "u8", "f2", "f4", "f8", "M8[ns]", "S7", "S256", "<U3", ">U3", "c16"]


@pytest.fixture(params=[pytest.param("native", marks=needs_native), "python"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    use_kernel(request.param, monkeypatch)
    return str(request.param)


def items(dtype: str, count: int, order: str) -> NDArray[Any]:
    """Return items that ascend, or do not, or are none at all here and there."""
    numbers = np.arange(count)
    if order == "mixed":
        numbers = np.random.default_rng(5).permutation(count)
    kind = np.dtype(dtype).kind
    if kind in "SU":
        return np.char.zfill((numbers % 1000).astype("U3"), 3).astype(dtype)
    data: NDArray[Any] = (numbers // 200).astype(dtype)
    if order == "gaps" and kind in "fM":
        data[:9000] = np.nan if kind == "f" else np.datetime64("NaT")
        data[11_000::3] = data[0]
    return data


def chunk_files(folder: Path) -> list[bytes]:
    files = sorted(folder.glob("data/*.blp"), key=lambda path: int(path.stem[2:]))
    return [path.read_bytes() for path in files]


@pytest.mark.parametrize("order", ["ascending", "mixed", "gaps"])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("dtype", KINDS)
def test_pieces_make_the_chunks_of_the_whole(
    dtype: str, codec: str, order: str, kernel: str, tmp_path: Path
) -> None:
    data = items(dtype, 25_000, order)
    keywords: dict[str, Any] = {"format": "bcolz", "chunks": CHUNK, "codec": codec}
    grown = ingot.array(data[:8191], tmp_path / "grown", **keywords)
    for start, stop in [(8191, 8192), (8192, 9000), (9000, 16_384), (16_384, 25_000)]:
        grown.append(data[start:stop])
    np.testing.assert_array_equal(grown[:], data, strict=True)
    identity = identity_of(tmp_path / "grown")
    for number, file in enumerate(chunk_files(tmp_path / "grown")):
        zone = zone_map_of(data[number * CHUNK : (number + 1) * CHUNK])
        packed = b"" if zone is None else zone.pack(data.dtype)
        assert zone_in(file, number, identity) == packed


def zone_of(folder: Path, dtype: Any) -> ZoneMap:
    """Return the zone map of the one chunk of an array."""
    (file,) = chunk_files(folder)
    zone = ZoneMap.parse(zone_in(file, 0, identity_of(folder)), np.dtype(dtype))
    assert zone is not None
    return zone


@pytest.mark.parametrize("dtype", ["i1", "<i4", "u8", "f2", "f8", "M8[ns]", "S7", "<U3", ">U3"])
def test_ascending_rows_behind_others_do_not_make_a_chunk_ascending(
    kernel: str, tmp_path: Path, dtype: str
) -> None:
    """Neither behind rows that descend, nor where only the seam descends."""
    numbers = np.array([3, 2, 1, 4, 5, 6, 7])
    seam = np.array([1, 2, 3, 2, 3, 4, 5])
    sorted_ones = np.array([1, 1, 2, 2, 2, 3, 3])
    for name, chosen, ascending in [
        ("before", numbers, False),
        ("seam", seam, False),
        ("all", sorted_ones, True),
    ]:
        data = chosen.astype("U3").astype(dtype) if dtype[-2] in "SU" else chosen.astype(dtype)
        grown = ingot.array(data[:3], tmp_path / name, format="bcolz", chunks=100)
        for start, stop in [(3, 4), (4, 7)]:
            grown.append(data[start:stop])
        zone = zone_of(tmp_path / name, data.dtype)
        assert zone == zone_map_of(data)
        assert zone.ascending == ascending, name
        assert (zone.low, zone.high) == (np.sort(data)[0], np.sort(data)[-1])


@pytest.mark.parametrize("dtype", ["S4", "S256", "<U4", ">U4"])
def test_sorted_text_with_duplicates_is_ascending(kernel: str, tmp_path: Path, dtype: str) -> None:
    words = np.repeat(np.array(["", "a", "ab", "b", "zz"]), 3).astype(dtype)
    table = ingot.table({"s": words}, tmp_path / "t", chunks=100)
    zone = zone_of(tmp_path / "t/s", dtype)
    assert (zone.ascending, zone.low, zone.high) == (True, words[0], words[-1])
    assert table.where("s == 'ab'").rows().tolist() == [6, 7, 8]
    assert table.where("s >= 'b'").rows().tolist() == list(range(9, 15))
    table["s"][7] = np.array("zzz").astype(dtype)
    zone = zone_of(tmp_path / "t/s", dtype)
    assert (zone.ascending, zone.high.tolist()) == (False, np.array("zzz").astype(dtype).tolist())
    assert table.where("s == 'ab'").rows().tolist() == [6, 8]


@needs_native
def test_full_blocks_keep_their_bytes(tmp_path: Path) -> None:
    data = np.random.default_rng(1).integers(0, 50, 30_000).cumsum()
    for level in (1, 9):
        codec = f"blosc:lz4:{level}:shuffle:8192"
        path = tmp_path / str(level)
        ingot.array(data[:20_000], path, format="bcolz", chunks=40_000, codec=codec)
    (fast,), (small,) = chunk_files(tmp_path / "1"), chunk_files(tmp_path / "9")
    # Encoding all of it again would leave blocks of another level.
    assert _blocks(fast)[:19] != _blocks(small)[:19]
    identity = identity_of(tmp_path / "1").to_bytes(8, "little")
    assert fast.count(identity) == 1
    for name in ("data/__0.blp", "meta/storage"):
        (tmp_path / "9" / name).write_bytes((tmp_path / "1" / name).read_bytes())
    grown = ingot.open(tmp_path / "9", "r+")
    grown.append(data[20_000:])
    (after,) = chunk_files(tmp_path / "9")
    assert _blocks(after)[:19] == _blocks(fast)[:19]
    assert _blocks(after)[19] != _blocks(fast)[19]
    np.testing.assert_array_equal(grown[:], data)


def _blocks(file: bytes) -> list[bytes]:
    chunk = file[16:]
    nbytes, blocksize, cbytes = np.frombuffer(chunk[4:16], "<u4").tolist()
    count = -(-nbytes // blocksize)
    starts = [*np.frombuffer(chunk[16 : 16 + 4 * count], "<u4").tolist(), cbytes]
    return [chunk[start:stop] for start, stop in pairwise(starts)]


@needs_native
@settings(deadline=None, max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 9000), min_size=1, max_size=8),
    width=st.sampled_from([(), (3,)]),
    step=st.sampled_from([1, -1, 2]),
)
def test_any_pieces_are_read_back(
    lengths: list[int], width: tuple[int, ...], step: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    row = int(np.prod(width, dtype=int))
    data = np.arange(2 * sum(lengths) * row, dtype="i4").reshape(-1, *width)[::step]
    data = data[: sum(lengths)]
    array = ingot.array(data[:0], tmp_path_factory.mktemp("a") / "a", format="bcolz", chunks=CHUNK)
    start = 0
    for length in lengths:
        array.append(data[start : start + length])
        start += length
    np.testing.assert_array_equal(array[:], data, strict=True)


@pytest.mark.parametrize("place", [0.2, 0.9])
def test_nothing_is_added_to_a_damaged_chunk(place: float, kernel: str, tmp_path: Path) -> None:
    array = ingot.array(
        np.arange(9000),
        tmp_path / "a",
        format="bcolz",
        chunks=CHUNK,
        codec="blosc:lz4:5:shuffle:4096",
    )
    (path,) = (tmp_path / "a" / "data").glob("*.blp")
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 255
    path.write_bytes(data)
    with pytest.raises(CorruptionError):
        array.append(np.arange(10))
    assert path.read_bytes() == data

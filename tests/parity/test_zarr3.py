"""Chains of Zarr version 3, with seals, carried out natively and by the twin."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.codecs.codec import parse_spelling
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError, IngotError
from ingot.formats.format import ArrayNode, ChunkMap, Request
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.options import Options
from ingot.selection import parse
from ingot.stores.local.store import LocalStore
from tests.kernels import needs_native
from tests.parity.test_engine import CHUNKS, KEYS, SHAPE, _write, engines, items

LAYOUTS: list[tuple[Any, str, dict[str, Any]]] = [
    ("<f4", "blosc:lz4:5:shuffle", {}),
    (">i8", "blosc:zstd:3:bitshuffle", {"order": "F"}),
    ("|u1", "zstd:3", {"chunk_key_encoding": "v2"}),
    (">i2", "none", {"dimension_separator": "."}),
    ("<c16", "none", {"order": "F", "checksum": False}),
    ("<M8[ms]", "lz4", {}),
    ([("a", "<i4"), ("b", "<f8")], "blosc", {}),
    ("<i4", "blosc", {"shards": (8, 10, 14)}),
    ("<i4", "zstd:1", {"shards": (8, 5, 7), "order": "F"}),
]


def make(folder: Path, dtype: Any, spelling: str, layout: dict[str, Any]) -> ChunkMap:
    dtype = np.dtype(dtype)
    request = Request(SHAPE, dtype, np.zeros((), dtype)[()], CHUNKS, parse_spelling(spelling))
    folder.mkdir(exist_ok=True)
    store = LocalStore(folder, writable=True)
    schema = Zarr3Format().design(request, **layout)
    node, commit = Zarr3Format().create(store, schema, **layout)
    assert isinstance(node, ArrayNode)
    store.apply(commit)
    return node.chunks


@pytest.mark.parametrize(("dtype", "spelling", "layout"), LAYOUTS)
def test_every_way_reads_and_writes_the_same(
    dtype: Any,
    spelling: str,
    layout: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = np.zeros(SHAPE, dtype)
    ways = engines(make(tmp_path / "a", dtype, spelling, layout), monkeypatch)
    for turn, key in enumerate(KEYS):
        name = list(ways)[turn % len(ways)]
        part = items(dtype, turn)[key]
        expected[key] = part
        _write(ways[name], parse(key, SHAPE), part)
        for reader in ways.values():
            for again in KEYS:
                found = reader.read(parse(again, SHAPE))
                assert np.array_equal(found, expected[again]), (name, again)
                assert found.dtype == expected[again].dtype


def damaged(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def age(path: Path, seconds: float) -> None:
    moment = time.time() - seconds
    os.utime(path, (moment, moment))


@pytest.mark.parametrize("spelling", ["blosc:lz4:5:shuffle", "zstd:3", "none"])
@pytest.mark.parametrize("place", [0, 20, -5, -1])
def test_every_way_finds_damage(
    spelling: str, place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = engines(make(tmp_path / "a", "<f4", spelling, {}), monkeypatch)
    writer = next(iter(ways.values()))
    _write(writer, parse((), SHAPE), items("<f4", 1))
    damaged(tmp_path / "a/c/0/0/0", place)
    for engine in ways.values():
        with pytest.raises(CorruptionError, match="crc32c"):
            engine.read(parse((0, 0, 0), SHAPE))


# A block as it is, in the frame of today and in that of version 0.7, whose blocks begin with the
# most significant byte and end with an empty one.
TODAY = bytes.fromhex("28b52ffd 20 04 210000") + b"1234"
VERSION_07 = bytes.fromhex("27b52ffd 20 04 400004") + b"abcd" + bytes.fromhex("c00000")


@pytest.mark.parametrize(
    "frames",
    [VERSION_07 * 2, VERSION_07 + TODAY, TODAY + VERSION_07],
    ids=["old ones", "an old one first", "an old one last"],
)
def test_every_way_refuses_frames_from_before_zstandard_was_settled(
    frames: bytes, tmp_path: Path
) -> None:
    array = ingot.create(
        tmp_path / "a", shape=8, dtype="u1", chunks=8, codec="zstd:3", checksum=False
    )
    array[...] = 1
    chunk = tmp_path / "a/c/0"
    chunk.write_bytes(TODAY * 2)
    # With a cache nothing is left to the native kernel.
    ways = [ingot.open(tmp_path / "a", options=Options(cache_bytes=size)) for size in (0, 1)]
    for way in ways:
        assert way[...].tobytes() == b"12341234"
    chunk.write_bytes(frames)
    for way in ways:
        with pytest.raises(IngotError):
            way[...]


@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_every_way_refuses_chunks_too_short_for_a_seal(
    length: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = engines(make(tmp_path / "a", "<f4", "none", {}), monkeypatch)
    writer = next(iter(ways.values()))
    _write(writer, parse((), SHAPE), items("<f4", 1))
    (tmp_path / "a/c/0/0/0").write_bytes(bytes(length))
    for verify in ("first", "always", "never"):
        engine = engine_of(writer.chunks, Options(verify=verify))
        with pytest.raises(IngotError):
            engine.read(parse((0, 0, 0), SHAPE))
    for engine in ways.values():
        with pytest.raises(IngotError):
            engine.read(parse((0, 0, 0), SHAPE))


@needs_native
@pytest.mark.parametrize("spelling", ["blosc:lz4:5:noshuffle", "none"])
def test_a_seal_is_held_against_a_file_until_it_was_found_right(
    spelling: str, tmp_path: Path
) -> None:
    chunks = make(tmp_path / "a", "|u1", spelling, {})
    data = np.random.default_rng(1).integers(0, 256, SHAPE, np.uint8)
    _write(engine_of(chunks, Options()), parse((), SHAPE), data)
    path = tmp_path / "a/c/0/0/0"
    age(path, 10)
    first, always = engine_of(chunks, Options()), engine_of(chunks, Options(verify="always"))
    corner, last = parse((0, 0, 0), SHAPE), parse((3, 4, 6), SHAPE)
    assert first.read(corner) == data[0, 0, 0]
    # The same file to all appearances, though its last items are not what they were.
    facts = path.stat()
    damaged(path, -8)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert first.read(corner) == data[0, 0, 0]
    assert engine_of(chunks, Options(verify="never")).read(corner) == data[0, 0, 0]
    for engine in (always, engine_of(chunks, Options())):
        with pytest.raises(CorruptionError, match="crc32c"):
            engine.read(last)
    # A file that was written again is another one.
    age(path, 5)
    with pytest.raises(CorruptionError, match="crc32c"):
        first.read(corner)


@needs_native
@pytest.mark.parametrize("spelling", ["blosc:lz4:5:noshuffle", "zstd:3", "none"])
@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_a_file_of_another_size_is_verified_though_its_time_is_the_same(
    spelling: str, cache_bytes: int, tmp_path: Path
) -> None:
    chunks = make(tmp_path / "a", "|u1", spelling, {})
    data = np.random.default_rng(1).integers(0, 256, SHAPE, np.uint8)
    _write(engine_of(chunks, Options()), parse((), SHAPE), data)
    path = tmp_path / "a/c/0/0/0"
    age(path, 10)
    first = engine_of(chunks, Options(cache_bytes=cache_bytes))
    corner = parse((0, 0, 0), SHAPE)
    assert first.read(corner) == data[0, 0, 0]
    facts = path.stat()
    # Written in place: the same file, and the same time.
    with path.open("r+b") as file:
        file.truncate(facts.st_size - 1)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert path.stat().st_ino == facts.st_ino
    with pytest.raises(CorruptionError):
        first.read(corner)

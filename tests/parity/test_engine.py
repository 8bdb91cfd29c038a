"""The ways to carry out a selection, held against each other and against NumPy.

One way is a native call for the whole selection, one the plan's rows on the native chunk kernel,
one the plan's rows on the Python twin. Whatever the layout, all three must do the same.
"""

import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numcodecs import lz4

from ingot import blosc, native
from ingot.codecs.codec import ChunkSpec, parse_spelling
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import CorruptionError, IngotError, UnsafeError
from ingot.formats.format import ChunkMap
from ingot.formats.zarr.v2 import Zarr2Format, build_chain
from ingot.options import Limits, Options
from ingot.schema import ArraySchema
from ingot.selection import Selection, parse
from ingot.stores.local.store import LocalStore
from tests.kernels import NATIVE_IS_BUILT, needs_native

SHAPE = (11, 14, 23)
CHUNKS = (4, 5, 7)

KEYS: list[Any] = [
    (),
    (3, 4, 5),
    (-1, -14, -23),
    (slice(2, 9), slice(None), slice(5, 6)),
    (slice(None, None, 3), slice(13, None, -1), slice(1, 23, 6)),
    (slice(10, None, -4), 7, slice(22, 3, -9)),
    (slice(4, 4), slice(None)),
    (..., None, 6),
    (slice(0, 4), slice(0, 5), slice(0, 7)),
    (slice(3, 5), slice(4, 6), slice(6, 8)),
]
LAYOUTS = [
    ("<f4", "blosc:lz4:5:shuffle", "C", "."),
    ("<i8", "blosc:zstd:3:bitshuffle", "F", "/"),
    ("|u1", "blosc:blosclz:9:noshuffle", "C", "."),
    (">i2", "zlib:6", "C", "/"),
    ("<c16", "zstd:3", "F", "."),
    ("<M8[ms]", "lz4", "C", "."),
    ("|S5", "none", "F", "."),
    ([("a", "<i4"), ("b", "<f8", (2,))], "blosc", "C", "."),
]


def make(folder: Path, dtype: Any, spelling: str, order: str, separator: str) -> ChunkMap:
    dtype = np.dtype(dtype)
    stages = parse_spelling(spelling)
    chain = build_chain(stages, ChunkSpec(CHUNKS, dtype), order)
    fill = np.zeros((), dtype)[()]
    schema = ArraySchema(SHAPE, dtype, CHUNKS, chain, fill, order)
    store = LocalStore(folder, writable=True)
    folder.mkdir(exist_ok=True)
    node, commit = Zarr2Format().create(store, schema, dimension_separator=separator)
    store.apply(commit)
    return node.chunks


def items(dtype: Any, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(0, 100, (*SHAPE, np.dtype(dtype).itemsize))
    raw = numbers.astype(np.uint8)
    raw[numbers[..., 0] % 3 == 0] = 0
    return raw.view(np.dtype(dtype)).reshape(SHAPE)


def engines(chunks: ChunkMap, monkeypatch: pytest.MonkeyPatch) -> dict[str, Engine]:
    """The same array, to be carried out in each way there is."""
    found = {}
    if NATIVE_IS_BUILT:
        found["native"] = engine_of(chunks, Options(threads=2))
        everything = parse((), chunks.schema.shape)
        assert found["native"].explain(everything).kernel == "native"
        # A cache keeps the layout away, so that the rows of the plan do the work.
        found["rows"] = engine_of(chunks, Options(cache_bytes=1 << 20))
    twin = native.choose("python")
    with monkeypatch.context() as patch:
        patch.setattr(native, "choice", lambda: twin)
        found["twin"] = engine_of(chunks, Options(limits=Limits(window_bytes=1)))
    return found


def _write(engine: Engine, selection: Selection, values: object) -> None:
    engine.chunks.store.apply(engine.assign(selection, values))


@pytest.mark.parametrize(("dtype", "spelling", "order", "separator"), LAYOUTS)
def test_every_way_reads_and_writes_the_same(
    dtype: Any,
    spelling: str,
    order: str,
    separator: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = np.zeros(SHAPE, dtype)
    ways = engines(make(tmp_path / "a", dtype, spelling, order, separator), monkeypatch)
    for turn, key in enumerate(KEYS * 2):
        # Every way takes its turn at writing; all must read what it wrote.
        name = list(ways)[turn % len(ways)]
        part = items(dtype, turn)[key]
        expected[key] = part
        _write(ways[name], parse(key, SHAPE), part)
        for reader in ways.values():
            for again in KEYS:
                found = reader.read(parse(again, SHAPE))
                assert np.array_equal(found, expected[again]), (name, again)
                assert found.dtype == expected[again].dtype


@needs_native
@pytest.mark.parametrize("spelling", ["blosc:lz4:5:shuffle", "zlib:6", "zstd:3", "lz4", "none"])
def test_every_way_refuses_the_same_chunks(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", spelling, "C", ".")
    ways = engines(chunks, monkeypatch)
    _write(ways["native"], parse((), SHAPE), items("<f4", 1))
    path = tmp_path / "a" / "1.2.0"
    whole = path.read_bytes()
    damaged = [b"", whole[:-1], whole + b"\0", whole[:10], b"\0" * len(whole), whole[:20] * 9]
    if spelling == "none":
        damaged.remove(b"\0" * len(whole))
    key = (slice(4, 8), slice(10, 14), slice(0, 7))
    for bad in damaged:
        path.write_bytes(bad)
        kinds = set()
        for name, engine in ways.items():
            for again in (key, (5, 11, 3)):
                with pytest.raises(IngotError) as caught:
                    engine.read(parse(again, SHAPE))
                kinds.add(caught.type)
                notes = " ".join(caught.value.__notes__)
                for word in ("(1, 2, 0)", "1.2.0", str(tmp_path)):
                    assert word in notes, name
            with pytest.raises(IngotError):
                _write(engine, parse((5, 11, 3), SHAPE), 1)
        assert len(kinds) == 1, kinds
        assert path.read_bytes() == bad, "a chunk that cannot be read is not written over"
    path.unlink()
    for engine in ways.values():
        assert not engine.read(parse(key, SHAPE)).any(), "absence means fill"


@needs_native
@pytest.mark.parametrize("kind", ["fifo", "folder", "link out", "link to device", "link inside"])
def test_every_way_opens_regular_files_of_the_dataset_only(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", "blosc", "C", ".")
    ways = engines(chunks, monkeypatch)
    data = items("<f4", 1)
    _write(ways["native"], parse((), SHAPE), data)
    path = tmp_path / "a" / "0.0.0"
    outside = tmp_path / "outside"
    outside.write_bytes(path.read_bytes())
    path.rename(tmp_path / "a" / "inside")
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        targets = {"link out": outside, "link to device": "/dev/zero", "link inside": "inside"}
        path.symlink_to(targets[kind])
    for engine in ways.values():
        if kind == "link inside":
            assert engine.read(parse((1, 1, 1), SHAPE)) == data[1, 1, 1]
            continue
        with pytest.raises(UnsafeError):
            engine.read(parse((1, 1, 1), SHAPE))


def test_a_chunk_of_another_size_is_corruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = make(tmp_path / "a", "<f4", "blosc", "C", ".")
    wide = make(tmp_path / "b", "<f8", "blosc", "C", ".")
    _write(engine_of(small, Options()), parse((), SHAPE), items("<f4", 1))
    (tmp_path / "b" / "0.0.0").write_bytes((tmp_path / "a" / "0.0.0").read_bytes())
    for engine in engines(wide, monkeypatch).values():
        with pytest.raises(CorruptionError):
            engine.read(parse((0, 0, 0), SHAPE))


@needs_native
def test_chunks_beyond_the_limit_are_never_decoded(tmp_path: Path) -> None:
    chunks = make(tmp_path / "a", "<f4", "blosc", "C", ".")
    _write(engine_of(chunks, Options()), parse((), SHAPE), items("<f4", 1))
    strict = engine_of(chunks, Options(limits=replace(Limits(), chunk_bytes=100)))
    with pytest.raises(IngotError, match="limit"):
        strict.read(parse((0, 0, 0), SHAPE))


@needs_native
@pytest.mark.parametrize("blocksize", [1001, 1000, 4099])
@pytest.mark.parametrize("dtype", ["<f8", "<i4", "|S3", "<c16"])
@pytest.mark.parametrize("codec", ["lz4", "blosclz", "zlib", "zstd", "snappy"])
def test_items_that_reach_from_block_to_block_are_read(
    codec: str, dtype: str, blocksize: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blosc takes any size of blocks where items are single bytes to it."""
    count = 2000
    numbers = np.random.default_rng(3).integers(0, 9, count).repeat(2)[:count]
    items = numbers.astype("U3").astype(dtype) if dtype[1] == "S" else numbers.astype(dtype)
    chunk = blosc.compress(
        items.tobytes(), typesize=1, codec=codec, filters=[], blocksize=blocksize
    )
    header = blosc.inspect(chunk).header
    assert (header.block_bytes, header.typesize, header.memcpyed) == (blocksize, 1, False)
    stages = parse_spelling("blosc:lz4:5:noshuffle")
    chain = build_chain(stages, ChunkSpec((count,), items.dtype), "C")
    schema = ArraySchema((count,), items.dtype, (count,), chain, np.zeros((), items.dtype)[()])
    store = LocalStore(tmp_path, writable=True)
    node, commit = Zarr2Format().create(store, schema)
    store.apply(commit)
    (tmp_path / "0").write_bytes(chunk)
    ends = range(blocksize // items.itemsize, count, blocksize // items.itemsize)
    keys: list[Any] = [slice(end + first, end + first + 3) for end in ends for first in (-2, -1, 0)]
    keys += [0, ends[0], ends[0] - 1, count - 1, slice(ends[0], None, -1), slice(1, ends[0] + 1, 7)]
    for name, engine in engines(node.chunks, monkeypatch).items():
        for key in (..., *keys):
            found = engine.read(parse(key, (count,)))
            assert np.array_equal(found, items[key]), (name, key)


@needs_native
@pytest.mark.parametrize("change", ["longer", "one byte more", "shorter", "one byte less"])
def test_every_way_refuses_lz4_streams_of_another_length(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that decodes to more or less than the chunk, or is followed by a byte."""
    data = (np.arange(280) % 7).astype("<i4").reshape(4, 10, 7)[:, :5]
    data = np.ascontiguousarray(data)
    more, less = np.append(data, data), data.reshape(-1)[:-1]
    claim = data.nbytes.to_bytes(4, "little")
    whole = bytes(lz4.compress(data.tobytes()))[4:]
    stream = {
        "longer": bytes(lz4.compress(more.tobytes()))[4:],
        "one byte more": whole + b"\0",
        "shorter": bytes(lz4.compress(less.tobytes()))[4:],
        "one byte less": whole[:-1],
    }[change]
    raw = make(tmp_path / "a", "<i4", "lz4", "C", ".")
    (tmp_path / "a/0.0.0").write_bytes(claim + whole)
    framed = make(tmp_path / "b", "<i4", "blosc:lz4:5:noshuffle", "C", ".")

    def chunk(inner: bytes) -> bytes:
        # One block that is not split, by hand: header, start of the block, length of its stream.
        body = struct.pack("<ii", 20, len(inner)) + inner
        sizes = (data.nbytes, data.nbytes, 16 + len(body))
        return struct.pack("<BBBBiii", 2, 1, 0x30, 4, *sizes) + body

    (tmp_path / "b/0.0.0").write_bytes(chunk(whole))
    box = (slice(0, 4), slice(0, 5), slice(0, 7))
    for chunks in (raw, framed):
        for engine in engines(chunks, monkeypatch).values():
            assert np.array_equal(engine.read(parse(box, SHAPE)), data)
    (tmp_path / "a/0.0.0").write_bytes(claim + stream)
    (tmp_path / "b/0.0.0").write_bytes(chunk(stream))
    for chunks in (raw, framed):
        for name, engine in engines(chunks, monkeypatch).items():
            with pytest.raises(CorruptionError):
                print(name, engine.read(parse(box, SHAPE)))

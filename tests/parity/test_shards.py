"""The ways to carry out a selection of an array in shards, held against each other and NumPy.

Natively with one call per selection, by the plan's rows on the native chunk kernel, and by the
plan's rows on the Python twin.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot import native
from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import CodecChain, parse_spelling
from ingot.engine.payload import engine_of
from ingot.engine.run import Engine
from ingot.errors import CorruptionError, IngotError, LimitError
from ingot.formats.format import ArrayNode, Request
from ingot.formats.shard_index import build_shard
from ingot.formats.zarr.shards import ShardedMap
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.options import Limits, Options
from ingot.schema import ArraySchema
from ingot.selection import Selection, parse, parse_orthogonal
from ingot.stores.local.store import LocalStore
from ingot.stores.store import Extent
from tests.kernels import NATIVE_IS_BUILT, needs_native, on_each_kernel
from tests.limited import run_limited
from tests.storage import use_kernel

SHAPE = (21, 14, 23)
CHUNKS = (4, 5, 7)
SHARDS = (8, 10, 21)
# Shards that hold shards.
OUTER_SHARDS = (16, 20, 21)

KEYS: list[Any] = [
    (),
    (3, 4, 5),
    (-1, -14, -23),
    (slice(2, 9), slice(None), slice(5, 6)),
    (slice(None, None, 3), slice(13, None, -1), slice(1, 23, 6)),
    (slice(20, None, -4), 7, slice(22, 3, -9)),
    (slice(0, 8), slice(0, 10), slice(0, 21)),
    (slice(7, 9), slice(9, 11), slice(20, 22)),
    (slice(8, 12), slice(5, 10), slice(7, 14)),
]
OUTER: list[Any] = [
    ([0],),
    ([20, 3, 3, 4, 0], slice(None), [1]),
    (slice(None, None, -2), [13, 0, 5], [22, 6, 7, 8]),
    ([8, 9, 10, 11], [5], slice(3, 20, 4)),
]
LITTLE = CodecChain((), Bytes("little"), (Crc32c(),))
BIG = CodecChain((), Bytes("big"), ())
LAYOUTS = [
    ("<u2", "none", False, LITTLE, "end"),
    ("<i4", "none", True, BIG, "start"),
    ("<f4", "blosc:lz4:5:shuffle", False, LITTLE, "start"),
    ("<f4", "blosc:zstd:1:bitshuffle", True, BIG, "end"),
    ("<i8", "zstd:1", True, LITTLE, "end"),
    ("|S5", "zlib:1", False, LITTLE, "end"),
    ("<M8[ms]", "lz4", True, LITTLE, "end"),
]


def make(
    folder: Path,
    dtype: Any,
    spelling: str,
    checksum: bool,
    index: CodecChain,
    location: Any,
    *,
    nested: bool = False,
) -> ShardedMap:
    dtype = np.dtype(dtype)
    request = Request(SHAPE, dtype, np.zeros((), dtype)[()], CHUNKS, parse_spelling(spelling))
    designed = Zarr3Format().design(request, checksum=checksum)
    shards, sharding = SHARDS, Sharding(CHUNKS, designed.chain, index, location)
    if nested:
        shards, sharding = OUTER_SHARDS, Sharding(SHARDS, CodecChain((), sharding, ()), LITTLE)
    schema = ArraySchema(SHAPE, dtype, shards, CodecChain((), sharding, ()), request.fill)
    folder.mkdir(exist_ok=True)
    store = LocalStore(folder, writable=True)
    node, commit = Zarr3Format().create(store, schema)
    store.apply(commit)
    assert isinstance(node, ArrayNode)
    assert isinstance(node.chunks, ShardedMap)
    return node.chunks


def items(dtype: Any, seed: int) -> np.ndarray:
    numbers = np.random.default_rng(seed).integers(0, 100, (*SHAPE, np.dtype(dtype).itemsize))
    raw = numbers.astype(np.uint8)
    raw[numbers[..., 0] % 3 == 0] = 0
    raw[:8, :, :7] = 0
    return raw.view(np.dtype(dtype)).reshape(SHAPE)


def write(engine: Engine, selection: Selection, value: object) -> None:
    engine.chunks.store.apply(engine.assign(selection, value))


def engines(chunks: ShardedMap, monkeypatch: pytest.MonkeyPatch) -> dict[str, Engine]:
    """The same array, to be carried out in each way there is."""
    found = {}
    if NATIVE_IS_BUILT:
        found["native"] = engine_of(chunks, Options(threads=2))
        assert found["native"].explain(parse((), SHAPE)).kernel == "native"
        # A cache keeps the layout away, so that the rows of the plan do the work.
        found["rows"] = engine_of(chunks, Options(cache_bytes=1 << 20))
    twin = native.choose("python")
    with monkeypatch.context() as patch:
        patch.setattr(native, "choice", lambda: twin)
        found["twin"] = engine_of(chunks, Options(limits=Limits(window_bytes=1 << 16)))
        assert found["twin"].explain(parse((), SHAPE)).kernel == "python"
    return found


@pytest.mark.parametrize("nested", [False, True], ids=["shards", "shards in shards"])
@pytest.mark.parametrize(("dtype", "spelling", "checksum", "index", "location"), LAYOUTS)
def test_every_way_reads_and_writes_the_same(
    dtype: Any,
    spelling: str,
    checksum: bool,
    index: CodecChain,
    location: str,
    nested: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = np.zeros(SHAPE, dtype)
    chunks = make(tmp_path / "a", dtype, spelling, checksum, index, location, nested=nested)
    ways = engines(chunks, monkeypatch)
    for turn, key in enumerate(KEYS):
        # Every way takes its turn at writing; all must read what it wrote.
        name = list(ways)[turn % len(ways)]
        part = items(dtype, turn)[key]
        expected[key] = part
        write(ways[name], parse(key, SHAPE), part)
        for reader in ways.values():
            for again in (KEYS[0], KEYS[turn], KEYS[turn - 3]):
                found = reader.read(parse(again, SHAPE))
                assert np.array_equal(found, expected[again]), (name, again)
                assert found.dtype == expected[again].dtype
            outer = OUTER[turn % len(OUTER)]
            axes = np.ix_(*(np.arange(n)[k] for n, k in zip(SHAPE, filled(outer), strict=True)))
            found = reader.read(parse_orthogonal(outer, SHAPE))
            assert np.array_equal(found, expected[axes]), (name, outer)


def filled(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return key + (slice(None),) * (len(SHAPE) - len(key))


@needs_native
@pytest.mark.parametrize("nested", [False, True], ids=["shards", "shards in shards"])
@pytest.mark.parametrize("location", ["start", "end"])
@pytest.mark.parametrize("checksum", [False, True])
def test_every_way_makes_the_same_shards(
    checksum: bool, location: str, nested: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shards = {}
    for name in ("native", "rows", "twin"):
        folder = tmp_path / name
        chunks = make(folder, "<u2", "none", checksum, LITTLE, location, nested=nested)
        ways = engines(chunks, monkeypatch)
        for turn, key in enumerate(KEYS):
            write(ways[name], parse(key, SHAPE), items("<u2", turn)[key])
        files = sorted(path for path in (folder / "c").rglob("*") if path.is_file())
        shards[name] = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    assert len(shards["twin"]) > (3 if nested else 5)
    assert shards["native"] == shards["rows"] == shards["twin"]


@needs_native
def test_shards_in_shards_are_put_together_by_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", "blosc:lz4:5:shuffle", True, LITTLE, "start", nested=True)
    monkeypatch.setattr(ShardedMap, "stage", lambda *_: pytest.fail("Python put a shard together"))
    engine = engine_of(chunks, Options(threads=2))
    expected = np.zeros(SHAPE, "<f4")
    for turn, key in enumerate(KEYS):
        expected[key] = items("<f4", turn)[key]
        write(engine, parse(key, SHAPE), expected[key])
        assert np.array_equal(engine.read(parse((), SHAPE)), expected)


@needs_native
def test_shards_without_items_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("native", "rows", "twin"):
        chunks = make(tmp_path / name, "<u2", "none", False, LITTLE, "end")
        engine = engines(chunks, monkeypatch)[name]
        write(engine, parse((), SHAPE), 7)
        path = tmp_path / name / "c/0/0/0"
        whole = path.stat().st_size
        write(engine, parse((slice(0, 8), slice(0, 5), slice(0, 7)), SHAPE), 0)
        assert path.stat().st_size == whole - 2 * 4 * 5 * 7 * 2
        write(engine, parse((slice(0, 8), slice(0, 10), slice(0, 21)), SHAPE), 0)
        assert not path.exists()
        assert engine.read(parse((), SHAPE)).sum() == 7 * (21 * 14 * 23 - 8 * 10 * 21)


def damaged(whole: bytes, index: int) -> dict[str, bytes]:
    """Return what may become of a shard, all of it beyond reading."""

    def entry(start: int, length: int) -> bytes:
        numbers = start.to_bytes(8, "little") + length.to_bytes(8, "little")
        table = whole[-index:-4]
        # The first chunk of the shard is absent, the second is not.
        return whole[:-index] + LITTLE.encode(
            np.frombuffer(table[:32] + numbers + table[48:], "<u8").copy()
        )

    return {
        "empty": b"",
        "short": whole[: index - 1],
        "cut": whole[:-1],
        "index": whole[:-50] + bytes([whole[-50] ^ 1]) + whole[-49:],
        "beyond": entry(len(whole) - 10, 11),
        "overflow": entry(2**64 - 4, 8),
        "half absent": entry(2**64 - 1, 8),
        "bomb": entry(0, 2**63),
        "other length": entry(0, 9),
        "no bytes": entry(0, 0),
    }


@needs_native
@pytest.mark.parametrize("spelling", ["blosc:lz4:5:shuffle", "zstd:1", "none"])
@pytest.mark.parametrize("checksum", [False, True])
def test_every_way_refuses_the_same_shards(
    spelling: str, checksum: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", spelling, checksum, LITTLE, "end")
    ways = engines(chunks, monkeypatch)
    write(ways["native"], parse((), SHAPE), items("<f4", 1))
    path = tmp_path / "a" / "c/0/0/0"
    whole = path.read_bytes()
    (form,) = chunks.levels
    inside = (slice(0, 4), slice(0, 5), slice(14, 21))
    for name, bad in damaged(whole, form.nbytes).items():
        path.write_bytes(bad)
        for way, engine in ways.items():
            for key in ((), inside, (1, 2, 15)):
                with pytest.raises(IngotError) as caught:
                    engine.read(parse(key, SHAPE))
                assert isinstance(caught.value, CorruptionError), (name, way)
                assert "c/0/0/0" in " ".join(caught.value.__notes__), (name, way)
            with pytest.raises(IngotError):
                engine.read(parse_orthogonal(([1, 3], [0], [15, 20]), SHAPE))
            with pytest.raises(IngotError):
                write(engine, parse((1, 2, 15), SHAPE), 1)
            if name not in ("other length", "no bytes"):
                with pytest.raises(IngotError):
                    write(engine, parse((7, 9, 0), SHAPE), 1)
                assert path.read_bytes() == bad, "what cannot be read is not written over"
            path.write_bytes(bad)
    path.unlink()
    for engine in ways.values():
        assert not engine.read(parse(inside, SHAPE)).any(), "absence means fill"


def nested_damage(chunks: ShardedMap, whole: bytes) -> dict[str, bytes]:
    """Return what may become of a shard whose first two inner shards are stored."""
    outer, inner = chunks.levels
    index = outer.find(whole)
    (first, second), (size, _) = (found.tolist() for found in index.ranges(np.arange(2)))
    table = inner.find(whole[first : first + size]).entries

    def outside(start: int, length: int) -> bytes:
        entries = index.entries.copy()
        entries[0] = start, length
        return whole[: -outer.nbytes] + outer.pack(entries)

    def inside(start: int, length: int) -> bytes:
        entries = table.copy()
        entries[np.flatnonzero(entries[:, 0] != 2**64 - 1)[0]] = start, length
        behind = first + size
        return whole[: behind - inner.nbytes] + inner.pack(entries) + whole[behind:]

    flipped = first + size - 5
    return {
        "inner index": whole[:flipped] + bytes([whole[flipped] ^ 1]) + whole[flipped + 1 :],
        "inner shard beyond": outside(len(whole) - 10, 11),
        "inner shard overflows": outside(2**64 - 4, 8),
        "inner shard half absent": outside(2**64 - 1, 8),
        "inner shard shorter than its index": outside(first, inner.nbytes - 1),
        "inner shard without bytes": outside(first, 0),
        "inner shards overlap": outside(first, second - first + size),
        "inner shard is all": outside(0, len(whole)),
        "chunk beyond its inner shard": inside(size - 1, 2),
        "chunk overflows": inside(2**64 - 4, 8),
        "chunk of the next inner shard": inside(second - first, 40),
        "chunk half absent": inside(2**64 - 1, 40),
    }


@needs_native
@pytest.mark.parametrize("spelling", ["blosc:lz4:5:shuffle", "none"])
def test_every_way_refuses_the_same_shards_in_shards(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", spelling, False, LITTLE, "end", nested=True)
    ways = engines(chunks, monkeypatch)
    data = np.full(SHAPE, 3, "<f4")
    write(ways["native"], parse((), SHAPE), data)
    path = tmp_path / "a" / "c/0/0/0"
    whole = path.read_bytes()
    for name, bad in nested_damage(chunks, whole).items():
        path.write_bytes(bad)
        for way, engine in ways.items():
            for key in ((), (slice(0, 4), slice(0, 5), slice(0, 7)), (1, 2, 3)):
                with pytest.raises(IngotError) as caught:
                    engine.read(parse(key, SHAPE))
                assert isinstance(caught.value, CorruptionError), (name, way)
                assert "c/0/0/0" in " ".join(caught.value.__notes__), (name, way)
            with pytest.raises(CorruptionError):
                engine.read(parse_orthogonal(([1, 3], [0], [3, 6]), SHAPE))
            with pytest.raises(CorruptionError):
                write(engine, parse((1, 2, 3), SHAPE), 1)
            assert path.read_bytes() == bad, "what cannot be read is not written over"
            assert np.array_equal(engine.read(parse((20,), SHAPE)), data[20]), "another shard"
            if "overlap" not in name and "is all" not in name:
                found = engine.read(parse((9,), SHAPE))
                assert np.array_equal(found, data[9]), "another inner shard"


@needs_native
def test_inner_shards_that_are_the_same_bytes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<u2", "none", False, LITTLE, "end", nested=True)
    ways = engines(chunks, monkeypatch)
    outer, inner = chunks.levels
    piece = np.arange(4 * 5 * 7, dtype="<u2").reshape(CHUNKS)
    shard = build_shard(inner, {0: piece.tobytes()})
    assert shard is not None
    entries = np.full((outer.total, 2), 2**64 - 1, np.uint64)
    entries[:] = 3, len(shard)
    path = tmp_path / "a" / "c/0/0/0"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"gap" + shard + outer.pack(entries))
    expected = np.zeros(SHAPE, "<u2")
    expected[:4, :5, :7] = expected[8:12, :5, :7] = piece
    expected[:4, 10:14, :7] = expected[8:12, 10:14, :7] = piece[:, :4]
    for engine in ways.values():
        assert np.array_equal(engine.read(parse((), SHAPE)), expected)
        assert engine.read(parse((9, 11, 3), SHAPE)) == expected[9, 11, 3]


OVERLAPPING = """
import ingot.errors
array = ingot.open(sys.argv[1])
count = array.shape[0] // 32768
for key in (5, np.arange(count) * 32768):
    try:
        array[key]
    except ingot.errors.CorruptionError as error:
        assert "inner shards claim" in str(error), error
    else:
        raise AssertionError(key)
"""


@on_each_kernel
def test_overlapping_inner_shards_take_neither_memory_nor_time(
    kernel_name: str, tmp_path: Path
) -> None:
    """A file of 1 MiB whose 32768 inner shards all have an index of 512 KiB, 16 GiB in all."""
    count = 1 << 15
    index = CodecChain((), Bytes("little"), ())
    inner = Sharding((1,), CodecChain((), Bytes("little"), ()), index, "start")
    outer = Sharding((count,), CodecChain((), inner, ()), index)
    chain = CodecChain((), outer, ())
    schema = ArraySchema((count * count,), np.dtype("u1"), (count * count,), chain, np.uint8(0))
    store = LocalStore(tmp_path, writable=True)
    store.apply(Zarr3Format().create(store, schema)[1])
    entries = np.empty((count, 2), "<u8")
    entries[:, 0], entries[:, 1] = np.arange(count), 16 * count
    (tmp_path / "c").mkdir()
    (tmp_path / "c/0").write_bytes(bytes(17 * count) + entries.tobytes())
    run_limited(OVERLAPPING, kernel_name, tmp_path)


@needs_native
def test_the_index_of_an_inner_shard_is_kept_as_long_as_its_file_stays(tmp_path: Path) -> None:
    chunks = make(tmp_path / "a", "<u2", "none", False, LITTLE, "end", nested=True)
    engine = engine_of(chunks, Options())
    write(engine, parse((), SHAPE), 5)
    path = tmp_path / "a" / "c/0/0/0"
    moment = time.time() - 100
    os.utime(path, (moment, moment))
    assert engine.read(parse((1, 2, 3), SHAPE)) == 5
    damaged_file = nested_damage(chunks, path.read_bytes())["inner index"]
    path.write_bytes(damaged_file)
    os.utime(path, (moment, moment))
    assert engine.read(parse((2, 2, 3), SHAPE)) == 5, "its index is not read again"
    assert engine.read(parse((9, 2, 3), SHAPE)) == 5, "nor that of the file"
    os.utime(path, (moment + 1, moment + 1))
    with pytest.raises(CorruptionError, match="crc32c"):
        engine.read(parse((1, 2, 3), SHAPE))


@needs_native
def test_a_damaged_chunk_leaves_the_others_readable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", "none", True, LITTLE, "end")
    ways = engines(chunks, monkeypatch)
    data = items("<f4", 1)
    write(ways["native"], parse((), SHAPE), data)
    path = tmp_path / "a" / "c/1/0/0"
    whole = path.read_bytes()
    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    for engine in ways.values():
        with pytest.raises(CorruptionError, match="crc32c"):
            engine.read(parse((8, 0, 0), SHAPE))
        assert np.array_equal(engine.read(parse((12,), SHAPE)), data[12])


@needs_native
@pytest.mark.parametrize("spelling", ["none", "blosc:lz4:0:noshuffle", "zstd:1"])
def test_checksums_are_verified_as_the_options_say(spelling: str, tmp_path: Path) -> None:
    chunks = make(tmp_path / "a", "<f4", spelling, True, LITTLE, "end")
    data = items("<f4", 1)
    write(engine_of(chunks, Options()), parse((), SHAPE), data)
    path = tmp_path / "a" / "c/1/0/0"
    whole = path.read_bytes()
    (place,) = chunks.locate(np.array([[2, 0, 0]]))
    assert isinstance(place, Extent)
    assert place.length is not None
    # The last byte of the seal, which no codec looks at.
    last = place.start + place.length - 1
    path.write_bytes(whole[:last] + bytes([whole[last] ^ 1]) + whole[last + 1 :])
    for key in ((), (8, 0, 0)):
        for verify in ("first", "always"):
            with pytest.raises(CorruptionError, match="crc32c"):
                engine_of(chunks, Options(verify=verify)).read(parse(key, SHAPE))
        careless = engine_of(chunks, Options(verify="never"))
        assert np.array_equal(careless.read(parse(key, SHAPE)), data[key])


@needs_native
def test_shared_and_scattered_chunks_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<u2", "none", False, LITTLE, "end")
    ways = engines(chunks, monkeypatch)
    (form,) = chunks.levels
    piece = np.arange(4 * 5 * 7, dtype="<u2").reshape(CHUNKS)
    body = b"gap" + bytes(100_000) + piece.tobytes() + b"gap"
    entries = np.full((form.total, 2), 2**64 - 1, np.uint64)
    entries[[0, 3, 11]] = 100_003, piece.nbytes
    path = tmp_path / "a" / "c/0/0/0"
    path.parent.mkdir(parents=True)
    path.write_bytes(body + form.pack(entries))
    expected = np.zeros(SHAPE, "<u2")
    expected[:4, :5, :7] = expected[:4, 5:10, :7] = expected[4:8, 5:10, 14:21] = piece
    for engine in ways.values():
        assert np.array_equal(engine.read(parse((), SHAPE)), expected)
    for name, engine in ways.items():
        write(engine, parse((0, 0, 0), SHAPE), 5)
        expected[0, 0, 0] = 5
        for other in ways.values():
            assert np.array_equal(other.read(parse((), SHAPE)), expected), name
        # Two chunks have bytes of their own now, or share them still, but nothing else is left.
        assert path.stat().st_size == 2 * piece.nbytes + form.nbytes


@needs_native
def test_an_index_is_not_recalled_from_a_file_that_was_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<u2", "zlib:1", False, LITTLE, "end")
    ways = engines(chunks, monkeypatch)
    for turn in range(20):
        data = items("<u2", turn)
        write(list(ways.values())[turn % 3], parse((), SHAPE), data)
        for engine in ways.values():
            assert np.array_equal(engine.read(parse((), SHAPE)), data)


@needs_native
def test_chunks_beyond_the_limit_are_never_decoded(tmp_path: Path) -> None:
    chunks = make(tmp_path / "a", "<f4", "zstd:1", False, LITTLE, "end")
    write(engine_of(chunks, Options()), parse((), SHAPE), items("<f4", 1))
    strict = engine_of(chunks, Options(limits=Limits(chunk_bytes=100)))
    with pytest.raises(LimitError):
        strict.read(parse((20, 13, 22), SHAPE))


@needs_native
def test_a_chunk_longer_than_any_encoder_makes_it_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = make(tmp_path / "a", "<f4", "zstd:1", False, LITTLE, "end")
    (form,) = chunks.levels
    path = tmp_path / "a" / "c/0/0/0"
    path.parent.mkdir(parents=True)
    path.write_bytes(build_shard(form, {0: bytes(1 << 20)}) or b"")
    for engine in engines(chunks, monkeypatch).values():
        with pytest.raises(CorruptionError, match="1048576 bytes are stored for a chunk of 560"):
            engine.read(parse((0, 0, 0), SHAPE))


MEMORY = """
import resource, sys
import numpy as np
import ingot

array = ingot.open(sys.argv[1])
rows = np.random.default_rng(0).integers(0, array.shape[0], 300)
array[:1], array.oindex[[1, 0]]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = array.oindex[rows]
assert (result[:, 0] == rows % 251).all()
assert result.nbytes < 8 << 20
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


@pytest.mark.parametrize("kernel_name", [pytest.param("native", marks=needs_native), "python"])
def test_the_memory_of_picking_from_shards_is_bounded(kernel_name: str, tmp_path: Path) -> None:
    """One shard of 128 MiB, of which every chunk is touched, and 300 rows are wanted."""
    shape = (16384, 8192)
    array = ingot.create(
        tmp_path / "a",
        shape=shape,
        dtype="u1",
        chunks=(64, 8192),
        shards=shape,
        codec="zstd:1",
        format="zarr3",
        options=ingot.Options(durability="process"),
    )
    array[...] = (np.arange(shape[0]) % 251).astype("u1")[:, None]
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path / "a")],
        capture_output=True,
        text=True,
        env={"INGOT_KERNEL": kernel_name, "PYTHONPATH": ":".join(sys.path)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Two copies of the result, and a window of chunks; the shard is far from it.
    assert int(done.stdout) < 84 << 20


@pytest.mark.parametrize("kernel_name", [pytest.param("native", marks=needs_native), "python"])
def test_a_changed_shard_is_found_behind_more_indexes_than_are_kept(
    kernel_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eleven indexes of 1 MiB each; the native kernel drops the older ones from 8 MiB on."""
    use_kernel(kernel_name, monkeypatch)
    count, inside = 11, 1 << 16
    array = ingot.create(
        tmp_path / "a",
        shape=count * inside,
        dtype="u1",
        chunks=1,
        shards=inside,
        codec="none",
        format="zarr3",
        options=Options(durability="process"),
    )
    firsts = list(range(0, count * inside, inside))
    for first in firsts:
        array[first] = 1 + first // inside
    assert all(path.stat().st_size > 1 << 20 for path in (tmp_path / "a/c").iterdir())

    def age(seconds: int) -> None:
        for path in (tmp_path / "a/c").iterdir():
            moment = time.time() - seconds
            os.utime(path, (moment, moment))

    age(1000)
    reader = ingot.open(tmp_path / "a")
    assert [reader[first] for first in firsts] == list(range(1, count + 1))
    for turn, number in enumerate((0, 3, count - 1), start=1):
        # Another chunk in front of the old one: an old index would find something else.
        array[firsts[number] + 1] = 100 + turn
        array[firsts[number]] = 50 + turn
        age(900 - turn)
        assert reader[firsts[number]] == 50 + turn
        assert reader[firsts[number] + 1] == 100 + turn
        assert [reader[first + 2] for first in firsts] == [0] * count

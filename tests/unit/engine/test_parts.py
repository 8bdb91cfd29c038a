"""Small selections from stores without files: what is read, and what `explain` says."""

import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.engine.payload import engine_of
from ingot.errors import CorruptionError, IngotError
from ingot.options import Options
from ingot.selection import parse
from ingot.stores import Commit, Extent, Feature, MemoryStore, Put, ZipStore
from tests.kernels import needs_native
from tests.storage import use_kernel

pytestmark = needs_native

# Four chunks of 128 KiB in 16 blocks each; a block is two planes of a chunk.
SHAPE, CHUNKS = (32, 64, 64), (32, 32, 32)
VALUES = np.random.default_rng(3).integers(0, 1000, SHAPE).astype("<i4")
CODEC = "blosc:lz4:5:shuffle:8192"

KEYS: dict[str, Any] = {
    "element": (3, 4, 5),
    "plane": (3,),
    "box": (slice(6, 8), slice(30, 34), slice(30, 34)),
    "steps": (slice(2, 6, 3), slice(None, None, 7), slice(60, 3, -9)),
    "outer": ([1, 3], slice(4, 6), slice(None)),
}
on_keys = pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)


@pytest.fixture(autouse=True)
def native_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    use_kernel("native", monkeypatch)


class NotingStore(MemoryStore):
    """A store in memory that notes the number of bytes of each batch of reads of chunks."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.sizes = 0

    @property
    def features(self) -> Feature:
        return super().features & ~Feature.HELD

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = super().read(extents)
        if extents and not any("z" in extent.key for extent in extents):
            self.batches.append(sum(len(data or b"") for data in found))
        return found

    def size(self, key: str) -> int | None:
        self.sizes += 1
        return super().size(key)


def made(store: Any, **layout: Any) -> ingot.Array:
    """An array that is opened again, so that nothing of it is known."""
    ingot.array(VALUES, store, chunks=CHUNKS, codec=CODEC, **layout)
    return ingot.open(store)


def costs(array: ingot.Array, key: Any) -> list[tuple[Any, ...]]:
    return [
        (cost.coords, cost.stored, cost.items, cost.read, cost.blocks)
        for cost in array.explain(key).costs
    ]


@on_keys
def test_two_batches_read_what_explain_says(key: Any) -> None:
    store = NotingStore()
    array = made(store, format="zarr2")
    told = array.explain(key)
    stored = sum(cost.stored for cost in told.costs)
    store.batches.clear()
    store.sizes = 0
    assert np.array_equal(array[key], VALUES[key])
    assert (len(store.batches), store.sizes) == (2, 0)
    # A byte of each chunk is read to see where it ends.
    assert sum(store.batches) == told.read + told.chunks
    assert store.batches[0] == 4096 * told.chunks
    assert told.read < stored / 2


@on_keys
def test_a_checksum_is_compared_once_and_then_blocks_suffice(key: Any) -> None:
    store = NotingStore()
    array = made(store, format="zarr3")
    store.batches.clear()
    assert np.array_equal(array[key], VALUES[key])
    whole = store.batches.copy()
    assert len(whole) == 1
    store.batches.clear()
    assert np.array_equal(array[key], VALUES[key])
    assert len(store.batches) == 2
    assert sum(store.batches) < whole[0] / 2
    chunk = (0, 0, 0)
    ingot.open(store, "r+")[chunk] = 1
    store.batches.clear()
    assert array[chunk] == 1
    # Another identity: all of the chunk is compared again, by each try to read it.
    assert set(store.batches) == {store.size("c/0/0/0")}


@pytest.mark.parametrize(("verify", "batches"), [("always", 1), ("never", 2)])
def test_verify_means_what_it_says(verify: Any, batches: int) -> None:
    store = NotingStore()
    made(store, format="zarr3")
    array = ingot.open(store, options=ingot.Options(verify=verify))
    for _ in range(2):
        store.batches.clear()
        assert array[3, 4, 5] == VALUES[3, 4, 5]
        assert len(store.batches) == batches


@pytest.mark.parametrize(
    "key",
    [
        *(..., (slice(0, 20),), (slice(0, 20), slice(0, 32), slice(0, 32))),
        # All blocks lie between the first item and the last.
        *((slice(0, 32, 31), 7, 7), (slice(None), 7, 7)),
    ],
    ids=str,
)
def test_what_is_wanted_for_the_most_part_is_one_batch(key: Any) -> None:
    store = NotingStore()
    array = made(store, format="zarr2")
    told = array.explain(key)
    store.batches.clear()
    assert np.array_equal(array[key], VALUES[key])
    assert store.batches == [told.read]
    assert told.read == sum(cost.stored for cost in told.costs)


def test_more_than_three_quarters_of_a_chunk_are_all_of_it() -> None:
    store = NotingStore()
    array = made(store, format="zarr2")
    # Two of three quarters of the chunks' planes, in blocks that are not all of one size.
    for key in ((slice(2, 26, 23), 7, 7), (slice(2, 25, 22), 7, 7), (slice(9, 25, 15), 7, 7)):
        told = array.explain(key)
        store.batches.clear()
        assert np.array_equal(array[key], VALUES[key])
        ends = 0 if told.read == told.costs[0].stored else 1
        assert sum(store.batches) == told.read + ends


def test_values_in_memory_are_taken_whole_and_compared_once() -> None:
    """A part of a value in memory would be a copy; its checksum is compared all the same."""
    store = MemoryStore()
    array = made(store, format="zarr3")
    assert array[3, 4, 5] == VALUES[3, 4, 5]
    assert array[3, 4, 5] == VALUES[3, 4, 5]
    (sound,) = store.read([Extent("c/0/0/0")])
    assert sound is not None
    store.apply(Commit(publish=(Put("c/0/0/0", sound[:-1] + bytes([sound[-1] ^ 1])),)))
    for _ in range(2):
        with pytest.raises(CorruptionError):
            array[3, 4, 5]


def test_chunks_in_shards_are_read_in_part() -> None:
    store = NotingStore()
    array = made(store, format="zarr3", shards=(32, 64, 64))
    array[3, 4, 5]
    store.batches.clear()
    assert array[3, 4, 5] == VALUES[3, 4, 5]
    assert sum(store.batches) < 20_000


def aged(folder: Path) -> None:
    """Make files so old that a further change of them would be noticed."""
    for file in folder.rglob("*"):
        os.utime(file, (1_000_000_000, 1_000_000_000))


@on_keys
@pytest.mark.parametrize("format", ["zarr2", "zarr3"])
def test_explain_says_the_same_for_every_store(format: str, key: Any, tmp_path: Path) -> None:
    stores: list[Any] = [
        MemoryStore(),
        ZipStore(tmp_path / "a.zip", writable=True),
        tmp_path / "a",
    ]
    arrays = [made(store, format=format) for store in stores]
    aged(tmp_path)
    arrays = [ingot.open(store) for store in stores]
    first = [costs(array, key) for array in arrays]
    assert first[0] == first[1] == first[2]
    for array in arrays:
        assert np.array_equal(array[key], VALUES[key])
    again = [costs(array, key) for array in arrays]
    for cost in again[0]:
        assert cost[4] is not None
        assert cost[4][1] == 16
    assert again[0] == again[1] == again[2]
    assert sum(cost[3] for cost in again[0]) < sum(cost[1] for cost in again[0]) / 2
    assert "0 of 0 blocks" not in str(arrays[0].explain(key))


class Unversioned:
    """A store without versions, whose keys change between two reads if it is told so."""

    def __init__(self, store: NotingStore, *, identified: bool) -> None:
        self._store = store
        self._identified = identified
        self.change: Commit | None = None

    def __getattr__(self, name: str) -> Any:
        if name in ("features", "location", "names", "size", "reopened"):
            return getattr(self._store, name)
        raise AttributeError(name)

    def identity(self, key: str) -> Any:
        return self._store.identity(key) if self._identified else None

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        found = self._store.read(extents)
        if self.change is not None and extents[0].length == 4096:
            self._store.apply(self.change)
        return found


@pytest.mark.parametrize("identified", [False, True])
def test_a_chunk_that_changes_between_two_batches_is_read_as_a_whole(identified: bool) -> None:
    noting, other = NotingStore(), MemoryStore()
    array = made(noting, format="zarr2")
    ingot.array(VALUES[::-1], other, chunks=CHUNKS, codec=CODEC, format="zarr2")
    (new,) = other.read([Extent("0.0.0")])
    assert new is not None
    store: Any = Unversioned(noting, identified=identified)
    engine = engine_of(array._handle.value.chunks.reopened(store), Options())
    key = parse((3, slice(4, 9), 5), SHAPE)
    noting.batches.clear()
    assert np.array_equal(engine.read(key), VALUES[3, 4:9, 5])
    assert len(noting.batches) == (2 if identified else 1)
    store.change = Commit(publish=(Put("0.0.0", new),))
    found = engine.read(key)
    assert np.array_equal(found, VALUES[::-1][3, 4:9, 5] if identified else VALUES[3, 4:9, 5])


def test_chunks_that_cannot_shrink_are_read_in_part() -> None:
    noise = np.random.default_rng(1).integers(0, 256, 100_000).astype("u1")
    store = NotingStore()
    ingot.array(noise, store, chunks=100_000, codec="blosc:lz4:5:noshuffle", format="zarr2")
    array = ingot.open(store)
    store.batches.clear()
    assert np.array_equal(array[500:600], noise[500:600])
    assert store.batches == [4096, 100 + 1]


def damaged(sound: bytes, choose: random.Random) -> Iterator[bytes]:
    """Copies of a chunk with one fault each, most of them in the header and the block starts."""
    for place in [*range(16), *range(16, 80, 5), *choose.sample(range(80, len(sound)), 20)]:
        for value in (0, 0x7F, 0xFF):
            yield sound[:place] + bytes([value]) + sound[place + 1 :]
    for length in (0, 1, 15, 16, 100, 4095, 4096, 4097, 20_000, len(sound) - 1):
        yield sound[:length]
    yield sound + b"more"


def verdict(array: ingot.Array, key: Any) -> Any:
    try:
        return array[key].tolist()
    except IngotError as error:
        return type(error)


def test_damage_is_judged_as_in_files(tmp_path: Path) -> None:
    store = NotingStore()
    inside = made(store, format="zarr2")
    file = made(tmp_path / "a", format="zarr2")
    (sound,) = store.read([Extent("0.0.0")])
    assert sound is not None
    key = (slice(3, 5), slice(4, 9), 5)
    for bad in damaged(sound, random.Random(5)):
        store.apply(Commit(publish=(Put("0.0.0", bad),)))
        (tmp_path / "a" / "0.0.0").write_bytes(bad)
        ours, expected = verdict(inside, key), verdict(file, key)
        assert ours == expected, bad[:20].hex()


ROWS = np.random.default_rng(3).integers(0, 9, 130_000).astype("<i4")
"""Three chunks of rows, of which the last one is short."""
ROW_CODECS = ["blosc:lz4:5:shuffle:4096", "blosc:lz4:0:noshuffle:4096"]
ROW_KEYS = [np.s_[1000:1100], np.s_[49_990:50_010], np.s_[129_000:], np.s_[20:30_000:900], 129_999]


def rows_in(store: MemoryStore, codec: str) -> ingot.Array:
    ingot.array(ROWS, store, format="bcolz", chunks=50_000, codec=codec)
    array = ingot.open(store)
    assert isinstance(array, ingot.Array)
    return array


@pytest.mark.parametrize("key", ROW_KEYS, ids=str)
@pytest.mark.parametrize("codec", ROW_CODECS)
def test_parts_of_chunk_files_are_read_in_two_batches(codec: str, key: Any) -> None:
    """Head and block starts, then blocks and trailers."""
    store = NotingStore()
    array = rows_in(store, codec)
    explanation = array.explain(key)
    store.batches.clear()
    assert np.array_equal(array[key], ROWS[key])
    assert len(store.batches) == 2
    # And the last byte of each chunk.
    told = explanation.read
    assert sum(store.batches) == told + len(explanation.costs)
    sizes = [store.size(f"data/__{number}.blp") for number in range(3)]
    assert told < sum(size or 0 for size in sizes) / 2


@pytest.mark.parametrize("codec", ROW_CODECS)
def test_chunk_files_without_a_trailer_are_read_in_parts(codec: str) -> None:
    store = NotingStore()
    rows_in(store, codec)
    for number in range(3):
        (data,) = store.read([Extent(f"data/__{number}.blp")])
        assert data is not None
        end = 16 + int.from_bytes(data[28:32], "little")
        store.apply(Commit(publish=(Put(f"data/__{number}.blp", data[:end]),)))
    array = ingot.open(store)
    store.batches.clear()
    for key in ROW_KEYS:
        assert np.array_equal(array[key], ROWS[key])
    assert len(store.batches) == 2 * len(ROW_KEYS)


@pytest.mark.parametrize("codec", ROW_CODECS)
def test_damage_of_a_chunk_file_is_found_where_it_is_read(codec: str) -> None:
    """A flipped bit of the header and of the trailer, bytes behind it, cuts, another chunk."""
    whole = NotingStore()
    sound = rows_in(whole, codec)
    (data,) = whole.read([Extent("data/__0.blp")])
    assert data is not None
    end = 16 + int.from_bytes(data[28:32], "little")
    places = [16, 18, 24, end + 12, end + 30, len(data) - 1]
    damaged = [data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :] for at in places]
    (other,) = whole.read([Extent("data/__1.blp")])
    for wrong in (*damaged, data + b"x", data[:-1], data[: end - 1], data[:end] + bytes(99), other):
        assert wrong is not None
        whole.apply(Commit(publish=(Put("data/__0.blp", wrong),)))
        with pytest.raises(IngotError):
            sound[45_000:45_010]
    # A block that is not read is not compared.
    blocks = data[: end - 40] + bytes(40) + data[end:]
    whole.apply(Commit(publish=(Put("data/__0.blp", blocks),)))
    assert np.array_equal(sound[1000:1010], ROWS[1000:1010])
    with pytest.raises(CorruptionError, match="CRC-32C of the block"):
        sound[49_990:50_000]

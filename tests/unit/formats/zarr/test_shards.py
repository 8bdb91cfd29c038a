"""The map of inner chunks: found through indexes, stored as whole shards."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import ingot
from ingot.codecs.byteorder import Bytes
from ingot.codecs.checksums import Crc32c
from ingot.codecs.codec import CodecChain
from ingot.codecs.compressors import Gzip
from ingot.codecs.filters import Transpose
from ingot.errors import CorruptionError, IngotError
from ingot.formats.format import ArrayNode, ChunkMap, Sharded
from ingot.formats.shard_index import IndexForm, build_shard
from ingot.formats.zarr.shards import ShardedMap, ShardIndexes, inner_map
from ingot.formats.zarr.v3 import Zarr3Format, Zarr3Map
from ingot.formats.zarr.v3_sharding import Sharding
from ingot.schema import ArraySchema
from ingot.stores import Commit, Delete, Extent, LocalStore, MemoryStore, Put, Store
from tests.storage import content

INDEX = CodecChain((), Bytes("little"), (Crc32c(),))
ITEMS = CodecChain((), Bytes(None), ())
BARE = Sharding((2, 3), ITEMS, INDEX)
NESTED = Sharding((4, 6), CodecChain((), BARE, ()), INDEX, "start")


class Counting(MemoryStore):
    """Remembers what was read."""

    def read(self, extents: Sequence[Extent]) -> list[bytes | None]:
        self.__dict__.setdefault("extents", []).extend(extents)
        return super().read(extents)


def make(store: Store, *, shape: Any = (10, 9), serializer: Sharding = BARE, **chain: Any) -> Any:
    stages = CodecChain(chain.get("filters", ()), serializer, chain.get("compressors", ()))
    schema = ArraySchema(shape, np.dtype("u1"), (4, 6), stages, np.uint8(7))
    node, commit = Zarr3Format().create(store, schema)
    store.apply(commit)
    assert isinstance(node, ArrayNode)
    return node.chunks


def located(chunks: ChunkMap, *coords: tuple[int, ...]) -> list[object]:
    return list(chunks.locate(np.array(coords, np.int64)))


def test_an_array_without_shards_is_its_own_map() -> None:
    schema = ArraySchema((4,), np.dtype("u1"), (4,), ITEMS, np.uint8(0))
    node, _ = Zarr3Format().create(MemoryStore(), schema)
    assert isinstance(node.chunks, Zarr3Map)
    assert not isinstance(node.chunks, Sharded)


def test_the_chunks_of_the_map_are_the_inner_ones() -> None:
    chunks = make(MemoryStore())
    assert isinstance(chunks, ShardedMap)
    assert isinstance(chunks, Sharded)
    assert isinstance(chunks, ChunkMap)
    assert (chunks.schema.chunks, chunks.shards.schema.chunks) == ((2, 3), (4, 6))
    assert chunks.schema.grid.counts == (5, 3)
    assert chunks.template is None
    assert [form.counts for form in chunks.levels] == [(2, 2)]
    nested = make(MemoryStore(), serializer=NESTED)
    assert [form.counts for form in nested.levels] == [(1, 1), (2, 2)]


@pytest.mark.parametrize("serializer", [BARE, NESTED], ids=["bare", "nested"])
def test_chunks_are_found_where_they_were_stored(serializer: Sharding) -> None:
    store = MemoryStore()
    chunks = make(store, serializer=serializer)
    stored = {(0, 0): b"a" * 6, (1, 1): b"bb", (4, 2): b"c" * 9}
    store.apply(chunks.stage(stored))
    assert sorted(content(store)) == ["c/0/0", "c/2/1", "zarr.json"]
    asked = [(4, 2), (0, 0), (0, 1), (3, 0), (1, 1)]
    places = located(chunks, *asked)
    found = {}
    for coords, place in zip(asked, places, strict=True):
        if isinstance(place, Extent):
            found[coords] = store.read([place])[0]
        else:
            assert place == ingot.stores.Constant(7)
    assert found == stored


def test_one_edit_stores_the_chunks_of_a_shard() -> None:
    chunks = make(MemoryStore())
    commit = chunks.stage({(0, 0): b"a", (1, 1): b"b", (2, 0): b"c", (4, 2): None})
    assert [type(edit) for edit in commit.edits] == [Put, Put, Delete]
    assert [edit.key for edit in commit.publish] == ["c/0/0", "c/1/0", "c/2/1"]


@pytest.mark.parametrize("serializer", [BARE, NESTED], ids=["bare", "nested"])
def test_what_else_a_shard_holds_stays(serializer: Sharding) -> None:
    store = MemoryStore()
    chunks = make(store, serializer=serializer)
    store.apply(chunks.stage({(0, 0): b"a", (0, 1): b"b", (1, 0): b"c"}))
    before = content(store)["c/0/0"]
    store.apply(chunks.stage({(0, 1): None, (1, 1): b"d"}))
    kept = [store.read([place])[0] for place in located(chunks, (0, 0), (1, 0), (1, 1))]  # type: ignore[list-item]
    assert kept == [b"a", b"c", b"d"]
    store.apply(chunks.stage({(0, 1): b"b", (1, 1): None}))
    assert content(store)["c/0/0"] == before
    store.apply(chunks.stage(dict.fromkeys([(0, 0), (0, 1), (1, 0)])))
    assert sorted(content(store)) == ["zarr.json"]


def test_two_writers_of_one_shard_keep_what_the_other_wrote() -> None:
    store = MemoryStore()
    make(store)
    one = Zarr3Format().open(store).chunks  # type: ignore[union-attr]
    two = Zarr3Format().open(store).chunks  # type: ignore[union-attr]
    for number in range(4):
        writer = (one, two)[number % 2]
        store.apply(writer.stage({(number // 2, number % 2): b"%d" % number}))
    places = located(one, (0, 0), (0, 1), (1, 0), (1, 1))
    assert [store.read([place])[0] for place in places] == [b"0", b"1", b"2", b"3"]  # type: ignore[list-item]


def test_only_indexes_are_read_to_find_chunks() -> None:
    store = Counting()
    chunks = make(store)
    store.apply(chunks.stage({(n, m): bytes(1000) for n in range(5) for m in range(3)}))
    store.extents: list[Extent] = []
    located(chunks, (0, 0), (1, 1), (0, 2), (4, 2))
    (form,) = chunks.levels
    assert sorted(extent.key for extent in store.extents) == ["c/0/0", "c/0/1", "c/2/1"]
    assert all(extent.length == form.nbytes for extent in store.extents)


class TestWrapped:
    """Codecs around a shard: it is read and written as a whole."""

    CHAINS: ClassVar[list[dict[str, Any]]] = [
        {"compressors": (Gzip(1),)},
        {"compressors": (Crc32c(),)},
        {"filters": (Transpose((0, 1)),), "compressors": (Gzip(1), Crc32c())},
    ]

    @pytest.mark.parametrize("chain", CHAINS)
    def test_the_chunks_are_whole_shards(self, chain: Any) -> None:
        store = MemoryStore()
        chunks = make(store, **chain)
        assert isinstance(chunks, Zarr3Map)
        assert chunks.schema.chunks == (4, 6)
        array = ingot.open(store, "r+")
        data = np.arange(90, dtype="u1").reshape(10, 9)
        array[...] = data
        array[3:7, 2:4] = data[3:7, 2:4] = 200
        assert np.array_equal(ingot.open(store)[...], data)
        assert array[5, 3] == 200

    def test_inner_shards_may_be_wrapped_alone(self) -> None:
        sealed = Sharding((4, 6), CodecChain((), BARE, (Crc32c(),)), INDEX)
        store = MemoryStore()
        chunks = make(store, serializer=sealed)
        assert isinstance(chunks, ShardedMap)
        assert chunks.schema.chunks == (4, 6)
        array = ingot.open(store, "r+")
        array[2:8] = 5
        assert np.array_equal(array[...], [[7] * 9] * 2 + [[5] * 9] * 6 + [[7] * 9] * 2)


class TestGrowth:
    """Resizing and appending: shards at the edge are partly outside."""

    @pytest.mark.parametrize("place_name", ["memory", "local"])
    @pytest.mark.parametrize("serializer", [BARE, NESTED], ids=["bare", "nested"])
    def test_regrown_cells_hold_the_fill_value(
        self, serializer: Sharding, place_name: str, tmp_path: Path
    ) -> None:
        place: Any = (
            MemoryStore() if place_name == "memory" else LocalStore(tmp_path, writable=True)
        )
        make(place, serializer=serializer)
        array = ingot.open(place, "r+")
        expected = np.full((10, 9), 7, "u1")
        array[...] = expected[...] = 3
        for shape in [(5, 4), (12, 13), (3, 13), (4, 2), (9, 9), (0, 4), (8, 8)]:
            kept = tuple(slice(0, min(pair)) for pair in zip(shape, expected.shape, strict=True))
            array.resize(shape)
            grown = np.full(shape, 7, "u1")
            grown[kept] = expected[kept]
            expected = grown
            assert np.array_equal(array[...], expected), shape
            assert np.array_equal(ingot.open(place)[...], expected), shape
            array[..., -1:] = expected[..., -1:] = sum(shape)

    @pytest.mark.parametrize("serializer", [BARE, NESTED], ids=["bare", "nested"])
    def test_what_a_shorter_array_left_behind_does_not_come_back(
        self, serializer: Sharding
    ) -> None:
        store = MemoryStore()
        make(store, shape=(10, 6), serializer=serializer)
        ingot.open(store, "r+")[...] = 3
        # As another program shrinks: shards that are partly inside keep all they hold.
        document = json.loads(content(store)["zarr.json"]) | {"shape": [5, 6]}
        store.apply(Commit(publish=(Put("zarr.json", json.dumps(document).encode()),)))
        array = ingot.open(store, "r+")
        assert array.shape == (5, 6)
        array.append(np.full((2, 6), 4))
        array.resize((12, 6))
        expected = np.array([3] * 5 + [4] * 2 + [7] * 5)
        assert np.array_equal(array[:, 1], expected)
        assert np.array_equal(ingot.open(store)[:, 5], expected)

    def test_clearing_what_lies_outside_keeps_what_lies_inside(self) -> None:
        store = MemoryStore()
        make(store, shape=(4, 6))
        array = ingot.open(store, "r+")
        array[...] = 3
        array.resize((2, 3))
        # One chunk of the shard is inside, three are not.
        array.resize((4, 6))
        expected = np.full((4, 6), 7)
        expected[:2, :3] = 3
        assert np.array_equal(array[...], expected)

    def test_appending_goes_on_in_the_last_shard(self) -> None:
        store = MemoryStore()
        make(store, shape=(0, 6))
        array = ingot.open(store, "r+")
        rows = np.arange(78, dtype="u1").reshape(13, 6)
        for row in rows:
            array.append(row[None])
        assert np.array_equal(array[...], rows)
        assert sorted(content(store)) == ["c/0/0", "c/1/0", "c/2/0", "c/3/0", "zarr.json"]

    def test_shards_outside_are_removed(self) -> None:
        store = MemoryStore()
        make(store)
        array = ingot.open(store, "r+")
        array[...] = 1
        array.resize((4, 9))
        assert sorted(content(store)) == ["c/0/0", "c/0/1", "zarr.json"]


class TestCreating:
    """The setting ``shards`` of new arrays."""

    def test_chunks_divide_shards(self) -> None:
        array = ingot.create(
            shape=(100, 50), dtype="i4", chunks=(5, 5), shards=(20, 25), format="zarr3"
        )
        assert array.chunks == (5, 5)
        array[...] = 1
        assert array.info is not None
        with pytest.raises(ValueError, match=r"shards \(20, 24\): chunks \(5, 5\) do not divide"):
            ingot.create(
                shape=(100, 50), dtype="i4", chunks=(5, 5), shards=(20, 24), format="zarr3"
            )
        with pytest.raises(ValueError, match="not a shape or 'auto'"):
            ingot.create(shape=9, dtype="i4", shards="large", format="zarr3")
        with pytest.raises(ValueError, match="axes"):
            ingot.create(shape=9, dtype="i4", chunks=3, shards=(3, 3), format="zarr3")

    def test_auto_makes_few_files(self) -> None:
        store = MemoryStore()
        array = ingot.create(
            store, shape=(1024, 1024), dtype="u1", chunks=(32, 32), shards="auto", format="zarr3"
        )
        array[...] = 5
        assert sorted(content(store)) == ["c/0/0", "zarr.json"]
        assert array.chunks == (32, 32)
        assert np.array_equal(array[::100, 7], [5] * 11)

    def test_stored_bytes_are_those_of_the_shards(self) -> None:
        store = MemoryStore()
        array = ingot.create(
            store, shape=(100,), dtype="u1", chunks=10, shards=50, codec="none", format="zarr3"
        )
        array[55:] = 1
        assert array.stored_bytes == len(content(store)["c/1"])

    def test_a_huge_grid_is_no_work(self) -> None:
        array = ingot.create(
            shape=(2**40, 2**20), dtype="u1", chunks=(8, 8), shards=(64, 64), format="zarr3"
        )
        array[2**39, 5] = 3
        assert array[2**39 - 1 : 2**39 + 1, 5].tolist() == [0, 3]
        assert array.stored_bytes > 0


class TestHostile:
    """Shards that lie."""

    def damaged(self, shard: bytes) -> ingot.Array:
        store = MemoryStore()
        make(store)
        store.apply(Commit(publish=(Put("c/0/0", shard),)))
        return ingot.open(store, "r+")

    @pytest.mark.parametrize("size", [0, 1, 67])
    def test_a_shard_shorter_than_its_index(self, size: int) -> None:
        array = self.damaged(bytes(size))
        with pytest.raises(CorruptionError, match=f"{size} bytes are stored, its index") as caught:
            array[0, 0]
        assert "c/0/0" in " ".join(caught.value.__notes__)
        with pytest.raises(CorruptionError):
            array[0, 0] = 1
        array.resize((10, 9))

    def test_an_inner_shard_that_leaves_its_range(self) -> None:
        store = MemoryStore()
        make(store, serializer=NESTED)
        inner = IndexForm((2, 2), INDEX)
        outer = IndexForm((1, 1), INDEX, "start")
        entries = np.full((4, 2), 2**64 - 1, np.uint64)
        entries[0] = 0, 5
        # The bytes are there, but they belong to no inner shard.
        body = inner.pack(entries)
        shard = build_shard(outer, {0: body})
        assert shard is not None
        store.apply(Commit(publish=(Put("c/0/0", shard + bytes(100)),)))
        array = ingot.open(store)
        with pytest.raises(CorruptionError, match=r"the chunk|bytes"):
            array[0, 0]
        entries[0] = 60, 60
        store.apply(
            Commit(
                publish=(
                    Put(
                        "c/0/0", (build_shard(outer, {0: inner.pack(entries)}) or b"") + bytes(100)
                    ),
                )
            )
        )
        with pytest.raises(CorruptionError, match="claims 60 bytes from 60 on, the shard has 68"):
            array[0, 0]

    def test_an_index_for_more_chunks_than_memory_holds(self) -> None:
        store = MemoryStore()
        sharding = Sharding((1, 1), ITEMS, INDEX)
        schema = ArraySchema(
            (2**20, 2**20),
            np.dtype("u1"),
            (2**20, 2**20),
            CodecChain((), sharding, ()),
            np.uint8(0),
        )
        with pytest.raises(IngotError, match="index is too large"):
            Zarr3Format().create(store, schema)


class TestIndexes:
    """Indexes that are kept for the next call."""

    def store(self, folder: Path) -> tuple[LocalStore, ShardedMap]:
        store = LocalStore(folder, writable=True)
        chunks = make(store)
        store.apply(chunks.stage({(n, m): bytes(9) for n in range(5) for m in range(3)}))
        long_ago = time.time() - 10
        for path in (folder / "c").rglob("*"):
            os.utime(path, (long_ago, long_ago))
        return store, chunks

    def test_an_index_is_read_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        _store, chunks = self.store(tmp_path)
        located(chunks, (0, 0), (4, 2))
        read: list[Extent] = []
        monkeypatch.setattr(LocalStore, "read", lambda self, extents: read.extend(extents) or [])
        places = located(chunks, (0, 0), (4, 2), (1, 1))
        assert read == []
        assert all(isinstance(place, Extent) for place in places)

    def test_another_file_is_read_again(self, tmp_path: Path) -> None:
        store, chunks = self.store(tmp_path)
        located(chunks, (0, 0))
        store.apply(chunks.stage({(0, 0): b"longer than before"}))
        (place,) = located(chunks, (0, 0))
        assert store.read([place]) == [b"longer than before"]  # type: ignore[list-item]

    def test_a_file_that_changed_just_now_is_not_relied_on(self, tmp_path: Path) -> None:
        _store, chunks = self.store(tmp_path)
        now = time.time()
        os.utime(tmp_path / "c/0/0", (now, now))
        located(chunks, (0, 0))
        assert chunks.indexes.used == 0

    def test_the_budget_is_kept(self, tmp_path: Path) -> None:
        _store, chunks = self.store(tmp_path)
        small = ShardedMap(chunks.shards, chunks.levels, ShardIndexes(150))
        for coords in [(0, 0), (2, 0), (4, 0), (0, 2), (2, 2)]:
            located(small, coords)
            assert small.indexes.used <= 150
        assert small.indexes.used == 128
        nothing = ShardedMap(chunks.shards, chunks.levels, ShardIndexes(10))
        located(nothing, (0, 0))
        assert nothing.indexes.used == 0

    def test_the_index_of_a_shard_that_changed_takes_the_place_of_the_old_one(
        self, tmp_path: Path
    ) -> None:
        store, chunks = self.store(tmp_path)
        small = ShardedMap(chunks.shards, chunks.levels, ShardIndexes(150))
        located(small, (2, 0))
        for turn in range(1, 6):
            data = b"%d" % turn * 20
            store.apply(small.stage({(0, 0): data}))
            old = time.time() - 10 * turn
            os.utime(tmp_path / "c/0/0", (old, old))
            (place,) = located(small, (0, 0))
            assert store.read([place]) == [data]  # type: ignore[list-item]
            # One of the changed shard, one of the other: no more, and none was dropped for it.
            assert small.indexes.used == 128
        read: list[Extent] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LocalStore, "read", lambda self, extents: read.extend(extents) or [])
            located(small, (0, 0), (2, 0))
        assert read == []

    def test_maps_of_other_states_share_them(self, tmp_path: Path) -> None:
        _, chunks = self.store(tmp_path)
        again = chunks.reopened(chunks.store)
        assert isinstance(again, ShardedMap)
        assert again.indexes is chunks.indexes is chunks.resized((3, 3))[0].indexes
        assert chunks.described({"a": 1})[0].schema.attrs == {"a": 1}
        assert inner_map(chunks.shards).schema.chunks == (2, 3)


VALUES = np.arange(1, 61, dtype="<u2").reshape(6, 10)


@pytest.mark.parametrize(
    "values",
    [VALUES, np.asfortranarray(VALUES), np.repeat(VALUES, 2, 1)[:, ::2], VALUES[::-1][::-1]],
    ids=["C", "F", "every other", "turned twice"],
)
def test_a_shard_alone_is_written_from_the_memory_of_its_caller(
    tmp_path: Path, values: Any
) -> None:
    """What the bytes of one shard are, whichever way the items lie in memory."""
    values = values.copy(order="K")
    values[2:4] = 0
    values.flags.writeable = False
    array = ingot.create(
        tmp_path / "array",
        shape=(6, 10),
        dtype="<u2",
        chunks=(2, 10),
        shards=(8, 10),
        codec="none",
        checksum=False,
        format="zarr3",
    )
    array[...] = values
    stored = (tmp_path / "array/c/0/0").read_bytes()
    index = np.frombuffer(stored[-68:-4], "<u8").tolist()
    absent = 2**64 - 1
    assert index == [0, 40, absent, absent, 40, 40, absent, absent]
    assert stored[:-68] == VALUES[:2].tobytes() + VALUES[4:].tobytes()
    array[:2] = 7
    assert (array[:2] == 7).all()
    assert (array[2:] == values[2:]).all()

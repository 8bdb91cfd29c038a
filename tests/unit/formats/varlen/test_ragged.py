"""The commits that change a file of variable-length items."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.errors import CorruptionError
from ingot.formats.format import Splice
from ingot.formats.varlen import ragged
from ingot.formats.varlen.ragged import VarlenMap, open_items
from ingot.options import Options
from ingot.ragged_array import UTF8, RaggedArray
from ingot.stores import Extent, Grown, MemoryStore, Move, Patch, Put
from ingot.testing.counting import CountingStore
from tests import varlen_files as by_hand

NOISE = np.random.default_rng(3).integers(0, 256, 100_000).astype("u1").tobytes()


@pytest.fixture
def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short files be changed in place, as long ones are."""
    monkeypatch.setattr(ragged, "_SMALLEST_IN_PLACE", 0)


def noise(count: int, size: int, first: int = 0) -> list[bytes]:
    """Return items that no codec makes shorter."""
    starts = range(first, first + count * size, size)
    return [NOISE[start : start + size] for start in starts]


def mapped(store: MemoryStore) -> VarlenMap:
    return open_items(store, "data.blv")


def stored(store: MemoryStore) -> bytes:
    (data,) = store.read([Extent("data.blv")])
    assert data is not None
    return data


def image(packs: VarlenMap, items: list[Any]) -> Any:
    from ingot.formats.format import Pack

    given = RaggedArray.of(items, packs.schema.kind)
    return Pack(len(items), packs.codec.encode(given, 0))


def check(made: Any, store: MemoryStore, expected: list[Any]) -> None:
    assert list(made) == expected
    assert list(ingot.open(store)) == expected
    found, _ = by_hand.read_file(stored(store))
    assert found == expected


@pytest.mark.usefixtures("in_place")
def test_new_packs_lie_behind_the_end_and_the_front_is_patched() -> None:
    store = MemoryStore()
    ingot.ragged(noise(4, 100), store, pack_bytes=200, slots=5)
    packs = mapped(store)
    end = packs.file.size
    after, commit = packs.spliced([Splice(2, 2, (image(packs, [b"new"]),))])
    (grown,) = commit.prepare
    assert isinstance(grown, Grown)
    assert grown.start == end
    assert all(isinstance(edit, Patch) for edit in commit.publish)
    assert all(edit.start + len(edit.data) <= packs.file.begin for edit in commit.publish)  # type: ignore[union-attr]
    assert sum(len(edit.data) for edit in commit.publish) < 120  # type: ignore[union-attr]
    store.apply(commit)
    assert mapped(store).file.front == after.file.front
    assert mapped(store).file.size == after.file.size
    check(ingot.open(store), store, [*noise(4, 100), b"new"])


@pytest.mark.usefixtures("in_place")
def test_the_last_pack_grows_where_it_lies() -> None:
    store = MemoryStore()
    made = ingot.ragged(noise(2, 100), store, pack_bytes=1000, slots=2)
    size = len(stored(store))
    made.append(noise(1, 100, 500))
    assert len(stored(store)) == size + 100 + 4
    assert made.dead_bytes == 0
    check(made, store, [*noise(2, 100), *noise(1, 100, 500)])


@pytest.mark.usefixtures("in_place")
def test_a_pack_that_fits_is_replaced_where_it_lies() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(6, 100), store, pack_bytes=200, slots=2)
    before = mapped(store).file
    made[0] = NOISE[900:1000]
    after = mapped(store).file
    assert (after.size, after.table.starts.tolist()) == (before.size, before.table.starts.tolist())
    assert made.dead_bytes == 0
    check(made, store, [NOISE[900:1000], *noise(6, 100)[1:]])


@pytest.mark.usefixtures("in_place")
def test_a_pack_that_grows_moves_to_the_end() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(20, 100), store, pack_bytes=200, slots=2)
    before = mapped(store).file
    made[0] = NOISE[900:1050]
    after = mapped(store).file
    assert after.table.starts[0] == before.size
    assert after.table.starts[1:].tolist() == before.table.starts[1:].tolist()
    assert made.dead_bytes == before.rooms[0]
    check(made, store, [NOISE[900:1050], *noise(20, 100)[1:]])
    made.compact()
    assert made.dead_bytes == 0
    assert len(stored(store)) == after.size - before.rooms[0]
    check(made, store, [NOISE[900:1050], *noise(20, 100)[1:]])


@pytest.mark.usefixtures("in_place")
@pytest.mark.parametrize("reserve", [60, 0.5])
def test_a_reserve_lets_packs_grow_in_place(reserve: float) -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(6, 100), store, pack_bytes=200, slots=2, reserve=reserve)
    before = mapped(store).file
    made[0] = NOISE[900:1050]
    after = mapped(store).file
    assert after.table.starts.tolist() == before.table.starts.tolist()
    assert made.dead_bytes == 0
    check(made, store, [NOISE[900:1050], *noise(6, 100)[1:]])


@pytest.mark.usefixtures("in_place")
def test_files_that_are_dead_for_the_most_part_are_written_anew() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(10, 100), store, pack_bytes=200, slots=2)
    plain = len(stored(store))
    sizes = []
    expected = noise(10, 100)
    for turn in range(1, 30):
        place = 2 if turn % 2 else 6
        made[place] = expected[place] = NOISE[turn : 150 + 2 * turn]
        sizes.append(len(stored(store)))
        assert 2 * made.dead_bytes <= sizes[-1]
    assert max(sizes) < 3 * plain
    assert any(later < earlier for earlier, later in pairwise(sizes))
    check(made, store, expected)


@pytest.mark.usefixtures("in_place")
def test_spare_entries_double_when_they_are_used_up() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(1, 100), store, pack_bytes=100, slots=3)
    capacities = [mapped(store).file.table.capacity]
    for number in range(1, 60):
        made.append(noise(1, 100, 100 * number))
        capacities.append(mapped(store).file.table.capacity)
    assert capacities[:4] == [4, 4, 4, 4]
    assert sorted(set(capacities)) == [4, 21, 44, 90]
    check(made, store, noise(60, 100))


@pytest.mark.usefixtures("in_place")
def test_attributes_have_room_or_make_a_new_file() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged(noise(4, 100), store, slots=2)
    begin = mapped(store).file.begin
    made.attrs["unit"] = "m"
    assert mapped(store).file.begin == begin
    made.attrs["long"] = "x" * 5000
    assert mapped(store).file.begin > begin
    assert dict(ingot.open(store).attrs) == {"unit": "m", "long": "x" * 5000}
    check(made, store, noise(4, 100))


@pytest.mark.usefixtures("in_place")
def test_items_without_packs_become_null_and_back() -> None:
    store = MemoryStore()
    made: Any = ingot.ragged([b"a", None, b"c"], store, packed=False, slots=4)
    made[0] = None
    made[1] = b"bb" * 20
    made.append([None, b"d"])
    made.resize(6)
    check(made, store, [None, b"bb" * 20, b"c", None, b"d", None])
    made[[0, 5]] = [b"x", b"y"]
    made.delete([1, 3])
    check(made, store, [b"x", b"c", b"d", b"y"])


def test_short_files_are_written_anew_by_one_put() -> None:
    store = MemoryStore()
    ingot.ragged(["a"], store)
    packs = mapped(store)
    _, commit = packs.spliced([Splice(1, 1, (image(packs, ["b"]),))])
    assert len(commit.edits) == 1
    assert isinstance(commit.publish[0], Put | Move)


def test_long_files_change_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.blv"
    options = Options(durability="process")
    items = noise(90, 1000, 0)
    made: Any = ingot.ragged(items * 15, path, packed=True, slots=40, options=options)
    assert path.stat().st_size > ragged._SMALLEST_IN_PLACE
    before = path.stat().st_ino
    made.append([b"more"])
    made[700] = NOISE[:1000]
    made[5] = NOISE[:2000]
    made.delete(slice(100, 110))
    assert path.stat().st_ino == before
    expected = [*items * 15, b"more"]
    expected[700], expected[5] = NOISE[:1000], NOISE[:2000]
    del expected[100:110]
    assert list(made) == expected == list(ingot.open(path))
    assert by_hand.read_file(path.read_bytes())[0] == expected


def test_a_room_that_is_mostly_dead_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_LONG_ROOM", 500)
    data = by_hand.packed_file([[b"a"], [b"b"]])
    begin = len(data) - len(by_hand.pack([b"b"]))
    store = CountingStore({"data.blv": data + bytes(10_000)})
    packs = mapped(store)
    assert packs.file.rooms.tolist() == [begin - packs.file.begin, len(data) + 10_000 - begin]
    (first, second) = packs.locate(np.array([0, 1]))
    assert isinstance(second, Extent)
    assert (second.start, second.length) == (begin, len(by_hand.pack([b"b"])))
    store.reset()
    packs.locate(np.array([1]))
    assert store.batches == 0
    assert first.length == len(by_hand.pack([b"a"]))  # type: ignore[union-attr]


def test_a_pack_that_reaches_into_the_next_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(by_hand.packed_file([[b"a" * 50], [b"b"]]))
    packs = mapped(MemoryStore({"data.blv": bytes(data)}))
    place = packs.file.begin + 24 + 12
    data[place : place + 4] = (200).to_bytes(4, "little")
    broken: Any = ingot.open(MemoryStore({"data.blv": bytes(data)}), "r+")
    with pytest.raises(CorruptionError, match="its room has"):
        broken[0]
    assert broken[1] == b"b"
    with pytest.raises(CorruptionError, match="its room has"):
        broken.append([b"c"])
    monkeypatch.setattr(ragged, "_LONG_ROOM", 0)
    with pytest.raises(CorruptionError, match=r"claims .* bytes, its room has"):
        ingot.open(MemoryStore({"data.blv": bytes(data)}))[0]  # type: ignore[index]


def test_another_writer_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.blv"
    first: Any = ingot.ragged(["a"], path)
    second: Any = ingot.open(path, "r+")
    first.append(["b"])
    second.append(["c"])
    assert list(first) == list(second) == ["a", "b", "c"]
    # A program that does not know the lock.
    path.write_bytes(by_hand.packed_file([[b"x"]], dtype="utf8"))
    second.append(["d"])
    assert list(ingot.open(path)) == ["x", "d"]


def test_kinds_are_checked() -> None:
    made = ingot.ragged(["a"])
    with pytest.raises(ValueError, match="item 0 is b'b', not text"):
        made.append([b"b"])
    assert made._kind == UTF8


def test_creation_leaves_no_other_file(tmp_path: Path) -> None:
    ingot.ragged(["a"], tmp_path / "a.blv")
    assert [each.name for each in tmp_path.iterdir() if not each.name.startswith(".")] == ["a.blv"]

"""The engine of variable-length items, on regular packs and on packs of any length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from ingot.engine import ragged
from ingot.engine.ragged import RaggedEngine
from ingot.errors import CorruptionError, LimitError
from ingot.formats.format import Documents, Locations, RaggedMap, Splice
from ingot.options import Limits, Options
from ingot.ragged_array import UTF8, RaggedArray
from ingot.schema import RaggedSchema
from ingot.stores import MemoryStore
from ingot.stores.store import Commit, Delete, Inline, Put, Store
from tests.contracts.toy.table import ToyPacks, ToyRaggedMap
from tests.limited import run_limited
from tests.storage import content


@dataclass(frozen=True, slots=True)
class FreeMap:
    """Packs of any number of items, each under a key that is used once."""

    store: Store
    schema: RaggedSchema
    counts: tuple[int, ...] = ()
    keys: tuple[str, ...] = ()
    used: int = 0
    path: ClassVar[str] = "free"
    documents: ClassVar[Documents] = {}

    def bounds(self) -> NDArray[np.int64]:
        return np.array([0, *accumulate(self.counts)], np.int64)

    def locate(self, numbers: NDArray[np.int64]) -> Locations:
        return Locations(tuple(self.keys[number] for number in numbers.tolist()))

    def spliced(self, splices: Sequence[Splice]) -> "tuple[FreeMap, Commit]":
        counts, keys, used = list(self.counts), list(self.keys), self.used
        puts, gone = [], []
        for start, stop, packs in reversed(splices):
            names = [f"pack-{used + number}" for number in range(len(packs))]
            used += len(packs)
            puts += [Put(name, pack.data) for name, pack in zip(names, packs, strict=True)]
            gone += [Delete(key) for key in keys[start:stop]]
            counts[start:stop] = [pack.items for pack in packs]
            keys[start:stop] = names
        schema = self.schema.resized(sum(counts))
        after = FreeMap(self.store, schema, tuple(counts), tuple(keys), used)
        return after, Commit(prepare=tuple(puts), cleanup=tuple(gone))

    def described(self, attrs: Mapping[str, Any]) -> "tuple[FreeMap, Commit]":
        return replace(self, schema=self.schema.described(attrs)), Commit()

    def removed(self) -> Commit:
        return Commit(publish=tuple(map(Delete, self.keys)))

    def reopened(self, store: Store) -> "FreeMap":
        return self.rebound(store)

    def rebound(self, store: Store) -> "FreeMap":
        return replace(self, store=store)


def free(store: Store) -> RaggedMap:
    return FreeMap(store, RaggedSchema(0, UTF8, 4, ToyPacks(), regular=False))


def regular(store: Store) -> RaggedMap:
    return ToyRaggedMap.of(store, RaggedSchema(0, UTF8, 4, ToyPacks()), "toy")


@pytest.fixture(params=[free, regular])
def engine(request: pytest.FixtureRequest) -> RaggedEngine:
    packs = request.param(MemoryStore())
    assert isinstance(packs, RaggedMap)
    return RaggedEngine(packs, Options())


def applied(change: ragged.RaggedChange) -> RaggedEngine:
    change.engine.packs.store.apply(change.commit)
    return change.engine


def items(*texts: str | None) -> RaggedArray:
    return RaggedArray.of(texts, UTF8)


def whole(engine: RaggedEngine) -> list[Any]:
    return engine.read(range(engine.shape[0])).to_list()


def test_items_change_as_a_list_does(engine: RaggedEngine) -> None:
    assert whole(engine) == []
    expected: list[Any] = [f"{number}" * number for number in range(11)]
    engine = applied(ragged.appended(engine, items(*expected[:3])))
    engine = applied(ragged.appended(engine, items(*expected[3:])))
    assert whole(engine) == expected
    for rows in (range(0), range(3, 4), range(2, 9), range(10, -1, -3), range(4, 8)):
        assert engine.read(rows).to_list() == [expected[row] for row in rows]
    some = [7, 0, 7, 10, 3]
    assert engine.read(np.array(some)).to_list() == [expected[row] for row in some]
    engine = applied(ragged.assigned(engine, np.array([9, 1, 9]), items("a", None, "b")))
    expected[1], expected[9] = None, "b"
    assert whole(engine) == expected
    engine = applied(ragged.assigned(engine, range(5, 2, -1), items("c", "d", "e")))
    expected[3:6] = ["e", "d", "c"]
    assert whole(engine) == expected
    engine = applied(ragged.resized(engine, 14))
    expected += [None] * 3
    assert whole(engine) == expected
    for length in (13, 9, 8, 2, 0):
        engine = applied(ragged.resized(engine, length))
        assert whole(engine) == expected[:length]
    assert engine.pack_count == 0
    assert not [key for key in content(engine.packs.store) if "pack" in key]
    engine = applied(ragged.resized(engine, 9))
    assert whole(engine) == [None] * 9
    assert engine.packs.bounds()[[0, -1]].tolist() == [0, 9]


def test_what_does_not_change_stores_nothing(engine: RaggedEngine) -> None:
    engine = applied(ragged.appended(engine, items("a", "b")))
    assert ragged.appended(engine, items()).commit == Commit()
    assert ragged.resized(engine, 2).commit == Commit()
    assert ragged.assigned(engine, range(0), items()).commit == Commit()
    described = applied(ragged.described(engine, {"unit": "m"}))
    assert described.packs.schema.attrs == {"unit": "m"}


def test_only_the_packs_that_hold_changed_items_are_stored(engine: RaggedEngine) -> None:
    engine = applied(ragged.appended(engine, items(*"abcdefghijklm")))
    change = ragged.assigned(engine, np.array([12, 1]), items("x", "y"))
    stored = [edit for edit in change.commit.edits if isinstance(edit, Put) and "pack" in edit.key]
    assert len(stored) == 2
    assert whole(applied(change)) == list("aycdefghijklx")


def test_packs_are_encoded_with_their_numbers() -> None:
    numbers: list[int] = []

    class Noted(ToyPacks):
        def encode(self, items: RaggedArray, number: int) -> bytes:
            numbers.append(number)
            return ToyPacks.encode(self, items, number)

    packs = ToyRaggedMap.of(MemoryStore(), RaggedSchema(0, UTF8, 2, Noted()), "toy")
    engine = applied(ragged.appended(RaggedEngine(packs, Options()), items(*"abcde")))
    engine = applied(ragged.appended(engine, items(*"fg")))
    engine = applied(ragged.assigned(engine, range(3, 5), items(*"xy")))
    applied(ragged.resized(engine, 3))
    assert numbers == [0, 1, 2, 2, 3, 1, 2, 1]


def test_items_of_another_kind_are_refused(engine: RaggedEngine) -> None:
    engine = applied(ragged.appended(engine, items("a")))
    other = RaggedArray.of([b"b"])
    for change in (
        lambda: ragged.appended(engine, other),
        lambda: ragged.assigned(engine, range(1), other),
        lambda: ragged.filled(engine, other),
    ):
        with pytest.raises(ValueError, match="items of bytes are not utf8"):
            change()


def test_more_packs_than_a_commit_may_store(engine: RaggedEngine) -> None:
    few = RaggedEngine(engine.packs, Options(limits=Limits(commit_chunks=2)))
    applied(ragged.appended(few, items(*"abcdefgh")))
    with pytest.raises(LimitError, match="a commit of 3 packs, the most is 2"):
        ragged.appended(few, items(*"abcdefghi"))
    with pytest.raises(LimitError, match="packs, the most is 2"):
        ragged.resized(few, 2**60)


def test_packs_that_are_lost_or_damaged() -> None:
    store = MemoryStore()
    packs = ToyRaggedMap.of(store, RaggedSchema(0, UTF8, 4, ToyPacks()), "toy")
    engine = applied(ragged.appended(RaggedEngine(packs, Options()), items(*"abcdef")))
    good = content(store)["toy/pack-1"]
    damages = {
        b"": "0 items in 0 bytes, 2 are due",
        good[:-1]: "2 bytes of items, 1 stored",
        good + b"x": "2 bytes of items, 3 stored",
        good.replace(b"\x02", b"\x03", 1): "3 items in 14 bytes, 2 are due",
        good[:4] + b"\xfe\xff\xff\xff" + good[8:]: "an item of -2 bytes",
        good[:-1] + b"\xff": "item 1 is no text in UTF-8",
        good[:4] + b"\xff\xff\xff\x7f" * 2 + good[12:]: "4294967294 bytes of items, 2 stored",
    }
    for damaged, message in damages.items():
        store.apply(Commit(publish=(Put("toy/pack-1", damaged),)))
        assert engine.read(range(4)).to_list() == list("abcd")
        with pytest.raises(CorruptionError, match=message) as caught:
            whole(engine)
        assert caught.value.__notes__ == [f"in pack 1 of toy in {store.location}"]
    store.apply(Commit(publish=(Delete("toy/pack-1"),)))
    with pytest.raises(CorruptionError, match="pack 1 of toy is not stored"):
        whole(engine)


def test_a_length_that_is_only_claimed_costs_nothing() -> None:
    store = MemoryStore()
    packs = ToyRaggedMap.of(store, RaggedSchema(0, UTF8, 4, ToyPacks()), "toy")
    engine = applied(ragged.appended(RaggedEngine(packs, Options()), items(*"abcd")))
    claim = replace(engine.packs, schema=engine.packs.schema.resized(2**62))  # type: ignore[type-var]
    engine = RaggedEngine(claim, Options())
    assert engine.read(range(1, 3)).to_list() == ["b", "c"]
    assert engine.stored_bytes() == len(content(store)["toy/pack-0"])
    with pytest.raises(CorruptionError, match="pack 1 of toy is not stored"):
        engine.read(range(2**62))
    with pytest.raises(CorruptionError, match="pack 1 of toy is not stored"):
        engine.read(range(0, 2**62, 3))
    with pytest.raises(CorruptionError, match=r"pack [0-9]{19} of toy is not stored"):
        engine.read(range(2**62)[::-1])


def test_many_items_by_steps(engine: RaggedEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_ROWS", 2)
    engine = applied(ragged.appended(engine, items(*"abcdefghijk")))
    for step in (-1, 2, 3, -5, 11):
        assert "".join(engine.read(range(11)[::step])) == "abcdefghijk"[::step]


@pytest.mark.parametrize("kind", ["utf8", "bytes", "json", "<i2"])
def test_every_flipped_bit_and_every_truncation_of_a_pack(kind: str) -> None:
    code = """
sys.path.insert(0, sys.argv[2])
from ingot.ragged_array import ItemKind, RaggedArray
from tests.contracts.toy.table import ToyPacks
kind = ItemKind.of(sys.argv[1])
values = {
    "utf8": ["a", None, "", "é日", "x" * 9],
    "bytes": [b"a", None, b"", b"xyz", b"0"],
    "json": [{"a": [1]}, None, "", [[], 2.5], True],
    "list": [[1, 2], None, [], [3], [4]],
}[kind.name]
good = ToyPacks().encode(RaggedArray.of(values, kind), 0)
assert [str(each) for each in ToyPacks().decode(good, kind, 5, 0)][1] == "None"
damaged = [good[:end] for end in range(len(good))]
for place in range(len(good)):
    for bit in range(8):
        flipped = bytearray(good)
        flipped[place] ^= 1 << bit
        damaged.append(bytes(flipped))
refused = 0
for data in damaged:
    try:
        items = ToyPacks().decode(data, kind, 5, 0)
        assert len(items) == len(items.to_list()) == len(items.to_numpy()) == 5
    except IngotError:
        refused += 1
assert refused > len(good), refused
"""
    run_limited(code, "python", kind, Path(__file__).parents[3])


def test_packs_may_be_inline() -> None:
    @dataclass(frozen=True, slots=True)
    class InlineMap(FreeMap):
        def locate(self, numbers: NDArray[np.int64]) -> Locations:
            data = ToyPacks().encode(items("a", None), 0)
            return Locations(("",) * len(numbers), others={0: Inline(data)})

    schema = RaggedSchema(2, UTF8, 4, ToyPacks(), regular=False)
    engine = RaggedEngine(InlineMap(MemoryStore(), schema, (2,), ("",)), Options())
    assert whole(engine) == ["a", None]
    assert engine.stored_bytes() == 13

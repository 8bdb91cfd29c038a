"""Shards are replaced whole: no crash shows half of one, and no writer loses another's chunks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ingot
from ingot.formats.zarr.shards import ShardedMap
from ingot.formats.zarr.v3 import Zarr3Format
from ingot.stores import Extent, MemoryStore, Store
from ingot.testing import Scenario, prove, schedules
from tests.storage import content

Change = tuple[Callable[[ingot.Array], object], Callable[[np.ndarray], np.ndarray]]


def assign(start: int, stop: int, value: int) -> Change:
    def expect(items: np.ndarray) -> np.ndarray:
        return np.concatenate([items[:start], np.full(stop - start, value, "u1"), items[stop:]])

    return lambda array: array.__setitem__(slice(start, stop), value), expect


def append(*values: int) -> Change:
    added = np.array(values, "u1")
    return lambda array: array.append(added), lambda items: np.concatenate([items, added])


def resize(length: int) -> Change:
    def expect(items: np.ndarray) -> np.ndarray:
        return np.concatenate([items[:length], np.zeros(max(0, length - len(items)), "u1")])

    return lambda array: array.resize(length), expect


def scenario(length: int, *changes: Change, **layout: Any) -> Scenario:
    """Return the scenario of an array in shards of three chunks of two items."""
    items = np.arange(1, length + 1, dtype="u1")
    start = MemoryStore()
    ingot.array(items, start, chunks=2, shards=6, format="zarr3", codec="none", **layout)
    states = [items]
    for _, expect in changes:
        states.append(expect(states[-1]))
    assert len({state.tobytes() for state in states}) == len(states)

    def judge(store: Store) -> int:
        found = ingot.open(store)[...].tobytes()
        return [state.tobytes() for state in states].index(found)

    def step(number: int) -> Callable[[Store], None]:
        def perform(store: Store) -> None:
            # The next writer goes on where the dead one was: what is committed is not done again.
            if judge(store) == number:
                changes[number][0](ingot.open(store, "r+"))

        return perform

    return Scenario(content(start), tuple(map(step, range(len(changes)))), judge)


SCENARIOS = {
    "one chunk": scenario(12, assign(2, 4, 50)),
    "part of a chunk": scenario(12, assign(3, 4, 50)),
    "one shard": scenario(12, assign(0, 6, 50)),
    "parts of two shards": scenario(12, assign(4, 9, 50)),
    "three shards": scenario(18, assign(0, 18, 50)),
    "a shard that goes": scenario(12, assign(0, 6, 0)),
    "chunks of one shard, one after the other": scenario(6, assign(0, 2, 50), assign(4, 6, 60)),
    "append inside a shard": scenario(8, append(50, 60)),
    "append to a chunk and beyond the shard": scenario(11, append(50, 60, 70)),
    "grow": scenario(7, resize(13)),
    "shrink": scenario(13, resize(3)),
    "shrink, then grow in the same shard": scenario(12, resize(3), resize(6)),
    "shrink, then append": scenario(6, resize(1), append(50)),
    "with a checksum": scenario(12, assign(3, 9, 50), checksum=True),
}


def test_the_arrays_are_in_shards() -> None:
    for each in SCENARIOS.values():
        node = Zarr3Format().open(MemoryStore(each.files))
        assert isinstance(node.chunks, ShardedMap)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_crash_leaves_a_committed_state(name: str) -> None:
    proof = prove(SCENARIOS[name])
    assert proof.faults == []
    assert set(proof.states.values()) == set(range(len(SCENARIOS[name].steps) + 1))


@pytest.mark.parametrize("name", ["parts of two shards", "shrink, then grow in the same shard"])
def test_a_reader_sees_one_committed_state(name: str) -> None:
    meetings = list(schedules(SCENARIOS[name], switches=1))
    assert len(meetings) > 50
    assert [meeting for meeting in meetings if meeting.fault] == []


def test_no_reader_takes_the_index_of_one_shard_for_another() -> None:
    """What clearing the edge leaves out of a shard moves the chunks behind it."""
    items = np.arange(1, 17, dtype="u1").reshape(4, 4)
    items[:2, 2] = 0
    start = MemoryStore()
    array = ingot.array(items, start, chunks=(2, 2), shards=(4, 4), codec="none", checksum=False)
    array.resize((4, 3))
    grown = np.pad(items[:, :3], ((0, 0), (0, 1)))

    def judge(store: Store) -> int:
        found = ingot.open(store)[...].tobytes()
        return [items[:, :3].tobytes(), grown.tobytes()].index(found)

    growth = Scenario(
        content(start), (lambda store: ingot.open(store, "r+").resize((4, 4)),), judge
    )
    assert prove(growth).holds
    meetings = list(schedules(growth, switches=1))
    assert len(meetings) > 20
    assert [meeting for meeting in meetings if meeting.fault] == []


def test_a_shard_that_is_staged_from_old_bytes_is_noticed() -> None:
    """Were a writer to build on what it read before its turn, the other's chunk would be lost."""
    first = SCENARIOS["chunks of one shard, one after the other"]
    stale = Zarr3Format().open(MemoryStore(first.files)).chunks  # type: ignore[union-attr]

    def late(store: Store) -> None:
        store.apply(stale.stage({(2,): b"\x3c\x3c"}))

    broken = Scenario(first.files, (first.steps[0], late), first.judge)
    assert not prove(broken).holds


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("codec", ["none", "zlib:1"])
def test_writers_of_one_shard_do_not_lose_each_other(codec: str, tmp_path: Path) -> None:
    """Five processes write chunks of one shard at the same time, whole ones and parts of them."""
    writers, rounds = 5, 12
    ingot.create(
        tmp_path / "a",
        shape=(2 * writers, 64),
        dtype="u1",
        chunks=(2, 8),
        shards=(2 * writers, 64),
        codec=codec,
        format="zarr3",
    )

    def write(number: int) -> None:
        options = ingot.Options(durability="process")
        array = ingot.open(tmp_path / "a", "r+", options=options)
        rows = slice(2 * number, 2 * number + 2)
        for turn in range(1, rounds + 1):
            part = (rows, slice(0, 64, 8)) if turn % 2 else (rows, slice(8, 16))
            array[part] = 10 * number + turn
            assert (array[part] == 10 * number + turn).all()

    children = []
    for number in range(writers):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                write(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * writers
    found = ingot.open(tmp_path / "a")[...]
    for number in range(writers):
        assert (
            found[2 * number, 0::8] == [10 * number + rounds - (n != 1) for n in range(8)]
        ).all()
        assert (found[2 * number + 1, 8:16] == 10 * number + rounds).all()


def test_a_shard_is_one_key() -> None:
    store = MemoryStore(SCENARIOS["one shard"].files)
    assert store.read([Extent("c/0"), Extent("c/1"), Extent("c/2")])[2] is None
